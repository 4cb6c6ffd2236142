//! `spandrel devices`: the devices, their profiles, and why a missing GPU is missing.

use serde::Serialize;
use spandrel::any::{AnyBackend, Choice};
use spandrel::backend_cpu::Cpu;
#[cfg(feature = "cuda")]
use spandrel::backend_cuda::{Cuda, DeviceInfo, probe};

use spandrel::calibration;
use spandrel::{Device, Profile};

use crate::args::DevicesArgs;
use crate::failure::{Failure, Result};
use crate::input;
use crate::output;
use crate::progress::Spinner;

#[derive(Serialize)]
struct Listing {
    cpu: CpuListing,
    cuda: CudaListing,
    /// Of the CPU, and of the GPU that is used.
    profiles: Vec<ProfileListing>,
    calibration: CalibrationListing,
}

#[derive(Serialize)]
struct ProfileListing {
    backend: &'static str,
    device: String,
    origin: &'static str,
    threads: usize,
    caches: Vec<u64>,
    numbers: Vec<NumberListing>,
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
struct NumberListing {
    name: String,
    value: f64,
}

#[derive(Serialize)]
struct CalibrationListing {
    /// Where it is kept.
    file: Option<String>,
    /// Whether it was measured now.
    stored: bool,
    /// Why the file of profiles is not read.
    note: Option<String>,
}

impl ProfileListing {
    fn of(backend: &'static str, profile: &Profile) -> Self {
        let numbers = profile.numbers().into_iter().map(|(name, value)| NumberListing { name, value });
        let rate = 1.0 / profile.memory.nanoseconds_per_byte;
        let per = if profile.memory.units > 1 { " per core" } else { "" };
        let call = profile.products.csr.map_or(0.0, |cost| cost.call);
        let text = format!(
            "profile {}: {rate:.1} GB/s{per}, {} counted as cached, {call:.0} ns to call a product",
            profile.origin,
            input::bytes(profile.memory.resident)
        );
        Self {
            backend,
            device: profile.device.clone(),
            origin: profile.origin.as_str(),
            threads: profile.host.threads,
            caches: profile.memory.caches.clone(),
            numbers: numbers.collect(),
            text,
        }
    }
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

/// The devices that are used: the CPU, and a GPU if there is one.
fn opened() -> Result<Vec<AnyBackend>> {
    let cpu = AnyBackend::open(Choice::Cpu)?;
    Ok(std::iter::once(cpu).chain(AnyBackend::open(Choice::Cuda).ok()).collect())
}

/// Measures each device and keeps what was found.
fn calibrate() -> Result<()> {
    let spinner = Spinner::start("measuring");
    for device in opened()? {
        spinner.say(format!("measuring {}", device.profile().device));
        let profile = calibration::calibrate(&device)?;
        calibration::store(device.name(), &profile).map_err(|why| Failure::new("io", why.to_string()))?;
    }
    Ok(())
}

pub(crate) fn run(args: &DevicesArgs) -> Result<()> {
    // Before anything is measured that could not be kept.
    let path = calibration::path();
    if args.calibrate {
        path.as_ref().map_err(|why| Failure::new("io", why.to_string()))?;
        calibrate()?;
    }
    let cpu = Cpu::new();
    let cuda = cuda();
    let profiles: Vec<_> = opened()?.iter().map(|device| ProfileListing::of(device.name(), device.profile())).collect();
    let note = calibration::read().err().map(|why| why.to_string());
    let file = path.ok().map(|path| path.display().to_string());
    let calibration = CalibrationListing { file, stored: args.calibrate, note };
    if args.json {
        return output::print_json(&Listing {
            cpu: CpuListing { usable: true, device: cpu.describe(), n_threads: cpu.thread_count() },
            cuda,
            profiles,
            calibration,
        });
    }
    let profile = |backend: &str| {
        let of = profiles.iter().find(|profile| profile.backend == backend);
        of.map_or_else(String::new, |profile| format!("      {}\n", profile.text))
    };
    let mut text = format!("cpu   {}\n{}", cpu.describe(), profile(Cpu::NAME));
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
    text.push_str(&format!("{head}{}\n{}", cuda.why, profile("cuda")));
    if let Some(file) = calibration.file.as_ref().filter(|_| calibration.stored) {
        text.push_str(&format!("calibrated; the numbers are in {file}, which is safe to delete\n"));
    }
    if let Some(note) = &calibration.note {
        text.push_str(&format!("note  {note}\n"));
    }
    output::print(&text)
}
