//! Linear operators as solvers see them, with or without a stored matrix.

use std::any::Any;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_formats::Real;

use crate::error::expect_len;
use crate::{Backend, Coeff, Gate, HostMemory, Result};

/// A linear operator as solvers see it: y <- A x on a backend.
///
/// x has as many elements as A has columns, and y as many as A has rows. A solver compares [`Operator::shape`] with its
/// vectors once, before it begins.
///
/// # Errors
/// Those of the operations that it enqueues; [`crate::Error::Shape`] for operands of the wrong length, with the outputs
/// unchanged.
///
/// # Safety
/// A solver may record the operator's operations as part of an iteration. So each call of one of them must enqueue the
/// same work on the operands and on the same internal buffers. These buffers must be neither freed nor moved while the
/// operator is borrowed, not even through interior mutability, because a captured graph holds their addresses. An
/// operation that cannot meet this must fail while it is being recorded.
#[doc(alias = "LinearOperator")]
#[doc(alias = "LinOp")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operator on the device `{B}` for elements of type `{T}`",
    note = "a host matrix is loaded first: `Mat::load(&device, &csr)?`",
    note = "a function over slices is one on the CPU: `operator::from_fn(n, |x: &[f64], y: &mut [f64]| ...)`",
    note = "for any device, implement `Operator` with operations of the contract: see docs/guide/own-operator.md"
)]
pub unsafe trait Operator<T: Real, B: Backend<T>> {
    /// The shape: (rows, columns).
    fn shape(&self) -> (usize, usize);

    /// y <- A x. It writes all of y and does not read it. Enqueues; may be recorded; writes nothing if the gate is
    /// closed. The order of summation, and so the bits, are the operator's own; a stored matrix has those of
    /// [`crate::Spmv::order`].
    #[doc(alias = "matvec")]
    #[doc(alias = "mul_vec")]
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()>;

    /// y <- A x; wy <- w . y; and, if asked for, yy <- y . y. w has the length of y. The default body is the
    /// specification: an override gives the same bits.
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        x: &B::Vector,
        y: &mut B::Vector,
        w: &B::Vector,
        wy: &mut B::Scalar,
        yy: Option<&mut B::Scalar>,
    ) -> Result<()> {
        self.apply(be, gate, x, y)?;
        be.dot(gate, w, y, wy)?;
        match yy {
            Some(yy) => be.dot(gate, y, y, yy),
            None => Ok(()),
        }
    }

    /// r <- b - A x. The default computes A x first and then subtracts it; a stored matrix does both in one pass.
    fn residual(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &B::Vector, r: &mut B::Vector) -> Result<()> {
        self.apply(be, gate, x, r)?;
        be.axpby(gate, Coeff::one(), b, Coeff::host(-T::one()), r)
    }

    /// The resident form of the matrix, if the operator is exactly one stored matrix of the backend; otherwise `None`
    /// (the default). A solver hands it to the backend, which may have a kernel that works on the whole matrix
    /// ([`crate::CgSteps::cg_iterations`]).
    fn stored(&self) -> Option<&dyn Any> {
        None
    }
}

/// A pointer to an operator is an operator.
macro_rules! pointers {
    ($($Pointer:ty),*) => { $(
        // SAFETY: every operation is forwarded to the operator behind the pointer, whose buffers do not move with the
        // pointer.
        unsafe impl<T: Real, B: Backend<T>, A: Operator<T, B> + ?Sized> Operator<T, B> for $Pointer {
            fn shape(&self) -> (usize, usize) {
                (**self).shape()
            }
            fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
                (**self).apply(be, gate, x, y)
            }
            fn apply_dot(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                x: &B::Vector,
                y: &mut B::Vector,
                w: &B::Vector,
                wy: &mut B::Scalar,
                yy: Option<&mut B::Scalar>,
            ) -> Result<()> {
                (**self).apply_dot(be, gate, x, y, w, wy, yy)
            }
            fn residual(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                b: &B::Vector,
                x: &B::Vector,
                r: &mut B::Vector,
            ) -> Result<()> {
                (**self).residual(be, gate, b, x, r)
            }
            fn stored(&self) -> Option<&dyn Any> {
                (**self).stored()
            }
        }
    )* };
}
pointers!(Box<A>, Rc<A>, Arc<A>, &A);

/// An operator that applies a function over slices, made by [`from_fn`].
pub struct FromFn<F> {
    n: usize,
    f: F,
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").field("n", &self.n).finish_non_exhaustive()
    }
}

/// Makes an operator of `n` rows and columns from `f(x, y)`, which computes y <- A x and writes every element of y. The
/// old y has no meaning. `f` is not called if the gate is closed.
///
/// The operator runs on a device in host memory, that is, on the CPU. No `unsafe` is needed there because nothing is
/// recorded: see [`HostMemory`].
///
/// ```
/// use spandrel_backend::operator;
///
/// // The second difference of a rod, without its matrix.
/// let rod = operator::from_fn(100, |x: &[f64], y: &mut [f64]| {
///     let at = |i: Option<usize>| i.and_then(|i| x.get(i)).copied().unwrap_or(0.0);
///     for (i, y) in y.iter_mut().enumerate() {
///         *y = 2.0 * x[i] - at(i.checked_sub(1)) - at(Some(i + 1));
///     }
/// });
/// ```
///
/// A device that may record graphs does not accept such an operator:
///
/// ```compile_fail,E0277
/// use spandrel_backend::{Backend, Operator, operator};
///
/// fn shape<B: Backend<f64>>(_: &B) -> (usize, usize) {
///     let copy = operator::from_fn(3, |x: &[f64], y: &mut [f64]| y.copy_from_slice(x));
///     Operator::<f64, B>::shape(&copy)
/// }
/// ```
pub fn from_fn<T: Real, F: Fn(&[T], &mut [T])>(n: usize, f: F) -> FromFn<F> {
    FromFn { n, f }
}

// SAFETY: a device in host memory records nothing and calls the function again each time, so the function may act
// differently on each call.
unsafe impl<T: Real, B: HostMemory<T>, F: Fn(&[T], &mut [T])> Operator<T, B> for FromFn<F> {
    fn shape(&self) -> (usize, usize) {
        (self.n, self.n)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        expect_len("an operator", "x", be.len(x), self.n)?;
        expect_len("an operator", "y", be.len(y), self.n)?;
        if be.is_open(gate) {
            (self.f)(be.as_slice(x), be.as_mut_slice(y));
        }
        Ok(())
    }
}
