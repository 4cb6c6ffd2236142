//! The captured steps of a workspace: run plainly once, captured the second time, replayed from then on.
//!
//! As [`spandrel_backend::Recorded`], for steps that are built anew for each segment of a solve, and of which a method may have several
//! (GMRES: one for each stretch of a cycle). They outlive segments, and the systems of one matrix (`solve_many`).

use spandrel_backend::{Device, Step};

use crate::Result;

/// A step: from and to which iteration of a cycle; (0, 1) where all iterations are the same step.
pub(crate) type Stretch = (usize, usize);

/// What is known of the steps that ran since [`Graphs::clear`].
pub(crate) struct Graphs<D: Device> {
    /// The graph, or `None` after the plain run. A handful: looked through in order.
    known: Vec<(Stretch, Option<D::Graph>)>,
}

impl<D: Device> Default for Graphs<D> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<D: Device> Graphs<D> {
    /// Forgets all: before anything that they have the address of may go.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Runs a step once; with `record` false always plainly. Does not block.
    ///
    /// # Safety
    /// Since the last [`Graphs::clear`] every step that was run here as `stretch` on this device enqueues the same operations on the same buffers,
    /// none of which was freed or moved.
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
        // SAFETY: the graph was captured on this device from a step of the same operations and buffers, by the caller's promise.
        Ok(unsafe { device.replay(graph, step) }?)
    }
}
