//! Cases: matrices as data, read from `testdata/cases/*.toml`, which are part of the binary.
//!
//! A case has a `name`, a `why` and either explicit `triplets` with a `shape` or a `generator`. Generated numbers come
//! from a generator in this file (splitmix64), so a case is the same on every machine and with every version of any
//! crate.
//!
//! Reference: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use spandrel_formats::Real;
use spandrel_formats::hash::{STEP, splitmix64};

use crate::oracle::Data;

/// The files of `testdata/cases`, by name.
const FILES: [(&str, &str); 6] = [
    ("sizes.toml", include_str!("../testdata/cases/sizes.toml")),
    ("shapes.toml", include_str!("../testdata/cases/shapes.toml")),
    ("stencils.toml", include_str!("../testdata/cases/stencils.toml")),
    ("values.toml", include_str!("../testdata/cases/values.toml")),
    ("large.toml", include_str!("../testdata/cases/large.toml")),
    ("systems.toml", include_str!("../testdata/cases/systems.toml")),
];

/// A matrix as data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Names trials: lower case, digits, `-` and `.`.
    pub name: String,
    /// What would go unnoticed without this case.
    pub why: String,
    /// Rows and columns of explicit triplets.
    shape: Option<(usize, usize)>,
    /// Explicit entries (row, column, value), in any order, without duplicates.
    triplets: Option<Vec<(usize, usize, f64)>>,
    /// A pattern by rule.
    generator: Option<Generator>,
    /// The values of a generated pattern.
    #[serde(default)]
    values: Values,
    /// Rows from which all entries are removed.
    #[serde(default)]
    empty_rows: Vec<usize>,
    /// The formats to try; all if absent.
    only: Option<Vec<String>>,
    /// Formats that can store this matrix in principle, but refuse it for its size or fill. A trial fails if a listed
    /// format accepts the matrix, or if another one refuses it.
    #[serde(default)]
    refused_by: Vec<String>,
    /// Tried with few coefficients, and only by the release build.
    #[serde(default)]
    pub large: bool,
    /// Also tried with NaN and infinities in x, behind gates, recorded, and with a partial mask. The matrix is square.
    #[serde(default)]
    pub special: bool,
    /// How each solver must end on the system A x = b.
    #[serde(default)]
    pub solve: Vec<Solve>,
}

/// A solve and how it must end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solve {
    /// `cg`, `bicgstab` or `gmres`.
    pub solver: String,
    /// `identity` or `jacobi`.
    pub precond: String,
    /// The status of the outcome, or `refused` for an error before the first iteration.
    pub status: String,
    /// The scalar that a breakdown must name, by its symbol.
    pub quantity: Option<String>,
    /// The limit of iterations.
    pub max_iters: Option<usize>,
    /// One value for every element of b; random numbers if absent.
    pub rhs: Option<f64>,
    /// The element types; both if absent.
    #[serde(rename = "type")]
    pub element: Option<String>,
}

/// A pattern by rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Generator {
    /// All places of the given diagonals.
    Diagonals { nrows: usize, ncols: usize, offsets: Vec<i64> },
    /// Rows of the given lengths in turn, with columns spread at random.
    Rows { nrows: usize, ncols: usize, lengths: Vec<usize> },
    /// Row lengths of a power law, `longest / (1 + rank)^exponent`, ranks shuffled.
    PowerLaw { n: usize, longest: usize, exponent: f64 },
    /// All places.
    Full { nrows: usize, ncols: usize },
    /// A full row, a full column and the diagonal.
    Arrow { nrows: usize, ncols: usize, row: usize, col: usize },
    /// A stencil (nearest neighbours, or the whole neighbourhood) on a grid, the first dimension fastest.
    Stencil { grid: Vec<usize>, corners: bool },
    /// What a generator of `spandrel-formats` makes from a specification.
    Spec { spec: String },
}

/// Values of generated entries.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Values {
    /// Uniform in [-1, 1).
    #[default]
    Unit,
    /// Uniform in [-1, 0).
    Negative,
    /// Random signs and magnitudes; magnitudes from 1e-30 to 1e30, uniform in the exponent.
    Wide,
    /// As `unit`, but every third entry is an explicit zero, alternately +0 and -0.
    Zeros,
    /// Minus one off the diagonal, and on it the number of entries of the row. This is symmetric and positive definite
    /// for symmetric patterns with a full diagonal.
    Laplace,
}

/// A stream of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        let bits = splitmix64(self.0);
        self.0 = self.0.wrapping_add(STEP);
        bits
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound.max(1) as u64) as usize
    }
}

/// `len` numbers of either sign with magnitudes in [1/2, 2), so that no product with them underflows or vanishes.
pub fn numbers<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut stream = Stream::new(seed);
    (0..len)
        .map(|_| {
            let magnitude = 0.5 + 1.5 * stream.unit();
            T::from_f64(if stream.bits() & 1 == 0 { magnitude } else { -magnitude })
        })
        .collect()
}

/// A seed from a name (FNV-1a).
pub fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// All cases of the suite.
///
/// # Errors
/// An error in words: a file that does not parse, a name that is used twice or badly spelt, a case without a reason.
pub fn all() -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        case: Vec<Case>,
    }
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    let mut order = Vec::new();
    for (file, text) in FILES {
        let File { case } = toml::from_str(text).with_context(|| format!("testdata/cases/{file}"))?;
        for case in case {
            let name = case.name.clone();
            let spelt = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
            ensure!(spelt && !name.is_empty(), "{file}: {name:?}: lower case, digits, '-' and '.' only");
            ensure!(case.why.len() > 10, "{file}: {name}: say why the case is there");
            let explicit = case.triplets.is_some() && case.shape.is_some() && case.generator.is_none();
            let generated = case.triplets.is_none() && case.shape.is_none() && case.generator.is_some();
            ensure!(explicit || generated, "{file}: {name}: either shape and triplets, or a generator");
            order.push(name.clone());
            ensure!(cases.insert(name.clone(), case).is_none(), "{file}: the name {name} is used twice");
        }
    }
    Ok(order.into_iter().filter_map(|name| cases.remove(&name)).collect())
}

impl Case {
    /// Whether to try `format`.
    pub fn wants(&self, format: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|f| f == format))
    }

    /// Whether `format` is expected to refuse the matrix.
    pub fn refused_by(&self, format: &str) -> bool {
        self.refused_by.iter().any(|f| f == format)
    }

    /// The seed of everything random about the case.
    pub fn seed(&self) -> u64 {
        seed(&self.name)
    }

    /// The matrix in the element type `T`, with operands.
    ///
    /// # Errors
    /// Triplets outside the shape or given twice; a specification that no generator knows.
    pub fn data<T: Real>(&self) -> Result<Data<T>> {
        let (shape, mut triplets) = self.pattern()?;
        triplets.retain(|&(i, _, _)| !self.empty_rows.contains(&i));
        triplets.sort_by_key(|&(i, j, _)| (i, j));
        if self.generator.is_some() {
            self.fill(&mut triplets);
        }
        for pair in triplets.windows(2) {
            ensure!((pair[0].0, pair[0].1) != (pair[1].0, pair[1].1), "{}: {:?} is given twice", self.name, pair[0]);
        }
        if let Some(&(i, j, _)) = triplets.iter().find(|&&(i, j, _)| i >= shape.0 || j >= shape.1) {
            bail!("{}: entry ({i}, {j}) is outside the matrix", self.name);
        }
        let triplets = triplets.into_iter().map(|(i, j, v)| (i as u32, j as u32, T::from_f64(v))).collect();
        Ok(Data::new(shape, triplets, self.seed()))
    }

    fn pattern(&self) -> Result<((usize, usize), Vec<(usize, usize, f64)>)> {
        let mut stream = Stream::new(self.seed());
        let mut places = Vec::new();
        let shape = match self.generator.as_ref() {
            None => return Ok((self.shape.unwrap_or_default(), self.triplets.clone().unwrap_or_default())),
            Some(Generator::Diagonals { nrows, ncols, offsets }) => {
                for i in 0..*nrows {
                    let cols = offsets.iter().map(|o| i as i64 + o).filter(|&j| j >= 0 && j < *ncols as i64);
                    places.extend(cols.map(|j| (i, j as usize, 1.0)));
                }
                (*nrows, *ncols)
            }
            Some(Generator::Rows { nrows, ncols, lengths }) => {
                for i in 0..*nrows {
                    spread(&mut stream, i, lengths[i % lengths.len()], *ncols, &mut places);
                }
                (*nrows, *ncols)
            }
            Some(Generator::PowerLaw { n, longest, exponent }) => {
                let mut rank: Vec<usize> = (0..*n).collect();
                (1..*n).rev().for_each(|i| rank.swap(i, stream.below(i + 1)));
                for (i, rank) in rank.into_iter().enumerate() {
                    let length = (*longest as f64 / (1.0 + rank as f64).powf(*exponent)).ceil() as usize;
                    spread(&mut stream, i, length, *n, &mut places);
                }
                (*n, *n)
            }
            Some(Generator::Full { nrows, ncols }) => {
                places.extend((0..*nrows).flat_map(|i| (0..*ncols).map(move |j| (i, j, 1.0))));
                (*nrows, *ncols)
            }
            Some(Generator::Arrow { nrows, ncols, row, col }) => {
                let all = (0..*nrows).flat_map(|i| (0..*ncols).map(move |j| (i, j, 1.0)));
                places.extend(all.filter(|&(i, j, _)| i == *row || j == *col || i == j));
                (*nrows, *ncols)
            }
            Some(Generator::Stencil { grid, corners }) => {
                stencil(grid, *corners, &mut places);
                let n = grid.iter().product();
                (n, n)
            }
            Some(Generator::Spec { spec }) => {
                let csr = crate::generated(spec).with_context(|| self.name.clone())?;
                for i in 0..csr.nrows() {
                    let (cols, values) = csr.row(i);
                    places.extend(cols.iter().zip(values).map(|(&j, &v)| (i, j as usize, v)));
                }
                (csr.nrows(), csr.ncols())
            }
        };
        Ok((shape, places))
    }

    fn fill(&self, triplets: &mut [(usize, usize, f64)]) {
        if matches!(self.generator, Some(Generator::Spec { .. })) {
            return;
        }
        let mut stream = Stream::new(!self.seed());
        let mut lengths = BTreeMap::new();
        if self.values == Values::Laplace {
            triplets.iter().for_each(|t| *lengths.entry(t.0).or_insert(0.0) += 1.0);
        }
        for (k, (i, j, value)) in triplets.iter_mut().enumerate() {
            let unit = stream.unit();
            let signed = 2.0 * unit - 1.0;
            *value = match self.values {
                Values::Unit => signed,
                Values::Negative => -unit,
                Values::Wide => signed.signum() * 10f64.powf(60.0 * stream.unit() - 30.0),
                Values::Zeros if k % 6 == 2 => 0.0,
                Values::Zeros if k % 6 == 5 => -0.0,
                Values::Zeros => signed,
                Values::Laplace if i == j => lengths[i],
                Values::Laplace => -1.0,
            };
        }
    }
}

/// `length` distinct columns of row `i`, one in each of as many equal strips.
fn spread(stream: &mut Stream, i: usize, length: usize, ncols: usize, places: &mut Vec<(usize, usize, f64)>) {
    let length = length.min(ncols);
    for k in 0..length {
        let (begin, end) = (k * ncols / length, (k + 1) * ncols / length);
        places.push((i, begin + stream.below(end - begin), 1.0));
    }
}

fn stencil(grid: &[usize], corners: bool, places: &mut Vec<(usize, usize, f64)>) {
    let sides = [grid.first(), grid.get(1), grid.get(2)].map(|side| side.copied().unwrap_or(1) as i64);
    let step = -1..=1i64;
    for z in 0..sides[2] {
        for y in 0..sides[1] {
            for x in 0..sides[0] {
                for (dz, dy, dx) in step.clone().flat_map(|dz| {
                    let step = -1..=1i64;
                    step.clone().flat_map(move |dy| (-1..=1i64).map(move |dx| (dz, dy, dx)))
                }) {
                    let near = dx.abs() + dy.abs() + dz.abs() <= 1;
                    let inside = [(x + dx, sides[0]), (y + dy, sides[1]), (z + dz, sides[2])];
                    if (near || corners) && inside.iter().all(|&(at, side)| at >= 0 && at < side) {
                        let number = |x, y, z| ((z * sides[1] + y) * sides[0] + x) as usize;
                        places.push((number(x, y, z), number(x + dx, y + dy, z + dz), 1.0));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_builds_in_both_types() {
        for case in all().unwrap().iter().filter(|case| !case.large) {
            let data = case.data::<f64>().unwrap();
            let csr = data.csr().unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(csr.values().len(), data.triplets.len());
            assert_eq!(case.data::<f32>().unwrap().triplets.len(), data.triplets.len(), "{}", case.name);
            assert!(case.only.iter().flatten().chain(&case.refused_by).all(|f| crate::FORMATS.contains(&f.as_str())));
        }
    }

    #[test]
    fn a_stencil_by_hand() {
        let mut places = Vec::new();
        stencil(&[2, 2], false, &mut places);
        places.sort_by_key(|&(i, j, _)| (i, j));
        let pairs: Vec<_> = places.iter().map(|&(i, j, _)| (i, j)).collect();
        assert_eq!(
            pairs,
            [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 3), (2, 0), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]
        );
    }
}
