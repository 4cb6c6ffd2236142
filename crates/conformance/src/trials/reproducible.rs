//! The trial of real matrices: with a reproducible [`DeviceSolver`](spandrel::DeviceSolver), two backends make the same
//! choices and return x with the same bits and the same outcome.
//!
//! A matrix that is not square is solved on the host; here its product is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use spandrel::solver::{Builder, SolverBackend};
use spandrel_backend::{Backend, Coeff, Mat};
use spandrel_formats::{Csr, Real, matrix_market};

use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// The limit of iterations of a solve. The bits are equal after any number of iterations.
const ITERATIONS: usize = 200;

/// One trial per Matrix Market file of a folder, or a skipped one without a folder.
pub fn trials<D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, folder: Option<&Path>) -> Vec<Trial>
where
    D: SolverBackend<f64>,
    E: SolverBackend<f64>,
{
    let name = |case: &str| format!("reproducible/auto/f64/{}+{}/{case}", left.name, right.name);
    let Some(folder) = folder else {
        return vec![Trial::skipped(name("all"), "no folder of Matrix Market files is given: --matrices DIR".into())];
    };
    let files = match files(folder) {
        Ok(files) if files.is_empty() => {
            let why = format!("{} has no file that ends in .mtx or .mtx.gz", folder.display());
            return vec![Trial::new(name("all"), || Err(wrong(why)))];
        }
        Ok(files) => files,
        Err(error) => {
            let why = format!("{}: {error}", folder.display());
            return vec![Trial::new(name("all"), || Err(wrong(why)))];
        }
    };
    let trial = |(stem, path): (String, PathBuf)| {
        let (left, right) = (left.clone(), right.clone());
        Trial::new(name(&stem), move || check(&left, &right, &path))
    };
    files.into_iter().map(trial).collect()
}

/// The matrices of a folder with their names, sorted.
pub(super) fn files(folder: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some(stem) = name.strip_suffix(".mtx").or_else(|| name.strip_suffix(".mtx.gz")) {
            files.push((stem.to_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

/// FNV-1a over the bits. All NaNs are equal.
fn hash<T: Real>(x: &[T]) -> u64 {
    x.iter().fold(0xcbf2_9ce4_8422_2325, |hash, x| {
        let bits = if x.is_nan() { f64::NAN.to_bits() } else { x.as_f64().to_bits() };
        bits.to_le_bytes().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

/// x, and in words what was chosen and how the solve ended.
type Answer = (Vec<f64>, String);

fn check<D: SolverBackend<f64>, E: SolverBackend<f64>>(left: &Fleet<D>, right: &Fleet<E>, path: &Path) -> Verdict {
    let csr = matrix_market::read_csr::<f64>(path).map_err(|error| {
        let complex =
            matrix_market::read_header(path).is_ok_and(|header| header.field == matrix_market::Field::Complex);
        if complex { Finding::Skipped(error.to_string()) } else { error.into() }
    })?;
    let csr = Arc::new(csr);
    let ((x, outcome), (other_x, other_outcome)) = (answer(left.first(), &csr)?, answer(right.first(), &csr)?);
    if hash(&x) != hash(&other_x) {
        let detail = difference(&other_x, &x).unwrap_or_else(|| "only the hashes differ".into());
        return Err(wrong(format!(
            "{:016x} by {outcome}, {:016x} by {other_outcome}: {detail}",
            hash(&x),
            hash(&other_x)
        )));
    }
    if outcome != other_outcome {
        return Err(wrong(format!("expected {outcome}, found {other_outcome}")));
    }
    Ok(())
}

/// The answer of a reproducible solver, or A b for a matrix that is not square.
fn answer<B: SolverBackend<f64>>(be: &B, csr: &Arc<Csr<f64>>) -> Result<Answer, Finding> {
    let b = numbers(97, if csr.nrows() == csr.ncols() { csr.nrows() } else { csr.ncols() });
    if csr.nrows() != csr.ncols() {
        let a = Mat::<B, Csr<f64>>::load(be, Arc::clone(csr))?;
        let (b, mut x) = (Backend::<f64>::upload(be, &b)?, Backend::<f64>::zeros(be, csr.nrows())?);
        a.spmv(be, None, Coeff::one(), &b, Coeff::zero(), &mut x)?;
        return Ok((Backend::<f64>::download(be, &x)?, "a product".into()));
    }
    let builder = Builder::default().reproducible(true).max_iterations(ITERATIONS).updatable(false);
    let solved = builder.build_on(be, Arc::clone(csr)).and_then(|mut solver| {
        let solution = solver.solve(be, &b)?;
        let (plan, outcome) = (solver.plan(), &solution.outcome);
        // Only the time of an attempt may differ.
        let mut attempts = solution.attempts.clone();
        attempts.iter_mut().for_each(|attempt| attempt.seconds = 0.0);
        // `{:?}` of f64 is exact, and NaN equals NaN in text.
        let words = format!(
            "{} with {} in {}, {attempts:?}, {outcome:?}",
            solution.method, solution.preconditioner, plan.format
        );
        Ok((solution.x, words))
    });
    solved.or_else(|error| match error {
        spandrel_solvers::Error::Backend(error) => Err(error.into()),
        error => Ok((Vec::new(), format!("the error: {error}"))),
    })
}
