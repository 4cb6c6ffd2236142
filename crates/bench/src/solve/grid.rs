//! IC(0)-CG on a grid against faer's solver with the same factors: whole solves to one tolerance, interleaved.
//!
//! Contenders: ours by format of the product, with the plan of the triangular solves that the library chooses; faer's
//! `conjugate_gradient` with its product from CSR or CSC, whichever is faster here, and its own sparse triangular
//! solves with L in CSC. A time begins with x = 0 and b in place and ends with x. `ms` is that per iteration,
//! `whole_ms` the whole. Product and preconditioner are also timed by themselves; the rest of an iteration is its
//! vector steps.
//!
//! Bytes of an iteration, for every contender: A's storage, L's values twice, and 17 passes over vectors of n (A p: 2,
//! update: 6, L z = r: 2, L^T z = z: 2, r'z: 2, direction: 3). Indices of L count if the plan reads them. So GB/s
//! compare times, and a contender that moves more shows a lower rate.
//!
//! An answer is right if its residual, recomputed here, is within the tolerance up to the rounding of that sum. faer
//! stops by the residual of its recurrence, which may be half of the true one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::matrix_free::conjugate_gradient::{CgParams, conjugate_gradient, conjugate_gradient_scratch};
use faer::matrix_free::{LinOp, Precond};
use faer::sparse::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_lower_triangular_transpose_in_place,
};
use faer::sparse::{SparseColMat, SparseRowMat, SymbolicSparseColMat, SymbolicSparseRowMat};
use faer::{Conj, MatMut, MatRef, Par};
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel_backend::{Backend, Mat, Operator, Preconditioner, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csc, Csr, Dia, Format, Grid, Traffic};
use spandrel_solvers::{Cg, Method, Options};
use spandrel_sptrsv::{Factor, Ic0};

use crate::case::Case;
use crate::cg::right_hand_side;
use crate::contender::{Contender, Effort, interleave};
use crate::krylov::residual;
use crate::machine::Stream;
use crate::record::{Line, More};

/// The parameters of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The tolerance.
    pub rtol: f64,
    /// Whether faer takes part.
    pub faer: bool,
    /// How long to measure.
    pub effort: Effort,
}

type Vector = <Cpu as Backend<f64>>::Vector;
type Boxed = Box<dyn Preconditioner<f64, Cpu>>;

/// A system with its preconditioner.
struct Shared<'b> {
    be: &'b Cpu,
    m: Boxed,
    b: Vector,
    n: u64,
    /// The bytes of two triangular solves: values, and indices if the plan reads them; no vectors.
    factors: u64,
    rtol: f64,
}

impl Shared<'_> {
    /// The bytes of an iteration with a product from this much storage.
    fn iteration(&self, storage: u64) -> u64 {
        storage + self.factors + 17 * 8 * self.n
    }
}

/// Our whole solve.
struct Ours<'b, F: Format<Value = f64>>
where
    Cpu: Spmv<F>,
{
    shared: Rc<Shared<'b>>,
    mat: Rc<Mat<Cpu, F>>,
    cg: Cg<f64, Cpu>,
    x: Vector,
    iterations: Cell<u64>,
}

impl<F: Format<Value = f64>> Contender for Ours<'_, F>
where
    Cpu: Spmv<F>,
{
    fn noun(&self) -> String {
        F::NAME.into()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn bytes(&self) -> u64 {
        self.shared.iteration(self.mat.storage())
    }
    fn calls(&self) -> u64 {
        self.iterations.get()
    }
    fn run(&mut self) {
        let Shared { be, m, b, rtol, .. } = &*self.shared;
        be.fill(None, 0.0, &mut self.x).expect("fill does not fail on the CPU");
        let options = Options { rtol: Some(*rtol), history: false, ..Options::default() };
        let outcome = self.cg.solve(*be, &*self.mat, m, b, &mut self.x, &options).expect("sizes match");
        // The residual of the answer shows whether it converged.
        self.iterations.set(outcome.iterations.max(1) as u64);
    }
    fn poison(&mut self) {
        self.shared.be.fill(None, f64::NAN, &mut self.x).expect("fill does not fail on the CPU");
    }
    fn answer(&self) -> Option<Vec<f64>> {
        self.shared.be.download(&self.x).ok()
    }
}

/// A part of our iteration by itself.
struct PartOf<'b> {
    noun: String,
    kernel: &'static str,
    bytes: u64,
    run: Box<dyn FnMut() -> spandrel_backend::Result<()> + 'b>,
}

impl Contender for PartOf<'_> {
    fn noun(&self) -> String {
        self.noun.clone()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn kernel(&self) -> Option<String> {
        Some(self.kernel.into())
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn run(&mut self) {
        (self.run)().expect("operands of matching sizes");
    }
    fn poison(&mut self) {}
    fn answer(&self) -> Option<Vec<f64>> {
        None
    }
}

/// M^-1 = L^-T L^-1 by faer.
#[derive(Debug)]
struct Lower(SparseColMat<u32, f64>);

impl LinOp<f64> for Lower {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }
    fn nrows(&self) -> usize {
        self.0.nrows()
    }
    fn ncols(&self) -> usize {
        self.0.ncols()
    }
    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, _: &mut MemStack) {
        out.copy_from(rhs);
        solve_lower_triangular_in_place(self.0.as_ref(), Conj::No, out.as_mut(), par);
        solve_lower_triangular_transpose_in_place(self.0.as_ref(), Conj::No, out, par);
    }
    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

impl Precond<f64> for Lower {}

/// faer's whole solve with the product of `A`.
struct Faer<A> {
    noun: &'static str,
    mat: A,
    lower: Rc<Lower>,
    b: faer::Mat<f64>,
    x: faer::Mat<f64>,
    stack: MemBuffer,
    bytes: u64,
    rtol: f64,
    iterations: u64,
}

impl<A: LinOp<f64>> Faer<A> {
    fn new(noun: &'static str, mat: A, lower: &Rc<Lower>, b: &[f64], bytes: u64, rtol: f64) -> Self {
        let n = b.len();
        let stack = MemBuffer::new(conjugate_gradient_scratch(&**lower, &mat, 1, Par::rayon(0)));
        let (b, x) = (faer::Mat::from_fn(n, 1, |i, _| b[i]), faer::Mat::zeros(n, 1));
        Self { noun, mat, lower: Rc::clone(lower), b, x, stack, bytes, rtol, iterations: 1 }
    }
    /// The time of three products in seconds.
    fn products(&mut self) -> f64 {
        let stack = MemStack::new(&mut self.stack);
        let start = Instant::now();
        for _ in 0..3 {
            self.mat.apply(self.x.as_mut(), self.b.as_ref(), Par::rayon(0), stack);
        }
        start.elapsed().as_secs_f64()
    }
}

impl<A: LinOp<f64>> Contender for Faer<A> {
    fn noun(&self) -> String {
        self.noun.into()
    }
    fn name(&self) -> &'static str {
        "faer"
    }
    fn kernel(&self) -> Option<String> {
        Some("its solver, ic0 by its solves".into())
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn calls(&self) -> u64 {
        self.iterations
    }
    fn run(&mut self) {
        self.x.fill(0.0);
        let params = CgParams { rel_tolerance: self.rtol, ..CgParams::default() };
        let info = conjugate_gradient(
            self.x.as_mut(),
            &*self.lower,
            &self.mat,
            self.b.as_ref(),
            params,
            |_| {},
            Par::rayon(0),
            MemStack::new(&mut self.stack),
        );
        // The residual of the answer shows the effect of an error.
        self.iterations = info.map_or(1, |info| info.iter_count.max(1) as u64);
    }
    fn poison(&mut self) {
        self.x.fill(f64::NAN);
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some((0..self.x.nrows()).map(|i| self.x[(i, 0)]).collect())
    }
}

/// faer with the storage for which its product is faster. For a symmetric matrix both have the same arrays.
fn faer_solver(csr: &Csr<f64>, lower: Csr<f64>, shared: &Shared<'_>, b: &[f64]) -> Result<Box<dyn Contender>> {
    let (n, bytes) = (csr.nrows(), shared.iteration(csr.storage()));
    let columns = Csc::from_csr(&lower)?;
    drop(lower);
    let (ptr, idx) = (columns.col_ptr().to_vec(), columns.row_idx().to_vec());
    let symbolic = SymbolicSparseColMat::new_checked(n, n, ptr, None, idx);
    let lower = Rc::new(Lower(SparseColMat::new(symbolic, columns.values().to_vec())));
    drop(columns);
    let (_, _, ptr, idx, values) = csr.clone().into_parts();
    let rows =
        SparseRowMat::new(SymbolicSparseRowMat::new_checked(n, n, ptr.clone(), None, idx.clone()), values.clone());
    let mut by_rows = Faer::new("csr", rows, &lower, b, bytes, shared.rtol);
    let columns = SparseColMat::new(SymbolicSparseColMat::new_checked(n, n, ptr, None, idx), values);
    let mut by_columns = Faer::new("csc", columns, &lower, b, bytes, shared.rtol);
    Ok(if by_rows.products() <= by_columns.products() { Box::new(by_rows) } else { Box::new(by_columns) })
}

/// Whether a case belongs here: it is generated, has a grid, and IC(0)-CG solves it.
///
/// # Errors
/// A specification that cannot be generated.
pub fn load(case: &Case) -> Result<Option<Csr<f64>>> {
    if case.path.is_some() {
        return Ok(None);
    }
    let csr: Csr<f64> = case.load()?;
    let is_grid = Method::choose(&csr).solver == Method::Cg && Grid::detect(&csr).is_ok();
    Ok(is_grid.then_some(csr))
}

fn add<'b, F: Format<Value = f64> + 'b>(
    shared: &Rc<Shared<'b>>,
    csr: &Csr<f64>,
    contenders: &mut Vec<Box<dyn Contender + 'b>>,
    parts: &mut Vec<Box<dyn Contender + 'b>>,
) -> Result<()>
where
    Cpu: Spmv<F>,
{
    let (be, n) = (shared.be, csr.nrows());
    let mat = Rc::new(Mat::<Cpu, F>::load(be, Arc::new(F::from_csr(csr)?))?);
    contenders.push(Box::new(Ours::<F> {
        shared: Rc::clone(shared),
        mat: Rc::clone(&mat),
        cg: Cg::new(be, n)?,
        x: be.zeros(n)?,
        iterations: Cell::new(1),
    }));
    let (p, mut q, mut pq) = (be.upload(&right_hand_side(n))?, be.zeros(n)?, be.scalar(0.0)?);
    parts.push(Box::new(PartOf {
        noun: F::NAME.into(),
        kernel: "product, p'q",
        bytes: mat.storage() + 2 * 8 * n as u64,
        run: Box::new(move || mat.apply_dot(be, None, &p, &mut q, &p, &mut pq, None)),
    }));
    Ok(())
}

/// The preconditioner with its dot product.
fn preconditioner<'b>(shared: &Rc<Shared<'b>>) -> Result<PartOf<'b>> {
    let (be, own) = (shared.be, Rc::clone(shared));
    let (mut z, mut rz) = (be.zeros(shared.n as usize)?, be.scalar(0.0)?);
    Ok(PartOf {
        noun: "ic0".into(),
        kernel: "preconditioner, r'z",
        bytes: shared.factors + 6 * 8 * shared.n,
        run: Box::new(move || own.m.apply_dot(be, None, &own.b, &mut z, &mut rz)),
    })
}

/// Times one system. `csr` is the result of [`load`] for the case.
///
/// # Errors
/// A factorisation that breaks down; a wrong answer.
pub fn run(be: &Cpu, case: &Case, csr: &Csr<f64>, plan: &Plan) -> Result<Vec<Line>> {
    let (n, nnz) = (csr.nrows(), csr.nnz());
    let b = right_hand_side(n);
    let symbolic = Ic0::symbolic(csr)?;
    let lower = match plan.faer {
        true => Some(symbolic.triangles(symbolic.numeric(csr.values())?)?.lower.csr().clone()),
        false => None,
    };
    let Chosen { precond: m, plan: by, nnz: entries, shift, .. } = be.incomplete(symbolic, csr.values())?;
    let indices = if by == "sweep" { 0 } else { 4 * (entries + n + 1) };
    let factors = 2 * (8 * entries + indices) as u64;
    let shared = Rc::new(Shared { be, m, b: be.upload(&b)?, n: n as u64, factors, rtol: plan.rtol });

    let (mut contenders, mut parts): (Vec<Box<dyn Contender + '_>>, Vec<Box<dyn Contender + '_>>) = Default::default();
    add::<Csr<f64>>(&shared, csr, &mut contenders, &mut parts)?;
    add::<Dia<f64>>(&shared, csr, &mut contenders, &mut parts)?;
    if let Some(lower) = lower {
        contenders.push(faer_solver(csr, lower, &shared, &b)?);
    }

    let mut residuals = Vec::new();
    for c in &mut contenders {
        c.poison();
        c.run();
        let x = c.answer().context("a contender without an answer")?;
        let (found, rounding) = residual(csr, &x, &b);
        let most = if c.name() == "spandrel" { plan.rtol } else { 2.0 * plan.rtol };
        ensure!(
            found <= most + rounding,
            "{}: {} of {} has a residual of {found:.2e}, asked for {:e}",
            case.name,
            c.noun(),
            c.name(),
            plan.rtol
        );
        residuals.push(found);
    }
    let solves = contenders.len();
    contenders.extend(parts);
    contenders.push(Box::new(preconditioner(&shared)?));
    contenders.push(Box::new(Stream::new(false)));
    contenders.push(Box::new(Stream::new(true)));
    let timings = interleave(&mut contenders, plan.effort);

    let gbs = |k: usize| contenders[k].bytes() as f64 / timings[k].ms / 1e6;
    let rate = |noun: &str| (0..contenders.len()).find(|&k| contenders[k].noun() == noun).map(gbs);
    let (copy, triad) = (rate("copy"), rate("triad"));
    let whole = |k: usize| timings[k].ms * contenders[k].calls() as f64;
    let own = |k: usize| k < solves && contenders[k].name() == "spandrel";
    let best_peer = (0..solves).filter(|&k| !own(k)).map(whole).min_by(f64::total_cmp);
    let csr_ms = (0..solves).find(|&k| own(k) && contenders[k].noun() == "csr").map(whole);
    let way = if shift > 0.0 { format!("ic0 by {by}, shift {shift:e}") } else { format!("ic0 by {by}") };
    let line = |k: usize| {
        let c = &contenders[k];
        Line {
            op: if k < solves || c.name() == "machine" { "cg" } else { "cg-part" },
            noun: c.noun(),
            element: "f64",
            backend: "cpu",
            contender: c.name(),
            case: case.name.clone(),
            n,
            nnz,
            ms: timings[k].ms,
            ms_min: timings[k].min,
            ms_max: timings[k].max,
            bytes: c.bytes(),
            gbs: gbs(k),
            of_copy: copy.map(|rate| gbs(k) / rate),
            of_triad: triad.map(|rate| gbs(k) / rate),
            ratio_to_best_peer: best_peer.filter(|_| own(k)).map(|peer| peer / whole(k)),
            ratio_to_csr: csr_ms.filter(|_| own(k)).map(|csr| csr / whole(k)),
            more: More {
                kernel: if own(k) { Some(way.clone()) } else { c.kernel() },
                residual: residuals.get(k).copied(),
                whole_ms: (k < solves).then(|| whole(k)),
                iterations: (k < solves).then(|| c.calls() as usize),
                ..More::default()
            },
        }
    };
    Ok((0..contenders.len()).map(line).collect())
}
