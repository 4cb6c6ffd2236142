//! SSOR's splitting on the GPU: a thread a row, which waits for none.
//!
//! Order: [`spandrel_sptrsv::ssor`]'s. Kernels: kernels/ssor.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::{Error, Factor, Ssor};

use crate::Cuda;
use crate::factor::{CudaFactor, Given, Numbers, Numeric, Operands, part};
use crate::module::SSOR;

impl<T: Real> Numeric for Ssor<T> {
    fn entries(&self) -> Given<'_> {
        Given::Apart
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, mut operands: Operands<'_, T>) -> Result<f64> {
        let omega = T::from_f64(m.factor().omega());
        let numbers = Numbers { number: omega, shift: T::from_f64(2.0) - omega };
        // SAFETY: factorize_ssor(task) on the patterns of L and U, whose rows are A's.
        let wrong = unsafe { m.run(cuda, (&SSOR, "factorize_ssor", None), &mut operands, numbers)? };
        let [Some(row), _] = wrong else { return Ok(0.0) };
        let end = m.factor().lower().row_ptr()[row + 1] as usize;
        let diagonal = end + m.factor().upper().map_or(0, |upper| upper.row_ptr()[row] as usize);
        let zero = part(operands.values, diagonal..diagonal + 1)?[0] == T::zero();
        m.judged(row, Err(if zero { Error::ZeroPivot { row } } else { Error::NotFinite { row } }))
    }
}
