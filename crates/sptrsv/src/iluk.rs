//! ILU(k): A ~ L U with fill up to a level.
//!
//! An entry of A has level 0. Eliminating with l_ip fills (i, j) with level lev_ip + lev_pj + 1; the least over all p
//! counts. Entries with a level above k are dropped.
//!
//! Order: that of [`crate::factor`]: l_ik = w_k / u_kk. With k = 0 the bits are those of [`crate::Ilu0`].
//! Cost: for each entry of L whose level is below k, the symbolic phase merges a row of U into an ordered list; it
//! takes about as long as the numeric phase. Its result is the pattern of the factors and of A, 4 bytes per entry. A
//! pivot is refused if it is zero or at most u max_j |a_ij|, where u is the unit roundoff.
//! Reference: Watts 1981, A conjugate gradient truncated direct method for the iterative solution of the reservoir
//! simulation pressure equation; Saad, Iterative Methods for Sparse Linear Systems, 2003, algorithm 10.6.

use std::marker::PhantomData;

use spandrel_formats::{Csr, Ordinal, Real};

use crate::factor::{Filled, around};
use crate::triangle::square;
use crate::{Error, Factor, Factors, Pattern, Result};

/// ILU(k) on one pattern. See the module's head.
#[derive(Clone, Debug)]
pub struct Iluk<T> {
    level: usize,
    filled: Filled,
    value: PhantomData<T>,
}

impl<T: Real> Iluk<T> {
    /// Runs the symbolic phase with fill up to `level`.
    ///
    /// # Errors
    /// As [`Factor::symbolic`].
    pub fn with_level(a: &Csr<T>, level: usize) -> Result<Self> {
        Self::with_limit(a, level, usize::MAX)
    }

    /// As [`Iluk::with_level`], for factors of at most `limit` entries together. It stops at the first row that exceeds
    /// the limit.
    ///
    /// # Errors
    /// As [`Factor::symbolic`]; [`Error::Fill`] with the first row after which there are more entries.
    pub fn with_limit(a: &Csr<T>, level: usize, limit: usize) -> Result<Self> {
        square(a)?;
        let n = a.row_ptr().len() - 1;
        // No level among n rows reaches n.
        let most = level.min(n) as Ordinal;
        let (mut lower, mut upper) =
            (Pattern::with_capacity(n, a.values().len()), Pattern::with_capacity(n, a.values().len()));
        let mut levels: Vec<Ordinal> = Vec::new();
        // The row as an ascending list: `next[j]` follows j, `next[n]` is the first column, and n ends the list.
        let (mut next, mut level_of) = (vec![0 as Ordinal; n + 1], vec![0 as Ordinal; n]);
        let end = n as Ordinal;
        let mut cols: Vec<Ordinal> = Vec::new();
        for i in 0..n {
            around(a, i)?;
            let mut last = n;
            for &j in a.row(i).0 {
                next[last] = j;
                level_of[j as usize] = 0;
                last = j as usize;
            }
            next[last] = end;
            let mut k = next[n] as usize;
            while k < i {
                let above = level_of[k];
                if above < most {
                    let (begin, stop) = (upper.start(k), upper.start(k + 1));
                    let mut at = k;
                    for (&j, &further) in upper.col_idx()[begin + 1..stop].iter().zip(&levels[begin + 1..stop]) {
                        let fill = above + further + 1;
                        if fill > most {
                            continue;
                        }
                        while next[at] < j {
                            at = next[at] as usize;
                        }
                        let to = j as usize;
                        if next[at] == j {
                            level_of[to] = level_of[to].min(fill);
                        } else {
                            (next[to], next[at], level_of[to]) = (next[at], j, fill);
                        }
                    }
                }
                k = next[k] as usize;
            }
            cols.clear();
            let mut j = next[n];
            while j != end {
                cols.push(j);
                j = next[j as usize];
            }
            let (before, rest) = cols.split_at(cols.partition_point(|&j| (j as usize) < i));
            lower.push(before.iter().copied())?;
            upper.push(rest.iter().copied())?;
            levels.extend(rest.iter().map(|&j| level_of[j as usize]));
            if lower.nnz() + upper.nnz() > limit {
                return Err(Error::Fill { row: i, level, limit });
            }
        }
        Ok(Self { level, filled: Filled { a: Pattern::of(a), lower, upper }, value: PhantomData })
    }

    /// The pattern of A.
    pub fn given(&self) -> &Pattern {
        &self.filled.a
    }
    /// The level k.
    pub fn level(&self) -> usize {
        self.level
    }
}

impl<T: Real> Factor for Iluk<T> {
    type Value = T;
    const NAME: &'static str = "iluk";

    /// The symbolic phase with k = 1.
    fn symbolic(a: &Csr<T>) -> Result<Self> {
        Self::with_level(a, 1)
    }
    fn numeric(&self, values: &[T]) -> Result<Factors<T>> {
        self.filled.numeric(values, None)
    }
    fn lower(&self) -> &Pattern {
        &self.filled.lower
    }
    fn upper(&self) -> Option<&Pattern> {
        Some(&self.filled.upper)
    }
    fn nnz_given(&self) -> usize {
        self.filled.a.nnz()
    }
}
