//! Single bounds for generic code: every format, plan, factorisation or method of the registries.

use spandrel_formats::{Bsr, Csc, Csr, Dia, Real, Sell, for_each_format};
use spandrel_sptrsv::{Ssor, for_each_factor, for_each_plan};

use crate::{Backend, BicgstabSteps, CgSteps, Factorize, SparseVector, Spmm, Spmv, SpmvTransposed, Sptrsv};

macro_rules! formats {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
        /// A backend with the product of every storage format for one element type.
        pub trait EveryFormat<T: Real>: Backend<T> $(+ Spmv<spandrel_formats::$Type<T>>)* {}
        impl<T: Real, B: Backend<T> $(+ Spmv<spandrel_formats::$Type<T>>)*> EveryFormat<T> for B {}

        /// The stems of the formats.
        pub const FORMATS: &[&str] = &[$(stringify!($stem)),*];
    };
}
for_each_format!(formats);

macro_rules! plans {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
        /// A backend with the triangular solve of every plan for one element type.
        pub trait EveryPlan<T: Real>: Backend<T> $(+ Sptrsv<spandrel_sptrsv::$Type<T>>)* {}
        impl<T: Real, B: Backend<T> $(+ Sptrsv<spandrel_sptrsv::$Type<T>>)*> EveryPlan<T> for B {}

        /// The stems of the plans.
        pub const PLANS: &[&str] = &[$(stringify!($stem)),*];
    };
}
for_each_plan!(plans);

macro_rules! factors {
    ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
        /// A backend with every incomplete factorisation for one element type, and with the splitting of SSOR.
        pub trait EveryFactor<T: Real>:
            Backend<T> + Factorize<Ssor<T>> $(+ Factorize<spandrel_sptrsv::$Type<T>>)*
        {
        }
        impl<T: Real, B> EveryFactor<T> for B where
            B: Backend<T> + Factorize<Ssor<T>> $(+ Factorize<spandrel_sptrsv::$Type<T>>)*
        {
        }
    };
}
for_each_factor!(factors);

/// A backend with the fused steps of every method for one element type.
///
/// Generic code needs this bound if it solves by a method chosen at run time. GMRES has no steps of its own.
pub trait EveryMethod<T: Real>: CgSteps<T> + BicgstabSteps<T> {}
impl<T: Real, B: CgSteps<T> + BicgstabSteps<T>> EveryMethod<T> for B {}

/// A backend with every product for one element type: [`EveryFormat`], sparse vectors, and the transposed and
/// multi-column products of the formats that have them.
pub trait EveryProduct<T: Real>:
    EveryFormat<T>
    + SparseVector<T>
    + SpmvTransposed<Csr<T>>
    + SpmvTransposed<Csc<T>>
    + Spmm<Csr<T>>
    + Spmm<Sell<T>>
    + Spmm<Dia<T>>
    + Spmm<Bsr<T>>
{
}
impl<T: Real, B> EveryProduct<T> for B where
    B: EveryFormat<T>
        + SparseVector<T>
        + SpmvTransposed<Csr<T>>
        + SpmvTransposed<Csc<T>>
        + Spmm<Csr<T>>
        + Spmm<Sell<T>>
        + Spmm<Dia<T>>
        + Spmm<Bsr<T>>
{
}
