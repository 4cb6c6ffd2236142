//! `spandrel-bench multigrid`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use spandrel_backend_cpu::Cpu;
use spandrel_bench::multigrid::{self, AUTO, Contender, Given};

use super::{Common, Device, on_gpu};

#[derive(Debug, Args)]
pub(crate) struct Contest {
    #[command(flatten)]
    common: Common,
    /// Preconditioners: amg, amg=OPTIONS, mixed-amg, mg, or auto for the library's own choice; may be repeated
    #[arg(long = "precond", default_value = "amg")]
    preconds: Vec<String>,
    /// Rows and columns in a pseudo-random order
    #[arg(long)]
    shuffled: bool,
    /// Rigid body modes as the near-null space (elasticity3d:N)
    #[arg(long)]
    rigid_body_modes: bool,
    /// Stop criterion
    #[arg(long, default_value_t = 1e-8)]
    rtol: f64,
    #[command(flatten)]
    device: Device,
}

pub(crate) fn run(contest: &Contest) -> Result<()> {
    let Contest { common, preconds, shuffled, rigid_body_modes, rtol, device } = contest;
    let threads = common.output.pool()?;
    let rounds = common.output.rounds;
    let parse = |name: &String| if name == AUTO { Ok(None) } else { Contender::parse(name).map(Some) };
    let contenders = preconds.iter().map(parse).collect::<Result<Vec<Option<Contender>>>>()?;
    let given = Given { shuffled: *shuffled, rigid: *rigid_body_modes };
    let (gpu, header) = on_gpu::open(device, threads)?;
    let mut lines: Vec<Value> = Vec::new();
    for case in common.cases()? {
        for contender in &contenders {
            let found = match (&gpu, contender) {
                (Some(gpu), Some(contender)) => multigrid::run(&gpu.be, &case, given, contender, rounds, *rtol),
                (Some(gpu), None) => multigrid::run_auto(&gpu.be, &case, given, rounds, *rtol),
                (None, Some(contender)) => multigrid::run(&Cpu::new(), &case, given, contender, rounds, *rtol),
                (None, None) => multigrid::run_auto(&Cpu::new(), &case, given, rounds, *rtol),
            };
            match found {
                Ok(line) => {
                    println!("{}", multigrid::summary(&line));
                    lines.push(line);
                }
                Err(why) => println!("{}: left out: {why:#}", case.name),
            }
            common.output.save(&header, &lines)?;
        }
    }
    Ok(())
}
