//! Dense matrices on the CPU.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored, by ascending column. The kernel works across rows: the accumulators of a chunk of 4096 rows stay in
//! first-level cache while the columns pass over them, four at a time.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Load, Result, UpdateValues};
use spandrel_formats::{Dense, Real};

use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};
use crate::spgemm::typed;
use crate::{Cpu, Vector};

simd_fn! {
    fn columns<T>(values: &[T], nrows: usize, rows: Range<usize>, x: &[T], out: &mut [T]) {
        out.fill(T::zero());
        let column = |j: usize| &values[j * nrows + rows.start..j * nrows + rows.end];
        let (fours, rest) = x.as_chunks::<4>();
        for (four, x) in fours.iter().enumerate() {
            let [c0, c1, c2, c3] = std::array::from_fn(|j| column(4 * four + j));
            let out = &mut out[..rows.len()];
            for i in 0..out.len() {
                let acc = fma(c1[i], x[1], fma(c0[i], x[0], out[i]));
                out[i] = fma(c3[i], x[3], fma(c2[i], x[2], acc));
            }
        }
        for (j, &x) in (4 * fours.len()..).zip(rest) {
            out.iter_mut().zip(column(j)).for_each(|(out, &v)| *out = fma(v, x, *out));
        }
    }
}

/// A dense matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuDense<T> {
    host: Arc<Dense<T>>,
    partition: Partition,
}

// SAFETY: a loaded object changes only while it is borrowed mutably, and operations with it write only to their
// operands.
unsafe impl<T: Real> Load<Dense<T>> for Cpu {
    type Resident = CpuDense<T>;

    fn load(&self, host: Arc<Dense<T>>) -> Result<CpuDense<T>> {
        let row = (host.ncols() + 1) * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuDense { host, partition })
    }
}

/// Copies the values; the host's matrix may be used elsewhere.
impl<T: Real> UpdateValues<Dense<T>> for Cpu {
    fn update_values(&self, m: &mut CpuDense<T>, values: &[T]) -> Result<()> {
        let (nrows, ncols) = (m.host.nrows(), m.host.ncols());
        expect_len("update_values", "values", values.len(), nrows * ncols)?;
        m.host = Arc::new(Dense::new(nrows, ncols, values.to_vec()).map_err(typed)?);
        Ok(())
    }
    fn update_values_from(&self, m: &mut CpuDense<T>, values: &Vector<T>) -> Result<()> {
        UpdateValues::<Dense<T>>::update_values(self, m, values.as_slice())
    }
}

impl<T: Real> Rows<T> for CpuDense<T> {
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
        columns(simd, self.host.values(), self.host.nrows(), rows, x, out);
    }
}

spmv_by_rows!(Dense);
