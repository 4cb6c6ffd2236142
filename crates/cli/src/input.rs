//! The inputs: a matrix from a file, from stdin or from a generator, and vectors from files or stdin. The name `-`
//! means stdin.

use std::io::ErrorKind;
use std::path::Path;

use rayon::prelude::*;
use spandrel_formats::{Csr, Dense, Error, Real, generate, matrix_market, vectors};

use crate::failure::{Failure, Result};
use crate::output::DASH;
use crate::progress::Spinner;

/// How stdin is called in reports and messages.
const STDIN: &str = "stdin";

/// Reads or generates the matrix that `text` names.
///
/// # Errors
/// Kinds `io`, `parse`, `spec`, `too_large`, `out_of_memory`, ...
pub(crate) fn matrix<T: Real>(text: &str) -> Result<Csr<T>> {
    if generate::is_spec(text) {
        return generated(text, "; `spandrel generate --list` shows all, a file of that name is reached as ./NAME");
    }
    let spinner = Spinner::start(format!("reading {}", name(text)));
    let (a, notes) = if text == DASH {
        matrix_market::read_from_noted(STDIN, std::io::stdin().lock())?
    } else {
        matrix_market::read_csr_noted(text).map_err(|error| {
            explain(error, "give a Matrix Market file (.mtx, .mtx.gz) or a generator such as d3n7:64")
        })?
    };
    drop(spinner);
    for note in notes {
        crate::progress::note(&note.to_string());
    }
    Ok(a)
}

/// An input as it is called in reports and messages.
pub(crate) fn name(text: &str) -> &str {
    if text == DASH { STDIN } else { text }
}

/// Generates the matrix that `spec` names; `advice` is appended to errors.
///
/// # Errors
/// Kind `spec`, and those of too large a matrix.
pub(crate) fn generated<T: Real>(spec: &str, advice: &str) -> Result<Csr<T>> {
    let _spinner = Spinner::start(format!("generating {spec}"));
    generate::csr(spec).map_err(|error| {
        let about_spec = matches!(error, Error::Spec { .. });
        let mut failure = Failure::from(error);
        if about_spec {
            failure.message.push_str(advice);
        }
        failure
    })
}

/// The file that MATRIX names, unless it names a generator.
pub(crate) fn file(text: &str) -> Option<&Path> {
    (!generate::is_spec(text)).then(|| Path::new(text))
}

/// Reads one or several vectors of `expected` elements, one per column; `what` names their role, `advice` says what to
/// give if the file is missing.
///
/// # Errors
/// As [`matrix`]; kind `shape` with another length, and for a file without a column.
pub(crate) fn columns<T: Real>(path: &Path, what: &str, expected: usize, advice: &str) -> Result<Dense<T>> {
    let read: Dense<T> = table(path, advice)?;
    let shown = path.display().to_string();
    let shown = name(&shown);
    if read.ncols() == 0 {
        return Err(Failure::new("shape", format!("{shown}: {what} has no column; give at least one")));
    }
    if read.nrows() != expected {
        let several = if read.ncols() > 1 { " in each column" } else { "" };
        return Err(Failure::new(
            "shape",
            format!(
                "{shown}: {what} has {}{several}, the matrix needs {expected}; give one number per {}",
                counted(read.nrows(), "element"),
                if what == "x0" { "column" } else { "row" }
            ),
        ));
    }
    Ok(read)
}

/// Reads a table of numbers; `advice` says what to give if the file is missing.
///
/// # Errors
/// As [`matrix`].
pub(crate) fn table<T: Real>(path: &Path, advice: &str) -> Result<Dense<T>> {
    let shown = path.display().to_string();
    let _spinner = Spinner::start(format!("reading {}", name(&shown)));
    if path == Path::new(DASH) {
        return Ok(vectors::read_from(STDIN, std::io::stdin().lock())?);
    }
    vectors::read(path).map_err(|error| explain(error, advice))
}

/// The failure for an error, with advice if the file is missing.
fn explain(error: Error, advice: &str) -> Failure {
    let missing = matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound);
    let mut failure = Failure::from(error);
    if missing {
        failure.message.push_str("; ");
        failure.message.push_str(advice);
    }
    failure
}

/// The first entry of `a` that is infinite or NaN, in words.
pub(crate) fn first_not_finite<T: Real>(a: &Csr<T>) -> Option<String> {
    let at = a.values().par_iter().with_min_len(1 << 16).position_first(|v| !v.is_finite())?;
    Some(not_finite_at(a, at))
}

/// The entry of `a` at a place among its values, in words.
pub(crate) fn not_finite_at<T: Real>(a: &Csr<T>, at: usize) -> String {
    let row = a.row_ptr().partition_point(|&start| start as usize <= at) - 1;
    let word = not_finite_word(a.values()[at]);
    format!("the matrix's entry at row {}, column {} (counted from 1) is {word}", row + 1, a.col_idx()[at] + 1)
}

/// What a value that is not finite is. An infinite `f32` may be finite in the file.
pub(crate) fn not_finite_word<T: Real>(value: T) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if T::BYTES == 4 {
        "infinite in f32: use --precision f64"
    } else {
        "infinite"
    }
}

/// Rows x columns, entries.
pub(crate) fn describe<T: Real>(a: &Csr<T>) -> String {
    format!("{} x {}, {}", grouped(a.nrows()), grouped(a.ncols()), counted(a.nnz(), "entry"))
}

/// A number of things: `1 entry`, `1,200 entries`.
pub(crate) fn counted(n: usize, thing: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    match thing.strip_suffix('y') {
        Some(stem) if n != 1 => format!("{} {stem}ies", grouped(n)),
        _ => format!("{} {thing}{ending}", grouped(n)),
    }
}

/// Digits in groups of three.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a decimal unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Seconds with a fitting unit.
pub(crate) fn seconds(value: f64) -> String {
    if value < 0.9995e-3 {
        format!("{:.0} us", value * 1e6)
    } else if value < 0.9995 {
        format!("{:.1} ms", value * 1e3)
    } else {
        format!("{value:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(["0", "12", "123", "1,234", "1,234,567"], [0, 12, 123, 1234, 1_234_567].map(grouped)[..]);
        assert_eq!(["0 B", "999 B", "1.0 kB", "1.5 MB"], [0, 999, 1000, 1_500_000].map(bytes)[..]);
        assert_eq!(["5 us", "1.0 ms", "2.5 ms", "1.00 s"], [5e-6, 1e-3, 2.5e-3, 1.0].map(seconds)[..]);
    }

    #[test]
    fn things_are_counted_in_words() {
        let entries = [0, 1, 2, 1234].map(|n| counted(n, "entry"));
        assert_eq!(entries, ["0 entries", "1 entry", "2 entries", "1,234 entries"]);
        assert_eq!([1, 2].map(|n| counted(n, "row")), ["1 row", "2 rows"]);
    }

    #[test]
    fn the_first_bad_entry_is_named_from_one() {
        let a = Csr::new(3, 3, vec![0, 1, 1, 3], vec![0, 1, 2], vec![1.0, f64::NAN, f64::INFINITY]).unwrap();
        assert_eq!(first_not_finite(&a).unwrap(), "the matrix's entry at row 3, column 2 (counted from 1) is NaN");
        assert_eq!(first_not_finite(&Csr::<f64>::identity(4).unwrap()), None);
        let narrow = Csr::new(1, 1, vec![0, 1], vec![0], vec![f32::INFINITY]).unwrap();
        assert!(first_not_finite(&narrow).unwrap().ends_with("is infinite in f32: use --precision f64"));
    }
}
