//! `spandrel devices`: what there is to run on, and for a missing GPU why it is missing.

use serde::Serialize;
use spandrel::Device;
use spandrel::backend_cpu::Cpu;
#[cfg(feature = "cuda")]
use spandrel::backend_cuda::{Cuda, DeviceInfo, probe};

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
    /// Whether `--backend auto` runs there.
    usable: bool,
    why: String,
    devices: Vec<Gpu>,
}

#[derive(Serialize)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // then there are none
struct Gpu {
    ordinal: usize,
    name: String,
    memory: u64,
    compute_capability: String,
    multiprocessors: u32,
    #[serde(skip)]
    text: String,
}

#[cfg(feature = "cuda")]
impl From<&DeviceInfo> for Gpu {
    fn from(info: &DeviceInfo) -> Self {
        let (major, minor) = info.compute_capability;
        Self {
            ordinal: info.ordinal,
            name: info.name.clone(),
            memory: info.memory,
            compute_capability: format!("{major}.{minor}"),
            multiprocessors: info.multiprocessors,
            text: info.to_string(),
        }
    }
}

/// The GPUs that the driver shows, and whether the first that the kernels run on, which is the one used, can be opened.
#[cfg(feature = "cuda")]
fn cuda() -> CudaListing {
    let found = match probe() {
        Ok(found) => found,
        Err(why) => return CudaListing { usable: false, why: why.to_string(), devices: Vec::new() },
    };
    let (usable, why) = match Cuda::new() {
        Ok(cuda) => (true, format!("device {} is used by --backend auto and cuda", cuda.info().ordinal)),
        Err(spandrel::backend::Error::Device { why, .. }) => (false, why),
        Err(error) => (false, error.to_string()),
    };
    CudaListing { usable, why, devices: found.iter().map(Gpu::from).collect() }
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> CudaListing {
    CudaListing { usable: false, why: crate::backend::NO_CUDA.to_string(), devices: Vec::new() }
}

pub(crate) fn run(args: &DevicesArgs) -> Result<()> {
    let cpu = Cpu::new();
    let cuda = cuda();
    if args.json {
        return output::print_json(&Listing {
            cpu: CpuListing { usable: true, device: cpu.describe(), n_threads: cpu.thread_count() },
            cuda,
        });
    }
    let mut text = format!("cpu   {}\n", cpu.describe());
    for gpu in &cuda.devices {
        text.push_str(&format!("cuda  {}\n", gpu.text));
    }
    let head = if cuda.devices.is_empty() {
        "cuda  none: "
    } else if cuda.usable {
        "      "
    } else {
        "      not usable: "
    };
    text.push_str(&format!("{head}{}\n", cuda.why));
    output::print(&text)
}
