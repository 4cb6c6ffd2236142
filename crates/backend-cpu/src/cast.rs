//! Casts between element types on the CPU.
//!
//! Cost: every operand once. Order: element-wise; a maximum does not depend on the order.

use std::sync::atomic::{AtomicU64, Ordering};

use spandrel_backend::error::expect_len;
use spandrel_backend::{Cast, Coeff, Gate, Narrow, Result};
use spandrel_formats::Real;

use crate::backend::GRANULE;
use crate::device::open;
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

/// The bits of |x|, which ascend with |x|: those of infinity are above all numbers, and those of NaN are above these.
fn magnitude(x: f64) -> u64 {
    x.to_bits() & (u64::MAX >> 1)
}

/// 2^e of a magnitude's bits. See [`Cast::binade`].
fn binade(bits: u64) -> f64 {
    match bits >> 52 {
        _ if bits == 0 => 1.0,
        0x7ff => 1.0,
        exponent => f64::from_bits(exponent.clamp(1, 2045) << 52),
    }
}

// The host's way is just as close here.
impl Narrow for Cpu {}

impl<S: Real, T: Real> Cast<S, T> for Cpu {
    fn binade(&self, gate: Gate<'_, Self>, x: &Vector<S>, out: &mut Scalar<f64>) -> Result<()> {
        if open(gate) {
            let (x, largest) = (x.as_slice(), AtomicU64::new(0));
            self.split(x.len(), S::BYTES, GRANULE, |rows| {
                let of_rows = x[rows].iter().fold(0, |most, x| most.max(magnitude(x.as_f64())));
                largest.fetch_max(of_rows, Ordering::Relaxed);
            });
            out.0 = binade(largest.into_inner());
        }
        Ok(())
    }

    fn cast(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, Scalar<f64>>,
        x: &Vector<S>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("cast", "y", y.len(), x.len())?;
        if open(gate) {
            let a = value(a);
            let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
            self.split(x.len(), S::BYTES + T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of y.
                let y = unsafe { y.part(rows.clone()) };
                y.iter_mut().zip(&x[rows]).for_each(|(y, x)| *y = T::from_f64(a * x.as_f64()));
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binade_and_its_reciprocal_are_normal_powers_of_two() {
        let cases = [
            (0.0, 1.0),
            (1.0, 1.0),
            (-1.999, 1.0),
            (2.0, 2.0),
            (-0.75, 0.5),
            (f64::MAX, 2f64.powi(1022)),
            (f64::MIN_POSITIVE, 2f64.powi(-1022)),
            (f64::from_bits(1), 2f64.powi(-1022)),
            (f64::INFINITY, 1.0),
            (-f64::NAN, 1.0),
        ];
        for (x, wanted) in cases {
            let found = binade(magnitude(x));
            assert_eq!(found, wanted, "{x:e}");
            assert!(found.is_normal() && found.recip().is_normal());
        }
    }
}
