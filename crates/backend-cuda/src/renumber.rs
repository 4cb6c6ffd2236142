//! Renumbering on the GPU: breadth first by levels, the matrix in the new order, vectors to and from it.
//!
//! Layout: the order and its inverse; a plan holds the position in A of each entry of P A P^T. Order: integers; values
//! are moved. Cost: see kernels/renumber.cu. The host looks at a search once per several levels. Kernels:
//! kernels/renumber.cu, kernels/transpose.cu for values and kernels/sparse_vec.cu for vectors.

use spandrel_backend::error::expect_len;
use spandrel_backend::renumber::expect_vectors;
use spandrel_backend::{Converted, Gate, Renumber, Result};
use spandrel_formats::{Csr, Offset, Ordinal, Permutation, Real};

use crate::csr::{MadeArrays, not_recorded};
use crate::device::gate_pointer;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::sparse_vec::{GatherSparseVec, ScatterSparseVec};
use crate::spgemm::bitmaps;
use crate::{Cuda, CudaCsr, Vector};

kernels! {
    struct CountRenumber {
        ptr: Address, cols: Address, order: Address, parents: Address, head: Address, copy: u32, counts: Address,
        sums: Address,
    }
    in RENUMBER { ENTRY: "count_renumber" }

    struct PlaceRenumber {
        ptr: Address, cols: Address, order: Address, parents: Address, counts: Address, sums: Address, head: Address,
        copy: u32,
    }
    in RENUMBER { ENTRY: "place_renumber" }

    struct RootRenumber { ptr: Address, cols: Address, parents: Address, n: u32, from: u32, root: Address }
    in RENUMBER { ENTRY: "root_renumber" }

    struct SeatRenumber {
        ptr: Address, cols: Address, order: Address, parents: Address, root: u32, reached: u32, head: Address, copy: u32,
    }
    in RENUMBER { ENTRY: "seat_renumber" }

    struct MarkRestRenumber { parents: Address, n: u32, marks: Address }
    in RENUMBER { ENTRY: "mark_rest_renumber" }

    struct PlaceRestRenumber { parents: Address, n: u32, marks: Address, reached: u32, order: Address }
    in RENUMBER { ENTRY: "place_rest_renumber" }

    struct InvertRenumber { order: Address, n: u32, place: Address }
    in RENUMBER { ENTRY: "invert_renumber" }

    struct DistanceRenumber { ptr: Address, cols: Address, n: u32, distance: Address }
    in RENUMBER { ENTRY: "distance_renumber" }

    struct RowsRenumber { ptr: Address, order: Address, n: u32, rows: Address }
    in RENUMBER { ENTRY: "rows_renumber" }

    struct SortRenumber {
        ptr: Address, cols: Address, order: Address, place: Address, n: u32, rows: Address, out_cols: Address,
        positions: Address, list: Address, listed: Address,
    }
    in RENUMBER { ENTRY: "sort_renumber" }

    struct SortLongRenumber {
        ptr: Address, cols: Address, order: Address, place: Address, rows: Address, list: Address, listed: Address,
        bitmaps: Address, words: u32, out_cols: Address, positions: Address,
    }
    in RENUMBER { ENTRY: "sort_long_renumber" }
}

/// Threads of a thread block, and rows that it handles at a time (`THREADS` and `ROWS` of kernels/renumber.cu).
const THREADS: usize = 256;
const ROWS: usize = 32;
/// The largest number of entries of a row that a warp sorts (`SORTED` of kernels/renumber.cu).
const SORTED: usize = 256;
const BITMAP_THREADS: u32 = 512;
/// A row that no search has reached (`UNREACHED` of kernels/renumber.cu).
const UNREACHED: u32 = u32::MAX;
/// Levels after which the host looks whether the search has ended.
const LEVELS: usize = 16;
/// Thread blocks per multiprocessor that share a level.
const BLOCKS: usize = 4;

/// An order of rows and its inverse.
#[derive(Debug)]
pub struct CudaNumbering {
    /// Which row of A each new row is.
    order: Buffer<Ordinal>,
    /// Which new row each row of A is.
    place: Buffer<Ordinal>,
}

/// The position in A of each entry of a renumbered matrix.
#[derive(Debug)]
pub struct CudaRenumbering {
    positions: Buffer<Offset>,
}

/// One thread for each of `count` items.
fn each(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS), THREADS as u32)
}

/// A search that numbers rows.
struct Search<'a> {
    cuda: &'a Cuda,
    n: usize,
    ptr: Address,
    cols: Address,
    order: Buffer<Ordinal>,
    parents: Buffer<u32>,
    counts: Buffer<u32>,
    sums: Buffer<u32>,
    head: Buffer<u32>,
    blocks: usize,
}

impl<'a> Search<'a> {
    fn new<T: Real>(cuda: &'a Cuda, a: &CudaCsr<T>) -> Result<Self> {
        let (stream, n) = (cuda.stream(), a.nrows());
        let (ptr, cols, _) = a.arrays();
        let blocks = n.div_ceil(ROWS).clamp(1, BLOCKS * cuda.multiprocessors());
        let parents = Buffer::<u32>::uninit(stream, n, "parents of rows")?;
        // Every row is `UNREACHED`.
        parents.fill_from(0, 0xff)?;
        Ok(Self {
            cuda,
            n,
            ptr: ptr.pointer(),
            cols: cols.pointer(),
            order: Buffer::uninit(stream, n, "an order of rows")?,
            parents,
            counts: Buffer::uninit(stream, n, "children of rows")?,
            sums: Buffer::uninit(stream, blocks, "children of rows")?,
            head: Buffer::zeros(stream, 6, "the level of a search")?,
            blocks,
        })
    }

    /// The first row from `from` on at which another search begins. Blocks.
    fn root<T: Real>(&self, from: usize) -> Result<Option<u32>> {
        if from >= self.n {
            return Ok(None);
        }
        let root = Buffer::from_host(self.cuda.stream(), &[UNREACHED], "where a search begins")?;
        let (parents, n) = (self.parents.pointer(), self.n as u32);
        let find = RootRenumber { ptr: self.ptr, cols: self.cols, parents, n, from: from as u32, root: root.pointer() };
        // SAFETY: root_renumber(ptr, cols, parents, n, from, root), a thread per row from `from` on, a parent per row.
        unsafe { self.cuda.launch::<T, _>(RootRenumber::ENTRY, each(self.n - from), &find)? };
        let mut found = [0];
        root.read_at(0, &mut found)?;
        Ok(Some(found[0]).filter(|&row| row != UNREACHED))
    }

    /// Numbers all rows that a search from `root` reaches, after `reached` others. Returns the new number of those, and
    /// the number of levels so far; stops once these are more than `most`. Blocks.
    fn run<T: Real>(&self, root: u32, reached: usize, most: usize) -> Result<(usize, usize)> {
        let (order, parents, head) = (self.order.pointer(), self.parents.pointer(), self.head.pointer());
        let (ptr, cols, counts, sums) = (self.ptr, self.cols, self.counts.pointer(), self.sums.pointer());
        let seat = SeatRenumber { ptr, cols, order, parents, root, reached: reached as u32, head, copy: 0 };
        // SAFETY: seat_renumber(ptr, cols, order, parents, root, reached, head, copy), one thread block. The root is a
        // row that is not in the order, so fewer than all rows are.
        unsafe { self.cuda.launch::<T, _>(SeatRenumber::ENTRY, Grid::of(1, THREADS as u32), &seat)? };
        let grid = Grid::of(self.blocks, THREADS as u32);
        // An even number of levels, so that the first of them always reads the first copy in `head`.
        let enqueue = || {
            (0..LEVELS as u32).try_for_each(|level| {
                let copy = level & 1;
                let count = CountRenumber { ptr, cols, order, parents, head, copy, counts, sums };
                let place = PlaceRenumber { ptr, cols, order, parents, counts, sums, head, copy };
                // SAFETY: count_renumber and place_renumber with the same thread blocks, a sum for each; an element of
                // `order`, `parents` and `counts` per row. Each row is appended once, because it has one parent.
                unsafe {
                    self.cuda.launch::<T, _>(CountRenumber::ENTRY, grid, &count)?;
                    self.cuda.launch::<T, _>(PlaceRenumber::ENTRY, grid, &place)
                }
            })
        };
        let landing = &mut *self.cuda.landing().borrow_mut();
        // A short search ends with the first levels. In a longer one, further levels are enqueued before the host
        // looks, so that the device does not wait for it; levels past the end change nothing.
        let mut is_long = false;
        enqueue()?;
        loop {
            let more = || if is_long { enqueue() } else { Ok(()) };
            // SAFETY: three words of `head` lie there.
            let [begin, end, levels]: [u32; 3] = unsafe { landing.fetch_ahead(self.cuda.stream(), head, more)? };
            if begin == end || levels as usize > most {
                return Ok((end as usize, levels as usize));
            }
            if !is_long {
                enqueue()?;
                is_long = true;
            }
        }
    }

    /// Numbers the rows that no search has reached, and makes the inverse. Blocks.
    fn finish<T: Real>(self, reached: usize) -> Result<CudaNumbering> {
        let (parents, n) = (self.parents.pointer(), self.n as u32);
        let Self { cuda, order, counts: marks, .. } = self;
        if reached < self.n {
            let mark = MarkRestRenumber { parents, n, marks: marks.pointer() };
            // SAFETY: mark_rest_renumber(parents, n, marks), one of each per row.
            unsafe { cuda.launch::<T, _>(MarkRestRenumber::ENTRY, each(self.n), &mark)? };
            // As many rows are marked as are left.
            cuda.sum_known::<T>(&marks)?;
            let rest = PlaceRestRenumber {
                parents,
                n,
                marks: marks.pointer(),
                reached: reached as u32,
                order: order.pointer(),
            };
            // SAFETY: place_rest_renumber(parents, n, marks, reached, order): with `reached` rows in the order, as many
            // as are marked are missing.
            unsafe { cuda.launch::<T, _>(PlaceRestRenumber::ENTRY, each(self.n), &rest)? };
        }
        cuda.with_inverse::<T>(order)
    }
}

impl Cuda {
    fn with_inverse<T: Real>(&self, order: Buffer<Ordinal>) -> Result<CudaNumbering> {
        let n = order.len();
        let place = Buffer::<Ordinal>::uninit(self.stream(), n, "places of rows")?;
        let invert = InvertRenumber { order: order.pointer(), n: n as u32, place: place.pointer() };
        // SAFETY: invert_renumber(order, n, place): the order holds each number below n once.
        unsafe { self.launch::<T, _>(InvertRenumber::ENTRY, each(n), &invert)? };
        Ok(CudaNumbering { order, place })
    }
}

impl<T: Real> Renumber<Csr<T>> for Cuda {
    type Numbering = CudaNumbering;
    type RenumberPlan = CudaRenumbering;

    fn distance(&self, a: &CudaCsr<T>) -> Result<u64> {
        not_recorded(self, "a look at the pattern")?;
        expect_len("distance", "a row", a.ncols(), a.nrows())?;
        let (ptr, cols, _) = a.arrays();
        let sum = Buffer::<u64>::zeros(self.stream(), 1, "distances of entries")?;
        let (n, distance) = (a.nrows() as u32, sum.pointer());
        let parameters = DistanceRenumber { ptr: ptr.pointer(), cols: cols.pointer(), n, distance };
        let grid = Grid::of(a.nrows().div_ceil(ROWS), THREADS as u32);
        // SAFETY: distance_renumber(ptr, cols, n, distance), 8 lanes per row.
        unsafe { self.launch::<T, _>(DistanceRenumber::ENTRY, grid, &parameters)? };
        let mut all = [0];
        sum.read_at(0, &mut all)?;
        Ok(all[0])
    }

    fn breadth_first(&self, a: &CudaCsr<T>, levels: usize) -> Result<Option<CudaNumbering>> {
        not_recorded(self, "a search")?;
        expect_len("breadth_first", "a row", a.ncols(), a.nrows())?;
        let search = Search::new(self, a)?;
        let (mut reached, mut from) = (0, 0);
        while let Some(root) = search.root::<T>(from)? {
            let (now, so_far) = search.run::<T>(root, reached, levels)?;
            if so_far > levels {
                return Ok(None);
            }
            (reached, from) = (now, root as usize + 1);
        }
        search.finish::<T>(reached).map(Some)
    }

    fn numbering(&self, order: &Permutation) -> Result<CudaNumbering> {
        not_recorded(self, "an order of rows")?;
        self.with_inverse::<T>(Buffer::from_host(self.stream(), order.perm(), "an order of rows")?)
    }

    fn order(&self, numbering: &CudaNumbering) -> Result<Vec<Ordinal>> {
        not_recorded(self, "an order of rows on its way to the host")?;
        numbering.order.to_host("an order of rows")
    }

    fn renumbered(
        &self,
        a: &CudaCsr<T>,
        numbering: &CudaNumbering,
    ) -> Result<(Converted<CudaCsr<T>>, CudaRenumbering)> {
        not_recorded(self, "a renumbered matrix")?;
        let (stream, n, nnz) = (self.stream(), a.nrows(), a.nnz());
        expect_len("renumbered", "a row", a.ncols(), n)?;
        expect_len("renumbered", "the matrix", n, numbering.order.len())?;
        let (ptr, cols, values) = a.arrays();
        let (ptr, cols, of) = (ptr.pointer(), cols.pointer(), n as u32);
        let (order, place) = (numbering.order.pointer(), numbering.place.pointer());
        let row_ptr = Buffer::<Offset>::zeros(stream, n + 1, "a matrix's row pointers")?;
        let rows = row_ptr.pointer();
        // SAFETY: rows_renumber(ptr, order, n, rows), a count per row.
        unsafe { self.launch::<T, _>(RowsRenumber::ENTRY, each(n), &RowsRenumber { ptr, order, n: of, rows })? };
        // The sum of the counts is the number of entries.
        self.sum_known::<T>(&row_ptr)?;
        let columns = Buffer::<Ordinal>::uninit(stream, nnz, "a matrix's columns")?;
        let positions = Buffer::<Offset>::uninit(stream, nnz, "positions of entries")?;
        // Each listed row has more than `SORTED` entries, which limits how many there are.
        let list = Buffer::<u32>::uninit(stream, nnz / SORTED, "long rows")?;
        let listed = Buffer::<u32>::zeros(stream, 1, "the number of long rows")?;
        let (out_cols, at, list, listed_at) =
            (columns.pointer(), positions.pointer(), list.pointer(), listed.pointer());
        let sort =
            SortRenumber { ptr, cols, order, place, n: of, rows, out_cols, positions: at, list, listed: listed_at };
        let grid = Grid::of(n.div_ceil(ROWS), THREADS as u32);
        // SAFETY: sort_renumber(ptr, cols, order, place, n, rows, out_cols, positions, list, listed), a warp per row, a
        // column and a position per entry.
        unsafe { self.launch::<T, _>(SortRenumber::ENTRY, grid, &sort)? };
        if listed.to_host("the number of long rows")?[0] > 0 {
            let (words, blocks) = bitmaps(self, n);
            let sets = Buffer::<u32>::zeros(stream, words * blocks, "sets of columns")?;
            let bitmaps = sets.pointer();
            let long = SortLongRenumber {
                ptr,
                cols,
                order,
                place,
                rows,
                list,
                listed: listed_at,
                bitmaps,
                words: words as u32,
                out_cols,
                positions: at,
            };
            // SAFETY: sort_long_renumber(ptr, cols, order, place, rows, list, listed, bitmaps, words, out_cols,
            // positions), a bitmap of `words` words of zeros per thread block.
            unsafe { self.launch::<T, _>(SortLongRenumber::ENTRY, Grid::of(blocks, BITMAP_THREADS), &long)? };
        }
        let moved = Buffer::<T>::uninit(stream, nnz, "a matrix's values")?;
        self.move_values::<T>(values.pointer(), &positions, moved.pointer(), Address::NULL)?;
        let made = self.made_csr(MadeArrays { shape: (n, n, nnz), row_ptr, col_idx: columns, values: moved })?;
        Ok((made, CudaRenumbering { positions }))
    }

    fn renumber_values(
        &self,
        gate: Gate<'_, Self>,
        CudaRenumbering { positions }: &CudaRenumbering,
        values: &Vector<T>,
        to: &mut Vector<T>,
    ) -> Result<()> {
        expect_vectors("renumber_values", [values.len(), to.len()], positions.len())?;
        self.move_values::<T>(values.pointer(), positions, to.pointer(), gate_pointer(gate))
    }

    fn renumber(
        &self,
        gate: Gate<'_, Self>,
        CudaNumbering { order, .. }: &CudaNumbering,
        x: &Vector<T>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_vectors("renumber", [x.len(), y.len()], order.len())?;
        let (nnz, indices, gate) = (order.len() as u64, order.pointer(), gate_pointer(gate));
        let gather = GatherSparseVec { nnz, indices, y: x.pointer(), values: y.pointer(), gate };
        // SAFETY: gather_sparse_vec(nnz, indices, y, values, gate): each number below the lengths of x and y once.
        unsafe { self.launch::<T, _>(GatherSparseVec::ENTRY, Grid::rows(order.len()), &gather) }
    }

    fn restore(
        &self,
        gate: Gate<'_, Self>,
        CudaNumbering { order, .. }: &CudaNumbering,
        x: &Vector<T>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_vectors("restore", [x.len(), y.len()], order.len())?;
        let (nnz, indices, gate) = (order.len() as u64, order.pointer(), gate_pointer(gate));
        let scatter = ScatterSparseVec { nnz, indices, values: x.pointer(), y: y.pointer(), gate };
        // SAFETY: scatter_sparse_vec(nnz, indices, values, y, gate): each number below the lengths of x and y once.
        unsafe { self.launch::<T, _>(ScatterSparseVec::ENTRY, Grid::rows(order.len()), &scatter) }
    }
}
