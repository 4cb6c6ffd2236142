//! The contract between solvers and the devices that run them.
//!
//! A [`Device`] is one ordered queue. A [`Backend<T>`] adds vectors and scalars of one element type, so mixed precision
//! needs two bounds. Each operation is a trait of its own and is dispatched statically:
//!
//! - products: [`Spmv`], [`SpmvTransposed`], [`Spmm`]; the triangular solve: [`Sptrsv`]; new matrices from existing
//!   ones: [`Spgemm`], [`Transpose`], [`Renumber`], and coarser ones: [`Coarsen`]; matrices to the host: [`Download`];
//! - set-up from data that is already on the device: [`Factorize`], [`Assemble`], [`Analyze`], [`Convert`];
//! - conversions between element types: [`Cast`], [`Narrow`]; new values on an old pattern: [`UpdateValues`].
//!
//! The fused steps of a method extend the backend ([`CgSteps`], [`BicgstabSteps`]) and have default bodies. Scalars
//! live on the device. The host reads a [`Report`] only once per several iterations. Work that was enqueued after the
//! stop does nothing, because its gate is closed.
//!
//! [`Mat`], [`Tri`] and the solvers validate sizes before they call a backend. A backend still refuses a mismatch and
//! never touches memory outside its operands.

pub mod analyze;
pub mod any_tri;
pub mod bicgstab;
pub mod cast;
pub mod cg;
pub mod coarsen;
pub mod device;
pub mod download;
pub mod entries;
pub mod error;
pub mod every;
pub mod factor;
pub mod forward;
pub mod host_memory;
pub mod join;
pub mod mat;
pub mod monitor;
pub mod operator;
pub mod ops;
pub mod peers;
pub mod preconditioner;
pub mod renumber;
pub mod spgemm;
pub mod sptrsv;
pub mod stencils;
pub mod trace;
pub mod transpose;
pub mod update_values;

pub use analyze::{Analyze, Analyzed, Part, ResidentTri};
pub use any_tri::AnyTri;
pub use bicgstab::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabIterations, BicgstabSecond, BicgstabSteps, BicgstabUpdate,
};
pub use cast::{Cast, MixedPrecision, Narrow};
pub use cg::{CgDirection, CgIterations, CgStep, CgSteps, CgUpdate};
pub use coarsen::{Coarsen, Coarser, MatAggregates, MatCoarser, Prolongation, Scaling};
pub use device::{Device, Gate, Recorded, Step};
pub use download::Download;
pub use entries::{Entries, PackedRows};
pub use error::{Error, Result};
pub use every::{EveryFactor, EveryFormat, EveryMethod, EveryPlan, EveryProduct, FORMATS, PLANS};
pub use factor::{Assemble, Assembled, Factorize};
pub use host_memory::HostMemory;
pub use join::{Join, Roots};
pub use mat::{IntoArc, Mat};
pub use monitor::{Latest, Phase, Quantity, Report, Stop, Watch};
pub use operator::Operator;
pub use ops::{Backend, Coeff, Convert, Converted, Load, Order, SparseVector, Spmm, Spmv, SpmvTransposed};
pub use peers::{Meeting, PeerSums, Peers, Received};
pub use preconditioner::Preconditioner;
pub use renumber::{MatNumbering, MatRenumbering, Renumber};
#[doc(no_inline)]
pub use spandrel_formats::Profile;
pub use spgemm::{MatProduct, Spgemm};
pub use sptrsv::{Sptrsv, Tri};
pub use stencils::{Inverted, Relax, Sampled, Spectrum, Stencils};
pub use trace::Trace;
pub use transpose::{MatTranspose, Transpose};
pub use update_values::UpdateValues;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
