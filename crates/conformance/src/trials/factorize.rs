//! Trials of incomplete factorisations on a device: factors and errors equal the host's, bit for bit, on the patterns
//! of all triangles (with their mirror images above the diagonal), and on real matrices if a folder is given.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Backend, Error, Factorize, Load, Preconditioner, Sptrsv};
use spandrel_formats::{Csr, Real, matrix_market};
use spandrel_solvers::{DeviceFactored, Factored};
use spandrel_sptrsv::{Factor, Factors, Pattern, Serial};

use super::reproducible::files;
use crate::case::numbers;
use crate::reference::{difference, same_bytes};
use crate::subject::{EveryFactor, Fleet};
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle::Case;

/// Factorisations one after the other, for a case that is repeated.
const REPEATS: usize = 100;

/// The host's factorisation, each matrix factored once for all devices and repetitions.
struct OnHost<F: Factor> {
    factor: Arc<F>,
    made: RefCell<Vec<(Vec<F::Value>, Rc<HostFactors<F>>)>>,
}

/// The result of the host's factorisation.
type HostFactors<F> = Result<Factors<<F as Factor>::Value>, spandrel_sptrsv::Error>;

impl<F: Factor> OnHost<F> {
    fn factors(&self, values: &[F::Value]) -> Rc<HostFactors<F>> {
        let mut made = self.made.borrow_mut();
        if let Some((_, factors)) = made.iter().find(|(of, _)| same_bytes(of, values)) {
            return factors.clone();
        }
        let factors = Rc::new(self.factor.numeric(values));
        made.push((values.to_vec(), factors.clone()));
        factors
    }
}

/// A factorisation on one device: its resident and the operands.
struct OnDevice<'b, D: Factorize<F>, F: Factor> {
    be: &'b D,
    host: &'b OnHost<F>,
    resident: <D as Load<F>>::Resident,
    vectors: [<D as Backend<F::Value>>::Vector; 3],
}

impl<'b, D: Factorize<F>, F: Factor> OnDevice<'b, D, F> {
    fn new(be: &'b D, host: &'b OnHost<F>) -> Result<Self, Finding> {
        let factor = &host.factor;
        let zeros = |len: usize| Backend::<F::Value>::zeros(be, len);
        let upper = factor.upper().map_or(0, Pattern::nnz);
        Ok(Self {
            be,
            host,
            resident: Load::<F>::load(be, Arc::clone(factor))?,
            vectors: [zeros(factor.nnz_given())?, zeros(factor.lower().nnz())?, zeros(upper)?],
        })
    }

    /// The device's factors of these values, over NaN.
    fn made(&mut self, values: &[F::Value]) -> Result<Result<Factors<F::Value>, Error>, Finding> {
        let nan = <F::Value as num_traits::Float>::nan();
        let [given, lower, upper] = &mut self.vectors;
        self.be.write(values, given)?;
        self.be.fill(None, nan, lower)?;
        self.be.fill(None, nan, upper)?;
        Ok(match self.be.factorize(&self.resident, given, lower, upper) {
            Ok(shift) => Ok(Factors { lower: self.be.download(lower)?, upper: self.be.download(upper)?, shift }),
            Err(error) => Err(error),
        })
    }

    /// Compares them with the host's, or the row where they break down.
    fn compare(&mut self, values: &[F::Value], when: &str) -> Verdict {
        match (self.made(values)?, &*self.host.factors(values)) {
            (Ok(made), Ok(host)) => {
                if made.shift.to_bits() != host.shift.to_bits() {
                    return Err(wrong(format!("{when}, shift: expected {:e}, found {:e}", host.shift, made.shift)));
                }
                for (what, made, host) in [("L", &made.lower, &host.lower), ("U", &made.upper, &host.upper)] {
                    if let Some(detail) = difference(made, host) {
                        return Err(wrong(format!("{when}, {what} against the host's: {detail}")));
                    }
                }
                Ok(())
            }
            // The text has the row and every number of an error.
            (Err(Error::Triangle(made)), Err(host)) if made.to_string() == host.to_string() => Ok(()),
            (made, host) => Err(wrong(format!(
                "{when}: expected {}, found {}",
                host.as_ref().map_or_else(ToString::to_string, |_| "factors".to_owned()),
                made.map_or_else(|error| error.to_string(), |_| "factors".to_owned()),
            ))),
        }
    }
}

/// The matrix of a case in one element type, made by the first of its trials.
struct Shared<T> {
    case: Rc<Case>,
    matrix: OnceCell<Csr<T>>,
}

impl<T: Real> Shared<T> {
    fn matrix(&self) -> Result<&Csr<T>, Finding> {
        if let Some(matrix) = self.matrix.get() {
            return Ok(matrix);
        }
        let matrix = self.case.square().map_err(|error| wrong(format!("the case: {error:#}")))?;
        Ok(self.matrix.get_or_init(|| matrix))
    }
}

/// Other values at the same places, equally dominant.
pub(super) fn others<T: Real>(a: &Csr<T>) -> Vec<T> {
    let scale = |at: usize| T::from_f64(1.0 + 0.0625 * (at % 5) as f64);
    let mut values = a.values().to_vec();
    for i in 0..a.nrows() {
        let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
        for (e, value) in range.clone().zip(&mut values[range]) {
            *value *= if a.col_idx()[e] as usize == i { T::from_f64(1.5) } else { scale(e) };
        }
    }
    values
}

fn each<T: Real, F: Factor<Value = T>, D: Factorize<F>>(
    fleet: &Fleet<D>,
    a: &Csr<T>,
    body: impl Fn(&mut OnDevice<'_, D, F>) -> Verdict,
) -> Verdict {
    let host = OnHost { factor: Arc::new(F::symbolic(a).map_err(wrong)?), made: RefCell::default() };
    for (label, be) in &fleet.devices {
        body(&mut OnDevice::new(be, &host)?).map_err(|finding| match finding {
            Finding::Wrong(text) => Finding::Wrong(format!("{label}: {text}")),
            other => other,
        })?;
    }
    Ok(())
}

/// First values, others, and the first again.
fn values<T: Real, F: Factor<Value = T>, D: Factorize<F>>(fleet: &Fleet<D>, a: &Csr<T>) -> Verdict {
    each::<T, F, D>(fleet, a, |subject| {
        subject.compare(a.values(), "first values")?;
        subject.compare(&others(a), "other values")?;
        subject.compare(a.values(), "the first values again")
    })
}

fn repeated<T: Real, F: Factor<Value = T>, D: Factorize<F>>(fleet: &Fleet<D>, a: &Csr<T>) -> Verdict {
    let others = others(a);
    each::<T, F, D>(fleet, a, |subject| {
        (0..REPEATS).try_for_each(|run| {
            subject.compare(if run % 3 == 1 { &others } else { a.values() }, &format!("factorisation {run}"))
        })
    })
}

/// Breakdowns in the first, a middle and the last row, and in two rows at once. Valid values work as before afterwards.
fn breakdowns<T: Real, F: Factor<Value = T>, D: Factorize<F>>(fleet: &Fleet<D>, a: &Csr<T>) -> Verdict {
    let n = a.nrows();
    let spoilt = |rows: &[usize], change: &dyn Fn(bool, T) -> T| {
        let mut values = a.values().to_vec();
        for &i in rows {
            let range = a.row_ptr()[i] as usize..a.row_ptr()[i + 1] as usize;
            for (e, value) in range.clone().zip(&mut values[range]) {
                *value = change(a.col_idx()[e] as usize == i, *value);
            }
        }
        values
    };
    let on_diagonal = |value: T| move |diagonal: bool, v: T| if diagonal { value } else { v };
    let zero_row = |_: bool, _: T| T::zero();
    each::<T, F, D>(fleet, a, |subject| {
        for rows in [&[0][..], &[n / 2], &[n - 1], &[n / 3, 2 * n / 3]] {
            let mut tried = |what: &str, change: &dyn Fn(bool, T) -> T| {
                subject.compare(&spoilt(rows, change), &format!("{what} in rows {rows:?}"))
            };
            tried("zeros", &zero_row)?;
            tried("a zero on the diagonal", &on_diagonal(T::zero()))?;
            tried("a tiny diagonal", &on_diagonal(T::from_f64(1e-30)))?;
            tried("a small diagonal", &on_diagonal(T::from_f64(1e-3)))?;
            tried("a negative diagonal", &on_diagonal(T::from_f64(-1.0)))?;
            tried("NaN", &on_diagonal(T::nan()))?;
            tried("infinities", &|diagonal, v| if diagonal { v } else { T::infinity() })?;
            tried("large entries", &|diagonal, v| if diagonal { v } else { v * T::from_f64(1e3) })?;
        }
        // Two kinds of error in different rows: the first row decides, or for IC(0) the error that no shift cures.
        let mut two = spoilt(&[n / 3], &on_diagonal(T::from_f64(1e-30)));
        let last = a.row_ptr()[n] as usize - 1;
        two[last] = T::nan();
        subject.compare(&two, "a tiny diagonal, and NaN below")?;
        subject.compare(a.values(), "sound values afterwards")
    })
}

/// Vectors of other lengths are refused and change nothing.
fn lengths<T: Real, F: Factor<Value = T>, D: Factorize<F>>(fleet: &Fleet<D>, a: &Csr<T>) -> Verdict {
    each::<T, F, D>(fleet, a, |subject| {
        let lens = [0, 1, 2].map(|at| subject.be.len(&subject.vectors[at]));
        for at in 0..3 {
            for off in [lens[at] + 1, lens[at].saturating_sub(1)] {
                let mut all = lens;
                all[at] = off;
                if all == lens {
                    continue;
                }
                let [given, before, rest] = all.map(|len| numbers::<T>(1, len));
                let given = subject.be.upload(&given)?;
                let (mut lower, mut upper) = (subject.be.upload(&before)?, subject.be.upload(&rest)?);
                match subject.be.factorize(&subject.resident, &given, &mut lower, &mut upper) {
                    Err(Error::Shape { op: "factorize", found, expected, .. })
                        if (found, expected) == (off, lens[at]) => {}
                    other => return Err(wrong(format!("lengths {all:?}: expected a refusal, found {other:?}"))),
                }
                for (found, before) in [(subject.be.download(&lower)?, before), (subject.be.download(&upper)?, rest)] {
                    if let Some(detail) = difference(&found, &before) {
                        return Err(wrong(format!("after a refusal: {detail}")));
                    }
                }
            }
        }
        subject.compare(a.values(), "afterwards")
    })
}

/// The preconditioner with the device's factors has the bits of that with the host's, also after new values and after
/// refused ones.
fn preconditions<T: Real, F: Factor<Value = T>, D: Factorize<F> + Sptrsv<Serial<T>>>(
    fleet: &Fleet<D>,
    a: &Csr<T>,
) -> Verdict {
    let failed = |error: spandrel_solvers::Error| wrong(error);
    for (label, be) in &fleet.devices {
        let r = Backend::<T>::upload(be, &numbers::<T>(5, a.nrows()))?;
        let z = |m: &dyn Preconditioner<T, D>| -> Result<Vec<T>, Finding> {
            let mut z = Backend::<T>::upload(be, &vec![T::nan(); a.nrows()])?;
            m.apply(be, None, &r, &mut z)?;
            Ok(Backend::<T>::download(be, &z)?)
        };
        let mut host = Factored::<D, Serial<T>, F>::new(be, a).map_err(failed)?;
        let mut device = DeviceFactored::<D, Serial<T>, F>::new(be, a).map_err(failed)?;
        let same = |host: &Factored<D, Serial<T>, F>, device: &DeviceFactored<D, Serial<T>, F>, when: &str| {
            let (expected, found) = (z(host)?, z(device)?);
            difference(&found, &expected).map_or(Ok(()), |detail| Err(wrong(format!("{label}, {when}: {detail}"))))
        };
        same(&host, &device, "first values")?;
        let values = others(a);
        host.update(be, &values).map_err(failed)?;
        device.update(be, &Backend::<T>::upload(be, &values)?).map_err(failed)?;
        same(&host, &device, "other values")?;
        let nan = Backend::<T>::upload(be, &vec![T::nan(); a.nnz()])?;
        if device.update(be, &nan).is_ok() {
            return Err(wrong(format!("{label}: NaN is factored")));
        }
        same(&host, &device, "after refused values")?;
    }
    Ok(())
}

type Body<T, D> = fn(&Fleet<D>, &Csr<T>) -> Verdict;

fn of_noun<T: Real, F: Factor<Value = T>, D: Factorize<F> + Sptrsv<Serial<T>> + 'static>(
    fleet: &Rc<Fleet<D>>,
    shared: &Rc<Shared<T>>,
    out: &mut Vec<Trial>,
) {
    let case = &shared.case;
    // On large patterns, fill takes the host longer than everything else.
    if case.light && matches!(F::NAME, "iluk" | "ilut") {
        return;
    }
    let mut push = |suffix: &str, body: Body<T, D>| {
        let (fleet, shared) = (fleet.clone(), shared.clone());
        let name = format!("factorize/{}/{}/{}/{}{suffix}", F::NAME, T::NAME, fleet.name, case.name);
        out.push(Trial::new(name, move || body(&fleet, shared.matrix()?)));
    };
    push("", values::<T, F, D>);
    if case.special {
        push("-breakdowns", breakdowns::<T, F, D>);
        push("-repeated", repeated::<T, F, D>);
        push("-wrong-lengths", lengths::<T, F, D>);
        push("-preconditions", preconditions::<T, F, D>);
    }
}

macro_rules! each_noun {
    ([$T:ident $D:ident $fleet:ident $shared:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(of_noun::<$T, spandrel_sptrsv::$Type<$T>, $D>($fleet, &$shared, $out);)*
    };
}

/// The trials of one case.
pub(crate) fn trials<T: Real, D: EveryFactor<T> + Sptrsv<Serial<T>> + 'static>(
    fleet: &Rc<Fleet<D>>,
    case: &Rc<Case>,
    out: &mut Vec<Trial>,
) {
    let shared = Rc::new(Shared { case: case.clone(), matrix: OnceCell::new() });
    spandrel_sptrsv::for_each_factor!(each_noun, T, D, fleet, shared, out);
    each_noun!([T D fleet shared out] (ssor, Ssor));
}

/// The matrix of a file, read by the first of its trials.
struct File {
    stem: String,
    path: PathBuf,
    matrix: OnceCell<Result<Csr<f64>, Finding>>,
}

impl File {
    fn matrix(&self) -> Result<&Csr<f64>, Finding> {
        let read = || {
            // Whether a file can be read is a separate trial.
            let csr =
                matrix_market::read_csr::<f64>(&self.path).map_err(|error| Finding::Skipped(error.to_string()))?;
            if csr.nrows() != csr.ncols() {
                let shape = format!("{} x {}: it has no triangular factors", csr.nrows(), csr.ncols());
                return Err(Finding::Skipped(shape));
            }
            Ok(csr)
        };
        self.matrix.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

fn of_file<F: Factor<Value = f64>, D: Factorize<F> + 'static>(
    fleet: &Rc<Fleet<D>>,
    file: &Rc<File>,
    out: &mut Vec<Trial>,
) {
    let (fleet, file) = (fleet.clone(), file.clone());
    let name = format!("factorize/{}/f64/{}/{}", F::NAME, fleet.name, file.stem);
    out.push(Trial::new(name, move || {
        let a = file.matrix()?;
        match F::symbolic(a) {
            Ok(_) => values::<f64, F, D>(&fleet, a),
            Err(error) => Err(Finding::Skipped(error.to_string())),
        }
    }));
}

/// ILU(0) and IC(0) of the matrices of a folder.
///
/// # Errors
/// A folder that cannot be read.
pub(crate) fn of_folder<D>(fleet: &Rc<Fleet<D>>, folder: &Path, out: &mut Vec<Trial>) -> std::io::Result<()>
where
    D: EveryFactor<f64> + 'static,
{
    for (stem, path) in files(folder)? {
        let file = Rc::new(File { stem, path, matrix: OnceCell::new() });
        of_file::<spandrel_sptrsv::Ilu0<f64>, D>(fleet, &file, out);
        of_file::<spandrel_sptrsv::Ic0<f64>, D>(fleet, &file, out);
    }
    Ok(())
}
