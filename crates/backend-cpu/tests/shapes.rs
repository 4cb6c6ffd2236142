//! Every operation refuses operands whose lengths contradict each other, and leaves the outputs as they were.

use std::sync::Arc;

use spandrel_backend::{
    Backend, BicgstabHalf, BicgstabSteps, BicgstabUpdate, CgSteps, CgUpdate, Coeff, Device, Error, Load, Mat, Operator,
    Preconditioner, Result, SparseVector, Spmm, Spmv, SpmvTransposed, Watch, operator, preconditioner, trace,
};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{Bsrx, Csc, Csr, Dia, Ell, Format, SparseVec, Traffic, for_each_format};

const N: usize = 40;
const UNTOUCHED: f64 = 7.0;

fn cpu() -> Cpu {
    Cpu::with_threads(2).unwrap()
}

/// Of `len` elements, all [`UNTOUCHED`].
fn v(be: &Cpu, len: usize) -> Vector<f64> {
    be.upload(&vec![UNTOUCHED; len]).unwrap()
}

#[track_caller]
fn refused(found: Result<()>, op: &str, what: &str, len: usize) {
    match found {
        Err(Error::Shape { op: o, what: w, found, .. }) => assert_eq!((o, w, found), (op, what, len)),
        other => panic!("{op} with {what} of {len} elements: {other:?}"),
    }
}

#[track_caller]
fn untouched(outputs: &[&Vector<f64>]) {
    for output in outputs {
        assert!(output.as_slice().iter().all(|&v| v == UNTOUCHED), "{:?}", output.as_slice());
    }
}

fn bidiagonal(nrows: usize, ncols: usize) -> Csr<f64> {
    let (mut row_ptr, mut col_idx) = (vec![0u32], Vec::new());
    for i in 0..nrows {
        col_idx.extend((i..i + 2).filter(|&j| j < ncols).map(|j| j as u32));
        row_ptr.push(col_idx.len() as u32);
    }
    let values = vec![1.0; col_idx.len()];
    Csr::new(nrows, ncols, row_ptr, col_idx, values).unwrap()
}

#[test]
fn level_1_and_the_fused_steps() {
    let be = cpu();
    let full = v(&be, N);
    let two = Coeff::host(2.0);
    // Shorter and longer by one, far shorter and longer, empty.
    for len in [N - 1, N + 1, 0, 3, 5000] {
        let bad = v(&be, len);
        let (mut a, mut b, mut out) = (v(&be, N), v(&be, len), be.scalar(UNTOUCHED).unwrap());
        let mut second: Scalar<f64> = be.scalar(UNTOUCHED).unwrap();
        refused(be.write(&vec![0.0; len], &mut a), "write", "host", len);
        refused(be.copy(None, &full, &mut b), "copy", "y", len);
        refused(be.axpby(None, two, &full, two, &mut b), "axpby", "y", len);
        refused(be.axpby_chain(None, [two; 2], &full, &mut b, [two; 2], &mut a), "axpby_chain", "y", len);
        refused(be.axpby_chain(None, [two; 2], &full, &mut a, [two; 2], &mut b), "axpby_chain", "z", len);
        refused(be.axpbypcz(None, two, &full, two, &bad, two, &mut a), "axpbypcz", "y", len);
        refused(be.axpbypcz(None, two, &full, two, &full, two, &mut b), "axpbypcz", "z", len);
        refused(be.hadamard(None, &full, &bad, &mut a), "hadamard", "y", len);
        refused(be.hadamard(None, &full, &full, &mut b), "hadamard", "z", len);
        refused(be.dot(None, &full, &bad, &mut out), "dot", "y", len);
        let mut c = v(&be, N);
        let mut cg_update = |q, x: &mut _, r: &mut _, what| {
            let on = CgUpdate { alpha: two, p: &full, q, x, r, rr: &mut out };
            refused(be.cg_update(None, on), "cg_update", what, len);
        };
        cg_update(&bad, &mut a, &mut c, "q");
        cg_update(&full, &mut b, &mut c, "x");
        cg_update(&full, &mut a, &mut b, "r");
        let half = BicgstabHalf { alpha: two, v: &full, r: &mut b, ss: &mut out };
        refused(be.bicgstab_half(None, half), "bicgstab_half", "r", len);
        refused(be.hadamard_dot(None, &full, &bad, &mut a, &mut out), "hadamard_dot", "r", len);
        refused(be.hadamard_dot(None, &full, &full, &mut b, &mut out), "hadamard_dot", "z", len);
        let mut update = |t, shadow, s, x: &mut _, r: &mut _, what| {
            let (rr, rho) = (&mut out, &mut second);
            let on = BicgstabUpdate { alpha: two, p: &full, omega: two, s, t, shadow, x, r, rr, rho };
            refused(be.bicgstab_update(None, on), "bicgstab_update", what, len);
        };
        update(&bad, &full, None, &mut a, &mut c, "t");
        update(&full, &bad, None, &mut a, &mut c, "shadow");
        update(&full, &full, Some(&bad), &mut a, &mut c, "s");
        update(&full, &full, None, &mut b, &mut c, "x");
        update(&full, &full, None, &mut a, &mut b, "r");
        untouched(&[&a, &b, &c]);
        for scalar in [&out, &second] {
            assert_eq!(be.download_scalar(scalar).unwrap(), UNTOUCHED);
        }
        // A stopped monitor gates the work, not the check.
        let mut stopped = be.monitor(&Watch { threshold: 1.0, divergence: 1.0, max_iters: 1 }).unwrap();
        be.require_positive(&be.scalar(0.0).unwrap(), spandrel_backend::Quantity::Rho, &mut stopped).unwrap();
        refused(be.copy(Some(&stopped), &full, &mut b), "copy", "y", len);
    }
}

fn products<F: Format<Value = f64>>(be: &Cpu, csr: &Csr<f64>)
where
    Cpu: Spmv<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    let m = be.load(Arc::new(F::from_csr(csr).unwrap())).unwrap();
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let x = v(be, ncols);
    let one = Coeff::one();
    for b in [Coeff::zero(), Coeff::one()] {
        for len in [nrows - 1, nrows + 1, 0] {
            let mut y = v(be, len);
            refused(Spmv::<F>::spmv(be, None, one, &m, &x, b, &mut y), "spmv", "y", len);
            untouched(&[&y]);
        }
        for len in [ncols - 1, ncols + 1, 0] {
            let mut y = v(be, nrows);
            refused(Spmv::<F>::spmv(be, None, one, &m, &v(be, len), b, &mut y), "spmv", "x", len);
            untouched(&[&y]);
        }
    }
    // A default body names the operation that it had reached.
    let mut wy: Scalar<f64> = be.scalar(UNTOUCHED).unwrap();
    for (x, y, w) in [(ncols, nrows, nrows - 1), (ncols, nrows - 1, nrows), (ncols - 1, nrows, nrows)] {
        let (x, mut y, w) = (v(be, x), v(be, y), v(be, w));
        let found = Spmv::<F>::spmv_dot(be, None, &m, &x, &mut y, &w, &mut wy, None);
        assert!(matches!(found, Err(Error::Shape { .. })), "{found:?}");
        assert_eq!(be.download_scalar(&wy).unwrap(), UNTOUCHED);
    }
}

#[test]
fn the_product_of_every_format() {
    let be = cpu();
    macro_rules! every {
        ([] $(($noun:ident, $Format:ident)),*) => {$(
            for csr in [bidiagonal(N, N + 3), bidiagonal(N + 3, N)] {
                products::<spandrel_formats::$Format<f64>>(&be, &csr);
            }
        )*};
    }
    for_each_format!(every);
}

fn transposed<F: Format<Value = f64>>(be: &Cpu, csr: &Csr<f64>)
where
    Cpu: SpmvTransposed<F> + Backend<f64, Vector = Vector<f64>, Scalar = Scalar<f64>>,
{
    let m = be.load(Arc::new(F::from_csr(csr).unwrap())).unwrap();
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let op = "spmv_transposed";
    for b in [Coeff::zero(), Coeff::one()] {
        let mut y = v(be, ncols - 1);
        let x = v(be, nrows);
        refused(SpmvTransposed::<F>::spmv_transposed(be, None, Coeff::one(), &m, &x, b, &mut y), op, "y", ncols - 1);
        untouched(&[&y]);
        let (x, mut y) = (v(be, nrows - 1), v(be, ncols));
        refused(SpmvTransposed::<F>::spmv_transposed(be, None, Coeff::one(), &m, &x, b, &mut y), op, "x", nrows - 1);
        untouched(&[&y]);
    }
}

#[test]
fn transposed_products_name_themselves() {
    let be = cpu();
    // The larger is split between the threads.
    for n in [N, 60_000] {
        transposed::<Csr<f64>>(&be, &bidiagonal(n, n + 3));
        transposed::<Csc<f64>>(&be, &bidiagonal(n, n + 3));
        products::<Csc<f64>>(&be, &bidiagonal(n, n + 3));
        products::<Bsrx<f64>>(&be, &bidiagonal(n, n + 3));
    }
}

#[test]
fn sparse_vectors() {
    let be = cpu();
    let s = SparseVec::new(N, vec![0, 1, N as u32 - 1], vec![1.0, 2.0, 3.0]).unwrap();
    let mut s = be.load(Arc::new(s)).unwrap();
    for len in [0, N - 1, N + 1] {
        let (mut y, mut out): (_, Scalar<f64>) = (v(&be, len), be.scalar(UNTOUCHED).unwrap());
        refused(be.sparse_axpy(None, Coeff::one(), &s, &mut y), "sparse_axpy", "y", len);
        refused(be.sparse_dot(None, &s, &y, &mut out), "sparse_dot", "y", len);
        refused(be.gather(None, &y, &mut s), "gather", "y", len);
        refused(be.scatter(None, &s, &mut y), "scatter", "y", len);
        untouched(&[&y]);
        assert_eq!(be.download_sparse(&s).unwrap(), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_residual_is_checked_before_its_first_write() {
    let be = cpu();
    let m = Mat::<Cpu, Csr<f64>>::load(&be, bidiagonal(N, N + 3)).unwrap();
    let (b, x) = (v(&be, N), v(&be, N + 3));
    for len in [0, N - 1, N + 1] {
        let mut r = v(&be, len);
        refused(m.residual(&be, None, &b, &x, &mut r), "residual", "r", len);
        untouched(&[&r]);
        let mut r = v(&be, N);
        refused(m.residual(&be, None, &b, &v(&be, len), &mut r), "residual", "x", len);
        refused(m.residual(&be, None, &v(&be, len), &x, &mut r), "residual", "b", len);
        untouched(&[&r]);
    }
}

#[test]
fn columns_whose_size_overflows() {
    let be = cpu();
    let k = 1usize << 62;
    let empty = v(&be, 0);
    // 4 * 2^62 is 0 in 64 bits: the length of an empty Y.
    for (nrows, ncols, what) in [(4, 0, ["Y", "y"]), (0, 4, ["X", "x"])] {
        let host = Arc::new(bidiagonal(nrows, ncols));
        let m = Mat::<Cpu, Csr<f64>>::load(&be, Arc::clone(&host)).unwrap();
        let mut y = v(&be, 0);
        refused(m.spmm(&be, None, Coeff::one(), k, &empty, Coeff::zero(), &mut y), "spmm", what[0], 0);
        let m = m.resident();
        refused(
            Spmm::<Csr<f64>>::spmm(&be, None, Coeff::one(), m, k, &empty, Coeff::zero(), &mut y),
            "spmm",
            what[1],
            0,
        );
    }
}

#[test]
fn the_trace_counts_what_a_product_reads_and_what_is_allocated() {
    let be = trace::Trace::new(cpu());
    let csr = bidiagonal(N, N);
    let (x, mut y) = (be.upload(&[1.0; N]).unwrap(), be.upload(&[0.0; N]).unwrap());
    let mut cost = |launch: &dyn Fn(&mut Vector<f64>)| {
        be.take();
        launch(&mut y);
        match &be.take()[..] {
            [trace::Event::Launch(launch)] => (launch.matrix, launch.bytes()),
            other => panic!("{other:?}"),
        }
    };
    let (ell, dia) = (Ell::from_csr(&csr).unwrap(), Dia::from_csr(&csr).unwrap());
    let (ell_bytes, dia_bytes, ell_stored, dia_stored) =
        (ell.spmv_bytes(), dia.spmv_bytes(), ell.storage(), dia.storage());
    be.take();
    let (ell, dia) = (Mat::load(&be, ell).unwrap(), Mat::load(&be, dia).unwrap());
    let loads: Vec<_> = [ell_stored, dia_stored].map(|bytes| trace::Event::Allocation("load", bytes)).into();
    assert_eq!(be.take(), loads);
    let (matrix, bytes) = cost(&|y| ell.spmv(&be, None, Coeff::one(), &x, Coeff::zero(), y).unwrap());
    assert_eq!((bytes, matrix < ell_stored), (ell_bytes, true), "one padded place of ELL");
    let (matrix, bytes) = cost(&|y| dia.spmv(&be, None, Coeff::one(), &x, Coeff::zero(), y).unwrap());
    assert_eq!((bytes, matrix < dia_stored), (dia_bytes, true), "one place of DIA outside");
    be.take();
    be.monitor(&Watch { threshold: 0.0, divergence: 1.0, max_iters: 250 }).unwrap();
    assert_eq!(be.take(), [trace::Event::Allocation("monitor", 2000)]);
}

#[test]
fn functions_over_slices_are_told_of_wrong_lengths_and_closed_gates() {
    let (be, calls) = (cpu(), std::cell::Cell::new(0));
    let a = operator::from_fn(N, |x: &[f64], y: &mut [f64]| {
        calls.set(calls.get() + 1);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 3.0 * x);
    });
    let m = preconditioner::from_fn(N, |r: &[f64], z: &mut [f64]| {
        calls.set(calls.get() + 1);
        z.iter_mut().zip(r).for_each(|(z, r)| *z = r / 3.0);
    });
    assert_eq!((Operator::<f64, Cpu>::shape(&a), Preconditioner::<f64, Cpu>::len(&m)), ((N, N), Some(N)));
    for len in [N - 1, N + 1, 0] {
        let (full, bad) = (v(&be, N), v(&be, len));
        let (mut good, mut wrong) = (v(&be, N), v(&be, len));
        refused(a.apply(&be, None, &bad, &mut good), "an operator", "x", len);
        refused(a.apply(&be, None, &full, &mut wrong), "an operator", "y", len);
        refused(m.apply(&be, None, &bad, &mut good), "a preconditioner", "r", len);
        refused(m.apply(&be, None, &full, &mut wrong), "a preconditioner", "z", len);
        assert!(good.as_slice().iter().chain(wrong.as_slice()).all(|&y| y == UNTOUCHED));
    }
    let (x, mut y, mut dot) = (v(&be, N), v(&be, N), be.scalar(0.0).unwrap());
    let mut monitor = be.monitor(&Watch { threshold: 1.0, divergence: f64::INFINITY, max_iters: 9 }).unwrap();
    a.apply(&be, Some(&monitor), &x, &mut y).unwrap();
    assert_eq!((calls.get(), y.as_slice()), (1, &[21.0; N][..]), "a running monitor lets it through");
    let z = y.clone();
    m.apply_dot(&be, None, &z, &mut y, &mut dot).unwrap();
    assert_eq!((calls.get(), y.as_slice()), (2, &[7.0; N][..]));
    assert_eq!(be.download_scalar(&dot).unwrap(), 7.0 * 21.0 * N as f64);
    be.observe(&be.scalar(0.0).unwrap(), spandrel_backend::Phase::Full, &mut monitor).unwrap();
    a.apply(&be, Some(&monitor), &x, &mut y).unwrap();
    m.apply(&be, Some(&monitor), &x, &mut y).unwrap();
    assert_eq!((calls.get(), y.as_slice()), (2, &[7.0; N][..]), "neither is called behind a stop");
}

#[test]
fn a_matrix_is_loaded_from_what_the_caller_has() {
    let be = cpu();
    let csr = Arc::new(spandrel_formats::generate::csr::<f64>("poisson2d:6").unwrap());
    let by_arc_reference = Mat::load(&be, &csr).unwrap();
    assert_eq!(Arc::strong_count(&csr), 2, "shared");
    let by_reference = Mat::load(&be, &*csr).unwrap();
    assert_eq!(Arc::strong_count(&csr), 2, "a copy");
    let by_arc = Mat::load(&be, Arc::clone(&csr)).unwrap();
    let owned = Mat::load(&be, Csr::clone(&csr)).unwrap();
    for a in [&by_arc_reference, &by_reference, &by_arc, &owned] {
        assert_eq!((a.nrows(), a.nnz(), a.storage()), (csr.nrows(), csr.nnz(), csr.storage()));
    }
}
