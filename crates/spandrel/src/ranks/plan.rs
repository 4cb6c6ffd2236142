//! The policy of a solve on ranks: what is chosen, and what is refused.

use std::fmt;
use std::str::FromStr;

use spandrel_distributed::{Communicator, Distributed, Layout, Rows, Survey, outlook};
use spandrel_formats::Profile;
use spandrel_solvers::amg::AmgExpected;
use spandrel_solvers::multigrid::Expected;
use spandrel_solvers::{AmgOptions, Error, Method, MgOptions, MgSmoother, NameError, Options, Precond, Result};

use super::RankBackend;
use super::made::{is_within, not_within};
use crate::any::Choice;
use crate::solver::shared::{
    ASKED_FOR, Limits, STAGNANT, multigrid, needs_symmetry, no_stagnation, not_gmres, separates_points, unsupported,
    warning_of_symmetry, write_numbering,
};
use crate::solver::{Element, Fallback, FormatChoice, NullVectors, Precision, Reorder, Replaced, Scale, Settings};

/// The error for a factorisation, which ranks do not have.
pub(super) fn no_direct() -> Error {
    unsupported(
        "a factorisation needs the whole matrix in one place; use cg, bicgstab or gmres, or solve without ranks",
    )
}

/// A preconditioner of a solve on ranks.
///
/// ```
/// use spandrel::Precond;
/// use spandrel::ranks::RankPrecond;
///
/// assert_eq!("jacobi".parse(), Ok(RankPrecond::Same(Precond::Jacobi)));
/// assert_eq!("blockwise=ilu0".parse(), Ok(RankPrecond::Blockwise(Precond::Ilu0)));
/// assert_eq!("schwarz=ic0,overlap=2".parse(), Ok(RankPrecond::Schwarz { within: Precond::Ic0, overlap: 2 }));
/// assert_eq!("schwarz=ic0".parse::<RankPrecond>().unwrap().to_string(), "schwarz=ic0,overlap=1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RankPrecond {
    /// The preconditioner of one device, with the same bits for any number of ranks.
    Same(Precond),
    /// `blockwise=NAME`: each rank applies NAME to its own rows and columns. Depends on the number of ranks.
    Blockwise(Precond),
    /// `schwarz=NAME,overlap=K`: each rank applies NAME to its own rows and K layers of their neighbours. Depends on
    /// the number of ranks.
    Schwarz {
        /// The preconditioner that each rank applies.
        within: Precond,
        /// Layers of neighbouring rows.
        overlap: usize,
    },
}

impl RankPrecond {
    /// Examples of the names that [`Precond::EXAMPLES`] lacks.
    pub const EXAMPLES: [&'static str; 2] = ["blockwise=ic0", "schwarz=ic0,overlap=1"];

    /// Returns the preconditioner if it is that of one device.
    pub fn same(self) -> Option<Precond> {
        match self {
            Self::Same(precond) => Some(precond),
            Self::Blockwise(_) | Self::Schwarz { .. } => None,
        }
    }

    /// The preconditioner that each rank applies by itself.
    fn within(self) -> Option<Precond> {
        match self {
            Self::Same(_) => None,
            Self::Blockwise(within) | Self::Schwarz { within, .. } => Some(within),
        }
    }
}

impl fmt::Display for RankPrecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(precond) => precond.fmt(f),
            Self::Blockwise(within) => write!(f, "blockwise={within}"),
            Self::Schwarz { within, overlap } => write!(f, "schwarz={within},overlap={overlap}"),
        }
    }
}

impl FromStr for RankPrecond {
    type Err = NameError;
    fn from_str(text: &str) -> std::result::Result<Self, NameError> {
        let lower = text.to_ascii_lowercase();
        if let Some(within) = lower.strip_prefix("blockwise=") {
            return Ok(Self::Blockwise(within.parse()?));
        }
        if let Some(rest) = lower.strip_prefix("schwarz=") {
            let (within, overlap) = rest.rsplit_once(",overlap=").unwrap_or((rest, "1"));
            let overlap = overlap.parse().map_err(|_| {
                NameError::new(format!("overlap is a number of layers, e.g. schwarz={within},overlap=1, not {overlap}"))
            })?;
            return Ok(Self::Schwarz { within: within.parse()?, overlap });
        }
        match lower.as_str() {
            "blockwise" => Err(NameError::new("name the preconditioner of each rank, e.g. blockwise=ic0")),
            "schwarz" => Err(NameError::new("name the preconditioner of each rank, e.g. schwarz=ic0,overlap=1")),
            _ => Ok(Self::Same(lower.parse()?)),
        }
    }
}

/// The choices for a solve on ranks and their reasons. `Display` prints it as `spandrel solve` does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Rows of the matrix.
    pub nrows: usize,
    /// Entries of the matrix.
    pub nnz: u64,
    /// Whether the matrix equals its transpose, exactly.
    pub symmetric: bool,
    /// Number of ranks.
    pub ranks: usize,
    /// `"cpu"` or `"cuda"`.
    pub backend: &'static str,
    /// A description of the device of this rank.
    pub device: String,
    /// The method.
    pub method: Method,
    /// Why this method.
    pub method_why: String,
    /// The preconditioner.
    pub preconditioner: RankPrecond,
    /// Why this preconditioner.
    pub preconditioner_why: String,
    /// The storage format of each rank's rows.
    pub format: &'static str,
    /// Why this format.
    pub format_why: String,
    /// How rows are numbered in the solve. x comes back in the matrix's own numbering.
    pub reorder: Reorder,
    /// Why this order; empty for the matrix's own.
    pub reorder_why: String,
    /// The element type, `"f32"` or `"f64"`.
    pub element: &'static str,
    /// Whether x must have the same bits everywhere.
    pub reproducible: bool,
    /// The relative goal.
    pub rtol: f64,
    /// The absolute goal.
    pub atol: f64,
    /// The limit of iterations.
    pub max_iterations: usize,
    /// Iterations between two looks of the host.
    pub check_every: usize,
    /// Iterations without a smaller residual after which the solve ends; `None` for never.
    pub stagnation: Option<usize>,
    /// Steps of a GMRES cycle.
    pub restart: usize,
    /// Warnings for the user, known before the solve begins.
    pub warnings: Vec<String>,
    /// A preconditioner that the policy chose, and that gave way to this one. If only some ranks refused it, the reason
    /// names one of them.
    pub replaced: Option<Replaced>,
    /// The substitute if the policy's preconditioner cannot be made or the solve fails, and the limit of stagnation
    /// with it.
    pub(super) otherwise: Option<(Precond, Option<usize>)>,
}

/// Refuses settings that no solve on ranks can have, before anyone examines the matrix. `backend` is the name of the
/// ranks' backend.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::NotReproducible`].
pub(super) fn check(settings: &Settings, asked: Option<RankPrecond>, backend: &str) -> Result<()> {
    let refused = |what: &str| {
        Err(unsupported(format!("{what} needs the whole matrix in one place; leave it out, or solve without ranks")))
    };
    if settings.least_squares {
        return refused("a least squares solve");
    }
    if settings.method == Some(Method::Direct) {
        return Err(no_direct());
    }
    if settings.null_space != NullVectors::None {
        return refused("a known null space");
    }
    if settings.near_null.is_some() {
        return Err(unsupported(
            "ranks take the constants as near-null space; leave other vectors out, or solve without ranks",
        ));
    }
    if let Some(by @ (Reorder::Rcm | Reorder::Amd)) = settings.reorder {
        return Err(unsupported(format!(
            "renumbering by {by} needs the whole matrix in one place; use bfs or bisection, or solve without ranks"
        )));
    }
    if let Some(refusal) = separates_points(asked.and_then(RankPrecond::same), settings.reorder.unwrap_or_default()) {
        return Err(refusal);
    }
    if let Some(scale @ (Scale::Equilibrate | Scale::Match)) = settings.scale {
        return refused(&format!("scaling by {scale}"));
    }
    if let FormatChoice::Measured | FormatChoice::Named(_) = settings.format
        && settings.format != FormatChoice::Named("csr")
    {
        let format = settings.format;
        return Err(unsupported(format!("ranks store their rows as csr; leave {format} out, or solve without ranks")));
    }
    if let precision @ (Precision::Mixed | Precision::Refined) = settings.precision {
        return Err(unsupported(format!("ranks solve in one precision; use f64 or f32 instead of {precision}")));
    }
    let named = match settings.device {
        Choice::Auto => None,
        Choice::Cpu => Some("cpu"),
        Choice::Cuda | Choice::Gpu(_) => Some("cuda"),
    };
    if named.is_some_and(|named| named != backend) {
        let device = settings.device;
        let why = format!(
            "these ranks run on {backend}, not on {device}; leave {device} out, or start the ranks on {device}"
        );
        return Err(unsupported(why));
    }
    if let Some(method) = settings.method {
        check_limits(settings, method)?;
    }
    let Some(asked) = asked else { return Ok(()) };
    match (asked, asked.within()) {
        (RankPrecond::Same(Precond::None | Precond::Jacobi | Precond::Chebyshev(_)), _) => Ok(()),
        (RankPrecond::Same(Precond::Amg(options)), _) => options.check_for_ranks(),
        (
            RankPrecond::Same(Precond::Mg(MgOptions {
                smoother: MgSmoother::Chebyshev | MgSmoother::L1Jacobi, ..
            })),
            _,
        ) => Ok(()),
        (
            RankPrecond::Same(
                other @ Precond::Mg(MgOptions { smoother: MgSmoother::Auto | MgSmoother::GaussSeidel, .. }),
            ),
            _,
        ) => Err(unsupported(format!(
            "the Gauss-Seidel smoother of {other} needs the whole matrix in one place; use mg=chebyshev or amg, or give each rank its own by \
             blockwise={other}"
        ))),
        (RankPrecond::Same(other), _) if is_within(other) => Err(unsupported(format!(
            "{other} needs the whole matrix in one place; use jacobi, chebyshev=K, mg=chebyshev or amg, or give each rank its own by blockwise={other} or \
             schwarz={other},overlap=1"
        ))),
        (RankPrecond::Same(other), _) => Err(unsupported(format!(
            "{other} needs the whole matrix in one place; use jacobi, chebyshev=K, mg=chebyshev or amg, or solve without ranks"
        ))),
        (_, Some(within)) if !is_within(within) => Err(not_within(within)),
        (_, _) if settings.reproducible => Err(Error::NotReproducible {
            why: format!(
                "{asked} depends on the number of ranks; to be reproducible use jacobi, chebyshev=K, mg=chebyshev or amg"
            ),
        }),
        _ => Ok(()),
    }
}

/// Refuses limits that the method does not have.
fn check_limits(settings: &Settings, method: Method) -> Result<()> {
    match method {
        Method::Gmres if settings.stagnation.is_some() => Err(no_stagnation(method)),
        Method::Cg | Method::BiCgStab | Method::Direct if settings.restart.is_some() => Err(not_gmres(method)),
        Method::Gmres | Method::Cg | Method::BiCgStab | Method::Direct => Ok(()),
    }
}

/// The cores of the device by whose profile multigrid is chosen. Ranks have at least two; more of them favour multigrid
/// more, because IC(0) does not gain by them.
const CORES: usize = 2;

/// A preconditioner, why it is taken, and the substitute.
type Chosen = (RankPrecond, String, Option<Precond>);

/// Chooses the preconditioner for a method. Waits for the other ranks.
///
/// With CG it is multigrid where one device would prefer multigrid to IC(0), else Jacobi. The choice goes by the
/// reference profile with [`CORES`] and not by that of a rank's device, so it is the same for any ranks.
fn choose<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
    (survey, method): (&Survey, Method),
) -> Result<Chosen> {
    if !survey.invertible_diagonal {
        return Ok((RankPrecond::Same(Precond::None), "a diagonal entry cannot be inverted".to_string(), None));
    }
    if method == Method::Cg && survey.symmetric && survey.positive_diagonal {
        let mut profile = Profile::reference();
        (profile.memory.units, profile.host.threads) = (CORES, CORES);
        let facts = outlook::grid(be, layout, rows, survey.nnz)?;
        let geometric = facts.and_then(|facts| Expected::by::<T>(facts, &profile).ok());
        let mg = MgOptions { smoother: MgSmoother::Chebyshev, ..MgOptions::default() };
        let algebraic = |options: &AmgOptions| -> Result<_> {
            let facts = outlook::elliptic(be, layout, rows, survey.nnz)?;
            Ok(facts.map(|facts| AmgExpected::by::<T>(facts, options, &profile)))
        };
        if let Some((precond, why)) = multigrid(geometric, mg, algebraic)? {
            return Ok((RankPrecond::Same(precond), format!("{why} on one device"), Some(Precond::Jacobi)));
        }
    }
    let why = "its bits do not depend on the number of ranks";
    Ok((RankPrecond::Same(Precond::Jacobi), why.to_string(), None))
}

impl Plan {
    /// Examines the rows of all ranks and makes the choices. Waits for the other ranks.
    pub(super) fn new<T: Element, B: RankBackend<T>, C: Communicator>(
        be: &Distributed<B, C>,
        layout: &Layout,
        rows: &Rows<T>,
        settings: &Settings,
        asked: Option<RankPrecond>,
    ) -> Result<Self> {
        let (nrows, ncols) = (layout.len(), rows.ncols() as usize);
        if nrows != ncols {
            let solver = settings.method.map_or("a solve on ranks", Method::as_str);
            return Err(Error::NotSquare { solver, nrows, ncols });
        }
        let survey = Survey::of(be, layout, rows)?;
        let auto = Method::choose_square(survey.symmetric, survey.positive_diagonal);
        let (method, method_why) = settings.method.map_or(auto, |method| (method, ASKED_FOR));
        check_limits(settings, method)?;
        let (preconditioner, preconditioner_why, otherwise) = match asked {
            Some(asked) => (asked, ASKED_FOR.to_string(), None),
            None => choose(be, layout, rows, (&survey, method))?,
        };
        if !survey.symmetric {
            refuse_unsymmetric(preconditioner)?;
        }
        let warnings = warning_of_symmetry(method, survey.symmetric, "bicgstab or gmres").into_iter().collect();
        let limits = Limits::of::<T>(settings, nrows);
        let otherwise = otherwise.filter(|_| settings.fallback == Fallback::Auto);
        let stagnation = limits.stagnation.or(otherwise.map(|_| STAGNANT));
        let format_why = match settings.format {
            FormatChoice::Auto => "the format of ranks",
            _ => ASKED_FOR,
        };
        Ok(Self {
            nrows,
            nnz: survey.nnz,
            symmetric: survey.symmetric,
            ranks: be.size(),
            backend: B::NAME,
            device: be.device().describe(),
            method,
            method_why: method_why.to_string(),
            preconditioner,
            preconditioner_why,
            format: "csr",
            format_why: format_why.to_string(),
            reorder: Reorder::None,
            reorder_why: String::new(),
            element: T::NAME,
            reproducible: settings.reproducible,
            rtol: limits.rtol,
            atol: limits.atol,
            max_iterations: limits.max_iterations,
            check_every: limits.check_every,
            stagnation,
            restart: limits.restart,
            warnings,
            replaced: None,
            otherwise: otherwise.map(|precond| (precond, limits.stagnation)),
        })
    }

    /// The options of the iteration.
    pub(super) fn options(&self) -> Options {
        let Self { rtol, atol, max_iterations, check_every, stagnation, restart, .. } = *self;
        Limits { rtol, atol, max_iterations, check_every, stagnation, restart }.options()
    }

    /// Takes the substitute, if there is one, because of `why`.
    pub(super) fn give_way(&mut self, why: String) {
        let Some((to, stagnation)) = self.otherwise.take() else { return };
        if let RankPrecond::Same(from) = self.preconditioner {
            self.preconditioner_why = format!("{from} was given up: {why}");
            self.replaced = Some(Replaced { from, to, why });
        }
        (self.preconditioner, self.stagnation) = (RankPrecond::Same(to), stagnation);
    }
}

/// Refuses preconditioners that need a symmetric matrix.
fn refuse_unsymmetric(precond: RankPrecond) -> Result<()> {
    match precond {
        RankPrecond::Same(chebyshev @ Precond::Chebyshev(_)) => {
            Err(needs_symmetry(chebyshev, "jacobi or blockwise=ilu0"))
        }
        RankPrecond::Same(_) => Ok(()),
        RankPrecond::Blockwise(within) | RankPrecond::Schwarz { within, .. } => match within {
            Precond::Ic0 | Precond::Chebyshev(_) | Precond::Amg(_) => {
                let instead = match precond {
                    RankPrecond::Schwarz { overlap, .. } => {
                        RankPrecond::Schwarz { within: Precond::Ilu0, overlap }.to_string()
                    }
                    _ => RankPrecond::Blockwise(Precond::Ilu0).to_string(),
                };
                Err(needs_symmetry(within, &instead))
            }
            _ => Ok(()),
        },
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks", self.ranks) };
        writeln!(f, "{:<9}{}: {ranks}, each {}", "machine", self.backend, self.device)?;
        writeln!(f, "{:<9}{} ({})", "solver", self.method, self.method_why)?;
        writeln!(f, "{:<9}{} ({})", "precond", self.preconditioner, self.preconditioner_why)?;
        write!(f, "{:<9}{}, {} ({})", "format", self.format, self.element, self.format_why)?;
        write_numbering(f, self.reorder, &self.reorder_why)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_solvers::{AmgCycle, AmgOptions};

    use super::*;
    use crate::solver::NearNull;

    #[test]
    fn names_are_read_back_as_they_are_written() {
        for text in [
            "none",
            "chebyshev=4",
            "blockwise=ilut=0.01,3",
            "schwarz=ilut=0.01,3,overlap=0",
            "schwarz=iluk=1,overlap=3",
        ] {
            assert_eq!(text.to_uppercase().parse::<RankPrecond>().expect(text).to_string(), text);
        }
        for (text, said) in [
            ("blockwise", "e.g. blockwise=ic0"),
            ("schwarz", "e.g. schwarz=ic0,overlap=1"),
            ("schwarz=ic0,overlap=-1", "a number of layers"),
            ("blockwise=ilu", "did you mean ilu0?"),
            ("ilu", "did you mean ilu0?"),
        ] {
            let error = text.parse::<RankPrecond>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_needs_the_whole_matrix_is_refused_with_what_to_use() {
        let refused =
            |settings: Settings, asked: Option<RankPrecond>| check(&settings, asked, "cpu").unwrap_err().to_string();
        let named = |precond: Precond| refused(Settings::default(), Some(RankPrecond::Same(precond)));
        assert!(named(Precond::Ic0).contains("blockwise=ic0 or schwarz=ic0,overlap=1"));
        assert!(named(Precond::Ilu0Isai).contains("use jacobi, chebyshev=K, mg=chebyshev or amg"));
        let direct = Settings { method: Some(Method::Direct), ..Settings::default() };
        assert!(refused(direct, None).contains("use cg, bicgstab or gmres"));
        let modes = Settings { near_null: Some(NearNull::Vectors(vec![1.0; 9].into())), ..Settings::default() };
        assert!(refused(modes, None).contains("the constants as near-null space"));
        let amg =
            |options: AmgOptions| check(&Settings::default(), Some(RankPrecond::Same(Precond::Amg(options))), "cpu");
        assert!(amg(AmgOptions::default()).is_ok());
        let mg = |smoother: MgSmoother| {
            let options = MgOptions { smoother, ..MgOptions::default() };
            check(&Settings::default(), Some(RankPrecond::Same(Precond::Mg(options))), "cpu")
        };
        assert!(mg(MgSmoother::Chebyshev).is_ok() && mg(MgSmoother::L1Jacobi).is_ok());
        for smoother in [MgSmoother::Auto, MgSmoother::GaussSeidel] {
            assert!(mg(smoother).unwrap_err().to_string().contains("use mg=chebyshev"), "{smoother:?}");
        }
        let wrong = AmgOptions { degree: 9, ..AmgOptions::default() };
        assert_eq!(amg(wrong).unwrap_err().to_string(), wrong.check().unwrap_err().to_string());
        let cycle = AmgOptions { cycle: AmgCycle::K, ..AmgOptions::default() };
        assert!(amg(cycle).unwrap_err().to_string().contains("for the V-cycle"));
        for by in [Reorder::Rcm, Reorder::Amd] {
            let numbered = Settings { reorder: Some(by), ..Settings::default() };
            assert!(refused(numbered, None).contains("use bfs"), "{by}");
        }
        let dia = Settings { format: FormatChoice::Named("dia"), ..Settings::default() };
        assert!(refused(dia, None).contains("leave dia out"));
        let gpu = Settings { device: Choice::Gpu(1), ..Settings::default() };
        assert!(check(&gpu, None, "cuda").is_ok());
        assert!(refused(gpu, None).contains("run on cpu, not on cuda:1"));
        let same = Settings { reproducible: true, ..Settings::default() };
        let blocks = Some(RankPrecond::Blockwise(Precond::Ilu0));
        assert!(refused(same, blocks).contains("depends on the number of ranks"));
        assert!(check(&Settings::default(), blocks, "cpu").is_ok());
    }
}
