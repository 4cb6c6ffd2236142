//! Algebraic multigrid on ranks: the hierarchy and the bits of x of one device, for any number of ranks, wherever the
//! last grids are brought to every rank.

mod problems;

use problems::{LIMIT, Preconditioner, Solve, on_one_device, on_ranks, partition, system};
use spandrel_backend::Error as Fault;
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{Communicator, Distributed, DistributedAmg, Failure, Threads, rows_of};
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{Amg, AmgCycle, AmgOptions, Error, Method};

/// The table of a hierarchy with the bounds of its grids, on each rank, and how many of the grids lie on the ranks.
fn hierarchy(a: &Csr<f64>, ranks: usize, options: &AmgOptions, gathered: usize) -> Vec<(String, usize)> {
    let ends = partition(a, ranks);
    let ended = Threads::run_within(ranks, LIMIT, |comm| {
        let rows = rows_of(a, ends.rows(comm.rank()));
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let m = DistributedAmg::of(be, &rows, options, gathered)?;
        Ok::<_, Error>((format!("{m}\n{:?}", m.levels()), m.on_ranks()))
    });
    ended.into_iter().map(|rank| rank.unwrap()).collect()
}

/// Compares hierarchies and solves. `on_ranks` is the number of grids that must lie on the ranks.
fn alike(name: &str, a: Csr<f64>, options: AmgOptions, gathered: usize, (ranks, least): (&[usize], usize)) {
    let one = Amg::new(&Cpu::new(), &a, &options).unwrap();
    let expected = format!("{one}\n{:?}", one.levels());
    let solve = |gathered| Solve {
        method: Method::Cg,
        precond: Preconditioner::Amg(options, gathered),
        options: spandrel_solvers::Options { max_iters: Some(25), ..Default::default() },
        ..Solve::default()
    };
    let system = system(a);
    let (x, outcome) = on_one_device(&system, &solve(gathered));
    for &ranks in ranks {
        for (found, of_ranks) in hierarchy(&system.a, ranks, &options, gathered) {
            assert_eq!(found, expected, "{name} on {ranks} ranks");
            assert!(of_ranks >= least, "{name}: {of_ranks} grids lie on the ranks");
        }
        let (other, found) = on_ranks(ranks, &system, &solve(gathered));
        let at = x.iter().zip(&other).position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(at, None, "{name} on {ranks} ranks, with grids of {gathered} rows on each");
        assert_eq!((outcome.status, &outcome.history), (found.status, &found.history), "{name}");
    }
}

const RANKS: &[usize] = &[1, 2, 3, 4, 7];

/// Options for which small problems have several grids.
fn small() -> AmgOptions {
    AmgOptions { coarsest: 20, ..AmgOptions::default() }
}

#[test]
fn a_cube_has_the_bits_of_one_device_wherever_grids_are_gathered() {
    let a = generate::csr::<f64>("poisson3d:22x21x20").unwrap();
    alike("poisson3d", a.clone(), small(), 0, (RANKS, 2));
    // Brought to every rank: from the second grid on, and from the first.
    alike("poisson3d", a.clone(), AmgOptions::default(), 2000, (&[3], 1));
    alike("poisson3d", a, AmgOptions { degree: 3, ..small() }, usize::MAX, (&[3], 0));
}

#[test]
fn an_unstructured_matrix_has_the_bits_of_one_device() {
    alike("electrostatic", generate::csr("electrostatic:n=9000").unwrap(), small(), 0, (RANKS, 2));
}

#[test]
fn points_of_several_unknowns_may_be_cut_by_a_rank() {
    // A block of 1024 rows ends inside a point of three unknowns.
    let a = generate::csr::<f64>("poisson3d:13").unwrap();
    let coupled = [(0, 0, 4.0), (1, 1, 3.0), (2, 2, 5.0), (0, 1, 1.0), (1, 0, 1.0), (1, 2, -0.5), (2, 1, -0.5)];
    let entries = (0..a.nrows()).flat_map(|i| {
        let (cols, values) = a.row(i);
        let each = move |(&j, &v): (&u32, &f64)| coupled.map(|(r, c, w)| (3 * i + r, 3 * j as usize + c, v * w));
        cols.iter().zip(values).flat_map(each)
    });
    let n = 3 * a.nrows();
    let a = Csr::from_triplets(n, n, entries).unwrap();
    alike("three unknowns", a, AmgOptions { unknowns: 3, ..small() }, 0, (RANKS, 2));
}

#[test]
fn a_matrix_without_couplings_is_only_smoothed() {
    let n = 5000;
    let a = Csr::from_triplets(n, n, (0..n).map(|i| (i, i, 2.0 + (i % 7) as f64))).unwrap();
    alike("diagonal", a, AmgOptions::default(), 0, (&[1, 3], 1));
    // Fewer rows than a block: one rank has them all.
    alike("poisson2d", generate::csr("poisson2d:20").unwrap(), small(), 0, (&[1, 3], 1));
    // The limit of grids ends the coarsening of a large one.
    let a = generate::csr::<f64>("poisson3d:18").unwrap();
    alike("one grid", a.clone(), AmgOptions { levels: 1, ..AmgOptions::default() }, 0, (&[1, 3], 1));
    alike("two grids", a, AmgOptions { levels: 2, ..AmgOptions::default() }, 0, (&[1, 3], 1));
}

#[test]
fn four_byte_numbers_have_the_bits_of_one_device() {
    let a = generate::csr::<f32>("poisson3d:17").unwrap();
    let one = format!("{:?}", Amg::new(&Cpu::new(), &a, &small()).unwrap().levels());
    for ranks in [2, 3] {
        let ended = Threads::run_within(ranks, LIMIT, |comm| {
            let be = &Distributed::new(Cpu::with_threads(1)?, comm);
            let rows = spandrel_distributed::cut_rows(be, &a);
            Ok::<_, Error>(format!("{:?}", DistributedAmg::of(be, &rows, &small(), 0)?.levels()))
        });
        assert!(ended.into_iter().all(|levels| levels.unwrap() == one));
    }
}

/// What each of three ranks ends with.
fn refused(a: &Csr<f64>, options: AmgOptions) -> Vec<Error> {
    let ends = partition(a, 3);
    let ended = Threads::run_within(3, LIMIT, |comm| {
        let rows = rows_of(a, ends.rows(comm.rank()));
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        DistributedAmg::new(be, &rows, &options).map(|_| ())
    });
    let error = |ended: Result<(), Failure<Error>>| match ended {
        Err(Failure::Error(error)) => error,
        other => panic!("{other:?}"),
    };
    ended.into_iter().map(error).collect()
}

#[test]
fn a_refusal_is_that_of_one_device_on_the_rank_of_the_row_and_names_it_on_the_others() {
    let a = generate::csr::<f64>("poisson3d:18").unwrap();
    let at = partition(&a, 3).rows(1).start as usize + 100;
    let with = |value: f64| a.map_entries(|row, col, v| if row == at && col == at { value } else { v });
    for (a, text) in [(with(-1.0), "negative"), (with(f64::NAN), "NaN")] {
        let one = Amg::new(&Cpu::new(), &a, &AmgOptions::default()).unwrap_err().to_string();
        assert!(one.contains(text), "{one}");
        let found = refused(&a, AmgOptions::default());
        assert_eq!(found[1].to_string(), one);
        for rank in [0, 2] {
            let Error::Backend(Fault::Rank { rank: named, why }) = &found[rank] else { panic!("{found:?}") };
            assert_eq!((*named, why), (1, &one));
        }
    }
    // A small diagonal entry: a coarse operator shows that the matrix is not positive definite.
    let a = a.map_entries(|row, col, v| if row == col { 1.0 } else { v });
    let one = Amg::new(&Cpu::new(), &a, &AmgOptions::default()).unwrap_err();
    assert!(matches!(one, Error::NotPositive { .. }), "{one}");
    let found: Vec<String> = refused(&a, AmgOptions::default()).iter().map(Error::to_string).collect();
    assert!(found.iter().all(|text| text.contains(&one.to_string())), "{found:?}");
}

#[test]
fn every_rank_refuses_what_one_device_refuses() {
    let a = generate::csr::<f64>("poisson3d:14").unwrap();
    let unsymmetric = a.map_entries(|row, col, v| if (row, col) == (2000, 1999) { 2.0 * v } else { v });
    let wrong = [
        AmgOptions { strength: 2.0, ..AmgOptions::default() },
        AmgOptions { degree: 9, ..AmgOptions::default() },
        AmgOptions { unknowns: 3, ..AmgOptions::default() },
        AmgOptions { coarsest: 0, ..AmgOptions::default() },
        AmgOptions { levels: 0, ..AmgOptions::default() },
    ];
    let cases = wrong.into_iter().map(|options| (&a, options)).chain([(&unsymmetric, AmgOptions::default())]);
    for (a, options) in cases {
        let one = Amg::new(&Cpu::new(), a, &options).unwrap_err().to_string();
        let found: Vec<String> = refused(a, options).iter().map(Error::to_string).collect();
        assert_eq!(found, [one.clone(), one.clone(), one]);
    }
    // One device takes a K-cycle.
    let k = AmgOptions { cycle: AmgCycle::K, ..AmgOptions::default() };
    assert!(Amg::new(&Cpu::new(), &a, &k).is_ok());
    for error in refused(&a, k) {
        let is_told = matches!(&error, Error::Unsupported { why } if why.contains("for the V-cycle"));
        assert!(is_told, "{error}");
    }
    // Different by rounding only.
    let rounded = a.map_entries(|row, col, v| if (row, col) == (2000, 1999) { v * (1.0 + f64::EPSILON) } else { v });
    assert!(!rounded.is_symmetric());
    let ended = Threads::run_within(3, LIMIT, |comm| {
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let rows = spandrel_distributed::cut_rows(be, &rounded);
        DistributedAmg::new(be, &rows, &AmgOptions::default()).map(|_| ())
    });
    assert!(ended.into_iter().all(|rank| rank.is_ok()));
}
