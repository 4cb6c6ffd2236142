//! The threads that run the tasks of a host operation: rayon's, or those of a backend. Also what the tasks take and
//! leave.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::Result;

/// Threads that run numbered tasks. The results of the operations of this crate never depend on which thread runs which
/// task.
pub trait Team: Sync {
    /// Number of threads. It decides into how many tasks the work is cut.
    fn threads(&self) -> usize;

    /// Calls `work` once for each number below `tasks`, in any order and on any threads, and returns after the last
    /// call.
    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync));
}

/// The threads of rayon's pool in which the call happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct RayonTeam;

impl Team for RayonTeam {
    fn threads(&self) -> usize {
        rayon::current_num_threads()
    }

    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        match tasks {
            1 => work(0),
            _ => (0..tasks).into_par_iter().with_max_len(1).for_each(work),
        }
    }
}

/// A place per task, from which the task takes what it works on or into which it puts what it found.
pub(crate) struct Rooms<E>(Vec<Mutex<Option<E>>>);

impl<E> Rooms<E> {
    pub(crate) fn new(all: Vec<E>) -> Self {
        Self(all.into_iter().map(|one| Mutex::new(Some(one))).collect())
    }

    pub(crate) fn empty(len: usize) -> Self {
        Self((0..len).map(|_| Mutex::new(None)).collect())
    }

    /// `None` if it was taken before.
    pub(crate) fn take(&self, task: usize) -> Option<E> {
        self.0[task].lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, task: usize, one: E) {
        *self.0[task].lock().unwrap_or_else(PoisonError::into_inner) = Some(one);
    }

    pub(crate) fn into_all(self) -> impl Iterator<Item = E> {
        self.0.into_iter().filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Scratch memory of tasks: as many pieces as tasks run at the same time.
pub(crate) struct Pool<E>(Mutex<Vec<E>>);

impl<E> Default for Pool<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E> Pool<E> {
    /// Calls `work` with a piece that was made or used before.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<E>,
        work: impl FnOnce(&mut E) -> Result<R>,
    ) -> Result<R> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut piece = match free {
            Some(piece) => piece,
            None => make()?,
        };
        let found = work(&mut piece)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
        Ok(found)
    }
}
