//! `spandrel solve --ranks K` and `--gpus K`, and under mpirun: each rank reads or generates its own rows, and rank 0
//! reports.
//!
//! Cost: each rank holds its rows once in a format of the solve, and twice while they are loaded. Rank 0 also holds x.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use spandrel::distributed::{Communicator, Distributed, Failure as Ended, TIME_LIMIT, Threads};
use spandrel::distributed::{generate_rows, read_rows};
use spandrel::ranks::{Planned, RankBackend, Solution};
use spandrel::solver::Element;
use spandrel::solvers::Status;
use spandrel::{Cpu, Method};
use spandrel_formats::generate::{Spec, is_spec};
use spandrel_formats::{Dense, Error};

use super::report::{ErrorReport, Report};
use super::{Seconds, Targets, problem, settings, write_files};
use crate::args::{Accept, BackendName, Messages, SolveArgs, SolvePrecision};
use crate::failure::{Failure, Result};
use crate::interrupt::{self, Looking};
use crate::progress::{self, Descent, Spinner};
use crate::{USAGE, input, output};

/// Where the ranks of a solve are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranks {
    /// So many threads of this process, which share the CPU.
    Threads(usize),
    /// So many threads of this process, each with a GPU.
    Gpus(usize),
    /// The processes that mpirun has started.
    Processes,
}

/// Whether this build can be what mpirun starts.
const HAS_MPI: bool = cfg!(all(unix, feature = "mpi"));

/// Variables in which mpirun tells a process how many there are: of Open MPI, and of MPICH and its relatives.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// The same for the number of this process.
const NUMBERS: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
/// The same for the processes on this machine.
#[cfg(all(unix, feature = "mpi"))]
const LOCAL_SIZES: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];
/// The same for the number of this process among them.
#[cfg(all(unix, feature = "mpi", feature = "cuda"))]
const LOCAL_NUMBERS: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];

fn told(names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Whether this is a process of mpirun that is not the first, so that it writes nothing.
pub(super) fn follows(args: &SolveArgs) -> bool {
    let on_threads = args.ranks.is_some() || args.gpus.is_some();
    HAS_MPI && !on_threads && told(&NUMBERS).is_some_and(|number| number > 0)
}

/// The ranks that the command line or mpirun asks for.
///
/// # Errors
/// Kind `usage` for ranks of several kinds, and `--rank-wait` without ranks; kind `unsupported` if mpirun has started
/// several processes of a build without MPI.
pub(super) fn wanted(args: &SolveArgs) -> Result<Option<Ranks>> {
    asked(args, told(&SIZES), HAS_MPI)
}

/// [`wanted`], where mpirun has started so many processes, of a build with MPI or without.
fn asked(args: &SolveArgs, processes: Option<usize>, has_mpi: bool) -> Result<Option<Ranks>> {
    let here = match (args.ranks, args.gpus) {
        (Some(_), Some(gpus)) => {
            let ranks = input::counted(gpus, "rank");
            let why = format!("--gpus {gpus} solves on {ranks}, each on a GPU, and --ranks on the CPU; leave one out");
            return Err(Failure::new(USAGE, why));
        }
        (Some(ranks), None) => Some(("--ranks", Ranks::Threads(ranks))),
        (None, Some(gpus)) => Some(("--gpus", Ranks::Gpus(gpus))),
        (None, None) => None,
    };
    match (here, processes) {
        (Some((option, _)), Some(processes)) if processes > 1 => Err(Failure::new(
            USAGE,
            format!(
                "mpirun has started {}, which are the ranks; leave {option} out",
                input::counted(processes, "process")
            ),
        )),
        (Some((_, ranks)), _) => Ok(Some(ranks)),
        (None, Some(_)) if has_mpi => Ok(Some(Ranks::Processes)),
        (None, Some(processes)) if processes > 1 => Err(Failure::new(
            "unsupported",
            format!(
                "mpirun has started {processes} processes, and this build of spandrel has no MPI; build it with --features mpi, or run it without mpirun and with --ranks {processes}"
            ),
        )),
        (None, _) if args.rank_wait.is_some() => {
            Err(Failure::new(USAGE, "--rank-wait is for several ranks; leave it out, or add --ranks K or --gpus K"))
        }
        (None, _) if args.messages != Messages::Auto => {
            Err(Failure::new(USAGE, "--messages is for several ranks; leave it out, or add --ranks K or --gpus K"))
        }
        (None, _) => Ok(None),
    }
}

/// Solves on ranks. Returns whether the system was solved.
///
/// # Errors
/// As [`super::run`]; kind `rank` if a rank has failed.
pub(super) fn run(ranks: Ranks, args: &SolveArgs, targets: &Targets, begin: Instant) -> Result<bool> {
    check(ranks, args)?;
    let limit = args.rank_wait.unwrap_or(TIME_LIMIT);
    match ranks {
        Ranks::Threads(ranks) => {
            let threads = (rayon::current_num_threads() / ranks).max(1);
            let job = Job { args, targets, begin, threads, listens: true, alone: false };
            on_threads(ranks, limit, job, |_| Cpu::with_threads(threads))
        }
        Ranks::Gpus(ranks) => on_gpus(ranks, limit, args, targets, begin),
        Ranks::Processes => on_processes(limit, args, targets, begin),
    }
}

/// Refuses what only a solve in one place can read, and devices that are not those of the ranks.
fn check(ranks: Ranks, args: &SolveArgs) -> Result<()> {
    let is_stdin = |path: Option<&Path>| path == Some(Path::new(output::DASH));
    for (name, path) in
        [("MATRIX", input::file(&args.matrix)), ("--rhs", problem::rhs_file(args)), ("--x0", args.x0.as_deref())]
    {
        if is_stdin(path) {
            let why = format!("{name} is stdin, which only one rank could read; give a file, or solve without ranks");
            return Err(Failure::new("unsupported", why));
        }
    }
    let near_null =
        [("--near-null-space", args.near_null_space.is_some()), ("--coordinates", args.coordinates.is_some())];
    if let Some((option, _)) = near_null.iter().find(|(_, is_given)| *is_given) {
        let why = format!("ranks take the constants as near-null space; leave {option} out, or solve without ranks");
        return Err(Failure::new("unsupported", why));
    }
    match ranks {
        Ranks::Gpus(gpus) if args.backend == BackendName::Cpu => {
            let why =
                format!("--gpus {gpus} solves on GPUs, and --backend cpu leaves them alone: leave one of the two out");
            Err(Failure::new(USAGE, why))
        }
        Ranks::Gpus(gpus) if args.device.is_some() => {
            let why =
                format!("--gpus {gpus} takes the GPUs in their order; leave --device out, or solve without ranks");
            Err(Failure::new(USAGE, why))
        }
        Ranks::Threads(_) if args.backend == BackendName::Cuda || args.device.is_some() => {
            let why = "ranks run on the CPU unless --gpus K asks for GPUs; leave --backend cuda and --device out, or use --gpus K instead of --ranks K";
            Err(Failure::new("unsupported", why))
        }
        Ranks::Processes if args.device.is_some() => {
            let why =
                "the processes of a machine take its GPUs in their order; leave --device out, and use --backend cuda";
            Err(Failure::new("unsupported", why))
        }
        Ranks::Gpus(_) | Ranks::Threads(_) | Ranks::Processes => Ok(()),
    }
}

/// One rank's part of a solve.
#[derive(Clone, Copy)]
struct Job<'a> {
    args: &'a SolveArgs,
    targets: &'a Targets,
    begin: Instant,
    /// Threads of each rank.
    threads: usize,
    /// Whether this rank is the one of its process that listens for Ctrl-C.
    listens: bool,
    /// Whether it is alone in its process.
    alone: bool,
}

/// Runs on threads of this process. Each opens its own device, which has the number of its rank.
fn on_threads<B: RankBackend<f64> + RankBackend<f32>>(
    ranks: usize,
    limit: Duration,
    job: Job<'_>,
    open: impl Fn(usize) -> spandrel::backend::Result<B> + Sync,
) -> Result<bool> {
    let ended = Threads::run_within(ranks, limit, |team| {
        let rank = team.rank();
        Job { listens: rank == 0, ..job }.run(open(rank)?, team)
    });
    let mut failures = Vec::new();
    let mut solved = true;
    for rank in ended {
        match rank {
            Ok(of_rank) => solved &= of_rank,
            Err(Ended::Error(failure)) => failures.push(failure),
            Err(panic @ Ended::Panic { .. }) => failures.insert(0, Failure::new("rank", panic.to_string())),
        }
    }
    // The reason itself, rather than that another rank has one.
    let reason = failures.iter().position(|failure| failure.kind != "rank").unwrap_or(0);
    if failures.is_empty() { Ok(solved) } else { Err(failures.swap_remove(reason)) }
}

/// Runs on threads of this process, each with a GPU. Ranks share GPUs if there are fewer.
#[cfg(feature = "cuda")]
fn on_gpus(ranks: usize, limit: Duration, args: &SolveArgs, targets: &Targets, begin: Instant) -> Result<bool> {
    let gpus = crate::backend::gpus()?;
    let job = Job { args, targets, begin, threads: 1, listens: true, alone: false };
    // Rows of any lengths are summed as on the CPU, so that x does not depend on where a rank's rows begin.
    on_threads(ranks, limit, job, |rank| Ok(spandrel::Cuda::on(gpus[rank % gpus.len()])?.with_reproducible(true)))
}

#[cfg(not(feature = "cuda"))]
fn on_gpus(ranks: usize, _: Duration, _: &SolveArgs, _: &Targets, _: Instant) -> Result<bool> {
    let why = format!("{}; build with it, or solve on the CPU with --ranks {ranks}", crate::backend::NO_CUDA);
    Err(Failure::new("unsupported", why))
}

/// Runs on the processes that mpirun has started, of which this is one.
#[cfg(all(unix, feature = "mpi"))]
fn on_processes(limit: Duration, args: &SolveArgs, targets: &Targets, begin: Instant) -> Result<bool> {
    let team = spandrel::distributed::Mpi::world_within(limit)?;
    let neighbours = told(&LOCAL_SIZES).unwrap_or(1).max(1);
    let threads = match args.threads {
        Some(threads) => threads,
        None => (rayon::current_num_threads() / neighbours).max(1),
    };
    if team.rank() > 0 {
        progress::set_quiet(true);
    }
    let job = Job { args, targets, begin, threads, listens: true, alone: true };
    match args.backend {
        BackendName::Auto | BackendName::Cpu => job.run(Cpu::with_threads(threads)?, team),
        BackendName::Cuda => job.on_gpu(team),
    }
}

#[cfg(not(all(unix, feature = "mpi")))]
fn on_processes(_: Duration, _: &SolveArgs, _: &Targets, _: Instant) -> Result<bool> {
    Err(Failure::new("unsupported", "this build of spandrel has no MPI; build it with --features mpi"))
}

impl Job<'_> {
    /// Runs on a GPU of this machine. Its processes share GPUs if there are fewer.
    #[cfg(all(unix, feature = "mpi", feature = "cuda"))]
    fn on_gpu<C: Communicator>(self, team: C) -> Result<bool> {
        let opened = crate::backend::gpus().and_then(|gpus| {
            let at = told(&LOCAL_NUMBERS).unwrap_or(team.rank()) % gpus.len();
            Ok(spandrel::Cuda::on(gpus[at])?.with_reproducible(true))
        });
        match opened {
            Ok(device) => self.run(device, team),
            Err(failure) => Err(self.tell(team.rank(), failure)),
        }
    }
    #[cfg(all(unix, feature = "mpi", not(feature = "cuda")))]
    fn on_gpu<C: Communicator>(self, _: C) -> Result<bool> {
        Err(Failure::new("unsupported", crate::backend::NO_CUDA))
    }

    fn run<B: RankBackend<f64> + RankBackend<f32>, C: Communicator>(self, device: B, team: C) -> Result<bool> {
        match self.args.precision {
            SolvePrecision::F32 => self.solve::<f32, B, C>(device, team),
            SolvePrecision::F64 | SolvePrecision::Mixed | SolvePrecision::Refined => {
                self.solve::<f64, B, C>(device, team)
            }
        }
    }

    fn solve<T: Element, B: RankBackend<T>, C: Communicator>(&self, device: B, team: C) -> Result<bool> {
        let be = match self.args.messages {
            Messages::Auto => Distributed::new(device, team),
            Messages::Host => Distributed::through_host(device, team),
        };
        let ended = self.solve_on::<T, B, C>(&be);
        match ended {
            // While this process is part of the team: mpirun may end it once another has left.
            Err(failure) if self.alone => Err(self.tell(be.rank(), failure)),
            ended => ended,
        }
    }

    /// Reports the failure of a process: rank 0 as one process would, the others only if the reason is their own.
    fn tell(&self, rank: usize, failure: Failure) -> Failure {
        if rank == 0 {
            crate::report(&failure, self.args.json);
        } else if failure.kind != "rank" {
            let message = format!("rank {rank}: {failure}");
            crate::report(&Failure { message, ..failure.clone() }, false);
        }
        Failure { is_told: true, ..failure }
    }

    fn solve_on<T: Element, B: RankBackend<T>, C: Communicator>(&self, be: &Distributed<B, C>) -> Result<bool> {
        let (args, leads) = (self.args, be.rank() == 0);
        let mut seconds = Seconds { open: self.begin.elapsed().as_secs_f64(), ..Seconds::default() };
        let start = Instant::now();
        let spinner = leads.then(|| Spinner::start(format!("reading {}", args.matrix)));
        let rows = match is_spec(&args.matrix) {
            true => {
                let spec = be.together(Spec::parse(&args.matrix).map_err(spandrel::backend::Error::from));
                spec.and_then(|spec| generate_rows::<T, _, _>(be, &spec))
            }
            false => read_rows::<T, _, _>(be, &args.matrix),
        };
        let rows = rows.map_err(explain)?;
        let nrows = be.everywhere(&[rows.len() as u64])?.iter().flatten().sum::<u64>() as usize;
        let b = be.together(problem::rows_of_right_hand_side(args, &rows, nrows))?;
        let x0 = be.together(problem::rows_of_first_guess(args, &rows, nrows))?;
        drop(spinner);
        seconds.read = start.elapsed().as_secs_f64();

        let spinner = leads.then(|| Spinner::start("analyzing"));
        let planned =
            Planned::new(be, rows, &settings(args), args.precond).map_err(|error| super::about(args, error))?;
        drop(spinner);
        if leads {
            planned.plan().warnings.iter().for_each(|warning| progress::note(warning));
        }
        let spinner = leads.then(|| Spinner::start("setting up"));
        let mut watcher = Watcher { leads, listens: self.listens, spinner, ..Watcher::default() };
        let solution = planned.solve(be, &b, x0.as_deref(), &mut |method, at| watcher.look(method, at))?;
        drop(watcher);
        seconds.add(solution.times);
        seconds.total = self.begin.elapsed().as_secs_f64();
        if !leads {
            return Ok(true);
        }
        self.report(solution, be.size(), seconds)
    }

    /// Writes the files and the report: on rank 0, once every rank is done.
    fn report<T: Element>(&self, mut solution: Solution<T>, ranks: usize, seconds: Seconds) -> Result<bool> {
        let &Job { args, targets, .. } = self;
        let x = solution.x.take().unwrap_or_default();
        let x = Dense::new(x.len(), 1, x)?;
        let mut report = Report::of_ranks(args, &solution, ranks * self.threads, seconds);
        if args.rhs == "from-solution" {
            report.forward_error = Some(problem::error_against_ones(x.values()));
        }
        let (written, failure) = write_files(targets, &report, Some(&x));
        report.error =
            failure.as_ref().map(|failure| ErrorReport { kind: failure.kind, message: failure.message.clone() });
        if args.json {
            output::print_json(&report)?;
        } else {
            output::report(&report.text(args, &solution.plan, 1, &written), targets.stdout_is_taken())?;
        }
        let status = solution.outcome.status;
        match failure {
            Some(failure) => Err(Failure { object_printed: args.json, ..failure }),
            None => Ok(status.is_converged() || (args.accept == Accept::Backward && status == Status::BackwardStable)),
        }
    }
}

/// A failure to read, with a word on what to give for a file that is not there.
fn explain(error: spandrel::backend::Error) -> Failure {
    let missing = matches!(
        &error,
        spandrel::backend::Error::Format(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound
    );
    let is_spec = matches!(&error, spandrel::backend::Error::Format(Error::Spec { .. }));
    let mut failure = Failure::from(error);
    if missing {
        failure.message.push_str("; give a Matrix Market file (.mtx, .mtx.gz) or a generator such as d3n7:64");
    }
    if is_spec {
        failure.message.push_str("; `spandrel generate --list` shows all, a file of that name is reached as ./NAME");
    }
    failure
}

/// Shows the iteration on rank 0, and stops it on Ctrl-C.
#[derive(Default)]
struct Watcher {
    leads: bool,
    listens: bool,
    /// Until the iteration begins.
    spinner: Option<Spinner>,
    looking: Option<Looking>,
    descent: Option<Descent>,
}

impl Watcher {
    fn look(&mut self, method: Method, at: spandrel::solvers::options::Progress) -> ControlFlow<()> {
        self.spinner = None;
        if self.listens && self.looking.is_none() {
            self.looking = Some(Looking::start());
        }
        if self.leads {
            let descent = self.descent.get_or_insert_with(|| Descent::start(method.as_str(), at.target));
            descent.show(at.iterations, at.residual);
        }
        if self.listens && interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    /// What a build with MPI or without answers to these options where mpirun has started so many processes.
    fn answer(options: &[&str], processes: Option<usize>, has_mpi: bool) -> Result<Option<Ranks>> {
        let words = ["spandrel", "solve", "poisson2d:4"].iter().chain(options);
        let Command::Solve(args) = Cli::try_parse_from(words).expect("usage").command else { panic!("solve") };
        asked(&args, processes, has_mpi)
    }

    #[test]
    fn processes_of_mpirun_are_ranks_of_a_build_with_mpi_only() {
        assert_eq!(answer(&[], Some(2), true), Ok(Some(Ranks::Processes)));
        assert_eq!(answer(&[], Some(1), true), Ok(Some(Ranks::Processes)));
        assert_eq!(answer(&[], Some(1), false), Ok(None));
        assert_eq!(answer(&[], None, true), Ok(None));
        let without = answer(&[], Some(2), false).expect_err("no MPI");
        assert_eq!(without.kind, "unsupported");
        let said = without.message;
        assert!(said.contains("this build of spandrel has no MPI; build it with --features mpi"), "{said}");
        assert!(said.ends_with("--ranks 2"), "{said}");
    }

    #[test]
    fn ranks_of_two_kinds_are_refused() {
        for has_mpi in [false, true] {
            let both = answer(&["--ranks", "2"], Some(2), has_mpi).expect_err("two kinds");
            assert_eq!(both.kind, USAGE);
            assert!(both.message.ends_with("leave --ranks out"), "{}", both.message);
        }
    }
}
