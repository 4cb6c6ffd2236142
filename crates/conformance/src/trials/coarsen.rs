//! Trials of algebraic coarsening: aggregates, prolongation, scaling, bit by bit against the host's; refusals.

use std::rc::Rc;

use spandrel_backend::{Coarsen, Error, Mat, Prolongation, Result as DeviceResult};
use spandrel_formats::amg::{self, Aggregates, Strength, Tentative, smoothed};
use spandrel_formats::{Csr, Ordinal, Real, product};

use super::made::{Built, Makes, alike_by_any_kernel as alike, generated, of_type, on_each, poison, rows, with_values};
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// A matrix, its rows per node, and the share from which couplings are strong.
struct Case {
    name: &'static str,
    build: fn() -> Built,
    unknowns: usize,
    strength: f64,
}

const fn case(name: &'static str, unknowns: usize, strength: f64, build: fn() -> Built) -> Case {
    Case { name, build, unknowns, strength }
}

const CASES: [Case; 13] = [
    case("poisson2d-33x17", 1, 0.25, || spec("poisson2d:33x17")),
    case("d3n27-9x8x7", 1, 0.25, || spec("d3n27:9x8x7")),
    case("random-values-31x29", 1, 0.25, || generated("poisson2d:31x29")),
    case("electrostatic-3000", 1, 0.25, || spec("electrostatic:n=3000")),
    case("power-law-3000", 1, 0.0, || generated("powerlaw:n=3000")),
    case("elasticity2d-12", 2, 0.1, || spec("elasticity2d:12")),
    case("elasticity3d-6", 3, 0.1, || spec("elasticity3d:6")),
    case("elasticity3d-6-by-6", 6, 0.1, || generated("elasticity3d:6")),
    case("banded-700-d45", 1, 0.5, || generated("banded:n=700,d=45")),
    case("1x1", 1, 0.25, || rows(1, 1, &[1], 1)),
    case("0x0", 1, 0.25, || rows(0, 0, &[0], 1)),
    case("no-couplings", 2, 0.25, || Csr::from_triplets(40, 40, (0..40).map(|i| (i, i, 2.0)))),
    case("empty-rows", 1, 0.0, || rows(500, 500, &[0, 1, 5, 0, 17], 1)),
];

/// For the kernels of a GPU, which few rows do not fill.
const LARGE: [Case; 4] = [
    case("poisson3d-50", 1, 0.25, || spec("poisson3d:50")),
    case("electrostatic-100000", 1, 0.25, || spec("electrostatic:n=100000")),
    case("power-law-40000", 1, 0.0, || generated("powerlaw:n=40000")),
    case("elasticity3d-20", 3, 0.1, || spec("elasticity3d:20")),
];

fn spec(spec: &str) -> Built {
    crate::generated(spec)
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Makes<T> + Coarsen<Csr<T>> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for Case { name, build, unknowns, strength } in CASES.into_iter().chain(large) {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("coarsen/csr/{}/{}/{name}", T::NAME, fleet.name), move || {
            let a = of_type::<T>(build())?;
            on_each::<D, T>(&fleet.devices, |be| {
                coarsened(be, &a, unknowns, strength)?;
                scaled(be, &a)
            })
        }));
    }
    let fleet = fleet.clone();
    out.push(Trial::new(format!("coarsen/csr/{}/{}/refusals", T::NAME, fleet.name), move || {
        on_each::<D, T>(&fleet.devices, |be| refusals::<T, D>(be))
    }));
}

fn same<T: Real>(what: &str, found: &[T], wanted: &[T]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

/// Near-null-space vectors: constants of the unknowns; numbers, one of them twice.
fn near_null<T: Real>(n: usize, unknowns: usize) -> [Vec<T>; 2] {
    let constant = |c: usize| (0..n).map(move |row| if row % unknowns == c { T::one() } else { T::zero() });
    let first: Vec<T> = numbers(11, n);
    let second: Vec<T> = numbers(12, n);
    [(0..unknowns).flat_map(constant).collect(), [&first[..], &second, &first].concat()]
}

fn coarsened<T: Real, D: Makes<T> + Coarsen<Csr<T>>>(be: &D, a: &Csr<T>, unknowns: usize, strength: f64) -> Verdict {
    let graph = Strength::of(a, unknowns, strength)?;
    let aggregates = Aggregates::of(&graph, a);
    let device = Mat::<D, Csr<T>>::load(be, a.clone())?;
    let found = device.aggregate(be, unknowns, strength)?;
    if found.count() != aggregates.count() {
        return Err(wrong(format!("aggregates: expected {}, found {}", aggregates.count(), found.count())));
    }
    let assignment = found.assignment(be)?;
    if let Some(node) = assignment.iter().zip(aggregates.assignment()).position(|(f, w)| f != w) {
        let (found, wanted) = (assignment[node], aggregates.assignment()[node]);
        return Err(wrong(format!("node {node} is in aggregate {found}, expected {wanted}")));
    }
    if assignment.len() != graph.nodes() {
        return Err(wrong(format!("nodes: expected {}, found {}", graph.nodes(), assignment.len())));
    }
    let n = a.row_ptr().len() - 1;
    for vectors in near_null::<T>(n, unknowns).into_iter().filter(|vectors| !vectors.is_empty()) {
        let count = vectors.len() / n;
        let tentative = Tentative::of(&aggregates, unknowns, &vectors, count)?;
        let wanted = smoothed(a, &graph, &aggregates, &tentative)?;
        let Prolongation { p, near_null, dropped } = device.prolongation(be, &found, &be.upload(&vectors)?)?;
        alike(be, &format!("the prolongation of {count} vectors"), &p, &wanted)?;
        same("the coarse vectors", &be.download(&near_null)?, tentative.coarse())?;
        let mut marks = vec![T::zero(); aggregates.count() * count];
        tentative.dropped().iter().for_each(|&unknown| marks[unknown] = T::one());
        same("what was dropped", &be.download(&dropped)?, &marks)?;
        let (transposed, coarse) = device.galerkin(be, &p)?;
        let host = [wanted.transpose(), product(&wanted.transpose(), &product(a, &wanted)?)?];
        alike(be, "the transpose", &transposed, &host[0])?;
        alike(be, "the coarse matrix", &coarse, &host[1])?;
        // What a cycle is made of.
        let ones = be.upload(&vec![T::one(); wanted.ncols()])?;
        alike(be, "the transpose, scaled", &transposed.scaled(be, &ones, None)?, &host[0])?;
        // New values, computed by a plan that was made of values that it must not depend on.
        let mut device = Mat::<D, Csr<T>>::load(be, a.map(|_| T::nan()))?;
        let (mut to, mut plan) = device.coarser(be, &found, &be.upload(&vectors)?)?;
        same("the coarse vectors of a plan", &be.download(&to.near_null)?, tentative.coarse())?;
        let other = with_values(a, 1);
        let p = smoothed(&other, &graph, &aggregates, &tentative)?;
        let of_other = product(&p.transpose(), &product(&other, &p)?)?;
        let [transposed, coarse] = host;
        let rounds = [(a, wanted, transposed, coarse), (&other, p.clone(), p.transpose(), of_other)];
        for (round, (a, p, transposed, mut coarse)) in rounds.into_iter().enumerate() {
            device.update_values(be, a.values())?;
            for made in [&mut to.p, &mut to.transposed, &mut to.a] {
                poison(be, made)?;
            }
            plan.numeric(be, &device, &mut to)?;
            for &unknown in tentative.dropped() {
                let begin = coarse.row_ptr()[unknown] as usize;
                if let Ok(at) = coarse.row(unknown).0.binary_search(&(unknown as Ordinal)) {
                    coarse.values_mut()[begin + at] += T::one();
                }
            }
            alike(be, &format!("round {round}, the prolongation"), &to.p, &p)?;
            alike(be, &format!("round {round}, the transpose"), &to.transposed, &transposed)?;
            alike(be, &format!("round {round}, the coarse matrix"), &to.a, &coarse)?;
        }
    }
    Ok(())
}

/// Scaling, and operations with diagonals.
fn scaled<T: Real, D: Makes<T> + Coarsen<Csr<T>>>(be: &D, a: &Csr<T>) -> Verdict {
    let n = a.row_ptr().len() - 1;
    let device = Mat::<D, Csr<T>>::load(be, a.clone())?;
    looked_at(be, &device, a)?;
    // Each kind of row that is unfit, beside good ones.
    for (seed, bad) in [T::nan(), T::infinity(), T::zero(), -T::one(), T::min_positive_value()].into_iter().enumerate()
    {
        let mut other = a.clone();
        let Some(at) = (0..n).rev().nth(n / 2).and_then(|row| {
            let begin = other.row_ptr()[row] as usize;
            other.row(row).0.iter().position(|&col| col as usize == row).map(|k| begin + k)
        }) else {
            break;
        };
        other.values_mut()[at] = bad;
        if seed % 2 == 0 && at > 0 {
            other.values_mut()[at - 1] = T::nan();
        }
        looked_at(be, &Mat::<D, Csr<T>>::load(be, other.clone())?, &other)?;
    }
    let (left, right): (Vec<T>, Vec<T>) = (numbers(21, n), numbers(22, n));
    let (on_left, on_right) = (be.upload(&left)?, be.upload(&right)?);
    let rows = device.scaled(be, &on_left, None)?;
    alike(be, "rows scaled", &rows, &a.map_entries(|row, _, v| v * left[row]))?;
    let both = device.scaled(be, &on_left, Some(&on_right))?;
    let wanted = a.map_entries(|row, col, v| v * (right[col] * left[row]));
    alike(be, "rows and columns scaled", &both, &wanted)?;
    let mut taken = device.scaled(be, &on_left, None)?;
    taken.copy_values(be, &both)?;
    alike(be, "values taken over", &taken, &wanted)?;
    alike(be, "the matrix that shares the pattern", &device, a)?;
    // The same, written to a matrix that there is already.
    poison(be, &mut taken)?;
    device.scaled_into(be, &on_left, None, &mut taken)?;
    alike(be, "rows scaled in place", &taken, &a.map_entries(|row, _, v| v * left[row]))?;
    poison(be, &mut taken)?;
    device.scaled_into(be, &on_left, Some(&on_right), &mut taken)?;
    alike(be, "rows and columns scaled in place", &taken, &wanted)?;
    taken.add_to_diagonal(be, &on_right)?;
    let added = wanted.map_entries(|row, col, v| if row == col { v + right[row] } else { v });
    alike(be, "a diagonal added", &taken, &added)
}

fn looked_at<T: Real, D: Coarsen<Csr<T>>>(be: &D, device: &Mat<D, Csr<T>>, a: &Csr<T>) -> Verdict {
    let (found, wanted) = (device.scaling(be)?, amg::Scaling::of(a));
    if found.unfit != wanted.unfit {
        return Err(wrong(format!("the first unfit row: expected {:?}, found {:?}", wanted.unfit, found.unfit)));
    }
    if wanted.unfit.is_some() {
        return Ok(());
    }
    same("the diagonal", &be.download(&found.diagonal)?, &wanted.diagonal)?;
    same("its inverse", &be.download(&found.inverse)?, &wanted.inverse)?;
    match found.bound.to_bits() == wanted.bound.to_bits() {
        true => Ok(()),
        false => Err(wrong(format!("the bound: expected {:e}, found {:e}", wanted.bound, found.bound))),
    }
}

fn refusals<T: Real, D: Makes<T> + Coarsen<Csr<T>>>(be: &D) -> Verdict {
    let load = |built: Built| Ok::<_, Finding>(Mat::<D, Csr<T>>::load(be, of_type::<T>(built)?)?);
    let refused = |what: &str, outcome: DeviceResult<()>| match outcome {
        Err(Error::Shape { .. } | Error::Format(spandrel_formats::Error::Shape { .. })) => Ok(()),
        Err(other) => Err(wrong(format!("{what}: expected a refusal of a size, found \"{other}\""))),
        Ok(()) => Err(wrong(format!("{what} was not refused"))),
    };
    let (square, wide) = (load(spec("poisson2d:6x5"))?, load(rows(6, 8, &[2], 1))?);
    refused("aggregates of a matrix that is not square", wide.aggregate(be, 1, 0.25).map(drop))?;
    refused("a look at the diagonal of it", wide.scaling(be).map(drop))?;
    for unknowns in [0, 4, 7, 10] {
        refused("nodes of other sizes", square.aggregate(be, unknowns, 0.25).map(drop))?;
    }
    let aggregates = square.aggregate(be, 1, 0.25)?;
    for len in [0, 29, 31] {
        let near_null = be.upload(&vec![T::one(); len])?;
        refused("a near-null space of another length", square.prolongation(be, &aggregates, &near_null).map(drop))?;
    }
    let (short, full) = (be.upload(&[T::one(); 5])?, be.upload(&[T::one(); 30])?);
    refused("another matrix's aggregates", wide.prolongation(be, &aggregates, &short).map(drop))?;
    refused("a prolongation of other rows", square.galerkin(be, &wide).map(drop))?;
    refused("a coarse version of what is not square", wide.galerkin(be, &square).map(drop))?;
    refused("too few scales of rows", square.scaled(be, &short, None).map(drop))?;
    refused("too few scales of columns", square.scaled(be, &full, Some(&short)).map(drop))?;
    let mut own = square.scaled(be, &full, None)?;
    refused("the values of another matrix", own.copy_values(be, &wide))?;
    refused("a place of another size", wide.scaled_into(be, &be.upload(&[T::one(); 6])?, None, &mut own))?;
    refused("too few scales of rows in place", square.scaled_into(be, &short, None, &mut own))?;
    refused("too few scales of columns in place", square.scaled_into(be, &full, Some(&short), &mut own))?;
    refused("a plan of another matrix's aggregates", wide.coarser(be, &aggregates, &short).map(drop))?;
    for len in [0, 29, 31] {
        let near_null = be.upload(&vec![T::one(); len])?;
        refused("a plan of vectors of another length", square.coarser(be, &aggregates, &near_null).map(drop))?;
    }
    let (mut to, mut plan) = square.coarser(be, &aggregates, &full)?;
    refused("a matrix of another size for a plan", plan.numeric(be, &wide, &mut to))?;
    let other = load(spec("poisson2d9:6x5"))?;
    refused("a matrix of more entries for a plan", plan.numeric(be, &other, &mut to))?;
    std::mem::swap(&mut to.p, &mut to.transposed);
    refused("P and P^T in each other's place", plan.numeric(be, &square, &mut to))?;
    refused("a diagonal of another length", own.add_to_diagonal(be, &short))
}
