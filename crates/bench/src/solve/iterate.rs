//! The iterative solves of one system, from the plainest preconditioner to the one with most fill.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use spandrel::incomplete::{Chosen, Incomplete};
use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::Csr;
use spandrel_solvers::{
    Amg, AmgOptions, BiCgStab, Cg, Error, Gmres, GmresOptions, Identity, Jacobi, Options, Outcome, Precond, Progress,
    Result, Status,
};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk};

use super::{Class, Limits, SolveLine};

/// Steps in a cycle of GMRES.
const RESTART: usize = 100;
/// The smallest number of rows for algebraic multigrid. Below it the coarsest grid would be the whole matrix.
const COARSEN: usize = 2000;
/// The largest level of fill of ILU(k).
const MAX_LEVEL: usize = 2;

type Boxed = Box<dyn Preconditioner<f64, Cpu>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Cg,
    BiCgStab,
    Gmres,
}

impl Method {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cg => "cg",
            Self::BiCgStab => "bicgstab",
            Self::Gmres => "gmres",
        }
    }
}

/// The name of a preconditioner, or the reason why there is none.
struct Made {
    word: String,
    precond: Result<Boxed>,
    plan: Option<&'static str>,
    nnz: Option<usize>,
    shift: Option<f64>,
    ms: f64,
}

impl Made {
    fn plain(word: &str, make: impl FnOnce() -> Result<Boxed>) -> Self {
        let start = Instant::now();
        let precond = make();
        Self { word: word.into(), precond, plan: None, nnz: None, shift: None, ms: since(start) }
    }
    fn factored(word: String, make: impl FnOnce() -> Result<Chosen<f64, Cpu>>) -> Self {
        let start = Instant::now();
        let made = make();
        let ms = since(start);
        match made {
            Ok(Chosen { precond, plan, nnz, shift, .. }) => {
                let shift = (shift > 0.0).then_some(shift);
                Self { word, precond: Ok(precond), plan: Some(plan), nnz: Some(nnz), shift, ms }
            }
            Err(why) => Self { word, precond: Err(why), plan: None, nnz: None, shift: None, ms },
        }
    }
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// A x = b, with everything that its solves share.
pub(super) struct System<'a> {
    be: &'a Cpu,
    csr: &'a Arc<Csr<f64>>,
    b: &'a [f64],
    limits: &'a Limits,
    blank: &'a SolveLine,
}

impl<'a> System<'a> {
    /// The system of a square matrix. `blank` is a line with its description.
    pub(super) fn new(
        be: &'a Cpu,
        csr: &'a Arc<Csr<f64>>,
        b: &'a [f64],
        limits: &'a Limits,
        blank: &'a SolveLine,
    ) -> Self {
        Self { be, csr, b, limits, blank }
    }

    /// Runs all solves that the module's head names, except the direct one. `plain` is the preconditioner without
    /// factors.
    pub(super) fn solve(&self, plain: Precond) -> Vec<SolveLine> {
        let (be, csr) = (self.be, self.csr);
        let plain = match plain {
            Precond::Jacobi => Made::plain("jacobi", || Ok(Box::new(Jacobi::new(be, csr)?))),
            _ => Made::plain("none", || Ok(Box::new(Identity))),
        };
        let mut lines = Vec::new();
        if self.blank.cg_applies {
            lines.push(self.by(Method::Cg, &plain));
            let factors = || be.incomplete(Ic0::symbolic(csr)?, csr.values());
            lines.push(self.by(Method::Cg, &Made::factored("ic0".into(), factors)));
        }
        if self.blank.class == Class::Spd && csr.nrows() >= COARSEN {
            let amg = || Ok(Box::new(Amg::new(be, Arc::clone(csr), &AmgOptions::default())?) as Boxed);
            lines.push(self.by(Method::Cg, &Made::plain("amg", amg)));
        }
        lines.push(self.by(Method::BiCgStab, &plain));
        if self.blank.class != Class::Spd {
            lines.extend(self.climb());
        }
        lines
    }

    /// Runs BiCGStab with ILU(0). If that fails, BiCGStab and GMRES run with more and more fill until each has
    /// converged.
    fn climb(&self) -> Vec<SolveLine> {
        let mut lines = Vec::new();
        let mut left = vec![Method::BiCgStab, Method::Gmres];
        for level in 0..=MAX_LEVEL {
            let made = Made::factored(format!("ilu{level}"), || self.ilu(level));
            if let Err(why) = &made.precond {
                // One line for all solves that would have used it.
                lines.push(self.by(left[0], &made));
                if matches!(why, Error::Triangle(spandrel_sptrsv::Error::MissingPivot { .. })) {
                    // Fill cannot replace a diagonal entry that is not stored.
                    break;
                }
                continue;
            }
            for method in std::mem::take(&mut left) {
                let line = self.by(method, &made);
                let converged = line.converged();
                lines.push(line);
                if converged && level == 0 && method == Method::BiCgStab {
                    return lines;
                }
                if !converged {
                    left.push(method);
                }
            }
            if left.is_empty() {
                break;
            }
        }
        lines
    }

    fn ilu(&self, level: usize) -> Result<Chosen<f64, Cpu>> {
        let values = self.csr.values();
        match level {
            0 => self.be.incomplete(Ilu0::symbolic(self.csr)?, values),
            _ => {
                let limit = self.csr.nnz().saturating_mul(self.limits.fill);
                self.be.incomplete(Iluk::with_limit(self.csr, level, limit)?, values)
            }
        }
    }

    /// One solve, or the reason why there is none.
    fn by(&self, method: Method, made: &Made) -> SolveLine {
        let mut line = SolveLine {
            noun: method.as_str(),
            precond: made.word.clone(),
            setup_ms: Some(made.ms),
            plan: made.plan,
            factor_nnz: made.nnz,
            shift: made.shift,
            ..self.blank.clone()
        };
        let start = Instant::now();
        match &made.precond {
            Ok(precond) => {
                let solved = self.krylov(method, precond, start);
                line.ms = made.ms + since(start);
                line.end(solved, self.csr, self.b);
            }
            Err(why) => {
                line.ms = made.ms;
                line.fail(why);
            }
        }
        if line.status == Status::Interrupted.as_str() {
            line.error = Some(format!("interrupted by the limit of {} s", self.limits.seconds));
        }
        line
    }

    fn krylov(&self, method: Method, m: &Boxed, start: Instant) -> Result<(Outcome, Vec<f64>)> {
        let (be, n) = (self.be, self.csr.nrows());
        let a = Mat::<_, Csr<f64>>::load(be, Arc::clone(self.csr))?;
        let b = be.upload(self.b)?;
        let mut x = be.zeros(n)?;
        let options = Options { rtol: Some(self.limits.rtol), history: false, ..Options::default() };
        let mut watch = |_: Progress| match start.elapsed().as_secs_f64() > self.limits.seconds {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let outcome = match method {
            Method::Cg => Cg::new(be, n)?.solve_watched(be, &a, m, &b, &mut x, &options, &mut watch)?,
            Method::BiCgStab => BiCgStab::new(be, n)?.solve_watched(be, &a, m, &b, &mut x, &options, &mut watch)?,
            Method::Gmres => {
                let cycle = GmresOptions { restart: RESTART, ..GmresOptions::default() };
                Gmres::with(be, n, &cycle)?.solve_watched(be, &a, m, &b, &mut x, &options, &mut watch)?
            }
        };
        Ok((outcome, be.download(&x)?))
    }
}
