//! Plans of matrices that lie on the device: the analysis where the data already is.

use spandrel_formats::Format;
use spandrel_sptrsv::{Diagonal, Plan, Systems, Triangle};

use crate::{Error, Load, Mat, Result, Tri};

/// A triangle of a square matrix, and what is to be solved with it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Which triangle. What the matrix holds on the other side of the diagonal is of no account.
    pub triangle: Triangle,
    /// What stands on its diagonal.
    pub diagonal: Diagonal,
    /// The systems to be solved.
    pub systems: Systems,
    /// For a plan on a grid, where the caller knows it: its extents and the lower stencil off the diagonal, as
    /// [`spandrel_sptrsv::Sweep::on_grid`] takes them. Otherwise the grid is recognised.
    pub grid: Option<([usize; 3], &'a [[i32; 3]])>,
}

impl Part<'_> {
    /// A triangle on whichever grid there is.
    pub fn new(triangle: Triangle, diagonal: Diagonal, systems: Systems) -> Self {
        Self { triangle, diagonal, systems, grid: None }
    }
}

/// What [`Analyze::analyze`] makes: the resident form and what the plan would have said of it.
#[derive(Clone, Copy, Debug)]
pub struct Analyzed<R> {
    /// What lies on the device.
    pub resident: R,
    /// [`Plan::storage`].
    pub storage: u64,
    /// [`Plan::sptrsv_bytes`].
    pub sptrsv_bytes: u64,
}

/// Makes a plan for a triangle of a resident matrix, as [`Load::load`] would of [`Plan::analyze`] for
/// [`spandrel_sptrsv::part`] of the host's matrix: solves have the same bits. The matrix stays, and the plan does not use it further: after
/// new values it is made anew, which costs about a solve.
///
/// Where both the host and the device refuse, the device may give another reason: it looks at some rows first and proves on all rows what
/// these suggest. A grid that it recognises may be another one of several that the matrix fits.
pub trait Analyze<F: Format, P: Plan<Value = F::Value>>: Load<F> + Load<P> {
    /// Analyses. Blocks; allocates; may not be recorded.
    ///
    /// # Errors
    /// [`Error::Triangle`] with what is wrong, and in which row: not square, no entry or a zero on the diagonal unless this is declared
    /// to be 1, no grid, an entry outside the grid's stencil; [`Error::Unsupported`]; [`Error::OutOfMemory`]; [`Error::Device`] while a step is
    /// recorded.
    fn analyze(
        &self,
        from: &<Self as Load<F>>::Resident,
        part: &Part<'_>,
    ) -> Result<Analyzed<<Self as Load<P>>::Resident>>;
}

/// Bytes of a triangle whose plan was made on the device.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    storage: u64,
    sptrsv_bytes: u64,
}

/// A triangle on a device whose plan was made there: the host has no copy.
pub type ResidentTri<B, P> = Tri<B, P, Sizes>;

impl<B: Load<P>, P: Plan> Tri<B, P, Sizes> {
    /// Makes a plan for a triangle of a matrix. Blocks; may not be recorded. See [`Analyze`].
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
    /// Bytes of the arrays of a solve, vectors aside.
    pub fn storage(&self) -> u64 {
        self.host.storage
    }
    /// Compulsory bytes of one solve with one right-hand side.
    pub fn sptrsv_bytes(&self) -> u64 {
        self.host.sptrsv_bytes
    }
}
