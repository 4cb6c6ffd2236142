//! The multigrid cycle as a preconditioner: iterations that hardly depend on the size of the grid, odd and thin grids, semicoarsening,
//! operators that are given, recorded as plain, and refusals.

mod problems;

use std::borrow::Cow;

use problems::{Krylov, honest, solve_from, uneven};
use spandrel_backend::{Backend, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format, Real, generate};
use spandrel_solvers::{Error, Hierarchy, Multigrid, Options, Ssor, Status};
use spandrel_sptrsv::{Levelset, Sweep};

/// Iterations to convergence, the true residual checked.
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
    for (small, large) in [
        ("d3n7:16", "d3n7:32"),
        ("d3n27:16", "d3n27:32"),
        ("d3n27:15x13x17", "d3n27:31x27x33"),
        ("poisson2d:32", "poisson2d:128"),
        ("poisson2d9:32", "poisson2d9:128"),
        ("anisotropic2d:32,eps=0.001", "anisotropic2d:128,eps=0.001"),
        ("d3n7:40x6x3", "d3n7:80x12x6"),
    ] {
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
fn a_single_grid_is_gauss_seidel_and_plans_share_bits() {
    let be = Cpu::new();
    let a = generate::csr::<f64>("d3n27:9x8x7").unwrap();
    let grids = Hierarchy::galerkin(&a, None).unwrap();
    let sweep = Multigrid::new::<Sweep<f64>>(&be, &grids).unwrap();
    let levels = Multigrid::new::<Levelset<f64>>(&be, &grids).unwrap();
    let first = applied::<f64, _>(&be, &sweep, a.nrows());
    assert_eq!(first, applied::<f64, _>(&be, &levels, a.nrows()));
    assert_eq!(first, applied::<f64, _>(&be, &sweep, a.nrows()), "nothing is left over from the first");
    let one = Hierarchy::galerkin(&a, Some(1)).unwrap();
    assert_eq!(one.levels(), 1);
    let single = Multigrid::new::<Sweep<f64>>(&be, &one).unwrap();
    let ssor = Ssor::<Cpu, Sweep<f64>>::new(&be, &a).unwrap();
    let (x, y) = (applied::<f64, _>(&be, &single, a.nrows()), applied::<f64, _>(&be, &ssor, a.nrows()));
    // 26 = 2 * 13: dividing rows before or columns after rounds differently.
    let near = x.iter().zip(&y).all(|(&x, &y)| {
        let (x, y) = (f64::from_bits(x), f64::from_bits(y));
        (x - y).abs() <= 1e-12 * x.abs().max(1e-3)
    });
    assert!(near);
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
    // Two unknowns a point, one after the other: no stencil with one unknown a point.
    let block = generate::csr::<f64>("d3n7:6").unwrap();
    let entries: Vec<(usize, usize, f64)> = (0..block.nrows())
        .flat_map(|i| {
            let (cols, values) = block.row(i);
            cols.iter().zip(values).flat_map(move |(&j, &v)| {
                let j = j as usize;
                [(2 * i, 2 * j, v), (2 * i + 1, 2 * j + 1, v), (2 * i, 2 * j + 1, 0.1 * v), (2 * i + 1, 2 * j, 0.1 * v)]
            })
        })
        .collect();
    let two = problems::matrix::<f64>(2 * block.nrows(), 2 * block.nrows(), &entries);
    println!(
        "two unknowns a point: {:?} {:?}",
        spandrel_formats::Grid::detect(&two),
        build(&two).map_err(|e| e.to_string())
    );
}
