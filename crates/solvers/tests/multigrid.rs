//! The multigrid cycle as a preconditioner: the number of iterations hardly depends on the size of the grid. Also odd
//! and thin grids, semicoarsening, given operators, recorded solves, and refusals.

mod problems;

use std::borrow::Cow;

use problems::{Krylov, honest, solve_from, uneven};
use spandrel_backend::trace::Event;
use spandrel_backend::{Backend, Preconditioner, Trace};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real, generate, product};
use spandrel_solvers::{Error, Hierarchy, Multigrid, Options, Ssor, Status};
use spandrel_sptrsv::{Levelset, Sweep};

/// The number of iterations until convergence. Checks the true residual.
fn iterations<M: Preconditioner<f64, Cpu>>(be: &Cpu, method: Krylov, a: &Csr<f64>, m: &M, what: &str) -> usize {
    let b = uneven(a.nrows());
    let (outcome, x) = solve_from(be, method, a, m, &b, &[], &Options::default());
    assert_eq!(outcome.status, Status::Converged, "{what}: {:?} {:e}", outcome.breakdown, outcome.true_residual);
    honest(a, &x, &b, &outcome);
    outcome.iterations
}

/// Iterations with the cycle, and with one symmetric Gauss-Seidel step.
fn both(be: &Cpu, method: Krylov, spec: &str) -> (usize, usize) {
    let a = generate::csr::<f64>(spec).unwrap();
    let mg = Multigrid::new::<Levelset<f64>>(be, &Hierarchy::galerkin(&a, None).unwrap()).unwrap();
    let ssor = Ssor::<Cpu, Levelset<f64>>::new(be, &a).unwrap();
    let found = (iterations(be, method, &a, &mg, spec), iterations(be, method, &a, &ssor, spec));
    println!("{spec}: mg {} of {:?}, ssor {}", found.0, mg.sizes(), found.1);
    found
}

#[test]
fn iterations_hardly_depend_on_the_size() {
    let be = Cpu::new();
    let large = [("d3n7:16", "d3n7:32"), ("d3n27:16", "d3n27:32"), ("d3n27:15x13x17", "d3n27:31x27x33")];
    let is_whole = std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole");
    let large = large.into_iter().filter(|_| is_whole);
    for (small, large) in large.chain([
        ("d3n7:10", "d3n7:20"),
        ("d3n27:9x8x10", "d3n27:19x17x21"),
        ("poisson2d:32", "poisson2d:128"),
        ("poisson2d9:32", "poisson2d9:128"),
        ("anisotropic2d:32,eps=0.001", "anisotropic2d:128,eps=0.001"),
        ("d3n7:40x6x3", "d3n7:80x12x6"),
    ]) {
        let (few, many) = (both(&be, Krylov::Cg, small), both(&be, Krylov::Cg, large));
        assert!(few.0 < few.1 && many.0 < many.1, "{small} {few:?}, {large} {many:?}");
        assert!(many.0 <= few.0 + few.0 / 4 + 1, "{small} {few:?}, {large} {many:?}");
    }
}

#[test]
fn other_matrices_converge() {
    let be = Cpu::new();
    for spec in
        ["d3n33:12x11x10", "d3n13:12", "tridiag:100", "gfem:n=200,p=2", "poisson2d:2x2", "poisson1d:1", "poisson1d:5"]
    {
        let a = generate::csr::<f64>(spec).unwrap();
        let mg = Multigrid::new::<Levelset<f64>>(&be, &Hierarchy::galerkin(&a, None).unwrap()).unwrap();
        println!("{spec}: {}", iterations(&be, Krylov::Cg, &a, &mg, spec));
    }
    let (mg, ssor) = both(&be, Krylov::BiCgStab, "convdiff3d:16,peclet=0.5");
    assert!(mg < ssor, "{mg} {ssor}");
}

#[test]
fn convection_takes_few_iterations_on_any_number_of_grids() {
    let be = Cpu::new();
    for spec in [
        "convdiff3d:24,peclet=3",
        "convdiff3d:23x15x26,peclet=100",
        "convdiff2d:48,peclet=20",
        "convdiff3d:24,peclet=0.3",
    ] {
        let a = generate::csr::<f64>(spec).unwrap();
        let with = |levels: Option<usize>| {
            let grids = Hierarchy::galerkin(&a, levels).unwrap();
            let mg = Multigrid::new::<Levelset<f64>>(&be, &grids).unwrap();
            iterations(&be, Krylov::BiCgStab, &a, &mg, spec)
        };
        // Without diffusion on the coarse grids, the first matrix takes 8 iterations with two grids and 17 with all of
        // them. The second breaks down.
        let (two, all) = (with(Some(2)), with(None));
        println!("{spec}: {two} with two grids, {all} with all");
        assert!(all <= two + 1 && all <= 8, "{spec}: {two} {all}");
    }
    // A wind that turns around the middle of a plane and blows along it, upwind on 20^3 points.
    let n = 20i64;
    let mut triplets = spandrel_formats::Triplets::new(8000, 8000).unwrap();
    for row in 0..n * n * n {
        let at = [row % n, row / n % n, row / (n * n)];
        let centred = |axis: usize| at[axis] as f64 / n as f64 - 0.5;
        let wind = [-40.0 * centred(1), 40.0 * centred(0), 6.0];
        let mut diagonal = 0.0;
        for axis in 0..3 {
            for (step, speed) in [(-1, wind[axis]), (1, -wind[axis])] {
                let value = 1.0 + f64::max(speed, 0.0);
                diagonal += value;
                if (0..n).contains(&(at[axis] + step)) {
                    let column = row + step * [1, n, n * n][axis];
                    triplets.push(row as usize, column as usize, -value).unwrap();
                }
            }
        }
        triplets.push(row as usize, row as usize, diagonal).unwrap();
    }
    let a = triplets.to_csr().unwrap();
    let mg = Multigrid::new::<Levelset<f64>>(&be, &Hierarchy::galerkin(&a, None).unwrap()).unwrap();
    assert!(iterations(&be, Krylov::BiCgStab, &a, &mg, "a turning wind") <= 12);
}

/// The 27-point operator on every grid, as in HPCG.
fn given(size: [usize; 3], levels: usize) -> Vec<Csr<f64>> {
    let spec = |level: usize| format!("d3n27:{}x{}x{}", size[0] >> level, size[1] >> level, size[2] >> level);
    (0..levels).map(|level| generate::csr(&spec(level)).unwrap()).collect()
}

#[test]
fn given_operators() {
    let be = Cpu::new();
    let operators = given([16, 16, 16], 4);
    let cycle = |levels: usize| {
        let taken = operators[..levels].iter().map(Cow::Borrowed).collect();
        let grids = Hierarchy::injected(taken, [16, 16, 16]).unwrap();
        Multigrid::new::<Sweep<f64>>(&be, &grids).unwrap()
    };
    let count = |levels| iterations(&be, Krylov::Cg, &operators[0], &cycle(levels), "given");
    let counts: Vec<usize> = (1..=4).map(count).collect();
    println!("{counts:?}");
    assert!(counts[3] < counts[0]);
    assert_eq!((cycle(4).sizes()[3], cycle(4).plan(), cycle(4).is_stored_order(&be)), ([2, 2, 2], "sweep", true));
}

fn applied<T: Real, M: Preconditioner<T, Cpu>>(be: &Cpu, m: &M, n: usize) -> Vec<u64> {
    let r = be.upload(&uneven::<T>(n)).unwrap();
    let mut z = be.upload(&vec![T::nan(); n]).unwrap();
    m.apply(be, None, &r, &mut z).unwrap();
    be.download(&z).unwrap().iter().map(|z| z.as_f64().to_bits()).collect()
}

#[test]
fn a_cycle_moves_its_bytes_and_allocates_nothing() {
    let be = Trace::new(Cpu::new());
    let a = generate::csr::<f64>("d3n27:16").unwrap();
    for levels in [1, 3] {
        let grids = Hierarchy::galerkin(&a, Some(levels)).unwrap();
        let m = Multigrid::new::<Sweep<f64>>(&be, &grids).unwrap();
        let r = be.upload(&uneven::<f64>(a.nrows())).unwrap();
        let mut z = Backend::<f64>::zeros(&be, a.nrows()).unwrap();
        be.take();
        m.apply(&be, None, &r, &mut z).unwrap();
        let launches: Vec<u64> = be
            .take()
            .iter()
            .map(|event| match event {
                Event::Launch(launch) => launch.bytes(),
                other => panic!("a cycle does nothing but launch: {other}"),
            })
            .collect();
        assert_eq!((launches.len(), launches.iter().sum::<u64>()), (3 + 9 * (levels - 1), m.bytes()));
    }
}

#[test]
fn plans_share_bits() {
    let be = Cpu::new();
    let a = generate::csr::<f64>("d3n27:9x8x7").unwrap();
    let grids = Hierarchy::galerkin(&a, None).unwrap();
    let sweep = Multigrid::new::<Sweep<f64>>(&be, &grids).unwrap();
    let levels = Multigrid::new::<Levelset<f64>>(&be, &grids).unwrap();
    let first = applied::<f64, _>(&be, &sweep, a.nrows());
    assert_eq!(first, applied::<f64, _>(&be, &levels, a.nrows()));
    assert_eq!(first, applied::<f64, _>(&be, &sweep, a.nrows()), "nothing is left over from the first");
}

#[test]
fn refusals() {
    let be = Cpu::new();
    let mut a = generate::csr::<f64>("poisson2d:9x7").unwrap();
    let build = |a: &Csr<f64>| Multigrid::new::<Levelset<f64>>(&be, &Hierarchy::galerkin(a, None)?).map(|_| ());
    assert!(build(&a).is_ok());
    a.values_mut()[0] = 0.0;
    assert_eq!(build(&a).unwrap_err().status(), Some(Status::ZeroPivot));
    a.values_mut()[0] = f64::NAN;
    assert_eq!(build(&a).unwrap_err().status(), Some(Status::NotFinite));
    let shuffled = generate::csr::<f64>("electrostatic:n=300").unwrap();
    let error = build(&shuffled).unwrap_err();
    assert!(matches!(error, Error::NotAGrid { .. }) && error.to_string().contains("mg needs"), "{error}");
}

/// The entries of a matrix, each times something between 1 and 1.2.
fn varied(a: &Csr<f64>) -> Csr<f64> {
    let mut next = a.clone();
    next.values_mut().iter_mut().enumerate().for_each(|(k, v)| *v *= 1.0 + (k % 7) as f64 / 32.0);
    next
}

#[test]
fn new_values_have_the_bits_of_a_new_cycle() {
    let be = Cpu::new();
    let several = several(&generate::csr("d3n7:9x8x7").unwrap(), 3);
    let of = |spec: &str| generate::csr::<f64>(spec).unwrap();
    for (a, levels) in [
        (of("d3n27:12x9x7"), None),
        (of("anisotropic2d:33x16,eps=0.01"), None),
        (of("convdiff3d:9,peclet=0.5"), Some(2)),
        (of("poisson2d:3x2"), None),
        (several, None),
    ] {
        let n = a.nrows();
        let made = |a: &Csr<f64>| Multigrid::new::<Sweep<f64>>(&be, &Hierarchy::galerkin(a, levels).unwrap()).unwrap();
        let levelset =
            |a: &Csr<f64>| Multigrid::new::<Levelset<f64>>(&be, &Hierarchy::galerkin(a, levels).unwrap()).unwrap();
        let (mut m, mut by_levels, next) = (made(&a), levelset(&a), varied(&a));
        let (first, wanted) = (applied::<f64, _>(&be, &m, n), applied::<f64, _>(&be, &made(&next), n));
        assert_ne!(first, wanted);
        m.update(&be, &next).unwrap();
        by_levels.update(&be, &next).unwrap();
        assert_eq!(applied::<f64, _>(&be, &m, n), wanted);
        assert_eq!(applied::<f64, _>(&be, &by_levels, n), wanted);
        m.update_given(&be, &[&a]).unwrap();
        assert_eq!(applied::<f64, _>(&be, &m, n), first);
    }
}

#[test]
fn new_values_of_given_operators() {
    let be = Cpu::new();
    let old = given([8, 16, 8], 3);
    let new: Vec<Csr<f64>> = old.iter().map(varied).collect();
    let cycle = |operators: &[Csr<f64>]| {
        let operators = operators.iter().map(Cow::Borrowed).collect();
        Multigrid::new::<Sweep<f64>>(&be, &Hierarchy::injected(operators, [8, 16, 8]).unwrap()).unwrap()
    };
    let (mut m, n) = (cycle(&old), old[0].nrows());
    let first = applied::<f64, _>(&be, &m, n);
    assert!(matches!(m.update(&be, &new[0]), Err(Error::Size { found: 1, expected: 3, .. })));
    let mut other = new.clone();
    other[1] = generate::csr("d3n7:4x8x4").unwrap();
    let error = m.update_given(&be, &other.iter().collect::<Vec<_>>()).unwrap_err();
    assert!(matches!(error, Error::OtherPattern { grid: 1, row: 0 }), "{error}");
    assert_eq!(applied::<f64, _>(&be, &m, n), first);
    m.update_given(&be, &new.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(applied::<f64, _>(&be, &m, n), applied::<f64, _>(&be, &cycle(&new), n));
}

#[test]
fn other_patterns_and_grids_are_refused_and_change_nothing() {
    let be = Cpu::new();
    let a = generate::csr::<f64>("d3n7:9x8x7").unwrap();
    let n = a.nrows();
    let mut m = Multigrid::new::<Sweep<f64>>(&be, &Hierarchy::galerkin(&a, None).unwrap()).unwrap();
    let first = applied::<f64, _>(&be, &m, n);
    let mut refused = |a: &Csr<f64>| {
        let error = m.update(&be, a).unwrap_err();
        assert_eq!(applied::<f64, _>(&be, &m, n), first, "{error}");
        error
    };
    let entries = |but: (usize, usize), and: Option<(usize, usize)>| {
        let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(move |(&j, &v)| (i, j as usize, v));
        let kept = (0..n).flat_map(row).filter(|&(i, j, _)| (i, j) != but);
        problems::matrix(n, n, &kept.chain(and.map(|(i, j)| (i, j, 0.5))).collect::<Vec<_>>())
    };
    let other = |error| match error {
        Error::OtherPattern { grid, row } => (grid, row),
        error => panic!("{error}"),
    };
    assert_eq!(other(refused(&generate::csr("d3n27:9x8x7").unwrap())), (0, 0));
    assert_eq!(other(refused(&entries((300, 301), None))), (0, 300));
    assert_eq!(other(refused(&entries((301, 300), None))), (0, 301));
    assert_eq!(other(refused(&entries((n, n), Some((17, 400))))), (0, 17));
    // As many entries as before.
    assert_eq!(other(refused(&entries((200, 201), Some((200, 203))))), (0, 200));
    assert!(matches!(refused(&generate::csr("d3n7:9x8x8").unwrap()), Error::Size { found: 576, expected: 504, .. }));
    assert!(matches!(refused(&problems::matrix(2, 3, &[])), Error::NotSquare { .. }));
    assert_eq!(refused(&entries((40, 40), None)).status(), Some(Status::ZeroPivot));
    assert_eq!(refused(&a.map(|v| v * f64::NAN)).status(), Some(Status::NotFinite));
    // The new values are weak along X.
    let mut weak = a.clone();
    for i in 0..n {
        let begin = a.row_ptr()[i] as usize;
        for (k, &j) in a.row(i).0.iter().enumerate().filter(|(_, j)| j.abs_diff(i as u32) == 1) {
            assert!(j < n as u32);
            weak.values_mut()[begin + k] *= 1e-3;
        }
    }
    let error = refused(&weak);
    assert!(matches!(&error, Error::OtherGrids { found, .. } if found[1] == [9, 4, 3]), "{error}");
    let (weak, mut twice) = (Hierarchy::galerkin(&weak, None).unwrap(), a.map(|v| 2.0 * v));
    assert_eq!(weak.sizes()[1], [9, 4, 3]);
    m.update(&be, &twice).unwrap();
    twice.values_mut()[0] = 0.0;
    assert!(m.update(&be, &twice).is_err());
}

/// A matrix with `unknowns` at each point of another's grid, coupled at each point and between points.
fn several(a: &Csr<f64>, unknowns: usize) -> Csr<f64> {
    let n = a.nrows() * unknowns;
    let mut entries = Vec::new();
    for i in 0..a.nrows() {
        let (cols, values) = a.row(i);
        for (&j, &v) in cols.iter().zip(values) {
            for (k, l) in (0..unknowns * unknowns).map(|at| (at / unknowns, at % unknowns)) {
                // K x (I + 1 1^T / 4), positive definite for any number of unknowns.
                let weight = if k == l { 1.25 } else { 0.25 };
                entries.push((i * unknowns + k, j as usize * unknowns + l, weight * v));
            }
        }
    }
    problems::matrix(n, n, &entries)
}

#[test]
fn coarse_operators_are_those_of_the_interpolation() {
    let scalar = generate::csr::<f64>("d3n7:9x8x7").unwrap();
    let matrices = [
        generate::csr::<f64>("d3n27:12x9x7").unwrap(),
        generate::csr::<f64>("anisotropic2d:33x16,eps=0.01").unwrap(),
        generate::csr::<f64>("convdiff3d:9,peclet=0.5").unwrap(),
        several(&scalar, 3),
    ];
    for (which, mut a) in matrices.into_iter().enumerate() {
        a.values_mut().iter_mut().enumerate().for_each(|(k, v)| *v *= 1.0 + (k % 11) as f64 / 30.0);
        let grids = Hierarchy::galerkin(&a, None).unwrap();
        assert!(grids.levels() > 2 && grids.interpolation(grids.levels() - 1).unwrap().is_none());
        for level in 1..grids.levels() {
            let p = grids.interpolation(level - 1).unwrap().unwrap();
            let triple = |a: &Csr<f64>| product(&p.transpose(), &product(a, &p).unwrap()).unwrap();
            let (fine, coarse) = (grids.operator(level - 1).unwrap(), grids.operator(level).unwrap());
            let (exact, magnitudes) = (triple(fine), triple(&fine.map(f64::abs)));
            for i in 0..coarse.nrows() {
                // Both sums have fewer terms than this.
                let bound = |j: u32| 1000.0 * f64::EPSILON * magnitudes.get(i, j as usize).unwrap_or(0.0);
                for (&j, v) in coarse.row(i).0.iter().zip(coarse.row(i).1) {
                    let wanted = exact.get(i, j as usize).unwrap_or(0.0);
                    assert!((v - wanted).abs() <= bound(j), "{which}, level {level}, ({i}, {j}): {v}, {wanted}");
                }
                assert!(exact.row(i).0.iter().all(|&j| coarse.get(i, j as usize).is_some()), "{which} {level} {i}");
            }
        }
    }
}

#[test]
fn several_unknowns_a_point() {
    let be = Cpu::new();
    for (spec, size) in [("d3n7:16x15x14", [16, 15, 14]), ("d3n27:12", [12, 12, 12]), ("poisson2d:33x32", [33, 32, 1])]
    {
        let scalar = generate::csr::<f64>(spec).unwrap();
        let alone = both(&be, Krylov::Cg, spec).0;
        for unknowns in 2..=5 {
            let a = several(&scalar, unknowns);
            let grids = Hierarchy::galerkin(&a, None).unwrap();
            if grids.unknowns() == unknowns {
                assert_eq!(grids.sizes()[0], size);
            } else {
                // The unknowns are an axis of a grid.
                assert_eq!(
                    grids.sizes().iter().map(|size| size[0]).collect::<Vec<_>>(),
                    vec![unknowns; grids.levels()]
                );
            }
            let mg = Multigrid::new::<Levelset<f64>>(&be, &grids).unwrap();
            let count = iterations(&be, Krylov::Cg, &a, &mg, spec);
            println!("{spec} with {unknowns} unknowns per point: {count} of {:?}", grids.sizes());
            assert!(count <= 2 * alone, "{spec} {unknowns}: {count}, {alone} with one unknown");
        }
    }
}
