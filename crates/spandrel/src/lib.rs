//! spandrel
