//! Rows and columns of a hard matrix, prepared for an iteration: multiplied by powers of two, and rows exchanged so that large entries stand
//! on the diagonal.
//!
//! With R and C diagonal and P a permutation, the iteration works on P R A C. Everything outside of it stays as given: the solver
//! recomputes residuals with A, and [`Corrections`] goes on until those are small enough.
//!
//! Cost: an equilibration takes at most about 14 passes over the exponents of the entries, a matching seldom more than a second per ten
//! million entries; then a second copy of the matrix, and per correction two copies of a vector between device and host.

use std::sync::Arc;

use spandrel_backend::{Backend, Spmv};
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Equilibration, Matched, Real, Spread, maximum_product};
use spandrel_solvers::{Corrections, Error, Options, Outcome, Result, Watcher};

use super::build::Setup;
use super::element::{Element, SolverBackend};
use super::engine::{Call, Engine};
use super::kernel;
use super::plan::Plan;
use super::settings::{NullVectors, Scale};
use crate::Mat;

/// Binary orders of magnitude between the rows, or the columns, from which they are scaled: rounding errors of the largest then hide the
/// smallest in f64.
const UNEVEN: u32 = 52;
/// Binary orders of magnitude of all entries from which they are scaled: no product of three of them leaves the range of f64.
const EXTREME: i32 = 200;

/// P R A C of a matrix A.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preparation {
    by: Equilibration,
    /// P.
    rows: Option<Permutation>,
}

impl Preparation {
    /// What a scaling does with a matrix; `None` if that is nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the matching of a matrix that has none; entries that are infinite or NaN.
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

/// The scaling that a matrix asks for, and why: none, unless its rows or columns are of very different magnitudes. The diagonal is looked at
/// first, so that most matrices cost one pass over the rows.
pub(super) fn asked_for<T: Real>(a: &Csr<T>) -> Option<String> {
    let exponent = |v: T| v.as_f64().abs().log2() as i32;
    let on_diagonal = a.diagonal().into_iter().filter(|v| v.is_finite() && *v != T::zero()).map(exponent);
    let (least, most) = on_diagonal.fold((0, 0), |(least, most), e| (e.min(least), e.max(most)));
    if least.abs_diff(most) < UNEVEN {
        return None;
    }
    if least < -EXTREME || most > EXTREME {
        return Some(format!("the diagonal reaches from 2^{least} to 2^{most}"));
    }
    let spread = Spread::of(a).ok()?;
    let uneven = spread.rows.max(spread.cols);
    (uneven >= UNEVEN).then(|| format!("the largest entries of its rows or columns differ by a factor of 2^{uneven}"))
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
    let Some(preparation) = plan.preparation.clone() else { return T::engine(device, a, plan, setup) };
    let prepared = Arc::new(preparation.apply(&*a)?);
    let within = T::engine(device, prepared, plan, setup)?;
    let a = Mat::load(device, a)?;
    Ok(Box::new(Prepared { a, preparation, within, corrections: None }))
}

impl<T: Element, B: SolverBackend<T>> Engine<T, B> for Prepared<T, B> {
    fn run(
        &mut self,
        be: &B,
        call: Call<'_>,
        b: &<B as Backend<T>>::Vector,
        x: &mut <B as Backend<T>>::Vector,
    ) -> Result<Outcome> {
        let Self { a, preparation, within, corrections } = self;
        let n = a.nrows();
        let corrections = match corrections {
            Some(corrections) => corrections,
            none => none.insert(Corrections::new(be, n)?),
        };
        let Call { method, options, restart, watcher } = call;
        let correct = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
            let r = preparation.residual(Backend::<T>::download(be, r)?)?;
            let (r, mut y) = (Backend::<T>::upload(be, &r)?, Backend::<T>::zeros(be, n)?);
            let outcome = within.run(be, Call { method, options: *options, restart, watcher }, &r, &mut y)?;
            let mut y = Backend::<T>::download(be, &y)?;
            preparation.by.unscale_x(&mut y)?;
            Backend::<T>::write(be, &y, d)?;
            Ok(outcome)
        };
        corrections.solve_watched(be, a, 0.0, correct, b, x, &options, watcher)
    }

    fn renew(&mut self, be: &B, a: &Arc<Csr<T>>) -> Result<f64> {
        let prepared = Arc::new(self.preparation.apply(&**a)?);
        let stored = Mat::load(be, Arc::clone(a))?;
        let shift = self.within.renew(be, &prepared)?;
        self.a = stored;
        Ok(shift)
    }

    fn renew_from(&mut self, _: &B, _: &<B as Backend<T>>::Vector) -> Option<Result<f64>> {
        None
    }

    fn narrow_bytes(&self, be: &B) -> Option<u64> {
        self.within.narrow_bytes(be)
    }
}
