//! ILU(0) on the GPU, and the numeric phase of every A ~ L U on given patterns.
//!
//! Order: [`spandrel_sptrsv::factor`]'s. Kernels: kernels/ilu0.cu.

use std::ops::Range;

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::factor::judge;
use spandrel_sptrsv::{Factor, Ilu0, Pattern};

use crate::Cuda;
use crate::factor::{CudaFactor, Given, Numbers, Numeric, Operands, part, places};
use crate::module::ILU0;

impl<T: Real> Numeric for Ilu0<T> {
    fn entries(&self) -> Given<'_> {
        Given::Same
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, operands: Operands<'_, T>) -> Result<f64> {
        let given = |l: Range<usize>, u: Range<usize>| l.start + u.start..l.end + u.end;
        eliminate(cuda, m, operands, |row| {
            let rows = |pattern: &Pattern| places(pattern.row_ptr(), row);
            given(rows(m.factor().lower()), m.factor().upper().map_or(0..0, rows))
        })
    }
}

/// A ~ L U, row by row. `given` gives the places of a row among A's values.
///
/// # Errors
/// As [`Numeric::make`].
pub(crate) fn eliminate<T: Real, F: Factor<Value = T>>(
    cuda: &Cuda,
    m: &CudaFactor<F>,
    mut operands: Operands<'_, T>,
    given: impl Fn(usize) -> Range<usize>,
) -> Result<f64> {
    let lanes = m.lanes();
    let kernel = match lanes {
        4 => "factorize4_ilu0",
        8 => "factorize8_ilu0",
        16 => "factorize16_ilu0",
        _ => "factorize32_ilu0",
    };
    let numbers = Numbers { number: T::from_f64(T::UNIT_ROUNDOFF), shift: T::zero() };
    // SAFETY: factorize{lanes}_ilu0(task) on the patterns of L, of U and, where that is another, of A.
    let [Some(row), _] = (unsafe { m.run(cuda, (&ILU0, kernel, Some(lanes)), &mut operands, numbers)? }) else {
        return Ok(0.0);
    };
    let Operands { values, lower, upper } = operands;
    let [before, rest] = [(&*lower, Some(m.factor().lower())), (&*upper, m.factor().upper())]
        .map(|(made, pattern)| part(made, pattern.map_or(0..0, |pattern| places(pattern.row_ptr(), row))));
    m.judged(row, judge(row, &part(values, given(row))?, &before?, &rest?))
}
