//! `spandrel devices`: what there is to run on, and for a missing GPU why it is missing.

use serde::Serialize;
use spandrel::Device;
use spandrel::backend_cpu::Cpu;
use spandrel_backend_cuda::DeviceInfo;

use crate::args::DevicesArgs;
use crate::failure::Result;
use crate::output;

#[derive(Serialize)]
struct Listing {
    cpu: CpuListing,
    cuda: CudaListing,
}

#[derive(Serialize)]
struct CpuListing {
    usable: bool,
    device: String,
    n_threads: usize,
}

#[derive(Serialize)]
struct CudaListing {
    /// Whether this build can run there.
    usable: bool,
    why: String,
    devices: Vec<Gpu>,
}

#[derive(Serialize)]
struct Gpu {
    ordinal: usize,
    name: String,
    memory: u64,
    compute_capability: String,
    multiprocessors: u32,
}

impl From<&DeviceInfo> for Gpu {
    fn from(info: &DeviceInfo) -> Self {
        let (major, minor) = info.compute_capability;
        Self {
            ordinal: info.ordinal,
            name: info.name.clone(),
            memory: info.memory,
            compute_capability: format!("{major}.{minor}"),
            multiprocessors: info.multiprocessors,
        }
    }
}

pub(crate) fn run(args: &DevicesArgs) -> Result<()> {
    const CPU_ONLY: &str = "this build runs on the CPU only";
    let cpu = Cpu::new();
    let found = spandrel_backend_cuda::probe();
    if args.json {
        let (why, devices) = match &found {
            Ok(found) => (CPU_ONLY.to_string(), found.iter().map(Gpu::from).collect()),
            Err(why) => (why.to_string(), Vec::new()),
        };
        return output::print_json(&Listing {
            cpu: CpuListing { usable: true, device: cpu.describe(), n_threads: cpu.thread_count() },
            cuda: CudaListing { usable: false, why, devices },
        });
    }
    let mut text = format!("cpu   {}\n", cpu.describe());
    match found {
        Ok(found) => {
            for gpu in found {
                text.push_str(&format!("cuda  {gpu}\n"));
            }
            text.push_str(&format!("      {CPU_ONLY}: these are not used\n"));
        }
        Err(why) => text.push_str(&format!("cuda  none: {why}\n")),
    }
    output::print(&text)
}
