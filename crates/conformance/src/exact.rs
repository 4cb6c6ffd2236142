//! Doubled precision for the oracles: an unevaluated sum of two `f64`, about 106 bits.
//!
//! Invariants: |lo| <= ulp(hi)/2. Shares no code with any kernel.
//! Order: as called. An addition errs by at most 3 * 2^-106 relative, a product with an f64 by at most 2 * 2^-106.
//! [`SLACK`] times the number of operations covers this generously.
//! Reference: Knuth, The Art of Computer Programming, volume 2, 1998, section 4.2.2 (two_sum); Joldes, Muller, Popescu,
//! Tight and rigorous error bounds for basic building blocks of double-word arithmetic, 2017 (algorithms 6 and 9).

/// The relative error allowed per operation of [`Dd`]: 2^-100.
pub const SLACK: f64 = 1.0 / (1u128 << 100) as f64;

/// A number in doubled precision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dd {
    hi: f64,
    lo: f64,
}

/// a + b = s + e exactly.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let from_b = s - a;
    (s, (a - (s - from_b)) + (b - from_b))
}

/// a + b = s + e exactly, for |a| >= |b| or a = 0.
fn fast_two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, b - (s - a))
}

/// a * b = p + e exactly, without underflow.
fn two_prod(a: f64, b: f64) -> (f64, f64) {
    let p = a * b;
    (p, a.mul_add(b, -p))
}

impl Dd {
    /// a * b, exactly.
    pub fn product(a: f64, b: f64) -> Self {
        let (hi, lo) = two_prod(a, b);
        Self { hi, lo }
    }

    /// self + other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (s, e) = two_sum(self.hi, other.hi);
        let (t, f) = two_sum(self.lo, other.lo);
        let (s, e) = fast_two_sum(s, e + t);
        let (hi, lo) = fast_two_sum(s, e + f);
        Self { hi, lo }
    }

    /// self * factor.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let (p, e) = two_prod(self.hi, factor);
        let (hi, lo) = fast_two_sum(p, self.lo.mul_add(factor, e));
        Self { hi, lo }
    }

    /// |self - value|, rounded to `f64`.
    pub fn distance(self, value: f64) -> f64 {
        let difference = self.plus(Self::from(-value));
        (difference.hi + difference.lo).abs()
    }

    /// The nearest `f64`.
    pub fn value(self) -> f64 {
        self.hi
    }
}

impl From<f64> for Dd {
    fn from(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_f64_loses() {
        let sum = [1e16, 1.0, -1e16].into_iter().fold(Dd::default(), |acc, v| acc.plus(v.into()));
        assert_eq!(sum.value(), 1.0);
        let a = 1.0 + f64::EPSILON;
        // a^2 = 1 + 2 eps + eps^2: the last term is too small for f64 and fits into Dd.
        let rest = Dd::product(a, a).plus((-1.0 - 2.0 * f64::EPSILON).into());
        assert_eq!(rest.value(), f64::EPSILON * f64::EPSILON);
        assert_eq!(Dd::product(a, a).times(3.0).distance(3.0), 6.0 * f64::EPSILON + 3.0 * f64::EPSILON * f64::EPSILON);
    }
}
