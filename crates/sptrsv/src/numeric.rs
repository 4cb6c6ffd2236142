//! How long the numeric phase of a factorisation takes on the host and on a GPU, from the patterns of its factors.
//!
//! On the host it is serial: a time for each entry and for each term. On a GPU rows that need nothing of each other are made at the same time, and a row
//! is there a wait and its terms after the last of those that it needs (kernels/include/factor.cuh), so that the longest path decides. With a
//! level for every few rows the host is ahead, by up to a factor of 46 (record/h200-factorize.jsonl).
//!
//! Cost: a pass over the pattern of L, serial.

use crate::Factor;

/// Nanoseconds of the host for an entry of the factors, and for a term. Of a Xeon of 2023; seven of eight matrices within a third.
const ENTRY: f64 = 6.0;
const TERM: f64 = 0.9;
/// Nanoseconds of a GPU until a row that is made is seen and its last term taken, and for a term where 32 lanes share a row. Of an H200; sixteen of
/// nineteen matrices within a third.
const HOP: f64 = 2500.0;
const SHARED_TERM: f64 = 3.0;
/// Lanes that share a row.
const LANES: [usize; 2] = [4, 32];

/// Expected times of a numeric phase without a breakdown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numeric {
    /// Microseconds of one core of the host.
    pub host: f64,
    /// Microseconds of a GPU.
    pub gpu: f64,
}

impl Numeric {
    /// Of the phase that makes these factors.
    pub fn of<F: Factor>(factor: &F) -> Self {
        let (lower, n) = (factor.lower(), factor.nrows());
        // Rows are made of those of U off the diagonal, or of L's.
        let made_of = factor.upper().unwrap_or(lower);
        let per_term = SHARED_TERM * (LANES[1] / lanes(made_of.nnz(), n)) as f64;
        let (mut there, mut last, mut all) = (vec![0.0f64; n], 0.0f64, 0);
        for i in 0..n {
            let (mut terms, mut latest) = (0, 0.0f64);
            for &k in lower.row(i).iter().filter(|&&k| (k as usize) < i) {
                terms += made_of.row(k as usize).len() - 1;
                latest = latest.max(there[k as usize]);
            }
            there[i] = latest + HOP + per_term * terms as f64;
            last = last.max(there[i]);
            all += terms;
        }
        if !F::WAITS {
            last = HOP;
        }
        Self { host: (ENTRY * factor.nnz() as f64 + TERM * all as f64) / 1000.0, gpu: last / 1000.0 }
    }

    /// Whether the host is expected to be there first.
    pub fn is_sooner_on_host(&self) -> bool {
        self.host < self.gpu
    }
}

/// Lanes that share a row on a GPU, of factors with so many rows that are made of rows with so many entries in all, those on the diagonal among them: as
/// many as these have off it in the mean, 4 to 32 and a power of two.
pub fn lanes(entries: usize, nrows: usize) -> usize {
    entries.saturating_sub(nrows).div_ceil(nrows.max(1)).next_power_of_two().clamp(LANES[0], LANES[1])
}

#[cfg(test)]
mod tests {
    use spandrel_formats::{Csr, generate};

    use super::*;
    use crate::{Ic0, Ilu0, Ssor};

    fn of<F: Factor<Value = f64>>(spec: &str) -> Numeric {
        let a: Csr<f64> = generate::csr(spec).unwrap();
        Numeric::of(&F::symbolic(&a).unwrap())
    }

    #[test]
    fn a_line_is_the_hosts_and_a_cube_the_gpus() {
        let line = of::<Ic0<f64>>("poisson1d:10000");
        // Every row waits for the one before it, of which it takes one term.
        assert_eq!((line.gpu * 1000.0).round(), 10_000.0 * HOP + 9998.0 * SHARED_TERM * 8.0);
        assert!(line.is_sooner_on_host(), "{line:?}");
        for spec in ["banded:n=4000,d=75", "banded:n=20000,d=9"] {
            assert!(of::<Ilu0<f64>>(spec).is_sooner_on_host(), "{spec}");
        }
        for spec in ["poisson3d:40", "d3n27:40", "poisson2d:1000"] {
            assert!(!of::<Ic0<f64>>(spec).is_sooner_on_host(), "{spec}: {:?}", of::<Ic0<f64>>(spec));
            assert!(!of::<Ilu0<f64>>(spec).is_sooner_on_host(), "{spec}: {:?}", of::<Ilu0<f64>>(spec));
        }
    }

    #[test]
    fn rows_that_wait_for_none_are_the_gpus() {
        let line = of::<Ssor<f64>>("poisson1d:10000");
        assert!(!line.is_sooner_on_host(), "{line:?}");
    }

    #[test]
    fn small_and_empty_patterns_have_times_too() {
        let one = of::<Ilu0<f64>>("poisson1d:1");
        assert_eq!((one.host, one.gpu), (ENTRY / 1000.0, HOP / 1000.0));
        let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).unwrap();
        let none = Numeric::of(&Ic0::symbolic(&empty).unwrap());
        assert!(!none.is_sooner_on_host() && none.gpu == 0.0);
    }
}
