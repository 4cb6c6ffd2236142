//! Preconditioners as solvers see them.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_formats::Real;

use crate::error::expect_len;
use crate::{Backend, Gate, HostMemory, Result};

/// A preconditioner as solvers see it: z <- M^-1 r, where both have [`Preconditioner::len`] elements. CG needs it
/// symmetric and positive definite.
///
/// # Errors
/// Those of the operations that it enqueues.
///
/// # Safety
/// As for [`crate::Operator`], because it is recorded too. In addition, [`Preconditioner::is_identity`] and
/// [`Preconditioner::is_linear`] do not change.
#[doc(alias = "LinearOperator")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a preconditioner on the device `{B}` for elements of type `{T}`",
    note = "`Identity` is the one for none; `Jacobi::new(&device, &csr)?` is the simplest that does something",
    note = "a function over slices is one on the CPU: `preconditioner::from_fn(n, |r: &[f64], z: &mut [f64]| ...)`",
    note = "for any device, implement `Preconditioner` with operations of the contract: see docs/guide/own-operator.md"
)]
#[allow(clippy::len_without_is_empty)] // a size that it fits, not a count of what it holds
pub unsafe trait Preconditioner<T: Real, B: Backend<T>> {
    /// Number of rows that it fits, or `None` for any.
    fn len(&self) -> Option<usize>;
    /// Returns true if it is the identity, so that a solver may use r instead of z.
    fn is_identity(&self) -> bool {
        false
    }
    /// Returns true (the default) if M^-1 is a fixed linear operator. It is not if it contains an iteration whose steps
    /// depend on r, such as a K-cycle. A method then takes its flexible form, or refuses the preconditioner. On several
    /// ranks, all ranks must return the same.
    fn is_linear(&self) -> bool {
        true
    }
    /// z <- M^-1 r. It writes all of z and does not read it. Enqueues; may be recorded; writes nothing if the gate is
    /// closed.
    #[doc(alias = "psolve")]
    #[doc(alias = "precondition")]
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> Result<()>;
    /// z <- M^-1 r; rz <- r . z. The default body is the specification: an override gives the same bits.
    fn apply_dot(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector, rz: &mut B::Scalar) -> Result<()> {
        self.apply(be, gate, r, z)?;
        be.dot(gate, r, z, rz)
    }
}

/// A pointer to a preconditioner is a preconditioner.
macro_rules! pointers {
    ($($Pointer:ty),*) => { $(
        // SAFETY: every operation is forwarded to the preconditioner behind the pointer, whose buffers do not move with
        // the pointer.
        unsafe impl<T: Real, B: Backend<T>, M: Preconditioner<T, B> + ?Sized> Preconditioner<T, B> for $Pointer {
            fn len(&self) -> Option<usize> {
                (**self).len()
            }
            fn is_identity(&self) -> bool {
                (**self).is_identity()
            }
            fn is_linear(&self) -> bool {
                (**self).is_linear()
            }
            fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> Result<()> {
                (**self).apply(be, gate, r, z)
            }
            fn apply_dot(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                r: &B::Vector,
                z: &mut B::Vector,
                rz: &mut B::Scalar,
            ) -> Result<()> {
                (**self).apply_dot(be, gate, r, z, rz)
            }
        }
    )* };
}
pointers!(Box<M>, Rc<M>, Arc<M>, &M);

/// A preconditioner that applies a function over slices, made by [`from_fn`].
pub struct FromFn<F> {
    n: usize,
    f: F,
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").field("n", &self.n).finish_non_exhaustive()
    }
}

/// Makes a preconditioner for `n` rows from `f(r, z)`, which computes z <- M^-1 r and writes every element of z. The
/// old z has no meaning. `f` is not called if the gate is closed.
///
/// The preconditioner runs on a device in host memory, that is, on the CPU. No `unsafe` is needed there because nothing
/// is recorded: see [`HostMemory`].
///
/// ```
/// use spandrel_backend::preconditioner;
///
/// let inverse = vec![0.5, 0.25, 0.125];
/// let scaling = preconditioner::from_fn(3, |r: &[f64], z: &mut [f64]| {
///     z.iter_mut().zip(r.iter().zip(&inverse)).for_each(|(z, (r, d))| *z = d * r);
/// });
/// ```
pub fn from_fn<T: Real, F: Fn(&[T], &mut [T])>(n: usize, f: F) -> FromFn<F> {
    FromFn { n, f }
}

// SAFETY: a device in host memory records nothing and calls the function again each time, so the function may act
// differently on each call.
unsafe impl<T: Real, B: HostMemory<T>, F: Fn(&[T], &mut [T])> Preconditioner<T, B> for FromFn<F> {
    fn len(&self) -> Option<usize> {
        Some(self.n)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> Result<()> {
        expect_len("a preconditioner", "r", be.len(r), self.n)?;
        expect_len("a preconditioner", "z", be.len(z), self.n)?;
        if be.is_open(gate) {
            (self.f)(be.as_slice(r), be.as_mut_slice(z));
        }
        Ok(())
    }
}
