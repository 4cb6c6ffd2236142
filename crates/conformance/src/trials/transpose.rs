//! Trials of transposes as separate matrices: bit by bit like the host's, with new values, behind gates, recorded, and
//! refusals.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{Mat, MatTranspose, Recorded, Result as DeviceResult, Step};
use spandrel_formats::{Csr, Real};

use super::made::{Built, Makes, alike, generated, of_type, on_each, poison, refused, rows, with_values};
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Trial, Verdict};

type Build = fn() -> Built;

const CASES: [(&str, Build); 15] = [
    ("convdiff2d-33x17", || generated("convdiff2d:33x17")),
    ("d3n27-9x8x7", || generated("d3n27:9x8x7")),
    ("banded-700-d45", || generated("banded:n=700,d=45")),
    ("power-law-3000", || generated("powerlaw:n=3000")),
    ("random-1500", || generated("random:n=1500,nnz_per_row=9")),
    ("0x0", || rows(0, 0, &[0], 1)),
    ("0x5", || rows(0, 5, &[0], 1)),
    ("5x0", || rows(5, 0, &[0], 1)),
    ("no-entries", || rows(40, 70, &[0], 1)),
    ("one-row", || rows(1, 3000, &[700], 1)),
    ("one-column", || rows(3000, 1, &[1, 0, 1], 1)),
    ("tall", || rows(6000, 3, &[3, 0, 1, 2], 1)),
    ("wide", || rows(5, 90_000, &[20_000, 0, 1], 1)),
    ("lengths-around-limits", || lengths()),
    ("special-values", || {
        let values = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        Csr::from_triplets(60, 50, (0..900).map(|k| (k * 7 % 60, k / 18, values[k % 6])))
    }),
];

/// For the kernels of a GPU, which a few rows do not fill.
const LARGE: [(&str, Build); 4] = [
    ("convdiff3d-40", || generated("convdiff3d:40")),
    ("random-200000", || generated("random:n=200000,nnz_per_row=14")),
    ("power-law-40000", || generated("powerlaw:n=40000")),
    ("dense-columns", || rows(150_000, 40, &[1, 4, 2], 1)),
];

/// Columns with numbers of entries around every limit between two kernels.
fn lengths() -> Built {
    let lengths = [0usize, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 2048, 2100];
    // Rows in another order than the entries of the columns.
    let entries = lengths
        .iter()
        .enumerate()
        .flat_map(|(j, &length)| (0..length).map(move |k| ((k * 1009 + j * 17) % 2111, j, 1.0 + (k % 11) as f64)));
    Csr::from_triplets(2111, lengths.len(), entries)
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Makes<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for (case, build) in CASES.into_iter().chain(large) {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("transpose/csr/{}/{}/{case}", T::NAME, fleet.name), move || {
            let a = of_type::<T>(build())?;
            on_each::<D, T>(&fleet.devices, |be| transposed(be, &a))
        }));
    }
    let fleet = fleet.clone();
    out.push(Trial::new(format!("transpose/csr/{}/{}/refusals", T::NAME, fleet.name), move || {
        on_each::<D, T>(&fleet.devices, |be| refusals::<T, D>(be))
    }));
}

/// A^T by plain loops.
fn stated<T: Real>(a: &Csr<T>) -> Csr<T> {
    let mut rows: Vec<Vec<(u32, T)>> = vec![Vec::new(); a.ncols()];
    for i in 0..a.nrows() {
        a.row(i).0.iter().zip(a.row(i).1).for_each(|(&j, &v)| rows[j as usize].push((i as u32, v)));
    }
    let mut row_ptr = vec![0];
    rows.iter().for_each(|row| row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len() as u32));
    let entries = || rows.iter().flatten();
    let (cols, values) = (entries().map(|entry| entry.0).collect(), entries().map(|entry| entry.1).collect());
    Csr::new(a.ncols(), a.nrows(), row_ptr, cols, values).expect("a transpose is a matrix")
}

/// T <- A^T.
struct Numeric<'a, T: Real, D: Makes<T>> {
    plan: &'a MatTranspose<D, Csr<T>>,
    a: &'a RefCell<Mat<D, Csr<T>>>,
    t: &'a RefCell<Mat<D, Csr<T>>>,
}

// SAFETY: one operation on matrices that outlive the step; new values leave their addresses as they are.
unsafe impl<T: Real, D: Makes<T>> Step<D> for Numeric<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> DeviceResult<()> {
        self.plan.numeric(be, None, &self.a.borrow(), &mut self.t.borrow_mut())
    }
}

fn transposed<T: Real, D: Makes<T>>(be: &D, host: &Csr<T>) -> Verdict {
    let a = RefCell::new(Mat::<D, Csr<T>>::load(be, host.clone())?);
    let (t, plan) = a.borrow().transpose(be)?;
    alike(be, "the first transpose", &t, &stated(host))?;
    let t = RefCell::new(t);
    let mut step = Recorded::new(be, Numeric { plan: &plan, a: &a, t: &t }, true);
    for seed in 0..4 {
        let fresh = with_values(host, seed);
        let wanted = stated(&fresh);
        a.borrow_mut().update_values(be, fresh.values())?;
        poison(be, &mut t.borrow_mut())?;
        let stopped = gate::<T, D>(be, GateState::Stopped)?;
        plan.numeric(be, stopped.as_ref(), &a.borrow(), &mut t.borrow_mut())?;
        let mut untouched = wanted.clone();
        untouched.values_mut().fill(T::nan());
        alike(be, "behind a stopped monitor", &t.borrow(), &untouched)?;
        let running = gate::<T, D>(be, GateState::Running)?;
        plan.numeric(be, running.as_ref(), &a.borrow(), &mut t.borrow_mut())?;
        alike(be, &format!("values {seed}"), &t.borrow(), &wanted)?;
        poison(be, &mut t.borrow_mut())?;
        step.run()?;
        alike(be, &format!("run {seed} of a step"), &t.borrow(), &wanted)?;
    }
    Ok(())
}

fn refusals<T: Real, D: Makes<T>>(be: &D) -> Verdict {
    let load = |built: Built| Ok::<_, crate::trial::Finding>(Mat::<D, Csr<T>>::load(be, of_type::<T>(built)?)?);
    let (a, other) = (load(rows(6, 5, &[2], 1))?, load(rows(6, 5, &[3], 2))?);
    let (mut t, plan) = a.transpose(be)?;
    let before = t.download(be)?;
    let (mut wrong_t, _) = other.transpose(be)?;
    refused(plan.numeric(be, None, &other, &mut t), "the values of A")?;
    refused(plan.numeric(be, None, &wrong_t, &mut t), "a column of A")?;
    refused(plan.numeric(be, None, &a, &mut wrong_t), "the values of A^T")?;
    let mut resident = be.load(before.clone().into())?;
    refused(be.transpose_numeric(None, plan.plan(), other.resident(), &mut resident), "the values of A")?;
    alike(be, "after refusals", &t, &before)
}
