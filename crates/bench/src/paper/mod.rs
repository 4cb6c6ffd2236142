//! Experiments of the papers that methods here come from: the same figures, measured on this machine, with the papers' numbers beside.

pub mod sptrsv;
