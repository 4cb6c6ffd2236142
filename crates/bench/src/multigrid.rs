//! `spandrel-bench multigrid`: whole solves by CG with a multigrid preconditioner, set-up and iterations apart.
//!
//! The matrix lies on the device. Each round sets up, solves from x = 0 and takes new values on the same pattern (the
//! same numbers again) twice: `first_update_ms` may keep what `update_ms` and every later update then need no longer
//! make. The first round, which also loads kernels and touches memory, is reported as `first_ms`;
//! of the others the one with the least sum counts, as peers report it, and the medians stand beside it.
//!
//! `auto` is a whole solve by the library's own choices. Its set-up is everything from the CSR matrix on the host to
//! the solver, the analysis included.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;
use serde_json::{Value, json};
use spandrel::Solver;
use spandrel::any::Complete;
use spandrel::multigrid::Geometric;
use spandrel::solver::renumber::{LEVELS, SCATTERED};
use spandrel::solvers::phase::unobserved;
use spandrel::solvers::{Amg, Cg, Error, Hierarchy, Mixed, Multigrid, Options, Outcome, Precond, StencilMultigrid};
use spandrel_backend::{Backend, Mat, MatNumbering, MatRenumbering, MixedPrecision, Narrow};
use spandrel_formats::amg::rigid_body_modes;
use spandrel_formats::hash::splitmix64;
use spandrel_formats::{Csr, Ordinal, Permutation};

use crate::case::Case;
use crate::contender::{LEAST_ROUNDS, median};

/// What is made of a case before it is timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Rows and columns in a pseudo-random order.
    pub shuffled: bool,
    /// Rigid body modes as the near-null space of a generated elasticity problem.
    pub rigid: bool,
}

/// A backend that all contenders run on.
pub trait Runs: Complete<f64> + Complete<f32> + Narrow + MixedPrecision {}
impl<B: Complete<f64> + Complete<f32> + Narrow + MixedPrecision> Runs for B {}

type Wide<B> = Mat<B, Csr<f64>>;
type Vector<B> = <B as Backend<f64>>::Vector;

/// A preconditioner that is set up.
struct Made<B: Runs> {
    m: Held<B>,
    /// Of algebraic multigrid.
    complexity: Option<f64>,
    levels: usize,
    /// Bytes of the matrices, where they are told.
    storage: Option<u64>,
}

enum Held<B: Runs> {
    Amg(Amg<f64, B>),
    MixedAmg(Mixed<B, Amg<f32, B>>),
    Stencil(StencilMultigrid<f64, B>),
    MixedStencil(Mixed<B, StencilMultigrid<f32, B>>),
    Geometric(Multigrid<f64, B>),
}

impl<B: Runs> Held<B> {
    fn solve(
        &self,
        be: &B,
        cg: &mut Cg<f64, B>,
        a: &Wide<B>,
        b: &Vector<B>,
        x: &mut Vector<B>,
        options: &Options,
    ) -> spandrel::solvers::Result<Outcome> {
        match self {
            Held::Amg(m) => cg.solve(be, a, m, b, x, options),
            Held::MixedAmg(m) => cg.solve(be, a, m, b, x, options),
            Held::Stencil(m) => cg.solve(be, a, m, b, x, options),
            Held::MixedStencil(m) => cg.solve(be, a, m, b, x, options),
            Held::Geometric(m) => cg.solve(be, a, m, b, x, options),
        }
    }
}

/// The contender that is left to the policy.
pub const AUTO: &str = "auto";

/// A contender by name: `amg`, `amg=OPTIONS`, `mg`, `mg=SMOOTHER`; `mixed-amg`, `mixed-mg=chebyshev` and
/// `mixed-mg=l1-jacobi`, whose hierarchies are in f32; and `scattered-amg` and `scattered-mixed-amg`, which leave rows
/// in random order.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    mixed: bool,
    /// Whether rows in random order are renumbered on the device, as a solver does it on a GPU from 2^19 rows on.
    renumbers: bool,
    precond: Precond,
}

impl Contender {
    /// From a word of the command line.
    ///
    /// # Errors
    /// Another name.
    pub fn parse(name: &str) -> Result<Self> {
        let ordered = name.strip_prefix("scattered-");
        let plain = ordered.unwrap_or(name);
        let (mixed, plain) = plain.strip_prefix("mixed-").map_or((false, plain), |plain| (true, plain));
        let precond: Precond = plain.parse().with_context(|| format!("the contender {name}"))?;
        let is_scalar = matches!(precond, Precond::Amg(options) if options.unknowns == 1);
        match precond {
            Precond::Amg(_) => {}
            Precond::Mg(options) if ordered.is_none() && (!mixed || options.polynomial().is_some()) => {}
            _ => bail!(
                "{name} is no multigrid: amg, amg=OPTIONS, mixed-amg, scattered-amg, mg, mg=SMOOTHER, mixed-mg=chebyshev, \
                 mixed-mg=l1-jacobi"
            ),
        }
        Ok(Self { name: name.to_owned(), mixed, renumbers: is_scalar && ordered.is_none(), precond })
    }
}

/// Numbers below n in a pseudo-random order that is always the same.
fn order(n: usize) -> Result<Permutation> {
    let mut order: Vec<Ordinal> = (0..n as Ordinal).collect();
    order.sort_by_key(|&i| (splitmix64(u64::from(i)), i));
    Ok(Permutation::new(order)?)
}

/// The modes of the generated elasticity problem on a cube.
fn modes(case: &Case, n: usize) -> Result<Vec<f64>> {
    let side = (n as f64 / 3.0).cbrt().round() as usize;
    let is_cube = case.name.starts_with("elasticity3d:") && 3 * side.pow(3) == n;
    ensure!(is_cube, "{}: rigid body modes are known of elasticity3d:N", case.name);
    let points = (0..side.pow(3)).flat_map(|p| [p % side, p / side % side, p / side / side]).map(|x| x as f64);
    Ok(rigid_body_modes(&points.collect::<Vec<_>>(), 3)?)
}

/// The matrix, and its near-null space.
fn problem(case: &Case, given: Given) -> Result<(Arc<Csr<f64>>, Option<Vec<f64>>)> {
    let host: Csr<f64> = case.load()?;
    let near_null = if given.rigid { Some(modes(case, host.nrows())?) } else { None };
    if !given.shuffled {
        return Ok((Arc::new(host), near_null));
    }
    ensure!(near_null.is_none(), "{}: modes of shuffled rows are not made", case.name);
    Ok((Arc::new(order(host.nrows())?.permute_symmetric(&host)?), None))
}

/// A matrix in breadth-first order, and vectors in that order.
struct Renumbered<B: Runs> {
    numbering: MatNumbering<B, Csr<f64>>,
    moves: MatRenumbering<B, Csr<f64>>,
    a: Wide<B>,
    b: Vector<B>,
    x: Vector<B>,
    values: Vector<B>,
}

impl<B: Runs> Renumbered<B> {
    /// `None` if the rows are not in random order.
    fn of(be: &B, a: &Wide<B>) -> Result<Option<Self>> {
        let n = a.nrows();
        if a.distance(be)? < SCATTERED * n as f64 {
            return Ok(None);
        }
        let Some(numbering) = a.breadth_first(be, LEVELS)? else { return Ok(None) };
        let (a, moves) = a.renumbered(be, &numbering)?;
        let zeros = |n| Backend::<f64>::zeros(be, n);
        let (b, x, values) = (zeros(n)?, zeros(n)?, zeros(moves.nnz())?);
        Ok(Some(Self { numbering, moves, a, b, x, values }))
    }
}

fn make<B: Runs>(
    be: &B,
    host: &Arc<Csr<f64>>,
    a: &Wide<B>,
    contender: &Contender,
    near_null: Option<&[f64]>,
) -> Result<Made<B>> {
    let quiet = &mut unobserved;
    Ok(match contender.precond {
        Precond::Amg(options) if contender.mixed => {
            let (narrow, exponent) = narrowed(be, a)?;
            let near_null: Option<Vec<f32>> = near_null.map(|v| v.par_iter().map(|&v| v as f32).collect());
            let amg = Amg::<f32, B>::of(be, &narrow, &options, near_null.as_deref(), quiet)?;
            let (complexity, levels, storage) =
                (Some(amg.operator_complexity()), amg.levels().len(), Some(amg.storage()));
            Made { m: Held::MixedAmg(Mixed::new(be, amg, a.nrows(), exponent)?), complexity, levels, storage }
        }
        Precond::Amg(options) => {
            let amg = Amg::<f64, B>::of(be, a, &options, near_null, quiet)?;
            let (complexity, levels, storage) =
                (Some(amg.operator_complexity()), amg.levels().len(), Some(amg.storage()));
            Made { m: Held::Amg(amg), complexity, levels, storage }
        }
        Precond::Mg(options) => match options.polynomial() {
            Some(smoother) if contender.mixed => {
                let (narrow, exponent) = narrowed(be, a)?;
                let mg = StencilMultigrid::<f32, B>::of(be, &narrow, options.grids, smoother, quiet)?;
                let (complexity, levels, storage) =
                    (Some(mg.operator_complexity()), mg.sizes().len(), Some(mg.storage()));
                Made { m: Held::MixedStencil(Mixed::new(be, mg, a.nrows(), exponent)?), complexity, levels, storage }
            }
            Some(smoother) => {
                let mg = StencilMultigrid::<f64, B>::of(be, a, options.grids, smoother, quiet)?;
                let (complexity, levels, storage) =
                    (Some(mg.operator_complexity()), mg.sizes().len(), Some(mg.storage()));
                Made { m: Held::Stencil(mg), complexity, levels, storage }
            }
            None => {
                let hierarchy = Hierarchy::galerkin(host, options.grids)?;
                let m = Geometric::<f64>::multigrid(be, &hierarchy)?;
                Made { levels: m.sizes().len(), m: Held::Geometric(m), complexity: None, storage: None }
            }
        },
        _ => bail!("{} is no multigrid", contender.name),
    })
}

/// The matrix in f32, and the exponent that scales it, made on the device.
fn narrowed<B: Runs>(be: &B, a: &Wide<B>) -> spandrel::solvers::Result<(Mat<B, Csr<f32>>, i32)> {
    let none = || Error::Unsupported { why: "this device makes no copy of a matrix in f32".into() };
    a.narrow(be)?.ok_or_else(none)
}

/// New values: the same numbers again.
fn renew<B: Runs>(be: &B, made: &mut Made<B>, host: &Arc<Csr<f64>>, a: &Wide<B>, values: &Vector<B>) -> Result<()> {
    match &mut made.m {
        Held::Amg(m) => m.update_from(be, a)?,
        Held::MixedAmg(m) if m.inner().takes_values() => {
            m.update_from(be, values, |m, be, narrow| m.update_values_from(be, narrow))?;
        }
        Held::MixedAmg(m) => m.update_narrowed(be, |m, be| {
            let (narrow, exponent) = narrowed(be, a)?;
            Ok((m.update_from(be, &narrow)?, exponent))
        })?,
        Held::Stencil(m) => m.update_from(be, a)?,
        Held::MixedStencil(m) => m.update_narrowed(be, |m, be| {
            let (narrow, exponent) = narrowed(be, a)?;
            Ok((m.update_from(be, &narrow)?, exponent))
        })?,
        Held::Geometric(m) => m.update(be, host)?,
    }
    Ok(())
}

/// Milliseconds of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    setup: f64,
    solve: f64,
    /// The first update, and the last.
    updates: [f64; 2],
}

/// Times one contender on one case.
///
/// # Errors
/// A matrix that cannot be read, a set-up that fails, a device that fails.
pub fn run<B: Runs>(
    be: &B,
    case: &Case,
    given: Given,
    contender: &Contender,
    rounds: usize,
    rtol: f64,
) -> Result<Value> {
    let (host, near_null) = problem(case, given)?;
    let n = host.nrows();
    let a = Wide::<B>::load(be, &host)?;
    let (b, values) = (be.upload(&vec![1.0; n])?, be.upload(host.values())?);
    let mut cg = Cg::<f64, B>::new(be, n)?;
    let options = Options { rtol: Some(rtol), ..Options::default() };
    let (mut timed, mut last): (Vec<Round>, Option<(Outcome, Option<f64>, usize, Option<u64>)>) = (Vec::new(), None);
    let since = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    for _ in 0..=rounds.max(LEAST_ROUNDS) {
        let mut x = Backend::<f64>::zeros(be, n)?;
        be.synchronize()?;
        let start = Instant::now();
        let mut ordered = if contender.renumbers { Renumbered::of(be, &a)? } else { None };
        let of = ordered.as_ref().map_or(&a, |ordered| &ordered.a);
        let mut made = make(be, &host, of, contender, near_null.as_deref())?;
        be.synchronize()?;
        let setup = since(start);
        let start = Instant::now();
        let outcome = match &mut ordered {
            None => made.m.solve(be, &mut cg, &a, &b, &mut x, &options)?,
            Some(Renumbered { numbering, a, b: inner_b, x: inner_x, .. }) => {
                numbering.renumber(be, None, &b, inner_b)?;
                let outcome = made.m.solve(be, &mut cg, a, inner_b, inner_x, &options)?;
                numbering.restore(be, None, inner_x, &mut x)?;
                be.synchronize()?;
                outcome
            }
        };
        let solve = since(start);
        let mut updates = [0.0; 2];
        for update in &mut updates {
            let start = Instant::now();
            match &mut ordered {
                None => renew(be, &mut made, &host, &a, &values)?,
                Some(Renumbered { moves, a, values: moved, .. }) => {
                    moves.values(be, None, &values, moved)?;
                    a.update_values_from(be, moved)?;
                    renew(be, &mut made, &host, a, moved)?;
                }
            }
            be.synchronize()?;
            *update = since(start);
        }
        timed.push(Round { setup, solve, updates });
        last = Some((outcome, made.complexity, made.levels, made.storage));
    }
    let (outcome, complexity, levels, storage) = last.context("a round has run")?;
    let mut line = line::<B>(case, given, &host, &timed, &outcome)?;
    line["precond"] = json!(contender.name);
    line["operator_complexity"] = json!(complexity);
    line["levels"] = json!(levels);
    line["bytes_per_unknown"] = json!(storage.map(|bytes| bytes as f64 / n.max(1) as f64));
    Ok(line)
}

/// Times whole solves by the policy's choice.
///
/// # Errors
/// A matrix that cannot be read, a solver that cannot be built, a device that fails.
pub fn run_auto<B: Runs>(be: &B, case: &Case, given: Given, rounds: usize, rtol: f64) -> Result<Value> {
    let (host, near_null) = problem(case, given)?;
    let b = vec![1.0; host.nrows()];
    let since = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let (mut timed, mut last) = (Vec::new(), None);
    for _ in 0..=rounds.max(LEAST_ROUNDS) {
        let mut builder = Solver::builder().rtol(rtol);
        if let Some(vectors) = &near_null {
            builder = builder.near_null_space(vectors.clone());
        }
        let start = Instant::now();
        let mut solver = builder.build_on(be, Arc::clone(&host))?;
        be.synchronize()?;
        let setup = since(start);
        let start = Instant::now();
        let solution = solver.solve(be, &b)?;
        let solve = since(start);
        // The memory of new values is used again from the third on.
        let mut updates = [0.0; 3];
        for update in &mut updates {
            let start = Instant::now();
            solver.update_values(be, host.values())?;
            be.synchronize()?;
            *update = since(start);
        }
        timed.push(Round { setup, solve, updates: [updates[0], updates[2]] });
        last = Some(solution);
    }
    let solution = last.context("a round has run")?;
    let mut line = line::<B>(case, given, &host, &timed, &solution.outcome)?;
    let given_up = solution
        .attempts
        .iter()
        .map(|attempt| format!("{} after {}, then ", attempt.preconditioner, attempt.iterations));
    line["precond"] = json!(AUTO);
    line["by"] = json!(format!("{}{}, {}", given_up.collect::<String>(), solution.method, solution.preconditioner));
    Ok(line)
}

/// What a line of the record has for every contender.
fn line<B: Runs>(case: &Case, given: Given, host: &Csr<f64>, timed: &[Round], outcome: &Outcome) -> Result<Value> {
    let (first, later) = timed.split_first().context("a round has run")?;
    let best = later.iter().min_by(|a, b| (a.setup + a.solve).total_cmp(&(b.setup + b.solve)));
    let best = best.context("a round has run")?;
    let of = |f: fn(&Round) -> f64| median(&later.iter().map(f).collect::<Vec<_>>());
    let shuffled = if given.shuffled { "shuffled " } else { "" };
    let modes = if given.rigid { ", rigid body modes" } else { "" };
    Ok(json!({
        "op": "multigrid", "type": "f64", "backend": B::NAME, "contender": "spandrel",
        "case": format!("{shuffled}{}{modes}", case.name), "n": host.nrows(), "nnz": host.nnz(),
        "setup_ms": best.setup, "solve_ms": best.solve, "sum_ms": best.setup + best.solve,
        "setup_median_ms": of(|r| r.setup), "solve_median_ms": of(|r| r.solve), "update_ms": of(|r| r.updates[1]),
        "first_update_ms": of(|r| r.updates[0]),
        "first_ms": first.setup + first.solve, "iterations": outcome.iterations, "status": outcome.status.to_string(),
        "true_residual": outcome.true_residual,
    }))
}

/// One line for people.
pub fn summary(line: &Value) -> String {
    let (text, number) =
        (|key: &str| line[key].as_str().unwrap_or_default(), |key: &str| line[key].as_f64().unwrap_or(f64::NAN));
    format!(
        "{} {}{}: {} in {} iterations, set-up {:.1} + solve {:.1} = {:.1} ms (first {:.0}), new values {:.1} ms, complexity {:.2}, {:.0} B an unknown",
        text("case"),
        text("precond"),
        line["by"].as_str().map_or(String::new(), |by| format!(" ({by})")),
        text("status"),
        line["iterations"],
        number("setup_ms"),
        number("solve_ms"),
        number("sum_ms"),
        number("first_ms"),
        number("update_ms"),
        number("operator_complexity"),
        number("bytes_per_unknown"),
    )
}
