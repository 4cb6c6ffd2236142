//! The Krylov methods with operators and preconditioners that are Python functions. They run on the CPU, because such a
//! function takes NumPy's arrays.
//!
//! If a function raises, its result is filled with NaN. That stops the method at the next look, with the x of the
//! previous step.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use spandrel::backend::{Backend, Mat, Operator, Preconditioner, operator, preconditioner};
use spandrel::solvers::{BiCgStab, Cg, Gmres, GmresOptions, Identity, Method, Options, Outcome};
use spandrel::{Cpu, Csr, Result};

use crate::arrays::{self, Number};
use crate::error::raised;
use crate::fork;
use crate::matrix::{Host, Matrix};
use crate::report;
use crate::watch::{Kind, Watch, broken_off};

/// The goal and limits of a solve.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Goal {
    rtol: f64,
    atol: f64,
    max_iterations: usize,
    restart: usize,
}

impl Goal {
    /// The options of a solve that looks at each iteration, for a callback or because a Python function takes longer
    /// than a look.
    pub(crate) fn options(&self, looks_at_each: bool) -> Options {
        let check_every = if looks_at_each { 1 } else { Options::default().check_every };
        let max_iters = Some(self.max_iterations);
        Options { rtol: Some(self.rtol), atol: self.atol, max_iters, check_every, ..Options::default() }
    }

    pub(crate) fn cycle(&self) -> GmresOptions {
        GmresOptions { restart: self.restart, ..GmresOptions::default() }
    }
}

/// y <- f(x) by a Python function, which gets a copy of x.
fn called<T: Number>(function: &Py<PyAny>, watch: &Watch, x: &[T], y: &mut [T]) {
    let made = (|| {
        if watch.is_broken() {
            return Ok(false);
        }
        Python::attach(|py| {
            let made = function.call1(py, (arrays::given(py, x.to_vec()),))?;
            let made = made.bind(py);
            let values = arrays::slice::<T>(made, "the result of an operator")?;
            if values.len() != y.len() {
                let (found, expected) = (values.len(), y.len());
                let text = format!("an operator gave {found} elements, expected {expected}");
                return Err(PyValueError::new_err(text));
            }
            y.copy_from_slice(values);
            Ok(true)
        })
    })();
    match made {
        Ok(true) => {}
        Ok(false) => y.fill(T::nan()),
        Err(error) => {
            watch.keep(error);
            y.fill(T::nan());
        }
    }
}

/// The inputs of a solve.
struct System<'a, T> {
    method: Method,
    a: Option<&'a std::sync::Arc<Csr<T>>>,
    matvec: Option<&'a Py<PyAny>>,
    psolve: Option<&'a Py<PyAny>>,
    b: &'a [T],
    x0: &'a [T],
    options: Options,
    cycle: GmresOptions,
}

/// Solves on the CPU. Returns x and the outcome.
fn solved<T: Number>(system: &System<'_, T>, watch: &Watch) -> Result<(Vec<T>, Outcome)>
where
    Cpu: spandrel::backend::EveryMethod<T> + spandrel::backend::Spmv<Csr<T>>,
{
    let cpu = Cpu::new();
    let n = system.b.len();
    let a: Box<dyn Operator<T, Cpu> + '_> = match (system.a, system.matvec) {
        (Some(csr), _) => Box::new(Mat::load(&cpu, csr)?),
        (None, Some(matvec)) => Box::new(operator::from_fn(n, |x: &[T], y: &mut [T]| called(matvec, watch, x, y))),
        (None, None) => Box::new(operator::from_fn(n, |x: &[T], y: &mut [T]| y.copy_from_slice(x))),
    };
    let m: Box<dyn Preconditioner<T, Cpu> + '_> = match system.psolve {
        Some(psolve) => Box::new(preconditioner::from_fn(n, |r: &[T], z: &mut [T]| called(psolve, watch, r, z))),
        None => Box::new(Identity),
    };
    let (b, mut x) = (cpu.upload(system.b)?, cpu.upload(system.x0)?);
    let mut observer = |progress, iterate: spandrel::solvers::Iterate<'_, T>| watch.observe(progress, iterate);
    let options = &system.options;
    let outcome = match system.method {
        Method::Cg => Cg::new(&cpu, n)?.solve_observed(&cpu, &a, &m, &b, &mut x, options, &mut observer),
        Method::BiCgStab => BiCgStab::new(&cpu, n)?.solve_observed(&cpu, &a, &m, &b, &mut x, options, &mut observer),
        Method::Gmres => {
            Gmres::with(&cpu, n, &system.cycle)?.solve_observed(&cpu, &a, &m, &b, &mut x, options, &mut observer)
        }
        Method::Direct => {
            let why = "an operator has no entries to factor; use cg, bicgstab or gmres".to_string();
            Err(spandrel::Error::Unsupported { why })
        }
    }?;
    Ok((cpu.download(&x)?, outcome))
}

/// Solves A x = b from x0 by a method. A is a matrix or a function; M^-1 is a function or `None`. Returns x and the
/// outcome.
#[pyfunction]
#[pyo3(signature = (method, a, psolve, b, x0, goal, kind, callback=None))]
#[allow(clippy::needless_pass_by_value)] // what Python hands over
pub(crate) fn iterate<'py>(
    py: Python<'py>,
    method: &str,
    a: &Bound<'py, PyAny>,
    psolve: Option<Py<PyAny>>,
    b: &Bound<'py, PyAny>,
    x0: &Bound<'py, PyAny>,
    goal: Goal,
    kind: &str,
    callback: Option<Py<PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    fork::check()?;
    let method: Method = method.parse().map_err(crate::error::of_name)?;
    let kind = Kind::parse(kind)?;
    let matrix = a.cast::<Matrix>().ok().map(|matrix| matrix.get().host.clone());
    let matvec = matrix.is_none().then(|| a.clone().unbind());
    let watch = Watch::new();
    watch.begin(callback, kind, false);
    macro_rules! run {
        ($T:ident, $host:expr) => {{
            let (b, x0) = (arrays::slice::<$T>(b, "b")?, arrays::slice::<$T>(x0, "x0")?);
            let system = System {
                method,
                a: $host,
                matvec: matvec.as_ref(),
                psolve: psolve.as_ref(),
                b,
                x0,
                options: goal.options(kind.is_each()),
                cycle: goal.cycle(),
            };
            let solved = py.detach(|| {
                let solved = solved(&system, &watch);
                if let Ok((x, outcome)) = &solved {
                    watch.tell_last(outcome, x);
                }
                solved
            });
            let broken = watch.end();
            let reached = solved.as_ref().ok().filter(|(x, _)| x.iter().all(|x| x.is_finite()));
            if let Some(error) = broken {
                let reached = reached
                    .map(|(x, outcome)| -> PyResult<_> {
                        let fields = report::outcome(py, outcome)?;
                        Ok((arrays::given(py, x.clone()), fields).into_pyobject(py)?.into_any())
                    })
                    .transpose()?;
                return Err(broken_off(py, error, reached));
            }
            let (x, outcome) = solved.map_err(raised)?;
            Ok((arrays::given(py, x), report::outcome(py, &outcome)?.into_any()))
        }};
    }
    match &matrix {
        Some(Host::F32(csr)) => run!(f32, Some(csr)),
        Some(Host::F64(csr)) => run!(f64, Some(csr)),
        None if arrays::slice::<f32>(b, "b").is_ok() => run!(f32, None),
        None if arrays::slice::<f64>(b, "b").is_ok() => run!(f64, None),
        None => Err(PyTypeError::new_err("b must be a contiguous array of float32 or float64")),
    }
}
