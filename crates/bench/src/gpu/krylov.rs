//! Whole solves on a GPU: ours by format, and cuSPARSE's product in our solver, with both algorithms for CSR.
//!
//! A descriptor of cuSPARSE has fixed addresses, so the operator keeps one product per pair of vectors. They are made
//! when an iteration first runs plainly, before it is captured.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Result;
use spandrel_backend::{Error, Gate, Operator};
use spandrel_backend_cuda::{Cuda, Vector};
use spandrel_formats::Csr;

use super::Gpu;
use super::cusparse::{Algorithm, Arrays, Cusparse, Product};
use crate::krylov::{self, Contest, Findings, Label, Peers, Place, Plan};

struct LibraryProduct<'a> {
    gpu: &'a Gpu,
    library: Rc<Cusparse>,
    arrays: Rc<Arrays<f64>>,
    algorithm: Algorithm,
    shape: (usize, usize),
    /// The products by the addresses of x and y.
    products: RefCell<BTreeMap<(u64, u64), Product<f64>>>,
}

// SAFETY: a call enqueues only the product of its own operands. Its descriptor and buffer are made once and kept with
// the operator. A capture that meets a new pair fails, because memory cannot be allocated in it. The product runs even
// after the solve has stopped; nobody reads y then.
unsafe impl Operator<f64, Cuda> for LibraryProduct<'_> {
    fn shape(&self) -> (usize, usize) {
        self.shape
    }
    fn apply(&self, _: &Cuda, _: Gate<'_, Cuda>, x: &Vector<f64>, y: &mut Vector<f64>) -> spandrel_backend::Result<()> {
        let failed = |why: anyhow::Error| Error::Device { device: <Cuda as Place>::STEM, why: format!("{why:#}") };
        let (x, y) = (x.device_pointer(), y.device_pointer());
        let mut products = self.products.borrow_mut();
        if let Some(product) = products.get(&(x, y)) {
            return product.enqueue().map_err(failed);
        }
        let made = Product::new(self.gpu, &self.library, &self.arrays, self.algorithm, x, y).map_err(failed)?;
        made.enqueue().map_err(failed)?;
        products.insert((x, y), made);
        Ok(())
    }
}

/// cuSPARSE, if it was found.
struct Libraries<'a> {
    gpu: &'a Gpu,
    cusparse: Option<&'a Rc<Cusparse>>,
}

impl Peers<Cuda> for Libraries<'_> {
    fn add<'b>(&'b self, contest: &mut Contest<'b, Cuda>) -> Result<()> {
        let Some(library) = self.cusparse else { return Ok(()) };
        let csr = contest.csr;
        let arrays = Rc::new(Arrays::csr(self.gpu, csr)?);
        for (algorithm, kernel) in
            [(Algorithm::Csr1, "alg1's product in our solver"), (Algorithm::Csr2, "alg2's product in our solver")]
        {
            let product = LibraryProduct {
                gpu: self.gpu,
                library: Rc::clone(library),
                arrays: Rc::clone(&arrays),
                algorithm,
                shape: (csr.nrows(), csr.ncols()),
                products: RefCell::default(),
            };
            let label = Label { noun: "csr", contender: "cusparse", kernel: Some(kernel), bytes: arrays.bytes() };
            if let Err(why) = contest.add(label, product) {
                contest.left_out("csr", "cusparse", &why.context(kernel), Cuda::STEM);
            }
        }
        Ok(())
    }
}

/// Times one system, with `library` if cuSPARSE was found.
///
/// # Errors
/// A matrix that is not square; a failure on its own values and on its Laplacian's; a device that fails.
pub fn run(gpu: &Gpu, library: Option<&Rc<Cusparse>>, case: &str, csr: &Csr<f64>, plan: &Plan) -> Result<Findings> {
    krylov::run(&gpu.be, case, csr, plan, &Libraries { gpu, cusparse: library })
}
