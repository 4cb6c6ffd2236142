//! The peer of our CG: Hestenes and Stiefel's loop over cuSPARSE's product and cuBLAS's level 1, as in NVIDIA's
//! samples.
//!
//! With host scalars each dot product comes back to the host. With device scalars, kernels of one thread
//! ([`Quotients`]) divide, and ten iterations form one graph.

use std::ffi::c_int;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use spandrel_backend::Backend;
use spandrel_backend_cuda::Vector;
use spandrel_backend_cuda::cudarc::driver::CudaGraph;

use super::Gpu;
use super::clock::capture;
use super::cublas::{Cublas, Scalars};
use super::cusparse::{Algorithm, Cusparse, Forms, Product};
use super::quotients::Quotients;

/// Iterations in one graph.
pub(crate) const ITERATIONS: usize = 10;

/// Places in the vector of device scalars.
const RR: u64 = 0;
const PQ: u64 = 1;
const ALPHA: u64 = 2;
const NEGATED: u64 = 3;
const BETA: u64 = 4;
const NEXT: u64 = 5;
const ONE: u64 = 6;

/// The peer's CG in a workspace of its own.
pub(crate) struct Peer<'a> {
    gpu: &'a Gpu,
    cublas: Rc<Cublas>,
    // Dropped before the vectors whose addresses it has.
    graph: Option<CudaGraph>,
    product: Product<f64>,
    n: c_int,
    b: Rc<Vector<f64>>,
    x: Vector<f64>,
    r: Vector<f64>,
    p: Vector<f64>,
    q: Vector<f64>,
    scalars: Vector<f64>,
    quotients: Quotients,
    place: Scalars,
}

impl<'a> Peer<'a> {
    /// Prepares everything, including the graph.
    pub(crate) fn new(
        gpu: &'a Gpu,
        cusparse: &Rc<Cusparse>,
        cublas: &Rc<Cublas>,
        forms: &Forms<f64>,
        algorithm: Algorithm,
        b: &Rc<Vector<f64>>,
        place: Scalars,
    ) -> Result<Self> {
        let n = b.len();
        let zeros = || -> Result<Vector<f64>> { Ok(gpu.be.zeros(n)?) };
        let (p, q) = (zeros()?, zeros()?);
        let mut peer = Self {
            gpu,
            cublas: Rc::clone(cublas),
            graph: None,
            product: forms.product(gpu, cusparse, algorithm, p.device_pointer(), q.device_pointer())?,
            n: c_int::try_from(n).context("cuBLAS counts in 32 bits")?,
            b: Rc::clone(b),
            x: zeros()?,
            r: zeros()?,
            p,
            q,
            scalars: gpu.be.upload(&[1.0; 7])?,
            quotients: Quotients::new(gpu)?,
            place,
        };
        if let Scalars::Device = place {
            peer.begin()?;
            peer.iterate_on_device()?;
            gpu.stream().synchronize().context("an iteration of the peer")?;
            let graph = capture(gpu.stream(), ITERATIONS as u32, &mut || peer.iterate_on_device())?;
            peer.graph = Some(graph);
        }
        Ok(peer)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.product.bytes()
    }

    pub(crate) fn answer(&self) -> Result<Vec<f64>> {
        Ok(self.gpu.be.download(&self.x)?)
    }

    /// x = 0, r = p = b.
    fn begin(&mut self) -> Result<()> {
        let be = &self.gpu.be;
        self.gpu.bind()?;
        self.cublas.scalars(self.place)?;
        be.fill(None, 0.0, &mut self.x)?;
        be.copy(None, &self.b, &mut self.r)?;
        be.copy(None, &self.b, &mut self.p)?;
        if let Scalars::Device = self.place {
            let r = self.r.device_pointer();
            // SAFETY: n elements and one of device memory that this struct keeps.
            unsafe { self.cublas.dot(self.n, r, r, self.scalar(RR) as *mut f64) }?;
        }
        Ok(())
    }

    /// Takes this many iterations from x = 0.
    pub(crate) fn run(&mut self, iterations: usize) -> Result<()> {
        self.begin()?;
        match &self.graph {
            Some(graph) => {
                ensure!(
                    iterations.is_multiple_of(ITERATIONS),
                    "{iterations} iterations are not a multiple of {ITERATIONS}"
                );
                for _ in 0..iterations / ITERATIONS {
                    graph.launch().context("replaying the peer's iterations")?;
                }
                Ok(())
            }
            None => self.iterate_from_host(iterations),
        }
    }

    fn scalar(&self, at: u64) -> u64 {
        self.scalars.device_pointer() + 8 * at
    }

    fn vectors(&self) -> [u64; 4] {
        [&self.x, &self.r, &self.p, &self.q].map(Vector::device_pointer)
    }

    #[rustfmt::skip] // the right margin holds the formulas
    fn iterate_on_device(&self) -> Result<()> {
        let (n, [x, r, p, q]) = (self.n, self.vectors());
        let at = |place| self.scalar(place);
        self.product.enqueue()?;                                                            // q = A p
        // SAFETY: vectors of n elements and scalars in device memory that this struct keeps.
        unsafe { self.cublas.dot(n, p, q, at(PQ) as *mut f64) }?;                           // p'q
        // SAFETY: scalars in device memory that this struct keeps; the context is bound.
        unsafe { self.quotients.alpha(self.gpu, [RR, PQ, ALPHA, NEGATED].map(at)) }?;       // alpha = r'r / p'q
        // SAFETY: as above.
        unsafe { self.cublas.axpy(n, at(ALPHA) as *const f64, p, x) }?;                     // x = x + alpha p
        // SAFETY: as above.
        unsafe { self.cublas.axpy(n, at(NEGATED) as *const f64, q, r) }?;                   // r = r - alpha q
        // SAFETY: as above.
        unsafe { self.cublas.dot(n, r, r, at(NEXT) as *mut f64) }?;                         // the next r'r
        // SAFETY: as above.
        unsafe { self.quotients.beta(self.gpu, [NEXT, RR, BETA].map(at)) }?;                // beta = next / r'r
        // SAFETY: as above.
        unsafe { self.cublas.scal(n, at(BETA) as *const f64, p) }?;
        // SAFETY: as above.
        unsafe { self.cublas.axpy(n, at(ONE) as *const f64, r, p) }                         // p = r + beta p
    }

    fn iterate_from_host(&self, iterations: usize) -> Result<()> {
        let (n, [x, r, p, q]) = (self.n, self.vectors());
        let dot = |a: u64, b: u64| -> Result<f64> {
            let mut value = 0.0;
            // SAFETY: vectors of n elements in device memory that this struct keeps; the call blocks until the value is
            // there.
            unsafe { self.cublas.dot(n, a, b, &mut value) }?;
            Ok(value)
        };
        let axpy = |a: f64, from: u64, to: u64| {
            // SAFETY: as above; the host's scalar is read by the call.
            unsafe { self.cublas.axpy(n, &a, from, to) }
        };
        let mut rr = dot(r, r)?;
        for _ in 0..iterations {
            self.product.enqueue()?;
            let alpha = rr / dot(p, q)?;
            axpy(alpha, p, x)?;
            axpy(-alpha, q, r)?;
            let next = dot(r, r)?;
            // SAFETY: as above.
            unsafe { self.cublas.scal(n, &(next / rr), p) }?;
            axpy(1.0, r, p)?;
            rr = next;
        }
        Ok(())
    }
}
