//! The synchronization-free plan on the CPU: by columns with atomic sums, by rows with one mark per row.
//!
//! By columns: workers draw runs of columns in order. The worker that has solved x_j adds -t_ij x_j to the sum of each
//! row i that needs it, by compare and exchange, and then adds one to row i's counter of terms. Row i waits for that
//! counter. The worker that solves row i clears both. A worker that is left by itself adds without atomics. Progress:
//! that of [`crate::turns`].
//! Order: none by columns. [`spandrel_sptrsv::serial`]'s by rows, and if a solve moves so few bytes that it stays
//! serial.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Load, Order, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Syncfree, System, View, Walk};

use crate::Cpu;
use crate::marks::{Marks, RUN};
use crate::serial::solve_in_order;
use crate::sptrsv::Solve;
use crate::threads::Shared;
use crate::turns::{Patience, Turns};
use crate::vector::out_of_memory;

/// A plan, shared with the host, with its marks or sums.
#[derive(Debug)]
pub struct CpuSyncfree<T> {
    plan: Arc<Syncfree<T>>,
    marks: Marks,
    /// Sums that no solve is using.
    idle: Mutex<Vec<Sums>>,
}

/// The sums of the rows; all 0 between solves, and empty before the first.
#[derive(Debug, Default)]
struct Sums {
    /// Number of entries of each row off the diagonal, for the plain and for the transposed system.
    degrees: [Vec<u32>; 2],
    arrivals: Vec<AtomicU32>,
    /// The sums as bits.
    sums: Vec<AtomicU64>,
}

impl Sums {
    fn make_room(&mut self, n: usize) -> Result<()> {
        let refused = |_| out_of_memory::<[u64; 2]>(n, "sums of terms that have come");
        if self.sums.len() < n {
            self.sums.try_reserve_exact(n).map_err(refused)?;
            self.arrivals.try_reserve_exact(n).map_err(refused)?;
            self.sums.resize_with(n, AtomicU64::default);
            self.arrivals.resize_with(n, AtomicU32::default);
        }
        Ok(())
    }
}

// SAFETY: a loaded object changes only by `update`. Operations with it write only to their operands and to marks and
// sums whose address no recorded step holds.
unsafe impl<T: Real> Load<Syncfree<T>> for Cpu {
    type Resident = CpuSyncfree<T>;

    fn load(&self, host: Arc<Syncfree<T>>) -> Result<CpuSyncfree<T>> {
        Ok(CpuSyncfree { plan: host, marks: Marks::new(1), idle: Mutex::default() })
    }
}

impl<T: Real> Solve<Syncfree<T>> for CpuSyncfree<T> {
    fn plan(&self) -> &Arc<Syncfree<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Syncfree<T>>) {
        self.plan = Arc::clone(plan);
    }
    fn order(&self) -> Order {
        match self.plan.walk() {
            Walk::Columns => Order::Unordered,
            Walk::Rows => Order::Stored,
        }
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let (rows, bytes) = (self.plan.rows(system)?, self.plan.sptrsv_bytes());
        if self.plan.walk() == Walk::Rows {
            return self.marks.solve(cpu, &rows, bytes, b, x);
        }
        if cpu.threads().tasks(usize::try_from(bytes).unwrap_or(usize::MAX)) == 1 {
            solve_in_order(cpu.simd(), &rows, b, x);
            return Ok(());
        }
        let mut own = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        own.make_room(x.len())?;
        let which = usize::from(system == System::Transposed);
        if own.degrees[which].is_empty() {
            own.degrees[which] = self.plan.degrees(system)?;
        }
        let Sums { degrees, arrivals, sums } = &own;
        solve_columns(cpu, &rows, &self.plan.columns(system)?, bytes, &degrees[which], arrivals, sums, b, x);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        Ok(())
    }
}

fn solve_columns<T: Real>(
    cpu: &Cpu,
    rows: &View<'_, T>,
    columns: &View<'_, T>,
    bytes: u64,
    degrees: &[u32],
    arrivals: &[AtomicU32],
    sums: &[AtomicU64],
    b: Option<&[T]>,
    x: &mut [T],
) {
    let n = x.len();
    let x = Shared::new(x);
    let work = |range: Range<usize>, patience: &mut Patience<'_>| {
        let (end, alone) = (range.end, patience.is_alone());
        for k in range {
            let j = rows.row(k);
            // SAFETY: column j belongs to this worker, and so does x_j.
            let at = unsafe { x.at(j) };
            let mut s = b.map_or(*at, |b| b[j]);
            if degrees[j] > 0 {
                if patience.wait(|| arrivals[j].load(Ordering::Acquire), |&count| count == degrees[j]).is_none() {
                    return k;
                }
                s += value(sums[j].load(Ordering::Relaxed));
                // Every term has come, so nobody else touches these before the next solve, which the lock orders.
                arrivals[j].store(0, Ordering::Relaxed);
                sums[j].store(0, Ordering::Relaxed);
            }
            *at = rows.inv_diag.get(j).map_or(s, |&inv| s * inv);
            for e in columns.ptr[j] as usize..columns.ptr[j + 1] as usize {
                let i = columns.idx[e] as usize;
                if i != j {
                    let t = columns.values[columns.from.map_or(e, |from| from[e] as usize)];
                    let term = -(t * *at);
                    let add = |sum| bits(value::<T>(sum) + term);
                    if alone {
                        // Nobody adds in between.
                        sums[i].store(add(sums[i].load(Ordering::Relaxed)), Ordering::Relaxed);
                        arrivals[i].store(arrivals[i].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    } else {
                        // The closure never returns `None`, so this cannot fail.
                        let _ = sums[i].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(add(sum)));
                        arrivals[i].fetch_add(1, Ordering::Release);
                    }
                }
            }
        }
        end
    };
    Turns::new(n, RUN, bytes).run(cpu.threads(), cpu.threads().count(), work);
}

/// Converts between a value and the word that holds its bits.
fn value<T: Real>(word: u64) -> T {
    bytemuck::pod_read_unaligned(&word.to_ne_bytes()[..T::BYTES])
}
fn bits<T: Real>(value: T) -> u64 {
    let mut word = [0; 8];
    word[..T::BYTES].copy_from_slice(bytemuck::bytes_of(&value));
    u64::from_ne_bytes(word)
}
