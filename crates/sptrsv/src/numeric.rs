//! Estimates how long the numeric phase of a factorisation takes on the host and on the device, from the patterns of
//! its factors.
//!
//! The host is serial: the estimate is a time per entry and a time per term. A device computes independent rows at the
//! same time. There a row is complete after the last row that it needs, plus one wait and its terms
//! (kernels/include/factor.cuh), so the longest path decides. If each level has only a few rows, the host is faster, by
//! a factor of up to 46 (record/h200-factorize.jsonl).
//!
//! Cost: one serial pass over the pattern of L.

use spandrel_formats::Profile;
use spandrel_formats::profile::Factoring;

use crate::Factor;

/// Minimum and maximum number of lanes that share a row.
const LANES: [usize; 2] = [4, 32];

/// Expected times of a numeric phase that does not break down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numeric {
    /// Microseconds on one core of the host.
    pub host: f64,
    /// Microseconds on the device; infinite if the host is the device.
    pub device: f64,
}

impl Numeric {
    /// Estimates the numeric phase of these factors for a device with that profile.
    pub fn of<F: Factor>(factor: &F, profile: &Profile) -> Self {
        let never = Factoring { hop: f64::INFINITY, shared_term: 0.0 };
        let device = profile.factoring.as_ref().unwrap_or(&never);
        let (lower, n) = (factor.lower(), factor.nrows());
        // A row depends on rows of U without the diagonal, or on rows of L.
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

    /// Returns true if the host is expected to finish first.
    pub fn is_sooner_on_host(&self) -> bool {
        self.host < self.device
    }
}

/// Number of lanes that share a row on a GPU: the mean number of entries off the diagonal, rounded up to a power of two
/// from 4 to 32. `entries` counts the entries of the factor on which rows depend, with the diagonal.
pub fn lanes(entries: usize, nrows: usize) -> usize {
    entries.saturating_sub(nrows).div_ceil(nrows.max(1)).next_power_of_two().clamp(LANES[0], LANES[1])
}
