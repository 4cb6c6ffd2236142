//! The suite as a program: the backends of this machine, the selected trials, the run and its report.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use spandrel_backend::{Result as DeviceResult, Trace};
use spandrel_backend_cpu::{Cpu, Simd};
use spandrel_backend_cuda::Cuda;

use crate::case::{self, Case};
use crate::subject::Fleet;
use crate::trial::{Outcome, Record, Tally, Trial, wrong};
use crate::trials::{self, Bits};
use crate::watchdog::Watchdog;

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only the backend with this name.
    pub backend: Option<String>,
    /// Only trials whose name contains this.
    pub filter: Option<String>,
    /// Leaves out the cases marked large and the longest vectors.
    pub small: bool,
    /// Of each operation, noun, type and backend, only one trial in this many, always with the first; 0 and 1 mean all.
    pub one_in: usize,
    /// A missing CUDA backend is a failure and not a skip, whatever else is selected.
    pub require_cuda: bool,
    /// A folder of Matrix Market files that the CPU and a reproducible GPU must solve alike.
    pub matrices: Option<PathBuf>,
    /// Of what the fields above select, only this part.
    pub part: Part,
}

/// Part `which` of `of`, from 1: every `of`-th trial, so that all parts take about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, at most `of`.
    pub which: usize,
    /// How many parts there are.
    pub of: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self { which: 1, of: 1 }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(which, of)| Some((which.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((which, of)) if (1..=of).contains(&which) => Ok(Self { which, of }),
            _ => Err("give K/N with K from 1 to N, e.g. 2/3".to_owned()),
        }
    }
}

/// The names that [`Selection::backend`] accepts.
pub const BACKENDS: [&str; 3] = ["cpu", "trace", "cuda"];

/// The CPU with 1, 2 and 3 threads and with every level of vector instructions that it has. All must give the same
/// bits.
///
/// # Errors
/// A number of threads that the system refuses.
pub fn cpus() -> Result<Fleet<Cpu>> {
    let mut devices = Vec::new();
    for threads in [2, 1, 3] {
        devices.push((format!("{threads} threads"), Cpu::with_threads(threads)?));
    }
    // The devices above have the widest level.
    for level in Simd::available().filter(|&level| level != Simd::detect() || level == Simd::Portable) {
        devices.push((format!("{} code", level.name()), Cpu::with_threads(2)?.with_simd(level)));
    }
    Ok(Fleet { name: "cpu".into(), devices })
}

/// The cases of the suite, shared.
///
/// # Errors
/// As [`case::all`].
pub fn cases() -> Result<Vec<Rc<Case>>> {
    Ok(case::all()?.into_iter().map(Rc::new).collect())
}

/// All selected trials, in the order in which they run. What this machine cannot try is a trial that is skipped with
/// its reason.
///
/// # Errors
/// An unknown backend; cases that do not parse.
pub fn select(selection: &Selection) -> Result<Vec<Trial>> {
    if let Some(name) = selection.backend.as_deref()
        && !BACKENDS.contains(&name)
    {
        bail!("no backend is called {name}; there are {}", BACKENDS.join(", "));
    }
    let wanted = |name: &str| selection.backend.as_deref().is_none_or(|backend| backend == name);
    let cases = cases()?;
    let mut all = Vec::new();
    if wanted("cpu") {
        let fleet = Rc::new(cpus()?);
        all.extend(trials::of(&fleet, &cases, !selection.small));
        all.extend(trials::of_plans(&fleet, || Cpu::with_threads(2), selection.matrices.as_deref()));
        all.extend(trials::of_solvers(&fleet));
        all.extend(trials::of_unknowns(&fleet));
        all.extend(trials::of_factors(&fleet, selection.matrices.as_deref()));
        trials::analyze::trials::<f32, _>(&fleet, &mut all);
        trials::analyze::trials::<f64, _>(&fleet, &mut all);
        trials::new_values::trials::<f32, _>(&fleet, &mut all);
        trials::new_values::trials::<f64, _>(&fleet, &mut all);
        trials::renewed::trials(&fleet, &mut all);
        trials::solver_values::trials(&fleet, &mut all);
        all.extend(trials::of_made::<f32, _>(&fleet));
        all.extend(trials::of_made::<f64, _>(&fleet));
        all.extend(trials::of_coarsening::<f32, _>(&fleet));
        all.extend(trials::of_coarsening::<f64, _>(&fleet));
        all.extend(trials::of_stencils::<f32, _>(&fleet));
        all.extend(trials::of_stencils::<f64, _>(&fleet));
        trials::joined::trials::<f32, _>(&fleet, &mut all);
        trials::peers::trials::<f32, _>(&fleet, &mut all);
        trials::joined::trials::<f64, _>(&fleet, &mut all);
        trials::peers::trials::<f64, _>(&fleet, &mut all);
    }
    if wanted("trace") {
        let trace = Trace::new(Cpu::with_threads(2)?);
        let trace = Rc::new(Fleet { name: "trace".into(), devices: vec![("trace".into(), trace)] });
        all.extend(trials::between(&Rc::new(cpus()?), &trace, &cases, Bits::Demanded));
        let cpu = Rc::new(cpus()?);
        all.extend(trials::grids_between(&cpu, &trace));
        all.extend(trials::steps::trials(&trace, &cases));
        all.extend(trials::steps::solves(&trace));
        trials::spgemm::steps(&trace, &mut all);
    }
    let gpu = (wanted("cuda") || selection.require_cuda).then(Gpu::open);
    match &gpu {
        Some(Ok(gpu)) => all.extend(gpu.trials(selection, &cases)),
        Some(Err(why)) if !selection.require_cuda => all.push(Trial::skipped(CUDA.into(), why.clone())),
        _ => {}
    }
    if let Some(filter) = &selection.filter {
        all.retain(|trial| trial.name.contains(filter.as_str()));
    }
    if selection.one_in > 1 {
        let mut seen: HashMap<String, usize> = HashMap::new();
        all.retain(|trial| {
            let place = seen.entry(kind(&trial.name).to_owned()).or_default();
            *place += 1;
            (*place - 1).is_multiple_of(selection.one_in)
        });
    }
    // What is required and cannot be tried is a failure, whatever the filter says.
    if let Some(Err(why)) = gpu
        && selection.require_cuda
    {
        all.push(Trial::new(CUDA.into(), move || Err(wrong(format!("cuda is required and cannot be tried: {why}")))));
    }
    let Part { which, of } = selection.part;
    Ok(all.into_iter().skip(which.saturating_sub(1)).step_by(of.max(1)).collect())
}

/// How many trials may run at a time: one for each core, but at most 8, and one where a GPU is tried, whose memory some
/// trials exhaust.
pub fn jobs(selection: &Selection) -> usize {
    let on_host = selection.backend.as_deref().is_some_and(|name| name != "cuda") && !selection.require_cuda;
    if !on_host && spandrel_backend_cuda::probe().is_ok() {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// The name of a trial without its case: operation, noun, type and backend.
pub fn kind(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(kind, _)| kind)
}

/// The trial that replaces those of the CUDA backend if it cannot be tried.
const CUDA: &str = "suite/all/all/cuda/probe";

/// The first GPU, as it is and restricted to the orders that the CPU shares.
struct Gpu {
    own: Rc<Fleet<Cuda>>,
    /// The same with one that runs kernels whose warps wait for each other as a single thread block, because they must
    /// not need more.
    waiting: Rc<Fleet<Cuda>>,
    /// Two of them, each with its own queue, as ranks on one GPU have.
    pair: Rc<Fleet<Cuda>>,
    reproducible: Rc<Fleet<Cuda>>,
}

fn reproducible() -> DeviceResult<Cuda> {
    Ok(Cuda::new()?.with_reproducible(true))
}

impl Gpu {
    /// Opens it, or says why this machine cannot try it.
    fn open() -> Result<Self, String> {
        let fleet = |name: &str, device: DeviceResult<Cuda>| {
            let device = device.map_err(|error| error.to_string())?;
            Ok::<_, String>(Rc::new(Fleet { name: name.into(), ..Fleet::single(device) }))
        };
        let mut waiting =
            Fleet { name: "cuda".into(), ..Fleet::single(Cuda::new().map_err(|error| error.to_string())?) };
        let alone = Cuda::new().map_err(|error| error.to_string())?.with_waiting_blocks(1);
        waiting.devices.push(("one thread block".into(), alone));
        let waiting = Rc::new(waiting);
        let queue = |label: &str| Ok::<_, String>((label.into(), Cuda::new().map_err(|error| error.to_string())?));
        let pair = Fleet { name: "cuda".into(), devices: vec![queue("first queue")?, queue("second queue")?] };
        Ok(Self {
            pair: Rc::new(pair),
            own: fleet("cuda", Cuda::new())?,
            waiting,
            reproducible: fleet("cuda-reproducible", reproducible())?,
        })
    }

    /// All trials of the device as it is; of the reproducible one, the formats that it multiplies in another order;
    /// both compared with the CPU; the trials that only a GPU can fail; and the real matrices.
    fn trials(&self, selection: &Selection, cases: &[Rc<Case>]) -> Vec<Trial> {
        let Self { own, waiting, pair, reproducible: held } = self;
        let mut all = trials::of(own, cases, !selection.small);
        let differing = trials::differing(own, held);
        let other = |trial: &Trial| trial.name.split('/').nth(1).is_some_and(|noun| differing.contains(&noun));
        all.extend(trials::of(held, cases, !selection.small).into_iter().filter(other));
        let cpu = Rc::new(Fleet { name: "cpu".into(), ..Fleet::single(Cpu::new()) });
        all.extend(trials::between(&cpu, own, cases, Bits::WhereDeclared));
        all.extend(trials::between(&cpu, held, cases, Bits::Demanded));
        all.extend(trials::grids_between(&cpu, held));
        trials::convert::trials(own, cases, !selection.small, &mut all);
        trials::narrow::trials(own, cases, !selection.small, &mut all);
        trials::cuda::trials(own, Cuda::new, &mut all);
        trials::wrapped::trials(own, cases, &mut all);
        trials::joined::trials::<f32, _>(own, &mut all);
        trials::peers::trials::<f32, _>(pair, &mut all);
        trials::joined::trials::<f64, _>(own, &mut all);
        trials::peers::trials::<f64, _>(pair, &mut all);
        trials::persistent::trials::<f32>(own, &mut all);
        trials::persistent::trials::<f64>(own, &mut all);
        all.extend(trials::of_plans(waiting, Cuda::new, selection.matrices.as_deref()));
        all.extend(trials::of_wraps(waiting));
        all.extend(trials::of_solvers(own));
        all.extend(trials::of_unknowns(own));
        all.extend(trials::of_solvers(held).into_iter().filter(|trial| trial.name.ends_with("-pair")));
        all.extend(trials::solvers_between(&cpu, own));
        all.extend(trials::solvers_between(&cpu, held));
        all.extend(trials::of_factors(waiting, selection.matrices.as_deref()));
        trials::analyze::trials::<f32, _>(own, &mut all);
        trials::analyze::trials::<f64, _>(own, &mut all);
        trials::new_values::trials::<f32, _>(own, &mut all);
        trials::new_values::trials::<f64, _>(own, &mut all);
        trials::renewed::trials(own, &mut all);
        trials::solver_values::trials(own, &mut all);
        all.extend(trials::of_made::<f32, _>(own));
        all.extend(trials::of_made::<f64, _>(own));
        all.extend(trials::of_coarsening::<f32, _>(own));
        all.extend(trials::of_coarsening::<f64, _>(own));
        all.extend(trials::of_stencils::<f32, _>(own));
        all.extend(trials::of_stencils::<f64, _>(own));
        trials::assemble::trials::<f32, _>(own, &mut all);
        trials::assemble::trials::<f64, _>(own, &mut all);
        all.extend(trials::reproducible::trials(&cpu, held, selection.matrices.as_deref()));
        all
    }
}

/// Whether a trial can hang.
fn can_hang(name: &str) -> bool {
    ["sptrsv/", "factorize/", "assemble/"].iter().any(|op| name.starts_with(op)) || name.contains("mg/sweep/")
}

/// Runs the selected trials on several threads, each with devices of its own. Trials share data only with those of the
/// same thread. The report and the records are those of [`run`], but written at the end.
///
/// # Errors
/// As [`select`] and [`run`].
pub fn run_together(
    selection: &Selection,
    threads: usize,
    report: &mut dyn Write,
    mut json: Option<&mut dyn Write>,
) -> Result<Tally> {
    let claimed = AtomicUsize::new(0);
    // Every thread makes all trials in the same order, and runs those whose places it claims.
    let work = || -> Result<Vec<(usize, Record)>> {
        let (mut records, watchdog) = (Vec::new(), Watchdog::new());
        let mut mine = claimed.fetch_add(1, Ordering::Relaxed);
        for (place, trial) in select(selection)?.into_iter().enumerate() {
            if place == mine {
                watchdog.watch(can_hang(&trial.name).then(|| trial.name.clone()));
                records.push((place, trial.run()));
                mine = claimed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(records)
    };
    let mut records = std::thread::scope(|scope| -> Result<Vec<_>> {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut records = Vec::new();
        for thread in threads {
            records.extend(thread.join().map_err(|_| anyhow!("a thread of the suite panicked"))??);
        }
        Ok(records)
    })?;
    records.sort_unstable_by_key(|&(place, _)| place);
    let mut tally = Tally::default();
    for (_, record) in &records {
        tell(record, &mut tally, report, &mut json)?;
    }
    Ok(tally)
}

/// Counts a record, reports it unless it passed, and writes it as a line of JSON.
fn tell(record: &Record, tally: &mut Tally, report: &mut dyn Write, json: &mut Option<&mut dyn Write>) -> Result<()> {
    tally.count(record.outcome);
    match record.outcome {
        Outcome::Passed => {}
        Outcome::Failed => writeln!(report, "FAILED  {}\n        {}", record.name, record.detail)?,
        Outcome::Skipped => writeln!(report, "skipped {}\n        {}", record.name, record.detail)?,
    }
    if let Some(json) = json.as_deref_mut() {
        serde_json::to_writer(&mut *json, record).context("writing a record")?;
        writeln!(json)?;
    }
    Ok(())
}

/// Runs trials. Writes failures and skips to `report` and every record to `json`, one per line.
///
/// If a triangular solve or a factorisation hangs, the process ends with its name on stderr.
///
/// # Errors
/// A report that cannot be written.
pub fn run(trials: Vec<Trial>, report: &mut dyn Write, mut json: Option<&mut dyn Write>) -> Result<Tally> {
    let (mut tally, watchdog) = (Tally::default(), Watchdog::new());
    for trial in trials {
        watchdog.watch(can_hang(&trial.name).then(|| trial.name.clone()));
        let record = trial.run();
        tell(&record, &mut tally, report, &mut json)?;
    }
    Ok(tally)
}
