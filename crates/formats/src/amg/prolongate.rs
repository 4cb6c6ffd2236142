//! The prolongation of smoothed aggregation: near-null-space vectors cut into aggregates, made orthonormal there, and
//! smoothed once.
//!
//! [`Tentative`] T has one block row per node and one block column per aggregate: the part of the near-null-space
//! vectors that lies on the aggregate, orthonormalised by modified Gram-Schmidt in the order of the rows. So T times
//! the coarse vectors is the near-null space again.
//!
//! [`smoothed`] returns P = (I - omega E^-1 A_f) T. A_f is A without the weak couplings. Their entries are added to the
//! diagonal block of their node, so that A_f maps constants as A does. E is the diagonal of A_f, or half the sum of all
//! magnitudes of the row if that is larger. So no eigenvalue of E^-1 A_f exceeds 2 in magnitude (Gershgorin), and none
//! has to be estimated: omega is [`OMEGA`].
//!
//! Cost: T reads the vectors once; P reads the entries of A once.

use std::ops::Range;

use rayon::prelude::*;

use super::{Aggregates, CHUNK, MOST_UNKNOWNS, Strength, UNASSIGNED};
use crate::csr::pieces;
use crate::fused::fused;
use crate::index::{Offset, Ordinal};
use crate::spgemm::once::{Places, joined};
use crate::team::{Pool, RayonTeam, Rooms, Team};
use crate::{Csr, Error, Real, Result};

/// The step of the smoothing: 1.6 over the bound 2.
///
/// With t an eigenvalue over the bound, Vanek's 4/3 minimises the largest t (1 - u t)^2 over u. If the polynomial q of
/// the smoother is counted, the u that minimises the largest t (1 - u t)^2 q(t)^2 is 1.52 for degree 2 and 1.61 for
/// degree 4. Steps of 1.53 and 1.73 need up to a fifth fewer iterations than 4/3 (`record/cpu-multigrid.txt`).
pub const OMEGA: f64 = 0.8;

/// The tentative prolongation: the near-null-space vectors on each aggregate, made orthonormal there. See the module's
/// head.
#[derive(Clone, Debug)]
pub struct Tentative<T> {
    /// `vectors` values per row of the matrix.
    rows: Vec<T>,
    vectors: usize,
    coarse: Vec<T>,
    dropped: Vec<usize>,
}

impl<T: Real> Tentative<T> {
    /// Cuts near-null-space vectors into aggregates. `near_null` holds `vectors` columns one after the other, each with
    /// one element per row of the matrix; nodes have `unknowns` rows.
    ///
    /// A column that depends linearly on earlier ones on an aggregate is dropped there: its coarse unknown has no entry
    /// in T.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `vectors` whole columns, at least one.
    pub fn of(aggregates: &Aggregates, unknowns: usize, near_null: &[T], vectors: usize) -> Result<Self> {
        let n = aggregates.assignment().len() * unknowns;
        if vectors == 0 || near_null.len() != n * vectors {
            let (found, expected) = (near_null.len(), n * vectors.max(1));
            return Err(Error::Shape { op: "aggregation", what: "the near-null space", found, expected });
        }
        // Rows by aggregate, in ascending order.
        let count = aggregates.count();
        let mut ends = vec![0usize; count + 1];
        let assigned = || aggregates.assignment().iter().enumerate().filter(|(_, of)| **of != UNASSIGNED);
        assigned().for_each(|(_, &of)| ends[of as usize + 1] += unknowns);
        (0..count).for_each(|aggregate| ends[aggregate + 1] += ends[aggregate]);
        let mut members: Vec<Ordinal> = vec![0; ends[count]];
        let mut cursors = ends.clone();
        for (node, &of) in assigned() {
            let cursor = &mut cursors[of as usize];
            for unknown in 0..unknowns {
                members[*cursor] = (node * unknowns + unknown) as Ordinal;
                *cursor += 1;
            }
        }
        let orthonormal = |aggregate: usize| {
            let rows = &members[ends[aggregate]..ends[aggregate + 1]];
            let column = |c: usize| rows.iter().map(move |&row| near_null[c * n + row as usize]);
            gram_schmidt((0..vectors).map(|c| column(c).collect()).collect())
        };
        let blocks: Vec<_> = (0..count).into_par_iter().with_min_len(CHUNK / 16).map(orthonormal).collect();
        let mut rows = vec![T::zero(); n * vectors];
        let size = count * vectors;
        let mut coarse = vec![T::zero(); size * vectors];
        let mut dropped = Vec::new();
        for (aggregate, (columns, factors)) in blocks.into_iter().enumerate() {
            for (c, column) in columns.iter().enumerate() {
                for (&row, &value) in members[ends[aggregate]..ends[aggregate + 1]].iter().zip(column) {
                    rows[row as usize * vectors + c] = value;
                }
                if factors[c * vectors + c].is_zero() {
                    dropped.push(aggregate * vectors + c);
                }
                // Column c of the vectors is a sum of the columns of Q up to c with these factors.
                for k in 0..vectors {
                    coarse[c * size + aggregate * vectors + k] = factors[k * vectors + c];
                }
            }
        }
        Ok(Self { rows, vectors, coarse, dropped })
    }

    /// The near-null-space vectors of the coarse matrix, column by column: one element per coarse unknown.
    pub fn coarse(&self) -> &[T] {
        &self.coarse
    }

    /// The coarse unknowns without an entry in T, ascending.
    pub fn dropped(&self) -> &[usize] {
        &self.dropped
    }

    /// The entries of T in the columns of each row's own aggregate, row by row.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Makes a prolongation for [`smoothed`] from the values that [`Tentative::rows`] returns. It has no coarse
    /// vectors.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `rows` holds whole rows of `vectors` entries, at least one.
    pub fn from_rows(rows: Vec<T>, vectors: usize) -> Result<Self> {
        if vectors == 0 || !rows.len().is_multiple_of(vectors) {
            let expected = rows.len().next_multiple_of(vectors.max(1));
            return Err(Error::Shape { op: "aggregation", what: "the tentative rows", found: rows.len(), expected });
        }
        Ok(Self { rows, vectors, coarse: Vec::new(), dropped: Vec::new() })
    }

    pub(super) fn row(&self, i: usize) -> &[T] {
        &self.rows[i * self.vectors..(i + 1) * self.vectors]
    }
}

/// Returns orthonormal columns, and the triangle of factors (row by row) that reproduces the original columns. A
/// dependent column becomes zero.
fn gram_schmidt<T: Real>(mut columns: Vec<Vec<T>>) -> (Vec<Vec<T>>, Vec<T>) {
    let k = columns.len();
    let mut factors = vec![T::zero(); k * k];
    let dot = |x: &[T], y: &[T]| x.iter().zip(y).fold(T::zero(), |sum, (&x, &y)| sum + x * y);
    for c in 0..k {
        let (before, rest) = columns.split_at_mut(c);
        let column = &mut rest[0];
        let given = dot(column, column).sqrt();
        // Twice is enough for orthogonality to rounding (Giraud, Langou, Rozloznik 2005).
        for _ in 0..2 {
            for (b, basis) in before.iter().enumerate() {
                let factor = dot(basis, column);
                factors[b * k + c] += factor;
                column.iter_mut().zip(basis).for_each(|(v, &q)| *v -= factor * q);
            }
        }
        let left = dot(column, column).sqrt();
        // The norm that rounding leaves of a dependent column: each subtraction errs by one roundoff of the column per
        // row.
        let noise = T::from_f64(4.0 * (k * (column.len() + 2)) as f64 * T::UNIT_ROUNDOFF) * given;
        if left > noise {
            factors[c * k + c] = left;
            column.iter_mut().for_each(|v| *v /= left);
        } else {
            column.fill(T::zero());
        }
    }
    (columns, factors)
}

/// Smooths the tentative prolongation once: P = F T with F = I - omega E^-1 A_f. See the module's head.
///
/// F has the strong entries of A, and in each row one entry for every unknown of the row's own node. P has one row per
/// row of A and `vectors` columns per aggregate that the row of F reaches. The row of a node without an aggregate is
/// empty. Each entry of P is summed from +0 by `fma` over the row of F, in the order of the columns, as in products of
/// sparse matrices.
///
/// # Errors
/// [`Error::TooLarge`]; [`Error::OutOfMemory`].
pub fn smoothed<T: Real>(
    a: &Csr<T>,
    graph: &Strength,
    aggregates: &Aggregates,
    tentative: &Tentative<T>,
) -> Result<Csr<T>> {
    let (n, vectors) = (a.nrows(), tentative.vectors);
    let (found, rooms) = (Rooms::empty(n.div_ceil(CHUNK)), Pool::default());
    RayonTeam.run(n.div_ceil(CHUNK), &|chunk| {
        let rows = chunk * CHUNK..n.min((chunk + 1) * CHUNK);
        let smooth = |places: &mut _| Ok(smooth(a, graph, aggregates, tentative, rows, places));
        found.put(chunk, rooms.with(|| Places::new(aggregates.count()), smooth));
    });
    let chunks: Vec<Smoothed<T>> = found.into_all().collect::<Result<_>>()?;
    let sizes = chunks.iter().map(|chunk| (chunk.lengths.len(), chunk.values.len())).collect();
    joined(&RayonTeam, n, aggregates.count() * vectors, sizes, &|chunk, ends, cols, values| {
        let chunk = &chunks[chunk];
        let mut end = 0;
        for (place, &length) in ends.iter_mut().zip(&chunk.lengths) {
            end += length * vectors as Offset;
            *place = end;
        }
        for (block, &source) in cols.chunks_exact_mut(vectors).zip(&chunk.sources) {
            block.iter_mut().zip(source * vectors as Ordinal..).for_each(|(col, column)| *col = column);
        }
        values.copy_from_slice(&chunk.values);
    })
}

/// Computes the values of P again, for other values of A, in parallel and with the bits of [`smoothed`]. P must have
/// the pattern that [`smoothed`] gave it. This is not checked; with another pattern the values mean nothing.
///
/// # Errors
/// [`Error::Shape`] unless A and P have as many rows as the graph, with P unchanged; [`Error::OutOfMemory`], with P
/// partly computed.
pub fn smooth_again<T: Real>(
    a: &Csr<T>,
    graph: &Strength,
    aggregates: &Aggregates,
    tentative: &Tentative<T>,
    p: &mut Csr<T>,
) -> Result<()> {
    let n = graph.nodes() * graph.unknowns();
    for (what, found) in [("a column of A", a.nrows()), ("a column of P", p.nrows())] {
        if found != n {
            return Err(Error::Shape { op: "prolongation", what, found, expected: n });
        }
    }
    let chunks = n.div_ceil(CHUNK);
    let rows = |chunk: usize| chunk * CHUNK..n.min((chunk + 1) * CHUNK);
    let (row_ptr, _, values) = p.split_mut();
    let lengths = (0..chunks).map(|chunk| (row_ptr[rows(chunk).end] - row_ptr[rows(chunk).start]) as usize);
    let (to, done, rooms) = (Rooms::new(pieces(values, lengths)), Rooms::empty(chunks), Pool::default());
    RayonTeam.run(chunks, &|chunk| {
        let Some(to) = to.take(chunk) else { return };
        let smooth = |places: &mut _| {
            let made = smooth(a, graph, aggregates, tentative, rows(chunk), places);
            // Of another pattern there may be another number of values.
            to.iter_mut().zip(made.values).for_each(|(to, value)| *to = value);
            Ok(())
        };
        done.put(chunk, rooms.with(|| Places::new(aggregates.count()), smooth));
    });
    done.into_all().collect()
}

/// Some rows of P.
struct Smoothed<T> {
    /// The number of aggregates that each row interpolates from.
    lengths: Vec<Offset>,
    /// These aggregates, ascending in each row.
    sources: Vec<Ordinal>,
    /// A value per aggregate and vector.
    values: Vec<T>,
}

fused! {
    /// Forms some rows of F T. `places` has one place per aggregate.
    fn smooth<T: Real>(
        a: &Csr<T>, graph: &Strength, aggregates: &Aggregates, tentative: &Tentative<T>, rows: Range<usize>,
        places: &mut Places,
    ) -> Smoothed<T> {
        let (unknowns, vectors, of) = (graph.unknowns(), tentative.vectors, aggregates.assignment());
        let mut made =
            Smoothed { lengths: Vec::with_capacity(rows.len()), sources: Vec::new(), values: Vec::new() };
        let mut strong = Vec::new();
        // The aggregates of the row in the order in which they occur, each with the number of its block of sums.
        let (mut found, mut sums): (Vec<(Ordinal, Ordinal)>, Vec<T>) = (Vec::new(), Vec::new());
        for row in rows {
            let node = node_of(row, unknowns);
            found.clear();
            sums.clear();
            if of[node] != UNASSIGNED {
                let filter = Filter::of(a, graph, row, &mut strong);
                let mut add = |j: usize, node: usize, factor: T| {
                    // In a matrix that is not symmetric a node may be coupled to one that is coupled to none.
                    if of[node] == UNASSIGNED {
                        return;
                    }
                    let at = places.of(of[node], found.len());
                    if at == found.len() {
                        found.push((of[node], at as Ordinal));
                        sums.resize(sums.len() + vectors, T::zero());
                    }
                    let to = sums[at * vectors..].iter_mut();
                    to.zip(tentative.row(j)).for_each(|(v, &t)| *v = factor.mul_add(t, *v));
                };
                let own = node * unknowns..(node + 1) * unknowns;
                let before = strong.partition_point(|&(j, _, _)| (j as usize) < own.start);
                for &(j, other, entry) in &strong[..before] {
                    add(j as usize, other as usize, filter.scale * entry);
                }
                for j in own {
                    add(j, node, filter.own(j));
                }
                for &(j, other, entry) in &strong[before..] {
                    add(j as usize, other as usize, filter.scale * entry);
                }
                places.end_row(found.len());
                found.sort_unstable();
            }
            made.lengths.push(found.len() as Offset);
            for &(source, block) in &found {
                made.sources.push(source);
                made.values.extend_from_slice(&sums[block as usize * vectors..][..vectors]);
            }
        }
        made
    }
}

/// The parts of a row of F besides the strong entries of A.
struct Filter<T> {
    row: usize,
    /// -omega over the row's entry of E; 0 if that is 0.
    scale: T,
    /// Per unknown of the row's node: the entry of A there plus the row's weak entries of the same unknown.
    inner: [T; MOST_UNKNOWNS],
    unknowns: usize,
}

impl<T: Real> Filter<T> {
    /// Also collects the strong entries of the row: column, node, and value.
    #[inline(always)]
    fn of(a: &Csr<T>, graph: &Strength, row: usize, strong: &mut Vec<(Ordinal, Ordinal, T)>) -> Self {
        let unknowns = graph.unknowns();
        let (node, (mut inner, mut beside)) = (node_of(row, unknowns), ([T::zero(); MOST_UNKNOWNS], T::zero()));
        let neighbours = graph.neighbours(node);
        let (mut at, mut other) = (0, 0);
        strong.clear();
        let (columns, entries) = a.row(row);
        for (&j, &entry) in columns.iter().zip(entries) {
            if j as usize >= (other + 1) * unknowns {
                other = node_of(j as usize, unknowns);
            }
            while neighbours.get(at).is_some_and(|&s| (s as usize) < other) {
                at += 1;
            }
            if other != node && neighbours.get(at) == Some(&(other as Ordinal)) {
                beside += entry.abs();
                strong.push((j, other as Ordinal, entry));
            } else {
                inner[j as usize - other * unknowns] += entry;
            }
        }
        let unknown = row - node * unknowns;
        let diagonal = inner[unknown];
        let others = inner[..unknowns].iter().enumerate().filter(|&(k, _)| k != unknown);
        others.for_each(|(_, entry)| beside += entry.abs());
        let half = T::from_f64(0.5) * (diagonal.abs() + beside);
        let scale = -T::from_f64(OMEGA) / diagonal.max(half);
        let scale = if scale.is_finite() { scale } else { T::zero() };
        Self { row, scale, inner, unknowns }
    }

    /// The entry of F in a column of the row's own node.
    fn own(&self, column: usize) -> T {
        let identity = if column == self.row { T::one() } else { T::zero() };
        self.scale.mul_add(self.inner[column - node_of(column, self.unknowns) * self.unknowns], identity)
    }
}

/// The node of a row or column. A division takes longer than everything else that is done with an entry.
#[inline(always)]
fn node_of(row: usize, unknowns: usize) -> usize {
    if unknowns == 1 { row } else { row / unknowns }
}
