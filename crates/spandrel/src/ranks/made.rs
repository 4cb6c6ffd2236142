//! Preconditioners of a solve on ranks, each made from the rows of one rank.

use std::sync::Arc;

use spandrel_backend::{Gate, Mat, Preconditioner};
use spandrel_distributed::{Blockwise, Communicator, Distributed, Layout, Overlap, Rows, Schwarz, Vector};
use spandrel_formats::Csr;
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{
    Amg, BlockJacobi, Chebyshev, Error, Hierarchy, Identity, Jacobi, Method, Permuted, Precond, Result,
    StencilMultigrid,
};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk, Ilut, Ssor};

use super::RankBackend;
use super::plan::{Plan, RankPrecond};
use crate::Factorize;
use crate::solver::Element;
use crate::solver::shared::unsupported;

/// The preconditioner of one rank's rows.
pub(super) type Within<T, B> = Box<dyn Preconditioner<T, B>>;

/// Each rank's own preconditioner, with or without layers of neighbouring rows.
pub(super) enum Blocks<T: Element, B: RankBackend<T>> {
    Blockwise(Blockwise<Within<T, B>>),
    Schwarz(Schwarz<T, B, Within<T, B>>),
}

// SAFETY: every operation is that of the preconditioner within, which is not replaced.
unsafe impl<T: Element, B: RankBackend<T>, C: Communicator> Preconditioner<T, Distributed<B, C>> for Blocks<T, B> {
    fn len(&self) -> Option<usize> {
        match self {
            Self::Blockwise(m) => Preconditioner::<T, Distributed<B, C>>::len(m),
            Self::Schwarz(m) => Preconditioner::<T, Distributed<B, C>>::len(m),
        }
    }
    fn is_linear(&self) -> bool {
        match self {
            Self::Blockwise(m) => Preconditioner::<T, Distributed<B, C>>::is_linear(m),
            Self::Schwarz(m) => Preconditioner::<T, Distributed<B, C>>::is_linear(m),
        }
    }
    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, Distributed<B, C>>,
        r: &Vector<T, B>,
        z: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        match self {
            Self::Blockwise(m) => m.apply(be, gate, r, z),
            Self::Schwarz(m) => m.apply(be, gate, r, z),
        }
    }
}

/// Makes the preconditioner that the plan names. Waits for the other ranks.
pub(super) fn blocks<T: Element, B: RankBackend<T>, C: Communicator>(
    be: &Distributed<B, C>,
    layout: &Arc<Layout>,
    rows: &Rows<T>,
    plan: &Plan,
) -> Result<Blocks<T, B>> {
    match plan.preconditioner {
        RankPrecond::Schwarz { within, overlap } => {
            // CG needs a symmetric preconditioner.
            let kind = if plan.method == Method::Cg { Overlap::Added } else { Overlap::Restricted };
            let make = |be: &B, block: Csr<T>| make_within(be, block, within);
            Ok(Blocks::Schwarz(Schwarz::new(be, layout, rows, (overlap, kind), make)?))
        }
        RankPrecond::Blockwise(within) | RankPrecond::Same(within) => {
            let make = |be: &B, block: Csr<T>| make_within(be, block, within);
            Ok(Blocks::Blockwise(Blockwise::new(be, layout, rows, make)?))
        }
    }
}

/// Makes the named preconditioner from one rank's rows.
fn make_within<T: Element, B: RankBackend<T>>(be: &B, block: Csr<T>, precond: Precond) -> Result<Within<T, B>> {
    fn factored<T: Element, F: Factor<Value = T>, B: RankBackend<T> + Factorize<F>>(
        be: &B,
        symbolic: spandrel_sptrsv::Result<F>,
        block: &Csr<T>,
    ) -> Result<Within<T, B>> {
        Ok(Box::new(be.incomplete(symbolic?, block.values())?))
    }
    match precond {
        Precond::None => Ok(Box::new(Identity)),
        Precond::Jacobi => Ok(Box::new(Jacobi::new(be, &block)?)),
        Precond::BlockJacobi(Some(rows)) => Ok(Box::new(BlockJacobi::new(be, &block, rows)?)),
        Precond::Chebyshev(degree) => Ok(Box::new(Chebyshev::new(be, block, degree)?)),
        Precond::Ssor(omega) => factored(be, Ssor::with_omega(&block, omega), &block),
        Precond::Ilu0 => factored(be, Ilu0::symbolic(&block), &block),
        Precond::Iluk(level) => factored(be, Iluk::with_level(&block, level), &block),
        Precond::Ilut(options) => factored(be, Ilut::new(&block, options), &block),
        Precond::Ic0 => factored(be, Ic0::symbolic(&block), &block),
        Precond::Ilutp(options) => {
            let (columns, symbolic) = Ilut::pivoted(&block, options)?;
            let exchanged = columns.permute_columns(&block)?;
            let chosen = be.incomplete(symbolic, exchanged.values())?;
            Ok(Box::new(Permuted::new(be, columns, chosen)?))
        }
        Precond::Mg(options) => match options.polynomial() {
            None => Ok(Box::new(be.multigrid(&Hierarchy::galerkin(&block, options.grids)?)?)),
            Some(smoother) => {
                let rows = Mat::load(be, block)?;
                Ok(Box::new(StencilMultigrid::of(be, &rows, options.grids, smoother, &mut unobserved)?))
            }
        },
        Precond::Amg(options) => Ok(Box::new(Amg::new(be, &block, &options)?)),
        Precond::BlockJacobi(None)
        | Precond::Ilu0Jacobi(_)
        | Precond::Ic0Jacobi(_)
        | Precond::Ilu0Isai
        | Precond::Ic0Isai => Err(not_within(precond)),
    }
}

/// The error for a preconditioner that a rank cannot apply by itself.
pub(super) fn not_within(precond: Precond) -> Error {
    unsupported(format!(
        "a rank cannot apply {precond} to its own rows only; use for example blockwise=ic0 or blockwise=ilu0"
    ))
}

/// Returns true if a rank can apply this preconditioner by itself.
pub(super) fn is_within(precond: Precond) -> bool {
    !matches!(
        precond,
        Precond::BlockJacobi(None)
            | Precond::Ilu0Jacobi(_)
            | Precond::Ic0Jacobi(_)
            | Precond::Ilu0Isai
            | Precond::Ic0Isai
    )
}
