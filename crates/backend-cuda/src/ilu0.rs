//! ILU(0) on the GPU, and the numeric phase of every A ~ L U on given patterns.
//!
//! Order: [`spandrel_sptrsv::factor`]'s. Kernels: kernels/ilu0.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::factor::judge;
use spandrel_sptrsv::{Factor, Ilu0};

use crate::Cuda;
use crate::factor::{CudaFactor, Given, Numeric, Operands, part};
use crate::module::ILU0;
use crate::sweep::Parts;

impl<T: Real> Numeric for Ilu0<T> {
    const PARTS: Option<Parts> = Some(Parts::Both);

    fn entries(&self) -> Given<'_> {
        Given::Same
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, operands: Operands<'_, T>) -> Result<f64> {
        eliminate(cuda, m, operands)
    }
}

/// A ~ L U, row by row.
///
/// # Errors
/// As [`Numeric::make`].
pub(crate) fn eliminate<T: Real, F: Numeric + Factor<Value = T>>(
    cuda: &Cuda,
    m: &CudaFactor<F>,
    mut operands: Operands<'_, T>,
) -> Result<f64> {
    let lanes = m.lanes();
    let kernel = match lanes {
        4 => "factorize4_ilu0",
        8 => "factorize8_ilu0",
        16 => "factorize16_ilu0",
        _ => "factorize32_ilu0",
    };
    // SAFETY: factorize{lanes}_ilu0(task) on the patterns of L, of U and, where that is another, of A.
    let [Some(row), _] = (unsafe { m.run(cuda, (&ILU0, kernel, Some(lanes)), &mut operands, T::zero())? }) else {
        return Ok(0.0);
    };
    let Operands { values, lower, upper } = operands;
    let [l, u] = m.places(row)?;
    let (before, rest) = (part(lower.buffer(), l)?, part(upper.buffer(), u)?);
    m.judged(row, judge(row, &part(values, m.given_places(row)?)?, &before, &rest))
}
