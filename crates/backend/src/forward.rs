//! A macro for backends that wrap another one: it writes every method of the contract as a call of the inner backend.

#[doc(hidden)] // for the macro
pub use spandrel_sptrsv::System;

/// Writes methods of a contract trait that forward the call to the inner backend. Use it in the `impl` block, beside
/// the wrapper's own methods:
///
/// ```
/// use spandrel_backend::{Backend, Device, Gate, Phase, Quantity, Result, forward};
/// use spandrel_formats::Real;
/// # use spandrel_backend::{Coeff, Latest, Report, Step, Watch};
///
/// /// A device that is slow to copy.
/// struct Slow<B> {
///     inner: B,
/// }
/// # impl<B: Device> Device for Slow<B> {
/// #     const NAME: &'static str = "slow";
/// #     type Graph = ();
/// #     type Monitor = B::Monitor;
/// #     forward!(Device to inner: describe profile synchronize monitor resume rearm report_latest report);
/// #     fn capture<S: Step<Self>>(&self, _: &mut S) -> Result<()> { Ok(()) }
/// #     unsafe fn replay<S: Step<Self>>(&self, (): &(), step: &mut S) -> Result<()> { step.enqueue(self) }
/// # }
///
/// impl<T: Real, B: Backend<T>> Backend<T> for Slow<B> {
///     type Vector = B::Vector;
///     type Scalar = B::Scalar;
///
///     forward!(Backend<T> to inner: zeros upload write download len scalar download_scalar fill axpby axpbypcz);
///     forward!(Backend<T> to inner: hadamard assign dot norm2);
///     forward!(Backend<T> to inner: observe require_positive require_nonzero);
///
///     fn copy(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
///         std::thread::sleep(std::time::Duration::from_millis(1));
///         self.inner.copy(gate, x, y)
///     }
/// }
/// ```
///
/// `through` names a method of the wrapper, from `Gate` to `Gate`, to which every gate is passed: `forward!(Backend<T>
/// to inner through gate: fill)`. Of the traits with residents it supports [`crate::Sptrsv`], [`crate::Factorize`],
/// [`crate::Spgemm`] and [`crate::Transpose`], for wrappers whose residents and plans are those of the inner backend. A
/// method with a default body that is not named keeps the default.
#[macro_export]
macro_rules! forward {
    ($Trait:ident $(<$T:ident>)? to $inner:tt $(through $gate:ident)?: $($method:ident)*) => {
        $crate::forward!(@each [$Trait [$($T)?] $inner [$($gate)?]] $($method)*);
    };
    (@each $how:tt $($method:ident)*) => {
        $($crate::forward!(@one $method $how);)*
    };

    (@one describe [Device [] $inner:tt []]) => {
        fn describe(&self) -> String {
            self.$inner.describe()
        }
    };
    (@one profile [Device [] $inner:tt []]) => {
        fn profile(&self) -> &$crate::Profile {
            self.$inner.profile()
        }
    };
    (@one free_memory [Device [] $inner:tt []]) => {
        fn free_memory(&self) -> $crate::Result<Option<u64>> {
            self.$inner.free_memory()
        }
    };
    (@one is_immediate [Device [] $inner:tt []]) => {
        fn is_immediate(&self) -> bool {
            self.$inner.is_immediate()
        }
    };
    (@one synchronize [Device [] $inner:tt []]) => {
        fn synchronize(&self) -> $crate::Result<()> {
            self.$inner.synchronize()
        }
    };
    (@one agree [Device [] $inner:tt []]) => {
        fn agree(&self, mine: u64) -> $crate::Result<u64> {
            self.$inner.agree(mine)
        }
    };
    (@one monitor [Device [] $inner:tt []]) => {
        fn monitor(&self, watch: &$crate::Watch) -> $crate::Result<Self::Monitor> {
            self.$inner.monitor(watch)
        }
    };
    (@one resume [Device [] $inner:tt []]) => {
        fn resume(&self, monitor: &mut Self::Monitor) -> $crate::Result<()> {
            self.$inner.resume(monitor)
        }
    };
    (@one rearm [Device [] $inner:tt []]) => {
        fn rearm(&self, monitor: &mut Self::Monitor, watch: &$crate::Watch) -> $crate::Result<()> {
            self.$inner.rearm(monitor, watch)
        }
    };
    (@one report_latest [Device [] $inner:tt []]) => {
        fn report_latest(&self, monitor: &Self::Monitor) -> $crate::Result<$crate::Latest> {
            self.$inner.report_latest(monitor)
        }
    };
    (@one report [Device [] $inner:tt []]) => {
        fn report(&self, monitor: &Self::Monitor) -> $crate::Result<$crate::Report> {
            self.$inner.report(monitor)
        }
    };

    (@one zeros [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn zeros(&self, len: usize) -> $crate::Result<Self::Vector> {
            self.$inner.zeros(len)
        }
    };
    (@one upload [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn upload(&self, host: &[$T]) -> $crate::Result<Self::Vector> {
            self.$inner.upload(host)
        }
    };
    (@one write [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn write(&self, host: &[$T], v: &mut Self::Vector) -> $crate::Result<()> {
            self.$inner.write(host, v)
        }
    };
    (@one download [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn download(&self, v: &Self::Vector) -> $crate::Result<Vec<$T>> {
            self.$inner.download(v)
        }
    };
    (@one len [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn len(&self, v: &Self::Vector) -> usize {
            self.$inner.len(v)
        }
    };
    (@one scalar [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn scalar(&self, value: $T) -> $crate::Result<Self::Scalar> {
            self.$inner.scalar(value)
        }
    };
    (@one download_scalar [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn download_scalar(&self, s: &Self::Scalar) -> $crate::Result<$T> {
            self.$inner.download_scalar(s)
        }
    };
    (@one fill [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn fill(&self, gate: $crate::Gate<'_, Self>, value: $T, y: &mut Self::Vector) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.fill(gate, value, y)
        }
    };
    (@one copy [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn copy(&self, gate: $crate::Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.copy(gate, x, y)
        }
    };
    (@one axpby [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn axpby(
            &self,
            gate: $crate::Gate<'_, Self>,
            a: $crate::Coeff<'_, $T, Self::Scalar>,
            x: &Self::Vector,
            b: $crate::Coeff<'_, $T, Self::Scalar>,
            y: &mut Self::Vector,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.axpby(gate, a, x, b, y)
        }
    };
    (@one axpbypcz [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn axpbypcz(
            &self,
            gate: $crate::Gate<'_, Self>,
            a: $crate::Coeff<'_, $T, Self::Scalar>,
            x: &Self::Vector,
            b: $crate::Coeff<'_, $T, Self::Scalar>,
            y: &Self::Vector,
            c: $crate::Coeff<'_, $T, Self::Scalar>,
            z: &mut Self::Vector,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.axpbypcz(gate, a, x, b, y, c, z)
        }
    };
    (@one hadamard [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn hadamard(
            &self,
            gate: $crate::Gate<'_, Self>,
            x: &Self::Vector,
            y: &Self::Vector,
            z: &mut Self::Vector,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.hadamard(gate, x, y, z)
        }
    };
    (@one assign [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn assign(
            &self,
            gate: $crate::Gate<'_, Self>,
            value: $crate::Coeff<'_, $T, Self::Scalar>,
            out: &mut Self::Scalar,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.assign(gate, value, out)
        }
    };
    (@one dot [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn dot(
            &self,
            gate: $crate::Gate<'_, Self>,
            x: &Self::Vector,
            y: &Self::Vector,
            out: &mut Self::Scalar,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.dot(gate, x, y, out)
        }
    };
    (@one norm2 [Backend [$T:ident] $inner:tt [$($gate:ident)?]]) => {
        fn norm2(&self, gate: $crate::Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.norm2(gate, x, out)
        }
    };
    (@one observe [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn observe(
            &self,
            squared: &Self::Scalar,
            phase: $crate::Phase,
            monitor: &mut Self::Monitor,
        ) -> $crate::Result<()> {
            self.$inner.observe(squared, phase, monitor)
        }
    };
    (@one require_positive [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn require_positive(
            &self,
            value: &Self::Scalar,
            what: $crate::Quantity,
            monitor: &mut Self::Monitor,
        ) -> $crate::Result<()> {
            self.$inner.require_positive(value, what, monitor)
        }
    };
    (@one require_nonzero [Backend [$T:ident] $inner:tt $gate:tt]) => {
        fn require_nonzero(
            &self,
            value: &Self::Scalar,
            what: $crate::Quantity,
            monitor: &mut Self::Monitor,
        ) -> $crate::Result<()> {
            self.$inner.require_nonzero(value, what, monitor)
        }
    };

    (@one sptrsv_order [Sptrsv [$P:ident] $inner:tt $gate:tt]) => {
        fn sptrsv_order(&self, m: &Self::Resident, system: $crate::forward::System) -> $crate::Order {
            self.$inner.sptrsv_order(m, system)
        }
    };
    (@one sptrsv [Sptrsv [$P:ident] $inner:tt [$($gate:ident)?]]) => {
        fn sptrsv(
            &self,
            gate: $crate::Gate<'_, Self>,
            system: $crate::forward::System,
            m: &Self::Resident,
            k: usize,
            b: &Self::Vector,
            x: &mut Self::Vector,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.sptrsv(gate, system, m, k, b, x)
        }
    };
    (@one sptrsv_in_place [Sptrsv [$P:ident] $inner:tt [$($gate:ident)?]]) => {
        fn sptrsv_in_place(
            &self,
            gate: $crate::Gate<'_, Self>,
            system: $crate::forward::System,
            m: &Self::Resident,
            k: usize,
            x: &mut Self::Vector,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.sptrsv_in_place(gate, system, m, k, x)
        }
    };
    (@one update [Sptrsv [$P:ident] $inner:tt $gate:tt]) => {
        fn update(&self, m: &mut Self::Resident, plan: &::std::sync::Arc<$P>) -> $crate::Result<()> {
            self.$inner.update(m, plan)
        }
    };
    (@one update_from [Sptrsv [$P:ident] $inner:tt $gate:tt]) => {
        fn update_from(
            &self,
            m: &mut Self::Resident,
            plan: &::std::sync::Arc<$P>,
            values: &Self::Vector,
        ) -> $crate::Result<()> {
            self.$inner.update_from(m, plan, values)
        }
    };
    (@one factorize [Factorize [$F:ident] $inner:tt $gate:tt]) => {
        fn factorize(
            &self,
            m: &Self::Resident,
            values: &Self::Vector,
            lower: &mut Self::Vector,
            upper: &mut Self::Vector,
        ) -> $crate::Result<f64> {
            self.$inner.factorize(m, values, lower, upper)
        }
    };

    (@one spgemm_symbolic [Spgemm [$F:ident] $inner:tt $gate:tt]) => {
        fn spgemm_symbolic(
            &self,
            a: &Self::Resident,
            b: &Self::Resident,
        ) -> $crate::Result<($crate::Converted<Self::Resident>, Self::SpgemmPlan)> {
            self.$inner.spgemm_symbolic(a, b)
        }
    };
    (@one spgemm_numeric [Spgemm [$F:ident] $inner:tt [$($gate:ident)?]]) => {
        fn spgemm_numeric(
            &self,
            gate: $crate::Gate<'_, Self>,
            plan: &Self::SpgemmPlan,
            a: &Self::Resident,
            b: &Self::Resident,
            c: &mut Self::Resident,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.spgemm_numeric(gate, plan, a, b, c)
        }
    };
    (@one transpose_symbolic [Transpose [$F:ident] $inner:tt $gate:tt]) => {
        fn transpose_symbolic(
            &self,
            a: &Self::Resident,
        ) -> $crate::Result<($crate::Converted<Self::Resident>, Self::TransposePlan)> {
            self.$inner.transpose_symbolic(a)
        }
    };
    (@one transpose_numeric [Transpose [$F:ident] $inner:tt [$($gate:ident)?]]) => {
        fn transpose_numeric(
            &self,
            gate: $crate::Gate<'_, Self>,
            plan: &Self::TransposePlan,
            a: &Self::Resident,
            t: &mut Self::Resident,
        ) -> $crate::Result<()> {
            $(let gate = self.$gate(gate);)?
            self.$inner.transpose_numeric(gate, plan, a, t)
        }
    };
}
