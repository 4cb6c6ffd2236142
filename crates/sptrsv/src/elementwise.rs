//! One warp (a worker on the CPU) an equation, rows in their own order, a flag a row: no analysis.
//!
//! Rows are handed out in order by a ticket; the entries of a row go to the lanes of a warp, each of which waits for the flags of its
//! columns; a tree over the lanes ends the row.
//! Order: that of the device: a tree over 32 lanes on a GPU, [`crate::serial`]'s on the CPU.
//! Reference: Chen, Yang, Liu, Ma 2023, structured SpTRSV, Algorithm 1.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Plan, Result, Rows, Systems, Triangular};

/// The element-wise plan: see the module's head.
#[derive(Clone, Debug)]
pub struct Elementwise<T>(Rows<T>);

impl<T: Real> Elementwise<T> {
    /// The rows that it walks.
    pub fn rows(&self) -> &Rows<T> {
        &self.0
    }
}

impl<T: Real> Plan for Elementwise<T> {
    type Value = T;
    const NAME: &'static str = "elementwise";

    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        Ok(Self(Rows::new(matrix, systems)))
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        self.0.matrix()
    }
    fn systems(&self) -> Systems {
        self.0.systems()
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        self.0.update(values)
    }
    fn storage(&self) -> u64 {
        self.0.storage()
    }
    fn sptrsv_bytes(&self) -> u64 {
        self.0.sptrsv_bytes()
    }
}
