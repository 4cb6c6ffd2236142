//! Where to run: the CPU of this build, or a typed error that says why there is no GPU.

use spandrel::backend_cpu::Cpu;

use crate::args::BackendName;
use crate::failure::{Failure, Result};

/// The CPU, or why what was asked for cannot be had. `auto` is the CPU: this build has no other.
///
/// # Errors
/// Kind `no_gpu` with the probe's reason; kind `unsupported` where there is a GPU.
pub(crate) fn open(name: BackendName) -> Result<Cpu> {
    match name {
        BackendName::Auto | BackendName::Cpu => Ok(Cpu::new()),
        BackendName::Cuda => Err(match spandrel_backend_cuda::probe() {
            Err(why) => Failure::new("no_gpu", format!("no GPU: {why}; or run with --backend cpu")),
            Ok(found) => {
                let names: Vec<String> = found.iter().map(ToString::to_string).collect();
                Failure::new(
                    "unsupported",
                    format!(
                        "this build of spandrel runs on the CPU only, though a GPU is there ({}); run with --backend cpu",
                        names.join("; ")
                    ),
                )
            }
        }),
    }
}

/// Gives rayon's global pool, on which readers, generators and the CPU backend work, its number of threads. Called once,
/// before any of them.
///
/// # Errors
/// Kind `device`, where the system refuses the threads.
pub(crate) fn set_threads(count: Option<usize>) -> Result<()> {
    let Some(count) = count else { return Ok(()) };
    rayon::ThreadPoolBuilder::new().num_threads(count).build_global().map_err(|error| {
        Failure::new("device", format!("{count} threads could not be started ({error}); ask for fewer"))
    })
}
