//! The command line. It offers only what can be run.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use spandrel::Method;
use spandrel::ranks::RankPrecond;
use spandrel::solver::{FormatChoice, NullVectors, Reorder, Scale};

use crate::manual::{CompletionsArgs, ManArgs};
use crate::names;

/// Where the text of `--help` wraps, on terminals that are wider.
const WIDTH: usize = 100;

const EXIT_STATUS: &str = "\
Exit status: 0 converged or done, 1 error, 2 bad usage, 3 not converged or interrupted with an answer, 130 ended by Ctrl-C \
without an answer.";

const MATRIX_HELP: &str = "\
MATRIX is a Matrix Market file (.mtx, .mtx.gz), - for stdin, or a generator such as d3n7:64 or poisson2d:512; `spandrel generate \
--list` shows all generators. Write ./NAME for a file that has the name of a generator.";

const STDOUT_HELP: &str = "\
An output called - has stdout to itself: the report goes to stderr, and --json is refused. Write ./- for a file of that name.";

/// Solve, inspect, time, convert and generate sparse linear systems.
#[derive(Debug, Parser)]
#[command(name = "spandrel", version, max_term_width = WIDTH, subcommand_value_name = "COMMAND", after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    /// Print no progress and no notes; errors still go to stderr, results to stdout.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
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
    Completions(CompletionsArgs),
    Man(ManArgs),
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
            Command::Completions(_) | Command::Man(_) => false,
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
            Command::Completions(_) | Command::Man(_) => None,
        }
    }
}

/// Solve A x = b.
///
/// The report says what was chosen and why, how the iteration ended, and the true residual ||b - A x|| / ||b||,
/// recomputed from x at the end. If the matrix is not square, --solver direct solves the least squares problem.
///
/// Ctrl-C stops the iteration: x so far is reported and written, with status interrupted. A second Ctrl-C ends the
/// program at once, and so does the first while there is no iteration to stop (reading, analysing, factoring, loading,
/// writing).
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS, after_long_help = format!("{MATRIX_HELP}\n\n{STDOUT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct SolveArgs {
    /// Matrix Market file (.mtx, .mtx.gz), - for stdin, or generator (d3n7:64, poisson2d:512, ...).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) matrix: String,
    /// Right-hand side b: ones, random (uniform in -1..1), from-solution (b = A x for x = 1, so that the error of x is
    /// known), or a file: Matrix Market, plain text or .npy (- for stdin). Each column of the file is solved for, and
    /// reported on its own. Write ./ones for a file called ones.
    #[arg(long, value_name = "ones|random|from-solution|FILE", default_value = "ones", help_heading = "Problem")]
    #[arg(value_parser = names::right_hand_side, value_hint = ValueHint::FilePath)]
    pub(crate) rhs: String,
    /// First guess of x: a file with as many columns as b: Matrix Market, plain text or .npy (- for stdin). Default:
    /// zero.
    #[arg(long, value_name = "FILE", help_heading = "Problem")]
    pub(crate) x0: Option<PathBuf>,
    /// Seed of --rhs random. (The seed of a generator is part of its name: `,seed=7`.)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Problem")]
    pub(crate) seed: u64,

    /// Method. auto takes cg for a symmetric matrix with a positive diagonal and bicgstab for other square matrices, or
    /// direct if a factorisation should finish first; matrices that are not square get direct, for least squares.
    ///
    /// An iteration that turns out slower than the factorisation gives way to it, and so does one that fails. If a
    /// factorisation does not fit into memory, auto goes on with bicgstab if cg finds the matrix indefinite, and with
    /// gmres if bicgstab breaks down or diverges. A singular matrix is solved if b allows it; else the report names the
    /// rows or columns at fault. The report has a line for each attempt. A factorisation is left out if you name a
    /// method, preconditioner, format, precision or --max-iters, and with --reproducible.
    #[arg(long, value_parser = names::methods(), ignore_case = true, default_value = "auto", help_heading = "Method")]
    pub(crate) solver: OrAuto<Method>,
    /// Steps of gmres between two restarts. It stores this many vectors and two more. Default: 30.
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Method")]
    pub(crate) restart: Option<usize>,
    /// Preconditioner: auto, none, jacobi, block-jacobi=K, chebyshev=K, ssor, ssor=OMEGA, ilu0, iluk=K, ilut, ilut=TAU,
    /// ilut=TAU,P, ilutp, ilutp=TAU,P, ic0, mg, mg=LEVELS, mg=SMOOTHER, amg, amg=OPTIONS, or an approximation
    /// ilu0-jacobi=K, ic0-jacobi=K, ilu0-isai, ic0-isai.
    ///
    /// auto takes ic0 for a symmetric matrix with a positive diagonal, ilu0 for other matrices whose diagonal has no
    /// zero (jacobi with cg), and none for the rest. If the factorisation breaks down, auto takes jacobi instead. With
    /// cg, auto takes mg instead of ic0 for grids so large that mg should finish first, if the diagonal is weakly
    /// dominant and no other entry is positive. It takes amg instead of ic0 for large matrices that look like an
    /// elliptic problem, elasticity included, if amg should finish first; on a grid of nearest neighbours with one
    /// unknown per point it takes mg there. It keeps both in f32 inside an iteration in f64. If mg or amg makes no
    /// progress, auto takes ic0 instead. It takes neither with --reproducible, nor with --precision mixed or refined.
    /// If ic0 or ilu0 turns out to be slow, auto goes on with amg (or mg, as above) or ilut, where a factorisation may
    /// take over too. The report says what was taken and why.
    ///
    /// chebyshev=K is a polynomial of degree K in the scaled matrix, for symmetric positive definite matrices: nothing
    /// in it waits. ssor has omega = 1 (symmetric Gauss-Seidel). iluk=K has fill up to level K. ilut=TAU,P keeps fill
    /// by its size: entries below TAU times the largest of their row are dropped, and L and U have at most P times the
    /// entries of the matrix; ilut is ilut=1e-4,10. A pivot that is zero or tiny is replaced by a hundredth of its
    /// row's largest entry. ilutp=TAU,P also exchanges columns, so that larger entries of a row become its pivot: for
    /// zeros on the diagonal. ic0 is for symmetric positive definite matrices; if it meets a pivot that is not
    /// positive, it factors A + alpha diag(A) and the report says so. Use ilu0, iluk, ilut and ilutp with bicgstab and
    /// gmres, ssor with any method. block-jacobi=K inverts blocks of K rows; block-jacobi=auto takes the unknowns of a
    /// grid point as a block. mg is a multigrid V-cycle for matrices that are a stencil on a grid, symmetric or not;
    /// mg=LEVELS has at most that many grids. mg=gauss-seidel, mg=chebyshev and mg=l1-jacobi name the smoother. The
    /// last two take symmetric matrices with 5, 7, 9 or 27 points, and mg takes chebyshev where it can. Their degree,
    /// 1 to 4, is the number of products per smoothing: mg=chebyshev,degree=3.
    ///
    /// amg is an algebraic multigrid V-cycle (smoothed aggregation) for symmetric positive definite matrices, with or
    /// without a grid. For systems of equations say how many unknowns each point has, e.g. amg=unknowns=3. amg=cycle=k
    /// takes a K-cycle instead, with cg or bicgstab: fewer iterations, each of which takes longer. Other options are
    /// strength, degree, coarsest and levels, separated by commas.
    ///
    /// ilu0-jacobi=K and ic0-jacobi=K replace each triangular solve by K Jacobi sweeps, ilu0-isai and ic0-isai by a
    /// sparse approximate inverse. They differ from ilu0 and ic0 and take more iterations.
    ///
    /// On several ranks (--ranks) auto takes jacobi instead of ic0 and ilu0, and mg=chebyshev instead of mg; it chooses
    /// multigrid by the reference profile. Only none, jacobi, chebyshev=K, mg=chebyshev, mg=l1-jacobi and amg are the
    /// same there as on one device. blockwise=NAME gives each rank the preconditioner NAME of its own rows, and
    /// schwarz=NAME,overlap=K also K layers of neighbouring rows. These two depend on the number of ranks, and so do
    /// the iterations and x.
    #[arg(long, value_parser = names::Preconditioners, hide_possible_values = true, default_value = "auto", help_heading = "Method")]
    pub(crate) precond: OrAuto<RankPrecond>,
    /// Storage format of the matrix in the iteration. auto takes the one that should be fastest by a model of its
    /// bytes; measured times the best few on the device first.
    #[arg(long, value_parser = names::format_choices(), ignore_case = true, default_value = "auto", help_heading = "Method")]
    pub(crate) format: FormatChoice,
    /// Renumber rows and columns before the solve; x comes back in the numbering of the matrix. auto takes bfs for a
    /// large matrix whose entries are far from the diagonal: on a CPU and on several ranks if it brings them near, on
    /// a GPU for amg. bisection needs a build with METIS.
    #[arg(long, value_parser = names::orderings(), ignore_case = true, default_value = "auto", help_heading = "Method")]
    pub(crate) reorder: OrAuto<Reorder>,
    /// Find the x with the least ||b - A x||, for a matrix of any rank and shape. A factorisation (QR) does it. Of
    /// several such x it is nearly the one of least ||D x||, D the largest entries of the columns.
    #[arg(long, help_heading = "Method")]
    pub(crate) least_squares: bool,
    /// What is known of the null space of a singular matrix. constant: A 1 = 0 and A^T 1 = 0, as in pure Neumann
    /// problems. b loses its part in it, and x has none.
    #[arg(long, value_parser = names::null_spaces(), ignore_case = true, default_value = "none", help_heading = "Method")]
    pub(crate) null_space: NullVectors,
    /// Vectors that the matrix maps to nearly nothing, for amg: a file with a column for each, at most 6 (Matrix
    /// Market, plain text, .npy). Asks for amg.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Method")]
    pub(crate) near_null_space: Option<PathBuf>,
    /// Coordinates of the points whose displacements are the unknowns, for amg with rigid body modes: a file with a row
    /// for each point and 2 or 3 columns. Asks for amg.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Method")]
    #[arg(conflicts_with = "near_null_space")]
    pub(crate) coordinates: Option<PathBuf>,
    /// Scale rows and columns for the iteration; x and residuals are those of the matrix as given. equilibrate
    /// multiplies by powers of two; match also permutes rows, so that large entries are on the diagonal. auto scales if
    /// the matrix needs it.
    #[arg(long, value_parser = names::scalings(), ignore_case = true, default_value = "auto", help_heading = "Method")]
    pub(crate) scale: OrAuto<Scale>,
    /// Element type of matrix and vectors; mixed and refined combine both.
    ///
    /// refined solves for corrections in f32, matrix and preconditioner included, until the residual in f64 is small
    /// enough (iterative refinement). It counts the iterations in f32. mixed and refined end as converged only if the
    /// true residual in f64 says so.
    #[arg(long, value_enum, ignore_case = true, default_value_t = SolvePrecision::F64, help_heading = "Method")]
    pub(crate) precision: SolvePrecision,

    /// Relative tolerance: ||b - A x|| <= rtol ||b||. Default: 1e-8, or 1e-5 with --precision f32.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = tolerance, help_heading = "Stopping")]
    pub(crate) rtol: Option<f64>,
    /// Absolute tolerance: ||b - A x|| <= atol is enough, too.
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = tolerance, default_value = "0", help_heading = "Stopping")]
    pub(crate) atol: f64,
    /// Limit of iterations. Default: 20 times the number of rows, at least 20.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number, help_heading = "Stopping")]
    pub(crate) max_iters: Option<usize>,
    /// The host looks at the residual every N iterations. Default: 16. This changes no bit of x.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Stopping")]
    pub(crate) check_every: Option<usize>,
    /// Stop cg or bicgstab as stagnated after N iterations in a row without a smaller residual. Default: never.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one, help_heading = "Stopping")]
    pub(crate) stagnation: Option<usize>,

    /// What counts as solved (exit status 0): residual, a true residual as small as was asked for; or backward, also an
    /// answer whose backward error is of the size of rounding (status backward_stable), which is the best that this
    /// precision can do for an ill-conditioned matrix.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Accept::Residual, help_heading = "Stopping")]
    pub(crate) accept: Accept,
    /// Take nothing else if the first choice fails or is slow.
    #[arg(long, help_heading = "Method")]
    pub(crate) no_fallback: bool,

    /// Where to run. auto takes the GPU if one is found, else the CPU.
    #[arg(long, value_enum, ignore_case = true, default_value_t = BackendName::Auto, help_heading = "Machine")]
    pub(crate) backend: BackendName,
    /// Number of the GPU, as `spandrel devices` lists them. Default: the first that can be used.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number, help_heading = "Machine")]
    pub(crate) device: Option<usize>,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count, help_heading = "Machine")]
    pub(crate) threads: Option<usize>,
    /// Solve on K ranks: threads of this process that share the CPU, each with a range of rows that it reads or
    /// generates by itself.
    ///
    /// x has the same bits for any K, unless the preconditioner depends on the number of ranks. Methods are cg,
    /// bicgstab and gmres; auto takes cg for a symmetric matrix with a positive diagonal, else bicgstab. Needs a file
    /// or a generator (not stdin) and one right-hand side. A build with the feature mpi also runs on the processes that
    /// `mpirun -n K spandrel solve ...` starts.
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = rank_count, help_heading = "Machine")]
    pub(crate) ranks: Option<usize>,
    /// Solve on K ranks as --ranks does, each on a GPU of this machine. If there are fewer GPUs than K, ranks share
    /// them.
    ///
    /// x has the same bits as with --ranks: every GPU uses only kernels whose order of summation the CPU shares.
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = rank_count, help_heading = "Machine")]
    pub(crate) gpus: Option<usize>,
    /// How ranks exchange entries of vectors and sums: devices read each other's memory where they can, or everything
    /// passes through the host. x has the same bits.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Messages::Auto, help_heading = "Machine")]
    pub(crate) messages: Messages,
    /// Seconds that a rank waits for another before the solve fails. Default: 600.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds, help_heading = "Machine")]
    pub(crate) rank_wait: Option<std::time::Duration>,
    /// Use only kernels whose order of summation all backends share: x is the same, bit for bit, on every machine,
    /// backend and number of threads.
    ///
    /// The cost: formats that sum in another order are refused, and auto skips them even if they are faster. --solver
    /// direct is refused, because its factorisation orders the sums by the machine. On the CPU every kernel of this
    /// build keeps the shared order, so an iteration costs nothing extra. On a GPU rows of very different lengths take
    /// longer.
    #[arg(long, help_heading = "Machine")]
    pub(crate) reproducible: bool,

    /// Write x as a Matrix Market array, a column for each of b, compressed if the name ends in .gz; - is stdout.
    #[arg(long, value_name = "x.mtx", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Write the relative residual of every iteration as CSV, with the number of the column if b has several; - is
    /// stdout.
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    pub(crate) history: Option<PathBuf>,
    /// Draw the convergence as SVG; - is stdout.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output", value_parser = PathBufValueParser::new().try_map(svg))]
    pub(crate) plot: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Describe a matrix: shape, structure, cost per format, and the format that auto takes.
///
/// Values are read as f64, so the bytes and the format are those of f64.
#[derive(Debug, Args)]
#[command(after_long_help = MATRIX_HELP)]
pub(crate) struct InfoArgs {
    /// Matrix Market file (.mtx, .mtx.gz), - for stdin, or generator (d3n7:64, poisson2d:512, ...).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) matrix: String,
    /// Draw the positions of the entries, as a grey PNG of at most 1024 pixels per side; - is stdout.
    #[arg(long, value_name = "FILE.png", value_parser = PathBufValueParser::new().try_map(png))]
    pub(crate) spy: Option<PathBuf>,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time y = A x in every format that fits, and check each result.
///
/// GB/s counts the bytes that the format must move (matrix, x and y once each). The last column compares that with the
/// bandwidth of a copy, measured in the same run on the same device. It exceeds 100 % if the matrix stays in the cache.
#[derive(Debug, Args)]
#[command(after_long_help = MATRIX_HELP)]
pub(crate) struct SpmvArgs {
    /// Matrix Market file (.mtx, .mtx.gz), - for stdin, or generator (d3n7:64, poisson2d:512, ...).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) matrix: String,
    /// Only these formats (repeat the option, or separate names by commas). Default: all.
    #[arg(long, value_name = "FORMAT", value_parser = formats(), ignore_case = true, value_delimiter = ',')]
    pub(crate) format: Vec<String>,
    /// Element type of matrix and vectors.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Precision::F64)]
    pub(crate) precision: Precision,
    /// Where to run. auto takes the GPU if one is found, else the CPU.
    #[arg(long, value_enum, ignore_case = true, default_value_t = BackendName::Auto)]
    pub(crate) backend: BackendName,
    /// Number of the GPU, as `spandrel devices` lists them. Default: the first that can be used.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) device: Option<usize>,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a matrix as a Matrix Market file, compressed if the name ends in .gz.
#[derive(Debug, Args)]
#[command(after_long_help = format!("{MATRIX_HELP}\n\n{STDOUT_HELP}"))]
pub(crate) struct ConvertArgs {
    /// Matrix Market file (.mtx, .mtx.gz), - for stdin, or generator (d3n7:64, poisson2d:512, ...).
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) matrix: String,
    /// File to write (.mtx, .mtx.gz); - is stdout.
    pub(crate) out: PathBuf,
    /// Store only the lower triangle; an error if the matrix is not symmetric.
    #[arg(long)]
    pub(crate) symmetric: bool,
    /// Drop entries with |value| <= THRESHOLD, whatever the scale of the matrix; 0 drops stored zeros.
    #[arg(long, value_name = "THRESHOLD", allow_negative_numbers = true, value_parser = tolerance)]
    pub(crate) compress: Option<f64>,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a generated matrix as a Matrix Market file, compressed if the name ends in .gz.
#[derive(Debug, Args)]
#[command(after_long_help = STDOUT_HELP)]
pub(crate) struct GenerateArgs {
    /// Generator and its parameters, such as d3n7:64 or banded:n=15600,d=33.
    #[arg(required_unless_present = "list")]
    pub(crate) spec: Option<String>,
    /// File to write (.mtx, .mtx.gz); - is stdout.
    #[arg(required_unless_present = "list")]
    pub(crate) out: Option<PathBuf>,
    /// List the generators and their parameters.
    #[arg(long, conflicts_with_all = ["spec", "out"])]
    pub(crate) list: bool,
    /// Store only the lower triangle; an error if the matrix is not symmetric.
    #[arg(long)]
    pub(crate) symmetric: bool,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the devices that the program can run on, and why it can use no GPU.
///
/// Formats, plans and preconditioners are chosen by the profile of a device: measured on its kind, scaled from one that
/// was, or calibrated on this machine.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Measure the devices, in 20 seconds at most, and store their profiles in a file of your cache folder for later
    /// runs. --reproducible uses fixed profiles all the same.
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Number of threads. Default: one per core.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    /// Print the list as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A choice that is `None` for `auto`. The name keeps clap from taking it for an option without a default.
pub(crate) type OrAuto<P> = Option<P>;

/// What counts as solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accept {
    /// A true residual as small as was asked for.
    Residual,
    /// That, or a backward error of the size of rounding.
    Backward,
}

/// How ranks exchange what they need of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Messages {
    /// From device to device where all of them can read each other's memory, else through the host.
    Auto,
    /// Through the host.
    Host,
}

/// Element types of a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SolvePrecision {
    /// Double precision.
    F64,
    /// Single precision.
    F32,
    /// f64 with the preconditioner in f32.
    Mixed,
    /// f32 with residuals and x in f64.
    Refined,
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

fn formats() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(FormatChoice::NAMES).map(|name| name.to_ascii_lowercase())
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("a finite number that is not negative is needed, e.g. 1e-8".into()),
        Err(_) => Err("not a number; write e.g. 1e-8".into()),
    }
}

/// A number of things, also as generators take it: `1000`, `1e3`.
fn whole_number(text: &str) -> Result<usize, String> {
    let rounded = || text.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && (0.0..=9e15).contains(number));
    let number = text.parse().ok().or_else(|| rounded().map(|number| number as usize));
    number.ok_or_else(|| "not a whole number from 0 on; write e.g. 1000 or 1e3".into())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match whole_number(text)? {
        0 => Err("at least 1 is needed".into()),
        value => Ok(value),
    }
}

fn thread_count(text: &str) -> Result<usize, String> {
    const MOST: usize = 4096;
    match at_least_one(text)? {
        count if count > MOST => Err(format!("at most {MOST} threads")),
        count => Ok(count),
    }
}

fn rank_count(text: &str) -> Result<usize, String> {
    const MOST: usize = 1024;
    match at_least_one(text)? {
        count if count > MOST => Err(format!("at most {MOST} ranks")),
        count => Ok(count),
    }
}

/// A time that is not zero.
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let time = parsed.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "a number of seconds is needed, e.g. 60".into())
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
        for stem in FormatChoice::NAMES {
            assert!(Cli::try_parse_from(["spandrel", "solve", "m", "--format", stem]).is_ok(), "{stem}");
        }
        assert!(Cli::try_parse_from(["spandrel", "solve", "m", "--format", "jds"]).is_err());
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
