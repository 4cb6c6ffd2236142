//! Trials of conversions on the device: the result for a resident CSR matrix equals the loaded one, or is refused with
//! the same words.

use std::rc::Rc;

use spandrel_backend::{Coeff, Convert, Error, Load, Mat, Operator, Spmv};
use spandrel_backend_cuda::{Cuda, CudaDia};
use spandrel_formats::{Bdia, Coo, Csr, Dia, Ell, Format, Hyb, Real, Sell, generate};

use super::formats::Shared;
use crate::case::{Case, numbers};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Whether two residents of one matrix are stored alike, as far as products do not show it.
type Alike<R> = fn(&R, &R) -> bool;

/// The conversions of a GPU: every case of the suite, and matrices that its kernels must tell apart.
pub(crate) fn trials(fleet: &Rc<Fleet<Cuda>>, cases: &[Rc<Case>], large: bool, out: &mut Vec<Trial>) {
    of_type::<f32>(fleet, cases, large, out);
    of_type::<f64>(fleet, cases, large, out);
}

fn of_type<T: Real>(fleet: &Rc<Fleet<Cuda>>, cases: &[Rc<Case>], large: bool, out: &mut Vec<Trial>) {
    for case in cases.iter().filter(|case| large || !case.large) {
        let shared = Shared::<T>::new(case.clone());
        of_case::<Coo<T>, Cuda>(fleet, &shared, |_, _| true, out);
        of_case::<Ell<T>, Cuda>(fleet, &shared, |_, _| true, out);
        of_case::<Hyb<T>, Cuda>(fleet, &shared, |_, _| true, out);
        of_case::<Sell<T>, Cuda>(fleet, &shared, |_, _| true, out);
        of_case::<Dia<T>, Cuda>(fleet, &shared, halved_alike, out);
        of_case::<Bdia<T>, Cuda>(fleet, &shared, |_, _| true, out);
    }
    for (name, build) in BUILT {
        let build = move || build().and_then(|triplets| csr::<T>(&triplets));
        of_built::<Coo<T>, Cuda>(fleet, name, build, |_, _| true, out);
        of_built::<Ell<T>, Cuda>(fleet, name, build, |_, _| true, out);
        of_built::<Hyb<T>, Cuda>(fleet, name, build, |_, _| true, out);
        of_built::<Sell<T>, Cuda>(fleet, name, build, |_, _| true, out);
        of_built::<Dia<T>, Cuda>(fleet, name, build, halved_alike, out);
        of_built::<Bdia<T>, Cuda>(fleet, name, build, |_, _| true, out);
    }
}

fn halved_alike<T>(made: &CudaDia<T>, loaded: &CudaDia<T>) -> bool {
    made.is_symmetric() == loaded.is_symmetric()
}

fn of_case<F, D>(
    fleet: &Rc<Fleet<D>>,
    shared: &Rc<Shared<F::Value>>,
    alike: Alike<<D as Load<F>>::Resident>,
    out: &mut Vec<Trial>,
) where
    F: Format,
    D: Spmv<F> + Convert<Csr<F::Value>, F> + 'static,
{
    if !shared.case().wants(F::NAME) {
        return;
    }
    let name = format!("convert/{}/{}/{}/{}", F::NAME, F::Value::NAME, fleet.name, shared.case().name);
    let (fleet, shared) = (fleet.clone(), shared.clone());
    out.push(Trial::new(name, move || {
        let data = shared.data()?;
        converted::<F, D>(fleet.first(), data.csr()?, &data.x, &data.y, alike)
    }));
}

fn of_built<F, D>(
    fleet: &Rc<Fleet<D>>,
    case: &str,
    build: impl Fn() -> spandrel_formats::Result<Csr<F::Value>> + 'static,
    alike: Alike<<D as Load<F>>::Resident>,
    out: &mut Vec<Trial>,
) where
    F: Format,
    D: Spmv<F> + Convert<Csr<F::Value>, F> + 'static,
{
    let name = format!("convert/{}/{}/{}/{case}", F::NAME, F::Value::NAME, fleet.name);
    let fleet = fleet.clone();
    out.push(Trial::new(name, move || {
        let csr = build()?;
        let (x, w) = (numbers(21, csr.ncols()), numbers(22, csr.nrows()));
        converted::<F, D>(fleet.first(), csr, &x, &w, alike)
    }));
}

/// Compares the conversion with the host's, twice, so that what the first leaves behind cannot disturb the second.
fn converted<F, D>(
    be: &D,
    csr: Csr<F::Value>,
    x: &[F::Value],
    w: &[F::Value],
    alike: Alike<<D as Load<F>>::Resident>,
) -> Verdict
where
    F: Format,
    D: Spmv<F> + Convert<Csr<F::Value>, F>,
{
    let host = F::from_csr(&csr);
    let from = Mat::<D, Csr<F::Value>>::load(be, csr)?;
    for _ in 0..2 {
        let made = from.convert::<F>(be);
        let (host, made) = match (&host, made) {
            (Ok(host), Ok(made)) => (host, made),
            (Err(host), Err(Error::Format(device))) if host.to_string() == device.to_string() => return Ok(()),
            (Err(host), Err(device)) => {
                return Err(wrong(format!("the host refuses with \"{host}\", the device with \"{device}\"")));
            }
            (Ok(_), Err(device)) => return Err(wrong(format!("the device alone refuses: {device}"))),
            (Err(host), Ok(_)) => return Err(wrong(format!("the host alone refuses: {host}"))),
        };
        let loaded = Mat::<D, F>::load(be, host.clone())?;
        let said = |mat: &Mat<D, F>| (mat.nrows(), mat.ncols(), mat.nnz(), mat.storage(), mat.spmv_bytes());
        if said(&made) != said(&loaded) {
            let (made, loaded) = (said(&made), said(&loaded));
            return Err(wrong(format!(
                "rows, columns, entries, bytes, bytes of a product: expected {loaded:?}, found {made:?}"
            )));
        }
        if !alike(made.resident(), loaded.resident()) {
            return Err(wrong("one of the converted and the loaded matrix is held as symmetric, the other is not"));
        }
        let wanted = products(be, &loaded, x, w)?;
        if let Some(detail) = difference(&products(be, &made, x, w)?, &wanted) {
            return Err(wrong(format!("products with the converted matrix against the loaded one: {detail}")));
        }
    }
    Ok(())
}

/// A x twice, the second time fused with its sums, and the sums.
pub(super) fn products<F: Format, D: Spmv<F>>(
    be: &D,
    mat: &Mat<D, F>,
    x: &[F::Value],
    w: &[F::Value],
) -> Result<Vec<F::Value>, Finding> {
    let nan = <F::Value as num_traits::Float>::nan();
    let (x, w, mut y) = (be.upload(x)?, be.upload(w)?, be.upload(&vec![nan; mat.nrows()])?);
    mat.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
    let mut all = be.download(&y)?;
    be.write(&vec![nan; mat.nrows()], &mut y)?;
    let (mut wy, mut yy) = (be.scalar(nan)?, be.scalar(nan)?);
    mat.apply_dot(be, None, &x, &mut y, &w, &mut wy, Some(&mut yy))?;
    all.extend(be.download(&y)?);
    all.extend([be.download_scalar(&wy)?, be.download_scalar(&yy)?]);
    Ok(all)
}

/// Rows, columns, and entries sorted by row and column.
struct Built {
    shape: (usize, usize),
    entries: Vec<(usize, usize, f64)>,
}

fn csr<T: Real>(built: &Built) -> spandrel_formats::Result<Csr<T>> {
    let mut row_ptr = vec![0u32; built.shape.0 + 1];
    built.entries.iter().for_each(|&(i, _, _)| row_ptr[i + 1] += 1);
    (0..built.shape.0).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let cols = built.entries.iter().map(|&(_, j, _)| j as u32).collect();
    let values = built.entries.iter().map(|&(_, _, v)| T::from_f64(v)).collect();
    Csr::new(built.shape.0, built.shape.1, row_ptr, cols, values)
}

type Build = fn() -> spandrel_formats::Result<Built>;

/// Symmetric diagonals -3, -1, 0, 1, 3 of 1100 rows. Nearly every variant differs from them in one place.
fn banded(change: impl Fn(usize, usize, f64) -> Option<f64>) -> spandrel_formats::Result<Built> {
    let n = 1100usize;
    let mut entries = Vec::new();
    for i in 0..n {
        for j in i.saturating_sub(3)..n.min(i + 4) {
            if i.abs_diff(j) != 2 {
                let value = ((7 * (i + j) + i.abs_diff(j)) % 11 + 1) as f64 * 0.125;
                entries.extend(change(i, j, value).map(|value| (i, j, value)));
            }
        }
    }
    Ok(Built { shape: (n, n), entries })
}

/// Rows too long for a single lane, on a matrix that every format accepts.
fn full(symmetric: bool) -> spandrel_formats::Result<Built> {
    let n = 601;
    let value = |i: usize, j: usize| ((i * j + i + j) % 13) as f64 - if symmetric || i < 500 { 6.0 } else { 5.0 };
    let entries = (0..n).flat_map(|i| (0..n).map(move |j| (i, j, value(i, j)))).collect();
    Ok(Built { shape: (n, n), entries })
}

const BUILT: [(&str, Build); 14] = [
    ("symmetric", || banded(|_, _, v| Some(v))),
    ("one-below-differs", || banded(|i, j, v| Some(if (i, j) == (700, 697) { 2.0 * v } else { v }))),
    ("one-above-differs", || banded(|i, j, v| Some(if (i, j) == (0, 3) { 2.0 * v } else { v }))),
    ("one-below-missing", || banded(|i, j, v| ((i, j) != (1099, 1098)).then_some(v))),
    ("one-above-missing", || banded(|i, j, v| ((i, j) != (31, 32)).then_some(v))),
    ("one-below-and-one-above-missing", || banded(|i, j, v| ((i, j) != (31, 32) && (i, j) != (9, 8)).then_some(v))),
    ("zero-above-and-nothing-below", || {
        banded(|i, j, v| if (i, j) == (64, 65) { Some(0.0) } else { ((i, j) != (65, 64)).then_some(v) })
    }),
    ("zeros-of-both-signs", || {
        banded(|i, j, v| {
            Some(if i.is_multiple_of(5) && j == i + 1 {
                -0.0
            } else if j.is_multiple_of(5) && i == j + 1 {
                0.0
            } else {
                v
            })
        })
    }),
    ("a-diagonal-of-zeros", || banded(|i, j, v| Some(if j == i + 3 { 0.0 } else { v }))),
    ("nan-in-both-halves", || banded(|i, j, v| Some(if i.abs_diff(j) == 3 && i.min(j) == 40 { f64::NAN } else { v }))),
    ("long-rows", || full(false)),
    ("long-rows-symmetric", || full(true)),
    ("stencil-of-27", || {
        let csr: Csr<f64> = generate::csr("d3n27:17x13x11")?;
        let row = |i: usize| csr.row(i).0.iter().zip(csr.row(i).1).map(move |(&j, &v)| (i, j as usize, v));
        Ok(Built { shape: (csr.nrows(), csr.ncols()), entries: (0..csr.nrows()).flat_map(row).collect() })
    }),
    ("few-long-rows", || {
        // 40 rows of 3000 entries among 3000 of one, so that few lanes have most of the work in slices and rows.
        let row = |i: usize| {
            (0..3000usize)
                .filter(move |&j| i.is_multiple_of(75) || j == i)
                .map(move |j| (i, j, (1 + (i ^ j) % 17) as f64))
        };
        Ok(Built { shape: (3000, 3000), entries: (0..3000).flat_map(row).collect() })
    }),
];
