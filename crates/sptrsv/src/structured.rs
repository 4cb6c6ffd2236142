//! placeholder

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Plan, Result, Rows, Systems, Triangular};

/// x
#[derive(Clone, Debug)]
pub struct Structured<T>(Rows<T>);

impl<T: Real> Structured<T> {
    /// The rows that it walks.
    pub fn rows(&self) -> &Rows<T> {
        &self.0
    }
}

impl<T: Real> Plan for Structured<T> {
    type Value = T;
    const NAME: &'static str = "structured";

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
