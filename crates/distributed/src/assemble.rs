//! Entries from any rank on their way to the ranks that own their rows.
//!
//! Entries for the same row and column are summed in the order of the ranks. Entries of one rank are summed in the
//! order in which it pushed them.

use spandrel_backend::{Error, Join, Result};
use spandrel_formats::Real;
use spandrel_formats::index::{Offset, Ordinal, checked};

use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::partition::Partition;
use crate::rows::{Column, Rows};
use crate::team::Team;

/// An assembly buffer of one rank. It takes entries of any row, for example those of the rank's finite elements.
///
/// ```
/// use spandrel_backend_cpu::Cpu;
/// use spandrel_distributed::{Assembly, Distributed, Partition, Threads};
///
/// let partition = Partition::even(2048, 2);
/// let ranks = Threads::run(2, |team| {
///     let device = Distributed::new(Cpu::with_threads(1)?, team);
///     let mut entries = Assembly::<f64>::new(partition.clone(), 2048);
///     // Both ranks add to row 1024, which rank 1 owns.
///     entries.push(1024, 7, 1.5)?;
///     let rows = entries.finish(&device)?;
///     Ok::<_, spandrel_backend::Error>((rows.len(), rows.get(1024, 7)))
/// });
/// let found: Vec<_> = ranks.into_iter().map(Result::unwrap).collect();
/// assert_eq!(found, [(1024, None), (1024, Some(3.0))]);
/// ```
#[derive(Clone, Debug)]
pub struct Assembly<T, J = u32> {
    partition: Partition,
    ncols: u64,
    /// For each owner: row, column and value of each entry, as a message.
    to: Vec<Vec<u8>>,
    values: std::marker::PhantomData<(T, J)>,
}

impl<T: Real, J: Column> Assembly<T, J> {
    /// An empty buffer for the rows of a partition, in a matrix of `ncols` columns.
    pub fn new(partition: Partition, ncols: u64) -> Self {
        let to = vec![Vec::new(); partition.size()];
        Self { partition, ncols, to, values: std::marker::PhantomData }
    }

    /// Adds an entry of any row.
    ///
    /// # Errors
    /// [`spandrel_formats::Error::IndexOutOfRange`] if it lies outside the matrix.
    pub fn push(&mut self, row: u64, col: J, value: T) -> Result<()> {
        let column: u64 = col.into();
        for (array, found, bound) in [("rows", row, self.partition.len()), ("cols", column, self.ncols)] {
            if found >= bound {
                let (at, found) = (0, i64::try_from(found).unwrap_or(i64::MAX));
                let bound = bound as usize;
                return Err(
                    spandrel_formats::Error::IndexOutOfRange { format: "assembly", array, at, found, bound }.into()
                );
            }
        }
        let owner = self.partition.owner(row);
        let message = &mut self.to[owner];
        message.extend_from_slice(&((row - self.partition.rows(owner).start) as Ordinal).to_le_bytes());
        message.extend_from_slice(bytemuck::bytes_of(&col));
        message.extend_from_slice(bytemuck::bytes_of(&value));
        Ok(())
    }

    /// Sends all entries to their owners and returns the rows of this rank. Waits for the other ranks.
    ///
    /// # Errors
    /// [`spandrel_formats::Error::TooLarge`] if this rank has 2^31 entries or more; [`Error::Rank`].
    pub fn finish<B: Join, C: Communicator>(self, be: &Distributed<B, C>) -> Result<Rows<T, J>> {
        if self.partition.size() != be.size() {
            let why = format!("the partition is for {} ranks, but there are {}", self.partition.size(), be.size());
            return Err(be.team().fail(Error::Unsupported { op: "an assembly", noun: "a partition", why }));
        }
        let (ncols, own) = (self.ncols, self.partition.rows(be.rank()));
        let from = be.team().all_to_all(self.to)?;
        let rows = sorted(&from, own.start, (own.end - own.start) as usize, ncols);
        be.together(rows.map_err(Error::from))
    }
}

/// Turns the entries of the messages into rows by a stable counting sort. Rows whose columns do not ascend are then
/// sorted, also stably.
fn sorted<T: Real, J: Column>(
    from: &[Vec<u8>],
    first: u64,
    nrows: usize,
    ncols: u64,
) -> spandrel_formats::Result<Rows<T, J>> {
    let width = 4 + size_of::<J>() + T::BYTES;
    let entries = || from.iter().flat_map(|message| message.chunks_exact(width));
    let row_of = |entry: &[u8]| u32::from_le_bytes(entry[..4].try_into().unwrap_or_default()) as usize;
    let total: usize = from.iter().map(|message| message.len() / width).sum();
    checked(total, "entries")?;
    let mut row_ptr = vec![0 as Offset; nrows + 1];
    entries().for_each(|entry| row_ptr[row_of(entry) + 1] += 1);
    (0..nrows).for_each(|row| row_ptr[row + 1] += row_ptr[row]);
    let mut next = row_ptr.clone();
    let (mut cols, mut values): (Vec<J>, Vec<T>) = (vec![bytemuck::Zeroable::zeroed(); total], vec![T::zero(); total]);
    for entry in entries() {
        let place = &mut next[row_of(entry)];
        cols[*place as usize] = bytemuck::pod_read_unaligned(&entry[4..4 + size_of::<J>()]);
        values[*place as usize] = bytemuck::pod_read_unaligned(&entry[4 + size_of::<J>()..]);
        *place += 1;
    }
    let (mut kept, mut begin, mut row) = (0, 0, Vec::new());
    for i in 0..nrows {
        let end = row_ptr[i + 1] as usize;
        if cols[begin..end].windows(2).any(|pair| pair[1] < pair[0]) {
            row.clear();
            row.extend(cols[begin..end].iter().copied().zip(values[begin..end].iter().copied()));
            row.sort_by_key(|&(col, _)| col);
            for (at, &(col, value)) in (begin..end).zip(&row) {
                (cols[at], values[at]) = (col, value);
            }
        }
        let first_kept = kept;
        for at in begin..end {
            if kept > first_kept && cols[kept - 1] == cols[at] {
                let value = values[at];
                values[kept - 1] += value;
            } else {
                (cols[kept], values[kept]) = (cols[at], values[at]);
                kept += 1;
            }
        }
        (row_ptr[i + 1], begin) = (kept as Offset, end);
    }
    cols.truncate(kept);
    values.truncate(kept);
    Rows::new(first, ncols, row_ptr, cols, values)
}

/// Sums the lists of all ranks, element by element.
pub(crate) fn totals<C: Communicator>(team: &Team<C>, mine: &[u64]) -> Result<Vec<u64>> {
    let mut sums = vec![0u64; mine.len()];
    for of in team.numbers(mine)? {
        sums.iter_mut().zip(of).for_each(|(sum, count)| *sum += count);
    }
    Ok(sums)
}
