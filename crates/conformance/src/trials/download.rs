//! Trials of ranges of rows on their way to the host: bit by bit those of the matrix, and refusals.

use std::ops::Range;
use std::rc::Rc;

use spandrel_backend::Mat;
use spandrel_formats::{Csr, Real};

use super::made::{Built, Makes, generated, of_type, on_each, refused, rows};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

type Build = fn() -> Built;

const CASES: [(&str, Build); 8] = [
    ("convdiff2d-33x17", || generated("convdiff2d:33x17")),
    ("power-law-3000", || generated("powerlaw:n=3000")),
    ("0x5", || rows(0, 5, &[0], 1)),
    ("5x0", || rows(5, 0, &[0], 1)),
    ("no-entries", || rows(40, 70, &[0], 1)),
    ("one-row", || rows(1, 3000, &[700], 1)),
    ("empty-rows", || rows(5000, 300, &[0, 3, 0, 0, 40, 1], 1)),
    ("special-values", || {
        let values = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        Csr::from_triplets(60, 50, (0..900).map(|k| (k * 7 % 60, k / 18, values[k % 6])))
    }),
];

/// For copies that several threads of the host share.
const LARGE: (&str, Build) = ("convdiff3d-64", || generated("convdiff3d:64"));

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Makes<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = (D::NAME == "cuda").then_some(LARGE);
    for (case, build) in CASES.into_iter().chain(large) {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("download/csr/{}/{}/{case}", T::NAME, fleet.name), move || {
            let a = of_type::<T>(build())?;
            on_each::<D, T>(&fleet.devices, |be| ranges(be, &a))
        }));
    }
}

/// The rows of a range by plain loops.
fn stated<T: Real>(a: &Csr<T>, range: Range<usize>) -> Csr<T> {
    let (mut row_ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in range.clone() {
        cols.extend_from_slice(a.row(i).0);
        values.extend_from_slice(a.row(i).1);
        row_ptr.push(cols.len() as u32);
    }
    Csr::new(range.len(), a.ncols(), row_ptr, cols, values).expect("rows of a matrix are one")
}

fn ranges<T: Real, D: Makes<T>>(be: &D, host: &Csr<T>) -> Verdict {
    let (n, a) = (host.nrows(), Mat::<D, Csr<T>>::load(be, host.clone())?);
    let same = |what: &str, a: &Mat<D, Csr<T>>, host: &Csr<T>| -> Verdict {
        for range in [0..n, 0..0, n..n, n / 2..n / 2, 0..n / 3, n / 3..n - n / 3, n - n / 3..n, n / 2..n.min(n / 2 + 1)]
        {
            let (found, wanted) = (a.download_rows(be, range.clone())?, stated(host, range.clone()));
            let shape = |m: &Csr<T>| (m.nrows(), m.ncols(), m.row_ptr().to_vec(), m.col_idx().to_vec());
            if shape(&found) != shape(&wanted) {
                return Err(wrong(format!("{what}, rows {range:?}: another pattern")));
            }
            if let Some(detail) = difference(found.values(), wanted.values()) {
                return Err(wrong(format!("{what}, rows {range:?}: {detail}")));
            }
        }
        Ok(())
    };
    same("a loaded matrix", &a, host)?;
    // A matrix that the device made.
    let (transposed, _) = a.transpose(be)?;
    let (again, _) = transposed.transpose(be)?;
    same("the transpose of a transpose", &again, host)?;
    for range in [0..n + 1, n + 1..n + 1, Range { start: 1, end: 0 }] {
        refused(a.download_rows(be, range), "the range of rows")?;
    }
    Ok(())
}
