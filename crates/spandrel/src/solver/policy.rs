//! The policy: it chooses method, preconditioner, format and precision for a matrix on a device, and their substitutes.
//!
//! No other code makes these choices. The program, the bench and the conformance suite call it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use spandrel_backend::{Order, Spmv};
use spandrel_formats::choose::{Candidate, choose};
use spandrel_formats::{Csr, Grid, Profile, Real, Survey};
use spandrel_solvers::amg::AmgExpected;
use spandrel_solvers::direct::Factorable;
use spandrel_solvers::multigrid::Expected;
use spandrel_solvers::{AmgOptions, Error, Method, MgOptions, Precond, Result};
use spandrel_sptrsv::IlutOptions;

use super::attempts::takes;
use super::plan::Plan;
use super::prepare::{Preparation, asked_for};
use super::rival::{Pace, Rival, is_dominant};
use super::settings::{Fallback, FormatChoice, NullVectors, Precision, Scale, Settings};
use super::shared::{
    ASKED_FOR, Limits, STAGNANT, multigrid, needs_symmetry, no_stagnation, not_gmres, separates_points, share,
    unsupported, warning_of_symmetry,
};
use super::stronger::{Stronger, suited};
use crate::any::{Choice, EveryFormat};

/// An analysis of at most this many nanoseconds is free: the set-up of incomplete factors takes as long for any matrix.
const SMALL: f64 = 2e5;

/// Plans everything except the format, for a surveyed matrix.
///
/// # Errors
/// [`Error::NotSquare`], [`Error::Unsupported`] and [`Error::NotReproducible`] for settings that contradict the matrix
/// or each other.
pub(super) fn plan<T: Real>(settings: &Settings, a: &Csr<T>, survey: &Survey) -> Result<Plan> {
    let (nrows, ncols) = (a.nrows(), a.ncols());
    let auto = Method::choose_by(survey, nrows == ncols);
    let (method, method_why) = match settings.method {
        None if settings.least_squares => (Method::Direct, "least squares, as asked for"),
        None => (auto.solver, auto.solver_why),
        Some(method) => (method, ASKED_FOR),
    };
    check(settings, method, (nrows, ncols))?;
    let symmetric = survey.symmetric;
    let (preconditioner, preconditioner_why, otherwise) = match (method, settings.preconditioner) {
        (Method::Direct, _) => (Precond::None, Cow::Borrowed("a direct solve needs none"), None),
        (_, None) => {
            let (best, why, plain) = Precond::choose_by(survey, method);
            (best, why, Some(plain).filter(|plain| *plain != best && settings.fallback == Fallback::Auto))
        }
        (_, Some(ic0 @ (Precond::Ic0 | Precond::Ic0Jacobi(_) | Precond::Ic0Isai))) if !symmetric => {
            let instead = ic0.to_string().replace("ic0", "ilu0");
            return Err(needs_symmetry(ic0, &instead));
        }
        (_, Some(chebyshev @ Precond::Chebyshev(_))) if !symmetric => {
            return Err(needs_symmetry(chebyshev, "jacobi or ilu0"));
        }
        (_, Some(amg @ Precond::Amg(_))) if !symmetric => {
            return Err(needs_symmetry(amg, "ilu0 or ilut"));
        }
        (_, Some(asked)) => (asked, ASKED_FOR.into(), None),
    };
    if settings.precision == Precision::Mixed && preconditioner == Precond::None {
        return Err(unsupported(
            "mixed precision stores the preconditioner in f32, and there is none; use refined precision, or name a preconditioner",
        ));
    }
    let warnings = warning_of_symmetry(method, symmetric, "bicgstab, gmres or direct").into_iter().collect();
    let Limits { rtol, atol, max_iterations, check_every, stagnation, restart } = Limits::of::<T>(settings, nrows);
    Ok(Plan {
        nrows,
        ncols,
        nnz: a.nnz(),
        symmetric,
        backend: "",
        device: String::new(),
        device_why: String::new(),
        method,
        method_why: method_why.to_string(),
        preconditioner,
        preconditioner_why: preconditioner_why.into_owned(),
        factor: None,
        replaced: None,
        format: "csr",
        format_why: String::new(),
        precision: settings.precision,
        element: T::NAME,
        reorder: settings.reorder.unwrap_or_default(),
        reorder_why: ASKED_FOR.to_string(),
        scale: Scale::None,
        scale_why: String::new(),
        preparation: None,
        is_narrowed: false,
        least_squares: settings.least_squares,
        null_space: settings.null_space,
        near_null: None,
        reproducible: settings.reproducible,
        rtol,
        atol,
        max_iterations,
        check_every,
        stagnation,
        restart,
        memory_limit: settings.memory_limit,
        warnings,
        method_is_open: settings.method.is_none() && settings.fallback == Fallback::Auto,
        direct_is_open: nrows == ncols && is_open_to_factors(settings),
        order_is_open: false,
        iterative: None,
        otherwise,
        standby: None,
        stronger: None,
    })
}

/// Returns true if the settings allow a complete factorisation, that is, they name nothing that a factorisation does
/// not have.
fn is_open_to_factors(settings: &Settings) -> bool {
    settings.method.is_none()
        && settings.preconditioner.is_none()
        && settings.format == FormatChoice::Auto
        && settings.max_iterations.is_none()
        && settings.precision == Precision::Native
        && settings.restart.is_none()
        && settings.stagnation.is_none()
        && !settings.least_squares
        && settings.null_space == NullVectors::None
        && !settings.reproducible
        && settings.fallback == Fallback::Auto
}

/// Refuses settings that contradict the method or the matrix's shape.
fn check(settings: &Settings, method: Method, (nrows, ncols): (usize, usize)) -> Result<()> {
    let direct = method == Method::Direct;
    if settings.least_squares && !direct {
        return Err(unsupported(format!(
            "least squares are solved by a factorisation, not by {method}; leave one of them out"
        )));
    }
    let names_vectors = settings.null_space != NullVectors::None;
    if names_vectors
        && (direct || settings.precision == Precision::Refined || !matches!(settings.scale, None | Some(Scale::None)))
    {
        return Err(unsupported(
            "a known null space is for cg, bicgstab and gmres in native or mixed precision, on the matrix as it is; leave it out, or the direct method, refined precision and scale",
        ));
    }
    if !direct && nrows != ncols {
        return Err(Error::NotSquare { solver: method.as_str(), nrows, ncols });
    }
    if settings.restart.is_some() && !matches!(settings.method, None | Some(Method::Gmres)) {
        return Err(not_gmres(method));
    }
    if settings.stagnation.is_some() && matches!(method, Method::Gmres | Method::Direct) {
        return Err(no_stagnation(method));
    }
    if let Some(refusal) = separates_points(settings.preconditioner, settings.reorder.unwrap_or_default()) {
        return Err(refusal);
    }
    if let Some(precond) = settings.preconditioner.filter(|&precond| !takes(method, precond)) {
        return Err(unsupported(format!(
            "{method} needs a preconditioner that is linear, and the K-cycle of {precond} is not; use cg or bicgstab, or leave cycle=k out"
        )));
    }
    if direct && settings.reproducible {
        return Err(Error::NotReproducible {
            why: "the order of sums in a direct solve depends on the machine; leave reproducible out, or use an iterative method".into(),
        });
    }
    if direct && !matches!(settings.preconditioner, None | Some(Precond::None)) {
        return Err(unsupported("direct takes no preconditioner; leave it out, or use an iterative method"));
    }
    if direct && settings.precision != Precision::Native {
        return Err(unsupported(format!(
            "direct factors in one precision; leave {} precision out, or use an iterative method",
            settings.precision
        )));
    }
    if direct && !matches!(settings.format, FormatChoice::Auto | FormatChoice::Named("csr")) {
        return Err(unsupported("direct factors CSR; leave the format out, or use an iterative method"));
    }
    Ok(())
}

impl Plan {
    /// Chooses the block size if a block is to be the unknowns of a grid point, for the matrix in the numbering of the
    /// solve.
    pub(super) fn choose_blocks<T: Real>(&mut self, a: &Csr<T>) -> Result<()> {
        if self.preconditioner != Precond::BlockJacobi(None) {
            return Ok(());
        }
        let why = match Grid::detect(a) {
            Ok(grid) if grid.unknowns > 1 => {
                self.preconditioner = Precond::BlockJacobi(Some(grid.unknowns));
                self.preconditioner_why = format!("{grid}");
                return Ok(());
            }
            Ok(grid) => format!("a {grid} has one unknown per point"),
            Err(why) => format!("this matrix is not a grid: {why}"),
        };
        Err(unsupported(format!(
            "block-jacobi=auto takes the unknowns of a grid point, and {why}; say how many rows a block has, e.g. block-jacobi=4"
        )))
    }

    /// Chooses the scaling for the iteration, for the matrix in the numbering of the solve. Returns the matrix to
    /// iterate with, if it differs. An unsymmetric matrix whose diagonal cannot be inverted gets a matching and ILUT.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a scaling that was named and contradicts the matrix or the method.
    pub(super) fn choose_scale<T: Real>(
        &mut self,
        settings: &Settings,
        a: &Csr<T>,
        survey: &Survey,
    ) -> Result<Option<Csr<T>>> {
        let is_known = settings.null_space != NullVectors::None;
        if self.method == Method::Direct || self.nrows == 0 || survey.not_finite.is_some() || is_known {
            return match settings.scale {
                Some(scale @ (Scale::Equilibrate | Scale::Match)) if self.method == Method::Direct => Err(unsupported(
                    format!("direct scales by its own rules; leave {scale} out, or use an iterative method"),
                )),
                _ => Ok(None),
            };
        }
        let is_hollow = survey.not_invertible.is_some() && !survey.symmetric;
        let is_open = settings.fallback == Fallback::Auto && settings.format == FormatChoice::Auto;
        let (scale, why) = match settings.scale {
            Some(scale) => (scale, ASKED_FOR.to_string()),
            None if is_hollow && is_open && settings.preconditioner.is_none() && settings.method.is_none() => {
                (Scale::Match, self.preconditioner_why.clone())
            }
            None => match asked_for(a) {
                Some(why) if is_open => (Scale::Equilibrate, why),
                _ => return Ok(None),
            },
        };
        if scale == Scale::Match && self.method == Method::Cg {
            return Err(unsupported(
                "a matching exchanges rows, so the matrix is no longer symmetric; use equilibrate with cg, or bicgstab or gmres",
            ));
        }
        let made = match Preparation::of(scale, a, survey.symmetric) {
            Ok(made) => made,
            Err(error) if settings.scale.is_some() => return Err(error),
            // Later steps report that the matrix is singular.
            Err(_) => return Ok(None),
        };
        let Some(made) = made else { return Ok(None) };
        let prepared = match made.apply(a) {
            Ok(prepared) => prepared,
            Err(error) if settings.scale.is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        (self.scale, self.scale_why, self.preparation) = (scale, why, Some(Arc::new(made)));
        if scale == Scale::Match && settings.preconditioner.is_none() {
            self.preconditioner = Precond::Ilut(IlutOptions::default());
            self.preconditioner_why = "the rows are matched to the columns".to_string();
            self.otherwise = (settings.fallback == Fallback::Auto).then_some(Precond::Jacobi);
        }
        Ok(Some(prepared))
    }

    /// Takes multigrid instead of IC(0) if the policy chose IC(0) and [`Expected`] says that multigrid is faster, for
    /// the matrix in the numbering of the solve. If [`Expected`] gives no prediction, considers algebraic multigrid,
    /// and takes the geometric one where that suits too. Reproducible solves and settings that ask for preconditioners
    /// in f32 keep IC(0).
    pub(super) fn choose_multigrid<T: Real>(&mut self, settings: &Settings, a: &Csr<T>, profile: &Profile) {
        let is_open = settings.preconditioner.is_none() && self.preconditioner == Precond::Ic0;
        let is_plain = !self.reproducible && self.precision == Precision::Native;
        if !is_open || !is_plain || self.method != Method::Cg {
            return;
        }
        let algebraic = |options: &AmgOptions| Ok::<_, Infallible>(AmgExpected::of(a, options, profile));
        let Ok(chosen) = multigrid(Expected::of(a, profile).ok(), MgOptions::default(), algebraic);
        match chosen {
            Some((Precond::Amg(options), why)) => self.take_multigrid(settings, (suited(a, options), why)),
            Some(chosen) => self.take_multigrid(settings, chosen),
            None => {}
        }
    }

    /// Chooses what may take over if the iteration turns out to be slow, for the matrix in the numbering of the solve.
    /// Takes it from the start if it should finish first.
    pub(super) fn choose_stronger<T: Real>(&mut self, settings: &Settings, a: &Csr<T>, profile: &Profile) {
        let is_open = self.direct_is_open && settings.reorder.is_none() && self.near_null.is_none();
        if !is_open || self.preparation.is_some() || self.standby.is_some() {
            return;
        }
        self.stronger = Stronger::of(self, a, profile);
        if let Some(Stronger { preconditioner, first: Some(AmgExpected { amg, ic0, iterations }), .. }) = self.stronger
        {
            let why = format!("an elliptic problem, by its rows: {}", share(amg, ic0, iterations));
            self.stronger = None;
            self.take_multigrid(settings, (preconditioner, why));
        }
    }

    /// Takes a multigrid cycle, in f32. IC(0) takes over if it stagnates.
    fn take_multigrid(&mut self, settings: &Settings, chosen: (Precond, String)) {
        (self.preconditioner, self.preconditioner_why) = chosen;
        self.narrow();
        if settings.fallback == Fallback::Auto {
            (self.otherwise, self.standby) = (Some(Precond::Ic0), Some(Precond::Ic0));
            self.method_is_open = false;
            self.stagnation = self.stagnation.or(Some(STAGNANT));
        }
    }

    /// Chooses a complete factorisation from the start if it should finish before the iteration, or if there are no
    /// incomplete factors. The rival keeps its analysis. A matrix with a dominant diagonal is iterated first, because
    /// that may finish before the analysis does.
    pub(super) fn choose_direct<T: Factorable>(
        &mut self,
        settings: &Settings,
        a: &Arc<Csr<T>>,
        rival: &mut Rival<T>,
        profile: &Profile,
    ) {
        // A user who names a GPU wants to use it.
        let names_gpu = matches!(settings.device, Choice::Cuda | Choice::Gpu(_));
        let is_beaten = self.stronger.is_some_and(|stronger| stronger.beats_factors);
        if !self.direct_is_open || self.nrows == 0 || names_gpu || is_beaten {
            return;
        }
        let pace = Pace::of::<T>((a.nrows(), a.nnz()), (self.method, self.preconditioner), profile);
        let is_weak = matches!(self.preconditioner, Precond::None | Precond::Ilut(_) | Precond::Ilutp(_))
            || (self.symmetric && self.method != Method::Cg);
        // LU's analysis takes longer than many iterations.
        let is_small = rival.analysis(self.symmetric) < SMALL;
        let looks = is_weak
            || is_small
            || (self.method == Method::Cg && self.preconditioner == Precond::Ic0 && !is_dominant(&**a));
        if !looks {
            return;
        }
        let cost = rival.cost();
        if !cost.is_finite() {
            return;
        }
        if cost < pace.usual() {
            let share = (100.0 * cost / pace.usual()).ceil();
            self.now_direct(format!("{share} % of the time expected with {} and {}", self.method, self.preconditioner));
        }
    }

    /// Restores the limits of the settings, without those of a choice that has a substitute.
    pub(super) fn open_as(&mut self, settings: &Settings) {
        self.method_is_open = settings.method.is_none() && settings.fallback == Fallback::Auto;
        self.stagnation = settings.stagnation;
    }

    /// The plan that takes over if a solve with this one fails.
    pub(super) fn take_standby(&mut self, settings: &Settings) -> Option<Plan> {
        let preconditioner = self.standby.take()?;
        let otherwise = Some(Precond::Jacobi);
        let mut next = Plan { preconditioner, factor: None, replaced: None, otherwise, stronger: None, ..self.clone() };
        next.open_as(settings);
        next.widen();
        Some(next)
    }

    /// The plan that takes over if a solve with this one would take longer. The weaker preconditioner stands by.
    pub(super) fn take_stronger(&mut self) -> Option<Plan> {
        let Stronger { preconditioner, .. } = self.stronger.take()?;
        let weaker = Some(self.preconditioner);
        let stagnation = self.stagnation.or(Some(STAGNANT));
        let (factor, replaced) = (None, None);
        let open = Plan { preconditioner, factor, replaced, stagnation, ..self.clone() };
        let mut next = Plan { otherwise: weaker, standby: weaker, method_is_open: false, ..open };
        if matches!(preconditioner, Precond::Amg(_) | Precond::Mg(_)) {
            next.narrow();
        }
        Some(next)
    }

    /// Chooses the format for the matrix in the numbering of the solve. For [`FormatChoice::Measured`] it returns the
    /// candidates, the best first; they are timed once the matrix is on the device.
    pub(super) fn choose_format<T: Real, B: EveryFormat<T>>(
        &mut self,
        settings: &Settings,
        (a, survey): (&Csr<T>, &Survey),
        device: &B,
    ) -> Result<Vec<&'static str>> {
        if self.method == Method::Direct {
            (self.format, self.format_why) = ("csr", "what a factorisation reads".to_string());
            return Ok(Vec::new());
        }
        let shared = shared_order(device);
        if let FormatChoice::Named(format) = settings.format {
            if settings.reproducible && !shared.contains(&format) {
                let why = format!("{format} sums in an order of its own; to be reproducible use {}", shared.join(", "));
                return Err(Error::NotReproducible { why });
            }
            (self.format, self.format_why) = (format, ASKED_FOR.to_string());
            return Ok(Vec::new());
        }
        // The same bits everywhere need the same format everywhere.
        let reference = Profile::reference();
        let profile = if settings.reproducible { &reference } else { device.profile() };
        if settings.format == FormatChoice::Measured {
            if settings.reproducible {
                let why =
                    "a measured format differs from machine to machine; leave reproducible or measured out".into();
                return Err(Error::NotReproducible { why });
            }
            let candidates = candidates(choose(a, profile).candidates);
            self.format = candidates.first().copied().unwrap_or("csr");
            return Ok(candidates);
        }
        let choice = survey.choose(a, profile);
        (self.format, self.format_why) = if !settings.reproducible || shared.contains(&choice.format) {
            (choice.format, choice.why)
        } else {
            // Include blocks, which the choice may have left out.
            let every = choose(a, profile).candidates;
            let allowed = every.iter().filter(|candidate| shared.contains(&candidate.name));
            let best = allowed.min_by(|a, b| cost(a).total_cmp(&cost(b))).map_or("csr", |best| best.name);
            (best, format!("expected to be the fastest of the reproducible formats; {} would be faster", choice.format))
        };
        Ok(Vec::new())
    }
}

fn cost(candidate: &Candidate) -> f64 {
    candidate.nanoseconds.unwrap_or(f64::INFINITY)
}

/// The formats worth a measurement, the best first: at most five, which the model expects within twice the time of the
/// best.
fn candidates(mut every: Vec<Candidate>) -> Vec<&'static str> {
    const MOST: usize = 5;
    const WORTH: f64 = 2.0;
    every.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    let best = every.first().map_or(f64::INFINITY, cost);
    let near = every.iter().filter(|candidate| cost(candidate) <= WORTH * best && cost(candidate).is_finite());
    near.take(MOST).map(|candidate| candidate.name).collect()
}

macro_rules! shared_orders {
    ([($T:ty, $device:expr)] $(($stem:ident, $Type:ident)),*) => {
        [$((stringify!($stem), Spmv::<spandrel_formats::$Type<$T>>::order($device))),*]
    };
}

/// The formats whose products on this device have the bits of every backend.
pub(super) fn shared_order<T: Real, B: EveryFormat<T>>(device: &B) -> Vec<&'static str> {
    let orders = spandrel_formats::for_each_format!(shared_orders, (T, device));
    orders.into_iter().filter(|(_, order)| matches!(order, Order::Stored | Order::Tree)).map(|(stem, _)| stem).collect()
}
