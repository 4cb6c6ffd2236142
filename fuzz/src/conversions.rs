//! Conversions: every format stores any matrix that it accepts, returns it, transposes it, and multiplies with it.

use arbitrary::{Result, Unstructured};
use spandrel_backend::{Backend, Spmv};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{Bdia, Bsr, Csr, Error, Format, Hmec, Hyb, Real, Sell, for_each_format};

use super::input::{self, same};
use super::product;

/// Converts a matrix from the bytes to every format and back, in both element types.
///
/// # Panics
/// If a format breaks a promise.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

macro_rules! each {
    ([$csr:ident $T:ident] $(($stem:ident, $Type:ident)),*) => { $(
        if let Some(stored) = accepted(spandrel_formats::$Type::<$T>::from_csr($csr)) {
            format_keeps(stored, $csr);
        }
    )* };
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    let [c, windows, block, width, gap, blocks] = u.arbitrary::<[u8; 6]>()?.map(usize::from);
    let csr = &input::matrix::<f64>(u)?;
    for_each_format!(each, csr, f64);
    let narrow = &csr.map(|v| v as f32);
    for_each_format!(each, narrow, f32);
    // The parameters that `from_csr` chooses itself.
    let c = c % 40 + 1;
    if let Some(stored) = accepted(Sell::from_csr_with(csr, c, (windows % 4 * c).max(1))) {
        format_keeps(stored, csr);
    }
    if let Some(stored) = accepted(Bsr::from_csr_with(csr, block % 9 + 1)) {
        format_keeps(stored, csr);
    }
    if let Some(stored) = accepted(Hyb::from_csr_with(csr, width % 12)) {
        format_keeps(stored, csr);
    }
    if let Some(stored) = accepted(Bdia::from_csr_with(csr, gap % 9)) {
        format_keeps(stored, csr);
    }
    if let Some(stored) = accepted(Hmec::from_csr_with(csr, blocks % 5 + 1)) {
        format_keeps(stored, csr);
    }
    Ok(())
}

/// A matrix may be refused for its fill, but for no other reason.
fn accepted<F: Format>(stored: spandrel_formats::Result<F>) -> Option<F> {
    match stored {
        Ok(stored) => Some(stored),
        Err(Error::DoesNotFit { .. }) => None,
        Err(error) => panic!("{}: {error}", F::NAME),
    }
}

fn format_keeps<F: Format>(stored: F, csr: &Csr<F::Value>)
where
    Cpu: Spmv<F> + Backend<F::Value, Vector = Vector<F::Value>, Scalar = Scalar<F::Value>>,
{
    let kept = &if F::MULTIPLIES_FILL { without_zeros(csr) } else { csr.clone() };
    equals(&stored.to_csr().expect("a small matrix"), kept, F::NAME);
    assert_eq!((stored.nrows(), stored.ncols(), stored.nnz()), (csr.nrows(), csr.ncols(), kept.nnz()), "{}", F::NAME);
    if let Some(transposed) = accepted(stored.transpose()) {
        equals(&transposed.to_csr().expect("a small matrix"), &kept.transpose(), F::NAME);
        if let Some(twice) = accepted(transposed.transpose()) {
            equals(&twice.to_csr().expect("a small matrix"), kept, F::NAME);
        }
    }
    product::check(stored, csr);
}

fn equals<T: Real>(found: &Csr<T>, expected: &Csr<T>, name: &str) {
    assert_eq!((found.nrows(), found.ncols()), (expected.nrows(), expected.ncols()), "{name}");
    assert_eq!((found.row_ptr(), found.col_idx()), (expected.row_ptr(), expected.col_idx()), "{name}");
    assert!(same(found.values(), expected.values()), "{name}: {:?} {:?}", found.values(), expected.values());
}

fn without_zeros<T: Real>(csr: &Csr<T>) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..csr.nrows() {
        let (cols, stored) = csr.row(i);
        for (&j, &v) in cols.iter().zip(stored).filter(|(_, v)| **v != T::zero()) {
            col_idx.push(j);
            values.push(v);
        }
        row_ptr.push(values.len() as u32);
    }
    Csr::new(csr.nrows(), csr.ncols(), row_ptr, col_idx, values).expect("fewer entries of a matrix")
}
