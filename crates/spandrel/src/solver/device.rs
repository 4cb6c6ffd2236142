//! A solver on a device that the caller owns.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::Backend;
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Ordinal, Real, first_not_finite};
use spandrel_solvers::{Direct, Error, Method, Outcome, Result, Status};

use super::attempts::{Ended, Start};
use super::build::{Lap, Reporter, Setup, Times};
use super::element::{Element, SolverBackend};
use super::engine::Engine;
use super::finish::{Answer, Found, factored};
use super::plan::{Plan, Replaced, Stage};
use super::rival::Rival;
use super::settings::Settings;
use super::solution::{Solution, Solutions};
use super::supply::{Supply, unmapped_later};
use super::truth::{Truth, norms};
use super::words::counted;

/// A matrix with this number of entries is freed on another thread.
pub(super) const UNMAPPED: usize = 1 << 20;

/// The engine or the factors that solve.
pub(super) enum Running<T: Element, B: SolverBackend<T>> {
    Iterative(Box<dyn Engine<T, B> + Send>),
    /// The factors. If A is singular, they are those of A + delta D.
    Direct(Box<Direct<T>>),
}

/// A solver on a device that the caller owns. It holds the matrix, the preconditioner and the workspaces; each call
/// takes the device.
///
/// [`crate::Solver`] owns its device and chooses it at run time.
///
/// Memory on the host: the matrix; after [`DeviceSolver::update_values`] an array of values more, for the next ones.
pub struct DeviceSolver<T: Element, B: SolverBackend<T>> {
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    /// `None` only after the set-up of a substitute has failed.
    pub(super) running: Option<Running<T, B>>,
    /// The matrix in the numbering of the solve.
    pub(super) host: Arc<Csr<T>>,
    pub(super) truth: Truth<T>,
    /// The factorisation that an iteration competes with, while it has the matrix's values.
    pub(super) rival: Option<Rival<T>>,
    /// What is known about a matrix on which an iteration has failed.
    pub(super) found: Found<T>,
    pub(super) perm: Option<Permutation>,
    pub(super) places: Option<Vec<u32>>,
    /// Memory for the next values. To get fresh pages takes longer than to copy values.
    pub(super) spare: Vec<T>,
    pub(super) times: Times,
    pub(super) reporter: Reporter,
}

impl<T: Element, B: SolverBackend<T>> std::fmt::Debug for DeviceSolver<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSolver").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<T: Element, B: SolverBackend<T>> DeviceSolver<T, B> {
    /// The choices and their reasons.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The times of the set-up, in seconds.
    pub fn setup_times(&self) -> Times {
        self.times
    }

    /// The bytes of a product with the matrix, if its values are narrow (stored in f32 without loss).
    pub fn narrow_bytes(&self, device: &B) -> Option<u64> {
        match &self.running {
            Some(Running::Iterative(engine)) => engine.narrow_bytes(device),
            Some(Running::Direct(_)) | None => None,
        }
    }

    /// Solves A x = b from x = 0. Blocks.
    ///
    /// # Errors
    /// [`Error::Size`] unless b has one element per row; [`Error::Element`] for one that is infinite or NaN; a device
    /// that fails. A solve that does not converge is not an error: see the [`Outcome`].
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
        let own_b = self.numbered(b)?;
        let own_x0 = x0.map(|x0| self.numbered(x0)).transpose()?.flatten();
        let (b, x0) = (own_b.as_deref().unwrap_or(b), own_x0.as_deref().or(x0));
        let mut answer = if matches!(self.running, Some(Running::Direct(_))) {
            self.solve_with_factors(device, b, &mut times, true)?
        } else {
            let (answer, gave_way) = self.iterate(device, b, x0, &mut times)?;
            self.finish(device, b, answer, gave_way, &mut times)?
        };
        self.conclude(b, &mut answer);
        self.solution(answer, times)
    }

    /// Runs the iteration on vectors of the host. Also returns true if it gave way to a factorisation.
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
        // A substitute was set up in between.
        times.solve -= times.setup - before.setup + times.analyze - before.analyze;
        Ok((Answer { x, ended, note: None, preconditioner: None }, gave_way))
    }

    /// Solves A x = b for vectors on the device, from the given x. Blocks.
    ///
    /// # Errors
    /// As [`DeviceSolver::solve`], but elements that are not finite are reported in the outcome.
    pub fn solve_on(&mut self, device: &B, b: &Vector<T, B>, x: &mut Vector<T, B>) -> Result<Outcome> {
        let (rows, columns) = (Backend::<T>::len(device, b), Backend::<T>::len(device, x));
        expect("b", rows, self.plan.nrows)?;
        expect("x", columns, self.plan.ncols)?;
        if self.perm.is_some() || matches!(self.running, Some(Running::Direct(_))) {
            // The host renumbers and factors.
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
        if !gave_way && !self.is_unfinished(&ended.outcome) {
            return Ok(ended.outcome);
        }
        let (b, reached) = (Backend::<T>::download(device, b)?, Backend::<T>::download(device, x)?);
        let answer = Answer { x: reached, ended, note: None, preconditioner: None };
        let mut answer = self.finish(device, &b, answer, gave_way, &mut times)?;
        self.conclude(&b, &mut answer);
        Backend::<T>::write(device, &answer.x, x)?;
        Ok(answer.ended.outcome)
    }

    /// Solves A X = B for all columns of B, stored one after the other, each from x = 0. Blocks. After an interruption,
    /// the interrupted column is the last one of the answer.
    ///
    /// # Errors
    /// [`Error::Size`] unless B has a whole number of columns; as [`DeviceSolver::solve`].
    pub fn solve_many(&mut self, device: &B, b: &[T]) -> Result<Solutions<T>> {
        let (nrows, ncols) = (self.plan.nrows, self.plan.ncols);
        let columns = b.len().checked_div(nrows).unwrap_or(0);
        expect("B", b.len(), nrows * if b.is_empty() { 0 } else { columns.max(1) })?;
        if let (Some(Running::Direct(direct)), None, None) = (&self.running, &self.perm, &self.found.singular) {
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
            let is_interrupted = solution.outcome.status == Status::Interrupted;
            outcomes.push(solution.outcome);
            if is_interrupted {
                break;
            }
        }
        Ok(Solutions { x, outcomes })
    }

    /// Returns M^-1 r for the solver's preconditioner, in the matrix's own numbering. A solver with factors solves A z
    /// = r. Blocks.
    ///
    /// With this, a solver can precondition another library's method.
    ///
    /// # Errors
    /// [`Error::Size`] unless r has one element per row; a device that fails.
    pub fn precondition(&self, device: &B, r: &[T]) -> Result<Vec<T>> {
        expect("r", r.len(), self.plan.nrows)?;
        let own_r = self.numbered(r)?;
        let r = own_r.as_deref().unwrap_or(r);
        let z = match &self.running {
            Some(Running::Iterative(engine)) => {
                let (r, mut z) = (Backend::<T>::upload(device, r)?, Backend::<T>::zeros(device, self.plan.ncols)?);
                engine.precondition(device, &r, &mut z)?;
                Backend::<T>::download(device, &z)?
            }
            Some(Running::Direct(direct)) => {
                let mut z = vec![T::zero(); self.plan.ncols];
                // A preconditioner does not report how accurately it solves.
                drop(direct.solve(r, &mut z)?);
                z
            }
            None => return Err(lost()),
        };
        restored(self.perm.as_ref(), z)
    }

    /// Gives the matrix new values on its pattern: one per stored entry, in the order of the matrix that the solver was
    /// built with. The plan stays, and so does the analysis of the preconditioner. Blocks.
    ///
    /// # Errors
    /// [`Error::Pattern`] for another number of values; [`Error::NotFinite`] for one that is infinite or NaN;
    /// [`Error::Unsupported`] if [`Settings::updatable`] is off; a factorisation that breaks down. After an error the
    /// old values stay.
    pub fn update_values(&mut self, device: &B, values: &[T]) -> Result<()> {
        if !self.settings.updatable {
            return Err(Error::Unsupported {
                why: "this solver was built for one set of values; build it as updatable".into(),
            });
        }
        let host = &self.host;
        if values.len() != host.nnz() {
            return Err(Error::Pattern { found: values.len(), expected: host.nnz() });
        }
        let mut own = std::mem::take(&mut self.spare);
        let not_finite = copied(values, self.places.as_deref(), &mut own);
        let mut next = host.with_values(own)?;
        if let Some(at) = not_finite {
            return Err(super::build::entry_at(&next, at));
        }
        next.share_pattern();
        let next = Arc::new(next);
        let shift = match &mut self.running {
            Some(Running::Iterative(engine)) => {
                let shift = engine.renew(device, &Supply::new(Arc::clone(&next)))?;
                self.found = Found::with(None);
                shift
            }
            Some(Running::Direct(direct)) => {
                if self.plan.direct_is_open {
                    // The new values may be singular where the old ones were not, or vice versa.
                    let mut times = Times::default();
                    let mut setup = Setup::new(&mut self.reporter, &mut times);
                    let means = self.plan.means::<T>(device.profile());
                    let analysed = Direct::analyze(Arc::clone(&next), &means.options);
                    let (made, singular) = factored(&next, analysed, means, &mut setup)?;
                    let Some(made) = made else {
                        let method = direct.method().as_str();
                        let why = singular.map_or_else(String::new, |singular| singular.to_string());
                        return Err(Error::Factor { method, why });
                    };
                    (*direct, self.found) = (made, Found::with(singular));
                } else {
                    direct.refactor(next.values())?;
                    self.found = Found::with(None);
                }
                0.0
            }
            None => return Err(lost()),
        };
        self.took_values(shift, next);
        Ok(())
    }

    /// As [`DeviceSolver::update_values`], for values on the device. They stay there if the matrix is stored in CSR and
    /// the preconditioner takes values from the device; otherwise they go through the host. Blocks.
    ///
    /// # Errors
    /// As there.
    pub fn update_values_from(&mut self, device: &B, values: &Vector<T, B>) -> Result<()> {
        if let (Some(Running::Iterative(engine)), None, true) =
            (&mut self.running, &self.places, self.settings.updatable)
        {
            expect("the list of values", Backend::<T>::len(device, values), self.host.nnz())?;
            // A substitute preconditioner would need the host's values.
            let stays = self.plan.standby.is_none() && self.perm.is_none() && !self.plan.direct_is_open;
            if let Some(renewed) = stays.then(|| engine.renew_from(device, values)).flatten() {
                let shift = renewed?;
                if let Some(factor) = &mut self.plan.factor {
                    factor.shift = shift;
                }
                (self.rival, self.found) = (None, Found::with(None));
                let [norm] = norms::<T, B, 1>(device, [values])?;
                self.truth.is_on_device(norm);
                return Ok(());
            }
        }
        self.update_values(device, &Backend::<T>::download(device, values)?)
    }

    fn took_values(&mut self, shift: f64, next: Arc<Csr<T>>) {
        if let Some(factor) = &mut self.plan.factor {
            factor.shift = shift;
        }
        let truth = Truth::new(Arc::clone(&next), false);
        let host = std::mem::replace(&mut self.host, next);
        drop(std::mem::replace(&mut self.truth, truth));
        match self.rival.take().and_then(Rival::into_analysis) {
            Some(analysis) if self.host.nnz() >= UNMAPPED => unmapped_later(Box::new((host, analysis))),
            Some(_) => {}
            None => self.spare = Arc::try_unwrap(host).map(Csr::into_values).unwrap_or_default(),
        }
    }

    fn solution(&self, answer: Answer<T>, times: Times) -> Result<Solution<T>> {
        let Answer { x, mut ended, mut note, preconditioner } = answer;
        if let Some(at) = first_not_finite(&x)
            && !matches!(ended.outcome.status, Status::Inconsistent | Status::Singular)
        {
            (ended.outcome.status, ended.outcome.true_residual) = (Status::NotFinite, f64::NAN);
            let at = self.perm.as_ref().map_or(at, |perm| perm.perm()[at] as usize);
            let text = format!("x is not finite in row {}", at + 1);
            note = Some(note.map_or_else(|| text.clone(), |note| format!("{note}; {text}")));
        }
        let x = restored(self.perm.as_ref(), x)?;
        let note = match ended.method {
            Method::Direct => note,
            Method::Cg | Method::BiCgStab | Method::Gmres => {
                let notes: Vec<String> = [self.note(&ended), note].into_iter().flatten().collect();
                (!notes.is_empty()).then(|| notes.join("; "))
            }
        };
        let Ended { outcome, method, attempts, .. } = ended;
        let preconditioner = preconditioner.unwrap_or(self.plan.preconditioner);
        Ok(Solution { x, outcome, method, preconditioner, attempts, note, times })
    }

    /// A note on what took over, and on what stopped the method.
    fn note(&self, ended: &Ended) -> Option<String> {
        let Ended { outcome, method, attempts, .. } = ended;
        let replaced = self.plan.replaced.as_ref().map(|Replaced { from, to, why }| {
            let tried = attempts.iter().any(|attempt| attempt.preconditioner == *from);
            let what = if tried { "was given up" } else { "failed" };
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

    /// A vector, renumbered for the solve; [`None`] if the solve has the numbering of the matrix.
    fn numbered(&self, v: &[T]) -> Result<Option<Vec<T>>> {
        Ok(self.perm.as_ref().map(|perm| perm.apply(v)).transpose()?)
    }
}

/// Copies values, or those at `places`, over those of `to`. Returns the place there of the first that is not finite.
fn copied<T: Real>(values: &[T], places: Option<&[Ordinal]>, to: &mut Vec<T>) -> Option<usize> {
    /// Values that stay in the caches until they are checked.
    const PART: usize = 1 << 14;
    if to.len() != values.len() {
        // Fresh memory.
        match places {
            Some(places) => places.par_iter().map(|&place| values[place as usize]).collect_into_vec(to),
            None => values.par_iter().copied().collect_into_vec(to),
        }
        return first_not_finite(to);
    }
    to.par_chunks_mut(PART).enumerate().find_map_first(|(part, to)| {
        let range = part * PART..part * PART + to.len();
        match places {
            Some(places) => to.iter_mut().zip(&places[range]).for_each(|(to, &place)| *to = values[place as usize]),
            None => to.copy_from_slice(&values[range]),
        }
        first_not_finite(to).map(|at| part * PART + at)
    })
}

pub(super) type Vector<T, B> = <B as Backend<T>>::Vector;

/// A vector in the matrix's own numbering.
pub(crate) fn restored<T: Real>(perm: Option<&Permutation>, x: Vec<T>) -> Result<Vec<T>> {
    let Some(perm) = perm else { return Ok(x) };
    let mut restored = vec![T::zero(); x.len()];
    perm.apply_inverse_to(&x, &mut restored)?;
    Ok(restored)
}

fn expect(what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let remedy = match what {
        "b" | "B" | "r" => "a right-hand side needs one element per row of the matrix",
        _ => "x needs one element per column of the matrix",
    };
    Err(Error::Size { solver: "solver", what, found, expected, unit: "elements", remedy })
}

/// Checks the number of elements, and that all are finite.
fn check<T: Real>(name: &'static str, v: &[T], expected: usize) -> Result<()> {
    expect(name, v.len(), expected)?;
    match first_not_finite(v) {
        Some(at) => Err(Error::Element { name, at, found: if v[at].is_nan() { "NaN" } else { "infinite" } }),
        None => Ok(()),
    }
}

/// The error for a solver whose substitute preconditioner could not be made.
pub(super) fn lost() -> Error {
    Error::Unsupported { why: "the set-up of a substitute failed; build a new solver".into() }
}
