//! Constructors: they refuse arrays that were changed, or return a matrix with which every product stays inside its
//! arrays.

use arbitrary::{Result, Unstructured};
use spandrel_backend::{Backend, Spmv};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{
    Band, Bdia, Bsr, Bsrx, Coo, Csc, Csr, Dense, Dia, Ell, EllBlock, Error, Format, Hec, Hmec, Hyb, PADDING, Sell,
};

use super::{input, product};

/// Stores a matrix from the bytes in one format, changes its arrays, and gives them back to the constructor.
///
/// # Panics
/// If an accepted matrix breaks a promise.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

/// Changes at most three elements, or the length.
fn edit<V: Clone>(
    u: &mut Unstructured<'_>,
    values: &mut Vec<V>,
    mut make: impl FnMut(&mut Unstructured<'_>) -> Result<V>,
) -> Result<()> {
    for _ in 0..u.arbitrary::<u8>()? % 4 {
        let at = u.int_in_range(0..=values.len())?;
        match (u.arbitrary::<u8>()? % 8, at < values.len()) {
            (0, _) => values.insert(at, make(u)?),
            (1, true) => _ = values.remove(at),
            (2, true) => values.swap(0, at),
            (_, true) => values[at] = make(u)?,
            _ => {}
        }
    }
    Ok(())
}

fn index(u: &mut Unstructured<'_>) -> Result<u32> {
    let byte = u.arbitrary::<u8>()?;
    Ok(match byte {
        255 => PADDING,
        254 => u.arbitrary()?,
        byte => u32::from(byte % 64),
    })
}

fn size(u: &mut Unstructured<'_>, size: usize) -> Result<usize> {
    let byte = u.arbitrary::<u8>()?;
    Ok(if byte < 224 { size } else { (size + usize::from(byte - 224)).saturating_sub(8) })
}

/// A size for which nothing is allocated.
fn free_size(u: &mut Unstructured<'_>, given: usize) -> Result<usize> {
    let byte = u.arbitrary::<u8>()?;
    Ok(if byte == 255 { u.arbitrary::<u32>()? as usize } else { size(u, given)? })
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    // The matrix takes all bytes that it is given.
    let cut = u.len() / 2;
    let mut own = Unstructured::new(u.bytes(cut)?);
    let csr = &input::matrix::<f64>(u)?;
    edited(&mut own, csr)
}

fn edited(u: &mut Unstructured<'_>, csr: &Csr<f64>) -> Result<()> {
    let value = input::value::<f64>;
    match u.arbitrary::<u8>()? % 13 {
        0 => {
            let (nrows, ncols, mut row_ptr, mut cols, mut values) = csr.clone().into_parts();
            edit(u, &mut row_ptr, index)?;
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            judge(Csr::new(size(u, nrows)?, size(u, ncols)?, row_ptr, cols, values));
        }
        1 => {
            let (nrows, ncols, mut rows, mut cols, mut values) = Coo::from(csr.clone()).into_parts();
            edit(u, &mut rows, index)?;
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            judge(Coo::new(size(u, nrows)?, size(u, ncols)?, rows, cols, values));
        }
        2 => {
            let Ok(stored) = Csc::from_csr(csr) else { return Ok(()) };
            let (nrows, ncols, mut col_ptr, mut rows, mut values) = stored.into_parts();
            edit(u, &mut col_ptr, index)?;
            edit(u, &mut rows, index)?;
            edit(u, &mut values, value)?;
            judge(Csc::new(size(u, nrows)?, size(u, ncols)?, col_ptr, rows, values));
        }
        3 => {
            let Ok(stored) = Ell::from_csr(csr) else { return Ok(()) };
            let (nrows, ncols, width, mut cols, mut values) = stored.into_parts();
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            judge(Ell::new(size(u, nrows)?, size(u, ncols)?, free_size(u, width)?, cols, values));
        }
        4 => {
            let c = usize::from(u.arbitrary::<u8>()? % 9) + 1;
            let Ok(stored) = Sell::from_csr_with(csr, c, 2 * c) else { return Ok(()) };
            let (nrows, ncols, c, sigma, mut ptr, mut perm, mut cols, mut values) = stored.into_parts();
            edit(u, &mut ptr, index)?;
            edit(u, &mut perm, index)?;
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            let (c, sigma) = (free_size(u, c)?, free_size(u, sigma)?);
            judge(Sell::new(size(u, nrows)?, size(u, ncols)?, c, sigma, ptr, perm, cols, values));
        }
        5 => {
            let Ok(stored) = Dia::from_csr(csr) else { return Ok(()) };
            let (nrows, ncols, mut offsets, mut values) = stored.into_parts();
            edit(u, &mut offsets, |u| Ok(index(u)? as i32 - 32))?;
            edit(u, &mut values, value)?;
            judge(Dia::new(size(u, nrows)?, size(u, ncols)?, offsets, values));
        }
        6 => {
            let Ok(stored) = Bdia::from_csr(csr) else { return Ok(()) };
            let (nrows, ncols, mut bands, mut values) = stored.into_parts();
            let band = |u: &mut Unstructured<'_>| Ok(Band { start: index(u)? as i32 - 32, width: index(u)? });
            edit(u, &mut bands, band)?;
            edit(u, &mut values, value)?;
            judge(Bdia::new(size(u, nrows)?, size(u, ncols)?, bands, values));
        }
        7 => {
            let Ok(stored) = Hyb::from_csr(csr) else { return Ok(()) };
            let (ell, coo) = stored.into_parts();
            let (nrows, ncols, width, mut cols, mut values) = ell.into_parts();
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            let ell = Ell::new(size(u, nrows)?, size(u, ncols)?, free_size(u, width)?, cols, values);
            let (nrows, ncols, mut rows, mut cols, mut values) = coo.into_parts();
            edit(u, &mut rows, index)?;
            edit(u, &mut cols, index)?;
            edit(u, &mut values, value)?;
            let coo = Coo::new(size(u, nrows)?, size(u, ncols)?, rows, cols, values);
            if let (Ok(ell), Ok(coo)) = (ell, coo) {
                judge(Hyb::new(ell, coo));
            }
        }
        8 | 9 => {
            let dim = usize::from(u.arbitrary::<u8>()? % 6) + 1;
            let Ok(stored) = Bsr::from_csr_with(csr, dim) else { return Ok(()) };
            if u.arbitrary::<bool>()? {
                let (nrows, ncols, dim, mut row_ptr, mut cols, mut values) = stored.into_parts();
                edit(u, &mut row_ptr, index)?;
                edit(u, &mut cols, index)?;
                edit(u, &mut values, value)?;
                judge(Bsr::new(size(u, nrows)?, size(u, ncols)?, free_size(u, dim)?, row_ptr, cols, values));
            } else {
                let parts = Bsrx::from(stored).into_parts();
                let (nrows, ncols, dim, mut start, mut end, mut cols, mut values, mut mask) = parts;
                edit(u, &mut start, index)?;
                edit(u, &mut end, index)?;
                edit(u, &mut cols, index)?;
                edit(u, &mut values, value)?;
                edit(u, &mut mask, index)?;
                let (nrows, ncols, dim) = (size(u, nrows)?, size(u, ncols)?, free_size(u, dim)?);
                // Rows outside the mask keep the old y, so this is not the product of the whole matrix.
                let all = mask.len() == start.len();
                match Bsrx::new(nrows, ncols, dim, start, end, cols, values, mask) {
                    Ok(stored) if !all => _ = stored.to_csr().expect("a small matrix"),
                    other => judge(other),
                }
            }
        }
        10 | 11 => {
            let Ok(stored) = Hmec::from_csr_with(csr, usize::from(u.arbitrary::<u8>()? % 3) + 1) else { return Ok(()) };
            let (nrows, ncols, mut perm, mut blocks, rest, p) = stored.into_parts();
            edit(u, &mut perm, index)?;
            if let Some(block) = blocks.pop() {
                let (rows, width, mut cols, mut values) = block.into_parts();
                edit(u, &mut cols, index)?;
                edit(u, &mut values, value)?;
                blocks.extend(EllBlock::new(size(u, rows)?, free_size(u, width)?, size(u, ncols)?, cols, values));
            }
            let (nrows, ncols) = (size(u, nrows)?, size(u, ncols)?);
            if u.arbitrary::<bool>()? {
                judge(Hec::new(nrows, ncols, perm, blocks.pop(), rest));
            } else {
                judge(Hmec::new(nrows, ncols, perm, blocks, rest, free_size(u, p)?));
            }
        }
        _ => {
            let Ok(stored) = Dense::from_csr(csr) else { return Ok(()) };
            let (nrows, ncols, mut values) = stored.into_parts();
            edit(u, &mut values, value)?;
            judge(Dense::new(size(u, nrows)?, size(u, ncols)?, values));
        }
    }
    Ok(())
}

/// The arrays are refused, or are a valid matrix.
fn judge<F: Format<Value = f64>>(made: spandrel_formats::Result<F>)
where
    Cpu: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    let stored = match made {
        Ok(stored) => stored,
        Err(
            Error::TooLarge { .. }
            | Error::Length { .. }
            | Error::Pointer { .. }
            | Error::IndexOutOfRange { .. }
            | Error::Unsorted { .. }
            | Error::Invalid { .. }
            | Error::DoesNotFit { .. }
            | Error::Shape { .. },
        ) => return,
        Err(error) => panic!("{}: {error}", F::NAME),
    };
    let csr = stored.to_csr().expect("a small matrix");
    let (nrows, ncols, row_ptr, cols, values) = csr.clone().into_parts();
    Csr::new(nrows, ncols, row_ptr, cols, values).expect("what was accepted keeps the invariants");
    product::check(stored, &csr);
}
