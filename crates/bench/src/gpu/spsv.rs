//! cuSPARSE's triangular solve as a peer: SpSV in CSR, on the backend's stream.
//!
//! A solve has a descriptor and a buffer of its own, and the library goes on using the buffer of the analysis. Load: the copies of the arrays
//! and the allocation of that buffer. Analysis: `cusparseSpSV_analysis` alone, waited for, the median of three after one that loads
//! kernels.
//! Reference: cuSPARSE Library documentation, "cusparseSpSV()", "cusparseSpMatSetAttribute()".

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use spandrel_backend::Backend;
use spandrel_backend_cuda::Vector;
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, DevicePtr, sys};
use spandrel_formats::{Format, Real};
use spandrel_sptrsv::{Diagonal, Triangle, Triangular};

use super::Gpu;
use super::cusparse::Cusparse;
use super::library::{self, functions, succeeded};

const NAME: &str = "cusparse";
/// cudaDataType: CUDA_R_32F, CUDA_R_64F.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
/// cusparseIndexType_t: CUSPARSE_INDEX_32I.
const INDEX_32I: c_int = 2;
/// CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_SPSV_ALG_DEFAULT.
const BASE_ZERO: c_int = 0;
const AS_IS: c_int = 0;
const DEFAULT: c_int = 0;
/// cusparseSpMatAttribute_t: CUSPARSE_SPMAT_FILL_MODE (0 lower, 1 upper), CUSPARSE_SPMAT_DIAG_TYPE (0 non-unit, 1 unit).
const FILL_MODE: c_int = 0;
const DIAG_TYPE: c_int = 1;
/// Analyses that are timed.
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

/// x <- T^-1 b, analysed.
pub(crate) struct Solve<T> {
    library: Rc<Cusparse>,
    functions: Functions,
    matrix: *mut c_void,
    b: *mut c_void,
    x: *mut c_void,
    descriptor: *mut c_void,
    /// 1: the library reads it on the host.
    one: Box<T>,
    buffer: CudaSlice<u8>,
    /// Milliseconds.
    pub(crate) analyze_ms: f64,
    /// Milliseconds.
    pub(crate) load_ms: f64,
    /// Bytes of a solve by the traffic model: the arrays, b and x.
    pub(crate) bytes: u64,
    /// Bytes on the device.
    pub(crate) storage: u64,
    // Held for their memory alone.
    _indices: [CudaSlice<u32>; 2],
    _values: Vector<T>,
}

impl<T: Real> Solve<T> {
    /// Loads and analyses a triangle. `b` and `x` are addresses of `nrows` elements that outlive it.
    ///
    /// # Errors
    /// What the library says; more entries than 32-bit signed indices count; out of memory.
    pub(crate) fn new(
        gpu: &Gpu,
        library: &Rc<Cusparse>,
        matrix: &Triangular<T>,
        b: sys::CUdeviceptr,
        x: sys::CUdeviceptr,
    ) -> Result<Self> {
        let csr = matrix.csr();
        ensure!(i32::try_from(csr.nnz()).is_ok(), "{} entries: cuSPARSE's 32-bit indices are signed", csr.nnz());
        let functions = Functions::load(library::open(NAME, &["nvJitLink"])?)?;
        gpu.bind()?;
        let begin = Instant::now();
        // An empty slice has no address.
        let upload = |host: &[u32]| {
            let host = if host.is_empty() { &[0][..] } else { host };
            gpu.stream().clone_htod(host).context("uploading indices for cuSPARSE")
        };
        let indices = [upload(csr.row_ptr())?, upload(csr.col_idx())?];
        let values = gpu.be.upload(csr.values())?;
        gpu.stream().synchronize().context("uploading for cuSPARSE")?;
        let loaded = begin.elapsed();
        let arrays = (4 * csr.row_ptr().len() + (4 + T::BYTES) * csr.nnz()) as u64;
        let mut solve = Self {
            library: Rc::clone(library),
            functions,
            matrix: null_mut(),
            b: null_mut(),
            x: null_mut(),
            descriptor: null_mut(),
            one: Box::new(T::one()),
            buffer: gpu.stream().alloc_zeros::<u8>(16).context("cuSPARSE's buffer")?,
            analyze_ms: 0.0,
            load_ms: loaded.as_secs_f64() * 1e3,
            bytes: arrays + (2 * T::BYTES * csr.nrows()) as u64,
            storage: arrays,
            _indices: indices,
            _values: values,
        };
        solve.describe(matrix, b, x, gpu)?;
        solve.analyze(gpu)?;
        Ok(solve)
    }

    fn kind() -> c_int {
        if T::BYTES == 4 { R_32F } else { R_64F }
    }

    fn describe(&mut self, matrix: &Triangular<T>, b: sys::CUdeviceptr, x: sys::CUdeviceptr, gpu: &Gpu) -> Result<()> {
        let (n, nnz) = (matrix.nrows() as i64, matrix.csr().nnz() as i64);
        let address = |slice: &CudaSlice<u32>| slice.device_ptr(gpu.stream()).0 as *mut c_void;
        let [ptr, idx] = [address(&self._indices[0]), address(&self._indices[1])];
        let (values, kind, f) = (self._values.device_pointer() as *mut c_void, Self::kind(), &self.functions);
        // SAFETY: a live place for the descriptor, device arrays of the lengths that the shape says, which this solve keeps.
        let status = unsafe {
            (f.create_csr)(&mut self.matrix, n, n, nnz, ptr, idx, values, INDEX_32I, INDEX_32I, BASE_ZERO, kind)
        };
        succeeded(NAME, "cusparseCreateCsr", status)?;
        let upper = c_int::from(matrix.triangle() == Triangle::Upper);
        let unit = c_int::from(matrix.diagonal() == Diagonal::Unit);
        for (attribute, value) in [(FILL_MODE, upper), (DIAG_TYPE, unit)] {
            let data = std::ptr::from_ref(&value).cast();
            // SAFETY: a live descriptor and a value of the enumeration's size, which is copied.
            let status = unsafe { (f.set_attribute)(self.matrix, attribute, data, size_of::<c_int>()) };
            succeeded(NAME, "cusparseSpMatSetAttribute", status)?;
        }
        for (vector, at) in [(&mut self.b, b), (&mut self.x, x)] {
            // SAFETY: a live place for the descriptor; the caller vouches for the vectors.
            let status = unsafe { (f.create_vector)(vector, n, at as *mut c_void, kind) };
            succeeded(NAME, "cusparseCreateDnVec", status)?;
        }
        Ok(())
    }

    fn analyze(&mut self, gpu: &Gpu) -> Result<()> {
        let mut samples = Vec::new();
        for round in 0..=ANALYSES {
            self.forget();
            // SAFETY: a live place for the descriptor.
            succeeded(NAME, "cusparseSpSV_createDescr", unsafe { (self.functions.create)(&mut self.descriptor) })?;
            let (f, one, kind) = (&self.functions, std::ptr::from_ref(&*self.one).cast(), Self::kind());
            let (opened, matrix, b, x, descriptor) =
                (self.library.opened(), self.matrix, self.b, self.x, self.descriptor);
            let (mut bytes, begin) = (0usize, Instant::now());
            // SAFETY: live descriptors and a live scalar.
            let status =
                unsafe { (f.buffer_size)(opened, AS_IS, one, matrix, b, x, kind, DEFAULT, descriptor, &mut bytes) };
            succeeded(NAME, "cusparseSpSV_bufferSize", status)?;
            // Asked in every round; the same triangle takes the same.
            if bytes > self.buffer.len() {
                self.buffer = gpu.stream().alloc_zeros::<u8>(bytes).context("cuSPARSE's buffer")?;
                gpu.stream().synchronize().context("cuSPARSE's buffer")?;
                self.load_ms += begin.elapsed().as_secs_f64() * 1e3;
                self.storage += bytes as u64;
            }
            let buffer = self.buffer.device_ptr(gpu.stream()).0 as *mut c_void;
            gpu.stream().synchronize().context("before cuSPARSE's analysis")?;
            let begin = Instant::now();
            // SAFETY: live descriptors and a live scalar, and the buffer of the size that was asked for.
            let status = unsafe { (f.analysis)(opened, AS_IS, one, matrix, b, x, kind, DEFAULT, descriptor, buffer) };
            succeeded(NAME, "cusparseSpSV_analysis", status)?;
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
    /// What the library says.
    pub(crate) fn enqueue(&self) -> Result<()> {
        let one = std::ptr::from_ref(&*self.one).cast();
        // SAFETY: live descriptors and a live scalar, the triangle analysed, its buffer kept.
        let status = unsafe {
            (self.functions.solve)(
                self.library.opened(),
                AS_IS,
                one,
                self.matrix,
                self.b,
                self.x,
                Self::kind(),
                DEFAULT,
                self.descriptor,
            )
        };
        Ok(succeeded(NAME, "cusparseSpSV_solve", status)?)
    }
}

impl<T> Solve<T> {
    /// Destroys the analysis.
    fn forget(&mut self) {
        if !self.descriptor.is_null() {
            // SAFETY: made by the library, destroyed once. A failure has nobody to tell.
            unsafe { (self.functions.destroy)(self.descriptor) };
            self.descriptor = null_mut();
        }
    }
}

impl<T> Drop for Solve<T> {
    fn drop(&mut self) {
        self.forget();
        let f = &self.functions;
        for (descriptor, destroy) in
            [(self.matrix, f.destroy_matrix), (self.b, f.destroy_vector), (self.x, f.destroy_vector)]
        {
            if !descriptor.is_null() {
                // SAFETY: made by the library, destroyed once. A failure has nobody to tell.
                unsafe { destroy(descriptor) };
            }
        }
    }
}
