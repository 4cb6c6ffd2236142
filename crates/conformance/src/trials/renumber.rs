//! Trials of renumbered matrices: the search and the matrix bit by bit like the host's, vectors there and back, new
//! values, gates, recorded steps, and refusals.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{Mat, MatNumbering, MatRenumbering, Recorded, Result as DeviceResult, Step};
use spandrel_formats::hash::splitmix64;
use spandrel_formats::{Csr, Permutation, Real};

use super::made::{Built, Makes, alike, generated, of_type, on_each, refused, rows, with_values};
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Finding, Trial, Verdict, wrong};

type Build = fn() -> Built;

const CASES: [(&str, Build); 13] = [
    ("poisson2d-33x17", || generated("poisson2d:33x17")),
    ("shuffled-poisson3d-9", || shuffled("poisson3d:9")),
    ("convdiff2d-33x17", || generated("convdiff2d:33x17")),
    ("shuffled-d3n27-9x8x7", || shuffled("d3n27:9x8x7")),
    ("shuffled-banded-700-d45", || shuffled("banded:n=700,d=45")),
    ("power-law-3000", || generated("powerlaw:n=3000")),
    ("random-1500", || generated("random:n=1500,nnz_per_row=9")),
    ("0x0", || rows(0, 0, &[0], 1)),
    ("one-row", || rows(1, 1, &[1], 1)),
    ("no-entries", || rows(70, 70, &[0], 1)),
    ("many-parts", || parts()),
    ("lengths-around-limits", || lengths()),
    ("special-values", || {
        let values = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        Csr::from_triplets(60, 60, (0..900).map(|k| (k * 7 % 60, k / 15, values[k % 6])))
    }),
];

/// For the kernels of a GPU, which a few rows do not fill.
const LARGE: [(&str, Build); 4] = [
    ("shuffled-poisson3d-60", || shuffled("poisson3d:60")),
    ("random-200000", || generated("random:n=200000,nnz_per_row=14")),
    ("power-law-40000", || generated("powerlaw:n=40000")),
    ("chain-3000", || generated("poisson1d:3000")),
];

/// A generated matrix in random order.
fn shuffled(spec: &str) -> Built {
    let a = generated(spec)?;
    let mut order: Vec<u32> = (0..a.nrows() as u32).collect();
    order.sort_by_key(|&i| splitmix64(u64::from(i)));
    Permutation::new(order)?.permute_symmetric(&a)
}

/// Pairs, single rows with and without a diagonal, and rows that only others refer to.
fn parts() -> Built {
    let entries = (0..400usize).flat_map(|i| match i % 5 {
        0 => vec![(i, i, 2.0), (i, i + 3, -1.0), (i + 3, i, -0.5)],
        1 => vec![(i, i, 1.5)],
        2 => vec![(i, (i + 10) % 400, 0.25)],
        _ => Vec::new(),
    });
    Csr::from_triplets(400, 400, entries)
}

/// Rows with numbers of entries around every limit between two kernels.
fn lengths() -> Built {
    let lengths = [0usize, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1025, 2100];
    let entries = lengths.iter().enumerate().flat_map(|(i, &length)| {
        (0..length).map(move |k| (100 * i + 3, (k * 1009 + i * 17) % 2111, 1.0 + (k % 11) as f64))
    });
    Csr::from_triplets(2111, 2111, entries)
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Makes<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for (case, build) in CASES.into_iter().chain(large) {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("renumber/csr/{}/{}/{case}", T::NAME, fleet.name), move || {
            let a = of_type::<T>(build())?;
            on_each::<D, T>(&fleet.devices, |be| renumbered(be, &a))
        }));
    }
    let fleet = fleet.clone();
    out.push(Trial::new(format!("renumber/csr/{}/{}/refusals", T::NAME, fleet.name), move || {
        on_each::<D, T>(&fleet.devices, |be| refusals::<T, D>(be))
    }));
}

/// The order of a search by plain loops, and its number of levels.
fn stated<T: Real>(a: &Csr<T>) -> (Vec<u32>, usize) {
    let n = a.nrows();
    let (mut order, mut is_reached, mut levels) = (Vec::new(), vec![false; n], 0);
    for start in 0..n {
        if is_reached[start] || a.row(start).0.iter().all(|&j| j as usize == start) {
            continue;
        }
        let mut level = vec![start as u32];
        is_reached[start] = true;
        while !level.is_empty() {
            levels += 1;
            let mut next = Vec::new();
            for &row in &level {
                for &col in a.row(row as usize).0 {
                    if !is_reached[col as usize] {
                        is_reached[col as usize] = true;
                        next.push(col);
                    }
                }
            }
            order.append(&mut level);
            level = next;
        }
    }
    order.extend((0..n as u32).filter(|&row| !is_reached[row as usize]));
    (order, levels)
}

/// P A P^T by plain loops.
fn moved<T: Real>(a: &Csr<T>, order: &[u32]) -> Csr<T> {
    let mut place = vec![0; order.len()];
    order.iter().zip(0u32..).for_each(|(&old, new)| place[old as usize] = new);
    let (mut row_ptr, mut entries) = (vec![0u32], Vec::new());
    for &old in order {
        let (cols, values) = a.row(old as usize);
        let mut row: Vec<(u32, T)> = cols.iter().zip(values).map(|(&j, &v)| (place[j as usize], v)).collect();
        row.sort_by_key(|entry| entry.0);
        entries.append(&mut row);
        row_ptr.push(entries.len() as u32);
    }
    let (cols, values) = (entries.iter().map(|e| e.0).collect(), entries.iter().map(|e| e.1).collect());
    Csr::new(order.len(), order.len(), row_ptr, cols, values).expect("a renumbered matrix is a matrix")
}

/// v <- the values of P A P^T; y <- P x; z <- P^T x.
struct Moves<'a, T: Real, D: Makes<T>> {
    numbering: &'a MatNumbering<D, Csr<T>>,
    plan: &'a MatRenumbering<D, Csr<T>>,
    values: &'a RefCell<D::Vector>,
    x: &'a D::Vector,
    to: &'a RefCell<[D::Vector; 3]>,
}

// SAFETY: operations on vectors that outlive the step; new values leave their addresses as they are.
unsafe impl<T: Real, D: Makes<T>> Step<D> for Moves<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> DeviceResult<()> {
        self.moves(be, None)
    }
}

impl<T: Real, D: Makes<T>> Moves<'_, T, D> {
    fn moves(&self, be: &D, gate: spandrel_backend::Gate<'_, D>) -> DeviceResult<()> {
        let [v, y, z] = &mut *self.to.borrow_mut();
        self.plan.values(be, gate, &self.values.borrow(), v)?;
        self.numbering.renumber(be, gate, self.x, y)?;
        self.numbering.restore(be, gate, self.x, z)
    }

    fn poison(&self, be: &D) -> DeviceResult<()> {
        self.to.borrow_mut().iter_mut().try_for_each(|to| be.fill(None, T::nan(), to))
    }

    /// Compares the three vectors with those of plain loops.
    fn check(&self, be: &D, what: &str, wanted: [&[T]; 3]) -> Verdict {
        for ((found, wanted), name) in self.to.borrow().iter().zip(wanted).zip(["the values", "P x", "P^T x"]) {
            let found = be.download(found)?;
            if let Some(detail) = difference(&found, wanted) {
                return Err(wrong(format!("{what}: {name}: {detail}")));
            }
        }
        Ok(())
    }
}

fn renumbered<T: Real, D: Makes<T>>(be: &D, host: &Csr<T>) -> Verdict {
    let n = host.nrows();
    let a = Mat::<D, Csr<T>>::load(be, host.clone())?;
    let entries = (0..n).flat_map(|i| host.row(i).0.iter().map(move |&j| u64::from(j).abs_diff(i as u64)));
    let distance = entries.sum::<u64>() as f64 / host.nnz().max(1) as f64;
    let found = a.distance(be)?;
    if found != distance {
        return Err(wrong(format!("entries are {found} rows from the diagonal, not {distance}")));
    }
    let (order, levels) = stated(host);
    let numbering = a.breadth_first(be, levels)?.ok_or_else(|| wrong(format!("more than {levels} levels")))?;
    let found = numbering.order(be)?;
    if let Some(at) = (0..n).find(|&at| found[at] != order[at]) {
        return Err(wrong(format!("row {} has place {at} of the search, not row {}", found[at], order[at])));
    }
    if levels > 0 && a.breadth_first(be, levels - 1)?.is_some() {
        return Err(wrong(format!("a search with {levels} levels has fewer")));
    }
    let reverse = Permutation::new(order.iter().rev().copied().collect())?;
    let brought = MatNumbering::new(be, &reverse)?;
    let (other, _) = a.renumbered(be, &brought)?;
    alike(be, "the matrix in an order from the host", &other, &moved(host, reverse.perm()))?;
    let (mut to, plan) = a.renumbered(be, &numbering)?;
    alike(be, "the renumbered matrix", &to, &moved(host, &order))?;

    let x_host = numbers::<T>(17, n);
    let (there, mut back) = (order.iter().map(|&old| x_host[old as usize]).collect::<Vec<_>>(), x_host.clone());
    order.iter().zip(&x_host).for_each(|(&old, &v)| back[old as usize] = v);
    let (x, values) = (be.upload(&x_host)?, RefCell::new(be.zeros(host.nnz())?));
    let out = RefCell::new([be.zeros(host.nnz())?, be.zeros(n)?, be.zeros(n)?]);
    let moves = || Moves { numbering: &numbering, plan: &plan, values: &values, x: &x, to: &out };
    let mut step = Recorded::new(be, moves(), true);
    for seed in 0..3 {
        let fresh = with_values(host, seed);
        let wanted = moved(&fresh, &order);
        be.write(fresh.values(), &mut values.borrow_mut())?;
        moves().poison(be)?;
        let stopped = gate::<T, D>(be, GateState::Stopped)?;
        moves().moves(be, stopped.as_ref())?;
        let (entries, nothing) = (vec![T::nan(); host.nnz()], vec![T::nan(); n]);
        moves().check(be, "behind a stopped monitor", [&entries, &nothing, &nothing])?;
        let running = gate::<T, D>(be, GateState::Running)?;
        moves().moves(be, running.as_ref())?;
        moves().check(be, &format!("round {seed}"), [wanted.values(), &there, &back])?;
        moves().poison(be)?;
        step.run()?;
        moves().check(be, &format!("run {seed} of a step"), [wanted.values(), &there, &back])?;
        to.update_values_from(be, &out.borrow()[0])?;
        alike(be, "the renumbered matrix with new values", &to, &wanted)?;
    }
    Ok(())
}

fn refusals<T: Real, D: Makes<T>>(be: &D) -> Verdict {
    let load = |built: Built| Ok::<_, Finding>(Mat::<D, Csr<T>>::load(be, of_type::<T>(built)?)?);
    let (a, other, wide) = (load(rows(6, 6, &[2], 1))?, load(rows(6, 6, &[3], 2))?, load(rows(6, 5, &[2], 1))?);
    let numbering = a.breadth_first(be, 6)?.ok_or_else(|| wrong("six rows have more than six levels"))?;
    let (_, plan) = a.renumbered(be, &numbering)?;
    let (entries, mut more) = (be.zeros(a.nnz())?, be.zeros(other.nnz())?);
    refused(plan.values(be, None, &entries, &mut more), "y")?;
    refused(plan.values(be, None, &more, &mut be.zeros(a.nnz())?), "x")?;
    refused(wide.distance(be).map(drop), "a row")?;
    refused(wide.breadth_first(be, 6).map(drop), "a row")?;
    refused(wide.renumbered(be, &numbering).map(drop), "a row")?;
    refused(load(rows(7, 7, &[2], 1))?.renumbered(be, &numbering).map(drop), "the matrix")?;
    let (x, mut short) = (be.upload(&[T::one(); 6])?, be.zeros(5)?);
    refused(numbering.renumber(be, None, &x, &mut short), "y")?;
    refused(numbering.restore(be, None, &x, &mut short), "y")
}
