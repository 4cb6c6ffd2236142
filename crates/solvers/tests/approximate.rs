//! Block Jacobi, Jacobi sweeps and sparse approximate inverses: compared with their definitions entry by entry, used as
//! preconditioners, and made to break down.

mod problems;

use problems::{Krylov, gamma, matrix, solve_from, stencil, uneven};
use spandrel_backend::{Backend, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real, generate};
use spandrel_solvers::isai::approximate_inverse;
use spandrel_solvers::{BlockJacobi, Error, Factored, Isai, Jacobi, JacobiSweeps, Options, Ssor, Status};
use spandrel_sptrsv::{Diagonal, Factor, Ic0, Ilu0, Iluk, Levelset, Serial, Triangle, Triangular};

fn applied<T: Real, M: Preconditioner<T, Cpu>>(be: &Cpu, m: &M, r: &[T]) -> Vec<T> {
    let device = be.upload(r).unwrap();
    let mut z = be.upload(&vec![T::nan(); r.len()]).unwrap();
    m.apply(be, None, &device, &mut z).unwrap();
    let found = be.download(&z).unwrap();
    // The form that also returns the dot product has the same bits.
    let mut again = be.upload(&vec![T::nan(); r.len()]).unwrap();
    let (mut rz, mut alone) = (be.scalar(T::nan()).unwrap(), be.scalar(T::nan()).unwrap());
    m.apply_dot(be, None, &device, &mut again, &mut rz).unwrap();
    be.dot(None, &device, &again, &mut alone).unwrap();
    assert_eq!(be.download(&again).unwrap(), found);
    assert_eq!(be.download_scalar(&rz).unwrap(), be.download_scalar(&alone).unwrap());
    found
}

fn iterations<M: Preconditioner<f64, Cpu>>(be: &Cpu, method: Krylov, a: &Csr<f64>, m: &M, what: &str) -> usize {
    let (outcome, _) = solve_from(be, method, a, m, &uneven(a.nrows()), &[], &Options::default());
    assert_eq!(outcome.status, Status::Converged, "{what}: {outcome:?}");
    outcome.iterations
}

/// Checks z of block Jacobi against the blocks. Row by row, a block B of m rows must have |B z - r| <= c |B| (|X| |r|),
/// where X is the inverse with which z = X r was formed. X is rounded once to T, and z is a sum of m terms in T;
/// together they err by gamma_T(m + 2) |X| |r|. Gauss-Jordan without growth, as for diagonally dominant blocks, errs
/// far below that in f32. It is allowed gamma_f64(8 m) |X| |B| |X| |r| (Higham 2002, theorem 14.5), where |X| |B| is
/// bounded by its largest row sum.
fn block_by_block<T: Real>(be: &Cpu, a: &Csr<T>, block_dim: usize) {
    let n = a.nrows();
    let m = BlockJacobi::<T, Cpu>::new(be, a, block_dim).unwrap();
    let r = uneven::<T>(n);
    let z = applied(be, &m, &r);
    for first in (0..n).step_by(block_dim) {
        let rows = first..n.min(first + block_dim);
        let size = rows.len();
        // The inverse as it is stored, column by column.
        let column = |j: usize| {
            let unit: Vec<T> = (0..n).map(|i| if i == j { T::one() } else { T::zero() }).collect();
            applied(be, &m, &unit)
        };
        let inverse: Vec<Vec<T>> = rows.clone().map(column).collect();
        let entry = |i, j| a.get(i, j).map_or(0.0, Real::as_f64);
        let x = |i: usize, j: usize| inverse[j - first][i].as_f64();
        let spread: Vec<f64> =
            rows.clone().map(|i| rows.clone().map(|j| (x(i, j) * r[j].as_f64()).abs()).sum()).collect();
        let condition = rows
            .clone()
            .map(|i| rows.clone().map(|j| rows.clone().map(|k| (x(i, k) * entry(k, j)).abs()).sum::<f64>()).sum())
            .fold(1.0, f64::max);
        let allowed = gamma::<T>(size + 2) + gamma::<f64>(8 * size) * condition;
        for i in rows.clone() {
            let product: f64 = rows.clone().map(|j| entry(i, j) * z[j].as_f64()).sum();
            let bound: f64 = rows.clone().map(|j| entry(i, j).abs() * spread[j - first]).sum();
            let error = (product - r[i].as_f64()).abs();
            assert!(
                error <= allowed * bound,
                "row {i} of blocks of {block_dim}: {error:e} above {:e}",
                allowed * bound
            );
        }
    }
}

#[test]
fn block_jacobi_solves_its_blocks() {
    let be = Cpu::new();
    for block_dim in [1, 2, 3, 5, 8, 16, 50, 128] {
        block_by_block(&be, &stencil::<f64>(7, 0.3), block_dim);
        block_by_block(&be, &stencil::<f32>(7, 0.3), block_dim);
    }
    // One block that is the whole matrix.
    let a = stencil::<f64>(7, 0.0);
    let whole = BlockJacobi::<f64, Cpu>::new(&be, &a, 49).unwrap();
    assert!(iterations(&be, Krylov::Cg, &a, &whole, "one block") <= 2);
    let none = matrix::<f64>(0, 0, &[]);
    assert!(applied(&be, &BlockJacobi::<f64, Cpu>::new(&be, &none, 4).unwrap(), &[]).is_empty());
}

#[test]
fn block_jacobi_pivots_and_saves_iterations() {
    let be = Cpu::new();
    let hollow = matrix::<f64>(3, 3, &[(0, 1, 2.0), (1, 0, 4.0), (2, 2, 0.5f64.powi(100))]);
    let m = BlockJacobi::<f64, Cpu>::new(&be, &hollow, 2).unwrap();
    assert_eq!(applied(&be, &m, &[1.0, 1.0, 1.0]), [0.25, 0.5, 2f64.powi(100)]);
    let scaled = matrix::<f64>(2, 2, &[(0, 0, 1.0), (1, 1, 1e-30)]);
    assert!(BlockJacobi::<f64, Cpu>::new(&be, &scaled, 2).is_ok(), "a small row is not a singular block");
    for (method, convection) in [(Krylov::Cg, 0.0), (Krylov::BiCgStab, 0.3)] {
        let a = stencil::<f64>(24, convection);
        let one = iterations(&be, method, &a, &Jacobi::new(&be, &a).unwrap(), "jacobi");
        let many = iterations(&be, method, &a, &BlockJacobi::new(&be, &a, 24).unwrap(), "a line a block");
        assert!(many < one, "{method:?}: {many} and {one}");
    }
}

#[test]
fn block_jacobi_says_which_block_it_cannot_invert() {
    let be = Cpu::new();
    let new = |a: &Csr<f64>, b| BlockJacobi::<f64, Cpu>::new(&be, a, b).unwrap_err();
    let mut entries: Vec<_> = (0..7).map(|i| (i, i, 2.0)).collect();
    entries.extend([(3, 4, 1.0), (4, 3, 4.0)]);
    let singular = matrix::<f64>(7, 7, &entries);
    let error = new(&singular, 3);
    assert!(matches!(error, Error::Block { row: 3, block_dim: 3, found: "singular" }), "{error}");
    assert_eq!(error.status(), Some(Status::ZeroPivot));
    // Singular up to rounding: the second row is a third of the first.
    let third = matrix::<f64>(2, 2, &[(0, 0, 0.3), (0, 1, 0.1), (1, 0, 0.3 / 3.0), (1, 1, 0.1 / 3.0)]);
    assert!(matches!(new(&third, 2), Error::Block { row: 0, found: "singular", .. }));
    assert!(matches!(new(&matrix(2, 2, &[(0, 0, 1.0)]), 1), Error::Block { row: 1, found: "singular", .. }));
    let nan = new(&matrix(2, 2, &[(0, 0, 1.0), (1, 1, f64::NAN)]), 2);
    assert_eq!((nan.status(), nan.to_string().contains("not finite")), (Some(Status::NotFinite), true));
    let tiny = new(&matrix(2, 2, &[(0, 0, 1.0), (1, 1, 1e-310)]), 1);
    assert!(matches!(tiny, Error::Block { row: 1, found: "too small to invert", .. }));
    assert!(matches!(new(&matrix(2, 3, &[(0, 0, 1.0)]), 1), Error::NotSquare { .. }));
    for block_dim in [0, 129, usize::MAX] {
        assert!(matches!(new(&singular, block_dim), Error::Parameter { name: "block_dim", .. }));
    }
}

/// A matrix, and another one with the same pattern.
fn old_and_new() -> (Csr<f64>, Csr<f64>) {
    let old = stencil::<f64>(9, 0.0);
    let mut new = old.clone();
    new.values_mut().iter_mut().enumerate().for_each(|(at, v)| *v *= 1.0 + 0.125 * (at % 3) as f64);
    (old, new)
}

#[test]
fn new_values_are_taken_and_bad_ones_change_nothing() {
    let be = Cpu::new();
    let (old, new) = old_and_new();
    let (r, bad) = (uneven::<f64>(81), vec![f64::NAN; old.nnz()]);
    macro_rules! takes {
        ($make:expr) => {
            let make = $make;
            let (mut m, fresh) = (make(&old), make(&new));
            let before = applied(&be, &m, &r);
            assert!(m.update(&be, &bad).is_err() && m.update(&be, &[1.0]).is_err());
            assert_eq!(applied(&be, &m, &r), before);
            m.update(&be, new.values()).unwrap();
            assert_ne!(before, applied(&be, &m, &r));
            assert_eq!(applied(&be, &fresh, &r), applied(&be, &m, &r));
        };
    }
    takes!(|a: &Csr<f64>| BlockJacobi::<f64, Cpu>::new(&be, a, 4).unwrap());
    takes!(|a: &Csr<f64>| Ssor::<Cpu, Levelset<f64>>::new(&be, a).unwrap());
    takes!(|a: &Csr<f64>| JacobiSweeps::<Cpu, Ilu0<f64>>::new(&be, a, 3).unwrap());
    takes!(|a: &Csr<f64>| JacobiSweeps::<Cpu, Ic0<f64>>::new(&be, a, 3).unwrap());
    takes!(|a: &Csr<f64>| Isai::<Cpu, Ilu0<f64>>::new(&be, a).unwrap());
    takes!(|a: &Csr<f64>| Isai::<Cpu, Ic0<f64>>::new(&be, a).unwrap());
}

/// k sweeps of a triangle by plain loops in f64 from y = 0.
fn sweeps_of(t: &Triangular<f64>, sweeps: usize, r: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; r.len()];
    for _ in 0..sweeps {
        let next = (0..r.len()).map(|i| {
            let (cols, values) = t.off_diagonal(i);
            let sum: f64 = cols.iter().zip(values).map(|(&j, v)| v * y[j as usize]).sum();
            (r[i] - sum) * t.inv_diag().get(i).copied().unwrap_or(1.0)
        });
        y = next.collect();
    }
    y
}

/// Checks that two vectors agree up to the rounding of `terms` operations per element. The magnitudes that are summed
/// are at most `growth` times the largest element.
fn close(found: &[f64], wanted: &[f64], terms: usize, growth: f64, what: &str) {
    let largest = wanted.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!((f - w).abs() <= gamma::<f64>(terms) * growth * largest, "{what}, element {i}: {f:e} and {w:e}");
    }
}

#[test]
fn sweeps_are_what_they_say() {
    fn one<F: Factor<Value = f64>>(be: &Cpu, a: &Csr<f64>) {
        let n = a.nrows();
        let r = uneven::<f64>(n);
        let factors = F::factor(a).unwrap();
        let transposed =
            || Triangular::new(factors.lower.csr().transpose(), Triangle::Upper, Diagonal::NonUnit).unwrap();
        let upper = factors.upper.clone().unwrap_or_else(transposed);
        for sweeps in [1, 2, 3, 4, 5, 2 * n] {
            let m = JacobiSweeps::<Cpu, F>::new(be, a, sweeps).unwrap();
            assert_eq!(
                (m.sweeps(), m.nnz(), m.shift()),
                (sweeps, factors.lower.csr().nnz() + factors.upper.as_ref().map_or(0, |u| u.csr().nnz()), 0.0)
            );
            let z = applied(be, &m, &r);
            let wanted = sweeps_of(&upper, sweeps, &sweeps_of(&factors.lower, sweeps, &r));
            // A row of a 5-point factor has three terms and is scaled twice. The row sums of G are at most 1, so the
            // errors of the sweeps add up.
            close(&z, &wanted, 2 * 8 * sweeps.min(n), 16.0, &format!("{} with {sweeps} sweeps", F::NAME));
            if sweeps > n {
                let exact = applied(be, &Factored::<Cpu, Serial<f64>, F>::new(be, a).unwrap(), &r);
                close(&z, &exact, 2 * 8 * n, 16.0, F::NAME);
            }
        }
    }
    let be = Cpu::new();
    one::<Ilu0<f64>>(&be, &stencil(6, 0.25));
    one::<Iluk<f64>>(&be, &stencil(6, 0.25));
    one::<Ic0<f64>>(&be, &stencil(6, 0.0));
    let error = JacobiSweeps::<Cpu, Ic0<f64>>::new(&be, &stencil(6, 0.0), 0).unwrap_err();
    assert!(matches!(error, Error::Parameter { name: "sweeps", .. }));
}

/// Checks (W T)_ij = I_ij on T's pattern. The recurrence of w_c is a sum of at most k terms and a product with 1/t_cc,
/// which is rounded. Then w_c is rounded to T, and later terms use the rounded value. Together they err by gamma(k + 4)
/// (|W| |T|)_ic in the unit roundoff of T.
fn inverts_on_its_pattern<T: Real>(t: &Triangular<T>) {
    let w = approximate_inverse(t).unwrap();
    let n = t.nrows();
    for i in 0..n {
        let (cols, values) = w.row(i);
        let own: Vec<u32> = t.off_diagonal(i).0.iter().copied().chain([i as u32]).collect();
        assert!(cols.len() == own.len() && cols.iter().all(|c| own.contains(c)), "row {i}");
        for &c in cols {
            let (mut sum, mut size) = (0.0, 0.0);
            for (&j, v) in cols.iter().zip(values) {
                let entry = match (j == c, t.diagonal()) {
                    (true, Diagonal::Unit) => 1.0,
                    _ => t.csr().get(j as usize, c as usize).map_or(0.0, Real::as_f64),
                };
                sum += v.as_f64() * entry;
                size += (v.as_f64() * entry).abs();
            }
            let wanted = if c as usize == i { 1.0 } else { 0.0 };
            let allowed = gamma::<T>(cols.len() + 4) * size;
            assert!((sum - wanted).abs() <= allowed, "row {i}, column {c}: {sum:e} within {allowed:e}");
        }
    }
}

#[test]
fn an_approximate_inverse_inverts_on_its_pattern() {
    fn of<T: Real, F: Factor<Value = T>>(a: &Csr<T>) {
        let factors = F::factor(a).unwrap();
        inverts_on_its_pattern(&factors.lower);
        factors.upper.iter().for_each(inverts_on_its_pattern);
    }
    of::<f64, Ilu0<f64>>(&stencil(8, 0.25));
    of::<f32, Ilu0<f32>>(&stencil(8, 0.25));
    of::<f64, Iluk<f64>>(&generate::csr("d3n7:6x5x4").unwrap());
    of::<f64, Ic0<f64>>(&generate::csr("d3n27:6x5x4").unwrap());
    of::<f32, Ic0<f32>>(&generate::csr("d3n27:6x5x4").unwrap());
    // For a dense triangle the result is the whole inverse.
    let dense: Vec<_> =
        (0..36).map(|e| (e / 6, e % 6, if e % 7 == 0 { 4.0 } else { 1.0 / (1 + e % 5) as f64 })).collect();
    let lower: Vec<_> = dense.iter().copied().filter(|e| e.1 <= e.0).collect();
    let t = Triangular::new(matrix::<f64>(6, 6, &lower), Triangle::Lower, Diagonal::NonUnit).unwrap();
    inverts_on_its_pattern(&t);
    assert_eq!(approximate_inverse(&t).unwrap().nnz(), 21);
}

#[test]
fn approximations_serve_and_stay_symmetric() {
    let be = Cpu::new();
    let a = generate::csr::<f64>("poisson2d:24").unwrap();
    let n = a.nrows();
    let jacobi = iterations(&be, Krylov::Cg, &a, &Jacobi::new(&be, &a).unwrap(), "jacobi");
    let exact = iterations(&be, Krylov::Cg, &a, &Factored::<Cpu, Serial<f64>, Ic0<f64>>::new(&be, &a).unwrap(), "ic0");
    let sweeps = JacobiSweeps::<Cpu, Ic0<f64>>::new(&be, &a, 4).unwrap();
    let isai = Isai::<Cpu, Ic0<f64>>::new(&be, &a).unwrap();
    assert!(sweeps.is_stored_order(&be) && isai.is_stored_order(&be));
    let (x, y) = (uneven::<f64>(n), (0..n).map(|i| ((i * 31) % 17) as f64 - 8.0).collect::<Vec<f64>>());
    let pairs: [&dyn Fn(&[f64]) -> Vec<f64>; 2] = [&|r| applied(&be, &sweeps, r), &|r| applied(&be, &isai, r)];
    for apply in pairs {
        let (mx, my) = (apply(&x), apply(&y));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let size = |a: &[f64]| a.iter().map(|a| a.abs()).fold(0.0, f64::max);
        let allowed = gamma::<f64>(n + 100) * n as f64 * (size(&x) * size(&my) + size(&y) * size(&mx));
        assert!((dot(&x, &my) - dot(&y, &mx)).abs() <= allowed && dot(&x, &mx) > 0.0);
    }
    let by_sweeps = iterations(&be, Krylov::Cg, &a, &sweeps, "ic0-jacobi=4");
    let by_isai = iterations(&be, Krylov::Cg, &a, &isai, "ic0-isai");
    assert!(
        exact <= by_sweeps && by_sweeps < jacobi && exact <= by_isai && by_isai < jacobi,
        "{exact} {by_sweeps} {by_isai} {jacobi}"
    );

    let a = generate::csr::<f64>("convdiff2d:24,peclet=20").unwrap();
    let jacobi = iterations(&be, Krylov::BiCgStab, &a, &Jacobi::new(&be, &a).unwrap(), "jacobi");
    let sweeps = JacobiSweeps::<Cpu, Ilu0<f64>>::new(&be, &a, 4).unwrap();
    let by_sweeps = iterations(&be, Krylov::BiCgStab, &a, &sweeps, "ilu0-jacobi=4");
    let by_isai = iterations(&be, Krylov::BiCgStab, &a, &Isai::<Cpu, Ilu0<f64>>::new(&be, &a).unwrap(), "ilu0-isai");
    assert!(by_sweeps < jacobi && by_isai < jacobi, "{by_sweeps} {by_isai} {jacobi}");
}

#[test]
fn breakdowns_are_typed() {
    let be = Cpu::new();
    let negative = matrix::<f64>(1, 1, &[(0, 0, -1.0)]);
    let status = |error: Error| error.status().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(status(JacobiSweeps::<Cpu, Ic0<f64>>::new(&be, &negative, 2).unwrap_err()), Status::IndefiniteMatrix);
    assert_eq!(status(Isai::<Cpu, Ic0<f64>>::new(&be, &negative).unwrap_err()), Status::IndefiniteMatrix);
    // 1/d overflows.
    let tiny = matrix::<f64>(2, 2, &[(0, 0, 1.0), (1, 1, 1e-310)]);
    assert_eq!(status(JacobiSweeps::<Cpu, Ilu0<f64>>::new(&be, &tiny, 2).unwrap_err()), Status::NotFinite);
    assert_eq!(status(Isai::<Cpu, Ilu0<f64>>::new(&be, &tiny).unwrap_err()), Status::NotFinite);
    let wide = matrix::<f64>(1, 2, &[(0, 0, 1.0)]);
    assert!(Isai::<Cpu, Ilu0<f64>>::new(&be, &wide).unwrap_err().status().is_none());
}
