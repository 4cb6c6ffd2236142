//! Measurements on a GPU: our backend, cuSPARSE and cuBLAS if their libraries are found, and the clock.
//!
//! Everything runs on the backend's own stream. A contender is a number of calls captured in one graph, so that the
//! cost of a launch affects no one.

use std::sync::Arc;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use spandrel_backend::Device;
use spandrel_backend_cuda::cudarc::driver::{CudaStream, result, sys};
use spandrel_backend_cuda::{Cuda, ptx};

use crate::machine;
use crate::record::Header;

pub mod cg;
pub mod clock;
mod conjugate;
pub mod convert;
mod csr02;
pub mod cublas;
pub mod cusparse;
pub mod factorize;
mod formats;
pub mod krylov;
pub mod library;
mod ours;
pub mod plans;
mod quotients;
pub mod solve;
pub mod spgemm;
pub mod spmv;
mod spsv;
pub mod sptrsv;

/// Values for the record that this process cannot find out, because the lent machine has no git and no compiler.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// The commit that was built.
    pub commit: Option<String>,
    /// Hash of the PTX as `cargo xtask ptx --hash` prints it.
    pub ptx_sha256: Option<String>,
    /// The peers' libraries with their versions.
    pub libraries: Vec<String>,
}

/// Limits of memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// A format that takes more is left out, and the record says so.
    pub most: u64,
    /// Formats are timed together until they take more than this.
    pub group: u64,
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu {
    /// Our backend.
    pub be: Cuda,
}

impl Gpu {
    /// The first device.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn open() -> Result<Self> {
        Ok(Self { be: Cuda::new()? })
    }

    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        self.be.stream()
    }

    /// Makes the device's context current in this thread, for libraries that use the current one.
    pub(crate) fn bind(&self) -> Result<()> {
        self.stream().context().bind_to_thread().context("binding the device's context")
    }

    /// The limits from the options, or from the free memory: 60 % of it for one format, 30 % for a group. The peers'
    /// forms of the matrix need room too.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn room(&self, most_gib: Option<f64>, group_gib: Option<f64>) -> Result<Room> {
        let (free, _) = self.stream().context().mem_get_info().context("asking for free memory")?;
        let bytes = |gib: f64| (gib * f64::from(1u32 << 30)) as u64;
        let free = free as u64;
        Ok(Room { most: most_gib.map_or(free / 10 * 6, bytes), group: group_gib.map_or(free / 10 * 3, bytes) })
    }

    /// Returns freed memory to the device, so that libraries with their own allocation can use it.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn release_memory(&self) -> Result<()> {
        self.bind()?;
        self.stream().synchronize().context("before memory is released")?;
        let context = self.stream().context();
        if context.has_async_alloc() {
            // SAFETY: the context is bound, and memory in use stays.
            unsafe {
                result::device::get_default_mem_pool(context.cu_device())
                    .and_then(|pool| sys::cuMemPoolTrimTo(pool, 0).result())
            }
            .context("releasing memory")?;
        }
        Ok(())
    }

    /// Whether the device still answers.
    ///
    /// # Errors
    /// The error with which it failed.
    pub fn check(&self) -> Result<()> {
        self.stream().synchronize().context("the device has failed")
    }

    /// Bytes that are free, after [`Gpu::release_memory`].
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn free_memory(&self) -> Result<u64> {
        self.release_memory()?;
        Ok(self.stream().context().mem_get_info().context("asking for free memory")?.0 as u64)
    }

    /// A header for this device.
    ///
    /// # Errors
    /// If the given hash is not that of the embedded PTX, the record would describe other kernels than those that ran.
    pub fn header(&self, provenance: &Provenance, copy_gbs: Option<f64>) -> Result<Header> {
        let found = ptx_sha256();
        if let Some(given) = &provenance.ptx_sha256 {
            anyhow::ensure!(
                given.trim() == found,
                "--ptx-sha256 {given} is not the hash of the PTX in this program, {found}: build it again, or hash the tree that it was built from"
            );
        }
        let here = Header::here(1);
        let driver = machine::ask("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"]);
        let software: Vec<String> = std::iter::once(driver).chain(provenance.libraries.iter().cloned()).collect();
        Ok(Header {
            machine: self.be.describe(),
            driver: Some(software.join(", ")),
            commit: provenance.commit.clone().unwrap_or(here.commit),
            ptx_sha256: Some(found),
            copy_gbs,
            ..here
        })
    }
}

/// SHA-256 over the embedded PTX, as `cargo xtask ptx --hash` prints it: name and text of each file in the order of
/// names, each followed by a zero byte.
pub fn ptx_sha256() -> String {
    let mut hash = Sha256::new();
    for (name, text) in ptx() {
        for part in [name.as_bytes(), text.as_bytes()] {
            hash.update(part);
            hash.update([0]);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_folder() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../backend-cuda/ptx");
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut hash = Sha256::new();
        for name in names {
            hash.update(name.as_bytes());
            hash.update([0]);
            hash.update(std::fs::read(format!("{folder}/{name}")).unwrap());
            hash.update([0]);
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ptx_sha256(), hex);
    }
}
