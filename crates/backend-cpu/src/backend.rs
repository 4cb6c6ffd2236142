//! Vectors, scalars and vector operations on the CPU.
//!
//! Cost: every operand once per operation; a fused operation reads and writes each of its vectors once.
//! Order: element-wise, and the tree of [`crate::dot`]. A fused operation does the same operations block by block (1024
//! elements, in first-level cache), so it has the bits of its default.
//! Invariants: an operation compares its operands' lengths before anything else, so the ranges below lie inside.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Coeff, Gate, HostMemory, Phase, Quantity, Result};
use spandrel_formats::Real;

use crate::device::open;
use crate::dot::{self, BLOCK, block_dot};
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;
use crate::vector::{copied, value};
use crate::{Cpu, Monitor, Scalar, Vector};

simd_fn! {
    /// y <- fma(a, x, b*y), or y <- a*x if b = 0.
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

    fn hadamard_dot_blocks<T>(d: &[T], r: &[T], z: &mut [T], rz: &mut [T]) {
        for (((d, r), z), rz) in d.chunks(BLOCK).zip(r.chunks(BLOCK)).zip(z.chunks_mut(BLOCK)).zip(rz) {
            z.iter_mut().zip(d.iter().zip(r)).for_each(|(z, (&d, &r))| *z = d * r);
            *rz = block_dot(r, z);
        }
    }
}

/// Granule at which an element-wise operation may be split: whole cache lines of either element type.
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

    fn axpby_chain(
        &self,
        gate: Gate<'_, Self>,
        first: [Coeff<'_, T, Scalar<T>>; 2],
        x: &Vector<T>,
        y: &mut Vector<T>,
        second: [Coeff<'_, T, Scalar<T>>; 2],
        z: &mut Vector<T>,
    ) -> Result<()> {
        /// Elements of y that stay in a core's first cache until z has read them.
        const NEAR: usize = 1024;
        expect_len("axpby_chain", "y", y.len(), x.len())?;
        expect_len("axpby_chain", "z", z.len(), x.len())?;
        if open(gate) {
            let ([a, b], [c, d], simd) = (first.map(value), second.map(value), self.simd());
            let (x, y, z) = (x.as_slice(), Shared::new(y.as_mut_slice()), Shared::new(z.as_mut_slice()));
            self.split(x.len(), 5 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of y and z.
                let (y, z) = unsafe { (y.part(rows.clone()), z.part(rows.clone())) };
                for ((x, y), z) in x[rows].chunks(NEAR).zip(y.chunks_mut(NEAR)).zip(z.chunks_mut(NEAR)) {
                    axpby_slice(simd, a, x, b, y);
                    axpby_slice(simd, c, y, d, z);
                }
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

// SAFETY: every operation of this crate is complete when it returns; `capture` stores nothing, and `replay` enqueues
// the step.
unsafe impl<T: Real> HostMemory<T> for Cpu {
    fn is_open(&self, gate: Gate<'_, Self>) -> bool {
        open(gate)
    }
    fn as_slice<'v>(&self, v: &'v Vector<T>) -> &'v [T] {
        v.as_slice()
    }
    fn as_mut_slice<'v>(&self, v: &'v mut Vector<T>) -> &'v mut [T] {
        v.as_mut_slice()
    }
}
