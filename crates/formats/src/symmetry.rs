//! Symmetry: compares entries with their mirror images.
//!
//! Cost: each entry above the diagonal looks up its mirror image, with rows in parallel, until the first that differs.
//! There is no transpose, and no other memory but for a group of rows. If rows repeat each other, the mirror images are
//! at the same positions as for the row before; otherwise they are searched for (a scan of short rows, a binary search
//! in long ones), those of several rows at once, because they may be scattered in memory. Entries below the diagonal
//! are only counted: if there are as many as mirror images found, each of them was one.

use std::cmp::Ordering;
use std::ops::Range;

use rayon::prelude::*;

use crate::prefetch::prefetch;
use crate::{Csr, Real};

/// Rows per parallel task.
const CHUNK: usize = 1024;
/// Rows of at most this many entries are scanned instead of searched.
const SHORT: usize = 16;

impl<T: Real> Csr<T> {
    /// Returns true if A = A^T exactly. Values are compared as numbers (0 = -0, NaN differs from itself), and an absent
    /// entry counts as zero. False if the matrix is not square.
    pub fn is_symmetric(&self) -> bool {
        let Some(mirrors) = Mirrors::of(self) else { return false };
        let chunks = (0..self.nrows().div_ceil(CHUNK)).into_par_iter();
        let rows = |chunk: usize| chunk * CHUNK..self.nrows().min((chunk + 1) * CHUNK);
        match chunks.map(|chunk| mirrors.unmatched(rows(chunk))).try_reduce(|| 0, |a, b| Some(a + b)) {
            Some(0) => true,
            Some(_) => mirrored_or_zero(self),
            None => false,
        }
    }

    /// Returns true if A = A^T up to the rounding of its assembly. |a_ij - a_ji| must be at most 16 unit roundoffs of
    /// the larger of the two, or of sqrt(a_ii a_jj), which bounds them if A is positive definite.
    ///
    /// An absent entry counts as zero; NaN is never symmetric. One search in a row per entry, with rows in parallel.
    pub fn is_symmetric_to_rounding(&self) -> bool {
        if self.nrows() != self.ncols() {
            return false;
        }
        let diagonal: Vec<f64> = rows(self).map(|i| self.get(i, i).map_or(0.0, |d| d.as_f64().abs().sqrt())).collect();
        rows(self).all(|i| {
            let (cols, values) = self.row(i);
            cols.iter().zip(values).all(|(&j, v)| {
                let j = j as usize;
                let (v, mirror) = (v.as_f64(), self.get(j, i).map_or(0.0, |mirror| mirror.as_f64()));
                is_mirror_to_rounding::<T>(v, mirror, diagonal[i] * diagonal[j])
            })
        })
    }

    /// Returns true if every row has a diagonal entry for which `holds` is true. One search per row, with rows in
    /// parallel.
    pub fn diagonal_holds(&self, holds: impl Fn(T) -> bool + Sync) -> bool {
        rows(self).all(|i| self.get(i, i).is_some_and(&holds))
    }
}

/// Whether two entries that mirror each other differ by rounding only. `scale` is the geometric mean of the magnitudes
/// of their rows' diagonal entries. See [`Csr::is_symmetric_to_rounding`].
pub fn is_mirror_to_rounding<T: Real>(v: f64, mirror: f64, scale: f64) -> bool {
    let size = v.abs().max(mirror.abs()).max(scale);
    (v - mirror).abs() <= 16.0 * T::UNIT_ROUNDOFF * size
}

/// Compares entries above the diagonal with their mirror images.
pub(crate) struct Mirrors<'a, T>(&'a Csr<T>);

/// Number of remembered positions of mirror images, indexed by the entry's position in its row.
const REMEMBERED: usize = 64;
/// Rows that are compared together, and the most entries in them.
const GROUP: usize = 64;
const TOGETHER: usize = 1 << 13;

impl<'a, T: Real> Mirrors<'a, T> {
    /// `None` if the matrix is not square.
    pub(crate) fn of(csr: &'a Csr<T>) -> Option<Self> {
        (csr.nrows() == csr.ncols()).then_some(Self(csr))
    }

    /// Counts the entries below the diagonal, less those above it that have a mirror image.
    ///
    /// [`None`] if an entry on or above the diagonal, or any entry of the first of these rows, differs from its mirror
    /// image (an absent one counts as zero). In a symmetric matrix the sum over all rows is 0, unless the entries left
    /// over are zeros.
    pub(crate) fn unmatched(&self, rows: Range<usize>) -> Option<i64> {
        let csr = self.0;
        let row_ptr = csr.row_ptr();
        // This recognises triangles without a look at the rest.
        let first = unmatched(csr, rows.start, |_, v, mirror| v == mirror.unwrap_or_else(T::zero));
        if first.is_some() {
            return None;
        }
        let (mut unmatched, mut order, mut sought) = (0, Order { below: 0, remembered: [0; REMEMBERED] }, Vec::new());
        let mut is_scattered = false;
        for begin in rows.clone().step_by(GROUP) {
            let group = begin..rows.end.min(begin + GROUP);
            let entries = (row_ptr[group.end] - row_ptr[begin]) as usize;
            if is_scattered && entries <= TOGETHER {
                unmatched += self.unmatched_scattered(group, &mut sought)?;
                continue;
            }
            let (more, searched) = self.unmatched_in_order(group, &mut order)?;
            unmatched += more;
            is_scattered = 4 * searched > entries;
        }
        Some(unmatched)
    }

    /// As [`Mirrors::unmatched`], for rows that may repeat the row before. Also counts the images that were searched
    /// for.
    fn unmatched_in_order(&self, rows: Range<usize>, order: &mut Order) -> Option<(i64, usize)> {
        let (row_ptr, col_idx, values) = (self.0.row_ptr(), self.0.col_idx(), self.0.values());
        let Order { below, remembered } = order;
        let (mut unmatched, mut searched) = (0, 0);
        for i in rows {
            let (begin, end) = (row_ptr[i] as usize, row_ptr[i + 1] as usize);
            let cols = &col_idx[begin..end];
            let before = |&j: &u32| (j as usize) < i;
            let still = (*below == 0 || cols.get(*below - 1).is_some_and(before))
                && cols.get(*below).is_none_or(|j| !before(j));
            if !still {
                *below = cols.partition_point(before);
            }
            unmatched += *below as i64;
            for (k, (&j, &v)) in cols[*below..].iter().zip(&values[begin + *below..end]).enumerate() {
                if j as usize == i {
                    if v.is_nan() {
                        return None;
                    }
                    continue;
                }
                let (first, last) = (row_ptr[j as usize] as usize, row_ptr[j as usize + 1] as usize);
                let place = &mut remembered[k % REMEMBERED];
                let mut at = last.wrapping_sub(*place);
                if !(first..last).contains(&at) || col_idx[at] as usize != i {
                    searched += 1;
                    let Some(found) = find(&col_idx[first..last], i as u32) else {
                        if v.is_zero() {
                            continue;
                        }
                        return None;
                    };
                    at = first + found;
                    *place = last - at;
                }
                if v != values[at] {
                    return None;
                }
                unmatched -= 1;
            }
        }
        Some((unmatched, searched))
    }

    /// As [`Mirrors::unmatched`], for rows whose images are at other places than those of the row before. An image is
    /// three cache misses in a row: its row's pointers, columns and values. Each step here asks for those of all images
    /// before the next step reads them.
    fn unmatched_scattered(&self, rows: Range<usize>, sought: &mut Vec<Sought>) -> Option<i64> {
        let (row_ptr, col_idx, values) = (self.0.row_ptr(), self.0.col_idx(), self.0.values());
        let mut unmatched = 0;
        sought.clear();
        for i in rows {
            let (begin, end) = (row_ptr[i] as usize, row_ptr[i + 1] as usize);
            for (at, &j) in (begin..end).zip(&col_idx[begin..end]) {
                match (j as usize).cmp(&i) {
                    Ordering::Less => unmatched += 1,
                    Ordering::Equal if values[at].is_nan() => return None,
                    Ordering::Equal => {}
                    Ordering::Greater => {
                        prefetch(row_ptr, j as usize);
                        sought.push(Sought { row: i as u32, column: j, at, image: 0..0 });
                    }
                }
            }
        }
        for Sought { column, image, .. } in &mut *sought {
            *image = row_ptr[*column as usize] as usize..row_ptr[*column as usize + 1] as usize;
            prefetch(col_idx, image.start);
            prefetch(col_idx, image.end);
        }
        for Sought { row, image, .. } in &mut *sought {
            match find(&col_idx[image.clone()], *row) {
                Some(found) => {
                    image.start += found;
                    prefetch(values, image.start);
                }
                None => image.start = image.end,
            }
        }
        for Sought { at, image, .. } in &*sought {
            if image.is_empty() {
                if !values[*at].is_zero() {
                    return None;
                }
            } else if values[*at] != values[image.start] {
                return None;
            } else {
                unmatched -= 1;
            }
        }
        Some(unmatched)
    }
}

/// What the rows before tell of the next ones.
struct Order {
    /// Number of entries below the diagonal.
    below: usize,
    /// The position of the mirror image of the k-th entry from the diagonal on, counted from the end of the image's
    /// row; 0 if unknown.
    remembered: [usize; REMEMBERED],
}

/// An entry above the diagonal whose mirror image is looked for.
struct Sought {
    row: u32,
    column: u32,
    /// Its position.
    at: usize,
    /// The positions of the row of its image; in the end those from the image on.
    image: Range<usize>,
}

/// Returns true if each entry equals its mirror image, where an absent one counts as zero.
pub(crate) fn mirrored_or_zero<T: Real>(csr: &Csr<T>) -> bool {
    mirrored(csr, |v, mirror| v == mirror.unwrap_or_else(T::zero))
}

/// Returns true if `agree(a_ij, a_ji)` holds for every entry of a square matrix. The second argument is [`None`] if
/// nothing is stored.
pub(crate) fn mirrored<T: Real>(csr: &Csr<T>, agree: impl Fn(T, Option<T>) -> bool + Sync) -> bool {
    rows(csr).all(|i| unmatched(csr, i, |_, v, mirror| agree(v, mirror)).is_none())
}

/// The first entry (row, column) in CSR's order for which `agree(on the diagonal, a_ij, a_ji)` is false.
pub(crate) fn first_unmatched<T: Real>(
    csr: &Csr<T>,
    agree: impl Fn(bool, T, Option<T>) -> bool + Sync,
) -> Option<(usize, usize)> {
    rows(csr).find_map_first(|i| unmatched(csr, i, &agree).map(|j| (i, j)))
}

fn rows<T: Real>(csr: &Csr<T>) -> impl IndexedParallelIterator<Item = usize> {
    (0..csr.nrows()).into_par_iter().with_min_len(CHUNK)
}

fn unmatched<T: Real>(csr: &Csr<T>, i: usize, agree: impl Fn(bool, T, Option<T>) -> bool) -> Option<usize> {
    let (cols, values) = csr.row(i);
    let differs = |(&j, &v): (&u32, &T)| !agree(j as usize == i, v, entry(csr, j as usize, i as u32));
    cols.iter().zip(values).find(|&pair| differs(pair)).map(|(&j, _)| j as usize)
}

fn entry<T: Real>(csr: &Csr<T>, i: usize, j: u32) -> Option<T> {
    let (cols, values) = csr.row(i);
    find(cols, j).map(|k| values[k])
}

/// Returns the position of `j`.
fn find(cols: &[u32], j: u32) -> Option<usize> {
    if cols.len() > SHORT {
        return cols.binary_search(&j).ok();
    }
    // No branch per column: j would stand after all columns that are less than j.
    let before = cols.iter().map(|&col| usize::from(col < j)).sum::<usize>();
    (cols.get(before) == Some(&j)).then_some(before)
}
