//! A solver on a device of one's own.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use spandrel_backend::Backend;
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{Direct, Error, Method, Outcome, Progress, Result, Status};

use super::build::{Lap, Reporter, Setup, Times};
use super::element::{Element, SolverBackend};
use super::engine::{Call, Engine};
use super::finish::{Answer, Singular, factored};
use super::plan::{Plan, Replaced, Stage};
use super::prepare;
use super::rival::{Judge, Pace, Rival};
use super::settings::Settings;
use super::solution::{Attempt, Solution, Solutions};
use super::words::counted;

/// What solves.
pub(super) enum Running<T: Element, B: SolverBackend<T>> {
    Iterative(Box<dyn Engine<T, B> + Send>),
    /// The factors; of A + delta D if A is singular.
    Direct(Box<Direct<T>>),
}

/// The end of the attempts at one system.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) method: Method,
    pub(super) attempts: Vec<Attempt>,
}

/// Where every attempt begins.
enum Start<V> {
    Zero,
    /// From this x.
    At(V),
    /// There is one attempt alone.
    Once,
}

/// A solver on a device of one's own. It holds the matrix, the preconditioner and the workspaces; each call takes the device.
///
/// [`crate::Solver`] is the same with a device of its own, chosen at run time.
pub struct DeviceSolver<T: Element, B: SolverBackend<T>> {
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    /// `None` only after the set-up of what takes over has failed.
    pub(super) running: Option<Running<T, B>>,
    /// In the numbering of the solve, while new values or another preconditioner may come.
    pub(super) host: Option<Arc<Csr<T>>>,
    /// The factorisation that an iteration competes with, while it has the matrix's values.
    pub(super) rival: Option<Rival<T>>,
    /// What is known of a singular matrix.
    pub(super) singular: Option<Singular>,
    pub(super) perm: Option<Permutation>,
    pub(super) places: Option<Vec<u32>>,
    pub(super) times: Times,
    pub(super) reporter: Reporter,
}

impl<T: Element, B: SolverBackend<T>> std::fmt::Debug for DeviceSolver<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSolver").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// What the policy goes on with after a method that ended so.
fn successor(method: Method, status: Status) -> Option<Method> {
    match (method, status) {
        (Method::Cg, Status::IndefiniteMatrix | Status::IndefinitePreconditioner) => Some(Method::BiCgStab),
        (Method::BiCgStab, Status::Breakdown | Status::Diverged) => Some(Method::Gmres),
        _ => None,
    }
}

/// Whether another preconditioner may do what this one did not.
fn came_to_nothing(plan: &Plan, outcome: &Outcome) -> bool {
    use Status as S;
    let is_stuck = matches!(
        outcome.status,
        S::IndefiniteMatrix | S::IndefinitePreconditioner | S::Breakdown | S::Diverged | S::ZeroPivot
    );
    // A solve that stands still sooner is held up by rounding, which no other preconditioner changes.
    let stood_still = plan.stagnation.is_some_and(|limit| outcome.iterations >= limit);
    is_stuck || (outcome.status == S::Stagnated && stood_still)
}

impl<T: Element, B: SolverBackend<T>> DeviceSolver<T, B> {
    /// What runs, and why.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Seconds of the set-up.
    pub fn setup_times(&self) -> Times {
        self.times
    }

    /// Bytes of a product with the matrix, if its values are stored in f32 because that holds every one of them.
    pub fn narrow_bytes(&self, device: &B) -> Option<u64> {
        match &self.running {
            Some(Running::Iterative(engine)) => engine.narrow_bytes(device),
            Some(Running::Direct(_)) | None => None,
        }
    }

    /// Solves A x = b from x = 0. Blocks.
    ///
    /// # Errors
    /// [`Error::Size`] unless b has one element per row; [`Error::Element`] for one that is infinite or NaN; a device that fails. Not
    /// converging is no error: the [`Outcome`] tells.
    pub fn solve(&mut self, device: &B, b: &[T]) -> Result<Solution<T>> {
        self.solve_with(device, b, None)
    }

    /// Solves A x = b from x = `x0`. A direct solve does not read it. Blocks.
    ///
    /// # Errors
    /// As [`DeviceSolver::solve`], also for x0.
    pub fn solve_from(&mut self, device: &B, b: &[T], x0: &[T]) -> Result<Solution<T>> {
        self.solve_with(device, b, Some(x0))
    }

    fn solve_with(&mut self, device: &B, b: &[T], x0: Option<&[T]>) -> Result<Solution<T>> {
        let is_read = self.plan.method != Method::Direct;
        let x0 = x0.filter(|_| is_read || self.plan.direct_is_open);
        check("b", b, self.plan.nrows)?;
        if let Some(x0) = x0 {
            check("x0", x0, self.plan.ncols)?;
        }
        let x0 = x0.filter(|_| is_read);
        let mut times = Times::default();
        let b = self.numbered(b)?.into_owned();
        let x0 = x0.map(|x0| self.numbered(x0).map(Cow::into_owned)).transpose()?;
        let mut answer = if matches!(self.running, Some(Running::Direct(_))) {
            self.solve_with_factors(device, &b, &mut times, true)?
        } else {
            let (mut answer, gave_way) = self.iterate(device, &b, x0.as_deref(), &mut times)?;
            self.judge_by_rounding(&b, &mut answer);
            let answer = if gave_way || self.may_factor(&answer.ended.outcome, gave_way) {
                self.factor_after(device, &b, answer, gave_way, &mut times)?
            } else {
                answer
            };
            self.iterate_stronger(device, &b, answer, &mut times)?
        };
        self.conclude(&b, &mut answer);
        self.solution(answer, times)
    }

    /// The iteration on vectors of the host, and whether it gave way to a factorisation.
    pub(super) fn iterate(
        &mut self,
        device: &B,
        b: &[T],
        x0: Option<&[T]>,
        times: &mut Times,
    ) -> Result<(Answer<T>, bool)> {
        let mut lap = Lap::start();
        let before = *times;
        let b = Backend::<T>::upload(device, b)?;
        let (mut x, start) = match x0 {
            Some(x0) => {
                let start = if self.is_open() { Start::At(Backend::<T>::upload(device, x0)?) } else { Start::Once };
                (Backend::<T>::upload(device, x0)?, start)
            }
            None => (Backend::<T>::zeros(device, self.plan.ncols)?, Start::Zero),
        };
        device.synchronize()?;
        lap.add_to(&mut times.load);
        let (ended, gave_way) = self.attempts(device, &b, &mut x, start, times)?;
        let x = Backend::<T>::download(device, &x)?;
        lap.add_to(&mut times.solve);
        // What took over was set up meanwhile.
        times.solve -= times.setup - before.setup + times.analyze - before.analyze;
        Ok((Answer { x, ended, note: None, preconditioner: None }, gave_way))
    }

    /// Solves A x = b for vectors on the device, from the x given. Blocks.
    ///
    /// # Errors
    /// As [`DeviceSolver::solve`]; elements that are not finite are told by the outcome.
    pub fn solve_on(&mut self, device: &B, b: &Vector<T, B>, x: &mut Vector<T, B>) -> Result<Outcome> {
        let (rows, columns) = (Backend::<T>::len(device, b), Backend::<T>::len(device, x));
        expect("b", rows, self.plan.nrows)?;
        expect("x", columns, self.plan.ncols)?;
        if self.perm.is_some() || matches!(self.running, Some(Running::Direct(_))) {
            // Renumbering and factors are the host's.
            let (b, x0) = (Backend::<T>::download(device, b)?, Backend::<T>::download(device, x)?);
            let solution = self.solve_with(device, &b, Some(&x0))?;
            Backend::<T>::write(device, &solution.x, x)?;
            return Ok(solution.outcome);
        }
        let start = if self.is_open() {
            let mut copy = Backend::<T>::zeros(device, columns)?;
            Backend::<T>::copy(device, None, x, &mut copy)?;
            Start::At(copy)
        } else {
            Start::Once
        };
        let mut times = Times::default();
        let (ended, gave_way) = self.attempts(device, b, x, start, &mut times)?;
        if !gave_way && !self.may_factor(&ended.outcome, gave_way) {
            return Ok(ended.outcome);
        }
        let (b, reached) = (Backend::<T>::download(device, b)?, Backend::<T>::download(device, x)?);
        let answer = Answer { x: reached, ended, note: None, preconditioner: None };
        let answer = self.factor_after(device, &b, answer, gave_way, &mut times)?;
        let mut answer = self.iterate_stronger(device, &b, answer, &mut times)?;
        self.conclude(&b, &mut answer);
        Backend::<T>::write(device, &answer.x, x)?;
        Ok(answer.ended.outcome)
    }

    /// Solves A X = B for all columns of B, which lie one after the other, each from x = 0. Blocks.
    ///
    /// # Errors
    /// [`Error::Size`] unless B has a whole number of columns; as [`DeviceSolver::solve`].
    pub fn solve_many(&mut self, device: &B, b: &[T]) -> Result<Solutions<T>> {
        let (nrows, ncols) = (self.plan.nrows, self.plan.ncols);
        let columns = b.len().checked_div(nrows).unwrap_or(0);
        expect("B", b.len(), nrows * if b.is_empty() { 0 } else { columns.max(1) })?;
        if let (Some(Running::Direct(direct)), None, None) = (&self.running, &self.perm, &self.singular) {
            check("B", b, b.len())?;
            self.reporter.stage(Stage::Solve, "with the factors")?;
            let mut x = vec![T::zero(); ncols * columns];
            let outcomes = direct.solve_many(columns, b, &mut x)?;
            let is_final = |outcome: &Outcome| !self.plan.direct_is_open || outcome.status.is_converged();
            if outcomes.iter().all(is_final) {
                return Ok(Solutions { x, outcomes });
            }
        }
        let (mut x, mut outcomes) = (Vec::with_capacity(ncols * columns), Vec::with_capacity(columns));
        for b in b.chunks_exact(nrows.max(1)) {
            let solution = self.solve_with(device, b, None)?;
            x.extend_from_slice(&solution.x);
            outcomes.push(solution.outcome);
        }
        Ok(Solutions { x, outcomes })
    }

    /// New values of the matrix on its pattern: one for each stored entry, in the order of the matrix that the solver was built with. The
    /// plan stays, and so does the analysis of the preconditioner. Blocks.
    ///
    /// # Errors
    /// [`Error::Pattern`] for another number of values; [`Error::NotFinite`] for one that is infinite or NaN; [`Error::Unsupported`] if
    /// the solver was built with [`Settings::updatable`] off; what the factorisation breaks down at. After an error the old values stay.
    pub fn update_values(&mut self, device: &B, values: &[T]) -> Result<()> {
        let Some(host) = self.host.as_ref().filter(|_| self.settings.updatable) else {
            return Err(Error::Unsupported {
                why: "this solver was built for one set of values; build it as updatable".into(),
            });
        };
        if values.len() != host.nnz() {
            return Err(Error::Pattern { found: values.len(), expected: host.nnz() });
        }
        let mut next = Csr::clone(host);
        match &self.places {
            Some(places) => {
                let new = places.iter().map(|&place| values[place as usize]);
                next.values_mut().iter_mut().zip(new).for_each(|(old, new)| *old = new);
            }
            None => next.values_mut().copy_from_slice(values),
        }
        if let Some(at) = next.values().iter().position(|v| !v.is_finite()) {
            return Err(super::build::entry_at(&next, at));
        }
        let next = Arc::new(next);
        let shift = match &mut self.running {
            Some(Running::Iterative(engine)) => engine.renew(device, &next)?,
            Some(Running::Direct(direct)) => {
                if self.plan.direct_is_open {
                    // The new values may be singular where the old were not, or the other way round.
                    let mut times = Times::default();
                    let mut setup = Setup::new(&mut self.reporter, &mut times);
                    let options = self.plan.direct_options::<T>();
                    let analysed = Direct::analyze(Arc::clone(&next), &options);
                    let (made, singular) = factored(&next, analysed, (&options, device.profile()), &mut setup)?;
                    let Some(made) = made else {
                        let method = direct.method().as_str();
                        let why = singular.map_or_else(String::new, |singular| singular.to_string());
                        return Err(Error::Factor { method, why });
                    };
                    (*direct, self.singular) = (made, singular);
                } else {
                    direct.refactor(next.values())?;
                }
                0.0
            }
            None => return Err(lost()),
        };
        self.took_values(shift, next);
        Ok(())
    }

    /// As [`DeviceSolver::update_values`] for values on the device. They stay there if the matrix is stored in CSR and the preconditioner
    /// takes values from the device; else they go through the host. Blocks.
    ///
    /// # Errors
    /// As there.
    pub fn update_values_from(&mut self, device: &B, values: &Vector<T, B>) -> Result<()> {
        if let (Some(Running::Iterative(engine)), None, Some(host)) = (&mut self.running, &self.places, &self.host) {
            expect("the list of values", Backend::<T>::len(device, values), host.nnz())?;
            // Another preconditioner would be made of the host's values.
            let stays = self.plan.standby.is_none() && self.perm.is_none() && !self.plan.direct_is_open;
            if let Some(renewed) = stays.then(|| engine.renew_from(device, values)).flatten() {
                let shift = renewed?;
                if let Some(factor) = &mut self.plan.factor {
                    factor.shift = shift;
                }
                self.rival = None;
                return Ok(());
            }
        }
        self.update_values(device, &Backend::<T>::download(device, values)?)
    }

    fn took_values(&mut self, shift: f64, next: Arc<Csr<T>>) {
        if let Some(factor) = &mut self.plan.factor {
            factor.shift = shift;
        }
        self.host = Some(next);
        self.rival = None;
    }

    /// Whether another method or preconditioner may take over, which then begins where the first began.
    fn is_open(&self) -> bool {
        self.plan.method_is_open || self.plan.standby.is_some()
    }

    /// The plan's method, and what takes over from it.
    fn attempts(
        &mut self,
        device: &B,
        b: &Vector<T, B>,
        x: &mut Vector<T, B>,
        start: Start<Vector<T, B>>,
        times: &mut Times,
    ) -> Result<(Ended, bool)> {
        let begun = Instant::now();
        let (mut first, gave_way) = self.methods(device, b, x, &start)?;
        let came_to_nothing = came_to_nothing(&self.plan, &first.outcome);
        let (Some(host), true) = (&self.host, came_to_nothing && !gave_way) else { return Ok((first, gave_way)) };
        let Some(mut next) = self.plan.take_standby(&self.settings) else { return Ok((first, false)) };
        let host = Arc::clone(host);
        let after = counted(first.outcome.iterations, "iteration");
        let why = format!("{} ended as {} after {after}", first.method, first.outcome.status);
        let (from, to) = (self.plan.preconditioner, next.preconditioner);
        self.reporter.note(&format!("{from} came to nothing ({why}), so {to} takes its place"))?;
        first.attempts.push(Attempt {
            method: first.method,
            preconditioner: from,
            status: first.outcome.status,
            iterations: first.outcome.iterations,
            true_residual: first.outcome.true_residual,
            seconds: begun.elapsed().as_secs_f64(),
        });
        // The old one goes first: the two need not fit beside each other.
        self.running = None;
        let mut setup = Setup::new(&mut self.reporter, times);
        let engine = prepare::engine(device, host, &mut next, &mut setup)?;
        next.preconditioner_why = format!("{from} came to nothing");
        next.replaced = Some(match next.replaced.take() {
            Some(again) => Replaced { from, to: again.to, why: format!("{why}; {to} failed ({})", again.why) },
            None => Replaced { from, to, why },
        });
        (self.running, self.plan) = (Some(Running::Iterative(engine)), next);
        begin::<T, B>(device, x, &start)?;
        let (second, gave_way) = self.methods(device, b, x, &start)?;
        first.attempts.extend(second.attempts);
        Ok((Ended { attempts: first.attempts, ..second }, gave_way))
    }

    /// The plan's method, and once the next after one that does not suit the matrix, if the policy chose it.
    fn methods(
        &mut self,
        device: &B,
        b: &Vector<T, B>,
        x: &mut Vector<T, B>,
        start: &Start<Vector<T, B>>,
    ) -> Result<(Ended, bool)> {
        let method = self.plan.method;
        let begun = Instant::now();
        let (outcome, gave_way) = self.run(device, method, b, x)?;
        // A factorisation, where there can be one, is surer than another method.
        let next = successor(method, outcome.status).filter(|_| self.plan.method_is_open && !gave_way);
        let next = next.filter(|next| !self.factors_are_sooner(device, *next));
        let Some(next) = next else { return Ok((Ended { outcome, method, attempts: Vec::new() }, gave_way)) };
        let after = counted(outcome.iterations, "iteration");
        self.reporter.note(&format!("{method} ended as {} after {after}, so {next} takes over", outcome.status))?;
        let attempt = Attempt {
            method,
            preconditioner: self.plan.preconditioner,
            status: outcome.status,
            iterations: outcome.iterations,
            true_residual: outcome.true_residual,
            seconds: begun.elapsed().as_secs_f64(),
        };
        begin::<T, B>(device, x, start)?;
        let (outcome, gave_way) = self.run(device, next, b, x)?;
        Ok((Ended { outcome, method: next, attempts: vec![attempt] }, gave_way))
    }

    /// Whether a factorisation may take over, and is expected to take less time than a few looks at another method.
    fn factors_are_sooner(&mut self, device: &B, method: Method) -> bool {
        const LOOKS: f64 = 100.0;
        let (true, Some(host)) = (self.plan.direct_is_open, self.host.clone()) else { return false };
        let mut rival = self.rival.take().unwrap_or_else(|| self.new_rival(&host, device));
        let pace = Pace::of(&*host, (method, self.plan.preconditioner), device.profile());
        let cost = rival.cost();
        self.rival = Some(rival);
        cost < LOOKS * pace.iteration
    }

    pub(super) fn new_rival(&self, host: &Arc<Csr<T>>, device: &B) -> Rival<T> {
        Rival::new(Arc::clone(host), self.plan.direct_options::<T>(), device.profile())
    }

    /// Runs a method, and says whether it gave way to a factorisation on the way.
    fn run(&mut self, device: &B, method: Method, b: &Vector<T, B>, x: &mut Vector<T, B>) -> Result<(Outcome, bool)> {
        let mut rival = match (&self.host, self.plan.direct_is_open) {
            (Some(host), true) => Some(self.rival.take().unwrap_or_else(|| self.new_rival(host, device))),
            _ => None,
        };
        let mut judge = self.host.as_ref().zip(rival.as_ref()).map(|(host, rival)| {
            let pace = Pace::of(&**host, (method, self.plan.preconditioner), device.profile());
            Judge::new(pace, rival.analysis(self.plan.symmetric))
        });
        // A limit that was named is kept.
        let worth = judge.as_ref().filter(|_| self.settings.max_iterations.is_none()).map(Judge::worth_a_try);
        let Self { plan, running, reporter, .. } = self;
        let Some(Running::Iterative(engine)) = running else { return Err(lost()) };
        reporter.stage(Stage::Solve, method.as_str())?;
        let mut gave_way = false;
        let mut watcher = |progress: Progress| -> ControlFlow<()> {
            reporter.iteration(method, progress)?;
            if let (Some(judge), Some(rival)) = (&mut judge, &mut rival)
                && judge.gives_way(progress, plan.check_every, || rival.cost())
            {
                gave_way = true;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let mut options = plan.options();
        if let (Some(most), Some(limit)) = (worth, &mut options.max_iters) {
            *limit = most.min(*limit);
        }
        let call = Call { method, options, restart: plan.restart, watcher: &mut watcher };
        let outcome = engine.run(device, call, b, x);
        self.rival = rival;
        let outcome = outcome?;
        // It may have converged at that very look.
        let gave_way = gave_way && outcome.status == Status::Interrupted;
        Ok((outcome, gave_way))
    }

    fn solution(&self, answer: Answer<T>, times: Times) -> Result<Solution<T>> {
        let Answer { x, mut ended, mut note, preconditioner } = answer;
        if let Some(at) = x.iter().position(|v| !v.is_finite())
            && !matches!(ended.outcome.status, Status::Inconsistent | Status::Singular)
        {
            (ended.outcome.status, ended.outcome.true_residual) = (Status::NotFinite, f64::NAN);
            let at = self.perm.as_ref().map_or(at, |perm| perm.perm()[at] as usize);
            let text = format!("x is not finite in row {}", at + 1);
            note = Some(note.map_or_else(|| text.clone(), |note| format!("{note}; {text}")));
        }
        let x = match &self.perm {
            Some(perm) => {
                let mut restored = vec![T::zero(); x.len()];
                perm.apply_inverse_to(&x, &mut restored)?;
                restored
            }
            None => x,
        };
        let note = match ended.method {
            Method::Direct => note,
            Method::Cg | Method::BiCgStab | Method::Gmres => {
                let notes: Vec<String> = [self.note(&ended), note].into_iter().flatten().collect();
                (!notes.is_empty()).then(|| notes.join("; "))
            }
        };
        let Ended { outcome, method, attempts } = ended;
        let preconditioner = preconditioner.unwrap_or(self.plan.preconditioner);
        Ok(Solution { x, outcome, method, preconditioner, attempts, note, times })
    }

    /// What took over from what, and what stopped the method.
    fn note(&self, ended: &Ended) -> Option<String> {
        let Ended { outcome, method, attempts } = ended;
        let replaced = self.plan.replaced.as_ref().map(|Replaced { from, to, why }| {
            let tried = attempts.iter().any(|attempt| attempt.preconditioner == *from);
            let what = if tried { "came to nothing" } else { "failed" };
            format!("{from} {what} ({why}), so {to} took its place")
        });
        let last = attempts.last().filter(|last| last.method != *method);
        let switched = last.map(|last| {
            let after = counted(last.iterations, "iteration");
            format!("{} ended as {} after {after}, so {method} took over", last.method, last.status)
        });
        let stopped = outcome.breakdown.filter(|_| !outcome.status.is_converged());
        let stopped = match stopped {
            Some((quantity, at)) => Some(format!("{} stopped the method in iteration {at}", quantity.symbol())),
            None => outcome.note.map(str::to_string),
        };
        let notes: Vec<String> = [replaced, switched, stopped].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// A vector in the numbering of the solve.
    fn numbered<'v>(&self, v: &'v [T]) -> Result<Cow<'v, [T]>> {
        Ok(match &self.perm {
            Some(perm) => Cow::Owned(perm.apply(v)?),
            None => Cow::Borrowed(v),
        })
    }
}

type Vector<T, B> = <B as Backend<T>>::Vector;

/// x as every attempt finds it.
fn begin<T: Real, B: Backend<T>>(device: &B, x: &mut B::Vector, start: &Start<B::Vector>) -> Result<()> {
    match start {
        Start::Zero => device.fill(None, T::zero(), x)?,
        Start::At(x0) => device.copy(None, x0, x)?,
        Start::Once => {}
    }
    Ok(())
}

fn expect(what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let remedy = match what {
        "b" | "B" => "a right-hand side needs one element per row of the matrix",
        _ => "x needs one element per column of the matrix",
    };
    Err(Error::Size { solver: "solver", what, found, expected, unit: "elements", remedy })
}

/// The right number of elements, all finite.
fn check<T: Real>(name: &'static str, v: &[T], expected: usize) -> Result<()> {
    expect(name, v.len(), expected)?;
    match v.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(Error::Element { name, at, found: if v[at].is_nan() { "NaN" } else { "infinite" } }),
        None => Ok(()),
    }
}

/// The error of a solver whose second preconditioner could not be made.
pub(super) fn lost() -> Error {
    Error::Unsupported { why: "the set-up of what took over failed; build the solver anew".into() }
}
