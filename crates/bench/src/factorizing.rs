//! `spandrel-bench factorize`.

use anyhow::{Result, ensure};
use clap::Args;
use spandrel_bench::gpu::Gpu;

use super::{Backend, Common, Device, on_gpu};

#[derive(Debug, Args)]
pub(crate) struct Contest {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    device: Device,
    /// Peers, `cusparse` or `none`
    #[arg(long, value_delimiter = ',', default_value = "cusparse")]
    peers: Vec<String>,
}

pub(crate) fn run(Contest { common, device, peers }: &Contest) -> Result<()> {
    ensure!(device.backend == Backend::Cuda, "factorisations are timed on a GPU: --backend cuda");
    common.output.pool()?;
    on_gpu::factorize(common, &Gpu::open()?, device.provenance(), peers)
}
