//! Renumbering a matrix on the device: an order of its rows, the matrix in that order, and vectors to and from it.

use std::fmt;

use spandrel_formats::{Format, Ordinal, Permutation};

use crate::error::expect_len;
use crate::ops::{Backend, Converted, Load};
use crate::{Gate, Mat, Result};

/// Renumbers rows and columns of matrices that are on the device.
///
/// A product with a large matrix in random order waits for x. If neighbours are close together, x comes from a cache.
/// Row `new` of the renumbered matrix is row `order[new]` of A. Orders and renumbered matrices are those of
/// [`spandrel_formats::reorder::breadth_first`] and [`Permutation::permute_symmetric`] on every device.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not renumber matrices in the format `{F}`",
    note = "CSR offers it; convert other formats to CSR first"
)]
pub trait Renumber<F: Format>: Load<F> + Backend<F::Value> {
    /// An order of rows. Threads may share it.
    type Numbering: Send + Sync + 'static;
    /// Where each entry of a renumbered matrix comes from. Threads may share it.
    type RenumberPlan: Send + Sync + 'static;

    /// Returns the sum of |i - j| over the entries of a square matrix. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn distance(&self, a: &Self::Resident) -> Result<u64>;

    /// Numbers the rows of a square matrix breadth first. Returns `None` if the search has more than `levels` levels: a
    /// GPU needs some microseconds for each. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is being recorded.
    fn breadth_first(&self, a: &Self::Resident, levels: usize) -> Result<Option<Self::Numbering>>;

    /// Brings an order from the host. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn numbering(&self, order: &Permutation) -> Result<Self::Numbering>;

    /// Returns which row of A each row of the renumbered matrix is. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] of the host.
    fn order(&self, numbering: &Self::Numbering) -> Result<Vec<Ordinal>>;

    /// Makes P A P^T of a square matrix, rows in ascending order of columns, and the plan for new values.
    /// Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the numbering has as many rows as A; [`crate::Error::OutOfMemory`];
    /// [`crate::Error::Device`] while a step is being recorded.
    fn renumbered(
        &self,
        a: &Self::Resident,
        numbering: &Self::Numbering,
    ) -> Result<(Converted<Self::Resident>, Self::RenumberPlan)>;

    /// Brings values of A, in stored order, into that of P A P^T: `to[k] = values[position in A of entry k]`. Allocates
    /// nothing; may be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless both vectors have an element for each entry of the matrix.
    fn renumber_values(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::RenumberPlan,
        values: &Self::Vector,
        to: &mut Self::Vector,
    ) -> Result<()>;

    /// y <- P x: `y[new] = x[order[new]]`. May be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless both vectors have an element for each row of the numbering.
    fn renumber(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;

    /// y <- P^T x: `y[order[new]] = x[new]`. May be recorded.
    ///
    /// # Errors
    /// As [`Renumber::renumber`].
    fn restore(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
}

/// An order of rows on a device, with their number. [`Mat::breadth_first`] makes it.
pub struct MatNumbering<B: Renumber<F>, F: Format> {
    numbering: B::Numbering,
    n: usize,
}

impl<B: Renumber<F>, F: Format> fmt::Debug for MatNumbering<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatNumbering").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<B: Renumber<F>, F: Format> MatNumbering<B, F> {
    /// Brings an order from the host. See [`Renumber::numbering`].
    ///
    /// # Errors
    /// As [`Renumber::numbering`].
    pub fn new(be: &B, order: &Permutation) -> Result<Self> {
        Ok(Self { numbering: be.numbering(order)?, n: order.len() })
    }

    /// Which row of A each row of the renumbered matrix is. See [`Renumber::order`].
    ///
    /// # Errors
    /// As [`Renumber::order`].
    pub fn order(&self, be: &B) -> Result<Vec<Ordinal>> {
        be.order(&self.numbering)
    }

    /// y <- P x. See [`Renumber::renumber`].
    ///
    /// # Errors
    /// As [`Renumber::renumber`].
    pub fn renumber(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        self.expect(be, "renumber", x, y)?;
        be.renumber(gate, &self.numbering, x, y)
    }

    /// y <- P^T x. See [`Renumber::restore`].
    ///
    /// # Errors
    /// As [`Renumber::restore`].
    pub fn restore(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        self.expect(be, "restore", x, y)?;
        be.restore(gate, &self.numbering, x, y)
    }

    fn expect(&self, be: &B, op: &'static str, x: &B::Vector, y: &B::Vector) -> Result<()> {
        expect_vectors(op, [be.len(x), be.len(y)], self.n)
    }
}

/// Compares the lengths of x and y with the number of elements that are moved.
///
/// # Errors
/// [`crate::Error::Shape`] that names the vector.
pub fn expect_vectors(op: &'static str, found: [usize; 2], n: usize) -> Result<()> {
    expect_len(op, "x", found[0], n)?;
    expect_len(op, "y", found[1], n)
}

/// The plan of a renumbered matrix, with the number of its entries. [`Mat::renumbered`] makes it.
pub struct MatRenumbering<B: Renumber<F>, F: Format> {
    plan: B::RenumberPlan,
    nnz: usize,
}

impl<B: Renumber<F>, F: Format> fmt::Debug for MatRenumbering<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatRenumbering").field("nnz", &self.nnz).finish_non_exhaustive()
    }
}

impl<B: Renumber<F>, F: Format> MatRenumbering<B, F> {
    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Brings values of A into the order of P A P^T, whose values they become by [`Mat::update_values_from`]. See
    /// [`Renumber::renumber_values`].
    ///
    /// # Errors
    /// As [`Renumber::renumber_values`].
    pub fn values(&self, be: &B, gate: Gate<'_, B>, values: &B::Vector, to: &mut B::Vector) -> Result<()> {
        expect_vectors("renumber_values", [be.len(values), be.len(to)], self.nnz)?;
        be.renumber_values(gate, &self.plan, values, to)
    }
}

impl<F: Format, B: Renumber<F>> Mat<B, F> {
    /// Returns the mean of |i - j| over the entries. See [`Renumber::distance`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix is square; as [`Renumber::distance`].
    pub fn distance(&self, be: &B) -> Result<f64> {
        expect_len("distance", "a row", self.ncols(), self.nrows())?;
        Ok(be.distance(self.resident())? as f64 / self.nnz().max(1) as f64)
    }

    /// Numbers the rows breadth first. See [`Renumber::breadth_first`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix is square; as [`Renumber::breadth_first`].
    pub fn breadth_first(&self, be: &B, levels: usize) -> Result<Option<MatNumbering<B, F>>> {
        expect_len("breadth_first", "a row", self.ncols(), self.nrows())?;
        let found = be.breadth_first(self.resident(), levels)?;
        Ok(found.map(|numbering| MatNumbering { numbering, n: self.nrows() }))
    }

    /// Makes P A P^T, and the plan for new values. See [`Renumber::renumbered`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix is square; as [`Renumber::renumbered`].
    pub fn renumbered(&self, be: &B, numbering: &MatNumbering<B, F>) -> Result<(Self, MatRenumbering<B, F>)> {
        expect_len("renumbered", "a row", self.ncols(), self.nrows())?;
        expect_len("renumbered", "the matrix", self.nrows(), numbering.n)?;
        let (made, plan) = be.renumbered(self.resident(), &numbering.numbering)?;
        // SAFETY: `Renumber` makes a matrix with the rows and columns of this one.
        let made = unsafe { Self::from_resident(self.nrows(), self.ncols(), made) };
        let nnz = made.nnz();
        Ok((made, MatRenumbering { plan, nnz }))
    }
}
