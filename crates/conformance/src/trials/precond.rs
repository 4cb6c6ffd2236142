//! Trials of preconditioners that are products, and of mixed precision: the same bits recorded or not and on every
//! device, gates, converging solves; two backends with the same order give the same answer.

use std::rc::Rc;

use spandrel_backend::{Backend, EveryMethod, Mat, MixedPrecision, Order, Preconditioner, Recorded, Spmv, Step};
use spandrel_formats::{Bsr, Csr};
use spandrel_solvers::options::Watcher;
use spandrel_solvers::{
    Amg, AmgBackend, AmgCycle, AmgOptions, BlockJacobi, Cg, Chebyshev, Isai, Jacobi, JacobiSweeps, Mixed, Narrowed,
    Options, Outcome, Refine,
};
use spandrel_sptrsv::{Ic0, Ilu0};

use crate::case::numbers;
use crate::named::Workspace;
use crate::reference::difference;
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Finding, Trial, Verdict, wrong};

/// What the trials need of a backend.
pub(crate) trait Products:
    MixedPrecision
    + AmgBackend<f64>
    + Spmv<Csr<f64>>
    + Spmv<Csr<f32>>
    + Spmv<Bsr<f64>>
    + Spmv<Bsr<f32>>
    + EveryMethod<f64>
    + EveryMethod<f32>
{
}
impl<
    B: MixedPrecision
        + AmgBackend<f64>
        + Spmv<Csr<f64>>
        + Spmv<Csr<f32>>
        + Spmv<Bsr<f64>>
        + Spmv<Bsr<f32>>
        + EveryMethod<f64>
        + EveryMethod<f32>,
> Products for B
{
}

/// The methods, with each placement of a preconditioner.
const METHODS: [&str; 6] = ["cg", "bicgstab", "bicgstab-left", "gmres", "gmres-left", "gmres-flexible"];
/// Short cycles, so that they are replayed.
const RESTART: usize = 20;

type Wide<D> = <D as Backend<f64>>::Vector;
type Boxed<D> = Box<dyn Preconditioner<f64, D>>;

/// The preconditioners, and the format whose order they have.
const NOUNS: [(&str, &str); 11] = [
    ("amg", "csr"),
    ("amg-k", "csr"),
    ("block_jacobi-4", "bsr"),
    ("block_jacobi-7", "bsr"),
    ("chebyshev", "csr"),
    ("jacobi_sweeps-ic0", "csr"),
    ("jacobi_sweeps-ilu0", "csr"),
    ("isai-ic0", "csr"),
    ("isai-ilu0", "csr"),
    ("mixed-jacobi", "vector"),
    ("mixed-block_jacobi", "bsr"),
];

fn make<D: Products + 'static>(be: &D, noun: &str, a: &Csr<f64>) -> spandrel_solvers::Result<Boxed<D>> {
    Ok(match noun {
        "amg" => Box::new(Amg::new(be, a, &AmgOptions { coarsest: 8, ..AmgOptions::default() })?),
        "amg-k" => {
            let options = AmgOptions { coarsest: 8, cycle: AmgCycle::K, ..AmgOptions::default() };
            Box::new(Amg::new(be, a, &options)?)
        }
        "block_jacobi-4" => Box::new(BlockJacobi::<f64, D>::new(be, a, 4)?),
        "block_jacobi-7" => Box::new(BlockJacobi::<f64, D>::new(be, a, 7)?),
        "chebyshev" => Box::new(Chebyshev::new(be, a.clone(), 4)?),
        "jacobi_sweeps-ic0" => Box::new(JacobiSweeps::<D, Ic0<f64>>::new(be, a, 4)?),
        "jacobi_sweeps-ilu0" => Box::new(JacobiSweeps::<D, Ilu0<f64>>::new(be, a, 3)?),
        "isai-ic0" => Box::new(Isai::<D, Ic0<f64>>::new(be, a)?),
        "isai-ilu0" => Box::new(Isai::<D, Ilu0<f64>>::new(be, a)?),
        "mixed-jacobi" => Box::new(Mixed::of(be, a, Jacobi::<f32, D>::new)?),
        "mixed-block_jacobi" => Box::new(Mixed::of(be, a, |be, a| BlockJacobi::<f32, D>::new(be, a, 4))?),
        other => {
            let why = format!("the preconditioner {other:?} of a trial is unknown");
            return Err(spandrel_solvers::Error::Unsupported { why });
        }
    })
}

/// Whether each run has the same bits as every other.
fn repeats<D: Products>(be: &D, format: &str) -> bool {
    format != "csr" || Spmv::<Csr<f64>>::order(be) != Order::Unordered
}

/// z <- M^-1 r.
struct Application<'a, D: Products> {
    m: &'a Boxed<D>,
    r: Wide<D>,
    z: Wide<D>,
}

// SAFETY: one operation on buffers that it owns; the preconditioner keeps its own by the contract of its trait.
unsafe impl<D: Products> Step<D> for Application<'_, D> {
    fn enqueue(&mut self, be: &D) -> spandrel_backend::Result<()> {
        self.m.apply(be, None, &self.r, &mut self.z)
    }
}

fn applied<D: Products>(be: &D, m: &Boxed<D>, state: GateState, r: &[f64]) -> Result<Vec<f64>, Finding> {
    let before = if state == GateState::Stopped { 42.0 } else { f64::NAN };
    let monitor = gate::<f64, D>(be, state)?;
    let (r, mut z) = (Backend::<f64>::upload(be, r)?, Backend::<f64>::upload(be, &vec![before; r.len()])?);
    m.apply(be, monitor.as_ref(), &r, &mut z)?;
    Ok(Backend::<f64>::download(be, &z)?)
}

fn same(what: &str, found: &[f64], wanted: &[f64]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

fn options() -> Options {
    Options { rtol: Some(1e-10), check_every: 4, ..Options::default() }
}

fn solved<D: Products + 'static>(
    be: &D,
    noun: &str,
    method: &str,
    a: &Csr<f64>,
    options: &Options,
) -> Result<(Outcome, Vec<f64>), Finding> {
    let (m, n) = (make(be, noun, a).map_err(wrong)?, a.nrows());
    let device = Mat::<D, Csr<f64>>::load(be, a.clone())?;
    let (b, mut x) = (Backend::<f64>::upload(be, &numbers(5, n))?, Backend::<f64>::zeros(be, n)?);
    let workspace = Workspace::by_name(be, n, method, RESTART);
    let outcome = workspace.and_then(|mut workspace| workspace.solve(be, &device, &m, &b, &mut x, options));
    Ok((outcome.map_err(wrong)?, Backend::<f64>::download(be, &x)?))
}

fn refined<D: Products>(be: &D, a: &Csr<f64>, options: &Options) -> Result<(Outcome, Vec<f64>), Finding> {
    let n = a.nrows();
    let Narrowed { matrix, exponent } = Narrowed::new(a);
    let m = Jacobi::<f32, D>::new(be, &matrix).map_err(wrong)?;
    let narrow = Mat::<D, Csr<f32>>::load(be, matrix)?;
    let wide = Mat::<D, Csr<f64>>::load(be, a.clone())?;
    let mut cg = Cg::<f32, D>::new(be, n).map_err(wrong)?;
    let inner = |be: &D, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
        cg.solve_watched(be, &narrow, &m, r, d, options, watcher)
    };
    let (b, mut x) = (Backend::<f64>::upload(be, &numbers(5, n))?, Backend::<f64>::zeros(be, n)?);
    let mut refine = Refine::new(be, n).map_err(wrong)?;
    let outcome = refine.solve(be, &wide, exponent, inner, &b, &mut x, options).map_err(wrong)?;
    Ok((outcome, Backend::<f64>::download(be, &x)?))
}

fn same_solve(what: &str, found: &(Outcome, Vec<f64>), wanted: &(Outcome, Vec<f64>)) -> Verdict {
    same(&format!("x, {what}"), &found.1, &wanted.1)?;
    let (found, wanted) = (format!("{:?}", found.0), format!("{:?}", wanted.0));
    if found == wanted { Ok(()) } else { Err(wrong(format!("outcome, {what}: expected {wanted}, found {found}"))) }
}

fn converged((outcome, _): &(Outcome, Vec<f64>), rtol: f64) -> Verdict {
    if outcome.status.is_converged() && outcome.true_residual <= rtol {
        return Ok(());
    }
    Err(wrong(format!("expected a true residual of {rtol:e}, found {outcome:?}")))
}

fn check<D: Products + 'static>(fleet: &Fleet<D>, noun: &str, format: &str, spec: &str) -> Verdict {
    let (be, a) = (fleet.first(), crate::generated(spec)?);
    let (n, m) = (a.nrows(), make(be, noun, &a).map_err(wrong)?);
    let r = numbers::<f64>(3, n);
    let z = applied(be, &m, GateState::None, &r)?;
    same("behind a stopped monitor", &applied(be, &m, GateState::Stopped, &r)?, &vec![42.0; n])?;
    let repeats = repeats(be, format);
    if repeats {
        same("behind a running monitor", &applied(be, &m, GateState::Running, &r)?, &z)?;
        for (label, other) in &fleet.devices[1..] {
            let m = make(other, noun, &a).map_err(wrong)?;
            same(label, &applied(other, &m, GateState::None, &r)?, &z)?;
        }
        // The graph continues with the present contents of r.
        let zeros = || Backend::<f64>::zeros(be, n);
        let step = Application::<D> { m: &m, r: Backend::<f64>::upload(be, &r)?, z: zeros()? };
        let mut recorded = Recorded::new(be, step, true);
        for run in 1..=5 {
            recorded.run()?;
            same(&format!("run {run} of a graph"), &Backend::<f64>::download(be, &recorded.step().z)?, &z)?;
        }
    }
    solves(fleet, noun, usual(noun), format, &a)
}

/// A solve converges, and has the same bits plain and on every device.
fn solves<D: Products + 'static>(fleet: &Fleet<D>, noun: &str, method: &str, format: &str, a: &Csr<f64>) -> Verdict {
    let be = fleet.first();
    let solve = solved(be, noun, method, a, &options())?;
    converged(&solve, 1e-10)?;
    if repeats(be, format) && repeats(be, "csr") {
        let plain = Options { recorded: false, check_every: 7, ..options() };
        same_solve("plain against recorded", &solved(be, noun, method, a, &plain)?, &solve)?;
        for (label, other) in &fleet.devices[1..] {
            same_solve(label, &solved(other, noun, method, a, &options())?, &solve)?;
        }
    }
    Ok(())
}

/// The method with which a preconditioner is tried everywhere.
fn usual(noun: &str) -> &'static str {
    if noun.ends_with("ilu0") { "bicgstab" } else { "cg" }
}

/// The other methods. A product of two different factors is no preconditioner for CG, and a K-cycle only for flexible
/// methods.
fn others(noun: &str) -> impl Iterator<Item = &'static str> {
    let (usual, is_linear) = (usual(noun), noun != "amg-k");
    let takes = move |method: &str| is_linear || ["cg", "bicgstab", "gmres-flexible"].contains(&method);
    METHODS.into_iter().filter(move |&method| method != usual && (method != "cg" || usual == "cg") && takes(method))
}

fn refinement<D: Products>(fleet: &Fleet<D>, spec: &str) -> Verdict {
    let (be, a) = (fleet.first(), crate::generated(spec)?);
    let options = Options { rtol: Some(1e-13), ..options() };
    let solve = refined(be, &a, &options)?;
    converged(&solve, 1e-13)?;
    if repeats(be, "csr") {
        let plain = Options { recorded: false, check_every: 7, ..options };
        same_solve("plain against recorded", &refined(be, &a, &plain)?, &solve)?;
        for (label, other) in &fleet.devices[1..] {
            same_solve(label, &refined(other, &a, &options)?, &solve)?;
        }
    }
    Ok(())
}

/// A stencil with a number of rows that no block size divides, and one with longer rows.
const SPECS: [&str; 2] = ["poisson2d:33x17", "d3n27:9x8x7"];

/// The trials of one backend.
pub(crate) fn trials<D: Products + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for spec in SPECS {
        let case = spec.replace(':', "-");
        for (noun, format) in NOUNS {
            let fleet = fleet.clone();
            let name = format!("{noun}/{format}/f64/{}/{case}", fleet.name);
            out.push(Trial::new(name, move || check(&fleet, noun, format, spec)));
        }
        // Once with each of the other methods.
        for (noun, format) in NOUNS.into_iter().filter(|_| spec == SPECS[0]) {
            for method in others(noun) {
                let fleet = fleet.clone();
                let name = format!("{method}-{noun}/{format}/f64/{}/{case}", fleet.name);
                out.push(Trial::new(name, move || solves(&fleet, noun, method, format, &crate::generated(spec)?)));
            }
        }
        let fleet = fleet.clone();
        let name = format!("refine-cg/csr/f64/{}/{case}", fleet.name);
        out.push(Trial::new(name, move || refinement(&fleet, spec)));
    }
}

/// Two backends: the same bits of z, of x and of the outcome if they declare the same orders.
pub(crate) fn pair<D: Products + 'static, E: Products + 'static>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    out: &mut Vec<Trial>,
) {
    let stored = |orders: [Order; 4]| orders.iter().all(|order| *order == Order::Stored);
    let (l, r) = (left.first(), right.first());
    let csr = [
        Spmv::<Csr<f64>>::order(l),
        Spmv::<Csr<f32>>::order(l),
        Spmv::<Csr<f64>>::order(r),
        Spmv::<Csr<f32>>::order(r),
    ];
    if !stored(csr) {
        let name = format!("precond/csr/f64/{}+{}/orders", left.name, right.name);
        return out.push(Trial::skipped(name, format!("the orders of CSR differ or are nobody else's: {csr:?}")));
    }
    for spec in SPECS {
        let case = spec.replace(':', "-");
        for (noun, format) in NOUNS {
            let (left, right) = (left.clone(), right.clone());
            let name = format!("{noun}/{format}/f64/{}+{}/{case}", left.name, right.name);
            out.push(Trial::new(name, move || {
                let (a, l, r) = (crate::generated(spec)?, left.first(), right.first());
                let values = numbers::<f64>(3, a.nrows());
                let of_left = applied(l, &make(l, noun, &a).map_err(wrong)?, GateState::None, &values)?;
                let of_right = applied(r, &make(r, noun, &a).map_err(wrong)?, GateState::None, &values)?;
                same("one backend against the other", &of_left, &of_right)?;
                same_solve(
                    "one backend against the other",
                    &solved(l, noun, usual(noun), &a, &options())?,
                    &solved(r, noun, usual(noun), &a, &options())?,
                )
            }));
        }
        for (noun, format) in NOUNS.into_iter().filter(|_| spec == SPECS[0]) {
            for method in others(noun) {
                let (left, right) = (left.clone(), right.clone());
                let name = format!("{method}-{noun}/{format}/f64/{}+{}/{case}", left.name, right.name);
                out.push(Trial::new(name, move || {
                    let (a, l, r) = (crate::generated(spec)?, left.first(), right.first());
                    same_solve(
                        "one backend against the other",
                        &solved(l, noun, method, &a, &options())?,
                        &solved(r, noun, method, &a, &options())?,
                    )
                }));
            }
        }
        let (left, right) = (left.clone(), right.clone());
        let name = format!("refine-cg/csr/f64/{}+{}/{case}", left.name, right.name);
        out.push(Trial::new(name, move || {
            let a = crate::generated(spec)?;
            let options = Options { rtol: Some(1e-13), ..options() };
            same_solve(
                "one backend against the other",
                &refined(left.first(), &a, &options)?,
                &refined(right.first(), &a, &options)?,
            )
        }));
    }
}
