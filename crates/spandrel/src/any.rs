//! A backend chosen at run time, and two bounds for what every backend can do.
//!
//! Dispatch stays static. Work is a [`Task`], compiled once for each backend in the build, and [`AnyBackend::run`]
//! passes it the opened one. So vectors and matrices keep their types, and a missing kernel is a compile error.

use std::fmt;
use std::str::FromStr;

use spandrel_backend::{Device, Error, Narrow, Renumber, UpdateValues};
pub use spandrel_backend::{EveryFormat, EveryMethod, EveryProduct};
use spandrel_formats::{Csr, Profile, Real};
use spandrel_solvers::{AmgBackend, NameError};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;
use crate::incomplete::Incomplete;
use crate::multigrid::Geometric;
use crate::rows::Rows;

type Result<T, E = Error> = std::result::Result<T, E>;

/// A backend with everything that this workspace has for one element type: every operation on matrices and vectors, new
/// values of a CSR matrix, the steps of every method, preconditioners by triangular solves, multigrid, and formats made
/// of the rows on the device.
pub trait Complete<T: Real>:
    EveryProduct<T>
    + EveryMethod<T>
    + UpdateValues<Csr<T>>
    + Incomplete<T>
    + Geometric<T>
    + AmgBackend<T>
    + Renumber<Csr<T>>
    + Rows<T>
{
}
impl<T: Real, B> Complete<T> for B where
    B: EveryProduct<T>
        + EveryMethod<T>
        + UpdateValues<Csr<T>>
        + Incomplete<T>
        + Geometric<T>
        + AmgBackend<T>
        + Renumber<Csr<T>>
        + Rows<T>
{
}

/// Work for whichever backend is opened.
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
    /// The result.
    type Output;
    /// Does the work. Call a function of one element type, as above: with both bounds in scope, every call must name
    /// its type.
    fn run<B: Complete<f64> + Complete<f32> + Narrow>(self, device: &B) -> Self::Output;
}

/// The backend that [`AnyBackend::open`] opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The GPU if this build and the machine have a usable one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first usable GPU, or an error.
    Cuda,
    /// The GPU with this number among those that the driver lists, or an error.
    Gpu(usize),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Cpu => f.pad("cpu"),
            Self::Cuda => f.pad("cuda"),
            Self::Gpu(ordinal) => f.pad(&format!("cuda:{ordinal}")),
        }
    }
}

/// Reads `auto`, `cpu`, `cuda` and `cuda:N`, the GPU with the number N. Case does not matter.
///
/// ```
/// use spandrel::any::Choice;
///
/// assert_eq!("cuda:1".parse(), Ok(Choice::Gpu(1)));
/// assert!("gpu".parse::<Choice>().is_err());
/// ```
impl FromStr for Choice {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.to_ascii_lowercase();
        let ordinal = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match (name.as_str(), ordinal) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda),
            (_, Some(ordinal)) => Ok(Self::Gpu(ordinal)),
            _ => Err(NameError::unknown("device", text, ["auto", "cpu", "cuda", "cuda:0"].into_iter())),
        }
    }
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
    /// Opens a backend, with its measured profile on this machine if there is one ([`crate::calibration`]).
    ///
    /// # Errors
    /// [`Error::Device`]. For [`Choice::Cuda`] and [`Choice::Gpu`] it says why no GPU, or not this one, can be used.
    /// For a backend that the build lacks it names the feature.
    pub fn open(choice: Choice) -> Result<Self> {
        match choice {
            Choice::Auto => Self::auto().map(|(device, _)| device),
            Choice::Cpu => Self::cpu().map(Self::calibrated),
            Choice::Cuda => Self::cuda().map(Self::calibrated),
            Choice::Gpu(ordinal) => Self::gpu(ordinal).map(Self::calibrated),
        }
    }

    /// Opens what [`Choice::Auto`] means, and says why it is not a GPU if it is none.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no usable GPU and the build lacks the CPU backend.
    pub fn auto() -> Result<(Self, Option<Error>)> {
        match Self::cuda().map(Self::calibrated) {
            Ok(device) => Ok((device, None)),
            Err(why) if cfg!(feature = "cpu") => Ok((Self::cpu()?.calibrated(), Some(why))),
            Err(why) => Err(why),
        }
    }

    /// The name and the profile of what [`Choice::Auto`] would open, without opening it.
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

    /// The same device, restricted to orders of summation that both backends share: see `Cuda::with_reproducible`. The
    /// CPU always is.
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

    /// The profile of the device: see [`Device::profile`].
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
    fn choices_are_read_back_as_they_are_written() {
        for choice in [Choice::Auto, Choice::Cpu, Choice::Cuda, Choice::Gpu(0), Choice::Gpu(12)] {
            assert_eq!(choice.to_string().to_uppercase().parse(), Ok(choice));
        }
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
        let error = "cdua".parse::<Choice>().unwrap_err().to_string();
        assert!(error.contains("did you mean cuda?"), "{error}");
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
