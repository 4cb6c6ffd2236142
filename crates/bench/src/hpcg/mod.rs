//! `spandrel-bench hpcg`: HPCG's problem, its checks and its count of operations, by our CG with the multigrid cycle.
//!
//! As in HPCG (version 3.1, one process), the reference takes 50 iterations, which set the residual to reach. Then our
//! number of iterations to this residual is found, and sets of that many are timed. The rating counts the operations of
//! the reference's 50, whatever ours took. Unlike HPCG's, our solver ends when the residual has reached rounding, so on
//! a small grid a set has only the iterations before `FLOOR`.
//!
//! Checks: departure from symmetry of product and cycle; iterations with a diagonal made dominant (12 without, 2 with
//! the cycle); no more iterations than the reference to 1e-6; the same residual in every set. The number is not an HPCG
//! result: those come from HPCG's own program and rules.
//!
//! Bytes of an iteration: A's storage, the cycle's by [`Multigrid::bytes`], and 13 passes over vectors of n.
//!
//! References: Dongarra, Heroux, Luszczek, HPCG benchmark, 2015; its TestCG.cpp, TestSymmetry.cpp, ReportResults.cpp.

mod reference;

use std::borrow::Cow;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use spandrel_backend::{Backend, CgSteps, Coeff, Mat, Operator, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Bdia, Csr, Dia, Format, Real, choose};
use spandrel_solvers::multigrid::{Halves, Planned, Smoother};
use spandrel_solvers::{Cg, Hierarchy, Identity, Multigrid, Options};
use spandrel_sptrsv::{Capellini, Sweep};

use crate::record::{Line, More};
use reference::{LEVELS, Problem};

/// Iterations of a set, as the reference counts them.
const RATED: usize = 50;
/// ||r|| / ||b|| below which no iteration counts: eight times the roundoff at which our solver ends.
const FLOOR: f64 = 4.0 * f64::EPSILON;
/// The share by which a residual may miss the reference's. Both are equal in exact arithmetic, so rounding decides
/// whether ours is below.
const TIE: f64 = 1e-6;
/// The number of cycles and products that are timed separately.
const CALLS: u32 = 20;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The extents X, Y, Z.
    pub size: [usize; 3],
    /// The format of the product, `"csr"`, `"dia"` or `"bdia"`; `None` for the library's choice.
    pub format: Option<String>,
    /// Iterations of the reference, 50 in HPCG. It runs on one thread; fewer keep large grids bearable.
    pub reference: usize,
    /// Timed sets.
    pub sets: usize,
}

/// The fields of a line that only HPCG has.
#[derive(Clone, Debug, Serialize)]
pub struct Hpcg {
    /// Whether every check passed.
    pub valid: bool,
    /// The operations of the reference's iterations to the same residual, by HPCG's count, over the median time of a
    /// set; in 1e9 per second.
    pub gflops: f64,
    /// HPCG's rating: a tenth of set-up and optimisation is added to each set's time.
    pub gflops_rated: f64,
    /// Operations in a set of the reference.
    pub flops: f64,
    /// Iterations of the reference, which set the tolerance.
    pub reference_iterations: usize,
    /// The ||r|| / ||b|| that it reached.
    pub reference_residual: f64,
    /// The iterations that ours needs for that, up to a millionth of it.
    pub iterations_needed: usize,
    /// The iterations that each needs for 1e-6, if it gets there: reference, ours.
    pub iterations_to_1e6: (Option<usize>, Option<usize>),
    /// ||r|| / ||b|| at the end of a set, and whether all sets have the same bits.
    pub scaled_residual: f64,
    /// See `scaled_residual`.
    pub same_bits: bool,
    /// ||x - 1|| / ||1|| at the end of a set.
    pub error: f64,
    /// HPCG's scaled departures from symmetry, at most 1: product, cycle.
    pub departure: [f64; 2],
    /// Iterations with the dominant diagonal, at most 12 and 2: without, and with the cycle.
    pub dominant: [Option<usize>; 2],
    /// Extents of the grids.
    pub grids: Vec<[usize; 3]>,
    /// The plan of the finest grid's triangular solves.
    pub sweep: &'static str,
    /// Milliseconds to generate the matrices.
    pub setup_ms: f64,
    /// Milliseconds from the matrices to the objects on the device.
    pub optimize_ms: f64,
    /// Milliseconds of one cycle and of one product, enqueued one after the other.
    pub cycle_ms: f64,
    /// See `cycle_ms`.
    pub product_ms: f64,
    /// Bytes of one cycle over its time.
    pub cycle_gbs: f64,
}

/// Reads `64` or `64x32x32`.
///
/// # Errors
/// Extents that do not allow four grids, or whose ratio HPCG refuses.
pub fn size(text: &str) -> Result<[usize; 3]> {
    let parts: Vec<usize> = text.split('x').map(str::parse).collect::<Result<_, _>>()?;
    let size = match parts[..] {
        [n] => [n; 3],
        [x, y, z] => [x, y, z],
        _ => bail!("{text} is no size: 64, or 64x32x32"),
    };
    let divisor = 1 << (LEVELS - 1);
    ensure!(size.iter().all(|n| *n > 0 && n.is_multiple_of(divisor)), "{text}: four grids need multiples of {divisor}");
    let (least, most) = (size.iter().min(), size.iter().max());
    ensure!(
        least.zip(most).is_some_and(|(least, most)| 8 * least >= *most),
        "{text}: one axis is over 8 times another"
    );
    Ok(size)
}

/// Runs one size on a backend.
///
/// # Errors
/// A format that is not available; a backend that fails; a reference that does not converge.
pub fn run<B>(be: &B, plan: &Plan) -> Result<Line>
where
    B: Spmv<Csr<f64>>
        + Spmv<Dia<f64>>
        + Spmv<Bdia<f64>>
        + Sptrsv<Sweep<f64>>
        + Sptrsv<Capellini<f64>>
        + CgSteps<f64>
        + 'static,
{
    let start = Instant::now();
    let problem = Problem::new(plan.size)?;
    let setup_ms = milliseconds(start);
    let chosen = choose(&problem.operators[0], be.profile()).format;
    match plan.format.as_deref() {
        Some("csr") => run_in::<Csr<f64>, B>(be, &problem, plan, setup_ms),
        Some("dia") => run_in::<Dia<f64>, B>(be, &problem, plan, setup_ms),
        Some("bdia") => run_in::<Bdia<f64>, B>(be, &problem, plan, setup_ms),
        Some(other) => bail!("hpcg has no format {other}: csr, dia, bdia"),
        None if chosen == "bdia" => run_in::<Bdia<f64>, B>(be, &problem, plan, setup_ms),
        None => run_in::<Dia<f64>, B>(be, &problem, plan, setup_ms),
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn smoother<B>(be: &B, halves: &Halves<f64>) -> spandrel_solvers::Result<Box<dyn Smoother<f64, B>>>
where
    B: Sptrsv<Sweep<f64>> + Sptrsv<Capellini<f64>> + CgSteps<f64> + 'static,
{
    use spandrel_solvers::Error as E;
    match Planned::<B, Sweep<f64>>::new(be, halves) {
        Ok(sweep) => Ok(Box::new(sweep)),
        // The coarsest grids may be too small for it.
        Err(E::Triangle(_) | E::Backend(spandrel_backend::Error::Unsupported { .. })) => {
            Ok(Box::new(Planned::<B, Capellini<f64>>::new(be, halves)?))
        }
        Err(error) => Err(error),
    }
}

/// The cycle on a device with `fine` as the finest operator.
fn cycle<B>(be: &B, problem: &Problem, fine: &Csr<f64>) -> Result<Multigrid<f64, B>>
where
    B: Spmv<Csr<f64>> + Sptrsv<Sweep<f64>> + Sptrsv<Capellini<f64>> + CgSteps<f64> + 'static,
{
    let operators = std::iter::once(fine).chain(&problem.operators[1..]).map(Cow::Borrowed).collect();
    Ok(Multigrid::with(be, &Hierarchy::injected(operators, problem.size)?, smoother)?)
}

/// ||r|| / ||b|| after this many iterations from x = 0, and x.
fn solve<B: CgSteps<f64>>(
    be: &B,
    a: &impl Operator<f64, B>,
    m: &impl Preconditioner<f64, B>,
    b: &[f64],
    iterations: usize,
) -> Result<Vec<f64>> {
    // A tolerance of zero is never met.
    let options =
        Options { rtol: Some(0.0), max_iters: Some(iterations), check_every: iterations, ..Options::default() };
    let (b, mut x) = (be.upload(b)?, be.zeros(b.len())?);
    Ok(Cg::new(be, be.len(&b))?.solve(be, a, m, &b, &mut x, &options)?.history)
}

/// The first iteration that reaches a tolerance.
fn first(history: &[f64], tolerance: f64) -> Option<usize> {
    history.iter().position(|&r| r <= tolerance)
}

fn run_in<F: Format<Value = f64>, B>(be: &B, problem: &Problem, plan: &Plan, setup_ms: f64) -> Result<Line>
where
    B: Spmv<F> + Spmv<Csr<f64>> + Sptrsv<Sweep<f64>> + Sptrsv<Capellini<f64>> + CgSteps<f64> + 'static,
{
    let csr = &problem.operators[0];
    let n = csr.nrows();
    let expected = problem.cg(plan.reference);
    let reference = first(&expected, FLOOR).unwrap_or(plan.reference);
    let tolerance = expected[reference];
    ensure!(tolerance < 1.0, "the reference came to {tolerance:e}");

    let start = Instant::now();
    let a = Mat::<B, F>::load(be, F::from_csr(csr)?)?;
    let m = cycle(be, problem, csr)?;
    be.synchronize()?;
    let optimize_ms = milliseconds(start);

    let most = 2 * reference.max(RATED);
    let found = solve(be, &a, &m, &problem.b, most)?;
    let Some(needed) = first(&found, tolerance * (1.0 + TIE)) else {
        bail!("no residual of {tolerance:e} in {most} iterations, the reference needs {reference}")
    };
    let departure = departure(be, &a, &m, n)?;
    let dominant = dominant::<F, B>(be, problem)?;

    // Sets of as many iterations as 50 of the reference are worth.
    let floor = first(&found, FLOOR).unwrap_or(most);
    let iterations = (RATED * needed).div_ceil(reference).min(floor);
    let options = Options {
        rtol: Some(0.0),
        max_iters: Some(iterations),
        check_every: iterations,
        history: false,
        ..Options::default()
    };
    let (b, mut x) = (be.upload(&problem.b)?, be.zeros(n)?);
    let mut cg = Cg::new(be, n)?;
    let (mut times, mut residuals) = (Vec::new(), Vec::new());
    for set in 0..=plan.sets {
        be.fill(None, 0.0, &mut x)?;
        be.synchronize()?;
        let start = Instant::now();
        let outcome = cg.solve(be, &a, &m, &b, &mut x, &options)?;
        be.synchronize()?;
        ensure!(outcome.iterations == iterations, "a set ended as {} after {}", outcome.status, outcome.iterations);
        // The first is to warm up.
        if set > 0 {
            times.push(milliseconds(start));
            residuals.push(outcome.residual);
        }
    }
    times.sort_by(f64::total_cmp);
    let (ms, each) = (times[times.len() / 2], iterations as f64);
    let answer = be.download(&x)?;
    let error = (answer.iter().map(|x| (x - 1.0).powi(2)).sum::<f64>() / n as f64).sqrt();
    let (cycle_ms, product_ms) = alone(be, &a, &m, &b, &mut x)?;

    let same_bits = residuals.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits());
    let to_1e6 = (first(&expected, 1e-6), first(&found, 1e-6));
    let valid = to_1e6.0.is_none_or(|theirs| to_1e6.1.is_some_and(|ours| ours <= theirs))
        && departure.iter().all(|d| *d <= 1.0)
        && dominant[0].is_some_and(|k| k <= 12)
        && dominant[1].is_some_and(|k| k <= 2)
        && same_bits;
    let flops = problem.flops(each * reference as f64 / needed as f64);
    let bytes = a.storage() + m.bytes() + (13 * f64::BYTES * n) as u64;
    let hpcg = Hpcg {
        valid,
        gflops: flops / ms / 1e6,
        gflops_rated: flops / (ms + (setup_ms + optimize_ms) / 10.0) / 1e6,
        flops,
        reference_iterations: reference,
        reference_residual: tolerance,
        iterations_needed: needed,
        iterations_to_1e6: to_1e6,
        scaled_residual: residuals[0],
        same_bits,
        error,
        departure,
        dominant,
        grids: m.sizes().to_vec(),
        sweep: m.plan(),
        setup_ms,
        optimize_ms,
        cycle_ms,
        product_ms,
        cycle_gbs: m.bytes() as f64 / cycle_ms / 1e6,
    };
    let [nx, ny, nz] = plan.size;
    Ok(Line {
        op: "hpcg",
        noun: F::NAME.into(),
        element: "f64",
        backend: B::NAME,
        contender: "spandrel",
        case: format!("d3n27:{nx}x{ny}x{nz}"),
        n,
        nnz: csr.nnz(),
        ms: ms / each,
        ms_min: times[0] / each,
        ms_max: times[times.len() - 1] / each,
        bytes,
        gbs: bytes as f64 * each / ms / 1e6,
        of_copy: None,
        of_triad: None,
        ratio_to_best_peer: None,
        ratio_to_csr: None,
        more: More { iterations: Some(iterations), whole_ms: Some(ms), hpcg: Some(hpcg), ..More::default() },
    })
}

/// HPCG's departures from symmetry: |x'Ay - y'Ax| / (2 |x|^2 52 |y|^2 eps) for x and y in [1, 2), and the same for the
/// cycle.
fn departure<B: Backend<f64>>(
    be: &B,
    a: &impl Operator<f64, B>,
    m: &impl Preconditioner<f64, B>,
    n: usize,
) -> Result<[f64; 2]> {
    let number = |i: usize, step: f64| 1.0 + (i as f64 * step).fract();
    let x = be.upload(&(0..n).map(|i| number(i, 0.618_033_988_75)).collect::<Vec<_>>())?;
    let y = be.upload(&(0..n).map(|i| number(i, 0.754_877_666_25)).collect::<Vec<_>>())?;
    let mut z = be.zeros(n)?;
    let mut scalar = be.scalar(0.0)?;
    let mut dot = |v: &B::Vector, w: &B::Vector| -> Result<f64> {
        be.dot(None, v, w, &mut scalar)?;
        Ok(be.download_scalar(&scalar)?)
    };
    let scale = 2.0 * dot(&x, &x)? * 52.0 * dot(&y, &y)? * f64::EPSILON;
    a.apply(be, None, &y, &mut z)?;
    let xay = dot(&x, &z)?;
    a.apply(be, None, &x, &mut z)?;
    let yax = dot(&y, &z)?;
    m.apply(be, None, &y, &mut z)?;
    let xmy = dot(&x, &z)?;
    m.apply(be, None, &x, &mut z)?;
    let ymx = dot(&y, &z)?;
    Ok([(xay - yax).abs() / scale, (xmy - ymx).abs() / scale])
}

/// HPCG's spectral check: a million on the diagonal (two to ten million in the first nine rows), and b scaled alike. CG
/// reaches 1e-12 in about as many iterations as the diagonal has different values. With the cycle, whose coarse
/// operators stay, it takes one or two.
fn dominant<F: Format<Value = f64>, B>(be: &B, problem: &Problem) -> Result<[Option<usize>; 2]>
where
    B: Spmv<F> + Spmv<Csr<f64>> + Sptrsv<Sweep<f64>> + Sptrsv<Capellini<f64>> + CgSteps<f64> + 'static,
{
    let (mut csr, mut b) = (problem.operators[0].clone(), problem.b.clone());
    for (i, b) in b.iter_mut().enumerate() {
        let scale = if i < 9 { (i + 2) as f64 * 1e6 } else { 1e6 };
        let at = csr.row_ptr()[i] as usize + csr.row(i).0.partition_point(|&j| (j as usize) < i);
        csr.values_mut()[at] *= scale;
        *b *= scale;
    }
    let a = Mat::<B, F>::load(be, F::from_csr(&csr)?)?;
    let m = cycle(be, problem, &csr)?;
    let without = first(&solve(be, &a, &Identity, &b, 12)?, 1e-12);
    Ok([without, first(&solve(be, &a, &m, &b, 2)?, 1e-12)])
}

/// Milliseconds of a cycle and of a product.
fn alone<F: Format<Value = f64>, B>(
    be: &B,
    a: &Mat<B, F>,
    m: &Multigrid<f64, B>,
    b: &<B as Backend<f64>>::Vector,
    x: &mut <B as Backend<f64>>::Vector,
) -> Result<(f64, f64)>
where
    B: Spmv<F> + Spmv<Csr<f64>>,
{
    let timed = |call: &mut dyn FnMut() -> spandrel_backend::Result<()>| -> Result<f64> {
        call()?;
        be.synchronize()?;
        let start = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        be.synchronize()?;
        Ok(milliseconds(start) / f64::from(CALLS))
    };
    let cycle = timed(&mut || m.apply(be, None, b, x))?;
    let product = timed(&mut || a.spmv(be, None, Coeff::one(), b, Coeff::zero(), x))?;
    Ok((cycle, product))
}

/// The lines in a few words each.
pub fn summary(line: &Line) -> String {
    let Some(h) = &line.more.hpcg else { return String::new() };
    let count = |k: Option<usize>| k.map_or("more".to_owned(), |k| k.to_string());
    format!(
        "{} {} {}: {:.2} GF/s ({:.2} with setup), {:.4} ms an iteration, cycle {:.4} ms by {}, product {:.4} ms; {} iterations for the \
         reference's {} ({:.1e}); symmetry {:.1e} {:.1e}; dominant diagonal {} and {}; {}",
        line.case,
        line.noun,
        line.backend,
        h.gflops,
        h.gflops_rated,
        line.ms,
        h.cycle_ms,
        h.sweep,
        h.product_ms,
        h.iterations_needed,
        h.reference_iterations,
        h.reference_residual,
        h.departure[0],
        h.departure[1],
        count(h.dominant[0]),
        count(h.dominant[1]),
        if h.valid { "valid" } else { "NOT VALID" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_backend_cpu::Cpu;

    #[test]
    fn sizes() {
        assert_eq!(size("64").unwrap(), [64, 64, 64]);
        assert_eq!(size("16x32x64").unwrap(), [16, 32, 64]);
        for bad in ["", "60", "8x8", "0", "8x8x72", "-8", "16x16x16x16"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ours_needs_no_more_iterations_than_the_reference() {
        for (text, format, reference) in [("16", "csr", 50), ("16x24x32", "dia", 15), ("24", "bdia", 15)] {
            let plan = Plan { size: size(text).unwrap(), format: Some(format.into()), reference, sets: 2 };
            let line = run(&Cpu::new(), &plan).unwrap();
            let hpcg = line.more.hpcg.as_ref().unwrap();
            println!("{}", summary(&line));
            assert!(hpcg.valid, "{line:?}");
            assert!(hpcg.iterations_to_1e6.0.is_some(), "{line:?}");
            assert!(hpcg.error < 1e-6, "{line:?}");
        }
    }
}
