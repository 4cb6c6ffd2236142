//! An array of a matrix: a `Vec` of its own, or memory that someone else owns and that is read in place.
//!
//! Another owner is a memory-mapped file or an array of another language. A matrix over its memory costs no copy.
//! Writing copies it first, so the owner's memory never changes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rayon::prelude::*;

/// An array of a matrix: a `Vec`, or a slice that another owner keeps.
///
/// ```
/// use std::sync::Arc;
/// use spandrel_formats::{Array, Csr};
///
/// let mapped: Arc<[f64]> = Arc::from([2.0, 3.0]); // stands for memory of another owner
/// let values = Array::shared(Arc::clone(&mapped));
/// let a = Csr::from_arrays(2, 2, vec![0, 1, 2].into(), vec![0, 1].into(), values)?;
/// assert!(std::ptr::eq(a.values(), &*mapped)); // nothing was copied
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
pub struct Array<E>(Kept<E>);

enum Kept<E> {
    Own(Vec<E>),
    Shared(Shared<E>),
}

/// A slice inside `owner`, which keeps it in place.
struct Shared<E> {
    slice: *const [E],
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: `slice` is a shared borrow of what `owner` holds. The owner is `Send + Sync`, and a borrow of elements that
// are `Sync` may be used from any thread.
unsafe impl<E: Sync> Send for Shared<E> {}
// SAFETY: as above.
unsafe impl<E: Sync> Sync for Shared<E> {}
// The owner is only held and dropped, so no panic elsewhere can leave it half changed.
impl<E: std::panic::RefUnwindSafe> std::panic::UnwindSafe for Shared<E> {}
impl<E: std::panic::RefUnwindSafe> std::panic::RefUnwindSafe for Shared<E> {}

impl<E: Copy + 'static> Array<E> {
    /// Takes a slice over from its owner, which lives as long as the array and its clones. Copies nothing.
    pub fn shared(owner: impl AsRef<[E]> + Send + Sync + 'static) -> Self {
        let owner = Arc::new(owner);
        let slice: *const [E] = (*owner).as_ref();
        Self(Kept::Shared(Shared { slice, owner }))
    }

    /// Returns the elements as a `Vec`. Copies them if another owner has them.
    pub fn into_vec(self) -> Vec<E> {
        match self.0 {
            Kept::Own(own) => own,
            Kept::Shared(shared) => shared.to_vec(),
        }
    }

    /// Returns true if another owner has the elements.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Kept::Shared(_))
    }

    /// The elements, for writing in place. Copies them first if another owner has them.
    pub fn to_mut(&mut self) -> &mut [E] {
        if let Kept::Shared(shared) = &self.0 {
            self.0 = Kept::Own(shared.to_vec());
        }
        match &mut self.0 {
            Kept::Own(own) => own,
            Kept::Shared(_) => &mut [], // was replaced above
        }
    }
}

impl<E: Copy + Send + Sync + 'static> Array<E> {
    /// Shares the elements with every later clone. Copies nothing.
    pub fn share(&mut self) {
        if let Kept::Own(own) = &mut self.0 {
            *self = Self::shared(std::mem::take(own));
        }
    }

    /// As [`Clone`], but copies in parallel.
    pub(crate) fn copied(&self) -> Self {
        match &self.0 {
            Kept::Own(own) => own.par_iter().copied().collect::<Vec<E>>().into(),
            Kept::Shared(_) => self.clone(),
        }
    }
}

impl<E> Deref for Shared<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        // SAFETY: `shared` took the slice from the owner behind the `Arc`. Nobody has a mutable borrow of that owner,
        // and nobody moves or drops it before the last `Arc`.
        unsafe { &*self.slice }
    }
}

impl<E> Deref for Array<E> {
    type Target = [E];
    #[inline]
    fn deref(&self) -> &[E] {
        match &self.0 {
            Kept::Own(own) => own,
            Kept::Shared(shared) => shared,
        }
    }
}

impl<E> From<Vec<E>> for Array<E> {
    fn from(own: Vec<E>) -> Self {
        Self(Kept::Own(own))
    }
}

/// Copies a `Vec`, and shares what another owner has.
impl<E: Clone> Clone for Array<E> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Kept::Own(own) => Kept::Own(own.clone()),
            Kept::Shared(Shared { slice, owner }) => Kept::Shared(Shared { slice: *slice, owner: Arc::clone(owner) }),
        })
    }
}

impl<E: fmt::Debug> fmt::Debug for Array<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<E: PartialEq> PartialEq for Array<E> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// An owner that counts how often it was dropped.
    struct Owner(Vec<f64>, Arc<AtomicUsize>);
    impl AsRef<[f64]> for Owner {
        fn as_ref(&self) -> &[f64] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_owner_lives_as_long_as_the_last_clone() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let array = Array::shared(Owner(vec![1.0, 2.0], Arc::clone(&dropped)));
        let clone = array.clone();
        assert!(array.is_shared() && std::ptr::eq(&*array, &*clone));
        drop(array);
        assert_eq!((dropped.load(Ordering::Relaxed), &*clone), (0, &[1.0, 2.0][..]));
        let clone = std::thread::spawn(move || clone).join().unwrap();
        assert_eq!(clone.into_vec(), [1.0, 2.0]);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn writing_copies_what_another_owner_has() {
        let kept: Arc<[f64]> = Arc::from([1.0, 2.0]);
        let mut array = Array::shared(Arc::clone(&kept));
        array.to_mut()[0] = 5.0;
        assert_eq!((&*array, &*kept, array.is_shared()), (&[5.0, 2.0][..], &[1.0, 2.0][..], false));
        let own = vec![1.0, 2.0];
        let place = own.as_ptr();
        let mut array = Array::from(own);
        array.to_mut()[1] = 3.0;
        let own = array.into_vec();
        assert_eq!((own.as_ptr(), own), (place, vec![1.0, 3.0]));
    }

    #[test]
    fn clones_of_a_shared_vec_read_the_same_memory() {
        let own = vec![1u32, 2, 3];
        let at = own.as_ptr();
        let mut array = Array::from(own);
        assert_ne!(array.copied().as_ptr(), at, "a copy of a vec");
        array.share();
        assert!(array.is_shared());
        assert_eq!([array.as_ptr(), array.clone().as_ptr(), array.copied().as_ptr()], [at; 3]);
        array.share();
        assert_eq!(array.as_ptr(), at, "shared twice");
        let mut other = array.clone();
        other.to_mut()[0] = 7;
        assert_eq!((&*array, &*other), (&[1, 2, 3][..], &[7, 2, 3][..]));
    }

    #[test]
    fn an_empty_array_may_be_shared() {
        let mut array = Array::<f32>::shared(Vec::new());
        assert!(array.is_empty() && array.to_mut().is_empty());
    }
}
