//! The upload of row pointers and columns, as runs if rows repeat the ones before them.
//!
//! Layout: see [`find`]. Both arrays are cut into pieces of whole rows, about 2 MiB each. A piece is sent either as its
//! runs, which the device expands, or unchanged. The device memory then holds the same in both cases.
//!
//! Invariants: the runs of a piece cover all of its rows, so every word of both arrays is written once, by a copy or by
//! the kernel; a copy writes the first row pointer.
//!
//! Cost: the bytes of the runs, at most a third of the piece's bytes, and as much device memory until they are
//! expanded. Threads look for runs while the bus is busy with other arrays (docs/adr/0037). Kernels: kernels/runs.cu.

mod find;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use spandrel_backend::{Error, Result};
use spandrel_formats::{Offset, Ordinal};

use self::find::{Found, Piece, Rows, Run};
use crate::Cuda;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer, Write, write_all, write_beside};

kernels! {
    struct ExpandRuns { pieces: Address, parts: u32, runs: Address, words: Address, row_ptr: Address, cols: Address }
    in RUNS { ENTRY: "expand_runs" }
}

/// From this many words of row pointers and columns on, the host searches for runs. The bus takes 0.33 ms for this many
/// words. The second round of copies and the kernel take 0.2 to 0.3 ms (record/h200-upload-variants.txt).
const LEAST: usize = 1 << 22;
/// The smallest number of words in a piece; every piece is a multiple of it.
const GRAIN: usize = 32 << 10;
/// The largest number of words in a piece: those of a slot, less the room for the row that crosses the end.
const PIECE: usize = (512 << 10) - GRAIN;
/// Threads of a thread block, and entries that each of its warps takes at once, as in the kernel.
const THREADS: u32 = 256;
const CHUNK: usize = 1024;

/// The progress of the search and its results.
struct Look<'a> {
    rows: Rows<'a>,
    /// The words of a piece.
    piece: usize,
    next: AtomicUsize,
    /// The results of each searching thread.
    found: Vec<Mutex<Found>>,
}

impl<'a> Look<'a> {
    fn new(rows: Rows<'a>) -> Self {
        let threads = rayon::current_num_threads();
        let words = rows.count() + rows.cols.len();
        Self {
            rows,
            piece: (words / (8 * threads)).next_multiple_of(GRAIN).min(PIECE),
            next: AtomicUsize::new(0),
            found: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// Examines one more piece. Returns its rows if it must be sent unchanged, an empty range if runs were found, and
    /// `None` after the last piece.
    fn piece(&self, worker: usize) -> Option<Range<usize>> {
        let at = self.next.fetch_add(1, Ordering::Relaxed).checked_mul(self.piece)?;
        let rows = self.rows.at(at)..self.rows.at(at + self.piece);
        if rows.start == self.rows.count() {
            return None;
        }
        if rows.is_empty() {
            return Some(rows);
        }
        let mut found = self.found[worker].lock().unwrap_or_else(PoisonError::into_inner);
        Some(if found.add(self.rows, rows.clone()) { 0..0 } else { rows })
    }
}

/// Row pointers and columns in device memory, and those of the host that are copied there.
pub(crate) struct Index<'a> {
    pub(crate) row_ptr: (&'a Buffer<Offset>, &'a [Offset]),
    pub(crate) col_idx: (&'a Buffer<Ordinal>, &'a [Ordinal]),
}

impl<'a> Index<'a> {
    /// The copies of some rows.
    fn of(&self, rows: Range<usize>) -> [Write<'a>; 2] {
        let (ptr, cols) = (self.row_ptr.1, self.col_idx.1);
        let entries = ptr[rows.start] as usize..ptr[rows.end] as usize;
        [
            self.row_ptr.0.write(rows.start + 1, &ptr[rows.start + 1..=rows.end]),
            self.col_idx.0.write(entries.start, &cols[entries]),
        ]
    }

    /// The copies of all of them.
    fn whole(&self) -> [Write<'a>; 2] {
        [self.row_ptr.0.write(0, self.row_ptr.1), self.col_idx.0.write(0, self.col_idx.1)]
    }
}

impl Cuda {
    /// Sends the rows of a matrix, `n` + 1 valid pointers and columns, to the device, with other writes. Enqueues, and
    /// returns once the host's data has been read. Allocates for runs, and does without them if there is no memory.
    /// Must not be recorded.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn write_rows<'a>(&self, index: &Index<'a>, mut others: Vec<Write<'a>>) -> Result<()> {
        let (row_ptr, cols) = (index.row_ptr.1, index.col_idx.1);
        if row_ptr.len() + cols.len() < LEAST {
            others.extend(index.whole());
            return write_all(&others);
        }
        let look = Look::new(Rows { ptr: row_ptr, cols });
        others.push(index.row_ptr.0.write(0, &row_ptr[..1]));
        let piece = |worker| look.piece(worker).map(|rows| index.of(rows));
        if !write_beside(&others, &piece)? {
            others.extend(index.whole());
            return write_all(&others);
        }
        let each = look.piece;
        let found: Vec<Found> =
            look.found.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        match self.expand(index, &found, each) {
            // There is no memory for the runs, but the arrays have theirs: send all rows unchanged.
            Err(Error::OutOfMemory { .. }) => write_all(&index.whole()),
            done => done,
        }
    }

    /// The row pointers and columns of a matrix on the device, sent as by [`Cuda::write_rows`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the driver.
    pub(crate) fn load_rows(
        &self,
        row_ptr: &[Offset],
        col_idx: &[Ordinal],
        [ptr_what, cols_what]: [&'static str; 2],
    ) -> Result<[Buffer<u32>; 2]> {
        let to_ptr = Buffer::uninit(self.stream(), row_ptr.len(), ptr_what)?;
        let to_cols = Buffer::uninit(self.stream(), col_idx.len(), cols_what)?;
        self.write_rows(&Index { row_ptr: (&to_ptr, row_ptr), col_idx: (&to_cols, col_idx) }, Vec::new())?;
        Ok([to_ptr, to_cols])
    }

    /// Sends runs and lets the kernel expand them.
    fn expand(&self, index: &Index<'_>, found: &[Found], each: usize) -> Result<()> {
        const WHAT: &str = "the runs of a matrix's rows";
        let (mut runs, mut words) = (0, 0);
        let mut pieces: Vec<Piece> = Vec::new();
        for part in found {
            let of = |piece: &Piece| Piece {
                run: piece.run + runs as u32,
                end_run: piece.end_run + runs as u32,
                words: piece.words + words as u32,
                ..*piece
            };
            pieces.extend(part.pieces.iter().map(of));
            runs += part.runs.len();
            words += part.words.len();
        }
        if pieces.is_empty() {
            return Ok(());
        }
        // All of them in one buffer, so that few copies are needed.
        let sizes = [size_of_val(&*pieces) / size_of::<u32>(), runs * size_of::<Run>() / size_of::<u32>(), words];
        let to = Buffer::uninit(self.stream(), sizes.iter().sum(), WHAT)?;
        let begins = [0, sizes[0], sizes[0] + sizes[1]];
        let mut writes = vec![to.write(0, bytemuck::cast_slice(&pieces))];
        let mut at = begins[1];
        for part in found {
            writes.push(to.write(at, bytemuck::cast_slice(&part.runs)));
            at += size_of_val(&*part.runs) / size_of::<u32>();
        }
        for part in found {
            writes.push(to.write(at, &part.words));
            at += part.words.len();
        }
        write_all(&writes)?;
        let parts = each.div_ceil(CHUNK * THREADS as usize / 32) as u32;
        let grid = Grid::of(pieces.len() * parts as usize, THREADS);
        let addresses = begins.map(|begin| to.address(begin));
        let (row_ptr, cols) = (index.row_ptr.0.pointer(), index.col_idx.0.pointer());
        let [pieces, runs, words] = &addresses;
        let parameters = ExpandRuns { pieces: *pieces, parts, runs: *runs, words: *words, row_ptr, cols };
        // SAFETY: expand_runs(pieces, parts, runs, words, row_ptr, cols); `parts` thread blocks for each piece, whose
        // rows and entries lie inside both arrays, and whose runs are all of them. What was sent is freed in the
        // queue's order.
        unsafe { self.launch::<f64, _>(ExpandRuns::ENTRY, grid, &parameters) }
    }
}
