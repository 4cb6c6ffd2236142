//! Which nodes are strongly coupled: the graph that aggregates are made of.
//!
//! The weight of two nodes is the largest magnitude in the block of entries between them. The coupling is strong if
//! w_ij^2 >= theta^2 m_i m_j, where m_i is the largest weight of node i. Both nodes count, so a soft node is not
//! aggregated with a stiff one across a jump of the coefficients.
//!
//! Layout: as CSR without the diagonal, one row per node, neighbours ascending.
//! Cost: two passes over the entries; 4 bytes per coupling and per node, and the couplings twice during the second
//! pass.

use rayon::prelude::*;

use super::{CHUNK, MOST_UNKNOWNS};
use crate::csr::{begins, pieces};
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Error, Real, Result};

/// The strong couplings of a matrix, node by node. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strength {
    row_ptr: Vec<Offset>,
    neighbours: Vec<Ordinal>,
    unknowns: usize,
}

impl Strength {
    /// Finds the strong couplings of a square matrix with `unknowns` rows per node, at most [`MOST_UNKNOWNS`]. A
    /// coupling is strong if the square of its weight is at least `theta^2` times the product of the largest weights of
    /// its nodes. With `theta` = 0, every coupling that is not zero is strong.
    ///
    /// ```
    /// use spandrel_formats::{amg::Strength, generate};
    ///
    /// let a = generate::csr::<f64>("poisson2d:4")?;
    /// let graph = Strength::of(&a, 1, 0.25)?;
    /// assert_eq!(graph.neighbours(5), [1, 4, 6, 9]);
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix is square and its rows are whole nodes of few enough unknowns;
    /// [`Error::OutOfMemory`].
    pub fn of<T: Real>(a: &Csr<T>, unknowns: usize, theta: f64) -> Result<Self> {
        let shares = Self::shares(a, unknowns)?;
        Self::with_shares(a, unknowns, theta, &shares)
    }

    /// Returns one over the largest weight of each node, infinite for a node without couplings. A rank that has only
    /// some rows of a matrix takes the shares of the other nodes from their owners.
    ///
    /// # Errors
    /// [`Error::Shape`] as [`Strength::of`].
    pub fn shares<T: Real>(a: &Csr<T>, unknowns: usize) -> Result<Vec<T>> {
        let n = a.nrows();
        if a.ncols() != n {
            return Err(Error::Shape { op: "strength", what: "a row", found: a.ncols(), expected: n });
        }
        if !(1..=MOST_UNKNOWNS).contains(&unknowns) {
            let expected = unknowns.clamp(1, MOST_UNKNOWNS);
            return Err(Error::Shape { op: "strength", what: "a node", found: unknowns, expected });
        }
        if !n.is_multiple_of(unknowns) {
            let expected = n.next_multiple_of(unknowns);
            return Err(Error::Shape { op: "strength", what: "the list of nodes", found: n, expected });
        }
        let share = |node| {
            let mut most = T::zero();
            couplings(a, unknowns, node, |_, weight| most = most.max(weight));
            most.recip()
        };
        Ok((0..n / unknowns).into_par_iter().with_min_len(CHUNK).map(share).collect())
    }

    /// As [`Strength::of`], with the [shares](Strength::shares) of the nodes.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is one share per node; [`Error::OutOfMemory`].
    pub fn with_shares<T: Real>(a: &Csr<T>, unknowns: usize, theta: f64, shares: &[T]) -> Result<Self> {
        let (nodes, n) = (shares.len(), a.nrows());
        if nodes * unknowns != n || a.ncols() != n {
            let found = nodes * unknowns;
            return Err(Error::Shape { op: "strength", what: "the list of shares", found, expected: n });
        }
        // Products of two weights may leave the range of the type; their ratios do not.
        let squared = T::from_f64(theta * theta);
        let is_strong = |node: usize, other: Ordinal, weight: T| {
            weight > T::zero() && (weight * shares[node]) * (weight * shares[other as usize]) >= squared
        };
        let mut row_ptr: Vec<Offset> = zeroed(nodes + 1, "couplings")?;
        let chunk_of = |(chunk, ends): (usize, &mut [Offset])| {
            let mut found: Vec<Ordinal> = Vec::new();
            for (i, end) in ends.iter_mut().enumerate() {
                let node = chunk * CHUNK + i;
                couplings(a, unknowns, node, |other, weight| {
                    if is_strong(node, other, weight) {
                        found.push(other);
                    }
                });
                *end = found.len() as Offset;
            }
            found
        };
        let found: Vec<Vec<Ordinal>> = row_ptr[1..].par_chunks_mut(CHUNK).enumerate().map(chunk_of).collect();
        let mut lengths: Vec<usize> = found.iter().map(Vec::len).collect();
        let mut neighbours: Vec<Ordinal> = zeroed(lengths.iter().sum(), "couplings")?;
        let places = pieces(&mut neighbours, lengths.iter().copied());
        checked(begins(&mut lengths), "couplings")?;
        let joined = row_ptr[1..].par_chunks_mut(CHUNK).zip(places).zip(lengths).zip(found);
        joined.for_each(|(((ends, place), begin), found)| {
            place.copy_from_slice(&found);
            ends.iter_mut().for_each(|end| *end += begin as Offset);
        });
        Ok(Self { row_ptr, neighbours, unknowns })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Rows of the matrix per node.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// The nodes that a node is strongly coupled to, ascending.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn neighbours(&self, node: usize) -> &[Ordinal] {
        &self.neighbours[self.row_ptr[node] as usize..self.row_ptr[node + 1] as usize]
    }

    /// Calls `f` with the nodes that a node is strongly coupled to, ascending, each with the weight between the two in
    /// `a`, the matrix that the graph was made from.
    pub(super) fn weighted<T: Real>(&self, a: &Csr<T>, node: usize, mut f: impl FnMut(Ordinal, T)) {
        let mut strong = self.neighbours(node).iter().peekable();
        couplings(a, self.unknowns, node, |other, weight| {
            if strong.next_if_eq(&&other).is_some() {
                f(other, weight);
            }
        });
    }
}

/// Calls `f` with the other nodes of a node's rows, ascending, each with the largest magnitude between the two.
#[inline(always)]
fn couplings<T: Real>(a: &Csr<T>, unknowns: usize, node: usize, mut f: impl FnMut(Ordinal, T)) {
    if unknowns == 1 {
        let (cols, values) = a.row(node);
        let others = cols.iter().zip(values).filter(|(other, _)| **other as usize != node);
        return others.for_each(|(&other, v)| f(other, v.abs()));
    }
    // What is left of each row.
    let mut rows = [(&[][..], &[][..]); MOST_UNKNOWNS];
    let rows = &mut rows[..unknowns];
    rows.iter_mut().enumerate().for_each(|(k, row)| *row = a.row(node * unknowns + k));
    while let Some(&first) = rows.iter().filter_map(|(cols, _)| cols.first()).min() {
        let other = first / unknowns as Ordinal;
        let end = (other + 1) * unknowns as Ordinal;
        let mut weight = T::zero();
        for (cols, values) in &mut *rows {
            let count = cols.iter().take_while(|&&j| j < end).count();
            weight = values[..count].iter().fold(weight, |most, v| most.max(v.abs()));
            (*cols, *values) = (&cols[count..], &values[count..]);
        }
        if other as usize != node {
            f(other, weight);
        }
    }
}
