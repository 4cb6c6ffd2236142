//! The documented orders of summation and the element-wise formulas, as plain loops.
//!
//! If the contract promises bits, these are the bits. No kernel shares anything with them: no blocking, no threads, no
//! vector types.
//! Order: [`stored`] is `Order::Stored`, [`tree_dot`] is `Order::Tree`.

use spandrel_formats::Real;

/// A coefficient as data: `host * (num[0]/den[0]) * (num[1]/den[1])`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// The host's factor.
    pub host: f64,
    /// Numerators on the device.
    pub num: [Option<f64>; 2],
    /// Denominators on the device.
    pub den: [Option<f64>; 2],
}

impl Factor {
    /// A number known to the host.
    pub const fn host(host: f64) -> Self {
        Self { host, num: [None; 2], den: [None; 2] }
    }

    /// A quotient of device scalars.
    pub const fn ratio(num: f64, den: f64) -> Self {
        Self { host: 1.0, num: [Some(num), None], den: [Some(den), None] }
    }

    /// The coefficient in `T`, in the documented order of operations.
    pub fn value<T: Real>(&self) -> T {
        let mut product = T::from_f64(self.host);
        for place in 0..2 {
            if self.num[place].is_none() && self.den[place].is_none() {
                continue;
            }
            let num = self.num[place].map_or(T::one(), T::from_f64);
            let den = self.den[place].map_or(T::one(), T::from_f64);
            product *= num / den;
        }
        product
    }
}

/// The coefficients a of the trials: 1, -1, 0, 2.5, a scalar's quotient, and both quotients with a host factor.
pub const A: [Factor; 6] = [
    Factor::host(1.0),
    Factor::host(-1.0),
    Factor::host(0.0),
    Factor::host(2.5),
    Factor::ratio(3.0, 7.0),
    Factor { host: -2.5, num: [Some(1.0), Some(0.3)], den: [Some(3.0), Some(0.7)] },
];

/// The coefficients b: 0, 1, -0.5, a zero that only the device knows, a quotient, a numerator alone, a denominator
/// alone.
pub const B: [Factor; 7] = [
    Factor::host(0.0),
    Factor::host(1.0),
    Factor::host(-0.5),
    Factor::ratio(0.0, 5.0),
    Factor::ratio(3.0, -7.0),
    Factor { host: 0.5, num: [None, Some(0.3)], den: [None, None] },
    Factor { host: 1.0, num: [None, None], den: [Some(3.0), None] },
];

/// y <- fma(a, acc, b*y); with b = 0, y <- a*acc.
pub fn finish<T: Real>(a: T, acc: T, b: T, y: T) -> T {
    if b == T::zero() { a * acc } else { a.mul_add(acc, b * y) }
}

/// Sums (value, x) pairs by `fma`, from acc = +0.
pub fn stored<T: Real>(entries: impl Iterator<Item = (T, T)>) -> T {
    let mut acc = T::zero();
    for (value, x) in entries {
        acc = value.mul_add(x, acc);
    }
    acc
}

/// x . y in the documented tree.
pub fn tree_dot<T: Real>(x: &[T], y: &[T]) -> T {
    tree_sum(one_level(x.len(), |i, acc| x[i].mul_add(y[i], acc)))
}

/// The sum of block results in the documented tree.
pub fn tree_sum<T: Real>(mut sums: Vec<T>) -> T {
    while sums.len() > 1 {
        let below = sums;
        sums = one_level(below.len(), |i, acc| acc + below[i]);
    }
    sums.first().copied().unwrap_or_else(T::zero)
}

/// One number per block of 1024: 32 lanes in turn, then halves are added until lane 0 has everything.
fn one_level<T: Real>(len: usize, add: impl Fn(usize, T) -> T) -> Vec<T> {
    let mut sums = Vec::new();
    let mut begin = 0;
    while begin < len {
        let mut lanes = [T::zero(); 32];
        for i in begin..len.min(begin + 1024) {
            let lane = (i - begin) % 32;
            lanes[lane] = add(i, lanes[lane]);
        }
        for half in [16, 8, 4, 2, 1] {
            for lane in 0..half {
                let other = lanes[lane + half];
                lanes[lane] += other;
            }
        }
        sums.push(lanes[0]);
        begin += 1024;
    }
    sums
}

/// Levels of the tree over `len` elements: blocks of 1024 until one is left.
pub fn tree_levels(len: usize) -> usize {
    let (mut left, mut levels) = (len, 0);
    while left > 1 || levels == 0 {
        left = left.div_ceil(1024);
        levels += 1;
    }
    levels
}

/// Whether two numbers have the same bits. All NaNs are equal.
pub fn same<T: Real>(a: T, b: T) -> bool {
    (a.is_nan() && b.is_nan()) || (a == b && a.is_sign_negative() == b.is_sign_negative())
}

/// Whether two results are the same bytes, NaN included.
pub(crate) fn same_bytes<T: Real>(a: &[T], b: &[T]) -> bool {
    bytemuck::cast_slice::<T, u8>(a) == bytemuck::cast_slice::<T, u8>(b)
}

/// The first place where two results differ in bits, in words. All NaNs are equal.
pub fn difference<T: Real>(found: &[T], expected: &[T]) -> Option<String> {
    if same_bytes(found, expected) {
        return None;
    }
    if found.len() != expected.len() {
        return Some(format!("{} elements, expected {}", found.len(), expected.len()));
    }
    let differing = found.iter().zip(expected).filter(|&(&f, &e)| !same(f, e)).count();
    let at = found.iter().zip(expected).position(|(&f, &e)| !same(f, e))?;
    Some(format!(
        "{differing} of {} elements differ in bits, first at {at}: expected {:e}, found {:e}",
        found.len(),
        expected[at],
        found[at]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_by_hand() {
        // 33 ones and a 2: lane 0 takes elements 0 and 32, lane 1 takes 1 and 33.
        let mut x = vec![1.0f32; 34];
        x[33] = 2.0;
        assert_eq!(tree_dot(&x, &x), 33.0 + 4.0);
        assert_eq!(tree_dot::<f64>(&[], &[]), 0.0);
        // 1e8 and -1e8 meet in the first halving (lanes 0 and 16), so the ones survive in f32.
        let mut x = vec![0.0f32; 1025];
        (x[0], x[16], x[1], x[1024]) = (1e8, -1e8, 1.0, 1.0);
        assert_eq!(tree_dot(&x, &vec![1.0; 1025]), 2.0);
        assert_eq!([0, 1, 1024, 1025, 1 << 20, (1 << 20) + 1].map(tree_levels), [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn coefficients_in_the_documented_order() {
        assert_eq!(A[4].value::<f32>(), 3.0f32 / 7.0);
        assert_eq!(A[5].value::<f64>(), -2.5 * (1.0 / 3.0) * (0.3 / 0.7));
        assert_eq!(B[5].value::<f64>(), 0.5 * 0.3);
        assert_eq!(B[6].value::<f64>(), 1.0 / 3.0);
        assert!(!same(0.0, -0.0) && same(f64::NAN, -f64::NAN));
    }
}
