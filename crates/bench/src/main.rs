//! `spandrel-bench`: Spandrel against its peers and against the machine's own bandwidth.
//!
//! Every answer is checked before it is timed, contenders are interleaved, and a line of the record is a median over
//! rounds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use spandrel_backend_cpu::Cpu;
use spandrel_bench::case::{self, Case};
use spandrel_bench::contender::Effort;
use spandrel_bench::gpu::spmv::Force;
use spandrel_bench::gpu::{self, Gpu, Provenance};
use spandrel_bench::krylov::Method;
use spandrel_bench::record::{self, Header};
use spandrel_bench::{cg, hpcg, memory, paper, plot, read, spmv};

mod converting;
mod cycling;
mod factorizing;
mod multiplying;
mod on_gpu;
mod papers;
mod robust;
mod solving;
mod triangular;

/// Benchmarks of Spandrel, its peers and the machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// Matrix Market files (.mtx, .mtx.gz) or generators (d3n7:64, poisson2d:512, ...)
    #[arg(value_name = "MATRIX")]
    matrices_given: Vec<String>,
    /// All .mtx and .mtx.gz files of this folder
    #[arg(long = "matrices", value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// How long it runs, and where the results go.
#[derive(Debug, Args)]
struct Output {
    /// Threads (default: all)
    #[arg(long)]
    threads: Option<usize>,
    /// Write the record here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table here
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write charts here, as SVG
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Rounds through all contenders
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Run each contender at least this many milliseconds per round (default: 20, on a GPU 2)
    #[arg(long)]
    round_ms: Option<f64>,
    /// Begin no further round of a case after this many seconds, but always run three (default: no limit; 1.5 in the
    /// papers bdia, report, hmec and coo)
    #[arg(long)]
    case_seconds: Option<f64>,
}

/// Where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Cpu,
    Cuda,
}

#[derive(Debug, Args)]
struct Device {
    /// Where it runs; peers on a GPU are cuSPARSE and cuBLAS
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    /// GPU: leave out formats of more GiB (default: 60 % of the free memory)
    #[arg(long, value_name = "GIB")]
    max_gib: Option<f64>,
    /// GPU: time formats together up to this many GiB (default: 30 % of the free memory)
    #[arg(long, value_name = "GIB")]
    group_gib: Option<f64>,
    /// The commit that was built, if there is no git
    #[arg(long, value_name = "TEXT")]
    commit: Option<String>,
    /// GPU: the output of `cargo xtask ptx --hash` for the tree that was built; another hash is an error
    #[arg(long, value_name = "TEXT")]
    ptx_sha256: Option<String>,
}

/// Memory of b and x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    Explicit,
    Managed,
}

/// A preconditioned method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Krylov {
    /// With IC(0)
    Cg,
    /// With ILU(0)
    Bicgstab,
}

/// Whether an iteration is a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Graph {
    On,
    Off,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// y = A x in every format
    Spmv {
        #[command(flatten)]
        common: Common,
        /// Formats, comma separated (default: all that fit)
        #[arg(long, value_delimiter = ',', value_parser = case::formats())]
        formats: Vec<String>,
        #[command(flatten)]
        device: Device,
        /// Peers, comma separated; `none` for none (default: sprs,faer,nalgebra-sparse, on a GPU cusparse)
        #[arg(long, value_delimiter = ',')]
        peers: Option<Vec<String>>,
        /// Element types, comma separated
        #[arg(long, value_delimiter = ',', default_value = "f64")]
        types: Vec<String>,
        /// GPU: skip matrices with fewer entries
        #[arg(long, default_value_t = 0)]
        min_entries: usize,
        /// GPU: also time every kernel of CSR and of bDIA, and BSR with blocks of 4 x 4
        #[arg(long)]
        force: bool,
        /// Do not time copy and triad (for many small matrices)
        #[arg(long)]
        no_machine: bool,
    },
    /// One iteration of CG
    Cg {
        #[command(flatten)]
        common: Common,
        /// Formats, comma separated
        #[arg(long, value_delimiter = ',', default_value = "csr,dia", value_parser = case::formats())]
        formats: Vec<String>,
        #[command(flatten)]
        device: Device,
        /// Iterations of one solve (default: 50, on a GPU 200)
        #[arg(long)]
        iterations: Option<usize>,
        /// GPU: peers, `cusparse` (with cuBLAS) or `none`
        #[arg(long, value_delimiter = ',')]
        peers: Option<Vec<String>>,
        /// GPU: memory of b and x, comma separated
        #[arg(long, value_enum, value_delimiter = ',', default_value = "explicit")]
        memory: Vec<Memory>,
        /// GPU: run each iteration as a graph, or enqueue it each time; comma separated
        #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
        graph: Vec<Graph>,
    },
    /// HPCG's problem: CG with the multigrid cycle on the 27-point operator, with its checks and its count of
    /// operations
    Hpcg {
        /// Sizes of the grid, comma separated: 64, or 64x32x32 (multiples of 8)
        #[arg(long = "size", value_delimiter = ',', default_value = "64")]
        sizes: Vec<String>,
        /// Formats of the product, comma separated: csr, dia, bdia (default: the library's choice)
        #[arg(long, value_delimiter = ',')]
        formats: Vec<String>,
        /// Iterations of the reference, on one thread of the host: HPCG's 50, or fewer for large grids
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
        reference: u16,
        #[command(flatten)]
        device: Device,
        #[command(flatten)]
        output: Output,
    },
    /// T x = b by every plan, T a triangle of the matrix or of its ILU(0) factors
    Sptrsv(triangular::Contest),
    /// Set-up of ILU(0) and IC(0) on a GPU: by the host, the device, and cuSPARSE; f64
    Factorize(factorizing::Contest),
    /// Conversion of a CSR matrix on a GPU to another format: there, or on the host with an upload
    Convert(converting::Contest),
    /// C = A A and A^T, pattern and values, against sprs and faer; on a GPU
    Spgemm(multiplying::Contest),
    /// Whole solves by CG with multigrid: set-up, solve, new values
    Multigrid(cycling::Contest),
    /// An experiment of a paper, measured here
    #[command(subcommand)]
    Paper(Paper),
    /// Whole solves of many matrices: iterations, status, true residual. On generated grids, IC(0)-CG against faer. On
    /// a GPU, IC(0)-CG and ILU(0)-BiCGStab against the same from cuSPARSE and cuBLAS, set-up and solve
    Solve {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        limits: solving::Limits,
        /// Peers, comma separated, or `none` (default: faer, on generated grids; on a GPU cusparse, with cuBLAS)
        #[arg(long, value_delimiter = ',')]
        peers: Option<Vec<String>>,
        #[command(flatten)]
        device: Device,
        /// GPU: skip matrices with fewer entries
        #[arg(long, default_value_t = 0)]
        min_entries: usize,
        /// GPU: methods, comma separated (default: those that fit the matrix; both for a symmetric generated one)
        #[arg(long, value_enum, value_delimiter = ',')]
        methods: Vec<Krylov>,
        /// GPU: also time ours with the preconditioner in f32, and refined around solves in f32
        #[arg(long)]
        mixed: bool,
    },
    /// Reading Matrix Market files, against sprs (a generator's specification is written to a temporary file first)
    Read {
        #[command(flatten)]
        common: Common,
    },
    /// Which systems end in an answer, and how long that takes
    Robust(robust::Robust),
    /// Peak memory of `spandrel solve`
    Memory {
        #[command(flatten)]
        common: Common,
        /// The program
        #[arg(long, default_value = "target/release/spandrel")]
        program: PathBuf,
    },
}

/// The papers' experiments.
#[derive(Debug, Subcommand)]
enum Paper {
    /// bDIA, CG and BiCGStab (Wang, Ren, Tian 2013), table 1, figures 8 and 9, finite elements of chosen bandwidth
    Bdia(papers::Experiment),
    /// Storage formats and CG (Tongji University 2019): condition and size, memory and graphs, dense and sparse,
    /// reading
    Report(papers::Experiment),
    /// HMEC (Cheng, Tian, Wu, Wang, Li 2018), table 2, figures 6 and 7: products and preconditioned solves by format
    Hmec(papers::Experiment),
    /// Parallel COO (IT168 and NVIDIA): against one thread, and against the other formats on power-law rows
    Coo(papers::Experiment),
    /// Structured SpTRSV (Chen, Yang, Liu, Ma 2023), figures 4 to 7: 4 stencils on cubes, lower triangles, f64
    Sptrsv(triangular::Experiment),
}

impl Common {
    fn cases(&self) -> Result<Vec<Case>> {
        let mut cases: Vec<Case> = self.matrices_given.iter().map(|w| Case::given(w)).collect::<Result<_>>()?;
        if let Some(dir) = &self.folder {
            cases.extend(case::folder(dir)?);
        }
        anyhow::ensure!(
            !cases.is_empty(),
            "no matrix given: name Matrix Market files or generators (d3n7:64), or a folder with --matrices"
        );
        Ok(cases)
    }
}

impl Output {
    fn effort(&self, backend: Backend) -> Effort {
        let usual = if backend == Backend::Cpu { 20.0 } else { 2.0 };
        let seconds = self.case_seconds.unwrap_or(f64::INFINITY);
        Effort { rounds: self.rounds.max(1), round_ms: self.round_ms.unwrap_or(usual), seconds }
    }

    /// Sizes rayon's global pool, which the machine's bandwidth test, the peers and the backend share.
    fn pool(&self) -> Result<usize> {
        if let Some(n) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(n).build_global().context("cannot size the thread pool")?;
        }
        Ok(rayon::current_num_threads())
    }

    fn save<L: serde::Serialize>(&self, header: &Header, lines: &[L]) -> Result<()> {
        match &self.json {
            Some(path) => record::write(path, header, lines),
            None => Ok(()),
        }
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Spmv { common, formats, device, peers, types, min_entries, force, no_machine } => {
            let threads = common.output.pool()?;
            let effort = common.output.effort(device.backend);
            let peers = |usual: &[&str]| -> Vec<String> {
                let given = peers.clone().unwrap_or_else(|| usual.iter().map(|&p| p.to_owned()).collect());
                given.into_iter().filter(|p| p != "none").collect()
            };
            if device.backend == Backend::Cuda {
                let gpu = Gpu::open()?;
                let room = gpu.room(device.max_gib, device.group_gib)?;
                let plan = gpu::spmv::Plan {
                    formats,
                    effort,
                    room,
                    min_entries,
                    machine: !no_machine,
                    force: Force::all(force),
                };
                return on_gpu::spmv(&common, &gpu, device.provenance(), &plan, &peers(&["cusparse"]), &types);
            }
            let peers = peers(&["sprs", "faer", "nalgebra-sparse"]);
            let plan = spmv::Plan { formats, peers, effort, machine: !no_machine, serial: false };
            run_spmv(&common, threads, &device, &plan, &types)
        }
        Command::Cg { common, formats, device, iterations, peers, memory, graph } => {
            let threads = common.output.pool()?;
            let effort = common.output.effort(device.backend);
            if device.backend == Backend::Cuda {
                let gpu = Gpu::open()?;
                let plan = gpu::cg::Plan {
                    formats,
                    iterations: iterations.unwrap_or(200),
                    managed: memory.iter().map(|&m| m == Memory::Managed).collect(),
                    recorded: graph.iter().map(|&g| g == Graph::On).collect(),
                    effort,
                    room: gpu.room(device.max_gib, device.group_gib)?,
                };
                let peers = peers.unwrap_or_else(|| vec!["cusparse".into()]);
                return on_gpu::cg(&common, &gpu, device.provenance(), &plan, &peers);
            }
            let be = Cpu::new();
            let mut lines = Vec::new();
            for case in common.cases()? {
                lines.extend(cg::run(&be, &case, &formats, iterations.unwrap_or(50), effort)?);
            }
            print_lines(&common, &lines)?;
            common.output.save(&device.header(threads, &lines), &lines)
        }
        Command::Hpcg { sizes, formats, reference, device, output } => {
            let threads = output.pool()?;
            let formats: Vec<Option<String>> =
                if formats.is_empty() { vec![None] } else { formats.into_iter().map(Some).collect() };
            let mut plans = Vec::new();
            for size in &sizes {
                let (size, sets) = (hpcg::size(size)?, output.rounds.max(1));
                plans.extend(formats.iter().map(|format| hpcg::Plan {
                    size,
                    format: format.clone(),
                    reference: reference.into(),
                    sets,
                }));
            }
            if device.backend == Backend::Cuda {
                return on_gpu::hpcg(&output, &device, &plans);
            }
            let (be, mut lines) = (Cpu::new(), Vec::new());
            for plan in &plans {
                lines.push(hpcg::run(&be, plan)?);
                println!("{}", hpcg::summary(&lines[lines.len() - 1]));
                output.save(&device.header(threads, &lines), &lines)?;
            }
            Ok(())
        }
        Command::Sptrsv(contest) => triangular::sptrsv(&contest),
        Command::Factorize(contest) => factorizing::run(&contest),
        Command::Convert(contest) => converting::run(&contest),
        Command::Spgemm(contest) => multiplying::run(&contest),
        Command::Multigrid(contest) => cycling::run(&contest),
        Command::Paper(Paper::Sptrsv(experiment)) => triangular::experiment(&experiment),
        Command::Paper(Paper::Bdia(experiment)) => papers::run(&paper::bdia::PAPER, &experiment),
        Command::Paper(Paper::Report(experiment)) => papers::run(&paper::report::PAPER, &experiment),
        Command::Paper(Paper::Hmec(experiment)) => papers::run(&paper::hmec::PAPER, &experiment),
        Command::Paper(Paper::Coo(experiment)) => papers::run(&paper::coo::PAPER, &experiment),
        Command::Solve { common, limits, peers, device, min_entries, methods, mixed } => {
            let peers = peers
                .unwrap_or_else(|| vec![if device.backend == Backend::Cuda { "cusparse" } else { "faer" }.to_owned()]);
            if device.backend == Backend::Cpu {
                return solving::solve(&common, &device, limits, &peers);
            }
            common.output.pool()?;
            let methods = methods.into_iter().map(|method| match method {
                Krylov::Cg => Method::Cg,
                Krylov::Bicgstab => Method::BiCgStab,
            });
            let plan = gpu::solve::Plan {
                methods: methods.collect(),
                mixed,
                rtol: limits.rtol,
                seconds: limits.seconds.unwrap_or(10.0),
                effort: common.output.effort(device.backend),
                min_entries,
            };
            on_gpu::solve(&common, &Gpu::open()?, device.provenance(), &plan, &peers)
        }
        Command::Robust(args) => robust::run(&args),
        Command::Read { common } => {
            let threads = common.output.pool()?;
            let mut lines = Vec::new();
            for case in common.cases()? {
                let scratch = tempfile::Builder::new().suffix(".mtx").tempfile()?;
                let path: &Path = match &case.path {
                    Some(path) => path,
                    None => {
                        spandrel_formats::matrix_market::write_csr(
                            scratch.path(),
                            &case.load::<f64>()?,
                            &Default::default(),
                        )?;
                        scratch.path()
                    }
                };
                lines.extend(read::run(&case.name, path, common.output.rounds)?);
            }
            for l in &lines {
                let ratio = l.ratio_to_best_peer.map_or(String::new(), |r| format!(", {r:.2}x sprs"));
                println!(
                    "{} {}: {:.0} MB in {:.0} ms, {:.0} MB/s{ratio}",
                    l.case,
                    l.contender,
                    l.bytes as f64 / 1e6,
                    l.ms,
                    l.gbs * 1e3
                );
            }
            common.output.save(&Header::here(threads), &lines)
        }
        Command::Memory { common, program } => {
            let threads = common.output.pool()?;
            let lines = common.cases()?.iter().map(|c| memory::run(&program, c)).collect::<Result<Vec<_>>>()?;
            for l in &lines {
                println!(
                    "{}: peak {:.1} MB, matrix + vectors + one copy {:.1} MB, ratio {:.2}",
                    l.case,
                    l.peak_bytes as f64 / 1e6,
                    l.model_bytes as f64 / 1e6,
                    l.ratio
                );
            }
            common.output.save(&Header::here(threads), &lines)
        }
    }
}

fn run_spmv(common: &Common, threads: usize, device: &Device, plan: &spmv::Plan, types: &[String]) -> Result<()> {
    let be = Cpu::new();
    let (mut lines, mut choices, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for case in common.cases()? {
        eprintln!("{}", case.name);
        // A file without a real matrix is named in the record, not dropped.
        if let Err(why) = case.load::<f64>() {
            eprintln!("  left out: {why:#}");
            unreadable.push(serde_json::json!({"op": "spmv", "case": case.name, "error": format!("{why:#}")}));
            continue;
        }
        for element in types {
            let (more, choice) = match element.as_str() {
                "f32" => spmv::run::<f32>(&be, &case, plan)?,
                "f64" => spmv::run::<f64>(&be, &case, plan)?,
                other => anyhow::bail!("no element type is called {other}: f32, f64"),
            };
            lines.extend(more);
            choices.extend(choice);
        }
    }
    print_choices(&choices);
    let mut all: Vec<serde_json::Value> = Vec::new();
    for l in &lines {
        all.push(serde_json::to_value(l)?);
    }
    for c in &choices {
        all.push(serde_json::to_value(c)?);
    }
    all.extend(unreadable);
    print_lines(common, &lines)?;
    common.output.save(&device.header(threads, &lines), &all)
}

/// How often `choose` was right.
fn print_choices(choices: &[spmv::Choice]) {
    if !choices.is_empty() {
        let near = choices.iter().filter(|c| c.slower <= 1.05).count();
        println!("choose within 5 % of the best format on {near} of {} cases", choices.len());
        for c in choices.iter().filter(|c| c.slower > 1.05) {
            println!(
                "  {} (n {}, nnz {}): {} chosen, {} is {:.2}x as fast",
                c.case, c.n, c.nnz, c.chosen, c.best, c.slower
            );
        }
    }
}

fn print_lines(common: &Common, lines: &[record::Line]) -> Result<()> {
    println!("{}", record::table(lines, false));
    if let Some(path) = &common.output.markdown {
        std::fs::write(path, record::table(lines, true) + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(dir) = &common.output.plot {
        plot::bars(dir, lines)?;
    }
    Ok(())
}

fn write_markdown(output: &Output, text: &str) -> Result<()> {
    match &output.markdown {
        Some(path) => {
            std::fs::write(path, text.to_owned() + "\n").with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}

/// The machine's own bandwidth: the median over the cases, and of several ways the best.
fn rate(lines: &[record::Line], noun: &str) -> Option<f64> {
    let mut rates: BTreeMap<Option<&str>, Vec<f64>> = BTreeMap::new();
    for l in lines.iter().filter(|l| l.contender == "machine" && l.noun == noun) {
        rates.entry(l.more.kernel.as_deref()).or_default().push(l.gbs);
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    rates.into_values().map(median).max_by(f64::total_cmp)
}

impl Device {
    fn provenance(&self) -> Provenance {
        Provenance { commit: self.commit.clone(), ptx_sha256: self.ptx_sha256.clone(), libraries: Vec::new() }
    }

    /// The header of a measurement on the CPU.
    fn header(&self, threads: usize, lines: &[record::Line]) -> Header {
        let mut header = Header::here(threads);
        if let Some(commit) = &self.commit {
            header.commit.clone_from(commit);
        }
        Header { copy_gbs: rate(lines, "copy"), triad_gbs: rate(lines, "triad"), ..header }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let words = "x cg d3n7:8 --backend cuda --memory explicit,managed --graph on,off --commit c --max-gib 2.5";
        let Command::Cg { device, memory, graph, iterations, .. } =
            Cli::try_parse_from(words.split(' ')).unwrap().command
        else {
            panic!("another command")
        };
        assert_eq!(device.backend, Backend::Cuda);
        assert_eq!((memory, graph), (vec![Memory::Explicit, Memory::Managed], vec![Graph::On, Graph::Off]));
        assert_eq!((device.max_gib, device.commit.as_deref(), iterations), (Some(2.5), Some("c"), None));
    }

    #[test]
    fn solves_on_a_gpu_have_methods_and_peers() {
        let words =
            "x solve d3n7:64 --backend cuda --methods cg,bicgstab --mixed --peers none --min-entries 50000 --seconds 5";
        let Command::Solve { device, methods, mixed, peers, min_entries, limits, .. } =
            Cli::try_parse_from(words.split(' ')).unwrap().command
        else {
            panic!("another command")
        };
        assert_eq!((device.backend, mixed, min_entries, limits.seconds), (Backend::Cuda, true, 50_000, Some(5.0)));
        assert_eq!((methods, peers), (vec![Krylov::Cg, Krylov::Bicgstab], Some(vec!["none".to_owned()])));
        assert!(Cli::try_parse_from(["x", "solve", "d3n7:8", "--methods", "gmres"]).is_err());
    }

    #[test]
    fn the_cpu_is_the_default_with_its_own_round() {
        let Command::Spmv { common, device, peers, .. } = Cli::try_parse_from(["x", "spmv", "d3n7:8"]).unwrap().command
        else {
            panic!("another command")
        };
        assert_eq!((device.backend, peers), (Backend::Cpu, None));
        assert_eq!(common.output.effort(Backend::Cpu).round_ms, 20.0);
        assert_eq!(common.output.effort(Backend::Cuda).round_ms, 2.0);
        assert!(Cli::try_parse_from(["x", "spmv", "d3n7:8", "--backend", "vulkan"]).is_err());
    }
}
