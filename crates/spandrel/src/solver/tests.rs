//! Trials of the solver on the CPU: what is chosen, what takes over, new values, several right-hand sides, refusals.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use spandrel_formats::generate;

use super::*;
use crate::{Error, Status, Triplets};

fn matrix(spec: &str) -> Csr<f64> {
    generate::csr(spec).unwrap()
}

/// ||b - A x|| / ||b||, summed plainly.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let square = |v: f64| v * v;
    let rows = (0..a.nrows()).map(|i| {
        let (cols, values) = a.row(i);
        square(b[i] - cols.iter().zip(values).map(|(&j, &v)| v * x[j as usize]).sum::<f64>())
    });
    (rows.sum::<f64>() / b.iter().map(|&b| square(b)).sum::<f64>()).sqrt()
}

fn cpu() -> Builder {
    Solver::builder().device(Choice::Cpu)
}

/// A typical first program, from triplets to new values, with every choice left open and with most of them named.
#[test]
fn a_first_program_needs_a_line_for_each_thing() -> crate::Result<()> {
    let n = 50;
    let triplets = (0..n).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % n, -0.5), (i, i, 1.0)]);
    let (b, bs) = (vec![1.0; n], vec![1.0; 3 * n]);

    let a = Csr::from_triplets(n, n, triplets)?; // duplicates are summed
    let new_values: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    let mut solver = Solver::new(a)?;
    let solution = solver.solve(&b)?;
    let said = format!("{}\n{}", solution.outcome, solver.plan());
    solver.update_values(&new_values)?;
    let xs = solver.solve_many(&bs)?;
    assert!(said.starts_with("converged") && said.contains("solver "), "{said}");
    // Every row sums to 2.5, and to 5 with the new values.
    assert!(solution.require_converged()?.x.iter().all(|x| (x - 0.4).abs() < 1e-7));
    assert!(xs.x.len() == 3 * n && xs.x.iter().all(|x| (x - 0.2).abs() < 1e-7));

    let mut solver = Solver::builder()
        .device(Choice::Cpu)
        .method(Method::Gmres)
        .preconditioner(Precond::Ilu0)
        .format(FormatChoice::Measured)
        .precision(Precision::Mixed)
        .tolerance(Tolerance { rtol: 1e-10, atol: 0.0 })
        .max_iterations(500)
        .on_progress(|_| ControlFlow::Continue(()))
        .build(matrix("convdiff2d:8,peclet=1"))?;
    assert!(solver.solve(&vec![1.0; 64])?.outcome.true_residual <= 1e-10);
    Ok(())
}

#[test]
fn a_symmetric_grid_gets_cg_and_ic0_and_the_plan_says_why() {
    let a = matrix("poisson3d:10");
    let b = vec![1.0; a.nrows()];
    let mut solver = cpu().build(a.clone()).unwrap();
    let solution = solver.solve(&b).unwrap();
    assert_eq!((solver.plan().method, solver.plan().preconditioner), (Method::Cg, Precond::Ic0));
    assert_eq!(solution.outcome.status, Status::Converged);
    assert!(residual(&a, &b, &solution.x) <= 1.1e-8 && solution.attempts.is_empty());
    let text = solver.plan().to_string();
    assert!(text.contains("solver   cg (the matrix is symmetric") && text.contains("precond  ic0, by sweep"), "{text}");
}

#[test]
fn a_solve_has_the_bits_of_the_parts_that_it_is_made_of() {
    let a = matrix("convdiff3d:9,peclet=3");
    let b: Vec<f64> = (0..a.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();
    let device = Cpu::new();
    let m = crate::solvers::Jacobi::new(&device, &a).unwrap();
    let (rhs, mut x) =
        (crate::Backend::upload(&device, &b).unwrap(), crate::Backend::<f64>::zeros(&device, b.len()).unwrap());
    let by_hand = crate::Mat::<Cpu, Csr<f64>>::load(&device, a.clone()).unwrap();
    let outcome = crate::solvers::bicgstab(&device, &by_hand, &m, &rhs, &mut x, &crate::Options::default()).unwrap();
    let builder = Builder::default().preconditioner(Precond::Jacobi).format(FormatChoice::Named("csr"));
    let mut solver = builder.build_on(&device, a).unwrap();
    let solution = solver.solve(&device, &b).unwrap();
    assert_eq!(solution.x, crate::Backend::<f64>::download(&device, &x).unwrap());
    assert_eq!(solution.outcome, outcome);
    // The same on vectors of the device, from x = 0.
    let mut again = crate::Backend::<f64>::zeros(&device, b.len()).unwrap();
    let outcome = solver.solve_on(&device, &rhs, &mut again).unwrap();
    assert_eq!((crate::Backend::<f64>::download(&device, &again).unwrap(), outcome), (solution.x, solution.outcome));
}

#[test]
fn every_method_and_preconditioner_solves_in_every_precision() {
    let a = &matrix("poisson2d:12");
    for &method in Method::ALL {
        for name in [
            "none",
            "jacobi",
            "block-jacobi=2",
            "chebyshev=3",
            "ssor",
            "ilu0",
            "iluk=1",
            "ilut",
            "ilutp",
            "ic0",
            "ilu0-jacobi=4",
            "ic0-jacobi=4",
            "ilu0-isai",
            "ic0-isai",
            "mg",
        ] {
            let precond: Precond = name.parse().unwrap();
            for &precision in Precision::ALL {
                let b = vec![1.0; a.nrows()];
                let built = cpu().method(method).preconditioner(precond).precision(precision).build(a.clone());
                let refused = (method == Method::Direct && (name != "none" || precision != Precision::Native))
                    || (precision == Precision::Mixed && name == "none");
                if refused {
                    assert!(matches!(built, Err(Error::Unsupported { .. })), "{method} {name} {precision}");
                    continue;
                }
                let solution = built.unwrap().solve(&b).unwrap();
                let outcome = &solution.outcome;
                // CG needs a symmetric preconditioner; sweeps and inverses of LU factors need not be.
                let may_fail = method == Method::Cg && name.starts_with("ilu0-");
                assert!(outcome.status == Status::Converged || may_fail, "{method} {name} {precision}: {outcome:?}");
                if outcome.status == Status::Converged {
                    assert!(residual(a, &b, &solution.x) <= 1.1e-8, "{method} {name} {precision}");
                }
            }
        }
    }
}

#[test]
fn f32_has_a_goal_that_it_can_reach() {
    let a: Csr<f32> = generate::csr("poisson2d:40").unwrap();
    let b = vec![1.0f32; a.nrows()];
    let mut solver = cpu().build(a.clone()).unwrap();
    assert_eq!(solver.plan().rtol, 1e-5);
    assert_eq!(solver.solve(&b).unwrap().outcome.status, Status::Converged);
    let refused = cpu().precision(Precision::Mixed).build(a);
    assert!(matches!(&refused, Err(Error::Unsupported { why }) if why.contains("f64")), "{refused:?}");
}

#[test]
fn a_method_that_does_not_suit_is_replaced_and_told_of() {
    // Symmetric, positive diagonal, indefinite: CG stops.
    let mut triplets = Triplets::new(40, 40).unwrap();
    for i in 0..40usize {
        triplets.push(i, i, 1.0).unwrap();
        for j in [i.wrapping_sub(1), i + 1] {
            if j < 40 {
                triplets.push(i, j, 3.0).unwrap();
            }
        }
    }
    let a = triplets.to_csr().unwrap();
    let b: Vec<f64> = (0..40).map(|i| (i as f64).sin()).collect();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notes);
    let watch = move |event: Event<'_>| {
        if let Event::Note(note) = event {
            heard.lock().unwrap().push(note.to_string());
        }
        ControlFlow::Continue(())
    };
    let mut solver = cpu().preconditioner(Precond::Jacobi).on_progress(watch).build(a.clone()).unwrap();
    let solution = solver.solve(&b).unwrap();
    assert_eq!(solution.attempts.len(), 1, "{solution:?}");
    let first = &solution.attempts[0];
    assert_eq!((first.method, first.status), (Method::Cg, Status::IndefiniteMatrix));
    assert_eq!(solution.method, Method::BiCgStab);
    let notes = notes.lock().unwrap();
    assert!(notes.iter().any(|note| note.starts_with("cg ended as indefinite_matrix after")), "{notes:?}");
    // Without fallback the first choice is the only one.
    let mut alone = cpu().preconditioner(Precond::Jacobi).fallback(Fallback::None).build(a).unwrap();
    let solution = alone.solve(&b).unwrap();
    assert!(solution.attempts.is_empty() && solution.outcome.status == Status::IndefiniteMatrix);
}

#[test]
fn cg_on_a_nonsymmetric_matrix_is_warned_of_before_it_starts() {
    let a = matrix("convdiff2d:8,peclet=2");
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let watch = move |event: Event<'_>| {
        seen.lock().unwrap().push(format!("{event:?}"));
        ControlFlow::Continue(())
    };
    let mut solver = cpu().method(Method::Cg).on_progress(watch).build(a.clone()).unwrap();
    assert!(solver.plan().warnings[0].contains("not symmetric"));
    let _ = solver.solve(&vec![1.0; a.nrows()]).unwrap();
    let events = events.lock().unwrap();
    let warned = events.iter().position(|event| event.contains("not symmetric")).unwrap();
    let started = events.iter().position(|event| event.starts_with("Stage(Solve")).unwrap();
    assert!(warned < started, "{events:?}");
}

#[test]
fn new_values_give_the_bits_of_a_new_solver() {
    let a = matrix("convdiff2d:13,peclet=1");
    let mut next = a.clone();
    next.values_mut().iter_mut().enumerate().for_each(|(k, v)| *v *= 1.0 + (k % 5) as f64 / 16.0);
    let b = vec![1.0; a.nrows()];
    let device = Cpu::new();
    for precision in [Precision::Native, Precision::Mixed, Precision::Refined] {
        for reorder in [Reorder::None, Reorder::Rcm] {
            if reorder == Reorder::Rcm && !cfg!(feature = "sprs") {
                continue;
            }
            for format in ["csr", "dia", "ell"] {
                for name in ["jacobi", "ilu0", "ssor", "ilu0-isai", "block-jacobi=13"] {
                    let builder = || {
                        let format =
                            FormatChoice::Named(FormatChoice::NAMES.iter().find(|&&known| known == format).unwrap());
                        let precond: Precond = name.parse().unwrap();
                        Builder::default().format(format).reorder(reorder).precision(precision).preconditioner(precond)
                    };
                    let case = format!("{precision} {reorder} {format} {name}");
                    let mut fresh = builder().build_on(&device, next.clone()).unwrap();
                    let mut updated = builder().build_on(&device, a.clone()).unwrap();
                    let before = updated.solve(&device, &b).unwrap();
                    updated.update_values(&device, next.values()).unwrap();
                    let (wanted, found) = (fresh.solve(&device, &b).unwrap(), updated.solve(&device, &b).unwrap());
                    assert_eq!(found.x, wanted.x, "{case}");
                    assert_ne!(found.x, before.x, "{case}");
                    // From the device, and refused values change nothing.
                    let values = crate::Backend::<f64>::upload(&device, a.values()).unwrap();
                    updated.update_values_from(&device, &values).unwrap();
                    assert_eq!(updated.solve(&device, &b).unwrap().x, before.x, "{case}");
                    assert!(matches!(updated.update_values(&device, &[1.0]), Err(Error::Pattern { .. })));
                    let mut bad = a.values().to_vec();
                    bad[3] = f64::NAN;
                    assert!(matches!(updated.update_values(&device, &bad), Err(Error::NotFinite { .. })));
                    assert_eq!(updated.solve(&device, &b).unwrap().x, before.x, "{case}");
                }
            }
        }
    }
    let mut fixed = Builder::default().updatable(false).build_on(&device, a.clone()).unwrap();
    assert!(matches!(fixed.update_values(&device, a.values()), Err(Error::Unsupported { .. })));
    let mut direct = cpu().method(Method::Direct).build(a.clone()).unwrap();
    direct.update_values_from(&next).unwrap();
    let x = direct.solve(&b).unwrap().x;
    assert!(residual(&next, &b, &x) <= 1e-8);
}

#[test]
fn new_values_take_the_memory_of_those_before_last() {
    let (a, device) = (matrix("poisson2d:15"), Cpu::new());
    let format = FormatChoice::Named(FormatChoice::NAMES.iter().find(|&&known| known == "ell").unwrap());
    let builder = Builder::default().format(format).method(Method::Cg).preconditioner(Precond::Jacobi);
    let mut solver = builder.build_on(&device, a.clone()).unwrap();
    for round in 1..5 {
        let (before, spare) = (solver.host.values().as_ptr(), std::mem::take(&mut solver.spare));
        let memory = spare.as_ptr();
        assert_eq!(spare.len(), if round == 1 { 0 } else { a.nnz() });
        solver.spare = spare;
        let next = a.map_entries(|_, _, v| f64::from(round) * v);
        solver.update_values(&device, next.values()).unwrap();
        assert_eq!(solver.host.values(), next.values());
        assert!(round == 1 || solver.host.values().as_ptr() == memory, "round {round}");
        assert_eq!(solver.spare.as_ptr(), before, "round {round}");
    }
    // A factorisation that was never analysed holds nothing, however large the matrix is.
    let a = matrix("poisson3d:55");
    let (mut solver, b) = (Builder::default().build_on(&device, a.clone()).unwrap(), vec![1.0; a.nrows()]);
    for round in 0..3 {
        let solution = solver.solve(&device, &b).unwrap();
        assert!(solution.outcome.status.is_converged() && solver.rival.is_some(), "round {round}");
        let before = solver.host.values().as_ptr();
        solver.update_values(&device, a.values()).unwrap();
        assert!(a.nnz() >= super::device::UNMAPPED && solver.spare.as_ptr() == before, "round {round}");
    }
}

#[test]
fn multigrid_takes_values_on_the_device() {
    let a = matrix("electrostatic:n=1500");
    let others = [1.5, 1.25, 1.0].map(|by| a.map_entries(|i, j, v| if i == j { by * v } else { v }));
    let (device, b) = (Cpu::new(), vec![1.0; a.nrows()]);
    let csr = FormatChoice::Named(FormatChoice::NAMES.iter().find(|&&known| known == "csr").unwrap());
    for precision in [Precision::Native, Precision::Mixed] {
        let build = || {
            let builder = Builder::default().format(csr).precision(precision).method(Method::Cg);
            builder.preconditioner("amg".parse::<Precond>().unwrap()).build_on(&device, a.clone()).unwrap()
        };
        let (mut by_host, mut by_device) = (build(), build());
        for next in &others {
            by_host.update_values(&device, next.values()).unwrap();
            let values = crate::Backend::<f64>::upload(&device, next.values()).unwrap();
            by_device.update_values_from(&device, &values).unwrap();
            let (wanted, found) = (by_host.solve(&device, &b).unwrap(), by_device.solve(&device, &b).unwrap());
            assert!(wanted.outcome.status.is_converged(), "{precision}: {}", wanted.outcome);
            assert_eq!(found.x, wanted.x, "{precision}");
        }
        let bad = crate::Backend::<f64>::upload(&device, &vec![f64::NAN; a.nnz()]).unwrap();
        let before = by_device.solve(&device, &b).unwrap().x;
        assert!(matches!(by_device.update_values_from(&device, &bad), Err(Error::NotFinite { .. })), "{precision}");
        assert_eq!(by_device.solve(&device, &b).unwrap().x, before, "{precision}");
    }
}

#[test]
fn several_right_hand_sides_are_solved_as_each_alone() {
    let a = matrix("poisson2d:15");
    let n = a.nrows();
    let b: Vec<f64> = (0..3 * n).map(|i| ((i * 7) % 11) as f64 - 5.0).collect();
    for method in [Method::Cg, Method::Gmres, Method::Direct] {
        let mut solver = cpu().method(method).build(a.clone()).unwrap();
        let all = solver.solve_many(&b).unwrap();
        assert_eq!((all.x.len(), all.outcomes.len()), (3 * n, 3));
        for (column, outcome) in all.outcomes.iter().enumerate() {
            let range = column * n..(column + 1) * n;
            assert!(outcome.status.is_converged());
            let alone = solver.solve(&b[range.clone()]).unwrap();
            let agree = residual(&a, &b[range.clone()], &all.x[range.clone()]) <= 1e-8;
            assert!(agree && (method == Method::Direct || alone.x == all.x[range]), "{method}");
        }
        assert!(matches!(solver.solve_many(&b[1..]), Err(Error::Size { what: "B", .. })));
        assert!(solver.solve_many(&[]).unwrap().x.is_empty());
    }
}

#[test]
fn vectors_on_the_device_are_solved_as_vectors_on_the_host() {
    let device = Cpu::new();
    let uneven = |n: usize, m: usize| -> Vec<f64> { (0..n).map(|i| 1.0 + (i % m) as f64).collect() };
    let flow = matrix("convdiff2d:13,peclet=1");
    // A wave in a wind, far from definite: BiCGStab gives way to a factorisation.
    let wave = matrix("d3n7:10").map_entries(|row, col, _| match col.cmp(&row) {
        std::cmp::Ordering::Less => -1.3,
        std::cmp::Ordering::Equal => 3.0,
        std::cmp::Ordering::Greater => -0.7,
    });
    // Goals that rounding keeps from being reached: CG stagnates, and its x is as good as any.
    let grid = matrix("poisson3d:10");
    let mut cases: Vec<(&str, Csr<f64>, fn() -> Builder)> = vec![
        ("by default", flow.clone(), Builder::default),
        ("named", flow.clone(), || Builder::default().method(Method::Gmres).preconditioner(Precond::Ilu0)),
        ("refined", flow.clone(), || Builder::default().precision(Precision::Refined)),
        ("scaled", flow.clone(), || Builder::default().scale(Scale::Equilibrate)),
        ("direct", flow.clone(), || Builder::default().method(Method::Direct)),
        ("gives way", wave, Builder::default),
        ("stagnates", grid, || Builder::default().rtol(1e-17)),
    ];
    if cfg!(feature = "sprs") {
        cases.push(("renumbered", flow.clone(), || Builder::default().reorder(Reorder::Rcm)));
    }
    for (name, a, builder) in cases {
        let (b, x0) = (uneven(a.nrows(), 11), uneven(a.ncols(), 5));
        let wanted = builder().build_on(&device, a.clone()).unwrap().solve_from(&device, &b, &x0).unwrap();
        match name {
            "gives way" => assert!(!wanted.attempts.is_empty() && wanted.method == Method::Direct),
            "stagnates" => {
                let how = (wanted.attempts.len(), wanted.method, wanted.outcome.status);
                assert_eq!(how, (0, Method::Cg, Status::BackwardStable));
            }
            _ => assert!(wanted.outcome.status.is_converged(), "{name}: {}", wanted.outcome),
        }
        let mut solver = builder().build_on(&device, a).unwrap();
        let rhs = crate::Backend::<f64>::upload(&device, &b).unwrap();
        // The second time, the solver already has what took over in the first.
        for _ in 0..2 {
            let mut x = crate::Backend::<f64>::upload(&device, &x0).unwrap();
            let outcome = solver.solve_on(&device, &rhs, &mut x).unwrap();
            let x = crate::Backend::<f64>::download(&device, &x).unwrap();
            assert!(x == wanted.x && outcome.status == wanted.outcome.status, "{name}: {outcome}, {}", wanted.outcome);
        }
        let mut short = crate::Backend::<f64>::zeros(&device, b.len() - 1).unwrap();
        let refused = solver.solve_on(&device, &rhs, &mut short);
        assert!(matches!(refused, Err(Error::Size { what: "x", .. })), "{name}: {refused:?}");
        let mut x = rhs;
        let refused = solver.solve_on(&device, &short, &mut x);
        assert!(matches!(refused, Err(Error::Size { what: "b", .. })), "{name}: {refused:?}");
    }
}

#[test]
fn a_second_choice_that_fails_keeps_the_first_reason() {
    // In f32 the last row is zero: neither ILU(0) nor Jacobi can be made.
    let a = Csr::from_triplets(3, 3, [(0, 0, 1.0), (0, 1, 0.5), (1, 1, 1.0), (1, 2, 0.5), (2, 2, 1e-60)]).unwrap();
    let builder = || cpu().method(Method::BiCgStab).precision(Precision::Mixed).scale(Scale::None);
    let error = builder().build(a.clone()).unwrap_err();
    assert_eq!(error.status(), Some(Status::ZeroPivot));
    let text = error.to_string();
    assert!(text.starts_with("the diagonal entry of row 2 is zero"), "{text}");
    assert!(text.contains("; jacobi was tried because ilu0 failed (") && text.contains("pivot"), "{text}");
    // A choice that the caller named has no substitute.
    let error = builder().preconditioner(Precond::Ilu0).build(a).unwrap_err();
    assert!(!error.to_string().contains("was tried"), "{error}");
}

#[test]
fn a_measured_format_is_one_of_those_that_were_tried() {
    let a = matrix("d3n7:20");
    let mut solver = cpu().format(FormatChoice::Measured).build(a.clone()).unwrap();
    let plan = solver.plan().clone();
    assert!(plan.format_why.starts_with("measured, ms per product: "), "{plan}");
    assert!(plan.format_why.contains(plan.format), "{plan}");
    assert!(solver.solve(&vec![1.0; a.nrows()]).unwrap().outcome.status.is_converged());
}

#[test]
fn least_squares_and_shapes() {
    let mut triplets = Triplets::<f64>::new(3, 2).unwrap();
    for (i, j, v) in [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (2, 1, 1.0)] {
        triplets.push(i, j, v).unwrap();
    }
    let tall = triplets.to_csr().unwrap();
    let mut solver = cpu().build(tall.clone()).unwrap();
    assert_eq!(solver.plan().method, Method::Direct);
    let solution = solver.solve(&[1.0, 1.0, 2.0]).unwrap();
    assert!(solution.x.iter().all(|x| (x - 1.0f64).abs() < 1e-14), "{solution:?}");
    assert!(matches!(cpu().method(Method::Cg).build(tall), Err(Error::NotSquare { .. })));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let a = matrix("poisson2d:6");
    let mut solver = cpu().build(a.clone()).unwrap();
    let short = solver.solve(&[1.0]).unwrap_err().to_string();
    assert!(short.contains("b has 1 elements, expected 36"), "{short}");
    let mut b = vec![1.0; 36];
    b[4] = f64::INFINITY;
    assert_eq!(solver.solve(&b).unwrap_err().to_string(), "element 5 (counted from 1) of b is infinite");
    let mut bad = a;
    bad.values_mut()[2] = f64::NAN;
    let error = cpu().build(bad).unwrap_err();
    assert_eq!(error.status(), Some(Status::NotFinite));
    assert!(error.to_string().contains("row 1, column"), "{error}");
}

#[test]
fn a_watcher_can_end_the_set_up_and_the_solve() {
    let a = matrix("poisson3d:14");
    let error = cpu().on_progress(|_| ControlFlow::Break(())).build(a.clone()).unwrap_err();
    assert_eq!(error.status(), Some(Status::Interrupted));
    let watch = |event: Event<'_>| match event {
        Event::Iteration(..) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let mut solver = cpu().preconditioner(Precond::None).on_progress(watch).build(a.clone()).unwrap();
    let solution = solver.solve(&vec![1.0; a.nrows()]).unwrap();
    assert_eq!(solution.outcome.status, Status::Interrupted);
}

#[test]
fn solvers_move_between_threads() {
    fn moves<T: Send>() {}
    moves::<Solver<f64>>();
    moves::<Solver<f32>>();
    moves::<DeviceSolver<f64, Cpu>>();
    #[cfg(feature = "cuda-core")]
    moves::<DeviceSolver<f64, crate::Cuda>>();
}

#[cfg(feature = "cuda-core")]
#[test]
fn a_solver_lends_its_gpu_only_if_it_runs_on_one() {
    assert!(cpu().build(matrix("poisson2d:6")).unwrap().on_cuda().is_none());
    if let Ok(mut solver) = Solver::builder().device(Choice::Cuda).build(matrix("poisson2d:6")) {
        assert_eq!(solver.on_cuda().map(|(solver, _)| solver.plan().backend), Some("cuda"));
    }
}

#[test]
fn an_answer_can_be_demanded() {
    let a = matrix("poisson2d:30");
    let b = vec![1.0; a.nrows()];
    let mut solver = cpu().preconditioner(Precond::None).max_iterations(3).build(a).unwrap();
    let error = solver.solve(&b).unwrap().require_converged().unwrap_err();
    assert!(matches!(error, Error::NotConverged { .. }), "{error}");
    assert!(error.to_string().contains("stopped at the limit after 3 iterations"), "{error}");
}

/// Three equations, of which the first is the sum of the others, and b that contradicts it. The computed residual of
/// this x is 0, because 2^60 + 1 is rounded to 2^60.
fn feigned() -> (Csr<f64>, [f64; 3], [f64; 3]) {
    let entries = [(0, 0, 1.0), (0, 1, 1.0), (0, 2, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0)];
    let huge = 2f64.powi(60);
    (Csr::from_triplets(3, 3, entries).unwrap(), [0.0, 0.0, 1.0], [huge, 1.0, -huge])
}

#[test]
fn a_convergence_that_is_only_rounding_is_denied() {
    let (a, b, x0) = feigned();
    for method in [Method::Cg, Method::BiCgStab, Method::Gmres] {
        let named = || cpu().method(method).preconditioner(Precond::None).format(FormatChoice::Named("csr"));
        let alone = named().fallback(Fallback::None).build(a.clone()).unwrap().solve_from(&b, &x0).unwrap();
        assert_eq!((alone.outcome.status, alone.outcome.true_residual), (Status::Stagnated, 1.0), "{method}");
        assert!(alone.note.unwrap().contains("the terms of A x cancel"));
        let asked_for_all = named().rtol(0.0).fallback(Fallback::None).build(a.clone()).unwrap().solve_from(&b, &x0);
        assert_eq!(asked_for_all.unwrap().outcome.status, Status::Stagnated, "{method}");
        let zero = named().build(a.clone()).unwrap().solve_from(&[0.0; 3], &x0).unwrap();
        assert_eq!((zero.outcome.status, zero.x), (Status::Converged, vec![0.0; 3]));
        // The same with a null space, which is not the matrix's.
        let projected = named().null_space(NullVectors::Constant).fallback(Fallback::None).build(a.clone()).unwrap();
        let outcome = { projected }.solve_from(&b, &x0).unwrap().outcome;
        assert!(!outcome.status.is_converged(), "{method}: {outcome}");
        // With everything open, the reason is found.
        let helped = cpu().build(a.clone()).unwrap().solve_from(&b, &x0).unwrap();
        assert_eq!(helped.outcome.status, Status::Inconsistent);
    }
}

#[test]
fn what_is_denied_is_known_of_the_newest_values() {
    let (a, b, x0) = feigned();
    let device = Cpu::new();
    let up = |v: &[f64]| crate::Backend::<f64>::upload(&device, v).unwrap();
    let regular: Vec<f64> = a.values().iter().enumerate().map(|(at, _)| if at == 0 { 1e30 } else { 1.0 }).collect();
    let builder = cpu().method(Method::Gmres).preconditioner(Precond::None).format(FormatChoice::Named("csr"));
    let mut first = Csr::clone(&a);
    first.values_mut().copy_from_slice(&regular);
    let mut solver = builder.fallback(Fallback::None).build_on(&device, first).unwrap();
    solver.update_values_from(&device, &up(a.values())).unwrap();
    let mut x = up(&x0);
    let outcome = solver.solve_on(&device, &up(&b), &mut x).unwrap();
    assert_eq!((outcome.status, outcome.true_residual), (Status::Stagnated, 1.0));
    assert!(!solver.truth.is_old());
    // The matrix stays on the device as long as the norm of its values settles the matter, which tiny ones do not.
    for (size, stays) in [(1.0, true), (2f64.powi(-450), false)] {
        let spread: Vec<f64> = regular.iter().map(|v| if *v > 1.0 { size } else { 0.0 }).collect();
        solver.update_values_from(&device, &up(&spread)).unwrap();
        let outcome = solver.solve_on(&device, &up(&[size, 0.0, 0.0]), &mut up(&[0.0; 3])).unwrap();
        assert!(outcome.status.is_converged() && solver.truth.is_old() == stays, "{size:e}: {outcome}");
    }
}
