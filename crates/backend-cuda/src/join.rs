//! Sums over vectors that are parts of longer ones. Either the host completes them with the block results of other
//! ranks, or the devices read these themselves (peers.rs).
//!
//! The kernels are those of whole vectors. They leave the block results in the scratch memory of sums, and write this
//! device's own sum there instead of to the scalar. If the host completes sums, a step that checks or observes one runs
//! as separate kernels; otherwise the kernel that completes them does the rest of the step.
//!
//! With roots, the host reads the block results, together with the gate, and writes
//! the sum of all ranks to the scalar. Cost of a sum: the kernel, one wait, a copy of n/1024 block results, and a
//! launch that writes the scalar.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Error, Gate, Join, PeerSums, Result, Roots};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::NAME;
use crate::launch::{BLOCK, ChecksArg};
use crate::{Cuda, Monitor, Scalar, Vector};

/// What completes the sums of a device at present.
pub(crate) type Completion = RefCell<Option<Sums>>;

/// How sums over several ranks are completed.
#[derive(Clone)]
pub(crate) enum Sums {
    Roots(Arc<dyn Roots>),
    Peers(Arc<PeerSums<Cuda>>),
    /// Not yet: block results stay in the scratch memory, those of the first sum before those of the second. So many
    /// sums were formed.
    Later(Cell<usize>),
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
    /// Returns true if sums are completed with those of other ranks.
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
        let completion = self.completion().borrow();
        let roots = match &*completion {
            None => return Ok(()),
            Some(Sums::Later(earlier)) => {
                earlier.set(earlier.get() + K);
                return Ok(());
            }
            Some(Sums::Peers(sums)) => {
                let sums = Arc::clone(sums);
                drop(completion);
                self.expect_not_capturing()?;
                let checks = ChecksArg::default();
                return self.complete_with_peers(&sums, gate_pointer(gate), n, root, checks, out);
            }
            Some(Sums::Roots(roots)) => Arc::clone(roots),
        };
        drop(completion);
        self.expect_not_capturing()?;
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

    /// As [`Cuda::complete`] for a step with checks, if [`Cuda::sums_need_host`] is false.
    pub(crate) fn complete_checked<T: Real, const K: usize>(
        &self,
        monitor: &mut Monitor,
        n: usize,
        checks: ChecksArg,
        out: [&mut Scalar<T>; K],
    ) -> Result<()> {
        let completion = self.completion().borrow();
        let Some(Sums::Peers(sums)) = &*completion else { return Ok(()) };
        let sums = Arc::clone(sums);
        drop(completion);
        self.expect_not_capturing()?;
        self.complete_with_peers(&sums, monitor.pointer(), n, false, checks, out)
    }

    /// What the kernel of a step with sums checks: if the device is joined, nothing that needs the complete sums.
    pub(crate) fn checks_of_step(&self, checks: ChecksArg) -> ChecksArg {
        if self.is_joined() { ChecksArg { observe: 0, nonzero: 0, owes: 0, ..checks } } else { checks }
    }

    /// Returns true if the host completes sums. A step that checks or observes a sum must then run as separate kernels.
    pub(crate) fn sums_need_host(&self) -> bool {
        match &*self.completion().borrow() {
            Some(Sums::Roots(_) | Sums::Later(_)) => true,
            Some(Sums::Peers(_)) | None => false,
        }
    }

    fn expect_not_capturing(&self) -> Result<()> {
        if !self.is_capturing() {
            return Ok(());
        }
        let why = "a sum over several ranks waits for their hosts, which cannot be recorded: run it step by step";
        Err(Error::Device { device: NAME, why: why.into() })
    }

    /// The number of sums that were formed and are completed later.
    pub(crate) fn earlier_sums(&self) -> usize {
        match &*self.completion().borrow() {
            Some(Sums::Later(earlier)) => earlier.get(),
            Some(Sums::Roots(_) | Sums::Peers(_)) | None => 0,
        }
    }

    /// As [`Cuda::complete`] for the sums of a product.
    pub(crate) fn complete_dots<T: Real>(
        &self,
        gate: Gate<'_, Self>,
        n: usize,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        match yy {
            Some(yy) => self.complete(gate, n, false, [wy, yy]),
            None => self.complete(gate, n, false, [wy]),
        }
    }

    /// The sums of a product whose kernel does not form them: wy <- w . y and, if asked for, yy <- y . y.
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
