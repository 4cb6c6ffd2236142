//! The method and preconditioner that `auto` takes, with the reason.

use std::borrow::Cow;

use spandrel_formats::{Csr, NotInvertible, Real, Survey};

use crate::{Method, Precond};

/// A method and a preconditioner, each with a reason in a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The method.
    pub solver: Method,
    /// Why this method.
    pub solver_why: &'static str,
    /// The preconditioner.
    pub precond: Precond,
    /// Why this preconditioner.
    pub precond_why: Cow<'static, str>,
    /// A preconditioner without a factorisation, in case that of `precond` breaks down.
    pub plain: Precond,
}

impl Method {
    /// Chooses a method for a matrix. CG for a symmetric matrix ([`Csr::is_symmetric`]) with a positive diagonal, least
    /// squares for one that is not square, else BiCGStab.
    ///
    /// [`Precond::choose`] chooses the preconditioner for that method. O(nnz log(row)). A symmetric matrix with a
    /// positive diagonal may still be indefinite; CG then says so.
    pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
        Self::choose_by(&Survey::of(csr), csr.nrows() == csr.ncols())
    }

    /// As [`Method::choose`], for a matrix that was surveyed already.
    pub fn choose_by(survey: &Survey, square: bool) -> Choice {
        let (solver, solver_why) = if square {
            Self::choose_square(survey.symmetric, survey.positive_diagonal)
        } else {
            (Method::Direct, "the matrix is not square, so the answer is one of least squares")
        };
        let (precond, precond_why, plain) = Precond::choose_by(survey, solver);
        Choice { solver, solver_why, precond, precond_why, plain }
    }

    /// The method for a square matrix, and why: CG if it is symmetric with a positive diagonal, else BiCGStab.
    pub fn choose_square(symmetric: bool, positive_diagonal: bool) -> (Self, &'static str) {
        if !positive_diagonal {
            (Method::BiCgStab, "not all diagonal entries are positive, so the matrix is not positive definite")
        } else if !symmetric {
            (Method::BiCgStab, "the matrix is not symmetric")
        } else {
            (Method::Cg, "the matrix is symmetric with a positive diagonal")
        }
    }
}

impl Precond {
    /// Chooses a preconditioner for a method and a matrix, with the reason and a substitute in case the factorisation
    /// breaks down.
    ///
    /// IC(0) for a symmetric matrix with a positive diagonal. ILU(0) if the method needs no symmetric preconditioner
    /// and the diagonal has no zero. Else Jacobi, else none. O(n log(row)).
    pub fn choose<T: Real>(csr: &Csr<T>, solver: Method, symmetric: bool) -> (Self, Cow<'static, str>, Self) {
        Self::of(solver, symmetric, NotInvertible::first(csr), csr.diagonal_holds(|d| d > T::zero()))
    }

    /// As [`Precond::choose`], for a matrix that was surveyed already.
    pub fn choose_by(survey: &Survey, solver: Method) -> (Self, Cow<'static, str>, Self) {
        Self::of(solver, survey.symmetric, survey.not_invertible, survey.positive_diagonal)
    }

    fn of(
        solver: Method,
        symmetric: bool,
        not_invertible: Option<NotInvertible>,
        positive: bool,
    ) -> (Self, Cow<'static, str>, Self) {
        if solver == Method::Direct {
            return (Precond::None, "a direct solve needs none".into(), Precond::None);
        }
        if let Some(bad) = not_invertible {
            let why = format!("{bad}, which neither Jacobi nor a factorisation can invert");
            return (Precond::None, why.into(), Precond::None);
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
        (best, why.into(), Precond::Jacobi)
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
            assert_eq!(Method::choose(&csr).precond_why, why);
            assert_eq!(Precond::choose(&csr, Method::Gmres, false).1, why);
        }
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
