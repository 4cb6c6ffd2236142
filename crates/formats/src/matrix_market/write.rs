//! Writing, with the fewest digits per number that read back to the same bits.
//!
//! Order: row after row with ascending columns, which the reader also reads fastest.
//! Cost: lines are formatted in parallel, a few blocks at a time, and written in order.

use super::header::{Field, Symmetry};
use crate::symmetry::first_unmatched;
use crate::{Csr, Dense, Error, Real, Result};
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// How a matrix is written. The default writes every entry as a real number, without a comment.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// [`Symmetry::General`] writes every entry. [`Symmetry::Symmetric`] and [`Symmetry::SkewSymmetric`] write the
    /// lower triangle, after checking that the rest is its mirror image.
    pub symmetry: Symmetry,
    /// [`Field::Real`]; [`Field::Integer`] for whole numbers; [`Field::Pattern`] to leave the values out.
    pub field: Field,
    /// A comment after the banner; each line becomes one comment line.
    pub comment: String,
}

/// Number of entries that one task formats.
const BLOCK: usize = 1 << 14;

/// Writes `matrix` to the file at `path`, gzipped if the extension is `.gz`. Reading it back gives the same bits.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if the matrix does not fit `options`.
pub fn write_csr<T: Real>(path: impl AsRef<Path>, matrix: &Csr<T>, options: &WriteOptions) -> Result<()> {
    check(matrix, options)?;
    to_file(path.as_ref(), |out| csr_lines(out, matrix, options))
}

/// Writes `matrix` to `out`, not gzipped. Errors of `out` name the file `<writer>`.
///
/// # Errors
/// As [`write_csr`].
pub fn write_csr_to<T: Real>(mut out: impl Write, matrix: &Csr<T>, options: &WriteOptions) -> Result<()> {
    check(matrix, options)?;
    csr_lines(&mut out, matrix, options).and_then(|()| out.flush()).map_err(unnamed)
}

/// Writes `vector` as an n x 1 array to the file at `path`, gzipped if the extension is `.gz`.
///
/// # Errors
/// [`Error::Io`].
pub fn write_vector<T: Real>(path: impl AsRef<Path>, vector: &[T]) -> Result<()> {
    to_file(path.as_ref(), |out| array_lines(out, (vector.len(), 1), vector))
}

/// Writes `vector` as an n x 1 array to `out`, not gzipped. Errors of `out` name the file `<writer>`.
///
/// # Errors
/// [`Error::Io`].
pub fn write_vector_to<T: Real>(mut out: impl Write, vector: &[T]) -> Result<()> {
    array_lines(&mut out, (vector.len(), 1), vector).and_then(|()| out.flush()).map_err(unnamed)
}

/// Writes `matrix` as an array, column after column, to the file at `path`, gzipped if the extension is `.gz`. Reading
/// it back with [`super::read_dense`] gives the same bits.
///
/// # Errors
/// [`Error::Io`].
pub fn write_dense<T: Real>(path: impl AsRef<Path>, matrix: &Dense<T>) -> Result<()> {
    to_file(path.as_ref(), |out| array_lines(out, (matrix.nrows(), matrix.ncols()), matrix.values()))
}

/// Writes `matrix` as an array to `out`, not gzipped. Errors of `out` name the file `<writer>`.
///
/// # Errors
/// [`Error::Io`].
pub fn write_dense_to<T: Real>(mut out: impl Write, matrix: &Dense<T>) -> Result<()> {
    let shape = (matrix.nrows(), matrix.ncols());
    array_lines(&mut out, shape, matrix.values()).and_then(|()| out.flush()).map_err(unnamed)
}

fn unnamed(source: io::Error) -> Error {
    Error::Io { file: "<writer>".to_owned(), source }
}

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let packed = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    let all = || {
        let mut out = BufWriter::new(File::create(path)?);
        if packed {
            let mut gz = flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
            write(&mut gz)?;
            gz.finish()?;
        } else {
            write(&mut out)?;
        }
        out.flush()
    };
    all().map_err(|source| Error::Io { file: path.display().to_string(), source })
}

fn check<T: Real>(matrix: &Csr<T>, options: &WriteOptions) -> Result<()> {
    let invalid = |why: String| Err(Error::Invalid { format: "matrix_market", why });
    if options.field == Field::Complex || options.symmetry == Symmetry::Hermitian {
        return invalid("a real matrix is written as real, integer or pattern, and as symmetric, not hermitian".into());
    }
    if options.field == Field::Pattern && options.symmetry == Symmetry::SkewSymmetric {
        return invalid("a pattern has no signs: write it as symmetric or general".into());
    }
    if options.field == Field::Integer {
        // Numbers from 2^53 on are whole too, but their last digits would be invented. The limit of i64 is what other
        // readers accept.
        let whole = |v: &&T| v.as_f64().fract() == 0.0 && v.as_f64().abs() < i64::MAX as f64;
        if let Some(value) = matrix.values().iter().find(|v| !whole(v)) {
            return invalid(format!("{value:?} is not a whole number below 2^63: write the matrix as real"));
        }
    }
    if options.symmetry == Symmetry::General {
        return Ok(());
    }
    let word = options.symmetry.word();
    if matrix.nrows() != matrix.ncols() {
        return invalid(format!("{} x {} is not square, so not {word}", matrix.nrows(), matrix.ncols()));
    }
    let skew = options.symmetry == Symmetry::SkewSymmetric;
    // The omitted entries must read back as they were, so a stored zero needs its mirror image too.
    let same = |diagonal: bool, value: T, mirror: Option<T>| match mirror {
        Some(_) if options.field == Field::Pattern => true,
        Some(_) if skew && diagonal => false,
        Some(other) if skew => same_bits(value, -other),
        Some(other) => same_bits(value, other),
        None => false,
    };
    if let Some((row, col)) = first_unmatched(matrix, same) {
        return invalid(format!(
            "entry ({}, {}) has no equal at ({}, {}), so the matrix is not {word}: write it as general",
            row + 1,
            col + 1,
            col + 1,
            row + 1
        ));
    }
    Ok(())
}

/// Equal including the sign of a zero, because one written number must read back as both.
fn same_bits<T: Real>(a: T, b: T) -> bool {
    a.as_f64().to_bits() == b.as_f64().to_bits() || (a.is_nan() && b.is_nan())
}

fn banner(out: &mut dyn Write, layout: &str, options: &WriteOptions) -> io::Result<()> {
    writeln!(out, "%%MatrixMarket matrix {layout} {} {}", options.field.word(), options.symmetry.word())?;
    options.comment.lines().try_for_each(|line| writeln!(out, "% {line}"))
}

/// Number of entries of a row that are written.
fn listed(cols: &[u32], row: usize, symmetry: Symmetry) -> usize {
    match symmetry {
        Symmetry::General => cols.len(),
        Symmetry::SkewSymmetric => cols.partition_point(|&col| (col as usize) < row),
        Symmetry::Symmetric | Symmetry::Hermitian => cols.partition_point(|&col| col as usize <= row),
    }
}

fn csr_lines<T: Real>(out: &mut dyn Write, matrix: &Csr<T>, options: &WriteOptions) -> io::Result<()> {
    banner(out, "coordinate", options)?;
    let count: usize = match options.symmetry {
        Symmetry::General => matrix.nnz(),
        symmetry => (0..matrix.nrows()).map(|row| listed(matrix.row(row).0, row, symmetry)).sum(),
    };
    writeln!(out, "{} {} {count}", matrix.nrows(), matrix.ncols())?;
    // Blocks of whole rows with about BLOCK entries each.
    let mut blocks = Vec::new();
    let (mut begin, mut entries) = (0, 0);
    for row in 0..matrix.nrows() {
        entries += matrix.row_nnz(row);
        if entries >= BLOCK || row + 1 == matrix.nrows() {
            blocks.push(begin..row + 1);
            (begin, entries) = (row + 1, 0);
        }
    }
    in_order(out, &blocks, |rows, text| {
        for row in rows.clone() {
            let (cols, values) = matrix.row(row);
            let len = listed(cols, row, options.symmetry);
            for (&col, &value) in cols[..len].iter().zip(values) {
                whole(text, row as u64 + 1);
                text.push(b' ');
                whole(text, u64::from(col) + 1);
                match options.field {
                    Field::Pattern => {}
                    Field::Integer => {
                        text.push(b' ');
                        let value = value.as_f64() as i64;
                        if value < 0 {
                            text.push(b'-');
                        }
                        whole(text, value.unsigned_abs());
                    }
                    Field::Real | Field::Complex => {
                        text.push(b' ');
                        number(text, value);
                    }
                }
                text.push(b'\n');
            }
        }
    })
}

/// Writes an array of this shape; its values are stored column after column.
fn array_lines<T: Real>(out: &mut dyn Write, shape: (usize, usize), values: &[T]) -> io::Result<()> {
    banner(out, "array", &WriteOptions::default())?;
    writeln!(out, "{} {}", shape.0, shape.1)?;
    let blocks: Vec<&[T]> = values.chunks(BLOCK).collect();
    in_order(out, &blocks, |block, text| {
        for &value in *block {
            number(text, value);
            text.push(b'\n');
        }
    })
}

/// Formats blocks in parallel and writes them in their order, a few at a time.
fn in_order<B: Sync>(out: &mut dyn Write, blocks: &[B], format: impl Fn(&B, &mut Vec<u8>) + Sync) -> io::Result<()> {
    let mut texts = vec![Vec::new(); 4 * rayon::current_num_threads()];
    for batch in blocks.chunks(texts.len()) {
        texts.par_iter_mut().zip(batch).for_each(|(text, block)| {
            text.clear();
            format(block, text);
        });
        for text in &texts[..batch.len()] {
            out.write_all(text)?;
        }
    }
    Ok(())
}

fn whole(text: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

/// Writes the shortest digits that read back to the same bits.
fn number<T: Real>(text: &mut Vec<u8>, value: T) {
    let mut buffer = zmij::Buffer::new();
    let digits = if T::BYTES == 4 { buffer.format(value.as_f64() as f32) } else { buffer.format(value.as_f64()) };
    text.extend_from_slice(digits.as_bytes());
}
