//! Trials of new values for preconditioners: the result has the bits of a new preconditioner, also in a graph that was
//! recorded before; refused values change nothing.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{Backend, Mat, Order, Preconditioner, Recorded, Result, Spmv, Sptrsv, Step};
use spandrel_formats::Csr;
use spandrel_solvers::{
    Amg, AmgBackend, AmgCycle, AmgOptions, BlockJacobi, Chebyshev, Hierarchy, Ilu, Isai, Jacobi, JacobiSweeps, Mixed,
    Multigrid, Ssor,
};
use spandrel_sptrsv::{Ic0, Ilu0, Levelset, Sweep};

use super::precond::Products;
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// What the trials need of a backend.
pub(crate) trait Renews:
    Products + AmgBackend<f32> + Sptrsv<Sweep<f64>> + Sptrsv<Levelset<f64>> + Sptrsv<Levelset<f32>> + 'static
{
}
impl<B> Renews for B where
    B: Products + AmgBackend<f32> + Sptrsv<Sweep<f64>> + Sptrsv<Levelset<f64>> + Sptrsv<Levelset<f32>> + 'static
{
}

/// Whether what was recorded with a preconditioner continues with its new values.
#[derive(Clone, Copy, PartialEq)]
enum Graphs {
    Stay,
    End,
}

const NOUNS: [&str; 13] = [
    "jacobi",
    "block_jacobi-4",
    "ssor",
    "chebyshev",
    "jacobi_sweeps-ic0",
    "jacobi_sweeps-ilu0",
    "isai-ic0",
    "isai-ilu0",
    "mixed-ilu0",
    "mixed-jacobi",
    "mg",
    "amg",
    "mixed-amg",
];

/// Several grids also for few rows.
const AMG: AmgOptions =
    AmgOptions { strength: 0.25, degree: 2, unknowns: 1, coarsest: 8, levels: 25, cycle: AmgCycle::V };

/// Grids whose extents are not powers of two, with few and with many points in a stencil.
const SPECS: [&str; 2] = ["poisson2d:33x17", "d3n27:9x8x7"];

/// The trials of one backend.
pub(crate) fn trials<D: Renews>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for spec in SPECS {
        for noun in NOUNS {
            let fleet = fleet.clone();
            let name = format!("renew-{noun}/csr/f64/{}/{}", fleet.name, spec.replace(':', "-"));
            out.push(Trial::new(name, move || {
                let a = crate::generated(spec)?;
                fleet.devices.iter().try_for_each(|(label, be)| {
                    of_noun(be, noun, &a).map_err(|finding| match finding {
                        Finding::Wrong(text) => Finding::Wrong(format!("{label}: {text}")),
                        other => other,
                    })
                })
            }));
        }
    }
}

type Made<M> = spandrel_solvers::Result<M>;

fn of_noun<D: Renews>(be: &D, noun: &str, a: &Csr<f64>) -> Verdict {
    use Graphs::{End, Stay};
    match noun {
        "jacobi" => check(be, a, Stay, Jacobi::new, Jacobi::update),
        "block_jacobi-4" => {
            let make = |be: &D, a: &_| BlockJacobi::<f64, D>::new(be, a, 4);
            check(be, a, End, make, |m, be, a| m.update(be, a.values()))
        }
        "ssor" => check(be, a, Stay, Ssor::<D, Levelset<f64>>::new, |m, be, a| m.update(be, a.values())),
        "chebyshev" => {
            check(be, a, End, |be: &D, a: &Csr<f64>| Chebyshev::new(be, a.clone(), 4), |m, be, a| m.update(be, a))
        }
        "jacobi_sweeps-ic0" => {
            let make = |be: &D, a: &_| JacobiSweeps::<D, Ic0<f64>>::new(be, a, 4);
            check(be, a, Stay, make, |m, be, a| m.update(be, a.values()))
        }
        "jacobi_sweeps-ilu0" => {
            let make = |be: &D, a: &_| JacobiSweeps::<D, Ilu0<f64>>::new(be, a, 3);
            check(be, a, Stay, make, |m, be, a| m.update(be, a.values()))
        }
        "isai-ic0" => check(be, a, Stay, Isai::<D, Ic0<f64>>::new, |m, be, a| m.update(be, a.values())),
        "isai-ilu0" => check(be, a, Stay, Isai::<D, Ilu0<f64>>::new, |m, be, a| m.update(be, a.values())),
        "mixed-ilu0" => {
            let make = |be: &D, a: &_| Mixed::of(be, a, Ilu::<D, Levelset<f32>>::new);
            let update = |m: &mut Mixed<D, Ilu<D, Levelset<f32>>>, be: &D, a: &Csr<f64>| {
                m.update(be, a, |ilu, be, narrow| ilu.update(be, narrow.values()))
            };
            check(be, a, Stay, make, update)?;
            // The same with values on the device.
            check(be, a, Stay, make, |m, be, a| {
                let values = Backend::<f64>::upload(be, a.values())?;
                m.update_from(be, &values, |ilu, be, narrow| ilu.update(be, &Backend::<f32>::download(be, narrow)?))
            })
        }
        "mixed-jacobi" => {
            let make = |be: &D, a: &_| Mixed::of(be, a, Jacobi::<f32, D>::new);
            check(be, a, Stay, make, |m, be, a| m.update(be, a, Jacobi::update))
        }
        "amg" => {
            // Aggregates stay those of the first values, so what is made anew begins with these, too.
            let first = |be: &D| Amg::<f64, D>::new(be, a, &AMG);
            let make = |be: &D, next: &Csr<f64>| {
                let mut m = first(be)?;
                m.update_from(be, &Mat::load(be, next)?)?;
                Ok(m)
            };
            check(be, a, End, make, |m, be, a| m.update(be, a))?;
            check(be, a, End, make, |m, be, a| m.update_from(be, &Mat::load(be, a)?))?;
            check(be, a, End, make, |m, be, a| m.update_values_from(be, &Backend::<f64>::upload(be, a.values())?))?;
            // A power of two changes no coupling.
            let (mut m, next) = (first(be).map_err(wrong)?, a.map(|v| 4.0 * v));
            m.update(be, others(a, 1)).and_then(|()| m.update(be, &next)).map_err(wrong)?;
            let anew = Amg::<f64, D>::new(be, &next, &AMG).map_err(wrong)?;
            match Spmv::<Csr<f64>>::order(be) == Order::Unordered {
                true => Ok(()),
                false => same("against a new cycle", &applied(be, &m, a.nrows())?, &applied(be, &anew, a.nrows())?),
            }
        }
        "mixed-amg" => {
            let update = |m: &mut Mixed<D, Amg<f32, D>>, be: &D, a: &Csr<f64>| {
                m.update(be, a, |m, be, narrow| m.update(be, narrow))
            };
            let make = |be: &D, next: &Csr<f64>| {
                let mut m = Mixed::of(be, a, |be, narrow| Amg::<f32, D>::new(be, narrow, &AMG))?;
                update(&mut m, be, next)?;
                Ok(m)
            };
            check(be, a, End, make, update)?;
            // The same with values on the device.
            check(be, a, End, make, |m, be, a| {
                let values = Backend::<f64>::upload(be, a.values())?;
                m.update_from(be, &values, |m, be, narrow| m.update_values_from(be, narrow))
            })
        }
        _ => {
            let make = |be: &D, a: &_| Multigrid::new::<Sweep<f64>>(be, &Hierarchy::galerkin(a, None)?);
            check(be, a, Stay, make, Multigrid::update)
        }
    }
}

/// z <- M^-1 r.
struct Application<'a, D: Renews, M> {
    m: &'a RefCell<M>,
    r: &'a <D as Backend<f64>>::Vector,
    z: <D as Backend<f64>>::Vector,
}

// SAFETY: one operation on buffers that live as long as the step. The preconditioner must keep its addresses when it
// takes new values, which is what the trial checks.
unsafe impl<D: Renews, M: Preconditioner<f64, D>> Step<D> for Application<'_, D, M> {
    fn enqueue(&mut self, be: &D) -> Result<()> {
        self.m.borrow().apply(be, None, self.r, &mut self.z)
    }
}

fn same(what: &str, found: &[f64], wanted: &[f64]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

/// M^-1 applied to always the same numbers.
fn applied<D: Renews, M: Preconditioner<f64, D>>(be: &D, m: &M, n: usize) -> Result<Vec<f64>> {
    let r = Backend::<f64>::upload(be, &numbers(7, n))?;
    let mut z = Backend::<f64>::upload(be, &vec![f64::NAN; n])?;
    m.apply(be, None, &r, &mut z)?;
    Backend::<f64>::download(be, &z)
}

/// Other values on the pattern, at another scale; symmetric if the first are.
fn others(a: &Csr<f64>, round: u32) -> Csr<f64> {
    let mut next = a.clone();
    let weight = |i: usize| 1.0 + ((i as u32 * (round + 3)) % 8) as f64 / 32.0;
    for i in 0..a.nrows() {
        let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
        for (v, &j) in next.values_mut()[range].iter_mut().zip(a.row(i).0) {
            *v *= weight(i) * weight(j as usize) * [1.0, 1e30, 3e-200][round as usize % 3];
        }
    }
    next
}

fn check<D: Renews, M: Preconditioner<f64, D>>(
    be: &D,
    a: &Csr<f64>,
    graphs: Graphs,
    make: impl Fn(&D, &Csr<f64>) -> Made<M>,
    update: impl Fn(&mut M, &D, &Csr<f64>) -> Made<()>,
) -> Verdict {
    let n = a.nrows();
    let ordered = [Spmv::<Csr<f64>>::order(be), Spmv::<Csr<f32>>::order(be)].iter().all(|&o| o != Order::Unordered);
    let r = Backend::<f64>::upload(be, &numbers(7, n))?;
    let applied = |m: &M| applied(be, m, n);
    let mut m = make(be, a).map_err(wrong)?;
    let mut before = applied(&m)?;
    // Entries that are not finite, and another matrix, are refused.
    let spoiled = a.map(|v| v * f64::INFINITY);
    let other = crate::generated("poisson2d:16x33")?;
    for round in 0..3 {
        for (what, bad) in [("infinities", &spoiled), ("another pattern", &other)] {
            if update(&mut m, be, bad).is_ok() {
                return Err(wrong(format!("{what}: expected a refusal")));
            }
            if ordered {
                same(&format!("after refused values ({what})"), &applied(&m)?, &before)?;
            }
        }
        let next = others(a, round);
        update(&mut m, be, &next).map_err(wrong)?;
        let found = applied(&m)?;
        if difference(&found, &before).is_none() {
            return Err(wrong(format!("round {round}: the new values change nothing")));
        }
        if ordered {
            same(&format!("round {round} against one made anew"), &found, &applied(&make(be, &next).map_err(wrong)?)?)?;
        }
        before = found;
    }
    if graphs == Graphs::End || !ordered {
        return Ok(());
    }
    // Run plain, captured and replayed, each with other values.
    let (m, z) = (RefCell::new(m), Backend::<f64>::zeros(be, n)?);
    let mut recorded = Recorded::new(be, Application::<D, M> { m: &m, r: &r, z }, true);
    for round in 3..8 {
        let next = others(a, round);
        update(&mut m.borrow_mut(), be, &next).map_err(wrong)?;
        recorded.run()?;
        let found = Backend::<f64>::download(be, &recorded.step().z)?;
        same(&format!("run {} of a graph", round - 2), &found, &applied(&make(be, &next).map_err(wrong)?)?)?;
    }
    Ok(())
}
