//! `spandrel-bench solve`: whole solves of many matrices, with the honest end of each.
//!
//! b = A times a vector without structure, so that singular matrices have consistent systems too. A matrix is solved
//!
//! - if it is symmetric with a positive diagonal, by CG with Jacobi and with IC(0), shifted if a pivot fails;
//! - if it is positive definite and has at least 2000 rows, by CG with algebraic multigrid;
//! - if it is square, by BiCGStab with Jacobi, or with nothing if the diagonal has a zero;
//! - if it is square and not positive definite, by BiCGStab with ILU(0), and if that fails by BiCGStab and GMRES with
//!   ILU(k), k rising to 2 until each has converged;
//! - always by the direct solver, which also says whether it is positive definite.
//!
//! Every way is named here and calls its method directly, because the record compares them. `spandrel::Solver` would
//! take only one of them.
//!
//! Limits: 20 n iterations, seconds per iterative solve, entries of ILU(k), bytes of the direct factor. A line says
//! which limit ended it. The true residual in the record is recomputed here by a separate loop.

pub mod grid;
mod iterate;
pub mod tally;

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format};
use spandrel_solvers::{Direct, DirectOptions, Error, Method, Outcome, Status};

use self::iterate::System;
use crate::case::Case;

/// The limits that end a solve before its answer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The tolerance.
    pub rtol: f64,
    /// Seconds after which an iterative solve is interrupted.
    pub seconds: f64,
    /// The largest number of entries in the factors of ILU(k) per entry of the matrix.
    pub fill: usize,
    /// The largest number of bytes of a direct factor.
    pub memory: u64,
}

/// The kind of a matrix, as far as methods depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Symmetric with a positive diagonal, and all pivots of LL^T are positive (or it would not fit, and nobody knows).
    Spd,
    /// Otherwise symmetric.
    Symmetric,
    /// Otherwise square.
    Nonsymmetric,
    /// Not square.
    Rectangular,
    /// The file could not be read.
    Unread,
}

impl Class {
    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spd => "spd",
            Self::Symmetric => "symmetric",
            Self::Nonsymmetric => "nonsymmetric",
            Self::Rectangular => "rectangular",
            Self::Unread => "unread",
        }
    }
}

/// One solve.
#[derive(Clone, Debug, Serialize)]
pub struct SolveLine {
    /// `"solve"`.
    pub op: &'static str,
    /// `"cg"`, `"bicgstab"`, `"gmres"`, `"direct"`, and `"read"` for a file that could not be read.
    pub noun: &'static str,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`.
    pub backend: &'static str,
    /// `"spandrel"`.
    pub contender: &'static str,
    /// The matrix.
    pub case: String,
    /// The kind of the matrix.
    pub class: Class,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries.
    pub nnz: usize,
    /// `"none"`, `"jacobi"`, `"ic0"`, `"ilu0"`, `"ilu1"`, `"ilu2"`, `"amg"`; for direct solves the factorisation.
    pub precond: String,
    /// The word of the outcome, or of an error that has one, else `"error"`.
    pub status: String,
    /// The text of the error, or the limit that interrupted it.
    pub error: Option<String>,
    /// Iterations.
    pub iterations: usize,
    /// The tolerance.
    pub rtol: f64,
    /// The residual that the outcome reports.
    pub true_residual: Option<f64>,
    /// ||b - A x|| / ||b||, recomputed here from the returned x.
    pub recomputed_residual: Option<f64>,
    /// Whether the matrix is symmetric with a positive diagonal.
    pub cg_applies: bool,
    /// Milliseconds, set-up included.
    pub ms: f64,
    /// Milliseconds of the set-up of the preconditioner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_ms: Option<f64>,
    /// The plan of the triangular solves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'static str>,
    /// Entries of the incomplete factors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor_nnz: Option<usize>,
    /// The alpha, if IC(0) is that of A + alpha diag(A).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shift: Option<f64>,
    /// The row at which a factorisation stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_row: Option<usize>,
}

impl SolveLine {
    /// Whether it has an answer.
    pub fn converged(&self) -> bool {
        self.status == Status::Converged.as_str()
    }

    fn blank(case: &Case, class: Class, csr: Option<&Csr<f64>>, rtol: f64) -> Self {
        Self {
            op: "solve",
            noun: "read",
            element: "f64",
            backend: "cpu",
            contender: "spandrel",
            case: case.name.clone(),
            class,
            n: csr.map_or(0, Format::nrows),
            ncols: csr.map_or(0, Format::ncols),
            nnz: csr.map_or(0, Format::nnz),
            precond: "none".into(),
            status: "error".into(),
            error: None,
            iterations: 0,
            rtol,
            true_residual: None,
            recomputed_residual: None,
            cg_applies: false,
            ms: 0.0,
            setup_ms: None,
            plan: None,
            factor_nnz: None,
            shift: None,
            failed_row: None,
        }
    }

    /// How it ended.
    fn end(&mut self, solved: spandrel_solvers::Result<(Outcome, Vec<f64>)>, csr: &Csr<f64>, b: &[f64]) {
        match solved {
            Ok((outcome, x)) => {
                self.status = outcome.status.to_string();
                self.iterations = outcome.iterations;
                self.true_residual = finite(outcome.true_residual);
                self.recomputed_residual = finite(relative_residual(csr, &x, b));
            }
            Err(why) => self.fail(&why),
        }
    }

    fn fail(&mut self, why: &Error) {
        self.status = why.status().map_or("error", Status::as_str).to_owned();
        self.failed_row = row(why);
        self.error = Some(why.to_string());
    }
}

/// The row that an error names.
fn row(error: &Error) -> Option<usize> {
    use spandrel_sptrsv::Error as E;
    match error {
        Error::Diagonal { row, .. } => Some(*row),
        Error::Triangle(
            E::MissingPivot { row }
            | E::ZeroPivot { row }
            | E::TinyPivot { row, .. }
            | E::NotPositive { row, .. }
            | E::NotFinite { row }
            | E::Fill { row, .. },
        ) => Some(*row),
        _ => None,
    }
}

fn finite(v: f64) -> Option<f64> {
    v.is_finite().then_some(v)
}

/// Solves all cases on `threads` threads, one per thread, the largest files first. Lines are in the order of the cases.
///
/// # Errors
/// That of a thread's backend.
pub fn all(cases: &[Case], limits: &Limits, threads: usize) -> Result<Vec<SolveLine>> {
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|&k| Reverse(cases[k].path.as_ref().map_or(0, size)));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(cases.len())));
    // Separate threads, because rayon's would start another case inside one and count its time.
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                while let Some(&k) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    eprintln!("{}", cases[k].name);
                    let lines = Cpu::with_threads(1).map_err(Into::into).map(|be| run(&be, &cases[k], limits));
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((k, lines));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(k, _)| k);
    let lines: Result<Vec<_>> = done.into_iter().map(|(_, lines)| lines).collect();
    Ok(lines?.concat())
}

/// Solves one case in every way that applies. An unreadable file is a line too, and so is every numerical failure.
pub fn run(be: &Cpu, case: &Case, limits: &Limits) -> Vec<SolveLine> {
    let csr = match case.load::<f64>() {
        Ok(csr) => Arc::new(csr),
        Err(e) => {
            let blank = SolveLine::blank(case, Class::Unread, None, limits.rtol);
            return vec![SolveLine { error: Some(format!("{e:#}")), ..blank }];
        }
    };
    let choice = Method::choose(&*csr);
    let truth: Vec<f64> = (0..csr.ncols()).map(|i| 0.5 + (i as f64 * 0.618_033_988_75).fract()).collect();
    let b = product(&csr, &truth);
    let mut blank = SolveLine::blank(case, Class::Rectangular, Some(&*csr), limits.rtol);
    blank.cg_applies = choice.solver == Method::Cg;
    let (mut last, definite) = direct(&csr, &b, limits, &blank);
    if csr.nrows() == csr.ncols() {
        blank.class = match (csr.is_symmetric(), definite) {
            (true, true) => Class::Spd,
            (true, false) => Class::Symmetric,
            (false, _) => Class::Nonsymmetric,
        };
    }
    last.class = blank.class;
    let mut lines = match blank.class {
        Class::Rectangular => Vec::new(),
        _ => System::new(be, &csr, &b, limits, &blank).solve(choice.plain),
    };
    lines.push(last);
    lines
}

/// The direct solve, and whether the matrix counts as positive definite.
fn direct(csr: &Arc<Csr<f64>>, b: &[f64], limits: &Limits, blank: &SolveLine) -> (SolveLine, bool) {
    let mut line = SolveLine { noun: "direct", ..blank.clone() };
    // The other cores work on other cases.
    let options = DirectOptions {
        rtol: Some(limits.rtol),
        memory_limit: limits.memory,
        parallel: false,
        ..DirectOptions::default()
    };
    let start = Instant::now();
    let mut definite = blank.cg_applies;
    let mut solve = || -> spandrel_solvers::Result<(Outcome, Vec<f64>)> {
        let mut direct = Direct::analyze(Arc::clone(csr), &options)?;
        let factored = direct.factor();
        definite &= !direct.fell_back();
        line.precond = direct.method().as_str().to_owned();
        factored?;
        let mut x = vec![0.0; csr.ncols()];
        let outcome = direct.solve(b, &mut x)?;
        Ok((outcome, x))
    };
    let solved = solve();
    line.ms = start.elapsed().as_secs_f64() * 1e3;
    line.end(solved, csr, b);
    (line, definite)
}

fn product(csr: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    (0..csr.nrows())
        .map(|i| {
            let (cols, values) = csr.row(i);
            cols.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum()
        })
        .collect()
}

fn relative_residual(csr: &Csr<f64>, x: &[f64], b: &[f64]) -> f64 {
    let ax = product(csr, x);
    let scale = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if scale == 0.0 {
        return if ax.iter().all(|v| *v == 0.0) { 0.0 } else { f64::INFINITY };
    }
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| (v / scale) * (v / scale)).sum::<f64>().sqrt();
    norm(&mut b.iter().zip(&ax).map(|(b, ax)| b - ax)) / norm(&mut b.iter().copied())
}

/// One row per solve.
pub fn table(lines: &[SolveLine]) -> String {
    let mut out = String::new();
    for l in lines {
        let residual = l.recomputed_residual.map_or("-".into(), |r| format!("{r:.1e}"));
        let shift = l.shift.map_or(String::new(), |shift| format!("shift {shift:.0e} "));
        out += &format!(
            "{:24} {:>7} {:>9} {:12} {:9} {:7} {:>8} {:22} {:>8} {:>10.1} ms {shift}{}\n",
            l.case,
            l.n,
            l.nnz,
            l.class.as_str(),
            l.noun,
            l.precond,
            l.iterations,
            l.status,
            residual,
            l.ms,
            l.error.as_deref().unwrap_or("")
        );
    }
    out
}
