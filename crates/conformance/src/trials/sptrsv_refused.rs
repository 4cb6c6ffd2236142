//! Trials of refused triangular solves: matrices that are not triangles or not grids, values, lengths, a system that
//! was not analysed. Each refusal is a typed error that names the row, and everything else stays as it was.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Error as Refusal, Sptrsv};
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_sptrsv::{Diagonal, Error, Plan, Sweep, System, Systems, Triangle, Triangular};

use super::sptrsv::{Ask, Checked, SYSTEMS, Shared, Solves, Subjects, analyze, differing, label, on};
use crate::case::numbers;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle::Problem;

/// Refused values: too few, too many, a zero on the diagonal.
pub(crate) fn values<T: Real>(subject: &dyn Solves<T>, problem: &Problem<T>) -> Verdict {
    let nnz = problem.matrix.csr().values().len();
    for len in [0, nnz - 1, nnz + 1] {
        match subject.update(&vec![T::one(); len]) {
            Err(Refusal::Triangle(Error::Shape { found, expected, .. })) if (found, expected) == (len, nnz) => {}
            other => return Err(wrong(format!("{len} values instead of {nnz}: found {other:?}"))),
        }
    }
    if problem.matrix.diagonal() == Diagonal::Unit {
        return Ok(());
    }
    let row = problem.nrows() / 2;
    let (begin, end) = (problem.matrix.csr().row_ptr()[row] as usize, problem.matrix.csr().row_ptr()[row + 1] as usize);
    let at = if problem.matrix.triangle() == Triangle::Lower { end - 1 } else { begin };
    for zero in [0.0, -0.0] {
        let mut values = problem.matrix.csr().values().to_vec();
        values[at] = T::from_f64(zero);
        match subject.update(&values) {
            Err(Refusal::Triangle(Error::ZeroDiagonal { row: found })) if found == row => {}
            other => return Err(wrong(format!("a zero on the diagonal of row {row}: found {other:?}"))),
        }
    }
    Ok(())
}

/// Vectors that are too short or too long, refused by the wrapper and by the backend itself. x stays as it was, and the
/// next solve is right.
pub(crate) fn lengths<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>) -> Verdict {
    let (_, subject) = &subjects[0];
    let n = checked.problem.nrows();
    for system in SYSTEMS {
        for checks in [true, false] {
            for (k, b, x) in [(1, n + 1, n), (1, n, n - 1), (1, 0, n), (2, 2 * n, n), (3, 3 * n - 1, 3 * n)] {
                for in_place in [false, true] {
                    // In place, the wrapper takes one column, and only x can be wrong.
                    if in_place && (x == n * k || (checks && k > 1)) {
                        continue;
                    }
                    let (b, before) = (numbers::<T>(1, b), numbers::<T>(2, x));
                    let ask = Ask { in_place, ..Ask::new(system, &b) };
                    let (refusal, after) = subject.mismatched(checks, &ask, k, &before);
                    let lengths = format!("{k} columns, b of {}, x of {x}, in place: {in_place}", b.len());
                    match refusal {
                        Err(Refusal::Shape { expected, .. }) if expected == n * k => {}
                        other => {
                            return Err(wrong(format!("{system}, {lengths}: expected a refusal, found {other:?}")));
                        }
                    }
                    differing(&after?, &before).map_err(|d| wrong(format!("{system}, {lengths}, x after: {d}")))?;
                }
            }
        }
    }
    super::sptrsv::values(subjects, checked, true)
}

/// T^T is refused by a plan that was analysed only for T, and T is solved.
pub(crate) fn not_analyzed<P: Plan, D: Sptrsv<P>>(fleet: &Fleet<D>, shared: &Shared<P::Value>) -> Verdict {
    for checked in shared.problems()? {
        let n = checked.problem.nrows();
        let plan: P = analyze(&checked.problem, Systems::Plain)?;
        if plan.systems() != Systems::Plain {
            return Err(wrong(format!("it was analysed for {:?}", plan.systems())));
        }
        let subject = on::<P, D>(fleet.first(), plan)?;
        let (b, before) = (&checked.problem.b[..n], numbers::<P::Value>(2, n));
        for in_place in [false, true] {
            let ask = Ask { in_place, ..Ask::new(System::Transposed, b) };
            let (refusal, after) = subject.mismatched(true, &ask, 1, &before);
            match refusal {
                Err(Refusal::Unsupported { op: "sptrsv", noun, .. }) if noun == P::NAME => {}
                other => return Err(wrong(format!("T^T by the wrapper: expected Unsupported, found {other:?}"))),
            }
            differing(&after?, &before).map_err(|d| wrong(format!("x after a refusal by the wrapper: {d}")))?;
            let (refusal, after) = subject.mismatched(false, &ask, 1, &before);
            match refusal {
                Err(Refusal::Unsupported { .. } | Refusal::Triangle(Error::NotAnalyzed)) => {}
                other => return Err(wrong(format!("T^T by the backend: expected a refusal, found {other:?}"))),
            }
            differing(&after?, &before).map_err(|d| wrong(format!("x after a refusal by the backend: {d}")))?;
        }
        let x = subject.solve(&Ask::new(System::Plain, b))?;
        let stored = subject.order(System::Plain) == spandrel_backend::Order::Stored;
        checked.problem.check(System::Plain, stored, b, &checked.x[0][..n], &x).map_err(wrong)?;
    }
    Ok(())
}

/// The trials of refusals that need no device.
pub(crate) fn trials<T: Real, D: Sptrsv<Sweep<T>> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    out.push(Trial::new(label::<Sweep<T>, D>(fleet, "refused-grids"), grids::<T>));
    let name = format!("sptrsv/triangle/{}/{}/refused-triangles", T::NAME, fleet.name);
    out.push(Trial::new(name, triangles::<T>));
}

fn matrix<T: Real>(n: usize, ncols: usize, entries: &[(usize, usize, f64)]) -> Result<Csr<T>, Finding> {
    let mut triplets = Triplets::new(n, ncols)?;
    for &(i, j, value) in entries {
        triplets.push(i, j, T::from_f64(value))?;
    }
    Ok(triplets.to_csr()?)
}

fn refused<R>(what: &str, result: Result<R, Error>, kind: fn(&Error) -> bool, text: &str) -> Verdict {
    match result.err() {
        Some(error) if kind(&error) && error.to_string().contains(text) => Ok(()),
        other => Err(wrong(format!("{what}: expected an error that says {text:?}, found {other:?}"))),
    }
}

fn triangles<T: Real>() -> Verdict {
    use Diagonal::{NonUnit, Unit};
    use Triangle::{Lower, Upper};
    let make = |entries: &[(usize, usize, f64)], triangle, diagonal| {
        Ok::<_, Finding>(Triangular::new(matrix::<T>(3, 3, entries)?, triangle, diagonal))
    };
    let lower = [(0, 0, 1.0), (1, 0, 2.0), (1, 1, 3.0), (2, 1, 4.0), (2, 2, 5.0)];
    let with = |at: usize, entry| {
        let mut entries = lower;
        entries[at] = entry;
        entries
    };
    make(&lower, Lower, NonUnit)?.map_err(wrong)?;
    for zero in [0.0, -0.0] {
        let result = make(&with(2, (1, 1, zero)), Lower, NonUnit)?;
        refused("a zero on the diagonal", result, |e| matches!(e, Error::ZeroDiagonal { row: 1 }), "row 1")?;
    }
    let result = make(&with(4, (2, 0, 1.0)), Lower, NonUnit)?;
    refused("no diagonal", result, |e| matches!(e, Error::MissingDiagonal { row: 2 }), "row 2")?;
    let result = make(&with(0, (0, 2, 1.0)), Lower, Unit)?;
    refused("above", result, |e| matches!(e, Error::NotTriangular { row: 0, col: 2, .. }), "row 0")?;
    let result = make(&lower, Upper, Unit)?;
    refused("below", result, |e| matches!(e, Error::NotTriangular { row: 1, col: 0, .. }), "row 1")?;
    let wide = Triangular::new(matrix::<T>(2, 3, &[(0, 0, 1.0)])?, Lower, Unit);
    refused("2 x 3", wide, |e| matches!(e, Error::NotSquare { nrows: 2, ncols: 3 }), "2 x 3")?;
    // A unit diagonal is not read, so a zero or missing entry there does not matter.
    make(&with(2, (1, 1, 0.0)), Lower, Unit)?.map_err(wrong)?;
    make(&with(4, (2, 0, 1.0)), Lower, Unit)?.map_err(wrong)?;
    Ok(())
}

/// What [`Sweep::on_grid`] refuses: another number of points, a stencil that is not lower, an entry outside the
/// stencil; and matrices that are not grids.
fn grids<T: Real>() -> Verdict {
    let entries = |extra: Option<(usize, usize, f64)>, mirrored: bool| {
        let mut entries: Vec<_> = (0..12).map(|i| (i, i, 2.0)).collect();
        entries.extend((0..12).filter(|i| i % 4 > 0).map(|i| (i, i - 1, 1.0)));
        entries.extend((4..12).map(|i| (i, i - 4, 1.0)));
        entries.extend(extra);
        entries.iter_mut().filter(|_| mirrored).for_each(|(i, j, _)| (*i, *j) = (11 - *i, 11 - *j));
        entries
    };
    let star = [[-1, 0, 0], [0, -1, 0]];
    for (triangle, mirrored) in [(Triangle::Lower, false), (Triangle::Upper, true)] {
        let make = |extra| -> Result<Arc<Triangular<T>>, Finding> {
            let csr = matrix::<T>(12, 12, &entries(extra, mirrored))?;
            Ok(Arc::new(Triangular::new(csr, triangle, Diagonal::NonUnit).map_err(wrong)?))
        };
        let plan = |extra, size, offsets: &[[i32; 3]]| {
            Ok::<_, Finding>(Sweep::on_grid(make(extra)?, size, offsets, Systems::Both))
        };
        plan(None, [4, 3, 1], &star)?.map_err(wrong)?;
        for size in [[4, 4, 1], [12, 0, 1], [usize::MAX, 2, 3]] {
            refused(
                "another grid",
                plan(None, size, &star)?,
                |e| matches!(e, Error::Shape { expected: 12, .. }),
                "12",
            )?;
        }
        for offset in [[0, 0, 0], [1, 0, 0], [-1, 1, 0], [0, 0, 1]] {
            let result = plan(None, [4, 3, 1], &[star[0], star[1], offset])?;
            refused("an upper stencil", result, |e| matches!(e, Error::NotAGrid { plan: "sweep", .. }), "not lower")?;
        }
        // The entry connects the end of a line with the start of the next, or lies two lines back.
        for (row, col) in [(4, 3), (9, 1)] {
            let result = plan(Some((row, col, 1.0)), [4, 3, 1], &star)?;
            let (row, col) = if mirrored { (11 - row, 11 - col) } else { (row, col) };
            let found = format!("{:?}", result.as_ref().err());
            let wanted = format!("row {row} has an entry in column {col}");
            refused(&found, result, |e| matches!(e, Error::OutsideStencil { .. }), &wanted)?;
        }
        let result = plan(None, [4, 3, 1], &star[..1])?;
        refused("a missing offset", result, |e| matches!(e, Error::OutsideStencil { .. }), "column")?;
    }
    let scattered: Vec<_> =
        (0..90).map(|i| (i, i, 1.0)).chain((1..90).map(|i| (i, (i * i * 7 + i * 3) % i, 1.0))).collect();
    let csr = matrix::<T>(90, 90, &scattered)?;
    let none = Arc::new(Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).map_err(wrong)?);
    let result = Sweep::analyze(none, Systems::Plain);
    refused(
        "no grid",
        result,
        |e| matches!(e, Error::NotAGrid { plan: "sweep", .. }),
        "sweep needs a triangle on a grid",
    )
}
