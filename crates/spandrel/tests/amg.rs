//! Algebraic multigrid through `Solver`: when it is taken, what it refuses, and what takes over.

use spandrel::any::Choice;
use spandrel::formats::amg::rigid_body_modes;
use spandrel::formats::generate;
use spandrel::solver::{Builder, Precision, Reorder, Scale};
use spandrel::solvers::{AmgCycle, AmgOptions};
use spandrel::{Csr, Method, Precond, Solver};

fn matrix(spec: &str) -> Csr<f64> {
    generate::csr(spec).expect(spec)
}

fn cpu() -> Builder {
    Solver::builder().device(Choice::Cpu)
}

fn amg(options: AmgOptions) -> Precond {
    Precond::Amg(options)
}

#[test]
fn a_large_mesh_without_a_grid_gets_it_by_default_and_a_box_does_not() {
    let a = matrix("electrostatic:n=60000");
    let b = vec![1.0; a.nrows()];
    let mut solver = cpu().build(a).unwrap();
    let text = solver.plan().to_string();
    assert!(text.contains("amg") && text.contains("an elliptic problem"), "{text}");
    assert_eq!(solver.plan().precision, Precision::Mixed);
    let solution = solver.solve(&b).unwrap();
    assert!(solution.outcome.status.is_converged() && solution.outcome.iterations <= 30, "{}", solution.outcome);
    assert!(solution.attempts.is_empty());
    // A grid gets geometric multigrid or IC(0), and a small mesh gets IC(0).
    for spec in ["poisson3d:30", "electrostatic:n=3000"] {
        let plan = cpu().build(matrix(spec)).unwrap();
        assert!(!plan.plan().to_string().contains("amg"), "{spec}: {}", plan.plan());
    }
}

/// Diffusion with the tensor ((1, 0.9), (0.9, 1)) by bilinear elements: 9 points, two of which have positive entries.
fn askew(side: usize) -> Csr<f64> {
    let entries = (0..side * side).flat_map(|i| {
        let (x, y) = ((i % side) as i64, (i / side) as i64);
        let beside = (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dx, dy)));
        beside.filter_map(move |(dx, dy)| {
            let is_inside = [x + dx, y + dy].iter().all(|at| (0..side as i64).contains(at));
            let value = if (dx, dy) == (0, 0) { 8.0 / 3.0 } else { -1.0 / 3.0 - 0.45 * (dx * dy) as f64 };
            is_inside.then_some((i, (x + dx + side as i64 * (y + dy)) as usize, value))
        })
    });
    Csr::from_triplets(side * side, side * side, entries).expect("entries inside the matrix")
}

#[test]
fn a_grid_of_nearest_neighbours_gets_geometric_multigrid_where_a_mesh_gets_amg() {
    let a = askew(200);
    let b = vec![1.0; a.nrows()];
    let mut solver = cpu().build(a).unwrap();
    let plan = solver.plan().to_string();
    assert!(matches!(solver.plan().preconditioner, Precond::Mg(_)) && plan.contains("an elliptic problem"), "{plan}");
    assert_eq!(solver.plan().precision, Precision::Mixed);
    let solution = solver.solve(&b).unwrap();
    assert!(solution.outcome.status.is_converged() && solution.outcome.iterations <= 30, "{}", solution.outcome);
    assert!(solution.attempts.is_empty());
}

/// Two meshes that are not connected, the second in units that f32 does not reach beside those of the first.
#[test]
fn a_hierarchy_that_f32_cannot_hold_is_made_in_f64() {
    let one = matrix("electrostatic:n=30000");
    let n = one.nrows();
    let entries = |first: usize, scale: f64| {
        let row = |i: usize| one.row(i).0.iter().zip(one.row(i).1).map(move |(&j, &v)| (i, j as usize, v));
        let one = (0..n).flat_map(row).collect::<Vec<_>>();
        one.into_iter().map(move |(i, j, v)| (first + i, first + j, scale * v))
    };
    let a = Csr::from_triplets(2 * n, 2 * n, entries(0, 1.0).chain(entries(n, 1e-60))).unwrap();
    let mut solver = cpu().scale(Scale::None).build(a).unwrap();
    assert!(matches!(solver.plan().preconditioner, Precond::Amg(_)), "{}", solver.plan());
    assert_eq!(solver.plan().precision, Precision::Native);
    let solution = solver.solve(&vec![1.0; 2 * n]).unwrap();
    assert!(solution.outcome.status.is_converged(), "{}", solution.outcome);
}

#[test]
fn the_bits_do_not_depend_on_the_way_to_the_solve() {
    let a = matrix("electrostatic:n=4000");
    let b = vec![1.0; a.nrows()];
    let solve = |builder: Builder| {
        let solution = builder
            .method(Method::Cg)
            .preconditioner(amg(AmgOptions::default()))
            .build(a.clone())
            .unwrap()
            .solve(&b)
            .unwrap();
        assert!(solution.outcome.status.is_converged(), "{}", solution.outcome);
        solution.x
    };
    let reproducible = solve(cpu().reproducible(true));
    assert_eq!(reproducible, solve(cpu().reproducible(true)));
    // The hierarchy in f32 inside the iteration in f64.
    solve(cpu().precision(Precision::Mixed));
}

#[test]
fn new_values_keep_the_aggregates() {
    let a = matrix("electrostatic:n=4000");
    let b = vec![1.0; a.nrows()];
    let mut solver = cpu().method(Method::Cg).preconditioner(amg(AmgOptions::default())).build(a.clone()).unwrap();
    let first = solver.solve(&b).unwrap();
    let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    solver.update_values(&doubled).unwrap();
    let second = solver.solve(&b).unwrap();
    assert_eq!(first.outcome.iterations, second.outcome.iterations);
    assert!(first.x.iter().zip(&second.x).all(|(x, y)| *x == 2.0 * y));
}

#[test]
fn what_does_not_suit_it_is_refused_with_a_way_out() {
    let refused = |builder: Builder, spec: &str| builder.build(matrix(spec)).map(|_| ()).unwrap_err().to_string();
    let text = refused(cpu().preconditioner(amg(AmgOptions::default())), "convdiff2d:20");
    assert!(text.contains("amg needs a symmetric matrix") && text.contains("ilu0"), "{text}");
    let by_point = AmgOptions { unknowns: 3, ..AmgOptions::default() };
    let text = refused(cpu().preconditioner(amg(by_point)).reorder(Reorder::Rcm), "elasticity3d:5");
    assert!(text.contains("side by side"), "{text}");
    let cycle = AmgOptions { cycle: AmgCycle::K, ..AmgOptions::default() };
    let text = refused(cpu().method(Method::Gmres).preconditioner(amg(cycle)), "poisson2d:5");
    assert!(text.contains("the K-cycle of amg=cycle=k is not; use cg or bicgstab"), "{text}");
    let text = refused(cpu().preconditioner(amg(by_point)), "poisson2d:5");
    assert!(text.contains("25 rows") && text.contains("unknowns"), "{text}");
}

/// A cube of `side` points under elasticity with its points' coordinates, in the order of the unknowns.
fn cube(side: usize) -> (Csr<f64>, Vec<f64>) {
    let points = (0..side.pow(3)).flat_map(|p| [p % side, p / side % side, p / side / side]).map(|x| x as f64);
    (generate::csr(&format!("elasticity3d:{side}")).unwrap(), points.collect())
}

#[test]
fn coordinates_ask_for_multigrid_with_rigid_body_modes() {
    let (a, points) = cube(12);
    let b = vec![1.0; a.nrows()];
    let by_point = || cpu().preconditioner(amg(AmgOptions { unknowns: 3, ..AmgOptions::default() }));
    let solve = |builder: Builder| {
        let mut solver = builder.build(a.clone()).unwrap();
        assert!(matches!(solver.plan().preconditioner, Precond::Amg(options) if options.unknowns == 3));
        solver.solve(&b).unwrap()
    };
    let (plain, known) = (solve(by_point()), solve(cpu().coordinates(points.clone(), 3)));
    assert!(known.outcome.status.is_converged() && plain.outcome.status.is_converged());
    assert_ne!(known.outcome.iterations, plain.outcome.iterations, "the modes were not used");
    // The same as vectors, and in another numbering of the rows.
    let modes = rigid_body_modes(&points, 3).unwrap();
    let given = solve(by_point().near_null_space(modes.clone()));
    assert_eq!(given.x, known.x);
    let mixed = solve(by_point().near_null_space(modes).precision(Precision::Mixed));
    assert!(mixed.outcome.status.is_converged());
}

#[cfg(feature = "sprs")]
#[test]
fn vectors_follow_the_rows_into_another_numbering() {
    let a = generate::csr::<f64>("poisson2d:40").unwrap();
    let n = a.nrows();
    let vector: Vec<f64> = (0..n).map(|i| 1.0 + (i % 7) as f64 / 7.0).collect();
    let solve = |reorder: Reorder| {
        let builder = cpu().reorder(reorder).near_null_space(vector.clone());
        builder.build(a.clone()).unwrap().solve(&vec![1.0; n]).unwrap()
    };
    let (own, renumbered) = (solve(Reorder::None), solve(Reorder::Rcm));
    assert!(own.outcome.status.is_converged() && renumbered.outcome.status.is_converged());
    // A vector in the wrong numbering costs many more.
    assert!(renumbered.outcome.iterations <= own.outcome.iterations + 4, "{} {}", own.outcome, renumbered.outcome);
}

#[test]
fn a_near_null_space_that_does_not_fit_is_refused() {
    let (a, points) = cube(3);
    let build = |builder: Builder| builder.build(a.clone()).unwrap_err().to_string();
    let builder = cpu;
    assert!(build(builder().coordinates(points[3..].to_vec(), 3)).contains("78 coordinates of 3 per point"));
    assert!(build(builder().coordinates(points.clone(), 1)).contains("give 2 or 3 per point"));
    assert!(build(builder().near_null_space(vec![1.0; 80])).contains("80"));
    assert!(build(builder().near_null_space(vec![f64::NAN; 81])).contains("NaN"));
    assert!(build(builder().near_null_space(vec![1.0; 81 * 7])).contains("at most 6"));
    assert!(build(builder().coordinates(points.clone(), 3).preconditioner(Precond::Ic0)).contains("only amg"));
    assert!(build(builder().coordinates(points, 3).scale(Scale::Equilibrate)).contains("near-null space"));
}
