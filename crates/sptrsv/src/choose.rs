//! Chooses the plan that is expected to solve a triangle fastest, and holds any plan as one type.
//!
//! The choice depends on the triangle's structure, on the device's profile and on the number of solves. A grid goes to
//! the sweep, which looks up no levels. For anything else it matters whether an analysis pays off and how much there is
//! to solve per level. On a device whose rows wait for each other, the latencies of both ways of solving decide
//! ([`Latency`]).
//! Cost: one or two passes over the entries to recognise a grid, one for levels, and two over some rows for latencies.
//! Plans that the choice makes on the way are returned, not made again.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_formats::{Profile, Real};

use crate::{
    Capellini, Diagonal, Elementwise, Latency, Levelset, Plan, Result, Serial, Structured, Sweep, Syncfree, System,
    Systems, Triangle, Triangular, View, for_each_plan,
};

/// The plan that is expected to be fastest, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// [`Plan::NAME`].
    pub plan: &'static str,
    /// One sentence with the numbers that decided.
    pub why: String,
}

macro_rules! any_plan {
    ([] $(($stem:ident, $Plan:ident)),*) => {
        /// Any plan.
        #[derive(Clone, Debug)]
        pub enum AnyPlan<T> {
            $(
                #[doc = concat!("The ", stringify!($stem), " plan.")]
                $Plan($Plan<T>),
            )*
        }

        impl<T: Real> AnyPlan<T> {
            /// The names of all plans.
            pub const NAMES: &'static [&'static str] = &[$(<$Plan<T> as Plan>::NAME),*];

            /// Analyses a triangle by the plan of that name; `None` if no plan has that name.
            ///
            /// # Errors
            /// As [`Plan::analyze`].
            pub fn named(name: &str, matrix: Arc<Triangular<T>>, systems: Systems) -> Option<Result<Self>> {
                match name {
                    $(_ if name == <$Plan<T> as Plan>::NAME => Some($Plan::analyze(matrix, systems).map(Self::$Plan)),)*
                    _ => None,
                }
            }
            /// The plan's name, [`Plan::NAME`].
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Plan(_) => <$Plan<T> as Plan>::NAME,)*
                }
            }
            /// The triangle.
            pub fn matrix(&self) -> &Arc<Triangular<T>> {
                match self {
                    $(Self::$Plan(plan) => plan.matrix(),)*
                }
            }
            /// The systems for which it was analysed.
            pub fn systems(&self) -> Systems {
                match self {
                    $(Self::$Plan(plan) => plan.systems(),)*
                }
            }
            /// Sets new values. See [`Plan::update`].
            ///
            /// # Errors
            /// As [`Plan::update`].
            pub fn update(&mut self, values: &[T]) -> Result<()> {
                match self {
                    $(Self::$Plan(plan) => plan.update(values),)*
                }
            }
            /// Bytes on a device. See [`Plan::storage`].
            pub fn storage(&self) -> u64 {
                match self {
                    $(Self::$Plan(plan) => plan.storage(),)*
                }
            }
            /// Bytes of one solve. See [`Plan::sptrsv_bytes`].
            pub fn sptrsv_bytes(&self) -> u64 {
                match self {
                    $(Self::$Plan(plan) => plan.sptrsv_bytes(),)*
                }
            }
            /// Number of rows.
            pub fn nrows(&self) -> usize {
                self.matrix().nrows()
            }
            /// Which triangle.
            pub fn triangle(&self) -> Triangle {
                self.matrix().triangle()
            }
            /// What the diagonal holds.
            pub fn diagonal(&self) -> Diagonal {
                self.matrix().diagonal()
            }
        }
    };
}
for_each_plan!(any_plan);

impl<T: Real> AnyPlan<T> {
    /// Analyses the triangle by the plan that [`choose`] names, and returns the reason. Never fails: the serial plan
    /// takes what no other plan does.
    pub fn auto(matrix: &Arc<Triangular<T>>, systems: Systems, profile: &Profile, reuse: usize) -> (Self, String) {
        let fits_one_core = serial_bytes(matrix) < profile.triangles.alone;
        match (!fits_one_core).then(|| grid(matrix, systems, profile)).flatten() {
            Some((plan, why)) => (Self::Sweep(plan), why),
            None => Self::general(matrix, systems, profile, reuse),
        }
    }

    /// As [`AnyPlan::auto`], without the plan for grids. For a device that has no schedule for this grid.
    pub fn general(matrix: &Arc<Triangular<T>>, systems: Systems, profile: &Profile, reuse: usize) -> (Self, String) {
        let costs = &profile.triangles;
        let (n, nnz) = (matrix.nrows(), matrix.csr().nnz());
        let serial = || Self::Serial(Serial::new(Arc::clone(matrix), systems));
        let bytes = serial_bytes(matrix);
        if bytes < costs.alone {
            return (serial(), format!("{nnz} entries in {n} rows are {bytes} bytes, too few for a second core"));
        }
        let without_levels = |why: String| match (&costs.waits, Capellini::analyze(Arc::clone(matrix), systems)) {
            (Some(_), Ok(plan)) => (Self::Capellini(plan), format!("{why}; one thread per row needs no analysis")),
            _ => (serial(), why),
        };
        if reuse < costs.paid_back {
            let numbers = format!("{reuse} solves do not pay an analysis of {nnz} entries back");
            return without_levels(format!("no grid for a sweep, and {numbers}"));
        }
        if let Ok(Some(latency)) = Latency::in_question(&View::of(matrix), costs)
            && latency.threads < latency.level_sets
        {
            let Latency { rows, level_sets, threads } = latency;
            let expected = format!("{threads:.0} us are expected for {rows} rows, and {level_sets:.0} by level sets");
            return without_levels(format!("no grid for a sweep; {nnz} entries in {n} rows, {expected}"));
        }
        let (plan, levels) = match analyzed(matrix, systems, profile) {
            Ok(found) => found,
            Err(error) => return without_levels(format!("no grid for a sweep, and no levels either: {error}")),
        };
        let each = nnz / levels.max(1);
        let numbers =
            format!("no grid for a sweep; {n} rows and {nnz} entries in {levels} levels, {each} entries per level");
        if each < costs.shared_level {
            return (serial(), format!("{numbers}, too few to share"));
        }
        (Self::Levelset(plan), format!("{numbers}, solved {reuse} times"))
    }
}

/// Returns true if, once the analysis is paid for, level sets should solve these unstructured triangles faster than one
/// thread per row (docs/adr/0033). Always true for a device whose rows do not wait for each other.
pub fn by_levels<'a, T: Real>(triangles: impl IntoIterator<Item = &'a Triangular<T>>, profile: &Profile) -> bool {
    let costs = &profile.triangles;
    let triangles: Vec<&Triangular<T>> = triangles.into_iter().collect();
    let latencies: Vec<_> =
        triangles.into_par_iter().map(|matrix| Latency::in_question(&View::of(matrix), costs)).collect();
    let (mut level_sets, mut threads) = (0.0, 0.0);
    // Skip an error: it means that level sets have more places than they can count.
    for latency in latencies.into_iter().flatten() {
        let Some(latency) = latency else { return true };
        level_sets += latency.level_sets;
        threads += latency.threads;
    }
    level_sets <= threads
}

/// The plan that is expected to solve a triangle fastest on a device, `reuse` times after one analysis.
pub fn choose<T: Real>(matrix: &Arc<Triangular<T>>, profile: &Profile, reuse: usize) -> Choice {
    let (plan, why) = AnyPlan::auto(matrix, Systems::Plain, profile, reuse);
    Choice { plan: plan.name(), why }
}

/// Returns the sweep if the triangle is a grid of more than one line, unless so much of its stencil is absent that it
/// does not pay.
fn grid<T: Real>(matrix: &Arc<Triangular<T>>, systems: Systems, profile: &Profile) -> Option<(Sweep<T>, String)> {
    let plan = Sweep::paying(matrix, systems, profile)?;
    let lattice = Arc::clone(plan.lattice());
    let ([x, y, z], points) = (lattice.size(), lattice.offsets().len());
    if y * z < 2 {
        return None;
    }
    let whole = if lattice.is_whole() { "every" } else { "not every" };
    let levels = lattice.levels();
    let why = match lattice.unknowns() {
        1 => format!(
            "a {x} x {y} x {z} grid with {points} neighbours before each point, {whole} row whole, {levels} levels"
        ),
        b => format!(
            "a {} x {y} x {z} grid of {b} unknowns per point, with {points} coupled places before each row, {levels} levels",
            x / b
        ),
    };
    Some((plan, why))
}

fn analyzed<T: Real>(matrix: &Arc<Triangular<T>>, systems: Systems, profile: &Profile) -> Result<(Levelset<T>, usize)> {
    let plan = Levelset::analyze_for(Arc::clone(matrix), systems, profile)?;
    let levels = plan.schedule(System::Plain)?.levels();
    Ok((plan, levels))
}

/// Bytes that a serial solve moves.
fn serial_bytes<T: Real>(matrix: &Triangular<T>) -> u64 {
    let (n, inv) = (matrix.nrows(), matrix.inv_diag().len());
    (4 * (n + 1) + (4 + T::BYTES) * matrix.csr().nnz() + T::BYTES * (inv + 2 * n)) as u64
}
