//! `spandrel-bench robust`: which systems end in an answer, and how soon, with the default settings, with each method
//! and with a peer.
//!
//! b = 1. A whole solve is timed, set-up included, on the CPU. An answer is a converged solve, a backward error of the
//! size of rounding, or the statement that the matrix is singular. Backward errors are computed here from x for every
//! contender alike. A named iterative method has at most 2000 iterations, so that a hopeless one ends.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use faer::prelude::Solve as _;
use serde::Serialize;
use spandrel::any::Choice;
use spandrel::solver::Solver;
use spandrel_bench::record::{self, Header};
use spandrel_formats::Csr;
use spandrel_solvers::{BackwardError, Method, Status};

/// The limit of iterations for a named method.
const ITERATIONS: usize = 2000;

#[derive(Debug, Args)]
pub(crate) struct Robust {
    #[command(flatten)]
    common: crate::Common,
    /// Contenders, comma separated
    #[arg(long, value_delimiter = ',', default_value = "auto,direct,cg,bicgstab,gmres,faer")]
    contenders: Vec<String>,
    /// Skip matrices with more rows
    #[arg(long, default_value_t = usize::MAX)]
    most_rows: usize,
}

/// One contender on one system.
#[derive(Debug, Serialize)]
struct Line {
    op: &'static str,
    case: String,
    contender: String,
    n: usize,
    nnz: usize,
    status: String,
    /// Whether that is an answer.
    answer: bool,
    /// The method that ended it.
    by: String,
    /// The attempts that were given up before.
    attempts: Vec<String>,
    iterations: usize,
    true_residual: Option<f64>,
    backward_error: Option<f64>,
    /// The median of the rounds, and the extremes.
    ms: f64,
    ms_min: f64,
    ms_max: f64,
}

/// How one solve ended.
struct Ended {
    status: String,
    answer: bool,
    by: String,
    attempts: Vec<String>,
    iterations: usize,
    x: Option<Vec<f64>>,
}

impl Ended {
    fn failed(status: String) -> Self {
        Self { status, answer: false, by: String::new(), attempts: Vec::new(), iterations: 0, x: None }
    }
}

fn ours(a: &Arc<Csr<f64>>, b: &[f64], method: Option<Method>) -> Ended {
    let mut builder = Solver::builder().device(Choice::Cpu).method(method).updatable(false);
    if method.is_some_and(|method| method != Method::Direct) {
        builder = builder.max_iterations(ITERATIONS);
    }
    let solved = builder.build(Arc::clone(a)).and_then(|mut solver| solver.solve(b));
    let solution = match solved {
        Ok(solution) => solution,
        Err(error) => return Ended::failed(error.to_string()),
    };
    let status = solution.outcome.status;
    let settled = [Status::Converged, Status::BackwardStable, Status::Singular, Status::Inconsistent];
    let attempt = |attempt: &spandrel::solver::Attempt| {
        format!("{}+{} {} {}", attempt.method, attempt.preconditioner, attempt.status, attempt.iterations)
    };
    Ended {
        status: status.to_string(),
        answer: settled.contains(&status),
        by: format!("{}+{}", solution.method, solution.preconditioner),
        attempts: solution.attempts.iter().map(attempt).collect(),
        iterations: solution.outcome.iterations,
        x: Some(solution.x),
    }
}

/// faer's own LU with its defaults and without refinement.
fn faer(a: &Arc<Csr<f64>>, b: &[f64]) -> Ended {
    let columns = ::faer::sparse::SparseColMat::<u32, f64>::from(&**a);
    let lu = match columns.sp_lu() {
        Ok(lu) => lu,
        Err(error) => return Ended::failed(format!("{error:?}")),
    };
    let mut x = ::faer::Col::from_fn(b.len(), |i| b[i]);
    lu.solve_in_place(x.as_mut().as_mat_mut());
    let x: Vec<f64> = x.iter().copied().collect();
    let error = BackwardError::of(a, b, &x);
    let answer = error.is_stable::<f64>();
    let status = if answer { "backward_stable" } else { "stagnated" };
    Ended { answer, by: "lu".into(), x: Some(x), ..Ended::failed(status.into()) }
}

pub(crate) fn run(args: &Robust) -> Result<()> {
    let threads = args.common.output.pool()?;
    let mut lines: Vec<Line> = Vec::new();
    for case in args.common.cases()? {
        let a: Arc<Csr<f64>> = match case.load::<f64>() {
            Ok(a) if a.nrows() == a.ncols() && a.nrows() > 0 && a.nrows() <= args.most_rows => Arc::new(a),
            Ok(_) => continue,
            Err(error) => {
                println!("skipped {}: {error}", case.name);
                continue;
            }
        };
        let (n, nnz) = (a.nrows(), a.nnz());
        let b = vec![1.0; n];
        for contender in &args.contenders {
            let mut times = Vec::new();
            let ended = loop {
                let start = Instant::now();
                let ended = match contender.as_str() {
                    "auto" => ours(&a, &b, None),
                    "faer" => faer(&a, &b),
                    name => ours(&a, &b, Some(name.parse::<Method>()?)),
                };
                times.push(start.elapsed().as_secs_f64() * 1e3);
                // A long solve is timed once.
                if times.len() >= args.common.output.rounds || times.iter().sum::<f64>() > 500.0 {
                    break ended;
                }
            };
            times.sort_by(f64::total_cmp);
            let error = ended.x.as_ref().map(|x| BackwardError::of(&a, &b, x).normwise);
            let line = Line {
                op: "robust",
                case: case.name.clone(),
                contender: contender.clone(),
                n,
                nnz,
                status: ended.status,
                answer: ended.answer,
                by: ended.by,
                attempts: ended.attempts,
                iterations: ended.iterations,
                true_residual: ended.x.as_ref().map(|x| relative_residual(&a, &b, x)).filter(|r| r.is_finite()),
                backward_error: error.filter(|error| error.is_finite()),
                ms: times[times.len() / 2],
                ms_min: times[0],
                ms_max: times[times.len() - 1],
            };
            println!("{:<20} {:<9} {:>10.3} ms  {}", line.case, line.contender, line.ms, line.status);
            lines.push(line);
        }
    }
    summary(&lines);
    match &args.common.output.json {
        Some(path) => record::write(path, &Header::here(threads), &lines),
        None => Ok(()),
    }
}

fn relative_residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let row = |i: usize| {
        let (cols, values) = a.row(i);
        b[i] - cols.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum::<f64>()
    };
    let norm = |square: f64| square.sqrt();
    norm((0..b.len()).map(|i| row(i).powi(2)).sum()) / norm(b.iter().map(|b| b * b).sum())
}

/// The number of answers of each contender, and the time of the default beside that of the fastest other answer.
fn summary(lines: &[Line]) {
    let mut contenders: Vec<&str> = lines.iter().map(|line| line.contender.as_str()).collect();
    contenders.sort_unstable();
    contenders.dedup();
    for contender in contenders {
        let own = || lines.iter().filter(|line| line.contender == contender);
        println!("{contender}: {} answers of {}", own().filter(|line| line.answer).count(), own().count());
    }
    let ratios: Vec<f64> = lines
        .iter()
        .filter(|line| line.contender == "auto" && line.answer)
        .filter_map(|auto| {
            let others = lines.iter().filter(|line| line.case == auto.case && line.contender != "auto");
            let converged = others.filter(|line| line.answer && line.true_residual.is_some_and(|r| r <= 1e-8));
            converged.map(|line| line.ms).min_by(f64::total_cmp).map(|best| auto.ms / best)
        })
        .collect();
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("auto takes {mean:.2} of the soonest of the others, geometric mean over {} systems", ratios.len());
    }
}
