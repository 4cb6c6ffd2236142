//! The trial of real matrices: with the solver, preconditioner (by level sets) and format that `auto` takes, two backends of shared orders give x with the
//! same bits and the same outcome, whatever that is.
//!
//! A matrix that is not square is solved on the host by the program; here its product is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Mat, Order, Preconditioner, Spmv};
use spandrel_formats::{Csr, Format, Real, choose, matrix_market};
use spandrel_solvers::{BiCgStab, Cg, Options, SolverKind};

use super::pairs::{Solves, precond};
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::{EveryFormat, Fleet};
use crate::trial::{Finding, Trial, Verdict, wrong};

/// What a solve is given at most: the bits are equal after any number of iterations or after none.
const ITERATIONS: usize = 200;

/// One trial for each Matrix Market file of a folder; one that is skipped where there is no folder.
pub fn trials<D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, folder: Option<&Path>) -> Vec<Trial>
where
    D: EveryFormat<f64> + Solves<f64>,
    E: EveryFormat<f64> + Solves<f64>,
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

/// FNV-1a over the bits, all NaNs alike.
fn hash<T: Real>(x: &[T]) -> u64 {
    x.iter().fold(0xcbf2_9ce4_8422_2325, |hash, x| {
        let bits = if x.is_nan() { f64::NAN.to_bits() } else { x.as_f64().to_bits() };
        bits.to_le_bytes().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

/// x, and how the solve ended in words.
type Answer = (Vec<f64>, String);

/// What both backends are asked to do.
struct Task {
    csr: Csr<f64>,
    b: Vec<f64>,
}

macro_rules! shared {
    ([$left:ident $right:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        [$((
            stringify!($stem),
            Spmv::<spandrel_formats::$Type<f64>>::order($left),
            Spmv::<spandrel_formats::$Type<f64>>::order($right),
        )),*]
    };
}

macro_rules! dispatch {
    ([$format:ident $task:ident $left:ident $right:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        match $format {
            $(stringify!($stem) => {
                let host = Arc::new(spandrel_formats::$Type::<f64>::from_csr(&$task.csr)?);
                Ok(($task.on($left, &host)?, $task.on($right, &host)?))
            })*
            other => Err(wrong(format!("there is no format {other}"))),
        }
    };
}

fn check<D, E>(left: &Fleet<D>, right: &Fleet<E>, path: &Path) -> Verdict
where
    D: EveryFormat<f64> + Solves<f64>,
    E: EveryFormat<f64> + Solves<f64>,
{
    let csr = matrix_market::read_csr::<f64>(path).map_err(|error| {
        let complex =
            matrix_market::read_header(path).is_ok_and(|header| header.field == matrix_market::Field::Complex);
        if complex { Finding::Skipped(error.to_string()) } else { error.into() }
    })?;
    let b = numbers(97, if csr.nrows() == csr.ncols() { csr.nrows() } else { csr.ncols() });
    let task = Task { csr, b };
    let (here, there) = (left.first(), right.first());
    let format = task.format(here, there)?;
    let both: Result<(Answer, Answer), Finding> =
        spandrel_formats::for_each_format!(dispatch, format, task, here, there);
    let ((x, outcome), (other_x, other_outcome)) = both?;
    if hash(&x) != hash(&other_x) {
        let detail = difference(&other_x, &x).unwrap_or_else(|| "only the hashes differ".into());
        return Err(wrong(format!("x in {format}: {:016x} and {:016x}: {detail}", hash(&x), hash(&other_x))));
    }
    if outcome != other_outcome {
        return Err(wrong(format!("in {format}: expected {outcome}, found {other_outcome}")));
    }
    Ok(())
}

impl Task {
    /// The format that `solve --reproducible` takes: the choice, or the fastest expected of those whose order both share.
    fn format<D: EveryFormat<f64>, E: EveryFormat<f64>>(&self, left: &D, right: &E) -> Result<&'static str, Finding> {
        let orders = spandrel_formats::for_each_format!(shared, left, right);
        let shared = |stem: &str| {
            let order = orders.iter().find(|(name, ..)| *name == stem);
            order.is_some_and(|(_, here, there)| here == there && matches!(here, Order::Stored | Order::Tree))
        };
        let choice = choose(&self.csr);
        if shared(choice.format) {
            return Ok(choice.format);
        }
        let allowed = choice.candidates.iter().filter(|candidate| shared(candidate.name));
        let cost = |nanoseconds: Option<f64>| nanoseconds.unwrap_or(f64::INFINITY);
        allowed
            .min_by(|a, b| cost(a.nanoseconds).total_cmp(&cost(b.nanoseconds)))
            .map(|best| best.name)
            .ok_or_else(|| wrong("no format has an order that both backends share"))
    }

    fn on<F: Format<Value = f64>, B: Spmv<F> + Solves<f64>>(&self, be: &B, host: &Arc<F>) -> Result<Answer, Finding> {
        let a = Mat::<B, F>::load(be, host.clone())?;
        let b = be.upload(&self.b)?;
        let auto = SolverKind::choose(&self.csr);
        // As the program: where the factorisation breaks down, what needs none.
        let (m, _) = precond::<f64, B>(be, &self.csr, auto.precond.as_str())
            .or_else(|_| precond::<f64, B>(be, &self.csr, auto.plain.as_str()))
            .map_err(wrong)?;
        self.solve(be, &a, &b, auto.solver, &m)
    }

    fn solve<F, B>(
        &self,
        be: &B,
        a: &Mat<B, F>,
        b: &<B as Backend<f64>>::Vector,
        solver: SolverKind,
        m: &impl Preconditioner<f64, B>,
    ) -> Result<Answer, Finding>
    where
        F: Format<Value = f64>,
        B: Spmv<F>,
    {
        let n = self.csr.nrows();
        let options = Options { max_iters: Some(ITERATIONS), ..Options::default() };
        let mut x = be.zeros(n)?;
        let outcome = match solver {
            SolverKind::Cg => Cg::new(be, n).and_then(|mut cg| cg.solve(be, a, m, b, &mut x, &options)),
            SolverKind::BiCgStab => {
                BiCgStab::new(be, n).and_then(|mut bicgstab| bicgstab.solve(be, a, m, b, &mut x, &options))
            }
            _ => {
                a.spmv(be, None, Coeff::one(), b, Coeff::zero(), &mut x)?;
                return Ok((be.download(&x)?, "a product".into()));
            }
        };
        // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
        let outcome = outcome.map_or_else(|error| format!("the error: {error}"), |outcome| format!("{outcome:?}"));
        Ok((be.download(&x)?, outcome))
    }
}
