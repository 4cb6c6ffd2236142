//! The errors of matrices, files and generator specifications.

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate: what is wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There are more rows, columns or entries than a stored index can hold.
    #[error("{count} {what}: at most {limit} fit the 32-bit indices of this build; split the problem")]
    TooLarge {
        /// What is counted: `"rows"`, `"columns"`, `"entries"`.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// How many fit.
        limit: u64,
    },
    /// The lengths of arrays do not match each other or the declared shape.
    #[error("{format}: {array} has {found} elements, expected {expected}")]
    Length {
        /// The storage format.
        format: &'static str,
        /// The offending array.
        array: &'static str,
        /// Its length.
        found: usize,
        /// The length that the other arrays and the shape require.
        expected: usize,
    },
    /// A pointer array does not start at 0, decreases, or does not end at the number of entries.
    #[error(
        "{format}: {array}[{at}] = {found} breaks the rule that {array} starts at 0, never decreases and ends at the number of entries"
    )]
    Pointer {
        /// The storage format.
        format: &'static str,
        /// The offending array.
        array: &'static str,
        /// Position in it.
        at: usize,
        /// The value there.
        found: u64,
    },
    /// An index lies outside the matrix.
    #[error("{format}: {array}[{at}] = {found} is outside 0..{bound}")]
    IndexOutOfRange {
        /// The storage format.
        format: &'static str,
        /// The offending array.
        array: &'static str,
        /// Position in it.
        at: usize,
        /// The value there.
        found: i64,
        /// One past the largest legal index.
        bound: usize,
    },
    /// Indices do not ascend strictly.
    #[error(
        "{format}: {array}[{at}] does not exceed the entry before it: sort the entries and sum duplicates first (see Triplets)"
    )]
    Unsorted {
        /// The storage format.
        format: &'static str,
        /// The offending array.
        array: &'static str,
        /// Position in it.
        at: usize,
    },
    /// Another error, with the row in which it was found. Used for a matrix that is checked on a device.
    #[error("row {row}: {error}")]
    InRow {
        /// The row.
        row: usize,
        /// What is wrong there.
        error: Box<Error>,
    },
    /// The format's invariants are violated in another way.
    #[error("{format}: {why}")]
    Invalid {
        /// The storage format.
        format: &'static str,
        /// What is wrong and what to do.
        why: String,
    },
    /// This format cannot hold the matrix within its limits.
    #[error("{format} does not fit this matrix: {why}")]
    DoesNotFit {
        /// The storage format.
        format: &'static str,
        /// Which limit, and by how much.
        why: String,
    },
    /// The shapes of two operands do not match.
    #[error("{op}: {what} has {found} elements, expected {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operand.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The size it should have.
        expected: usize,
    },
    /// Memory could not be allocated.
    #[error("out of memory: {bytes} bytes for {what}")]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
    },
    /// A text file (Matrix Market, numbers in columns) is wrong at a place.
    #[error("{file}:{line}:{column}: {why}")]
    Parse {
        /// The file's name, or `<memory>`.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// What is wrong there.
        why: String,
    },
    /// A binary file is wrong at a place.
    #[error("{file}: byte {at}: {why}")]
    Binary {
        /// The file's name, or `<memory>`.
        file: String,
        /// Byte, from 0.
        at: u64,
        /// What is wrong there.
        why: String,
    },
    /// A file could not be read or written.
    #[error("{file}: {source}")]
    Io {
        /// The file's name.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The specification of a generated matrix is wrong.
    #[error("generator {spec:?}: {why}")]
    Spec {
        /// The text that was given.
        spec: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}
