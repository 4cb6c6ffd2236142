//! The options of `sptrsv` and `paper sptrsv`, and their runs on either backend.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;
use spandrel_backend_cpu::Cpu;
use spandrel_bench::case::Case;
use spandrel_bench::paper::sptrsv as paper;
use spandrel_bench::plot;
use spandrel_bench::sptrsv::lines::table;
use spandrel_bench::sptrsv::{self, Choice, Factor, Findings, stages};
use spandrel_sptrsv::Triangle;

use super::{Backend, Common, Device, Output, on_gpu, write_markdown};

/// A case and its settings.
pub(crate) type Job = (Case, sptrsv::Contest);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    Lower,
    Upper,
}

/// The origin of the triangles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    /// The matrix's own
    None,
    /// L (unit) and U of its ILU(0)
    Ilu0,
}

/// The arguments of `sptrsv`.
#[derive(Debug, Args)]
pub(crate) struct Contest {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    device: Device,
    /// Plans, comma separated (default: all)
    #[arg(long, value_delimiter = ',')]
    plans: Vec<String>,
    /// Peers, comma separated; `none` for none (default: sprs,faer, on a GPU cusparse)
    #[arg(long, value_delimiter = ',')]
    peers: Option<Vec<String>>,
    /// Element types, comma separated
    #[arg(long, value_delimiter = ',', default_value = "f64")]
    types: Vec<String>,
    /// Triangles, comma separated
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lower")]
    triangle: Vec<Side>,
    /// The origin of the triangles
    #[arg(long, value_enum, default_value_t = Source::None)]
    factor: Source,
    /// Skip matrices with fewer entries
    #[arg(long, default_value_t = 0)]
    min_entries: usize,
    /// Also time the structured plan with some of its steps left out
    #[arg(long)]
    force: bool,
    /// Time the plan that the chooser takes, whatever --plans says, and report how good the choice was
    #[arg(long)]
    plan_auto: bool,
    /// Do not measure the machine's own bandwidth (for many small matrices)
    #[arg(long)]
    no_machine: bool,
}

/// The arguments of `paper sptrsv`.
#[derive(Debug, Args)]
pub(crate) struct Experiment {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    device: Device,
    /// Small cubes only
    #[arg(long)]
    quick: bool,
    /// Edges of the cubes, comma separated (default: 64,128,192,256; with --quick 16,32,48, on a GPU 64,128)
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
}

fn peers(device: &Device, given: Option<&Vec<String>>) -> Vec<String> {
    let usual: &[&str] = if device.backend == Backend::Cuda { &["cusparse"] } else { &["sprs", "faer"] };
    let given = given.cloned().unwrap_or_else(|| usual.iter().map(|&p| p.to_owned()).collect());
    given.into_iter().filter(|p| p != "none").collect()
}

/// Runs the jobs on the requested device and writes the record; on a GPU after each case.
fn run(
    output: &Output,
    device: &Device,
    jobs: &[Job],
    types: &[String],
    written: &mut dyn FnMut(&mut Findings) -> Result<Vec<Value>>,
) -> Result<Findings> {
    let threads = output.pool()?;
    if device.backend == Backend::Cuda {
        return on_gpu::sptrsv(output, device, jobs, types, written);
    }
    let (be, mut found) = (Cpu::new(), Findings::default());
    for (case, contest) in jobs {
        for element in types {
            eprintln!("{} {element}", case.name);
            found.add(match element.as_str() {
                "f32" => sptrsv::run::<f32>(&be, case, contest)?,
                "f64" => sptrsv::run::<f64>(&be, case, contest)?,
                other => bail!("no element type is called {other}: f32, f64"),
            });
        }
    }
    let all = written(&mut found)?;
    output.save(&device.header(threads, &found.lines), &all)?;
    Ok(found)
}

pub(crate) fn sptrsv(args: &Contest) -> Result<()> {
    let output = &args.common.output;
    let contest = sptrsv::Contest {
        plans: args.plans.clone(),
        peers: peers(&args.device, args.peers.as_ref()),
        triangles: args
            .triangle
            .iter()
            .map(|side| if *side == Side::Lower { Triangle::Lower } else { Triangle::Upper })
            .collect(),
        factor: if args.factor == Source::Ilu0 { Factor::Ilu0 } else { Factor::None },
        grid: None,
        staged: if args.force { stages::VARIANTS.to_vec() } else { Vec::new() },
        auto: args.plan_auto,
        effort: output.effort(args.device.backend),
        machine: !args.no_machine,
        min_entries: args.min_entries,
    };
    let jobs: Vec<Job> = args.common.cases()?.into_iter().map(|case| (case, contest.clone())).collect();
    let found = run(output, &args.device, &jobs, &args.types, &mut |found| found.objects())?;
    print_choices(&found.choices);
    println!("{}", table(&found.lines, false));
    write_markdown(output, &table(&found.lines, true))?;
    match &output.plot {
        Some(dir) => plot::bars(dir, &found.lines),
        None => Ok(()),
    }
}

pub(crate) fn experiment(args: &Experiment) -> Result<()> {
    let output = &args.output;
    let gpu = args.device.backend == Backend::Cuda;
    let sizes = if args.sizes.is_empty() { paper::sizes(gpu, args.quick) } else { &args.sizes };
    let jobs = paper::contests(gpu, sizes, output.effort(args.device.backend));
    let mut written = |found: &mut Findings| {
        paper::tag(&mut found.lines);
        let mut all = found.objects()?;
        all.extend(paper::claims(&found.lines));
        Ok(all)
    };
    let found = run(output, &args.device, &jobs, &["f64".into()], &mut written)?;
    println!("{}", table(&found.lines, false));
    let text = paper::markdown(&found.lines);
    println!("{text}");
    write_markdown(output, &text)?;
    match &output.plot {
        Some(dir) => paper::draw(dir, &found.lines),
        None => Ok(()),
    }
}

fn print_choices(choices: &[Choice]) {
    if !choices.is_empty() {
        let near = choices.iter().filter(|c| c.slower <= 1.05).count();
        println!("the chooser is within 5 % of the best plan on {near} of {} triangles", choices.len());
        for c in choices.iter().filter(|c| c.slower > 1.05) {
            println!(
                "  {} {} {}: {} chosen, {} is {:.2}x as fast",
                c.case, c.element, c.triangle, c.chosen, c.best, c.slower
            );
        }
    }
}
