//! What the policy must know about a symmetric matrix whose rows lie on the ranks to choose a multigrid preconditioner.
//!
//! Every rank gets the same facts, which do not depend on the number of ranks: counts, sums of integers, smallest
//! numbers, and samples in the order of the rows. They are those that one device finds, except that fewer rows are
//! sampled for the moments of a grid.
//!
//! Cost: a few passes over the entries. For [`elliptic`] also some rounds of messages: one for each step of the
//! searches, which end after some thousand rows.

use rayon::prelude::*;
use spandrel_backend::{Join, Result};
use spandrel_formats::{NEIGHBOURS, Neighbours, Real, row_dominance};
use spandrel_solvers::amg::{AmgFacts, AmgSample};
use spandrel_solvers::multigrid::GridFacts;
use spandrel_solvers::multigrid::grid::sampled_every;

use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::layout::Layout;
use crate::multigrid::setup::find_stencil;
use crate::rows::Rows;

/// The grid of a symmetric matrix of `nnz` entries that [`crate::DistributedMultigrid`] can take. `None`, on every
/// rank, if the matrix is no stencil of nearest neighbours, or if it is not weakly dominant with entries off the
/// diagonal that are not positive. Waits for the other ranks.
///
/// # Errors
/// [`spandrel_backend::Error::Rank`].
pub fn grid<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
    nnz: u64,
) -> Result<Option<GridFacts>> {
    let number = |i: usize| rows.first() as usize + i;
    let of_row = |i: usize| row_dominance(number(i), rows.row(i));
    let smallest = |one: f64, other: f64| Some(one.min(other));
    let mine = (0..rows.len()).into_par_iter().map(of_row).try_reduce(|| f64::INFINITY, smallest);
    let all = be.everywhere(&[u64::from(mine.is_some()), mine.unwrap_or_default().to_bits()])?;
    if all.iter().any(|of| of[0] == 0) {
        return Ok(None);
    }
    let dominance = all.iter().map(|of| f64::from_bits(of[1])).fold(f64::INFINITY, f64::min);
    let Some(of) = find_stencil(be, layout, rows)? else { return Ok(None) };

    let step = sampled_every(layout.len());
    let sampled = (0..rows.len()).filter(|&i| number(i).is_multiple_of(step));
    let places = |i: usize| {
        let (cols, values) = rows.row(i);
        of.places_of(number(i), cols, values).unwrap_or([T::zero(); NEIGHBOURS])
    };
    let mine: Vec<T> = sampled.flat_map(places).collect();
    let all = be.team().all_to_all(vec![bytemuck::cast_slice(&mine).to_vec(); be.size()])?;
    let all = all.iter().flat_map(|part| part.chunks_exact(T::BYTES)).map(bytemuck::pod_read_unaligned);
    let moments = Neighbours::moments(&all.collect::<Vec<T>>());
    Ok(Some(GridFacts { grid: of.grid(nnz), nnz, dominance, moments }))
}

/// The facts of [`AmgFacts::of`]. `None`, on every rank, for a small matrix and for one that does not look like a
/// scalar elliptic problem. Waits for the other ranks.
///
/// # Errors
/// [`spandrel_backend::Error::Rank`].
pub fn elliptic<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
    nnz: u64,
) -> Result<Option<AmgFacts>> {
    let Some(stride) = AmgSample::stride(layout.len()) else { return Ok(None) };
    let (first, own) = (rows.first() as usize, layout.rows());
    let mut mine = AmgSample::default();
    for row in (first.next_multiple_of(stride)..first + rows.len()).step_by(stride) {
        mine.add(row, rows.row(row - first));
    }
    let mut sample = AmgSample::default();
    for of in be.everywhere(&mine.numbers())? {
        if let Ok(numbers) = <[u64; 5]>::try_from(of) {
            sample.add_numbers(numbers);
        }
    }
    AmgFacts::by((layout.len(), nnz), &sample, |of: &[usize]| {
        let here = of.iter().filter(|&&row| own.contains(&(row as u64)));
        let mut columns: Vec<u32> = here.flat_map(|&row| rows.row(row - first).0).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        let all = be.team().all_to_all(vec![bytemuck::cast_slice(&columns).to_vec(); be.size()])?;
        let all = all.iter().flat_map(|part| part.as_chunks::<4>().0);
        Ok(all.map(|&bytes| u32::from_ne_bytes(bytes) as usize).collect())
    })
}

#[cfg(test)]
mod tests {
    use spandrel_backend_cpu::Cpu;
    use spandrel_formats::{Csr, generate};

    use super::*;
    use crate::read::cut_rows;
    use crate::threads::Threads;

    /// The facts that ranks find, which must be the same on all.
    fn facts(a: &Csr<f64>, ranks: usize) -> (Option<GridFacts>, Option<AmgFacts>) {
        let found = Threads::run(ranks, |comm| {
            let be = Distributed::new(Cpu::with_threads(1)?, comm);
            let rows = cut_rows(&be, a);
            let layout = be.lay_out_rows(&rows)?;
            let nnz = a.nnz() as u64;
            Ok::<_, spandrel_backend::Error>((grid(&be, &layout, &rows, nnz)?, elliptic(&be, &layout, &rows, nnz)?))
        });
        let mut found: Vec<_> = found.into_iter().map(|rank| rank.unwrap()).collect();
        assert!(found.iter().all(|other| *other == found[0]));
        found.swap_remove(0)
    }

    #[test]
    fn the_facts_are_those_of_one_device_for_any_number_of_ranks() {
        for spec in ["poisson2d:160x150", "poisson3d:30", "d3n27:28", "electrostatic:n=25000", "elasticity3d:21"] {
            let a = generate::csr::<f64>(spec).unwrap();
            let one = facts(&a, 1);
            assert_eq!(one.1, AmgFacts::of(&a), "{spec}");
            for ranks in [2, 3] {
                assert_eq!(facts(&a, ranks), one, "{spec} on {ranks} ranks");
            }
            match (one.0, GridFacts::of(&a)) {
                (Some(found), Ok(wanted)) => {
                    assert_eq!((found.grid, found.nnz), (wanted.grid, wanted.nnz), "{spec}");
                    assert_eq!(found.dominance, wanted.dominance, "{spec}");
                    let share = |moments: &spandrel_formats::Moments| moments.second[1][1] / moments.diagonal;
                    let (here, there) = (share(&found.moments), share(&wanted.moments));
                    assert!((here - there).abs() < 0.02 * there, "{spec}: {here} and {there}");
                }
                (found, wanted) => assert!(found.is_none() && wanted.is_err(), "{spec}"),
            }
        }
    }

    #[test]
    fn small_matrices_and_those_with_heavy_rows_have_no_facts() {
        let small = generate::csr::<f64>("electrostatic:n=3000").unwrap();
        assert_eq!(facts(&small, 2), (None, None));
        let heavy = generate::csr::<f64>("elasticity3d:21").unwrap();
        assert_eq!(facts(&heavy, 3), (None, None));
    }
}
