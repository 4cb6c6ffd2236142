//! The contest on the CPU.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Sptrsv, Tri};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Profile, Real};
use spandrel_sptrsv::{Plan, System, for_each_plan};

use super::lines::{Solver, judge, lines};
use super::peers::{Peer, SolveReal, Stored};
use super::problem::{Problem, Triangles};
use super::stages::Way;
use super::{Contest, Findings, chosen_plan, prepared};
use crate::case::Case;
use crate::contender::{Contender, interleave};
use crate::machine::Stream;

/// One of our plans.
struct Ours<'b, T: Real, P: Plan<Value = T>>
where
    Cpu: Sptrsv<P> + Backend<T>,
{
    be: &'b Cpu,
    tri: Tri<Cpu, P>,
    b: <Cpu as Backend<T>>::Vector,
    x: <Cpu as Backend<T>>::Vector,
}

impl<T: Real, P: Plan<Value = T>> Contender for Ours<'_, T, P>
where
    Cpu: Sptrsv<P> + Backend<T>,
{
    fn noun(&self) -> String {
        P::NAME.into()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn bytes(&self) -> u64 {
        self.tri.plan().sptrsv_bytes()
    }
    fn run(&mut self) {
        self.tri
            .sptrsv(self.be, None, System::Plain, &self.b, &mut self.x)
            .expect("sizes were matched when the contender was made");
    }
    fn poison(&mut self) {
        self.be.fill(None, T::from_f64(f64::NAN), &mut self.x).expect("fill does not fail on the CPU");
    }
    fn answer(&self) -> Option<Vec<f64>> {
        let x = self.be.download(&self.x).expect("download does not fail on the CPU");
        Some(x.into_iter().map(|v| v.as_f64()).collect())
    }
}

/// The contest for one triangle.
struct Underway<'a, T: Real> {
    be: &'a Cpu,
    problem: &'a Problem<T>,
    contenders: Vec<Box<dyn Contender + 'a>>,
    solvers: Vec<Solver>,
    errors: Vec<Value>,
}

impl<'a, T: Real> Underway<'a, T> {
    fn left_out(&mut self, noun: &str, contender: &str, why: &str) {
        eprintln!("  {noun} ({contender}): {why}");
        let f = &self.problem.facts;
        self.errors.push(json!({
            "op": "sptrsv", "noun": noun, "type": f.element, "backend": "cpu", "contender": contender, "case": f.case,
            "triangle": f.triangle.to_string(), "factor": f.factor.as_str(), "error": why,
        }));
    }

    /// Adds a contender once its answer, which must replace NaN, is right.
    fn add(&mut self, mut contender: Box<dyn Contender + 'a>, kernel: Option<String>, prepared: (f64, f64)) {
        let (noun, name) = (contender.noun(), contender.name());
        contender.poison();
        contender.run();
        match self.problem.check(&contender.answer().unwrap_or_default()) {
            Ok(()) => {
                let bytes = contender.bytes();
                let prepared = Some(prepared);
                self.solvers.push(Solver { noun, contender: name, kernel, bytes, prepared, timed_by: "clock" });
                self.contenders.push(contender);
            }
            Err(why) => self.left_out(&noun, name, &format!("wrong answer: {why}")),
        }
    }

    fn add_plan<P: Plan<Value = T>>(&mut self, way: Way) -> Result<()>
    where
        Cpu: Sptrsv<P> + Backend<T>,
    {
        let (plan, analyze_ms) = prepared(|| way.analyze::<P>(&self.problem.matrix, &Profile::reference()))?;
        let plan = Arc::new(plan);
        let (tri, load_ms) = prepared(|| Ok(Tri::<Cpu, P>::load(self.be, Arc::clone(&plan))?))?;
        let x = self.be.zeros(self.problem.facts.n)?;
        let ours = Ours { be: self.be, tri, b: self.be.upload(&self.problem.b)?, x };
        self.add(Box::new(ours), way.label(), (analyze_ms, load_ms));
        Ok(())
    }
}

fn error_line(case: &Case, element: &str, triangle: Option<String>, why: &anyhow::Error) -> Value {
    eprintln!("  left out: {why:#}");
    json!({
        "op": "sptrsv", "noun": "case", "type": element, "backend": "cpu", "contender": "spandrel", "case": case.name,
        "triangle": triangle, "error": format!("{why:#}"),
    })
}

/// Times one case. A matrix that cannot be solved with becomes a line of errors.
///
/// # Errors
/// Unknown names.
pub fn run<T: SolveReal>(be: &Cpu, case: &Case, contest: &Contest) -> Result<Findings>
where
    Cpu: Backend<T>,
{
    let mut found = Findings::default();
    let triangles = case.load::<T>().and_then(|csr: Csr<T>| {
        let enough = csr.nnz() >= contest.min_entries;
        enough.then(|| Triangles::of(&csr, contest.factor)).transpose()
    });
    let mut triangles = match triangles {
        Ok(Some(triangles)) => triangles,
        Ok(None) => return Ok(found),
        Err(why) => {
            found.errors.push(error_line(case, T::NAME, None, &why));
            return Ok(found);
        }
    };
    for &triangle in &contest.triangles {
        match triangles.take(case, triangle) {
            Ok(problem) => one(be, &problem, contest, &mut found)?,
            Err(why) => found.errors.push(error_line(case, T::NAME, Some(triangle.to_string()), &why)),
        }
    }
    Ok(found)
}

fn one<T: SolveReal>(be: &Cpu, problem: &Problem<T>, contest: &Contest, found: &mut Findings) -> Result<()>
where
    Cpu: Backend<T>,
{
    let chosen = contest.auto.then(|| chosen_plan(&problem.matrix, &Profile::reference()));
    let stored = if contest.peers.is_empty() { None } else { Some(Stored::new(problem)?) };
    let mut at = Underway { be, problem, contenders: Vec::new(), solvers: Vec::new(), errors: Vec::new() };
    let mut known = Vec::new();
    macro_rules! add_plans {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(
                known.push(stringify!($stem));
                if contest.wants(stringify!($stem), chosen.as_ref()) {
                    for way in Way::of::<spandrel_sptrsv::$Type<T>>(contest) {
                        if let Err(why) = at.add_plan::<spandrel_sptrsv::$Type<T>>(way) {
                            at.left_out(stringify!($stem), "spandrel", &format!("{why:#}"));
                        }
                    }
                }
            )*
        };
    }
    for_each_plan!(add_plans);
    for stem in &contest.plans {
        ensure!(known.contains(&stem.as_str()), "no plan is called {stem}: {}", known.join(", "));
    }
    if let Some(stored) = &stored {
        for name in &contest.peers {
            for peer in Peer::all(name, stored)? {
                let load_ms = peer.load_ms;
                at.add(Box::new(peer), None, (0.0, load_ms));
            }
        }
    }
    // If a cache holds the triangle, the rate of memory says nothing.
    if contest.machine && problem.facts.effective_bytes > Profile::reference().memory.resident {
        for triad in [false, true] {
            let stream = Stream::new(triad);
            let (noun, bytes) = (stream.noun(), stream.bytes());
            at.solvers.push(Solver {
                noun,
                contender: "machine",
                kernel: None,
                bytes,
                prepared: None,
                timed_by: "clock",
            });
            at.contenders.push(Box::new(stream));
        }
    }
    let timings = interleave(&mut at.contenders, contest.effort);
    let fresh = lines(&problem.facts, "cpu", &at.solvers, &timings);
    found.choices.extend(chosen.and_then(|chosen| judge(&problem.facts, "cpu", &chosen, &fresh)));
    found.lines.extend(fresh);
    found.errors.append(&mut at.errors);
    Ok(())
}
