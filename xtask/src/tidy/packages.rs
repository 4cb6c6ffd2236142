//! What every crate must have: a README with a tested example, keywords, categories, a licence.

use std::path::Path;

use anyhow::Result;
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::Breach;

/// Files that are part of every published archive, equal to those in the workspace's folder.
const LICENCE_TEXTS: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// When a dependency is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Test,
}

/// A crate of the workspace as the rules see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) published: bool,
    pub(crate) licence: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) rust_version: Option<String>,
    /// Whether `[package.metadata.docs.rs]` exists.
    pub(crate) docs_rs: bool,
    /// Those of [`LICENCE_TEXTS`] that are in its folder.
    pub(crate) licence_texts: Vec<&'static str>,
    pub(crate) keywords: usize,
    pub(crate) categories: usize,
    pub(crate) readme: Option<String>,
    /// The text of `src/lib.rs`, if it is a library.
    pub(crate) library: Option<String>,
    pub(crate) dependencies: Vec<(String, Kind)>,
}

/// The crates of the workspace.
pub(crate) fn read(root: &Path) -> Result<Vec<Package>> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let packages = metadata.workspace_packages().into_iter().map(|package| {
        let dir = package.manifest_path.with_file_name("");
        let kind = |kind| match kind {
            DependencyKind::Development => Kind::Test,
            DependencyKind::Build => Kind::Build,
            _ => Kind::Normal,
        };
        Package {
            name: package.name.to_string(),
            published: package.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
            licence: package.license.clone(),
            description: package.description.clone().filter(|text| !text.is_empty()),
            rust_version: package.rust_version.as_ref().map(ToString::to_string),
            docs_rs: package.metadata.get("docs").is_some_and(|docs| docs.get("rs").is_some()),
            licence_texts: LICENCE_TEXTS
                .into_iter()
                .filter(|name| {
                    let ours = std::fs::read(dir.join(name)).ok();
                    ours.is_some() && ours == std::fs::read(root.join(name)).ok()
                })
                .collect(),
            keywords: package.keywords.len(),
            categories: package.categories.len(),
            readme: package.readme.as_ref().and_then(|path| std::fs::read_to_string(dir.join(path)).ok()),
            library: std::fs::read_to_string(dir.join("src/lib.rs")).ok(),
            dependencies: package.dependencies.iter().map(|d| (d.name.clone(), kind(d.kind))).collect(),
        }
    });
    Ok(packages.collect())
}

/// What a crate lacks.
pub(crate) fn check(packages: &[Package]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for package in packages {
        let mut breach = |what: &str| breaches.push(Breach::new("packages", &package.name, what));
        if package.licence.is_none() {
            breach("no licence");
        }
        if package.rust_version.is_none() {
            breach("no rust-version");
        }
        if !package.published {
            continue;
        }
        if package.description.is_none() {
            breach("no description");
        }
        if !package.docs_rs {
            breach("no [package.metadata.docs.rs]");
        }
        for name in LICENCE_TEXTS.iter().filter(|name| !package.licence_texts.contains(name)) {
            breach(&format!("no {name} like the workspace's in its folder"));
        }
        if package.keywords == 0 {
            breach("no keywords");
        }
        if package.categories == 0 {
            breach("no categories");
        }
        let Some(readme) = &package.readme else {
            breach("no README");
            continue;
        };
        if !readme.contains("\n```") {
            breach("README has no example");
        }
        if !readme.split_whitespace().collect::<Vec<_>>().join(" ").contains("MIT OR Apache-2.0") {
            breach("README does not name the licence");
        }
        if readme.contains("\n```rust")
            && !package.library.as_ref().is_some_and(|l| l.contains("include_str!(\"../README.md\")"))
        {
            breach("README's example is not compiled: include the file in the library's documentation");
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Package {
        Package {
            name: "good".into(),
            published: true,
            licence: Some("MIT".into()),
            description: Some("good".into()),
            rust_version: Some("1.90".into()),
            docs_rs: true,
            licence_texts: LICENCE_TEXTS.to_vec(),
            keywords: 1,
            categories: 1,
            readme: Some("# good\n```rust\n```\nMIT OR Apache-2.0".into()),
            library: Some("#[doc = include_str!(\"../README.md\")]".into()),
            dependencies: Vec::new(),
        }
    }

    #[test]
    fn each_lack_is_a_breach() {
        assert!(check(&[good()]).is_empty());
        let lacking = [
            Package { licence: None, ..good() },
            Package { description: None, ..good() },
            Package { rust_version: None, ..good() },
            Package { docs_rs: false, ..good() },
            Package { licence_texts: vec!["LICENSE-MIT"], ..good() },
            Package { keywords: 0, ..good() },
            Package { categories: 0, ..good() },
            Package { readme: None, ..good() },
            Package { readme: Some("# good\nMIT OR Apache-2.0".into()), ..good() },
            Package { readme: Some("# good\n```rust\n```".into()), ..good() },
            Package { library: None, ..good() },
        ];
        for package in lacking {
            assert_eq!(check(std::slice::from_ref(&package)).len(), 1, "{package:?}");
        }
    }

    #[test]
    fn an_unpublished_crate_needs_a_licence_and_a_version_only() {
        let package = Package {
            published: false,
            readme: None,
            keywords: 0,
            categories: 0,
            description: None,
            docs_rs: false,
            licence_texts: Vec::new(),
            ..good()
        };
        assert!(check(std::slice::from_ref(&package)).is_empty());
        assert_eq!(check(&[Package { licence: None, ..package }]).len(), 1);
    }
}
