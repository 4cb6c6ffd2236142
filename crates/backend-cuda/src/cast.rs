//! Casts between element types on the GPU.
//!
//! Cost: every operand once, one launch each. Order: element-wise; a maximum has none. Kernels: kernels/vector.cu.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Cast, Coeff, Gate, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::launch::{BLOCK, CoeffArg, Grid};
use crate::memory::{Address, Buffer};
use crate::vector::{BinadeVector, CastVector};
use crate::{Cuda, Scalar, Vector};

/// Thread blocks per multiprocessor that look for the largest magnitude: as many as it holds at once.
const SEARCHERS: usize = 8;

impl Cuda {
    fn binade_of<S: Real>(&self, gate: Gate<'_, Self>, x: &Vector<S>, out: &mut Scalar<f64>) -> Result<()> {
        let n = x.len();
        // Room for a result of every thread block.
        let results = self.tree::<S>(n, [Address::NULL; 2])?.partials;
        let grid = Grid::of(n.div_ceil(BLOCK).min(SEARCHERS * self.multiprocessors()), 256);
        let (count, x, ticket, out, gate) = (n as u64, x.pointer(), self.ticket(), out.pointer(), gate_pointer(gate));
        // SAFETY: binade_vector(n, x, results, ticket, out, gate) on a vector of n elements; a result for each thread
        // block.
        unsafe {
            self.launch::<S, _>(BinadeVector::ENTRY, grid, &BinadeVector { n: count, x, results, ticket, out, gate })
        }
    }

    /// y <- the f32 values from `at` on, in f64, as which `T` is stored. Exact.
    pub(crate) fn widen<T: Real>(&self, values: &Buffer<f32>, at: usize, y: &mut Vector<T>) -> Result<()> {
        let n = y.len();
        assert!(T::BYTES == size_of::<f64>(), "only f64 values are kept in f32");
        assert!(at.checked_add(n).is_some_and(|end| end <= values.len()), "a cast stays inside its buffer");
        let a = CoeffArg::from(Coeff::<f64, Scalar<f64>>::one());
        let parameters = CastVector { n: n as u64, a, x: values.address(at), y: y.pointer(), gate: Address::NULL };
        // SAFETY: cast_vector_f32(n, a, x, y, gate) on n elements of f32, and as many of f64.
        unsafe { self.launch::<f32, _>(CastVector::ENTRY, Grid::rows(n), &parameters) }
    }

    /// `T` is the other type.
    fn cast_to<S: Real, T: Real>(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, Scalar<f64>>,
        x: &Vector<S>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("cast", "y", y.len(), x.len())?;
        let (n, count, a) = (x.len(), x.len() as u64, CoeffArg::from(a));
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        // SAFETY: cast_vector(n, a, x, y, gate) on vectors of n elements, y of the type that x is not of.
        unsafe { self.launch::<S, _>(CastVector::ENTRY, Grid::rows(n), &CastVector { n: count, a, x, y, gate }) }
    }
}

macro_rules! casts {
    ($(($S:ty, $T:ty)),*) => {$(
        impl Cast<$S, $T> for Cuda {
            fn binade(&self, gate: Gate<'_, Self>, x: &Vector<$S>, out: &mut Scalar<f64>) -> Result<()> {
                self.binade_of(gate, x, out)
            }
            fn cast(
                &self,
                gate: Gate<'_, Self>,
                a: Coeff<'_, f64, Scalar<f64>>,
                x: &Vector<$S>,
                y: &mut Vector<$T>,
            ) -> Result<()> {
                self.cast_to(gate, a, x, y)
            }
        }
    )*};
}
casts!((f64, f32), (f32, f64));
