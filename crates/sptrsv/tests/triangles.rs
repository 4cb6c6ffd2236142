//! Triangles, levels and the serial solve: properties of random matrices, each error with its row, and a drawing.

use proptest::prelude::*;
use spandrel_formats::{Csr, Real, Triplets, generate};
use spandrel_sptrsv::{Diagonal, Error, Levels, Triangle, Triangular, serial, split};

/// Doubled precision: an unevaluated sum of two f64 (Dekker 1971, A floating-point technique for extending the
/// precision).
#[derive(Clone, Copy)]
struct Doubled(f64, f64);

impl Doubled {
    fn plus_product(self, a: f64, b: f64) -> Self {
        let p = a * b;
        let e = a.mul_add(b, -p);
        let s = self.0 + p;
        let t = s - self.0;
        let r = (self.0 - (s - t)) + (p - t);
        Doubled(s, self.1 + (r + e))
    }
    fn value(self) -> f64 {
        self.0 + self.1
    }
}

fn matrix(n: usize, entries: &[(usize, usize, f64)]) -> Csr<f64> {
    let mut triplets = Triplets::new(n, n).expect("small");
    for &(i, j, v) in entries {
        triplets.push(i, j, v).expect("inside");
    }
    triplets.to_csr().expect("small")
}

/// A square matrix with a full diagonal of magnitude 1/2 to 2 and random entries around it.
fn square() -> impl Strategy<Value = Csr<f64>> {
    (1usize..40).prop_flat_map(|n| {
        let diagonal = prop::collection::vec((0.5f64..2.0, any::<bool>()), n);
        let rest = prop::collection::vec((0..n, 0..n, -1.0f64..1.0), 0..4 * n);
        (diagonal, rest).prop_map(move |(diagonal, rest)| {
            let on = diagonal.iter().enumerate().map(|(i, &(d, minus))| (i, i, if minus { -d } else { d }));
            let off = rest.iter().copied().filter(|&(i, j, _)| i != j);
            matrix(n, &on.chain(off).collect::<Vec<_>>())
        })
    })
}

fn triangle() -> impl Strategy<Value = Triangle> {
    prop_oneof![Just(Triangle::Lower), Just(Triangle::Upper)]
}

fn part_of(a: &Csr<f64>, triangle: Triangle) -> Csr<f64> {
    let parts = split(a).expect("square");
    match triangle {
        Triangle::Lower => parts.lower,
        Triangle::Upper => parts.upper,
    }
}

/// Row by row |b - T x| <= gamma(k+2) |T| |x| (Higham 2002, chapter 8), the left side in doubled precision.
fn within_bound<T: Real>(t: &Triangular<T>, b: &[T], x: &[T]) -> Result<(), TestCaseError> {
    for i in 0..t.nrows() {
        let (cols, values) = t.off_diagonal(i);
        let unit = t.diagonal() == Diagonal::Unit;
        let d = if unit { 1.0 } else { t.csr().get(i, i).expect("diagonal").as_f64() };
        let mut residual = Doubled(b[i].as_f64(), 0.0).plus_product(-d, x[i].as_f64());
        let mut scale = (d * x[i].as_f64()).abs();
        for (&j, &v) in cols.iter().zip(values) {
            residual = residual.plus_product(-v.as_f64(), x[j as usize].as_f64());
            scale += (v.as_f64() * x[j as usize].as_f64()).abs();
        }
        let ku = (cols.len() + 2) as f64 * T::UNIT_ROUNDOFF;
        let gamma = ku / (1.0 - ku);
        // The bound is itself summed in f64, and one more gamma of f64 covers that.
        let bound = gamma * scale * (1.0 + (cols.len() + 2) as f64 * f64::UNIT_ROUNDOFF);
        prop_assert!(residual.value().abs() <= bound, "row {i}: {:e} > {bound:e}", residual.value());
    }
    Ok(())
}

proptest! {
    #[test]
    fn split_keeps_every_entry_once_and_the_diagonal_twice(a in square()) {
        let parts = split(&a).expect("square");
        let n = a.nrows();
        let mut seen = 0;
        for i in 0..n {
            for (part, triangle) in [(&parts.lower, Triangle::Lower), (&parts.upper, Triangle::Upper)] {
                let (cols, values) = part.row(i);
                for (&j, &v) in cols.iter().zip(values) {
                    let j = j as usize;
                    prop_assert!(i == j || triangle.holds(i, j));
                    prop_assert_eq!(a.get(i, j), Some(v));
                    seen += 1;
                }
            }
        }
        prop_assert_eq!(seen, a.nnz() + n);
        prop_assert_eq!(split(&a.transpose()).expect("square").upper, parts.lower.transpose());
    }

    #[test]
    fn levels_respect_every_dependency(a in square(), triangle in triangle()) {
        let n = a.nrows();
        let levels = Levels::of(&a, triangle).expect("square");
        let mut level_of = vec![usize::MAX; n];
        for level in 0..levels.count() {
            prop_assert!(!levels.rows(level).is_empty());
            prop_assert!(levels.rows(level).is_sorted());
            for &i in levels.rows(level) {
                prop_assert_eq!(level_of[i as usize], usize::MAX, "a row stands in one level");
                level_of[i as usize] = level;
            }
        }
        for i in 0..n {
            prop_assert!(level_of[i] < levels.count(), "every row stands in a level");
            let needed = a.row(i).0.iter().map(|&j| j as usize).filter(|&j| triangle.holds(i, j));
            let earliest = needed.map(|j| level_of[j] + 1).max().unwrap_or(0);
            prop_assert_eq!(level_of[i], earliest, "as early as its dependencies allow, and not earlier");
        }
        prop_assert_eq!(levels.widths().sum::<usize>(), n);
        prop_assert_eq!(levels.widths().max(), Some(levels.max_width()));
        prop_assert_eq!(&levels, &Levels::of(&part_of(&a, triangle), triangle).expect("square"));
    }

    #[test]
    fn serial_solve_stays_within_the_bound(a in square(), triangle in triangle(), unit in any::<bool>(), seed in -1.0f64..1.0) {
        let diagonal = if unit { Diagonal::Unit } else { Diagonal::NonUnit };
        let t = Triangular::new(part_of(&a, triangle), triangle, diagonal).expect("a full diagonal");
        let b: Vec<f64> = (0..a.nrows()).map(|i| seed + (i as f64).sin()).collect();
        let mut x = vec![f64::NAN; a.nrows()];
        serial::solve(&t, &b, &mut x).expect("lengths fit");
        within_bound(&t, &b, &x)?;

        let t = Triangular::new(t.into_csr().map(|v| v as f32), triangle, diagonal).expect("a full diagonal");
        let b: Vec<f32> = b.iter().map(|&v| v as f32).collect();
        let mut x = vec![f32::NAN; b.len()];
        serial::solve(&t, &b, &mut x).expect("lengths fit");
        within_bound(&t, &b, &x)?;
    }
}

#[test]
fn terms_are_taken_towards_the_diagonal() {
    // 2^60 and -2^60 cancel; the 1 of the neighbour survives only if it comes last, and is lost if it comes in between
    // or first.
    let big = (1u64 << 60) as f64;
    let lower =
        matrix(4, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0), (3, 0, big), (3, 1, -big), (3, 2, 1.0), (3, 3, 1.0)]);
    let upper =
        matrix(4, &[(0, 0, 1.0), (0, 1, 1.0), (0, 2, -big), (0, 3, big), (1, 1, 1.0), (2, 2, 1.0), (3, 3, 1.0)]);
    for (a, triangle, at) in [(lower, Triangle::Lower, 3), (upper, Triangle::Upper, 0)] {
        for diagonal in [Diagonal::Unit, Diagonal::NonUnit] {
            let t = Triangular::new(a.clone(), triangle, diagonal).expect("triangular");
            let mut b = [1.0; 4];
            b[at] = 0.0;
            let mut x = [f64::NAN; 4];
            serial::solve(&t, &b, &mut x).expect("lengths fit");
            assert_eq!(x[at], -1.0, "{triangle} {diagonal:?}");
        }
    }
}

#[test]
fn the_diagonal_is_multiplied_by_its_rounded_reciprocal() {
    // 5 / 49 and 5 * round(1/49) differ in the last bit.
    let t = Triangular::new(matrix(1, &[(0, 0, 49.0)]), Triangle::Lower, Diagonal::NonUnit).expect("triangular");
    let b = (1..100).map(f64::from).find(|b| b / 49.0 != b * (1.0 / 49.0)).expect("there is one");
    let mut x = [0.0];
    serial::solve(&t, &[b], &mut x).expect("lengths fit");
    assert_eq!(x[0], b * (1.0 / 49.0));
}

#[test]
fn unit_diagonal_ignores_what_is_stored() {
    let stored = matrix(2, &[(0, 0, 7.0), (1, 0, 2.0), (1, 1, 0.0)]);
    let absent = matrix(2, &[(1, 0, 2.0)]);
    for a in [stored, absent] {
        let t = Triangular::new(a, Triangle::Lower, Diagonal::Unit).expect("unit");
        let mut x = [f64::NAN; 2];
        serial::solve(&t, &[3.0, 7.0], &mut x).expect("lengths fit");
        assert_eq!(x, [3.0, 1.0]);
    }
}

#[test]
fn errors_name_the_row() {
    let error = |a: Csr<f64>, triangle| Triangular::new(a, triangle, Diagonal::NonUnit).expect_err("wrong").to_string();
    let full = matrix(2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
    let missing = matrix(3, &[(0, 0, 1.0), (1, 0, 1.0), (2, 2, 1.0)]);
    let zero = matrix(3, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, -0.0)]);
    let empty_row = matrix(2, &[(1, 1, 1.0)]);
    let wide = Csr::<f64>::new(1, 2, vec![0, 0], vec![], vec![]).expect("valid");
    let messages = [
        error(full.clone(), Triangle::Lower),
        error(full, Triangle::Upper),
        error(missing, Triangle::Lower),
        error(zero, Triangle::Upper),
        error(empty_row, Triangle::Upper),
        error(wide.clone(), Triangle::Lower),
        split(&wide).expect_err("not square").to_string(),
        Levels::of(&wide, Triangle::Lower).expect_err("not square").to_string(),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn vectors_of_the_wrong_length_are_refused() {
    let t =
        Triangular::new(Csr::<f64>::identity(3).expect("small"), Triangle::Lower, Diagonal::NonUnit).expect("identity");
    let short_b = serial::solve(&t, &[1.0; 2], &mut [0.0; 3]);
    assert!(matches!(short_b, Err(Error::Shape { what: "b", found: 2, expected: 3 })));
    let long_x = serial::solve(&t, &[1.0; 3], &mut [0.0; 4]);
    assert!(matches!(long_x, Err(Error::Shape { what: "x", found: 4, expected: 3 })));
}

#[test]
fn empty_matrix() {
    let a = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).expect("valid");
    let levels = Levels::of(&a, Triangle::Upper).expect("square");
    assert_eq!((levels.count(), levels.max_width(), levels.mean_width()), (0, 0, 0.0));
    let t = Triangular::new(a, Triangle::Upper, Diagonal::NonUnit).expect("square");
    serial::solve(&t, &[], &mut []).expect("nothing to solve");
}

/// Every row of the triangle with its level.
fn drawing(a: &Csr<f64>, triangle: Triangle) -> String {
    let levels = Levels::of(a, triangle).expect("square");
    let mut text = format!("{triangle}: {} levels\n", levels.count());
    for i in 0..a.nrows() {
        let mark = |j: usize| match a.get(i, j) {
            Some(_) if i == j => '\\',
            Some(_) if triangle.holds(i, j) => 'x',
            _ => '.',
        };
        let row: Vec<String> = (0..a.ncols()).map(|j| mark(j).to_string()).collect();
        let level = (0..levels.count()).find(|&l| levels.rows(l).contains(&(i as u32))).expect("in a level");
        text += &format!("| {} |  {}level {level}\n", row.join(" "), "   ".repeat(level));
    }
    text + &format!("level_ptr  {:?}\nlevel_rows {:?}\n", levels.level_ptr(), levels.level_rows())
}

#[test]
fn levels_of_a_6x6() {
    // A 3 x 2 grid with the five-point stencil, numbered along the lines.
    let neighbours = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)];
    let mut entries: Vec<_> = (0..6).map(|i| (i, i, 4.0)).collect();
    entries.extend(neighbours.iter().flat_map(|&(i, j)| [(i, j, -1.0), (j, i, -1.0)]));
    let a = matrix(6, &entries);
    insta::assert_snapshot!(drawing(&a, Triangle::Lower) + "\n" + &drawing(&a, Triangle::Upper));
}

#[test]
fn levels_of_rows_in_runs_are_the_longest_chains() {
    for spec in [
        "d3n27:9x7x5",
        "d3n13:150x3x2",
        "d3n33:12",
        "poisson2d:300x4",
        "poisson1d:1000",
        "banded:n=700,d=9",
        "d3n7:40x30x9",
    ] {
        let a: Csr<f64> = generate::csr(spec).expect("a matrix");
        let n = a.nrows();
        for triangle in [Triangle::Lower, Triangle::Upper] {
            let mut level_of = vec![0; n];
            for k in 0..n {
                let i = if triangle == Triangle::Lower { k } else { n - 1 - k };
                let needed = a.row(i).0.iter().map(|&j| j as usize).filter(|&j| triangle.holds(i, j));
                level_of[i] = needed.map(|j| level_of[j] + 1).max().unwrap_or(0);
            }
            let levels = Levels::of(&a, triangle).expect("square");
            let mut expected = vec![Vec::new(); levels.count()];
            level_of.iter().enumerate().for_each(|(i, &level)| expected[level].push(i as u32));
            let found: Vec<_> = (0..levels.count()).map(|level| levels.rows(level).to_vec()).collect();
            assert!(found == expected, "{spec}, {triangle}");
        }
    }
}
