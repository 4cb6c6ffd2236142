//! Trials of devices that read each other's send buffers, as the ranks of one process do.
//!
//! The other rank is another device of the fleet if there is one. Its queue is busy when it publishes, so that a device
//! that does not wait for it reads something else.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{
    BicgstabSecond, BicgstabUpdate, CgStep, Coeff, Entries, Error, EveryMethod, Join, Meeting, PeerSums, Phase,
    Received, Result, Spmv, Watch,
};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real};

use super::packed;
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Messages, more than a send buffer has halves.
pub(super) const TURNS: u64 = 5;
/// Elements of the vectors that keep the other queue busy, and operations on them.
const BUSY: (usize, usize) = (1 << 19, 10);

/// A send buffer, where devices of this kind have them.
pub(super) fn buffer<D: Join>(be: &D, bytes: usize) -> Result<Arc<D::SendBuffer>> {
    let none = || Error::Unsupported { op: "a send buffer", noun: "this device", why: "it has none".to_owned() };
    Ok(Arc::new(be.send_buffer(bytes)?.ok_or_else(none)?))
}

/// Enqueues work that takes a while.
fn keep_busy<T: Real, D: Entries<T>>(be: &D, [x, y]: &mut [D::Vector; 2]) -> Result<()> {
    let one = || Coeff::host(T::one());
    (0..BUSY.1).try_for_each(|_| be.axpby(None, one(), x, one(), y))
}

pub(super) fn peer<D: Join>(be: &D, buffer: &Arc<D::SendBuffer>) -> Result<D::Peer> {
    let none = || Error::Unsupported { op: "a peer", noun: "this device", why: "it cannot read the other".to_owned() };
    be.peer(Arc::clone(buffer))?.ok_or_else(none)
}

/// The other rank, which sends `len` values in each turn.
pub(super) struct Other<'d, T: Real, D: Entries<T>> {
    be: &'d D,
    pub(super) buffer: Arc<D::SendBuffer>,
    /// What it takes from the rank that reads the buffer: nothing.
    reader: [Received<D::Peer>; 1],
    busy: [D::Vector; 2],
    places: D::Places,
    len: usize,
}

impl<'d, T: Real, D: Entries<T> + Join> Other<'d, T, D> {
    pub(super) fn new(be: &'d D, reader: &Arc<D::SendBuffer>, len: usize) -> Result<Self> {
        let places: Vec<Ordinal> = (0..len as Ordinal).rev().collect();
        let busy = [be.zeros(BUSY.0)?, be.zeros(BUSY.0)?];
        let (buffer, peer) = (buffer(be, len * T::BYTES)?, peer(be, reader)?);
        let reader = [Received { peer, sent: 0..0, at: 0 }];
        Ok(Self { be, buffer, reader, busy, places: be.places(len, &places)?, len })
    }

    /// What it sends in a turn.
    pub(super) fn values(&self, turn: u64) -> Vec<T> {
        numbers(100 + turn, self.len)
    }

    /// Publishes the message of a turn, once its queue has done much else.
    pub(super) fn publish(&mut self, turn: u64) -> Result<()> {
        if let Some(before) = turn.checked_sub(1) {
            self.be.receive_entries(before, &self.reader, &mut self.busy[0])?;
        }
        let mut reversed = self.values(turn);
        reversed.reverse();
        let sent = self.be.upload(&reversed)?;
        keep_busy(self.be, &mut self.busy)?;
        self.be.send_entries(&sent, &self.places, turn, &self.buffer)
    }
}

/// Entries that another device sends.
fn entries<T: Real, D: Entries<T> + EveryMethod<T> + Join>(fleet: &Rc<Fleet<D>>, at: [usize; 2], n: usize) -> Verdict {
    let [be, other] = at.map(|at| &fleet.devices[at].1);
    let own = buffer(be, 8)?;
    let mut other = Other::<T, D>::new(other, &own, n)?;
    let received = |sent, at| Ok::<_, Error>([Received { peer: peer(be, &other.buffer)?, sent, at }]);
    let (begin, end) = (n / 3, n - n / 4);
    let from = received(begin..end, 2)?;
    let outside = [received(0..n, 6)?, received(0..2 * n + 2, 0)?];
    let poison = vec![T::from_f64(9.0); n + 5];
    let mut to = be.upload(&poison)?;
    let nothing = be.places(n + 5, &[])?;
    for turn in 0..TURNS {
        other.publish(turn)?;
        be.send_entries(&to, &nothing, turn, &own)?;
        be.write(&poison, &mut to)?;
        be.receive_entries(turn, &from, &mut to)?;
        let mut wanted = poison.clone();
        wanted[2..2 + end - begin].copy_from_slice(&other.values(turn)[begin..end]);
        if let Some(detail) = difference(&be.download(&to)?, &wanted) {
            return Err(wrong(format!("turn {turn}: {detail}")));
        }
    }
    let places = be.places(n + 5, &(0..n as Ordinal + 5).collect::<Vec<_>>())?;
    let refused = [
        be.receive_entries(0, &outside[0], &mut to).is_err(),
        be.receive_entries(0, &outside[1], &mut be.zeros(2 * n + 2)?).is_err(),
        be.send_entries(&to, &places, 0, &own).is_err(),
        be.send_entries(&be.zeros(n)?, &places, 0, &own).is_err(),
    ];
    match refused.iter().position(|refused| !refused) {
        Some(at) => Err(wrong(format!("a message that leaves its buffer or vector is accepted (number {at})"))),
        None => Ok(()),
    }
}

type Work = Box<dyn FnOnce() -> Result<()>>;

thread_local! {
    /// What the other rank does before it comes to the next meeting.
    static OTHER: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// A meeting at which the other rank does its work, if there is some, and has then come.
#[derive(Debug)]
struct Met;

impl Meeting for Met {
    fn meet(&self, _: usize) -> Result<()> {
        OTHER.take().map_or(Ok(()), |work| work())
    }
}

/// What an operation is run on.
struct On<'s, T: Real, D: EveryMethod<T>> {
    v: &'s mut [D::Vector; 6],
    coeff: &'s [D::Scalar; 4],
    out: &'s mut [D::Scalar; 2],
    monitor: &'s mut D::Monitor,
}

/// An operation with its name, and how many vectors it uses.
type Use<T, D> = (&'static str, usize, fn(&D, On<'_, T, D>) -> Result<()>);

fn uses<T: Real, D: EveryMethod<T>>() -> [Use<T, D>; 5] {
    [
        ("dot", 2, |be, On { v: [x, y, ..], out: [out, _], monitor, .. }| be.dot(Some(&*monitor), x, y, out)),
        ("norm2", 1, |be, On { v: [x, ..], out: [out, _], monitor, .. }| be.norm2(Some(&*monitor), x, out)),
        ("bicgstab_update", 6, |be, On { v: [p, s, t, shadow, x, r], coeff, out: [rr, rho], monitor }| {
            let [a, b, c, d] = coeff;
            let (alpha, omega) = (Coeff::ratio(a, b), Coeff::ratio(c, d));
            be.bicgstab_update(
                Some(&*monitor),
                BicgstabUpdate { alpha, p, omega, s: Some(s), t, shadow, x, r, rr, rho },
            )
        }),
        ("cg_step", 4, |be, On { v: [p, q, x, r, ..], coeff: [rz, pq, ..], out: [rr, _], monitor }| {
            be.cg_step(CgStep { rz, pq, p, q, x, r, rr }, monitor)
        }),
        ("bicgstab_second", 6, |be, On { v: [p, s, t, shadow, x, r], coeff: [rho, rv, tt, ts], out, monitor }| {
            let [rr, rho_next] = out;
            be.bicgstab_second(
                BicgstabSecond { rho, rv, ts, tt, p, s: Some(s), t, shadow, x, r, rr, rho_next },
                monitor,
            )
        }),
    ]
}

/// Sums over two devices: this one has `n` elements, the other `theirs` blocks before or behind them.
fn sums<T: Real, D: Entries<T> + EveryMethod<T> + Join>(fleet: &Rc<Fleet<D>>, at: [usize; 2], n: usize) -> Verdict {
    for of in uses::<T, D>() {
        for (theirs, is_first) in [(1, true), (3, false), (1100, true)] {
            sum(fleet, at, n, of, theirs, is_first)?;
        }
    }
    Ok(())
}

/// As [`sums`] where each device has whole groups of 1024 blocks, and both have a part of one.
fn long_sums<T: Real, D: Entries<T> + EveryMethod<T> + Join>(
    fleet: &Rc<Fleet<D>>,
    at: [usize; 2],
    n: usize,
) -> Verdict {
    let [dot, ..] = uses::<T, D>();
    [true, false].iter().try_for_each(|&is_first| sum(fleet, at, n, dot, 1500, is_first))
}

/// The vectors and scalars of one rank in an operation.
struct Rank<T: Real, D: EveryMethod<T>> {
    v: [D::Vector; 6],
    coeff: [D::Scalar; 4],
    out: [D::Scalar; 2],
    monitor: D::Monitor,
}

impl<T: Real, D: EveryMethod<T>> Rank<T, D> {
    /// Takes the elements of a range from whole vectors, if these have any, and a monitor that has stopped or not.
    fn new(be: &D, whole: &[Vec<T>; 6], own: Range<usize>, is_stopped: bool) -> Result<Self> {
        let [a, b, c, d, e, f] = whole.each_ref().map(|whole| be.upload(whole.get(own.clone()).unwrap_or(&[])));
        let scalar = |value: f64| be.scalar(T::from_f64(value));
        let threshold = if is_stopped { f64::MAX } else { 0.0 };
        let mut monitor = be.monitor(&Watch { threshold, divergence: f64::INFINITY, max_iters: 10 })?;
        be.observe(&scalar(1.0)?, Phase::Full, &mut monitor)?;
        let coeff = [scalar(0.75)?, scalar(1.5)?, scalar(-0.3)?, scalar(0.9)?];
        Ok(Self { v: [a?, b?, c?, d?, e?, f?], coeff, out: [scalar(42.0)?, scalar(42.0)?], monitor })
    }

    fn act(&mut self, be: &D, act: fn(&D, On<'_, T, D>) -> Result<()>) -> Result<()> {
        let Self { v, coeff, out, monitor } = self;
        act(be, On { v, coeff, out, monitor })
    }

    /// The sums, and what the monitor says.
    fn sums(&self, be: &D) -> Result<(Vec<T>, String)> {
        let sums: Result<Vec<T>> = self.out.iter().map(|out| be.download_scalar(out)).collect();
        Ok((sums?, format!("{:?}", be.report(&self.monitor)?)))
    }
}

fn sum<T: Real, D: Entries<T> + EveryMethod<T> + Join>(
    fleet: &Rc<Fleet<D>>,
    at: [usize; 2],
    n: usize,
    (name, vectors, act): Use<T, D>,
    theirs: usize,
    is_first: bool,
) -> Verdict {
    let [be, other] = at.map(|at| &fleet.devices[at].1);
    let own = n.div_ceil(1024);
    // Only the last block of all may be short.
    let (len, all) = if is_first { (theirs * 1024, theirs + own) } else { (theirs * 1024 - 100, own + theirs) };
    let n = if is_first { n } else { own * 1024 };
    let (mine, of_other) = if is_first { (len..len + n, 0..len) } else { (0..n, n..n + len) };
    let blocks = |of: &Range<usize>| of.start.div_ceil(1024)..of.end.div_ceil(1024);
    let (buffers, mut joined) = ([buffer(be, 2 * own * T::BYTES)?, buffer(other, 2 * theirs * T::BYTES)?], Vec::new());
    for (rank, device) in [be, other].into_iter().enumerate() {
        let from = peer(device, &buffers[1 - rank])?;
        let (me, them) = (blocks([&mine, &of_other][rank]), blocks([&of_other, &mine][rank]));
        let mut ranks = vec![(me, None), (them, Some(from))];
        ranks.sort_by_key(|(blocks, _)| blocks.start);
        joined.push(Arc::new(PeerSums::<D>::new(Arc::clone(&buffers[rank]), ranks, Box::new(Met))));
    }
    assert_eq!(joined[0].blocks(), all);
    let busy = Rc::new(RefCell::new([other.zeros(BUSY.0)?, other.zeros(BUSY.0)?]));
    for step in 0..TURNS {
        let whole: [Vec<T>; 6] =
            std::array::from_fn(|k| if k < vectors { numbers(1 + k as u64 + step, n + len) } else { Vec::new() });
        let is_stopped = step == 2;
        let mut plain = Rank::new(be, &whole, 0..n + len, is_stopped)?;
        plain.act(be, act)?;
        // A device that is stopped changes nothing, whether it takes part or not.
        let wanted = plain.sums(be)?;
        let mut here = Rank::new(be, &whole, mine.clone(), is_stopped)?;
        let there = Rc::new(RefCell::new(Rank::new(other, &whole, of_other.clone(), is_stopped)?));
        let (fleet, at, sums) = (Rc::clone(fleet), at[1], Arc::clone(&joined[1]));
        let (rank, busy) = (Rc::clone(&there), Rc::clone(&busy));
        OTHER.set(Some(Box::new(move || {
            let other = &fleet.devices[at].1;
            keep_busy(other, &mut busy.borrow_mut())?;
            other.joined_to_peers(&sums, |other| rank.borrow_mut().act(other, act))
        })));
        be.joined_to_peers(&joined[0], |be| here.act(be, act))?;
        // A device whose host sees that it is stopped does not come to the meeting, and neither does the other.
        OTHER.set(None);
        for (whose, found) in [("this", here.sums(be)?), ("the other", there.borrow().sums(other)?)] {
            let says = || format!("the monitor says {}, expected {}", found.1, wanted.1);
            let said = (found.1 != wanted.1).then(says);
            if let Some(detail) = difference(&found.0, &wanted.0).or(said) {
                let what = format!("{name} on {whose} rank, with {theirs} blocks of the other, step {step}: {detail}");
                return Err(wrong(what));
            }
        }
    }
    Ok(())
}

/// The trials of a backend whose devices read each other's send buffers.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: EveryMethod<T> + Join + Entries<T> + Spmv<Csr<T>>,
{
    let mut add = |noun: &str, n: usize, body: fn(&Rc<Fleet<D>>, [usize; 2], usize) -> Verdict| {
        let fleet = Rc::clone(fleet);
        let name = format!("peers/{noun}/{}/{}/{n}", T::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            let devices = &fleet.devices;
            devices.iter().enumerate().try_for_each(|(at, (label, _))| {
                body(&fleet, [at, (at + 1) % devices.len()], n).map_err(|finding| match finding {
                    Finding::Wrong(what) => wrong(format!("{label}: {what}")),
                    other @ (Finding::Refused | Finding::Skipped(_)) => other,
                })
            })
        }));
    };
    for n in [1, 1024, 1025, 70_001] {
        add("entries", n, entries::<T, D>);
        add("rows", n, packed::rows::<T, D>);
        add("sums", n, sums::<T, D>);
    }
    add("sums", 1_200_000, long_sums::<T, D>);
}
