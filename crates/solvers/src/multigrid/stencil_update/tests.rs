//! Updates against new cycles, bit by bit.

use spandrel_backend::{Backend, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::generate;

use super::*;
use crate::{Options, cg};

const SMOOTHERS: [PolynomialSmoother; 2] = [PolynomialSmoother::Chebyshev(2), PolynomialSmoother::L1Jacobi(3)];

type Cycle<T> = StencilMultigrid<T, Cpu>;

/// Symmetric and diagonally dominant, other values for each seed.
fn varied<T: Real>(spec: &str, seed: usize) -> Csr<T> {
    let built = generate::csr::<f64>(spec).unwrap().map_entries(|i, j, v| {
        let (low, high) = (i.min(j), i.max(j));
        let part = ((low * 7919 + high * 104_729 + seed * 331) % 1013) as f64;
        if low == high { (2.5 + seed as f64) * v } else { v * (1.0 + part / 1100.0) }
    });
    built.map(T::from_f64)
}

fn made<T: Real>(be: &Cpu, a: &Csr<T>, levels: Option<usize>, smoother: PolynomialSmoother) -> Result<Cycle<T>> {
    StencilMultigrid::of(be, &Mat::load(be, a.clone())?, levels, smoother, &mut unobserved)
}

fn update<T: Real>(be: &Cpu, m: &mut Cycle<T>, a: &Csr<T>) -> Result<()> {
    m.update_from(be, &Mat::load(be, a.clone())?)
}

fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|v| v.as_f64().to_bits()).collect()
}

/// Extents and ways, numbers of entries, then for each grid its rows, one over its divisors and its bound, and at last
/// M^-1 r.
type State = (Vec<([usize; 3], Option<Coarsening>)>, (usize, u64), Vec<Vec<u64>>);

fn state<T: Real>(be: &Cpu, m: &Cycle<T>) -> State {
    let mut found = Vec::new();
    for Level { grid, .. } in &m.grids {
        found.push(bits(&grid.a.stencil_rows(be, &grid.of, 0, 1).unwrap()));
        found.push(bits(&be.download(&grid.inverse).unwrap()));
        found.push(vec![grid.bound.to_bits(), grid.a.nnz() as u64]);
    }
    let n = m.grids[0].grid.points();
    let r: Vec<T> = (0..n).map(|i| T::from_f64(((i * 7919) % 1009) as f64 - 504.0)).collect();
    let (r, mut z) = (be.upload(&r).unwrap(), be.upload(&vec![T::nan(); n]).unwrap());
    m.apply(be, None, &r, &mut z).unwrap();
    found.push(bits(&be.download(&z).unwrap()));
    let sizes = m.grids.iter().map(|level| (level.grid.of.size(), level.to)).collect();
    (sizes, (m.nnz(), m.storage()), found)
}

fn same<T: Real>(be: &Cpu, m: &Cycle<T>, wanted: &Cycle<T>, what: &str) {
    let (found, wanted) = (state(be, m), state(be, wanted));
    assert_eq!((found.0, found.1), (wanted.0, wanted.1), "{what}");
    let differ = found.2.iter().zip(&wanted.2).position(|(found, wanted)| found != wanted);
    assert_eq!(
        (differ, found.2.len()),
        (None, wanted.2.len()),
        "{what}: grid by grid rows, divisors, bound; last M^-1 r"
    );
}

/// Where the grids lie: elsewhere after another set-up.
fn places<T: Real>(m: &Cycle<T>) -> Vec<*const ()> {
    m.grids.iter().map(|level| std::ptr::from_ref(level.grid.a.resident()).cast()).collect()
}

fn of_type<T: Real>() {
    let be = Cpu::with_threads(2).unwrap();
    for (spec, levels) in [
        ("poisson1d:700", None),
        ("poisson2d:33x40", None),
        ("poisson2d9:31x29", Some(2)),
        ("poisson3d:16x15x14", None),
        ("d3n27:12x13x14", None),
        ("d3n7:40x6x3", None),
        // One grid, with an inverse and without one.
        ("poisson2d:9x8", None),
        ("poisson3d:16x15x14", Some(1)),
        ("anisotropic2d:48,eps=0.01", None),
    ] {
        for smoother in SMOOTHERS {
            let mut m = made(&be, &varied::<T>(spec, 0), levels, smoother).unwrap();
            for seed in [1, 2, 0] {
                let (at, ways) = (places(&m), state(&be, &m).0);
                let next = varied::<T>(spec, seed);
                update(&be, &mut m, &next).unwrap();
                let what = format!("{spec} {smoother:?} {levels:?} {seed}");
                same(&be, &m, &made(&be, &next, levels, smoother).unwrap(), &what);
                // The values may decide for other axes if couplings differ along the axes.
                let is_in_place = places(&m) == at;
                assert_eq!(is_in_place, state(&be, &m).0 == ways, "{what}");
                assert!(is_in_place || spec.starts_with("anisotropic"), "{what}");
            }
        }
    }
}

#[test]
fn new_values_have_the_bits_of_a_new_cycle() {
    of_type::<f64>();
    of_type::<f32>();
}

#[test]
fn a_solve_has_the_bits_of_a_new_cycle() {
    let be = Cpu::with_threads(2).unwrap();
    let [first, next] = [0, 1].map(|seed| varied::<f64>("poisson3d:16x15x14", seed));
    let mut m = made(&be, &first, None, SMOOTHERS[0]).unwrap();
    update(&be, &mut m, &next).unwrap();
    let solved = |m: &Cycle<f64>| {
        let (b, mut x) = (be.upload(&vec![1.0; next.nrows()]).unwrap(), be.upload(&vec![0.0; next.nrows()]).unwrap());
        let a = Mat::load(&be, next.clone()).unwrap();
        let outcome = cg(&be, &a, m, &b, &mut x, &Options::default()).unwrap();
        assert!(outcome.status.is_converged());
        (outcome.iterations, bits(&be.download(&x).unwrap()))
    };
    assert_eq!(solved(&m), solved(&made(&be, &next, None, SMOOTHERS[0]).unwrap()));
}

#[test]
fn values_that_f32_holds_keep_their_bits() {
    // Large enough for the CPU to keep them in f32.
    let be = Cpu::new();
    let exact = |scale: f64| generate::csr::<f64>("poisson3d:50x49x48").unwrap().map(|v| scale * v);
    let inexact = varied::<f64>("poisson3d:50x49x48", 1);
    let mut m = made(&be, &exact(1.0), None, SMOOTHERS[0]).unwrap();
    assert!(m.grids[0].grid.a.is_narrow(&be));
    for next in [&exact(3.0), &inexact, &varied("poisson3d:50x49x48", 2), &exact(5.0), &exact(0.25)] {
        update(&be, &mut m, next).unwrap();
        same(&be, &m, &made(&be, next, None, SMOOTHERS[0]).unwrap(), "values in f32");
    }
}

#[test]
fn other_axes_and_other_numbers_of_grids_repeat_the_set_up() {
    let be = Cpu::with_threads(2).unwrap();
    let [plain, along_x] =
        ["poisson2d:64", "anisotropic2d:64,eps=0.01"].map(|spec| generate::csr::<f64>(spec).unwrap());
    for smoother in SMOOTHERS {
        let mut m = made(&be, &plain, None, smoother).unwrap();
        let isotropic = m.sizes().to_vec();
        for next in [&along_x, &along_x, &plain, &along_x.map(|v| 3.0 * v), &plain] {
            update(&be, &mut m, next).unwrap();
            same(&be, &m, &made(&be, next, None, smoother).unwrap(), "other axes");
        }
        update(&be, &mut m, &along_x).unwrap();
        assert_ne!(m.sizes(), isotropic);
    }
    // Values at the end of the range, so that a coarse operator overflows: the last grid has an inverse, or is too
    // large for one.
    let plain = generate::csr::<f32>("poisson3d:16").unwrap();
    let scaled = |share: f32| plain.map(move |v| v * share * 2.0f32.powi(127));
    let mut m = made(&be, &plain, None, SMOOTHERS[0]).unwrap();
    assert_eq!(m.sizes().len(), 3);
    for (next, grids) in [(scaled(0.25), 2), (scaled(0.25), 2), (scaled(0.3), 1), (scaled(0.3), 1), (plain.clone(), 3)]
    {
        update(&be, &mut m, &next).unwrap();
        same(&be, &m, &made(&be, &next, None, SMOOTHERS[0]).unwrap(), "a coarse operator that overflows");
        assert_eq!((m.sizes().len(), m.coarsest.is_some()), (grids, grids > 1));
    }
}

/// A matrix with the entry at (i, j) replaced, or added if there is none.
fn with(a: &Csr<f64>, changes: &[(usize, usize, f64)]) -> Csr<f64> {
    let kept = (0..a.nrows()).flat_map(|i| {
        let (cols, values) = a.row(i);
        cols.iter().zip(values).map(move |(&j, &v)| (i, j as usize, v)).collect::<Vec<_>>()
    });
    let kept = kept.filter(|&(i, j, _)| !changes.iter().any(|&(row, col, _)| (row, col) == (i, j)));
    Csr::from_triplets(a.nrows(), a.ncols(), kept.chain(changes.iter().copied())).unwrap()
}

#[test]
fn refused_values_change_nothing() {
    let be = Cpu::with_threads(2).unwrap();
    for (spec, line) in [("poisson3d:16x15x14", 16), ("poisson2d9:40x31", 40)] {
        let first = varied::<f64>(spec, 0);
        let next = varied::<f64>(spec, 1);
        let refused = [
            ("NaN", with(&next, &[(77, 77, f64::NAN)])),
            ("negative", with(&next, &[(5, 5, -1.0)])),
            ("zero", with(&next, &[(5, 5, 0.0)])),
            ("infinite", with(&next, &[(7, 8, f64::INFINITY), (8, 7, f64::INFINITY)])),
            ("not symmetric", with(&next, &[(7, 8, -0.125)])),
            ("outside all diagonals", with(&next, &[(3, 700, -0.125), (700, 3, -0.125)])),
            ("the end of a line", with(&next, &[(line - 1, line, -0.125), (line, line - 1, -0.125)])),
            // The finest diagonal is positive; only the inverse of the coarsest operator shows it.
            ("indefinite", next.map_entries(|i, j, v| if i == j { 0.35 * v } else { v })),
        ];
        for smoother in SMOOTHERS {
            let mut m = made(&be, &first, None, smoother).unwrap();
            let mut before = state(&be, &m);
            for (what, bad) in &refused {
                let wanted = made(&be, bad, None, smoother).unwrap_err().to_string();
                assert_eq!(update(&be, &mut m, bad).unwrap_err().to_string(), wanted, "{spec} {smoother:?}: {what}");
                assert!(state(&be, &m) == before, "{spec} {smoother:?}: {what} changes something");
                // Accepted values right after.
                let good = if *what == "zero" { &first } else { &next };
                update(&be, &mut m, good).unwrap();
                same(&be, &m, &made(&be, good, None, smoother).unwrap(), what);
                before = state(&be, &m);
            }
            let [wide, other] = ["poisson2d:9x8", "poisson3d:7"].map(|spec| generate::csr::<f64>(spec).unwrap());
            for bad in [&wide, &other] {
                assert!(matches!(update(&be, &mut m, bad), Err(Error::Size { .. })));
            }
            assert!(state(&be, &m) == before);
        }
    }
}

#[test]
fn a_stencil_of_more_points_on_the_same_grid_repeats_the_set_up() {
    let be = Cpu::with_threads(2).unwrap();
    let [few, many] = ["poisson3d:12x13x14", "d3n27:12x13x14"].map(|spec| varied::<f64>(spec, 0));
    let mut m = made(&be, &few, None, SMOOTHERS[0]).unwrap();
    for next in [&many, &few] {
        update(&be, &mut m, next).unwrap();
        same(&be, &m, &made(&be, next, None, SMOOTHERS[0]).unwrap(), "another stencil");
    }
}
