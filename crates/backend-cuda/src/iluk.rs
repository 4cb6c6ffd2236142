//! ILU(k) on the GPU: the numeric phase of ILU(0) on its own patterns, from values on A's.
//!
//! Order: [`spandrel_sptrsv::factor`]'s. Kernels: kernels/ilu0.cu.

use std::sync::Arc;

use spandrel_backend::{Factorize, Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::Iluk;

use crate::factor::{CudaFactor, Given, Operands, places};
use crate::ilu0::eliminate;
use crate::{Cuda, Vector};

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Iluk<T>> for Cuda {
    type Resident = CudaFactor<Iluk<T>>;

    fn load(&self, host: Arc<Iluk<T>>) -> Result<Self::Resident> {
        let of = Arc::clone(&host);
        CudaFactor::load(self, host, &Given::Pattern(of.given()))
    }
}

impl<T: Real> Factorize<Iluk<T>> for Cuda {
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Vector<T>,
        lower: &mut Vector<T>,
        upper: &mut Vector<T>,
    ) -> Result<f64> {
        eliminate(self, m, Operands { values, lower, upper }, |row| places(m.factor().given().row_ptr(), row))
    }
}
