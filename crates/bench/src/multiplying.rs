//! `spandrel-bench spgemm`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use spandrel_bench::gpu;
use spandrel_bench::spgemm;

use super::{Common, Device, on_gpu};

#[derive(Debug, Args)]
pub(crate) struct Contest {
    #[command(flatten)]
    common: Common,
    /// Peers on the CPU, comma separated; `none` for none
    #[arg(long, value_delimiter = ',', default_value = "sprs,faer")]
    peers: Vec<String>,
    #[command(flatten)]
    device: Device,
}

pub(crate) fn run(contest: &Contest) -> Result<()> {
    let Contest { common, peers, device } = contest;
    let threads = common.output.pool()?;
    let rounds = common.output.rounds;
    let (gpu, header) = on_gpu::open(device, threads)?;
    let mut lines: Vec<Value> = Vec::new();
    for case in common.cases()? {
        let found = match &gpu {
            Some(gpu) => gpu::spgemm::run(gpu, &case, rounds)?,
            None => spgemm::run(&case, peers, rounds)?,
        };
        found.iter().for_each(|line| println!("{}", spgemm::summary(line)));
        lines.extend(found);
        common.output.save(&header, &lines)?;
    }
    Ok(())
}
