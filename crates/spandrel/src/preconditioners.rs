//! Preconditioners in one line each: `Ilu0::new(&device, &a)`.
//!
//! | type | M | take it for |
//! |---|---|---|
//! | [`Ilu0`] | L U on the pattern of A | any square matrix whose diagonal has no zero |
//! | [`Iluk`] | L U with a level of fill | where [`Ilu0`] takes too many iterations |
//! | [`Ilut`] | L U with the entries that are large | where [`Ilu0`] fails or takes too many iterations |
//! | [`Ic0`] | L L^T on the pattern of A | symmetric positive definite matrices |
//! | [`Ssor`] | symmetric successive over-relaxation | as [`Ilu0`], without a factorisation |
//! | [`Mg`] | one V-cycle of geometric multigrid | stencils on a grid |
//! | [`Amg`] | one V-cycle or K-cycle of algebraic multigrid | large symmetric positive definite matrices without a grid |
//! | [`Jacobi`], [`BlockJacobi`] | the diagonal, or blocks on it | any, cheap to make |
//!
//! The plan of the triangular solves is chosen for the matrix and the device, as in [`crate::incomplete`]. These types
//! hold a factorisation on a device. The types of the same names in [`crate::sptrsv`] are the symbolic phase on the
//! host, which takes all parameters; [`Incomplete::incomplete`] makes a preconditioner from one.

use std::fmt;
use std::ops::Deref;

use spandrel_backend::{Backend, Gate, Load, Preconditioner, Spmv, UpdateValues};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::phase::unobserved;
pub use spandrel_solvers::{Amg, AmgOptions, BlockJacobi, Identity, Jacobi};
use spandrel_solvers::{Hierarchy, Multigrid, Phase, Result, SetupWatcher};
use spandrel_sptrsv::Factor;

use crate::incomplete::{Chosen, Incomplete, Renew};
use crate::multigrid::Geometric;

macro_rules! factored {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        pub struct $Name<T: Real, B: Backend<T>>(Chosen<T, B>);

        impl<T: Real, B: Incomplete<T>> $Name<T, B> {
            /// Factors a matrix with default parameters, plans the solves and loads both. Blocks.
            ///
            /// # Errors
            /// [`crate::Error::Triangle`] with the row at which the factorisation breaks down; a backend that fails.
            pub fn new(device: &B, a: &Csr<T>) -> Result<Self> {
                Self::new_watched(device, a, &mut unobserved)
            }

            #[doc = concat!("As [`", stringify!($Name), "::new`], telling `watcher` of each phase before it begins.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($Name), "::new`], and [`crate::Error::Interrupted`].")]
            pub fn new_watched(device: &B, a: &Csr<T>, watcher: SetupWatcher<'_>) -> Result<Self> {
                Phase::Symbolic.begin(watcher)?;
                let factor = spandrel_sptrsv::$Name::symbolic(a)?;
                Ok(Self(device.incomplete_watched(factor, a.values(), watcher)?))
            }
        }

        impl<T: Real, B: Backend<T>> $Name<T, B> {
            /// Takes new values of the matrix, in stored order, from the device. See [`Chosen::update`].
            ///
            /// # Errors
            /// As there.
            pub fn update(&mut self, device: &B, values: &B::Vector) -> Result<()> {
                self.0.update(device, values)
            }

            /// Returns the parts.
            pub fn into_chosen(self) -> Chosen<T, B> {
                self.0
            }
        }

        impl<T: Real, B: Backend<T>> Deref for $Name<T, B> {
            type Target = Chosen<T, B>;
            fn deref(&self) -> &Chosen<T, B> {
                &self.0
            }
        }

        impl<T: Real, B: Backend<T>> fmt::Debug for $Name<T, B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($Name)).field(&self.0).finish()
            }
        }

        impl<T: Real, B: Backend<T>> Renew<T, B> for $Name<T, B> {
            fn renew(&mut self, device: &B, values: &B::Vector) -> Result<f64> {
                self.0.renew(device, values)
            }
        }

        // SAFETY: every operation is that of the inner preconditioner, which is not replaced.
        unsafe impl<T: Real, B: Backend<T>> Preconditioner<T, B> for $Name<T, B> {
            fn len(&self) -> Option<usize> {
                self.0.len()
            }
            fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
                self.0.apply(be, gate, r, z)
            }
            fn apply_dot(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                r: &B::Vector,
                z: &mut B::Vector,
                rz: &mut B::Scalar,
            ) -> spandrel_backend::Result<()> {
                self.0.apply_dot(be, gate, r, z, rz)
            }
        }
    };
}

factored! {
    /// Incomplete LU without fill: M = L U on the pattern of A.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
    /// use spandrel::preconditioners::Ilu0;
    /// use spandrel::solvers::{Options, bicgstab};
    /// use spandrel::{Backend, Cpu, Mat};
    ///
    /// let (device, csr) = (Cpu::new(), spandrel::formats::generate::csr::<f64>("convdiff3d:20,peclet=1")?);
    /// let m = Ilu0::new(&device, &csr)?;
    /// let (a, b, mut x) = (Mat::load(&device, csr)?, device.upload(&[1.0; 8000])?, device.zeros(8000)?);
    /// let outcome = bicgstab(&device, &a, &m, &b, &mut x, &Options::default())?.require_converged()?;
    /// assert!(outcome.iterations < 30, "{outcome}");
    /// # Ok::<(), spandrel::Error>(())
    /// ```
    Ilu0
}

factored! {
    /// Incomplete LU with fill up to a level: M = L U. [`Iluk::new`] takes level 1.
    Iluk
}

factored! {
    /// Incomplete LU with the large entries: M = L U. [`Ilut::new`] takes the default [`crate::sptrsv::IlutOptions`].
    /// New values keep the pattern that the first values chose.
    Ilut
}

factored! {
    /// Incomplete Cholesky without fill: M = L L^T on the pattern of A, or of A + alpha diag(A) if that breaks down
    /// ([`Chosen::shift`]).
    Ic0
}

factored! {
    /// Symmetric successive over-relaxation: M = w/(2-w) (D/w + L) (D/w)^-1 (D/w + U). [`Ssor::new`] takes w = 1,
    /// symmetric Gauss-Seidel.
    Ssor
}

impl<T: Real, B: Incomplete<T>> Iluk<T, B> {
    /// As [`Iluk::new`] with fill up to `level`; 0 is [`Ilu0`].
    ///
    /// # Errors
    /// As [`Iluk::new`].
    pub fn with_level(device: &B, a: &Csr<T>, level: usize) -> Result<Self> {
        Ok(Self(device.incomplete(spandrel_sptrsv::Iluk::with_level(a, level)?, a.values())?))
    }
}

impl<T: Real, B: Incomplete<T>> Ilut<T, B> {
    /// As [`Ilut::new`] with other thresholds.
    ///
    /// # Errors
    /// As [`Ilut::new`], and for options out of range.
    pub fn with_options(device: &B, a: &Csr<T>, options: spandrel_sptrsv::IlutOptions) -> Result<Self> {
        Ok(Self(device.incomplete(spandrel_sptrsv::Ilut::new(a, options)?, a.values())?))
    }
}

impl<T: Real, B: Incomplete<T>> Ssor<T, B> {
    /// As [`Ssor::new`] with another factor, above 0 and below 2.
    ///
    /// # Errors
    /// As [`Ssor::new`], and for a factor out of range.
    pub fn with_omega(device: &B, a: &Csr<T>, omega: f64) -> Result<Self> {
        Ok(Self(device.incomplete(spandrel_sptrsv::Ssor::with_omega(a, omega)?, a.values())?))
    }
}

/// One V-cycle of geometric multigrid for a stencil on a grid: see [`Multigrid`], to which this dereferences.
///
#[cfg_attr(feature = "cpu", doc = "```")]
#[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
/// use spandrel::preconditioners::Mg;
/// use spandrel::solvers::{Options, cg};
/// use spandrel::{Backend, Cpu, Mat};
///
/// let (device, csr) = (Cpu::new(), spandrel::formats::generate::csr::<f64>("poisson3d:20")?);
/// let m = Mg::new(&device, &csr)?;
/// let (a, b, mut x) = (Mat::load(&device, csr)?, device.upload(&[1.0; 8000])?, device.zeros(8000)?);
/// let outcome = cg(&device, &a, &m, &b, &mut x, &Options::default())?.require_converged()?;
/// assert!(outcome.iterations < 10, "{outcome}");
/// # Ok::<(), spandrel::Error>(())
/// ```
pub struct Mg<T: Real, B: Backend<T> + Load<Csr<T>>>(Multigrid<T, B>);

impl<T: Real, B: Geometric<T>> Mg<T, B> {
    /// Detects the grid, forms the coarser operators and loads them. Blocks.
    ///
    /// # Errors
    /// [`crate::Error::NotAGrid`] for a matrix that is not a stencil on a grid; [`crate::Error::Triangle`] with the row
    /// of a diagonal entry that is missing, zero or not finite; a backend that fails.
    pub fn new(device: &B, a: &Csr<T>) -> Result<Self> {
        Self::new_watched(device, a, &mut unobserved)
    }

    /// As [`Mg::new`], and tells `watcher` of each coarse operator, then of each grid, before it begins.
    ///
    /// # Errors
    /// As [`Mg::new`], and [`crate::Error::Interrupted`].
    pub fn new_watched(device: &B, a: &Csr<T>, watcher: SetupWatcher<'_>) -> Result<Self> {
        let hierarchy = Hierarchy::galerkin_watched(a, None, watcher)?;
        Ok(Self(device.multigrid_watched(&hierarchy, watcher)?))
    }
}

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>> Mg<T, B> {
    /// Takes new values of the matrix. See [`Multigrid::update`].
    ///
    /// # Errors
    /// As there.
    pub fn update(&mut self, device: &B, a: &Csr<T>) -> Result<()> {
        self.0.update(device, a)
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> Deref for Mg<T, B> {
    type Target = Multigrid<T, B>;
    fn deref(&self) -> &Multigrid<T, B> {
        &self.0
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> fmt::Debug for Mg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mg").field(&self.0).finish()
    }
}

// SAFETY: every operation is that of the inner cycle, which is not replaced.
unsafe impl<T: Real, B: Spmv<Csr<T>>> Preconditioner<T, B> for Mg<T, B> {
    fn len(&self) -> Option<usize> {
        self.0.len()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.0.apply(be, gate, r, z)
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use std::ops::ControlFlow;

    use spandrel_formats::generate;
    use spandrel_sptrsv::IlutOptions;

    use super::*;
    use crate::Cpu;

    /// The phases of a set-up in words; then the same set-up, stopped before each of them.
    fn phases<M>(make: impl Fn(SetupWatcher<'_>) -> Result<M>) -> Vec<String> {
        let mut told = Vec::new();
        let made = make(&mut |phase| {
            told.push(phase);
            ControlFlow::Continue(())
        });
        assert!(made.is_ok());
        for (k, last) in told.iter().enumerate() {
            let mut left = k;
            let refused = make(&mut |_| match left.checked_sub(1) {
                Some(rest) => {
                    left = rest;
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            });
            match refused {
                Err(crate::Error::Interrupted { phase }) => assert_eq!(phase, last.to_string()),
                Err(other) => panic!("{last}: {other}"),
                Ok(_) => panic!("{last} was not broken off"),
            }
        }
        told.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_set_up_is_watched_and_broken_off_between_its_phases() {
        let cpu = Cpu::new();
        let grid = generate::csr::<f64>("poisson3d:12").unwrap();
        let four =
            ["symbolic factorisation", "factorisation", "analysis of the triangular solves", "copy to the device"];
        assert_eq!(phases(|watcher| Ilu0::new_watched(&cpu, &grid, watcher)), four);
        assert_eq!(phases(|watcher| Ic0::new_watched(&cpu, &grid, watcher)), four);
        assert_eq!(phases(|watcher| Iluk::new_watched(&cpu, &grid, watcher)), four);
        assert_eq!(phases(|watcher| Ilut::new_watched(&cpu, &grid, watcher)), four);
        assert_eq!(
            phases(|watcher| Mg::new_watched(&cpu, &grid, watcher)),
            ["coarse operator 1", "coarse operator 2", "set-up of grid 0", "set-up of grid 1", "set-up of grid 2"]
        );
    }

    #[test]
    fn each_takes_its_parameters_and_new_values() {
        let cpu = Cpu::new();
        let a = generate::csr::<f64>("convdiff2d:12,peclet=1").unwrap();
        let apply = |m: &dyn Preconditioner<f64, Cpu>| {
            let (r, mut z) = (cpu.upload(&[1.0; 144]).unwrap(), Backend::<f64>::zeros(&cpu, 144).unwrap());
            m.apply(&cpu, None, &r, &mut z).unwrap();
            cpu.download(&z).unwrap()
        };
        let level0 = Iluk::with_level(&cpu, &a, 0).unwrap();
        let mut ilu0 = Ilu0::new(&cpu, &a).unwrap();
        assert_eq!((level0.nnz, apply(&level0)), (ilu0.nnz, apply(&ilu0)));
        assert!(Iluk::new(&cpu, &a).unwrap().nnz > ilu0.nnz);
        // The limits: everything is dropped, everything is kept, and in between.
        let ilut = |drop, fill| Ilut::with_options(&cpu, &a, IlutOptions { drop, fill, ..IlutOptions::default() });
        let [all, default, none] = [(0.0, f64::INFINITY), (1e-4, 10.0), (2.0, 1.0)].map(|(d, f)| ilut(d, f).unwrap());
        assert_eq!(
            (default.nnz, apply(&default)),
            (Ilut::new(&cpu, &a).unwrap().nnz, apply(&Ilut::new(&cpu, &a).unwrap()))
        );
        assert!(all.nnz > default.nnz && default.nnz > none.nnz && none.nnz == 144);
        assert!(ilut(-1.0, 10.0).is_err() && ilut(0.0, 0.5).is_err());
        let one = Ssor::new(&cpu, &a).unwrap();
        assert_eq!(apply(&one), apply(&Ssor::with_omega(&cpu, &a, 1.0).unwrap()));
        assert_ne!(apply(&one), apply(&Ssor::with_omega(&cpu, &a, 1.5).unwrap()));
        assert!(Ssor::with_omega(&cpu, &a, 2.0).is_err());
        // Half the matrix, twice the inverse: exactly.
        let doubled: Vec<f64> = apply(&ilu0).iter().map(|z| 2.0 * z).collect();
        let half: Vec<f64> = a.values().iter().map(|v| 0.5 * v).collect();
        ilu0.update(&cpu, &cpu.upload(&half).unwrap()).unwrap();
        assert_eq!(apply(&ilu0), doubled);
        assert_eq!(apply(&ilu0.into_chosen()), doubled);
    }
}
