//! The device of one rank as a backend whose vectors lie on all ranks.
//!
//! The length of a vector is that of the whole vector, and so is [`Operator::shape`](spandrel_backend::Operator::shape)
//! of a distributed matrix; slices on the host have the rows of this rank. So a solver that is written for one device
//! compares sizes, sets limits and chooses restarts by the same numbers on every rank, also on a rank without rows.
//!
//! Element-wise operations run on the device as they are. Dot products and norms, fused or not, are completed by the
//! other ranks ([`Join`]). The monitor is the device's own: it sees the same scalars and makes the same decisions on
//! every rank.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::error::expect_len;
use spandrel_backend::{
    Backend, Coeff, Device, Error, Gate, Join, Latest, Phase, Profile, Quantity, Report, Result, Step, Watch,
};
use spandrel_formats::Real;

use crate::communicator::Communicator;
use crate::layout::{Completion, Layout};
use crate::partition::Partition;
use crate::rows::{Column, Rows};
use crate::team::{Call, Team, Traffic};

/// The device of one rank, joined to those of the other ranks: a backend whose vectors lie on all ranks.
///
/// The length of a vector is that of the whole vector; slices on the host have the rows of this rank. Every rank must
/// call the same operations in the same order. Element-wise operations are local; dot products, products with matrices,
/// and the methods that say so wait for the other ranks.
pub struct Distributed<B, C> {
    device: B,
    team: Arc<Team<C>>,
    /// One per length. The first is that of `upload`.
    layouts: Mutex<Vec<Arc<Layout>>>,
}

impl<B: Device, C: Communicator> fmt::Debug for Distributed<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributed")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("device", &self.device.describe())
            .finish_non_exhaustive()
    }
}

impl<B: Join, C: Communicator> Distributed<B, C> {
    /// Joins a device to those of the other ranks.
    ///
    /// It does not know yet how vectors lie on the ranks. [`Distributed::lay_out`] tells it, and so does the first
    /// [`crate::DistributedMat`].
    pub fn new(device: B, communicator: C) -> Self {
        Self { device, team: Arc::new(Team::new(communicator)), layouts: Mutex::default() }
    }

    /// As [`Distributed::new`], but devices never read each other's memory: every message passes through the host, as
    /// between processes. Results have the same bits. Every rank must make the same choice.
    pub fn through_host(device: B, communicator: C) -> Self {
        Self { device, team: Arc::new(Team::new(communicator).through_host()), layouts: Mutex::default() }
    }

    /// Says how vectors of `partition.len()` elements lie on the ranks. The first layout is that of
    /// [`Backend::upload`]. A layout that is already known is returned. Waits for the other ranks, which must give the
    /// same partition.
    ///
    /// # Errors
    /// [`Error::Rank`] if another rank gives another partition; [`Error::Unsupported`] if the partition has another
    /// number of ranks, or if another partition of the same number of rows is in use.
    pub fn lay_out(&self, partition: Partition) -> Result<Arc<Layout>> {
        let ends: Vec<u64> = (0..partition.size()).map(|rank| partition.rows(rank).end).collect();
        let all = self.of_this_version(self.team.numbers(&[version(), ends.len() as u64, digest(&ends)])?)?;
        if let Some(rank) = all.iter().position(|other| *other != all[self.rank()]) {
            let why = "splits the rows differently from this rank; give every rank the same partition".to_owned();
            return Err(self.team.fail(Error::Rank { rank, why }));
        }
        self.known_or_new(partition)
    }

    /// As [`Distributed::lay_out`], once all ranks agree.
    pub(crate) fn known_or_new(&self, partition: Partition) -> Result<Arc<Layout>> {
        if partition.size() != self.size() {
            let why = format!("the partition is for {} ranks, but there are {}", partition.size(), self.size());
            return Err(Error::Unsupported { op: "a layout", noun: "a partition", why });
        }
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        match layouts.iter().find(|known| known.len() as u64 == partition.len()) {
            Some(known) if *known.partition() == partition => Ok(Arc::clone(known)),
            Some(_) => Err(Error::Unsupported {
                op: "a layout",
                noun: "a partition",
                why: format!(
                    "vectors of {} elements already have another partition; use one partition for both",
                    partition.len()
                ),
            }),
            None => {
                let layout = Arc::new(Layout::new(&self.device, &self.team, partition)?);
                layouts.push(Arc::clone(&layout));
                Ok(layout)
            }
        }
    }

    /// Lays out vectors in the same way as the rows of a matrix. As [`Distributed::lay_out`], for ranks that know only
    /// their own rows. Waits for the other ranks.
    ///
    /// # Errors
    /// On every rank: [`Error::Unsupported`] if the rows of the ranks do not follow each other, or a rank ends inside a
    /// block ([`Partition`]).
    pub fn lay_out_rows<T: Real, J: Column>(&self, rows: &Rows<T, J>) -> Result<Arc<Layout>> {
        self.known_or_new(self.partition_of(rows)?)
    }

    /// Which rank has which rows. Waits for the other ranks.
    pub(crate) fn partition_of<T: Real, J: Column>(&self, rows: &Rows<T, J>) -> Result<Partition> {
        let mine = [version(), rows.first(), rows.len() as u64, rows.ncols()];
        let all = self.of_this_version(self.team.numbers(&mine)?)?;
        let refused = |why: String| Error::Unsupported { op: "a distributed matrix", noun: "rows", why };
        let mut begins = vec![0];
        for (rank, of) in all.iter().enumerate() {
            let &[_, first, len, ncols] = &of[..] else { return Err(refused("a rank sent no sizes".into())) };
            let end = begins[rank];
            if first != end {
                return Err(refused(format!(
                    "rank {rank} begins with row {first}, and the ranks before it end at row {end}; the rows of the ranks must follow each other"
                )));
            }
            if ncols != all[0][3] {
                return Err(refused(format!("rank {rank} has {ncols} columns, and rank 0 has {}", all[0][3])));
            }
            begins.push(end + len);
        }
        Partition::new(begins)
    }

    /// Returns the numbers of all ranks if each begins with the version of this library, the same as on rank 0.
    fn of_this_version(&self, all: Vec<Vec<u64>>) -> Result<Vec<Vec<u64>>> {
        match all.iter().position(|of| of.first() != all[0].first()) {
            None => Ok(all),
            Some(rank) => {
                let why = "runs another version of this library than rank 0; start the same program everywhere";
                Err(self.team.fail(Error::Rank { rank, why: why.to_owned() }))
            }
        }
    }

    /// Makes all ranks agree on the outcome of a phase that may fail on only some of them. Returns `mine` if the phase
    /// succeeded on every rank. If it failed on this rank, returns this rank's error; otherwise [`Error::Rank`] with
    /// the reason of the first rank where it failed. Waits for the other ranks, which must call it too.
    ///
    /// # Errors
    /// Those of the phase, on every rank.
    pub fn together<R, E: From<Error> + fmt::Display>(
        &self,
        mine: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.team.together(mine)
    }

    /// Runs `work` on this rank's device. During `work`, its dot products are those of whole vectors of the layout.
    pub(crate) fn joined<R>(&self, layout: &Layout, work: impl FnOnce(&B) -> Result<R>) -> Result<R> {
        match layout.sums() {
            None => work(&self.device),
            Some(Completion::Host(roots)) => self.device.joined(roots, work),
            Some(Completion::Peers(sums)) => match Arc::clone(sums).downcast() {
                Ok(sums) => self.device.joined_to_peers(&sums, work),
                Err(_) => {
                    let why = "it was made for ranks with another kind of device".to_owned();
                    Err(Error::Unsupported { op: "a dot product", noun: "a layout", why })
                }
            },
        }
    }

    /// Brings a whole vector to the host of rank 0. Other ranks get `None`. Waits for the other ranks.
    ///
    /// # Errors
    /// Those of [`Backend::download`]; [`Error::Rank`]; [`Error::OutOfMemory`].
    pub fn gather<T: Real>(&self, v: &Vector<T, B>) -> Result<Option<Vec<T>>>
    where
        B: Backend<T>,
    {
        let mine = self.told(self.device.download(&v.part))?;
        let Some(parts) = self.team.gather(bytemuck::cast_slice(&mine))? else { return Ok(None) };
        let mut whole = Vec::new();
        whole.try_reserve_exact(v.layout.len()).map_err(|_| Error::OutOfMemory {
            device: B::NAME,
            what: "a whole vector on the host of rank 0",
            bytes: (v.layout.len() * T::BYTES) as u64,
        })?;
        for part in parts {
            whole.extend(part.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned::<T>));
        }
        Ok(Some(whole))
    }

    /// Makes a vector of another layout than the first from the rows of this rank.
    ///
    /// # Errors
    /// Those of [`Backend::upload`].
    pub fn upload_as<T: Real>(&self, layout: &Arc<Layout>, host: &[T]) -> Result<Vector<T, B>>
    where
        B: Backend<T>,
    {
        let own = expect_len("upload", "the part of this rank", host.len(), layout.own());
        let part = self.told(own.and_then(|()| self.device.upload(host)))?;
        Ok(Vector { part, layout: Arc::clone(layout) })
    }

    /// Makes a vector of zeros, also in a layout that the device does not know.
    pub(crate) fn zeros_as<T: Real>(&self, layout: &Arc<Layout>) -> Result<Vector<T, B>>
    where
        B: Backend<T>,
    {
        let part = self.told(self.device.zeros(layout.own()))?;
        Ok(Vector { part, layout: Arc::clone(layout) })
    }
}

impl<B, C: Communicator> Distributed<B, C> {
    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.team.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.team.size()
    }

    /// This rank's own device, without the other ranks. Its dot products are those of the rows of this rank.
    pub fn device(&self) -> &B {
        &self.device
    }

    /// What this rank has sent so far for one kind of operation.
    pub fn traffic(&self, call: Call) -> Traffic {
        self.team.traffic(call)
    }

    /// Gives every rank the numbers of all ranks, in the order of the ranks. Every rank must give the same number of
    /// them. Waits for the other ranks.
    ///
    /// # Errors
    /// [`Error::Rank`], also if another rank gives more or fewer numbers.
    pub fn everywhere(&self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        self.team.numbers(mine)
    }

    pub(crate) fn team(&self) -> &Team<C> {
        &self.team
    }

    /// Returns the outcome unchanged. If it is an error, tells the other ranks.
    pub(crate) fn told<R>(&self, outcome: Result<R>) -> Result<R> {
        outcome.map_err(|error| self.team.fail(error))
    }

    /// The layout of vectors of `len` elements.
    fn layout(&self, len: usize) -> Result<Arc<Layout>> {
        let layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = layouts.iter().find(|layout| layout.len() == len).map(Arc::clone);
        found.ok_or_else(|| match layouts.first() {
            Some(first) => {
                let what = "a vector (or lay out vectors of that length first)";
                Error::Shape { op: "a distributed device", what, found: len, expected: first.len() }
            }
            None => no_layout(),
        })
    }

    /// The layout of `upload`.
    fn first_layout(&self) -> Result<Arc<Layout>> {
        let layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        layouts.first().map(Arc::clone).ok_or_else(no_layout)
    }
}

fn no_layout() -> Error {
    let why =
        "the device does not know yet which rank has which rows; make the matrix first, or call `lay_out`".to_owned();
    Error::Unsupported { op: "a vector", noun: "several ranks", why }
}

/// A number that differs for different versions of this library.
fn version() -> u64 {
    digest(&env!("CARGO_PKG_VERSION").bytes().map(u64::from).collect::<Vec<_>>())
}

/// A number that differs for different lists, with near certainty (FNV-1a).
pub(crate) fn digest(numbers: &[u64]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A vector that lies on all ranks.
pub struct Vector<T: Real, B: Backend<T>> {
    pub(crate) part: B::Vector,
    pub(crate) layout: Arc<Layout>,
}

impl<T: Real, B: Backend<T>> fmt::Debug for Vector<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vector").field("element", &T::NAME).field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> Vector<T, B> {
    /// How it lies on the ranks.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
    /// The rows of this rank, as a vector of the rank's own device.
    pub fn part(&self) -> &B::Vector {
        &self.part
    }
    /// The rows of this rank, for writing.
    pub fn part_mut(&mut self) -> &mut B::Vector {
        &mut self.part
    }
}

impl<B: Join, C: Communicator> Device for Distributed<B, C> {
    const NAME: &'static str = B::NAME;
    type Graph = ();
    type Monitor = B::Monitor;

    fn describe(&self) -> String {
        format!("rank {} of {}: {}", self.rank(), self.size(), self.device.describe())
    }
    fn profile(&self) -> &Profile {
        self.device.profile()
    }
    fn free_memory(&self) -> Result<Option<u64>> {
        self.device.free_memory()
    }
    fn is_immediate(&self) -> bool {
        self.device.is_immediate()
    }
    fn synchronize(&self) -> Result<()> {
        self.told(self.device.synchronize())
    }
    fn agree(&self, mine: u64) -> Result<u64> {
        self.team.largest(mine)
    }
    /// Records nothing: the hosts of the ranks meet for every message.
    fn capture<S: Step<Self>>(&self, _: &mut S) -> Result<()> {
        Ok(())
    }
    unsafe fn replay<S: Step<Self>>(&self, (): &(), step: &mut S) -> Result<()> {
        step.enqueue(self)
    }
    fn monitor(&self, watch: &Watch) -> Result<B::Monitor> {
        self.told(self.device.monitor(watch))
    }
    fn resume(&self, monitor: &mut B::Monitor) -> Result<()> {
        self.told(self.device.resume(monitor))
    }
    fn rearm(&self, monitor: &mut B::Monitor, watch: &Watch) -> Result<()> {
        self.told(self.device.rearm(monitor, watch))
    }
    fn report_latest(&self, monitor: &B::Monitor) -> Result<Latest> {
        self.told(self.device.report_latest(monitor))
    }
    fn report(&self, monitor: &B::Monitor) -> Result<Report> {
        self.told(self.device.report(monitor))
    }
}

/// Compares the operands of an operation: all must have the length of `x`.
fn operands<T: Real, B: Backend<T>>(
    op: &'static str,
    x: &Vector<T, B>,
    others: &[(&'static str, &Vector<T, B>)],
) -> Result<()> {
    others.iter().try_for_each(|(what, other)| expect_len(op, what, other.layout.len(), x.layout.len()))
}

impl<T: Real, B: Backend<T> + Join, C: Communicator> Backend<T> for Distributed<B, C> {
    type Vector = Vector<T, B>;
    type Scalar = B::Scalar;

    /// `len` is the length of the whole vector.
    fn zeros(&self, len: usize) -> Result<Self::Vector> {
        let layout = self.layout(len)?;
        let part = self.told(self.device.zeros(layout.own()))?;
        Ok(Vector { part, layout })
    }
    /// `host` has the rows of this rank, in the first layout.
    fn upload(&self, host: &[T]) -> Result<Self::Vector> {
        self.upload_as(&self.first_layout()?, host)
    }
    /// `host` has the rows of this rank.
    fn write(&self, host: &[T], v: &mut Self::Vector) -> Result<()> {
        self.told(self.device.write(host, &mut v.part))
    }
    /// Returns the rows of this rank. [`Distributed::gather`] brings the whole vector to rank 0.
    fn download(&self, v: &Self::Vector) -> Result<Vec<T>> {
        self.told(self.device.download(&v.part))
    }
    /// The length of the whole vector.
    fn len(&self, v: &Self::Vector) -> usize {
        v.layout.len()
    }
    fn scalar(&self, value: T) -> Result<Self::Scalar> {
        self.told(self.device.scalar(value))
    }
    fn download_scalar(&self, s: &Self::Scalar) -> Result<T> {
        self.told(self.device.download_scalar(s))
    }
    fn scalars(&self, count: usize, value: T) -> Result<Vec<Self::Scalar>> {
        self.told(self.device.scalars(count, value))
    }
    fn download_scalars(&self, scalars: &[Self::Scalar]) -> Result<Vec<T>> {
        self.told(self.device.download_scalars(scalars))
    }

    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Self::Vector) -> Result<()> {
        self.told(self.device.fill(gate, value, &mut y.part))
    }
    fn copy(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
        let alike = operands("copy", x, &[("y", y)]);
        self.told(alike.and_then(|()| self.device.copy(gate, &x.part, &mut y.part)))
    }
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let alike = operands("axpby", x, &[("y", y)]);
        self.told(alike.and_then(|()| self.device.axpby(gate, a, &x.part, b, &mut y.part)))
    }
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &Self::Vector,
        c: Coeff<'_, T, Self::Scalar>,
        z: &mut Self::Vector,
    ) -> Result<()> {
        let alike = operands("axpbypcz", x, &[("y", y), ("z", z)]);
        self.told(alike.and_then(|()| self.device.axpbypcz(gate, a, &x.part, b, &y.part, c, &mut z.part)))
    }
    fn axpby_chain(
        &self,
        gate: Gate<'_, Self>,
        [a, b]: [Coeff<'_, T, Self::Scalar>; 2],
        x: &Self::Vector,
        y: &mut Self::Vector,
        [c, d]: [Coeff<'_, T, Self::Scalar>; 2],
        z: &mut Self::Vector,
    ) -> Result<()> {
        let alike = operands("axpby_chain", x, &[("y", y), ("z", z)]);
        let mut work = || self.device.axpby_chain(gate, [a, b], &x.part, &mut y.part, [c, d], &mut z.part);
        self.told(alike.and_then(|()| work()))
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, z: &mut Self::Vector) -> Result<()> {
        let alike = operands("hadamard", x, &[("y", y), ("z", z)]);
        self.told(alike.and_then(|()| self.device.hadamard(gate, &x.part, &y.part, &mut z.part)))
    }
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Self::Scalar>, out: &mut Self::Scalar) -> Result<()> {
        self.told(self.device.assign(gate, value, out))
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        let alike = operands("dot", x, &[("y", y)]);
        self.told(alike.and_then(|()| self.joined(&x.layout, |be| be.dot(gate, &x.part, &y.part, out))))
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        self.told(self.joined(&x.layout, |be| be.norm2(gate, &x.part, out)))
    }

    fn observe(&self, squared: &Self::Scalar, phase: Phase, monitor: &mut Self::Monitor) -> Result<()> {
        self.told(self.device.observe(squared, phase, monitor))
    }
    fn require_positive(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.told(self.device.require_positive(value, what, monitor))
    }
    fn require_nonzero(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.told(self.device.require_nonzero(value, what, monitor))
    }

    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Self::Vector,
        r: &Self::Vector,
        z: &mut Self::Vector,
        rz: &mut Self::Scalar,
    ) -> Result<()> {
        let alike = operands("hadamard_dot", d, &[("r", r), ("z", z)]);
        let work = |be: &B| be.hadamard_dot(gate, &d.part, &r.part, &mut z.part, rz);
        self.told(alike.and_then(|()| self.joined(&d.layout, work)))
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend_cpu::Cpu;

    use super::*;
    use crate::Threads;

    #[test]
    fn a_rank_of_another_version_is_named() {
        let ranks = Threads::run(3, |comm| {
            let be = Distributed::new(Cpu::with_threads(1)?, comm);
            let mine = version() + u64::from(be.rank() == 1);
            be.of_this_version(be.team().numbers(&[mine, 7])?)
        });
        let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
        for text in &texts {
            assert!(text.starts_with("rank 1: runs another version of this library than rank 0"), "{texts:?}");
        }
    }
}
