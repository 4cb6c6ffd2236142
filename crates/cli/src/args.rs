//! The command line. What an option accepts here is what exists: nothing is offered that cannot be run.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use spandrel::solvers::block_jacobi::MAX_BLOCK_DIM;

/// Where the text of `--help` wraps, on terminals that are wider.
const WIDTH: usize = 100;

const EXIT_STATUS: &str = "Exit status: 0 converged or done, 1 an error, 2 bad usage, 3 not converged or interrupted.";

const MATRIX_HELP: &str = "\
MATRIX is a Matrix Market file (.mtx, .mtx.gz) or a generator such as d3n7:64 or poisson2d:512;
`spandrel generate --list` shows them all. A file of a generator's name is reached as ./NAME.";

/// Sparse linear systems from the command line: solve, inspect, time, convert and generate.
#[derive(Debug, Parser)]
#[command(name = "spandrel", version, max_term_width = WIDTH, after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Solve(Box<SolveArgs>),
    Info(InfoArgs),
    Spmv(SpmvArgs),
    Convert(ConvertArgs),
    Generate(GenerateArgs),
    Devices(DevicesArgs),
}

impl Command {
    /// Whether the answer is to be one JSON object.
    pub(crate) fn json(&self) -> bool {
        match self {
            Command::Solve(args) => args.json,
            Command::Info(args) => args.json,
            Command::Spmv(args) => args.json,
            Command::Devices(args) => args.json,
            Command::Convert(args) => args.json,
            Command::Generate(args) => args.json,
        }
    }

    /// The number of threads asked for.
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            Command::Solve(args) => args.threads,
            Command::Info(args) => args.threads,
            Command::Spmv(args) => args.threads,
            Command::Convert(args) => args.threads,
            Command::Generate(args) => args.threads,
            Command::Devices(args) => args.threads,
        }
    }
}

/// Solve A x = b.
///
/// The answer names what was chosen and why, how the iteration ended, and the true residual ||b - A x|| / ||b||,
/// recomputed from x at the end. A matrix that is not square is solved as a least squares problem by --solver direct.
///
/// Ctrl-C ends the iteration at the next look: x so far is reported and written, with status interrupted. A second
/// Ctrl-C ends the program.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS, after_long_help = format!("{MATRIX_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct SolveArgs {
    /// Matrix Market file (.mtx, .mtx.gz) or generator (d3n7:64, poisson2d:512, ...).
    pub(crate) matrix: String,
    /// Right-hand side: ones, random (uniform in -1..1), from-solution (b = A x for x = 1, so that the error of x is
    /// known), or a Matrix Market file with one column (one that is called `ones` is reached as ./ones).
    #[arg(long, value_name = "ones|random|from-solution|FILE", default_value = "ones", help_heading = "Problem")]
    pub(crate) rhs: String,
    /// First guess of x, a Matrix Market file with one column; zero without it.
    #[arg(long, value_name = "FILE", help_heading = "Problem")]
    pub(crate) x0: Option<PathBuf>,
    /// Seed of a random right-hand side. (A generator's seed is part of its name: `,seed=7`.)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Problem")]
    pub(crate) seed: u64,

    /// Method. auto: cg for a symmetric matrix with a positive diagonal, bicgstab for other square ones, direct for the
    /// rest; where cg finds the matrix indefinite, auto goes on with bicgstab, and where bicgstab breaks down or diverges, with
    /// gmres: once, and it says so.
    #[arg(long, value_enum, default_value_t = SolverName::Auto, help_heading = "Method")]
    pub(crate) solver: SolverName,
    /// Steps of gmres between two restarts: it keeps as many vectors, and two more. Default 30.
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Method")]
    pub(crate) restart: Option<usize>,
    /// Preconditioner: auto, none, jacobi, block-jacobi=K, ssor, ssor=OMEGA, ilu0, iluk=K, ic0, mg, mg=LEVELS, or approximately
    /// ilu0-jacobi=K, ic0-jacobi=K, ilu0-isai, ic0-isai. auto: mg, ic0 or ilu0, ic0 or jacobi where that fails.
    ///
    /// auto: ic0 for a symmetric matrix with a positive diagonal, ilu0 for others whose diagonal has no zero (with cg jacobi), none for
    /// the rest. Where the factorisation breaks down, jacobi takes its place and the report says so. With cg, mg in the place of ic0 for
    /// grids so large that it is expected to be done first, if the diagonal is weakly dominant and no other entry is positive; ic0 takes
    /// over where it comes to nothing. Not with --reproducible, nor with --precision mixed or refined.
    ///
    /// ssor is omega = 1 (symmetric Gauss-Seidel); iluk=K has fill up to level K. ic0 is for symmetric positive definite matrices;
    /// where it meets a pivot that is not positive it factors A + alpha diag(A), and the report says so. ilu0 and iluk go with
    /// bicgstab and gmres, ssor with any method. block-jacobi=K inverts blocks of K rows, block-jacobi=auto of the unknowns of a
    /// point. mg is a multigrid V-cycle for matrices that are a stencil on a grid, symmetric or not; mg=LEVELS has that many grids at
    /// most.
    ///
    /// ilu0-jacobi=K and ic0-jacobi=K have K Jacobi sweeps, ilu0-isai and ic0-isai a sparse approximate inverse, in the place of each
    /// triangular solve: other preconditioners than ilu0 and ic0, which take more iterations.
    #[arg(long, value_parser = PrecondName::parse, default_value = "auto", help_heading = "Method")]
    pub(crate) precond: PrecondName,
    /// Storage format of the iteration. auto: the one that moves the fewest bytes.
    #[arg(long, value_parser = formats_or_auto(), default_value = "auto", help_heading = "Method")]
    pub(crate) format: String,
    /// Renumbering of rows and columns before the solve; x comes back in the matrix's own numbering.
    #[arg(long, value_enum, default_value_t = ReorderName::None, help_heading = "Method")]
    pub(crate) reorder: ReorderName,
    /// Element type of matrix and vectors; mixed: f64 with the preconditioner in f32; refined: f32 with residuals and x in f64.
    ///
    /// refined solves for corrections in f32, matrix and preconditioner included, until the residual in f64 is small enough
    /// (iterative refinement); its iterations are those in f32. Both end as converged by the true residual in f64 alone.
    #[arg(long, value_enum, default_value_t = SolvePrecision::F64, help_heading = "Method")]
    pub(crate) precision: SolvePrecision,

    /// Relative goal: ||b - A x|| <= rtol ||b||. Default 1e-8, with f32 alone 1e-5.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = tolerance, help_heading = "Stopping")]
    pub(crate) rtol: Option<f64>,
    /// Absolute goal: ||b - A x|| <= atol is enough, too.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = tolerance, default_value = "0", help_heading = "Stopping")]
    pub(crate) atol: f64,
    /// Iteration limit. Default: 20 times the rows, at least 20.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Stopping")]
    pub(crate) max_iters: Option<usize>,
    /// Iterations between two looks at the residual by the host. Default 16. It changes no bit of x.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Stopping")]
    pub(crate) check_every: Option<usize>,
    /// Iterations of cg or bicgstab in a row without a smaller residual after which the solve ends as stagnated. Default: never.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Stopping")]
    pub(crate) stagnation: Option<usize>,

    /// Where to run. auto: the GPU where one is found, else the CPU.
    #[arg(long, value_enum, default_value_t = BackendName::Auto, help_heading = "Machine")]
    pub(crate) backend: BackendName,
    /// The GPU with this number, as `spandrel devices` lists them. Default: the first that can be used.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Machine")]
    pub(crate) device: Option<usize>,
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count, help_heading = "Machine")]
    pub(crate) threads: Option<usize>,
    /// Only kernels whose order of summation all backends share: the same x, bit for bit, on every machine, backend and
    /// number of threads.
    ///
    /// Its cost: formats that sum in another order are refused, or passed over by auto, even where they are faster, and
    /// --solver direct, whose factorisation orders its sums by the machine, is refused. On the CPU every kernel of this
    /// build keeps the shared order, so an iteration costs nothing extra there; on a GPU rows of very different lengths
    /// take longer.
    #[arg(long, help_heading = "Machine")]
    pub(crate) reproducible: bool,

    /// Write x as a Matrix Market file, packed where the name ends in .gz.
    #[arg(long, value_name = "x.mtx", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Write the relative residual of every iteration as CSV.
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    pub(crate) history: Option<PathBuf>,
    /// Draw the convergence as SVG.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output", value_parser = PathBufValueParser::new().try_map(svg))]
    pub(crate) plot: Option<PathBuf>,
    /// One JSON object on stdout.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Describe a matrix: shape, structure, cost per format, and the format it would get.
///
/// Values are read as f64, and so are the bytes and the chosen format those of f64.
#[derive(Debug, Args)]
#[command(after_long_help = MATRIX_HELP)]
pub(crate) struct InfoArgs {
    /// Matrix Market file (.mtx, .mtx.gz) or generator (d3n7:64, poisson2d:512, ...).
    pub(crate) matrix: String,
    /// Draw where the entries are, as a grey PNG of at most 1024 pixels a side.
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(png))]
    pub(crate) spy: Option<PathBuf>,
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time y = A x in every format that fits, and check each answer.
///
/// GB/s counts what the format must move (matrix, x and y once). The share is of the bandwidth of a copy, measured in the
/// same run on the same device; above 100 % the matrix stays in the cache.
#[derive(Debug, Args)]
#[command(after_long_help = MATRIX_HELP)]
pub(crate) struct SpmvArgs {
    /// Matrix Market file (.mtx, .mtx.gz) or generator (d3n7:64, poisson2d:512, ...).
    pub(crate) matrix: String,
    /// Only these formats (repeat, or separate by commas); all without it.
    #[arg(long, value_name = "FORMAT", value_parser = formats(), value_delimiter = ',')]
    pub(crate) format: Vec<String>,
    /// Element type of matrix and vectors.
    #[arg(long, value_enum, default_value_t = Precision::F64)]
    pub(crate) precision: Precision,
    /// Where to run. auto: the GPU where one is found, else the CPU.
    #[arg(long, value_enum, default_value_t = BackendName::Auto)]
    pub(crate) backend: BackendName,
    /// The GPU with this number, as `spandrel devices` lists them. Default: the first that can be used.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) device: Option<usize>,
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a matrix to a Matrix Market file, packed where the name ends in .gz.
#[derive(Debug, Args)]
#[command(after_long_help = MATRIX_HELP)]
pub(crate) struct ConvertArgs {
    /// Matrix Market file (.mtx, .mtx.gz) or generator (d3n7:64, poisson2d:512, ...).
    pub(crate) matrix: String,
    /// The file to write (.mtx, .mtx.gz).
    pub(crate) out: PathBuf,
    /// Store the lower triangle only; an error if the matrix is not symmetric.
    #[arg(long)]
    pub(crate) symmetric: bool,
    /// Drop entries with |value| <= THRESHOLD, an absolute bound whatever the matrix's scale; 0 drops explicit zeros.
    #[arg(long, value_name = "THRESHOLD", allow_negative_numbers = true, value_parser = tolerance)]
    pub(crate) compress: Option<f64>,
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a generated matrix to a Matrix Market file, packed where the name ends in .gz.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The generator and its parameters, e.g. d3n7:64 or banded:n=15600,d=33.
    #[arg(required_unless_present = "list")]
    pub(crate) spec: Option<String>,
    /// The file to write (.mtx, .mtx.gz).
    #[arg(required_unless_present = "list")]
    pub(crate) out: Option<PathBuf>,
    /// List the generators with their parameters.
    #[arg(long, conflicts_with_all = ["spec", "out"])]
    pub(crate) list: bool,
    /// Store the lower triangle only; an error if the matrix is not symmetric.
    #[arg(long)]
    pub(crate) symmetric: bool,
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What there is to run on, and for a missing GPU why it is missing.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SolverName {
    Auto,
    Cg,
    Bicgstab,
    Gmres,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PrecondName {
    Auto,
    None,
    Jacobi,
    /// With the rows of a block; without, the unknowns of a point of the grid.
    BlockJacobi(Option<usize>),
    /// With its omega.
    Ssor(f64),
    Ilu0,
    /// With its level of fill.
    Iluk(usize),
    Ic0,
    /// With the number of sweeps.
    Ilu0Jacobi(usize),
    /// With the number of sweeps.
    Ic0Jacobi(usize),
    Ilu0Isai,
    Ic0Isai,
    /// With the most grids.
    Mg(Option<usize>),
}

impl PrecondName {
    fn parse(text: &str) -> Result<Self, String> {
        let (stem, parameter) = match text.split_once('=') {
            Some((stem, parameter)) => (stem, Some(parameter)),
            None => (text, None),
        };
        match (stem, parameter) {
            ("auto", None) => Ok(Self::Auto),
            ("none", None) => Ok(Self::None),
            ("jacobi", None) => Ok(Self::Jacobi),
            ("ilu0", None) => Ok(Self::Ilu0),
            ("ic0", None) => Ok(Self::Ic0),
            ("mg", None) => Ok(Self::Mg(None)),
            ("mg", Some(levels)) => match levels.parse() {
                Ok(levels) if levels > 0 => Ok(Self::Mg(Some(levels))),
                _ => Err("LEVELS is a number of grids, 1 or more, e.g. mg=4".into()),
            },
            ("ssor", None) => Ok(Self::Ssor(1.0)),
            ("ssor", Some(omega)) => match omega.parse::<f64>() {
                Ok(omega) if omega > 0.0 && omega < 2.0 => Ok(Self::Ssor(omega)),
                _ => Err("omega is a number between 0 and 2, e.g. ssor=1.5".into()),
            },
            ("iluk", Some(level)) => {
                level.parse().map(Self::Iluk).map_err(|_| "K is a level of fill, 0 or more, e.g. iluk=1".into())
            }
            ("block-jacobi", Some("auto")) => Ok(Self::BlockJacobi(None)),
            ("block-jacobi", Some(rows)) => match rows.parse() {
                Ok(rows) if (1..=MAX_BLOCK_DIM).contains(&rows) => Ok(Self::BlockJacobi(Some(rows))),
                _ => Err(format!("K is the rows of a block, 1 to {MAX_BLOCK_DIM}, e.g. block-jacobi=4, or auto")),
            },
            ("block-jacobi", None) => Err("say how many rows a block has, e.g. block-jacobi=4".into()),
            ("ilu0-jacobi", Some(count)) => sweeps(count).map(Self::Ilu0Jacobi),
            ("ic0-jacobi", Some(count)) => sweeps(count).map(Self::Ic0Jacobi),
            ("ilu0-jacobi" | "ic0-jacobi", None) => Err(format!("say how many sweeps, e.g. {stem}=3")),
            ("ilu0-isai", None) => Ok(Self::Ilu0Isai),
            ("ic0-isai", None) => Ok(Self::Ic0Isai),
            ("iluk", None) => Err("say up to which level there is fill, e.g. iluk=1".into()),
            _ => Err("there are auto, none, jacobi, block-jacobi=K, ssor, ssor=OMEGA, ilu0, iluk=K, ic0, mg, mg=LEVELS, ilu0-jacobi=K, \
                      ic0-jacobi=K, ilu0-isai and ic0-isai"
                .into()),
        }
    }
}

/// The number of sweeps that an approximate solve makes.
fn sweeps(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=MAX_SWEEPS).contains(&count) => Ok(count),
        _ => Err(format!("K is a number of sweeps, 1 to {MAX_SWEEPS}, e.g. ilu0-jacobi=3")),
    }
}

/// More sweeps take longer than the solve that they approximate.
const MAX_SWEEPS: usize = 1000;

/// As it is written on the command line.
impl std::fmt::Display for PrecondName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Jacobi => f.write_str("jacobi"),
            Self::Ssor(omega) if *omega == 1.0 => f.write_str("ssor"),
            Self::Ssor(omega) => write!(f, "ssor={omega}"),
            Self::Ilu0 => f.write_str("ilu0"),
            Self::Iluk(level) => write!(f, "iluk={level}"),
            Self::Ic0 => f.write_str("ic0"),
            Self::BlockJacobi(None) => f.write_str("block-jacobi=auto"),
            Self::BlockJacobi(Some(rows)) => write!(f, "block-jacobi={rows}"),
            Self::Ilu0Jacobi(sweeps) => write!(f, "ilu0-jacobi={sweeps}"),
            Self::Ic0Jacobi(sweeps) => write!(f, "ic0-jacobi={sweeps}"),
            Self::Ilu0Isai => f.write_str("ilu0-isai"),
            Self::Ic0Isai => f.write_str("ic0-isai"),
            Self::Mg(None) => f.write_str("mg"),
            Self::Mg(Some(levels)) => write!(f, "mg={levels}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReorderName {
    None,
    /// Reverse Cuthill-McKee: a narrow band.
    Rcm,
    /// Approximate minimum degree: little fill.
    Amd,
}

/// Element types of a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SolvePrecision {
    F64,
    F32,
    /// f64 with the preconditioner in f32.
    Mixed,
    /// f32 with residuals and x in f64.
    Refined,
}

impl SolvePrecision {
    /// As it is written on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Mixed => "mixed",
            Self::Refined => "refined",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    F64,
    F32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    Auto,
    Cpu,
    Cuda,
}

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),*) => { &[$(stringify!($stem)),*] };
}
/// The storage formats, as they are called on the command line.
pub(crate) const FORMATS: &[&str] = spandrel_formats::for_each_format!(stems);

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(FORMATS)
}

fn formats_or_auto() -> PossibleValuesParser {
    PossibleValuesParser::new(std::iter::once("auto").chain(FORMATS.iter().copied()))
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("a finite number that is not negative is needed, e.g. 1e-8".into()),
        Err(_) => Err("not a number; write e.g. 1e-8".into()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("at least 1 is needed".into()),
        Ok(value) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

fn thread_count(text: &str) -> Result<usize, String> {
    const MOST: usize = 4096;
    match at_least_one(text)? {
        count if count > MOST => Err(format!("at most {MOST} threads")),
        count => Ok(count),
    }
}

fn svg(path: PathBuf) -> Result<PathBuf, String> {
    picture(path, "svg")
}

fn png(path: PathBuf) -> Result<PathBuf, String> {
    picture(path, "png")
}

/// Refuses a name that promises a picture of another kind, which no viewer would open.
fn picture(path: PathBuf, kind: &str) -> Result<PathBuf, String> {
    const KINDS: [&str; 12] = ["bmp", "eps", "gif", "jpeg", "jpg", "pdf", "png", "ps", "svg", "tif", "tiff", "webp"];
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    if ending != kind && KINDS.contains(&ending.as_str()) {
        return Err(format!("the picture is {}: give a name that ends in .{kind}", kind.to_uppercase()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_name_that_promises_another_picture_is_refused() {
        for name in ["a.svg", "a.SVG", "a", "/dev/stdout", "a.v2", "a.png.svg"] {
            assert_eq!(svg(name.into()), Ok(name.into()));
        }
        assert_eq!(svg("a.png".into()).unwrap_err(), "the picture is SVG: give a name that ends in .svg");
        assert!(png("a.svg".into()).is_err() && png("a.JPG".into()).is_err() && png("a.png".into()).is_ok());
        let parsed = |args: &[&str]| Cli::try_parse_from([&["spandrel"], args].concat());
        assert!(parsed(&["solve", "d3n7:4", "--plot", "x.svg"]).is_ok());
        assert!(parsed(&["solve", "d3n7:4", "--plot", "x.png"]).is_err());
        assert!(parsed(&["info", "d3n7:4", "--spy", "x.svg"]).is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_format_of_the_registry_is_offered() {
        for stem in FORMATS {
            assert!(Cli::try_parse_from(["spandrel", "solve", "m", "--format", stem]).is_ok(), "{stem}");
        }
        assert!(Cli::try_parse_from(["spandrel", "solve", "m", "--format", "jds"]).is_err());
    }

    #[test]
    fn every_factorisation_of_the_registry_is_offered() {
        macro_rules! stems {
            ([] $(($stem:ident, $Type:ident)),*) => { [$(stringify!($stem)),*] };
        }
        for stem in spandrel::sptrsv::for_each_factor!(stems) {
            let text = if stem == "iluk" { "iluk=2" } else { stem };
            assert_eq!(PrecondName::parse(text).expect(stem).to_string(), text);
        }
        let blocks = ["block-jacobi=4", "block-jacobi=auto"];
        let others = ["mg", "mg=4", blocks[0], blocks[1], "ilu0-jacobi=3", "ic0-jacobi=1", "ilu0-isai", "ic0-isai"];
        for text in ["auto", "none", "jacobi", "ssor", "ssor=1.5", "iluk=0"].into_iter().chain(others) {
            assert_eq!(PrecondName::parse(text).expect(text).to_string(), text);
        }
        for bad in [
            "", "iluk", "iluk=", "iluk=-1", "ssor=2", "ssor=0", "ssor=nan", "ssor=", "ilu0=1", "ic0=0", "ILU0", "mg=0",
            "mg=", "mg=x",
        ] {
            assert!(PrecondName::parse(bad).is_err(), "{bad}");
        }
        for bad in [
            "block-jacobi",
            "block-jacobi=0",
            "block-jacobi=129",
            "ilu0-jacobi",
            "ic0-jacobi=0",
            "ilu0-isai=1",
            "jacobi=2",
        ] {
            assert!(PrecondName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bad_numbers_are_refused() {
        for bad in ["-1e-8", "nan", "inf", "small", ""] {
            let given = format!("--rtol={bad}");
            assert!(Cli::try_parse_from(["spandrel", "solve", "m", &given]).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "5000", "two"] {
            let given = format!("--threads={bad}");
            assert!(Cli::try_parse_from(["spandrel", "solve", "m", &given]).is_err(), "{bad}");
        }
    }
}
