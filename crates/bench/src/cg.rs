//! `spandrel-bench cg`: one iteration of CG without a preconditioner, ours by format against faer's solver and the
//! textbook loop over sprs's product.
//!
//! The bytes of an iteration are the same for every contender: A's storage and 11 passes over vectors of n (A p: 2,
//! update: 6, direction: 3), the model of our fused steps. So GB/s compare times, and a contender that moves more bytes
//! shows a lower rate.

use anyhow::{Result, bail};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::matrix_free::IdentityPrecond;
use faer::matrix_free::conjugate_gradient::{CgParams, conjugate_gradient, conjugate_gradient_scratch};
use faer::sparse::{SparseRowMat, SymbolicSparseRowMat};
use rayon::prelude::*;
use spandrel_backend::{Backend, Mat, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format, Traffic, for_each_format};
use spandrel_solvers::{Cg, Identity, Options, Status};
use sprs::CsMatI;

use crate::case::Case;
use crate::contender::{Contender, Effort, interleave};
use crate::machine::Stream;
use crate::record::{Line, More};
use crate::spmv::NARROW;

struct Ours<'b, F: Format<Value = f64>>
where
    Cpu: Spmv<F>,
{
    be: &'b Cpu,
    mat: Mat<Cpu, F>,
    b: <Cpu as Backend<f64>>::Vector,
    x: <Cpu as Backend<f64>>::Vector,
    cg: Cg<f64, Cpu>,
    options: Options,
    iterations: usize,
}

impl<F: Format<Value = f64>> Contender for Ours<'_, F>
where
    Cpu: Spmv<F>,
{
    fn noun(&self) -> String {
        F::NAME.into()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn kernel(&self) -> Option<String> {
        self.mat.is_narrow(self.be).then(|| NARROW.into())
    }
    fn bytes(&self) -> u64 {
        self.mat.storage() + 11 * 8 * self.mat.nrows() as u64
    }
    fn calls(&self) -> u64 {
        self.iterations as u64
    }
    fn run(&mut self) {
        self.be.fill(None, 0.0, &mut self.x).expect("fill does not fail on the CPU");
        let out = self
            .cg
            .solve(self.be, &self.mat, &Identity, &self.b, &mut self.x, &self.options)
            .expect("sizes were matched when the contender was made");
        assert!(
            out.status == Status::MaxIterations && out.iterations == self.iterations,
            "{}: a timed solve ended as {} after {} iterations: ask for fewer",
            F::NAME,
            out.status,
            out.iterations
        );
    }
    fn poison(&mut self) {
        self.be.fill(None, f64::NAN, &mut self.x).expect("fill does not fail on the CPU");
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.be.download(&self.x).expect("download does not fail on the CPU"))
    }
}

fn ours<'b, F: Format<Value = f64>>(
    be: &'b Cpu,
    csr: &Csr<f64>,
    iterations: usize,
) -> Result<Option<Box<dyn Contender + 'b>>>
where
    Cpu: Spmv<F>,
{
    let Ok(format) = F::from_csr(csr) else { return Ok(None) };
    let n = csr.nrows();
    // A tolerance of zero is never met: every contender does the same number of iterations.
    let options = Options {
        rtol: Some(0.0),
        max_iters: Some(iterations),
        history: false,
        check_every: iterations,
        ..Options::default()
    };
    Ok(Some(Box::new(Ours::<F> {
        be,
        mat: Mat::load(be, format)?,
        b: be.upload(&right_hand_side(n))?,
        x: be.zeros(n)?,
        cg: Cg::new(be, n)?,
        options,
        iterations,
    })))
}

pub(crate) fn right_hand_side(n: usize) -> Vec<f64> {
    (0..n).map(|i| 0.5 + (i as f64 * 0.618_033_988_75).fract()).collect()
}

struct Faer {
    mat: SparseRowMat<u32, f64>,
    b: faer::Mat<f64>,
    x: faer::Mat<f64>,
    stack: MemBuffer,
    bytes: u64,
    iterations: usize,
}

impl Contender for Faer {
    fn noun(&self) -> String {
        "csr".into()
    }
    fn name(&self) -> &'static str {
        "faer"
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn calls(&self) -> u64 {
        self.iterations as u64
    }
    fn run(&mut self) {
        self.x.fill(0.0);
        let params =
            CgParams { rel_tolerance: 0.0, abs_tolerance: 0.0, max_iters: self.iterations, ..Default::default() };
        let _ = conjugate_gradient(
            self.x.as_mut(),
            IdentityPrecond { dim: self.b.nrows() },
            self.mat.as_ref(),
            self.b.as_ref(),
            params,
            |_| {},
            faer::Par::rayon(0),
            MemStack::new(&mut self.stack),
        );
    }
    fn poison(&mut self) {
        self.x.fill(f64::NAN);
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some((0..self.x.nrows()).map(|i| self.x[(i, 0)]).collect())
    }
}

/// Hestenes and Stiefel's loop over sprs's product and plain slices: what a user of sprs writes.
struct SprsLoop {
    mat: CsMatI<f64, u32>,
    b: Vec<f64>,
    x: Vec<f64>,
    bytes: u64,
    iterations: usize,
}

impl Contender for SprsLoop {
    fn noun(&self) -> String {
        "csr".into()
    }
    fn name(&self) -> &'static str {
        "sprs"
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn calls(&self) -> u64 {
        self.iterations as u64
    }
    fn run(&mut self) {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        self.x.fill(0.0);
        let mut r = self.b.clone();
        let mut p = r.clone();
        let mut q = vec![0.0; r.len()];
        let mut rr = dot(&r, &r);
        for _ in 0..self.iterations {
            q.fill(0.0);
            sprs::prod::mul_acc_mat_vec_csr(self.mat.view(), &p[..], &mut q[..]);
            let alpha = rr / dot(&p, &q);
            self.x.iter_mut().zip(&p).for_each(|(x, p)| *x += alpha * p);
            r.iter_mut().zip(&q).for_each(|(r, q)| *r -= alpha * q);
            let next = dot(&r, &r);
            let beta = next / rr;
            p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + beta * *p);
            rr = next;
        }
    }
    fn poison(&mut self) {
        self.x.fill(f64::NAN);
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.x.clone())
    }
}

/// The residual's norm over that of b.
pub(crate) fn relative_residual(csr: &Csr<f64>, x: &[f64], b: &[f64]) -> f64 {
    let squared = |(i, b): (usize, &f64)| {
        let (cols, values) = csr.row(i);
        let ax: f64 = cols.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum();
        (b - ax) * (b - ax)
    };
    let sum: f64 = b.par_iter().enumerate().map(squared).sum();
    (sum / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

/// The textbook's loop over sprs's product, and faer's solver, for this many iterations.
pub(crate) fn peers(csr: &Csr<f64>, b: &[f64], iterations: usize, bytes: u64) -> [Box<dyn Contender>; 2] {
    let n = csr.nrows();
    let (rows, cols, ptr, idx, values) = csr.clone().into_parts();
    let sprs = SprsLoop {
        mat: CsMatI::new((rows, cols), ptr.clone(), idx.clone(), values.clone()),
        b: b.to_vec(),
        x: vec![0.0; n],
        bytes,
        iterations,
    };
    let mat = SparseRowMat::new(SymbolicSparseRowMat::new_checked(rows, cols, ptr, None, idx), values);
    let stack =
        MemBuffer::new(conjugate_gradient_scratch(IdentityPrecond { dim: n }, mat.as_ref(), 1, faer::Par::rayon(0)));
    let (b, x) = (faer::Mat::from_fn(n, 1, |i, _| b[i]), faer::Mat::zeros(n, 1));
    [Box::new(sprs), Box::new(Faer { mat, b, x, stack, bytes, iterations })]
}

/// Times one case and returns one line per contender.
pub fn run(be: &Cpu, case: &Case, formats: &[String], iterations: usize, effort: Effort) -> Result<Vec<Line>> {
    let csr: Csr<f64> = case.load()?;
    let (n, nnz) = (csr.nrows(), csr.nnz());
    let b = right_hand_side(n);
    let wanted = |stem: &str| formats.is_empty() || formats.iter().any(|f| f == stem);
    let mut contenders: Vec<Box<dyn Contender + '_>> = Vec::new();
    macro_rules! add_formats {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(if wanted(stringify!($stem)) {
                contenders.extend(ours::<spandrel_formats::$Type<f64>>(be, &csr, iterations)?);
            })*
        };
    }
    for_each_format!(add_formats);
    contenders.extend(peers(&csr, &b, iterations, csr.storage() + 11 * 8 * n as u64));

    // The same number of iterations from the same start. All must have come equally far, up to the effect of rounding
    // on CG.
    let mut reached = Vec::new();
    for c in &mut contenders {
        c.poison();
        c.run();
        reached.push(relative_residual(&csr, &c.answer().unwrap_or_default(), &b));
    }
    for (c, &r) in contenders.iter().zip(&reached) {
        if !(r <= 2.0 * reached[0] && reached[0] <= 2.0 * r) {
            bail!("{}: {} of {} came to a residual of {r:e}, ours to {:e}", case.name, c.noun(), c.name(), reached[0]);
        }
    }
    contenders.push(Box::new(Stream::new(false)));
    contenders.push(Box::new(Stream::new(true)));
    let timings = interleave(&mut contenders, effort);

    let gbs = |k: usize| contenders[k].bytes() as f64 / timings[k].ms / 1e6;
    let find = |noun: &str, name: &str| {
        (0..contenders.len()).find(|&k| contenders[k].noun() == noun && contenders[k].name() == name)
    };
    let (copy, triad) = (find("copy", "machine").map(gbs), find("triad", "machine").map(gbs));
    let peers = ["sprs", "faer"].iter().filter_map(|p| find("csr", p)).map(|k| timings[k].ms);
    let best_peer = peers.min_by(f64::total_cmp);
    let csr_ms = find("csr", "spandrel").map(|k| timings[k].ms);
    Ok(contenders
        .iter()
        .enumerate()
        .map(|(k, c)| {
            let own = c.name() == "spandrel";
            Line {
                op: "cg",
                noun: c.noun(),
                element: "f64",
                backend: "cpu",
                contender: c.name(),
                case: case.name.clone(),
                n,
                nnz,
                ms: timings[k].ms,
                ms_min: timings[k].min,
                ms_max: timings[k].max,
                bytes: c.bytes(),
                gbs: gbs(k),
                of_copy: copy.map(|b| gbs(k) / b),
                of_triad: triad.map(|b| gbs(k) / b),
                ratio_to_best_peer: best_peer.filter(|_| own).map(|p| p / timings[k].ms),
                ratio_to_csr: csr_ms.filter(|_| own).map(|c| c / timings[k].ms),
                more: More { kernel: c.kernel(), ..More::default() },
            }
        })
        .collect())
}
