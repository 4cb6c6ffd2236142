//! A numbering of rows in which the neighbours of a row are near it, so that ranks need few entries of x from each
//! other.
//!
//! Rank 0 makes the numbering, as one device does, so x keeps its bits on any number of ranks. Meanwhile it holds the
//! columns of all entries, 4 bytes for each and no values, and what the ordering itself needs. Every rank holds the
//! numbering, 4 bytes per row of the whole matrix.

use std::fmt;

use spandrel_backend::{Error, Join, Result};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Permutation, Real, reorder};

use crate::assemble::Assembly;
use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::partition::Partition;
use crate::read::balanced;
use crate::rows::Rows;

/// A new order of the rows and columns of a matrix on ranks, and which rank owns which rows of it.
///
/// ```
/// use spandrel_backend_cpu::Cpu;
/// use spandrel_distributed::{Distributed, Numbering, Threads, cut_rows};
/// use spandrel_formats::Csr;
///
/// // The only neighbour of row i is row 4095 - i.
/// let pairs = Csr::from_triplets(4096, 4096, (0..4096).flat_map(|i| [(i, i, 2.0), (i, 4095 - i, 1.0)]))?;
/// let ranks = Threads::run(2, |team| {
///     let device = Distributed::new(Cpu::with_threads(1)?, team);
///     let rows = cut_rows(&device, &pairs);
///     let numbering = Numbering::breadth_first(&device, &rows)?;
///     numbering.rows(&device, rows)
/// });
/// // Pairs lie next to each other, so no rank needs anything from the other.
/// let rows = ranks.into_iter().next().unwrap().unwrap();
/// assert_eq!((rows.len(), rows.row(0).0, rows.row(1).0), (2048, &[0, 1][..], &[0, 1][..]));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Numbering {
    /// From new rows to old ones.
    permutation: Permutation,
    old: Partition,
    new: Partition,
}

/// The columns of one rank's rows.
struct Pattern {
    begins: Vec<usize>,
    cols: Vec<Ordinal>,
}

fn numbers(bytes: &[u8]) -> Vec<Ordinal> {
    bytes.as_chunks::<4>().0.iter().map(|&number| Ordinal::from_le_bytes(number)).collect()
}

impl Numbering {
    /// Numbers rows in the order in which [`reorder::breadth_first`] reaches them. As [`Numbering::by`].
    ///
    /// # Errors
    /// As [`Numbering::by`].
    pub fn breadth_first<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, rows: &Rows<T>) -> Result<Self> {
        Self::by(be, rows, |n, row| Ok(reorder::breadth_first_by(n, row)?))
    }

    /// Numbers rows as `order` says, which gets the number of rows and the columns of each, on rank 0. Entries are
    /// balanced between the ranks. Waits for the other ranks.
    ///
    /// # Errors
    /// On every rank: [`spandrel_formats::Error::Shape`] unless the matrix is square; [`Error::Unsupported`] if the
    /// rows of the ranks do not follow each other. An error of `order`, or a lack of memory, on rank 0, which the other
    /// ranks name.
    pub fn by<T: Real, B: Join, C: Communicator, E: From<Error> + fmt::Display>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        order: impl for<'p> FnOnce(usize, &'p dyn Fn(usize) -> &'p [Ordinal]) -> std::result::Result<Permutation, E>,
    ) -> std::result::Result<Self, E> {
        let old = be.partition_of(rows)?;
        if old.len() != rows.ncols() {
            let (found, expected) = (rows.ncols() as usize, old.len() as usize);
            return Err(Error::from(spandrel_formats::Error::Shape {
                op: "a numbering",
                what: "a row",
                found,
                expected,
            })
            .into());
        }
        let team = be.team();
        let lengths: Vec<Ordinal> = (0..rows.len()).map(|i| rows.row(i).0.len() as Ordinal).collect();
        let lengths = team.gather(bytemuck::cast_slice(&lengths))?;
        let cols = team.gather(bytemuck::cast_slice(rows.cols()))?;
        let found = match (lengths, cols) {
            (Some(lengths), Some(cols)) => {
                let patterns = lengths.into_iter().zip(cols).map(|(lengths, cols)| {
                    let mut begins = vec![0];
                    for len in numbers(&lengths) {
                        begins.push(begins[begins.len() - 1] + len as usize);
                    }
                    Pattern { begins, cols: numbers(&cols) }
                });
                searched(&old, &patterns.collect::<Vec<_>>(), order).map(Some)
            }
            _ => Ok(None),
        };
        let message = be.together(found)?.map(|(permutation, begins)| {
            let begins = begins.iter().flat_map(|begin| begin.to_le_bytes());
            begins.chain(permutation.iter().flat_map(|old| old.to_le_bytes())).collect()
        });
        let message = team.broadcast(message)?;
        let (begins, permutation) = message.split_at(8 * (be.size() + 1));
        let begins: Vec<u64> = begins.as_chunks::<8>().0.iter().map(|&begin| u64::from_le_bytes(begin)).collect();
        let permutation = Permutation::new(numbers(permutation)).map_err(Error::from)?;
        Ok(Self { permutation, old, new: Partition::new(begins)? })
    }

    /// P A P^T: sends the rows of this rank to their owners, and returns those that it owns. Waits for the other ranks.
    ///
    /// # Errors
    /// Those of [`Assembly::finish`].
    pub fn rows<T: Real, B: Join, C: Communicator>(&self, be: &Distributed<B, C>, rows: Rows<T>) -> Result<Rows<T>> {
        let new_of = self.permutation.inverse();
        let new_of = new_of.perm();
        let mut entries = Assembly::new(self.new.clone(), rows.ncols());
        let mut push_all = || -> Result<()> {
            for i in 0..rows.len() {
                let row = u64::from(new_of[rows.first() as usize + i]);
                let (cols, values) = rows.row(i);
                for (&col, &value) in cols.iter().zip(values) {
                    entries.push(row, new_of[col as usize], value)?;
                }
            }
            Ok(())
        };
        let pushed = push_all();
        drop(rows);
        be.together(pushed)?;
        entries.finish(be)
    }

    /// The rows of a vector that this rank owns in the new order, from those that it owns in the old one. Waits for the
    /// other ranks.
    ///
    /// # Errors
    /// [`Error::Rank`]; [`spandrel_formats::Error::Shape`] for a wrong number of elements.
    pub fn part<T: Real, B: Join, C: Communicator>(&self, be: &Distributed<B, C>, v: &[T]) -> Result<Vec<T>> {
        let (own, permutation) = (self.old.rows(be.rank()), self.permutation.perm());
        let expected = (own.end - own.start) as usize;
        let fits = match v.len() {
            found if found == expected => Ok(()),
            found => Err(spandrel_formats::Error::Shape { op: "a renumbering", what: "a vector", found, expected }),
        };
        be.together(fits.map_err(Error::from))?;
        let old_rows = |rank: usize| {
            let rows = self.new.rows(rank);
            permutation[rows.start as usize..rows.end as usize].iter().map(|&row| u64::from(row))
        };
        // Both sides list elements in the new order.
        let to = (0..be.size()).map(|rank| {
            let mine = old_rows(rank).filter(|row| own.contains(row));
            mine.flat_map(|row| bytemuck::bytes_of(&v[(row - own.start) as usize])).copied().collect()
        });
        let from = be.team().all_to_all(to.collect())?;
        let mut elements: Vec<_> =
            from.iter().map(|bytes| bytes.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned::<T>)).collect();
        let part: Option<Vec<T>> = old_rows(be.rank()).map(|row| elements[self.old.owner(row)].next()).collect();
        part.ok_or_else(|| {
            let why = "a rank has sent fewer elements than it owns".to_owned();
            Error::Unsupported { op: "a renumbering", noun: "a vector", why }
        })
    }

    /// The numbering itself, from new rows to old ones. [`Permutation::apply_inverse_to`] brings a whole vector back to
    /// the old order.
    pub fn permutation(&self) -> &Permutation {
        &self.permutation
    }
}

/// The numbering, and where each rank's rows begin in it.
fn searched<E>(
    old: &Partition,
    patterns: &[Pattern],
    order: impl for<'p> FnOnce(usize, &'p dyn Fn(usize) -> &'p [Ordinal]) -> std::result::Result<Permutation, E>,
) -> std::result::Result<(Vec<Ordinal>, Vec<u64>), E> {
    let row = |row: usize| {
        let rank = old.owner(row as u64);
        let (Pattern { begins, cols }, i) = (&patterns[rank], row - old.rows(rank).start as usize);
        &cols[begins[i]..begins[i + 1]]
    };
    let n = old.len() as usize;
    let permutation = order(n, &row)?.into_parts();
    let mut before = Vec::with_capacity(n + 1);
    before.push(0);
    before.extend(permutation.iter().scan(0, |entries, &old| {
        *entries += row(old as usize).len() as u64;
        Some(*entries)
    }));
    let new = balanced(n as u64, old.size(), |row| before[row as usize]);
    let begins = (0..old.size()).map(|rank| new.rows(rank).start).chain([new.len()]);
    Ok((permutation, begins.collect()))
}
