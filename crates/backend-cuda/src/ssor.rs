//! SSOR's splitting on the GPU: a thread a row, which waits for none.
//!
//! Order: [`spandrel_sptrsv::ssor`]'s. Kernels: kernels/ssor.cu.

use std::sync::Arc;

use spandrel_backend::{Factorize, Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Error, Factor, Ssor};

use crate::factor::{CudaFactor, Given, Numbers, Operands, part};
use crate::module::SSOR;
use crate::{Cuda, Vector};

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Ssor<T>> for Cuda {
    type Resident = CudaFactor<Ssor<T>>;

    fn load(&self, host: Arc<Ssor<T>>) -> Result<Self::Resident> {
        CudaFactor::load(self, host, &Given::Apart)
    }
}

impl<T: Real> Factorize<Ssor<T>> for Cuda {
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Vector<T>,
        lower: &mut Vector<T>,
        upper: &mut Vector<T>,
    ) -> Result<f64> {
        let omega = T::from_f64(m.factor().omega());
        let numbers = Numbers { number: omega, shift: T::from_f64(2.0) - omega };
        let mut operands = Operands { values, lower, upper };
        // SAFETY: factorize_ssor(task) on the patterns of L and U, whose rows are A's.
        let wrong = unsafe { m.run(self, (&SSOR, "factorize_ssor", None), &mut operands, numbers)? };
        let [Some(row), _] = wrong else { return Ok(0.0) };
        let end = m.factor().lower().row_ptr()[row + 1] as usize;
        let diagonal = end + m.factor().upper().map_or(0, |upper| upper.row_ptr()[row] as usize);
        let zero = part(values, diagonal..diagonal + 1)?[0] == T::zero();
        m.judged(row, Err(if zero { Error::ZeroPivot { row } } else { Error::NotFinite { row } }))
    }
}
