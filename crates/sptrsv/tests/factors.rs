//! Incomplete factorisations: they have the bits of a dense one, agree with A on the pattern, keep stencils, and report
//! each breakdown with its row.

#![allow(clippy::needless_range_loop)] // dense references with the indices of the textbook

use proptest::prelude::*;
use spandrel_formats::{Csr, Real, Triplets, generate};
use spandrel_sptrsv::{
    Diagonal, Error, Factor, Ic0, Ilu0, Iluk, Plan, Ssor, Sweep, System, Systems, Triangle, Triangles, for_each_factor,
    split,
};

fn matrix(n: usize, entries: &[(usize, usize, f64)]) -> Csr<f64> {
    let mut triplets = Triplets::new(n, n).expect("small");
    for &(i, j, v) in entries {
        triplets.push(i, j, v).expect("inside");
    }
    triplets.to_csr().expect("small")
}

/// A square matrix with a full diagonal of magnitude 2 to 8 and random entries around it.
fn square() -> impl Strategy<Value = Csr<f64>> {
    (1usize..24).prop_flat_map(|n| {
        let diagonal = prop::collection::vec((2.0f64..8.0, any::<bool>()), n);
        let rest = prop::collection::vec((0..n, 0..n, -1.0f64..1.0), 0..4 * n);
        (diagonal, rest).prop_map(move |(diagonal, rest)| {
            let on = diagonal.iter().enumerate().map(|(i, &(d, minus))| (i, i, if minus { -d } else { d }));
            let off = rest.iter().copied().filter(|&(i, j, _)| i != j);
            matrix(n, &on.chain(off).collect::<Vec<_>>())
        })
    })
}

/// The same matrix made symmetric, with a positive diagonal.
fn symmetric() -> impl Strategy<Value = Csr<f64>> {
    square().prop_map(|a| {
        let n = a.nrows();
        let mut entries = Vec::new();
        for i in 0..n {
            let (cols, values) = a.row(i);
            for (&j, &v) in cols.iter().zip(values) {
                match (j as usize).cmp(&i) {
                    std::cmp::Ordering::Less => entries.extend([(i, j as usize, v), (j as usize, i, v)]),
                    std::cmp::Ordering::Equal => entries.push((i, i, v.abs())),
                    std::cmp::Ordering::Greater => {}
                }
            }
        }
        matrix(n, &entries)
    })
}

/// The stored entries as a dense matrix; `None` elsewhere.
type Dense = Vec<Vec<Option<f64>>>;

fn dense(a: &Csr<f64>) -> Dense {
    (0..a.nrows()).map(|i| (0..a.ncols()).map(|j| a.get(i, j)).collect()).collect()
}

/// Saad's algorithm 10.6 on dense arrays: levels, then values in the order that the crate documents. L and U in one.
fn dense_ilu(a: &Csr<f64>, most: usize) -> Dense {
    let n = a.nrows();
    let mut level: Vec<Vec<Option<usize>>> = (0..n).map(|i| (0..n).map(|j| a.get(i, j).map(|_| 0)).collect()).collect();
    for i in 0..n {
        for k in 0..i {
            let Some(above) = level[i][k] else { continue };
            for j in k + 1..n {
                let Some(further) = level[k][j] else { continue };
                let fill = above + further + 1;
                if fill <= most {
                    level[i][j] = Some(level[i][j].map_or(fill, |known| known.min(fill)));
                }
            }
        }
    }
    let mut lu: Dense =
        (0..n).map(|i| (0..n).map(|j| level[i][j].map(|_| a.get(i, j).unwrap_or(0.0))).collect()).collect();
    for i in 0..n {
        for k in 0..i {
            let (Some(w), Some(pivot)) = (lu[i][k], lu[k][k]) else { continue };
            let l = w / pivot;
            lu[i][k] = Some(l);
            for j in k + 1..n {
                if let (Some(w), Some(u)) = (lu[i][j], lu[k][j]) {
                    lu[i][j] = Some((-l).mul_add(u, w));
                }
            }
        }
    }
    lu
}

fn dense_ic(a: &Csr<f64>) -> Dense {
    let n = a.nrows();
    let mut l = dense(a);
    for i in 0..n {
        l[i][i + 1..].fill(None);
        for k in 0..i {
            let Some(mut s) = l[i][k] else { continue };
            for j in 0..k {
                if let (Some(x), Some(y)) = (l[i][j], l[k][j]) {
                    s = (-x).mul_add(y, s);
                }
            }
            l[i][k] = Some(s / l[k][k].expect("a diagonal"));
        }
        let d = (0..i).filter_map(|j| l[i][j]).fold(l[i][i].expect("a diagonal"), |s, v| (-v).mul_add(v, s));
        l[i][i] = Some(d.sqrt());
    }
    l
}

/// L and U in one array; L alone for L L^T.
fn together(made: &Triangles<f64>) -> Dense {
    let mut all = dense(made.lower.csr());
    if let Some(upper) = &made.upper {
        for (row, upper) in all.iter_mut().zip(dense(upper.csr())) {
            row.iter_mut().zip(upper).filter(|(_, u)| u.is_some()).for_each(|(to, u)| *to = u);
        }
    }
    all
}

fn gamma<T: Real>(n: usize) -> f64 {
    let nu = n as f64 * T::UNIT_ROUNDOFF;
    nu / (1.0 - nu)
}

/// |a - L U| <= gamma(n + 2) |L| |U| on the pattern for sums of n terms (Higham 2002, theorem 9.3, which holds for any
/// order of the terms). `a` and the factors are given as f64. The sum is computed in f64, whose own gamma is added.
fn agrees<T: Real>(a: &Csr<T>, made: &Triangles<T>, diagonal: impl Fn(f64) -> f64, on: impl Fn(usize, usize) -> bool) {
    let n = a.nrows();
    let wide = |csr: &Csr<T>, unit: bool| -> Vec<Vec<f64>> {
        let at = |i, j| if unit && i == j { 1.0 } else { csr.get(i, j).map_or(0.0, Real::as_f64) };
        (0..n).map(|i| (0..n).map(|j| at(i, j)).collect()).collect()
    };
    let l = wide(made.lower.csr(), made.lower.diagonal() == Diagonal::Unit);
    let u = match &made.upper {
        Some(upper) => wide(upper.csr(), false),
        None => wide(&made.lower.csr().transpose(), false),
    };
    let bound = gamma::<T>(n + 3) + gamma::<f64>(n + 3);
    for i in 0..n {
        for j in (0..n).filter(|&j| on(i, j)) {
            let sum: f64 = (0..n).map(|k| l[i][k] * u[k][j]).sum();
            let size: f64 = (0..n).map(|k| (l[i][k] * u[k][j]).abs()).sum();
            let given = a.get(i, j).map_or(0.0, Real::as_f64);
            let wanted = if i == j { diagonal(given) } else { given };
            assert!((sum - wanted).abs() <= bound * size, "({i}, {j}): {sum} for {wanted}");
        }
    }
}

proptest! {
    #[test]
    fn ilu_has_the_bits_of_a_dense_one_and_agrees_with_a(a in square()) {
        for level in [0, 1, 2, 100] {
            let symbolic = Iluk::with_level(&a, level).expect("a full diagonal");
            let Ok(values) = symbolic.numeric(a.values()) else { continue };
            let made = symbolic.triangles(values).expect("no zero pivot");
            let wanted = dense_ilu(&a, level);
            prop_assert_eq!(together(&made), wanted.clone());
            prop_assert_eq!(symbolic.nnz(), wanted.iter().flatten().flatten().count());
            // A complete factorisation has fill wherever L U has an entry, so it agrees everywhere.
            agrees(&a, &made, |d| d, |i, j| level == 100 || wanted[i][j].is_some());
            if level == 0 {
                prop_assert_eq!(together(&Ilu0::factor(&a).expect("as ILU(0)")), wanted.clone());
                let narrow = a.map(|v| v as f32);
                if let Ok(made) = Ilu0::factor(&narrow) {
                    agrees(&narrow, &made, |d| d, |i, j| wanted[i][j].is_some());
                }
            }
        }
    }

    #[test]
    fn ic_has_the_bits_of_a_dense_one_and_agrees_with_a(a in symmetric()) {
        let symbolic = Ic0::symbolic(&a).expect("a full diagonal");
        let values = symbolic.numeric(a.values()).expect("a positive diagonal");
        let shift = values.shift;
        let made = symbolic.triangles(values).expect("no zero pivot");
        agrees(&a, &made, |d| shift.mul_add(d, d), |i, j| a.get(i, j).is_some());
        if shift == 0.0 {
            prop_assert_eq!(together(&made), dense_ic(&a));
        }
        // The upper triangle is not read.
        let lower = split(&a).expect("square").lower;
        prop_assert_eq!(together(&Ic0::factor(&lower).expect("the same")), together(&made));
    }

    #[test]
    fn new_values_need_no_new_symbolic_phase(a in square(), scale in 0.5f64..2.0) {
        let b = a.map(|v| v * scale - v.signum() * 0.25);
        let (ilu, ssor) = (Iluk::symbolic(&a).expect("a full diagonal"), Ssor::with_omega(&a, 1.3).expect("in range"));
        prop_assert_eq!(ilu.numeric(b.values()).ok(), Iluk::symbolic(&b).expect("the same").numeric(b.values()).ok());
        prop_assert_eq!(ssor.numeric(b.values()).ok(), Ssor::with_omega(&b, 1.3).expect("in range").numeric(b.values()).ok());
    }

    #[test]
    fn ssor_is_the_product_of_its_definition(a in square(), omega in 0.1f64..1.9) {
        let symbolic = Ssor::with_omega(&a, omega).expect("in range");
        let made = symbolic.triangles(symbolic.numeric(a.values()).expect("a diagonal")).expect("a diagonal");
        let n = a.nrows();
        let entry = |i, j| a.get(i, j).unwrap_or(0.0);
        let l = |i: usize, j: usize| if i == j { 1.0 } else { made.lower.csr().get(i, j).unwrap_or(0.0) };
        let u = |i: usize, j: usize| made.upper.as_ref().expect("an upper one").csr().get(i, j).unwrap_or(0.0);
        for i in 0..n {
            for j in 0..n {
                // (D/w + L) (D/w)^-1 (D/w + U), times w/(2-w).
                let left = |k: usize| match k.cmp(&i) {
                    std::cmp::Ordering::Less => entry(i, k),
                    std::cmp::Ordering::Equal => entry(i, i) / omega,
                    std::cmp::Ordering::Greater => 0.0,
                };
                let right = |k: usize| match k.cmp(&j) {
                    std::cmp::Ordering::Less => entry(k, j),
                    std::cmp::Ordering::Equal => entry(j, j) / omega,
                    std::cmp::Ordering::Greater => 0.0,
                };
                let terms = |k: usize| left(k) / (entry(k, k) / omega) * right(k) * omega / (2.0 - omega);
                let wanted: f64 = (0..n).map(terms).sum();
                let found: f64 = (0..n).map(|k| l(i, k) * u(k, j)).sum();
                // Roundings of a term on either side: at most 9 and 8 (including 2 - w and the quotients by w), and n
                // of each sum.
                let size: f64 = (0..n).map(|k| terms(k).abs()).sum();
                prop_assert!((found - wanted).abs() <= gamma::<f64>(2 * n + 17) * 1.01 * size, "({i}, {j}): {found} for {wanted}");
            }
        }
        let gauss_seidel = Ssor::factor(&a).expect("a diagonal").upper.expect("an upper one");
        prop_assert_eq!(gauss_seidel.csr(), &split(&a).expect("square").upper);
    }
}

#[test]
fn a_whole_stencil_stays_one_and_the_sweep_takes_its_factors() {
    for spec in [
        "d3n7:7x6x5",
        "d3n13:7x6x5",
        "d3n27:7x6x5",
        "d3n33:7x6x5",
        "poisson2d:9x8",
        "poisson2d9:9x8",
        "convdiff3d:6,peclet=10",
    ] {
        let a = generate::csr::<f64>(spec).expect("a generator");
        let size = spandrel_formats::Grid::detect(&a).expect("a grid").size;
        let ilu = Ilu0::factor(&a).expect("dominant");
        let ssor = Ssor::factor(&a).expect("dominant");
        let ic = (!spec.starts_with("convdiff")).then(|| Ic0::factor(&a).expect("dominant"));
        assert_eq!(ilu.lower.csr().nnz() + ilu.upper.as_ref().map_or(0, |u| u.csr().nnz()), a.nnz());
        for made in [Some(ilu), Some(ssor), ic].into_iter().flatten() {
            assert_eq!(made.shift, 0.0, "{spec}");
            for triangle in [Some(made.lower), made.upper].into_iter().flatten() {
                let side = triangle.triangle();
                let plan =
                    Sweep::analyze(triangle.into(), Systems::Both).unwrap_or_else(|why| panic!("{spec} {side}: {why}"));
                assert!(plan.lattice().is_whole() && plan.systems().hold(System::Transposed), "{spec} {side}");
                assert_eq!(plan.lattice().size(), size, "{spec} {side}");
                let wanted = ((0..a.nrows()).map(|i| a.row_nnz(i)).max().unwrap_or(1) - 1) / 2;
                assert_eq!(plan.lattice().offsets().len(), wanted, "{spec} {side}");
            }
        }
    }
}

fn error<F: Factor<Value = f64>>(a: &Csr<f64>) -> Error {
    F::factor(a).err().unwrap_or_else(|| panic!("{} took it", F::NAME))
}

#[test]
fn breakdowns_name_the_row() {
    // Row 2 of the Schur complement vanishes: [1 2; 2 4].
    let singular = matrix(3, &[(0, 0, 5.0), (1, 1, 1.0), (1, 2, 2.0), (2, 1, 2.0), (2, 2, 4.0)]);
    assert!(matches!(error::<Ilu0<f64>>(&singular), Error::ZeroPivot { row: 2 }));
    assert!(matches!(error::<Iluk<f64>>(&singular), Error::ZeroPivot { row: 2 }));
    let zero = matrix(2, &[(0, 0, 0.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
    assert!(matches!(error::<Ilu0<f64>>(&zero), Error::ZeroPivot { row: 0 }));
    assert!(matches!(error::<Ssor<f64>>(&zero), Error::ZeroPivot { row: 0 }));
    let tiny = matrix(2, &[(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 2f64.powi(-53))]);
    match error::<Ilu0<f64>>(&tiny) {
        Error::TinyPivot { row: 1, pivot, largest } => assert_eq!((pivot, largest), (2f64.powi(-53), 1.0)),
        other => panic!("{other}"),
    }
    let just = matrix(2, &[(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 2f64.powi(-52))]);
    assert!(Ilu0::factor(&just).is_ok());
    // The scale of a row does not matter.
    assert!(Ilu0::factor(&matrix(1, &[(0, 0, 1e-300)])).is_ok());

    let hollow = matrix(3, &[(0, 0, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 2, 1.0)]);
    let wide = Csr::<f64>::new(1, 2, vec![0, 0], vec![], vec![]).expect("valid");
    let nan = matrix(2, &[(0, 0, 1.0), (1, 0, f64::NAN), (1, 1, 1.0)]);
    let huge = matrix(2, &[(0, 0, 1e-300), (0, 1, 1e-300), (1, 0, 1e300), (1, 1, 1.0)]);
    macro_rules! each {
        ([] $(($stem:ident, $Type:ident)),*) => {$(
            assert_eq!(spandrel_sptrsv::$Type::<f64>::NAME, stringify!($stem));
            match error::<spandrel_sptrsv::$Type<f64>>(&hollow) {
                Error::MissingPivot { row: 1 } => {}
                // Fill may repair a pivot. Here it does not.
                Error::ZeroPivot { row: 1 } if stringify!($stem) == "ilut" => {}
                other => panic!("{}: {other}", stringify!($stem)),
            }
            assert!(matches!(error::<spandrel_sptrsv::$Type<f64>>(&wide), Error::NotSquare { nrows: 1, ncols: 2 }));
            assert!(matches!(error::<spandrel_sptrsv::$Type<f64>>(&nan), Error::NotFinite { row: 1 }));
            let symbolic = spandrel_sptrsv::$Type::symbolic(&singular).expect("a full diagonal");
            assert!(matches!(symbolic.numeric(&[1.0; 4]), Err(Error::Shape { what: "values", found: 4, expected: 5 })));
        )*};
    }
    for_each_factor!(each);
    assert!(matches!(error::<Ilu0<f64>>(&huge), Error::NotFinite { row: 1 }));
    for omega in [0.0, 2.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(Ssor::with_omega(&singular, omega), Err(Error::Omega { .. })), "{omega}");
    }
    let messages = [
        error::<Ilu0<f64>>(&singular),
        error::<Ilu0<f64>>(&tiny),
        error::<Ilu0<f64>>(&hollow),
        error::<Ilu0<f64>>(&nan),
        error::<Ic0<f64>>(&matrix(1, &[(0, 0, -1.0)])),
        Error::NotPositive { row: 3, pivot: -0.5, shift: 0.001 },
        Error::Omega { omega: 2.0 },
    ];
    insta::assert_snapshot!(messages.map(|message| message.to_string()).join("\n"));
}

#[test]
fn an_indefinite_matrix_is_shifted_and_the_shift_is_said() {
    // The pivot of row 1 is (1 + alpha) - 4 / (1 + alpha): positive from alpha > 1 on, and 1.024 is the first of its
    // doublings.
    let a = matrix(2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 1.0)]);
    let made = Ic0::factor(&a).expect("a positive diagonal");
    assert_eq!(made.shift, 1e-3 * 1024.0);
    agrees(&a, &made, |d| d + made.shift * d, |_, _| true);
    // Positive definite, but neither an M- nor an H-matrix (Kershaw 1978): without fill the last pivot is 3 - 4/3 - 5 <
    // 0.
    let kershaw = [[3.0, -2.0, 0.0, 2.0], [-2.0, 3.0, -2.0, 0.0], [0.0, -2.0, 3.0, -2.0], [2.0, 0.0, -2.0, 3.0]];
    let entries: Vec<_> =
        (0..16).map(|e| (e / 4, e % 4, kershaw[e / 4][e % 4])).filter(|entry| entry.2 != 0.0).collect();
    let a = matrix(4, &entries);
    let made = Ic0::factor(&a).expect("a positive diagonal");
    assert!(made.shift > 0.0 && made.shift < 1.0, "{}", made.shift);
    agrees(&a, &made, |d| d + made.shift * d, |i, j| a.get(i, j).is_some());
    // A shift by the diagonal cannot repair a diagonal entry that is not positive.
    let negative = matrix(2, &[(0, 0, 1.0), (1, 1, -1.0)]);
    assert!(matches!(error::<Ic0<f64>>(&negative), Error::NotPositive { row: 1, shift: 0.0, .. }));
}

#[test]
fn fill_beyond_its_limit_is_refused_at_its_row() {
    // An arrow with its hub first. Eliminating row 0 fills everything: two entries per pair of the 9 other rows.
    let mut entries: Vec<_> = (0..10).map(|i| (i, i, 10.0)).collect();
    entries.extend((1..10).flat_map(|i| [(0, i, 1.0), (i, 0, 1.0)]));
    let arrow = matrix(10, &entries);
    let error = |level, limit| Iluk::with_limit(&arrow, level, limit).map(|made| made.nnz());
    assert_eq!(error(1, 100).expect("as many as there are"), 100);
    assert_eq!(error(0, 28).expect("no fill"), 28);
    // Rows 0 to 4 have all 50 entries.
    for (limit, at) in [(49, 4), (50, 5), (99, 9), (0, 0)] {
        let refused = error(1, limit);
        assert!(
            matches!(refused, Err(Error::Fill { row, level: 1, limit: l }) if (row, l) == (at, limit)),
            "{refused:?}"
        );
    }
}

#[test]
fn no_rows_have_factors_too() {
    let none = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).expect("valid");
    assert_eq!(Ilu0::factor(&none).expect("nothing").lower.nrows(), 0);
    assert_eq!(Iluk::factor(&none).expect("nothing").lower.nrows(), 0);
    assert_eq!(Ic0::factor(&none).expect("nothing").lower.triangle(), Triangle::Lower);
    assert_eq!(Ssor::factor(&none).expect("nothing").lower.nrows(), 0);
}

#[test]
fn patterns_of_many_rows_are_the_triangles_of_a() {
    // More rows than a task has.
    let a: Csr<f64> = generate::csr("poisson2d:150").expect("a matrix");
    let parts = split(&a).expect("square");
    let (ilu, ic) = (Ilu0::symbolic(&a).expect("factors"), Ic0::symbolic(&a).expect("factors"));
    let upper = ilu.upper().expect("ILU(0) has two factors");
    assert_eq!((ic.lower().row_ptr(), ic.lower().col_idx()), (parts.lower.row_ptr(), parts.lower.col_idx()));
    assert_eq!((upper.row_ptr(), upper.col_idx()), (parts.upper.row_ptr(), parts.upper.col_idx()));
    for i in 0..a.nrows() {
        let cols = ic.lower().row(i);
        assert_eq!(ilu.lower().row(i), &cols[..cols.len() - 1]);
    }

    let without = |rows: &[usize]| {
        let (n, _, row_ptr, cols, values) = a.clone().into_parts();
        let mut triplets = Triplets::new(n, n).expect("small");
        for i in 0..n {
            for k in row_ptr[i] as usize..row_ptr[i + 1] as usize {
                if cols[k] as usize != i || !rows.contains(&i) {
                    triplets.push(i, cols[k] as usize, values[k]).expect("inside");
                }
            }
        }
        triplets.to_csr().expect("small")
    };
    let lacking = without(&[20_000, 9_001, 12_345]);
    for error in [error::<Ilu0<f64>>(&lacking), error::<Ic0<f64>>(&lacking)] {
        assert!(matches!(error, Error::MissingPivot { row: 9_001 }), "{error}");
    }
}
