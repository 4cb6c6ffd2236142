//! A rank that fails, panics, leaves, hangs or does something else: every other rank ends with an error that names it,
//! within the time limit.

mod problems;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use problems::{LIMIT, Solve, partition, rank, system};
use spandrel_backend::{Backend, Device, Error as Fault};
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{
    Communicator, Distributed, DistributedMat, Failure, Partition, Rows, Threads, precond, rows_of,
};
use spandrel_formats::{Csr, generate};
use spandrel_solvers::{Cg, Error, Identity, Method, Options, Status};

/// Runs CG on three ranks; after five iterations rank 1 calls `disturb`, and asks to stop if that returns true. What
/// each rank ended with, and how long it took.
fn disturbed(limit: Duration, disturb: impl Fn() -> bool + Sync) -> (Vec<Result<Status, Failure<Error>>>, Duration) {
    let system = system(generate::csr::<f64>("poisson3d:20").unwrap());
    let ends = partition(&system.a, 3);
    let began = Instant::now();
    let ranks = Threads::run_within(3, limit, |comm| {
        let me = comm.rank();
        let range = ends.rows(me);
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        let a = &DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows_of(&system.a, range.clone()))?;
        let b = be.upload(&system.b[range.start as usize..range.end as usize])?;
        let (mut x, n) = (Backend::<f64>::zeros(be, 8000)?, 8000);
        let options = Options { check_every: 1, check_after: Duration::MAX, ..Options::default() };
        let outcome = Cg::new(be, n)?.solve_watched(be, a, &Identity, &b, &mut x, &options, &mut |at| {
            if me == 1 && at.iterations == 5 && disturb() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(outcome.status)
    });
    (ranks, began.elapsed())
}

#[test]
fn an_interrupt_on_one_rank_ends_the_solve_on_all() {
    let (ranks, _) = disturbed(LIMIT, || true);
    assert!(ranks.into_iter().all(|status| status.unwrap() == Status::Interrupted));
}

#[test]
fn a_rank_that_panics_is_named_by_the_others() {
    let (ranks, took) = disturbed(LIMIT, || panic!("out of luck"));
    assert!(took < LIMIT / 4, "{took:?}");
    for (rank, ended) in ranks.into_iter().enumerate() {
        let text = ended.unwrap_err().to_string();
        let expected = if rank == 1 { "rank 1 panicked: out of luck" } else { "rank 1: panicked: out of luck" };
        assert_eq!(text, expected);
    }
}

#[test]
fn a_rank_that_hangs_is_named_after_the_time_limit() {
    let limit = Duration::from_millis(1500);
    let (ranks, took) = disturbed(limit, || {
        std::thread::sleep(3 * limit);
        false
    });
    assert!(took >= 2 * limit, "{took:?}");
    let texts: Vec<String> = ranks.into_iter().map(|ended| ended.unwrap_err().to_string()).collect();
    // Ranks 0 and 2 wait for rank 1, or for each other.
    assert!(texts.iter().any(|text| text.starts_with("rank 1: no message within 1.5 s")), "{texts:?}");
    assert!(texts.iter().all(|text| text.starts_with("rank ")), "{texts:?}");
}

#[test]
fn a_rank_that_leaves_is_named_by_the_others() {
    let ranks = Threads::run_within(3, LIMIT, |comm| {
        let be = Distributed::new(Cpu::with_threads(1)?, comm);
        if be.rank() == 2 { Ok(0) } else { be.agree(7) }
    });
    let texts: Vec<String> = ranks.into_iter().filter_map(|rank| rank.err()).map(|error| error.to_string()).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts.iter().all(|text| text.starts_with("rank 2: it has left the solve")), "{texts:?}");
}

#[test]
fn an_error_on_one_rank_is_the_reason_on_all() {
    let ranks = Threads::run_within(2, LIMIT, |comm| {
        let be = Distributed::new(Cpu::with_threads(1)?, comm);
        be.lay_out(Partition::even(4096, 2))?;
        let own = if be.rank() == 0 { 2048 } else { 2047 };
        let b = be.upload(&vec![1.0; own])?;
        be.agree(1)?;
        Ok::<_, Fault>(be.len(&b))
    });
    let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert_eq!(texts[1], "upload: the part of this rank has 2047 elements, expected 2048");
    assert_eq!(texts[0], format!("rank 1: {}", texts[1]));
}

#[test]
fn other_systems_or_options_on_ranks_are_told() {
    let one = system(generate::csr::<f64>("poisson3d:16").unwrap());
    let other = system(generate::csr::<f64>("poisson3d:16x16x17").unwrap());
    let solve = |rank: usize| Solve {
        method: if rank == 0 { Method::Cg } else { Method::BiCgStab },
        options: Options { max_iters: Some(40), ..Options::default() },
        ..Solve::default()
    };
    // Other matrices.
    let ends = partition(&one.a, 2);
    let ranks = Threads::run_within(2, LIMIT, |comm| {
        let (range, system) = (ends.rows(comm.rank()), if comm.rank() == 0 { &one } else { &other });
        let b = &system.b[range.start as usize..range.end as usize];
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        rank(be, rows_of(&system.a, range), b, &Solve::default())
    });
    let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| text.contains("rank 1 has 4352 columns, and rank 0 has 4096")), "{texts:?}");
    // Other methods.
    let ranks = Threads::run_within(2, LIMIT, |comm| {
        let (me, range) = (comm.rank(), ends.rows(comm.rank()));
        let b = &one.b[range.start as usize..range.end as usize];
        let be = &Distributed::new(Cpu::with_threads(1)?, comm);
        rank(be, rows_of(&one.a, range), b, &solve(me))
    });
    let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert!(texts.iter().any(|text| text.contains("every rank must")), "{texts:?}");
}

#[test]
fn a_row_that_jacobi_cannot_invert_is_named_everywhere_by_its_number_in_the_whole_matrix() {
    let entries = (0..3000).filter(|&i| i != 2500).map(|i| (i, i, 2.0));
    let a = Csr::from_triplets(3000, 3000, entries).unwrap();
    let ranks = Threads::run_within(3, LIMIT, |comm| {
        let be = Distributed::new(Cpu::with_threads(1)?, comm);
        let rows = rows_of(&a, Partition::even(3000, 3).rows(be.rank()));
        DistributedMat::<Cpu, Csr<f64>>::from_rows(&be, rows.clone())?;
        precond::jacobi(&be, &rows).map(|_| ())
    });
    let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert!(texts[2].starts_with("the diagonal entry of row 2500 is missing"), "{texts:?}");
    assert!(texts[0].starts_with("rank 2: the diagonal entry of row 2500 is missing"), "{texts:?}");
}

#[test]
fn a_matrix_that_is_not_square_or_not_whole_is_refused_on_all_ranks() {
    let refused = |make: &(dyn Fn(usize) -> Rows<f64> + Sync)| {
        let ranks = Threads::run_within(2, LIMIT, |comm| {
            let be = Distributed::new(Cpu::with_threads(1)?, comm);
            let rows = make(be.rank());
            DistributedMat::<Cpu, Csr<f64>>::from_rows(&be, rows).map(|_| ())
        });
        let mut texts = ranks.into_iter().map(|rank| rank.unwrap_err().to_string());
        let first = texts.next().unwrap();
        assert!(texts.all(|text| text == first), "{first}");
        first
    };
    let zeros = |first: u64, nrows: usize, ncols: usize| {
        Rows::new(first, ncols as u64, vec![0; nrows + 1], Vec::<u32>::new(), Vec::new()).unwrap()
    };
    let text = refused(&|rank| zeros(1024 * rank as u64, 1024, 2000));
    assert!(text.contains("it has 2048 rows and 2000 columns; a distributed solve needs a square matrix"), "{text}");
    let text = refused(&|rank| zeros(1000 * rank as u64, 1000, 2000));
    assert!(text.contains("rank 0 ends at row 1000; a range must end at a multiple of 1024"), "{text}");
    let text = refused(&|rank| zeros(1025 * rank as u64, 1024, 2000));
    assert!(text.contains("rank 1 begins with row 1025, and the ranks before it end at row 1024"), "{text}");
}
