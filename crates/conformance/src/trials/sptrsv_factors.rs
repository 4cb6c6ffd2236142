//! Trials of the triangular solve on the ILU(0) factors of real matrices, if a folder of them is given.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use spandrel_backend::Sptrsv;
use spandrel_formats::matrix_market;
use spandrel_sptrsv::Plan;

use super::reproducible::files;
use super::sptrsv::{Checked, label, load, values};
use crate::case::seed;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle::{Problem, factors};

/// The largest number of rows for a plan that solves row after row. A GPU takes at least a microsecond for each.
const SERIAL_ROWS: usize = 5000;

/// A file and the factors of its matrix. The first of its trials reads them, and the last drops them.
pub(crate) struct Factors {
    stem: String,
    path: PathBuf,
    checked: OnceCell<Result<Vec<Checked<f64>>, Finding>>,
}

impl Factors {
    /// The Matrix Market files of a folder, sorted.
    pub(crate) fn of(folder: &Path) -> std::io::Result<Vec<Rc<Self>>> {
        let file = |(stem, path)| Rc::new(Self { stem, path, checked: OnceCell::new() });
        Ok(files(folder)?.into_iter().map(file).collect())
    }

    fn checked(&self) -> Result<&[Checked<f64>], Finding> {
        self.checked.get_or_init(|| self.factorise()).as_deref().map_err(Clone::clone)
    }

    fn factorise(&self) -> Result<Vec<Checked<f64>>, Finding> {
        // Whether a file can be read is a separate trial.
        let csr = matrix_market::read_csr::<f64>(&self.path).map_err(|error| Finding::Skipped(error.to_string()))?;
        if csr.nrows() != csr.ncols() {
            return Err(Finding::Skipped(format!("{} x {}: it has no triangular factors", csr.nrows(), csr.ncols())));
        }
        let [lower, upper] = factors(&csr).map_err(|error| wrong(format!("the factors: {error:#}")))?;
        let problem = |matrix| Problem::new(matrix, seed(&self.stem)).map_err(|error| wrong(format!("{error:#}")));
        Ok(vec![Checked::new("L".into(), problem(lower)?)?, Checked::new("U".into(), problem(upper)?)?])
    }
}

/// The trials of one plan on every file.
pub(crate) fn trials<P: Plan<Value = f64>, D: Sptrsv<P> + 'static>(
    fleet: &Rc<Fleet<D>>,
    file: &Rc<Factors>,
    out: &mut Vec<Trial>,
) {
    let (fleet, file) = (fleet.clone(), file.clone());
    let name = label::<P, D>(&fleet, &format!("ilu0-{}", file.stem));
    out.push(Trial::new(name, move || check::<P, D>(&fleet, &file)));
}

fn check<P: Plan<Value = f64>, D: Sptrsv<P>>(fleet: &Fleet<D>, file: &Factors) -> Verdict {
    let mut verdict = Ok(());
    for checked in file.checked()? {
        if P::NAME == "serial" && checked.problem.nrows() > SERIAL_ROWS {
            let rows = checked.problem.nrows();
            return Err(Finding::Skipped(format!("{rows} rows one after the other take a GPU too long")));
        }
        match load::<P, D>(fleet, 1, &checked.problem).and_then(|subjects| values(&subjects, checked, true)) {
            Err(Finding::Refused) => verdict = Err(Finding::Refused),
            Err(Finding::Wrong(text)) => return Err(wrong(format!("{}: {text}", checked.name))),
            other => other?,
        }
    }
    verdict
}
