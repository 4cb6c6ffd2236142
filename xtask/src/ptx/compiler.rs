//! The pinned compilers: NVRTC compiles the sources to PTX, and ptxas reports what the kernels need of a device.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts, sys};
use libloading::{Library, Symbol};

use super::source::{NVRTC, Output};

/// Where `--install` puts the library and the program, below the folder of tools.
pub(crate) const NVRTC_FILES: [&str; 2] =
    ["nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4"];
pub(crate) const PTXAS_FILE: &str = "nvidia/cuda_nvcc/bin/ptxas";

/// Where a system has the library. Its version is checked before it is used.
const SYSTEM: [&str; 2] = ["/usr/local/cuda-12.4/lib64/libnvrtc.so.12", "libnvrtc.so.12"];

/// The version of the library and of ptxas.
const VERSION: (c_int, c_int) = (12, 4);
pub(crate) const PTXAS: &str = "12.9.86";

/// Why there is no compiler, or what it refuses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// None was found.
    #[error("no {what} in {} nor in the system: `cargo xtask ptx --install` fetches it", .folder.display())]
    Absent { what: String, folder: PathBuf },
    /// It exists and cannot be used.
    #[error("{} cannot be used: {why}; `cargo xtask ptx --install` fetches it again", .path.display())]
    Broken { path: PathBuf, why: String },
    /// Another library is found first under its name.
    #[error(
        "NVRTC {found} is found instead of {NVRTC}: take it out of LD_LIBRARY_PATH, or put {} in front", .folder.display()
    )]
    Other { found: String, folder: PathBuf },
    /// The source does not compile.
    #[error("{path} does not compile:\n{log}")]
    Refused { path: String, log: String },
}

/// NVRTC, loaded.
#[derive(Debug)]
pub(crate) struct Compiler {
    folder: PathBuf,
    /// Loaded as long as anything is compiled, because a second search by its name finds the same one.
    _library: Library,
}

impl Compiler {
    /// The library in the folder of tools, or the system's if it is the same release.
    pub(crate) fn find(tools: &Path) -> Result<Self, Error> {
        let ours = tools.join(NVRTC_FILES[0]);
        let library = if ours.exists() {
            let broken = |why: String| Error::Broken { path: ours.clone(), why };
            let library = load(&ours).map_err(|error| broken(error.to_string()))?;
            match version(&library) {
                Some(VERSION) => library,
                found => return Err(broken(format!("it says version {found:?}"))),
            }
        } else {
            let system = SYSTEM.iter().filter_map(|path| load(Path::new(path)).ok());
            let library = system.into_iter().find(|library| version(library) == Some(VERSION));
            library.ok_or_else(|| Error::Absent { what: format!("NVRTC {NVRTC}"), folder: tools.to_owned() })?
        };
        let compiler = Self { folder: ours.with_file_name(""), _library: library };
        // cudarc looks for the library by its own names, and panics if it finds none.
        // SAFETY: this opens NVIDIA's libraries, whose initialisers have no requirement.
        if !unsafe { sys::is_culib_present() } {
            return Err(compiler.other("none by name"));
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library was found just now; it writes two integers.
        let answer = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        if answer != sys::nvrtcResult::NVRTC_SUCCESS || (major, minor) != VERSION {
            return Err(compiler.other(&format!("{major}.{minor}")));
        }
        Ok(compiler)
    }

    fn other(&self, found: &str) -> Error {
        Error::Other { found: found.to_owned(), folder: self.folder.clone() }
    }

    /// The PTX of a source. The working directory is the workspace's folder, so that no text contains a path of this
    /// machine.
    pub(crate) fn compile(&self, output: &Output, source: &str) -> Result<String, Error> {
        let refused = |log: String| Error::Refused { path: output.source.clone(), log };
        if source.contains('\0') {
            return Err(refused("a zero byte in the text".to_owned()));
        }
        let options =
            CompileOptions { options: output.flags(), name: Some(output.source.clone()), ..CompileOptions::default() };
        let ptx = compile_ptx_with_opts(source, options).map_err(|error| match error {
            CompileError::CompileError { log, .. } => refused(log.to_string_lossy().into_owned()),
            other => refused(other.to_string()),
        })?;
        // The image ends in a zero byte.
        let text = String::from_utf8_lossy(ptx.as_bytes().unwrap_or_default()).trim_end_matches('\0').to_owned();
        match text.lines().find_map(|line| line.split_once(", V")).map(|(_, release)| release.trim()) {
            Some(NVRTC) => Ok(text),
            found => Err(self.other(found.unwrap_or("without a release"))),
        }
    }
}

fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: NVIDIA's library, whose initialisers have no requirement.
    unsafe { Library::new(path) }
}

/// The library's own version.
fn version(library: &Library) -> Option<(c_int, c_int)> {
    type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the function of that name has had this signature since the first release; it writes two integers.
    let answer = unsafe {
        let version: Symbol<'_, Version> = library.get(b"nvrtcVersion\0").ok()?;
        version(&mut major, &mut minor)
    };
    (answer == 0).then_some((major, minor))
}

/// ptxas in the folder of tools, or the system's if it is the same release.
pub(crate) fn ptxas(tools: &Path) -> Result<PathBuf, Error> {
    let ours = tools.join(PTXAS_FILE);
    let says = |program: &Path| Command::new(program).arg("--version").output();
    if ours.exists() {
        let broken = |why: String| Error::Broken { path: ours.clone(), why };
        let answer = says(&ours).map_err(|error| broken(error.to_string()))?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        return if is_pinned(&text) { Ok(ours) } else { Err(broken(format!("it says `{}`", text.trim()))) };
    }
    let system = ["/usr/local/cuda-12.9/bin/ptxas", "ptxas"].map(PathBuf::from);
    let found =
        system.into_iter().find(|path| says(path).is_ok_and(|a| is_pinned(&String::from_utf8_lossy(&a.stdout))));
    found.ok_or_else(|| Error::Absent { what: format!("ptxas {PTXAS}"), folder: tools.to_owned() })
}

fn is_pinned(version: &str) -> bool {
    version.lines().any(|line| line.ends_with(&format!(", V{PTXAS}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_tools_is_an_error_with_advice_and_no_panic() {
        let folder = std::env::temp_dir().join(format!("spandrel-xtask-tools-{}", std::process::id()));
        // A machine may have the pinned release itself.
        for error in [Compiler::find(&folder).err(), ptxas(&folder).err()].into_iter().flatten() {
            assert!(error.to_string().contains("cargo xtask ptx --install"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_compiler_is_broken() {
        let folder = std::env::temp_dir().join(format!("spandrel-xtask-broken-{}", std::process::id()));
        for file in [NVRTC_FILES[0], PTXAS_FILE] {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("temporary folder");
            std::fs::write(path, "no program").expect("writable");
        }
        let errors = (Compiler::find(&folder).err(), ptxas(&folder).err());
        std::fs::remove_dir_all(&folder).expect("own folder");
        assert!(matches!(errors, (Some(Error::Broken { .. }), Some(Error::Broken { .. }))), "{errors:?}");
    }

    #[test]
    fn another_release_of_ptxas_is_none() {
        assert!(is_pinned("Built on Tue\nCuda compilation tools, release 12.9, V12.9.86\nBuild x\n"));
        assert!(!is_pinned("Cuda compilation tools, release 12.9, V12.9.41\n"));
    }
}
