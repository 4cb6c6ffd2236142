//! The solver and preconditioner that `auto` stands for, with the reason.

use spandrel_formats::{Csr, Format, Real, Survey};

use crate::{Method, Precond};

/// What was chosen, and why, in a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The method.
    pub solver: Method,
    /// Why this method.
    pub solver_why: &'static str,
    /// The preconditioner.
    pub precond: Precond,
    /// Why this preconditioner.
    pub precond_why: &'static str,
    /// The preconditioner without a factorisation, for where that of `precond` breaks down.
    pub plain: Precond,
}

impl Method {
    /// Chooses for a matrix: CG where it is symmetric ([`Csr::is_symmetric`]) with a positive diagonal, least squares where it is not
    /// square, else BiCGStab; the preconditioner is [`Precond::choose`]'s for that method. O(nnz log(row)).
    ///
    /// A symmetric matrix with a positive diagonal may still be indefinite; CG then says so.
    pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
        Self::choose_by(&Survey::of(csr), csr.nrows() == csr.ncols())
    }

    /// As [`Method::choose`] of a matrix that has been looked at.
    pub fn choose_by(survey: &Survey, square: bool) -> Choice {
        let (solver, solver_why) = if !square {
            (Method::Direct, "the matrix is not square, so the answer is one of least squares")
        } else if !survey.positive_diagonal {
            (Method::BiCgStab, "the diagonal is not positive throughout, so the matrix is not positive definite")
        } else if !survey.symmetric {
            (Method::BiCgStab, "the matrix is not symmetric")
        } else {
            (Method::Cg, "the matrix is symmetric with a positive diagonal")
        };
        let (precond, precond_why, plain) = Precond::choose_by(survey, solver);
        Choice { solver, solver_why, precond, precond_why, plain }
    }
}

impl Precond {
    /// Chooses for a method and a matrix that is symmetric or not, with the reason and what to take where a factorisation breaks down:
    /// IC(0) where the matrix is symmetric with a positive diagonal, ILU(0) for the methods that need no symmetric preconditioner, where
    /// the diagonal has no zero; else Jacobi, else none. O(n log(row)).
    pub fn choose<T: Real>(csr: &Csr<T>, solver: Method, symmetric: bool) -> (Self, &'static str, Self) {
        let invertible = csr.diagonal_holds(|d| d.is_finite() && d.recip().is_finite());
        Self::of(solver, symmetric, invertible, csr.diagonal_holds(|d| d > T::zero()))
    }

    /// As [`Precond::choose`] for a matrix that has been looked at.
    pub fn choose_by(survey: &Survey, solver: Method) -> (Self, &'static str, Self) {
        Self::of(solver, survey.symmetric, survey.invertible_diagonal, survey.positive_diagonal)
    }

    fn of(solver: Method, symmetric: bool, invertible: bool, positive: bool) -> (Self, &'static str, Self) {
        if solver == Method::Direct {
            return (Precond::None, "a direct solve needs none", Precond::None);
        }
        if !invertible {
            let why = "the diagonal has an entry that is zero or infinite, which neither Jacobi nor a factorisation can invert";
            return (Precond::None, why, Precond::None);
        }
        let (best, why) = if symmetric && positive {
            (Precond::Ic0, "the matrix is symmetric with a positive diagonal")
        } else if solver == Method::Cg {
            (Precond::Jacobi, "the matrix has no symmetric factors, and CG needs those")
        } else if symmetric {
            (Precond::Ilu0, "the diagonal has no zero, but is not positive")
        } else {
            (Precond::Ilu0, "the matrix is not symmetric, and its diagonal has no zero")
        };
        (best, why, Precond::Jacobi)
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
            let choice = Method::choose(&triplets.to_csr().expect("a small matrix"));
            (choice.solver, choice.precond)
        };
        let spd = [(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &spd), (Method::Cg, Precond::Ic0));
        let skewed = [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &skewed), (Method::BiCgStab, Precond::Ilu0));
        let negative = [(0, 0, -2.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &negative), (Method::BiCgStab, Precond::Ilu0));
        let exchange = [(0, 1, 1.0), (1, 0, 1.0)];
        assert_eq!(choose(2, 2, &exchange), (Method::BiCgStab, Precond::None));
        assert_eq!(choose(3, 2, &exchange), (Method::Direct, Precond::None));
        assert_eq!(choose(0, 0, &[]), (Method::Cg, Precond::Ic0));
    }

    #[test]
    fn the_preconditioner_fits_a_method_that_was_asked_for() {
        let mut triplets = Triplets::new(2, 2).expect("a small shape");
        for (i, j, v) in [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)] {
            triplets.push(i, j, v).expect("an entry inside");
        }
        let csr = triplets.to_csr().expect("a small matrix");
        let for_method = |solver| Precond::choose(&csr, solver, false).0;
        assert_eq!(for_method(Method::Cg), Precond::Jacobi);
        assert_eq!(for_method(Method::Gmres), Precond::Ilu0);
        assert_eq!(for_method(Method::Direct), Precond::None);
    }
}
