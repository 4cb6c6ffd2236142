//! DIA on the CPU, and the kernel for diagonals that bDIA shares with it.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv`].
//! Order: stored, by ascending offset. The kernel works across rows: the accumulators of a chunk of 4096 rows stay in
//! first-level cache while the diagonals pass over them four at a time, each as one contiguous run of values and of x.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Dia, Format, Real};

use crate::Cpu;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};

simd_fn! {
    /// out <- the accumulators of `rows` of a matrix given by `offsets` and their diagonals, `nrows` values each.
    pub(crate) fn diagonals<T>(offsets: &[i32], values: &[T], nrows: usize, rows: Range<usize>, x: &[T], out: &mut [T]) {
        out.fill(T::zero());
        // Rows of the range in which diagonal `offset` lies inside the matrix.
        let clip = |offset: i32| {
            let low = (rows.start as i64).max(-i64::from(offset));
            let high = (rows.end as i64).min(x.len() as i64 - i64::from(offset));
            low as usize..high.max(low) as usize
        };
        let mut k = 0;
        while k < offsets.len() {
            let four = k + 4 <= offsets.len() && offsets[k..k + 4].iter().all(|&offset| clip(offset) == rows);
            if four {
                let run = |j: usize| {
                    let at = (k + j) * nrows + rows.start;
                    let from = (rows.start as i64 + i64::from(offsets[k + j])) as usize;
                    (&values[at..at + rows.len()], &x[from..from + rows.len()])
                };
                let ((v0, x0), (v1, x1), (v2, x2), (v3, x3)) = (run(0), run(1), run(2), run(3));
                let out = &mut out[..rows.len()];
                for i in 0..out.len() {
                    let acc = fma(v1[i], x1[i], fma(v0[i], x0[i], out[i]));
                    out[i] = fma(v3[i], x3[i], fma(v2[i], x2[i], acc));
                }
                k += 4;
            } else {
                let inside = clip(offsets[k]);
                k += 1;
                if inside.is_empty() {
                    continue;
                }
                let (k, offset) = (k - 1, offsets[k - 1]);
                let from = (inside.start as i64 + i64::from(offset)) as usize;
                let v = &values[k * nrows + inside.start..k * nrows + inside.end];
                let x = &x[from..from + inside.len()];
                let out = &mut out[inside.start - rows.start..inside.end - rows.start];
                out.iter_mut().zip(v.iter().zip(x)).for_each(|(out, (&v, &x))| *out = fma(v, x, *out));
            }
        }
    }
}

/// A DIA matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuDia<T> {
    host: Arc<Dia<T>>,
    partition: Partition,
}

impl<T: Real> Load<Dia<T>> for Cpu {
    type Resident = CpuDia<T>;

    fn load(&self, host: Arc<Dia<T>>) -> Result<CpuDia<T>> {
        let row = (host.offsets().len() + 2) * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuDia { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuDia<T> {
    const CHUNK: usize = MAX_CHUNK;

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
        diagonals(simd, self.host.offsets(), self.host.values(), self.host.nrows(), rows, x, out);
    }
}

spmv_by_rows!(Dia);
spmm_by_rows!(Dia);
