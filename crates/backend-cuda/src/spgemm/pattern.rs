//! The pattern of C on the device.

use spandrel_backend::Result;
use spandrel_formats::index::checked;
use spandrel_formats::{Offset, Ordinal, Real};

use super::classes::FOUND;
use super::{BitmapSpgemm, BoundSpgemm, ClassSpgemm, LongSpgemm, Patterns, Repeats, RepeatsSpgemm, ShortSpgemm};
use crate::kernel::Entry;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::scan::sums_len;
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
/// Repeated rows are looked for if a row of C has about this many products or more: then they take most of the time.
const LEAST_PRODUCTS: f64 = 256.0;
/// They are few unless at least one of this many rows is one.
const FEW: u64 = 3;
/// Bytes of all bitmaps together, unless a single one is larger.
const BITMAP_BYTES: usize = 64 << 20;

/// Indices into the array `found` (kernels/spgemm.cu).
pub(super) const PRODUCTS: usize = 0;
const MOST_PRODUCTS: usize = 1;
const SHORT_ROWS: usize = 2;
const LONG_ROWS: usize = 3;

/// A pattern, and what the device found out about it.
pub(super) struct Made {
    pub(super) row_ptr: Buffer<Offset>,
    pub(super) col_idx: Buffer<Ordinal>,
    /// The array `found` of kernels/spgemm.cu, with the counts of rows by their lengths.
    pub(super) found: [u64; FOUND],
    /// Which rows of A and of B repeat the pattern of the row before, if most rows of either do.
    pub(super) repeats: Option<[Buffer<u8>; 2]>,
}

/// The words of a bitmap for this many elements, and the number of thread blocks, each of which has one bitmap.
pub(crate) fn bitmaps(cuda: &Cuda, elements: usize) -> (usize, usize) {
    let words = elements.div_ceil(32);
    (words, (BITMAP_BYTES / (4 * words.max(1))).clamp(1, 2 * cuda.multiprocessors()))
}

/// One thread for each of `nrows` rows.
pub(super) fn each_row(nrows: usize) -> Grid {
    Grid::of(nrows.div_ceil(THREADS), THREADS as u32)
}

/// The parameters that the kernels of both passes share.
struct Pass {
    factors: Patterns,
    repeats: Repeats,
    nrows: usize,
    bounds: Address,
    found: Address,
    /// The numbers of rows with few products, and with more.
    rows: [u64; 2],
    /// Lanes for a row of B, in rows of C with few products.
    narrow: u32,
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
            return Ok(Made {
                row_ptr,
                col_idx: Buffer::uninit(stream, 0, "a matrix's columns")?,
                found: [0; FOUND],
                repeats: None,
            });
        }
        let factors = Patterns {
            a_ptr: a_ptr.pointer(),
            a_cols: a_cols.pointer(),
            b_ptr: b_ptr.pointer(),
            b_cols: b_cols.pointer(),
        };
        // The sums of the counts of columns and what the kernels find lie side by side, so that one read brings both.
        let sums = sums_len(&row_ptr);
        let words = Buffer::<u64>::zeros(stream, sums + FOUND, "what a product is")?;
        let found = words.address(sums);
        let bounds = Buffer::<u32>::uninit(stream, nrows, "products of rows")?;
        let Patterns { a_ptr, a_cols, b_ptr, .. } = factors;
        let parameters = BoundSpgemm { a_ptr, a_cols, b_ptr, nrows: nrows as u32, bounds: bounds.pointer(), found };
        let blocks = nrows.div_ceil(THREADS / SHORT_LANES).min(BOUND_BLOCKS * self.multiprocessors());
        let grid = Grid::of(blocks, THREADS as u32);
        // SAFETY: bound_spgemm(a_ptr, a_cols, b_ptr, nrows, bounds, found), any number of thread blocks; every column
        // of A is a row of B.
        unsafe { self.launch::<T, _>(BoundSpgemm::ENTRY, grid, &parameters)? };
        let mut counts = [0; FOUND];
        words.read_at(sums, &mut counts)?;

        let products = counts[PRODUCTS];
        let large = if counts[MOST_PRODUCTS] > WORDS_MOST {
            let (words, blocks) = bitmaps(self, b.ncols());
            let list = Buffer::uninit(stream, counts[LONG_ROWS] as usize, "rows of many columns")?;
            Some((list, Buffer::zeros(stream, words * blocks, "sets of columns")?, words, blocks))
        } else {
            None
        };
        let mean = (products / a.nnz() as u64).clamp(1, SHORT_LANES as u64) as u32;
        let narrow = mean.next_power_of_two();
        let rows = [counts[SHORT_ROWS], counts[LONG_ROWS]];
        let repeats = self.repeats(a, b, products)?;
        let [a_repeats, b_repeats] =
            repeats.as_ref().map_or([Address::NULL; 2], |of| of.each_ref().map(Buffer::pointer));
        let pass = Pass {
            factors,
            repeats: Repeats { a_repeats, b_repeats },
            nrows,
            bounds: bounds.pointer(),
            found,
            rows,
            narrow,
            large,
        };
        self.product_pass::<T>(
            &pass,
            [ShortSpgemm::COUNT],
            [LongSpgemm::COUNT],
            [BitmapSpgemm::COUNT],
            &row_ptr,
            None,
        )?;
        self.sum_into::<T>(&row_ptr, &words)?;
        let class = ClassSpgemm { row_ptr: row_ptr.pointer(), nrows: nrows as u32, slices: Address::NULL, found };
        // SAFETY: class_spgemm(row_ptr, nrows, slices, found), one thread per row, which lists no slices. Lengths are
        // only counted, so those of a pattern that is too large do no harm.
        unsafe { self.launch::<T, _>(ClassSpgemm::ENTRY, each_row(nrows), &class)? };
        let mut read = [0; FOUND + 1];
        words.read_at(sums - 1, &mut read)?;
        let [nnz, found @ ..] = read;
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
        Ok(Made { row_ptr, col_idx, found, repeats })
    }

    /// Which rows of A and of B repeat the pattern of the row before. `None` if few do, or if rows of C have few
    /// products. Blocks.
    fn repeats<T: Real>(&self, a: &CudaCsr<T>, b: &CudaCsr<T>, products: u64) -> Result<Option<[Buffer<u8>; 2]>> {
        if (products as f64) < LEAST_PRODUCTS * a.nrows() as f64 {
            return Ok(None);
        }
        let found = Buffer::<u64>::zeros(self.stream(), 1, "repeated rows")?;
        let find = |m: &CudaCsr<T>| -> Result<_> {
            let repeats = Buffer::<u8>::uninit(self.stream(), m.nrows(), "which rows repeat")?;
            let (row_ptr, cols, _) = m.arrays();
            let parameters = RepeatsSpgemm {
                row_ptr: row_ptr.pointer(),
                cols: cols.pointer(),
                nrows: m.nrows() as u32,
                repeats: repeats.pointer(),
                found: found.pointer(),
            };
            // SAFETY: repeats_spgemm(row_ptr, cols, nrows, repeats, found), one thread per row.
            unsafe { self.launch::<T, _>(RepeatsSpgemm::ENTRY, each_row(m.nrows()), &parameters)? };
            Ok(repeats)
        };
        let repeats = [find(a)?, find(b)?];
        let count = found.to_host("repeated rows")?[0];
        Ok((FEW * count >= (a.nrows() + b.nrows()) as u64).then_some(repeats))
    }

    /// Writes the number of columns of each row to `rows`. With `cols`, instead writes the columns of each row there,
    /// from the position in `rows` on. Does not block.
    fn product_pass<T: Real>(
        &self,
        pass: &Pass,
        [short]: [Entry<ShortSpgemm>; 1],
        [long]: [Entry<LongSpgemm>; 1],
        [bitmap]: [Entry<BitmapSpgemm>; 1],
        rows: &Buffer<Offset>,
        cols: Option<&Buffer<Ordinal>>,
    ) -> Result<()> {
        let Pass { factors, repeats, nrows, bounds, found, narrow, .. } = *pass;
        let (rows, cols) = (rows.pointer(), cols.map_or(Address::NULL, Buffer::pointer));
        let grid = |each: usize| Grid::of(nrows.div_ceil(THREADS / each), THREADS as u32);
        let nrows = nrows as u32;
        if pass.rows[0] > 0 {
            let parameters = ShortSpgemm { factors, nrows, bounds, narrow, rows, cols };
            // SAFETY: {count,fill}_short_spgemm(factors, nrows, bounds, narrow, rows, cols), 8 lanes per row; when
            // columns are written, `rows` says where those that were counted begin.
            unsafe { self.launch::<T, _>(short, grid(SHORT_LANES), &parameters)? };
        }
        if pass.rows[1] > 0 {
            let list = pass.large.as_ref().map_or(Address::NULL, |(list, ..)| list.pointer());
            let parameters = LongSpgemm { factors, repeats, nrows, bounds, rows, cols, list, found };
            // SAFETY: {count,fill}_long_spgemm(factors, repeats, nrows, bounds, rows, cols, list, found), a warp per
            // row; as above, and the list has room for every row of more products, if any has enough of them to be
            // listed.
            unsafe { self.launch::<T, _>(long, grid(32), &parameters)? };
        }
        if let Some((list, bitmaps, words, blocks)) = &pass.large {
            let (list, bitmaps, words) = (list.pointer(), bitmaps.pointer(), *words as u32);
            let parameters = BitmapSpgemm { factors, repeats, nrows, list, found, bitmaps, words, rows, cols };
            // SAFETY: {count,fill}_bitmap_spgemm(factors, repeats, nrows, list, found, bitmaps, words, rows, cols), a
            // bitmap of `words` words of zeros per thread block.
            unsafe { self.launch::<T, _>(bitmap, Grid::of(*blocks, BITMAP_THREADS), &parameters)? };
        }
        Ok(())
    }
}
