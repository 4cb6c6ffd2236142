//! A backend chosen while the program runs, and what every backend can do as two bounds.
//!
//! Dispatch stays static: work is a [`Task`], compiled once for each backend that the features have, and [`AnyBackend::run`] hands it the one
//! that was opened. So the vectors and matrices of a solve keep their types, and a kernel that is missing is a compile error.

use std::fmt;

use spandrel_backend::{Device, Error, Narrow, Result, UpdateValues};
pub use spandrel_backend::{EveryFormat, EveryMethod, EveryProduct};
use spandrel_formats::{Csr, Profile, Real};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;
use crate::incomplete::Incomplete;
use crate::multigrid::Geometric;
use crate::rows::Rows;

/// A backend with everything that this workspace has for one element type: every operation on matrices and vectors, new values of a CSR
/// matrix, the steps of every method, preconditioners by triangular solves, multigrid, and formats made of the rows on the device.
pub trait Complete<T: Real>:
    EveryProduct<T> + EveryMethod<T> + UpdateValues<Csr<T>> + Incomplete<T> + Geometric<T> + Rows<T>
{
}
impl<T: Real, B> Complete<T> for B where
    B: EveryProduct<T> + EveryMethod<T> + UpdateValues<Csr<T>> + Incomplete<T> + Geometric<T> + Rows<T>
{
}

/// Work for whichever backend was opened.
///
#[cfg_attr(all(feature = "cpu", not(feature = "cuda-core")), doc = "```")]
#[cfg_attr(feature = "cuda-core", doc = "```no_run")]
/// use spandrel::any::{AnyBackend, Choice, Complete, Task};
/// use spandrel::solvers::{Jacobi, cg};
/// use spandrel::{Csr, Mat, Options, Outcome, Result, formats};
///
/// fn solve<B: Complete<f64>>(device: &B, csr: Csr<f64>) -> Result<Outcome> {
///     let n = csr.row_ptr().len() - 1;
///     let jacobi = Jacobi::new(device, &csr)?;
///     let a = Mat::load(device, csr)?;
///     let b = device.upload(&vec![1.0; n])?;
///     let mut x = device.zeros(n)?;
///     cg(device, &a, &jacobi, &b, &mut x, &Options::default())
/// }
///
/// struct Solve(Csr<f64>);
/// impl Task for Solve {
///     type Output = Result<Outcome>;
///     fn run<B: Complete<f64> + Complete<f32>>(self, device: &B) -> Self::Output {
///         solve(device, self.0)
///     }
/// }
///
/// let device = AnyBackend::open(Choice::Auto)?;
/// let outcome = device.run(Solve(formats::generate::csr("poisson3d:10")?))?;
/// println!("{} on {}", outcome.status, device.describe());
/// # Ok::<(), spandrel::Error>(())
/// ```
pub trait Task {
    /// What comes of it.
    type Output;
    /// Does the work, best in a function of one element type as above: where both bounds are in sight, every call must say which it means.
    fn run<B: Complete<f64> + Complete<f32> + Narrow>(self, device: &B) -> Self::Output;
}

/// Which backend [`AnyBackend::open`] is to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The GPU where this build and the machine have one that can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first GPU that can be used, or an error.
    Cuda,
    /// The GPU with this number among those that the driver shows, or an error.
    Gpu(usize),
}

/// One of the backends that the features have.
#[non_exhaustive]
#[allow(clippy::large_enum_variant)] // a program has one
pub enum AnyBackend {
    /// The CPU.
    #[cfg(feature = "cpu")]
    Cpu(Cpu),
    /// A GPU.
    #[cfg(feature = "cuda-core")]
    Cuda(Cuda),
}

impl fmt::Debug for AnyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => cpu.fmt(f),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => cuda.fmt(f),
        }
    }
}

impl AnyBackend {
    /// Opens what was chosen, with the profile that was measured of it on this machine if there is one ([`crate::calibration`]).
    ///
    /// # Errors
    /// [`Error::Device`]: for [`Choice::Cuda`] and [`Choice::Gpu`] why no GPU, or not this one, can be used; for a backend that the features leave out, which feature brings it.
    pub fn open(choice: Choice) -> Result<Self> {
        match choice {
            Choice::Auto => Self::auto().map(|(device, _)| device),
            Choice::Cpu => Self::cpu().map(Self::calibrated),
            Choice::Cuda => Self::cuda().map(Self::calibrated),
            Choice::Gpu(ordinal) => Self::gpu(ordinal).map(Self::calibrated),
        }
    }

    /// What [`Choice::Auto`] opens, and why it is not a GPU where it is none.
    ///
    /// # Errors
    /// [`Error::Device`], where there is no usable GPU and the features leave the CPU out.
    pub fn auto() -> Result<(Self, Option<Error>)> {
        match Self::cuda().map(Self::calibrated) {
            Ok(device) => Ok((device, None)),
            Err(why) if cfg!(feature = "cpu") => Ok((Self::cpu()?.calibrated(), Some(why))),
            Err(why) => Err(why),
        }
    }

    /// The name of what [`Choice::Auto`] opens and its profile, without opening it.
    ///
    /// # Errors
    /// As [`AnyBackend::auto`].
    pub fn auto_profile() -> Result<(&'static str, Profile)> {
        #[cfg(feature = "cuda-core")]
        if let Ok(info) = spandrel_backend_cuda::first_usable() {
            let profile = spandrel_backend_cuda::profile::of(&info);
            return Ok((Cuda::NAME, crate::calibration::profile_of(Cuda::NAME, &profile).unwrap_or(profile)));
        }
        let cpu = Self::cpu()?.calibrated();
        Ok((cpu.name(), cpu.profile().clone()))
    }

    fn cpu() -> Result<Self> {
        #[cfg(feature = "cpu")]
        return Ok(AnyBackend::Cpu(Cpu::new()));
        #[cfg(not(feature = "cpu"))]
        return Err(left_out("cpu"));
    }

    fn cuda() -> Result<Self> {
        #[cfg(feature = "cuda-core")]
        return Ok(AnyBackend::Cuda(Cuda::new()?));
        #[cfg(not(feature = "cuda-core"))]
        return Err(left_out("cuda"));
    }

    fn gpu(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda-core")]
        return Ok(AnyBackend::Cuda(Cuda::on(ordinal)?));
        #[cfg(not(feature = "cuda-core"))]
        {
            let _ = ordinal;
            Err(left_out("cuda"))
        }
    }

    /// The same device held to orders of summation that both backends share: see `Cuda::with_reproducible`. The CPU always is.
    #[must_use]
    pub fn with_reproducible(self, reproducible: bool) -> Self {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(_) => {
                let _ = reproducible;
                self
            }
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => AnyBackend::Cuda(cuda.with_reproducible(reproducible)),
        }
    }

    /// `"cpu"` or `"cuda"`.
    pub fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(_) => Cpu::NAME,
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(_) => Cuda::NAME,
        }
    }

    /// The device in words.
    pub fn describe(&self) -> String {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => cpu.describe(),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => cuda.describe(),
        }
    }

    /// What the policies read of the device: see [`Device::profile`].
    pub fn profile(&self) -> &Profile {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => cpu.profile(),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => cuda.profile(),
        }
    }

    /// The same device with another profile.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => AnyBackend::Cpu(cpu.with_profile(profile)),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => AnyBackend::Cuda(cuda.with_profile(profile)),
        }
    }

    /// Runs `task` on the device.
    pub fn run<W: Task>(&self, task: W) -> W::Output {
        match self {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => task.run(cpu),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => task.run(cuda),
        }
    }
}

/// The error of a backend that this build does not have.
#[cfg(not(all(feature = "cpu", feature = "cuda-core")))]
fn left_out(feature: &'static str) -> Error {
    Error::Device { device: feature, why: format!("this build leaves it out: build with the feature {feature}") }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;

    struct Name;
    impl Task for Name {
        type Output = &'static str;
        fn run<B: Complete<f64> + Complete<f32>>(self, _: &B) -> &'static str {
            B::NAME
        }
    }

    #[test]
    fn the_cpu_is_opened_by_name_and_runs_tasks() {
        let device = AnyBackend::open(Choice::Cpu).unwrap().with_reproducible(true);
        assert_eq!((device.name(), device.run(Name)), ("cpu", "cpu"));
        assert!(device.profile().memory.units > 0);
        assert!(!device.describe().is_empty());
    }

    #[test]
    fn auto_says_why_it_is_no_gpu() {
        let (device, why) = AnyBackend::auto().unwrap();
        assert_eq!(device.name() == "cpu", why.is_some(), "{device:?} {why:?}");
        match AnyBackend::open(Choice::Cuda) {
            Ok(device) => assert_eq!(device.run(Name), "cuda"),
            Err(error) => assert!(matches!(error, Error::Device { device: "cuda", .. }), "{error}"),
        }
    }
}
