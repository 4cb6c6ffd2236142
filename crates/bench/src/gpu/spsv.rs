//! cuSPARSE's triangular solve as a peer: SpSV in CSR, on the backend's stream.
//!
//! An analysis has its own descriptor and buffer, which the library keeps using. Load: the copies of the arrays and the
//! allocation of that buffer. Analysis: only `cusparseSpSV_analysis` with a wait, the median of three after one that
//! loads kernels.
//!
//! Reference: cuSPARSE Library documentation, "cusparseSpSV()", "cusparseSpMatSetAttribute()".

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, DevicePtr, sys};
use spandrel_formats::Real;
use spandrel_sptrsv::{Diagonal, Triangle, Triangular};

use super::Gpu;
use super::cusparse::{Arrays, Cusparse};
use super::library::{self, functions, succeeded};

const NAME: &str = "cusparse";
/// cudaDataType: CUDA_R_32F, CUDA_R_64F.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
/// cusparseIndexType_t: CUSPARSE_INDEX_32I.
const INDEX_32I: c_int = 2;
/// CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE, CUSPARSE_SPSV_ALG_DEFAULT.
const BASE_ZERO: c_int = 0;
const AS_IS: c_int = 0;
const TRANSPOSED: c_int = 1;
const DEFAULT: c_int = 0;
/// cusparseSpMatAttribute_t: CUSPARSE_SPMAT_FILL_MODE (0 lower, 1 upper), CUSPARSE_SPMAT_DIAG_TYPE (0 non-unit, 1
/// unit).
const FILL_MODE: c_int = 0;
const DIAG_TYPE: c_int = 1;
/// The number of timed analyses.
const ANALYSES: usize = 3;

functions! {
    Functions of "cusparse" {
        create_csr = "cusparseCreateCsr"(
            *mut *mut c_void, i64, i64, i64, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int, c_int
        ),
        set_attribute = "cusparseSpMatSetAttribute"(*mut c_void, c_int, *const c_void, usize),
        create_vector = "cusparseCreateDnVec"(*mut *mut c_void, i64, *mut c_void, c_int),
        destroy_matrix = "cusparseDestroySpMat"(*mut c_void),
        destroy_vector = "cusparseDestroyDnVec"(*mut c_void),
        create = "cusparseSpSV_createDescr"(*mut *mut c_void),
        destroy = "cusparseSpSV_destroyDescr"(*mut c_void),
        buffer_size = "cusparseSpSV_bufferSize"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, *mut c_void, *mut usize
        ),
        analysis = "cusparseSpSV_analysis"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, *mut c_void, *mut c_void
        ),
        solve = "cusparseSpSV_solve"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, *mut c_void
        ),
    }
}

fn kind<T: Real>() -> c_int {
    if T::BYTES == 4 { R_32F } else { R_64F }
}

/// A vector in the library's form. Its elements outlive it.
pub(crate) struct Dense {
    pub(super) descriptor: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Dense {
    fn with<T: Real>(f: &Functions, len: usize, at: sys::CUdeviceptr) -> Result<Self> {
        let mut descriptor = null_mut();
        // SAFETY: a live place for the descriptor; the caller guarantees the elements.
        let status = unsafe { (f.create_vector)(&mut descriptor, len as i64, at as *mut c_void, kind::<T>()) };
        succeeded(NAME, "cusparseCreateDnVec", status)?;
        Ok(Self { descriptor, destroy: f.destroy_vector })
    }

    /// A vector of `len` elements at an address.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn new<T: Real>(len: usize, at: sys::CUdeviceptr) -> Result<Self> {
        Self::with::<T>(&Functions::load(library::open(NAME, &["nvJitLink"])?)?, len, at)
    }
}

impl Drop for Dense {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once. Nobody can be told of a failure.
        unsafe { (self.destroy)(self.descriptor) };
    }
}

/// A triangle on the device: the arrays of a CSR matrix. The library skips entries on the other side of the diagonal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) n: usize,
    pub(crate) nnz: usize,
    pub(crate) row_ptr: u64,
    pub(crate) cols: u64,
    pub(crate) values: u64,
    pub(crate) triangle: Triangle,
    pub(crate) diagonal: Diagonal,
    /// Whether to solve T^T x = b.
    pub(crate) transposed: bool,
}

/// A triangle and its analysis. The arrays outlive it.
pub(crate) struct Analysis<T> {
    library: Rc<Cusparse>,
    functions: Functions,
    matrix: *mut c_void,
    descriptor: *mut c_void,
    operation: c_int,
    /// The value 1, which the library reads on the host.
    one: Box<T>,
    buffer: Option<CudaSlice<u8>>,
}

impl<T: Real> Analysis<T> {
    /// Describes the triangle.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn new(gpu: &Gpu, library: &Rc<Cusparse>, of: &Stored) -> Result<Self> {
        let mut made = Self {
            library: Rc::clone(library),
            functions: Functions::load(library::open(NAME, &["nvJitLink"])?)?,
            matrix: null_mut(),
            descriptor: null_mut(),
            operation: if of.transposed { TRANSPOSED } else { AS_IS },
            one: Box::new(T::one()),
            buffer: None,
        };
        gpu.bind()?;
        let (n, nnz, f) = (of.n as i64, of.nnz as i64, &made.functions);
        let [ptr, idx, values] = [of.row_ptr, of.cols, of.values].map(|at| at as *mut c_void);
        // SAFETY: a live place for the descriptor; the caller guarantees the arrays.
        let status = unsafe {
            (f.create_csr)(&mut made.matrix, n, n, nnz, ptr, idx, values, INDEX_32I, INDEX_32I, BASE_ZERO, kind::<T>())
        };
        succeeded(NAME, "cusparseCreateCsr", status)?;
        let upper = c_int::from(of.triangle == Triangle::Upper);
        let unit = c_int::from(of.diagonal == Diagonal::Unit);
        for (attribute, value) in [(FILL_MODE, upper), (DIAG_TYPE, unit)] {
            let data = std::ptr::from_ref(&value).cast();
            // SAFETY: a live descriptor and a value of the enumeration's size, which is copied.
            let status = unsafe { (f.set_attribute)(made.matrix, attribute, data, size_of::<c_int>()) };
            succeeded(NAME, "cusparseSpMatSetAttribute", status)?;
        }
        Ok(made)
    }

    /// Starts a new analysis and makes room for it. Returns how many bytes more it took.
    ///
    /// # Errors
    /// Those of the library; out of memory.
    pub(crate) fn reserve(&mut self, gpu: &Gpu, b: &Dense, x: &Dense) -> Result<u64> {
        self.forget();
        let f = &self.functions;
        // SAFETY: a live place for the descriptor.
        succeeded(NAME, "cusparseSpSV_createDescr", unsafe { (f.create)(&mut self.descriptor) })?;
        let (one, mut bytes) = (std::ptr::from_ref(&*self.one).cast(), 0usize);
        // SAFETY: live descriptors and a live scalar.
        let status = unsafe {
            (f.buffer_size)(
                self.library.opened(),
                self.operation,
                one,
                self.matrix,
                b.descriptor,
                x.descriptor,
                kind::<T>(),
                DEFAULT,
                self.descriptor,
                &mut bytes,
            )
        };
        succeeded(NAME, "cusparseSpSV_bufferSize", status)?;
        // The same triangle needs the same size.
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() >= bytes) {
            return Ok(0);
        }
        self.buffer = Some(gpu.stream().alloc_zeros::<u8>(bytes.max(16)).context("cuSPARSE's buffer")?);
        Ok(bytes as u64)
    }

    /// The analysis, after [`Analysis::reserve`].
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn analyze(&mut self, gpu: &Gpu, b: &Dense, x: &Dense) -> Result<()> {
        let one = std::ptr::from_ref(&*self.one).cast();
        let buffer = self.buffer.as_ref().map_or(0, |buffer| buffer.device_ptr(gpu.stream()).0);
        // SAFETY: live descriptors and a live scalar, and a buffer of the requested size.
        let status = unsafe {
            (self.functions.analysis)(
                self.library.opened(),
                self.operation,
                one,
                self.matrix,
                b.descriptor,
                x.descriptor,
                kind::<T>(),
                DEFAULT,
                self.descriptor,
                buffer as *mut c_void,
            )
        };
        Ok(succeeded(NAME, "cusparseSpSV_analysis", status)?)
    }

    /// Enqueues x <- T^-1 b for any vectors of the right length.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn enqueue(&self, b: &Dense, x: &Dense) -> Result<()> {
        let one = std::ptr::from_ref(&*self.one).cast();
        // SAFETY: live descriptors and a live scalar; the triangle is analysed and its buffer kept.
        let status = unsafe {
            (self.functions.solve)(
                self.library.opened(),
                self.operation,
                one,
                self.matrix,
                b.descriptor,
                x.descriptor,
                kind::<T>(),
                DEFAULT,
                self.descriptor,
            )
        };
        Ok(succeeded(NAME, "cusparseSpSV_solve", status)?)
    }
}

impl<T> Analysis<T> {
    fn forget(&mut self) {
        if !self.descriptor.is_null() {
            // SAFETY: made by the library, destroyed once. Nobody can be told of a failure.
            unsafe { (self.functions.destroy)(self.descriptor) };
            self.descriptor = null_mut();
        }
    }
}

impl<T> Drop for Analysis<T> {
    fn drop(&mut self) {
        self.forget();
        if !self.matrix.is_null() {
            // SAFETY: as above.
            unsafe { (self.functions.destroy_matrix)(self.matrix) };
        }
    }
}

/// x <- T^-1 b, analysed.
pub(crate) struct Solve<T> {
    analysis: Analysis<T>,
    b: Dense,
    x: Dense,
    /// Milliseconds.
    pub(crate) analyze_ms: f64,
    /// Milliseconds.
    pub(crate) load_ms: f64,
    /// Bytes of a solve by the traffic model: the arrays, b and x.
    pub(crate) bytes: u64,
    /// Bytes on the device.
    pub(crate) storage: u64,
    // Kept only for their memory.
    _arrays: Arrays<T>,
}

impl<T: Real> Solve<T> {
    /// Loads and analyses a triangle. `b` and `x` are addresses of `nrows` elements that outlive it.
    ///
    /// # Errors
    /// Those of the library; more entries than 32-bit signed indices count; out of memory.
    pub(crate) fn new(
        gpu: &Gpu,
        library: &Rc<Cusparse>,
        matrix: &Triangular<T>,
        b: sys::CUdeviceptr,
        x: sys::CUdeviceptr,
    ) -> Result<Self> {
        let csr = matrix.csr();
        let begin = Instant::now();
        let arrays = Arrays::csr(gpu, csr)?;
        gpu.stream().synchronize().context("uploading for cuSPARSE")?;
        let loaded = begin.elapsed();
        let [row_ptr, cols] = arrays.index_addresses();
        let of = Stored {
            n: csr.nrows(),
            nnz: csr.nnz(),
            row_ptr,
            cols,
            values: arrays.values().device_pointer(),
            triangle: matrix.triangle(),
            diagonal: matrix.diagonal(),
            transposed: false,
        };
        let analysis = Analysis::new(gpu, library, &of)?;
        let bytes = (4 * csr.row_ptr().len() + (4 + T::BYTES) * csr.nnz()) as u64;
        let mut solve = Self {
            b: Dense::with::<T>(&analysis.functions, csr.nrows(), b)?,
            x: Dense::with::<T>(&analysis.functions, csr.nrows(), x)?,
            analysis,
            analyze_ms: 0.0,
            load_ms: loaded.as_secs_f64() * 1e3,
            bytes: bytes + (2 * T::BYTES * csr.nrows()) as u64,
            storage: bytes,
            _arrays: arrays,
        };
        solve.analyze(gpu)?;
        Ok(solve)
    }

    fn analyze(&mut self, gpu: &Gpu) -> Result<()> {
        let mut samples = Vec::new();
        for round in 0..=ANALYSES {
            let begin = Instant::now();
            let bytes = self.analysis.reserve(gpu, &self.b, &self.x)?;
            gpu.stream().synchronize().context("before cuSPARSE's analysis")?;
            if bytes > 0 {
                self.load_ms += begin.elapsed().as_secs_f64() * 1e3;
                self.storage += bytes;
            }
            let begin = Instant::now();
            self.analysis.analyze(gpu, &self.b, &self.x)?;
            gpu.stream().synchronize().context("cuSPARSE's analysis")?;
            if round > 0 {
                samples.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
        samples.sort_by(f64::total_cmp);
        self.analyze_ms = samples[samples.len() / 2];
        Ok(())
    }

    /// Enqueues x <- T^-1 b.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn enqueue(&self) -> Result<()> {
        self.analysis.enqueue(&self.b, &self.x)
    }
}
