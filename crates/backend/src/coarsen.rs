//! The operations of algebraic coarsening besides products: aggregates of strongly coupled rows, the prolongation made
//! from them, and diagonal scaling.

use std::fmt;

use spandrel_formats::{Format, Ordinal};

use crate::error::{expect_len, expect_sizes};
use crate::ops::{Backend, Converted, Load};
use crate::spgemm::sizes;
use crate::{Mat, Result};

/// Sets up coarser versions of matrices that are on the device.
///
/// Every result has the bits of [`spandrel_formats::amg`] on every device and for any number of threads: ties between
/// equal weights go to the lower number of a node, and every sum has a stated order. All methods block, may allocate,
/// and must not be recorded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not coarsen matrices in the format `{F}`",
    note = "CSR is coarsened; convert other formats to CSR first"
)]
pub trait Coarsen<F: Format>: Load<F> + Backend<F::Value> {
    /// The strong couplings of a matrix, and the aggregates made from them. Threads may share it.
    type Aggregates: Send + Sync + 'static;

    /// The plan for [`Coarsen::coarser_numeric`]: everything that depends only on patterns, aggregates and
    /// near-null-space vectors, and memory for the products between A and the coarser matrix.
    type CoarserPlan: Send + Sync + 'static;

    /// Finds the strong couplings of a square matrix with `unknowns` rows per node, as
    /// [`spandrel_formats::amg::Strength`] does, and aggregates the nodes. Returns the aggregates and their number.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix is square and its rows are whole nodes; [`crate::Error::OutOfMemory`].
    fn aggregate(&self, a: &Self::Resident, unknowns: usize, strength: f64) -> Result<(Self::Aggregates, usize)>;

    /// The aggregate of each node, or [`spandrel_formats::amg::UNASSIGNED`].
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] of the host.
    fn assignment(&self, aggregates: &Self::Aggregates) -> Result<Vec<Ordinal>>;

    /// Makes the smoothed prolongation of a matrix with the pattern that the aggregates were found on. `near_null`
    /// holds near-null-space vectors column by column, each with one element per row. See
    /// [`spandrel_formats::amg::smoothed`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless `near_null` holds whole columns, at least one, or the matrix has another size;
    /// [`crate::Error::OutOfMemory`].
    fn prolongation(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<Prolongation<Converted<Self::Resident>, Self::Vector>>;

    /// Makes P^T and the coarser matrix P^T (A P), with the bits of one [`crate::Transpose`] and two products of
    /// [`crate::Spgemm`]. Both results are for further set-up. For fast products with vectors, use what
    /// [`Coarsen::scaled`] makes from them.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless A is square and P has as many rows; as [`crate::Spgemm::spgemm_symbolic`].
    #[allow(clippy::type_complexity)] // P^T, and the coarser matrix
    fn galerkin(
        &self,
        a: &Self::Resident,
        p: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Converted<Self::Resident>)>;

    /// Finds the patterns of P, P^T and P^T (A P), as [`Coarsen::prolongation`] and [`Coarsen::galerkin`] make them for
    /// these aggregates and vectors. These patterns depend on the pattern of A and not on its values. The values of the
    /// three matrices mean nothing until [`Coarsen::coarser_numeric`] writes them.
    ///
    /// # Errors
    /// Those of [`Coarsen::prolongation`] and [`Coarsen::galerkin`].
    #[allow(clippy::type_complexity)] // three matrices with vectors, and the plan
    fn coarser_symbolic(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<(Coarser<Converted<Self::Resident>, Self::Vector>, Self::CoarserPlan)>;

    /// Computes the values of P, P^T and P^T (A P) for a matrix with the pattern of the symbolic phase, with the bits
    /// of [`Coarsen::prolongation`] and [`Coarsen::galerkin`], and adds 1 to the diagonal of the coarser matrix for
    /// each dropped unknown. Only the sizes of the pattern are checked; with another pattern the values mean nothing.
    /// Addresses stay the same; allocates nothing on a GPU.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless every matrix has the rows, columns and number of entries of the symbolic phase;
    /// [`crate::Error::OutOfMemory`] of a backend in host memory.
    fn coarser_numeric(
        &self,
        a: &Self::Resident,
        plan: &mut Self::CoarserPlan,
        to: Coarser<&mut Self::Resident, ()>,
    ) -> Result<()>;

    /// Returns the diagonal D of a square matrix, its inverse, and a bound on the spectrum of D^-1 A.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn scaling(&self, a: &Self::Resident) -> Result<Scaling<Self::Vector>>;

    /// Makes the matrix with the entries `m_ij (right_j left_i)`, or `m_ij left_i` without `right`. It may share the
    /// pattern of `m`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a vector of another length; [`crate::Error::OutOfMemory`].
    fn scaled(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
    ) -> Result<Converted<Self::Resident>>;

    /// Writes the values that [`Coarsen::scaled`] gives to `to`, which has the pattern of `m`. Only the number of
    /// entries is checked. Addresses stay the same.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a vector of another length or another number of entries.
    fn scaled_into(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
        to: &mut Self::Resident,
    ) -> Result<()>;

    /// Writes the values of one matrix to another with the same pattern. Only the number of entries is checked.
    /// Addresses stay the same.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of entries.
    fn copy_values(&self, from: &Self::Resident, to: &mut Self::Resident) -> Result<()>;

    /// Adds the row's element of `d` to the diagonal entry of each row that has one.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless `d` has one element per row.
    fn add_to_diagonal(&self, a: &mut Self::Resident, d: &Self::Vector) -> Result<()>;
}

/// A prolongation, and the vectors of the coarser matrix.
#[derive(Debug)]
pub struct Prolongation<P, V> {
    /// P, with one column per aggregate and near-null-space vector.
    pub p: P,
    /// The near-null-space vectors of the coarser matrix, column by column.
    pub near_null: V,
    /// 1 for each coarse unknown whose column of P is zero, because its vector depends linearly on earlier ones on the
    /// aggregate; 0 for all others.
    pub dropped: V,
}

/// The next coarser matrix, and the prolongation and restriction that lead to it.
#[derive(Clone, Copy, Debug)]
pub struct Coarser<M, V> {
    /// P.
    pub p: M,
    /// P^T.
    pub transposed: M,
    /// P^T (A P), with a 1 added to the diagonal for each dropped unknown.
    pub a: M,
    /// The near-null-space vectors of the coarser matrix, column by column. They do not depend on the values of A.
    pub near_null: V,
}

/// The diagonal D of a matrix, its inverse, and a bound on the spectrum of D^-1 A.
#[derive(Debug)]
pub struct Scaling<V> {
    /// The diagonal.
    pub diagonal: V,
    /// One over the diagonal.
    pub inverse: V,
    /// A bound on the magnitudes of the eigenvalues of D^-1 A, at least 1: the smaller of max_i (|D^-1 A| w)_i / w_i
    /// (Collatz) for w = 1 and w = |D^-1 A| 1, in f64 and stored order.
    pub bound: f64,
    /// The first row with an entry that is not finite, or without a positive diagonal entry that has a finite inverse.
    /// If there is one, the other fields mean nothing.
    pub unfit: Option<usize>,
}

/// Aggregates on a device, with the sizes of the matrix. [`Mat::aggregate`] makes them.
pub struct MatAggregates<B: Coarsen<F>, F: Format> {
    aggregates: B::Aggregates,
    count: usize,
    n: usize,
}

impl<B: Coarsen<F>, F: Format> fmt::Debug for MatAggregates<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatAggregates").field("count", &self.count).field("n", &self.n).finish_non_exhaustive()
    }
}

impl<B: Coarsen<F>, F: Format> MatAggregates<B, F> {
    /// Number of aggregates.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The aggregate of each node. See [`Coarsen::assignment`].
    ///
    /// # Errors
    /// As [`Coarsen::assignment`].
    pub fn assignment(&self, be: &B) -> Result<Vec<Ordinal>> {
        be.assignment(&self.aggregates)
    }
}

/// The plan of a coarser matrix on a device, with the sizes of the finer one. [`Mat::coarser`] makes it.
pub struct MatCoarser<B: Coarsen<F>, F: Format> {
    plan: B::CoarserPlan,
    /// The sizes of A, P, P^T and P^T A P.
    sizes: [(usize, usize, usize); 4],
}

impl<B: Coarsen<F>, F: Format> fmt::Debug for MatCoarser<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatCoarser").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl<B: Coarsen<F>, F: Format> MatCoarser<B, F> {
    /// Computes the values of the coarser matrix, P and P^T. See [`Coarsen::coarser_numeric`].
    ///
    /// # Errors
    /// As [`Coarsen::coarser_numeric`].
    pub fn numeric(&mut self, be: &B, a: &Mat<B, F>, to: &mut Coarser<Mat<B, F>, B::Vector>) -> Result<()> {
        let Coarser { p, transposed, a: coarse, .. } = to;
        let what = [
            ["a column of A", "a row of A", "the values of A"],
            ["a column of P", "a row of P", "the values of P"],
            ["a column of P^T", "a row of P^T", "the values of P^T"],
            ["a column of the coarser matrix", "a row of the coarser matrix", "the values of the coarser matrix"],
        ];
        expect_sizes("coarser", what, [a, &*p, &*transposed, &*coarse].map(sizes), self.sizes)?;
        let [p, transposed, coarse] = [p, transposed, coarse].map(Mat::resident_mut);
        be.coarser_numeric(a.resident(), &mut self.plan, Coarser { p, transposed, a: coarse, near_null: () })
    }
}

impl<F: Format, B: Coarsen<F>> Mat<B, F> {
    /// Finds the patterns of the next coarser matrix, P and P^T. [`MatCoarser::numeric`] computes their values. See
    /// [`Coarsen::coarser_symbolic`].
    ///
    /// # Errors
    /// As [`Coarsen::coarser_symbolic`].
    #[allow(clippy::type_complexity)] // the matrices and their plan
    pub fn coarser(
        &self,
        be: &B,
        aggregates: &MatAggregates<B, F>,
        near_null: &B::Vector,
    ) -> Result<(Coarser<Self, B::Vector>, MatCoarser<B, F>)> {
        expect_len("coarser", "a row", self.ncols(), self.nrows())?;
        expect_len("coarser", "the matrix", self.nrows(), aggregates.n)?;
        let n = self.nrows();
        let size = aggregates.count * (be.len(near_null) / n.max(1));
        let (Coarser { p, transposed, a, near_null }, plan) =
            be.coarser_symbolic(self.resident(), &aggregates.aggregates, near_null)?;
        // SAFETY: `Coarsen` makes a matrix with the rows of A and a column per aggregate and vector, its transpose, and
        // a square matrix with a row per column of P.
        let (p, transposed, a) = unsafe {
            (
                Self::from_resident(n, size, p),
                Self::from_resident(size, n, transposed),
                Self::from_resident(size, size, a),
            )
        };
        let plan = MatCoarser { plan, sizes: [self, &p, &transposed, &a].map(sizes) };
        Ok((Coarser { p, transposed, a, near_null }, plan))
    }

    /// Aggregates strongly coupled nodes. See [`Coarsen::aggregate`].
    ///
    /// # Errors
    /// As [`Coarsen::aggregate`].
    pub fn aggregate(&self, be: &B, unknowns: usize, strength: f64) -> Result<MatAggregates<B, F>> {
        let (aggregates, count) = be.aggregate(self.resident(), unknowns, strength)?;
        Ok(MatAggregates { aggregates, count, n: self.nrows() })
    }

    /// Makes the smoothed prolongation. See [`Coarsen::prolongation`].
    ///
    /// # Errors
    /// As [`Coarsen::prolongation`].
    pub fn prolongation(
        &self,
        be: &B,
        aggregates: &MatAggregates<B, F>,
        near_null: &B::Vector,
    ) -> Result<Prolongation<Self, B::Vector>> {
        expect_len("prolongation", "the matrix", self.nrows(), aggregates.n)?;
        let Prolongation { p, near_null: coarse, dropped } =
            be.prolongation(self.resident(), &aggregates.aggregates, near_null)?;
        // SAFETY: `Coarsen` makes a matrix with the rows of A and a column per aggregate and vector.
        let p = unsafe { Self::from_resident(self.nrows(), be.len(&dropped), p) };
        Ok(Prolongation { p, near_null: coarse, dropped })
    }

    /// Makes P^T and P^T A P, where this matrix is A. See [`Coarsen::galerkin`].
    ///
    /// # Errors
    /// As [`Coarsen::galerkin`].
    pub fn galerkin(&self, be: &B, p: &Self) -> Result<(Self, Self)> {
        expect_len("galerkin", "a row of A", self.ncols(), self.nrows())?;
        expect_len("galerkin", "a column of P", p.nrows(), self.nrows())?;
        let (transposed, coarse) = be.galerkin(self.resident(), p.resident())?;
        // SAFETY: `Coarsen` makes the transpose of P, and a square matrix with a row per column of P.
        Ok(unsafe {
            (Self::from_resident(p.ncols(), p.nrows(), transposed), Self::from_resident(p.ncols(), p.ncols(), coarse))
        })
    }

    /// The diagonal, its inverse and the bound on the spectrum. See [`Coarsen::scaling`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix is square; as [`Coarsen::scaling`].
    pub fn scaling(&self, be: &B) -> Result<Scaling<B::Vector>> {
        expect_len("scaling", "a row", self.ncols(), self.nrows())?;
        be.scaling(self.resident())
    }

    /// Makes a matrix with scaled rows and, with `right`, columns. See [`Coarsen::scaled`].
    ///
    /// # Errors
    /// As [`Coarsen::scaled`].
    pub fn scaled(&self, be: &B, left: &B::Vector, right: Option<&B::Vector>) -> Result<Self> {
        self.expect_scales(be, left, right)?;
        let made = be.scaled(self.resident(), left, right)?;
        // SAFETY: `Coarsen` makes a matrix with the same pattern.
        Ok(unsafe { Self::from_resident(self.nrows(), self.ncols(), made) })
    }

    /// Writes the values of this matrix with scaled rows and, with `right`, columns to a matrix with the same pattern;
    /// addresses stay. See [`Coarsen::scaled_into`].
    ///
    /// # Errors
    /// As [`Coarsen::scaled_into`], and for a matrix with other numbers of rows or columns.
    pub fn scaled_into(&self, be: &B, left: &B::Vector, right: Option<&B::Vector>, to: &mut Self) -> Result<()> {
        self.expect_scales(be, left, right)?;
        expect_len("scaled_into", "a column", to.nrows(), self.nrows())?;
        expect_len("scaled_into", "a row", to.ncols(), self.ncols())?;
        expect_len("scaled_into", "the values", to.nnz(), self.nnz())?;
        be.scaled_into(self.resident(), left, right, to.resident_mut())
    }

    fn expect_scales(&self, be: &B, left: &B::Vector, right: Option<&B::Vector>) -> Result<()> {
        expect_len("scaled", "the scales of rows", be.len(left), self.nrows())?;
        right.map_or(Ok(()), |right| expect_len("scaled", "the scales of columns", be.len(right), self.ncols()))
    }

    /// Takes over the values of a matrix with the same pattern; addresses stay. See [`Coarsen::copy_values`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix with other numbers of rows, columns or entries.
    pub fn copy_values(&mut self, be: &B, from: &Self) -> Result<()> {
        expect_len("copy_values", "a column", from.nrows(), self.nrows())?;
        expect_len("copy_values", "a row", from.ncols(), self.ncols())?;
        expect_len("copy_values", "the values", from.nnz(), self.nnz())?;
        be.copy_values(from.resident(), self.resident_mut())
    }

    /// Adds the row's element of `d` to the diagonal entry of each row. See [`Coarsen::add_to_diagonal`].
    ///
    /// # Errors
    /// As [`Coarsen::add_to_diagonal`].
    pub fn add_to_diagonal(&mut self, be: &B, d: &B::Vector) -> Result<()> {
        expect_len("add_to_diagonal", "d", be.len(d), self.nrows())?;
        be.add_to_diagonal(self.resident_mut(), d)
    }
}
