//! A CSR matrix in f32 made from one in f64, both on the GPU.
//!
//! Layout: both share the memory of the pattern. Order: element-wise. Cost: the values are read twice (for their
//! largest, and for the cast), a third time if they might not be finite; two waits. Kernels: kernels/vector.cu.

use spandrel_backend::{Backend, Cast, Coeff, Narrow, Result};

use super::CudaCsr;
use crate::memory::Buffer;
use crate::{Cuda, Vector};

/// e of 2^e, a normal number.
fn exponent(power: f64) -> i32 {
    (power.to_bits() >> 52) as i32 - 1023
}

impl Narrow for Cuda {
    fn narrow(&self, a: &CudaCsr<f64>) -> Result<Option<(CudaCsr<f32>, i32)>> {
        super::not_recorded(self, "a narrowed matrix")?;
        if a.nnz == 0 {
            return Ok(None);
        }
        // SAFETY: the memory is the matrix's, which is borrowed longer than the vector lives; both only read it.
        let wide: Vector<f64> = unsafe { self.wrap_raw(a.values.pointer().get(), a.values.len())? };
        let mut scale = Backend::<f64>::scalar(self, 1.0)?;
        Cast::<f64, f32>::binade(self, None, &wide, &mut scale)?;
        let power = Backend::<f64>::download_scalar(self, &scale)?;
        // An infinite or NaN entry gives this value too. If all are finite, they are below 4 in magnitude and have a
        // finite sum of squares.
        if power == 1.0 {
            Backend::<f64>::dot(self, None, &wide, &wide, &mut scale)?;
            if !Backend::<f64>::download_scalar(self, &scale)?.is_finite() {
                return Ok(None);
            }
        }
        let values = Buffer::uninit(self.stream(), a.values.len(), "a matrix's values")?;
        // SAFETY: as above, of memory that nobody else has yet.
        let mut narrow: Vector<f32> = unsafe { self.wrap_raw(values.pointer().get(), values.len())? };
        Cast::<f64, f32>::cast(self, None, Coeff::host(1.0 / power), &wide, &mut narrow)?;
        let made = self.sharing_pattern(a, values)?;
        Ok(Some((made, exponent(power))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_powers_of_two() {
        for e in [-1022, -1, 0, 1, 52, 1022] {
            assert_eq!(exponent(2f64.powi(e)), e);
        }
    }
}
