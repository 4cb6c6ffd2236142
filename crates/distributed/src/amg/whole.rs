//! The hierarchy made by every rank on its own device, if the whole matrix fits there.
//!
//! The ranks bring the matrix to all of them once. Then each rank makes every grid as one device does, so all have the
//! same bits, and keeps its own rows of them. Nothing is sent until the exchanges of the grids are prepared.
//!
//! Memory: [`needed`] on the device. On the host, the ranks of one process share one copy of the matrix; other ranks
//! have one each.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;
use spandrel_backend::{Backend, Error as Fault, Mat, Scaling};
use spandrel_formats::amg::UNASSIGNED;
use spandrel_formats::index::{MAX_INDEX, Offset, Ordinal};
use spandrel_formats::{Csr, Error as Wrong, Real};
use spandrel_solvers::amg::{coarser, fit, vectors};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{Amg, AmgBackend, AmgLevel, AmgOptions, Error, Result};

use super::{restriction, scaled};
use crate::communicator::Communicator;
use crate::matrix::Local;
use crate::partition::Partition;
use crate::rows::Rows;
use crate::team::{Call, Team};

/// The set-up of a matrix of n rows needs the memory of this many such matrices and of this many vectors, beside the
/// near-null-space vectors. At its peak A, the strong couplings, the filter, P and its transpose are alive, or A, the
/// couplings, P, P^T, A P and P^T A P: see the test.
const MATRICES: u64 = 6;
const VECTORS: u64 = 8;

/// Bytes that a device needs for the whole set-up, about. Most matrices need less; for one that needs more, the
/// allocation fails, and the ranks set up together.
pub(super) fn needed<T: Real>(n: usize, entries: usize, unknowns: usize) -> u64 {
    let vectors = VECTORS + 2 * unknowns as u64;
    MATRICES * Csr::<T>::traffic_of(n, n, entries).0 + vectors * (n * T::BYTES) as u64
}

/// Returns true, on every rank, if each device has memory of its own, with room for the whole set-up. `free` is what
/// [`spandrel_backend::Device::free_memory`] says of this rank's. Waits for the other ranks.
pub(super) fn fits<T: Real, C: Communicator>(
    team: &Team<C>,
    rows: &Rows<T>,
    unknowns: usize,
    free: Option<u64>,
) -> spandrel_backend::Result<bool> {
    let all = team.numbers(&[free.unwrap_or(0), rows.nnz() as u64])?;
    let (n, entries) = (rows.ncols() as usize, all.iter().map(|of| of[1]).sum::<u64>() as usize);
    let needed = needed::<T>(n, entries, unknowns);
    Ok(n.max(entries) <= MAX_INDEX && all.iter().all(|of| needed <= of[0]))
}

/// Brings all rows to every rank. `partition` says which rank has which. Waits for the other ranks. May fail on only
/// some of them; see [`settled`].
pub(super) fn gathered<T: Real, C: Communicator>(
    team: &Team<C>,
    rows: &Rows<T>,
    partition: &Partition,
) -> spandrel_backend::Result<Arc<Csr<T>>> {
    if team.size() == 1 {
        return joined(&[rows], partition).map(Arc::new).map_err(Fault::from);
    }
    // Ranks that see each other's memory need one copy of the matrix for all.
    if team.share(Some(Arc::new(())))?.is_none() {
        return by_messages(team, rows, partition);
    }
    let made = team.share(Some(Arc::new(rows.copied())))?.map_or(Ok(None), |parts| {
        let parts: Vec<&Rows<T>> = parts.iter().map(|part| &**part).collect();
        (team.rank() == 0).then(|| joined(&parts, partition).map(Arc::new)).transpose()
    });
    let made = team.together(made.map_err(Fault::from))?;
    let shown = team.share(Some(Arc::new(made)))?;
    match shown.as_deref().and_then(|all| (**all.first()?).clone()) {
        Some(whole) => Ok(whole),
        None => by_messages(team, rows, partition),
    }
}

/// The matrix whose rows the ranks have.
fn joined<T: Real>(parts: &[&Rows<T>], partition: &Partition) -> spandrel_formats::Result<Csr<T>> {
    let n = partition.len() as usize;
    let row = |i: usize| {
        let part = parts[partition.owner(i as u64)];
        part.row(i - part.first() as usize)
    };
    let fill = |i: usize, cols: &mut [Ordinal], values: &mut [T]| {
        let (from, entries) = row(i);
        cols.copy_from_slice(from);
        values.copy_from_slice(entries);
    };
    Csr::from_rows(n, n, |i| row(i).0.len(), fill)
}

/// As [`gathered`], for ranks that do not see each other's memory. Each of the three arrays is one message per round.
pub(super) fn by_messages<T: Real, C: Communicator>(
    team: &Team<C>,
    rows: &Rows<T>,
    partition: &Partition,
) -> spandrel_backend::Result<Arc<Csr<T>>> {
    let n = partition.len() as usize;
    let counts = team.numbers(&[rows.nnz() as u64])?;
    let entries = Partition::unaligned(counts.iter().map(|of| of[0]));
    let (own, mine) = (range(partition, team.rank()), range(&entries, team.rank()));
    let nnz = entries.len() as usize;
    let room = || Ok::<_, Fault>((zeroed::<Offset>(n + 1)?, zeroed::<Ordinal>(nnz)?, zeroed::<T>(nnz)?));
    let (mut row_ptr, mut cols, mut values) = team.together(room())?;
    // First the lengths of rows, each in the place where the row ends.
    for (i, len) in row_ptr[1..][own].iter_mut().enumerate() {
        *len = rows.row(i).0.len() as Offset;
    }
    cols[mine.clone()].copy_from_slice(rows.cols());
    values[mine].copy_from_slice(rows.values());
    let bring = |all: &mut [u8], of: &Partition, bytes: usize| {
        let part = |rank: usize| range(of, rank).start * bytes..range(of, rank).end * bytes;
        team.begin(Call::Setup)?.all_gather(all, part)
    };
    bring(bytemuck::cast_slice_mut(&mut row_ptr[1..]), partition, size_of::<Offset>())?;
    bring(bytemuck::cast_slice_mut(&mut cols), &entries, size_of::<Ordinal>())?;
    bring(bytemuck::cast_slice_mut(&mut values), &entries, T::BYTES)?;
    let mut end = 0;
    for at in &mut row_ptr {
        end += *at;
        *at = end;
    }
    Csr::new(n, n, row_ptr, cols, values).map(Arc::new).map_err(Fault::from)
}

fn zeroed<V: bytemuck::Pod>(len: usize) -> spandrel_backend::Result<Vec<V>> {
    let mut array = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<V>() as u64);
    array.try_reserve_exact(len).map_err(|_| Fault::OutOfMemory { device: "cpu", what: "a whole matrix", bytes })?;
    array.resize(len, V::zeroed());
    Ok(array)
}

fn range(partition: &Partition, rank: usize) -> Range<usize> {
    let rows = partition.rows(rank);
    rows.start as usize..rows.end as usize
}

/// The grids as one rank keeps them, before the exchanges of their products are made.
pub(super) struct Whole<T: Real, B: AmgBackend<T>> {
    /// Finest first.
    pub(super) grids: Vec<Kept<T>>,
    pub(super) levels: Vec<AmgLevel>,
    /// The cycle from the last of these grids on; `None` if that grid is only smoothed.
    pub(super) cycle: Option<Amg<T, B>>,
}

/// The rows of one rank of a grid.
pub(super) struct Kept<T> {
    /// D^-1 A; `None` on the finest grid, where the rank has the rows of A, and where every rank has the whole grid.
    pub(super) a: Option<Rows<T>>,
    pub(super) bound: f64,
    /// `None` on the last grid.
    pub(super) down: Option<Way<T>>,
}

/// The way to the next grid and back.
pub(super) struct Way<T> {
    /// D_c^-1 P^T D.
    pub(super) restrict: Rows<T>,
    /// P.
    pub(super) prolong: Rows<T>,
    /// Which rank has which rows of the next grid.
    pub(super) coarse: Partition,
}

/// Makes the grids of a matrix on a device without the other ranks, and keeps the rows of `rank`. `partition` says
/// which rank has which rows, and `nodes` which has which nodes. Grids of at most `gathered` rows are left to the cycle
/// that every rank has.
///
/// # Errors
/// Those of [`Amg::of`].
pub(super) fn make<T: Real, B: Local<T> + AmgBackend<T>>(
    be: &B,
    a: Arc<Csr<T>>,
    rank: usize,
    (partition, nodes): (&Partition, &Partition),
    options: &AmgOptions,
    gathered: usize,
) -> Result<Whole<T, B>> {
    let finest = a.nrows();
    let mut near_null = vectors(be, finest, options.unknowns, None)?;
    let mut a = Mat::<B, Csr<T>>::load(be, a)?;
    let (mut partition, mut nodes, mut options) = (partition.clone(), nodes.clone(), *options);
    let mut scaling = fit(be, &a, 0)?;
    let (mut grids, mut levels) = (Vec::new(), vec![AmgLevel::of(&a, &scaling)]);
    loop {
        let (grid, n, bound) = (grids.len(), a.nrows(), scaling.bound);
        let count = be.len(&near_null) / n.max(1);
        let aggregates = match n <= gathered || options.is_coarsest(grid, n) {
            true => None,
            false => Some(a.aggregate(be, options.unknowns, options.strength)?),
        };
        let goes_on = |rows: usize| !AmgOptions::has_stalled(n, rows);
        let Some(aggregates) = aggregates.filter(|found| goes_on(found.count() * count)) else {
            let is_last = n <= gathered || n <= AmgOptions::MOST_COARSEST;
            let kept =
                if is_last || grid == 0 { None } else { Some(own_operator(be, &a, &scaling, &partition, rank)?) };
            grids.push(Kept { a: kept, bound, down: None });
            let cycle = is_last.then(|| -> Result<_> {
                let options = AmgOptions { levels: options.levels - grid, ..options };
                // The finest grid has the vectors that are the default.
                let near_null = (grid > 0).then(|| Backend::<T>::download(be, &near_null)).transpose()?;
                let made = Amg::below(be, &a, &options, near_null.as_deref(), finest, &mut unobserved);
                made.map_err(|error| error.below(grid))
            });
            let cycle = cycle.transpose()?;
            levels.extend(cycle.iter().flat_map(|cycle| &cycle.levels()[1..]));
            return Ok(Whole { grids, levels, cycle });
        };
        let owners = owners(&aggregates.assignment(be)?, aggregates.count(), &nodes);
        let next = coarser(be, &a, &aggregates, &near_null)?;
        drop(aggregates);
        let of_next = fit(be, &next.a, grid + 1)?;
        let coarse = Partition::unaligned(owners.counts().map(|aggregates| aggregates * count as u64));
        let own = range(&partition, rank);
        let prolong = Rows::from_csr(own.start as u64, next.p.download_rows(be, own)?);
        let restrict = own_restriction(be, &next.transposed, &of_next, &scaling, range(&coarse, rank))?;
        let kept = if grid == 0 { None } else { Some(own_operator(be, &a, &scaling, &partition, rank)?) };
        levels.push(AmgLevel::of(&next.a, &of_next));
        grids.push(Kept { a: kept, bound, down: Some(Way { restrict, prolong, coarse: coarse.clone() }) });
        (a, near_null, scaling, partition, nodes) = (next.a, next.near_null, of_next, coarse, owners);
        options = options.of_next(count);
    }
}

/// The rows of D^-1 A of a rank.
fn own_operator<T: Real, B: Local<T> + AmgBackend<T>>(
    be: &B,
    a: &Mat<B, Csr<T>>,
    scaling: &Scaling<<B as Backend<T>>::Vector>,
    partition: &Partition,
    rank: usize,
) -> Result<Rows<T>> {
    let own = range(partition, rank);
    let mut inverse = vec![T::zero(); own.len()];
    be.read_range(&scaling.inverse, own.start, &mut inverse)?;
    let (first, rows) = (own.start as u64, a.download_rows(be, own)?);
    Ok(Rows::from_csr(first, scaled(rows, &inverse)))
}

/// The rows of D_c^-1 P^T D in a range.
fn own_restriction<T: Real, B: Local<T> + AmgBackend<T>>(
    be: &B,
    transposed: &Mat<B, Csr<T>>,
    coarse: &Scaling<<B as Backend<T>>::Vector>,
    fine: &Scaling<<B as Backend<T>>::Vector>,
    own: Range<usize>,
) -> Result<Rows<T>> {
    let mut inverse = vec![T::zero(); own.len()];
    be.read_range(&coarse.inverse, own.start, &mut inverse)?;
    let first = own.start as u64;
    let rows = transposed.download_rows(be, own)?;
    // Only the part of the finer diagonal that these rows reach.
    let ends = |i: usize| rows.row(i).0.first().zip(rows.row(i).0.last());
    let reached = (0..rows.nrows()).into_par_iter().filter_map(ends);
    let (from, to) = reached
        .map(|(&from, &to)| (from as usize, to as usize + 1))
        .reduce(|| (usize::MAX, 0), |one, other| (one.0.min(other.0), one.1.max(other.1)));
    let from = from.min(to);
    let mut diagonal = vec![T::zero(); to - from];
    be.read_range(&fine.diagonal, from, &mut diagonal)?;
    Ok(Rows::from_csr(first, restriction(rows, &inverse, |col| diagonal[col - from])))
}

/// How many aggregates each rank gets: as many as have their middle, between the first and the last of their nodes,
/// among the rank's nodes. Aggregates are numbered by their roots, so a rank's aggregates lie near its nodes. The bits
/// do not depend on it.
pub(super) fn owners(assignment: &[Ordinal], count: usize, nodes: &Partition) -> Partition {
    let ends: Vec<[AtomicU32; 2]> = (0..count).map(|_| [AtomicU32::new(u32::MAX), AtomicU32::new(0)]).collect();
    let assigned = assignment.par_iter().enumerate().filter(|(_, aggregate)| **aggregate != UNASSIGNED);
    assigned.for_each(|(node, &aggregate)| {
        let [first, last] = &ends[aggregate as usize];
        first.fetch_min(node as u32, Relaxed);
        last.fetch_max(node as u32, Relaxed);
    });
    let mut counts = vec![0; nodes.size()];
    for [first, last] in ends.into_iter().map(|ends| ends.map(AtomicU32::into_inner)) {
        // A root is in its own aggregate, so every aggregate has a node.
        let middle = u64::from(first.min(last)) + u64::from(last.saturating_sub(first)) / 2;
        counts[nodes.owner(middle)] += 1;
    }
    Partition::unaligned(counts)
}

/// What the ranks do with what each has made: they all take it, or they all fail, or, if one of them lacked memory,
/// none takes it and all return `None`. Waits for the other ranks.
pub(super) fn settled<R, C: Communicator>(team: &Team<C>, made: Result<R>) -> Result<Option<R>> {
    let lacks_room = made.as_ref().err().is_some_and(lacks_room);
    if !team.is_everywhere(!lacks_room)? {
        return Ok(None);
    }
    team.together(made).map(Some)
}

/// Whether an error may come from the size of the whole matrix, so that smaller parts of it may succeed.
fn lacks_room(error: &Error) -> bool {
    match error {
        Error::Backend(Fault::OutOfMemory { .. }) => true,
        Error::Backend(Fault::Format(wrong)) | Error::Format(wrong) => {
            matches!(wrong, Wrong::OutOfMemory { .. } | Wrong::TooLarge { .. })
        }
        _ => false,
    }
}
