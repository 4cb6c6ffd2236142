//! Orderings that make a matrix cheaper: reverse Cuthill-McKee (narrow band) and approximate minimum degree (little
//! fill).
//!
//! Both use the pattern of A + A^T, so the matrix may be nonsymmetric. They return a [`crate::Permutation`] for
//! [`crate::Permutation::permute_symmetric`]. Values are not used.
//!
//! Cost: `rcm` takes O(nnz log of the degree) for each of the few searches per connected part; `amd` as published.
//! Reference: George, Liu, Computer Solution of Large Sparse Positive Definite Systems, 1981 (reverse Cuthill-McKee,
//! pseudo-peripheral vertices); Amestoy, Davis, Duff, An approximate minimum degree ordering algorithm, 1996.

#[cfg(any(feature = "sprs", feature = "faer"))]
use crate::{Csr, Error, Ordinal, Permutation, Real, Result};

#[cfg(any(feature = "sprs", feature = "faer"))]
fn square<T: Real>(op: &'static str, matrix: &Csr<T>) -> Result<usize> {
    if matrix.nrows() != matrix.ncols() {
        return Err(Error::Shape { op, what: "a row", found: matrix.ncols(), expected: matrix.nrows() });
    }
    Ok(matrix.nrows())
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
    let (ptr, idx) = neighbours(matrix)?;
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

/// The pattern of A + A^T without its diagonal, rows ascending.
#[cfg(feature = "sprs")]
fn neighbours<T: Real>(matrix: &Csr<T>) -> Result<(Vec<crate::Offset>, Vec<Ordinal>)> {
    let n = matrix.nrows();
    let mut column_ptr = vec![0usize; n + 1];
    matrix.col_idx().iter().for_each(|&col| column_ptr[col as usize + 1] += 1);
    (0..n).for_each(|col| column_ptr[col + 1] += column_ptr[col]);
    let mut next = column_ptr.clone();
    let mut transposed = vec![0 as Ordinal; matrix.nnz()];
    for row in 0..n {
        for &col in matrix.row(row).0 {
            transposed[next[col as usize]] = row as Ordinal;
            next[col as usize] += 1;
        }
    }
    let mut ptr = Vec::with_capacity(n + 1);
    let mut idx: Vec<Ordinal> = Vec::with_capacity(matrix.nnz());
    ptr.push(0);
    for row in 0..n {
        let mut left = matrix.row(row).0.iter().copied().peekable();
        let mut right = transposed[column_ptr[row]..column_ptr[row + 1]].iter().copied().peekable();
        while let Some(least) = left.peek().into_iter().chain(right.peek()).min().copied() {
            left.next_if_eq(&least);
            right.next_if_eq(&least);
            if least as usize != row {
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

#[cfg(all(test, any(feature = "sprs", feature = "faer")))]
mod tests {
    use super::*;
    use crate::Triplets;
    use proptest::prelude::*;

    type Order = fn(&Csr<f64>) -> Result<Permutation>;

    fn orders() -> Vec<(&'static str, Order)> {
        vec![
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

    #[cfg(feature = "sprs")]
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

    #[cfg(feature = "sprs")]
    #[test]
    fn rcm_orders_many_parts_in_linear_time() {
        // Pairs: a search through all vertices for each part would take 10^10 steps.
        let n = 200_000;
        let mut triplets = Triplets::new(n, n).unwrap();
        (0..n / 2).for_each(|i| triplets.push(i, i + n / 2, 1.0).unwrap());
        let pairs = triplets.to_csr().unwrap();
        assert_eq!(bandwidth(&pairs), n / 2);
        assert_eq!(bandwidth(&rcm(&pairs).unwrap().permute_symmetric(&pairs).unwrap()), 1);
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
