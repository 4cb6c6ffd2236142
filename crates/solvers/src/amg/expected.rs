//! Estimates whether CG with algebraic multigrid finishes before CG with IC(0), set-up included.
//!
//! There is an estimate only for symmetric matrices that look like a scalar elliptic problem. On average over a sample
//! of rows, positive off-diagonal entries must be a small share of the row, and the off-diagonal magnitudes must not
//! exceed the diagonal by more than that share explains. Systems of equations and plates fail both tests. Wider limits
//! admit the systems that the cycle may suit ([`may_suit`]); for these the caller says how many cycles it expects.
//!
//! Iterations with IC(0) grow with the radius of the matrix's graph: the number of steps from its middle to its rim.
//! Breadth-first searches from a few rows count the steps k that reach some thousand rows. In d dimensions the number
//! of rows grows as k^d, so the radius of the whole graph can be extrapolated. Meshes of triangles and tetrahedra take
//! about [`PER_STEP`] iterations per step. A diagonal that exceeds the sum of the off-diagonal magnitudes bounds the
//! iterations from above, as in [`crate::multigrid::Expected`]. If the matrix may be a grid, ask that estimate first.
//!
//! Times follow from the device's [`Profile`]: bytes over its rate, plus a cost per level and per call.

use std::convert::Infallible;

use rayon::prelude::*;
use spandrel_formats::{Csr, Ordinal, Profile, Real};

use super::AmgOptions;

/// The number of sampled rows, and of rows from which the graph is searched.
const SAMPLE: usize = 1 << 14;
const SEEDS: usize = 5;
/// A search records its number of steps when it has reached these numbers of rows.
const NEAR: usize = 256;
const FAR: usize = 4096;
/// Iterations with IC(0) per step of the radius: 1.2 on boxes, 4 to 6 on `electrostatic` (record/cpu-amg.txt), 4.6 on
/// tetrahedra with slivers.
const PER_STEP: f64 = 4.0;
/// Time of a triangular solve with scattered rows, over the time in which one unit moves its bytes.
const SCATTERED: f64 = 2.5;
/// Iterations in CG's bound for diagonal scaling per iteration with IC(0), as in [`crate::multigrid::Expected`].
const GAIN: f64 = 8.0;
/// Iterations with the V-cycle.
const CYCLES: f64 = 18.0;
/// Per entry of the matrix: the entries of all operators, and those of all prolongations and restrictions.
const COMPLEXITY: f64 = 1.4;
const BETWEEN: f64 = 1.2;
/// A typical number of grids, and the calls of a cycle on each.
const GRIDS: f64 = 5.0;
const CALLS: f64 = 18.0;
/// The kernels of a set-up take this many times as long to load as those of geometric multigrid. The time for the
/// kernels of IC(0) is subtracted from both (record/h100-first-solves.txt).
const LOADED: f64 = 3.0;
/// With fewer rows, coarse grids are not worth their set-up.
const FEWEST: usize = 20_000;
/// Limits of the positive share of the off-diagonal magnitudes, on average over rows, of scalar problems and of any
/// that the cycle may suit: 0.3 and 0.33 on rotated anisotropy and elasticity, from 0.38 on plates and shells.
const POSITIVE: f64 = 0.2;
const POSITIVE_AT_MOST: f64 = 0.35;

/// Sums over a sample of a matrix's rows. They are integers, so the order of the rows does not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmgSample {
    /// The bits of the smallest surplus of the diagonal over the off-diagonal magnitudes, as a share of the diagonal.
    /// It is at least 0.
    surplus: u64,
    /// In units of 1 / [`AmgSample::UNIT`]: the positive shares of the off-diagonal magnitudes, and the ratios of these
    /// magnitudes to the diagonal.
    positive: u64,
    weight: u64,
    rows: u64,
    /// Rows without a positive diagonal entry.
    unfit: u64,
}

impl Default for AmgSample {
    fn default() -> Self {
        Self { surplus: 1f64.to_bits(), positive: 0, weight: 0, rows: 0, unfit: 0 }
    }
}

impl AmgSample {
    const UNIT: f64 = (1u64 << 32) as f64;
    /// A larger ratio of the off-diagonal magnitudes to the diagonal counts as this one. One such row exceeds the limit
    /// on the average.
    const HEAVIEST: f64 = (1u64 << 16) as f64;

    /// Every how many rows of a matrix with `n` rows belong to the sample, from row 0 on. `None` if the matrix is so
    /// small that coarse grids are not worth their set-up.
    pub fn stride(n: usize) -> Option<usize> {
        (n >= FEWEST).then(|| n.div_ceil(SAMPLE))
    }

    /// Adds a row of the sample.
    pub fn add<T: Real>(&mut self, row: usize, (cols, values): (&[Ordinal], &[T])) {
        let (mut diagonal, mut beside, mut above) = (0.0, 0.0, 0.0);
        for (&j, v) in cols.iter().zip(values) {
            let v = v.as_f64();
            if j as usize == row {
                diagonal = v;
            } else {
                beside += v.abs();
                above += v.max(0.0);
            }
        }
        self.rows += 1;
        if diagonal.is_nan() || diagonal <= 0.0 {
            self.unfit += 1;
            return;
        }
        let counted = |ratio: f64| (ratio.min(Self::HEAVIEST) * Self::UNIT) as u64;
        self.weight += counted(beside / diagonal);
        self.positive += if beside > 0.0 { counted(above / beside) } else { 0 };
        // The bits of numbers that are not negative are ordered as the numbers are.
        self.surplus = self.surplus.min(((diagonal - beside) / diagonal).max(0.0).to_bits());
    }

    /// The sample as numbers, to send it to other ranks.
    pub fn numbers(&self) -> [u64; 5] {
        [self.surplus, self.positive, self.weight, self.rows, self.unfit]
    }

    /// Adds rows that another rank has sampled.
    pub fn add_numbers(&mut self, [surplus, positive, weight, rows, unfit]: [u64; 5]) {
        self.surplus = self.surplus.min(surplus);
        self.positive += positive;
        self.weight += weight;
        self.rows += rows;
        self.unfit += unfit;
    }

    /// Every row of the sample of a matrix; `None` for a small one.
    fn of<T: Real>(a: &Csr<T>) -> Option<Self> {
        let n = a.nrows();
        let stride = Self::stride(n).filter(|_| a.ncols() == n)?;
        let add = |mut sample: Self, row: usize| {
            sample.add(row, a.row(row));
            sample
        };
        let and = |mut sample: Self, other: Self| {
            sample.add_numbers(other.numbers());
            sample
        };
        let rows = (0..n).into_par_iter().step_by(stride);
        Some(rows.fold(Self::default, add).reduce(Self::default, and))
    }

    /// Returns true if at most this share of the off-diagonal magnitudes is positive, on average, and the diagonal is
    /// as large as that of rows which sum to zero. The diagonal is then the negative share of the magnitudes less the
    /// positive one.
    fn is_elliptic(&self, positive: f64) -> bool {
        let within = |sum: u64, limit: f64| sum as f64 / Self::UNIT <= limit * self.rows as f64;
        self.unfit == 0 && within(self.positive, positive) && within(self.weight, 1.0 / (1.0 - 2.0 * positive))
    }

    /// The smallest surplus. `None` unless [`AmgSample::is_elliptic`].
    fn surplus(&self, positive: f64) -> Option<f64> {
        self.is_elliptic(positive).then(|| f64::from_bits(self.surplus))
    }
}

/// What the estimate needs to know of a symmetric matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgFacts {
    n: usize,
    nnz: u64,
    surplus: f64,
    radius: f64,
}

/// The extent of a graph, by breadth-first searches from a few rows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    /// Steps from the middle of the graph to its rim.
    radius: f64,
    /// The number of rows within k steps grows as k to this power. At least 1.
    dimension: f64,
}

impl Extent {
    /// The median over the searches. `None` if most found no sense of distance.
    fn of<E>(n: usize, mut beside: impl FnMut(&[usize]) -> Result<Vec<usize>, E>) -> Result<Option<Self>, E> {
        let mut found = Vec::new();
        for seed in 0..SEEDS {
            found.extend(Self::around((2 * seed + 1) * n / (2 * SEEDS), n, &mut beside)?);
        }
        found.sort_by(|a, b| a.radius.total_cmp(&b.radius));
        Ok(found.get(found.len() / 2).copied())
    }

    /// Extrapolates in how many steps all rows would be reached from this one, from the steps that reach the first few
    /// thousand. `None` if fewer rows are connected, or if the graph has no sense of distance.
    fn around<E>(
        seed: usize,
        n: usize,
        mut beside: impl FnMut(&[usize]) -> Result<Vec<usize>, E>,
    ) -> Result<Option<Self>, E> {
        // One bit per row.
        let mut seen = vec![0u64; n.div_ceil(64)];
        let mut is_new = |row: usize| {
            let (word, bit) = (&mut seen[row / 64], 1 << (row % 64));
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        };
        is_new(seed);
        let (mut rim, mut reached) = (vec![seed], 1);
        let (mut steps, mut near) = (0.0, None);
        while reached < FAR {
            let mut next = beside(&rim)?;
            next.retain(|&row| is_new(row));
            if next.is_empty() {
                return Ok(None);
            }
            reached += next.len();
            (rim, steps) = (next, steps + 1.0);
            if near.is_none() && reached >= NEAR {
                near = Some((steps, reached as f64));
            }
        }
        let Some((first, few)) = near else { return Ok(None) };
        let reached = reached as f64;
        // Both numbers of rows were reached in the same step, as in the graph of a network: there is no sense of
        // distance.
        let growth = f64::ln(steps / first);
        if growth <= 0.0 {
            return Ok(None);
        }
        let grown = f64::ln(reached / few);
        let radius = steps * (n as f64 / reached).max(1.0).powf(1.0 / (grown / growth).max(1.0));
        // k steps on a grid reach 2 k + 1 points along an axis.
        let dimension = (grown / f64::ln((steps + 0.5) / (first + 0.5))).max(1.0);
        Ok(Some(Self { radius, dimension }))
    }
}

/// Returns true if algebraic multigrid may suit a symmetric matrix that is no scalar elliptic problem, such as one of
/// elasticity. How well shows only when it is tried. False for a small matrix. Reads a sample of the rows.
pub fn may_suit<T: Real>(a: &Csr<T>) -> bool {
    AmgSample::of(a).is_some_and(|sample| sample.is_elliptic(POSITIVE_AT_MOST))
}

/// The number of rows that separate a graph of a mesh into two halves, about: n^((d - 1) / d) of n points in d
/// dimensions, each with its unknowns. A complete factorisation ends with a dense matrix of this size. `None` for a
/// graph without a sense of distance. Searches from a few rows.
pub fn separator<T: Real>(a: &Csr<T>, unknowns: usize) -> Option<f64> {
    let n = a.nrows().min(a.ncols());
    let Ok(extent) = Extent::of(n, |rows| beside(a, rows));
    let points = n as f64 / unknowns.max(1) as f64;
    extent.map(|Extent { dimension, .. }| points.powf(1.0 - 1.0 / dimension) * unknowns as f64)
}

impl AmgFacts {
    /// Reads a sample of the rows. `None` for a small matrix and for one that does not look like a scalar elliptic
    /// problem.
    pub fn of<T: Real>(a: &Csr<T>) -> Option<Self> {
        let sample = AmgSample::of(a)?;
        let Ok(facts) = Self::by((a.nrows(), a.nnz() as u64), &sample, |rows| beside(a, rows));
        facts
    }

    /// The facts of a matrix that is no scalar elliptic problem but [`may_suit`] the cycle. `None` for any other.
    fn of_system<T: Real>(a: &Csr<T>) -> Option<Self> {
        let sample = AmgSample::of(a).filter(|sample| !sample.is_elliptic(POSITIVE))?;
        let surplus = sample.surplus(POSITIVE_AT_MOST)?;
        let Ok(facts) = Self::around((a.nrows(), a.nnz() as u64), surplus, |rows| beside(a, rows));
        facts
    }

    /// As [`AmgFacts::of`], for a matrix with this number of rows and entries that was sampled already. `beside`
    /// returns the columns of some rows, in any order.
    ///
    /// # Errors
    /// Those of `beside`.
    pub fn by<E>(
        (n, nnz): (usize, u64),
        sample: &AmgSample,
        beside: impl FnMut(&[usize]) -> Result<Vec<usize>, E>,
    ) -> Result<Option<Self>, E> {
        sample.surplus(POSITIVE).map_or(Ok(None), |surplus| Self::around((n, nnz), surplus, beside))
    }

    fn around<E>(
        (n, nnz): (usize, u64),
        surplus: f64,
        beside: impl FnMut(&[usize]) -> Result<Vec<usize>, E>,
    ) -> Result<Option<Self>, E> {
        Ok(Extent::of(n, beside)?.map(|Extent { radius, .. }| Self { n, nnz, surplus, radius }))
    }
}

/// The expected time of CG with either preconditioner. Algebraic multigrid is expected to take V-cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgExpected {
    /// Iterations with IC(0).
    pub iterations: f64,
    /// Milliseconds with IC(0), set-up included.
    pub ic0: f64,
    /// Milliseconds with algebraic multigrid, set-up included.
    pub amg: f64,
}

impl AmgExpected {
    /// Estimates both times for a symmetric matrix on a device with this profile.
    ///
    /// The caller guarantees the symmetry. Returns `None` for a small matrix and for one that does not look like a
    /// scalar elliptic problem. Reads a sample of the rows.
    pub fn of<T: Real>(a: &Csr<T>, options: &AmgOptions, profile: &Profile) -> Option<Self> {
        AmgFacts::of(a).map(|facts| Self::by::<T>(facts, options, profile))
    }

    /// As [`AmgExpected::of`], for a matrix that is no scalar elliptic problem but that the cycle may suit
    /// ([`may_suit`]), and for this number of cycles. `None` for any other.
    pub fn of_system<T: Real>(a: &Csr<T>, cycles: f64, options: &AmgOptions, profile: &Profile) -> Option<Self> {
        AmgFacts::of_system(a).map(|facts| Self::after::<T>(facts, cycles, options, profile))
    }

    /// As [`AmgExpected::of`], for a matrix with elements of type `T` whose facts are known.
    pub fn by<T: Real>(facts: AmgFacts, options: &AmgOptions, profile: &Profile) -> Self {
        Self::after::<T>(facts, CYCLES, options, profile)
    }

    fn after<T: Real>(facts: AmgFacts, cycles: f64, options: &AmgOptions, profile: &Profile) -> Self {
        let AmgFacts { n, nnz, surplus, radius } = facts;
        let bound = (2.0 / surplus).sqrt() / 2.0 * (2.0f64 / 1e-8).ln() / GAIN;
        let iterations = (PER_STEP * radius).min(bound).max(1.0);
        let amg = Self::whole::<T>((n, nnz), cycles, options, profile);
        let (n, nnz, element) = (n as f64, nnz as f64, T::BYTES as f64);
        let Profile { memory, iteration, host, .. } = profile;
        let byte = memory.nanoseconds_per_byte / memory.units.max(1) as f64;
        let product = (4.0 + element) * nnz;
        let common = product + 13.0 * element * n;
        // Triangles of a general pattern seldom gain from more than one unit. Their number of levels lies between that
        // of a band and that of a plane.
        let triangles = SCATTERED * product * memory.nanoseconds_per_byte + 8.0 * n.sqrt() * iteration.level;
        let ic0 = iterations * (common * byte + triangles + 8.0 * iteration.call) + (host.entry + host.term) * nnz;
        Self { iterations, ic0: ic0 * 1e-6, amg }
    }

    /// Milliseconds of CG with algebraic multigrid that needs this many cycles, set-up included, for a matrix with this
    /// number of rows and entries. The cycle is in f32.
    pub fn whole<T: Real>((n, nnz): (usize, u64), cycles: f64, options: &AmgOptions, profile: &Profile) -> f64 {
        let (n, nnz, element) = (n as f64, nnz as f64, T::BYTES as f64);
        let Profile { memory, iteration, .. } = profile;
        let byte = memory.nanoseconds_per_byte / memory.units.max(1) as f64;
        let product = (4.0 + element) * nnz;
        let common = product + 13.0 * element * n;
        let smoothing = 2.0 * options.degree as f64 * COMPLEXITY;
        let inner = size_of::<f32>() as f64;
        let cycle = (smoothing + BETWEEN) * (4.0 + inner) * nnz
            + COMPLEXITY * (10.0 + 12.0 * options.degree as f64) * inner * n;
        // A device with its own memory receives the matrix, and makes everything else there.
        let setup = iteration.coarsening + iteration.coarsening_shared / memory.units.max(1) as f64;
        let whole = cycles * ((common + cycle) * byte + GRIDS * CALLS * iteration.call)
            + setup * nnz
            + LOADED * iteration.first
            + product * iteration.bus;
        whole * 1e-6
    }

    /// Returns true if algebraic multigrid should finish first.
    pub fn pays(&self) -> bool {
        self.amg < self.ic0
    }
}

/// The columns of some rows.
fn beside<T: Real>(a: &Csr<T>, rows: &[usize]) -> Result<Vec<usize>, Infallible> {
    Ok(rows.iter().flat_map(|&row| a.row(row).0).map(|&column| column as usize).collect())
}

#[cfg(test)]
mod tests {
    use spandrel_formats::generate;

    use super::*;

    fn expected(spec: &str) -> Option<AmgExpected> {
        let mut profile = Profile::reference();
        (profile.memory.units, profile.host.threads) = (2, 2);
        AmgExpected::of(&generate::csr::<f64>(spec).expect(spec), &AmgOptions::default(), &profile)
    }

    #[test]
    fn the_radius_is_that_of_the_whole_graph() {
        // Balls of radius k have 4/3 k^3 points of a box and 2 k^2 of a square, far from its sides.
        for (spec, seed, radius_of_all) in [("poisson3d:64", 133_152, 58.0), ("poisson2d:512", 131_328, 362.0)] {
            let a = generate::csr::<f64>(spec).expect(spec);
            let Ok(found) = Extent::around(seed, a.nrows(), |rows| beside(&a, rows));
            let found = found.expect(spec);
            assert!((found.radius / radius_of_all - 1.0).abs() < 0.1, "{spec}: {found:?}");
        }
    }

    #[test]
    fn a_separator_is_a_section_of_the_mesh() {
        for (spec, unknowns, section) in
            [("poisson3d:40", 1, 1600.0), ("poisson2d:300", 1, 300.0), ("elasticity3d:30", 3, 2700.0)]
        {
            let found = separator(&generate::csr::<f64>(spec).expect(spec), unknowns).expect(spec);
            assert!(found > 0.6 * section && found < 1.5 * section, "{spec}: {found}");
        }
    }

    #[test]
    fn large_meshes_pay_and_other_matrices_do_not() {
        assert!(expected("electrostatic:n=60000").expect("large").pays());
        assert_eq!(expected("electrostatic:n=10000"), None);
        // On a small mesh the gain is less than the time of a first set-up on a GPU.
        let mut far = Profile::reference();
        (far.memory.units, far.memory.nanoseconds_per_byte) = (1, far.memory.nanoseconds_per_byte / 100.0);
        (far.iteration.coarsening, far.iteration.coarsening_shared, far.iteration.first) = (2.0, 0.0, 2e7);
        let a = generate::csr::<f64>("electrostatic:n=60000").expect("a mesh");
        assert!(!AmgExpected::of(&a, &AmgOptions::default(), &far).expect("a mesh").pays());
        // Two or three equations per point.
        assert_eq!(expected("elasticity3d:20"), None);
        assert!(may_suit(&generate::csr::<f64>("elasticity3d:20").expect("a cube")));
        assert!(!may_suit(&generate::csr::<f64>("elasticity3d:10").expect("a small cube")));
        assert!(!may_suit(&generate::csr::<f64>("randspd:n=30000,density=1e-3,cond=100").expect("a network")));
        // A graph without neighbourhoods: a search reaches everything at once.
        assert_eq!(expected("randspd:n=30000,density=1e-3,cond=100"), None);
    }

    #[test]
    fn a_dominant_diagonal_needs_no_cycle() {
        let mut a = generate::csr::<f64>("poisson2d:200").expect("a plane");
        for row in 0..a.nrows() {
            let at = a.row_ptr()[row] as usize + a.row(row).0.partition_point(|&j| (j as usize) < row);
            a.values_mut()[at] += 2.0;
        }
        let found = AmgExpected::of(&a, &AmgOptions::default(), &Profile::reference()).expect("a plane");
        assert!(!found.pays() && found.iterations < 10.0, "{found:?}");
    }
}
