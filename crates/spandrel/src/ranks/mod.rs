//! Solves on several ranks, which are threads of one process or separate processes: the policy, and the solve of one
//! rank.
//!
//! Each rank has a range of rows of the matrix ([`spandrel_distributed`]). [`Planned::new`] examines the rows of all
//! ranks and chooses method and preconditioner; [`Planned::solve`] solves. x has the same bits for any number of ranks,
//! unless the caller asks for a preconditioner that depends on this number.
//!
//! The devices of all ranks are of one kind. To use several GPUs, start one rank per GPU, each with its
//! `Cuda::on(number)`. Make the devices `with_reproducible(true)`. Otherwise the order in which a product sums a row
//! may depend on the other rows of the rank, and x depends on the number of ranks.
//!
//! ```
//! use spandrel::distributed::{Distributed, Threads, generate_rows};
//! use spandrel::formats::generate::Spec;
//! use spandrel::ranks::Planned;
//! use spandrel::solver::Settings;
//! use spandrel::{Cpu, Error};
//!
//! let spec = Spec::parse("poisson3d:20")?;
//! let solve = |ranks: usize| {
//!     let mut ended = Threads::run(ranks, |team| {
//!         let device = Distributed::new(Cpu::with_threads(1)?, team);
//!         let rows = generate_rows::<f64, _, _>(&device, &spec)?;
//!         let b = vec![1.0; rows.len()]; // the rows of this rank
//!         let planned = Planned::new(&device, rows, &Settings::default(), None)?;
//!         planned.solve(&device, &b, None, &mut |_, _| std::ops::ControlFlow::Continue(()))
//!     });
//!     ended.swap_remove(0).map(|solution| solution.x.unwrap_or_default()) // whole, on rank 0
//! };
//! let bits = |x: Vec<f64>| x.into_iter().map(f64::to_bits).collect::<Vec<_>>();
//! assert_eq!(bits(solve(1).unwrap()), bits(solve(3).unwrap()));
//! # Ok::<(), Error>(())
//! ```

mod made;
mod order;
mod plan;
#[cfg(all(test, feature = "cpu"))]
mod tests;
mod truth;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use spandrel_backend::{Backend, Entries, Join, Preconditioner};
use spandrel_distributed::{
    Call, Communicator, Distributed, DistributedAmg, DistributedMat, DistributedMultigrid, Layout, Numbering, Rows,
    Vector, amg, multigrid, precond,
};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{
    BiCgStab, Cg, Error, Gmres, GmresOptions, Identity, Method, Outcome, Precond, Progress, Result,
};

use crate::any::Complete;
use crate::solver::shared::came_to_nothing;
use crate::solver::words::counted;
use crate::solver::{Element, Settings, Times, restored};
use order::Order;
pub use plan::{Plan, RankPrecond};

/// A device that a rank can run on. It has everything that a rank's preconditioner needs, its sums can be joined to
/// those of other ranks, and it exchanges entries of vectors with the host.
pub trait RankBackend<T: Real>: Complete<T> + Entries<T> + Join {}
impl<T: Real, B: Complete<T> + Entries<T> + Join> RankBackend<T> for B {}

/// Called as the iteration begins and at each look at it. `Break` on any rank ends the iteration on all.
pub type Watch<'w> = &'w mut dyn FnMut(Method, Progress) -> ControlFlow<()>;

/// What one rank holds and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The first row.
    pub first: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of entries.
    pub nnz: u64,
    /// Rows that need entries of x from other ranks.
    pub boundary_rows: u64,
    /// Entries of x that come from other ranks for a product.
    pub ghosts: u64,
    /// Bytes of the matrix.
    pub matrix_bytes: u64,
    /// Messages sent by products and dot products of the iterations. How often ranks look at the progress depends on
    /// the clock, so those messages are not counted.
    pub messages: u64,
    /// Bytes of these messages, and bytes that other devices read from this one.
    pub sent_bytes: u64,
}

/// The result of a solve on several ranks, as one rank gets it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Solution<T> {
    /// The whole x on rank 0. Other ranks have `None`.
    pub x: Option<Vec<T>>,
    /// How it ended; the same on every rank.
    pub outcome: Outcome,
    /// The choices and their reasons; the same on every rank, except for the device.
    pub plan: Plan,
    /// What each rank holds and sends, in the order of the ranks.
    pub shares: Vec<Share>,
    /// Whether devices read each other's memory; otherwise messages pass through the host. The same on every rank.
    pub direct: bool,
    /// The times of this rank, in seconds.
    pub times: Times,
}

/// A planned solve as one rank has it: its rows and the choices.
pub struct Planned<T: Element> {
    /// In the numbering of the solve.
    rows: Rows<T>,
    /// The numbering of the solve, if it is not the matrix's own.
    numbering: Option<Numbering>,
    layout: Arc<Layout>,
    plan: Plan,
    times: Times,
}

impl<T: Element> std::fmt::Debug for Planned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planned").field("rows", &self.rows.len()).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<T: Element> Planned<T> {
    /// Examines the rows of all ranks and makes the choices. `preconditioner` replaces that of the settings, and may be
    /// one that exists only for ranks. With `None`, the policy chooses unless the settings name one. Waits for the
    /// other ranks.
    ///
    /// # Errors
    /// On every rank: [`crate::Error::Unsupported`] for settings that need the whole matrix in one place, or that
    /// contradict the matrix or each other; [`crate::Error::NotReproducible`]; [`crate::Error::NotSquare`].
    pub fn new<B: RankBackend<T>, C: Communicator>(
        be: &Distributed<B, C>,
        rows: Rows<T>,
        settings: &Settings,
        preconditioner: Option<RankPrecond>,
    ) -> Result<Self> {
        let begin = Instant::now();
        let asked = preconditioner.or(settings.preconditioner.map(RankPrecond::Same));
        plan::check(settings, asked, B::NAME)?;
        let Order { by, why, numbering } = order::choose(be, &rows, settings, asked)?;
        let rows = match &numbering {
            Some(numbering) => numbering.rows(be, rows)?,
            None => rows,
        };
        let layout = be.lay_out_rows(&rows)?;
        let mut plan = Plan::new(be, &layout, &rows, settings, asked)?;
        (plan.reorder, plan.reorder_why) = (by, why);
        let times = Times { analyze: begin.elapsed().as_secs_f64(), ..Times::default() };
        Ok(Self { rows, numbering, layout, plan, times })
    }

    /// The choices and their reasons.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The rows of this rank, in the numbering of the solve.
    pub fn rows(&self) -> &Rows<T> {
        &self.rows
    }

    /// Solves A x = b from x = `x0`, or 0. If the policy chose multigrid and it cannot be made or comes to nothing,
    /// solves with `jacobi` from the same x, and the plan of the solution says so. `b` and `x0` have the rows that this
    /// rank gave to [`Planned::new`]. `watch` is called as the iteration begins and at each look; it is called on every
    /// rank. Waits for the other ranks.
    ///
    /// # Errors
    /// A preconditioner that cannot be made; [`spandrel_backend::Error::Rank`], which names a rank that failed.
    pub fn solve<B: RankBackend<T>, C: Communicator>(
        self,
        be: &Distributed<B, C>,
        b: &[T],
        x0: Option<&[T]>,
        watch: Watch<'_>,
    ) -> Result<Solution<T>> {
        let Self { rows, numbering, layout, mut plan, mut times } = self;
        let n = layout.len();
        let mut lap = Lap(Instant::now());
        let numbered = |v: &'_ [T]| numbering.as_ref().map(|by| by.part(be, v)).transpose();
        let (moved_b, moved_x0) = (numbered(b)?, x0.map(numbered).transpose()?.flatten());
        let (b, x0) = (moved_b.as_deref().unwrap_or(b), moved_x0.as_deref().or(x0));
        lap.add_to(&mut times.analyze);
        // Only a polynomial needs both the rows and the matrix.
        let kept = matches!(plan.preconditioner, RankPrecond::Same(Precond::Chebyshev(_))).then(|| rows.clone());
        let mut standby = plan.otherwise.map(|_| precond::jacobi(be, &rows)).transpose()?;
        let (mut jacobi, mut blocks, mut algebraic, mut geometric) = (None, None, None, None);
        let mut make = || -> Result<()> {
            match plan.preconditioner {
                RankPrecond::Same(Precond::Jacobi) => jacobi = Some(precond::jacobi(be, &rows)?),
                RankPrecond::Same(Precond::Amg(options)) => {
                    algebraic = Some(if plan.symmetric {
                        DistributedAmg::of(be, &rows, &options, amg::GATHERED)?
                    } else {
                        DistributedAmg::new(be, &rows, &options)?
                    });
                }
                RankPrecond::Same(Precond::Mg(options)) => {
                    // The plan refuses other smoothers.
                    let (grids, smoother) = (options.grids, options.polynomial().unwrap_or_default());
                    geometric = Some(if plan.symmetric {
                        DistributedMultigrid::of(be, &rows, grids, smoother, multigrid::GATHERED)?
                    } else {
                        DistributedMultigrid::new(be, &rows, grids, smoother)?
                    });
                }
                RankPrecond::Same(_) => {}
                RankPrecond::Blockwise(_) | RankPrecond::Schwarz { .. } => {
                    blocks = Some(made::blocks(be, &layout, &rows, &plan)?);
                }
            }
            Ok(())
        };
        if let Err(error) = make() {
            // A refusal leaves the ranks able to work together; a rank that failed does not.
            if standby.is_none() || be.together(Ok::<_, Error>(())).is_err() {
                return Err(error);
            }
            plan.give_way(error.to_string());
            jacobi = standby.take();
        }
        lap.add_to(&mut times.setup);
        let rounding = truth::rounding(be, &rows, (n, plan.symmetric))?;
        let a = &DistributedMat::<B, Csr<T>>::from_rows(be, rows)?;
        let b = be.upload(b)?;
        let mut x = match x0 {
            Some(x0) => be.upload(x0)?,
            None => be.zeros(n)?,
        };
        lap.add_to(&mut times.load);
        let polynomial = match (plan.preconditioner, &kept) {
            (RankPrecond::Same(Precond::Chebyshev(degree)), Some(rows)) => {
                Some(precond::chebyshev(be, a, rows, degree)?)
            }
            _ => None,
        };
        drop(kept);
        lap.add_to(&mut times.setup);
        type Made<'m, T, B, C> = Option<&'m dyn Preconditioner<T, Distributed<B, C>>>;
        let made: [Made<'_, T, B, C>; 5] = [
            jacobi.as_ref().map(|m| m as _),
            blocks.as_ref().map(|m| m as _),
            polynomial.as_ref().map(|m| m as _),
            algebraic.as_ref().map(|m| m as _),
            geometric.as_ref().map(|m| m as _),
        ];
        let m = made.into_iter().flatten().next().unwrap_or(&Identity);
        let method = plan.method;
        let watch = &mut |progress: Progress| watch(method, progress);
        let (mut messages, mut bytes) = (0, 0);
        let mut run = |m: &dyn Preconditioner<T, Distributed<B, C>>, plan: &Plan, x: &mut Vector<T, B>| {
            let (options, before) = (plan.options(), sent(be));
            let mut outcome = match method {
                Method::Cg => Cg::new(be, n)?.solve_watched(be, a, &m, &b, x, &options, &mut *watch)?,
                Method::BiCgStab => BiCgStab::new(be, n)?.solve_watched(be, a, &m, &b, x, &options, &mut *watch)?,
                Method::Gmres => {
                    let gmres = GmresOptions { restart: plan.restart, ..GmresOptions::default() };
                    Gmres::with(be, n, &gmres)?.solve_watched(be, a, &m, &b, x, &options, &mut *watch)?
                }
                Method::Direct => return Err(plan::no_direct()),
            };
            let after = sent(be);
            (messages, bytes) = (messages + after.0 - before.0, bytes + after.1 - before.1);
            truth::examine(be, a, (&b, x), &rounding, &mut outcome)?;
            Ok(outcome)
        };
        let mut outcome = run(m, &plan, &mut x)?;
        if let Some(standby) = &standby
            && came_to_nothing(plan.stagnation, &outcome)
        {
            let after = counted(outcome.iterations, "iteration");
            plan.give_way(format!("{method} ended as {} after {after}", outcome.status));
            match x0 {
                Some(x0) => be.write(x0, &mut x)?,
                None => be.fill(None, T::zero(), &mut x)?,
            }
            outcome = run(standby, &plan, &mut x)?;
        }
        lap.add_to(&mut times.solve);
        let mine = [
            layout.rows().start,
            layout.own() as u64,
            a.nnz() as u64,
            a.boundary_rows() as u64,
            a.ghosts() as u64,
            a.storage(),
            messages,
            bytes,
        ];
        let share = |of: Vec<u64>| {
            let at = |place: usize| of.get(place).copied().unwrap_or_default();
            Share {
                first: at(0),
                rows: at(1),
                nnz: at(2),
                boundary_rows: at(3),
                ghosts: at(4),
                matrix_bytes: at(5),
                messages: at(6),
                sent_bytes: at(7),
            }
        };
        let shares = be.everywhere(&mine)?.into_iter().map(share).collect();
        let x = be.gather(&x)?;
        let x = be.together(match (x, numbering) {
            (Some(x), Some(by)) => restored(Some(by.permutation()), x).map(Some),
            (x, _) => Ok(x),
        })?;
        Ok(Solution { x, outcome, plan, shares, direct: layout.is_direct(), times })
    }
}

/// Messages and bytes that this rank has sent so far for products and dot products.
fn sent<B: Join, C: Communicator>(be: &Distributed<B, C>) -> (u64, u64) {
    let all = [Call::Sum, Call::Halo].map(|call| be.traffic(call));
    (all.iter().map(|of| of.messages).sum(), all.iter().map(|of| of.bytes).sum())
}

/// Measures the times of consecutive phases.
struct Lap(Instant);

impl Lap {
    fn add_to(&mut self, phase: &mut f64) {
        let now = Instant::now();
        *phase += (now - self.0).as_secs_f64();
        self.0 = now;
    }
}
