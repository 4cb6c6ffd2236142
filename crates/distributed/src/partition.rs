//! Which rank owns which rows: contiguous ranges whose ends are multiples of 1024.
//!
//! 1024 rows are a block of the dot product's tree, so that every block result is computed by one rank. Where it costs
//! little balance, ends are multiples of 1024^2, the next level of the tree: a rank then sends a handful of sums
//! instead of up to two thousand.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Error, Result};

/// The number of rows in a block of the dot product's tree.
pub const BLOCK: u64 = 1024;
/// Ranks end at multiples of `BLOCK * BLOCK` if the largest load is at most this factor larger than with multiples of
/// [`BLOCK`].
const WORTH: f64 = 1.02;

/// Contiguous ranges of rows, one per rank, in the order of the ranks. A range may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Where each rank's rows begin, and the number of rows.
    begins: Arc<[u64]>,
}

impl Partition {
    /// Takes the first row of each rank, followed by the number of rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the numbers begin with 0, do not decrease, and are multiples of [`BLOCK`] or equal
    /// to the number of rows.
    pub fn new(begins: impl Into<Arc<[u64]>>) -> Result<Self> {
        let begins = begins.into();
        let refused = |why: String| Err(Error::Unsupported { op: "a partition", noun: "rows", why });
        let [first, .., rows] = begins[..] else {
            return refused("it needs the first row of each rank and the number of rows".into());
        };
        if first != 0 {
            return refused(format!("rank 0 begins at row {first}; it must begin at row 0"));
        }
        for (rank, pair) in begins.windows(2).enumerate() {
            let [begin, end] = [pair[0], pair[1]];
            if end < begin {
                return refused(format!(
                    "rank {rank} begins at row {begin} and the next at row {end}; ranges must not descend"
                ));
            }
            if end % BLOCK != 0 && end != rows {
                return refused(format!(
                    "rank {rank} ends at row {end}; a range must end at a multiple of {BLOCK} (such as {}) or at the last row, because that is a \
                     block of the dot product. `Partition::even` and `Partition::by_cost` make such ranges",
                    end / BLOCK * BLOCK
                ));
            }
        }
        Ok(Self { begins })
    }

    /// Takes the number of rows of each rank. Ranges may end anywhere, so vectors that lie like this have no dot
    /// products.
    pub(crate) fn unaligned(counts: impl IntoIterator<Item = u64>) -> Self {
        let mut begins = vec![0];
        let mut end = 0;
        begins.extend(counts.into_iter().map(|count| {
            end += count;
            end
        }));
        Self { begins: begins.into() }
    }

    /// The number of rows of each rank.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.begins.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// Splits `rows` rows evenly among `size` ranks.
    ///
    /// ```
    /// let partition = spandrel_distributed::Partition::even(10_000, 3);
    /// assert_eq!(partition.rows(0), 0..3072);
    /// assert_eq!(partition.rows(2), 7168..10_000);
    /// assert_eq!(partition.owner(3072), 1);
    /// ```
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn even(rows: u64, size: usize) -> Self {
        Self::by_cost(rows, size, |row| row)
    }

    /// Splits `rows` rows among `size` ranks so that the largest cost of a rank is small. `cost(i)` is the cost of the
    /// rows before row i; it does not decrease. Usually this is the number of entries plus a few per row.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn by_cost(rows: u64, size: usize, cost: impl Fn(u64) -> u64) -> Self {
        assert!(size > 0, "a partition needs at least one rank");
        let fine = cuts(rows, size, BLOCK, &cost);
        let coarse = cuts(rows, size, BLOCK * BLOCK, &cost);
        let worst = |begins: &[u64]| begins.windows(2).map(|r| cost(r[1]) - cost(r[0])).max().unwrap_or(0);
        let (fine_load, coarse_load) = (worst(&fine), worst(&coarse));
        let begins = if coarse_load as f64 <= WORTH * fine_load as f64 { coarse } else { fine };
        Self { begins: begins.into() }
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.begins.len() - 1
    }

    /// Number of rows of all ranks together.
    pub fn len(&self) -> u64 {
        self.begins[self.size()]
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rows(&self, rank: usize) -> Range<u64> {
        self.begins[rank]..self.begins[rank + 1]
    }

    /// The rank that owns a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn owner(&self, row: u64) -> usize {
        assert!(row < self.len(), "row {row} of {}", self.len());
        self.begins.partition_point(|&begin| begin <= row) - 1
    }
}

/// Cuts at multiples of `granule`, each nearest to its share of the cost.
fn cuts(rows: u64, size: usize, granule: u64, cost: &impl Fn(u64) -> u64) -> Vec<u64> {
    let total = cost(rows);
    let mut begins = vec![0];
    for rank in 1..size {
        let wanted = (u128::from(total) * rank as u128 / size as u128) as u64;
        // The first multiple with at least that much cost before it.
        let (mut low, mut high) = (begins[rank - 1] / granule, rows.div_ceil(granule));
        while low < high {
            let middle = low + (high - low) / 2;
            if cost((middle * granule).min(rows)) < wanted { low = middle + 1 } else { high = middle }
        }
        let above = (low * granule).min(rows).max(begins[rank - 1]);
        let below = (low.saturating_sub(1) * granule).max(begins[rank - 1]);
        let distance = |row: u64| cost(row).abs_diff(wanted);
        begins.push(if distance(below) < distance(above) { below } else { above });
    }
    begins.push(rows);
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_rows_and_end_at_blocks() {
        for rows in [0, 1, 1023, 1024, 1025, 5000, 100_000, 3 << 20, (1 << 33) + 7] {
            for size in [1, 2, 3, 4, 7, 64] {
                for partition in [Partition::even(rows, size), Partition::by_cost(rows, size, |i| i / 3 * 100)] {
                    assert_eq!((partition.size(), partition.len()), (size, rows));
                    assert_eq!(Partition::new(partition.begins.clone()).unwrap(), partition);
                    for rank in 0..size {
                        let range = partition.rows(rank);
                        if !range.is_empty() {
                            assert_eq!((partition.owner(range.start), partition.owner(range.end - 1)), (rank, rank));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn loads_are_balanced_to_a_block() {
        let partition = Partition::even(1_000_000, 7);
        let lens: Vec<u64> = (0..7).map(|rank| partition.rows(rank).end - partition.rows(rank).start).collect();
        assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 2 * BLOCK, "{lens:?}");
        // All the cost in the first rows.
        let partition = Partition::by_cost(10_240, 2, |row| row.min(2048));
        assert_eq!(partition.rows(0), 0..1024);
    }

    #[test]
    fn large_ranges_end_at_the_next_level_of_the_tree() {
        let partition = Partition::even(256 << 20, 7);
        assert!((1..7).all(|rank| partition.rows(rank).start.is_multiple_of(BLOCK * BLOCK)), "{partition:?}");
    }

    #[test]
    fn wrong_ranges_are_refused() {
        let why = |begins: &[u64]| Partition::new(begins).unwrap_err().to_string();
        assert!(why(&[0, 1000, 5000]).contains("a multiple of 1024 (such as 0)"));
        assert!(why(&[0, 2048, 1024, 5000]).contains("ranges must not descend"));
        assert!(why(&[1, 5]).contains("must begin at row 0"));
        assert!(why(&[0]).contains("the number of rows"));
        assert!(Partition::new([0, 5000, 5000, 5000]).is_ok());
    }
}
