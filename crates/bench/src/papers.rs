//! `paper bdia | report | hmec | coo`: the experiment on either backend, its record, tables and figures.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json, to_value};
use spandrel_backend_cpu::Cpu;
use spandrel_bench::gpu::Gpu;
use spandrel_bench::gpu::cublas::Cublas;
use spandrel_bench::gpu::cusparse::Cusparse;
use spandrel_bench::paper::run::Bench;
use spandrel_bench::paper::{Found, Paper, Scope};
use spandrel_bench::record::{Header, Line};

use super::{Backend, Device, Output, rate, write_markdown};

/// The arguments of a paper's experiment.
#[derive(Debug, Args)]
pub(crate) struct Experiment {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    device: Device,
    /// Small matrices and few rounds: takes minutes on a laptop
    #[arg(long)]
    quick: bool,
    /// The folder with the paper's own matrices, as .mtx or .mtx.gz; generated ones replace those that are missing
    #[arg(long = "matrices", value_name = "DIR")]
    matrices: Option<PathBuf>,
    /// Begin no case after this many minutes; those left over are reported as missing (default: no limit)
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Skip matrices with more rows (0: no limit)
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    most_rows: usize,
}

/// The largest number of rounds with `--quick`, and the milliseconds of a round on a CPU.
const QUICK_ROUNDS: usize = 3;
const QUICK_ROUND_MS: f64 = 2.0;
/// Seconds after which no round of a case begins, unless others are requested. Five papers have two hundred cases, and
/// eleven rounds of most are shorter.
const CASE_SECONDS: f64 = 1.5;

pub(crate) fn run(paper: &Paper, args: &Experiment) -> Result<()> {
    let (output, device) = (&args.output, &args.device);
    let threads = output.pool()?;
    let gpu = device.backend == Backend::Cuda;
    let mut effort = output.effort(device.backend);
    effort.seconds = output.case_seconds.unwrap_or(CASE_SECONDS);
    if args.quick {
        effort.rounds = effort.rounds.min(QUICK_ROUNDS);
        effort.round_ms = output.round_ms.unwrap_or(QUICK_ROUND_MS).min(effort.round_ms);
    }
    if let Some(dir) = &args.matrices {
        ensure!(dir.is_dir(), "--matrices {}: there is no such folder", dir.display());
    }
    let scope = Scope { gpu, quick: args.quick, matrices: args.matrices.as_deref(), most_rows: args.most_rows };
    let plan = (paper.jobs)(&scope)?;
    let (mut lines, mut rest) = (Vec::new(), plan.notes);
    let mut provenance = device.provenance();
    let bench = if gpu {
        let gpu = Gpu::open()?;
        gpu.header(&provenance, None)?;
        let mut library = |name: &str, why: &anyhow::Error| {
            eprintln!("{name} is left out: {why:#}");
            rest.push(json!({"op": "library", "noun": "library", "contender": name, "case": "all", "error": format!("{why:#}")}));
        };
        let cusparse = Cusparse::open(&gpu).inspect_err(|why| library("cusparse", why)).ok();
        let cublas = Cublas::open(&gpu).inspect_err(|why| library("cublas", why)).ok();
        provenance.libraries.extend(cusparse.as_ref().map(|library| library.version()).transpose()?);
        let room = gpu.room(device.max_gib, device.group_gib)?;
        Bench::Gpu { cusparse, cublas, gpu: Box::new(gpu), room }
    } else {
        Bench::Cpu(Cpu::new())
    };
    let header = |lines: &[Line]| -> Result<Header> {
        match &bench {
            Bench::Cpu(_) => Ok(device.header(threads, lines)),
            Bench::Gpu { gpu, .. } => gpu.header(&provenance, rate(lines, "copy")),
        }
    };
    let machine = header(&[])?.machine;
    let count = plan.jobs.len();
    let (start, minutes) = (Instant::now(), args.minutes.unwrap_or(f64::INFINITY));
    for (k, job) in plan.jobs.iter().enumerate() {
        if start.elapsed().as_secs_f64() >= 60.0 * minutes {
            eprintln!("{}/{count} {} ({} {}): time is up", k + 1, job.case.name, paper.name, job.figure);
            let why = format!("not begun within {minutes} minutes");
            rest.push(
                json!({"op": "paper", "noun": paper.name, "case": job.case.name, "figure": job.figure, "missing": why}),
            );
            continue;
        }
        eprintln!("{}/{count} {} ({} {})", k + 1, job.case.name, paper.name, job.figure);
        let began = Instant::now();
        let found = bench.run(job, effort);
        eprintln!("  {:.1} s", began.elapsed().as_secs_f64());
        lines.extend(found.lines);
        rest.extend(found.rest);
        // An interrupted run keeps its results.
        output.save(&header(&lines)?, &objects(&lines, &rest)?)?;
    }
    let found = Found { lines: &lines, rest: &rest, machine: &machine };
    let mut objects = objects(&lines, &rest)?;
    objects.extend((paper.claims)(&found));
    output.save(&header(&lines)?, &objects)?;
    let text = paper.markdown(&found);
    println!("{text}");
    write_markdown(output, &text)?;
    match &output.plot {
        Some(dir) => paper.draw(dir, &found).context("drawing the figures"),
        None => Ok(()),
    }
}

/// The contents of a record below its header.
fn objects(lines: &[Line], rest: &[Value]) -> Result<Vec<Value>> {
    let mut objects = lines.iter().map(to_value).collect::<Result<Vec<Value>, _>>()?;
    objects.extend_from_slice(rest);
    Ok(objects)
}
