//! C = A B of sparse matrices, for the operators of coarse grids.
//!
//! C has an entry wherever a product of two entries falls, also where the sum is zero.
//! Order: from +0 over the entries of A's row in stored order, product and sum each rounded.
//! Cost: for each entry of A one merge of a row of B into the row of C; a row of C is kept sorted while it grows, which suits rows of a
//! few hundred entries (stencils) and not dense ones. Rows in parallel; twice the memory of C for a moment.
//! Reference: Gustavson 1978, Two fast algorithms for sparse matrices.

use rayon::prelude::*;

use crate::index::{Offset, Ordinal, checked};
use crate::{Csr, Error, Real, Result};

/// Rows per task.
const CHUNK: usize = 4096;

/// A B. See the module's head.
///
/// ```
/// use spandrel_formats::{generate, product};
///
/// let a = generate::csr::<f64>("poisson1d:4")?;
/// let square = product(&a, &a)?;
/// assert_eq!(square.row(0), (&[0u32, 1, 2][..], &[5.0, -4.0, 1.0][..]));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] unless A has as many columns as B rows; [`Error::TooLarge`].
pub fn product<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Result<Csr<T>> {
    if a.ncols() != b.nrows() {
        return Err(Error::Shape {
            op: "product",
            what: "the left factor's row",
            found: a.ncols(),
            expected: b.nrows(),
        });
    }
    let n = a.nrows();
    let rows = |begin: usize| {
        let (mut lengths, mut cols, mut values) = (Vec::with_capacity(CHUNK), Vec::new(), Vec::new());
        let mut row: Vec<(Ordinal, T)> = Vec::new();
        for i in begin..n.min(begin + CHUNK) {
            row.clear();
            let (inner, left) = a.row(i);
            for (&k, &factor) in inner.iter().zip(left) {
                merge(&mut row, factor, b.row(k as usize));
            }
            lengths.push(row.len());
            cols.extend(row.iter().map(|entry| entry.0));
            values.extend(row.iter().map(|entry| entry.1));
        }
        (lengths, cols, values)
    };
    let chunks: Vec<_> = (0..n.div_ceil(CHUNK)).into_par_iter().map(|chunk| rows(chunk * CHUNK)).collect();

    let nnz = chunks.iter().map(|chunk| chunk.1.len()).sum();
    checked(nnz, "entries")?;
    let mut row_ptr: Vec<Offset> = Vec::with_capacity(n + 1);
    let (mut col_idx, mut all) = (Vec::with_capacity(nnz), Vec::with_capacity(nnz));
    row_ptr.push(0);
    let mut end = 0;
    for (lengths, cols, values) in chunks {
        for length in lengths {
            end += length;
            row_ptr.push(end as Offset);
        }
        col_idx.extend(cols);
        all.extend(values);
    }
    Csr::new(n, b.ncols(), row_ptr, col_idx, all)
}

/// row += factor * other.
fn merge<T: Real>(row: &mut Vec<(Ordinal, T)>, factor: T, (cols, values): (&[Ordinal], &[T])) {
    let mut at = cols.first().map_or(0, |&first| row.partition_point(|entry| entry.0 < first));
    for (&j, &v) in cols.iter().zip(values) {
        while at < row.len() && row[at].0 < j {
            at += 1;
        }
        if at == row.len() || row[at].0 > j {
            row.insert(at, (j, T::zero()));
        }
        row[at].1 += factor * v;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn it_is_the_product_of_dense_matrices() {
        let a = generate::csr::<f64>("random:n=60,nnz_per_row=7").unwrap();
        let b = generate::csr::<f64>("convdiff2d:6x10").unwrap();
        let c = product(&a, &b).unwrap();
        for i in 0..60 {
            for j in 0..60 {
                let terms = (0..60).map(|k| a.get(i, k).unwrap_or(0.0) * b.get(k, j).unwrap_or(0.0));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t: f64| (sum + t, size + t.abs()));
                let error = (c.get(i, j).unwrap_or(0.0) - sum).abs();
                assert!(error <= 60.0 * f64::EPSILON * size, "{i} {j}");
            }
        }
        let rectangular = Csr::new(2, 60, vec![0, 0, 1], vec![59], vec![2.0]).unwrap();
        let d = product(&rectangular, &b).unwrap();
        assert_eq!((d.nrows(), d.ncols(), d.row_nnz(0)), (2, 60, 0));
        assert_eq!(d.row(1).0, b.row(59).0);
        assert!(matches!(product(&b, &rectangular), Err(Error::Shape { .. })));
    }
}
