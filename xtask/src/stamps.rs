//! Which packages have changed since their tests last passed.
//!
//! A package has two hashes. `own` is of its own folder and of all files that belong to no package (documents, records,
//! kernels, the lock file). `all` is of everything in this repository that its tests can read: it adds the folders of
//! the workspace's packages that the package depends on (tests included). Files that git ignores do not count. The
//! compiler and the command line are part of both. Stamps are in the target folder, so `cargo clean` removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xshell::{Shell, cmd};

/// A package of the workspace.
#[derive(Clone, Debug)]
struct Package {
    /// Its folder, relative to the workspace's.
    folder: String,
    /// The packages of the workspace that it needs, tests included.
    needs: Vec<String>,
}

/// The hashes of a package. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    own: String,
    all: String,
}

impl Stamp {
    /// Whether the package itself has changed since.
    pub(crate) fn changed_since(&self, then: Option<&Self>) -> bool {
        then.is_none_or(|then| then.own != self.own)
    }
    /// Whether the package, or one that it depends on, has changed since.
    pub(crate) fn affected_since(&self, then: Option<&Self>) -> bool {
        then.is_none_or(|then| then.all != self.all)
    }
}

/// Stamps of packages by name.
pub(crate) type Stamps = BTreeMap<String, Stamp>;

/// The stamps of all packages for the present files. `salt` is everything else that affects the outcome of the tests.
///
/// # Errors
/// No git, no cargo, files that cannot be read.
pub(crate) fn now(root: &Path, salt: &str) -> Result<Stamps> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let listed = cmd!(shell, "git ls-files --cached --others --exclude-standard -z").quiet().read()?;
    let mut files: Vec<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    files.sort_unstable();
    files.dedup();
    let compiler = cmd!(shell, "rustc -vV").quiet().read()?;
    let packages = packages(root)?;
    let mut hashes: BTreeMap<&str, Sha256> = BTreeMap::new();
    for file in files {
        let owner = packages.iter().find(|(_, package)| is_in(file, &package.folder));
        let hash = hashes.entry(owner.map_or("", |(name, _)| name.as_str())).or_default();
        hash.update(file.as_bytes());
        hash.update([0]);
        // A link, or a file that was removed and is still in git's index.
        match std::fs::read(root.join(file)) {
            Ok(bytes) => hash.update(Sha256::digest(bytes)),
            Err(_) => hash.update([1]),
        }
    }
    let hashes: BTreeMap<&str, String> =
        hashes.into_iter().map(|(name, hash)| (name, format!("{:x}", hash.finalize()))).collect();
    Ok(packages
        .keys()
        .map(|name| (name.clone(), stamp(name, &packages, &hashes, &(compiler.clone() + salt))))
        .collect())
}

/// Whether a file is in a folder.
fn is_in(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The stamp of one package.
fn stamp(name: &str, packages: &BTreeMap<String, Package>, hashes: &BTreeMap<&str, String>, salt: &str) -> Stamp {
    let mut needed = BTreeSet::new();
    let mut open = vec![name];
    while let Some(next) = open.pop() {
        if let (true, Some(package)) = (needed.insert(next), packages.get(next)) {
            open.extend(package.needs.iter().map(String::as_str));
        }
    }
    needed.insert("");
    let hash = |packages: &mut dyn Iterator<Item = &str>| {
        let mut hash = Sha256::new();
        hash.update(salt.as_bytes());
        for package in packages {
            hash.update(hashes.get(package).map_or("", String::as_str));
            hash.update([0]);
        }
        format!("{:x}", hash.finalize())
    };
    Stamp { own: hash(&mut ["", name].into_iter()), all: hash(&mut needed.into_iter()) }
}

fn packages(root: &Path) -> Result<BTreeMap<String, Package>> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let members = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let one = |package: &&cargo_metadata::Package| -> Result<(String, Package)> {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        let folder = folder.strip_prefix(&metadata.workspace_root)?.to_string();
        let needs = package.dependencies.iter().map(|needed| needed.name.clone());
        let needs =
            needs.filter(|needed| names.contains(needed.as_str()) && *needed != *package.name.as_str()).collect();
        Ok((package.name.to_string(), Package { folder, needs }))
    };
    members.iter().map(one).collect()
}

/// The file with the stamps of the last success.
fn place(root: &Path) -> Result<PathBuf> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    Ok(metadata.target_directory.join("xtask-test.json").into())
}

/// The stamps of the packages whose tests have passed. If they cannot be read, there are none.
///
/// # Errors
/// No cargo.
pub(crate) fn passed(root: &Path) -> Result<Stamps> {
    let text = std::fs::read_to_string(place(root)?).unwrap_or_default();
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Stores the stamps of packages whose tests have passed.
///
/// # Errors
/// Those of the file system.
pub(crate) fn keep(root: &Path, stamps: &Stamps) -> Result<()> {
    let place = place(root)?;
    std::fs::write(&place, serde_json::to_string_pretty(stamps)?).with_context(|| place.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_changes_with_what_it_needs_and_with_what_belongs_to_none() {
        let package = |folder: &str, needs: &[&str]| Package {
            folder: folder.to_string(),
            needs: needs.iter().map(|name| (*name).to_string()).collect(),
        };
        let packages = BTreeMap::from([
            ("low".to_string(), package("crates/low", &[])),
            // A test of `low` may need `high`. The search ends there.
            ("mid".to_string(), package("crates/mid", &["low", "high"])),
            ("high".to_string(), package("crates/high", &["mid"])),
            ("apart".to_string(), package("crates/apart", &[])),
        ]);
        let all = |changed: &str| -> Vec<Stamp> {
            let hashes = ["", "low", "mid", "high", "apart"]
                .map(|name| (name, if name == changed { "new".to_string() } else { name.to_string() }));
            ["low", "mid", "high", "apart"].map(|name| stamp(name, &packages, &hashes.clone().into(), "")).into()
        };
        let before = all("nothing");
        let since = |what: &str, has: fn(&Stamp, Option<&Stamp>) -> bool| -> Vec<bool> {
            all(what).iter().zip(&before).map(|(now, then)| has(now, Some(then))).collect()
        };
        let affected = |what: &str| since(what, Stamp::affected_since);
        assert_eq!(affected("low"), [true, true, true, false]);
        assert_eq!(affected("high"), [false, true, true, false]);
        assert_eq!(affected("apart"), [false, false, false, true]);
        assert_eq!(affected(""), [true; 4]);
        let changed = |what: &str| since(what, Stamp::changed_since);
        assert_eq!(changed("low"), [true, false, false, false]);
        assert_eq!(changed("mid"), [false, true, false, false]);
        assert_eq!(changed(""), [true; 4]);
        assert!(before[0].changed_since(None) && before[0].affected_since(None));
    }

    #[test]
    fn folders_are_whole_names() {
        assert!(is_in("crates/backend/src/lib.rs", "crates/backend"));
        assert!(!is_in("crates/backend-cpu/src/lib.rs", "crates/backend"));
    }
}
