//! The peers' triangular solves on the CPU: sprs and faer, each from a storage that it has a routine for.
//!
//! sprs: `lsolve_csr_dense_rhs`, `usolve_csr_dense_rhs` and their CSC relatives, u32 indices. faer:
//! `solve_lower_triangular_in_place` and its relatives on CSC; CSR is the CSC of the transpose, solved by the
//! `_transpose_` routines. All solve in place, so a call begins by copying b. A unit diagonal is given to them as
//! stored ones, because sprs divides by it and faer expects its place. CSR is taken as it is; the cost of making CSC is
//! its load.

use std::sync::Arc;

use anyhow::{Result, bail};
use faer::sparse::linalg::triangular_solve as faer_solve;
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par};
use spandrel_formats::{Csc, Csr, Format, Real};
use spandrel_sptrsv::{Diagonal, Triangle, Triangular};
use sprs::CsMatViewI;
use sprs::linalg::trisolve;

use super::problem::Problem;
use super::stopwatch;
use crate::contender::Contender;
use crate::peers::PeerReal;

/// Element types that sprs solves with.
pub trait SolveReal: PeerReal {
    /// x <- T^-1 x by sprs.
    fn by_sprs(mat: CsMatViewI<'_, Self, u32>, triangle: Triangle, x: &mut [Self]) -> Result<(), String>;
}

macro_rules! solve_real {
    ($($T:ty),*) => {
        $(impl SolveReal for $T {
            fn by_sprs(mat: CsMatViewI<'_, Self, u32>, triangle: Triangle, x: &mut [Self]) -> Result<(), String> {
                let solved = match (triangle, mat.is_csr()) {
                    (Triangle::Lower, true) => trisolve::lsolve_csr_dense_rhs(mat, x),
                    (Triangle::Lower, false) => trisolve::lsolve_csc_dense_rhs(mat, x),
                    (Triangle::Upper, true) => trisolve::usolve_csr_dense_rhs(mat, x),
                    (Triangle::Upper, false) => trisolve::usolve_csc_dense_rhs(mat, x),
                };
                solved.map_err(|why| why.to_string())
            }
        })*
    };
}
solve_real!(f32, f64);

/// A triangle in the peers' form: with every diagonal entry stored, in CSR and CSC.
pub(crate) struct Stored<T> {
    matrix: Arc<Triangular<T>>,
    /// With ones on the diagonal if it is not stored.
    ones: Option<Csr<T>>,
    csc: Csc<T>,
    csc_ms: f64,
    b: Vec<T>,
}

impl<T: Real> Stored<T> {
    pub(crate) fn new(problem: &Problem<T>) -> Result<Self> {
        let matrix = Arc::clone(&problem.matrix);
        let ones = (matrix.diagonal() == Diagonal::Unit).then(|| with_ones(&matrix)).transpose()?;
        let (csc, csc_ms) = stopwatch(|| Csc::from_csr(ones.as_ref().unwrap_or(matrix.csr())));
        Ok(Self { csc: csc?, csc_ms, ones, matrix, b: problem.b.clone() })
    }

    fn csr(&self) -> &Csr<T> {
        self.ones.as_ref().unwrap_or(self.matrix.csr())
    }

    /// Bytes of a solve by the traffic model: the stored arrays, b and x.
    fn bytes(&self) -> u64 {
        let csr = self.csr();
        (4 * csr.row_ptr().len() + (4 + T::BYTES) * csr.nnz() + 2 * T::BYTES * csr.nrows()) as u64
    }
}

/// The triangle with its unit diagonal stored.
fn with_ones<T: Real>(matrix: &Triangular<T>) -> Result<Csr<T>> {
    let n = matrix.nrows();
    let (mut ptr, mut idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let (cols, terms) = matrix.off_diagonal(i);
        let at = if matrix.triangle() == Triangle::Lower { cols.len() } else { 0 };
        idx.extend(cols[..at].iter().chain(&[i as u32]).chain(&cols[at..]));
        values.extend(terms[..at].iter().chain(&[T::one()]).chain(&terms[at..]));
        ptr.push(idx.len() as u32);
    }
    Ok(Csr::new(n, n, ptr, idx, values)?)
}

/// One peer with one storage.
pub(crate) struct Peer<'a, T> {
    name: &'static str,
    noun: &'static str,
    stored: &'a Stored<T>,
    solve: Box<dyn Fn(&mut [T]) + 'a>,
    x: Vec<T>,
    /// Milliseconds that bring the triangle into its storage.
    pub(crate) load_ms: f64,
}

impl<'a, T: SolveReal> Peer<'a, T> {
    /// The peers of one name, one per storage.
    ///
    /// # Errors
    /// An unknown name.
    pub(crate) fn all(name: &str, stored: &'a Stored<T>) -> Result<Vec<Self>> {
        let (n, triangle) = (stored.matrix.nrows(), stored.matrix.triangle());
        let (csr, csc) = (stored.csr(), &stored.csc);
        let by = |name, noun, solve, load_ms| Self { name, noun, stored, solve, x: vec![T::default(); n], load_ms };
        Ok(match name {
            "sprs" => {
                let rows = CsMatViewI::new((n, n), csr.row_ptr(), csr.col_idx(), csr.values());
                let columns = CsMatViewI::new_csc((n, n), csc.col_ptr(), csc.row_idx(), csc.values());
                let solve = |mat: CsMatViewI<'a, T, u32>| -> Box<dyn Fn(&mut [T]) + 'a> {
                    Box::new(move |x| T::by_sprs(mat, triangle, x).expect("no diagonal entry is zero"))
                };
                vec![by("sprs", "csr", solve(rows), 0.0), by("sprs", "csc", solve(columns), stored.csc_ms)]
            }
            "faer" => {
                let view = |ptr: &'a [u32], idx: &'a [u32], values: &'a [T]| {
                    SparseColMatRef::new(SymbolicSparseColMatRef::new_checked(n, n, ptr, None, idx), values)
                };
                let columns = view(csc.col_ptr(), csc.row_idx(), csc.values());
                let transposed = view(csr.row_ptr(), csr.col_idx(), csr.values());
                let unit = stored.matrix.diagonal() == Diagonal::Unit;
                let by_columns = match (triangle, unit) {
                    (Triangle::Lower, false) => faer_solve::solve_lower_triangular_in_place,
                    (Triangle::Lower, true) => faer_solve::solve_unit_lower_triangular_in_place,
                    (Triangle::Upper, false) => faer_solve::solve_upper_triangular_in_place,
                    (Triangle::Upper, true) => faer_solve::solve_unit_upper_triangular_in_place,
                };
                let by_rows = match (triangle, unit) {
                    (Triangle::Lower, false) => faer_solve::solve_upper_triangular_transpose_in_place,
                    (Triangle::Lower, true) => faer_solve::solve_unit_upper_triangular_transpose_in_place,
                    (Triangle::Upper, false) => faer_solve::solve_lower_triangular_transpose_in_place,
                    (Triangle::Upper, true) => faer_solve::solve_unit_lower_triangular_transpose_in_place,
                };
                type Routine<T> = fn(SparseColMatRef<'_, u32, T>, Conj, MatMut<'_, T>, Par);
                let solve = |mat: SparseColMatRef<'a, u32, T>, routine: Routine<T>| -> Box<dyn Fn(&mut [T]) + 'a> {
                    Box::new(move |x| {
                        routine(mat, Conj::No, MatMut::from_column_major_slice_mut(x, n, 1), Par::rayon(0));
                    })
                };
                vec![
                    by("faer", "csc", solve(columns, by_columns), stored.csc_ms),
                    by("faer", "csr", solve(transposed, by_rows), 0.0),
                ]
            }
            other => bail!("no peer of triangular solves is called {other}: sprs, faer, none"),
        })
    }
}

impl<T: SolveReal> Contender for Peer<'_, T> {
    fn noun(&self) -> String {
        self.noun.into()
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn bytes(&self) -> u64 {
        self.stored.bytes()
    }
    fn run(&mut self) {
        self.x.copy_from_slice(&self.stored.b);
        (self.solve)(&mut self.x);
    }
    fn poison(&mut self) {
        self.x.fill(<T as Real>::from_f64(f64::NAN));
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.x.iter().map(|v| v.as_f64()).collect())
    }
}
