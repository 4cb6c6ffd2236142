//! Your own preconditioner: the Neumann polynomial of a matrix, compared with Jacobi.
//!
//! With D = diag(A) and G = I - D^-1 A, the polynomial is M^-1 = (I + G + G^2 + G^3) D^-1. It is symmetric, as CG needs
//! it. It is positive definite if the eigenvalues of D^-1 A are inside (0, 2), as for a diagonally dominant A. An
//! application costs three products with A and no sum over a whole vector.
//!
//! Only operations of the contract are used, so this runs on any backend; on the CPU `preconditioner::from_fn` is
//! shorter. `Solver` makes its preconditioners itself. So this example puts the parts together: device, matrix,
//! preconditioner, method.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 12.3.
//!
//! ```sh
//! cargo run --release -p spandrel --example own_preconditioner
//! ```

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;

use spandrel::backend::CgSteps;
use spandrel::solvers::{Jacobi, cg};
use spandrel::{Coeff, Csr, Gate, Mat, Options, Outcome, Preconditioner, Result, Spmv, default_backend, formats};

/// Terms after the first.
const TERMS: usize = 3;

/// The polynomial of a matrix on the device.
pub(crate) struct Neumann<'a, B: Spmv<Csr<f64>>> {
    a: &'a Mat<B, Csr<f64>>,
    inv_diag: B::Vector,
    /// r - A z, and D^-1 times it. Allocated once, because a recorded step keeps their addresses.
    scratch: RefCell<[B::Vector; 2]>,
}

impl<'a, B: Spmv<Csr<f64>>> Neumann<'a, B> {
    /// `diagonal` is the diagonal of A, which has no zero.
    pub(crate) fn new(device: &B, a: &'a Mat<B, Csr<f64>>, diagonal: &[f64]) -> Result<Self> {
        let inverse: Vec<f64> = diagonal.iter().map(|d| d.recip()).collect();
        let scratch = RefCell::new([device.zeros(a.nrows())?, device.zeros(a.nrows())?]);
        Ok(Self { a, inv_diag: device.upload(&inverse)?, scratch })
    }
}

// SAFETY: each call enqueues the same operations on the operands, on `inv_diag` and on `scratch`, which are never
// replaced: the `RefCell` lends the latter out for the call alone.
unsafe impl<B: Spmv<Csr<f64>>> Preconditioner<f64, B> for Neumann<'_, B> {
    fn len(&self) -> Option<usize> {
        Some(self.a.nrows())
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel::backend::Result<()> {
        let [residual, correction] = &mut *self.scratch.borrow_mut();
        be.hadamard(gate, &self.inv_diag, r, z)?; // z = D^-1 r
        for _ in 0..TERMS {
            be.copy(gate, r, residual)?;
            self.a.spmv(be, gate, Coeff::host(-1.0), z, Coeff::one(), residual)?; // residual = r - A z
            be.hadamard(gate, &self.inv_diag, residual, correction)?;
            be.axpby(gate, Coeff::one(), correction, Coeff::one(), z)?; // z = z + D^-1 residual
        }
        Ok(())
    }
}

/// Solves A x = 1 for a matrix given by text, with Jacobi and with the polynomial.
pub(crate) fn compare<B: Spmv<Csr<f64>> + CgSteps<f64>>(device: &B, spec: &str) -> Result<[Outcome; 2]> {
    let csr = Arc::new(formats::generate::csr::<f64>(spec)?);
    let a = Mat::load(device, &csr)?;
    let jacobi = Jacobi::new(device, &csr)?;
    let neumann = Neumann::new(device, &a, &csr.diagonal())?;

    let n = a.nrows();
    let b = device.upload(&vec![1.0; n])?;
    let (mut x, mut y) = (device.zeros(n)?, device.zeros(n)?);
    let options = Options::default();
    Ok([cg(device, &a, &jacobi, &b, &mut x, &options)?, cg(device, &a, &neumann, &b, &mut y, &options)?])
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let [jacobi, neumann] = compare(&default_backend()?, "poisson2d:200")?;
    println!("jacobi:  {} after {} iterations", jacobi.status, jacobi.iterations);
    println!("neumann: {} after {} iterations", neumann.status, neumann.iterations);
    Ok(())
}
