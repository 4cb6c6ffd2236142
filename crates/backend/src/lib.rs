//! The contract between solvers and the devices that run them.
//!
//! A [`Device`] is one ordered queue. A [`Backend<T>`] gives it vectors and scalars of an element type, so mixed precision is
//! two bounds. Each operation is a trait of its own (products [`Spmv`], [`SpmvTransposed`], [`Spmm`]; the triangular solve [`Sptrsv`];
//! [`Factorize`], [`Assemble`], [`Analyze`] and [`Convert`] of what is resident; [`Cast`] and [`Narrow`] between element types; [`UpdateValues`]), dispatched statically. What
//! a method fuses beyond them extends the backend ([`CgSteps`], [`BicgstabSteps`]), with default bodies. Scalars live on the device; the host looks at a [`Report`] every so many iterations; work behind a stop is gated. Sizes are validated above the
//! backends, by [`Mat`], [`Tri`] and the solvers' heads; a backend refuses a mismatch all the same and never touches memory outside its
//! operands.

pub mod analyze;
pub mod any_tri;
pub mod bicgstab;
pub mod cast;
pub mod cg;
pub mod device;
pub mod error;
pub mod every;
pub mod factor;
pub mod forward;
pub mod host_memory;
pub mod mat;
pub mod monitor;
pub mod operator;
pub mod ops;
pub mod preconditioner;
pub mod sptrsv;
pub mod trace;
pub mod update_values;

pub use analyze::{Analyze, Analyzed, Part, ResidentTri};
pub use any_tri::AnyTri;
pub use bicgstab::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabIterations, BicgstabSecond, BicgstabSteps, BicgstabUpdate,
};
pub use cast::{Cast, MixedPrecision, Narrow};
pub use cg::{CgDirection, CgIterations, CgStep, CgSteps, CgUpdate};
pub use device::{Device, Gate, Recorded, Step};
pub use error::{Error, Result};
pub use every::{EveryFactor, EveryFormat, EveryMethod, EveryPlan, EveryProduct, FORMATS, PLANS};
pub use factor::{Assemble, Assembled, Factorize};
pub use host_memory::HostMemory;
pub use mat::{IntoArc, Mat};
pub use monitor::{Latest, Phase, Quantity, Report, Stop, Watch};
pub use operator::Operator;
pub use ops::{Backend, Coeff, Convert, Converted, Load, Order, SparseVector, Spmm, Spmv, SpmvTransposed};
pub use preconditioner::Preconditioner;
#[doc(no_inline)]
pub use spandrel_formats::Profile;
pub use sptrsv::{Sptrsv, Tri};
pub use trace::Trace;
pub use update_values::UpdateValues;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
