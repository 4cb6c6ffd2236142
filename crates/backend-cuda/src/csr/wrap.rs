//! A CSR matrix that is on the GPU already: taken over or borrowed without a copy, and checked there.
//!
//! Layout: that of a loaded matrix; kernels/include/checked.cuh defines where the check writes its counts.
//! Invariants: those of [`Csr`], which are checked before a kernel relies on them.
//!
//! Cost: row pointers twice and columns once at the speed of device memory, and some waits. Row pointers go to the host
//! if the kernel of the product needs them ([`super::CsrKernel`]).

use std::borrow::Cow;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, DeviceRepr, sys};
use spandrel_backend::{Converted, Error, Mat, Result};
use spandrel_formats::{Csr, Error as Wrong, Offset, Ordinal, Real, index};

use super::choose::{BINS, RowStats};
use super::load::Arrays;
use super::{CudaCsr, not_recorded};
use crate::Cuda;
use crate::error::NAME;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::persistent::Reach;

kernels! {
    struct CheckRowsCsr { row_ptr: Address, nrows: u32, words: Address }
    in CSR { ENTRY: "check_rows_csr" }

    struct CheckColumnsCsr { row_ptr: Address, col_idx: Address, nrows: u32, ncols: u32, words: Address }
    in CSR { ENTRY: "check_columns_csr" }
}

/// The device addresses of a CSR matrix, for [`Cuda::wrap_raw_csr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawCsr {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// Number of stored entries.
    pub nnz: usize,
    /// Address of `nrows + 1` row pointers, `u32`.
    pub row_ptr: sys::CUdeviceptr,
    /// Address of `nnz` columns, `u32`, a multiple of 16.
    pub col_idx: sys::CUdeviceptr,
    /// Address of `nnz` values, a multiple of 16.
    pub values: sys::CUdeviceptr,
}

/// The alignment of columns and values in bytes: kernels read this many at a time.
const ALIGNED: u64 = 16;

/// The number of rows that a warp checks at a time, and the number of threads per thread block (`CHECK_ROWS`,
/// `CHECK_THREADS` of kernels/include/checked.cuh).
const ROWS: usize = 128;
const THREADS: usize = 256;
/// The largest number of thread blocks per multiprocessor: two for each that it holds.
const BLOCKS: usize = 16;

/// The places of the check's results (kernels/include/checked.cuh).
const WRONG_POINTER: usize = 0;
const WRONG_COLUMN: usize = 1;
const LONGEST: usize = 2;
const STEPS: usize = 3;
const EIGHTS: usize = 4;
const MOST: usize = 5;
const BELOW: usize = 6;
const ABOVE: usize = 7;
const OF_BINS: usize = 8;
const WORDS: usize = OF_BINS + BINS;

fn in_row(row: usize, error: Wrong) -> Error {
    Error::Format(Wrong::InRow { row, error: Box::new(error) })
}

/// # Errors
/// [`Error::Unsupported`] for an address that is no multiple of [`ALIGNED`].
fn expect_aligned(array: &str, address: u64) -> Result<()> {
    if address.is_multiple_of(ALIGNED) {
        return Ok(());
    }
    let why = format!(
        "{array} lie {} bytes past a multiple of {ALIGNED}, and kernels read {ALIGNED} bytes at a time: put them at the beginning of an allocation",
        address % ALIGNED
    );
    Err(Error::Unsupported { op: "wrap", noun: "csr", why })
}

/// The first wrong column of the row that begins at entry `begin`.
fn wrong_column(cols: &[Ordinal], begin: usize, bound: usize) -> Option<Wrong> {
    let (format, array) = ("csr", "col_idx");
    (0..cols.len()).find_map(|k| {
        let at = begin + k;
        if cols[k] as usize >= bound {
            return Some(Wrong::IndexOutOfRange { format, array, at, found: i64::from(cols[k]), bound });
        }
        (k > 0 && cols[k] <= cols[k - 1]).then_some(Wrong::Unsorted { format, array, at })
    })
}

/// The arrays of a matrix, whose lengths were compared.
struct Given<T> {
    shape: (usize, usize, usize),
    row_ptr: Buffer<Offset>,
    col_idx: Buffer<Ordinal>,
    values: Buffer<T>,
}

impl Cuda {
    /// Wraps slices that cudarc allocated on the same device as a CSR matrix, without a copy.
    ///
    /// The matrix owns the slices from here on and frees them in the order of their own streams. Columns and values
    /// must be aligned to 16 bytes, as every allocation is; nothing beyond their ends is read. Otherwise the matrix
    /// equals a loaded one, with the same bits. Blocks: it waits for the slices' streams and checks the structure on
    /// the device. Must not be recorded.
    ///
    /// # Errors
    /// Those of [`Csr::new`] as [`Error::Format`]; a wrong structure is an [`InRow`](spandrel_formats::Error::InRow)
    /// that names the row. [`Error::Unsupported`] for slices that are not aligned; a slice of another device; an error
    /// of earlier work; [`Error::OutOfMemory`]. The slices are then freed.
    pub fn wrap_csr<T: Real + DeviceRepr>(
        &self,
        nrows: usize,
        ncols: usize,
        row_ptr: CudaSlice<Offset>,
        col_idx: CudaSlice<Ordinal>,
        values: CudaSlice<T>,
    ) -> Result<Mat<Self, Csr<T>>> {
        let length = |array, found, expected| {
            if found == expected { Ok(()) } else { Err(Wrong::Length { format: "csr", array, found, expected }) }
        };
        length("row_ptr", row_ptr.len(), nrows.saturating_add(1))?;
        length("values", values.len(), col_idx.len())?;
        let shape = (nrows, ncols, col_idx.len());
        let (row_ptr, col_idx, values) = (self.adopt(row_ptr)?, self.adopt(col_idx)?, self.adopt(values)?);
        self.wrap_checked(Given { shape, row_ptr, col_idx, values })
    }

    /// Wraps device memory that someone else owns as a CSR matrix, without a copy.
    ///
    /// It is like [`Cuda::wrap_csr`], except that dropping the matrix does not free the memory. New values of the
    /// matrix are written to that memory. The owner may write other values between operations, in the order of this
    /// backend's queue, for example through a [`Vector`](crate::Vector) over the same memory ([`Cuda::wrap_raw`]). It
    /// then calls [`CudaCsr::update_values_from`] with that vector, which copies nothing.
    ///
    /// # Errors
    /// As [`Cuda::wrap_csr`], without those of slices.
    ///
    /// # Safety
    /// The addresses refer to the numbers of elements in [`RawCsr`], in memory of this backend's device, aligned to
    /// their types; work that wrote them has ended. They outlive the matrix and every recorded step that uses it. Until
    /// then no one writes row pointers and columns, and no one reads or writes the values during an operation of the
    /// matrix.
    pub unsafe fn wrap_raw_csr<T: Real>(&self, raw: RawCsr) -> Result<Mat<Self, Csr<T>>> {
        let RawCsr { nrows, ncols, nnz, row_ptr, col_idx, values } = raw;
        let stream = self.stream();
        // SAFETY: the caller's promise, which holds only as long as the matrix lives. Anyone who needs the pattern for
        // longer copies it (`Buffer::is_borrowed`).
        let (row_ptr, col_idx, values) = unsafe {
            let row_ptr = Buffer::borrow(stream, row_ptr, nrows.saturating_add(1));
            (row_ptr, Buffer::borrow(stream, col_idx, nnz), Buffer::borrow(stream, values, nnz))
        };
        self.wrap_checked(Given { shape: (nrows, ncols, nnz), row_ptr, col_idx, values })
    }

    fn wrap_checked<T: Real>(&self, given: Given<T>) -> Result<Mat<Self, Csr<T>>> {
        not_recorded(self, "wrapping a matrix")?;
        let (nrows, ncols, nnz) = given.shape;
        index::checked(nrows, "rows")?;
        index::checked(ncols, "columns")?;
        index::checked(nnz, "entries")?;
        expect_aligned("columns", given.col_idx.pointer().get())?;
        expect_aligned("values", given.values.pointer().get())?;
        let (stats, reach) = self.check_csr(&given)?;
        let Given { shape, row_ptr, col_idx, values } = given;
        let (row_ptr, col_idx) = (Arc::new(row_ptr), Arc::new(col_idx));
        let pointers = row_ptr.clone();
        let rows = || pointers.to_host("a matrix's row pointers").map(Cow::Owned);
        let resident: CudaCsr<T> =
            self.make_csr(shape, rows, Arrays { row_ptr, col_idx, values, reach, stats }, None)?;
        let (storage, spmv_bytes) = Csr::<T>::traffic_of(nrows, ncols, nnz);
        // SAFETY: checked above.
        Ok(unsafe { Mat::from_resident(nrows, ncols, Converted { resident, nnz, storage, spmv_bytes }) })
    }

    /// Checks that the arrays are a matrix, and collects what its products need to know about the rows. Blocks.
    fn check_csr<T: Real>(&self, given: &Given<T>) -> Result<(RowStats, Option<(Reach, usize)>)> {
        let Given { shape: (nrows, ncols, nnz), row_ptr, col_idx, .. } = given;
        let (nrows, ncols, nnz) = (*nrows, *ncols, *nnz);
        let words = Buffer::<u64>::zeros(self.stream(), WORDS, "what a matrix is")?;
        self.check_rows::<T>(nrows, row_ptr, &words)?;
        let mut found = vec![0; WORDS];
        words.read_at(0, &mut found)?;
        let wrong = |found: &[u64], place: usize| (found[place] != 0).then(|| !found[place] as usize);
        let pointer = |at: usize| -> Result<Offset> {
            let mut value = [0];
            row_ptr.read_at(at, &mut value)?;
            Ok(value[0])
        };
        let refused = |at: usize, found: Offset| {
            let error = Wrong::Pointer { format: "csr", array: "row_ptr", at, found: u64::from(found) };
            Err(in_row(at.saturating_sub(1), error))
        };
        let (first, last) = (pointer(0)?, pointer(nrows)?);
        if first != 0 {
            return refused(0, first);
        }
        if let Some(row) = wrong(&found, WRONG_POINTER) {
            return refused(row + 1, pointer(row + 1)?);
        }
        if last as usize != nnz {
            return refused(nrows, last);
        }
        if nnz > 0 {
            self.check_columns::<T>((nrows, ncols), row_ptr, col_idx, &words)?;
            words.read_at(0, &mut found)?;
        }
        if let Some(row) = wrong(&found, WRONG_COLUMN) {
            let (begin, end) = (pointer(row)? as usize, pointer(row + 1)? as usize);
            let mut of_row = vec![0; end.saturating_sub(begin)];
            col_idx.read_at(begin, &mut of_row)?;
            return Err(match wrong_column(&of_row, begin, ncols) {
                Some(error) => in_row(row, error),
                None => Error::Device {
                    device: NAME,
                    why: format!("row {row} changed while the matrix was checked: wait for the work that writes it"),
                },
            });
        }
        Ok(self.facts((nrows, ncols), &found))
    }

    fn check_rows<T: Real>(&self, nrows: usize, row_ptr: &Buffer<Offset>, words: &Buffer<u64>) -> Result<()> {
        if nrows == 0 {
            return Ok(());
        }
        let blocks = nrows.div_ceil(ROWS * THREADS / 32).min(BLOCKS * self.multiprocessors());
        let parameters = CheckRowsCsr { row_ptr: row_ptr.pointer(), nrows: nrows as u32, words: words.pointer() };
        // SAFETY: check_rows_csr(row_ptr, nrows, words), one warp per 128 rows at a time.
        unsafe { self.launch::<T, _>(CheckRowsCsr::ENTRY, Grid::of(blocks, THREADS as u32), &parameters) }
    }

    /// Checks the columns. Runs only after the row pointers have been checked.
    fn check_columns<T: Real>(
        &self,
        (nrows, ncols): (usize, usize),
        row_ptr: &Buffer<Offset>,
        col_idx: &Buffer<Ordinal>,
        words: &Buffer<u64>,
    ) -> Result<()> {
        let (row_ptr, col_idx, words) = (row_ptr.pointer(), col_idx.pointer(), words.pointer());
        let parameters = CheckColumnsCsr { row_ptr, col_idx, nrows: nrows as u32, ncols: ncols as u32, words };
        // SAFETY: check_columns_csr(row_ptr, col_idx, nrows, ncols, words). The row pointers have been checked.
        unsafe { self.launch::<T, _>(CheckColumnsCsr::ENTRY, self.walk_grid(nrows), &parameters) }
    }

    /// The facts about the rows that products need, from both checks.
    fn facts(&self, (nrows, ncols): (usize, usize), found: &[u64]) -> (RowStats, Option<(Reach, usize)>) {
        let mut stats = RowStats::of(&[0]);
        (stats.longest, stats.steps, stats.eights) = (found[LONGEST] as usize, found[STEPS], found[EIGHTS] as usize);
        stats.bins.copy_from_slice(&found[OF_BINS..]);
        let reach = self.may_persist(nrows, ncols).then(|| {
            let reach = Reach { below: found[BELOW] as usize, above: found[ABOVE] as usize };
            (reach, (found[MOST] as usize).div_ceil(ROWS))
        });
        (stats, reach)
    }

    /// As [`Cuda::check_csr`], for a matrix that is known to be valid. Columns are read only if a persistent solve may
    /// take the matrix. Blocks.
    pub(super) fn row_facts<T: Real>(
        &self,
        (nrows, ncols, nnz): (usize, usize, usize),
        row_ptr: &Buffer<Offset>,
        col_idx: &Buffer<Ordinal>,
    ) -> Result<(RowStats, Option<(Reach, usize)>)> {
        let words = Buffer::<u64>::zeros(self.stream(), WORDS, "what a matrix is")?;
        self.check_rows::<T>(nrows, row_ptr, &words)?;
        if nnz > 0 && self.may_persist(nrows, ncols) {
            self.check_columns::<T>((nrows, ncols), row_ptr, col_idx, &words)?;
        }
        let found = words.to_host("what a matrix is")?;
        Ok(self.facts((nrows, ncols), &found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_column_is_found_as_the_host_finds_it() {
        for (cols, bound) in [(vec![0, 2, 2], 5), (vec![3, 1, 9], 5), (vec![0, 9, 1], 5), (vec![7], 7), (vec![1, 4], 5)]
        {
            let nnz = cols.len() as u32;
            let host = Csr::new(1, bound, vec![0, nnz], cols.clone(), vec![1.0; cols.len()]).err();
            let here = wrong_column(&cols, 0, bound);
            assert_eq!(here.map(|e| e.to_string()), host.map(|e| e.to_string()), "{cols:?}");
        }
    }

    #[test]
    fn addresses_are_aligned_or_refused() {
        assert!(expect_aligned("values", 0x7f00_0000_0010).is_ok());
        let refused = expect_aligned("values", 0x7f00_0000_0008).unwrap_err().to_string();
        assert!(refused.contains("values lie 8 bytes past a multiple of 16"), "{refused}");
    }
}
