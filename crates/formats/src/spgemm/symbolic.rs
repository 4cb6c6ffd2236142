//! The symbolic phase of a product: tasks of equal work, and the columns of the rows of C.

use std::ops::Range;

use super::numeric::ask;
use crate::index::{Offset, Ordinal};
use crate::padding::zeroed;
use crate::team::{Rooms, Team};
use crate::{Csr, Error, Real, Result};

/// Tasks begin at multiples of this many rows.
const GRANULE: usize = 16;
/// The least work of a task: its multiplications plus its rows. Starting a task on another thread costs some
/// microseconds; this much work takes about 50.
const TASK_WORK: u64 = 1 << 15;
/// Tasks per thread. Several, so that other threads can take over the tasks of a delayed one.
const TASKS_PER_THREAD: usize = 8;

/// Cuts the rows into tasks of about the same work. Returns where the rows of each begin, with the number of rows at
/// the end, and the number of multiplications.
pub(super) fn cut<T: Real>(team: &impl Team, a: &Csr<T>, b: &Csr<T>) -> Result<(Vec<usize>, u64)> {
    let (n, lengths) = (a.nrows(), b.row_ptr());
    let granules = n.div_ceil(GRANULE);
    // Running sums of the granules' work, at first only within the chunk of one task.
    let mut ends: Vec<u64> = zeroed(granules, "the work of rows")?;
    let chunk = granules.div_ceil(TASKS_PER_THREAD * team.threads()).max(256);
    let chunks = Rooms::new(ends.chunks_mut(chunk).collect());
    team.run(granules.div_ceil(chunk), &|task| {
        let Some(ends) = chunks.take(task) else { return };
        let mut end = 0;
        for (g, place) in ends.iter_mut().enumerate() {
            let first = (task * chunk + g) * GRANULE;
            let entries = a.row_ptr()[first] as usize..a.row_ptr()[n.min(first + GRANULE)] as usize;
            let length = |&k: &Ordinal| u64::from(lengths[k as usize + 1] - lengths[k as usize]);
            end += a.col_idx()[entries].iter().map(length).sum::<u64>();
            *place = end;
        }
    });
    drop(chunks);
    let mut before = 0;
    for chunk in ends.chunks_mut(chunk) {
        chunk.iter_mut().for_each(|end| *end += before);
        before = chunk[chunk.len() - 1];
    }
    // A row counts as one multiplication, so that many empty rows are also divided among threads.
    let work = |granules: usize| granules.checked_sub(1).map_or(0, |last| ends[last] + (granules * GRANULE) as u64);
    let total = work(granules);
    let tasks = (total / TASK_WORK).clamp(1, (TASKS_PER_THREAD * team.threads()) as u64) as usize;
    let mut begins = Vec::with_capacity(tasks + 1);
    for task in 0..tasks {
        let target = (u128::from(total) * task as u128 / tasks as u128) as u64;
        let (mut low, mut high) = (0, granules);
        while low < high {
            let middle = low + (high - low) / 2;
            if work(middle) < target { low = middle + 1 } else { high = middle }
        }
        // The last granule may be cut short by the end of the matrix.
        begins.push(n.min(low * GRANULE));
    }
    begins.push(n);
    begins.dedup();
    if begins.len() == 1 {
        begins.push(n);
    }
    Ok((begins, before))
}

/// The number of rows that [`is_scattered`] samples.
const SAMPLED: usize = 512;
/// Rows of B up to this far apart count as neighbours there: a few cache lines, which the hardware prefetches.
const NEAR: Ordinal = 8;

/// Returns true if a row of A mostly needs rows of B that are not near those that the previous row of A needs. Such
/// rows should be prefetched.
pub(super) fn is_scattered<T: Real>(a: &Csr<T>) -> bool {
    let step = (a.nrows() / SAMPLED).max(1);
    let (mut near, mut seen) = (0, 0);
    for i in (1..a.nrows()).step_by(step) {
        let above = a.row(i - 1).0;
        for &k in a.row(i).0 {
            let at = above.partition_point(|&other| other + NEAR < k);
            near += usize::from(above.get(at).is_some_and(|&other| other <= k + NEAR));
            seen += 1;
        }
    }
    2 * near < seen
}

/// A set of columns: bits, and a list of the words that are not empty.
pub(super) struct ColumnSet {
    words: Vec<u64>,
    touched: Vec<Ordinal>,
}

/// Columns of a word.
const WORD: Ordinal = u64::BITS;
/// A set of at least this many words is drained by a scan from its first word to its last instead of a sort, if the
/// words lie close together.
const MANY: usize = 64;

impl ColumnSet {
    pub(super) fn new(ncols: usize) -> Result<Self> {
        Ok(Self { words: zeroed(ncols.div_ceil(WORD as usize), "a set of columns")?, touched: Vec::new() })
    }

    #[inline(always)]
    fn add(&mut self, word: Ordinal, bits: u64) {
        let place = &mut self.words[word as usize];
        if *place == 0 {
            self.touched.push(word);
        }
        *place |= bits;
    }

    /// Adds columns in ascending order. Bits of one word are combined in a register before the word is written.
    #[inline(always)]
    fn add_all(&mut self, cols: &[Ordinal]) {
        let Some(&first) = cols.first() else { return };
        let (mut word, mut bits) = (first / WORD, 0);
        for &j in cols {
            if j / WORD != word {
                self.add(word, bits);
                (word, bits) = (j / WORD, 0);
            }
            bits |= 1 << (j % WORD);
        }
        self.add(word, bits);
    }

    /// Moves the columns to the end of `to`, in ascending order, and leaves the set empty.
    fn drain(&mut self, to: &mut Vec<Ordinal>) {
        let Self { words, touched } = self;
        let mut emit = |word: Ordinal| {
            let mut bits = std::mem::take(&mut words[word as usize]);
            while bits != 0 {
                to.push(word * WORD + bits.trailing_zeros());
                bits &= bits - 1;
            }
        };
        if touched.len() >= MANY
            && let (Some(&first), Some(&last)) = (touched.iter().min(), touched.iter().max())
            && ((last - first) as usize) < touched.len() * touched.len().ilog2() as usize
        {
            (first..=last).for_each(emit);
        } else {
            touched.sort_unstable();
            touched.iter().for_each(|&word| emit(word));
        }
        touched.clear();
    }
}

/// Returns the columns of these rows of C, and writes to `ends` where each row ends among them.
pub(super) fn columns<T: Real, const ASK: bool>(
    a: &Csr<T>,
    b: &Csr<T>,
    rows: Range<usize>,
    set: &mut ColumnSet,
    ends: &mut [Offset],
) -> Result<Vec<Ordinal>> {
    let (mut found, mut entry) = (Vec::new(), a.row_ptr()[rows.start] as usize);
    for (i, end) in rows.zip(ends) {
        for &k in a.row(i).0 {
            if ASK {
                ask::<T, false>(a, b, entry);
                entry += 1;
            }
            set.add_all(b.row(k as usize).0);
        }
        let most = (set.touched.len() * WORD as usize).min(b.ncols());
        let bytes = ((found.len() + most) * size_of::<Ordinal>()) as u64;
        found.try_reserve(most).map_err(|_| Error::OutOfMemory { what: "columns", bytes })?;
        set.drain(&mut found);
        // A number that is too large is capped; the sum is refused later.
        *end = found.len().min(Offset::MAX as usize) as Offset;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn columns_of_a_set_ascend() {
        let mut set = ColumnSet::new(100_000).unwrap();
        let few: Vec<Ordinal> = (0..40).map(|k| k * k * 7 % 9973).collect();
        // Enough neighbours for a scan of all words between the first and the last.
        let many: Vec<Ordinal> = (1000..20_000).filter(|k| k % 37 == 5).chain([3, 64, 127]).collect();
        for cols in [few, many, vec![0], vec![99_999, 63, 64, 0], vec![]] {
            let mut wanted = cols.clone();
            wanted.sort_unstable();
            wanted.dedup();
            let mut found = vec![7];
            for part in cols.chunks(3) {
                let mut part = part.to_vec();
                part.sort_unstable();
                part.dedup();
                set.add_all(&part);
                set.add_all(&part);
            }
            set.drain(&mut found);
            assert_eq!(found[1..], wanted);
            assert!(found[0] == 7 && set.touched.is_empty() && set.words.iter().all(|&word| word == 0));
        }
    }

    #[test]
    fn stencils_are_not_scattered_and_random_rows_are() {
        let of = |spec: &str| is_scattered(&generate::csr::<f64>(spec).unwrap());
        assert!(!of("d3n7:20") && !of("banded:n=5000,d=33") && !of("poisson2d:3"));
        assert!(of("random:n=20000,nnz_per_row=7"));
    }

    #[test]
    fn tasks_have_about_the_same_work() {
        struct Many;
        impl Team for Many {
            fn threads(&self) -> usize {
                8
            }
            fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
                (0..tasks).rev().for_each(work);
            }
        }
        let a = generate::csr::<f64>("banded:n=9001,d=45").unwrap();
        let (begins, multiplications) = cut(&Many, &a, &a).unwrap();
        let products = |rows: &[usize]| -> u64 {
            (rows[0]..rows[1]).flat_map(|i| a.row(i).0).map(|&k| a.row_nnz(k as usize) as u64).sum()
        };
        let each: Vec<u64> = begins.windows(2).map(products).collect();
        assert_eq!((begins[0], *begins.last().unwrap(), each.iter().sum()), (0, 9001, multiplications));
        let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        assert!(each.len() == 64 && *most < least + 2 * (GRANULE * 45 * 45) as u64, "{least} to {most}");
        let none = Csr::<f64>::new(0, 9001, vec![0], vec![], vec![]).unwrap();
        assert_eq!(cut(&Many, &none, &a).unwrap(), (vec![0, 0], 0));
    }
}
