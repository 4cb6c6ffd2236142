//! Compares the results with products of sparse matrices, entry by entry.

use super::*;
use crate::{generate, product};

fn part(a: &Csr<f64>, part: Part) -> Csr<f64> {
    let keep = |i: usize, j: u32| match part {
        Part::All => true,
        Part::Lower => (j as usize) < i,
        Part::Upper => j as usize > i,
    };
    let kept = |i: usize| a.row(i).0.iter().zip(a.row(i).1).filter(move |entry| keep(i, *entry.0));
    let fill = |i: usize, cols: &mut [u32], values: &mut [f64]| {
        for ((col, value), (&j, &v)) in cols.iter_mut().zip(values).zip(kept(i)) {
            (*col, *value) = (j, v);
        }
    };
    Csr::from_rows(a.nrows(), a.ncols(), |i| kept(i).count(), fill).unwrap()
}

/// Checks that entries differ by at most gamma(terms) of the sums of magnitudes, and that every entry of the product is
/// there.
fn near(found: &Csr<f64>, exact: &Csr<f64>, magnitudes: &Csr<f64>, what: &str) {
    assert_eq!((found.nrows(), found.ncols()), (exact.nrows(), exact.ncols()), "{what}");
    // Each product has fewer terms than this.
    let bound = 1000.0 * f64::EPSILON;
    for i in 0..found.nrows() {
        for &j in exact.row(i).0 {
            assert!(found.get(i, j as usize).is_some(), "{what}: ({i}, {j}) is missing");
        }
        for (&j, v) in found.row(i).0.iter().zip(found.row(i).1) {
            let (wanted, size) = (exact.get(i, j as usize), magnitudes.get(i, j as usize));
            let difference = (v - wanted.unwrap_or(0.0)).abs();
            assert!(difference <= bound * size.unwrap_or(0.0), "{what}: ({i}, {j}) is {v}, expected {wanted:?}");
        }
    }
}

fn scaled(mut a: Csr<f64>, divisors: &[f64]) -> Csr<f64> {
    let row_ptr = a.row_ptr().to_vec();
    for (ends, d) in row_ptr.windows(2).zip(divisors) {
        a.values_mut()[ends[0] as usize..ends[1] as usize].iter_mut().for_each(|v| *v /= d);
    }
    a
}

/// Changes the values so that every order of summation rounds.
fn uneven(mut a: Csr<f64>) -> Csr<f64> {
    for (k, v) in a.values_mut().iter_mut().enumerate() {
        *v *= 1.0 + ((k * 7919) % 1013) as f64 / 3000.0;
    }
    a
}

fn all_products(a: &Csr<f64>, halved: [bool; 3], what: &str) {
    let grid = Grid::detect(a).unwrap();
    let stencil = Stencil::of(&grid);
    let to = Coarsening::new(stencil.size(), halved, stencil.unknowns());
    let p = to.interpolation::<f64>().unwrap();
    let restriction = p.transpose();
    let abs = |a: &Csr<f64>| a.map(f64::abs);
    let triple = |a: &Csr<f64>| product(&restriction, &product(a, &p).unwrap()).unwrap();
    let (coarse, next) = to.galerkin(a, &stencil).unwrap();
    near(&coarse, &triple(a), &triple(&abs(a)), &format!("{what} {halved:?} galerkin"));
    assert_eq!((next.size(), next.unknowns()), (to.coarse(), stencil.unknowns()));
    let divisors = |n: usize| (0..n).map(|i| 1.5 + (i % 5) as f64).collect::<Vec<f64>>();
    let (fine_by, coarse_by) = (divisors(a.nrows()), divisors(coarse.nrows()));
    let down = |a: &Csr<f64>| scaled(product(&restriction, &part(a, Part::Lower)).unwrap(), &coarse_by);
    let found = to.restricted_lower(a, &stencil, &coarse_by).unwrap();
    near(&found, &down(a), &down(&abs(a)), &format!("{what} {halved:?} restricted"));
    let up = |a: &Csr<f64>| scaled(product(&part(a, Part::Upper), &p).unwrap(), &fine_by);
    let found = to.prolonged_upper(a, &stencil, &fine_by).unwrap();
    near(&found, &up(a), &up(&abs(a)), &format!("{what} {halved:?} prolonged"));
    // Coarsens once more, by the resulting stencil.
    let extents = to.coarse();
    if extents.iter().all(|&n| n != 1 || stencil.size().contains(&1)) && extents.iter().any(|&n| n > 1) {
        let next_to = Coarsening::new(extents, [true; 3], stencil.unknowns());
        let p = next_to.interpolation::<f64>().unwrap();
        let triple = |a: &Csr<f64>| product(&p.transpose(), &product(a, &p).unwrap()).unwrap();
        let (found, _) = next_to.galerkin(&coarse, &next).unwrap();
        near(&found, &triple(&coarse), &triple(&abs(&coarse)), &format!("{what} {halved:?} twice"));
    }
}

#[test]
fn products_are_those_of_sparse_matrices() {
    for spec in [
        "poisson1d:17",
        "tridiag:16",
        "poisson2d:9x8",
        "poisson2d:2x2",
        "poisson2d9:7x12",
        "convdiff2d:13x6",
        "d3n7:8x7x6",
        "d3n7:3x9x2",
        "d3n13:9x8x7",
        "d3n27:6x5x9",
        "d3n33:9x7x8",
        "gfem:n=60,p=2",
    ] {
        let a = uneven(generate::csr::<f64>(spec).unwrap());
        for halved in (1..8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0]) {
            all_products(&a, halved, spec);
        }
    }
}

#[test]
fn several_unknowns_and_masked_rows() {
    for spec in ["elasticity3d:6x5x4", "elasticity2d:9x8"] {
        let a = generate::csr::<f64>(spec).unwrap();
        for halved in [[true, true, true], [true, false, false], [false, true, true]] {
            all_products(&uneven(a.clone()), halved, spec);
        }
    }
    // Some rows hold only their diagonal.
    let whole = generate::csr::<f64>("d3n27:7x8x6").unwrap();
    let masked = |i: usize| i % 5 == 3;
    let fill = |i: usize, cols: &mut [u32], values: &mut [f64]| {
        if masked(i) {
            (cols[0], values[0]) = (i as u32, 2.0);
        } else {
            cols.copy_from_slice(whole.row(i).0);
            values.copy_from_slice(whole.row(i).1);
        }
    };
    let count = |i: usize| if masked(i) { 1 } else { whole.row_nnz(i) };
    let a = Csr::from_rows(whole.nrows(), whole.ncols(), count, fill).unwrap();
    all_products(&uneven(a), [true; 3], "masked");
}

#[test]
fn long_lines_are_cut_and_threads_do_not_matter() {
    all_products(&uneven(generate::csr::<f64>("tridiag:9001").unwrap()), [true, false, false], "long");
    all_products(&uneven(generate::csr::<f64>("poisson2d:5003x3").unwrap()), [true, true, false], "long");
    let a = uneven(generate::csr::<f64>("d3n27:40x37x35").unwrap());
    let stencil = Stencil::of(&Grid::detect(&a).unwrap());
    let to = Coarsening::new(stencil.size(), [true; 3], 1);
    let by = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| to.galerkin(&a, &stencil).unwrap().0)
    };
    assert_eq!(by(1), by(3));
}

#[test]
fn injection_takes_rows_and_columns() {
    let a = uneven(generate::csr::<f64>("d3n27:8x4x6").unwrap());
    let to = Injection::new([8, 4, 6]).unwrap();
    let p = to.interpolation::<f64>().unwrap();
    assert_eq!((p.nnz(), p.get(2 * (1 + 8 * 2 + 32), 1 + 4 * 2 / 2 + 8)), (24, p.get(2 * (1 + 8 * 2 + 32), 13)));
    let divisors = |n: usize| (0..n).map(|i| 1.5 + (i % 5) as f64).collect::<Vec<f64>>();
    let down = scaled(product(&p.transpose(), &part(&a, Part::Lower)).unwrap(), &divisors(24));
    assert_eq!(to.restricted_lower(&a, &divisors(24)).unwrap(), down);
    let up = scaled(product(&part(&a, Part::Upper), &p).unwrap(), &divisors(192));
    assert_eq!(to.prolonged_upper(&a, &divisors(192)).unwrap(), up);
    assert!(Injection::new([8, 3, 6]).is_err());
    assert!(to.prolonged_upper(&a, &divisors(24)).is_err());
}

#[test]
fn what_is_not_of_the_stencil_is_refused() {
    let a = generate::csr::<f64>("d3n7:6").unwrap();
    let other = generate::csr::<f64>("d3n27:6").unwrap();
    let stencil = Stencil::of(&Grid::detect(&a).unwrap());
    let to = Coarsening::new([6, 6, 6], [true; 3], 1);
    assert!(matches!(to.galerkin(&other, &stencil), Err(crate::Error::Invalid { .. })));
    let small = generate::csr::<f64>("d3n7:5").unwrap();
    assert!(matches!(to.galerkin(&small, &stencil), Err(crate::Error::Shape { .. })));
    let size = to.galerkin(&a, &stencil).unwrap().0.nrows();
    assert!(matches!(to.restricted_lower(&a, &stencil, &vec![1.0; size + 1]), Err(crate::Error::Shape { .. })));
}

#[test]
fn a_line_is_interpolated_linearly() {
    let p = Coarsening::new([7, 1, 1], [true; 3], 1).interpolation::<f64>().unwrap();
    let dense: Vec<Vec<f64>> = (0..7).map(|i| (0..3).map(|j| p.get(i, j).unwrap_or(0.0)).collect()).collect();
    assert_eq!(dense[0], [0.5, 0.0, 0.0]);
    assert_eq!(dense[1], [1.0, 0.0, 0.0]);
    assert_eq!(dense[2], [0.5, 0.5, 0.0]);
    assert_eq!(dense[5], [0.0, 0.0, 1.0]);
    assert_eq!(dense[6], [0.0, 0.0, 0.5]);
    let p = Coarsening::new([4, 1, 1], [true; 3], 1).interpolation::<f64>().unwrap();
    assert_eq!((p.ncols(), p.row(3).1, p.row(2).1), (2, &[1.0][..], &[0.5, 0.5][..]));
}
