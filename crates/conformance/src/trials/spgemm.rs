//! Trials of products of matrices: pattern and values bit by bit against plain loops, with new values, behind gates,
//! recorded; refusals.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::trace::Event;
use spandrel_backend::{Mat, MatProduct, Recorded, Result as DeviceResult, Spgemm, Step, Trace};
use spandrel_formats::{Csr, Real, Traffic};

use super::made::{Built, Makes, alike, generated, of_type, on_each, poison, refused, rows, with_values};
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Trial, Verdict, wrong};

/// The two factors; the second is the first where there is none.
struct Factors(Csr<f64>, Option<Csr<f64>>);

type Build = fn() -> spandrel_formats::Result<Factors>;

fn square(built: Built) -> spandrel_formats::Result<Factors> {
    Ok(Factors(built?, None))
}

fn both(a: Built, b: Built) -> spandrel_formats::Result<Factors> {
    Ok(Factors(a?, Some(b?)))
}

/// Lengths of rows around every limit that kernels tell rows apart by.
const LENGTHS: [usize; 30] = [
    0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024,
    1025, 1600, 2049, 4000,
];

/// A row per length. Columns of a row are far apart, so that each needs a word of its own, or next to each other.
fn of_every_length(apart: usize) -> Built {
    let ncols = apart * 4100;
    let mut entries = Vec::new();
    for (i, &length) in LENGTHS.iter().enumerate() {
        entries.extend((0..length).map(|k| (i, (k * apart + 11 * i) % ncols, 1.0 + (k % 7) as f64)));
    }
    Csr::from_triplets(LENGTHS.len(), ncols, entries)
}

/// Rows of one entry, which copy a row of the other factor, and of several, which mix neighbours.
fn copies(nrows: usize) -> Built {
    let entries =
        (0..4 * nrows).flat_map(|i| (0..1 + i / nrows).map(move |k| (i, (i * 7 + k) % nrows, 0.5 + k as f64)));
    Csr::from_triplets(4 * nrows, nrows, entries)
}

/// Columns whose distances are powers of two, and the last column that there may be.
fn wide() -> Built {
    let last = (1usize << 31) - 2;
    let steps = [1usize, 32, 1 << 10, 1 << 15, 1 << 20, 1 << 24];
    let mut entries = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        entries.extend((0..70).map(|k| (i, (k * step).min(last), 1.0 + k as f64)));
        entries.push((i, last, -1.0));
    }
    Csr::from_triplets(steps.len(), last + 1, entries)
}

/// Columns of one word of 32, and of neighbouring ones, again and again: many products, few entries.
fn narrow(nrows: usize) -> Built {
    let entries = (0..nrows).flat_map(|i| (0..40).map(move |k| (i, 20 + (k * (1 + i % 2)) % 79, 1.0 + (k % 3) as f64)));
    Csr::from_triplets(nrows, 130, entries)
}

/// Runs of rows of one pattern, of these lengths in turn. A row has `length` columns, `apart` from each other. Every
/// third run differs from the one before it only in its middle column.
fn runs(nrows: usize, ncols: usize, lengths: &[usize], length: usize, apart: usize) -> Built {
    let (mut entries, mut row) = (Vec::with_capacity(nrows * length), 0);
    for (run, &rows) in lengths.iter().cycle().enumerate() {
        let middle = usize::from(run % 3 == 2);
        let shift = 7 * (run - middle);
        for _ in 0..rows.min(nrows - row) {
            let column = |k: usize| ((k * apart + shift) * 2 + if k == length / 2 { middle } else { 0 }) % ncols;
            entries.extend((0..length).map(|k| (row, column(k), 0.5 + ((row + 3 * k) % 11) as f64)));
            row += 1;
        }
        if row == nrows {
            break;
        }
    }
    Csr::from_triplets(nrows, ncols, entries)
}

/// Sums that cancel, zeros of both signs, NaN, infinities and subnormals.
fn special() -> spandrel_formats::Result<Factors> {
    let values =
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, -f64::MIN_POSITIVE, 1.0, -1.0];
    let n = 45;
    let entry = |i: usize, j: usize| (i, j, values[(i * 5 + j * 7) % values.len()]);
    let a = Csr::from_triplets(n, n, (0..n).flat_map(|i| (0..n).step_by(1 + i % 4).map(move |j| entry(i, j))));
    let cancelling = |i: usize, j: usize| (i, j, if i.is_multiple_of(2) { 1.5 } else { -1.5 } * (1 + j % 3) as f64);
    let b = Csr::from_triplets(n, 20, (0..n).flat_map(|i| (0..20).step_by(1 + i % 3).map(move |j| cancelling(i, j))));
    both(a, b)
}

const CASES: [(&str, Build); 29] = [
    ("poisson2d-33x17", || square(generated("poisson2d:33x17"))),
    ("d3n27-9x8x7", || square(generated("d3n27:9x8x7"))),
    ("elasticity2d-9x8", || square(generated("elasticity2d:9x8"))),
    ("banded-700-d45", || square(generated("banded:n=700,d=45"))),
    ("power-law-900", || square(generated("powerlaw:n=900"))),
    ("random-1500", || square(generated("random:n=1500,nnz_per_row=9"))),
    ("no-rows", || both(rows(0, 5, &[0], 1), rows(5, 3, &[2], 2))),
    ("no-inner", || both(rows(4, 0, &[0], 1), rows(0, 3, &[0], 2))),
    ("no-columns", || both(rows(4, 5, &[2], 1), rows(5, 0, &[0], 2))),
    ("no-entries", || both(rows(40, 50, &[0], 1), rows(50, 60, &[3], 2))),
    ("no-entries-meet", || both(rows(40, 50, &[3], 1), rows(50, 60, &[0], 2))),
    ("one-by-one", || both(rows(1, 1, &[1], 1), rows(1, 1, &[1], 2))),
    ("row-by-column", || both(rows(1, 3000, &[700], 1), rows(3000, 1, &[1, 0, 1], 2))),
    ("column-by-row", || both(rows(300, 1, &[1, 1, 0], 1), rows(1, 900, &[600], 2))),
    ("dense-row-short-rows", || both(rows(3, 5000, &[5000, 0, 2], 1), rows(5000, 700, &[1, 0, 3, 2], 2))),
    ("dense-rows-of-the-second", || both(rows(64, 90, &[3, 0, 20], 1), rows(90, 1300, &[1300, 0, 0, 0, 1], 2))),
    ("every-length-together", || both(copies(LENGTHS.len()), of_every_length(1))),
    ("every-length-apart", || both(copies(LENGTHS.len()), of_every_length(64))),
    ("many-products-few-entries", || both(rows(50, 400, &[400, 3, 60], 1), narrow(400))),
    ("thousands-of-words", || both(rows(3, 40, &[12, 40, 1], 1), rows(40, 600_000, &[900], 2))),
    ("2147483647-columns", || both(rows(20, 6, &[1, 6, 3], 1), wide())),
    ("special-values", special),
    ("tall", || both(rows(2100, 70, &[4, 0, 9], 1), rows(70, 33, &[5, 33], 2))),
    ("elasticity3d-5", || square(generated("elasticity3d:5"))),
    ("runs-of-3-and-6", || both(runs(400, 900, &[3], 40, 3), runs(900, 700, &[6], 30, 2))),
    ("runs-of-all-lengths", || {
        both(runs(700, 500, &[1, 2, 3, 4, 5, 7, 130, 33], 35, 2), runs(500, 90, &[4, 1, 61], 20, 1))
    }),
    ("runs-of-the-first-alone", || both(runs(300, 500, &[5, 200], 35, 5), rows(500, 300, &[10, 0, 33, 1], 1))),
    ("runs-of-thousands-of-words", || both(runs(130, 60, &[6, 62], 20, 1), runs(60, 900_000, &[2, 3], 600, 64))),
    ("prolonged", || both(generated("d3n7:9x8x10"), rows(720, 100, &[2, 3, 1], 3))),
];

/// For the kernels of a GPU, which few rows do not fill.
const LARGE: [(&str, Build); 6] = [
    ("poisson3d-40", || square(generated("poisson3d:40"))),
    ("d3n27-24", || square(generated("d3n27:24"))),
    ("elasticity3d-11", || square(generated("elasticity3d:11"))),
    ("power-law-40000", || square(generated("powerlaw:n=40000"))),
    ("random-60000", || square(generated("random:n=60000,nnz_per_row=14"))),
    ("random-long-rows", || both(rows(3000, 9000, &[60, 0, 90], 1), rows(9000, 400_000, &[200, 70], 2))),
];

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Makes<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for (case, build) in CASES.into_iter().chain(large) {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("spgemm/csr/{}/{}/{case}", T::NAME, fleet.name), move || {
            let Factors(a, b) = build()?;
            let (a, b) = (of_type::<T>(Ok(a))?, b.map(|b| of_type::<T>(Ok(b))).transpose()?);
            let rounds: Vec<_> = (0..3).map(|round| Round::new(&a, b.as_ref(), round)).collect();
            on_each::<D, T>(&fleet.devices, |be| multiplied(be, &rounds))
        }));
    }
    let fleet = fleet.clone();
    out.push(Trial::new(format!("spgemm/csr/{}/{}/refusals", T::NAME, fleet.name), move || {
        on_each::<D, T>(&fleet.devices, |be| refusals::<T, D>(be))
    }));
}

/// A B as the contract states it, by plain loops.
fn stated<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Csr<T> {
    let narrow = b.ncols() <= 1 << 24;
    let mut sums: Vec<Option<T>> = vec![None; if narrow { b.ncols() } else { 0 }];
    let (mut row_ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..a.nrows() {
        let mut found: Vec<(u32, T)> = Vec::new();
        for (&k, &v) in a.row(i).0.iter().zip(a.row(i).1) {
            for (&j, &w) in b.row(k as usize).0.iter().zip(b.row(k as usize).1) {
                match (narrow, found.iter_mut().find(|(column, _)| !narrow && *column == j)) {
                    (true, _) => {
                        let sum = &mut sums[j as usize];
                        if sum.is_none() {
                            found.push((j, T::zero()));
                        }
                        *sum = Some(v.mul_add(w, sum.unwrap_or(T::zero())));
                    }
                    (false, Some((_, sum))) => *sum = v.mul_add(w, *sum),
                    (false, None) => found.push((j, v.mul_add(w, T::zero()))),
                }
            }
        }
        if narrow {
            found.iter_mut().for_each(|(j, sum)| *sum = sums[*j as usize].take().unwrap_or(T::nan()));
        }
        found.sort_unstable_by_key(|&(j, _)| j);
        cols.extend(found.iter().map(|&(j, _)| j));
        values.extend(found.iter().map(|&(_, v)| v));
        row_ptr.push(cols.len() as u32);
    }
    // Rows, columns and order are those of matrices that were checked.
    Csr::new(a.nrows(), b.ncols(), row_ptr, cols, values).expect("a product is a matrix")
}

/// Factors with values, and their product.
struct Round<T> {
    a: Csr<T>,
    b: Option<Csr<T>>,
    c: Csr<T>,
}

impl<T: Real> Round<T> {
    /// Round 0 has the values of the case.
    fn new(a: &Csr<T>, b: Option<&Csr<T>>, round: u64) -> Self {
        let values = |m: &Csr<T>, seed| if round == 0 { m.clone() } else { with_values(m, seed) };
        let (a, b) = (values(a, 2 * round), b.map(|b| values(b, 2 * round + 1)));
        let c = stated(&a, b.as_ref().unwrap_or(&a));
        Self { a, b, c }
    }
}

/// C <- A B, where the second factor may be the first.
struct Numeric<'a, T: Real, D: Makes<T>> {
    plan: &'a MatProduct<D, Csr<T>>,
    a: &'a RefCell<Mat<D, Csr<T>>>,
    b: Option<&'a RefCell<Mat<D, Csr<T>>>>,
    c: &'a RefCell<Mat<D, Csr<T>>>,
}

impl<T: Real, D: Makes<T>> Numeric<'_, T, D> {
    fn run(&self, be: &D, gate: Option<&D::Monitor>) -> DeviceResult<()> {
        let (a, mut c) = (self.a.borrow(), self.c.borrow_mut());
        match self.b {
            Some(b) => self.plan.numeric(be, gate, &a, &b.borrow(), &mut c),
            None => self.plan.numeric(be, gate, &a, &a, &mut c),
        }
    }
}

// SAFETY: one operation on matrices that outlive the step; new values leave their addresses as they are.
unsafe impl<T: Real, D: Makes<T>> Step<D> for Numeric<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> DeviceResult<()> {
        self.run(be, None)
    }
}

fn multiplied<T: Real, D: Makes<T>>(be: &D, rounds: &[Round<T>]) -> Verdict {
    let first = &rounds[0];
    let a = RefCell::new(Mat::<D, Csr<T>>::load(be, first.a.clone())?);
    let b = first.b.clone().map(|b| Mat::<D, Csr<T>>::load(be, b)).transpose()?.map(RefCell::new);
    let (c, plan) = match &b {
        Some(b) => a.borrow().spgemm(be, &b.borrow())?,
        None => a.borrow().spgemm(be, &a.borrow())?,
    };
    alike(be, "the first product", &c, &first.c)?;
    let c = RefCell::new(c);
    let update = |round: &Round<T>| -> DeviceResult<()> {
        a.borrow_mut().update_values(be, round.a.values())?;
        if let (Some(b), Some(fresh)) = (&b, &round.b) {
            b.borrow_mut().update_values(be, fresh.values())?;
        }
        poison(be, &mut c.borrow_mut())
    };
    let numeric = Numeric { plan: &plan, a: &a, b: b.as_ref(), c: &c };
    for (number, round) in rounds.iter().enumerate().rev() {
        update(round)?;
        let stopped = gate::<T, D>(be, GateState::Stopped)?;
        numeric.run(be, stopped.as_ref())?;
        let mut untouched = round.c.clone();
        untouched.values_mut().fill(T::nan());
        alike(be, "behind a stopped monitor", &c.borrow(), &untouched)?;
        let running = gate::<T, D>(be, GateState::Running)?;
        numeric.run(be, running.as_ref())?;
        alike(be, &format!("values {number}"), &c.borrow(), &round.c)?;
    }
    // The first run is plain, the second records, and the others replay.
    let mut step = Recorded::new(be, numeric, true);
    for number in [1, 2, 0, 1] {
        update(&rounds[number])?;
        step.run()?;
        alike(be, &format!("recorded, values {number}"), &c.borrow(), &rounds[number].c)?;
    }
    Ok(())
}

fn refusals<T: Real, D: Makes<T>>(be: &D) -> Verdict {
    let load = |built: Built| Ok::<_, crate::trial::Finding>(Mat::<D, Csr<T>>::load(be, of_type::<T>(built)?)?);
    let (a, b, other) = (load(rows(6, 5, &[2], 1))?, load(rows(5, 7, &[3], 2))?, load(rows(5, 7, &[1], 2))?);
    refused(b.spgemm(be, &a), "a row of A")?;
    refused(be.spgemm_symbolic(b.resident(), a.resident()), "a row of A")?;
    let (mut c, plan) = a.spgemm(be, &b)?;
    let before = c.download(be)?;
    refused(plan.numeric(be, None, &a, &other, &mut c), "the values of B")?;
    refused(plan.numeric(be, None, &b, &b, &mut c), "a column of A")?;
    let (mut wrong_c, plan_of_c) = a.spgemm(be, &other)?;
    refused(plan.numeric(be, None, &a, &b, &mut wrong_c), "the values of C")?;
    // The backend compares as well.
    let mut resident = be.load(before.clone().into())?;
    refused(be.spgemm_numeric(None, plan_of_c.plan(), a.resident(), b.resident(), &mut resident), "the values of B")?;
    alike(be, "after refusals", &c, &before)
}

/// What a traced backend logs: a wait and an allocation in the symbolic phase, one launch in the numeric phase.
pub fn steps<B: Spgemm<Csr<f64>> + 'static>(fleet: &Rc<Fleet<Trace<B>>>, out: &mut Vec<Trial>) {
    let fleet = fleet.clone();
    out.push(Trial::new(format!("spgemm/csr/f64/{}/steps", fleet.name), move || {
        let be = fleet.first();
        let host = generated("poisson2d:20x20")?;
        let square = stated(&host, &host);
        let a = Mat::<Trace<B>, Csr<f64>>::load(be, host.clone())?;
        be.take();
        let (mut c, plan) = a.spgemm(be, &a)?;
        let launch = |event: &Event| match event {
            Event::Launch(launch) => Some((launch.op, launch.noun, launch.bytes(), launch.gated)),
            _ => None,
        };
        let bytes = 2 * host.storage() + square.storage();
        let log = be.take();
        let expected = [Event::Wait("spgemm_symbolic"), Event::Allocation("spgemm", square.storage())];
        if log.len() != 3 || log[..2] != expected || launch(&log[2]) != Some(("spgemm", Some("csr"), bytes, false)) {
            return Err(wrong(format!("a product logs {log:?}")));
        }
        plan.numeric(be, gate::<f64, _>(be, GateState::Running)?.as_ref(), &a, &a, &mut c)?;
        match be.take().iter().filter_map(launch).filter(|launch| launch.0 == "spgemm").collect::<Vec<_>>()[..] {
            [one] if one == ("spgemm", Some("csr"), bytes, true) => Ok(()),
            ref other => Err(wrong(format!("new values log {other:?}"))),
        }
    }));
}
