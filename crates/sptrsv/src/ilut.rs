//! ILUT: A ~ L U that keeps only large fill.
//!
//! The threshold phase eliminates once with A's values and decides by magnitude which entries stay. The numeric phase
//! is that of [`crate::Iluk`] on the chosen pattern, any number of times.
//!
//! Per row i, with norm_i = max_j |a_ij| (as in SuperLU and SciPy; exact in any arithmetic):
//! - A multiplier l_ik is dropped before it is used if |l_ik u_kk| < drop norm_i. An entry of U is dropped if |u_ij| <
//!   drop norm_i.
//! - Of the rest, at most ceil(fill nnz_i / 2) entries stay in L, and as many in U besides the diagonal, where nnz_i is
//!   the number of entries of A's row. The largest |l_ik u_kk| and |u_ij| stay; between equals, the lower column. So L
//!   and U have at most about fill nnz(A) entries, as with SciPy's `fill_factor`.
//! - The row is then computed again on the entries that stay. Later rows use these values, so the choice is made for
//!   the final factors.
//!
//! No scaling of rows is needed: multiplying a row by a number changes no choice.
//! The diagonal entry always stays, even if A stores none. While the pattern is chosen, a pivot that is zero or tiny is
//! replaced by max(drop, 1/100) norm_i. [`Factor::numeric`] refuses such a pivot, as [`crate::Iluk`] does;
//! [`Factor::mended`] replaces it in the same way.
//!
//! [`Ilut::pivoted`] (ILUTP) also permutes columns: row i takes the column of its largest entry as pivot if pivot max_j
//! |w_j| > |w_i|.
//!
//! Order: that of [`crate::factor`]. New values on the old pattern give other factors than a new threshold phase would.
//! Cost: the threshold phase does one elimination with all fill and one without, and uses a heap for the columns of L:
//! O(log) per entry.
//! Reference: Saad 1994, ILUT: a dual threshold incomplete LU factorization; Saad, Iterative Methods for Sparse Linear
//! Systems, 2003, sections 10.4.1 to 10.4.4.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use spandrel_formats::{Csr, Ordinal, Permutation, Real};

use crate::factor::{Filled, Slots, eliminate_row, judge, replaced, with_fma};
use crate::triangle::square;
use crate::{Error, Factor, Factors, Pattern, Result};

/// The least share of a row's largest magnitude that replaces a pivot. A larger one keeps L^-1 and U^-1 small; a
/// smaller one is nearer to A.
const STAND_IN: f64 = 1e-2;

/// Parameters of [`Ilut`]: what it keeps, and when [`Ilut::pivoted`] permutes. The defaults of `drop` and `fill` are
/// those of SciPy's `spilu`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs)] // made by struct update
pub struct IlutOptions {
    /// Entries below this times the largest magnitude of A's row are dropped. Finite and at least 0; 0 drops nothing.
    /// Default: 1e-4.
    pub drop: f64,
    /// Maximum number of entries of L and U together per entry of A, in each row. At least 1; infinity keeps everything
    /// that is not dropped. Default: 10.
    pub fill: f64,
    /// How much smaller than the largest entry a diagonal entry may be and still be the pivot, from 0 to 1. 0 never
    /// permutes; 1 always takes the largest. Only [`Ilut::pivoted`] reads it. Default: 0.1.
    pub pivot: f64,
}

impl Default for IlutOptions {
    fn default() -> Self {
        Self { drop: 1e-4, fill: 10.0, pivot: 0.1 }
    }
}

impl IlutOptions {
    /// Checks that all parameters are in range.
    ///
    /// # Errors
    /// [`Error::Threshold`].
    pub fn check(&self) -> Result<()> {
        let wrong = |what, found, range| Err(Error::Threshold { what, found, range });
        match self {
            Self { drop, .. } if !(*drop >= 0.0 && drop.is_finite()) => {
                wrong("drop", *drop, "a finite number, 0 or more")
            }
            Self { fill, .. } if fill.is_nan() || *fill < 1.0 => wrong("fill", *fill, "1 or more"),
            Self { pivot, .. } if !(0.0..=1.0).contains(pivot) => wrong("pivot", *pivot, "between 0 and 1"),
            _ => Ok(()),
        }
    }
}

/// ILUT on one pattern, chosen for one set of values. See the module's head.
#[derive(Clone, Debug)]
pub struct Ilut<T> {
    filled: Filled,
    stand_in: T,
}

impl<T: Real> Ilut<T> {
    /// Runs the threshold phase.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Threshold`] for options out of range; an error if there are more entries than
    /// fit.
    pub fn new(a: &Csr<T>, options: IlutOptions) -> Result<Self> {
        let Made { lower, upper, .. } = chosen(a, &options, false)?;
        Ok(Self { filled: Filled { a: Pattern::of(a), lower, upper }, stand_in: stand_in(&options) })
    }

    /// ILUTP: runs the threshold phase with column pivoting. Returns Q^T as a permutation, and the factorisation of A
    /// Q.
    ///
    /// Column `new` of A Q is column `perm[new]` of A ([`Permutation::permute_columns`]). To solve A x = b, solve (A Q)
    /// y = b and set x = Q y ([`Permutation::apply_inverse_to`]).
    ///
    /// ```
    /// use spandrel_formats::Csr;
    /// use spandrel_sptrsv::{Factor, Ilut, IlutOptions};
    ///
    /// // No diagonal at all.
    /// let a = Csr::from_triplets(2, 2, [(0, 1, 2.0), (1, 0, 4.0)])?;
    /// let (q, ilut) = Ilut::pivoted(&a, IlutOptions::default())?;
    /// let aq = q.permute_columns(&a)?;
    /// assert_eq!(ilut.numeric(aq.values())?.upper, [2.0, 4.0]);
    /// # Ok::<(), spandrel_sptrsv::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Ilut::new`].
    pub fn pivoted(a: &Csr<T>, options: IlutOptions) -> Result<(Permutation, Self)> {
        let Made { perm, lower, upper, .. } = chosen(a, &options, true)?;
        let by = Permutation::new(perm)?;
        let a = Pattern::of(&by.permute_columns(a)?);
        Ok((by, Self { filled: Filled { a, lower, upper }, stand_in: stand_in(&options) }))
    }

    /// The pattern of A, or of A Q for [`Ilut::pivoted`].
    pub fn given(&self) -> &Pattern {
        &self.filled.a
    }
}

impl<T: Real> Factor for Ilut<T> {
    type Value = T;
    const NAME: &'static str = "ilut";

    /// The threshold phase with the default [`IlutOptions`].
    fn symbolic(a: &Csr<T>) -> Result<Self> {
        Self::new(a, IlutOptions::default())
    }
    fn numeric(&self, values: &[T]) -> Result<Factors<T>> {
        self.filled.numeric(values, None)
    }
    fn mended(&self, values: &[T]) -> Option<Result<Factors<T>>> {
        Some(self.filled.numeric(values, Some(self.stand_in)))
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

/// The share of a row's largest magnitude that replaces a pivot which cannot be used.
fn stand_in<T: Real>(options: &IlutOptions) -> T {
    T::from_f64(options.drop.max(STAND_IN))
}

/// The result of the threshold phase: Q^T and the factors of A Q. The values equal those of the numeric phase unless a
/// pivot was replaced.
struct Made<T> {
    perm: Vec<Ordinal>,
    lower: Pattern,
    upper: Pattern,
    #[allow(dead_code)] // read by the tests
    values: [Vec<T>; 2],
}

fn chosen<T: Real>(a: &Csr<T>, options: &IlutOptions, pivoting: bool) -> Result<Made<T>> {
    square(a)?;
    options.check()?;
    let mut made = threshold(a, options, pivoting)?;
    if pivoting {
        renumber(&mut made)?;
    }
    Ok(made)
}

/// Renumbers the columns of U: by their position among the pivots instead of their number in A.
fn renumber<T: Real>(made: &mut Made<T>) -> Result<()> {
    let mut place = vec![0 as Ordinal; made.perm.len()];
    made.perm.iter().enumerate().for_each(|(new, &old)| place[old as usize] = new as Ordinal);
    let [_, u] = &mut made.values;
    let mut upper = Pattern::with_capacity(made.perm.len(), u.len());
    let mut row: Vec<(Ordinal, T)> = Vec::new();
    for i in 0..made.perm.len() {
        let range = made.upper.start(i)..made.upper.start(i + 1);
        row.clear();
        row.extend(made.upper.row(i).iter().map(|&j| place[j as usize]).zip(u[range.clone()].iter().copied()));
        row.sort_unstable_by_key(|&(new, _)| new);
        upper.push(row.iter().map(|&(new, _)| new))?;
        u[range].iter_mut().zip(&row).for_each(|(to, &(_, value))| *to = value);
    }
    made.upper = upper;
    Ok(())
}

/// Orders by descending size, then by ascending column. A NaN, which the numeric phase will refuse, comes first.
fn by_size<T: Real>(one: &(Ordinal, T), other: &(Ordinal, T)) -> Ordering {
    other.1.as_f64().total_cmp(&one.1.as_f64()).then(one.0.cmp(&other.0))
}

/// Keeps the `most` largest entries and sorts them by column.
fn keep<T: Real>(entries: &mut Vec<(Ordinal, T)>, most: usize) {
    if entries.len() > most {
        entries.select_nth_unstable_by(most, by_size);
        entries.truncate(most);
    }
    entries.sort_unstable_by_key(|&(at, _)| at);
}

with_fma! {
    /// The threshold phase. Columns of L are numbered as pivots, and those of U as in A.
    fn threshold<T: Real>(a: &Csr<T>, options: &IlutOptions, pivoting: bool) -> Result<Made<T>> {
        let n = a.nrows();
        let (drop, pivot) = (T::from_f64(options.drop), T::from_f64(options.pivot));
        let (mut lower, mut upper) = (Pattern::with_capacity(n, a.nnz()), Pattern::with_capacity(n, a.nnz()));
        let (mut l, mut u): (Vec<T>, Vec<T>) = (Vec::with_capacity(a.nnz()), Vec::with_capacity(a.nnz()));
        // `perm[new] = old` and `place[old] = new`: the pivots before the current row, then the columns that are still
        // free.
        let mut perm: Vec<Ordinal> = (0..n as Ordinal).collect();
        let mut place = perm.clone();
        let (mut w, mut held, mut slots) = (vec![T::zero(); n], vec![false; n], Slots::new(n));
        let mut todo: BinaryHeap<Reverse<Ordinal>> = BinaryHeap::new();
        let (mut left, mut right): (Vec<(Ordinal, T)>, Vec<(Ordinal, T)>) = (Vec::new(), Vec::new());
        let (mut free, mut before, mut cols, mut row) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for i in 0..n {
            let (given_cols, given) = a.row(i);
            let norm = given.iter().fold(T::zero(), |most, v| most.max(v.abs()));
            let least = drop * norm;
            for (&j, &v) in given_cols.iter().zip(given) {
                (w[j as usize], held[j as usize]) = (v, true);
                if (place[j as usize] as usize) < i { todo.push(Reverse(place[j as usize])) } else { free.push(j) }
            }
            // Eliminates with every multiplier that is not small, and keeps all fill for now.
            while let Some(Reverse(k)) = todo.pop() {
                let j = perm[k as usize] as usize;
                held[j] = false;
                if w[j].abs() < least {
                    continue;
                }
                left.push((k, w[j].abs()));
                let (begin, end) = (upper.start(k as usize), upper.start(k as usize + 1));
                let factor = w[j] / u[begin];
                for (&c, &term) in upper.col_idx()[begin + 1..end].iter().zip(&u[begin + 1..end]) {
                    let to = c as usize;
                    if !held[to] {
                        (w[to], held[to]) = (T::zero(), true);
                        if (place[to] as usize) < i { todo.push(Reverse(place[to])) } else { free.push(c) }
                    }
                    w[to] = (-factor).mul_add(term, w[to]);
                }
            }
            if pivoting {
                let own = perm[i];
                let size = |j: Ordinal| if held[j as usize] { w[j as usize].abs() } else { T::zero() };
                let largest = free.iter().map(|&j| (j, size(j))).min_by(by_size);
                if let Some((other, _)) = largest.filter(|&(_, most)| pivot * most > size(own)) {
                    let at = place[other as usize] as usize;
                    perm.swap(i, at);
                    (place[own as usize], place[other as usize]) = (at as Ordinal, i as Ordinal);
                }
            }
            let own = perm[i];
            for j in free.drain(..) {
                held[j as usize] = false;
                let small = w[j as usize].abs() < least;
                if j != own && !small {
                    right.push((j, w[j as usize].abs()));
                }
            }
            // The cast saturates if this is infinite.
            let most = (0.5 * options.fill * given.len() as f64).ceil() as usize;
            keep(&mut left, most);
            keep(&mut right, most);

            before.clear();
            before.extend(left.drain(..).map(|(k, _)| k));
            cols.clear();
            cols.extend(before.iter().map(|&k| perm[k as usize]));
            cols.push(own);
            cols.extend(right.drain(..).map(|(j, _)| j));
            row.clear();
            row.resize(cols.len(), T::zero());
            slots.set(&cols, 0);
            for (&j, &v) in given_cols.iter().zip(given) {
                if let Some(at) = slots.get(j) {
                    row[at] = v;
                }
            }
            eliminate_row(&before, &mut row, &slots, &upper, &u);
            slots.clear(&cols);
            let (of_l, of_u) = row.split_at_mut(before.len());
            if judge(i, given, of_l, of_u).is_err() {
                of_u[0] = replaced(of_u[0], given, stand_in(options));
            }
            lower.push(before.iter().copied())?;
            upper.push(cols[before.len()..].iter().copied())?;
            l.extend_from_slice(of_l);
            u.extend_from_slice(of_u);
        }
        Ok(Made { perm, lower, upper, values: [l, u] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn the_threshold_phase_meets_the_values_of_the_numeric_one() {
        let a = generate::csr::<f64>("convdiff2d:15,peclet=50").expect("a matrix");
        // Each row trades places with its neighbour, so that the large entries are beside the diagonal.
        let turned = Permutation::new((1..225).chain([0]).collect()).and_then(|p| p.permute_rows(&a)).expect("square");
        for drop in [0.0, 1e-3, 1e-1] {
            let options = IlutOptions { drop, fill: 3.0, pivot: 1.0 };
            let [l, u] = chosen(&a, &options, false).expect("square").values;
            let made = Ilut::new(&a, options).and_then(|ilut| ilut.numeric(a.values())).expect("dominant");
            assert_eq!((made.lower, made.upper), (l, u), "{drop}");
            let Made { perm, values: [l, u], .. } = chosen(&turned, &options, true).expect("square");
            let (q, ilut) = Ilut::pivoted(&turned, options).expect("square");
            assert!(!q.is_identity() && q.perm() == perm);
            let made = ilut.numeric(q.permute_columns(&turned).expect("square").values()).expect("pivots");
            assert_eq!((made.lower, made.upper), (l, u), "{drop}");
        }
    }
}
