//! Trials of joined sums and of chosen entries: what a device of a rank must do beside the rest.
//!
//! A device that is joined to nobody has the bits of one that is not joined: every sum, and every step with its
//! monitor. Its roots are asked once per sum that is not gated, with the results of all blocks.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spandrel_backend::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabSecond, BicgstabUpdate, CgDirection, CgStep, CgUpdate,
    Coeff, Entries, EveryMethod, Join, Mat, Operator, Result, Roots, Spmv, Watch,
};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Bdia, Bsr, Csr, Dia, Ell, Format, Hyb, Real, Sell};

use crate::case::{Stream, numbers};
use crate::reference::{difference, tree_sum};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Completes sums of one device, times a factor, and counts how many.
#[derive(Debug)]
struct Alone {
    factor: f64,
    sums: AtomicUsize,
}

impl Alone {
    fn new(factor: f64) -> Arc<Self> {
        Arc::new(Self { factor, sums: AtomicUsize::new(0) })
    }

    fn complete<T: Real>(&self, blocks: &[T], roots: &mut [T]) {
        let each = blocks.len() / roots.len();
        for (i, root) in roots.iter_mut().enumerate() {
            *root = T::from_f64(self.factor) * tree_sum(blocks[i * each..(i + 1) * each].to_vec());
        }
        self.sums.fetch_add(roots.len(), Ordering::Relaxed);
    }
}

impl Roots for Alone {
    fn roots_f32(&self, blocks: &mut [f32], roots: &mut [f32]) -> Result<()> {
        self.complete(blocks, roots);
        Ok(())
    }
    fn roots_f64(&self, blocks: &mut [f64], roots: &mut [f64]) -> Result<()> {
        self.complete(blocks, roots);
        Ok(())
    }
}

/// What operations work on: vectors, scalars, a monitor, and a matrix.
struct State<T: Real, D: EveryMethod<T>> {
    v: [D::Vector; 6],
    s: [D::Scalar; 8],
    monitor: D::Monitor,
}

/// How the monitor stands before an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Monitor {
    Runs,
    /// Any norm that it observes stops it.
    Converges,
    Stopped,
}

impl<T: Real, D: EveryMethod<T>> State<T, D> {
    fn new(be: &D, n: usize, monitor: Monitor) -> Result<Self> {
        let vector = |seed: u64| be.upload(&numbers::<T>(seed, n));
        let scalar = |value: f64| be.scalar(T::from_f64(value));
        let threshold = if monitor == Monitor::Runs { 0.0 } else { f64::MAX };
        let mut watched = be.monitor(&Watch { threshold, divergence: f64::INFINITY, max_iters: 100 })?;
        if monitor == Monitor::Stopped {
            be.observe(&scalar(1.0)?, spandrel_backend::Phase::Full, &mut watched)?;
        }
        Ok(Self {
            v: [vector(1)?, vector(2)?, vector(3)?, vector(4)?, vector(5)?, vector(6)?],
            s: [
                scalar(42.0)?,
                scalar(42.0)?,
                scalar(0.75)?,
                scalar(1.5)?,
                scalar(-0.3)?,
                scalar(0.9)?,
                scalar(2.2)?,
                scalar(7.0)?,
            ],
            monitor: watched,
        })
    }

    /// Everything as numbers, and the monitor as text.
    fn left(&self, be: &D) -> Result<(Vec<T>, String)> {
        let mut all = Vec::new();
        for v in &self.v {
            all.extend(be.download(v)?);
        }
        for s in &self.s {
            all.push(be.download_scalar(s)?);
        }
        Ok((all, format!("{:?}", be.report(&self.monitor)?)))
    }
}

/// An operation with its name and the number of its sums.
type Use<T, D> = (&'static str, usize, fn(&D, &mut State<T, D>) -> Result<()>);

fn uses<T: Real, D: EveryMethod<T>>() -> Vec<Use<T, D>> {
    vec![
        ("dot", 1, |be, State { v: [x, y, ..], s: [out, ..], monitor }| be.dot(Some(&*monitor), x, y, out)),
        ("norm2", 1, |be, State { v: [x, ..], s: [out, ..], monitor }| be.norm2(Some(&*monitor), x, out)),
        ("hadamard_dot", 1, |be, State { v: [d, r, z, ..], s: [out, ..], monitor }| {
            be.hadamard_dot(Some(&*monitor), d, r, z, out)
        }),
        ("cg_update", 1, |be, State { v: [p, q, x, r, ..], s: [rr, _, rz, pq, ..], monitor }| {
            let alpha = Coeff::ratio(&*rz, &*pq);
            be.cg_update(Some(&*monitor), CgUpdate { alpha, p, q, x, r, rr })
        }),
        ("cg_step", 1, |be, State { v: [p, q, x, r, ..], s: [rr, _, rz, pq, _, next, ..], monitor }| {
            be.cg_step(CgStep { rz, pq, p, q, x, r, rr }, monitor)?;
            be.cg_direction(CgDirection { z: r, rz_next: next, checked: true, rz, pq, p, x }, monitor)
        }),
        (
            "cg_step-without-curvature",
            0,
            |be, State { v: [p, q, x, r, ..], s: [rr, _, rz, _, negative, ..], monitor }| {
                be.cg_step(CgStep { rz, pq: negative, p, q, x, r, rr }, monitor)
            },
        ),
        ("bicgstab_half", 1, |be, State { v: [v, r, ..], s: [ss, _, rho, rv, ..], monitor }| {
            let alpha = Coeff::ratio(&*rho, &*rv);
            be.bicgstab_half(Some(&*monitor), BicgstabHalf { alpha, v, r, ss })
        }),
        (
            "bicgstab_update",
            2,
            |be, State { v: [p, s, t, shadow, x, r], s: [rr, next, rho, rv, ts, tt, ..], monitor }| {
                let (alpha, omega) = (Coeff::ratio(&*rho, &*rv), Coeff::ratio(&*ts, &*tt));
                let on = BicgstabUpdate { alpha, p, omega, s: Some(s), t, shadow, x, r, rr, rho: next };
                be.bicgstab_update(Some(&*monitor), on)
            },
        ),
        ("bicgstab_first", 1, |be, State { v: [v, r, ..], s: [ss, _, rho, rv, ..], monitor }| {
            be.bicgstab_first(BicgstabFirst { rho, rv, v, r, ss }, monitor)
        }),
        (
            "bicgstab_second",
            2,
            |be, State { v: [p, v, t, shadow, x, r], s: [rr, next, rho, rv, ts, tt, ..], monitor }| {
                let on = BicgstabSecond { rho, rv, ts, tt, p, s: None, t, shadow, x, r, rr, rho_next: next };
                be.bicgstab_second(on, monitor)?;
                be.bicgstab_direction(BicgstabDirection { r, v, rho_next: next, rv, tt, ts, rho, p }, monitor)
            },
        ),
    ]
}

/// Compares an operation on the joined device with the same on the device.
fn compare<T: Real, D: EveryMethod<T> + Join>(
    be: &D,
    n: usize,
    monitor: Monitor,
    sums: usize,
    act: impl Fn(&D, &mut State<T, D>) -> Result<()>,
) -> Verdict {
    let (mut plain, mut joined) = (State::new(be, n, monitor)?, State::new(be, n, monitor)?);
    act(be, &mut plain)?;
    let alone = Alone::new(1.0);
    let roots: Arc<dyn Roots> = Arc::clone(&alone) as _;
    be.joined(&roots, |be| act(be, &mut joined))?;
    let (wanted, found) = (plain.left(be)?, joined.left(be)?);
    if let Some(detail) = difference(&found.0, &wanted.0) {
        return Err(wrong(format!("{monitor:?}: joined against plain: {detail}")));
    }
    if found.1 != wanted.1 {
        return Err(wrong(format!("{monitor:?}: the monitor of the joined device: {}, plain: {}", found.1, wanted.1)));
    }
    let expected = if monitor == Monitor::Stopped { 0 } else { sums };
    match alone.sums.load(Ordering::Relaxed) {
        asked if asked == expected => Ok(()),
        asked => Err(wrong(format!("{monitor:?}: {asked} roots were asked for, expected {expected}"))),
    }
}

/// Whether a scalar takes what the roots say, and not the sum of the device itself.
fn roots_decide<T: Real, D: EveryMethod<T> + Join>(be: &D, n: usize) -> Verdict {
    let (x, y) = (be.upload(&numbers::<T>(1, n))?, be.upload(&numbers::<T>(2, n))?);
    let (mut plain, mut joined) = (be.scalar(T::zero())?, be.scalar(T::zero())?);
    be.dot(None, &x, &y, &mut plain)?;
    let roots: Arc<dyn Roots> = Alone::new(4.0);
    be.joined(&roots, |be| be.dot(None, &x, &y, &mut joined))?;
    let (found, sum) = (be.download_scalar(&joined)?, be.download_scalar(&plain)?);
    match difference(&[found], &[T::from_f64(4.0) * sum]) {
        Some(detail) => Err(wrong(format!("dot: {detail}"))),
        None => Ok(()),
    }
}

/// The product with sums of one format.
fn product<F: Format, D: Spmv<F> + Entries<F::Value> + EveryMethod<F::Value> + Join>(be: &D, n: usize) -> Verdict {
    let entry = |i: usize, j: usize| F::Value::from_f64(1.0 + ((i * 7 + j * 3) % 11) as f64 / 16.0);
    let near = |i: usize| (i.saturating_sub(2)..(i + 3).min(n)).map(move |j| (i, j, entry(i, j)));
    let csr = Csr::from_triplets(n, n, (0..n).flat_map(near))?;
    let a = Mat::<D, F>::load(be, Arc::new(F::from_csr(&csr)?))?;
    for monitor in [Monitor::Runs, Monitor::Stopped] {
        compare::<F::Value, D>(be, n, monitor, 2, |be, State { v: [x, y, w, ..], s: [wy, yy, ..], monitor }| {
            a.apply_dot(be, Some(&*monitor), x, y, w, wy, Some(yy))
        })?;
        compare::<F::Value, D>(be, n, monitor, 1, |be, State { v: [x, y, w, ..], s: [wy, ..], monitor }| {
            a.apply_dot(be, Some(&*monitor), x, y, w, wy, None)
        })?;
    }
    // Some rows are formed by other work. Not all blocks have such rows.
    let mut rows: Vec<Ordinal> = [0, 1, n / 2, n - 1].iter().map(|&row| row as Ordinal).collect();
    rows.retain(|&row| (row as usize) < n);
    rows.sort_unstable();
    rows.dedup();
    let mut blocks: Vec<Ordinal> = rows.iter().map(|row| row / 1024).collect();
    blocks.dedup();
    let (rows, blocks) = (&be.places(n, &rows)?, &be.places(n.div_ceil(1024), &blocks)?);
    let of_rows = &be.upload(&numbers::<F::Value>(9, 4))?;
    for monitor in [Monitor::Runs, Monitor::Stopped] {
        for both in [true, false] {
            let act = |be: &D, State { v: [x, y, w, ..], s: [wy, yy, ..], monitor }: &mut State<F::Value, D>| {
                let (gate, yy) = (Some(&*monitor), both.then_some(yy));
                let rest = |y: &mut D::Vector| be.scatter_entries(gate, of_rows, 0, rows, y);
                be.apply_dot_around(gate, &a, x, y, w, wy, yy, blocks, rest)
            };
            compare::<F::Value, D>(be, n, monitor, 1 + usize::from(both), act)?;
        }
    }
    Ok(())
}

/// Chosen entries on all their ways.
fn entries<T: Real, D: Entries<T> + EveryMethod<T>>(be: &D, n: usize) -> Verdict {
    let mut stream = Stream::new(n as u64);
    let chosen: Vec<Ordinal> = (0..n as Ordinal).filter(|_| stream.below(3) == 0).collect();
    let host = numbers::<T>(5, n);
    let picked: Vec<T> = chosen.iter().map(|&i| host[i as usize]).collect();
    let (x, count) = (be.upload(&host)?, chosen.len());
    let places = be.places(n, &chosen)?;
    let check = |what: &str, found: &[T], wanted: &[T]| match difference(found, wanted) {
        Some(detail) => Err(wrong(format!("{what}: {detail}"))),
        None => Ok(()),
    };
    let filled = |len: usize| vec![T::from_f64(9.0); len];
    let with = |mut into: Vec<T>| {
        chosen.iter().zip(&picked).for_each(|(&i, &value)| into[i as usize] = value);
        into
    };

    let mut packed = be.upload(&filled(count + 7))?;
    be.gather_entries(&x, &places, &mut packed, 3)?;
    let around = [&filled(3)[..], &picked, &filled(4)].concat();
    check("gather_entries", &be.download(&packed)?, &around)?;
    let mut back = be.upload(&filled(n))?;
    let stopped = State::<T, D>::new(be, 1, Monitor::Stopped)?;
    be.scatter_entries(Some(&stopped.monitor), &packed, 3, &places, &mut back)?;
    check("scatter_entries behind a closed gate", &be.download(&back)?, &filled(n))?;
    be.scatter_entries(None, &packed, 3, &places, &mut back)?;
    check("scatter_entries", &be.download(&back)?, &with(filled(n)))?;
    let mut put = be.upload(&filled(n))?;
    be.put_entries(&picked, &places, &mut put)?;
    check("put_entries", &be.download(&put)?, &with(filled(n)))?;
    for (monitor, open) in [(None, true), (Some(Monitor::Runs), true), (Some(Monitor::Stopped), false)] {
        let state = monitor.map(|monitor| State::<T, D>::new(be, 1, monitor)).transpose()?;
        let mut fetched = filled(count);
        let is_open = be.fetch_entries(state.as_ref().map(|state| &state.monitor), &x, &places, &mut fetched)?;
        if is_open != open {
            return Err(wrong(format!("fetch_entries says {is_open} behind {monitor:?}")));
        }
        let wanted = if open { picked.clone() } else { filled(count) };
        check("fetch_entries", &fetched, &wanted)?;
    }
    let (at, len) = (n / 3, n / 2);
    let mut range = filled(len);
    be.read_range(&x, at, &mut range)?;
    check("read_range", &range, &host[at..at + len])?;
    let mut written = be.upload(&filled(n))?;
    be.write_range(&range, &mut written, at)?;
    let around = [&filled(at)[..], &range, &filled(n - at - len)].concat();
    check("write_range", &be.download(&written)?, &around)?;

    let refused = [
        be.places(n, &[n as Ordinal]).is_err(),
        be.read_range(&x, n, &mut [T::zero()]).is_err(),
        be.write_range(&[T::zero()], &mut written, n).is_err(),
        be.gather_entries(&x, &places, &mut packed, 8).is_err(),
        be.gather_entries(&packed, &places, &mut back, 0).is_err() || n == count + 7,
    ];
    match refused.iter().position(|refused| !refused) {
        Some(at) => Err(wrong(format!("a place or range beyond the vector is accepted (number {at})"))),
        None => Ok(()),
    }
}

const LENGTHS: [usize; 8] = [0, 1, 1023, 1024, 1025, 3000, 70_001, (1 << 20) + 1025];

/// The trials of a backend that can be joined.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: EveryMethod<T> + Join + Entries<T> + crate::EveryFormat<T>,
{
    let mut add = |noun: &str, n: usize, body: fn(&D, usize) -> Verdict| {
        let fleet = Rc::clone(fleet);
        let name = format!("joined/{noun}/{}/{}/{n}", T::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            fleet.devices.iter().try_for_each(|(label, device)| {
                body(device, n).map_err(|finding| match finding {
                    Finding::Wrong(what) => wrong(format!("{label}: {what}")),
                    other @ (Finding::Refused | Finding::Skipped(_)) => other,
                })
            })
        }));
    };
    for n in LENGTHS {
        add("vector", n, |be, n| {
            for (name, sums, act) in uses::<T, D>() {
                for monitor in [Monitor::Runs, Monitor::Converges, Monitor::Stopped] {
                    compare(be, n, monitor, sums, act).map_err(|finding| match finding {
                        Finding::Wrong(what) => wrong(format!("{name}: {what}")),
                        other @ (Finding::Refused | Finding::Skipped(_)) => other,
                    })?;
                }
            }
            roots_decide::<T, D>(be, n)
        });
        add("entries", n, entries::<T, D>);
    }
    for n in [1, 1024, 5000] {
        add("csr", n, product::<Csr<T>, D>);
        add("ell", n, product::<Ell<T>, D>);
        add("sell", n, product::<Sell<T>, D>);
        add("dia", n, product::<Dia<T>, D>);
        add("bdia", n, product::<Bdia<T>, D>);
        add("bsr", n, product::<Bsr<T>, D>);
        add("hyb", n, product::<Hyb<T>, D>);
    }
}
