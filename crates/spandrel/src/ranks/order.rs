//! In which order a solve on ranks numbers the rows.

use spandrel_distributed::{Communicator, Distributed, Numbering, Rows, precond};
use spandrel_solvers::{Precond, Result};

use super::RankBackend;
use super::plan::RankPrecond;
use crate::solver::renumber::SCATTERED;
use crate::solver::shared::{ASKED_FOR, separates_points};
use crate::solver::{Element, NEARER, Reorder, Settings, bisection, nearer};

/// The order of rows in the solve.
pub(super) struct Order {
    pub(super) by: Reorder,
    pub(super) why: String,
    /// The numbering, if it is not the matrix's own.
    pub(super) numbering: Option<Numbering>,
}

/// Fewer rows are solved as they are numbered, unless the caller asks for an ordering. A solve on one device compares
/// vectors with its cache instead; ranks on CPUs and on GPUs must decide alike.
const LARGE: u64 = 1 << 18;

/// With more entries, rank 0 would need more than 4 GiB for their columns, which the caller has to ask for.
const MOST: u64 = 1 << 30;

/// Chooses the order as the settings say. If they leave it open, a large matrix whose entries are scattered is numbered
/// by a breadth-first search if that brings its entries close to the diagonal, as on one device. The choice does not
/// depend on the number of ranks. Waits for the other ranks.
pub(super) fn choose<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    settings: &Settings,
    asked: Option<RankPrecond>,
) -> Result<Order> {
    let own = || Order { by: Reorder::None, why: String::new(), numbering: None };
    let named =
        |by: Reorder, numbering: Numbering| Order { by, why: ASKED_FOR.to_string(), numbering: Some(numbering) };
    match settings.reorder {
        Some(Reorder::Bfs) => {
            check_diagonal(be, rows, asked)?;
            Ok(named(Reorder::Bfs, Numbering::breadth_first(be, rows)?))
        }
        Some(Reorder::Bisection) => {
            check_diagonal(be, rows, asked)?;
            Ok(named(Reorder::Bisection, Numbering::by(be, rows, |n, row| bisection(n, row))?))
        }
        Some(Reorder::None | Reorder::Rcm | Reorder::Amd) => Ok(own()),
        None => {
            let sizes = be.everywhere(&[rows.len() as u64, rows.nnz() as u64])?;
            let (n, nnz): (u64, u64) = sizes.iter().fold((0, 0), |(n, nnz), of| (n + of[0], nnz + of[1]));
            let keeps_points = separates_points(asked.and_then(RankPrecond::same), Reorder::Bfs).is_none();
            if n < LARGE || nnz > MOST || n != rows.ncols() || !keeps_points {
                return Ok(own());
            }
            let mean = |new_of: Option<&[u32]>| -> Result<f64> {
                let sums = be.everywhere(&[distance(rows, new_of)])?;
                Ok(sums.iter().map(|of| of[0]).sum::<u64>() as f64 / nnz.max(1) as f64)
            };
            let before = mean(None)?;
            if before < SCATTERED * n as f64 {
                return Ok(own());
            }
            check_diagonal(be, rows, asked)?;
            let numbering = Numbering::breadth_first(be, rows)?;
            let after = mean(Some(numbering.permutation().inverse().perm()))?;
            if after * NEARER > before {
                return Ok(own());
            }
            Ok(Order { by: Reorder::Bfs, why: nearer(before, after), numbering: Some(numbering) })
        }
    }
}

/// Asks in the matrix's own numbering whether the preconditioner can be made, so that the error names the row in it.
fn check_diagonal<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    asked: Option<RankPrecond>,
) -> Result<()> {
    match asked {
        Some(RankPrecond::Same(Precond::Jacobi | Precond::Chebyshev(_))) => precond::check_diagonal(be, rows),
        _ => Ok(()),
    }
}

/// The distances of the entries of these rows from the diagonal, added, in the new numbering if there is one.
fn distance<T: Element>(rows: &Rows<T>, new_of: Option<&[u32]>) -> u64 {
    let place = |row: u64| new_of.map_or(row, |new_of| u64::from(new_of[row as usize]));
    let of_row = |i: usize| {
        let row = place(rows.first() + i as u64);
        rows.row(i).0.iter().map(|&col| place(u64::from(col)).abs_diff(row)).sum::<u64>()
    };
    (0..rows.len()).map(of_row).sum()
}

#[cfg(test)]
mod tests {
    use spandrel_distributed::{Threads, cut_rows};
    use spandrel_formats::{Csr, Permutation};
    use spandrel_solvers::{AmgOptions, Error};

    use super::*;
    use crate::Cpu;

    /// What ranks choose, which must be the same on all.
    fn chosen(a: &Csr<f64>, ranks: usize, settings: &Settings) -> Result<(Reorder, String, Option<Permutation>)> {
        let asked = settings.preconditioner.map(RankPrecond::Same);
        let mut all = Threads::run(ranks, |team| {
            let be = Distributed::new(Cpu::with_threads(1)?, team);
            let Order { by, why, numbering } = choose(&be, &cut_rows(&be, a), settings, asked)?;
            Ok::<_, Error>((by, why, numbering.map(|numbering| numbering.permutation().clone())))
        });
        let first = all.swap_remove(0).map_err(|failure| match failure {
            spandrel_distributed::Failure::Error(error) => error,
            panic @ spandrel_distributed::Failure::Panic { .. } => panic!("{panic}"),
        });
        for other in all {
            assert_eq!(other.ok().as_ref(), first.as_ref().ok());
        }
        first
    }

    #[test]
    fn a_large_scattered_matrix_is_numbered_alike_on_any_number_of_ranks() {
        let n = LARGE as usize;
        let chain = (0..n).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % n, -1.0), ((i + 1) % n, i, -1.0)]);
        let in_order = Csr::from_triplets(n, n, chain).unwrap();
        let shuffle = Permutation::new((0..n).map(|i| (i * 30_011 % n) as u32).collect()).unwrap();
        let scattered = shuffle.permute_symmetric(&in_order).unwrap();
        let auto = Settings::default();
        let one = chosen(&scattered, 1, &auto).unwrap();
        assert_eq!(
            (one.0, &one.2),
            (Reorder::Bfs, &Some(spandrel_formats::reorder::breadth_first(&scattered).unwrap()))
        );
        assert!(one.1.contains("times nearer to the diagonal"), "{}", one.1);
        assert_eq!(chosen(&scattered, 3, &auto).unwrap(), one);
        let none = (Reorder::None, String::new(), None);
        assert_eq!(chosen(&in_order, 2, &auto).unwrap(), none);
        let as_it_is = Settings { reorder: Some(Reorder::None), ..Settings::default() };
        assert_eq!(chosen(&scattered, 2, &as_it_is).unwrap(), none);
        // Points would come apart.
        let amg = Precond::Amg(AmgOptions { unknowns: 2, ..AmgOptions::default() });
        let points = Settings { preconditioner: Some(amg), ..Settings::default() };
        assert_eq!(chosen(&scattered, 2, &points).unwrap(), none);
        // No numbering brings the entries of these rows near each other.
        let far = Csr::from_triplets(n, n, (0..n).flat_map(|i| (0..4).map(move |k| (i, mixed(4 * i + k) % n, 1.0))));
        assert_eq!(chosen(&far.unwrap(), 2, &auto).unwrap(), none);
    }

    /// A pseudorandom number.
    fn mixed(x: usize) -> usize {
        let x = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20) as usize
    }

    #[test]
    fn an_error_names_the_row_in_the_matrix_s_own_numbering() {
        let entries = (0..5000).filter(|&i| i != 4321).map(|i| (i, i, 2.0)).chain([(4321, 0, 1.0), (0, 4321, 1.0)]);
        let a = Csr::from_triplets(5000, 5000, entries).unwrap();
        let settings =
            Settings { reorder: Some(Reorder::Bfs), preconditioner: Some(Precond::Jacobi), ..Settings::default() };
        let error = chosen(&a, 1, &settings).unwrap_err();
        assert!(matches!(error, Error::Diagonal { row: 4321, .. }), "{error}");
    }
}
