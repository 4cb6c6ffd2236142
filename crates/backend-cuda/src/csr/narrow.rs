//! A CSR matrix in f32 of one in f64, both on the GPU.
//!
//! Layout: the pattern is that of the one in f64, whose memory both have.
//! Order: element-wise. Cost: the values twice (the largest of them, the cast), a third time where they might not be finite; two waits.
//! Kernels: kernels/vector.cu.

use std::borrow::Cow;
use std::sync::Arc;

use spandrel_backend::{Backend, Cast, Coeff, Narrow, Result};

use super::CudaCsr;
use super::load::Arrays;
use crate::memory::Buffer;
use crate::{Cuda, Vector};

/// e of 2^e, a normal number.
fn exponent(power: f64) -> i32 {
    (power.to_bits() >> 52) as i32 - 1023
}

impl Cuda {
    /// The same memory, which is freed in its queue's order: a copy where that queue is another one, or where it is lent to the other matrix
    /// alone.
    fn shared(&self, from: &Arc<Buffer<u32>>, what: &'static str) -> Result<Arc<Buffer<u32>>> {
        Ok(match Arc::ptr_eq(from.stream(), self.stream()) && !from.is_borrowed() {
            true => Arc::clone(from),
            false => Arc::new(self.duplicate(from, from.len(), what)?),
        })
    }
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
        // Which is also what comes of an entry that is not finite. Below 4 in magnitude, the others have a finite sum of squares.
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
        let arrays = Arrays {
            row_ptr: self.shared(&a.row_ptr, "a matrix's row pointers")?,
            col_idx: self.shared(&a.col_idx, "a matrix's columns")?,
            values,
            reach: a.reach,
            stats: a.stats.clone(),
        };
        let row_ptr = || a.row_ptr.to_host("a matrix's row pointers").map(Cow::Owned);
        let made = self.make_csr((a.nrows, a.ncols, a.nnz), row_ptr, arrays, None)?;
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
