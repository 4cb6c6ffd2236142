//! The solver and preconditioner that `auto` stands for, with the reason.

use std::fmt;

use spandrel_formats::{Csr, Format, Real};

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SolverKind {
    /// [`crate::Cg`].
    Cg,
    /// [`crate::BiCgStab`].
    BiCgStab,
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
}

impl SolverKind {
    /// The word on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            SolverKind::Cg => "cg",
            SolverKind::BiCgStab => "bicgstab",
            SolverKind::Direct => "direct",
        }
    }

    /// Chooses for a matrix: CG where it is symmetric ([`Csr::is_symmetric`]) with a positive diagonal, least squares where it is not
    /// square, else BiCGStab; Jacobi where the diagonal has no zero. O(nnz log(row)).
    ///
    /// A symmetric matrix with a positive diagonal may still be indefinite; CG then says so.
    pub fn choose<T: Real>(csr: &Csr<T>) -> Choice {
        if csr.nrows() != csr.ncols() {
            return Choice {
                solver: SolverKind::Direct,
                solver_why: "the matrix is not square, so the answer is one of least squares",
                precond: PrecondKind::None,
                precond_why: "a direct solve needs none",
            };
        }
        let invertible = |i| csr.get(i, i).is_some_and(|d| d.is_finite() && d.recip().is_finite());
        let (precond, precond_why) = if (0..csr.nrows()).all(invertible) {
            (PrecondKind::Jacobi, "the diagonal has no zero")
        } else {
            (PrecondKind::None, "the diagonal has an entry that is zero or infinite, which Jacobi cannot invert")
        };
        let (solver, solver_why) = if !(0..csr.nrows()).all(|i| csr.get(i, i).is_some_and(|d| d > T::zero())) {
            (SolverKind::BiCgStab, "the diagonal is not positive throughout, so the matrix is not positive definite")
        } else if !csr.is_symmetric() {
            (SolverKind::BiCgStab, "the matrix is not symmetric")
        } else {
            (SolverKind::Cg, "the matrix is symmetric with a positive diagonal")
        };
        Choice { solver, solver_why, precond, precond_why }
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
        assert_eq!(choose(2, 2, &spd), (SolverKind::Cg, PrecondKind::Jacobi));
        let skewed = [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &skewed), (SolverKind::BiCgStab, PrecondKind::Jacobi));
        let negative = [(0, 0, -2.0), (1, 1, 2.0)];
        assert_eq!(choose(2, 2, &negative), (SolverKind::BiCgStab, PrecondKind::Jacobi));
        let exchange = [(0, 1, 1.0), (1, 0, 1.0)];
        assert_eq!(choose(2, 2, &exchange), (SolverKind::BiCgStab, PrecondKind::None));
        assert_eq!(choose(3, 2, &exchange), (SolverKind::Direct, PrecondKind::None));
        assert_eq!(choose(0, 0, &[]), (SolverKind::Cg, PrecondKind::Jacobi));
    }
}
