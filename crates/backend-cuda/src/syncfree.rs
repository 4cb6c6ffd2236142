//! The synchronization-free plan on the GPU: by columns with one warp per column and atomics, or by rows with more
//! lanes for longer rows.
//!
//! Order: by columns none. By rows with n lanes, lane l takes the places l, l + n, ... of a row's walk towards the
//! diagonal, lane 0 begins with b, then a halving tree. Kernels: kernels/syncfree.cu.

use std::sync::Arc;

use spandrel_backend::{Error, Load, Order, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Syncfree, System, Walk};

use crate::kernel::{Entry, kernels};
use crate::memory::{Address, Buffer};
use crate::sptrsv::{CountsSolves, Progress, Solve, SolveRows, TriangleRows, TriangleRowsArg};
use crate::{Cuda, Vector};

kernels! {
    struct SptrsvColumnsSyncfree {
        m: TriangleRowsArg, deep: u32, degrees: Address, arrivals: Address, sums: Address, progress: Address,
        b: Address, x: Address, gate: Address,
    }
    in SYNCFREE { ENTRY: "sptrsv_columns_syncfree" }
}

/// A plan in device memory.
#[derive(Debug)]
pub struct CudaSyncfree<T> {
    /// Columns instead of rows, in the plan by columns.
    rows: TriangleRows<T>,
    progress: Progress,
    by: By<T>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one for each plan
enum By<T> {
    Columns {
        /// The number of entries off the diagonal of each row, for the plain and for the transposed system.
        degrees: [Option<Buffer<u32>>; 2],
        /// The number of terms that have reached each row, and their sum; 0 between solves.
        arrivals: Buffer<u32>,
        sums: Buffer<T>,
    },
    Rows(Lanes),
}

/// The number of lanes per row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lanes(u32);

impl Lanes {
    /// The mean number of entries off the diagonal, from 2 to 32.
    fn of(nrows: usize, entries: usize) -> Self {
        Self((entries.div_ceil(nrows.max(1)).clamp(2, 32) as u32).next_power_of_two())
    }
    fn kernel(self) -> Entry<SolveRows> {
        match self.0 {
            2 => SolveRows::LANES_2,
            4 => SolveRows::LANES_4,
            8 => SolveRows::LANES_8,
            16 => SolveRows::LANES_16,
            _ => SolveRows::LANES_32,
        }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Syncfree<T>> for Cuda {
    type Resident = CudaSyncfree<T>;

    fn load(&self, host: Arc<Syncfree<T>>) -> Result<CudaSyncfree<T>> {
        let (n, stream) = (host.nrows(), self.stream());
        Ok(match host.walk() {
            Walk::Columns => {
                let degrees = |system: System| {
                    let wanted = host.systems().hold(system);
                    wanted
                        .then(|| Buffer::from_host(stream, &host.degrees(system)?, "a triangle's degrees"))
                        .transpose()
                };
                CudaSyncfree {
                    rows: TriangleRows::load(self, &*host, |system| host.columns(system))?,
                    progress: Progress::new::<T>(self, 0)?,
                    by: By::Columns {
                        degrees: [degrees(System::Plain)?, degrees(System::Transposed)?],
                        arrivals: Buffer::zeros(stream, n, "terms that have come")?,
                        sums: Buffer::zeros(stream, n, "sums of terms that have come")?,
                    },
                }
            }
            Walk::Rows => {
                let view = host.rows(System::Plain)?;
                let entries = (0..n).map(|i| view.degree(i) as usize).sum();
                CudaSyncfree {
                    rows: TriangleRows::load(self, &*host, |system| host.rows(system))?,
                    progress: Progress::new::<T>(self, n)?,
                    by: By::Rows(Lanes::of(n, entries)),
                }
            }
        })
    }
}

impl<T: Real> CountsSolves for CudaSyncfree<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        self.progress.pretend(solves)
    }
}

impl<T: Real> Solve<Syncfree<T>> for CudaSyncfree<T> {
    fn shape(&self) -> (usize, usize) {
        self.rows.shape()
    }
    fn order(&self, _system: System) -> Order {
        match self.by {
            By::Columns { .. } => Order::Unordered,
            By::Rows(lanes) => Order::LaneTree(lanes.0),
        }
    }
    fn replace(&mut self, plan: &Syncfree<T>) -> Result<()> {
        match self.by {
            By::Columns { .. } => self.rows.replace(|system| plan.columns(system)),
            By::Rows(_) => self.rows.replace(|system| plan.rows(system)),
        }
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Syncfree<T>, values: &Vector<T>) -> Result<()> {
        match self.by {
            By::Columns { .. } => self.rows.adopt(cuda, plan, values, |system| plan.columns(system)),
            By::Rows(_) => self.rows.adopt(cuda, plan, values, |system| plan.rows(system)),
        }
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let (m, progress, n) = (self.rows.arg(system)?, self.progress.pointer(), self.rows.shape().0);
        match &self.by {
            By::Columns { degrees, arrivals, sums } => {
                let degrees = degrees[usize::from(system == System::Transposed)].as_ref();
                let degrees = degrees.ok_or(Error::Triangle(spandrel_sptrsv::Error::NotAnalyzed))?.pointer();
                let (arrivals, sums, (grid, deep)) = (arrivals.pointer(), sums.pointer(), cuda.solve_grid(n, 32));
                let parameters = SptrsvColumnsSyncfree { m, deep, degrees, arrivals, sums, progress, b, x, gate };
                // SAFETY: sptrsv_columns_syncfree(columns, deep, degrees, arrivals, sums, progress, b, x, gate), all of
                // nrows elements.
                unsafe { cuda.launch::<T, _>(SptrsvColumnsSyncfree::ENTRY, grid, &parameters) }
            }
            By::Rows(lanes) => {
                let (slots, (grid, deep)) = (self.progress.slots(), cuda.solve_grid(n, lanes.0 as usize));
                let parameters = SolveRows { m, deep, slots, progress, b, x, gate };
                // SAFETY: vectors of nrows elements and as many slots.
                unsafe { cuda.launch::<T, _>(lanes.kernel(), grid, &parameters) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_mean_length() {
        let found = [(0, 0), (10, 0), (10, 10), (10, 30), (10, 31), (10, 80), (10, 81), (10, 5000)];
        assert_eq!(found.map(|(n, entries)| Lanes::of(n, entries).0), [2, 2, 2, 4, 4, 8, 16, 32]);
    }
}
