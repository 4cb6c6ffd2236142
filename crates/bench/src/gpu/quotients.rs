//! The quotients of textbook iterations with device scalars, for peers made of cuSPARSE and cuBLAS: quotient.ptx,
//! kernels of one thread.

use std::ffi::c_void;

use anyhow::{Context, Result};
use spandrel_backend_cuda::cudarc::driver::{CudaFunction, result::launch_kernel};
use spandrel_backend_cuda::cudarc::nvrtc::Ptx;

use super::Gpu;

/// The kernels. Scalars are addresses of f64 in device memory.
pub(crate) struct Quotients {
    alpha: CudaFunction,
    beta: CudaFunction,
    direction: CudaFunction,
}

impl Quotients {
    /// Loads them.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        let module = gpu.stream().context().load_module(Ptx::from_src(include_str!("quotient.ptx")));
        let module = module.context("loading the quotients")?;
        let function = |name: &str| module.load_function(name).with_context(|| format!("kernel {name}"));
        Ok(Self { alpha: function("alpha_f64")?, beta: function("beta_f64")?, direction: function("direction_f64")? })
    }

    /// Enqueues out = num / den, negated = -out, for \[num, den, out, negated\].
    ///
    /// # Safety
    /// Each is the address of an f64 in device memory that lives until the stream has passed the call and every replay
    /// of it. The context is bound.
    pub(crate) unsafe fn alpha(&self, gpu: &Gpu, places: [u64; 4]) -> Result<()> {
        // SAFETY: four addresses; the caller's promise.
        unsafe { launch(gpu, &self.alpha, &places) }
    }

    /// Enqueues out = num / den, then den = num, for \[num, den, out\].
    ///
    /// # Safety
    /// As [`Quotients::alpha`].
    pub(crate) unsafe fn beta(&self, gpu: &Gpu, places: [u64; 3]) -> Result<()> {
        // SAFETY: three addresses; the caller's promise.
        unsafe { launch(gpu, &self.beta, &places) }
    }

    /// Enqueues out = (following / rho) (alpha / omega), then rho = following, for \[following, rho, alpha, omega,
    /// out\].
    ///
    /// # Safety
    /// As [`Quotients::alpha`].
    pub(crate) unsafe fn direction(&self, gpu: &Gpu, places: [u64; 5]) -> Result<()> {
        // SAFETY: five addresses; the caller's promise.
        unsafe { launch(gpu, &self.direction, &places) }
    }
}

/// # Safety
/// The kernel takes this many addresses, which satisfy the conditions of [`Quotients::alpha`].
unsafe fn launch(gpu: &Gpu, function: &CudaFunction, places: &[u64]) -> Result<()> {
    let mut arguments: Vec<*mut c_void> = places.iter().map(|a| std::ptr::from_ref(a).cast_mut().cast()).collect();
    let stream = gpu.stream().cu_stream();
    // SAFETY: the kernel takes these addresses; the context is bound.
    unsafe { launch_kernel(function.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream, &mut arguments) }
        .context("launching a quotient")
}
