//! `spandrel-bench sptrsv --backend cuda`: every plan against cuSPARSE's SpSV, and the device's own copy.
//!
//! A call is x <- T^-1 b; a contender is up to [`clock::CALLS`] calls in one graph, fewer if they would last longer
//! than [`clock::GRAPH_MS`]. Plans are timed in groups that fit the device, with the copy and the peer in each group.
//!
//! The analysis is the host's; the load ends when the device has the triangle in its own layout. The sweep is also
//! timed as analysed on the device from a matrix there ("resident"), as the peer's analysis is. Both are medians of
//! three, or one long run, after a first load that compiles kernels.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Device, Load, Mat, Part, ResidentTri, Sptrsv, Tri};
use spandrel_backend_cuda::{Cuda, Scalar, Vector};
use spandrel_formats::{Csr, Real, Traffic};
use spandrel_sptrsv::{Plan, Serial, Sweep, System, Systems};

use super::clock::{self, Label, Timed, interleave};
use super::cusparse::Cusparse;
use super::plans::{self, Visit};
use super::spmv::copies;
use super::spsv::Solve;
use super::{Gpu, Room};
use crate::case::Case;
use crate::contender::Timing;
use crate::sptrsv::lines::{Solver, judge, lines};
use crate::sptrsv::problem::{Problem, Triangles};
use crate::sptrsv::stages::Way;
use crate::sptrsv::{Chosen, Contest, Findings, chosen_plan, prepared};

/// The largest number of rows for which one thread of a GPU is timed without being requested.
const MOST_ROWS_ALONE: usize = 1 << 18;

struct Operands<T> {
    b: Vector<T>,
    x: RefCell<Vector<T>>,
}

/// A contender, and its description in the record.
struct Member<'a> {
    timed: Timed<'a>,
    solver: Solver,
}

/// The contest for one triangle.
struct Underway<'a, T: Real> {
    gpu: &'a Gpu,
    room: Room,
    contest: &'a Contest,
    chosen: Option<Chosen>,
    problem: &'a Problem<T>,
    operands: Rc<Operands<T>>,
    /// The copies, then the peer.
    standing: Vec<Member<'a>>,
    /// Whether to write their lines.
    standing_written: bool,
    members: Vec<Member<'a>>,
    storage: u64,
    /// Our plans that the backend has.
    seen: Vec<&'static str>,
    found: Findings,
}

/// A line that says why there is no timing.
fn error_line<T: Real>(noun: &str, contender: &str, case: &str, triangle: Option<String>, why: &str) -> Value {
    eprintln!("  {noun} ({contender}): {why}");
    json!({
        "op": "sptrsv", "noun": noun, "type": T::NAME, "backend": "cuda", "contender": contender, "case": case,
        "triangle": triangle, "error": why,
    })
}

impl<'a, T: Real> Underway<'a, T> {
    fn left_out(&mut self, noun: &str, contender: &str, why: &anyhow::Error) {
        let facts = &self.problem.facts;
        let triangle = Some(facts.triangle.to_string());
        self.found.errors.push(error_line::<T>(noun, contender, &facts.case, triangle, &format!("{why:#}")));
    }

    /// Captures a contender and checks its answer, which must replace NaN. The whole graph has run before that.
    fn ready(&self, mut solver: Solver, enqueue: clock::Enqueue<'a>) -> Result<Member<'a>> {
        let label = Label {
            noun: solver.noun.clone(),
            contender: solver.contender,
            kernel: solver.kernel.clone(),
            bytes: solver.bytes,
        };
        let mut timed = Timed::fitted(self.gpu, label, enqueue)?;
        solver.timed_by = if timed.is_captured() { "graph" } else { "events" };
        self.gpu.be.fill(None, T::from_f64(f64::NAN), &mut self.operands.x.borrow_mut())?;
        timed.replay(self.gpu)?;
        let answer: Vec<T> = self.gpu.be.download(&self.operands.x.borrow())?;
        self.problem.check(&answer).map_err(|why| anyhow::anyhow!("wrong answer: {why}"))?;
        Ok(Member { timed, solver })
    }

    fn add_peer(&mut self, library: &Rc<Cusparse>) -> Result<()> {
        let (b, x) = (self.operands.b.device_pointer(), self.operands.x.borrow().device_pointer());
        let solve = Solve::new(self.gpu, library, &self.problem.matrix, b, x)?;
        let solver = Solver {
            noun: "csr".into(),
            contender: "cusparse",
            kernel: Some("SpSV".into()),
            bytes: solve.bytes,
            prepared: Some((solve.analyze_ms, solve.load_ms)),
            timed_by: "graph",
        };
        let storage = solve.storage;
        let member = self.ready(solver, Box::new(move || solve.enqueue()))?;
        self.storage += storage;
        self.standing.push(member);
        Ok(())
    }

    fn add<P: Plan<Value = T>>(&mut self, way: Way) -> Result<()>
    where
        Cuda: Sptrsv<P> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<P>>::Resident: 'static,
    {
        let (plan, analyze_ms) = prepared(|| way.analyze::<P>(&self.problem.matrix, self.gpu.be.profile()))?;
        let storage = plan.storage();
        let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
        anyhow::ensure!(
            storage <= self.room.most,
            "{:.1} GiB of storage, more than {:.1} GiB (--max-gib)",
            gib(storage),
            gib(self.room.most)
        );
        if self.storage + storage > self.room.group {
            self.flush()?;
        }
        let (gpu, plan) = (self.gpu, Arc::new(plan));
        let load = || -> Result<Tri<Cuda, P>> {
            let tri = Tri::load(&gpu.be, Arc::clone(&plan))?;
            gpu.stream().synchronize().context("loading the triangle")?;
            Ok(tri)
        };
        drop(load()?);
        let (tri, load_ms) = prepared(load)?;
        let solver = Solver {
            noun: P::NAME.into(),
            contender: "spandrel",
            kernel: way.label(),
            bytes: plan.sptrsv_bytes(),
            prepared: Some((analyze_ms, load_ms)),
            timed_by: "graph",
        };
        drop(plan);
        let operands = Rc::clone(&self.operands);
        let enqueue = move || {
            let x = &mut *operands.x.borrow_mut();
            Ok(tri.sptrsv(&gpu.be, None, System::Plain, &operands.b, x)?)
        };
        let member = self.ready(solver, Box::new(enqueue))?;
        self.storage += storage;
        self.members.push(member);
        Ok(())
    }

    /// The sweep of a matrix on the device. Load is the copy of the matrix, and analysis is the time in which the
    /// device makes the plan.
    fn add_resident(&mut self) -> Result<()> {
        let (gpu, matrix) = (self.gpu, &self.problem.matrix);
        let csr = matrix.csr();
        // The packed values take a little less than the matrix.
        if self.storage + 2 * csr.storage() > self.room.group {
            self.flush()?;
        }
        let copy = Arc::new(csr.clone());
        let (loaded, load_ms) = prepared(|| {
            let loaded = Mat::<Cuda, Csr<T>>::load(&gpu.be, Arc::clone(&copy))?;
            gpu.stream().synchronize().context("loading the matrix")?;
            Ok(loaded)
        })?;
        drop(copy);
        let part = Part::new(matrix.triangle(), matrix.diagonal(), Systems::Plain);
        let analyze = || -> Result<ResidentTri<Cuda, Sweep<T>>> {
            let tri = ResidentTri::analyze(&gpu.be, &loaded, &part)?;
            gpu.stream().synchronize().context("analysing on the device")?;
            Ok(tri)
        };
        drop(analyze()?);
        let (tri, analyze_ms) = prepared(analyze)?;
        drop(loaded);
        let solver = Solver {
            noun: Sweep::<T>::NAME.into(),
            contender: "spandrel",
            kernel: Some("resident".into()),
            bytes: tri.sptrsv_bytes(),
            prepared: Some((analyze_ms, load_ms)),
            timed_by: "graph",
        };
        let storage = tri.storage();
        let operands = Rc::clone(&self.operands);
        let enqueue = move || {
            let x = &mut *operands.x.borrow_mut();
            Ok(tri.sptrsv(&gpu.be, None, System::Plain, &operands.b, x)?)
        };
        let member = self.ready(solver, Box::new(enqueue))?;
        self.storage += storage;
        self.members.push(member);
        Ok(())
    }

    /// Times the group, writes its lines, and drops it.
    fn flush(&mut self) -> Result<()> {
        if self.members.is_empty() && (self.standing_written || self.standing.is_empty()) {
            return Ok(());
        }
        let mut all: Vec<&mut Timed<'a>> =
            self.standing.iter_mut().chain(&mut self.members).map(|member| &mut member.timed).collect();
        let timings: Vec<Timing> = interleave(self.gpu, &mut all, self.contest.effort)?;
        let solvers: Vec<Solver> = self.standing.iter().chain(&self.members).map(|m| m.solver.clone()).collect();
        let written = if self.standing_written { self.standing.len() } else { 0 };
        let fresh = lines(&self.problem.facts, "cuda", &solvers, &timings);
        self.found.lines.extend(fresh.into_iter().skip(written));
        self.standing_written = true;
        self.members.clear();
        self.storage = 0;
        Ok(())
    }
}

impl<T: Real> Visit<T> for Underway<'_, T> {
    fn visit<P: Plan<Value = T>>(&mut self) -> Result<()>
    where
        Cuda: Sptrsv<P> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<P>>::Resident: 'static,
    {
        self.seen.push(P::NAME);
        if !self.contest.wants(P::NAME, self.chosen.as_ref()) {
            return Ok(());
        }
        // At about a microsecond per row it would take longer than all others together.
        if P::NAME == Serial::<T>::NAME && self.contest.plans.is_empty() && self.problem.facts.n > MOST_ROWS_ALONE {
            self.left_out(
                P::NAME,
                "spandrel",
                &anyhow::anyhow!("one thread alone: name it with --plans to have it timed"),
            );
            return Ok(());
        }
        for way in Way::of::<P>(self.contest) {
            if let Err(why) = self.add::<P>(way) {
                let why = match way.label() {
                    Some(label) => why.context(label),
                    None => why,
                };
                self.left_out(P::NAME, "spandrel", &why);
            }
            // After a device has failed, everything fails. Report it once.
            self.gpu.stream().synchronize().context("the device has failed")?;
        }
        Ok(())
    }
}

/// Times one case.
///
/// # Errors
/// Unknown names; a device that fails. An error of a single contender or triangle becomes a line of the findings.
pub fn run<T: Real>(
    gpu: &Gpu,
    library: Option<&Rc<Cusparse>>,
    case: &Case,
    contest: &Contest,
    room: Room,
) -> Result<Findings> {
    for stem in &contest.plans {
        let known = plans::stems();
        anyhow::ensure!(known.contains(&stem.as_str()), "no plan is called {stem}: {}", known.join(", "));
    }
    let mut found = Findings::default();
    let csr: Csr<T> = case.load()?;
    if csr.nnz() < contest.min_entries {
        return Ok(found);
    }
    let mut triangles = Triangles::of(&csr, contest.factor)?;
    drop(csr);
    for &triangle in &contest.triangles {
        match triangles.take(case, triangle) {
            Ok(problem) => found.add(one(gpu, library, &problem, contest, room)?),
            Err(why) => {
                let (name, triangle) = (&case.name, Some(triangle.to_string()));
                found.errors.push(error_line::<T>("case", "spandrel", name, triangle, &format!("{why:#}")));
            }
        }
    }
    Ok(found)
}

fn one<T: Real>(
    gpu: &Gpu,
    library: Option<&Rc<Cusparse>>,
    problem: &Problem<T>,
    contest: &Contest,
    room: Room,
) -> Result<Findings> {
    let operands = Operands { b: gpu.be.upload(&problem.b)?, x: RefCell::new(gpu.be.zeros(problem.facts.n)?) };
    let chosen = contest.auto.then(|| chosen_plan(&problem.matrix, gpu.be.profile()));
    let mut at = Underway {
        gpu,
        room,
        contest,
        chosen: chosen.clone(),
        problem,
        operands: Rc::new(operands),
        standing: Vec::new(),
        standing_written: false,
        members: Vec::new(),
        storage: 0,
        seen: Vec::new(),
        found: Findings::default(),
    };
    if contest.machine {
        for timed in copies(gpu)? {
            let Label { noun, contender, kernel, bytes } = timed.label.clone();
            let solver = Solver { noun, contender, kernel, bytes, prepared: None, timed_by: "graph" };
            at.standing.push(Member { timed, solver });
        }
    }
    if let Some(Err(why)) = library.map(|library| at.add_peer(library)) {
        at.left_out("csr", "cusparse", &why);
    }
    plans::each(&mut at)?;
    let sweep = Sweep::<T>::NAME;
    if contest.wants(sweep, chosen.as_ref())
        && let Err(why) = at.add_resident()
    {
        at.left_out(sweep, "spandrel", &why.context("resident"));
        gpu.stream().synchronize().context("the device has failed")?;
    }
    at.flush()?;
    for stem in plans::stems() {
        if contest.wants(stem, chosen.as_ref()) && !at.seen.contains(&stem) {
            at.left_out(stem, "spandrel", &anyhow::anyhow!("the CUDA backend has no such plan"));
        }
    }
    let mut found = at.found;
    found.choices.extend(chosen.and_then(|chosen| judge(&problem.facts, "cuda", &chosen, &found.lines)));
    Ok(found)
}
