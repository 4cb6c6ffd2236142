//! GMRES: what it minimises, its three placements of the preconditioner, its breakdowns and stagnation. Also several
//! right-hand sides and null spaces.

mod problems;

use std::cell::RefCell;
use std::time::Duration;

use problems::{ALL, Krylov, diagonal, honest, matrix, norm, relative_residual, solve, solve_from, stencil, uneven};
use spandrel_backend::trace::Event;
use spandrel_backend::{Backend, Coeff, Gate, Mat, Preconditioner, Quantity, Trace};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::Csr;
use spandrel_solvers::{
    BiCgStab, Cg, Error, Gmres, GmresOptions, Identity, Jacobi, NullSpace, Options, Outcome, Placement, Status,
};

fn run<M: Preconditioner<f64, Cpu>>(
    a: &Csr<f64>,
    m: &M,
    b: &[f64],
    shape: GmresOptions,
    options: &Options,
) -> (Outcome, Vec<f64>) {
    let be = Cpu::new();
    let resident = Mat::load(&be, a.clone()).unwrap();
    let (b, mut x) = (be.upload(b).unwrap(), be.zeros(a.nrows()).unwrap());
    let outcome = Gmres::with(&be, a.nrows(), &shape).unwrap().solve(&be, &resident, m, &b, &mut x, options).unwrap();
    (outcome, be.download(&x).unwrap())
}

fn restart(restart: usize) -> GmresOptions {
    GmresOptions { restart, ..GmresOptions::default() }
}

/// A stencil with convection and an uneven diagonal.
fn uneven_stencil(k: usize) -> Csr<f64> {
    let mut a = stencil::<f64>(k, 0.4);
    let scale: Vec<f64> = (0..k * k).map(|i| 1.0 + (i % 5) as f64).collect();
    let rows: Vec<usize> = (0..k * k).flat_map(|i| vec![i; a.row(i).0.len()]).collect();
    a.values_mut().iter_mut().zip(rows).for_each(|(v, i)| *v *= scale[i]);
    a
}

#[test]
fn the_residual_falls_and_the_claim_is_the_truth() {
    let a = uneven_stencil(20);
    let b = uneven(400);
    for m in [1, 2, 7, 30, 400, 1000] {
        let options = Options { max_iters: Some(5000), ..Options::default() };
        let (outcome, x) = run(&a, &Identity, &b, restart(m), &options);
        assert_eq!(outcome.status, Status::Converged, "{m} {outcome:?}");
        honest(&a, &x, &b, &outcome);
        assert_eq!(outcome.history.len(), outcome.iterations + 1);
        assert!(outcome.history.windows(2).all(|two| two[1] <= two[0] * (1.0 + 1e-12)), "{m}");
        assert_eq!(outcome.restarts, (outcome.iterations - 1) / m.min(400), "{m}");
        assert!((outcome.residual - outcome.true_residual).abs() <= 1e-6 * outcome.residual, "{outcome:?}");
    }
}

#[test]
fn a_complete_space_is_the_answer() {
    // After n steps the space is complete, in any placement.
    let a = matrix::<f64>(4, 4, &[(0, 1, 2.0), (1, 2, 1.0), (2, 3, 4.0), (3, 0, 3.0), (1, 1, 0.5), (3, 3, -1.0)]);
    let b = [1.0, -2.0, 0.5, 3.0];
    let be = Cpu::new();
    let jacobi = Jacobi::new(&be, &diagonal::<f64>(&[2.0, 1.0, -3.0, 0.5])).unwrap();
    for placement in [Placement::Right, Placement::Left, Placement::Flexible] {
        let options = Options { rtol: Some(1e-12), ..Options::default() };
        let (outcome, x) = run(&a, &jacobi, &b, GmresOptions { restart: 30, placement }, &options);
        assert_eq!((outcome.status, outcome.restarts), (Status::Converged, 0), "{placement:?} {outcome:?}");
        assert!(outcome.iterations <= 4);
        honest(&a, &x, &b, &outcome);
    }
}

#[test]
fn placements_agree_where_the_preconditioner_is_fixed() {
    let a = uneven_stencil(16);
    let be = Cpu::new();
    let jacobi = Jacobi::new(&be, &a).unwrap();
    let b = uneven(256);
    let with = |placement| run(&a, &jacobi, &b, GmresOptions { restart: 50, placement }, &Options::default());
    let (right, left, flexible) = (with(Placement::Right), with(Placement::Left), with(Placement::Flexible));
    for (outcome, x) in [&right, &left, &flexible] {
        assert_eq!(outcome.status, Status::Converged, "{outcome:?}");
        honest(&a, x, &b, outcome);
    }
    // The same H in the first cycle.
    let cycle = 50.min(right.0.iterations);
    assert_eq!(right.0.history[..=cycle], flexible.0.history[..=cycle]);
    assert!(right.0.iterations.abs_diff(left.0.iterations) <= right.0.iterations / 4);
}

/// M^-1 = s I with an s that grows by half each time.
struct Growing {
    s: RefCell<[Scalar<f64>; 2]>,
}

// SAFETY: each call enqueues the same three operations, on scalars that stay where they are.
unsafe impl Preconditioner<f64, Cpu> for Growing {
    fn len(&self) -> Option<usize> {
        None
    }
    fn apply(
        &self,
        be: &Cpu,
        gate: Gate<'_, Cpu>,
        r: &Vector<f64>,
        z: &mut Vector<f64>,
    ) -> spandrel_backend::Result<()> {
        let [s, t] = &mut *self.s.borrow_mut();
        be.axpby(gate, Coeff::scalar(s), r, Coeff::zero(), z)?;
        be.assign(gate, Coeff { host: 1.5, ..Coeff::scalar(s) }, t)?;
        be.assign(gate, Coeff::scalar(t), s)
    }
}

#[test]
fn a_preconditioner_that_varies_needs_the_flexible_one() {
    let a = uneven_stencil(10);
    let be = Cpu::new();
    let growing = || Growing { s: RefCell::new([1.0, 1.0].map(|s| be.scalar(s).unwrap())) };
    let b = uneven(100);
    let shape = GmresOptions { restart: 60, placement: Placement::Flexible };
    let (flexible, x) = run(&a, &growing(), &b, shape, &Options::default());
    assert_eq!((flexible.status, flexible.restarts), (Status::Converged, 0), "{flexible:?}");
    honest(&a, &x, &b, &flexible);
    // Each z_j is a multiple of v_j. So the space is the same as without a preconditioner, and so are the residuals.
    let (plain, _) = run(&a, &Identity, &b, restart(60), &Options::default());
    assert_eq!(flexible.iterations, plain.iterations);
    let (right, x) = run(&a, &growing(), &b, restart(60), &Options::default());
    assert!(!right.status.is_converged() || right.restarts > 0, "{right:?}");
    honest(&a, &x, &b, &right);
}

#[test]
fn a_cycle_that_gains_nothing_has_stagnated() {
    // The cyclic shift: only step n lowers the residual.
    let n = 10;
    let a = matrix::<f64>(n, n, &(0..n).map(|i| ((i + 1) % n, i, 1.0)).collect::<Vec<_>>());
    let mut b = vec![0.0; n];
    b[0] = 1.0;
    let be = Cpu::new();
    let jacobi = Jacobi::new(&be, &diagonal::<f64>(&[2.0; 10])).unwrap();
    for placement in [Placement::Right, Placement::Left, Placement::Flexible] {
        let (outcome, x) = run(&a, &jacobi, &b, GmresOptions { restart: 5, placement }, &Options::default());
        assert_eq!((outcome.status, outcome.iterations), (Status::Stagnated, 5), "{placement:?} {outcome:?}");
        assert_eq!((outcome.true_residual, norm(&x)), (1.0, 0.0));
    }
    let (outcome, x) = run(&a, &Identity, &b, restart(10), &Options::default());
    assert_eq!((outcome.status, outcome.iterations), (Status::Converged, 10), "{outcome:?}");
    honest(&a, &x, &b, &outcome);
}

#[test]
fn a_space_that_is_exhausted_without_the_answer_is_a_breakdown() {
    // A r = 0, although the system has an answer.
    let nilpotent = matrix::<f64>(2, 2, &[(0, 1, 1.0)]);
    let (outcome, _) = run(&nilpotent, &Identity, &[1.0, 0.0], restart(30), &Options::default());
    assert_eq!((outcome.status, outcome.iterations), (Status::Breakdown, 0), "{outcome:?}");
    assert_eq!(outcome.breakdown, Some((Quantity::Subdiagonal, 0)));
    // There is no answer: b is ||b|| / sqrt 2 away from the range. x is the nearest that there is.
    let ones = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
    let (outcome, x) = run(&ones, &Identity, &[2.0, 0.0], restart(30), &Options::default());
    assert_eq!(outcome.status, Status::Breakdown, "{outcome:?}");
    assert!((outcome.true_residual - std::f64::consts::FRAC_1_SQRT_2).abs() < 1e-15);
    honest(&ones, &x, &[2.0, 0.0], &outcome);
    assert!(x.iter().all(|x| x.abs() < 4.0));
}

#[test]
fn a_cycle_of_no_steps_is_refused() {
    let refused = Gmres::<f64, Cpu>::with(&Cpu::new(), 3, &restart(0));
    assert!(matches!(refused, Err(Error::Option { name: "restart", .. })));
}

#[test]
fn the_host_waits_at_its_looks_alone() {
    let be = Trace::new(Cpu::new());
    let csr = stencil::<f64>(40, 0.1);
    let a = Mat::load(&be, csr.clone()).unwrap();
    let (b, mut x) = (be.upload(&uneven::<f64>(1600)).unwrap(), Backend::<f64>::zeros(&be, 1600).unwrap());
    let mut gmres = Gmres::new(&be, 1600).unwrap();
    be.take();
    // The host looks by iterations only. By time a slow machine would look more often.
    let options = Options { history: false, check_after: Duration::MAX, ..Options::default() };
    let outcome = gmres.solve(&be, &a, &Identity, &b, &mut x, &options).unwrap();
    assert!(outcome.status.is_converged() && outcome.restarts >= 3, "{outcome:?}");
    let log = be.take();
    let count = |event: fn(&Event) -> bool| log.iter().filter(|e| event(e)).count();
    // The norm of b, the norms of r before each cycle and at the end, and two looks in a full cycle of 30.
    let looks = 2 * outcome.restarts + (outcome.iterations - 30 * outcome.restarts).div_ceil(16);
    assert_eq!(count(|e| *e == Event::Wait("download_scalars")), looks);
    assert_eq!(count(|e| *e == Event::Wait("download_scalar")), outcome.restarts + 3);
    assert_eq!(count(|e| *e == Event::Capture), 2, "each stretch of a cycle once");
    // Step j costs 5 j + 9 passes. These are the steps 16 to 29, before the end of their replay.
    let last = log.iter().rposition(|e| *e == Event::Replay).unwrap();
    let launches = log[last + 1..].iter().map_while(|e| if let Event::Launch(l) = e { Some(l) } else { None });
    let (mut passes, mut products) = (0, 0);
    for launch in launches.take_while(|launch| launch.gated) {
        passes += launch.vectors / (8 * 1600);
        products += usize::from(launch.matrix > 0);
    }
    let cost = |j: u64| 5 * j + 9;
    let expected: [u64; 2] = [(0..16).map(cost).sum(), (16..30).map(cost).sum::<u64>() - 2];
    assert!(expected.contains(&passes) && [16, 14].contains(&products), "{passes} {products} {expected:?}");
}

#[test]
fn many_right_hand_sides_share_a_workspace_and_its_graphs() {
    let (spd, general) = (stencil::<f64>(25, 0.0), stencil::<f64>(25, 0.3));
    let n = 625;
    let systems: Vec<Vec<f64>> = (0..4)
        .map(|k| {
            uneven::<f64>(n)
                .iter()
                .enumerate()
                .map(|(i, v)| if k == 2 { 0.0 } else { v + (i % (k + 2)) as f64 })
                .collect()
        })
        .collect();
    for method in ALL {
        let csr = if method == Krylov::Cg { &spd } else { &general };
        for recorded in [true, false] {
            let options = Options { recorded, check_after: Duration::MAX, ..Options::default() };
            let be = Trace::new(Cpu::new());
            let a = Mat::load(&be, csr.clone()).unwrap();
            let m = Jacobi::new(&be, csr).unwrap();
            let b: Vec<_> = systems.iter().map(|b| be.upload(b).unwrap()).collect();
            let mut x: Vec<_> = b.iter().map(|_| Backend::<f64>::zeros(&be, n).unwrap()).collect();
            be.take();
            let outcomes = match method {
                Krylov::Cg => Cg::new(&be, n).unwrap().solve_many(&be, &a, &m, &b, &mut x, &options, None),
                Krylov::BiCgStab => BiCgStab::new(&be, n).unwrap().solve_many(&be, &a, &m, &b, &mut x, &options, None),
                Krylov::Gmres => Gmres::new(&be, n).unwrap().solve_many(&be, &a, &m, &b, &mut x, &options, None),
            }
            .unwrap();
            let captures = be.take().iter().filter(|e| **e == Event::Capture).count();
            let most = if method == Krylov::Gmres { 2 } else { 1 };
            assert!(if recorded { (1..=most).contains(&captures) } else { captures == 0 }, "{method:?} {captures}");
            let cpu = Cpu::new();
            let m = Jacobi::new(&cpu, csr).unwrap();
            for ((b, x), outcome) in systems.iter().zip(&x).zip(&outcomes) {
                let (alone, y) = solve_from(&cpu, method, csr, &m, b, &[], &options);
                assert_eq!((outcome, be.download(x).unwrap()), (&alone, y), "{method:?}");
            }
            assert_eq!(outcomes.len(), 4);
        }
    }
    let be = Cpu::new();
    let a = Mat::load(&be, spd).unwrap();
    let b = [be.upload(&systems[0]).unwrap()];
    let refused = Cg::new(&be, n).unwrap().solve_many(&be, &a, &Identity, &b, &mut [], &Options::default(), None);
    assert!(matches!(refused, Err(Error::Size { found: 0, expected: 1, .. })));
}

/// The 5-point stencil with Neumann boundaries on a k x k grid: singular, with the constant vectors as its null space.
fn neumann(k: usize) -> Csr<f64> {
    let mut entries = Vec::new();
    for (i, j) in (0..k * k).flat_map(|i| [(i, i + 1), (i, i + k)]) {
        if j < k * k && (j == i + k || j % k != 0) {
            entries.extend([(i, j, -1.0), (j, i, -1.0), (i, i, 1.0), (j, j, 1.0)]);
        }
    }
    let mut degree = vec![0.0; k * k];
    entries.iter().filter(|e| e.0 == e.1).for_each(|e| degree[e.0] += e.2);
    entries.retain(|e| e.0 != e.1);
    entries.extend(degree.into_iter().enumerate().map(|(i, d)| (i, i, d)));
    matrix(k * k, k * k, &entries)
}

fn neumann_solve(method: Krylov, b: &[f64], guess: &[f64], jacobi: bool) -> (Outcome, Vec<f64>) {
    let be = Cpu::new();
    let csr = neumann(12);
    let n = csr.nrows();
    let a = Mat::load(&be, csr.clone()).unwrap();
    let null = NullSpace::constant(&be, n).unwrap();
    let (b, mut x) = (be.upload(b).unwrap(), be.upload(guess).unwrap());
    let options = Options::default();
    let m: Box<dyn Preconditioner<f64, Cpu>> =
        if jacobi { Box::new(Jacobi::new(&be, &csr).unwrap()) } else { Box::new(Identity) };
    let outcome = null
        .solve(&be, &a, &m, &b, &mut x, &options, |m, b, x, options| match method {
            Krylov::Cg => Cg::new(&be, n)?.solve(&be, &a, m, b, x, options),
            Krylov::BiCgStab => BiCgStab::new(&be, n)?.solve(&be, &a, m, b, x, options),
            Krylov::Gmres => Gmres::new(&be, n)?.solve(&be, &a, m, b, x, options),
        })
        .unwrap();
    (outcome, be.download(&x).unwrap())
}

#[test]
fn singular_systems_with_a_known_null_space_end_honestly() {
    let n = 144;
    let any: Vec<f64> = uneven(n);
    let mean = any.iter().sum::<f64>() / n as f64;
    let consistent: Vec<f64> = any.iter().map(|v| v - mean).collect();
    for method in ALL {
        for jacobi in [false, true] {
            for guess in [vec![0.0; n], uneven(n)] {
                let (outcome, x) = neumann_solve(method, &consistent, &guess, jacobi);
                assert_eq!(outcome.status, Status::Converged, "{method:?} {jacobi} {outcome:?}");
                assert!(relative_residual(&neumann(12), &x, &consistent) <= 1.01e-8);
                let (worse, y) = neumann_solve(method, &any, &guess, jacobi);
                assert_eq!(worse.status, Status::Inconsistent, "{method:?} {jacobi} {worse:?}");
                honest(&neumann(12), &y, &any, &worse);
                // The rest is the mean of b, and beyond that no more than the tolerance.
                let beyond = mean.abs() * 12.0 / norm(&any);
                assert!((beyond..=beyond + 1e-8).contains(&(worse.true_residual + 1e-14)), "{worse:?} {beyond}");
                for x in [x, y] {
                    assert!(x.iter().sum::<f64>().abs() <= 1e-12 * norm(&x), "the shortest answer");
                }
            }
        }
        let (none, x) = neumann_solve(method, &vec![3.0; n], &uneven(n), true);
        assert_eq!((none.status, none.true_residual), (Status::Inconsistent, 1.0), "{none:?}");
        assert_eq!(norm(&x), 0.0);
        let (zero, x) = neumann_solve(method, &vec![0.0; n], &uneven(n), false);
        assert_eq!((zero.status, norm(&x)), (Status::Converged, 0.0));
    }
}

#[test]
fn a_basis_that_is_none_is_refused() {
    let be = Cpu::new();
    let found = |vectors: &[Vec<f64>]| NullSpace::new(&be, 2, vectors).unwrap_err();
    assert!(matches!(found(&[vec![1.0]]), Error::Size { found: 1, expected: 2, .. }));
    assert!(matches!(found(&[vec![1.0, f64::NAN]]), Error::NullVector { index: 0, .. }));
    assert!(matches!(found(&[vec![1.0, 3.0], vec![2.0, 6.0]]), Error::NullVector { index: 1, .. }));
    assert!(matches!(found(&[vec![0.0, 0.0]]), Error::NullVector { index: 0, .. }));
}

#[test]
fn without_its_null_space_an_inconsistent_system_does_not_converge() {
    let b = uneven::<f64>(144);
    for method in ALL {
        let (outcome, x) = solve(&Cpu::new(), method, &neumann(12), &b, &Options::default());
        assert!(!outcome.status.is_converged(), "{method:?} {outcome:?}");
        honest(&neumann(12), &x, &b, &outcome);
    }
}
