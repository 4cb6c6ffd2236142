//! The structured plan's solve by several threads against the serial one: columns, in place, the transpose, new values.

use std::sync::Arc;

use spandrel_backend::{Backend, Error, Order, Sptrsv, Tri};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_sptrsv::{Diagonal, Plan, Serial, Stages, Structured, System, Systems, Triangle, Triangular};

/// A 27-point triangle on X x Y x Z points; a diagonal that dominates.
fn box_triangle<T: Real>(size: [usize; 3], triangle: Triangle) -> Csr<T> {
    let extents = size.map(|extent| extent as i64);
    let n = size.iter().product::<usize>();
    let mut triplets = Triplets::new(n, n).unwrap();
    for r in 0..n as i64 {
        let at = [r % extents[0], r / extents[0] % extents[1], r / extents[0] / extents[1]];
        for k in 0..27i64 {
            let d = [k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1];
            let j = r + d[0] + extents[0] * (d[1] + extents[1] * d[2]);
            let inside = (0..3).all(|axis| (0..extents[axis]).contains(&(at[axis] + d[axis])));
            if inside && (j == r || triangle.holds(r as usize, j as usize)) {
                let value = if j == r { 1.5 } else { -1.0 / 32.0 - ((r + 3 * j) % 17) as f64 / 1024.0 };
                triplets.push(r as usize, j as usize, T::from_f64(value)).unwrap();
            }
        }
    }
    triplets.to_csr().unwrap()
}

fn solves_as_the_serial_plan<T: Real>(size: [usize; 3]) {
    let n: usize = size.iter().product();
    let one = Cpu::with_threads(1).unwrap();
    for triangle in [Triangle::Lower, Triangle::Upper] {
        for diagonal in [Diagonal::NonUnit, Diagonal::Unit] {
            let csr = box_triangle::<T>(size, triangle);
            let matrix = Arc::new(Triangular::new(csr, triangle, diagonal).unwrap());
            let reference = Tri::load(&one, Serial::analyze(Arc::clone(&matrix), Systems::Both).unwrap()).unwrap();
            let b: Vec<T> = (0..3 * n).map(|i| T::from_f64(1.0 + (i % 13) as f64 / 8.0)).collect();
            for threads in [1, 3] {
                let cpu = Cpu::with_threads(threads).unwrap();
                // On the CPU the stages change nothing.
                for stages in [Stages::ALL, Stages::NONE] {
                    let plan =
                        Structured::on_grid(Arc::clone(&matrix), size, Systems::Both).unwrap().with_stages(stages);
                    let tri = Tri::load(&cpu, plan).unwrap();
                    for system in [System::Plain, System::Transposed] {
                        assert_eq!(Sptrsv::<Structured<T>>::sptrsv_order(&cpu, tri.resident(), system), Order::Stored);
                        let device = cpu.upload(&b).unwrap();
                        let mut expected = Backend::<T>::zeros(&one, 3 * n).unwrap();
                        let mut x = Backend::<T>::zeros(&cpu, 3 * n).unwrap();
                        reference.sptrsv_columns(&one, None, system, 3, &device, &mut expected).unwrap();
                        tri.sptrsv_columns(&cpu, None, system, 3, &device, &mut x).unwrap();
                        assert_eq!(x.as_slice(), expected.as_slice(), "{size:?} {triangle} {diagonal:?} {system}");
                        let mut alone = cpu.upload(&b[..n]).unwrap();
                        tri.sptrsv_in_place(&cpu, None, system, &mut alone).unwrap();
                        assert_eq!(alone.as_slice(), &expected.as_slice()[..n], "in place");
                    }
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_serial_bits() {
    solves_as_the_serial_plan::<f64>([31, 23, 17]);
    solves_as_the_serial_plan::<f32>([31, 23, 17]);
    solves_as_the_serial_plan::<f64>([1, 100, 80]);
    solves_as_the_serial_plan::<f64>([3, 1, 2]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let csr = box_triangle::<f64>([4, 3, 2], Triangle::Lower);
    let matrix = Arc::new(Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).unwrap());
    let cpu = Cpu::with_threads(2).unwrap();
    let mut tri =
        Tri::load(&cpu, Structured::on_grid(Arc::clone(&matrix), [4, 3, 2], Systems::Plain).unwrap()).unwrap();
    let b = cpu.upload(&[1.0; 24]).unwrap();
    let mut x = Backend::<f64>::zeros(&cpu, 24).unwrap();
    let transposed = tri.sptrsv(&cpu, None, System::Transposed, &b, &mut x);
    assert!(matches!(transposed, Err(Error::Unsupported { noun: "structured", .. })), "{transposed:?}");
    let mut short = Backend::<f64>::zeros(&cpu, 23).unwrap();
    assert!(matches!(tri.sptrsv(&cpu, None, System::Plain, &b, &mut short), Err(Error::Shape { what: "x", .. })));

    tri.sptrsv(&cpu, None, System::Plain, &b, &mut x).unwrap();
    let before = x.as_slice().to_vec();
    let doubled: Vec<f64> = matrix.csr().values().iter().map(|v| 2.0 * v).collect();
    tri.update(&cpu, &doubled).unwrap();
    tri.sptrsv(&cpu, None, System::Plain, &b, &mut x).unwrap();
    let halved: Vec<f64> = before.iter().map(|v| v / 2.0).collect();
    assert_eq!(x.as_slice(), halved, "twice the matrix, half the solution, and a power of two rounds nothing");
}
