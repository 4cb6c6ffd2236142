//! What takes over from an iteration, and how the report names it. Tested are answers that rounding limits, long
//! iterations, factors that do not fit, and what a solver remembers of a singular matrix for the next right-hand side.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use spandrel::any::Choice;
use spandrel::formats::{Csr, Profile, generate};
use spandrel::solver::{Builder, Event, Fallback, Precision, Reorder, Stage};
use spandrel::solvers::{Method, Precond, Status};
use spandrel::{Backend, Cpu, Solver};

fn matrix(spec: &str) -> Csr<f64> {
    generate::csr(spec).expect("a generated matrix")
}

/// A vector that has every frequency in it, and so has the answer for it.
fn uneven(n: usize) -> Vec<f64> {
    (0..n).map(|i| 1.0 + (i * i % 17) as f64 / 4.0 - (i % 3) as f64).collect()
}

#[test]
fn an_answer_that_rounding_limits_is_judged_alike_wherever_its_vectors_lie() {
    let a = matrix("poisson3d:10");
    let b = uneven(a.nrows());
    let device = Cpu::new();
    // No residual becomes so small; rounding ends the iteration.
    let builder = || Builder::default().rtol(1e-30);
    let mut solver = builder().build_on(&device, a.clone()).expect("a solver");
    assert_eq!(solver.plan().method, Method::Cg);
    let solution = solver.solve(&device, &b).expect("a solve");
    assert_eq!(
        (solution.outcome.status, solution.method),
        (Status::BackwardStable, Method::Cg),
        "{}",
        solution.outcome
    );
    let mut again = builder().build_on(&device, a).expect("a solver");
    let rhs = device.upload(&b).expect("b");
    let mut x = Backend::<f64>::zeros(&device, b.len()).expect("x");
    let outcome = again.solve_on(&device, &rhs, &mut x).expect("a solve");
    assert_eq!((outcome.status, again.plan().method), (Status::BackwardStable, Method::Cg), "{outcome}");
    assert_eq!(Backend::<f64>::download(&device, &x).expect("x"), solution.x);
}

#[test]
fn a_long_iteration_that_does_not_get_on_ends_unless_it_was_asked_to_go_on() {
    // On a line CG makes hardly any progress until each point has had an influence on every other. Then it is done.
    let a = matrix("poisson1d:1500");
    let b: Vec<f64> = (0..a.nrows()).map(|i| f64::from(u8::from(i == 0))).collect();
    let mut slow = Profile::reference();
    slow.memory.nanoseconds_per_byte *= 1e4;
    let named = |device: &Cpu, builder: Builder| {
        let builder = builder.method(Method::Cg).preconditioner(Precond::None);
        let mut solver = builder.build_on(device, a.clone()).expect("a solver");
        solver.solve(device, &b).expect("a solve").outcome
    };
    let slow = Cpu::new().with_profile(slow);
    let outcome = named(&slow, Builder::default());
    assert_eq!(outcome.status, Status::MaxIterations, "{outcome}");
    assert!((1000..1100).contains(&outcome.iterations), "{outcome}");
    for (device, builder) in [
        (&slow, Builder::default().fallback(Fallback::None)),
        (&slow, Builder::default().max_iterations(20_000)),
        (&Cpu::new(), Builder::default()),
    ] {
        assert_eq!(named(device, builder).status, Status::Converged);
    }
}

/// A Laplacian less a multiple of the identity: indefinite, with a positive diagonal.
fn indefinite(points: usize, shift: f64) -> Csr<f64> {
    let mut a = matrix(&format!("poisson2d:{points}"));
    for i in 0..a.nrows() {
        let at = a.row_ptr()[i] as usize + a.row(i).0.partition_point(|&j| (j as usize) < i);
        a.values_mut()[at] -= shift;
    }
    a
}

#[test]
fn where_factors_do_not_fit_gmres_with_ilut_is_the_last_attempt() {
    let a = indefinite(30, 1.7);
    let b = uneven(a.nrows());
    let builder = || Solver::builder().device(Choice::Cpu);
    let mut solver = builder().memory_limit(0).build(a.clone()).expect("a solver");
    assert_ne!(solver.plan().method, Method::Direct);
    let solution = solver.solve(&b).expect("a solve");
    assert_eq!(
        solution.outcome.status,
        Status::Converged,
        "{:?} {:?} {}",
        solution.outcome,
        solution.attempts,
        solution.preconditioner
    );
    assert_eq!(solution.method, Method::Gmres);
    assert!(matches!(solution.preconditioner, Precond::Ilut(_)), "{}", solution.preconditioner);
    // BiCGStab would run into its limit of 18,000 iterations.
    let slow = solution.attempts.last().expect("an attempt before");
    assert!(slow.method == Method::BiCgStab && slow.iterations < 5000, "{:?}", solution.attempts);
    // The solver keeps its plan and makes the same attempts for the next right-hand side.
    let next = solver.solve(&b).expect("a solve");
    assert_eq!((next.x, next.attempts.len()), (solution.x, solution.attempts.len()));
    // Each attempt counts its own seconds, which are part of the solve's.
    assert!(solution.attempts.iter().all(|attempt| attempt.seconds > 0.0));
    let tried: f64 = solution.attempts.iter().map(|attempt| attempt.seconds).sum();
    assert!(tried <= solution.times.solve, "{tried} of {}", solution.times.solve);
    // With room for them, factors take over.
    let solution = builder().build(a.clone()).expect("a solver").solve(&b).expect("a solve");
    assert_eq!((solution.outcome.status, solution.method), (Status::Converged, Method::Direct));
    // Without a fallback nothing takes over.
    let solution =
        builder().memory_limit(0).fallback(Fallback::None).build(a).expect("a solver").solve(&b).expect("a solve");
    assert!(!solution.outcome.status.is_converged() && solution.attempts.is_empty(), "{}", solution.outcome);
}

#[test]
fn what_a_singular_matrix_needs_is_made_once_for_all_right_hand_sides() {
    // A ring of springs: the constant vectors are its null space.
    let n = 50;
    let ring = Csr::from_triplets(
        n,
        n,
        (0..n).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % n, -1.0), (i, (i + n - 1) % n, -1.0)]),
    )
    .expect("a matrix");
    let made = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&made);
    let watch = move |event: Event<'_>| {
        if matches!(event, Event::Stage(Stage::SetUp, detail) if detail.contains("of A +")) {
            *counted.lock().expect("a count") += 1;
        }
        ControlFlow::Continue(())
    };
    let mut solver = Solver::builder().device(Choice::Cpu).on_progress(watch).build(ring.clone()).expect("a solver");
    let consistent: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let shifted: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i == 3)) - f64::from(u8::from(i == 30))).collect();
    for round in 0..2 {
        for (b, status) in [
            (&consistent, Status::Converged),
            (&vec![1.0; n], Status::Inconsistent),
            (&shifted, Status::Converged),
            (&uneven(n), Status::Inconsistent),
        ] {
            let solution = solver.solve(b).expect("a solve");
            assert_eq!(solution.outcome.status, status, "round {round}: {:?}", solution.note);
            let is_told = solution.note.is_some_and(|note| note.contains("the columns sum to zero, but b sums to"));
            assert_eq!(is_told, status == Status::Inconsistent);
        }
    }
    assert!(*made.lock().expect("a count") <= 1);
    // New values are examined again.
    let mut regular = ring.clone();
    for i in 0..n {
        let at = regular.row_ptr()[i] as usize + regular.row(i).0.partition_point(|&j| (j as usize) < i);
        regular.values_mut()[at] += 1.0;
    }
    solver.update_values(regular.values()).expect("new values");
    let solution = solver.solve(&vec![1.0; n]).expect("a solve");
    assert_eq!((solution.outcome.status, solution.x[7]), (Status::Converged, solution.x[0]));
    assert!(solution.note.is_none_or(|note| !note.contains("singular")));
    solver.update_values(ring.values()).expect("new values");
    assert_eq!(solver.solve(&vec![1.0; n]).expect("a solve").outcome.status, Status::Inconsistent);
}

/// A CPU of many cores with so little bandwidth each that triangular solves, which one core does, are slow. An
/// operation of a factorisation takes this many times as long as on the reference.
fn wide(factors: f64) -> Cpu {
    let mut profile = Profile::reference();
    profile.memory.nanoseconds_per_byte *= 100.0;
    profile.memory.units = 100;
    profile.host.factor_flop *= factors;
    Cpu::new().with_profile(profile)
}

#[test]
fn a_solid_begins_with_the_stronger_preconditioner_where_it_should_finish_first() {
    let device = wide(1e3);
    let a = matrix("elasticity3d:20");
    let begun = |builder: Builder| {
        let plan = builder.build_on(&device, a.clone()).expect("a solver");
        (plan.plan().preconditioner.to_string(), plan.plan().precision)
    };
    assert_eq!(begun(Builder::default()), ("amg=unknowns=3".to_string(), Precision::Mixed));
    // The same bits everywhere need the same choice everywhere.
    assert_eq!(begun(Builder::default().reproducible(true)), ("ic0".to_string(), Precision::Native));
    // Renumbering would separate the unknowns of a point.
    assert_eq!(begun(Builder::default().reorder(Reorder::Bfs)), ("ic0".to_string(), Precision::Native));
    let mut solver = Builder::default().build_on(&device, a.clone()).expect("a solver");
    let solution = solver.solve(&device, &uneven(a.nrows())).expect("a solve");
    assert!(solution.outcome.status.is_converged() && solution.attempts.is_empty(), "{}", solution.outcome);
}

#[test]
fn a_slow_iteration_gives_way_to_a_stronger_preconditioner_which_stays() {
    let device = wide(1.0);
    for (spec, weak, strong) in
        [("elasticity2d:110", Precond::Ic0, "amg=unknowns=2"), ("convdiff2d:200,peclet=0.1", Precond::Ilu0, "ilut")]
    {
        let a = matrix(spec);
        let b = uneven(a.nrows());
        // Factors do not fit.
        let builder = || Builder::default().memory_limit(1);
        let mut solver = builder().build_on(&device, a.clone()).expect("a solver");
        assert_eq!(solver.plan().preconditioner, weak, "{spec}");
        let solution = solver.solve(&device, &b).expect("a solve");
        assert_eq!(solution.outcome.status, Status::Converged, "{spec}: {}", solution.outcome);
        assert_eq!(solution.preconditioner.to_string(), strong, "{spec}: {:?}", solution.attempts);
        let [given_up] = &solution.attempts[..] else { panic!("{spec}: {:?}", solution.attempts) };
        assert_eq!((given_up.preconditioner, given_up.status), (weak, Status::Interrupted), "{spec}");
        let note = solution.note.as_deref().unwrap_or_default();
        assert!(note.contains("was expected to take longer after"), "{spec}: {note}");
        assert!(solution.outcome.true_residual <= 1e-8, "{spec}: {}", solution.outcome);
        // Multigrid that the policy takes is in f32; triangular factors are not.
        let precision = if weak == Precond::Ic0 { Precision::Mixed } else { Precision::Native };
        assert_eq!(solver.plan().precision, precision, "{spec}");
        // The next right-hand side, and new values, meet the stronger one.
        let again = solver.solve(&device, &b).expect("a solve");
        assert_eq!((again.x, again.attempts.len()), (solution.x.clone(), 0), "{spec}");
        solver.update_values(&device, a.values()).expect("new values");
        assert_eq!(solver.solve(&device, &b).expect("a solve").x, solution.x, "{spec}");
        // The same choice and the same bits wherever the vectors lie.
        let mut other = builder().build_on(&device, a.clone()).expect("a solver");
        let rhs = device.upload(&b).expect("b");
        let mut x = Backend::<f64>::zeros(&device, b.len()).expect("x");
        let outcome = other.solve_on(&device, &rhs, &mut x).expect("a solve");
        assert_eq!(
            (outcome.status, other.plan().preconditioner),
            (Status::Converged, solution.preconditioner),
            "{spec}"
        );
        assert_eq!(Backend::<f64>::download(&device, &x).expect("x"), solution.x, "{spec}");
        // Whoever names a preconditioner gets it.
        let mut named = builder().preconditioner(weak).build_on(&device, a).expect("a solver");
        let solution = named.solve(&device, &b).expect("a solve");
        assert_eq!((solution.preconditioner, solution.attempts.len()), (weak, 0), "{spec}");
    }
}
