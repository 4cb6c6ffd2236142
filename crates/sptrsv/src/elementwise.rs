//! The element-wise plan: one warp per row (one worker on the CPU), rows in their own order, one flag per row. No
//! analysis.
//!
//! A ticket hands out rows in order. The lanes of a warp take the entries of a row, and each lane waits for the flags
//! of its columns. A tree over the lanes finishes the row.
//! Order: that of the device: a tree over 32 lanes on a GPU, [`crate::serial`]'s on the CPU.
//! Reference: Chen, Yang, Liu, Ma 2023, structured SpTRSV, Algorithm 1.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Plan, Result, Rows, Systems, Triangular};

/// The element-wise plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Elementwise<T>(Rows<T>);

impl<T: Real> Elementwise<T> {
    /// The rows of the triangle, with its columns if T^T is solved too.
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
