//! The specification of a generated matrix, as on a command line: parsed, checked, printed, built.

use super::args::{Args, split};
use super::gfem::{self, Form};
use super::random::{self, Lengths};
use super::{Coupling, DEFAULT_SEED, Generator, Stencil, System, electrostatic, list};
use crate::grid::MAX_UNKNOWNS;
use crate::nearest::suggestion;
use crate::{Csr, Error, Real, Result};

/// What to generate. [`Spec::parse`] refuses everything that cannot be built, except because of its size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Family {
    /// A constant stencil on a grid; `name` is the generator's, as in [`list`].
    Stencil {
        /// `d3n7`, `poisson2d`, ...
        name: &'static str,
        /// X, Y, Z; 1 for dimensions that the generator lacks.
        size: [usize; 3],
        /// The stencil with its coefficients.
        stencil: Stencil,
        /// Parameters besides the size in their written form (`,peclet=10`), for printing.
        suffix: String,
    },
    /// Several unknowns at each point of a grid; `name` is the generator's, as in [`list`].
    System {
        /// `elasticity3d`, `system2d`, ...
        name: &'static str,
        /// X, Y, Z; 1 for dimensions that the generator lacks.
        size: [usize; 3],
        /// The blocks that couple them.
        system: System,
        /// Parameters besides the size in their written form, for printing.
        suffix: String,
    },
    /// Random values on centred diagonals, symmetric positive definite.
    Banded {
        /// Rows.
        n: usize,
        /// Diagonals, odd.
        d: usize,
    },
    /// Generalised finite elements with a chosen bandwidth.
    Gfem {
        /// Unknowns in x and in y (1 in 1-D).
        size: [usize; 2],
        /// Number of cells to each side in a local interpolation.
        p: usize,
        /// Dimensions, 1 or 2.
        dim: usize,
        /// Stiffness or mass.
        form: Form,
    },
    /// Random symmetric positive definite with given eigenvalues.
    RandSpd {
        /// Rows.
        n: usize,
        /// Minimum share of entries among n^2.
        density: f64,
        /// Condition number.
        cond: f64,
    },
    /// Row lengths that follow a power law.
    PowerLaw {
        /// Rows.
        n: usize,
        /// Exponent: P(K >= k) = k^(1 - alpha).
        alpha: f64,
    },
    /// Random columns, with the same number in each row.
    Random {
        /// Rows.
        n: usize,
        /// Number of entries per row, including the diagonal.
        nnz_per_row: usize,
    },
    /// Finite elements on a tetrahedral mesh.
    Electrostatic {
        /// Number of unknowns.
        n: usize,
    },
}

/// A parsed specification: the family with its parameters, and the seed. Only [`Spec::parse`] makes one, so whatever is
/// built has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    family: Family,
    seed: u64,
}

/// Returns true if `text` is meant as a specification, not as a path.
///
/// It is one if it names a generator, or if a word of letters, digits and `_` stands before a colon and no path
/// separator follows. The word needs two or more characters, so that a drive letter is no match. A word that names no
/// generator counts too, so that the error can list the generators. Case does not matter. The file system is not asked.
pub fn is_spec(text: &str) -> bool {
    let (name, rest) = split(text);
    if rest.is_empty() && !text.contains(':') {
        return generator(name).is_some();
    }
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.len() >= 2
        && name.as_bytes()[0].is_ascii_alphabetic()
        && name.bytes().all(is_word)
        && !rest.contains(['/', '\\'])
}

/// The generator of this name, in any case.
fn generator(name: &str) -> Option<&'static Generator> {
    list().iter().find(|generator| generator.name.eq_ignore_ascii_case(name))
}

impl Spec {
    /// Parses `name:arguments` (see [`list`]). Case does not matter in names of generators, arguments and their words.
    ///
    /// # Errors
    /// [`Error::Spec`] that says what would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, _) = split(text);
        let Some(generator) = generator(name) else {
            let names: Vec<_> = list().iter().map(|generator| generator.name).collect();
            let meant = suggestion(name, names.iter().copied());
            let why = format!("there is no generator {name:?}{meant}; there are {}", names.join(", "));
            return Err(Error::Spec { spec: text.to_owned(), why });
        };
        let args = |first: &'static str, keys: &[&'static str]| Args::new(text, generator.syntax, first, keys);
        let stencil = |args: &Args<'_>, dims: usize, stencil: Stencil, suffix: String| -> Result<Family> {
            Ok(Family::Stencil { name: generator.name, size: args.extents("n", dims)?, stencil, suffix })
        };
        let plain = |dims: usize, shape: Stencil| -> Result<(Family, u64)> {
            let args = args("n", &[])?;
            Ok((stencil(&args, dims, shape, String::new())?, args.seed()?))
        };
        let (family, seed) = match generator.name {
            "d3n7" | "poisson3d" => plain(3, Stencil::star(3, 1)?)?,
            "d3n13" => plain(3, Stencil::star(3, 2)?)?,
            "d3n27" => plain(3, Stencil::cubic(3)?)?,
            "d3n33" => plain(3, Stencil::d3n33())?,
            "poisson1d" => plain(1, Stencil::star(1, 1)?)?,
            "poisson2d" => plain(2, Stencil::star(2, 1)?)?,
            "poisson2d9" => plain(2, Stencil::cubic(2)?)?,
            "convdiff2d" | "convdiff3d" => {
                let dims = if generator.name == "convdiff2d" { 2 } else { 3 };
                let args = args("n", &["peclet"])?;
                let peclet = args.real("peclet", 0.0, 1e12, Some(1.0))?;
                let suffix = format!(",peclet={peclet}");
                (stencil(&args, dims, Stencil::upwind(dims, peclet)?, suffix)?, args.seed()?)
            }
            "anisotropic2d" => {
                let args = args("n", &["eps"])?;
                let eps = args.real("eps", 1e-12, 1e12, Some(1e-3))?;
                (stencil(&args, 2, Stencil::anisotropic2d(eps), format!(",eps={eps}"))?, args.seed()?)
            }
            name @ ("elasticity2d" | "elasticity3d") => {
                let dims = if name == "elasticity2d" { 2 } else { 3 };
                let args = args("n", &["nu"])?;
                let nu = args.real("nu", 0.0, 0.499, Some(0.3))?;
                let (size, system) = (args.extents("n", dims)?, System::elasticity(dims, nu)?);
                (Family::System { name: generator.name, size, system, suffix: format!(",nu={nu}") }, args.seed()?)
            }
            name @ ("system2d" | "system3d") => {
                let dims = if name == "system2d" { 2 } else { 3 };
                let args = args("n", &["b", "coupling", "peclet"])?;
                let b = args.count("b", 2, Some(2))?;
                if b > MAX_UNKNOWNS {
                    return Err(args.wrong(format!("b={b} unknowns per point are more than {MAX_UNKNOWNS}")));
                }
                let words = ["point", "full"];
                let word = args.word("coupling", &words)?;
                let peclet = args.real("peclet", 0.0, 1e12, Some(0.0))?;
                let size = args.extents("n", dims)?;
                let system = System::densities(dims, b, [Coupling::Point, Coupling::Full][word], peclet)?;
                let suffix = format!(",b={b},coupling={},peclet={peclet}", words[word]);
                (Family::System { name: generator.name, size, system, suffix }, args.seed()?)
            }
            "tridiag" => {
                let args = args("n", &["lower", "diag", "upper"])?;
                let real = |key, default| args.real(key, -1e300, 1e300, Some(default));
                let (lower, diag, upper) = (real("lower", -1.0)?, real("diag", 2.0)?, real("upper", -1.0)?);
                let shape = Stencil::new([([-1, 0, 0], lower), ([0; 3], diag), ([1, 0, 0], upper)]);
                (stencil(&args, 1, shape, format!(",lower={lower},diag={diag},upper={upper}"))?, args.seed()?)
            }
            "banded" => {
                let args = args("n", &["d"])?;
                let (n, d) = (args.count("n", 1, None)?, args.count("d", 1, None)?);
                if d % 2 == 0 || d / 2 >= n {
                    let why = format!("d={d} diagonals are not centred: d must be odd and at most 2 n - 1");
                    return Err(args.wrong(why));
                }
                (Family::Banded { n, d }, args.seed()?)
            }
            "gfem" => {
                let args = args("n", &["p", "dim", "op"])?;
                let dim = args.count("dim", 1, Some(1))?;
                let p = args.count("p", 0, Some(1))?;
                if dim > 2 || p > 8 {
                    return Err(args.wrong(format!("dim={dim}, p={p}: dim is 1 or 2 and p at most 8")));
                }
                let [nx, ny, _] = args.extents("n", dim)?;
                let least = gfem::least_nodes(p);
                if nx < least || (dim == 2 && ny < least) {
                    return Err(args.wrong(format!("p={p} needs at least {least} unknowns in each direction")));
                }
                let form = [Form::Stiffness, Form::Mass][args.word("op", &["stiffness", "mass"])?];
                (Family::Gfem { size: [nx, ny], p, dim, form }, args.seed()?)
            }
            "randspd" => {
                let args = args("n", &["density", "cond"])?;
                let n = args.count("n", 1, None)?;
                let density = args.real("density", 0.0, 1.0, None)?;
                let cond = args.real("cond", 1.0, 1e16, None)?;
                (Family::RandSpd { n, density, cond }, args.seed()?)
            }
            "powerlaw" => {
                let args = args("n", &["alpha"])?;
                let n = args.count("n", 1, None)?;
                (Family::PowerLaw { n, alpha: args.real("alpha", 1.01, 100.0, Some(2.1))? }, args.seed()?)
            }
            "random" => {
                let args = args("n", &["nnz_per_row"])?;
                let (n, nnz_per_row) = (args.count("n", 1, None)?, args.count("nnz_per_row", 1, None)?);
                if nnz_per_row > n {
                    return Err(args.wrong(format!("nnz_per_row={nnz_per_row} exceeds n={n}")));
                }
                (Family::Random { n, nnz_per_row }, args.seed()?)
            }
            "electrostatic" => {
                let args = args("n", &[])?;
                (Family::Electrostatic { n: args.count("n", 1, None)? }, args.seed()?)
            }
            other => unreachable!("{other} is listed and has no parser"),
        };
        Ok(Self { family, seed })
    }

    /// What to generate.
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Seed of everything random in the matrix. Generators without randomness accept and ignore it.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Makes the matrix.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn build<T: Real>(&self) -> Result<Csr<T>> {
        match self.family {
            Family::Gfem { size, p, dim: 2, form } => gfem::plane(size, p, form),
            Family::Gfem { size, p, form, .. } => gfem::line(size[0], p, form),
            Family::RandSpd { n, density, cond } => random::spd(n, density, cond, self.seed),
            Family::Electrostatic { n } => electrostatic::build(n, self.seed),
            _ => self.build_rows(0..self.nrows()),
        }
    }

    /// Number of rows of the matrix; `usize::MAX` for a number that does not fit.
    pub fn nrows(&self) -> usize {
        let product = |extents: &[usize]| extents.iter().fold(1usize, |product, &n| product.saturating_mul(n));
        match self.family {
            Family::Stencil { size, .. } => product(&size),
            Family::System { size, ref system, .. } => product(&size).saturating_mul(system.unknowns()),
            Family::Gfem { size, .. } => product(&size),
            Family::Banded { n, .. }
            | Family::RandSpd { n, .. }
            | Family::PowerLaw { n, .. }
            | Family::Random { n, .. }
            | Family::Electrostatic { n } => n,
        }
    }

    /// Number of entries in the rows before `row`, without making any, if the family has a formula for it.
    pub fn entries_before(&self, row: usize) -> Option<u64> {
        match self.family {
            Family::Stencil { size, ref stencil, .. } => Some(stencil.row_start(size, row)),
            Family::System { size, ref system, .. } => Some(system.row_start(size, row)),
            Family::Banded { n, d } => Some(random::banded_start(n, d, row)),
            Family::Random { nnz_per_row, .. } => Some(row as u64 * nnz_per_row as u64),
            _ => None,
        }
    }

    /// Makes the rows `wanted`, as a matrix that has these rows and all columns. Row 0 of the result is the first of
    /// them.
    ///
    /// Stencils, systems, `banded`, `random` and `powerlaw` make only these rows. The other families make the whole
    /// matrix and copy the rows.
    ///
    /// ```
    /// let spec = spandrel_formats::generate::Spec::parse("poisson3d:20")?;
    /// let (whole, some) = (spec.build::<f64>()?, spec.build_rows::<f64>(400..800)?);
    /// assert_eq!((some.nrows(), some.ncols()), (400, 8000));
    /// assert_eq!(some.row(7), whole.row(407));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Spec::build`]; [`Error::Shape`] for rows that the matrix does not have.
    pub fn build_rows<T: Real>(&self, wanted: std::ops::Range<usize>) -> Result<Csr<T>> {
        if wanted.start > wanted.end || wanted.end > self.nrows() {
            return Err(Error::Shape {
                op: "a generator",
                what: "the range of rows",
                found: wanted.end,
                expected: self.nrows(),
            });
        }
        let seed = self.seed;
        match self.family {
            Family::Stencil { size, ref stencil, .. } => stencil.rows_on_grid(size, wanted),
            Family::System { size, ref system, .. } => system.rows_on_grid(size, wanted),
            Family::Banded { n, d } => random::banded(n, d, seed, wanted),
            Family::PowerLaw { n, alpha } => random::scattered(n, Lengths::PowerLaw(alpha), seed, wanted),
            Family::Random { n, nnz_per_row } => random::scattered(n, Lengths::Equal(nnz_per_row - 1), seed, wanted),
            Family::Gfem { .. } | Family::RandSpd { .. } | Family::Electrostatic { .. } => {
                let whole = self.build::<T>()?;
                let entries = |i: usize| whole.row(wanted.start + i);
                Csr::from_rows(
                    wanted.len(),
                    whole.ncols(),
                    |i| entries(i).0.len(),
                    |i, cols, values| {
                        cols.copy_from_slice(entries(i).0);
                        values.copy_from_slice(entries(i).1);
                    },
                )
            }
        }
    }
}

impl std::fmt::Display for Spec {
    /// Prints the specification with every parameter, as [`Spec::parse`] reads it; the seed only if it is not the
    /// default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.family {
            Family::Stencil { name, size: [x, y, z], suffix, .. }
            | Family::System { name, size: [x, y, z], suffix, .. } => {
                write!(f, "{name}:")?;
                match *name {
                    "poisson1d" | "tridiag" => write!(f, "{x}")?,
                    "poisson2d" | "poisson2d9" | "convdiff2d" | "anisotropic2d" | "elasticity2d" | "system2d" => {
                        write!(f, "{x}x{y}")?
                    }
                    _ => write!(f, "{x}x{y}x{z}")?,
                }
                write!(f, "{suffix}")?;
            }
            Family::Banded { n, d } => write!(f, "banded:n={n},d={d}")?,
            Family::Gfem { size: [nx, ny], p, dim, form } => {
                match dim {
                    1 => write!(f, "gfem:n={nx},p={p}")?,
                    _ => write!(f, "gfem:n={nx}x{ny},p={p},dim=2")?,
                }
                if *form == Form::Mass {
                    write!(f, ",op=mass")?;
                }
            }
            Family::RandSpd { n, density, cond } => write!(f, "randspd:n={n},density={density},cond={cond}")?,
            Family::PowerLaw { n, alpha } => write!(f, "powerlaw:n={n},alpha={alpha}")?,
            Family::Random { n, nnz_per_row } => write!(f, "random:n={n},nnz_per_row={nnz_per_row}")?,
            Family::Electrostatic { n } => write!(f, "electrostatic:n={n}")?,
        }
        if self.seed == DEFAULT_SEED { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}
