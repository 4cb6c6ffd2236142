//! CSR on the GPU.
//!
//! Layout: the host's arrays, `col_idx` and `values` padded to a multiple of four entries; for the balanced kernel, the cuts of its
//! tiles. Which kernel multiplies is chosen at load from the lengths of the rows ([`CsrKernel`]), by the constants below.
//! Order: stored with the kernels by one lane a row, which are the only ones of a reproducible device; else the kernel's own, the same bits
//! at every repetition. Cost: [`spandrel_formats::Traffic::spmv`]. Kernels: kernels/csr.cu.

use std::sync::{Arc, OnceLock};

use cudarc::driver::{result, sys};
use rayon::prelude::*;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Backend, Coeff, Error, Gate, Load, Order, Result, Spmm, Spmv, SpmvTransposed};
use spandrel_formats::{Csr, Format, Offset, Real, Traffic};

use crate::device::gate_pointer;
use crate::error::{NAME, failed};
use crate::launch::{Argument, BLOCK, CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::CSR;
use crate::persistent::{Reach, Resident};
use crate::{Cuda, Monitor, Scalar, Vector};

/// How a CSR matrix is multiplied. [`Cuda`] chooses at load; [`Cuda::load_csr_with`] forces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrKernel {
    /// A thread a row, straight from memory, in the stored order. For rows of an entry or two: with more, neighbouring threads read far
    /// apart.
    Scalar,
    /// A warp brings 32 rows to shared memory side by side, then a lane walks each, in the stored order. The fastest wherever rows are of
    /// similar length, up to some dozens of entries: every byte moves once, and the sum needs no exchange between lanes.
    Staged,
    /// 2, 4, 8, 16 or 32 lanes a row and a halving tree. For long rows, and for matrices of too few rows to fill the device with a lane
    /// each.
    Vector(u32),
    /// As many lanes a row as its length asks for, 1 to 256, in one launch: rows are put in classes by length, and those of thousands of
    /// entries are cut into pieces that the last to end adds up. For rows of different lengths, also power-law ones.
    Binned,
    /// Equal shares of rows and entries, whatever the rows' lengths; rows that cross a boundary are summed from pieces by a second launch.
    /// Never chosen: classes of rows were as fast or faster on every matrix measured. For comparison.
    Balanced,
}

impl CsrKernel {
    /// Whether rows are summed in the stored order.
    pub fn stored(self) -> bool {
        matches!(self, Self::Scalar | Self::Staged)
    }
}

// What the choice turns on. A lane that walks a row asks for eight x at a time and waits for the second-level cache or memory, 350 to
// 700 cycles; a multiprocessor's share of the bandwidth is about 19 bytes a cycle.

/// Entries a row in the mean up to which a thread a row reads as fast as a staged one, and needs no shared memory.
const SCALAR_MEAN: f64 = 2.0;
/// The longest row that a thread a row is chosen for.
const SCALAR_LONGEST: usize = 32;
/// Entries a row in the mean from which several lanes a row are chosen: 32 rows are then more than a warp's room holds.
const VECTOR_MEAN: f64 = 64.0;
/// Entries that each of these lanes asks for at once (`AHEAD` of kernels/csr.cu).
const ENTRIES_A_LANE: f64 = 8.0;
/// How much longer than the mean the longest row may be for that.
const VECTOR_LONGEST: f64 = 1.5;
/// Rows a multiprocessor below which one lane a row leaves too little under way.
const SMALL_ROWS: usize = 512;
/// Entries of each lane where several share a row for want of rows.
const ENTRIES_A_LANE_OF_SMALL: f64 = 4.0;
/// The share of lanes at work, the mean over all steps of the warps, below which rows are too uneven for a lane each: a step costs the
/// first-level cache about 150 bytes' worth of time and brings 384 bytes when every lane has an entry.
const BUSY_LANES: f64 = 0.65;
/// Bytes that the device moves while a lane adds one entry (30 ns), so that the longest row alone may take as long as everything else.
const BYTES_PER_STEP: u64 = 128 << 10;
/// Entries of a row that a thread block adds at most; longer ones come in pieces.
const ENTRIES_A_PIECE: usize = 2048;
/// A row that is never too long for a lane.
const NEVER_LONG: usize = 64;
/// Shared memory of a warp's staged entries, at most: 14 warps a multiprocessor with 227 KiB have then 200 KiB under way.
const STAGING_BYTES: usize = 16 << 10;
/// The share of all entries whose groups of 32 rows fit a warp's room at once; longer groups are brought in parts.
const FITTING: f64 = 0.95;
/// Warps of a thread block of the staged product: each room is then free for the next group as soon as its own warp is done, which was
/// worth 3 to 15 % on stencils of 7 to 33 points against four warps. And of the one with a dot product (1024 rows a thread block).
const STAGED_WARPS: usize = 1;
const STAGED_DOT_WARPS: usize = 8;

/// Rows and entries of a tile of the balanced kernel (`TILE` of kernels/csr.cu).
const TILE: usize = 7 * 256;
/// Rows of a warp of the staged kernel, and the entries that its room is a multiple of.
const GROUP: usize = 32;
/// Entries of a warp's room beyond a multiple of [`GROUP`]: a group of equal rows begins at up to three entries past a multiple of four.
const SPARE: usize = 4;
/// Rows that every thread block of a persistent solve has a multiple of, but the last.
const PERSISTENT_ROWS: usize = 128;
/// Sizes of groups that are told apart, in steps of [`GROUP`] entries.
const BINS: usize = 128;

/// What the choice is made from.
#[derive(Clone, Debug)]
struct RowStats {
    /// Entries of the longest row.
    longest: usize,
    /// Steps of all warps with a lane a row: the longest row of each group.
    steps: u64,
    /// Rows of 8, 16, 24, ... entries: in shared memory their beginnings share banks.
    eights: usize,
    /// Entries in groups by the room that these need; the last bin takes what is larger.
    bins: [u64; BINS],
}

impl RowStats {
    fn new() -> Self {
        Self { longest: 0, steps: 0, eights: 0, bins: [0; BINS] }
    }

    fn of(row_ptr: &[Offset]) -> Self {
        let nrows = row_ptr.len() - 1;
        let groups = nrows.div_ceil(GROUP);
        let add = |mut stats: Self, group: usize| {
            let ptr = &row_ptr[group * GROUP..=(group * GROUP + GROUP).min(nrows)];
            let mut longest = 0;
            for row in ptr.windows(2) {
                let len = (row[1] - row[0]) as usize;
                longest = longest.max(len);
                stats.eights += usize::from(len > 0 && len.is_multiple_of(8));
            }
            stats.longest = stats.longest.max(longest);
            stats.steps += longest as u64;
            let (first, last) = (ptr[0], ptr[ptr.len() - 1]);
            let bin = ((last - (first & !3)) as usize).saturating_sub(SPARE).div_ceil(GROUP).min(BINS - 1);
            stats.bins[bin] += u64::from(last - first);
            stats
        };
        let merge = |mut a: Self, b: Self| {
            a.longest = a.longest.max(b.longest);
            a.steps += b.steps;
            a.eights += b.eights;
            a.bins.iter_mut().zip(b.bins).for_each(|(a, b)| *a += b);
            a
        };
        (0..groups).into_par_iter().with_min_len(1 << 12).fold(Self::new, add).reduce(Self::new, merge)
    }

    /// The kernel for rows like these.
    fn choose(&self, nrows: usize, nnz: usize, bytes: u64, multiprocessors: usize, reproducible: bool) -> CsrKernel {
        let mean = nnz as f64 / nrows.max(1) as f64;
        let short = mean <= SCALAR_MEAN && self.longest <= SCALAR_LONGEST;
        if !reproducible {
            let busy = nnz as f64 / (GROUP as f64 * self.steps.max(1) as f64);
            let long = self.longest > NEVER_LONG && self.longest as u64 * BYTES_PER_STEP > bytes;
            let even = self.longest as f64 <= VECTOR_LONGEST * mean;
            let lanes =
                |each: f64| CsrKernel::Vector(((mean / each).ceil().min(32.0) as u32).next_power_of_two().clamp(2, 32));
            if nrows < SMALL_ROWS * multiprocessors && even && mean > ENTRIES_A_LANE_OF_SMALL {
                return lanes(ENTRIES_A_LANE_OF_SMALL);
            }
            if mean >= VECTOR_MEAN && even {
                return lanes(ENTRIES_A_LANE);
            }
            if !short && (long || busy < BUSY_LANES || nrows < SMALL_ROWS * multiprocessors) {
                return CsrKernel::Binned;
            }
        }
        if short { CsrKernel::Scalar } else { CsrKernel::Staged }
    }

    /// Entries of a warp's room, at most `limit`: a multiple of [`GROUP`].
    fn capacity(&self, nnz: usize, limit: usize) -> usize {
        let mut fitting = 0;
        for (bin, entries) in self.bins.iter().enumerate() {
            fitting += entries;
            if fitting as f64 >= FITTING * nnz as f64 {
                return (bin * GROUP).clamp(GROUP, limit);
            }
        }
        limit
    }
}

/// The tiles of the balanced kernel.
#[derive(Debug)]
struct Tiles<T> {
    count: usize,
    /// Rows ended before each tile, and before the end.
    rows: Buffer<u32>,
    /// Rows that several tiles share: (row, its first tile, its last).
    spans: Buffer<u32>,
    span_count: u32,
    /// Two sums a tile.
    pieces: Buffer<T>,
}

/// Rows ended before the first `items` items of the merged sequence of entries and ends of rows, an end after its row's entries.
fn rows_before(row_ptr: &[Offset], items: usize) -> usize {
    let (nrows, nnz) = (row_ptr.len() - 1, row_ptr[row_ptr.len() - 1] as usize);
    let (mut low, mut high) = (items.saturating_sub(nnz), items.min(nrows));
    while low < high {
        let middle = low.midpoint(high);
        if (row_ptr[middle + 1] as usize) < items - middle {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<T: Real> Tiles<T> {
    fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's tiles";
        let (nrows, nnz) = (row_ptr.len() - 1, row_ptr[row_ptr.len() - 1] as usize);
        let (items, count) = (nrows + nnz, (nrows + nnz).div_ceil(TILE));
        let rows: Vec<u32> =
            (0..=count).into_par_iter().map(|tile| rows_before(row_ptr, items.min(tile * TILE)) as u32).collect();
        // A row that began before the tile in which it ends. Entry k of row r is item k + r.
        let spans: Vec<u32> = (0..count)
            .filter_map(|tile| {
                let row = rows[tile] as usize;
                let begin = row_ptr[row] as usize;
                let spans = rows[tile + 1] as usize > row && begin + row < tile * TILE;
                spans.then(|| [row as u32, ((begin + row) / TILE) as u32, tile as u32])
            })
            .flatten()
            .collect();
        Ok(Self {
            count,
            rows: Buffer::from_host(cuda.stream(), &rows, WHAT)?,
            spans: Buffer::from_host(cuda.stream(), &spans, WHAT)?,
            span_count: (spans.len() / 3) as u32,
            pieces: Buffer::uninit(cuda.stream(), 2 * count, WHAT)?,
        })
    }
}

/// Classes of rows, at most.
const CLASSES: usize = 10;
/// What stands for lanes where a row comes in pieces, a thread block each.
const SPLIT: u32 = 512;

/// Where each class of rows begins, in thread blocks and in the permutation, and its lanes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Classes {
    block: [u32; CLASSES + 1],
    row: [u32; CLASSES + 1],
    lanes: [u32; CLASSES],
}
// SAFETY: `struct Classes` of kernels/csr.cu: as many u32, in this order.
unsafe impl Argument for Classes {}

/// A piece of a split row, entries begin..end, and which of all pieces are the row's.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Part {
    row: u32,
    begin: u32,
    end: u32,
    first: u32,
    count: u32,
}

/// The rows in the order of their classes, and the pieces of those that are split.
#[derive(Debug)]
struct Bins<T> {
    perm: Buffer<u32>,
    classes: Classes,
    parts: Buffer<Part>,
    pieces: Buffer<T>,
    /// One a piece, the first of each row's in use; 0 between products.
    tickets: Buffer<u32>,
}

impl<T: Real> Bins<T> {
    /// Thread blocks of all classes.
    fn blocks(&self) -> usize {
        self.classes.block[CLASSES] as usize
    }

    fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's classes of rows";
        let (perm, classes, parts) = classify(row_ptr);
        Ok(Self {
            perm: Buffer::from_host(cuda.stream(), &perm, WHAT)?,
            classes,
            parts: Buffer::from_host(cuda.stream(), &parts, WHAT)?,
            pieces: Buffer::uninit(cuda.stream(), parts.len(), WHAT)?,
            tickets: Buffer::zeros(cuda.stream(), parts.len(), WHAT)?,
        })
    }
}

/// Lanes for a row of so many entries: about [`ENTRIES_A_LANE_OF_SMALL`] each up to a thread block, [`SPLIT`] from [`ENTRIES_A_PIECE`] on.
fn lanes_of(len: usize) -> u32 {
    if len > ENTRIES_A_PIECE {
        return SPLIT;
    }
    (len.div_ceil(ENTRIES_A_LANE_OF_SMALL as usize).max(1) as u32).next_power_of_two().min(256)
}

/// Rows by descending lanes, the long ones begin first; rows of a class stay in order, for their x.
fn classify(row_ptr: &[Offset]) -> (Vec<u32>, Classes, Vec<Part>) {
    let lanes: Vec<u32> = row_ptr.par_windows(2).map(|row| lanes_of((row[1] - row[0]) as usize)).collect();
    let mut classes = Classes { lanes: [1; CLASSES], ..Classes::default() };
    let (mut perm, mut parts) = (Vec::with_capacity(lanes.len()), Vec::new());
    let (mut class, mut block) = (0, 0);
    for of_class in [SPLIT, 256, 128, 64, 32, 16, 8, 4, 2, 1] {
        let begin = perm.len();
        perm.extend(lanes.iter().enumerate().filter(|&(_, &lanes)| lanes == of_class).map(|(row, _)| row as u32));
        if perm.len() == begin {
            continue;
        }
        (classes.block[class], classes.row[class], classes.lanes[class]) = (block, begin as u32, of_class);
        class += 1;
        if of_class != SPLIT {
            block += (perm.len() - begin).div_ceil(256 / of_class as usize) as u32;
            continue;
        }
        for &row in &perm[begin..] {
            let (from, to) = (row_ptr[row as usize], row_ptr[row as usize + 1]);
            let count = (to - from).div_ceil(ENTRIES_A_PIECE as u32);
            let first = parts.len() as u32;
            // Equal pieces, of whole 32 entries.
            let size = (to - from).div_ceil(count).next_multiple_of(32);
            let cut = |k: u32| from + (k * size).min(to - from);
            parts.extend((0..count).map(|k| Part { row, begin: cut(k), end: cut(k + 1), first, count }));
        }
        block += parts.len() as u32;
    }
    classes.block[class..].fill(block);
    classes.row[class..].fill(perm.len() as u32);
    (perm, classes, parts)
}

/// A CSR matrix in device memory.
#[derive(Debug)]
pub struct CudaCsr<T> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    row_ptr: Buffer<u32>,
    col_idx: Buffer<u32>,
    values: Buffer<T>,
    kernel: CsrKernel,
    /// Entries of a warp's room, and whether they change places there (rows of lengths that meet on the same banks).
    capacity: usize,
    swizzled: bool,
    /// Warps of a thread block that the staged product with a dot product has room for.
    dot_warps: usize,
    tiles: Option<Tiles<T>>,
    bins: Option<Bins<T>>,
    /// Where it is square and small enough for a persistent solve: how far entries lie from the main diagonal, and the most entries a row
    /// in the mean of [`PERSISTENT_ROWS`].
    reach: Option<(Reach, usize)>,
    /// The transpose, from the first product with it on.
    transposed: OnceLock<Box<CudaCsr<T>>>,
}

/// How far entries lie from the main diagonal, and the most entries of so many rows together, for each of the rows, rounded up.
fn reach<T: Real>(m: &Csr<T>) -> (Reach, usize) {
    let (row_ptr, col_idx) = (m.row_ptr(), m.col_idx());
    let of_rows = |group: usize| {
        let rows = group * PERSISTENT_ROWS..(group * PERSISTENT_ROWS + PERSISTENT_ROWS).min(m.nrows());
        let entries = (row_ptr[rows.end] - row_ptr[rows.start]) as usize;
        let reach = rows.fold(Reach::default(), |reach, row| {
            // Columns ascend.
            match &col_idx[row_ptr[row] as usize..row_ptr[row + 1] as usize] {
                [] => reach,
                [first, .., last] => reach.or(Reach::of(row, *first as usize)).or(Reach::of(row, *last as usize)),
                [only] => reach.or(Reach::of(row, *only as usize)),
            }
        });
        (reach, entries.div_ceil(PERSISTENT_ROWS))
    };
    let merge = |(a, p): (Reach, usize), (b, q): (Reach, usize)| (a.or(b), p.max(q));
    (0..m.nrows().div_ceil(PERSISTENT_ROWS)).into_par_iter().map(of_rows).reduce(Default::default, merge)
}

/// Host data and zeros up to a multiple of four elements.
fn padded<E: bytemuck::Pod>(cuda: &Cuda, host: &[E], what: &'static str) -> Result<Buffer<E>> {
    let buffer = Buffer::uninit(cuda.stream(), host.len().next_multiple_of(4), what)?;
    buffer.write_at(0, host)?;
    buffer.write_at(host.len(), &[E::zeroed(); 4][..buffer.len() - host.len()])?;
    Ok(buffer)
}

/// A kernel with so much dynamic shared memory: near 48 KiB a little more than that, as with the few bytes of its own that a kernel may
/// have it would need the larger limit, which launches ask for above 48 KiB of dynamic memory.
fn with_shared(grid: Grid, bytes: usize) -> Grid {
    let bytes = if bytes > 47 << 10 { bytes.max((48 << 10) + 16) } else { bytes };
    Grid { shared: bytes as u32, ..grid }
}

impl Cuda {
    /// Brings a CSR matrix onto the device, to be multiplied by the given kernel whatever its rows are like. Allocates; may not be recorded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a number of lanes that is not 2, 4, 8, 16 or 32, and for a kernel of its own order on a device that is held
    /// to [reproducible](Cuda::with_reproducible) ones; [`Error::OutOfMemory`].
    pub fn load_csr_with<T: Real>(&self, host: &Csr<T>, kernel: CsrKernel) -> Result<CudaCsr<T>> {
        let refuse = |why: String| Err(Error::Unsupported { op: "load", noun: "csr", why });
        if let CsrKernel::Vector(lanes) = kernel
            && !matches!(lanes, 2 | 4 | 8 | 16 | 32)
        {
            return refuse(format!("{lanes} lanes a row: take 2, 4, 8, 16 or 32"));
        }
        if self.reproducible() && !kernel.stored() {
            return refuse(format!("{kernel:?} sums in an order of its own and the device is held to the stored one"));
        }
        self.load_csr(host, Some(kernel))
    }

    pub(crate) fn load_csr<T: Real>(&self, host: &Csr<T>, forced: Option<CsrKernel>) -> Result<CudaCsr<T>> {
        let (nrows, ncols, nnz) = (host.nrows(), host.ncols(), host.nnz());
        let stats = RowStats::of(host.row_ptr());
        let choice = || stats.choose(nrows, nnz, host.spmv(), self.multiprocessors(), self.reproducible());
        let kernel = forced.unwrap_or_else(choice);
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = self.context().attribute(attribute).map_err(|error| failed("asking for shared memory", error))?;
        // Some of it for what kernels declare themselves.
        let shared = (shared.max(48 << 10) as usize) - (1 << 10);
        let entry = size_of::<u32>() + T::BYTES;
        let limit = STAGING_BYTES.min(shared / STAGED_WARPS) / entry / GROUP * GROUP;
        let swizzled = 2 * stats.eights > nrows;
        // Swizzled, a room is whole 128 bytes of either array.
        let capacity = stats.capacity(nnz, limit - GROUP) + if swizzled { GROUP } else { SPARE };
        let dot_warps = ((shared - 2 * BLOCK * T::BYTES) / (capacity * entry)).clamp(1, STAGED_DOT_WARPS);
        let bins = match kernel {
            CsrKernel::Binned => Some(Bins::new(self, host.row_ptr())?),
            _ => None,
        };
        let tiles = match kernel {
            CsrKernel::Balanced => Some(Tiles::new(self, host.row_ptr())?),
            _ => None,
        };
        Ok(CudaCsr {
            nrows,
            ncols,
            nnz,
            row_ptr: Buffer::from_host(self.stream(), host.row_ptr(), "a matrix's row pointers")?,
            col_idx: padded(self, host.col_idx(), "a matrix's columns")?,
            values: padded(self, host.values(), "a matrix's values")?,
            kernel,
            capacity,
            swizzled,
            dot_warps,
            tiles,
            bins,
            reach: self.may_persist(nrows, ncols).then(|| reach(host)),
            transposed: OnceLock::new(),
        })
    }
}

impl<T: Real> CudaCsr<T> {
    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Number of stored entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The kernel that multiplies.
    pub fn kernel(&self) -> CsrKernel {
        self.kernel
    }

    /// Overwrites the values, `nnz` of them in the order of the entries; the pattern stays. Enqueues; returns once the host's data has been
    /// read; may not be recorded. The next transposed product makes its plan anew.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `nnz`; [`Error::Device`] while a step is recorded.
    pub fn update_values(&mut self, device: &Cuda, values: &[T]) -> Result<()> {
        expect_len("update_values", "values", values.len(), self.nnz)?;
        not_recorded(device, "values from the host")?;
        self.transposed.take();
        self.values.write_at(0, values)
    }

    /// As [`CudaCsr::update_values`], from device memory: enqueues a copy and does not block.
    ///
    /// # Errors
    /// As [`CudaCsr::update_values`].
    pub fn update_values_from(&mut self, device: &Cuda, values: &Vector<T>) -> Result<()> {
        expect_len("update_values_from", "values", values.len(), self.nnz)?;
        not_recorded(device, "new values of a matrix")?;
        self.transposed.take();
        if self.nnz == 0 {
            return Ok(());
        }
        device.context().bind_to_thread().map_err(|error| failed("update_values_from", error))?;
        let (to, from, bytes) = (self.values.pointer(), values.pointer(), self.nnz * T::BYTES);
        // SAFETY: both are device memory of at least nnz elements, and of different buffers.
        unsafe { result::memcpy_dtod_async(to, from, bytes, device.stream().cu_stream()) }
            .map_err(|error| failed("update_values_from", error))
    }

    /// The transpose, made from what lies on the device at the first call.
    fn transpose(&self, cuda: &Cuda) -> Result<&Self> {
        if let Some(transposed) = self.transposed.get() {
            return Ok(transposed);
        }
        not_recorded(cuda, "the first product with a transpose, which stores it,")?;
        let row_ptr = self.row_ptr.to_host("a matrix's row pointers")?;
        let mut col_idx = self.col_idx.to_host("a matrix's columns")?;
        let mut values = self.values.to_host("a matrix's values")?;
        col_idx.truncate(self.nnz);
        values.truncate(self.nnz);
        // SAFETY: the pattern is that of the CSR matrix that was loaded; nothing writes it on the device.
        let host = unsafe { Csr::new_unchecked(self.nrows, self.ncols, row_ptr, col_idx, values) };
        let transposed = host.try_transpose()?;
        drop(host);
        let transposed = Box::new(cuda.load_csr(&transposed, None)?);
        Ok(self.transposed.get_or_init(|| transposed))
    }

    /// Where the entries lie, for what is made of them on the device: row pointers, columns, values; each whole, whatever the kernel.
    /// How far entries lie from the main diagonal, where it is square and small enough for a persistent solve.
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.reach.map(|(reach, _)| reach)
    }

    pub(crate) fn arrays(&self) -> (&Buffer<Offset>, &Buffer<u32>, &Buffer<T>) {
        (&self.row_ptr, &self.col_idx, &self.values)
    }

    fn staging(&self, warps: usize) -> usize {
        warps * self.capacity * (size_of::<u32>() + T::BYTES)
    }

    /// y <- a A x + b y for vectors given by their addresses: `ncols` and `nrows` elements.
    fn product(&self, cuda: &Cuda, a: CoeffArg<T>, x: u64, b: CoeffArg<T>, y: u64, gate: u64) -> Result<()> {
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let nrows = self.nrows as u32;
        match (self.kernel, &self.tiles) {
            (CsrKernel::Balanced, Some(tiles)) => {
                if tiles.count == 0 {
                    return Ok(());
                }
                let (rows, items) = (tiles.rows.pointer(), (self.nrows + self.nnz) as u64);
                let (spans, count, pieces) = (tiles.spans.pointer(), tiles.span_count, tiles.pieces.pointer());
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&col_idx),
                    arg(&values),
                    arg(&rows),
                    arg(&items),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&pieces),
                    arg(&gate),
                ];
                // SAFETY: spmv_balanced_csr(row_ptr, col_idx, values, tile_rows, items, a, x, b, y, pieces, gate), a thread block a tile.
                unsafe { cuda.launch::<T>(&CSR, "spmv_balanced_csr", Grid::of(tiles.count, 256), &mut arguments)? };
                if count == 0 {
                    return Ok(());
                }
                let grid = Grid::of((count as usize).div_ceil(4), 128);
                let mut arguments = [arg(&spans), arg(&count), arg(&pieces), arg(&a), arg(&b), arg(&y), arg(&gate)];
                // SAFETY: spmv_spans_csr(spans, count, pieces, a, b, y, gate), a warp a span.
                unsafe { cuda.launch::<T>(&CSR, "spmv_spans_csr", grid, &mut arguments) }
            }
            (CsrKernel::Binned, _) => {
                let Some(bins) = &self.bins else { return Ok(()) };
                let (perm, classes, parts) = (bins.perm.pointer(), bins.classes, bins.parts.pointer());
                let (pieces, tickets) = (bins.pieces.pointer(), bins.tickets.pointer());
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&col_idx),
                    arg(&values),
                    arg(&perm),
                    arg(&classes),
                    arg(&parts),
                    arg(&pieces),
                    arg(&tickets),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_binned_csr(row_ptr, col_idx, values, perm, classes, parts, pieces, tickets, a, x, b, y, gate), the thread blocks of
                // all classes.
                unsafe { cuda.launch::<T>(&CSR, "spmv_binned_csr", Grid::of(bins.blocks(), 256), &mut arguments) }
            }
            (CsrKernel::Staged, _) => {
                let capacity = self.capacity as u32;
                let grid = Grid::of(self.nrows.div_ceil(GROUP * STAGED_WARPS), 32 * STAGED_WARPS as u32);
                let grid = with_shared(grid, self.staging(STAGED_WARPS));
                let name = if self.swizzled { "spmv_swizzled_csr" } else { "spmv_csr" };
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&col_idx),
                    arg(&values),
                    arg(&nrows),
                    arg(&capacity),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_csr(row_ptr, col_idx, values, nrows, capacity, a, x, b, y, gate), and swizzled, a warp 32 rows, each with
                // room for `capacity` entries.
                unsafe { cuda.launch::<T>(&CSR, name, grid, &mut arguments) }
            }
            (CsrKernel::Scalar | CsrKernel::Vector(_) | CsrKernel::Balanced, _) => {
                let (name, grid) = match self.kernel {
                    CsrKernel::Vector(2) => ("spmv_vector2_csr", 2),
                    CsrKernel::Vector(4) => ("spmv_vector4_csr", 4),
                    CsrKernel::Vector(8) => ("spmv_vector8_csr", 8),
                    CsrKernel::Vector(16) => ("spmv_vector16_csr", 16),
                    CsrKernel::Vector(_) => ("spmv_vector32_csr", 32),
                    _ => ("spmv_scalar_csr", 0),
                };
                let grid = match grid {
                    0 => Grid::rows(self.nrows),
                    lanes => Grid::of(self.nrows.div_ceil(256 / lanes), 256),
                };
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&col_idx),
                    arg(&values),
                    arg(&nrows),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_scalar_csr(row_ptr, col_idx, values, nrows, a, x, b, y, gate), 1024 rows a thread block; spmv_vector2_csr and
                // so on with the same arguments, 256 threads of so many lanes a row.
                unsafe { cuda.launch::<T>(&CSR, name, grid, &mut arguments) }
            }
        }
    }

    /// The trait's operation, under the name `op`, for CSR and for what is stored as such.
    pub(crate) fn spmv(
        &self,
        op: &'static str,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len(op, "x", x.len(), self.ncols)?;
        expect_len(op, "y", y.len(), self.nrows)?;
        self.product(cuda, a.into(), x.pointer(), b.into(), y.pointer(), gate_pointer(gate))
    }

    pub(crate) fn spmv_dot(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        expect_len("spmv_dot", "x", x.len(), self.ncols)?;
        expect_len("spmv_dot", "y", y.len(), self.nrows)?;
        expect_len("spmv_dot", "w", w.len(), self.nrows)?;
        if !self.kernel.stored() {
            self.spmv("spmv_dot", cuda, gate, Coeff::one(), x, Coeff::zero(), y)?;
            cuda.dot(gate, w, y, wy)?;
            return match yy {
                Some(yy) => cuda.dot(gate, y, y, yy),
                None => Ok(()),
            };
        }
        let tree = cuda.tree(self.nrows, [wy.pointer(), yy.map_or(0, |yy| yy.pointer())])?;
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let (nrows, capacity) = (self.nrows as u32, self.capacity as u32);
        let (x, y, w, gate) = (x.pointer(), y.pointer(), w.pointer(), gate_pointer(gate));
        if self.kernel == CsrKernel::Scalar {
            let mut arguments = [
                arg(&row_ptr),
                arg(&col_idx),
                arg(&values),
                arg(&nrows),
                arg(&x),
                arg(&y),
                arg(&w),
                arg(&tree),
                arg(&gate),
            ];
            // SAFETY: spmv_dot_scalar_csr(row_ptr, col_idx, values, nrows, x, y, w, tree, gate), lengths compared above.
            return unsafe { cuda.launch::<T>(&CSR, "spmv_dot_scalar_csr", Grid::rows(self.nrows), &mut arguments) };
        }
        let grid = Grid::of(self.nrows.div_ceil(BLOCK), 32 * self.dot_warps as u32);
        let grid = with_shared(grid, 2 * BLOCK * T::BYTES + self.staging(self.dot_warps));
        let name = if self.swizzled { "spmv_dot_swizzled_csr" } else { "spmv_dot_csr" };
        let mut arguments = [
            arg(&row_ptr),
            arg(&col_idx),
            arg(&values),
            arg(&nrows),
            arg(&capacity),
            arg(&x),
            arg(&y),
            arg(&w),
            arg(&tree),
            arg(&gate),
        ];
        // SAFETY: spmv_dot_csr(row_ptr, col_idx, values, nrows, capacity, x, y, w, tree, gate), and swizzled: 1024 rows a thread block, with
        // room for their y and w and for `capacity` entries a warp; lengths compared above.
        unsafe { cuda.launch::<T>(&CSR, name, grid, &mut arguments) }
    }

    pub(crate) fn spmv_transposed(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv_transposed", "x", x.len(), self.nrows)?;
        expect_len("spmv_transposed", "y", y.len(), self.ncols)?;
        self.transpose(cuda)?.spmv("spmv_transposed", cuda, gate, a, x, b, y)
    }

    /// As a persistent kernel sees it, and lanes a row; `None` where it is too large, or its kernel's order is another.
    fn persistent(&self) -> Option<(Resident<'static>, u32)> {
        let lanes = match self.kernel {
            CsrKernel::Scalar | CsrKernel::Staged => 1,
            CsrKernel::Vector(lanes) => lanes,
            CsrKernel::Binned | CsrKernel::Balanced => return None,
        };
        let (reach, units) = self.reach?;
        let resident = Resident {
            source: &CSR,
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            // The ends of at most 1024 rows.
            fixed: ((BLOCK + 1) * size_of::<Offset>()).next_multiple_of(16),
            units,
            unit: T::BYTES + size_of::<u32>(),
        };
        Some((resident, lanes))
    }

    pub(crate) fn cg_iterations(
        &self,
        cuda: &Cuda,
        count: usize,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        q: &mut Vector<T>,
        pq: &mut Scalar<T>,
        rr: &mut Scalar<T>,
        rz: &mut Scalar<T>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let matrix = [arg(&row_ptr), arg(&col_idx), arg(&values), arg(&lanes)];
        // SAFETY: cg_csr(row_ptr, col_idx, values, lanes, ...) of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, "cg_csr", &matrix, count, x, r, p, q, pq, rr, rz, monitor) }
    }

    pub(crate) fn bicgstab_iterations(
        &self,
        cuda: &Cuda,
        count: usize,
        shadow: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        v: &mut Vector<T>,
        t: &mut Vector<T>,
        scalars: [&mut Scalar<T>; 7],
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let matrix = [arg(&row_ptr), arg(&col_idx), arg(&values), arg(&lanes)];
        // SAFETY: bicgstab_csr(row_ptr, col_idx, values, lanes, ...) of a square matrix with this reach.
        unsafe {
            cuda.bicgstab_persistent(&resident, "bicgstab_csr", &matrix, count, shadow, x, r, p, v, t, scalars, monitor)
        }
    }
}

/// # Errors
/// [`Error::Device`] while a step is recorded.
pub(crate) fn not_recorded(cuda: &Cuda, what: &str) -> Result<()> {
    if cuda.is_capturing() {
        let why = format!("{what} cannot be part of a recorded step: do it once before recording");
        return Err(Error::Device { device: NAME, why });
    }
    Ok(())
}

impl<T: Real> Load<Csr<T>> for Cuda {
    type Resident = CudaCsr<T>;

    fn load(&self, host: Arc<Csr<T>>) -> Result<CudaCsr<T>> {
        self.load_csr(&host, None)
    }
}

/// The order of kernels that are chosen by the rows.
pub(crate) fn order(cuda: &Cuda) -> Order {
    if cuda.reproducible() { Order::Stored } else { Order::Own }
}

impl<T: Real> Spmv<Csr<T>> for Cuda {
    fn order(&self) -> Order {
        order(self)
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.spmv("spmv", self, gate, a, x, b, y)
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        m.spmv_dot(self, gate, x, y, w, wy, yy)
    }

    fn cg_iterations(
        &self,
        m: &CudaCsr<T>,
        count: usize,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        q: &mut Vector<T>,
        pq: &mut Scalar<T>,
        rr: &mut Scalar<T>,
        rz: &mut Scalar<T>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        m.cg_iterations(self, count, x, r, p, q, pq, rr, rz, monitor)
    }

    fn bicgstab_iterations(
        &self,
        m: &CudaCsr<T>,
        count: usize,
        shadow: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        v: &mut Vector<T>,
        t: &mut Vector<T>,
        scalars: [&mut Scalar<T>; 7],
        monitor: &mut Monitor,
    ) -> Result<bool> {
        m.bicgstab_iterations(self, count, shadow, x, r, p, v, t, scalars, monitor)
    }
}

impl<T: Real> SpmvTransposed<Csr<T>> for Cuda {
    fn transposed_order(&self) -> Order {
        order(self)
    }

    /// The first call stores the transpose on the device, with the kernel that its own rows call for: it waits, allocates and may not be
    /// recorded.
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.spmv_transposed(self, gate, a, x, b, y)
    }
}

impl<T: Real> Spmm<Csr<T>> for Cuda {
    /// In the stored order four columns at a time; else a product a column.
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_columns("spmm", "x", x.len(), m.ncols, k)?;
        expect_columns("spmm", "y", y.len(), m.nrows, k)?;
        let (a, b, gate) = (CoeffArg::from(a), CoeffArg::from(b), gate_pointer(gate));
        let (x, y) = (x.pointer(), y.pointer());
        if !m.kernel.stored() {
            let at = |base: u64, len: usize, column: usize| base + (len * column * T::BYTES) as u64;
            return (0..k).try_for_each(|c| m.product(self, a, at(x, m.ncols, c), b, at(y, m.nrows, c), gate));
        }
        let (row_ptr, col_idx, values) = (m.row_ptr.pointer(), m.col_idx.pointer(), m.values.pointer());
        let (nrows, ncols, capacity, k) = (m.nrows as u32, m.ncols as u64, m.capacity as u32, k as u64);
        let grid = Grid::of(m.nrows.div_ceil(GROUP * STAGED_WARPS), 32 * STAGED_WARPS as u32);
        let grid = with_shared(grid, m.staging(STAGED_WARPS));
        let mut arguments = [
            arg(&row_ptr),
            arg(&col_idx),
            arg(&values),
            arg(&nrows),
            arg(&ncols),
            arg(&capacity),
            arg(&k),
            arg(&a),
            arg(&x),
            arg(&b),
            arg(&y),
            arg(&gate),
        ];
        // SAFETY: spmm_csr(row_ptr, col_idx, values, nrows, ncols, capacity, k, a, x, b, y, gate), a warp 32 rows, each with room for
        // `capacity` entries; lengths compared above.
        unsafe { self.launch::<T>(&CSR, "spmm_csr", grid, &mut arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(lengths: &[u32]) -> Vec<u32> {
        std::iter::once(0)
            .chain(lengths.iter().scan(0, |at, len| {
                *at += len;
                Some(*at)
            }))
            .collect()
    }

    fn chosen(lengths: &[u32], reproducible: bool) -> CsrKernel {
        let ptr = pointers(lengths);
        let (nrows, nnz) = (lengths.len(), ptr[lengths.len()] as usize);
        RowStats::of(&ptr).choose(nrows, nnz, (nnz * 12 + nrows * 20) as u64, 132, reproducible)
    }

    #[test]
    fn the_kernel_follows_the_rows() {
        assert_eq!(chosen(&[], false), CsrKernel::Scalar);
        assert_eq!(chosen(&[0; 5], false), CsrKernel::Scalar);
        assert_eq!(chosen(&[7; 100_000], false), CsrKernel::Staged);
        assert_eq!(chosen(&[33; 100_000], false), CsrKernel::Staged);
        assert_eq!(chosen(&[33; 10_000], false), CsrKernel::Vector(16));
        assert_eq!(chosen(&[100; 100_000], false), CsrKernel::Vector(16));
        assert_eq!(chosen(&[500; 100_000], false), CsrKernel::Vector(32));
        let mut tailed = vec![3; 200_000];
        tailed[77] = 50_000;
        assert_eq!(chosen(&tailed, false), CsrKernel::Binned);
        assert_eq!(chosen(&tailed, true), CsrKernel::Staged);
        assert_eq!(chosen(&[100; 100_000], true), CsrKernel::Staged);
    }

    #[test]
    fn a_warps_room_holds_most_groups() {
        let stats = RowStats::of(&pointers(&[27; 3200]));
        assert_eq!(stats.capacity(27 * 3200, 1344), 864);
        assert_eq!(stats.capacity(27 * 3200, 320), 320);
        assert_eq!(RowStats::of(&[0]).capacity(0, 1344), GROUP);
    }

    #[test]
    fn every_entry_is_in_one_class_or_piece() {
        let lengths: Vec<u32> =
            (0..3000u32).map(|i| if i % 701 == 5 { 2049 + 900 * (i / 100) } else { (i * i) % 1500 }).collect();
        let ptr = pointers(&lengths);
        let (perm, classes, parts) = classify(&ptr);
        let mut seen = perm.clone();
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, &row)| i as u32 == row));
        let split: Vec<u32> = perm.iter().copied().filter(|&row| lengths[row as usize] > 2048).collect();
        for row in split {
            let of_row: Vec<&Part> = parts.iter().filter(|part| part.row == row).collect();
            assert_eq!(of_row[0].begin, ptr[row as usize]);
            assert_eq!(of_row[of_row.len() - 1].end, ptr[row as usize + 1]);
            assert!(of_row.windows(2).all(|pair| pair[0].end == pair[1].begin && pair[0].begin < pair[0].end));
            assert!(
                of_row.iter().all(|part| part.count as usize == of_row.len() && part.end - part.begin <= 2048 + 32)
            );
            assert_eq!(parts[of_row[0].first as usize], *of_row[0]);
        }
        assert!(classes.block.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(classes.row[CLASSES] as usize, lengths.len());
    }

    /// The merged sequence, item by item.
    #[test]
    fn tiles_cut_the_merged_sequence() {
        for lengths in [vec![], vec![0], vec![3], vec![0, 0, 5, 0, 1, 9, 0, 0], vec![2; 9]] {
            let ptr = pointers(&lengths);
            let (nrows, nnz) = (lengths.len(), ptr[lengths.len()] as usize);
            let (mut rows, mut entries) = (0, 0);
            for items in 0..=nrows + nnz {
                assert_eq!(rows_before(&ptr, items), rows, "{lengths:?} {items}");
                if rows < nrows && entries == ptr[rows + 1] as usize {
                    rows += 1;
                } else {
                    entries += 1;
                }
            }
        }
    }
}
