//! Trials of the triangular solve with every plan: the bound, the declared order, both systems, in place, several
//! right-hand sides, gates, new values, numbers that are not finite. `sptrsv_repeats` has the repeated solves, and
//! `sptrsv_refused` the refusals.
//!
//! They are written over [`Solves`], so that a trial is compiled once per element type and not once per plan and
//! backend.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use spandrel_backend::{Device, Order, Quantity, Recorded, Result, Sptrsv, Step, Tri, Watch};
use spandrel_formats::Real;
use spandrel_sptrsv::{Error, Plan, System, Systems, Triangular};

use super::sptrsv_refused as refused;
use super::sptrsv_repeats as repeats;
use crate::reference::difference;
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle::{COLUMNS, Case, Problem};

/// Both systems of a triangle.
pub(crate) const SYSTEMS: [System; 2] = [System::Plain, System::Transposed];

/// One solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a, T> {
    pub(crate) system: System,
    pub(crate) b: &'a [T],
    /// Whether x holds b at the start.
    pub(crate) in_place: bool,
    /// The old contents of x if it does not hold b; NaN if absent.
    pub(crate) before: Option<&'a [T]>,
    pub(crate) gate: GateState,
}

impl<'a, T> Ask<'a, T> {
    /// A solve with a separate x and no gate.
    pub(crate) fn new(system: System, b: &'a [T]) -> Self {
        Self { system, b, in_place: false, before: None, gate: GateState::None }
    }
}

/// The inputs and questions for the replays of a graph: see [`Solves::replay`].
pub(crate) struct Replays<'a, T> {
    pub(crate) count: usize,
    /// The right-hand side of a run.
    pub(crate) input: &'a dyn Fn(usize) -> Vec<T>,
    /// Whether the gate is closed in a run.
    pub(crate) closed: &'a dyn Fn(usize) -> bool,
    /// New values of the plan before a run.
    pub(crate) update: &'a dyn Fn(usize) -> Option<Vec<T>>,
    /// Looks at x after a run.
    pub(crate) look: &'a mut dyn FnMut(usize, &[T]) -> Verdict,
}

/// A plan on a device.
pub(crate) trait Solves<T> {
    fn order(&self, system: System) -> Order;
    /// x, with as many columns as b.
    fn solve(&self, ask: &Ask<'_, T>) -> Result<Vec<T>>;
    fn update(&self, values: &[T]) -> Result<()>;
    /// The same with a vector on the device.
    fn update_from(&self, values: &[T]) -> Result<()>;
    /// Replays one graph: x <- T^-1 b from a separate b, or in place from a copy of it.
    fn replay(&self, system: System, in_place: bool, replays: Replays<'_, T>) -> Verdict;
    /// Solves with vectors of these lengths. The sizes are checked by the wrapper (`true`) or by the backend. Returns
    /// the refusal, and x afterwards.
    fn mismatched(&self, checked: bool, ask: &Ask<'_, T>, k: usize, x: &[T]) -> (Result<()>, Result<Vec<T>>);
}

/// [`Solves`] of one plan on one backend. Vectors are kept between solves.
struct OnDevice<'b, B: Sptrsv<P>, P: Plan> {
    be: &'b B,
    tri: RefCell<Tri<B, P>>,
    vectors: RefCell<Option<(B::Vector, B::Vector)>>,
}

impl<B: Sptrsv<P>, P: Plan> OnDevice<'_, B, P> {
    fn vectors(&self, len: usize) -> Result<(B::Vector, B::Vector)> {
        match self.vectors.take() {
            Some(kept) if self.be.len(&kept.0) == len => Ok(kept),
            _ => Ok((self.be.zeros(len)?, self.be.zeros(len)?)),
        }
    }
}

impl<B: Sptrsv<P>, P: Plan> Solves<P::Value> for OnDevice<'_, B, P> {
    fn order(&self, system: System) -> Order {
        self.be.sptrsv_order(self.tri.borrow().resident(), system)
    }

    fn solve(&self, ask: &Ask<'_, P::Value>) -> Result<Vec<P::Value>> {
        let (be, tri) = (self.be, self.tri.borrow());
        let (mut b, mut x) = self.vectors(ask.b.len())?;
        let n = tri.nrows();
        let k = ask.b.len().checked_div(n).unwrap_or(1);
        let monitor = gate::<P::Value, B>(be, ask.gate)?;
        let gate = monitor.as_ref();
        if ask.in_place {
            be.write(ask.b, &mut x)?;
            if k == 1 {
                tri.sptrsv_in_place(be, gate, ask.system, &mut x)?;
            } else {
                be.sptrsv_in_place(gate, ask.system, tri.resident(), k, &mut x)?;
            }
        } else {
            be.write(ask.b, &mut b)?;
            match ask.before {
                Some(before) => be.write(before, &mut x)?,
                None => be.fill(None, <P::Value as num_traits::Float>::nan(), &mut x)?,
            }
            if k == 1 {
                tri.sptrsv(be, gate, ask.system, &b, &mut x)?;
            } else {
                tri.sptrsv_columns(be, gate, ask.system, k, &b, &mut x)?;
            }
        }
        let found = be.download(&x)?;
        *self.vectors.borrow_mut() = Some((b, x));
        Ok(found)
    }

    fn update(&self, values: &[P::Value]) -> Result<()> {
        self.tri.borrow_mut().update(self.be, values)
    }

    fn update_from(&self, values: &[P::Value]) -> Result<()> {
        let values = self.be.upload(values)?;
        self.tri.borrow_mut().update_from(self.be, &values)
    }

    fn replay(&self, system: System, in_place: bool, replays: Replays<'_, P::Value>) -> Verdict {
        let (be, n) = (self.be, self.tri.borrow().nrows());
        let watch = Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 };
        let buffers = Rc::new(RefCell::new((be.zeros(n)?, be.zeros(n)?, be.monitor(&watch)?)));
        let zero = be.scalar(P::Value::from_f64(0.0))?;
        let step = Once { tri: &self.tri, system, in_place, buffers: buffers.clone() };
        let mut recorded = Recorded::new(be, step, true);
        for run in 0..replays.count {
            if let Some(values) = (replays.update)(run) {
                self.update(&values)?;
            }
            be.write(&(replays.input)(run), &mut buffers.borrow_mut().0)?;
            let closed = (replays.closed)(run);
            if closed {
                be.require_nonzero(&zero, Quantity::Omega, &mut buffers.borrow_mut().2)?;
            }
            recorded.run()?;
            if closed {
                be.resume(&mut buffers.borrow_mut().2)?;
            }
            let x = be.download(&buffers.borrow().1)?;
            (replays.look)(run, &x)?;
        }
        Ok(())
    }

    fn mismatched(
        &self,
        checked: bool,
        ask: &Ask<'_, P::Value>,
        k: usize,
        x: &[P::Value],
    ) -> (Result<()>, Result<Vec<P::Value>>) {
        let (be, tri) = (self.be, self.tri.borrow());
        let (b, mut on_device) = match (be.upload(ask.b), be.upload(x)) {
            (Ok(b), Ok(x)) => (b, x),
            (Err(error), _) | (_, Err(error)) => return (Err(error), Ok(Vec::new())),
        };
        let refusal = match (checked, ask.in_place, k) {
            (true, true, _) => tri.sptrsv_in_place(be, None, ask.system, &mut on_device),
            (true, false, 1) => tri.sptrsv(be, None, ask.system, &b, &mut on_device),
            (true, false, _) => tri.sptrsv_columns(be, None, ask.system, k, &b, &mut on_device),
            (false, true, _) => be.sptrsv_in_place(None, ask.system, tri.resident(), k, &mut on_device),
            (false, false, _) => be.sptrsv(None, ask.system, tri.resident(), k, &b, &mut on_device),
        };
        (refusal, be.download(&on_device))
    }
}

/// One solve as a step. It shares b, x and the gate's monitor with the trial.
struct Once<'t, B: Sptrsv<P>, P: Plan> {
    tri: &'t RefCell<Tri<B, P>>,
    system: System,
    in_place: bool,
    buffers: Rc<RefCell<(B::Vector, B::Vector, <B as Device>::Monitor)>>,
}

// SAFETY: one fixed sequence on buffers that live as long as the step. The trial writes into them between runs and
// replaces none, and an update of the plan keeps the addresses.
unsafe impl<B: Sptrsv<P>, P: Plan> Step<B> for Once<'_, B, P> {
    fn enqueue(&mut self, be: &B) -> Result<()> {
        let (b, x, monitor) = &mut *self.buffers.borrow_mut();
        let (tri, gate) = (self.tri.borrow(), Some(&*monitor));
        if self.in_place {
            be.copy(gate, b, x)?;
            tri.sptrsv_in_place(be, gate, self.system, x)
        } else {
            tri.sptrsv(be, gate, self.system, b, x)
        }
    }
}

/// A plan loaded on every device of a fleet, the subject first.
pub(crate) type Subjects<'b, T> = Vec<(String, Box<dyn Solves<T> + 'b>)>;

/// Plans that solve only on grids.
const FOR_GRIDS: [&str; 2] = ["sweep", "structured"];

/// Whether a plan multiplies the zeros of absent neighbours.
pub(crate) fn multiplies_fill(plan: &str) -> bool {
    FOR_GRIDS.contains(&plan)
}

/// Whether any row needs another one.
fn has_dependencies<T: Real>(matrix: &Triangular<T>) -> bool {
    (0..matrix.nrows()).any(|i| !matrix.off_diagonal(i).0.is_empty())
}

/// Analyses a triangle. A plan may refuse a triangle that is not a grid and rows that are not whole, but nothing else.
pub(crate) fn analyze<P: Plan>(problem: &Problem<P::Value>, systems: Systems) -> std::result::Result<P, Finding> {
    let refusable = FOR_GRIDS.contains(&P::NAME) && problem.grid() != Some(true);
    match P::analyze(problem.matrix.clone(), systems) {
        // Without a dependency any numbering is a line.
        Ok(plan) if P::NAME == "sweep" && problem.grid().is_none() && has_dependencies(plan.matrix()) => {
            Err(wrong("it takes what is no grid"))
        }
        Ok(plan) => Ok(plan),
        Err(Error::NotAGrid { plan, .. }) if refusable && plan == P::NAME && problem.grid().is_none() => {
            Err(Finding::Refused)
        }
        Err(Error::OutsideStencil { .. } | Error::PartOfStencil { .. }) if refusable => Err(Finding::Refused),
        Err(error) => Err(wrong(format!("{} refuses this triangle: {error}", P::NAME))),
    }
}

/// A single device.
pub(crate) fn on<'b, P, D: Sptrsv<P>>(be: &'b D, plan: P) -> Result<Box<dyn Solves<P::Value> + 'b>>
where
    D::Resident: 'b,
    P: Plan + 'b,
{
    Ok(Box::new(OnDevice { be, tri: RefCell::new(Tri::load(be, plan)?), vectors: RefCell::default() }))
}

/// The first `devices` devices of a fleet.
pub(crate) fn load<'b, P: Plan, D: Sptrsv<P>>(
    fleet: &'b Fleet<D>,
    devices: usize,
    problem: &Problem<P::Value>,
) -> std::result::Result<Subjects<'b, P::Value>, Finding>
where
    D::Resident: 'b,
{
    let plan = analyze::<P>(problem, Systems::Both)?;
    let mut subjects: Subjects<'b, P::Value> = Vec::new();
    for (label, be) in fleet.devices.iter().take(devices) {
        subjects.push((label.clone(), on(be, plan.clone())?));
    }
    Ok(subjects)
}

/// A case in one element type, shared by its trials. The first trial makes the data, and the last drops it.
pub(crate) struct Shared<T> {
    case: Rc<Case>,
    problems: OnceCell<Vec<Checked<T>>>,
}

/// A problem with its solutions of both systems, compared with the bound once.
pub(crate) struct Checked<T> {
    pub(crate) name: String,
    pub(crate) problem: Problem<T>,
    /// x of all columns, for each system of [`SYSTEMS`].
    pub(crate) x: [Vec<T>; 2],
}

impl<T: Real> Checked<T> {
    pub(crate) fn new(name: String, problem: Problem<T>) -> std::result::Result<Self, Finding> {
        let solved = |system| -> std::result::Result<_, Finding> {
            let x = problem.expected(system, &problem.b).map_err(wrong)?;
            problem
                .check(system, false, &problem.b, &x, &x)
                .map_err(|detail| wrong(format!("the reference itself, {name}, {system}: {detail}")))?;
            Ok(x)
        };
        let x = [solved(System::Plain)?, solved(System::Transposed)?];
        Ok(Self { name, problem, x })
    }
}

impl<T: Real> Shared<T> {
    pub(crate) fn new(case: Rc<Case>) -> Rc<Self> {
        Rc::new(Self { case, problems: OnceCell::new() })
    }

    pub(crate) fn case(&self) -> &Case {
        &self.case
    }

    pub(crate) fn problems(&self) -> std::result::Result<&[Checked<T>], Finding> {
        if let Some(problems) = self.problems.get() {
            return Ok(problems);
        }
        let mut problems = Vec::new();
        for &(triangle, diagonal) in self.case.forms() {
            let problem = self.case.problem(triangle, diagonal).map_err(|e| wrong(format!("the case: {e:#}")))?;
            problems.push(Checked::new(format!("{triangle}, {diagonal:?}"), problem)?);
        }
        Ok(self.problems.get_or_init(|| problems))
    }
}

/// `sptrsv/plan/type/backend/case`.
pub(crate) fn label<P: Plan, D>(fleet: &Fleet<D>, case: &str) -> String {
    format!("sptrsv/{}/{}/{}/{case}", P::NAME, P::Value::NAME, fleet.name)
}

/// The trials of one plan and case. `open` opens a device for a queue beside the subject's.
pub(crate) fn trials<P: Plan, D: Sptrsv<P> + 'static>(
    fleet: &Rc<Fleet<D>>,
    shared: &Rc<Shared<P::Value>>,
    out: &mut Vec<Trial>,
) {
    let case = shared.case.clone();
    let mut push = |suffix: &str, body: fn(&Fleet<D>, &Shared<P::Value>) -> Verdict| {
        let (fleet, shared) = (fleet.clone(), shared.clone());
        let name = label::<P, D>(&fleet, &format!("{}{suffix}", case.name));
        out.push(Trial::new(name, move || body(&fleet, &shared)));
    };
    if case.wants(P::NAME) {
        push("", |fleet, shared| {
            each::<P, D>(fleet, shared, usize::MAX, |subjects, checked| values(subjects, checked, shared.case.light))
        });
    }
    if case.special && case.wants(P::NAME) {
        push("-gated", |fleet, shared| each::<P, D>(fleet, shared, 1, gated));
        push("-updated", |fleet, shared| each::<P, D>(fleet, shared, usize::MAX, updated));
        push("-not-finite", |fleet, shared| {
            each::<P, D>(fleet, shared, 1, |subjects, checked| special(P::NAME, &*subjects[0].1, checked))
        });
        push("-wrong-lengths", |fleet, shared| each::<P, D>(fleet, shared, 1, refused::lengths));
        push("-plain-alone", refused::not_analyzed::<P, D>);
    }
    if case.repeats(P::NAME) {
        push("-repeated", |fleet, shared| each::<P, D>(fleet, shared, 1, repeats::repeated));
        push("-recorded", |fleet, shared| each::<P, D>(fleet, shared, 1, repeats::recorded));
    }
}

/// Runs a body on every form of a case.
pub(crate) fn each<P: Plan, D: Sptrsv<P>>(
    fleet: &Fleet<D>,
    shared: &Shared<P::Value>,
    devices: usize,
    body: impl Fn(&Subjects<'_, P::Value>, &Checked<P::Value>) -> Verdict,
) -> Verdict {
    let mut verdict = Ok(());
    for checked in shared.problems()? {
        let named = |finding| match finding {
            Finding::Wrong(text) => Finding::Wrong(format!("{}: {text}", checked.name)),
            other => other,
        };
        // A plan may accept one form and refuse another.
        match load::<P, D>(fleet, devices, &checked.problem).and_then(|subjects| body(&subjects, checked)) {
            Err(Finding::Refused) => verdict = Err(Finding::Refused),
            other => other.map_err(named)?,
        }
    }
    verdict
}

fn context(what: impl std::fmt::Display) -> impl FnOnce(String) -> Finding {
    move |detail| wrong(format!("{what}: {detail}"))
}

pub(crate) fn differing<T: Real>(found: &[T], expected: &[T]) -> std::result::Result<(), String> {
    difference(found, expected).map_or(Ok(()), Err)
}

/// The bound, the declared order, in place, several right-hand sides, every device.
pub(crate) fn values<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>, light: bool) -> Verdict {
    let (_, subject) = &subjects[0];
    let (problem, n) = (&checked.problem, checked.problem.nrows());
    for (system, expected) in SYSTEMS.into_iter().zip(&checked.x) {
        let order = subject.order(system);
        let (b, column) = (&problem.b[..n], &expected[..n]);
        let stored = order == Order::Stored;
        let sound = |what: &str, b: &[T], expected: &[T], x: &[T]| {
            // The bits of a reference within the bound are within the bound too.
            if stored && difference(x, expected).is_none() {
                return Ok(());
            }
            problem.check(system, stored, b, expected, x).map_err(context(format!("{system}, {what}")))
        };
        let ask = Ask::new(system, b);
        let x = subject.solve(&ask)?;
        sound("x", b, column, &x)?;
        let in_place = subject.solve(&Ask { in_place: true, ..ask })?;
        sound("in place", b, column, &in_place)?;
        let several = Ask { b: &problem.b, ..ask };
        let mut many = vec![("several columns", subject.solve(&several)?)];
        if !light {
            many.push(("several columns in place", subject.solve(&Ask { in_place: true, ..several })?));
        }
        for (what, many) in &many {
            sound(what, &problem.b, expected, many)?;
        }
        if order == Order::Unordered {
            for (label, other) in &subjects[1..] {
                let x = other.solve(&ask)?;
                problem.check(system, false, b, column, &x).map_err(context(format!("{system}, {label}")))?;
            }
            continue;
        }
        differing(&in_place, &x).map_err(context(format!("{system}, in place against x of its own")))?;
        differing(&subject.solve(&ask)?, &x).map_err(context(format!("{system}, run 2 against run 1")))?;
        for c in 0..if light { 1 } else { COLUMNS } {
            let alone = subject.solve(&Ask { b: &problem.b[c * n..][..n], ..ask })?;
            for (what, many) in &many {
                differing(&many[c * n..][..n], &alone).map_err(context(format!("{system}, column {c} of {what}")))?;
            }
        }
        for (label, other) in &subjects[1..] {
            differing(&other.solve(&ask)?, &x)
                .map_err(context(format!("{system}, {label} against {}", subjects[0].0)))?;
        }
    }
    Ok(())
}

/// A stopped gate leaves x and the plan's state alone, and a running one does not change the result.
pub(crate) fn gated<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>) -> Verdict {
    let (_, subject) = &subjects[0];
    let problem = &checked.problem;
    let n = problem.nrows();
    let before: Vec<T> = crate::case::numbers(77, problem.b.len());
    for (system, expected) in SYSTEMS.into_iter().zip(&checked.x) {
        let stored = subject.order(system) == Order::Stored;
        // Before the first solve of a resident and after several; several columns only once.
        for (round, len) in [(0, n), (1, problem.b.len()), (2, n)] {
            let (b, before, expected) = (&problem.b[..len], &before[..len], &expected[..len]);
            let stopped = Ask { gate: GateState::Stopped, before: Some(before), ..Ask::new(system, b) };
            for _ in 0..=round {
                let x = subject.solve(&stopped)?;
                differing(&x, before).map_err(context(format!("{system}, x behind a stopped monitor")))?;
            }
            let x = subject.solve(&Ask { in_place: true, ..stopped })?;
            differing(&x, b).map_err(context(format!("{system}, b in x behind a stopped monitor")))?;
            for (gate, in_place) in [(GateState::None, false), (GateState::Running, true)] {
                let x = subject.solve(&Ask { gate, in_place, ..Ask::new(system, b) })?;
                let what = format!("{system}, {gate:?} gate after a stopped one, in place: {in_place}");
                problem.check(system, stored, b, expected, &x).map_err(context(what))?;
            }
        }
    }
    Ok(())
}

/// New values on the same pattern, more than once. Refused values change nothing.
pub(crate) fn updated<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>) -> Verdict {
    let n = checked.problem.nrows();
    let values = checked.problem.other_values();
    let other = checked.problem.with_values(&values).map_err(wrong)?;
    let other = Checked::new("other values".into(), other)?;
    for (label, subject) in subjects {
        let right = |checked: &Checked<T>, when: &str| {
            for (system, expected) in SYSTEMS.into_iter().zip(&checked.x) {
                let b = &checked.problem.b[..n];
                let x = subject.solve(&Ask::new(system, b))?;
                let stored = subject.order(system) == Order::Stored;
                let what = format!("{label}, {system}, {when}");
                checked.problem.check(system, stored, b, &expected[..n], &x).map_err(context(what))?;
            }
            Ok::<(), Finding>(())
        };
        right(checked, "before an update")?;
        subject.update(&values)?;
        right(&other, "after an update")?;
        refused::values(&**subject, &other.problem)?;
        right(&other, "after refused values")?;
        subject.update(checked.problem.matrix.csr().values())?;
        right(checked, "with its first values again")?;
        for (again, when) in [(&other, "after an update from the device"), (checked, "after another one")] {
            subject.update_from(again.problem.matrix.csr().values())?;
            right(again, when)?;
        }
    }
    Ok(())
}

/// NaN and infinities in b: the solve ends. Rows that do not depend on them keep their bits, or become NaN if fill is
/// multiplied. The next solve is not affected.
pub(crate) fn special<T: Real>(plan: &str, subject: &dyn Solves<T>, checked: &Checked<T>) -> Verdict {
    let (problem, n) = (&checked.problem, checked.problem.nrows());
    for (system, clean) in SYSTEMS.into_iter().zip(&checked.x) {
        let stored = subject.order(system) == Order::Stored;
        let undisturbed = subject.solve(&Ask::new(system, &problem.b[..n]))?;
        for (at, value) in [(0, T::nan()), (n / 2, T::infinity()), (n / 3, T::nan()), (n - 1, T::neg_infinity())] {
            let mut b = problem.b[..n].to_vec();
            b[at] = value;
            let reached = problem.reached(system, at);
            let expected = problem.expected(system, &b).map_err(wrong)?;
            for in_place in [false, true] {
                let what = || format!("{system}, {value:e} in row {at} of b, in place: {in_place}");
                let x = subject.solve(&Ask { in_place, ..Ask::new(system, &b) })?;
                let fill = |x: T| multiplies_fill(plan) && x.is_nan();
                let bits = |x: T, y: T| fill(x) || crate::reference::same(x, y);
                let kept = |i: usize| match (reached[i], stored) {
                    (false, _) if subject.order(system) == Order::Unordered => x[i].is_finite() || fill(x[i]),
                    (false, _) => bits(x[i], undisturbed[i]),
                    (true, true) => bits(x[i], expected[i]),
                    (true, false) => i != at || !x[i].is_finite(),
                };
                if let Some(row) = (0..n).find(|&i| !kept(i)) {
                    let whether = if reached[row] { "depends on it" } else { "does not depend on it" };
                    let (x, y) = (x[row], expected[row]);
                    return Err(wrong(format!("{}: row {row} {whether}: expected {y:e}, found {x:e}", what())));
                }
                let after = subject.solve(&Ask { in_place, ..Ask::new(system, &problem.b[..n]) })?;
                problem
                    .check(system, stored, &problem.b[..n], &clean[..n], &after)
                    .map_err(context(format!("the solve after {}", what())))?;
            }
        }
    }
    Ok(())
}
