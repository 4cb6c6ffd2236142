//! Numbers split into exponent and fraction, and scaled by powers of two without intermediate overflow.
//!
//! Everything is computed in `f64`, which holds every `f32` exactly. A scaled number is rounded at most once.

use crate::Real;

/// A finite nonzero number as |v| = fraction 2^(exponent - 64) with 2^63 <= fraction < 2^64, so 2^(exponent - 1) <= |v|
/// < 2^exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) exponent: i32,
    pub(crate) fraction: u64,
}

impl Parts {
    /// `None` for zeros, infinities and NaN.
    #[inline]
    pub(crate) fn of<T: Real>(v: T) -> Option<Self> {
        let bits = v.as_f64().to_bits() & (u64::MAX >> 1);
        let (biased, stored) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
        match biased {
            0x7ff => None,
            0 => {
                // 0 or subnormal: stored * 2^-1074.
                let zeros = stored.leading_zeros();
                (stored != 0).then(|| Self { exponent: -1074 + 64 - zeros as i32, fraction: stored << zeros })
            }
            biased => Some(Self { exponent: biased - 1022, fraction: (stored | 1 << 52) << 11 }),
        }
    }
}

/// 2^k as an `f64`, for -1074 <= k <= 1023.
fn power(k: i32) -> f64 {
    debug_assert!((-1074..=1023).contains(&k));
    if k < -1022 { f64::from_bits(1 << (k + 1074)) } else { f64::from_bits(((k + 1023) as u64) << 52) }
}

/// Returns v 2^k, rounded once: an infinity beyond the largest number, a subnormal or zero below the smallest normal
/// one.
#[inline]
pub(crate) fn scale<T: Real>(v: T, k: i32) -> T {
    let Some(Parts { exponent, fraction }) = Parts::of(v) else { return v };
    if k == 0 {
        return v;
    }
    let to = exponent.saturating_add(k);
    // Between 1/2 and 1, exactly: an f64 has no more than 53 bits of fraction.
    let part = ((fraction >> 11) as f64 * power(-53)).copysign(v.as_f64());
    // If the f64 is subnormal and so may be rounded, the f32 is zero, so there is no second rounding.
    T::from_f64(match to {
        1025.. => part.signum() * f64::INFINITY,
        -1022..=1024 => part * 2.0 * power(to - 1),
        -1074..=-1023 => part * power(to),
        _ => part.signum() * 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_of_the_range() {
        let of = |v: f64| Parts::of(v).map(|parts| (parts.exponent, parts.fraction));
        assert_eq!(of(1.0), Some((1, 1 << 63)));
        assert_eq!(of(-0.75), Some((0, 3 << 62)));
        assert_eq!(of(f64::from_bits(1)), Some((-1073, 1 << 63)));
        assert_eq!(of(f64::MAX), Some((1024, u64::MAX << 11)));
        assert_eq!(Parts::of(f32::from_bits(1)).map(|parts| parts.exponent), Some(-148));
        assert!([0.0, -0.0, f64::INFINITY, f64::NAN].iter().all(|&v| Parts::of(v).is_none()));
        assert_eq!(scale(f64::from_bits(1), 2097), 2f64.powi(1023));
        assert_eq!(scale(f64::MAX, 1), f64::INFINITY);
        assert_eq!(scale(-f32::MAX, 1), f32::NEG_INFINITY);
        assert_eq!(scale(1.0f64, i32::MIN).to_bits(), 0.0f64.to_bits());
        assert_eq!(scale(-1.0f64, -5000).to_bits(), (-0.0f64).to_bits());
        assert_eq!(scale(f64::MAX, -2097), f64::from_bits(2));
        // Half of the smallest is a tie, which goes to the even neighbour; a little more is not.
        assert_eq!(scale(1.0, -1075), 0.0);
        assert_eq!(scale(1.5, -1075), f64::from_bits(1));
        assert!(scale(f64::NAN, 3).is_nan() && scale(f64::INFINITY, -3) == f64::INFINITY);
    }

    proptest! {
        #[test]
        fn a_power_of_two_multiplies_exactly_or_rounds_once(bits in any::<u64>(), k in -60i32..60) {
            let v = f64::from_bits(bits);
            prop_assume!(v.is_finite());
            // One multiplication by a power of two rounds once.
            prop_assert_eq!(scale(v, k).to_bits(), (v * 2f64.powi(k)).to_bits());
            let narrow = f32::from_bits(bits as u32);
            prop_assume!(narrow.is_finite());
            prop_assert_eq!(scale(narrow, k).to_bits(), (narrow * 2f32.powi(k)).to_bits());
        }
    }
}
