//! Geometric multigrid with polynomial smoothers: the number of iterations hardly depends on the size of the grid, M
//! is symmetric, any number of threads gives the same bits; new values, and refusals.

mod problems;

use problems::{Krylov, honest, solve_from, uneven};
use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, generate};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{Error, Identity, Options, PolynomialSmoother, Status, StencilMultigrid};

type Cycle = StencilMultigrid<f64, Cpu>;

const SMOOTHERS: [PolynomialSmoother; 2] = [PolynomialSmoother::Chebyshev(2), PolynomialSmoother::L1Jacobi(2)];

fn made(be: &Cpu, a: &Csr<f64>, smoother: PolynomialSmoother) -> spandrel_solvers::Result<Cycle> {
    Cycle::of(be, &Mat::load(be, a.clone())?, None, smoother, &mut unobserved)
}

fn iterations(be: &Cpu, a: &Csr<f64>, smoother: PolynomialSmoother, what: &str) -> usize {
    let m = made(be, a, smoother).expect(what);
    assert_eq!(m.smoother(), smoother);
    let b = uneven(a.nrows());
    let (outcome, x) = solve_from(be, Krylov::Cg, a, &m, &b, &[], &Options::default());
    assert_eq!(outcome.status, Status::Converged, "{what}: {:?} {:e}", outcome.breakdown, outcome.true_residual);
    honest(a, &x, &b, &outcome);
    println!("{what}, {smoother:?}: {} iterations on {:?}", outcome.iterations, m.sizes());
    outcome.iterations
}

/// Symmetric positive definite, with coefficients that vary by a factor of two.
fn varied(spec: &str) -> Csr<f64> {
    generate::csr::<f64>(spec).unwrap().map_entries(|i, j, v| {
        let (low, high) = (i.min(j), i.max(j));
        if low == high { 2.5 * v } else { v * (1.0 + ((low * 7919 + high * 104_729) % 1013) as f64 / 1100.0) }
    })
}

#[test]
fn iterations_hardly_depend_on_the_size() {
    let be = Cpu::new();
    for (small, large) in [
        ("poisson3d:10", "poisson3d:20"),
        ("d3n27:9x8x10", "d3n27:19x17x21"),
        ("poisson2d:32", "poisson2d:128"),
        ("poisson2d9:31", "poisson2d9:127"),
        ("anisotropic2d:32,eps=0.01", "anisotropic2d:128,eps=0.01"),
        ("d3n7:40x6x3", "d3n7:80x12x6"),
    ] {
        for (smoother, most) in SMOOTHERS.into_iter().zip([25, 14]) {
            let [few, many] = [small, large].map(|spec| iterations(&be, &generate::csr(spec).unwrap(), smoother, spec));
            assert!(many <= few + few / 2 + 2 && many <= most, "{smoother:?}: {small} {few}, {large} {many}");
        }
    }
}

#[test]
fn small_thin_and_varied_grids_converge() {
    let be = Cpu::new();
    for spec in ["poisson1d:1", "poisson1d:3", "poisson1d:700", "poisson2d:40x3", "poisson3d:5x4x3", "d3n27:30x3x4"] {
        for smoother in SMOOTHERS {
            iterations(&be, &generate::csr(spec).unwrap(), smoother, spec);
        }
    }
    for spec in ["poisson3d:17x16x15", "poisson2d9:61x40", "d3n27:12x13x14"] {
        for smoother in SMOOTHERS {
            iterations(&be, &varied(spec), smoother, spec);
        }
    }
    // Rows without neighbours, as Dirichlet conditions leave them.
    let a = generate::csr::<f64>("poisson2d:50").unwrap();
    let held = |i: usize| i.is_multiple_of(7) || (1200..1300).contains(&i);
    let masked = a.map_entries(|i, j, v| if i != j && (held(i) || held(j)) { 0.0 } else { v });
    let triplets = (0..a.nrows()).flat_map(|i| {
        let row = masked.row(i);
        row.0.iter().zip(row.1).filter(|(_, v)| **v != 0.0).map(move |(&j, &v)| (i, j as usize, v)).collect::<Vec<_>>()
    });
    let masked = Csr::from_triplets(a.nrows(), a.nrows(), triplets).unwrap();
    for smoother in SMOOTHERS {
        iterations(&be, &masked, smoother, "masked");
    }
}

#[test]
fn a_last_grid_that_is_too_large_for_an_inverse_is_smoothed() {
    let (be, a) = (Cpu::new(), generate::csr::<f64>("poisson3d:17x16x15").unwrap());
    let (on_device, b) = (Mat::load(&be, a.clone()).unwrap(), uneven(a.nrows()));
    let plain = solve_from(&be, Krylov::Cg, &a, &Identity, &b, &[], &Options::default()).0;
    for smoother in SMOOTHERS {
        let m = Cycle::of(&be, &on_device, Some(1), smoother, &mut unobserved).unwrap();
        assert_eq!(m.sizes(), [[17, 16, 15]]);
        let (outcome, x) = solve_from(&be, Krylov::Cg, &a, &m, &b, &[], &Options::default());
        assert_eq!(outcome.status, Status::Converged, "{smoother:?}");
        honest(&a, &x, &b, &outcome);
        println!("{smoother:?}: {} iterations on one grid, {} without", outcome.iterations, plain.iterations);
        assert!(4 * outcome.iterations < 3 * plain.iterations, "{smoother:?}: {}", outcome.iterations);
    }
}

/// M^-1 r.
fn applied(be: &Cpu, m: &Cycle, r: &[f64]) -> Vec<f64> {
    let (r, mut z) = (be.upload(r).unwrap(), be.upload(&vec![f64::NAN; r.len()]).unwrap());
    m.apply(be, None, &r, &mut z).unwrap();
    be.download(&z).unwrap()
}

#[test]
fn the_cycle_is_symmetric_and_positive() {
    let be = Cpu::new();
    for spec in ["poisson3d:14x13x12", "poisson2d9:33x50", "anisotropic2d:40,eps=0.01"] {
        let a = varied(spec);
        let [r, s] = [1, 2]
            .map(|seed| (0..a.nrows()).map(|i| ((i * 7919 + seed * 31) % 1009) as f64 - 500.0).collect::<Vec<f64>>());
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        for smoother in SMOOTHERS {
            let m = made(&be, &a, smoother).unwrap();
            let [of_r, of_s] = [&r, &s].map(|v| applied(&be, &m, v));
            let scale = (dot(&r, &of_r) * dot(&s, &of_s)).sqrt();
            assert!(dot(&r, &of_r) > 0.0 && dot(&s, &of_s) > 0.0, "{spec} {smoother:?}");
            assert!((dot(&s, &of_r) - dot(&r, &of_s)).abs() <= 1e-11 * scale, "{spec} {smoother:?}");
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let a = varied("poisson3d:40x37x33");
    let r = uneven(a.nrows());
    let bits = |threads: usize| -> Vec<u64> {
        let be = Cpu::with_threads(threads).unwrap();
        let m = Cycle::new(&be, a.clone()).unwrap();
        applied(&be, &m, &r).iter().map(|v| v.to_bits()).collect()
    };
    let one = bits(1);
    for threads in [2, 3, 7] {
        assert!(bits(threads) == one, "{threads} threads");
    }
}

#[test]
fn new_values_give_the_bits_of_a_new_cycle() {
    let be = Cpu::new();
    let (first, second) = (generate::csr::<f64>("poisson3d:16x15x14").unwrap(), varied("poisson3d:16x15x14"));
    let r = uneven(first.nrows());
    let mut refused = second.clone();
    refused.values_mut()[0] = -1.0;
    let [refused, other] = [refused, generate::csr("poisson3d:9").unwrap()].map(|a| Mat::load(&be, a).unwrap());
    for smoother in SMOOTHERS {
        let mut m = made(&be, &first, smoother).unwrap();
        let before = applied(&be, &m, &r);
        assert!(matches!(m.update_from(&be, &refused), Err(Error::Diagonal { row: 0, .. })));
        assert_eq!(applied(&be, &m, &r), before, "a refused matrix changes nothing");
        m.update_from(&be, &Mat::load(&be, second.clone()).unwrap()).unwrap();
        assert_eq!(applied(&be, &m, &r), applied(&be, &made(&be, &second, smoother).unwrap(), &r), "{smoother:?}");
        assert!(matches!(m.update_from(&be, &other), Err(Error::Size { .. })));
    }
}

#[test]
fn what_does_not_suit_is_refused() {
    let be = Cpu::new();
    for spec in
        ["convdiff2d:20,peclet=10", "elasticity2d:10", "random:n=300,nnz_per_row=5", "electrostatic:n=300", "d3n13:8"]
    {
        let refused = Cycle::new(&be, generate::csr::<f64>(spec).unwrap()).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{spec}: {refused}");
    }
    let a = generate::csr::<f64>("poisson2d:30").unwrap();
    let with = |row: usize, value: f64| {
        let at = a.row_ptr()[row] as usize + a.row(row).0.iter().position(|&j| j as usize == row).unwrap();
        let mut a = a.clone();
        a.values_mut()[at] = value;
        Cycle::new(&be, a).unwrap_err()
    };
    assert!(matches!(with(77, 0.0), Error::Diagonal { row: 77, found: "zero" }));
    assert!(matches!(with(899, -4.0), Error::Diagonal { row: 899, found: "negative" }));
    assert!(matches!(with(0, f64::INFINITY), Error::Diagonal { row: 0, found: "infinite" }));
    let refused = with(5, f64::NAN);
    assert!(matches!(refused, Error::Diagonal { row: 5, found: "NaN" }), "{refused}");
    assert!(matches!(with(5, 1e-320), Error::Diagonal { row: 5, .. }));
    // A shift makes the smooth vectors negative; the diagonal stays positive.
    let shifted = a.map_entries(|i, j, v| if i == j { v - 0.5 } else { v });
    assert!(matches!(Cycle::new(&be, shifted).unwrap_err(), Error::NotPositive { method: "mg", .. }));
    let wide = Csr::<f64>::new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();
    assert!(matches!(Cycle::new(&be, wide).unwrap_err(), Error::NotSquare { .. }));
    let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).unwrap();
    assert!(Cycle::new(&be, empty).is_err());
    // A row whose entries are finite, and their sum is not.
    let large = a.map_entries(|i, j, v| if i == 77 || j == 77 { v.signum() * f64::MAX } else { v });
    let refused = made(&be, &large, PolynomialSmoother::L1Jacobi(2)).unwrap_err();
    assert!(
        matches!(refused, Error::Diagonal { row: 77, .. }) && refused.to_string().contains("overflows"),
        "{refused}"
    );
    let a = Mat::load(&be, a).unwrap();
    for of_degree in [PolynomialSmoother::Chebyshev, PolynomialSmoother::L1Jacobi] {
        let with = |levels, degree| Cycle::of(&be, &a, levels, of_degree(degree), &mut unobserved);
        for degree in [0, 5] {
            assert!(matches!(with(None, degree).unwrap_err(), Error::Parameter { name: "degree", .. }));
        }
        assert!(matches!(with(Some(0), 2).unwrap_err(), Error::Parameter { name: "levels", .. }));
        assert_eq!(with(Some(2), 3).unwrap().sizes().len(), 2);
    }
}
