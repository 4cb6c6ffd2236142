//! The choice of a preconditioner on ranks, and what takes over from it.

use std::ops::ControlFlow;

use spandrel_distributed::{Threads, cut_rows};
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{AmgOptions, MgOptions, MgSmoother};

use super::*;
use crate::Cpu;
use crate::any::Choice;
use crate::solver::Fallback;

fn settings() -> Settings {
    Settings { device: Choice::Cpu, ..Settings::default() }
}

/// What every rank makes of the matrix and of a plan that `change` may edit. It must be the same on all.
fn solved(a: &Csr<f64>, ranks: usize, settings: &Settings, change: fn(&mut Plan)) -> Solution<f64> {
    let ended = Threads::run(ranks, |team| {
        let be = Distributed::new(Cpu::with_threads(1)?, team);
        let rows = cut_rows(&be, a);
        let b: Vec<f64> = (0..rows.len()).map(|i| 1.0 + ((rows.first() as usize + i) % 7) as f64).collect();
        let mut planned = Planned::new(&be, rows, settings, None)?;
        change(&mut planned.plan);
        planned.solve(&be, &b, None, &mut |_, _| ControlFlow::Continue(()))
    });
    let mut ended: Vec<Solution<f64>> = ended.into_iter().map(|rank| rank.unwrap()).collect();
    for other in &ended[1..] {
        assert_eq!(other.plan.to_string(), ended[0].plan.to_string());
        assert_eq!(other.outcome.iterations, ended[0].outcome.iterations);
    }
    ended.swap_remove(0)
}

/// The plan of the policy, which must be the same for any number of ranks, but for that number.
fn planned(a: &Csr<f64>, settings: &Settings) -> Plan {
    let of = |ranks: usize| {
        let mut plans = Threads::run(ranks, |team| {
            let be = Distributed::new(Cpu::with_threads(1)?, team);
            Planned::new(&be, cut_rows(&be, a), settings, None).map(|planned| planned.plan)
        });
        plans.swap_remove(0).unwrap()
    };
    let one = of(1);
    for ranks in [2, 3] {
        assert_eq!(Plan { ranks: 1, ..of(ranks) }, one);
    }
    one
}

fn same(precond: Precond) -> RankPrecond {
    RankPrecond::Same(precond)
}

const CHEBYSHEV: MgOptions = MgOptions { grids: None, smoother: MgSmoother::Chebyshev, degree: MgOptions::DEGREE };

#[test]
fn auto_takes_multigrid_where_one_device_would() {
    let plan = planned(&generate::csr("poisson2d:300").unwrap(), &settings());
    assert_eq!(plan.preconditioner, same(Precond::Mg(CHEBYSHEV)), "{plan}");
    assert!(plan.preconditioner_why.starts_with("a 300x300 grid, 5-point stencil, diagonally dominant: "), "{plan}");

    let mesh = generate::csr("electrostatic:n=60000").unwrap();
    let plan = planned(&mesh, &settings());
    assert_eq!(plan.preconditioner, same(Precond::Amg(AmgOptions::default())), "{plan}");
    assert!(plan.preconditioner_why.starts_with("an elliptic problem, by its rows: "), "{plan}");
    // The reason is that of one device with the same profile, and says so.
    assert!(plan.preconditioner_why.ends_with(" iterations on one device"), "{plan}");

    let bicgstab = Settings { method: Some(Method::BiCgStab), ..settings() };
    for (spec, settings) in [
        ("poisson2d:20", settings()),
        ("electrostatic:n=3000", settings()),
        ("convdiff2d:300,peclet=5", settings()),
        ("poisson2d:300", bicgstab),
    ] {
        let plan = planned(&generate::csr(spec).unwrap(), &settings);
        assert_eq!(plan.preconditioner, same(Precond::Jacobi), "{spec}: {plan}");
        assert_eq!(plan.preconditioner_why, "its bits do not depend on the number of ranks", "{spec}");
    }
}

#[test]
fn x_by_auto_has_the_same_bits_on_any_number_of_ranks() {
    for spec in ["poisson2d:300", "electrostatic:n=60000"] {
        let a = generate::csr::<f64>(spec).unwrap();
        let one = solved(&a, 1, &settings(), |_| {});
        assert!(one.outcome.status.is_converged() && one.outcome.iterations < 40, "{spec}: {}", one.outcome);
        assert!(one.plan.replaced.is_none() && one.plan.preconditioner != same(Precond::Jacobi), "{spec}");
        let bits = |solution: &Solution<f64>| solution.x.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>();
        for ranks in [2, 3] {
            assert!(bits(&solved(&a, ranks, &settings(), |_| {})) == bits(&one), "{spec} on {ranks} ranks");
        }
    }
}

#[test]
fn jacobi_takes_over_from_multigrid_that_is_refused() {
    // No stencil: the set-up refuses it.
    let a = generate::csr::<f64>("electrostatic:n=4000").unwrap();
    for ranks in [1, 3] {
        let solution = solved(&a, ranks, &settings(), |plan| {
            plan.preconditioner = same(Precond::Mg(CHEBYSHEV));
            plan.otherwise = Some((Precond::Jacobi, None));
        });
        let plan = &solution.plan;
        assert!(solution.outcome.status.is_converged(), "{}", solution.outcome);
        assert_eq!(plan.preconditioner, same(Precond::Jacobi));
        assert!(plan.preconditioner_why.starts_with("mg=chebyshev was given up: "), "{plan}");
        let replaced = plan.replaced.as_ref().unwrap();
        assert_eq!((replaced.from, replaced.to), (Precond::Mg(CHEBYSHEV), Precond::Jacobi));
    }
    // The user wants no substitute.
    let fixed = Settings { fallback: Fallback::None, ..settings() };
    let plan = planned(&generate::csr("poisson2d:300").unwrap(), &fixed);
    assert_eq!((plan.otherwise, plan.stagnation), (None, None));
}

#[test]
fn jacobi_takes_over_from_a_solve_that_comes_to_nothing() {
    // Without a preconditioner the residual grows at first.
    let a = Csr::from_triplets(3000, 3000, (0..3000).map(|i| (i, i, 10f64.powi(i as i32 % 7)))).unwrap();
    for ranks in [1, 2] {
        let solution = solved(&a, ranks, &settings(), |plan| {
            plan.preconditioner = same(Precond::None);
            (plan.otherwise, plan.stagnation) = (Some((Precond::Jacobi, None)), Some(1));
        });
        assert!(solution.outcome.status.is_converged(), "{}", solution.outcome);
        assert_eq!(solution.outcome.iterations, 1);
        let why = &solution.plan.preconditioner_why;
        assert!(why.starts_with("none was given up: cg ended as stagnated after "), "{why}");
    }
}
