//! Variants of the structured plan with some of its paper's steps left out: Figures 4, 6 and 7.
//!
//! What is read into them: the baseline has the division into lines and queues alone (section 2.1); `multistage` adds entries of several
//! rows dealt to consecutive lanes and the register queue that fetches ahead; `all` adds one progress word a line instead of one flag a
//! row, `ld.acquire` and predicates. "Not cached" is `ld.cg`, which Figure 4 sets against `ld.acquire`.
//! Reference: Chen, Yang, Liu, Ma 2023, structured SpTRSV, sections 2.2 to 2.4 and 3.3 to 3.4.

use std::any::Any;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Structured, Systems, Triangular};

/// Which steps a variant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Entries of consecutive rows on consecutive lanes.
    pub multistage: bool,
    /// One progress word a line.
    pub compressed: bool,
    /// `ld.acquire` for the progress, else `ld.cg`.
    pub acquire: bool,
    /// Columns and values fetched ahead of the wait.
    pub prefetch: bool,
    /// Predicates instead of branches.
    pub predication: bool,
}

impl Stages {
    /// The division of work alone.
    pub const BASELINE: Self =
        Self { multistage: false, compressed: false, acquire: false, prefetch: false, predication: false };
    /// Multi-stage processing too.
    pub const MULTISTAGE: Self = Self { multistage: true, prefetch: true, ..Self::BASELINE };
    /// All of it.
    pub const ALL: Self = Self { compressed: true, acquire: true, predication: true, ..Self::MULTISTAGE };
}

/// A named variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its name in records.
    pub label: &'static str,
    /// Its steps.
    pub stages: Stages,
}

/// Those of Figure 6, and what Figures 4 and 7 need beside them.
pub const VARIANTS: [Staged; 6] = [
    Staged { label: "baseline", stages: Stages::BASELINE },
    Staged { label: "multistage", stages: Stages::MULTISTAGE },
    Staged { label: "all", stages: Stages::ALL },
    Staged { label: "compressed, ld.cg", stages: Stages { acquire: false, ..Stages::ALL } },
    Staged { label: "uncompressed, ld.acquire", stages: Stages { compressed: false, ..Stages::ALL } },
    Staged { label: "uncompressed, ld.cg", stages: Stages { compressed: false, acquire: false, ..Stages::ALL } },
];

/// The structured plan with some steps left out.
///
/// # Errors
/// Variants that the plan does not have.
fn staged<T: Real>(matrix: &Arc<Triangular<T>>, stages: Stages) -> Result<Structured<T>> {
    ensure!(stages == Stages::ALL, "the structured plan has no variants: all of its steps or none");
    Ok(Structured::analyze(Arc::clone(matrix), Systems::Plain)?)
}

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By its own analysis.
    Analysis,
    /// A variant of the structured plan.
    Variant(Staged),
}

impl Way {
    /// Those of plan `P`.
    pub(crate) fn of<P: Plan>(variants: &[Staged]) -> Vec<Self> {
        let structured = P::NAME == Structured::<P::Value>::NAME;
        let variants = variants.iter().filter(|_| structured).copied().map(Self::Variant);
        std::iter::once(Self::Analysis).chain(variants).collect()
    }

    /// Its name in records.
    pub(crate) fn label(self) -> Option<String> {
        match self {
            Self::Analysis => None,
            Self::Variant(variant) => Some(variant.label.to_owned()),
        }
    }

    /// The plan.
    ///
    /// # Errors
    /// The analysis's.
    pub(crate) fn analyze<P: Plan>(self, matrix: &Arc<Triangular<P::Value>>) -> Result<P> {
        match self {
            Self::Analysis => Ok(P::analyze(Arc::clone(matrix), Systems::Plain)?),
            Self::Variant(variant) => {
                let plan: Box<dyn Any> = Box::new(staged(matrix, variant.stages)?);
                plan.downcast().map(|plan| *plan).map_err(|_| anyhow!("{} has no variants", P::NAME))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_sptrsv::Serial;

    #[test]
    fn variants_are_of_the_structured_plan_and_differ() {
        assert_eq!(Way::of::<Serial<f64>>(&VARIANTS), [Way::Analysis]);
        assert_eq!(Way::of::<Structured<f64>>(&VARIANTS).len(), 7);
        for (k, a) in VARIANTS.iter().enumerate() {
            assert!(VARIANTS[..k].iter().all(|b| a.label != b.label && a.stages != b.stages));
        }
    }
}
