//! The choices on the two machines of `record/`, an H200 and a CPU: format, triangular plan, factors on the host or on
//! the device, multigrid.
//!
//! `testdata/choices.txt` lists the cases, those of the records and of the suite, with everything that decides. The
//! test makes the same text again and compares line by line, so a changed profile, policy or cost shows as changed
//! lines. `SPANDREL_CHOICES=write cargo test -p spandrel-conformance --test choices` writes the file: read its diff.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend_cuda::profile::h200;
use spandrel_conformance::case;
use spandrel_formats::{Csr, Profile, Real, Survey, Triplets, choose, generate};
use spandrel_solvers::Method;
use spandrel_solvers::factored::{Plans, SharedTriangles};
use spandrel_solvers::multigrid::Expected;
use spandrel_sptrsv::choose::{AnyPlan, by_levels};
use spandrel_sptrsv::{
    Diagonal, Factor, Ic0, Ilu0, Latency, Levelset, Numeric, Plan, Sweep, System, Systems, Triangle, Triangular, View,
    split,
};

/// The CPU with two threads and the H200 with a host of 16.
fn machines() -> [(&'static str, Profile); 2] {
    let mut cpu = Profile::reference();
    (cpu.memory.units, cpu.host.threads) = (2, 2);
    [("cpu", cpu), ("h200", h200())]
}

/// FNV-1a, for what is too long to write down.
fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
}

/// The format, and the three that are expected to be fastest.
fn formats<T: Real>(out: &mut String, a: &Csr<T>) {
    for (name, profile) in &machines() {
        let survey = Survey::of(a);
        let (quick, full) = (survey.choose(a, profile), choose(a, profile));
        assert_eq!(quick.format, full.format);
        let mut timed: Vec<_> =
            full.candidates.iter().filter_map(|c| Some((c.nanoseconds?, c.name, c.moved))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = digest(timed.iter().flat_map(|c| [c.0.to_bits(), c.2]));
        let best: Vec<_> = timed.iter().take(3).map(|(ns, name, _)| format!("{name} {ns:.1}")).collect();
        let bits = 8 * T::BYTES;
        writeln!(out, "  {name} f{bits} format {full}; {} ns, {all:016x}", best.join(", ")).unwrap();
    }
}

/// The plans of one triangle.
fn triangle(out: &mut String, of: &str, matrix: &Arc<Triangular<f64>>) {
    let machines = machines();
    for (name, profile) in &machines {
        for reuse in [1, 100] {
            let (plan, why) = AnyPlan::auto(matrix, Systems::Plain, profile, reuse);
            writeln!(out, "  {name} {of} solved {reuse} times: {}: {why}", plan.name()).unwrap();
        }
    }
    let [(_, cpu), (_, h200)] = &machines;
    let (levels, waits) = (&h200.triangles.levels, h200.triangles.waits.as_ref().unwrap());
    // One table for both, because both have the same level sets.
    assert_eq!(*levels, cpu.triangles.levels);
    let latency = Latency::of(&View::of(matrix), levels, waits).unwrap();
    let plan = Levelset::analyze_for(Arc::clone(matrix), Systems::Both, h200).unwrap();
    write!(out, "  h200 {of} levels {:.3} us, rows {:.3} us", latency.level_sets, latency.threads).unwrap();
    for system in [System::Plain, System::Transposed] {
        let schedule = plan.schedule(system).unwrap();
        let segments = schedule.segments().iter().flat_map(|s| [s.span as u64, s.slices.end as u64]);
        let words = schedule.order().iter().chain(schedule.links()).map(|&word| u64::from(word));
        let slices = schedule.slices().iter().flatten().map(|&word| u64::from(word));
        let all = digest(segments.chain(words).chain(slices));
        write!(
            out,
            "; {} levels, {} slices, {} segments, {all:016x}",
            schedule.levels(),
            schedule.slices().len(),
            schedule.segments().len()
        )
        .unwrap();
    }
    out.push('\n');
}

/// The plans of a factorisation's triangles, and who computes its values.
fn factors<F: Factor<Value = f64>>(out: &mut String, a: &Csr<f64>) {
    let Ok(factor) = F::symbolic(a) else { return };
    let made = factor.triangles(factor.unformed()).unwrap();
    let triangles = SharedTriangles::from(made);
    for (name, profile) in &machines() {
        let sweeps = Plans::planned(&triangles, |t, systems| Sweep::paying(t, systems, profile).ok_or(()));
        let plan = match (&profile.triangles.waits, sweeps) {
            (_, Ok(_)) => "sweep",
            (None, Err(())) => "levelset",
            (Some(_), Err(())) => {
                Plans::<Levelset<f64>>::paying(&triangles, profile).map_or("capellini", |_| "levelset")
            }
        };
        write!(out, "  {name} {} {plan}", F::NAME).unwrap();
        if profile.factoring.is_some() {
            let numeric = Numeric::of(&factor, profile);
            let place = if numeric.is_sooner_on_host() { "host" } else { "device" };
            let both = std::iter::once(&**triangles.lower()).chain(triangles.upper().map(|u| &**u));
            let pays = by_levels(both, profile);
            write!(out, ", levels {pays}, {place}: {:.3} us here, {:.3} us there", numeric.host, numeric.device)
                .unwrap();
        }
        out.push('\n');
    }
}

fn multigrid(out: &mut String, a: &Csr<f64>) {
    for (name, profile) in &machines() {
        match Expected::of(a, profile) {
            Ok(found) => writeln!(
                out,
                "  {name} multigrid {}: {:.6} ms, ic0 {:.6} ms in {:.3} iterations, {}",
                found.pays(),
                found.mg,
                found.ic0,
                found.iterations,
                found.grid
            ),
            Err(why) => writeln!(out, "  {name} multigrid: {why}"),
        }
        .unwrap();
    }
}

/// All choices for a matrix.
fn choices(name: &str, a: &Csr<f64>) -> String {
    let mut out = format!("{name}: {} x {}, {} entries\n", a.nrows(), a.ncols(), a.nnz());
    formats(&mut out, a);
    let narrow = a.values().iter().map(|&v| v as f32).collect();
    let narrow =
        Csr::new(a.nrows(), a.ncols(), a.row_ptr().to_vec(), a.col_idx().to_vec(), narrow).expect("the same pattern");
    formats(&mut out, &narrow);
    let kind = Method::choose(a);
    writeln!(out, "  method {}, {}", kind.solver, kind.precond).unwrap();
    if a.nrows() != a.ncols() {
        return out;
    }
    let parts = split(a).unwrap();
    for (of, csr, triangle_of) in [("lower", parts.lower, Triangle::Lower), ("upper", parts.upper, Triangle::Upper)] {
        if let Ok(matrix) = Triangular::new(csr, triangle_of, Diagonal::NonUnit) {
            triangle(&mut out, of, &Arc::new(matrix));
        }
    }
    factors::<Ilu0<f64>>(&mut out, a);
    if a.is_symmetric() {
        factors::<Ic0<f64>>(&mut out, a);
        multigrid(&mut out, a);
    }
    out
}

/// A specification, or a case of the suite.
fn matrix(name: &str) -> Csr<f64> {
    let Some(wanted) = name.strip_prefix("case ") else { return generate::csr(name).unwrap() };
    let case = case::all().unwrap().into_iter().find(|case| case.name == wanted);
    let data = case.unwrap_or_else(|| panic!("there is no case {wanted}")).data::<f64>().unwrap();
    let mut triplets = Triplets::new(data.shape.0, data.shape.1).unwrap();
    data.triplets.iter().for_each(|&(i, j, v)| triplets.push(i as usize, j as usize, v).unwrap());
    triplets.to_csr().unwrap()
}

#[test]
fn choices_on_the_machines_of_the_records_stay_what_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/choices.txt");
    let kept = std::fs::read_to_string(&path).unwrap();
    // Each block begins with its case; the file's head is comments.
    let (head, blocks): (Vec<&str>, Vec<&str>) = kept.split_inclusive('\n').partition(|line| line.starts_with('#'));
    let names: Vec<&str> = blocks
        .iter()
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.trim_end().rsplit_once(": ").map_or(line.trim_end(), |(name, _)| name))
        .collect();
    assert!(names.len() >= 150, "{} cases", names.len());
    let is = |variable: &str, value: &str| std::env::var_os(variable).is_some_and(|found| found == value);
    let writes = is("SPANDREL_CHOICES", "write");
    // One case in eight, unless all are requested.
    let every = if writes || is("SPANDREL_SUITE", "whole") { 1 } else { 16 };
    let names: Vec<&str> = names.into_iter().step_by(every).collect();
    let made: Vec<String> = names.par_iter().map(|name| choices(name, &matrix(name))).collect();
    let made = made.concat();
    if writes {
        std::fs::write(&path, head.concat() + &made).unwrap();
        return;
    }
    let mut number = 0;
    let wanted = blocks.iter().filter(|line| {
        number += usize::from(!line.starts_with(' '));
        (number - 1).is_multiple_of(every)
    });
    let wanted: String = wanted.copied().collect();
    let mut case = "";
    for (found, wanted) in made.lines().zip(wanted.lines()) {
        if !found.starts_with(' ') {
            case = found;
        }
        assert_eq!(found, wanted, "of {case}");
    }
    assert_eq!(made.lines().count(), wanted.lines().count());
}

/// As measured on a GPU, with kernels loaded by each solve: record/h100-first-solves.txt.
#[test]
fn multigrid_is_taken_on_a_gpu_where_it_is_done_first() {
    for (spec, pays) in [("poisson3d:64", false), ("poisson3d:128", true), ("poisson2d:512", true)] {
        let expected = Expected::of(&generate::csr::<f64>(spec).unwrap(), &h200()).unwrap();
        assert_eq!(expected.pays(), pays, "{spec}: {expected:?}");
    }
}
