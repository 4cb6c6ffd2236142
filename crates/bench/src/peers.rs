//! The peers' SpMV: sprs, faer and nalgebra-sparse, each with its own matrix type and best published routine.
//!
//! sprs: `prod::mul_acc_mat_vec_csr` with u32 indices (faster than usize). faer: `LinOp::apply` of `SparseRowMat` with
//! u32 indices and `Par::rayon` (which that version ignores). nalgebra-sparse: `spmm_csr_dense` with one column (usize
//! only).

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::matrix_free::LinOp;
use faer::sparse::{SparseRowMat, SymbolicSparseRowMat};
use nalgebra_sparse::CsrMatrix;
use spandrel_formats::{Csr, Real, Traffic};
use sprs::CsMatI;

use crate::contender::Contender;

/// Element types that every peer knows.
pub trait PeerReal: Real + faer::traits::RealField + nalgebra::RealField + std::ops::MulAssign {}
impl PeerReal for f32 {}
impl PeerReal for f64 {}

fn parts<T: Real>(csr: &Csr<T>) -> (usize, usize, Vec<u32>, Vec<u32>, Vec<T>) {
    csr.clone().into_parts()
}

/// sprs.
pub struct Sprs<T: PeerReal> {
    mat: CsMatI<T, u32>,
    x: Vec<T>,
    y: Vec<T>,
    bytes: u64,
}

impl<T: PeerReal> Sprs<T> {
    /// Copies the matrix.
    pub fn new(csr: &Csr<T>, x: &[T]) -> Self {
        let (m, n, ptr, idx, values) = parts(csr);
        Self {
            mat: CsMatI::new((m, n), ptr, idx, values),
            x: x.to_vec(),
            y: vec![T::default(); m],
            bytes: csr.spmv_bytes(),
        }
    }
}

impl<T: PeerReal> Contender for Sprs<T> {
    fn noun(&self) -> String {
        "csr".into()
    }
    fn name(&self) -> &'static str {
        "sprs"
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn run(&mut self) {
        self.y.fill(T::default());
        sprs::prod::mul_acc_mat_vec_csr(self.mat.view(), &self.x[..], &mut self.y[..]);
    }
    fn poison(&mut self) {
        self.y.fill(<T as Real>::from_f64(f64::NAN));
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.y.iter().map(|v| v.as_f64()).collect())
    }
}

/// faer.
pub struct Faer<T: PeerReal> {
    mat: SparseRowMat<u32, T>,
    x: faer::Mat<T>,
    y: faer::Mat<T>,
    stack: MemBuffer,
    bytes: u64,
}

impl<T: PeerReal> Faer<T> {
    /// Copies the matrix.
    pub fn new(csr: &Csr<T>, x: &[T]) -> Self {
        let (m, n, ptr, idx, values) = parts(csr);
        let mat = SparseRowMat::new(SymbolicSparseRowMat::new_checked(m, n, ptr, None, idx), values);
        let stack = MemBuffer::new(mat.as_ref().apply_scratch(1, faer::Par::rayon(0)));
        Self {
            mat,
            x: faer::Mat::from_fn(n, 1, |i, _| x[i]),
            y: faer::Mat::zeros(m, 1),
            stack,
            bytes: csr.spmv_bytes(),
        }
    }
}

impl<T: PeerReal> Contender for Faer<T> {
    fn noun(&self) -> String {
        "csr".into()
    }
    fn name(&self) -> &'static str {
        "faer"
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn run(&mut self) {
        let stack = MemStack::new(&mut self.stack);
        LinOp::apply(&self.mat.as_ref(), self.y.as_mut(), self.x.as_ref(), faer::Par::rayon(0), stack);
    }
    fn poison(&mut self) {
        self.y.fill(<T as Real>::from_f64(f64::NAN));
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some((0..self.y.nrows()).map(|i| self.y[(i, 0)].as_f64()).collect())
    }
}

/// nalgebra-sparse.
pub struct Nalgebra<T: PeerReal> {
    mat: CsrMatrix<T>,
    x: nalgebra::DVector<T>,
    y: nalgebra::DVector<T>,
    bytes: u64,
}

impl<T: PeerReal> Nalgebra<T> {
    /// Copies the matrix and widens its indices to usize.
    ///
    /// # Panics
    /// Never: a valid CSR matrix is valid there too.
    pub fn new(csr: &Csr<T>, x: &[T]) -> Self {
        let (m, n, ptr, idx, values) = parts(csr);
        let wide = |v: Vec<u32>| v.into_iter().map(|i| i as usize).collect::<Vec<_>>();
        let mat = CsrMatrix::try_from_csr_data(m, n, wide(ptr), wide(idx), values)
            .expect("the same invariants hold in both crates");
        // Its own bytes: 8-byte indices and pointers.
        let bytes = csr.spmv_bytes() + (4 * (csr.nnz() + m + 1)) as u64;
        Self { mat, x: nalgebra::DVector::from_column_slice(x), y: nalgebra::DVector::zeros(m), bytes }
    }
}

impl<T: PeerReal> Contender for Nalgebra<T> {
    fn noun(&self) -> String {
        "csr".into()
    }
    fn name(&self) -> &'static str {
        "nalgebra-sparse"
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn run(&mut self) {
        use nalgebra_sparse::ops::{Op, serial::spmm_csr_dense};
        spmm_csr_dense(
            T::default(),
            &mut self.y,
            <T as num_traits::One>::one(),
            Op::NoOp(&self.mat),
            Op::NoOp(&self.x),
        );
    }
    fn poison(&mut self) {
        // Its product multiplies y by beta = 0, so a NaN would stay. A huge number also shows that y was not written.
        self.y.fill(<T as Real>::from_f64(1e30));
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.y.iter().map(|v| v.as_f64()).collect())
    }
}
