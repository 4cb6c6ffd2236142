//! ILU(0) on the GPU, and the numeric phase of every A ~ L U on given patterns.
//!
//! Order: [`spandrel_sptrsv::factor`]'s. Kernels: kernels/ilu0.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::factor::judge;
use spandrel_sptrsv::{Factor, Ilu0};

use crate::Cuda;
use crate::factor::{CudaFactor, Given, Kernels, Numeric, Operands, Until, part};
use crate::module::ILU0;
use crate::sweep::Parts;

const KERNELS: Kernels = Kernels {
    by_lanes: ["factorize4_ilu0", "factorize8_ilu0", "factorize16_ilu0", "factorize32_ilu0"],
    on_grid: [
        "factorize_grid7_ilu0",
        "factorize_grid13_ilu0",
        "factorize_grid15_ilu0",
        "factorize_grid19_ilu0",
        "factorize_grid27_ilu0",
        "factorize_grid33_ilu0",
    ],
};

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
    let (kernel, share) = m.kernel(&KERNELS);
    // SAFETY: factorize{lanes}_ilu0(task) on the patterns of L, of U and, where that is another, of A; or factorize_grid{points}_ilu0(task,
    // on_grid).
    let [Some(row), _] = (unsafe { m.run(cuda, (&ILU0, kernel, share), &mut operands, T::zero(), Until::Complete)? })
    else {
        return Ok(0.0);
    };
    let Operands { values, lower, upper } = operands;
    let [l, u] = m.places(row)?;
    let (before, rest) = (part(lower.buffer(), l)?, part(upper.buffer(), u)?);
    m.judged(row, judge(row, &part(values, m.given_places(row)?)?, &before, &rest))
}
