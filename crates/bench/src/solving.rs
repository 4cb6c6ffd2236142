//! `solve` on the CPU: generated grids run the contest of [`grid`], and all other matrices the survey of
//! [`spandrel_bench::solve`].

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Value, to_value};
use spandrel_backend_cpu::Cpu;
use spandrel_bench::solve::{self, grid, tally};

use super::{Backend, Common, Device, print_lines};

/// The limits that end a solve before its answer.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limits {
    /// The tolerance
    #[arg(long, default_value_t = 1e-8)]
    pub(crate) rtol: f64,
    /// Interrupt an iterative solve after this many seconds and report it; on a GPU also the time for the rounds of a
    /// case (default: 40, on a GPU 10)
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// The largest number of entries in the factors of ILU(k) per entry of the matrix
    #[arg(long, default_value_t = 20, value_name = "TIMES")]
    fill: usize,
    /// The largest direct factor in GiB
    #[arg(long, default_value_t = 4.0, value_name = "GIB")]
    factor_gib: f64,
}

pub(crate) fn solve(common: &Common, device: &Device, limits: Limits, peers: &[String]) -> Result<()> {
    let threads = common.output.pool()?;
    let Limits { rtol, seconds, fill, factor_gib } = limits;
    let unknown = peers.iter().find(|p| !["faer", "none"].contains(&p.as_str()));
    ensure!(
        unknown.is_none(),
        "no peer of whole solves on the CPU is called {}: faer, none",
        unknown.map_or("", |p| p)
    );
    let plan = grid::Plan { rtol, faer: peers.iter().any(|p| p == "faer"), effort: common.output.effort(Backend::Cpu) };
    let (mut lines, mut others) = (Vec::new(), Vec::new());
    for case in common.cases()? {
        match grid::load(&case)? {
            Some(csr) => {
                eprintln!("{}", case.name);
                lines.extend(grid::run(&Cpu::new(), &case, &csr, &plan)?);
            }
            None => others.push(case),
        }
    }
    let limits = solve::Limits {
        rtol,
        seconds: seconds.unwrap_or(40.0),
        fill,
        memory: (factor_gib * f64::from(1 << 30)) as u64,
    };
    let survey = solve::all(&others, &limits, threads)?;
    let (tallies, russell) = (tally::tallies(&survey), tally::russell(&survey));
    if !survey.is_empty() {
        println!("{}{}", solve::table(&survey), tally::words(&tallies));
        if russell.here > 0 {
            println!(
                "{} of the {} matrices that russell_sparse is measured on are among them",
                russell.here, russell.listed
            );
        }
    }
    if !lines.is_empty() {
        print_lines(common, &lines)?;
    }
    let mut all: Vec<Value> = Vec::new();
    for line in &lines {
        all.push(to_value(line)?);
    }
    for line in &survey {
        all.push(to_value(line)?);
    }
    for tally in &tallies {
        all.push(to_value(tally)?);
    }
    if !survey.is_empty() {
        all.push(to_value(&russell)?);
    }
    common.output.save(&device.header(threads, &lines), &all)
}
