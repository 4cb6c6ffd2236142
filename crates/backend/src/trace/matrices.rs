//! Operations with loaded objects on a traced backend: products, sparse vectors, triangular solves, incomplete
//! factorisations.

use std::sync::Arc;

use spandrel_formats::{Format, Real, SparseVec, Traffic};
use spandrel_sptrsv::{Factor, Plan, System};

use super::{Event, Trace, Traced, reads};
use crate::{Coeff, Device, Factorize, Gate, Load, Order, Result, SparseVector, Spmm, Spmv, SpmvTransposed, Sptrsv};

/// A host object whose bytes are logged when it is loaded: every format, the sparse vector, every plan, every symbolic
/// phase.
pub trait Stored: Send + Sync + 'static {
    /// Bytes of the arrays that go to the device.
    fn stored(&self) -> u64;
}

macro_rules! stored {
    ([$Kind:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(stored!($Kind, $Type);)*
    };
    (formats, $Type:ident) => {
        impl<T: Real> Stored for spandrel_formats::$Type<T> {
            fn stored(&self) -> u64 {
                self.storage()
            }
        }
    };
    (plans, $Type:ident) => {
        impl<T: Real> Stored for spandrel_sptrsv::$Type<T> {
            fn stored(&self) -> u64 {
                Plan::storage(self)
            }
        }
    };
    (factors, $Type:ident) => {
        impl<T: Real> Stored for spandrel_sptrsv::$Type<T> {
            fn stored(&self) -> u64 {
                Factor::storage(self)
            }
        }
    };
}
spandrel_formats::for_each_format!(stored, formats);
spandrel_sptrsv::for_each_plan!(stored, plans);
spandrel_sptrsv::for_each_factor!(stored, factors);
stored!(factors, Ssor);

impl<T: Real> Stored for SparseVec<T> {
    fn stored(&self) -> u64 {
        self.storage()
    }
}

// SAFETY: the loaded object is the inner backend's, and operations are forwarded to it unchanged.
unsafe impl<H: Stored, B: Load<H>> Load<H> for Trace<B> {
    type Resident = Traced<B::Resident, H>;

    fn load(&self, host: Arc<H>) -> Result<Self::Resident> {
        self.note(Event::Allocation("load", host.stored()));
        Ok(Traced { inner: self.inner.load(Arc::clone(&host))?, host })
    }

    fn traffic(&self, resident: &Self::Resident) -> Option<(u64, u64)> {
        self.inner.traffic(&resident.inner)
    }

    fn is_narrow(&self, resident: &Self::Resident) -> bool {
        self.inner.is_narrow(&resident.inner)
    }
}

/// The bytes that a product reads of a matrix.
fn read<F: Format>(m: &F) -> u64 {
    m.spmv_bytes().saturating_sub(((m.nrows() + m.ncols()) * F::Value::BYTES) as u64)
}

impl<F: Format + Stored, B: Spmv<F>> Spmv<F> for Trace<B> {
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
        let vectors = self.passes::<F::Value>(x, 1) + self.passes::<F::Value>(y, 1 + reads(&b));
        self.launch_on("spmv", Some(F::NAME), read(&*m.host), gate, vectors);
        self.inner.spmv(gate, a, &m.inner, x, b, y)
    }

    fn residual(
        &self,
        gate: Gate<'_, Self>,
        m: &Self::Resident,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
    ) -> Result<()> {
        let vectors = [b, x, r].map(|v| self.passes::<F::Value>(v, 1)).iter().sum();
        self.launch_on("residual", Some(F::NAME), read(&*m.host), gate, vectors);
        self.inner.residual(gate, &m.inner, b, x, r)
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
        let of_w = usize::from(!std::ptr::eq(x, w));
        let vectors = self.passes::<F::Value>(x, 1) + self.passes::<F::Value>(y, 1) + self.passes::<F::Value>(w, of_w);
        self.launch_on("spmv_dot", Some(F::NAME), read(&*m.host), gate, vectors);
        self.inner.spmv_dot(gate, &m.inner, x, y, w, wy, yy)
    }
}

impl<F: Format + Stored, B: SpmvTransposed<F>> SpmvTransposed<F> for Trace<B> {
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
        let vectors = self.passes::<F::Value>(x, 1) + self.passes::<F::Value>(y, 1 + reads(&b));
        self.launch_on("spmv_transposed", Some(F::NAME), read(&*m.host), gate, vectors);
        self.inner.spmv_transposed(gate, a, &m.inner, x, b, y)
    }
}

impl<F: Format + Stored, B: Spmm<F>> Spmm<F> for Trace<B> {
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
        let vectors = self.passes::<F::Value>(x, 1) + self.passes::<F::Value>(y, 1 + reads(&b));
        self.launch_on("spmm", Some(F::NAME), read(&*m.host), gate, vectors);
        self.inner.spmm(gate, a, &m.inner, k, x, b, y)
    }
}

impl<T: Real, B: SparseVector<T>> SparseVector<T> for Trace<B> {
    fn sparse_axpy(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        s: &Self::Resident,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let touched = s.host.values().len() * T::BYTES;
        self.launch_on("sparse_axpy", Some("sparse_vec"), s.host.storage(), gate, 2 * touched);
        self.inner.sparse_axpy(gate, a, &s.inner, y)
    }
    fn sparse_dot(
        &self,
        gate: Gate<'_, Self>,
        s: &Self::Resident,
        y: &Self::Vector,
        out: &mut Self::Scalar,
    ) -> Result<()> {
        let touched = s.host.values().len() * T::BYTES;
        self.launch_on("sparse_dot", Some("sparse_vec"), s.host.storage(), gate, touched);
        self.inner.sparse_dot(gate, &s.inner, y, out)
    }
    fn gather(&self, gate: Gate<'_, Self>, y: &Self::Vector, s: &mut Self::Resident) -> Result<()> {
        let touched = s.host.values().len() * T::BYTES;
        self.launch_on("gather", Some("sparse_vec"), s.host.storage(), gate, touched);
        self.inner.gather(gate, y, &mut s.inner)
    }
    fn scatter(&self, gate: Gate<'_, Self>, s: &Self::Resident, y: &mut Self::Vector) -> Result<()> {
        let touched = s.host.values().len() * T::BYTES;
        self.launch_on("scatter", Some("sparse_vec"), s.host.storage(), gate, touched);
        self.inner.scatter(gate, &s.inner, y)
    }
    fn download_sparse(&self, s: &Self::Resident) -> Result<Vec<T>> {
        self.note(Event::Wait("download_sparse"));
        self.inner.download_sparse(&s.inner)
    }
}

impl<B> Trace<B> {
    /// Logs a solve whose vectors have `vectors` bytes in total.
    fn solves<P: Plan>(&self, plan: &P, gate: Option<&B::Monitor>, vectors: usize)
    where
        B: Device,
    {
        let once = (2 * plan.nrows() * P::Value::BYTES) as u64;
        self.launch_on("sptrsv", Some(P::NAME), plan.sptrsv_bytes().saturating_sub(once), gate, vectors);
    }
}

impl<P: Plan + Stored, B: Sptrsv<P>> Sptrsv<P> for Trace<B> {
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order {
        self.inner.sptrsv_order(&m.inner, system)
    }

    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()> {
        self.solves(&*m.host, gate, self.passes::<P::Value>(b, 1) + self.passes::<P::Value>(x, 1));
        self.inner.sptrsv(gate, system, &m.inner, k, b, x)
    }

    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Self::Vector,
    ) -> Result<()> {
        self.solves(&*m.host, gate, self.passes::<P::Value>(x, 2));
        self.inner.sptrsv_in_place(gate, system, &m.inner, k, x)
    }

    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()> {
        self.launch_on::<B::Monitor>("update", Some(P::NAME), plan.storage(), None, 0);
        self.inner.update(&mut m.inner, plan)?;
        m.host = Arc::clone(plan);
        Ok(())
    }

    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Self::Vector) -> Result<()> {
        let read = self.passes::<P::Value>(values, 1);
        self.launch_on::<B::Monitor>("update", Some(P::NAME), plan.storage(), None, read);
        self.inner.update_from(&mut m.inner, plan, values)
    }
}

impl<F: Factor + Stored, B: Factorize<F>> Factorize<F> for Trace<B> {
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Self::Vector,
        lower: &mut Self::Vector,
        upper: &mut Self::Vector,
    ) -> Result<f64> {
        let passes = [values, &*lower, &*upper].map(|v| self.passes::<F::Value>(v, 1));
        self.launch_on::<B::Monitor>("factorize", Some(F::NAME), m.host.storage(), None, passes.iter().sum());
        self.note(Event::Wait("factorize"));
        self.inner.factorize(&m.inner, values, lower, upper)
    }
}
