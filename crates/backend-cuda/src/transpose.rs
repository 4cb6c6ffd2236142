//! The transpose of a matrix on the GPU: its pattern once, then values as often as requested.
//!
//! Layout: the position in A of each entry of A^T. Order: nothing is summed. Cost: see kernels/transpose.cu; the host
//! waits for the pattern once. Kernels: kernels/transpose.cu, and kernels/coo.cu for the row of each entry.

use spandrel_backend::transpose::expect;
use spandrel_backend::{Converted, Gate, Result, Transpose};
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::coo::RowsFromCsrCoo;
use crate::csr::{MadeArrays, not_recorded};
use crate::device::gate_pointer;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::spgemm::{bitmaps, sizes};
use crate::{Cuda, CudaCsr};

kernels! {
    struct CountTranspose { cols: Address, nnz: u32, counts: Address }
    in TRANSPOSE { ENTRY: "count_transpose" }

    struct PlaceTranspose { cols: Address, nnz: u32, cursors: Address, positions: Address }
    in TRANSPOSE { ENTRY: "place_transpose" }

    struct SortTranspose {
        ptr: Address, ncols: u32, rows_of: Address, positions: Address, rows: Address, list: Address, listed: Address,
    }
    in TRANSPOSE { ENTRY: "sort_transpose" }

    struct SortLongTranspose {
        ptr: Address, list: Address, listed: Address, rows_of: Address, a_ptr: Address, a_cols: Address,
        bitmaps: Address, words: u32, positions: Address, rows: Address,
    }
    in TRANSPOSE { ENTRY: "sort_long_transpose" }

    struct MoveTranspose { values: Address, positions: Address, nnz: u32, out: Address, gate: Address }
    in TRANSPOSE { ENTRY: "move_transpose" }
}

/// Columns per thread block that sorts (one column per warp), and the largest number of entries of a column that a warp
/// sorts (`SORTED` of kernels/transpose.cu).
const COLUMNS: usize = 8;
const SORTED: usize = 512;
const BITMAP_THREADS: u32 = 512;

/// The position in A of each entry of A^T, and the sizes of both.
#[derive(Debug)]
pub struct CudaTranspose {
    sizes: [(usize, usize, usize); 2],
    positions: Buffer<Offset>,
}

impl Cuda {
    /// Row pointers, columns and positions of A^T. Blocks.
    pub(crate) fn transposed_pattern<T: Real>(
        &self,
        a: &CudaCsr<T>,
    ) -> Result<(Buffer<Offset>, Buffer<Ordinal>, Buffer<Offset>)> {
        let (stream, nrows, ncols, nnz) = (self.stream(), a.nrows(), a.ncols(), a.nnz());
        let (a_ptr, a_cols, _) = a.arrays();
        let (a_ptr, cols) = (a_ptr.pointer(), a_cols.pointer());
        let row_ptr = Buffer::<Offset>::zeros(stream, ncols + 1, "a matrix's row pointers")?;
        let columns = Buffer::<Ordinal>::uninit(stream, nnz, "a matrix's columns")?;
        let positions = Buffer::<Offset>::uninit(stream, nnz, "positions of entries")?;
        if nnz == 0 {
            return Ok((row_ptr, columns, positions));
        }
        let grid = Grid::rows(nnz);
        let counts = CountTranspose { cols, nnz: nnz as u32, counts: row_ptr.pointer() };
        // SAFETY: count_transpose(cols, nnz, counts), with one count per column.
        unsafe { self.launch::<T, _>(CountTranspose::ENTRY, grid, &counts)? };
        // The sum of the counts is the number of entries.
        self.sum_known::<T>(&row_ptr)?;
        let cursors = self.duplicate(&row_ptr, ncols, "where columns go on")?;
        let place =
            PlaceTranspose { cols, nnz: nnz as u32, cursors: cursors.pointer(), positions: positions.pointer() };
        // SAFETY: place_transpose(cols, nnz, cursors, positions). The cursors say where the columns begin.
        unsafe { self.launch::<T, _>(PlaceTranspose::ENTRY, grid, &place)? };
        let rows_of = Buffer::<Ordinal>::uninit(stream, nnz, "rows of entries")?;
        let expand = RowsFromCsrCoo { row_ptr: a_ptr, nrows: nrows as u32, rows: rows_of.pointer() };
        // SAFETY: rows_from_csr_coo(row_ptr, nrows, rows), 256 rows per thread block of 8 warps.
        unsafe { self.launch::<T, _>(RowsFromCsrCoo::ENTRY, Grid::of(nrows.div_ceil(256), 256), &expand)? };
        // Each listed column has more than `SORTED` entries, which limits how many there are.
        let list = Buffer::<u32>::uninit(stream, nnz / SORTED, "long columns")?;
        let listed = Buffer::<u32>::zeros(stream, 1, "the number of long columns")?;
        let (ptr, rows_of, positions_at, rows) =
            (row_ptr.pointer(), rows_of.pointer(), positions.pointer(), columns.pointer());
        let (list, listed_at) = (list.pointer(), listed.pointer());
        let sort =
            SortTranspose { ptr, ncols: ncols as u32, rows_of, positions: positions_at, rows, list, listed: listed_at };
        // SAFETY: sort_transpose(ptr, ncols, rows_of, positions, rows, list, listed), a warp per column.
        unsafe { self.launch::<T, _>(SortTranspose::ENTRY, Grid::of(ncols.div_ceil(COLUMNS), 256), &sort)? };
        if listed.to_host("the number of long columns")?[0] > 0 {
            let (words, blocks) = bitmaps(self, nrows);
            let sets = Buffer::<u32>::zeros(stream, words * blocks, "sets of rows")?;
            let long = SortLongTranspose {
                ptr,
                list,
                listed: listed_at,
                rows_of,
                a_ptr,
                a_cols: cols,
                bitmaps: sets.pointer(),
                words: words as u32,
                positions: positions_at,
                rows,
            };
            // SAFETY: sort_long_transpose(ptr, list, listed, rows_of, a_ptr, a_cols, bitmaps, words, positions, rows),
            // a bitmap of `words` words of zeros per thread block.
            unsafe { self.launch::<T, _>(SortLongTranspose::ENTRY, Grid::of(blocks, BITMAP_THREADS), &long)? };
        }
        Ok((row_ptr, columns, positions))
    }
}

impl Cuda {
    /// The arrays of A^T with all values +0, and the plan. Blocks.
    pub(crate) fn transposed_arrays<T: Real>(&self, a: &CudaCsr<T>) -> Result<(MadeArrays<T>, CudaTranspose)> {
        let (row_ptr, col_idx, positions) = self.transposed_pattern(a)?;
        let shape = (a.ncols(), a.nrows(), a.nnz());
        let values = Buffer::zeros(self.stream(), shape.2, "a matrix's values")?;
        Ok((MadeArrays { shape, row_ptr, col_idx, values }, CudaTranspose { sizes: [sizes(a), shape], positions }))
    }

    /// out[k] <- values[positions[k]], where the callers have compared the numbers of entries. Does not block.
    pub(crate) fn move_values<T: Real>(
        &self,
        values: Address,
        positions: &Buffer<Offset>,
        out: Address,
        gate: Address,
    ) -> Result<()> {
        let nnz = positions.len();
        if nnz == 0 {
            return Ok(());
        }
        let parameters = MoveTranspose { values, positions: positions.pointer(), nnz: nnz as u32, out, gate };
        // SAFETY: move_transpose(values, positions, nnz, out, gate); positions are below the number of entries.
        unsafe { self.launch::<T, _>(MoveTranspose::ENTRY, Grid::rows(nnz), &parameters) }
    }

    /// A^T for further set-up, without a kernel chosen for its products with vectors. Blocks.
    pub(crate) fn bare_transpose<T: Real>(&self, a: &CudaCsr<T>) -> Result<CudaCsr<T>> {
        let (arrays, plan) = self.transposed_arrays(a)?;
        let mut t = self.bare_csr(arrays)?;
        self.transpose_numeric(None, &plan, a, &mut t)?;
        Ok(t)
    }
}

impl<T: Real> Transpose<Csr<T>> for Cuda {
    type TransposePlan = CudaTranspose;

    fn transpose_symbolic(&self, a: &CudaCsr<T>) -> Result<(Converted<CudaCsr<T>>, CudaTranspose)> {
        not_recorded(self, "the pattern of a transpose")?;
        let (arrays, plan) = self.transposed_arrays(a)?;
        Ok((self.made_csr(arrays)?, plan))
    }

    fn transpose_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &CudaTranspose,
        a: &CudaCsr<T>,
        t: &mut CudaCsr<T>,
    ) -> Result<()> {
        expect([sizes(a), sizes(t)], plan.sizes)?;
        let out = t.overwritten(self)?.pointer();
        self.move_values::<T>(a.arrays().2.pointer(), &plan.positions, out, gate_pointer(gate))
    }
}
