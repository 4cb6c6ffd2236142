//! The sweep: it gives the bits of the serial solve on every kind of grid, with every number of threads. It refuses
//! anything else, and names the row.

use std::sync::Arc;

use spandrel_backend::{Backend, Order, Sptrsv, Tri};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::generate::Stencil;
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_sptrsv::{Diagonal, Error, Plan, Sweep, System, Systems, Triangle, Triangular, serial, split};

/// A generator of numbers in -1..1 that are not zero.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (((self.0 >> 33) | 1) as f64) / (1u64 << 30) as f64 - 1.0
    }
}

/// Stencils by their number of points, in as many dimensions as they need.
fn stencils() -> Vec<(usize, Stencil)> {
    let weighed = |offsets: Vec<[i32; 3]>| Stencil::new(offsets.into_iter().map(|o| (o, 1.0)));
    let cube = || (0..27).map(|k| [k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1]);
    let steps = |o: &[i32; 3]| o.iter().filter(|&&d| d != 0).count();
    vec![
        (3, Stencil::star(1, 1).unwrap()),
        (5, Stencil::star(2, 1).unwrap()),
        (9, Stencil::cubic(2).unwrap()),
        (7, Stencil::star(3, 1).unwrap()),
        (13, Stencil::star(3, 2).unwrap()),
        (15, weighed(cube().filter(|o| steps(o) != 2).collect())),
        (19, weighed(cube().filter(|o| steps(o) != 3).collect())),
        (27, Stencil::cubic(3).unwrap()),
        (33, Stencil::d3n33()),
    ]
}

/// The offsets of a stencil before the diagonal.
fn lower(stencil: &Stencil) -> Vec<[i32; 3]> {
    stencil.offsets().iter().copied().take_while(|&o| o != [0; 3]).collect()
}

const SIZES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [9, 1, 1],
    [200, 1, 1],
    [13, 11, 1],
    [1, 12, 9],
    [7, 1, 6],
    [64, 1, 5],
    [33, 17, 9],
    [2, 3, 4],
    [3, 2, 9],
    [5, 6, 2],
    [4, 31, 3],
];

/// A triangle of a stencil's matrix with values of its own; the diagonal dominates.
fn triangle_on<T: Real>(
    stencil: &Stencil,
    size: [usize; 3],
    triangle: Triangle,
    diagonal: Diagonal,
    seed: u64,
) -> Arc<Triangular<T>> {
    let mut a = stencil.on_grid::<T>(size).unwrap();
    renew(&mut a, seed);
    Arc::new(Triangular::new(part(&a, triangle), triangle, diagonal).unwrap())
}

fn part<T: Real>(a: &Csr<T>, triangle: Triangle) -> Csr<T> {
    let parts = split(a).unwrap();
    match triangle {
        Triangle::Lower => parts.lower,
        Triangle::Upper => parts.upper,
    }
}

fn renew<T: Real>(a: &mut Csr<T>, seed: u64) {
    let mut numbers = Numbers(seed);
    let diagonals: Vec<usize> = (0..a.nrows())
        .filter_map(|i| a.row(i).0.binary_search(&(i as u32)).ok().map(|k| a.row_ptr()[i] as usize + k))
        .collect();
    let scale = 0.1;
    a.values_mut().iter_mut().for_each(|v| *v = T::from_f64(scale * numbers.next()));
    for e in diagonals {
        a.values_mut()[e] = T::from_f64(3.0 + numbers.next());
    }
}

fn vector<T: Real>(n: usize, seed: u64) -> Vec<T> {
    let mut numbers = Numbers(seed);
    (0..n).map(|_| T::from_f64(numbers.next())).collect()
}

/// The result of the serial solve.
fn expected<T: Real>(t: &Triangular<T>, system: System, b: &[T]) -> Vec<T> {
    let mut x = vec![T::nan(); b.len()];
    match system {
        System::Plain => serial::solve(t, b, &mut x).unwrap(),
        System::Transposed => {
            let transposed = Triangular::new(t.csr().transpose(), t.triangle().transposed(), t.diagonal()).unwrap();
            serial::solve(&transposed, b, &mut x).unwrap();
        }
    }
    x
}

/// Returns true if the bits are the same; f32 is exact in f64.
fn same<T: Real>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.as_f64().to_bits() == b.as_f64().to_bits())
}

/// Whether the whole suite is asked for, as in CI.
fn whole() -> bool {
    std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole")
}

fn threads() -> [Cpu; 3] {
    [1, 2, 3].map(|count| Cpu::with_threads(count).unwrap())
}

const SYSTEMS: [System; 2] = [System::Plain, System::Transposed];
const KINDS: [(Triangle, Diagonal); 4] = [
    (Triangle::Lower, Diagonal::NonUnit),
    (Triangle::Upper, Diagonal::NonUnit),
    (Triangle::Lower, Diagonal::Unit),
    (Triangle::Upper, Diagonal::Unit),
];

/// Solves a plan with every number of threads, for one column, several columns and in place. Compares with the serial
/// solve.
fn compare<T: Real>(cpus: &[Cpu], plan: &Sweep<T>, what: &str) {
    let n = plan.nrows();
    let columns = 3;
    let b: Vec<T> = vector(columns * n, 7);
    for system in SYSTEMS {
        let x: Vec<T> = b.chunks_exact(n.max(1)).flat_map(|b| expected(plan.matrix(), system, b)).collect();
        for cpu in cpus {
            let what = format!("{what} {system} {} threads", cpu.thread_count());
            let tri = Tri::load(cpu, plan.clone()).unwrap();
            assert!(matches!(Sptrsv::<Sweep<T>>::sptrsv_order(cpu, tri.resident(), system), Order::Stored));
            let resident_b = cpu.upload(&b[..n]).unwrap();
            let mut found = cpu.upload(&vec![T::nan(); n]).unwrap();
            tri.sptrsv(cpu, None, system, &resident_b, &mut found).unwrap();
            assert!(same(found.as_slice(), &x[..n]), "{what}");
            let mut found = resident_b;
            tri.sptrsv_in_place(cpu, None, system, &mut found).unwrap();
            assert!(same(found.as_slice(), &x[..n]), "{what} in place");
            let all = cpu.upload(&b).unwrap();
            let mut found = cpu.upload(&vec![T::nan(); columns * n]).unwrap();
            tri.sptrsv_columns(cpu, None, system, columns, &all, &mut found).unwrap();
            assert!(same(found.as_slice(), &x), "{what} columns");
        }
    }
}

fn all_grids<T: Real>(sizes: &[[usize; 3]]) {
    let cpus = threads();
    for (points, stencil) in stencils() {
        for &size in sizes {
            for (triangle, diagonal) in KINDS {
                let t = triangle_on::<T>(&stencil, size, triangle, diagonal, 3);
                let offsets = lower(&stencil);
                let plan = Sweep::on_grid(t, size, &offsets, Systems::Both).unwrap();
                assert!(plan.lattice().is_whole());
                compare(&cpus, &plan, &format!("{points} points {size:?} {triangle} {diagonal:?}"));
            }
        }
    }
}

#[test]
fn the_bits_of_the_serial_solve_f64() {
    all_grids::<f64>(&SIZES);
}

#[test]
fn the_bits_of_the_serial_solve_f32() {
    all_grids::<f32>(&SIZES);
}

/// Sizes whose rows are dealt out over threads: planes, thin boxes by lines, flat grids.
#[test]
fn the_bits_of_the_serial_solve_on_larger_grids() {
    let cpus = threads();
    let sizes = [[40, 33, 37], [1200, 61, 1], [600, 40, 3], [3, 150, 160], [1, 300, 201], [90_001, 1, 1]];
    let points: &[usize] = if whole() { &[3, 5, 7, 13, 19, 27] } else { &[5, 7, 27] };
    for (points, stencil) in stencils().into_iter().filter(|s| points.contains(&s.0)) {
        for size in sizes {
            for (triangle, diagonal) in [KINDS[0], KINDS[3]] {
                let t = triangle_on::<f64>(&stencil, size, triangle, diagonal, 5);
                let offsets = lower(&stencil);
                let plan = Sweep::on_grid(t, size, &offsets, Systems::Both).unwrap();
                compare(&cpus, &plan, &format!("{points} points {size:?} {triangle} {diagonal:?}"));
            }
        }
    }
}

/// The grid is recognised from the triangle alone, whatever its size and offsets. (Planes that do not touch count as
/// one plane whose rows lack neighbours here and there.)
#[test]
fn grids_of_triangles_are_recognised() {
    let cpus = [Cpu::with_threads(1).unwrap()];
    let mut missed = Vec::new();
    for (points, stencil) in stencils() {
        for size in SIZES {
            for (triangle, diagonal) in KINDS {
                let what = format!("{points} points {size:?} {triangle} {diagonal:?}");
                let t = triangle_on::<f64>(&stencil, size, triangle, diagonal, 11);
                match Sweep::analyze(t, Systems::Both) {
                    Ok(plan) if plan.lattice().is_whole() || [5, 9].contains(&points) && size[2] > 1 => {
                        compare(&cpus, &plan, &what)
                    }
                    Ok(plan) => missed.push(format!("{what}: not whole, {:?}", plan.lattice())),
                    Err(e) => missed.push(format!("{what}: {e}")),
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// A unit triangle that stores no diagonal, and one that stores it in some rows.
#[test]
fn unit_diagonals_that_are_not_stored() {
    let cpus = threads();
    let stencil = Stencil::cubic(3).unwrap();
    let size = [7, 6, 5];
    let whole = triangle_on::<f64>(&stencil, size, Triangle::Lower, Diagonal::Unit, 3);
    for (every, is_whole) in [(1, true), (3, false)] {
        let mut kept = Triplets::new(whole.nrows(), whole.nrows()).unwrap();
        for i in 0..whole.nrows() {
            let (cols, values) = whole.csr().row(i);
            for (&j, &v) in cols.iter().zip(values).filter(|(j, _)| **j as usize != i || i % every != 0) {
                kept.push(i, j as usize, v).unwrap();
            }
        }
        let t = Arc::new(Triangular::new(kept.to_csr().unwrap(), Triangle::Lower, Diagonal::Unit).unwrap());
        let plan = Sweep::analyze(t, Systems::Both).unwrap();
        assert_eq!(plan.lattice().is_whole(), is_whole);
        assert!(!plan.lattice().stores_diagonal());
        compare(&cpus, &plan, &format!("unit, no diagonal in every row of {every}"));
    }
}

/// Rows that hold fewer neighbours, and rows of the identity.
fn masked(stencil: &Stencil, size: [usize; 3], triangle: Triangle, diagonal: Diagonal) -> Arc<Triangular<f64>> {
    let whole = triangle_on::<f64>(stencil, size, triangle, diagonal, 13);
    let mut kept = Triplets::new(whole.nrows(), whole.nrows()).unwrap();
    let mut numbers = Numbers(17);
    for i in 0..whole.nrows() {
        let (cols, values) = whole.csr().row(i);
        let is_identity = i % 11 == 5;
        for (&j, &v) in cols.iter().zip(values) {
            if j as usize == i || !is_identity && numbers.next() > -0.8 {
                kept.push(i, j as usize, v).unwrap();
            }
        }
    }
    Arc::new(Triangular::new(kept.to_csr().unwrap(), triangle, diagonal).unwrap())
}

#[test]
fn masked_grids() {
    let cpus = threads();
    for (points, stencil) in stencils() {
        for size in [[33, 17, 9], [13, 11, 1], [1, 12, 9], [64, 1, 5], [28, 27, 26]] {
            if size == [28, 27, 26] && ![7, 27].contains(&points) {
                continue;
            }
            for (triangle, diagonal) in KINDS {
                let t = masked(&stencil, size, triangle, diagonal);
                let offsets = lower(&stencil);
                let plan = Sweep::on_grid(t, size, &offsets, Systems::Both).unwrap();
                // A point that is alone on its line lacks no neighbour.
                assert!(!plan.lattice().is_whole() || points == 3 && size[0] == 1);
                compare(&cpus, &plan, &format!("masked, {points} points {size:?} {triangle} {diagonal:?}"));
            }
        }
    }
}

#[test]
fn what_is_no_grid_is_refused_with_the_row() {
    let stencil = Stencil::star(3, 1).unwrap();
    let star = [[-1, 0, 0], [0, -1, 0], [0, 0, -1]];
    for (triangle, row, col) in [(Triangle::Lower, 5, 0), (Triangle::Upper, 0, 5)] {
        let t = triangle_on::<f64>(&stencil, [4, 4, 4], triangle, Diagonal::NonUnit, 3);
        let small = Sweep::on_grid(Arc::clone(&t), [4, 4, 3], &star, Systems::Plain);
        assert!(matches!(small, Err(Error::Shape { what: "the grid", found: 48, expected: 64 })), "{small:?}");
        let huge = Sweep::on_grid(Arc::clone(&t), [usize::MAX, 4, 3], &star, Systems::Plain);
        assert!(matches!(huge, Err(Error::Shape { what: "the grid", expected: 64, .. })), "{huge:?}");
        let not_lower = Sweep::on_grid(Arc::clone(&t), [4, 4, 4], &[[1, 0, 0]], Systems::Plain);
        assert!(matches!(not_lower, Err(Error::NotAGrid { .. })), "{not_lower:?}");

        // Entries outside the stencil: the error names the first row.
        let mut entries = Triplets::new(64, 64).unwrap();
        for i in 0..64 {
            let (cols, values) = t.csr().row(i);
            cols.iter().zip(values).for_each(|(&j, &v)| entries.push(i, j as usize, v).unwrap());
        }
        entries.push(row, col, 1.0).unwrap();
        let (later, far) = if triangle == Triangle::Lower { (60, 0) } else { (3, 60) };
        entries.push(later, far, 1.0).unwrap();
        let t = Arc::new(Triangular::new(entries.to_csr().unwrap(), triangle, Diagonal::NonUnit).unwrap());
        let outside = Sweep::on_grid(t, [4, 4, 4], &star, Systems::Plain);
        assert!(
            matches!(outside, Err(Error::OutsideStencil { row: r, col: c }) if (r, c) == (row, col)),
            "{outside:?}"
        );
    }
    // The right number of points on the wrong grid: row 3 has a neighbour where lines of three points end.
    let t = triangle_on::<f64>(&stencil, [4, 3, 5], Triangle::Lower, Diagonal::NonUnit, 3);
    let wrong = Sweep::on_grid(t, [3, 4, 5], &star, Systems::Plain);
    assert!(matches!(wrong, Err(Error::OutsideStencil { row: 3, col: 2 })), "{wrong:?}");
    let mut scattered = Triplets::new(300, 300).unwrap();
    for i in 0..300 {
        scattered.push(i, i, 2.0).unwrap();
        (0..i).filter(|j| (i * i + 7 * j) % 31 == 0).for_each(|j| scattered.push(i, j, 1.0).unwrap());
    }
    let t = Triangular::new(scattered.to_csr().unwrap(), Triangle::Lower, Diagonal::NonUnit).unwrap();
    let refused = Sweep::analyze(Arc::new(t), Systems::Plain);
    assert!(matches!(refused, Err(Error::NotAGrid { plan: "sweep", .. })), "{refused:?}");
}

#[test]
fn a_system_that_was_not_analysed_is_refused() {
    let cpu = Cpu::with_threads(1).unwrap();
    let t = triangle_on::<f64>(&Stencil::star(2, 1).unwrap(), [5, 4, 1], Triangle::Lower, Diagonal::NonUnit, 3);
    let tri = Tri::load(&cpu, Sweep::analyze(t, Systems::Plain).unwrap()).unwrap();
    let mut x = cpu.upload(&[7.0; 20]).unwrap();
    assert!(tri.sptrsv_in_place(&cpu, None, System::Transposed, &mut x).is_err());
    assert!(Sptrsv::<Sweep<f64>>::sptrsv_in_place(&cpu, None, System::Transposed, tri.resident(), 1, &mut x).is_err());
    assert_eq!(x.as_slice(), [7.0; 20]);
}

#[test]
fn new_values() {
    let cpu = Cpu::with_threads(2).unwrap();
    for whole in [true, false] {
        for (triangle, diagonal) in KINDS {
            let stencil = Stencil::cubic(3).unwrap();
            let size = [31, 30, 32];
            let t = match whole {
                true => triangle_on::<f64>(&stencil, size, triangle, diagonal, 3),
                false => masked(&stencil, size, triangle, diagonal),
            };
            let plan = Sweep::analyze(Arc::clone(&t), Systems::Both).unwrap();
            assert_eq!(plan.lattice().is_whole(), whole);
            let mut tri = Tri::load(&cpu, plan).unwrap();
            let mut other = t.csr().clone();
            renew(&mut other, 23);
            tri.update(&cpu, other.values()).unwrap();
            let t = Triangular::new(other.clone(), triangle, diagonal).unwrap();
            let b: Vec<f64> = vector(t.nrows(), 29);
            let mut x = cpu.upload(&vec![f64::NAN; b.len()]).unwrap();
            for system in SYSTEMS {
                tri.sptrsv(&cpu, None, system, &cpu.upload(&b).unwrap(), &mut x).unwrap();
                assert!(same(x.as_slice(), &expected(&t, system, &b)), "{whole} {triangle} {diagonal:?}");
            }
            // Refused values leave everything as it was.
            assert!(tri.update(&cpu, &other.values()[1..]).is_err());
            if diagonal == Diagonal::NonUnit {
                assert!(tri.update(&cpu, &vec![0.0; other.values().len()]).is_err());
            }
            tri.sptrsv(&cpu, None, System::Plain, &cpu.upload(&b).unwrap(), &mut x).unwrap();
            assert!(same(x.as_slice(), &expected(&t, System::Plain, &b)));
        }
    }
}

#[test]
fn repeats_give_the_same_bits() {
    let stencil = Stencil::cubic(3).unwrap();
    let t = triangle_on::<f64>(&stencil, [24, 23, 25], Triangle::Lower, Diagonal::NonUnit, 3);
    let b: Vec<f64> = vector(t.nrows(), 31);
    let plan = Sweep::analyze(Arc::clone(&t), Systems::Both).unwrap();
    for cpu in threads() {
        let tri = Tri::load(&cpu, plan.clone()).unwrap();
        let resident_b = cpu.upload(&b).unwrap();
        for system in SYSTEMS {
            let x = expected(&t, system, &b);
            for repeat in 0..if whole() { 300 } else { 60 } {
                let mut found = cpu.upload(&vec![f64::NAN; b.len()]).unwrap();
                tri.sptrsv(&cpu, None, system, &resident_b, &mut found).unwrap();
                assert!(same(found.as_slice(), &x), "{system}, repeat {repeat}");
            }
        }
    }
}

/// The lattice of a system is found. Its rows lack the neighbours that other unknowns hold. They are solved with the
/// bits of the serial solve.
fn several_unknowns<T: Real>() {
    let cpus = threads();
    for (spec, unknowns, terms) in [
        ("system2d:9x8,b=2", 2, 3),
        ("system2d:13x7,b=3,coupling=full", 3, 10),
        ("system2d:7x40,b=4", 4, 5),
        ("system2d:8x9,b=5,coupling=full", 5, 18),
        ("elasticity2d:17x6", 2, 10),
        ("system3d:7x5x6,b=2,coupling=full", 2, 9),
        ("system3d:6x5x7,b=3", 3, 5),
        ("system3d:6x4x5,b=4,coupling=full", 4, 21),
        ("system3d:7x4x3,b=5,coupling=full", 5, 27),
        ("elasticity3d:6x7x5", 3, 49),
    ] {
        let mut a = spandrel_formats::generate::csr::<T>(spec).unwrap();
        renew(&mut a, 5);
        for (triangle, diagonal) in KINDS {
            let t = Arc::new(Triangular::new(part(&a, triangle), triangle, diagonal).unwrap());
            let plan = Sweep::analyze(t, Systems::Both).unwrap();
            let lattice = plan.lattice();
            assert_eq!((lattice.unknowns(), lattice.offsets().len()), (unknowns, terms), "{spec}");
            assert!(!lattice.is_whole());
            compare(&cpus, &plan, &format!("{spec} {triangle} {diagonal:?}"));
        }
    }
}

#[test]
fn systems_have_the_bits_of_the_serial_solve() {
    several_unknowns::<f64>();
    several_unknowns::<f32>();
}
