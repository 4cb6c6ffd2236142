//! One thread a row, rows in their own order, a flag a row: no analysis.
//!
//! A thread walks its row's entries as their columns become solved; rows are handed out in order by a ticket.
//! Order: [`crate::serial`]'s.
//! Reference: Su et al. 2020, CapelliniSpTRSV: a thread-level synchronization-free sparse triangular solve on GPUs.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Plan, Result, Rows, Systems, Triangular};

/// The thread-level plan: see the module's head.
#[derive(Clone, Debug)]
pub struct Capellini<T>(Rows<T>);

impl<T: Real> Capellini<T> {
    /// The rows that it walks.
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
