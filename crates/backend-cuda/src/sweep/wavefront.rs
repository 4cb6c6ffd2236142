//! How a grid is laid out and solved by kernels/wavefront.cu: warps, rings, tiles, clusters, shared memory.
//!
//! Layout: [`WavefrontArg`] has the twin `Wavefront` in kernels/wavefront.cu, whose head says what it means.
//! Invariants: no circle of waits. Give batch k of block j of plane z the time k + 8 sigma j + lag z and let smaller planes, then smaller
//! blocks be first where times are equal. A block waits for what comes before it: for its operands since `lag` is at least what
//! a plane needs of those before; for its ring since that holds as many batches as readers `behind` planes later are late, plus those that
//! they still read; to take over the ring of block j - warps, since there are so many warps that its readers ended before.

use spandrel_formats::Real;
use spandrel_sptrsv::Sweep;

use super::geometry::{self, TermsArg};
use crate::launch::Argument;

/// Rows of the slots between thread blocks of a cluster, as in the kernels.
const NEAR: usize = 8;
/// Lines of a block.
const LINES: usize = 32;
/// Rows of a ring, and values of one of its rows: odd pairs, so that points of four lines are in banks of their own.
const RING: usize = 16;
const PITCH: usize = 34;
/// Rows of b under way.
const ROOM: usize = 16;
/// Thread blocks of a cluster at most: what every device with clusters runs.
const CREW: usize = 8;
/// Stored places a point at most, where values take more than [`LITTLE`] bytes: short lines are mostly the ends of rows.
const PADDING: usize = 3;
const LITTLE: usize = 64 << 20;

/// `struct Wavefront`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct WavefrontArg {
    nx: u32,
    ny: u32,
    nz: u32,
    blocks: u32,
    warps: u32,
    planes: u32,
    pub(super) tiles: u32,
    batches: u32,
    rows: u32,
    ring: u32,
    depth: u32,
    pub(super) mirrored: u32,
    plane_values: u64,
}
// SAFETY: `struct Wavefront`: twelve u32, then a u64.
unsafe impl Argument for WavefrontArg {}

/// A kernel: points of its stencil, its name, and the threads that it is compiled for.
type Kernel = (usize, &'static str, usize);

const KERNELS: [Kernel; 6] = [
    (7, "sptrsv7_wavefront", 512),
    (13, "sptrsv13_wavefront", 512),
    (15, "sptrsv15_wavefront", 512),
    (19, "sptrsv19_wavefront", 512),
    (27, "sptrsv27_wavefront", 512),
    (33, "sptrsv33_wavefront", 384),
];

/// A grid's schedule, and what it needs on the device.
#[derive(Debug)]
pub(super) struct Wavefront {
    pub(super) arg: WavefrontArg,
    pub(super) terms: TermsArg,
    pub(super) kernel: &'static str,
    /// Steps by which a line follows the one before.
    pub(super) sigma: u32,
    pub(super) threads: usize,
    /// Bytes of dynamic shared memory.
    pub(super) shared: usize,
    /// Thread blocks of a cluster.
    pub(super) crew: usize,
    /// Packed values of one system.
    pub(super) values: usize,
    /// Words of 64 bits of what is handed on between clusters of `crew`.
    pub(super) words: usize,
}

/// What follows from a stencil.
#[derive(Clone, Copy, Debug)]
struct Slopes {
    sigma: usize,
    behind: usize,
    /// The furthest that a term of another line looks ahead.
    reach: usize,
    lag: usize,
    /// Batches of a ring at least.
    groups: usize,
}

/// The oldest row that is read for the newest operand of a term's line: a block's first batch reads the row before its own where a line
/// has several terms.
fn oldest(offsets: &[[i32; 3]], o: &[i32; 3], newest: i32) -> i32 {
    newest - i32::from(offsets.iter().any(|other| other[1..] == o[1..] && other != o))
}

impl Slopes {
    fn of(offsets: &[[i32; 3]]) -> Self {
        let other = || offsets.iter().filter(|o| o[1] != 0 || o[2] != 0);
        let sigma = other().filter(|o| o[2] == 0).map(|o| (o[0] - o[1]) / -o[1]).max().unwrap_or(1).max(1);
        let behind = offsets.iter().map(|o| -o[2]).max().unwrap_or(0);
        let reach = other().map(|o| o[0]).max().unwrap_or(0).max(0);
        // A line's newest operand; the older ones of the line stay in registers.
        let newest = |o: &[i32; 3]| {
            let line = offsets.iter().filter(|other| other[1..] == o[1..]);
            line.map(|o| o[0]).max().unwrap_or(0) + sigma * o[1]
        };
        // Batches of a plane d before that a batch is ahead of, at most.
        let ahead = |o: &[i32; 3]| ((newest(o) - 1).div_euclid(4) + 1 + -o[2] - 1).div_euclid(-o[2]);
        let lag = offsets.iter().filter(|o| o[2] < 0).map(ahead).max().unwrap_or(0).max(0);
        let held =
            other().map(|o| lag * -o[2] - oldest(offsets, o, newest(o)).div_euclid(4) + 1).max().unwrap_or(0).max(0);
        let wide = |v: i32| v as usize;
        Self { sigma: wide(sigma), behind: wide(behind), reach: wide(reach), lag: wide(lag), groups: wide(held) }
    }
}

impl Wavefront {
    /// The schedule of a plan with so many bytes of shared memory for a thread block, if a kernel is for its stencil and one fits.
    pub(super) fn of<T: Real>(plan: &Sweep<T>, shared: usize) -> Option<Self> {
        let lattice = plan.lattice();
        let (size, offsets) = geometry::canonical(lattice.size(), lattice.offsets());
        schedule(size, &offsets, T::BYTES, shared.min(geometry::SHARED))
    }

    /// With clusters of fewer thread blocks: as many as a grid of `blocks` holds.
    pub(super) fn within(mut self, blocks: usize, bytes: usize) -> Self {
        while self.crew > 1 && self.crew > blocks {
            self.crew /= 2;
        }
        let behind = (self.threads / LINES / self.arg.warps as usize) - self.arg.planes as usize;
        let clusters = (self.arg.tiles as usize).div_ceil(self.crew);
        self.words = clusters * behind * self.arg.blocks as usize * self.arg.rows as usize * LINES * bytes.div_ceil(4);
        self
    }
}

fn schedule(size: [usize; 3], offsets: &[[i32; 3]], bytes: usize, shared_most: usize) -> Option<Wavefront> {
    let &(points, kernel, threads_most) =
        KERNELS.iter().find(|(points, ..)| geometry::stencil(*points) == Some(offsets))?;
    let [nx, ny, nz] = size;
    let Slopes { sigma, behind, reach, lag, groups } = Slopes::of(offsets);
    if 4 * groups > RING || !(8 * sigma).is_multiple_of(RING / 4) {
        return None;
    }
    let blocks = ny.div_ceil(LINES);
    let batches = 1 + 2 * nx.checked_add((LINES - 1) * sigma + reach)?.div_ceil(8);
    let rows = 4 * (batches - 1);
    let warps = blocks.min(1 + (batches + lag * behind).div_ceil(8 * sigma));
    let width = points / 2 + 1;
    let plane_values = blocks.checked_mul(rows)?.checked_mul(width * LINES)?;
    let values = plane_values.checked_mul(nz)?;
    let n = nx.checked_mul(ny)?.checked_mul(nz)?;
    if n >= 1 << 31 || batches >= 1 << 24 || (values * bytes > LITTLE && values > PADDING * width * n) {
        return None;
    }
    // Few terms leave room and threads for two planes a tile, which halves what tiles hand on; with many a plane alone is faster.
    let planes_first = if width <= 8 { [2, 1] } else { [1, 2] };
    let depths = [3, 2];
    planes_first.into_iter().filter(|&planes| planes <= nz).find_map(|planes| {
        let threads = LINES * warps * (planes + behind);
        let ring = RING * PITCH * bytes;
        let solving = planes * warps;
        depths.into_iter().find_map(|depth| {
            let slots = behind * warps * NEAR * LINES * 2 * bytes;
            let counts = 4 * blocks * (planes + behind + behind * planes);
            let stages = solving * depth * (4 * width * LINES * bytes + 8);
            // Stages begin at a multiple of 128 bytes, slots at one of 16.
            let shared = ring * (1 + warps * (planes + behind))
                + solving * ROOM * PITCH * bytes
                + 128
                + stages
                + 16
                + slots
                + counts;
            if threads > threads_most || shared > shared_most {
                return None;
            }
            let tiles = nz.div_ceil(planes);
            let narrow = |v: usize| u32::try_from(v).ok();
            let found = Wavefront {
                arg: WavefrontArg {
                    nx: narrow(nx)?,
                    ny: narrow(ny)?,
                    nz: narrow(nz)?,
                    blocks: narrow(blocks)?,
                    warps: narrow(warps)?,
                    planes: narrow(planes)?,
                    tiles: narrow(tiles)?,
                    batches: narrow(batches)?,
                    rows: narrow(rows)?,
                    ring: narrow(RING)?,
                    depth: narrow(depth)?,
                    mirrored: 0,
                    plane_values: plane_values as u64,
                },
                terms: geometry::terms(offsets),
                kernel,
                sigma: narrow(sigma)?,
                threads,
                shared,
                crew: CREW.min(tiles.next_power_of_two()),
                values,
                words: 0,
            };
            Some(found.within(CREW, bytes))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_kernels() {
        for (points, sigma, behind, reach, lag) in
            [(7, 1, 1, 0, 0), (13, 1, 2, 0, 0), (15, 1, 1, 1, 1), (19, 2, 1, 1, 1), (27, 2, 1, 1, 1), (33, 2, 2, 1, 1)]
        {
            let found = Slopes::of(geometry::stencil(points).expect("a stencil"));
            assert_eq!((found.sigma, found.behind, found.reach), (sigma, behind, reach), "{points}");
            assert!(found.lag >= lag && 4 * found.groups <= RING, "{points}: {found:?}");
        }
    }

    /// The waits of the kernel, played through with one warp at a time going on as far as it can: all blocks come to their end.
    fn plays_through(size: [usize; 3], points: usize) {
        let offsets = geometry::stencil(points).expect("a stencil");
        let Some(found) = schedule(size, offsets, 8, geometry::SHARED) else { return };
        let Slopes { sigma, .. } = Slopes::of(offsets);
        let a = found.arg;
        let (nz, blocks, warps, batches) = (size[2].min(6), a.blocks as usize, a.warps as usize, i64::from(a.batches));
        let newest = |o: &[i32; 3]| {
            let line = offsets.iter().filter(|other| other[1..] == o[1..]);
            i64::from(line.map(|o| o[0]).max().expect("a term")) + sigma as i64 * i64::from(o[1])
        };
        // How far block (z, j) is; a batch may begin where nothing that the kernel waits for is missing.
        let mut done = vec![vec![0i64; blocks]; nz];
        let may = |done: &[Vec<i64>], z: usize, j: usize| {
            let k = done[z][j];
            let shift = 8 * sigma as i64;
            for o in offsets.iter().filter(|o| o[1] != 0 || o[2] != 0) {
                let d = -o[2] as usize;
                for side in [-1i64, 0, 1] {
                    let reads = if side < 0 {
                        o[1] < 0
                    } else if side > 0 {
                        o[1] > 0
                    } else {
                        d > 0
                    };
                    let to = |s: i64| usize::try_from(j as i64 + s).ok().filter(|&j| j < blocks);
                    if !reads {
                        continue;
                    }
                    if let (Some(from), true) = (to(side), d <= z) {
                        let need = k + (newest(o) - 1).div_euclid(4) - shift * side + 2;
                        if done[z - d][from] < need.min(batches) {
                            return false;
                        }
                    }
                    if z + d < nz {
                        if let Some(reader) = to(-side) {
                            let row = i64::from(oldest(offsets, o, newest(o) as i32));
                            let release = k + 1 - row.div_euclid(4) + shift * side - (RING / 4) as i64;
                            if done[z + d][reader] < release.min(batches) {
                                return false;
                            }
                        }
                        let before = j as i64 - warps as i64 - side;
                        if j >= warps && before >= 0 && done[z + d][before as usize] < batches {
                            return false;
                        }
                    }
                }
            }
            true
        };
        let mut at: Vec<Vec<usize>> = vec![(0..warps).collect(); nz];
        loop {
            let mut moved = false;
            for z in (0..nz).rev() {
                for w in (0..warps).rev() {
                    let j = at[z][w];
                    while at[z][w] == j && j < blocks && may(&done, z, j) {
                        moved = true;
                        done[z][j] += 1;
                        if done[z][j] == batches {
                            at[z][w] += warps;
                        }
                    }
                }
            }
            if !moved {
                break;
            }
        }
        assert!(done.iter().flatten().all(|&k| k == batches), "{size:?}, {points} points: {a:?} stands still");
    }

    #[test]
    fn no_schedule_stands_still() {
        for (points, ..) in KERNELS {
            for nx in [3, 9, 33, 64, 100, 131, 256, 300] {
                for ny in [3, 31, 33, 64, 150, 256, 700] {
                    plays_through([nx, ny, 6], points);
                }
            }
        }
    }
}
