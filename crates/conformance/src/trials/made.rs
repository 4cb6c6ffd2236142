//! The matrices for trials of matrix products and transposes, and the comparison of a matrix on a device with one of
//! the host.

use spandrel_backend::{
    Coeff, Download, Error, Load, Mat, Order, Renumber, Result as DeviceResult, Spgemm, Spmv, Transpose, UpdateValues,
};
use spandrel_formats::{Csr, Real, Traffic};

use super::pairs::converted;
use crate::case::{Stream, numbers};
use crate::reference::difference;
use crate::trial::{Finding, Verdict, wrong};

/// What the trials need of a backend.
pub trait Makes<T: Real>:
    Spgemm<Csr<T>> + Transpose<Csr<T>> + Renumber<Csr<T>> + Download<Csr<T>> + UpdateValues<Csr<T>> + Spmv<Csr<T>>
{
}
impl<T: Real, D> Makes<T> for D where
    D: Spgemm<Csr<T>> + Transpose<Csr<T>> + Renumber<Csr<T>> + Download<Csr<T>> + UpdateValues<Csr<T>> + Spmv<Csr<T>>
{
}

/// A matrix in f64 that describes those of the trials.
pub(crate) type Built = spandrel_formats::Result<Csr<f64>>;

/// The matrix of a generator, with other values.
pub(crate) fn generated(spec: &str) -> Built {
    Ok(with_values(&crate::generated(spec)?, crate::case::seed(spec)))
}

/// Rows with the given numbers of entries in turn, one entry in each of as many equal strips of columns.
pub(crate) fn rows(nrows: usize, ncols: usize, lengths: &[usize], seed: u64) -> Built {
    let mut stream = Stream::new(seed);
    let length = |i: usize| lengths[i % lengths.len()].min(ncols);
    let mut row_ptr = vec![0u32];
    let mut cols = Vec::new();
    for i in 0..nrows {
        for k in 0..length(i) {
            let (begin, end) = (k * ncols / length(i), (k + 1) * ncols / length(i));
            cols.push((begin + stream.below(end - begin)) as u32);
        }
        row_ptr.push(cols.len() as u32);
    }
    let values = numbers(!seed, cols.len());
    Csr::new(nrows, ncols, row_ptr, cols, values)
}

/// The matrix with other values, of either sign and between 1/2 and 2.
pub(crate) fn with_values<T: Real>(a: &Csr<T>, seed: u64) -> Csr<T> {
    let mut a = a.clone();
    let fresh = numbers(seed, a.values().len());
    a.values_mut().copy_from_slice(&fresh);
    a
}

/// The matrix in the element type of a trial.
pub(crate) fn of_type<T: Real>(built: Built) -> Result<Csr<T>, Finding> {
    converted::<T>(&built?)
}

/// Compares a matrix on a device with that of the host, bit by bit: its arrays, its sizes, and a product with it.
pub(crate) fn alike<T: Real, D: Makes<T>>(be: &D, what: &str, found: &Mat<D, Csr<T>>, wanted: &Csr<T>) -> Verdict {
    let Some((of_found, of_loaded)) = compared(be, what, found, wanted)? else { return Ok(()) };
    match difference(&of_found, &of_loaded) {
        Some(detail) => Err(wrong(format!("{what}: a product with it against one with the loaded matrix: {detail}"))),
        None => Ok(()),
    }
}

/// The same for a matrix with finite values whose product may have another kernel than that of the loaded matrix: on a
/// device with an order of its own the two products agree to the rounding of their sums.
pub(crate) fn alike_by_any_kernel<T: Real, D: Makes<T>>(
    be: &D,
    what: &str,
    found: &Mat<D, Csr<T>>,
    wanted: &Csr<T>,
) -> Verdict {
    if Spmv::<Csr<T>>::order(be) == Order::Stored {
        return alike(be, what, found, wanted);
    }
    let Some((of_found, of_loaded)) = compared(be, what, found, wanted)? else { return Ok(()) };
    let x = numbers::<T>(31, wanted.ncols());
    for (i, (found, loaded)) in of_found.iter().zip(&of_loaded).enumerate() {
        let (cols, values) = wanted.row(i);
        let terms = cols.iter().zip(values).map(|(&j, v)| (v.as_f64() * x[j as usize].as_f64()).abs());
        // Each of two sums of k rounded products errs by at most k + 1 roundoffs of the sum of the magnitudes, to first
        // order (Higham 2002, section 3.1).
        let bound = 2.1 * (cols.len() + 1) as f64 * T::UNIT_ROUNDOFF * terms.sum::<f64>();
        let apart = (found.as_f64() - loaded.as_f64()).abs();
        if apart.is_nan() || apart > bound {
            return Err(wrong(format!("{what}: row {i} of a product is {found:e}, expected {loaded:e} +- {bound:e}")));
        }
    }
    Ok(())
}

/// Compares the arrays and sizes, and returns a product with the matrix and one with the loaded matrix; `None` for one
/// that is too wide for a product.
#[allow(clippy::type_complexity)] // the two products
fn compared<T: Real, D: Makes<T>>(
    be: &D,
    what: &str,
    found: &Mat<D, Csr<T>>,
    wanted: &Csr<T>,
) -> Result<Option<(Vec<T>, Vec<T>)>, Finding> {
    let fail = |detail: String| Err(wrong(format!("{what}: {detail}")));
    let host = found.download(be)?;
    let shape = |m: &Csr<T>| (m.row_ptr().len() - 1, spandrel_formats::Format::ncols(m), m.values().len());
    if shape(&host) != shape(wanted) {
        return fail(format!("rows, columns, entries: expected {:?}, found {:?}", shape(wanted), shape(&host)));
    }
    if let Some(i) = host.row_ptr().iter().zip(wanted.row_ptr()).position(|(f, w)| f != w) {
        return fail(format!("row {} ends at {}, expected {}", i - 1, host.row_ptr()[i], wanted.row_ptr()[i]));
    }
    if let Some(e) = host.col_idx().iter().zip(wanted.col_idx()).position(|(f, w)| f != w) {
        return fail(format!("entry {e} is in column {}, expected {}", host.col_idx()[e], wanted.col_idx()[e]));
    }
    if let Some(detail) = difference(host.values(), wanted.values()) {
        return fail(detail);
    }
    let said = (found.nrows(), found.ncols(), found.nnz(), found.storage(), found.spmv_bytes());
    let (nrows, ncols, nnz) = shape(wanted);
    let meant = (nrows, ncols, nnz, wanted.storage(), wanted.spmv_bytes());
    if said != meant {
        return fail(format!("rows, columns, entries, bytes, bytes of a product: expected {meant:?}, found {said:?}"));
    }
    // A vector of 2^31 elements would be needed only for this.
    if ncols > 1 << 24 {
        return Ok(None);
    }
    let loaded = Mat::<D, Csr<T>>::load(be, wanted.clone())?;
    let x = be.upload(&numbers(31, ncols))?;
    let product = |m: &Mat<D, Csr<T>>| -> DeviceResult<Vec<T>> {
        let mut y = be.upload(&vec![T::nan(); nrows])?;
        m.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
        be.download(&y)
    };
    Ok(Some((product(found)?, product(&loaded)?)))
}

/// Overwrites the values of a matrix by NaN, so that a value that is not written shows.
pub(crate) fn poison<T: Real, D: UpdateValues<Csr<T>>>(be: &D, m: &mut Mat<D, Csr<T>>) -> DeviceResult<()> {
    m.update_values(be, &vec![T::nan(); m.nnz()])
}

/// Expects a refusal for the size that it names.
pub(crate) fn refused<R>(outcome: DeviceResult<R>, operand: &str) -> Verdict {
    match outcome {
        Err(Error::Shape { what, .. }) if what == operand => Ok(()),
        Err(other) => Err(wrong(format!("expected a refusal of {operand}, found \"{other}\""))),
        Ok(_) => Err(wrong(format!("expected a refusal of {operand}, found none"))),
    }
}

/// The beginning of a finding: the device on which it was made.
pub(crate) fn on_each<D: Load<Csr<T>>, T: Real>(
    devices: &[(String, D)],
    mut check: impl FnMut(&D) -> Verdict,
) -> Verdict {
    devices.iter().try_for_each(|(label, be)| {
        check(be).map_err(|finding| match finding {
            Finding::Wrong(text) => Finding::Wrong(format!("{label}: {text}")),
            other => other,
        })
    })
}
