//! The iteration on one device: the matrix in its format, the preconditioner and the workspaces of the methods.
//!
//! Cost: the first solve of a method allocates its workspace; later ones reuse it.

use std::any::Any;
use std::sync::Arc;

use spandrel_backend::{Backend, Device, Download, Load, Narrow, Spmv, UpdateValues};
use spandrel_formats::{Bsr, Csr, Format, Real};
use spandrel_solvers::{
    BiCgStab, Cg, Error, Gmres, GmresOptions, Iterate, Method, Mixed, Observer, Options, Outcome, Refine, Result,
    Watcher,
};

use super::build::Setup;
use super::made::{Boxed, Makes, make};
use super::plan::{Plan, Stage};
use super::supply::{Given, Narrowing, Supply, loaded};
use crate::any::{EveryFormat, EveryMethod};
use crate::rows::Rows;
use crate::{Mat, Operator, Preconditioner};

type Vector<T, B> = <B as Backend<T>>::Vector;

/// One call of a method.
pub struct Call<'a, T> {
    pub(super) method: Method,
    pub(super) options: Options,
    /// Steps of a GMRES cycle.
    pub(super) restart: usize,
    pub(super) observer: Observer<'a, T>,
}

impl<T> std::fmt::Debug for Call<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("method", &self.method).field("options", &self.options).finish_non_exhaustive()
    }
}

/// An iteration that is set up. It must run on the device on which it was made.
pub trait Engine<T: Real, B: Backend<T> + Load<Csr<T>>> {
    /// Solves A x = b from the given x.
    fn run(&mut self, be: &B, call: Call<'_, T>, b: &B::Vector, x: &mut B::Vector) -> Result<Outcome>;
    /// z <- M^-1 r, in the numbering of the solve.
    fn precondition(&self, be: &B, r: &B::Vector, z: &mut B::Vector) -> Result<()>;
    /// Takes new values of the matrix on its old pattern, in the numbering of the solve. Returns the shift of the
    /// factorisation.
    fn renew(&mut self, be: &B, a: &Supply<T, B>) -> Result<f64>;
    /// As [`Engine::renew`], with values on the device. Returns `None` and does nothing if the host is needed.
    fn renew_from(&mut self, be: &B, values: &B::Vector) -> Option<Result<f64>>;
    /// The matrix with the values of the last [`Engine::renew_from`]; `None` if that always needs the host.
    fn matrix(&self, be: &B) -> Option<Result<Csr<T>>>;
    /// The bytes of a product, if f64 values are stored in f32 without loss.
    fn narrow_bytes(&self, be: &B) -> Option<u64>;
}

/// The workspaces of the methods in one element type.
struct Workspaces<T: Real, B: Backend<T>> {
    cg: Option<Cg<T, B>>,
    bicgstab: Option<BiCgStab<T, B>>,
    /// The workspace of GMRES, with the restart that it was made for.
    gmres: Option<(usize, Gmres<T, B>)>,
}

impl<T: Real, B: EveryMethod<T>> Workspaces<T, B> {
    fn new() -> Self {
        Self { cg: None, bicgstab: None, gmres: None }
    }

    fn run(
        &mut self,
        be: &B,
        call: Call<'_, T>,
        a: &impl Operator<T, B>,
        m: &impl Preconditioner<T, B>,
        b: &B::Vector,
        x: &mut B::Vector,
    ) -> Result<Outcome> {
        let n = a.shape().0;
        let Call { method, options, restart, observer } = call;
        match method {
            Method::Cg => {
                let cg = match &mut self.cg {
                    Some(cg) => cg,
                    none => none.insert(Cg::new(be, n)?),
                };
                cg.solve_observed(be, a, m, b, x, &options, observer)
            }
            Method::BiCgStab => {
                let bicgstab = match &mut self.bicgstab {
                    Some(bicgstab) => bicgstab,
                    none => none.insert(BiCgStab::new(be, n)?),
                };
                bicgstab.solve_observed(be, a, m, b, x, &options, observer)
            }
            Method::Gmres => {
                let gmres = match &mut self.gmres {
                    Some((known, gmres)) if *known == restart => gmres,
                    other => {
                        // Free the old one first: both may not fit at the same time.
                        *other = None;
                        let options = GmresOptions { restart, ..GmresOptions::default() };
                        &mut other.insert((restart, Gmres::with(be, n, &options)?)).1
                    }
                };
                gmres.solve_observed(be, a, m, b, x, &options, observer)
            }
            Method::Direct => Err(not_an_iteration()),
        }
    }
}

fn not_an_iteration() -> Error {
    Error::Unsupported { why: "direct is not an iteration; plan the solve with it from the start".into() }
}

/// If kernels are loaded on first use, runs two iterations on a trial vector, so that later times are those of the
/// solve only.
fn rehearse<T: Real, B: Backend<T> + Load<Csr<T>>>(engine: &mut dyn Engine<T, B>, be: &B, plan: &Plan) -> Result<()> {
    if B::NAME == "cpu" || plan.nrows == 0 {
        return Ok(());
    }
    let options = Options { rtol: Some(0.0), atol: 0.0, max_iters: Some(2), history: false, ..Options::default() };
    let (mut b, mut x) = (be.zeros(plan.nrows)?, be.zeros(plan.ncols)?);
    be.fill(None, T::one(), &mut b)?;
    let mut unobserved = |_, _: Iterate<'_, T>| std::ops::ControlFlow::Continue(());
    let call = Call { method: plan.method, options, restart: plan.restart.min(2), observer: &mut unobserved };
    // Ignore an error here: it will occur again in the solve, which reports it.
    drop(engine.run(be, call, &b, &mut x));
    Ok(be.synchronize()?)
}

/// Expands to a call of `$run::<Format, _>` for the format with this name.
macro_rules! in_format {
    ([($T:ty, $name:expr, $run:ident, $args:tt)] $(($stem:ident, $Type:ident)),*) => {
        match $name {
            $(stringify!($stem) => in_format!(@call $run, spandrel_formats::$Type<$T>, $args),)*
            other => Err(Error::Unsupported { why: format!("there is no format {other:?}") }),
        }
    };
    (@call $run:ident, $Format:ty, ($($arg:expr),*)) => { $run::<$Format, _>($($arg),*) };
}
pub(super) use in_format;

/// A matrix in one element type, with a preconditioner in the same or a narrower one.
struct Iterative<F: Format, B: Spmv<F>> {
    a: Mat<B, F>,
    m: Boxed<F::Value, B>,
    workspaces: Workspaces<F::Value, B>,
}

/// An iteration in the element type of the matrix.
pub(super) fn native<T: Real, B: EveryFormat<T> + EveryMethod<T> + Makes<T> + Rows<T>>(
    be: &B,
    supply: Supply<T, B>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    setup.begin(Stage::SetUp, plan.preconditioner)?;
    let m = make(be, &supply, plan, setup)?;
    be.synchronize()?;
    setup.end_setup();
    iterative(be, supply, m, plan, setup)
}

/// An iteration in f64 with a preconditioner in f32.
pub(super) fn mixed<B>(
    be: &B,
    supply: Supply<f64, B>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<f64, B> + Send>>
where
    B: EveryFormat<f64>
        + EveryMethod<f32>
        + EveryMethod<f64>
        + Makes<f32>
        + Makes<f64>
        + Rows<f64>
        + Rows<f32>
        + Narrow,
{
    setup.begin(Stage::SetUp, plan.preconditioner)?;
    let n = plan.nrows;
    let narrowing = Narrowing::of(&supply);
    // If the policy chose f32, f64 comes before another preconditioner.
    let otherwise = if plan.is_narrowed { plan.otherwise.take() } else { None };
    let m: Boxed<f32, B> = match make(be, &narrowing, plan, setup) {
        Err(error) if plan.is_narrowed && !matches!(error, Error::Interrupted { .. }) => {
            setup.note(&format!("{} failed in f32 ({error}), so it is made in f64", plan.preconditioner))?;
            drop(narrowing);
            plan.widen();
            plan.otherwise = otherwise;
            return native(be, supply, plan, setup);
        }
        made => made?,
    };
    plan.otherwise = plan.otherwise.or(otherwise);
    let exponent = narrowing.exponent();
    drop(narrowing);
    let m: Boxed<f64, B> = Box::new(Mixed::new(be, m, n, exponent)?);
    Device::synchronize(be)?;
    setup.end_setup();
    iterative(be, supply, m, plan, setup)
}

fn iterative<T: Real, B: EveryFormat<T> + EveryMethod<T> + Rows<T> + Rewrites<T>>(
    be: &B,
    supply: Supply<T, B>,
    m: Boxed<T, B>,
    plan: &Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    spandrel_formats::for_each_format!(in_format, (T, plan.format, iterative_in, (be, supply, m, plan, setup)))
}

fn iterative_in<F: Format, B: Spmv<F> + EveryMethod<F::Value> + Rows<F::Value> + Rewrites<F::Value>>(
    be: &B,
    supply: Supply<F::Value, B>,
    m: Boxed<F::Value, B>,
    plan: &Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<F::Value, B> + Send>> {
    setup.begin(Stage::Load, F::NAME)?;
    let a = supply.stored::<F>(be)?;
    be.synchronize()?;
    setup.end_load();
    let mut engine: Box<dyn Engine<F::Value, B> + Send> = Box::new(Iterative { a, m, workspaces: Workspaces::new() });
    rehearse(&mut *engine, be, plan)?;
    setup.end_setup();
    Ok(engine)
}

/// Writes the values of a CSR matrix on the device, and reads them back.
trait Rewrites<T: Real>: UpdateValues<Csr<T>> + Download<Csr<T>> {}
impl<T: Real, B: UpdateValues<Csr<T>> + Download<Csr<T>>> Rewrites<T> for B {}

impl<F: Format, B: Spmv<F> + EveryMethod<F::Value> + Rewrites<F::Value> + 'static> Iterative<F, B> {
    /// The matrix, if it is stored in CSR, so that its values can be written in place.
    fn rows(&mut self) -> Option<&mut Mat<B, Csr<F::Value>>> {
        (&mut self.a as &mut dyn Any).downcast_mut()
    }
}

impl<F: Format, B: Spmv<F> + EveryMethod<F::Value> + Rows<F::Value> + Rewrites<F::Value>> Engine<F::Value, B>
    for Iterative<F, B>
{
    fn run(
        &mut self,
        be: &B,
        call: Call<'_, F::Value>,
        b: &Vector<F::Value, B>,
        x: &mut Vector<F::Value, B>,
    ) -> Result<Outcome> {
        self.workspaces.run(be, call, &self.a, &self.m, b, x)
    }
    fn precondition(&self, be: &B, r: &Vector<F::Value, B>, z: &mut Vector<F::Value, B>) -> Result<()> {
        Ok(self.m.apply(be, None, r, z)?)
    }
    fn renew(&mut self, be: &B, a: &Supply<F::Value, B>) -> Result<f64> {
        if self.rows().is_some() {
            let shift = self.m.renew(be, a)?;
            if let Some(rows) = self.rows() {
                rows.update_values(be, a.host().values())?;
            }
            return Ok(shift);
        }
        // The matrix first: if it fails, nothing has changed.
        let stored = a.again::<F>(be)?;
        let shift = self.m.renew(be, a)?;
        self.a = stored;
        Ok(shift)
    }
    fn renew_from(&mut self, be: &B, values: &Vector<F::Value, B>) -> Option<Result<f64>> {
        self.rows()?;
        let shift = match self.m.renew_from(be, values)? {
            Ok(shift) => shift,
            Err(error) => return Some(Err(error)),
        };
        let updated = self.rows()?.update_values_from(be, values);
        Some(updated.map(|()| shift).map_err(Error::from))
    }
    fn matrix(&self, be: &B) -> Option<Result<Csr<F::Value>>> {
        let rows: &Mat<B, Csr<F::Value>> = (&self.a as &dyn Any).downcast_ref()?;
        Some(rows.download(be).map_err(Error::from))
    }
    fn narrow_bytes(&self, be: &B) -> Option<u64> {
        self.a.is_narrow(be).then(|| self.a.spmv_bytes())
    }
}

/// Corrections with matrix and preconditioner in f32; residuals and x in f64.
struct Refined<F: Format<Value = f32>, B: Spmv<F> + Spmv<Csr<f64>> + Narrow> {
    wide: Mat<B, Csr<f64>>,
    narrow: Mat<B, F>,
    exponent: i32,
    m: Boxed<f32, B>,
    refine: Option<Refine<B>>,
    workspaces: Workspaces<f32, B>,
}

/// Iterative refinement.
pub(super) fn refined<B>(
    be: &B,
    supply: Supply<f64, B>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<f64, B> + Send>>
where
    B: EveryFormat<f32> + EveryMethod<f32> + Spmv<Csr<f64>> + Makes<f32> + Rows<f32> + Narrow + 'static,
{
    spandrel_formats::for_each_format!(in_format, (f32, plan.format, refined_in, (be, supply, plan, setup)))
}

fn refined_in<F, B>(
    be: &B,
    supply: Supply<f64, B>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<f64, B> + Send>>
where
    F: Format<Value = f32>,
    B: Spmv<F> + EveryMethod<f32> + Spmv<Csr<f64>> + Spmv<Bsr<f32>> + Makes<f32> + Rows<f32> + Narrow + 'static,
{
    setup.begin(Stage::Load, "csr")?;
    supply.rows(be)?;
    Device::synchronize(be)?;
    setup.end_load();
    setup.begin(Stage::SetUp, plan.preconditioner)?;
    let narrowing = Narrowing::of(&supply);
    let m = make::<f32, B>(be, &narrowing, plan, setup)?;
    setup.end_setup();
    setup.begin(Stage::Load, F::NAME)?;
    let (narrow, exponent) = narrowing.stored::<F>(be)?;
    let wide = supply.into_rows(be)?;
    Device::synchronize(be)?;
    setup.end_load();
    let mut engine: Box<dyn Engine<f64, B> + Send> =
        Box::new(Refined { wide, narrow, exponent, m, refine: None, workspaces: Workspaces::new() });
    rehearse(&mut *engine, be, plan)?;
    setup.end_setup();
    Ok(engine)
}

impl<F, B> Engine<f64, B> for Refined<F, B>
where
    F: Format<Value = f32>,
    B: Spmv<F> + EveryMethod<f32> + Spmv<Csr<f64>> + Narrow,
{
    fn run(
        &mut self,
        be: &B,
        call: Call<'_, f64>,
        b: &<B as Backend<f64>>::Vector,
        x: &mut <B as Backend<f64>>::Vector,
    ) -> Result<Outcome> {
        let Self { wide, narrow, exponent, m, refine, workspaces } = self;
        let refine = match refine {
            Some(refine) => refine,
            none => none.insert(Refine::new(be, wide.nrows())?),
        };
        let Call { method, options, restart, observer } = call;
        if method == Method::Direct {
            return Err(not_an_iteration());
        }
        let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
            // The x of this iteration is a correction of the solve's x.
            let observer = &mut |progress, _: Iterate<'_, f32>| watcher(progress);
            workspaces.run(be, Call { method, options: *options, restart, observer }, narrow, m, r, d)
        };
        let watcher = &mut |progress| observer(progress, Iterate::none());
        refine.solve_watched(be, wide, *exponent, inner, b, x, &options, watcher)
    }
    fn precondition(&self, be: &B, r: &<B as Backend<f64>>::Vector, z: &mut <B as Backend<f64>>::Vector) -> Result<()> {
        Ok(Mixed::new(be, &self.m, self.wide.nrows(), self.exponent)?.apply(be, None, r, z)?)
    }
    fn renew(&mut self, be: &B, a: &Supply<f64, B>) -> Result<f64> {
        let narrowing = Narrowing::of(a);
        let wide = Mat::load(be, Arc::clone(a.host()))?;
        let narrow = loaded(be, narrowing.host())?;
        let shift = self.m.renew(be, &narrowing)?;
        (self.wide, self.narrow, self.exponent) = (wide, narrow, narrowing.exponent());
        Ok(shift)
    }
    fn renew_from(&mut self, _: &B, _: &<B as Backend<f64>>::Vector) -> Option<Result<f64>> {
        None
    }
    fn matrix(&self, _: &B) -> Option<Result<Csr<f64>>> {
        None
    }
    fn narrow_bytes(&self, _: &B) -> Option<u64> {
        None
    }
}
