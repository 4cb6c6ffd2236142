//! The scratch vectors of a preconditioner, one set per application in progress.
//!
//! Several threads may apply one preconditioner at the same time, each with its own set. No lock is held while a set is
//! in use, so an application that waits inside a thread pool cannot deadlock there. The set that is returned last is
//! lent first. So if one thread uses a preconditioner, every application gets the same set, and recorded steps find
//! their addresses again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Sets that are not in use.
pub(crate) struct Pool<S> {
    idle: Mutex<Vec<S>>,
}

impl<S> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl<S> Pool<S> {
    pub(crate) fn new(first: S) -> Self {
        Self { idle: Mutex::new(vec![first]) }
    }

    /// Lends a set until the guard is dropped; makes one if all are in use.
    pub(crate) fn lend<E>(&self, make: impl FnOnce() -> Result<S, E>) -> Result<Lent<'_, S>, E> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let set = match idle {
            Some(set) => set,
            None => make()?,
        };
        Ok(Lent { pool: self, set: Some(set) })
    }
}

/// A set in use. It is also returned if the application panics, because a captured graph may have its addresses.
pub(crate) struct Lent<'p, S> {
    pool: &'p Pool<S>,
    /// `None` only while it is being dropped.
    set: Option<S>,
}

impl<S> Deref for Lent<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.set.as_ref().expect("a set is given back by `drop`")
    }
}

impl<S> DerefMut for Lent<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.set.as_mut().expect("a set is given back by `drop`")
    }
}

impl<S> Drop for Lent<'_, S> {
    fn drop(&mut self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.set.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_lent_to_one_at_a_time_and_used_again() {
        let pool = Pool::new(1);
        let fresh = |n| move || Ok::<_, ()>(n);
        {
            let mut one = pool.lend(fresh(2)).unwrap();
            let two = pool.lend(fresh(2)).unwrap();
            assert_eq!((*one, *two), (1, 2));
            *one += 10;
            assert!(pool.lend(|| Err(())).is_err());
        }
        // One after the other gets the same set.
        let first = *pool.lend(fresh(3)).unwrap();
        assert_eq!(first, *pool.lend(fresh(3)).unwrap());
        assert_eq!(first, 11);
    }

    #[test]
    fn a_panic_gives_the_set_back() {
        let pool = Pool::new(7);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lent = pool.lend(|| Err::<i32, ()>(()));
            panic!("an application fails");
        }));
        assert!(failed.is_err());
        assert_eq!(*pool.lend(|| Err(())).unwrap(), 7);
    }
}
