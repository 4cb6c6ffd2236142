//! Devices whose vectors are slices of host memory.

use spandrel_formats::Real;

use crate::{Backend, Gate};

/// A backend whose vectors are slices of host memory and which records nothing: the CPU.
///
/// [`crate::operator::from_fn`] and [`crate::preconditioner::from_fn`] rely on it. They call a closure that may
/// allocate, replace its buffers and act differently on each call. That would break a recorded graph, which holds
/// addresses, but it does no harm here.
///
/// # Safety
/// Every operation is complete when it returns. [`crate::Device::capture`] records nothing, and
/// [`crate::Device::replay`] calls [`crate::Step::enqueue`] again.
#[diagnostic::on_unimplemented(
    message = "a closure is not an operator or preconditioner on `{Self}`: this device may record graphs, or its vectors are not in host memory",
    note = "on the CPU it is one: use `Cpu` instead of a generic device",
    note = "for any device, implement `Operator` or `Preconditioner` with operations of the contract: see docs/guide/own-operator.md"
)]
pub unsafe trait HostMemory<T: Real>: Backend<T> {
    /// Returns true if the gate is open, so that work may run.
    fn is_open(&self, gate: Gate<'_, Self>) -> bool;
    /// The elements of a vector.
    fn as_slice<'v>(&self, v: &'v Self::Vector) -> &'v [T];
    /// The elements of a vector, for writing.
    fn as_mut_slice<'v>(&self, v: &'v mut Self::Vector) -> &'v mut [T];
}
