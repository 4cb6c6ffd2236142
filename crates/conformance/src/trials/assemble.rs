//! Trials of preconditioners that are set up on a device from a resident matrix: factors, solves and errors equal the
//! host's, bit for bit, also after new values. If a device has no way, the host does it.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Assemble, Assembled, Backend, Error as Refusal, Mat, Preconditioner, Sptrsv};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::DeviceFactored;
use spandrel_sptrsv::{Factor, Factors, Ic0, Ilu0, Sweep};

use super::analyze::{Rows, STENCILS, Stencil, csr, rows};
use super::factorize::others;
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// An odd grid of several tiles and blocks of any schedule.
const LARGE: [usize; 3] = [61, 45, 38];

/// What the trials need of a backend.
pub(crate) trait Assembles<T: Real>: Assemble<Ilu0<T>> + Assemble<Ic0<T>> + Sptrsv<Sweep<T>> {}
impl<T: Real, D: Assemble<Ilu0<T>> + Assemble<Ic0<T>> + Sptrsv<Sweep<T>>> Assembles<T> for D {}

/// All trials of one backend.
pub(crate) fn trials<T: Real, D: Assembles<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    of_noun::<T, Ilu0<T>, D>(fleet, out);
    of_noun::<T, Ic0<T>, D>(fleet, out);
}

fn of_noun<T: Real, F: Factor<Value = T>, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: Assemble<F> + Sptrsv<Sweep<T>> + 'static,
{
    for stencil in &STENCILS {
        let sizes = stencil.sizes().iter().chain((stencil.dims == 3).then_some(&LARGE));
        let stem = format!("assemble/{}/{}/{}/{}", F::NAME, T::NAME, fleet.name, stencil.name);
        for &size in sizes {
            let name = format!("{stem}-{}", size.map(|extent| extent.to_string()).join("x"));
            let fleet = fleet.clone();
            out.push(Trial::new(name.clone(), move || on_grid::<T, F, D>(fleet.first(), stencil, size, &name)));
        }
        let (name, fleet) = (format!("{stem}-refused"), fleet.clone());
        out.push(Trial::new(name.clone(), move || refused::<T, F, D>(fleet.first(), stencil, &name)));
    }
}

type Vector<T, D> = <D as Backend<T>>::Vector;

/// z <- M^-1 r over NaN.
fn applied<T: Real, D: Backend<T>>(be: &D, m: &dyn Preconditioner<T, D>, r: &Vector<T, D>) -> Result<Vec<T>, Finding> {
    let mut z = be.upload(&vec![T::nan(); be.len(r)])?;
    m.apply(be, None, r, &mut z)?;
    Ok(be.download(&z)?)
}

/// Compares a device's factors with the host's.
fn factors<T: Real, D: Backend<T>>(be: &D, made: &dyn Assembled<T, D>, host: &Factors<T>, when: &str) -> Verdict {
    if made.shift().to_bits() != host.shift.to_bits() {
        return Err(wrong(format!("{when}, shift: expected {:e}, found {:e}", host.shift, made.shift())));
    }
    for (what, made, host) in [("L", made.made()[0], &host.lower), ("U", made.made()[1], &host.upper)] {
        if let Some(detail) = difference(&be.download(made)?, host) {
            return Err(wrong(format!("{when}, {what} against the host's: {detail}")));
        }
    }
    Ok(())
}

/// The result of a device's set-up.
enum Made<T: Real, D: Backend<T>> {
    Factors(Box<dyn Assembled<T, D>>),
    /// The device found no whole grid.
    LeftToTheHost,
    Refused(String),
}

/// The matrix of a stencil whose factors exist: with a positive diagonal.
fn sound<T: Real>(size: [usize; 3], stencil: &Stencil, name: &str) -> Rows<T> {
    let mut all = rows::<T>(size, &stencil.lower(), None, 0, name);
    for (row, entries) in all.iter_mut().enumerate() {
        entries.iter_mut().filter(|entry| entry.0 as usize == row).for_each(|entry| entry.1 = entry.1.abs());
    }
    all
}

/// Compares the whole set-up with the host's: the same factors or the same words.
fn compare<T: Real, F: Factor<Value = T>, D: Assemble<F>>(
    be: &D,
    a: &Csr<T>,
    what: &str,
) -> Result<Made<T, D>, Finding> {
    let matrix = Mat::<D, Csr<T>>::load(be, a.clone())?;
    let made = Assemble::<F>::assemble(be, matrix.resident());
    drop(matrix);
    let host = F::symbolic(a).and_then(|factor| factor.numeric(a.values()));
    match (made, host) {
        (Ok(None), _) => Ok(Made::LeftToTheHost),
        (Ok(Some(made)), Ok(host)) => factors(be, &*made, &host, what).map(|()| Made::Factors(made)),
        // The text has the row and every number of an error.
        (Err(Refusal::Triangle(made)), Err(host)) if made.to_string() == host.to_string() => {
            Ok(Made::Refused(made.to_string()))
        }
        (made, host) => Err(wrong(format!(
            "{what}: expected {}, found {}",
            host.map_or_else(|error| error.to_string(), |_| "factors".to_owned()),
            made.map_or_else(|error| error.to_string(), |_| "factors".to_owned()),
        ))),
    }
}

/// First values, others, refused ones, and the first again: factors and solves.
fn on_grid<T: Real, F: Factor<Value = T>, D>(be: &D, stencil: &Stencil, size: [usize; 3], name: &str) -> Verdict
where
    D: Assemble<F> + Sptrsv<Sweep<T>> + 'static,
{
    let failed = |error: spandrel_solvers::Error| wrong(error);
    let a = csr(&sound::<T>(size, stencil, name))?;
    let mut made = match compare::<T, F, D>(be, &a, "first values")? {
        Made::Factors(made) => made,
        Made::LeftToTheHost => return Err(Finding::Skipped("left to the host".into())),
        Made::Refused(why) => return Err(wrong(format!("a sound matrix: {why}"))),
    };
    let mut old = DeviceFactored::<D, Sweep<T>, F>::new(be, &a).map_err(failed)?;
    if (made.plan(), made.nnz()) != ("sweep", old.solves().nnz()) {
        return Err(wrong(format!("{} of {} entries", made.plan(), made.nnz())));
    }
    let r = be.upload(&numbers::<T>(5, a.nrows()))?;
    let same = |made: &dyn Assembled<T, D>, old: &DeviceFactored<D, Sweep<T>, F>, when: &str| -> Verdict {
        for turn in 0..2 {
            let (found, expected) = (applied(be, made, &r)?, applied(be, old, &r)?);
            if let Some(detail) = difference(&found, &expected) {
                return Err(wrong(format!("{when}, application {turn}: {detail}")));
            }
        }
        Ok(())
    };
    same(&*made, &old, "first values")?;
    let symbolic = Arc::new(F::symbolic(&a).map_err(wrong)?);
    for (values, when) in [(others(&a), "other values"), (a.values().to_vec(), "the first values again")] {
        let mut nan = values.clone();
        nan[a.nnz() / 2] = T::nan();
        let device = be.upload(&values)?;
        made.update(be, &device)?;
        old.update(be, &device).map_err(failed)?;
        factors(be, &*made, &symbolic.numeric(&values).map_err(wrong)?, when)?;
        same(&*made, &old, when)?;
        let (found, expected) = (made.update(be, &be.upload(&nan)?), symbolic.numeric(&nan));
        let texts =
            (found.err().map(|error| error.to_string()), expected.err().map(|error| Refusal::from(error).to_string()));
        if texts.0 != texts.1 {
            return Err(wrong(format!("NaN after {when}: expected {:?}, found {:?}", texts.1, texts.0)));
        }
        if texts.0.is_some() {
            same(&*made, &old, "after refused values")?;
        }
    }
    match made.update(be, &be.upload(&numbers::<T>(1, a.nnz() + 1))?) {
        Err(Refusal::Shape { .. }) => same(&*made, &old, "after too many values"),
        other => Err(wrong(format!("one value too many: expected a refusal, found {other:?}"))),
    }
}

/// With one wrong entry, a device has the host's words or leaves the matrix to the host.
fn refused<T: Real, F: Factor<Value = T>, D>(be: &D, stencil: &Stencil, name: &str) -> Verdict
where
    D: Assemble<F> + 'static,
{
    let size = match stencil.dims {
        3 => [37, 11, 9],
        2 => [45, 37, 1],
        _ => [900, 1, 1],
    };
    let n: usize = size.iter().product();
    let good = sound::<T>(size, stencil, name);
    let tried = |rows: &Rows<T>, what: &str| compare::<T, F, D>(be, &csr(rows)?, what).map(|_| ());
    for row in [0, 31, 32, n / 2, n / 2 + 7, n - 1] {
        let diagonal = good[row].iter().position(|&(col, _)| col as usize == row).unwrap_or(0);
        let changed = |change: &dyn Fn(&mut Vec<(u32, T)>)| {
            let mut all = good.clone();
            change(&mut all[row]);
            all
        };
        for value in [0.0, -0.0, 1e-30, -1.0, f64::NAN, f64::INFINITY] {
            let spoilt = changed(&|row| row[diagonal].1 = T::from_f64(value));
            tried(&spoilt, &format!("{value} on the diagonal of row {row}"))?;
        }
        tried(&changed(&|row| row[0].1 = T::nan()), &format!("NaN first in row {row}"))?;
        tried(&changed(&|row| row.iter_mut().for_each(|entry| entry.1 = T::zero())), &format!("zeros in row {row}"))?;
        for (at, which) in [(diagonal, "diagonal"), (0, "first"), (good[row].len() - 1, "last")] {
            let mut fewer = good.clone();
            fewer[row].remove(at);
            tried(&fewer, &format!("no {which} entry in row {row}"))?;
        }
        for col in [0, n / 3, row.saturating_sub(size[0] / 2 + 1), (row + size[0] / 2 + 1).min(n - 1), n - 1] {
            let at = good[row].partition_point(|&(c, _)| (c as usize) < col);
            if good[row].get(at).is_none_or(|&(c, _)| c as usize != col) {
                let more = changed(&|row| row.insert(at, (col as u32, T::from_f64(0.125))));
                tried(&more, &format!("an entry at ({row}, {col})"))?;
            }
        }
    }
    let mut two = good.clone();
    for row in [n / 3, 2 * n / 3] {
        two[row].retain(|&(col, _)| col as usize != row);
    }
    tried(&two, "two rows without a diagonal entry")?;
    tried(&good, "a sound matrix afterwards")
}
