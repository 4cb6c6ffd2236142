//! Iteration counts compared with another library's: CG and BiCGStab of faer, with the same preconditioner, on the same
//! systems, to the same tolerance.
//!
//! In exact arithmetic both take the same steps. CG's count may differ by one if rounding decides on which side of the
//! tolerance a residual falls. BiCGStab may differ by a tenth: its residuals rise and fall, and the other library also
//! stops after half a step.

mod problems;

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::matrix_free::bicgstab::{BicgParams, bicgstab, bicgstab_scratch};
use faer::matrix_free::conjugate_gradient::{CgParams, conjugate_gradient, conjugate_gradient_scratch};
use faer::matrix_free::{IdentityPrecond, LinOp, Precond};
use faer::sparse::{SparseRowMat, SymbolicSparseRowMat};
use faer::{MatMut, MatRef, Par};
use problems::{stencil, uneven};
use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::Csr;
use spandrel_solvers::{BiCgStab, Cg, Factored, Identity, Jacobi, Options, Status};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Serial, Triangle, Triangular, serial};

const RTOL: f64 = 1e-10;

/// M^-1 by plain substitution, for faer.
#[derive(Debug)]
struct Substitution {
    lower: Triangular<f64>,
    upper: Triangular<f64>,
}

impl Substitution {
    fn of<F: Factor<Value = f64>>(a: &Csr<f64>) -> Self {
        let factor = F::symbolic(a).expect("a square matrix");
        let made = factor.triangles(factor.numeric(a.values()).expect("it exists")).expect("triangles");
        let lower = made.lower;
        let transposed = || Triangular::new(lower.csr().transpose(), Triangle::Upper, lower.diagonal());
        let upper = made.upper.unwrap_or_else(|| transposed().expect("a triangle too"));
        Self { lower, upper }
    }
}

impl LinOp<f64> for Substitution {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }
    fn nrows(&self) -> usize {
        self.lower.nrows()
    }
    fn ncols(&self) -> usize {
        self.lower.nrows()
    }
    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, _: Par, _: &mut MemStack) {
        let n = self.nrows();
        for column in 0..rhs.ncols() {
            let r: Vec<f64> = (0..n).map(|i| rhs[(i, column)]).collect();
            let (mut y, mut z) = (vec![0.0; n], vec![0.0; n]);
            serial::solve(&self.lower, &r, &mut y).expect("lengths fit");
            serial::solve(&self.upper, &y, &mut z).expect("lengths fit");
            (0..n).for_each(|i| out[(i, column)] = z[i]);
        }
    }
    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

impl Precond<f64> for Substitution {}

/// The diagonal's reciprocals, for faer.
#[derive(Debug)]
struct Reciprocals(Vec<f64>);

impl LinOp<f64> for Reciprocals {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }
    fn nrows(&self) -> usize {
        self.0.len()
    }
    fn ncols(&self) -> usize {
        self.0.len()
    }
    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, _: Par, _: &mut MemStack) {
        for column in 0..rhs.ncols() {
            self.0.iter().enumerate().for_each(|(i, d)| out[(i, column)] = d * rhs[(i, column)]);
        }
    }
    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

impl Precond<f64> for Reciprocals {}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Cg,
    BiCgStab,
}

/// One of Spandrel's preconditioners.
type Boxed = Box<dyn Preconditioner<f64, Cpu>>;

/// The iterations of faer, and its x.
fn theirs(method: Method, a: &Csr<f64>, m: impl Precond<f64>, b: &[f64]) -> (usize, Vec<f64>) {
    let n = b.len();
    let (_, _, ptr, idx, values) = a.clone().into_parts();
    let mat = SparseRowMat::new(SymbolicSparseRowMat::new_checked(n, n, ptr, None, idx), values);
    let (b, mut x) = (faer::Mat::from_fn(n, 1, |i, _| b[i]), faer::Mat::<f64>::zeros(n, 1));
    let par = Par::Seq;
    let iterations = match method {
        Method::Cg => {
            let mut stack = MemBuffer::new(conjugate_gradient_scratch(&m, mat.as_ref(), 1, par));
            let params = CgParams { rel_tolerance: RTOL, max_iters: 2000, ..Default::default() };
            let stack = MemStack::new(&mut stack);
            conjugate_gradient(x.as_mut(), &m, mat.as_ref(), b.as_ref(), params, |_| {}, par, stack)
                .expect("it converges")
                .iter_count
        }
        Method::BiCgStab => {
            let none = IdentityPrecond { dim: n };
            let mut stack = MemBuffer::new(bicgstab_scratch(&none, &m, mat.as_ref(), 1, par));
            let params = BicgParams { rel_tolerance: RTOL, max_iters: 2000, ..Default::default() };
            let stack = MemStack::new(&mut stack);
            bicgstab(x.as_mut(), none, &m, mat.as_ref(), b.as_ref(), params, |_| {}, par, stack)
                .expect("it converges")
                .iter_count
        }
    };
    (iterations, (0..n).map(|i| x[(i, 0)]).collect())
}

fn ours(method: Method, csr: &Csr<f64>, m: &Boxed, be: &Cpu, b: &[f64]) -> (usize, Vec<f64>) {
    let a = Mat::<Cpu, Csr<f64>>::load(be, csr.clone()).unwrap();
    let (b, mut x) = (be.upload(b).unwrap(), be.zeros(csr.nrows()).unwrap());
    let options = Options { rtol: Some(RTOL), ..Options::default() };
    let outcome = match method {
        Method::Cg => Cg::new(be, csr.nrows()).unwrap().solve(be, &a, m, &b, &mut x, &options),
        Method::BiCgStab => BiCgStab::new(be, csr.nrows()).unwrap().solve(be, &a, m, &b, &mut x, &options),
    }
    .unwrap();
    assert_eq!(outcome.status, Status::Converged, "{outcome:?}");
    (outcome.iterations, be.download(&x).unwrap())
}

fn compare(what: &str, method: Method, ours: (usize, Vec<f64>), theirs: (usize, Vec<f64>)) {
    println!("{what}, {method:?}: {} iterations, faer {}", ours.0, theirs.0);
    let allowed = if method == Method::Cg { 1 } else { 1 + theirs.0 / 10 };
    assert!(theirs.0 > 3 && ours.0.abs_diff(theirs.0) <= allowed, "{what}, {method:?}: {} and {}", ours.0, theirs.0);
    let largest = theirs.1.iter().fold(0f64, |most, x| most.max(x.abs()));
    let apart = ours.1.iter().zip(&theirs.1).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
    // Both residuals are 1e-10 of b; no system here has a condition number of 1e4.
    assert!(apart <= 1e-6 * largest, "{what}, {method:?}: x differs by {apart:e} of {largest:e}");
}

#[test]
fn as_many_iterations_as_faer() {
    let be = Cpu::new();
    for (size, convection) in [(23, 0.0), (40, 0.0), (31, 0.3)] {
        let a = stencil::<f64>(size, convection);
        let b = uneven::<f64>(a.nrows());
        let (n, what) = (a.nrows(), format!("{size} x {size} points, convection {convection}"));
        let jacobi = || Jacobi::new(&be, &a).unwrap();
        let reciprocals = || Reciprocals((0..n).map(|i| a.get(i, i).unwrap().recip()).collect());
        let ilu0 = || Factored::<Cpu, Serial<f64>, Ilu0<f64>>::new(&be, &a).unwrap();
        for method in [Method::Cg, Method::BiCgStab] {
            if convection != 0.0 && method == Method::Cg {
                continue;
            }
            let each = |label: &str, m: Boxed, theirs: (usize, Vec<f64>)| {
                compare(&format!("{what}, {label}"), method, ours(method, &a, &m, &be, &b), theirs);
            };
            each("none", Box::new(Identity), theirs(method, &a, IdentityPrecond { dim: n }, &b));
            each("jacobi", Box::new(jacobi()), theirs(method, &a, reciprocals(), &b));
            if convection == 0.0 {
                let ic0 = Factored::<Cpu, Serial<f64>, Ic0<f64>>::new(&be, &a).unwrap();
                each("ic0", Box::new(ic0), theirs(method, &a, Substitution::of::<Ic0<f64>>(&a), &b));
            }
            // For a symmetric matrix the product of the factors is symmetric too.
            each("ilu0", Box::new(ilu0()), theirs(method, &a, Substitution::of::<Ilu0<f64>>(&a), &b));
        }
    }
}
