//! The choice among plans: what decides, and that the sentence has the numbers.

use std::sync::Arc;

use spandrel_formats::{Csr, Machine, Triplets, generate};
use spandrel_sptrsv::{AnyPlan, Diagonal, Plan, Serial, Systems, Triangle, Triangular, choose, split};

fn lower(a: &Csr<f64>) -> Arc<Triangular<f64>> {
    let lower = split(a).expect("square").lower;
    Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::Unit).expect("a triangle"))
}

/// `width` rows a level, each with three entries in the level before, in no grid's places.
fn layered(levels: usize, width: usize) -> Arc<Triangular<f64>> {
    let n = levels * width;
    let mut triplets = Triplets::new(n, n).expect("small");
    for i in width..n {
        for k in 0..3 {
            let j = i / width * width - width + (7919 * (i + 31 * k) + i * i % 1013) % width;
            triplets.push(i, j, 0.25).expect("inside");
        }
    }
    lower(&triplets.to_csr().expect("small"))
}

#[test]
fn what_decides() {
    let grid = lower(&generate::csr("poisson3d:40x40x40").expect("a known generator"));
    let line = lower(&generate::csr("poisson1d:60000").expect("a known generator"));
    let (thin, wide) = (layered(1000, 50), layered(10, 5000));
    let small = lower(&generate::csr("poisson2d:9x9").expect("a known generator"));
    let lines = [
        ("grid", &grid, Machine::Gpu, 1),
        ("grid", &grid, Machine::Cpu, 100),
        ("small grid", &small, Machine::Cpu, 100),
        ("line", &line, Machine::Gpu, 100),
        ("line", &line, Machine::Cpu, 100),
        ("thin levels", &thin, Machine::Gpu, 100),
        ("thin levels", &thin, Machine::Cpu, 100),
        ("wide levels", &wide, Machine::Gpu, 100),
        ("wide levels", &wide, Machine::Cpu, 100),
        ("wide levels", &wide, Machine::Gpu, 1),
        ("wide levels", &wide, Machine::Cpu, 1),
    ]
    .map(|(what, matrix, machine, reuse)| {
        let found = choose(matrix, machine, reuse);
        format!("{what}, {machine:?}: {}: {}", found.plan, found.why)
    });
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn any_plan_is_the_plan_that_it_names() {
    let matrix = lower(&generate::csr("poisson2d:6x5").expect("a known generator"));
    assert_eq!(AnyPlan::<f64>::NAMES[0], Serial::<f64>::NAME);
    for name in AnyPlan::<f64>::NAMES {
        let mut plan =
            AnyPlan::named(name, Arc::clone(&matrix), Systems::Both).expect("a name").expect("a grid fits all");
        assert_eq!((plan.name(), plan.systems(), plan.nrows()), (*name, Systems::Both, 30));
        assert!(plan.storage() > 0 && plan.sptrsv_bytes() > 0);
        let values: Vec<f64> = plan.matrix().csr().values().iter().map(|v| 2.0 * v).collect();
        plan.update(&values).expect("as many");
        assert_eq!(plan.matrix().csr().values(), values);
    }
    assert!(AnyPlan::named("fastest", matrix, Systems::Plain).is_none());
}

#[test]
fn long_rows_take_a_thread_each_on_a_gpu() {
    for (reach, plan) in [(28, "levelset"), (40, "capellini")] {
        // Unevenly far before their row, as on no grid.
        let entries = (0..3000u32).map(|i| (0..reach).map(move |k| i.saturating_sub(7 * k + k % 3)).chain([i]));
        let rows: Vec<Vec<u32>> =
            entries.map(|row| row.collect::<std::collections::BTreeSet<_>>().into_iter().collect()).collect();
        let ends = rows.iter().scan(0, |end, row| {
            Some({
                *end += row.len() as u32;
                *end
            })
        });
        let ptr: Vec<u32> = std::iter::once(0).chain(ends).collect();
        let cols = rows.concat();
        let values = vec![1.0; cols.len()];
        let csr = Csr::new(3000, 3000, ptr, cols, values).expect("sorted");
        for diagonal in [Diagonal::NonUnit, Diagonal::Unit] {
            let matrix = Triangular::new(csr.clone(), Triangle::Lower, diagonal).expect("lower");
            let found = choose(&Arc::new(matrix), Machine::Gpu, 100);
            assert_eq!(found.plan, plan, "{reach} {diagonal:?}: {}", found.why);
        }
    }
}
