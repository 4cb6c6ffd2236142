//! The stronger preconditioner that an iteration competes with: CG with IC(0) against multigrid, BiCGStab with ILU(0)
//! against ILUT. Multigrid is geometric on a grid whose points have one unknown and only nearest neighbours, else
//! algebraic.
//!
//! The first choice is made before anything is known about convergence. An iteration that turns out to be slow
//! ([`super::rival::Judge`]) gives way. The stronger preconditioner is made only then, so the others pay nothing for
//! it. It is the first choice where a model expects it to finish before the weaker one and before a factorisation.

use spandrel_formats::{Bsr, Csr, Grid, Neighbours, Profile, Real, Stencil};
use spandrel_solvers::amg::{AmgExpected, may_suit, separator};
use spandrel_solvers::{AmgOptions, Method, MgOptions, Precond};
use spandrel_sptrsv::IlutOptions;

use super::plan::Plan;
use super::rival::factoring;

/// Cycles with algebraic multigrid for a matrix that is no scalar elliptic problem: 48 and 64 on problems that it suits
/// well enough (record/cpu-multigrid.jsonl).
const CYCLES: f64 = 60.0;
/// Nanoseconds of ILUT and the iteration with it, per entry: 120 to 2000 on real matrices (record/cpu-ilut.txt).
const ILUT: f64 = 500.0;
/// Operations of a factorisation by nested dissection, in units of the separator's size to the third power: 829 / 84 in
/// the plane (A. George, Nested dissection of a regular finite element mesh, 1973). More in space.
const DISSECTION: f64 = 829.0 / 84.0;
/// The most unknowns of a point, and the share of the blocks' places that must hold entries.
const MOST_UNKNOWNS: usize = 6;
const FULL: f64 = 0.8;

/// What takes over from an iteration that is expected to take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stronger {
    pub(super) preconditioner: Precond,
    /// Nanoseconds of its set-up and its solve. Geometric multigrid should take less than the algebraic one, whose time
    /// this is.
    pub(super) cost: f64,
    /// Whether a complete factorisation would take longer than that, so that its analysis is not worth its time.
    pub(super) beats_factors: bool,
    /// The comparison with the weaker one, if both that and a factorisation are expected to take longer.
    pub(super) first: Option<AmgExpected>,
}

impl Stronger {
    /// The preconditioner that may take over from this plan's, for the matrix in the numbering of the solve. The caller
    /// guarantees that the policy chose the plan's.
    pub(super) fn of<T: Real>(plan: &Plan, a: &Csr<T>, profile: &Profile) -> Option<Self> {
        if plan.method == Method::BiCgStab && plan.preconditioner == Precond::Ilu0 && !plan.symmetric {
            let preconditioner = Precond::Ilut(IlutOptions::default());
            return Some(Self { preconditioner, cost: ILUT * a.nnz() as f64, beats_factors: false, first: None });
        }
        let suits = plan.method == Method::Cg && plan.preconditioner == Precond::Ic0 && plan.symmetric;
        if !suits || !may_suit(a) {
            return None;
        }
        let options = AmgOptions { unknowns: unknowns(a), ..AmgOptions::default() };
        let size = (a.nrows(), a.nnz() as u64);
        let cost = 1e6 * AmgExpected::whole::<T>(size, CYCLES, &options, profile);
        let least = separator(a, options.unknowns).map_or(0.0, |rows| factoring(profile, DISSECTION * rows.powi(3)));
        let beats_factors = least > cost;
        let expected = AmgExpected::of_system(a, CYCLES, &options, profile);
        let first = expected.filter(|expected| beats_factors && expected.pays());
        Some(Self { preconditioner: suited(a, options), cost, beats_factors, first })
    }
}

/// The multigrid for a matrix that algebraic multigrid suits: the geometric one if polynomials can smooth there. They
/// do for one unknown per point; to look for a grid of several takes long.
pub(super) fn suited<T: Real>(a: &Csr<T>, options: AmgOptions) -> Precond {
    let is_grid =
        options.unknowns == 1 && Grid::detect(a).is_ok_and(|grid| Neighbours::of(&Stencil::of(&grid)).is_some());
    if is_grid { Precond::Mg(MgOptions::default()) } else { Precond::Amg(options) }
}

/// The unknowns of a point: the largest size of the dense blocks that make up a matrix, by a sample of its rows.
fn unknowns<T: Real>(a: &Csr<T>) -> usize {
    let is_full = |&b: &usize| a.nrows().is_multiple_of(b) && Bsr::sampled_share(a, b) >= FULL;
    (2..=MOST_UNKNOWNS).rev().find(is_full).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use spandrel_formats::generate;

    use super::*;

    #[test]
    fn factors_of_a_solid_take_longer_than_multigrid_and_those_of_a_sheet_do_not() {
        let of = |spec: &str| {
            let a = generate::csr::<f64>(spec).expect(spec);
            let settings = crate::solver::Settings::default();
            let plan = crate::solver::policy::plan(&settings, &a, &spandrel_formats::Survey::of(&a)).expect(spec);
            Stronger::of(&plan, &a, &Profile::reference()).map(|found| found.beats_factors)
        };
        assert_eq!([of("elasticity3d:30"), of("elasticity2d:110")], [Some(true), Some(false)]);
        assert_eq!([of("elasticity3d:10"), of("convdiff2d:30,peclet=1")], [None, Some(false)]);
    }

    #[test]
    fn geometric_multigrid_is_for_nearest_neighbours_with_one_unknown() {
        let of = |spec: &str| suited(&generate::csr::<f64>(spec).expect(spec), AmgOptions::default());
        for (spec, is_geometric) in [
            ("poisson3d:12", true),
            ("d3n27:9", true),
            ("d3n13:9", false),
            ("elasticity2d:20", false),
            ("electrostatic:n=2000", false),
        ] {
            assert_eq!(matches!(of(spec), Precond::Mg(_)), is_geometric, "{spec}");
        }
    }

    #[test]
    fn unknowns_are_the_size_of_dense_blocks() {
        let of = |spec: &str| unknowns(&generate::csr::<f64>(spec).expect(spec));
        assert_eq!([of("poisson3d:12"), of("d3n27:9"), of("electrostatic:n=2000")], [1, 1, 1]);
        assert_eq!([of("elasticity2d:20"), of("elasticity3d:10")], [2, 3]);
    }
}
