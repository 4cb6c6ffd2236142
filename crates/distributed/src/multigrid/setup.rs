//! The set-up of geometric multigrid on ranks: finds the grid of the matrix and sets up the planes of each grid.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{Entries, Join, Mat};
use spandrel_formats::{Coarsening, Csr, NEIGHBOURS, Neighbours, Real};
use spandrel_solvers::multigrid::grid::{StencilGrid, halved, no_stencil, sampled_every, unfit_row};
use spandrel_solvers::{Error, PolynomialSmoother, Result, StencilMultigrid};

use super::slab::Slab;
use super::{Bottom, DistributedMultigrid, Down, Grid, Limits, MultigridDevice, Source, VectorOf};
use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::exchange::{Exchange, Needed};
use crate::gathered::Gathered;
use crate::layout::Layout;
use crate::rows::Rows;

/// The offsets of the diagonals that have entries in these rows, ascending. If there are more than [`NEIGHBOURS`], some
/// may be missing, but more than that are returned.
fn offsets_in<T: Real>(rows: &Rows<T>) -> Vec<i32> {
    let add = |mut offsets: Vec<i32>, i: usize| {
        let row = rows.first() as i64 + i as i64;
        for &column in rows.row(i).0 {
            let offset = (i64::from(column) - row) as i32;
            // One offset more than a stencil has is enough to refuse the matrix, so stop there.
            if let Err(at) = offsets.binary_search(&offset)
                && offsets.len() <= NEIGHBOURS
            {
                offsets.insert(at, offset);
            }
        }
        offsets
    };
    let both = |mut offsets: Vec<i32>, others: Vec<i32>| {
        offsets.extend(others);
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    };
    (0..rows.len()).into_par_iter().fold(Vec::new, add).reduce(Vec::new, both)
}

/// Whether all entries of these rows lie inside a stencil.
fn fits<T: Real>(of: &Neighbours, rows: &Rows<T>) -> bool {
    let holds = |i: usize| of.places_of(rows.first() as usize + i, rows.row(i).0, rows.row(i).1).is_some();
    (0..rows.len()).into_par_iter().all(holds)
}

/// The stencil that holds all entries of the matrix, or `None` on every rank. Waits for the other ranks.
pub(crate) fn find_stencil<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
) -> spandrel_backend::Result<Option<Neighbours>> {
    let offsets = offsets_in(rows);
    let all = be.team().all_to_all(vec![bytemuck::cast_slice(&offsets).to_vec(); be.size()])?;
    let mut offsets: Vec<i32> =
        all.iter().flat_map(|of| of.as_chunks::<4>().0).map(|&bytes| i32::from_le_bytes(bytes)).collect();
    offsets.sort_unstable();
    offsets.dedup();
    if offsets.len() <= NEIGHBOURS {
        for of in Neighbours::candidates(layout.len(), &offsets) {
            if be.team().is_everywhere(fits(&of, rows))? {
                return Ok(Some(of));
            }
        }
    }
    Ok(None)
}

/// As [`find_stencil`]. Refuses a matrix without a stencil, on every rank.
fn stencil<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
) -> Result<Neighbours> {
    match find_stencil(be, layout, rows)? {
        Some(of) => Ok(of),
        None => be.together(Err(no_stencil())),
    }
}

/// The whole matrix, on every rank. Waits for the other ranks.
fn whole<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, rows: &Rows<T>) -> Result<Csr<T>> {
    let mut message = Vec::new();
    for i in 0..rows.len() {
        let (cols, values) = rows.row(i);
        Gathered::write(rows.first() + i as u64, cols, values, &mut message);
    }
    let mut gathered = Gathered::default();
    be.team().all_to_all(vec![message; be.size()])?.iter().for_each(|message| gathered.read(message));
    let made = gathered.into_csr(rows.ncols() as usize, &|column| Some(column as u32));
    be.together(made.map(|(_, csr)| csr).map_err(Error::from))
}

/// Elements that go to the device at a time. The rows that they are read from should stay in the caches for all
/// diagonals, and a copy to the device should not be short.
const UPLOADED: usize = 1 << 18;

/// `out` <- the entries of these rows, from row `begin` of them on, that lie `offset` columns to the right of the main
/// diagonal.
fn fill<T: Real>(rows: &Rows<T>, begin: usize, offset: u64, out: &mut [T]) {
    const TASK: usize = 1 << 12;
    out.par_iter_mut().with_min_len(TASK).enumerate().for_each(|(i, out)| {
        let row = rows.first() + (begin + i) as u64;
        *out = rows.get(row, row + offset).unwrap_or_else(T::zero);
    });
}

/// The diagonals of these rows on the device, each as a vector with an element per row. Their entries below the main
/// diagonal of the whole matrix are not read.
fn uploaded<T: Real, B: Entries<T>>(
    device: &B,
    offsets: &[i32],
    rows: &Rows<T>,
) -> spandrel_backend::Result<Vec<B::Vector>> {
    let mut vectors = offsets.iter().map(|_| device.zeros(rows.len())).collect::<spandrel_backend::Result<Vec<_>>>()?;
    let mut host = vec![T::zero(); rows.len().min(UPLOADED)];
    for begin in (0..rows.len()).step_by(UPLOADED) {
        let host = &mut host[..UPLOADED.min(rows.len() - begin)];
        for (&offset, vector) in offsets.iter().zip(&mut vectors) {
            fill(rows, begin, offset as u64, host);
            device.write_range(host, vector, begin)?;
        }
    }
    Ok(vectors)
}

/// Brings the elements that this rank needs of each vector. Waits for the other ranks.
fn brought<T: Real, B: Entries<T>, C: Communicator>(
    be: &Distributed<B, C>,
    by: &Exchange<T, B>,
    vectors: Vec<B::Vector>,
) -> Result<Vec<B::Vector>> {
    let (device, team) = (be.device(), be.team());
    let bring = |vector: B::Vector| {
        let mut packed = device.zeros(by.len())?;
        by.gather(device, team, None, &vector, &mut packed)?;
        Ok(packed)
    };
    Ok(be.told(vectors.into_iter().map(bring).collect())?)
}

/// Sets up the planes of a grid that this rank holds, from the diagonals of their matrix. Also returns the first unfit
/// row of the whole grid. Waits for the other ranks.
fn planes<T: Real, B: MultigridDevice<T>, C: Communicator>(
    be: &Distributed<B, C>,
    slab: &Slab,
    upper: Vec<VectorOf<T, B>>,
    smoother: PolynomialSmoother,
) -> Result<(StencilGrid<T, B>, Option<u64>)> {
    let (device, of) = (be.device(), slab.local());
    let made = || {
        let a = Mat::of_stencil_diagonals(device, &of, &upper)?;
        drop(upper);
        Ok(StencilGrid::new(device, of, a, smoother)?)
    };
    let (part, spectrum) = be.together(made().map_err(|error: Error| error))?;
    let (bound, unfit) = agreed(be, slab.rows(be.rank()).start, spectrum)?;
    Ok((part.with_bound(bound), unfit))
}

/// The largest bound of all ranks, and the first unfit row among the points of all ranks. Waits for the other ranks.
fn agreed<B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    first: u64,
    spectrum: spandrel_backend::Spectrum,
) -> Result<(f64, Option<u64>)> {
    let unfit = spectrum.unfit.map_or(u64::MAX, |row| first + row as u64);
    let all = be.everywhere(&[unfit, spectrum.bound.to_bits()])?;
    // The bits of numbers that are not negative are ordered as the numbers are.
    let bound = all.iter().map(|of| of[1]).max().map_or(spectrum.bound, f64::from_bits);
    Ok((bound, all.iter().map(|of| of[0]).min().filter(|&row| row != u64::MAX)))
}

/// The coefficients of the sampled rows of the whole grid, from all ranks in their order. Waits for the other ranks.
fn sampled<T: Real, B: MultigridDevice<T>, C: Communicator>(
    be: &Distributed<B, C>,
    slab: &Slab,
    part: &StencilGrid<T, B>,
) -> Result<Vec<T>> {
    let (own, first) = (slab.own(be.rank()), slab.rows(be.rank()).start);
    let step = sampled_every(slab.of().points()) as u64;
    let begin = own.start.next_multiple_of(step);
    let count = own.end.saturating_sub(begin).div_ceil(step) as usize;
    let made = part.a().stencil_rows(be.device(), part.of(), (begin - first) as usize, step as usize);
    let mut mine = be.told(made)?;
    // The others are in planes of other ranks.
    mine.truncate(count * NEIGHBOURS);
    let all = be.team().all_to_all(vec![bytemuck::cast_slice(&mine).to_vec(); be.size()])?;
    Ok(all.iter().flat_map(|part| part.chunks_exact(T::BYTES)).map(bytemuck::pod_read_unaligned).collect())
}

/// Makes the exchange that brings the points `needed` of a vector. This rank holds the points `held` of it.
fn exchange<T: Real, B: Entries<T>, C: Communicator>(
    be: &Distributed<B, C>,
    of: &Slab,
    held: Range<u64>,
    needed: Range<u64>,
) -> Result<Exchange<T, B>> {
    let made = Exchange::from_range(be.device(), be.team(), &of.partition(), held, &Needed::Range(needed));
    Ok(be.told(made)?)
}

/// Sets up the grids. See [`DistributedMultigrid::of`].
pub(super) fn hierarchy<T: Real, B: MultigridDevice<T>, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Arc<Layout>,
    rows: &Rows<T>,
    limits: &Limits,
) -> Result<DistributedMultigrid<T, B>> {
    let (device, team, rank, n) = (be.device(), be.team(), be.rank(), layout.len());
    let Limits { smoother, .. } = *limits;
    let entry = |needed| be.told(Exchange::new(device, team, layout.partition(), &Needed::Range(needed)));
    if limits.is_whole(n) {
        let a = whole(be, rows)?;
        let made = || {
            let a = Mat::load(device, a)?;
            StencilMultigrid::of(device, &a, limits.grids, smoother, &mut spandrel_solvers::phase::unobserved)
        };
        let bottom = Bottom { cycle: be.together(made())?, of: n };
        let sizes = bottom.cycle.sizes().to_vec();
        return DistributedMultigrid::with(be, layout, entry(0..n as u64)?, (Vec::new(), Some(bottom)), sizes);
    }
    let mut slab = Slab::finest(stencil(be, layout, rows)?, layout.partition(), rank, smoother);
    let entry = entry(slab.rows(rank))?;
    let upper = be.told(uploaded(device, &slab.of().upper_offsets(), rows))?;
    let (finest, unfit) = planes(be, &slab, brought(be, &entry, upper)?, smoother)?;
    let refused = unfit.filter(|row| layout.rows().contains(row)).map(|row| {
        let (cols, values) = rows.row((row - rows.first()) as usize);
        let places = slab.of().places_of(row as usize, cols, values);
        unfit_row(slab.of(), row as usize, &places.unwrap_or([T::zero(); NEIGHBOURS]))
    });
    be.together(refused.map_or(Ok(()), Err))?;
    let mut grids = vec![Grid { part: finest, down: None }];
    let mut sizes = vec![slab.of().size()];
    let mut bottom = None;
    while limits.grids.is_none_or(|most| grids.len() < most) {
        let Some(Grid { part, down }) = grids.last_mut() else { break };
        let Some(halved) = halved(slab.of().size(), &sampled(be, &slab, part)?) else { break };
        let to = slab.coarsening(halved);
        let next = slab.next(&Coarsening::new(slab.of().size(), halved, 1));
        let (points, held) = (next.of().points(), slab.restricted(&to, &next));
        let is_whole = limits.is_whole(points);
        let needed = if is_whole { 0..points as u64 } else { next.rows(rank) };
        // Of the restriction and of the coarser matrix only the rows of own points are right, and only these are sent.
        let restricted = exchange(be, &next, held.clone(), needed)?;
        let made = || {
            let coarse = part.a().coarser_stencil(device, part.of(), &to)?;
            coarse.stencil_diagonals(device, &part.of().coarser(&to))
        };
        let upper = brought(be, &restricted, be.told(made())?)?;
        let coarse = (held.end - held.start) as usize;
        if is_whole {
            let made = || {
                let a = Mat::of_stencil_diagonals(device, next.of(), &upper)?;
                let levels = limits.grids.map(|most| most - sizes.len());
                StencilMultigrid::below(device, next.of().clone(), a, levels, smoother)
            };
            let Some(cycle) = be.together(made().map_err(|error| error.below(sizes.len())))? else { break };
            sizes.extend_from_slice(cycle.sizes());
            let back: Vec<u32> = held.map(|at| at as u32).collect();
            let back = Source::Whole(be.told(device.places(points, &back))?);
            *down = Some(Down { to, restricted, back, coarse });
            bottom = Some(Bottom { cycle, of: points });
            break;
        }
        let (part, unfit) = planes(be, &next, upper, smoother)?;
        if unfit.is_some() {
            break;
        }
        let back = Source::Ranks(exchange(be, &next, next.rows(rank), held)?);
        *down = Some(Down { to, restricted, back, coarse });
        sizes.push(next.of().size());
        grids.push(Grid { part, down: None });
        slab = next;
    }
    DistributedMultigrid::with(be, layout, entry, (grids, bottom), sizes)
}
