//! The examples give right answers: each is compiled here and compared with what is known about its problem.

#![cfg(feature = "cpu")]
#![allow(dead_code)] // their `main`
#![allow(clippy::duplicate_mod)] // three of them draw

use spandrel::any::Choice;
use spandrel::formats::matrix_market;
use spandrel::solvers::{Direct, DirectOptions, Method};
use spandrel::{Cpu, Csr, Solution, Triplets, formats};

#[path = "../examples/convection_diffusion.rs"]
mod convection_diffusion;
#[path = "../examples/elasticity.rs"]
mod elasticity;
#[path = "../examples/from_file.rs"]
mod from_file;
#[path = "../examples/heat.rs"]
mod heat;
#[path = "../examples/own_operator.rs"]
mod own_operator;
#[path = "../examples/own_preconditioner.rs"]
mod own_preconditioner;
#[path = "../examples/picture/mod.rs"]
mod picture;
#[path = "../examples/solver.rs"]
mod solver;

/// sin(pi x) sin(pi y) is an eigenvector of the step, so each step divides it by a known number.
#[test]
fn heat_decays_as_its_eigenvector_does() {
    let (n, dt, steps) = (31, 1e-3, 5);
    let h = 1.0 / (n + 1) as f64;
    let wave = |i: usize| (std::f64::consts::PI * (i + 1) as f64 * h).sin();
    let start: Vec<f64> = (0..n * n).map(|k| wave(k % n) * wave(k / n)).collect();
    let march = heat::march(Choice::Cpu, n, dt, &start, &[0, steps]).expect("a march");
    assert_eq!(march.kept[0], start);

    let eigenvalue = 2.0 * (4.0 / (h * h)) * (std::f64::consts::PI * h / 2.0).sin().powi(2);
    let factor = (1.0 + dt * eigenvalue).powi(-(steps as i32));
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    let off = norm(&mut march.kept[1].iter().zip(&start).map(|(u, s)| u - factor * s));
    // The smallest eigenvalue of a step exceeds 1, so each leaves at most rtol of its right-hand side.
    assert!(off <= steps as f64 * 1e-10 * norm(&mut start.iter().copied()), "{off:e}");
}

#[test]
fn heat_spreads_and_cools() {
    let n = 40;
    let march = heat::march(Choice::Cpu, n, 1e-4, &heat::ring_and_disc(n), &[0, 2, 10]).expect("a march");
    let hottest: Vec<f64> = march.kept.iter().map(|u| u.iter().copied().fold(0.0, f64::max)).collect();
    assert!(hottest[0] == 1.0 && hottest[0] > hottest[1] && hottest[1] > hottest[2], "{hottest:?}");
}

/// The pictures of the gallery have the bits that the examples draw on a CPU. `SPANDREL_GUIDE=write` writes them.
/// Without optimisation this takes ten seconds, so it runs in CI only (`SPANDREL_SUITE=whole`).
#[test]
fn the_gallery_shows_what_the_examples_draw() {
    let is = |name: &str, wanted: &str| std::env::var_os(name).is_some_and(|value| value == wanted);
    let write = is("SPANDREL_GUIDE", "write");
    if !write && !is("SPANDREL_SUITE", "whole") {
        println!("skipped: set SPANDREL_SUITE=whole to draw the pictures");
        return;
    }
    let pictures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let folder = std::env::temp_dir().join(format!("spandrel-gallery-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let [heat, whirl, elasticity] = ["heat.png", "whirl.png", "elasticity.png"].map(|name| folder.join(name));
    heat::draw(Choice::Cpu, &heat).expect("a picture");
    convection_diffusion::draw(Choice::Cpu, &whirl).expect("a picture");
    elasticity::draw(Choice::Cpu, &elasticity).expect("a picture");
    for drawn in [heat, whirl, elasticity] {
        let shown = pictures.join(drawn.file_name().expect("a name"));
        if write {
            std::fs::copy(&drawn, &shown).expect("the picture can be written");
        }
        let same = std::fs::read(&drawn).expect("drawn") == std::fs::read(&shown).expect("shown");
        assert!(same, "{} is not what its example draws; SPANDREL_GUIDE=write writes it", shown.display());
    }
    std::fs::remove_dir_all(&folder).expect("own folder");
}

/// Without a hole and with Poisson's ratio 0 the strain is 1 everywhere, so u = (x, 0), which bilinear elements hold.
#[test]
fn a_plate_without_a_hole_is_stretched_evenly() {
    let plate = elasticity::Plate { n: 12, ratio: 0.0, hole: 0.0 };
    let (a, load, coordinates) = plate.assemble(&plate.numbers()).expect("a matrix");
    let u: Vec<f64> = coordinates.chunks_exact(2).flat_map(|at| [at[0], 0.0]).collect();
    for (row, b) in load.iter().enumerate() {
        let (cols, values) = a.row(row);
        let terms: Vec<f64> = cols.iter().zip(values).map(|(&j, v)| v * u[j as usize]).collect();
        // An entry has up to 4 cells of 4 points of Gauss of 3 terms, and a row 18 entries.
        let size =
            terms.iter().map(|t| t.abs()).sum::<f64>() + values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let off = (terms.iter().sum::<f64>() - b).abs();
        assert!(off <= (48.0 + 18.0) * f64::EPSILON * size, "row {row}: {off:e}");
    }
}

/// Kirsch: beside a small hole in a large plate the stress is three times the pull.
#[test]
fn stress_gathers_beside_a_hole() {
    let plate = elasticity::Plate { n: 40, ratio: 0.3, hole: 0.1 };
    let bent = plate.bend(Choice::Cpu).expect("a solve");
    let most = bent.stress.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("cells");
    let (x, y) = (most.0 % 40, most.0 / 40);
    assert!((2.2..3.6).contains(most.1), "{most:?}");
    // Above or below the hole, not before or behind it.
    assert!((17..23).contains(&x) && !(17..23).contains(&y), "{x} {y}");
    assert!(bent.solution.outcome.iterations < 40, "{:?}", bent.solution.outcome);
}

/// No point of a flow without sources is hotter than the hottest wall, or colder than the coldest.
#[test]
fn a_whirl_stays_between_its_walls() {
    let (n, eps) = (31, 0.02);
    let Solution { x: u, outcome, .. } = convection_diffusion::solve(Choice::Cpu, n, eps).expect("a solve");
    assert!(outcome.status.is_converged(), "{outcome:?}");
    // The inverse of an M-matrix has no negative entry, so its maximum norm is the largest entry of A^-1 1; times the
    // residual it bounds the error of u.
    let (csr, b) = convection_diffusion::assemble(n, eps).expect("a matrix");
    let mut rows = vec![0.0; n * n];
    let direct = Direct::new(csr, &DirectOptions::default()).and_then(|d| d.solve(&vec![1.0; n * n], &mut rows));
    assert!(direct.expect("factors").status.is_converged());
    let inverse = rows.iter().copied().fold(0.0, f64::max);
    let off = inverse * outcome.true_residual * b.iter().map(|b| b * b).sum::<f64>().sqrt();
    assert!(off < 1e-3 && u.iter().all(|u| (-off..=1.0 + off).contains(u)), "{off:e} {u:?}");
    // It turns clockwise: down the hot wall, then along the floor.
    let [floor, ceiling] = [n / 8, n - 1 - n / 8].map(|j| u[j * n + n / 2]);
    assert!(floor > ceiling, "{floor} {ceiling}");
}

#[test]
fn a_file_is_solved_by_what_suits_it() {
    let folder = std::env::temp_dir().join(format!("spandrel-examples-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let cases = [("poisson2d:12", Method::Direct), ("convdiff3d:6,peclet=10", Method::BiCgStab)];
    for (spec, expected) in cases {
        let path = folder.join(format!("{expected}.mtx"));
        let made = formats::generate::csr::<f64>(spec).expect("a matrix");
        matrix_market::write_csr(&path, &made, &matrix_market::WriteOptions::default()).expect("a file");
        let read: Csr<f64> = matrix_market::read_csr(&path).expect("the file");
        assert_eq!(read, made);
        let (solution, plan) = from_file::solve(read).expect("a solve");
        assert_eq!((solution.method, solution.x.len()), (expected, made.row_ptr().len() - 1));
        assert!(solution.outcome.status.is_converged() && plan.contains("solver "), "{spec}: {solution:?}");
    }
    std::fs::remove_dir_all(&folder).expect("to clean up");
}

/// A + lambda D^T D assembled and solved directly: all eigenvalues are at least 1, so the answers differ by no more
/// than the residuals.
#[test]
fn an_own_operator_is_the_matrix_that_it_stands_for() {
    let (n, lambda) = (300, 20.0);
    let (clean, noisy) = own_operator::signal(n);
    let (x, outcome) = own_operator::smooth(&noisy, lambda).expect("a solve");
    assert!(outcome.status.is_converged(), "{outcome:?}");
    assert!(own_operator::distance(&x, &clean) < own_operator::distance(&noisy, &clean));

    let mut entries = Triplets::new(n, n).expect("a shape");
    for i in 0..n {
        let neighbours = usize::from(i > 0) + usize::from(i + 1 < n);
        entries.push(i, i, 1.0 + lambda * neighbours as f64).expect("an entry");
        if i + 1 < n {
            entries.push(i, i + 1, -lambda).expect("an entry");
            entries.push(i + 1, i, -lambda).expect("an entry");
        }
    }
    let mut exact = vec![0.0; n];
    let direct = Direct::new(entries.to_csr().expect("a matrix"), &DirectOptions::default());
    let direct = direct.and_then(|d| d.solve(&noisy, &mut exact)).expect("factors");
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    let far = norm(&mut x.iter().zip(&exact).map(|(x, e)| x - e));
    let residuals = outcome.true_residual + direct.true_residual;
    assert!(far <= residuals * norm(&mut noisy.iter().copied()), "{far:e} {residuals:e}");
}

#[test]
fn an_own_preconditioner_saves_iterations() {
    let [jacobi, neumann] = own_preconditioner::compare(&Cpu::new(), "poisson2d:40").expect("solves");
    assert!(jacobi.status.is_converged() && neumann.status.is_converged(), "{jacobi:?} {neumann:?}");
    assert!(2 * neumann.iterations <= jacobi.iterations + 2, "{} {}", neumann.iterations, jacobi.iterations);
}

#[test]
fn solvers_take_new_values_and_several_right_hand_sides_in_25_lines() {
    let [solved, doubled] = solver::run("convdiff3d:8,peclet=5").expect("solves");
    for outcome in solved.outcomes.iter().chain(&doubled.outcomes) {
        assert!(outcome.status.is_converged() && outcome.true_residual <= 1e-8, "{outcome}");
    }
    assert_eq!((solved.outcomes.len(), doubled.outcomes.len(), doubled.x.len()), (5, 5, 5 * 8 * 8 * 8));
    // Every operation of the solve with 2 A is exactly a power of two of that with A.
    assert!(solved.x.iter().zip(&doubled.x).all(|(x, half)| *x == 2.0 * half));
    let lines = include_str!("../examples/solver.rs").lines().count();
    assert!(lines <= 25, "the example has {lines} lines");
}

#[test]
fn a_picture_has_a_pixel_for_each_value() {
    let path = std::env::temp_dir().join(format!("spandrel-examples-{}.png", std::process::id()));
    let panels = [vec![0.0, 1.0, 2.0, 3.0], vec![1.5; 4]];
    picture::write(&path, &panels, 2, 3, (0.0, 3.0)).expect("a picture");
    let file = std::io::BufReader::new(std::fs::File::open(&path).expect("the picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    std::fs::remove_file(&path).expect("to clean up");
    assert_eq!((info.width, info.height), (6 + 8 + 6, 6));
    let at = |row: usize, column: usize| &pixels[3 * (row * 20 + column)..][..3];
    // y points upwards: values 0 and 1 are the lower row.
    assert_eq!(
        (at(5, 0), at(5, 5), at(0, 0), at(0, 5)),
        (&[0, 0, 0][..], &[255, 0, 0][..], &[255, 255, 0][..], &[255; 3][..])
    );
    assert_eq!((at(2, 7), at(2, 14)), (&[255; 3][..], &[255, 127, 0][..]));
}
