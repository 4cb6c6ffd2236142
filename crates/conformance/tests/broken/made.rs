//! Products and transposes of matrices on a backend with one flaw.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spandrel_backend::{Converted, Download, Gate, Result, Spgemm, Transpose, UpdateValues};
use spandrel_formats::{Csr, Real};

use super::products::Kept;
use super::{Broken, Flaw};

/// A plan, and whether its numeric phase has run.
#[derive(Debug)]
pub(crate) struct Once<P> {
    pub(crate) inner: P,
    pub(crate) used: AtomicBool,
}

impl<B> Broken<B> {
    fn made<T: Real, P>(
        &self,
        (made, plan): (Converted<B::Resident>, P),
    ) -> Result<(Converted<Kept<B::Resident, Csr<T>>>, Once<P>)>
    where
        B: Download<Csr<T>>,
    {
        Ok((self.kept(made)?, Once { inner: plan, used: AtomicBool::new(false) }))
    }

    /// A matrix that the sound backend made.
    pub(crate) fn kept<T: Real>(&self, made: Converted<B::Resident>) -> Result<Converted<Kept<B::Resident, Csr<T>>>>
    where
        B: Download<Csr<T>>,
    {
        let Converted { resident, nnz, storage, spmv_bytes } = made;
        let host = Arc::new(self.inner.download_matrix(&resident)?);
        let resident = Kept { inner: resident, host, used: AtomicBool::new(false) };
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }

    /// Whether the numeric phase runs this time.
    pub(crate) fn runs<P>(&self, plan: &Once<P>) -> bool {
        !plan.used.swap(true, Ordering::Relaxed) || self.flaw != Flaw::KeepsOldValues
    }
}

impl<T: Real, B: Download<Csr<T>>> Download<Csr<T>> for Broken<B> {
    fn download_matrix(&self, m: &Self::Resident) -> Result<Csr<T>> {
        self.inner.download_matrix(&m.inner)
    }

    fn download_rows(&self, m: &Self::Resident, rows: Range<usize>) -> Result<Csr<T>> {
        match self.flaw == Flaw::ShiftsRows && rows.start > 0 {
            true => self.inner.download_rows(&m.inner, rows.start - 1..rows.end - 1),
            false => self.inner.download_rows(&m.inner, rows),
        }
    }
}

impl<T: Real, B: UpdateValues<Csr<T>>> UpdateValues<Csr<T>> for Broken<B> {
    fn update_values(&self, m: &mut Self::Resident, values: &[T]) -> Result<()> {
        self.inner.update_values(&mut m.inner, values)
    }
    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()> {
        self.inner.update_values_from(&mut m.inner, values)
    }
}

impl<T: Real, B: Spgemm<Csr<T>> + Download<Csr<T>> + UpdateValues<Csr<T>>> Spgemm<Csr<T>> for Broken<B> {
    type SpgemmPlan = Once<B::SpgemmPlan>;

    fn spgemm_symbolic(
        &self,
        a: &Self::Resident,
        b: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Self::SpgemmPlan)> {
        self.made(self.inner.spgemm_symbolic(&a.inner, &b.inner)?)
    }

    fn spgemm_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::SpgemmPlan,
        a: &Self::Resident,
        b: &Self::Resident,
        c: &mut Self::Resident,
    ) -> Result<()> {
        if !self.runs(plan) {
            return Ok(());
        }
        self.inner.spgemm_numeric(self.gate(gate), &plan.inner, &a.inner, &b.inner, &mut c.inner)?;
        if self.flaw == Flaw::RoundsProducts {
            let host = |m| self.inner.download_matrix(m);
            let (a, b, pattern) = (host(&a.inner)?, host(&b.inner)?, host(&c.inner)?);
            let mut values = vec![T::zero(); pattern.nnz()];
            for i in 0..a.nrows() {
                for (&k, &v) in a.row(i).0.iter().zip(a.row(i).1) {
                    for (&j, &w) in b.row(k as usize).0.iter().zip(b.row(k as usize).1) {
                        let at = pattern.row_ptr()[i] as usize + pattern.row(i).0.partition_point(|&other| other < j);
                        values[at] += v * w;
                    }
                }
            }
            self.inner.update_values(&mut c.inner, &values)?;
        }
        Ok(())
    }
}

impl<T: Real, B: Transpose<Csr<T>> + Download<Csr<T>>> Transpose<Csr<T>> for Broken<B> {
    type TransposePlan = Once<B::TransposePlan>;

    fn transpose_symbolic(&self, a: &Self::Resident) -> Result<(Converted<Self::Resident>, Self::TransposePlan)> {
        self.made(self.inner.transpose_symbolic(&a.inner)?)
    }

    fn transpose_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::TransposePlan,
        a: &Self::Resident,
        t: &mut Self::Resident,
    ) -> Result<()> {
        if !self.runs(plan) {
            return Ok(());
        }
        self.inner.transpose_numeric(self.gate(gate), &plan.inner, &a.inner, &mut t.inner)
    }
}
