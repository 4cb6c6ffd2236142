//! Errors of the driver as errors of the contract.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use spandrel_backend::Error;

/// The backend's name in errors, trials and records.
pub(crate) const NAME: &str = "cuda";

/// A failed driver call: its purpose, the driver's name of the error, and what to do.
pub(crate) fn failed(what: &str, error: DriverError) -> Error {
    let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned());
    let advice = match error.0 {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION => {
            "a kernel failed and the process must be restarted; run it under compute-sanitizer and report it"
        }
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT => "the display's watchdog ended a kernel; use a GPU without a display",
        CUresult::CUDA_ERROR_INVALID_PTX | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is too old for these kernels: update NVIDIA's driver"
        }
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "the GPU is older than compute capability 7.5, the oldest supported",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => "free memory of the device, or take a larger one",
        _ => "see CUresult in the CUDA Driver API, and check that nvidia-smi works",
    };
    Error::Device { device: NAME, why: format!("{what}: {name}; {advice}") }
}

/// As [`failed`], for a request of `bytes` of memory. Refused memory is a separate error, after which the device
/// continues.
pub(crate) fn refused(what: &'static str, bytes: u64, error: DriverError) -> Error {
    if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        Error::OutOfMemory { device: NAME, what, bytes }
    } else {
        failed(what, error)
    }
}
