//! `spandrel-bench cg --backend cuda`: one iteration of CG, ours by format and way against cuSPARSE with cuBLAS.
//!
//! The time of an iteration is the difference between solves of N and of N / 2 iterations, divided by N / 2. So the
//! start and end of a solve (norms, the capture, the true residual) cancel. Ours is the public solver, which looks at
//! its monitor once, at the end; the peers never look. Bytes of an iteration, for every contender: those of the product
//! and 8 more passes over vectors (update: 3, direction and x: 5), the model of our fused steps.
//!
//! If CG would converge within N iterations, the pattern's graph Laplacian, which converges slowly, replaces the
//! values, and the record says so; the time of an iteration does not depend on them.
//!
//! Ways: `explicit` device memory, or `managed` memory for b and x, which the host writes and reads in place (the
//! matrix and the workspace stay in device memory); and each iteration replayed as a graph or enqueued anew.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spandrel_backend::{Backend, Device, Load, Mat, Spmv};
use spandrel_backend_cuda::cudarc::driver::{result, sys};
use spandrel_backend_cuda::{Cuda, Scalar, Vector};
use spandrel_formats::{Csr, Format};
use spandrel_solvers::{Cg, Identity, Options, Status};

use super::clock::{Clock, Label, Timed, interleave, median};
use super::conjugate::{ITERATIONS, Peer};
use super::cublas::{Cublas, Scalars};
use super::cusparse::{Algorithm, Cusparse, Forms};
use super::formats::{self, Visit};
use super::spmv::{copies, error_line};
use super::{Gpu, Room, ours};
use crate::case::Case;
use crate::cg::{relative_residual, right_hand_side};
use crate::contender::Effort;
use crate::krylov::laplacian;
use crate::record::{Line, More};

/// The number of calls per graph, and of rounds, with which the peer's algorithm is chosen.
const TRIAL_CALLS: u32 = 20;
const TRIAL: Effort = Effort::new(3, 1.0);
/// After this many iterations all contenders must have come equally far. Later, rounding in CG makes them differ.
const COMPARED: usize = 2 * ITERATIONS;
/// The number of whole solves whose median is reported.
const WHOLES: usize = 3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Stems of the formats, or empty for all.
    pub formats: Vec<String>,
    /// Iterations of the longer solve, made a multiple of 20.
    pub iterations: usize,
    /// Memory of b and x, `true` for managed.
    pub managed: Vec<bool>,
    /// Whether an iteration is replayed as a graph.
    pub recorded: Vec<bool>,
    /// How long to measure.
    pub effort: Effort,
    /// Limits of memory.
    pub room: Room,
}

/// The peers' libraries.
#[derive(Clone)]
pub struct Libraries {
    /// The product.
    pub cusparse: Rc<Cusparse>,
    /// Level 1.
    pub cublas: Rc<Cublas>,
}

/// CG converged, or failed, before the iterations were done.
#[derive(Debug, thiserror::Error)]
#[error("the timed solve ended as {status} after {done} of {asked} iterations: ask for fewer")]
struct EndedEarly {
    status: Status,
    done: usize,
    asked: usize,
}

/// One way to solve.
trait Solve {
    /// Takes this many iterations from x = 0, enqueued at least.
    fn run(&mut self, iterations: usize) -> Result<()>;
    fn answer(&self) -> Result<Vec<f64>>;
    /// Milliseconds from b on the host to x on the host.
    fn whole(&mut self, iterations: usize) -> Result<Option<f64>>;
}

impl Solve for Peer<'_> {
    fn run(&mut self, iterations: usize) -> Result<()> {
        Peer::run(self, iterations)
    }
    fn answer(&self) -> Result<Vec<f64>> {
        Peer::answer(self)
    }
    fn whole(&mut self, _: usize) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// Managed memory for n elements.
struct Managed<'a> {
    gpu: &'a Gpu,
    pointer: sys::CUdeviceptr,
    len: usize,
}

impl<'a> Managed<'a> {
    fn new(gpu: &'a Gpu, len: usize) -> Result<Self> {
        gpu.bind()?;
        let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        // SAFETY: the context is bound, and the memory is freed by `drop` alone.
        let pointer = unsafe { result::malloc_managed((len * 8).max(8), flags) }.context("managed memory")?;
        Ok(Self { gpu, pointer, len })
    }

    /// The memory as the host sees it.
    fn host(&mut self) -> Result<&mut [f64]> {
        self.gpu.be.synchronize()?;
        // SAFETY: managed memory has the same address on the host, is aligned to more than 8 bytes and holds `len`
        // elements, and the device is idle. Every bit pattern is an f64.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer as *mut f64, self.len) })
    }
}

impl Drop for Managed<'_> {
    fn drop(&mut self) {
        // Nobody can be told of a failure, and the process measures nothing after it.
        let _ = self.gpu.be.synchronize();
        // SAFETY: allocated by `new`, freed once, and the device is idle.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

struct Ours<'a, F: Format<Value = f64>>
where
    Cuda: Spmv<F>,
{
    gpu: &'a Gpu,
    mat: Rc<Mat<Cuda, F>>,
    host: Rc<Vec<f64>>,
    b: Vector<f64>,
    x: Vector<f64>,
    // Dropped after the vectors that use it.
    managed: Option<[Managed<'a>; 2]>,
    cg: Cg<f64, Cuda>,
    recorded: bool,
}

impl<'a, F: Format<Value = f64>> Ours<'a, F>
where
    Cuda: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    fn new(gpu: &'a Gpu, mat: &Rc<Mat<Cuda, F>>, host: &Rc<Vec<f64>>, managed: bool, recorded: bool) -> Result<Self> {
        let n = host.len();
        let mut memory = if managed { Some([Managed::new(gpu, n)?, Managed::new(gpu, n)?]) } else { None };
        let (b, x) = match &mut memory {
            Some([b, x]) => {
                b.host()?.copy_from_slice(host);
                // SAFETY: n elements each of managed memory that is kept beside the vectors and used by them alone
                // while the device is busy.
                unsafe { (gpu.be.wrap_raw(b.pointer, n)?, gpu.be.wrap_raw(x.pointer, n)?) }
            }
            None => (gpu.be.upload(host)?, gpu.be.zeros(n)?),
        };
        let cg = Cg::new(&gpu.be, n)?;
        Ok(Self { gpu, mat: Rc::clone(mat), host: Rc::clone(host), b, x, managed: memory, cg, recorded })
    }

    fn solve(&mut self, iterations: usize) -> Result<()> {
        // A tolerance of zero is never met: every contender does the same number of iterations.
        let options = Options {
            rtol: Some(0.0),
            max_iters: Some(iterations),
            history: false,
            check_every: iterations,
            recorded: self.recorded,
            ..Options::default()
        };
        let out = self.cg.solve(&self.gpu.be, &*self.mat, &Identity, &self.b, &mut self.x, &options)?;
        if out.status != Status::MaxIterations || out.iterations != iterations || out.restarts > 0 {
            return Err(EndedEarly { status: out.status, done: out.iterations, asked: iterations }.into());
        }
        Ok(())
    }
}

impl<F: Format<Value = f64>> Solve for Ours<'_, F>
where
    Cuda: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    fn run(&mut self, iterations: usize) -> Result<()> {
        self.gpu.be.fill(None, 0.0, &mut self.x)?;
        self.solve(iterations)
    }

    fn answer(&self) -> Result<Vec<f64>> {
        Ok(self.gpu.be.download(&self.x)?)
    }

    fn whole(&mut self, iterations: usize) -> Result<Option<f64>> {
        self.gpu.be.synchronize()?;
        let host = Rc::clone(&self.host);
        let start = Instant::now();
        match &mut self.managed {
            Some([b, x]) => {
                b.host()?.copy_from_slice(&host);
                x.host()?.fill(0.0);
            }
            None => {
                self.gpu.be.write(&host, &mut self.b)?;
                self.gpu.be.fill(None, 0.0, &mut self.x)?;
            }
        }
        self.solve(iterations)?;
        let x = match &mut self.managed {
            Some([_, x]) => x.host()?.to_vec(),
            None => self.gpu.be.download(&self.x)?,
        };
        std::hint::black_box(x);
        Ok(Some(start.elapsed().as_secs_f64() * 1e3))
    }
}

/// The contest for one case.
struct Contest<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    case: &'a str,
    csr: &'a Csr<f64>,
    host: Rc<Vec<f64>>,
    contenders: Vec<(Label, Box<dyn Solve + 'a>)>,
    seen: Vec<&'static str>,
    errors: Vec<Value>,
}

impl Contest<'_> {
    fn left_out(&mut self, noun: &str, contender: &str, why: &anyhow::Error) {
        eprintln!("  {noun} ({contender}): {why:#}");
        self.errors.push(error_line("cg", noun, "f64", contender, self.case, &format!("{why:#}")));
    }

    /// Bytes of an iteration whose product moves this many.
    fn bytes(&self, product: u64) -> u64 {
        product + 8 * 8 * self.csr.nrows() as u64
    }

    fn add_ours<F: Format<Value = f64>>(&mut self) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        let format = Arc::new(F::from_csr(self.csr)?);
        ensure!(
            format.storage() <= self.plan.room.most,
            "{} bytes of storage, more than {} (--max-gib)",
            format.storage(),
            self.plan.room.most
        );
        let mat = Mat::load(&self.gpu.be, format)?;
        let narrow = mat.is_narrow(&self.gpu.be);
        self.add_ways(&Rc::new(mat))?;
        let wide = if narrow { ours::in_f64(self.csr).map(Arc::new) } else { None };
        if let Some(wide) = wide.as_ref().and_then(|wide| (wide as &dyn Any).downcast_ref::<Arc<F>>()) {
            self.add_ways(&Rc::new(Mat::load(&self.gpu.be, Arc::clone(wide))?))?;
        }
        Ok(())
    }

    /// The ways in which one of our matrices is used.
    fn add_ways<F: Format<Value = f64>>(&mut self, mat: &Rc<Mat<Cuda, F>>) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        let kernel = ours::kernel::<f64>(mat.resident());
        for &managed in &self.plan.managed {
            for &recorded in &self.plan.recorded {
                let ways = [if managed { "managed" } else { "explicit" }, if recorded { "graph" } else { "no graph" }];
                let ways = kernel.as_deref().into_iter().chain(ways).collect::<Vec<_>>().join(", ");
                let label = Label {
                    noun: F::NAME.into(),
                    contender: "spandrel",
                    kernel: Some(ways),
                    bytes: self.bytes(mat.spmv_bytes()),
                };
                let solve = Ours::<F>::new(self.gpu, mat, &self.host, managed, recorded)?;
                self.contenders.push((label, Box::new(solve)));
            }
        }
        Ok(())
    }

    fn add_peers(&mut self, libraries: &Libraries) -> Result<()> {
        let Libraries { cusparse, cublas } = libraries;
        let (gpu, forms) = (self.gpu, Forms::new(self.gpu, self.csr));
        let b: Rc<Vector<f64>> = Rc::new(gpu.be.upload(&self.host)?);
        let y: Vector<f64> = gpu.be.zeros(b.len())?;
        let at = [b.device_pointer(), y.device_pointer()];
        let algorithm = algorithms_by_speed(gpu, cusparse, &forms, at, |algorithm, why| {
            self.left_out(algorithm.noun(), "cusparse", &why.context(algorithm.kernel()));
        })?[0];
        for (place, way) in [(Scalars::Device, "device scalars, graph"), (Scalars::Host, "host scalars")] {
            let peer = Peer::new(gpu, cusparse, cublas, &forms, algorithm, &b, place)?;
            let label = Label {
                noun: algorithm.noun().into(),
                contender: "cusparse+cublas",
                kernel: Some(format!("{}, {way}", algorithm.kernel())),
                bytes: self.bytes(peer.bytes()),
            };
            self.contenders.push((label, Box::new(peer)));
        }
        Ok(())
    }
}

impl Visit<f64> for Contest<'_> {
    fn visit<F: Format<Value = f64>>(&mut self) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        self.seen.push(F::NAME);
        let wanted = self.plan.formats.is_empty() || self.plan.formats.iter().any(|f| f == F::NAME);
        if wanted && let Err(why) = self.add_ours::<F>() {
            self.left_out(F::NAME, "spandrel", &why);
        }
        Ok(())
    }
}

/// The algorithms of cuSPARSE that multiply this matrix, at least one, the fastest first. `x` and `y` are addresses of
/// its ncols and nrows elements. Those that do not run are added to `left_out`.
///
/// # Errors
/// None of them runs; a device that fails.
pub(crate) fn algorithms_by_speed(
    gpu: &Gpu,
    cusparse: &Rc<Cusparse>,
    forms: &Forms<f64>,
    [x, y]: [u64; 2],
    mut left_out: impl FnMut(Algorithm, anyhow::Error),
) -> Result<Vec<Algorithm>> {
    let mut trials = Vec::new();
    for algorithm in Algorithm::ALL {
        let timed = forms.product(gpu, cusparse, algorithm, x, y).and_then(|product| {
            let label = Label { noun: String::new(), contender: "cusparse", kernel: None, bytes: 0 };
            Timed::new(gpu, label, TRIAL_CALLS, Box::new(move || product.enqueue()))
        });
        match timed {
            Ok(timed) => trials.push((algorithm, timed)),
            Err(why) => left_out(algorithm, why),
        }
    }
    let timings = interleave(gpu, &mut trials.iter_mut().map(|(_, timed)| timed).collect::<Vec<_>>(), TRIAL)?;
    let mut ranked: Vec<(f64, Algorithm)> =
        trials.iter().zip(&timings).map(|(trial, timing)| (timing.ms, trial.0)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ensure!(!ranked.is_empty(), "no algorithm of cuSPARSE runs");
    Ok(ranked.into_iter().map(|(_, algorithm)| algorithm).collect())
}

/// Milliseconds of one iteration.
fn sample(gpu: &Gpu, clock: &Clock, solve: &mut dyn Solve, iterations: usize, round_ms: f64) -> Result<f64> {
    let half = iterations / 2;
    let (mut long, mut short, mut repeats) = (0.0, 0.0, 0usize);
    while repeats == 0 || long + short < round_ms {
        long += clock.time(gpu, &mut || solve.run(iterations))?;
        short += clock.time(gpu, &mut || solve.run(half))?;
        repeats += 1;
    }
    Ok((long - short) / (repeats * (iterations - half)) as f64)
}

fn attempt(
    gpu: &Gpu,
    libraries: Option<&Libraries>,
    case: &str,
    plan: &Plan,
    csr: &Csr<f64>,
    values: Option<&'static str>,
) -> Result<(Vec<Line>, Vec<Value>)> {
    let (n, nnz) = (csr.nrows(), csr.nnz());
    let iterations = plan.iterations.max(1).next_multiple_of(2 * ITERATIONS);
    let host = Rc::new(right_hand_side(n));
    let mut contest = Contest {
        gpu,
        plan,
        case,
        csr,
        host: Rc::clone(&host),
        contenders: Vec::new(),
        seen: Vec::new(),
        errors: Vec::new(),
    };
    formats::each(&mut contest)?;
    for stem in &plan.formats {
        if !contest.seen.contains(&stem.as_str()) {
            contest.left_out(stem, "spandrel", &anyhow::anyhow!("the CUDA backend has no such format"));
        }
    }
    // Ours first: if they converge too soon, the rest of this attempt is useless.
    let mut ready = Vec::new();
    let mut first = None;
    for ours in [true, false] {
        if let (false, Some(libraries)) = (ours, libraries)
            && let Err(why) = contest.add_peers(libraries)
        {
            contest.left_out("csr", "cusparse+cublas", &why);
        }
        for (label, mut solve) in std::mem::take(&mut contest.contenders) {
            let residual = |solve: &dyn Solve| Ok(relative_residual(csr, &solve.answer()?, &host));
            let ended = solve.run(iterations).and_then(|()| residual(solve.as_ref()));
            if let Err(why) = &ended
                && why.is::<EndedEarly>()
            {
                return Err(ended.unwrap_err());
            }
            let begun = solve.run(COMPARED).and_then(|()| residual(solve.as_ref()));
            match ended.and_then(|ended| Ok((ended, begun?))) {
                Err(why) => contest.left_out(&label.noun, label.contender, &why),
                Ok((ended, begun)) => {
                    let like = *first.get_or_insert(begun);
                    if begun <= 1.1 * like && like <= 1.1 * begun {
                        ready.push((label, solve, ended));
                    } else {
                        let why = anyhow::anyhow!(
                            "residual {begun:e} after {COMPARED} iterations, the first contender's is {like:e}"
                        );
                        contest.left_out(&label.noun, label.contender, &why);
                    }
                }
            }
        }
    }

    let mut machine = copies(gpu)?;
    let copied = interleave(gpu, &mut machine.iter_mut().collect::<Vec<_>>(), plan.effort)?;
    let fastest = copied.iter().map(|timing| timing.ms).fold(f64::INFINITY, f64::min);
    let copy_gbs = machine[0].label.bytes as f64 / fastest / 1e6;
    let clock = Clock::new(gpu)?;
    let mut samples = vec![Vec::new(); ready.len()];
    for round in 0..plan.effort.rounds {
        for k in 0..ready.len() {
            let at = (k + round) % ready.len();
            samples[at].push(sample(gpu, &clock, ready[at].1.as_mut(), iterations, plan.effort.round_ms)?);
        }
    }
    let timings: Vec<_> = samples.into_iter().map(median).collect();
    let mut wholes = Vec::new();
    for (_, solve, _) in &mut ready {
        let times = (0..WHOLES).map(|_| solve.whole(iterations)).collect::<Result<Option<Vec<f64>>>>()?;
        wholes.push(times.map(|times| median(times).ms));
    }

    let kernel = |k: usize| ready[k].0.kernel.clone().unwrap_or_default();
    let peer = |way: &str| {
        let of = |k: &usize| ready[*k].0.contender == "cusparse+cublas" && kernel(*k).contains(way);
        (0..ready.len()).filter(of).map(|k| timings[k].ms).min_by(f64::total_cmp)
    };
    let (best, from_host) = (peer(""), peer("host scalars"));
    let csr_ms = (0..ready.len()).find(|&k| ready[k].0.noun == "csr" && ready[k].0.contender == "spandrel");
    let csr_ms = csr_ms.map(|k| timings[k].ms);
    let line = |label: &Label, timing: crate::contender::Timing, op, more| {
        let own = label.contender == "spandrel";
        let gbs = label.bytes as f64 / timing.ms / 1e6;
        Line {
            op,
            noun: label.noun.clone(),
            element: "f64",
            backend: "cuda",
            contender: label.contender,
            case: case.to_owned(),
            n,
            nnz,
            ms: timing.ms,
            ms_min: timing.min,
            ms_max: timing.max,
            bytes: label.bytes,
            gbs,
            of_copy: Some(gbs / copy_gbs),
            of_triad: None,
            ratio_to_best_peer: best.filter(|_| own).map(|p| p / timing.ms),
            ratio_to_csr: csr_ms.filter(|_| own).map(|c| c / timing.ms),
            more,
        }
    };
    let mut lines: Vec<Line> = Vec::new();
    for (k, (label, _, residual)) in ready.iter().enumerate() {
        let own = label.contender == "spandrel";
        let more = More {
            kernel: label.kernel.clone(),
            ratio_to_host_scalars: from_host.filter(|_| own).map(|p| p / timings[k].ms),
            residual: Some(*residual),
            whole_ms: wholes[k],
            iterations: Some(iterations),
            values,
            ..More::default()
        };
        lines.push(line(label, timings[k], "cg", more));
    }
    for (timed, timing) in machine.iter().zip(copied) {
        let more = More { kernel: timed.label.kernel.clone(), ..More::default() };
        lines.push(line(&timed.label, timing, "cg", more));
    }
    Ok((lines, contest.errors))
}

/// Times one case: a line per contender, and what was left out with its reason.
///
/// # Errors
/// A matrix that cannot be read or is not square; a device that fails; CG that ends too soon on any values.
pub fn run(gpu: &Gpu, libraries: Option<&Libraries>, case: &Case, plan: &Plan) -> Result<(Vec<Line>, Vec<Value>)> {
    let csr: Csr<f64> = case.load()?;
    ensure!(csr.nrows() == csr.ncols(), "{}: {} x {} is not square", case.name, csr.nrows(), csr.ncols());
    match attempt(gpu, libraries, &case.name, plan, &csr, None) {
        Err(why) if why.is::<EndedEarly>() => {
            eprintln!("  {why}; once more with the values of the graph Laplacian");
            let csr = laplacian(&csr)?;
            attempt(gpu, libraries, &case.name, plan, &csr, Some("graph laplacian"))
        }
        done => done,
    }
}
