//! Incomplete factors without fill from a matrix on the device that is a whole stencil on a grid, and the sweeps with
//! them. Patterns and the order of the rows are formulas of the grid, so the host makes only two small arrays of its
//! lines and levels.
//!
//! Layout: [`HalfArg`] has the twin `Half` in kernels/include/half.cuh. Rows are taken by the levels x + sigma y + tau
//! z of the smallest slopes. Lines (of points along x) are sorted by the level at which they begin, so those with a
//! point in a level follow one another. The place of a row is the start of its level plus the rank of its line minus
//! that of the level's first line. If the sweep goes by blocks of lines (kernels/wavefront.cu), so does the
//! factorisation (kernels/include/grid_factor.cuh), and it writes its factors in the sweep's layout as well; then no
//! columns and no order of the rows are made.
//!
//! Order: that of [`spandrel_sptrsv::factor`], then that of the sweep. Cost: the check of all columns and the numeric
//! phase. If the factorisation goes by blocks, it writes both copies of the factors; an L whose transpose is also
//! solved with takes one more pass over the packed values; memory is 4 bytes per row of either factor. Otherwise one
//! more pass copies the factors to the plans' layouts; memory is 4 bytes per entry of the patterns and 8 per row.
//!
//! Kernels: kernels/grid.cu, those of the factorisations, the packing ones of kernels/sweep.cu and
//! kernels/wavefront.cu.

use spandrel_backend::{Assembled, Error, Gate, Preconditioner, Result};
use spandrel_formats::{Offset, Ordinal, Real};
use spandrel_sptrsv::{Diagonal, Lattice, Plan, Sweep, System, Systems, Triangle};

use super::resident::{SIDE, shift};
use super::{CudaSweep, Schedule};
use crate::csr::not_recorded;
use crate::factor::{CudaFactor, Index, Numeric, OnGrid, Operands, Patterns, roundoff};
use crate::kernel::{Argument, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::triangle::InvertTriangle;
use crate::{Cuda, CudaCsr, Vector};

kernels! {
    struct SplitGrid {
        half: HalfArg, n: u32, lower_ptr: Address, lower_cols: Address, upper_ptr: Address, upper_cols: Address,
        diagonal: Address,
    }
    in GRID { ENTRY: "split_grid" }

    struct OrderGrid { nx: u32, ny: u32, sigma: u32, tau: u32, n: u32, rank: Address, place: Address, order: Address }
    in GRID { ENTRY: "order_grid" }
}

/// The threads of a thread block, as in the kernels, and the largest number of thread blocks per multiprocessor.
const THREADS: usize = 256;
const BLOCKS: usize = 16;
/// A grid may have this many levels, however few its rows are.
const FEW_LEVELS: usize = 4096;

/// The parts of a matrix that a factorisation without fill takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The lower triangle, for L; the other factor is L^T.
    Lower,
    /// The strictly lower triangle, for a unit L, and the rest, for U.
    Both,
}

/// `struct Half`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct HalfArg {
    size: [u32; 3],
    count: u32,
    with_diagonal: u32,
    along: [[i32; SIDE]; 3],
    shift: [i32; SIDE],
}
// SAFETY: `struct Half`: five u32, then arrays of i32.
unsafe impl Argument for HalfArg {}

/// A grid without axes of one point, the lower stencil on it, and numbers that follow from them.
struct Known {
    size: [usize; 3],
    offsets: Vec<[i32; 3]>,
    nrows: usize,
    /// The number of neighbours on one side, over all points.
    neighbours: usize,
    parts: Parts,
}

impl Known {
    /// `None` for more terms than the kernels take.
    fn new(lattice: &Lattice, nrows: usize, parts: Parts) -> Option<Self> {
        let (size, offsets) = lattice.canonical();
        let of = |o: &[i32; 3]| (0..3).map(|axis| size[axis] - o[axis].unsigned_abs() as usize).product::<usize>();
        let neighbours = offsets.iter().map(of).sum();
        (offsets.len() < SIDE).then_some(Self { size, offsets, nrows, neighbours, parts })
    }

    fn half(&self) -> HalfArg {
        let (mut along, mut shifts) = ([[0; SIDE]; 3], [0; SIDE]);
        for (k, &offset) in self.offsets.iter().enumerate() {
            for axis in 0..3 {
                along[axis][k] = offset[axis];
            }
            shifts[k] = shift(offset, [self.size[0], self.size[1]]);
        }
        HalfArg {
            size: self.size.map(|extent| extent as u32),
            count: self.offsets.len() as u32,
            with_diagonal: u32::from(self.parts == Parts::Lower),
            along,
            shift: shifts,
        }
    }

    /// The numbers of entries of L and of U.
    fn entries(&self) -> [usize; 2] {
        match self.parts {
            Parts::Lower => [self.neighbours + self.nrows, 0],
            Parts::Both => [self.neighbours, self.neighbours + self.nrows],
        }
    }

    /// The slopes of the levels, the ranks of the lines, and for each level the start of its rows minus the rank of its
    /// first line (which may wrap); `None` for a grid with more levels than rows.
    fn levels(&self) -> Result<Option<([usize; 2], Vec<u32>, Vec<u32>)>> {
        let [nx, ny, nz] = self.size;
        let (sigma, tau) = Lattice::new(self.nrows, self.size, &self.offsets, true, true)?.slopes(1);
        let steps = sigma.checked_mul(ny - 1).zip(tau.checked_mul(nz - 1));
        let levels = steps.and_then(|(y, z)| nx.checked_add(y)?.checked_add(z));
        let Some(levels) = levels.filter(|&levels| levels <= self.nrows.max(FEW_LEVELS)) else { return Ok(None) };
        let starts = || (0..nz).flat_map(|z| (0..ny).map(move |y| sigma * y + tau * z));
        // The number of lines that begin before each level.
        let mut begun = vec![0u32; levels + 1];
        for start in starts() {
            begun[start + 1] += 1;
        }
        for level in 0..levels {
            begun[level + 1] += begun[level];
        }
        let mut next = begun.clone();
        let mut rank = Vec::with_capacity(ny * nz);
        for start in starts() {
            rank.push(next[start]);
            next[start] += 1;
        }
        let mut rows = 0;
        let place = |level: usize| {
            let ended = begun[(level + 1).saturating_sub(nx)];
            let place = u32::wrapping_sub(rows, ended);
            rows += begun[level + 1] - ended;
            place
        };
        let places = (0..levels).map(place).collect();
        Ok(Some(([sigma, tau], rank, places)))
    }
}

/// The grid of a kernel with one row per thread.
fn rows_grid(cuda: &Cuda, nrows: usize) -> Grid {
    Grid::of(nrows.div_ceil(THREADS).min(BLOCKS * cuda.multiprocessors()).max(1), THREADS as u32)
}

/// The rows in the order of their levels.
fn order<T: Real>(cuda: &Cuda, known: &Known) -> Result<Option<Buffer<Ordinal>>> {
    let Some(([sigma, tau], rank, place)) = known.levels()? else { return Ok(None) };
    let rank = Buffer::from_host(cuda.stream(), &rank, "the ranks of a grid's lines")?;
    let place = Buffer::from_host(cuda.stream(), &place, "the places of a grid's levels")?;
    let order = Buffer::uninit(cuda.stream(), known.nrows, "the order of a factorisation")?;
    let [nx, ny] = [known.size[0] as u32, known.size[1] as u32];
    let (sigma, tau, n) = (sigma as u32, tau as u32, known.nrows as u32);
    let (rank, place, to) = (rank.pointer(), place.pointer(), order.pointer());
    let parameters = OrderGrid { nx, ny, sigma, tau, n, rank, place, order: to };
    // SAFETY: order_grid(nx, ny, sigma, tau, n, rank, place, order) with a rank for each line and a place for each
    // level; the two are freed in the queue's order, after it.
    unsafe { cuda.launch::<T, _>(OrderGrid::ENTRY, rows_grid(cuda, known.nrows), &parameters)? };
    Ok(Some(order))
}

/// The patterns of the factors, and the places of L's diagonal entries if it has them. With a given order of `blocks`,
/// only row pointers. `None` if [`order`] returns none.
fn patterns<T: Real>(
    cuda: &Cuda,
    known: &Known,
    a: &CudaCsr<T>,
    blocks: Option<Vec<u32>>,
) -> Result<Option<(Patterns, Buffer<Offset>)>> {
    let (stream, n) = (cuda.stream(), known.nrows);
    let whole = blocks.is_none();
    let order = match blocks {
        Some(blocks) => Some(Buffer::from_host(stream, &blocks, "the order of a factorisation")?),
        None => order::<T>(cuda, known)?,
    };
    let Some(order) = order else { return Ok(None) };
    let [l, u] = known.entries();
    let index = |entries| -> Result<Index> {
        let cols = whole.then(|| Buffer::uninit(stream, entries, "a factor's columns")).transpose()?;
        Ok(Index { ptr: Buffer::uninit(stream, n + 1, "a factor's row pointers")?, cols })
    };
    let lower = index(l)?;
    let (upper, given, diagonal) = match known.parts {
        Parts::Lower => {
            let ptr = cuda.duplicate(a.arrays().0, n + 1, "a matrix' row pointers")?;
            (None, Some(Index { ptr, cols: None }), n)
        }
        Parts::Both => (Some(index(u)?), None, 0),
    };
    let diagonal = if whole { diagonal } else { 0 };
    let diagonal = Buffer::uninit(stream, diagonal, "the places of a factor's diagonal")?;
    let (half, rows, places) = (known.half(), n as u32, diagonal.pointer());
    let ([lower_ptr, lower_cols], [upper_ptr, upper_cols]) =
        (lower.arg(), upper.as_ref().map_or([Address::NULL; 2], Index::arg));
    let parameters = SplitGrid { half, n: rows, lower_ptr, lower_cols, upper_ptr, upper_cols, diagonal: places };
    // SAFETY: split_grid(half, n, lower_ptr, lower_cols, upper_ptr, upper_cols, diagonal): room for n + 1 pointers and
    // all entries of either part, and for n places with the diagonal in the lower one, or with no columns for the
    // pointers; n is the number of the grid's points.
    unsafe { cuda.launch::<T, _>(SplitGrid::ENTRY, rows_grid(cuda, n + 1), &parameters)? };
    let patterns = Patterns { nrows: n, entries: [a.nnz(), l, u], lower, upper, given, order };
    Ok(Some((patterns, diagonal)))
}

/// Memory for the sweep with a factor; `None` if no schedule fits its grid. In the layout of waves, the factorisation
/// writes all places of L.
fn room<T: Real>(
    cuda: &Cuda,
    lattice: &Lattice,
    (triangle, diagonal, systems): (Triangle, Diagonal, Systems),
    (nrows, nnz): (usize, usize),
) -> Result<Option<CudaSweep<T>>> {
    let schedule = match cuda.waves::<T>(lattice, None)? {
        Some(wave) => Schedule::Waves(wave),
        None => match Schedule::steps::<T>(lattice, diagonal, cuda.shared_by_a_block()?) {
            Err(Error::Unsupported { .. }) => return Ok(None),
            schedule => schedule?,
        },
    };
    let zeroed = triangle == Triangle::Upper || !matches!(schedule, Schedule::Waves(_));
    let mut made = cuda.place_sweep(schedule, nrows, triangle, diagonal, systems, zeroed)?;
    made.nnz = nnz;
    Ok(Some(made))
}

/// Factors on the device with the sweeps that solve with them.
struct Swept<F: Numeric> {
    factor: CudaFactor<F>,
    made: [Vector<F::Value>; 2],
    lower: CudaSweep<F::Value>,
    /// `None` if the other factor is L^T.
    upper: Option<CudaSweep<F::Value>>,
    /// The reciprocals for packing, unless the factorisation packs.
    inverse: Option<Inverse<F::Value>>,
    shift: f64,
}

/// The reciprocals of a diagonal.
struct Inverse<T> {
    /// The places of L's diagonal entries, if it has them. Rows of U begin with theirs.
    diagonal: Buffer<Offset>,
    values: Buffer<T>,
}

/// The set-up of [`spandrel_backend::Assemble::assemble`]. `None` if the factorisation has fill or parameters, if rows
/// lack neighbours or have others, and for a grid without a schedule.
///
/// # Errors
/// A row without a diagonal entry; a factorisation that breaks down; those of the driver; while a step is recorded.
pub(crate) fn assemble<F: Numeric>(
    cuda: &Cuda,
    a: &CudaCsr<F::Value>,
) -> Result<Option<Box<dyn Assembled<F::Value, Cuda>>>> {
    not_recorded(cuda, "the set-up of a preconditioner")?;
    let (n, parts) = (a.nrows(), F::PARTS);
    let Some(parts) = parts.filter(|_| n > 0 && n == a.ncols()) else { return Ok(None) };
    let Some(lattice) = cuda.whole_lattice(a, parts == Parts::Both)? else { return Ok(None) };
    let Some(known) = Known::new(&lattice, n, parts) else { return Ok(None) };
    let [l, u] = known.entries();
    let (of_lower, of_upper) = match parts {
        Parts::Lower => ((Triangle::Lower, Diagonal::NonUnit, Systems::Both), None),
        Parts::Both => (
            (Triangle::Lower, Diagonal::Unit, Systems::Plain),
            Some((Triangle::Upper, Diagonal::NonUnit, Systems::Plain)),
        ),
    };
    let Some(lower) = room(cuda, &lattice, of_lower, (n, l))? else { return Ok(None) };
    let upper = match of_upper {
        Some(of_upper) => match room(cuda, &lattice, of_upper, (n, u))? {
            None => return Ok(None),
            upper => upper,
        },
        None => None,
    };
    let on_grid = match &lower.schedule {
        Schedule::Waves(wave) => OnGrid::new(cuda, 2 * known.offsets.len() + 1, wave.size(), wave.in_blocks())?,
        Schedule::Nothing | Schedule::Steps(_) => None,
    };
    let blocks = match (&on_grid, &lower.schedule) {
        (Some(_), Schedule::Waves(wave)) => Some(wave.blocks_in_time()),
        _ => None,
    };
    let Some((patterns, diagonal)) = patterns(cuda, &known, a, blocks)? else { return Ok(None) };
    let inverse = match &on_grid {
        Some(_) => None,
        None => Some(Inverse { diagonal, values: Buffer::uninit(cuda.stream(), n, "a factor's reciprocals")? }),
    };
    cuda.reserve(l.max(u))?;
    let mut swept = Swept::<F> {
        factor: CudaFactor::of(cuda, patterns, on_grid, roundoff())?,
        made: [Vector::uninit(cuda.stream(), l)?, Vector::uninit(cuda.stream(), u)?],
        lower,
        upper,
        inverse,
        shift: 0.0,
    };
    swept.factor(cuda, a.arrays().2)?;
    Ok(Some(Box::new(swept)))
}

impl<F: Numeric> Swept<F> {
    /// Factors these values and copies the factors to their places. If the factorisation itself packs, the factors are
    /// useless after an error.
    fn factor(&mut self, cuda: &Cuda, values: &Buffer<F::Value>) -> Result<()> {
        let (lower, upper) =
            (self.lower.values.pointer(), self.upper.as_ref().map_or(Address::NULL, |u| u.values.pointer()));
        if let Some(on_grid) = self.factor.on_grid() {
            // SAFETY: the places of the two sweeps, which stay where they are for as long as the factorisation; those
            // of the upper one without a point are zeros from the beginning, and nobody writes there.
            unsafe { on_grid.aim(lower, upper) };
        }
        self.shift = self.run(cuda, values)?;
        self.pack(cuda)
    }

    /// As [`Swept::factor`], but an error leaves the places as they were.
    fn factor_anew(&mut self, cuda: &Cuda, values: &Buffer<F::Value>) -> Result<()> {
        let beside = match self.factor.on_grid() {
            None => None,
            Some(on_grid) => {
                let (stream, what) = (cuda.stream(), "a factor's new packed values");
                let lower = Buffer::<F::Value>::uninit(stream, self.lower.values.len(), what)?;
                let of_upper = |u: &CudaSweep<_>| Buffer::<F::Value>::zeros(stream, u.values.len(), what);
                let upper = self.upper.as_ref().map(of_upper).transpose()?;
                // SAFETY: buffers of the lengths of the sweeps' places, zeros where they must be; they live until this
                // run has ended, and every other run aims first.
                unsafe { on_grid.aim(lower.pointer(), upper.as_ref().map_or(Address::NULL, Buffer::pointer)) };
                Some((lower, upper))
            }
        };
        self.shift = self.run(cuda, values)?;
        if let Some((lower, upper)) = &beside {
            self.lower.values.copy_from(lower)?;
            if let (Some(sweep), Some(upper)) = (&self.upper, upper) {
                sweep.values.copy_from(upper)?;
            }
        }
        self.pack(cuda)
    }

    /// Runs the numeric phase and returns the shift.
    fn run(&mut self, cuda: &Cuda, values: &Buffer<F::Value>) -> Result<f64> {
        let [lower, upper] = &mut self.made;
        F::make(cuda, &self.factor, Operands { values, lower, upper })
    }

    /// Copies the values that are not in their places yet.
    fn pack(&self, cuda: &Cuda) -> Result<()> {
        let Some(Inverse { diagonal, values }) = &self.inverse else { return self.lower.pack_transposed(cuda) };
        let (of_lower, of_upper) = (self.factor.lower().arg(), self.factor.upper().map(Index::arg));
        let [l, u] = [self.made[0].pointer(), self.made[1].pointer()];
        let (places, from) = match of_upper {
            Some([ptr, _]) => (ptr, u),
            None => (diagonal.pointer(), l),
        };
        let (n, inv_diag) = (values.len() as u64, values.pointer());
        let parameters = InvertTriangle { n, from: places, values: from, to: inv_diag };
        // SAFETY: invert_triangle(n, places, values, to), the place of its diagonal entry for each of n rows.
        unsafe { cuda.launch::<F::Value, _>(InvertTriangle::ENTRY, Grid::rows(n as usize), &parameters)? };
        self.lower.pack_from(cuda, of_lower, l, inv_diag)?;
        match (&self.upper, of_upper) {
            (Some(sweep), Some(of_upper)) => sweep.pack_from(cuda, of_upper, u, inv_diag),
            _ => Ok(()),
        }
    }
}

// SAFETY: its buffers are those of the two sweeps, which nothing replaces. Which solves are done depends only on
// `upper`, which does not change.
unsafe impl<F: Numeric> Preconditioner<F::Value, Cuda> for Swept<F> {
    fn len(&self) -> Option<usize> {
        Some(self.lower.nrows)
    }
    fn apply(&self, cuda: &Cuda, gate: Gate<'_, Cuda>, r: &Vector<F::Value>, z: &mut Vector<F::Value>) -> Result<()> {
        self.lower.columns(cuda, gate, System::Plain, 1, Some(r), z)?;
        match &self.upper {
            Some(upper) => upper.columns(cuda, gate, System::Plain, 1, None, z),
            None => self.lower.columns(cuda, gate, System::Transposed, 1, None, z),
        }
    }
}

impl<F: Numeric> Assembled<F::Value, Cuda> for Swept<F> {
    fn update(&mut self, cuda: &Cuda, values: &Vector<F::Value>) -> Result<()> {
        self.factor.expect(values.len())?;
        self.factor_anew(cuda, values.buffer())
    }
    fn made(&self) -> [&Vector<F::Value>; 2] {
        self.made.each_ref()
    }
    fn plan(&self) -> &'static str {
        Sweep::<F::Value>::NAME
    }
    fn nnz(&self) -> usize {
        self.made.iter().map(Vector::len).sum()
    }
    fn shift(&self) -> f64 {
        self.shift
    }
    fn is_stored_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_sizes_of_their_twins() {
        assert_eq!(size_of::<HalfArg>(), 4 * (5 + 4 * SIDE));
    }

    /// The lower half of a full stencil with this reach along every axis, restricted to what `inside` keeps.
    fn lower(reach: i32, inside: impl Fn(i32) -> bool) -> Vec<[i32; 3]> {
        let along = || -reach..=reach;
        let all = along().flat_map(|dz| along().flat_map(move |dy| along().map(move |dx| [dx, dy, dz])));
        let sum = |o: &[i32; 3]| o.iter().map(|d| d.abs()).sum();
        all.filter(|o| (o[2], o[1], o[0]) < (0, 0, 0) && inside(sum(o))).collect()
    }

    #[test]
    fn every_row_comes_after_those_that_it_needs() {
        for offsets in [lower(1, |sum| sum == 1), lower(1, |_| true), lower(2, |sum| sum <= 3), Vec::new()] {
            for size in [[1, 1, 1], [5, 1, 1], [1, 1, 9], [4, 7, 1], [1, 6, 5], [13, 7, 9], [2, 3, 4], [33, 5, 2]] {
                let n = size.iter().product::<usize>();
                let lattice = Lattice::new(n, size, &offsets, true, true).expect("a lattice");
                let known = Known::new(&lattice, n, Parts::Both).expect("few terms");
                let ([sigma, tau], rank, place) = known.levels().expect("levels").expect("few levels");
                let [nx, ny, nz] = known.size;
                let mut at = vec![usize::MAX; n];
                let mut taken = vec![false; n];
                let mut neighbours = 0;
                let row_of = |[x, y, z]: [usize; 3]| x + nx * (y + ny * z);
                for row in 0..n {
                    let (line, level) = (row / nx, row % nx + sigma * (row / nx % ny) + tau * (row / nx / ny));
                    at[row] = place[level].wrapping_add(rank[line]) as usize;
                    assert!(!std::mem::replace(&mut taken[at[row]], true), "{size:?}: row {row}");
                    let point = [row % nx, row / nx % ny, row / nx / ny];
                    for o in &known.offsets {
                        let to = [0, 1, 2].map(|axis: usize| point[axis].wrapping_add_signed(o[axis] as isize));
                        if to[0] < nx && to[1] < ny && to[2] < nz {
                            neighbours += 1;
                            assert!(at[row_of(to)] < at[row], "{size:?}: row {row} before {to:?}");
                            assert_eq!(row_of(to) as i64 - row as i64, i64::from(shift(*o, [nx, ny])));
                        }
                    }
                }
                assert_eq!(neighbours, known.neighbours, "{size:?}");
            }
        }
    }
}
