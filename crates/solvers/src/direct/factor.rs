//! The factorisations themselves: faer's symbolic and numeric phases behind one interface.
//!
//! Indices are `usize`, because a factor may have more entries than 32 bits can count. For a singular matrix faer
//! returns infinite multipliers and no error, so every factor is tried on a vector first.

use std::fmt;

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::cholesky::llt::factor::LltError;
use faer::sparse::linalg::LuError;
use faer::sparse::linalg::cholesky::{LltRef, SymbolicCholesky, factorize_symbolic_cholesky};
use faer::sparse::linalg::lu::{LuRef, NumericLu, SymbolicLu, factorize_symbolic_lu};
use faer::sparse::linalg::qr::{QrRef, SymbolicQr, factorize_symbolic_qr};
use faer::sparse::{FaerError, SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par, Side};
use spandrel_formats::{Csr, Real};

use super::fill::{self, Fill};
use super::{DirectOptions, Method};
use crate::{Error, Result};

/// A matrix in compressed sparse columns with wide indices.
pub(super) struct Columns {
    nrows: usize,
    col_ptr: Vec<usize>,
    row_idx: Vec<usize>,
}

impl Columns {
    /// The columns of `csr`, and where their values come from.
    fn values<T: Real>(csr: &Csr<T>) -> (Self, Vec<T>) {
        let (ncols, nrows, col_ptr, row_idx, values) = csr.transpose().into_parts();
        debug_assert_eq!(col_ptr.len(), ncols + 1);
        let wide = |v: Vec<u32>| v.into_iter().map(|v| v as usize).collect();
        (Self { nrows, col_ptr: wide(col_ptr), row_idx: wide(row_idx) }, values)
    }

    pub(super) fn nnz(&self) -> usize {
        self.row_idx.len()
    }

    /// The columns of the transpose, which are the rows.
    pub(super) fn transposed(&self) -> Self {
        let ncols = self.col_ptr.len() - 1;
        let mut row_ptr = vec![0; self.nrows + 1];
        for &i in &self.row_idx {
            row_ptr[i + 1] += 1;
        }
        for i in 0..self.nrows {
            row_ptr[i + 1] += row_ptr[i];
        }
        let mut next = row_ptr.clone();
        let mut col_idx = vec![0; self.nnz()];
        for j in 0..ncols {
            for &i in &self.row_idx[self.col_ptr[j]..self.col_ptr[j + 1]] {
                col_idx[next[i]] = j;
                next[i] += 1;
            }
        }
        Self { nrows: ncols, col_ptr: row_ptr, row_idx: col_idx }
    }

    pub(super) fn symbolic(&self) -> SymbolicSparseColMatRef<'_, usize> {
        SymbolicSparseColMatRef::new_checked(self.nrows, self.col_ptr.len() - 1, &self.col_ptr, None, &self.row_idx)
    }
}

/// The size of a factorisation, known from the pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Entries of the factors: exact for LL^T and QR, an upper bound for LU.
    pub entries: u64,
    /// Bytes of the factors, as exact as `entries`.
    pub bytes: u64,
    /// Operations of the numeric phase: exact for LL^T, an upper bound for LU, and a lower bound for QR.
    pub flops: f64,
}

impl Work {
    fn of(fill: Fill, entry: u64) -> Self {
        Self { entries: fill.entries, bytes: fill.entries * entry, flops: fill.flops }
    }
}

/// The symbolic phase of each factorisation.
#[derive(Debug)]
pub enum Symbolic {
    Llt(SymbolicCholesky<usize>, Work),
    Lu(SymbolicLu<usize>, Work),
    Qr(Box<SymbolicQr<usize>>, Work),
    /// A matrix without columns has nothing to factor.
    Nothing(Method),
}

fn par(parallel: bool) -> Par {
    if parallel { Par::rayon(0) } else { Par::Seq }
}

fn failed(method: Method, error: FaerError) -> Error {
    let why = match error {
        FaerError::OutOfMemory => "out of memory; use an iterative solver".to_owned(),
        FaerError::IndexOverflow => "the factor has more entries than can be counted".to_owned(),
        other => other.to_string(),
    };
    Error::Factor { method: method.as_str(), why }
}

fn buffer(method: Method, req: StackReq) -> Result<MemBuffer> {
    MemBuffer::try_new(req).map_err(|e| failed(method, e.into()))
}

fn zeros<V: Copy>(method: Method, len: usize, zero: V) -> Result<Vec<V>> {
    let mut v = Vec::new();
    v.try_reserve_exact(len).map_err(|e| failed(method, e.into()))?;
    v.resize(len, zero);
    Ok(v)
}

impl Symbolic {
    pub(super) fn new<T: Factorable>(csr: &Csr<T>, method: Method, options: &DirectOptions) -> Result<Self> {
        if csr.ncols() == 0 {
            return Ok(Symbolic::Nothing(method));
        }
        Self::of_columns(&Columns::values(csr).0, T::BYTES as u64, method, options)
    }

    /// Not generic, so that it is compiled here and not again in every crate that factors.
    fn of_columns(columns: &Columns, value: u64, method: Method, options: &DirectOptions) -> Result<Self> {
        let pattern = columns.symbolic();
        let fail = |e| failed(method, e);
        let index = size_of::<usize>() as u64;
        let symbolic = match method {
            Method::Llt => {
                let symbolic =
                    factorize_symbolic_cholesky(pattern, Side::Lower, Default::default(), Default::default())
                        .map_err(fail)?;
                let fill = Fill { entries: symbolic.len_val() as u64, flops: fill::llt_flops(&symbolic) };
                Symbolic::Llt(symbolic, Work::of(fill, value))
            }
            Method::Lu => {
                let work = Work::of(fill::lu(columns).map_err(fail)?, value + index);
                refuse(method, work.bytes, options)?; // before faer's own analysis, which is not free either
                Symbolic::Lu(factorize_symbolic_lu(pattern, Default::default()).map_err(fail)?, work)
            }
            Method::Qr => {
                let symbolic = factorize_symbolic_qr(pattern, Default::default()).map_err(fail)?;
                let bytes = symbolic.len_val() as u64 * value + symbolic.len_idx() as u64 * index;
                let flops = 2.0 * symbolic.len_val() as f64;
                let work = Work { entries: symbolic.len_val() as u64, bytes, flops };
                Symbolic::Qr(Box::new(symbolic), work)
            }
        };
        refuse(method, symbolic.work().bytes, options)?;
        Ok(symbolic)
    }

    pub(super) fn method(&self) -> Method {
        match self {
            Symbolic::Llt(..) => Method::Llt,
            Symbolic::Lu(..) => Method::Lu,
            Symbolic::Qr(..) => Method::Qr,
            Symbolic::Nothing(method) => *method,
        }
    }

    pub(super) fn work(&self) -> Work {
        match self {
            Symbolic::Llt(_, work) | Symbolic::Lu(_, work) | Symbolic::Qr(_, work) => *work,
            Symbolic::Nothing(_) => Work { entries: 0, bytes: 0, flops: 0.0 },
        }
    }
}

fn refuse(method: Method, bytes: u64, options: &DirectOptions) -> Result<()> {
    if bytes > options.memory_limit {
        return Err(Error::Fill { method: method.as_str(), bytes, limit: options.memory_limit });
    }
    Ok(())
}

/// A factor's values.
pub enum Factor<T> {
    Llt(Vec<T>),
    Lu(Box<NumericLu<usize, T>>),
    Qr(Vec<usize>, Vec<T>),
    Nothing,
}

impl<T> fmt::Debug for Factor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Factor::Llt(_) => "Llt",
            Factor::Lu(_) => "Lu",
            Factor::Qr(..) => "Qr",
            Factor::Nothing => "Nothing",
        })
    }
}

/// How factors are applied.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Columns of the right-hand side.
    pub(super) columns: usize,
    /// Whether to solve with the transpose; never for least squares.
    pub(super) transposed: bool,
    pub(super) parallel: bool,
}

/// An element type that can be factored: `f32` or `f64` ([`Real`] is sealed).
///
/// The numeric phases are compiled here, once per type. faer's kernels are large, and a generic body would be compiled
/// again in every crate that factors.
pub trait Factorable: Real + faer::traits::ComplexField {
    #[doc(hidden)]
    fn factor(csr: &Csr<Self>, symbolic: &Symbolic, options: &DirectOptions) -> Result<Factor<Self>>;
    #[doc(hidden)]
    fn solve(factor: &Factor<Self>, symbolic: &Symbolic, rhs: Vec<Self>, call: Call) -> Result<Vec<Self>>;
}

macro_rules! factorable {
    ($($T:ty),*) => {$(
        impl Factorable for $T {
            fn factor(csr: &Csr<Self>, symbolic: &Symbolic, options: &DirectOptions) -> Result<Factor<Self>> {
                Factor::compute(csr, symbolic, options)
            }
            fn solve(
                factor: &Factor<Self>,
                symbolic: &Symbolic,
                rhs: Vec<Self>,
                call: Call,
            ) -> Result<Vec<Self>> {
                factor.apply(symbolic, rhs, call)
            }
        }
    )*};
}
factorable!(f32, f64);

impl<T: Factorable> Factor<T> {
    fn compute(csr: &Csr<T>, symbolic: &Symbolic, options: &DirectOptions) -> Result<Self> {
        let (columns, values) = Columns::values(csr);
        let matrix = SparseColMatRef::new(columns.symbolic(), &values);
        let par = par(options.parallel);
        let method = symbolic.method();
        let zero_pivot = |pivot, why: &str| Error::ZeroPivot { method: method.as_str(), pivot, why: why.to_owned() };
        let zero = <T as num_traits::Zero>::zero();
        let factor = match symbolic {
            Symbolic::Nothing(_) => return Ok(Factor::Nothing),
            Symbolic::Llt(symbolic, _) => {
                let mut l = zeros(method, symbolic.len_val(), zero)?;
                let req = symbolic.factorize_numeric_llt_scratch::<T>(par, Default::default());
                let stack = &mut buffer(method, req)?;
                symbolic
                    .factorize_numeric_llt(
                        &mut l,
                        matrix,
                        Side::Lower,
                        Default::default(),
                        par,
                        MemStack::new(stack),
                        Default::default(),
                    )
                    .map_err(|LltError::NonPositivePivot { index }| {
                        zero_pivot(Some(index), "a pivot is not positive, so the matrix is not positive definite")
                    })?;
                Factor::Llt(l)
            }
            Symbolic::Lu(symbolic, _) => {
                let mut lu = NumericLu::new();
                let req = symbolic.factorize_numeric_lu_scratch::<T>(par, Default::default());
                let stack = &mut buffer(method, req)?;
                symbolic.factorize_numeric_lu(&mut lu, matrix, par, MemStack::new(stack), Default::default()).map_err(
                    |e| match e {
                        LuError::SymbolicSingular { index } => {
                            zero_pivot(Some(index), "no row is left with an entry in the column to eliminate")
                        }
                        LuError::Generic(e) => failed(method, e),
                    },
                )?;
                Factor::Lu(Box::new(lu))
            }
            Symbolic::Qr(symbolic, _) => {
                let mut indices = zeros(method, symbolic.len_idx(), 0usize)?;
                let mut val = zeros(method, symbolic.len_val(), zero)?;
                let req = symbolic.factorize_numeric_qr_scratch::<T>(par, Default::default());
                let stack = &mut buffer(method, req)?;
                symbolic.factorize_numeric_qr(
                    &mut indices,
                    &mut val,
                    matrix,
                    par,
                    MemStack::new(stack),
                    Default::default(),
                );
                Factor::Qr(indices, val)
            }
        };
        // Alternating signs and uneven sizes, so that no zero pivot hides behind a sum that happens to vanish.
        let probe = |i: usize| T::from_f64((1.0 + (i % 7) as f64 / 8.0) * if i.is_multiple_of(2) { 1.0 } else { -1.0 });
        let answer = factor.apply(
            symbolic,
            (0..csr.nrows()).map(probe).collect(),
            Call { columns: 1, transposed: false, parallel: options.parallel },
        )?;
        if answer[..csr.ncols()].iter().any(|v| !v.as_f64().is_finite()) {
            return Err(zero_pivot(None, "the factor has a zero pivot (or overflows); is the matrix rank deficient?"));
        }
        Ok(factor)
    }

    /// Solves for right-hand sides of `nrows` elements each; the first `ncols` elements of each column are the answer.
    fn apply(&self, symbolic: &Symbolic, mut rhs: Vec<T>, call: Call) -> Result<Vec<T>> {
        let Call { columns: k, transposed, parallel } = call;
        let (par, method) = (par(parallel), symbolic.method());
        let nrows = rhs.len() / k.max(1);
        let b = MatMut::from_column_major_slice_mut(&mut rhs, nrows, k);
        match (self, symbolic) {
            (Factor::Llt(l), Symbolic::Llt(symbolic, _)) => {
                let stack = &mut buffer(method, symbolic.solve_in_place_scratch::<T>(k, par))?;
                LltRef::new(symbolic, l).solve_in_place_with_conj(Conj::No, b, par, MemStack::new(stack));
            }
            (Factor::Lu(lu), Symbolic::Lu(symbolic, _)) if transposed => {
                let stack = &mut buffer(method, symbolic.solve_transpose_in_place_scratch::<T>(k, par))?;
                LuRef::new_unchecked(symbolic, lu).solve_transpose_in_place_with_conj(
                    Conj::No,
                    b,
                    par,
                    MemStack::new(stack),
                );
            }
            (Factor::Lu(lu), Symbolic::Lu(symbolic, _)) => {
                let stack = &mut buffer(method, symbolic.solve_in_place_scratch::<T>(k, par))?;
                LuRef::new_unchecked(symbolic, lu).solve_in_place_with_conj(Conj::No, b, par, MemStack::new(stack));
            }
            (Factor::Qr(indices, val), Symbolic::Qr(symbolic, _)) => {
                let stack = &mut buffer(method, symbolic.solve_in_place_scratch::<T>(k, par))?;
                // SAFETY: `indices` and `val` were filled by `factorize_numeric_qr` of this very symbolic
                // factorisation: `Direct` replaces the two together.
                let qr = unsafe { QrRef::new_unchecked(symbolic, indices, val) };
                qr.solve_in_place_with_conj(Conj::No, b, par, MemStack::new(stack));
            }
            _ => {}
        }
        Ok(rhs)
    }
}
