//! How the kernels of the sweep lay out and cross a grid: slopes, lanes, tiles, shared memory.
//!
//! Layout: [`SweepArg`] and [`TermsArg`] have the twins `Sweep` and `Terms` in kernels/sweep.cu, whose head explains
//! them.
//!
//! Invariants: every operand from another line is at least [`UNROLL`] steps old and younger than `slots`. No two points
//! of a plane share a place. A lane's next line begins at least reach + UNROLL - 1 steps after its last point.

use spandrel_backend::{Error, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::sweep::{STENCILS, canonical};
use spandrel_sptrsv::{Lattice, Plan, Sweep};

use super::SolveSteps;
use super::resident::PlacesArg;
use crate::kernel::{Argument, Entry};

/// Steps between two barriers, as in the kernels.
const UNROLL: usize = 2;
/// The largest number of threads in a thread block, as in the kernels.
const THREADS: usize = 384;
/// The largest number of terms in a stencil, as in the kernels.
const TERMS: usize = 40;
/// The largest shared memory of a thread block: that of an H100, less the little that is left to the first-level cache.
pub(super) const SHARED: usize = 220 << 10;
const WARP: usize = 32;
/// The lines of a strip: one warp. A plane with more than `MANY_LINES` lines has strips of two warps, because with many
/// strips hand-overs cost more.
const STRIP: usize = 32;
const MANY_LINES: usize = 4096;
/// Up to this many points per line, a tile has two planes for any stencil, because even two short planes fill only few
/// warps.
const SHORT_LINE: usize = 64;

/// `struct Sweep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct SweepArg {
    nx: u32,
    ny: u32,
    nz: u32,
    lines: u32,
    sigma: u32,
    tau: u32,
    lanes: u32,
    planes: u32,
    behind: u32,
    strips: u32,
    pub(super) tiles: u32,
    steps: u32,
    slots: u32,
    compute: u32,
    width: u32,
    unit: u32,
    pub(super) mirrored: u32,
    depth: u32,
    plane_values: u64,
}
// SAFETY: `struct Sweep`: eighteen u32, then a u64.
unsafe impl Argument for SweepArg {}

/// `struct Terms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct TermsArg {
    pub(super) count: u32,
    pub(super) along: [[i32; TERMS]; 3],
}
// SAFETY: `struct Terms`: a u32, then three arrays of TERMS i32.
unsafe impl Argument for TermsArg {}

/// The kernels of a stencil.
#[derive(Debug)]
pub(super) struct Kernels {
    /// The lower half, ascending by (dz, dy, dx); empty for the kernels of any stencil.
    offsets: &'static [[i32; 3]],
    /// Batches in flight, which hide the memory's latency as far as the shared memory has room for them.
    depth: usize,
    /// The kernels for the plain and the transposed system. The kernels for any stencil have no such variants; they
    /// take the system as a parameter.
    pub(super) solves: Option<[Entry<SolveSteps>; 2]>,
}

/// The kernels of the `at`-th of [`STENCILS`].
const fn kernels(at: usize, depth: usize, plain: Entry<SolveSteps>, transposed: Entry<SolveSteps>) -> Kernels {
    Kernels { offsets: STENCILS[at], depth, solves: Some([plain, transposed]) }
}

const KERNELS: [Kernels; STENCILS.len()] = [
    kernels(0, 10, SolveSteps::PLAIN_5, SolveSteps::TRANSPOSED_5),
    kernels(1, 10, SolveSteps::PLAIN_7, SolveSteps::TRANSPOSED_7),
    kernels(2, 8, SolveSteps::PLAIN_9, SolveSteps::TRANSPOSED_9),
    kernels(3, 6, SolveSteps::PLAIN_13, SolveSteps::TRANSPOSED_13),
    kernels(4, 6, SolveSteps::PLAIN_15, SolveSteps::TRANSPOSED_15),
    kernels(5, 5, SolveSteps::PLAIN_19, SolveSteps::TRANSPOSED_19),
    kernels(6, 5, SolveSteps::PLAIN_27, SolveSteps::TRANSPOSED_27),
    kernels(7, 4, SolveSteps::PLAIN_33, SolveSteps::TRANSPOSED_33),
];

/// The kernels of any other stencil.
const ANY: Kernels = Kernels { offsets: &[], depth: 0, solves: None };

/// A grid's schedule, and its needs on the device.
#[derive(Debug)]
pub(super) struct Geometry {
    pub(super) arg: SweepArg,
    pub(super) terms: TermsArg,
    pub(super) kernels: &'static Kernels,
    pub(super) threads: usize,
    /// Bytes of dynamic shared memory.
    pub(super) shared: usize,
    /// The number of packed values.
    pub(super) values: usize,
    /// The size of the hand-over memory, in words of 64 bits.
    pub(super) words: usize,
}

/// A stencil of at most [`TERMS`] terms, in the form that the kernels take.
pub(super) fn terms(offsets: &[[i32; 3]]) -> TermsArg {
    let mut along = [[0; TERMS]; 3];
    for (k, offset) in offsets.iter().enumerate() {
        for axis in 0..3 {
            along[axis][k] = offset[axis];
        }
    }
    TermsArg { count: offsets.len() as u32, along }
}

/// The lower half of the stencil with this many points, if there are kernels for it.
pub(super) fn stencil(points: usize) -> Option<&'static [[i32; 3]]> {
    KERNELS.iter().map(|kernels| kernels.offsets).find(|offsets| 2 * offsets.len() + 1 == points)
}

/// numerator / lines, rounded up, and at least 0.
fn need(numerator: i64, lines: i64) -> i64 {
    if numerator <= 0 { 0 } else { (numerator + lines - 1) / lines }
}

fn longest(offsets: &[[i32; 3]], axis: usize) -> usize {
    offsets.iter().map(|o| o[axis].unsigned_abs() as usize).max().unwrap_or(0)
}

/// The inputs from which a schedule is chosen.
struct Wanted<'a> {
    size: [usize; 3],
    offsets: &'a [[i32; 3]],
    kernels: &'static Kernels,
    unit: bool,
    bytes: usize,
}

impl Wanted<'_> {
    /// The schedule with at most this many threads and with these planes per tile and batches in flight, if it is
    /// within the limits.
    fn schedule(&self, threads_most: usize, planes: usize, depth: usize, shared_most: usize) -> Option<Geometry> {
        let [nx, lines_of_plane, planes_of_grid] = self.size;
        let strips = planes_of_grid == 1 && lines_of_plane > 1;
        let (ny, nz, behind) = if strips {
            let behind = longest(self.offsets, 1);
            let strip = if lines_of_plane > MANY_LINES { 2 * STRIP } else { STRIP };
            let ny = strip.max(behind.next_multiple_of(WARP)).min(lines_of_plane);
            (ny, lines_of_plane.div_ceil(ny), behind)
        } else {
            (lines_of_plane, planes_of_grid, longest(self.offsets, 2))
        };
        let threads_of = |lanes: usize| {
            let takers = behind * if strips { 1 } else { lanes };
            ((planes * lanes).next_multiple_of(WARP), takers.next_multiple_of(WARP))
        };
        let fits = |lanes: &usize| {
            let (compute, takers) = threads_of(*lanes);
            compute + takers <= threads_most
        };

        let apart = UNROLL as i64;
        let of = |o: &[i32; 3]| o.map(i64::from);
        let in_plane = self.offsets.iter().map(of).filter(|o| o[2] == 0 && o[1] < 0);
        let least = in_plane.map(|o| need(o[0] + apart, -o[1])).max().unwrap_or(0) as usize;
        // As many lanes as a line keeps busy until the lane's next line is due. With fewer lanes, lines follow each
        // other more slowly.
        let line = nx.checked_add(longest(self.offsets, 0).max(1) + UNROLL - 1)?;
        let even = |lanes: usize| lanes.next_multiple_of(2);
        let most = (1..=threads_most / 2).map(|pair| 2 * pair).take_while(fits).last()?;
        let mut sigma = least;
        let mut lanes = even(ny.min(line.div_ceil(sigma.max(1)))).min(most);
        if lanes < ny {
            sigma = sigma.max(line.div_ceil(lanes));
            lanes = even(line.div_ceil(sigma)).min(lanes);
        }
        let slope = sigma as i64;
        let off_plane = self.offsets.iter().map(of).filter(|o| o[2] < 0);
        let tau = off_plane.map(|o| need(o[0] + slope * o[1] + apart, -o[2])).max().unwrap_or(0);
        let delay = self.offsets.iter().map(of).map(|o| -(o[0] + slope * o[1] + tau * o[2])).max().unwrap_or(0);
        let (delay, tau) = (usize::try_from(delay).ok()?, usize::try_from(tau).ok()?);

        let slots = delay.checked_add(UNROLL + 1)?.checked_next_power_of_two()?;
        let (compute, takers) = threads_of(lanes);
        let threads = compute + takers;
        let pitch = ((threads + 1) * self.bytes).next_power_of_two();
        let places = (UNROLL * (self.offsets.len() + 2)) | 1;
        let shared = slots.checked_mul(pitch)?.checked_add(depth * places * compute * self.bytes)?;
        if shared > shared_most {
            return None;
        }

        // Cursors of the kernels have 32 bits. Those into the values of neighbouring planes count bytes.
        let plane_steps = (ny - 1).checked_mul(sigma)?.checked_add(nx)?;
        let before = if strips { sigma * behind } else { tau * (planes - 1 + behind) };
        let steps = plane_steps.checked_add(before)?.next_multiple_of(UNROLL);
        let width = self.offsets.len() + usize::from(!self.unit);
        let plane_values = plane_steps.checked_mul(width * lanes)?;
        let planes_apart = longest(self.offsets, 2) + 2;
        if steps >= 1 << 28 || plane_values.checked_mul(self.bytes * planes_apart)? >= 1 << 31 {
            return None;
        }
        let tiles = nz.div_ceil(planes);
        let handed = if strips { behind.checked_mul(nx)? } else { behind.min(planes) * plane_steps * lanes };
        let lines = lines_of_plane.checked_mul(planes_of_grid)?;
        let narrow = |v: usize| u32::try_from(v).ok();
        Some(Geometry {
            arg: SweepArg {
                nx: narrow(nx)?,
                ny: narrow(ny)?,
                nz: narrow(nz)?,
                lines: narrow(lines).filter(|&lines| lines < 1 << 31)?,
                sigma: narrow(sigma)?,
                tau: narrow(tau)?,
                lanes: narrow(lanes)?,
                planes: narrow(planes)?,
                behind: narrow(behind)?,
                strips: u32::from(strips),
                tiles: narrow(tiles)?,
                steps: narrow(steps)?,
                slots: narrow(slots)?,
                compute: narrow(compute)?,
                width: narrow(width)?,
                unit: u32::from(self.unit),
                mirrored: 0,
                depth: narrow(depth)?,
                plane_values: plane_values as u64,
            },
            terms: terms(self.offsets),
            kernels: self.kernels,
            threads,
            shared,
            values: plane_values.checked_mul(nz)?,
            words: tiles.checked_mul(handed)?.checked_mul(self.bytes.div_ceil(4))?,
        })
    }

    /// The first schedule within the limits: as many threads as possible, then as many batches in flight, then two
    /// planes per tile if that pays. With few terms one plane leaves a multiprocessor idle. With many, two planes leave
    /// no memory for batches.
    fn choose(&self, shared_most: usize) -> Option<Geometry> {
        let [nx, _, nz] = self.size;
        let two = nz > 1 && (self.offsets.len() <= 3 || nx <= SHORT_LINE);
        let full = self.kernels.depth;
        let mut depths = vec![full, full / 2, full.min(1)];
        depths.retain(|&depth| depth >= full.min(1));
        depths.dedup();
        let threads = [THREADS, 256, 192, 128, 96, 64];
        let all = threads.iter().flat_map(|&threads| {
            let planes = [2, 1].into_iter().filter(move |&planes| planes == 1 || two);
            depths.iter().flat_map(move |&depth| planes.clone().map(move |planes| (threads, planes, depth)))
        });
        all.into_iter().find_map(|(threads, planes, depth)| self.schedule(threads, planes, depth, shared_most))
    }
}

impl Geometry {
    /// The schedule of a lattice on a device with this much shared memory per thread block; `None` without rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stencil of more than [`TERMS`] terms, and if the stencil reaches too far or the
    /// grid is too large for any schedule.
    pub(super) fn of<T: Real>(lattice: &Lattice, unit: bool, shared: usize) -> Result<Option<Self>> {
        if lattice.size().contains(&0) {
            return Ok(None);
        }
        let found = schedule(lattice.size(), lattice.offsets(), unit, T::BYTES, shared);
        found.map(Some).map_err(|why| Error::Unsupported { op: "load", noun: Sweep::<T>::NAME, why })
    }

    /// The places of values that are copied from a matrix on the device.
    pub(super) fn places(&self, mirrored: bool) -> PlacesArg {
        let SweepArg { nx, ny, nz, lines, sigma, lanes, strips, width, plane_values, .. } = self.arg;
        let ny_of_grid = if strips == 1 { lines } else { ny };
        let one_turn = lanes >= ny || sigma == 0;
        let step = u64::from(width) * u64::from(lanes);
        PlacesArg {
            nx,
            ny: ny_of_grid,
            lines,
            plane_lines: ny,
            planes: nz,
            sigma,
            lanes,
            period: if one_turn { u32::MAX >> 1 } else { sigma * lanes },
            steps: plane_values.checked_div(step).unwrap_or(0) as u32,
            width,
            mirrored: u32::from(mirrored),
            plane_values,
            ..PlacesArg::of_terms(&self.terms.along, self.terms.count, [nx, ny_of_grid])
        }
    }
}

fn schedule(
    size: [usize; 3],
    offsets: &[[i32; 3]],
    unit: bool,
    bytes: usize,
    shared: usize,
) -> std::result::Result<Geometry, String> {
    let (size, offsets) = canonical(size, offsets);
    if offsets.len() > TERMS {
        return Err(format!("{} terms per row, more than {TERMS}: take another plan", offsets.len()));
    }
    let kernels = KERNELS.iter().find(|kernels| kernels.offsets == offsets).unwrap_or(&ANY);
    let wanted = Wanted { size, offsets: &offsets, kernels, unit, bytes };
    wanted.choose(shared.min(SHARED)).ok_or_else(|| {
        format!("no schedule of a {size:?} grid with these {} terms fits the device: take another plan", offsets.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stencils() -> Vec<Vec<[i32; 3]>> {
        let mut all: Vec<Vec<[i32; 3]>> = KERNELS.iter().map(|kernels| kernels.offsets.to_vec()).collect();
        all.push(vec![]);
        all.push(vec![[-1, 0, 0]]);
        all.push(vec![[-3, 0, 0], [-1, 0, 0]]);
        all.push(vec![[0, 0, -3], [3, -1, -1], [0, 2, -1], [0, -3, 0], [2, -1, 0], [-3, 0, 0]]);
        all.push(vec![[0, 0, -1], [-1, 0, 0]]);
        let cube = |r: i32| move |i: i32| [i % (2 * r + 1) - r, i / (2 * r + 1) % (2 * r + 1) - r, 0];
        all.push((0..12).map(cube(2)).collect());
        all.extend(
            [(7, 2), (7, 3), (7, 5), (9, 2), (9, 5), (27, 2)].map(|(points, unknowns)| system(points, unknowns)),
        );
        all
    }

    /// The lower half of a stencil whose points have several fully coupled unknowns.
    fn system(points: usize, unknowns: i32) -> Vec<[i32; 3]> {
        let half = stencil(points).expect("a stencil with kernels").iter().copied().chain([[0; 3]]);
        let reach = || 1 - unknowns..unknowns;
        let rows = half.flat_map(|[dx, dy, dz]| reach().map(move |d| [unknowns * dx + d, dy, dz]));
        let mut rows: Vec<[i32; 3]> = rows.filter(|o| (o[2], o[1], o[0]) < (0, 0, 0)).collect();
        rows.sort_unstable_by_key(|&[dx, dy, dz]| (dz, dy, dx));
        rows.dedup();
        rows
    }

    /// Checks what the head of kernels/sweep.cu promises, point by point.
    fn check(size: [usize; 3], offsets: &[[i32; 3]], bytes: usize, shared: usize) {
        let Ok(g) = schedule(size, offsets, false, bytes, shared) else {
            panic!("{size:?} {offsets:?} has no schedule in {shared} bytes")
        };
        let what = format!("{size:?} {offsets:?}: {:?}", g.arg);
        let a = &g.arg;
        assert!(g.threads <= THREADS && g.threads.is_multiple_of(WARP) && g.shared <= shared.min(SHARED), "{what}");
        assert!(a.slots.is_power_of_two() && (a.steps as usize).is_multiple_of(UNROLL), "{what}");
        let (size, offsets) = canonical(size, offsets);
        assert_eq!(size.iter().product::<usize>(), a.nx as usize * a.lines as usize, "{what}");
        assert_eq!(a.nz as usize, (a.lines as usize).div_ceil(a.ny as usize), "{what}");
        let [sigma, tau, nx, lanes] = [a.sigma, a.tau, a.nx, a.lanes].map(i64::from);
        for o in offsets.iter().map(|o| o.map(i64::from)) {
            let delay = -(o[0] + sigma * o[1] + tau * o[2]);
            assert!(delay >= if o[1] == 0 && o[2] == 0 { 1 } else { UNROLL as i64 }, "{what}: {o:?}");
            assert!(delay + UNROLL as i64 <= i64::from(a.slots), "{what}: {o:?}");
        }
        if a.lanes < a.ny {
            let reach = longest(&offsets, 0).max(1);
            assert!(sigma * lanes >= nx + (reach + UNROLL - 1) as i64, "{what}");
        }
        let mut taken = vec![false; ((nx + sigma * i64::from(a.ny)) * lanes) as usize];
        for y in 0..i64::from(a.ny) {
            for x in 0..nx {
                let step = x + sigma * y;
                assert!(step * lanes * i64::from(a.width) < a.plane_values as i64, "{what}");
                let place = &mut taken[(step * lanes + y % lanes) as usize];
                assert!(!std::mem::replace(place, true), "{what}: ({x}, {y}) shares a place");
            }
        }
        let lead = if a.strips == 1 { sigma * i64::from(a.behind) } else { tau * i64::from(a.planes - 1 + a.behind) };
        assert!(i64::from(a.steps) >= nx + sigma * i64::from(a.ny - 1) + lead, "{what}");
        assert!(a.planes * a.lanes <= a.compute, "{what}");
        let takers = a.behind * if a.strips == 1 { 1 } else { a.lanes };
        assert!((a.compute + takers) as usize <= g.threads, "{what}");
        assert!(a.tiles * a.planes >= a.nz && (a.tiles - 1) * a.planes < a.nz, "{what}");
        if a.strips == 1 {
            assert!(a.behind <= a.ny && a.planes == 1, "{what}");
        }
    }

    #[test]
    fn schedules_hold_on_every_grid() {
        let extents = [1, 2, 3, 5, 13, 33, 70];
        for offsets in stencils() {
            let known = KERNELS.iter().any(|kernels| kernels.offsets == offsets);
            // The smallest shared memory of a device of compute capability 7.5 is enough for these.
            let small = known.then_some((8, 63 << 10));
            for (bytes, shared) in [(8, SHARED), (4, SHARED)].into_iter().chain(small) {
                for nx in extents.into_iter().chain([131]) {
                    for ny in extents {
                        for nz in [1, 2, 5] {
                            check([nx, ny, nz], &offsets, bytes, shared);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn schedules_hold_on_large_grids() {
        for kernels in &KERNELS {
            for size in [[64, 64, 64], [256, 256, 256], [511, 511, 7], [700, 300, 40], [1000, 1000, 1], [4000, 5000, 1]]
            {
                check(size, kernels.offsets, 8, SHARED);
                check(size, kernels.offsets, 4, SHARED);
            }
        }
    }

    #[test]
    fn a_known_stencil_has_its_kernels() {
        let name = |kernels: &Kernels| kernels.solves.map(|[plain, _]| plain.name);
        for kernels in &KERNELS {
            let flat = kernels.offsets.iter().all(|o| o[2] == 0);
            let size = if flat { [20, 20, 1] } else { [20, 20, 20] };
            let found = schedule(size, kernels.offsets, false, 8, SHARED).expect("fits");
            assert_eq!(name(found.kernels), name(kernels));
            assert_eq!(found.arg.depth as usize, kernels.depth);
        }
        let cube = KERNELS[6].offsets;
        assert_eq!(name(schedule([20, 1, 20], cube, false, 8, SHARED).expect("fits").kernels), Some("sptrsv9_sweep"));
        assert_eq!(name(schedule([20, 1, 1], cube, false, 8, SHARED).expect("fits").kernels), None);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(schedule([100_000, 1, 1], &[[-50_000, 0, 0]], false, 8, SHARED).is_err());
        assert!(schedule([1 << 31, 1, 1], &[[-1, 0, 0]], false, 8, SHARED).is_err());
        // Three unknowns per point of 27 points have 49 terms.
        assert_eq!([system(27, 2).len(), system(27, 3).len()], [31, 49]);
        let refused = schedule([48, 16, 16], &system(27, 3), false, 8, SHARED).expect_err("too many terms");
        assert!(refused.contains("49 terms"), "{refused}");
        let long: Vec<[i32; 3]> = (0..41).map(|k| [-41 + k, 0, 0]).collect();
        assert!(schedule([100, 1, 1], &long, false, 8, SHARED).is_err());
    }
}
