//! Products and transposes with plans, bit by bit against sums that are written down here, for every number of threads.

use std::collections::BTreeMap;

use spandrel_formats::{Csr, Error, Real, SpgemmPlan, Team, TransposePlan, generate, product};

/// Numbers from a seed (splitmix64), of either sign.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// The matrix with other values.
fn with_values<T: Real>(a: &Csr<T>, seed: u64) -> Csr<T> {
    let mut a = a.clone();
    let fresh = numbers(seed, a.values().len());
    a.values_mut().iter_mut().zip(fresh).for_each(|(v, x)| *v = T::from_f64(x));
    a
}

/// Rows of the given lengths in turn, columns at random.
fn rows(nrows: usize, ncols: usize, lengths: &[usize], seed: u64) -> Csr<f64> {
    let places = numbers(seed, nrows * lengths.iter().max().unwrap_or(&0));
    let mut place = places.iter();
    let mut entries = BTreeMap::new();
    for i in 0..nrows {
        for _ in 0..lengths[i % lengths.len()] {
            let at = ((place.next().unwrap() + 1.0) / 2.0 * ncols as f64) as usize;
            entries.insert((i, at.min(ncols - 1)), 0.0);
        }
    }
    let csr = Csr::from_triplets(nrows, ncols, entries.into_iter().map(|((i, j), v)| (i, j, v))).unwrap();
    with_values(&csr, !seed)
}

/// A B as the module's head states it.
fn stated<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Csr<T> {
    let (mut row_ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..row_count(a) {
        let mut row: BTreeMap<u32, T> = BTreeMap::new();
        for (&k, &v) in a.row(i).0.iter().zip(a.row(i).1) {
            for (&j, &w) in b.row(k as usize).0.iter().zip(b.row(k as usize).1) {
                let sum = row.entry(j).or_insert_with(T::zero);
                *sum = v.mul_add(w, *sum);
            }
        }
        cols.extend(row.keys());
        values.extend(row.values());
        row_ptr.push(cols.len() as u32);
    }
    Csr::new(row_count(a), col_count(b), row_ptr, cols, values).unwrap()
}

fn row_count<T: Real>(a: &Csr<T>) -> usize {
    a.row_ptr().len() - 1
}

fn col_count<T: Real>(a: &Csr<T>) -> usize {
    spandrel_formats::Format::ncols(a)
}

fn same<T: Real>(found: &Csr<T>, wanted: &Csr<T>, what: &str) {
    assert_eq!((found.row_ptr(), found.col_idx()), (wanted.row_ptr(), wanted.col_idx()), "{what}");
    assert_eq!((row_count(found), col_count(found)), (row_count(wanted), col_count(wanted)), "{what}");
    for (at, (x, y)) in found.values().iter().zip(wanted.values()).enumerate() {
        let equal = x.as_f64().to_bits() == y.as_f64().to_bits() || x.is_nan() && y.is_nan();
        assert!(equal, "{what}: entry {at} is {x:e}, expected {y:e}");
    }
}

/// Scoped threads that take the last task first.
struct Backwards(usize);

impl Team for Backwards {
    fn threads(&self) -> usize {
        self.0
    }
    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 0..self.0 {
                scope.spawn(move || (0..tasks).rev().filter(|task| task % self.0 == thread).for_each(work));
            }
        });
    }
}

fn checked<T: Real>(a: &Csr<T>, b: &Csr<T>, what: &str) {
    let wanted = stated(a, b);
    same(&product(a, b).unwrap(), &wanted, what);
    same(&(a * b), &wanted, what);
    for threads in 1..4 {
        let (plan, mut c) = SpgemmPlan::symbolic_by(&Backwards(threads), a, b).unwrap();
        assert!(c.values().iter().all(|v| v.is_zero()), "{what}");
        for seed in 0..2 {
            let (a, b) = (with_values(a, seed), with_values(b, seed + 7));
            // Whatever is there before is not read.
            c.values_mut().fill(T::nan());
            plan.numeric_by(&Backwards(threads), &a, &b, &mut c).unwrap();
            same(&c, &stated(&a, &b), &format!("{what}, {threads} threads, values {seed}"));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| plan.numeric(a, b, &mut c).unwrap());
        same(&c, &wanted, &format!("{what}, {threads} workers"));
    }
}

#[test]
fn products_have_the_stated_bits() {
    let of = |spec: &str| with_values(&generate::csr::<f64>(spec).unwrap(), 3);
    let square =
        ["poisson2d:23x17", "d3n27:9x8x7", "random:n=900,nnz_per_row=9", "powerlaw:n=700", "banded:n=400,d=45"];
    for spec in square {
        let a = of(spec);
        checked(&a, &a, spec);
        checked(&a.map(|v| v as f32), &a.map(|v| v as f32), spec);
    }
    // A chain of rectangular ones, with empty rows, a dense row and a dense column.
    let (p, a) = (rows(900, 130, &[2, 0, 5, 1], 1), of("random:n=900,nnz_per_row=9"));
    let ap = product(&a, &p).unwrap();
    checked(&a, &p, "A P");
    checked(&p.transpose(), &ap, "P^T (A P)");
    checked(&rows(5, 3000, &[3000, 0, 3], 2), &rows(3000, 40, &[1, 0, 3], 3), "a long row");
    checked(&rows(40, 300, &[3], 4), &rows(300, 5000, &[2000, 0, 1], 5), "long rows of C");
    checked(&rows(1, 60, &[20], 6), &rows(60, 1, &[1], 7), "1 x n by n x 1");
    checked(&rows(60, 1, &[1], 8), &rows(1, 60, &[20], 9), "n x 1 by 1 x n");
    for (m, k, n) in [(0, 0, 0), (0, 5, 3), (4, 0, 3), (4, 5, 0), (4, 5, 3)] {
        let none = |m: usize, n| Csr::<f64>::new(m, n, vec![0; m + 1], vec![], vec![]).unwrap();
        checked(&none(m, k), &none(k, n), "without entries");
    }
}

#[test]
fn a_product_of_many_tasks_has_the_stated_bits() {
    let a = with_values(&generate::csr::<f64>("d3n7:24").unwrap(), 5);
    checked(&a, &a, "d3n7:24");
    let scattered = rows(9000, 9000, &[6, 0, 11], 10);
    checked(&scattered, &scattered, "scattered");
}

#[test]
fn far_more_columns_than_multiplications_need_no_accumulators() {
    let last = (1u32 << 31) - 2;
    let b = Csr::new(3, last as usize + 1, vec![0, 2, 2, 4], vec![0, last, 5, last], vec![2.0, 3.0, 4.0, 5.0]).unwrap();
    let a = Csr::from_triplets(2, 3, [(0, 0, 1.0), (0, 2, 10.0), (1, 1, 9.0)]).unwrap();
    checked(&a, &b, "wide");
    let c = product(&a, &b).unwrap();
    assert_eq!((c.row(0), c.row_nnz(1)), ((&[0, 5, last][..], &[2.0, 40.0, 53.0][..]), 0));
}

#[test]
fn sums_that_cancel_stay_and_special_values_pass_through() {
    let a = Csr::from_triplets(1, 3, [(0, 0, 1.0), (0, 1, -1.0), (0, 2, 0.0)]).unwrap();
    let b = Csr::from_triplets(3, 4, [(0, 0, 2.0), (1, 0, 2.0), (2, 1, 5.0), (0, 2, f64::INFINITY)]).unwrap();
    let c = product(&a, &b).unwrap();
    assert_eq!((c.row(0).0, c.row(0).1), (&[0u32, 1, 2][..], &[0.0, 0.0, f64::INFINITY][..]));
    assert!(c.row(0).1[0].is_sign_positive());
    let zero = a.map(|_| 0.0);
    assert!(product(&zero, &b).unwrap().row(0).1[2].is_nan(), "0 times infinity");
    // Minus zero is summed from +0.
    let minus = Csr::from_triplets(1, 1, [(0, 0, -0.0f64)]).unwrap();
    assert!(product(&minus, &minus.map(|_| 1.0f64)).unwrap().values()[0].is_sign_positive());
    // The product is not rounded before it is added.
    let x = 1.0 + f64::EPSILON;
    let fused = product(
        &Csr::from_triplets(1, 2, [(0, 0, 1.0), (0, 1, x)]).unwrap(),
        &Csr::from_triplets(2, 1, [(0, 0, -(x * x)), (1, 0, x)]).unwrap(),
    );
    assert_eq!(fused.unwrap().values(), [x.mul_add(x, -(x * x))]);
}

#[test]
fn sizes_are_checked() {
    let (a, b) = (rows(6, 5, &[2], 1), rows(5, 7, &[3], 2));
    let refused = SpgemmPlan::symbolic(&b, &a).unwrap_err().to_string();
    assert_eq!(refused, "spgemm: a row of A has 7 elements, expected 6");
    let (plan, mut c) = SpgemmPlan::symbolic(&a, &b).unwrap();
    plan.numeric(&a, &b, &mut c).unwrap();
    let (before, other) = (c.clone(), rows(5, 7, &[1], 2));
    assert!(matches!(plan.numeric(&a, &other, &mut c), Err(Error::Shape { what: "the values of B", .. })));
    assert!(matches!(plan.numeric(&b, &b, &mut c), Err(Error::Shape { what: "a column of A", .. })));
    assert!(matches!(plan.numeric(&a, &b, &mut a.clone()), Err(Error::Shape { what: "a row of C", .. })));
    assert_eq!(c, before);
    let (plan, mut t) = TransposePlan::symbolic(&a).unwrap();
    assert!(matches!(plan.numeric(&b, &mut t), Err(Error::Shape { what: "a column of A", .. })));
    assert!(matches!(plan.numeric(&a, &mut a.clone()), Err(Error::Shape { what: "a column of A^T", .. })));
    assert!(std::panic::catch_unwind(|| &b * &a).is_err());
}

#[test]
fn patterns_other_than_the_plans_stay_inside_memory() {
    let (a, b) = (rows(60, 50, &[4], 1), rows(50, 70, &[5], 2));
    let (plan, mut c) = SpgemmPlan::symbolic(&a, &b).unwrap();
    // As many entries in other places.
    let moved = |m: &Csr<f64>, ncols: usize| {
        let mut entries: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        (0..).take_while(|_| true).try_for_each(|k| {
            entries.insert((k * 7 % row_count(m), k * 11 % ncols), 1.0);
            if entries.len() == m.values().len() { None } else { Some(()) }
        });
        Csr::from_triplets(row_count(m), ncols, entries.into_iter().map(|((i, j), v)| (i, j, v))).unwrap()
    };
    plan.numeric(&moved(&a, 50), &moved(&b, 70), &mut c).unwrap();
    let (plan, mut t) = TransposePlan::symbolic(&a).unwrap();
    plan.numeric(&moved(&a, 50), &mut t).unwrap();
}

#[test]
fn transposes_follow_new_values() {
    for (a, what) in [
        (generate::csr::<f64>("convdiff2d:31x20").unwrap(), "square"),
        (rows(700, 90, &[3, 0, 8], 1), "tall"),
        (rows(3, 5000, &[4000, 0], 2), "wide"),
        (Csr::new(0, 4, vec![0], vec![], vec![]).unwrap(), "0 x 4"),
        (generate::csr("random:n=20000,nnz_per_row=9").unwrap(), "several tasks"),
    ] {
        for threads in 1..4 {
            let (plan, mut t) = TransposePlan::symbolic(&a).unwrap();
            for seed in 0..2 {
                let fresh = with_values(&a, seed);
                t.values_mut().fill(f64::NAN);
                plan.numeric_by(&Backwards(threads), &fresh, &mut t).unwrap();
                same(&t, &fresh.transpose(), what);
            }
            let last = with_values(&a, 1);
            assert!(plan.positions().iter().zip(t.values()).all(|(&at, v)| last.values()[at as usize] == *v));
        }
    }
}

#[test]
fn work_at_the_end_is_cut_within_the_matrix() {
    // Nearly all multiplications are those of the last rows, fewer than a task is counted in.
    let mut lengths = vec![1; 33];
    lengths[32] = 3000;
    let (a, b) = (rows(33, 3000, &lengths, 5), rows(3000, 3000, &[90], 6));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(16).build().unwrap();
    assert!(pool.install(|| product(&a, &b).unwrap()) == stated(&a, &b));
}
