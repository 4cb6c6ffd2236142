//! The solver and preconditioner that `auto` stands for, with the reason.

use std::fmt;

use spandrel_formats::{Csr, Real, Survey};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The method.
    pub solver: SolverKind,
    /// Why this method.
    pub solver_why: &'static str,
    /// The preconditioner.
    pub precond: PrecondKind,
    /// Why this preconditioner.
    pub precond_why: &'static str,
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
    pub fn choose<T: Real>(csr: &Csr<T>, solver: SolverKind, symmetric: bool) -> (Self, &'static str, Self) {
        let invertible = csr.diagonal_holds(|d| d.is_finite() && d.recip().is_finite());
        Self::of(solver, symmetric, invertible, csr.diagonal_holds(|d| d > T::zero()))
    }

    /// As [`PrecondKind::choose`] for a matrix that has been looked at.
    pub fn choose_by(survey: &Survey, solver: SolverKind) -> (Self, &'static str, Self) {
        Self::of(solver, survey.symmetric, survey.invertible_diagonal, survey.positive_diagonal)
    }

    fn of(solver: SolverKind, symmetric: bool, invertible: bool, positive: bool) -> (Self, &'static str, Self) {
        if solver == SolverKind::Direct {
            return (PrecondKind::None, "a direct solve needs none", PrecondKind::None);
        }
        if !invertible {
            let why = "the diagonal has an entry that is zero or infinite, which neither Jacobi nor a factorisation can invert";
            return (PrecondKind::None, why, PrecondKind::None);
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
        (best, why, PrecondKind::Jacobi)
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
