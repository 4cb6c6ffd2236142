//! CSR matrices that kernels made on the GPU, their download to the host, and operations that write values.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Weak};

use spandrel_backend::{Converted, Download, Error, Result};
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use super::choose::RowStats;
use super::load::Arrays;
use super::{CsrKernel, CudaCsr, not_recorded};
use crate::Cuda;
use crate::error::NAME;
use crate::memory::Buffer;

/// The arrays of a matrix that kernels made: rows, columns and entries, row pointers, columns, values.
pub(crate) struct MadeArrays<T> {
    pub(crate) shape: (usize, usize, usize),
    pub(crate) row_ptr: Buffer<Offset>,
    pub(crate) col_idx: Buffer<Ordinal>,
    pub(crate) values: Buffer<T>,
}

/// Describes a matrix that an operation made, as the contract requires.
pub(crate) fn converted<T: Real>(resident: CudaCsr<T>) -> Converted<CudaCsr<T>> {
    let (storage, spmv_bytes) = Csr::<T>::traffic_of(resident.nrows, resident.ncols, resident.nnz);
    Converted { nnz: resident.nnz, resident, storage, spmv_bytes }
}

impl Cuda {
    /// A matrix of these arrays. They are not checked: the operation that made them guarantees that they are valid.
    /// Blocks.
    pub(crate) fn made_csr<T: Real>(&self, arrays: MadeArrays<T>) -> Result<Converted<CudaCsr<T>>> {
        let MadeArrays { shape, row_ptr, col_idx, values } = arrays;
        self.with_kernel(shape, Arc::new(row_ptr), Arc::new(col_idx), values).map(converted)
    }

    /// As [`Cuda::made_csr`], for further set-up: one thread per row forms products with vectors, however long the rows
    /// are.
    pub(crate) fn bare_csr<T: Real>(&self, arrays: MadeArrays<T>) -> Result<CudaCsr<T>> {
        let MadeArrays { shape, row_ptr, col_idx, values } = arrays;
        let (row_ptr, col_idx) = (Arc::new(row_ptr), Arc::new(col_idx));
        let arrays = Arrays { row_ptr, col_idx, values, reach: None, stats: RowStats::new() };
        // Only kernels with classes or pieces read the row pointers on the host. `Scalar` does not.
        self.make_csr(shape, || Ok(Cow::Borrowed(&[])), arrays, Some(CsrKernel::Scalar))
    }

    /// A matrix with the kernel that suits its rows. Blocks.
    fn with_kernel<T: Real>(
        &self,
        shape: (usize, usize, usize),
        row_ptr: Arc<Buffer<Offset>>,
        col_idx: Arc<Buffer<Ordinal>>,
        values: Buffer<T>,
    ) -> Result<CudaCsr<T>> {
        let (stats, reach) = self.row_facts::<T>(shape, &row_ptr, &col_idx)?;
        let pointers = row_ptr.clone();
        let rows = || pointers.to_host("a matrix's row pointers").map(Cow::Owned);
        self.make_csr(shape, rows, Arrays { row_ptr, col_idx, values, reach, stats }, None)
    }

    /// A matrix of short rows, such as a prolongation, with a kernel that needs no classes of rows. The host would have
    /// to make the classes, which takes longer than a set-up on the device. Blocks.
    pub(crate) fn short_rows_csr<T: Real>(&self, arrays: MadeArrays<T>) -> Result<Converted<CudaCsr<T>>> {
        let MadeArrays { shape, row_ptr, col_idx, values } = arrays;
        let (stats, reach) = self.row_facts::<T>(shape, &row_ptr, &col_idx)?;
        let kernel = stats.without_classes(shape.0, shape.2);
        let (row_ptr, col_idx) = (Arc::new(row_ptr), Arc::new(col_idx));
        let pointers = row_ptr.clone();
        let rows = || pointers.to_host("a matrix's row pointers").map(Cow::Owned);
        self.make_csr(shape, rows, Arrays { row_ptr, col_idx, values, reach, stats }, kernel).map(converted)
    }

    /// A matrix with these values on the pattern of another. Its kernel is chosen again. Blocks.
    pub(crate) fn on_pattern<T: Real>(&self, of: &CudaCsr<T>, values: Buffer<T>) -> Result<CudaCsr<T>> {
        let [row_ptr, col_idx] = self.pattern_of(of)?;
        self.with_kernel((of.nrows, of.ncols, of.nnz), row_ptr, col_idx, values)
    }

    /// A matrix with these values on the pattern of another, which both keep. Blocks if the kernel of its products
    /// needs the row pointers on the host.
    pub(super) fn sharing_pattern<T: Real, S: Real>(&self, of: &CudaCsr<S>, values: Buffer<T>) -> Result<CudaCsr<T>> {
        let arrays = Arrays {
            row_ptr: self.shared(&of.row_ptr, "a matrix's row pointers")?,
            col_idx: self.shared(&of.col_idx, "a matrix's columns")?,
            values,
            reach: of.reach,
            stats: of.stats.clone(),
        };
        let rows = || of.row_ptr.to_host("a matrix's row pointers").map(Cow::Owned);
        self.make_csr((of.nrows, of.ncols, of.nnz), rows, arrays, None)
    }

    /// Row pointers and columns of a matrix, which keeps them as well.
    pub(crate) fn pattern_of<T: Real>(&self, m: &CudaCsr<T>) -> Result<[Arc<Buffer<u32>>; 2]> {
        Ok([self.shared(&m.row_ptr, "a matrix's row pointers")?, self.shared(&m.col_idx, "a matrix's columns")?])
    }

    /// Shares the memory, which is freed in the order of its queue. Makes a copy if the queue is another one, or if the
    /// memory is only borrowed by the other matrix.
    fn shared(&self, from: &Arc<Buffer<u32>>, what: &'static str) -> Result<Arc<Buffer<u32>>> {
        Ok(match Arc::ptr_eq(from.stream(), self.stream()) && !from.is_borrowed() {
            true => Arc::clone(from),
            false => Arc::new(self.duplicate(from, from.len(), what)?),
        })
    }
}

/// The memory of a pattern, which is never written again while a matrix has it. This neither keeps it nor reads it.
#[derive(Clone, Debug)]
pub(crate) struct PatternMark([Weak<Buffer<u32>>; 2]);

impl<T> CudaCsr<T> {
    /// Marks the pattern. `None` if its memory is somebody else's, who may write it.
    pub(crate) fn pattern_mark(&self) -> Option<PatternMark> {
        let arrays = [&self.row_ptr, &self.col_idx];
        let is_own = arrays.iter().all(|array| !array.is_borrowed());
        is_own.then(|| PatternMark(arrays.map(Arc::downgrade)))
    }

    /// Returns true if the pattern lies in the marked memory, so that it is the same.
    pub(crate) fn has_pattern(&self, PatternMark([row_ptr, col_idx]): &PatternMark) -> bool {
        // A weak pointer keeps its address from being used again.
        row_ptr.as_ptr() == Arc::as_ptr(&self.row_ptr) && col_idx.as_ptr() == Arc::as_ptr(&self.col_idx)
    }
}

impl<T: Real> CudaCsr<T> {
    /// The values, for an operation that overwrites all of them. Products then no longer use the stored transpose. A
    /// matrix that a recorded step writes never stores one.
    ///
    /// # Errors
    /// [`Error::Device`] while a step is being recorded, if a product with the transpose was formed since the last
    /// plain write.
    pub(crate) fn overwritten(&mut self, cuda: &Cuda) -> Result<&Buffer<T>> {
        if cuda.is_capturing() {
            if self.transposed.get().is_some() {
                let why = "a step that gives a matrix new values cannot be recorded after a product with its transpose, which is stored: \
                           make the transpose a matrix of its own";
                return Err(Error::Device { device: NAME, why: why.into() });
            }
            self.rewritten = true;
        } else {
            self.transposed.take();
        }
        Ok(&self.values)
    }
}

impl<T: Real> Download<Csr<T>> for Cuda {
    fn download_matrix(&self, m: &CudaCsr<T>) -> Result<Csr<T>> {
        not_recorded(self, "a matrix on its way to the host")?;
        let (row_ptr, col_idx) = m.download_pattern()?;
        let values = m.values.to_host("a matrix's values")?;
        // SAFETY: the pattern is that of a CSR matrix; nothing writes it on the device.
        Ok(unsafe { Csr::new_unchecked(m.nrows, m.ncols, row_ptr, col_idx, values) })
    }

    fn download_rows(&self, m: &CudaCsr<T>, rows: Range<usize>) -> Result<Csr<T>> {
        not_recorded(self, "rows of a matrix on their way to the host")?;
        let nrows = rows.len();
        let mut row_ptr = m.row_ptr.range_to_host(rows.start..rows.start + nrows + 1, "row pointers of some rows")?;
        let (begin, end) = (row_ptr[0], row_ptr[nrows]);
        row_ptr.iter_mut().for_each(|at| *at -= begin);
        let entries = begin as usize..end as usize;
        let col_idx = m.col_idx.range_to_host(entries.clone(), "the columns of some rows")?;
        let values = m.values.range_to_host(entries, "the values of some rows")?;
        // SAFETY: consecutive rows of a CSR matrix are one of as many columns, once its pointers count from their
        // begin; nothing writes the pattern on the device.
        Ok(unsafe { Csr::new_unchecked(nrows, m.ncols, row_ptr, col_idx, values) })
    }
}
