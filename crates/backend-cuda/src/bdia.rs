//! bDIA on the GPU.
//!
//! Layout: the host's diagonals, each begun at a multiple of 16 bytes; +0 outside the matrix, 64 elements behind the last diagonal, which
//! loads of whole blocks of rows may touch. Bands as pieces of at most 1024 diagonals with their windows' places in shared memory.
//! Order: stored, by ascending offset. Cost: [`spandrel_formats::Traffic::spmv`].
//! Five kernels ([`BdiaKernel`]), all of the same bits. Kernels: kernels/bdia.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Convert, Converted, Error, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Band, Bdia, Csr, Format, Real};

use crate::convert::Diagonals;
use crate::launch::{Argument, BLOCK, Grid, Own, Product, ProductDot};
use crate::memory::Buffer;
use crate::module::BDIA;
use crate::persistent::{Persistent, Persists, Reach};
use crate::{Cuda, CudaCsr, Scalar, Vector};

/// Mean width of bands from which windows pay: of a single one, and of several, whose windows are waited for in turn.
const WIDE: [usize; 2] = [4, 8];
/// Diagonals up to which a row a thread is taken before tiles, which pay once many diagonals share their barriers;
/// `spandrel-bench spmv --formats bdia --force` times both.
const DIRECT: usize = 104;
/// Diagonals of a piece at most.
const PIECE: u32 = 1024;
/// Elements of the windows of a pass, and bytes of those of `staged`.
const PASS: u32 = 4096;
const STAGED_WINDOWS: u32 = 32 << 10;
/// Rows of a thread block of `staged`, and bytes of its tile.
const STAGED_ROWS: usize = 64;
const TILE: u32 = 32 << 10;
/// Rows of a thread block of `small` and of `single`.
const SMALL_ROWS: usize = 64;
const SINGLE_ROWS: usize = 128;
/// `small` by its diagonals in flight, with the thread blocks that a multiprocessor has room for, without and with dot products. More than 16
/// in flight are for a single band, and pay where that room holds all rows at once: of 15,600 rows with 33 diagonals 2.24 us with 12, 2.06 with
/// 34; of 120,000 rows 5.33 and 5.94 (record/h200-spmv-variants.txt).
const SMALL: [(usize, Option<usize>, &str, &str); 7] = [
    (4, None, "spmv_small4_bdia", "spmv_dot_small4_bdia"),
    (8, None, "spmv_small8_bdia", "spmv_dot_small8_bdia"),
    (12, None, "spmv_small12_bdia", "spmv_dot_small12_bdia"),
    (16, None, "spmv_small16_bdia", "spmv_dot_small16_bdia"),
    (22, Some(8), "spmv_small22_bdia", "spmv_dot_small22_bdia"),
    (34, Some(4), "spmv_small34_bdia", "spmv_dot_small34_bdia"),
    (44, Some(4), "spmv_small44_bdia", "spmv_dot_small44_bdia"),
];
/// Pieces and offsets that go by value.
const NEAR_PIECES: usize = 16;
const NEAR_OFFSETS: usize = 64;

/// Diagonals `start..start + width` of a band, numbered from `first` on, and the place of their window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Piece {
    start: i32,
    width: u32,
    first: u32,
    at: u32,
}

/// Pieces as the kernels take them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PiecesArg {
    all: u64,
    count: u32,
    reserved: u32,
    near: [Piece; NEAR_PIECES],
}
// SAFETY: `struct Pieces`: a pointer, two u32, and pieces of four 32-bit fields each.
unsafe impl Argument for PiecesArg {}

/// Offsets as the kernels take them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct OffsetsArg {
    all: u64,
    near: [i32; NEAR_OFFSETS],
}
// SAFETY: `struct Offsets`: a pointer and 64 ints.
unsafe impl Argument for OffsetsArg {}

/// Windows for `rows` rows: the pieces, and the elements of the largest pass. A pass holds at most `room` elements, or one piece.
fn layout(bands: &[Band], rows: u32, room: u32) -> (Vec<Piece>, u32) {
    let (mut pieces, mut first, mut at, mut extent) = (Vec::new(), 0, 0, 0);
    for band in bands {
        for begin in (0..band.width).step_by(PIECE as usize) {
            let width = (band.width - begin).min(PIECE);
            let len = rows + width.next_multiple_of(4);
            if at > 0 && at + len > room {
                at = 0;
            }
            // A band's diagonals are offsets of a matrix, which fit.
            pieces.push(Piece { start: (i64::from(band.start) + i64::from(begin)) as i32, width, first, at });
            first += width;
            at += len;
            extent = extent.max(at);
        }
    }
    (pieces, extent)
}

/// How a bDIA matrix is multiplied. [`Cuda`] chooses at load; [`Cuda::load_bdia_with`] forces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BdiaKernel {
    /// 1024 rows a thread block, 16 bytes of rows a thread, x in shared memory. For bands wide enough that such windows pay.
    Window,
    /// The same number of rows, four a thread, x from the first-level cache. For narrow bands.
    Narrow,
    /// A row a thread. For narrow bands of so few rows that four a thread would leave multiprocessors with less than they can hold.
    Single,
    /// 64 rows a thread block, whose values and windows of x it brings to shared memory with more threads than it has rows. For many
    /// diagonals of few rows.
    Staged,
    /// A row a thread in thread blocks of 64, with as many diagonals in flight as make the fewest rounds. For few rows: fewer blocks of
    /// 1024 than the device has multiprocessors.
    Small,
}

/// The kernel for a matrix on a device of so many multiprocessors; `fits`: the windows of 64 rows, all at once.
fn choose(nrows: usize, diagonals: usize, bands: usize, fits: bool, multiprocessors: usize) -> BdiaKernel {
    let wide = diagonals >= WIDE[usize::from(bands > 1)] * bands.max(1);
    match nrows {
        _ if nrows < BLOCK * multiprocessors => {
            if wide && fits && diagonals > DIRECT {
                BdiaKernel::Staged
            } else {
                BdiaKernel::Small
            }
        }
        _ if wide => BdiaKernel::Window,
        // A row a thread fills the device with a quarter of the rows that four a thread need.
        _ if nrows < 4 * BLOCK * multiprocessors => BdiaKernel::Single,
        _ => BdiaKernel::Narrow,
    }
}

/// Where the diagonals lie, as the matrix's kernel takes it; what is past the near ones in memory too.
#[derive(Debug)]
enum Table {
    Offsets {
        near: OffsetsArg,
        _all: Option<Buffer<i32>>,
    },
    /// And the elements of the windows.
    Pieces {
        near: PiecesArg,
        _all: Option<Buffer<Piece>>,
        extent: u32,
    },
}

/// A bDIA matrix in device memory.
#[derive(Debug)]
pub struct CudaBdia<T> {
    nrows: usize,
    ncols: usize,
    bands: u32,
    diagonals: u32,
    stride: usize,
    values: Buffer<T>,
    kernel: BdiaKernel,
    /// Its entries, without and with dot products, if it is [`BdiaKernel::Small`].
    small: (&'static str, &'static str),
    table: Table,
    /// If thread blocks have fewer than 1024 rows: a 0 for each block of 1024 rows, where the parts of a block that end are counted during
    /// a fused dot product.
    arrivals: Option<Buffer<u32>>,
    /// Where it is square and small enough for a persistent solve: all offsets, and how far they reach.
    offsets: Option<(Buffer<i32>, Reach)>,
}

impl<T> CudaBdia<T> {
    /// Which kernel forms products.
    pub fn kernel(&self) -> BdiaKernel {
        self.kernel
    }
}

impl<T: Real> CudaBdia<T> {
    /// What products take of it: values, stride, [diagonals, [bands,]] offsets or pieces, nrows, ncols.
    fn arguments(&self) -> Vec<Own<'_>> {
        let mut own = vec![self.values.pointer().into(), (self.stride as u64).into()];
        if self.kernel != BdiaKernel::Window {
            own.push(self.diagonals.into());
        }
        if self.kernel == BdiaKernel::Small {
            own.push(self.bands.into());
        }
        own.push(match &self.table {
            Table::Offsets { near, .. } => near.into(),
            Table::Pieces { near, .. } => near.into(),
        });
        own.extend([self.nrows, self.ncols].map(|n| Own::from(n as u64)));
        own
    }

    /// The names of the product without and with dot products, and their grids.
    fn launches(&self) -> ([&'static str; 2], [Grid; 2]) {
        let windows = match &self.table {
            Table::Offsets { .. } => 0,
            Table::Pieces { extent, .. } => extent * T::BYTES as u32,
        };
        let parts = |rows: usize, threads: u32| Grid::of(self.nrows.div_ceil(rows), threads);
        match self.kernel {
            BdiaKernel::Window => {
                let grids = [parts(256 * 16 / T::BYTES, 256), parts(BLOCK, (BLOCK * T::BYTES / 16) as u32)];
                (["spmv_window_bdia", "spmv_dot_window_bdia"], grids.map(|grid| Grid { shared: windows, ..grid }))
            }
            BdiaKernel::Narrow => (["spmv_narrow_bdia", "spmv_dot_narrow_bdia"], [Grid::rows(self.nrows); 2]),
            BdiaKernel::Single => {
                (["spmv_single_bdia", "spmv_dot_single_bdia"], [parts(SINGLE_ROWS, SINGLE_ROWS as u32); 2])
            }
            BdiaKernel::Staged => {
                let grid = Grid { shared: TILE + windows, ..parts(STAGED_ROWS, 256) };
                (["spmv_staged_bdia", "spmv_dot_staged_bdia"], [grid; 2])
            }
            BdiaKernel::Small => ([self.small.0, self.small.1], [parts(SMALL_ROWS, SMALL_ROWS as u32); 2]),
        }
    }
}

// SAFETY: cg_bdia and bicgstab_bdia (values, offsets, stride, diagonals, ...) of a square matrix with this reach.
unsafe impl<T: Real> Persists for CudaBdia<T> {
    fn persistent(&self) -> Option<Persistent> {
        let (offsets, Reach { below, above }) = self.offsets.as_ref()?;
        let (values, diagonals) = (self.values.pointer(), self.diagonals as usize);
        Some(Persistent {
            source: &BDIA,
            cg: "cg_bdia",
            bicgstab: "bicgstab_bdia",
            matrix: vec![values.into(), offsets.pointer().into(), (self.stride as u64).into(), self.diagonals.into()],
            n: self.nrows,
            below: *below,
            above: *above,
            fixed: (4 * diagonals).next_multiple_of(16),
            units: diagonals,
            unit: T::BYTES,
        })
    }
}

/// The entries of `small` that go through so many diagonals in the fewest rounds, of these the ones with the fewest in flight, among those
/// that suit so many rows and bands.
fn small(nrows: usize, diagonals: usize, bands: usize, multiprocessors: usize) -> (&'static str, &'static str) {
    let holds = |room: usize| bands == 1 && nrows.div_ceil(SMALL_ROWS) <= room * multiprocessors;
    let suiting = SMALL.iter().filter(|(_, room, ..)| room.is_none_or(holds));
    let fewest = suiting.min_by_key(|(flight, ..)| diagonals.div_ceil(*flight));
    fewest.map_or(("", ""), |&(_, _, plain, dot)| (plain, dot))
}

/// Elements from one diagonal's beginning to the next one's.
fn stride(nrows: usize) -> usize {
    nrows.next_multiple_of(if nrows < BLOCK { 4 } else { 32 })
}

impl Cuda {
    /// Zeroed diagonals with what loads of whole blocks of rows may touch behind them.
    fn bdia_values<T: Real>(&self, nrows: usize, diagonals: usize) -> Result<Buffer<T>> {
        let room = stride(nrows).saturating_mul(diagonals).saturating_add(STAGED_ROWS);
        Buffer::zeros(self.stream(), room, "a matrix's values")
    }

    /// The matrix of these diagonals in these bands, and how it is multiplied.
    fn bdia<T: Real>(
        &self,
        (nrows, ncols): (usize, usize),
        bands: &[Band],
        offsets: &[i32],
        values: Buffer<T>,
        forced: Option<BdiaKernel>,
    ) -> Result<CudaBdia<T>> {
        let stride = stride(nrows);
        let staged = layout(bands, STAGED_ROWS as u32, STAGED_WINDOWS / T::BYTES as u32);
        // `staged` has a single pass.
        let fits = staged.0.iter().skip(1).all(|piece| piece.at > 0);
        let kernel = forced.unwrap_or_else(|| choose(nrows, offsets.len(), bands.len(), fits, self.multiprocessors()));
        if kernel == BdiaKernel::Staged && !fits {
            let why = "the windows of its bands are more than shared memory holds".to_owned();
            return Err(Error::Unsupported { op: "load", noun: "bdia", why });
        }
        let table = match kernel {
            BdiaKernel::Window => self.pieces(layout(bands, BLOCK as u32, PASS))?,
            BdiaKernel::Staged => self.pieces(staged)?,
            BdiaKernel::Narrow | BdiaKernel::Single | BdiaKernel::Small => self.offsets(offsets)?,
        };
        let parts = matches!(kernel, BdiaKernel::Single | BdiaKernel::Staged | BdiaKernel::Small);
        let arrivals = || Buffer::zeros(self.stream(), nrows.div_ceil(BLOCK).max(1), "counts of finished rows");
        let arrivals = parts.then(arrivals).transpose()?;
        let diagonals = offsets.len() as u32;
        let offsets = self.may_persist(nrows, ncols).then(|| {
            let reach = |&offset: &i32| Reach {
                below: usize::try_from(-i64::from(offset)).unwrap_or(0),
                above: usize::try_from(offset).unwrap_or(0),
            };
            let reach = offsets.iter().map(reach).fold(Reach::default(), Reach::or);
            Buffer::from_host(self.stream(), offsets, "a matrix's offsets").map(|offsets| (offsets, reach))
        });
        let offsets = offsets.transpose()?;
        let small = small(nrows, diagonals as usize, bands.len(), self.multiprocessors());
        let bands = bands.len() as u32;
        Ok(CudaBdia { nrows, ncols, bands, diagonals, stride, values, kernel, small, table, arrivals, offsets })
    }

    fn pieces(&self, (pieces, extent): (Vec<Piece>, u32)) -> Result<Table> {
        let mut near = [Piece::default(); NEAR_PIECES];
        near.iter_mut().zip(&pieces).for_each(|(near, &piece)| *near = piece);
        let far = pieces.len() > NEAR_PIECES;
        let all = far.then(|| Buffer::from_host(self.stream(), &pieces, "a matrix's bands")).transpose()?;
        let pointer = all.as_ref().map_or(0, Buffer::pointer);
        let near = PiecesArg { all: pointer, count: pieces.len() as u32, reserved: 0, near };
        Ok(Table::Pieces { near, _all: all, extent })
    }

    fn offsets(&self, offsets: &[i32]) -> Result<Table> {
        let mut near = [0; NEAR_OFFSETS];
        near.iter_mut().zip(offsets).for_each(|(near, &offset)| *near = offset);
        let far = offsets.len() > NEAR_OFFSETS;
        let all = far.then(|| Buffer::from_host(self.stream(), offsets, "a matrix's offsets")).transpose()?;
        let near = OffsetsArg { all: all.as_ref().map_or(0, Buffer::pointer), near };
        Ok(Table::Offsets { near, _all: all })
    }

    /// Loads a bDIA matrix to be multiplied by `kernel`, whatever suits it.
    ///
    /// # Errors
    /// As [`Load::load`]; [`BdiaKernel::Staged`] with bands whose windows do not fit shared memory together.
    pub fn load_bdia_with<T: Real>(&self, host: &Bdia<T>, kernel: BdiaKernel) -> Result<CudaBdia<T>> {
        self.load_bdia(host, Some(kernel))
    }

    fn load_bdia<T: Real>(&self, host: &Bdia<T>, forced: Option<BdiaKernel>) -> Result<CudaBdia<T>> {
        let (nrows, ncols) = (host.nrows(), host.ncols());
        let offsets: Vec<i32> = host.offsets().collect();
        let (stride, values) = (stride(nrows), self.bdia_values(nrows, offsets.len())?);
        for (k, &offset) in offsets.iter().enumerate() {
            // Only what lies inside: the host may hold -0 outside, which the kernels' sums would tell from +0.
            let begin = (-i64::from(offset)).clamp(0, nrows as i64) as usize;
            let end = (ncols as i64 - i64::from(offset)).clamp(begin as i64, nrows as i64) as usize;
            values.write_at(k * stride + begin, &host.values()[k * nrows + begin..k * nrows + end])?;
        }
        self.bdia((nrows, ncols), host.bands(), &offsets, values, forced)
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Bdia<T>> for Cuda {
    type Resident = CudaBdia<T>;

    fn load(&self, host: Arc<Bdia<T>>) -> Result<CudaBdia<T>> {
        self.load_bdia(&host, None)
    }
}

impl<T: Real> Convert<Csr<T>, Bdia<T>> for Cuda {
    /// As for DIA, with all diagonals of the bands.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaBdia<T>>> {
        let (nrows, ncols) = (from.nrows(), from.ncols());
        let bands = Bdia::<T>::bands_of(nrows, &self.occupied(from)?, from.nnz())?;
        // Inside the matrix, whose diagonals fit.
        let diagonals = |band: &Band| band.start..=(i64::from(band.start) + i64::from(band.width) - 1) as i32;
        let offsets: Vec<i32> = bands.iter().flat_map(diagonals).collect();
        let values = self.bdia_values(nrows, offsets.len())?;
        let all = Diagonals { offsets: &offsets, first: 0, stride: stride(nrows) };
        let nnz = self.fill_diagonals(from, all, &values, false)?.nonzeros();
        let resident = self.bdia((nrows, ncols), &bands, &offsets, values, None)?;
        let (storage, spmv_bytes) = Bdia::<T>::traffic_of(nrows, ncols, &bands);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Bdia<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaBdia<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let ([name, _], [grid, _]) = m.launches();
        // SAFETY: each (values, stride, [diagonals, [bands,]] offsets or pieces, nrows, ncols, a, x, b, y, gate). The windows of
        // `window` have room for 1024 rows, which are no fewer than those of a thread block; 64 elements lie behind the last diagonal.
        unsafe { product.launch(self, &BDIA, name, grid, &m.arguments()) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaBdia<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy)?;
        let ([_, name], [_, grid]) = m.launches();
        // SAFETY: each (values, stride, [diagonals, [bands,]] offsets or pieces, nrows, ncols, x, y, w, [arrivals,] tree, gate), with
        // arrivals where thread blocks have fewer than 1024 rows, a count for each block of these; the rest as in `spmv`.
        unsafe { product.launch::<T>(self, &BDIA, name, grid, &m.arguments(), m.arrivals.as_ref()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_pass_are_disjoint_and_a_new_pass_begins_at_0() {
        let bands = [Band { start: -2000, width: 1500 }, Band { start: -1, width: 3 }, Band { start: 100, width: 5 }];
        let (pieces, extent) = layout(&bands, 1024, 4096);
        let place = |start, width, first, at| Piece { start, width, first, at };
        assert_eq!(
            pieces,
            [place(-2000, 1024, 0, 0), place(-976, 476, 1024, 2048), place(-1, 3, 1500, 0), place(100, 5, 1503, 1028)]
        );
        assert_eq!(extent, 3548);
    }
    #[test]
    fn few_rows_are_taken_one_by_one() {
        let on_h200 = |nrows, diagonals, bands| choose(nrows, diagonals, bands, true, 132);
        for diagonals in [1, 3, 17, 101] {
            assert_eq!(on_h200(15_600, diagonals, 1), BdiaKernel::Small);
            assert_eq!(on_h200(30_000, diagonals, 1), BdiaKernel::Small);
        }
        assert_eq!(on_h200(30_000, 27, 9), BdiaKernel::Small);
        assert_eq!(on_h200(0, 0, 0), BdiaKernel::Small);
        assert_eq!(on_h200(30_000, 501, 1), BdiaKernel::Staged);
        assert_eq!(choose(30_000, 501, 1, false, 132), BdiaKernel::Small);
        assert_eq!(on_h200(64 * 64 * 64, 27, 1), BdiaKernel::Window);
        assert_eq!(on_h200(64 * 64 * 64, 27, 9), BdiaKernel::Single);
        assert_eq!(on_h200(128 * 128 * 128, 27, 9), BdiaKernel::Narrow);
    }

    #[test]
    fn the_fewest_rounds_with_the_fewest_in_flight() {
        let named = |nrows, diagonals| small(nrows, diagonals, 1, 132).0;
        for (diagonals, name) in [(0, SMALL[0]), (3, SMALL[0]), (5, SMALL[1]), (9, SMALL[2]), (16, SMALL[3])] {
            assert_eq!(named(15_600, diagonals), name.2);
            assert_eq!(named(120_000, diagonals), name.2);
        }
        for (diagonals, few, many) in [(17, 4, 2), (27, 5, 3), (33, 5, 2), (41, 6, 3), (65, 5, 3), (101, 5, 3)] {
            assert_eq!(named(15_600, diagonals), SMALL[few].2);
            assert_eq!(named(120_000, diagonals), SMALL[many].2);
        }
        // 8 thread blocks on each of 132 multiprocessors, and one more.
        assert_eq!([67_584, 67_585].map(|nrows| named(nrows, 17)), [SMALL[4].2, SMALL[2].2]);
        assert_eq!(small(15_600, 33, 2, 132).0, SMALL[2].2);
    }
}
