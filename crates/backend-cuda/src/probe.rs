//! Finds out whether a usable CUDA driver is there, without ever panicking.
//!
//! The driver's library is opened by hand: bindings that load it lazily abort the program if it is missing, or if
//! another file has its name. The order of the checks is library, symbols, `cuInit`, version, devices; the first that
//! fails gives the reason.
//!
//! Invariants: an opened driver stays loaded until the program ends, because an initialised driver owns threads and
//! must not be unmapped. So a second probe initialises nothing again.
//!
//! Reference: NVIDIA, CUDA Driver API, chapters "Initialization", "Version Management", "Device Management".

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::fmt;

use libloading::Library;

/// The oldest driver that is accepted: CUDA 12.4, in the driver's own encoding (1000 * major + 10 * minor).
pub const NEEDED_VERSION: i32 = 12_040;

/// The oldest compute capability that the kernels support: that of the baseline in crates/backend-cuda/ptx.
pub const NEEDED_CAPABILITY: (u32, u32) = (7, 5);

/// Where to look for the driver's library, by the names of its installers on Linux and Windows.
const LIBRARY_NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];

const CUDA_SUCCESS: c_int = 0;
const CUDA_ERROR_NO_DEVICE: c_int = 100;
const CLOCK_RATE: c_int = 13;
const MULTIPROCESSOR_COUNT: c_int = 16;
const MEMORY_CLOCK_RATE: c_int = 36;
const GLOBAL_MEMORY_BUS_WIDTH: c_int = 37;
const L2_CACHE_SIZE: c_int = 38;
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number among the devices that the driver shows to this process.
    pub ordinal: usize,
    /// The model.
    pub name: String,
    /// Device memory in bytes.
    pub memory: u64,
    /// Compute capability, (major, minor).
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The newest CUDA version that the driver supports, 1000 * major + 10 * minor.
    pub driver_version: i32,
    /// Clock of the multiprocessors in kHz; 0 if the driver does not say.
    pub clock: u32,
    /// Clock of the memory in kHz; 0 if the driver does not say.
    pub memory_clock: u32,
    /// Bits of the memory's bus; 0 if the driver does not say.
    pub memory_bus: u32,
    /// Bytes of the second-level cache; 0 if the driver does not say.
    pub l2_cache: u32,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        let gib = self.memory as f64 / (1u64 << 30) as f64;
        write!(
            f,
            "{}: {}, {gib:.1} GiB, {} multiprocessors, compute capability {major}.{minor}, driver for CUDA {}",
            self.ordinal,
            self.name,
            self.multiprocessors,
            Version(self.driver_version)
        )
    }
}

impl DeviceInfo {
    /// Checks that the kernels run on it.
    ///
    /// # Errors
    /// [`CudaUnavailable::DeviceTooOld`].
    pub fn check(&self) -> Result<(), CudaUnavailable> {
        let (found, need) = (self.compute_capability, NEEDED_CAPABILITY);
        if found < need {
            return Err(CudaUnavailable::DeviceTooOld { name: self.name.clone(), found, need });
        }
        Ok(())
    }
}

/// Why no GPU can be used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaUnavailable {
    /// No library of the driver's name is on the search path.
    #[error(
        "no CUDA driver library found ({}): install NVIDIA's driver, or put its folder on the library search path; in a \
         container, start it with GPU access",
        LIBRARY_NAMES.join(", ")
    )]
    NoDriverLibrary,
    /// A library of that name exists, but it is not a usable driver for this reason.
    #[error(
        "the CUDA driver library is not usable: {0}; remove the file that hides the driver from the library search path, \
         or reinstall NVIDIA's driver"
    )]
    NotADriver(String),
    /// `cuInit`, or a query right after it, failed with this code of `CUresult`.
    #[error("the CUDA driver answers with error {}: {}", .0, advice(*.0))]
    InitFailed(i32),
    /// The driver supports only an older CUDA than needed (both 1000 * major + 10 * minor).
    #[error("the driver supports CUDA {}, at least {} is needed: update NVIDIA's driver", Version(*.found), Version(*.need))]
    DriverTooOld {
        /// The version that the driver supports.
        found: i32,
        /// The version that is needed, [`NEEDED_VERSION`].
        need: i32,
    },
    /// The driver works and shows no device to this process.
    #[error("the CUDA driver shows no device: check nvidia-smi and the environment variable CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// The device is of an older generation than the kernels support.
    #[error(
        "{name} has compute capability {}.{}, the kernels need {}.{} or newer: use another GPU, or the CPU",
        .found.0, .found.1, .need.0, .need.1
    )]
    DeviceTooOld {
        /// The model.
        name: String,
        /// Its compute capability.
        found: (u32, u32),
        /// The needed one, [`NEEDED_CAPABILITY`].
        need: (u32, u32),
    },
}

/// The usual remedy for a code of `CUresult`.
fn advice(code: i32) -> &'static str {
    match code {
        2 => "out of memory; another process may hold the GPU",
        34 => {
            "this is the toolkit's stub of the driver; take the toolkit's stubs folder off the library search path, or \
             install NVIDIA's driver"
        }
        802 => "the system is not ready yet; wait for the fabric manager, or start it",
        803 => "the driver's library and its kernel module differ in version; reboot, or reinstall the driver",
        804 => "the compatibility package does not support this GPU; take it off the library search path",
        999 => "unknown; the kernel module may not be loaded: run nvidia-smi, or reboot",
        _ => "look the code up under CUresult in the CUDA Driver API, and check that nvidia-smi works",
    }
}

/// A version in the driver's encoding, printed as `major.minor`.
struct Version(i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Lists the GPUs of this machine that the driver shows to this process, or says why there are none. The list is never
/// empty.
///
/// Blocks while the driver initialises (up to seconds the first time). Never panics.
///
/// # Errors
/// The first reason found; see [`CudaUnavailable`].
pub fn probe() -> Result<Vec<DeviceInfo>, CudaUnavailable> {
    // SAFETY: the names are those of NVIDIA's driver, whose initialisers have no precondition and whose symbols have
    // the documented signatures.
    unsafe { probe_at(&LIBRARY_NAMES) }
}

/// The first of [`probe()`]'s devices that the kernels run on.
///
/// # Errors
/// As [`probe()`]; the first device's [`CudaUnavailable::DeviceTooOld`] if all are too old.
pub fn first_usable() -> Result<DeviceInfo, CudaUnavailable> {
    pick(probe()?)
}

fn pick(mut found: Vec<DeviceInfo>) -> Result<DeviceInfo, CudaUnavailable> {
    let first = found.iter().position(|info| info.check().is_ok()).unwrap_or(0);
    // The list is never empty.
    let info = found.swap_remove(first);
    info.check().map(|()| info)
}

/// As [`probe()`], for the given names or paths of the driver's library. They are tried in order, and the first that is
/// a driver answers.
///
/// # Errors
/// As [`probe()`]. If several libraries exist and none is a driver, the reason of the first one.
///
/// # Safety
/// Each library that is found is loaded into this process and stays there. Its initialisers run, and its symbols with
/// the driver's names (`cuInit`, `cuDeviceGet`, ...) are called. The initialisers must be sound to run, and the symbols
/// must have the signatures that the CUDA Driver API documents.
pub unsafe fn probe_at<P: AsRef<OsStr>>(libraries: &[P]) -> Result<Vec<DeviceInfo>, CudaUnavailable> {
    let mut reason = CudaUnavailable::NoDriverLibrary;
    for library in libraries {
        // SAFETY: the caller guarantees the libraries.
        match unsafe { Driver::open(library.as_ref()) } {
            Ok(driver) => return driver.devices(),
            Err(why) => {
                if reason == CudaUnavailable::NoDriverLibrary {
                    reason = why;
                }
            }
        }
    }
    Err(reason)
}

/// The calls of the driver that the probe makes.
struct Driver {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    memory: unsafe extern "C" fn(*mut usize, c_int) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int,
}

impl Driver {
    /// # Safety
    /// As [`probe_at`].
    unsafe fn open(path: &OsStr) -> Result<Self, CudaUnavailable> {
        // SAFETY: opening runs the library's initialisers, for which the caller vouches.
        let library = unsafe { Library::new(path) }.map_err(|error| not_opened(path, &error))?;
        // SAFETY: each symbol is given the signature that the CUDA Driver API documents for its name. On 64-bit Windows
        // and Linux the calling convention of `CUDAAPI` is C's.
        let driver = unsafe {
            Self {
                init: symbol(&library, path, c"cuInit")?,
                version: symbol(&library, path, c"cuDriverGetVersion")?,
                count: symbol(&library, path, c"cuDeviceGetCount")?,
                get: symbol(&library, path, c"cuDeviceGet")?,
                name: symbol(&library, path, c"cuDeviceGetName")?,
                memory: symbol(&library, path, c"cuDeviceTotalMem_v2")?,
                attribute: symbol(&library, path, c"cuDeviceGetAttribute")?,
            }
        };
        // An initialised driver must stay mapped, and the function pointers above with it.
        std::mem::forget(library);
        Ok(driver)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, CudaUnavailable> {
        // SAFETY: `cuInit` may be called at any time, any number of times; its flags must be 0.
        succeeded(unsafe { (self.init)(0) })?;
        let mut found: c_int = 0;
        // SAFETY: the pointer is to a live `c_int`.
        succeeded(unsafe { (self.version)(&mut found) })?;
        if found < NEEDED_VERSION {
            return Err(CudaUnavailable::DriverTooOld { found, need: NEEDED_VERSION });
        }
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a live `c_int`, and `cuInit` has succeeded.
        succeeded(unsafe { (self.count)(&mut count) })?;
        if count <= 0 {
            return Err(CudaUnavailable::NoDevice);
        }
        (0..count).map(|ordinal| self.describe(ordinal, found)).collect()
    }

    fn describe(&self, ordinal: c_int, driver_version: i32) -> Result<DeviceInfo, CudaUnavailable> {
        let mut device: c_int = 0;
        // SAFETY: the pointer is to a live `c_int`; `ordinal` is below the device count.
        succeeded(unsafe { (self.get)(&mut device, ordinal) })?;
        let mut name = [0u8; 256];
        // SAFETY: the buffer has as many bytes as are named (one more, kept 0, ends the text in any case).
        succeeded(unsafe { (self.name)(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) })?;
        let mut memory: usize = 0;
        // SAFETY: the pointer is to a live `usize`; `device` came from `cuDeviceGet`.
        succeeded(unsafe { (self.memory)(&mut memory, device) })?;
        Ok(DeviceInfo {
            ordinal: ordinal as usize,
            name: CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            memory: memory as u64,
            compute_capability: (
                self.attribute(COMPUTE_CAPABILITY_MAJOR, device)?,
                self.attribute(COMPUTE_CAPABILITY_MINOR, device)?,
            ),
            multiprocessors: self.attribute(MULTIPROCESSOR_COUNT, device)?,
            driver_version,
            clock: self.attribute(CLOCK_RATE, device).unwrap_or(0),
            memory_clock: self.attribute(MEMORY_CLOCK_RATE, device).unwrap_or(0),
            memory_bus: self.attribute(GLOBAL_MEMORY_BUS_WIDTH, device).unwrap_or(0),
            l2_cache: self.attribute(L2_CACHE_SIZE, device).unwrap_or(0),
        })
    }

    fn attribute(&self, attribute: c_int, device: c_int) -> Result<u32, CudaUnavailable> {
        let mut value: c_int = 0;
        // SAFETY: the pointer is to a live `c_int`; `device` came from `cuDeviceGet`.
        succeeded(unsafe { (self.attribute)(&mut value, attribute, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

/// The function of that name.
///
/// # Safety
/// `F` is the function pointer type of the symbol, and is used only while `library` stays loaded.
unsafe fn symbol<F: Copy>(library: &Library, path: &OsStr, name: &CStr) -> Result<F, CudaUnavailable> {
    // SAFETY: the caller guarantees the type.
    unsafe { library.get::<F>(name) }.map(|symbol| *symbol).map_err(|_| {
        CudaUnavailable::NotADriver(format!("{} has no symbol {}", path.to_string_lossy(), name.to_string_lossy()))
    })
}

/// The reason why a library did not open. Either it is absent, or it exists and cannot be opened (not a library, wrong
/// architecture, missing dependencies). Loaders tell the two apart only in their message.
fn not_opened(path: &OsStr, error: &libloading::Error) -> CudaUnavailable {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let absent = text.contains(&*path.to_string_lossy()) && text.contains("No such file");
    if cfg!(target_os = "linux") && !absent {
        return CudaUnavailable::NotADriver(text);
    }
    CudaUnavailable::NoDriverLibrary
}

fn succeeded(code: c_int) -> Result<(), CudaUnavailable> {
    match code {
        CUDA_SUCCESS => Ok(()),
        CUDA_ERROR_NO_DEVICE => Err(CudaUnavailable::NoDevice),
        code => Err(CudaUnavailable::InitFailed(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_device_that_the_kernels_run_on_is_picked() {
        let device = |ordinal, compute_capability| DeviceInfo {
            ordinal,
            name: "Stand-in".into(),
            memory: 1 << 30,
            compute_capability,
            multiprocessors: 1,
            driver_version: NEEDED_VERSION,
            clock: 0,
            memory_clock: 0,
            memory_bus: 0,
            l2_cache: 0,
        };
        let mixed = pick(vec![device(0, (6, 1)), device(1, (7, 5)), device(2, (9, 0))]);
        assert_eq!(mixed.map(|info| info.ordinal), Ok(1));
        let old = pick(vec![device(0, (6, 1)), device(1, (7, 0))]);
        assert!(matches!(old, Err(CudaUnavailable::DeviceTooOld { found: (6, 1), .. })), "{old:?}");
    }
}
