//! Memory that is not available is a typed error, not an abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spandrel_backend::{Backend, Coeff, Error, Load, Result, Spmv, SpmvTransposed};
use spandrel_backend_cpu::{Cpu, Vector};
use spandrel_formats::{Coo, Csc, Csr, Format, SparseVec};

/// Refuses requests of at least [`LIMIT`] bytes.
struct Limited;

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: a request is passed on unchanged or refused with null, as an allocator may.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LIMIT.load(Ordering::Relaxed) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above, for a pointer that `alloc` had from the same allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static LIMITED: Limited = Limited;

/// `work` with at most 100,000 bytes at a time.
#[track_caller]
fn short_of_memory<R: std::fmt::Debug>(work: impl FnOnce() -> Result<R>) {
    LIMIT.store(100_000, Ordering::Relaxed);
    let found = work();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    assert!(matches!(found, Err(Error::OutOfMemory { device: "cpu", bytes: 100_000.., .. })), "{found:?}");
}

// One test: the limit holds for the whole process.
#[test]
fn each_of_them() {
    let be = Cpu::with_threads(2).unwrap();
    let n = 1 << 19;
    let identity = Csr::<f64>::new(n, n, (0..=n as u32).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
    let (x, mut y): (Vector<f64>, Vector<f64>) = (be.zeros(n).unwrap(), be.zeros(n).unwrap());
    let csc = Arc::new(Csc::from_csr(&identity).unwrap());
    let coo = Arc::new(Coo::from_csr(&identity).unwrap());
    let csr = be.load(Arc::new(identity)).unwrap();
    let sparse = Arc::new(SparseVec::new(n, (0..n as u32).collect(), vec![1.0; n]).unwrap());

    short_of_memory(|| Backend::<f64>::zeros(&be, n));
    short_of_memory(|| be.download(&x));
    short_of_memory(|| Load::<Csc<f64>>::load(&be, Arc::clone(&csc)));
    short_of_memory(|| Load::<Coo<f64>>::load(&be, Arc::clone(&coo)));
    short_of_memory(|| Load::<SparseVec<f64>>::load(&be, Arc::clone(&sparse)));
    // First the plan at the first use, then the accumulators. Each is allocated once there is memory.
    let mut transposed =
        |b: f64| SpmvTransposed::<Csr<f64>>::spmv_transposed(&be, None, Coeff::one(), &csr, &x, Coeff::host(b), &mut y);
    short_of_memory(|| transposed(0.0));
    transposed(0.0).unwrap();
    short_of_memory(|| transposed(1.0));
    transposed(1.0).unwrap();
    let csc = be.load(csc).unwrap();
    Spmv::<Csc<f64>>::spmv(&be, None, Coeff::one(), &csc, &x, Coeff::one(), &mut y).unwrap();
}
