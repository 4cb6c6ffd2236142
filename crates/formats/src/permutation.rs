//! Permutations of rows, columns and vectors.
//!
//! Layout: `perm[new] = old`. For perm = 2 0 1: element 0 of the permuted vector is element 2 of the original.
//! ```text
//! x     a b c         A     a b c        P A P^T     i g h
//! P x   c a b               d e f                    c a b
//!                           g h i                    f d e
//! ```
//! Invariants: a bijection of 0..len onto itself; len < 2^31. As a matrix P has a 1 at `(new, perm[new])`.
//! Cost: 4 len bytes.

use crate::index::checked;
use crate::matrix_market::{order_row, order_rows};
use crate::{Csr, Error, Offset, Ordinal, Real, Result};

/// A bijection of 0..len onto itself, `perm[new] = old`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    perm: Vec<Ordinal>,
}

impl Permutation {
    /// Makes a permutation from its list and checks it in O(len).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::IndexOutOfRange`], [`Error::Invalid`] if an element occurs twice.
    pub fn new(perm: Vec<Ordinal>) -> Result<Self> {
        let format = "permutation";
        checked(perm.len(), "rows")?;
        let mut first = vec![Ordinal::MAX; perm.len()];
        for (at, &old) in perm.iter().enumerate() {
            let Some(slot) = first.get_mut(old as usize) else {
                let found = i64::from(old);
                return Err(Error::IndexOutOfRange { format, array: "perm", at, found, bound: perm.len() });
            };
            if *slot != Ordinal::MAX {
                let why = format!("perm[{slot}] and perm[{at}] are both {old}: every index stands in it exactly once");
                return Err(Error::Invalid { format, why });
            }
            *slot = at as Ordinal;
        }
        Ok(Self { perm })
    }

    /// The permutation that moves nothing.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn identity(len: usize) -> Result<Self> {
        Ok(Self { perm: (0..checked(len, "rows")?).collect() })
    }

    /// Returns the list without a copy.
    pub fn into_parts(self) -> Vec<Ordinal> {
        self.perm
    }

    /// The list: `perm()[new] = old`.
    pub fn perm(&self) -> &[Ordinal] {
        &self.perm
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.perm.len()
    }

    /// Returns true if it has no elements at all.
    pub fn is_empty(&self) -> bool {
        self.perm.is_empty()
    }

    /// Returns true if it moves nothing.
    pub fn is_identity(&self) -> bool {
        self.perm.iter().enumerate().all(|(new, &old)| new == old as usize)
    }

    /// The permutation that undoes this one: `inverse().perm()[old] = new`. P^-1 = P^T.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut perm = vec![0; self.perm.len()];
        for (new, &old) in self.perm.iter().enumerate() {
            perm[old as usize] = new as Ordinal;
        }
        Self { perm }
    }

    /// The permutation that applies `first` and then this one: P Q.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both have the same length.
    pub fn compose(&self, first: &Self) -> Result<Self> {
        self.expect("compose", "the other permutation", first.len())?;
        Ok(Self { perm: self.perm.iter().map(|&at| first.perm[at as usize]).collect() })
    }

    /// P x: element `new` is `x[perm[new]]`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless x has `len` elements.
    pub fn apply<V: Copy>(&self, x: &[V]) -> Result<Vec<V>> {
        self.expect("permute", "x", x.len())?;
        Ok(self.perm.iter().map(|&old| x[old as usize]).collect())
    }

    /// out <- P x, without an allocation.
    ///
    /// # Errors
    /// [`Error::Shape`] unless x and out have `len` elements.
    pub fn apply_to<V: Copy>(&self, x: &[V], out: &mut [V]) -> Result<()> {
        self.expect("permute", "x", x.len())?;
        self.expect("permute", "out", out.len())?;
        for (&old, out) in self.perm.iter().zip(out) {
            *out = x[old as usize];
        }
        Ok(())
    }

    /// out <- P^-1 x, without an allocation and without forming the inverse: `out[perm[new]] = x[new]`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless x and out have `len` elements.
    pub fn apply_inverse_to<V: Copy>(&self, x: &[V], out: &mut [V]) -> Result<()> {
        self.expect("permute", "x", x.len())?;
        self.expect("permute", "out", out.len())?;
        for (&old, &value) in self.perm.iter().zip(x) {
            out[old as usize] = value;
        }
        Ok(())
    }

    /// P A: row `new` is row `perm[new]` of `matrix`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix has `len` rows.
    pub fn permute_rows<T: Real>(&self, matrix: &Csr<T>) -> Result<Csr<T>> {
        self.expect("permute_rows", "a column", matrix.nrows())?;
        self.moved(matrix, |col| col)
    }

    /// P A P^T: entry (new row, new column) is entry (`perm[new row]`, `perm[new column]`) of `matrix`. Eigenvalues and
    /// symmetry stay.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix has `len` rows and columns.
    pub fn permute_symmetric<T: Real>(&self, matrix: &Csr<T>) -> Result<Csr<T>> {
        self.expect("permute_symmetric", "a column", matrix.nrows())?;
        self.expect("permute_symmetric", "a row", matrix.ncols())?;
        let inverse = self.inverse();
        self.moved(matrix, |old| inverse.perm[old as usize])
    }

    /// For each entry of P A P^T ([`Permutation::permute_symmetric`]), its position among the entries of A.
    ///
    /// # Errors
    /// As [`Permutation::permute_symmetric`].
    pub fn places_symmetric<T: Real>(&self, matrix: &Csr<T>) -> Result<Vec<Offset>> {
        // f64 represents every position exactly.
        let mut numbered = matrix.map(|_| 0.0);
        numbered.values_mut().iter_mut().enumerate().for_each(|(place, v)| *v = place as f64);
        let numbered = self.permute_symmetric(&numbered)?;
        Ok(numbered.values().iter().map(|&place| place as Offset).collect())
    }

    /// A P^T: column `new` is column `perm[new]` of `matrix`. With x = P^T y, the system (A P^T) y = b has the solution
    /// of A x = b: see [`Permutation::apply_inverse_to`]. O(nnz log of a row's entries).
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix has `len` columns.
    pub fn permute_columns<T: Real>(&self, matrix: &Csr<T>) -> Result<Csr<T>> {
        self.expect("permute_columns", "a row", matrix.ncols())?;
        let inverse = self.inverse();
        let mut col_idx: Vec<Ordinal> = matrix.col_idx().iter().map(|&old| inverse.perm[old as usize]).collect();
        let (row_ptr, mut values) = (matrix.row_ptr().to_vec(), matrix.values().to_vec());
        order_rows(&row_ptr, &mut col_idx, &mut values);
        Csr::new(matrix.nrows(), matrix.ncols(), row_ptr, col_idx, values)
    }

    /// The rows in the new order, in parallel. Each column is replaced by `column` of it.
    fn moved<T: Real>(&self, matrix: &Csr<T>, column: impl Fn(Ordinal) -> Ordinal + Sync) -> Result<Csr<T>> {
        let row = |new: usize| matrix.row(self.perm[new] as usize);
        let fill = |new: usize, cols: &mut [Ordinal], values: &mut [T]| {
            let (from, of) = row(new);
            cols.iter_mut().zip(from).for_each(|(to, &col)| *to = column(col));
            values.copy_from_slice(of);
            order_row(cols, values);
        };
        Csr::from_rows(matrix.nrows(), matrix.ncols(), |new| row(new).0.len(), fill)
    }

    fn expect(&self, op: &'static str, what: &'static str, found: usize) -> Result<()> {
        if found == self.perm.len() {
            return Ok(());
        }
        Err(Error::Shape { op, what, found, expected: self.perm.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shuffled(max: usize) -> impl Strategy<Value = Vec<Ordinal>> {
        (0..max).prop_flat_map(|n| Just((0..n as Ordinal).collect::<Vec<_>>()).prop_shuffle())
    }

    #[test]
    fn lists_that_are_no_permutations() {
        let messages: Vec<String> = [vec![0, 3, 1], vec![1, 0, 1]]
            .into_iter()
            .map(|perm| Permutation::new(perm).unwrap_err().to_string())
            .chain([
                Permutation::identity(2).unwrap().apply(&[1.0]).unwrap_err().to_string(),
                Permutation::identity(2)
                    .unwrap()
                    .permute_symmetric(&Csr::<f64>::identity(3).unwrap())
                    .unwrap_err()
                    .to_string(),
                Permutation::identity(1 << 31).unwrap_err().to_string(),
            ])
            .collect();
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn the_example_of_the_head() {
        let p = Permutation::new(vec![2, 0, 1]).unwrap();
        assert_eq!(p.apply(&['a', 'b', 'c']).unwrap(), ['c', 'a', 'b']);
        let letters: Vec<f64> = (1..=9).map(f64::from).collect();
        let a = Csr::new(3, 3, vec![0, 3, 6, 9], vec![0, 1, 2, 0, 1, 2, 0, 1, 2], letters).unwrap();
        assert_eq!(p.permute_symmetric(&a).unwrap().values(), [9., 7., 8., 3., 1., 2., 6., 4., 5.]);
        assert_eq!(p.permute_rows(&a).unwrap().values(), [7., 8., 9., 1., 2., 3., 4., 5., 6.]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn inverse_undoes(perm in shuffled(50)) {
            let p = Permutation::new(perm.clone()).unwrap();
            let identity = Permutation::identity(p.len()).unwrap();
            prop_assert!(identity.is_identity());
            prop_assert_eq!(p.compose(&p.inverse()).unwrap(), identity.clone());
            prop_assert_eq!(p.inverse().compose(&p).unwrap(), identity);
            let x: Vec<usize> = (100..100 + p.len()).collect();
            let moved = p.apply(&x).unwrap();
            let mut back = vec![0; x.len()];
            p.apply_inverse_to(&moved, &mut back).unwrap();
            prop_assert_eq!(&back, &x);
            p.inverse().apply_to(&moved, &mut back).unwrap();
            prop_assert_eq!(back, x);
            prop_assert_eq!(p.into_parts(), perm);
        }

        #[test]
        fn composition_applies_the_first_first((p, q) in (0usize..30).prop_flat_map(|n| {
            let list = Just((0..n as Ordinal).collect::<Vec<_>>());
            (list.clone().prop_shuffle(), list.prop_shuffle())
        })) {
            let (p, q) = (Permutation::new(p).unwrap(), Permutation::new(q).unwrap());
            let x: Vec<usize> = (0..p.len()).collect();
            let both = p.apply(&q.apply(&x).unwrap()).unwrap();
            prop_assert_eq!(p.compose(&q).unwrap().apply(&x).unwrap(), both);
        }

        #[test]
        fn matrices_move_entry_by_entry(perm in shuffled(30), entries in prop::collection::vec((any::<usize>(), any::<usize>()), 0..150)) {
            let p = Permutation::new(perm).unwrap();
            let n = p.len();
            let mut triplets = crate::Triplets::new(n, n).unwrap();
            for (k, &(i, j)) in entries.iter().enumerate().filter(|_| n > 0) {
                triplets.push(i % n, j % n, k as f64).unwrap();
            }
            let a = triplets.to_csr().unwrap();
            let (rows, both) = (p.permute_rows(&a).unwrap(), p.permute_symmetric(&a).unwrap());
            prop_assert_eq!(p.permute_columns(&rows).unwrap(), both.clone());
            for i in 0..n {
                for j in 0..n {
                    let (old_i, old_j) = (p.perm()[i] as usize, p.perm()[j] as usize);
                    prop_assert_eq!(rows.get(i, j), a.get(old_i, j));
                    prop_assert_eq!(both.get(i, j), a.get(old_i, old_j));
                }
            }
            prop_assert_eq!(p.inverse().permute_symmetric(&both).unwrap(), a);
        }
    }
}
