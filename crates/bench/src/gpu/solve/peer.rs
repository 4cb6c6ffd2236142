//! Preconditioned CG and BiCGStab from cuSPARSE and cuBLAS: csric02 or csrilu02, SpSV for both triangles, the fastest
//! algorithm of SpMV with its preprocessing, cuBLAS's level 1 with device scalars, and kernels of one thread for
//! quotients.
//!
//! A first solve looks at every residual and finds how many iterations the tolerance needs, including the true
//! residual. Timed solves take that many iterations, with 16 in one graph, look after every 16 as ours do, and end with
//! the true residual. Their graphs are captured beforehand, while ours are captured during the solve. Vectors exist
//! before the set-up begins.
//!
//! Reference: NVIDIA, CUDALibrarySamples, cuSPARSE/cg and cuSPARSE/bicgstab; van der Vorst 1992.

use std::ffi::c_int;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use spandrel_backend::{Backend, Coeff};
use spandrel_backend_cuda::Vector;
use spandrel_backend_cuda::cudarc::driver::CudaGraph;
use spandrel_formats::Csr;
use spandrel_solvers::Status;
use spandrel_sptrsv::{Factor, Ic0, Ilu0};

use super::triangles::{Parts, Triangles, triangles};
use super::{Contender, Ended, Limits, Setup};
use crate::gpu::Gpu;
use crate::gpu::cg::Libraries;
use crate::gpu::clock::{Clock, capture};
use crate::gpu::csr02::{Csr02, Place};
use crate::gpu::cublas::Scalars;
use crate::gpu::cusparse::{Algorithm, Arrays, Product};
use crate::gpu::quotients::Quotients;
use crate::gpu::spsv::{Analysis, Dense};
use crate::krylov::Method;

/// Iterations between looks: the default of the solvers' `check_every`.
const LOOK: usize = 16;
/// The true residual must reach the tolerance within this many iterations after the recurrence has.
const BEYOND: usize = 50;
/// The solvers' default.
const DIVERGENCE: f64 = 1e8;
/// The number of applications with which ways are compared.
const APPLICATIONS: u32 = 5;

/// Places in the vector of device scalars, with their initial values.
const RHO: usize = 0;
const CURVATURE: usize = 1;
const ALPHA: usize = 2;
const NEG_ALPHA: usize = 3;
const TS: usize = 4;
const TT: usize = 5;
const OMEGA: usize = 6;
const NEG_OMEGA: usize = 7;
const NEXT: usize = 8;
const BETA: usize = 9;
const RR: usize = 10;
const ONE: usize = 11;
const NEG_ONE: usize = 12;
const TRUTH: usize = 13;
const BEGUN: [f64; 14] = [1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0];

/// A pivot with which the library cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("{noun}: the pivot of row {row} is zero, or not positive")]
pub(super) struct Broken {
    noun: &'static str,
    row: usize,
}

/// The input of a peer.
pub(super) struct Given<'a, 'c> {
    pub(super) gpu: &'a Gpu,
    pub(super) libraries: &'a Libraries,
    pub(super) method: Method,
    pub(super) csr: &'c Csr<f64>,
    /// The values to factor instead of A's: those of A + alpha diag(A).
    pub(super) shifted: Option<Vector<f64>>,
    pub(super) algorithm: Algorithm,
    /// The patterns of both triangles, if they are taken out of the matrix.
    pub(super) parts: Option<Parts>,
    pub(super) b: Rc<Vector<f64>>,
}

struct Vectors {
    x: Vector<f64>,
    r: Vector<f64>,
    shadow: Vector<f64>,
    p: Vector<f64>,
    v: Vector<f64>,
    t: Vector<f64>,
    /// The vector between the two solves, also used for the true residual.
    y: Vector<f64>,
    /// M^-1 p (in CG M^-1 r), M^-1 s.
    hat: Vector<f64>,
    s_hat: Vector<f64>,
    scalars: Vector<f64>,
}

impl Vectors {
    fn new(gpu: &Gpu, n: usize, method: Method) -> Result<Self> {
        let zeros = |len: usize| -> Result<Vector<f64>> { Ok(gpu.be.zeros(len)?) };
        let second = if method == Method::BiCgStab { n } else { 0 };
        Ok(Self {
            x: zeros(n)?,
            r: zeros(n)?,
            shadow: zeros(second)?,
            p: zeros(n)?,
            v: zeros(n)?,
            t: zeros(second)?,
            y: zeros(n)?,
            hat: zeros(n)?,
            s_hat: zeros(second)?,
            scalars: gpu.be.upload(&BEGUN)?,
        })
    }
}

/// M^-1: both triangles, and the vectors in the library's form.
struct Preconditioner {
    lower: Analysis<f64>,
    upper: Analysis<f64>,
    r: Dense,
    p: Dense,
    y: Dense,
    hat: Dense,
    s_hat: Option<Dense>,
    // Kept only for their memory; dropped after whatever has their addresses.
    _triangles: Triangles,
    _factors: Vector<f64>,
    _arrays: Rc<Arrays<f64>>,
}

/// The peer with its own workspace.
pub(super) struct Peer<'a> {
    gpu: &'a Gpu,
    libraries: Libraries,
    method: Method,
    // Dropped before what they have the addresses of.
    graphs: Option<[CudaGraph; 2]>,
    products: Vec<Product<f64>>,
    residual: Product<f64>,
    preconditioner: Preconditioner,
    vectors: Vectors,
    b: Rc<Vector<f64>>,
    quotients: Quotients,
    n: c_int,
    b_norm: f64,
    limits: Limits,
    /// The number of iterations that the tolerance needs, once known.
    iterations: Option<usize>,
}

fn milliseconds(gpu: &Gpu, since: &mut Instant) -> Result<f64> {
    gpu.stream().synchronize().context("a peer's set-up")?;
    let ms = since.elapsed().as_secs_f64() * 1e3;
    *since = Instant::now();
    Ok(ms)
}

impl<'a> Peer<'a> {
    /// Sets everything up from the matrix on the host, and returns how long each part took: copies of the matrix's
    /// arrays, the product, the factors, the analysis of the solves. The other parts of a solve, and the graphs, are
    /// made after that.
    ///
    /// # Errors
    /// [`Broken`]; those of a library; out of memory.
    pub(super) fn new(given: &Given<'a, '_>, limits: Limits) -> Result<(Self, Setup)> {
        let &Given { gpu, libraries, method, csr, algorithm, .. } = given;
        let (n, nnz, cusparse) = (csr.nrows(), csr.nnz(), &libraries.cusparse);
        let vectors = Vectors::new(gpu, n, method)?;
        let at = |v: &Vector<f64>| v.device_pointer();
        let mut setup = Setup::default();
        gpu.stream().synchronize().context("before a peer's set-up")?;
        let mut clock = Instant::now();

        let arrays = Rc::new(Arrays::csr(gpu, csr)?);
        setup.push("transfer", milliseconds(gpu, &mut clock)?);

        let form = match algorithm {
            Algorithm::Csr1 | Algorithm::Csr2 => Rc::clone(&arrays),
            Algorithm::Coo1 | Algorithm::Coo2 => Rc::new(arrays.coo(gpu, csr)?),
            Algorithm::Sell1 => Rc::new(Arrays::sell(gpu, csr)?),
        };
        let product = |x, y| Product::new(gpu, cusparse, &form, algorithm, x, y);
        let first = match method {
            Method::Cg => product(at(&vectors.p), at(&vectors.v))?,
            Method::BiCgStab => product(at(&vectors.hat), at(&vectors.v))?,
        };
        setup.push("operator", milliseconds(gpu, &mut clock)?);

        let mut factors: Vector<f64> = gpu.be.zeros(nnz)?;
        let from = given.shifted.as_ref().unwrap_or(arrays.values());
        gpu.be.axpby(None, Coeff::one(), from, Coeff::zero(), &mut factors)?;
        let noun = match method {
            Method::Cg => Ic0::<f64>::NAME,
            Method::BiCgStab => Ilu0::<f64>::NAME,
        };
        let index = arrays.index_addresses();
        let place = Place { n, nnz, row_ptr: index[0], cols: index[1], values: factors.device_pointer() };
        let made = Csr02::new(gpu, cusparse, noun, place)?;
        made.analyze(gpu)?;
        made.factor(gpu)?;
        if let Some(row) = made.broken()? {
            return Err(Broken { noun, row }.into());
        }
        drop(made);
        setup.push("factors", milliseconds(gpu, &mut clock)?);

        let split = triangles(gpu, cusparse, method, (n, nnz, index), at(&factors), given.parts.as_ref())?;
        let dense = |v: &Vector<f64>| Dense::new::<f64>(v.len(), at(v));
        let (r, y, hat) = (dense(&vectors.r)?, dense(&vectors.y)?, dense(&vectors.hat)?);
        let (mut lower, mut upper) =
            (Analysis::new(gpu, cusparse, &split.lower)?, Analysis::new(gpu, cusparse, &split.upper)?);
        for (analysis, from, to) in [(&mut lower, &r, &y), (&mut upper, &y, &hat)] {
            analysis.reserve(gpu, from, to)?;
            analysis.analyze(gpu, from, to)?;
        }
        setup.push("solves", milliseconds(gpu, &mut clock)?);

        let s_hat = if method == Method::BiCgStab { Some(dense(&vectors.s_hat)?) } else { None };
        let preconditioner = Preconditioner {
            lower,
            upper,
            r,
            p: dense(&vectors.p)?,
            y,
            hat,
            s_hat,
            _triangles: split,
            _factors: factors,
            _arrays: arrays,
        };
        let mut products = vec![first];
        if method == Method::BiCgStab {
            products.push(product(at(&vectors.s_hat), at(&vectors.t))?);
        }
        let mut peer = Self {
            gpu,
            libraries: libraries.clone(),
            method,
            graphs: None,
            products,
            residual: product(at(&vectors.x), at(&vectors.y))?,
            preconditioner,
            vectors,
            b: Rc::clone(&given.b),
            quotients: Quotients::new(gpu)?,
            n: c_int::try_from(n).context("cuBLAS counts in 32 bits")?,
            b_norm: 0.0,
            limits,
            iterations: None,
        };
        peer.prepare()?;
        Ok((peer, setup))
    }

    /// Computes ||b||, and captures the graphs if the library allows it.
    fn prepare(&mut self) -> Result<()> {
        self.begin()?;
        let (n, b, to) = (self.n, self.b.device_pointer(), self.scalar(TRUTH));
        // SAFETY: n elements and one of device memory that this struct keeps.
        unsafe { self.libraries.cublas.dot(n, b, b, to as *mut f64) }?;
        self.b_norm = self.scalars()?[TRUTH].sqrt();
        // The first iteration loads kernels.
        self.enqueue()?;
        self.gpu.stream().synchronize().context("an iteration of the peer")?;
        let graph = |calls| capture(self.gpu.stream(), calls, &mut || self.enqueue());
        let graphs = graph(LOOK as u32).and_then(|many| Ok([many, graph(1)?]));
        self.graphs = graphs.inspect_err(|why| eprintln!("  the peer's iteration is not captured: {why:#}")).ok();
        Ok(())
    }

    /// Whether its iterations run as graphs.
    pub(super) fn is_captured(&self) -> bool {
        self.graphs.is_some()
    }

    /// Milliseconds of M^-1.
    pub(super) fn application_ms(&self) -> Result<f64> {
        let m = &self.preconditioner;
        let mut apply = || (0..APPLICATIONS).try_for_each(|_| m.apply(&m.r, &m.hat));
        apply()?;
        Ok(Clock::new(self.gpu)?.time(self.gpu, &mut apply)? / f64::from(APPLICATIONS))
    }

    fn scalar(&self, at: usize) -> u64 {
        self.vectors.scalars.device_pointer() + 8 * at as u64
    }

    /// All scalars on the host. Blocks.
    fn scalars(&self) -> Result<Vec<f64>> {
        Ok(self.gpu.be.download(&self.vectors.scalars)?)
    }

    /// x = 0, r = b; p = 0 and scalars for which the first direction is M^-1 r, or r.
    fn begin(&mut self) -> Result<()> {
        let be = &self.gpu.be;
        self.gpu.bind()?;
        self.libraries.cublas.scalars(Scalars::Device)?;
        be.write(&BEGUN, &mut self.vectors.scalars)?;
        for vector in [&mut self.vectors.x, &mut self.vectors.p, &mut self.vectors.v] {
            be.fill(None, 0.0, vector)?;
        }
        be.copy(None, &self.b, &mut self.vectors.r)?;
        if self.method == Method::BiCgStab {
            be.copy(None, &self.b, &mut self.vectors.shadow)?;
        }
        Ok(())
    }

    fn enqueue(&self) -> Result<()> {
        match self.method {
            Method::Cg => self.cg(),
            Method::BiCgStab => self.bicgstab(),
        }
    }

    #[rustfmt::skip] // the right margin holds the formulas
    fn cg(&self) -> Result<()> {
        let (n, cublas, m) = (self.n, &self.libraries.cublas, &self.preconditioner);
        let Vectors { x, r, p, v, hat, .. } = &self.vectors;
        let [x, r, p, v, z] = [x, r, p, v, hat].map(Vector::device_pointer);
        let at = |place| self.scalar(place);
        m.apply(&m.r, &m.hat)?;                                                             // z = M^-1 r
        // SAFETY: vectors of n elements and scalars in device memory that this struct keeps; the context is bound.
        unsafe { cublas.dot(n, r, z, at(NEXT) as *mut f64) }?;                              // the next r'z
        // SAFETY: as above.
        unsafe { self.quotients.beta(self.gpu, [NEXT, RHO, BETA].map(at)) }?;               // beta = next / r'z
        // SAFETY: as above.
        unsafe { cublas.scal(n, at(BETA) as *const f64, p) }?;
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(ONE) as *const f64, z, p) }?;                            // p = z + beta p
        self.products[0].enqueue()?;                                                        // v = A p
        // SAFETY: as above.
        unsafe { cublas.dot(n, p, v, at(CURVATURE) as *mut f64) }?;                         // p'v
        // SAFETY: as above.
        unsafe { self.quotients.alpha(self.gpu, [RHO, CURVATURE, ALPHA, NEG_ALPHA].map(at)) }?; // alpha = r'z / p'v
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(ALPHA) as *const f64, p, x) }?;                          // x = x + alpha p
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(NEG_ALPHA) as *const f64, v, r) }?;                      // r = r - alpha v
        // SAFETY: as above.
        unsafe { cublas.dot(n, r, r, at(RR) as *mut f64) }                                  // r'r
    }

    #[rustfmt::skip] // the right margin holds the formulas
    fn bicgstab(&self) -> Result<()> {
        let (n, cublas, m) = (self.n, &self.libraries.cublas, &self.preconditioner);
        let Vectors { x, r, shadow, p, v, t, hat, s_hat, .. } = &self.vectors;
        let [x, r, shadow, p, v, t, p_hat, s_to] = [x, r, shadow, p, v, t, hat, s_hat].map(Vector::device_pointer);
        let s_hat = m.s_hat.as_ref().context("BiCGStab has a vector for M^-1 s")?;
        let at = |place| self.scalar(place);
        // SAFETY: vectors of n elements and scalars in device memory that this struct keeps; the context is bound.
        unsafe { cublas.dot(n, shadow, r, at(NEXT) as *mut f64) }?;                         // the next r0'r
        // SAFETY: as above.
        unsafe { self.quotients.direction(self.gpu, [NEXT, RHO, ALPHA, OMEGA, BETA].map(at)) }?; // beta = next / rho alpha / omega
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(NEG_OMEGA) as *const f64, v, p) }?;
        // SAFETY: as above.
        unsafe { cublas.scal(n, at(BETA) as *const f64, p) }?;
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(ONE) as *const f64, r, p) }?;                            // p = r + beta (p - omega v)
        m.apply(&m.p, &m.hat)?;                                                             // p^ = M^-1 p
        self.products[0].enqueue()?;                                                        // v = A p^
        // SAFETY: as above.
        unsafe { cublas.dot(n, shadow, v, at(CURVATURE) as *mut f64) }?;                    // r0'v
        // SAFETY: as above.
        unsafe { self.quotients.alpha(self.gpu, [RHO, CURVATURE, ALPHA, NEG_ALPHA].map(at)) }?; // alpha = rho / r0'v
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(ALPHA) as *const f64, p_hat, x) }?;                      // x = x + alpha p^
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(NEG_ALPHA) as *const f64, v, r) }?;                      // s = r - alpha v
        m.apply(&m.r, s_hat)?;                                                              // s^ = M^-1 s
        self.products[1].enqueue()?;                                                        // t = A s^
        // SAFETY: as above.
        unsafe { cublas.dot(n, t, r, at(TS) as *mut f64) }?;                                // t's
        // SAFETY: as above.
        unsafe { cublas.dot(n, t, t, at(TT) as *mut f64) }?;                                // t't
        // SAFETY: as above.
        unsafe { self.quotients.alpha(self.gpu, [TS, TT, OMEGA, NEG_OMEGA].map(at)) }?;     // omega = t's / t't
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(OMEGA) as *const f64, s_to, x) }?;                       // x = x + omega s^
        // SAFETY: as above.
        unsafe { cublas.axpy(n, at(NEG_OMEGA) as *const f64, t, r) }?;                      // r = s - omega t
        // SAFETY: as above.
        unsafe { cublas.dot(n, r, r, at(RR) as *mut f64) }                                  // r'r
    }

    /// Takes this many iterations.
    fn iterate(&self, count: usize) -> Result<()> {
        let Some([many, one]) = &self.graphs else {
            return (0..count).try_for_each(|_| self.enqueue());
        };
        for _ in 0..count / LOOK {
            many.launch().context("replaying the peer's iterations")?;
        }
        (0..count % LOOK).try_for_each(|_| one.launch().context("replaying the peer's iteration"))
    }

    /// ||b - A x|| / ||b||. Blocks.
    fn truth(&self) -> Result<f64> {
        let (n, cublas) = (self.n, &self.libraries.cublas);
        let (b, y) = (self.b.device_pointer(), self.vectors.y.device_pointer());
        self.residual.enqueue()?;
        // SAFETY: vectors of n elements and scalars in device memory that this struct keeps.
        unsafe { cublas.axpy(n, self.scalar(NEG_ONE) as *const f64, b, y) }?;
        // SAFETY: as above.
        unsafe { cublas.dot(n, y, y, self.scalar(TRUTH) as *mut f64) }?;
        Ok(self.scalars()?[TRUTH].sqrt() / self.b_norm)
    }

    /// A solve that looks after every iteration.
    fn search(&mut self) -> Result<Ended> {
        let (start, rtol) = (Instant::now(), self.limits.rtol);
        let (mut done, mut beyond) = (0, 0);
        self.begin()?;
        let status = loop {
            if done == self.limits.max_iters {
                break Status::MaxIterations;
            }
            if start.elapsed().as_secs_f64() > self.limits.seconds {
                break Status::Interrupted;
            }
            self.iterate(1)?;
            done += 1;
            let norm = self.scalars()?[RR].sqrt() / self.b_norm;
            if !norm.is_finite() {
                break Status::NotFinite;
            }
            if norm > DIVERGENCE {
                break Status::Diverged;
            }
            if norm <= rtol || beyond > 0 {
                if self.truth()? <= rtol {
                    break Status::Converged;
                }
                beyond += 1;
            }
            if beyond > BEYOND {
                break Status::Stagnated;
            }
        };
        Ok(Ended { status, iterations: done, true_residual: self.truth()? })
    }
}

impl Preconditioner {
    /// to <- M^-1 from.
    fn apply(&self, from: &Dense, to: &Dense) -> Result<()> {
        self.lower.enqueue(from, &self.y)?;
        self.upper.enqueue(&self.y, to)
    }
}

impl Contender for Peer<'_> {
    fn solve(&mut self) -> Result<Ended> {
        let Some(iterations) = self.iterations else {
            let ended = self.search()?;
            if ended.status.is_converged() {
                self.iterations = Some(ended.iterations);
            }
            return Ok(ended);
        };
        self.begin()?;
        let mut left = iterations;
        while left > 0 {
            let more = left.min(LOOK);
            self.iterate(more)?;
            left -= more;
            // Looks at the residual.
            self.scalars()?;
        }
        let true_residual = self.truth()?;
        let status = if true_residual <= self.limits.rtol { Status::Converged } else { Status::Stagnated };
        Ok(Ended { status, iterations, true_residual })
    }

    fn answer(&self) -> Result<Vec<f64>> {
        Ok(self.gpu.be.download(&self.vectors.x)?)
    }
}
