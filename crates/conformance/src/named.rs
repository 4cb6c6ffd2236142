//! Methods by the names in trials: `cg`, `bicgstab-left`, `gmres-flexible`. The part after the hyphen places the
//! preconditioner; without it the preconditioner is on the right.

use spandrel_backend::{EveryMethod, Operator, Preconditioner};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{BiCgStab, Cg, Error, Gmres, GmresOptions, Method, Options, Outcome, Placement, Result};

use crate::krylov::{Answer, System};

/// The workspace of a method. A method of the registry that is missing here does not compile.
pub(crate) enum Workspace<T: Real, B: EveryMethod<T>> {
    Cg(Cg<T, B>),
    BiCgStab(BiCgStab<T, B>),
    Gmres(Gmres<T, B>),
}

impl<T: Real, B: EveryMethod<T>> std::fmt::Debug for Workspace<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

/// The method of a name, and the placement of its preconditioner.
pub(crate) fn named(name: &str) -> Result<(Method, Placement)> {
    let unknown = |why: String| Error::Unsupported { why: format!("the method {name:?} of a trial: {why}") };
    let (method, place) = name.split_once('-').unwrap_or((name, "right"));
    let placement = match place {
        "right" => Placement::Right,
        "left" => Placement::Left,
        "flexible" => Placement::Flexible,
        other => return Err(unknown(format!("no preconditioner is {other:?}"))),
    };
    Ok((method.parse().map_err(|error| unknown(format!("{error}")))?, placement))
}

impl<T: Real, B: EveryMethod<T>> Workspace<T, B> {
    /// A workspace for n unknowns. The options are those of GMRES. Other methods take only the placement from them, or
    /// nothing.
    pub(crate) fn new(be: &B, n: usize, method: Method, options: &GmresOptions) -> Result<Self> {
        Ok(match method {
            Method::Cg => Self::Cg(Cg::new(be, n)?),
            Method::BiCgStab => Self::BiCgStab(BiCgStab::with(be, n, options.placement)?),
            Method::Gmres => Self::Gmres(Gmres::with(be, n, options)?),
            Method::Direct => return Err(Error::Unsupported { why: "direct is not an iteration".into() }),
        })
    }

    /// The workspace of a name that [`named`] reads. GMRES has cycles of `restart` steps.
    pub(crate) fn by_name(be: &B, n: usize, name: &str, restart: usize) -> Result<Self> {
        let (method, placement) = named(name)?;
        Self::new(be, n, method, &GmresOptions { restart, placement })
    }

    pub(crate) fn solve(
        &mut self,
        be: &B,
        a: &impl Operator<T, B>,
        m: &impl Preconditioner<T, B>,
        b: &B::Vector,
        x: &mut B::Vector,
        options: &Options,
    ) -> Result<Outcome> {
        match self {
            Self::Cg(method) => method.solve(be, a, m, b, x, options),
            Self::BiCgStab(method) => method.solve(be, a, m, b, x, options),
            Self::Gmres(method) => method.solve(be, a, m, b, x, options),
        }
    }

    pub(crate) fn solve_many(
        &mut self,
        be: &B,
        a: &impl Operator<T, B>,
        m: &impl Preconditioner<T, B>,
        b: &[B::Vector],
        x: &mut [B::Vector],
        options: &Options,
    ) -> Result<Vec<Outcome>> {
        match self {
            Self::Cg(method) => method.solve_many(be, a, m, b, x, options, None),
            Self::BiCgStab(method) => method.solve_many(be, a, m, b, x, options, None),
            Self::Gmres(method) => method.solve_many(be, a, m, b, x, options, None),
        }
    }
}

/// The same solve by the plain loops, with the preconditioner on the right. GMRES has cycles of `restart` steps.
pub(crate) fn by_plain_loops<T: Real>(
    a: &Csr<T>,
    m: Option<&dyn Fn(&[T]) -> Vec<T>>,
    b: &[T],
    name: &str,
    (restart, options): (usize, &Options),
) -> Result<Answer<T>> {
    let (method, placement) = named(name)?;
    if placement != Placement::Right {
        return Err(Error::Unsupported { why: format!("the plain loops do not know {name}") });
    }
    let limit = options.iteration_limit(b.len());
    let system = System { a, m, b, rtol: options.rtol_for::<T>(), limit };
    Ok(match method {
        Method::Cg => system.cg(),
        Method::BiCgStab => system.bicgstab(),
        Method::Gmres => system.gmres(restart),
        Method::Direct => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_registry_with_a_place() {
        assert_eq!(named("cg").expect("a name"), (Method::Cg, Placement::Right));
        assert_eq!(named("gmres-flexible").expect("a name"), (Method::Gmres, Placement::Flexible));
        for wrong in ["bicg", "cg-above", "-left", ""] {
            let error = named(wrong).expect_err(wrong).to_string();
            assert!(error.contains(&format!("{wrong:?} of a trial")), "{error}");
        }
    }
}
