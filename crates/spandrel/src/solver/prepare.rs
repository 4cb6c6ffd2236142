//! Prepares rows and columns of a hard matrix for an iteration: multiplies them by powers of two, and permutes rows so
//! that large entries are on the diagonal.
//!
//! With R and C diagonal and P a permutation, the iteration works on P R A C. Everything outside uses A: the solver
//! recomputes residuals with A, and [`Corrections`] continues until they are small enough.
//!
//! Cost: an equilibration passes at most about 14 times over the exponents of the entries; a matching rarely takes more
//! than a second per ten million entries. Then come a second copy of the matrix, and per correction two copies of a
//! vector between device and host.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{Backend, Spmv};
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Equilibration, Matched, Real, Spread, maximum_product};
use spandrel_solvers::{Corrections, Error, Iterate, Options, Outcome, Result, Watcher};

use super::build::Setup;
use super::element::{Element, SolverBackend};
use super::engine::{Call, Engine};
use super::kernel;
use super::plan::Plan;
use super::renumber;
use super::settings::{NullVectors, Scale};
use super::supply::{Given, Supply};
use crate::Mat;

/// Two limits in binary orders of magnitude. If rows or columns differ by more than the first, they are scaled, because
/// rounding errors of the largest would hide the smallest. If entries stay within the second, no product of three of
/// them leaves the range of the type.
fn limits<T: Real>() -> (u32, i32) {
    if T::BYTES == 4 { (23, 40) } else { (52, 200) }
}

/// The transformation of A to P R A C.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preparation {
    by: Equilibration,
    /// The permutation P.
    rows: Option<Permutation>,
}

impl Preparation {
    /// The scaling of a matrix; `None` if it changes nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a matrix without a matching; entries that are infinite or NaN.
    pub(super) fn of<T: Real>(scale: Scale, a: &Csr<T>, is_symmetric: bool) -> Result<Option<Self>> {
        let made = match scale {
            Scale::None => return Ok(None),
            Scale::Equilibrate if is_symmetric => Self { by: Equilibration::symmetric(a)?, rows: None },
            Scale::Equilibrate => Self { by: Equilibration::general(a)?, rows: None },
            Scale::Match => match maximum_product(a)? {
                Matched::Whole(found) => Self { by: found.scaling, rows: Some(found.rows) },
                Matched::Deficient(why) => {
                    return Err(Error::Unsupported {
                        why: format!("the matrix has no matching: {why}; use --scale equilibrate or none"),
                    });
                }
            },
        };
        let moves =
            made.rows.as_ref().is_some_and(|rows| rows.perm().iter().enumerate().any(|(i, &j)| i != j as usize));
        Ok((moves || !made.by.is_identity()).then_some(made))
    }

    /// P R A C. Entries that leave the range of their type become zero or infinite.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if an entry becomes infinite.
    pub(super) fn apply<T: Real>(&self, a: &Csr<T>) -> Result<Csr<T>> {
        let (scaled, lost) = self.by.apply(a)?;
        if lost.overflowed > 0 {
            return Err(Error::Unsupported { why: "a scaled entry is infinite; use --scale none".into() });
        }
        Ok(match &self.rows {
            Some(rows) => rows.permute_rows(&scaled)?,
            None => scaled,
        })
    }

    /// P R r.
    fn residual<T: Real>(&self, mut r: Vec<T>) -> Result<Vec<T>> {
        self.by.scale_rhs(&mut r)?;
        Ok(match &self.rows {
            Some(rows) => rows.apply(&r)?,
            None => r,
        })
    }
}

/// The scaling that a matrix needs, and why: none, unless its rows or columns differ greatly in magnitude. The diagonal
/// is checked first, so most matrices cost one pass over the rows.
pub(super) fn asked_for<T: Real>(a: &Csr<T>) -> Option<String> {
    let (uneven_from, extreme_from) = limits::<T>();
    let rows = (0..a.nrows().min(a.ncols())).into_par_iter().with_min_len(1 << 12);
    let on_diagonal = rows.filter_map(|i| a.get(i, i)).map(T::abs).filter(|v| v.is_finite() && *v != T::zero());
    let ones = || (T::one(), T::one());
    let (least, most) = on_diagonal
        .fold(ones, |(least, most), v| (v.min(least), v.max(most)))
        .reduce(ones, |one, other| (one.0.min(other.0), one.1.max(other.1)));
    let exponent = |v: T| v.as_f64().log2() as i32;
    let (least, most) = (exponent(least), exponent(most));
    if least.abs_diff(most) < uneven_from {
        return None;
    }
    if least < -extreme_from || most > extreme_from {
        return Some(format!("the diagonal reaches from 2^{least} to 2^{most}"));
    }
    let spread = Spread::of(a).ok()?;
    let uneven = spread.rows.max(spread.cols);
    (uneven >= uneven_from)
        .then(|| format!("the largest entries of its rows or columns differ by a factor of 2^{uneven}"))
}

/// An iteration on P R A C.
struct Prepared<T: Real, B: Spmv<Csr<T>>> {
    a: Mat<B, Csr<T>>,
    preparation: Arc<Preparation>,
    within: Box<dyn Engine<T, B> + Send>,
    corrections: Option<Corrections<T, B>>,
}

/// Sets up the iteration of a plan, on the prepared matrix if the plan has a preparation.
pub(super) fn engine<T: Element, B: SolverBackend<T>>(
    device: &B,
    a: Arc<Csr<T>>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    if plan.null_space != NullVectors::None {
        return kernel::engine(device, a, plan, setup);
    }
    let Some(preparation) = plan.preparation.clone() else { return renumber::engine(device, a, plan, setup) };
    let prepared = Arc::new(preparation.apply(&*a)?);
    let within = T::engine(device, Supply::new(prepared), plan, setup)?;
    let a = Mat::load(device, a)?;
    Ok(Box::new(Prepared { a, preparation, within, corrections: None }))
}

impl<T: Element, B: SolverBackend<T>> Engine<T, B> for Prepared<T, B> {
    fn run(
        &mut self,
        be: &B,
        call: Call<'_, T>,
        b: &<B as Backend<T>>::Vector,
        x: &mut <B as Backend<T>>::Vector,
    ) -> Result<Outcome> {
        let Self { a, preparation, within, corrections } = self;
        let n = a.nrows();
        let corrections = match corrections {
            Some(corrections) => corrections,
            none => none.insert(Corrections::new(be, n)?),
        };
        let Call { method, options, restart, observer } = call;
        let correct = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
            let r = preparation.residual(Backend::<T>::download(be, r)?)?;
            let (r, mut y) = (Backend::<T>::upload(be, &r)?, Backend::<T>::zeros(be, n)?);
            // The x of this iteration is a correction of the solve's x.
            let observer = &mut |progress, _: Iterate<'_, T>| watcher(progress);
            let outcome = within.run(be, Call { method, options: *options, restart, observer }, &r, &mut y)?;
            let mut y = Backend::<T>::download(be, &y)?;
            preparation.by.unscale_x(&mut y)?;
            Backend::<T>::write(be, &y, d)?;
            Ok(outcome)
        };
        let watcher = &mut |progress| observer(progress, Iterate::none());
        corrections.solve_watched(be, a, 0.0, correct, b, x, &options, watcher)
    }

    fn precondition(&self, be: &B, r: &<B as Backend<T>>::Vector, z: &mut <B as Backend<T>>::Vector) -> Result<()> {
        let r = self.preparation.residual(Backend::<T>::download(be, r)?)?;
        let (r, mut y) = (Backend::<T>::upload(be, &r)?, Backend::<T>::zeros(be, self.a.nrows())?);
        self.within.precondition(be, &r, &mut y)?;
        let mut y = Backend::<T>::download(be, &y)?;
        self.preparation.by.unscale_x(&mut y)?;
        Ok(Backend::<T>::write(be, &y, z)?)
    }

    fn renew(&mut self, be: &B, a: &Supply<T, B>) -> Result<f64> {
        let prepared = Arc::new(self.preparation.apply(&**a.host())?);
        let stored = Mat::load(be, Arc::clone(a.host()))?;
        let shift = self.within.renew(be, &Supply::new(prepared))?;
        self.a = stored;
        Ok(shift)
    }

    fn renew_from(&mut self, _: &B, _: &<B as Backend<T>>::Vector) -> Option<Result<f64>> {
        None
    }

    fn matrix(&self, _: &B) -> Option<Result<Csr<T>>> {
        None
    }

    fn narrow_bytes(&self, be: &B) -> Option<u64> {
        self.within.narrow_bytes(be)
    }
}
