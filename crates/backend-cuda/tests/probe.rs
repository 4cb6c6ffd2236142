//! Every answer of the probe, with small stand-ins for the driver's library built by the system's C compiler.
//!
//! Without a C compiler, or on another system than Linux, those trials print why they are skipped; the rest need
//! nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_backend_cuda::{CudaUnavailable, DeviceInfo, NEEDED_CAPABILITY, NEEDED_VERSION, probe};

/// Probes files that these trials wrote, absent files, and files that no loader accepts.
fn probe_at<P: AsRef<std::ffi::OsStr>>(libraries: &[P]) -> Result<Vec<DeviceInfo>, CudaUnavailable> {
    // SAFETY: a library that opens is a stand-in from this file: no initialisers, and the driver's signatures.
    unsafe { spandrel_backend_cuda::probe_at(libraries) }
}

/// A driver with `count` devices of 80 GiB; `init` is what cuInit answers, `total` what the memory query answers.
fn driver_source(init: i32, version: i32, count: i32, total: i32) -> String {
    source_of_capability(9, 0, init, version, count, total)
}

fn source_of_capability(major: i32, minor: i32, init: i32, version: i32, count: i32, total: i32) -> String {
    format!(
        r#"#include <string.h>
        int cuInit(unsigned flags) {{ return flags == 0 ? {init} : 1; }}
        int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}
        int cuDeviceGetCount(int *n) {{ *n = {count}; return 0; }}
        int cuDeviceGet(int *d, int i) {{ *d = i + 40; return i < {count} ? 0 : 101; }}
        int cuDeviceGetName(char *s, int len, int d) {{ memset(s, 'G', len); if (d == 40) strcpy(s, "Stand-in"); return 0; }}
        int cuDeviceTotalMem_v2(unsigned long *b, int d) {{ *b = 80ul << 30; return {total}; }}
        int cuDeviceGetAttribute(int *v, int a, int d) {{ *v = a == 75 ? {major} : a == 76 ? {minor} : a == 16 ? 132 : -1; return 0; }}"#
    )
}

/// The library built from `source`, or `None` (with a printed reason) if it cannot be built.
fn stand_in(dir: &Path, source: &str) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: the stand-ins are built for Linux only");
        return None;
    }
    let (c, so) = (dir.join("driver.c"), dir.join("libdriver.so"));
    std::fs::write(&c, source).expect("temporary folder is writable");
    match Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&so).arg(&c).status() {
        Ok(status) => {
            assert!(status.success(), "cc could not compile the stand-in");
            Some(so)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler `cc` ({error})");
            None
        }
    }
}

fn ask(source: &str) -> Option<Result<Vec<DeviceInfo>, CudaUnavailable>> {
    let dir = tempfile::tempdir().expect("temporary folder");
    stand_in(dir.path(), source).map(|so| probe_at(&[so]))
}

#[test]
fn the_machine_answers_or_says_why() {
    match probe() {
        Ok(devices) => assert!(!devices.is_empty(), "an empty list is NoDevice"),
        Err(reason) => assert!(reason.to_string().contains(':'), "a reason says what to do: {reason}"),
    }
}

#[test]
fn absent_library() {
    assert_eq!(probe_at(&["/nowhere/libcuda.so.1", "libspandrel-absent.so"]), Err(CudaUnavailable::NoDriverLibrary));
    assert_eq!(probe_at::<&str>(&[]), Err(CudaUnavailable::NoDriverLibrary));
}

#[test]
fn path_with_a_nul_byte_is_refused() {
    assert!(probe_at(&["lib\0cuda.so"]).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn text_file_in_the_place_of_the_library() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("libcuda.so.1");
    std::fs::write(&path, "this is no library\n".repeat(100)).expect("temporary folder is writable");
    let answer = probe_at(&[&path]);
    assert!(matches!(&answer, Err(CudaUnavailable::NotADriver(why)) if why.contains("libcuda.so.1")), "{answer:?}");
}

#[test]
fn library_without_the_symbols() {
    let Some(answer) = ask("int nothing(void) { return 0; }") else { return };
    assert!(matches!(&answer, Err(CudaUnavailable::NotADriver(why)) if why.contains("cuInit")), "{answer:?}");
}

#[test]
fn library_with_some_of_the_symbols() {
    let Some(answer) = ask("int cuInit(unsigned f) { return 0; }") else { return };
    assert!(
        matches!(&answer, Err(CudaUnavailable::NotADriver(why)) if why.contains("cuDriverGetVersion")),
        "{answer:?}"
    );
}

#[test]
fn stub_of_the_toolkit() {
    let Some(answer) = ask(&driver_source(34, 13_000, 1, 0)) else { return };
    let reason = answer.expect_err("cuInit failed");
    assert_eq!(reason, CudaUnavailable::InitFailed(34));
    assert!(reason.to_string().contains("stub"), "{reason}");
}

#[test]
fn driver_too_old() {
    let Some(answer) = ask(&driver_source(0, 11_080, 1, 0)) else { return };
    let reason = answer.expect_err("11.8 is too old");
    assert_eq!(reason, CudaUnavailable::DriverTooOld { found: 11_080, need: NEEDED_VERSION });
    assert_eq!(reason.to_string(), "the driver supports CUDA 11.8, at least 12.4 is needed: update NVIDIA's driver");
}

#[test]
fn no_device() {
    let Some(none) = ask(&driver_source(0, 13_000, 0, 0)) else { return };
    assert_eq!(none, Err(CudaUnavailable::NoDevice));
    let Some(refused) = ask(&driver_source(100, 13_000, 0, 0)) else { return };
    assert_eq!(refused, Err(CudaUnavailable::NoDevice));
}

#[test]
fn query_that_fails() {
    let Some(answer) = ask(&driver_source(0, 13_000, 1, 999)) else { return };
    assert_eq!(answer, Err(CudaUnavailable::InitFailed(999)));
}

#[test]
fn two_devices() {
    let Some(answer) = ask(&driver_source(0, 13_000, 2, 0)) else { return };
    let devices = answer.expect("a working driver");
    assert_eq!(devices.len(), 2);
    assert_eq!(
        devices[0].to_string(),
        "0: Stand-in, 80.0 GiB, 132 multiprocessors, compute capability 9.0, driver for CUDA 13.0"
    );
    assert_eq!(devices[1].name.len(), 255, "a name without an end is cut at the buffer");
}

#[test]
fn a_device_of_an_older_generation_is_refused() {
    for (major, minor, refused) in [(7, 0, true), (6, 1, true), (7, 5, false), (8, 0, false)] {
        let Some(answer) = ask(&source_of_capability(major, minor, 0, 13_000, 1, 0)) else { return };
        let devices = answer.expect("the driver works, and lists what it has");
        let found = (major as u32, minor as u32);
        let why = CudaUnavailable::DeviceTooOld { name: "Stand-in".into(), found, need: NEEDED_CAPABILITY };
        assert_eq!(devices[0].check(), if refused { Err(why) } else { Ok(()) });
    }
    let old = CudaUnavailable::DeviceTooOld { name: "Tesla P4".into(), found: (6, 1), need: NEEDED_CAPABILITY };
    assert_eq!(
        old.to_string(),
        "Tesla P4 has compute capability 6.1, the kernels need 7.5 or newer: use another GPU, or the CPU"
    );
}

#[test]
fn a_driver_behind_a_broken_library_is_found() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(so) = stand_in(dir.path(), &driver_source(0, 12_040, 1, 0)) else { return };
    let broken = dir.path().join("libcuda.so.1");
    std::fs::write(&broken, "not a library").expect("temporary folder is writable");
    assert_eq!(probe_at(&[broken, so]).map(|devices| devices.len()), Ok(1));
}
