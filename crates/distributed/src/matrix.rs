//! A matrix whose rows lie on the ranks: own block, boundary, and products with the bits of the whole matrix.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Coeff, Download, Entries, Error, Gate, Join, Load, Mat, Operator, Result, Spmv};
use spandrel_formats::{Csr, Format, Ordinal, Real};

use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::halo::{Boundary, Halo};
use crate::layout::Layout;
use crate::rows::{Column, Rows};

/// The own block keeps the entries of boundary rows, whose results are overwritten, unless they are more than one in
/// this many of the rank's entries. Keeping them leaves a stencil intact; dropping them saves memory.
const KEPT: usize = 8;

/// A device that a rank of a distributed solve can run on: one whose sums can be joined, and that exchanges entries of
/// vectors with the host.
pub trait Local<T: Real>: Entries<T> + Join + Spmv<Csr<T>> + 'static {}
impl<T: Real, B: Entries<T> + Join + Spmv<Csr<T>> + 'static> Local<T> for B {}

/// A matrix whose rows lie on the ranks, its own block in the format `F`.
///
/// It is an [`Operator`] of the [`Distributed`] device: [`Operator::shape`] is the shape of the whole matrix.
pub struct DistributedMat<B: Load<F> + Load<Csr<F::Value>> + Entries<F::Value>, F: Format = Csr<f64>> {
    rows: Arc<Layout>,
    columns: Arc<Layout>,
    own: Mat<B, F>,
    /// `None` if there is only one rank.
    halo: Option<Halo<F::Value, B>>,
    nnz: usize,
    total_nnz: u64,
}

impl<B: Load<F> + Load<Csr<F::Value>> + Entries<F::Value>, F: Format> fmt::Debug for DistributedMat<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedMat")
            .field("rows", &self.rows)
            .field("nnz", &self.nnz)
            .field("halo", &self.halo)
            .finish_non_exhaustive()
    }
}

impl<F: Format, B: Local<F::Value> + Spmv<F>> DistributedMat<B, F> {
    /// Makes a square matrix from the rows of each rank. Together the ranks have all rows, in the order of the ranks;
    /// see [`crate::Partition`] for where a rank may end. Waits for the other ranks.
    ///
    /// # Errors
    /// On every rank: [`Error::Unsupported`] if the rows of the ranks do not follow each other, or the matrix is not
    /// square; the error of the rank where something fails, which is [`Error::Rank`] on the others.
    pub fn from_rows<C: Communicator, J: Column>(be: &Distributed<B, C>, rows: Rows<F::Value, J>) -> Result<Self> {
        let (layout, ncols) = (be.lay_out_rows(&rows)?, rows.ncols());
        if ncols != layout.len() as u64 {
            let why = format!(
                "it has {} rows and {ncols} columns; a distributed solve needs a square matrix; other matrices need a layout of their columns",
                layout.len()
            );
            return Err(Error::Unsupported { op: "a distributed matrix", noun: "rows", why });
        }
        Self::between(be, rows, Arc::clone(&layout), layout)
    }

    /// As [`DistributedMat::from_rows`], for a matrix that is multiplied with vectors of another layout.
    ///
    /// # Errors
    /// As there; [`Error::Shape`] unless `columns` has the columns of the matrix.
    pub fn from_rows_onto<C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        rows: Rows<F::Value, J>,
        columns: &Arc<Layout>,
    ) -> Result<Self> {
        let (layout, ncols) = (be.lay_out_rows(&rows)?, rows.ncols());
        expect_len("a distributed matrix", "the layout of its columns", columns.len(), ncols as usize)?;
        Self::between(be, rows, layout, Arc::clone(columns))
    }

    /// Makes a matrix whose rows and columns lie as these layouts say. Waits for the other ranks.
    pub(crate) fn between<C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        rows: Rows<F::Value, J>,
        layout: Arc<Layout>,
        columns: Arc<Layout>,
    ) -> Result<Self> {
        let (nnz, own) = (rows.nnz(), columns.rows());
        let boundary = be.together(Boundary::of(&rows, &own).map_err(Error::from))?;
        let keeps_all = KEPT * boundary.own_entries() <= nnz;
        let block = || {
            let mut drops = boundary.rows.iter().peekable();
            let mut is_boundary = vec![false; if keeps_all { 0 } else { rows.len() }];
            if !keeps_all {
                drops.by_ref().for_each(|&row| is_boundary[row as usize] = true);
            }
            let block = rows.into_block(own, &|row| keeps_all || !is_boundary[row])?;
            // CSR is taken over without a copy.
            Mat::load(be.device(), Arc::new(F::from_csr_owned(block)?))
        };
        let block = block();
        let block = be.together(block)?;
        let halo = if be.size() == 1 {
            None
        } else {
            Some(be.told(Halo::new(be.device(), be.team(), (columns.partition(), layout.own()), boundary))?)
        };
        let total_nnz = be.team().numbers(&[nnz as u64])?.iter().map(|of| of[0]).sum();
        Ok(Self { rows: layout, columns, own: block, halo, nnz, total_nnz })
    }

    /// y <- a A x + b y. See [`Spmv::spmv`].
    ///
    /// # Errors
    /// [`Error::Shape`] for operands of other lengths; [`Error::Rank`]; those of the device.
    pub fn spmv<C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        a: Coeff<'_, F::Value, <B as Backend<F::Value>>::Scalar>,
        x: &Vector<F::Value, B>,
        b: Coeff<'_, F::Value, <B as Backend<F::Value>>::Scalar>,
        y: &mut Vector<F::Value, B>,
    ) -> Result<()> {
        be.told(self.check(x, y))?;
        let device = be.device();
        let own = |y: &mut <B as Backend<F::Value>>::Vector| self.own.spmv(device, gate, a, &x.part, b, y);
        be.told(match &self.halo {
            None => own(&mut y.part),
            Some(halo) => halo.product(device, be.team(), gate, a, &x.part, b, &mut y.part, own),
        })
    }

    fn check(&self, x: &Vector<F::Value, B>, y: &Vector<F::Value, B>) -> Result<()> {
        expect_len("a distributed product", "x", x.layout.len(), self.columns.len())?;
        expect_len("a distributed product", "y", y.layout.len(), self.rows.len())
    }
}

impl<F: Format, B: Load<F> + Load<Csr<F::Value>> + Entries<F::Value>> DistributedMat<B, F> {
    /// How the rows lie on the ranks.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.rows
    }
    /// The rows of this rank in own columns, on the device of this rank.
    pub fn own(&self) -> &Mat<B, F> {
        &self.own
    }
    /// Number of entries of this rank.
    pub fn nnz(&self) -> usize {
        self.nnz
    }
    /// Number of entries of all ranks.
    pub fn total_nnz(&self) -> u64 {
        self.total_nnz
    }
}

impl<F: Format, B: Local<F::Value> + Spmv<F>> DistributedMat<B, F> {
    /// Rows of this rank that need entries of x from other ranks.
    pub fn boundary_rows(&self) -> usize {
        self.halo.as_ref().map_or(0, Halo::len)
    }
    /// Entries of x that this rank receives for a product.
    pub fn ghosts(&self) -> usize {
        self.halo.as_ref().map_or(0, Halo::ghosts)
    }
    /// Bytes of the arrays of this rank.
    pub fn storage(&self) -> u64 {
        self.own.storage() + self.halo.as_ref().map_or(0, Halo::storage)
    }
}

/// A copy of a rank's rows on the host, for separate computations.
#[derive(Debug)]
#[non_exhaustive]
pub struct HostRows<T> {
    /// The own block: columns count from the first own one. Boundary rows may lack entries.
    pub own: Csr<T>,
    /// The own entries of x.
    pub x: Vec<T>,
    /// The rows that need entries of x from other ranks; `None` if there is only one rank.
    pub boundary: Option<HostBoundary<T>>,
}

/// The boundary rows of a rank on the host.
#[derive(Debug)]
#[non_exhaustive]
pub struct HostBoundary<T> {
    /// Their numbers among the rank's rows.
    pub rows: Vec<Ordinal>,
    /// Their entries, with one column per column in which one of them has an entry.
    pub matrix: Csr<T>,
    /// The x that the matrix is multiplied with.
    pub x: Vec<T>,
}

impl<T: Real, B: Local<T> + Download<Csr<T>>> DistributedMat<B, Csr<T>> {
    /// Copies the rows of this rank to the host, and the entries of x that they need. Waits for the other ranks.
    ///
    /// # Errors
    /// [`Error::Shape`] for an x of another length; [`Error::Rank`]; those of the device.
    pub fn on_host<C: Communicator>(&self, be: &Distributed<B, C>, x: &Vector<T, B>) -> Result<HostRows<T>> {
        be.told(expect_len("rows on the host", "x", x.layout.len(), self.columns.len()))?;
        let copied = || {
            let boundary = self.halo.as_ref().map(|halo| halo.on_host(be.device(), be.team(), &x.part)).transpose()?;
            Ok(HostRows { own: self.own.download(be.device())?, x: be.device().download(&x.part)?, boundary })
        };
        be.told(copied())
    }
}

// SAFETY: a distributed device records nothing, so no address is kept between calls.
unsafe impl<F: Format, B: Local<F::Value> + Spmv<F>, C: Communicator> Operator<F::Value, Distributed<B, C>>
    for DistributedMat<B, F>
{
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.columns.len())
    }

    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        x: &Vector<F::Value, B>,
        y: &mut Vector<F::Value, B>,
    ) -> Result<()> {
        self.spmv(be, gate, Coeff::one(), x, Coeff::zero(), y)
    }

    fn apply_dot(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        x: &Vector<F::Value, B>,
        y: &mut Vector<F::Value, B>,
        w: &Vector<F::Value, B>,
        wy: &mut <B as Backend<F::Value>>::Scalar,
        yy: Option<&mut <B as Backend<F::Value>>::Scalar>,
    ) -> Result<()> {
        be.told(
            self.check(x, y).and_then(|()| expect_len("a distributed product", "w", w.layout.len(), self.rows.len())),
        )?;
        let (x, y, w) = (&x.part, &mut y.part, &w.part);
        let Some(halo) = &self.halo else {
            // One rank has all rows, so its sums are complete.
            return be.told(self.own.apply_dot(be.device(), gate, x, y, w, wy, yy));
        };
        be.told(be.joined(&self.rows, |device| {
            halo.product_around(device, be.team(), gate, x, |rest| {
                device.apply_dot_around(gate, &self.own, x, y, w, wy, yy, halo.blocks(), rest)
            })
        }))
    }

    fn residual(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        b: &Vector<F::Value, B>,
        x: &Vector<F::Value, B>,
        r: &mut Vector<F::Value, B>,
    ) -> Result<()> {
        be.told(
            self.check(x, r).and_then(|()| expect_len("a distributed product", "b", b.layout.len(), self.rows.len())),
        )?;
        let (device, x, b, r) = (be.device(), &x.part, &b.part, &mut r.part);
        be.told(match &self.halo {
            None => self.own.residual(device, gate, b, x, r),
            Some(halo) => {
                halo.residual(device, be.team(), gate, (b, x), r, |r| self.own.residual(device, gate, b, x, r))
            }
        })
    }

    fn stored(&self) -> Option<&dyn Any> {
        if self.halo.is_none() { Some(self.own.resident()) } else { None }
    }
}
