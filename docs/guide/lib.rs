//! The guide as a crate, so that the programs in its chapters are compiled and run (`cargo test -p spandrel-guide
//! --doc`). Programs that need a GPU are only compiled. `crates/cli/tests/guide.rs` runs the commands.
//!
#![doc = include_str!("README.md")]

#[doc = include_str!("install.md")]
pub mod install {}
#[doc = include_str!("first-solve.md")]
pub mod first_solve {}
#[doc = include_str!("library.md")]
pub mod library {}
#[doc = include_str!("gpu.md")]
pub mod gpu {}
#[doc = include_str!("choose.md")]
pub mod choose {}
#[doc = include_str!("outcome.md")]
pub mod outcome {}
#[doc = include_str!("many.md")]
pub mod many {}
#[doc = include_str!("new-values.md")]
pub mod new_values {}
#[doc = include_str!("ranks.md")]
pub mod ranks {}
#[doc = include_str!("preconditioners.md")]
pub mod preconditioners {}
#[doc = include_str!("multigrid.md")]
pub mod multigrid {}
#[doc = include_str!("gmres.md")]
pub mod gmres {}
#[doc = include_str!("mixed-precision.md")]
pub mod mixed_precision {}
#[doc = include_str!("formats.md")]
pub mod formats {}
#[doc = include_str!("grids.md")]
pub mod grids {}
#[doc = include_str!("own-operator.md")]
pub mod own_operator {}
#[doc = include_str!("new-format.md")]
pub mod new_format {}
#[doc = include_str!("papers.md")]
pub mod papers {}
#[doc = include_str!("gallery.md")]
pub mod gallery {}
#[doc = include_str!("python.md")]
pub mod python {}
