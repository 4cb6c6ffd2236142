//! What the readers of files share: where bytes come from, lines and words, places in them, numbers.

pub(crate) mod gzip;
pub(crate) mod lines;
pub(crate) mod numbers;
pub(crate) mod source;
