//! The columns of B, each a system with the same matrix.
//!
//! Cost: X in addition to B. The matrix, its factors and the workspaces of a method are those of one column.

use std::time::Instant;

use spandrel::solver::{Attempt, DeviceSolver, Element, SolverBackend, Times};
use spandrel::solvers::{Error, Outcome, Status};
use spandrel::{Method, Precond, Solution};
use spandrel_formats::Dense;

/// Words for the end of a solve, from the best to the worst.
const FROM_BEST: [Status; 13] = [
    Status::Converged,
    Status::BackwardStable,
    Status::Inconsistent,
    Status::Singular,
    Status::Interrupted,
    Status::MaxIterations,
    Status::Stagnated,
    Status::Diverged,
    Status::Breakdown,
    Status::IndefinitePreconditioner,
    Status::IndefiniteMatrix,
    Status::ZeroPivot,
    Status::NotFinite,
];

/// How one column was solved.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) outcome: Outcome,
    /// The method and the preconditioner that ended it.
    pub(super) method: Method,
    pub(super) precond: Precond,
    /// The last method that was given up for another, how it ended, and after how many iterations.
    pub(super) given_up: Option<(Method, Status, usize)>,
    /// All that was given up, in order.
    pub(super) attempts: Vec<Attempt>,
    pub(super) note: Option<String>,
}

/// X, and how each of its columns was found.
#[derive(Debug)]
pub(super) struct Solved<T> {
    pub(super) x: Dense<T>,
    pub(super) columns: Vec<Column>,
    pub(super) times: Times,
}

impl<T> Solved<T> {
    /// The word of the column that ended worst.
    pub(super) fn status(&self) -> Status {
        worst(self.columns.iter().map(|column| column.outcome.status))
    }
}

fn worst(each: impl Iterator<Item = Status>) -> Status {
    let place = |status: &Status| FROM_BEST.iter().position(|known| known == status).unwrap_or(FROM_BEST.len());
    each.max_by_key(place).unwrap_or(Status::Converged)
}

/// Solves A X = B, each column from the same column of `x0`, or from 0.
///
/// # Errors
/// Those of the solver.
pub(super) fn solve<T: Element, B: SolverBackend<T>>(
    solver: &mut DeviceSolver<T, B>,
    device: &B,
    b: &Dense<T>,
    x0: Option<&Dense<T>>,
) -> Result<Solved<T>, Error> {
    let (nrows, columns) = (solver.plan().ncols, b.ncols());
    // Factors take all columns at once. An iteration runs column by column, because it also reports what it gave up.
    if solver.plan().method == Method::Direct && columns > 1 {
        let precond = solver.plan().preconditioner;
        let begin = Instant::now();
        let solutions = solver.solve_many(device, b.values())?;
        let mut times = Times::default();
        times.solve = begin.elapsed().as_secs_f64();
        let column = |outcome: Outcome| {
            let note = outcome.note.map(str::to_owned);
            Column { outcome, method: Method::Direct, precond, given_up: None, attempts: Vec::new(), note }
        };
        let x = Dense::new(nrows, columns, solutions.x)?;
        return Ok(Solved { x, columns: solutions.outcomes.into_iter().map(column).collect(), times });
    }
    let (mut x, mut found, mut times) = (Vec::new(), Vec::with_capacity(columns), Times::default());
    for j in 0..columns {
        let solution = match x0 {
            Some(x0) => solver.solve_from(device, b.column(j), x0.column(j))?,
            None => solver.solve(device, b.column(j))?,
        };
        let Solution { x: column, outcome, method, preconditioner: precond, attempts, note, times: spent, .. } =
            solution;
        times.analyze += spent.analyze;
        times.load += spent.load;
        times.setup += spent.setup;
        times.solve += spent.solve;
        let given_up = attempts.last().filter(|last| last.method != method);
        let given_up = given_up.map(|last| (last.method, last.status, last.iterations));
        found.push(Column { outcome, method, precond, given_up, attempts, note });
        // The first column is not copied: there may be no other.
        if x.is_empty() { x = column } else { x.extend_from_slice(&column) }
    }
    Ok(Solved { x: Dense::new(nrows, columns, x)?, columns: found, times })
}

/// The first element of several columns that is infinite or NaN, in words. A single column is left to the solver, which
/// names its element.
pub(super) fn not_finite<T: Element>(b: &Dense<T>, x0: Option<&Dense<T>>) -> Option<String> {
    if b.ncols() == 1 {
        return None;
    }
    [("b", Some(b)), ("x0", x0)].into_iter().find_map(|(name, vectors)| {
        let vectors = vectors?;
        let at = vectors.values().iter().position(|v| !v.is_finite())?;
        let (column, element) = (at / vectors.nrows() + 1, at % vectors.nrows() + 1);
        let found = if vectors.values()[at].is_nan() { "NaN" } else { "infinite" };
        Some(format!("element {element} of column {column} of {name} (counted from 1) is {found}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_place_and_the_worst_is_told() {
        for status in Status::ALL {
            assert!(FROM_BEST.contains(&status), "{status}");
        }
        assert_eq!(worst([Status::Converged, Status::Stagnated, Status::MaxIterations].into_iter()), Status::Stagnated);
        assert_eq!(worst([Status::NotFinite, Status::Converged].into_iter()), Status::NotFinite);
        assert_eq!(worst([Status::Converged; 2].into_iter()), Status::Converged);
    }

    #[test]
    fn an_element_is_named_with_its_column() {
        let b = Dense::new(2, 2, vec![1.0, 2.0, 3.0, f64::NAN]).unwrap();
        let said = "element 2 of column 2 of b (counted from 1) is NaN";
        assert_eq!(not_finite(&b, None).as_deref(), Some(said));
        let finite = Dense::new(2, 2, vec![1.0; 4]).unwrap();
        assert_eq!(not_finite(&finite, None), None);
        assert!(not_finite(&finite, Some(&b)).unwrap().contains("of x0"));
    }
}
