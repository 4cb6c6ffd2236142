//! The trait of all plans, and the one list of them.
//!
//! A plan is made once per triangle (the analysis), loaded once onto a device, and then solves any number of times. Its
//! pattern is fixed; [`Plan::update`] takes new values without a new analysis. Every plan solves T x = b. If it was
//! analysed for [`Systems::Both`], it also solves T^T x = b from the same stored values.
//!
//! Order: unless a device declares another, a row is summed as in [`crate::serial`]. A row of T^T follows the same
//! rule: towards the diagonal, with the farthest column first. All plans that sum in this order give the same bits on
//! every device.

use std::fmt;
use std::sync::Arc;

use spandrel_formats::{Profile, Real};

use crate::{Diagonal, Result, Triangle, Triangular};

/// The system of a triangle T that is solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    /// T x = b.
    Plain,
    /// T^T x = b.
    Transposed,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            System::Plain => "plain",
            System::Transposed => "transposed",
        })
    }
}

/// The systems for which a plan is analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Systems {
    /// Only T x = b.
    Plain,
    /// Also T^T x = b. Plans that need more than the triangle for it store indices, never a second copy of the values;
    /// a device may hold one.
    Both,
}

impl Systems {
    /// Returns true if `system` is among them.
    pub fn hold(self, system: System) -> bool {
        self == Systems::Both || system == System::Plain
    }
}

/// A way of solving with a triangle.
pub trait Plan: Clone + fmt::Debug + Send + Sync + Sized + 'static {
    /// Element type.
    type Value: Real;
    /// The stem of its name in files, kernels, trials, benches and on the command line.
    const NAME: &'static str;

    /// Analyses a triangle with the plan's default parameters. Runs on the host.
    ///
    /// # Errors
    /// Those of a plan that does not fit every triangle: [`crate::Error::NotAGrid`], [`crate::Error::OutsideStencil`].
    fn analyze(matrix: Arc<Triangular<Self::Value>>, systems: Systems) -> Result<Self>;
    /// As [`Plan::analyze`], for solves on a device with that profile. It may take a faster way or make other choices;
    /// the bits of a solve are the same.
    ///
    /// # Errors
    /// As [`Plan::analyze`].
    fn analyze_for(matrix: Arc<Triangular<Self::Value>>, systems: Systems, _profile: &Profile) -> Result<Self> {
        Self::analyze(matrix, systems)
    }
    /// The triangle.
    fn matrix(&self) -> &Arc<Triangular<Self::Value>>;
    /// The systems for which it was analysed.
    fn systems(&self) -> Systems;
    /// Sets new values, in the order of the triangle's stored entries. The pattern and the analysis stay. O(nnz), on
    /// the host; a device takes the values over by its own `update`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there are as many values as entries; [`crate::Error::ZeroDiagonal`]. After an
    /// error the plan is unchanged.
    fn update(&mut self, values: &[Self::Value]) -> Result<()>;
    /// Bytes of the arrays that a solve needs on a device, without the vectors.
    fn storage(&self) -> u64;
    /// Compulsory bytes of one solve with one right-hand side: what it reads of the storage, plus b and x once each.
    fn sptrsv_bytes(&self) -> u64;

    /// Number of rows.
    fn nrows(&self) -> usize {
        self.matrix().nrows()
    }
    /// Which triangle.
    fn triangle(&self) -> Triangle {
        self.matrix().triangle()
    }
    /// What the diagonal holds.
    fn diagonal(&self) -> Diagonal {
        self.matrix().diagonal()
    }
}

/// Expands `$callback!` once with the list of all plans, `(stem, Type)` each. This is the only registry: the
/// conformance suite, the bench and the program expand it.
#[macro_export]
macro_rules! for_each_plan {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            (serial, Serial), (elementwise, Elementwise), (levelset, Levelset), (syncfree, Syncfree), (capellini, Capellini),
            (structured, Structured), (sweep, Sweep)
        }
    };
}
