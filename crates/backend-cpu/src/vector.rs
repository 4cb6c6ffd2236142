//! Vectors and scalars in host memory.
//!
//! Layout: whole cache lines, aligned to 64 bytes, so that no vector load of a kernel straddles two lines.
//! Invariants: `len` elements lie inside `lines`. Cost: `len * |T|` bytes, rounded up to 64.

use std::marker::PhantomData;

use spandrel_backend::{Coeff, Error, Result};
use spandrel_formats::Real;

use crate::Cpu;
use crate::threads::Shared;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A vector of fixed length.
#[derive(Clone)]
pub struct Vector<T> {
    lines: Vec<Line>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Real> std::fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vector").field("element", &T::NAME).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Real> Vector<T> {
    /// Makes a vector of zeros. The pool that will work on a page touches it first.
    pub(crate) fn zeros(cpu: &Cpu, len: usize) -> Result<Self> {
        let refused = || out_of_memory::<T>(len, "a vector");
        let count = len.checked_mul(T::BYTES).ok_or_else(refused)?.div_ceil(64);
        let mut lines: Vec<Line> = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| refused())?;
        // SAFETY: the capacity was just reserved, and the elements below `count` are written before `set_len` exposes
        // them.
        let spare = unsafe { std::slice::from_raw_parts_mut(lines.spare_capacity_mut().as_mut_ptr(), count) };
        let shared = Shared::new(spare);
        cpu.split(count, 64, 1, |range| {
            // SAFETY: `split` hands out disjoint ranges of 0..count.
            unsafe { shared.part(range) }.fill(std::mem::MaybeUninit::new(Line([0; 64])));
        });
        // SAFETY: `count` lines are reserved and were all written above.
        unsafe { lines.set_len(count) };
        Ok(Self { lines, len, element: PhantomData })
    }

    /// Makes a copy of `host`.
    pub(crate) fn from_host(cpu: &Cpu, host: &[T]) -> Result<Self> {
        let mut v = Self::zeros(cpu, host.len())?;
        v.as_mut_slice().copy_from_slice(host);
        Ok(v)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, since a CPU vector is in host memory.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `lines` holds at least `len * |T|` initialised bytes, aligned to 64; `Real` is plain old data.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<T>(), self.len) }
    }

    /// The elements, for writing in place.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<T>(), self.len) }
    }
}

/// A scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar<T>(pub(crate) T);

/// The error for `len` elements that could not be allocated.
pub(crate) fn out_of_memory<T>(len: usize, what: &'static str) -> Error {
    Error::OutOfMemory { device: "cpu", what, bytes: (len as u64).saturating_mul(size_of::<T>() as u64) }
}

/// Makes an empty array with capacity for `len` elements.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn room<T>(len: usize, what: &'static str) -> Result<Vec<T>> {
    let mut array = Vec::new();
    array.try_reserve_exact(len).map_err(|_| out_of_memory::<T>(len, what))?;
    Ok(array)
}

/// Makes a copy of `slice`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn copied<T: Copy>(slice: &[T], what: &'static str) -> Result<Vec<T>> {
    let mut array = room(slice.len(), what)?;
    array.extend_from_slice(slice);
    Ok(array)
}

/// Computes `host * (num[0]/den[0]) * (num[1]/den[1])`, in that order.
pub(crate) fn value<T: Real>(coeff: Coeff<'_, T, Scalar<T>>) -> T {
    let mut product = coeff.host;
    for (num, den) in coeff.num.into_iter().zip(coeff.den) {
        if num.is_some() || den.is_some() {
            product *= num.map_or(T::one(), |s| s.0) / den.map_or(T::one(), |s| s.0);
        }
    }
    product
}
