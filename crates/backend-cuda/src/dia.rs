//! DIA on the GPU.
//!
//! Layout: the host's. A matrix that equals its transpose bit for bit keeps only the diagonals at or above the main
//! one. This halves the memory and nearly halves the traffic, because the second use of an entry comes from the cache.
//! f64 values that f32 represents exactly are stored in f32, except in systems that persistent kernels may take
//! (docs/adr/0042).
//!
//! Order: stored, by ascending offset, in all forms. Cost: [`spandrel_formats::Traffic::spmv_bytes`], with half of the
//! values or half of their bytes. Kernels: kernels/dia.cu.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{
    BicgstabIterations, CgIterations, Coeff, Convert, Converted, Gate, Load, Order, Result, Spmm, Spmv,
};
use spandrel_formats::{Csr, Dia, Real};

use crate::convert::{Counts, Diagonals};
use crate::csr::{PatternMark, not_recorded};
use crate::kept::Values;
use crate::kernel::{Argument, Entry, kernels, parameters};
use crate::launch::{BLOCK, Grid, Product, ProductDot, Update};
use crate::memory::{Address, Buffer};
use crate::persistent::{BicgstabParameters, CgParameters, Persists, Resident};
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

parameters! {
    /// The parameters of a matrix for products.
    struct MatrixParameters { values: Address, offsets: Address, diagonals: u32 }

    /// The parameters for kernels that take either form, the upper half or all diagonals.
    struct EitherParameters { matrix: MatrixParameters, symmetric: u32 }
}

kernels! {
    struct SpmvDia<T> { matrix: MatrixParameters, nrows: u64, ncols: u64, update: Update<T> }
    in DIA { WHOLE: "spmv_dia", NARROW: "spmv_in_f32_dia" }

    struct SpmvSymmetricDia<T> { matrix: MatrixParameters, nrows: u64, update: Update<T> }
    in DIA { WHOLE: "spmv_symmetric_dia", NARROW: "spmv_in_f32_symmetric_dia" }

    struct SpmvDotDia { matrix: MatrixParameters, nrows: u64, ncols: u64, product: ProductDot }
    in DIA { WHOLE: "spmv_dot_dia", NARROW: "spmv_dot_in_f32_dia" }

    struct SpmvDotSymmetricDia { matrix: MatrixParameters, nrows: u64, product: ProductDot }
    in DIA { WHOLE: "spmv_dot_symmetric_dia", NARROW: "spmv_dot_in_f32_symmetric_dia" }

    struct SpmvDotFewDia {
        values: Address, offsets: FewOffsetsArg, diagonals: u32, nrows: u64, stride: u32, depth: u32,
        product: ProductDot,
    }
    in DIA { WHOLE: "spmv_dot_few_dia", NARROW: "spmv_dot_in_f32_few_dia" }

    struct SpmmDia<T> { matrix: EitherParameters, nrows: u64, ncols: u64, k: u64, product: Product<T> }
    in DIA { WHOLE: "spmm_dia", NARROW: "spmm_in_f32_dia" }

    struct CgDia { matrix: EitherParameters, solve: CgParameters }
    in DIA { ENTRY: "cg_dia" }

    struct BicgstabDia { matrix: EitherParameters, solve: BicgstabParameters }
    in DIA { ENTRY: "bicgstab_dia" }
}

/// The number of offsets that are passed by value (`FEW` of kernels/dia.cu).
const FEW: usize = 8;
/// Up to this many stored diagonals of a symmetric matrix, a thread block of a product with dot products takes several
/// blocks of rows. On an H200, 4 diagonals take 242 us instead of 288 (7 points, 256^3), 7 take the same, and 14, which
/// wait for the L2 cache, 810 instead of 674. With values in f32, 7 gain as well (an iteration of CG 583 us instead of
/// 627, 13 points, 256^3); 14 gain 2 % there and lose 12 % at 128^3.
const TAKEN: [usize; 2] = [4, FEW];
/// The number of thread blocks of 256 that a multiprocessor runs at once, and the largest number of blocks of rows for
/// each.
pub(crate) const AT_ONCE: usize = 4;
const DEEPEST: usize = 16;
/// The most stored diagonals that are refilled (`SIDE` of kernels/dia.cu).
const MOST_REFILLED: usize = 16;

/// `struct FewOffsets` of kernels/dia.cu.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct FewOffsetsArg([i32; FEW]);
// SAFETY: as many ints.
unsafe impl Argument for FewOffsetsArg {}

impl FewOffsetsArg {
    /// Of the stored offsets of a symmetric matrix, if they are few.
    fn of(symmetric: bool, narrow: bool, stored: &[i32]) -> Option<Self> {
        if !symmetric || stored.is_empty() || stored.len() > TAKEN[usize::from(narrow)] {
            return None;
        }
        let mut few = [0; FEW];
        few[..stored.len()].copy_from_slice(stored);
        Some(Self(few))
    }
}

/// How thread blocks go through the blocks of 1024 rows. Each steps by the reach of the matrix (a plane of a grid).
/// There remain enough thread blocks to fill every multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    stride: usize,
    depth: usize,
    thread_blocks: usize,
}

impl Way {
    /// `None` if there are too few.
    fn of(nrows: usize, reach: usize, multiprocessors: usize) -> Option<Self> {
        let blocks = nrows.div_ceil(BLOCK);
        let depth = blocks.checked_div(AT_ONCE * multiprocessors).filter(|&depth| depth > 0)?;
        let stride = ((reach + BLOCK / 2) / BLOCK).max(1);
        let depth = depth.min(DEEPEST).min((blocks / stride).max(1));
        Some(Self { stride, depth, thread_blocks: blocks.div_ceil(stride * depth) * stride })
    }
}

/// The bytes of the stored diagonals and of y = A x. The second use of a diagonal comes from the cache.
fn traffic<T: Real>(nrows: usize, ncols: usize, stored: &[i32], narrow: bool) -> (u64, u64) {
    let of = if narrow { Dia::<T>::traffic_in_f32 } else { Dia::<T>::traffic_of };
    of(nrows, ncols, stored)
}

/// A DIA matrix in device memory.
#[derive(Debug)]
pub struct CudaDia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Buffer<i32>,
    /// The stored offsets on the host.
    stored: Vec<i32>,
    values: Values<T>,
    symmetric: bool,
    few: Option<FewOffsetsArg>,
    /// The pattern that it was converted from. All its entries lie on these diagonals, and no diagonal is empty.
    pattern: Option<PatternMark>,
    /// The number of all diagonals, and how far they reach below and above the main one.
    diagonals: usize,
    reach: (usize, usize),
    /// See [`Load::traffic`].
    traffic: (u64, u64),
}

impl<T: Real> CudaDia<T> {
    /// Assembles a matrix from the offsets of all diagonals and their values; if `symmetric`, the values of only those
    /// at or above the main one.
    fn assembled(
        cuda: &Cuda,
        (nrows, ncols): (usize, usize),
        offsets: &[i32],
        symmetric: bool,
        values: Values<T>,
    ) -> Result<Self> {
        let first = if symmetric { offsets.partition_point(|&offset| offset < 0) } else { 0 };
        let stored = offsets[first..].to_vec();
        let narrow = matches!(values, Values::Narrow(_));
        Ok(Self {
            nrows,
            ncols,
            offsets: Buffer::from_host(cuda.stream(), &stored, "a matrix's offsets")?,
            values,
            symmetric,
            few: FewOffsetsArg::of(symmetric, narrow, &stored),
            pattern: None,
            diagonals: offsets.len(),
            reach: reach(offsets),
            traffic: traffic::<T>(nrows, ncols, &stored, narrow),
            stored,
        })
    }

    /// Assembles what a matrix is converted to.
    fn converted(
        cuda: &Cuda,
        from: &CudaCsr<T>,
        offsets: &[i32],
        symmetric: bool,
        values: Values<T>,
        counts: Counts,
    ) -> Result<Converted<Self>> {
        let mut resident = Self::assembled(cuda, (from.nrows(), from.ncols()), offsets, symmetric, values)?;
        resident.pattern = from.pattern_mark();
        let (storage, spmv_bytes) = resident.traffic;
        Ok(Converted { resident, nnz: counts.nonzeros(), storage, spmv_bytes })
    }

    /// Makes a square matrix that equals its transpose from all offsets and the values at or above the main diagonal.
    /// Blocks.
    pub(crate) fn of_upper(cuda: &Cuda, n: usize, offsets: &[i32], values: Buffer<T>) -> Result<Self> {
        let values = cuda.narrow_values(n, values)?;
        Self::assembled(cuda, (n, n), offsets, true, values)
    }

    /// The offsets at or above the main diagonal, and where their values are, if only these are stored.
    pub(crate) fn upper(&self) -> Option<(&[i32], Address)> {
        self.symmetric.then(|| (&self.stored[..], self.values.pointer()))
    }

    /// Overwrites a vector that has an element per row with a stored diagonal. Leaves it alone if there is none with
    /// this offset. Stream-ordered; does not block.
    pub(crate) fn copy_diagonal(&self, cuda: &Cuda, offset: i32, to: &mut Vector<T>) -> Result<()> {
        let (Ok(k), n) = (self.stored.binary_search(&offset), self.nrows) else { return Ok(()) };
        match &self.values {
            Values::Whole(values) => to.buffer().copy_at(0, values, k * n..(k + 1) * n),
            Values::Narrow(values) => cuda.widen(values, k * n, to),
        }
    }

    /// The values, if they are kept in f32.
    pub(crate) fn in_f32(&self) -> Option<&Buffer<f32>> {
        match &self.values {
            Values::Whole(_) => None,
            Values::Narrow(values) => Some(values),
        }
    }

    /// Lets `fill` write new values in their own type, to zeroed memory or over the old values. Returns false if the
    /// values are kept in f32, which does not represent the new ones; they are then undefined. Blocks only if the
    /// values are kept in f32.
    pub(crate) fn refill(&mut self, cuda: &Cuda, fill: impl FnOnce(&Buffer<T>) -> Result<()>) -> Result<bool> {
        match &self.values {
            Values::Whole(values) => fill(values).map(|()| true),
            Values::Narrow(values) => {
                let wide = Buffer::zeros(cuda.stream(), values.len(), "a matrix's values")?;
                fill(&wide)?;
                cuda.narrow_into(&wide, values)
            }
        }
    }

    /// Overwrites the values with those of another matrix. Returns false, and changes nothing, if it has other
    /// diagonals or another form. Does not block.
    pub(crate) fn copy_from(&mut self, from: &Self) -> Result<bool> {
        let shape = |m: &Self| (m.nrows, m.ncols, m.symmetric);
        if shape(self) != shape(from) || self.stored != from.stored {
            return Ok(false);
        }
        let is_copied = self.values.copy_from(&from.values)?;
        if is_copied {
            self.pattern.clone_from(&from.pattern);
        }
        Ok(is_copied)
    }

    /// The offsets of all diagonals, ascending.
    pub(crate) fn all_offsets(&self) -> Vec<i32> {
        let below = self.stored.iter().rev().filter(|&&offset| self.symmetric && offset > 0);
        below.map(|offset| -offset).chain(self.stored.iter().copied()).collect()
    }

    pub(crate) fn nrows(&self) -> usize {
        self.nrows
    }

    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.traffic
    }

    /// The parameters of the matrix for products.
    fn parameters(&self) -> MatrixParameters {
        let (values, offsets) = (self.values.pointer(), self.offsets.pointer());
        MatrixParameters { values, offsets, diagonals: self.offsets.len() as u32 }
    }

    /// The parameters of the matrix for kernels that take either form.
    fn half_or_whole(&self) -> EitherParameters {
        EitherParameters { matrix: self.parameters(), symmetric: u32::from(self.symmetric) }
    }

    fn persistent(&self) -> Resident {
        Resident {
            n: self.nrows,
            below: self.reach.0,
            above: self.reach.1,
            fixed: (4 * self.diagonals).next_multiple_of(16),
            units: self.diagonals,
            unit: T::BYTES,
        }
    }
}

impl<T> CudaDia<T> {
    /// Returns true if only the upper half is stored.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Returns true if f64 values are stored in f32, which represents each of them exactly. Products have the same bits
    /// and read half the bytes.
    pub fn is_narrow(&self) -> bool {
        matches!(self.values, Values::Narrow(_))
    }

    /// The kernel for the stored type of the values.
    pub(crate) fn kernel<P>(&self, [whole, narrow]: [Entry<P>; 2]) -> Entry<P> {
        if self.is_narrow() { narrow } else { whole }
    }
}

/// Returns true if these ascending offsets are symmetric about the main diagonal.
fn mirrored(offsets: &[i32]) -> bool {
    offsets.iter().zip(offsets.iter().rev()).all(|(&a, &b)| i64::from(a) == -i64::from(b))
}

/// How far ascending offsets reach below and above the main diagonal.
fn reach(offsets: &[i32]) -> (usize, usize) {
    let farthest = |offset: Option<&i32>, below: bool| {
        offset.map_or(0, |&offset| if (offset < 0) == below { offset.unsigned_abs() as usize } else { 0 })
    };
    (farthest(offsets.first(), true), farthest(offsets.last(), false))
}

/// The place of the first diagonal at or above the main one, if the matrix equals its transpose bit for bit. Products
/// then have the same bits from either half.
fn upper_half<T: Real>(m: &Dia<T>) -> Option<usize> {
    let (n, offsets, values) = (m.nrows(), m.offsets(), m.values());
    if n != m.ncols() || !mirrored(offsets) {
        return None;
    }
    let first = offsets.partition_point(|&offset| offset < 0);
    let equal = (0..first).into_par_iter().all(|k| {
        let d = offsets[k].unsigned_abs() as usize;
        let lower = &values[k * n + d..(k + 1) * n];
        let mirror = offsets.len() - 1 - k;
        let upper = &values[mirror * n..(mirror + 1) * n - d];
        lower == upper
    });
    equal.then_some(first)
}

impl<T: Real> CudaDia<T> {
    /// y <- a A x + b z.
    fn update(&self, cuda: &Cuda, update: Update<T>) -> Result<()> {
        let (matrix, grid) = (self.parameters(), Grid::of(self.nrows.div_ceil(BLOCK), 512));
        let (nrows, ncols) = (self.nrows as u64, self.ncols as u64);
        // SAFETY: the arrays of the matrix; the lengths of the vectors were compared.
        unsafe {
            if self.symmetric {
                let entry = self.kernel([SpmvSymmetricDia::WHOLE, SpmvSymmetricDia::NARROW]);
                cuda.launch::<T, _>(entry, grid, &SpmvSymmetricDia { matrix, nrows, update })
            } else {
                let entry = self.kernel([SpmvDia::WHOLE, SpmvDia::NARROW]);
                cuda.launch::<T, _>(entry, grid, &SpmvDia { matrix, nrows, ncols, update })
            }
        }
    }
}

// SAFETY: the memory that its operations use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Dia<T>> for Cuda {
    type Resident = CudaDia<T>;

    fn load(&self, host: Arc<Dia<T>>) -> Result<CudaDia<T>> {
        let (nrows, ncols) = (host.nrows(), host.ncols());
        let half = upper_half(&host);
        let values = self.load_values(nrows, &host.values()[half.unwrap_or(0) * nrows..])?;
        CudaDia::assembled(self, (nrows, ncols), host.offsets(), half.is_some(), values)
    }

    fn traffic(&self, resident: &CudaDia<T>) -> Option<(u64, u64)> {
        Some(resident.traffic)
    }

    fn is_narrow(&self, resident: &CudaDia<T>) -> bool {
        resident.is_narrow()
    }
}

impl<T: Real> Convert<Csr<T>, Dia<T>> for Cuda {
    /// Marks the occupied diagonals, which the host reads as one bit each, and spreads the entries. If the diagonals
    /// are mirrored, only those at or above the main one are filled at first, and the others are compared with them. So
    /// a symmetric matrix never takes more memory than it keeps.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaDia<T>>> {
        let (nrows, ncols) = (from.nrows(), from.ncols());
        let offsets = self.occupied(from)?;
        Dia::<T>::check_storage(nrows, offsets.len(), from.nnz())?;
        let fill = |first: usize, compare: bool| {
            let diagonals = Diagonals { offsets: &offsets, first, stride: nrows };
            let values = Buffer::zeros(self.stream(), nrows * (offsets.len() - first), "a matrix's values")?;
            let counts = self.fill_diagonals(from, diagonals, &values, compare)?;
            Ok::<_, spandrel_backend::Error>((values, counts))
        };
        let upper = offsets.partition_point(|&offset| offset < 0);
        let half = if nrows == ncols && mirrored(&offsets) {
            Some(fill(upper, true)?).filter(|(_, counts)| counts.symmetric())
        } else {
            None
        };
        let symmetric = half.is_some();
        let (values, counts) = match half {
            Some(half) => half,
            None => fill(0, false)?,
        };
        let values = self.narrow_values(nrows, values)?;
        CudaDia::converted(self, from, &offsets, symmetric, values, counts)
    }

    /// If the pattern is the one that `like` was converted from and both halves are alike, refills only the stored
    /// half, in the form that `like` has, and then compares the other half with it. Waits once. Otherwise converts.
    fn convert_like(&self, from: &CudaCsr<T>, like: &CudaDia<T>) -> Result<Converted<CudaDia<T>>> {
        not_recorded(self, "a conversion")?;
        let is_of_size = (from.nrows(), from.ncols()) == (like.nrows, like.ncols);
        let is_known = is_of_size && like.symmetric && like.pattern.as_ref().is_some_and(|mark| from.has_pattern(mark));
        if is_known && like.stored.len() <= MOST_REFILLED {
            let values = like.values.room(self)?;
            let diagonals = (like.offsets.pointer(), like.stored.len(), like.diagonals);
            let counts = self.refill_diagonals(from, diagonals, &values)?;
            let fits_f32 = counts.is_in_f32();
            let is_same_form = if like.is_narrow() { fits_f32 } else { !(fits_f32 && self.narrows::<T>(like.nrows)) };
            if is_same_form && counts.symmetric() {
                return CudaDia::converted(self, from, &like.all_offsets(), true, values, counts);
            }
        }
        Convert::<Csr<T>, Dia<T>>::convert(self, from)
    }
}

impl<T: Real> Spmv<Dia<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaDia<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.update(self, Product::new((m.nrows, m.ncols), gate, a, x, b, y)?.into())
    }

    fn residual(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaDia<T>,
        b: &Vector<T>,
        x: &Vector<T>,
        r: &mut Vector<T>,
    ) -> Result<()> {
        m.update(self, Update::residual((m.nrows, m.ncols), gate, b, x, r)?)
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaDia<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let (matrix, grid) = (m.parameters(), Grid::of(m.nrows.div_ceil(BLOCK), 512));
        let (nrows, ncols) = (m.nrows as u64, m.ncols as u64);
        let way = Way::of(m.nrows, m.reach.1, self.multiprocessors());
        if let (Some(offsets), Some(Way { stride, depth, thread_blocks })) = (m.few, way) {
            let MatrixParameters { values, diagonals, .. } = matrix;
            let (stride, depth) = (stride as u32, depth as u32);
            let parameters = SpmvDotFewDia { values, offsets, diagonals, nrows, stride, depth, product };
            let entry = m.kernel([SpmvDotFewDia::WHOLE, SpmvDotFewDia::NARROW]);
            // SAFETY: the matrix, every block of 1024 rows in one thread block; the lengths of x, y and w were
            // compared.
            unsafe { self.launch::<T, _>(entry, Grid::of(thread_blocks, 256), &parameters)? };
            return self.complete_dots(gate, m.nrows, wy, yy);
        }
        // SAFETY: the arrays of the matrix; the lengths of x, y and w were compared.
        unsafe {
            if m.symmetric {
                let entry = m.kernel([SpmvDotSymmetricDia::WHOLE, SpmvDotSymmetricDia::NARROW]);
                self.launch::<T, _>(entry, grid, &SpmvDotSymmetricDia { matrix, nrows, product })?;
            } else {
                let entry = m.kernel([SpmvDotDia::WHOLE, SpmvDotDia::NARROW]);
                self.launch::<T, _>(entry, grid, &SpmvDotDia { matrix, nrows, ncols, product })?;
            }
        }
        self.complete_dots(gate, m.nrows, wy, yy)
    }
}

impl<T: Real> Persists<T> for CudaDia<T> {
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if self.nrows != self.ncols || self.is_narrow() {
            return Ok(false);
        }
        let matrix = self.half_or_whole();
        let all = |solve| CgDia { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&self.persistent(), CgDia::ENTRY, all, count, on, monitor) }
    }

    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if self.nrows != self.ncols || self.is_narrow() {
            return Ok(false);
        }
        let matrix = self.half_or_whole();
        let all = |solve| BicgstabDia { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.bicgstab_persistent(&self.persistent(), BicgstabDia::ENTRY, all, count, on, monitor) }
    }
}

impl<T: Real> Spmm<Dia<T>> for Cuda {
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaDia<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::of_columns((m.nrows, m.ncols), k, gate, a, x, b, y)?;
        let [nrows, ncols, k] = [m.nrows, m.ncols, k].map(|n| n as u64);
        let parameters = SpmmDia { matrix: m.half_or_whole(), nrows, ncols, k, product };
        let entry = m.kernel([SpmmDia::WHOLE, SpmmDia::NARROW]);
        // SAFETY: the arrays of the matrix; the lengths of x and y, of k columns, were compared.
        unsafe { self.launch::<T, _>(entry, Grid::of(m.nrows.div_ceil(256), 256), &parameters) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_rows_is_gone_through_once() {
        for nrows in [540_672, 540_673, 729_000, 2_097_152, 16_777_216, 16_777_217 + 4096] {
            for reach in [0, 1, 511, 512, 900, 8100, 16_384, 65_536, nrows / 3, nrows - 1] {
                let way = Way::of(nrows, reach, 132).expect("enough rows");
                let blocks = nrows.div_ceil(BLOCK);
                let mut seen = vec![0; blocks];
                for thread_block in 0..way.thread_blocks {
                    let first = thread_block / way.stride * way.stride * way.depth + thread_block % way.stride;
                    let of_thread_block = (0..way.depth).map(|step| first + step * way.stride);
                    of_thread_block.take_while(|&block| block < blocks).for_each(|block| seen[block] += 1);
                }
                assert!(seen.iter().all(|&times| times == 1), "{nrows} rows, reach {reach}: {way:?}");
            }
        }
        assert_eq!(Way::of(540_672 - 1024, 1, 132), None);
        assert_eq!(Way::of(0, 0, 132), None);
        let cube = |n: usize| Way::of(n * n * n, n * n, 132).map(|way| (way.stride, way.depth));
        assert_eq!([64, 128, 256].map(cube), [None, Some((16, 3)), Some((64, 16))]);
    }

    #[test]
    fn half_the_diagonals_and_half_the_bytes_are_less_traffic() {
        let (n, offsets) = (512, [-64, -8, -1, 0, 1, 8, 64]);
        let vectors = 2 * 8 * 512;
        let all = Dia::<f64>::traffic_of(n, n, &offsets);
        assert_eq!(traffic::<f64>(n, n, &offsets, false), all);
        let values = |narrow, offsets: &[i32]| {
            let (storage, product) = traffic::<f64>(n, n, offsets, narrow);
            (storage - 4 * offsets.len() as u64, product - vectors - 4 * offsets.len() as u64)
        };
        let (both, upper, narrow) =
            (values(false, &offsets), values(false, &offsets[3..]), values(true, &offsets[3..]));
        assert_eq!(both.1 + 8 * 512, 2 * upper.1);
        assert_eq!((upper.0, upper.1), (2 * narrow.0, 2 * narrow.1));
        let wide = values(true, &offsets);
        assert_eq!((2 * wide.0, 2 * wide.1), both);
    }

    #[test]
    fn few_diagonals_go_by_value() {
        assert!(FewOffsetsArg::of(true, false, &[0, 1, 8, 64]).is_some_and(|few| few.0[..4] == [0, 1, 8, 64]));
        assert!(FewOffsetsArg::of(false, true, &[0, 1]).is_none() && FewOffsetsArg::of(true, true, &[]).is_none());
        let more: Vec<i32> = (0..=FEW as i32).collect();
        assert!(
            FewOffsetsArg::of(true, false, &more[..5]).is_none() && FewOffsetsArg::of(true, true, &more[..5]).is_some()
        );
        assert!(
            FewOffsetsArg::of(true, true, &more[..FEW]).is_some() && FewOffsetsArg::of(true, true, &more).is_none()
        );
    }
}
