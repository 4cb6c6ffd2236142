//! Maximum product matching: a row permutation that makes the product of the magnitudes on the diagonal as large as
//! possible. It also gives a scaling by powers of two, after which no entry exceeds 1 and the diagonal is near 1.
//!
//! The problem is an assignment of rows to columns with the costs c_ij = -log2 |a_ij|, solved by shortest augmenting
//! paths. Dual variables u and v with c_ij >= u_i + v_j, and equality for matched entries, prove the optimum. They are
//! the logarithms of the scaling factors.
//!
//! Costs are integers: logarithms with 20 binary places, rounded up, computed from the bits by integer arithmetic. So
//! the matching is the same on every machine. Its product is at least 2^(-n 2^-20) times the largest one. Of several
//! equal ways the one of the lowest numbers is taken.
//!
//! Cost: the entries at no reduced cost match nearly all rows of most matrices, in O(nnz sqrt n) at worst. Each row
//! that is left takes one shortest path, O(nnz log n) at worst; a search ends at the first free column that is nearest.
//! 4 bytes per entry and about 60 per row.
//! References: Hopcroft & Karp 1973, An n^5/2 algorithm for maximum matchings in bipartite graphs; Duff & Koster 2001,
//! On algorithms for permuting large entries to the diagonal of a sparse matrix (MC64, job 5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use crate::exponent::Parts;
use crate::{Csr, Equilibration, Error, Offset, Ordinal, Permutation, Real, Result};

/// Binary places of a logarithm.
const PLACES: u32 = 20;
/// The logarithm of zero.
const OF_ZERO: i32 = i32::MIN;
/// No row or column.
const NONE: Ordinal = Ordinal::MAX;
/// Rows and columns that a message names.
const NAMED: usize = 5;

/// What [`maximum_product`] finds.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums)] // there is no third case
pub enum Matched {
    /// Every row has a column of its own.
    Whole(Matching),
    /// There is no such assignment.
    Deficient(Deficient),
}

/// An assignment of all rows to columns with the largest product.
#[derive(Clone, Debug, PartialEq)]
pub struct Matching {
    /// P: row j of P A is the row that was assigned to column j, so P A has the matched entries on its diagonal.
    pub rows: Permutation,
    /// Factors for the rows and columns of A, not of P A: every scaled entry is at most 1 in magnitude, matched ones
    /// are above 1/4.
    pub scaling: Equilibration,
    /// log2 of the product of the matched magnitudes, at most n 2^-20 too large.
    pub log2_product: f64,
}

/// A structurally singular matrix: no values in the places of its nonzeros make it invertible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the matrix is structurally singular: {rank} of {} rows can be assigned to columns of their own, {} and {} are left over; remove them, or add entries there",
    .rank + .rows.len(), listed("row", .rows), listed("column", .cols)
)]
pub struct Deficient {
    /// The structural rank: the largest number of rows that can be matched.
    pub rank: usize,
    /// Rows without a column, ascending, in one of the largest matchings.
    pub rows: Vec<usize>,
    /// Columns without a row, ascending, in the same matching.
    pub cols: Vec<usize>,
}

fn listed(what: &str, all: &[usize]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    let plural = if all.len() == 1 { "" } else { "s" };
    match all.len().checked_sub(NAMED + 1) {
        None => format!("{what}{plural} {}", named.join(", ")),
        Some(rest) => format!("{what}{plural} {} and {} more", named.join(", "), rest + 1),
    }
}

/// log2 |v| in units of 2^-20, rounded up; exact for powers of two. Squaring a fraction moves one more bit of its
/// logarithm before the point.
fn log2(parts: Parts) -> i32 {
    // 1 <= f < 2 with 63 binary places.
    let (mut log, mut f) = (parts.exponent - 1, parts.fraction);
    for _ in 0..PLACES {
        let square = (u128::from(f) * u128::from(f)) >> 63;
        let two = (square >> 64) != 0;
        f = (square >> u32::from(two)) as u64;
        log = 2 * log + i32::from(two);
    }
    log + i32::from(parts.fraction != 1 << 63)
}

/// Assigns every row of a square matrix to a column of its own so that the product of the magnitudes is largest. See
/// the module's head.
///
/// Stored zeros count as absent.
///
/// ```
/// use spandrel_formats::{Csr, Matched, maximum_product};
///
/// let a = Csr::from_triplets(2, 2, [(0, 0, 1e-9), (0, 1, 2.0), (1, 0, 3.0), (1, 1, 1.0)])?;
/// let Matched::Whole(found) = maximum_product(&a)? else { panic!("it has full structural rank") };
/// assert_eq!(found.rows.permute_rows(&a)?.diagonal(), [3.0, 2.0]);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] unless the matrix is square; [`Error::Invalid`] with the place of the first infinity or NaN.
pub fn maximum_product<T: Real>(a: &Csr<T>) -> Result<Matched> {
    let n = a.nrows();
    if a.ncols() != n {
        return Err(Error::Shape { op: "matching", what: "a row", found: a.ncols(), expected: n });
    }
    crate::equilibrate::finite("matching", a)?;
    let logs: Vec<i32> = a.values().par_iter().map(|&v| Parts::of(v).map_or(OF_ZERO, log2)).collect();
    let mut search = Search::new(Graph { a, logs: &logs });
    search.begin();
    search.augment_at_no_cost();
    for row in 0..n {
        if search.col_of[row] == NONE {
            search.shortest_path(row);
        }
    }
    search.finish()
}

/// The entries that may be matched, with their costs.
struct Graph<'a, T> {
    a: &'a Csr<T>,
    logs: &'a [i32],
}

impl<T: Real> Graph<'_, T> {
    /// Column and cost of each entry of a row.
    #[inline]
    fn row(&self, i: usize) -> impl Iterator<Item = (usize, i64)> + '_ {
        let range = self.a.row_ptr()[i] as usize..self.a.row_ptr()[i + 1] as usize;
        let entries = self.a.col_idx()[range.clone()].iter().zip(&self.logs[range]);
        entries.filter(|&(_, &log)| log != OF_ZERO).map(|(&j, &log)| (j as usize, -i64::from(log)))
    }
    /// Returns the first column at a reduced cost of 0 that `wanted` accepts, searching row `i` from the stored entry
    /// `at` on. Leaves `at` behind that entry.
    #[inline]
    fn tight(
        &self,
        i: usize,
        at: &mut Offset,
        u: &[i64],
        v: &[i64],
        mut wanted: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let end = self.a.row_ptr()[i + 1];
        while *at < end {
            let (j, log) = (self.a.col_idx()[*at as usize] as usize, self.logs[*at as usize]);
            *at += 1;
            if log != OF_ZERO && -i64::from(log) == u[i] + v[j] && wanted(j) {
                return Some(j);
            }
        }
        None
    }
}

/// A matching that grows, with its dual variables. A cost is below 2^32 in magnitude and a path has fewer than 2^31
/// rows, so no distance overflows.
struct Search<'a, T> {
    graph: Graph<'a, T>,
    row_of: Vec<Ordinal>,
    col_of: Vec<Ordinal>,
    u: Vec<i64>,
    v: Vec<i64>,
    /// For the current search: the least cost of a path to each column, and the row that it comes from. [`i64::MAX`]
    /// between searches.
    distance: Vec<i64>,
    from: Vec<Ordinal>,
    /// Columns from which no free one can be reached, because a failed search has visited them. No later search changes
    /// that.
    dead: Vec<bool>,
    heap: BinaryHeap<Reverse<(i64, Ordinal)>>,
    touched: Vec<Ordinal>,
}

/// For each row, the number of columns at no reduced cost between a free row and it, up to the nearest free column;
/// [`NONE`] beyond. `None` if no free column can be reached.
fn levels<T: Real>(
    graph: &Graph<'_, T>,
    u: &[i64],
    v: &[i64],
    row_of: &[Ordinal],
    col_of: &[Ordinal],
) -> Option<Vec<Ordinal>> {
    let mut level: Vec<Ordinal> = col_of.iter().map(|&j| if j == NONE { 0 } else { NONE }).collect();
    let mut queue: Vec<usize> = (0..u.len()).filter(|&i| level[i] == 0).collect();
    let mut next = Vec::new();
    let mut found = false;
    for depth in 1.. {
        for &i in &queue {
            for (j, _) in graph.row(i).filter(|&(j, cost)| cost == u[i] + v[j]) {
                match row_of[j] {
                    NONE => found = true,
                    row if level[row as usize] == NONE => {
                        level[row as usize] = depth;
                        next.push(row as usize);
                    }
                    _ => {}
                }
            }
        }
        if found || next.is_empty() {
            break;
        }
        queue.clear();
        std::mem::swap(&mut queue, &mut next);
    }
    found.then_some(level)
}

impl<'a, T: Real> Search<'a, T> {
    fn new(graph: Graph<'a, T>) -> Self {
        let n = graph.a.nrows();
        Self {
            graph,
            row_of: vec![NONE; n],
            col_of: vec![NONE; n],
            u: vec![0; n],
            v: vec![0; n],
            distance: vec![i64::MAX; n],
            from: vec![NONE; n],
            dead: vec![false; n],
            heap: BinaryHeap::new(),
            touched: Vec::new(),
        }
    }

    /// Chooses the largest u, then the largest v, then the largest u again. Rows with a free column at no cost take the
    /// first one.
    fn begin(&mut self) {
        let Self { graph, u, v, row_of, col_of, .. } = self;
        for (i, u) in u.iter_mut().enumerate() {
            *u = graph.row(i).map(|(_, cost)| cost).min().unwrap_or(0);
        }
        v.fill(i64::MAX);
        for (i, &u) in u.iter().enumerate() {
            graph.row(i).for_each(|(j, cost)| v[j] = v[j].min(cost - u));
        }
        v.iter_mut().filter(|v| **v == i64::MAX).for_each(|v| *v = 0);
        for (i, u) in u.iter_mut().enumerate() {
            *u = graph.row(i).map(|(j, cost)| cost - v[j]).min().unwrap_or(0);
            if let Some((j, _)) = graph.row(i).find(|&(j, cost)| cost == *u + v[j] && row_of[j] == NONE) {
                (row_of[j], col_of[i]) = (i as Ordinal, j as Ordinal);
            }
        }
    }

    /// Matches as many rows as possible at a reduced cost of 0 (Hopcroft & Karp 1973). Each phase finds how far each
    /// row is from a free one. It then changes the matching along shortest paths that share no row, until there are
    /// none.
    fn augment_at_no_cost(&mut self) {
        let Self { graph, u, v, row_of, col_of, .. } = self;
        let n = u.len();
        let begin = &graph.a.row_ptr()[..n];
        // A matched column stays matched, so places that were searched for a free column are not searched again.
        let mut ahead = begin.to_vec();
        let mut path: Vec<usize> = Vec::new();
        loop {
            let Some(mut level) = levels(graph, u, v, row_of, col_of) else { return };
            let mut deep = begin.to_vec();
            for first in 0..n {
                if col_of[first] != NONE {
                    continue;
                }
                path.push(first);
                while let Some(&i) = path.last() {
                    if let Some(free) = graph.tight(i, &mut ahead[i], u, v, |j| row_of[j] == NONE) {
                        // Each row of the path passes its column to the row before it.
                        let mut j = free as Ordinal;
                        while let Some(i) = path.pop() {
                            row_of[j as usize] = i as Ordinal;
                            j = std::mem::replace(&mut col_of[i], j);
                        }
                        continue;
                    }
                    let depth = path.len() as Ordinal;
                    match graph.tight(i, &mut deep[i], u, v, |j| level[row_of[j] as usize] == depth) {
                        Some(j) => {
                            let next = row_of[j] as usize;
                            // A row is visited at most once per phase.
                            level[next] = NONE;
                            path.push(next);
                        }
                        None => {
                            path.pop();
                        }
                    }
                }
            }
        }
    }

    /// Finds the cheapest alternating path from a row to a free column (Dijkstra on reduced costs, none of which is
    /// negative) and changes the matching along it. A row without such a path stays free.
    fn shortest_path(&mut self, first: usize) {
        let (mut row, mut here) = (first, 0);
        let mut best: Option<(i64, usize)> = None;
        let mut settled: Vec<Ordinal> = Vec::new();
        self.heap.clear();
        'search: loop {
            for (j, cost) in self.graph.row(row) {
                let to = here + cost - self.u[row] - self.v[j];
                if self.dead[j] || to >= self.distance[j] || best.is_some_and(|(least, _)| to >= least) {
                    continue;
                }
                self.from[j] = row as Ordinal;
                if self.row_of[j] == NONE {
                    best = Some((to, j));
                    // No column can be nearer than the nearest one so far.
                    if to == here {
                        break 'search;
                    }
                    continue;
                }
                if self.distance[j] == i64::MAX {
                    self.touched.push(j as Ordinal);
                }
                self.distance[j] = to;
                self.heap.push(Reverse((to, j as Ordinal)));
            }
            let next = loop {
                match self.heap.pop() {
                    // Skip a longer path to a column that a shorter path has reached.
                    Some(Reverse((to, j))) if to > self.distance[j as usize] => {}
                    Some(Reverse((to, j))) if best.is_none_or(|(least, _)| to < least) => break Some((to, j)),
                    _ => break None,
                }
            };
            let Some((to, j)) = next else { break };
            settled.push(j);
            (here, row) = (to, self.row_of[j as usize] as usize);
        }
        match best {
            Some((length, end)) => {
                self.u[first] += length;
                for &j in &settled {
                    let less = length - self.distance[j as usize];
                    self.v[j as usize] -= less;
                    self.u[self.row_of[j as usize] as usize] += less;
                }
                let mut j = end as Ordinal;
                while j != NONE {
                    let i = self.from[j as usize];
                    self.row_of[j as usize] = i;
                    j = std::mem::replace(&mut self.col_of[i as usize], j);
                }
            }
            None => settled.iter().for_each(|&j| self.dead[j as usize] = true),
        }
        self.touched.drain(..).for_each(|j| self.distance[j as usize] = i64::MAX);
    }

    fn finish(self) -> Result<Matched> {
        let free = |of: &[Ordinal]| -> Vec<usize> { (0..of.len()).filter(|&at| of[at] == NONE).collect() };
        let (rows, cols) = (free(&self.col_of), free(&self.row_of));
        if !rows.is_empty() {
            return Ok(Matched::Deficient(Deficient { rank: self.u.len() - rows.len(), rows, cols }));
        }
        // Rounded down, so that no entry exceeds 1.
        let limit = i64::from(i32::MAX / 2);
        let exponents = |duals: &[i64]| duals.iter().map(|&d| (d >> PLACES).clamp(-limit, limit) as i32).collect();
        let scaling = Equilibration::from_exponents(exponents(&self.u), exponents(&self.v));
        // The sum of the costs is that of the duals.
        let cost = self.u.iter().chain(&self.v).map(|&d| i128::from(d)).sum::<i128>();
        let log2_product = -cost as f64 / f64::from(1 << PLACES);
        Ok(Matched::Whole(Matching { rows: Permutation::new(self.row_of)?, scaling, log2_product }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The largest number of matched rows of all assignments, and of those the largest sum of `logs`.
    fn brute_force(entries: &[Vec<Option<f64>>]) -> (usize, f64) {
        fn best(entries: &[Vec<Option<f64>>], taken: u32) -> (usize, f64) {
            let Some((row, rest)) = entries.split_first() else { return (0, 0.0) };
            let mut most = best(rest, taken);
            for (j, log) in row.iter().enumerate() {
                if let Some(log) = log.filter(|_| taken & 1 << j == 0) {
                    let (count, sum) = best(rest, taken | 1 << j);
                    let found = (count + 1, sum + log);
                    if found.0 > most.0 || found.0 == most.0 && found.1 > most.1 {
                        most = found;
                    }
                }
            }
            most
        }
        best(entries, 0)
    }

    fn check(a: &Csr<f64>) {
        let n = a.nrows();
        let entry = |i: usize, j: usize| a.get(i, j).filter(|v| *v != 0.0).map(|v| v.abs().log2());
        let (rank, log) = brute_force(&(0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect::<Vec<_>>());
        match maximum_product(a).unwrap() {
            Matched::Whole(found) => {
                assert_eq!(rank, n, "{a:?}");
                // Each of n logarithms is rounded up by less than 2^-20, and that is what is maximised.
                let bound = n as f64 * 2f64.powi(-20) * 1.0001;
                let moved = found.rows.permute_rows(a).unwrap();
                let sum: f64 = moved.diagonal().iter().map(|v| v.abs().log2()).sum();
                assert!((log - sum).abs() <= bound && (found.log2_product - sum).abs() <= bound, "{log} {found:?}");
                let (scaled, lost) = found.scaling.apply(a).unwrap();
                assert!(lost.is_none() && scaled.values().iter().all(|v| v.abs() <= 1.0), "{scaled:?}");
                let matched = found.rows.permute_rows(&scaled).unwrap().diagonal();
                assert!(matched.iter().all(|v| v.abs() > 0.25), "{matched:?}");
            }
            Matched::Deficient(found) => {
                assert_eq!((found.rank, found.rows.len(), found.cols.len()), (rank, n - rank, n - rank), "{a:?}");
                assert!(rank < n && found.rows.is_sorted() && found.cols.is_sorted());
            }
        }
    }

    #[test]
    fn every_pattern_up_to_four_rows() {
        // Magnitudes that repeat, so that there are ties, and that do not.
        let value =
            |at: usize, kind: usize| [1.0, 3.0 + (at * at % 7) as f64, -(1.5f64.powi((at * 5 % 11) as i32 - 5))][kind];
        // Of the patterns of four rows every seventh, unless all tests are asked for.
        let is_whole = std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole");
        for n in 0..=4 {
            for pattern in (0u32..1 << (n * n)).step_by(if n == 4 && !is_whole { 7 } else { 1 }) {
                let places = (0..n * n).filter(|at| pattern & 1 << at != 0);
                let entries = places.map(|at| (at / n, at % n, value(at, pattern as usize % 3)));
                check(&Csr::from_triplets(n, n, entries.collect::<Vec<_>>()).unwrap());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn up_to_seven_rows(n in 1usize..8, entries in prop::collection::vec((0usize..7, 0usize..7, -6i32..6, 0.5f64..1.0), 0..40)) {
            let inside = entries.iter().filter(|e| e.0 < n && e.1 < n);
            let map: std::collections::BTreeMap<_, _> = inside.map(|&(i, j, e, v)| ((i, j), v * 2f64.powi(e))).collect();
            check(&Csr::from_triplets(n, n, map.into_iter().map(|((i, j), v)| (i, j, v))).unwrap());
        }

        #[test]
        fn a_hidden_diagonal_is_found(perm in (1usize..60).prop_flat_map(|n| Just((0..n as Ordinal).collect::<Vec<_>>()).prop_shuffle()), seed in any::<u64>()) {
            // Off it every entry is below 1, on it above: no other assignment has as large a product.
            let n = perm.len();
            let draw = |i: usize, j: usize| (seed ^ (i * 61 + j) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let rest = (0..4 * n).map(|k| (k % n, (k * k + draw(k, 0) as usize) % n)).filter(|&(i, j)| perm[j] as usize != i);
            let off: std::collections::BTreeSet<_> = rest.collect();
            let on = perm.iter().enumerate().map(|(j, &i)| (i as usize, j, 1e150 * (1.0 + draw(j, j) as f64)));
            let entries = on.chain(off.into_iter().map(|(i, j)| (i, j, 1e-150 / (1.0 + draw(i, j) as f64))));
            let a = Csr::from_triplets(n, n, entries.collect::<Vec<_>>()).unwrap();
            let Matched::Whole(found) = maximum_product(&a).unwrap() else { panic!("it has a whole diagonal") };
            prop_assert_eq!(found.rows.perm(), &perm[..]);
        }

        #[test]
        fn logarithms_are_rounded_up(bits in any::<u64>()) {
            let v = f64::from_bits(bits);
            prop_assume!(v.is_finite() && v != 0.0);
            let parts = Parts::of(v).unwrap();
            let found = f64::from(log2(parts)) / f64::from(1 << PLACES);
            // The f64 logarithm is of the fraction, so its own error is far below 2^-40.
            let wanted = f64::from(parts.exponent) + (parts.fraction as f64 * 2f64.powi(-64)).log2();
            let (low, high) = (-(2f64.powi(-40)), 2f64.powi(-20) + 2f64.powi(-40));
            prop_assert!((low..high).contains(&(found - wanted)), "{found} for {wanted}");
            let power = log2(Parts { fraction: 1 << 63, ..parts });
            prop_assert_eq!(power, (parts.exponent - 1) << PLACES);
        }
    }

    #[test]
    fn what_it_refuses_and_what_it_finds_singular() {
        let wide = Csr::<f64>::new(1, 2, vec![0, 0], vec![], vec![]).unwrap();
        let infinite = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 1, f64::INFINITY)]).unwrap();
        let mut messages: Vec<String> =
            [&wide, &infinite].map(|a| maximum_product(a).unwrap_err().to_string()).into_iter().collect();
        // Column 1 holds only a stored zero; and 9 rows have entries only in column 0.
        let hollow = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 1, 0.0)]).unwrap();
        let narrow = Csr::from_triplets(9, 9, (0..9).map(|i| (i, 0, 1.0))).unwrap();
        for a in [&hollow, &narrow] {
            let Matched::Deficient(found) = maximum_product(a).unwrap() else { panic!("it is singular") };
            assert_eq!(found.rank, 1);
            messages.push(found.to_string());
        }
        insta::assert_snapshot!(messages.join("\n"));
        let none = Csr::<f32>::new(0, 0, vec![0], vec![], vec![]).unwrap();
        assert!(matches!(maximum_product(&none).unwrap(), Matched::Whole(found) if found.rows.is_empty()));
    }
}
