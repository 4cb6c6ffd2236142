//! bDIA on the GPU.
//!
//! Layout: the host's diagonals, each begun at a multiple of 16 bytes; +0 outside the matrix, 64 elements behind the last diagonal, which
//! loads of whole blocks of rows may touch. Bands as pieces of at most 1024 diagonals with their windows' places in shared memory.
//! Order: stored, by ascending offset. Cost: [`spandrel_formats::Traffic::spmv`].
//! Three kernels: `window` for bands wide enough that a window of x in shared memory pays, `narrow` where x comes from the first-level
//! cache, and for matrices too small to fill the device `staged`, which loads with more threads than it has rows, or `single`, one row a
//! thread. All have the same bits. Kernels: kernels/bdia.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Convert, Converted, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Band, Bdia, Csr, Format, Real};

use crate::convert::Diagonals;
use crate::device::gate_pointer;
use crate::launch::{Argument, BLOCK, CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::BDIA;
use crate::persistent::{Reach, Resident};
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

/// Mean width of bands from which windows pay: of a single one, and of several, whose windows are waited for in turn.
const WIDE: [usize; 2] = [4, 8];
/// Diagonals up to which one thread a row has them all in flight at once.
const FEW: usize = 8;
/// Diagonals of a piece at most.
const PIECE: u32 = 1024;
/// Elements of the windows of a pass, and bytes of those of `staged`.
const PASS: u32 = 4096;
const STAGED_WINDOWS: u32 = 32 << 10;
/// Rows of a thread block of `staged`, and bytes of its tile.
const STAGED_ROWS: usize = 64;
const TILE: u32 = 32 << 10;
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

/// How a matrix is multiplied.
#[derive(Debug)]
enum Plan {
    /// `narrow`, or `single` for a small matrix: all offsets, those past the near ones in memory too.
    Narrow { near: [i32; NEAR_OFFSETS], all: Option<Buffer<i32>> },
    /// `window`, or `staged` for a small matrix: pieces, those past the near ones in memory too; elements of the windows.
    Window { near: [Piece; NEAR_PIECES], count: u32, all: Option<Buffer<Piece>>, extent: u32 },
}

/// A bDIA matrix in device memory.
#[derive(Debug)]
pub struct CudaBdia<T> {
    nrows: usize,
    ncols: usize,
    diagonals: u32,
    stride: usize,
    values: Buffer<T>,
    plan: Plan,
    /// If it is too small to fill the device by its rows alone: a 0 for each block of 1024 rows, where the parts of a block that end are
    /// counted during a fused dot product.
    small: Option<Buffer<u32>>,
    /// Where it is square and small enough for a persistent solve: all offsets, and how far they reach.
    offsets: Option<(Buffer<i32>, Reach)>,
}

impl<T: Real> CudaBdia<T> {
    fn persistent(&self) -> Option<(Resident<'static>, u64)> {
        let (offsets, reach) = self.offsets.as_ref()?;
        let diagonals = self.diagonals as usize;
        let resident = Resident {
            source: &BDIA,
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            fixed: (4 * diagonals).next_multiple_of(16),
            units: diagonals,
            unit: T::BYTES,
        };
        Some((resident, offsets.pointer()))
    }
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
    ) -> Result<CudaBdia<T>> {
        let stride = stride(nrows);
        let small = nrows < BLOCK * self.multiprocessors();
        let wide = offsets.len() >= WIDE[usize::from(bands.len() > 1)] * bands.len().max(1);
        let rows = if small { STAGED_ROWS } else { BLOCK } as u32;
        let (pieces, extent) = layout(bands, rows, if small { STAGED_WINDOWS / T::BYTES as u32 } else { PASS });
        // `staged` has a single pass.
        let fits = !small || pieces.iter().skip(1).all(|piece| piece.at > 0);
        let plan = if wide && fits && !(small && offsets.len() <= FEW) {
            let mut near = [Piece::default(); NEAR_PIECES];
            near.iter_mut().zip(&pieces).for_each(|(near, &piece)| *near = piece);
            let far = pieces.len() > NEAR_PIECES;
            let all = far.then(|| Buffer::from_host(self.stream(), &pieces, "a matrix's bands")).transpose()?;
            Plan::Window { near, count: pieces.len() as u32, all, extent }
        } else {
            let mut near = [0; NEAR_OFFSETS];
            near.iter_mut().zip(offsets).for_each(|(near, &offset)| *near = offset);
            let far = offsets.len() > NEAR_OFFSETS;
            let all = far.then(|| Buffer::from_host(self.stream(), offsets, "a matrix's offsets")).transpose()?;
            Plan::Narrow { near, all }
        };
        // One row a thread fills the device with a quarter of the rows that four a thread need.
        let small = match &plan {
            Plan::Narrow { .. } => nrows < 4 * BLOCK * self.multiprocessors(),
            Plan::Window { .. } => small,
        };
        let arrivals = || Buffer::zeros(self.stream(), nrows.div_ceil(BLOCK).max(1), "counts of finished rows");
        let small = small.then(arrivals).transpose()?;
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
        Ok(CudaBdia { nrows, ncols, diagonals, stride, values, plan, small, offsets })
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Bdia<T>> for Cuda {
    type Resident = CudaBdia<T>;

    fn load(&self, host: Arc<Bdia<T>>) -> Result<CudaBdia<T>> {
        let (nrows, ncols) = (host.nrows(), host.ncols());
        let offsets: Vec<i32> = host.offsets().collect();
        let (stride, values) = (stride(nrows), self.bdia_values(nrows, offsets.len())?);
        for (k, &offset) in offsets.iter().enumerate() {
            // Only what lies inside: the host may hold -0 outside, which the kernels' sums would tell from +0.
            let begin = (-i64::from(offset)).clamp(0, nrows as i64) as usize;
            let end = (ncols as i64 - i64::from(offset)).clamp(begin as i64, nrows as i64) as usize;
            values.write_at(k * stride + begin, &host.values()[k * nrows + begin..k * nrows + end])?;
        }
        self.bdia((nrows, ncols), host.bands(), &offsets, values)
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
        let resident = self.bdia((nrows, ncols), &bands, &offsets, values)?;
        let (storage, spmv_bytes) = Bdia::<T>::traffic_of(nrows, ncols, &bands);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl Cuda {
    /// Thread blocks of `single`: smaller where larger ones would leave multiprocessors idle.
    fn single_rows(&self, nrows: usize) -> Grid {
        let threads = if nrows < BLOCK * self.multiprocessors() { 64 } else { 128 };
        Grid::of(nrows.div_ceil(threads), threads as u32)
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
        expect_len("spmv", "x", x.len(), m.ncols)?;
        expect_len("spmv", "y", y.len(), m.nrows)?;
        let (values, stride, diagonals) = (m.values.pointer(), m.stride as u64, m.diagonals);
        let (nrows, ncols, a, b) = (m.nrows as u64, m.ncols as u64, CoeffArg::from(a), CoeffArg::from(b));
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        match &m.plan {
            Plan::Narrow { near, all } => {
                let offsets = OffsetsArg { all: all.as_ref().map_or(0, Buffer::pointer), near: *near };
                let mut arguments = [
                    arg(&values),
                    arg(&stride),
                    arg(&diagonals),
                    arg(&offsets),
                    arg(&nrows),
                    arg(&ncols),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                let (name, grid) = if m.small.is_some() {
                    ("spmv_single_bdia", self.single_rows(m.nrows))
                } else {
                    ("spmv_narrow_bdia", Grid::rows(m.nrows))
                };
                // SAFETY: both (values, stride, diagonals, offsets, nrows, ncols, a, x, b, y, gate), lengths compared above.
                unsafe { self.launch::<T>(&BDIA, name, grid, &mut arguments) }
            }
            Plan::Window { near, count, all, extent } => {
                let pieces =
                    PiecesArg { all: all.as_ref().map_or(0, Buffer::pointer), count: *count, reserved: 0, near: *near };
                let windows = extent * T::BYTES as u32;
                if m.small.is_some() {
                    let mut arguments = [
                        arg(&values),
                        arg(&stride),
                        arg(&diagonals),
                        arg(&pieces),
                        arg(&nrows),
                        arg(&ncols),
                        arg(&a),
                        arg(&x),
                        arg(&b),
                        arg(&y),
                        arg(&gate),
                    ];
                    let grid = Grid { shared: TILE + windows, ..Grid::of(m.nrows.div_ceil(STAGED_ROWS), 256) };
                    // SAFETY: spmv_staged_bdia(values, stride, diagonals, pieces, nrows, ncols, a, x, b, y, gate), lengths compared above;
                    // 64 elements lie behind the last diagonal.
                    return unsafe { self.launch::<T>(&BDIA, "spmv_staged_bdia", grid, &mut arguments) };
                }
                let mut arguments = [
                    arg(&values),
                    arg(&stride),
                    arg(&pieces),
                    arg(&nrows),
                    arg(&ncols),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                let rows = 256 * 16 / T::BYTES;
                let grid = Grid { shared: windows, ..Grid::of(m.nrows.div_ceil(rows), 256) };
                // SAFETY: spmv_window_bdia(values, stride, pieces, nrows, ncols, a, x, b, y, gate), lengths compared above; the windows
                // have room for 1024 rows, which are no fewer.
                unsafe { self.launch::<T>(&BDIA, "spmv_window_bdia", grid, &mut arguments) }
            }
        }
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
        expect_len("spmv_dot", "x", x.len(), m.ncols)?;
        expect_len("spmv_dot", "y", y.len(), m.nrows)?;
        expect_len("spmv_dot", "w", w.len(), m.nrows)?;
        let tree = self.tree(m.nrows, [wy.pointer(), yy.map_or(0, |yy| yy.pointer())])?;
        let (values, stride, diagonals) = (m.values.pointer(), m.stride as u64, m.diagonals);
        let (nrows, ncols) = (m.nrows as u64, m.ncols as u64);
        let (x, y, w, gate) = (x.pointer(), y.pointer(), w.pointer(), gate_pointer(gate));
        match &m.plan {
            Plan::Narrow { near, all } => {
                let offsets = OffsetsArg { all: all.as_ref().map_or(0, Buffer::pointer), near: *near };
                if let Some(arrivals) = &m.small {
                    let arrivals = arrivals.pointer();
                    let mut arguments = [
                        arg(&values),
                        arg(&stride),
                        arg(&diagonals),
                        arg(&offsets),
                        arg(&nrows),
                        arg(&ncols),
                        arg(&x),
                        arg(&y),
                        arg(&w),
                        arg(&arrivals),
                        arg(&tree),
                        arg(&gate),
                    ];
                    let grid = self.single_rows(m.nrows);
                    // SAFETY: spmv_dot_single_bdia(values, stride, diagonals, offsets, nrows, ncols, x, y, w, arrivals, tree, gate), lengths
                    // compared above; a count for each block of 1024 rows.
                    return unsafe { self.launch::<T>(&BDIA, "spmv_dot_single_bdia", grid, &mut arguments) };
                }
                let mut arguments = [
                    arg(&values),
                    arg(&stride),
                    arg(&diagonals),
                    arg(&offsets),
                    arg(&nrows),
                    arg(&ncols),
                    arg(&x),
                    arg(&y),
                    arg(&w),
                    arg(&tree),
                    arg(&gate),
                ];
                // SAFETY: spmv_dot_narrow_bdia(values, stride, diagonals, offsets, nrows, ncols, x, y, w, tree, gate), lengths compared
                // above.
                unsafe { self.launch::<T>(&BDIA, "spmv_dot_narrow_bdia", Grid::rows(m.nrows), &mut arguments) }
            }
            Plan::Window { near, count, all, extent } => {
                let pieces =
                    PiecesArg { all: all.as_ref().map_or(0, Buffer::pointer), count: *count, reserved: 0, near: *near };
                let windows = extent * T::BYTES as u32;
                if let Some(arrivals) = &m.small {
                    let arrivals = arrivals.pointer();
                    let mut arguments = [
                        arg(&values),
                        arg(&stride),
                        arg(&diagonals),
                        arg(&pieces),
                        arg(&nrows),
                        arg(&ncols),
                        arg(&x),
                        arg(&y),
                        arg(&w),
                        arg(&arrivals),
                        arg(&tree),
                        arg(&gate),
                    ];
                    let grid = Grid { shared: TILE + windows, ..Grid::of(m.nrows.div_ceil(STAGED_ROWS), 256) };
                    // SAFETY: spmv_dot_staged_bdia(values, stride, diagonals, pieces, nrows, ncols, x, y, w, arrivals, tree, gate), lengths
                    // compared above; 64 elements lie behind the last diagonal; a count for each block of 1024 rows.
                    return unsafe { self.launch::<T>(&BDIA, "spmv_dot_staged_bdia", grid, &mut arguments) };
                }
                let mut arguments = [
                    arg(&values),
                    arg(&stride),
                    arg(&pieces),
                    arg(&nrows),
                    arg(&ncols),
                    arg(&x),
                    arg(&y),
                    arg(&w),
                    arg(&tree),
                    arg(&gate),
                ];
                let threads = BLOCK * T::BYTES / 16;
                let blocks = Grid::of(m.nrows.div_ceil(BLOCK), threads as u32);
                let grid = Grid { shared: windows, ..blocks };
                // SAFETY: spmv_dot_window_bdia(values, stride, pieces, nrows, ncols, x, y, w, tree, gate), lengths compared above; the
                // windows have room for 1024 rows.
                unsafe { self.launch::<T>(&BDIA, "spmv_dot_window_bdia", grid, &mut arguments) }
            }
        }
    }

    fn cg_iterations(
        &self,
        m: &CudaBdia<T>,
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
        let Some((resident, offsets)) = m.persistent() else {
            return Ok(false);
        };
        let (values, stride, diagonals) = (m.values.pointer(), m.stride as u64, m.diagonals);
        let matrix = [arg(&values), arg(&offsets), arg(&stride), arg(&diagonals)];
        // SAFETY: cg_bdia(values, offsets, stride, diagonals, ...) of a square matrix with this reach.
        unsafe { self.cg_persistent(&resident, "cg_bdia", &matrix, count, x, r, p, q, pq, rr, rz, monitor) }
    }

    fn bicgstab_iterations(
        &self,
        m: &CudaBdia<T>,
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
        let Some((resident, offsets)) = m.persistent() else {
            return Ok(false);
        };
        let (values, stride, diagonals) = (m.values.pointer(), m.stride as u64, m.diagonals);
        let matrix = [arg(&values), arg(&offsets), arg(&stride), arg(&diagonals)];
        // SAFETY: bicgstab_bdia(values, offsets, stride, diagonals, ...) of a square matrix with this reach.
        unsafe {
            self.bicgstab_persistent(
                &resident,
                "bicgstab_bdia",
                &matrix,
                count,
                shadow,
                x,
                r,
                p,
                v,
                t,
                scalars,
                monitor,
            )
        }
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
}
