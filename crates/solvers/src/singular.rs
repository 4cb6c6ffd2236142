//! Why a matrix is singular, in terms of its rows and columns, and whether b contradicts it.
//!
//! Every test is exact or exact to the rounding of the entries, so a statement holds for the matrix as it is stored: an
//! empty row or column, a pattern that leaves a column without a row of its own, rows or columns that are multiples of
//! each other, rows that sum to zero. A matrix that is singular for another reason has no [`Defect`].
//!
//! Cost: a transpose and O(nnz log) work, far less than a factorisation.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use spandrel_formats::{Csr, Real};

use crate::direct::structure::Transversal;

/// A reason why a square matrix is singular. Rows and columns count from 0; `Display` counts them from 1, as files do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Defect {
    /// A row has no nonzero entry.
    EmptyRow {
        /// The first such row.
        row: usize,
    },
    /// A column has no nonzero entry.
    EmptyColumn {
        /// The first such column.
        column: usize,
    },
    /// No choice of rows gives every column a nonzero of its own, so every term of the determinant is zero.
    StructuralRank {
        /// The largest rank that values on this pattern can have.
        rank: usize,
        /// The order of the matrix.
        order: usize,
        /// A column that is left without a row.
        column: usize,
    },
    /// A row is a multiple of another.
    DependentRows {
        /// The first of the two.
        first: usize,
        /// The second, `factor` times the first.
        second: usize,
        /// The factor.
        factor: f64,
    },
    /// A column is a multiple of another.
    DependentColumns {
        /// The first of the two.
        first: usize,
        /// The second, `factor` times the first.
        second: usize,
        /// The factor.
        factor: f64,
    },
    /// The entries of every row sum to zero, so the constant vectors are in the null space.
    ConstantNullSpace {
        /// Whether the columns sum to zero as well: then only a b that sums to zero has a solution.
        columns_too: bool,
    },
}

impl Defect {
    /// The first defect found in a square matrix with finite entries; `None` also for a matrix that is not square.
    pub fn of<T: Real>(csr: &Csr<T>) -> Option<Self> {
        if csr.nrows() != csr.ncols() || csr.nrows() == 0 {
            return None;
        }
        let empty = |csr: &Csr<T>| (0..csr.nrows()).find(|&i| csr.row(i).1.iter().all(|v| v.as_f64() == 0.0));
        if let Some(row) = empty(csr) {
            return Some(Defect::EmptyRow { row });
        }
        let columns = csr.transpose();
        if let Some(column) = empty(&columns) {
            return Some(Defect::EmptyColumn { column });
        }
        let transversal = Transversal::of(csr);
        if let Some(column) = transversal.unmatched {
            return Some(Defect::StructuralRank { rank: transversal.rank, order: csr.nrows(), column });
        }
        if let Some((first, second, factor)) = multiples(csr) {
            return Some(Defect::DependentRows { first, second, factor });
        }
        if let Some((first, second, factor)) = multiples(&columns) {
            return Some(Defect::DependentColumns { first, second, factor });
        }
        sums_vanish(csr).then(|| Defect::ConstantNullSpace { columns_too: sums_vanish(&columns) })
    }

    /// What in b no x can satisfy because of this defect, in words; `None` if nothing is found.
    pub fn contradiction<T: Real>(&self, csr: &Csr<T>, b: &[T]) -> Option<String> {
        match *self {
            Defect::EmptyRow { .. } => {
                let is_empty = |i: usize| csr.row(i).1.iter().all(|v| v.as_f64() == 0.0);
                let row = (0..csr.nrows()).find(|&i| b[i].as_f64() != 0.0 && is_empty(i))?;
                Some(format!("row {} is empty, but b is {} there", row + 1, b[row]))
            }
            Defect::DependentRows { first, second, factor } => {
                let (one, other) = (b[first].as_f64() * factor, b[second].as_f64());
                // The product and each element of b have one rounding error.
                let apart = (one - other).abs() > 3.0 * T::UNIT_ROUNDOFF * (one.abs() + other.abs());
                let (first, second) = (first + 1, second + 1);
                apart.then(|| {
                    let times = if factor == 1.0 { "equal to".to_string() } else { format!("{factor} times") };
                    format!("row {second} is {times} row {first}, but b is {other} there instead of {one}")
                })
            }
            Defect::ConstantNullSpace { columns_too: true } => {
                let (sum, size) =
                    b.iter().fold((0.0, 0.0), |(sum, size), v| (sum + v.as_f64(), size + v.as_f64().abs()));
                let apart = sum.abs() > (b.len() + 1) as f64 * f64::EPSILON.max(2.0 * T::UNIT_ROUNDOFF) * size;
                apart.then(|| format!("the columns sum to zero, but b sums to {sum:.3e}"))
            }
            Defect::EmptyColumn { .. }
            | Defect::StructuralRank { .. }
            | Defect::DependentColumns { .. }
            | Defect::ConstantNullSpace { columns_too: false } => None,
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dependent = |f: &mut fmt::Formatter<'_>, what: &str, first: usize, second: usize, factor: f64| {
            let (first, second) = (first + 1, second + 1);
            if factor == 1.0 {
                write!(f, "{what}s {first} and {second} are equal")
            } else {
                write!(f, "{what} {second} is {factor} times {what} {first}")
            }
        };
        match *self {
            Defect::EmptyRow { row } => write!(f, "row {} is empty", row + 1),
            Defect::EmptyColumn { column } => {
                write!(f, "column {} is empty: nothing determines unknown {}", column + 1, column + 1)
            }
            Defect::StructuralRank { rank, order, column } => write!(
                f,
                "the pattern has rank {rank} of {order} at most: no choice of rows leaves one with a nonzero for column {}",
                column + 1
            ),
            Defect::DependentRows { first, second, factor } => dependent(f, "row", first, second, factor),
            Defect::DependentColumns { first, second, factor } => dependent(f, "column", first, second, factor),
            Defect::ConstantNullSpace { .. } => {
                write!(f, "every row sums to zero: a constant can be added to x")
            }
        }
    }
}

/// The first row that is a multiple of an earlier one, that earlier row, and the factor.
fn multiples<T: Real>(csr: &Csr<T>) -> Option<(usize, usize, f64)> {
    let entries = |i: usize| {
        let (cols, values) = csr.row(i);
        cols.iter().zip(values).map(|(&j, v)| (j, v.as_f64())).filter(|(_, v)| *v != 0.0)
    };
    // Quotients are rounded correctly, so multiples have equal quotients.
    let fingerprint = |i: usize| {
        let mut hasher = DefaultHasher::new();
        let lead = entries(i).next().map_or(1.0, |(_, v)| v);
        entries(i).for_each(|(j, v)| (j, (v / lead).to_bits()).hash(&mut hasher));
        hasher.finish()
    };
    let mut first_with: HashMap<u64, usize> = HashMap::with_capacity(csr.nrows());
    for i in 0..csr.nrows() {
        let first = *first_with.entry(fingerprint(i)).or_insert(i);
        let (lead, own) = (entries(first).next(), entries(i).next());
        let (Some((_, lead)), Some((_, own))) = (lead, own) else { continue };
        let same = |((j, v), (k, w)): ((u32, f64), (u32, f64))| j == k && equal_products(v, own, w, lead);
        let is_multiple =
            first != i && entries(first).count() == entries(i).count() && entries(first).zip(entries(i)).all(same);
        if is_multiple {
            return Some((first, i, own / lead));
        }
    }
    None
}

/// a b = c d exactly, unless a product leaves the range.
fn equal_products(a: f64, b: f64, c: f64, d: f64) -> bool {
    let (ab, cd) = (a * b, c * d);
    ab == cd && ab.is_finite() && a.mul_add(b, -ab) == c.mul_add(d, -cd)
}

/// Whether the entries of each row sum to zero, up to the rounding of each entry and of the sum.
fn sums_vanish<T: Real>(csr: &Csr<T>) -> bool {
    (0..csr.nrows()).all(|i| {
        let values = csr.row(i).1;
        let (sum, size) = values.iter().fold((0.0, 0.0), |(sum, size), v| (sum + v.as_f64(), size + v.as_f64().abs()));
        sum.abs() <= (T::UNIT_ROUNDOFF + values.len() as f64 * f64::EPSILON) * size
    })
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Triplets;

    use super::*;

    fn matrix(n: usize, entries: &[(usize, usize, f64)]) -> Csr<f64> {
        let mut triplets = Triplets::new(n, n).expect("a small shape");
        for &(i, j, v) in entries {
            triplets.push(i, j, v).expect("an entry inside");
        }
        triplets.to_csr().expect("a small matrix")
    }

    #[track_caller]
    fn told(a: &Csr<f64>, b: &[f64], defect: &str, contradiction: Option<&str>) {
        let found = Defect::of(a).expect("a defect");
        assert_eq!(found.to_string(), defect);
        assert_eq!(found.contradiction(a, b).as_deref(), contradiction, "{found:?}");
    }

    #[test]
    fn every_defect_is_told_with_its_rows_and_what_b_contradicts() {
        let a = matrix(3, &[(0, 0, 1.0), (1, 1, 0.0), (2, 1, 4.0), (2, 2, 1.0)]);
        told(&a, &[1.0, 0.0, 1.0], "row 2 is empty", None);
        told(&a, &[1.0, 5.0, 1.0], "row 2 is empty", Some("row 2 is empty, but b is 5 there"));
        let a = matrix(2, &[(0, 0, 1.0), (1, 0, 2.0)]);
        told(&a, &[1.0, 2.0], "column 2 is empty: nothing determines unknown 2", None);
        let a = matrix(3, &[(0, 0, 1.0), (1, 0, 2.0), (2, 0, 1.0), (2, 1, 1.0), (2, 2, 5.0)]);
        let text = "the pattern has rank 2 of 3 at most: no choice of rows leaves one with a nonzero for column 2";
        told(&a, &[1.0; 3], text, None);
        let a = matrix(
            3,
            &[(0, 0, 1.0), (0, 1, 0.1), (1, 1, 1.0), (1, 2, 1.0), (2, 0, 3.0), (2, 1, 3.0 * 0.1), (2, 2, 0.0)],
        );
        assert_eq!(Defect::of(&a), None, "3 times 0.1 is rounded, so the rows are no multiples");
        let a =
            matrix(3, &[(0, 0, 1.0), (0, 1, 0.1), (1, 1, 1.0), (1, 2, 1.0), (2, 0, -4.0), (2, 1, -0.4), (2, 2, 0.0)]);
        told(&a, &[1.0, 1.0, -4.0], "row 3 is -4 times row 1", None);
        let text = "row 3 is -4 times row 1, but b is 1 there instead of -4";
        told(&a, &[1.0, 1.0, 1.0], "row 3 is -4 times row 1", Some(text));
        let a = matrix(2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
        told(&a, &[1.0, 1.0], "rows 1 and 2 are equal", None);
        let a = matrix(
            3,
            &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0), (1, 1, 6.0), (1, 2, 1.0), (2, 0, 5.0), (2, 1, 10.0), (2, 2, 3.0)],
        );
        told(&a, &[1.0; 3], "column 2 is 2 times column 1", None);
    }

    #[test]
    fn a_neumann_problem_has_a_constant_null_space() {
        let n = 5;
        let mut entries = Vec::new();
        for i in 0..n {
            let ends = usize::from(i > 0) + usize::from(i + 1 < n);
            entries.push((i, i, 0.1 * ends as f64));
            entries.extend((i > 0).then(|| (i, i - 1, -0.1)));
            entries.extend((i + 1 < n).then(|| (i, i + 1, -0.1)));
        }
        let a = matrix(n, &entries);
        let text = "every row sums to zero: a constant can be added to x";
        told(&a, &[1.0, -1.0, 0.0, 2.0, -2.0], text, None);
        told(&a, &[1.0; 5], text, Some("the columns sum to zero, but b sums to 5.000e0"));
    }

    #[test]
    fn sound_matrices_have_no_defect() {
        assert_eq!(Defect::of(&matrix(2, &[(0, 1, 1.0), (1, 0, 1.0)])), None);
        assert_eq!(Defect::of(&matrix(0, &[])), None);
        let a = matrix(3, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0), (2, 2, 1e-300)]);
        assert_eq!(Defect::of(&a), None);
    }
}
