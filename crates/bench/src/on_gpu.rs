//! The commands on a GPU: libraries, cases, record.

use anyhow::{Result, bail};
use serde_json::{Value, to_value};
use spandrel_bench::gpu::cublas::Cublas;
use spandrel_bench::gpu::cusparse::Cusparse;
use spandrel_bench::gpu::spmv::{Findings, error_line};
use spandrel_bench::gpu::{self, Gpu, Provenance};
use spandrel_bench::record::{Header, Line};
use spandrel_bench::{hpcg, sptrsv};

use super::triangular::Job;
use super::{Backend, Common, Device, Output, print_choices, print_lines, rate, write_markdown};

/// Whether cuSPARSE is among the peers.
fn wanted(peers: &[String]) -> Result<bool> {
    match peers.iter().find(|p| !["cusparse", "none"].contains(&p.as_str())) {
        Some(other) => bail!("no peer on a GPU is called {other}: cusparse, none"),
        None => Ok(peers.iter().any(|p| p == "cusparse")),
    }
}

/// A peer, or a line that says why there is none.
fn peer<T>(op: &str, name: &str, opened: Result<T>, errors: &mut Vec<Value>) -> Option<T> {
    opened
        .inspect_err(|why| {
            eprintln!("{name} is left out: {why:#}");
            errors.push(error_line(op, "library", "f64", name, "all", &format!("{why:#}")));
        })
        .ok()
}

/// The GPU, if the command runs there, and the header of its record.
pub(crate) fn open(device: &Device, threads: usize) -> Result<(Option<Gpu>, Header)> {
    match device.backend {
        Backend::Cpu => Ok((None, device.header(threads, &[]))),
        Backend::Cuda => {
            let gpu = Gpu::open()?;
            let header = gpu.header(&device.provenance(), None)?;
            Ok((Some(gpu), header))
        }
    }
}

/// Writes what is there so far, so that an interrupted run keeps its finished cases.
fn save(output: &Output, gpu: &Gpu, provenance: &Provenance, lines: &[Line], rest: &[Value]) -> Result<()> {
    let mut all = lines.iter().map(to_value).collect::<Result<Vec<_>, _>>()?;
    all.extend_from_slice(rest);
    output.save(&gpu.header(provenance, rate(lines, "copy"))?, &all)
}

fn print(common: &Common, lines: &[Line], rest: &[Value]) -> Result<()> {
    for error in rest.iter().filter(|line| line.get("error").is_some()) {
        println!("left out: {} {} ({}): {}", error["case"], error["noun"], error["contender"], error["error"]);
    }
    print_lines(common, lines)
}

pub(crate) fn spmv(
    common: &Common,
    gpu: &Gpu,
    mut provenance: Provenance,
    plan: &gpu::spmv::Plan,
    peers: &[String],
    types: &[String],
) -> Result<()> {
    // Report wrong words, and a hash that does not fit, before the work begins.
    let (wanted, mut rest) = (wanted(peers)?, Vec::new());
    gpu.header(&provenance, None)?;
    let library = if wanted { peer("spmv", "cusparse", Cusparse::open(gpu), &mut rest) } else { None };
    provenance.libraries.extend(library.as_ref().map(|library| library.version()).transpose()?);
    let (mut lines, mut choices) = (Vec::new(), Vec::new());
    for case in common.cases()? {
        for element in types {
            eprintln!("{} {element}", case.name);
            let found = match element.as_str() {
                "f32" => gpu::spmv::run::<f32>(gpu, library.as_ref(), &case, plan),
                "f64" => gpu::spmv::run::<f64>(gpu, library.as_ref(), &case, plan),
                other => bail!("no element type is called {other}: f32, f64"),
            };
            match found {
                Ok(Findings { lines: more, errors, choice }) => {
                    lines.extend(more);
                    rest.extend(errors);
                    if let Some(choice) = choice {
                        rest.push(to_value(&choice)?);
                        choices.push(choice);
                    }
                }
                Err(why) => {
                    eprintln!("  left out: {why:#}");
                    rest.push(error_line("spmv", "case", element, "spandrel", &case.name, &format!("{why:#}")));
                }
            }
            save(&common.output, gpu, &provenance, &lines, &rest)?;
        }
    }
    print_choices(&choices);
    print(common, &lines, &rest)
}

/// Times triangular solves. After each case, `written` turns the results so far into objects of the record.
pub(crate) fn sptrsv(
    output: &Output,
    device: &Device,
    jobs: &[Job],
    types: &[String],
    written: &mut dyn FnMut(&mut sptrsv::Findings) -> Result<Vec<Value>>,
) -> Result<sptrsv::Findings> {
    let (gpu, mut provenance) = (Gpu::open()?, device.provenance());
    let room = gpu.room(device.max_gib, device.group_gib)?;
    gpu.header(&provenance, None)?;
    let mut found = sptrsv::Findings::default();
    let mut wants = false;
    for (_, contest) in jobs {
        wants |= wanted(&contest.peers)?;
    }
    let library = if wants { peer("sptrsv", "cusparse", Cusparse::open(&gpu), &mut found.errors) } else { None };
    provenance.libraries.extend(library.as_ref().map(|library| library.version()).transpose()?);
    for (case, contest) in jobs {
        for element in types {
            eprintln!("{} {element}", case.name);
            let more = match element.as_str() {
                "f32" => gpu::sptrsv::run::<f32>(&gpu, library.as_ref(), case, contest, room),
                "f64" => gpu::sptrsv::run::<f64>(&gpu, library.as_ref(), case, contest, room),
                other => bail!("no element type is called {other}: f32, f64"),
            };
            match more {
                Ok(more) => found.add(more),
                Err(why) => {
                    eprintln!("  left out: {why:#}");
                    let why = format!("{why:#}");
                    found.errors.push(error_line("sptrsv", "case", element, "spandrel", &case.name, &why));
                }
            }
            let all = written(&mut found)?;
            output.save(&gpu.header(&provenance, rate(&found.lines, "copy"))?, &all)?;
        }
    }
    Ok(found)
}

/// Runs HPCG's problem, one size and format after the other.
pub(crate) fn hpcg(output: &Output, device: &Device, plans: &[hpcg::Plan]) -> Result<()> {
    let (gpu, provenance) = (Gpu::open()?, device.provenance());
    gpu.header(&provenance, None)?;
    let mut lines = Vec::new();
    for plan in plans {
        let line = hpcg::run(&gpu.be, plan)?;
        println!("{}", hpcg::summary(&line));
        lines.push(line);
        save(output, &gpu, &provenance, &lines, &[])?;
    }
    Ok(())
}

pub(crate) fn factorize(common: &Common, gpu: &Gpu, mut provenance: Provenance, peers: &[String]) -> Result<()> {
    let (wanted, mut lines) = (wanted(peers)?, Vec::new());
    gpu.header(&provenance, None)?;
    let library = if wanted { peer("factorize", "cusparse", Cusparse::open(gpu), &mut lines) } else { None };
    provenance.libraries.extend(library.as_ref().map(|library| library.version()).transpose()?);
    for case in common.cases()? {
        match gpu::factorize::run(gpu, library.as_ref(), &case) {
            Ok(more) => lines.extend(more),
            Err(why) => {
                eprintln!("  left out: {why:#}");
                lines.push(error_line("factorize", "case", "f64", "spandrel", &case.name, &format!("{why:#}")));
            }
        }
        save(&common.output, gpu, &provenance, &[], &lines)?;
    }
    Ok(())
}

/// Whole preconditioned solves.
pub(crate) fn solve(
    common: &Common,
    gpu: &Gpu,
    mut provenance: Provenance,
    plan: &gpu::solve::Plan,
    peers: &[String],
) -> Result<()> {
    let mut rest = Vec::new();
    gpu.header(&provenance, None)?;
    let libraries = libraries("solve", gpu, &mut provenance, peers, &mut rest)?;
    let mut lines = Vec::new();
    let written = |lines: &[gpu::solve::lines::Line], rest: &[Value], means: Vec<Value>| -> Result<()> {
        let mut all = lines.iter().map(to_value).collect::<Result<Vec<_>, _>>()?;
        all.extend(means);
        all.extend_from_slice(rest);
        common.output.save(&gpu.header(&provenance, None)?, &all)
    };
    for case in common.cases()? {
        eprintln!("{}", case.name);
        match gpu::solve::run(gpu, libraries.as_ref(), &case, plan) {
            Ok(more) => lines.extend(more),
            Err(why) => {
                eprintln!("  left out: {why:#}");
                rest.push(error_line("solve", "case", "f64", "spandrel", &case.name, &format!("{why:#}")));
            }
        }
        // After a device has failed, everything fails. Report it once.
        gpu.check()?;
        written(&lines, &rest, Vec::new())?;
    }
    let means = gpu::solve::lines::means(&lines);
    println!("{}", gpu::solve::lines::table(&lines, false));
    for left_out in &rest {
        println!("left out: {} ({}): {}", left_out["case"], left_out["contender"], left_out["error"]);
    }
    for mean in &means {
        println!(
            "{} {}: solve {}, with set-up {}, to f64 {}; {} of {} converged, {} compared",
            mean["noun"],
            mean["precision"],
            mean["ratio_to_best_peer"],
            mean["ratio_with_setup"],
            mean["ratio_to_f64"],
            mean["converged"],
            mean["cases"],
            mean["compared"]
        );
    }
    write_markdown(&common.output, &gpu::solve::lines::table(&lines, true))?;
    written(&lines, &rest, means)
}

/// cuSPARSE with cuBLAS, if requested and found.
fn libraries(
    op: &str,
    gpu: &Gpu,
    provenance: &mut Provenance,
    peers: &[String],
    rest: &mut Vec<Value>,
) -> Result<Option<gpu::cg::Libraries>> {
    if !wanted(peers)? {
        return Ok(None);
    }
    let cusparse = peer(op, "cusparse", Cusparse::open(gpu), rest);
    let cublas = peer(op, "cublas", Cublas::open(gpu), rest);
    let libraries = cusparse.zip(cublas).map(|(cusparse, cublas)| gpu::cg::Libraries { cusparse, cublas });
    if let Some(libraries) = &libraries {
        provenance.libraries.push(libraries.cusparse.version()?);
    }
    Ok(libraries)
}

pub(crate) fn cg(
    common: &Common,
    gpu: &Gpu,
    mut provenance: Provenance,
    plan: &gpu::cg::Plan,
    peers: &[String],
) -> Result<()> {
    let mut rest = Vec::new();
    gpu.header(&provenance, None)?;
    let libraries = libraries("cg", gpu, &mut provenance, peers, &mut rest)?;
    let mut lines = Vec::new();
    for case in common.cases()? {
        eprintln!("{}", case.name);
        match gpu::cg::run(gpu, libraries.as_ref(), &case, plan) {
            Ok((more, errors)) => {
                lines.extend(more);
                rest.extend(errors);
            }
            Err(why) => {
                eprintln!("  left out: {why:#}");
                rest.push(error_line("cg", "case", "f64", "spandrel", &case.name, &format!("{why:#}")));
            }
        }
        save(&common.output, gpu, &provenance, &lines, &rest)?;
    }
    print(common, &lines, &rest)
}
