//! Analysis on the device: plans of triangles whose matrix is already there.

use spandrel_formats::Format;
use spandrel_sptrsv::{Diagonal, Plan, Systems, Triangle};

use crate::{Error, Load, Mat, Result, Tri};

/// Which triangle of a square matrix to analyse, and for which systems.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Which triangle. The entries on the other side of the diagonal are ignored.
    pub triangle: Triangle,
    /// What the diagonal holds.
    pub diagonal: Diagonal,
    /// The systems to solve.
    pub systems: Systems,
    /// For a plan on a grid: its extents and the lower stencil without the diagonal, as
    /// [`spandrel_sptrsv::Sweep::on_grid`] takes them. If `None`, the device recognises the grid.
    pub grid: Option<([usize; 3], &'a [[i32; 3]])>,
}

impl Part<'_> {
    /// A triangle whose grid, if any, is to be recognised.
    pub fn new(triangle: Triangle, diagonal: Diagonal, systems: Systems) -> Self {
        Self { triangle, diagonal, systems, grid: None }
    }
}

/// What [`Analyze::analyze`] returns: the resident form and the byte counts that a plan would give.
#[derive(Clone, Copy, Debug)]
pub struct Analyzed<R> {
    /// The plan on the device.
    pub resident: R,
    /// [`Plan::storage`].
    pub storage: u64,
    /// [`Plan::sptrsv_bytes`].
    pub sptrsv_bytes: u64,
}

/// Makes a plan for a triangle of a resident matrix, on the device.
///
/// The plan gives solves with the same bits as [`Load::load`] of [`Plan::analyze`] of [`spandrel_sptrsv::part`] of the
/// host's matrix. The matrix stays as it is, and the plan does not use it afterwards. After new values, make the plan
/// again; that costs about one solve.
///
/// If both the host and the device refuse a matrix, their reasons may differ: the device first looks at some rows and
/// then checks all rows against what these suggest. If the matrix fits several grids, the device may recognise another
/// one than the host.
pub trait Analyze<F: Format, P: Plan<Value = F::Value>>: Load<F> + Load<P> {
    /// Analyses the triangle. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// - [`Error::Triangle`], with the row, if the matrix is not square, a diagonal entry is missing or zero (unless
    ///   the diagonal is declared to be 1), there is no grid, or an entry lies outside the grid's stencil.
    /// - [`Error::Unsupported`] and [`Error::OutOfMemory`].
    /// - [`Error::Device`] while a step is being recorded.
    fn analyze(
        &self,
        from: &<Self as Load<F>>::Resident,
        part: &Part<'_>,
    ) -> Result<Analyzed<<Self as Load<P>>::Resident>>;
}

/// Byte counts of a triangle whose plan was made on the device.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    storage: u64,
    sptrsv_bytes: u64,
}

/// A triangle on a device whose plan was made there. The host has no copy.
pub type ResidentTri<B, P> = Tri<B, P, Sizes>;

impl<B: Load<P>, P: Plan> Tri<B, P, Sizes> {
    /// Makes a plan for a triangle of a resident matrix. Blocks; must not be recorded. See [`Analyze`].
    ///
    /// # Errors
    /// As [`Analyze::analyze`].
    pub fn analyze<F: Format<Value = P::Value>>(be: &B, matrix: &Mat<B, F>, part: &Part<'_>) -> Result<Self>
    where
        B: Analyze<F, P>,
    {
        let (nrows, ncols) = (matrix.nrows(), matrix.ncols());
        if nrows != ncols {
            return Err(Error::Triangle(spandrel_sptrsv::Error::NotSquare { nrows, ncols }));
        }
        let Analyzed { resident, storage, sptrsv_bytes } = <B as Analyze<F, P>>::analyze(be, matrix.resident(), part)?;
        let Part { triangle, diagonal, systems, .. } = *part;
        Ok(Self { resident, nrows, triangle, diagonal, systems, host: Sizes { storage, sptrsv_bytes } })
    }
    /// Bytes of the arrays that a solve reads, without the vectors.
    pub fn storage(&self) -> u64 {
        self.host.storage
    }
    /// Compulsory bytes of one solve with one right-hand side.
    pub fn sptrsv_bytes(&self) -> u64 {
        self.host.sptrsv_bytes
    }
}
