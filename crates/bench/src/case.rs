//! The matrices: generator specifications and Matrix Market files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail, ensure};
use clap::builder::PossibleValuesParser;
use spandrel_formats::{Csr, Real, generate, matrix_market};

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => { &[$(stringify!($stem)),*] };
}
const FORMATS: &[&str] = spandrel_formats::for_each_format!(stems);

/// The name of a storage format on the command line.
pub fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(FORMATS)
}

/// A named matrix.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name in records.
    pub name: String,
    /// The file, or `None` for a generator. Its specification is then the name.
    pub path: Option<PathBuf>,
}

impl Case {
    /// Reads a word of the command line: a generator's specification or a path.
    pub fn parse(word: &str) -> Self {
        if generate::is_spec(word) {
            return Self { name: word.to_owned(), path: None };
        }
        let name = Path::new(word).file_name().map_or(word.to_owned(), |f| f.to_string_lossy().into_owned());
        let name = name.trim_end_matches(".gz").trim_end_matches(".mtx").to_owned();
        Self { name, path: Some(word.into()) }
    }

    /// As [`Case::parse`], but a file that does not exist and an unknown generator are errors.
    ///
    /// # Errors
    /// The error lists what there is.
    pub fn given(word: &str) -> Result<Self> {
        let case = Self::parse(word);
        match &case.path {
            Some(path) => ensure!(path.is_file(), "{word}: there is no such file, and no such generator"),
            None => drop(generate::Spec::parse(word)?),
        }
        Ok(case)
    }

    /// The matrix itself.
    pub fn load<T: Real>(&self) -> Result<Csr<T>> {
        // The text of the error contains that of its source.
        Ok(match &self.path {
            None => generate::csr(&self.name)?,
            Some(path) => matrix_market::read_csr(path).map_err(|why| Error::msg(why.to_string()))?,
        })
    }
}

/// All `.mtx` and `.mtx.gz` files of a folder, by name.
pub fn folder(dir: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".mtx") || name.ends_with(".mtx.gz") {
            cases.push(Case::parse(&name));
        }
    }
    if cases.is_empty() {
        bail!("{}: no .mtx or .mtx.gz file in it", dir.display());
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_wrong_is_an_error_at_once() {
        assert_eq!(Case::given("d3n7:8").expect("a generator").path, None);
        let said = |word: &str| Case::given(word).expect_err("neither").to_string();
        assert_eq!(said("nope.mtx"), "nope.mtx: there is no such file, and no such generator");
        assert!(said("d3n9:8").contains("there is no generator \"d3n9\""));
        assert!(said("d3n7:0").contains("size=0 is below 1"));
        // The error does not repeat the file's part.
        let why = format!("{:#}", Case::parse("nope.mtx").load::<f64>().expect_err("no file"));
        assert_eq!(why.matches("No such file").count(), 1, "{why}");
    }
}
