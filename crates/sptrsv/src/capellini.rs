//! The thread-level plan: one thread per row, rows in their own order, one flag per row. No analysis.
//!
//! A thread walks through its row's entries as their columns become solved. A ticket hands out rows in order.
//! Order: [`crate::serial`]'s.
//! Reference: Su et al. 2020, CapelliniSpTRSV: a thread-level synchronization-free sparse triangular solve on GPUs.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Plan, Result, Rows, Systems, Triangular};

/// The thread-level plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Capellini<T>(Rows<T>);

impl<T: Real> Capellini<T> {
    /// The rows of the triangle, with its columns if T^T is solved too.
    pub fn rows(&self) -> &Rows<T> {
        &self.0
    }
}

impl<T: Real> Plan for Capellini<T> {
    type Value = T;
    const NAME: &'static str = "capellini";

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
