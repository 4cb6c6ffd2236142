//! The registries of methods and preconditioners: one list each, with the names that the command line, configuration
//! files and other languages use.
//!
//! A new method or preconditioner gets one entry here. The enum, its parser and its `Display` follow from it. Every
//! `match` over the enum then fails to compile until it has a new arm.

use std::fmt;
use std::str::FromStr;

/// A name that [`Method`] or [`Precond`] does not have, or a parameter that it cannot take. The text says what to write
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(String);

impl NameError {
    /// An error with this text, which says what to write instead.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The error for an unknown name, with the nearest known one. `what` says what the names stand for.
    pub fn unknown<'a>(what: &str, given: &str, names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let lower = given.to_ascii_lowercase();
        let distance = |name: &&str| strsim::damerau_levenshtein(name, &lower);
        let near = names.clone().min_by_key(distance).filter(|name| distance(name) <= 2);
        let list = names.collect::<Vec<_>>().join(", ");
        Self(match near {
            Some(name) => format!("there is no {what} {given:?}; did you mean {name}? There are {list}"),
            None => format!("there is no {what} {given:?}; there are {list}"),
        })
    }
}

/// Expands `$callback!` once with the list of all methods, `(stem, Variant, "what it is for")` each.
#[macro_export]
macro_rules! for_each_method {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            ("cg", Cg, "conjugate gradients, for symmetric positive definite matrices: [`crate::Cg`]"),
            ("bicgstab", BiCgStab, "stabilised biconjugate gradients, for any square matrix: [`crate::BiCgStab`]"),
            ("gmres", Gmres, "generalised minimal residuals, restarted, for any square matrix: [`crate::Gmres`]"),
            ("direct", Direct, "a factorisation on the host, also for least squares: [`crate::Direct`]")
        }
    };
}

/// Expands `$callback!` once with the list of all preconditioners: `("stem", Variant(Parameter = parser), "what it
/// is")`, or `("stem", Variant, "what it is")` where there is no parameter. A parser is a module of this file.
#[macro_export]
macro_rules! for_each_preconditioner {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            ("none", None, "no preconditioner: [`crate::Identity`]"),
            ("jacobi", Jacobi, "the diagonal: [`crate::Jacobi`]"),
            ("block-jacobi", BlockJacobi(Option<usize> = block_rows),
                "blocks of this many rows on the diagonal, or `None` for the unknowns of a grid point: [`crate::BlockJacobi`]"),
            ("chebyshev", Chebyshev(usize = degree),
                "a Chebyshev polynomial of this degree in D^-1 A, for symmetric positive definite matrices: [`crate::Chebyshev`]"),
            ("ssor", Ssor(f64 = omega), "symmetric successive over-relaxation with this omega: [`crate::Ssor`]"),
            ("ilu0", Ilu0, "incomplete LU without fill: [`crate::Ilu`]"),
            ("iluk", Iluk(usize = fill_level), "incomplete LU with fill up to this level: [`crate::Ilu`]"),
            ("ilut", Ilut(spandrel_sptrsv::IlutOptions = thresholds),
                "incomplete LU with the entries that are large, by these thresholds: [`crate::Ilu`]"),
            ("ilutp", Ilutp(spandrel_sptrsv::IlutOptions = thresholds),
                "the same with pivots that are exchanged for larger entries of their row: [`crate::Permuted`]"),
            ("ic0", Ic0, "incomplete Cholesky without fill: [`crate::Ic`]"),
            ("ilu0-jacobi", Ilu0Jacobi(usize = sweeps), "ILU(0), with this many Jacobi sweeps instead of each triangular solve: [`crate::JacobiSweeps`]"),
            ("ic0-jacobi", Ic0Jacobi(usize = sweeps), "IC(0), with this many Jacobi sweeps instead of each triangular solve: [`crate::JacobiSweeps`]"),
            ("ilu0-isai", Ilu0Isai, "ILU(0), with a sparse approximate inverse instead of each triangular solve: [`crate::Isai`]"),
            ("ic0-isai", Ic0Isai, "IC(0), with a sparse approximate inverse instead of each triangular solve: [`crate::Isai`]"),
            ("mg", Mg($crate::MgOptions = grids), "geometric multigrid with these options: [`crate::Multigrid`], [`crate::StencilMultigrid`]"),
            ("amg", Amg($crate::AmgOptions = aggregation),
                "algebraic multigrid by smoothed aggregation with these options, for symmetric positive definite matrices: [`crate::Amg`]")
        }
    };
}

macro_rules! methods {
    ([] $(($stem:literal, $Variant:ident, $about:literal)),*) => {
        /// A method. [`Method::from_str`] reads the names of the command line; case does not matter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
        pub enum Method {
            $(#[doc = concat!("`", $stem, "`: ", $about, ".")] $Variant),*
        }

        impl Method {
            /// All methods, in the order of their names' list.
            pub const ALL: &'static [Method] = &[$(Method::$Variant),*];

            /// The name on the command line and in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Method::$Variant => $stem),*
                }
            }
        }
    };
}
for_each_method!(methods);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Method {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.to_ascii_lowercase();
        let found = Self::ALL.iter().find(|method| method.as_str() == name);
        found.copied().ok_or_else(|| NameError::unknown("method", text, Self::ALL.iter().map(|method| method.as_str())))
    }
}

/// Prints the stem, with the parameter if there is one.
macro_rules! shown {
    ($f:ident, $stem:literal) => {
        $f.pad($stem)
    };
    ($f:ident, $stem:literal, $value:ident, $parser:ident) => {
        $parser::show($stem, $value, $f)
    };
}
/// The stem, with a parameter if one is required.
macro_rules! example {
    ($stem:literal) => {
        $stem
    };
    ($stem:literal, block_rows) => {
        concat!($stem, "=auto")
    };
    ($stem:literal, fill_level) => {
        concat!($stem, "=1")
    };
    ($stem:literal, thresholds) => {
        $stem
    };
    ($stem:literal, sweeps) => {
        concat!($stem, "=3")
    };
    ($stem:literal, degree) => {
        concat!($stem, "=4")
    };
    ($stem:literal, omega) => {
        $stem
    };
    ($stem:literal, grids) => {
        $stem
    };
    ($stem:literal, aggregation) => {
        $stem
    };
}
/// Reads the parameter, or refuses one if there is none.
macro_rules! read {
    ($Variant:ident, $stem:literal, $given:ident) => {
        match $given {
            None => Ok(Precond::$Variant),
            Some(_) => Err(format!("{} takes no parameter", $stem)),
        }
    };
    ($Variant:ident, $stem:literal, $given:ident, $parser:ident) => {
        $parser::read($stem, $given).map(Precond::$Variant)
    };
}

macro_rules! preconditioners {
    ([] $(($stem:literal, $Variant:ident $(($Parameter:ty = $parser:ident))?, $about:literal)),*) => {
        /// A preconditioner with its parameters. [`Precond::from_str`] reads the names of the command line (`ilu0`,
        /// `iluk=2`, `ssor=1.5`); case does not matter. `Display` prints what it reads.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
        pub enum Precond {
            $(#[doc = concat!("`", $stem, "`: ", $about, ".")] $Variant $(($Parameter))?),*
        }

        impl Precond {
            /// The names of all preconditioners, without parameters.
            pub const STEMS: &'static [&'static str] = &[$($stem),*];
            /// One name of each that can be parsed, with a parameter if one is required.
            pub const EXAMPLES: &'static [&'static str] = &[$(example!($stem $(, $parser)?)),*];
        }

        impl fmt::Display for Precond {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                preconditioners! { @show self, f, [] $(($stem, $Variant $($parser)?))* }
            }
        }

        impl FromStr for Precond {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let lower = text.to_ascii_lowercase();
                let (stem, given) = match lower.split_once('=') {
                    Some((stem, given)) => (stem, Some(given)),
                    None => (lower.as_str(), None),
                };
                let read: Result<Self, String> = match stem {
                    $($stem => read!($Variant, $stem, given $(, $parser)?),)*
                    other => return Err(NameError::unknown("preconditioner", other, Self::STEMS.iter().copied())),
                };
                read.map_err(NameError)
            }
        }
    };
    (@show $self:ident, $f:ident, [$($arms:tt)*] ($stem:literal, $Variant:ident) $($rest:tt)*) => {
        preconditioners! { @show $self, $f, [$($arms)* Precond::$Variant => shown!($f, $stem),] $($rest)* }
    };
    (@show $self:ident, $f:ident, [$($arms:tt)*] ($stem:literal, $Variant:ident $parser:ident) $($rest:tt)*) => {
        preconditioners! { @show $self, $f, [$($arms)* Precond::$Variant(value) => shown!($f, $stem, value, $parser),] $($rest)* }
    };
    (@show $self:ident, $f:ident, [$($arms:tt)*]) => {
        match $self { $($arms)* }
    };
}
for_each_preconditioner!(preconditioners);

impl Precond {
    /// Returns true if it is a fixed linear operator, as every method takes it:
    /// [`spandrel_backend::Preconditioner::is_linear`].
    pub fn is_linear(self) -> bool {
        match self {
            Precond::Amg(options) => options.cycle.is_linear(),
            _ => true,
        }
    }
}

/// Rows of a block: `block-jacobi=4`, or `block-jacobi=auto`.
mod block_rows {
    use crate::block_jacobi::MAX_BLOCK_DIM;

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<Option<usize>, String> {
        match given {
            None => Err(format!("say how many rows a block has, e.g. {stem}=4, or {stem}=auto")),
            Some("auto") => Ok(None),
            Some(rows) => match rows.parse() {
                Ok(rows) if (1..=MAX_BLOCK_DIM).contains(&rows) => Ok(Some(rows)),
                _ => Err(format!("a block has 1 to {MAX_BLOCK_DIM} rows, e.g. {stem}=4; or write {stem}=auto")),
            },
        }
    }

    pub(super) fn show(stem: &str, rows: &Option<usize>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match rows {
            None => write!(f, "{stem}=auto"),
            Some(rows) => write!(f, "{stem}={rows}"),
        }
    }
}

/// The relaxation parameter: `ssor`, or `ssor=1.5`.
mod omega {
    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<f64, String> {
        match given.map_or(Ok(1.0), str::parse::<f64>) {
            Ok(omega) if omega > 0.0 && omega < 2.0 => Ok(omega),
            _ => Err(format!("omega is a number between 0 and 2, e.g. {stem}=1.5")),
        }
    }

    pub(super) fn show(stem: &str, omega: &f64, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *omega {
            1.0 => f.write_str(stem),
            omega => write!(f, "{stem}={omega}"),
        }
    }
}

/// A level of fill: `iluk=1`.
mod fill_level {
    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<usize, String> {
        let level = given.ok_or_else(|| format!("say up to which level there is fill, e.g. {stem}=1"))?;
        level.parse().map_err(|_| format!("the level of fill is a whole number, 0 or more, e.g. {stem}=1"))
    }

    pub(super) fn show(stem: &str, level: &usize, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{stem}={level}")
    }
}

/// The threshold for dropping entries, and the limit of entries relative to A: `ilut`, `ilut=1e-3` or `ilut=1e-3,5`.
mod thresholds {
    use spandrel_sptrsv::IlutOptions;

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<IlutOptions, String> {
        let wrong = || {
            format!(
                "write {stem}=TAU or {stem}=TAU,P, where entries below TAU times the largest of their row are dropped (0 or more) and L and U have at \
                 most P times the entries of A (1 or more), e.g. {stem}=1e-3,5"
            )
        };
        let mut options = IlutOptions::default();
        let Some(given) = given else { return Ok(options) };
        let (drop, fill) = given.split_once(',').map_or((given, None), |(drop, fill)| (drop, Some(fill)));
        options.drop = drop.trim().parse().map_err(|_| wrong())?;
        if let Some(fill) = fill {
            options.fill = fill.trim().parse().map_err(|_| wrong())?;
        }
        options.check().map_err(|_| wrong())?;
        Ok(options)
    }

    pub(super) fn show(stem: &str, options: &IlutOptions, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let default = IlutOptions::default();
        match (options.drop == default.drop, options.fill == default.fill) {
            (true, true) => f.write_str(stem),
            (false, true) => write!(f, "{stem}={}", options.drop),
            (_, false) => write!(f, "{stem}={},{}", options.drop, options.fill),
        }
    }
}

/// A number of sweeps: `ilu0-jacobi=3`.
mod sweeps {
    /// More sweeps take longer than the triangular solve that they approximate.
    const MOST: usize = 1000;

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<usize, String> {
        let count = given.ok_or_else(|| format!("say how many sweeps, e.g. {stem}=3"))?;
        match count.parse() {
            Ok(count) if (1..=MOST).contains(&count) => Ok(count),
            _ => Err(format!("the number of sweeps is 1 to {MOST}, e.g. {stem}=3")),
        }
    }

    pub(super) fn show(stem: &str, count: &usize, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{stem}={count}")
    }
}

/// The degree of a polynomial: `chebyshev=4`.
mod degree {
    /// A polynomial of a higher degree is a whole solve.
    const MOST: usize = 100;

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<usize, String> {
        let degree = given.ok_or_else(|| format!("say of which degree, e.g. {stem}=4"))?;
        match degree.parse() {
            Ok(degree) if (1..=MOST).contains(&degree) => Ok(degree),
            _ => Err(format!("the degree is 1 to {MOST}, e.g. {stem}=4")),
        }
    }

    pub(super) fn show(stem: &str, degree: &usize, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{stem}={degree}")
    }
}

/// The maximum number of grids of a hierarchy, its smoother, and the smoother's degree: `mg`, `mg=4`, `mg=chebyshev`,
/// `mg=4,gauss-seidel`, `mg=chebyshev,degree=3` or `mg=l1-jacobi`.
mod grids {
    use crate::multigrid::grid::DEGREES;
    use crate::{MgOptions, MgSmoother};

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<MgOptions, String> {
        let mut options = MgOptions::default();
        let Some(given) = given else { return Ok(options) };
        let wrong = || {
            format!(
                "write {stem}=GRIDS, {stem}=SMOOTHER or {stem}=GRIDS,SMOOTHER, with the most grids (1 or more) and gauss-seidel, chebyshev \
                 or l1-jacobi, e.g. {stem}=4; chebyshev and l1-jacobi take a degree from 1 to 4, e.g. {stem}=chebyshev,degree=3"
            )
        };
        let mut parts = given.split(',').map(str::trim).peekable();
        if let Some(count) = parts.next_if(|part| part.starts_with(|first: char| first.is_ascii_digit())) {
            options.grids = Some(count.parse().ok().filter(|&count| count > 0).ok_or_else(wrong)?);
        }
        if let Some(smoother) = parts.next() {
            let known = [MgSmoother::GaussSeidel, MgSmoother::Chebyshev, MgSmoother::L1Jacobi];
            options.smoother = known.into_iter().find(|known| known.as_str() == smoother).ok_or_else(wrong)?;
        }
        if let Some(degree) = parts.next() {
            let value = degree.strip_prefix("degree=").filter(|_| options.polynomial().is_some());
            let value = value.and_then(|value| value.parse().ok()).filter(|degree| (1..=DEGREES).contains(degree));
            options.degree = value.ok_or_else(wrong)?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(options) }
    }

    pub(super) fn show(stem: &str, options: &MgOptions, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = options.grids.map(|count| count.to_string());
        let smoother = (options.smoother != MgSmoother::Auto).then(|| options.smoother.as_str().to_owned());
        let is_named = options.polynomial().is_some_and(|smoother| smoother.degree() != MgOptions::DEGREE);
        let degree = is_named.then(|| format!("degree={}", options.degree));
        let parts: Vec<String> = [count, smoother, degree].into_iter().flatten().collect();
        if parts.is_empty() { f.write_str(stem) } else { write!(f, "{stem}={}", parts.join(",")) }
    }
}

/// Options of algebraic multigrid: `amg`, or `amg=unknowns=3,degree=3`.
mod aggregation {
    use crate::{AmgCycle, AmgOptions};

    pub(super) fn read(stem: &str, given: Option<&str>) -> Result<AmgOptions, String> {
        let mut options = AmgOptions::default();
        let Some(given) = given else { return Ok(options) };
        let wrong = || {
            format!(
                "write {stem}=NAME=VALUE,... with the names strength (0 to 1), degree (1 to 4), unknowns (1 to 6), coarsest (1 to 2000), levels \
                 (1 or more) and cycle (v or k), e.g. {stem}=unknowns=3,degree=3"
            )
        };
        for part in given.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let value = value.trim();
            let count = || value.parse::<usize>().map_err(|_| wrong());
            match name.trim() {
                "strength" => options.strength = value.parse().map_err(|_| wrong())?,
                "degree" => options.degree = count()?,
                "unknowns" => options.unknowns = count()?,
                "coarsest" => options.coarsest = count()?,
                "levels" => options.levels = count()?,
                "cycle" => {
                    let known = [AmgCycle::V, AmgCycle::K];
                    options.cycle = known.into_iter().find(|known| known.as_str() == value).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        options.check().map_err(|_| wrong())?;
        Ok(options)
    }

    pub(super) fn show(stem: &str, options: &AmgOptions, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AmgOptions { strength, degree, unknowns, coarsest, levels, cycle } = AmgOptions::default();
        f.write_str(stem)?;
        let mut mark = '=';
        let mut write = |name: &str, value: String, is_default: bool| {
            let shown = if is_default { Ok(()) } else { write!(f, "{mark}{name}={value}") };
            mark = if is_default { mark } else { ',' };
            shown
        };
        write("strength", options.strength.to_string(), options.strength == strength)?;
        write("degree", options.degree.to_string(), options.degree == degree)?;
        write("unknowns", options.unknowns.to_string(), options.unknowns == unknowns)?;
        write("coarsest", options.coarsest.to_string(), options.coarsest == coarsest)?;
        write("levels", options.levels.to_string(), options.levels == levels)?;
        write("cycle", options.cycle.as_str().to_string(), options.cycle == cycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_as_it_is_written() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(*method));
            assert_eq!(method.as_str().to_uppercase().parse(), Ok(*method));
        }
        for &text in Precond::EXAMPLES {
            assert_eq!(text.parse::<Precond>().expect(text).to_string(), text);
            assert_eq!(text.to_uppercase().parse::<Precond>().expect(text).to_string(), text);
        }
        for text in [
            "block-jacobi=4",
            "ssor=1.5",
            "iluk=0",
            "ilut=0.01",
            "ilut=0,5.5",
            "ilut=0.0001,inf",
            "ilutp=0.01,3",
            "mg=4",
            "mg=chebyshev",
            "mg=4,gauss-seidel",
            "mg=chebyshev,degree=3",
            "mg=4,chebyshev,degree=1",
            "mg=l1-jacobi",
            "mg=4,l1-jacobi,degree=3",
            "amg=degree=3",
            "amg=strength=0.1,unknowns=3,levels=4",
            "amg=cycle=k",
            "amg=degree=3,cycle=k",
        ] {
            assert_eq!(text.parse::<Precond>().expect(text).to_string(), text);
        }
        macro_rules! stems {
            ([] $(($stem:ident, $Type:ident)),*) => { [$(stringify!($stem)),*] };
        }
        for stem in spandrel_sptrsv::for_each_factor!(stems) {
            assert!(Precond::STEMS.contains(&stem), "the factorisation {stem} has no name among the preconditioners");
        }
    }

    #[test]
    fn wrong_parameters_are_refused() {
        let with_parameter = [
            "iluk=",
            "iluk=-1",
            "ssor=2",
            "ssor=0",
            "ssor=nan",
            "ssor=",
            "mg=0",
            "mg=",
            "mg=x",
            "mg=4,",
            "mg=0,chebyshev",
            "mg=chebyshev,degree=0",
            "mg=chebyshev,degree=5",
            "mg=chebyshev,3",
            "mg=gauss-seidel,degree=3",
            "mg=degree=3",
            "mg=chebyshev,degree=3,4",
            "mg=l1-jacobi,degree=5",
            "mg=jacobi",
        ];
        let without = ["", "iluk", "ilu0=1", "ic0=0", "block-jacobi", "ilu0-jacobi", "ilu0-isai=1", "jacobi=2"];
        let thresholds = [
            "ilut=",
            "ilut=-1",
            "ilut=inf",
            "ilut=nan",
            "ilut=x",
            "ilut=1,",
            "ilut=1,0.5",
            "ilut=1,nan",
            "ilut=1,2,3",
            "ilutp=0,0",
        ];
        let too_large = ["block-jacobi=0", "block-jacobi=129", "ic0-jacobi=0", "ic0-jacobi=1001"];
        let options = [
            "amg=",
            "amg=3",
            "amg=degree",
            "amg=degree=5",
            "amg=strength=2",
            "amg=unknowns=0",
            "amg=speed=1",
            "amg=cycle=w",
            "amg=cycle",
        ];
        for bad in with_parameter.into_iter().chain(options).chain(without).chain(thresholds).chain(too_large) {
            assert!(bad.parse::<Precond>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_name_suggests_the_nearest() {
        let error = "ilu".parse::<Precond>().unwrap_err().to_string();
        assert!(error.starts_with("there is no preconditioner \"ilu\"; did you mean ilu0?"), "{error}");
        let error = "bigstab".parse::<Method>().unwrap_err().to_string();
        assert!(error.contains("did you mean bicgstab?"), "{error}");
        let error = "simplex".parse::<Method>().unwrap_err().to_string();
        assert!(error.ends_with("there are cg, bicgstab, gmres, direct") && !error.contains("did you"), "{error}");
    }
}
