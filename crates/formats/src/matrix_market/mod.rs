//! Matrix Market files: a parallel reader and a writer that round-trips bit for bit.
//!
//! Layout (coordinate, symmetric: the lower triangle alone is in the file):
//! ```text
//! %%MatrixMarket matrix coordinate real symmetric
//! % comments and blank lines may stand anywhere after the banner
//! 3 3 4
//! 1 1  4.0
//! 2 1 -1.0
//! ...
//! ```
//! Reads `coordinate` and `array`; `real`, `integer`, `pattern` (ones) and `complex` (where every imaginary part is 0);
//! `general`, `symmetric`, `skew-symmetric` and `hermitian`, expanded to the full matrix. Gzip is recognised by its first
//! two bytes and by the extension `.gz`. Line ends may be LF or CRLF. Duplicates are summed in the order of the file.
//! NaN and infinities are values like others; whoever uses the matrix decides about them.
//!
//! Invariants: nothing that a file declares is trusted for an allocation; whatever is wrong is an [`crate::Error`] with
//! file, line and column; the result does not depend on the number of threads.
//! Cost: the file once; besides the result (index + value) bytes per entry of the file and one counter per row and thread.
//! Reference: Boisvert, Pozo, Remington, The Matrix Market exchange formats: initial design, NISTIR 5935, 1996.

mod assemble;
mod entries;
mod header;
mod read;
mod source;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use assemble::order_rows;
pub use header::{Field, Header, Layout, Object, Symmetry};
pub use read::{
    read_bytes, read_csr, read_dense, read_dense_bytes, read_from, read_header, read_vector, read_vector_bytes,
};
pub use write::{WriteOptions, write_csr, write_csr_to, write_vector, write_vector_to};
