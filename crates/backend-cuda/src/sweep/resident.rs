//! Makes the sweep of a matrix that is on the device. A sample of rows suggests the grid, one pass over the columns
//! proves it, and then the values are packed. Only the sample and the reports of the kernels leave the device.
//!
//! Layout: [`SidesArg`] and [`PlacesArg`] have the twins `Sides` in kernels/grid.cu and `Places` in
//! kernels/include/side_values.cuh. Order: a reciprocal of the diagonal is rounded once, as on the host.
//!
//! Cost: a few rows and four words to the host; columns and row pointers once; the values of the triangle once, and the
//! packed ones once; those of a separate transposed system come from them. Two waits, and two more for each row that
//! contradicts the sample. On clusters, one pass proves and packs a matrix whose rows hold the whole stencil. For any
//! other matrix that pass stops at the first row that differs, and costs one more wait.
//!
//! Kernels: kernels/grid.cu.

use spandrel_backend::{Analyze, Analyzed, Error, Part, Result};
use spandrel_formats::{Csr, Grid as Found, Real, Sample};
use spandrel_sptrsv::sweep::GUESSES;
use spandrel_sptrsv::{Diagonal, Lattice, Sweep, Triangle};

use super::{CudaSweep, Schedule};
use crate::csr::not_recorded;
use crate::kernel::{Argument, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaCsr};

kernels! {
    struct SampleGrid { row_ptr: Address, cols: Address, n: u32, upper: u32, out: Address, line: Address }
    in GRID { ENTRY: "sample_grid" }

    struct CheckGrid { sides: SidesArg, row_ptr: Address, cols: Address, n: u32, words: Address }
    in GRID { ENTRY: "check_grid" }

    struct PackGrid {
        places: PlacesArg, row_ptr: Address, cols: Address, from: Address, n: u32, words: Address, values: Address,
    }
    in GRID { ENTRY: "pack_grid" }

    struct FillGrid {
        places: PlacesArg, row_ptr: Address, cols: Address, from: Address, n: u32, words: Address, values: Address,
    }
    in GRID { ENTRY: "fill_grid" }
}

/// The largest numbers of offsets on one side of the diagonal, including it, and on both sides; as in the kernels.
pub(super) const SIDE: usize = 41;
const BOTH: usize = 81;
/// The number of rows in a sample, and the numbers of words and columns per row; as in the kernels.
const SAMPLED: usize = Sample::ROWS;
const SAMPLE_WORDS: usize = 46;
const SAMPLE_COLS: usize = 44;
/// The number of lanes of the layout that a thread block fills at once, and of its threads.
const LANES: usize = 32;
const THREADS: u32 = 256;
/// The largest dynamic shared memory of a filling thread block: what it may have without a request, less its static
/// part.
const SHARED: usize = 38 << 10;
/// The number of thread blocks per multiprocessor that pack: as many as it runs at once.
const PACKING: usize = 5;

/// The places of the kernels' reports.
const OUTSIDE: usize = 0;
const LACKING: usize = 1;
const WITHOUT_DIAGONAL: usize = 2;
const ZERO_DIAGONAL: usize = 3;
const REPORTS: usize = 4;

/// `struct Sides`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct SidesArg {
    size: [u32; 3],
    before: u32,
    after: u32,
    upper: u32,
    count: u32,
    both: u32,
    holds_diagonal: u32,
    along: [[i32; SIDE]; 3],
    shift: [i32; SIDE],
    both_dy: [i32; BOTH],
    both_dz: [i32; BOTH],
    both_shift: [i32; BOTH],
}
// SAFETY: `struct Sides`: nine u32, then arrays of i32.
unsafe impl Argument for SidesArg {}

/// `struct Places`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PlacesArg {
    pub(super) nx: u32,
    pub(super) ny: u32,
    pub(super) lines: u32,
    pub(super) plane_lines: u32,
    pub(super) planes: u32,
    pub(super) sigma: u32,
    pub(super) lanes: u32,
    pub(super) period: u32,
    pub(super) steps: u32,
    pub(super) width: u32,
    pub(super) terms: u32,
    pub(super) magic: u32,
    pub(super) deep: u32,
    pub(super) mirrored: u32,
    pub(super) blocks: u32,
    pub(super) by_line: u32,
    pub(super) by_plane: u32,
    pub(super) shear: u32,
    pub(super) unit: u32,
    /// For the alignment.
    pub(super) unused: u32,
    pub(super) plane_values: u64,
    pub(super) along: [[i32; SIDE]; 3],
    pub(super) shift: [i32; SIDE],
}
// SAFETY: `struct Places`: nineteen u32, one that aligns, a u64, then arrays of i32.
unsafe impl Argument for PlacesArg {}

/// The difference of rows for a difference of coordinates.
pub(super) fn shift(o: [i32; 3], [nx, ny]: [usize; 2]) -> i32 {
    (i64::from(o[0]) + nx as i64 * (i64::from(o[1]) + ny as i64 * i64::from(o[2]))) as i32
}

impl PlacesArg {
    /// Makes the parameter from the first `count` terms of a stencil, on a grid with `nx` points per line and `ny`
    /// lines per plane. All other fields are zero.
    pub(super) fn of_terms<const N: usize>(terms: &[[i32; N]; 3], count: u32, [nx, ny]: [u32; 2]) -> Self {
        let (mut along, mut shifts) = ([[0; SIDE]; 3], [0; SIDE]);
        for k in 0..(count as usize).min(SIDE) {
            let offset = [0, 1, 2].map(|axis: usize| terms[axis][k]);
            for (axis, d) in offset.iter().enumerate() {
                along[axis][k] = *d;
            }
            shifts[k] = shift(offset, [nx as usize, ny as usize]);
        }
        Self {
            nx,
            ny,
            lines: 0,
            plane_lines: 0,
            planes: 0,
            sigma: 0,
            lanes: 0,
            period: 1,
            steps: 0,
            width: 0,
            terms: count,
            magic: 0,
            deep: 0,
            mirrored: 0,
            blocks: 0,
            by_line: 0,
            by_plane: 0,
            shear: 0,
            unit: 0,
            unused: 0,
            plane_values: 0,
            along,
            shift: shifts,
        }
    }

    /// Sets tiles of as many steps as fit into shared memory. Also returns the number of thread blocks for all tiles,
    /// and the bytes of each.
    fn tiled(mut self, bytes: usize) -> (Self, usize, usize) {
        let room = |deep: usize| deep * self.width as usize * (LANES + 1) * bytes;
        let deep = [8, 4, 2].into_iter().find(|&deep| room(deep) <= SHARED).unwrap_or(1);
        self.deep = deep as u32;
        self.magic = ((1u64 << 32) / u64::from(self.width.max(1)) + 1) as u32;
        let tiles = (self.lanes as usize).div_ceil(LANES) * (self.steps as usize).div_ceil(deep) * self.planes as usize;
        (self, tiles, room(deep))
    }
}

/// What a sample of rows looks like.
struct Look {
    sample: Sample,
    /// Whether rows have entries on the other side of the diagonal, on it, and off it on this side.
    other_side: bool,
    diagonal: bool,
    off_diagonal: bool,
}

impl Look {
    /// Reads the output of sample_grid for a matrix of `n` rows.
    fn of(n: usize, found: &[u32]) -> Result<Self> {
        let (rows, line) = found.split_at(SAMPLED * SAMPLE_WORDS);
        let mut look = Self { sample: Sample::new(n), other_side: false, diagonal: false, off_diagonal: false };
        if line[0] != 0 {
            look.sample.line_may_have(!line[0] as usize + 1);
        }
        for (at, row) in rows.chunks_exact(SAMPLE_WORDS).take(n).enumerate() {
            let count = row[0] as usize;
            if count > SAMPLE_COLS {
                return Err(no_grid(format!("a row holds {count} entries on one side of its diagonal")));
            }
            look.other_side |= row[1] != 0;
            look.push(Sample::row(n, at), row[2..2 + count].to_vec());
        }
        Ok(look)
    }

    /// The grid and the lower stencil that the rows suggest.
    fn guess(&self, nrows: usize, triangle: Triangle) -> Result<([usize; 3], Vec<[i32; 3]>)> {
        if !self.off_diagonal {
            return Ok(([nrows, 1, 1], Vec::new()));
        }
        let Found { size, offsets, .. } = self.sample.guess().map_err(|why| no_grid(why.to_string()))?;
        let sign = if triangle == Triangle::Upper { -1 } else { 1 };
        Ok((size, offsets.into_iter().filter(|&o| o != [0; 3]).map(|o| o.map(|d| sign * d)).collect()))
    }

    fn push(&mut self, row: usize, cols: Vec<u32>) {
        self.diagonal |= cols.iter().any(|&col| col as usize == row);
        self.off_diagonal |= cols.iter().any(|&col| col as usize != row);
        self.sample.push(row, cols);
    }
}

fn no_grid(why: String) -> Error {
    Error::Triangle(spandrel_sptrsv::Error::NotAGrid { plan: "sweep", why })
}

impl SidesArg {
    /// The rows of a lattice as a matrix has them: with both sides of the diagonal, or one, the diagonal stored or not.
    /// At most [`SIDE`] - 1 of the offsets can lie inside.
    fn new(lattice: &Lattice, triangle: Triangle, look: &Look) -> Self {
        let size = lattice.size();
        let fits = |o: &&[i32; 3]| (0..3).all(|axis| (o[axis].unsigned_abs() as usize) < size[axis]);
        let lower: Vec<[i32; 3]> = lattice.offsets().iter().filter(fits).copied().take(SIDE - 1).collect();
        let upper: Vec<[i32; 3]> = lower.iter().rev().map(|o| o.map(|d| -d)).collect();
        let is_upper = triangle == Triangle::Upper;
        let side: Vec<[i32; 3]> = match is_upper {
            false => lower.iter().copied().chain([[0; 3]]).collect(),
            true => [[0; 3]].into_iter().chain(upper.iter().copied()).collect(),
        };
        let mut both = Vec::with_capacity(BOTH);
        if !is_upper || look.other_side {
            both.extend(&lower);
        }
        both.extend(look.diagonal.then_some([0; 3]));
        if is_upper || look.other_side {
            both.extend(&upper);
        }
        let narrow = [size[0], size[1]];
        let mut arg = Self {
            size: size.map(|extent| extent as u32),
            before: both.iter().map(|o| o[0].min(0).unsigned_abs()).max().unwrap_or(0),
            after: both.iter().map(|o| o[0].max(0).unsigned_abs()).max().unwrap_or(0),
            upper: u32::from(is_upper),
            count: side.len() as u32,
            both: both.len() as u32,
            holds_diagonal: u32::from(look.diagonal),
            along: [[0; SIDE]; 3],
            shift: [0; SIDE],
            both_dy: [0; BOTH],
            both_dz: [0; BOTH],
            both_shift: [0; BOTH],
        };
        for (k, o) in side.iter().enumerate() {
            for (axis, d) in o.iter().enumerate() {
                arg.along[axis][k] = *d;
            }
            arg.shift[k] = shift(*o, narrow);
        }
        for (k, o) in both.iter().enumerate() {
            (arg.both_dy[k], arg.both_dz[k], arg.both_shift[k]) = (o[1], o[2], shift(*o, narrow));
        }
        arg
    }
}

/// The smallest key that was reported at this place.
fn reported(words: &[u64; REPORTS], place: usize) -> Option<u64> {
    (words[place] != 0).then(|| !words[place])
}

impl Cuda {
    /// Some rows' entries on one side. Blocks.
    fn look<T: Real>(&self, m: &CudaCsr<T>, triangle: Triangle) -> Result<Look> {
        let n = m.nrows();
        let (row_ptr, cols, _) = m.arrays();
        let words = SAMPLED * SAMPLE_WORDS;
        let out = Buffer::<u32>::zeros(self.stream(), words + 1, "a sample of rows")?;
        let (row_ptr, cols, to, line) = (row_ptr.pointer(), cols.pointer(), out.pointer(), out.address(words));
        let (nrows, upper) = (n as u32, u32::from(triangle == Triangle::Upper));
        let parameters = SampleGrid { row_ptr, cols, n: nrows, upper, out: to, line };
        let blocks = 1 + n.min(1 << 16).div_ceil(THREADS as usize);
        // SAFETY: sample_grid(row_ptr, cols, n, upper, out, line) of a square matrix with rows, for SAMPLED rows at
        // most.
        unsafe { self.launch::<T, _>(SampleGrid::ENTRY, Grid::of(blocks, THREADS), &parameters)? };
        let found = out.to_host("a sample of rows")?;
        Look::of(n, &found)
    }

    /// One row's entries on one side. Blocks.
    fn side<T: Real>(&self, m: &CudaCsr<T>, row: usize, triangle: Triangle) -> Result<Vec<u32>> {
        let (row_ptr, cols, _) = m.arrays();
        let mut ends = [0; 2];
        row_ptr.read_at(row, &mut ends)?;
        let mut all = vec![0; (ends[1] - ends[0]) as usize];
        cols.read_at(ends[0] as usize, &mut all)?;
        all.retain(|&col| col as usize == row || triangle.holds(row, col as usize));
        Ok(all)
    }

    /// Adds a row that contradicts a guess to the sample. Returns false if the row was already there, which means that
    /// it is out of order. Blocks.
    fn learn<T: Real>(
        &self,
        m: &CudaCsr<T>,
        look: &mut Look,
        contradicting: &mut Vec<usize>,
        row: usize,
        triangle: Triangle,
    ) -> Result<bool> {
        let new = !contradicting.contains(&row);
        if new {
            contradicting.push(row);
            look.push(row, self.side(m, row, triangle)?);
        }
        Ok(new)
    }

    /// Compares every row with a lattice and writes the findings to the words.
    fn prove<T: Real>(&self, m: &CudaCsr<T>, sides: &SidesArg, words: &Buffer<u64>) -> Result<()> {
        let (row_ptr, cols, _) = m.arrays();
        let (row_ptr, cols, n, to) = (row_ptr.pointer(), cols.pointer(), m.nrows() as u32, words.pointer());
        let blocks = m.nrows().div_ceil(8 * THREADS as usize).min(16 * self.multiprocessors());
        let parameters = CheckGrid { sides: *sides, row_ptr, cols, n, words: to };
        // SAFETY: check_grid(sides, row_ptr, cols, n, words) of a square matrix of as many rows as the grid has points.
        unsafe { self.launch::<T, _>(CheckGrid::ENTRY, Grid::of(blocks, THREADS), &parameters) }
    }

    /// The grid on which every row holds all neighbours of a stencil below the diagonal, the diagonal, and on request
    /// the mirror image above it. `None` if the rows suggest no such grid. Blocks.
    ///
    /// # Errors
    /// The first row that lacks only its diagonal entry.
    pub(super) fn whole_lattice<T: Real>(&self, m: &CudaCsr<T>, both: bool) -> Result<Option<Lattice>> {
        let n = m.nrows();
        let mut look = match self.look(m, Triangle::Lower) {
            Err(Error::Triangle(_)) => return Ok(None),
            look => look?,
        };
        let words = |lattice: &Lattice, triangle, look: &Look| -> Result<[u64; REPORTS]> {
            let words = Buffer::<u64>::zeros(self.stream(), REPORTS, "what a matrix is")?;
            self.prove(m, &SidesArg::new(lattice, triangle, look), &words)?;
            let mut found = [0; REPORTS];
            words.read_at(0, &mut found)?;
            Ok(found)
        };
        let mut contradicting = Vec::new();
        for _ in 0..GUESSES {
            let Ok((size, offsets)) = look.guess(n, Triangle::Lower) else { return Ok(None) };
            let Ok(lattice) = Lattice::new(n, size, &offsets, true, true) else { return Ok(None) };
            let found = words(&lattice, Triangle::Lower, &look)?;
            if let Some(key) = reported(&found, OUTSIDE) {
                if !self.learn(m, &mut look, &mut contradicting, (key >> 32) as usize, Triangle::Lower)? {
                    return Ok(None);
                }
                continue;
            }
            if reported(&found, LACKING).is_some() {
                return Ok(None);
            }
            if let Some(row) = reported(&found, WITHOUT_DIAGONAL) {
                return Err(Error::Triangle(spandrel_sptrsv::Error::MissingPivot { row: row as usize }));
            }
            if both {
                let found = words(&lattice, Triangle::Upper, &look)?;
                if [OUTSIDE, LACKING].into_iter().any(|place| reported(&found, place).is_some()) {
                    return Ok(None);
                }
            }
            return Ok(Some(lattice));
        }
        Ok(None)
    }

    /// Compares every row with a lattice that holds all of it and packs the values, in one pass. Returns the reports,
    /// or `None` for a matrix or a layout of another kind, which is not packed. Blocks.
    fn pack_whole<T: Real>(&self, m: &CudaCsr<T>, made: &CudaSweep<T>) -> Result<Option<[u64; REPORTS]>> {
        let Schedule::Waves(wave) = &made.schedule else { return Ok(None) };
        let words = Buffer::<u64>::zeros(self.stream(), REPORTS, "what a matrix is")?;
        let (row_ptr, cols, from) = m.arrays();
        let (row_ptr, cols, from) = (row_ptr.pointer(), cols.pointer(), from.pointer());
        let (n, to, values) = (m.nrows() as u32, words.pointer(), made.values.pointer());
        let (places, tiles, shared) = wave.places(made.triangle == Triangle::Upper, made.unit).tiled(T::BYTES);
        let grid = Grid { shared: shared as u32, ..Grid::of(tiles.min(PACKING * self.multiprocessors()), THREADS) };
        let parameters = PackGrid { places, row_ptr, cols, from, n, words: to, values };
        // SAFETY: pack_grid(places, row_ptr, cols, from, n, words, values) of a square matrix of as many rows as the
        // grid has points, columns ascending; values has a place for each step, term and lane of each block.
        unsafe { self.launch::<T, _>(PackGrid::ENTRY, grid, &parameters)? };
        let mut found = [0; REPORTS];
        words.read_at(0, &mut found)?;
        Ok((found[LACKING] == 0).then_some(found))
    }

    /// Compares every row with a lattice and packs the values if all are part of it. Returns the findings. Blocks.
    fn prove_and_fill<T: Real>(&self, m: &CudaCsr<T>, sides: &SidesArg, made: &CudaSweep<T>) -> Result<[u64; REPORTS]> {
        let words = Buffer::<u64>::zeros(self.stream(), REPORTS, "what a matrix is")?;
        self.prove(m, sides, &words)?;
        let (row_ptr, cols, from) = m.arrays();
        let (row_ptr, cols, from) = (row_ptr.pointer(), cols.pointer(), from.pointer());
        let (n, to, values) = (m.nrows() as u32, words.pointer(), made.values.pointer());
        let most = 16 * self.multiprocessors();
        let mirrored = made.triangle == Triangle::Upper;
        let places = match &made.schedule {
            Schedule::Steps(geometry) if geometry.values > 0 => Some(geometry.places(mirrored)),
            Schedule::Waves(wave) => Some(wave.places(mirrored, made.unit)),
            Schedule::Nothing | Schedule::Steps(_) => None,
        };
        if let Some(places) = places {
            let (places, tiles, shared) = places.tiled(T::BYTES);
            let grid = Grid { shared: shared as u32, ..Grid::of(tiles.min(most), THREADS) };
            let parameters = FillGrid { places, row_ptr, cols, from, n, words: to, values };
            // SAFETY: fill_grid(places, row_ptr, cols, from, n, words, values) after check_grid for the same lattice;
            // values has a place for each step, term and lane of each plane.
            unsafe { self.launch::<T, _>(FillGrid::ENTRY, grid, &parameters)? };
        }
        let mut found = [0; REPORTS];
        words.read_at(0, &mut found)?;
        Ok(found)
    }
}

impl<T: Real> Analyze<Csr<T>, Sweep<T>> for Cuda {
    fn analyze(&self, from: &CudaCsr<T>, part: &Part<'_>) -> Result<Analyzed<CudaSweep<T>>> {
        not_recorded(self, "an analysis")?;
        let (nrows, ncols) = (from.nrows(), from.ncols());
        if nrows != ncols {
            return Err(Error::Triangle(spandrel_sptrsv::Error::NotSquare { nrows, ncols }));
        }
        let Part { triangle, diagonal, systems, grid } = *part;
        let analyzed = |lattice: &Lattice, resident| {
            let stored = lattice.offsets().len() + usize::from(diagonal == Diagonal::NonUnit);
            let storage = (T::BYTES * nrows * stored) as u64;
            Analyzed { resident, storage, sptrsv_bytes: storage + (2 * T::BYTES * nrows) as u64 }
        };
        if nrows == 0 {
            let (size, offsets) = grid.unwrap_or(([0, 1, 1], &[]));
            let lattice = Lattice::new(0, size, offsets, true, false)?;
            let schedule = Schedule::Nothing;
            return Ok(analyzed(&lattice, self.place_sweep(schedule, 0, triangle, diagonal, systems, true)?));
        }
        let mut look = self.look(from, triangle)?;
        let (mut contradiction, mut contradicting) = (None, Vec::new());
        for _ in 0..GUESSES {
            let (size, offsets) = match (grid, look.guess(nrows, triangle)) {
                (Some((size, offsets)), _) => (size, offsets.to_vec()),
                (None, Ok(guess)) => guess,
                (None, Err(why)) => return Err(contradiction.unwrap_or(why)),
            };
            let lattice = Lattice::new(nrows, size, &offsets, false, false)?;
            let schedule = match self.waves::<T>(&lattice, None)? {
                Some(wave) => Schedule::Waves(wave),
                None => Schedule::steps::<T>(&lattice, diagonal, self.shared_by_a_block()?)?,
            };
            let made = self.place_sweep::<T>(schedule, nrows, triangle, diagonal, systems, false)?;
            let found = match self.pack_whole(from, &made)? {
                Some(found) => found,
                None => self.prove_and_fill(from, &SidesArg::new(&lattice, triangle, &look), &made)?,
            };
            if let Some(key) = reported(&found, OUTSIDE) {
                let (row, col) = ((key >> 32) as usize, key as u32 as usize);
                let outside = Error::Triangle(spandrel_sptrsv::Error::OutsideStencil { row, col });
                if grid.is_some() || !self.learn(from, &mut look, &mut contradicting, row, triangle)? {
                    return Err(outside);
                }
                contradiction = Some(outside);
                continue;
            }
            if diagonal == Diagonal::NonUnit {
                let row = |place| reported(&found, place).map(|row| row as usize);
                let (missing, zero) = (row(WITHOUT_DIAGONAL), row(ZERO_DIAGONAL));
                let wrong = match (missing, zero) {
                    (Some(row), zero) if zero.is_none_or(|zero| row < zero) => {
                        Some(spandrel_sptrsv::Error::MissingDiagonal { row })
                    }
                    (_, Some(row)) => Some(spandrel_sptrsv::Error::ZeroDiagonal { row }),
                    _ => None,
                };
                if let Some(wrong) = wrong {
                    return Err(Error::Triangle(wrong));
                }
            }
            made.pack_transposed(self)?;
            return Ok(analyzed(&lattice, made));
        }
        Err(contradiction.unwrap_or_else(|| no_grid(format!("none of {GUESSES} guesses holds its rows"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_sizes_of_their_twins() {
        assert_eq!(size_of::<SidesArg>(), 4 * (9 + 4 * SIDE + 3 * BOTH));
        assert_eq!(size_of::<PlacesArg>(), 20 * 4 + 8 + 4 * 4 * SIDE);
    }

    #[test]
    fn samples_stay_inside() {
        for n in [1, 16, 255, 256, 257, 300, 1 << 20, (1 << 31) - 1] {
            for at in 0..SAMPLED.min(n) {
                assert!(Sample::row(n, at) < n, "{n} {at}");
            }
        }
    }

    #[test]
    fn tiles_fit_the_shared_memory_and_the_multiplication_divides() {
        for width in 1..=SIDE as u32 {
            for bytes in [4, 8] {
                let mut places = PlacesArg::of_terms(&[[0; SIDE]; 3], width, [5, 7]);
                (places.width, places.steps, places.lanes, places.planes) = (width, 100, 34, 3);
                let (places, tiles, shared) = places.tiled(bytes);
                assert!(shared <= SHARED && tiles >= 3 && places.deep >= 2, "{width}");
                for j in 0..places.deep * width {
                    let s = ((u64::from(j) * u64::from(places.magic)) >> 32) as u32;
                    assert!(width == 1 || s == j / width, "{j} / {width}");
                }
            }
        }
    }
}
