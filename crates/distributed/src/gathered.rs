//! Rows that ranks send each other, with columns of the whole matrix.

use spandrel_formats::index::{Offset, Ordinal, checked};
use spandrel_formats::{Csr, Real};

use crate::rows::Column;

/// Rows of a matrix in any order, with columns of the whole matrix.
#[derive(Default)]
pub(crate) struct Gathered<T> {
    /// Number of each row, and where its entries begin.
    rows: Vec<(u64, usize)>,
    pub(crate) cols: Vec<u64>,
    values: Vec<T>,
}

impl<T: Real> Gathered<T> {
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
        let mut columns = self.cols.clone();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The numbers of the rows, ascending, and the rows in this order. Keeps the entries in the columns for which
    /// `place` has a number; it must not exchange columns.
    pub(crate) fn into_csr(
        mut self,
        ncols: usize,
        place: impl Fn(u64) -> Option<Ordinal>,
    ) -> spandrel_formats::Result<(Vec<u64>, Csr<T>)> {
        let mut ends: Vec<usize> = self.rows.iter().skip(1).map(|&(_, begin)| begin).collect();
        ends.push(self.cols.len());
        let mut order: Vec<(u64, usize, usize)> =
            self.rows.drain(..).zip(ends).map(|((row, begin), end)| (row, begin, end)).collect();
        order.sort_unstable();
        let (mut row_ptr, mut cols, mut values) = (vec![0 as Offset], Vec::new(), Vec::new());
        for &(_, begin, end) in &order {
            for at in begin..end {
                if let Some(place) = place(self.cols[at]) {
                    cols.push(place);
                    values.push(self.values[at]);
                }
            }
            row_ptr.push(checked(cols.len(), "entries")?);
        }
        let csr = Csr::new(order.len(), ncols, row_ptr, cols, values)?;
        Ok((order.into_iter().map(|(row, _, _)| row).collect(), csr))
    }

    /// As [`Gathered::into_csr`], with a column for each that has an entry. Also returns these columns.
    pub(crate) fn compact(self) -> spandrel_formats::Result<(Vec<u64>, Vec<u64>, Csr<T>)> {
        let columns = self.columns();
        let place = |column| columns.binary_search(&column).ok().map(|place| place as Ordinal);
        let (rows, csr) = self.into_csr(columns.len(), place)?;
        Ok((rows, columns, csr))
    }
}
