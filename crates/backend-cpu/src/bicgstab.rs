//! The fused steps of BiCGStab on the CPU.
//!
//! Cost: each vector of a step is read and written once. Order: the operations of the default body, block by block
//! (1024 elements, in first-level cache), so the bits are the same.

use spandrel_backend::error::expect_len;
use spandrel_backend::{BicgstabHalf, BicgstabSteps, BicgstabUpdate, Gate, Result};
use spandrel_formats::Real;

use crate::device::open;
use crate::dot::{self, BLOCK, block_dot};
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

simd_fn! {
    fn bicgstab_half_blocks<T>(alpha: T, v: &[T], r: &mut [T], ss: &mut [T]) {
        for ((v, r), ss) in v.chunks(BLOCK).zip(r.chunks_mut(BLOCK)).zip(ss) {
            r.iter_mut().zip(v).for_each(|(r, &v)| *r = fma(-alpha, v, *r));
            *ss = block_dot(r, r);
        }
    }

    fn bicgstab_update_blocks<T>(
        alpha: T, p: &[T], omega: T, s: Option<&[T]>, t: &[T], shadow: &[T],
        x: &mut [T], r: &mut [T], rr: &mut [T], rho: &mut [T],
    ) {
        let operands = p.chunks(BLOCK).zip(t.chunks(BLOCK)).zip(shadow.chunks(BLOCK));
        let updated = x.chunks_mut(BLOCK).zip(r.chunks_mut(BLOCK)).zip(rr.iter_mut().zip(rho));
        for (block, (((p, t), shadow), ((x, r), (rr, rho)))) in operands.zip(updated).enumerate() {
            let s = s.map_or(&*r, |s| &s[block * BLOCK..block * BLOCK + x.len()]);
            x.iter_mut().zip(p.iter().zip(s)).for_each(|(x, (&p, &s))| *x = fma(alpha, p, fma(omega, s, *x)));
            r.iter_mut().zip(t).for_each(|(r, &t)| *r = fma(-omega, t, *r));
            *rr = block_dot(r, r);
            *rho = block_dot(shadow, r);
        }
    }
}

impl<T: Real> BicgstabSteps<T> for Cpu {
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let BicgstabHalf { alpha, v, r, ss } = on;
        expect_len("bicgstab_half", "r", r.len(), v.len())?;
        if open(gate) {
            let (alpha, simd, n) = (value(alpha), self.simd(), v.len());
            let (v, r) = (v.as_slice(), Shared::new(r.as_mut_slice()));
            [ss.0] = dot::reduce(self, n, 3 * T::BYTES, |rows, [ss]| {
                // SAFETY: `reduce` hands out disjoint ranges of r.
                bicgstab_half_blocks(simd, alpha, &v[rows.clone()], unsafe { r.part(rows) }, ss);
            })?;
        }
        Ok(())
    }

    fn bicgstab_update(&self, gate: Gate<'_, Self>, on: BicgstabUpdate<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
        expect_len("bicgstab_update", "t", t.len(), p.len())?;
        expect_len("bicgstab_update", "shadow", shadow.len(), p.len())?;
        expect_len("bicgstab_update", "x", x.len(), p.len())?;
        expect_len("bicgstab_update", "r", r.len(), p.len())?;
        if let Some(s) = s {
            expect_len("bicgstab_update", "s", s.len(), p.len())?;
        }
        if open(gate) {
            let (alpha, omega, simd, n) = (value(alpha), value(omega), self.simd(), p.len());
            let (p, s, t, shadow) = (p.as_slice(), s.map(Vector::as_slice), t.as_slice(), shadow.as_slice());
            let (x, r) = (Shared::new(x.as_mut_slice()), Shared::new(r.as_mut_slice()));
            [rr.0, rho.0] = dot::reduce(self, n, 8 * T::BYTES, |rows, [rr, rho]| {
                // SAFETY: `reduce` hands out disjoint ranges of x and r.
                let (x, r) = unsafe { (x.part(rows.clone()), r.part(rows.clone())) };
                let (p, s) = (&p[rows.clone()], s.map(|s| &s[rows.clone()]));
                let (t, shadow) = (&t[rows.clone()], &shadow[rows]);
                bicgstab_update_blocks(simd, alpha, p, omega, s, t, shadow, x, r, rr, rho);
            })?;
        }
        Ok(())
    }
}
