//! Copies values of triangles in device memory into the layouts of plans.
//!
//! Layout: [`Places`] holds, for each element of a plan's array, the place of its value in the triangle. It is made and
//! loaded at the first such update and takes 4 bytes per element. Order: element-wise. Kernels: kernels/triangle.cu.

use std::borrow::Cow;

use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};
use spandrel_sptrsv::{Diagonal, Plan, Triangle};

use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, Vector};

kernels! {
    struct GatherTriangle { n: u64, from: Address, values: Address, to: Address }
    in TRIANGLE { ENTRY: "gather_triangle" }

    pub(crate) struct InvertTriangle { n: u64, from: Address, values: Address, to: Address }
    in TRIANGLE { ENTRY: "invert_triangle" }
}

/// The place of each value of an array in a triangle; empty before it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Places(Option<Buffer<Offset>>);

impl Places {
    fn load<'a>(&mut self, cuda: &Cuda, made: impl FnOnce() -> Cow<'a, [Offset]>) -> Result<&Buffer<Offset>> {
        match &mut self.0 {
            Some(places) => Ok(places),
            none => Ok(none.insert(Buffer::from_host(cuda.stream(), &made(), "the places of a triangle's values")?)),
        }
    }

    /// `to` <- the values at the places that `made` gives; 0 at [`spandrel_formats::PADDING`].
    pub(crate) fn gather<'a, T: Real>(
        &mut self,
        cuda: &Cuda,
        values: &Vector<T>,
        to: &Buffer<T>,
        made: impl FnOnce() -> Cow<'a, [Offset]>,
    ) -> Result<()> {
        let (from, n) = (self.load(cuda, made)?.pointer(), to.len() as u64);
        let (values, to, grid) = (values.pointer(), to.pointer(), Grid::rows(to.len()));
        // SAFETY: gather_triangle(n, from, values, to), a place of the triangle's pattern for each of n elements.
        unsafe { cuda.launch::<T, _>(GatherTriangle::ENTRY, grid, &GatherTriangle { n, from, values, to }) }
    }

    /// `to` <- the reciprocals of the values at the places that `made` gives. Does nothing if `to` is empty, as for a
    /// unit diagonal.
    pub(crate) fn invert<T: Real>(
        &mut self,
        cuda: &Cuda,
        values: &Vector<T>,
        to: &Buffer<T>,
        made: impl FnOnce() -> Vec<Offset>,
    ) -> Result<()> {
        if to.len() == 0 {
            return Ok(());
        }
        let (from, n) = (self.load(cuda, || made().into())?.pointer(), to.len() as u64);
        let (values, to, grid) = (values.pointer(), to.pointer(), Grid::rows(to.len()));
        // SAFETY: as above, of no place without a value.
        unsafe { cuda.launch::<T, _>(InvertTriangle::ENTRY, grid, &InvertTriangle { n, from, values, to }) }
    }
}

/// The place of each row's diagonal entry; empty for a unit diagonal.
pub(crate) fn diagonal<P: Plan>(plan: &P) -> Vec<Offset> {
    let row_ptr = plan.matrix().csr().row_ptr();
    match (plan.diagonal(), plan.triangle()) {
        (Diagonal::Unit, _) => Vec::new(),
        (Diagonal::NonUnit, Triangle::Upper) => row_ptr[..plan.nrows()].to_vec(),
        (Diagonal::NonUnit, Triangle::Lower) => row_ptr[1..].iter().map(|&end| end - 1).collect(),
    }
}
