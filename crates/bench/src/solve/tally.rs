//! How many matrices of a class converge: with incomplete factors, with Jacobi, by the direct solver.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Class, SolveLine};

/// Matrices that russell_sparse publishes results of its iterative solvers for.
const RUSSELL: [&str; 0] = [];

/// The count of one class, a line of the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tally {
    /// `"solve-tally"`.
    pub op: &'static str,
    /// Whose.
    pub class: &'static str,
    /// Matrices of the class.
    pub matrices: usize,
    /// Those that converge with Jacobi, or with nothing where the diagonal has a zero: by CG in the class `"spd"`, else by BiCGStab.
    pub jacobi: usize,
    /// Those that converge with any incomplete factors.
    pub incomplete: usize,
    /// Those that either of the two does.
    pub iterative: usize,
    /// Those that the direct solver does.
    pub direct: usize,
    /// By method and preconditioner, of how many it was tried on.
    pub by: BTreeMap<String, Count>,
    /// Those that IC(0) is shifted for.
    pub shifted: usize,
    /// Those that no incomplete factors do, and how the last attempt ended.
    pub failed: BTreeMap<String, String>,
}

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Converged.
    pub converged: usize,
    /// Tried on.
    pub of: usize,
}

/// One tally for each class of square matrices.
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
        l.noun == if class == Class::Spd { "cg" } else { "bicgstab" } && ["jacobi", "none"].contains(&l.precond.as_str())
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
