//! One grid of multigrid that is smoothed by a polynomial, and the way to the next grid and back.
//!
//! The grid is a whole one or the planes of it that a rank holds. See [`crate::StencilMultigrid`] for the cycle and the
//! formulas. Order: that of the backend's DIA products and of [`spandrel_backend::Stencils`].

use spandrel_backend::{Backend, Coeff, Convert, Gate, Mat, Operator, Relax, Spectrum, Spmv, Stencils};
use spandrel_formats::{Coarsening, Csr, Dense, Dia, NEIGHBOURS, Neighbours, Real};

use super::hierarchy::strong;
pub use crate::amg::polynomial::DEGREES;
use crate::amg::polynomial::{Step, steps};
use crate::{Error, Result};

/// About this many rows are sampled to decide which axes are halved.
const SAMPLES: usize = 1 << 12;

/// A coarsest grid with more rows than this gets no inverse.
pub const MOST_INVERTED: usize = 2000;

/// What the cycle needs from a device.
pub trait StencilBackend<T: Real>:
    Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}
impl<T: Real, B> StencilBackend<T> for B where
    B: Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}

pub(super) type VectorOf<T, B> = <B as Backend<T>>::Vector;

/// The operator of a grid on the device, and what its smoother needs.
pub struct StencilGrid<T: Real, B: StencilBackend<T>> {
    pub(super) of: Neighbours,
    pub(super) a: Mat<B, Dia<T>>,
    /// 1 / d.
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
        f.debug_struct("StencilGrid").field("size", &self.of.size()).field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl<T: Real, B: StencilBackend<T>> StencilGrid<T, B> {
    /// Takes the operator of a grid. Also returns its [`Spectrum`]. Blocks.
    ///
    /// # Errors
    /// As [`Mat::stencil_spectrum`].
    pub fn new(be: &B, of: Neighbours, a: Mat<B, Dia<T>>) -> spandrel_backend::Result<(Self, Spectrum)> {
        let (inverse, spectrum) = looked_at(be, &a, &of)?;
        Ok((Self { of, a, inverse, bound: spectrum.bound }, spectrum))
    }

    /// The same grid with another bound on the eigenvalues of D^-1 A.
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
    /// Bytes of the operator and its diagonal.
    pub fn storage(&self) -> u64 {
        self.a.storage() + (T::BYTES * self.points()) as u64
    }

    /// x <- smooth(0, s), then `of_next` <- P^T (s - A x): the first half of a cycle. The smoother has the given
    /// degree, 1 to 4. x is not read.
    ///
    /// # Errors
    /// Those of the backend.
    #[allow(clippy::too_many_arguments)] // a cycle has that many operands
    pub fn down(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        (degree, to): (usize, &Coarsening),
        s: &VectorOf<T, B>,
        work: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
        of_next: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        self.smooth(be, gate, degree, false, s, work, x)?;
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
        (degree, to): (usize, &Coarsening),
        e: &VectorOf<T, B>,
        s: &VectorOf<T, B>,
        work: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        be.prolong(gate, to, e, x)?;
        self.smooth(be, gate, degree, true, s, work, x)
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
        self.smooth(be, gate, DEGREES, false, s, work, x)
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
        degree: usize,
        is_given: bool,
        s: &VectorOf<T, B>,
        StencilWork { left, step }: &mut StencilWork<VectorOf<T, B>>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        let minus = || Coeff::host(-T::one());
        if is_given {
            self.residual(be, gate, s, x, left)?;
        }
        for (k, Step { kept, taken, weight }) in steps(degree, self.bound).enumerate() {
            if k > 1 || (k > 0 && is_given) {
                self.a.spmv(be, gate, minus(), step, Coeff::one(), left)?;
            } else if k > 0 {
                self.residual(be, gate, s, step, left)?;
            }
            let [kept, taken, weight] = [kept, taken, weight].map(T::from_f64);
            let relax = Relax { kept: (k > 0).then_some(kept), taken, weight, adds: k > 0 || is_given };
            let left = if k == 0 && !is_given { s } else { &*left };
            be.relax(gate, relax, &self.inverse, left, step, x)?;
        }
        Ok(())
    }
}

/// Returns one over the diagonal, and the [`Spectrum`].
pub(super) fn looked_at<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: &Mat<B, Dia<T>>,
    of: &Neighbours,
) -> spandrel_backend::Result<(VectorOf<T, B>, Spectrum)> {
    let mut inverse = be.zeros(of.points())?;
    let spectrum = a.stencil_spectrum(be, of, &mut inverse)?;
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
    let second = Neighbours::moments(rows).second;
    let halved = strong(size, [second[0][0], second[1][1], second[2][2]]);
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
            None => "too small for its inverse",
        },
    };
    Error::Diagonal { row, found }
}

/// The error for a matrix that is not a stencil of the kind that the smoother needs.
pub fn no_stencil() -> Error {
    let why = "the Chebyshev smoother of mg needs a matrix that equals its transpose and is a stencil of nearest neighbours on a grid with one unknown \
               per point; use mg=gauss-seidel, or amg";
    Error::Unsupported { why: why.to_string() }
}

/// Refuses a degree or a number of grids out of its range.
///
/// # Errors
/// [`Error::Parameter`].
pub fn check(levels: Option<usize>, degree: usize) -> Result<()> {
    if !(1..=DEGREES).contains(&degree) {
        let range = "mg smooths with a polynomial of degree 1 to 4";
        return Err(Error::Parameter { name: "degree", value: degree as f64, range });
    }
    if levels == Some(0) {
        return Err(Error::Parameter { name: "levels", value: 0.0, range: "mg has at least one grid" });
    }
    Ok(())
}
