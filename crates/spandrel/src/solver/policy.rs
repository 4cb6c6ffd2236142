//! The policy: which method, preconditioner, format and precision solve a matrix on a device, and what takes over if one fails.
//!
//! It is the only place that decides. The program, the bench and the conformance suite call it.

use std::borrow::Cow;
use std::sync::Arc;

use spandrel_backend::{Order, Spmv};
use spandrel_formats::choose::{Candidate, choose};
use spandrel_formats::{Csr, Grid, Profile, Real, Survey};
use spandrel_solvers::direct::Factorable;
use spandrel_solvers::multigrid::Expected;
use spandrel_solvers::{Error, GmresOptions, Method, Options, Precond, Result};
use spandrel_sptrsv::IlutOptions;

use super::plan::Plan;
use super::prepare::{Preparation, asked_for};
use super::rival::{Pace, Rival, is_dominant};
use super::settings::{Fallback, FormatChoice, NullVectors, Precision, Scale, Settings, Tolerance};
use crate::any::{Choice, EveryFormat};

const ASKED_FOR: &str = "as asked for";
/// Iterations without a smaller residual after which multigrid that the policy took has come to nothing: it needs a tenth of them for
/// the whole solve.
const STAGNANT: usize = 100;
/// Nanoseconds of an analysis that are not worth a thought: the set-up of incomplete factors takes as long for any matrix.
const SMALL: f64 = 2e5;

fn unsupported(why: impl Into<String>) -> Error {
    Error::Unsupported { why: why.into() }
}

/// Everything but the format, for a matrix that has been looked at.
///
/// # Errors
/// [`Error::NotSquare`], [`Error::Unsupported`] and [`Error::NotReproducible`] for settings that contradict the matrix or each other.
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
            return Err(unsupported(format!(
                "{ic0} needs a symmetric matrix; this one is not symmetric. Use {instead}"
            )));
        }
        (_, Some(chebyshev @ Precond::Chebyshev(_))) if !symmetric => {
            return Err(unsupported(format!(
                "{chebyshev} needs a symmetric matrix; this one is not symmetric. Use jacobi or ilu0"
            )));
        }
        (_, Some(asked)) => (asked, ASKED_FOR.into(), None),
    };
    if settings.precision == Precision::Mixed && preconditioner == Precond::None {
        return Err(unsupported(
            "mixed precision stores the preconditioner in f32, and there is none; use refined precision, or name a preconditioner",
        ));
    }
    let mut warnings = Vec::new();
    if method == Method::Cg && !symmetric {
        warnings.push(
            "cg is for symmetric matrices, and this one is not symmetric: it may not converge. Use bicgstab, gmres or direct".to_string(),
        );
    }
    let goal = Tolerance::of::<T>();
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
        element: if T::BYTES == 4 { "f32" } else { "f64" },
        reorder: settings.reorder.unwrap_or_default(),
        reorder_why: ASKED_FOR.to_string(),
        scale: Scale::None,
        scale_why: String::new(),
        preparation: None,
        least_squares: settings.least_squares,
        null_space: settings.null_space,
        reproducible: settings.reproducible,
        rtol: settings.rtol.unwrap_or(goal.rtol),
        atol: settings.atol,
        max_iterations: Options { max_iters: settings.max_iterations, ..Options::default() }.iteration_limit(nrows),
        check_every: settings.check_every.unwrap_or(Options::default().check_every),
        stagnation: settings.stagnation,
        restart: settings.restart.unwrap_or(GmresOptions::default().restart),
        warnings,
        method_is_open: settings.method.is_none() && settings.fallback == Fallback::Auto,
        direct_is_open: nrows == ncols && is_open_to_factors(settings),
        iterative: None,
        otherwise,
        standby: None,
    })
}

/// Whether nothing was named that a complete factorisation has not.
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
        return Err(unsupported(format!(
            "restart is the cycle of gmres, and {method} has none; leave it out, or use gmres"
        )));
    }
    if settings.stagnation.is_some() && matches!(method, Method::Gmres | Method::Direct) {
        return Err(unsupported(format!("stagnation is for cg and bicgstab, not for {method}; leave it out")));
    }
    if direct && settings.reproducible {
        return Err(Error::NotReproducible {
            why: "a direct solve orders its sums by the machine it runs on; leave reproducible out, or use an iterative method".into(),
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
    /// Decides the rows of a block if they are to be the unknowns of a grid point, for the matrix in the numbering of the solve.
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

    /// Decides how rows and columns are scaled for the iteration, for the matrix in the numbering of the solve, and returns the matrix
    /// that is iterated with if that is another. A matrix without symmetry whose diagonal cannot be inverted gets a matching and ILUT.
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
                "a matching exchanges rows, so the matrix is symmetric no more; use equilibrate with cg, or bicgstab or gmres",
            ));
        }
        let made = match Preparation::of(scale, a, survey.symmetric) {
            Ok(made) => made,
            Err(error) if settings.scale.is_some() => return Err(error),
            // A singular matrix is told by what comes later.
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

    /// Takes multigrid instead of IC(0) if the policy chose that and [`Expected`] says that multigrid is faster, for the matrix in the
    /// numbering of the solve. Reproducible solves and narrow preconditioners keep IC(0).
    pub(super) fn choose_multigrid<T: Real>(&mut self, settings: &Settings, a: &Csr<T>, profile: &Profile) {
        let is_open = settings.preconditioner.is_none() && self.preconditioner == Precond::Ic0;
        let is_plain = !self.reproducible && self.precision == Precision::Native;
        if !is_open || !is_plain || self.method != Method::Cg {
            return;
        }
        let Ok(expected) = Expected::of(a, profile) else { return };
        if !expected.pays() {
            return;
        }
        let share = (100.0 * expected.mg / expected.ic0).ceil();
        self.preconditioner_why = format!(
            "a {}, diagonally dominant: {share} % of the time expected with ic0 and its {:.0} iterations",
            expected.grid, expected.iterations
        );
        self.preconditioner = Precond::Mg(None);
        if settings.fallback == Fallback::Auto {
            (self.otherwise, self.standby) = (Some(Precond::Ic0), Some(Precond::Ic0));
            self.method_is_open = false;
            self.stagnation = self.stagnation.or(Some(STAGNANT));
        }
    }

    /// Takes a complete factorisation from the start where it is expected to be done before the iteration, or where there are no incomplete
    /// factors to iterate with. Its analysis is kept in the rival. A matrix with a dominant diagonal is iterated with first, for that may be
    /// over before the analysis is.
    pub(super) fn choose_direct<T: Factorable>(
        &mut self,
        settings: &Settings,
        a: &Arc<Csr<T>>,
        rival: &mut Rival<T>,
        profile: &Profile,
    ) {
        // Whoever names a GPU wants it tried.
        let names_gpu = matches!(settings.device, Choice::Cuda | Choice::Gpu(_));
        if !self.direct_is_open || self.nrows == 0 || names_gpu {
            return;
        }
        let pace = Pace::of(&**a, (self.method, self.preconditioner), profile);
        let is_weak = matches!(self.preconditioner, Precond::None | Precond::Ilut(_))
            || (self.symmetric && self.method != Method::Cg);
        // LU's analysis takes longer than many an iteration.
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

    /// The limits that the settings ask for, without those of a choice that another stands by for.
    pub(super) fn open_as(&mut self, settings: &Settings) {
        self.method_is_open = settings.method.is_none() && settings.fallback == Fallback::Auto;
        self.stagnation = settings.stagnation;
    }

    /// The plan that takes over if a solve with this one comes to nothing.
    pub(super) fn take_standby(&mut self, settings: &Settings) -> Option<Plan> {
        let preconditioner = self.standby.take()?;
        let otherwise = Some(Precond::Jacobi);
        let mut next = Plan { preconditioner, factor: None, replaced: None, otherwise, ..self.clone() };
        next.open_as(settings);
        Some(next)
    }

    /// Decides the format for the matrix in the numbering of the solve. [`FormatChoice::Measured`] gets the model's candidates here, the
    /// best first; they are timed once the matrix is on the device.
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
        // The same format everywhere is part of the same bits everywhere.
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
            // Blocks too, which the choice may have left out.
            let every = choose(a, profile).candidates;
            let allowed = every.iter().filter(|candidate| shared.contains(&candidate.name));
            let best = allowed.min_by(|a, b| cost(a).total_cmp(&cost(b))).map_or("csr", |best| best.name);
            (best, format!("the fastest expected among the reproducible; {} would be faster", choice.format))
        };
        Ok(Vec::new())
    }
}

fn cost(candidate: &Candidate) -> f64 {
    candidate.nanoseconds.unwrap_or(f64::INFINITY)
}

/// The formats worth a measurement, the best first: those that the model expects within twice the time of the best, at most five.
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
