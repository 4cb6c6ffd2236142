//! The sweep against the serial solve, in bits: stencils with and without kernels, grids of odd sizes, lines and planes
//! of one point, one and many thread blocks, both triangles, both systems, both diagonals. Without a GPU the trials
//! print why they are skipped.

mod gpu;

use std::sync::Arc;

use gpu::device;
use spandrel_backend::{Backend, Device, Load, Sptrsv};
use spandrel_backend_cuda::{Cuda, CudaSweep};
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Diagonal, Plan, Sweep, System, Systems, Triangle, Triangular, serial};

/// Random numbers in [-1, 1) from a seed.
struct Numbers(u64);

impl Numbers {
    fn next<T: Real>(&mut self) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f64((self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }

    fn many<T: Real>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// The lower offsets (dx, dy, dz) that satisfy a predicate of (sum of |d|, largest |d|).
fn stencil(reach: i32, dims: usize, inside: impl Fn(i32, i32) -> bool) -> Vec<[i32; 3]> {
    let along = |axis: usize| if axis < dims { -reach..=reach } else { 0..=0 };
    let mut offsets = Vec::new();
    for dz in along(2) {
        for dy in along(1) {
            for dx in along(0) {
                let (sum, most) = (dx.abs() + dy.abs() + dz.abs(), dx.abs().max(dy.abs()).max(dz.abs()));
                if (dz, dy, dx) < (0, 0, 0) && inside(sum, most) {
                    offsets.push([dx, dy, dz]);
                }
            }
        }
    }
    offsets
}

fn solid() -> Vec<Vec<[i32; 3]>> {
    vec![
        stencil(1, 3, |sum, _| sum == 1),
        stencil(2, 3, |sum, most| sum == most),
        stencil(1, 3, |sum, _| sum == 1 || sum == 3),
        stencil(1, 3, |sum, _| sum <= 2),
        stencil(1, 3, |_, _| true),
        stencil(2, 3, |sum, most| most == 1 || sum == most),
        stencil(3, 3, |sum, most| sum == most),
        vec![[2, -1, -1], [0, 2, -1], [-3, 0, -1], [3, -1, 0], [-2, 0, 0]],
    ]
}

fn flat() -> Vec<Vec<[i32; 3]>> {
    vec![
        stencil(1, 2, |sum, _| sum == 1),
        stencil(1, 2, |_, _| true),
        stencil(2, 2, |_, _| true),
        stencil(3, 2, |sum, most| sum == most),
    ]
}

/// A triangle on a grid. Each row lacks one in `lacking` of its neighbours (0: none).
fn triangle<T: Real>(
    size: [usize; 3],
    offsets: &[[i32; 3]],
    triangle: Triangle,
    diagonal: Diagonal,
    lacking: usize,
    numbers: &mut Numbers,
) -> Triangular<T> {
    let [nx, ny, nz] = size;
    let n = nx * ny * nz;
    let (mut ptr, mut cols, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut count = 0;
    for row in 0..n {
        let upper = triangle == Triangle::Upper;
        let r = if upper { n - 1 - row } else { row };
        let at = [r % nx, r / nx % ny, r / nx / ny];
        let mut here = vec![row as u32];
        for o in offsets {
            let moved: Vec<i64> = (0..3).map(|a| at[a] as i64 + i64::from(o[a])).collect();
            if (0..3).all(|a| (0..size[a] as i64).contains(&moved[a])) {
                count += 1;
                if lacking > 0 && count % lacking == 0 {
                    continue;
                }
                let c = (moved[0] + nx as i64 * (moved[1] + ny as i64 * moved[2])) as usize;
                here.push(if upper { n - 1 - c } else { c } as u32);
            }
        }
        here.sort_unstable();
        for col in here {
            let off: f64 = numbers.next();
            values.push(T::from_f64(if col as usize == row { 1.5 + 0.5 * off } else { off / offsets.len() as f64 }));
            cols.push(col);
        }
        ptr.push(cols.len() as u32);
    }
    let csr = Csr::new(n, n, ptr, cols, values).expect("inside");
    Triangular::new(csr, triangle, diagonal).expect("a triangle with a diagonal")
}

fn reference<T: Real>(matrix: &Triangular<T>, system: System, b: &[T]) -> Vec<T> {
    let mut x = vec![T::nan(); b.len()];
    let solved = match system {
        System::Plain => serial::solve(matrix, b, &mut x),
        System::Transposed => {
            let transposed =
                Triangular::new(matrix.csr().transpose(), matrix.triangle().transposed(), matrix.diagonal());
            serial::solve(&transposed.expect("a triangle too"), b, &mut x)
        }
    };
    solved.expect("lengths fit");
    x
}

/// Equal bits, except for the payload of a NaN. If neighbours are missing, equal numbers.
fn compare<T: Real>(what: &str, exact: bool, expected: &[T], found: &[T]) {
    assert_eq!(expected.len(), found.len());
    let same =
        |a: T, b: T| a == b && (!exact || a.is_sign_negative() == b.is_sign_negative()) || a.is_nan() && b.is_nan();
    let wrong: Vec<usize> = (0..found.len()).filter(|&i| !same(expected[i], found[i])).collect();
    if let Some(&i) = wrong.first() {
        panic!("{what}: {} rows, the first is {i}: {} instead of {}", wrong.len(), found[i], expected[i]);
    }
}

fn solve<T: Real>(cuda: &Cuda, m: &CudaSweep<T>, system: System, b: &[T]) -> Vec<T> {
    let device_b = cuda.upload(b).expect("uploads");
    let mut x = cuda.upload(&vec![T::nan(); b.len()]).expect("uploads");
    Sptrsv::<Sweep<T>>::sptrsv(cuda, None, system, m, 1, &device_b, &mut x).expect("solves");
    cuda.download(&x).expect("downloads")
}

fn check<T: Real>(cuda: &Cuda, size: [usize; 3], offsets: &[[i32; 3]], lacking: usize, numbers: &mut Numbers) {
    for side in [Triangle::Lower, Triangle::Upper] {
        for diagonal in [Diagonal::NonUnit, Diagonal::Unit] {
            let matrix = Arc::new(triangle::<T>(size, offsets, side, diagonal, lacking, numbers));
            let plan = Sweep::on_grid(matrix.clone(), size, offsets, Systems::Both).expect("on the grid");
            for blocks in [1, 2, 1000] {
                let m = cuda.load_sweep_with(&plan, blocks).expect("loads");
                for system in [System::Plain, System::Transposed] {
                    let what = format!(
                        "{} {size:?} {offsets:?} {side} {diagonal:?} {system}, {blocks} thread blocks, lacking {lacking}",
                        T::NAME
                    );
                    let b = numbers.many::<T>(plan.nrows());
                    let expected = reference(&matrix, system, &b);
                    compare(&what, lacking == 0, &expected, &solve(cuda, &m, system, &b));
                    let mut x = cuda.upload(&b).expect("uploads");
                    Sptrsv::<Sweep<T>>::sptrsv_in_place(cuda, None, system, &m, 1, &mut x).expect("solves");
                    compare(
                        &format!("{what}, in place"),
                        lacking == 0,
                        &expected,
                        &cuda.download(&x).expect("downloads"),
                    );
                }
            }
        }
    }
}

fn both_types(cuda: &Cuda, size: [usize; 3], offsets: &[[i32; 3]], lacking: usize, numbers: &mut Numbers) {
    check::<f64>(cuda, size, offsets, lacking, numbers);
    check::<f32>(cuda, size, offsets, lacking, numbers);
}

#[test]
fn every_stencil_on_solid_grids() {
    let Some(cuda) = device() else { return };
    let mut numbers = Numbers(3);
    for offsets in solid() {
        for size in [
            [13, 7, 9],
            [33, 17, 5],
            [2, 3, 4],
            [1, 9, 7],
            [9, 1, 7],
            [9, 7, 1],
            [1, 1, 9],
            [9, 1, 1],
            [1, 1, 1],
            [150, 150, 3],
        ] {
            both_types(&cuda, size, &offsets, 0, &mut numbers);
        }
        both_types(&cuda, [11, 9, 7], &offsets, 3, &mut numbers);
    }
}

#[test]
fn every_stencil_on_flat_grids() {
    let Some(cuda) = device() else { return };
    let mut numbers = Numbers(5);
    for offsets in flat() {
        for size in
            [[3, 200, 1], [64, 64, 1], [65, 97, 1], [300, 33, 1], [31, 129, 1], [7, 5, 6], [1, 300, 1], [40, 1, 1]]
        {
            both_types(&cuda, size, &offsets, 0, &mut numbers);
        }
        both_types(&cuda, [37, 71, 1], &offsets, 3, &mut numbers);
    }
    let line = [[-5, 0, 0], [-1, 0, 0]];
    for n in [1, 2, 5, 6, 7, 1000] {
        both_types(&cuda, [n, 1, 1], &line, 0, &mut numbers);
    }
    both_types(&cuda, [33, 4200, 1], &flat()[1], 0, &mut numbers);
}

#[test]
fn a_thousand_solves_in_a_row() {
    let Some(cuda) = device() else { return };
    let mut numbers = Numbers(7);
    for (size, offsets) in [([33, 31, 40], &solid()[4]), ([61, 300, 1], &flat()[1])] {
        let matrix = Arc::new(triangle::<f64>(size, offsets, Triangle::Lower, Diagonal::NonUnit, 0, &mut numbers));
        let plan = Arc::new(Sweep::on_grid(matrix.clone(), size, offsets, Systems::Both).expect("on the grid"));
        let m = Load::<Sweep<f64>>::load(&cuda, plan.clone()).expect("loads");
        for round in 0..1000 {
            let system = if round % 3 == 2 { System::Transposed } else { System::Plain };
            let b = numbers.many::<f64>(plan.nrows());
            compare(
                &format!("{size:?}, solve {round}"),
                true,
                &reference(&matrix, system, &b),
                &solve(&cuda, &m, system, &b),
            );
        }
    }
}

#[test]
fn what_is_not_finite_stays_where_it_belongs() {
    let Some(cuda) = device() else { return };
    let mut numbers = Numbers(9);
    for offsets in &solid()[..6] {
        let size = [19, 11, 13];
        let matrix = Arc::new(triangle::<f64>(size, offsets, Triangle::Upper, Diagonal::NonUnit, 0, &mut numbers));
        let plan = Sweep::on_grid(matrix.clone(), size, offsets, Systems::Both).expect("on the grid");
        let m = cuda.load_sweep_with(&plan, 5).expect("loads");
        for system in [System::Plain, System::Transposed] {
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
                let mut b = numbers.many::<f64>(plan.nrows());
                for i in [plan.nrows() / 2, plan.nrows() / 2 + 40] {
                    b[i] = odd;
                }
                compare(
                    &format!("{offsets:?} {system} {odd}"),
                    true,
                    &reference(&matrix, system, &b),
                    &solve(&cuda, &m, system, &b),
                );
                // Nothing of it affects the next solve.
                let b = numbers.many::<f64>(plan.nrows());
                compare(
                    &format!("{offsets:?} {system} after {odd}"),
                    true,
                    &reference(&matrix, system, &b),
                    &solve(&cuda, &m, system, &b),
                );
            }
        }
    }
}

#[test]
fn several_columns_and_new_values() {
    let Some(cuda) = device() else { return };
    let mut numbers = Numbers(11);
    let (size, offsets, k) = ([21, 13, 8], &solid()[5], 3);
    for side in [Triangle::Lower, Triangle::Upper] {
        let matrix = Arc::new(triangle::<f64>(size, offsets, side, Diagonal::NonUnit, 4, &mut numbers));
        let mut plan = Arc::new(Sweep::on_grid(matrix, size, offsets, Systems::Both).expect("on the grid"));
        let mut m = Load::<Sweep<f64>>::load(&cuda, plan.clone()).expect("loads");
        let n = plan.nrows();
        for _ in 0..3 {
            let b = numbers.many::<f64>(n * k);
            let device_b = cuda.upload(&b).expect("uploads");
            for system in [System::Plain, System::Transposed] {
                let mut x = cuda.zeros(n * k).expect("zeros");
                Sptrsv::<Sweep<f64>>::sptrsv(&cuda, None, system, &m, k, &device_b, &mut x).expect("solves");
                let x = cuda.download(&x).expect("downloads");
                for c in 0..k {
                    let expected = reference(plan.matrix(), system, &b[c * n..(c + 1) * n]);
                    compare(&format!("column {c} {side} {system}"), false, &expected, &x[c * n..(c + 1) * n]);
                }
            }
            let values: Vec<f64> =
                plan.matrix().csr().values().iter().map(|v| v * (1.0 + 0.1 * numbers.next::<f64>())).collect();
            Arc::make_mut(&mut plan).update(&values).expect("as many values");
            Sptrsv::update(&cuda, &mut m, &plan).expect("the same pattern");
        }
    }
}

#[test]
fn nothing_to_solve() {
    let Some(cuda) = device() else { return };
    let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).expect("valid");
    let matrix = Arc::new(Triangular::new(empty, Triangle::Lower, Diagonal::NonUnit).expect("a triangle"));
    let plan = Sweep::on_grid(matrix, [0, 1, 1], &[[-1, 0, 0]], Systems::Both).expect("on the grid");
    let m = cuda.load_sweep_with(&plan, 1).expect("loads");
    assert!(solve(&cuda, &m, System::Transposed, &[]).is_empty());
    cuda.synchronize().expect("nothing failed");
}
