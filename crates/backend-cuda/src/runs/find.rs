//! Finds rows that repeat the ones before them, on the host, piece by piece.
//!
//! Layout: [`Run`] and [`Piece`] have twins of the same names in kernels/runs.cu. A run is some periods of `step` rows.
//! The entries of a period are those of the previous one, row by row, with every column larger by `step`. `words`
//! holds, from a run's `first` on, where the rows of a period end (except the last, counted from the start of the
//! period), then the columns of the first period.
//!
//! Cost: row pointers and columns are read once if runs are long. In a piece without runs, only a small part is read
//! ([`Found::add`]).

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use spandrel_formats::{Offset, Ordinal};

/// The largest number of rows in a period: unknowns of a point.
const STEPS: usize = 5;
/// A piece is sent as runs if they take at most one part in this many of its bytes. Without runs, the host reads and
/// writes an index. With runs, it reads the index, and the runs are written, read and written again. That is less in
/// total if runs take less than a third.
const PART: usize = 3;
/// One part in this many of a piece is examined before the piece can be refused.
const GRACE: usize = 32;
/// Words that are compared at once; only if they differ, the first difference is searched.
const BLOCK: usize = 64;
/// The largest number of entries that are compared at once.
const STRIDE: usize = 4096;

/// Rows that repeat their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Run {
    pub(super) row: u32,
    pub(super) begin: u32,
    pub(super) periods: u32,
    pub(super) step: u32,
    /// The entries of a period.
    pub(super) width: u32,
    pub(super) first: u32,
}

/// Consecutive rows, all in runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Piece {
    pub(super) row: u32,
    pub(super) end_row: u32,
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) run: u32,
    pub(super) end_run: u32,
    /// The position from which the runs' `first` counts.
    pub(super) words: u32,
}

/// The rows of a matrix on the host: pointers and columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) ptr: &'a [Offset],
    pub(super) cols: &'a [Ordinal],
}

/// The number of leading words that are exactly `more` larger than their counterparts.
fn follow(words: &[u32], before: &[u32], more: u32) -> usize {
    let differs = |word: &u32, before: &u32| word.wrapping_sub(*before) ^ more;
    let mut at = 0;
    for (words, before) in words.chunks(BLOCK).zip(before.chunks(BLOCK)) {
        if words.iter().zip(before).fold(0, |any, (word, before)| any | differs(word, before)) != 0 {
            return at + words.iter().zip(before).take_while(|(word, before)| differs(word, before) == 0).count();
        }
        at += words.len();
    }
    at
}

impl Rows<'_> {
    pub(super) fn count(&self) -> usize {
        self.ptr.len() - 1
    }

    /// The number of words of row pointers and columns before a row.
    fn before(&self, row: usize) -> usize {
        row + self.ptr[row] as usize
    }

    /// The first row with this many words before it.
    pub(super) fn at(&self, words: usize) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.before(middle) < words {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The number of periods of `step` rows from a row on, before `end`; `None` if not even one ends by then.
    fn periods(&self, row: usize, end: usize, step: usize) -> usize {
        let most = (end - row) / step;
        if most < 2 {
            return most;
        }
        let ptr = |row: usize| self.ptr[row] as usize;
        let (begin, width) = (ptr(row), ptr(row + step) - ptr(row));
        // This excludes most rows that do not continue: the length of the first one, and its first column.
        let len = ptr(row + 1) - begin;
        let other = ptr(row + step);
        if ptr(row + step + 1) - other != len
            || len > 0 && self.cols[other].wrapping_sub(self.cols[begin]) != step as u32
        {
            return 1;
        }
        let (mut periods, mut ahead) = (1, BLOCK.div_ceil(width.max(1)));
        while periods < most {
            let wanted = ahead.min(most - periods);
            // The rows whose ends continue those of the previous period.
            let rows = row + periods * step + 1..row + (periods + wanted) * step + 1;
            let ends = follow(&self.ptr[rows.clone()], &self.ptr[rows.start - step..rows.end - step], width as u32);
            let same = ends / step;
            let entries = begin + periods * width..begin + (periods + same) * width;
            let before = entries.start - width..entries.end - width;
            let found = match width {
                0 => same,
                _ => follow(&self.cols[entries], &self.cols[before], step as u32) / width,
            };
            periods += found;
            if found < wanted {
                break;
            }
            ahead = (2 * ahead).min(STRIDE.div_ceil(width.max(1)));
        }
        periods
    }
}

/// The runs of some pieces.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) pieces: Vec<Piece>,
    pub(super) runs: Vec<Run>,
    pub(super) words: Vec<u32>,
}

impl Found {
    /// Stores the runs of a piece of rows, if it pays. Returns false and stores nothing if the runs exceed a third of
    /// the piece or the host lacks memory. It may give up once the runs exceed a third of the examined part and a 32nd
    /// of the piece.
    pub(super) fn add(&mut self, rows: Rows<'_>, piece: Range<usize>) -> bool {
        let (runs, words) = (self.runs.len(), self.words.len());
        let grace = (rows.before(piece.end) - rows.before(piece.start)) / GRACE;
        let mut row = piece.start;
        while row < piece.end {
            let of = |step| (step, rows.periods(row, piece.end, step));
            let (step, periods) = (1..=STEPS).map(of).find(|(_, periods)| *periods > 1).unwrap_or((1, 1));
            let (begin, width) = (rows.ptr[row], (rows.ptr[row + step] - rows.ptr[row]) as usize);
            let spent = (self.words.len() - words + step - 1 + width) + (self.runs.len() - runs + 1) * RUN_WORDS;
            let next = row + step * periods;
            let worth = spent <= (rows.before(next) - rows.before(piece.start)) / PART + grace;
            let has_room =
                worth && self.runs.try_reserve(1).is_ok() && self.words.try_reserve(step - 1 + width).is_ok();
            if !has_room {
                self.runs.truncate(runs);
                self.words.truncate(words);
                return false;
            }
            self.runs.push(Run {
                row: row as u32,
                begin,
                periods: periods as u32,
                step: step as u32,
                width: width as u32,
                first: (self.words.len() - words) as u32,
            });
            self.words.extend(rows.ptr[row + 1..row + step].iter().map(|end| end - begin));
            self.words.extend_from_slice(&rows.cols[begin as usize..begin as usize + width]);
            row = next;
        }
        self.pieces.push(Piece {
            row: piece.start as u32,
            end_row: piece.end as u32,
            begin: rows.ptr[piece.start],
            end: rows.ptr[piece.end],
            run: runs as u32,
            end_run: self.runs.len() as u32,
            words: words as u32,
        });
        true
    }
}

/// The words of a run.
const RUN_WORDS: usize = size_of::<Run>() / size_of::<u32>();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel's output for one piece, in a plain loop.
    fn expand(found: &Found, piece: &Piece, ptr: &mut [u32], cols: &mut [u32]) {
        let (mut row, mut entry) = (piece.row, piece.begin);
        for run in &found.runs[piece.run as usize..piece.end_run as usize] {
            assert_eq!((run.row, run.begin), (row, entry), "runs lie one after the other");
            let words = &found.words[(piece.words + run.first) as usize..];
            for period in 0..run.periods {
                for k in 0..run.step {
                    let end = if k + 1 < run.step { words[k as usize] } else { run.width };
                    row += 1;
                    ptr[row as usize] = run.begin + period * run.width + end;
                }
                for k in 0..run.width {
                    cols[entry as usize] = words[(run.step - 1 + k) as usize] + period * run.step;
                    entry += 1;
                }
            }
        }
        assert_eq!((row, entry), (piece.end_row, piece.end), "they are the whole piece");
    }

    /// Examines pieces and checks that what was taken is complete, taken once, and small. Returns the rows that were
    /// not taken.
    fn check(ptr: &[u32], cols: &[u32], piece: usize) -> usize {
        let rows = Rows { ptr, cols };
        let (mut found, mut left) = (Found::default(), 0);
        let (mut to_ptr, mut to_cols) = (vec![u32::MAX; ptr.len()], vec![u32::MAX; cols.len()]);
        to_ptr[0] = 0;
        let mut at = 0;
        loop {
            let range = rows.at(at)..rows.at(at + piece);
            if range.start == rows.count() {
                break;
            }
            at += piece;
            if range.is_empty() {
                continue;
            }
            let before = (found.pieces.len(), found.runs.len(), found.words.len());
            if found.add(rows, range.clone()) {
                let spent = found.words.len() - before.2 + RUN_WORDS * (found.runs.len() - before.1);
                let all = rows.before(range.end) - rows.before(range.start);
                assert!(spent <= all / PART + all / GRACE, "{spent} words for {all}");
            } else {
                assert_eq!((found.pieces.len(), found.runs.len(), found.words.len()), before, "nothing is taken");
                left += range.len();
                to_ptr[range.start + 1..=range.end].copy_from_slice(&ptr[range.start + 1..=range.end]);
                let entries = ptr[range.start] as usize..ptr[range.end] as usize;
                to_cols[entries.clone()].copy_from_slice(&cols[entries]);
            }
        }
        for piece in &found.pieces {
            let rows = piece.row as usize + 1..piece.end_row as usize + 1;
            assert!(to_ptr[rows].iter().all(|&word| word == u32::MAX), "no row is in two pieces");
            expand(&found, piece, &mut to_ptr, &mut to_cols);
        }
        assert_eq!((to_ptr.as_slice(), to_cols.as_slice()), (ptr, cols));
        left
    }

    /// Rows of periodic patterns: lengths and gaps of one period's rows, the number of periods, and the shift of the
    /// columns from one to the next.
    fn rows(parts: &[(Vec<Vec<u32>>, u32)]) -> (Vec<u32>, Vec<u32>) {
        let (mut ptr, mut cols) = (vec![0], Vec::new());
        for (period, times) in parts {
            for time in 0..*times {
                for row in period {
                    let mut col = time * period.len() as u32;
                    for gap in row {
                        col += gap;
                        cols.push(col);
                    }
                    ptr.push(cols.len() as u32);
                }
            }
        }
        (ptr, cols)
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_there(
            parts in prop::collection::vec(
                (prop::collection::vec(prop::collection::vec(1u32..9, 0..9), 1..7), prop_oneof![1u32..4, 1u32..200]), 0..12),
            piece in prop_oneof![1usize..64, 1usize..5000],
            changed in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let (ptr, mut cols) = rows(&parts);
            if let Some(changed) = changed.filter(|_| !cols.is_empty()) {
                cols[changed.index(ptr[ptr.len() - 1] as usize)] ^= 1;
            }
            check(&ptr, &cols, piece);
        }
    }

    #[test]
    fn stencils_bands_and_unknowns_are_runs() {
        let lines = |len: u32| {
            let first = (vec![vec![1, 1, 254, 1]], 1);
            let inner = (vec![vec![1, 1, 1, 253, 1, 1]], len);
            (0..40).flat_map(|_| [first.clone(), inner.clone(), first.clone()]).collect::<Vec<_>>()
        };
        let (ptr, cols) = rows(&lines(254));
        assert_eq!(check(&ptr, &cols, 1000), 0);
        let (ptr, cols) = rows(&lines(4));
        assert_eq!(check(&ptr, &cols, 1000), 40 * 6, "lines too short to be worth it");
        for step in 1..=STEPS {
            // Unknowns that are coupled within each point and with the next point, so that the rows of a point are
            // alike.
            let period: Vec<Vec<u32>> = (0..step).map(|k| vec![1; 2 * step - k % 2]).collect();
            let (ptr, cols) = rows(&[(period, 5000)]);
            assert_eq!(check(&ptr, &cols, 4000), 0, "{step} unknowns");
            let rows = Rows { ptr: &ptr, cols: &cols };
            let mut found = Found::default();
            assert!(found.add(rows, 0..rows.count()));
            assert_eq!((found.runs.len(), found.runs[0].step as usize), (1, step));
        }
        let (ptr, cols) = rows(&[(vec![vec![]], 70_000), (vec![vec![3]], 1), (vec![vec![]], 70_000)]);
        assert_eq!(check(&ptr, &cols, 4096), 0, "empty rows");
    }

    #[test]
    fn rows_that_do_not_repeat_are_refused_soon() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 20
        };
        let parts: Vec<_> = (0..20_000).map(|_| (vec![(0..7).map(|_| 1 + next()).collect()], 1)).collect();
        let (ptr, cols) = rows(&parts);
        assert_eq!(check(&ptr, &cols, 8192), 20_000);
        let mut found = Found::default();
        assert!(!found.add(Rows { ptr: &ptr, cols: &cols }, 0..20_000));
        // A 32nd, half of that, and what a vector reserves.
        assert!(found.words.capacity() <= cols.len() / 8, "{}", found.words.capacity());
    }
}
