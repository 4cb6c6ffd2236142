//! Values of diagonals in device memory: in their own type, or f64 values in f32, which represents each of them exactly
//! (docs/adr/0042).
//!
//! Kernel: `narrow_in_f32_dia` of kernels/dia.cu.

use rayon::prelude::*;
use spandrel_backend::{Error, Result};
use spandrel_formats::Real;

use crate::Cuda;
use crate::dia::AT_ONCE;
use crate::kernel::kernels;
use crate::launch::{BLOCK, Grid};
use crate::memory::{Address, Buffer};

kernels! {
    struct NarrowInF32Dia { count: u64, from: Address, to: Address, inexact: Address }
    in DIA { ENTRY: "narrow_in_f32_dia" }
}

/// Values that a thread block of `narrow_in_f32_dia` takes at a time.
const NARROWED: usize = 16 * 256;

/// Stored diagonals.
#[derive(Debug)]
pub(crate) enum Values<T> {
    Whole(Buffer<T>),
    /// The f64 values in f32, which represents each of them exactly.
    Narrow(Buffer<f32>),
}

impl<T: Real> Values<T> {
    pub(crate) fn pointer(&self) -> Address {
        match self {
            Self::Whole(values) => values.pointer(),
            Self::Narrow(values) => values.pointer(),
        }
    }

    pub(crate) fn is_narrow(&self) -> bool {
        matches!(self, Self::Narrow(_))
    }

    /// Room for other values in the same form, as many. Does not block.
    pub(crate) fn room(&self, cuda: &Cuda) -> Result<Self> {
        const WHAT: &str = "a matrix's values";
        Ok(match self {
            Self::Whole(values) => Self::Whole(Buffer::uninit(cuda.stream(), values.len(), WHAT)?),
            Self::Narrow(values) => Self::Narrow(Buffer::uninit(cuda.stream(), values.len(), WHAT)?),
        })
    }

    /// Overwrites the values with others in the same form, as many. Returns false, and changes nothing, if the form is
    /// another. Does not block.
    pub(crate) fn copy_from(&self, from: &Self) -> Result<bool> {
        match (self, from) {
            (Self::Whole(to), Self::Whole(from)) => to.copy_from(from)?,
            (Self::Narrow(to), Self::Narrow(from)) => to.copy_from(from)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// An f64 value in f32, if it is the same number.
fn narrowed(value: f64) -> Option<f32> {
    let near = value as f32;
    (f64::from(near) == value).then_some(near)
}

impl Cuda {
    /// Returns true if a matrix with this many rows may store values in f32. It may only if no persistent kernel takes
    /// it, because those cannot read such values.
    pub(crate) fn narrows<T: Real>(&self, nrows: usize) -> bool {
        T::BYTES == size_of::<f64>() && nrows > BLOCK * self.multiprocessors()
    }

    /// Returns the values in f32 if f32 represents all of them and the device has room for both copies; otherwise
    /// unchanged. Blocks.
    pub(crate) fn narrow_values<T: Real>(&self, nrows: usize, values: Buffer<T>) -> Result<Values<T>> {
        if !self.narrows::<T>(nrows) {
            return Ok(Values::Whole(values));
        }
        let to = match Buffer::<f32>::uninit(self.stream(), values.len(), "a matrix's values") {
            Err(Error::OutOfMemory { .. }) => return Ok(Values::Whole(values)),
            to => to?,
        };
        Ok(if self.narrow_into(&values, &to)? { Values::Narrow(to) } else { Values::Whole(values) })
    }

    /// Writes f64 values in f32. Returns false if f32 does not represent all of them; what is written is then
    /// undefined. Blocks.
    pub(crate) fn narrow_into<T: Real>(&self, values: &Buffer<T>, to: &Buffer<f32>) -> Result<bool> {
        assert_eq!(values.len(), to.len(), "as many values in f32");
        let inexact = Buffer::<u32>::zeros(self.stream(), 1, "a mark")?;
        let (count, from, into, mark) = (values.len() as u64, values.pointer(), to.pointer(), inexact.pointer());
        let grid = Grid::of(values.len().div_ceil(NARROWED).min(AT_ONCE * 2 * self.multiprocessors()), 256);
        // SAFETY: narrow_in_f32_dia_f64(count, from, to, inexact) with `count` values of f64, and as many of f32.
        unsafe {
            self.launch::<f64, _>(
                NarrowInF32Dia::ENTRY,
                grid,
                &NarrowInF32Dia { count, from, to: into, inexact: mark },
            )?
        };
        Ok(inexact.to_host("a mark")? == [0])
    }

    /// As [`Cuda::narrow_values`], for values on the host.
    pub(crate) fn load_values<T: Real>(&self, nrows: usize, values: &[T]) -> Result<Values<T>> {
        const WHAT: &str = "a matrix's values";
        let narrow: Option<Vec<f32>> = match bytemuck::try_cast_slice::<T, f64>(values) {
            Ok(wide) if self.narrows::<T>(nrows) => wide.par_iter().map(|&value| narrowed(value)).collect(),
            _ => None,
        };
        Ok(match narrow {
            Some(narrow) => Values::Narrow(Buffer::from_host(self.stream(), &narrow, WHAT)?),
            None => Values::Whole(Buffer::from_host(self.stream(), values, WHAT)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_holds_what_comes_back_the_same() {
        let least = f64::from(f32::from_bits(1));
        for value in [0.0, -0.0, 1.0, -26.0, 0.1f32.into(), f32::MAX.into(), least, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(narrowed(value).map(f64::from).map(f64::to_bits), Some(value.to_bits()), "{value:e}");
        }
        for value in [0.1, 1.0 + f64::EPSILON, 1e300, least / 2.0, 5e-324, f64::NAN] {
            assert_eq!(narrowed(value), None, "{value:e}");
        }
    }
}
