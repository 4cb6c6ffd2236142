//! Trials of grids with several unknowns per point, from recognition to solution. The sweep's solves have the bits of
//! the serial ones, and the product by diagonals has those of the rows. CG and BiCGStab with both have the bits of the
//! plain loops, recorded or not, on every device.
//!
//! If a device has no schedule for a lattice, level sets replace the sweep, as in a program, and everything else is
//! tested in the same way.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Coeff, EveryMethod, Mat, Order, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Csr, Dia, Format, Grid, Profile, Real};
use spandrel_solvers::factored::{Plans, SharedTriangles};
use spandrel_solvers::{Error, Factored, GmresOptions, Options, Outcome};
use spandrel_sptrsv::sweep::STENCILS;
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Levelset, Plan, Ssor, Sweep};

use super::pairs::{Boxed, converted, on_the_host, options, refused, same};
use crate::case::numbers;
use crate::named::{Workspace, by_plain_loops};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// (specification, unknowns per point, solver, preconditioner)
const CASES: [(&str, usize, &str, &str); 10] = [
    ("system2d:13x12,b=2", 2, "cg", "ic0"),
    ("system2d:12x9,b=3,coupling=full,peclet=4", 3, "bicgstab", "ilu0"),
    ("system2d:11x9,b=4,peclet=2", 4, "bicgstab", "ilu0"),
    ("system2d:9x10,b=5,coupling=full", 5, "cg", "ic0"),
    ("elasticity2d:14x11", 2, "cg", "ssor"),
    ("system3d:8x7x6,b=2,coupling=full", 2, "cg", "ic0"),
    ("system3d:7x6x5,b=3,coupling=full,peclet=3", 3, "bicgstab", "ilu0"),
    ("system3d:6x7x5,b=4", 4, "cg", "ic0"),
    ("system3d:6x6x5,b=5,peclet=1", 5, "bicgstab", "ilu0"),
    ("elasticity3d:7x6x6,nu=0.2", 3, "cg", "ssor"),
];

/// What these trials ask of a backend.
pub trait Grids<T: Real>:
    Spmv<Csr<T>> + Spmv<Dia<T>> + Sptrsv<Sweep<T>> + Sptrsv<Levelset<T>> + EveryMethod<T> + 'static
{
}
impl<T: Real, B: Spmv<Csr<T>> + Spmv<Dia<T>> + Sptrsv<Sweep<T>> + Sptrsv<Levelset<T>> + EveryMethod<T> + 'static>
    Grids<T> for B
{
}

/// M^-1 by the sweep, or by level sets if the device has no schedule for it, and whether its bits are those of the
/// plain loops.
fn precond<T: Real, D: Grids<T>>(be: &D, csr: &Csr<T>, name: &str) -> Result<(Boxed<T, D>, bool), Finding> {
    fn factored<T: Real, D: Grids<T>, F: Factor<Value = T>>(
        be: &D,
        csr: &Csr<T>,
    ) -> Result<(Boxed<T, D>, bool), Finding> {
        match Factored::<D, Sweep<T>, F>::new(be, csr) {
            Ok(made) => {
                let stored = made.is_stored_order(be);
                Ok((Box::new(made), stored))
            }
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {
                let made = Factored::<D, Levelset<T>, F>::new(be, csr).map_err(refused)?;
                let stored = made.is_stored_order(be);
                Ok((Box::new(made), stored))
            }
            Err(error) => Err(refused(error)),
        }
    }
    match name {
        "ilu0" => factored::<T, D, Ilu0<T>>(be, csr),
        "ic0" => factored::<T, D, Ic0<T>>(be, csr),
        _ => factored::<T, D, Ssor<T>>(be, csr),
    }
}

/// M^-1 by the sweep as planned for a GPU, where unknowns may be an axis; `None` if it has no kernels for that.
fn for_a_gpu<T: Real, D: Grids<T>>(be: &D, csr: &Csr<T>, name: &str) -> Result<Option<Boxed<T, D>>, Finding> {
    fn planned<T: Real, D: Grids<T>, F: Factor<Value = T>>(
        be: &D,
        csr: &Csr<T>,
    ) -> Result<Option<Boxed<T, D>>, Finding> {
        let failed = |error| refused(Error::Triangle(error));
        let factor = F::symbolic(csr).map_err(failed)?;
        let numeric = factor.numeric(csr.values()).map_err(failed)?;
        let triangles: SharedTriangles<T> = factor.triangles(numeric).map_err(failed)?.into();
        let gpu = Profile::invented(&STENCILS);
        let with_kernels = |triangle: &Arc<_>, systems| {
            let plan = Sweep::analyze_for(Arc::clone(triangle), systems, &gpu).map_err(drop)?;
            if plan.lattice().is_one_of(&STENCILS) { Ok(plan) } else { Err(()) }
        };
        let Ok(plans) = Plans::planned(&triangles, with_kernels) else { return Ok(None) };
        Ok(Some(Box::new(Factored::load(be, factor, plans).map_err(refused)?)))
    }
    match name {
        "ilu0" => planned::<T, D, Ilu0<T>>(be, csr),
        "ic0" => planned::<T, D, Ic0<T>>(be, csr),
        _ => planned::<T, D, Ssor<T>>(be, csr),
    }
}

/// One solve by the product of diagonals.
fn solve<T: Real, D: Grids<T>>(
    be: &D,
    a: &Mat<D, Dia<T>>,
    solver: &str,
    m: &Boxed<T, D>,
    b: &[T],
    options: &Options,
) -> Result<(Vec<T>, Outcome), Finding> {
    let (b, mut x) = (be.upload(b)?, be.zeros(b.len())?);
    let workspace = Workspace::by_name(be, be.len(&b), solver, GmresOptions::default().restart);
    let outcome = workspace.and_then(|mut workspace| workspace.solve(be, a, m, &b, &mut x, options));
    Ok((be.download(&x)?, outcome.map_err(refused)?))
}

/// A x, each row summed in the order of its columns.
fn product<T: Real>(a: &Csr<T>, x: &[T]) -> Vec<T> {
    let row = |i: usize| {
        let (cols, values) = a.row(i);
        cols.iter().zip(values).fold(T::zero(), |sum, (&j, &v)| v.mul_add(x[j as usize], sum))
    };
    (0..a.nrows()).map(row).collect()
}

fn check<T: Real, D: Grids<T>>(fleet: &Fleet<D>, spec: &str, unknowns: usize, solver: &str, name: &str) -> Verdict {
    let csr = converted::<T>(&crate::generated(spec)?)?;
    let grid = Grid::detect(&csr).map_err(|why| wrong(format!("{spec} is no grid: {why}")))?;
    if (grid.unknowns, grid.exact) != (unknowns, true) {
        return Err(wrong(format!("expected {unknowns} unknowns per point, found {grid}")));
    }
    let (n, host) = (csr.nrows(), on_the_host(&csr, name)?);
    let (r, first) = (numbers::<T>(31, n), options::<T>());
    let mut found: Option<(Vec<T>, Outcome)> = None;
    for (label, be) in &fleet.devices {
        let (m, stored) = precond::<T, D>(be, &csr, name)?;
        let dia = Mat::<D, Dia<T>>::load(be, Dia::from_csr(&csr)?)?;
        let diagonals = Spmv::<Dia<T>>::order(be) == Order::Stored;
        let x = be.upload(&r)?;
        if let Some(host) = host.as_ref().filter(|_| stored) {
            let mut z = be.upload(&vec![T::nan(); n])?;
            m.apply(be, None, &x, &mut z)?;
            if let Some(detail) = difference(&be.download(&z)?, &host(&r)) {
                return Err(wrong(format!("{label}: M^-1 r against the serial solves: {detail}")));
            }
        }
        match for_a_gpu::<T, D>(be, &csr, name)? {
            Some(m) => {
                let mut z = be.upload(&vec![T::nan(); n])?;
                m.apply(be, None, &x, &mut z)?;
                let z = be.download(&z)?;
                if let Some(detail) = host.as_ref().and_then(|host| difference(&z, &host(&r))) {
                    return Err(wrong(format!("{label}: M^-1 r as planned for a GPU: {detail}")));
                }
            }
            None if spec.starts_with("elasticity2d") => {
                return Err(wrong("the unknowns of a plane's points are no axis for a GPU"));
            }
            None => {}
        }
        if diagonals {
            let mut y = be.upload(&vec![T::nan(); n])?;
            dia.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
            if let Some(detail) = difference(&be.download(&y)?, &product(&csr, &r)) {
                return Err(wrong(format!("{label}: A x by diagonals against the rows: {detail}")));
            }
        }
        let solved = solve(be, &dia, solver, &m, &r, &first)?;
        if !solved.1.status.is_converged() || solved.1.true_residual > first.rtol_for::<T>() {
            return Err(wrong(format!("{label}: expected convergence, found {:?}", solved.1)));
        }
        if !(stored && diagonals) {
            continue;
        }
        let plain = solve(be, &dia, solver, &m, &r, &Options { recorded: false, ..first })?;
        same(&format!("{label}, plain against recorded"), &plain, &solved)?;
        if let Some(found) = &found {
            same(label, &solved, found)?;
            continue;
        }
        let restart = GmresOptions::default().restart;
        let answer = by_plain_loops(&csr, host.as_deref(), &r, solver, (restart, &first)).map_err(refused)?;
        let Some((wanted, iterations)) = answer else { return Err(wrong("the plain loops do not converge")) };
        if solved.1.iterations != iterations {
            return Err(wrong(format!("expected {iterations} iterations, found {:?}", solved.1)));
        }
        if let Some(detail) = difference(&solved.0, &wanted) {
            return Err(wrong(format!("x against the plain loops: {detail}")));
        }
        found = Some(solved);
    }
    Ok(())
}

/// The trials of one backend.
pub(crate) fn trials<T: Real, D: Grids<T>>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for (spec, unknowns, solver, name) in CASES {
        let fleet = fleet.clone();
        let case = spec.replace([':', ',', '='], "-");
        // Under the sweep's name, so that a solve that hangs is noticed.
        let label = format!("sptrsv/sweep/{}/{}/{solver}-{name}-{case}", T::NAME, fleet.name);
        out.push(Trial::new(label, move || check::<T, D>(&fleet, spec, unknowns, solver, name)));
    }
}
