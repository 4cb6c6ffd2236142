//! Numbers as text: one per line, or the same number on every line, separated by blanks.
//!
//! Layout: each line is a row. Blank lines are skipped, and so is the rest of a line from a word that begins with `#`
//! or `%`. Output of `numpy.savetxt` and of MATLAB's `save -ascii` and handwritten files can be read; commas cannot.

use crate::text::lines::{Fault, Parsed, cut, line_at, shown, without_mark, words};
use crate::text::numbers::{quick_value, value};
use crate::{Dense, Real, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Refuses a stream with a byte 0, which no text contains: a device that sends zeros never ends.
pub(super) fn watch(name: &str, bytes: &[u8], from: usize) -> Result<()> {
    match memchr::memchr(0, &bytes[from..]) {
        Some(at) => {
            let why = "byte 0 is no text: give numbers between blanks, a Matrix Market file or NumPy's .npy";
            Err(Fault::new(from + at, why).locate(name, bytes))
        }
        None => Ok(()),
    }
}

pub(super) fn parse<T: Real>(name: &str, bytes: &[u8]) -> Result<Dense<T>> {
    let begin = bytes.len() - without_mark(bytes).len();
    let (ncols, values) = rows::<T>(bytes, begin).map_err(|fault| fault.locate(name, bytes))?;
    let nrows = values.len() / ncols;
    if ncols == 1 {
        return Dense::new(nrows, ncols, values);
    }
    // Rows stored one after the other are the columns of the transpose.
    crate::Format::transpose(&Dense::new(ncols, nrows, values)?)
}

/// The number of numbers per line, and all numbers, line by line.
fn rows<T: Real>(bytes: &[u8], begin: usize) -> Parsed<(usize, Vec<T>)> {
    let mut at = begin;
    let ncols = loop {
        if at >= bytes.len() {
            return Err(Fault::new(bytes.len(), "no number in the file: give one per row of the matrix"));
        }
        let (line, next) = line_at(bytes, at);
        match numbers(line, at).count() {
            0 => at = next,
            ncols => break ncols,
        }
    };
    let pieces: Vec<_> = cut(bytes, at).into_par_iter().map(|range| piece(bytes, range, ncols)).collect();
    let pieces = pieces.into_iter().collect::<Parsed<Vec<_>>>()?;
    Ok((ncols, pieces.concat()))
}

/// The words of a line before its comment, each with its place.
fn numbers(line: &[u8], base: usize) -> impl Iterator<Item = (usize, &[u8])> {
    words(line, base).take_while(|(_, word)| !matches!(word[0], b'#' | b'%'))
}

fn piece<T: Real>(bytes: &[u8], range: Range<usize>, ncols: usize) -> Parsed<Vec<T>> {
    let text = &bytes[range.clone()];
    let mut values = Vec::with_capacity(memchr::memchr_iter(b'\n', text).count() + 1);
    let mut at = 0;
    while at < text.len() {
        let quick = if ncols == 1 { quick_value::<T>(&text[at..]) } else { None };
        if let Some((value, len)) = quick {
            values.push(value);
            at += len;
            continue;
        }
        let (line, next) = line_at(text, at);
        let before = values.len();
        for (place, word) in numbers(line, range.start + at) {
            if values.len() - before == ncols {
                let why = format!("unexpected {}: the first row has {}", shown(word), counted(ncols));
                return Err(Fault::new(place, why));
            }
            values.push(number((place, word))?);
        }
        let found = values.len() - before;
        if found != 0 && found != ncols {
            let end = range.start + at + line.trim_ascii_end().len();
            let why = format!("the row has {}, the first one {}", counted(found), counted(ncols));
            return Err(Fault::new(end, why));
        }
        at = next;
    }
    Ok(values)
}

fn counted(columns: usize) -> String {
    format!("{columns} {}", if columns == 1 { "column" } else { "columns" })
}

fn number<T: Real>((place, word): (usize, &[u8])) -> Parsed<T> {
    value((place, word)).map_err(|mut fault| {
        if word.iter().any(|b| matches!(b, b',' | b';')) {
            fault.why.push_str("; put blanks between columns and a point ahead of decimals");
        }
        fault
    })
}
