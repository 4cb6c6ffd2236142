//! Measured profiles of this machine, and the file that stores them.
//!
//! Only [`AnyBackend::open`] reads the file; it gives a device the numbers that were measured. The file is JSON in the
//! user's cache folder ([`path`]) and safe to delete. A damaged file, or one of another version, is ignored; [`read`]
//! says why. The environment variable `SPANDREL_CALIBRATION` names another file; if it is empty, none is read or
//! written.
//!
//! A calibrated CPU chooses formats and plans by its own numbers, so its choices may differ from those of another
//! machine. Whatever promises the same bits on every backend uses [`Profile::reference`], calibrated or not.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};
use spandrel_formats::Profile;
use spandrel_formats::profile::Origin;

use crate::any::AnyBackend;

mod measure;
#[cfg(feature = "cuda-core")]
mod waits;

pub use measure::calibrate;

/// Version of the file. Increase it if a number is renamed or changes its meaning.
const VERSION: u32 = 1;
/// The variable that names another file, or none.
const VARIABLE: &str = "SPANDREL_CALIBRATION";

/// Why the file of calibrations cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no folder for it.
    #[error("no folder for calibrations: {0}")]
    NoFolder(String),
    /// The system refuses to read or write the file.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// It is not a file of calibrations, or one of another version.
    #[error("{}: {why}; the file is ignored: delete it, or run `spandrel devices --calibrate`", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The calibrations of this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibrations {
    /// The numbers of each profile, by device (as `key` spells it).
    devices: BTreeMap<String, BTreeMap<String, f64>>,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    devices: BTreeMap<String, BTreeMap<String, f64>>,
}

/// The key of a device: its backend and its name.
fn key(backend: &str, profile: &Profile) -> String {
    format!("{backend}: {}", profile.device)
}

/// The path of the file: `spandrel/calibration.json` in the user's cache folder, or the value of
/// `SPANDREL_CALIBRATION`.
///
/// # Errors
/// [`Error::NoFolder`].
pub fn path() -> Result<PathBuf, Error> {
    match std::env::var_os(VARIABLE) {
        Some(name) if name.is_empty() => Err(Error::NoFolder(format!("{VARIABLE} is empty"))),
        Some(name) => Ok(name.into()),
        None => match etcetera::choose_base_strategy() {
            Ok(folders) => Ok(folders.cache_dir().join("spandrel/calibration.json")),
            Err(why) => Err(Error::NoFolder(why.to_string())),
        },
    }
}

/// Reads the calibrations of this machine; empty without a file.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`].
pub fn read() -> Result<Calibrations, Error> {
    match path() {
        Ok(path) => Calibrations::read(&path),
        Err(_) => Ok(Calibrations::default()),
    }
}

/// Stores the profile of a device of that backend ([`crate::Device::NAME`]) for later programs; returns the path of the
/// file.
///
/// # Errors
/// [`Error::NoFolder`], [`Error::Io`].
pub fn store(backend: &str, profile: &Profile) -> Result<PathBuf, Error> {
    let path = path()?;
    // Replace a file that cannot be read.
    let mut kept = Calibrations::read(&path).unwrap_or_default();
    kept.devices.insert(key(backend, profile), profile.numbers());
    kept.write(&path)?;
    Ok(path)
}

impl Calibrations {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(why) if why.kind() == ErrorKind::InvalidData => {
                return Err(Error::Damaged { path: path.into(), why: "this is no text".into() });
            }
            Err(why) => return Err(Error::Io { path: path.into(), why }),
        };
        let damaged = |why: String| Error::Damaged { path: path.into(), why };
        // Check the version first: another version may contain anything.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let of: Version = serde_json::from_str(&text).map_err(|why| damaged(why.to_string()))?;
        if of.version != VERSION {
            return Err(damaged(format!("this is version {}, and {VERSION} is read", of.version)));
        }
        let stored: Stored = serde_json::from_str(&text).map_err(|why| damaged(why.to_string()))?;
        Ok(Self { devices: stored.devices })
    }

    fn write(self, path: &Path) -> Result<(), Error> {
        let failed = |why| Error::Io { path: path.into(), why };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let mut text = serde_json::to_string_pretty(&Stored { version: VERSION, devices: self.devices })
            .map_err(|why| failed(why.into()))?;
        text.push('\n');
        // Write beside the file and move, so that a reader sees all of it or nothing.
        let part = folder.join(format!(".spandrel-{}.part", std::process::id()));
        let written = fs::File::create(&part)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, path));
        written.map_err(|why| {
            let _ = fs::remove_file(&part);
            failed(why)
        })
    }

    /// The measured profile of a device of that backend; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the numbers do not fit such a device.
    pub fn of(&self, backend: &str, profile: &Profile) -> Result<Option<Profile>, Error> {
        let Some(numbers) = self.devices.get(&key(backend, profile)) else { return Ok(None) };
        let mut calibrated = profile.clone();
        calibrated.set_numbers(numbers).map_err(|why| Error::Damaged {
            path: path().unwrap_or_default(),
            why: format!("{}: {why}", key(backend, profile)),
        })?;
        calibrated.origin = Origin::Calibrated;
        Ok(Some(calibrated))
    }
}

impl AnyBackend {
    /// The same device with its measured profile, if there is one and it can be read.
    pub(crate) fn calibrated(self) -> Self {
        match profile_of(self.name(), self.profile()) {
            Some(profile) => self.with_profile(profile),
            None => self,
        }
    }
}

/// The measured profile of a device, if there is one and it can be read.
pub(crate) fn profile_of(backend: &str, profile: &Profile) -> Option<Profile> {
    read().and_then(|kept| kept.of(backend, profile)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("spandrel-calibration-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_written_is_read_for_the_device_that_it_is_of() {
        let folder = folder("kept");
        let path = folder.join("deep/er/calibration.json");
        assert_eq!(Calibrations::read(&path).unwrap(), Calibrations::default());
        let mut measured = Profile::reference();
        measured.products.csr.as_mut().unwrap().call = 0.1 + 0.2;
        let mut kept = Calibrations::default();
        kept.devices.insert(key("cpu", &measured), measured.numbers());
        kept.clone().write(&path).unwrap();
        let read = Calibrations::read(&path).unwrap();
        assert_eq!(read, kept);
        let found = read.of("cpu", &Profile::reference()).unwrap().unwrap();
        assert_eq!((found.origin, found.products), (Origin::Calibrated, measured.products));
        assert_eq!(read.of("cuda", &Profile::reference()).unwrap(), None);
        let other = Profile { device: "another".into(), ..Profile::reference() };
        assert_eq!(read.of("cpu", &other).unwrap(), None);
        // Only the file is left there.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_or_one_of_another_version_is_named_and_ignored() {
        let folder = folder("damaged");
        let path = folder.join("calibration.json");
        for (bytes, why) in [
            (&b"{"[..], "EOF"),
            (b"\xff\xfe", "no text"),
            (b"{\"version\": 0, \"devices\": 5}", "version 0"),
            (b"{\"version\": 1, \"devices\": 5}", "invalid type"),
            (b"{\"version\": 1, \"devices\": {\"cpu: a\": {\"x\": null}}}", "null"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = Calibrations::read(&path).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Damaged { .. }) && text.contains(why), "{text}");
            assert!(text.contains("calibration.json") && text.contains("ignored"), "{text}");
        }
        let reference = Profile::reference();
        let mut numbers = reference.numbers();
        numbers.insert("products.csr.efficiency".into(), 0.0);
        let kept = Calibrations { devices: BTreeMap::from([(key("cpu", &reference), numbers)]) };
        let text = kept.of("cpu", &reference).unwrap_err().to_string();
        assert!(text.contains("products.csr.efficiency is out of range"), "{text}");
        fs::remove_dir_all(folder).unwrap();
    }
}
