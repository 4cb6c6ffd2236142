//! Stencil matrices of geometric multigrid on the GPU.
//!
//! Layout: the upper half of [`CudaDia`]. Order: that of [`spandrel_formats::Coarsening`]. Cost: see
//! kernels/stencil.cu. Kernels: kernels/stencil.cu.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Converted, Error, Gate, Inverted, Relax, Result, Sampled, Spectrum, Stencils};
use spandrel_formats::{Coarsening, Divisor, NEIGHBOURS, Neighbours, Real};

use crate::csr::not_recorded;
use crate::device::gate_pointer;
use crate::kernel::{Argument, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaDia, Vector};

kernels! {
    struct CoarsenStencil { values: Address, of: StencilArg, to: GridsArg, coarse: StencilArg, out: Address }
    in STENCIL { WHOLE: "coarsen_stencil", NARROW: "coarsen_in_f32_stencil" }

    struct CoarsenWithinF32Stencil {
        values: Address, of: StencilArg, to: GridsArg, coarse: StencilArg, out: Address, inexact: Address,
    }
    in STENCIL { ENTRY: "coarsen_within_f32_stencil" }

    struct SpectrumStencil {
        values: Address, of: StencilArg, by_sum: u32, inverse: Address, most: Address, unfit: Address, entries: Address,
    }
    in STENCIL { WHOLE: "spectrum_stencil", NARROW: "spectrum_in_f32_stencil" }

    struct SampleStencil { values: Address, of: StencilArg, begin: u64, step: u64, count: u64, out: Address }
    in STENCIL { WHOLE: "sample_stencil", NARROW: "sample_in_f32_stencil" }

    struct RestrictStencil { to: GridsArg, r: Address, s: Address, gate: Address }
    in STENCIL { ENTRY: "restrict_stencil" }

    struct ProlongStencil { to: GridsArg, e: Address, x: Address, gate: Address }
    in STENCIL { ENTRY: "prolong_stencil" }

    struct RelaxStencil {
        n: u64, keeps: u32, kept: f64, taken: f64, weight: f64, adds: u32, d: Address, s: Address, z: Address,
        x: Address, gate: Address,
    }
    in STENCIL { ENTRY: "relax_stencil" }
}

/// Threads of a thread block (`STENCIL_THREADS` of kernels/stencil.cu).
const THREADS: usize = 128;
/// Threads of a thread block for the spectrum (`SPECTRUM_THREADS` of kernels/stencil.cu).
const SPECTRUM_THREADS: usize = 512;
/// Coarse points of a warp along a halved x (`STRIP` of kernels/stencil.cu), and along another one.
const STRIP: [usize; 2] = [15, 32];
/// Coarse z whose warps come one after the other (`DEEP` of kernels/stencil.cu).
const DEEP: usize = 4;
/// The most coarse y of a warp that computes P^T A P. A warp sums one fine row more than it has children.
const LENGTH: usize = 8;
/// The least number of warps that compute P^T A P, if there is enough to do. They fill any device.
const WARPS: usize = 8192;

/// `struct Stencil` of kernels/stencil.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct StencilArg {
    size: [i32; 3],
    present: u32,
    from: [i64; NEIGHBOURS],
}
// SAFETY: three ints and a u32, then integers of 8 bytes.
unsafe impl Argument for StencilArg {}

impl StencilArg {
    /// The stencil of a matrix with these stored offsets, and values of so many bytes.
    fn of(stencil: &Neighbours, stored: &[i32], bytes: usize) -> Self {
        let (n, [nx, ny, _]) = (stencil.points() as i64, stencil.size().map(|extent| extent as i64));
        let mut arg = Self { size: stencil.size().map(|extent| extent as i32), present: 0, from: [0; NEIGHBOURS] };
        for (place, at) in stencil.upper(stored).iter().enumerate() {
            let Some(begin) = at.map(|at| i64::from(at) * n) else { continue };
            let mirror = NEIGHBOURS - 1 - place;
            let [dx, dy, dz] = [1, 3, 9].map(|base| (mirror / base % 3) as i64 - 1);
            // The main diagonal is its own mirror image, without a shift.
            for (place, shift) in [(place, 0), (mirror, dx + nx * (dy + ny * dz))] {
                arg.present |= 1 << place;
                arg.from[place] = (begin + shift) * bytes as i64;
            }
        }
        arg
    }
}

/// `struct Grids` of kernels/stencil.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct GridsArg {
    fine: [i32; 3],
    coarse: [i32; 3],
    halved: [u32; 3],
}
// SAFETY: as many ints.
unsafe impl Argument for GridsArg {}

impl GridsArg {
    /// Makes the parameter from grids whose points are counted by 32 bits. So the extents are below 2^31, unless
    /// another extent is 0.
    fn of(to: &Coarsening) -> Self {
        let int = |size: [usize; 3]| size.map(|extent| extent as i32);
        Self { fine: int(to.fine()), coarse: int(to.coarse()), halved: to.halved().map(u32::from) }
    }
}

/// One thread for each of `count` items.
fn each(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS), THREADS as u32)
}

/// One warp for each strip of coarse points, coarse z and range of coarse y.
fn strips(to: &Coarsening) -> Grid {
    let ([nx, ny, nz], halves_x) = (to.coarse(), to.halved()[0]);
    let layer = nx.div_ceil(STRIP[usize::from(!halves_x)]) * nz.next_multiple_of(nz.clamp(1, DEEP));
    let ranges = ny.div_ceil(LENGTH).max(ny.min(WARPS / layer.max(1)));
    Grid::of((layer * ranges).div_ceil(THREADS / 32), THREADS as u32)
}

/// The stencil of a matrix as kernels take it, and its values.
///
/// # Errors
/// [`Error::Unsupported`] unless only the upper half is stored, [`Error::Shape`] for another grid.
fn upper<T: Real>(op: &'static str, a: &CudaDia<T>, of: &Neighbours) -> Result<(StencilArg, Address)> {
    expect_len(op, "a row", a.nrows(), of.points())?;
    let refused = || Error::Unsupported { op, noun: "a matrix", why: "it must equal its transpose".to_owned() };
    let (stored, values) = a.upper().ok_or_else(refused)?;
    let bytes = if a.is_narrow() { f32::BYTES } else { T::BYTES };
    Ok((StencilArg::of(of, stored, bytes), values))
}

/// Takes the values of a matrix that fills a stencil: all offsets, and the diagonals at or above the main one.
fn filled<T: Real>(cuda: &Cuda, of: &Neighbours, offsets: &[i32], values: Buffer<T>) -> Result<Converted<CudaDia<T>>> {
    let resident = CudaDia::of_upper(cuda, of.points(), offsets, values)?;
    let (storage, spmv_bytes) = resident.bytes();
    Ok(Converted { resident, nnz: of.entries(), storage, spmv_bytes })
}

/// The number of rows begin, begin + step, ...
fn sampled(of: &Neighbours, begin: usize, step: usize) -> usize {
    of.points().saturating_sub(begin).div_ceil(step)
}

impl Cuda {
    /// Writes the diagonals of P^T A P, the matrix of `next`, with these offsets, at or above the main one. Only
    /// positions inside the grid are written. Does not block.
    fn coarsen<T: Real>(
        &self,
        a: &CudaDia<T>,
        of: &Neighbours,
        (to, next): (&Coarsening, &Neighbours),
        stored: &[i32],
        out: &Buffer<T>,
    ) -> Result<()> {
        let (stencil, values) = upper("a coarser matrix", a, of)?;
        expect_len("a coarser matrix", "the fine grid", to.fine().iter().product(), of.points())?;
        expect_len("a coarser matrix", "a value", out.len(), next.points() * stored.len())?;
        let coarse = StencilArg::of(next, stored, T::BYTES);
        let parameters = CoarsenStencil { values, of: stencil, to: GridsArg::of(to), coarse, out: out.pointer() };
        let entry = a.kernel([CoarsenStencil::WHOLE, CoarsenStencil::NARROW]);
        // SAFETY: coarsen_stencil(values, of, to, coarse, out), the diagonals of the fine grid, and room for each of
        // the coarse one. The grid has at least one warp for each strip and coarse z.
        unsafe { self.launch::<T, _>(entry, strips(to), &parameters) }
    }

    /// As [`Cuda::coarsen`], from values that are kept in f32 over others that are. Returns false if f32 does not
    /// represent all of them; what is written is then undefined. Blocks.
    fn coarsen_within_f32<T: Real>(
        &self,
        a: &CudaDia<T>,
        of: &Neighbours,
        (to, next): (&Coarsening, &Neighbours),
        stored: &[i32],
        out: &Buffer<f32>,
    ) -> Result<bool> {
        let (stencil, values) = upper("a coarser matrix", a, of)?;
        expect_len("a coarser matrix", "the fine grid", to.fine().iter().product(), of.points())?;
        expect_len("a coarser matrix", "a value", out.len(), next.points() * stored.len())?;
        let coarse = StencilArg::of(next, stored, f32::BYTES);
        let mark = Buffer::<u32>::zeros(self.stream(), 1, "a mark")?;
        let (out, inexact) = (out.pointer(), mark.pointer());
        let parameters = CoarsenWithinF32Stencil { values, of: stencil, to: GridsArg::of(to), coarse, out, inexact };
        // SAFETY: coarsen_within_f32_stencil_f64(values, of, to, coarse, out, inexact), both in f32; as `coarsen`.
        unsafe { self.launch::<f64, _>(CoarsenWithinF32Stencil::ENTRY, strips(to), &parameters)? };
        Ok(mark.to_host("a mark")? == [0])
    }

    /// Writes the places of the rows begin, begin + step, ..., for which there is room at `out`. Does not block.
    fn sample<T: Real>(
        &self,
        a: &CudaDia<T>,
        of: &Neighbours,
        (begin, step): (usize, usize),
        out: Address,
    ) -> Result<()> {
        let (stencil, values) = upper("stencil_rows", a, of)?;
        let count = sampled(of, begin, step);
        let (rows, begin, step) = (count as u64, begin as u64, step as u64);
        let parameters = SampleStencil { values, of: stencil, begin, step, count: rows, out };
        let entry = a.kernel([SampleStencil::WHOLE, SampleStencil::NARROW]);
        // SAFETY: sample_stencil(values, of, begin, step, count, out), with room for the places of `count` rows of the
        // grid.
        unsafe { self.launch::<T, _>(entry, each(count), &parameters) }
    }
}

impl<T: Real> Stencils<T> for Cuda {
    fn stencil_offsets(&self, a: &CudaDia<T>) -> Vec<i32> {
        a.all_offsets()
    }

    fn coarser_stencil(&self, a: &CudaDia<T>, of: &Neighbours, to: &Coarsening) -> Result<Converted<CudaDia<T>>> {
        not_recorded(self, "a coarser matrix")?;
        let next = of.coarser(to);
        let (n, offsets) = (next.points(), next.offsets());
        let stored = &offsets[offsets.partition_point(|&offset| offset < 0)..];
        let out = Buffer::<T>::zeros(self.stream(), n * stored.len(), "a matrix's values")?;
        self.coarsen(a, of, (to, &next), stored, &out)?;
        filled(self, &next, &offsets, out)
    }

    fn coarser_stencil_into(
        &self,
        a: &CudaDia<T>,
        of: &Neighbours,
        to: &Coarsening,
        coarse: &mut CudaDia<T>,
    ) -> Result<bool> {
        not_recorded(self, "a coarser matrix")?;
        let next = of.coarser(to);
        let (n, offsets) = (next.points(), next.offsets());
        let alike = coarse.all_offsets().iter().zip(&offsets).filter(|(held, wanted)| held == wanted).count();
        expect_len("a coarser matrix", "a coarse row", coarse.nrows(), n)?;
        expect_len("a coarser matrix", "the coarse diagonals", alike, offsets.len())?;
        upper("a coarser matrix", coarse, &next)?;
        let stored = &offsets[offsets.partition_point(|&offset| offset < 0)..];
        // Positions outside the grid hold 0 from the beginning, and keep it.
        match coarse.in_f32() {
            Some(out) if a.is_narrow() => self.coarsen_within_f32(a, of, (to, &next), stored, out),
            _ => coarse.refill(self, |out| self.coarsen(a, of, (to, &next), stored, out)),
        }
    }

    fn copy_stencil(&self, from: &CudaDia<T>, to: &mut CudaDia<T>) -> Result<bool> {
        not_recorded(self, "a copy of a matrix")?;
        to.copy_from(from)
    }

    fn stencil_spectrum(
        &self,
        a: &CudaDia<T>,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut Vector<T>,
    ) -> Result<Spectrum> {
        Ok(self.stencil_spectra(&mut [(a, of, inverse)], divisor)?.remove(0))
    }

    fn stencil_spectra(&self, grids: &mut [Inverted<'_, T, Self>], divisor: Divisor) -> Result<Vec<Spectrum>> {
        not_recorded(self, "a look at the diagonal")?;
        if grids.is_empty() {
            return Ok(Vec::new());
        }
        // For each grid: the bound, the number of entries, and a word whose lower half is the first unfit row.
        let mut found = [0, 0, u64::MAX].repeat(grids.len());
        let words = Buffer::from_host(self.stream(), &found, "bounds on spectra")?;
        for (k, (a, of, inverse)) in grids.iter_mut().enumerate() {
            let (stencil, values) = upper("stencil_spectrum", a, of)?;
            expect_len("stencil_spectrum", "the inverse of the divisors", inverse.len(), of.points())?;
            let parameters = SpectrumStencil {
                values,
                of: stencil,
                by_sum: match divisor {
                    Divisor::Diagonal => 0,
                    Divisor::RowSum => 1,
                },
                inverse: inverse.pointer(),
                most: words.address(3 * k),
                unfit: words.address(3 * k + 2),
                entries: words.address(3 * k + 1),
            };
            let entry = a.kernel([SpectrumStencil::WHOLE, SpectrumStencil::NARROW]);
            let grid = Grid::of(of.points().div_ceil(SPECTRUM_THREADS), SPECTRUM_THREADS as u32);
            // SAFETY: spectrum_stencil(values, of, by_sum, inverse, most, unfit, entries), an element per row. Host and
            // device are little-endian, so the kernel finds the lower half of a word at its address.
            unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        }
        words.read_at(0, &mut found)?;
        let spectrum = |word: &[u64]| {
            let row = word[2] as u32;
            let unfit = (row != u32::MAX).then_some(row as usize);
            Spectrum { bound: f64::from_bits(word[0]), unfit, entries: word[1] }
        };
        Ok(found.chunks_exact(3).map(spectrum).collect())
    }

    fn stencil_rows(&self, a: &CudaDia<T>, of: &Neighbours, begin: usize, step: usize) -> Result<Vec<T>> {
        not_recorded(self, "rows on their way to the host")?;
        expect_len("stencil_rows", "a step", step.min(1), 1)?;
        let out = Buffer::<T>::uninit(self.stream(), sampled(of, begin, step) * NEIGHBOURS, "rows of a matrix")?;
        self.sample(a, of, (begin, step), out.pointer())?;
        out.to_host("rows of a matrix")
    }

    fn stencil_diagonals(&self, a: &CudaDia<T>, of: &Neighbours) -> Result<Vec<Vector<T>>> {
        not_recorded(self, "the diagonals of a matrix")?;
        upper("stencil_diagonals", a, of)?;
        let diagonal = |offset: i32| {
            let mut out = Backend::<T>::zeros(self, of.points())?;
            a.copy_diagonal(self, offset, &mut out)?;
            Ok(out)
        };
        of.upper_offsets().into_iter().map(diagonal).collect()
    }

    fn stencil_of_diagonals(&self, of: &Neighbours, upper: &[Vector<T>]) -> Result<Converted<CudaDia<T>>> {
        not_recorded(self, "a matrix from its diagonals")?;
        let (n, offsets, stored) = (of.points(), of.offsets(), of.upper_offsets());
        expect_len("stencil_of_diagonals", "the diagonals", upper.len(), stored.len())?;
        let out = Buffer::<T>::zeros(self.stream(), n * stored.len(), "a matrix's values")?;
        for (k, (&offset, from)) in stored.iter().zip(upper).enumerate() {
            expect_len("stencil_of_diagonals", "a diagonal", from.len(), n)?;
            out.copy_at(k * n, from.buffer(), 0..n.saturating_sub(offset as usize))?;
        }
        filled(self, of, &offsets, out)
    }

    /// The rows stay in page-locked memory, which the device keeps for other reads.
    fn stencil_samples(&self, grids: &[Sampled<'_, T, Self>], look: &mut dyn FnMut(&[T])) -> Result<()> {
        not_recorded(self, "rows on their way to the host")?;
        for &(_, _, step) in grids {
            expect_len("stencil_rows", "a step", step.min(1), 1)?;
        }
        if grids.is_empty() {
            look(&[]);
            return Ok(());
        }
        let total = grids.iter().map(|&(_, of, step)| sampled(of, 0, step) * NEIGHBOURS).sum();
        let out = Buffer::<T>::uninit(self.stream(), total, "rows of matrices")?;
        let mut at = 0;
        for &(a, of, step) in grids {
            self.sample(a, of, (0, step), out.address(at))?;
            at += sampled(of, 0, step) * NEIGHBOURS;
        }
        let landing = &mut *self.landing().borrow_mut();
        // SAFETY: as many rows lie there.
        let fetched = unsafe { landing.fetch(self.stream(), Address::NULL, &[out.pointer()], total * T::BYTES)? };
        if let Some(rows) = fetched {
            look(bytemuck::cast_slice(rows));
        }
        Ok(())
    }

    fn restrict(&self, gate: Gate<'_, Self>, to: &Coarsening, r: &Vector<T>, s: &mut Vector<T>) -> Result<()> {
        let points = to.coarse().iter().product();
        expect_len("restrict", "r", r.len(), to.fine().iter().product())?;
        expect_len("restrict", "s", s.len(), points)?;
        let (r, s, gate) = (r.pointer(), s.pointer(), gate_pointer(gate));
        let parameters = RestrictStencil { to: GridsArg::of(to), r, s, gate };
        // SAFETY: restrict_stencil(to, r, s, gate), an element per point of each grid.
        unsafe { self.launch::<T, _>(RestrictStencil::ENTRY, each(points), &parameters) }
    }

    fn prolong(&self, gate: Gate<'_, Self>, to: &Coarsening, e: &Vector<T>, x: &mut Vector<T>) -> Result<()> {
        let points = to.fine().iter().product();
        expect_len("prolong", "e", e.len(), to.coarse().iter().product())?;
        expect_len("prolong", "x", x.len(), points)?;
        let (e, x, gate) = (e.pointer(), x.pointer(), gate_pointer(gate));
        let parameters = ProlongStencil { to: GridsArg::of(to), e, x, gate };
        // SAFETY: prolong_stencil(to, e, x, gate), an element per point of each grid.
        unsafe { self.launch::<T, _>(ProlongStencil::ENTRY, each(points), &parameters) }
    }

    fn relax(
        &self,
        gate: Gate<'_, Self>,
        step: Relax<T>,
        d: &Vector<T>,
        s: &Vector<T>,
        z: &mut Vector<T>,
        x: &mut Vector<T>,
    ) -> Result<()> {
        let n = d.len();
        for (what, len) in [("s", s.len()), ("z", z.len()), ("x", x.len())] {
            expect_len("relax", what, len, n)?;
        }
        let parameters = RelaxStencil {
            n: n as u64,
            keeps: u32::from(step.kept.is_some()),
            kept: step.kept.map_or(0.0, Real::as_f64),
            taken: step.taken.as_f64(),
            weight: step.weight.as_f64(),
            adds: u32::from(step.adds),
            d: d.pointer(),
            s: s.pointer(),
            z: z.pointer(),
            x: x.pointer(),
            gate: gate_pointer(gate),
        };
        // SAFETY: relax_stencil(n, keeps, kept, taken, weight, adds, d, s, z, x, gate) on vectors of n elements.
        unsafe { self.launch::<T, _>(RelaxStencil::ENTRY, Grid::rows(n), &parameters) }
    }
}
