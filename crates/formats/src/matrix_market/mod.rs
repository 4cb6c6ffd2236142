//! Matrix Market files: a parallel reader and a writer that round-trips bit for bit.
//!
//! Layout (coordinate, symmetric: the file holds only the lower triangle):
//! ```text
//! %%MatrixMarket matrix coordinate real symmetric
//! % comments and blank lines may stand anywhere after the banner
//! 3 3 4
//! 1 1  4.0
//! 2 1 -1.0
//! ...
//! ```
//! Reads `coordinate` and `array`; `real`, `integer`, `pattern` (ones) and `complex` (if every imaginary part is 0);
//! `general`, `symmetric`, `skew-symmetric` and `hermitian`, expanded to the full matrix. Entries of a symmetric file
//! that lie above the diagonal are read as their mirror images, with a [`Note`]; listing a position on both sides is an
//! error. Gzip is recognised by its first two bytes and by the extension `.gz`. Line ends may be LF or CRLF. Duplicates
//! are summed in the order of the file. Indices and sizes are digits, which may follow a `+`; `1e3` is refused. Written
//! `nan` and `inf` are values like others, and the user of the matrix decides about them. A number that is too large
//! for the element type (`1e400`, in f32 also `1e300`) is refused with its place; one that is too small becomes zero.
//!
//! Files, pipes and devices are read alike, and [`read_from`] takes any reader. Data that does not begin with the
//! banner is refused after its first bytes.
//!
//! Invariants: no allocation relies on what a file declares. Every fault is an [`crate::Error`] with file, line and
//! column. The result does not depend on the number of threads.
//! Cost: the file once; besides the result, (index + value) bytes per entry of the file and one counter per row and
//! thread.
//! Reference: Boisvert, Pozo, Remington, The Matrix Market exchange formats: initial design, NISTIR 5935, 1996.

mod assemble;
mod direct;
mod entries;
mod header;
mod part;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use assemble::{merge_duplicates, order_row, order_rows};
pub use header::{Field, Header, Layout, Object, Symmetry};
pub(crate) use header::{may_begin, watch};
pub use part::{Above, Part};
pub use read::{
    Note, read_bytes, read_csr, read_csr_noted, read_dense, read_dense_bytes, read_from, read_from_noted, read_header,
    read_vector, read_vector_bytes,
};
pub use write::{WriteOptions, write_csr, write_csr_to, write_dense, write_dense_to, write_vector, write_vector_to};
