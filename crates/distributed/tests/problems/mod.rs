//! Solves on one device and on ranks, for the tests to compare.

#![allow(dead_code)] // each test file uses some of it

use std::time::Duration;

use spandrel_backend::{Backend, Mat};
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{
    Communicator, Distributed, DistributedAmg, DistributedMat, DistributedMultigrid, Partition, Rows, Threads, precond,
    rows_of,
};
use spandrel_formats::Csr;
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{
    Amg, AmgOptions, BiCgStab, Cg, Chebyshev, Error, Gmres, GmresOptions, Identity, Jacobi, Method, Options, Outcome,
    PolynomialSmoother, StencilMultigrid,
};

/// Longer than any test waits for a message.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A preconditioner whose bits do not depend on the number of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preconditioner {
    None,
    Jacobi,
    Chebyshev(usize),
    /// Options, and up to how many rows a grid is brought to every rank.
    Amg(AmgOptions, usize),
    /// The largest number of grids, the smoother, and up to how many points a grid is brought to every rank.
    Mg(Option<usize>, PolynomialSmoother, usize),
}

/// A matrix and a right-hand side.
pub(crate) struct System {
    pub(crate) a: Csr<f64>,
    pub(crate) b: Vec<f64>,
}

/// A system with an uneven right-hand side.
pub(crate) fn system(a: Csr<f64>) -> System {
    let b = (0..a.nrows()).map(|i| 1.0 + ((i * 37) % 101) as f64 / 50.0).collect();
    System { a, b }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Solve {
    pub(crate) method: Method,
    pub(crate) precond: Preconditioner,
    pub(crate) options: Options,
    pub(crate) restart: usize,
}

impl Default for Solve {
    fn default() -> Self {
        let options = Options { max_iters: Some(300), ..Options::default() };
        Self { method: Method::Cg, precond: Preconditioner::None, options, restart: 20 }
    }
}

/// Solves with any backend, operator and preconditioner.
macro_rules! solved {
    ($be:expr, $a:expr, $m:expr, $b:expr, $n:expr, $solve:expr) => {{
        let (be, solve) = ($be, $solve);
        let mut x = Backend::<f64>::zeros(be, $n)?;
        let outcome = match solve.method {
            Method::Cg => Cg::new(be, $n)?.solve(be, $a, $m, $b, &mut x, &solve.options)?,
            Method::BiCgStab => BiCgStab::new(be, $n)?.solve(be, $a, $m, $b, &mut x, &solve.options)?,
            _ => Gmres::with(be, $n, &GmresOptions { restart: solve.restart, ..GmresOptions::default() })?.solve(
                be,
                $a,
                $m,
                $b,
                &mut x,
                &solve.options,
            )?,
        };
        (x, outcome)
    }};
}

pub(crate) fn on_one_device(system: &System, solve: &Solve) -> (Vec<f64>, Outcome) {
    let run = || -> Result<_, Error> {
        let be = &Cpu::new();
        let n = system.a.nrows();
        let a = &Mat::load(be, system.a.clone())?;
        let b = &be.upload(&system.b)?;
        let (x, outcome) = match solve.precond {
            Preconditioner::None => solved!(be, a, &Identity, b, n, solve),
            Preconditioner::Jacobi => solved!(be, a, &Jacobi::new(be, &system.a)?, b, n, solve),
            Preconditioner::Chebyshev(degree) => {
                solved!(be, a, &Chebyshev::new(be, system.a.clone(), degree)?, b, n, solve)
            }
            Preconditioner::Amg(options, _) => solved!(be, a, &Amg::new(be, &system.a, &options)?, b, n, solve),
            Preconditioner::Mg(grids, smoother, _) => {
                solved!(be, a, &StencilMultigrid::of(be, a, grids, smoother, &mut unobserved)?, b, n, solve)
            }
        };
        Ok((be.download(&x)?, outcome))
    };
    run().unwrap()
}

/// The partition of a matrix by its entries.
pub(crate) fn partition(a: &Csr<f64>, ranks: usize) -> Partition {
    let ptr = a.row_ptr();
    Partition::by_cost(a.nrows() as u64, ranks, |row| u64::from(ptr[row as usize]) + row)
}

/// One rank of a solve: x whole on rank 0, and the outcome.
pub(crate) fn rank<C: Communicator>(
    be: &Distributed<Cpu, C>,
    rows: Rows<f64>,
    b: &[f64],
    solve: &Solve,
) -> Result<(Option<Vec<f64>>, Outcome), Error> {
    let a = &DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows.clone())?;
    let n = a.layout().len();
    let b = &be.upload(b)?;
    let (x, outcome) = match solve.precond {
        Preconditioner::None => solved!(be, a, &Identity, b, n, solve),
        Preconditioner::Jacobi => solved!(be, a, &precond::jacobi(be, &rows)?, b, n, solve),
        Preconditioner::Chebyshev(degree) => solved!(be, a, &precond::chebyshev(be, a, &rows, degree)?, b, n, solve),
        Preconditioner::Amg(options, gathered) => {
            solved!(be, a, &DistributedAmg::of(be, &rows, &options, gathered)?, b, n, solve)
        }
        Preconditioner::Mg(grids, smoother, gathered) => {
            solved!(be, a, &DistributedMultigrid::of(be, &rows, grids, smoother, gathered)?, b, n, solve)
        }
    };
    Ok((be.gather(&x)?, outcome))
}

/// The solution, which is the same whether the ranks read each other's memory or send messages.
pub(crate) fn on_ranks(ranks: usize, system: &System, solve: &Solve) -> (Vec<f64>, Outcome) {
    let [direct, through_host] = [Distributed::new, Distributed::through_host].map(|join| {
        let (x, outcome) = on_joined(ranks, system, solve, join);
        (x.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), x, outcome)
    });
    assert!(direct.0 == through_host.0, "x depends on how messages are sent");
    assert_eq!(format!("{:?}", direct.2), format!("{:?}", through_host.2));
    (direct.1, direct.2)
}

fn on_joined(
    ranks: usize,
    system: &System,
    solve: &Solve,
    join: impl Fn(Cpu, Threads) -> Distributed<Cpu, Threads> + Sync,
) -> (Vec<f64>, Outcome) {
    let partition = partition(&system.a, ranks);
    let ended = Threads::run_within(ranks, LIMIT, |comm| {
        let range = partition.rows(comm.rank());
        let b = &system.b[range.start as usize..range.end as usize];
        rank(&join(Cpu::with_threads(1)?, comm), rows_of(&system.a, range), b, solve)
    });
    let mut ended: Vec<_> = ended.into_iter().map(|rank| rank.unwrap()).collect();
    let (x, outcome) = ended.swap_remove(0);
    // NaN compares unequal, so the text.
    let text = format!("{outcome:?}");
    assert!(ended.iter().all(|(x, other)| x.is_none() && format!("{other:?}") == text));
    (x.unwrap(), outcome)
}
