//! Licences of everything that is compiled in, against the list that `deny.toml` allows.
//!
//! Reads SPDX expressions (`OR`, `AND`, `WITH`, parentheses, and the older `/` for `OR`), so that a checkout with
//! nothing but Rust installed can be checked; cargo-deny reads the same file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;

use super::Breach;

/// What `deny.toml` allows.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    everywhere: Vec<String>,
    /// A crate with the licences that are allowed only for it.
    exceptions: Vec<(String, Vec<String>)>,
}

impl Allowed {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context("deny.toml")?;
        let licences = table.get("licenses").and_then(|v| v.as_table()).context("deny.toml has no [licenses]")?;
        let list = |table: &toml::Table| -> Result<Vec<String>> {
            let list = table.get("allow").and_then(|v| v.as_array()).context("deny.toml: no list `allow`")?;
            list.iter().map(|v| v.as_str().map(str::to_owned).context("deny.toml: `allow` holds texts")).collect()
        };
        let mut exceptions = Vec::new();
        for entry in licences.get("exceptions").and_then(|v| v.as_array()).into_iter().flatten() {
            let entry = entry.as_table().context("deny.toml: an exception is a table")?;
            let name = entry.get("crate").or_else(|| entry.get("name")).and_then(|v| v.as_str());
            exceptions.push((name.context("deny.toml: an exception names a crate")?.to_owned(), list(entry)?));
        }
        Ok(Self { everywhere: list(licences)?, exceptions })
    }

    fn allows(&self, package: &str, licence: &str) -> bool {
        let has = |list: &[String]| list.iter().any(|allowed| allowed == licence);
        has(&self.everywhere) || self.exceptions.iter().any(|(name, list)| name == package && has(list))
    }
}

/// Every package of the lock file that is reachable, with its licence expression.
pub(crate) fn read(root: &Path) -> Result<Vec<(String, Option<String>)>> {
    let features = cargo_metadata::CargoOpt::AllFeatures;
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).features(features).exec()?;
    Ok(metadata.packages.into_iter().map(|p| (p.name.to_string(), p.license)).collect())
}

/// Packages whose licence is not allowed, absent or not understood.
pub(crate) fn check(allowed: &Allowed, packages: &[(String, Option<String>)]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (name, licence) in packages {
        let what = match licence {
            None => "has no licence expression".to_owned(),
            Some(text) => match satisfied(text, &|licence| allowed.allows(name, licence)) {
                Ok(true) => continue,
                Ok(false) => format!("licence `{text}` is not in the list of deny.toml"),
                Err(error) => format!("licence `{text}`: {error}"),
            },
        };
        breaches.push(Breach::new("licences", name, what));
    }
    breaches
}

/// Whether allowed licences satisfy an expression. `AND` binds tighter than `OR`, and `WITH` tighter than both.
fn satisfied(text: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let value = any_of(&tokens, &mut at, allowed)?;
    if at != tokens.len() {
        bail!("`{}` is unexpected", tokens[at]);
    }
    Ok(value)
}

fn any_of(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
    let mut value = all_of(tokens, at, allowed)?;
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        value |= all_of(tokens, at, allowed)?;
    }
    Ok(value)
}

fn all_of(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
    let mut value = one(tokens, at, allowed)?;
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        value &= one(tokens, at, allowed)?;
    }
    Ok(value)
}

fn one(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Result<bool> {
    let token = *tokens.get(*at).context("ends too early")?;
    *at += 1;
    match token {
        "(" => {
            let value = any_of(tokens, at, allowed)?;
            if tokens.get(*at) != Some(&")") {
                bail!("a parenthesis is not closed");
            }
            *at += 1;
            Ok(value)
        }
        ")" | "OR" | "AND" | "WITH" => bail!("`{token}` is unexpected"),
        licence if tokens.get(*at) == Some(&"WITH") => {
            let exception = tokens.get(*at + 1).context("WITH without an exception")?;
            *at += 2;
            Ok(allowed(&format!("{licence} WITH {exception}")))
        }
        licence => Ok(allowed(licence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Allowed {
        Allowed::parse(
            "[licenses]\nallow = [\"MIT\", \"Unicode-3.0\", \"Apache-2.0 WITH LLVM-exception\"]\n\
             [[licenses.exceptions]]\ncrate = \"odd\"\nallow = [\"MPL-2.0\"]\n",
        )
        .expect("a list")
    }

    fn passes(name: &str, licence: Option<&str>) -> bool {
        check(&allowed(), &[(name.to_owned(), licence.map(str::to_owned))]).is_empty()
    }

    #[test]
    fn expressions_are_understood() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND Unicode-3.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND MIT OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(passes("a", Some(good)), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND GPL-3.0",
            "Apache-2.0",
            "",
            "MIT OR",
            "(MIT",
            "MIT MIT",
            "MIT WITH",
        ] {
            assert!(!passes("a", Some(bad)), "{bad}");
        }
        assert!(!passes("a", None));
    }

    #[test]
    fn an_exception_is_for_its_crate_alone() {
        assert!(passes("odd", Some("MPL-2.0")));
        assert!(!passes("even", Some("MPL-2.0")));
    }

    #[test]
    fn a_list_that_is_none() {
        assert!(Allowed::parse("[advisories]\n").is_err());
        assert!(Allowed::parse("[licenses]\nallow = [1]\n").is_err());
    }
}
