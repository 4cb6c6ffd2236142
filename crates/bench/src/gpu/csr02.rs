//! cuSPARSE's factorisations without fill as peers: csrilu02 and csric02 in CSR, in place, on the backend's stream, in
//! f64.
//!
//! The library keeps using the buffer of the analysis in the numeric phase.
//!
//! Reference: cuSPARSE Library documentation, `cusparse<t>csrilu02()`, `cusparse<t>csric02()`,
//! `cusparseXcsrilu02_zeroPivot()`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use anyhow::{Context, Result};
use spandrel_backend_cuda::cudarc::driver::CudaSlice;
use spandrel_sptrsv::{Factor, Ilu0};

use super::Gpu;
use super::cusparse::{Cusparse, address};
use super::library::{self, functions, succeeded};

const NAME: &str = "cusparse";
/// CUSPARSE_SOLVE_POLICY_USE_LEVEL.
const BY_LEVELS: c_int = 1;
/// CUSPARSE_STATUS_ZERO_PIVOT.
const ZERO_PIVOT: c_int = 9;

type Size = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_int,
) -> c_int;
type Call = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_void,
) -> c_int;
type Pivot = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int) -> c_int;

functions! {
    Functions of "cusparse" {
        create_matrix = "cusparseCreateMatDescr"(*mut *mut c_void),
        destroy_matrix = "cusparseDestroyMatDescr"(*mut c_void),
        create_ilu = "cusparseCreateCsrilu02Info"(*mut *mut c_void),
        destroy_ilu = "cusparseDestroyCsrilu02Info"(*mut c_void),
        create_ic = "cusparseCreateCsric02Info"(*mut *mut c_void),
        destroy_ic = "cusparseDestroyCsric02Info"(*mut c_void),
        size_ilu = "cusparseDcsrilu02_bufferSize"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_int
        ),
        analyze_ilu = "cusparseDcsrilu02_analysis"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
        factor_ilu = "cusparseDcsrilu02"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
        pivot_ilu = "cusparseXcsrilu02_zeroPivot"(*mut c_void, *mut c_void, *mut c_int),
        size_ic = "cusparseDcsric02_bufferSize"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_int
        ),
        analyze_ic = "cusparseDcsric02_analysis"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
        factor_ic = "cusparseDcsric02"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
        pivot_ic = "cusparseXcsric02_zeroPivot"(*mut c_void, *mut c_void, *mut c_int),
    }
}

/// The library's calls for one factorisation.
struct Calls {
    create: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    size: Size,
    analyze: Call,
    factor: Call,
    pivot: Pivot,
}

/// The place of a square matrix on the device. Its values become those of its factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) n: usize,
    pub(crate) nnz: usize,
    pub(crate) row_ptr: u64,
    pub(crate) cols: u64,
    pub(crate) values: u64,
}

/// A factorisation of a matrix in place. Its parts outlive it.
pub(crate) struct Csr02 {
    library: Rc<Cusparse>,
    calls: Calls,
    destroy_matrix: unsafe extern "C" fn(*mut c_void) -> c_int,
    matrix: *mut c_void,
    info: *mut c_void,
    n: c_int,
    nnz: c_int,
    arrays: [*mut c_void; 3],
    buffer: Option<CudaSlice<u8>>,
}

impl Csr02 {
    /// Makes descriptors and buffer. `noun` is one of our factorisations that the library has too: [`Ilu0`], else
    /// IC(0).
    ///
    /// # Errors
    /// Those of the library; a size beyond 32 bits; out of memory.
    pub(crate) fn new(gpu: &Gpu, library: &Rc<Cusparse>, noun: &str, place: Place) -> Result<Self> {
        let f = Functions::load(library::open(NAME, &["nvJitLink"])?)?;
        gpu.bind()?;
        let calls = if noun == Ilu0::<f64>::NAME {
            Calls {
                create: f.create_ilu,
                destroy: f.destroy_ilu,
                size: f.size_ilu,
                analyze: f.analyze_ilu,
                factor: f.factor_ilu,
                pivot: f.pivot_ilu,
            }
        } else {
            Calls {
                create: f.create_ic,
                destroy: f.destroy_ic,
                size: f.size_ic,
                analyze: f.analyze_ic,
                factor: f.factor_ic,
                pivot: f.pivot_ic,
            }
        };
        let mut made = Self {
            library: Rc::clone(library),
            calls,
            destroy_matrix: f.destroy_matrix,
            matrix: null_mut(),
            info: null_mut(),
            n: c_int::try_from(place.n)?,
            nnz: c_int::try_from(place.nnz)?,
            arrays: [place.values, place.row_ptr, place.cols].map(|at| at as *mut c_void),
            buffer: None,
        };
        // SAFETY: a live place for the descriptor.
        succeeded(NAME, "cusparseCreateMatDescr", unsafe { (f.create_matrix)(&mut made.matrix) })?;
        // SAFETY: a live place for the descriptor.
        succeeded(NAME, "creating an info", unsafe { (made.calls.create)(&mut made.info) })?;
        let [values, row_ptr, cols] = made.arrays;
        let (opened, mut bytes) = (library.opened(), 0);
        // SAFETY: live descriptors, and arrays of these lengths.
        let status = unsafe {
            (made.calls.size)(opened, made.n, made.nnz, made.matrix, values, row_ptr, cols, made.info, &mut bytes)
        };
        succeeded(NAME, "csr<factor>02_bufferSize", status)?;
        let buffer = gpu.stream().alloc_zeros::<u8>(bytes.max(16) as usize).context("cuSPARSE's buffer")?;
        made.buffer = Some(buffer);
        Ok(made)
    }

    fn call(&self, gpu: &Gpu, name: &'static str, call: Call) -> Result<()> {
        let ([values, row_ptr, cols], opened) = (self.arrays, self.library.opened());
        let room = self.buffer.as_ref().map_or(0, |buffer| address(gpu, buffer)) as *mut c_void;
        // SAFETY: live descriptors, arrays of these lengths, and a buffer of the requested size.
        let status =
            unsafe { call(opened, self.n, self.nnz, self.matrix, values, row_ptr, cols, self.info, BY_LEVELS, room) };
        Ok(succeeded(NAME, name, status)?)
    }

    /// The analysis.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn analyze(&self, gpu: &Gpu) -> Result<()> {
        self.call(gpu, "csr<factor>02_analysis", self.calls.analyze)
    }

    /// The numeric phase on the present values, which it replaces by those of the factors.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn factor(&self, gpu: &Gpu) -> Result<()> {
        self.call(gpu, "csr<factor>02", self.calls.factor)
    }

    /// The row at which the numeric phase broke down. Blocks.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn broken(&self) -> Result<Option<usize>> {
        let mut row = -1;
        // SAFETY: live descriptors and a live place for the row.
        match unsafe { (self.calls.pivot)(self.library.opened(), self.info, &mut row) } {
            ZERO_PIVOT => Ok(Some(usize::try_from(row).unwrap_or(0))),
            status => Ok(succeeded(NAME, "csr<factor>02_zeroPivot", status).map(|()| None)?),
        }
    }
}

impl Drop for Csr02 {
    fn drop(&mut self) {
        for (descriptor, destroy) in [(self.matrix, self.destroy_matrix), (self.info, self.calls.destroy)] {
            if !descriptor.is_null() {
                // SAFETY: made by the library, destroyed once. Nobody can be told of a failure.
                unsafe { destroy(descriptor) };
            }
        }
    }
}
