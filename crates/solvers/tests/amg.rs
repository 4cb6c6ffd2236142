//! Algebraic multigrid on the CPU: the number of iterations does not grow, every number of threads gives the same bits,
//! new values are taken, and bad input is refused.

use std::path::Path;

use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::amg::rigid_body_modes;
use spandrel_formats::{Csr, Real, Triplets, generate, matrix_market};
use spandrel_solvers::{
    Amg, AmgCycle, AmgOptions, BiCgStab, Error, Gmres, GmresOptions, Mixed, NullSpace, Options, Outcome, Placement, cg,
};

/// A K-cycle with several grids on small matrices.
const K: AmgOptions =
    AmgOptions { strength: 0.25, degree: 2, unknowns: 1, coarsest: 20, levels: 25, cycle: AmgCycle::K };

fn csr(spec: &str) -> Csr<f64> {
    generate::csr(spec).expect(spec)
}

fn solve<T: Real>(device: &Cpu, a: &Csr<T>, m: &Amg<T, Cpu>, options: &Options) -> (Vec<T>, Outcome)
where
    Cpu: Backend<T>,
{
    let n = a.nrows();
    let (b, mut x) = (device.upload(&vec![T::one(); n]).unwrap(), Backend::<T>::zeros(device, n).unwrap());
    let outcome = cg(device, &Mat::load(device, a).unwrap(), m, &b, &mut x, options).unwrap();
    (device.download(&x).unwrap(), outcome)
}

fn iterations(spec: &str, options: &AmgOptions) -> usize {
    let (device, a) = (Cpu::new(), csr(spec));
    let m = Amg::new(&device, &a, options).expect(spec);
    let (_, outcome) = solve(&device, &a, &m, &Options::default());
    assert!(outcome.status.is_converged(), "{spec}: {outcome}\n{m}");
    outcome.iterations
}

#[test]
fn iterations_hardly_grow() {
    let defaults = AmgOptions::default();
    for (small, large) in
        [("poisson3d:12", "poisson3d:32"), ("poisson2d:40", "poisson2d:160"), ("d3n27:12", "d3n27:24")]
    {
        let (few, many) = (iterations(small, &defaults), iterations(large, &defaults));
        assert!(many <= 25 && 2 * many <= 3 * few.max(10), "{small}: {few}, {large}: {many}");
    }
    // No grid, jumping coefficients, shuffled rows.
    assert!(iterations("electrostatic:n=8000", &defaults) <= 30);
}

#[test]
fn a_k_cycle_needs_no_more_iterations() {
    for spec in [
        "poisson3d:24",
        "poisson2d:100",
        "anisotropic2d:80,eps=0.01",
        "anisotropic2d:80,eps=0.001",
        "electrostatic:n=8000",
        "elasticity3d:10",
    ] {
        let unknowns = if spec.starts_with("elasticity") { 3 } else { 1 };
        let k = AmgOptions { unknowns, ..K };
        let (v, k) = (iterations(spec, &AmgOptions { cycle: AmgCycle::V, ..k }), iterations(spec, &k));
        println!("{spec}: {v} with V, {k} with K");
        assert!(k <= v, "{spec}: {k} iterations with K, {v} with V");
    }
}

#[test]
fn a_k_cycle_of_two_grids_is_a_v_cycle() {
    let (device, a) = (Cpu::new(), csr("poisson3d:12"));
    let apply = |cycle| {
        let m = Amg::new(&device, &a, &AmgOptions { cycle, ..AmgOptions::default() }).unwrap();
        assert_eq!(m.levels().len(), 2);
        let (r, mut z) = (device.upload(&vec![1.0; 1728]).unwrap(), Backend::<f64>::zeros(&device, 1728).unwrap());
        m.apply(&device, None, &r, &mut z).unwrap();
        (device.download(&z).unwrap(), m.bytes())
    };
    assert_eq!(apply(AmgCycle::K), apply(AmgCycle::V));
    let bytes = |cycle| Amg::new(&device, csr("poisson3d:20"), &AmgOptions { cycle, ..K }).unwrap().bytes();
    assert!(bytes(AmgCycle::K) > bytes(AmgCycle::V));
}

#[test]
fn a_residual_that_vanishes_on_coarse_grids_gives_no_nan() {
    // Rows that are not coupled, beside a plane. Grids interpolate nothing to them.
    let (device, plane) = (Cpu::new(), csr("poisson2d:40"));
    let (n, apart) = (1600, 100);
    let rows = (0..n).flat_map(|i| plane.row(i).0.iter().map(move |&j| (i, j as usize)));
    let entries: Vec<_> = rows.map(|(i, j)| (i, j, plane.get(i, j).unwrap())).collect();
    let apart_from = (n..n + apart).map(|i| (i, i, 3.0));
    let a = Csr::from_triplets(n + apart, n + apart, entries.into_iter().chain(apart_from)).unwrap();
    let m = Amg::new(&device, &a, &K).unwrap();
    assert!(m.levels().len() > 2, "{m}");
    let apply = |r: &[f64]| {
        let mut z = Backend::<f64>::zeros(&device, n + apart).unwrap();
        m.apply(&device, None, &device.upload(r).unwrap(), &mut z).unwrap();
        device.download(&z).unwrap()
    };
    assert!(apply(&vec![0.0; n + apart]).iter().all(|&v| v == 0.0));
    let r: Vec<f64> = (0..n + apart).map(|i| if i < n { 0.0 } else { 1.0 }).collect();
    let z = apply(&r);
    assert!(z.iter().all(|v| v.is_finite()) && z[..n].iter().all(|&v| v == 0.0) && z[n] > 0.0);
    // The first iteration solves a grid with one row exactly, and so does the cycle from a grid with few rows.
    for coarsest in [1, 2, 5] {
        let a = csr("poisson2d:20");
        let m = Amg::new(&device, &a, &AmgOptions { coarsest, ..K }).unwrap();
        let (x, outcome) = solve(&device, &a, &m, &Options { rtol: Some(1e-14), ..Options::default() });
        assert!(x.iter().all(|v| v.is_finite()) && outcome.true_residual < 1e-12, "{outcome}");
    }
    let narrow = generate::csr::<f32>("poisson2d:40").unwrap();
    let m = Amg::new(&device, &narrow, &K).unwrap();
    let (_, outcome) = solve(&device, &narrow, &m, &Options { rtol: Some(1e-5), ..Options::default() });
    assert!(outcome.status.is_converged(), "{outcome}");
}

#[test]
fn a_method_that_needs_a_linear_preconditioner_refuses_a_k_cycle() {
    let (device, a) = (Cpu::new(), csr("poisson2d:40"));
    let (mat, n) = (Mat::load(&device, &a).unwrap(), a.nrows());
    let (m, b) = (Amg::new(&device, &a, &K).unwrap(), device.upload(&vec![1.0; n]).unwrap());
    let gmres = |placement| {
        let mut x = Backend::<f64>::zeros(&device, n).unwrap();
        let mut gmres = Gmres::with(&device, n, &GmresOptions { placement, ..GmresOptions::default() }).unwrap();
        gmres.solve(&device, &mat, &m, &b, &mut x, &Options::default())
    };
    let bicgstab = |placement| {
        let mut x = Backend::<f64>::zeros(&device, n).unwrap();
        BiCgStab::with(&device, n, placement).unwrap().solve(&device, &mat, &m, &b, &mut x, &Options::default())
    };
    for refused in [gmres(Placement::Right), gmres(Placement::Left), bicgstab(Placement::Left)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("use cg"), "{error}");
    }
    for outcome in [gmres(Placement::Flexible), bicgstab(Placement::Right)] {
        let outcome = outcome.unwrap();
        assert!(outcome.status.is_converged() && outcome.iterations <= 15, "{outcome}");
    }
    // What wraps it says the same.
    assert!(!m.is_linear() && !(&m as &dyn Preconditioner<f64, Cpu>).is_linear());
    let linear = Amg::new(&device, &a, &AmgOptions { cycle: AmgCycle::V, ..K }).unwrap();
    assert!(linear.is_linear() && Box::new(linear).is_linear());
    let mixed = Mixed::of(&device, &a, |device, narrow| Amg::new(device, narrow, &K)).unwrap();
    assert!(!mixed.is_linear());
    let mut x = Backend::<f64>::zeros(&device, n).unwrap();
    let outcome = cg(&device, &mat, &mixed, &b, &mut x, &Options::default()).unwrap();
    assert!(outcome.status.is_converged() && outcome.iterations <= 15, "{outcome}");
    let kernel = NullSpace::constant(&device, n).unwrap();
    assert!(!kernel.preconditioner(&m).is_linear());
}

#[test]
fn a_higher_degree_needs_no_more_iterations() {
    let of = |degree| iterations("poisson3d:20", &AmgOptions { degree, ..AmgOptions::default() });
    let counts: Vec<usize> = (1..=4).map(of).collect();
    assert!(counts.windows(2).all(|pair| pair[1] <= pair[0]) && counts[0] <= 40, "{counts:?}");
}

#[test]
fn several_unknowns_are_aggregated_by_point() {
    let by_point = AmgOptions { unknowns: 3, ..AmgOptions::default() };
    let (apart, together) =
        (iterations("elasticity3d:12", &AmgOptions::default()), iterations("elasticity3d:12", &by_point));
    assert!(together < apart && together <= 25, "{together} by point, {apart} without");
}

#[test]
fn rigid_body_modes_are_interpolated() {
    let (device, a) = (Cpu::new(), csr("elasticity3d:10"));
    let points = (0..1000).flat_map(|p| [p % 10, p / 10 % 10, p / 100]).map(|x| x as f64);
    let modes = rigid_body_modes(&points.collect::<Vec<_>>(), 3).unwrap();
    let options = AmgOptions { unknowns: 3, ..AmgOptions::default() };
    let m = Amg::with(&device, &a, &options, Some(&modes)).unwrap();
    let (_, outcome) = solve(&device, &a, &m, &Options::default());
    assert!(outcome.status.is_converged() && outcome.iterations <= 25, "{outcome}\n{m}");
    assert_eq!(m.levels()[1].rows % 6, 0);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let v = AmgOptions::default();
    for (spec, options) in [("poisson3d:16", v), ("electrostatic:n=6000", v), ("electrostatic:n=6000", K)] {
        let a = csr(spec);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let device = Cpu::new();
                let mut m = Amg::new(&device, &a, &options).unwrap();
                m.update(&device, a.map(|v| 3.0 * v)).unwrap();
                m.update(&device, a.map_entries(|i, j, v| if i == j { 1.01 * v } else { v })).unwrap();
                let (x, outcome) = solve(&device, &a, &m, &Options::default());
                (x.into_iter().map(f64::to_bits).collect::<Vec<_>>(), outcome.iterations, m.levels().to_vec())
            })
        };
        let alone = run(1);
        assert!(run(2) == alone && run(3) == alone, "{spec}");
        (0..5).for_each(|_| assert!(run(2) == alone, "{spec}"));
    }
}

#[test]
fn the_cycle_is_symmetric_and_positive() {
    let (device, a) = (Cpu::new(), csr("electrostatic:n=3000"));
    let n = a.nrows();
    let m = Amg::new(&device, &a, &AmgOptions::default()).unwrap();
    let apply = |v: &[f64]| {
        let mut z = Backend::<f64>::zeros(&device, n).unwrap();
        m.apply(&device, None, &device.upload(v).unwrap(), &mut z).unwrap();
        device.download(&z).unwrap()
    };
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let u: Vec<f64> = (0..n).map(|i| ((i * 37 % 101) as f64 - 50.0) / 50.0).collect();
    let v: Vec<f64> = (0..n).map(|i| ((i * 53 % 97) as f64 - 48.0) / 48.0).collect();
    let (mu, mv) = (apply(&u), apply(&v));
    let size = (dot(&u, &mu) * dot(&v, &mv)).sqrt();
    assert!(dot(&u, &mu) > 0.0 && dot(&v, &mv) > 0.0);
    // A cycle has some hundred roundings. The polynomial amplifies each of them little.
    assert!((dot(&mu, &v) - dot(&u, &mv)).abs() <= 1e-10 * size);
}

#[test]
fn a_singular_system_with_known_constants_is_solved() {
    let n = 40;
    let mut triplets = Triplets::new(n * n, n * n).unwrap();
    for i in 0..n * n {
        for j in [(i % n + 1 < n).then_some(i + 1), (i + n < n * n).then_some(i + n)].into_iter().flatten() {
            for (row, col, value) in [(i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)] {
                triplets.push(row, col, value).unwrap();
            }
        }
    }
    let (device, a) = (Cpu::new(), triplets.to_csr().unwrap());
    let kernel = NullSpace::constant(&device, n * n).unwrap();
    let b: Vec<f64> = (0..n * n)
        .map(|i| {
            if i == 5 {
                1.0
            } else if i == 1000 {
                -1.0
            } else {
                0.0
            }
        })
        .collect();
    let (b, mat) = (device.upload(&b).unwrap(), Mat::load(&device, &a).unwrap());
    for options in [AmgOptions::default(), K] {
        let m = Amg::new(&device, &a, &options).unwrap();
        let mut x = Backend::<f64>::zeros(&device, n * n).unwrap();
        let outcome = kernel
            .solve(&device, &mat, &m, &b, &mut x, &Options::default(), |m, b, x, options| {
                cg(&device, &mat, m, b, x, options)
            })
            .unwrap();
        assert!(outcome.status.is_converged() && outcome.iterations <= 25, "{outcome}");
    }
}

#[test]
fn new_values_have_the_bits_of_a_new_cycle_where_couplings_stay() {
    let device = Cpu::new();
    for (spec, options) in
        [("poisson3d:14", AmgOptions::default()), ("electrostatic:n=4000", AmgOptions::default()), ("poisson3d:14", K)]
    {
        let old = csr(spec);
        // A power of two changes no coupling and no rounding.
        let new = old.map(|v| 4.0 * v);
        let mut m = Amg::new(&device, &old, &options).unwrap();
        m.update(&device, &new).unwrap();
        let anew = Amg::new(&device, &new, &options).unwrap();
        let (x, outcome) = solve(&device, &new, &m, &Options::default());
        let (y, expected) = solve(&device, &new, &anew, &Options::default());
        assert_eq!((x, outcome.iterations), (y, expected.iterations), "{spec}");
    }
    // Other couplings: the cycle is still a good preconditioner.
    let old = csr("poisson2d:60");
    let mut m = Amg::new(&device, &old, &AmgOptions::default()).unwrap();
    let mut new = old.clone();
    for row in 0..new.nrows() {
        let at = new.row_ptr()[row] as usize + new.row(row).0.partition_point(|&j| (j as usize) < row);
        new.values_mut()[at] += 0.01 * (row % 3) as f64;
    }
    m.update(&device, &new).unwrap();
    let (_, outcome) = solve(&device, &new, &m, &Options::default());
    assert!(outcome.status.is_converged() && outcome.iterations <= 25, "{outcome}");
}

#[test]
fn later_updates_only_compute_and_have_the_bits_of_a_new_cycle() {
    let device = Cpu::new();
    // Several grids, one grid with its inverse, and one that is only smoothed.
    let alone = Csr::from_triplets(2100, 2100, (0..2100).map(|i| (i, i, 1.0 + (i % 7) as f64))).unwrap();
    let v = AmgOptions::default();
    for (name, old, options) in [
        ("poisson3d:12", csr("poisson3d:12"), v),
        ("electrostatic:n=3000", csr("electrostatic:n=3000"), v),
        ("electrostatic:n=3000 with K", csr("electrostatic:n=3000"), K),
        ("poisson2d:8", csr("poisson2d:8"), v),
        ("nothing coupled", alone, v),
    ] {
        let new = old.map(|v| 4.0 * v);
        let other = old.map_entries(|i, j, v| v * (1.0 - ((i ^ j) % 5) as f64 / 64.0));
        let anew = Amg::new(&device, &new, &options).unwrap();
        let expected = solve(&device, &new, &anew, &Options::default());
        let mut m = Amg::new(&device, &old, &options).unwrap();
        m.update(&device, &other).unwrap();
        m.update(&device, &new).unwrap();
        let mut ways = vec![("whole", solve(&device, &new, &m, &Options::default()))];
        m.update_from(&device, &Mat::load(&device, &other).unwrap()).unwrap();
        m.update_from(&device, &Mat::load(&device, &new).unwrap()).unwrap();
        ways.push(("on the device", solve(&device, &new, &m, &Options::default())));
        assert_eq!(m.takes_values(), name != "poisson2d:8");
        if m.takes_values() {
            m.update_values(&device, other.values()).unwrap();
            m.update_values_from(&device, &device.upload(new.values()).unwrap()).unwrap();
            ways.push(("values", solve(&device, &new, &m, &Options::default())));
        } else {
            assert!(matches!(m.update_values(&device, new.values()), Err(Error::Unsupported { .. })));
        }
        assert!(matches!(m.update_values(&device, &[1.0]), Err(Error::Pattern { found: 1, .. })));
        for (way, (x, outcome)) in ways {
            assert_eq!((x, outcome.iterations), (expected.0.clone(), expected.1.iterations), "{name}, {way}");
        }
        assert_eq!(m.levels(), anew.levels(), "{name}");
    }
}

#[test]
fn values_that_cannot_be_taken_leave_the_cycle_as_it_was() {
    let (device, a) = (Cpu::new(), csr("poisson2d:40"));
    let mut m = Amg::new(&device, &a, &AmgOptions::default()).unwrap();
    let (before, _) = solve(&device, &a, &m, &Options::default());
    let negative = a.map(|v| -v);
    assert!(matches!(m.update(&device, &negative), Err(Error::Diagonal { row: 0, found: "negative" })));
    assert!(matches!(m.update(&device, csr("poisson2d:41")), Err(Error::Size { .. })));
    assert!(matches!(m.update(&device, csr("poisson2d9:40")), Err(Error::Pattern { .. })));
    assert_eq!(solve(&device, &a, &m, &Options::default()).0, before);
    // The same when plans are kept, also where only a coarse grid shows that the matrix is indefinite.
    m.update(&device, a.map(|v| 2.0 * v)).unwrap();
    let (before, _) = solve(&device, &a, &m, &Options::default());
    let indefinite = a.map_entries(|i, j, v| if i == j { 0.5 * v } else { v });
    assert!(matches!(m.update(&device, &indefinite), Err(Error::NotPositive { .. })));
    assert!(matches!(m.update(&device, &negative), Err(Error::Diagonal { row: 0, found: "negative" })));
    assert!(matches!(m.update(&device, csr("poisson2d9:40")), Err(Error::Pattern { .. })));
    assert_eq!(solve(&device, &a, &m, &Options::default()).0, before);
}

#[test]
fn small_and_odd_matrices() {
    let (device, options) = (Cpu::new(), AmgOptions { coarsest: 1, ..AmgOptions::default() });
    let cases: [(usize, Vec<(usize, usize, f64)>); 3] = [
        (1, vec![(0, 0, 4.0)]),
        // Nothing is coupled.
        (5, (0..5).map(|i| (i, i, 2.0)).collect()),
        // Two rows are coupled, and the others are not.
        (6, (0..6).map(|i| (i, i, 2.0)).chain([(0, 5, -1.0), (5, 0, -1.0)]).collect()),
    ];
    for (n, entries) in cases {
        let a = Csr::from_triplets(n, n, entries).unwrap();
        let m = Amg::new(&device, &a, &options).unwrap();
        let (x, outcome) = solve(&device, &a, &m, &Options::default());
        assert!(outcome.status.is_converged() && x.iter().all(|v| v.is_finite()), "{n} rows: {outcome}");
    }
    let empty = Csr::<f64>::from_triplets(0, 0, []).unwrap();
    assert_eq!(Amg::new(&device, &empty, &options).unwrap().len(), Some(0));
    // In f32.
    let narrow = generate::csr::<f32>("poisson3d:12").unwrap();
    let m = Amg::new(&device, &narrow, &AmgOptions::default()).unwrap();
    let (_, outcome) = solve(&device, &narrow, &m, &Options { rtol: Some(1e-4), ..Options::default() });
    assert!(outcome.status.is_converged(), "{outcome}");
}

#[test]
fn a_grid_that_cannot_be_coarsened_is_smoothed() {
    // No coupling is strong enough for an aggregate, and there are more rows than an inverse may have.
    let n = 2100;
    let a = Csr::from_triplets(n, n, (0..n).map(|i| (i, i, 1.0 + (i % 7) as f64))).unwrap();
    let device = Cpu::new();
    let m = Amg::new(&device, &a, &AmgOptions::default()).unwrap();
    assert_eq!(m.levels().len(), 1);
    let (_, outcome) = solve(&device, &a, &m, &Options::default());
    assert!(outcome.status.is_converged(), "{outcome}");
}

#[test]
fn what_cannot_be_taken_is_told() {
    let device = Cpu::new();
    let defaults = AmgOptions::default();
    let make = |a: &Csr<f64>, options: &AmgOptions| Amg::new(&device, a, options).expect_err("refused");
    let wide = Csr::from_triplets(2, 3, [(0, 0, 1.0)]).unwrap();
    assert!(matches!(make(&wide, &defaults), Error::NotSquare { .. }));
    assert!(make(&csr("convdiff2d:10"), &defaults).to_string().contains("bicgstab"));
    let with = |i: usize, j: usize, v: f64| {
        let base = csr("poisson2d:4");
        let entries =
            (0..16).flat_map(|row| base.row(row).0.iter().map(move |&col| (row, col as usize)).collect::<Vec<_>>());
        let entries: Vec<_> = entries.map(|(row, col)| (row, col, base.get(row, col).unwrap())).collect();
        Csr::from_triplets(16, 16, entries.into_iter().filter(|e| (e.0, e.1) != (i, j)).chain([(i, j, v)])).unwrap()
    };
    assert!(matches!(make(&with(3, 3, f64::INFINITY), &defaults), Error::NotFinite { row: 3, column: 3, .. }));
    assert!(matches!(make(&with(3, 3, 0.0), &defaults), Error::Diagonal { row: 3, found: "zero" }));
    assert!(matches!(make(&with(3, 3, -2.0), &defaults), Error::Diagonal { row: 3, found: "negative" }));
    // Symmetric with a positive diagonal, but indefinite.
    let saddle = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 1, 1.0), (0, 1, 3.0), (1, 0, 3.0)]).unwrap();
    assert!(matches!(make(&saddle, &defaults), Error::NotPositive { grid: 0, row: 1, .. }));
    let a = csr("poisson2d:5");
    let options = |change: fn(&mut AmgOptions)| {
        let mut options = AmgOptions::default();
        change(&mut options);
        options
    };
    for wrong in [
        options(|o| o.degree = 0),
        options(|o| o.degree = 5),
        options(|o| o.strength = -0.1),
        options(|o| o.strength = f64::NAN),
        options(|o| o.unknowns = 0),
        options(|o| o.unknowns = 7),
        options(|o| o.coarsest = 0),
        options(|o| o.levels = 0),
    ] {
        assert!(matches!(make(&a, &wrong), Error::Parameter { .. }), "{wrong:?}");
    }
    assert!(matches!(make(&a, &options(|o| o.unknowns = 2)), Error::Size { found: 25, expected: 26, .. }));
    let near = |vectors: &[f64]| Amg::with(&device, &a, &defaults, Some(vectors)).expect_err("refused");
    assert!(matches!(near(&[1.0; 26]), Error::Size { .. }));
    assert!(matches!(near(&[]), Error::Size { .. }));
    assert!(matches!(near(&[f64::NAN; 25]), Error::NullVector { index: 0, .. }));
    // Dependent vectors are no error; the second is dropped.
    let twice = Amg::with(&device, csr("poisson2d:30"), &defaults, Some(&[1.0; 1800])).unwrap();
    assert!(twice.levels().len() > 1);
    assert!(rigid_body_modes(&[0.0; 5], 2).is_err() && rigid_body_modes(&[0.0; 4], 1).is_err());
}

#[test]
fn real_matrices_end_in_an_answer_or_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/matrices");
    let Ok(index) = std::fs::read_to_string(folder.join("INDEX.tsv")) else {
        println!("skipped: {} has no INDEX.tsv", folder.display());
        return;
    };
    let device = Cpu::new();
    let mut solved = 0;
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (Some(name), Some(rows)) = (fields.first(), fields.get(1).and_then(|rows| rows.parse::<usize>().ok()))
        else {
            continue;
        };
        // Positive definite matrices of medium size. Large ones are measured for the record only.
        let is_definite = fields.get(7) == Some(&"yes");
        if !is_definite || !(2000..=3200).contains(&rows) {
            continue;
        }
        let a: Csr<f64> = matrix_market::read_csr(folder.join(format!("{name}.mtx.gz"))).expect(name);
        match Amg::new(&device, &a, &AmgOptions::default()) {
            Ok(m) => {
                let (x, outcome) = solve(&device, &a, &m, &Options { max_iters: Some(60), ..Options::default() });
                assert!(x.iter().all(|v| v.is_finite()), "{name}: {outcome}");
                solved += usize::from(outcome.status.is_converged());
            }
            Err(error) => println!("{name}: {error}"),
        }
    }
    assert!(solved > 0, "none of them converged");
}
