//! The work of a factorisation, from the pattern alone: exact for Cholesky, a bound for LU.
//!
//! With row exchanges, U fits into the Cholesky factor of A^T A, and L into the Householder vectors of A = Q R,
//! whatever the pivots are. The bound costs little more than a sort of the entries. It may be several times what the
//! pivots of a particular matrix need.
//!
//! Reference: George & Ng 1987, Symbolic factorization for sparse Gaussian elimination with partial pivoting.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::perm::PermRef;
use faer::sparse::FaerError;
use faer::sparse::linalg::cholesky::{SymbolicCholesky, SymbolicCholeskyRaw};
use faer::sparse::linalg::{colamd, qr};

use super::factor::Columns;

/// The number of entries of the factors, and of the operations that compute them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) entries: u64,
    pub(super) flops: f64,
}

/// Operations of Cholesky: c^2 for a column with c entries.
pub(super) fn llt_flops(symbolic: &SymbolicCholesky<usize>) -> f64 {
    let column = |entries: usize| (entries as f64).powi(2);
    match symbolic.raw() {
        SymbolicCholeskyRaw::Simplicial(simplicial) => {
            simplicial.col_ptr().windows(2).map(|column_of| column(column_of[1] - column_of[0])).sum()
        }
        SymbolicCholeskyRaw::Supernodal(supernodal) => {
            let (begin, end) = (supernodal.supernode_begin(), supernodal.supernode_end());
            let rows = supernodal.col_ptr_for_row_idx();
            let of = |s: usize| {
                let (width, below) = (end[s] - begin[s], rows[s + 1] - rows[s]);
                (1..=width).map(|k| column(below + k)).sum::<f64>()
            };
            (0..supernodal.n_supernodes()).map(of).sum()
        }
    }
}

/// Upper bounds for the entries of L and U and for the operations.
pub(super) fn lu(columns: &Columns) -> Result<Fill, FaerError> {
    let a = columns.symbolic();
    let n = a.ncols();
    let (mut forward, mut inverse) = (vec![0usize; n], vec![0usize; n]);
    let req = colamd::order_scratch::<usize>(a.nrows(), n, columns.nnz())
        .or(qr::col_etree_scratch::<usize>(a.nrows(), n))
        .or(qr::postorder_scratch::<usize>(n))
        .or(qr::column_counts_aat_scratch::<usize>(n, a.nrows()));
    let mut memory = MemBuffer::try_new(req)?;
    let stack = MemStack::new(&mut memory);
    colamd::order(&mut forward, &mut inverse, a, Default::default(), stack)?;
    let order = PermRef::new_checked(&forward, &inverse, n);
    let (mut etree, mut post) = (vec![0usize; n], vec![0usize; n]);
    let tree = qr::col_etree(a, Some(order), &mut etree, stack);
    qr::postorder(&mut post, tree, stack);
    let (mut u, mut least) = (vec![0usize; n], vec![0usize; a.nrows()]);
    let transposed = columns.transposed();
    qr::column_counts_ata(&mut u, &mut least, transposed.symbolic(), Some(order), tree, &post, stack);

    // Householder vectors: a column has the rows that begin there and those of its children, without one row of each
    // child.
    let mut l = vec![0usize; n];
    for &column in least.iter().filter(|&&column| column < n) {
        l[column] += 1;
    }
    for (j, &parent) in tree.into_inner().iter().enumerate() {
        if let Ok(parent) = usize::try_from(parent) {
            l[parent] += l[j].saturating_sub(1);
        }
    }
    let entries = u.iter().chain(&l).map(|&count| count as u64).sum();
    // Each entry in a column of L meets each entry in the row of U.
    let flops = u.iter().zip(&l).map(|(&u, &l)| 2.0 * u as f64 * l as f64).sum();
    Ok(Fill { entries, flops })
}
