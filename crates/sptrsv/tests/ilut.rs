//! ILUT and ILUTP: they have the patterns of a dense one and the bits of the numeric phase on that pattern; column
//! pivoting repairs breakdowns.

#![allow(clippy::needless_range_loop)] // dense references with the indices of the textbook

use proptest::prelude::*;
use spandrel_formats::{Csr, generate};
use spandrel_sptrsv::{Error, Factor, Iluk, Ilut, IlutOptions, Pattern};

const COMPLETE: IlutOptions = IlutOptions { drop: 0.0, fill: f64::INFINITY, pivot: 1.0 };

/// A square matrix with random entries. A diagonal entry, if it exists, has a magnitude of 0.5 to 4.
fn square(whole_diagonal: bool) -> impl Strategy<Value = Csr<f64>> {
    (1usize..20).prop_flat_map(move |n| {
        let diagonal = prop::collection::vec((0.5f64..4.0, any::<bool>()), n);
        let rest = prop::collection::btree_map((0..n, 0..n), -1.0f64..1.0, 0..5 * n);
        (diagonal, rest).prop_map(move |(diagonal, rest)| {
            let on = diagonal.iter().enumerate().filter(|(_, d)| whole_diagonal || d.1).map(|(i, &(d, _))| (i, i, d));
            let off = rest.iter().filter(|((i, j), _)| i != j).map(|(&(i, j), &v)| (i, j, v));
            Csr::from_triplets(n, n, on.chain(off).collect::<Vec<_>>()).expect("inside")
        })
    })
}

fn options() -> impl Strategy<Value = IlutOptions> {
    let drops = prop::sample::select(vec![0.0, 1e-3, 0.05, 0.3]);
    let fills = prop::sample::select(vec![1.0, 1.5, 3.0, f64::INFINITY]);
    (drops, fills).prop_map(|(drop, fill)| IlutOptions { drop, fill, pivot: 1.0 })
}

fn rows(pattern: &Pattern) -> Vec<Vec<usize>> {
    (0..pattern.nrows()).map(|i| pattern.row(i).iter().map(|&j| j as usize).collect()).collect()
}

/// The definition in the module's head on dense arrays: columns of L and of U by rows; `None` if a pivot is zero or
/// tiny.
fn dense_ilut(a: &Csr<f64>, options: IlutOptions) -> Option<[Vec<Vec<usize>>; 2]> {
    let n = a.nrows();
    let mut made: [Vec<Vec<usize>>; 2] = [Vec::new(), Vec::new()];
    let mut u = vec![vec![0.0; n]; n];
    for i in 0..n {
        let given: Vec<Option<f64>> = (0..n).map(|j| a.get(i, j)).collect();
        let norm = given.iter().flatten().fold(0.0, |most: f64, v| most.max(v.abs()));
        let least = options.drop * norm;
        let mut w = given.clone();
        let mut left = Vec::new();
        for k in 0..i {
            let Some(size) = w[k].map(f64::abs).filter(|size| *size >= least) else { continue };
            left.push((k, size));
            let l = w[k]? / u[k][k];
            for &j in made[1][k].iter().filter(|&&j| j > k) {
                w[j] = Some((-l).mul_add(u[k][j], w[j].unwrap_or(0.0)));
            }
        }
        let right = (i + 1..n).filter_map(|j| Some((j, w[j]?.abs()))).filter(|entry| entry.1 >= least).collect();
        let most = (0.5 * options.fill * a.row_nnz(i) as f64).ceil().min(n as f64) as usize;
        let largest = |mut entries: Vec<(usize, f64)>| -> Vec<usize> {
            entries.sort_by(|x, y| y.1.total_cmp(&x.1).then(x.0.cmp(&y.0)));
            let mut cols: Vec<usize> = entries.iter().take(most).map(|entry| entry.0).collect();
            cols.sort_unstable();
            cols
        };
        let (before, mut rest) = (largest(left), largest(right));
        rest.insert(0, i);
        let kept = |j: usize| before.contains(&j) || rest.contains(&j);
        let mut row: Vec<f64> = (0..n).map(|j| given[j].filter(|_| kept(j)).unwrap_or(0.0)).collect();
        for &k in &before {
            row[k] /= u[k][k];
            for &j in made[1][k].iter().filter(|&&j| j > k && kept(j)) {
                row[j] = (-row[k]).mul_add(u[k][j], row[j]);
            }
        }
        if row[i].abs() <= f64::EPSILON * norm {
            return None;
        }
        rest.iter().for_each(|&j| u[i][j] = row[j]);
        made[0].push(before);
        made[1].push(rest);
    }
    Some(made)
}

/// |L U - A| on the pattern: each entry takes at most n terms, so it is within gamma(n + 2) |L| |U| (Higham 2002,
/// theorem 9.3), and the sums here within another gamma(n).
fn agrees(a: &Csr<f64>, symbolic: &Ilut<f64>, everywhere: bool) {
    let n = a.nrows();
    let made = symbolic.triangles(symbolic.numeric(a.values()).expect("sound pivots")).expect("no zero pivot");
    let (l, u) = (made.lower.csr(), made.upper.expect("two factors"));
    let u = u.csr();
    let l = |i, j| if i == j { 1.0 } else { l.get(i, j).unwrap_or(0.0) };
    let bound = 2.0 * (n + 3) as f64 * f64::EPSILON;
    for i in 0..n {
        for j in (0..n).filter(|&j| everywhere || u.get(i, j).is_some() || l(i, j) != 0.0) {
            let terms: Vec<f64> = (0..n).map(|k| l(i, k) * u.get(k, j).unwrap_or(0.0)).collect();
            let (sum, size) = terms.iter().fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            assert!((sum - a.get(i, j).unwrap_or(0.0)).abs() <= bound * size, "({i}, {j}): {sum}");
        }
    }
}

proptest! {
    #[test]
    fn mended_factors_are_those_of_a_matrix_that_differs_in_its_diagonal_alone(a in square(false)) {
        let symbolic = Ilut::new(&a, COMPLETE).expect("square");
        let made = symbolic.mended(a.values()).expect("ilut has a rule").expect("finite");
        if let Ok(plain) = symbolic.numeric(a.values()) {
            prop_assert_eq!(&made, &plain);
        }
        prop_assert_eq!(&symbolic.usable(a.values()).expect("finite"), &made);
        let made = symbolic.triangles(made).expect("no zero pivot");
        let (l, u) = (made.lower.csr(), made.upper.as_ref().expect("two factors").csr());
        let n = a.nrows();
        // As in `agrees`, off the diagonal.
        let bound = 2.0 * (n + 3) as f64 * f64::EPSILON;
        for i in 0..n {
            for j in 0..n {
                let term = |k: usize| if i == k { 1.0 } else { l.get(i, k).unwrap_or(0.0) } * u.get(k, j).unwrap_or(0.0);
                let (sum, size) = (0..n).map(term).fold((0.0, 0.0f64), |(sum, size), t| (sum + t, size + t.abs()));
                let apart = (sum - a.get(i, j).unwrap_or(0.0)).abs();
                let largest = a.row(i).1.iter().fold(0.0f64, |most, v| most.max(v.abs()));
                let stand_in = 0.01 * if largest > 0.0 { largest } else { 1.0 };
                let is_replaced = i == j && u.get(i, i).is_some_and(|pivot| pivot.abs() == stand_in);
                prop_assert!(apart <= bound * size || is_replaced, "({}, {}): {} of {}", i, j, sum, size);
            }
        }
    }

    #[test]
    fn the_pattern_is_that_of_a_dense_one(a in square(true), options in options()) {
        let symbolic = Ilut::new(&a, options).expect("square");
        let Some(wanted) = dense_ilut(&a, options) else { return Ok(()) };
        prop_assert_eq!([rows(symbolic.lower()), rows(symbolic.upper().expect("two factors"))], wanted);
        agrees(&a, &symbolic, options == COMPLETE);
    }

    #[test]
    fn without_thresholds_it_is_the_complete_factorisation(a in square(true)) {
        let (ilut, iluk) = (Ilut::new(&a, COMPLETE).expect("square"), Iluk::with_level(&a, 100).expect("a full diagonal"));
        prop_assert_eq!((ilut.lower(), ilut.upper()), (iluk.lower(), iluk.upper()));
        prop_assert_eq!(ilut.numeric(a.values()).ok(), iluk.numeric(a.values()).ok());
    }

    #[test]
    fn the_scale_of_a_row_changes_nothing(a in square(true), options in options(), exponents in prop::collection::vec(-300i32..300, 20)) {
        let mut scaled = a.clone();
        for i in 0..a.nrows() {
            let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
            scaled.values_mut()[range].iter_mut().for_each(|v| *v *= 2f64.powi(exponents[i]));
        }
        let (one, other) = (Ilut::new(&a, options).expect("square"), Ilut::new(&scaled, options).expect("square"));
        // Replacements have the scale of the row as well.
        prop_assert_eq!((one.lower(), one.upper()), (other.lower(), other.upper()));
    }

    #[test]
    fn column_pivots_are_the_largest_of_their_rows(a in square(false)) {
        // The pattern of the complete factorisation, so that nothing but pivoting decides.
        let (q, symbolic) = Ilut::pivoted(&a, COMPLETE).expect("square");
        let aq = q.permute_columns(&a).expect("square");
        prop_assert_eq!(symbolic.given().row_ptr(), aq.row_ptr());
        prop_assert_eq!(symbolic.given().col_idx(), aq.col_idx());
        // Zero or tiny pivots remain only if the matrix is singular or nearly so.
        let Ok(values) = symbolic.numeric(aq.values()) else { return Ok(()) };
        agrees(&aq, &symbolic, true);
        let upper = symbolic.upper().expect("two factors");
        for i in 0..a.nrows() {
            let row = &values.upper[upper.row_ptr()[i] as usize..upper.row_ptr()[i + 1] as usize];
            prop_assert!(row.iter().all(|v| v.abs() <= row[0].abs()), "{row:?}");
        }
    }

    #[test]
    fn without_pivoting_nothing_is_permuted(a in square(true), options in options()) {
        let (q, pivoted) = Ilut::pivoted(&a, IlutOptions { pivot: 0.0, ..options }).expect("square");
        let plain = Ilut::new(&a, options).expect("square");
        prop_assert!(q.is_identity());
        prop_assert_eq!((pivoted.lower(), pivoted.upper()), (plain.lower(), plain.upper()));
    }
}

#[test]
fn new_values_keep_the_pattern() {
    let a: Csr<f64> = generate::csr("convdiff2d:12,peclet=20").expect("a matrix");
    let symbolic = Ilut::new(&a, IlutOptions { drop: 0.01, ..IlutOptions::default() }).expect("square");
    let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    let (one, two) = (symbolic.numeric(a.values()).expect("dominant"), symbolic.numeric(&doubled).expect("dominant"));
    assert_eq!(one.lower, two.lower);
    assert!(one.upper.iter().zip(&two.upper).all(|(one, two)| 2.0 * one == *two));
    // A lower threshold keeps more, up to the limit per row.
    let nnz = |drop, fill| Ilut::new(&a, IlutOptions { drop, fill, pivot: 0.0 }).expect("square").nnz();
    assert!(nnz(1e-1, 10.0) < nnz(1e-2, 10.0) && nnz(1e-2, 10.0) < nnz(1e-4, 10.0));
    assert!(nnz(0.0, 2.0) <= 2 * a.nnz() + 3 * a.nrows());
    let narrow = Ilut::new(&a.map(|v| v as f32), IlutOptions::default()).expect("square");
    assert!(narrow.numeric(a.map(|v| v as f32).values()).is_ok());
}

#[test]
fn zero_pivots_are_left_to_the_numeric_phase_and_column_pivots_mend_them() {
    // A saddle point without stored diagonal entries in its last rows. Fill makes their pivots.
    let saddle =
        Csr::from_triplets(4, 4, [(0, 0, 2.0), (1, 1, 3.0), (0, 2, 1.0), (2, 0, 1.0), (1, 3, 1.0), (3, 1, 1.0)])
            .expect("inside");
    let made = Ilut::factor(&saddle).expect("pivots of fill");
    assert_eq!(made.upper.expect("two factors").csr().diagonal(), [2.0, 3.0, -0.5, -1.0 / 3.0]);
    // No fill reaches the diagonal here.
    let cycle = Csr::from_triplets(3, 3, [(0, 1, 1.0), (1, 2, 2.0), (2, 0, 4.0)]).expect("inside");
    assert!(matches!(Ilut::factor(&cycle).err(), Some(Error::ZeroPivot { row: 0 })));
    // A hundredth of the row replaces the zero pivot, and the last row's pivot then consists of fill.
    let made = Ilut::symbolic(&cycle).expect("square").mended(cycle.values()).expect("a rule").expect("finite");
    assert_eq!((made.lower, made.upper), (vec![400.0, -20_000.0], vec![0.01, 1.0, 0.02, 2.0, 40_000.0]));
    // A hundredth of a subnormal number is 0. The pivot in its place is one that can be divided by.
    let subnormal = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 0, 5e-324)]).expect("inside");
    let ilut = Ilut::symbolic(&subnormal).expect("square");
    let made = ilut.mended(subnormal.values()).expect("a rule").expect("finite");
    assert_eq!((&made.lower, &made.upper), (&vec![5e-324], &vec![1.0, f64::MIN_POSITIVE]));
    ilut.triangles(made).expect("no zero pivot");
    let (q, ilut) = Ilut::pivoted(&cycle, IlutOptions::default()).expect("square");
    assert_eq!(q.perm(), [1, 2, 0]);
    let made = ilut.numeric(q.permute_columns(&cycle).expect("square").values()).expect("pivots");
    assert_eq!((made.lower, made.upper), (vec![], vec![1.0, 2.0, 4.0]));
    // An empty row, NaN, and values that overflow: the first phase continues, and the second reports the row.
    let empty = Csr::from_triplets(2, 2, [(0, 0, 1.0)]).expect("inside");
    let nan = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 0, f64::NAN), (1, 1, 1.0)]).expect("inside");
    let huge =
        Csr::from_triplets(2, 2, [(0, 0, 1e-300), (0, 1, 1e-300), (1, 0, 1e300), (1, 1, 1e300)]).expect("inside");
    assert!(matches!(Ilut::factor(&empty).err(), Some(Error::ZeroPivot { row: 1 })));
    for pivoted in [false, true] {
        for (a, row) in [(&nan, 1), (&huge, 1)] {
            let (q, ilut) =
                Ilut::pivoted(a, IlutOptions { pivot: f64::from(u8::from(pivoted)), ..COMPLETE }).expect("square");
            let values = q.permute_columns(a).expect("square");
            let found = ilut.numeric(values.values()).err();
            assert!(
                matches!(found, Some(Error::NotFinite { row: r } | Error::ZeroPivot { row: r }) if r == row),
                "{found:?}"
            );
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let a = Csr::<f64>::identity(2).expect("small");
    let default = IlutOptions::default();
    let bad = [
        IlutOptions { drop: -1.0, ..default },
        IlutOptions { drop: f64::NAN, ..default },
        IlutOptions { drop: f64::INFINITY, ..default },
        IlutOptions { fill: 0.5, ..default },
        IlutOptions { fill: f64::NAN, ..default },
        IlutOptions { pivot: 1.5, ..default },
        IlutOptions { pivot: f64::NAN, ..default },
    ];
    let messages = bad.map(|options| Ilut::new(&a, options).expect_err("out of range").to_string());
    insta::assert_snapshot!(messages.join("\n"));
    let wide = Csr::<f64>::new(1, 2, vec![0, 0], vec![], vec![]).expect("valid");
    assert!(matches!(Ilut::pivoted(&wide, default).err(), Some(Error::NotSquare { nrows: 1, ncols: 2 })));
    let none = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).expect("valid");
    assert_eq!(Ilut::factor(&none).expect("nothing").lower.nrows(), 0);
}
