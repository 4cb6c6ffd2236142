//! Mixed precision: an f32 preconditioner in an f64 iteration, for numbers of any size. Also refinement, which reports
//! `converged` only if the residual in f64 is small enough.

mod problems;

use std::ops::ControlFlow;

use problems::{ALL, Krylov, diagonal, honest, matrix, solve_from, stencil, uneven};
use spandrel_backend::{Backend, Mat, Preconditioner, Quantity, Watch};
use spandrel_backend_cpu::{Cpu, Vector};
use spandrel_formats::Csr;
use spandrel_solvers::options::Watcher;
use spandrel_solvers::{
    BiCgStab, Cg, Error, Gmres, Identity, Ilu, Jacobi, Mixed, Narrowed, Options, Outcome, Progress, Refine, Result,
    Status,
};
use spandrel_sptrsv::Levelset;

fn jacobi(be: &Cpu, a: &Csr<f64>) -> Mixed<Cpu, Jacobi<f32, Cpu>> {
    Mixed::of(be, a, Jacobi::<f32, Cpu>::new).unwrap()
}

fn applied<M: Preconditioner<f64, Cpu>>(be: &Cpu, m: &M, r: &[f64]) -> Vec<f64> {
    let r = be.upload(r).unwrap();
    let mut z = be.upload(&vec![f64::NAN; r.len()]).unwrap();
    m.apply(be, None, &r, &mut z).unwrap();
    be.download(&z).unwrap()
}

fn times(v: &[f64], k: i32) -> Vec<f64> {
    v.iter().map(|v| v * 2f64.powi(k)).collect()
}

#[test]
fn it_is_the_f32_preconditioner_in_every_scale() {
    let be = Cpu::new();
    let a = stencil::<f64>(7, 0.25);
    let r = uneven::<f64>(49);
    let plain = Ilu::<Cpu, Levelset<f32>>::new(&be, &a.map(|v| (v / 4.0) as f32)).unwrap();
    let r32 = be.upload(&r.iter().map(|&v| (v * 2.0) as f32).collect::<Vec<f32>>()).unwrap();
    let mut z32 = Backend::<f32>::zeros(&be, 49).unwrap();
    plain.apply(&be, None, &r32, &mut z32).unwrap();
    // The largest element of r is between 1/2 and 1, and the largest entry of A between 4 and 8.
    let wanted: Vec<f64> = be.download(&z32).unwrap().iter().map(|&z| f64::from(z) / 8.0).collect();
    for (of_a, of_r) in [(0, 0), (0, 1000), (0, -1000), (900, 0), (-900, 0), (900, 950), (-900, -950)] {
        let a = a.map(|v| v * 2f64.powi(of_a));
        let m = Mixed::of(&be, &a, Ilu::<Cpu, Levelset<f32>>::new).unwrap();
        assert_eq!(applied(&be, &m, &times(&r, of_r)), times(&wanted, of_r - of_a), "2^{of_a} A, 2^{of_r} r");
    }
    let zeros = applied(&be, &jacobi(&be, &a), &[0.0; 49]);
    assert!(zeros.iter().all(|&z| z == 0.0));
    let mut spoiled = r.clone();
    spoiled[3] = f64::NAN;
    let z = applied(&be, &jacobi(&be, &a), &spoiled);
    assert!(z[3].is_nan() && z[4].is_finite());
}

#[test]
fn narrowing_keeps_the_largest_entry_near_one() {
    for v in [1.0, 3e-300, 1e300, f64::MAX, f64::MIN_POSITIVE, 1e-310] {
        let a = diagonal::<f64>(&[v, v / 3.0]);
        let Narrowed { matrix, exponent } = Narrowed::new(&a);
        let largest = matrix.values()[0];
        assert!(largest <= 4.0 && (largest >= 1.0 || v < f64::MIN_POSITIVE), "{v:e}: {largest:e}");
        for (narrow, wide) in matrix.values().iter().zip(a.values()) {
            // The scaling is exact; then comes a rounding of half an ulp of f32.
            let (found, scaled) = (f64::from(*narrow), wide * 2f64.powi(-exponent));
            assert!((found - scaled).abs() <= scaled * 2f64.powi(-24), "{wide:e}: {found:e}");
        }
    }
    assert_eq!(Narrowed::new(&diagonal(&[0.0])).exponent, 0);
}

#[test]
fn an_iteration_in_f64_converges_with_it_as_far_as_f64_goes() {
    let be = Cpu::new();
    for (method, convection) in [(Krylov::Cg, 0.0), (Krylov::BiCgStab, 0.3)] {
        let a = stencil::<f64>(20, convection);
        for exponent in [0, 300, -300, 660, -660] {
            let a = a.map(|v| v * 2f64.powi(exponent));
            let b = times(&uneven(400), exponent / 2);
            let options = Options { rtol: Some(1e-12), ..Options::default() };
            let m = Mixed::of(&be, &a, Ilu::<Cpu, Levelset<f32>>::new).unwrap();
            let m: &dyn Preconditioner<f64, Cpu> = &m;
            let m: Box<dyn Preconditioner<f64, Cpu>> = Box::new(Borrowed(m));
            let (outcome, x) = solve_from(&be, method, &a, &m, &b, &[], &options);
            assert_eq!(outcome.status, Status::Converged, "{method:?} 2^{exponent}: {outcome:?}");
            if exponent == 0 {
                honest(&a, &x, &b, &outcome);
            }
            let plain = Options { recorded: false, check_every: 3, ..options };
            let (again, same) = solve_from(&be, method, &a, &m, &b, &[], &plain);
            assert_eq!((outcome, x), (again, same));
        }
    }
}

/// A preconditioner behind a reference.
struct Borrowed<'a>(&'a dyn Preconditioner<f64, Cpu>);

// SAFETY: every operation is that of the borrowed preconditioner.
unsafe impl Preconditioner<f64, Cpu> for Borrowed<'_> {
    fn len(&self) -> Option<usize> {
        self.0.len()
    }
    fn apply(
        &self,
        be: &Cpu,
        gate: spandrel_backend::Gate<'_, Cpu>,
        r: &Vector<f64>,
        z: &mut Vector<f64>,
    ) -> spandrel_backend::Result<()> {
        self.0.apply(be, gate, r, z)
    }
}

#[test]
fn behind_a_stopped_monitor_it_changes_nothing() {
    use spandrel_backend::Device;
    let be = Cpu::new();
    let m = jacobi(&be, &stencil(3, 0.0));
    let r = be.upload(&uneven::<f64>(9)).unwrap();
    let mut z = be.upload(&[7.0; 9]).unwrap();
    let mut monitor = be.monitor(&Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 }).unwrap();
    let zero = Backend::<f64>::scalar(&be, 0.0).unwrap();
    Backend::<f64>::require_nonzero(&be, &zero, Quantity::Rho, &mut monitor).unwrap();
    m.apply(&be, Some(&monitor), &r, &mut z).unwrap();
    assert_eq!(be.download(&z).unwrap(), [7.0; 9]);
}

#[test]
fn new_values_have_the_bits_of_a_new_preconditioner() {
    let be = Cpu::new();
    let (a, r) = (stencil::<f64>(7, 0.25), uneven::<f64>(49));
    let mut m = Mixed::of(&be, &a, Ilu::<Cpu, Levelset<f32>>::new).unwrap();
    let take = |m: &mut Mixed<Cpu, Ilu<Cpu, Levelset<f32>>>, a: &Csr<f64>| {
        m.update(&be, a, |ilu, be, narrow| ilu.update(be, narrow.values()))
    };
    let mut before = applied(&be, &m, &r);
    for exponent in [1, 40, -900, 900, 0] {
        let mut next = a.map(|v| v * 2f64.powi(exponent));
        next.values_mut().iter_mut().enumerate().for_each(|(at, v)| *v *= 1.0 + 0.125 * (at % 3) as f64);
        take(&mut m, &next).unwrap();
        let found = applied(&be, &m, &r);
        let anew = Mixed::of(&be, &next, Ilu::<Cpu, Levelset<f32>>::new).unwrap();
        assert_eq!(found, applied(&be, &anew, &r), "2^{exponent}");
        assert_ne!(found, before);
        // The same with values that are on the device.
        let mut other = Mixed::of(&be, &a, Ilu::<Cpu, Levelset<f32>>::new).unwrap();
        let values = be.upload(next.values()).unwrap();
        other.update_from(&be, &values, |ilu, be, narrow| ilu.update(be, &be.download(narrow)?)).unwrap();
        assert_eq!(applied(&be, &other, &r), found);
        // Refused values change neither the factors nor the exponent.
        assert!(take(&mut m, &a.map(|v| v * f64::INFINITY)).is_err() && take(&mut m, &diagonal(&[1e9; 49])).is_err());
        let size = take(&mut m, &stencil(6, 0.0)).unwrap_err();
        assert!(matches!(size, Error::Size { found: 36, expected: 49, .. }), "{size}");
        assert_eq!(applied(&be, &m, &r), found);
        before = found;
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let be = Cpu::new();
    let m = Jacobi::<f32, Cpu>::new(&be, &stencil(3, 0.0)).unwrap();
    assert!(matches!(Mixed::new(&be, m, 8, 0), Err(Error::Size { found: 9, expected: 8, .. })));
    assert!(matches!(Mixed::<Cpu, _>::new(&be, Identity, 8, 1023), Err(Error::Parameter { name: "exponent", .. })));
    assert!(Refine::<Cpu>::new(&be, 3).unwrap().with_inner_rtol(0.5).is_err());
    assert!(Refine::<Cpu>::new(&be, 3).unwrap().with_inner_rtol(f64::NAN).is_err());
    // If f32 cannot hold an entry beside the largest one, the preconditioner that needs the entry reports it.
    let uneven = diagonal::<f64>(&[1.0, 1e-60]);
    let error = Mixed::of(&be, &uneven, Jacobi::<f32, Cpu>::new).unwrap_err();
    assert!(matches!(error, Error::Diagonal { row: 1, .. }), "{error}");
}

/// Refines with a method in f32 and Jacobi, or without a preconditioner.
fn refined(
    be: &Cpu,
    method: Krylov,
    a: &Csr<f64>,
    b: &[f64],
    options: &Options,
    watcher: Watcher<'_>,
) -> (Outcome, Vec<f64>) {
    let n = a.nrows();
    let Narrowed { matrix, exponent } = Narrowed::new(a);
    let m = Jacobi::<f32, Cpu>::new(be, &matrix).unwrap();
    let narrow = Mat::<Cpu, Csr<f32>>::load(be, matrix).unwrap();
    let wide = Mat::<Cpu, Csr<f64>>::load(be, a.clone()).unwrap();
    let (mut cg, mut bicgstab) = (Cg::<f32, Cpu>::new(be, n).unwrap(), BiCgStab::<f32, Cpu>::new(be, n).unwrap());
    let mut gmres = Gmres::<f32, Cpu>::new(be, n).unwrap();
    let inner = |be: &Cpu, r: &Vector<f32>, d: &mut Vector<f32>, options: &Options, w: Watcher<'_>| match method {
        Krylov::Cg => cg.solve_watched(be, &narrow, &m, r, d, options, w),
        Krylov::BiCgStab => bicgstab.solve_watched(be, &narrow, &m, r, d, options, w),
        Krylov::Gmres => gmres.solve_watched(be, &narrow, &m, r, d, options, w),
    };
    let (b, mut x) = (be.upload(b).unwrap(), Backend::<f64>::zeros(be, n).unwrap());
    let mut refine = Refine::new(be, n).unwrap();
    let outcome = refine.solve_watched(be, &wide, exponent, inner, &b, &mut x, options, watcher).unwrap();
    (outcome, be.download(&x).unwrap())
}

fn unwatched(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn refinement_reaches_what_f32_alone_cannot() {
    let be = Cpu::new();
    for (method, convection) in [(Krylov::Cg, 0.0), (Krylov::BiCgStab, 0.3), (Krylov::Gmres, 0.3)] {
        for exponent in [0, 700, -700] {
            let a = stencil::<f64>(24, convection).map(|v| v * 2f64.powi(exponent));
            let b = times(&uneven(576), exponent);
            let options = Options { rtol: Some(1e-12), ..Options::default() };
            let (outcome, x) = refined(&be, method, &a, &b, &options, &mut unwatched);
            assert_eq!(outcome.status, Status::Converged, "{method:?} 2^{exponent}: {outcome:?}");
            assert!(outcome.true_residual <= 1e-12 && outcome.restarts >= 2, "{outcome:?}");
            assert_eq!(outcome.history.len(), outcome.iterations + 1, "{method:?} {outcome:?}");
            if exponent == 0 {
                honest(&a, &x, &b, &outcome);
            }
        }
    }
}

#[test]
fn refinement_says_where_it_ends() {
    let be = Cpu::new();
    let a = stencil::<f64>(12, 0.0);
    let b = uneven::<f64>(144);
    let with = |options: Options| refined(&be, Krylov::Cg, &a, &b, &options, &mut unwatched).0;
    let outcome = with(Options { rtol: Some(0.0), ..Options::default() });
    assert_eq!(outcome.status, Status::Stagnated);
    assert!(outcome.true_residual < 1e-14, "{outcome:?}");
    let outcome = with(Options { rtol: Some(1e-12), max_iters: Some(5), ..Options::default() });
    assert_eq!((outcome.status, outcome.iterations), (Status::MaxIterations, 5));
    assert!(outcome.true_residual < 1.0);
    let outcome = with(Options { rtol: Some(1e-12), max_restarts: 0, ..Options::default() });
    assert_eq!(outcome.status, Status::Stagnated);
    let outcome = with(Options { rtol: Some(0.0), atol: 1e-6, history: false, ..Options::default() });
    assert!(outcome.status.is_converged() && outcome.history.is_empty());

    let mut looks = 0;
    let mut stop = |progress: Progress| {
        looks += 1;
        assert!(progress.target == 1e-12 && progress.residual <= 1.0);
        if progress.iterations > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = Options { rtol: Some(1e-12), check_every: 2, ..Options::default() };
    let (outcome, _) = refined(&be, Krylov::Cg, &a, &b, &options, &mut stop);
    assert_eq!((outcome.status, outcome.iterations), (Status::Interrupted, 2));
    assert!(looks >= 2);
}

#[test]
fn refinement_of_nothing_and_of_no_number() {
    let be = Cpu::new();
    let a = stencil::<f64>(4, 0.0);
    let (outcome, x) = refined(&be, Krylov::Cg, &a, &[0.0; 16], &Options::default(), &mut unwatched);
    assert!(outcome.status.is_converged() && x.iter().all(|&x| x == 0.0));
    let mut b = uneven::<f64>(16);
    b[5] = f64::INFINITY;
    let (outcome, _) = refined(&be, Krylov::Cg, &a, &b, &Options::default(), &mut unwatched);
    assert_eq!(outcome.status, Status::NotFinite);
    assert!(outcome.true_residual.is_nan());
    let (outcome, _) = refined(&be, Krylov::Cg, &matrix(0, 0, &[]), &[], &Options::default(), &mut unwatched);
    assert!(outcome.status.is_converged());
}

#[test]
fn a_matrix_that_f32_makes_singular_is_not_called_solved() {
    let be = Cpu::new();
    let a = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0 + 1e-9)]);
    for method in ALL {
        let (outcome, x) = refined(&be, method, &a, &[1.0, -1.0], &Options::default(), &mut unwatched);
        assert!(!outcome.status.is_converged(), "{method:?} {outcome:?}");
        assert!(outcome.true_residual <= 1.0 && outcome.true_residual > 1e-8, "{outcome:?}");
        honest(&a, &x, &[1.0, -1.0], &outcome);
    }
}

#[test]
fn an_error_within_is_an_error() {
    let be = Cpu::new();
    let a = Mat::<Cpu, Csr<f64>>::load(&be, stencil(3, 0.0)).unwrap();
    let refuse = |_: &Cpu, _: &Vector<f32>, _: &mut Vector<f32>, _: &Options, _: Watcher<'_>| -> Result<Outcome> {
        Err(Error::Parameter { name: "any", value: 0.0, range: "none" })
    };
    let b = be.upload(&[1.0; 9]).unwrap();
    let (mut x, mut short) = (Backend::<f64>::zeros(&be, 9).unwrap(), Backend::<f64>::zeros(&be, 8).unwrap());
    let options = Options::default();
    let mut refine = Refine::new(&be, 9).unwrap();
    assert!(matches!(refine.solve(&be, &a, 0, refuse, &b, &mut x, &options), Err(Error::Parameter { .. })));
    assert!(matches!(refine.solve(&be, &a, 0, refuse, &b, &mut short, &options), Err(Error::Size { .. })));
}
