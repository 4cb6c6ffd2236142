//! The solver and preconditioner that `auto` stands for, with the reason.

use std::borrow::Cow;
use std::fmt;

use spandrel_formats::{Csr, Format, NotInvertible, Real, Survey};

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SolverKind {
    /// [`crate::Cg`].
    Cg,
    /// [`crate::BiCgStab`].
    BiCgStab,
    /// [`crate::Gmres`].
    Gmres,
    /// [`crate::Direct`].
    Direct,
}

/// A preconditioner that `auto` may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrecondKind {
    /// [`crate::Identity`].
    None,
    /// [`crate::Jacobi`].
    Jacobi,
    /// [`crate::Ilu`] without fill.
    Ilu0,
    /// [`crate::Ic`].
    Ic0,
}

/// What was chosen, and why, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method.
    pub solver: SolverKind,
    /// Why this method.
    pub solver_why: &'static str,
    /// The preconditioner.
    pub precond: PrecondKind,
    /// Why this preconditioner.
    pub precond_why: Cow<'static, str>,
    /// The preconditioner without a factorisation, for where that of `precond` breaks down.
    pub plain: PrecondKind,
}

impl SolverKind {
    /// The word on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            SolverKind::Cg => "cg",
            SolverKind::BiCgStab => "bicgstab",
            SolverKind::Gmres => "gmres",
            SolverKind::Direct => "direct",
        }
    }

    /// Chooses for a matrix: CG where it is symmetric ([`Csr::is_symmetric`]) with a positive diagonal, least squares where it is not
    /// square, else BiCGStab; the preconditioner is [`PrecondKind::choose`]'s for that method. O(nnz log(row)).
    ///
    /// A symmetric matrix with a positive diagonal may still be indefinite; CG then says so.
    pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
        Self::choose_by(&Survey::of(csr), csr.nrows() == csr.ncols())
    }

    /// As [`SolverKind::choose`] of a matrix that has been looked at.
    pub fn choose_by(survey: &Survey, square: bool) -> Choice {
        let (solver, solver_why) = if !square {
            (SolverKind::Direct, "the matrix is not square, so the answer is one of least squares")
        } else if !survey.positive_diagonal {
            (SolverKind::BiCgStab, "the diagonal is not positive throughout, so the matrix is not positive definite")
        } else if !survey.symmetric {
            (SolverKind::BiCgStab, "the matrix is not symmetric")
        } else {
            (SolverKind::Cg, "the matrix is symmetric with a positive diagonal")
        };
        let (precond, precond_why, plain) = PrecondKind::choose_by(survey, solver);
        Choice { solver, solver_why, precond, precond_why, plain }
    }
}

impl PrecondKind {
    /// Chooses for a method and a matrix that is symmetric or not, with the reason and what to take where a factorisation breaks down:
    /// IC(0) where the matrix is symmetric with a positive diagonal, ILU(0) for the methods that need no symmetric preconditioner, where
    /// the diagonal has no zero; else Jacobi, else none. O(n log(row)).
    pub fn choose<T: Real>(csr: &Csr<T>, solver: SolverKind, symmetric: bool) -> (Self, Cow<'static, str>, Self) {
        Self::of(solver, symmetric, NotInvertible::first(csr), csr.diagonal_holds(|d| d > T::zero()))
    }

    /// As [`PrecondKind::choose`] for a matrix that has been looked at.
    pub fn choose_by(survey: &Survey, solver: SolverKind) -> (Self, Cow<'static, str>, Self) {
        Self::of(solver, survey.symmetric, survey.not_invertible, survey.positive_diagonal)
    }

    fn of(
        solver: SolverKind,
        symmetric: bool,
        not_invertible: Option<NotInvertible>,
        positive: bool,
    ) -> (Self, Cow<'static, str>, Self) {
        if solver == SolverKind::Direct {
            return (PrecondKind::None, "a direct solve needs none".into(), PrecondKind::None);
        }
        if let Some(bad) = not_invertible {
            let why = format!("{bad}, which neither Jacobi nor a factorisation can invert");
            return (PrecondKind::None, why.into(), PrecondKind::None);
        }
        let (best, why) = if symmetric && positive {
            (PrecondKind::Ic0, "the matrix is symmetric with a positive diagonal")
        } else if solver == SolverKind::Cg {
            (PrecondKind::Jacobi, "the matrix has no symmetric factors, and CG needs those")
        } else if symmetric {
            (PrecondKind::Ilu0, "the diagonal has no zero, but is not positive")
        } else {
            (PrecondKind::Ilu0, "the matrix is not symmetric, and its diagonal has no zero")
        };
        (best, why.into(), PrecondKind::Jacobi)
    }
}

impl fmt::Display for SolverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PrecondKind {
    /// The word on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            PrecondKind::None => "none",
            PrecondKind::Jacobi => "jacobi",
            PrecondKind::Ilu0 => "ilu0",
            PrecondKind::Ic0 => "ic0",
        }
    }
}

impl fmt::Display for PrecondKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Triplets;

    use super::*;

    #[test]
    fn the_choice_follows_symmetry_and_diagonal() {
        let choose = |nrows, ncols, entries: &[(usize, usize, f64)]| {
            let mut triplets = Triplets::new(nrows, ncols).expect("a small shape");
            for &(i, j, v) in entries {
                triplets.push(i, j, v).expect("an entry inside");
            }
            let choice = SolverKind::choose(&triplets.to_csr().expect("a small matrix"));
            (choice.solver, choice.precond)
        };
        let spd = [(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &spd), (SolverKind::Cg, PrecondKind::Ic0));
        let skewed = [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &skewed), (SolverKind::BiCgStab, PrecondKind::Ilu0));
        let negative = [(0, 0, -2.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &negative), (SolverKind::BiCgStab, PrecondKind::Ilu0));
        let exchange = [(0, 1, 1.0), (1, 0, 1.0)];
        assert_eq!(choose(2, 2, &exchange), (SolverKind::BiCgStab, PrecondKind::None));
        assert_eq!(choose(3, 2, &exchange), (SolverKind::Direct, PrecondKind::None));
        assert_eq!(choose(0, 0, &[]), (SolverKind::Cg, PrecondKind::Ic0));
    }

    #[test]
    fn a_diagonal_that_cannot_be_inverted_is_named_with_its_row() {
        for (bad, words) in [
            (Some(f64::NAN), "the diagonal entry of row 1 is NaN"),
            (Some(f64::INFINITY), "the diagonal entry of row 1 is infinite"),
            (Some(0.0), "the diagonal entry of row 1 is zero"),
            (Some(1e-320), "the diagonal entry of row 1 is too small to invert"),
            (None, "the diagonal entry of row 1 is missing"),
        ] {
            let mut triplets = Triplets::new(3, 3).expect("a small shape");
            for (i, d) in [Some(1.0), bad, Some(f64::NAN)].into_iter().enumerate() {
                if let Some(d) = d {
                    triplets.push(i, i, d).expect("an entry inside");
                }
            }
            let csr = triplets.to_csr().expect("a small matrix");
            let why = format!("{words}, which neither Jacobi nor a factorisation can invert");
            assert_eq!(SolverKind::choose(&csr).precond_why, why);
            assert_eq!(PrecondKind::choose(&csr, SolverKind::Gmres, false).1, why);
        }
    }

    #[test]
    fn the_preconditioner_fits_a_method_that_was_asked_for() {
        let mut triplets = Triplets::new(2, 2).expect("a small shape");
        for (i, j, v) in [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)] {
            triplets.push(i, j, v).expect("an entry inside");
        }
        let csr = triplets.to_csr().expect("a small matrix");
        let for_method = |solver| PrecondKind::choose(&csr, solver, false).0;
        assert_eq!(for_method(SolverKind::Cg), PrecondKind::Jacobi);
        assert_eq!(for_method(SolverKind::Gmres), PrecondKind::Ilu0);
        assert_eq!(for_method(SolverKind::Direct), PrecondKind::None);
    }
}
