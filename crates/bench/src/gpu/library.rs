//! NVIDIA's libraries, opened at run time: where to look for them, and why one cannot be used.
//!
//! Only functions that are called are looked up. Their signatures are common to CUDA 12 and 13, so libraries of both
//! work.

use std::ffi::CString;

use libloading::Library;

/// Where installers put the libraries, in addition to the loader's search path.
const FOLDERS: [&str; 4] =
    ["", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/", "/usr/lib/x86_64-linux-gnu/"];
/// Versions in file names, newest first. A toolkit has the bare name.
const SUFFIXES: [&str; 3] = [".so.13", ".so.12", ".so"];

/// Why a library cannot be used as a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryUnavailable {
    /// No file of its name.
    #[error(
        "no lib{name} found ({}, on the loader's search path and in {}): install the CUDA toolkit's libraries, or add their folder \
         to LD_LIBRARY_PATH",
        SUFFIXES.join(", "),
        FOLDERS[1..].join(", ")
    )]
    NotFound {
        /// The stem of the file's name.
        name: &'static str,
    },
    /// A file exists and cannot be opened.
    #[error("lib{name} cannot be opened: {why}; reinstall the CUDA toolkit's libraries")]
    NotOpened {
        /// The stem of the file's name.
        name: &'static str,
        /// The loader's message.
        why: String,
    },
    /// A function is missing.
    #[error("lib{name} has no {symbol}: CUDA 12.4 or newer is needed")]
    MissingSymbol {
        /// The stem of the file's name.
        name: &'static str,
        /// The function.
        symbol: String,
    },
    /// A call failed.
    #[error("lib{name}: {call} answers with status {status}")]
    Failed {
        /// The stem of the file's name.
        name: &'static str,
        /// The function.
        call: &'static str,
        /// Its status.
        status: i32,
    },
}

/// Opens a library. `companions` are those that it needs and that may only be beside it.
///
/// # Errors
/// [`LibraryUnavailable::NotFound`], [`LibraryUnavailable::NotOpened`].
pub fn open(name: &'static str, companions: &[&str]) -> Result<Library, LibraryUnavailable> {
    let mut reason = LibraryUnavailable::NotFound { name };
    for folder in FOLDERS {
        for suffix in SUFFIXES {
            let path = format!("{folder}lib{name}{suffix}");
            // The loader looks for bare names. Elsewhere only existing files are tried.
            if !folder.is_empty() {
                if !std::path::Path::new(&path).exists() {
                    continue;
                }
                // Versions differ between libraries of one toolkit.
                for (companion, version) in companions.iter().flat_map(|c| SUFFIXES.map(|suffix| (c, suffix))) {
                    // SAFETY: one of NVIDIA's libraries from the same folder, whose initialisers have no precondition.
                    // If it does not open, the library itself reports that.
                    if let Ok(library) = unsafe { Library::new(format!("{folder}lib{companion}{version}")) } {
                        std::mem::forget(library);
                    }
                }
            }
            // SAFETY: the names are those of NVIDIA's libraries, whose initialisers have no precondition.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Ok(library),
                Err(error) => {
                    let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    let absent = why.contains("No such file") && why.contains(&format!("{path}:"));
                    if !absent && matches!(reason, LibraryUnavailable::NotFound { .. }) {
                        reason = LibraryUnavailable::NotOpened { name, why };
                    }
                }
            }
        }
    }
    Err(reason)
}

/// The function of that name.
///
/// # Safety
/// `F` is the function pointer type of the symbol, and is used only while `library` stays open.
pub(crate) unsafe fn symbol<F: Copy>(
    library: &Library,
    name: &'static str,
    symbol: &str,
) -> Result<F, LibraryUnavailable> {
    let missing = || LibraryUnavailable::MissingSymbol { name, symbol: symbol.to_owned() };
    let text = CString::new(symbol).map_err(|_| missing())?;
    // SAFETY: the caller guarantees the type.
    unsafe { library.get::<F>(text.as_bytes_with_nul()) }.map(|found| *found).map_err(|_| missing())
}

/// A struct with a library's functions. Each is `extern "C"` and returns a status.
macro_rules! functions {
    ($Table:ident of $library:literal { $($field:ident = $symbol:literal($($arg:ty),* $(,)?)),* $(,)? }) => {
        struct $Table {
            $($field: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)*
        }
        impl $Table {
            fn load(library: libloading::Library) -> Result<Self, $crate::gpu::library::LibraryUnavailable> {
                let table = Self {
                    // SAFETY: the signatures are those of the library's documentation, and the library stays open
                    // forever.
                    $($field: unsafe { $crate::gpu::library::symbol(&library, $library, $symbol)? },)*
                };
                // Closing it under a live context is not safe.
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}
pub(crate) use functions;

/// A status of 0 is success.
pub(crate) fn succeeded(name: &'static str, call: &'static str, status: i32) -> Result<(), LibraryUnavailable> {
    if status == 0 { Ok(()) } else { Err(LibraryUnavailable::Failed { name, call, status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_a_reason_with_advice() {
        let why = open("spandrel-is-not-there", &[]).unwrap_err();
        assert_eq!(why, LibraryUnavailable::NotFound { name: "spandrel-is-not-there" });
        assert!(why.to_string().contains("LD_LIBRARY_PATH"), "{why}");
    }

    #[test]
    fn a_library_of_another_kind_lacks_the_function() {
        // SAFETY: the C library, which this process has open.
        let Ok(library) = (unsafe { Library::new("libc.so.6") }) else { return };
        // SAFETY: not found, and never called.
        let why = unsafe { symbol::<unsafe extern "C" fn() -> i32>(&library, "c", "cusparseCreate") }.unwrap_err();
        assert!(matches!(why, LibraryUnavailable::MissingSymbol { .. }), "{why}");
    }

    #[test]
    fn a_status_is_named() {
        assert!(succeeded("cusparse", "cusparseCreate", 0).is_ok());
        let why = succeeded("cusparse", "cusparseCreate", 3).unwrap_err();
        assert_eq!(why.to_string(), "libcusparse: cusparseCreate answers with status 3");
    }
}
