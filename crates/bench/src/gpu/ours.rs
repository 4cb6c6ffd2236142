//! What the record says about our resident matrices: the kernel that was chosen, and the bytes that it moves where these are not
//! those of the host's format.

use std::any::Any;

use spandrel_backend_cuda::{CudaBdia, CudaCsr, CudaDia};
use spandrel_formats::{Csr, Dia, Format, Real};

/// The kernel that the backend chose for a resident matrix, where it has several.
pub(crate) fn kernel<T: Real>(resident: &dyn Any) -> Option<String> {
    if let Some(csr) = resident.downcast_ref::<CudaCsr<T>>() {
        return Some(format!("{:?}", csr.kernel()).to_lowercase());
    }
    if let Some(bdia) = resident.downcast_ref::<CudaBdia<T>>() {
        return Some(format!("{:?}", bdia.kernel()).to_lowercase());
    }
    let dia = resident.downcast_ref::<CudaDia<T>>()?;
    dia.is_symmetric().then(|| "symmetric".to_owned())
}

/// Bytes of y = A x from a resident matrix, which the host's format would move as `format.spmv()`.
pub(crate) fn bytes<T: Real, F: Format<Value = T>>(format: &F, resident: &dyn Any) -> u64 {
    let symmetric = resident.downcast_ref::<CudaDia<T>>().is_some_and(CudaDia::is_symmetric);
    match (format as &dyn Any).downcast_ref::<Dia<T>>() {
        Some(dia) if symmetric => symmetric_bytes(dia),
        _ => format.spmv(),
    }
}

/// [`spandrel_formats::Traffic::spmv`] of the diagonals at or above the main one alone.
fn symmetric_bytes<T: Real>(dia: &Dia<T>) -> u64 {
    let upper = dia.offsets().iter().filter(|&&offset| offset >= 0);
    let n = dia.nrows();
    let words: usize = upper.clone().map(|&offset| n - offset as usize).sum::<usize>() + 2 * n;
    (words * T::BYTES + 4 * upper.count()) as u64
}

/// A symmetric matrix by diagonals with one entry moved by a rounding error, so that the backend keeps both halves: for the
/// measurement of the kernel that other matrices get. `None` for a diagonal matrix, and one that does not fit.
pub(crate) fn both_halves<T: Real>(csr: &Csr<T>) -> Option<Dia<T>> {
    let (nrows, ncols, offsets, mut values) = Dia::from_csr(csr).ok()?.into_parts();
    let above = nrows * offsets.partition_point(|&offset| offset <= 0);
    let entry = values[above..].iter_mut().find(|v| !v.is_zero())?;
    *entry *= T::from_f64(1.0 + 2.0 * T::UNIT_ROUNDOFF);
    Dia::new(nrows, ncols, offsets, values).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::{Traffic, generate};

    #[test]
    fn the_upper_half_is_half_the_traffic_of_the_values() {
        let csr: Csr<f64> = generate::csr("d3n7:8").unwrap();
        let dia = Dia::from_csr(&csr).unwrap();
        let vectors = 2 * 8 * 512;
        let (full, half) = (dia.spmv() - vectors - 4 * 7, symmetric_bytes(&dia) - vectors - 4 * 4);
        assert_eq!(full + 8 * 512, 2 * half);
    }

    #[test]
    fn one_entry_differs_by_a_rounding_error() {
        let csr: Csr<f64> = generate::csr("d3n7:8").unwrap();
        let (dia, moved) = (Dia::from_csr(&csr).unwrap(), both_halves(&csr).unwrap());
        let differ: Vec<_> = dia.values().iter().zip(moved.values()).filter(|(a, b)| a != b).collect();
        assert_eq!(differ.len(), 1);
        assert!((differ[0].0 - differ[0].1).abs() <= 4.0 * f64::UNIT_ROUNDOFF);
        assert!(both_halves(&Csr::<f64>::identity(4).unwrap()).is_none());
    }
}
