//! Where results go: stdout with readers that may leave early, and files that are checked before the work starts.
//!
//! A reader of stdout that leaves early (`| head -1`) is not an error: the rest of the output is dropped, and the exit
//! status stays the one of the work.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Writes `text` to stdout.
///
/// # Errors
/// What the system says, except that the reader has left.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new("io", format!("stdout: {error}"))),
        _ => Ok(()),
    }
}

/// One JSON object on one line of stdout.
pub(crate) fn print_json(object: &impl serde::Serialize) -> Result<()> {
    let mut line =
        serde_json::to_string(object).map_err(|error| Failure::new("io", format!("cannot write as JSON: {error}")))?;
    line.push('\n');
    print(&line)
}

/// A file that will be written once there is a result.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
}

impl Target {
    /// Finds out now whether `path` can be written. What lies there stays as it is until [`Target::write`].
    ///
    /// # Errors
    /// Kind `io`: a directory, a missing folder, no permission.
    pub(crate) fn check(path: &Path) -> Result<Self> {
        let refuse = |error: io::Error| Failure::new("io", format!("cannot write {}: {error}", path.display()));
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(Failure::new("io", format!("cannot write {}: it is a directory", path.display())));
            }
            // A pipe or a device is not opened twice: the reader of a pipe would see its end.
            Ok(found) if found.is_file() => drop(OpenOptions::new().write(true).open(path).map_err(refuse)?),
            Ok(_) => {}
            Err(_) => {
                OpenOptions::new().write(true).create_new(true).open(path).map_err(refuse)?;
                fs::remove_file(path).map_err(refuse)?;
            }
        }
        Ok(Self { path: path.to_path_buf() })
    }

    /// As [`Target::check`], for an option that may be absent.
    pub(crate) fn check_optional(path: Option<&PathBuf>) -> Result<Option<Self>> {
        path.map(|path| Self::check(path)).transpose()
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// Kind `io`.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        let refuse = |error: io::Error| Failure::new("io", format!("cannot write {}: {error}", self.path.display()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path).map_err(refuse)?;
        file.write_all(bytes).and_then(|()| file.flush()).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_no_trace_and_keeps_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let fresh = folder.path().join("fresh");
        let target = Target::check(&fresh).unwrap();
        assert!(!fresh.exists());
        target.write(b"result").unwrap();
        assert_eq!(fs::read(&fresh).unwrap(), b"result");

        Target::check(&fresh).unwrap();
        assert_eq!(fs::read(&fresh).unwrap(), b"result");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Target::check(folder.path()).unwrap_err().kind, "io");
        assert_eq!(Target::check(&folder.path().join("absent/x.mtx")).unwrap_err().kind, "io");
    }
}
