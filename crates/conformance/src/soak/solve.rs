//! One case: a system, a format, a preconditioner and a solver at random on one device.

use spandrel_backend::{Backend, Mat, MixedPrecision, Operator, Order, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Csr, Format, Real};
use spandrel_solvers::{
    BlockJacobi, DeviceFactored, Error, Factorable, Factored, GmresOptions, Hierarchy, Identity, Isai, Jacobi,
    JacobiSweeps, Method, Mixed, Multigrid, Options, Outcome, Placement,
};
use spandrel_sptrsv::{Capellini, Factor, Ic0, Ilu0, Iluk, Levelset, Plan, Serial, Ssor, Sweep};

use super::judge::{Reference, judge};
use super::system::System;
use crate::case::Stream;
use crate::named::Workspace;
use crate::reference::difference;
use crate::subject::{EveryFactor, EveryFormat, EveryMethod, EveryPlan, FORMATS, PLANS};

/// What a soak needs of a backend for one element type.
pub trait Soaked<T: Real>: EveryFormat<T> + EveryPlan<T> + EveryFactor<T> + EveryMethod<T> + 'static {}
impl<T: Real, B: EveryFormat<T> + EveryPlan<T> + EveryFactor<T> + EveryMethod<T> + 'static> Soaked<T> for B {}

/// What a soak needs of a backend.
pub trait Subject: Soaked<f32> + Soaked<f64> + MixedPrecision {}
impl<B: Soaked<f32> + Soaked<f64> + MixedPrecision> Subject for B {}

type Boxed<T, B> = Box<dyn Preconditioner<T, B>>;

/// An element type, and the preconditioner that only the wider one has.
pub(super) trait Element: Factorable {
    fn mixed<B: Subject>(be: &B, csr: &Csr<Self>) -> Option<spandrel_solvers::Result<Boxed<Self, B>>>;
}
impl Element for f64 {
    fn mixed<B: Subject>(be: &B, csr: &Csr<Self>) -> Option<spandrel_solvers::Result<Boxed<Self, B>>> {
        Some(Mixed::of(be, csr, Jacobi::<f32, B>::new).map(|mixed| Box::new(mixed) as Boxed<Self, B>))
    }
}
impl Element for f32 {
    fn mixed<B: Subject>(_: &B, _: &Csr<Self>) -> Option<spandrel_solvers::Result<Boxed<Self, B>>> {
        None
    }
}

/// A matrix in any format, so that solvers are compiled once per element type and not once per format.
type Stored<T, B> = Box<dyn Operator<T, B>>;

macro_rules! in_format {
    ([$name:ident $be:ident $csr:ident $T:ident $B:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        match $name {
            $(stringify!($stem) => {
                let host = spandrel_formats::$Type::<$T>::from_csr($csr)?;
                let order = Spmv::<spandrel_formats::$Type<$T>>::order($be);
                let mat = Mat::<$B, spandrel_formats::$Type<$T>>::load($be, host)?;
                (Box::new(mat) as Box<dyn Operator<$T, $B>>, order)
            })*
            _ => (Box::new(Mat::<$B, Csr<$T>>::load($be, $csr.clone())?) as _, Spmv::<Csr<$T>>::order($be)),
        }
    };
}

fn stored<T: Real, B: Soaked<T>>(be: &B, csr: &Csr<T>, name: &str) -> spandrel_solvers::Result<(Stored<T, B>, Order)> {
    Ok(spandrel_formats::for_each_format!(in_format, name, be, csr, T, B))
}

/// M^-1, and whether its bits are the same in every run.
type Made<T, B> = spandrel_solvers::Result<(Boxed<T, B>, bool)>;

fn factored<T: Real, P: Plan<Value = T>, F: Factor<Value = T>, B: Sptrsv<P> + 'static>(
    be: &B,
    csr: &Csr<T>,
) -> Made<T, B> {
    let made = Factored::<B, P, F>::new(be, csr)?;
    let repeats = made.is_stored_order(be);
    Ok((Box::new(made), repeats))
}

fn factored_there<T, P, F, B>(be: &B, csr: &Csr<T>) -> Made<T, B>
where
    T: Real,
    P: Plan<Value = T>,
    F: Factor<Value = T>,
    B: Sptrsv<P> + spandrel_backend::Factorize<F> + Backend<T> + 'static,
{
    let made = DeviceFactored::<B, P, F>::new(be, csr)?;
    let repeats = made.solves().is_stored_order(be);
    Ok((Box::new(made), repeats))
}

macro_rules! by_plan {
    ([$name:ident $be:ident $csr:ident $T:ident $B:ident] $(($stem:ident, $Plan:ident)),* $(,)?) => {
        match $name {
            $(stringify!($stem) => factored::<$T, spandrel_sptrsv::$Plan<$T>, Ilu0<$T>, $B>($be, $csr),)*
            _ => factored::<$T, Serial<$T>, Ilu0<$T>, $B>($be, $csr),
        }
    };
}

fn precond<T: Element, B: Subject + Soaked<T>>(s: &mut Stream, be: &B, csr: &Csr<T>) -> (String, Made<T, B>) {
    let repeats = Spmv::<Csr<T>>::order(be) != Order::Unordered;
    let boxed = |made: spandrel_solvers::Result<Boxed<T, B>>, repeats| made.map(|made| (made, repeats));
    let (plan, size) = (s.of(PLANS), s.between(1, 9));
    let (what, made): (&str, Made<T, B>) = match s.below(15) {
        0 | 1 => ("none", Ok((Box::new(Identity), true))),
        2 => ("jacobi", boxed(Jacobi::new(be, csr).map(|m| Box::new(m) as _), true)),
        3 => {
            let repeats = Spmv::<spandrel_formats::Bsr<T>>::order(be) != Order::Unordered;
            let made = boxed(BlockJacobi::new(be, csr, size).map(|m| Box::new(m) as _), repeats);
            return (format!("block jacobi of {size}"), made);
        }
        4..=6 => {
            let made = spandrel_sptrsv::for_each_plan!(by_plan, plan, be, csr, T, B);
            return (format!("ilu0 by {plan}"), made);
        }
        7 => ("ic0 by levelset", factored::<T, Levelset<T>, Ic0<T>, B>(be, csr)),
        8 => ("ic0 by sweep", factored::<T, Sweep<T>, Ic0<T>, B>(be, csr)),
        9 => ("iluk by levelset", factored::<T, Levelset<T>, Iluk<T>, B>(be, csr)),
        10 => ("ssor by levelset", factored::<T, Levelset<T>, Ssor<T>, B>(be, csr)),
        11 => ("ilu0 of the device by capellini", factored_there::<T, Capellini<T>, Ilu0<T>, B>(be, csr)),
        12 => {
            let sweeps = boxed(JacobiSweeps::<B, Ilu0<T>>::new(be, csr, size).map(|m| Box::new(m) as _), repeats);
            return (format!("{size} sweeps with ilu0"), sweeps);
        }
        13 => {
            ("approximate inverses of ilu0", boxed(Isai::<B, Ilu0<T>>::new(be, csr).map(|m| Box::new(m) as _), repeats))
        }
        _ => match T::mixed(be, csr) {
            Some(made) if size < 4 => ("jacobi in f32", boxed(made, true)),
            _ => {
                let hierarchy = Hierarchy::galerkin(csr, None);
                let made = hierarchy.and_then(|h| Multigrid::new::<Levelset<T>>(be, &h));
                ("multigrid by levelset", boxed(made.map(|m| Box::new(m) as _), false))
            }
        },
    };
    (what.to_owned(), made)
}

/// The word for a refusal that any user may meet.
///
/// # Errors
/// Any other error, in words.
fn refusal(error: Error) -> Result<String, String> {
    if let Some(status) = error.status() {
        return Ok(format!("refused: {status}"));
    }
    match error {
        Error::Triangle(
            spandrel_sptrsv::Error::MissingPivot { .. } | spandrel_sptrsv::Error::MissingDiagonal { .. },
        ) => Ok("refused: no diagonal".into()),
        Error::NotAGrid { .. }
        | Error::Triangle(
            spandrel_sptrsv::Error::NotAGrid { .. }
            | spandrel_sptrsv::Error::OutsideStencil { .. }
            | spandrel_sptrsv::Error::PartOfStencil { .. },
        ) => Ok("refused: no grid".into()),
        Error::Format(spandrel_formats::Error::DoesNotFit { .. }) => Ok("refused: does not fit the format".into()),
        Error::Backend(spandrel_backend::Error::Unsupported { .. }) => Ok("refused: unsupported".into()),
        other => Err(format!("expected an outcome or a refusal, got the error: {other}")),
    }
}

struct Case<'a, T, B> {
    be: &'a B,
    csr: &'a Csr<T>,
    b: Vec<T>,
    x0: Vec<T>,
    method: Method,
    gmres: GmresOptions,
}

impl<T: Element, B: Subject + Soaked<T>> Case<'_, T, B> {
    fn solve(
        &self,
        a: &Stored<T, B>,
        m: &Boxed<T, B>,
        options: &Options,
    ) -> spandrel_solvers::Result<(Outcome, Vec<T>)> {
        let (be, n) = (self.be, self.csr.nrows());
        let (b, mut x) = (Backend::<T>::upload(be, &self.b)?, Backend::<T>::upload(be, &self.x0)?);
        let outcome = Workspace::<T, B>::new(be, n, self.method, &self.gmres)?.solve(be, a, m, &b, &mut x, options)?;
        Ok((outcome, Backend::<T>::download(be, &x)?))
    }
}

fn options<T: Real>(s: &mut Stream) -> Options {
    let digits = if T::BYTES == 4 { s.between(1, 7) } else { s.between(1, 14) };
    Options {
        rtol: Some(0.1f64.powi(digits as i32)),
        atol: if s.one_in(10) { 1e-3 } else { 0.0 },
        max_iters: if s.one_in(4) { Some(s.below(60)) } else { None },
        check_every: s.between(1, 40),
        recorded: !s.one_in(3),
        persistent: !s.one_in(3),
        max_restarts: if s.one_in(4) { s.below(4) } else { 20 },
        ..Options::default()
    }
}

/// The result of a case: the word to count.
///
/// # Errors
/// A contradiction, in words.
fn of_type<T: Element, B: Subject + Soaked<T>>(
    be: &B,
    s: &mut Stream,
    system: &System,
    what: &mut String,
) -> Result<String, String> {
    let csr = &system.a.map(T::from_f64);
    let narrow = |v: &[f64]| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    let format = s.of(FORMATS);
    let iterations: Vec<&Method> = Method::ALL.iter().filter(|method| **method != Method::Direct).collect();
    let method = *s.of(&iterations);
    let placement = [Placement::Right, Placement::Left, Placement::Flexible][s.below(3)];
    let gmres = GmresOptions { restart: s.between(1, 40), placement };
    let options = options::<T>(s);
    *what += &format!("; {} in {format} by {method}", T::NAME);
    if method != Method::Cg {
        *what += &format!("({}, {placement:?})", gmres.restart);
    }
    let (name, made) = precond::<T, B>(s, be, csr);
    *what += &format!(" with {name}; {options:?}");
    let (a, order) = match stored(be, csr, format) {
        Ok(stored) => stored,
        Err(error) => return refusal(error),
    };
    let (m, repeats) = match made {
        Ok(made) => made,
        Err(error) => return refusal(error),
    };
    let case = Case { be, csr, b: narrow(&system.b), x0: narrow(&system.x0), method, gmres };
    let (outcome, x) = match case.solve(&a, &m, &options) {
        Ok(solved) => solved,
        Err(error) => return refusal(error),
    };
    let reference = Reference::new(csr, &case.b);
    judge(csr, &case.b, &x, &options, &outcome, reference.as_ref(), system.tame, method.as_str())
        .map_err(|why| format!("{why} ({outcome:?})"))?;
    if repeats && order != Order::Unordered {
        let again = Options { check_every: s.between(1, 40), recorded: !options.recorded, ..options };
        let again = Options { persistent: !options.persistent, ..again };
        let (other, x_again) = case.solve(&a, &m, &again).map_err(|error| format!("solved, then refused: {error}"))?;
        if let Some(detail) = difference(&x_again, &x) {
            return Err(format!("x of a second solve, with {again:?}: {detail}"));
        }
        if (other.status, other.iterations) != (outcome.status, outcome.iterations) {
            return Err(format!("a second solve, with {again:?}: {other:?}, the first: {outcome:?}"));
        }
    }
    Ok(outcome.status.to_string())
}

/// Runs the case of a stream. `what` gets its description as far as it has been decided.
///
/// # Errors
/// A contradiction, in words.
pub(super) fn case<B: Subject>(be: &B, s: &mut Stream, what: &mut String) -> Result<String, String> {
    let caught = crate::trial::quietly(|| {
        let system = System::new(s).map_err(|error| format!("the system: {error}"))?;
        *what += &format!("{} of {} rows", system.what, system.a.nrows());
        if s.one_in(2) { of_type::<f64, B>(be, s, &system, what) } else { of_type::<f32, B>(be, s, &system, what) }
    });
    caught.unwrap_or_else(|panic| Err(format!("panicked: {panic}")))
}
