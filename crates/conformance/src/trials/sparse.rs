//! Trials of the operations with a sparse vector: bits against plain loops, gates, every device.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Result, SparseVector};
use spandrel_formats::{Real, SparseVec};

use crate::case::{Stream, numbers};
use crate::reference::{A, Factor, difference, tree_dot};
use crate::subject::{DeviceFactor, Fleet, GateState, gate};
use crate::trial::{Finding, Trial, Verdict, wrong};

/// (name, length, distance between stored elements; 0 for none)
const SHAPES: [(&str, usize, usize); 8] = [
    ("empty", 0, 0),
    ("nothing-stored", 100, 0),
    ("one", 1, 1),
    ("33-of-33", 33, 1),
    ("last-only", 1025, 1025),
    ("1025-of-3075", 3075, 3),
    ("2400-of-12000", 12_000, 5),
    ("70001-of-140002", 140_002, 2),
];

struct Example<T> {
    indices: Vec<u32>,
    values: Vec<T>,
    y: Vec<T>,
}

/// One stored element per run of `every`: at a random place, and in the last run at its end.
fn example<T: Real>(len: usize, every: usize) -> Example<T> {
    let mut stream = Stream::new(len as u64);
    let count = len.checked_div(every).unwrap_or(0);
    let indices: Vec<u32> =
        (0..count).map(|k| (k * every + if k + 1 == count { every - 1 } else { stream.below(every) }) as u32).collect();
    Example { values: numbers(len as u64 + 1, indices.len()), y: numbers(len as u64 + 2, len), indices }
}

/// The four operations in sequence: y of axpy, s . y, gathered values, scattered y.
fn run<T: Real, D: SparseVector<T>>(be: &D, state: GateState, a: &Factor, e: &Example<T>) -> Result<[Vec<T>; 4]> {
    let host = SparseVec::new(e.y.len(), e.indices.clone(), e.values.clone())?;
    let mut s = be.load(Arc::new(host))?;
    let a = DeviceFactor::new(be, a)?;
    let monitor = gate(be, state)?;
    let gate = monitor.as_ref();
    let (mut updated, mut scattered) = (be.upload(&e.y)?, be.upload(&e.y)?);
    let mut dot = be.scalar(T::nan())?;
    be.sparse_axpy(gate, a.coeff(), &s, &mut updated)?;
    be.sparse_dot(gate, &s, &scattered, &mut dot)?;
    be.scatter(gate, &s, &mut scattered)?;
    be.gather(gate, &updated, &mut s)?;
    Ok([be.download(&updated)?, vec![be.download_scalar(&dot)?], be.download_sparse(&s)?, be.download(&scattered)?])
}

fn expected<T: Real>(a: &Factor, e: &Example<T>) -> [Vec<T>; 4] {
    let a: T = a.value();
    let (mut updated, mut scattered) = (e.y.clone(), e.y.clone());
    let mut packed = Vec::new();
    let mut gathered = Vec::new();
    for (&i, &value) in e.indices.iter().zip(&e.values) {
        let i = i as usize;
        packed.push(e.y[i]);
        updated[i] = a.mul_add(value, e.y[i]);
        gathered.push(updated[i]);
        scattered[i] = value;
    }
    [updated, vec![tree_dot(&e.values, &packed)], gathered, scattered]
}

const NAMES: [&str; 4] = ["sparse_axpy", "sparse_dot", "gather", "scatter"];

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: SparseVector<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for (which, operation) in NAMES.into_iter().enumerate() {
        for (shape, len, every) in SHAPES {
            let fleet = fleet.clone();
            let name = format!("{operation}/sparse_vec/{}/{}/{shape}", T::NAME, fleet.name);
            out.push(Trial::new(name, move || check(&fleet, which, &example::<T>(len, every))));
        }
    }
}

fn check<T: Real, D: SparseVector<T>>(fleet: &Fleet<D>, which: usize, e: &Example<T>) -> Verdict {
    let compare = |what: &str, found: &[T], wanted: &[T]| match difference(found, wanted) {
        None => Ok(()),
        Some(detail) => Err::<(), Finding>(wrong(format!("{what}: {detail}"))),
    };
    for a in &A {
        let wanted = expected(a, e);
        for (label, be) in &fleet.devices {
            compare(label, &run(be, GateState::None, a, e)?[which], &wanted[which])?;
        }
        compare("behind a running monitor", &run(fleet.first(), GateState::Running, a, e)?[which], &wanted[which])?;
        let before = [e.y.clone(), vec![T::nan()], e.values.clone(), e.y.clone()];
        compare("behind a stopped monitor", &run(fleet.first(), GateState::Stopped, a, e)?[which], &before[which])?;
    }
    Ok(())
}
