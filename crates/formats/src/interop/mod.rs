//! Conversions to and from the matrices of other libraries, each behind a feature.
//!
//! Cost: if the library takes 32-bit indices (sprs, faer), borrowed views copy nothing and owned conversions move the
//! buffers. nalgebra-sparse stores `usize`, so indices are copied. Every incoming matrix is checked like any other.

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra")]
mod nalgebra;
#[cfg(feature = "sprs")]
mod sprs;

/// Converts `indices` to stored ones.
///
/// # Errors
/// [`crate::Error::TooLarge`] naming `what`.
#[cfg(any(feature = "faer", feature = "nalgebra", feature = "sprs"))]
fn narrow(indices: impl Iterator<Item = usize>, what: &'static str) -> crate::Result<Vec<u32>> {
    indices.map(|index| crate::index::checked(index, what)).collect()
}

/// A small matrix with an empty row, an explicit zero and more columns than rows.
#[cfg(all(test, any(feature = "faer", feature = "nalgebra", feature = "sprs")))]
fn sample() -> crate::Csr<f64> {
    crate::Csr::new(4, 5, vec![0, 2, 2, 5, 6], vec![0, 3, 1, 2, 4, 0], vec![1.5, -2.0, 3.0, 0.0, 5.0, 6.0]).unwrap()
}
