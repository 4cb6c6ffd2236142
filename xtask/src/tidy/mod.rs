//! `cargo xtask tidy`: the repository's rules, each a pure function from a [`Tree`] or a list of [`Package`]s to
//! breaches.

mod decisions;
mod kernels;
mod layers;
mod lexer;
mod licences;
mod links;
mod nouns;
mod packages;
mod prose;
mod ptx;
mod readme;
mod records;
mod sources;
mod wrap;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

pub(crate) use packages::Package;

/// A broken rule: which, where, and how.
#[derive(Debug)]
pub(crate) struct Breach {
    rule: &'static str,
    place: String,
    what: String,
}

impl Breach {
    fn new(rule: &'static str, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { rule, place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.what, self.rule)
    }
}

/// The text files of the repository that have rules, by their path from its root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// The endings of the files that are read.
    const ENDINGS: [&str; 9] = ["rs", "cu", "cuh", "ptx", "md", "toml", "jsonl", "py", "pyi"];

    /// The files that git tracks or would add; ignored folders do not matter. Without git (a source archive),
    /// everything in the workspace's own folders.
    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        match listed(root) {
            Some(paths) => paths.iter().try_for_each(|path| tree.add_file(root, path))?,
            None => tree.add(root, "")?,
        }
        Ok(tree)
    }

    fn add(&mut self, root: &Path, prefix: &str) -> Result<()> {
        let dir = root.join(prefix);
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir()
                && (!prefix.is_empty() || PLACES.contains(&name.as_str()))
                && !is_build_folder(&entry.path())
            {
                self.add(root, &format!("{path}/"))?;
            } else if kind.is_file() {
                self.add_file(root, &path)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, root: &Path, path: &str) -> Result<()> {
        let outside = path.split_once('/').is_some_and(|(top, _)| !PLACES.contains(&top));
        let wanted = path == ".ci/run" || ending(path).is_some_and(|e| Self::ENDINGS.contains(&e));
        let file = root.join(path);
        // A deleted file that is not yet committed is listed too.
        if outside || !wanted || !file.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        self.0.insert(path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
        Ok(())
    }

    /// The text of a file.
    fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Paths and texts of the files with one of these endings.
    fn with_ending<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter(|(path, _)| ending(path).is_some_and(|e| endings.contains(&e)))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    #[cfg(test)]
    fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }
}

/// Folders of the root that are the workspace's own.
const PLACES: [&str; 7] = [".ci", "crates", "docs", "fuzz", "kernels", "record", "xtask"];

/// The files that git tracks or would track below `root`; `None` without git, or if git does not know the folder.
fn listed(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    if !output.status.success() || output.stdout.is_empty() {
        return None;
    }
    let paths = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
}

/// Cargo marks the folders that it builds in, whatever their names are.
fn is_build_folder(dir: &Path) -> bool {
    dir.join("CACHEDIR.TAG").is_file()
}

fn ending(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, ending)| ending)
}

/// A file's name without folder and ending.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Wrap comments that are wider than code first
    #[arg(long)]
    wrap: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut tree = Tree::read(root)?;
    if options.wrap {
        wrap::run(root, &tree)?;
        tree = Tree::read(root)?;
    }
    let packages = packages::read(root)?;
    let mut breaches = Vec::new();
    let mut count = 0;
    for registry in [nouns::FORMATS, nouns::PLANS] {
        let text = tree.text(registry.file).with_context(|| format!("no {}", registry.file))?;
        let nouns = nouns::list(registry, text)?;
        print!("{}", nouns::table(registry, &tree, &nouns));
        breaches.extend(nouns::holes(registry, &tree, &nouns));
        count += nouns.len();
    }
    let formats = nouns::list(nouns::FORMATS, tree.text(nouns::FORMATS.file).unwrap_or_default())?;
    breaches.extend(nouns::tests_named_after_nouns(&tree, &formats));
    breaches.extend(sources::check(&tree));
    breaches.extend(layers::check(&packages));
    breaches.extend(layers::unused(&packages));
    breaches.extend(packages::check(&packages));
    breaches.extend(decisions::check(&tree));
    breaches.extend(prose::check(&tree));
    breaches.extend(prose::subjects(root));
    breaches.extend(links::check(&tree, &|path| root.join(path).exists()));
    breaches.extend(kernels::heads(&tree));
    breaches.extend(kernels::entries(&tree));
    breaches.extend(ptx::stale(&tree));
    breaches.extend(ptx::instructions(&tree));
    breaches.extend(records::check(&tree));
    breaches.extend(records::missing(&tree));
    breaches.extend(readme::check(&tree, crate::ci::STEPS));
    let allowed = licences::Allowed::parse(tree.text("deny.toml").context("no deny.toml")?)?;
    breaches.extend(licences::check(&allowed, &licences::read(root)?));

    // A measurement needs a GPU, which someone who changes a kernel may not have.
    let warnings = records::stale(&tree, &ptx::hash(&tree));
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    println!(
        "tidy: {} nouns, {} files, {} packages, {} warnings, {} breaches",
        count,
        tree.0.len(),
        packages.len(),
        warnings.len(),
        breaches.len()
    );
    Ok(if breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_folders_and_foreign_ones_are_not_walked() {
        let root = std::env::temp_dir().join(format!("spandrel-xtask-tree-{}", std::process::id()));
        let files = ["crates/a/src/lib.rs", "crates/a/out/x.rs", "shared/x.rs", "target-2/x.rs", "README.md", "a.bin"];
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("temporary folder");
            fs::write(path, "x").expect("writable");
        }
        fs::write(root.join("crates/a/out/CACHEDIR.TAG"), "").expect("writable");
        let mut walked = Tree::default();
        walked.add(&root, "").expect("reads");
        let mut given = Tree::default();
        ["README.md", "crates/a/src/lib.rs", "shared/x.rs", "crates/gone.rs", "a.bin"]
            .iter()
            .try_for_each(|path| given.add_file(&root, path))
            .expect("reads");
        fs::remove_dir_all(&root).expect("own folder");
        for tree in [walked, given] {
            assert_eq!(tree.0.keys().collect::<Vec<_>>(), ["README.md", "crates/a/src/lib.rs"]);
        }
    }
}
