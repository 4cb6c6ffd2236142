//! The exact answer of each operation, and how far rounding may lead from it. There is one oracle per operation, over
//! triplets, in doubled precision.
//!
//! Bounds are derived, never tuned. With u the unit roundoff and gamma(n) = n u / (1 - n u) (Higham, Accuracy and
//! Stability of Numerical Algorithms, 2002, lemma 3.1):
//!
//! * SpMV, a row of k entries, any order of summation. Each product passes at most k roundings until it is part of acc
//!   (by `fma`: the one that adds it and the later ones; without: its own and k - 1 additions), then one for the
//!   product with a and one for the addition of b*y; b*y passes two. So |y - y^| <= gamma(k + 2) (|a| |A| |x| + |b|
//!   |y0|), row by row (section 3.1). Fill zeros add exact zeros and no rounding.
//! * Underflow, which the model above leaves out: a rounding to a subnormal errs by at most eta/2, eta the smallest
//!   subnormal (section 2.8); additions never do. The k products of acc are magnified by |a|, two more roundings
//!   follow: (|a| k + 2) eta, where eta instead of eta/2 covers the growth (1 + u)^k <= 2.
//! * dot of n elements in the tree of L levels: a product passes at most 32 `fma` of its lane and 5 halvings on the
//!   first level, and 32 additions and 5 halvings on each further one: gamma(37 L) |x|.|y| + n eta.
//! * A triangular solve, a row of k entries off the diagonal d, any order of summation: k roundings of the sum, one of
//!   1/d, one of the product with it, all moved to the terms and to d (lemma 8.4): |b - T x^| <= gamma(k + 2) |T| |x^|.
//!   Underflow errs by eta/2 in each rounding of the sum, and by eta/2 in x, which d magnifies: (k + 2 + |d|) eta.
//!   Where 1/d itself underflows nothing is promised.
//! * The oracle's own error, [`SLACK`] for each of its operations, and the evaluation of the bound in f64, 2^-40 of it.

use std::sync::OnceLock;

use spandrel_formats::Real;
use spandrel_sptrsv::{Diagonal, Triangle, Triangular};

use crate::exact::{Dd, SLACK};
use crate::reference::{Factor, tree_levels};

/// gamma(n) = n u / (1 - n u).
pub fn gamma<T: Real>(n: usize) -> f64 {
    let nu = n as f64 * T::UNIT_ROUNDOFF;
    assert!(nu < 1.0, "gamma({n}) is not defined in {}", T::NAME);
    nu / (1.0 - nu)
}

/// The smallest positive subnormal.
pub fn smallest_subnormal<T: Real>() -> f64 {
    match T::BYTES {
        4 => f64::from(f32::from_bits(1)),
        _ => f64::from_bits(1),
    }
}

/// The error of evaluating a bound in f64.
pub const EVALUATION: f64 = 1.0 + 1.0 / (1u64 << 40) as f64;

/// A x, |A| |x| and the entries per row: everything about SpMV that does not depend on the coefficients.
#[derive(Debug)]
pub struct Rows {
    sums: Vec<Dd>,
    absolute: Vec<Dd>,
    entries: Vec<u32>,
}

/// The worst place where a result exceeds its bound, in words.
struct Worst {
    at: usize,
    error: f64,
    bound: f64,
    expected: f64,
    found: f64,
}

impl Rows {
    /// Sums triplets into `nrows` rows, in the order in which they come.
    pub fn new<T: Real>(nrows: usize, triplets: impl Iterator<Item = (usize, usize, T)>, x: &[T]) -> Self {
        let mut rows =
            Self { sums: vec![Dd::default(); nrows], absolute: vec![Dd::default(); nrows], entries: vec![0; nrows] };
        for (i, j, value) in triplets {
            let term = Dd::product(value.as_f64(), x[j].as_f64());
            rows.sums[i] = rows.sums[i].plus(term);
            let magnitude = Dd::product(value.as_f64().abs(), x[j].as_f64().abs());
            rows.absolute[i] = rows.absolute[i].plus(magnitude);
            rows.entries[i] += 1;
        }
        rows
    }

    /// Compares y = a A x + b y0 with the bound of the module's head.
    ///
    /// # Errors
    /// The worst row, in words.
    pub fn check<T: Real>(&self, a: &Factor, b: &Factor, y0: &[T], y: &[T]) -> Result<(), String> {
        self.check_rows(a, b, y0, y, |_| true)
    }

    /// As [`Rows::check`], only for the rows that the product touches.
    ///
    /// # Errors
    /// The worst row, in words.
    pub fn check_rows<T: Real>(
        &self,
        a: &Factor,
        b: &Factor,
        y0: &[T],
        y: &[T],
        touched: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        if y.len() != self.sums.len() {
            return Err(format!("y has {} elements, expected {}", y.len(), self.sums.len()));
        }
        let (a, b) = (a.value::<T>().as_f64(), b.value::<T>().as_f64());
        let eta = smallest_subnormal::<T>();
        let mut worst: Option<Worst> = None;
        let mut broken = 0;
        for i in (0..y.len()).filter(|&i| touched(i)) {
            // b = 0 promises that y0 is not read, so a NaN there must not reach the oracle either.
            let y0 = if b == 0.0 { 0.0 } else { y0[i].as_f64() };
            let k = self.entries[i] as usize;
            let expected = self.sums[i].times(a).plus(Dd::product(b, y0));
            let size = a.abs() * self.absolute[i].value() + b.abs() * y0.abs();
            let bound = EVALUATION
                * ((gamma::<T>(k + 2) + (2 * k + 4) as f64 * SLACK) * size + (a.abs() * k as f64 + 2.0) * eta);
            let error = expected.distance(y[i].as_f64());
            if error <= bound {
                continue;
            }
            broken += 1;
            let excess = |error: f64, bound: f64| if error.is_nan() { f64::INFINITY } else { error / bound };
            if worst.as_ref().is_none_or(|w| excess(error, bound) > excess(w.error, w.bound)) {
                let (expected, found) = (expected.value(), y[i].as_f64());
                worst = Some(Worst { at: i, error, bound, expected, found });
            }
        }
        match worst {
            None => Ok(()),
            Some(w) => Err(format!(
                "{broken} of {} rows exceed the bound gamma(k+2) (|a||A||x| + |b||y0|), worst row {}: expected {:e}, found {:e}, \
                 error {:e}, bound {:e}",
                y.len(),
                w.at,
                w.expected,
                w.found,
                w.error,
                w.bound
            )),
        }
    }
}

/// Compares a dot product with the bound of the tree.
///
/// # Errors
/// The expected and the found value, in words.
pub fn check_dot<T: Real>(x: &[T], y: &[T], found: T) -> Result<(), String> {
    let (mut sum, mut absolute) = (Dd::default(), Dd::default());
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x.as_f64(), y.as_f64());
        sum = sum.plus(Dd::product(x, y));
        absolute = absolute.plus(Dd::product(x.abs(), y.abs()));
    }
    let n = x.len() as f64;
    let relative = gamma::<T>(37 * tree_levels(x.len())) + 2.0 * n * SLACK;
    let bound = EVALUATION * (relative * absolute.value() + n * smallest_subnormal::<T>());
    let error = sum.distance(found.as_f64());
    if error <= bound {
        return Ok(());
    }
    Err(format!("expected {:e}, found {found:e}, error {error:e} exceeds gamma(37 L) |x|.|y| = {bound:e}", sum.value()))
}

/// Compares x with the bound of T x = b, row by row.
///
/// # Errors
/// The worst row, in words.
pub fn check_solve<T: Real>(matrix: &Triangular<T>, b: &[T], x: &[T]) -> Result<(), String> {
    let n = matrix.nrows();
    if x.len() != n || b.len() != n {
        return Err(format!("x has {} elements and b {}, expected {n}", x.len(), b.len()));
    }
    let eta = smallest_subnormal::<T>();
    let (mut worst, mut broken) = (None::<(f64, String)>, 0);
    for i in 0..n {
        let (cols, values) = matrix.off_diagonal(i);
        let (begin, end) = (matrix.csr().row_ptr()[i] as usize, matrix.csr().row_ptr()[i + 1] as usize);
        let d = match (matrix.diagonal(), matrix.triangle()) {
            (Diagonal::Unit, _) => 1.0,
            (Diagonal::NonUnit, Triangle::Lower) => matrix.csr().values()[end - 1].as_f64(),
            (Diagonal::NonUnit, Triangle::Upper) => matrix.csr().values()[begin].as_f64(),
        };
        let mut sum = Dd::product(d, x[i].as_f64());
        let mut size = Dd::product(d.abs(), x[i].as_f64().abs());
        for (&j, &value) in cols.iter().zip(values) {
            let (value, x) = (value.as_f64(), x[j as usize].as_f64());
            sum = sum.plus(Dd::product(value, x));
            size = size.plus(Dd::product(value.abs(), x.abs()));
        }
        let (k, b) = (cols.len(), b[i].as_f64());
        let slack = (2 * k + 6) as f64 * SLACK * (size.value() + b.abs());
        let bound = EVALUATION * (gamma::<T>(k + 2) * size.value() + slack + (k as f64 + 2.0 + d.abs()) * eta);
        let error = sum.distance(b);
        if error <= bound {
            continue;
        }
        broken += 1;
        let excess = if error.is_nan() { f64::INFINITY } else { error / bound };
        if worst.as_ref().is_none_or(|(most, _)| excess > *most) {
            worst = Some((excess, format!("row {i}: x = {:e}, |b - T x| = {error:e}, bound {bound:e}", x[i])));
        }
    }
    let text = |(_, row): (f64, String)| format!("{broken} of {n} rows exceed gamma(k+2) |T||x|, worst {row}");
    worst.map_or(Ok(()), |worst| Err(text(worst)))
}

/// A matrix of a case in the element type `T`, with the operands of its trials and results that several trials need.
#[derive(Debug)]
pub struct Data<T> {
    /// Rows, columns.
    pub shape: (usize, usize),
    /// Entries (row, column, value), sorted by row, then column, which is the order of the storage.
    pub triplets: Vec<(u32, u32, T)>,
    /// The operand x.
    pub x: Vec<T>,
    /// The operand y0.
    pub y: Vec<T>,
    rows: OnceLock<Rows>,
}

impl<T: Real> Data<T> {
    /// Takes sorted triplets; x and y0 come from `seed`.
    pub fn new(shape: (usize, usize), triplets: Vec<(u32, u32, T)>, seed: u64) -> Self {
        let x = crate::case::numbers(seed ^ 0x5851_f42d, shape.1);
        let y = crate::case::numbers(seed ^ 0x1405_7b7e, shape.0);
        Self { shape, triplets, x, y, rows: OnceLock::new() }
    }

    /// The transposed matrix, with operands of its own.
    pub fn transposed(&self, seed: u64) -> Self {
        let mut triplets: Vec<_> = self.triplets.iter().map(|&(i, j, v)| (j, i, v)).collect();
        triplets.sort_by_key(|&(i, j, _)| (i, j));
        Self::new((self.shape.1, self.shape.0), triplets, seed)
    }

    /// The oracle's sums for x.
    pub fn rows(&self) -> &Rows {
        self.rows.get_or_init(|| {
            let triplets = self.triplets.iter().map(|&(i, j, v)| (i as usize, j as usize, v));
            Rows::new(self.shape.0, triplets, &self.x)
        })
    }

    /// y = a A x + b y0 in `Order::Stored`.
    pub fn in_stored_order(&self, a: &Factor, x: &[T], b: &Factor, y0: &[T]) -> Vec<T> {
        let (a, b) = (a.value::<T>(), b.value::<T>());
        let mut y = Vec::with_capacity(self.shape.0);
        let mut next = 0;
        for (i, &y0) in y0.iter().enumerate() {
            let begin = next;
            while next < self.triplets.len() && self.triplets[next].0 as usize == i {
                next += 1;
            }
            let row = &self.triplets[begin..next];
            let acc = crate::reference::stored(row.iter().map(|&(_, j, v)| (v, x[j as usize])));
            y.push(crate::reference::finish(a, acc, b, y0));
        }
        y
    }

    /// The matrix as CSR.
    ///
    /// # Errors
    /// None for sorted triplets inside the shape.
    pub fn csr(&self) -> spandrel_formats::Result<spandrel_formats::Csr<T>> {
        let mut row_ptr = vec![0u32; self.shape.0 + 1];
        for &(i, _, _) in &self.triplets {
            row_ptr[i as usize + 1] += 1;
        }
        for i in 0..self.shape.0 {
            row_ptr[i + 1] += row_ptr[i];
        }
        let col_idx = self.triplets.iter().map(|&(_, j, _)| j).collect();
        let values = self.triplets.iter().map(|&(_, _, v)| v).collect();
        spandrel_formats::Csr::new(self.shape.0, self.shape.1, row_ptr, col_idx, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{A, B};

    fn example() -> Data<f64> {
        Data::new((2, 3), vec![(0, 0, 0.1), (0, 2, 0.3), (1, 1, -0.7)], 7)
    }

    #[test]
    fn accepts_the_stored_order_and_refuses_an_error_of_a_few_units() {
        let data = example();
        for a in &A {
            for b in &B {
                let y = data.in_stored_order(a, &data.x, b, &data.y);
                data.rows().check(a, b, &data.y, &y).unwrap();
                let off: Vec<f64> = y.iter().map(|v| v + 64.0 * f64::EPSILON * v.abs().max(1e-3)).collect();
                let size: f64 = data.x.iter().chain(&data.y).fold(0.0, |m, v| m.max(v.abs()));
                assert!(size < 4.0 && data.rows().check(a, b, &data.y, &off).is_err(), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_nan_is_never_inside_a_bound() {
        let data = example();
        let message = data.rows().check(&A[0], &B[0], &[f64::NAN; 2], &[f64::NAN, 0.0]).unwrap_err();
        assert!(message.contains("2 of 2 rows") && message.contains("NaN"), "{message}");
        assert!(check_dot(&[1.0f32], &[1.0], f32::NAN).is_err());
    }
}
