//! `cargo xtask tidy`: the rules of the house, each a pure function from a [`Tree`] or a list of [`Package`]s to breaches.

mod layers;
mod lexer;
mod licences;
mod nouns;
mod packages;
mod readme;
mod records;
mod sources;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) use packages::Package;

/// A rule that is broken, where, and how.
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

/// The text files of the repository that the rules speak of, by their path from its root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Endings of the files that are read.
    const ENDINGS: [&str; 6] = ["rs", "cu", "cuh", "md", "toml", "jsonl"];

    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, dir: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if (name != ".ci" && name.starts_with('.')) || name.starts_with("target") {
                    continue;
                }
                self.add(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && (path == ".ci/run" || Self::ENDINGS.iter().any(|e| ending(&name) == Some(e))) {
                let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
                self.0.insert(path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
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

fn ending(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, ending)| ending)
}

/// A file's name without folder and ending.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    let packages = packages::read(root)?;
    let registry = tree.text(nouns::REGISTRY).with_context(|| format!("no {}", nouns::REGISTRY))?;
    let nouns = nouns::list(registry)?;
    print!("{}", nouns::table(&tree, &nouns));

    let mut breaches = nouns::holes(&tree, &nouns);
    breaches.extend(nouns::tests_named_after_nouns(&tree, &nouns));
    breaches.extend(sources::check(&tree));
    breaches.extend(layers::check(&packages));
    breaches.extend(packages::check(&packages));
    breaches.extend(records::check(&tree));
    breaches.extend(readme::check(&tree, crate::ci::STEPS));
    let allowed = licences::Allowed::parse(tree.text("deny.toml").context("no deny.toml")?)?;
    breaches.extend(licences::check(&allowed, &licences::read(root)?));

    for breach in &breaches {
        eprintln!("{breach}");
    }
    println!(
        "tidy: {} nouns, {} files, {} packages, {} breaches",
        nouns.len(),
        tree.0.len(),
        packages.len(),
        breaches.len()
    );
    Ok(if breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
