//! Trials of devices that read each other's send buffers, as the ranks of one process do.
//!
//! The other rank is another device of the fleet if there is one. Its queue is busy when it publishes, so that a device
//! that does not wait for it reads something else.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{
    BicgstabUpdate, Coeff, Entries, Error, EveryMethod, Gate, Join, Meeting, PeerSums, Phase, Result, Roots, Watch,
};
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::case::numbers;
use crate::reference::{difference, tree_sum};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Messages, more than a send buffer has halves.
const TURNS: u64 = 5;
/// Elements of the vectors that keep the other queue busy, and operations on them.
const BUSY: (usize, usize) = (1 << 19, 10);

/// A send buffer, where devices of this kind have them.
fn buffer<D: Join>(be: &D, bytes: usize) -> Result<Arc<D::SendBuffer>> {
    let none = || Error::Unsupported { op: "a send buffer", noun: "this device", why: "it has none".to_owned() };
    Ok(Arc::new(be.send_buffer(bytes)?.ok_or_else(none)?))
}

fn peer<D: Join>(be: &D, buffer: &Arc<D::SendBuffer>) -> Result<D::Peer> {
    let none = || Error::Unsupported { op: "a peer", noun: "this device", why: "it cannot read the other".to_owned() };
    be.peer(Arc::clone(buffer))?.ok_or_else(none)
}

/// The other rank, which sends `len` values in each turn.
struct Other<'d, T: Real, D: Entries<T>> {
    be: &'d D,
    buffer: Arc<D::SendBuffer>,
    /// The rank that reads the buffer.
    reader: D::Peer,
    busy: [D::Vector; 2],
    places: D::Places,
    len: usize,
}

impl<'d, T: Real, D: Entries<T> + Join> Other<'d, T, D> {
    fn new(be: &'d D, reader: &Arc<D::SendBuffer>, len: usize) -> Result<Self> {
        let places: Vec<Ordinal> = (0..len as Ordinal).rev().collect();
        let busy = [be.zeros(BUSY.0)?, be.zeros(BUSY.0)?];
        let (buffer, reader) = (buffer(be, len * T::BYTES)?, peer(be, reader)?);
        Ok(Self { be, buffer, reader, busy, places: be.places(len, &places)?, len })
    }

    /// What it sends in a turn.
    fn values(&self, turn: u64) -> Vec<T> {
        numbers(100 + turn, self.len)
    }

    /// Publishes the message of a turn, once its queue has done much else.
    fn publish(&mut self, turn: u64) -> Result<()> {
        if let Some(before) = turn.checked_sub(1) {
            self.be.follow(before, &self.reader)?;
        }
        let mut reversed = self.values(turn);
        reversed.reverse();
        let sent = self.be.upload(&reversed)?;
        let [x, y] = &mut self.busy;
        for _ in 0..BUSY.1 {
            self.be.axpby(None, Coeff::host(T::one()), x, Coeff::host(T::one()), y)?;
        }
        self.be.send_entries(&sent, &self.places, turn, &self.buffer)?;
        self.be.publish(turn, &self.buffer)
    }
}

/// Entries that another device sends.
fn entries<T: Real, D: Entries<T> + EveryMethod<T> + Join>(be: &D, other: &D, n: usize) -> Verdict {
    let own = buffer(be, 8)?;
    let mut other = Other::<T, D>::new(other, &own, n)?;
    let from = peer(be, &other.buffer)?;
    let poison = vec![T::from_f64(9.0); n + 5];
    let mut to = be.upload(&poison)?;
    for turn in 0..TURNS {
        other.publish(turn)?;
        be.publish(turn, &own)?;
        be.follow(turn, &from)?;
        be.write(&poison, &mut to)?;
        let (begin, end) = (n / 3, n - n / 4);
        be.receive_entries(turn, &from, begin..end, &mut to, 2)?;
        let mut wanted = poison.clone();
        wanted[2..2 + end - begin].copy_from_slice(&other.values(turn)[begin..end]);
        if let Some(detail) = difference(&be.download(&to)?, &wanted) {
            return Err(wrong(format!("turn {turn}: {detail}")));
        }
    }
    let places = be.places(n + 5, &(0..n as Ordinal + 5).collect::<Vec<_>>())?;
    let refused = [
        be.receive_entries(0, &from, 0..n, &mut to, 6).is_err(),
        be.receive_entries(0, &from, 0..2 * n + 2, &mut be.zeros(2 * n + 2)?, 0).is_err(),
        be.send_entries(&to, &places, 0, &own).is_err(),
        be.send_entries(&be.zeros(n)?, &places, 0, &own).is_err(),
    ];
    match refused.iter().position(|refused| !refused) {
        Some(at) => Err(wrong(format!("a message that leaves its buffer or vector is accepted (number {at})"))),
        None => Ok(()),
    }
}

/// A meeting with a rank that has come already.
#[derive(Debug)]
struct Met;

impl Meeting for Met {
    fn meet(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// Keeps the block results of sums.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<f64>>);

impl Kept {
    fn keep<T: Real>(&self, blocks: &[T], roots: &mut [T]) {
        roots.fill(T::zero());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = blocks.iter().map(|block| block.as_f64()).collect();
    }
}

impl Roots for Kept {
    fn roots_f32(&self, blocks: &mut [f32], roots: &mut [f32]) -> Result<()> {
        self.keep(blocks, roots);
        Ok(())
    }
    fn roots_f64(&self, blocks: &mut [f64], roots: &mut [f64]) -> Result<()> {
        self.keep(blocks, roots);
        Ok(())
    }
}

/// What an operation is run on.
struct On<'s, T: Real, D: EveryMethod<T>> {
    v: &'s mut [D::Vector; 6],
    coeff: &'s [D::Scalar; 4],
    out: &'s mut [D::Scalar; 2],
    gate: Gate<'s, D>,
}

/// An operation, the number of its sums, and whether their roots are taken.
type Use<T, D> = (&'static str, usize, bool, fn(&D, On<'_, T, D>) -> Result<()>);

fn uses<T: Real, D: EveryMethod<T>>() -> [Use<T, D>; 3] {
    [
        ("dot", 1, false, |be, On { v: [x, y, ..], out: [out, _], gate, .. }| be.dot(gate, x, y, out)),
        ("norm2", 1, true, |be, On { v: [x, ..], out: [out, _], gate, .. }| be.norm2(gate, x, out)),
        ("bicgstab_update", 2, false, |be, On { v: [p, s, t, shadow, x, r], coeff, out: [rr, rho], gate }| {
            let [a, b, c, d] = coeff;
            let (alpha, omega) = (Coeff::ratio(a, b), Coeff::ratio(c, d));
            be.bicgstab_update(gate, BicgstabUpdate { alpha, p, omega, s: Some(s), t, shadow, x, r, rr, rho })
        }),
    ]
}

/// Sums over the blocks of two devices: this one has `n` elements, the other `theirs` blocks before or behind them.
fn sums<T: Real, D: Entries<T> + EveryMethod<T> + Join>(be: &D, other: &D, n: usize) -> Verdict {
    for of in uses::<T, D>() {
        for (theirs, is_first) in [(1, true), (3, false), (1500, true)] {
            sum(be, other, n, of, theirs, is_first)?;
        }
    }
    Ok(())
}

fn sum<T: Real, D: Entries<T> + EveryMethod<T> + Join>(
    be: &D,
    other: &D,
    n: usize,
    (name, count, root, act): Use<T, D>,
    theirs: usize,
    is_first: bool,
) -> Verdict {
    let own = n.div_ceil(1024);
    let buffer = buffer(be, PeerSums::<D>::MOST * own * T::BYTES)?;
    let mut other = Other::<T, D>::new(other, &buffer, count * theirs)?;
    let of_other = Some(peer(be, &other.buffer)?);
    let ranks = match is_first {
        true => vec![(0..theirs, of_other), (theirs..theirs + own, None)],
        false => vec![(0..own, None), (own..own + theirs, of_other)],
    };
    let sums = Arc::new(PeerSums::<D>::new(buffer, ranks, Box::new(Met)));
    for step in 0..TURNS {
        let vector = |seed: u64| be.upload(&numbers::<T>(seed + step, n));
        let vectors = || Ok::<_, Error>([vector(1)?, vector(2)?, vector(3)?, vector(4)?, vector(5)?, vector(6)?]);
        let scalar = |value: f64| be.scalar(T::from_f64(value));
        let coeff = &[scalar(0.75)?, scalar(1.5)?, scalar(-0.3)?, scalar(0.9)?];
        let kept = Arc::new(Kept::default());
        let roots: Arc<dyn Roots> = Arc::clone(&kept) as _;
        let (v, out) = (&mut vectors()?, &mut [scalar(42.0)?, scalar(42.0)?]);
        be.joined(&roots, |be| act(be, On { v, coeff, out, gate: None }))?;
        let blocks = kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();

        // A device that is stopped changes nothing, whether it takes part or not.
        let threshold = if step == 2 { f64::MAX } else { 0.0 };
        let mut monitor = be.monitor(&Watch { threshold, divergence: f64::INFINITY, max_iters: 10 })?;
        be.observe(&scalar(1.0)?, Phase::Full, &mut monitor)?;
        let is_stopped = be.report(&monitor)?.stop.is_some();
        let turn = sums.turns();
        other.publish(turn)?;
        let (v, out) = (&mut vectors()?, &mut [scalar(42.0)?, scalar(42.0)?]);
        be.joined_to_peers(&sums, |be| act(be, On { v, coeff, out, gate: Some(&monitor) }))?;
        let sent = other.values(turn);
        for (k, out) in out.iter().enumerate().take(count) {
            let here = blocks[k * own..(k + 1) * own].iter().map(|&block| T::from_f64(block));
            let there = sent[k * theirs..(k + 1) * theirs].iter().copied();
            let sum = tree_sum(if is_first { there.chain(here).collect() } else { here.chain(there).collect() });
            let sum = if root { sum.sqrt() } else { sum };
            let wanted = if is_stopped { T::from_f64(42.0) } else { sum };
            if let Some(detail) = difference(&[be.download_scalar(out)?], &[wanted]) {
                return Err(wrong(format!("{name}, sum {k} with {theirs} blocks of the other, step {step}: {detail}")));
            }
        }
    }
    Ok(())
}

/// The trials of a backend whose devices read each other's send buffers.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: EveryMethod<T> + Join + Entries<T>,
{
    let mut add = |noun: &str, n: usize, body: fn(&D, &D, usize) -> Verdict| {
        let fleet = Rc::clone(fleet);
        let name = format!("peers/{noun}/{}/{}/{n}", T::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            let devices = &fleet.devices;
            devices.iter().enumerate().try_for_each(|(at, (label, device))| {
                let (_, other) = &devices[(at + 1) % devices.len()];
                body(device, other, n).map_err(|finding| match finding {
                    Finding::Wrong(what) => wrong(format!("{label}: {what}")),
                    other @ (Finding::Refused | Finding::Skipped(_)) => other,
                })
            })
        }));
    };
    for n in [1, 1024, 1025, 70_001] {
        add("entries", n, entries::<T, D>);
        add("sums", n, sums::<T, D>);
    }
}
