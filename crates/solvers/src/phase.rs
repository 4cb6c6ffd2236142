//! The phases of a set-up. A set-up may take longer than the solve, so its watcher is told of each phase before it
//! begins.
//!
//! A phase runs to its end, because a factorisation or an analysis cannot stop inside. A watcher that breaks off takes
//! effect before the next phase, and what was made so far is dropped. A hierarchy has one phase per grid.

use std::fmt;
use std::ops::ControlFlow;

use crate::{Error, Result};

/// A phase of a set-up. `Display` prints the words for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The pattern of the factors: ordering and fill.
    Symbolic,
    /// The values of the factors.
    Numeric,
    /// Levels or schedules of the triangular solves.
    Planning,
    /// The copy to the device, and the layouts there.
    Loading,
    /// The operator of the grid with this number, 1 for the first coarse one.
    Coarsening {
        /// The grid.
        grid: usize,
    },
    /// The triangles and matrices of the grid with this number, 0 the finest: divided, planned and loaded.
    Grid {
        /// The grid.
        grid: usize,
    },
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Symbolic => f.write_str("symbolic factorisation"),
            Phase::Numeric => f.write_str("factorisation"),
            Phase::Planning => f.write_str("analysis of the triangular solves"),
            Phase::Loading => f.write_str("copy to the device"),
            Phase::Coarsening { grid } => write!(f, "coarse operator {grid}"),
            Phase::Grid { grid } => write!(f, "set-up of grid {grid}"),
        }
    }
}

/// Called before each phase of a set-up; `Break` ends it with [`Error::Interrupted`] before that phase.
///
/// ```
/// use std::ops::ControlFlow;
/// use spandrel_formats::generate;
/// use spandrel_solvers::{Direct, DirectOptions, Error, Phase};
///
/// let a = generate::csr::<f64>("poisson2d:20")?;
/// let mut told = Vec::new();
/// Direct::new_watched(a.clone(), &DirectOptions::default(), &mut |phase| {
///     told.push(phase.to_string());
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(told, ["symbolic factorisation", "factorisation"]);
///
/// let refused = Direct::new_watched(a, &DirectOptions::default(), &mut |_| ControlFlow::Break(()));
/// assert!(matches!(refused, Err(Error::Interrupted { phase }) if phase == Phase::Symbolic.to_string()));
/// # Ok::<(), Error>(())
/// ```
pub type SetupWatcher<'a> = &'a mut dyn FnMut(Phase) -> ControlFlow<()>;

/// A [`SetupWatcher`] that lets every phase begin.
pub fn unobserved(_: Phase) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl Phase {
    /// Tells the watcher that this phase begins.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the watcher breaks off.
    pub fn begin(self, watcher: SetupWatcher<'_>) -> Result<()> {
        match watcher(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted { phase: self.to_string() }),
        }
    }
}
