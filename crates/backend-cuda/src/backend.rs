//! Vectors and scalars on the GPU: level 1 operations, and the operations that ask the monitor.
//!
//! Cost: every operand once per operation. Order: element-wise, and [`spandrel_backend::Order::Tree`]. Kernels:
//! kernels/vector.cu.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Coeff, Gate, Phase, Quantity, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::launch::{ChecksArg, CoeffArg, Grid};
use crate::memory::Address;
use crate::vector::{
    AssignScalar, AxpbyChainVector, AxpbyVector, AxpbypczVector, CopyVector, DotVector, FillVector, HadamardDotVector,
    HadamardVector, ObserveScalar, RequireScalar, ResidualStepVector,
};
use crate::{Cuda, Monitor, Scalar, Vector};

impl Cuda {
    fn dot_or_norm<T: Real>(
        &self,
        gate: Gate<'_, Self>,
        x: &Vector<T>,
        y: &Vector<T>,
        root: bool,
        out: &mut Scalar<T>,
    ) -> Result<()> {
        let n = x.len();
        let tree = self.tree::<T>(n, [out.pointer(), Address::NULL])?;
        // The host takes the root of what it completes.
        let device_root = u32::from(root && !self.is_joined());
        let (x, y, gated) = (x.pointer(), y.pointer(), gate_pointer(gate));
        let parameters = DotVector { n: n as u64, x, y, root: device_root, tree, gate: gated };
        // SAFETY: dot_vector(n, x, y, root, tree, gate) on vectors of n elements.
        unsafe { self.launch::<T, _>(DotVector::ENTRY, Grid::rows(n), &parameters)? };
        self.complete(gate, n, root, [out])
    }

    fn require<T: Real>(&self, value: &Scalar<T>, what: Quantity, positive: bool, monitor: &mut Monitor) -> Result<()> {
        let (value, positive, what, monitor) = (value.pointer(), u32::from(positive), what as u32, monitor.pointer());
        // SAFETY: require_scalar(value, positive, what, monitor).
        unsafe {
            self.launch::<T, _>(RequireScalar::ENTRY, Grid::of(1, 1), &RequireScalar { value, positive, what, monitor })
        }
    }

    /// r <- r - alpha v and r . r, with a check before and after: a step of CG or BiCGStab. If sums are joined,
    /// [`Cuda::complete`] must follow, and there must be no check.
    pub(crate) fn residual_step_checked<T: Real>(
        &self,
        op: &'static str,
        alpha: Coeff<'_, T, Scalar<T>>,
        v: &Vector<T>,
        r: &mut Vector<T>,
        rr: &mut Scalar<T>,
        checks: ChecksArg,
        monitor: Address,
    ) -> Result<()> {
        let n = v.len();
        expect_len(op, "r", r.len(), n)?;
        let tree = self.tree::<T>(n, [rr.pointer(), Address::NULL])?;
        let (count, alpha, v, r) = (n as u64, CoeffArg::from(alpha), v.pointer(), r.pointer());
        // SAFETY: residual_step_vector(n, alpha, v, r, checks, tree, monitor) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                ResidualStepVector::ENTRY,
                Grid::rows(n),
                &ResidualStepVector { n: count, a: alpha, v, r, checks, tree, monitor },
            )
        }
    }
}

impl<T: Real> Backend<T> for Cuda {
    type Vector = Vector<T>;
    type Scalar = Scalar<T>;

    fn zeros(&self, len: usize) -> Result<Vector<T>> {
        let vector = Vector::zeros(self.stream(), len)?;
        self.reserve(len)?;
        Ok(vector)
    }

    fn upload(&self, host: &[T]) -> Result<Vector<T>> {
        let vector = Vector::from_host(self.stream(), host)?;
        self.reserve(host.len())?;
        Ok(vector)
    }

    fn write(&self, host: &[T], v: &mut Vector<T>) -> Result<()> {
        expect_len("write", "host", host.len(), v.len())?;
        v.buffer().write_at(0, host)
    }

    fn download(&self, v: &Vector<T>) -> Result<Vec<T>> {
        v.buffer().to_host("a vector on the host")
    }

    fn len(&self, v: &Vector<T>) -> usize {
        v.len()
    }

    fn scalar(&self, value: T) -> Result<Scalar<T>> {
        Scalar::new(self.stream(), value)
    }

    fn download_scalar(&self, s: &Scalar<T>) -> Result<T> {
        s.download()
    }

    fn scalars(&self, count: usize, value: T) -> Result<Vec<Scalar<T>>> {
        Scalar::row(self.stream(), count, value)
    }

    fn download_scalars(&self, scalars: &[Scalar<T>]) -> Result<Vec<T>> {
        Scalar::download_all(scalars)
    }

    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Vector<T>) -> Result<()> {
        let (n, count, y, gate) = (y.len(), y.len() as u64, y.pointer(), gate_pointer(gate));
        let value = CoeffArg::from(Coeff::host(value));
        // SAFETY: fill_vector(n, value, y, gate) on a vector of n elements.
        unsafe { self.launch::<T, _>(FillVector::ENTRY, Grid::rows(n), &FillVector { n: count, value, y, gate }) }
    }

    fn copy(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &mut Vector<T>) -> Result<()> {
        expect_len("copy", "y", y.len(), x.len())?;
        let (n, count) = (x.len(), x.len() as u64);
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        // SAFETY: copy_vector(n, x, y, gate) on vectors of n elements.
        unsafe { self.launch::<T, _>(CopyVector::ENTRY, Grid::rows(n), &CopyVector { n: count, x, y, gate }) }
    }

    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("axpby", "y", y.len(), x.len())?;
        let (n, count, a, b) = (x.len(), x.len() as u64, CoeffArg::from(a), CoeffArg::from(b));
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        // SAFETY: axpby_vector(n, a, x, b, y, gate) on vectors of n elements.
        unsafe { self.launch::<T, _>(AxpbyVector::ENTRY, Grid::rows(n), &AxpbyVector { n: count, a, x, b, y, gate }) }
    }

    fn axpby_chain(
        &self,
        gate: Gate<'_, Self>,
        first: [Coeff<'_, T, Scalar<T>>; 2],
        x: &Vector<T>,
        y: &mut Vector<T>,
        second: [Coeff<'_, T, Scalar<T>>; 2],
        z: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("axpby_chain", "y", y.len(), x.len())?;
        expect_len("axpby_chain", "z", z.len(), x.len())?;
        let (len, n) = (x.len(), x.len() as u64);
        let ([a, b], [c, d]) = (first.map(CoeffArg::from), second.map(CoeffArg::from));
        let (x, y, z, gate) = (x.pointer(), y.pointer(), z.pointer(), gate_pointer(gate));
        let parameters = AxpbyChainVector { n, a, x, b, y, c, d, z, gate };
        // SAFETY: axpby_chain_vector(n, a, x, b, y, c, d, z, gate) on vectors of n elements.
        unsafe { self.launch::<T, _>(AxpbyChainVector::ENTRY, Grid::rows(len), &parameters) }
    }

    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &Vector<T>,
        c: Coeff<'_, T, Scalar<T>>,
        z: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("axpbypcz", "y", y.len(), x.len())?;
        expect_len("axpbypcz", "z", z.len(), x.len())?;
        let (n, count) = (x.len(), x.len() as u64);
        let (a, b, c) = (CoeffArg::from(a), CoeffArg::from(b), CoeffArg::from(c));
        let (x, y, z, gate) = (x.pointer(), y.pointer(), z.pointer(), gate_pointer(gate));
        // SAFETY: axpbypcz_vector(n, a, x, b, y, c, z, gate) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                AxpbypczVector::ENTRY,
                Grid::rows(n),
                &AxpbypczVector { n: count, a, x, b, y, c, z, gate },
            )
        }
    }

    fn hadamard(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, z: &mut Vector<T>) -> Result<()> {
        expect_len("hadamard", "y", y.len(), x.len())?;
        expect_len("hadamard", "z", z.len(), x.len())?;
        let (n, count) = (x.len(), x.len() as u64);
        let (x, y, z, gate) = (x.pointer(), y.pointer(), z.pointer(), gate_pointer(gate));
        // SAFETY: hadamard_vector(n, x, y, z, gate) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(HadamardVector::ENTRY, Grid::rows(n), &HadamardVector { n: count, x, y, z, gate })
        }
    }

    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Scalar<T>>, out: &mut Scalar<T>) -> Result<()> {
        let (value, out, gate) = (CoeffArg::from(value), out.pointer(), gate_pointer(gate));
        // SAFETY: assign_scalar(value, out, gate).
        unsafe { self.launch::<T, _>(AssignScalar::ENTRY, Grid::of(1, 1), &AssignScalar { value, out, gate }) }
    }

    fn dot(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        expect_len("dot", "y", y.len(), x.len())?;
        self.dot_or_norm(gate, x, y, false, out)
    }

    fn norm2(&self, gate: Gate<'_, Self>, x: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        self.dot_or_norm(gate, x, x, true, out)
    }

    fn observe(&self, squared: &Scalar<T>, phase: Phase, monitor: &mut Monitor) -> Result<()> {
        let (squared, phase, monitor) = (squared.pointer(), phase as u32, monitor.pointer());
        // SAFETY: observe_scalar(squared, phase, monitor).
        unsafe { self.launch::<T, _>(ObserveScalar::ENTRY, Grid::of(1, 1), &ObserveScalar { squared, phase, monitor }) }
    }

    fn require_positive(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Monitor) -> Result<()> {
        self.require(value, what, true, monitor)
    }

    fn require_nonzero(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Monitor) -> Result<()> {
        self.require(value, what, false, monitor)
    }

    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Vector<T>,
        r: &Vector<T>,
        z: &mut Vector<T>,
        rz: &mut Scalar<T>,
    ) -> Result<()> {
        let n = d.len();
        expect_len("hadamard_dot", "r", r.len(), n)?;
        expect_len("hadamard_dot", "z", z.len(), n)?;
        let tree = self.tree::<T>(n, [rz.pointer(), Address::NULL])?;
        let (count, d, r, z, monitor) = (n as u64, d.pointer(), r.pointer(), z.pointer(), gate_pointer(gate));
        // SAFETY: hadamard_dot_vector(n, d, r, z, tree, gate) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                HadamardDotVector::ENTRY,
                Grid::rows(n),
                &HadamardDotVector { n: count, d, r, z, tree, monitor },
            )?;
        }
        self.complete(gate, n, false, [rz])
    }
}
