//! Trials of matrices that are narrowed on a device: products and factors have the bits of the host's narrowing, in
//! every scale. The host narrows matrices with entries that are not finite.

use std::rc::Rc;

use spandrel_backend::{Assemble, Backend, Mat, Narrow, Spmv};
use spandrel_formats::{Csr, Format, generate};
use spandrel_solvers::Narrowed;
use spandrel_sptrsv::{Factor, Ic0, Ilu0};

use super::convert::products;
use super::formats::Shared;
use crate::case::{Case, numbers};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

/// Powers of two by which matrices are scaled. For most matrices one of them brings the largest entry between 1 and 2;
/// that is the range in which the device notices entries that are not finite.
const SCALES: [i32; 6] = [0, -1, -2, -3, 700, -700];

/// What the trials need of a backend.
pub(crate) trait Narrows: Narrow + Spmv<Csr<f32>> + Assemble<Ilu0<f32>> + Assemble<Ic0<f32>> {}
impl<D: Narrow + Spmv<Csr<f32>> + Assemble<Ilu0<f32>> + Assemble<Ic0<f32>>> Narrows for D {}

/// Every case of the suite, and grids whose factors are made from what was narrowed.
pub(crate) fn trials<D: Narrows + 'static>(
    fleet: &Rc<Fleet<D>>,
    cases: &[Rc<Case>],
    large: bool,
    out: &mut Vec<Trial>,
) {
    for case in cases.iter().filter(|case| (large || !case.large) && case.wants(Csr::<f64>::NAME)) {
        let name = format!("narrow/csr/f32/{}/{}", fleet.name, case.name);
        let (fleet, shared) = (fleet.clone(), Shared::<f64>::new(case.clone()));
        out.push(Trial::new(name, move || {
            let csr = shared.data()?.csr()?;
            SCALES.iter().try_for_each(|&scale| narrowed(fleet.first(), &csr.map(|v| v * 2f64.powi(scale))))?;
            spoilt(fleet.first(), &csr)
        }));
    }
    for spec in ["poisson3d:17x9x11", "poisson2d:40x33", "d3n27:12"] {
        let name = format!("narrow/csr/f32/{}/factors-{}", fleet.name, spec.replace(':', "-"));
        let fleet = fleet.clone();
        out.push(Trial::new(name, move || {
            let csr = generate::csr::<f64>(spec)?;
            SCALES.iter().try_for_each(|&scale| {
                let csr = csr.map(|v| v * 2f64.powi(scale));
                factors::<Ilu0<f32>, D>(fleet.first(), &csr)?;
                factors::<Ic0<f32>, D>(fleet.first(), &csr)
            })
        }));
    }
}

/// The host's matrix and the device's with its exponent; `None` if the device cannot narrow.
fn both<D: Narrow>(be: &D, csr: &Csr<f64>) -> Result<Option<(Narrowed, Mat<D, Csr<f32>>)>, crate::trial::Finding> {
    let wide = Mat::<D, Csr<f64>>::load(be, csr.clone())?;
    let Some((made, exponent)) = wide.narrow(be)? else { return Ok(None) };
    let host = Narrowed::new(csr);
    if host.exponent != exponent {
        return Err(wrong(format!("exponent: expected {}, found {exponent}", host.exponent)));
    }
    Ok(Some((host, made)))
}

fn narrowed<D: Narrow + Spmv<Csr<f32>>>(be: &D, csr: &Csr<f64>) -> Verdict {
    let Some((host, made)) = both(be, csr)? else {
        let empty = csr.nnz() == 0 || csr.values().iter().any(|v| !v.is_finite());
        return if empty { Ok(()) } else { Err(wrong("finite entries are left to the host")) };
    };
    let loaded = Mat::<D, Csr<f32>>::load(be, host.matrix)?;
    let said = |mat: &Mat<D, Csr<f32>>| (mat.nrows(), mat.ncols(), mat.nnz(), mat.storage(), mat.spmv_bytes());
    if said(&made) != said(&loaded) {
        return Err(wrong(format!("sizes and bytes: expected {:?}, found {:?}", said(&loaded), said(&made))));
    }
    let (x, w) = (numbers(21, csr.ncols()), numbers(22, csr.nrows()));
    match difference(&products(be, &made, &x, &w)?, &products(be, &loaded, &x, &w)?) {
        Some(detail) => Err(wrong(format!("products with the narrowed matrix against the loaded one: {detail}"))),
        None => Ok(()),
    }
}

/// An entry that is not finite, at any place, must be left to the host.
fn spoilt<D: Narrow>(be: &D, csr: &Csr<f64>) -> Verdict {
    let nnz = csr.nnz();
    for at in [0, nnz / 2, nnz.saturating_sub(1)].into_iter().filter(|&at| at < nnz) {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut csr = csr.clone();
            csr.values_mut()[at] = value;
            if Mat::<D, Csr<f64>>::load(be, csr)?.narrow(be)?.is_some() {
                return Err(wrong(format!("{value} as entry {at} was narrowed on the device")));
            }
        }
    }
    Ok(())
}

/// Compares factors of the narrowed matrix on the device with the host's factors of its own.
fn factors<F: Factor<Value = f32>, D: Narrow + Assemble<F>>(be: &D, csr: &Csr<f64>) -> Verdict {
    let Some((host, made)) = both(be, csr)? else { return Err(wrong("finite entries are left to the host")) };
    let Some(made) = Assemble::<F>::assemble(be, made.resident())? else {
        return Err(wrong("a whole grid is left to the host"));
    };
    let symbolic = F::symbolic(&host.matrix).map_err(wrong)?;
    let host = symbolic.numeric(host.matrix.values()).map_err(wrong)?;
    for (what, made, host) in [("L", made.made()[0], &host.lower), ("U", made.made()[1], &host.upper)] {
        if let Some(detail) = difference(&Backend::<f32>::download(be, made)?, host) {
            return Err(wrong(format!("{} of {} entries, {what}: {detail}", F::NAME, csr.nnz())));
        }
    }
    Ok(())
}
