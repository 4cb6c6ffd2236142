//! The fused steps of CG on the CPU.
//!
//! Cost: each vector of a step is read and written once. Order: the operations of the default body, block by block
//! (1024 elements, in first-level cache), so the bits are the same.

use spandrel_backend::error::expect_len;
use spandrel_backend::{CgSteps, CgUpdate, Gate, Result};
use spandrel_formats::Real;

use crate::device::open;
use crate::dot::{self, BLOCK, block_dot};
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

simd_fn! {
    fn cg_update_blocks<T>(alpha: T, p: &[T], q: &[T], x: &mut [T], r: &mut [T], rr: &mut [T]) {
        let operands = p.chunks(BLOCK).zip(q.chunks(BLOCK));
        let updated = x.chunks_mut(BLOCK).zip(r.chunks_mut(BLOCK));
        for (((p, q), (x, r)), rr) in operands.zip(updated).zip(rr) {
            x.iter_mut().zip(p).for_each(|(x, &p)| *x = fma(alpha, p, *x));
            r.iter_mut().zip(q).for_each(|(r, &q)| *r = fma(-alpha, q, *r));
            *rr = block_dot(r, r);
        }
    }
}

impl<T: Real> CgSteps<T> for Cpu {
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let CgUpdate { alpha, p, q, x, r, rr } = on;
        expect_len("cg_update", "q", q.len(), p.len())?;
        expect_len("cg_update", "x", x.len(), p.len())?;
        expect_len("cg_update", "r", r.len(), p.len())?;
        if open(gate) {
            let (alpha, simd, n) = (value(alpha), self.simd(), p.len());
            let (p, q) = (p.as_slice(), q.as_slice());
            let (x, r) = (Shared::new(x.as_mut_slice()), Shared::new(r.as_mut_slice()));
            [rr.0] = dot::reduce(self, n, 6 * T::BYTES, |rows, [rr]| {
                // SAFETY: `reduce` hands out disjoint ranges of x and r.
                let (x, r) = unsafe { (x.part(rows.clone()), r.part(rows.clone())) };
                cg_update_blocks(simd, alpha, &p[rows.clone()], &q[rows], x, r, rr);
            })?;
        }
        Ok(())
    }
}
