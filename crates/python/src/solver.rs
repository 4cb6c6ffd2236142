//! [`spandrel::Solver`] for Python: one solver, one matrix, any number of right-hand sides.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use spandrel::solver::{Builder, Plan, Settings, Solution, Solutions, Times};
use spandrel::{Csr, Result, Solver as Library};

use crate::arrays::{self, Number};
use crate::device::{self, DeviceArray};
use crate::error::raised;
use crate::fork;
use crate::matrix::{Host, Matrix};
use crate::report;
use crate::settings;
use crate::turn::Turn;
use crate::watch::{Kind, Watch, broken_off};

/// A solver in either type.
pub(crate) enum Either {
    F32(Library<f32>),
    F64(Library<f64>),
}

/// An element type of solvers.
pub(crate) trait Typed: Number {
    /// The solver in its type.
    fn wrap(solver: Library<Self>) -> Either;
    /// The solver, if it is of this type.
    fn of(either: &mut Either) -> Option<&mut Library<Self>>;
    /// The matrix, if it is of this type.
    fn rows(host: &Host) -> Option<&Csr<Self>>;
}
macro_rules! typed {
    ($T:ident, $Variant:ident) => {
        impl Typed for $T {
            fn wrap(solver: Library<Self>) -> Either {
                Either::$Variant(solver)
            }
            fn of(either: &mut Either) -> Option<&mut Library<Self>> {
                match either {
                    Either::$Variant(solver) => Some(solver),
                    _ => None,
                }
            }
            fn rows(host: &Host) -> Option<&Csr<Self>> {
                match host {
                    Host::$Variant(csr) => Some(csr),
                    _ => None,
                }
            }
        }
    };
}
typed!(f32, F32);
typed!(f64, F64);

/// Calls `$of::<T>($arg, ...)` for the type of the solver.
macro_rules! by_type {
    ($self:ident . $of:ident ( $($arg:expr),* )) => {
        if $self.is_single { $self.$of::<f32>($($arg),*) } else { $self.$of::<f64>($($arg),*) }
    };
}

/// Runs `$call` with the solver, whichever its type is.
macro_rules! with {
    ($either:expr, |$solver:ident| $call:expr) => {
        match $either {
            Either::F32($solver) => $call,
            Either::F64($solver) => $call,
        }
    };
}

/// A solver for one matrix.
#[pyclass(frozen, module = "spandrel_sparse._core")]
pub(crate) struct Solver {
    turn: Turn<Either>,
    watch: Watch,
    kind: Kind,
    may_stop: bool,
    is_single: bool,
    /// The given matrix, kept if new values may come.
    given: Option<Py<Matrix>>,
}

/// The error for a call in another type than the solver's. The Python files convert before they call.
fn other_type() -> PyErr {
    PyValueError::new_err("the vector has another type than the matrix")
}

fn built<T: Typed>(settings: Settings, watch: &Watch, csr: Arc<Csr<T>>) -> Result<Either> {
    let watch = watch.clone();
    let builder = Builder::new(settings).on_progress(move |event| watch.event::<T>(event));
    builder.build(csr).map(T::wrap)
}

impl Solver {
    /// Runs one solve in one turn, with the callback. If Python raised an exception during the solve, raises it, with
    /// the result that was `reached`.
    fn watched<'py, T: Typed, S: Send>(
        &self,
        py: Python<'py>,
        callback: Option<Py<PyAny>>,
        solve: impl FnOnce(&mut Library<T>) -> Result<S> + Send,
        last: impl FnOnce(&S) + Send,
        reached: impl FnOnce(Python<'py>, S) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<S> {
        fork::check()?;
        let (solved, broken) = self.turn.run(py, |either| {
            self.watch.begin(callback, self.kind, self.may_stop);
            let solved = T::of(either).map(solve);
            if let Some(Ok(solved)) = &solved {
                last(solved);
            }
            (solved, self.watch.end())
        })?;
        let solved = solved.ok_or_else(other_type)?;
        match (broken, solved) {
            (None, solved) => solved.map_err(raised),
            (Some(error), Ok(solved)) => {
                let reached = reached(py, solved)?;
                Err(broken_off(py, error, Some(reached)))
            }
            (Some(error), Err(_)) => Err(broken_off(py, error, None)),
        }
    }

    fn one<'py, T: Typed>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        x0: Option<&Bound<'py, PyAny>>,
        callback: Option<Py<PyAny>>,
        full: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let b = arrays::slice::<T>(b, "b")?;
        let x0 = x0.map(|x0| arrays::slice::<T>(x0, "x0")).transpose()?;
        let solution: Solution<T> = self.watched(
            py,
            callback,
            |solver: &mut Library<T>| match x0 {
                Some(x0) => solver.solve_from(b, x0),
                None => solver.solve(b),
            },
            |solution| self.watch.tell_last(&solution.outcome, &solution.x),
            |py, solution| {
                let fields = of_solution(py, &solution)?;
                Ok((arrays::given(py, solution.x), fields).into_pyobject(py)?.into_any())
            },
        )?;
        let ended = if full {
            of_solution(py, &solution)?.into_any()
        } else {
            let outcome = &solution.outcome;
            let is_answer = outcome.status.is_converged();
            let text = (!is_answer).then(|| outcome.to_string());
            let symbol = outcome.breakdown.filter(|_| !is_answer).map(|(quantity, _)| quantity.symbol());
            (outcome.status.as_str(), outcome.iterations, text, symbol).into_pyobject(py)?.into_any()
        };
        Ok((arrays::given(py, solution.x), ended))
    }

    fn many<'py, T: Typed>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let b = arrays::slice::<T>(b, "B")?;
        let solutions = self.watched(
            py,
            callback,
            |solver: &mut Library<T>| solver.solve_many(b),
            |_| (),
            |py, solutions| Ok(of_solutions(py, solutions)?.into_pyobject(py)?.into_any()),
        )?;
        of_solutions(py, solutions)
    }

    fn renew<T: Typed>(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = arrays::slice::<T>(values, "values")?;
        let ordered = match &self.given {
            Some(given) => given.get().ordered(values)?,
            None => None,
        };
        let values = ordered.as_deref().unwrap_or(values);
        let renew = |solver: &mut Library<T>| solver.update_values(values);
        self.watched(py, None, renew, |()| (), |py, ()| Ok(py.None().into_bound(py)))
    }

    fn renew_from<T: Typed>(&self, py: Python<'_>, matrix: &Matrix) -> PyResult<()> {
        let given = self.given.as_ref().map(|given| given.get());
        if let Some(given) = given
            && !given.has_pattern_of(py, matrix)
        {
            return Err(PyValueError::new_err("the new matrix has another pattern; build a new solver"));
        }
        let csr = T::rows(&matrix.host).ok_or_else(other_type)?;
        let renew = |solver: &mut Library<T>| solver.update_values_from(csr);
        self.watched(py, None, renew, |()| (), |py, ()| Ok(py.None().into_bound(py)))
    }

    fn apply<'py, T: Typed>(&self, py: Python<'py>, r: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        fork::check()?;
        let r = arrays::slice::<T>(r, "r")?;
        let z = self.turn.run(py, |either| T::of(either).map(|solver| solver.precondition(r)))?;
        Ok(arrays::given(py, z.ok_or_else(other_type)?.map_err(raised)?))
    }

    fn there<'py, T: Typed>(
        &self,
        py: Python<'py>,
        (b, x): (&DeviceArray, &DeviceArray),
        callback: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let outcome = self.watched(
            py,
            callback,
            |solver: &mut Library<T>| device::solve_on(solver, b, x),
            |outcome| self.watch.tell_last::<T>(outcome, &[]),
            |py, outcome| Ok(report::outcome(py, &outcome)?.into_any()),
        )?;
        report::outcome(py, &outcome)
    }
}

/// A solution without its x.
fn of_solution<'py, T>(py: Python<'py>, solution: &Solution<T>) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("outcome", report::outcome(py, &solution.outcome)?)?;
    fields.set_item("method", solution.method.as_str())?;
    fields.set_item("preconditioner", solution.preconditioner.to_string())?;
    fields.set_item("attempts", report::attempts(py, &solution.attempts)?)?;
    fields.set_item("note", solution.note.as_deref())?;
    fields.set_item("times", report::times(py, solution.times)?)?;
    Ok(fields)
}

/// All columns one after the other, and their outcomes.
fn of_solutions<'py, T: Number>(
    py: Python<'py>,
    solutions: Solutions<T>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let outcomes = PyList::empty(py);
    for outcome in &solutions.outcomes {
        outcomes.append(report::outcome(py, outcome)?)?;
    }
    Ok((arrays::given(py, solutions.x), outcomes.into_any()))
}

#[pymethods]
impl Solver {
    /// Makes a solver. `kind` says what callbacks get. With `may_stop`, a callback that raises `StopIteration` ends a
    /// solve without an error.
    #[new]
    fn new(matrix: &Bound<'_, Matrix>, settings: &Bound<'_, PyDict>, kind: &str, may_stop: bool) -> PyResult<Self> {
        fork::check()?;
        let (py, settings, kind) = (matrix.py(), settings::read(settings)?, Kind::parse(kind)?);
        let (watch, updatable) = (Watch::new(), settings.updatable);
        watch.begin(None, kind, may_stop);
        let host = matrix.get().host.clone();
        let is_single = matches!(host, Host::F32(_));
        let built = py.detach(|| match host {
            Host::F32(csr) => built(settings, &watch, csr),
            Host::F64(csr) => built(settings, &watch, csr),
        });
        if let Some(error) = watch.end() {
            return Err(broken_off(py, error, None));
        }
        let turn = Turn::new(built.map_err(raised)?);
        Ok(Self { turn, watch, kind, may_stop, is_single, given: updatable.then(|| matrix.clone().unbind()) })
    }

    /// Solves and returns x and `(status, iterations, text, scalar)`. `text` is the outcome in a sentence, and `scalar`
    /// is the one that caused a breakdown; both are set only if the solve did not converge.
    #[pyo3(signature = (b, x0=None, callback=None))]
    fn solve<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        x0: Option<&Bound<'py, PyAny>>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        by_type!(self.one(py, b, x0, callback, false))
    }

    /// Solves and returns x and everything that is known about the solve.
    #[pyo3(signature = (b, x0=None, callback=None))]
    fn solution<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        x0: Option<&Bound<'py, PyAny>>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        by_type!(self.one(py, b, x0, callback, true))
    }

    /// Solves and returns the columns of X one after the other, and one outcome per column.
    #[pyo3(signature = (b, callback=None))]
    fn solve_many<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        by_type!(self.many(py, b, callback))
    }

    /// Solves from the values that x holds, and writes the result to x. b and x lie on the solver's GPU.
    #[pyo3(signature = (b, x, callback=None))]
    fn solve_on_device<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, DeviceArray>,
        x: &Bound<'py, DeviceArray>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        by_type!(self.there(py, (b.get(), x.get()), callback))
    }

    /// Returns M^-1 r.
    fn precondition<'py>(&self, py: Python<'py>, r: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        by_type!(self.apply(py, r))
    }

    /// Takes new values of the matrix, in the order of the array that it was made from.
    fn update(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        by_type!(self.renew(py, values))
    }

    /// Takes the values of another matrix with the same pattern.
    fn update_from(&self, py: Python<'_>, matrix: &Bound<'_, Matrix>) -> PyResult<()> {
        by_type!(self.renew_from(py, matrix.get()))
    }

    /// Returns the plan: what runs, and why.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plan: Plan = self.turn.run(py, |either| with!(either, |solver| solver.plan().clone()))?;
        report::plan(py, &plan)
    }

    /// Seconds of the set-up.
    fn setup_times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let times: Times = self.turn.run(py, |either| with!(either, |solver| solver.setup_times()))?;
        report::times(py, times)
    }
}
