//! Gzip: one or several consecutive members, with errors that say what is wrong with the file.
//!
//! Reference: Deutsch, GZIP file format specification version 4.3, RFC 1952, 1996.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// The first two bytes of every gzip member.
pub(crate) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The contents of all members of a gzip stream.
pub(crate) struct Members<R> {
    /// The member that is being read; none after the last.
    member: Option<GzDecoder<Counted<R>>>,
    /// Number of bytes of the stream before it.
    begin: u64,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(Counted { input, bytes: 0 })), begin: 0 }
    }

    /// Translates the decoder's `error` to what it means for the file.
    fn told(&self, error: io::Error) -> io::Error {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if !matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            return error;
        }
        let has_header = self.member.as_ref().is_some_and(|member| member.header().is_some());
        match (error.kind(), has_header, self.begin) {
            (_, false, 1..) => trailing(self.begin),
            (UnexpectedEof, ..) => {
                io::Error::new(UnexpectedEof, "the gzip data ends too soon: the file was cut off, fetch it again")
            }
            (_, false, 0) => {
                io::Error::new(InvalidData, "not gzip, as its name says: give it a name that does not end in .gz")
            }
            (_, true, _) => io::Error::new(InvalidData, format!("the gzip data is damaged ({error}): fetch it again")),
        }
    }
}

/// The error for data after the last member; `ahead` is the number of bytes of gzip.
fn trailing(ahead: u64) -> io::Error {
    let why = format!(
        "the gzip data ends after {ahead} bytes, and what follows is not gzip: cut the file off there, or fetch it again"
    );
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = self.member.as_mut() {
            match member.read(buf) {
                Err(error) => return Err(self.told(error)),
                Ok(0) if !buf.is_empty() => {}
                Ok(len) => return Ok(len),
            }
            let Some(mut rest) = self.member.take().map(GzDecoder::into_inner) else { break };
            let next = rest.fill_buf()?;
            if next.is_empty() {
                break;
            }
            let begins = next.starts_with(&MAGIC[..next.len().min(MAGIC.len())]);
            self.begin = rest.bytes;
            if !begins {
                return Err(trailing(self.begin));
            }
            self.member = Some(GzDecoder::new(rest));
        }
        Ok(0)
    }
}

/// Counts the bytes that were read from `input`.
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.bytes += len as u64;
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }
    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.input.consume(amount);
    }
}
