//! What geometric multigrid needs from a device besides products: coarser stencil matrices, moves between grids, and
//! the step of a polynomial smoother.

use spandrel_formats::{Coarsening, Dia, Divisor, NEIGHBOURS, Neighbours, Real};

use crate::error::expect_len;
use crate::ops::{Backend, Converted, Load};
use crate::{Gate, Mat, Result};

/// Sets up coarser versions of symmetric stencil matrices that are on the device, and moves vectors between their
/// grids.
///
/// A matrix is a [`Neighbours`] stencil by diagonals and equals its transpose; only the diagonals at or above the main
/// one count. Every result has the bits of the host's functions in [`spandrel_formats`] on every device and for any
/// number of threads.
pub trait Stencils<T: Real>: Load<Dia<T>> + Backend<T> {
    /// The offsets of all diagonals, ascending.
    fn stencil_offsets(&self, a: &<Self as Load<Dia<T>>>::Resident) -> Vec<i32>;

    /// Makes P^T A P: see [`Neighbours::galerkin`]. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the matrix or the coarsening belongs to another grid; [`crate::Error::Unsupported`]
    /// for a matrix that does not equal its transpose; [`crate::Error::OutOfMemory`].
    fn coarser_stencil(
        &self,
        a: &<Self as Load<Dia<T>>>::Resident,
        of: &Neighbours,
        to: &Coarsening,
    ) -> Result<Converted<<Self as Load<Dia<T>>>::Resident>>;

    /// As [`Stencils::coarser_stencil`], into a matrix that it made for the same grids and other values. On a GPU no
    /// address changes. Returns false if the memory cannot hold the values, because it holds values in f32; `coarse`
    /// must then be written again before it is used. Blocks only if it holds values in f32; must not be recorded.
    ///
    /// # Errors
    /// As [`Stencils::coarser_stencil`], and [`crate::Error::Shape`] for a coarse matrix of another size or with other
    /// diagonals.
    fn coarser_stencil_into(
        &self,
        a: &<Self as Load<Dia<T>>>::Resident,
        of: &Neighbours,
        to: &Coarsening,
        coarse: &mut <Self as Load<Dia<T>>>::Resident,
    ) -> Result<bool>;

    /// Overwrites the values of a matrix with those of another. On a GPU no address changes. Returns false, and changes
    /// nothing, if the diagonals differ, or if only one of the matrices equals its transpose or holds its values in
    /// f32. Does not block on a GPU; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`].
    fn copy_stencil(
        &self,
        from: &<Self as Load<Dia<T>>>::Resident,
        to: &mut <Self as Load<Dia<T>>>::Resident,
    ) -> Result<bool>;

    /// Writes one over the divisor of each row to `inverse`, and returns a bound on the spectrum of D^-1 A: see
    /// [`Neighbours::spectrum`]. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix of another grid, or another length of `inverse`.
    fn stencil_spectrum(
        &self,
        a: &<Self as Load<Dia<T>>>::Resident,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut Self::Vector,
    ) -> Result<Spectrum>;

    /// The places of the rows `begin`, `begin` + `step`, `begin` + 2 `step`, ...: see [`Neighbours::rows`]. Blocks;
    /// must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix of another grid, or a step of 0.
    fn stencil_rows(
        &self,
        a: &<Self as Load<Dia<T>>>::Resident,
        of: &Neighbours,
        begin: usize,
        step: usize,
    ) -> Result<Vec<T>>;

    /// The diagonals of [`Neighbours::upper_offsets`], each as a vector with an element per row. A diagonal that the
    /// matrix lacks is 0. Allocates; must not be recorded.
    ///
    /// # Errors
    /// As [`Stencils::coarser_stencil`].
    fn stencil_diagonals(&self, a: &<Self as Load<Dia<T>>>::Resident, of: &Neighbours) -> Result<Vec<Self::Vector>>;

    /// Makes the matrix with these diagonals: see [`Neighbours::of_diagonals`]. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of diagonals, or a diagonal of another length;
    /// [`crate::Error::OutOfMemory`].
    fn stencil_of_diagonals(
        &self,
        of: &Neighbours,
        upper: &[Self::Vector],
    ) -> Result<Converted<<Self as Load<Dia<T>>>::Resident>>;

    /// [`Stencils::stencil_spectrum`] of several grids, which waits once.
    ///
    /// # Errors
    /// As there.
    fn stencil_spectra(&self, grids: &mut [Inverted<'_, T, Self>], divisor: Divisor) -> Result<Vec<Spectrum>> {
        grids.iter_mut().map(|(a, of, inverse)| self.stencil_spectrum(a, of, divisor, inverse)).collect()
    }

    /// Shows `look` the [`Stencils::stencil_rows`] of several grids, each with its step, one after the other. It waits
    /// once. `look` must not use the device.
    ///
    /// # Errors
    /// As there.
    fn stencil_samples(&self, grids: &[Sampled<'_, T, Self>], look: &mut dyn FnMut(&[T])) -> Result<()> {
        let mut rows = Vec::new();
        for &(a, of, step) in grids {
            rows.extend(self.stencil_rows(a, of, 0, step)?);
        }
        look(&rows);
        Ok(())
    }

    /// s <- P^T r: see [`Coarsening::restrict_line`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless r has an element per fine point and s one per coarse point.
    fn restrict(&self, gate: Gate<'_, Self>, to: &Coarsening, r: &Self::Vector, s: &mut Self::Vector) -> Result<()>;

    /// x <- x + P e: see [`Coarsening::prolong_line`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless x has an element per fine point and e one per coarse point.
    fn prolong(&self, gate: Gate<'_, Self>, to: &Coarsening, e: &Self::Vector, x: &mut Self::Vector) -> Result<()>;

    /// z <- kept z + taken (d s), then x <- x + weight z, element by element. A product is rounded before it is added.
    /// The first step of a polynomial (`kept` is `None`) does not read z; without `adds`, the old x is not read and
    /// counts as zero.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless all vectors have the same length.
    fn relax(
        &self,
        gate: Gate<'_, Self>,
        step: Relax<T>,
        d: &Self::Vector,
        s: &Self::Vector,
        z: &mut Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()>;
}

/// A matrix with its grid, and the vector for one over its divisors: see [`Stencils::stencil_spectra`].
pub type Inverted<'a, T, B> = (&'a <B as Load<Dia<T>>>::Resident, &'a Neighbours, &'a mut <B as Backend<T>>::Vector);

/// A matrix with its grid, and a step: see [`Stencils::stencil_samples`].
pub type Sampled<'a, T, B> = (&'a <B as Load<Dia<T>>>::Resident, &'a Neighbours, usize);

/// The coefficients of [`Stencils::relax`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relax<T> {
    /// Of the old z.
    pub kept: Option<T>,
    /// Of d s.
    pub taken: T,
    /// Of z in x.
    pub weight: T,
    /// Whether the old x counts.
    pub adds: bool,
}

/// What the diagonal D of a matrix says about the spectrum of D^-1 A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spectrum {
    /// A bound on the magnitudes of the eigenvalues of D^-1 A: the largest sum of |a_ij| over |a_ii|, in f64, each sum
    /// by ascending column.
    pub bound: f64,
    /// The first row with an entry that is not finite, without a positive diagonal entry that has a finite inverse, or
    /// with a divisor that is not finite or has no finite inverse. If there is one, the bound means nothing.
    pub unfit: Option<usize>,
    /// Number of entries of the stencil that are not zero.
    pub entries: u64,
}

impl<T: Real, B: Stencils<T>> Mat<B, Dia<T>> {
    /// The grids that the matrix may belong to, by its diagonals. See [`Neighbours::candidates`]; the right one holds
    /// all [`Spectrum::entries`].
    pub fn stencils(&self, be: &B) -> Vec<Neighbours> {
        if self.nrows() != self.ncols() {
            return Vec::new();
        }
        Neighbours::candidates(self.nrows(), &be.stencil_offsets(self.resident()))
    }

    /// Makes the matrix of the coarser grid. See [`Stencils::coarser_stencil`].
    ///
    /// # Errors
    /// As [`Stencils::coarser_stencil`].
    pub fn coarser_stencil(&self, be: &B, of: &Neighbours, to: &Coarsening) -> Result<Self> {
        self.expect_grid(of)?;
        expect_len("coarser_stencil", "the fine grid", to.fine().iter().product(), of.points())?;
        let made = be.coarser_stencil(self.resident(), of, to)?;
        let n = to.coarse().iter().product();
        // SAFETY: `Stencils` makes a square matrix with a row per coarse point.
        Ok(unsafe { Self::from_resident(n, n, made) })
    }

    /// Makes the matrix of the coarser grid in the memory of one with other values. See
    /// [`Stencils::coarser_stencil_into`].
    ///
    /// # Errors
    /// As [`Stencils::coarser_stencil_into`].
    pub fn coarser_stencil_into(&self, be: &B, of: &Neighbours, to: &Coarsening, coarse: &mut Self) -> Result<bool> {
        self.expect_grid(of)?;
        expect_len("coarser_stencil_into", "the fine grid", to.fine().iter().product(), of.points())?;
        expect_len("coarser_stencil_into", "the coarse grid", coarse.nrows(), to.coarse().iter().product())?;
        be.coarser_stencil_into(self.resident(), of, to, coarse.resident_mut())
    }

    /// Overwrites the values with those of another matrix. See [`Stencils::copy_stencil`].
    ///
    /// # Errors
    /// As [`Stencils::copy_stencil`].
    pub fn copy_stencil(&mut self, be: &B, from: &Self) -> Result<bool> {
        let is_copied = (self.nrows(), self.ncols()) == (from.nrows(), from.ncols())
            && be.copy_stencil(from.resident(), self.resident_mut())?;
        if is_copied {
            self.take_sizes(from);
        }
        Ok(is_copied)
    }

    /// One over the divisors, and the bound on the spectrum. See [`Stencils::stencil_spectrum`].
    ///
    /// # Errors
    /// As [`Stencils::stencil_spectrum`].
    pub fn stencil_spectrum(
        &self,
        be: &B,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut B::Vector,
    ) -> Result<Spectrum> {
        self.expect_grid(of)?;
        expect_len("stencil_spectrum", "the inverse of the divisors", be.len(inverse), of.points())?;
        be.stencil_spectrum(self.resident(), of, divisor, inverse)
    }

    /// The places of every `step`-th row from `begin` on, [`NEIGHBOURS`] each. See [`Stencils::stencil_rows`].
    ///
    /// # Errors
    /// As [`Stencils::stencil_rows`].
    pub fn stencil_rows(&self, be: &B, of: &Neighbours, begin: usize, step: usize) -> Result<Vec<T>> {
        self.expect_grid(of)?;
        expect_len("stencil_rows", "a step", step.min(1), 1)?;
        let rows = be.stencil_rows(self.resident(), of, begin, step)?;
        let count = of.points().saturating_sub(begin).div_ceil(step);
        expect_len("stencil_rows", "the places", rows.len(), count * NEIGHBOURS)?;
        Ok(rows)
    }

    /// The diagonals at or above the main one, each as a vector. See [`Stencils::stencil_diagonals`].
    ///
    /// # Errors
    /// As [`Stencils::stencil_diagonals`].
    pub fn stencil_diagonals(&self, be: &B, of: &Neighbours) -> Result<Vec<B::Vector>> {
        self.expect_grid(of)?;
        be.stencil_diagonals(self.resident(), of)
    }

    /// Makes the matrix of a stencil from its diagonals at or above the main one. Entries outside the grid must be 0,
    /// except those whose column lies outside the matrix. See [`Stencils::stencil_of_diagonals`].
    ///
    /// # Errors
    /// As [`Stencils::stencil_of_diagonals`].
    pub fn of_stencil_diagonals(be: &B, of: &Neighbours, upper: &[B::Vector]) -> Result<Self> {
        let (n, count) = (of.points(), of.upper_offsets().len());
        expect_len("a stencil", "the diagonals", upper.len(), count)?;
        upper.iter().try_for_each(|diagonal| expect_len("a stencil", "a diagonal", be.len(diagonal), n))?;
        let made = be.stencil_of_diagonals(of, upper)?;
        // SAFETY: `Stencils` makes a square matrix with a row per point.
        Ok(unsafe { Self::from_resident(n, n, made) })
    }

    fn expect_grid(&self, of: &Neighbours) -> Result<()> {
        expect_len("a stencil", "a column", self.nrows(), of.points())?;
        expect_len("a stencil", "a row", self.ncols(), of.points())
    }
}
