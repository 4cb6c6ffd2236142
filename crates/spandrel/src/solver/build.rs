//! From settings and a matrix to a solver: first the plan, then everything that it needs on the device.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use spandrel_formats::index::Ordinal;
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Profile, Real, Survey};
use spandrel_solvers::{Direct, Error, Iterate, Method, Phase, Progress, Result};

use super::device::{DeviceSolver, Running};
use super::element::{Element, SolverBackend};
use super::finish::{Found, factored};
use super::measure;
use super::near_null;
use super::plan::{Event, Plan, Stage};
use super::policy;
use super::prepare;
use super::renumber::SCATTERED;
use super::rival::Rival;
use super::settings::{FormatChoice, Reorder, Settings};
use super::shared::separates_points;
use super::truth::Truth;

/// The callback of [`crate::solver::Builder::on_progress`].
pub(super) type Watch = dyn FnMut(Event<'_>) -> ControlFlow<()> + Send;

/// Seconds of each phase of a solver's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Times {
    /// Looking at the structure, choosing, renumbering.
    pub analyze: f64,
    /// Copying matrix and vectors to the device, the matrix in its format.
    pub load: f64,
    /// Making the preconditioner, kernels or a factorisation.
    pub setup: f64,
    /// The iteration with its last residual, or the solve with factors.
    pub solve: f64,
}

/// Measures the times of consecutive phases.
#[derive(Debug)]
pub(super) struct Lap(Instant);

impl Lap {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds the time since the last call to a phase.
    pub(super) fn add_to(&mut self, phase: &mut f64) {
        let now = Instant::now();
        *phase += now.duration_since(self.0).as_secs_f64();
        self.0 = now;
    }
}

/// Reports the work to the caller and asks whether to continue.
#[derive(Default)]
pub(super) struct Reporter(pub(super) Option<Box<Watch>>);

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reporter").field(&self.0.is_some()).finish()
    }
}

impl Reporter {
    fn tell(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.0.as_mut().map_or(ControlFlow::Continue(()), |watch| watch(event))
    }

    pub(super) fn stage(&mut self, stage: Stage, detail: &str) -> Result<()> {
        match self.tell(Event::Stage(stage, detail)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted { phase: stage.to_string() }),
        }
    }

    pub(super) fn note(&mut self, note: &str) -> Result<()> {
        match self.tell(Event::Note(note)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted { phase: Stage::SetUp.to_string() }),
        }
    }

    pub(super) fn iteration(
        &mut self,
        method: Method,
        progress: Progress,
        iterate: Iterate<'_, f64>,
    ) -> ControlFlow<()> {
        self.tell(Event::Iteration(method, progress, iterate))
    }
}

/// The set-up of an engine: its times and its reporter.
#[derive(Debug)]
pub struct Setup<'a> {
    reporter: &'a mut Reporter,
    times: &'a mut Times,
    lap: Lap,
}

impl<'a> Setup<'a> {
    pub(super) fn new(reporter: &'a mut Reporter, times: &'a mut Times) -> Self {
        Self { reporter, times, lap: Lap::start() }
    }
    pub(super) fn begin(&mut self, phase: Stage, detail: impl fmt::Display) -> Result<()> {
        self.reporter.stage(phase, &detail.to_string())
    }
    pub(super) fn note(&mut self, note: &str) -> Result<()> {
        self.reporter.note(note)
    }
    /// Reports that a phase of the preconditioner or the factorisation begins.
    pub(super) fn watch(&mut self, phase: Phase) -> ControlFlow<()> {
        self.reporter.tell(Event::Stage(Stage::SetUp, &phase.to_string()))
    }
    pub(super) fn end_analyze(&mut self) {
        self.lap.add_to(&mut self.times.analyze);
    }
    pub(super) fn end_load(&mut self) {
        self.lap.add_to(&mut self.times.load);
    }
    pub(super) fn end_setup(&mut self) {
        self.lap.add_to(&mut self.times.setup);
    }
}

/// A matrix in the numbering of the solve; `perm` leads there from the matrix's own numbering.
#[derive(Debug)]
pub(super) struct System<T> {
    pub(super) a: Arc<Csr<T>>,
    pub(super) perm: Option<Permutation>,
    /// For each stored entry, its position among the entries in the matrix's own numbering, if the numbering differs
    /// and new values may come.
    pub(super) places: Option<Vec<u32>>,
}

impl<T: Real> System<T> {
    /// P A P^T. The matrix in its old numbering is dropped.
    fn renumbered(by: Reorder, a: Arc<Csr<T>>, updatable: bool) -> Result<Self> {
        let perm = match by {
            Reorder::None => return Ok(Self { a, perm: None, places: None }),
            Reorder::Bfs | Reorder::Bisection | Reorder::Rcm | Reorder::Amd if a.nrows() != a.ncols() => {
                return Err(Error::NotSquare { solver: by.as_str(), nrows: a.nrows(), ncols: a.ncols() });
            }
            Reorder::Bfs => spandrel_formats::reorder::breadth_first(&a)?,
            Reorder::Bisection => bisection(a.nrows(), |row| a.row(row).0)?,
            Reorder::Rcm => rcm(&a)?,
            Reorder::Amd => amd(&a)?,
        };
        let renumbered = perm.permute_symmetric(&a)?;
        let places = if updatable { Some(perm.places_symmetric(&a)?) } else { None };
        Ok(Self { a: Arc::new(renumbered), perm: Some(perm), places })
    }
}

#[cfg(feature = "metis")]
pub(crate) fn bisection<'a>(n: usize, row: impl Fn(usize) -> &'a [Ordinal]) -> Result<Permutation> {
    Ok(spandrel_formats::reorder::bisection_by(n, row)?)
}
#[cfg(not(feature = "metis"))]
pub(crate) fn bisection<'a>(_: usize, _: impl Fn(usize) -> &'a [Ordinal]) -> Result<Permutation> {
    Err(Error::Unsupported { why: "this build has no bisection; build with the feature metis, or use bfs".into() })
}

#[cfg(feature = "sprs")]
fn rcm<T: Real>(a: &Csr<T>) -> Result<Permutation> {
    Ok(spandrel_formats::reorder::rcm(a)?)
}
#[cfg(not(feature = "sprs"))]
fn rcm<T: Real>(_: &Csr<T>) -> Result<Permutation> {
    Err(Error::Unsupported { why: "this build has no rcm; build with the feature sprs".into() })
}

#[cfg(feature = "faer")]
fn amd<T: Real>(a: &Csr<T>) -> Result<Permutation> {
    Ok(spandrel_formats::reorder::amd(a)?)
}
#[cfg(not(feature = "faer"))]
fn amd<T: Real>(_: &Csr<T>) -> Result<Permutation> {
    Err(Error::Unsupported { why: "this build has no amd; build with the feature faer".into() })
}

/// A renumbering must divide the distance by this.
pub(crate) const NEARER: f64 = 4.0;

/// The reason for a renumbering, from the mean distances before and after it.
pub(crate) fn nearer(before: f64, after: f64) -> String {
    format!("entries come {:.0} times nearer to the diagonal", before / after.max(1.0))
}

/// The mean distance of the entries from the diagonal, in rows.
fn distance<T: Real>(a: &Csr<T>) -> f64 {
    a.distance() as f64 / a.nnz().max(1) as f64
}

/// Renumbers a matrix as the settings say. If they leave it open, a large matrix whose rows read x from everywhere is
/// renumbered, provided that this brings the entries of a row close together. Also returns the reason.
///
/// After that, products read x from a cache, incomplete factors are closer to complete ones, and the set-up takes less
/// time. On a GPU it does not pay: all products together take less time than the host needs to renumber. There
/// `solver/renumber.rs` may do it on the device.
fn in_order<T: Real>(
    settings: &Settings,
    a: &Arc<Csr<T>>,
    profile: &Profile,
    reporter: &mut Reporter,
) -> Result<(System<T>, Option<String>)> {
    /// Nanoseconds per entry of a matrix in random order: for the search, which runs on one thread, and to move the
    /// entries.
    const SEARCHED: f64 = 15.0;
    const MOVED: f64 = 60.0;
    /// Bytes that are read per entry of x if its neighbours in the cache line are not needed.
    const LINE: f64 = 64.0;
    /// The least number of products that an iteration and its preconditioner form on a matrix of this size.
    const PRODUCTS: f64 = 100.0;
    let mut by = |order: Reorder| {
        if order != Reorder::None {
            reporter.stage(Stage::Reorder, order.as_str())?;
        }
        System::renumbered(order, Arc::clone(a), settings.updatable)
    };
    if let Some(order) = settings.reorder {
        return Ok((by(order)?, None));
    }
    let n = a.nrows();
    let has_points = separates_points(settings.preconditioner, Reorder::Bfs).is_some();
    let is_large = (n * T::BYTES) as u64 > profile.memory.near;
    let units = profile.memory.units as f64;
    let pays = PRODUCTS * LINE * profile.memory.nanoseconds_per_byte / units > SEARCHED + MOVED / units;
    let iterates = settings.method != Some(Method::Direct) && !settings.least_squares;
    if !iterates || n != a.ncols() || !is_large || !pays || has_points {
        return Ok((by(Reorder::None)?, None));
    }
    let before = distance(&**a);
    if before < SCATTERED * n as f64 {
        return Ok((by(Reorder::None)?, None));
    }
    let system = by(Reorder::Bfs)?;
    let after = distance(&*system.a);
    if after * NEARER > before {
        return Ok((by(Reorder::None)?, None));
    }
    Ok((system, Some(nearer(before, after))))
}

/// A planned solve: nothing is allocated on a device yet.
#[derive(Debug)]
pub struct Planned<T: Element> {
    plan: Plan,
    settings: Settings,
    system: System<T>,
    /// The factorisation that may take over.
    rival: Option<Rival<T>>,
    /// Formats to time.
    candidates: Vec<&'static str>,
    /// An entry that is infinite or NaN, if there is one.
    not_finite: Option<Error>,
    times: Times,
    reporter: Reporter,
}

impl<T: Element> Planned<T> {
    pub(super) fn new<B: SolverBackend<T>>(
        device: &B,
        settings: Settings,
        reporter: Reporter,
        a: Arc<Csr<T>>,
    ) -> Result<Self> {
        let (mut times, mut reporter, mut lap) = (Times::default(), reporter, Lap::start());
        let settings = near_null::resolved(settings, a.nrows())?;
        reporter.stage(Stage::Analyze, "the matrix")?;
        let reference = Profile::reference();
        let profile = if settings.reproducible { &reference } else { device.profile() };
        let (system, renumbered_why) = in_order(&settings, &a, profile, &mut reporter)?;
        let mut survey = Survey::of(&*system.a);
        // CG works if the two halves of the matrix differ only by the rounding of its assembly. Formats that store only
        // one half do not.
        let is_rounded = !survey.symmetric && system.a.is_symmetric_to_rounding();
        survey.symmetric |= is_rounded;
        if let (Some(wrong), Some(perm)) = (&mut survey.not_invertible, &system.perm) {
            wrong.row = perm.perm()[wrong.row] as usize;
        }
        let mut plan = policy::plan(&settings, &system.a, &survey)?;
        survey.symmetric &= !is_rounded;
        plan.symmetric &= !is_rounded;
        if is_rounded && settings.method.is_none() {
            plan.method_why.push_str(", up to the rounding of its entries");
        }
        if let Some(why) = renumbered_why {
            (plan.reorder, plan.reorder_why) = (Reorder::Bfs, why);
        }
        // The profile of a device that is not the host has a part for factors.
        let is_apart = device.profile().factoring.is_some();
        plan.order_is_open = is_apart && settings.reorder.is_none() && system.perm.is_none() && !settings.reproducible;
        // The first one in the matrix's own numbering.
        let not_finite = survey.not_finite.and_then(|at| match &system.perm {
            None => Some(entry_at(&a, at)),
            Some(_) => Survey::of(&*a).not_finite.map(|at| entry_at(&a, at)),
        });
        drop(a);
        if let Some(known) = &settings.near_null {
            plan.near_null = Some(near_null::vectors(known, system.a.nrows(), system.perm.as_ref())?);
        }
        let prepared = plan.choose_scale(&settings, &system.a, &survey)?;
        let survey = prepared.as_ref().map_or(survey, Survey::of);
        let iterated = prepared.as_ref().unwrap_or(&*system.a);
        plan.choose_blocks(iterated)?;
        if plan.symmetric && prepared.is_none() {
            plan.choose_multigrid(&settings, &system.a, device.profile());
        }
        plan.choose_stronger(&settings, &system.a, device.profile());
        let mut rival = Rival::new(Arc::clone(&system.a), plan.means::<T>(device.profile()));
        plan.choose_direct(&settings, &system.a, &mut rival, device.profile());
        let candidates = plan.choose_format::<T, B>(&settings, (iterated, &survey), device)?;
        match plan.method {
            Method::Direct => {
                (plan.backend, plan.device) = ("cpu", host());
                plan.device_why = "a direct solve runs on the host".to_string();
            }
            Method::Cg | Method::BiCgStab | Method::Gmres => {
                (plan.backend, plan.device) = (B::NAME, device.describe());
                plan.device_why = "the caller's device".to_string();
            }
        }
        lap.add_to(&mut times.analyze);
        let rival = plan.direct_is_open.then_some(rival);
        Ok(Self { plan, settings, system, rival, candidates, not_finite, times, reporter })
    }

    /// The choices and their reasons. They may still change: a preconditioner may be impossible to make, and
    /// [`Settings::format`] may ask for a measurement. The plan of the built solver is final.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Sets the reason why an iterative solve runs on its device, for the plan.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        if self.plan.method != Method::Direct {
            self.plan.device_why = why.into();
        }
        self
    }

    /// The times so far, in seconds.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Sets everything up on the device of the plan. Blocks.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for an entry that is infinite or NaN; a preconditioner or factorisation that breaks down; a
    /// device that fails; [`Error::Interrupted`] if the watcher asks for it.
    pub fn build_on<B: SolverBackend<T>>(self, device: &B) -> Result<DeviceSolver<T, B>> {
        let Self { mut plan, settings, system, mut rival, candidates, not_finite, mut times, mut reporter } = self;
        if let Some(error) = not_finite {
            return Err(error);
        }
        for warning in &plan.warnings {
            reporter.note(warning)?;
        }
        let host = Arc::clone(&system.a);
        let System { a, perm, places } = system;
        let mut setup = Setup::new(&mut reporter, &mut times);
        if settings.format == FormatChoice::Measured && plan.method != Method::Direct {
            setup.begin(Stage::Measure, "")?;
            let prepared = plan.preparation.as_ref().map(|by| by.apply(&*a)).transpose()?;
            let iterated = prepared.map_or_else(|| Arc::clone(&a), Arc::new);
            let measured = measure::fastest::<T, B>(device, &iterated, &candidates, plan.precision)?;
            (plan.format, plan.format_why) = (measured.format, measured.why);
            setup.end_analyze();
        }
        let had_standby = plan.standby.is_some();
        let mut singular = None;
        let running = match plan.method {
            Method::Direct if plan.direct_is_open => {
                let analysed = rival.take().map_or_else(|| analysed(&a, &plan, &mut setup), Rival::take);
                setup.begin(Stage::SetUp, "the factorisation")?;
                let made = factored(&a, analysed, plan.means::<T>(device.profile()), &mut setup);
                setup.end_setup();
                match made {
                    Ok((Some(direct), found)) => {
                        singular = found;
                        Running::Direct(direct)
                    }
                    Err(error @ Error::Interrupted { .. }) => return Err(error),
                    // The iteration was the second choice.
                    without @ (Ok((None, _)) | Err(_)) => {
                        if let Some(iterative) = plan.iterative.take() {
                            plan = *iterative;
                        }
                        let method = plan.method;
                        let first = match without {
                            Ok((_, found)) => {
                                singular = found;
                                "the matrix is singular".to_string()
                            }
                            Err(error) => {
                                let first = format!("a complete factorisation failed ({error})");
                                setup.note(&format!("{first}; {method} takes its place"))?;
                                plan.direct_is_open = false;
                                first
                            }
                        };
                        let engine = prepare::engine(device, a, &mut plan, &mut setup)
                            .map_err(|error| error.after(method, first))?;
                        Running::Iterative(engine)
                    }
                }
            }
            Method::Direct => {
                let mut direct = analysed(&a, &plan, &mut setup)?;
                direct.factor_watched(&mut |phase| setup.watch(phase))?;
                setup.end_setup();
                Running::Direct(Box::new(direct))
            }
            Method::Cg | Method::BiCgStab | Method::Gmres => {
                Running::Iterative(prepare::engine(device, a, &mut plan, &mut setup)?)
            }
        };
        if had_standby && plan.standby.is_none() {
            // The limits of the first choice do not apply to its substitute.
            plan.open_as(&settings);
        }
        let truth = Truth::new(Arc::clone(&host), plan.symmetric);
        Ok(DeviceSolver {
            plan,
            settings,
            running: Some(running),
            host,
            truth,
            rival,
            found: Found::with(singular),
            perm,
            places,
            spare: Vec::new(),
            times,
            reporter,
        })
    }
}

/// A description of the host's processor.
fn host() -> String {
    #[cfg(feature = "cpu")]
    return spandrel_backend::Device::describe(&crate::Cpu::new());
    #[cfg(not(feature = "cpu"))]
    return "the host's processor".to_string();
}

/// The error for a stored entry that is infinite or NaN.
pub(super) fn entry_at<T: Real>(a: &Csr<T>, at: usize) -> Error {
    let row = a.row_ptr().partition_point(|&start| start as usize <= at) - 1;
    let found = match a.values()[at] {
        value if value.is_nan() => "NaN",
        _ if T::BYTES == 4 => "infinite in f32; use f64",
        _ => "infinite",
    };
    Error::NotFinite { row, column: a.col_idx()[at] as usize, found }
}

/// The symbolic phase of a direct solve.
fn analysed<T: Element>(a: &Arc<Csr<T>>, plan: &Plan, setup: &mut Setup<'_>) -> Result<Direct<T>> {
    setup.begin(Stage::SetUp, "the symbolic factorisation")?;
    let direct = Direct::analyze(Arc::clone(a), &plan.direct_options::<T>());
    setup.end_analyze();
    direct
}
