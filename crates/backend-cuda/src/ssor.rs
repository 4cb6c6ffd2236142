//! SSOR's splitting on the GPU: one thread per row, and no row waits.
//!
//! Order: that of [`spandrel_sptrsv::ssor`]. Kernels: kernels/ssor.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::{Error, Ssor};

use crate::Cuda;
use crate::factor::{CudaFactor, FactorizeRows, Given, Numeric, Operands, Share, Until, part};

impl<T: Real> Numeric for Ssor<T> {
    fn entries(&self) -> Given<'_> {
        Given::Apart
    }
    fn number(&self) -> T {
        T::from_f64(self.omega())
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, mut operands: Operands<'_, T>) -> Result<f64> {
        let shift = T::from_f64(2.0) - m.number();
        // SAFETY: the kernel is for the patterns of L and U, whose rows are A's.
        let wrong = unsafe { m.run(cuda, Share::Threads(FactorizeRows::SSOR), &mut operands, shift, Until::Complete)? };
        let [Some(row), _] = wrong else { return Ok(0.0) };
        let [l, u] = m.places(row)?;
        let diagonal = l.end + u.start;
        let zero = part(operands.values, diagonal..diagonal + 1)?[0] == T::zero();
        m.judged(row, Err(if zero { Error::ZeroPivot { row } } else { Error::NotFinite { row } }))
    }
}
