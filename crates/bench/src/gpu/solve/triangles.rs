//! The triangles of factors that cuSPARSE computed in place, for SpSV: selected by attributes from the whole matrix, as
//! in NVIDIA's samples, or extracted, so that a solve reads no other entry. The peer uses whichever solves faster.
//!
//! For extraction, the patterns and each entry's place come from the host, free of charge; the values by
//! `cusparseGather`; L^T as a separate triangle by `cusparseCsr2cscEx2`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use anyhow::{Context, Result};
use spandrel_backend::Backend;
use spandrel_backend_cuda::Vector;
use spandrel_formats::Csr;
use spandrel_sptrsv::{Diagonal, Factor, Ic0, Ilu0, Pattern, Triangle};

use crate::gpu::Gpu;
use crate::gpu::cusparse::{Cusparse, Indices, address, upload};
use crate::gpu::library::{self, functions, succeeded};
use crate::gpu::spsv::{Dense, Stored};
use crate::krylov::Method;

const NAME: &str = "cusparse";
/// cudaDataType: CUDA_R_64F; cusparseIndexType_t: CUSPARSE_INDEX_32I; CUSPARSE_INDEX_BASE_ZERO.
const R_64F: c_int = 1;
const INDEX_32I: c_int = 2;
const BASE_ZERO: c_int = 0;
/// CUSPARSE_ACTION_NUMERIC, CUSPARSE_CSR2CSC_ALG_DEFAULT.
const NUMERIC: c_int = 1;
const ALG_DEFAULT: c_int = 1;

functions! {
    Functions of "cusparse" {
        create_sparse = "cusparseCreateSpVec"(
            *mut *mut c_void, i64, i64, *mut c_void, *mut c_void, c_int, c_int, c_int
        ),
        destroy_sparse = "cusparseDestroySpVec"(*mut c_void),
        gather = "cusparseGather"(*mut c_void, *mut c_void, *mut c_void),
        transpose_size = "cusparseCsr2cscEx2_bufferSize"(
            *mut c_void, c_int, c_int, c_int, *const c_void, *const c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            c_int, c_int, c_int, c_int, *mut usize
        ),
        transpose = "cusparseCsr2cscEx2"(
            *mut c_void, c_int, c_int, c_int, *const c_void, *const c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            c_int, c_int, c_int, c_int, *mut c_void
        ),
    }
}

/// The form of the triangles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In the whole matrix. The second one of IC(0) is solved transposed.
    Whole,
    /// Extracted from it.
    Split,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::Whole, Way::Split];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Way::Whole => "whole",
            Way::Split => "split",
        }
    }
}

/// The pattern of one triangle on the device, with each entry's place in the matrix.
struct Part {
    nnz: usize,
    row_ptr: Rc<Indices>,
    cols: Rc<Indices>,
    places: Rc<Indices>,
}

impl Part {
    /// The rows of a pattern are parts of the matrix's, and the first begins at `begin`.
    fn new(gpu: &Gpu, pattern: &Pattern, begin: impl Fn(usize) -> u32) -> Result<Self> {
        let mut places = Vec::with_capacity(pattern.nnz());
        for i in 0..pattern.nrows() {
            let from = begin(i);
            places.extend(from..from + pattern.row(i).len() as u32);
        }
        Ok(Self {
            nnz: pattern.nnz(),
            row_ptr: upload(gpu, pattern.row_ptr())?,
            cols: upload(gpu, pattern.col_idx())?,
            places: upload(gpu, &places)?,
        })
    }
}

/// Patterns of both triangles of a matrix's factors; IC(0) has one.
pub(super) struct Parts {
    lower: Part,
    upper: Option<Part>,
}

impl Parts {
    /// Makes them on the host, then uploads them.
    ///
    /// # Errors
    /// A matrix without a diagonal entry; out of memory.
    pub(super) fn new(gpu: &Gpu, csr: &Csr<f64>, method: Method) -> Result<Self> {
        let (begins, ends) = (csr.row_ptr(), &csr.row_ptr()[1..]);
        Ok(match method {
            Method::Cg => {
                let factor = Ic0::symbolic(csr)?;
                Self { lower: Part::new(gpu, factor.lower(), |i| begins[i])?, upper: None }
            }
            Method::BiCgStab => {
                let factor = Ilu0::symbolic(csr)?;
                let upper = factor.upper().context("ILU(0) has an upper factor")?;
                Self {
                    lower: Part::new(gpu, factor.lower(), |i| begins[i])?,
                    upper: Some(Part::new(gpu, upper, |i| ends[i] - upper.row(i).len() as u32)?),
                }
            }
        })
    }
}

/// Both triangles, and the arrays that hold them.
pub(super) struct Triangles {
    pub(super) lower: Stored,
    pub(super) upper: Stored,
    // Kept only for their memory.
    _values: Vec<Vector<f64>>,
    _indices: Vec<Rc<Indices>>,
}

/// The triangles of a method's factors, whose values are at `values` in the pattern of an n x n matrix with this many
/// entries.
///
/// # Errors
/// Those of the library; out of memory.
pub(super) fn triangles(
    gpu: &Gpu,
    library: &Rc<Cusparse>,
    method: Method,
    (n, nnz, [row_ptr, cols]): (usize, usize, [u64; 2]),
    values: u64,
    parts: Option<&Parts>,
) -> Result<Triangles> {
    let (below, diagonal) = match method {
        Method::Cg => (Diagonal::NonUnit, Diagonal::NonUnit),
        Method::BiCgStab => (Diagonal::Unit, Diagonal::NonUnit),
    };
    let Some(Parts { lower, upper }) = parts else {
        let whole =
            Stored { n, nnz, row_ptr, cols, values, triangle: Triangle::Lower, diagonal: below, transposed: false };
        let upper = match method {
            Method::Cg => Stored { transposed: true, ..whole },
            Method::BiCgStab => Stored { triangle: Triangle::Upper, diagonal, ..whole },
        };
        return Ok(Triangles { lower: whole, upper, _values: Vec::new(), _indices: Vec::new() });
    };
    let f = Functions::load(library::open(NAME, &["nvJitLink"])?)?;
    let taken = |part: &Part, triangle, diagonal| -> Result<(Stored, Vector<f64>)> {
        let made = gather(gpu, library, &f, (values, nnz), part)?;
        let stored = Stored {
            n,
            nnz: part.nnz,
            row_ptr: part.row_ptr.device_pointer(),
            cols: part.cols.device_pointer(),
            values: made.device_pointer(),
            triangle,
            diagonal,
            transposed: false,
        };
        Ok((stored, made))
    };
    let (first, lower_values) = taken(lower, Triangle::Lower, below)?;
    let mut indices = vec![Rc::clone(&lower.row_ptr), Rc::clone(&lower.cols)];
    let (second, upper_values) = match upper {
        Some(upper) => {
            indices.extend([Rc::clone(&upper.row_ptr), Rc::clone(&upper.cols)]);
            taken(upper, Triangle::Upper, diagonal)?
        }
        None => {
            let (row_ptr, cols, made) = transposed(gpu, library, &f, &first)?;
            let stored = Stored {
                row_ptr: row_ptr.device_pointer(),
                cols: cols.device_pointer(),
                values: made.device_pointer(),
                triangle: Triangle::Upper,
                ..first
            };
            indices.extend([row_ptr, cols]);
            (stored, made)
        }
    };
    Ok(Triangles { lower: first, upper: second, _values: vec![lower_values, upper_values], _indices: indices })
}

/// The values of a part.
fn gather(
    gpu: &Gpu,
    library: &Rc<Cusparse>,
    f: &Functions,
    (values, nnz): (u64, usize),
    part: &Part,
) -> Result<Vector<f64>> {
    let made: Vector<f64> = gpu.be.zeros(part.nnz)?;
    if part.nnz == 0 {
        return Ok(made);
    }
    gpu.bind()?;
    let from = Dense::new::<f64>(nnz, values)?;
    let mut sparse = null_mut();
    let (places, to) = (part.places.device_pointer() as *mut c_void, made.device_pointer() as *mut c_void);
    // SAFETY: a live place for the descriptor and arrays of these lengths; each place is one of the matrix's.
    let status =
        unsafe { (f.create_sparse)(&mut sparse, nnz as i64, part.nnz as i64, places, to, INDEX_32I, BASE_ZERO, R_64F) };
    succeeded(NAME, "cusparseCreateSpVec", status)?;
    // SAFETY: live descriptors.
    let status = unsafe { (f.gather)(library.opened(), from.descriptor, sparse) };
    // SAFETY: made by the library, destroyed once. The enqueued work has the addresses.
    unsafe { (f.destroy_sparse)(sparse) };
    succeeded(NAME, "cusparseGather", status)?;
    Ok(made)
}

/// Row pointers, columns and values of a triangle's transpose.
fn transposed(
    gpu: &Gpu,
    library: &Rc<Cusparse>,
    f: &Functions,
    of: &Stored,
) -> Result<(Rc<Indices>, Rc<Indices>, Vector<f64>)> {
    gpu.bind()?;
    let room = |len: usize| gpu.be.zeros(len.max(1)).context("room for a transpose");
    let (row_ptr, cols) = (room(of.n + 1)?, room(of.nnz)?);
    let made: Vector<f64> = gpu.be.zeros(of.nnz)?;
    let (n, nnz, opened) = (c_int::try_from(of.n)?, c_int::try_from(of.nnz)?, library.opened());
    let [from_ptr, from_cols, from_values] = [of.row_ptr, of.cols, of.values].map(|at| at as *const c_void);
    let [to_values, to_ptr, to_cols] =
        [made.device_pointer(), row_ptr.device_pointer(), cols.device_pointer()].map(|at| at as *mut c_void);
    let mut bytes = 0;
    // SAFETY: arrays of these lengths.
    let status = unsafe {
        (f.transpose_size)(
            opened,
            n,
            n,
            nnz,
            from_values,
            from_ptr,
            from_cols,
            to_values,
            to_ptr,
            to_cols,
            R_64F,
            NUMERIC,
            BASE_ZERO,
            ALG_DEFAULT,
            &mut bytes,
        )
    };
    succeeded(NAME, "cusparseCsr2cscEx2_bufferSize", status)?;
    let buffer = gpu.stream().alloc_zeros::<u8>(bytes.max(16)).context("cuSPARSE's buffer")?;
    let buffer = address(gpu, &buffer) as *mut c_void;
    // SAFETY: as above, and a buffer of the requested size, which is freed in the stream's order.
    let status = unsafe {
        (f.transpose)(
            opened,
            n,
            n,
            nnz,
            from_values,
            from_ptr,
            from_cols,
            to_values,
            to_ptr,
            to_cols,
            R_64F,
            NUMERIC,
            BASE_ZERO,
            ALG_DEFAULT,
            buffer,
        )
    };
    succeeded(NAME, "cusparseCsr2cscEx2", status)?;
    Ok((Rc::new(row_ptr), Rc::new(cols), made))
}
