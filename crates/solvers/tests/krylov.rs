//! CG and BiCGStab on small systems: answers, edge cases, range, and the bits that they promise.

mod problems;

use std::ops::ControlFlow;

use problems::{ALL, Krylov, diagonal, drift, gamma, honest, judged, matrix, norm, solve, solve_from, stencil, uneven};
use spandrel_backend::{Backend, Mat, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{BiCgStab, Cg, Error, Identity, Jacobi, Options, Placement, Status};

fn converges<T: Real>(rtol: f64)
where
    Cpu: Spmv<Csr<T>>,
{
    let be = Cpu::new();
    let options = Options { rtol: Some(rtol), ..Options::default() };
    for (method, convection) in [(Krylov::Cg, 0.0), (Krylov::BiCgStab, 0.0), (Krylov::BiCgStab, 0.3)] {
        let a = stencil::<T>(23, convection);
        let b = uneven(529);
        let jacobi = Jacobi::new(&be, &a).unwrap();
        for (outcome, x) in
            [solve(&be, method, &a, &b, &options), solve_from(&be, method, &a, &jacobi, &b, &uneven(529), &options)]
        {
            assert_eq!(outcome.status, Status::Converged, "{method:?} {outcome:?}");
            honest(&a, &x, &b, &outcome);
            assert!(outcome.true_residual <= rtol && outcome.iterations > 5 && outcome.iterations < 120);
            assert_eq!(outcome.history.len(), outcome.iterations + 1);
            assert_eq!(*outcome.history.last().unwrap(), outcome.residual);
            // Only in f32 may the residual have to be replaced this close to its accuracy.
            assert!(outcome.restarts <= usize::from(T::BYTES == 4) && outcome.breakdown.is_none(), "{outcome:?}");
        }
    }
}

#[test]
fn both_converge_in_f64() {
    converges::<f64>(1e-10);
}

#[test]
fn both_converge_in_f32() {
    converges::<f32>(1e-5);
}

/// Without a tolerance, a solve takes one that its element type can reach.
fn converges_by_default<T: Real>(rtol: f64)
where
    Cpu: Spmv<Csr<T>>,
{
    let be = Cpu::new();
    let (a, b) = (stencil::<T>(23, 0.0), uneven::<T>(529));
    for method in ALL {
        let (outcome, _) = solve(&be, method, &a, &b, &Options::default());
        assert_eq!((outcome.status, outcome.target), (Status::Converged, rtol), "{method:?} {outcome:?}");
        assert!(outcome.true_residual <= rtol && outcome.precision == T::NAME);
    }
}

#[test]
fn both_precisions_converge_by_default() {
    converges_by_default::<f64>(1e-8);
    converges_by_default::<f32>(1e-5);
}

#[test]
fn jacobi_pays_on_an_uneven_diagonal() {
    let be = Cpu::new();
    let scale = |i: usize| 10f64.powi((i % 7) as i32 - 3);
    let plain = stencil::<f64>(12, 0.0);
    let mut entries = Vec::new();
    for i in 0..144 {
        let (cols, values) = plain.row(i);
        entries.extend(cols.iter().zip(values).map(|(&j, &v)| (i, j as usize, v * scale(i) * scale(j as usize))));
    }
    let a = matrix::<f64>(144, 144, &entries);
    for method in ALL {
        let options = Options { max_iters: Some(5000), ..Options::default() };
        let (none, _) = solve(&be, method, &a, &uneven(144), &options);
        let jacobi = Jacobi::new(&be, &a).unwrap();
        let (with, _) = solve_from(&be, method, &a, &jacobi, &uneven(144), &[], &options);
        assert_eq!(with.status, Status::Converged, "{with:?}");
        assert!(4 * with.iterations < none.iterations, "{} {}", with.iterations, none.iterations);
    }
}

#[test]
fn a_zero_right_hand_side_has_the_zero_answer() {
    let be = Cpu::new();
    for method in ALL {
        let (outcome, x) =
            solve_from(&be, method, &stencil::<f64>(4, 0.0), &Identity, &[0.0; 16], &uneven(16), &Options::default());
        assert_eq!((outcome.status, outcome.iterations, outcome.true_residual), (Status::Converged, 0, 0.0));
        assert_eq!(x, [0.0; 16]);
    }
}

#[test]
fn an_exact_guess_takes_no_iteration() {
    let be = Cpu::new();
    let a = stencil::<f64>(5, 0.0);
    let x: Vec<f64> = (0..25).map(|i| i as f64 - 7.0).collect();
    let b: Vec<f64> =
        (0..25).map(|i| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum()).collect();
    for method in ALL {
        let (outcome, y) = solve_from(&be, method, &a, &Identity, &b, &x, &Options::default());
        assert_eq!((outcome.status, outcome.iterations, outcome.history), (Status::Converged, 0, vec![0.0]));
        assert_eq!(y, x);
    }
}

#[test]
fn one_unknown_takes_one_iteration() {
    let be = Cpu::new();
    for method in ALL {
        let (outcome, x) = solve(&be, method, &diagonal::<f64>(&[4.0]), &[2.0], &Options::default());
        assert_eq!((outcome.status, x), (Status::Converged, vec![0.5]), "{method:?}");
        assert_eq!((outcome.iterations, outcome.history.len()), (1, 2), "{method:?}");
        assert!(outcome.breakdown.is_none());
    }
}

#[test]
fn no_unknowns_are_solved_already() {
    let be = Cpu::new();
    for method in ALL {
        let (outcome, x) = solve(&be, method, &matrix::<f64>(0, 0, &[]), &[], &Options::default());
        assert_eq!((outcome.status, outcome.iterations, x.len()), (Status::Converged, 0, 0));
    }
}

#[test]
fn a_singular_system_with_an_answer_is_solved() {
    // The path graph's Laplacian: its null space are the constant vectors, and this right-hand side sums to zero.
    let n = 20;
    let mut entries = Vec::new();
    for i in 0..n - 1 {
        entries.extend([(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    }
    let mut degree = vec![0.0; n];
    for &(i, j, v) in &entries {
        degree[i] += if i == j { v } else { 0.0 };
    }
    let off = entries.iter().copied().filter(|&(i, j, _)| i != j);
    let entries: Vec<_> = off.chain(degree.iter().enumerate().map(|(i, &d)| (i, i, d))).collect();
    let a = matrix::<f64>(n, n, &entries);
    let mut b = vec![0.0; n];
    (b[0], b[n - 1], b[5], b[6]) = (1.0, -1.0, 2.0, -2.0);
    let be = Cpu::new();
    for method in ALL {
        let (outcome, x) = solve(&be, method, &a, &b, &Options::default());
        assert_eq!(outcome.status, Status::Converged, "{method:?} {outcome:?}");
        honest(&a, &x, &b, &outcome);
    }
}

#[test]
fn what_is_not_finite_is_said_at_once() {
    let be = Cpu::new();
    let good = stencil::<f64>(6, 0.0);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut a = good.clone();
        a.values_mut()[17] = bad;
        let mut b = uneven(36);
        b[11] = bad;
        for method in ALL {
            let options = Options::default();
            for (outcome, _) in [
                solve(&be, method, &a, &uneven(36), &options),
                solve(&be, method, &good, &b, &options),
                solve_from(&be, method, &good, &Identity, &uneven(36), &b, &options),
            ] {
                assert_eq!((outcome.status, outcome.iterations), (Status::NotFinite, 0), "{method:?} {bad}");
                assert!(outcome.true_residual.is_nan());
            }
        }
    }
}

fn range<T: Real>(sizes: &[f64], rtol: f64)
where
    Cpu: Spmv<Csr<T>>,
{
    let be = Cpu::new();
    let a = stencil::<T>(9, 0.0);
    let unit: Vec<T> = uneven(81);
    for method in ALL {
        let options = Options { rtol: Some(rtol), ..Options::default() };
        let (at_one, x_at_one) = solve(&be, method, &a, &unit, &options);
        honest(&a, &x_at_one, &unit, &at_one);
        for &size in sizes {
            let b: Vec<T> = unit.iter().map(|&v| v * T::from_f64(size)).collect();
            let (outcome, x) = solve(&be, method, &a, &b, &options);
            assert_eq!(outcome.status, Status::Converged, "{method:?} {size} {outcome:?}");
            assert_eq!(outcome.iterations, at_one.iterations, "{size}");
            assert!(outcome.true_residual > 0.0 && outcome.true_residual <= rtol);
            // The residual of x / size for the unit b. The size and its product with b are rounded, which moves b by 2
            // u. The quotient moves A x by another u |A| |x|. Both together are less than the difference that a report
            // may have.
            let scaled: Vec<T> = x.iter().map(|x| T::from_f64(x.as_f64() / size)).collect();
            let (truth, allowed) = judged(&a, &scaled, &unit);
            let moved = gamma::<T>(2) + allowed;
            assert!((truth - outcome.true_residual).abs() <= moved + allowed, "{size}: {truth} {outcome:?}");
        }
        // A power of two changes no bit.
        let k = sizes[0].log2().round() as i32;
        let b: Vec<T> = unit.iter().map(|&v| v * T::from_f64(2f64.powi(k))).collect();
        let (_, x) = solve(&be, method, &a, &b, &options);
        for (x, y) in x.iter().zip(&x_at_one) {
            assert_eq!(x.as_f64(), y.as_f64() * 2f64.powi(k), "{method:?}");
        }
    }
}

#[test]
fn huge_and_tiny_right_hand_sides_are_solved_in_f64() {
    range::<f64>(&[1e200, 1e-200, 1e305, 1e-290], 1e-9);
}

#[test]
fn huge_and_tiny_right_hand_sides_are_solved_in_f32() {
    range::<f32>(&[1e25, 1e-25, 1e37, 1e-30], 1e-5);
}

#[test]
fn a_guess_far_above_the_answer_is_no_lie() {
    // ||r0|| / ||b|| = 10^14: one recurrence cannot follow the residual down to 10^-8 of b.
    let be = Cpu::new();
    let a = stencil::<f64>(10, 0.0);
    let guess: Vec<f64> = uneven(100).iter().map(|v: &f64| v * 1e14).collect();
    for method in ALL {
        let (outcome, x) = solve_from(&be, method, &a, &Identity, &uneven(100), &guess, &Options::default());
        assert_eq!(outcome.status, Status::Converged, "{method:?} {outcome:?}");
        assert!(outcome.restarts > 0);
        assert!(outcome.true_residual <= 1e-8);
        honest(&a, &x, &uneven(100), &outcome);
    }
    // This start is so far away that b's square underflows beside its own. The factors are powers of two: scaled back,
    // it is exactly the same system.
    let (down, up) = (2f64.powi(-600), 2f64.powi(600));
    let b: Vec<f64> = uneven(100).iter().map(|v: &f64| v * down).collect();
    let guess: Vec<f64> = uneven(100);
    let (outcome, x) = solve_from(&be, Krylov::Cg, &a, &Identity, &b, &guess, &Options::default());
    assert_eq!(outcome.status == Status::Converged, outcome.true_residual <= 1e-8, "{outcome:?}");
    let x: Vec<f64> = x.iter().map(|x| x * up).collect();
    let (_, allowed) = judged(&a, &x, &uneven(100));
    assert!(allowed.is_finite());
    honest(&a, &x, &uneven(100), &outcome);
}

/// The bits of x.
fn bits<T: Real>(x: &[T]) -> Vec<u64> {
    x.iter().map(|x| x.as_f64().to_bits()).collect()
}

#[test]
fn recording_looking_and_threads_change_no_bit() {
    let a = stencil::<f64>(70, 0.1);
    let spd = stencil::<f64>(70, 0.0);
    let b = uneven(4900);
    let is_whole = std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole");
    let looks: &[usize] = if is_whole { &[0, 1, 7, 16, 1000, usize::MAX] } else { &[0, 7, usize::MAX] };
    for method in ALL {
        let a = if method == Krylov::Cg { &spd } else { &a };
        let mut seen = Vec::new();
        for threads in [1, 2, 3] {
            let be = Cpu::with_threads(threads).unwrap();
            let jacobi = Jacobi::new(&be, a).unwrap();
            for recorded in [true, false] {
                for &check_every in looks {
                    let (rtol, max_iters) = (Some(1e-4), Some(900));
                    let options = Options { recorded, check_every, rtol, max_iters, ..Options::default() };
                    let (outcome, x) = solve(&be, method, a, &b, &options);
                    assert_eq!(outcome.status, Status::Converged);
                    let (preconditioned, y) = solve_from(&be, method, a, &jacobi, &b, &[], &options);
                    seen.push((bits(&x), bits(&outcome.history), bits(&y), preconditioned));
                }
            }
        }
        assert!(seen.iter().all(|one| one == &seen[0]), "{method:?}");
    }
}

#[test]
fn a_solve_without_a_limit_and_without_looks_still_sees_its_stop() {
    let be = Cpu::new();
    for method in ALL {
        let a = stencil::<f64>(6, 0.0);
        let options = Options { max_iters: Some(usize::MAX), check_every: usize::MAX, ..Options::default() };
        let (outcome, x) = solve(&be, method, &a, &uneven(36), &options);
        let (wanted, y) = solve(&be, method, &a, &uneven(36), &Options::default());
        assert_eq!((outcome, x), (wanted, y), "{method:?}");
    }
}

#[test]
fn the_limit_of_iterations_is_20_n() {
    let limit = |n| Options::default().iteration_limit(n);
    assert_eq!([0, 1, 2, 1000, 5_000_000].map(limit), [20, 20, 40, 20_000, 100_000_000]);
    assert_eq!(limit(usize::MAX), usize::MAX);
    assert_eq!(Options { max_iters: Some(3), ..Options::default() }.iteration_limit(1000), 3);
}

#[test]
fn a_segment_asks_for_no_less_than_the_unit_roundoff_of_its_begin() {
    // From x = 0 the segment begins with ||b||, which is the unit of the history.
    let be = Cpu::new();
    let options = Options { rtol: Some(0.0), max_restarts: 0, ..Options::default() };
    // GMRES is left out: its cycle ends long before.
    for method in [Krylov::Cg, Krylov::BiCgStab] {
        let (outcome, _) = solve(&be, method, &stencil::<f32>(12, 0.0), &uneven(144), &options);
        assert_eq!(outcome.status, Status::Stagnated, "{method:?} {outcome:?}");
        let (last, before) = outcome.history.split_last().unwrap();
        assert!(*last <= f32::UNIT_ROUNDOFF && before.iter().all(|norm| *norm > f32::UNIT_ROUNDOFF), "{outcome:?}");
    }
}

#[test]
fn the_iteration_limit_is_kept() {
    let be = Cpu::new();
    for method in ALL {
        for limit in [0, 1, 5, 17] {
            let options = Options { max_iters: Some(limit), ..Options::default() };
            let (outcome, x) = solve(&be, method, &stencil::<f64>(30, 0.0), &uneven(900), &options);
            assert_eq!((outcome.status, outcome.iterations), (Status::MaxIterations, limit));
            assert_eq!(outcome.history.len(), limit + 1);
            honest(&stencil(30, 0.0), &x, &uneven(900), &outcome);
        }
    }
}

#[test]
fn a_window_without_a_smaller_residual_ends_a_solve() {
    let be = Cpu::new();
    // The eigenvalues cover three decades, so the residuals of both methods rise and fall for a hundred iterations.
    let a = diagonal::<f64>(&(0..200).map(|i| 10f64.powf(i as f64 * 3.0 / 199.0)).collect::<Vec<_>>());
    let b = uneven(200);
    for method in [Krylov::Cg, Krylov::BiCgStab] {
        let free = Options { rtol: Some(1e-6), max_iters: Some(20_000), ..Options::default() };
        let (whole, _) = solve(&be, method, &a, &b, &free);
        assert!(whole.iterations > 100 && whole.restarts == 0, "{method:?} {whole:?}");
        let mut ended = 0;
        for window in [1, 2, 3, 7, 20, 1000] {
            let least = |norms: &[f64]| norms.iter().fold(f64::INFINITY, |least, norm| least.min(*norm));
            let last = (1..)
                .map(|k| k * window)
                .take_while(|end| *end <= whole.iterations)
                .find(|end| least(&whole.history[end - window + 1..=*end]) >= least(&whole.history[..=end - window]));
            for (check_every, recorded) in [(1, true), (16, false), (1 << 20, true)] {
                let options = Options { stagnation: Some(window), check_every, recorded, ..free };
                let (outcome, x) = solve(&be, method, &a, &b, &options);
                honest(&a, &x, &b, &outcome);
                match last {
                    Some(end) => {
                        assert_eq!(
                            (outcome.status, outcome.iterations),
                            (Status::Stagnated, end),
                            "{method:?} {window}"
                        );
                        assert_eq!(outcome.history, whole.history[..=end]);
                        ended += 1;
                    }
                    None => assert_eq!(outcome, whole, "{method:?} {window}"),
                }
            }
        }
        assert!(ended > 3, "{method:?} never stood still");
    }
    let options = Options { stagnation: Some(0), ..Options::default() };
    let (b, mut x) = (be.upload(&[1.0]).unwrap(), Backend::<f64>::zeros(&be, 1).unwrap());
    let one = Mat::load(&be, diagonal::<f64>(&[1.0])).unwrap();
    let refused = Cg::new(&be, 1).unwrap().solve(&be, &one, &Identity, &b, &mut x, &options);
    assert!(matches!(refused, Err(Error::Option { name: "stagnation", .. })), "{refused:?}");
}

#[test]
fn a_watcher_sees_the_residual_fall_and_can_stop_it() {
    let be = Cpu::new();
    let a = Mat::load(&be, stencil::<f64>(40, 0.0)).unwrap();
    let b = be.upload(&uneven(1600)).unwrap();
    let mut looks = Vec::new();
    for stop_at in [usize::MAX, 20, 0] {
        let mut x = Backend::<f64>::zeros(&be, 1600).unwrap();
        looks.clear();
        let options = Options { check_every: 10, check_after: std::time::Duration::MAX, ..Options::default() };
        let outcome = Cg::new(&be, 1600)
            .unwrap()
            .solve_watched(&be, &a, &Identity, &b, &mut x, &options, &mut |progress| {
                looks.push(progress);
                if progress.iterations >= stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert!(looks.iter().map(|p| p.iterations).eq((0..looks.len()).map(|k| 10 * k)));
        if stop_at == usize::MAX {
            assert_eq!(outcome.status, Status::Converged);
            assert!(looks.len() > 3 && looks[looks.len() - 1].residual < 1e-2 * looks[0].residual);
        } else {
            assert_eq!((outcome.status, outcome.iterations), (Status::Interrupted, stop_at));
            assert_eq!(outcome.residual, looks[looks.len() - 1].residual);
            // From x = 0 the iterates of CG grow in norm (Steihaug 1983), so the last one is the largest.
            let (x, b) = (be.download(&x).unwrap(), uneven::<f64>(1600));
            let r = outcome.history.iter().fold(0.0, |m: f64, r| m.max(*r)) * norm(&b);
            let (_, allowed) = judged(&stencil::<f64>(40, 0.0), &x, &b);
            let apart = drift(stop_at, norm(&x), r, &b) + allowed;
            assert!((outcome.residual - outcome.true_residual).abs() <= apart, "{apart:e} {outcome:?}");
        }
    }
}

#[test]
fn wrong_operands_are_refused() {
    let be = Cpu::new();
    let wide = Mat::load(&be, matrix::<f64>(2, 3, &[(0, 0, 1.0)])).unwrap();
    let square = Mat::load(&be, diagonal::<f64>(&[1.0, 2.0])).unwrap();
    let two = be.upload(&[1.0, 1.0]).unwrap();
    let three = be.upload(&[1.0, 1.0, 1.0]).unwrap();
    let options = Options::default();
    let mut x = be.upload(&[0.0, 0.0]).unwrap();
    let mut cg = Cg::new(&be, 2).unwrap();
    let mut bicgstab = BiCgStab::new(&be, 2).unwrap();
    let refused = cg.solve(&be, &wide, &Identity, &two, &mut x, &options);
    assert!(matches!(refused, Err(Error::NotSquare { nrows: 2, ncols: 3, .. })));
    let refused = bicgstab.solve(&be, &square, &Identity, &three, &mut x, &options).unwrap_err();
    assert!(matches!(refused, Error::Size { what: "b", found: 3, expected: 2, .. }));
    assert_eq!(
        refused.to_string(),
        "bicgstab: b has 3 elements, expected 2; b needs one element per row of the matrix"
    );
    // The functions make their own workspace, which cannot be at fault.
    let refused = spandrel_solvers::cg(&be, &square, &Identity, &three, &mut x, &options);
    assert!(matches!(refused, Err(Error::Size { what: "b", found: 3, expected: 2, .. })));
    let mut long = be.upload(&[0.0; 3]).unwrap();
    let refused = cg.solve(&be, &square, &Identity, &two, &mut long, &options);
    assert!(matches!(refused, Err(Error::Size { what: "x", .. })));
    let refused = Cg::new(&be, 5).unwrap().solve(&be, &square, &Identity, &two, &mut x, &options);
    assert!(matches!(refused, Err(Error::Size { what: "the workspace", found: 5, .. })));
    let jacobi = Jacobi::new(&be, &diagonal::<f64>(&[1.0, 2.0, 3.0])).unwrap();
    let refused = cg.solve(&be, &square, &jacobi, &two, &mut x, &options).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cg: the preconditioner has 3 rows, expected 2; make the preconditioner of this matrix"
    );
    for options in [
        Options { rtol: Some(f64::NAN), ..options },
        Options { atol: -1.0, ..options },
        Options { divergence: 0.5, ..options },
    ] {
        let refused = cg.solve(&be, &square, &Identity, &two, &mut x, &options);
        assert!(matches!(refused, Err(Error::Option { .. })));
    }
}

#[test]
fn jacobi_names_the_row_that_it_cannot_invert() {
    let be = Cpu::new();
    for (d, row, found, status) in [
        (vec![1.0, 0.0, 2.0], 1, "zero", Status::ZeroPivot),
        (vec![1.0, 3.0, f64::NAN], 2, "NaN", Status::NotFinite),
        (vec![f64::INFINITY, 3.0, 1.0], 0, "infinite", Status::NotFinite),
        (vec![1e-320, 3.0, 1.0], 0, "too small to invert", Status::ZeroPivot),
    ] {
        let error = Jacobi::new(&be, &diagonal::<f64>(&d)).unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert!(matches!(error, Error::Diagonal { row: r, found: f } if (r, f) == (row, found)), "{error}");
    }
    let missing = matrix::<f64>(2, 2, &[(0, 0, 1.0), (1, 0, 1.0)]);
    assert!(matches!(Jacobi::new(&be, &missing), Err(Error::Diagonal { row: 1, found: "missing" })));
}

/// M with powers of two on its diagonal scales without rounding. So preconditioning from the left is the method on M^-1
/// A x = M^-1 b, bit for bit.
#[test]
fn bicgstab_from_the_left_is_that_of_the_scaled_system() {
    let be = Cpu::new();
    let n = 400;
    let power = |i: usize| 2f64.powi((i * 7 % 11) as i32 - 5);
    let (mut scaled, mut rows) = (Vec::new(), Vec::new());
    let plain = stencil::<f64>(20, 0.3);
    for i in 0..n {
        let (cols, values) = plain.row(i);
        for (&j, &v) in cols.iter().zip(values) {
            // The diagonal is 1, so Jacobi's reciprocals are those powers.
            let v = if j as usize == i { 1.0 } else { v / 4.5 };
            scaled.push((i, j as usize, v));
            rows.push((i, j as usize, v * power(i)));
        }
    }
    let (a, scaled) = (matrix::<f64>(n, n, &rows), matrix::<f64>(n, n, &scaled));
    let jacobi = Jacobi::new(&be, &a).unwrap();
    let c = uneven(n);
    let b: Vec<f64> = c.iter().enumerate().map(|(i, c)| c * power(i)).collect();
    let from = |a: &Csr<f64>, b: &[f64], left: bool, options: &Options| {
        let (b, mut x) = (be.upload(b).unwrap(), be.zeros(n).unwrap());
        let a = Mat::load(&be, a.clone()).unwrap();
        let mut solver = BiCgStab::with(&be, n, if left { Placement::Left } else { Placement::Right }).unwrap();
        let outcome = match left {
            true => solver.solve(&be, &a, &jacobi, &b, &mut x, options),
            false => solver.solve(&be, &a, &Identity, &b, &mut x, options),
        };
        (outcome.unwrap(), be.download(&x).unwrap())
    };
    for recorded in [true, false] {
        let some =
            Options { rtol: Some(1e-300), max_iters: Some(9), recorded, persistent: false, ..Options::default() };
        let (left, x) = from(&a, &b, true, &some);
        let (right, wanted) = from(&scaled, &c, false, &some);
        assert_eq!((left.status, right.status), (Status::MaxIterations, Status::MaxIterations));
        assert_eq!(x, wanted);
        // Norms are in units of the residual with which the segment begins. So each pair differs by only one quotient
        // and one product.
        let unit = right.history[0] / left.history[0];
        for (left, right) in left.history.iter().zip(&right.history) {
            assert!((left * unit / right - 1.0).abs() <= 8.0 * f64::EPSILON, "{left} {right}");
        }
    }
    let (outcome, x) = from(&a, &b, true, &Options { rtol: Some(1e-10), ..Options::default() });
    assert_eq!(outcome.status, Status::Converged);
    honest(&a, &x, &b, &outcome);
    // The limit of divergence and the watcher use the residual's units, too.
    let mut seen = Vec::new();
    let (b, mut x) = (be.upload(&b).unwrap(), be.zeros(n).unwrap());
    let mut solver = BiCgStab::with(&be, n, Placement::Left).unwrap();
    let mut watcher = |progress: spandrel_solvers::Progress| {
        seen.push(progress.residual);
        ControlFlow::Continue(())
    };
    let options = Options { rtol: Some(1e-6), check_every: 1, ..Options::default() };
    let device = Mat::load(&be, a).unwrap();
    let outcome = solver.solve_watched(&be, &device, &jacobi, &b, &mut x, &options, &mut watcher).unwrap();
    assert_eq!(outcome.history[..seen.len()], seen[..]);
}

#[test]
fn jacobi_takes_another_diagonal_of_its_size() {
    let be = Cpu::new();
    let (a, b) = (diagonal::<f64>(&[1.0, 2.0, 4.0]), diagonal::<f64>(&[8.0, 0.5, -2.0]));
    let mut m = Jacobi::new(&be, &a).unwrap();
    let apply = |m: &Jacobi<f64, Cpu>| {
        let (r, mut z) = (be.upload(&[1.0; 3]).unwrap(), be.zeros(3).unwrap());
        spandrel_backend::Preconditioner::apply(m, &be, None, &r, &mut z).unwrap();
        be.download(&z).unwrap()
    };
    assert!(matches!(m.update(&be, &diagonal(&[1.0; 4])), Err(Error::Size { found: 4, expected: 3, .. })));
    assert!(matches!(m.update(&be, &diagonal(&[1.0, 0.0, 1.0])), Err(Error::Diagonal { row: 1, .. })));
    assert_eq!(apply(&m), [1.0, 0.5, 0.25]);
    m.update(&be, &b).unwrap();
    assert_eq!(apply(&m), [0.125, 2.0, -0.5]);
}
