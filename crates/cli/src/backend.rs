//! The choice of the backend: what `--backend` asks for, what was opened and why, and the typed error that says why
//! there is no GPU.

use spandrel::any::{AnyBackend, Choice};
use spandrel::backend::Error;

use crate::args::BackendName;
use crate::failure::{Failure, Result};

/// A device, and why it is this one.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: AnyBackend,
    pub(crate) why: Why,
}

/// Why the work runs where it does.
#[derive(Clone, Debug)]
pub(crate) struct Why {
    /// In a few words, for a line.
    pub(crate) short: &'static str,
    /// With the reason of a missing GPU.
    pub(crate) full: String,
}

impl Why {
    pub(crate) fn new(short: &'static str) -> Self {
        Self { short, full: short.to_string() }
    }
}

/// Opens a backend. `auto` is the first usable GPU, else the CPU. A number selects a GPU.
///
/// # Errors
/// Kind `usage` for a number that no GPU has, or a number together with the CPU; `no_gpu` with the probe's reason;
/// `unsupported` in a build without CUDA; `device` with the driver's error.
pub(crate) fn open(name: BackendName, number: Option<usize>) -> Result<Opened> {
    if let Some(number) = number {
        if name == BackendName::Cpu {
            let why =
                format!("--device {number} is a GPU, and --backend cpu leaves them alone: leave one of the two out");
            return Err(Failure::new("usage", why));
        }
        numbered(number)?;
        return Ok(Opened { device: AnyBackend::open(Choice::Gpu(number))?, why: asked_for() });
    }
    match name {
        BackendName::Auto => {
            let (device, missing) = AnyBackend::auto()?;
            Ok(Opened { device, why: automatic(missing.as_ref()) })
        }
        BackendName::Cpu => Ok(Opened { device: AnyBackend::open(Choice::Cpu)?, why: asked_for() }),
        BackendName::Cuda => {
            gpu()?;
            Ok(Opened { device: AnyBackend::open(Choice::Cuda)?, why: asked_for() })
        }
    }
}

fn asked_for() -> Why {
    Why::new("as asked for")
}

/// The reason for the choice of `auto`.
fn automatic(missing: Option<&Error>) -> Why {
    match missing {
        None => Why::new("the first GPU found"),
        Some(_) if !cfg!(feature = "cuda") => Why { short: "this build has no CUDA", full: NO_CUDA.to_string() },
        Some(Error::Device { why, .. }) => Why { short: NO_GPU, full: format!("no GPU: {why}") },
        Some(error) => Why { short: NO_GPU, full: format!("no GPU: {error}") },
    }
}

const NO_GPU: &str = "no GPU to be used, see `spandrel devices`";
/// The message without the feature `cuda`.
pub(crate) const NO_CUDA: &str = "this build of spandrel runs on the CPU only, it leaves the feature `cuda` out";

/// Whether there is a GPU to ask for.
#[cfg(feature = "cuda")]
fn gpu() -> Result<()> {
    match spandrel::backend_cuda::first_usable() {
        Ok(_) => Ok(()),
        Err(why) => Err(Failure::new("no_gpu", format!("no GPU: {why}; or run with --backend cpu"))),
    }
}

/// Whether there is a GPU to ask for.
#[cfg(not(feature = "cuda"))]
fn gpu() -> Result<()> {
    Err(Failure::new("unsupported", format!("{NO_CUDA}; build with it, or run with --backend cpu")))
}

/// Whether there is a GPU with that number, and the kernels run on it.
#[cfg(feature = "cuda")]
fn numbered(number: usize) -> Result<()> {
    let no_gpu = |why: String| Failure::new("no_gpu", format!("no GPU: {why}; or run with --backend cpu"));
    let found = spandrel::backend_cuda::probe().map_err(|why| no_gpu(why.to_string()))?;
    let info = found.get(number).ok_or_else(|| none_such(number, found.len()))?;
    info.check().map_err(|why| no_gpu(why.to_string()))
}

#[cfg(feature = "cuda")]
fn none_such(number: usize, found: usize) -> Failure {
    let last = found.saturating_sub(1);
    let shown = if found == 1 { "the driver shows one, 0".to_owned() } else { format!("the driver shows 0 to {last}") };
    Failure::new("usage", format!("there is no GPU {number}: {shown}; see `spandrel devices`"))
}

/// The numbers of the GPUs that can be used.
///
/// # Errors
/// Kind `no_gpu` with the probe's reason.
#[cfg(feature = "cuda")]
pub(crate) fn gpus() -> Result<Vec<usize>> {
    let no_gpu = |why: String| Failure::new("no_gpu", format!("no GPU: {why}; or solve on the CPU with --ranks K"));
    spandrel::backend_cuda::first_usable().map_err(|why| no_gpu(why.to_string()))?;
    let found = spandrel::backend_cuda::probe().map_err(|why| no_gpu(why.to_string()))?;
    Ok(found.iter().filter(|info| info.check().is_ok()).map(|info| info.ordinal).collect())
}

/// Whether there is a GPU with that number.
#[cfg(not(feature = "cuda"))]
fn numbered(_: usize) -> Result<()> {
    gpu()
}

/// Sets the number of threads of rayon's global pool, on which readers, generators and the CPU backend work. Called
/// once, before any of them.
///
/// # Errors
/// Kind `device` if the system refuses the threads.
pub(crate) fn set_threads(count: Option<usize>) -> Result<()> {
    let Some(count) = count else { return Ok(()) };
    rayon::ThreadPoolBuilder::new().num_threads(count).build_global().map_err(|error| {
        let threads = crate::input::counted(count, "thread");
        Failure::new("device", format!("{threads} could not be started ({error}); ask for fewer"))
    })
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_gpu_has_is_bad_usage() {
        let one = none_such(1, 1);
        assert_eq!(one.kind, "usage");
        assert!(one.message.starts_with("there is no GPU 1: the driver shows one, 0;"), "{one}");
        assert!(none_such(9, 8).message.contains("the driver shows 0 to 7;"));
    }
}
