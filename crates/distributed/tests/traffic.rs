//! What an iteration of CG sends, per rank: messages and bytes, by operation, through the host as between processes and
//! from device to device.

mod problems;

use std::fmt::Write;
use std::time::Duration;

use problems::{LIMIT, partition, system};
use spandrel_backend::Backend;
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{
    Call, Communicator, Distributed, DistributedAmg, DistributedMat, DistributedMultigrid, Threads, precond, rows_of,
};
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{
    AmgOptions, BiCgStab, Cg, Error, Gmres, GmresOptions, Identity, Method, Options, PolynomialSmoother,
};

/// Messages and bytes of sums and of halos.
type Sent = [u64; 4];

/// How messages pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Host,
    Memory,
}

/// What each rank sends in `iterations` iterations, and to begin and end.
fn sent(spec: &str, precond: &str, ranks: usize, iterations: usize, through: Through) -> Vec<Sent> {
    let system = system(generate::csr::<f64>(spec).unwrap());
    let partition = partition(&system.a, ranks);
    let ended = Threads::run_within(ranks, LIMIT, |comm| {
        let range = partition.rows(comm.rank());
        let cpu = Cpu::with_threads(1)?;
        let be = &match through {
            Through::Host => Distributed::through_host(cpu, comm),
            Through::Memory => Distributed::new(cpu, comm),
        };
        let rows = rows_of(&system.a, range.clone());
        let a = &DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows.clone())?;
        assert_eq!(a.layout().is_direct(), through == Through::Memory && ranks > 1);
        let n = a.layout().len();
        let b = &be.upload(&system.b[range.start as usize..range.end as usize])?;
        let mut x = be.zeros(n)?;
        let options = &Options { rtol: Some(0.0), max_iters: Some(iterations), ..Options::default() };
        let mut cg = Cg::new(be, n)?;
        let traffic = || -> Sent {
            let [sums, halos] = [Call::Sum, Call::Halo].map(|call| be.traffic(call));
            [sums.messages, sums.bytes, halos.messages, halos.bytes]
        };
        let (before, outcome) = match precond {
            "none" => (traffic(), cg.solve(be, a, &Identity, b, &mut x, options)?),
            "jacobi" => {
                let m = precond::jacobi(be, &rows)?;
                (traffic(), cg.solve(be, a, &m, b, &mut x, options)?)
            }
            "chebyshev=3" => {
                let m = precond::chebyshev(be, a, &rows, 3)?;
                (traffic(), cg.solve(be, a, &m, b, &mut x, options)?)
            }
            "mg=chebyshev" => {
                let m = DistributedMultigrid::of(be, &rows, None, PolynomialSmoother::default(), 0)?;
                (traffic(), cg.solve(be, a, &m, b, &mut x, options)?)
            }
            _ => {
                let m = DistributedAmg::of(be, &rows, &AmgOptions::default(), 0)?;
                (traffic(), cg.solve(be, a, &m, b, &mut x, options)?)
            }
        };
        assert_eq!(outcome.iterations, iterations);
        let after = traffic();
        Ok::<_, Error>(std::array::from_fn(|at| after[at] - before[at]))
    });
    ended.into_iter().map(|rank| rank.unwrap()).collect()
}

/// What each rank sends in one iteration.
fn each(spec: &str, precond: &str, ranks: usize, through: Through) -> Vec<Sent> {
    let (few, more) = (sent(spec, precond, ranks, 2, through), sent(spec, precond, ranks, 5, through));
    let one = |(few, more): (&Sent, &Sent)| {
        std::array::from_fn(|at| {
            assert_eq!((more[at] - few[at]) % 3, 0, "iterations send alike");
            (more[at] - few[at]) / 3
        })
    };
    few.iter().zip(&more).map(one).collect()
}

const CASES: [(&str, usize); 8] = [
    ("none", 1),
    ("none", 2),
    ("none", 3),
    ("none", 5),
    ("jacobi", 3),
    ("chebyshev=3", 3),
    ("mg=chebyshev", 3),
    ("amg", 3),
];

/// A table of what the cases send.
fn table(through: Through) -> String {
    let spec = "poisson3d:16x16x48";
    let mut table = format!("{:<20}{:<14}rank  sums (bytes)  halos (bytes)\n", "matrix", "precond");
    for (precond, ranks) in CASES {
        for (rank, [sums, of_sums, halos, of_halos]) in each(spec, precond, ranks, through).into_iter().enumerate() {
            let (sums, halos) = (format!("{sums} ({of_sums})"), format!("{halos} ({of_halos})"));
            writeln!(table, "{spec:<20}{precond:<14}{rank:>4}  {sums:<12}  {halos}").unwrap();
        }
    }
    table
}

#[test]
fn an_iteration_sends_what_the_design_says() {
    insta::assert_snapshot!(table(Through::Host));
}

#[test]
fn from_device_to_device_it_sends_block_results_and_the_same_halos() {
    insta::assert_snapshot!(table(Through::Memory));
}

/// Iterations of a solve that converges, and what each rank sends in it.
fn sent_until_converged(method: Method, ranks: usize, options: &Options) -> (usize, Vec<Sent>) {
    let system = system(generate::csr::<f64>("poisson2d:64x48").unwrap());
    let partition = partition(&system.a, ranks);
    let ended = Threads::run_within(ranks, LIMIT, |comm| {
        let range = partition.rows(comm.rank());
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let rows = rows_of(&system.a, range.clone());
        let a = &DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows.clone())?;
        let m = &precond::jacobi(be, &rows)?;
        let n = a.layout().len();
        let b = &be.upload(&system.b[range.start as usize..range.end as usize])?;
        let mut x = be.zeros(n)?;
        let traffic = || {
            let [sums, halos] = [Call::Sum, Call::Halo].map(|call| be.traffic(call));
            [sums.messages, sums.bytes, halos.messages, halos.bytes]
        };
        let before = traffic();
        let outcome = match method {
            Method::Cg => Cg::new(be, n)?.solve(be, a, m, b, &mut x, options)?,
            Method::BiCgStab => BiCgStab::new(be, n)?.solve(be, a, m, b, &mut x, options)?,
            Method::Gmres | Method::Direct => {
                Gmres::with(be, n, &GmresOptions::default())?.solve(be, a, m, b, &mut x, options)?
            }
        };
        assert!(outcome.status.is_converged(), "{method}: {outcome:?}");
        let after = traffic();
        Ok::<_, Error>((outcome.iterations, std::array::from_fn(|at| after[at] - before[at])))
    });
    let ended: Vec<(usize, Sent)> = ended.into_iter().map(|rank| rank.unwrap()).collect();
    (ended[0].0, ended.into_iter().map(|(_, sent)| sent).collect())
}

#[test]
fn what_a_solve_sends_depends_neither_on_the_clock_nor_on_looks() {
    let looks = [
        (16, Duration::from_millis(50)),
        (16, Duration::from_millis(50)),
        (16, Duration::ZERO),
        (7, Duration::from_micros(300)),
        (1 << 20, Duration::MAX),
    ];
    for method in [Method::Cg, Method::BiCgStab, Method::Gmres] {
        for ranks in [2, 3] {
            let all = looks.map(|(check_every, check_after)| {
                sent_until_converged(
                    method,
                    ranks,
                    &Options { rtol: Some(1e-4), check_every, check_after, ..Options::default() },
                )
            });
            assert!(all.iter().all(|other| *other == all[0]), "{method} on {ranks} ranks: {all:?}");
        }
    }
}
