//! Trials of the vector operations and the fused steps: bits against plain loops on every device, behind gates, and
//! fused against the contract's default bodies.
//!
//! One enumeration of the operations serves all of them: [`run`] executes an operation on a device, and [`expected`] is
//! its result.

use std::rc::Rc;

use spandrel_backend::{self as steps, Coeff, EveryMethod, Result};
use spandrel_formats::Real;

use crate::case::{Stream, numbers};
use crate::oracle::check_dot;
use crate::plain::Plain;
use crate::reference::{A, B, Factor, difference, finish, tree_dot};
use crate::subject::{DeviceFactor, Fleet, GateState, gate};
use crate::trial::{Finding, Trial, Verdict, wrong};

/// An operation on vectors 0 to 5 and scalars.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// v1 <- 2.5.
    Fill,
    /// v1 <- v0.
    Copy,
    /// v1 <- a v0 + b v1.
    Axpby(Factor, Factor),
    /// v1 <- a v0 + b v1; v2 <- c v1 + d v2.
    AxpbyChain([Factor; 2], [Factor; 2]),
    /// v2 <- a v0 + b v1 + c v2.
    Axpbypcz(Factor, Factor, Factor),
    /// v2 <- v0 .* v1.
    Hadamard,
    /// s0 <- v0 . v1.
    Dot,
    /// s0 <- ||v0||.
    Norm2,
    /// s0 <- a.
    Assign(Factor),
    /// p, q, x, r are v0, v1, v2, v3.
    CgUpdate(Factor),
    /// v, r are v0, v3.
    BicgstabHalf(Factor),
    /// p, t, x, r, s, shadow are v0, v1, v2, v3, v4, v5; without s if the flag is false.
    BicgstabUpdate(Factor, Factor, bool),
    /// d, z, r are v0, v2, v3.
    HadamardDot,
}

use Operation::*;

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Fill => "fill",
            Copy => "copy",
            Axpby(..) => "axpby",
            AxpbyChain(..) => "axpby_chain",
            Axpbypcz(..) => "axpbypcz",
            Hadamard => "hadamard",
            Dot => "dot",
            Norm2 => "norm2",
            Assign(..) => "assign",
            CgUpdate(..) => "cg_update",
            BicgstabHalf(..) => "bicgstab_half",
            BicgstabUpdate(..) => "bicgstab_update",
            HadamardDot => "hadamard_dot",
        }
    }

    /// The vectors that it writes, and the number of scalars.
    fn outputs(self) -> (&'static [usize], usize) {
        match self {
            Fill | Copy | Axpby(..) => (&[1], 0),
            AxpbyChain(..) => (&[1, 2], 0),
            Axpbypcz(..) | Hadamard => (&[2], 0),
            Dot | Norm2 | Assign(..) => (&[], 1),
            CgUpdate(..) => (&[2, 3], 1),
            BicgstabHalf(..) => (&[3], 1),
            BicgstabUpdate(..) => (&[2, 3], 2),
            HadamardDot => (&[2], 1),
        }
    }

    /// The vector that it writes and must not read.
    fn unread<T: Real>(self) -> Option<usize> {
        let zero = |f: Factor| f.value::<T>() == T::zero();
        match self {
            Fill | Copy => Some(1),
            Axpby(_, b) | AxpbyChain([_, b], _) if zero(b) => Some(1),
            AxpbyChain(_, [_, d]) if zero(d) => Some(2),
            Axpbypcz(_, _, c) if zero(c) => Some(2),
            Hadamard | HadamardDot => Some(2),
            _ => None,
        }
    }

    /// All operations with the coefficients of the trials.
    fn all() -> Vec<Operation> {
        let mut all = vec![Fill, Copy, Hadamard, Dot, Norm2, HadamardDot];
        for a in A {
            all.extend(B.map(|b| Axpby(a, b)));
            all.extend([Assign(a), CgUpdate(a), BicgstabHalf(a)]);
        }
        all.extend(B.map(Assign));
        for (b, d) in B.into_iter().zip(B.into_iter().rev()) {
            all.extend([AxpbyChain([A[1], b], [A[4], d]), AxpbyChain([A[3], d], [A[5], b])]);
        }
        for c in B {
            all.extend([Axpbypcz(A[3], B[1], c), Axpbypcz(A[5], B[4], c), Axpbypcz(A[1], B[0], c)]);
        }
        for with_s in [false, true] {
            all.extend([BicgstabUpdate(A[4], A[5], with_s), BicgstabUpdate(A[3], A[0], with_s)]);
        }
        all
    }
}

/// Vectors and initial scalars: six vectors of one length.
#[derive(Debug)]
pub(crate) struct Operands<T> {
    vectors: [Vec<T>; 6],
}

/// The value of scalars before an operation whose gate lets nothing through.
const SENTINEL: f64 = 42.0;

impl<T: Real> Operands<T> {
    fn new(len: usize, wide: bool) -> Self {
        let mut vectors = [0u64, 1, 2, 3, 4, 5].map(|k| numbers(k * 1_000_003 + len as u64, len));
        if wide {
            // Exponents up to +-15 keep squares and their sums in the range of f32.
            let mut stream = Stream::new(len as u64);
            let mut widen = |v: &mut T| *v *= T::from_f64(10f64.powf(30.0 * stream.unit() - 15.0));
            vectors.iter_mut().for_each(|vector| vector.iter_mut().for_each(&mut widen));
        }
        Self { vectors }
    }
}

/// The results of an operation: the vectors that it writes, then the scalars.
type Left<T> = Vec<Vec<T>>;

/// Runs an operation on a device. Outputs are filled with NaN if nothing may read them and the gate does not protect
/// them.
pub(crate) fn run<T: Real, D: EveryMethod<T>>(
    be: &D,
    operation: Operation,
    state: GateState,
    operands: &Operands<T>,
) -> Result<Left<T>> {
    let stopped = state == GateState::Stopped;
    let poison = if stopped { T::from_f64(SENTINEL) } else { T::nan() };
    let len = operands.vectors[0].len();
    let unread = operation.unread::<T>().filter(|_| !stopped);
    let [v0, mut v1, mut v2, mut v3, v4, v5] = [0usize, 1, 2, 3, 4, 5].map(|k| {
        let mut v = be.zeros(len)?;
        if unread == Some(k) {
            be.write(&vec![T::nan(); len], &mut v)?;
        } else {
            be.write(&operands.vectors[k], &mut v)?;
        }
        Ok::<_, spandrel_backend::Error>(v)
    });
    let (v0, v4, v5) = (&v0?, &v4?, &v5?);
    let (v1, v2, v3) = (v1.as_mut(), v2.as_mut(), v3.as_mut());
    let (Ok(v1), Ok(v2), Ok(v3)) = (v1, v2, v3) else {
        return Err(spandrel_backend::Error::OutOfMemory { device: D::NAME, what: "operands", bytes: 0 });
    };
    let (mut s0, mut s1) = (be.scalar(poison)?, be.scalar(poison)?);
    let monitor = gate(be, state)?;
    let gate = monitor.as_ref();
    let up = |factor: &Factor| DeviceFactor::new(be, factor);
    match operation {
        Fill => be.fill(gate, T::from_f64(2.5), v1)?,
        Copy => be.copy(gate, v0, v1)?,
        Axpby(a, b) => be.axpby(gate, up(&a)?.coeff(), v0, up(&b)?.coeff(), v1)?,
        AxpbyChain(first, second) => {
            let [a, b, c, d] = [&up(&first[0])?, &up(&first[1])?, &up(&second[0])?, &up(&second[1])?];
            be.axpby_chain(gate, [a.coeff(), b.coeff()], v0, v1, [c.coeff(), d.coeff()], v2)?;
        }
        Axpbypcz(a, b, c) => {
            be.axpbypcz(gate, up(&a)?.coeff(), v0, up(&b)?.coeff(), v1, up(&c)?.coeff(), v2)?;
        }
        Hadamard => be.hadamard(gate, v0, v1, v2)?,
        Dot => be.dot(gate, v0, v1, &mut s0)?,
        Norm2 => be.norm2(gate, v0, &mut s0)?,
        Assign(a) => be.assign(gate, up(&a)?.coeff(), &mut s0)?,
        CgUpdate(a) => {
            let alpha = &up(&a)?;
            be.cg_update(gate, steps::CgUpdate { alpha: alpha.coeff(), p: v0, q: v1, x: v2, r: v3, rr: &mut s0 })?;
        }
        BicgstabHalf(a) => {
            let alpha = &up(&a)?;
            be.bicgstab_half(gate, steps::BicgstabHalf { alpha: alpha.coeff(), v: v0, r: v3, ss: &mut s0 })?;
        }
        BicgstabUpdate(a, o, with_s) => {
            let (a, o) = (up(&a)?, up(&o)?);
            let s = with_s.then_some(v4);
            let (alpha, omega, rr, rho) = (a.coeff(), o.coeff(), &mut s0, &mut s1);
            let on = steps::BicgstabUpdate { alpha, p: v0, omega, s, t: v1, shadow: v5, x: v2, r: v3, rr, rho };
            be.bicgstab_update(gate, on)?;
        }
        HadamardDot => be.hadamard_dot(gate, v0, v3, v2, &mut s0)?,
    }
    let (written, scalars) = operation.outputs();
    let mut left = Vec::new();
    for &k in written {
        left.push(be.download(match k {
            1 => &*v1,
            2 => &*v2,
            _ => &*v3,
        })?);
    }
    for scalar in [&s0, &s1].into_iter().take(scalars) {
        left.push(vec![be.download_scalar(scalar)?]);
    }
    Ok(left)
}

/// The expected results of an operation, by plain loops.
fn expected<T: Real>(operation: Operation, operands: &Operands<T>) -> Left<T> {
    let [v0, v1, v2, v3, v4, v5] = &operands.vectors;
    let axpby =
        |a: T, x: &[T], b: T, y: &[T]| -> Vec<T> { x.iter().zip(y).map(|(&x, &y)| finish(a, x, b, y)).collect() };
    let axpbypcz = |a: T, x: &[T], b: T, y: &[T], c: T, z: &[T]| -> Vec<T> {
        (0..x.len()).map(|i| a.mul_add(x[i], finish(b, y[i], c, z[i]))).collect()
    };
    let product = |x: &[T], y: &[T]| -> Vec<T> { x.iter().zip(y).map(|(&x, &y)| x * y).collect() };
    match operation {
        Fill => vec![vec![T::from_f64(2.5); v1.len()]],
        Copy => vec![v0.clone()],
        Axpby(a, b) => vec![axpby(a.value(), v0, b.value(), v1)],
        AxpbyChain([a, b], [c, d]) => {
            let y = axpby(a.value(), v0, b.value(), v1);
            let z = axpby(c.value(), &y, d.value(), v2);
            vec![y, z]
        }
        Axpbypcz(a, b, c) => vec![axpbypcz(a.value(), v0, b.value(), v1, c.value(), v2)],
        Hadamard => vec![product(v0, v1)],
        Dot => vec![vec![tree_dot(v0, v1)]],
        Norm2 => vec![vec![tree_dot(v0, v0).sqrt()]],
        Assign(a) => vec![vec![a.value()]],
        CgUpdate(a) => {
            let a: T = a.value();
            let (x, r) = (axpby(a, v0, T::one(), v2), axpby(-a, v1, T::one(), v3));
            let rr = vec![tree_dot(&r, &r)];
            vec![x, r, rr]
        }
        BicgstabHalf(a) => {
            let r = axpby(-a.value::<T>(), v0, T::one(), v3);
            let ss = vec![tree_dot(&r, &r)];
            vec![r, ss]
        }
        BicgstabUpdate(a, o, with_s) => {
            let (a, o): (T, T) = (a.value(), o.value());
            let x = axpbypcz(a, v0, o, if with_s { v4 } else { v3 }, T::one(), v2);
            let r = axpby(-o, v1, T::one(), v3);
            let (rr, rho) = (vec![tree_dot(&r, &r)], vec![tree_dot(v5, &r)]);
            vec![x, r, rr, rho]
        }
        HadamardDot => {
            let z = product(v0, v3);
            let rz = vec![tree_dot(v3, &z)];
            vec![z, rz]
        }
    }
}

/// The first difference between the results of two runs, in words.
fn differing<T: Real>(operation: Operation, what: &str, found: &Left<T>, wanted: &Left<T>) -> Verdict {
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        if let Some(detail) = difference(found, wanted) {
            return Err(wrong(format!("{what}, output {number} of {operation:?}: {detail}")));
        }
    }
    Ok(())
}

/// Every use of one operation (all its coefficients) at one length.
fn values<T: Real, D: EveryMethod<T>>(fleet: &Fleet<D>, uses: &[Operation], operands: &Operands<T>) -> Verdict {
    let be = fleet.first();
    for &operation in uses {
        let left = run(be, operation, GateState::None, operands)?;
        if let Dot = operation {
            let [v0, v1, ..] = &operands.vectors;
            check_dot(v0, v1, left[0][0]).map_err(wrong)?;
        }
        differing(operation, "against a plain loop", &left, &expected(operation, operands))?;
        differing(operation, "run 2 against run 1", &run(be, operation, GateState::None, operands)?, &left)?;
        for (label, other) in &fleet.devices[1..] {
            differing(operation, label, &run(other, operation, GateState::None, operands)?, &left)?;
        }
        // The defaults of the contract are the specification of the fused steps.
        differing(operation, "fused against default", &left, &run(&Plain(be), operation, GateState::None, operands)?)?;
    }
    Ok(())
}

/// A stopped gate leaves every output alone, and a running one changes nothing.
fn gated<T: Real, D: EveryMethod<T>>(be: &D, uses: &[Operation], operands: &Operands<T>) -> Verdict {
    for &operation in uses {
        let (written, scalars) = operation.outputs();
        let mut before: Left<T> = written.iter().map(|&k| operands.vectors[k].clone()).collect();
        before.extend(vec![vec![T::from_f64(SENTINEL)]; scalars]);
        differing(operation, "behind a stopped monitor", &run(be, operation, GateState::Stopped, operands)?, &before)?;
        let free = run(be, operation, GateState::None, operands)?;
        differing(operation, "behind a running monitor", &run(be, operation, GateState::Running, operands)?, &free)?;
    }
    Ok(())
}

/// The uses of each operation, by name.
fn by_name() -> Vec<(&'static str, Rc<Vec<Operation>>)> {
    let mut names: Vec<&'static str> = Operation::all().iter().map(|operation| operation.name()).collect();
    names.sort_unstable();
    names.dedup();
    let uses = |name| Operation::all().into_iter().filter(|operation| operation.name() == name).collect();
    names.into_iter().map(|name| (name, Rc::new(uses(name)))).collect()
}

/// Lengths around lanes, blocks and levels of the tree, and one that several threads share. The last needs three
/// levels.
pub(crate) const LENGTHS: [usize; 12] = [0, 1, 31, 32, 33, 1023, 1024, 1025, 2049, 33_333, 70_001, (1 << 20) + 1];

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: EveryMethod<T> + 'static>(fleet: &Rc<Fleet<D>>, large: bool, out: &mut Vec<Trial>) {
    for (name, uses) in by_name() {
        let label = |case: &str| format!("{name}/vector/{}/{}/{case}", T::NAME, fleet.name);
        for len in LENGTHS {
            // The longest is for the sums; a few uses of each operation are enough.
            let few = len > 100_000;
            if few && !large {
                continue;
            }
            for wide in [false, true] {
                if wide && (few || !matches!(name, "dot" | "norm2")) {
                    continue;
                }
                let (fleet, uses) = (fleet.clone(), uses.clone());
                let case = if wide { format!("{len}-wide") } else { len.to_string() };
                out.push(Trial::new(label(&case), move || {
                    let uses = if few { &uses[..uses.len().min(2)] } else { &uses };
                    values(&fleet, uses, &Operands::<T>::new(len, wide))
                }));
            }
        }
        for len in [33, 70_001] {
            let (fleet, uses) = (fleet.clone(), uses.clone());
            out.push(Trial::new(label(&format!("{len}-gated")), move || {
                gated(fleet.first(), &uses, &Operands::<T>::new(len, false))
            }));
        }
    }
    let shared = fleet.clone();
    out.push(Trial::new(format!("dot/vector/{}/{}/not-finite", T::NAME, fleet.name), move || {
        not_finite::<T, D>(shared.first())
    }));
    let shared = fleet.clone();
    out.push(Trial::new(format!("download_scalars/vector/{}/{}/row", T::NAME, fleet.name), move || {
        rows_of_scalars::<T, D>(shared.first())
    }));
}

/// Scalars of one row are independent for operations, and are fetched together in order, whichever are requested.
fn rows_of_scalars<T: Real, D: EveryMethod<T>>(be: &D) -> Verdict {
    let mut row = be.scalars(70, T::nan())?;
    let ones = be.upload(&[T::one(); 5])?;
    for (i, s) in row.iter_mut().enumerate() {
        be.assign(None, Coeff::host(T::from_f64(i as f64)), s)?;
    }
    be.dot(None, &ones, &ones, &mut row[33])?;
    let wanted: Vec<T> = (0..70).map(|i| T::from_f64(if i == 33 { 5.0 } else { f64::from(i) })).collect();
    for (from, to) in [(0, 70), (33, 34), (1, 69), (12, 12)] {
        if let Some(detail) = difference(&be.download_scalars(&row[from..to])?, &wanted[from..to]) {
            return Err(wrong(format!("scalars {from} to {to} of a row: {detail}")));
        }
    }
    // Two rows, out of order, and a single scalar.
    let mut mixed = be.scalars(2, T::from_f64(-1.0))?;
    mixed.push(be.scalar(T::from_f64(7.0))?);
    mixed.extend(row.drain(40..42));
    mixed.swap(0, 4);
    let wanted = [41.0, -1.0, 7.0, 40.0, -1.0].map(T::from_f64);
    match difference(&be.download_scalars(&mixed)?, &wanted) {
        Some(detail) => Err(wrong(format!("scalars of two rows: {detail}"))),
        None if be.scalars(0, T::one())?.is_empty() => Ok(()),
        None => Err(wrong("a row of no scalars has some")),
    }
}

/// NaN and infinity at any place reach the dot product and the norm.
fn not_finite<T: Real, D: EveryMethod<T>>(be: &D) -> Verdict {
    for at in [0, 31, 1023, 1024, 2049] {
        for value in [T::nan(), T::infinity()] {
            let mut operands = Operands::<T>::new(2050, false);
            operands.vectors[0][at] = value;
            for operation in [Dot, Norm2] {
                let found = run(be, operation, GateState::None, &operands)?[0][0];
                if found.is_finite() {
                    return Err(Finding::Wrong(format!("{operation:?} with {value} at {at}: found {found:e}")));
                }
                differing(operation, "not finite", &vec![vec![found]], &expected(operation, &operands))?;
            }
        }
    }
    Ok(())
}

/// Two backends that promise the same bits of every vector operation.
pub(crate) fn pair<T: Real, D: EveryMethod<T> + 'static, E: EveryMethod<T> + 'static>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    out: &mut Vec<Trial>,
) {
    for (name, uses) in by_name() {
        for len in [33, 2049, 70_001] {
            let (left, right, uses) = (left.clone(), right.clone(), uses.clone());
            let label = format!("{name}/vector/{}/{}+{}/{len}", T::NAME, left.name, right.name);
            out.push(Trial::new(label, move || {
                let operands = Operands::<T>::new(len, false);
                for &operation in uses.iter() {
                    let a = run(left.first(), operation, GateState::None, &operands)?;
                    let b = run(right.first(), operation, GateState::None, &operands)?;
                    differing(operation, "one backend against the other", &a, &b)?;
                }
                Ok(())
            }));
        }
    }
}
