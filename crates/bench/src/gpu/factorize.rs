//! `spandrel-bench factorize`: set-up times of ILU(0) and IC(0) by the host, by the device and by cuSPARSE, in f64.
//!
//! What is timed ends when the device is idle. Numeric phase: from values that are there to values that are there, the device's check of
//! the pivots included. Analysis: the host's symbolic phase and the load with its levels; for cuSPARSE its own analysis. Medians of three,
//! or one that is long, after a first that compiles kernels. The device's factors must have the host's bits.
//! Reference: cuSPARSE Library documentation, `cusparse<t>csrilu02()`, `cusparse<t>csric02()`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Coeff, Factorize, Load};
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, DevicePtr};
use spandrel_backend_cuda::{Cuda, Vector};
use spandrel_formats::{Csr, Format};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Pattern};

use super::Gpu;
use super::cusparse::Cusparse;
use super::library::{self, functions, succeeded};
use crate::case::Case;
use crate::sptrsv::prepared;

const NAME: &str = "cusparse";
/// CUSPARSE_SOLVE_POLICY_USE_LEVEL.
const BY_LEVELS: c_int = 1;
/// Factorisations that are timed.
const TIMES: usize = 3;

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
        size_ic = "cusparseDcsric02_bufferSize"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_int
        ),
        analyze_ic = "cusparseDcsric02_analysis"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
        factor_ic = "cusparseDcsric02"(
            *mut c_void, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int, *mut c_void
        ),
    }
}

/// The library's calls for one factorisation.
struct Calls {
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    size: Size,
    analyze: Call,
    factor: Call,
}

/// Descriptors of one matrix, destroyed with it.
struct Descriptors {
    matrix: *mut c_void,
    info: *mut c_void,
    destroy_matrix: unsafe extern "C" fn(*mut c_void) -> c_int,
    destroy_info: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for (descriptor, destroy) in [(self.matrix, self.destroy_matrix), (self.info, self.destroy_info)] {
            if !descriptor.is_null() {
                // SAFETY: made by the library, destroyed once. A failure has nobody to tell.
                unsafe { destroy(descriptor) };
            }
        }
    }
}

fn address<E>(gpu: &Gpu, slice: &CudaSlice<E>) -> *mut c_void {
    slice.device_ptr(gpu.stream()).0 as *mut c_void
}

/// Milliseconds of analysis and of the numeric phase.
fn peer(gpu: &Gpu, library: &Rc<Cusparse>, csr: &Csr<f64>, noun: &str) -> Result<[f64; 2]> {
    let f = Functions::load(library::open(NAME, &["nvJitLink"])?)?;
    gpu.bind()?;
    let (create, calls) = if noun == Ilu0::<f64>::NAME {
        (f.create_ilu, Calls { destroy: f.destroy_ilu, size: f.size_ilu, analyze: f.analyze_ilu, factor: f.factor_ilu })
    } else {
        (f.create_ic, Calls { destroy: f.destroy_ic, size: f.size_ic, analyze: f.analyze_ic, factor: f.factor_ic })
    };
    let mut at = Descriptors {
        matrix: null_mut(),
        info: null_mut(),
        destroy_matrix: f.destroy_matrix,
        destroy_info: calls.destroy,
    };
    // SAFETY: live places for the descriptors.
    succeeded(NAME, "cusparseCreateMatDescr", unsafe { (f.create_matrix)(&mut at.matrix) })?;
    let upload = |host: &[u32]| gpu.stream().clone_htod(host).context("uploading indices for cuSPARSE");
    let (row_ptr, cols) = (upload(csr.row_ptr())?, upload(csr.col_idx())?);
    let (given, mut values) = (gpu.be.upload(csr.values())?, Backend::<f64>::zeros(&gpu.be, csr.nnz())?);
    let (n, nnz) = (c_int::try_from(csr.nrows())?, c_int::try_from(csr.nnz())?);
    let (row_ptr, cols) = (address(gpu, &row_ptr), address(gpu, &cols));
    let mut timed = [Vec::new(), Vec::new()];
    for _ in 0..=TIMES {
        if !at.info.is_null() {
            // SAFETY: made by the library, destroyed once.
            succeeded(NAME, "destroying an info", unsafe {
                (calls.destroy)(std::mem::replace(&mut at.info, null_mut()))
            })?;
        }
        // SAFETY: a live place for the descriptor.
        succeeded(NAME, "creating an info", unsafe { create(&mut at.info) })?;
        gpu.be.axpby(None, Coeff::one(), &given, Coeff::zero(), &mut values)?;
        let place = values.device_pointer() as *mut c_void;
        let mut bytes = 0;
        // SAFETY: live descriptors, arrays of the lengths that are said.
        let status =
            unsafe { (calls.size)(library.opened(), n, nnz, at.matrix, place, row_ptr, cols, at.info, &mut bytes) };
        succeeded(NAME, "csr<factor>02_bufferSize", status)?;
        let buffer = gpu.stream().alloc_zeros::<u8>((bytes.max(16)) as usize).context("cuSPARSE's buffer")?;
        let room = address(gpu, &buffer);
        for (times, (name, call)) in
            timed.iter_mut().zip([("csr<factor>02_analysis", calls.analyze), ("csr<factor>02", calls.factor)])
        {
            gpu.stream().synchronize().context("cuSPARSE")?;
            let begin = Instant::now();
            // SAFETY: as above, and the buffer of the size that was asked for.
            let status =
                unsafe { call(library.opened(), n, nnz, at.matrix, place, row_ptr, cols, at.info, BY_LEVELS, room) };
            succeeded(NAME, name, status)?;
            gpu.stream().synchronize().context("cuSPARSE")?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    // The first loads kernels.
    Ok(timed.map(|times| {
        let mut rest = times[1..].to_vec();
        rest.sort_by(f64::total_cmp);
        rest[rest.len() / 2]
    }))
}

/// The line of one contender.
fn line(case: &Case, csr: &Csr<f64>, noun: &str, contender: &str, [analyze_ms, numeric_ms]: [f64; 2]) -> Value {
    println!("{} {noun} ({contender}): analysis {analyze_ms:.3} ms, numeric phase {numeric_ms:.3} ms", case.name);
    json!({
        "op": noun, "noun": noun, "type": "f64", "backend": if contender == "host" { "cpu" } else { "cuda" }, "contender": contender,
        "case": case.name, "n": csr.nrows(), "nnz": csr.nnz(), "analyze_ms": analyze_ms, "numeric_ms": numeric_ms,
    })
}

fn one<F: Factor<Value = f64>>(
    gpu: &Gpu,
    library: Option<&Rc<Cusparse>>,
    case: &Case,
    csr: &Csr<f64>,
    out: &mut Vec<Value>,
) -> Result<()>
where
    Cuda: Factorize<F> + Backend<f64, Vector = Vector<f64>>,
{
    let (factor, symbolic_ms) = prepared(|| Ok(F::symbolic(csr)?))?;
    let factor = Arc::new(factor);
    let (host, host_ms) = prepared(|| Ok(factor.numeric(csr.values())?))?;
    out.push(line(case, csr, F::NAME, "host", [symbolic_ms, host_ms]));
    let be = &gpu.be;
    let zeros = |len: usize| Backend::<f64>::zeros(be, len);
    let values = Backend::<f64>::upload(be, csr.values())?;
    let (mut lower, mut upper) = (zeros(factor.lower().nnz())?, zeros(factor.upper().map_or(0, Pattern::nnz))?);
    let load = || {
        let resident = Load::<F>::load(be, Arc::clone(&factor))?;
        gpu.stream().synchronize().context("loading the patterns")?;
        Ok(resident)
    };
    drop(load()?);
    let (resident, load_ms) = prepared(load)?;
    be.factorize(&resident, &values, &mut lower, &mut upper)?;
    let (shift, device_ms) = prepared(|| Ok(be.factorize(&resident, &values, &mut lower, &mut upper)?))?;
    let same = |found: Vec<f64>, expected: &[f64]| {
        found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.to_bits() == e.to_bits())
    };
    ensure!(
        shift == host.shift
            && same(Backend::<f64>::download(be, &lower)?, &host.lower)
            && same(Backend::<f64>::download(be, &upper)?, &host.upper),
        "the device's factors differ from the host's"
    );
    out.push(line(case, csr, F::NAME, "spandrel", [symbolic_ms + load_ms, device_ms]));
    if let Some(library) = library {
        out.push(line(case, csr, F::NAME, NAME, peer(gpu, library, csr, F::NAME)?));
    }
    Ok(())
}

/// Times one case: the lines of all contenders, and one that says why for what could not be done.
///
/// # Errors
/// A case that cannot be read; a device that fails.
pub fn run(gpu: &Gpu, library: Option<&Rc<Cusparse>>, case: &Case) -> Result<Vec<Value>> {
    let csr: Csr<f64> = case.load()?;
    let mut out = Vec::new();
    for noun in [Ilu0::<f64>::NAME, Ic0::<f64>::NAME] {
        let done = if noun == Ilu0::<f64>::NAME {
            one::<Ilu0<f64>>(gpu, library, case, &csr, &mut out)
        } else {
            one::<Ic0<f64>>(gpu, library, case, &csr, &mut out)
        };
        if let Err(why) = done {
            let why = format!("{why:#}");
            eprintln!("  {noun}: {why}");
            out.push(
                json!({ "op": noun, "noun": noun, "type": "f64", "backend": "cuda", "case": case.name, "error": why }),
            );
        }
        gpu.stream().synchronize().context("the device has failed")?;
    }
    Ok(out)
}
