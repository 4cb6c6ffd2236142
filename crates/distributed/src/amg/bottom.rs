//! The last grids of a cycle on ranks. Every rank has a full copy of them and continues there with the cycle of one
//! device.

use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Backend, Gate, Mat};
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{Amg, AmgBackend, AmgLevel, AmgOptions, Error, Result};

use super::grid::Level;
use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::exchange::{Exchange, Needed};
use crate::gathered::Gathered;
use crate::matrix::Local;
use crate::partition::Partition;

/// The cycle of the last grids, and what brings right-hand sides to every rank.
pub(super) struct Bottom<T: Real, B: Local<T> + AmgBackend<T>> {
    cycle: Amg<T, B>,
    /// `None` if there is only one rank.
    from_all: Option<FromAll<T, B>>,
}

/// Brings right-hand sides to every rank.
struct FromAll<T: Real, B: Local<T>> {
    exchange: Exchange<T, B>,
    /// The right-hand side and x, whole.
    work: Mutex<[<B as Backend<T>>::Vector; 2]>,
}

impl<T: Real, B: Local<T> + AmgBackend<T>> Bottom<T, B> {
    /// Brings a grid to every rank and sets up the cycle there. `grid` is its number, 0 the finest, which has `finest`
    /// rows. Waits for the other ranks.
    pub(super) fn new<C: Communicator>(
        be: &Distributed<B, C>,
        grid: usize,
        level: &Level<T>,
        finest: usize,
    ) -> Result<Self> {
        let (team, device, n) = (be.team(), be.device(), level.partition.len() as usize);
        let mut rows = Vec::new();
        for i in 0..level.rows.len() {
            let (cols, values) = level.rows.row(i);
            Gathered::write(level.rows.first() + i as u64, cols, values, &mut rows);
        }
        let mut gathered = Gathered::default();
        team.all_to_all(vec![rows; be.size()])?.iter().for_each(|message| gathered.read(message));
        let parts = team.all_to_all(vec![bytemuck::cast_slice(&level.near_null).to_vec(); be.size()])?;
        let mut near_null: Vec<T> = Vec::with_capacity(n * level.vectors);
        for c in 0..level.vectors {
            for part in &parts {
                let len = part.len() / level.vectors;
                let column = part[c * len..(c + 1) * len].chunks_exact(T::BYTES);
                near_null.extend(column.map(bytemuck::pod_read_unaligned::<T>));
            }
        }
        let made = || {
            let (_, a) = gathered.into_csr(n, &|column| Some(column as Ordinal))?;
            let options = AmgOptions { levels: level.options.levels - grid, ..level.options };
            let a = Mat::load(device, Arc::new(a))?;
            Amg::below(device, &a, &options, Some(&near_null), finest, &mut unobserved)
        };
        let cycle = be.together(made().map_err(|error: Error| error.below(grid)))?;
        Self::of(be, cycle, &level.partition)
    }

    /// Takes the cycle that every rank has made. `partition` says which rank has which rows of its first grid. Waits
    /// for the other ranks.
    pub(super) fn of<C: Communicator>(be: &Distributed<B, C>, cycle: Amg<T, B>, partition: &Partition) -> Result<Self> {
        let (team, device, n) = (be.team(), be.device(), partition.len() as usize);
        if be.size() == 1 {
            return Ok(Self { cycle, from_all: None });
        }
        let exchange = be.told(Exchange::new(device, team, partition, &Needed::Range(0..n as u64)))?;
        let zeros = || Backend::<T>::zeros(device, n);
        let work = be.together(zeros().and_then(|s| Ok([s, zeros()?])))?;
        Ok(Self { cycle, from_all: Some(FromAll { exchange, work: Mutex::new(work) }) })
    }

    /// Statistics of the grids.
    pub(super) fn levels(&self) -> &[AmgLevel] {
        self.cycle.levels()
    }

    /// Bytes of the matrices on this rank.
    pub(super) fn storage(&self) -> u64 {
        self.cycle.storage()
    }

    /// x <- one cycle of the last grids, applied to a right-hand side that is divided by the diagonal.
    pub(super) fn apply<C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        s: &Vector<T, B>,
        x: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        let (device, team) = (be.device(), be.team());
        let Some(FromAll { exchange, work }) = &self.from_all else {
            return be.told(self.cycle.apply_divided(device, gate, &s.part, &mut x.part));
        };
        let [whole, solved] = &mut *work.lock().unwrap_or_else(PoisonError::into_inner);
        if !be.told(exchange.gather(device, team, gate, &s.part, whole))? {
            return Ok(());
        }
        be.told(self.cycle.apply_divided(device, gate, whole, solved))?;
        be.told(exchange.scatter(device, gate, solved, &mut x.part))
    }
}
