//! The structured plan: each line of a grid is one task, which reads from its columns what to wait for. No dependency
//! analysis.
//!
//! Rows are points of an X x Y x Z grid in natural order, r = x + X (y + Y z), so row r lies on line r / X. (An upper
//! triangle is the lower one of the mirrored grid: row r stands for n - 1 - r.) One warp (one worker on the CPU) solves
//! a line in x order. The lines of one z form a queue, from which a fixed number of warps draw in y order; planes are
//! served in z order. A row of a lower triangle depends only on its own line and on earlier lines, which are drawn
//! earlier. So any triangle is solved correctly on any grid with as many points.
//!
//! Progress is one integer per line, the number of its solved rows ([`Stages::compressed`]), or one mark per row. The
//! triangle stays plain CSR. Each optimisation of the method can be switched off, to measure its effect.
//! Order: that of the device. The CPU uses that of [`crate::serial`]. A GPU has its own: a tree over lanes for terms on
//! other lines, then the terms on the own line.
//! Cost: that of the CSR triangle.
//! Reference: Chen, Yang, Liu, Ma 2023, structured SpTRSV, Algorithm 2.

use std::sync::Arc;

use spandrel_formats::{Grid, Real};

use crate::{Error, Plan, Result, Rows, Systems, Triangular};

/// The optimisations of the method, one switch each. They change the speed, never the solution.
///
/// A GPU has kernels only for some combinations and refuses the others when a plan is loaded. The CPU accepts any
/// combination and solves the same way. The combinations for the GPU are those in the figures of the source:
/// `predication` is switched with or without `compressed` but never by itself, and `acquire` only together with
/// everything but `compressed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stages {
    /// The lanes of a warp take entries of several consecutive rows at once. Otherwise a warp takes one row at a time.
    pub multistage: bool,
    /// Columns and values of the next rows are read before the warp waits for those of the current ones. Needs
    /// `multistage`.
    pub prefetch: bool,
    /// Predicates instead of branches, so that lanes wait together. Needs `multistage`.
    pub predication: bool,
    /// Progress is one integer per line instead of one mark per row.
    pub compressed: bool,
    /// Progress is read by acquire loads. Otherwise it is read by loads that bypass the first-level cache, followed by
    /// a fence.
    pub acquire: bool,
}

impl Stages {
    /// No optimisation: only the tasks.
    pub const NONE: Self =
        Self { multistage: false, prefetch: false, predication: false, compressed: false, acquire: false };
    /// All optimisations: the source's own version.
    pub const ALL: Self = Self { multistage: true, prefetch: true, predication: true, compressed: true, acquire: true };
}

impl Default for Stages {
    /// All but `compressed`. On today's GPUs, warps that wait for one integer per line obstruct each other, and one
    /// mark per row is 3 to 40 % faster on every stencil (record/h200-structured.jsonl, h200-paper-sptrsv.jsonl).
    fn default() -> Self {
        Self { compressed: false, ..Self::ALL }
    }
}

/// The structured plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Structured<T> {
    rows: Rows<T>,
    size: [usize; 3],
    stages: Stages,
    queue_depth: usize,
}

impl<T: Real> Structured<T> {
    /// Plans for a triangle on a known grid of X x Y x Z points, with the default [`Stages`] and the source's queue
    /// depth. Nothing is analysed, except that the columns are indexed if T^T is solved too.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the grid has as many points as the triangle has rows.
    pub fn on_grid(matrix: Arc<Triangular<T>>, size: [usize; 3], systems: Systems) -> Result<Self> {
        let n = matrix.nrows();
        let points = size.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
        if points != Some(n) {
            return Err(Error::Shape { what: "the grid", found: points.unwrap_or(usize::MAX), expected: n });
        }
        let queue_depth = depth(size, matrix.csr().values().len());
        Ok(Self { rows: Rows::new(matrix, systems), size, stages: Stages::default(), queue_depth })
    }

    /// Returns the same plan with other stages.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }
    /// Returns the same plan with this many warps per plane's queue, at least one.
    #[must_use]
    pub fn with_queue_depth(self, warps: usize) -> Self {
        Self { queue_depth: warps.max(1), ..self }
    }

    /// The rows of the triangle, with its columns if T^T is solved too.
    pub fn rows(&self) -> &Rows<T> {
        &self.rows
    }
    /// Extents of the grid: X, Y, Z.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }
    /// Number of lines of the grid, Y Z.
    pub fn lines(&self) -> usize {
        self.size[1] * self.size[2]
    }
    /// The optimisations that are switched on.
    pub fn stages(&self) -> Stages {
        self.stages
    }
    /// Number of warps per plane's queue.
    pub fn queue_depth(&self) -> usize {
        self.queue_depth
    }
}

/// Queue depth from the source's Table 2, by entries per row and by the nearest extent of the grid. A grid of one plane
/// has one queue, whose lines may all be drawn at once.
fn depth(size: [usize; 3], entries: usize) -> usize {
    let n = size[0] * size[1] * size[2];
    if size[2] <= 1 {
        return size[1].clamp(1, 1024);
    }
    let small = n <= 96 * 96 * 96;
    let large = n > 160 * 160 * 160;
    match entries.div_ceil(n.max(1)) {
        0..=7 if small => 64,
        0..=7 => 80,
        _ if !large => 64,
        8..=14 => 80,
        _ => 44,
    }
}

impl<T: Real> Plan for Structured<T> {
    type Value = T;
    const NAME: &'static str = "structured";

    /// Recognises the grid in O(nnz). [`Structured::on_grid`] takes a known one and reads nothing.
    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        let grid =
            Grid::detect(matrix.csr()).map_err(|why| Error::NotAGrid { plan: Self::NAME, why: why.to_string() })?;
        Self::on_grid(matrix, grid.size, systems)
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        self.rows.matrix()
    }
    fn systems(&self) -> Systems {
        self.rows.systems()
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        self.rows.update(values)
    }
    /// The triangle and the progress marks.
    fn storage(&self) -> u64 {
        let marks = if self.stages.compressed { self.lines() } else { self.nrows() };
        self.rows.storage() + 4 * marks as u64
    }
    fn sptrsv_bytes(&self) -> u64 {
        self.rows.sptrsv_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_as_deep_as_in_the_source() {
        let table =
            |entries: usize| [64, 128, 192, 256].map(|extent: usize| depth([extent; 3], extent.pow(3) * entries - 5));
        assert_eq!(table(4), [64, 80, 80, 80]);
        assert_eq!(table(7), [64, 80, 80, 80]);
        assert_eq!(table(14), [64, 64, 80, 80]);
        assert_eq!(table(17), [64, 64, 44, 44]);
        assert_eq!(depth([1000, 1000, 1], 3_000_000), 1000);
        assert_eq!([depth([0, 0, 0], 0), depth([5, 0, 7], 0)], [1, 64]);
    }
}
