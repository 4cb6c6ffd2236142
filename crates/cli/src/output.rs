//! The outputs: stdout with readers that may leave early, and files that are checked before the work starts.
//!
//! A reader of stdout that leaves early (`| head -1`) is not an error: the rest of the output is dropped, and the exit
//! status stays that of the work. The name `-` means stdout; the report then goes to stderr.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::{USAGE, interrupt, progress};

/// The name that means stdin for inputs and stdout for outputs.
pub(crate) const DASH: &str = "-";

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

/// Prints the report of a command: to stdout, to stderr if one of its files goes to stdout, or nowhere with `--quiet`.
///
/// # Errors
/// As [`print`].
pub(crate) fn report(text: &str, stdout_is_taken: bool) -> Result<()> {
    if !stdout_is_taken {
        return print(text);
    }
    if !progress::is_quiet() {
        // If stderr is closed, no one can be told.
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(())
}

/// Stdout, which remembers whether its reader has left.
#[derive(Debug)]
pub(crate) struct Stdout {
    to: io::StdoutLock<'static>,
    left: bool,
}

impl Stdout {
    fn noted<R>(&mut self, result: io::Result<R>) -> io::Result<R> {
        self.left |= result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes);
        self.noted(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        self.noted(flushed)
    }
}

/// What a result is written to.
pub(crate) enum Sink<'a> {
    File(&'a Path),
    Stdout(&'a mut Stdout),
}

/// Where a result will be written once there is one.
#[derive(Debug)]
pub(crate) struct Target {
    /// `None` is stdout.
    path: Option<PathBuf>,
}

impl Target {
    /// Checks now whether `path` can be written. An existing file stays as it is until [`Target::write`].
    ///
    /// # Errors
    /// Kind `io` for a folder, a place where nothing can be written, and a symbolic link that leads nowhere.
    pub(crate) fn check(path: &Path) -> Result<Self> {
        if path == Path::new(DASH) {
            return Ok(Self { path: None });
        }
        let refuse = |error: io::Error| refused(path, &error);
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(refused(path, &"it is a directory")),
            // A pipe or a device is not opened twice: the reader of a pipe would see its end.
            Ok(found) if found.is_file() => drop(OpenOptions::new().write(true).open(path).map_err(refuse)?),
            Ok(_) => {}
            Err(_) => {
                if let Ok(to) = fs::read_link(path) {
                    let why = format!(
                        "it is a symbolic link to {}, which is not there; remove the link, or give another name",
                        to.display()
                    );
                    return Err(refused(path, &why));
                }
                interrupt::undivided(|| {
                    OpenOptions::new().write(true).create_new(true).open(path)?;
                    fs::remove_file(path)
                })
                .map_err(refuse)?;
            }
        }
        Ok(Self { path: Some(path.to_path_buf()) })
    }

    /// As [`Target::check`], for an option that may be absent.
    pub(crate) fn check_optional(path: Option<&PathBuf>) -> Result<Option<Self>> {
        path.map(|path| Self::check(path)).transpose()
    }

    /// The file, unless it is stdout.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// As it is called in messages.
    pub(crate) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "stdout".to_owned(), |path| path.display().to_string())
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// As [`Target::write_with`].
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.write_with(|sink| match sink {
            Sink::File(path) => fs::write(path, bytes).map_err(|error| refused(path, &error)),
            Sink::Stdout(stdout) => stdout
                .write_all(bytes)
                .and_then(|()| stdout.flush())
                .map_err(|error| Failure::new("io", format!("stdout: {error}"))),
        })
    }

    /// Writes a temporary file next to the target by `write` and moves it to the target: a failure leaves the old file.
    /// Stdout, pipes and devices, and files in a folder that accepts no new ones, are written in place.
    ///
    /// # Errors
    /// Those of `write`, about the target; kind `io` if the temporary file cannot be made or moved.
    pub(crate) fn write_with(&self, write: impl FnOnce(Sink<'_>) -> Result<()>) -> Result<()> {
        let Some(name) = &self.path else {
            let mut stdout = Stdout { to: io::stdout().lock(), left: false };
            let written = write(Sink::Stdout(&mut stdout));
            return match written {
                Err(_) if stdout.left => Ok(()),
                // The library calls its target <writer>, because it knows no name.
                Err(failure) => Err(Failure { message: failure.message.replace("<writer>", "stdout"), ..failure }),
                Ok(()) => Ok(()),
            };
        };
        // Through symbolic links, so that a link stays one.
        let path = fs::canonicalize(name).unwrap_or_else(|_| name.clone());
        let old = fs::metadata(&path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return write(Sink::File(name));
        }
        let part = match interrupt::begin(|| part_of(&path)) {
            Ok(part) => part,
            Err(error) if old.is_some() && error.kind() == io::ErrorKind::PermissionDenied => {
                return write(Sink::File(name));
            }
            Err(error) => return Err(refused(name, &error)),
        };
        let moved = write(Sink::File(&part)).and_then(|()| {
            if let Some(old) = old {
                fs::set_permissions(&part, old.permissions()).map_err(|error| refused(name, &error))?;
            }
            interrupt::finish(&part, || fs::rename(&part, &path)).map_err(|error| refused(name, &error))
        });
        moved.map_err(|mut failure| {
            // Report the first failure, not that of the removal.
            let _ = interrupt::finish(&part, || fs::remove_file(&part));
            let (temporary, name) = (part.display().to_string(), name.display().to_string());
            failure.message = failure.message.replace(&temporary, &name);
            failure
        })
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new("io", format!("cannot write {}: {why}", path.display()))
}

/// A new, empty file next to `path`, whose ending also says whether it is compressed.
fn part_of(path: &Path) -> io::Result<PathBuf> {
    const TRIES: u32 = 100;
    let packed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let ending = if packed { "part.gz" } else { "part" };
    let mut last = io::ErrorKind::AlreadyExists.into();
    for k in 0..TRIES {
        let part = path.with_file_name(format!(".spandrel-{}-{k}.{ending}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Ok(_) => return Ok(part),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Refuses outputs that would overwrite each other or an input, and two things on stdin or stdout; `(option, path)`
/// each, and whether the report is JSON. Pipes and devices may be shared.
///
/// # Errors
/// Kinds `same_file` and `usage`.
pub(crate) fn distinct(
    outputs: &[(&str, Option<&Target>)],
    inputs: &[(&str, Option<&Path>)],
    json: bool,
) -> Result<()> {
    let printed = outputs.iter().filter(|(_, target)| target.is_some_and(Target::is_stdout)).map(|(name, _)| *name);
    let printed: Vec<&str> = json.then_some("--json").into_iter().chain(printed).collect();
    if let [first, second, ..] = printed[..] {
        let message = format!("{first} and {second} would both go to stdout; write {second} to a file");
        return Err(Failure::new(USAGE, message));
    }
    let is_stdin = |path: &Path| path == Path::new(DASH);
    let piped: Vec<&str> =
        inputs.iter().filter(|(_, path)| path.is_some_and(is_stdin)).map(|(name, _)| *name).collect();
    if let [first, second, ..] = piped[..] {
        let message = format!("{first} and {second} would both be read from stdin; read {second} from a file");
        return Err(Failure::new(USAGE, message));
    }
    let place = |path: &Path| -> Option<PathBuf> {
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => None,
            Ok(_) => fs::canonicalize(path).ok(),
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                fs::canonicalize(folder.unwrap_or(Path::new("."))).ok().zip(path.file_name()).map(|(f, n)| f.join(n))
            }
        }
    };
    let files = inputs.iter().filter_map(|(name, path)| Some((*name, path.filter(|path| !is_stdin(path))?)));
    let inputs = files.filter_map(|(name, path)| Some((name, place(path)?)));
    let mut taken: Vec<(&str, PathBuf)> = inputs.collect();
    for (name, target) in outputs {
        let Some(file) = target.and_then(Target::file) else { continue };
        let Some(place) = place(file) else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, path)| *path == place) {
            let message = format!("{name} would overwrite {}, which is {other}; give another name", file.display());
            return Err(Failure::new("same_file", message));
        }
        taken.push((name, place));
    }
    Ok(())
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

    #[test]
    fn a_failed_write_keeps_what_was_there_and_names_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.mtx.gz");
        fs::write(&path, b"old").unwrap();
        let target = Target::check(&path).unwrap();
        let failure = target.write_with(|sink| {
            let Sink::File(part) = sink else { panic!("a file is no stdout") };
            assert_eq!(part.extension().unwrap(), "gz");
            fs::write(part, b"half").unwrap();
            Err(Failure::new("io", format!("{}: disk full", part.display())))
        });
        assert_eq!(failure.unwrap_err().message, format!("{}: disk full", path.display()));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_survive_a_write() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, b"old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        Target::check(&link).unwrap().write(b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());

        let nowhere = folder.path().join("nowhere");
        symlink(folder.path().join("absent"), &nowhere).unwrap();
        let failure = Target::check(&nowhere).unwrap_err();
        assert!(failure.message.contains("symbolic link"), "{}", failure.message);
    }

    #[test]
    fn outputs_are_apart_from_each_other_and_from_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let roundabout = folder.path().join(".").join("a");
        fs::write(&b, b"").unwrap();
        let target = |path: &Path| Target::check(path).unwrap();
        let (x, y, z) = (target(&a), target(&roundabout), target(&b));
        assert!(
            distinct(&[("--out", Some(&x)), ("--plot", Some(&z)), ("--history", None)], &[("MATRIX", None)], true)
                .is_ok()
        );
        let clash = distinct(&[("--out", Some(&x)), ("--history", Some(&y))], &[], false).unwrap_err();
        assert_eq!(clash.kind, "same_file");
        assert!(clash.message.contains("--history") && clash.message.contains("--out"), "{}", clash.message);
        assert_eq!(distinct(&[("--out", Some(&z))], &[("MATRIX", Some(&b))], false).unwrap_err().kind, "same_file");
    }

    #[test]
    fn stdin_and_stdout_take_one_thing_each() {
        let dash = Path::new(DASH);
        let stdout = Target::check(dash).unwrap();
        assert!(stdout.is_stdout() && !dash.exists());
        assert!(distinct(&[("--out", Some(&stdout))], &[("MATRIX", Some(dash)), ("--rhs", None)], false).is_ok());
        for clash in [
            distinct(&[("--out", Some(&stdout)), ("--plot", Some(&stdout))], &[], false),
            distinct(&[("--plot", Some(&stdout))], &[], true),
            distinct(&[], &[("MATRIX", Some(dash)), ("--plot", Some(dash))], false),
        ] {
            let clash = clash.unwrap_err();
            assert_eq!(clash.kind, USAGE);
            assert!(clash.message.contains("--plot"), "{clash}");
        }
        let file = Target::check(&Path::new(".").join(DASH)).unwrap();
        assert!(!file.is_stdout());
    }
}
