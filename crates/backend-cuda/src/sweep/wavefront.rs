//! How kernels/wavefront.cu stores and solves a grid: tiles, blocks, warps, clusters, shared memory.
//!
//! Layout: [`WavefrontArg`] has the twin `Wavefront` in kernels/wavefront.cu, whose head explains it.
//!
//! Invariant: there is no cycle of waits. Give batch k of block j of tile t the time k + `block_lag` j + `tile_lag` t;
//! among equal times, smaller tiles and then smaller blocks come first. The operands of a block have its own time or an
//! earlier one. Memory is released in time: a block's own ring and its copies hold more batches than the age of the
//! oldest operand. A block may have to wait for its warp until the block of the previous turn is done. Its neighbours
//! can then run ahead by the `deep` batches that they keep. Enough batches are kept for all blocks of a turn except one
//! to finish, each that far ahead of the next.

use spandrel_formats::Real;
use spandrel_sptrsv::Lattice;

use super::SolveWaves;
use super::geometry::{self, TermsArg};
use super::resident::PlacesArg;
use crate::kernel::{Argument, Entry};

/// Sizes as in the kernels: planes of a tile, lines of a plane in a block, the least number of rows by which an operand
/// of the plane before is older, and rows of the slots between thread blocks of a cluster.
const PLANES: usize = 4;
const LINES: usize = 8;
const AGE: i32 = 2;
const NEAR: usize = 8;
const LANES: usize = 32;
/// The number of values in a row of a ring: odd pairs, so that points of four lines are in different banks.
const PITCH: usize = 34;
/// The rows of a block's own ring, and of b in flight.
const RING: usize = 16;
const ROOM: usize = 32;
/// The largest number of batches of coefficients in flight per warp, and the number from which more have no use: a copy
/// takes about as long as two batches.
const DEPTHS: [usize; 3] = [4, 3, 2];
const ENOUGH: usize = 3;
/// The data that a block keeps for the next one: the number of lanes, and the smallest number of batches.
const KEPT: usize = 8;
const DEEP: usize = 8;
/// The largest number of threads in a thread block, as in the kernels.
const THREADS: usize = 384;
/// The largest number of thread blocks in a cluster, which every device with clusters runs. A tile uses four of them,
/// if it has enough blocks: when more than three or four warps solve on one multiprocessor, its shared memory bounds a
/// batch.
const CREW: usize = 8;
const PARTS: usize = 4;
/// The maximum number of stored places per point if values take more than [`LITTLE`] bytes: short lines consist mostly
/// of the ends of rows.
const PADDING: usize = 3;
const LITTLE: usize = 64 << 20;

/// `struct Wavefront`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct WavefrontArg {
    nx: u32,
    ny: u32,
    nz: u32,
    by_line: u32,
    by_plane: u32,
    shear: u32,
    blocks: u32,
    parts: u32,
    warps: u32,
    tiles: u32,
    batches: u32,
    movers: u32,
    deep: u32,
    depth: u32,
    pub(super) mirrored: u32,
    /// For the alignment.
    unused: u32,
    tile_values: u64,
}
// SAFETY: `struct Wavefront`: fifteen u32, one that aligns, then a u64.
unsafe impl Argument for WavefrontArg {}

/// Points of the stencils that kernels are for, and the kernels.
const KERNELS: [(usize, Entry<SolveWaves>); 6] = [
    (7, SolveWaves::POINTS_7),
    (13, SolveWaves::POINTS_13),
    (15, SolveWaves::POINTS_15),
    (19, SolveWaves::POINTS_19),
    (27, SolveWaves::POINTS_27),
    (33, SolveWaves::POINTS_33),
];

/// The schedule of a grid, and its needs on the device.
#[derive(Debug)]
pub(super) struct Wavefront {
    pub(super) arg: WavefrontArg,
    pub(super) terms: TermsArg,
    pub(super) kernel: Entry<SolveWaves>,
    pub(super) threads: usize,
    /// Bytes of dynamic shared memory.
    pub(super) shared: usize,
    /// Thread blocks of a cluster.
    pub(super) crew: usize,
    /// The number of packed values of one system.
    pub(super) values: usize,
    /// The size of the hand-over memory between clusters, in words of 64 bits.
    pub(super) words: usize,
}

/// The slopes and lags that follow from a stencil. A point on plane p of its tile and line l of its block is solved
/// `by_plane` p + `by_line` l rows after that on plane and line 0. Line l of plane p lies `shear` p lines before that
/// of plane 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slopes {
    shear: i32,
    by_line: i32,
    by_plane: i32,
    /// How many planes back a term may reach.
    behind: i32,
    /// How far ahead a term of another line may look.
    reach: i32,
    /// How many lines the next block reads.
    kept: i32,
    /// The lag in batches of a block behind the previous one, and of a tile behind the previous one.
    block_lag: i32,
    tile_lag: i32,
}

impl Slopes {
    fn of(offsets: &[[i32; 3]]) -> Self {
        let (planes, lines) = (PLANES as i32, LINES as i32);
        let other = || offsets.iter().filter(|o| o[1] != 0 || o[2] != 0);
        let most = |of: &dyn Fn(&[i32; 3]) -> i32, least: i32| other().map(of).max().unwrap_or(least).max(least);
        let shear = most(&|o| if o[2] < 0 { (o[1] - o[2] - 1).div_euclid(-o[2]) } else { 0 }, 0);
        let by_line = most(&|o| if o[2] == 0 { (o[0] - o[1]).div_euclid(-o[1]) } else { 1 }, 1);
        let back = |o: &[i32; 3]| o[1] + shear * o[2];
        let late = |by_plane: i32| {
            let before = || other().filter(|o| o[2] < 0);
            before().all(|o| o[0] + by_line * back(o) + by_plane * o[2] <= -AGE)
                && (planes * (by_plane + shear * by_line)) % 4 == 0
        };
        let by_plane = (1..).find(|&by_plane| late(by_plane)).unwrap_or(1);
        Self {
            shear,
            by_line,
            by_plane,
            behind: most(&|o| -o[2], 0),
            reach: most(&|o| o[0], 0),
            kept: most(&|o| -back(o), 0),
            block_lag: lines * by_line / 4,
            tile_lag: planes * (by_plane + shear * by_line) / 4,
        }
    }
}

impl Wavefront {
    /// The schedule of a grid with this much shared memory per thread block and at most this many thread blocks, if
    /// there is a kernel for its stencil and one fits.
    pub(super) fn of<T: Real>(lattice: &Lattice, shared: usize, blocks: usize) -> Option<Self> {
        let (size, offsets) = lattice.canonical();
        schedule(size, &offsets, T::BYTES, shared.min(geometry::SHARED), blocks)
    }

    /// The places of values that are copied from a matrix on the device.
    pub(super) fn places(&self, mirrored: bool, unit: bool) -> PlacesArg {
        let WavefrontArg { nx, ny, nz, by_line, by_plane, shear, blocks, tiles, batches, .. } = self.arg;
        let (rows, width) = (4 * (batches - 1), self.terms.count + 1);
        PlacesArg {
            lines: ny * nz,
            planes: tiles * blocks,
            lanes: LANES as u32,
            steps: rows,
            width,
            mirrored: u32::from(mirrored),
            blocks,
            by_line,
            by_plane,
            shear,
            unit: u32::from(unit),
            plane_values: u64::from(rows) * u64::from(width) * LANES as u64,
            ..PlacesArg::of_terms(&self.terms.along, self.terms.count, [nx, ny])
        }
    }

    /// Tiles, blocks of a tile, and rows of a block.
    pub(super) fn in_blocks(&self) -> [u32; 3] {
        [self.arg.tiles, self.arg.blocks, 4 * (self.arg.batches - 1)]
    }

    /// Points of the grid along every axis.
    pub(super) fn size(&self) -> [u32; 3] {
        [self.arg.nx, self.arg.ny, self.arg.nz]
    }

    /// The blocks of all tiles (tile by tile) by the time of their first row: then a block comes after those that a
    /// factorisation in blocks waits for (kernels/include/grid_factor.cuh), and those at work at the same time are
    /// neighbours.
    pub(super) fn blocks_in_time(&self) -> Vec<u32> {
        let WavefrontArg { by_line, by_plane, shear, blocks, tiles, .. } = self.arg;
        let (by_block, by_tile) = (LINES as u32 * by_line, PLANES as u32 * (by_plane + shear * by_line));
        let begins =
            |&at: &u32| u64::from(at / blocks) * u64::from(by_tile) + u64::from(at % blocks) * u64::from(by_block);
        let mut all: Vec<u32> = (0..tiles * blocks).collect();
        // Blocks of earlier tiles stay before those of later ones that begin at the same time.
        all.sort_by_key(begins);
        all
    }

    /// The number of thread blocks that have work, in whole clusters.
    pub(super) fn useful(&self) -> usize {
        (self.arg.tiles as usize * self.arg.parts as usize).next_multiple_of(self.crew)
    }
}

/// The warps of a thread block and what they share.
struct Team {
    warps: usize,
    depth: usize,
    deep: usize,
    movers: usize,
    threads: usize,
    shared: usize,
}

fn schedule(
    size: [usize; 3],
    offsets: &[[i32; 3]],
    bytes: usize,
    shared_most: usize,
    thread_blocks: usize,
) -> Option<Wavefront> {
    let &(points, kernel) = KERNELS.iter().find(|(points, _)| geometry::stencil(*points) == Some(offsets))?;
    let [nx, ny, nz] = size;
    let slopes = Slopes::of(offsets);
    let wide = |v: i32| v as usize;
    let skew = (LINES - 1) * wide(slopes.by_line) + (PLANES - 1) * wide(slopes.by_plane) + wide(slopes.reach);
    let (blocks, tiles) = ((ny + (PLANES - 1) * wide(slopes.shear)).div_ceil(LINES), nz.div_ceil(PLANES));
    let batches = 1 + 2 * nx.checked_add(skew)?.div_ceil(8);
    let (rows, width) = (4 * (batches - 1), points / 2 + 1);
    let tile_values = blocks.checked_mul(rows)?.checked_mul(width * LANES)?;
    let values = tile_values.checked_mul(tiles)?;
    let n = nx.checked_mul(ny)?.checked_mul(nz)?;
    if n >= 1 << 31 || batches >= 1 << 24 || (values * bytes > LITTLE && values > PADDING * width * n) {
        return None;
    }
    let handed = LINES * wide(slopes.behind);
    let block_lag = wide(slopes.block_lag);
    let ring = PITCH * bytes;
    // The number of blocks that work at the same time, if a block delays the next one by its lag and one batch.
    let at_once = batches.div_ceil(block_lag + 1);
    let crew_most = CREW.min(1 << thread_blocks.max(1).ilog2());
    [PARTS, 2, 1].into_iter().filter(|&parts| parts <= crew_most && (parts == 1 || blocks > parts)).find_map(|parts| {
        // Take no more warps than that, because they would slow each other down.
        let most = ((at_once + parts / 2) / parts).max(2).min(blocks.div_ceil(parts));
        let ways = (1..=most).flat_map(|warps| DEPTHS.map(|depth| (warps, depth)));
        // The more batches are in flight, the busier the memory is.
        let best = ways.filter_map(|(warps, depth)| {
            let turn = warps * parts;
            // All blocks of a turn except one, each this far ahead of the next, finish.
            let ahead = batches.div_ceil((turn - 1).max(1)).saturating_sub(block_lag);
            let deep = if blocks <= turn { DEEP } else { DEEP.max(ahead + 6) };
            let (sets, takers) = if parts > 1 { (warps + 1, warps + 2) } else { (warps, warps) };
            let movers = warps.div_ceil(2);
            let threads = LANES * (warps + takers + movers);
            // Stages begin at a multiple of 128 bytes, slots at one of 16.
            let shared = ring * (warps * (RING + ROOM))
                + ring * 4 * deep * (sets.div_ceil(LANES / KEPT) + sets.div_ceil(LANES / handed))
                + 128
                + warps * (depth * (4 * width * LANES * bytes + 8) + ROOM)
                + 16
                + takers * NEAR * handed * 2 * bytes
                + 4 * (5 * blocks + warps);
            let fits = threads <= THREADS && shared <= shared_most && (turn > 1 || blocks <= 1);
            fits.then_some(Team { warps, depth, deep, movers, threads, shared })
        });
        let Team { warps, depth, deep, movers, threads, shared } =
            best.max_by_key(|c| (c.warps * c.depth.min(ENOUGH), c.warps, c.depth))?;
        let narrow = |v: usize| u32::try_from(v).ok();
        let crew = crew_most.min((tiles * parts).next_power_of_two());
        let words = tiles.div_ceil(crew / parts) * blocks * rows * handed * bytes.div_ceil(4);
        Some(Wavefront {
            arg: WavefrontArg {
                nx: narrow(nx)?,
                ny: narrow(ny)?,
                nz: narrow(nz)?,
                by_line: narrow(wide(slopes.by_line))?,
                by_plane: narrow(wide(slopes.by_plane))?,
                shear: narrow(wide(slopes.shear))?,
                blocks: narrow(blocks)?,
                parts: narrow(parts)?,
                warps: narrow(warps)?,
                tiles: narrow(tiles)?,
                batches: narrow(batches)?,
                movers: narrow(movers)?,
                deep: narrow(deep)?,
                depth: narrow(depth)?,
                mirrored: 0,
                unused: 0,
                tile_values: tile_values as u64,
            },
            terms: geometry::terms(offsets),
            kernel,
            threads,
            shared,
            crew,
            values,
            words,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_kernels() {
        let expected =
            [(7, 1, 2, 0, 1), (13, 1, 2, 0, 2), (15, 1, 3, 1, 2), (19, 2, 2, 1, 2), (27, 2, 3, 1, 2), (33, 2, 3, 1, 2)];
        for (points, by_line, by_plane, shear, kept) in expected {
            let found = Slopes::of(geometry::stencil(points).expect("a stencil"));
            assert_eq!(
                (found.by_line, found.by_plane, found.shear, found.kept),
                (by_line, by_plane, shear, kept),
                "{points}"
            );
            assert!(found.kept * PLANES as i32 <= KEPT as i32, "{points}: {found:?}");
        }
    }

    #[test]
    fn blocks_come_after_those_that_they_wait_for() {
        for (points, _) in KERNELS {
            let offsets = geometry::stencil(points).expect("a stencil");
            let s = Slopes::of(offsets);
            let time = |o: &[i32; 3]| o[0] + s.by_line * o[1] + (s.by_plane + s.shear * s.by_line) * o[2];
            assert!(offsets.iter().all(|o| time(o) < 0), "{points}: an operand is older");
            for size in [[9, 10, 6], [64, 64, 64], [40, 300, 20], [3, 3, 90]] {
                let found = schedule(size, offsets, 8, geometry::SHARED, 100).expect("a schedule");
                let (order, [tiles, blocks, _]) = (found.blocks_in_time(), found.in_blocks());
                let mut at = vec![usize::MAX; (tiles * blocks) as usize];
                for (place, &block) in order.iter().enumerate() {
                    assert_eq!(std::mem::replace(&mut at[block as usize], place), usize::MAX);
                }
                for (block, &place) in at.iter().enumerate() {
                    let (tile, j) = (block as u32 / blocks, block as u32 % blocks);
                    let waits = [(0, -1), (1, 0), (1, 1)].into_iter().filter(|&(back, side)| {
                        tile >= back && (0..i64::from(blocks)).contains(&(i64::from(j) + side))
                    });
                    for (back, side) in waits {
                        let other = i64::from((tile - back) * blocks + j) + side;
                        assert!(at[other as usize] < place, "{points} {size:?}: block {j} of tile {tile}");
                    }
                }
            }
        }
    }

    /// The source of a lane's operand: tiles before, the neighbouring block, and the row relative to the point's.
    fn source(s: &Slopes, o: &[i32; 3], newest: i32, plane: i32, line: i32) -> (usize, i64, i64) {
        let (mut of_plane, mut at) = (plane + o[2], line + o[1] + s.shear * o[2]);
        let before = of_plane < 0;
        if before {
            of_plane += PLANES as i32;
            at += s.shear * PLANES as i32;
        }
        assert!((0..PLANES as i32).contains(&of_plane));
        let side = at.div_euclid(LINES as i32);
        (usize::from(before), i64::from(side), i64::from(newest))
    }

    /// Simulates the waits of the kernel. One warp at a time runs as far as it can, and all blocks must finish.
    fn plays_through(size: [usize; 3], points: usize, thread_blocks: usize) {
        let offsets = geometry::stencil(points).expect("a stencil");
        let Some(found) = schedule(size, offsets, 8, geometry::SHARED, thread_blocks) else { return };
        let s = Slopes::of(offsets);
        let a = found.arg;
        let (tiles, blocks, batches) = ((a.tiles as usize).min(5), a.blocks as usize, i64::from(a.batches));
        let (warps, parts, deep) = (a.warps as usize, a.parts as usize, i64::from(a.deep));
        let turn = warps * parts;
        let part = |j: usize| j % turn / warps;
        // Who reads whom: earlier tiles, the neighbouring block, and the newest and the oldest batch of its own, in
        // time.
        let mut reads: Vec<(usize, i64, i64, i64)> = Vec::new();
        for o in offsets.iter().filter(|o| o[1] != 0 || o[2] != 0) {
            let of_line = || offsets.iter().filter(|other| other[1..] == o[1..]);
            let newest = of_line().map(|o| o[0]).max().expect("a term")
                + s.by_line * (o[1] + s.shear * o[2])
                + s.by_plane * o[2];
            for plane in 0..PLANES as i32 {
                for line in 0..LINES as i32 {
                    let (before, side, newest) = source(&s, o, newest, plane, line);
                    if before == 0 && side == 0 {
                        continue;
                    }
                    assert!(side == if before == 0 { -1 } else { side.max(0) }, "{points}: side {side} of {before}");
                    let several = i64::from(of_line().count() > 1);
                    let edge = ((newest + 3).div_euclid(4), (newest - several).div_euclid(4));
                    match reads.iter_mut().find(|r| (r.0, r.1) == (before, side)) {
                        Some(r) => (r.2, r.3) = (r.2.max(edge.0), r.3.min(edge.1)),
                        None => reads.push((before, side, edge.0, edge.1)),
                    }
                }
            }
        }
        let shift = |before: usize, side: i64| before as i64 * i64::from(s.tile_lag) - side * i64::from(s.block_lag);
        let beside = |j: usize, side: i64| usize::try_from(j as i64 + side).ok().filter(|&j| j < blocks);
        // Finished batches of a block, and of its copies: of a tile's block by the parts of the next tile (same,
        // previous), of what it keeps.
        let mut done = vec![vec![0i64; blocks]; tiles];
        let mut copied = vec![vec![[0i64; 3]; blocks]; tiles];
        // The copy that a reader looks at: of block `from`, read by block j, `before` tiles on.
        let copy_for = |before: usize, from: usize, j: usize| match (before, part(from) == part(j)) {
            (0, true) => None,
            (0, false) => Some(2),
            (_, true) => Some(0),
            (_, false) => Some(1),
        };
        loop {
            let mut moved = false;
            for t in (0..tiles).rev() {
                for j in (0..blocks).rev() {
                    // The copies.
                    for (kind, (before, reader)) in [(1, t + 1), (1, t + 1), (0, t)].into_iter().enumerate() {
                        let k = copied[t][j][kind];
                        if reader >= tiles || k == batches || k >= done[t][j] {
                            continue;
                        }
                        let readers = |j: usize| {
                            let at = reads.iter().filter(move |r| r.0 == before);
                            at.filter_map(move |r| beside(j, -r.1).map(|by| (by, *r)))
                                .filter(move |(by, _)| copy_for(before, j, *by) == Some(kind))
                        };
                        let free = readers(j)
                            .all(|(by, r)| done[reader][by] >= (k + 1 - shift(before, r.1) - r.3 - deep).min(batches));
                        let over = j < turn || readers(j - turn).all(|(by, _)| done[reader][by] == batches);
                        if free && over {
                            copied[t][j][kind] += 1;
                            moved = true;
                        }
                    }
                    let k = done[t][j];
                    if k == batches || (j >= turn && done[t][j - turn] < batches) {
                        continue;
                    }
                    let come = reads.iter().filter(|r| r.0 <= t).all(|&(before, side, newest, _)| {
                        let Some(from) = beside(j, side) else { return true };
                        let at =
                            copy_for(before, from, j).map_or(done[t - before][from], |c| copied[t - before][from][c]);
                        at >= (k + newest + 1 + shift(before, side)).min(batches)
                    });
                    let near = |j: usize| {
                        reads.iter().filter(|r| r.0 == 0).filter_map(move |r| beside(j, -r.1).map(|by| (by, *r)))
                    };
                    let free = near(j).all(|(by, r)| {
                        copy_for(0, j, by).is_some() || done[t][by] >= (k + 1 - shift(0, r.1) - r.3 - deep).min(batches)
                    });
                    let over = j < turn
                        || near(j - turn).all(|(by, _)| copy_for(0, j - turn, by).is_some() || done[t][by] == batches);
                    let slots = (0..3).all(|kind| {
                        let (before, reader) = if kind == 2 { (0, t) } else { (1, t + 1) };
                        let taken = reads
                            .iter()
                            .filter(|r| r.0 == before)
                            .filter_map(|r| beside(j, -r.1))
                            .any(|by| copy_for(before, j, by) == Some(kind));
                        reader >= tiles || !taken || copied[t][j][kind] > k - 1 - (NEAR / 4) as i64
                    });
                    if come && free && over && slots {
                        done[t][j] += 1;
                        moved = true;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        assert!(
            done.iter().flatten().all(|&k| k == batches),
            "{size:?}, {points} points, {thread_blocks}: {a:?} stands still"
        );
    }

    #[test]
    fn no_schedule_stands_still() {
        for (points, _) in KERNELS {
            for nx in [3, 9, 33, 64, 131, 256, 300] {
                for ny in [3, 31, 33, 64, 150, 256] {
                    for thread_blocks in [1, 2, 132] {
                        plays_through([nx, ny, 18], points, thread_blocks);
                    }
                }
            }
        }
    }

    #[test]
    fn cubes_of_every_kernel_fit() {
        for (points, _) in KERNELS {
            for edge in [64, 128, 192, 256] {
                let offsets = geometry::stencil(points).expect("a stencil");
                let found = schedule([edge; 3], offsets, 8, geometry::SHARED, 132).expect("a schedule");
                assert_eq!(found.arg.parts, 4, "{points} points, {edge}: {found:?}");
                let (warps, depth) = (found.arg.warps, found.arg.depth);
                assert!(warps >= 2 && depth >= 2 && warps * depth >= 6, "{points}, {edge}: {found:?}");
            }
        }
    }
}
