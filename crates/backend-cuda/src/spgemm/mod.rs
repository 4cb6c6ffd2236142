//! The product of matrices on the GPU: the pattern of C once, then values as often as requested.
//!
//! Layout: a plan says which rows of C each kernel takes, and lists the slices of long rows. The pattern is read from
//! the matrices. Order: stored.
//! Cost of the pattern: the columns of A, and of the rows of B that A needs, are read three times; the columns of C are
//! written once; the host waits twice, or three times if rows of C have many products. Cost of the values: A, the rows
//! of B, and row pointers and columns of C are read once, values of C are written once. Kernels: kernels/spgemm.cu.

mod classes;
mod pattern;

use spandrel_backend::spgemm::{expect, expect_inner};
use spandrel_backend::{Converted, Gate, Result, Spgemm};
use spandrel_formats::{Csr, Real};

use self::classes::{Class, SLICE, TOGETHER, room, slots_log, threads};
pub(crate) use self::pattern::bitmaps;
use crate::csr::{MadeArrays, not_recorded, with_shared};
use crate::device::gate_pointer;
use crate::kernel::{kernels, parameters};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaCsr};

parameters! {
    /// Where the patterns of A and B lie.
    struct Patterns { a_ptr: Address, a_cols: Address, b_ptr: Address, b_cols: Address }

    /// The arrays of A and B.
    struct Factors {
        a_ptr: Address, a_cols: Address, a_values: Address, b_ptr: Address, b_cols: Address, b_values: Address,
    }
}

parameters! {
    /// Which rows of A and of B repeat the row before; both null if that was not looked for.
    struct Repeats { a_repeats: Address, b_repeats: Address }
}

kernels! {
    struct RepeatsSpgemm { row_ptr: Address, cols: Address, nrows: u32, repeats: Address, found: Address }
    in SPGEMM { ENTRY: "repeats_spgemm" }

    struct BoundSpgemm {
        a_ptr: Address, a_cols: Address, b_ptr: Address, nrows: u32, bounds: Address, found: Address,
    }
    in SPGEMM { ENTRY: "bound_spgemm" }

    struct ShortSpgemm {
        factors: Patterns, nrows: u32, bounds: Address, narrow: u32, rows: Address, cols: Address,
    }
    in SPGEMM { COUNT: "count_short_spgemm", FILL: "fill_short_spgemm" }

    struct LongSpgemm {
        factors: Patterns, repeats: Repeats, nrows: u32, bounds: Address, rows: Address, cols: Address, list: Address,
        found: Address,
    }
    in SPGEMM { COUNT: "count_long_spgemm", FILL: "fill_long_spgemm" }

    struct BitmapSpgemm {
        factors: Patterns, repeats: Repeats, nrows: u32, list: Address, found: Address, bitmaps: Address, words: u32,
        rows: Address, cols: Address,
    }
    in SPGEMM { COUNT: "count_bitmap_spgemm", FILL: "fill_bitmap_spgemm" }

    struct ClassSpgemm { row_ptr: Address, nrows: u32, slices: Address, found: Address }
    in SPGEMM { ENTRY: "class_spgemm" }

    struct MultiplySpgemm {
        factors: Factors, nrows: u32, c_ptr: Address, c_cols: Address, c_values: Address, above: u32, upto: u32,
        log: u32, room: u32, gate: Address,
    }
    in SPGEMM { LANES_8: "multiply8_spgemm", LANES_16: "multiply16_spgemm", LANES_32: "multiply32_spgemm" }

    struct RunsSpgemm {
        factors: Factors, repeats: Repeats, nrows: u32, c_ptr: Address, c_cols: Address, c_values: Address, above: u32,
        upto: u32, log: u32, room: u32, gate: Address,
    }
    in SPGEMM { ENTRY: "multiply_runs_spgemm" }

    struct SlicesSpgemm {
        factors: Factors, slices: Address, count: u32, c_ptr: Address, c_cols: Address, c_values: Address, log: u32,
        room: u32, gate: Address,
    }
    in SPGEMM { ENTRY: "multiply_slices_spgemm" }
}

/// Which kernels compute the values of a product, and the sizes of its matrices.
#[derive(Debug)]
pub struct CudaSpgemm {
    sizes: [(usize, usize, usize); 3],
    classes: Vec<Class>,
    /// Which rows of A and of B repeat the pattern of the row before, if many do.
    repeats: Option<[Buffer<u8>; 2]>,
    /// (row, first entry) of each slice of rows longer than [`SLICE`], and how many there are.
    slices: Option<(Buffer<u32>, usize)>,
}

/// The numbers of rows, columns and entries.
pub(crate) fn sizes<T: Real>(m: &CudaCsr<T>) -> (usize, usize, usize) {
    (m.nrows(), m.ncols(), m.nnz())
}

impl Cuda {
    /// The arrays of C = A B with all values +0, and the plan. Blocks.
    pub(crate) fn product_arrays<T: Real>(
        &self,
        a: &CudaCsr<T>,
        b: &CudaCsr<T>,
    ) -> Result<(MadeArrays<T>, CudaSpgemm)> {
        expect_inner(a.ncols(), b.nrows())?;
        let made = self.product_pattern(a, b)?;
        let shape = (a.nrows(), b.ncols(), made.col_idx.len());
        let (classes, slices) = self.product_classes::<T>(&made, a.nnz())?;
        let values = Buffer::zeros(self.stream(), shape.2, "a matrix's values")?;
        let arrays = MadeArrays { shape, row_ptr: made.row_ptr, col_idx: made.col_idx, values };
        Ok((arrays, CudaSpgemm { sizes: [sizes(a), sizes(b), shape], classes, repeats: made.repeats, slices }))
    }

    /// C = A B for further set-up, without a kernel chosen for its products with vectors. Blocks.
    pub(crate) fn bare_product<T: Real>(&self, a: &CudaCsr<T>, b: &CudaCsr<T>) -> Result<CudaCsr<T>> {
        let (arrays, plan) = self.product_arrays(a, b)?;
        let mut c = self.bare_csr(arrays)?;
        self.spgemm_numeric(None, &plan, a, b, &mut c)?;
        Ok(c)
    }
}

impl<T: Real> Spgemm<Csr<T>> for Cuda {
    type SpgemmPlan = CudaSpgemm;

    fn spgemm_symbolic(&self, a: &CudaCsr<T>, b: &CudaCsr<T>) -> Result<(Converted<CudaCsr<T>>, CudaSpgemm)> {
        not_recorded(self, "the pattern of a product")?;
        let (arrays, plan) = self.product_arrays(a, b)?;
        Ok((self.made_csr(arrays)?, plan))
    }

    fn spgemm_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &CudaSpgemm,
        a: &CudaCsr<T>,
        b: &CudaCsr<T>,
        c: &mut CudaCsr<T>,
    ) -> Result<()> {
        expect([sizes(a), sizes(b), sizes(c)], plan.sizes)?;
        let c_values = c.overwritten(self)?.pointer();
        let (row_ptr, col_idx, _) = c.arrays();
        let (nrows, c_ptr, c_cols, gate) = (c.nrows(), row_ptr.pointer(), col_idx.pointer(), gate_pointer(gate));
        let ((a_ptr, a_cols, a_values), (b_ptr, b_cols, b_values)) = (a.arrays(), b.arrays());
        let factors = Factors {
            a_ptr: a_ptr.pointer(),
            a_cols: a_cols.pointer(),
            a_values: a_values.pointer(),
            b_ptr: b_ptr.pointer(),
            b_cols: b_cols.pointer(),
            b_values: b_values.pointer(),
        };
        for class in &plan.classes {
            let Class { above, upto, lanes } = *class;
            let log = slots_log(upto);
            if let Some([a_repeats, b_repeats]) = &plan.repeats {
                let repeats = Repeats { a_repeats: a_repeats.pointer(), b_repeats: b_repeats.pointer() };
                let room = room::<T>(upto, TOGETHER);
                let threads = threads(room, 32);
                let grid = with_shared(Grid::of(nrows.div_ceil(threads / 32), threads as u32), room * threads / 32);
                let (nrows, room) = (nrows as u32, room as u32);
                let parameters =
                    RunsSpgemm { factors, repeats, nrows, c_ptr, c_cols, c_values, above, upto, log, room, gate };
                // SAFETY: the arrays of three matrices whose sizes were compared, and whose patterns are those that
                // were compared row by row; a warp per row, with room for `upto` columns of TOGETHER rows.
                unsafe { self.launch::<T, _>(RunsSpgemm::ENTRY, grid, &parameters)? };
                continue;
            }
            let room = room::<T>(upto, 1);
            let threads = threads(room, lanes);
            let groups = threads / lanes as usize;
            let grid = with_shared(Grid::of(nrows.div_ceil(groups), threads as u32), room * groups);
            let entry = match lanes {
                8 => MultiplySpgemm::LANES_8,
                16 => MultiplySpgemm::LANES_16,
                _ => MultiplySpgemm::LANES_32,
            };
            let (nrows, room) = (nrows as u32, room as u32);
            let parameters = MultiplySpgemm { factors, nrows, c_ptr, c_cols, c_values, above, upto, log, room, gate };
            // SAFETY: the arrays of three matrices whose sizes were compared; as many lanes per row as the kernel's
            // name says, each group with room for `upto` columns, and more places than columns.
            unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        }
        if let Some((slices, count)) = &plan.slices {
            let (log, room) = (slots_log(SLICE), room::<T>(SLICE, 1));
            let threads = threads(room, 32);
            let grid = with_shared(Grid::of(count.div_ceil(threads / 32), threads as u32), room * threads / 32);
            let (slices, count, room) = (slices.pointer(), *count as u32, room as u32);
            let parameters = SlicesSpgemm { factors, slices, count, c_ptr, c_cols, c_values, log, room, gate };
            // SAFETY: as above, one warp per slice. The slices are those of C, whose pattern nothing writes.
            unsafe { self.launch::<T, _>(SlicesSpgemm::ENTRY, grid, &parameters)? };
        }
        Ok(())
    }
}
