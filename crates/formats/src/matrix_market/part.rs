//! A part of a coordinate file, by bytes: what one of several readers of the file parses.
//!
//! The bytes behind the header are cut into parts of nearly the same length, which end where lines end. A reader parses
//! the entries of its part. What concerns the whole file is left to the readers together: whether there are as many
//! entries as declared ([`Part::check_count`]), and whether a symmetric file lists a position on both sides of the
//! diagonal ([`Part::conflict`]).
//!
//! Cost: the part once; a plain file is mapped, so that nobody reads the bytes of other parts. A gzip file is unpacked
//! by every reader.

use std::collections::HashMap;
use std::path::Path;

use super::entries::{self, Piece};
use super::header::{self, Header, Layout, Symmetry};
use super::{assemble, watch};
use crate::text::source::Source;
use crate::{Error, Ordinal, Real, Result};

/// The entries in a part of a coordinate file.
pub struct Part<T> {
    header: Header,
    source: Source,
    /// Where the entries of the file begin.
    begin: usize,
    pieces: Vec<Piece<T>>,
}

impl<T> std::fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("file", &self.source.name).field("header", &self.header).finish_non_exhaustive()
    }
}

/// An entry of a symmetric file that lies above the diagonal, as its mirror image below: row, column, and where it
/// stands in the file.
pub type Above = (Ordinal, Ordinal, u64);

impl<T: Real> Part<T> {
    /// Reads part `number`, counted from 0, of `count` parts of the file at `path`.
    ///
    /// ```
    /// use spandrel_formats::matrix_market::{self, Part};
    ///
    /// let file = std::env::temp_dir().join(format!("spandrel-part-{}.mtx", std::process::id()));
    /// std::fs::write(&file, "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 4\n2 1 -1\n3 3 5\n")?;
    /// let mut entries = Vec::new();
    /// for number in 0..2 {
    ///     Part::<f64>::read(&file, number, 2)?.visit(|row, col, value| entries.push((row, col, value)));
    /// }
    /// assert_eq!(entries, [(0, 0, 4.0), (1, 0, -1.0), (0, 1, -1.0), (2, 2, 5.0)]);
    /// # std::fs::remove_file(file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`super::read_csr`], for the lines of this part; [`Error::DoesNotFit`] for an array file, which
    /// [`super::read_csr`] reads.
    pub fn read(path: impl AsRef<Path>, number: usize, count: usize) -> Result<Self> {
        let source = Source::open(path.as_ref(), watch)?;
        let (name, bytes) = (&source.name, source.bytes());
        let (header, begin) = header::parse(name, bytes)?;
        if header.format == Layout::Array {
            let why = format!("{name} is an array file, which is read whole");
            return Err(Error::DoesNotFit { format: "a part of a file", why });
        }
        assemble::check_sizes(name, &header, bytes.len())?;
        let cut = |number: usize| {
            let at = begin + ((bytes.len() - begin) as u128 * number as u128 / count.max(1) as u128) as usize;
            // A line belongs to the part in which it begins.
            if at == begin {
                begin
            } else {
                memchr::memchr(b'\n', &bytes[at - 1..]).map_or(bytes.len(), |len| at + len)
            }
        };
        let pieces = entries::lines(bytes, cut(number)..cut(number + 1), &header).map_err(|f| f.locate(name, bytes))?;
        Ok(Self { header, begin, pieces, source })
    }

    /// What the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of entries that the part lists.
    pub fn listed(&self) -> usize {
        self.pieces.iter().map(|piece| piece.values.len()).sum()
    }

    /// Calls `visit(row, column, value)` for each entry, indices from 0, in the order of the file. Behind an entry of a
    /// symmetric file that is not on the diagonal comes its mirror image.
    pub fn visit(&self, mut visit: impl FnMut(Ordinal, Ordinal, T)) {
        let mirrors = self.header.symmetry != Symmetry::General;
        let sign = if self.header.symmetry == Symmetry::SkewSymmetric { -T::one() } else { T::one() };
        for piece in &self.pieces {
            for ((&row, &col), &value) in piece.rows.iter().zip(&piece.cols).zip(&piece.values) {
                visit(row, col, value);
                if mirrors && row != col {
                    visit(col, row, sign * value);
                }
            }
        }
    }

    /// Checks that all parts together list as many entries as the file declares.
    ///
    /// # Errors
    /// [`Error::Parse`] with the place of the first entry too many, or that the file ends too early.
    pub fn check_count(&self, listed_by_all: usize) -> Result<()> {
        let bytes = self.source.bytes();
        let checked = entries::count(bytes, self.begin, &self.header, listed_by_all);
        checked.map_err(|fault| fault.locate(&self.source.name, bytes))
    }

    /// The entries of a symmetric file in this part that lie above the diagonal.
    pub fn above(&self) -> impl Iterator<Item = Above> + '_ {
        self.pieces
            .iter()
            .flat_map(|piece| piece.mirrored.iter().map(|&(k, at)| (piece.rows[k], piece.cols[k], at as u64)))
    }

    /// The first of the entries `above` the diagonal, which are those of all parts, whose mirror image this part lists
    /// as well.
    pub fn conflict(&self, above: impl IntoIterator<Item = Above>) -> Option<Above> {
        let mut of: HashMap<(Ordinal, Ordinal), u64> = HashMap::new();
        for (row, col, at) in above {
            let first = of.entry((row, col)).or_insert(at);
            *first = at.min(*first);
        }
        if of.is_empty() {
            return None;
        }
        let mut found: Option<Above> = None;
        for piece in &self.pieces {
            let mut mirrored = piece.mirrored.iter().map(|&(k, _)| k).peekable();
            for (k, (&row, &col)) in piece.rows.iter().zip(&piece.cols).enumerate() {
                if mirrored.next_if_eq(&k).is_some() {
                    continue;
                }
                if let Some(&at) = of.get(&(row, col))
                    && found.is_none_or(|(_, _, least)| at < least)
                {
                    found = Some((row, col, at));
                }
            }
        }
        found
    }

    /// The error for a [`Part::conflict`].
    pub fn both_halves(&self, (row, col, at): Above) -> Error {
        let bytes = self.source.bytes();
        entries::both_halves(&self.header, at as usize, (row, col)).locate(&self.source.name, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Triplets, matrix_market};

    fn written(name: &str, text: &str) -> std::path::PathBuf {
        let file = std::env::temp_dir().join(format!("spandrel-formats-part-{name}-{}.mtx", std::process::id()));
        std::fs::write(&file, text).expect("temporary folder");
        file
    }

    #[test]
    fn parts_together_are_the_whole_file() {
        let lines: String = (0..500).map(|k| format!("{} {} {}.5\n", k % 97 + 1, k * 31 % 97 + 1, k)).collect();
        let texts = [
            ("general", format!("%%MatrixMarket matrix coordinate real general\n% c\n97 97 500\n{lines}")),
            (
                "crlf",
                format!("%%MatrixMarket matrix coordinate real general\n97 97 500\n{lines}").replace('\n', "\r\n"),
            ),
            (
                "skew",
                "%%MatrixMarket matrix coordinate real skew-symmetric\n4 4 3\n2 1 1\n\n% between\n4 2 3\n1 3 7".into(),
            ),
            ("none", "%%MatrixMarket matrix coordinate real general\n5 6 0\n".into()),
        ];
        for (name, text) in texts {
            let file = written(name, &text);
            let whole = matrix_market::read_csr::<f64>(&file).expect(name);
            for count in [1, 2, 3, 7, 40] {
                let parts: Vec<_> = (0..count).map(|at| Part::<f64>::read(&file, at, count).expect(name)).collect();
                let header = parts[0].header();
                let mut triplets = Triplets::new(header.nrows, header.ncols).unwrap();
                for part in &parts {
                    part.visit(|row, col, value| triplets.push(row as usize, col as usize, value).unwrap());
                }
                assert_eq!(triplets.to_csr().unwrap(), whole, "{name} in {count} parts");
                let listed: usize = parts.iter().map(Part::listed).sum();
                parts[0].check_count(listed).expect(name);
                assert!(
                    parts[0].check_count(listed + 1).is_err() && parts[0].above().next().is_none() || name == "skew"
                );
            }
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn faults_are_told_as_by_the_whole_reader() {
        let banner = "%%MatrixMarket matrix coordinate real symmetric\n";
        let file = written("halves", &format!("{banner}3 3 4\n1 1 4\n2 1 -1\n1 3 5\n3 1 5\n"));
        let expected = matrix_market::read_csr::<f64>(&file).unwrap_err().to_string();
        let parts: Vec<_> = (0..3).map(|at| Part::<f64>::read(&file, at, 3).unwrap()).collect();
        let above: Vec<Above> = parts.iter().flat_map(Part::above).collect();
        let found: Vec<Above> = parts.iter().filter_map(|part| part.conflict(above.iter().copied())).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(parts[0].both_halves(found[0]).to_string(), expected);
        std::fs::remove_file(file).unwrap();
        for text in ["3 3 9\n1 1 4\n", "3 3 1\n1 1 4\n2 2 5\n"] {
            let file = written("count", &format!("{banner}{text}"));
            let expected = matrix_market::read_csr::<f64>(&file).unwrap_err().to_string();
            let parts: Vec<_> = (0..2).map(|at| Part::<f64>::read(&file, at, 2).unwrap()).collect();
            let error = parts[0].check_count(parts.iter().map(Part::listed).sum()).unwrap_err();
            assert_eq!(error.to_string(), expected);
            std::fs::remove_file(file).unwrap();
        }
        let file = written("array", "%%MatrixMarket matrix array real general\n1 1\n4\n");
        assert!(matches!(Part::<f64>::read(&file, 0, 2), Err(Error::DoesNotFit { .. })));
        std::fs::remove_file(file).unwrap();
    }
}
