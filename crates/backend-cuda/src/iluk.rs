//! ILU(k) on the GPU: the numeric phase of ILU(0) on its own patterns, from values on A's pattern.
//!
//! Order: that of [`spandrel_sptrsv::factor`]. Kernels: kernels/ilu0.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::Iluk;

use crate::Cuda;
use crate::factor::{CudaFactor, Given, Numeric, Operands};
use crate::ilu0::eliminate;

impl<T: Real> Numeric for Iluk<T> {
    fn entries(&self) -> Given<'_> {
        Given::Pattern(self.given())
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, operands: Operands<'_, T>) -> Result<f64> {
        eliminate(cuda, m, operands)
    }
}
