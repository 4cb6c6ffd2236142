//! Variants of the structured plan without some of its paper's steps: Figures 4, 6 and 7.
//!
//! Our reading of the steps: the baseline has only the division into lines and queues (section 2.1). `multistage` deals
//! the entries of several rows to consecutive lanes; with `prefetch` it also has the prefetching registers, which the
//! paper counts as part of it. `all` adds one progress word per line instead of one flag per row, `ld.acquire` and
//! predicates. "Not cached" is `ld.cg`, which Figure 4 compares with `ld.acquire`.
//!
//! Reference: Chen, Yang, Liu, Ma 2023, structured SpTRSV, sections 2.2 to 2.4 and 3.3 to 3.4.

use std::any::Any;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use spandrel_formats::{Profile, Real};
use spandrel_sptrsv::{Plan, Stages, Structured, Systems, Triangular};

use super::Contest;

/// A named variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its name in records.
    pub label: &'static str,
    /// Its steps.
    pub stages: Stages,
}

/// The variants of Figure 6, and those that Figures 4 and 7 need in addition: the sets for which a GPU has kernels.
pub const VARIANTS: [Staged; 7] = [
    Staged { label: "baseline", stages: Stages::NONE },
    Staged { label: "multistage", stages: Stages { multistage: true, ..Stages::NONE } },
    Staged { label: "multistage, prefetch", stages: Stages { multistage: true, prefetch: true, ..Stages::NONE } },
    Staged { label: "all", stages: Stages::ALL },
    Staged { label: "compressed, ld.cg", stages: Stages { acquire: false, ..Stages::ALL } },
    Staged { label: "uncompressed, ld.acquire", stages: Stages { compressed: false, ..Stages::ALL } },
    Staged { label: "uncompressed, ld.cg", stages: Stages { compressed: false, acquire: false, ..Stages::ALL } },
];

/// How to make a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    variant: Option<Staged>,
    grid: Option<[usize; 3]>,
}

impl Way {
    /// The variants of plan `P`: its own analysis, and those of the structured plan.
    pub(crate) fn of<P: Plan>(contest: &Contest) -> Vec<Self> {
        if P::NAME != Structured::<P::Value>::NAME {
            return vec![Self::default()];
        }
        let variants = contest.staged.iter().copied().map(Some);
        std::iter::once(None).chain(variants).map(|variant| Self { variant, grid: contest.grid }).collect()
    }

    /// Its name in records.
    pub(crate) fn label(self) -> Option<String> {
        self.variant.map(|variant| variant.label.to_owned())
    }

    /// The plan.
    ///
    /// # Errors
    /// Those of the analysis.
    pub(crate) fn analyze<P: Plan>(self, matrix: &Arc<Triangular<P::Value>>, profile: &Profile) -> Result<P> {
        if self == Self::default() {
            return Ok(P::analyze_for(Arc::clone(matrix), Systems::Plain, profile)?);
        }
        let plan: Box<dyn Any> = Box::new(self.structured(matrix)?);
        plan.downcast().map(|plan| *plan).map_err(|_| anyhow!("{} has no variants", P::NAME))
    }

    fn structured<T: Real>(self, matrix: &Arc<Triangular<T>>) -> Result<Structured<T>> {
        let matrix = Arc::clone(matrix);
        let plan = match self.grid {
            Some(size) => Structured::on_grid(matrix, size, Systems::Plain)?,
            None => Structured::analyze(matrix, Systems::Plain)?,
        };
        Ok(match self.variant {
            Some(variant) => plan.with_stages(variant.stages),
            None => plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::Csr;
    use spandrel_sptrsv::{Diagonal, Serial, Triangle};

    #[test]
    fn variants_are_of_the_structured_plan_and_differ() {
        for (k, a) in VARIANTS.iter().enumerate() {
            assert!(VARIANTS[..k].iter().all(|b| a.label != b.label && a.stages != b.stages));
        }
        let variant = Way { variant: Some(VARIANTS[0]), grid: Some([4, 2, 1]) };
        let matrix = Triangular::new(Csr::identity(8).unwrap(), Triangle::Lower, Diagonal::NonUnit).unwrap();
        let matrix: Arc<Triangular<f64>> = Arc::new(matrix);
        let plan: Structured<f64> = variant.analyze(&matrix, &Profile::reference()).unwrap();
        assert_eq!((plan.size(), plan.stages()), ([4, 2, 1], Stages::NONE));
        assert!(variant.analyze::<Serial<f64>>(&matrix, &Profile::reference()).is_err());
    }
}
