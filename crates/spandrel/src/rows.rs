//! A storage format made on the device of the rows that lie there, where the backend converts ([`spandrel_backend::Convert`]): the host then
//! neither builds nor sends it.

use std::any::Any;

use spandrel_backend::{Mat, Result, Spmv};
use spandrel_formats::{Csr, Format, Real};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;

/// A backend that may make formats of rows that it has.
pub trait Rows<T: Real>: Spmv<Csr<T>> + 'static {
    /// Whether [`Rows::stored`] makes this format. A CPU makes none: a format of the host's matrix is made there as well.
    fn converts<F: Format<Value = T>>() -> bool;

    /// The matrix in format `F`, bit for bit what [`Mat::load`] brings of `F::from_csr`; or [`None`] where this backend has no conversion.
    /// `rows` are freed, or become what is asked for. Blocks; may not be recorded.
    ///
    /// # Errors
    /// As [`spandrel_backend::Convert::convert`].
    fn stored<F: Format<Value = T>>(&self, rows: Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
    where
        Self: Spmv<F>;
}

/// `made`, which is what is asked for where the types agree.
#[allow(dead_code)] // without a backend
fn same<A: Any, B: Any>(made: A) -> Option<B> {
    let made: Box<dyn Any> = Box::new(made);
    made.downcast().ok().map(|made| *made)
}

#[cfg(feature = "cpu")]
impl<T: Real> Rows<T> for Cpu {
    fn converts<F: Format<Value = T>>() -> bool {
        false
    }
    fn stored<F: Format<Value = T>>(&self, rows: Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
    where
        Self: Spmv<F>,
    {
        Ok(same(rows))
    }
}

#[cfg(feature = "cuda-core")]
macro_rules! converted {
    ($($stem:literal $Type:ident),*) => {
        #[cfg(feature = "cuda-core")]
        impl<T: Real> Rows<T> for Cuda {
            fn converts<F: Format<Value = T>>() -> bool {
                matches!(F::NAME, "csr" $(| $stem)*)
            }
            fn stored<F: Format<Value = T>>(&self, rows: Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
            where
                Self: Spmv<F>,
            {
                match F::NAME {
                    $($stem => Ok(same(rows.convert::<spandrel_formats::$Type<T>>(self)?)),)*
                    _ => Ok(same(rows)),
                }
            }
        }
    };
}
#[cfg(feature = "cuda-core")]
converted!("coo" Coo, "ell" Ell, "sell" Sell, "dia" Dia, "bdia" Bdia, "hyb" Hyb);

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use std::sync::Arc;

    use spandrel_formats::{Dia, generate};

    use super::*;

    #[test]
    fn rows_stay_rows_and_the_cpu_makes_no_other_format() {
        let csr = Arc::new(generate::csr::<f64>("d3n7:4").unwrap());
        let rows = || Mat::load(&Cpu::new(), Arc::clone(&csr)).unwrap();
        assert!(!<Cpu as Rows<f64>>::converts::<Dia<f64>>());
        assert!(Cpu::new().stored::<Dia<f64>>(rows()).unwrap().is_none());
        let same = Cpu::new().stored::<Csr<f64>>(rows()).unwrap().unwrap();
        assert_eq!((same.nrows(), same.nnz()), (csr.nrows(), csr.nnz()));
    }
}
