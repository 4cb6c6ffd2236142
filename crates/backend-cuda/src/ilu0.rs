//! ILU(0) on the GPU, and the numeric phase of every A ~ L U on given patterns.
//!
//! Order: that of [`spandrel_sptrsv::factor`]. Kernels: kernels/ilu0.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::factor::judge;
use spandrel_sptrsv::{Factor, Ilu0};

use crate::Cuda;
use crate::factor::{CudaFactor, FactorizeGrid, FactorizeRows, Given, Kernels, Numeric, Operands, Until, part};
use crate::sweep::Parts;

fn kernels<T: Real>() -> Kernels<T> {
    Kernels {
        by_lanes: [
            FactorizeRows::ILU0_LANES_4,
            FactorizeRows::ILU0_LANES_8,
            FactorizeRows::ILU0_LANES_16,
            FactorizeRows::ILU0_LANES_32,
        ],
        on_grid: [
            FactorizeGrid::ILU0_POINTS_7,
            FactorizeGrid::ILU0_POINTS_13,
            FactorizeGrid::ILU0_POINTS_15,
            FactorizeGrid::ILU0_POINTS_19,
            FactorizeGrid::ILU0_POINTS_27,
            FactorizeGrid::ILU0_POINTS_33,
        ],
    }
}

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
    let share = m.share(&kernels());
    // SAFETY: the kernels are for the patterns of L, of U and, where that is another, of A.
    let [Some(row), _] = (unsafe { m.run(cuda, share, &mut operands, T::zero(), Until::Complete)? }) else {
        return Ok(0.0);
    };
    let Operands { values, lower, upper } = operands;
    let [l, u] = m.places(row)?;
    let (before, rest) = (part(lower.buffer(), l)?, part(upper.buffer(), u)?);
    m.judged(row, judge(row, &part(values, m.given_places(row)?)?, &before, &rest))
}
