//! Vectors and scalars on the CPU: level 1 and the fused steps of the solvers.
//!
//! Cost: every operand once per operation; a fused step reads and writes each of its vectors once.
//! Order: element-wise, and the tree of [`crate::dot`]. A fused step forms the same operations block by block (1024
//! elements, in first-level cache) and so has the bits of its default.
//! Invariants: an operation compares its operands' lengths before anything else; the ranges below lie inside on that ground.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Coeff, Gate, Phase, Quantity, Result};
use spandrel_formats::Real;

use crate::device::open;
use crate::dot::{self, BLOCK, block_dot};
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;
use crate::vector::{copied, value};
use crate::{Cpu, Monitor, Scalar, Vector};

simd_fn! {
    /// y <- fma(a, x, b*y); y <- a*x where b = 0.
    pub(crate) fn axpby_slice<T>(a: T, x: &[T], b: T, y: &mut [T]) {
        if b.is_zero() {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = a * x);
        } else if b.is_one() {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = fma(a, x, *y));
        } else {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = fma(a, x, b * *y));
        }
    }

    fn axpbypcz_slice<T>(a: T, x: &[T], b: T, y: &[T], c: T, z: &mut [T]) {
        let pairs = x.iter().zip(y);
        if c.is_zero() {
            z.iter_mut().zip(pairs).for_each(|(z, (&x, &y))| *z = fma(a, x, b * y));
        } else {
            z.iter_mut().zip(pairs).for_each(|(z, (&x, &y))| *z = fma(a, x, fma(b, y, c * *z)));
        }
    }

    fn hadamard_slice<T>(x: &[T], y: &[T], z: &mut [T]) {
        z.iter_mut().zip(x.iter().zip(y)).for_each(|(z, (&x, &y))| *z = x * y);
    }

    fn cg_update_blocks<T>(alpha: T, p: &[T], q: &[T], x: &mut [T], r: &mut [T], rr: &mut [T]) {
        let operands = p.chunks(BLOCK).zip(q.chunks(BLOCK));
        let updated = x.chunks_mut(BLOCK).zip(r.chunks_mut(BLOCK));
        for (((p, q), (x, r)), rr) in operands.zip(updated).zip(rr) {
            x.iter_mut().zip(p).for_each(|(x, &p)| *x = fma(alpha, p, *x));
            r.iter_mut().zip(q).for_each(|(r, &q)| *r = fma(-alpha, q, *r));
            *rr = block_dot(r, r);
        }
    }

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

    fn hadamard_dot_blocks<T>(d: &[T], r: &[T], z: &mut [T], rz: &mut [T]) {
        for (((d, r), z), rz) in d.chunks(BLOCK).zip(r.chunks(BLOCK)).zip(z.chunks_mut(BLOCK)).zip(rz) {
            z.iter_mut().zip(d.iter().zip(r)).for_each(|(z, (&d, &r))| *z = d * r);
            *rz = block_dot(r, z);
        }
    }
}

/// Elements at which an element-wise operation may be split: whole cache lines of either element type.
pub(crate) const GRANULE: usize = 16;

impl<T: Real> Backend<T> for Cpu {
    type Vector = Vector<T>;
    type Scalar = Scalar<T>;

    fn zeros(&self, len: usize) -> Result<Vector<T>> {
        Vector::zeros(self, len)
    }

    fn upload(&self, host: &[T]) -> Result<Vector<T>> {
        Vector::from_host(self, host)
    }

    fn write(&self, host: &[T], v: &mut Vector<T>) -> Result<()> {
        expect_len("write", "host", host.len(), v.len())?;
        v.as_mut_slice().copy_from_slice(host);
        Ok(())
    }

    fn download(&self, v: &Vector<T>) -> Result<Vec<T>> {
        copied(v.as_slice(), "a vector on the host")
    }

    fn len(&self, v: &Vector<T>) -> usize {
        v.len()
    }

    fn scalar(&self, value: T) -> Result<Scalar<T>> {
        Ok(Scalar(value))
    }

    fn download_scalar(&self, s: &Scalar<T>) -> Result<T> {
        Ok(s.0)
    }

    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Vector<T>) -> Result<()> {
        if open(gate) {
            let (n, y) = (y.len(), Shared::new(y.as_mut_slice()));
            // SAFETY: `split` hands out disjoint ranges of y.
            self.split(n, T::BYTES, GRANULE, |rows| unsafe { y.part(rows) }.fill(value));
        }
        Ok(())
    }

    fn copy(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &mut Vector<T>) -> Result<()> {
        expect_len("copy", "y", y.len(), x.len())?;
        if open(gate) {
            let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
            self.split(x.len(), 2 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of y.
                unsafe { y.part(rows.clone()) }.copy_from_slice(&x[rows]);
            });
        }
        Ok(())
    }

    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("axpby", "y", y.len(), x.len())?;
        if open(gate) {
            let (a, b, simd) = (value(a), value(b), self.simd());
            let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
            self.split(x.len(), 3 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of y.
                axpby_slice(simd, a, &x[rows.clone()], b, unsafe { y.part(rows) });
            });
        }
        Ok(())
    }

    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &Vector<T>,
        c: Coeff<'_, T, Scalar<T>>,
        z: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("axpbypcz", "y", y.len(), x.len())?;
        expect_len("axpbypcz", "z", z.len(), x.len())?;
        if open(gate) {
            let (a, b, c, simd) = (value(a), value(b), value(c), self.simd());
            let (x, y, z) = (x.as_slice(), y.as_slice(), Shared::new(z.as_mut_slice()));
            self.split(x.len(), 4 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of z.
                axpbypcz_slice(simd, a, &x[rows.clone()], b, &y[rows.clone()], c, unsafe { z.part(rows) });
            });
        }
        Ok(())
    }

    fn hadamard(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, z: &mut Vector<T>) -> Result<()> {
        expect_len("hadamard", "y", y.len(), x.len())?;
        expect_len("hadamard", "z", z.len(), x.len())?;
        if open(gate) {
            let simd = self.simd();
            let (x, y, z) = (x.as_slice(), y.as_slice(), Shared::new(z.as_mut_slice()));
            self.split(x.len(), 3 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of z.
                hadamard_slice(simd, &x[rows.clone()], &y[rows.clone()], unsafe { z.part(rows) });
            });
        }
        Ok(())
    }

    fn assign(&self, gate: Gate<'_, Self>, coeff: Coeff<'_, T, Scalar<T>>, out: &mut Scalar<T>) -> Result<()> {
        if open(gate) {
            out.0 = value(coeff);
        }
        Ok(())
    }

    fn dot(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        expect_len("dot", "y", y.len(), x.len())?;
        if open(gate) {
            out.0 = dot::dot(self, x.as_slice(), y.as_slice())?;
        }
        Ok(())
    }

    fn norm2(&self, gate: Gate<'_, Self>, x: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        if open(gate) {
            out.0 = dot::dot(self, x.as_slice(), x.as_slice())?.sqrt();
        }
        Ok(())
    }

    fn observe(&self, squared: &Scalar<T>, phase: Phase, monitor: &mut Monitor) -> Result<()> {
        monitor.observe(squared.0, phase);
        Ok(())
    }

    fn require_positive(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Monitor) -> Result<()> {
        monitor.require_positive(value.0, what);
        Ok(())
    }

    fn require_nonzero(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Monitor) -> Result<()> {
        monitor.require_nonzero(value.0, what);
        Ok(())
    }

    fn cg_update(
        &self,
        gate: Gate<'_, Self>,
        alpha: Coeff<'_, T, Scalar<T>>,
        p: &Vector<T>,
        q: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        rr: &mut Scalar<T>,
    ) -> Result<()> {
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

    fn bicgstab_half(
        &self,
        gate: Gate<'_, Self>,
        alpha: Coeff<'_, T, Scalar<T>>,
        v: &Vector<T>,
        r: &mut Vector<T>,
        ss: &mut Scalar<T>,
    ) -> Result<()> {
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

    fn bicgstab_update(
        &self,
        gate: Gate<'_, Self>,
        alpha: Coeff<'_, T, Scalar<T>>,
        p: &Vector<T>,
        omega: Coeff<'_, T, Scalar<T>>,
        s: Option<&Vector<T>>,
        t: &Vector<T>,
        shadow: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        rr: &mut Scalar<T>,
        rho: &mut Scalar<T>,
    ) -> Result<()> {
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

    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Vector<T>,
        r: &Vector<T>,
        z: &mut Vector<T>,
        rz: &mut Scalar<T>,
    ) -> Result<()> {
        expect_len("hadamard_dot", "r", r.len(), d.len())?;
        expect_len("hadamard_dot", "z", z.len(), d.len())?;
        if open(gate) {
            let (simd, n) = (self.simd(), d.len());
            let (d, r, z) = (d.as_slice(), r.as_slice(), Shared::new(z.as_mut_slice()));
            [rz.0] = dot::reduce(self, n, 3 * T::BYTES, |rows, [rz]| {
                // SAFETY: `reduce` hands out disjoint ranges of z.
                hadamard_dot_blocks(simd, &d[rows.clone()], &r[rows.clone()], unsafe { z.part(rows) }, rz);
            })?;
        }
        Ok(())
    }
}
