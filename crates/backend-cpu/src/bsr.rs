//! BSR on the CPU, and the kernel for block rows that BSRX shares with it.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored: the entries of a row by ascending column, with the fill inside blocks. The rows of a block row are
//! independent chains of `fma`. Block sizes 2, 3, 4, 6 and 8 have compiled kernels of their own.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Bsr, Offset, Ordinal, Real};

use crate::Cpu;
use crate::partition::Partition;
use crate::product::{Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};

/// The blocks of a matrix: block row i owns the entries `begin[i]..end[i]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a, T> {
    pub(crate) dim: usize,
    pub(crate) begin: &'a [Offset],
    pub(crate) end: &'a [Offset],
    pub(crate) cols: &'a [Ordinal],
    pub(crate) values: &'a [T],
}

/// Forms the accumulators of rows `part` (counted inside the block row) of block row `row`, for block size B.
#[inline(always)]
fn fixed<T: Real, const B: usize>(m: &Blocks<'_, T>, row: usize, part: Range<usize>, x: &[T], out: &mut [T]) {
    let mut acc = [T::zero(); B];
    let range = m.begin[row] as usize..m.end[row] as usize;
    let (blocks, _) = m.values.as_chunks::<B>();
    for (&col, block) in m.cols[range.clone()].iter().zip(blocks[range.start * B..range.end * B].chunks_exact(B)) {
        let first = col as usize * B;
        if first + B <= x.len() {
            let x = &x[first..first + B];
            for c in 0..B {
                for r in 0..B {
                    acc[r] = fma(block[r][c], x[c], acc[r]);
                }
            }
        } else {
            for (c, &x) in x[first..].iter().enumerate() {
                for r in 0..B {
                    acc[r] = fma(block[r][c], x, acc[r]);
                }
            }
        }
    }
    out.copy_from_slice(&acc[part]);
}

/// As [`fixed`], for any block size.
#[inline(always)]
fn variable<T: Real>(m: &Blocks<'_, T>, row: usize, part: Range<usize>, x: &[T], out: &mut [T]) {
    out.fill(T::zero());
    for k in m.begin[row] as usize..m.end[row] as usize {
        let x = &x[m.cols[k] as usize * m.dim..];
        let x = &x[..x.len().min(m.dim)];
        for (r, out) in part.clone().zip(&mut *out) {
            let values = &m.values[(k * m.dim + r) * m.dim..][..x.len()];
            *out = values.iter().zip(x).fold(*out, |acc, (&v, &x)| fma(v, x, acc));
        }
    }
}

simd_fn! {
    /// out <- the accumulators of `rows`, which may begin and end inside a block row.
    pub(crate) fn block_rows<T>(m: Blocks<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
        let mut at = rows.start;
        while at < rows.end {
            let row = at / m.dim;
            let end = rows.end.min((row + 1) * m.dim);
            let part = at - row * m.dim..end - row * m.dim;
            let out = &mut out[at - rows.start..end - rows.start];
            match m.dim {
                2 => fixed::<T, 2>(&m, row, part, x, out),
                3 => fixed::<T, 3>(&m, row, part, x, out),
                4 => fixed::<T, 4>(&m, row, part, x, out),
                6 => fixed::<T, 6>(&m, row, part, x, out),
                8 => fixed::<T, 8>(&m, row, part, x, out),
                _ => variable(&m, row, part, x, out),
            }
            at = end;
        }
    }
}

/// A BSR matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuBsr<T> {
    host: Arc<Bsr<T>>,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Bsr<T>> for Cpu {
    type Resident = CpuBsr<T>;

    fn load(&self, host: Arc<Bsr<T>>) -> Result<CpuBsr<T>> {
        let (dim, ptr) = (host.block_dim(), host.row_ptr());
        let block = dim.saturating_mul(dim).saturating_mul(T::BYTES);
        let partition = Partition::by_cost(self, host.nrows(), |i| {
            ptr[i.div_ceil(dim)] as usize * block.saturating_add(4) + i * 2 * T::BYTES
        });
        Ok(CpuBsr { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuBsr<T> {
    fn nrows(&self) -> usize {
        self.host.nrows()
    }
    fn ncols(&self) -> usize {
        self.host.ncols()
    }
    fn partition(&self) -> &Partition {
        &self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        let ptr = self.host.row_ptr();
        let blocks = Blocks {
            dim: self.host.block_dim(),
            begin: &ptr[..ptr.len() - 1],
            end: &ptr[1..],
            cols: self.host.col_idx(),
            values: self.host.values(),
        };
        block_rows(simd, blocks, rows, x, out);
    }
}

spmv_by_rows!(Bsr);
spmm_by_rows!(Bsr);
