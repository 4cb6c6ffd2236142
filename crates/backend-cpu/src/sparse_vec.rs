//! Sparse vectors on the CPU.
//!
//! Layout: the host's positions, shared, and a separate copy of the values, because gather overwrites them.
//! Order: element-wise, and the tree of [`crate::dot`] over the packed entries.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Result, SparseVector};
use spandrel_formats::{Real, SparseVec};

use crate::device::open;
use crate::dot::{BLOCK, dot_blocks, reduce};
use crate::simd::fma;
use crate::threads::Shared;
use crate::vector::{copied, value};
use crate::{Cpu, Scalar, Vector};

/// A sparse vector: positions shared with the host, and its own values.
#[derive(Clone, Debug)]
pub struct CpuSparseVec<T> {
    host: Arc<SparseVec<T>>,
    values: Vec<T>,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<SparseVec<T>> for Cpu {
    type Resident = CpuSparseVec<T>;

    fn load(&self, host: Arc<SparseVec<T>>) -> Result<CpuSparseVec<T>> {
        let values = copied(host.values(), "a sparse vector's values")?;
        Ok(CpuSparseVec { host, values })
    }
}

impl<T: Real> SparseVector<T> for Cpu {
    fn sparse_axpy(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        s: &CpuSparseVec<T>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("sparse_axpy", "y", y.len(), s.host.len())?;
        if open(gate) {
            let a = value(a);
            self.scatter_with(s, y, |value, y| *y = fma(a, value, *y));
        }
        Ok(())
    }

    fn sparse_dot(&self, gate: Gate<'_, Self>, s: &CpuSparseVec<T>, y: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        expect_len("sparse_dot", "y", y.len(), s.host.len())?;
        if open(gate) {
            let (simd, y) = (self.simd(), y.as_slice());
            [out.0] = reduce(self, s.values.len(), 4 + 2 * T::BYTES, |entries, [partials]| {
                let mut gathered = [T::zero(); BLOCK];
                for (start, partial) in entries.clone().step_by(BLOCK).zip(partials) {
                    let block = start..entries.end.min(start + BLOCK);
                    let gathered = &mut gathered[..block.len()];
                    for (to, &i) in gathered.iter_mut().zip(&s.host.indices()[block.clone()]) {
                        *to = y[i as usize];
                    }
                    dot_blocks(simd, &s.values[block], gathered, std::slice::from_mut(partial));
                }
            })?;
        }
        Ok(())
    }

    fn gather(&self, gate: Gate<'_, Self>, y: &Vector<T>, s: &mut CpuSparseVec<T>) -> Result<()> {
        expect_len("gather", "y", y.len(), s.host.len())?;
        if open(gate) {
            let y = y.as_slice();
            let (n, indices, values) = (s.values.len(), s.host.indices(), Shared::new(&mut s.values));
            self.split(n, 4 + 2 * T::BYTES, 1, |entries| {
                // SAFETY: `split` hands out disjoint ranges of the values.
                let values = unsafe { values.part(entries.clone()) };
                for (value, &i) in values.iter_mut().zip(&indices[entries]) {
                    *value = y[i as usize];
                }
            });
        }
        Ok(())
    }

    fn scatter(&self, gate: Gate<'_, Self>, s: &CpuSparseVec<T>, y: &mut Vector<T>) -> Result<()> {
        expect_len("scatter", "y", y.len(), s.host.len())?;
        if open(gate) {
            self.scatter_with(s, y, |value, y| *y = value);
        }
        Ok(())
    }

    fn download_sparse(&self, s: &CpuSparseVec<T>) -> Result<Vec<T>> {
        copied(&s.values, "a sparse vector's values on the host")
    }
}

impl Cpu {
    /// Applies `put` at the stored positions of y, whose length is that of s.
    fn scatter_with<T: Real>(&self, s: &CpuSparseVec<T>, y: &mut Vector<T>, put: impl Fn(T, &mut T) + Sync) {
        let y = Shared::new(y.as_mut_slice());
        self.split(s.values.len(), 4 + 3 * T::BYTES, 1, |entries| {
            for (&i, &value) in s.host.indices()[entries.clone()].iter().zip(&s.values[entries]) {
                // SAFETY: positions ascend strictly and are below the length of s, which the caller compared with y's.
                // So each position is inside and belongs to one task.
                put(value, unsafe { y.at(i as usize) });
            }
        });
    }
}
