//! Whether an iteration on several ranks has truly converged, as `solver/truth.rs` decides it for one device.
//!
//! If the bound on the rounding does not settle it, each rank computes the residual of its own rows in twice the
//! digits. The decision is the same for any number of ranks.

use rayon::prelude::*;
use spandrel_backend::Backend;
use spandrel_distributed::{Communicator, Distributed, DistributedMat, HostBoundary, HostRows, Rows, Vector};
use spandrel_formats::Csr;
use spandrel_solvers::accuracy::residual;
use spandrel_solvers::{Outcome, ResidualRounding, Result};

use super::RankBackend;
use crate::solver::Element;
use crate::solver::truth::{follows, judge, largest, magnitude};

/// Rows that a task takes at a time.
const CHUNK: usize = 4096;

/// The bound for the residuals of a matrix whose rows lie on the ranks. Waits for the other ranks.
pub(super) fn rounding<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    (nrows, is_symmetric): (usize, bool),
) -> Result<ResidualRounding> {
    let (terms, most, squares) = norms(rows);
    let all = be.everywhere(&[terms as u64, most.to_bits(), f64::to_bits(squares)])?;
    let terms = all.iter().map(|of| of[0]).max().unwrap_or_default() as usize;
    let most = all.iter().map(|of| f64::from_bits(of[1])).fold(0.0, f64::max);
    // No rank knows the sums of columns, so the Frobenius norm is the bound.
    let frobenius = all.iter().map(|of| f64::from_bits(of[2])).sum::<f64>().sqrt();
    Ok(ResidualRounding::with(nrows, terms, if is_symmetric { most } else { magnitude::<f64>(frobenius) }))
}

/// The most entries of a row, the largest sum of magnitudes of a row, and the sum of all squares.
fn norms<T: Element>(rows: &Rows<T>) -> (usize, f64, f64) {
    let of_chunk = |chunk: usize| {
        let rows_of = (chunk * CHUNK..rows.len().min((chunk + 1) * CHUNK)).map(|i| rows.row(i).1);
        rows_of.fold((0, 0.0f64, 0.0), |(terms, most, squares), values| {
            let sum: f64 = values.iter().map(|v| v.as_f64().abs()).sum();
            let square = values.iter().map(|v| v.as_f64() * v.as_f64()).sum::<f64>();
            (values.len().max(terms), most.max(sum), squares + square)
        })
    };
    // In the order of the chunks, for any number of threads.
    let chunks: Vec<_> = (0..rows.len().div_ceil(CHUNK)).into_par_iter().map(of_chunk).collect();
    let both = |(a, b, c): (usize, f64, f64), (d, e, f): (usize, f64, f64)| (a.max(d), b.max(e), c + f);
    chunks.into_iter().fold((0, 0.0, 0.0), both)
}

/// If x misses the goal, changes `converged` to `stagnated` or `not_finite`. Waits for the other ranks.
pub(super) fn examine<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    a: &DistributedMat<B, Csr<T>>,
    (b, x): (&Vector<T, B>, &Vector<T, B>),
    rounding: &ResidualRounding,
    outcome: &mut Outcome,
) -> Result<()> {
    if !outcome.status.is_converged() {
        return Ok(());
    }
    if follows::<T, Distributed<B, C>>(be, (b, x), rounding, outcome)? {
        return Ok(());
    }
    let HostRows { own, x, boundary, .. } = a.on_host(be, x)?;
    let b = be.download(b)?;
    let mut r = residual(&own, &b, &x);
    if let Some(HostBoundary { rows, matrix, x, .. }) = boundary {
        let b: Vec<T> = rows.iter().map(|&row| b[row as usize]).collect();
        rows.iter().zip(residual(&matrix, &b, &x)).for_each(|(&row, found)| r[row as usize] = found);
    }
    let all = be.everywhere(&[largest(&b).to_bits()])?;
    let unit = all.iter().map(|of| f64::from_bits(of[0])).fold(0.0, f64::max);
    judge::<T, Distributed<B, C>>(be, (&r, &b), unit, outcome)?;
    Ok(())
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use spandrel_distributed::{Partition, Threads, rows_of};
    use spandrel_solvers::{Method, Precond, Status};

    use super::super::Planned;
    use super::*;
    use crate::solver::Settings;
    use crate::{Cpu, Error};

    #[test]
    fn a_convergence_that_is_only_rounding_is_denied_on_any_number_of_ranks() {
        // Equations i of each third: x + y + z = 0, x + z = 0, y = 1. In f64 2^60 + 1 - 2^60 is 0.
        let third = 1024;
        let n = 3 * third;
        let (one, huge) = (|row, column| (row, column, 1.0), 2f64.powi(60));
        let entries = (0..third).flat_map(|i| {
            let (j, k) = (i + third, i + 2 * third);
            [one(i, i), one(i, j), one(i, k), one(j, i), one(j, k), one(k, j)]
        });
        let a = Csr::from_triplets(n, n, entries).unwrap();
        let of_third = |values: [f64; 3]| -> Vec<f64> { (0..n).map(|i| values[i / third]).collect() };
        let (b, x0) = (of_third([0.0, 0.0, 1.0]), of_third([huge, 1.0, -huge]));
        for ranks in 1..=3 {
            let ended = Threads::run(ranks, |team| {
                let device = Distributed::new(Cpu::with_threads(1)?, team);
                let own = Partition::even(n as u64, ranks).rows(device.rank());
                let here = own.start as usize..own.end as usize;
                let settings = Settings {
                    method: Some(Method::Gmres),
                    preconditioner: Some(Precond::None),
                    ..Settings::default()
                };
                let planned = Planned::new(&device, rows_of(&a, own), &settings, None)?;
                let watch = &mut |_, _| std::ops::ControlFlow::Continue(());
                let solution = planned.solve(&device, &b[here.clone()], Some(&x0[here]), watch)?;
                Ok::<_, Error>((solution.outcome.status, solution.outcome.true_residual))
            });
            for rank in ended {
                assert_eq!(rank.unwrap(), (Status::Stagnated, 1.0), "{ranks} ranks");
            }
        }
    }
}
