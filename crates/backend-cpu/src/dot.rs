//! The tree of the dot product: blocks of 1024 elements, 32 lanes per block, a halving tree over the lanes. The block
//! results are summed by the same rule until one is left.
//!
//! Order: [`spandrel_backend::Order::Tree`], which depends only on the length. A task owns whole blocks and writes
//! their results into scratch, so neither the number of tasks nor their timing matters.
//! Cost: the operands once, and the block results, which are 1/1024 of them.

use spandrel_backend::Result;
use spandrel_formats::Real;

use crate::Cpu;
use crate::device::Sums;
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;

/// Number of elements per block.
pub(crate) const BLOCK: usize = 1024;
const LANES: usize = 32;

#[inline(always)]
fn halve<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// x . y of one block.
#[inline(always)]
pub(crate) fn block_dot<T: Real>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ys, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            lanes[l] = fma(x[l], y[l], lanes[l]);
        }
    }
    for (lane, (&x, &y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane = fma(x, y, *lane);
    }
    halve(lanes)
}

simd_fn! {
    /// The block results of x . y, `x.len().div_ceil(BLOCK)` of them.
    pub(crate) fn dot_blocks<T>(x: &[T], y: &[T], out: &mut [T]) {
        for ((x, y), out) in x.chunks(BLOCK).zip(y.chunks(BLOCK)).zip(out) {
            *out = block_dot(x, y);
        }
    }
}

fn block_sum<T: Real>(x: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    for chunk in x.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    halve(lanes)
}

/// Sums the block results by the tree, overwriting them, and returns the root.
pub(crate) fn combine<T: Real>(partials: &mut [T]) -> T {
    let mut len = partials.len();
    while len > 1 {
        let blocks = len.div_ceil(BLOCK);
        for block in 0..blocks {
            partials[block] = block_sum(&partials[block * BLOCK..len.min((block + 1) * BLOCK)]);
        }
        len = blocks;
    }
    partials.first().copied().unwrap_or_else(T::zero)
}

/// Sums each of the lists of block results that follow one another in `partials`: by the tree of this device's
/// elements, or by that of the whole vectors if these are parts of longer ones.
///
/// # Errors
/// Those of [`spandrel_backend::Roots`] and [`crate::peers::complete`].
pub(crate) fn complete<T: Real, const N: usize>(cpu: &Cpu, partials: &mut [T]) -> Result<[T; N]> {
    let mut sums = [T::zero(); N];
    match cpu.sums() {
        None => {
            let blocks = partials.len() / N;
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = combine(&mut partials[i * blocks..(i + 1) * blocks]);
            }
        }
        Some(Sums::Peers(peers)) => sums = crate::peers::complete(cpu, peers, partials)?,
        Some(Sums::Roots(roots)) if T::BYTES == size_of::<f32>() => {
            roots.roots_f32(bytemuck::cast_slice_mut(partials), bytemuck::cast_slice_mut(&mut sums))?;
        }
        Some(Sums::Roots(roots)) => {
            roots.roots_f64(bytemuck::cast_slice_mut(partials), bytemuck::cast_slice_mut(&mut sums))?;
        }
    }
    Ok(sums)
}

/// Runs `work(rows, partials)` over ranges of whole blocks and returns the sums of `N` dot products. `partials` has
/// room for the block results of the range.
///
/// # Errors
/// [`spandrel_backend::Error::OutOfMemory`] for the block results; as [`complete`].
pub(crate) fn reduce<T: Real, const N: usize>(
    cpu: &Cpu,
    n: usize,
    bytes: usize,
    work: impl Fn(std::ops::Range<usize>, [&mut [T]; N]) + Sync,
) -> Result<[T; N]> {
    let blocks = n.div_ceil(BLOCK);
    cpu.scratch().with(N * blocks, |scratch| {
        let shared = Shared::new(scratch);
        cpu.split(n, bytes, BLOCK, |rows| {
            let (first, last) = (rows.start / BLOCK, rows.end.div_ceil(BLOCK));
            // SAFETY: `split` hands out disjoint ranges of whole blocks; each of the N segments holds `blocks`
            // elements.
            let partials = std::array::from_fn(|i| unsafe { shared.part(i * blocks + first..i * blocks + last) });
            work(rows, partials);
        });
        complete(cpu, scratch)
    })?
}

/// x . y of two vectors of the same length.
///
/// # Errors
/// As [`reduce`].
pub(crate) fn dot<T: Real>(cpu: &Cpu, x: &[T], y: &[T]) -> Result<T> {
    let simd = cpu.simd();
    let [sum] = reduce(cpu, x.len(), 2 * T::BYTES, |rows, [partials]| {
        dot_blocks(simd, &x[rows.clone()], &y[rows], partials);
    })?;
    Ok(sum)
}
