//! When the host looks at a solve and may interrupt it: by the count of iterations, and by the clock if they are slow.

mod problems;

use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::Duration;

use problems::{ALL, Krylov, stencil, uneven};
use spandrel_backend::{Backend, Gate, Mat, Operator, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::Csr;
use spandrel_solvers::{BiCgStab, Cg, Gmres, Identity, Options, Outcome, Progress, Status};

/// The least time of an operation of a slow operator or preconditioner.
const SLOW: Duration = Duration::from_millis(4);
/// When the host wants to look.
const AFTER: Duration = Duration::from_millis(8);

type Vector = <Cpu as Backend<f64>>::Vector;

struct Slow<'a>(&'a Mat<Cpu, Csr<f64>>);

// SAFETY: each call is a product with the matrix, which is not replaced.
unsafe impl Operator<f64, Cpu> for Slow<'_> {
    fn shape(&self) -> (usize, usize) {
        self.0.shape()
    }
    fn apply(&self, be: &Cpu, gate: Gate<'_, Cpu>, x: &Vector, y: &mut Vector) -> spandrel_backend::Result<()> {
        sleep(SLOW);
        self.0.apply(be, gate, x, y)
    }
}

/// M = I, slowly.
struct Sluggish;

// SAFETY: each call is a copy from operand to operand.
unsafe impl Preconditioner<f64, Cpu> for Sluggish {
    fn len(&self) -> Option<usize> {
        None
    }
    fn apply(&self, be: &Cpu, gate: Gate<'_, Cpu>, r: &Vector, z: &mut Vector) -> spandrel_backend::Result<()> {
        sleep(SLOW);
        be.copy(gate, r, z)
    }
}

const SIDE: usize = 12;
const N: usize = SIDE * SIDE;

/// Solves a small system; returns also the iterations at which the watcher was called. It ends the solve if `stop` says
/// so.
fn watched(
    method: Krylov,
    slow: bool,
    m: &impl Preconditioner<f64, Cpu>,
    options: &Options,
    mut stop: impl FnMut(Progress) -> bool,
) -> (Outcome, Vec<u64>, Vec<usize>) {
    let be = Cpu::with_threads(1).unwrap();
    let a = Mat::load(&be, stencil::<f64>(SIDE, 0.0)).unwrap();
    let (b, mut x) = (be.upload(&uneven::<f64>(N)).unwrap(), be.zeros(N).unwrap());
    let mut calls = Vec::new();
    let mut watcher = |progress: Progress| {
        calls.push(progress.iterations);
        if stop(progress) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let slowly: Box<dyn Operator<f64, Cpu>> = if slow { Box::new(Slow(&a)) } else { Box::new(Fast(&a)) };
    let outcome = match method {
        Krylov::Cg => Cg::new(&be, N).unwrap().solve_watched(&be, &slowly, m, &b, &mut x, options, &mut watcher),
        Krylov::BiCgStab => {
            BiCgStab::new(&be, N).unwrap().solve_watched(&be, &slowly, m, &b, &mut x, options, &mut watcher)
        }
        Krylov::Gmres => Gmres::new(&be, N).unwrap().solve_watched(&be, &slowly, m, &b, &mut x, options, &mut watcher),
    };
    let bits = be.download(&x).unwrap().iter().map(|x| x.to_bits()).collect();
    (outcome.unwrap(), bits, calls)
}

/// The same operations as [`Slow`], without the wait.
struct Fast<'a>(&'a Mat<Cpu, Csr<f64>>);

// SAFETY: as for `Slow`.
unsafe impl Operator<f64, Cpu> for Fast<'_> {
    fn shape(&self) -> (usize, usize) {
        self.0.shape()
    }
    fn apply(&self, be: &Cpu, gate: Gate<'_, Cpu>, x: &Vector, y: &mut Vector) -> spandrel_backend::Result<()> {
        self.0.apply(be, gate, x, y)
    }
}

fn go_on(_: Progress) -> bool {
    false
}

/// The most iterations between two calls.
fn gap(calls: &[usize]) -> usize {
    calls.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0)
}

#[test]
fn slow_iterations_are_looked_at_long_before_check_every_with_the_same_bits() {
    let rarely = Options { check_every: 1000, check_after: AFTER, ..Options::default() };
    for method in ALL {
        let never = Options { check_after: Duration::MAX, ..rarely };
        let (at_once, wanted, calls) = watched(method, false, &Identity, &never, go_on);
        assert!(at_once.status.is_converged() && at_once.iterations > 8, "{at_once}");
        assert_eq!(calls[0], 0, "the watcher is called before the first iteration");
        let (outcome, x, calls) = watched(method, true, &Identity, &rarely, go_on);
        // At most two iterations fit into the time, and the clock is read after powers of two.
        assert!(calls.len() > 4 && gap(&calls) <= 4, "{method:?} {calls:?}");
        assert_eq!((outcome, x), (at_once, wanted), "{method:?}");
    }
}

#[test]
fn a_slow_preconditioner_is_noticed_though_the_first_residual_was_fast() {
    let rarely = Options { check_every: 1000, check_after: AFTER, ..Options::default() };
    for method in [Krylov::Cg, Krylov::BiCgStab] {
        let (outcome, _, calls) = watched(method, false, &Sluggish, &rarely, go_on);
        assert!(outcome.status.is_converged() && calls.len() > 4 && gap(&calls) <= 4, "{method:?} {calls:?}");
    }
}

#[test]
fn a_slow_solve_is_interrupted_within_a_few_iterations() {
    let options = Options { check_after: AFTER, ..Options::default() };
    for method in ALL {
        let (outcome, x, _) = watched(method, true, &Identity, &options, |progress| progress.iterations > 0);
        assert_eq!(outcome.status, Status::Interrupted, "{method:?} {outcome}");
        assert!((1..=4).contains(&outcome.iterations), "{method:?} {outcome}");
        assert!(x.iter().any(|&x| x != 0), "x is the one reached");
        let (outcome, _, calls) = watched(method, true, &Identity, &options, |_| true);
        assert_eq!((outcome.status, outcome.iterations, calls), (Status::Interrupted, 0, vec![0]), "{method:?}");
    }
}

#[test]
fn a_look_at_every_iteration_changes_no_bit() {
    for method in ALL {
        for recorded in [true, false] {
            let options = Options { recorded, ..Options::default() };
            let (outcome, x, _) = watched(method, false, &Identity, &options, go_on);
            let each = Options { check_after: Duration::ZERO, ..options };
            let (found, y, calls) = watched(method, false, &Identity, &each, go_on);
            assert_eq!(gap(&calls), 1, "{method:?}");
            assert_eq!((found, y), (outcome, x), "{method:?}");
        }
    }
}
