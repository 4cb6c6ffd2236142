//! The recorded steps of a workspace: each runs plainly once, is captured the second time, and is replayed from then
//! on.
//!
//! It extends [`spandrel_backend::Recorded`] to steps that are built anew for each segment of a solve, and to methods
//! with several steps (GMRES has one for each stretch of a cycle). Graphs outlive segments, and the systems of one
//! matrix (`solve_many`).

use spandrel_backend::{Device, Step};

use crate::Result;

/// A step, as a range of iterations of a cycle; (0, 1) if all iterations are the same step.
pub(crate) type Stretch = (usize, usize);

/// The steps that ran since [`Graphs::clear`].
pub(crate) struct Graphs<D: Device> {
    /// The graph, or `None` after the plain run. There are only a few, so a search is enough.
    known: Vec<(Stretch, Option<D::Graph>)>,
}

impl<D: Device> Default for Graphs<D> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<D: Device> Graphs<D> {
    /// Forgets all graphs. Call it before anything that a graph addresses is freed or moved.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Runs a step once; always plainly if `record` is false. Does not block.
    ///
    /// # Safety
    /// Since the last [`Graphs::clear`], every step that ran here as `stretch` on this device enqueues the same
    /// operations on the same buffers, none of which was freed or moved.
    pub(crate) unsafe fn run<S: Step<D>>(
        &mut self,
        device: &D,
        stretch: Stretch,
        step: &mut S,
        record: bool,
    ) -> Result<()> {
        let known = self.known.iter_mut().find(|(known, _)| *known == stretch).filter(|_| record);
        let Some((_, graph)) = known else {
            step.enqueue(device)?;
            if record {
                self.known.push((stretch, None));
            }
            return Ok(());
        };
        let graph = match graph {
            Some(graph) => graph,
            none => none.insert(device.capture(step)?),
        };
        // SAFETY: by the caller's promise, the graph was captured on this device from a step with the same operations
        // and buffers.
        Ok(unsafe { device.replay(graph, step) }?)
    }
}
