//! Matrices from bytes: scattered entries, stencils on grids with some entries missing, and many rows of a few lengths.
//! Values are of every kind.

use arbitrary::{Result, Unstructured};
use spandrel_formats::{Csr, Real, Triplets};

/// Values that are difficult in floating-point arithmetic.
const EDGES: [f64; 12] = [
    0.0,
    -0.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    -1e-310,
    1e38,
    1e-45,
    -1.0,
];

/// A value: mostly a multiple of 1/32 in -4..4 and not 0, sometimes one that is difficult in floating-point arithmetic.
///
/// # Errors
/// None: bytes that are missing are zeros.
pub fn value<T: Real>(u: &mut Unstructured<'_>) -> Result<T> {
    let byte = u.arbitrary::<u8>()?;
    if byte >= 240 {
        return Ok(T::from_f64(EDGES[usize::from(byte - 240) % EDGES.len()]));
    }
    let eighth = f64::from(byte) - 120.0;
    Ok(T::from_f64((if eighth == 0.0 { 8.0 } else { eighth }) / 32.0))
}

/// As [`value`], but never a difficult one.
///
/// # Errors
/// As [`value`].
pub fn plain<T: Real>(u: &mut Unstructured<'_>) -> Result<T> {
    let byte = f64::from(u.int_in_range(1..=239u8)?) - 120.0;
    Ok(T::from_f64((if byte == 0.0 { 8.0 } else { byte }) / 32.0))
}

/// A matrix of any shape up to some dozens of rows, or up to thousands of short rows; duplicates are summed.
///
/// # Errors
/// As [`value`].
pub fn matrix<T: Real>(u: &mut Unstructured<'_>) -> Result<Csr<T>> {
    match u.arbitrary::<u8>()? % 4 {
        0 | 1 => {
            let (nrows, ncols) = (u.int_in_range(0..=40usize)?, u.int_in_range(0..=40usize)?);
            scattered(u, nrows, ncols)
        }
        2 => grid(u),
        _ => short_rows(u),
    }
}

/// A square matrix of one of the kinds of [`matrix`].
///
/// # Errors
/// As [`value`].
pub fn square<T: Real>(u: &mut Unstructured<'_>) -> Result<Csr<T>> {
    if u.arbitrary::<u8>()? % 2 == 0 {
        let n = u.int_in_range(0..=40usize)?;
        return scattered(u, n, n);
    }
    grid(u)
}

fn scattered<T: Real>(u: &mut Unstructured<'_>, nrows: usize, ncols: usize) -> Result<Csr<T>> {
    let mut triplets = Triplets::new(nrows, ncols).expect("a small shape");
    if nrows * ncols > 0 {
        while !u.is_empty() && triplets.len() < 400 {
            let (row, col) = (u.int_in_range(0..=nrows - 1)?, u.int_in_range(0..=ncols - 1)?);
            triplets.push(row, col, value(u)?).expect("an entry inside");
        }
    }
    Ok(triplets.to_csr().expect("a small matrix"))
}

/// A stencil on a grid of up to 7 x 7 x 7 points. Each entry has its own value, and some are missing.
fn grid<T: Real>(u: &mut Unstructured<'_>) -> Result<Csr<T>> {
    let size = [u.int_in_range(1..=7i64)?, u.int_in_range(1..=7i64)?, u.int_in_range(1..=7i64)?];
    let points = u.int_in_range(1..=8usize)?;
    let mut offsets = vec![[0; 3]];
    for _ in 1..points {
        offsets.push([u.int_in_range(-2..=2i64)?, u.int_in_range(-2..=2i64)?, u.int_in_range(-2..=2i64)?]);
    }
    let missing = u.arbitrary::<u8>()?;
    let n = (size[0] * size[1] * size[2]) as usize;
    let mut triplets = Triplets::new(n, n).expect("a small shape");
    for row in 0..n as i64 {
        let at = [row % size[0], row / size[0] % size[1], row / (size[0] * size[1])];
        for offset in &offsets {
            let to = [0, 1, 2].map(|axis| at[axis] + offset[axis]);
            if (0..3).all(|axis| (0..size[axis]).contains(&to[axis])) && (missing < 200 || u.ratio(15, 16)?) {
                let col = to[0] + size[0] * (to[1] + size[1] * to[2]);
                triplets.push(row as usize, col as usize, value(u)?).expect("an entry inside");
            }
        }
    }
    Ok(triplets.to_csr().expect("a small matrix"))
}

/// A matrix with a few row lengths that repeat, for formats that sort rows and cut them into blocks.
fn short_rows<T: Real>(u: &mut Unstructured<'_>) -> Result<Csr<T>> {
    let (nrows, ncols) = (u.int_in_range(1..=3000usize)?, u.int_in_range(1..=300usize)?);
    let count = u.int_in_range(1..=9usize)?;
    let lengths: Vec<usize> = (0..count).map(|_| u.int_in_range(0..=7)).collect::<Result<_>>()?;
    let (stride, step) = (u.int_in_range(1..=60usize)?, u.int_in_range(1..=60usize)?);
    let values: Vec<T> = (0..8).map(|_| value(u)).collect::<Result<_>>()?;
    let mut triplets = Triplets::new(nrows, ncols).expect("a small shape");
    for i in 0..nrows {
        for k in 0..lengths[i % count] {
            triplets.push(i, (i * stride + k * step) % ncols, values[(i + k) % 8]).expect("an entry inside");
        }
    }
    Ok(triplets.to_csr().expect("a small matrix"))
}

/// Returns true if the bits are equal. All NaNs count as equal.
pub fn same<T: Real>(a: &[T], b: &[T]) -> bool {
    let bits = |v: T| if v.is_nan() { u64::MAX } else { v.as_f64().to_bits() };
    a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| bits(a) == bits(b))
}

/// Returns true if the numbers are equal. All NaNs count as equal, and so do both zeros.
pub fn equal<T: Real>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
}
