//! The specification of a generated matrix, as it stands on a command line: parsed, checked, printed, built.

use super::args::{Args, split};
use super::{DEFAULT_SEED, Stencil, list};
use crate::{Csr, Error, Real, Result};

/// What to generate. [`Spec::parse`] refuses what cannot be built for any other reason than its size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Family {
    /// A constant stencil on a grid; `name` is the generator's, as in [`list`].
    Stencil {
        /// `d3n7`, `poisson2d`, ...
        name: &'static str,
        /// X, Y, Z; 1 where the generator has fewer dimensions.
        size: [usize; 3],
        /// The stencil with its coefficients.
        stencil: Stencil,
        /// Parameters besides the size, as they are written (`,peclet=10`), for printing.
        suffix: String,
    },
}

/// A parsed specification: the family with its parameters, and the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What to generate.
    pub family: Family,
    /// Seed of everything random in it; generators without randomness accept and ignore it.
    pub seed: u64,
}

/// Whether `text` is meant as a specification rather than a path: the name of a generator, or a word of lower-case letters,
/// digits and `_` (two or more, so that a drive letter is none) before a colon and no path separator after it. A word that
/// names no generator counts, so that the error lists the generators. The file system is not asked.
pub fn is_spec(text: &str) -> bool {
    let (name, rest) = split(text);
    if rest.is_empty() && !text.contains(':') {
        return list().iter().any(|generator| generator.name == name);
    }
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.len() >= 2
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.bytes().all(is_word)
        && !rest.contains(['/', '\\'])
}

impl Spec {
    /// Parses `name:arguments` (see [`list`]).
    ///
    /// # Errors
    /// [`Error::Spec`], naming what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, _) = split(text);
        let Some(generator) = list().iter().find(|generator| generator.name == name) else {
            let names: Vec<_> = list().iter().map(|generator| generator.name).collect();
            let why = format!("there is no generator {name:?}; there are {}", names.join(", "));
            return Err(Error::Spec { spec: text.to_owned(), why });
        };
        let args = |first: &'static str, keys: &[&str]| Args::new(text, generator.syntax, first, keys);
        let stencil = |args: &Args<'_>, dims: usize, stencil: Stencil, suffix: String| -> Result<Family> {
            Ok(Family::Stencil { name: generator.name, size: args.extents("n", dims)?, stencil, suffix })
        };
        let plain = |dims: usize, shape: Stencil| -> Result<(Family, u64)> {
            let args = args("n", &[])?;
            Ok((stencil(&args, dims, shape, String::new())?, args.seed()?))
        };
        let (family, seed) = match generator.name {
            "d3n7" | "poisson3d" => plain(3, Stencil::star(3, 1))?,
            "d3n13" => plain(3, Stencil::star(3, 2))?,
            "d3n27" => plain(3, Stencil::cubic(3))?,
            "d3n33" => plain(3, Stencil::d3n33())?,
            "poisson1d" => plain(1, Stencil::star(1, 1))?,
            "poisson2d" => plain(2, Stencil::star(2, 1))?,
            "poisson2d9" => plain(2, Stencil::cubic(2))?,
            "convdiff2d" | "convdiff3d" => {
                let dims = if generator.name == "convdiff2d" { 2 } else { 3 };
                let args = args("n", &["peclet"])?;
                let peclet = args.real("peclet", 0.0, 1e12, Some(1.0))?;
                let suffix = format!(",peclet={peclet}");
                (stencil(&args, dims, Stencil::upwind(dims, peclet), suffix)?, args.seed()?)
            }
            "anisotropic2d" => {
                let args = args("n", &["eps"])?;
                let eps = args.real("eps", 1e-12, 1e12, Some(1e-3))?;
                (stencil(&args, 2, Stencil::anisotropic2d(eps), format!(",eps={eps}"))?, args.seed()?)
            }
            "tridiag" => {
                let args = args("n", &["lower", "diag", "upper"])?;
                let real = |key, default| args.real(key, -1e300, 1e300, Some(default));
                let (lower, diag, upper) = (real("lower", -1.0)?, real("diag", 2.0)?, real("upper", -1.0)?);
                let shape = Stencil::new([([-1, 0, 0], lower), ([0; 3], diag), ([1, 0, 0], upper)]);
                (stencil(&args, 1, shape, format!(",lower={lower},diag={diag},upper={upper}"))?, args.seed()?)
            }
            other => unreachable!("{other} is listed and has no parser"),
        };
        Ok(Self { family, seed })
    }

    /// The matrix.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn build<T: Real>(&self) -> Result<Csr<T>> {
        match &self.family {
            Family::Stencil { size, stencil, .. } => stencil.on_grid(*size),
        }
    }
}

impl std::fmt::Display for Spec {
    /// The specification with every parameter, as [`Spec::parse`] reads it; the seed only where it is not the default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.family {
            Family::Stencil { name, size: [x, y, z], suffix, .. } => {
                write!(f, "{name}:")?;
                match *name {
                    "poisson1d" | "tridiag" => write!(f, "{x}")?,
                    "poisson2d" | "poisson2d9" | "convdiff2d" | "anisotropic2d" => write!(f, "{x}x{y}")?,
                    _ => write!(f, "{x}x{y}x{z}")?,
                }
                write!(f, "{suffix}")?;
            }
        }
        if self.seed == DEFAULT_SEED { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}
