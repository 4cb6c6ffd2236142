//! `spandrel-bench convert`: the cost of another format for a CSR matrix on the device, made there or built by the host
//! and uploaded.
//!
//! A time ends when the device is idle. It is a median: of three runs of the host's work (or one long one), of `TIMES`
//! of the device's. The first run does not count, because it compiles kernels and allocates. Bytes are those that a
//! conversion must move: the CSR matrix read and the result written once; the copy is the faster of the device's own.
//! Both ways end with matrices of the same products, bit for bit. The rows of CSR itself are arrays that are used in
//! place: the device only checks them, reading row pointers twice and columns once.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Coeff, Convert, Load, Mat, Spmv};
use spandrel_backend_cuda::cudarc::driver::{DevicePtr, DeviceRepr};
use spandrel_backend_cuda::{Cuda, RawCsr, Vector};
use spandrel_formats::{Bdia, Coo, Csr, Dia, Ell, Format, Hyb, Real, Sell};

use super::clock::interleave;
use super::spmv::{copies, error_line};
use super::{Gpu, Room};
use crate::case::Case;
use crate::contender::Effort;
use crate::spmv::operand;
use crate::sptrsv::{prepared, stopwatch};

/// The number of timings on the device.
const TIMES: usize = 7;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Stems of the formats, or empty for all that are made on the device.
    pub formats: Vec<String>,
    /// How long to time the copy.
    pub effort: Effort,
    /// Limits of memory.
    pub room: Room,
}

/// The measurement of one case.
struct Contest<'a, T: Real> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    case: &'a str,
    csr: Arc<Csr<T>>,
    loaded: Mat<Cuda, Csr<T>>,
    x: Vector<T>,
    copy_gbs: f64,
    lines: Vec<Value>,
}

/// Milliseconds of the host's work, of the upload, of the device's work.
struct Times {
    host: f64,
    upload: f64,
    device: f64,
}

impl<T: Real + DeviceRepr> Contest<'_, T> {
    fn idle(&self) -> Result<()> {
        self.gpu.stream().synchronize().context("the device has failed")
    }

    /// The median. The device is idle before and after, and the results are dropped in between.
    fn on_device<R>(&self, mut work: impl FnMut() -> Result<R>) -> Result<f64> {
        let mut times = Vec::new();
        for turn in 0..=TIMES {
            self.idle()?;
            let (made, ms) = stopwatch(|| {
                let made = work()?;
                self.idle()?;
                anyhow::Ok(made)
            });
            drop(made?);
            if turn > 0 {
                times.push(ms);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    fn product<F: Format<Value = T>>(&self, mat: &Mat<Cuda, F>) -> Result<Vec<T>>
    where
        Cuda: Spmv<F> + Backend<T, Vector = Vector<T>>,
    {
        let mut y = self.gpu.be.zeros(self.csr.nrows())?;
        self.gpu.be.fill(None, T::from_f64(f64::NAN), &mut y)?;
        mat.spmv(&self.gpu.be, None, Coeff::one(), &self.x, Coeff::zero(), &mut y)?;
        Ok(self.gpu.be.download(&y)?)
    }

    fn line(&mut self, noun: &str, times: &Times, bytes: u64, storage: u64) {
        let Times { host, upload, device } = *times;
        let gbs = bytes as f64 / device / 1e6;
        let (of_copy, ratio) = (gbs / self.copy_gbs, (host + upload) / device);
        self.lines.push(json!({
            "op": "convert", "noun": noun, "type": T::NAME, "backend": "cuda", "contender": "spandrel", "case": self.case,
            "n": self.csr.nrows(), "nnz": self.csr.nnz(), "storage": storage, "host_ms": host, "upload_ms": upload, "ms": device,
            "bytes": bytes, "gbs": gbs, "of_copy": of_copy, "ratio_to_host": ratio,
        }));
    }

    fn left_out(&mut self, noun: &str, why: &anyhow::Error) {
        let why = format!("{why:#}");
        eprintln!("  {noun}: {why}");
        self.lines.push(error_line("convert", noun, T::NAME, "spandrel", self.case, &why));
    }

    /// Measures a format. A failure becomes a line.
    fn add<F: Format<Value = T>>(&mut self) -> Result<()>
    where
        Cuda: Spmv<F> + Convert<Csr<T>, F> + Backend<T, Vector = Vector<T>>,
    {
        if !self.wanted(F::NAME) {
            return Ok(());
        }
        match self.timed::<F>() {
            Ok((times, bytes, storage)) => self.line(F::NAME, &times, bytes, storage),
            Err(why) => self.left_out(F::NAME, &why),
        }
        self.gpu.release_memory()
    }

    fn wanted(&self, stem: &str) -> bool {
        self.plan.formats.is_empty() || self.plan.formats.iter().any(|format| format == stem)
    }

    fn timed<F: Format<Value = T>>(&self) -> Result<(Times, u64, u64)>
    where
        Cuda: Spmv<F> + Convert<Csr<T>, F> + Backend<T, Vector = Vector<T>>,
    {
        let be = &self.gpu.be;
        let (made, host) = prepared(|| Ok(F::from_csr(&self.csr)?))?;
        let storage = made.storage();
        ensure!(
            storage <= self.plan.room.most,
            "{:.1} GiB of storage, more than --max-gib",
            storage as f64 / f64::from(1u32 << 30)
        );
        let made = Arc::new(made);
        let upload = self.on_device(|| Ok(Load::<F>::load(be, Arc::clone(&made))?))?;
        let uploaded = self.product::<F>(&Mat::load(be, made)?)?;
        let device = self.on_device(|| Ok(Convert::<Csr<T>, F>::convert(be, self.loaded.resident())?))?;
        let converted: Mat<Cuda, F> = self.loaded.convert(be)?;
        same(&self.product(&converted)?, &uploaded)?;
        Ok((Times { host, upload, device }, self.loaded.storage() + storage, storage))
    }

    /// A CSR matrix that is used in place on the device, against its upload.
    fn wrapped(&mut self) -> Result<()> {
        let be = &self.gpu.be;
        let upload = self.on_device(|| Ok(Load::<Csr<T>>::load(be, Arc::clone(&self.csr))?))?;
        let stream = self.gpu.stream();
        let row_ptr = stream.clone_htod(self.csr.row_ptr())?;
        let col_idx = stream.clone_htod(self.csr.col_idx())?;
        let values = stream.clone_htod(self.csr.values())?;
        let raw = RawCsr {
            nrows: self.csr.nrows(),
            ncols: self.csr.ncols(),
            nnz: self.csr.nnz(),
            row_ptr: row_ptr.device_ptr(stream).0,
            col_idx: col_idx.device_ptr(stream).0,
            values: values.device_ptr(stream).0,
        };
        // SAFETY: the slices have these lengths, are on this device, outlive the wrapper, and are not written
        // meanwhile.
        let wrap = || Ok(unsafe { be.wrap_raw_csr::<T>(raw)? });
        let device = self.on_device(wrap)?;
        same(&self.product(&wrap()?)?, &self.product(&self.loaded)?)?;
        let bytes = 8 * (raw.nrows as u64 + 1) + 4 * raw.nnz as u64;
        self.line(Csr::<T>::NAME, &Times { host: 0.0, upload, device }, bytes, self.loaded.storage());
        Ok(())
    }
}

/// The timings as a table, in Markdown if `markdown` is set.
pub fn table(lines: &[Value], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(["case", "type", "format", "host ms", "upload ms", "device ms", "ratio", "GB/s", "of copy"]);
    let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let number = |line: &Value, field: &str, digits: usize| {
        line[field].as_f64().map_or(String::new(), |value| format!("{value:.digits$}"))
    };
    for line in lines.iter().filter(|line| line.get("error").is_none()) {
        table.add_row([
            text(line, "case"),
            text(line, "type"),
            text(line, "noun"),
            number(line, "host_ms", 3),
            number(line, "upload_ms", 3),
            number(line, "ms", 4),
            number(line, "ratio_to_host", 1),
            number(line, "gbs", 0),
            line["of_copy"].as_f64().map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    table.to_string()
}

/// # Errors
/// The first element that has other bits.
fn same<T: Real>(found: &[T], wanted: &[T]) -> Result<()> {
    let differs = |(f, w): (&T, &T)| f.as_f64().to_bits() != w.as_f64().to_bits();
    match found.iter().zip(wanted).position(differs) {
        Some(row) => anyhow::bail!("row {row} of the product: {:e}, expected {:e}", found[row], wanted[row]),
        None => Ok(()),
    }
}

/// Times one case: a line per format, or one that says why it could not be made.
///
/// # Errors
/// A case that cannot be read; a device that fails.
pub fn run<T: Real + DeviceRepr>(gpu: &Gpu, case: &Case, plan: &Plan) -> Result<Vec<Value>> {
    let csr: Arc<Csr<T>> = Arc::new(case.load()?);
    let copy_gbs = {
        let mut all = copies(gpu)?;
        let timings = interleave(gpu, &mut all.iter_mut().collect::<Vec<_>>(), plan.effort)?;
        let gbs = all.iter().zip(&timings).map(|(timed, timing)| timed.label.bytes as f64 / timing.ms / 1e6);
        gbs.max_by(f64::total_cmp).context("the copy was not timed")?
    };
    gpu.release_memory()?;
    let loaded = Mat::load(&gpu.be, Arc::clone(&csr))?;
    let x = gpu.be.upload(&operand::<T>(csr.ncols()))?;
    let mut contest = Contest { gpu, plan, case: &case.name, csr, loaded, x, copy_gbs, lines: Vec::new() };
    contest.add::<Coo<T>>()?;
    contest.add::<Ell<T>>()?;
    contest.add::<Sell<T>>()?;
    contest.add::<Dia<T>>()?;
    contest.add::<Bdia<T>>()?;
    contest.add::<Hyb<T>>()?;
    if contest.wanted(Csr::<T>::NAME)
        && let Err(why) = contest.wrapped()
    {
        contest.left_out(Csr::<T>::NAME, &why);
    }
    contest.idle()?;
    Ok(contest.lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_timed_is_a_row_with_its_share() {
        let timed = json!({
            "case": "d3n7:8", "type": "f64", "noun": "dia", "host_ms": 12.5, "upload_ms": 2.5, "ms": 0.5, "ratio_to_host": 30.0,
            "gbs": 1000.4, "of_copy": 0.251,
        });
        let said = table(&[timed, error_line("convert", "ell", "f64", "spandrel", "p", "too long")], true);
        let row =
            |of: &str| said.lines().find(|line| line.contains(of)).unwrap().split_whitespace().collect::<String>();
        assert_eq!(row("dia"), "|d3n7:8|f64|dia|12.500|2.500|0.5000|30.0|1000|25%|");
        assert!(!said.contains("ell"), "{said}");
    }

    #[test]
    fn other_bits_are_found() {
        assert!(same(&[1.0, -0.0], &[1.0, -0.0]).is_ok());
        assert!(same(&[1.0, -0.0], &[1.0, 0.0]).unwrap_err().to_string().contains("row 1"));
    }
}
