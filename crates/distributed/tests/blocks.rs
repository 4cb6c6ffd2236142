//! Preconditioners that depend on the ranks: blocks by themselves and with overlap. They solve, and with one rank they
//! are those of one device.

mod problems;

use problems::{LIMIT, System, partition, system};
use spandrel_backend::{Backend, Error as Fault, Gate, HostMemory, Mat, Preconditioner};
use spandrel_backend_cpu::{Cpu, Vector};
use spandrel_distributed::{Blockwise, Communicator, Distributed, DistributedMat, Overlap, Schwarz, Threads, rows_of};
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{BiCgStab, Cg, Direct, DirectOptions, Error, Options, Outcome};

/// The complete factorisation of a block: what every incomplete one approximates, so that only the cut between blocks
/// is left.
struct Exact(Direct<f64>);

// SAFETY: the CPU records nothing.
unsafe impl Preconditioner<f64, Cpu> for Exact {
    fn len(&self) -> Option<usize> {
        Some(self.0.ncols())
    }
    fn apply(&self, be: &Cpu, gate: Gate<'_, Cpu>, r: &Vector<f64>, z: &mut Vector<f64>) -> Result<(), Fault> {
        if HostMemory::<f64>::is_open(be, gate) {
            let solved = self.0.solve(r.as_slice(), z.as_mut_slice());
            let _outcome = solved.map_err(|error| Fault::Device { device: "cpu", why: error.to_string() })?;
        }
        Ok(())
    }
}

fn exact(_: &Cpu, block: Csr<f64>) -> Result<Exact, Error> {
    Ok(Exact(Direct::new(block, &DirectOptions::default())?))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Blockwise,
    Schwarz(usize, Overlap),
}

fn solve(system: &System, ranks: usize, kind: Kind, symmetric: bool) -> (Vec<f64>, Outcome, usize) {
    let ends = partition(&system.a, ranks);
    let n = system.a.nrows();
    let ended = Threads::run_within(ranks, LIMIT, |comm| {
        let range = ends.rows(comm.rank());
        let rows = rows_of(&system.a, range.clone());
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let a = &DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows.clone())?;
        let b = &be.upload(&system.b[range.start as usize..range.end as usize])?;
        let mut x = Backend::<f64>::zeros(be, n)?;
        let (mut extra, options) = (0, Options { max_iters: Some(200), ..Options::default() });
        let m: Box<dyn Preconditioner<f64, Distributed<Cpu, Threads>>> = match kind {
            Kind::Blockwise => Box::new(Blockwise::new(be, a.layout(), &rows, exact)?),
            Kind::Schwarz(layers, overlap) => {
                let m = Schwarz::new(be, a.layout(), &rows, (layers, overlap), exact)?;
                extra = m.extra_rows();
                Box::new(m)
            }
        };
        let outcome = match symmetric {
            true => Cg::new(be, n)?.solve(be, a, &m, b, &mut x, &options)?,
            false => BiCgStab::new(be, n)?.solve(be, a, &m, b, &mut x, &options)?,
        };
        Ok::<_, Error>((be.gather(&x)?, outcome, extra))
    });
    let mut ended: Vec<_> = ended.into_iter().map(|rank| rank.unwrap()).collect();
    let (x, outcome, extra) = ended.swap_remove(0);
    (x.unwrap(), outcome, extra)
}

fn far_from_solved(system: &System, x: &[f64]) -> f64 {
    let product = system.a.mul_vec(x).unwrap();
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut product.iter().zip(&system.b).map(|(p, b)| b - p)) / norm(&mut system.b.iter().copied())
}

#[test]
fn blocks_solve_and_overlap_saves_iterations() {
    for (spec, symmetric) in [("poisson2d:60x50", true), ("convdiff2d:60x50,peclet=5", false)] {
        let system = system(generate::csr::<f64>(spec).unwrap());
        let overlap = if symmetric { Overlap::Added } else { Overlap::Restricted };
        let kinds = [Kind::Blockwise, Kind::Schwarz(2, overlap)];
        let mut before = usize::MAX;
        for kind in kinds {
            let (x, outcome, extra) = solve(&system, 3, kind, symmetric);
            assert!(
                outcome.status.is_converged() && far_from_solved(&system, &x) < 1.1e-8,
                "{spec} {kind:?} {outcome}"
            );
            assert!(outcome.iterations <= before, "{spec} {kind:?}: {} after {before}", outcome.iterations);
            assert!((kind == Kind::Blockwise) == (extra == 0));
            before = outcome.iterations;
            // The same ranks, the same bits.
            let (again, ..) = solve(&system, 3, kind, symmetric);
            assert!(x.iter().zip(&again).all(|(x, y)| x.to_bits() == y.to_bits()), "{spec} {kind:?}");
        }
    }
}

#[test]
fn one_rank_has_the_preconditioner_of_one_device() {
    let system = system(generate::csr::<f64>("poisson2d:40").unwrap());
    let be = &Cpu::new();
    let a = Mat::load(be, system.a.clone()).unwrap();
    let m = exact(be, system.a.clone()).unwrap();
    let (b, mut x) = (be.upload(&system.b).unwrap(), Backend::<f64>::zeros(be, 1600).unwrap());
    let outcome = Cg::new(be, 1600).unwrap().solve(be, &a, &m, &b, &mut x, &Options::default()).unwrap();
    for kind in [Kind::Blockwise, Kind::Schwarz(2, Overlap::Added), Kind::Schwarz(2, Overlap::Restricted)] {
        let (found, other, _) = solve(&system, 1, kind, true);
        assert_eq!((found, other.iterations), (be.download(&x).unwrap(), outcome.iterations), "{kind:?}");
    }
}

#[test]
fn without_layers_schwarz_is_blockwise_and_ranks_without_rows_do_nothing() {
    // 1 block of rows for 3 ranks, and 3 for 5.
    for (spec, ranks) in [("poisson2d:20", 3), ("poisson2d:50", 5)] {
        let system = system(generate::csr::<f64>(spec).unwrap());
        let (x, outcome, _) = solve(&system, ranks, Kind::Blockwise, true);
        assert!(outcome.status.is_converged(), "{outcome}");
        for overlap in [Overlap::Added, Overlap::Restricted] {
            assert_eq!(solve(&system, ranks, Kind::Schwarz(0, overlap), true).0, x);
        }
        assert!(solve(&system, ranks, Kind::Schwarz(2, Overlap::Added), true).1.status.is_converged());
    }
}

#[test]
fn a_block_that_cannot_be_factored_is_told_on_all_ranks() {
    let system = system(generate::csr::<f64>("poisson2d:50").unwrap());
    let ends = partition(&system.a, 2);
    let ranks = Threads::run_within(2, LIMIT, |comm| {
        let (me, rows) = (comm.rank(), rows_of(&system.a, ends.rows(comm.rank())));
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let a = DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows.clone())?;
        Blockwise::new(be, a.layout(), &rows, |be, block| match me {
            1 => Err(Error::Unsupported { why: "not this one".into() }),
            _ => exact(be, block),
        })
        .map(|_| ())
    });
    let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert_eq!(texts, ["rank 1: not this one", "not this one"]);
}
