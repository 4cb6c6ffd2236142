//! `spandrel spmv`: y = A x in every format that fits, checked and timed.
//!
//! For each format: convert, load, one product that is checked against the reference row by row, then the timing. A
//! format is dropped before the next one is made, so at most the matrix and one copy of it are in memory. Short
//! products are recorded several at a time, as a solver records its iterations. They run between two waits for the
//! device. So a launch and a wait count for no more than in a solver.
//!
//! Reference: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1 (the bound); Ogita, Rump,
//! Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005 (the reference result, as if in doubled
//! precision).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use spandrel::any::{Complete, EveryFormat, Task};
use spandrel::backend::{Backend, Coeff, Error, Recorded, Spmv, Step};
use spandrel::{Csr, Device, Format, Mat, Real};

use crate::args::{Precision, SpmvArgs};
use crate::failure::{Failure, Result};
use crate::progress::Spinner;
use crate::solve::random;
use crate::{backend, input, output};

/// Each measurement goes on for this long, in seconds, and this often.
const LEAST_SECONDS: f64 = 0.2;
const LEAST_RUNS: usize = 7;
const MOST_RUNS: usize = 2000;
/// The maximum number of operations per run, and the time in seconds that a run should reach.
const MOST_AT_ONCE: usize = 50;
const LONG_ENOUGH: f64 = 1e-3;
/// Bytes of each of the two vectors whose copy is timed: outside any cache.
const COPIED: usize = 128 << 20;
const SEED: u64 = 1;

#[derive(Serialize)]
struct Report {
    matrix: MatrixReport,
    backend: &'static str,
    device: String,
    n_threads: usize,
    precision: &'static str,
    /// GB/s of a copy: bytes read and bytes written.
    copy_gbs: f64,
    formats: Vec<Line>,
}

#[derive(Serialize)]
struct MatrixReport {
    name: String,
    nrows: usize,
    ncols: usize,
    nnz: usize,
}

/// One format: timed, or why not.
#[derive(Serialize)]
struct Line {
    format: &'static str,
    #[serde(flatten)]
    result: Measured,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Measured {
    Timed {
        ms: f64,
        ms_min: f64,
        ms_max: f64,
        runs: usize,
        bytes: u64,
        gbs: f64,
        of_copy: f64,
        /// The largest error of a row in units of its bound; at most 1 is right.
        error_of_bound: f64,
        correct: bool,
    },
    /// The answer is wrong, so its time means nothing.
    Wrong {
        error_of_bound: f64,
        correct: bool,
    },
    Skipped {
        skipped: String,
    },
}

pub(crate) fn run(args: &SpmvArgs) -> Result<()> {
    backend::open(args.backend, args.device)?.device.run(Job(args))
}

struct Job<'a>(&'a SpmvArgs);

impl Task for Job<'_> {
    type Output = Result<()>;
    fn run<B: Complete<f64> + Complete<f32>>(self, device: &B) -> Result<()> {
        match self.0.precision {
            Precision::F64 => measure::<f64, B>(self.0, device),
            Precision::F32 => measure::<f32, B>(self.0, device),
        }
    }
}

macro_rules! over_formats {
    ([($T:ty, $bench:expr, $wanted:expr)] $(($stem:ident, $Type:ident)),*) => {
        vec![$(
            $wanted(stringify!($stem)).then(|| $bench.format::<spandrel_formats::$Type<$T>>()),
        )*]
    };
}

fn measure<T: Real, B: EveryFormat<T>>(args: &SpmvArgs, device: &B) -> Result<()> {
    let a = input::matrix::<T>(&args.matrix)?;
    if let Some(why) = input::first_not_finite(&a) {
        return Err(Failure::new("not_finite", format!("{why}, so no answer could be checked")));
    }
    let spinner = Spinner::start("measuring the copy bandwidth");
    let copy_gbs = copy_bandwidth::<T, B>(device)?;
    spinner.say("computing the reference");
    let bench = Bench::new(device, &spinner, a, copy_gbs);
    let wanted = |stem: &str| args.format.is_empty() || args.format.iter().any(|name| name == stem);
    let results: Vec<Option<Result<Line>>> = spandrel_formats::for_each_format!(over_formats, (T, bench, wanted));
    let formats: Vec<Line> = results.into_iter().flatten().collect::<Result<_>>()?;
    let Bench { a, .. } = bench;
    drop(spinner);

    let report = Report {
        matrix: MatrixReport {
            name: input::name(&args.matrix).to_string(),
            nrows: a.nrows(),
            ncols: a.ncols(),
            nnz: a.nnz(),
        },
        backend: B::NAME,
        device: device.describe(),
        n_threads: rayon::current_num_threads(),
        precision: T::NAME,
        copy_gbs,
        formats,
    };
    let wrong: Vec<&str> = report
        .formats
        .iter()
        .filter(|line| matches!(line.result, Measured::Wrong { .. }))
        .map(|line| line.format)
        .collect();
    if !wrong.is_empty() {
        let message =
            format!("wrong answers in {}: outside the error bound of y = A x; please report it", wrong.join(", "));
        return Err(Failure::new("wrong_answer", message));
    }
    if args.json { output::print_json(&report) } else { output::print(&report.text()) }
}

/// y <- A x.
type Product<'a, V> = dyn FnMut(&V, &mut V) -> spandrel::backend::Result<()> + 'a;

/// A matrix, an x, and what y must be.
struct Bench<'a, T, B> {
    device: &'a B,
    spinner: &'a Spinner,
    a: Csr<T>,
    x: Vec<T>,
    reference: Vec<f64>,
    bound: Vec<f64>,
    copy_gbs: f64,
}

impl<'a, T: Real, B: Backend<T>> Bench<'a, T, B> {
    fn new(device: &'a B, spinner: &'a Spinner, a: Csr<T>, copy_gbs: f64) -> Self {
        let x = random::<T>(SEED, a.ncols());
        let (reference, bound) = (0..a.nrows()).map(|i| exact_row(&a, i, &x)).unzip();
        Self { device, spinner, a, x, reference, bound, copy_gbs }
    }

    fn format<F: Format<Value = T>>(&self) -> Result<Line>
    where
        B: Spmv<F>,
    {
        self.spinner.say(F::NAME);
        let skipped = |why: String| Line { format: F::NAME, result: Measured::Skipped { skipped: why } };
        let stored = match F::from_csr(&self.a) {
            Ok(stored) => stored,
            Err(error) => return Ok(skipped(error.to_string())),
        };
        let device = self.device;
        let a = match Mat::load(device, Arc::new(stored)) {
            Ok(a) => a,
            // The next format may fit.
            Err(error @ (Error::OutOfMemory { .. } | Error::Unsupported { .. })) => {
                return Ok(skipped(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let mut product = |x: &_, y: &mut _| a.spmv(device, None, Coeff::one(), x, Coeff::zero(), y);
        self.checked(F::NAME, a.spmv_bytes(), &mut product)
    }

    /// Checks and times a product, whatever the format.
    fn checked(
        &self,
        format: &'static str,
        bytes: u64,
        product: &mut Product<'_, <B as Backend<T>>::Vector>,
    ) -> Result<Line> {
        let device = self.device;
        let x = device.upload(&self.x)?;
        // An element that the product does not write stays NaN, so it is found.
        let mut y = device.upload(&vec![T::nan(); self.reference.len()])?;
        product(&x, &mut y)?;
        let error_of_bound = self.judge(&device.download(&y)?);
        if error_of_bound > 1.0 {
            return Ok(Line { format, result: Measured::Wrong { error_of_bound, correct: false } });
        }
        let times = time(device, |_: &B| product(&x, &mut y))?;
        let ms = times.median * 1e3;
        let gbs = rate(bytes, times.median);
        Ok(Line {
            format,
            result: Measured::Timed {
                ms,
                ms_min: times.least * 1e3,
                ms_max: times.most * 1e3,
                runs: times.runs,
                bytes,
                gbs,
                of_copy: gbs / self.copy_gbs,
                error_of_bound,
                correct: true,
            },
        })
    }

    /// The largest error of a row, in units of its bound. NaN counts as infinite.
    fn judge(&self, y: &[T]) -> f64 {
        let rows = y.iter().zip(self.reference.iter().zip(&self.bound));
        rows.map(|(y, (exact, bound))| {
            let error = (y.as_f64() - exact).abs();
            if error == 0.0 {
                0.0
            } else if error.is_nan() {
                f64::INFINITY
            } else {
                error / bound
            }
        })
        .fold(0.0, f64::max)
    }
}

/// Row `i` of A x in doubled precision, and the bound of a computed row: gamma(k + 2) |a_i| |x| with k entries, and the
/// reference's own rounding to f64.
fn exact_row<T: Real>(a: &Csr<T>, i: usize, x: &[T]) -> (f64, f64) {
    let (cols, values) = a.row(i);
    let (mut sum, mut lost, mut absolute) = (0.0f64, 0.0f64, 0.0f64);
    for (&j, v) in cols.iter().zip(values) {
        let (v, x) = (v.as_f64(), x[j as usize].as_f64());
        let product = v * x;
        let product_lost = v.mul_add(x, -product);
        let next = sum + product;
        let part = next - sum;
        lost += ((sum - (next - part)) + (product - part)) + product_lost;
        sum = next;
        absolute += product.abs();
    }
    let k = (cols.len() + 2) as f64;
    let gamma = k * T::UNIT_ROUNDOFF / (1.0 - k * T::UNIT_ROUNDOFF);
    let underflow = k * T::min_positive_value().as_f64();
    (sum + lost, gamma * absolute + underflow)
}

#[derive(Debug)]
struct Times {
    median: f64,
    least: f64,
    most: f64,
    runs: usize,
}

/// One operation, repeated.
struct Repeated<W> {
    work: W,
    times: usize,
}

// SAFETY: `work` is one call of one operation on what it borrows (see `time`, whose callers give nothing else): the
// same operands, in place and alive for as long as the closure is.
unsafe impl<D: Device, W: FnMut(&D) -> spandrel::backend::Result<()>> Step<D> for Repeated<W> {
    fn enqueue(&mut self, device: &D) -> spandrel::backend::Result<()> {
        (0..self.times).try_for_each(|_| (self.work)(device))
    }
}

/// Times `work`, one operation on operands that it borrows, until the median is reliable. The caller has run it once.
fn time<D: Device>(device: &D, mut work: impl FnMut(&D) -> spandrel::backend::Result<()>) -> Result<Times> {
    // The first call warms the caches; the second gives the estimate.
    let mut once = 0.0;
    for _ in 0..2 {
        let start = Instant::now();
        work(device)?;
        device.synchronize()?;
        once = start.elapsed().as_secs_f64();
    }
    let times = ((LONG_ENOUGH / once.max(1e-9)).ceil() as usize).clamp(1, MOST_AT_ONCE);
    let mut recorded = Recorded::new(device, Repeated { work, times }, true);
    let mut run = || -> Result<f64> {
        let start = Instant::now();
        recorded.run()?;
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / times as f64)
    };
    // The first run is plain and the second records. From the third on, the recording is replayed, so only the work is
    // timed.
    run()?;
    run()?;
    let mut seconds = Vec::with_capacity(64);
    let begin = Instant::now();
    while seconds.len() < LEAST_RUNS || (begin.elapsed().as_secs_f64() < LEAST_SECONDS && seconds.len() < MOST_RUNS) {
        seconds.push(run()?);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Times {
        median: seconds[seconds.len() / 2],
        least: seconds[0],
        most: seconds[seconds.len() - 1],
        runs: seconds.len() * times,
    })
}

/// GB/s.
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-9) / 1e9
}

fn copy_bandwidth<T: Real, B: Backend<T>>(device: &B) -> Result<f64> {
    let len = COPIED / T::BYTES;
    // Written once, so that each vector has pages of its own.
    let (mut from, mut to) = (device.zeros(len)?, device.zeros(len)?);
    device.fill(None, T::one(), &mut from)?;
    let times = time(device, |device: &B| device.copy(None, &from, &mut to))?;
    Ok(rate(2 * (len * T::BYTES) as u64, times.median))
}

impl Report {
    fn text(&self) -> String {
        let m = &self.matrix;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}: {} x {}, {}, {}\n{}: {}, copy {:.1} GB/s\n",
            m.name,
            input::grouped(m.nrows),
            input::grouped(m.ncols),
            input::counted(m.nnz, "entry"),
            self.precision,
            self.backend,
            self.device,
            self.copy_gbs
        );
        let _ = writeln!(text, "{:<7}{:>11}{:>11}{:>9}{:>10}", "format", "ms", "bytes", "GB/s", "of copy");
        for line in &self.formats {
            let _ = match &line.result {
                Measured::Timed { ms, bytes, gbs, of_copy, .. } => writeln!(
                    text,
                    "{:<7}{ms:>11.4}{:>11}{gbs:>9.2}{:>8.0} %",
                    line.format,
                    input::bytes(*bytes),
                    of_copy * 100.0
                ),
                Measured::Wrong { .. } => writeln!(text, "{:<7}    wrong", line.format),
                Measured::Skipped { skipped } => writeln!(text, "{:<7}    skipped: {skipped}", line.format),
            };
        }
        let best = self.formats.iter().filter_map(|line| match &line.result {
            Measured::Timed { ms, .. } => Some((line.format, *ms)),
            Measured::Wrong { .. } | Measured::Skipped { .. } => None,
        });
        if let Some((format, _)) = best.min_by(|a, b| a.1.total_cmp(&b.1)) {
            let _ = writeln!(text, "\nall answers are inside their error bounds; the fastest is {format}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_survives_cancellation() {
        // 1e16 + 1 - 1e16 is 0 or 2 in plain doubles.
        let a = Csr::new(1, 3, vec![0, 3], vec![0, 1, 2], vec![1e16, 1.0, -1e16]).unwrap();
        let (exact, bound) = exact_row(&a, 0, &[1.0; 3]);
        assert_eq!(exact, 1.0);
        assert!(bound > 1.0 && bound < 20.0, "{bound}");
    }

    #[test]
    fn a_wrong_or_missing_element_is_noticed() {
        let cpu = spandrel::Cpu::new();
        let spinner = Spinner::start("");
        let bench = Bench::new(&cpu, &spinner, Csr::<f64>::identity(4).unwrap(), 1.0);
        let mut y = bench.x.clone();
        assert_eq!(bench.judge(&y), 0.0);
        y[2] *= 1.0 + 1e-9;
        assert!(bench.judge(&y) > 1.0);
        y[2] = f64::NAN;
        assert!(bench.judge(&y) > 1.0);
    }
}
