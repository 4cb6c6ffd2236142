//! `spandrel-bench solve`: whole solves of many matrices, with the honest end of each.
//!
//! b = A times a vector without structure, so that singular matrices have consistent systems too. Symmetric matrices with
//! a positive diagonal get CG, all square ones BiCGStab (both with Jacobi, or none where the diagonal has a zero) with the
//! limit of 20 n iterations, and all of them the direct solver. The true residual of the record is recomputed here, by
//! a loop of its own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format};
use spandrel_solvers::{
    BiCgStab, Cg, Direct, DirectOptions, Identity, Jacobi, Options, Outcome, PrecondKind, Progress, SolverKind,
};

use crate::case::Case;

/// One solve.
#[derive(Clone, Debug, Serialize)]
pub struct SolveLine {
    /// `"solve"`.
    pub op: &'static str,
    /// `"cg"`, `"bicgstab"`, `"direct"`.
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
    /// Rows.
    pub n: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries.
    pub nnz: usize,
    /// `"none"`, `"jacobi"`; for direct solves the factorisation.
    pub precond: String,
    /// The word of the outcome, or `"error"`.
    pub status: String,
    /// The error's text.
    pub error: Option<String>,
    /// Iterations.
    pub iterations: usize,
    /// Stop criterion.
    pub rtol: f64,
    /// As the outcome says.
    pub true_residual: Option<f64>,
    /// ||b - A x|| / ||b|| recomputed here from the x that came back.
    pub recomputed_residual: Option<f64>,
    /// Whether the matrix is symmetric with a positive diagonal.
    pub cg_applies: bool,
    /// Milliseconds, set-up included.
    pub ms: f64,
}

fn finite(v: f64) -> Option<f64> {
    v.is_finite().then_some(v)
}

/// Solves one case in every way that applies; an unreadable file is a line too.
///
/// # Errors
/// None of the numbers': they are lines.
pub fn run(be: &Cpu, case: &Case, rtol: f64, seconds: f64) -> Result<Vec<SolveLine>> {
    let blank = |noun, n, ncols, nnz, cg_applies| SolveLine {
        op: "solve",
        noun,
        element: "f64",
        backend: "cpu",
        contender: "spandrel",
        case: case.name.clone(),
        n,
        ncols,
        nnz,
        precond: "none".into(),
        status: "error".into(),
        error: None,
        iterations: 0,
        rtol,
        true_residual: None,
        recomputed_residual: None,
        cg_applies,
        ms: 0.0,
    };
    let csr = match case.load::<f64>() {
        Ok(csr) => Arc::new(csr),
        Err(e) => return Ok(vec![SolveLine { error: Some(format!("{e:#}")), ..blank("read", 0, 0, 0, false) }]),
    };
    let (n, ncols, nnz) = (csr.nrows(), csr.ncols(), csr.nnz());
    let choice = SolverKind::choose(&csr);
    let cg_applies = choice.solver == SolverKind::Cg;
    let jacobi = choice.plain == PrecondKind::Jacobi;
    let truth: Vec<f64> = (0..ncols).map(|i| 0.5 + (i as f64 * 0.618_033_988_75).fract()).collect();
    let b = product(&csr, &truth);
    let options = Options { rtol, max_iters: Some((20 * n).max(20)), history: false, ..Options::default() };

    let mut nouns = vec!["direct"];
    if n == ncols {
        nouns.insert(0, "bicgstab");
        if cg_applies {
            nouns.insert(0, "cg");
        }
    }
    Ok(nouns
        .into_iter()
        .map(|noun| {
            let mut line = blank(noun, n, ncols, nnz, cg_applies);
            let start = Instant::now();
            let solved = match noun {
                "direct" => direct(&csr, &b, rtol, &mut line.precond),
                _ => {
                    line.precond = if jacobi { "jacobi".into() } else { "none".into() };
                    krylov(be, &csr, &b, noun == "cg", jacobi, &options, seconds)
                }
            };
            line.ms = start.elapsed().as_secs_f64() * 1e3;
            match solved {
                Ok((outcome, x)) => {
                    line.status = outcome.status.to_string();
                    line.iterations = outcome.iterations;
                    line.true_residual = finite(outcome.true_residual);
                    line.recomputed_residual = finite(relative_residual(&csr, &x, &b));
                }
                Err(e) => line.error = Some(format!("{e:#}")),
            }
            line
        })
        .collect())
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

fn krylov(
    be: &Cpu,
    csr: &Arc<Csr<f64>>,
    b: &[f64],
    symmetric: bool,
    jacobi: bool,
    options: &Options,
    seconds: f64,
) -> Result<(Outcome, Vec<f64>)> {
    let a = Mat::<_, Csr<f64>>::load(be, Arc::clone(csr))?;
    let b = be.upload(b)?;
    let mut x = be.zeros(csr.nrows())?;
    let start = Instant::now();
    let mut watch = |_: Progress| {
        if start.elapsed().as_secs_f64() > seconds { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outcome = match jacobi {
        true => iterate(be, &a, &Jacobi::new(be, csr)?, symmetric, &b, &mut x, options, &mut watch)?,
        false => iterate(be, &a, &Identity, symmetric, &b, &mut x, options, &mut watch)?,
    };
    Ok((outcome, be.download(&x)?))
}

fn iterate(
    be: &Cpu,
    a: &Mat<Cpu, Csr<f64>>,
    m: &impl Preconditioner<f64, Cpu>,
    symmetric: bool,
    b: &<Cpu as Backend<f64>>::Vector,
    x: &mut <Cpu as Backend<f64>>::Vector,
    options: &Options,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    Ok(if symmetric {
        Cg::new(be, a.nrows())?.solve_watched(be, a, m, b, x, options, watch)?
    } else {
        BiCgStab::new(be, a.nrows())?.solve_watched(be, a, m, b, x, options, watch)?
    })
}

fn direct(csr: &Arc<Csr<f64>>, b: &[f64], rtol: f64, kind: &mut String) -> Result<(Outcome, Vec<f64>)> {
    let options = DirectOptions { rtol, ..DirectOptions::default() };
    let direct = Direct::new(Arc::clone(csr), &options)?;
    *kind = direct.method().as_str().to_owned();
    let mut x = vec![0.0; csr.ncols()];
    let outcome = direct.solve(b, &mut x)?;
    Ok((outcome, x))
}

/// One row per solve.
pub fn table(lines: &[SolveLine]) -> String {
    let mut out = String::new();
    for l in lines {
        let residual = l.recomputed_residual.map_or("-".into(), |r| format!("{r:.1e}"));
        out += &format!(
            "{:24} {:>7} {:>9} {:9} {:9} {:>8} {:22} {:>8} {:>10.1} ms {}\n",
            l.case,
            l.n,
            l.nnz,
            l.noun,
            l.precond,
            l.iterations,
            l.status,
            residual,
            l.ms,
            l.error.as_deref().unwrap_or("")
        );
    }
    for noun in ["cg", "bicgstab", "direct"] {
        let of = |status: Option<&str>| {
            lines.iter().filter(|l| l.noun == noun && status.is_none_or(|s| l.status == s)).count()
        };
        out += &format!("{noun}: {} of {} converged\n", of(Some("converged")), of(None));
    }
    out
}
