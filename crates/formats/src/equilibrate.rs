//! Equilibration: rows and columns multiplied by powers of two, so that the largest magnitude of each is near 1.
//!
//! With R = diag(2^row) and C = diag(2^col), A x = b becomes (R A C) y = R b with x = C y. A multiplication by a power
//! of two is exact, so nothing is rounded unless an entry leaves the normal range of its type; [`Lost`] counts those.
//!
//! Only exponents are looked at. For e_ij with 2^(e_ij - 1) <= |a_ij| < 2^e_ij a pass takes off half of the largest
//! exponent of each row and of each column, at the same time. After the first pass no exponent is positive; after that
//! the largest of a row or column at least halves with every pass until it is 0 or -1. So there are at most about 14
//! passes, and no sum of floating-point numbers.
//!
//! Cost: 4 bytes per entry for the exponents, O(nnz) per pass, serial.
//! References: Ruiz 2001, A scaling algorithm to equilibrate both rows and columns norms in matrices; LAPACK's xGEEQUB
//! (powers of the radix).

use crate::exponent::{Parts, scale};
use crate::{Csr, Error, Real, Result};

/// Powers of two by which rows and columns are multiplied. See the module's head.
///
/// ```
/// use spandrel_formats::{Csr, Equilibration};
///
/// let a = Csr::from_triplets(2, 2, [(0, 0, 3e200f64), (0, 1, 1e50), (1, 1, 5e-180)])?;
/// let by = Equilibration::general(&a)?;
/// let (scaled, lost) = by.apply(&a)?;
/// assert!(scaled.values().iter().all(|v| v.abs() < 1.0) && lost.is_none());
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equilibration {
    row: Vec<i32>,
    col: Vec<i32>,
}

/// How unequal rows and columns are: log2 of the largest by the smallest of their largest magnitudes, by whole
/// exponents. Empty rows and columns do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Of rows.
    pub rows: u32,
    /// Of columns.
    pub cols: u32,
}

/// Number of values that a scaling by powers of two did not map exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Rounded to a subnormal number or to zero.
    pub underflowed: usize,
    /// Too large: became an infinity.
    pub overflowed: usize,
}

impl Lost {
    /// Returns true if every number was mapped exactly.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The exponent of a zero or absent entry, lower than any sum of exponents.
const NOTHING: i32 = i32::MIN / 2;

/// The half to take off: rounded away from zero for what is too large, towards zero for what is too small.
fn half(exponent: i32) -> i32 {
    match exponent {
        NOTHING => 0,
        1.. => exponent - exponent / 2,
        _ => exponent / 2,
    }
}

/// Checks that every entry is finite.
///
/// # Errors
/// [`Error::Invalid`] with the place of the first that is not.
pub(crate) fn finite<T: Real>(what: &'static str, a: &Csr<T>) -> Result<()> {
    let Some(at) = crate::first_not_finite(a.values()) else { return Ok(()) };
    let row = a.row_ptr().partition_point(|&begin| begin as usize <= at) - 1;
    let (col, value) = (a.col_idx()[at], a.values()[at]);
    let why = format!("the entry in row {row}, column {col} is {value}; every entry must be finite");
    Err(Error::Invalid { format: what, why })
}

/// Exponents of the entries in stored order, [`NOTHING`] for stored zeros.
fn exponents<T: Real>(a: &Csr<T>) -> Result<Vec<i32>> {
    finite("equilibration", a)?;
    Ok(a.values().iter().map(|&v| Parts::of(v).map_or(NOTHING, |parts| parts.exponent)).collect())
}

/// The largest exponent of each row and of each column after scaling; [`NOTHING`] for those without an entry that is
/// not zero.
fn largest<T: Real>(a: &Csr<T>, exponents: &[i32], row: &[i32], col: &[i32], rows: &mut [i32], cols: &mut [i32]) {
    rows.fill(NOTHING);
    cols.fill(NOTHING);
    for (i, of_row) in rows.iter_mut().enumerate() {
        let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
        for (&j, &e) in a.col_idx()[range.clone()].iter().zip(&exponents[range]) {
            if e != NOTHING {
                let scaled = e + row[i] + col[j as usize];
                *of_row = scaled.max(*of_row);
                cols[j as usize] = scaled.max(cols[j as usize]);
            }
        }
    }
}

impl Equilibration {
    /// R A C of any shape: every entry below 1 in magnitude, the largest of every row and column that has a nonzero at
    /// least 1/2. Empty rows and columns have the factor 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the place of the first infinity or NaN.
    pub fn general<T: Real>(a: &Csr<T>) -> Result<Self> {
        let exponents = exponents(a)?;
        let mut by = Self::halved(a, &exponents, false);
        // Then bring rows to exactly 0, and after them columns. Columns do not change any row's largest entry, which is
        // in a column that is at 0 already.
        let (mut rows, mut cols) = (vec![0; by.row.len()], vec![0; by.col.len()]);
        largest(a, &exponents, &by.row, &by.col, &mut rows, &mut cols);
        take_off(&mut by.row, &rows);
        largest(a, &exponents, &by.row, &by.col, &mut rows, &mut cols);
        take_off(&mut by.col, &cols);
        Ok(by)
    }

    /// D A D of a square matrix, R = C = D: a symmetric matrix stays symmetric bit for bit. Every entry is below 1 in
    /// magnitude; the largest of row i and column i together is at least 1/4. (An odd power of four on the diagonal of
    /// a diagonal matrix can come no nearer to 1.)
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix is square; [`Error::Invalid`] with the place of the first infinity or NaN.
    pub fn symmetric<T: Real>(a: &Csr<T>) -> Result<Self> {
        let (nrows, ncols) = (a.nrows(), a.ncols());
        if nrows != ncols {
            return Err(Error::Shape { op: "symmetric equilibration", what: "a row", found: ncols, expected: nrows });
        }
        Ok(Self::halved(a, &exponents(a)?, true))
    }

    /// Uses factors 2^row and 2^col that were found elsewhere.
    pub fn from_exponents(row: Vec<i32>, col: Vec<i32>) -> Self {
        Self { row, col }
    }

    /// Passes as in the module's head, until nothing changes.
    fn halved<T: Real>(a: &Csr<T>, exponents: &[i32], symmetric: bool) -> Self {
        let (nrows, ncols) = (a.nrows(), a.ncols());
        let mut by = Self { row: vec![0; nrows], col: vec![0; ncols] };
        let (mut rows, mut cols) = (vec![0; nrows], vec![0; ncols]);
        loop {
            largest(a, exponents, &by.row, &by.col, &mut rows, &mut cols);
            if symmetric {
                for (of_row, of_col) in rows.iter_mut().zip(&mut cols) {
                    *of_row = (*of_row).max(*of_col);
                    *of_col = *of_row;
                }
            }
            let mut changed = false;
            for (factors, found) in [(&mut by.row, &rows), (&mut by.col, &cols)] {
                for (factor, &exponent) in factors.iter_mut().zip(found) {
                    *factor -= half(exponent);
                    changed |= half(exponent) != 0;
                }
            }
            if !changed {
                return by;
            }
        }
    }

    /// Exponents of the rows' factors.
    pub fn row(&self) -> &[i32] {
        &self.row
    }
    /// Exponents of the columns' factors.
    pub fn col(&self) -> &[i32] {
        &self.col
    }
    /// Returns true if every factor is 1.
    pub fn is_identity(&self) -> bool {
        self.row.iter().chain(&self.col).all(|&k| k == 0)
    }

    /// R A C. O(nnz).
    ///
    /// # Errors
    /// [`Error::Shape`] unless A has the shape that the factors are for.
    pub fn apply<T: Real>(&self, a: &Csr<T>) -> Result<(Csr<T>, Lost)> {
        let op = "equilibration";
        expect(op, "a column", a.nrows(), self.row.len())?;
        expect(op, "a row", a.ncols(), self.col.len())?;
        let (mut scaled, mut lost) = (a.clone(), Lost::default());
        let (row_ptr, cols) = (a.row_ptr(), a.col_idx());
        for (i, &by) in self.row.iter().enumerate() {
            let range = row_ptr[i] as usize..row_ptr[i + 1] as usize;
            for (&j, v) in cols[range.clone()].iter().zip(&mut scaled.values_mut()[range]) {
                *v = lost.scaled(*v, by.saturating_add(self.col[j as usize]));
            }
        }
        Ok((scaled, lost))
    }

    /// b <- R b, the right-hand side of the scaled system.
    ///
    /// # Errors
    /// [`Error::Shape`] unless b has an element per row.
    pub fn scale_rhs<T: Real>(&self, b: &mut [T]) -> Result<Lost> {
        expect("equilibration", "b", b.len(), self.row.len())?;
        Ok(all(b, &self.row))
    }

    /// x <- C x, from the solution of the scaled system to that of A x = b.
    ///
    /// # Errors
    /// [`Error::Shape`] unless x has an element per column.
    pub fn unscale_x<T: Real>(&self, x: &mut [T]) -> Result<Lost> {
        expect("equilibration", "x", x.len(), self.col.len())?;
        Ok(all(x, &self.col))
    }
}

impl Spread {
    /// Computes the spread of a matrix in one pass over its entries. If both numbers are small, no equilibration is
    /// needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the place of the first infinity or NaN.
    pub fn of<T: Real>(a: &Csr<T>) -> Result<Self> {
        let (mut rows, mut cols) = (vec![0; a.nrows()], vec![0; a.ncols()]);
        largest(a, &exponents(a)?, &rows.clone(), &cols.clone(), &mut rows, &mut cols);
        let spread = |found: &[i32]| {
            let all = || found.iter().copied().filter(|&e| e != NOTHING);
            all().max().zip(all().min()).map_or(0, |(most, least)| most.abs_diff(least))
        };
        Ok(Self { rows: spread(&rows), cols: spread(&cols) })
    }
}

impl Lost {
    fn scaled<T: Real>(&mut self, v: T, k: i32) -> T {
        let to = scale(v, k);
        if to.is_infinite() && v.is_finite() {
            self.overflowed += 1;
        } else if to.abs() < T::min_positive_value() && scale(to, -k) != v && !v.is_nan() {
            self.underflowed += 1;
        }
        to
    }
}

fn all<T: Real>(values: &mut [T], by: &[i32]) -> Lost {
    let mut lost = Lost::default();
    values.iter_mut().zip(by).for_each(|(v, &k)| *v = lost.scaled(*v, k));
    lost
}

fn take_off(factors: &mut [i32], found: &[i32]) {
    for (factor, &exponent) in factors.iter_mut().zip(found) {
        *factor -= if exponent == NOTHING { 0 } else { exponent };
    }
}

fn expect(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op, what, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Entries of all exponents of f64, zeros among them.
    fn matrix(square: bool) -> impl Strategy<Value = Csr<f64>> {
        (1usize..20, 1usize..20).prop_flat_map(move |(m, n)| {
            let n = if square { m } else { n };
            let value = (-1070i32..1023, 0.5f64..1.0, any::<bool>(), 0..9).prop_map(|(e, part, minus, zero)| {
                if zero == 0 { 0.0 } else { scale(if minus { -part } else { part }, e) }
            });
            prop::collection::btree_map((0..m, 0..n), value, 0..3 * (m + n)).prop_map(move |entries| {
                Csr::from_triplets(m, n, entries.into_iter().map(|((i, j), v)| (i, j, v))).unwrap()
            })
        })
    }

    /// The largest magnitudes of rows and of columns.
    fn magnitudes(a: &Csr<f64>) -> [Vec<f64>; 2] {
        let of = |a: &Csr<f64>| -> Vec<f64> {
            (0..a.nrows()).map(|i| a.row(i).1.iter().fold(0.0, |most: f64, v| most.max(v.abs()))).collect()
        };
        [of(a), of(&a.transpose())]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rows_and_columns_come_near_one(a in matrix(false)) {
            let by = Equilibration::general(&a).unwrap();
            let (scaled, lost) = by.apply(&a).unwrap();
            prop_assert_eq!(lost.overflowed, 0);
            for (given, found, factors) in magnitudes(&a).iter().zip(magnitudes(&scaled)).zip([by.row(), by.col()])
                .map(|((given, found), factors)| (given, found, factors))
            {
                for ((given, found), &factor) in given.iter().zip(found).zip(factors) {
                    let fine = if *given == 0.0 { found == 0.0 && factor == 0 } else { (0.5..1.0).contains(&found) };
                    prop_assert!(fine, "{given} became {found}");
                }
            }
            let spread = Spread::of(&scaled).unwrap();
            prop_assert_eq!((spread.rows, spread.cols), (0, 0));
            // Scaled again nothing changes, unless entries were rounded.
            prop_assert!(!lost.is_none() || Equilibration::general(&scaled).unwrap().is_identity());
        }

        #[test]
        fn a_symmetric_matrix_stays_symmetric(a in matrix(true)) {
            let upper = (0..a.nrows()).flat_map(|i| a.row(i).0.iter().zip(a.row(i).1).map(move |(&j, &v)| (i, j as usize, v)));
            let both = upper.filter(|&(i, j, _)| i <= j).flat_map(|(i, j, v)| std::iter::once((i, j, v)).chain((i != j).then_some((j, i, v))));
            let n = a.nrows();
            let symmetric = Csr::from_triplets(n, n, both.collect::<Vec<_>>()).unwrap();
            let by = Equilibration::symmetric(&symmetric).unwrap();
            prop_assert_eq!(by.row(), by.col());
            let (scaled, lost) = by.apply(&symmetric).unwrap();
            prop_assert_eq!(lost.overflowed, 0);
            prop_assert!(scaled.is_symmetric());
            let found = magnitudes(&scaled);
            prop_assert_eq!(&found[0], &found[1]);
            for (given, found) in magnitudes(&symmetric)[0].iter().zip(&found[0]) {
                let fine = if *given == 0.0 { *found == 0.0 } else { (0.25..1.0).contains(found) };
                prop_assert!(fine, "{given} became {found}");
            }
            // Also where the values are not symmetric: the larger of row and column.
            let (scaled, _) = Equilibration::symmetric(&a).unwrap().apply(&a).unwrap();
            let [rows, cols] = magnitudes(&scaled);
            let [given_rows, given_cols] = magnitudes(&a);
            for i in 0..n {
                prop_assert!(given_rows[i].max(given_cols[i]) == 0.0 || (0.25..1.0).contains(&rows[i].max(cols[i])));
            }
        }

        #[test]
        fn a_badly_scaled_system_has_the_solution_of_the_good_one(a in matrix(false), exponents in prop::collection::vec(-300i32..300, 40)) {
            // The factors of A' = R A C differ from A's by those of R and C: A' and A scale to the same entries.
            let near = a.map(|v| Parts::of(v).map_or(0.0, |parts| scale(v, -parts.exponent)));
            let (m, n) = (near.nrows(), near.ncols());
            let bad = Equilibration::from_exponents(exponents[..m].to_vec(), exponents[20..20 + n].to_vec());
            let (far, lost) = bad.apply(&near).unwrap();
            prop_assert!(lost.is_none());
            let (again, lost) = Equilibration::general(&far).unwrap().apply(&far).unwrap();
            prop_assert!(lost.is_none() && again.values().iter().all(|v| v.abs() < 1.0));
            let mut x: Vec<f64> = (0..n).map(|j| 1.0 + j as f64).collect();
            let back = Equilibration::from_exponents(vec![0; m], bad.col().iter().map(|k| -k).collect());
            prop_assert!(bad.unscale_x(&mut x).unwrap().is_none() && back.unscale_x(&mut x).unwrap().is_none());
            prop_assert_eq!(x, (0..n).map(|j| 1.0 + j as f64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn far_exponents_come_back() {
        for size in [1e150, 1e-150, 1e300, 1e-300, 5e-324, f64::MAX] {
            let a =
                Csr::from_triplets(3, 3, [(0, 0, size), (1, 1, size.recip().min(f64::MAX)), (1, 2, 1.0), (2, 1, 1.0)])
                    .unwrap();
            assert!(Spread::of(&a).unwrap().rows > 490, "{size}");
            for by in [Equilibration::general(&a).unwrap(), Equilibration::symmetric(&a).unwrap()] {
                let (scaled, lost) = by.apply(&a).unwrap();
                assert_eq!(lost.overflowed, 0, "{size}");
                assert!(magnitudes(&scaled).iter().flatten().all(|v| (0.25..1.0).contains(v)), "{size}: {scaled:?}");
            }
        }
        let narrow = Csr::from_triplets(2, 2, [(0, 0, 1e-44f32), (1, 0, 3e38), (1, 1, 1e-20)]).unwrap();
        let (scaled, lost) = Equilibration::general(&narrow).unwrap().apply(&narrow).unwrap();
        assert!(scaled.values().iter().all(|v| (0.5..1.0).contains(v)) && lost.is_none(), "{scaled:?}");
    }

    #[test]
    fn what_leaves_the_range_is_counted() {
        let by = Equilibration::from_exponents(vec![-1000, 1000, 0], vec![-100, 100]);
        let a =
            Csr::from_triplets(3, 2, [(0, 0, 1.0), (0, 1, 1.5), (1, 1, 1.0), (2, 0, 0.0), (2, 1, f64::NAN)]).unwrap();
        let (scaled, lost) = by.apply(&a).unwrap();
        assert_eq!(lost, Lost { underflowed: 1, overflowed: 1 });
        assert_eq!(&scaled.values()[..4], &[0.0, scale(1.5, -900), f64::INFINITY, 0.0]);
        assert_eq!(by.scale_rhs(&mut [1e-10, 1e10, 1.0]).unwrap(), Lost { underflowed: 1, overflowed: 1 });
        // Subnormal, and exact.
        assert!(Equilibration::from_exponents(vec![-1070], vec![]).scale_rhs(&mut [1.0]).unwrap().is_none());
    }

    #[test]
    fn what_it_refuses() {
        let wide = Csr::from_triplets(2, 3, [(0, 1, 1.0), (1, 2, f64::NAN)]).unwrap();
        let by = Equilibration::from_exponents(vec![0; 3], vec![0; 3]);
        let errors = [
            Equilibration::general(&wide).unwrap_err(),
            Spread::of(&wide).unwrap_err(),
            Equilibration::symmetric(&wide).unwrap_err(),
            by.apply(&wide).unwrap_err(),
            by.scale_rhs(&mut [1.0]).unwrap_err(),
            by.unscale_x(&mut [1.0]).unwrap_err(),
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
        let none = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).unwrap();
        assert!(Equilibration::general(&none).unwrap().is_identity());
        assert_eq!(Spread::of(&none).unwrap(), Spread::default());
    }
}
