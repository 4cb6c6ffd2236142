//! Storage formats made on the device from rows that are there already ([`spandrel_backend::Convert`]). The host then
//! neither builds nor sends them.

use std::any::Any;

use spandrel_backend::{Mat, Result, Spmv};
use spandrel_formats::{Csr, Format, Real};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;

/// A backend that may make formats from rows in its memory.
pub trait Rows<T: Real>: Spmv<Csr<T>> + 'static {
    /// Whether [`Rows::converted`] makes this format, or it is CSR. A CPU makes none, because the host builds its
    /// formats anyway.
    fn converts<F: Format<Value = T>>() -> bool;

    /// The matrix in another format `F`, with the bits of [`Mat::load`] on `F::from_csr`; [`None`] for CSR, and if this
    /// backend has no conversion. Blocks. Must not be recorded.
    ///
    /// # Errors
    /// As [`spandrel_backend::Convert::convert`].
    fn converted<F: Format<Value = T>>(&self, rows: &Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
    where
        Self: Spmv<F>;
}

/// Returns `made` as a `B` if the types agree.
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
    fn converted<F: Format<Value = T>>(&self, _: &Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
    where
        Self: Spmv<F>,
    {
        Ok(None)
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
            fn converted<F: Format<Value = T>>(&self, rows: &Mat<Self, Csr<T>>) -> Result<Option<Mat<Self, F>>>
            where
                Self: Spmv<F>,
            {
                match F::NAME {
                    $($stem => Ok(same(rows.convert::<spandrel_formats::$Type<T>>(self)?)),)*
                    _ => Ok(None),
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

    use spandrel_backend::Operator;
    use spandrel_formats::{Dia, generate};

    use super::*;
    use crate::any::{AnyBackend, Complete, Task};

    #[test]
    fn the_cpu_makes_no_other_format() {
        let csr = Arc::new(generate::csr::<f64>("d3n7:4").unwrap());
        let rows = Mat::load(&Cpu::new(), Arc::clone(&csr)).unwrap();
        assert!(!<Cpu as Rows<f64>>::converts::<Dia<f64>>());
        assert!(Cpu::new().converted::<Dia<f64>>(&rows).unwrap().is_none());
    }

    /// The bits of A x in format `F`, made from rows on the device and by the host; and whether the device converts.
    fn products<F: Format<Value = f64>, B: Spmv<F> + Rows<f64>>(device: &B, csr: &Arc<Csr<f64>>) -> bool {
        let x: Vec<f64> = (0..csr.ncols()).map(|j| 1.0 / (j + 1) as f64).collect();
        let x = device.upload(&x).unwrap();
        let bits = |a: &Mat<B, F>| {
            let mut y = device.upload(&vec![f64::NAN; csr.nrows()]).unwrap();
            a.apply(device, None, &x, &mut y).unwrap();
            device.download(&y).unwrap().into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let made = device.converted::<F>(&Mat::load(device, Arc::clone(csr)).unwrap()).unwrap();
        let loaded = Mat::load(device, F::from_csr(csr).unwrap()).unwrap();
        assert_eq!(made.is_some(), B::converts::<F>() && F::NAME != "csr", "{}", F::NAME);
        if let Some(made) = &made {
            assert_eq!(bits(made), bits(&loaded), "{}", F::NAME);
            let sizes = |a: &Mat<B, F>| (a.nrows(), a.ncols(), a.nnz(), a.storage(), a.spmv_bytes());
            assert_eq!(sizes(made), sizes(&loaded), "{}", F::NAME);
        }
        B::converts::<F>()
    }

    macro_rules! every {
        ([$device:ident $csr:ident] $(($stem:ident, $Type:ident)),*) => {
            [$((stringify!($stem), products::<spandrel_formats::$Type<f64>, _>($device, $csr))),*]
        };
    }

    struct Products(Arc<Csr<f64>>);

    impl Task for Products {
        type Output = Vec<&'static str>;
        fn run<B: Complete<f64> + Complete<f32>>(self, device: &B) -> Self::Output {
            let csr = &self.0;
            let made = spandrel_formats::for_each_format!(every, device, csr);
            made.into_iter().filter(|&(_, converts)| converts).map(|(stem, _)| stem).collect()
        }
    }

    #[test]
    fn what_is_made_of_rows_is_what_would_have_been_loaded() {
        let (device, _) = AnyBackend::auto().unwrap();
        for spec in ["d3n27:7", "convdiff2d:17", "powerlaw:n=200"] {
            let made = device.run(Products(Arc::new(generate::csr(spec).unwrap())));
            let expected: &[&str] = match device.name() {
                "cuda" => &["coo", "csr", "ell", "sell", "dia", "bdia", "hyb"],
                _ => &[],
            };
            assert_eq!(made, expected, "{spec}");
        }
    }
}
