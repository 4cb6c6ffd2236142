//! The choice of a plan: what decides, and that the reason has the numbers.

use std::sync::Arc;

use spandrel_formats::{Csr, Profile, Triplets, generate};
use spandrel_sptrsv::sweep::STENCILS;
use spandrel_sptrsv::{
    AnyPlan, Diagonal, Latency, Plan, Serial, Sweep, Systems, Triangle, Triangular, View, choose, split,
};

/// One core, and a device with kernels for some stencils whose rows wait for each other.
fn profiles() -> [Profile; 2] {
    [Profile::reference(), Profile::invented(&STENCILS)]
}

fn lower(a: &Csr<f64>) -> Arc<Triangular<f64>> {
    let lower = split(a).expect("square").lower;
    Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::Unit).expect("a triangle"))
}

/// `width` rows per level. Each has three entries in the previous level, at places that form no grid.
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
    let [core, device] = profiles();
    let lines = [
        ("grid", &grid, &device, 1),
        ("grid", &grid, &core, 100),
        ("small grid", &small, &core, 100),
        ("line", &line, &device, 100),
        ("line", &line, &core, 100),
        ("thin levels", &thin, &device, 100),
        ("thin levels", &thin, &core, 100),
        ("wide levels", &wide, &device, 100),
        ("wide levels", &wide, &core, 100),
        ("wide levels", &wide, &device, 1),
        ("wide levels", &wide, &core, 1),
    ]
    .map(|(what, matrix, profile, reuse)| {
        let found = choose(matrix, profile, reuse);
        format!("{what}, {}: {}: {}", profile.device, found.plan, found.why)
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
fn levels_inside_warps_take_one_thread_per_row() {
    let device = Profile::invented(&STENCILS);
    // Rows in blocks of `size`. Each needs every `step`-th earlier row of its block, and `far` rows of the sixth block
    // before.
    let blocks = |size: usize, step: usize, far: usize, blocks: usize| {
        let mut triplets = Triplets::new(size * blocks, size * blocks).expect("small");
        for i in 0..size * blocks {
            let begin = i / size * size;
            (begin..i).filter(|j| (i - j) % step == 0).for_each(|j| triplets.push(i, j, 0.1).expect("inside"));
            let before = |k: usize| begin.checked_sub(6 * size).map(|at| at + (i * 7 + k * 5) % size);
            let cols: std::collections::BTreeSet<_> = (0..far).filter_map(before).collect();
            cols.into_iter().for_each(|j| triplets.push(i, j, 0.1).expect("inside"));
        }
        lower(&triplets.to_csr().expect("small"))
    };
    let chosen = |matrix: &Arc<Triangular<f64>>| choose(matrix, &device, 100);
    // Two chains whose rows alternate. A level of both is a trip through memory, and a step in a warp is shorter.
    let apart = chosen(&blocks(24, 2, 24, 400));
    assert_eq!(apart.plan, "capellini", "{}", apart.why);
    // Level sets also give neighbours that need each other to one warp.
    let chains = chosen(&blocks(16, 1, 8, 400));
    assert_eq!(chains.plan, "levelset", "{}", chains.why);
    // If rows have a diagonal whose reciprocal is needed at their end, a step of the chain is longer.
    let with_diagonal = {
        let unit = blocks(24, 2, 24, 400);
        let mut triplets = Triplets::new(unit.nrows(), unit.nrows()).expect("small");
        for i in 0..unit.nrows() {
            unit.csr().row(i).0.iter().for_each(|&j| triplets.push(i, j as usize, 0.1).expect("inside"));
            triplets.push(i, i, 2.0).expect("inside");
        }
        Triangular::new(triplets.to_csr().expect("small"), Triangle::Lower, Diagonal::NonUnit).expect("lower")
    };
    let chains = chosen(&Arc::new(with_diagonal));
    assert_eq!(chains.plan, "levelset", "{}", chains.why);
    // Neighbouring rows that do not need each other.
    let wide = chosen(&layered(40, 700));
    assert_eq!(wide.plan, "levelset", "{}", wide.why);
    // The choice for a triangle is the same as for the upper one that mirrors it.
    for matrix in [blocks(24, 2, 24, 400), layered(40, 700)] {
        let n = matrix.nrows();
        let mirrored = {
            let mut triplets = Triplets::new(n, n).expect("small");
            for i in 0..n {
                let (cols, _) = matrix.csr().row(i);
                cols.iter().for_each(|&j| triplets.push(n - 1 - i, n - 1 - j as usize, 0.1).expect("inside"));
            }
            triplets.to_csr().expect("small")
        };
        let mirrored = Triangular::new(mirrored, Triangle::Upper, Diagonal::Unit).expect("upper");
        let (levels, waits) = (&device.triangles.levels, device.triangles.waits.as_ref().expect("rows wait"));
        let played = |matrix| Latency::of(&View::of(matrix), levels, waits).expect("few places");
        let found = [&*matrix, &mirrored].map(played);
        assert_eq!(found[0], found[1]);
    }
}

#[test]
fn several_unknowns_a_point_are_not_swept_by_kernels_of_certain_stencils() {
    let [core, device] = profiles();
    let of = |spec: &str| lower(&generate::csr(spec).expect("a known generator"));
    let lattice = |matrix: &Arc<Triangular<f64>>, profile| {
        let plan = Sweep::analyze_for(Arc::clone(matrix), Systems::Plain, profile).expect("a grid");
        let lattice = plan.lattice();
        (lattice.size(), lattice.unknowns(), lattice.offsets().len(), plan.pays(profile))
    };
    let plane = of("elasticity2d:60x50");
    // In a plane they are an axis, whose kernels take longer than level sets of chains.
    assert_eq!(lattice(&plane, &device), ([2, 60, 50], 1, 13, false));
    assert_eq!(lattice(&plane, &core), ([120, 50, 1], 2, 10, true));
    assert_eq!(choose(&plane, &device, 100).plan, "levelset");
    let line = of("poisson2d:2x50");
    assert_eq!(lattice(&line, &device), ([2, 50, 1], 1, 2, true));
    // In space no axis is left for the unknowns of a point, and the kernels of any stencil take longer than level sets.
    let space = of("system3d:14,b=3");
    assert_eq!(lattice(&space, &device), ([42, 14, 14], 3, 5, false));
    assert_eq!(choose(&space, &device, 100).plan, "levelset");
    assert_eq!(choose(&of("system3d:24,b=3"), &core, 100).plan, "sweep");
    // The upper triangle has the same lattice.
    let upper = split(&generate::csr::<f64>("elasticity2d:60x50").expect("a known generator")).expect("square").upper;
    let upper = Arc::new(Triangular::new(upper, Triangle::Upper, Diagonal::NonUnit).expect("a triangle"));
    assert_eq!(lattice(&upper, &device), ([2, 60, 50], 1, 13, false));
}
