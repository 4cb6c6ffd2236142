//! The program mdBook: where it is, how it is installed, and one run of it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The release that builds the book.
const VERSION: &str = "0.5.4";

/// Why the book cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("mdBook {VERSION} is not installed; `cargo xtask book --install` installs it below target/tools")]
    Absent,
    #[error("cannot start {program}: {why}")]
    NoStart { program: String, why: io::Error },
    #[error("`cargo install mdbook` ended with {status}; what it printed above says why")]
    Install { status: ExitStatus },
    #[error("mdBook ended with {status}; what it printed above says which page is wrong")]
    Build { status: ExitStatus },
}

/// The folder of this release.
fn folder(root: &Path) -> PathBuf {
    root.join("target/tools").join(format!("mdbook-{VERSION}"))
}

fn program(root: &Path) -> PathBuf {
    folder(root).join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX))
}

/// Whether a program is the pinned release, by its own output.
fn is_pinned(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(VERSION))
}

/// The installed program, or one of this release on the search path.
pub(crate) fn find(root: &Path) -> Result<PathBuf, Error> {
    [program(root), PathBuf::from("mdbook")].into_iter().find(|program| is_pinned(program)).ok_or(Error::Absent)
}

/// Compiles and installs the pinned release, without optimisation and without the parts that serve and watch a book.
pub(crate) fn install(root: &Path) -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args([
        "install",
        "mdbook",
        "--version",
        VERSION,
        "--locked",
        "--no-default-features",
        "--debug",
        "--quiet",
    ]);
    command.arg("--root").arg(folder(root)).arg("--target-dir").arg(folder(root).join("build"));
    // Variables of the workspace's build must not reach this one.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    let start = |why| Error::NoStart { program: cargo.to_string_lossy().into_owned(), why };
    let status = command.status().map_err(start)?;
    if !status.success() {
        return Err(Error::Install { status });
    }
    // The objects are larger than the program, and nothing else uses them.
    let _ = std::fs::remove_dir_all(folder(root).join("build"));
    Ok(program(root))
}

/// Builds the book from `docs/`.
pub(crate) fn build(program: &Path, root: &Path) -> Result<(), Error> {
    let start = |why| Error::NoStart { program: program.display().to_string(), why };
    let status = Command::new(program).arg("build").arg(root.join("docs")).status().map_err(start)?;
    if status.success() { Ok(()) } else { Err(Error::Build { status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pinned_release_is_taken() {
        assert!(!is_pinned(Path::new("no-such-program")));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        assert!(!is_pinned(Path::new(&cargo)));
        let error = find(Path::new("no-such-folder"));
        assert!(error.is_ok() || error.unwrap_err().to_string().contains("--install"));
    }
}
