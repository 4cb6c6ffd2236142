//! Dense vectors from files, one or several side by side: right-hand sides, first guesses.
//!
//! There are three kinds of file, recognised by their first bytes; each may be gzipped:
//!
//! | kind | begins with | holds |
//! |---|---|---|
//! | Matrix Market | `%%MatrixMarket` | an `array` (or `coordinate`) matrix, a vector per column; see [`crate::matrix_market`] |
//! | NumPy | `\x93NUMPY` | `numpy.save` of f4 or f8, little-endian, 1-D or 2-D, in C or Fortran order |
//! | plain text | anything else | a number per line, or as many on each line, between blanks; `#` and `%` begin comments |
//!
//! Every fault is a typed error with the place: [`crate::Error::Parse`] for text, [`crate::Error::Binary`] for `.npy`.
//! No allocation relies on what a file declares. As in matrices, `inf` and `nan` are values, and a number that the
//! element type cannot hold is refused.
//! Cost: the file once; the values twice unless they are stored column after column.

mod npy;
mod plain;
#[cfg(test)]
mod tests;

use crate::matrix_market::{self, may_begin, read_dense_bytes};
use crate::text::source::{self, Source};
use crate::{Dense, Real, Result};
use std::io::Read;
use std::path::Path;

/// Reads the vectors in the file at `path`, one per column. A vector of n elements is n x 1.
///
/// # Errors
/// [`crate::Error::Io`]; [`crate::Error::Parse`] and [`crate::Error::Binary`] with the place;
/// [`crate::Error::TooLarge`] for 2^31 or more rows, columns or values; [`crate::Error::OutOfMemory`]; for Matrix
/// Market files as [`crate::matrix_market::read_dense`].
///
/// ```
/// let b = spandrel_formats::vectors::read_bytes::<f64>("b.txt", b"# load  wind\n1.5 0\n2.5 -3\n")?;
/// assert_eq!((b.nrows(), b.ncols()), (2, 2));
/// assert_eq!(b.column(1), [0.0, -3.0]);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
pub fn read<T: Real>(path: impl AsRef<Path>) -> Result<Dense<T>> {
    let source = Source::open(path.as_ref(), watch)?;
    parse(&source.name, source.bytes())
}

/// As [`read()`], from everything that `reader` gives, such as standard input. Errors call it `name`.
///
/// # Errors
/// As [`read()`].
pub fn read_from<T: Real>(name: &str, reader: impl Read) -> Result<Dense<T>> {
    parse(name, Source::read(name, reader, watch)?.bytes())
}

/// As [`read()`], from the bytes of a file. Errors call it `name`.
///
/// # Errors
/// As [`read()`].
pub fn read_bytes<T: Real>(name: &str, bytes: &[u8]) -> Result<Dense<T>> {
    parse(name, &source::plain(name, bytes, watch)?)
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy)]
enum Kind {
    MatrixMarket,
    Npy,
    Plain,
}

impl Kind {
    fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(npy::MAGIC) {
            Self::Npy
        } else if !bytes.trim_ascii().is_empty() && may_begin(bytes) && bytes.len() >= npy::MAGIC.len() {
            Self::MatrixMarket
        } else {
            Self::Plain
        }
    }
}

/// Refuses a stream as soon as it cannot be a file of the kind that its first bytes announce.
fn watch(name: &str, bytes: &[u8], from: usize) -> Result<()> {
    match Kind::of(bytes) {
        Kind::MatrixMarket => matrix_market::watch(name, bytes, from),
        Kind::Npy => npy::watch(name, bytes),
        Kind::Plain => plain::watch(name, bytes, from),
    }
}

fn parse<T: Real>(name: &str, bytes: &[u8]) -> Result<Dense<T>> {
    match Kind::of(bytes) {
        Kind::MatrixMarket => {
            let (nrows, ncols, values) = read_dense_bytes(name, bytes)?;
            Dense::new(nrows, ncols, values)
        }
        Kind::Npy => npy::parse(name, bytes),
        Kind::Plain => plain::parse(name, bytes),
    }
}
