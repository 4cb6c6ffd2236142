//! Trials of a GPU: a large matrix by diagonals whose values f32 represents exactly is stored in f32, loaded or
//! converted, and its products have the CPU's bits. A single value that f32 cannot represent keeps all of them in f64.

use std::sync::Arc;

use spandrel_backend::{Coeff, Mat, Spmm};
use spandrel_backend_cpu::Cpu;
use spandrel_backend_cuda::Cuda;
use spandrel_formats::{Csr, Dia, Format, Real};

use super::convert::products;
use crate::case::numbers;
use crate::reference::difference;
use crate::trial::{Finding, Verdict, wrong};

/// Values that f32 represents exactly, with zeros of both signs and subnormals.
const HELD: [f64; 8] =
    [-1.0, 26.0, 0.1f32 as f64, -0.0, 1.5e-42f32 as f64, -3.4e38f32 as f64, 0.0, f32::MIN_POSITIVE as f64];
/// Values that include some that f32 cannot represent.
const NOT_HELD: [f64; 4] = [0.1, 1e300, 1e-46, f64::NAN];

/// Entries on whole diagonals. A value follows from (i, j) and its place in the order of rows.
fn diagonals<T: Real>(
    (nrows, ncols): (usize, usize),
    offsets: &[i64],
    value: impl Fn(usize, usize, usize) -> f64,
) -> std::result::Result<Csr<T>, Finding> {
    let (mut row_ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..nrows {
        for j in offsets.iter().map(|offset| i as i64 + offset).filter(|j| (0..ncols as i64).contains(j)) {
            values.push(T::from_f64(value(i, j as usize, values.len())));
            cols.push(j as u32);
        }
        row_ptr.push(cols.len() as u32);
    }
    Ok(Csr::new(nrows, ncols, row_ptr, cols, values)?)
}

/// A product with two columns.
fn columns<T: Real, D: Spmm<Dia<T>>>(be: &D, a: &Mat<D, Dia<T>>, x: &[T]) -> std::result::Result<Vec<T>, Finding> {
    let twice = [x, &x.iter().rev().copied().collect::<Vec<_>>()].concat();
    let (x, mut y) = (be.upload(&twice)?, be.upload(&vec![T::nan(); 2 * a.nrows()])?);
    be.spmm(None, Coeff::one(), a.resident(), 2, &x, Coeff::zero(), &mut y)?;
    Ok(be.download(&y)?)
}

/// Loaded and converted matrices are stored as expected, and their products have the CPU's bits.
fn held<T: Real>(be: &Cuda, what: &str, csr: Csr<T>, narrow: bool) -> Verdict {
    let cpu = Cpu::new();
    let (x, w) = (numbers(31, csr.ncols()), numbers(32, csr.nrows()));
    let host = Arc::new(Dia::from_csr(&csr)?);
    let there = Mat::<Cpu, Dia<T>>::load(&cpu, Arc::clone(&host))?;
    let wanted = [products(&cpu, &there, &x, &w)?, columns(&cpu, &there, &x)?];
    let loaded = Mat::<Cuda, Dia<T>>::load(be, host)?;
    let converted = Mat::<Cuda, Csr<T>>::load(be, csr)?.convert::<Dia<T>>(be)?;
    for (way, a) in [("loaded", loaded), ("converted", converted)] {
        if a.is_narrow(be) != narrow {
            let kept = if narrow { "not kept" } else { "kept" };
            return Err(wrong(format!("{what}, {way}: values {kept} in f32")));
        }
        for (product, found, wanted) in
            [("spmv", products(be, &a, &x, &w)?, &wanted[0]), ("spmm", columns(be, &a, &x)?, &wanted[1])]
        {
            if let Some(detail) = difference(&found, wanted) {
                return Err(wrong(format!("{what}, {way}: {product}: {detail}")));
            }
        }
    }
    Ok(())
}

/// See the module's head.
pub(super) fn diagonals_in_f32(be: &Cuda) -> Verdict {
    let small = 1024 * be.info().multiprocessors as usize;
    let n = small + 777;
    let exact = |i: usize, j: usize, _: usize| HELD[(i.min(j) * 31 + i.max(j)) % HELD.len()];
    let shapes: [(&str, (usize, usize), &[i64]); 6] = [
        ("symmetric, few", (5 * n, 5 * n), &[-8100, -90, -1, 0, 1, 90, 8100]),
        ("symmetric, a diagonal", (n, n), &[0]),
        ("symmetric, many", (n, n), &[-1000, -999, -50, -49, -1, 0, 1, 49, 50, 999, 1000]),
        ("both halves", (n, n), &[-70, -2, 0, 1, 3, 4, 700]),
        ("wide", (n, n + 5000), &[-3, 0, 17, 5100]),
        ("tall", (n + 5000, n), &[-5100, -64, 2]),
    ];
    for (what, shape, offsets) in shapes {
        held::<f64>(be, what, diagonals(shape, offsets, exact)?, true)?;
        held::<f32>(be, what, diagonals(shape, offsets, exact)?, false)?;
        let entries = diagonals::<f64>(shape, offsets, exact)?.nnz();
        for (at, value) in
            [0, entries / 2, entries - 1].into_iter().zip(NOT_HELD.into_iter().cycle().skip(offsets.len()))
        {
            let but_one = |i, j, place| if place == at { value } else { exact(i, j, place) };
            held::<f64>(be, &format!("{what}, {value:e} at {at}"), diagonals(shape, offsets, but_one)?, false)?;
        }
        if shape.0 == shape.1 {
            // Both halves are equal, so only one is stored, in f64.
            let value = |i: usize, j: usize, place| if i == n / 2 && j == i { 0.1 } else { exact(i, j, place) };
            held::<f64>(
                be,
                &format!("{what}, 0.1 on the diagonal"),
                diagonals(shape, offsets, value)?,
                !offsets.contains(&0),
            )?;
        }
    }
    let of_persistent_kernels = diagonals((small, small), &[-1, 0, 1], exact)?;
    held::<f64>(be, "as small as persistent kernels take", of_persistent_kernels, false)
}
