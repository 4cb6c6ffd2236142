//! The pattern of C on the device.

use spandrel_backend::Result;
use spandrel_formats::index::checked;
use spandrel_formats::{Offset, Ordinal, Real};

use super::classes::FOUND;
use super::{BitmapSpgemm, BoundSpgemm, LongSpgemm, Patterns, ShortSpgemm};
use crate::kernel::Entry;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaCsr};

/// Threads per thread block, and threads per thread block that has a bitmap (`SPGEMM_THREADS` and `BITMAP_THREADS` of
/// the kernels).
const THREADS: usize = 256;
const BITMAP_THREADS: u32 = 512;
/// Thread blocks per multiprocessor for the count of products: twice as many as it holds at a time.
const BOUND_BLOCKS: usize = 16;
/// Lanes per row that has few products.
const SHORT_LANES: usize = 8;
/// Words of a set that fits in shared memory (`WORDS_MOST` of kernels/spgemm.cu).
const WORDS_MOST: u64 = 384;
/// Bytes of all bitmaps together, unless a single one is larger.
const BITMAP_BYTES: usize = 64 << 20;

/// Indices into the array `found` (kernels/spgemm.cu).
const PRODUCTS: usize = 0;
const MOST_PRODUCTS: usize = 1;
const SHORT_ROWS: usize = 2;
const LONG_ROWS: usize = 3;

/// A pattern, and the number of products behind it.
pub(super) struct Made {
    pub(super) row_ptr: Buffer<Offset>,
    pub(super) col_idx: Buffer<Ordinal>,
    pub(super) products: u64,
}

/// The words of a bitmap for this many elements, and the number of thread blocks, each of which has one bitmap.
pub(crate) fn bitmaps(cuda: &Cuda, elements: usize) -> (usize, usize) {
    let words = elements.div_ceil(32);
    (words, (BITMAP_BYTES / (4 * words.max(1))).clamp(1, 2 * cuda.multiprocessors()))
}

/// The parameters that the kernels of both passes share.
struct Pass<'a> {
    factors: Patterns,
    nrows: usize,
    bounds: Address,
    found: &'a Buffer<u64>,
    /// The numbers of rows with few products, and with more.
    rows: [u64; 2],
    /// Lanes for a row of B, in rows of C with few products and with more.
    narrow: [u32; 2],
    /// If there may be rows that need bitmaps: their list, the bitmaps, the words of each bitmap, and the number of
    /// thread blocks.
    large: Option<(Buffer<u32>, Buffer<u32>, usize, usize)>,
}

impl Cuda {
    /// Finds the pattern of C = A B. Blocks.
    pub(super) fn product_pattern<T: Real>(&self, a: &CudaCsr<T>, b: &CudaCsr<T>) -> Result<Made> {
        let (nrows, stream) = (a.nrows(), self.stream());
        let ((a_ptr, a_cols, _), (b_ptr, b_cols, _)) = (a.arrays(), b.arrays());
        let row_ptr = Buffer::<Offset>::zeros(stream, nrows + 1, "a matrix's row pointers")?;
        if nrows == 0 || a.nnz() == 0 || b.nnz() == 0 {
            return Ok(Made { row_ptr, col_idx: Buffer::uninit(stream, 0, "a matrix's columns")?, products: 0 });
        }
        let factors = Patterns {
            a_ptr: a_ptr.pointer(),
            a_cols: a_cols.pointer(),
            b_ptr: b_ptr.pointer(),
            b_cols: b_cols.pointer(),
        };
        let found = Buffer::<u64>::zeros(stream, FOUND, "what a product is")?;
        let bounds = Buffer::<u32>::uninit(stream, nrows, "products of rows")?;
        let Patterns { a_ptr, a_cols, b_ptr, .. } = factors;
        let parameters =
            BoundSpgemm { a_ptr, a_cols, b_ptr, nrows: nrows as u32, bounds: bounds.pointer(), found: found.pointer() };
        let blocks = nrows.div_ceil(THREADS / SHORT_LANES).min(BOUND_BLOCKS * self.multiprocessors());
        let grid = Grid::of(blocks, THREADS as u32);
        // SAFETY: bound_spgemm(a_ptr, a_cols, b_ptr, nrows, bounds, found), any number of thread blocks; every column
        // of A is a row of B.
        unsafe { self.launch::<T, _>(BoundSpgemm::ENTRY, grid, &parameters)? };
        let counts = found.to_host("what a product is")?;

        let products = counts[PRODUCTS];
        let large = if counts[MOST_PRODUCTS] > WORDS_MOST {
            let (words, blocks) = bitmaps(self, b.ncols());
            let list = Buffer::uninit(stream, counts[LONG_ROWS] as usize, "rows of many columns")?;
            Some((list, Buffer::zeros(stream, words * blocks, "sets of columns")?, words, blocks))
        } else {
            None
        };
        let narrow = [(1, SHORT_LANES as u64), (4, 32)]
            .map(|(least, most)| ((products / a.nnz() as u64).clamp(least, most) as u32).next_power_of_two());
        let rows = [counts[SHORT_ROWS], counts[LONG_ROWS]];
        let pass = Pass { factors, nrows, bounds: bounds.pointer(), found: &found, rows, narrow, large };
        self.product_pass::<T>(
            &pass,
            [ShortSpgemm::COUNT],
            [LongSpgemm::COUNT],
            [BitmapSpgemm::COUNT],
            &row_ptr,
            None,
        )?;
        let nnz = self.running_sums::<T>(&row_ptr)?;
        checked(usize::try_from(nnz).unwrap_or(usize::MAX), "entries")?;
        let col_idx = Buffer::uninit(stream, nnz as usize, "a matrix's columns")?;
        self.product_pass::<T>(
            &pass,
            [ShortSpgemm::FILL],
            [LongSpgemm::FILL],
            [BitmapSpgemm::FILL],
            &row_ptr,
            Some(&col_idx),
        )?;
        Ok(Made { row_ptr, col_idx, products })
    }

    /// Writes the number of columns of each row to `rows`. With `cols`, instead writes the columns of each row there,
    /// from the position in `rows` on. Does not block.
    fn product_pass<T: Real>(
        &self,
        pass: &Pass<'_>,
        [short]: [Entry<ShortSpgemm>; 1],
        [long]: [Entry<LongSpgemm>; 1],
        [bitmap]: [Entry<BitmapSpgemm>; 1],
        rows: &Buffer<Offset>,
        cols: Option<&Buffer<Ordinal>>,
    ) -> Result<()> {
        let Pass { factors, nrows, bounds, found, narrow, .. } = *pass;
        let (rows, cols, found) = (rows.pointer(), cols.map_or(Address::NULL, Buffer::pointer), found.pointer());
        let grid = |each: usize| Grid::of(nrows.div_ceil(THREADS / each), THREADS as u32);
        let nrows = nrows as u32;
        if pass.rows[0] > 0 {
            let parameters = ShortSpgemm { factors, nrows, bounds, narrow: narrow[0], rows, cols };
            // SAFETY: {count,fill}_short_spgemm(factors, nrows, bounds, narrow, rows, cols), 8 lanes per row; when
            // columns are written, `rows` says where those that were counted begin.
            unsafe { self.launch::<T, _>(short, grid(SHORT_LANES), &parameters)? };
        }
        if pass.rows[1] > 0 {
            let list = pass.large.as_ref().map_or(Address::NULL, |(list, ..)| list.pointer());
            let parameters = LongSpgemm { factors, nrows, bounds, narrow: narrow[1], rows, cols, list, found };
            // SAFETY: {count,fill}_long_spgemm(factors, nrows, bounds, narrow, rows, cols, list, found), a warp per
            // row; as above, and the list has room for every row of more products, if any has enough of them to be
            // listed.
            unsafe { self.launch::<T, _>(long, grid(32), &parameters)? };
        }
        if let Some((list, bitmaps, words, blocks)) = &pass.large {
            let (list, bitmaps, words) = (list.pointer(), bitmaps.pointer(), *words as u32);
            let parameters = BitmapSpgemm { factors, list, found, bitmaps, words, rows, cols };
            // SAFETY: {count,fill}_bitmap_spgemm(factors, list, found, bitmaps, words, rows, cols), a bitmap of `words`
            // words of zeros per thread block.
            unsafe { self.launch::<T, _>(bitmap, Grid::of(*blocks, BITMAP_THREADS), &parameters)? };
        }
        Ok(())
    }
}
