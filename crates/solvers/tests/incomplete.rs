//! Preconditioners by triangular solves: they save iterations on generated and on real matrices, give the same bits
//! with every plan, take new values in place, and report where they break down.

mod problems;

use std::path::{Path, PathBuf};

use problems::{Krylov, honest, matrix, solve_from, uneven};
use spandrel_backend::{Backend, Preconditioner, Sptrsv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Permutation, Real, generate, matrix_market};
use spandrel_solvers::{Error, Factored, Ic, Ilu, Jacobi, Options, Ssor, Status};
use spandrel_sptrsv::{Capellini, Factor, Ic0, Ilu0, Iluk, Ilut, IlutOptions, Levelset, Plan, Serial, Sweep, Syncfree};

/// The number of iterations until convergence. Checks the true residual.
fn iterations<M: Preconditioner<f64, Cpu>>(be: &Cpu, method: Krylov, a: &Csr<f64>, m: &M, what: &str) -> usize {
    let b = uneven(a.nrows());
    let (outcome, x) = solve_from(be, method, a, m, &b, &[], &Options::default());
    assert_eq!(outcome.status, Status::Converged, "{what}: {:?} {:e}", outcome.breakdown, outcome.true_residual);
    assert!(outcome.true_residual <= 1e-8, "{what}");
    honest(a, &x, &b, &outcome);
    outcome.iterations
}

/// The iterations of Jacobi, whether it converges or not.
fn with_jacobi(be: &Cpu, method: Krylov, a: &Csr<f64>) -> usize {
    let jacobi = Jacobi::new(be, a).unwrap();
    solve_from(be, method, a, &jacobi, &uneven(a.nrows()), &[], &Options::default()).0.iterations
}

/// CG with IC(0) and SSOR, BiCGStab with ILU(0) and ILU(1), against Jacobi.
fn saves<P: Plan<Value = f64>>(be: &Cpu, a: &Csr<f64>, what: &str)
where
    Cpu: Sptrsv<P>,
{
    if a.is_symmetric() {
        let jacobi = with_jacobi(be, Krylov::Cg, a);
        let ic = iterations(be, Krylov::Cg, a, &Ic::<Cpu, P>::new(be, a).unwrap(), what);
        let ssor = iterations(be, Krylov::Cg, a, &Ssor::<Cpu, P>::new(be, a).unwrap(), what);
        assert!(ic < jacobi && ssor < jacobi, "{what}: ic0 {ic}, ssor {ssor}, jacobi {jacobi}");
    }
    let jacobi = with_jacobi(be, Krylov::BiCgStab, a);
    let ilu0 = iterations(be, Krylov::BiCgStab, a, &Ilu::<Cpu, P>::new(be, a).unwrap(), what);
    let iluk = iterations(be, Krylov::BiCgStab, a, &Ilu::<Cpu, P, Iluk<f64>>::new(be, a).unwrap(), what);
    let ilut = iterations(be, Krylov::BiCgStab, a, &Ilu::<Cpu, P, Ilut<f64>>::new(be, a).unwrap(), what);
    assert!(ilu0 < jacobi && iluk < jacobi, "{what}: ilu0 {ilu0}, iluk=1 {iluk}, jacobi {jacobi}");
    assert!(ilut < ilu0, "{what}: ilut {ilut}, ilu0 {ilu0}");
}

#[test]
fn they_save_iterations_on_grids() {
    let be = Cpu::new();
    for spec in ["d3n7:12", "d3n27:10x9x8", "poisson2d:24", "convdiff2d:24,peclet=20", "convdiff3d:10,peclet=10"] {
        saves::<Levelset<f64>>(&be, &generate::csr(spec).unwrap(), spec);
    }
}

/// The path of a real matrix, if there are some in or beside the checkout.
fn real(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = ["shared/matrices", "../shared/matrices"].map(|folder| root.join(folder).join(name));
    places.into_iter().find(|path| path.exists())
}

#[test]
fn they_save_iterations_on_real_matrices() {
    let be = Cpu::new();
    for name in ["1138_bus", "662_bus", "gr_30_30", "nos6", "Trefethen_2000", "orsirr_1", "sherman4", "saylr1"] {
        let Some(path) = real(&format!("{name}.mtx.gz")) else {
            println!("skipped {name}: no shared/matrices in or beside this checkout");
            continue;
        };
        saves::<Levelset<f64>>(&be, &matrix_market::read_csr(&path).unwrap(), name);
    }
}

/// The bits of z = M^-1 r.
fn applied<T: Real, P: Plan<Value = T>, F: Factor<Value = T>>(be: &Cpu, a: &Csr<T>) -> Vec<u64>
where
    Cpu: Sptrsv<P>,
{
    let m = Factored::<Cpu, P, F>::new(be, a).unwrap();
    assert!(m.is_stored_order(be), "{}", P::NAME);
    bits(be, &m, a.nrows())
}

fn bits<T: Real, M: Preconditioner<T, Cpu>>(be: &Cpu, m: &M, n: usize) -> Vec<u64> {
    let r = be.upload(&uneven::<T>(n)).unwrap();
    let mut z = be.upload(&vec![T::nan(); n]).unwrap();
    m.apply(be, None, &r, &mut z).unwrap();
    be.download(&z).unwrap().iter().map(|z| z.as_f64().to_bits()).collect()
}

#[test]
fn plans_of_the_stored_order_give_the_same_bits() {
    fn one<T: Real, F: Factor<Value = T>>(be: &Cpu, a: &Csr<T>) {
        let serial = applied::<T, Serial<T>, F>(be, a);
        assert_eq!(serial, applied::<T, Levelset<T>, F>(be, a), "{}", F::NAME);
        let unordered = Factored::<Cpu, Syncfree<T>, F>::new(be, a).unwrap();
        assert!(!unordered.is_stored_order(be), "{}: atomics add in no order", F::NAME);
        assert_eq!(serial, applied::<T, Capellini<T>, F>(be, a), "{}", F::NAME);
        assert_eq!(serial, applied::<T, Sweep<T>, F>(be, a), "{}", F::NAME);
    }
    fn all<T: Real>(be: &Cpu) {
        let a = generate::csr::<T>("d3n27:6x5x4").unwrap();
        one::<T, Ilu0<T>>(be, &a);
        one::<T, Ic0<T>>(be, &a);
        one::<T, spandrel_sptrsv::Ssor<T>>(be, &a);
    }
    let be = Cpu::new();
    all::<f64>(&be);
    all::<f32>(&be);
}

#[test]
fn new_values_are_taken_in_place() {
    fn one<F: Factor<Value = f64>>(be: &Cpu, old: &Csr<f64>, new: &Csr<f64>) {
        let n = old.nrows();
        // The pattern of ILUT is chosen for the first values.
        let symbolic = F::symbolic(old).unwrap();
        let fresh = bits(be, &Factored::<Cpu, Levelset<f64>, F>::with(be, symbolic, new.values()).unwrap(), n);
        let mut m = Factored::<Cpu, Levelset<f64>, F>::new(be, old).unwrap();
        let before = bits(be, &m, n);
        assert_ne!(before, fresh);
        assert!(m.update(be, &vec![f64::NAN; old.nnz()]).is_err() && m.update(be, &[1.0]).is_err());
        assert_eq!(bits(be, &m, n), before, "an error leaves it as it was");
        m.update(be, new.values()).unwrap();
        assert_eq!(bits(be, &m, n), fresh, "{}", F::NAME);
    }
    let be = Cpu::new();
    let old = generate::csr::<f64>("poisson2d:9x7").unwrap();
    let mut new = old.clone();
    for (at, v) in new.values_mut().iter_mut().enumerate() {
        *v *= 1.0 + 0.125 * (at % 3) as f64;
    }
    one::<Ilu0<f64>>(&be, &old, &new);
    one::<Iluk<f64>>(&be, &old, &new);
    one::<Ilut<f64>>(&be, &old, &new);
    one::<Ic0<f64>>(&be, &old, &new);
    one::<spandrel_sptrsv::Ssor<f64>>(&be, &old, &new);
}

#[test]
fn more_fill_saves_more_and_a_complete_factorisation_solves() {
    let be = Cpu::new();
    let a = generate::csr::<f64>("convdiff2d:16,peclet=5").unwrap();
    let with = |level| {
        let m = Ilu::<Cpu, Serial<f64>, _>::with(&be, Iluk::with_level(&a, level).unwrap(), a.values()).unwrap();
        iterations(&be, Krylov::BiCgStab, &a, &m, &format!("iluk={level}"))
    };
    let counts = [0, 2, 256].map(with);
    assert!(counts[2] <= 1 && counts[1] < counts[0], "{counts:?}");
    let ilut = |drop| {
        let symbolic = Ilut::new(&a, IlutOptions { drop, ..IlutOptions::default() }).unwrap();
        let m = Ilu::<Cpu, Serial<f64>, _>::with(&be, symbolic, a.values()).unwrap();
        iterations(&be, Krylov::BiCgStab, &a, &m, &format!("ilut={drop}"))
    };
    let by_drop = [1e-1, 1e-3, 1e-6].map(ilut);
    assert!(by_drop[2] < by_drop[1] && by_drop[1] < by_drop[0] && by_drop[1] < counts[0], "{by_drop:?} {counts:?}");
}

/// The status of GMRES for A x = b with ILUTP: it solves (A Q) y = b, and x = Q y.
fn by_ilutp(be: &Cpu, a: &Csr<f64>, options: IlutOptions) -> Status {
    let (q, symbolic) = Ilut::pivoted(a, options).unwrap();
    let aq = q.permute_columns(a).unwrap();
    let m = Ilu::<Cpu, Levelset<f64>, _>::with(be, symbolic, aq.values()).unwrap();
    let b = uneven(a.nrows());
    let (outcome, y) = solve_from(be, Krylov::Gmres, &aq, &m, &b, &[], &Options::default());
    let mut x = vec![0.0; y.len()];
    q.apply_inverse_to(&y, &mut x).unwrap();
    honest(a, &x, &b, &outcome);
    outcome.status
}

#[test]
fn column_pivots_solve_what_has_no_diagonal() {
    let be = Cpu::new();
    // Rows are exchanged with their neighbours, so the diagonal has an entry only by chance.
    for spec in ["convdiff2d:20,peclet=5", "poisson2d:24", "convdiff3d:8,peclet=10"] {
        let a = generate::csr::<f64>(spec).unwrap();
        let n = a.nrows() as u32;
        let turned = Permutation::new((7..n).chain(0..7).collect()).unwrap().permute_rows(&a).unwrap();
        assert!(Ilu::<Cpu, Serial<f64>>::new(&be, &turned).is_err(), "{spec}");
        let largest = IlutOptions { pivot: 1.0, ..IlutOptions::default() };
        assert_eq!(by_ilutp(&be, &turned, largest), Status::Converged, "{spec}");
    }
}

#[test]
fn column_pivots_solve_real_matrices_that_ilu0_refuses() {
    let be = Cpu::new();
    for name in ["circuit_1", "str_0", "str_200", "west0381"] {
        let Some(path) = real(&format!("{name}.mtx.gz")) else {
            println!("skipped {name}: no shared/matrices in or beside this checkout");
            continue;
        };
        let a = matrix_market::read_csr::<f64>(&path).unwrap();
        assert!(Ilu::<Cpu, Serial<f64>>::new(&be, &a).is_err(), "{name}");
        assert_eq!(by_ilutp(&be, &a, IlutOptions::default()), Status::Converged, "{name}");
    }
}

#[test]
fn a_shift_is_said_and_its_preconditioner_still_serves() {
    let be = Cpu::new();
    // Kershaw 1978: positive definite, but IC(0) without a shift breaks down.
    let kershaw = [[3.0, -2.0, 0.0, 2.0], [-2.0, 3.0, -2.0, 0.0], [0.0, -2.0, 3.0, -2.0], [2.0, 0.0, -2.0, 3.0]];
    let entries: Vec<_> = (0..16).map(|e| (e / 4, e % 4, kershaw[e / 4][e % 4])).filter(|e| e.2 != 0.0).collect();
    let a = matrix::<f64>(4, 4, &entries);
    let m = Ic::<Cpu, Serial<f64>>::new(&be, &a).unwrap();
    assert!(m.shift() > 0.0);
    assert!(iterations(&be, Krylov::Cg, &a, &m, "kershaw") <= 8);
}

#[test]
fn breakdowns_have_their_status() {
    let be = Cpu::new();
    let status = |error: Error| error.status().unwrap_or_else(|| panic!("{error}"));
    let singular = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 4.0)]);
    assert_eq!(status(Ilu::<Cpu, Serial<f64>>::new(&be, &singular).unwrap_err()), Status::ZeroPivot);
    let hollow = matrix::<f64>(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    assert_eq!(status(Ssor::<Cpu, Serial<f64>>::new(&be, &hollow).unwrap_err()), Status::ZeroPivot);
    let negative = matrix::<f64>(1, 1, &[(0, 0, -1.0)]);
    assert_eq!(status(Ic::<Cpu, Serial<f64>>::new(&be, &negative).unwrap_err()), Status::IndefiniteMatrix);
    let nan = matrix::<f64>(1, 1, &[(0, 0, f64::NAN)]);
    assert_eq!(status(Ic::<Cpu, Serial<f64>>::new(&be, &nan).unwrap_err()), Status::NotFinite);
    let wide = matrix::<f64>(1, 2, &[(0, 0, 1.0)]);
    assert!(Ilu::<Cpu, Serial<f64>>::new(&be, &wide).unwrap_err().status().is_none());
    let scattered = matrix::<f64>(3, 3, &[(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (2, 2, 1.0)]);
    assert!(Ilu::<Cpu, Serial<f64>>::new(&be, &scattered).is_ok());
}
