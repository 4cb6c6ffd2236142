//! Our side: the public solvers with factors from the device and the product in the format that the library chooses.
//! They run in f64, with the preconditioner in f32, and refined around solves in f32.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel_backend::{Backend, Device, Gate, Mat, Operator, Preconditioner};
use spandrel_backend_cuda::{Cuda, Vector};
use spandrel_formats::{Bdia, Csr, Dia, Ell, Format, Hyb, Real, Sell, for_each_format};
use spandrel_solvers::{BiCgStab, Cg, Mixed, Narrowed, Options, Outcome, Progress, Refine};
use spandrel_sptrsv::{Ic0, Ilu0};

use super::{Contender, Ended, Limits, Setup};
use crate::gpu::Gpu;
use crate::krylov::Method;
use crate::sptrsv::stopwatch;

/// A matrix in any format.
pub(super) type Stored<T> = Box<dyn Operator<T, Cuda>>;

/// The rows of a matrix on the device.
pub(super) type Rows<T> = Mat<Cuda, Csr<T>>;

/// Loads the rows of the host's matrix.
///
/// # Errors
/// Out of memory.
pub(super) fn transferred<T: Real>(gpu: &Gpu, csr: &Arc<Csr<T>>) -> Result<Rows<T>> {
    let rows = Mat::load(&gpu.be, Arc::clone(csr))?;
    gpu.be.synchronize()?;
    Ok(rows)
}

/// The matrix in a format. It is made on the device from its rows if the backend converts, else from the result of
/// `host`.
///
/// # Errors
/// A matrix that does not fit the format; out of memory.
pub(super) fn operator<'a, T: Real>(
    gpu: &Gpu,
    stem: &str,
    host: impl FnOnce() -> Cow<'a, Csr<T>>,
    rows: Rows<T>,
) -> Result<Stored<T>> {
    let be = &gpu.be;
    let made: Stored<T> = match stem {
        "csr" => Box::new(rows),
        "dia" => Box::new(rows.convert::<Dia<T>>(be)?),
        "bdia" => Box::new(rows.convert::<Bdia<T>>(be)?),
        "ell" => Box::new(rows.convert::<Ell<T>>(be)?),
        "sell" => Box::new(rows.convert::<Sell<T>>(be)?),
        "hyb" => Box::new(rows.convert::<Hyb<T>>(be)?),
        other => {
            macro_rules! host {
                ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
                    match other {
                        $(stringify!($stem) => {
                            Box::new(Mat::load(be, spandrel_formats::$Type::<T>::from_csr(&host())?)?)
                        })*
                        other => bail!("no format is called {other}"),
                    }
                };
            }
            for_each_format!(host)
        }
    };
    be.synchronize()?;
    Ok(made)
}

/// A preconditioner and its description.
pub(super) struct Made<T: Real> {
    pub(super) m: Shared<T>,
    pub(super) plan: &'static str,
    pub(super) shift: f64,
}

/// A preconditioner that several solvers share.
pub(super) struct Shared<T: Real>(Rc<dyn Preconditioner<T, Cuda>>);

impl<T: Real> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

// SAFETY: every operation is that of the shared preconditioner, which is never replaced.
unsafe impl<T: Real> Preconditioner<T, Cuda> for Shared<T> {
    fn len(&self) -> Option<usize> {
        self.0.len()
    }
    fn is_linear(&self) -> bool {
        self.0.is_linear()
    }
    fn apply(&self, be: &Cuda, gate: Gate<'_, Cuda>, r: &Vector<T>, z: &mut Vector<T>) -> spandrel_backend::Result<()> {
        self.0.apply(be, gate, r, z)
    }
}

/// IC(0) for CG or ILU(0) for BiCGStab, as the library makes them from a matrix on a GPU.
///
/// # Errors
/// Those of the factorisation; a device that fails.
fn preconditioner<'a, T: Real>(
    gpu: &Gpu,
    method: Method,
    host: impl FnOnce() -> Cow<'a, Csr<T>>,
    rows: &Rows<T>,
) -> Result<Made<T>> {
    let be = &gpu.be;
    let Chosen { precond, plan, shift, .. } = match method {
        Method::Cg => be.incomplete_or::<Ic0<T>>(rows, host)?,
        Method::BiCgStab => be.incomplete_or::<Ilu0<T>>(rows, host)?,
    };
    be.synchronize()?;
    let precond: Box<dyn Preconditioner<T, Cuda>> = precond;
    Ok(Made { m: Shared(Rc::from(precond)), plan, shift })
}

/// Everything that a solve needs: the preconditioner, then the product's form, both from one copy of the matrix. Also
/// returns how long each part took.
///
/// # Errors
/// Those of the parts.
pub(super) fn ready(
    gpu: &Gpu,
    method: Method,
    stem: &str,
    csr: &Arc<Csr<f64>>,
) -> Result<((Made<f64>, Stored<f64>), Setup)> {
    let mut setup = Setup::default();
    let (rows, ms) = stopwatch(|| transferred(gpu, csr));
    setup.push("transfer", ms);
    let made = of_rows(gpu, method, stem, || Cow::Borrowed(&**csr), rows?, &mut setup)?;
    Ok((made, setup))
}

fn of_rows<'a, T: Real>(
    gpu: &Gpu,
    method: Method,
    stem: &str,
    host: impl Fn() -> Cow<'a, Csr<T>>,
    rows: Rows<T>,
    setup: &mut Setup,
) -> Result<(Made<T>, Stored<T>)> {
    let (made, ms) = stopwatch(|| preconditioner(gpu, method, &host, &rows));
    setup.push("factors", ms);
    let made = made?;
    let (a, ms) = stopwatch(|| operator(gpu, stem, &host, rows));
    setup.push("operator", ms);
    Ok((made, a?))
}

/// As [`ready`] in f32, with the exponent of the narrowed matrix. The rows in f64 are those of the product, whose copy
/// is not counted again.
///
/// # Errors
/// As [`ready`].
#[allow(clippy::type_complexity)] // as there, and a number
pub(super) fn ready_narrow(
    gpu: &Gpu,
    method: Method,
    stem: &str,
    csr: &Arc<Csr<f64>>,
) -> Result<((Made<f32>, Stored<f32>, i32), Setup)> {
    let wide = transferred(gpu, csr)?;
    let mut setup = Setup::default();
    let once = OnceCell::new();
    let host = || once.get_or_init(|| Narrowed::new(csr));
    let (narrow, ms) = stopwatch(|| -> Result<_> {
        let narrow = match wide.narrow(&gpu.be)? {
            Some(narrow) => narrow,
            None => (Mat::load(&gpu.be, host().matrix.clone())?, host().exponent),
        };
        gpu.be.synchronize()?;
        Ok(narrow)
    });
    setup.push("narrow", ms);
    let (rows, exponent) = narrow?;
    drop(wide);
    let (made, a) = of_rows(gpu, method, stem, || Cow::Borrowed(&host().matrix), rows, &mut setup)?;
    Ok(((made, a, exponent), setup))
}

#[allow(clippy::large_enum_variant)] // a contest has a handful
enum Solver<T: Real> {
    Cg(Cg<T, Cuda>),
    BiCgStab(BiCgStab<T, Cuda>),
}

impl<T: Real> Solver<T> {
    fn new(gpu: &Gpu, method: Method, n: usize) -> Result<Self> {
        Ok(match method {
            Method::Cg => Self::Cg(Cg::new(&gpu.be, n)?),
            Method::BiCgStab => Self::BiCgStab(BiCgStab::new(&gpu.be, n)?),
        })
    }
}

impl<T: Real> Solver<T> {
    fn solve(
        &mut self,
        be: &Cuda,
        a: &Stored<T>,
        m: &impl Preconditioner<T, Cuda>,
        b: &Vector<T>,
        x: &mut Vector<T>,
        options: &Options,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> spandrel_solvers::Result<Outcome> {
        match self {
            Solver::Cg(cg) => cg.solve_watched(be, a, m, b, x, options, watch),
            Solver::BiCgStab(bicgstab) => bicgstab.solve_watched(be, a, m, b, x, options, watch),
        }
    }
}

/// The method with its workspace.
#[allow(clippy::large_enum_variant)] // as above
enum Way {
    /// All in f64, or with a preconditioner in f32.
    Direct { solver: Solver<f64>, m: Box<dyn Preconditioner<f64, Cuda>> },
    /// Corrections in f32.
    Refined { refine: Refine<Cuda>, solver: Solver<f32>, a: Stored<f32>, m: Shared<f32>, exponent: i32 },
}

/// One of our solvers with its own workspace.
pub(super) struct Ours<'a> {
    gpu: &'a Gpu,
    way: Way,
    a: Rc<Stored<f64>>,
    b: Rc<Vector<f64>>,
    x: Vector<f64>,
    limits: Limits,
}

impl<'a> Ours<'a> {
    fn with(gpu: &'a Gpu, a: &Rc<Stored<f64>>, b: &Rc<Vector<f64>>, limits: Limits, way: Way) -> Result<Self> {
        Ok(Self { gpu, way, a: Rc::clone(a), b: Rc::clone(b), x: gpu.be.zeros(b.len())?, limits })
    }

    /// A solver in f64.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn plain(
        gpu: &'a Gpu,
        method: Method,
        a: &Rc<Stored<f64>>,
        m: &Shared<f64>,
        b: &Rc<Vector<f64>>,
        limits: Limits,
    ) -> Result<Self> {
        let way = Way::Direct { solver: Solver::new(gpu, method, b.len())?, m: Box::new(m.clone()) };
        Self::with(gpu, a, b, limits, way)
    }

    /// A solver in f64 with a preconditioner of the narrowed matrix.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn mixed(
        gpu: &'a Gpu,
        method: Method,
        a: &Rc<Stored<f64>>,
        (m, exponent): (&Shared<f32>, i32),
        b: &Rc<Vector<f64>>,
        limits: Limits,
    ) -> Result<Self> {
        let m = Box::new(Mixed::new(&gpu.be, m.clone(), b.len(), exponent)?);
        Self::with(gpu, a, b, limits, Way::Direct { solver: Solver::new(gpu, method, b.len())?, m })
    }

    /// A solver that is refined around solves with the narrowed matrix.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn refined(
        gpu: &'a Gpu,
        method: Method,
        a: &Rc<Stored<f64>>,
        narrow: Stored<f32>,
        (m, exponent): (&Shared<f32>, i32),
        b: &Rc<Vector<f64>>,
        limits: Limits,
    ) -> Result<Self> {
        let (refine, solver) = (Refine::new(&gpu.be, b.len())?, Solver::new(gpu, method, b.len())?);
        Self::with(gpu, a, b, limits, Way::Refined { refine, solver, a: narrow, m: m.clone(), exponent })
    }
}

impl Contender for Ours<'_> {
    fn solve(&mut self) -> Result<Ended> {
        let Limits { rtol, max_iters, seconds } = self.limits;
        let options = Options { rtol: Some(rtol), max_iters: Some(max_iters), history: false, ..Options::default() };
        let start = Instant::now();
        let mut watch = |_: Progress| match start.elapsed().as_secs_f64() > seconds {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let Self { gpu, way, a, b, x, .. } = self;
        let be = &gpu.be;
        Backend::<f64>::fill(be, None, 0.0, x)?;
        let outcome = match way {
            Way::Direct { solver, m } => solver.solve(be, a, m, b, x, &options, &mut watch)?,
            Way::Refined { refine, solver, a: narrow, m, exponent } => {
                let inner = |be: &Cuda,
                             r: &Vector<f32>,
                             d: &mut Vector<f32>,
                             options: &Options,
                             watch: spandrel_solvers::Watcher<'_>| {
                    solver.solve(be, narrow, m, r, d, options, watch)
                };
                refine.solve_watched(be, &**a, *exponent, inner, b, x, &options, &mut watch)?
            }
        };
        Ok(Ended { status: outcome.status, iterations: outcome.iterations, true_residual: outcome.true_residual })
    }

    fn answer(&self) -> Result<Vec<f64>> {
        Ok(self.gpu.be.download(&self.x)?)
    }
}
