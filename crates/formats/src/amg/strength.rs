//! Which nodes are strongly coupled: the graph that aggregates are made of.
//!
//! The weight of two nodes is the largest magnitude in the block of entries between them. The coupling is strong if
//! w_ij^2 >= theta^2 m_i m_j, where m_i is the largest weight of node i. Both nodes count, so a soft node is not
//! aggregated with a stiff one across a jump of the coefficients.
//!
//! Layout: as CSR without the diagonal, one row per node, neighbours ascending.
//! Cost: three passes over the entries; 4 bytes per coupling and per node.

use rayon::prelude::*;

use super::{CHUNK, MOST_UNKNOWNS};
use crate::csr::pieces;
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
        let most = |node| couplings(a, unknowns, node).fold(T::zero(), |most, (_, weight)| most.max(weight));
        Ok((0..n / unknowns).into_par_iter().with_min_len(CHUNK).map(|node| most(node).recip()).collect())
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
        let strong =
            |node: usize| couplings(a, unknowns, node).filter(move |&(other, weight)| is_strong(node, other, weight));
        let mut row_ptr: Vec<Offset> = zeroed(nodes + 1, "couplings")?;
        row_ptr[1..].par_iter_mut().enumerate().with_min_len(CHUNK).for_each(|(node, count)| {
            *count = strong(node).count() as Offset;
        });
        let mut end = 0usize;
        for count in &mut row_ptr {
            end += *count as usize;
            *count = checked(end, "couplings")?;
        }
        let mut neighbours: Vec<Ordinal> = zeroed(end, "couplings")?;
        let lengths = row_ptr.windows(CHUNK + 1).step_by(CHUNK).map(|ends| (ends[CHUNK] - ends[0]) as usize);
        let whole = nodes / CHUNK * CHUNK;
        let last = (row_ptr[nodes] - row_ptr[whole]) as usize;
        pieces(&mut neighbours, lengths.chain([last])).into_par_iter().enumerate().for_each(|(chunk, places)| {
            let nodes = chunk * CHUNK..nodes.min((chunk + 1) * CHUNK);
            places.iter_mut().zip(nodes.flat_map(strong)).for_each(|(place, (other, _))| *place = other);
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

    /// Calls `f` with column and value of the entries of a row of `a` between strongly coupled nodes, in stored order.
    pub(super) fn strong<T: Real>(&self, a: &Csr<T>, row: usize, mut f: impl FnMut(usize, T)) {
        let (strong, mut at) = (self.neighbours(row / self.unknowns), 0);
        let (columns, entries) = a.row(row);
        for (&j, &entry) in columns.iter().zip(entries) {
            let other = j / self.unknowns as Ordinal;
            while strong.get(at).is_some_and(|&s| s < other) {
                at += 1;
            }
            if strong.get(at) == Some(&other) {
                f(j as usize, entry);
            }
        }
    }

    /// The nodes that a node is strongly coupled to, ascending, each with the weight between the two in `a`, the matrix
    /// that the graph was made from.
    pub(super) fn weighted<'a, T: Real>(
        &'a self,
        a: &'a Csr<T>,
        node: usize,
    ) -> impl Iterator<Item = (Ordinal, T)> + 'a {
        let mut strong = self.neighbours(node).iter().peekable();
        couplings(a, self.unknowns, node).filter(move |(other, _)| strong.next_if_eq(&other).is_some())
    }
}

/// The other nodes of a node's rows, ascending, each with the largest magnitude between the two.
fn couplings<T: Real>(a: &Csr<T>, unknowns: usize, node: usize) -> Couplings<'_, T> {
    let (begin, end) = (a.row_ptr()[node * unknowns] as usize, a.row_ptr()[(node + 1) * unknowns] as usize);
    let rows = match unknowns {
        1 => Rows::One(&a.col_idx()[begin..end], &a.values()[begin..end]),
        _ => Rows::Several((node * unknowns..(node + 1) * unknowns).map(|row| a.row(row)).collect()),
    };
    Couplings { rows, unknowns, node }
}

/// The rows of a node that are still to be read.
enum Rows<'a, T> {
    One(&'a [Ordinal], &'a [T]),
    Several(Vec<(&'a [Ordinal], &'a [T])>),
}

/// See [`couplings`].
struct Couplings<'a, T> {
    rows: Rows<'a, T>,
    unknowns: usize,
    node: usize,
}

impl<T: Real> Iterator for Couplings<'_, T> {
    type Item = (Ordinal, T);
    fn next(&mut self) -> Option<(Ordinal, T)> {
        loop {
            let (other, weight) = match &mut self.rows {
                Rows::One(cols, values) => {
                    let ((&first, cols_left), (value, values_left)) = (cols.split_first()?, values.split_first()?);
                    (*cols, *values) = (cols_left, values_left);
                    (first, value.abs())
                }
                Rows::Several(rows) => {
                    let of = |j: Ordinal| j as usize / self.unknowns;
                    let other = rows.iter().filter_map(|(cols, _)| cols.first()).map(|&j| of(j)).min()?;
                    let mut weight = T::zero();
                    for (cols, values) in rows {
                        let count = cols.iter().take_while(|&&j| of(j) == other).count();
                        weight = values[..count].iter().fold(weight, |most, v| most.max(v.abs()));
                        (*cols, *values) = (&cols[count..], &values[count..]);
                    }
                    (other as Ordinal, weight)
                }
            };
            if other as usize != self.node {
                return Some((other, weight));
            }
        }
    }
}
