//! COO on the GPU.
//!
//! Layout: the host's, padded to a multiple of four entries, and where each row begins, which the stored order goes by. For the parallel
//! product the rows are cut, when the matrix is loaded, into pieces of whole rows, one a warp, long rows into parts, a thread block each;
//! the empty rows are listed.
//! Order: own for [`CooKernel::Parallel`], stored for the others; the same bits each time for all.
//! Cost: [`spandrel_formats::Traffic::spmv`]; [`CooKernel::Stored`] reads where rows begin in the place of the row numbers.
//! Kernels: kernels/coo.cu. Reference: Bell & Garland, Efficient sparse matrix-vector multiplication on CUDA, 2008, section 4.4, whose
//! warps cut rows and carry what is left of them into a second kernel.

use std::sync::Arc;

use bytemuck::Pod;
use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Convert, Converted, Error, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Coo, Csr, Format, Offset, Ordinal, Real};

use crate::csr::padded;
use crate::device::gate_pointer;
use crate::launch::{CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::COO;
use crate::parts::{Part, Parts, split};
use crate::{Cuda, CudaCsr, Scalar, Vector};

/// Entries of a lane in a step (`EACH` of kernels/coo.cu), and of a warp.
const EACH: usize = 4;
const STEP: usize = 32 * EACH;
/// The most steps of a piece.
const STEPS: usize = 16;
/// Entries a multiprocessor from which on pieces are of two steps, and of four: rows of dozens of entries fill them better. And those a
/// step from which on they grow further, for as many warps as the device has threads for twice over.
const TWO_STEPS: usize = 3 << 10;
const FOUR_STEPS: usize = 9 << 10;
const MORE_STEPS: usize = STEP * 128;

/// Entries of a piece for so many a multiprocessor.
fn piece_of(entries: usize) -> usize {
    let steps = match entries {
        ..TWO_STEPS => 1,
        TWO_STEPS..FOUR_STEPS => 2,
        _ => (entries / MORE_STEPS).clamp(4, STEPS),
    };
    STEP * steps
}

/// Entries of a long row that a thread block adds.
const PART: usize = 2048;

/// How a product with a COO matrix is formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CooKernel {
    /// A piece of whole rows a warp, summed by segments of equal row; a thread block for long ones.
    #[default]
    Parallel,
    /// One thread, entry by entry: the reference of the comparison. Stored order.
    Serial,
    /// A thread a row, a warp bringing in the entries of its rows side by side. Stored order.
    Stored,
}

/// A COO matrix in device memory.
#[derive(Debug)]
pub struct CudaCoo<T> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    rows: Buffer<Ordinal>,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    row_ptr: Buffer<Offset>,
    /// First entry and the one past the last of each warp's rows.
    pieces: Buffer<[u32; 2]>,
    /// Entries of a piece of several rows at most.
    limit: u32,
    parts: Parts<T>,
    /// The rows without entries.
    empty: Buffer<Ordinal>,
    kernel: CooKernel,
}

impl<T> CudaCoo<T> {
    /// Which kernel forms products: [`CooKernel::Stored`] where the device was held to orders that the CPU shares when the matrix was
    /// loaded, else [`CooKernel::Parallel`].
    pub fn kernel(&self) -> CooKernel {
        self.kernel
    }

    /// The same matrix with products formed by `kernel` from now on.
    #[must_use]
    pub fn with_kernel(self, kernel: CooKernel) -> Self {
        Self { kernel, ..self }
    }
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn room<E: Pod>(len: usize, what: &'static str) -> Result<Vec<E>> {
    let mut host = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<E>() as u64);
    host.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { device: "cpu", what, bytes })?;
    Ok(host)
}

/// Where each row begins.
fn pointers(nrows: usize, rows: &[Ordinal]) -> Result<Vec<Offset>> {
    let mut row_ptr = room(nrows + 1, "where rows begin")?;
    row_ptr.push(0);
    let mut at = 0;
    for run in rows.chunk_by(|a, b| a == b) {
        row_ptr.resize(run[0] as usize + 1, at as Offset);
        at += run.len();
        row_ptr.push(at as Offset);
    }
    row_ptr.resize(nrows + 1, at as Offset);
    Ok(row_ptr)
}

/// What becomes of the rows in the parallel product.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub(crate) pieces: Vec<[u32; 2]>,
    pub(crate) parts: Vec<Part>,
    pub(crate) empty: Vec<Ordinal>,
}

/// Rows to pieces that a warp walks in `piece` entries, a multiple of [`EACH`], counted from a multiple of [`EACH`] on; a longer row is a
/// piece of its own, and one of more than `long` entries comes in parts.
pub(crate) fn cut(row_ptr: &[Offset], piece: usize, long: usize) -> Cut {
    let mut cut = Cut::default();
    let mut open: Option<[u32; 2]> = None;
    for (row, ptr) in (0..).zip(row_ptr.windows(2)) {
        let (begin, end) = (ptr[0], ptr[1]);
        if begin == end {
            cut.empty.push(row);
        } else if (end - begin) as usize > long {
            cut.pieces.extend(open.take());
            split(&mut cut.parts, row, begin, end, PART);
        } else {
            let from = match open {
                Some([from, _]) if end as usize - from as usize / EACH * EACH <= piece => from,
                _ => {
                    cut.pieces.extend(open);
                    begin
                }
            };
            open = Some([from, end]);
        }
    }
    cut.pieces.extend(open);
    cut
}

/// What a matrix has beside its arrays.
struct Plan<T> {
    row_ptr: Buffer<Offset>,
    pieces: Buffer<[u32; 2]>,
    limit: u32,
    parts: Parts<T>,
    empty: Buffer<Ordinal>,
    kernel: CooKernel,
}

impl Cuda {
    fn coo_plan<T: Real>(&self, row_ptr: Buffer<Offset>, host: &[Offset]) -> Result<Plan<T>> {
        let nnz = host.last().map_or(0, |&nnz| nnz as usize);
        let piece = piece_of(nnz / self.multiprocessors());
        // A row of two pieces is still a warp's.
        let cut = cut(host, piece, 2 * piece);
        Ok(Plan {
            row_ptr,
            pieces: Buffer::from_host(self.stream(), &cut.pieces, "the pieces of a matrix")?,
            limit: piece as u32,
            parts: Parts::new(self, &cut.parts)?,
            empty: Buffer::from_host(self.stream(), &cut.empty, "the empty rows")?,
            kernel: if self.reproducible() { CooKernel::Stored } else { CooKernel::Parallel },
        })
    }
}

impl<T: Real> CudaCoo<T> {
    fn new(
        (nrows, ncols, nnz): (usize, usize, usize),
        (rows, cols, values): (Buffer<Ordinal>, Buffer<Ordinal>, Buffer<T>),
        plan: Plan<T>,
    ) -> Self {
        let Plan { row_ptr, pieces, limit, parts, empty, kernel } = plan;
        Self { nrows, ncols, nnz, rows, cols, values, row_ptr, pieces, limit, parts, empty, kernel }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Coo<T>> for Cuda {
    type Resident = CudaCoo<T>;

    fn load(&self, host: Arc<Coo<T>>) -> Result<CudaCoo<T>> {
        let rows = host.rows();
        let begins = pointers(host.nrows(), rows)?;
        let row_ptr = Buffer::from_host(self.stream(), &begins, "where rows begin")?;
        let plan = self.coo_plan(row_ptr, &begins)?;
        let arrays = (
            padded(self, rows, "a matrix's rows")?,
            padded(self, host.cols(), "a matrix's columns")?,
            padded(self, host.values(), "a matrix's values")?,
        );
        Ok(CudaCoo::new((host.nrows(), host.ncols(), host.nnz()), arrays, plan))
    }
}

impl<T: Real> Convert<Csr<T>, Coo<T>> for Cuda {
    /// Columns and values are copied, row numbers written; the host cuts the rows by the row pointers, which it brings down.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaCoo<T>>> {
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let host = self.row_pointers(from)?;
        let (row_ptr, from_cols, from_values) = from.arrays();
        let own_row_ptr = self.duplicate(row_ptr, nrows + 1, "where rows begin")?;
        let plan = self.coo_plan(own_row_ptr, &host)?;
        // CSR's columns and values are padded likewise.
        let len = nnz.next_multiple_of(EACH);
        let rows = Buffer::<Ordinal>::uninit(self.stream(), len, "a matrix's rows")?;
        rows.write_at(nnz, &[0; EACH][..len - nnz])?;
        let cols = self.duplicate(from_cols, len, "a matrix's columns")?;
        let values = self.duplicate(from_values, len, "a matrix's values")?;
        let (begins, count, to) = (row_ptr.pointer(), nrows as u32, rows.pointer());
        let mut arguments = [arg(&begins), arg(&count), arg(&to)];
        // SAFETY: rows_from_csr_coo(row_ptr, nrows, rows), 256 rows a thread block of 8 warps.
        unsafe { self.launch::<T>(&COO, "rows_from_csr_coo", Grid::of(nrows.div_ceil(256), 256), &mut arguments)? };
        let (storage, spmv_bytes) = Coo::<T>::traffic_of(nrows, ncols, nnz);
        let resident = CudaCoo::new((nrows, ncols, nnz), (rows, cols, values), plan);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Coo<T>> for Cuda {
    /// That of matrices as they are loaded; [`CudaCoo::with_kernel`] may choose the stored one.
    fn order(&self) -> Order {
        if self.reproducible() { Order::Stored } else { Order::Own }
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCoo<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv", "x", x.len(), m.ncols)?;
        expect_len("spmv", "y", y.len(), m.nrows)?;
        let (rows, cols, values) = (m.rows.pointer(), m.cols.pointer(), m.values.pointer());
        let (nnz, nrows, row_ptr) = (m.nnz as u32, m.nrows as u64, m.row_ptr.pointer());
        let (a, b, x, y, gate) = (CoeffArg::from(a), CoeffArg::from(b), x.pointer(), y.pointer(), gate_pointer(gate));
        match m.kernel {
            CooKernel::Serial => {
                let mut arguments = [
                    arg(&rows),
                    arg(&cols),
                    arg(&values),
                    arg(&nnz),
                    arg(&nrows),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_serial_coo(rows, cols, values, nnz, nrows, a, x, b, y, gate), lengths compared above; one thread.
                unsafe { self.launch::<T>(&COO, "spmv_serial_coo", Grid::of(1, 1), &mut arguments) }
            }
            CooKernel::Stored => {
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&cols),
                    arg(&values),
                    arg(&nrows),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                let grid = Grid::of(m.nrows.div_ceil(256), 256);
                // SAFETY: spmv_stored_coo(row_ptr, cols, values, nrows, a, x, b, y, gate), lengths compared above.
                unsafe { self.launch::<T>(&COO, "spmv_stored_coo", grid, &mut arguments) }
            }
            CooKernel::Parallel => {
                let (count, part_count, empties) = (m.pieces.len(), m.parts.len(), m.empty.len());
                let threads = if part_count == 0 { 128 } else { 256 };
                let blocks = part_count + count.div_ceil(threads / 32) + empties.div_ceil(4 * threads);
                if blocks == 0 {
                    return Ok(());
                }
                let (pieces, [parts, sums, tickets], empty) =
                    (m.pieces.pointer(), m.parts.pointers(), m.empty.pointer());
                let (count, part_count, empties) = (count as u32, part_count as u32, empties as u32);
                let mut arguments = [
                    arg(&rows),
                    arg(&cols),
                    arg(&values),
                    arg(&pieces),
                    arg(&count),
                    arg(&m.limit),
                    arg(&parts),
                    arg(&part_count),
                    arg(&sums),
                    arg(&tickets),
                    arg(&empty),
                    arg(&empties),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_coo(rows, cols, values, pieces, count, limit, parts, part_count, sums, tickets, empty, empties, a, x, b, y, gate),
                // lengths compared above; pieces and parts name entries, and they and empty rows of y, each row once.
                unsafe { self.launch::<T>(&COO, "spmv_coo", Grid::of(blocks, threads as u32), &mut arguments) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::tests::check;

    fn begins(lengths: &[u32]) -> Vec<Offset> {
        std::iter::once(0)
            .chain(lengths.iter().scan(0, |at, len| {
                *at += len;
                Some(*at)
            }))
            .collect()
    }

    #[test]
    fn every_row_is_whole_in_a_piece_or_in_parts_or_empty() {
        let lengths: Vec<u32> = (0..5000u32)
            .map(|i| match i % 13 {
                0 => 0,
                1 if i % 7 == 0 => 257 + 61 * i,
                2 => 256,
                3 => 126 + i % 5,
                _ => i * i % 40,
            })
            .collect();
        let ptr = begins(&lengths);
        let cut = cut(&ptr, 128, 256);
        check(&cut.parts, &ptr, PART);
        let mut covered = vec![0; lengths.len()];
        cut.empty.iter().for_each(|&row| {
            assert_eq!(lengths[row as usize], 0);
            covered[row as usize] += 1;
        });
        cut.parts.chunk_by(|a, b| a.row == b.row).for_each(|of_row| covered[of_row[0].row as usize] += 1);
        for &[begin, end] in &cut.pieces {
            let first = ptr.partition_point(|&p| p <= begin) - 1;
            let rows: Vec<usize> =
                (first..lengths.len()).take_while(|&i| ptr[i] < end).filter(|&i| lengths[i] > 0).collect();
            assert_eq!((ptr[rows[0]], ptr[rows[rows.len() - 1] + 1]), (begin, end));
            assert!(rows.len() == 1 || end - begin / 4 * 4 <= 128);
            rows.iter().for_each(|&row| covered[row] += 1);
        }
        assert!(covered.iter().all(|&times| times == 1));
    }

    #[test]
    fn pieces_are_as_long_as_they_may_be() {
        let pieces = |lengths: &[u32]| cut(&begins(lengths), 128, 256).pieces;
        assert!(pieces(&[]).is_empty() && pieces(&[0, 0]).is_empty());
        assert_eq!(pieces(&[64, 0, 64]), [[0, 128]]);
        assert_eq!(pieces(&[64, 65]), [[0, 64], [64, 129]]);
        // Four entries are read together: the second piece begins within them.
        assert_eq!(pieces(&[125, 64, 64, 3]), [[0, 125], [125, 189], [189, 256]]);
        assert_eq!(pieces(&[257, 3, 256, 1]), [[257, 260], [260, 516], [516, 517]]);
        assert_eq!(cut(&begins(&[257, 3]), 128, 256).parts.len(), 1);
        assert_eq!(cut(&begins(&[256, 3]), 128, 256).parts.len(), 0);
    }

    #[test]
    fn pieces_grow_with_the_matrix() {
        let steps = |nnz: usize| piece_of(nnz / 132) / STEP;
        assert_eq!([100_000, 405_503, 405_504, 1_216_511, 1_216_512].map(steps), [1, 1, 2, 2, 4]);
        assert_eq!([10_813_439, 10_813_440, 14_600_000, 450_000_000].map(steps), [4, 5, 6, 16]);
    }

    #[test]
    fn rows_begin_where_their_entries_do() {
        assert_eq!(pointers(6, &[1, 1, 4]).unwrap(), [0, 0, 2, 2, 2, 3, 3]);
        assert_eq!(pointers(0, &[]).unwrap(), [0]);
        assert_eq!(pointers(2, &[]).unwrap(), [0, 0, 0]);
    }
}
