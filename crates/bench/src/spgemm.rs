//! `spandrel-bench spgemm`: C = A A and A^T, by their phases, on the CPU against sprs and faer, and on a GPU.
//!
//! The symbolic phase makes the pattern of C and everything else that the numeric phase needs. The numeric phase
//! computes the values in memory that exists already. sprs has one call for both. faer's product has a symbolic phase
//! on one thread and a numeric phase on all. Every C is checked before it is timed. Times are medians over rounds in
//! which all contenders take turns.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::reborrow::ReborrowMut;
use faer::sparse::linalg::matmul::{
    SparseMatMulInfo, sparse_sparse_matmul_numeric, sparse_sparse_matmul_numeric_scratch, sparse_sparse_matmul_symbolic,
};
use faer::sparse::{SparseColMat, SymbolicSparseColMat};
use serde_json::{Value, json};
use spandrel_formats::{Csr, SpgemmPlan, Traffic, TransposePlan};

use crate::case::Case;
use crate::contender::{LEAST_ROUNDS, median};

/// The times of one contender: milliseconds of its phases, round by round.
#[derive(Debug, Default)]
pub struct Phases {
    symbolic: Vec<f64>,
    numeric: Vec<f64>,
    whole: Vec<f64>,
}

/// The result of `work` and its milliseconds.
pub fn timed<R>(work: impl FnOnce() -> Result<R>) -> Result<(f64, R)> {
    let start = Instant::now();
    let found = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, found))
}

impl Phases {
    /// Adds a round of both phases.
    pub fn push(&mut self, symbolic: f64, numeric: f64) {
        self.symbolic.push(symbolic);
        self.numeric.push(numeric);
        self.whole.push(symbolic + numeric);
    }
}

/// What is known about a product apart from its times.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Entries of C.
    pub nnz: usize,
    /// Multiplications of the numeric phase.
    pub multiplications: u64,
    /// Bytes of the numeric phase: A twice, as two factors, and C's pattern and values.
    pub bytes: u64,
}

impl Product {
    /// The size of a matrix and its square.
    pub fn of(a: &Csr<f64>, c: &Csr<f64>, multiplications: u64) -> Self {
        Self { nnz: c.values().len(), multiplications, bytes: 2 * a.storage() + c.storage() }
    }
}

/// The line of one contender; `op` is `"spgemm"` or `"transpose"`.
pub fn line(
    op: &str,
    case: &Case,
    a: &Csr<f64>,
    backend: &str,
    contender: &str,
    product: Product,
    phases: &Phases,
) -> Value {
    let [symbolic_ms, numeric_ms, whole_ms] = [&phases.symbolic, &phases.numeric, &phases.whole].map(|p| median(p));
    let gbs = numeric_ms.map(|ms| product.bytes as f64 / ms / 1e6);
    json!({
        "op": op, "noun": "csr", "type": "f64", "backend": backend, "contender": contender, "case": case.name,
        "n": a.row_ptr().len() - 1, "nnz": a.values().len(), "nnz_made": product.nnz,
        "multiplications": product.multiplications, "symbolic_ms": symbolic_ms, "numeric_ms": numeric_ms,
        "whole_ms": whole_ms, "bytes": product.bytes, "gbs": gbs,
    })
}

/// A readable line.
pub fn summary(line: &Value) -> String {
    let ms = |key: &str| line[key].as_f64().map_or("-".into(), |ms| format!("{ms:.3}"));
    format!(
        "{} {} {}: symbolic {} ms, numeric {} ms, both {} ms",
        line["case"].as_str().unwrap_or_default(),
        line["op"].as_str().unwrap_or_default(),
        line["contender"].as_str().unwrap_or_default(),
        ms("symbolic_ms"),
        ms("numeric_ms"),
        ms("whole_ms"),
    )
}

/// Compares values with ours, which are summed in another order. The bound is that of the sums of magnitudes.
fn near(what: &str, found: &[f64], ours: &[f64], magnitudes: &[f64]) -> Result<()> {
    ensure!(found.len() == ours.len(), "{what} has {} entries, expected {}", found.len(), ours.len());
    // Each sum has fewer terms than this.
    let bound = 1e4 * f64::EPSILON;
    let at = found.iter().zip(ours).zip(magnitudes).position(|((f, o), m)| (f - o).abs() > bound * m || f.is_nan());
    match at {
        Some(at) => Err(anyhow::anyhow!("{what}: entry {at} is {:e}, expected {:e}", found[at], ours[at])),
        None => Ok(()),
    }
}

/// faer's matrices are those of the transposed product, whose columns are our rows.
struct Faer {
    a: SparseColMat<u32, f64>,
    c: SparseColMat<u32, f64>,
    info: SparseMatMulInfo,
}

impl Faer {
    fn symbolic(a: &SparseColMat<u32, f64>) -> Result<(SymbolicSparseColMat<u32>, SparseMatMulInfo)> {
        sparse_sparse_matmul_symbolic(a.symbolic(), a.symbolic()).ok().context("faer's symbolic phase")
    }

    fn new(a: &Csr<f64>) -> Result<Self> {
        let (n, ncols, row_ptr, col_idx, values) = a.clone().into_parts();
        let a = SparseColMat::new(SymbolicSparseColMat::new_checked(ncols, n, row_ptr, None, col_idx), values);
        let (pattern, info) = Self::symbolic(&a)?;
        let nnz = pattern.row_idx().len();
        Ok(Self { a, c: SparseColMat::new(pattern, vec![f64::NAN; nnz]), info })
    }

    fn numeric(&mut self) {
        let par = faer::Par::rayon(0);
        let scratch = sparse_sparse_matmul_numeric_scratch::<u32, f64>(self.c.symbolic(), par);
        let mut memory = MemBuffer::new(scratch);
        let (a, stack) = (self.a.as_ref(), MemStack::new(&mut memory));
        sparse_sparse_matmul_numeric(self.c.rb_mut(), faer::Accum::Replace, a, a, 1.0, &self.info, par, stack);
    }
}

/// Times one case on the CPU.
///
/// # Errors
/// A matrix that cannot be read or is not square; a peer with another product.
pub fn run(case: &Case, peers: &[String], rounds: usize) -> Result<Vec<Value>> {
    let a: Csr<f64> = case.load()?;
    ensure!(a.row_ptr().len() - 1 == spandrel_formats::Format::ncols(&a), "{}: A A needs a square matrix", case.name);
    let has = |peer: &str| peers.iter().any(|name| name == peer);
    let (plan, mut c) = SpgemmPlan::symbolic(&a, &a)?;
    plan.numeric(&a, &a, &mut c)?;
    let of = Product::of(&a, &c, plan.multiplications());
    let absolute = a.map(f64::abs);
    let magnitudes = spandrel_formats::product(&absolute, &absolute)?;
    let mut faer = if has("faer") { Some(Faer::new(&a)?) } else { None };
    if let Some(faer) = &mut faer {
        faer.numeric();
        near("faer's product", faer.c.val(), c.values(), magnitudes.values())?;
    }
    let sprs = has("sprs").then(|| a.as_sprs());
    if let Some(sprs) = &sprs {
        let mut theirs = sprs * sprs;
        // Its columns are not sorted.
        theirs = theirs.to_other_storage().to_other_storage();
        near("sprs' product", theirs.data(), c.values(), magnitudes.values())?;
    }
    drop(magnitudes);
    let (transpose, mut t) = TransposePlan::symbolic(&a)?;
    let (mut ours, mut of_faer, mut of_sprs, mut transposed) =
        (Phases::default(), Phases::default(), Phases::default(), Phases::default());
    for _ in 0..rounds.max(LEAST_ROUNDS) {
        let (symbolic, (plan, mut c)) = timed(|| Ok(SpgemmPlan::symbolic(&a, &a)?))?;
        // Time the second run, because the first also touches new memory, unlike the numeric phases of the others.
        plan.numeric(&a, &a, &mut c)?;
        let (numeric, ()) = timed(|| Ok(plan.numeric(&a, &a, &mut c)?))?;
        ours.push(symbolic, numeric);
        if let Some(faer) = &mut faer {
            let (symbolic, _) = timed(|| Faer::symbolic(&faer.a))?;
            let (numeric, ()) = timed(|| {
                faer.numeric();
                Ok(())
            })?;
            of_faer.push(symbolic, numeric);
        }
        if let Some(sprs) = &sprs {
            of_sprs.whole.push(timed(|| Ok(sprs * sprs))?.0);
        }
        let (symbolic, _) = timed(|| Ok(TransposePlan::symbolic(&a)?))?;
        let (numeric, ()) = timed(|| Ok(transpose.numeric(&a, &mut t)?))?;
        transposed.push(symbolic, numeric);
    }
    let mut lines = vec![line("spgemm", case, &a, "cpu", "spandrel", of, &ours)];
    if faer.is_some() {
        lines.push(line("spgemm", case, &a, "cpu", "faer", of, &of_faer));
    }
    if sprs.is_some() {
        lines.push(line("spgemm", case, &a, "cpu", "sprs", of, &of_sprs));
    }
    // One position, one value read and one value written per entry.
    let nnz = a.values().len();
    let of = Product { nnz, multiplications: 0, bytes: 20 * nnz as u64 };
    lines.push(line("transpose", case, &a, "cpu", "spandrel", of, &transposed));
    Ok(lines)
}
