//! Seeded random matrices: `banded`, `random`, `powerlaw`, `randspd`.
//!
//! Row i of the first three draws from ChaCha8 at a position that depends only on the seed and i. So rows can be
//! written in parallel, and the matrix never depends on the number of threads. Off-diagonal values are uniform
//! between -1 and 1 and never zero; the diagonal is 1 plus the sum of their absolute values.
//! Reference of `randspd`: MATLAB's sprandsym(n, density, rc, kind = 1).

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::fill::{Rows, by_rows, try_by_rows};
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Error, Real, Result};

/// The generator of `seed`, at the beginning of `stream`.
pub(super) fn chacha(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Uniform in (-1, 1), never 0: a multiple of 2^-32.
pub(super) fn signed(rng: &mut ChaCha8Rng) -> f64 {
    signed_of(rng.next_u32())
}

fn signed_of(word: u32) -> f64 {
    (2.0 * f64::from(word) + 1.0) / 4_294_967_296.0 - 1.0
}

/// Uniform in [0, 1): a multiple of 2^-53.
pub(super) fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Uniform in 0..n (a bias of n / 2^64).
pub(super) fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

/// A random permutation of 0..n (Fisher & Yates, as Durstenfeld 1964).
pub(super) fn shuffled(rng: &mut ChaCha8Rng, n: usize) -> Result<Vec<Ordinal>> {
    let mut order: Vec<Ordinal> = zeroed(n, "a random order")?;
    order.iter_mut().zip(0..).for_each(|(place, k)| *place = k);
    for last in (1..n).rev() {
        order.swap(last, below(rng, last + 1));
    }
    Ok(order)
}

/// Number of entries in the rows of a band before `row`.
pub(super) fn banded_start(n: usize, diagonals: usize, row: usize) -> u64 {
    let reach = diagonals as u64 / 2;
    // The sum of min(i, reach) over i < count: the entries left of the diagonal in the first `count` rows.
    let left = |count: usize| {
        let count = count as u64;
        let rising = count.min(reach + 1);
        rising * rising.saturating_sub(1) / 2 + (count - rising) * reach
    };
    row as u64 + left(row) + left(n) - left(n - row)
}

/// Makes rows of a symmetric band of `diagonals` (odd) diagonals, positive definite by dominance. a_ij = a_ji is
/// uniform and the diagonal is 1 + sum |a_ij|, so the smallest eigenvalue is at least 1. Each thread keeps (d / 2)^2
/// more values.
pub(super) fn banded<T: Real>(n: usize, diagonals: usize, seed: u64, wanted: Range<usize>) -> Result<Csr<T>> {
    checked(n, "rows")?;
    let reach = diagonals / 2;
    let row_start = |row: usize| banded_start(n, diagonals, row);
    let fill = |range: Range<usize>, out: &mut Rows<'_, T>| {
        // The upper values of the last `reach` rows; those of row j are at (j % reach) * reach.
        let mut recent: Vec<T> = zeroed(reach * reach, "the band above a row")?;
        let first = range.start.saturating_sub(reach);
        let mut rng = chacha(seed, 0);
        rng.set_word_pos((first * reach) as u128);
        let mut upper = vec![T::zero(); reach];
        for i in first..range.end {
            upper.iter_mut().for_each(|value| *value = T::from_f64(signed(&mut rng)));
            if i >= range.start {
                let (begin, end) = (i.saturating_sub(reach), (i + reach).min(n - 1));
                let lower = |j: usize| recent[(j % reach) * reach + (i - j - 1)];
                let sum: f64 = (begin..i).map(|j| lower(j).as_f64().abs()).sum::<f64>()
                    + upper[..end - i].iter().map(|v| v.as_f64().abs()).sum::<f64>();
                (begin..i).for_each(|j| out.push(j, lower(j)));
                out.push(i, T::from_f64(1.0 + sum));
                upper[..end - i].iter().enumerate().for_each(|(k, &value)| out.push(i + 1 + k, value));
                out.end_row();
            }
            if reach > 0 {
                recent[(i % reach) * reach..][..reach].copy_from_slice(&upper);
            }
        }
        Ok(())
    };
    try_by_rows(wanted, n, row_start, fill)
}

/// The number of off-diagonal entries per row of [`scattered`].
#[derive(Clone, Copy)]
pub(super) enum Lengths {
    /// The same in every row.
    Equal(usize),
    /// K with P(K >= k) = k^(1 - alpha), for k = 1, 2, ..., limited to n - 1.
    PowerLaw(f64),
}

impl Lengths {
    fn draw(self, rng: &mut ChaCha8Rng, n: usize) -> usize {
        match self {
            Self::Equal(count) => count,
            Self::PowerLaw(alpha) => {
                let length = (1.0 - unit(rng)).powf(-1.0 / (alpha - 1.0));
                // The cast saturates, and the limit follows.
                (length as usize).clamp(1, n).min(n - 1)
            }
        }
    }
}

/// Makes rows whose columns are uniform without repetition. Nonsymmetric, with a diagonal that is strictly dominant in
/// its row.
pub(super) fn scattered<T: Real>(n: usize, lengths: Lengths, seed: u64, wanted: Range<usize>) -> Result<Csr<T>> {
    checked(n, "rows")?;
    let starts: Vec<Offset> = match lengths {
        Lengths::Equal(_) => Vec::new(),
        Lengths::PowerLaw(_) => {
            // Each row has at least a diagonal entry and another one. Check this before anything grows with n.
            checked(if n > 1 { n.saturating_mul(2) } else { n }, "entries")?;
            let mut starts: Vec<Offset> = zeroed(n + 1, "row starts")?;
            let mut rng = chacha(seed, 0);
            let mut total = 0usize;
            for row in 0..n {
                row_of(&mut rng, row);
                total += 1 + lengths.draw(&mut rng, n);
                starts[row + 1] = checked(total, "entries")?;
            }
            starts
        }
    };
    let row_start = |row: usize| match lengths {
        Lengths::Equal(count) => row as u64 * (count as u64 + 1),
        Lengths::PowerLaw(_) => u64::from(starts[row]),
    };
    try_by_rows(wanted, n, row_start, |range, out| {
        let mut rng = chacha(seed, 0);
        let mut taken: Vec<u64> = zeroed(n.div_ceil(64), "a bit per column")?;
        let mut cols: Vec<Ordinal> = Vec::new();
        let mut values: Vec<T> = Vec::new();
        for i in range {
            row_of(&mut rng, i);
            let count = lengths.draw(&mut rng, n);
            choose_columns(&mut rng, n, i, count, &mut taken, &mut cols);
            values.clear();
            values.extend(cols.iter().map(|_| T::from_f64(signed(&mut rng))));
            let diagonal = T::from_f64(1.0 + values.iter().map(|v| v.as_f64().abs()).sum::<f64>());
            let split = cols.partition_point(|&j| (j as usize) < i);
            let push = |out: &mut Rows<'_, T>, k: usize| out.push(cols[k] as usize, values[k]);
            (0..split).for_each(|k| push(out, k));
            out.push(i, diagonal);
            (split..cols.len()).for_each(|k| push(out, k));
            out.end_row();
        }
        Ok(())
    })
}

fn row_of(rng: &mut ChaCha8Rng, row: usize) {
    rng.set_stream(row as u64 + 1);
    rng.set_word_pos(0);
}

/// Draws `count` columns other than `i`, ascending (Floyd's sampling: Bentley & Floyd 1987). `taken` is one bit per
/// column, all zero before and after.
fn choose_columns(rng: &mut ChaCha8Rng, n: usize, i: usize, count: usize, taken: &mut [u64], cols: &mut Vec<Ordinal>) {
    cols.clear();
    for last in n - 1 - count..n - 1 {
        let candidate = below(rng, last + 1);
        let pick = if taken[candidate / 64] >> (candidate % 64) & 1 == 1 { last } else { candidate };
        taken[pick / 64] |= 1 << (pick % 64);
        cols.push(pick as Ordinal);
    }
    cols.iter().for_each(|&j| taken[j as usize / 64] = 0);
    cols.iter_mut().for_each(|j| *j += Ordinal::from(*j as usize >= i));
    cols.sort_unstable();
}

/// Bytes that a row takes before the first rotation: its vector, an allocation of one entry, its place in the order,
/// its start, and its share of the matrix.
const ROW_BYTES: usize = 24 + 32 + 4 + 8 + 16;

/// Makes a diagonal matrix with eigenvalues spaced geometrically from 1 down to 1 / `cond`. Then it applies random
/// Jacobi rotations until at least `density` n^2 entries are stored (never fewer than the diagonal). The eigenvalues
/// stay, up to rounding.
pub(super) fn spd<T: Real>(n: usize, density: f64, cond: f64, seed: u64) -> Result<Csr<T>> {
    let goal = (density * (n as f64) * (n as f64)).ceil() as usize;
    checked(n, "rows")?;
    checked(goal, "entries")?;
    let mut rng = chacha(seed, 0);
    let last = n.saturating_sub(1).max(1) as f64;
    let eigenvalue = |k: Ordinal| cond.powf(-f64::from(k) / last);
    // Each row grows separately. So ask for room for all of them in one piece, before the first is made.
    let bytes = n.saturating_mul(ROW_BYTES);
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| Error::OutOfMemory { what: "rows that grow", bytes: bytes as u64 })?;
    let order = shuffled(&mut rng, n)?;
    // Rows of (column, value), with both triangles and ascending columns.
    let mut rows: Vec<Vec<(Ordinal, f64)>> =
        order.iter().enumerate().map(|(i, &k)| vec![(i as Ordinal, eigenvalue(k))]).collect();
    let mut nnz = n;
    while nnz < goal {
        let i = below(&mut rng, n);
        let j = (i + 1 + below(&mut rng, n - 1)) % n;
        let (sin, cos) = (std::f64::consts::TAU * unit(&mut rng)).sin_cos();
        nnz += rotate(&mut rows, i, j, cos, sin);
    }
    checked(nnz, "entries")?;
    let mut starts: Vec<u64> = zeroed(n + 1, "row starts")?;
    for (i, row) in rows.iter().enumerate() {
        starts[i + 1] = starts[i] + row.len() as u64;
    }
    by_rows(
        0..n,
        n,
        |row| starts[row],
        |range, out| {
            for row in &rows[range] {
                row.iter().for_each(|&(j, value)| out.push(j as usize, T::from_f64(value)));
                out.end_row();
            }
        },
    )
}

/// A <- G A G^T with the rotation G of coordinates i and j; returns the number of new entries. Both triangles get the
/// same values, so the matrix stays exactly symmetric.
fn rotate(rows: &mut [Vec<(Ordinal, f64)>], i: usize, j: usize, cos: f64, sin: f64) -> usize {
    let (row_i, row_j) = (std::mem::take(&mut rows[i]), std::mem::take(&mut rows[j]));
    let before = row_i.len() + row_j.len();
    let mut merged: Vec<(Ordinal, f64, f64)> = Vec::with_capacity(before);
    let (mut at_i, mut at_j) = (row_i.iter().peekable(), row_j.iter().peekable());
    while let Some(col) = [at_i.peek().map(|e| e.0), at_j.peek().map(|e| e.0)].into_iter().flatten().min() {
        let a = at_i.next_if(|e| e.0 == col).map_or(0.0, |e| e.1);
        let b = at_j.next_if(|e| e.0 == col).map_or(0.0, |e| e.1);
        merged.push((col, a, b));
    }
    let (mut new_i, mut new_j) = (Vec::with_capacity(merged.len() + 1), Vec::with_capacity(merged.len() + 1));
    let mut pair = (0.0, 0.0, 0.0);
    let mut added = 0;
    for (col, a, b) in merged {
        if col as usize == i {
            (pair.0, pair.1) = (a, b);
            continue;
        }
        if col as usize == j {
            pair.2 = b;
            continue;
        }
        let (a, b) = (cos * a - sin * b, sin * a + cos * b);
        new_i.push((col, a));
        new_j.push((col, b));
        for (other, value) in [(i, a), (j, b)] {
            let row = &mut rows[col as usize];
            match row.binary_search_by_key(&(other as Ordinal), |e| e.0) {
                Ok(k) => row[k].1 = value,
                Err(k) => {
                    row.insert(k, (other as Ordinal, value));
                    added += 1;
                }
            }
        }
    }
    let (ii, ij, jj) = pair;
    let mixed = cos * sin * (ii - jj) + (cos * cos - sin * sin) * ij;
    let place = |row: &mut Vec<(Ordinal, f64)>, col: usize, value: f64| {
        row.insert(row.partition_point(|e| (e.0 as usize) < col), (col as Ordinal, value));
    };
    place(&mut new_i, i, cos * cos * ii - 2.0 * cos * sin * ij + sin * sin * jj);
    place(&mut new_i, j, mixed);
    place(&mut new_j, i, mixed);
    place(&mut new_j, j, sin * sin * ii + 2.0 * cos * sin * ij + cos * cos * jj);
    added += new_i.len() + new_j.len() - before;
    rows[i] = new_i;
    rows[j] = new_j;
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eigenvalues of a symmetric matrix by cyclic Jacobi rotations (Golub & Van Loan 2013, section 8.5), ascending.
    fn eigenvalues(a: &Csr<f64>) -> Vec<f64> {
        let n = a.nrows();
        let mut m: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| a.get(i, j).unwrap_or(0.0)).collect()).collect();
        for _sweep in 0..30 {
            for p in 0..n {
                for q in p + 1..n {
                    if m[p][q] == 0.0 {
                        continue;
                    }
                    let tau = (m[q][q] - m[p][p]) / (2.0 * m[p][q]);
                    let t = tau.signum() / (tau.abs() + (1.0 + tau * tau).sqrt());
                    let cos = 1.0 / (1.0 + t * t).sqrt();
                    let sin = t * cos;
                    for row in &mut m {
                        (row[p], row[q]) = (cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]);
                    }
                    let (above, below) = m.split_at_mut(q);
                    for (u, v) in above[p].iter_mut().zip(&mut below[0]) {
                        (*u, *v) = (cos * *u - sin * *v, sin * *u + cos * *v);
                    }
                }
            }
        }
        let mut found: Vec<f64> = (0..n).map(|i| m[i][i]).collect();
        found.sort_by(f64::total_cmp);
        found
    }

    #[test]
    fn the_condition_number_is_the_one_asked_for() {
        for (n, density, cond) in
            [(1, 1.0, 1e4), (2, 1.0, 10.0), (40, 0.1, 1e4), (40, 1.0, 1e4), (60, 0.3, 1e8), (50, 0.0, 100.0)]
        {
            let a = spd::<f64>(n, density, cond, 7).unwrap();
            assert_eq!(a, a.transpose(), "symmetric to the bit");
            assert!(a.nnz() as f64 >= density * (n * n) as f64 && a.nnz() <= n * n);
            let found = eigenvalues(&a);
            for (k, &value) in found.iter().rev().enumerate() {
                let want = cond.powf(-(k as f64) / (n.max(2) - 1) as f64);
                assert!((value - want).abs() < 1e-13 * n as f64, "eigenvalue {k} of {n}: {value}, not {want}");
            }
        }
    }

    #[test]
    fn rows_do_not_depend_on_where_threads_begin() {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let made = pool.install(|| {
                (
                    banded::<f64>(3000, 9, 5, 0..3000).unwrap(),
                    scattered::<f64>(3000, Lengths::PowerLaw(2.1), 5, 0..3000).unwrap(),
                    scattered::<f64>(3000, Lengths::Equal(4), 5, 0..3000).unwrap(),
                )
            });
            let alone = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            assert_eq!(made.0, alone.install(|| banded::<f64>(3000, 9, 5, 0..3000).unwrap()));
            assert_eq!(made.1, alone.install(|| scattered::<f64>(3000, Lengths::PowerLaw(2.1), 5, 0..3000).unwrap()));
            assert_eq!(made.2, alone.install(|| scattered::<f64>(3000, Lengths::Equal(4), 5, 0..3000).unwrap()));
        }
    }
}
