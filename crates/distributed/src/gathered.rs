//! Rows that ranks send each other, with columns of the whole matrix.

use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real};

use crate::rows::Column;

/// Rows of a matrix in any order, each once, with columns of the whole matrix.
#[derive(Default)]
pub(crate) struct Gathered<T> {
    /// Number of each row, and where its entries begin.
    rows: Vec<(u64, usize)>,
    pub(crate) cols: Vec<u64>,
    values: Vec<T>,
}

impl<T: Real> Gathered<T> {
    /// Room for this many rows and entries.
    pub(crate) fn with_room(rows: usize, entries: usize) -> Self {
        let (rows, cols, values) = (Vec::with_capacity(rows), Vec::with_capacity(entries), Vec::with_capacity(entries));
        Self { rows, cols, values }
    }

    pub(crate) fn push(&mut self, row: u64, cols: impl Iterator<Item = u64>, values: impl Iterator<Item = T>) {
        self.rows.push((row, self.cols.len()));
        self.cols.extend(cols);
        self.values.extend(values);
    }

    /// A row as a message: its number, the number of its entries, columns, values.
    pub(crate) fn write<J: Column>(row: u64, cols: &[J], values: &[T], message: &mut Vec<u8>) {
        message.extend_from_slice(&row.to_le_bytes());
        message.extend_from_slice(&(cols.len() as u64).to_le_bytes());
        cols.iter().for_each(|&col| message.extend_from_slice(&col.into().to_le_bytes()));
        message.extend_from_slice(bytemuck::cast_slice(values));
    }

    /// Takes over the rows of a message.
    pub(crate) fn read(&mut self, mut message: &[u8]) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        while let Some((head, rest)) = message.split_first_chunk::<16>() {
            let (row, len) = (number(&head[..8]), number(&head[8..]) as usize);
            let (cols, rest) = rest.split_at(8 * len);
            let (values, rest) = rest.split_at(T::BYTES * len);
            let values = values.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned);
            self.push(row, cols.chunks_exact(8).map(number), values);
            message = rest;
        }
    }

    /// The columns that have an entry, ascending.
    pub(crate) fn columns(&self) -> Vec<u64> {
        let (Some(&least), Some(&most)) = (self.cols.iter().min(), self.cols.iter().max()) else {
            return Vec::new();
        };
        if most - least >= SPARSE * self.cols.len() as u64 {
            let mut columns = self.cols.clone();
            columns.sort_unstable();
            columns.dedup();
            return columns;
        }
        let mut has = vec![false; (most - least + 1) as usize];
        self.cols.iter().for_each(|col| has[(col - least) as usize] = true);
        (least..).zip(has).filter_map(|(col, has)| has.then_some(col)).collect()
    }

    /// The numbers of the rows, ascending, and the rows in this order. `place` gives the new number of each column and
    /// must keep their order.
    pub(crate) fn into_csr(
        mut self,
        ncols: usize,
        place: &(dyn Fn(u64) -> Option<Ordinal> + Sync),
    ) -> spandrel_formats::Result<(Vec<u64>, Csr<T>)> {
        let mut ends: Vec<usize> = self.rows.iter().skip(1).map(|&(_, begin)| begin).collect();
        ends.push(self.cols.len());
        let mut order: Vec<(u64, usize, usize)> =
            self.rows.drain(..).zip(ends).map(|((row, begin), end)| (row, begin, end)).collect();
        order.sort_unstable();
        let (cols, values) = (&self.cols, &self.values);
        let placed = |i: usize| {
            let (_, begin, end) = order[i];
            (begin..end).filter_map(|at| Some((place(cols[at])?, values[at])))
        };
        let csr = Csr::from_rows(
            order.len(),
            ncols,
            |i| placed(i).count(),
            |i, cols, values| {
                let to = cols.iter_mut().zip(values);
                to.zip(placed(i)).for_each(|((col, value), placed)| (*col, *value) = placed);
            },
        )?;
        Ok((order.into_iter().map(|(row, _, _)| row).collect(), csr))
    }

    /// As [`Gathered::into_csr`], keeping only the columns that have an entry. Also returns the old numbers of these
    /// columns.
    pub(crate) fn compact(self) -> spandrel_formats::Result<(Vec<u64>, Vec<u64>, Csr<T>)> {
        let columns = self.columns();
        let (least, span) = match (columns.first(), columns.last()) {
            (Some(&least), Some(&most)) => (least, most - least + 1),
            _ => (0, 0),
        };
        let (rows, csr) = if span < SPARSE * columns.len() as u64 {
            let mut places = vec![0; span as usize];
            columns.iter().zip(0..).for_each(|(col, place)| places[(col - least) as usize] = place);
            self.into_csr(columns.len(), &|column| Some(places[(column - least) as usize]))?
        } else {
            let place = |column| columns.binary_search(&column).ok().map(|place| place as Ordinal);
            self.into_csr(columns.len(), &place)?
        };
        Ok((rows, columns, csr))
    }
}

/// If a table of marks would have at least this many elements per column, the columns are sorted and searched instead.
const SPARSE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_with_the_columns_that_have_entries() {
        for far in [40, 1 << 40] {
            let mut gathered = Gathered::default();
            gathered.push(9, [30, 31, far].into_iter(), [1.0, 2.0, 3.0].into_iter());
            gathered.push(4, [].into_iter(), [].into_iter());
            gathered.push(7, [20, 31].into_iter(), [4.0, 5.0].into_iter());
            let mut message = Vec::new();
            Gathered::write(5, &[far], &[6.0], &mut message);
            gathered.read(&message);
            let (rows, columns, csr) = gathered.compact().unwrap();
            assert_eq!((rows, columns), (vec![4, 5, 7, 9], vec![20, 30, 31, far]));
            assert_eq!((csr.row_ptr(), csr.col_idx()), (&[0, 0, 1, 3, 6][..], &[3, 0, 2, 1, 2, 3][..]));
            assert_eq!(csr.values(), [6.0, 4.0, 5.0, 1.0, 2.0, 3.0]);
        }
        assert_eq!(Gathered::<f64>::default().compact().unwrap().1, [0; 0]);
    }

    #[test]
    fn columns_without_a_place_are_left_out() {
        let mut gathered = Gathered::default();
        gathered.push(2, [1, 5, 8].into_iter(), [1.0, 2.0, 3.0].into_iter());
        let (_, csr) = gathered.into_csr(2, &|column| (column != 5).then_some(u32::from(column > 5))).unwrap();
        assert_eq!((csr.col_idx(), csr.values()), (&[0, 1][..], &[1.0, 3.0][..]));
    }
}
