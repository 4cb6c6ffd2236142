//! Trials of new values for a whole solver ([`DeviceSolver`](spandrel::DeviceSolver)): the next solve has the bits of a
//! new solver, whatever stores the matrix and makes the preconditioner, from the host and from the device.

use std::rc::Rc;
use std::sync::Arc;

use spandrel::solver::{Builder, FormatChoice, Precision, SolverBackend};
use spandrel_backend::Backend;
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{Precond, Status};

use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Preconditioners whose new values have the bits of new ones. `amg` keeps its aggregates, so it has these bits only if
/// the values are those that it was made for.
const NOUNS: [&str; 7] = ["none", "jacobi", "ssor", "ic0", "mg=gauss-seidel", "mg=chebyshev", "chebyshev=3"];
/// Formats that a device may make from rows that are there, and that it may not.
const FORMATS: [&str; 5] = ["csr", "dia", "sell", "bsr", "hyb"];
const PRECISIONS: [Precision; 3] = [Precision::Native, Precision::Mixed, Precision::Refined];
const SPEC: &str = "poisson3d:9x8x7";
/// The noun of `amg`, and matrices for it: on a grid, and one whose rows a device may renumber.
const AMG: &str = "amg";
const OF_AMG: [(&str, &[&str]); 2] = [(SPEC, &FORMATS), ("electrostatic:n=4000", &["csr", "sell"])];

/// A trial for each preconditioner and precision.
pub(crate) fn trials<D: SolverBackend<f64>>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for noun in NOUNS {
        for precision in PRECISIONS {
            // Mixed precision is that of a preconditioner.
            if noun == "none" && precision == Precision::Mixed {
                continue;
            }
            let name = format!("solver-values/{noun}/f64/{}/{}-{precision}", fleet.name, SPEC.replace(':', "-"));
            let fleet = Rc::clone(fleet);
            out.push(Trial::new(name, move || check(fleet.first(), noun, precision, (SPEC, &FORMATS))));
        }
    }
    for (spec, formats) in OF_AMG {
        for precision in PRECISIONS {
            let name = format!("solver-values/{AMG}/f64/{}/{}-{precision}", fleet.name, spec.replace(':', "-"));
            let fleet = Rc::clone(fleet);
            out.push(Trial::new(name, move || check(fleet.first(), AMG, precision, (spec, formats))));
        }
    }
}

fn check<D: SolverBackend<f64>>(
    be: &D,
    noun: &str,
    precision: Precision,
    (spec, formats): (&str, &'static [&'static str]),
) -> Verdict {
    let preconditioner: Precond = noun.parse().map_err(|error| wrong(format!("{noun}: {error}")))?;
    let a = generate::csr::<f64>(spec).map_err(|error| wrong(error.to_string()))?;
    let b = numbers(41, a.nrows());
    for &format in formats {
        let builder = || {
            let format = FormatChoice::Named(format);
            Builder::default().preconditioner(preconditioner).precision(precision).format(format)
        };
        let build = |a: &Csr<f64>| builder().build_on(be, Arc::new(a.clone())).map_err(failed);
        let mut old = build(&a)?;
        // Also back to the first values.
        for (round, next) in [others(&a, 1), others(&a, 2), a.clone()].into_iter().enumerate() {
            if round == 1 {
                let values = Backend::<f64>::upload(be, next.values())?;
                old.update_values_from(be, &values).map_err(failed)?;
            } else {
                old.update_values(be, next.values()).map_err(failed)?;
            }
            let found = old.solve(be, &b).map_err(failed)?;
            if noun == AMG && round < 2 {
                if found.outcome.status != Status::Converged {
                    return Err(wrong(format!("{format}, values {round}: ended as {}", found.outcome)));
                }
                continue;
            }
            let wanted = build(&next)?.solve(be, &b).map_err(failed)?;
            let place = format!("{format}, values {round}");
            if wanted.outcome.status != Status::Converged {
                return Err(wrong(format!("{place}: a new solver ended as {}", wanted.outcome)));
            }
            if let Some(detail) = difference(&found.x, &wanted.x) {
                return Err(wrong(format!("{place}: {detail}")));
            }
            let counts = |solution: &spandrel::solver::Solution<f64>| {
                (solution.outcome.status, solution.outcome.iterations, solution.preconditioner)
            };
            if counts(&found) != counts(&wanted) {
                return Err(wrong(format!("{place}: expected {:?}, found {:?}", counts(&wanted), counts(&found))));
            }
        }
    }
    Ok(())
}

fn failed(error: spandrel_solvers::Error) -> Finding {
    match error {
        spandrel_solvers::Error::Backend(error) => error.into(),
        error => wrong(error.to_string()),
    }
}

/// Other values on the pattern, at another scale; symmetric and dominant as the first are.
fn others(a: &Csr<f64>, round: u32) -> Csr<f64> {
    let mut next = a.clone();
    let scale = [1.0, 1e20, 3e-20][round as usize % 3];
    for i in 0..a.nrows() {
        let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
        for (v, &j) in next.values_mut()[range].iter_mut().zip(a.row(i).0) {
            // The off-diagonal entries get smaller by up to an eighth, the same on both sides.
            let less = if j as usize == i { 0 } else { (i as u32 + j + round) % 5 };
            *v *= scale * (1.0 - f64::from(less) / 32.0);
        }
    }
    next
}
