//! The trial of the classes that a GPU puts the rows of a CSR matrix into, for products by several lanes per row.

use spandrel_backend_cuda::{CsrKernel, Cuda};
use spandrel_formats::Csr;
use spandrel_formats::hash::splitmix64;

use crate::trial::{Verdict, wrong};

/// The device puts rows into classes by their lengths: every row into one, in ascending order, with the lanes that the
/// documentation of the kernel promises.
pub(crate) fn of_rows(be: &Cuda) -> Verdict {
    let lengths = |lengths: &dyn Fn(usize) -> usize, nrows: usize| -> spandrel_formats::Result<Csr<f64>> {
        let entries = |i: usize| (0..lengths(i)).map(move |k| (i, k, 1.0 + (i + k) as f64));
        Csr::from_triplets(nrows, 5000, (0..nrows).flat_map(entries))
    };
    let limits = [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025, 2048, 2049, 4999];
    let cases = [
        lengths(&|_| 0, 0)?,
        lengths(&|_| 3, 1)?,
        lengths(&|i| limits[i % limits.len()], 500)?,
        lengths(&|i| (splitmix64(i as u64) % 40) as usize, 9000)?,
        // Millions of entries: the kernel for large matrices, with rows that are cut.
        lengths(&|i| if i % 1000 == 7 { 2500 } else { (splitmix64(i as u64) % 300) as usize }, 12_289)?,
    ];
    for a in &cases {
        let mut wanted: Vec<(u32, Vec<u32>)> = Vec::new();
        for lanes in [512, 256, 128, 64, 32, 16, 8, 4, 2, 1] {
            let of = |len: usize| {
                if len > 2048 { 512 } else { len.div_ceil(4).max(1).next_power_of_two().min(256) as u32 }
            };
            let rows: Vec<u32> = (0..a.nrows()).filter(|&i| of(a.row(i).0.len()) == lanes).map(|i| i as u32).collect();
            if !rows.is_empty() {
                wanted.push((lanes, rows));
            }
        }
        let found = be.load_csr_with(a, CsrKernel::Binned)?.rows_by_lanes()?;
        if found != wanted {
            return Err(wrong(format!("{} rows of {} entries are in other classes", a.nrows(), a.nnz())));
        }
    }
    Ok(())
}
