//! `spandrel-bench factorize`: set-up times of ILU(0) and IC(0) by the host, by the device and by cuSPARSE, in f64.
//!
//! A time ends when the device is idle. The numeric phase goes from present values to present factors, including the
//! device's check of the pivots. The analysis is the host's symbolic phase and the load with its levels; for cuSPARSE
//! its own analysis. Times are medians of three runs, or one long run, after a first one that compiles kernels. The
//! device's factors must have the host's bits.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Coeff, Factorize, Load};
use spandrel_backend_cuda::{Cuda, Vector};
use spandrel_formats::Csr;
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Pattern};

use super::Gpu;
use super::csr02::{Csr02, Place};
use super::cusparse::{Arrays, Cusparse};
use crate::case::Case;
use crate::sptrsv::prepared;

const NAME: &str = "cusparse";
/// The number of timed factorisations.
const TIMES: usize = 3;

/// Milliseconds of analysis and of the numeric phase.
fn peer(gpu: &Gpu, library: &Rc<Cusparse>, csr: &Csr<f64>, noun: &str) -> Result<[f64; 2]> {
    let arrays = Arrays::csr(gpu, csr)?;
    let mut values = Backend::<f64>::zeros(&gpu.be, csr.nnz())?;
    let [row_ptr, cols] = arrays.index_addresses();
    let place = Place { n: csr.nrows(), nnz: csr.nnz(), row_ptr, cols, values: values.device_pointer() };
    let mut timed = [Vec::new(), Vec::new()];
    for _ in 0..=TIMES {
        gpu.be.axpby(None, Coeff::one(), arrays.values(), Coeff::zero(), &mut values)?;
        let factors = Csr02::new(gpu, library, noun, place)?;
        for (times, call) in timed.iter_mut().zip([Csr02::analyze, Csr02::factor]) {
            gpu.stream().synchronize().context("cuSPARSE")?;
            let begin = Instant::now();
            call(&factors, gpu)?;
            gpu.stream().synchronize().context("cuSPARSE")?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    // The first one loads kernels.
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

/// Times one case: a line per contender, or one that says why it could not run.
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
