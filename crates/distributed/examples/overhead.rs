//! What several ranks cost: an iteration of CG on one device and on ranks that are threads of this process, one after
//! the other, in rounds.
//!
//! `cargo run --release -p spandrel-distributed --example overhead -- d3n27:128 50 5` prints the median milliseconds of
//! an iteration, and the ratios that matter: one rank over one thread, and two ranks of one thread over two threads.
//! Run it on a machine that does nothing else.

use std::process::ExitCode;
use std::time::Instant;

use spandrel_backend::{Backend, Mat};
use spandrel_backend_cpu::Cpu;
use spandrel_distributed::{Communicator, Distributed, DistributedMat, Failure, Partition, Threads, rows_of};
use spandrel_formats::{Csr, Dia, Format, generate};
use spandrel_solvers::{Cg, Error, Identity, Options};

/// Milliseconds of an iteration on one device, and x.
fn on_one_device<F: Format<Value = f64>>(
    a: &Csr<f64>,
    threads: usize,
    options: &Options,
) -> Result<(f64, Vec<f64>), Error>
where
    Cpu: spandrel_backend::Spmv<F>,
{
    let (be, n) = (&Cpu::with_threads(threads)?, a.nrows());
    let matrix = Mat::load(be, F::from_csr(a)?)?;
    let (b, mut x) = (be.upload(&vec![1.0; n])?, Backend::<f64>::zeros(be, n)?);
    let mut cg = Cg::new(be, n)?;
    let began = Instant::now();
    let outcome = cg.solve(be, &matrix, &Identity, &b, &mut x, options)?;
    Ok((began.elapsed().as_secs_f64() * 1e3 / outcome.iterations.max(1) as f64, be.download(&x)?))
}

/// The same on ranks of one thread each.
fn on_ranks<F: Format<Value = f64>>(a: &Csr<f64>, ranks: usize, options: &Options) -> Result<(f64, Vec<f64>), Error>
where
    Cpu: spandrel_backend::Spmv<F>,
{
    let ptr = a.row_ptr();
    let partition = Partition::by_cost(a.nrows() as u64, ranks, |row| u64::from(ptr[row as usize]) + row);
    let mut ended = Threads::run(ranks, |team| {
        let rows = rows_of(a, partition.rows(team.rank()));
        let (own, n) = (rows.len(), a.nrows());
        let be = &Distributed::new(Cpu::with_threads(1)?, team);
        let matrix = DistributedMat::<Cpu, F>::from_rows(be, rows)?;
        let (b, mut x) = (be.upload(&vec![1.0; own])?, Backend::<f64>::zeros(be, n)?);
        let mut cg = Cg::new(be, n)?;
        spandrel_backend::Device::agree(be, 0)?; // all begin together
        let began = Instant::now();
        let outcome = cg.solve(be, &matrix, &Identity, &b, &mut x, options)?;
        let ms = began.elapsed().as_secs_f64() * 1e3 / outcome.iterations.max(1) as f64;
        Ok::<_, Error>((ms, be.gather(&x)?.unwrap_or_default()))
    });
    ended.swap_remove(0).map_err(|failure| match failure {
        Failure::Error(error) => error,
        panic @ Failure::Panic { .. } => Error::Unsupported { why: panic.to_string() },
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn compare<F: Format<Value = f64>>(a: &Csr<f64>, iterations: usize, rounds: usize) -> Result<(), Error>
where
    Cpu: spandrel_backend::Spmv<F>,
{
    // A goal that is never met: every solve does the same iterations.
    let options = Options { rtol: Some(0.0), max_iters: Some(iterations), history: false, ..Options::default() };
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        let runs = [
            on_one_device::<F>(a, 1, &options)?,
            on_ranks::<F>(a, 1, &options)?,
            on_one_device::<F>(a, 2, &options)?,
            on_ranks::<F>(a, 2, &options)?,
        ];
        let alike = runs.iter().all(|(_, x)| x.iter().zip(&runs[0].1).all(|(x, y)| x.to_bits() == y.to_bits()));
        assert!(alike, "round {round}: the answers differ in a bit");
        runs.into_iter().zip(&mut times).for_each(|((ms, _), times)| times.push(ms));
    }
    let [one, rank, two, ranks] = times.map(median);
    println!("{:<5} 1 thread {one:8.3} ms   1 rank  {rank:8.3} ms   ratio {:.3}", F::NAME, rank / one);
    println!("{:<5} 2 threads {two:7.3} ms   2 ranks {ranks:8.3} ms   ratio {:.3}", F::NAME, ranks / two);
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let spec = arguments.first().map_or("d3n27:128", String::as_str);
    let number = |at: usize, usual: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (iterations, rounds) = (number(1, 50), number(2, 5));
    let run = || -> Result<(), Error> {
        let a = generate::csr::<f64>(spec)?;
        println!("{spec}: {} rows, {} entries; {iterations} iterations, {rounds} rounds", a.nrows(), a.nnz());
        compare::<Csr<f64>>(&a, iterations, rounds.max(1))?;
        compare::<Dia<f64>>(&a, iterations, rounds.max(1))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
