//! What every way of solving with a triangle has, and the one list of them.
//!
//! A plan is made once for a triangle (the analysis), loaded once to a device, and solves any number of times. Its pattern is fixed;
//! [`Plan::update`] takes new values without a new analysis.
//! Every plan solves T x = b, and, where it was analysed for [`Systems::Both`], T^T x = b from the same stored values.
//!
//! Order: unless a device declares another, a row is summed as in [`crate::serial`], and a row of T^T by the same rule: towards the
//! diagonal, the farthest column first. Plans that are summed so give the same bits, all of them and on every device.

use std::fmt;
use std::sync::Arc;

use spandrel_formats::{Profile, Real};

use crate::{Diagonal, Result, Triangle, Triangular};

/// Which system of a triangle T is solved.
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

/// Which systems a plan is analysed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Systems {
    /// T x = b alone.
    Plain,
    /// T^T x = b also. Plans that need more than the triangle for it store indices, never a second copy of the values; a device may hold one.
    Both,
}

impl Systems {
    /// Whether `system` is among them.
    pub fn hold(self, system: System) -> bool {
        self == Systems::Both || system == System::Plain
    }
}

/// A way of solving with a triangle: a noun of this workspace.
pub trait Plan: Clone + fmt::Debug + Send + Sync + Sized + 'static {
    /// Element type.
    type Value: Real;
    /// The stem that names it in files, kernels, trials, benches and on the command line.
    const NAME: &'static str;

    /// Analyses a triangle with the plan's default parameters. Runs on the host.
    ///
    /// # Errors
    /// Those of a plan that does not fit every triangle: [`crate::Error::NotAGrid`], [`crate::Error::OutsideStencil`].
    fn analyze(matrix: Arc<Triangular<Self::Value>>, systems: Systems) -> Result<Self>;
    /// As [`Plan::analyze`] for solves on a device with that profile, which may have a quicker way or suit another answer: bits are the same.
    ///
    /// # Errors
    /// As [`Plan::analyze`].
    fn analyze_for(matrix: Arc<Triangular<Self::Value>>, systems: Systems, _profile: &Profile) -> Result<Self> {
        Self::analyze(matrix, systems)
    }
    /// The triangle.
    fn matrix(&self) -> &Arc<Triangular<Self::Value>>;
    /// The systems it was analysed for.
    fn systems(&self) -> Systems;
    /// New values, in the order of the triangle's stored entries; the pattern and the analysis stay. O(nnz), on the host; a device
    /// takes them over by its own `update`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there are as many as entries; [`crate::Error::ZeroDiagonal`]. The plan is then as before.
    fn update(&mut self, values: &[Self::Value]) -> Result<()>;
    /// Bytes of the arrays that a solve needs on a device, vectors aside.
    fn storage(&self) -> u64;
    /// Compulsory bytes of one solve with one right-hand side: what it reads of the storage, b once, x once.
    fn sptrsv_bytes(&self) -> u64;

    /// Number of rows.
    fn nrows(&self) -> usize {
        self.matrix().nrows()
    }
    /// Which triangle.
    fn triangle(&self) -> Triangle {
        self.matrix().triangle()
    }
    /// What stands on its diagonal.
    fn diagonal(&self) -> Diagonal {
        self.matrix().diagonal()
    }
}

/// Expands `$callback!` once with the list of all plans, `(stem, Type)` each. The only registry: the suite, the bench and the
/// program expand it.
#[macro_export]
macro_rules! for_each_plan {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            (serial, Serial), (elementwise, Elementwise), (levelset, Levelset), (syncfree, Syncfree), (capellini, Capellini),
            (structured, Structured), (sweep, Sweep)
        }
    };
}
