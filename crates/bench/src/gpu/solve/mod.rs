//! `spandrel-bench solve --backend cuda`: whole preconditioned solves, CG with IC(0) and BiCGStab with ILU(0), ours
//! against the same algorithm made of cuSPARSE and cuBLAS.
//!
//! Set-up begins with the CSR matrix on the host and ends when a solve can begin. It includes one copy of the matrix,
//! the product's form, symbolic phase, factors, analysis and packing. The fastest format, algorithm of SpMV and form of
//! the triangles are found before that, and this time is not counted. The peer takes part with its fastest product of
//! all and with its fastest product of CSR, which needs no conversion. A ratio compares with the better of the two (see
//! [`lines`]).
//!
//! A solve begins with x = 0 and b on the device and ends when the host knows the outcome and the true residual. Our
//! graphs are captured within it; the peer's exist already. Both look every 16 iterations, and the peer is told how
//! many it needs. b = A x* with an x* without structure. An answer is right if the outcome is converged and the
//! residual, recomputed on the host, is within the tolerance up to the rounding of that sum. If IC(0) of A breaks down,
//! both factor A + alpha diag(A) with the alpha that ours finds.
//!
//! All contenders run in turn until the requested rounds are done or the time of the case is up. A failure is a line
//! with its status.

pub mod lines;
mod ours;
mod peer;
mod theirs;
mod triangles;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Error, Result, ensure};
use rayon::prelude::*;
use spandrel_backend::{Backend, Device};
use spandrel_backend_cuda::Vector;
use spandrel_formats::{Csr, choose};
use spandrel_solvers::Status;
use spandrel_sptrsv::{Factor, Ic0, Ilu0};

use self::lines::{Line, compare, parts};
use self::ours::{Made, Ours, Stored, operator, ready, ready_narrow, transferred};
use self::peer::Broken;
use super::Gpu;
use super::cg::Libraries;
use super::clock::median;
use super::cusparse::Algorithm;
use crate::case::Case;
use crate::cg::right_hand_side;
use crate::contender::Effort;
use crate::krylov::{Method, residual};
use crate::sptrsv::{LONG_MS, prepared, stopwatch};

/// Bytes on the device per entry: with all contenders of f64 side by side, and of both precisions.
const BYTES_PLAIN: u64 = 160;
const BYTES_MIXED: u64 = 200;
/// The number of further vectors.
const VECTORS: u64 = 40;
/// Points along an axis of the grid with which kernels are loaded.
const WARM: usize = 32;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The methods; empty for those that fit the matrix. These are both for a generated symmetric matrix. For a file it
    /// is CG if the matrix is symmetric with a positive diagonal, else BiCGStab.
    pub methods: Vec<Method>,
    /// Whether to time ours also with the preconditioner in f32, and refined around solves in f32.
    pub mixed: bool,
    /// The tolerance.
    pub rtol: f64,
    /// Seconds after which a solve is interrupted and no further round of a case begins.
    pub seconds: f64,
    /// Rounds.
    pub effort: Effort,
    /// Matrices with fewer entries are skipped.
    pub min_entries: usize,
}

/// The limits of a solve.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rtol: f64,
    max_iters: usize,
    seconds: f64,
}

/// How a solve ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    status: Status,
    iterations: usize,
    true_residual: f64,
}

/// One way to solve.
trait Contender {
    /// Solves from x = 0; returns when the host knows the outcome.
    fn solve(&mut self) -> Result<Ended>;
    fn answer(&self) -> Result<Vec<f64>>;
}

/// Parts of a set-up in milliseconds.
#[derive(Clone, Debug, Default)]
struct Setup {
    parts: Vec<(&'static str, f64)>,
}

impl Setup {
    fn push(&mut self, part: &'static str, ms: f64) {
        match self.parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, sum)) => *sum += ms,
            None => self.parts.push((part, ms)),
        }
    }
    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, ms)| ms).sum()
    }
    fn part(&self, name: &str) -> Option<f64> {
        self.parts.iter().find(|(part, _)| *part == name).map(|(_, ms)| *ms)
    }
    fn without(mut self, name: &str) -> Self {
        self.parts.retain(|(part, _)| *part != name);
        self
    }
    fn and(mut self, other: &Setup) -> Self {
        other.parts.iter().for_each(|&(part, ms)| self.push(part, ms));
        self
    }
}

/// The result of a set-up and the median of three by their sums, or the second of a long one, because the first maps
/// the device's memory. The previous result is dropped first.
fn set_up<R>(mut make: impl FnMut() -> Result<(R, Setup)>) -> Result<(R, Setup)> {
    let mut all: Vec<Setup> = Vec::new();
    loop {
        let (made, setup) = make()?;
        let long = setup.total() > LONG_MS;
        all.push(setup.clone());
        if long && all.len() == 2 {
            return Ok((made, setup));
        }
        if all.len() == 3 {
            all.sort_by(|a, b| a.total().total_cmp(&b.total()));
            return Ok((made, all.swap_remove(1)));
        }
    }
}

/// A contender in the contest: its line, and itself if it solved.
struct Entry<'a> {
    line: Line,
    contender: Option<Box<dyn Contender + 'a>>,
    samples: Vec<f64>,
}

/// The contest for a matrix.
struct Underway<'a> {
    gpu: &'a Gpu,
    libraries: Option<&'a Libraries>,
    plan: &'a Plan,
    case: &'a str,
    csr: Arc<Csr<f64>>,
    /// The format of the product.
    stem: &'static str,
    host: Vec<f64>,
    b: Rc<Vector<f64>>,
    limits: Limits,
    /// cuSPARSE's products, once they are known.
    algorithms: Vec<Algorithm>,
}

/// The narrowed matrix, and what is made of it.
struct Narrow {
    made: Made<f32>,
    a: Stored<f32>,
    exponent: i32,
    setup: Setup,
}

/// The word for an error.
fn status(why: &Error) -> String {
    let status = match why.downcast_ref::<spandrel_solvers::Error>() {
        Some(error) => error.status(),
        None => why.is::<Broken>().then_some(Status::ZeroPivot),
    };
    status.map_or("error".into(), |status| status.to_string())
}

fn product(csr: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    let row = |i: usize| {
        let (cols, values) = csr.row(i);
        cols.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum::<f64>()
    };
    (0..csr.nrows()).into_par_iter().map(row).collect()
}

/// A + alpha diag(A).
fn shifted(csr: &Csr<f64>, alpha: f64) -> Vec<f64> {
    let mut values = csr.values().to_vec();
    for i in 0..csr.nrows() {
        let begin = csr.row_ptr()[i] as usize;
        if let Ok(k) = csr.row(i).0.binary_search(&(i as u32)) {
            values[begin + k] = alpha.mul_add(values[begin + k], values[begin + k]);
        }
    }
    values
}

impl<'a> Underway<'a> {
    fn new(
        gpu: &'a Gpu,
        libraries: Option<&'a Libraries>,
        plan: &'a Plan,
        case: &'a str,
        csr: Arc<Csr<f64>>,
        stem: &'static str,
    ) -> Result<Self> {
        let n = csr.nrows();
        let host = product(&csr, &right_hand_side(n));
        let limits = Limits { rtol: plan.rtol, max_iters: (20 * n).max(20), seconds: plan.seconds };
        let b = Rc::new(gpu.be.upload(&host)?);
        Ok(Self { gpu, libraries, plan, case, csr, stem, host, b, limits, algorithms: Vec::new() })
    }

    fn line(&self, method: Method, contender: &'static str, precision: &'static str) -> Line {
        let precond = match method {
            Method::Cg => Ic0::<f64>::NAME,
            Method::BiCgStab => Ilu0::<f64>::NAME,
        };
        Line {
            op: "solve",
            noun: method.as_str(),
            element: "f64",
            precision,
            backend: "cuda",
            contender,
            case: self.case.to_owned(),
            n: self.csr.nrows(),
            nnz: self.csr.nnz(),
            precond,
            kernel: String::new(),
            shift: 0.0,
            status: "error".into(),
            error: None,
            iterations: 0,
            rtol: self.plan.rtol,
            true_residual: None,
            recomputed_residual: None,
            ms: None,
            ms_min: None,
            ms_max: None,
            rounds: 0,
            setup_ms: None,
            setup: None,
            transfer_ms: None,
            setup_resident_ms: None,
            same_iterations: None,
            ratio_to_best_peer: None,
            ratio_with_setup: None,
            ratio_to_f64: None,
        }
    }

    /// A line without an answer.
    fn failed(&self, mut line: Line, why: &Error) -> Entry<'a> {
        eprintln!("  {}, {}, {}: {why:#}", line.noun, line.contender, line.precision);
        (line.status, line.error) = (status(why), Some(format!("{why:#}")));
        Entry { line, contender: None, samples: Vec::new() }
    }

    /// Solves once and judges the answer.
    fn judged(&self, mut line: Line, setup: &Setup, made: Result<Box<dyn Contender + 'a>>) -> Entry<'a> {
        line.setup_ms = Some(setup.total());
        line.setup = Some(parts(setup));
        line.transfer_ms = setup.part("transfer");
        let finite = |v: f64| v.is_finite().then_some(v);
        let solved = made.and_then(|mut contender| {
            let (ended, ms) = stopwatch(|| contender.solve());
            let (ended, x) = (ended?, contender.answer()?);
            Ok((contender, ended, ms, residual(&self.csr, &x, &self.host)))
        });
        let (contender, ended, ms, (found, rounding)) = match solved {
            Ok(solved) => solved,
            Err(why) => return self.failed(line, &why),
        };
        line.status = ended.status.to_string();
        line.iterations = ended.iterations;
        line.true_residual = finite(ended.true_residual);
        line.recomputed_residual = finite(found);
        line.ms = Some(ms);
        let right = found <= self.plan.rtol + rounding;
        if ended.status.is_converged() && !right {
            line.status = "wrong_answer".into();
        }
        eprintln!(
            "  {}, {}, {}: {} after {} iterations, residual {found:.1e}",
            line.noun, line.contender, line.precision, line.status, line.iterations
        );
        let contender = line.is_right().then_some(contender);
        Entry { line, contender, samples: Vec::new() }
    }

    /// Adds ours in f64, and in mixed precision if requested. Returns the shift of the factorisation.
    fn add_ours(&self, method: Method, entries: &mut Vec<Entry<'a>>) -> f64 {
        let (gpu, csr, line) = (self.gpu, &self.csr, |precision| self.line(method, "spandrel", precision));
        let mut shift = 0.0;
        let made = match set_up(|| ready(gpu, method, self.stem, csr)) {
            Ok(((Made { m, plan, shift: alpha }, a), setup)) => {
                shift = alpha;
                let a = Rc::new(a);
                let ours = Ours::plain(gpu, method, &a, &m, &self.b, self.limits);
                let kernel = format!("{}, {plan}", self.stem);
                let line = Line { kernel, shift, ..line("f64") };
                entries.push(self.judged(line, &setup, boxed(ours)));
                Ok((a, setup.without("factors")))
            }
            Err(why) => {
                entries.push(self.failed(line("f64"), &why.context(self.stem)));
                let alone = prepared(|| operator(gpu, self.stem, || Cow::Borrowed(&**csr), transferred(gpu, csr)?));
                alone.map(|(a, ms)| (Rc::new(a), Setup { parts: vec![("operator", ms)] }))
            }
        };
        let Ok((a, product)) = made else { return shift };
        if self.plan.mixed {
            match self.narrow(method) {
                Ok(narrow) => self.add_mixed(method, &a, &product, narrow, entries),
                Err(why) => {
                    entries.extend(["mixed", "refined"].map(|precision| self.failed(line(precision), &why)));
                }
            }
        }
        shift
    }

    fn narrow(&self, method: Method) -> Result<Narrow> {
        let ((made, a, exponent), setup) = set_up(|| ready_narrow(self.gpu, method, self.stem, &self.csr))?;
        Ok(Narrow { made, a, exponent, setup })
    }

    fn add_mixed(
        &self,
        method: Method,
        a: &Rc<Stored<f64>>,
        product: &Setup,
        narrow: Narrow,
        entries: &mut Vec<Entry<'a>>,
    ) {
        let (gpu, Narrow { made, a: narrow, exponent, setup }) = (self.gpu, narrow);
        let line = |precision| Line {
            kernel: format!("{}, {} in f32", self.stem, made.plan),
            shift: made.shift,
            ..self.line(method, "spandrel", precision)
        };
        let m = (&made.m, exponent);
        let mixed = Ours::mixed(gpu, method, a, m, &self.b, self.limits);
        let all = product.clone().and(&setup);
        entries.push(self.judged(line("mixed"), &product.clone().and(&setup.without("operator")), boxed(mixed)));
        let refined = Ours::refined(gpu, method, a, narrow, m, &self.b, self.limits);
        entries.push(self.judged(line("refined"), &all, boxed(refined)));
    }

    /// Runs all contenders of one method.
    fn contest(&mut self, method: Method) -> Result<Vec<Line>> {
        let mut entries = Vec::new();
        let shift = self.add_ours(method, &mut entries);
        self.gpu.stream().synchronize().context("the device has failed")?;
        self.add_peers(method, shift, &mut entries);
        self.gpu.stream().synchronize().context("the device has failed")?;
        let start = Instant::now();
        for round in self.plan.effort.rounds() {
            if round > 0 && start.elapsed().as_secs_f64() > self.plan.seconds {
                break;
            }
            let count = entries.len();
            for k in 0..count {
                let entry = &mut entries[(k + round) % count];
                let Some(contender) = &mut entry.contender else { continue };
                match self.sample(contender.as_mut(), &entry.line) {
                    Ok(ms) => entry.samples.push(ms),
                    Err(why) => *entry = self.failed(entry.line.clone(), &why),
                }
            }
        }
        let timed = |Entry { mut line, samples, .. }: Entry<'_>| {
            if !samples.is_empty() {
                line.rounds = samples.len();
                let timing = median(samples);
                (line.ms, line.ms_min, line.ms_max) = (Some(timing.ms), Some(timing.min), Some(timing.max));
            }
            line
        };
        let mut lines: Vec<Line> = entries.into_iter().map(timed).collect();
        compare(&mut lines);
        Ok(lines)
    }

    /// Milliseconds of a solve. Each must end as the first did.
    fn sample(&self, contender: &mut dyn Contender, line: &Line) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0);
        while count == 0 || sum < self.plan.effort.round_ms {
            self.gpu.be.synchronize()?;
            let (ended, ms) = stopwatch(|| contender.solve());
            let ended = ended?;
            ensure!(
                ended.status.is_converged() && ended.iterations == line.iterations,
                "{}: a solve ended as {} after {} iterations, the first after {}",
                line.contender,
                ended.status,
                ended.iterations,
                line.iterations
            );
            sum += ms;
            count += 1;
        }
        Ok(sum / f64::from(count))
    }
}

fn boxed<'a>(made: Result<impl Contender + 'a>) -> Result<Box<dyn Contender + 'a>> {
    made.map(|contender| Box::new(contender) as Box<dyn Contender + 'a>)
}

/// The methods for a matrix.
fn methods(plan: &Plan, case: &Case, csr: &Csr<f64>) -> Vec<Method> {
    if !plan.methods.is_empty() {
        return plan.methods.clone();
    }
    match (spandrel_solvers::Method::choose(csr).solver, &case.path) {
        (spandrel_solvers::Method::Cg, None) => vec![Method::Cg, Method::BiCgStab],
        (spandrel_solvers::Method::Cg, Some(_)) => vec![Method::Cg],
        _ => vec![Method::BiCgStab],
    }
}

/// A small matrix that loads the kernels of a large generated one.
fn small(case: &Case) -> Option<Case> {
    let (stencil, size) = case.name.split_once(':').filter(|_| case.path.is_none())?;
    size.parse::<usize>().ok().filter(|&size| size > WARM)?;
    Some(Case::parse(&format!("{stencil}:{WARM}")))
}

/// Times one case: a line for each contender of each method. Returns none for a matrix that is skipped.
///
/// # Errors
/// A matrix that cannot be read or is not square; too little memory; a device that fails.
pub fn run(gpu: &Gpu, libraries: Option<&Libraries>, case: &Case, plan: &Plan) -> Result<Vec<Line>> {
    let csr: Arc<Csr<f64>> = Arc::new(case.load()?);
    ensure!(csr.nrows() == csr.ncols(), "{} x {} is not square", csr.nrows(), csr.ncols());
    if csr.nnz() < plan.min_entries {
        return Ok(Vec::new());
    }
    let free = gpu.free_memory()?;
    let each = if plan.mixed { BYTES_MIXED } else { BYTES_PLAIN };
    let needed = each * csr.nnz() as u64 + VECTORS * 8 * csr.nrows() as u64;
    let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
    ensure!(needed <= free, "about {:.1} GiB are needed, {:.1} GiB are free", gib(needed), gib(free));
    let methods = methods(plan, case, &csr);
    let stem = choose(&csr, gpu.be.profile()).format;
    // Kernels are loaded at their first use.
    let warm = small(case).unwrap_or_else(|| case.clone());
    let few = Plan { effort: Effort::new(1, 0.0), ..plan.clone() };
    let first = if warm.name == case.name { Arc::clone(&csr) } else { Arc::new(warm.load()?) };
    let mut loading = Underway::new(gpu, libraries, &few, &warm.name, first, stem)?;
    for &method in &methods {
        loading.contest(method)?;
    }
    drop(loading);
    gpu.release_memory()?;
    let mut underway = Underway::new(gpu, libraries, plan, &case.name, csr, stem)?;
    let mut lines = Vec::new();
    for method in methods {
        lines.extend(underway.contest(method)?);
        gpu.release_memory()?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    const PLAN: Plan = Plan {
        methods: Vec::new(),
        mixed: false,
        rtol: 1e-8,
        seconds: 1.0,
        effort: Effort::new(1, 0.0),
        min_entries: 0,
    };

    #[test]
    fn methods_follow_the_matrix() {
        let of = |word: &str, spec: &str| methods(&PLAN, &Case::parse(word), &generate::csr(spec).expect("a matrix"));
        assert_eq!(of("d3n7:4", "d3n7:4"), [Method::Cg, Method::BiCgStab]);
        assert_eq!(of("a.mtx", "d3n7:4"), [Method::Cg]);
        assert_eq!(of("a.mtx", "convdiff3d:4,peclet=10"), [Method::BiCgStab]);
        let asked = Plan { methods: vec![Method::Cg], ..PLAN };
        let csr = generate::csr("convdiff3d:4,peclet=10").expect("a matrix");
        assert_eq!(methods(&asked, &Case::parse("a.mtx"), &csr), [Method::Cg]);
    }

    #[test]
    fn large_grids_have_small_siblings() {
        let name = |word: &str| small(&Case::parse(word)).map(|case| case.name);
        assert_eq!(name("d3n27:256").as_deref(), Some("d3n27:32"));
        assert_eq!([name("d3n27:16"), name("d3n7:64x64x64"), name("some.mtx")], [None, None, None]);
    }

    #[test]
    fn a_shift_is_the_one_of_the_factorisation() {
        let csr: Csr<f64> = generate::csr("d3n7:3").expect("a matrix");
        let (values, row) = (shifted(&csr, 0.5), csr.row(13).0);
        let begin = csr.row_ptr()[13] as usize;
        for (k, &col) in row.iter().enumerate() {
            assert_eq!(values[begin + k], if col == 13 { 9.0 } else { -1.0 });
        }
    }

    #[test]
    fn no_set_up_that_counts_is_the_first() {
        let timed = |all: [f64; 3]| {
            let mut made = 0;
            let (last, setup) = set_up(|| {
                made += 1;
                Ok((made, Setup { parts: vec![("all", all[made - 1])] }))
            })
            .expect("a set-up");
            (last, setup.total())
        };
        assert_eq!(timed([9.0, 1.0, 2.0]), (3, 2.0));
        assert_eq!(timed([2.0 * LONG_MS, 1.5 * LONG_MS, 0.0]), (2, 1.5 * LONG_MS));
        assert_eq!(timed([2.0 * LONG_MS, 1.0, 2.0]), (3, 2.0));
    }

    #[test]
    fn parts_of_a_set_up_add_up() {
        let mut setup = Setup { parts: vec![("transfer", 1.0), ("plans", 2.0)] };
        setup.push("plans", 3.0);
        let setup = setup.and(&Setup { parts: vec![("factors", 4.0), ("plans", 1.0)] });
        assert_eq!((setup.total(), setup.part("plans"), setup.part("none")), (11.0, Some(6.0), None));
        let object = parts(&setup);
        assert_eq!(object["factors_ms"], 4.0);
    }

    #[test]
    fn a_failure_has_the_word_of_its_kind() {
        let broken = spandrel_solvers::Error::Triangle(spandrel_sptrsv::Error::ZeroPivot { row: 3 });
        assert_eq!(status(&Error::from(broken)), "zero_pivot");
        assert_eq!(status(&anyhow::anyhow!("something else")), "error");
    }
}
