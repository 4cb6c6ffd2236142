//! Whole solves to a tolerance, by format: CG or BiCGStab, plain or with IC(0) or ILU(0), on either backend.
//!
//! All contenders solve the same system with the same preconditioner and differ in the product: ours by format, or a
//! library's. A time begins with x = 0 and b on the device and ends when the host knows the outcome. `ms` is that per
//! iteration, `whole_ms` the whole. Bytes of an iteration are only those of its products (one of CG, two of BiCGStab).
//!
//! b = A x* with an x* without structure, so the error of x is known too. An answer is right if it converged and its
//! residual, recomputed here, is within the tolerance up to the rounding of that sum.
//!
//! If the factorisation or the iteration fails on a matrix's own values (a pattern of ones, an indefinite matrix), the
//! pattern's graph Laplacian replaces them, and the record says so.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rayon::prelude::*;
use serde_json::{Value, json};
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel_backend::{Backend, EveryFormat, EveryMethod, Factorize, Gate, Mat, Operator, Preconditioner, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_backend_cuda::Cuda;
use spandrel_formats::{Csr, Format, Real, Traffic, for_each_format};
use spandrel_solvers::{BiCgStab, Cg, Identity, Options, Outcome, Status};
use spandrel_sptrsv::{Factor, Ic0, Ilu0};
use sprs::CsMatI;

use crate::cg::right_hand_side;
use crate::contender::{Contender, Effort, interleave};
use crate::record::{Line, More};

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Its name with IC(0), if it is preconditioned.
    Cg,
    /// Its name with ILU(0), if it is preconditioned.
    BiCgStab,
}

impl Method {
    /// Its name in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cg => "cg",
            Self::BiCgStab => "bicgstab",
        }
    }
    fn products(self) -> u64 {
        match self {
            Self::Cg => 1,
            Self::BiCgStab => 2,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The method.
    pub method: Method,
    /// Whether it is preconditioned.
    pub factored: bool,
    /// Stems of the formats.
    pub formats: &'static [&'static str],
    /// The tolerance.
    pub rtol: f64,
    /// The limit of iterations.
    pub max_iters: usize,
    /// How long to measure.
    pub effort: Effort,
}

/// A backend to solve on.
pub trait Place: EveryFormat<f64> + EveryMethod<f64> + Incomplete<f64> + 'static {
    /// Its name in the record.
    const STEM: &'static str;
}

impl Place for Cpu {
    const STEM: &'static str = "cpu";
}

impl Place for Cuda {
    const STEM: &'static str = "cuda";
}

/// The results of one case.
#[derive(Debug, Default)]
pub struct Findings {
    /// Timings.
    pub lines: Vec<Line>,
    /// What was left out, and why.
    pub errors: Vec<Value>,
}

/// A contender's description.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) noun: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) kernel: Option<&'static str>,
    /// Bytes of one product.
    pub(crate) bytes: u64,
}

type Boxed<B> = Box<dyn Preconditioner<f64, B>>;

/// The contenders beside our formats.
pub(crate) trait Peers<B: EveryMethod<f64>> {
    /// Adds them to a contest.
    fn add<'b>(&'b self, contest: &mut Contest<'b, B>) -> Result<()>;
}

/// A system to which contenders are added.
pub(crate) struct Contest<'b, B: EveryMethod<f64>> {
    be: &'b B,
    plan: &'b Plan,
    case: &'b str,
    pub(crate) csr: &'b Csr<f64>,
    m: Rc<Boxed<B>>,
    truth: Vec<f64>,
    host: Vec<f64>,
    b: Rc<B::Vector>,
    entries: Vec<Entry>,
    contenders: Vec<Box<dyn Contender + 'b>>,
    errors: Vec<Value>,
}

struct Entry {
    label: Label,
    iterations: usize,
    residual: f64,
    error: f64,
}

enum Solver<B: Backend<f64>> {
    Cg(Cg<f64, B>),
    BiCgStab(BiCgStab<f64, B>),
}

/// A solve with the operator `A`.
struct Whole<'b, B: Backend<f64>, A> {
    be: &'b B,
    a: A,
    m: Rc<Boxed<B>>,
    solver: Solver<B>,
    b: Rc<B::Vector>,
    x: B::Vector,
    options: Options,
    label: Label,
    products: u64,
    iterations: Cell<usize>,
}

impl<B: EveryMethod<f64>, A: Operator<f64, B>> Whole<'_, B, A> {
    fn solve(&mut self) -> spandrel_solvers::Result<Outcome> {
        self.be.fill(None, 0.0, &mut self.x)?;
        let (be, m, b, x) = (self.be, &*self.m, &*self.b, &mut self.x);
        let outcome = match &mut self.solver {
            Solver::Cg(cg) => cg.solve(be, &self.a, m, b, x, &self.options),
            Solver::BiCgStab(bicgstab) => bicgstab.solve(be, &self.a, m, b, x, &self.options),
        }?;
        self.iterations.set(outcome.iterations.max(1));
        Ok(outcome)
    }
}

impl<B: EveryMethod<f64>, A: Operator<f64, B>> Contender for Whole<'_, B, A> {
    fn noun(&self) -> String {
        self.label.noun.into()
    }
    fn name(&self) -> &'static str {
        self.label.contender
    }
    fn bytes(&self) -> u64 {
        self.label.bytes * self.products
    }
    fn calls(&self) -> u64 {
        self.iterations.get() as u64
    }
    fn run(&mut self) {
        let _ = self.solve().expect("it was solved before, when it was checked");
    }
    fn poison(&mut self) {
        self.be.fill(None, f64::NAN, &mut self.x).expect("a vector of the size that it was made with");
    }
    fn answer(&self) -> Option<Vec<f64>> {
        self.be.download(&self.x).ok()
    }
}

/// An iteration that did not reach the tolerance.
#[derive(Debug, thiserror::Error)]
#[error("{status} after {iterations} iterations, residual {residual:.1e}")]
struct NotConverged {
    status: Status,
    iterations: usize,
    residual: f64,
}

impl<'b, B: EveryMethod<f64>> Contest<'b, B> {
    /// Solves once with `a`, checks the answer and keeps the contender for timing.
    pub(crate) fn add<A: Operator<f64, B> + 'b>(&mut self, label: Label, a: A) -> Result<()> {
        let (be, n) = (self.be, self.csr.nrows());
        let mut whole = Whole {
            be,
            a,
            m: Rc::clone(&self.m),
            solver: match self.plan.method {
                Method::Cg => Solver::Cg(Cg::new(be, n)?),
                Method::BiCgStab => Solver::BiCgStab(BiCgStab::new(be, n)?),
            },
            b: Rc::clone(&self.b),
            x: be.zeros(n)?,
            options: Options {
                rtol: Some(self.plan.rtol),
                max_iters: Some(self.plan.max_iters),
                history: false,
                ..Options::default()
            },
            label: label.clone(),
            products: self.plan.method.products(),
            iterations: Cell::new(1),
        };
        whole.poison();
        let Outcome { status, iterations, true_residual, .. } = whole.solve()?;
        if !status.is_converged() {
            return Err(NotConverged { status, iterations, residual: true_residual }.into());
        }
        let x = be.download(&whole.x)?;
        self.keep(label, iterations, &x, 1.0)?;
        self.contenders.push(Box::new(whole));
        Ok(())
    }

    fn add_format<F: Format<Value = f64>>(&mut self) -> Result<()>
    where
        B: Spmv<F>,
        Mat<B, F>: 'b,
    {
        let mat = Mat::<B, F>::load(self.be, Arc::new(F::from_csr(self.csr)?))?;
        let bytes = mat.spmv_bytes();
        self.add(Label { noun: F::NAME, contender: "spandrel", kernel: None, bytes }, mat)
    }

    /// Adds a contender that always takes the same number of iterations. It must come as far as ours up to a factor of
    /// 2, which is the effect of rounding on CG.
    fn add_fixed(&mut self, label: Label, iterations: usize, mut contender: Box<dyn Contender + 'b>) -> Result<()> {
        contender.poison();
        contender.run();
        let x = contender.answer().context("a contender without an answer")?;
        self.keep(label, iterations, &x, 2.0)?;
        self.contenders.push(contender);
        Ok(())
    }

    fn keep(&mut self, label: Label, iterations: usize, x: &[f64], factor: f64) -> Result<()> {
        let (residual, rounding) = residual(self.csr, x, &self.host);
        let most = factor * self.plan.rtol + rounding;
        ensure!(residual <= most, "wrong answer: residual {residual:.2e}, at most {most:.2e}");
        let distance = |a: &mut dyn Iterator<Item = f64>| a.map(|v| v * v).sum::<f64>().sqrt();
        let error = distance(&mut x.iter().zip(&self.truth).map(|(x, t)| x - t));
        let error = error / distance(&mut self.truth.iter().copied());
        self.entries.push(Entry { label, iterations: iterations.max(1), residual, error });
        Ok(())
    }

    pub(crate) fn left_out(&mut self, noun: &str, contender: &str, why: &anyhow::Error, backend: &str) {
        eprintln!("  {noun} ({contender}): {why:#}");
        let (op, why) = (self.plan.method.as_str(), format!("{why:#}"));
        self.errors.push(error_line(op, noun, backend, contender, self.case, &why));
    }
}

/// A line that says why there is no timing.
pub fn error_line(op: &str, noun: &str, backend: &str, contender: &str, case: &str, why: &str) -> Value {
    json!({"op": op, "noun": noun, "type": "f64", "backend": backend, "contender": contender, "case": case, "error": why})
}

/// ||b - A x|| / ||b||, and how far rounding may have moved it: gamma(k + 2) (|A| |x| + |b|) row by row, over ||b||,
/// for each of the two sums.
pub(crate) fn residual(csr: &Csr<f64>, x: &[f64], b: &[f64]) -> (f64, f64) {
    let row = |(i, b): (usize, &f64)| {
        let (cols, values) = csr.row(i);
        let (mut ax, mut size) = (0.0, b.abs());
        for (&j, v) in cols.iter().zip(values) {
            ax += v * x[j as usize];
            size += (v * x[j as usize]).abs();
        }
        let k = (cols.len() + 2) as f64 * f64::UNIT_ROUNDOFF;
        [(b - ax).powi(2), (2.0 * k / (1.0 - k) * size).powi(2), b * b]
    };
    let sum = |a: [f64; 3], b: [f64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    let [found, moved, norm] = b.par_iter().enumerate().map(row).reduce(|| [0.0; 3], sum);
    ((found / norm).sqrt(), (moved / norm).sqrt())
}

/// The graph Laplacian of a pattern, shifted by a millionth: -1 off the diagonal, and positive definite if the pattern
/// is symmetric.
///
/// # Errors
/// A row without a diagonal entry.
pub(crate) fn laplacian(csr: &Csr<f64>) -> Result<Csr<f64>> {
    let (nrows, ncols, row_ptr, cols, mut values) = csr.clone().into_parts();
    for i in 0..nrows {
        let row = row_ptr[i] as usize..row_ptr[i + 1] as usize;
        let Some(diagonal) = row.clone().find(|&k| cols[k] as usize == i) else {
            bail!("row {i} has no diagonal entry, so its pattern has no Laplacian");
        };
        let neighbours = (row.len() - 1) as f64;
        values[row].fill(-1.0);
        values[diagonal] = if neighbours > 0.0 { neighbours * (1.0 + 1e-6) } else { 1.0 };
    }
    Ok(Csr::new(nrows, ncols, row_ptr, cols, values)?)
}

/// The preconditioner as users get it, and the plan of its two solves.
fn factored<B: Place + Factorize<F>, F: Factor<Value = f64>>(
    be: &B,
    csr: &Csr<f64>,
) -> Result<(Boxed<B>, &'static str)> {
    let Chosen { precond, plan, .. } = be.incomplete(F::symbolic(csr)?, csr.values())?;
    Ok((precond, plan))
}

fn attempt<'b, B: Place>(
    be: &'b B,
    case: &'b str,
    csr: &'b Csr<f64>,
    plan: &'b Plan,
    values: Option<&'static str>,
    peers: &'b dyn Peers<B>,
) -> Result<Findings> {
    let (m, way): (Boxed<B>, String) = match (plan.factored, plan.method) {
        (false, _) => (Box::new(Identity), "none".into()),
        (true, Method::Cg) => factored::<B, Ic0<f64>>(be, csr).map(|(m, by)| (m, format!("ic0 by {by}")))?,
        (true, Method::BiCgStab) => factored::<B, Ilu0<f64>>(be, csr).map(|(m, by)| (m, format!("ilu0 by {by}")))?,
    };
    let truth = right_hand_side(csr.nrows());
    let row = |i: usize| {
        let (cols, values) = csr.row(i);
        cols.iter().zip(values).map(|(&j, v)| v * truth[j as usize]).sum::<f64>()
    };
    let host: Vec<f64> = (0..csr.nrows()).map(row).collect();
    let mut contest = Contest {
        be,
        plan,
        case,
        csr,
        m: Rc::new(m),
        truth,
        b: Rc::new(be.upload(&host)?),
        host,
        entries: Vec::new(),
        contenders: Vec::new(),
        errors: Vec::new(),
    };
    macro_rules! add_formats {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(if plan.formats.contains(&stringify!($stem)) {
                let added = contest.add_format::<spandrel_formats::$Type<f64>>();
                match added {
                    Ok(()) => {}
                    // With other values all may converge.
                    Err(why) if contest.entries.is_empty() && why.is::<NotConverged>() => return Err(why),
                    Err(why) => contest.left_out(stringify!($stem), "spandrel", &why, B::STEM),
                }
            })*
        };
    }
    for_each_format!(add_formats);
    if let Err(why) = peers.add(&mut contest) {
        contest.left_out("csr", "peer", &why, B::STEM);
    }
    let Contest { entries, mut contenders, errors, .. } = contest;
    let timings = interleave(&mut contenders, plan.effort);
    let whole = |k: usize| timings[k].ms * entries[k].iterations as f64;
    let own = |k: &usize| entries[*k].label.contender == "spandrel";
    let all = || 0..entries.len();
    let best = all().filter(|k| !own(k)).map(whole).min_by(f64::total_cmp);
    let csr_ms = all().filter(own).find(|&k| entries[k].label.noun == "csr").map(whole);
    let line = |k: usize| {
        let Entry { label, iterations, residual, error } = &entries[k];
        let kernel = label.kernel.map_or(way.clone(), |kernel| format!("{way}, {kernel}"));
        let bytes = contenders[k].bytes();
        Line {
            op: plan.method.as_str(),
            noun: label.noun.into(),
            element: "f64",
            backend: B::STEM,
            contender: label.contender,
            case: case.to_owned(),
            n: csr.nrows(),
            nnz: csr.nnz(),
            ms: timings[k].ms,
            ms_min: timings[k].min,
            ms_max: timings[k].max,
            bytes,
            gbs: bytes as f64 / timings[k].ms / 1e6,
            of_copy: None,
            of_triad: None,
            ratio_to_best_peer: best.filter(|_| own(&k)).map(|peer| peer / whole(k)),
            ratio_to_csr: csr_ms.filter(|_| own(&k)).map(|csr| csr / whole(k)),
            more: More {
                kernel: Some(kernel),
                residual: Some(*residual),
                forward_error: Some(*error),
                whole_ms: Some(whole(k)),
                iterations: Some(*iterations),
                values,
                ..More::default()
            },
        }
    };
    Ok(Findings { lines: all().map(line).collect(), errors })
}

/// Times one system.
///
/// # Errors
/// A matrix that is not square; a failure on its own values and on the Laplacian's.
pub(crate) fn run<B: Place>(be: &B, case: &str, csr: &Csr<f64>, plan: &Plan, peers: &dyn Peers<B>) -> Result<Findings> {
    ensure!(csr.nrows() == csr.ncols(), "{} x {} is not square", csr.nrows(), csr.ncols());
    attempt(be, case, csr, plan, None, peers).or_else(|first| {
        eprintln!("  {first:#}; once more with the values of the graph Laplacian");
        let csr = laplacian(csr).map_err(|second| anyhow!("{first:#}; {second:#}"))?;
        attempt(be, case, &csr, plan, Some("graph laplacian"), peers).map_err(|second| anyhow!("{first:#}; {second:#}"))
    })
}

/// sprs's product instead of ours. It runs even after the solve has stopped; nobody reads the result then.
struct SprsProduct(CsMatI<f64, u32>);

// SAFETY: it works on its operands immediately and has no buffers of its own.
unsafe impl Operator<f64, Cpu> for SprsProduct {
    fn shape(&self) -> (usize, usize) {
        self.0.shape()
    }
    fn apply(
        &self,
        _: &Cpu,
        _: Gate<'_, Cpu>,
        x: &<Cpu as Backend<f64>>::Vector,
        y: &mut <Cpu as Backend<f64>>::Vector,
    ) -> spandrel_backend::Result<()> {
        y.as_mut_slice().fill(0.0);
        sprs::prod::mul_acc_mat_vec_csr(self.0.view(), x.as_slice(), y.as_mut_slice());
        Ok(())
    }
}

/// The CPU's peers.
struct HostPeers;

impl Peers<Cpu> for HostPeers {
    fn add<'b>(&'b self, contest: &mut Contest<'b, Cpu>) -> Result<()> {
        let bytes = contest.csr.spmv_bytes();
        let label = |contender, kernel| Label { noun: "csr", contender, kernel: Some(kernel), bytes };
        let (rows, cols, ptr, idx, values) = contest.csr.clone().into_parts();
        let product = SprsProduct(CsMatI::new((rows, cols), ptr, idx, values));
        contest.add(label("sprs", "its product in our solver"), product)?;
        if contest.plan.method == Method::Cg && !contest.plan.factored {
            let iterations = contest.entries[0].iterations;
            let loops = crate::cg::peers(contest.csr, &contest.host, iterations, bytes);
            for (contender, (name, kernel)) in
                loops.into_iter().zip([("sprs", "textbook loop"), ("faer", "its solver")])
            {
                if let Err(why) = contest.add_fixed(label(name, kernel), iterations, contender) {
                    contest.left_out("csr", name, &why, Cpu::STEM);
                }
            }
        }
        Ok(())
    }
}

/// Solves on the CPU. The peers are sprs's product in our solver and, for plain CG, faer's solver and the textbook's
/// loop over sprs's product.
///
/// # Errors
/// A matrix that is not square; a failure on its own values and on its Laplacian's.
pub fn on_cpu(be: &Cpu, case: &str, csr: &Csr<f64>, plan: &Plan) -> Result<Findings> {
    run(be, case, csr, plan, &HostPeers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    const PLAN: Plan = Plan {
        method: Method::Cg,
        factored: true,
        formats: &["csr", "hmec", "dense"],
        rtol: 1e-8,
        max_iters: 400,
        effort: Effort::new(1, 0.01),
    };

    #[test]
    fn a_laplacian_has_row_sums_near_zero_and_the_pattern() {
        let csr: Csr<f64> = generate::csr("banded:n=50,d=5").unwrap();
        let made = laplacian(&csr).unwrap();
        assert_eq!(made.col_idx(), csr.col_idx());
        for i in 0..50 {
            let sum: f64 = made.row(i).1.iter().sum();
            assert!(sum > 0.0 && sum < 1e-4, "row {i}: {sum}");
        }
        assert!(laplacian(&Csr::<f64>::new(2, 2, vec![0, 1, 2], vec![1, 0], vec![1.0, 1.0]).unwrap()).is_err());
    }

    #[test]
    fn every_format_and_peer_solves_the_same_system() {
        let csr: Csr<f64> = generate::csr("poisson2d:9").unwrap();
        for method in [Method::Cg, Method::BiCgStab] {
            for factored in [false, true] {
                let plan = Plan { method, factored, ..PLAN };
                let found = on_cpu(&Cpu::new(), "poisson2d:9", &csr, &plan).unwrap();
                assert!(found.errors.is_empty(), "{:?}", found.errors);
                let names: Vec<_> = found.lines.iter().map(|l| (l.noun.as_str(), l.contender)).collect();
                let mut expected =
                    vec![("csr", "spandrel"), ("hmec", "spandrel"), ("dense", "spandrel"), ("csr", "sprs")];
                if method == Method::Cg && !factored {
                    expected.extend([("csr", "sprs"), ("csr", "faer")]);
                }
                assert_eq!(names, expected);
                for line in &found.lines {
                    assert!(line.more.residual.unwrap() <= 2e-8 && line.more.forward_error.unwrap() < 1e-5, "{line:?}");
                    assert_eq!(line.more.values, None);
                    assert_eq!((line.op, line.ratio_to_csr.is_some()), (method.as_str(), line.contender == "spandrel"));
                }
            }
        }
    }

    #[test]
    fn a_pattern_of_ones_gets_the_values_of_its_laplacian() {
        let csr: Csr<f64> = generate::csr::<f64>("poisson2d:8").unwrap().map(|_| 1.0);
        let found = on_cpu(&Cpu::new(), "ones", &csr, &PLAN).unwrap();
        assert!(found.lines.len() == 4 && found.lines.iter().all(|l| l.more.values == Some("graph laplacian")));
        let hopeless = Csr::new(2, 2, vec![0, 1, 2], vec![1, 0], vec![1.0, 1.0]).unwrap();
        assert!(on_cpu(&Cpu::new(), "hopeless", &hopeless, &PLAN).unwrap_err().to_string().contains("diagonal"));
    }

    #[test]
    fn a_residual_is_told_with_what_rounding_may_do_to_it() {
        let csr: Csr<f64> = generate::csr("poisson1d:3").unwrap();
        let (found, moved) = residual(&csr, &[1.0, 1.0, 1.0], &[1.0, 0.0, 1.0]);
        assert!(found == 0.0 && moved > 0.0 && moved < 1e-14);
        assert!(residual(&csr, &[1.0, 1.5, 1.0], &[1.0, 0.0, 1.0]).0 > 0.5);
    }
}
