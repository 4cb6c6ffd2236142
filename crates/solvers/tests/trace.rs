//! What one iteration launches and moves: reviewed numbers. A repeated solve allocates nothing.

mod problems;

use std::fmt::Write;
use std::time::Duration;

use problems::{stencil, uneven};
use spandrel_backend::trace::Event;
use spandrel_backend::{Backend, Mat, Operator, Preconditioner, Trace};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Traffic, generate};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{
    Amg, AmgOptions, BiCgStab, Cg, Identity, Jacobi, NullSpace, Options, PolynomialSmoother, StencilMultigrid,
};

type Traced = Trace<Cpu>;

const N: usize = 1600;

/// The launches of the last recorded iteration, with bytes in units of the matrix and of a vector, and their sum.
fn listing(events: &[Event], csr: &Csr<f64>) -> String {
    let from = events.iter().rposition(|event| *event == Event::Replay).expect("a replayed iteration");
    let mut text = String::new();
    let (mut matrices, mut vectors) = (0, 0);
    for event in &events[from + 1..] {
        let Event::Launch(launch) = event else { break };
        assert!(launch.gated, "{} is not gated", launch.op);
        assert_eq!((launch.matrix % csr.storage(), launch.vectors % (8 * N as u64)), (0, 0));
        let (matrix, vector) = (launch.matrix / csr.storage(), launch.vectors / (8 * N as u64));
        let noun = launch.noun.map(|noun| format!("/{noun}")).unwrap_or_default();
        let op = format!("{}{noun}", launch.op);
        let cost = match (matrix, vector) {
            (0, 0) => "-".to_owned(),
            (0, v) => format!("{v}n"),
            (m, v) => format!("{m} matrix + {v}n"),
        };
        writeln!(text, "{op:<18} {cost}").unwrap();
        (matrices, vectors) = (matrices + matrix, vectors + vector);
    }
    writeln!(text, "{:<18} {matrices} matrix + {vectors}n", "sum").unwrap();
    text
}

fn run<M: Preconditioner<f64, Traced>>(
    be: &Traced,
    csr: &Csr<f64>,
    m: &M,
    solve: impl FnOnce(
        &Traced,
        &Mat<Traced, Csr<f64>>,
        &M,
        &spandrel_backend_cpu::Vector<f64>,
        &mut spandrel_backend_cpu::Vector<f64>,
    ),
) -> String {
    let a = Mat::load(be, csr.clone()).unwrap();
    let b = be.upload(&uneven::<f64>(N)).unwrap();
    let mut x = Backend::<f64>::zeros(be, N).unwrap();
    be.take();
    solve(be, &a, m, &b, &mut x);
    // It does not matter whether the last replays are before or after the stop: a step enqueues the same operations
    // every time.
    listing(&be.take(), csr)
}

#[test]
fn a_cg_iteration_moves_the_matrix_and_11_vectors() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    insta::assert_snapshot!(run(&be, &csr, &Identity, |be, a, m, b, x| {
        assert!(
            Cg::new(be, N)
                .unwrap()
                .solve(be, a, m, b, x, &Options { history: false, check_after: Duration::MAX, ..Options::default() })
                .unwrap()
                .status
                .is_converged()
        );
    }));
}

#[test]
fn a_cg_iteration_with_jacobi() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    let jacobi = Jacobi::new(&be, &csr).unwrap();
    insta::assert_snapshot!(run(&be, &csr, &jacobi, |be, a, m, b, x| {
        assert!(Cg::new(be, N).unwrap().solve(be, a, m, b, x, &Options::default()).unwrap().status.is_converged());
    }));
}

#[test]
fn a_bicgstab_iteration() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    insta::assert_snapshot!(run(&be, &csr, &Identity, |be, a, m, b, x| {
        assert!(
            BiCgStab::new(be, N).unwrap().solve(be, a, m, b, x, &Options::default()).unwrap().status.is_converged()
        );
    }));
}

#[test]
fn a_bicgstab_iteration_with_jacobi() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    let jacobi = Jacobi::new(&be, &csr).unwrap();
    insta::assert_snapshot!(run(&be, &csr, &jacobi, |be, a, m, b, x| {
        assert!(
            BiCgStab::new(be, N).unwrap().solve(be, a, m, b, x, &Options::default()).unwrap().status.is_converged()
        );
    }));
}

#[test]
fn a_repeated_solve_allocates_nothing_on_the_device_and_waits_once_a_look() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    let a = Mat::load(&be, csr.clone()).unwrap();
    assert_eq!(Operator::<f64, Traced>::shape(&a), (N, N));
    let jacobi = Jacobi::new(&be, &csr).unwrap();
    let b = be.upload(&uneven::<f64>(N)).unwrap();
    let mut x = Backend::<f64>::zeros(&be, N).unwrap();
    let options = Options { check_every: 10, check_after: Duration::MAX, history: false, ..Options::default() };
    let (mut cg, mut bicgstab) = (Cg::new(&be, N).unwrap(), BiCgStab::new(&be, N).unwrap());
    let mut allocations = Vec::new();
    for _ in 0..3 {
        be.fill(None, 0.0, &mut x).unwrap();
        be.take();
        let outcome = cg.solve(&be, &a, &jacobi, &b, &mut x, &options).unwrap();
        let cg_events = be.take();
        be.fill(None, 0.0, &mut x).unwrap();
        assert!(bicgstab.solve(&be, &a, &jacobi, &b, &mut x, &options).unwrap().status.is_converged());
        let both = cg_events.iter().chain(&be.take()).filter(|e| matches!(e, Event::Allocation(..))).count();
        allocations.push(both);
        let waits = cg_events.iter().filter(|e| matches!(e, Event::Wait(_))).count();
        // The norms of b, of r before and of r after, and one for every ten iterations begun.
        assert_eq!(waits, 3 + outcome.iterations.div_ceil(10), "{outcome:?}");
    }
    assert!(allocations[0] > 0 && allocations[1..] == [0, 0], "{allocations:?}");
}

#[test]
fn later_updates_of_multigrid_make_no_matrix() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    let a = Mat::load(&be, csr.clone()).unwrap();
    let mut amg =
        Amg::of(&be, &a, &AmgOptions { coarsest: 20, ..AmgOptions::default() }, None, &mut unobserved).unwrap();
    let grids = amg.levels().len();
    assert!(grids >= 3);
    let mut counts = Vec::new();
    for _ in 0..3 {
        be.take();
        amg.update_from(&be, &a).unwrap();
        let events = be.take();
        let of = |op: &str| events.iter().filter(|event| matches!(event, Event::Launch(l) if l.op == op)).count();
        let waits = |op: &str| events.iter().filter(|event| matches!(event, Event::Wait(w) if *w == op)).count();
        let made = events.iter().filter(|event| matches!(event, Event::Allocation(..))).count();
        // Each coarser grid is computed once; its operator, but for the coarsest, and its restriction are scaled.
        assert_eq!((of("coarser"), of("scaled_into"), waits("scaling")), (grids - 1, 2 * (grids - 1), grids));
        assert_eq!((waits("aggregate"), waits("prolongation"), waits("galerkin")), (0, 0, 0));
        counts.push((waits("coarser_symbolic"), made));
    }
    // The first update makes P, P^T and the operator of each grid, and the near-null-space vectors.
    assert_eq!(counts[0].0, grids - 1);
    assert!(counts[0].1 >= 3 * (grids - 1) && counts[1..] == [(0, 0), (0, 0)], "{counts:?}");
}

#[test]
fn updates_of_stencil_multigrid_make_only_the_finest_operator() {
    let be = Trace::new(Cpu::new());
    let a = Mat::load(&be, generate::csr::<f64>("poisson2d:70x60").unwrap()).unwrap();
    for smoother in [PolynomialSmoother::Chebyshev(2), PolynomialSmoother::L1Jacobi(2)] {
        let mut mg = StencilMultigrid::of(&be, &a, None, smoother, &mut unobserved).unwrap();
        let grids = mg.sizes().len();
        assert!(grids >= 3);
        for _ in 0..3 {
            be.take();
            mg.update_from(&be, &a).unwrap();
            let events = be.take();
            let of = |op: &str| events.iter().filter(|event| matches!(event, Event::Launch(l) if l.op == op)).count();
            assert_eq!((of("coarser_stencil_into"), of("copy_stencil")), (grids - 1, 1));
            let waits = events.iter().filter_map(|event| match event {
                Event::Wait(what) => Some(*what),
                _ => None,
            });
            // The finest spectrum, those of all other grids, and samples of all grids.
            let expected = ["convert_like", "stencil_spectrum", "stencil_spectra", "stencil_samples", "update_values"];
            assert_eq!(waits.collect::<Vec<_>>(), expected);
            let made = events.iter().filter_map(|event| match event {
                Event::Allocation(what, _) => Some(*what),
                _ => None,
            });
            // The new finest operator and one over its divisors, until they have been copied.
            assert_eq!(made.collect::<Vec<_>>(), ["dia", "zeros"]);
        }
    }
}

#[test]
fn a_repeated_solve_with_a_null_space_allocates_two_vectors() {
    let (be, csr) = (Trace::new(Cpu::new()), stencil::<f64>(40, 0.0));
    let a = Mat::load(&be, csr.clone()).unwrap();
    let (null, jacobi) = (NullSpace::constant(&be, N).unwrap(), Jacobi::new(&be, &csr).unwrap());
    let (b, mut x) = (be.upload(&uneven::<f64>(N)).unwrap(), Backend::<f64>::zeros(&be, N).unwrap());
    let options = Options { max_iters: Some(5), ..Options::default() };
    let mut cg = Cg::new(&be, N).unwrap();
    let mut vectors = Vec::new();
    for _ in 0..3 {
        be.take();
        let outcome =
            null.solve(&be, &a, &jacobi, &b, &mut x, &options, |m, b, x, options| cg.solve(&be, &a, m, b, x, options));
        assert_eq!(outcome.unwrap().iterations, 5);
        let large = |event: &&Event| matches!(event, Event::Allocation(_, bytes) if *bytes >= 8 * N as u64);
        vectors.push(be.take().iter().filter(large).count());
    }
    assert_eq!(vectors[1..], [2, 2], "{vectors:?}");
}
