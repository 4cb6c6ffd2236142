//! IC(0) on the GPU. Each shift is one run: the host reads the result and tries the next shift. A run whose shift is
//! too small ends at the first pivot that shows it.
//!
//! Order: that of [`spandrel_sptrsv::factor`]. Kernels: kernels/ic0.cu.

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::ic0::{judge, shifts};
use spandrel_sptrsv::{Error, Ic0};

use crate::Cuda;
use crate::factor::{CudaFactor, FactorizeGrid, FactorizeRows, Given, Kernels, Numeric, Operands, Until, part};
use crate::sweep::Parts;

fn kernels<T: Real>() -> Kernels<T> {
    Kernels {
        by_lanes: [
            FactorizeRows::IC0_LANES_4,
            FactorizeRows::IC0_LANES_8,
            FactorizeRows::IC0_LANES_16,
            FactorizeRows::IC0_LANES_32,
        ],
        on_grid: [
            FactorizeGrid::IC0_POINTS_7,
            FactorizeGrid::IC0_POINTS_13,
            FactorizeGrid::IC0_POINTS_15,
            FactorizeGrid::IC0_POINTS_19,
            FactorizeGrid::IC0_POINTS_27,
            FactorizeGrid::IC0_POINTS_33,
        ],
    }
}

impl<T: Real> Numeric for Ic0<T> {
    const PARTS: Option<Parts> = Some(Parts::Lower);

    fn entries(&self) -> Given<'_> {
        Given::Begins(self.given_ptr())
    }
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, mut operands: Operands<'_, T>) -> Result<f64> {
        let share = m.share(&kernels());
        let mut run = |shift, until| {
            // SAFETY: the kernels are for the pattern of L and where A's rows begin.
            unsafe { m.run(cuda, share, &mut operands, T::from_f64(shift), until) }
        };
        let mut last = 0.0;
        for shift in shifts() {
            last = shift;
            match run(shift, Until::Broken)? {
                [None, None] => return Ok(shift),
                [None, Some(_)] => {}
                [Some(_), _] => break,
            }
        }
        // A run to the end tells which row is the first.
        let row = match run(last, Until::Complete)? {
            [None, None] => return Ok(last),
            [Some(row), _] => return m.judged(row, judge(row, &part(operands.values, m.given_places(row)?)?)),
            [None, Some(row)] => row,
        };
        // A wrong pivot is stored instead of its root.
        let [l, _] = m.places(row)?;
        let pivot = part(operands.lower.buffer(), l.end - 1..l.end)?[0].as_f64();
        m.judged(row, Err(Error::NotPositive { row, pivot, shift: last }))
    }
}
