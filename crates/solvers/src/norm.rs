//! Norms that neither overflow nor underflow.
//!
//! ||v|| is computed from squares, which leave the range of the element type long before v does. So a norm outside a
//! safe window is measured on v times a power of two, which is exact, and stored as a mantissa and an exponent. The
//! same window decides whether a segment of iterations runs on a scaled residual: inside it, the squares of norms from
//! 10^-8 to 10^8 times as large stay in range.

use spandrel_backend::{Backend, Coeff};
use spandrel_formats::Real;

use crate::Result;

/// A norm `m * 2^e`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    m: f64,
    e: i32,
}

/// The safe exponents of norms, by element type.
struct Window {
    /// Exponents for which a norm is measured without scaling: squares of up to 2^31 elements stay in range on both
    /// sides.
    plain: (i32, i32),
    /// Shifts that bring smaller and larger norms inside `plain`, including subnormals and sums beyond the largest
    /// number.
    shifts: (i32, i32),
    /// Exponents at which an iteration may begin, with room for squares of norms 10^8 smaller and larger.
    begin: (i32, i32),
}

fn window<T: Real>() -> Window {
    if T::BYTES == 4 {
        Window { plain: (-40, 60), shifts: (100, -84), begin: (-16, 32) }
    } else {
        Window { plain: (-400, 500), shifts: (600, -600), begin: (-200, 400) }
    }
}

/// 2^e, exact if it is a normal number.
pub(crate) fn power_of_two(e: i32) -> f64 {
    2f64.powi(e)
}

/// The exponent of a positive finite number: 2^exponent <= x < 2^(exponent + 1).
pub(crate) fn exponent(x: f64) -> i32 {
    if x < f64::MIN_POSITIVE {
        return exponent(x * power_of_two(100)) - 100;
    }
    (x.to_bits() >> 52) as i32 - 1023
}

impl Norm {
    /// A number as a norm.
    pub(crate) fn of(value: f64) -> Self {
        Norm { m: value, e: 0 }
    }
    /// self * 2^e
    pub(crate) fn times_power_of_two(self, e: i32) -> Self {
        Norm { m: self.m, e: self.e + e }
    }
    pub(crate) fn is_finite(self) -> bool {
        self.m.is_finite()
    }
    pub(crate) fn is_zero(self) -> bool {
        self.m == 0.0
    }
    /// self / other; infinite if only other is 0; 0 / 0 = 0.
    pub(crate) fn over(self, other: Norm) -> f64 {
        if self.m == 0.0 { 0.0 } else { scaled(self.m / other.m, self.e - other.e) }
    }
    /// The value; 0 or infinite if f64 cannot represent it.
    pub(crate) fn value(self) -> f64 {
        scaled(self.m, self.e)
    }
    /// value * 2^k
    pub(crate) fn shifted(self, k: i32) -> f64 {
        scaled(self.m, self.e + k)
    }
    /// The exponent of the value; undefined for 0.
    pub(crate) fn exponent(self) -> i32 {
        exponent(self.m) + self.e
    }
    /// The k such that a residual of this norm, times 2^k, is safe to iterate on; 0 inside the window.
    pub(crate) fn scale<T: Real>(self) -> i32 {
        let (low, high) = window::<T>().begin;
        let e = self.exponent();
        if self.is_zero() || (low..=high).contains(&e) { 0 } else { -e }
    }
}

/// m * 2^e without leaving the range in between.
fn scaled(m: f64, e: i32) -> f64 {
    let (mut m, mut e) = (m, e);
    while e > 1000 {
        m *= power_of_two(1000);
        e -= 1000;
    }
    while e < -1000 {
        m *= power_of_two(-1000);
        e += 1000;
    }
    m * power_of_two(e)
}

/// The coefficient 2^k as powers that `T` can hold. `|k|` up to twice the type's largest exponent needs two factors.
pub(crate) fn factors<T: Real>(k: i32) -> [T; 2] {
    let limit = if T::BYTES == 4 { 120 } else { 1000 };
    let first = k.clamp(-limit, limit);
    [T::from_f64(power_of_two(first)), T::from_f64(power_of_two((k - first).clamp(-limit, limit)))]
}

/// v <- 2^k v. Exact unless an element leaves the type's range.
pub(crate) fn scale_by<T: Real, B: Backend<T>>(
    be: &B,
    k: i32,
    v: &mut B::Vector,
    scratch: &mut B::Vector,
) -> Result<()> {
    if k == 0 {
        return Ok(());
    }
    for factor in factors::<T>(k) {
        if factor != T::one() {
            be.copy(None, v, scratch)?;
            be.axpby(None, Coeff::host(factor), scratch, Coeff::zero(), v)?;
        }
    }
    Ok(())
}

/// The relative rounding error of a dot product or norm of n elements in `T`: 37 roundings per level of its tree (32
/// `fma`, five additions), and its root.
pub(crate) fn rounding<T: Real>(n: usize) -> f64 {
    let (mut levels, mut rest) = (1, n);
    while rest > 1024 {
        rest = rest.div_ceil(1024);
        levels += 1;
    }
    let nu = f64::from(37 * levels + 1) * T::UNIT_ROUNDOFF;
    nu / (1.0 - nu)
}

/// ||v||. Blocks. Infinite or NaN only if an element of v is.
pub(crate) fn norm<T: Real, B: Backend<T>>(
    be: &B,
    v: &B::Vector,
    scratch: &mut B::Vector,
    out: &mut B::Scalar,
) -> Result<Norm> {
    let Window { plain: (low, high), shifts: (up, down), .. } = window::<T>();
    be.norm2(None, v, out)?;
    let plain = be.download_scalar(out)?.as_f64();
    if plain.is_nan() || (plain > power_of_two(low) && plain < power_of_two(high)) {
        return Ok(Norm { m: plain, e: 0 });
    }
    let shift = if plain > 1.0 { down } else { up };
    be.axpby(None, Coeff::host(T::from_f64(power_of_two(shift))), v, Coeff::zero(), scratch)?;
    be.norm2(None, scratch, out)?;
    Ok(Norm { m: be.download_scalar(out)?.as_f64(), e: -shift })
}
