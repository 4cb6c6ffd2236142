//! The dot product's tree: blocks of 1024 elements, 32 lanes in a block, a halving tree over the lanes; the block results
//! are summed by the same rule until one is left.
//!
//! Order: [`spandrel_backend::Order::Tree`], fixed by the length alone. A task owns whole blocks and writes their results
//! into scratch, so neither the number of tasks nor their timing enters. Cost: the operands once; the block results are
//! 1/1024 of them.

use spandrel_backend::Result;
use spandrel_formats::Real;

use crate::Cpu;
use crate::simd::{fma, simd_fn};
use crate::threads::Shared;

/// Elements of a block.
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

/// One block's x . y.
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
    /// Results of the blocks of x . y, `x.len().div_ceil(BLOCK)` of them.
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

/// The root of the tree over the block results; overwrites them.
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

/// Runs `work(rows, partials)` over ranges of whole blocks, with room for the results of their blocks of `N` dot products,
/// and returns the roots.
///
/// # Errors
/// [`spandrel_backend::Error::OutOfMemory`] for the block results.
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
            // SAFETY: `split` hands out disjoint ranges of whole blocks; each of the N segments holds `blocks` elements.
            let partials = std::array::from_fn(|i| unsafe { shared.part(i * blocks + first..i * blocks + last) });
            work(rows, partials);
        });
        std::array::from_fn(|i| combine(&mut scratch[i * blocks..(i + 1) * blocks]))
    })
}

/// x . y of vectors of the same length.
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
