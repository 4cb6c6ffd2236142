//! Orderings that make a matrix cheaper: breadth-first (neighbours near each other), recursive bisection (ranges of
//! rows with few neighbours elsewhere), reverse Cuthill-McKee (narrow band) and approximate minimum degree (little
//! fill).
//!
//! They return a [`crate::Permutation`] for [`crate::Permutation::permute_symmetric`]. Values are not used.
//! `breadth_first` uses the pattern of A; the others use that of A + A^T, so the matrix may be nonsymmetric.
//!
//! Cost: `breadth_first` reads the pattern once; `rcm` takes O(nnz log of the degree) for each of the few searches per
//! connected part; `bisection` and `amd` as published.
//! Reference: George, Liu, Computer Solution of Large Sparse Positive Definite Systems, 1981 (reverse Cuthill-McKee,
//! pseudo-peripheral vertices); Karypis, Kumar, A fast and high quality multilevel scheme for partitioning irregular
//! graphs, 1998; Amestoy, Davis, Duff, An approximate minimum degree ordering algorithm, 1996.

use crate::padding::zeroed;
use crate::{Csr, Error, Ordinal, Permutation, Real, Result};

/// The cost of a row's vector elements in an iteration, counted in entries. Parts of a matrix are balanced by entries
/// and rows with this weight.
pub const ROW: u64 = 8;

fn square<T: Real>(op: &'static str, matrix: &Csr<T>) -> Result<usize> {
    if matrix.nrows() != matrix.ncols() {
        return Err(Error::Shape { op, what: "a row", found: matrix.ncols(), expected: matrix.nrows() });
    }
    Ok(matrix.nrows())
}

/// Breadth-first: numbers rows in the order in which a search from the first row reaches them, so that the entries of a
/// row are close together. If rows remain that it does not reach, the search starts again from the first of them. It
/// does not start from a row without an entry besides its diagonal; such rows come last if no search reaches them.
///
/// This is Cuthill-McKee without its sort by degree and its search for a row to begin with, which together take
/// several times as long.
///
/// # Errors
/// [`Error::Shape`] unless the matrix is square; [`Error::OutOfMemory`].
pub fn breadth_first<T: Real>(matrix: &Csr<T>) -> Result<Permutation> {
    breadth_first_by(square("bfs", matrix)?, |row| matrix.row(row).0)
}

/// As [`breadth_first`], for `n` rows whose columns `row` returns.
///
/// # Errors
/// [`Error::OutOfMemory`].
///
/// # Panics
/// If a column is not below `n`.
pub fn breadth_first_by<'a>(n: usize, row: impl Fn(usize) -> &'a [Ordinal]) -> Result<Permutation> {
    // There are never more levels than rows.
    let found = search(n, row, n)?;
    Ok(found.expect("a search without a limit ends"))
}

/// As [`breadth_first`], if the search has at most `levels` levels. A level is what is one step farther from where the
/// search started; each start begins a level.
///
/// # Errors
/// As [`breadth_first`].
pub fn breadth_first_within<T: Real>(matrix: &Csr<T>, levels: usize) -> Result<Option<Permutation>> {
    search(square("bfs", matrix)?, |row| matrix.row(row).0, levels)
}

fn search<'a>(n: usize, row: impl Fn(usize) -> &'a [Ordinal], most: usize) -> Result<Option<Permutation>> {
    /// A row is prefetched this many rows before its turn, because it is rarely in a cache. This halves the time.
    const AHEAD: usize = 16;
    let mut order: Vec<Ordinal> = Vec::new();
    order.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { what: "an ordering", bytes: 4 * n as u64 })?;
    let mut is_reached = zeroed::<u8>(n, "rows that are numbered")?;
    let (mut at, mut touched, mut levels, mut level_end) = (0, 0, 0, 0);
    for start in 0..n {
        if is_reached[start] != 0 || row(start).iter().all(|&col| col as usize == start) {
            continue;
        }
        is_reached[start] = 1;
        order.push(start as Ordinal);
        while let Some(&next) = order.get(at) {
            if at == level_end {
                level_end = order.len();
                levels += 1;
                if levels > most {
                    return Ok(None);
                }
            }
            if let Some(&ahead) = order.get(at + AHEAD) {
                touched ^= row(ahead as usize).first().copied().unwrap_or_default();
            }
            for &col in row(next as usize) {
                if std::mem::replace(&mut is_reached[col as usize], 1) == 0 {
                    order.push(col);
                }
            }
            at += 1;
        }
    }
    std::hint::black_box(touched);
    if order.len() < n {
        order.extend((0..n as Ordinal).filter(|&row| is_reached[row as usize] == 0));
    }
    Permutation::new(order).map(Some)
}

/// Recursive bisection: cuts the graph into two parts of equal cost with few edges between them, each part again, and
/// so on to 64 parts, and numbers rows part by part. Within a part rows are in breadth-first order.
///
/// A half, a quarter or an eighth of the rows, as ranks have them, then needs little of the others, and the order does
/// not depend on the number of ranks. METIS draws random numbers from the C library, so another system may find
/// another order. It replaces the process's handlers of SIGABRT and SIGTERM while it works.
///
/// # Errors
/// As [`breadth_first`]; [`Error::TooLarge`] if A + A^T has 2^31 or more entries.
#[cfg(feature = "metis")]
pub fn bisection<T: Real>(matrix: &Csr<T>) -> Result<Permutation> {
    bisection_by(square("bisection", matrix)?, |row| matrix.row(row).0)
}

/// As [`bisection`], for `n` rows whose columns `row` returns, ascending.
///
/// # Errors
/// As [`bisection`].
///
/// # Panics
/// If a column is not below `n`.
#[cfg(feature = "metis")]
pub fn bisection_by<'a>(n: usize, row: impl Fn(usize) -> &'a [Ordinal]) -> Result<Permutation> {
    /// The parts, a power of two.
    const PARTS: usize = 64;
    /// With fewer rows, there is nothing to be won.
    const FEWEST: usize = 64 * PARTS;
    /// METIS adds costs in 32 bits.
    const MOST: u64 = 1 << 30;
    let order = breadth_first_by(n, &row)?;
    if n < FEWEST {
        return Ok(order);
    }
    let (ptr, idx) = neighbours(n, &row)?;
    let cost = |i: usize| row(i).len() as u64 + ROW;
    let scale = (0..n).map(cost).sum::<u64>().div_ceil(MOST);
    let costs: Vec<metis::Idx> = (0..n).map(|i| cost(i).div_ceil(scale) as metis::Idx).collect();
    let mut part_of = vec![0; n];
    // Offsets and columns are below 2^31.
    let (ptr, idx) = (bytemuck::cast_slice(&ptr), bytemuck::cast_slice(&idx));
    let failed = || Error::OutOfMemory { what: "the bisection of a graph", bytes: 40 * idx.len() as u64 };
    let graph = metis::Graph::new(1, PARTS as metis::Idx, ptr, idx).map_err(|_| failed())?;
    graph.set_vwgt(&costs).part_recursive(&mut part_of).map_err(|_| failed())?;
    // A counting sort, which is stable.
    let mut next = vec![0usize; PARTS + 1];
    part_of.iter().for_each(|&part| next[part as usize + 1] += 1);
    (0..PARTS).for_each(|part| next[part + 1] += next[part]);
    let mut sorted = vec![0 as Ordinal; n];
    for &row in order.perm() {
        let place = &mut next[part_of[row as usize] as usize];
        sorted[*place] = row;
        *place += 1;
    }
    Permutation::new(sorted)
}

/// Reverse Cuthill-McKee: gives neighbours close numbers, so that the band of P A P^T is narrow.
///
/// Connected parts are ordered separately. They keep the order of their first rows, with the last part first. Each row
/// without neighbours is a part of its own.
///
/// # Errors
/// [`Error::Shape`] unless the matrix is square; [`Error::TooLarge`] if A + A^T has 2^31 or more entries.
#[cfg(feature = "sprs")]
pub fn rcm<T: Real>(matrix: &Csr<T>) -> Result<Permutation> {
    let n = square("rcm", matrix)?;
    let (ptr, idx) = neighbours(n, |row| matrix.row(row).0)?;
    let (part_of, parts) = parts(&ptr, &idx);
    // Members of each part, ascending, by one counting sort. Local numbers then ascend with global ones, and the
    // neighbours of a vertex stay sorted.
    let mut first = vec![0usize; parts + 1];
    part_of.iter().for_each(|&part| first[part as usize + 1] += 1);
    (0..parts).for_each(|part| first[part + 1] += first[part]);
    let mut next = first.clone();
    let (mut members, mut local) = (vec![0 as Ordinal; n], vec![0 as Ordinal; n]);
    for (vertex, &part) in part_of.iter().enumerate() {
        let at = next[part as usize];
        next[part as usize] += 1;
        members[at] = vertex as Ordinal;
        local[vertex] = (at - first[part as usize]) as Ordinal;
    }
    let mut perm = Vec::with_capacity(n);
    let (mut part_ptr, mut part_idx) = (Vec::new(), Vec::new());
    // sprs searches all vertices for the start of every part, which is quadratic for many parts. So it gets the parts
    // one at a time.
    for range in first.windows(2).rev() {
        let part = &members[range[0]..range[1]];
        if let [vertex] = part {
            perm.push(*vertex);
            continue;
        }
        part_ptr.clear();
        part_idx.clear();
        part_ptr.push(0);
        for &vertex in part {
            let range = ptr[vertex as usize] as usize..ptr[vertex as usize + 1] as usize;
            part_idx.extend(idx[range].iter().map(|&other| local[other as usize]));
            part_ptr.push(part_idx.len() as Ordinal);
        }
        let values = vec![(); part_idx.len()];
        let view = sprs::CsMatViewI::new((part.len(), part.len()), &part_ptr[..], &part_idx[..], &values[..]);
        let ordering = sprs::linalg::reverse_cuthill_mckee(view);
        perm.extend(ordering.perm.vec().into_iter().map(|at| part[at as usize]));
    }
    Permutation::new(perm)
}

/// Approximate minimum degree: an elimination order with little fill for Cholesky or LU with diagonal pivots.
///
/// # Errors
/// [`Error::Shape`] unless the matrix is square; [`Error::TooLarge`] if its working storage exceeds 32-bit indices;
/// [`Error::OutOfMemory`].
#[cfg(feature = "faer")]
pub fn amd<T: Real>(matrix: &Csr<T>) -> Result<Permutation> {
    use faer::dyn_stack::{MemBuffer, MemStack};
    use faer::sparse::linalg::amd;

    let n = square("amd", matrix)?;
    let request = amd::order_scratch::<Ordinal>(n, matrix.nnz());
    let bytes = request.unaligned_bytes_required() as u64;
    let mut buffer =
        MemBuffer::try_new(request).map_err(|_| Error::OutOfMemory { what: "the minimum degree ordering", bytes })?;
    let (mut perm, mut inverse) = (vec![0 as Ordinal; n], vec![0 as Ordinal; n]);
    // The rows of A read as columns are A^T, whose sum with its transpose is the same.
    let pattern = matrix.as_faer().symbolic().transpose();
    let stack = MemStack::new(&mut buffer);
    amd::order(&mut perm, &mut inverse, pattern, amd::Control::default(), stack).map_err(|_| Error::TooLarge {
        what: "entries",
        count: 2 * matrix.nnz() as u64,
        limit: crate::MAX_INDEX as u64,
    })?;
    Permutation::new(perm)
}

/// The pattern of A + A^T without its diagonal, rows ascending, if those of A ascend.
#[cfg(any(feature = "sprs", feature = "metis"))]
fn neighbours<'a>(n: usize, row: impl Fn(usize) -> &'a [Ordinal]) -> Result<(Vec<crate::Offset>, Vec<Ordinal>)> {
    let mut column_ptr = vec![0usize; n + 1];
    (0..n).flat_map(&row).for_each(|&col| column_ptr[col as usize + 1] += 1);
    (0..n).for_each(|col| column_ptr[col + 1] += column_ptr[col]);
    let mut next = column_ptr.clone();
    let mut transposed = vec![0 as Ordinal; column_ptr[n]];
    for i in 0..n {
        for &col in row(i) {
            transposed[next[col as usize]] = i as Ordinal;
            next[col as usize] += 1;
        }
    }
    let mut ptr = Vec::with_capacity(n + 1);
    let mut idx: Vec<Ordinal> = Vec::with_capacity(column_ptr[n]);
    ptr.push(0);
    for i in 0..n {
        let mut left = row(i).iter().copied().peekable();
        let mut right = transposed[column_ptr[i]..column_ptr[i + 1]].iter().copied().peekable();
        while let Some(least) = left.peek().into_iter().chain(right.peek()).min().copied() {
            left.next_if_eq(&least);
            right.next_if_eq(&least);
            if least as usize != i {
                idx.push(least);
            }
        }
        ptr.push(crate::index::checked(idx.len(), "entries")?);
    }
    Ok((ptr, idx))
}

/// The connected part of each vertex, numbered by first vertex, and the number of parts.
#[cfg(feature = "sprs")]
fn parts(ptr: &[crate::Offset], idx: &[Ordinal]) -> (Vec<Ordinal>, usize) {
    let n = ptr.len() - 1;
    let mut part_of = vec![Ordinal::MAX; n];
    let mut count = 0;
    let mut open = Vec::new();
    for start in 0..n {
        if part_of[start] != Ordinal::MAX {
            continue;
        }
        part_of[start] = count;
        open.push(start);
        while let Some(vertex) = open.pop() {
            for &other in &idx[ptr[vertex] as usize..ptr[vertex + 1] as usize] {
                if part_of[other as usize] == Ordinal::MAX {
                    part_of[other as usize] = count;
                    open.push(other as usize);
                }
            }
        }
        count += 1;
    }
    (part_of, count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Triplets;
    use proptest::prelude::*;

    type Order = fn(&Csr<f64>) -> Result<Permutation>;

    fn orders() -> Vec<(&'static str, Order)> {
        vec![
            ("bfs", breadth_first::<f64>),
            #[cfg(feature = "metis")]
            ("bisection", bisection::<f64>),
            #[cfg(feature = "sprs")]
            ("rcm", rcm::<f64>),
            #[cfg(feature = "faer")]
            ("amd", amd::<f64>),
        ]
    }

    fn grid(nx: usize, ny: usize) -> Csr<f64> {
        let mut triplets = Triplets::new(nx * ny, nx * ny).unwrap();
        for y in 0..ny {
            for x in 0..nx {
                let at = x + nx * y;
                triplets.push(at, at, 4.0).unwrap();
                for other in [(x + 1 < nx).then_some(at + 1), (y + 1 < ny).then_some(at + nx)].into_iter().flatten() {
                    triplets.push(at, other, -1.0).unwrap();
                    triplets.push(other, at, -1.0).unwrap();
                }
            }
        }
        triplets.to_csr().unwrap()
    }

    fn bandwidth(matrix: &Csr<f64>) -> usize {
        (0..matrix.nrows())
            .flat_map(|i| matrix.row(i).0.iter().map(move |&j| i.abs_diff(j as usize)))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn empty_diagonal_and_rectangular() {
        for (name, order) in orders() {
            for n in [0, 1, 5] {
                assert_eq!(order(&Csr::identity(n).unwrap()).unwrap().len(), n, "{name}");
                assert_eq!(order(&Triplets::new(n, n).unwrap().to_csr().unwrap()).unwrap().len(), n, "{name}");
            }
            let wide = Triplets::new(2, 3).unwrap().to_csr().unwrap();
            assert!(matches!(order(&wide).unwrap_err(), Error::Shape { found: 3, expected: 2, .. }), "{name}");
        }
    }

    /// The bounds are a quarter above the best cuts of a square grid by straight lines.
    #[cfg(feature = "metis")]
    #[test]
    fn ranges_of_a_bisected_grid_need_little_of_each_other() {
        let side = 160;
        let grid = grid(side, side);
        let n = grid.nrows();
        let shuffle = Permutation::new((0..n).map(|i| (i * 7919 % n) as Ordinal).collect()).unwrap();
        let shuffled = shuffle.permute_symmetric(&grid).unwrap();
        let ghosts = |order: &Permutation, ranks: usize| {
            let a = order.permute_symmetric(&shuffled).unwrap();
            let rank_of = |row: usize| row * ranks / n;
            let mut needed: Vec<(usize, u32)> = (0..n)
                .flat_map(|i| a.row(i).0.iter().map(move |&j| (i, j)))
                .filter(|&(i, j)| rank_of(i) != rank_of(j as usize))
                .map(|(i, j)| (rank_of(i), j))
                .collect();
            needed.sort_unstable();
            needed.dedup();
            needed.len()
        };
        let (bisected, searched) = (bisection(&shuffled).unwrap(), breadth_first(&shuffled).unwrap());
        // Lines of the side's length that cut the square into halves, quarters and eighths, with points on both sides.
        let most = |lines: usize| 2 * lines * side * 5 / 4;
        for (ranks, lines) in [(2, 1), (4, 2), (8, 4)] {
            let found = ghosts(&bisected, ranks);
            assert!(found <= most(lines), "{ranks} ranks need {found}");
        }
        assert!(ghosts(&searched, 8) > most(4), "the search is as good: {}", ghosts(&searched, 8));
        assert_eq!(bisection(&shuffled).unwrap(), bisected);
    }

    /// Pairs of rows that are far apart: a search through all rows for each pair would take 10^10 steps.
    fn pairs() -> Csr<f64> {
        let n = 200_000;
        let pairs = (0..n / 2).flat_map(|i| [(i, i + n / 2, 1.0), (i + n / 2, i, 1.0)]);
        let pairs = Csr::from_triplets(n, n, pairs).unwrap();
        assert_eq!(bandwidth(&pairs), n / 2);
        pairs
    }

    #[cfg(feature = "sprs")]
    #[test]
    fn rcm_orders_many_parts_in_linear_time() {
        let pairs = pairs();
        assert_eq!(bandwidth(&rcm(&pairs).unwrap().permute_symmetric(&pairs).unwrap()), 1);
    }

    #[test]
    fn a_breadth_first_search_orders_many_parts_in_linear_time() {
        let pairs = pairs();
        assert_eq!(bandwidth(&breadth_first(&pairs).unwrap().permute_symmetric(&pairs).unwrap()), 1);
        // A chain that no search can follow.
        let n = 200_000;
        let chain = Csr::from_triplets(n, n, (1..n).map(|i| (i, i - 1, 1.0))).unwrap();
        // Row 0 has no entry, so the first search begins in row 1 and reaches it.
        let found = breadth_first(&chain).unwrap();
        assert!(found.perm()[..2] == [1, 0] && found.perm()[2..].iter().copied().eq(2..n as u32));
    }

    #[test]
    fn rows_without_neighbours_come_last_and_levels_are_counted() {
        // Two chains, 5 - 1 - 3 and 2 - 6, and rows 0 and 4 with a diagonal at most.
        let edges = [(5, 1), (1, 3), (2, 6)];
        let mirrored = edges.into_iter().flat_map(|(i, j)| [(i, j, -1.0), (j, i, -1.0)]);
        let a = Csr::from_triplets(7, 7, mirrored.chain([(4, 4, 1.0), (1, 1, 2.0)])).unwrap();
        let found = breadth_first(&a).unwrap();
        assert_eq!(found.perm(), [1, 3, 5, 2, 6, 0, 4]);
        // Row 1; rows 3 and 5; row 2; row 6.
        assert_eq!(breadth_first_within(&a, 4).unwrap(), Some(found));
        assert_eq!(breadth_first_within(&a, 3).unwrap(), None);
    }

    #[test]
    fn a_breadth_first_search_goes_level_by_level() {
        // Levels of a grid of 3 by 2 from row 4: 4; 1, 3, 5; 0, 2.
        let turned = Permutation::new(vec![4, 0, 1, 2, 3, 5]).unwrap();
        let found = breadth_first(&turned.permute_symmetric(&grid(3, 2)).unwrap()).unwrap();
        let old: Vec<u32> = found.perm().iter().map(|&row| turned.perm()[row as usize]).collect();
        assert_eq!(old, [4, 1, 3, 5, 0, 2]);
        let shuffled = Permutation::new((0..4000).map(|i| i * 1237 % 4000).collect()).unwrap();
        let shuffled = shuffled.permute_symmetric(&grid(80, 50)).unwrap();
        let band = bandwidth(&breadth_first(&shuffled).unwrap().permute_symmetric(&shuffled).unwrap());
        // From a corner, a level has at most as many rows as the shorter side, and neighbours are a level apart.
        assert!(band <= 100, "{band}");
    }

    #[cfg(feature = "faer")]
    #[test]
    fn amd_eliminates_the_hub_of_a_star_late() {
        let n = 50;
        let mut triplets = Triplets::new(n, n).unwrap();
        for i in 0..n {
            triplets.push(i, i, 1.0).unwrap();
            if i != 7 {
                triplets.push(7, i, 1.0).unwrap();
            }
        }
        let perm = amd(&triplets.to_csr().unwrap()).unwrap();
        let hub = perm.inverse().perm()[7] as usize;
        // Once a single leaf is left, hub and leaf have the same degree.
        assert!(hub >= n - 2, "the hub is number {hub}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_pattern_gives_a_permutation(n in 1usize..60, entries in prop::collection::vec((any::<usize>(), any::<usize>()), 0..200)) {
            let mut triplets = Triplets::new(n, n).unwrap();
            entries.iter().for_each(|&(i, j)| triplets.push(i % n, j % n, 1.0).unwrap());
            let matrix = triplets.to_csr().unwrap();
            for (_, order) in orders() {
                // `Permutation::new` checked the bijection; applying it keeps every entry.
                let perm = order(&matrix).unwrap();
                let moved = perm.permute_symmetric(&matrix).unwrap();
                prop_assert_eq!(perm.inverse().permute_symmetric(&moved).unwrap(), matrix.clone());
            }
        }

        #[cfg(feature = "sprs")]
        #[test]
        fn rcm_narrows_a_shuffled_grid(nx in 3usize..12, ny in 3usize..12, seed in any::<u64>()) {
            let matrix = grid(nx, ny);
            let mut perm: Vec<Ordinal> = (0..(nx * ny) as Ordinal).collect();
            perm.sort_by_key(|&i| (u64::from(i) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ seed);
            let shuffled = Permutation::new(perm).unwrap().permute_symmetric(&matrix).unwrap();
            let band = bandwidth(&rcm(&shuffled).unwrap().permute_symmetric(&shuffled).unwrap());
            // The best is min(nx, ny); levels from a corner hold as many vertices, two neighbouring ones bound the
            // band.
            prop_assert!(band < 2 * nx.min(ny), "{band} for {nx} x {ny}, {} before", bandwidth(&shuffled));
        }
    }

    #[cfg(feature = "faer")]
    #[test]
    fn amd_fills_less_than_the_natural_order_of_a_grid() {
        let matrix = grid(20, 20);
        let fill = |matrix: &Csr<f64>| {
            // Columns of the Cholesky factor, by merging each into its parent (George & Liu 1981, section 5.2).
            let n = matrix.nrows();
            let mut below = vec![std::collections::BTreeSet::new(); n];
            for (i, below) in below.iter_mut().enumerate() {
                below.extend(matrix.row(i).0.iter().map(|&j| j as usize).filter(|&j| j > i));
            }
            for i in 0..n {
                if let Some(&parent) = below[i].first() {
                    let rest: Vec<usize> = below[i].iter().copied().filter(|&j| j > parent).collect();
                    below[parent].extend(rest);
                }
            }
            below.iter().map(std::collections::BTreeSet::len).sum::<usize>()
        };
        let (before, after) = (fill(&matrix), fill(&amd(&matrix).unwrap().permute_symmetric(&matrix).unwrap()));
        assert!(2 * after < before, "{before} entries before, {after} after");
    }
}
