//! sptrsv
