//! Sums over vectors that are parts of longer ones. Either the host completes them with the block results of other
//! ranks, or the devices gather these themselves (peers.rs).
//!
//! The kernels are those of whole vectors. They leave the block results in the scratch memory of sums, and write this
//! device's own sum there instead of to the scalar. A step that checks or observes such a sum runs as separate kernels.
//!
//! With roots, the host reads the block results, together with the gate, and writes
//! the sum of all ranks to the scalar. Cost of a sum: the kernel, one wait, a copy of n/1024 block results, and a
//! launch that writes the scalar.

use std::cell::RefCell;
use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Error, Gate, Join, PeerSums, Result, Roots};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::NAME;
use crate::launch::BLOCK;
use crate::{Cuda, Scalar, Vector};

/// What completes the sums of a device at present.
pub(crate) type Completion = RefCell<Option<Sums>>;

/// How sums over several ranks are completed.
#[derive(Clone)]
pub(crate) enum Sums {
    Roots(Arc<dyn Roots>),
    Peers(Arc<PeerSums<Cuda>>),
}

/// Restores the previous completion when it is dropped, also if work panics.
pub(crate) struct Before<'c>(&'c Completion, Option<Sums>);

impl<'c> Before<'c> {
    /// Completes the sums of a device by `sums` until this value is dropped.
    pub(crate) fn of(cuda: &'c Cuda, sums: Sums) -> Self {
        Self(cuda.completion(), cuda.completion().replace(Some(sums)))
    }
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        *self.0.borrow_mut() = self.1.take();
    }
}

impl Join for Cuda {
    fn joined<R>(&self, roots: &Arc<dyn Roots>, work: impl FnOnce(&Self) -> R) -> R {
        let _before = Before::of(self, Sums::Roots(Arc::clone(roots)));
        work(self)
    }
}

impl Cuda {
    /// Returns true if sums are completed with those of other ranks. A step that checks or observes a sum must then run
    /// as separate kernels.
    pub(crate) fn is_joined(&self) -> bool {
        self.completion().borrow().is_some()
    }

    /// If the device is joined, completes the last kernel's sums over `n` elements, and blocks if the host has to do
    /// it. With `root`, writes their square roots.
    pub(crate) fn complete<T: Real, const K: usize>(
        &self,
        gate: Gate<'_, Self>,
        n: usize,
        root: bool,
        out: [&mut Scalar<T>; K],
    ) -> Result<()> {
        let Some(sums) = self.completion().borrow().clone() else { return Ok(()) };
        if self.is_capturing() {
            let why = "a sum over several ranks waits for their hosts, which cannot be recorded: run it step by step";
            return Err(Error::Device { device: NAME, why: why.into() });
        }
        let roots = match sums {
            Sums::Roots(roots) => roots,
            Sums::Peers(sums) => return self.complete_with_peers(&sums, gate, n, root, out),
        };
        let blocks = n.div_ceil(BLOCK);
        let results: [_; K] = self.block_results::<T, K>(n);
        let landing = &mut *self.landing().borrow_mut();
        // SAFETY: `blocks` results of each sum lie at these addresses of the scratch memory.
        let fetched = unsafe { landing.fetch(self.stream(), gate_pointer(gate), &results, blocks * T::BYTES)? };
        let Some(fetched) = fetched else { return Ok(()) };
        let mut sums = [T::zero(); K];
        if T::BYTES == size_of::<f32>() {
            roots.roots_f32(bytemuck::cast_slice_mut(fetched), bytemuck::cast_slice_mut(&mut sums))?;
        } else {
            roots.roots_f64(bytemuck::cast_slice_mut(fetched), bytemuck::cast_slice_mut(&mut sums))?;
        }
        for (sum, out) in sums.into_iter().zip(out) {
            self.assign(gate, Coeff::host(if root { sum.sqrt() } else { sum }), out)?;
        }
        Ok(())
    }

    /// The sums of a product with a joined device: wy <- w . y and, if asked for, yy <- y . y.
    pub(crate) fn dots<T: Real>(
        &self,
        gate: Gate<'_, Self>,
        w: &Vector<T>,
        y: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        self.dot(gate, w, y, wy)?;
        yy.map_or(Ok(()), |yy| self.dot(gate, y, y, yy))
    }
}
