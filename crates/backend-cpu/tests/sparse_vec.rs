//! Level 1 with sparse vectors, against the same operations written out.

use spandrel_backend::{Backend, Coeff, Load, SparseVector};
use spandrel_backend_cpu::{Cpu, Simd};
use spandrel_formats::{Real, SparseVec};
use std::sync::Arc;

fn case<T: Real>(n: usize, every: usize) -> (SparseVec<T>, Vec<T>) {
    let indices: Vec<u32> = (0..n as u32).filter(|i| ((i * 7 + 3) as usize).is_multiple_of(every)).collect();
    let values = indices.iter().map(|&i| T::from_f64(f64::from(i % 113) / 56.0 - 1.0)).collect();
    let y = (0..n).map(|i| T::from_f64((i % 91) as f64 / 45.0 - 1.0)).collect();
    (SparseVec::new(n, indices, values).unwrap(), y)
}

fn run<T: Real>(be: &Cpu) {
    for (n, every) in [(0, 1), (1, 1), (50, 60), (1000, 3), (5000, 1), (400_000, 2)] {
        let (host, y) = case::<T>(n, every);
        let s = be.load(Arc::new(host.clone())).unwrap();
        let a = T::from_f64(-0.7);
        let mut v = be.upload(&y).unwrap();
        be.sparse_axpy(None, Coeff::host(a), &s, &mut v).unwrap();
        let mut expected = y.clone();
        host.axpy(a, &mut expected).unwrap();
        assert_eq!(be.download(&v).unwrap(), expected, "axpy, n = {n}");

        // The dot product has the tree of the packed vectors.
        let packed: Vec<T> = host.indices().iter().map(|&i| y[i as usize]).collect();
        let (mut found, mut expected) = (be.scalar(T::nan()).unwrap(), be.scalar(T::nan()).unwrap());
        be.sparse_dot(None, &s, &be.upload(&y).unwrap(), &mut found).unwrap();
        be.dot(None, &be.upload(host.values()).unwrap(), &be.upload(&packed).unwrap(), &mut expected).unwrap();
        assert_eq!(be.download_scalar(&found).unwrap(), be.download_scalar(&expected).unwrap(), "dot, n = {n}");

        let mut taken = s.clone();
        be.gather(None, &be.upload(&y).unwrap(), &mut taken).unwrap();
        assert_eq!(be.download_sparse(&taken).unwrap(), packed, "gather, n = {n}");
        assert_eq!(be.download_sparse(&s).unwrap(), host.values(), "the original keeps its values");

        let mut v = be.upload(&y).unwrap();
        be.scatter(None, &s, &mut v).unwrap();
        let mut expected = y.clone();
        host.scatter(&mut expected).unwrap();
        assert_eq!(be.download(&v).unwrap(), expected, "scatter, n = {n}");
    }
}

#[test]
fn sparse_vectors_on_any_threads_and_instructions() {
    for threads in 1..=3 {
        for simd in Simd::available() {
            let be = Cpu::with_threads(threads).unwrap().with_simd(simd);
            run::<f32>(&be);
            run::<f64>(&be);
        }
    }
}
