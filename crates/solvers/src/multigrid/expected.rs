//! Predicts whether CG with the multigrid cycle finishes before CG with IC(0), set-up included, and for which matrices
//! a prediction is safe.
//!
//! A matrix is safe if it is symmetric with a positive diagonal, no positive entry off it, and weakly dominant rows. It
//! is then positive semidefinite (Gershgorin), and so are its coarse operators P^T A P. So the cycle is symmetric and
//! positive for any coefficients. In the norm of A a cycle reduces an error at least as much as its own Gauss-Seidel
//! steps do. Interpolation along the axes needs off-diagonal entries that are not positive. Couplings that are strong
//! only across the axes, which point smoothers do not treat, appear as mixed moments and are refused.
//!
//! Iterations with IC(0) follow from CG's bound sqrt(k) / 2 ln(2 / eps) for diagonal scaling, with k = 2 / lambda. The
//! smoothest function on the grid gives lambda = dominance + sum over the axes of pi^2 M / (2 (n + 1)^2) / D, with the
//! moments M and the diagonal D. The bound is divided by [`GAIN`], and by more if one axis couples much more strongly
//! than every other, because IC(0) is nearly exact along it. Iterations with the cycle: [`CYCLES`].
//!
//! Times follow from the device's [`Profile`]: bytes over its rate; on a GPU also calls, and one step of a sweep per
//! level. The host's set-up of a preconditioner takes [`SETUP`] times the time to move its bytes. On a CPU the same
//! threads do both, so the ratio does not depend on them. A GPU waits for the host's threads and the bus. If the matrix
//! suits polynomials ([`super::StencilMultigrid`]), these smooth, and the set-up runs on the device.
//!
//! References: Axelsson, Iterative Solution Methods, 1994 (CG's bound); Trottenberg, Oosterlee, Schuller, Multigrid,
//! 2001, section 4.

use spandrel_formats::{Coarsening, Csr, Grid, Moments, Neighbours, NotAGrid, Profile, Real, Stencil};

use super::hierarchy::{SAMPLES, WEAK, strong};

/// The number of iterations that CG's bound for diagonal scaling predicts for each iteration with IC(0): 5.6 to 9 on
/// squares and cubes of 16 to 512 points per side (record/cpu-multigrid.txt).
const GAIN: f64 = 8.0;
/// Below this ratio of the second strongest axis to the strongest one the number is larger, as the ratio to minus this
/// power. Measured: 9 at a tenth (5 in space), 34 at a thousandth.
const LINE: [f64; 2] = [0.25, 0.25];
/// Iterations with the cycle for the same eight digits: 4 to 6 were measured; one is added.
const CYCLES: f64 = 7.0;
/// The host's work to set up a preconditioner, in units of the time to move its bytes at one core's share of the
/// bandwidth: 17 to 26 for the cycle.
const SETUP: f64 = 20.0;
/// Calls of a cycle per grid, on the coarsest grid, and with IC(0).
const CALLS: [f64; 3] = [9.0, 2.0, 2.0];
/// For a cycle with polynomials of degree 2: passes over a grid's vectors besides its four products; calls per grid;
/// and the time of a grid's set-up (0.7 ms) in calls (record/h200-multigrid.jsonl).
const POLYNOMIAL: [f64; 3] = [41.0, 13.0, 350.0];
/// A CPU's set-up of that cycle, in units of the time to move its bytes: 3.4 to 6.3 (record/cpu-multigrid.txt).
const POLYNOMIAL_SETUP: f64 = 5.0;
/// The most rows of a coarsest grid with an inverse, and nanoseconds of the inverse per row to the third power, on a
/// CPU.
const MOST_INVERTED: f64 = super::stencil::COARSEST as f64;
const INVERSE: f64 = 0.3;
/// The tolerance for which iterations are counted.
const EPSILON: f64 = 1e-8;

/// What the prediction needs to know of a symmetric matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct GridFacts {
    /// The grid of the matrix.
    pub grid: Grid,
    /// Number of entries.
    pub nnz: u64,
    /// [`Csr::dominance`].
    pub dominance: f64,
    /// The moments of some of its rows.
    pub moments: Moments,
}

impl GridFacts {
    /// Passes over the entries a few times in parallel, and looks at a sample of rows.
    ///
    /// # Errors
    /// [`NotExpected`] with the reason why there is no prediction.
    pub fn of<T: Real>(a: &Csr<T>) -> Result<Self, NotExpected> {
        let dominance = a.dominance().ok_or(NotExpected::NotDominant)?;
        let grid = Grid::detect(a)?;
        let moments = Stencil::of(&grid).moments(a, SAMPLES).map_err(|_| NotExpected::NotDominant)?;
        Ok(Self { grid, nnz: a.nnz() as u64, dominance, moments })
    }
}

/// The predicted time of CG with either preconditioner.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The grid of the matrix.
    pub grid: Grid,
    /// Iterations with IC(0).
    pub iterations: f64,
    /// Milliseconds with IC(0), set-up included.
    pub ic0: f64,
    /// Milliseconds with the cycle, set-up included.
    pub mg: f64,
}

/// The reason why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpected {
    /// The matrix is not a grid.
    #[error(transparent)]
    NotAGrid(#[from] NotAGrid),
    /// A positive entry off the diagonal, or a row that is not dominant.
    #[error("an entry off the diagonal is positive, or a row is not diagonally dominant")]
    NotDominant,
    /// Couplings across the axes.
    #[error("couplings along diagonals of the grid are strong")]
    Askew,
    /// Too few points for two grids.
    #[error("the grid has one level")]
    Small,
}

impl Expected {
    /// Predicts both times for a symmetric matrix (which the caller has checked) on a device with this profile.
    ///
    /// It passes over the entries a few times in parallel and looks at a sample of rows.
    ///
    /// # Errors
    /// [`NotExpected`] with the reason.
    pub fn of<T: Real>(a: &Csr<T>, profile: &Profile) -> Result<Self, NotExpected> {
        Self::by::<T>(GridFacts::of(a)?, profile)
    }

    /// As [`Expected::of`], for a matrix with elements of type `T` whose facts are known.
    ///
    /// # Errors
    /// [`NotExpected`] with the reason.
    pub fn by<T: Real>(facts: GridFacts, profile: &Profile) -> Result<Self, NotExpected> {
        let GridFacts { grid, nnz, dominance, moments } = facts;
        let mut stencil = Stencil::of(&grid);
        let size = stencil.size();
        // Per row, relative to the diagonal.
        let second = moments.second.map(|row| row.map(|moment| moment / moments.diagonal));
        let mut axes: [f64; 3] = std::array::from_fn(|k| second[k][k]);
        // The eigenvalues of a 2 x 2 block are as (1 - r) to (1 + r).
        let skew = |(k, l): (usize, usize)| second[k][l].abs() / (axes[k] * axes[l]).sqrt();
        if [(0, 1), (0, 2), (1, 2)].into_iter().any(|pair| (1.0 - skew(pair)) / (1.0 + skew(pair)) < WEAK) {
            return Err(NotExpected::Askew);
        }
        let smooth = |k: usize| axes[k] * std::f64::consts::PI.powi(2) / (2.0 * (size[k] as f64 + 1.0).powi(2));
        let lambda = dominance + (0..3).filter(|&k| size[k] > 1).map(smooth).sum::<f64>();
        let first = strong(size, axes);
        let mut ordered = [0, 1, 2].map(|k| if size[k] < super::LEAST { 0.0 } else { axes[k].max(0.0) });
        ordered.sort_by(f64::total_cmp);
        let [_, second, strongest] = ordered;
        // On a line IC(0) is exact.
        let gain =
            if second > 0.0 { GAIN * (LINE[0] * strongest / second).max(1.0).powf(LINE[1]) } else { f64::INFINITY };
        let iterations = ((2.0 / lambda).sqrt() / 2.0 * (2.0 / EPSILON).ln() / gain).max(1.0);

        let (unknowns, element) = (stencil.unknowns() as f64, T::BYTES as f64);
        let (n, nnz) = (size.iter().product::<usize>() as f64 * unknowns, nnz as f64);
        // A sweep with the stencil's slopes has about as many levels as with slopes 1, 1, or 1, 2, 4 if neighbours on
        // all sides count.
        let slopes = if stencil.entries() as f64 / unknowns > 2.0 * 3.0 + 1.0 { [1.0, 2.0, 4.0] } else { [1.0; 3] };
        let levels = |size: [usize; 3]| (0..3).map(|k| size[k] as f64 * slopes[k]).sum::<f64>();
        let common = (4.0 + element) * nnz + 13.0 * element * n;
        let incomplete = element * (nnz + 5.0 * n);
        let (mut cycle, mut waits, mut calls) = (3.0 * element * n, 0.0, 0.0);
        let suits_polynomials = Neighbours::of(&stencil).is_some();
        // Bytes of a cycle, and of the set-up.
        let (mut polynomial, mut made) = (0.0, 4.0 * (4.0 + element) * nnz);
        let mut halved = first;
        let (mut count, mut inverted) = (0u32, None);
        loop {
            let points = stencil.size().iter().product::<usize>() as f64;
            let rows = points * unknowns;
            if points <= MOST_INVERTED {
                inverted = inverted.or(Some(points));
            }
            let half = (stencil.entries() as f64 + 1.0) / 2.0;
            polynomial += element * points * (4.0 * half + POLYNOMIAL[0]);
            made += 3.0 * element * points * half;
            let triangles = element * (points * stencil.entries() as f64 + 3.0 * rows);
            if halved == [false; 3] {
                (cycle, waits, calls) = (cycle + triangles, waits + 2.0 * levels(stencil.size()), calls + CALLS[1]);
                break;
            }
            let to = Coarsening::new(stencil.size(), halved, stencil.unknowns());
            let between: usize = to.entries(&stencil).iter().sum();
            cycle += 2.0 * triangles + 14.0 * element * rows + (4.0 + element) * between as f64;
            waits += 4.0 * levels(stencil.size());
            calls += CALLS[0];
            (0..3).filter(|&k| halved[k]).for_each(|k| axes[k] /= 4.0);
            stencil = to.stencil(&stencil);
            halved = strong(stencil.size(), axes);
            count += 1;
        }
        if count == 0 {
            return Err(NotExpected::Small);
        }
        // The cycle is in f32, except on several ranks, which ask what one device would take. Its set-up takes as long
        // as in f64 (record/cpu-multigrid.txt).
        let narrow = size_of::<f32>() as f64 / element;
        // Nanoseconds per byte of an iteration and of the host's work, and per level. The device sets up IC(0).
        let Profile { memory, iteration, host, .. } = profile;
        let byte = memory.nanoseconds_per_byte / memory.units.max(1) as f64;
        let (level, call, begin) = (iteration.level, iteration.call, iteration.first);
        let host = SETUP * host.nanoseconds_per_byte / host.threads.max(1) as f64 + iteration.bus;
        let ic0 = iterations * ((common + incomplete) * byte + 2.0 * levels(size) * level + CALLS[2] * call)
            + SETUP * incomplete * byte;
        let mg = if suits_polynomials {
            let grids = f64::from(count + 1);
            let setup = match iteration.bus > 0.0 {
                // A device with its own memory sets up at the rate of its memory.
                true => made * byte + POLYNOMIAL[2] * grids * call + begin,
                false => POLYNOMIAL_SETUP * made * byte + INVERSE * inverted.map_or(0.0, |rows: f64| rows.powi(3)),
            };
            CYCLES * ((common + narrow * polynomial) * byte + POLYNOMIAL[1] * grids * call) + setup
        } else {
            CYCLES * ((common + narrow * cycle) * byte + waits * level + calls * call) + cycle * host + begin
        };
        Ok(Self { grid, iterations, ic0: ic0 * 1e-6, mg: mg * 1e-6 })
    }

    /// Returns true if the cycle should finish first.
    pub fn pays(&self) -> bool {
        self.mg < self.ic0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;
    use spandrel_formats::profile::Iteration;

    /// A CPU with this many threads.
    fn cpu(threads: usize) -> Profile {
        let mut cpu = Profile::reference();
        (cpu.memory.units, cpu.host.threads) = (threads, threads);
        cpu
    }

    /// A device with 200 times the memory rate of one core of its host, which has that many threads.
    fn far(threads: usize) -> Profile {
        let mut far = cpu(threads);
        far.memory.units = 1;
        far.memory.nanoseconds_per_byte /= 200.0;
        far.iteration = Iteration { level: 250.0, call: 2000.0, bus: 0.02, first: 5e7, ..far.iteration };
        far
    }

    fn expected(spec: &str, profile: &Profile) -> Result<Expected, NotExpected> {
        Expected::of(&generate::csr::<f64>(spec).unwrap(), profile)
    }

    #[test]
    fn large_grids_pay_and_small_ones_do_not() {
        for (small, large) in [
            ("poisson2d:64", "poisson2d:128"),
            ("poisson2d9:64", "poisson2d9:128"),
            ("d3n7:24", "d3n7:48"),
            ("d3n27:16", "d3n27:48"),
        ] {
            let (few, many) = (expected(small, &cpu(2)).unwrap(), expected(large, &cpu(2)).unwrap());
            assert!(!few.pays(), "{small}: {few:?}");
            assert!(many.pays(), "{large}: {many:?}");
            assert!(many.iterations > few.iterations);
        }
    }

    #[test]
    fn incomplete_factors_gain_more_the_weaker_the_other_axes_are() {
        // Measured: 176, 173 and 46 iterations.
        let [even, tenth, thousandth] = ["poisson2d:256", "anisotropic2d:256,eps=0.1", "anisotropic2d:256,eps=0.001"]
            .map(|spec| expected(spec, &cpu(2)).expect(spec).iterations);
        assert!(even > tenth && tenth > 2.0 * thousandth, "{even} {tenth} {thousandth}");
        assert!(tenth > 173.0 / 1.5 && thousandth < 46.0 * 1.5, "{tenth} {thousandth}");
    }

    #[test]
    fn a_device_waits_for_its_host() {
        let (box_, plane) = ("d3n7:64", "poisson2d:512");
        assert!(!expected(box_, &far(16)).unwrap().pays());
        assert!(expected(plane, &far(16)).unwrap().pays());
        let by = |spec: &str, threads| expected(spec, &far(threads)).unwrap().mg;
        assert!(by("d3n13:40", 1) > by("d3n13:40", 16));
        assert_eq!(by("poisson2d:512", 1), by("poisson2d:512", 16), "a polynomial smoother is set up on the device");
        assert!(expected("poisson3d:192", &far(16)).unwrap().pays());
    }

    #[test]
    fn a_dominant_diagonal_needs_no_cycle() {
        let mut a = generate::csr::<f64>("poisson2d:200").unwrap();
        assert!(Expected::of(&a, &cpu(2)).unwrap().pays());
        for i in 0..a.nrows() {
            let at = a.row_ptr()[i] as usize + a.row(i).0.partition_point(|&j| (j as usize) < i);
            a.values_mut()[at] += 1.0;
        }
        let found = Expected::of(&a, &cpu(2)).unwrap();
        assert!(!found.pays() && found.iterations < 20.0, "{found:?}");
    }

    #[test]
    fn what_is_not_safe_is_refused() {
        assert_eq!(expected("elasticity2d:20", &cpu(2)), Err(NotExpected::NotDominant));
        assert!(matches!(
            expected("electrostatic:n=300", &cpu(2)),
            Err(NotExpected::NotDominant | NotExpected::NotAGrid(_))
        ));
        assert!(matches!(expected("poisson2d:2x2", &cpu(2)), Err(NotExpected::Small)));
        // Coupled almost only along one diagonal of the plane.
        let n = 40;
        let mut triplets = spandrel_formats::Triplets::new(n * n, n * n).unwrap();
        for (x, y) in (0..n * n).map(|i| (i % n, i / n)) {
            let i = x + n * y;
            triplets.push(i, i, 2.04).unwrap();
            for (dx, dy, v) in
                [(1, 1, -1.0), (-1, -1, -1.0), (1, 0, -0.01), (-1, 0, -0.01), (0, 1, -0.01), (0, -1, -0.01)]
            {
                let (u, w) = (x as i64 + dx, y as i64 + dy);
                if (0..n as i64).contains(&u) && (0..n as i64).contains(&w) {
                    triplets.push(i, (u + n as i64 * w) as usize, v).unwrap();
                }
            }
        }
        let askew = triplets.to_csr().unwrap();
        assert_eq!(Expected::of(&askew, &cpu(2)), Err(NotExpected::Askew));
    }
}
