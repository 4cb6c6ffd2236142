//! `spandrel-bench spgemm` on a GPU: C = A A and A^T by their phases.
//!
//! A phase ends when the device is idle. The numeric phase is timed on the device, as the mean of several calls
//! captured in one graph. Pattern and values of C must have the host's bits.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spandrel_backend::Mat;
use spandrel_backend_cuda::Cuda;
use spandrel_formats::{Csr, SpgemmPlan};

use super::Gpu;
use super::clock::{Clock, capture};
use crate::case::Case;
use crate::contender::LEAST_ROUNDS;
use crate::spgemm::{Phases, Product, line, timed};

/// Calls of one graph.
const CALLS: u32 = 10;

fn same(what: &str, found: &Csr<f64>, expected: &Csr<f64>) -> Result<()> {
    let bits = |m: &Csr<f64>| m.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let pattern = found.row_ptr() == expected.row_ptr() && found.col_idx() == expected.col_idx();
    ensure!(pattern && bits(found) == bits(expected), "{what} differs from the host's");
    Ok(())
}

/// Milliseconds of one call of `work` on the device, after a first one.
fn on_device(gpu: &Gpu, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let graph = capture(gpu.stream(), CALLS, &mut work)?;
    let mut replay = || graph.launch().context("replaying the calls");
    replay()?;
    Ok(Clock::new(gpu)?.time(gpu, &mut replay)? / f64::from(CALLS))
}

/// Times one case.
///
/// # Errors
/// A matrix that cannot be read or is not square; a device that fails or has other bits.
pub fn run(gpu: &Gpu, case: &Case, rounds: usize) -> Result<Vec<Value>> {
    let (be, host) = (&gpu.be, case.load::<f64>()?);
    let a = Mat::<Cuda, Csr<f64>>::load(be, host.clone())?;
    let (plan, mut expected) = SpgemmPlan::symbolic(&host, &host)?;
    plan.numeric(&host, &host, &mut expected)?;
    let of = Product::of(&host, &expected, plan.multiplications());
    let (mut product, mut transpose) = (Phases::default(), Phases::default());
    for round in 0..rounds.max(LEAST_ROUNDS) {
        gpu.check()?;
        let (whole, (mut c, plan)) = timed(|| {
            let made = a.spgemm(be, &a)?;
            gpu.check()?;
            Ok(made)
        })?;
        if round == 0 {
            same("the product", &c.download(be)?, &expected)?;
        }
        let numeric = on_device(gpu, || Ok(plan.numeric(be, None, &a, &a, &mut c)?))?;
        drop(c);
        let (whole_t, (mut t, plan_t)) = timed(|| {
            let made = a.transpose(be)?;
            gpu.check()?;
            Ok(made)
        })?;
        if round == 0 {
            same("the transpose", &t.download(be)?, &host.transpose())?;
            // The first round loads kernels.
            continue;
        }
        let moved = on_device(gpu, || Ok(plan_t.numeric(be, None, &a, &mut t)?))?;
        product.push(whole - numeric, numeric);
        transpose.push(whole_t - moved, moved);
    }
    let nnz = host.values().len();
    let of_transpose = Product { nnz, multiplications: 0, bytes: 20 * nnz as u64 };
    Ok(vec![
        line("spgemm", case, &host, "cuda", "spandrel", of, &product),
        line("transpose", case, &host, "cuda", "spandrel", of_transpose, &transpose),
    ])
}
