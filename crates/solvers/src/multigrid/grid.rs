//! One grid of multigrid that is smoothed by a polynomial, and the way to the next grid and back.
//!
//! The grid is a whole one or the planes of it that a rank holds. See [`crate::StencilMultigrid`] for the cycle and the
//! formulas. Order: that of the backend's DIA products and of [`spandrel_backend::Stencils`].

use spandrel_backend::{Backend, Coeff, Convert, Gate, Mat, Operator, Relax, Spectrum, Spmv, Stencils, UpdateValues};
use spandrel_formats::{Coarsening, Csr, Dense, Dia, NEIGHBOURS, Neighbours, Real};

use super::hierarchy::strong;
use super::options::PolynomialSmoother;
pub use crate::amg::polynomial::DEGREES;
use crate::amg::polynomial::Step;
use crate::{Error, Result};

/// About this many rows are sampled to decide which axes are halved.
const SAMPLES: usize = 1 << 12;

/// A coarsest grid with more rows than this gets no inverse.
pub const MOST_INVERTED: usize = 2000;

/// What the cycle needs from a device.
pub trait StencilBackend<T: Real>:
    Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + UpdateValues<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}
impl<T: Real, B> StencilBackend<T> for B where
    B: Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + UpdateValues<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}

pub(super) type VectorOf<T, B> = <B as Backend<T>>::Vector;

/// The operator of a grid on the device, and what its smoother needs.
pub struct StencilGrid<T: Real, B: StencilBackend<T>> {
    pub(super) of: Neighbours,
    pub(super) a: Mat<B, Dia<T>>,
    pub(super) smoother: PolynomialSmoother,
    /// One over the divisors of the smoother.
    pub(super) inverse: VectorOf<T, B>,
    pub(super) bound: f64,
}

/// The vectors of a smoother: the residual and its step.
#[derive(Debug)]
pub struct StencilWork<V> {
    left: V,
    step: V,
}

impl<V> StencilWork<V> {
    /// Makes the vectors for a grid.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn new<T: Real, B: StencilBackend<T> + Backend<T, Vector = V>>(
        be: &B,
        grid: &StencilGrid<T, B>,
    ) -> spandrel_backend::Result<Self> {
        Ok(Self { left: be.zeros(grid.points())?, step: be.zeros(grid.points())? })
    }
}

impl<T: Real, B: StencilBackend<T>> std::fmt::Debug for StencilGrid<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StencilGrid")
            .field("size", &self.of.size())
            .field("smoother", &self.smoother)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: StencilBackend<T>> StencilGrid<T, B> {
    /// Takes the operator of a grid and its smoother, whose degree is 1 to 4. Also returns the [`Spectrum`]. Blocks.
    ///
    /// # Errors
    /// As [`Mat::stencil_spectrum`].
    pub fn new(
        be: &B,
        of: Neighbours,
        a: Mat<B, Dia<T>>,
        smoother: PolynomialSmoother,
    ) -> spandrel_backend::Result<(Self, Spectrum)> {
        let (inverse, spectrum) = looked_at(be, &a, &of, smoother)?;
        Ok((Self { of, a, smoother, inverse, bound: spectrum.bound }, spectrum))
    }

    /// The same grid with another bound on the eigenvalues of D^-1 A, where D is the diagonal.
    pub fn with_bound(self, bound: f64) -> Self {
        Self { bound, ..self }
    }

    /// The stencil of the operator.
    pub fn of(&self) -> &Neighbours {
        &self.of
    }
    /// The operator.
    pub fn a(&self) -> &Mat<B, Dia<T>> {
        &self.a
    }
    /// Number of points.
    pub fn points(&self) -> usize {
        self.of.points()
    }
    /// Bytes of the operator and of one over its divisors.
    pub fn storage(&self) -> u64 {
        self.a.storage() + (T::BYTES * self.points()) as u64
    }

    /// x <- smooth(0, s), then `of_next` <- P^T (s - A x): the first half of a cycle. x is not read.
    ///
    /// # Errors
    /// Those of the backend.
    #[allow(clippy::too_many_arguments)] // a cycle has that many operands
    pub fn down(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        to: &Coarsening,
        s: &VectorOf<T, B>,
        work: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
        of_next: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        self.smooth(be, gate, self.smoother, false, s, work, x)?;
        self.residual(be, gate, s, x, &mut work.left)?;
        be.restrict(gate, to, &work.left, of_next)
    }

    /// x <- x + P e, then x <- smooth(x, s): the second half of a cycle.
    ///
    /// # Errors
    /// Those of the backend.
    #[allow(clippy::too_many_arguments)] // a cycle has that many operands
    pub fn up(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        to: &Coarsening,
        e: &VectorOf<T, B>,
        s: &VectorOf<T, B>,
        work: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        be.prolong(gate, to, e, x)?;
        self.smooth(be, gate, self.smoother, true, s, work, x)
    }

    /// x <- the smoother of the highest degree, applied to s. It replaces the inverse on a last grid that is too large
    /// for one, such as a grid that couples along only one axis.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn alone(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        s: &VectorOf<T, B>,
        work: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        self.smooth(be, gate, self.smoother.with_degree(DEGREES), false, s, work, x)
    }

    /// left <- s - A x.
    fn residual(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        s: &VectorOf<T, B>,
        x: &VectorOf<T, B>,
        left: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        self.a.residual(be, gate, s, x, left)
    }

    /// Takes the steps of a polynomial, from the given x or, if `is_given` is false, from 0.
    #[allow(clippy::too_many_arguments)] // a cycle has that many operands
    fn smooth(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        smoother: PolynomialSmoother,
        is_given: bool,
        s: &VectorOf<T, B>,
        StencilWork { left, step }: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        let minus = || Coeff::host(-T::one());
        if is_given {
            self.residual(be, gate, s, x, left)?;
        }
        for (k, Step { kept, taken, weight }) in smoother.steps(self.bound).enumerate() {
            if k > 1 || (k > 0 && is_given) {
                self.a.spmv(be, gate, minus(), step, Coeff::one(), left)?;
            } else if k > 0 {
                self.residual(be, gate, s, step, left)?;
            }
            let [kept, taken, weight] = [kept, taken, weight].map(T::from_f64);
            let relax = Relax { kept: (!kept.is_zero()).then_some(kept), taken, weight, adds: k > 0 || is_given };
            let left = if k == 0 && !is_given { s } else { &*left };
            be.relax(gate, relax, &self.inverse, left, step, x)?;
        }
        Ok(())
    }
}

/// Returns one over the divisors of the smoother, and the [`Spectrum`].
pub(super) fn looked_at<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: &Mat<B, Dia<T>>,
    of: &Neighbours,
    smoother: PolynomialSmoother,
) -> spandrel_backend::Result<(VectorOf<T, B>, Spectrum)> {
    let mut inverse = be.zeros(of.points())?;
    let spectrum = a.stencil_spectrum(be, of, smoother.divisor(), &mut inverse)?;
    Ok((inverse, spectrum))
}

/// Returns n such that every n-th row of a grid is sampled to decide which axes are halved. n is odd, so that every
/// position in a line of 2^k points occurs.
pub fn sampled_every(points: usize) -> usize {
    (points / SAMPLES) | 1
}

/// Returns the axes of a grid that are halved, given the sampled rows in the layout of [`Neighbours::rows`]. `None` if
/// no axis is.
pub fn halved<T: Real>(size: [usize; 3], rows: &[T]) -> Option<[bool; 3]> {
    let halved = strong(size, Neighbours::second_moments(rows));
    (halved != [false; 3]).then_some(halved)
}

/// Says why a row is unfit, given its coefficients in the layout of [`Neighbours::rows`].
pub fn unfit_row<T: Real>(of: &Neighbours, row: usize, places: &[T]) -> Error {
    let found = match places[NEIGHBOURS / 2] {
        d if d.is_nan() => "NaN",
        d if d.is_infinite() => "infinite",
        d if d.is_zero() => "zero",
        d if d < T::zero() => "negative",
        _ => match places.iter().position(|v| !v.is_finite()) {
            Some(at) => {
                let (column, found) =
                    (of.column(row, at).unwrap_or(row), if places[at].is_nan() { "NaN" } else { "infinite" });
                return Error::NotFinite { row, column, found };
            }
            None if !places[NEIGHBOURS / 2].recip().is_finite() => "too small for its inverse",
            None => "in a row whose sum of magnitudes overflows",
        },
    };
    Error::Diagonal { row, found }
}

/// The error for a matrix that is not a stencil of the kind that the smoother needs.
pub fn no_stencil() -> Error {
    let why = "a polynomial smoother of mg (chebyshev, l1-jacobi) needs a matrix that equals its transpose and is a stencil of nearest neighbours on a \
               grid with one unknown per point; use mg=gauss-seidel, or amg";
    Error::Unsupported { why: why.to_string() }
}

/// Refuses a degree or a number of grids out of its range.
///
/// # Errors
/// [`Error::Parameter`].
pub fn check(levels: Option<usize>, smoother: PolynomialSmoother) -> Result<()> {
    let degree = smoother.degree();
    if !(1..=DEGREES).contains(&degree) {
        let range = "mg smooths with a polynomial of degree 1 to 4";
        return Err(Error::Parameter { name: "degree", value: degree as f64, range });
    }
    if levels == Some(0) {
        return Err(Error::Parameter { name: "levels", value: 0.0, range: "mg has at least one grid" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use spandrel_backend_cpu::Cpu;
    use spandrel_formats::{Format, Grid, Stencil, generate};

    use super::*;

    fn grid(be: &Cpu, a: &Csr<f64>, smoother: PolynomialSmoother) -> StencilGrid<f64, Cpu> {
        let of = Neighbours::of(&Stencil::of(&Grid::detect(a).unwrap())).unwrap();
        let diagonals = Mat::load(be, Dia::from_csr(a).unwrap()).unwrap();
        StencilGrid::new(be, of, diagonals, smoother).unwrap().0
    }

    /// What a smoothing leaves of an error.
    fn left(be: &Cpu, grid: &StencilGrid<f64, Cpu>, error: &[f64]) -> Vec<f64> {
        let (zero, mut x) = (be.upload(&vec![0.0; error.len()]).unwrap(), be.upload(error).unwrap());
        let mut work = StencilWork::new(be, grid).unwrap();
        grid.smooth(be, None, grid.smoother, true, &zero, &mut work, &mut x).unwrap();
        be.download(&x).unwrap()
    }

    #[test]
    fn l1_jacobi_reduces_every_error_and_changes_no_sign() {
        let be = Cpu::new();
        for spec in ["poisson1d:12", "poisson2d:7x6", "poisson2d9:6x7", "poisson3d:5x4x3", "d3n27:4x3x5"] {
            let a = generate::csr::<f64>(spec).unwrap().map_entries(|i, j, v| {
                let part = (i.min(j) * 7919 + i.max(j) * 104_729) % 1013;
                if i == j { 1.5 * v } else { v * (1.0 + part as f64 / 2100.0) }
            });
            let n = a.nrows();
            // <x, y> by A, in which I - M^-1 A is symmetric: its eigenvalues lie in [0, 1).
            let energy = |x: &[f64], y: &[f64]| {
                let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * y[j as usize]).sum::<f64>();
                (0..n).map(|i| x[i] * row(i)).sum::<f64>()
            };
            let random = |seed: usize| (0..n).map(|i| ((i * 7919 + seed * 389) % 1009) as f64 - 504.0).collect();
            let unit = |at: usize| (0..n).map(|i| f64::from(u8::from(i == at))).collect();
            let smooth_and_rough = [|_| 1.0, |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 }];
            let errors: Vec<Vec<f64>> = (0..n).map(unit).chain((0..20).map(random)).collect();
            let errors = errors.into_iter().chain(smooth_and_rough.map(|of| (0..n).map(of).collect()));
            let grids = [1, 2, 3, 4].map(|degree| grid(&be, &a, PolynomialSmoother::L1Jacobi(degree)));
            for error in errors {
                let (mut size, mut by_one) = (energy(&error, &error), error.clone());
                for grid in &grids {
                    let smoothed = left(&be, grid, &error);
                    let share = energy(&smoothed, &error) / energy(&error, &error);
                    assert!((-1e-14..1.0).contains(&share), "{spec}: {share}");
                    let (before, after) = (size, energy(&smoothed, &smoothed));
                    // The rough error is an eigenvector for 1: only rounding is left of it.
                    let is_rounding = after <= 1e-28 * energy(&error, &error);
                    assert!(after < before || is_rounding, "{spec}, {:?}: {before:e}, {after:e}", grid.smoother);
                    size = after;
                    // A smoothing of degree k is k of degree 1.
                    by_one = left(&be, &grids[0], &by_one);
                    let far = by_one.iter().zip(&smoothed).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    assert!(far <= 1e-12 * error.iter().fold(0.0, |most, v| v.abs().max(most)), "{spec}: {far:e}");
                }
            }
        }
    }
}
