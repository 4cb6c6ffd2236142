//! A repeated solve allocates no memory, neither on the device nor on the host.

mod problems;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use problems::{stencil, uneven};
use spandrel_backend::{Backend, Mat};
use spandrel_backend_cpu::Cpu;
use spandrel_solvers::{BiCgStab, Cg, Jacobi, Options};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above, for a pointer that `alloc` had from the same allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_repeated_solve_allocates_nothing() {
    let be = Cpu::with_threads(1).unwrap();
    let csr = stencil::<f64>(64, 0.0);
    let n = 4096;
    let a = Mat::load(&be, csr.clone()).unwrap();
    let jacobi = Jacobi::new(&be, &csr).unwrap();
    let b = be.upload(&uneven::<f64>(n)).unwrap();
    let options = Options { history: false, ..Options::default() };
    let mut cg = Cg::new(&be, n).unwrap();
    let mut bicgstab = BiCgStab::new(&be, n).unwrap();
    let mut x = Backend::<f64>::zeros(&be, n).unwrap();
    let mut taken = Vec::new();
    for _ in 0..3 {
        be.fill(None, 0.0, &mut x).unwrap();
        let before = BYTES.load(Ordering::Relaxed);
        assert!(cg.solve(&be, &a, &jacobi, &b, &mut x, &options).unwrap().status.is_converged());
        be.fill(None, 0.0, &mut x).unwrap();
        assert!(bicgstab.solve(&be, &a, &jacobi, &b, &mut x, &options).unwrap().status.is_converged());
        taken.push(BYTES.load(Ordering::Relaxed) - before);
    }
    assert!(taken[0] > 3 * 8 * n, "the first solve has its vectors of n to take: {taken:?}");
    assert_eq!(taken[1..], [0, 0]);
}
