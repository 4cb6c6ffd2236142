//! The grids that each rank makes on its device against those that all ranks make together, and against one device.

use std::sync::Arc;
use std::time::Duration;

use spandrel_backend::{Device, Error as Fault};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::amg::{Aggregates, Strength, Tentative, UNASSIGNED, smoothed};
use spandrel_formats::{generate, product};
use spandrel_solvers::Amg;

use super::*;
use crate::rows::rows_of;
use crate::threads::{Failure, Threads};

const LIMIT: Duration = Duration::from_secs(120);

/// Options for which small problems have several grids.
fn small() -> AmgOptions {
    AmgOptions { coarsest: 20, ..AmgOptions::default() }
}

/// Splits the rows of a matrix by its entries.
fn split<T: Real>(a: &Csr<T>, ranks: usize) -> Partition {
    let ptr = a.row_ptr();
    Partition::by_cost(a.nrows() as u64, ranks, |row| u64::from(ptr[row as usize]) + row)
}

/// Runs `work` on each rank with its device and its rows.
fn on_ranks<T: Real, R: Send>(
    a: &Csr<T>,
    ranks: usize,
    work: impl Fn(&Distributed<Cpu, Threads>, Rows<T>) -> Result<R> + Sync,
) -> Vec<std::result::Result<R, Failure<Error>>> {
    let ends = split(a, ranks);
    Threads::run_within(ranks, LIMIT, |comm| {
        let rows = rows_of(a, ends.rows(comm.rank()));
        work(&Distributed::new(Cpu::with_threads(1)?, comm), rows)
    })
}

fn right_hand_side<T: Real>(n: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f64(1.0 + (i * 37 % 101) as f64 / 64.0)).collect()
}

/// A hierarchy's table with the bounds of its grids, the number of grids on the ranks, and M^-1 of a vector.
type Made<T> = (String, usize, Vec<T>);

fn by<T: Real>(a: &Csr<T>, ranks: usize, options: &AmgOptions, gathered: usize, set_up: SetUp) -> Made<T>
where
    Cpu: Local<T> + AmgBackend<T>,
{
    let b = right_hand_side::<T>(a.nrows());
    let ended = on_ranks(a, ranks, |be, rows| {
        let m = DistributedAmg::by(be, &rows, options, gathered, set_up)?;
        let first = rows.first() as usize;
        let r = be.upload(&b[first..first + rows.len()])?;
        let mut z = Backend::<T>::zeros(be, a.nrows())?;
        m.apply(be, None, &r, &mut z)?;
        Ok((format!("{m}\n{:?}", m.levels()), m.on_ranks(), be.device().download(z.part())?))
    });
    let ended: Vec<Made<T>> = ended.into_iter().map(|rank| rank.unwrap()).collect();
    assert!(ended.iter().all(|(table, of_ranks, _)| (table, *of_ranks) == (&ended[0].0, ended[0].1)));
    let z = ended.iter().flat_map(|(_, _, z)| z).copied().collect();
    (ended[0].0.clone(), ended[0].1, z)
}

/// Compares both ways with each other and with one device. `least` is the number of grids that must lie on the ranks.
fn alike<T: Real>(name: &str, a: &Csr<T>, options: AmgOptions, gathered: usize, least: usize)
where
    Cpu: Local<T> + AmgBackend<T>,
{
    let be = &Cpu::new();
    let one = Amg::new(be, a, &options).unwrap();
    let table = format!("{one}\n{:?}", one.levels());
    let (b, mut z) = (be.upload(&right_hand_side::<T>(a.nrows())).unwrap(), be.zeros(a.nrows()).unwrap());
    one.apply(be, None, &b, &mut z).unwrap();
    let z: Vec<T> = be.download(&z).unwrap();
    for ranks in 1..=4 {
        let [each, together] = [SetUp::Each, SetUp::Together].map(|set_up| by(a, ranks, &options, gathered, set_up));
        for (way, (found, of_ranks, other)) in [("each", &each), ("together", &together)] {
            assert_eq!(*found, table, "{name} on {ranks} ranks, {way}");
            // A rank without others has the cycle of one device.
            let is_alone = ranks == 1 && way == "each";
            assert!(*of_ranks >= least || is_alone, "{name}: {of_ranks} grids lie on the ranks");
            let at = z.iter().zip(other).position(|(x, y)| x.as_f64().to_bits() != y.as_f64().to_bits());
            assert_eq!((at, other.len()), (None, z.len()), "{name} on {ranks} ranks, {way}");
        }
        assert_eq!(each.1, if ranks == 1 { 0 } else { together.1 }, "{name}");
    }
}

#[test]
fn a_cube_has_the_bits_of_one_device() {
    let a = generate::csr::<f64>("poisson3d:16x15x14").unwrap();
    alike("poisson3d", &a, small(), 0, 2);
    alike("poisson3d", &a, small(), 500, 1);
    alike("poisson3d", &a, AmgOptions { degree: 3, ..small() }, usize::MAX, 0);
    alike("poisson3d", &generate::csr::<f32>("poisson3d:14").unwrap(), small(), 0, 2);
}

#[test]
fn unstructured_matrices_have_the_bits_of_one_device() {
    alike("electrostatic", &generate::csr::<f64>("electrostatic:n=5000").unwrap(), small(), 0, 2);
}

#[test]
fn points_that_ranks_cut_have_the_bits_of_one_device() {
    let a = generate::csr::<f64>("elasticity3d:10").unwrap();
    assert!((1..4).any(|rank| !split(&a, 4).rows(rank).start.is_multiple_of(3)));
    alike("elasticity3d", &a, AmgOptions { unknowns: 3, ..small() }, 0, 2);
    alike("elasticity3d", &a, AmgOptions { unknowns: 3, ..small() }, 400, 1);
}

#[test]
fn a_hierarchy_that_ends_early_has_the_bits_of_one_device() {
    // No couplings, with and without an inverse.
    for (n, least) in [(300, 0), (5000, 1)] {
        let a = Csr::from_triplets(n, n, (0..n).map(|i| (i, i, 2.0 + (i % 7) as f64))).unwrap();
        alike("diagonal", &a, small(), 0, least);
    }
    // Ranks without rows.
    alike("poisson2d", &generate::csr::<f64>("poisson2d:20").unwrap(), small(), 0, 1);
    // The second grid is the last, and too large for an inverse.
    let a = generate::csr::<f64>("poisson2d:150").unwrap();
    let two = AmgOptions { levels: 2, ..AmgOptions::default() };
    assert!(Amg::new(&Cpu::new(), &a, &two).unwrap().levels()[1].rows > AmgOptions::MOST_COARSEST);
    alike("two grids", &a, two, 0, 2);
}

#[test]
fn every_rank_says_which_row_is_unfit() {
    let a = generate::csr::<f64>("poisson3d:16").unwrap();
    let refused = |a: &Csr<f64>| {
        let one = Amg::new(&Cpu::new(), a, &small()).unwrap_err().to_string();
        let ended = on_ranks(a, 3, |be, rows| DistributedAmg::by(be, &rows, &small(), 0, SetUp::Each).map(|_| ()));
        for rank in ended {
            let Err(Failure::Error(error)) = rank else { panic!("{rank:?}") };
            assert_eq!(error.to_string(), one);
        }
        one
    };
    let with = |value: f64| a.map_entries(|row, col, v| if row == 2100 && col == 2100 { value } else { v });
    assert!(refused(&with(-1.0)).contains("row 2100"));
    assert!(refused(&with(f64::INFINITY)).contains("infinite"));
    // A coarse operator shows that the matrix is not positive definite.
    assert!(refused(&a.map_entries(|row, col, v| if row == col { 1.0 } else { v })).contains("of grid"));
}

#[test]
fn ranks_that_lack_memory_set_up_together() {
    let a = generate::csr::<f64>("poisson3d:16").unwrap();
    let lack = || Error::Backend(Fault::OutOfMemory { device: "cpu", what: "a test", bytes: 1 });
    let ended = on_ranks(&a, 3, |be, rows| {
        assert_eq!(be.free_memory()?, None);
        // Each device must have the memory.
        let needed = whole::needed::<f64>(a.nrows(), a.nnz(), 1);
        assert!(!whole::fits(be.team(), &rows, 1, None)? && whole::fits(be.team(), &rows, 1, Some(needed))?);
        assert!(!whole::fits(be.team(), &rows, 1, Some(needed - u64::from(be.rank() == 2)))?);
        // One rank lacks memory, and another has an error that may come from the same.
        let other = || Error::NotPositive { method: "amg", grid: 1, row: 7 };
        for mine in [[Err(lack()), Ok(1), Ok(1)], [Ok(1), Err(lack()), Err(other())]] {
            let mine = mine.into_iter().nth(be.rank()).unwrap();
            assert!(matches!(whole::settled(be.team(), mine), Ok(None)));
        }
        assert_eq!(whole::settled(be.team(), Ok(5))?, Some(5));
        let failed = whole::settled(be.team(), if be.rank() == 1 { Err(other()) } else { Ok(1) }).unwrap_err();
        // Nothing is lost: the ranks go on.
        let m = DistributedAmg::by(be, &rows, &small(), 0, SetUp::Together)?;
        Ok((failed, m.on_ranks()))
    });
    for (rank, ended) in ended.into_iter().enumerate() {
        let (failed, of_ranks) = ended.unwrap();
        assert!(of_ranks >= 2);
        match rank {
            1 => assert!(matches!(failed, Error::NotPositive { row: 7, .. })),
            _ => assert!(matches!(failed, Error::Backend(Fault::Rank { rank: 1, .. }))),
        }
    }
}

#[test]
fn every_rank_gets_the_whole_matrix() {
    // Empty rows, and a rank without rows.
    let sparse = Csr::from_triplets(3000, 3000, (0..700).map(|k| (k * 4, 2999 - 2 * k, 1.0 + k as f64))).unwrap();
    for a in [generate::csr::<f64>("convdiff2d:60x50").unwrap(), sparse] {
        for ranks in [1, 2, 3, 4, 5] {
            let ends = split(&a, ranks);
            let ended = on_ranks(&a, ranks, |be, rows| {
                let shown = whole::gathered(be.team(), &rows, &ends)?;
                assert!(*shown == a && *whole::by_messages(be.team(), &rows, &ends)? == a);
                Ok(Arc::as_ptr(&shown) as usize)
            });
            // One copy for all.
            let all: Vec<usize> = ended.into_iter().map(|rank| rank.unwrap()).collect();
            assert!(all.iter().all(|&copy| copy == all[0]));
        }
    }
}

#[test]
fn aggregates_belong_to_the_rank_of_their_middle() {
    const NONE: u32 = UNASSIGNED;
    let nodes = Partition::unaligned([4, 0, 3, 5]);
    // The middles are nodes 1, 3, 5 and 9; node 6 is in none.
    let assignment = [0, 0, 0, 1, 2, 1, NONE, 2, 3, 3, 3, 2];
    let counts = |assignment: &[u32], count| whole::owners(assignment, count, &nodes).counts().collect::<Vec<_>>();
    assert_eq!(counts(&assignment, 4), [1, 0, 1, 2]);
    assert_eq!(counts(&[NONE; 12], 0), [0, 0, 0, 0]);
    assert_eq!(counts(&(0..12).collect::<Vec<_>>(), 12), [4, 0, 3, 5]);
}

#[test]
fn the_estimate_of_memory_covers_the_matrices_that_are_alive_together() {
    let specs = [("poisson3d:24", 1), ("poisson2d:120", 1), ("d3n27:16", 1), ("elasticity3d:9", 3)];
    for (spec, unknowns) in specs.into_iter().chain([("electrostatic:n=6000", 1)]) {
        let a = generate::csr::<f64>(spec).unwrap();
        let n = a.nrows();
        let graph = Strength::of(&a, unknowns, 0.25).unwrap();
        let aggregates = Aggregates::of(&graph, &a);
        let tentative = Tentative::of(&aggregates, unknowns, &constants::<f64>(n, unknowns), unknowns).unwrap();
        let p = smoothed(&a, &graph, &aggregates, &tentative).unwrap();
        let transposed = p.transpose();
        let fine = product(&a, &p).unwrap();
        let coarse = product(&transposed, &fine).unwrap();
        let bytes = |m: &Csr<f64>| Csr::<f64>::traffic_of(m.nrows(), m.ncols(), m.nnz()).0;
        // The couplings have at most as many entries as A, and so has the filter.
        let before = 3 * bytes(&a) + 2 * bytes(&p);
        let after = 2 * bytes(&a) + 2 * bytes(&p) + bytes(&fine) + bytes(&coarse);
        let vectors = ((6 + 2 * unknowns) * n * 8) as u64;
        let (live, needed) = (before.max(after) + vectors, whole::needed::<f64>(n, a.nnz(), unknowns));
        assert!(live <= needed && needed <= 3 * live, "{spec}: {live} of {needed}");
    }
}
