//! Statistics of a matrix: sizes, row lengths, band, diagonals, symmetry, main diagonal, values.
//!
//! Cost: a few passes over the entries, the longest of them parallel. Symmetry looks up every entry's mirror image, at
//! most three times. Nothing grows with nrows x ncols.

use rayon::prelude::*;

use crate::dia::positions;
use crate::survey::occupied;
use crate::symmetry::mirrored;
use crate::{Csr, Real};

/// Rows per parallel task.
const CHUNK: usize = 4096;

/// Statistics of the numbers of entries per row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowLengths {
    /// Shortest row.
    pub min: usize,
    /// Longest row.
    pub max: usize,
    /// Mean; 0 if there are no rows.
    pub mean: f64,
    /// Population variance.
    pub variance: f64,
    /// Quantiles of the lengths: at least 5, 25, 50, 75, 95 % of the rows are at most this long (nearest rank).
    pub quantiles: [usize; 5],
    /// `histogram[0]` counts the empty rows, and `histogram[k]` the rows with 2^(k-1) <= length < 2^k entries.
    pub histogram: Vec<usize>,
    /// Rows without an entry.
    pub empty: usize,
}

/// How a square matrix relates to its transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// A = A^T, with values equal as numbers and an absent entry counted as zero: [`Csr::is_symmetric`].
    Symmetric,
    /// A = -A^T with at least one nonzero entry; the diagonal is zero or absent.
    Skew,
    /// The pattern is symmetric, the values are not.
    Pattern,
    /// None of these, or not square.
    None,
}

/// The contents of the main diagonal, over its min(nrows, ncols) places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diagonal {
    /// Places without an entry.
    pub missing: usize,
    /// Entries equal to zero.
    pub zero: usize,
    /// Entries below zero.
    pub negative: usize,
    /// Number of rows in which |a_ii| is at least the sum of the other absolute values (summed in f64).
    pub dominant: usize,
    /// Number of rows in which |a_ii| exceeds that sum.
    pub strictly_dominant: usize,
}

/// Statistics of a matrix's structure and values.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Rows.
    pub nrows: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries, explicit zeros among them.
    pub nnz: usize,
    /// Numbers of entries per row.
    pub rows: RowLengths,
    /// Lower bandwidth: the largest i - j of an entry below the diagonal, 0 without one.
    pub lower: usize,
    /// Upper bandwidth: the largest j - i of an entry above the diagonal, 0 without one.
    pub upper: usize,
    /// Distinct diagonals j - i with an entry.
    pub diagonals: usize,
    /// Share of entries among all places of the matrix; 0 for a matrix without places.
    pub density: f64,
    /// Share of entries among the places of their diagonals; 1 if DIA has no fill.
    pub diagonal_fill: f64,
    /// Share of entries among the places of ELL; 1 if all rows are equally long.
    pub ell_fill: f64,
    /// How it relates to its transpose.
    pub symmetry: Symmetry,
    /// The main diagonal.
    pub diagonal: Diagonal,
    /// Number of entries stored as zero.
    pub explicit_zeros: usize,
    /// Number of NaN or infinite entries.
    pub non_finite: usize,
}

impl Stats {
    /// Computes the statistics of `csr`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] for one byte per possible diagonal.
    pub fn of<T: Real>(csr: &Csr<T>) -> crate::Result<Self> {
        let (nrows, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
        let rows = RowLengths::of(csr);
        let offsets = occupied(csr)?;
        let reach = |offset: Option<&i32>, sign: i64| offset.map_or(0, |&o| (sign * i64::from(o)).max(0) as usize);
        let ratio = |places: u128| if places == 0 { 0.0 } else { nnz as f64 / places as f64 };
        let (zeros, non_finite) = csr
            .values()
            .par_iter()
            .with_min_len(CHUNK)
            .map(|v| (usize::from(v.is_zero()), usize::from(!v.is_finite())))
            .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        Ok(Self {
            nrows,
            ncols,
            nnz,
            lower: reach(offsets.first(), -1),
            upper: reach(offsets.last(), 1),
            diagonals: offsets.len(),
            density: ratio(nrows as u128 * ncols as u128),
            diagonal_fill: ratio(u128::from(positions(nrows, ncols, offsets.iter().copied()))),
            ell_fill: ratio(nrows as u128 * rows.max as u128),
            rows,
            symmetry: symmetry(csr),
            diagonal: Diagonal::of(csr),
            explicit_zeros: zeros,
            non_finite,
        })
    }

    /// Returns true if there are as many rows as columns.
    pub fn is_square(&self) -> bool {
        self.nrows == self.ncols
    }
}

impl RowLengths {
    fn of<T: Real>(csr: &Csr<T>) -> Self {
        let n = csr.nrows();
        let lengths = || (0..n).map(|i| csr.row_nnz(i));
        let max = lengths().max().unwrap_or(0);
        // Number of rows of each length. It has at most nnz + 1 places, because a row of `max` entries exists.
        let mut of_length = vec![0usize; max + 1];
        lengths().for_each(|length| of_length[length] += 1);
        let mean = if n == 0 { 0.0 } else { csr.nnz() as f64 / n as f64 };
        let variance =
            of_length.iter().enumerate().map(|(len, &c)| c as f64 * (len as f64 - mean).powi(2)).sum::<f64>()
                / n.max(1) as f64;
        let quantile = |percent: usize| {
            let rank = (n * percent).div_ceil(100).max(1);
            let mut below = 0;
            of_length.iter().position(|&count| {
                below += count;
                below >= rank
            })
        };
        let mut histogram = vec![0; if max == 0 { 1 } else { max.ilog2() as usize + 2 }];
        for (length, &count) in of_length.iter().enumerate() {
            histogram[if length == 0 { 0 } else { length.ilog2() as usize + 1 }] += count;
        }
        Self {
            min: of_length.iter().position(|&count| count > 0).unwrap_or(0),
            max,
            mean,
            variance,
            quantiles: [5, 25, 50, 75, 95].map(|percent| quantile(percent).unwrap_or(0)),
            empty: of_length[0],
            histogram,
        }
    }
}

impl Diagonal {
    fn of<T: Real>(csr: &Csr<T>) -> Self {
        let row = |i: usize| {
            let (cols, values) = csr.row(i);
            let mut found = None;
            let mut others = 0.0;
            for (&j, &v) in cols.iter().zip(values) {
                if j as usize == i {
                    found = Some(v);
                } else {
                    others += v.as_f64().abs();
                }
            }
            let size = found.map_or(0.0, |v| v.as_f64().abs());
            Self {
                missing: usize::from(found.is_none()),
                zero: usize::from(found.is_some_and(|v| v.is_zero())),
                negative: usize::from(found.is_some_and(|v| v < T::zero())),
                dominant: usize::from(size >= others),
                strictly_dominant: usize::from(size > others),
            }
        };
        let both = |a: Self, b: Self| Self {
            missing: a.missing + b.missing,
            zero: a.zero + b.zero,
            negative: a.negative + b.negative,
            dominant: a.dominant + b.dominant,
            strictly_dominant: a.strictly_dominant + b.strictly_dominant,
        };
        let places = csr.nrows().min(csr.ncols());
        (0..places).into_par_iter().with_min_len(CHUNK).map(row).reduce(Self::default, both)
    }
}

/// How `csr` relates to its transpose. Values are compared as numbers: an absent entry is 0, 0 = -0, and NaN differs
/// from itself.
pub fn symmetry<T: Real>(csr: &Csr<T>) -> Symmetry {
    if csr.nrows() != csr.ncols() {
        return Symmetry::None;
    }
    let or_zero = |v: Option<T>| v.unwrap_or_else(T::zero);
    if csr.is_symmetric() {
        Symmetry::Symmetric
    } else if mirrored(csr, |v, mirror| v == -or_zero(mirror)) {
        Symmetry::Skew
    } else if mirrored(csr, |_, mirror| mirror.is_some()) {
        Symmetry::Pattern
    } else {
        Symmetry::None
    }
}
