//! The rows of a rank from a file or a generator, without the whole matrix on any rank.
//!
//! A Matrix Market file is cut by bytes: each rank parses its part and sends the entries to their owners. Between the
//! two steps, the number of entries in each block of 1024 rows decides which rank owns which rows. The parts arrive in
//! the order of the file, so duplicates are summed in the same order as in one process. An array file is small and is
//! read whole by every rank.

use std::path::Path;

use spandrel_backend::{Error, Join, Result};
use spandrel_formats::generate::Spec;
use spandrel_formats::index::Ordinal;
use spandrel_formats::matrix_market::{self, Above, Layout, Part};
use spandrel_formats::reorder::ROW;
use spandrel_formats::{Csr, Real};

use crate::assemble::{Assembly, totals};
use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::partition::{BLOCK, Partition};
use crate::rows::{Rows, rows_of};

/// The partition that balances entries, given the number of entries before each row.
pub(crate) fn balanced(rows: u64, ranks: usize, entries_before: impl Fn(u64) -> u64) -> Partition {
    Partition::by_cost(rows, ranks, |row| entries_before(row) + ROW * row)
}

/// Generates the rows of this rank. Families with a formula for their row starts are balanced by entries, others by
/// rows. Waits for the other ranks.
///
/// # Errors
/// Those of [`Spec::build_rows`], on the rank where it fails; the other ranks name that rank.
pub fn generate_rows<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, spec: &Spec) -> Result<Rows<T>> {
    let nrows = spec.nrows();
    let made = || -> Result<Rows<T>> {
        // A size that does not fit is refused before anything is counted.
        spandrel_formats::index::checked(nrows, "rows")?;
        let before = |row: u64| spec.entries_before(row as usize).unwrap_or(0);
        let mine = balanced(nrows as u64, be.size(), before).rows(be.rank());
        let csr = spec.build_rows(mine.start as usize..mine.end as usize)?;
        Ok(Rows::from_csr(mine.start, csr))
    };
    be.together(made())
}

/// Cuts a matrix that every rank has, balanced by entries. For small matrices, and for trying things out.
pub fn cut_rows<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, whole: &Csr<T>) -> Rows<T> {
    let ptr = whole.row_ptr();
    let partition = balanced(whole.nrows() as u64, be.size(), |row| u64::from(ptr[row as usize]));
    rows_of(whole, partition.rows(be.rank()))
}

/// Reads the rows of this rank from the Matrix Market file at `path`. Every rank must be able to read the file. Waits
/// for the other ranks.
///
/// # Errors
/// Those of [`matrix_market::read_csr`], on the rank where it fails; the other ranks name that rank.
pub fn read_rows<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, path: impl AsRef<Path>) -> Result<Rows<T>> {
    let path = path.as_ref();
    let header = be.together(matrix_market::read_header(path).map_err(Error::from))?;
    if header.format == Layout::Array {
        let whole = be.together(matrix_market::read_csr::<T>(path).map_err(Error::from))?;
        return Ok(cut_rows(be, &whole));
    }
    let team = be.team();
    let part = be.together(Part::<T>::read(path, be.rank(), be.size()).map_err(Error::from))?;
    let listed: u64 = totals(team, &[part.listed() as u64])?[0];
    let counted = if be.rank() == 0 { part.check_count(listed as usize).map_err(Error::from) } else { Ok(()) };
    be.together(counted)?;
    one_half(be, &part)?;

    let (nrows, ncols) = (part.header().nrows as u64, part.header().ncols as u64);
    let mut blocks = vec![0u64; nrows.div_ceil(BLOCK) as usize];
    part.visit(|row, _, _| blocks[(u64::from(row) / BLOCK) as usize] += 1);
    let mut before = vec![0u64];
    for count in totals(team, &blocks)? {
        before.push(before[before.len() - 1] + count);
    }
    let partition = balanced(nrows, be.size(), |row| before[row.div_ceil(BLOCK) as usize]);
    let mut entries = Assembly::<T>::new(partition, ncols);
    let mut pushed = Ok(());
    part.visit(|row, col, value| {
        if pushed.is_ok() {
            pushed = entries.push(u64::from(row), col, value);
        }
    });
    drop(part);
    be.together(pushed)?;
    entries.finish(be)
}

/// Refuses a symmetric file that lists a position on both sides of the diagonal. The first one in the file is named.
fn one_half<T: Real, B: Join, C: Communicator>(be: &Distributed<B, C>, part: &Part<T>) -> Result<()> {
    let team = be.team();
    let mine: Vec<u64> = part.above().flat_map(|(row, col, at)| [u64::from(row), u64::from(col), at]).collect();
    if team.largest(mine.len() as u64)? == 0 {
        return Ok(());
    }
    let bytes: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = team.all_to_all(vec![bytes; be.size()])?;
    let above = all.iter().flat_map(|bytes| bytes.as_chunks::<24>().0).map(|entry| -> Above {
        let number = |at: usize| u64::from_le_bytes(entry[8 * at..8 * at + 8].try_into().unwrap_or_default());
        (number(0) as Ordinal, number(1) as Ordinal, number(2))
    });
    let found = part.conflict(above);
    // The first one has the largest distance from the end of the file.
    let first = u64::MAX - team.largest(found.map_or(0, |(_, _, at)| u64::MAX - at))?;
    be.together(match found {
        Some(conflict) if conflict.2 == first => Err(part.both_halves(conflict).into()),
        _ => Ok(()),
    })
}
