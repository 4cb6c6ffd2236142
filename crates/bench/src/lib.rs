//! Benchmarks of Spandrel against its peers and the machine's own bandwidth; the program is `spandrel-bench`.

#![allow(missing_debug_implementations)] // contenders hold types of peers that have none

pub mod case;
pub mod cg;
pub mod chart;
pub mod contender;
pub mod gpu;
pub mod hpcg;
pub mod krylov;
pub mod machine;
pub mod memory;
pub mod multigrid;
pub mod paper;
pub mod peers;
pub mod plot;
pub mod read;
pub mod record;
pub mod solve;
pub mod spgemm;
pub mod spmv;
pub mod sptrsv;
