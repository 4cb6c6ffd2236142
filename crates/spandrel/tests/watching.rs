//! What a watcher sees of a solve, and where it may end it: x at each look, the phases of what takes over, several
//! right-hand sides. Also the preconditioner by itself.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use spandrel::Solver;
use spandrel::any::Choice;
use spandrel::formats::{Csr, generate};
use spandrel::solver::{Builder, Event, NullVectors, Precision, Reorder, Scale, Stage};
use spandrel::solvers::{Method, Precond, Status};

fn on_cpu() -> Builder {
    Solver::builder().device(Choice::Cpu)
}

fn matrix(spec: &str) -> Csr<f64> {
    generate::csr(spec).expect("a matrix")
}

/// A watcher that keeps the x of every look at an iteration, with its number, and ends the solve at `stop`.
#[allow(clippy::type_complexity)]
fn keeping(
    stop: usize,
) -> (Arc<Mutex<Vec<(usize, Option<Vec<f64>>)>>>, impl FnMut(Event<'_>) -> ControlFlow<()> + Send + 'static) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let watch = move |event: Event<'_>| {
        if let Event::Iteration(_, at, iterate) = event {
            keep.lock().expect("no panic").push((at.iterations, iterate.x().expect("a CPU")));
            if at.iterations >= stop {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    (kept, watch)
}

#[test]
fn x_at_a_look_is_in_the_matrix_s_own_numbering() {
    let a = matrix("convdiff2d:14,peclet=2");
    let b: Vec<f64> = (0..a.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();
    for reorder in [Reorder::None, Reorder::Rcm] {
        if reorder == Reorder::Rcm && cfg!(not(feature = "sprs")) {
            continue;
        }
        let build = || on_cpu().method(Method::BiCgStab).preconditioner(Precond::Ilu0).reorder(reorder).check_every(1);
        let (kept, watch) = keeping(5);
        let mut solver = build().on_progress(watch).build(a.clone()).expect("a solver");
        let solution = solver.solve(&b).expect("a solve");
        assert_eq!((solution.outcome.status, solution.outcome.iterations), (Status::Interrupted, 5));
        let kept = kept.lock().expect("no panic");
        assert_eq!(kept.last(), Some(&(5, Some(solution.x))));
        for (iterations, x) in kept.iter().skip(1) {
            let mut short = build().max_iterations(*iterations).build(a.clone()).expect("a solver");
            assert_eq!(x.as_ref(), Some(&short.solve(&b).expect("a solve").x), "{reorder} {iterations}");
        }
    }
    // In f32 too; the watcher gets f64.
    let narrow = a.map(|v| v as f32);
    let (kept, watch) = keeping(3);
    let builder = on_cpu().method(Method::BiCgStab).preconditioner(Precond::Jacobi).check_every(1).on_progress(watch);
    let solution = builder.build(narrow).expect("a solver").solve(&vec![1.0; a.nrows()]).expect("a solve");
    let wide: Vec<f64> = solution.x.iter().map(|&x| f64::from(x)).collect();
    assert_eq!(kept.lock().expect("no panic").last(), Some(&(3, Some(wide))));
}

#[test]
fn there_is_no_x_where_another_loop_corrects_it() {
    let a = matrix("poisson2d:14");
    let b: Vec<f64> = (0..a.nrows()).map(|i| (i % 7) as f64).collect();
    let uneven = a.map(|v| v * 1e-3);
    let cg = || on_cpu().method(Method::Cg).preconditioner(Precond::Ic0);
    for (builder, a) in [
        (cg().precision(Precision::Refined), &a),
        (cg().scale(Scale::Equilibrate), &uneven),
        (on_cpu().method(Method::Cg).preconditioner(Precond::Jacobi).null_space(NullVectors::Constant), &a),
    ] {
        let (kept, watch) = keeping(usize::MAX);
        let _ = builder.on_progress(watch).build(a.clone()).expect("a solver").solve(&b).expect("a solve");
        let kept = kept.lock().expect("no panic");
        assert!(!kept.is_empty() && kept.iter().all(|(_, x)| x.is_none()), "{kept:?}");
    }
}

/// A matrix on which CG, the choice of the policy, fails, so that another method takes over. The right-hand side has a
/// part in every direction.
fn indefinite() -> (Csr<f64>, Vec<f64>) {
    let a = matrix("poisson2d:24").map(|v| if v > 0.0 { v - 0.3 } else { v });
    let b = (0..a.nrows()).map(|i| ((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.4).collect();
    (a, b)
}

#[test]
fn an_interruption_between_two_attempts_keeps_the_x_of_the_first() {
    let (a, b) = indefinite();
    // The x of the first attempt alone.
    let build = || on_cpu().preconditioner(Precond::Jacobi).reorder(Reorder::None);
    let mut first = build().fallback(spandrel::solver::Fallback::None).build(a.clone()).expect("a solver");
    let first = first.solve(&b).expect("a solve");
    assert!(!first.outcome.status.is_converged() && first.outcome.iterations > 0, "{}", first.outcome);
    // The watcher ends the solve at the note about what takes over, or at the stage that follows it.
    for at_note in [true, false] {
        let mut solves = 0;
        let watch = move |event: Event<'_>| {
            let ends = match event {
                Event::Note(note) => at_note && note.contains("takes over"),
                Event::Stage(Stage::Solve, _) => {
                    solves += 1;
                    !at_note && solves == 2
                }
                _ => false,
            };
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut solver = build().on_progress(watch).build(a.clone()).expect("a solver");
        let solution = solver.solve(&b).expect("x is kept");
        assert_eq!(solution.outcome.status, Status::Interrupted);
        assert_eq!((solution.x, solution.outcome.iterations), (first.x.clone(), first.outcome.iterations));
    }
}

#[test]
fn an_interruption_before_a_factorisation_keeps_x() {
    // With a small diagonal incomplete factors are poor, so the iteration gives way.
    let a = matrix("convdiff2d:50,peclet=1").map(|v| if v > 0.0 { v - 4.0 } else { v });
    let b: Vec<f64> = (0..a.nrows()).map(|i| 1.0 + (i % 5) as f64).collect();
    for end in ["complete factorisation takes over", "the factorisation", "with the factors"] {
        let met = Arc::new(Mutex::new(false));
        let tell = Arc::clone(&met);
        let watch = move |event: Event<'_>| {
            let ends = match event {
                Event::Note(note) => note.contains(end),
                Event::Stage(_, detail) => detail == end,
                _ => false,
            };
            *tell.lock().expect("no panic") |= ends;
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut solver = on_cpu().reorder(Reorder::None).on_progress(watch).build(a.clone()).expect("an iteration");
        assert_ne!(solver.plan().method, Method::Direct);
        let solution = solver.solve(&b).expect("x is kept");
        assert!(*met.lock().expect("no panic"), "{end}: {} {:?}", solution.outcome, solution.note);
        assert_eq!(solution.outcome.status, Status::Interrupted, "{end}");
        assert!(solution.outcome.iterations > 0 && solution.x.iter().any(|&x| x != 0.0), "{end}");
    }
}

#[test]
fn an_interrupted_column_is_the_last() {
    let a = matrix("poisson2d:20");
    let n = a.nrows();
    let b: Vec<f64> = (0..3 * n).map(|i| 1.0 + (i % 11) as f64).collect();
    let mut starts = 0;
    let watch = move |event: Event<'_>| {
        if let Event::Stage(Stage::Solve, _) = event {
            starts += 1;
        }
        match event {
            Event::Iteration(_, at, _) if starts == 2 && at.iterations > 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let builder = on_cpu().method(Method::Cg).preconditioner(Precond::Jacobi).check_every(1).on_progress(watch);
    let found = builder.build(a).expect("a solver").solve_many(&b).expect("columns");
    let statuses: Vec<Status> = found.outcomes.iter().map(|outcome| outcome.status).collect();
    assert_eq!((statuses, found.x.len()), (vec![Status::Converged, Status::Interrupted], 2 * n));
}

/// M^-1 A is near I if M is a good preconditioner, so it changes a vector little. With a complete factorisation the
/// change is only rounding.
#[test]
fn the_preconditioner_can_be_applied_by_itself() {
    let a = matrix("convdiff2d:16,peclet=1");
    let spd = matrix("poisson2d:16");
    let v: Vec<f64> = (0..a.nrows()).map(|i| ((i * 37) % 19) as f64 - 9.0).collect();
    let distance = |z: &[f64]| {
        let norm = |w: &mut dyn Iterator<Item = f64>| w.map(|w| w * w).sum::<f64>().sqrt();
        norm(&mut z.iter().zip(&v).map(|(z, v)| z - v)) / norm(&mut v.iter().copied())
    };
    let bicgstab = || on_cpu().method(Method::BiCgStab).preconditioner(Precond::Ilu0);
    let reordered = if cfg!(feature = "sprs") { Reorder::Rcm } else { Reorder::None };
    let powers = a.map(|v| v * 1024.0);
    for (builder, a, below) in [
        (on_cpu().method(Method::Direct), &a, 1e-12),
        (bicgstab(), &a, 0.5),
        (bicgstab().reorder(reordered), &a, 0.5),
        (bicgstab().precision(Precision::Mixed), &a, 0.5),
        (bicgstab().precision(Precision::Refined), &powers, 0.5),
        (bicgstab().scale(Scale::Equilibrate), &powers, 0.5),
        (bicgstab().scale(Scale::Match), &powers, 0.5),
        (on_cpu().method(Method::Cg).preconditioner(Precond::Ic0), &spd, 0.5),
    ] {
        let solver = builder.build(a.clone()).expect("a solver");
        let z = solver.precondition(&a.mul_vec(&v).expect("a product")).expect("z");
        assert!(distance(&z) < below, "{}: {}", solver.plan(), distance(&z));
        let short = solver.precondition(&v[1..]).expect_err("a short r").to_string();
        assert!(short.contains("r has 255 elements, expected 256"), "{short}");
    }
    let none = on_cpu().method(Method::Cg).preconditioner(Precond::None).build(spd).expect("a solver");
    assert_eq!(none.precondition(&v).expect("z"), v);
}
