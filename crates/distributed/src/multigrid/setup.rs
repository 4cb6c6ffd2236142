//! The set-up of geometric multigrid on ranks: finds the grid of the matrix and sets up the planes of each grid.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{Join, Mat};
use spandrel_formats::{Coarsening, Csr, Dia, NEIGHBOURS, Neighbours, Real};
use spandrel_solvers::multigrid::grid::{StencilGrid, halved, no_stencil, sampled_every, unfit_row};
use spandrel_solvers::{Error, Result, StencilMultigrid};

use super::slab::{Slab, gathered};
use super::{Bottom, DistributedMultigrid, Down, Grid, Limits, MultigridDevice, Source};
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

/// The stencil that holds all entries of the matrix. Refuses a matrix without one, on every rank.
fn stencil<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Layout,
    rows: &Rows<T>,
) -> Result<Neighbours> {
    let offsets = offsets_in(rows);
    let all = be.team().all_to_all(vec![bytemuck::cast_slice(&offsets).to_vec(); be.size()])?;
    let mut offsets: Vec<i32> =
        all.iter().flat_map(|of| of.as_chunks::<4>().0).map(|&bytes| i32::from_le_bytes(bytes)).collect();
    offsets.sort_unstable();
    offsets.dedup();
    if offsets.len() <= NEIGHBOURS {
        for of in Neighbours::candidates(layout.len(), &offsets) {
            if be.team().is_everywhere(fits(&of, rows))? {
                return Ok(of);
            }
        }
    }
    be.together(Err(no_stencil()))
}

/// The square matrix of the rows and columns `held`, from these rows and gathered ones. Both are numbered from the
/// first of `held`.
fn square<T: Real>(rows: &Rows<T>, gathered: Gathered<T>, held: &Range<u64>) -> spandrel_formats::Result<Csr<T>> {
    let (numbers, others) = gathered.into_csr(rows.ncols() as usize, &|column| Some(column as u32))?;
    let row = |i: usize| {
        let number = held.start + i as u64;
        let (cols, values) = match number.checked_sub(rows.first()).filter(|&at| at < rows.len() as u64) {
            Some(at) => rows.row(at as usize),
            None => others.row(numbers.partition_point(|&other| other < number)),
        };
        let place = |column: u64| cols.partition_point(|&col| u64::from(col) < column);
        let inside = place(held.start)..place(held.end);
        (&cols[inside.clone()], &values[inside])
    };
    let fill = |i: usize, to: &mut [u32], out: &mut [T]| {
        let (cols, values) = row(i);
        to.iter_mut().zip(cols).for_each(|(to, &col)| *to = (u64::from(col) - held.start) as u32);
        out.copy_from_slice(values);
    };
    let n = (held.end - held.start) as usize;
    Csr::from_rows(n, n, |i| row(i).0.len(), fill)
}

/// The square matrix of the rows and columns that this rank holds, numbered from the first of them. Each rank gets the
/// rows that it lacks from their owners. Waits for the other ranks.
fn brought<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    held: impl Fn(usize) -> Range<u64>,
) -> Result<Csr<T>> {
    let mine = rows.first()..rows.first() + rows.len() as u64;
    let message = |rank: usize| {
        let (wanted, mut message) = (held(rank), Vec::new());
        for row in wanted.start.max(mine.start)..wanted.end.min(mine.end) {
            let (cols, values) = rows.row((row - mine.start) as usize);
            Gathered::write(row, cols, values, &mut message);
        }
        message
    };
    let messages = (0..be.size()).map(|rank| if rank == be.rank() { Vec::new() } else { message(rank) });
    let mut gathered = Gathered::default();
    be.team().all_to_all(messages.collect())?.iter().for_each(|message| gathered.read(message));
    let made = square(rows, gathered, &held(be.rank()));
    be.together(made.map_err(Error::from))
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

/// The coefficients of the sampled rows of the whole grid, from all ranks in their order. This rank has the rows
/// `rows`, and `row` gives the coefficients of one of them.
fn sampled<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    of: &Neighbours,
    rows: Range<u64>,
    row: impl Fn(u64) -> [T; NEIGHBOURS],
) -> Result<Vec<T>> {
    let step = sampled_every(of.points()) as u64;
    let mine: Vec<T> = (rows.start.div_ceil(step)..rows.end.div_ceil(step)).flat_map(|k| row(k * step)).collect();
    Ok(gathered(be.team(), |_| &mine)?)
}

impl<T: Real, B: MultigridDevice<T>> Source<T, B> {
    /// Makes the source that brings the points `needed` of a vector. This rank holds the points `held` of it.
    fn exchange<C: Communicator>(
        be: &Distributed<B, C>,
        of: &Slab,
        held: Range<u64>,
        needed: Range<u64>,
    ) -> Result<Self> {
        let made = Exchange::from_range(be.device(), be.team(), &of.partition(), held, &Needed::Range(needed));
        Ok(Self::Ranks(be.told(made)?))
    }
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
        let a = brought(be, rows, |_| 0..n as u64)?;
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
    let a = brought(be, rows, |rank| slab.rows(rank))?;
    let a = Arc::new(a);
    let made = || {
        let converted = Mat::load(device, Arc::clone(&a))?.convert::<Dia<T>>(device)?;
        let offsets = slab.local().offsets();
        let diagonals = match device.stencil_offsets(converted.resident()) == offsets {
            true => converted,
            // The whole matrix has diagonals that these rows lack.
            false => Mat::load(device, Dia::on_diagonals(&a, offsets)?)?,
        };
        Ok(StencilGrid::new(device, slab.local(), diagonals, smoother)?)
    };
    let (finest, spectrum) = be.together(made().map_err(|error: Error| error))?;
    let first = slab.rows(rank).start;
    let (bound, unfit) = agreed(be, first, spectrum)?;
    let refused = unfit.filter(|row| layout.rows().contains(row)).map(|row| {
        let (cols, values) = rows.row((row - rows.first()) as usize);
        let places = slab.of().places_of(row as usize, cols, values);
        unfit_row(slab.of(), row as usize, &places.unwrap_or([T::zero(); NEIGHBOURS]))
    });
    be.together(refused.map_or(Ok(()), Err))?;
    let local = slab.local();
    let mut samples = sampled(be, slab.of(), slab.own(rank), |row| {
        let row = (row - first) as usize;
        local.places_of(row, a.row(row).0, a.row(row).1).unwrap_or([T::zero(); NEIGHBOURS])
    })?;
    drop(a);
    let mut grids = vec![Grid { part: finest.with_bound(bound), down: None }];
    let mut sizes = vec![slab.of().size()];
    let mut bottom = None;
    while limits.grids.is_none_or(|most| grids.len() < most) {
        let Some(grid) = grids.last_mut() else { break };
        let Some(halved) = halved(slab.of().size(), &samples) else { break };
        let (to, whole) = (slab.coarsening(halved), Coarsening::new(slab.of().size(), halved, 1));
        let next = slab.next(&whole);
        let held = slab.restricted(&to, &next);
        // Only the coarse rows of own points are right; the others are dropped below.
        let made = || {
            let (coarse, of) = (grid.part.a().coarser_stencil(device, &slab.local(), &to)?, slab.local().coarser(&to));
            coarse.stencil_rows(device, &of, 0, 1)
        };
        let mut places = be.together(made())?;
        let own = next.own(rank);
        places.drain(..(own.start.max(held.start) - held.start) as usize * NEIGHBOURS);
        places.truncate((own.end - own.start) as usize * NEIGHBOURS);
        let down = |needed: Range<u64>, back: Source<T, B>| {
            let restricted = Source::exchange(be, &next, held.clone(), needed)?;
            Ok::<_, Error>(Down { to, restricted, back, coarse: (held.end - held.start) as usize })
        };
        if limits.is_whole(next.of().points()) {
            let places = next.whole(team, &places)?;
            let made = || {
                let a = Mat::load(device, next.of().matrix(&places)?)?;
                let levels = limits.grids.map(|most| most - sizes.len());
                StencilMultigrid::below(device, next.of().clone(), a, levels, smoother)
            };
            let Some(cycle) = be.together(made().map_err(|error| error.below(sizes.len())))? else { break };
            sizes.extend_from_slice(cycle.sizes());
            let back: Vec<u32> = held.clone().map(|at| at as u32).collect();
            let back = Source::Whole(be.told(device.places(next.of().points(), &back))?);
            grid.down = Some(down(0..next.of().points() as u64, back)?);
            bottom = Some(Bottom { cycle, of: next.of().points() });
            break;
        }
        let first = next.own(rank).start;
        samples = sampled(be, next.of(), next.own(rank), |row| {
            let at = (row - first) as usize * NEIGHBOURS;
            std::array::from_fn(|place| places[at + place])
        })?;
        let places = next.brought(team, places)?;
        let made = || {
            let a = Mat::load(device, next.local().matrix(&places)?)?;
            Ok(StencilGrid::new(device, next.local(), a, smoother)?)
        };
        let (part, spectrum) = be.together(made().map_err(|error: Error| error))?;
        let (bound, unfit) = agreed(be, next.rows(rank).start, spectrum)?;
        if unfit.is_some() {
            break;
        }
        let back = Source::exchange(be, &next, next.rows(rank), held.clone())?;
        grid.down = Some(down(next.rows(rank), back)?);
        sizes.push(next.of().size());
        grids.push(Grid { part: part.with_bound(bound), down: None });
        slab = next;
    }
    DistributedMultigrid::with(be, layout, entry, (grids, bottom), sizes)
}
