//! Triangular solve by level sets on the CPU: it gives the bits of the serial solve for any number of threads. Tested
//! are shapes at the edges, matrices large enough for several threads, and real matrices where they are present.

use std::path::Path;
use std::sync::Arc;

use spandrel_backend::{AnyTri, Backend, Tri};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Profile, Real, Triplets, generate, matrix_market};
use spandrel_sptrsv::{AnyPlan, Diagonal, Levelset, Plan, System, Systems, Triangle, Triangular, serial};

/// One triangle of a matrix's pattern. Its values are made so that no solution overflows: the entries off the diagonal
/// sum to less than the diagonal.
fn tame<T: Real>(a: &Csr<f64>, triangle: Triangle, diagonal: Diagonal) -> Triangular<T> {
    let n = a.nrows();
    let mut triplets = Triplets::new(n, n).expect("as many rows as before");
    for i in 0..n {
        let cols: Vec<usize> = a.row(i).0.iter().map(|&j| j as usize).filter(|&j| triangle.holds(i, j)).collect();
        for &j in &cols {
            let v = (1.0 + ((i * 31 + j * 17) % 97) as f64 / 97.0) / (2 * cols.len()) as f64;
            triplets.push(i, j, T::from_f64(if (i + j) % 2 == 0 { v } else { -v })).expect("inside");
        }
        triplets.push(i, i, T::from_f64(1.25 + (i % 7) as f64)).expect("inside");
    }
    Triangular::new(triplets.to_csr().expect("as many entries"), triangle, diagonal).expect("a triangle")
}

fn expected<T: Real>(t: &Triangular<T>, system: System, b: &[T]) -> Vec<T> {
    let mut x = vec![T::zero(); b.len()];
    match system {
        System::Plain => serial::solve(t, b, &mut x),
        System::Transposed => {
            let transposed = Triangular::new(t.csr().transpose(), t.triangle().transposed(), t.diagonal());
            serial::solve(&transposed.expect("a triangle"), b, &mut x)
        }
    }
    .expect("lengths fit");
    x
}

fn same<T: Real>(found: &[T], expected: &[T]) -> bool {
    found.iter().zip(expected).all(|(a, b)| a.as_f64().to_bits() == b.as_f64().to_bits())
}

fn check<T: Real>(name: &str, a: &Csr<f64>, repeats: usize) {
    for (triangle, diagonal) in [(Triangle::Lower, Diagonal::Unit), (Triangle::Upper, Diagonal::NonUnit)] {
        let t = Arc::new(tame::<T>(a, triangle, diagonal));
        let plan = Arc::new(Levelset::analyze(Arc::clone(&t), Systems::Both).expect("any triangle has levels"));
        let n = t.nrows();
        let b: Vec<T> = (0..n).map(|i| T::from_f64((i as f64 + 0.5).cos())).collect();
        let two: Vec<T> = b.iter().chain(b.iter().rev()).copied().collect();
        for system in [System::Plain, System::Transposed] {
            let right = expected(&t, system, &b);
            let second = expected(&t, system, &two[n..]);
            for threads in [1, 2, 3] {
                let cpu = Cpu::with_threads(threads).expect("threads");
                let tri = Tri::<Cpu, Levelset<T>>::load(&cpu, Arc::clone(&plan)).expect("memory");
                let from = cpu.upload(&b).expect("memory");
                for _ in 0..repeats {
                    let mut x = Backend::<T>::zeros(&cpu, n).expect("memory");
                    tri.sptrsv(&cpu, None, system, &from, &mut x).expect("analysed");
                    assert!(same(x.as_slice(), &right), "{name}, {threads} threads, {triangle}, {system}");
                }
                let mut x = cpu.upload(&b).expect("memory");
                tri.sptrsv_in_place(&cpu, None, system, &mut x).expect("analysed");
                assert!(same(x.as_slice(), &right), "{name} in place");
                let (from, mut x) = (cpu.upload(&two).expect("memory"), cpu.upload(&two).expect("memory"));
                tri.sptrsv_columns(&cpu, None, system, 2, &from, &mut x).expect("analysed");
                assert!(same(&x.as_slice()[..n], &right) && same(&x.as_slice()[n..], &second), "{name}, two columns");
            }
        }
    }
}

fn matrix(n: usize, entries: impl IntoIterator<Item = (usize, usize)>) -> Csr<f64> {
    let mut triplets = Triplets::new(n, n).expect("small");
    for (i, j) in entries {
        triplets.push(i, j, 1.0).expect("inside");
        triplets.push(j, i, 1.0).expect("inside");
    }
    triplets.to_csr().expect("small")
}

#[test]
fn shapes_at_the_edges() {
    let n = 700;
    check::<f64>("empty", &matrix(0, []), 1);
    check::<f64>("one row", &matrix(1, []), 1);
    check::<f32>("diagonal", &matrix(n, []), 1);
    check::<f64>("chain", &matrix(n, (1..n).map(|i| (i, i - 1))), 1);
    check::<f64>("arrow", &matrix(n, (1..n).map(|i| (i, 0))), 1);
    check::<f32>("dense last row", &matrix(n, (0..n - 1).map(|i| (n - 1, i))), 1);
    let random = (0..6 * n).map(|k| (k * 7919 % n, (k * 104_729 + k * k % 613) % n)).filter(|(i, j)| i > j);
    check::<f64>("random", &matrix(n, random), 1);
}

#[test]
fn matrices_that_are_shared_among_threads() {
    let (width, n) = (6000, 48_000);
    let layers =
        (width..n).flat_map(|i| (0..3).map(move |k| (i, i / width * width - width + (i * 13 + k * 997) % width)));
    check::<f64>("layers", &matrix(n, layers), 20);
    check::<f64>("grid", &generate::csr("poisson3d:44x40x36").expect("a known generator"), 2);
}

#[test]
fn real_matrices() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/matrices");
    for name in ["adder_dcop_05", "add20", "bcsstk24", "1138_bus", "memplus", "4elt"] {
        let path = folder.join(format!("{name}.mtx.gz"));
        if !path.exists() {
            println!("{name}: skipped, {} is not here", path.display());
            continue;
        }
        check::<f64>(name, &matrix_market::read_csr(&path).expect("a matrix"), 1);
    }
}

#[test]
fn shared_rows_take_new_values() {
    let a: Csr<f64> = generate::csr("poisson3d:60x60x60").expect("a known generator");
    let t = Arc::new(tame::<f64>(&a, Triangle::Upper, Diagonal::NonUnit));
    let plan = Levelset::analyze(Arc::clone(&t), Systems::Both).expect("any triangle has levels");
    let b: Vec<f64> = (0..t.nrows()).map(|i| (i as f64 + 0.5).cos()).collect();
    let values: Vec<f64> = t.csr().values().iter().enumerate().map(|(e, v)| v * (1.0 + (e % 5) as f64 / 8.0)).collect();
    let mut changed = t.as_ref().clone();
    changed.set_values(&values).expect("no zero");
    let cpu = Cpu::with_threads(2).expect("threads");
    let mut tri = Tri::<Cpu, Levelset<f64>>::load(&cpu, plan).expect("memory");
    tri.update(&cpu, &values).expect("no zero");
    for system in [System::Plain, System::Transposed] {
        let mut x = cpu.upload(&b).expect("memory");
        tri.sptrsv_in_place(&cpu, None, system, &mut x).expect("analysed");
        assert!(same(x.as_slice(), &expected(&changed, system, &b)), "{system}");
    }
}

#[test]
fn any_plan_takes_new_values() {
    let cpu = Cpu::with_threads(2).expect("threads");
    let t =
        Arc::new(tame::<f64>(&generate::csr("poisson2d:30x20").expect("known"), Triangle::Lower, Diagonal::NonUnit));
    let b: Vec<f64> = (0..t.nrows()).map(|i| i as f64).collect();
    let values: Vec<f64> = t.csr().values().iter().map(|v| 1.5 * v).collect();
    let mut changed = t.as_ref().clone();
    changed.set_values(&values).expect("no zero");
    let (plan, why) = AnyPlan::auto(&t, Systems::Both, &Profile::reference(), 10);
    assert!(!why.is_empty());
    let named = AnyPlan::<f64>::NAMES.iter().map(|name| AnyPlan::named(name, Arc::clone(&t), Systems::Both));
    for plan in named.map(|plan| plan.expect("a name").expect("a grid fits all")).chain([plan]) {
        let name = plan.name();
        let mut tri = AnyTri::load(&cpu, plan).expect("memory");
        assert_eq!((tri.name(), tri.nrows()), (name, b.len()));
        tri.update(&cpu, &values).expect("no zero");
        for system in [System::Plain, System::Transposed] {
            let mut x = cpu.upload(&b).expect("memory");
            tri.sptrsv_in_place(&cpu, None, system, &mut x).expect("analysed");
            assert!(same(x.as_slice(), &expected(&changed, system, &b)), "{name}, {system}");
        }
    }
}
