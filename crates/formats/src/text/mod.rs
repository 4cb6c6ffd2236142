//! The parts that all readers of files share: sources of bytes, lines and words, places in a file, numbers.

pub(crate) mod gzip;
pub(crate) mod lines;
pub(crate) mod numbers;
pub(crate) mod source;
