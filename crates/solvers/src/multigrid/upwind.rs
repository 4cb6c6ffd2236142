//! Adds diffusion to coarse operators of convection, so that a smoother can treat them. It adds just enough to leave no
//! positive entry off the diagonal.
//!
//! P^T A P doubles the ratio of convection to diffusion from each grid to the next. Upwind differences bound that ratio
//! on the finest grid. On coarser grids it soon exceeds 2; then entries off the diagonal are positive and Gauss-Seidel
//! steps diverge. Without added diffusion, a cycle became worse with more grids, and BiCGStab broke down.
//!
//! For an entry c > 0 of row i, at the offset d from its point, c is subtracted from the entries at d and -d, and 2 c
//! is added to the diagonal: c times the second difference along d. Row sums and first moments do not change, so
//! convection keeps its speed, and rows with sums of at least zero become weakly dominant. If -d is outside the grid,
//! the boundary value 0 takes its place. Symmetric matrices, and those that violate these conditions themselves, get no
//! diffusion.
//!
//! Cost: one pass over the coarse operator with a search per positive entry, in parallel.
//! Reference: Trottenberg, Oosterlee, Schuller, Multigrid, 2001, sections 7.3 and 7.4 (artificial viscosity on coarse
//! grids).

use rayon::prelude::*;
use spandrel_formats::{Csr, Real};

/// Rows per parallel task.
const CHUNK: usize = 1024;

/// Whether the coarse operators of this matrix get diffusion: it is not symmetric, has no positive entry off the
/// diagonal, and is weakly dominant.
pub(super) fn is_upwind<T: Real>(a: &Csr<T>) -> bool {
    !a.is_symmetric() && a.dominance().is_some() && !a.is_symmetric_to_rounding()
}

/// Adds the diffusion to an operator on a grid of these extents and with this many unknowns per point. Couplings
/// between different unknowns stay.
pub(super) fn diffuse<T: Real>(a: &mut Csr<T>, size: [usize; 3], unknowns: usize) {
    let n = a.nrows();
    let (ptr, cols) = (a.row_ptr().to_vec(), a.col_idx().to_vec());
    let mut rest = a.values_mut();
    let mut chunks = Vec::with_capacity(n.div_ceil(CHUNK));
    for begin in (0..n).step_by(CHUNK) {
        let end = (begin + CHUNK).min(n);
        let (values, behind) = std::mem::take(&mut rest).split_at_mut((ptr[end] - ptr[begin]) as usize);
        chunks.push((begin..end, values));
        rest = behind;
    }
    chunks.into_par_iter().for_each(|(rows, values)| {
        let mut taken = Vec::new();
        let first = ptr[rows.start];
        for i in rows {
            let range = ptr[i] as usize..ptr[i + 1] as usize;
            let of_row = &mut values[(ptr[i] - first) as usize..(ptr[i + 1] - first) as usize];
            diffuse_row(i, &cols[range], of_row, &mut taken, (size, unknowns));
        }
    });
}

/// One row; `taken` is scratch.
fn diffuse_row<T: Real>(
    i: usize,
    cols: &[u32],
    values: &mut [T],
    taken: &mut Vec<T>,
    (size, unknowns): ([usize; 3], usize),
) {
    let Ok(diagonal) = cols.binary_search(&(i as u32)) else { return };
    let is_own = |j: usize| j != i && j % unknowns == i % unknowns;
    if !cols.iter().zip(&*values).any(|(&j, v)| is_own(j as usize) && *v > T::zero()) {
        return;
    }
    let at = |row: usize| {
        let point = row / unknowns;
        [point % size[0], point / size[0] % size[1], point / (size[0] * size[1])]
    };
    let here = at(i);
    // The position in the row of the entry on the opposite side of the point.
    let across = |j: usize| {
        let there = at(j);
        let is_inside = (0..3).all(|axis| (2 * here[axis]).checked_sub(there[axis]).is_some_and(|c| c < size[axis]));
        let place = (2 * i).checked_sub(j).filter(|_| is_inside)?;
        cols.binary_search(&(place as u32)).ok()
    };
    taken.clear();
    let mut added = T::zero();
    for (k, &j) in cols.iter().enumerate() {
        let mut share = T::zero();
        if is_own(j as usize) {
            share = values[k].max(T::zero());
            match across(j as usize) {
                Some(other) => share = share.max(values[other]),
                None => added += share,
            }
        }
        added += share;
        taken.push(share);
    }
    values.iter_mut().zip(&*taken).for_each(|(v, &share)| *v -= share);
    values[diagonal] += added;
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Triplets;

    use super::*;

    #[test]
    fn positive_entries_become_diffusion_and_moments_stay() {
        // Central differences for a fast flow along a line of five points, and a row without any positive entry.
        let mut triplets = Triplets::new(5, 5).expect("a small shape");
        for i in 0..5usize {
            let right = if i == 2 { -0.5 } else { 1.0 };
            triplets.push(i, i, 2.0).expect("inside");
            if i > 0 {
                triplets.push(i, i - 1, -3.0).expect("inside");
            }
            if i < 4 {
                triplets.push(i, i + 1, right).expect("inside");
            }
        }
        let mut a: Csr<f64> = triplets.to_csr().expect("a small matrix");
        diffuse(&mut a, [5, 1, 1], 1);
        // The first point has no point before it, the last none behind.
        assert_eq!(a.row(0).1, [4.0, 0.0]);
        assert_eq!(a.row(1).1, [-4.0, 4.0, 0.0]);
        assert_eq!(a.row(2).1, [-3.0, 2.0, -0.5]);
        assert_eq!(a.row(4).1, [-3.0, 2.0]);
    }

    #[test]
    fn other_unknowns_and_the_edges_of_the_grid_are_told_apart() {
        // Two unknowns at each point of a plane of three by two; row 4 is the first unknown of the last point of the
        // first line.
        let mut triplets = Triplets::new(12, 12).expect("a small shape");
        for (j, v) in [(4, 8.0), (2, -1.0), (6, 1.5), (5, 2.0), (10, -1.0)] {
            triplets.push(4, j, v).expect("inside");
        }
        for i in (0..12).filter(|&i| i != 4) {
            triplets.push(i, i, 1.0).expect("inside");
        }
        let mut a: Csr<f64> = triplets.to_csr().expect("a small matrix");
        diffuse(&mut a, [3, 2, 1], 2);
        // Point 3 is on the next line. No point lies opposite of it, although row 2 has the mirrored number.
        assert_eq!((a.row(4).0, a.row(4).1), (&[2u32, 4, 5, 6, 10][..], &[-1.0, 11.0, 2.0, 0.0, -1.0][..]));
    }
}
