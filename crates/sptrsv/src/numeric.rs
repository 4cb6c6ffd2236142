//! How long the numeric phase of a factorisation takes on the host and on the device, from the patterns of its factors.
//!
//! On the host it is serial: a time for each entry and for each term. On a device rows that need nothing of each other are made at the same time, and a row
//! is there a wait and its terms after the last of those that it needs (kernels/include/factor.cuh), so that the longest path decides. With a
//! level for every few rows the host is ahead, by up to a factor of 46 (record/h200-factorize.jsonl).
//!
//! Cost: a pass over the pattern of L, serial.

use spandrel_formats::Profile;
use spandrel_formats::profile::Factoring;

use crate::Factor;

/// Lanes that share a row.
const LANES: [usize; 2] = [4, 32];

/// Expected times of a numeric phase without a breakdown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numeric {
    /// Microseconds of one core of the host.
    pub host: f64,
    /// Microseconds of the device; infinite if the host is the device.
    pub device: f64,
}

impl Numeric {
    /// Of the phase that makes these factors, for a device with that profile.
    pub fn of<F: Factor>(factor: &F, profile: &Profile) -> Self {
        let never = Factoring { hop: f64::INFINITY, shared_term: 0.0 };
        let device = profile.factoring.as_ref().unwrap_or(&never);
        let (lower, n) = (factor.lower(), factor.nrows());
        // Rows are made of those of U off the diagonal, or of L's.
        let made_of = factor.upper().unwrap_or(lower);
        let per_term = device.shared_term * (LANES[1] / lanes(made_of.nnz(), n)) as f64;
        let (mut there, mut last, mut all) = (vec![0.0f64; n], 0.0f64, 0);
        for i in 0..n {
            let (mut terms, mut latest) = (0, 0.0f64);
            for &k in lower.row(i).iter().filter(|&&k| (k as usize) < i) {
                terms += made_of.row(k as usize).len() - 1;
                latest = latest.max(there[k as usize]);
            }
            there[i] = latest + device.hop + per_term * terms as f64;
            last = last.max(there[i]);
            all += terms;
        }
        if !F::WAITS {
            last = device.hop;
        }
        let host = profile.host.entry * factor.nnz() as f64 + profile.host.term * all as f64;
        Self { host: host / 1000.0, device: last / 1000.0 }
    }

    /// Whether the host is expected to be there first.
    pub fn is_sooner_on_host(&self) -> bool {
        self.host < self.device
    }
}

/// Lanes that share a row on a GPU, of factors with so many rows that are made of rows with so many entries in all, those on the diagonal among them: as
/// many as these have off it in the mean, 4 to 32 and a power of two.
pub fn lanes(entries: usize, nrows: usize) -> usize {
    entries.saturating_sub(nrows).div_ceil(nrows.max(1)).next_power_of_two().clamp(LANES[0], LANES[1])
}
