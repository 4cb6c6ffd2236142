//! The number of matrices of a class that converge with incomplete factors, with Jacobi, and by the direct solver.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Class, SolveLine};

/// The real matrices of benchmark-russell, in its list. The README of russell_sparse 5.1.0 reports on 33 of its
/// matrices: its BiCGStab with its multigrid reaches a relative error of 1e-6 on 12, its GMRES on 7, its CG on 1. It
/// does not say on which.
const RUSSELL: [&str; 32] = [
    "bwm2000",
    "rdb5000",
    "Goodwin_040",
    "fp",
    "xenon1",
    "twotone",
    "Raj1",
    "boyd2",
    "Goodwin_071",
    "darcy003",
    "rma10",
    "helm2d03",
    "stomach",
    "oilpan",
    "ASIC_680k",
    "tmt_unsym",
    "Goodwin_127",
    "pre2",
    "marine1",
    "torso1",
    "atmosmodd",
    "atmosmodl",
    "memchip",
    "Freescale1",
    "rajat31",
    "Transport",
    "inline_1",
    "PFlow_742",
    "Emilia_923",
    "dielFilterV2real",
    "Flan_1565",
    "pres-cylin-3d-tet10-fine",
];

/// A line of the record about the matrices of benchmark-russell that are here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Russell {
    /// `"solve-russell"`.
    pub op: &'static str,
    /// The number of its matrices.
    pub listed: usize,
    /// The number that were solved here.
    pub here: usize,
    /// The number that converge with any iterative method.
    pub iterative: usize,
    /// The number that the direct solver solves.
    pub direct: usize,
    /// The published numbers, of 33: by BiCGStab, GMRES and CG.
    pub published: [usize; 3],
}

/// The matrices of benchmark-russell among the lines.
pub fn russell(lines: &[SolveLine]) -> Russell {
    let count = |holds: &dyn Fn(&SolveLine) -> bool| {
        RUSSELL.iter().filter(|&&name| lines.iter().any(|l| l.case == name && holds(l))).count()
    };
    Russell {
        op: "solve-russell",
        listed: RUSSELL.len(),
        here: count(&|_| true),
        iterative: count(&|l| l.noun != "direct" && l.converged()),
        direct: count(&|l| l.noun == "direct" && l.converged()),
        published: [12, 7, 1],
    }
}

/// The count of one class, a line of the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    /// `"solve-tally"`.
    pub op: &'static str,
    /// The class.
    pub class: &'static str,
    /// The number of matrices in the class.
    pub matrices: usize,
    /// The number that converge with Jacobi, or without a preconditioner if the diagonal has a zero: by CG in the class
    /// `"spd"`, else by BiCGStab.
    pub jacobi: usize,
    /// The number that converge with any incomplete factors.
    pub incomplete: usize,
    /// The number that converge with either.
    pub iterative: usize,
    /// The number that the direct solver solves.
    pub direct: usize,
    /// By method and preconditioner, with the number of matrices on which it was tried.
    pub by: BTreeMap<String, Count>,
    /// The matrices for which IC(0) is shifted.
    pub shifted: usize,
    /// The matrices that converge with no incomplete factors, and how the last attempt ended.
    pub failed: BTreeMap<String, String>,
}

/// A number out of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many converged.
    pub converged: usize,
    /// On how many it was tried.
    pub of: usize,
}

/// One tally per class of square matrices.
pub fn tallies(lines: &[SolveLine]) -> Vec<Tally> {
    let classes = [Class::Spd, Class::Symmetric, Class::Nonsymmetric];
    classes
        .into_iter()
        .map(|class| tally(class, &lines.iter().filter(|l| l.class == class).collect::<Vec<_>>()))
        .filter(|tally| tally.matrices > 0)
        .collect()
}

fn tally(class: Class, lines: &[&SolveLine]) -> Tally {
    let plain = |l: &SolveLine| {
        l.noun == if class == Class::Spd { "cg" } else { "bicgstab" }
            && ["jacobi", "none"].contains(&l.precond.as_str())
    };
    let incomplete = |l: &SolveLine| l.precond == "ic0" || l.precond.starts_with("ilu");
    let cases = |holds: &dyn Fn(&SolveLine) -> bool| -> BTreeSet<&str> {
        lines.iter().filter(|l| holds(l)).map(|l| l.case.as_str()).collect()
    };
    let converged = |holds: &dyn Fn(&SolveLine) -> bool| cases(&|l| holds(l) && l.converged());
    let (jacobi, factors) = (converged(&plain), converged(&incomplete));
    let mut by: BTreeMap<String, Count> = BTreeMap::new();
    let mut failed = BTreeMap::new();
    for l in lines {
        let count = by.entry(format!("{} {}", l.noun, l.precond)).or_default();
        count.of += 1;
        count.converged += usize::from(l.converged());
        if incomplete(l) && !factors.contains(l.case.as_str()) {
            let why = l.error.as_ref().map_or(String::new(), |why| format!(": {why}"));
            failed.insert(l.case.clone(), format!("{} {} {}{why}", l.noun, l.precond, l.status));
        }
    }
    Tally {
        op: "solve-tally",
        class: class.as_str(),
        matrices: cases(&|_| true).len(),
        jacobi: jacobi.len(),
        incomplete: factors.len(),
        iterative: jacobi.union(&factors).count(),
        direct: converged(&|l| l.noun == "direct").len(),
        by,
        shifted: cases(&|l| l.shift.is_some()).len(),
        failed,
    }
}

/// The tallies in words.
pub fn words(tallies: &[Tally]) -> String {
    let mut out = String::new();
    for t in tallies {
        out += &format!(
            "{}: of {} matrices {} converge with incomplete factors, {} with Jacobi or nothing, {} with either, {} directly",
            t.class, t.matrices, t.incomplete, t.jacobi, t.iterative, t.direct
        );
        if t.shifted > 0 {
            out += &format!("; {} shifted", t.shifted);
        }
        out += "\n";
        for (way, Count { converged, of }) in &t.by {
            out += &format!("  {way}: {converged} of {of}\n");
        }
        for (case, why) in &t.failed {
            out += &format!("  {case}: {why}\n");
        }
    }
    out
}
