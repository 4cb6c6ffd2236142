//! Which crate may depend on which. The drawing is in ARCHITECTURE.md.

use super::{Breach, Package};
use crate::tidy::packages::Kind;

/// Each crate with the crates that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("spandrel-formats", &[]),
    ("spandrel-sptrsv", &["spandrel-formats"]),
    ("spandrel-backend", &["spandrel-formats", "spandrel-sptrsv"]),
    ("spandrel-backend-cpu", &["spandrel-formats", "spandrel-sptrsv", "spandrel-backend"]),
    ("spandrel-backend-cuda", &["spandrel-formats", "spandrel-sptrsv", "spandrel-backend"]),
    ("spandrel-solvers", &["spandrel-formats", "spandrel-sptrsv", "spandrel-backend"]),
    ("spandrel-distributed", &["spandrel-formats", "spandrel-backend", "spandrel-solvers"]),
    ("spandrel", LIBRARIES),
    ("spandrel-conformance", ALL_LIBRARIES),
    ("spandrel-bench", ALL_LIBRARIES),
    ("spandrel-cli", ALL_LIBRARIES),
    ("spandrel-guide", &["spandrel"]),
    ("spandrel-python", &["spandrel"]),
    ("xtask", &[]),
];

/// Everything below the crates that users and suites enter.
const LIBRARIES: &[&str] = &[
    "spandrel-formats",
    "spandrel-sptrsv",
    "spandrel-backend",
    "spandrel-backend-cpu",
    "spandrel-backend-cuda",
    "spandrel-solvers",
    "spandrel-distributed",
];

/// The same with `spandrel`.
const ALL_LIBRARIES: &[&str] = &[
    "spandrel",
    "spandrel-formats",
    "spandrel-sptrsv",
    "spandrel-backend",
    "spandrel-backend-cpu",
    "spandrel-backend-cuda",
    "spandrel-solvers",
    "spandrel-distributed",
];

/// Exceptions for tests, `(crate, may use)`: a generic crate needs something that runs, and the README of the CUDA
/// backend shows a solve.
const TESTS_ONLY: &[(&str, &str)] = &[
    ("spandrel-solvers", "spandrel-backend-cpu"),
    ("spandrel-backend-cuda", "spandrel-solvers"),
    ("spandrel-distributed", "spandrel-backend-cpu"),
];

/// Dependencies between our crates that the drawing lacks.
pub(crate) fn check(packages: &[Package]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let ours = |name: &str| packages.iter().any(|p| p.name == name);
    for package in packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            breaches.push(Breach::new("layers", &package.name, "a new crate: give it a place in the table of layers"));
            continue;
        };
        for (to, kind) in package.dependencies.iter().filter(|(to, _)| ours(to)) {
            let tests_only = *kind == Kind::Test && TESTS_ONLY.contains(&(package.name.as_str(), to.as_str()));
            // A crate may be below the one that its tests use, but must never depend on itself through it in a build.
            if !allowed.contains(&to.as_str()) && !tests_only {
                breaches.push(Breach::new("layers", &package.name, format!("may not depend on {to} ({kind:?})")));
            }
        }
    }
    breaches
}

/// Exceptions that no manifest uses.
pub(crate) fn unused(packages: &[Package]) -> Vec<Breach> {
    let used = |name: &str, to: &str| {
        let mut edges = packages.iter().filter(|p| p.name == name).flat_map(|p| &p.dependencies);
        edges.any(|(dependency, kind)| dependency == to && *kind == Kind::Test)
    };
    let exceptions = TESTS_ONLY.iter().filter(|(name, to)| !used(name, to));
    exceptions
        .map(|(name, to)| Breach::new("layers", *name, format!("no test uses {to} (any more): drop the exception")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies.iter().map(|(to, kind)| ((*to).to_owned(), *kind)).collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    #[test]
    fn an_edge_upwards_is_a_breach() {
        let packages = [
            package("spandrel-formats", &[("spandrel-backend", Kind::Build), ("rayon", Kind::Normal)]),
            package("spandrel-backend", &[("spandrel-formats", Kind::Normal)]),
        ];
        let breaches = check(&packages);
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].to_string().contains("may not depend on spandrel-backend"));
    }

    #[test]
    fn tests_may_run_on_the_cpu_and_builds_may_not() {
        let cpu = package("spandrel-backend-cpu", &[]);
        assert!(check(&[package("spandrel-solvers", &[("spandrel-backend-cpu", Kind::Test)]), cpu]).is_empty());
        let cpu = package("spandrel-backend-cpu", &[]);
        assert_eq!(check(&[package("spandrel-solvers", &[("spandrel-backend-cpu", Kind::Normal)]), cpu]).len(), 1);
    }

    #[test]
    fn an_exception_that_nobody_needs_is_a_breach() {
        let all = |kind| TESTS_ONLY.iter().map(|&(from, to)| package(from, &[(to, kind)])).collect::<Vec<_>>();
        assert!(unused(&all(Kind::Test)).is_empty());
        for kind in [Kind::Normal, Kind::Build] {
            assert_eq!(unused(&all(kind)).len(), TESTS_ONLY.len());
        }
        assert_eq!(unused(&[]).len(), TESTS_ONLY.len());
    }

    #[test]
    fn xtask_depends_on_none_of_ours() {
        let cpu = package("spandrel-backend-cpu", &[]);
        assert_eq!(check(&[package("xtask", &[("spandrel-backend-cpu", Kind::Test)]), cpu]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_a_breach() {
        assert_eq!(check(&[package("spandrel-extra", &[])]).len(), 1);
    }
}
