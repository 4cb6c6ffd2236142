//! The products of a backend with one flaw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use num_traits::{Float, One, Zero};
use spandrel_backend::{Backend, Coeff, Gate, Load, Order, Result, SparseVector, Spmm, Spmv, SpmvTransposed};
use spandrel_formats::{Format, Real};

use super::{Broken, Flaw};

/// What is loaded, with its host object.
#[derive(Debug)]
pub(crate) struct Kept<R, H> {
    pub(crate) inner: R,
    pub(crate) host: Arc<H>,
    /// What a flaw remembers.
    pub(crate) used: AtomicBool,
}

// SAFETY: what is loaded is the backend's within; what is broken are numbers.
unsafe impl<H: Send + Sync + 'static, B: Load<H>> Load<H> for Broken<B> {
    type Resident = Kept<B::Resident, H>;
    fn load(&self, host: Arc<H>) -> Result<Self::Resident> {
        Ok(Kept { inner: self.inner.load(Arc::clone(&host))?, host, used: AtomicBool::new(false) })
    }
}

impl<F: Format, B: Spmv<F>> Spmv<F> for Broken<B> {
    fn order(&self) -> Order {
        Spmv::<F>::order(&self.inner)
    }
    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let before = self.inner.download(y)?;
        self.inner.spmv(self.gate(gate), a, &m.inner, x, b, y)?;
        if self.flaw == Flaw::DropsLastEntry {
            let mut short = self.inner.download(x)?;
            if let Some(last) = short.last_mut() {
                *last = F::Value::from_f64(0.0);
            }
            let mut without = self.inner.upload(&before)?;
            self.inner.spmv(gate, a, &m.inner, &self.inner.upload(&short)?, b, &mut without)?;
            let mut values = self.inner.download(y)?;
            if let (Some(last), Some(&wrong)) = (values.last_mut(), self.inner.download(&without)?.last()) {
                *last = wrong;
            }
            self.inner.write(&values, y)?;
        }
        if matches!(self.flaw, Flaw::IgnoresMask | Flaw::ForgetsMaskedRow) {
            // The masked rows are those that a product with b = 0 overwrites.
            let mut probe = self.inner.upload(&vec![F::Value::nan(); before.len()])?;
            self.inner.spmv(gate, Coeff::zero(), &m.inner, x, Coeff::zero(), &mut probe)?;
            let inside: Vec<bool> = self.inner.download(&probe)?.iter().map(|v| !v.is_nan()).collect();
            let mut values = self.inner.download(y)?;
            if self.flaw == Flaw::ForgetsMaskedRow
                && let Some(last) = inside.iter().rposition(|&inside| inside)
            {
                values[last] = before[last];
            }
            if self.flaw == Flaw::IgnoresMask {
                values.iter_mut().zip(&inside).filter(|(_, inside)| !**inside).for_each(|(v, _)| *v = F::Value::zero());
            }
            self.inner.write(&values, y)?;
        }
        if self.flaw == Flaw::Drifts {
            static CALLS: AtomicUsize = AtomicUsize::new(0);
            if CALLS.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
                self.nudge_now(y)?;
            }
        }
        self.nudge(y)?;
        self.spoil(&before, b, y)
    }
    fn residual(
        &self,
        gate: Gate<'_, Self>,
        m: &Self::Resident,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
    ) -> Result<()> {
        // As the contract's default does it, but for the flaw.
        if self.flaw != Flaw::ForgetsRightHandSide {
            self.copy(gate, b, r)?;
        }
        self.spmv(gate, Coeff::host(-F::Value::one()), m, x, Coeff::one(), r)
    }
    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &Self::Resident,
        x: &Self::Vector,
        y: &mut Self::Vector,
        w: &Self::Vector,
        wy: &mut Self::Scalar,
        yy: Option<&mut Self::Scalar>,
    ) -> Result<()> {
        // As the contract's default does it, so that the flaws of product and dot show here too.
        self.spmv(gate, Coeff::one(), m, x, Coeff::zero(), y)?;
        if self.flaw == Flaw::FusesDotWrongly {
            self.dot(gate, y, y, wy)?
        } else {
            self.dot(gate, w, y, wy)?
        }
        yy.map_or(Ok(()), |yy| self.dot(gate, y, y, yy))
    }
}

impl<F: Format, B: Spmm<F>> Spmm<F> for Broken<B> {
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        k: usize,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let mut values = self.inner.download(x)?;
        if self.flaw == Flaw::RepeatsColumn && k > 1 {
            let ncols = values.len() / k;
            values.copy_within(..ncols, ncols);
        }
        self.inner.spmm(self.gate(gate), a, &m.inner, k, &self.inner.upload(&values)?, b, y)
    }
}

impl<T: Real, B: SparseVector<T>> SparseVector<T> for Broken<B> {
    fn sparse_axpy(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        s: &Self::Resident,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let before = self.inner.download(y)?;
        self.inner.sparse_axpy(self.gate(gate), a, &s.inner, y)?;
        self.drop_tail(&before, y)
    }
    fn sparse_dot(
        &self,
        gate: Gate<'_, Self>,
        s: &Self::Resident,
        y: &Self::Vector,
        out: &mut Self::Scalar,
    ) -> Result<()> {
        if self.flaw == Flaw::DropsSparseTail {
            // y with a zero where the last entry meets it.
            let mut short = self.inner.upload(&self.inner.download(y)?)?;
            let before = self.inner.download(&short)?;
            self.inner.sparse_axpy(None, Coeff::one(), &s.inner, &mut short)?;
            let mut values = before.clone();
            let after = self.inner.download(&short)?;
            if let Some(last) = after.iter().zip(&before).rposition(|(after, before)| after != before) {
                values[last] = T::zero();
            }
            return self.inner.sparse_dot(self.gate(gate), &s.inner, &self.inner.upload(&values)?, out);
        }
        self.inner.sparse_dot(self.gate(gate), &s.inner, y, out)
    }
    fn gather(&self, gate: Gate<'_, Self>, y: &Self::Vector, s: &mut Self::Resident) -> Result<()> {
        if self.flaw == Flaw::DropsSparseTail {
            return Ok(());
        }
        self.inner.gather(self.gate(gate), y, &mut s.inner)
    }
    fn scatter(&self, gate: Gate<'_, Self>, s: &Self::Resident, y: &mut Self::Vector) -> Result<()> {
        let before = self.inner.download(y)?;
        self.inner.scatter(self.gate(gate), &s.inner, y)?;
        self.drop_tail(&before, y)
    }
    fn download_sparse(&self, s: &Self::Resident) -> Result<Vec<T>> {
        self.inner.download_sparse(&s.inner)
    }
}

impl<F: Format, B: SpmvTransposed<F>> SpmvTransposed<F> for Broken<B> {
    fn transposed_order(&self) -> Order {
        self.inner.transposed_order()
    }
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let before = self.inner.download(y)?;
        let mut values = self.inner.download(x)?;
        if self.flaw == Flaw::ShiftsTransposed && !values.is_empty() {
            values.rotate_left(1);
        }
        self.inner.spmv_transposed(self.gate(gate), a, &m.inner, &self.inner.upload(&values)?, b, y)?;
        self.spoil(&before, b, y)
    }
}
