//! Which kernel takes which rows of C: by their lengths, and by those of the rows of B.

use spandrel_backend::Result;
use spandrel_formats::Real;

use super::ClassSpgemm;
use super::pattern::{Made, PRODUCTS, each_row};
use crate::Cuda;
use crate::memory::Buffer;

/// The most entries of a row of C whose sums a warp holds (`SLICE` of kernels/spgemm.cu). Longer rows are cut into
/// slices.
pub(super) const SLICE: u32 = 512;
/// Rows of C of one pattern that a warp sums at the same time (`TOGETHER` of kernels/include/products.cuh).
pub(super) const TOGETHER: usize = 3;
/// The longest row of each class except the last (`class_of` of kernels/spgemm.cu).
const LIMITS: [u32; 3] = [32, 128, SLICE];
/// If a class has more than this many rows per row of the shorter classes, its kernel takes those rows too. A separate
/// launch over all rows for only a few takes longer than giving these few more room than they need.
const FEW: u64 = 16;
/// Up to these numbers of products per entry of A, that is, the mean length of the rows of B, 8 or 16 lanes share a
/// row.
const SHORT_FOR_8: f64 = 10.0;
const SHORT_FOR_16: f64 = 20.0;
/// The largest shared memory of a thread block that every device grants without a request.
const SHARED: usize = 48 << 10;

/// Indices into the array `found` (kernels/spgemm.cu).
const OF_CLASSES: usize = 5;
const LONGEST_OF_CLASSES: usize = OF_CLASSES + LIMITS.len() + 1;
const SLICES: usize = LONGEST_OF_CLASSES + LIMITS.len() + 1;
/// The length of that array.
pub(super) const FOUND: usize = SLICES + 1;

/// The rows of C with more than `above` and up to `upto` entries, and how many lanes share a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) above: u32,
    pub(super) upto: u32,
    pub(super) lanes: u32,
}

/// The base-2 logarithm of the size of a hash table for this many columns. At most two thirds of its places are taken.
pub(super) fn slots_log(columns: u32) -> u32 {
    (columns + columns.div_ceil(2)).max(16).next_power_of_two().ilog2()
}

/// The bytes for `rows` rows of one pattern with this many entries: `rows` sums and a column per place of the table,
/// and a two-byte index of a place per entry.
pub(super) fn room<T: Real>(columns: u32, rows: usize) -> usize {
    ((1usize << slots_log(columns)) * (rows * T::BYTES + 4) + 2 * columns as usize).next_multiple_of(16)
}

/// The most threads of a thread block for which the rows' bytes fit into shared memory.
pub(super) fn threads(room: usize, lanes: u32) -> usize {
    let fits = |threads: &usize| room * threads / lanes as usize <= SHARED;
    [256, 128, 64].into_iter().find(fits).unwrap_or(32)
}

/// The classes, from the number of rows of each and the longest among them.
fn classes(rows: [u64; 3], longest: [u64; 3], products_per_entry: f64) -> Vec<Class> {
    let mut made = Vec::new();
    let (mut above, mut before, mut upto) = (0, 0, 0);
    for class in 0..LIMITS.len() {
        if rows[class] > 0 {
            upto = longest[class] as u32;
        }
        before += rows[class];
        let joins = rows[class + 1..].iter().any(|&longer| longer > FEW * before);
        if before > 0 && !joins {
            let lanes = match products_per_entry {
                _ if upto > LIMITS[1] => 32,
                few if few <= SHORT_FOR_8 => 8,
                few if few <= SHORT_FOR_16 => 16,
                _ => 32,
            };
            made.push(Class { above, upto, lanes });
            before = 0;
        }
        if before == 0 {
            above = LIMITS[class];
        }
    }
    made
}

impl Cuda {
    /// The classes of the rows of C, and the slices of the long ones with their number. Does not block.
    pub(super) fn product_classes<T: Real>(
        &self,
        made: &Made,
        nnz_of_a: usize,
    ) -> Result<(Vec<Class>, Option<(Buffer<u32>, usize)>)> {
        let nrows = made.row_ptr.len() - 1;
        let counts = &made.found;
        let three = |from: usize| [counts[from], counts[from + 1], counts[from + 2]];
        let products_per_entry = counts[PRODUCTS] as f64 / nnz_of_a.max(1) as f64;
        let classes = classes(three(OF_CLASSES), three(LONGEST_OF_CLASSES), products_per_entry);
        let count = counts[SLICES] as usize;
        if count == 0 {
            return Ok((classes, None));
        }
        let slices = Buffer::uninit(self.stream(), 2 * count, "slices of rows")?;
        let found = Buffer::<u64>::zeros(self.stream(), FOUND, "counts of slices")?;
        let (row_ptr, slices_at, found) = (made.row_ptr.pointer(), slices.pointer(), found.pointer());
        let class = ClassSpgemm { row_ptr, nrows: nrows as u32, slices: slices_at, found };
        // SAFETY: class_spgemm(row_ptr, nrows, slices, found), one thread per row, with room for as many slices as were
        // counted.
        unsafe { self.launch::<T, _>(ClassSpgemm::ENTRY, each_row(nrows), &class)? };
        Ok((classes, Some((slices, count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(above: u32, upto: u32, lanes: u32) -> Class {
        Class { above, upto, lanes }
    }

    #[test]
    fn every_row_is_in_one_class() {
        assert_eq!(classes([1000, 0, 0], [25, 0, 0], 7.0), [class(0, 25, 8)]);
        assert_eq!(classes([8, 900, 0], [27, 125, 0], 27.0), [class(0, 125, 32)]);
        assert_eq!(
            classes([800, 900, 3], [30, 125, 200], 12.0),
            [class(0, 30, 16), class(32, 125, 16), class(128, 200, 32)]
        );
        assert_eq!(classes([5, 0, 900], [3, 0, 500], 5.0), [class(0, 500, 32)]);
        assert_eq!(classes([5, 20, 9000], [3, 99, 500], 5.0), [class(0, 500, 32)]);
        assert_eq!(classes([0, 0, 7], [0, 0, 129], 5.0), [class(128, 129, 32)]);
        assert_eq!(classes([0, 0, 0], [0, 0, 0], 5.0), []);
        // For any numbers of rows, the classes cover every length that occurs exactly once.
        for bits in 0..4u64.pow(3) {
            let rows = [bits % 4, bits / 4 % 4, bits / 16].map(|n| [0, 1, 17, 400][n as usize]);
            let longest = [0, 1, 2].map(|c| if rows[c] > 0 { u64::from(LIMITS[c]) } else { 0 });
            let made = classes(rows, longest, 5.0);
            for c in (0..3).filter(|&c| rows[c] > 0) {
                let within = |class: &&Class| class.above < LIMITS[c] && LIMITS[c] <= class.upto;
                assert_eq!(made.iter().filter(within).count(), 1, "{rows:?}: {made:?}");
                let first = if c == 0 { 1 } else { LIMITS[c - 1] + 1 };
                assert!(made.iter().filter(|class| class.above < first && first <= class.upto).count() == 1);
            }
        }
    }

    #[test]
    fn rooms_fit_and_tables_have_free_places() {
        for columns in 1..=SLICE {
            let slots = 1u32 << slots_log(columns);
            assert!(2 * slots >= 3 * columns && (16..=1 << 16).contains(&slots));
            for lanes in [8, 16, 32] {
                if columns > LIMITS[1] && lanes < 32 {
                    continue;
                }
                let room = room::<f64>(columns, 1);
                assert!(room * threads(room, lanes) / lanes as usize <= SHARED);
            }
            let room = room::<f64>(columns, TOGETHER);
            assert!(room * threads(room, 32) / 32 <= SHARED);
        }
        assert_eq!((slots_log(25), slots_log(125), slots_log(375)), (6, 8, 10));
    }
}
