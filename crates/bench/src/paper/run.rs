//! Runs the papers' jobs on a CPU or a GPU, with the contests of the other commands.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json, to_value};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, generate, matrix_market};
use spandrel_solvers::{Direct, DirectOptions};

use super::{Job, Work};
use crate::case::Case;
use crate::contender::Effort;
use crate::gpu::cublas::Cublas;
use crate::gpu::cusparse::Cusparse;
use crate::gpu::spmv::Force;
use crate::gpu::{self, Gpu, Room};
use crate::krylov;
use crate::record::Line;
use crate::spmv::{self, SERIAL};

/// The device on which jobs run.
pub enum Bench {
    /// The CPU with all threads.
    Cpu(Cpu),
    /// The first GPU, and the libraries that were found. They are dropped before it.
    Gpu {
        /// The product and more.
        cusparse: Option<Rc<Cusparse>>,
        /// Level 1.
        cublas: Option<Rc<Cublas>>,
        /// The device.
        gpu: Box<Gpu>,
        /// Limits of memory.
        room: Room,
    },
}

/// The results of one job.
#[derive(Debug, Default)]
pub struct Findings {
    /// Timings.
    pub lines: Vec<Line>,
    /// Other objects of the record: what was left out, and measurements of other kinds.
    pub rest: Vec<Value>,
}

/// The tolerance of whole solves.
pub const RTOL: f64 = 1e-8;
/// The iterations of a solve for the comparison of memory and graphs.
const ITERATIONS: usize = 200;

impl Bench {
    fn stem(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Gpu { .. } => "cuda",
        }
    }

    /// Runs a job. A failure becomes an object with the reason.
    pub fn run(&self, job: &Job, effort: Effort) -> Findings {
        let mut found = Findings::default();
        if let Err(why) = self.work(job, effort, &mut found) {
            eprintln!("  left out: {why:#}");
            let why = format!("{why:#}");
            let op = match job.work {
                Work::Product { .. } => "spmv",
                Work::Solve { method, .. } => method.as_str(),
                Work::Ways => "cg",
                Work::Read => "read",
                Work::Error => "gfem",
            };
            found.rest.push(krylov::error_line(op, "case", self.stem(), "spandrel", &job.case.name, &why));
        }
        for line in &mut found.lines {
            line.more.figure = Some(job.figure.into());
            line.more.stands_in_for.clone_from(&job.stands_in_for);
        }
        for object in &mut found.rest {
            object["figure"] = job.figure.into();
            if let Some(name) = &job.stands_in_for {
                object["stands_in_for"] = name.as_str().into();
            }
        }
        found
    }

    fn work(&self, job: &Job, effort: Effort, found: &mut Findings) -> Result<()> {
        let case = &job.case;
        match job.work {
            Work::Product { types, formats, force } => {
                for &element in types {
                    match element {
                        "f32" => self.product::<f32>(case, formats, force, effort, found)?,
                        _ => self.product::<f64>(case, formats, force, effort, found)?,
                    }
                }
                Ok(())
            }
            Work::Solve { method, factored, formats, max_iters } => {
                let plan = krylov::Plan { method, factored, formats, rtol: RTOL, max_iters, effort };
                let csr: Csr<f64> = case.load()?;
                let krylov::Findings { lines, errors } = match self {
                    Self::Cpu(be) => krylov::on_cpu(be, &case.name, &csr, &plan),
                    Self::Gpu { gpu, cusparse, .. } => {
                        gpu::krylov::run(gpu, cusparse.as_ref(), &case.name, &csr, &plan)
                    }
                }?;
                found.lines.extend(lines);
                found.rest.extend(errors);
                Ok(())
            }
            Work::Ways => {
                let Self::Gpu { gpu, room, cusparse, cublas } = self else {
                    return Err(anyhow!("managed memory and graphs are a GPU's alone"));
                };
                let plan = gpu::cg::Plan {
                    formats: vec!["csr".into()],
                    iterations: ITERATIONS,
                    managed: vec![false, true],
                    recorded: vec![true, false],
                    effort,
                    room: *room,
                };
                let libraries = cusparse.clone().zip(cublas.clone());
                let libraries = libraries.map(|(cusparse, cublas)| gpu::cg::Libraries { cusparse, cublas });
                let (lines, errors) = gpu::cg::run(gpu, libraries.as_ref(), case, &plan)?;
                found.lines.extend(lines);
                found.rest.extend(errors);
                Ok(())
            }
            Work::Read => {
                let scratch = tempfile::Builder::new().suffix(".mtx").tempfile()?;
                let path: &Path = match &case.path {
                    Some(path) => path,
                    None => {
                        matrix_market::write_csr(scratch.path(), &case.load::<f64>()?, &Default::default())?;
                        scratch.path()
                    }
                };
                for line in crate::read::run(&case.name, path, effort.rounds)? {
                    found.rest.push(to_value(line)?);
                }
                Ok(())
            }
            Work::Error => {
                found.rest.push(gfem_error(&case.name)?);
                Ok(())
            }
        }
    }

    fn product<T: crate::peers::PeerReal>(
        &self,
        case: &Case,
        formats: &[&str],
        force: &'static [&'static str],
        effort: Effort,
        found: &mut Findings,
    ) -> Result<()> {
        let wanted = || formats.iter().map(|&f| f.to_owned()).collect();
        match self {
            Self::Cpu(be) => {
                let peers = ["sprs", "faer", "nalgebra-sparse"].map(str::to_owned).to_vec();
                let serial = force.contains(&SERIAL);
                let plan = spmv::Plan { formats: wanted(), peers, effort, machine: true, serial };
                let (lines, _) = spmv::run::<T>(be, case, &plan)?;
                for noun in formats.iter().filter(|&&noun| !lines.iter().any(|l| l.noun == noun)) {
                    let why = "the format would store too much padding for this matrix";
                    let mut line = krylov::error_line("spmv", noun, "cpu", "spandrel", &case.name, why);
                    line["type"] = T::NAME.into();
                    found.rest.push(line);
                }
                found.lines.extend(lines);
            }
            Self::Gpu { gpu, room, cusparse, .. } => {
                let force = if force.is_empty() { Force::None } else { Force::Only(force) };
                let plan =
                    gpu::spmv::Plan { formats: wanted(), effort, room: *room, min_entries: 0, machine: true, force };
                let more = gpu::spmv::run::<T>(gpu, cusparse.as_ref(), case, &plan)?;
                found.lines.extend(more.lines);
                found.rest.extend(more.errors);
            }
        }
        Ok(())
    }
}

/// Solves -u'' = pi^2 sin(pi x) on (0, 1), u = sin(pi x), as K u = M f by the direct solver. Returns the largest error
/// at a node.
fn gfem_error(spec: &str) -> Result<Value> {
    let stiffness: Csr<f64> = generate::csr(spec)?;
    let mass: Csr<f64> = generate::csr(&format!("{spec},op=mass"))?;
    let (n, pi) = (stiffness.nrows(), std::f64::consts::PI);
    let exact = |i: usize| (pi * (i + 1) as f64 / (n + 1) as f64).sin();
    let row = |i: usize| {
        let (cols, values) = mass.row(i);
        cols.iter().zip(values).map(|(&j, v)| v * pi * pi * exact(j as usize)).sum::<f64>()
    };
    let b: Vec<f64> = (0..n).map(row).collect();
    let widest = (0..n).filter_map(|i| {
        let (cols, _) = stiffness.row(i);
        Some(i.abs_diff(*cols.first()? as usize).max(i.abs_diff(*cols.last()? as usize)))
    });
    let diagonals = 2 * widest.max().context("a matrix without rows")? + 1;
    let nnz = stiffness.nnz();
    let mut x = vec![0.0; n];
    let outcome = Direct::new(Arc::new(stiffness), &DirectOptions::default())?.solve(&b, &mut x)?;
    anyhow::ensure!(outcome.status.is_converged(), "{spec}: the direct solver ended as {}", outcome.status);
    let largest = x.iter().enumerate().map(|(i, x)| (x - exact(i)).abs()).fold(0.0, f64::max);
    Ok(
        json!({"op": "gfem", "noun": "error", "case": spec, "n": n, "nnz": nnz, "diagonals": diagonals, "max_error": largest}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_elements_fall_with_their_bandwidth() {
        let mut last = f64::INFINITY;
        for (p, diagonals) in [(0, 3), (1, 7), (2, 11), (3, 15)] {
            let found = gfem_error(&format!("gfem:n=31,p={p}")).unwrap();
            assert_eq!(found["diagonals"], diagonals);
            let error = found["max_error"].as_f64().unwrap();
            assert!(error < last / 10.0, "p = {p}: {error:e} after {last:e}");
            last = error;
        }
    }
}
