//! Triangular solves by every plan, for both systems: with the bits of the serial solve if the plan promises its order,
//! else within its bound. They are serial or with workers, of several columns, in place, and many times over.

use std::sync::Arc;

use spandrel_backend::{Backend, Device, Load, Order, Quantity, Sptrsv, Tri, Watch};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{
    Capellini, Diagonal, Elementwise, Error, Levelset, Plan, Serial, Structured, Sweep, Syncfree, System, Systems,
    Triangle, Triangular, Walk, for_each_plan, serial,
};

/// Number of rows of triangles that the caller solves alone, and of those that are large enough for workers.
const SMALL: usize = 67;
const LARGE: usize = 50_000;
const COLUMNS: usize = 3;
const SHAPES: [&str; 6] = ["diagonal", "chain", "arrow", "dense last row", "random", "grid"];

/// Numbers that look like chance and are the same in every run (Steele, Lea, Flood 2014, SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Between -1 and 1.
    fn value<T: Real>(&mut self) -> T {
        T::from_f64((self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }
}

/// Columns of row i of a lower triangle of that shape, below i.
fn columns(shape: &str, n: usize, i: usize, random: &mut Random) -> Vec<usize> {
    let mut columns: Vec<usize> = match shape {
        "diagonal" => vec![],
        "chain" => i.checked_sub(1).into_iter().collect(),
        "arrow" => vec![0; i.min(1)],
        "dense last row" if i == n - 1 => (0..i).collect(),
        "dense last row" => vec![],
        "grid" => [1, 8, 64].iter().filter_map(|&d| i.checked_sub(d)).collect(),
        _ if i == 0 => vec![],
        _ => (0..random.next() % 6).map(|_| random.next() as usize % i).collect(),
    };
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// A triangle and its transpose.
fn triangles<T: Real>(
    shape: &str,
    n: usize,
    triangle: Triangle,
    diagonal: Diagonal,
) -> (Arc<Triangular<T>>, Triangular<T>) {
    let mut random = Random(n as u64);
    let mut entries: Vec<(usize, usize, T)> = Vec::new();
    for i in 0..n {
        for j in columns(shape, n, i, &mut random) {
            // Rows of the last shape are long, so their entries are small: the sum stays of the size of b.
            entries.push((i, j, random.value::<T>() * T::from_f64(if shape == "dense last row" { 1e-3 } else { 0.2 })));
        }
        // A unit diagonal may be stored; it is then not read.
        if diagonal == Diagonal::NonUnit || i % 3 == 0 {
            entries.push((i, i, T::from_f64(1.5) + T::from_f64(0.5) * random.value()));
        }
    }
    if triangle == Triangle::Upper {
        entries.iter_mut().for_each(|(i, j, _)| (*i, *j) = (*j, *i));
    }
    let transposed = entries.iter().map(|&(i, j, v)| (j, i, v)).collect();
    let matrix =
        |entries: Vec<(usize, usize, T)>, triangle| Triangular::new(csr(n, entries), triangle, diagonal).unwrap();
    (Arc::new(matrix(entries, triangle)), matrix(transposed, triangle.transposed()))
}

fn csr<T: Real>(n: usize, mut entries: Vec<(usize, usize, T)>) -> Csr<T> {
    entries.sort_unstable_by_key(|&(i, j, _)| (i, j));
    let mut row_ptr = vec![0u32; n + 1];
    entries.iter().for_each(|&(i, ..)| row_ptr[i + 1] += 1);
    (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let cols = entries.iter().map(|&(_, j, _)| j as u32).collect();
    Csr::new(n, n, row_ptr, cols, entries.iter().map(|&(.., v)| v).collect()).unwrap()
}

/// |b - T x| <= gamma(k+2) |T| |x| row by row, the left side in twice the precision of f64.
fn within_bound<T: Real>(matrix: &Triangular<T>, b: &[T], x: &[T], what: &str) {
    for i in 0..matrix.nrows() {
        let (cols, values) = matrix.off_diagonal(i);
        let (at, stored) = (matrix.csr().row_ptr()[i] as usize, matrix.csr().row(i).0.len());
        let d = match (matrix.diagonal(), matrix.triangle()) {
            (Diagonal::Unit, _) => 1.0,
            (_, Triangle::Lower) => matrix.csr().values()[at + stored - 1].as_f64(),
            (_, Triangle::Upper) => matrix.csr().values()[at].as_f64(),
        };
        let terms = cols.iter().zip(values).map(|(&j, &t)| (t.as_f64(), x[j as usize].as_f64()));
        let (mut sum, mut low, mut size) = (b[i].as_f64(), 0.0, 0.0);
        for (t, v) in terms.chain([(d, x[i].as_f64())]) {
            let product = -t * v;
            let before = sum;
            sum += product;
            let shift = sum - before;
            low += (before - (sum - shift)) + (product - shift) + (-t).mul_add(v, -product);
            size += product.abs();
        }
        let gamma = (cols.len() + 2) as f64 * T::UNIT_ROUNDOFF;
        let gamma = gamma / (1.0 - gamma);
        // The size is rounded too, and so is the residual, to second order.
        assert!((sum + low).abs() <= (gamma + gamma * gamma) * size / (1.0 - gamma), "{what}: row {i}");
    }
}

/// A triangle, and the serial solutions of some columns with it and with its transpose.
struct Expected<T> {
    matrix: Arc<Triangular<T>>,
    transposed: Triangular<T>,
    b: Vec<T>,
    x: [Vec<T>; 2],
}

impl<T: Real> Expected<T> {
    fn of(matrix: Arc<Triangular<T>>, transposed: Triangular<T>) -> Self {
        let n = matrix.nrows();
        let mut random = Random(1);
        let b: Vec<T> = (0..n * COLUMNS).map(|_| random.value()).collect();
        let x = [&*matrix, &transposed].map(|matrix| {
            let mut x = vec![T::zero(); n * COLUMNS];
            b.chunks(n).zip(x.chunks_mut(n)).for_each(|(b, x)| serial::solve(matrix, b, x).unwrap());
            x
        });
        Self { matrix, transposed, b, x }
    }
}

struct Case<'a, T> {
    cpu: &'a Cpu,
    expected: &'a Expected<T>,
    what: String,
}

impl<T: Real> Case<'_, T> {
    fn check<P: Plan<Value = T>>(&self, plan: P)
    where
        Cpu: Sptrsv<P>,
        Cpu: Backend<T, Vector = spandrel_backend_cpu::Vector<T>>,
    {
        let Expected { matrix, transposed, b: host, x: expected } = self.expected;
        let (cpu, n) = (self.cpu, matrix.nrows());
        let tri = Tri::load(cpu, plan).unwrap();
        let b = cpu.upload(host).unwrap();
        for (system, matrix, expected) in
            [(System::Plain, &**matrix, &expected[0]), (System::Transposed, transposed, &expected[1])]
        {
            let what = format!("{} {} {system}", P::NAME, self.what);
            let stored = Sptrsv::<P>::sptrsv_order(cpu, tri.resident(), system) == Order::Stored;
            let mut x = cpu.upload(&vec![T::nan(); n * COLUMNS]).unwrap();
            tri.sptrsv_columns(cpu, None, system, COLUMNS, &b, &mut x).unwrap();
            let mut in_place = cpu.upload(host).unwrap();
            Sptrsv::<P>::sptrsv_in_place(cpu, None, system, tri.resident(), COLUMNS, &mut in_place).unwrap();
            for (x, how) in [(&x, "out of place"), (&in_place, "in place")] {
                if stored {
                    assert!(same_bits(expected, x.as_slice()), "{what}, {how}");
                    continue;
                }
                for (column, (b, x)) in host.chunks(n).zip(x.as_slice().chunks(n)).enumerate() {
                    within_bound(matrix, b, x, &format!("{what}, {how}, column {column}"));
                }
            }
        }
    }
}

/// Returns true if the bits are the same; f32 is exact in f64.
fn same_bits<T: Real>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.as_f64().to_bits() == b.as_f64().to_bits())
}

/// `None` for a plan that does not fit the triangle.
fn analyzed<P: Plan>(matrix: &Arc<Triangular<P::Value>>) -> Option<P> {
    match P::analyze(Arc::clone(matrix), Systems::Both) {
        Ok(plan) => Some(plan),
        Err(Error::NotAGrid { .. } | Error::OutsideStencil { .. }) => None,
        Err(error) => panic!("{}: {error}", P::NAME),
    }
}

macro_rules! check_every_plan {
    ([$case:ident $T:ty] $(($stem:ident, $Plan:ident)),*) => {
        $(if let Some(plan) = analyzed::<$Plan<$T>>(&$case.expected.matrix) {
            $case.check(plan);
        })*
    };
}

macro_rules! every_plan {
    ($name:ident, $T:ty, $n:expr, $threads:expr) => {
        #[test]
        fn $name() {
            let devices: Vec<Cpu> = $threads.into_iter().map(|count| Cpu::with_threads(count).unwrap()).collect();
            for shape in SHAPES {
                for triangle in [Triangle::Lower, Triangle::Upper] {
                    for diagonal in [Diagonal::Unit, Diagonal::NonUnit] {
                        // Large triangles are tested with one kind of diagonal each.
                        if $n == LARGE && (triangle == Triangle::Lower) == (diagonal == Diagonal::Unit) && !whole() {
                            continue;
                        }
                        let (matrix, transposed) = triangles::<$T>(shape, $n, triangle, diagonal);
                        let expected = &Expected::of(matrix, transposed);
                        for cpu in &devices {
                            let what = format!("{shape} {triangle} {diagonal:?} {} threads", cpu.thread_count());
                            let case = Case { cpu, expected, what };
                            for_each_plan!(check_every_plan, case, $T);
                            case.check(Syncfree::with_walk(Arc::clone(&expected.matrix), Systems::Both, Walk::Rows));
                        }
                    }
                }
            }
        }
    };
}
every_plan!(small_triangles_f64, f64, SMALL, [1, 3]);
every_plan!(small_triangles_f32, f32, SMALL, [1, 3]);
every_plan!(large_triangles_f64, f64, LARGE, if whole() { vec![1, 2, 3] } else { vec![2] });
every_plan!(large_triangles_f32, f32, LARGE, [3]);

/// Whether the whole suite is asked for, as in CI.
fn whole() -> bool {
    std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole")
}

/// Solves several times with one resident plan, and poisons x in between: nothing is left from one solve to the next.
fn solve_often<P: Plan<Value = f64>>(plan: P, matrix: &Triangular<f64>, transposed: &Triangular<f64>)
where
    Cpu: Sptrsv<P> + Load<P>,
{
    let (cpu, n) = (Cpu::with_threads(3).unwrap(), matrix.nrows());
    let mut random = Random(2);
    let host: Vec<f64> = (0..n).map(|_| random.value()).collect();
    let (tri, b) = (Tri::load(&cpu, plan).unwrap(), cpu.upload(&host).unwrap());
    let solved = |matrix| {
        let mut x = vec![0.0; n];
        serial::solve(matrix, &host, &mut x).unwrap();
        x
    };
    let expected = [(System::Plain, matrix, solved(matrix)), (System::Transposed, transposed, solved(transposed))];
    for repeat in 0..if whole() { 200 } else { 60 } {
        let (system, matrix, expected) = &expected[repeat % 2];
        let mut x = cpu.upload(&vec![f64::NAN; n]).unwrap();
        tri.sptrsv(&cpu, None, *system, &b, &mut x).unwrap();
        if Sptrsv::<P>::sptrsv_order(&cpu, tri.resident(), *system) == Order::Stored {
            assert!(same_bits(expected, x.as_slice()), "{} {system}, repeat {repeat}", P::NAME);
        } else {
            within_bound(matrix, &host, x.as_slice(), &format!("{} {system}, repeat {repeat}", P::NAME));
        }
    }
}

macro_rules! solve_often_by_every_plan {
    ([$matrix:ident $transposed:ident] $(($stem:ident, $Plan:ident)),*) => {
        $(if let Some(plan) = analyzed::<$Plan<f64>>(&$matrix) {
            solve_often(plan, &$matrix, &$transposed);
        })*
    };
}

#[test]
fn many_solves_with_one_resident() {
    let (matrix, transposed) = triangles::<f64>("random", 25_000, Triangle::Lower, Diagonal::NonUnit);
    for_each_plan!(solve_often_by_every_plan, matrix, transposed);
    solve_often(Syncfree::with_walk(Arc::clone(&matrix), Systems::Both, Walk::Rows), &matrix, &transposed);
}

fn with_new_values<P: Plan<Value = f64>>(plan: P)
where
    Cpu: Sptrsv<P> + Load<P>,
{
    let cpu = Cpu::with_threads(2).unwrap();
    let n = plan.nrows();
    let mut tri = Tri::load(&cpu, plan).unwrap();
    let values: Vec<f64> = tri.plan().matrix().csr().values().iter().map(|v| 2.0 * v).collect();
    tri.update(&cpu, &values).unwrap();
    let b = vec![1.0; n];
    let mut expected = vec![0.0; n];
    serial::solve(tri.plan().matrix(), &b, &mut expected).unwrap();
    let mut x = cpu.upload(&b).unwrap();
    tri.sptrsv_in_place(&cpu, None, System::Plain, &mut x).unwrap();
    within_bound(tri.plan().matrix(), &b, x.as_slice(), P::NAME);
    assert!(tri.update(&cpu, &values[1..]).is_err());
}

macro_rules! new_values_of_every_plan {
    ([$matrix:ident] $(($stem:ident, $Plan:ident)),*) => {
        $(if let Some(plan) = analyzed::<$Plan<f64>>(&$matrix) {
            with_new_values(plan);
        })*
    };
}

#[test]
fn new_values_are_taken_over() {
    let (matrix, _) = triangles::<f64>("grid", LARGE, Triangle::Lower, Diagonal::NonUnit);
    for_each_plan!(new_values_of_every_plan, matrix);
}

fn gated_off<P: Plan<Value = f64>>(plan: P)
where
    Cpu: Sptrsv<P> + Load<P>,
{
    let cpu = Cpu::with_threads(3).unwrap();
    let mut monitor = cpu.monitor(&Watch { threshold: 0.0, divergence: 1.0, max_iters: 1 }).unwrap();
    let stop = cpu.scalar(-1.0f64).unwrap();
    cpu.require_positive(&stop, Quantity::Curvature, &mut monitor).unwrap();
    let (tri, b) = (Tri::load(&cpu, plan).unwrap(), cpu.upload(&[1.0; SMALL]).unwrap());
    let mut x = cpu.upload(&[7.0; SMALL]).unwrap();
    tri.sptrsv(&cpu, Some(&monitor), System::Plain, &b, &mut x).unwrap();
    tri.sptrsv_in_place(&cpu, Some(&monitor), System::Transposed, &mut x).unwrap();
    assert_eq!(x.as_slice(), [7.0; SMALL], "{}", P::NAME);
}

macro_rules! gate_of_every_plan {
    ([$matrix:ident] $(($stem:ident, $Plan:ident)),*) => {
        $(if let Some(plan) = analyzed::<$Plan<f64>>(&$matrix) {
            gated_off(plan);
        })*
    };
}

#[test]
fn behind_a_closed_gate_nothing_is_written() {
    let (matrix, _) = triangles::<f64>("chain", SMALL, Triangle::Lower, Diagonal::NonUnit);
    for_each_plan!(gate_of_every_plan, matrix);
}

/// More workers than processors, while other threads use the processors as well.
fn solve_on_a_busy_machine<P: Plan<Value = f64>>(plan: P, matrix: &Triangular<f64>)
where
    Cpu: Sptrsv<P> + Load<P>,
{
    let (cpu, n) = (Cpu::with_threads(4 * processors()).unwrap(), matrix.nrows());
    let mut random = Random(3);
    let host: Vec<f64> = (0..n).map(|_| random.value()).collect();
    let (tri, b) = (Tri::load(&cpu, plan).unwrap(), cpu.upload(&host).unwrap());
    for _ in 0..10 {
        let mut x = cpu.upload(&vec![f64::NAN; n]).unwrap();
        tri.sptrsv(&cpu, None, System::Plain, &b, &mut x).unwrap();
        within_bound(matrix, &host, x.as_slice(), P::NAME);
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

macro_rules! solve_on_a_busy_machine_by_every_plan {
    ([$matrix:ident] $(($stem:ident, $Plan:ident)),*) => {
        $(if let Some(plan) = analyzed::<$Plan<f64>>(&$matrix) {
            solve_on_a_busy_machine(plan, &$matrix);
        })*
    };
}

/// This takes seconds. If workers went on waiting for one that has lost its processor, it would take minutes.
#[test]
fn solves_end_beside_busy_threads() {
    let (matrix, _) = triangles::<f64>("grid", LARGE, Triangle::Lower, Diagonal::NonUnit);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 * processors() {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // End the busy threads even if a test panics.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for_each_plan!(solve_on_a_busy_machine_by_every_plan, matrix);
            solve_on_a_busy_machine(Syncfree::with_walk(Arc::clone(&matrix), Systems::Plain, Walk::Rows), &matrix);
        }));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        ended.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
}
