//! cuSPARSE's products as peers: CSR and COO with two algorithms each, and sliced ELL, on the backend's stream.
//!
//! Each product has a descriptor and a buffer of its own, so that the result of `cusparseSpMV_preprocess` stays active.
//! Both exist before anything is captured.
//!
//! Reference: cuSPARSE Library documentation, "cusparseSpMV()", "cusparseCreateSlicedEll()".

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use spandrel_backend::Backend;
use spandrel_backend_cuda::Vector;
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, DevicePtr, sys};
use spandrel_formats::{Csr, Real, Sell, Traffic};

use super::Gpu;
use super::library::{self, LibraryUnavailable, functions, succeeded};

const NAME: &str = "cusparse";
/// cudaDataType: CUDA_R_32F, CUDA_R_64F.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
/// cusparseIndexType_t: CUSPARSE_INDEX_32I.
const INDEX_32I: c_int = 2;
/// CUSPARSE_INDEX_BASE_ZERO and CUSPARSE_OPERATION_NON_TRANSPOSE.
const BASE_ZERO: c_int = 0;
const AS_IS: c_int = 0;

functions! {
    Functions of "cusparse" {
        create = "cusparseCreate"(*mut *mut c_void),
        destroy = "cusparseDestroy"(*mut c_void),
        version = "cusparseGetVersion"(*mut c_void, *mut c_int),
        set_stream = "cusparseSetStream"(*mut c_void, sys::CUstream),
        create_csr = "cusparseCreateCsr"(
            *mut *mut c_void, i64, i64, i64, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int, c_int
        ),
        create_coo = "cusparseCreateCoo"(
            *mut *mut c_void, i64, i64, i64, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int
        ),
        create_sell = "cusparseCreateSlicedEll"(
            *mut *mut c_void, i64, i64, i64, i64, i64, *mut c_void, *mut c_void, *mut c_void, c_int, c_int, c_int, c_int
        ),
        create_vector = "cusparseCreateDnVec"(*mut *mut c_void, i64, *mut c_void, c_int),
        destroy_matrix = "cusparseDestroySpMat"(*mut c_void),
        destroy_vector = "cusparseDestroyDnVec"(*mut c_void),
        buffer_size = "cusparseSpMV_bufferSize"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *const c_void, *mut c_void, c_int, c_int, *mut usize
        ),
        preprocess = "cusparseSpMV_preprocess"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *const c_void, *mut c_void, c_int, c_int, *mut c_void
        ),
        product = "cusparseSpMV"(
            *mut c_void, c_int, *const c_void, *mut c_void, *mut c_void, *const c_void, *mut c_void, c_int, c_int, *mut c_void
        ),
    }
}

/// Formats and algorithms, cusparseSpMVAlg_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// CUSPARSE_SPMV_CSR_ALG1.
    Csr1,
    /// CUSPARSE_SPMV_CSR_ALG2.
    Csr2,
    /// CUSPARSE_SPMV_COO_ALG1.
    Coo1,
    /// CUSPARSE_SPMV_COO_ALG2.
    Coo2,
    /// CUSPARSE_SPMV_SELL_ALG1.
    Sell1,
}

impl Algorithm {
    /// All.
    pub const ALL: [Algorithm; 5] = [Self::Csr1, Self::Csr2, Self::Coo1, Self::Coo2, Self::Sell1];

    fn code(self) -> c_int {
        match self {
            Self::Coo1 => 1,
            Self::Csr1 => 2,
            Self::Csr2 => 3,
            Self::Coo2 => 4,
            Self::Sell1 => 5,
        }
    }

    /// The format's stem.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Csr1 | Self::Csr2 => "csr",
            Self::Coo1 | Self::Coo2 => "coo",
            Self::Sell1 => "sell",
        }
    }

    /// Whether it multiplies the CSR matrix as it is, so that no other form is made.
    pub fn takes_rows(self) -> bool {
        matches!(self, Self::Csr1 | Self::Csr2)
    }

    /// The name of the algorithm within its format.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Csr1 | Self::Coo1 | Self::Sell1 => "alg1",
            Self::Csr2 | Self::Coo2 => "alg2",
        }
    }
}

/// The library with a handle on the backend's stream.
pub struct Cusparse {
    functions: Functions,
    opened: *mut c_void,
}

impl Cusparse {
    /// Opens the library.
    ///
    /// # Errors
    /// [`LibraryUnavailable`].
    pub fn open(gpu: &Gpu) -> Result<Rc<Self>> {
        let functions = Functions::load(library::open(NAME, &["nvJitLink"])?)?;
        gpu.bind()?;
        let mut opened = null_mut();
        // SAFETY: a live place for the handle; the context is bound.
        succeeded(NAME, "cusparseCreate", unsafe { (functions.create)(&mut opened) })?;
        let library = Self { functions, opened };
        // SAFETY: the handle is live, and the stream outlives it, because contenders are dropped before the backend.
        let status = unsafe { (library.functions.set_stream)(opened, gpu.stream().cu_stream()) };
        succeeded(NAME, "cusparseSetStream", status)?;
        Ok(Rc::new(library))
    }

    /// The handle, for calls in other files.
    pub(super) fn opened(&self) -> *mut c_void {
        self.opened
    }

    /// Its name and version.
    ///
    /// # Errors
    /// Those of the library.
    pub fn version(&self) -> Result<String, LibraryUnavailable> {
        let mut version = 0;
        // SAFETY: the handle is live.
        succeeded(NAME, "cusparseGetVersion", unsafe { (self.functions.version)(self.opened, &mut version) })?;
        Ok(format!("cuSPARSE {}.{}.{}", version / 1000, version % 1000 / 100, version % 100))
    }
}

impl Drop for Cusparse {
    fn drop(&mut self) {
        // SAFETY: the handle was made by the library and is destroyed once. Nobody can be told of a failure.
        unsafe { (self.functions.destroy)(self.opened) };
    }
}

/// The arrays of one form of a matrix on the device.
pub struct Arrays<T> {
    shape: (i64, i64, i64),
    bytes: u64,
    indices: [Rc<Indices>; 2],
    values: Rc<Vector<T>>,
    /// Stored values, padding included, of sliced ELL.
    padded: i64,
}

/// Rows per slice of sliced ELL: a warp.
const SLICE: usize = 32;

impl<T: Real> Arrays<T> {
    /// CSR.
    ///
    /// # Errors
    /// More entries than 32-bit signed indices count; out of memory.
    pub fn csr(gpu: &Gpu, csr: &Csr<T>) -> Result<Self> {
        ensure!(i32::try_from(csr.nnz()).is_ok(), "{} entries: cuSPARSE's 32-bit indices are signed", csr.nnz());
        Ok(Self {
            shape: (csr.nrows() as i64, csr.ncols() as i64, csr.nnz() as i64),
            bytes: csr.spmv_bytes(),
            indices: [upload(gpu, csr.row_ptr())?, upload(gpu, csr.col_idx())?],
            values: Rc::new(gpu.be.upload(csr.values())?),
            padded: 0,
        })
    }

    /// COO beside CSR: columns and values are shared.
    ///
    /// # Errors
    /// Out of memory.
    pub fn coo(&self, gpu: &Gpu, csr: &Csr<T>) -> Result<Self> {
        let mut rows = Vec::with_capacity(csr.nnz());
        for i in 0..csr.nrows() {
            rows.resize(rows.len() + csr.row_nnz(i), i as u32);
        }
        Ok(Self {
            bytes: (csr.nnz() * (8 + T::BYTES) + (csr.nrows() + csr.ncols()) * T::BYTES) as u64,
            indices: [upload(gpu, &rows)?, Rc::clone(&self.indices[1])],
            values: Rc::clone(&self.values),
            ..*self
        })
    }

    /// Sliced ELL with rows in their order.
    ///
    /// # Errors
    /// A matrix that does not fit the format; out of memory.
    pub fn sell(gpu: &Gpu, csr: &Csr<T>) -> Result<Self> {
        let sell = Sell::from_csr_with(csr, SLICE, 1)?;
        let padded = sell.values().len();
        ensure!(i32::try_from(padded).is_ok(), "{padded} positions: cuSPARSE's 32-bit indices are signed");
        let starts: Vec<u32> = sell.slice_ptr().iter().map(|&widths| widths * SLICE as u32).collect();
        Ok(Self {
            shape: (csr.nrows() as i64, csr.ncols() as i64, csr.nnz() as i64),
            bytes: sell.spmv_bytes(),
            indices: [upload(gpu, &starts)?, upload(gpu, sell.cols())?],
            values: Rc::new(gpu.be.upload(sell.values())?),
            padded: padded as i64,
        })
    }

    /// Bytes of a product by the traffic model.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The addresses of row pointers (or what replaces them) and columns.
    pub(super) fn index_addresses(&self) -> [u64; 2] {
        [self.indices[0].device_pointer(), self.indices[1].device_pointer()]
    }

    /// The values.
    pub(super) fn values(&self) -> &Vector<T> {
        &self.values
    }
}

/// The address of a slice.
pub(super) fn address<E>(gpu: &Gpu, slice: &CudaSlice<E>) -> u64 {
    slice.device_ptr(gpu.stream()).0
}

/// Uploads indices as bits. They take the same way as our values, so that set-ups can be compared.
pub(super) type Indices = Vector<f32>;

pub(super) fn upload(gpu: &Gpu, host: &[u32]) -> Result<Rc<Indices>> {
    // An empty slice has no address.
    let host = if host.is_empty() { &[0][..] } else { host };
    Ok(Rc::new(gpu.be.upload(bytemuck::cast_slice::<u32, f32>(host)).context("uploading indices for cuSPARSE")?))
}

/// y = A x by one algorithm.
pub struct Product<T> {
    library: Rc<Cusparse>,
    algorithm: Algorithm,
    matrix: *mut c_void,
    x: *mut c_void,
    y: *mut c_void,
    buffer: Option<CudaSlice<u8>>,
    /// 1 and 0. The library reads them on the host.
    scalars: Box<[T; 2]>,
    bytes: u64,
    // Kept only for its memory.
    _indices: [Rc<Indices>; 2],
    _values: Rc<Vector<T>>,
}

impl<T: Real> Product<T> {
    /// Prepares the product: descriptors, buffer, preprocessing. `x` and `y` are addresses of ncols and nrows elements
    /// that outlive it.
    ///
    /// # Errors
    /// Those of the library; out of memory.
    pub fn new(
        gpu: &Gpu,
        library: &Rc<Cusparse>,
        arrays: &Arrays<T>,
        algorithm: Algorithm,
        x: sys::CUdeviceptr,
        y: sys::CUdeviceptr,
    ) -> Result<Self> {
        gpu.bind()?;
        let mut product = Self {
            library: Rc::clone(library),
            algorithm,
            matrix: null_mut(),
            x: null_mut(),
            y: null_mut(),
            buffer: None,
            scalars: Box::new([T::one(), T::zero()]),
            bytes: arrays.bytes,
            _indices: arrays.indices.clone(),
            _values: Rc::clone(&arrays.values),
        };
        let f = &library.functions;
        let kind = Self::kind();
        let [first, second] = arrays.index_addresses().map(|at| at as *mut c_void);
        let values = arrays.values.device_pointer() as *mut c_void;
        let (rows, cols, nnz) = arrays.shape;
        let matrix = &mut product.matrix;
        let (call, status) = match algorithm {
            Algorithm::Csr1 | Algorithm::Csr2 => {
                // SAFETY: a live place for the descriptor, and device arrays of the lengths in the shape, which the
                // product keeps.
                let status = unsafe {
                    (f.create_csr)(
                        matrix, rows, cols, nnz, first, second, values, INDEX_32I, INDEX_32I, BASE_ZERO, kind,
                    )
                };
                ("cusparseCreateCsr", status)
            }
            Algorithm::Coo1 | Algorithm::Coo2 => {
                // SAFETY: as above.
                let status = unsafe {
                    (f.create_coo)(matrix, rows, cols, nnz, first, second, values, INDEX_32I, BASE_ZERO, kind)
                };
                ("cusparseCreateCoo", status)
            }
            Algorithm::Sell1 => {
                let (padded, slice) = (arrays.padded, SLICE as i64);
                // SAFETY: as above.
                let status = unsafe {
                    (f.create_sell)(
                        matrix, rows, cols, nnz, padded, slice, first, second, values, INDEX_32I, INDEX_32I, BASE_ZERO,
                        kind,
                    )
                };
                ("cusparseCreateSlicedEll", status)
            }
        };
        succeeded(NAME, call, status)?;
        // SAFETY: as above; the caller guarantees x and y.
        let status = unsafe { (f.create_vector)(&mut product.x, cols, x as *mut c_void, kind) };
        succeeded(NAME, "cusparseCreateDnVec", status)?;
        // SAFETY: as above.
        let status = unsafe { (f.create_vector)(&mut product.y, rows, y as *mut c_void, kind) };
        succeeded(NAME, "cusparseCreateDnVec", status)?;
        let [one, zero] = product.scalars();
        let mut bytes = 0;
        // SAFETY: live descriptors and scalars.
        let status = unsafe {
            (f.buffer_size)(
                library.opened,
                AS_IS,
                one,
                product.matrix,
                product.x,
                zero,
                product.y,
                kind,
                algorithm.code(),
                &mut bytes,
            )
        };
        succeeded(NAME, "cusparseSpMV_bufferSize", status)?;
        let buffer = gpu.stream().alloc_zeros::<u8>(bytes.max(16)).context("cuSPARSE's buffer")?;
        product.buffer = Some(buffer);
        product.call("cusparseSpMV_preprocess", f.preprocess)?;
        Ok(product)
    }

    fn kind() -> c_int {
        if T::BYTES == 4 { R_32F } else { R_64F }
    }

    fn scalars(&self) -> [*const c_void; 2] {
        [std::ptr::from_ref(&self.scalars[0]).cast(), std::ptr::from_ref(&self.scalars[1]).cast()]
    }

    fn call(
        &self,
        name: &'static str,
        function: unsafe extern "C" fn(
            *mut c_void,
            c_int,
            *const c_void,
            *mut c_void,
            *mut c_void,
            *const c_void,
            *mut c_void,
            c_int,
            c_int,
            *mut c_void,
        ) -> c_int,
    ) -> Result<()> {
        let [one, zero] = self.scalars();
        let buffer = self.buffer.as_ref().map_or(0, |buffer| buffer.device_ptr(buffer.stream()).0);
        // SAFETY: live descriptors and scalars, and a buffer of the requested size.
        let status = unsafe {
            function(
                self.library.opened,
                AS_IS,
                one,
                self.matrix,
                self.x,
                zero,
                self.y,
                Self::kind(),
                self.algorithm.code(),
                buffer as *mut c_void,
            )
        };
        Ok(succeeded(NAME, name, status)?)
    }

    /// Enqueues y = A x.
    ///
    /// # Errors
    /// Those of the library.
    pub fn enqueue(&self) -> Result<()> {
        self.call("cusparseSpMV", self.library.functions.product)
    }

    /// Bytes by the traffic model.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl<T> Drop for Product<T> {
    fn drop(&mut self) {
        let f = &self.library.functions;
        for (descriptor, destroy) in
            [(self.matrix, f.destroy_matrix), (self.x, f.destroy_vector), (self.y, f.destroy_vector)]
        {
            if !descriptor.is_null() {
                // SAFETY: made by the library, destroyed once. Nobody can be told of a failure.
                unsafe { destroy(descriptor) };
            }
        }
    }
}

/// The forms of one matrix that cuSPARSE multiplies, or why one is missing.
pub(crate) struct Forms<T> {
    csr: Result<Arrays<T>>,
    coo: Result<Arrays<T>>,
    sell: Result<Arrays<T>>,
}

impl<T: Real> Forms<T> {
    pub(crate) fn new(gpu: &Gpu, csr: &Csr<T>) -> Self {
        let stored = Arrays::csr(gpu, csr);
        let coo = match &stored {
            Ok(stored) => stored.coo(gpu, csr),
            Err(why) => Err(anyhow!("{why:#}")),
        };
        Self { csr: stored, coo, sell: Arrays::sell(gpu, csr) }
    }

    /// The product by one algorithm. Addresses are as for [`Product::new`].
    pub(crate) fn product(
        &self,
        gpu: &Gpu,
        library: &Rc<Cusparse>,
        algorithm: Algorithm,
        x: sys::CUdeviceptr,
        y: sys::CUdeviceptr,
    ) -> Result<Product<T>> {
        let arrays = match algorithm {
            Algorithm::Csr1 | Algorithm::Csr2 => &self.csr,
            Algorithm::Coo1 | Algorithm::Coo2 => &self.coo,
            Algorithm::Sell1 => &self.sell,
        };
        match arrays {
            Ok(arrays) => Product::new(gpu, library, arrays, algorithm, x, y),
            Err(why) => Err(anyhow!("{why:#}")),
        }
    }
}
