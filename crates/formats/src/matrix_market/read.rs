//! Reading from a path, from bytes or from any reader, as CSR, a dense matrix or a vector.

use super::header::{self, Header, Layout};
use super::{assemble, direct, entries};
use crate::text::lines::{Fault, line_and_column};
use crate::text::source::{Source, plain};
use crate::{Csr, Error, Real, Result, Triplets};
use std::io::Read;
use std::path::Path;

/// Number of elements that any coordinate file may ask for when it is read as a dense matrix. A larger matrix needs a
/// file with at least one byte per 64 elements.
const ELEMENTS_FREE: usize = 1 << 25;

/// What the file at `path` says about itself. Only its first lines are read, but a gzip file is unpacked completely.
///
/// # Errors
/// As [`read_csr`].
pub fn read_header(path: impl AsRef<Path>) -> Result<Header> {
    let source = Source::open(path.as_ref(), header::watch)?;
    Ok(header::parse(&source.name, source.bytes())?.0)
}

/// Reads the file at `path` as CSR. Symmetric matrices are expanded, and duplicates are summed in the order of the
/// file. Zeros of a coordinate file are entries; zeros of an array file are not.
///
/// Parses on rayon's current pool; the result does not depend on its size. A plain file is memory-mapped, so no other
/// process may shorten it meanwhile.
///
/// # Errors
/// [`Error::Io`]; [`Error::Parse`] with line and column, also for 2^31 or more rows or columns; [`Error::TooLarge`] for
/// 2^31 or more entries; [`Error::DoesNotFit`] if the file declares almost only empty rows (or, for an array file,
/// columns); [`Error::OutOfMemory`].
///
/// ```
/// # fn main() -> spandrel_formats::Result<()> {
/// use spandrel_formats::{Format, matrix_market};
/// let text = b"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 4\n2 1 -1\n";
/// let a = matrix_market::read_bytes::<f64>("<memory>", text)?;
/// assert_eq!((a.nnz(), a.get(0, 1)), (3, Some(-1.0)));
/// # Ok(())
/// # }
/// ```
pub fn read_csr<T: Real>(path: impl AsRef<Path>) -> Result<Csr<T>> {
    let source = Source::open(path.as_ref(), header::watch)?;
    csr(&source.name, source.bytes())
}

/// Something a file does that its format does not allow, and that the reader accepts anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A symmetric file lists entries above the diagonal. Each was read as its mirror image.
    AboveDiagonal {
        /// The file.
        file: String,
        /// The line of the first such entry, counted from 1.
        line: u64,
        /// How many there are.
        entries: usize,
        /// The symmetry named in the banner.
        symmetry: &'static str,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AboveDiagonal { file, line, entries, symmetry } => {
                let lie = if *entries == 1 { "entry lies" } else { "entries lie" };
                write!(
                    f,
                    "{file}:{line}: {entries} {lie} above the diagonal; a {symmetry} file should list the lower triangle. Read as mirror images"
                )
            }
        }
    }
}

/// As [`read_csr`], and also returns notes on what is unusual about the file.
///
/// # Errors
/// As [`read_csr`].
pub fn read_csr_noted<T: Real>(path: impl AsRef<Path>) -> Result<(Csr<T>, Vec<Note>)> {
    let source = Source::open(path.as_ref(), header::watch)?;
    csr_noted(&source.name, source.bytes())
}

/// As [`read_from`], and also returns notes on what is unusual about the file.
///
/// # Errors
/// As [`read_csr`].
pub fn read_from_noted<T: Real>(name: &str, reader: impl Read) -> Result<(Csr<T>, Vec<Note>)> {
    csr_noted(name, Source::read(name, reader, header::watch)?.bytes())
}

/// As [`read_csr`], from the bytes of a file (gzip or not). Errors call it `name`.
///
/// # Errors
/// As [`read_csr`].
pub fn read_bytes<T: Real>(name: &str, bytes: &[u8]) -> Result<Csr<T>> {
    csr(name, &plain(name, bytes, header::watch)?)
}

/// As [`read_csr`], from everything that `reader` gives (gzip or not). Errors call it `name`.
///
/// # Errors
/// As [`read_csr`].
pub fn read_from<T: Real>(name: &str, reader: impl Read) -> Result<Csr<T>> {
    csr(name, Source::read(name, reader, header::watch)?.bytes())
}

/// Reads the file at `path` with every element stored: `(nrows, ncols, values)`, column after column, `values[i + nrows
/// * j]`.
///
/// # Errors
/// As [`read_csr`]; also [`Error::DoesNotFit`] for a coordinate file with very few entries for its shape.
pub fn read_dense<T: Real>(path: impl AsRef<Path>) -> Result<(usize, usize, Vec<T>)> {
    let source = Source::open(path.as_ref(), header::watch)?;
    dense(&source.name, source.bytes())
}

/// As [`read_dense`], from the bytes of a file (gzip or not). Errors call it `name`.
///
/// # Errors
/// As [`read_dense`].
pub fn read_dense_bytes<T: Real>(name: &str, bytes: &[u8]) -> Result<(usize, usize, Vec<T>)> {
    dense(name, &plain(name, bytes, header::watch)?)
}

/// Reads the vector in the file at `path`: an n x 1 matrix in either layout.
///
/// # Errors
/// As [`read_dense`]; also [`Error::Parse`] unless there is exactly one column.
pub fn read_vector<T: Real>(path: impl AsRef<Path>) -> Result<Vec<T>> {
    let source = Source::open(path.as_ref(), header::watch)?;
    vector(&source.name, source.bytes())
}

/// As [`read_vector`], from the bytes of a file (gzip or not). Errors call it `name`.
///
/// # Errors
/// As [`read_vector`].
pub fn read_vector_bytes<T: Real>(name: &str, bytes: &[u8]) -> Result<Vec<T>> {
    vector(name, &plain(name, bytes, header::watch)?)
}

fn csr<T: Real>(name: &str, bytes: &[u8]) -> Result<Csr<T>> {
    Ok(csr_noted(name, bytes)?.0)
}

fn csr_noted<T: Real>(name: &str, bytes: &[u8]) -> Result<(Csr<T>, Vec<Note>)> {
    let (header, begin) = header::parse(name, bytes)?;
    assemble::check_sizes(name, &header, bytes.len())?;
    match header.format {
        Layout::Coordinate => {
            if let Some(csr) = direct::csr(bytes, begin, &header)? {
                return Ok((csr, Vec::new()));
            }
            let pieces = entries::coordinate(bytes, begin, &header).map_err(|f| f.locate(name, bytes))?;
            let first = pieces.iter().find_map(|piece| piece.mirrored.first());
            let note = first.map(|&(_, at)| Note::AboveDiagonal {
                file: name.to_owned(),
                line: line_and_column(bytes, at).0,
                entries: pieces.iter().map(|piece| piece.mirrored.len()).sum(),
                symmetry: header.symmetry.word(),
            });
            Ok((assemble::csr(&header, pieces)?, note.into_iter().collect()))
        }
        Layout::Array => {
            let listed = entries::array::<T>(bytes, begin, &header).map_err(|f| f.locate(name, bytes))?;
            let mut triplets = Triplets::new(header.nrows, header.ncols)?;
            let mut pushed = Ok(());
            assemble::each_of_array(&header, &listed, |row, col, value| {
                if value != T::zero() && pushed.is_ok() {
                    pushed = triplets.push(row, col, value);
                }
            });
            pushed?;
            Ok((triplets.to_csr()?, Vec::new()))
        }
    }
}

fn dense<T: Real>(name: &str, bytes: &[u8]) -> Result<(usize, usize, Vec<T>)> {
    let (header, begin) = header::parse(name, bytes)?;
    let (nrows, ncols) = (header.nrows, header.ncols);
    let elements = nrows.saturating_mul(ncols);
    let filled = |name: &str| -> Result<Vec<T>> {
        if elements > ELEMENTS_FREE.max(bytes.len().saturating_mul(64)) {
            let why = format!("{name} declares {nrows} x {ncols} elements in {} bytes: read it as CSR", bytes.len());
            return Err(Error::DoesNotFit { format: "dense", why });
        }
        let mut values = Vec::new();
        values
            .try_reserve_exact(elements)
            .map_err(|_| Error::OutOfMemory { what: "a dense matrix", bytes: (elements * T::BYTES) as u64 })?;
        values.resize(elements, T::zero());
        Ok(values)
    };
    let values = match (header.format, header.symmetry) {
        (Layout::Array, super::Symmetry::General) => {
            entries::array(bytes, begin, &header).map_err(|f| f.locate(name, bytes))?
        }
        (Layout::Array, _) => {
            let listed = entries::array::<T>(bytes, begin, &header).map_err(|f| f.locate(name, bytes))?;
            let mut values = filled(name)?;
            assemble::each_of_array(&header, &listed, |row, col, value| values[row + nrows * col] = value);
            values
        }
        (Layout::Coordinate, _) => {
            let mut values = filled(name)?;
            let matrix = csr::<T>(name, bytes)?;
            for row in 0..nrows {
                let (cols, vals) = matrix.row(row);
                for (&col, &value) in cols.iter().zip(vals) {
                    values[row + nrows * col as usize] = value;
                }
            }
            values
        }
    };
    Ok((nrows, ncols, values))
}

fn vector<T: Real>(name: &str, bytes: &[u8]) -> Result<Vec<T>> {
    let (header, begin) = header::parse(name, bytes)?;
    if header.ncols != 1 {
        let why = format!("{} columns: a vector has 1", header.ncols);
        return Err(Fault::new(header::place_of_columns(bytes, begin), why).locate(name, bytes));
    }
    Ok(dense(name, bytes)?.2)
}
