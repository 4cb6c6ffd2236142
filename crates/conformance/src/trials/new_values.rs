//! Trials of new values on a resident matrix: products, plain and recorded before, and whole solves have the bits of a
//! newly loaded matrix; refused values change nothing.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{
    Backend, Coeff, Error, EveryMethod, Mat, Order, Recorded, Result, Spmv, SpmvTransposed, Step, UpdateValues,
};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{Cg, Identity, Options, Outcome};

use super::pairs::converted;
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Kinds of rows for which a GPU has different kernels: of one entry, short, long, few, of very different lengths. The
/// last is only for the number of its entries.
const SPECS: [&str; 6] = [
    "banded:n=5000,d=1",
    "poisson2d:67x41",
    "banded:n=9000,d=101",
    "banded:n=700,d=45",
    "powerlaw:n=20000",
    "powerlaw:n=400000",
];

/// The trials of one element type.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: UpdateValues<Csr<T>> + Spmv<Csr<T>> + SpmvTransposed<Csr<T>> + EveryMethod<T> + 'static,
{
    for spec in SPECS {
        // The largest is for the kernels of a GPU.
        if spec == SPECS[5] && D::NAME != "cuda" {
            continue;
        }
        let fleet = fleet.clone();
        let name = format!("update_values/csr/{}/{}/{}", T::NAME, fleet.name, spec.replace(':', "-"));
        out.push(Trial::new(name, move || {
            let csr = converted::<T>(&crate::generated(spec)?)?;
            fleet.devices.iter().try_for_each(|(label, be)| {
                updated(be, &csr).map_err(|finding| match finding {
                    Finding::Wrong(text) => Finding::Wrong(format!("{label}: {text}")),
                    other => other,
                })
            })
        }));
    }
}

/// y <- A x.
struct Product<'a, T: Real, D: Spmv<Csr<T>>> {
    a: &'a RefCell<Mat<D, Csr<T>>>,
    x: &'a D::Vector,
    y: D::Vector,
}

// SAFETY: one operation on buffers that live as long as the step; an update of the matrix leaves their addresses as
// they are.
unsafe impl<T: Real, D: Spmv<Csr<T>>> Step<D> for Product<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> Result<()> {
        self.a.borrow().spmv(be, None, Coeff::one(), self.x, Coeff::zero(), &mut self.y)
    }
}

fn same<T: Real>(what: &str, found: &[T], wanted: &[T]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

fn product<T: Real, D>(be: &D, a: &Mat<D, Csr<T>>, x: &D::Vector) -> Result<[Vec<T>; 2]>
where
    D: Spmv<Csr<T>> + SpmvTransposed<Csr<T>>,
{
    let mut y = be.upload(&vec![T::nan(); a.nrows()])?;
    a.spmv(be, None, Coeff::one(), x, Coeff::zero(), &mut y)?;
    let plain = be.download(&y)?;
    a.spmv_transposed(be, None, Coeff::one(), x, Coeff::zero(), &mut y)?;
    Ok([plain, be.download(&y)?])
}

fn solved<T: Real, D: Spmv<Csr<T>> + EveryMethod<T>>(
    be: &D,
    a: &Mat<D, Csr<T>>,
    b: &<D as Backend<T>>::Vector,
) -> std::result::Result<(Vec<T>, Outcome), Finding> {
    let mut x = be.zeros(a.nrows())?;
    let options = Options { max_iters: Some(12), check_every: 5, ..Options::default() };
    let outcome = Cg::new(be, a.nrows()).and_then(|mut cg| cg.solve(be, a, &Identity, b, &mut x, &options));
    Ok((be.download(&x)?, outcome.map_err(wrong)?))
}

fn updated<T: Real, D>(be: &D, csr: &Csr<T>) -> Verdict
where
    D: UpdateValues<Csr<T>> + Spmv<Csr<T>> + SpmvTransposed<Csr<T>> + EveryMethod<T>,
{
    let nnz = csr.values().len();
    let ordered = Spmv::<Csr<T>>::order(be) != Order::Unordered;
    let transposed = SpmvTransposed::<Csr<T>>::transposed_order(be) != Order::Unordered;
    let mut a = Mat::<D, Csr<T>>::load(be, csr.clone())?;
    let x = be.upload(&numbers::<T>(5, a.ncols()))?;
    // The first product makes the plans, so the graph follows it.
    product(be, &a, &x)?;
    for round in 0..4u64 {
        // Scaled row by row, differently in each round. The last round has the first values again.
        let factors = numbers::<T>(round, nnz);
        let mut fresh = csr.clone();
        if round < 3 {
            fresh.values_mut().iter_mut().zip(&factors).for_each(|(v, f)| *v *= T::from_f64(1.5) + *f);
        }
        if round % 2 == 0 {
            a.update_values(be, fresh.values())?;
        } else {
            a.update_values_from(be, &be.upload(fresh.values())?)?;
        }
        let refusals = [a.update_values(be, &factors[1..]), a.update_values_from(be, &be.zeros(nnz + 1)?)];
        if !refusals.iter().all(|refusal| matches!(refusal, Err(Error::Shape { .. }))) {
            return Err(wrong(format!("values of another number: expected refusals, found {refusals:?}")));
        }
        let loaded = Mat::<D, Csr<T>>::load(be, fresh)?;
        let (found, wanted) = (product(be, &a, &x)?, product(be, &loaded, &x)?);
        if ordered {
            same(&format!("a product after update {round}"), &found[0], &wanted[0])?;
            let (found, wanted) = (solved(be, &a, &x)?, solved(be, &loaded, &x)?);
            same(&format!("x of a solve after update {round}"), &found.0, &wanted.0)?;
            // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
            let (found, wanted) = (format!("{:?}", found.1), format!("{:?}", wanted.1));
            if found != wanted {
                return Err(wrong(format!("a solve after update {round}: expected {wanted}, found {found}")));
            }
        }
        if transposed {
            same(&format!("a transposed product after update {round}"), &found[1], &wanted[1])?;
        }
    }
    if !ordered {
        return Ok(());
    }
    // A graph continues with the new values.
    let (y, a) = (be.upload(&vec![T::nan(); a.nrows()])?, RefCell::new(a));
    let mut step = Recorded::new(be, Product { a: &a, x: &x, y }, true);
    for round in 4..9u64 {
        step.run()?;
        let y = be.download(&step.step().y)?;
        let mut fresh = csr.clone();
        if round > 4 {
            fresh.values_mut().copy_from_slice(&numbers::<T>(round - 1, nnz));
        }
        same(&format!("run {round} of a graph"), &y, &product(be, &Mat::load(be, fresh)?, &x)?[0])?;
        a.borrow_mut().update_values(be, &numbers::<T>(round, nnz))?;
    }
    Ok(())
}
