//! The fastest storage format by measurement: each candidate's product is timed on the device.

use std::sync::Arc;
use std::time::Instant;

use spandrel_backend::{Backend, Coeff, Spmv};
use spandrel_formats::{Csr, Format, Real};
use spandrel_solvers::{Error, Narrowed, Result};

use super::element::{Element, SolverBackend};
use super::engine::in_format;
use super::settings::Precision;
use crate::Mat;
use crate::any::EveryFormat;

/// The fastest format, and the formats that were tried.
pub(super) struct Measured {
    pub(super) format: &'static str,
    pub(super) why: String,
}

/// Products of one batch, timed together.
const BATCH: usize = 4;
/// Batches; the fastest counts.
const BATCHES: usize = 4;

/// Finds the fastest of some formats for the products of a solve. Formats that do not fit the matrix are skipped.
///
/// # Errors
/// A device that fails. Running out of memory ends only the trial of that format.
pub(super) fn fastest<T: Element, B: SolverBackend<T>>(
    device: &B,
    a: &Arc<Csr<T>>,
    candidates: &[&'static str],
    precision: Precision,
) -> Result<Measured> {
    let mut found: Vec<(&'static str, f64)> = Vec::new();
    // Refinement multiplies in f32.
    let narrow = (precision == Precision::Refined).then(|| Arc::new(Narrowed::new(&a.map(|v| v.as_f64())).matrix));
    for &format in candidates {
        let seconds = match &narrow {
            Some(narrow) => seconds::<f32, B>(device, narrow, format),
            None => seconds::<T, B>(device, a, format),
        };
        match seconds {
            Ok(seconds) => found.push((format, seconds)),
            Err(
                Error::Backend(
                    spandrel_backend::Error::OutOfMemory { .. } | spandrel_backend::Error::Unsupported { .. },
                )
                | Error::Format(_),
            ) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    let tried: Vec<String> = found.iter().map(|(format, seconds)| format!("{format} {:.3}", 1e3 * seconds)).collect();
    Ok(match found.first() {
        Some(&(format, _)) => Measured { format, why: format!("measured, ms per product: {}", tried.join(", ")) },
        None => Measured { format: "csr", why: "none of the candidates could be measured".to_string() },
    })
}

fn seconds<T: Element, B: EveryFormat<T>>(device: &B, a: &Arc<Csr<T>>, format: &'static str) -> Result<f64> {
    spandrel_formats::for_each_format!(in_format, (T, format, seconds_in, (device, a)))
}

fn seconds_in<F: Format, B: Spmv<F>>(device: &B, a: &Arc<Csr<F::Value>>) -> Result<f64> {
    let stored = Mat::<B, F>::load(device, F::from_csr(a)?)?;
    let mut product = |x: &_, y: &mut _| stored.spmv(device, None, Coeff::one(), x, Coeff::zero(), y);
    best(device, (a.nrows(), a.ncols()), &mut product)
}

/// The least time of a product, whatever the format.
fn best<T: Real, B: Backend<T>>(
    device: &B,
    (nrows, ncols): (usize, usize),
    product: &mut dyn FnMut(&B::Vector, &mut B::Vector) -> spandrel_backend::Result<()>,
) -> Result<f64> {
    let (x, mut y) = (device.upload(&vec![T::from_f64(1.0); ncols])?, device.zeros(nrows)?);
    let mut product = || product(&x, &mut y);
    // The first product loads the kernel and warms the caches.
    product()?;
    device.synchronize()?;
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            product()?;
        }
        device.synchronize()?;
        best = best.min(start.elapsed().as_secs_f64() / BATCH as f64);
    }
    Ok(best)
}
