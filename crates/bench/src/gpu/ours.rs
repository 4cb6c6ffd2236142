//! The record's kernel for our resident matrices, and matrices for which another kernel is forced.

use std::any::Any;

use spandrel_backend_cuda::{CudaBdia, CudaCsr, CudaDia};
use spandrel_formats::{Csr, Dia, Format, Real};

pub(crate) use crate::spmv::NARROW;

/// The kernel that the backend chose for a resident matrix, if it has several.
pub(crate) fn kernel<T: Real>(resident: &dyn Any) -> Option<String> {
    if let Some(csr) = resident.downcast_ref::<CudaCsr<T>>() {
        return Some(format!("{:?}", csr.kernel()).to_lowercase());
    }
    if let Some(bdia) = resident.downcast_ref::<CudaBdia<T>>() {
        return Some(format!("{:?}", bdia.kernel()).to_lowercase());
    }
    let dia = resident.downcast_ref::<CudaDia<T>>()?;
    let said = [dia.is_symmetric().then_some(SYMMETRIC), dia.is_narrow().then_some(NARROW)];
    let said: Vec<_> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// The answer of [`kernel`] for a matrix by diagonals of which half is stored.
pub(crate) const SYMMETRIC: &str = "symmetric";

/// The matrix by diagonals with one entry of the main diagonal moved by a rounding error. f32 does not represent this
/// entry, so the backend stores the values in f64. `None` if it has no such entry or does not fit.
pub(crate) fn in_f64<T: Real>(csr: &Csr<T>) -> Option<Dia<T>> {
    moved(csr, |offset| offset == 0)
}

/// A symmetric matrix by diagonals with one entry moved by a rounding error, so that the backend stores both halves.
/// This measures the kernel of other matrices. `None` for a diagonal matrix and for one that does not fit.
pub(crate) fn both_halves<T: Real>(csr: &Csr<T>) -> Option<Dia<T>> {
    moved(csr, |offset| offset > 0)
}

/// Moves the first entry on the given diagonals.
fn moved<T: Real>(csr: &Csr<T>, meant: impl Fn(i32) -> bool) -> Option<Dia<T>> {
    let (nrows, ncols, offsets, mut values) = Dia::from_csr(csr).ok()?.into_parts();
    let mut diagonals = values.chunks_exact_mut(nrows).zip(&offsets).filter(|&(_, &offset)| meant(offset));
    let entry = diagonals.find_map(|(diagonal, _)| diagonal.iter_mut().find(|v| !v.is_zero()))?;
    *entry *= T::from_f64(1.0 + 2.0 * T::UNIT_ROUNDOFF);
    Dia::new(nrows, ncols, offsets, values).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn one_entry_differs_by_a_rounding_error() {
        let csr: Csr<f64> = generate::csr("d3n7:8").unwrap();
        let dia = Dia::from_csr(&csr).unwrap();
        for (moved, symmetric) in [(both_halves(&csr).unwrap(), false), (in_f64(&csr).unwrap(), true)] {
            let differ: Vec<_> = dia.values().iter().zip(moved.values()).filter(|(a, b)| a != b).collect();
            assert_eq!(differ.len(), 1);
            assert!((differ[0].0 / differ[0].1 - 1.0).abs() <= 4.0 * f64::UNIT_ROUNDOFF);
            assert!(f64::from(*differ[0].1 as f32) != *differ[0].1, "f32 does not hold it");
            assert_eq!(moved.to_csr().unwrap().is_symmetric(), symmetric);
        }
        assert!(both_halves(&Csr::<f64>::identity(4).unwrap()).is_none());
    }
}
