//! `spandrel-bench spmv`: every format and peer on every case, checked, then timed interleaved with the machine's own
//! bandwidth; and the quality of `choose`.

use std::sync::Arc;

use anyhow::{Result, bail};
use rayon::prelude::*;
use serde::Serialize;
use spandrel_backend::{Backend, Coeff, Mat, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Coo, Csr, Format, Profile, Real, Traffic, choose, for_each_format};

use crate::case::Case;
use crate::contender::{Contender, Effort, interleave};
use crate::machine::Stream;
use crate::peers::{Faer, Nalgebra, PeerReal, Sprs};
use crate::record::{Line, More};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Stems of the formats, or empty for all.
    pub formats: Vec<String>,
    /// Names of the peers, or empty for none.
    pub peers: Vec<String>,
    /// How long to measure.
    pub effort: Effort,
    /// Whether copy and triad run among the contenders.
    pub machine: bool,
    /// Whether to time COO on one thread, entry by entry, beside the backend's.
    pub serial: bool,
}

/// How good a choice was.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// `"choose"`.
    pub op: &'static str,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`, `"cuda"`.
    pub backend: &'static str,
    /// The matrix.
    pub case: String,
    /// Rows.
    pub n: usize,
    /// Entries.
    pub nnz: usize,
    /// The format that `choose` names.
    pub chosen: String,
    /// The format that was fastest.
    pub best: String,
    /// The time of the chosen format over that of the fastest.
    pub slower: f64,
    /// Milliseconds of the best peer over the chosen format's, on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_best_peer: Option<f64>,
}

/// Our SpMV of one format.
struct Ours<'b, T: PeerReal, F: Format<Value = T>>
where
    Cpu: Spmv<F> + Backend<T>,
{
    be: &'b Cpu,
    mat: Mat<Cpu, F>,
    x: <Cpu as Backend<T>>::Vector,
    y: <Cpu as Backend<T>>::Vector,
}

impl<T: PeerReal, F: Format<Value = T>> Contender for Ours<'_, T, F>
where
    Cpu: Spmv<F> + Backend<T>,
{
    fn noun(&self) -> String {
        F::NAME.into()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn kernel(&self) -> Option<String> {
        self.mat.is_narrow(self.be).then(|| NARROW.into())
    }
    fn bytes(&self) -> u64 {
        self.mat.spmv_bytes()
    }
    fn run(&mut self) {
        self.mat
            .spmv(self.be, None, Coeff::one(), &self.x, Coeff::zero(), &mut self.y)
            .expect("sizes were matched when the contender was made");
    }
    fn poison(&mut self) {
        self.be.fill(None, <T as Real>::from_f64(f64::NAN), &mut self.y).expect("fill does not fail on the CPU");
    }
    fn answer(&self) -> Option<Vec<f64>> {
        let y = self.be.download(&self.y).expect("download does not fail on the CPU");
        Some(y.into_iter().map(|v| v.as_f64()).collect())
    }
}

/// COO on one thread, entry by entry, with which its parallel form is compared.
struct Serial<T> {
    coo: Coo<T>,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: PeerReal> Contender for Serial<T> {
    fn noun(&self) -> String {
        Coo::<T>::NAME.into()
    }
    fn name(&self) -> &'static str {
        "spandrel"
    }
    fn kernel(&self) -> Option<String> {
        Some(SERIAL.into())
    }
    fn bytes(&self) -> u64 {
        self.coo.spmv_bytes()
    }
    fn run(&mut self) {
        self.y.fill(T::default());
        for ((&i, &j), &v) in self.coo.rows().iter().zip(self.coo.cols()).zip(self.coo.values()) {
            self.y[i as usize] += v * self.x[j as usize];
        }
    }
    fn poison(&mut self) {
        self.y.fill(<T as Real>::from_f64(f64::NAN));
    }
    fn answer(&self) -> Option<Vec<f64>> {
        Some(self.y.iter().map(|v| v.as_f64()).collect())
    }
}

/// The name of COO on one thread in the record.
pub const SERIAL: &str = "serial";
/// The record's remark for an f64 matrix whose values the backend stores in f32.
pub(crate) const NARROW: &str = "values in f32";

/// Our SpMV of a format. If the backend stores the values in f32, also as it stores them for a shared matrix, in f64.
fn ours<'b, T: PeerReal, F: Format<Value = T>>(
    be: &'b Cpu,
    csr: &Csr<T>,
    x: &[T],
) -> Result<Vec<Box<dyn Contender + 'b>>>
where
    Cpu: Spmv<F> + Backend<T>,
{
    let Ok(format) = F::from_csr(csr) else { return Ok(Vec::new()) };
    let add = |mat: Mat<Cpu, F>| -> Result<Box<dyn Contender + 'b>> {
        Ok(Box::new(Ours::<T, F> { be, mat, x: be.upload(x)?, y: be.zeros(csr.nrows())? }))
    };
    let mut contenders = vec![add(Mat::load(be, format)?)?];
    if contenders[0].kernel().is_some() {
        let shared = Arc::new(F::from_csr(csr)?);
        contenders.push(add(Mat::load(be, Arc::clone(&shared))?)?);
    }
    Ok(contenders)
}

/// A x in f64, and how far an answer may be from it, row by row.
#[derive(Debug)]
pub(crate) struct Reference {
    rows: Vec<(f64, f64)>,
}

impl Reference {
    /// The bound |y - A x| <= gamma(k + 2) |A| |x| row by row (Higham 2002, section 3.5), for k entries in the row. The
    /// reference is in f64, and its own error is added.
    pub(crate) fn of<T: Real>(csr: &Csr<T>, x: &[T]) -> Self {
        let row = |i: usize| {
            let (cols, values) = csr.row(i);
            let (mut sum, mut size) = (0.0f64, 0.0f64);
            for (&j, &v) in cols.iter().zip(values) {
                let term = v.as_f64() * x[j as usize].as_f64();
                sum += term;
                size += term.abs();
            }
            let k = (cols.len() + 2) as f64;
            let gamma = |u: f64| k * u / (1.0 - k * u);
            (sum, (gamma(T::UNIT_ROUNDOFF) + gamma(<f64 as Real>::UNIT_ROUNDOFF)) * size + f64::MIN_POSITIVE)
        };
        Self { rows: (0..csr.nrows()).into_par_iter().map(row).collect() }
    }

    /// Whether `y` is A x.
    ///
    /// # Errors
    /// The first row that exceeds its bound, in words.
    pub(crate) fn check<Y: Real>(&self, y: &[Y]) -> Result<(), String> {
        if y.len() != self.rows.len() {
            return Err(format!("{} elements, expected {}", y.len(), self.rows.len()));
        }
        let wrong = |&(found, &(sum, bound)): &(f64, &(f64, f64))| {
            let both_not_finite = !sum.is_finite() && !found.is_finite();
            !((found - sum).abs() <= bound || both_not_finite)
        };
        let rows = y.par_iter().map(|v| v.as_f64()).zip(&self.rows);
        match rows.enumerate().find_first(|(_, row)| wrong(row)) {
            Some((i, (found, (sum, bound)))) => Err(format!("row {i}: {found:e}, expected {sum:e} within {bound:e}")),
            None => Ok(()),
        }
    }
}

/// The operand: nothing regular, no cancellation to zero, x_j in [0.5, 1.5).
pub(crate) fn operand<T: Real>(len: usize) -> Vec<T> {
    (0..len).map(|j| T::from_f64(0.5 + (j as f64 * 0.618_033_988_75).fract())).collect()
}

/// Times one case and returns its lines, ours first, and the judgement of `choose` if all formats ran.
pub fn run<T: PeerReal>(be: &Cpu, case: &Case, plan: &Plan) -> Result<(Vec<Line>, Option<Choice>)>
where
    Cpu: Backend<T>,
{
    let csr: Csr<T> = case.load()?;
    let (n, nnz) = (csr.nrows(), csr.nnz());
    let x: Vec<T> = operand(csr.ncols());
    let wanted = |stem: &str| plan.formats.is_empty() || plan.formats.iter().any(|f| f == stem);

    let mut contenders: Vec<Box<dyn Contender + '_>> = Vec::new();
    macro_rules! add_formats {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(if wanted(stringify!($stem)) {
                contenders.extend(ours::<T, spandrel_formats::$Type<T>>(be, &csr, &x)?);
            })*
        };
    }
    for_each_format!(add_formats);
    for peer in &plan.peers {
        contenders.push(match peer.as_str() {
            "sprs" => Box::new(Sprs::new(&csr, &x)),
            "faer" => Box::new(Faer::new(&csr, &x)),
            "nalgebra-sparse" => Box::new(Nalgebra::new(&csr, &x)),
            other => bail!("no peer is called {other}: sprs, faer, nalgebra-sparse"),
        });
    }
    if plan.serial {
        contenders.push(Box::new(Serial { coo: Coo::from_csr(&csr)?, x: x.clone(), y: vec![T::default(); n] }));
    }
    let reference = Reference::of(&csr, &x);
    for c in &mut contenders {
        c.poison();
        c.run();
        let answer = c.answer().unwrap_or_default();
        if let Err(why) = reference.check(&answer) {
            bail!("{}: {} of {} is wrong: {why}", case.name, c.noun(), c.name());
        }
    }
    // If a cache holds the matrix, the rate of memory says nothing.
    if plan.machine && csr.spmv_bytes() > Profile::reference().memory.resident {
        contenders.push(Box::new(Stream::new(false)));
        contenders.push(Box::new(Stream::new(true)));
    }
    let timings = interleave(&mut contenders, plan.effort);

    let gbs = |k: usize| contenders[k].bytes() as f64 / timings[k].ms / 1e6;
    let rate_of = |noun: &str| (0..contenders.len()).find(|&k| contenders[k].noun() == noun).map(gbs);
    let (copy, triad) = (rate_of("copy"), rate_of("triad"));
    let is_peer = |k: usize| !["spandrel", "machine"].contains(&contenders[k].name());
    let best_peer = (0..contenders.len()).filter(|&k| is_peer(k)).map(|k| timings[k].ms).min_by(f64::total_cmp);
    let ours = |k: &usize| contenders[*k].name() == "spandrel";
    let csr_ms = (0..contenders.len()).filter(ours).find(|&k| contenders[k].noun() == "csr").map(|k| timings[k].ms);

    let mut lines = Vec::new();
    for (k, c) in contenders.iter().enumerate() {
        let own = c.name() == "spandrel";
        lines.push(Line {
            op: "spmv",
            noun: c.noun(),
            element: T::NAME,
            backend: "cpu",
            contender: c.name(),
            case: case.name.clone(),
            n,
            nnz,
            ms: timings[k].ms,
            ms_min: timings[k].min,
            ms_max: timings[k].max,
            bytes: c.bytes(),
            gbs: gbs(k),
            of_copy: copy.map(|b| gbs(k) / b),
            of_triad: triad.map(|b| gbs(k) / b),
            ratio_to_best_peer: best_peer.filter(|_| own).map(|p| p / timings[k].ms),
            ratio_to_csr: csr_ms.filter(|_| own).map(|c| c / timings[k].ms),
            more: More { kernel: c.kernel(), ..More::default() },
        });
    }
    let choice = plan.formats.is_empty().then(|| {
        let chosen = choose(&csr, &Profile::reference()).format.to_owned();
        let best = (0..contenders.len()).filter(ours).min_by(|&a, &b| timings[a].ms.total_cmp(&timings[b].ms));
        let at = (0..contenders.len()).filter(ours).find(|&k| contenders[k].noun() == chosen);
        best.zip(at).map(|(best, at)| Choice {
            op: "choose",
            element: T::NAME,
            backend: "cpu",
            case: case.name.clone(),
            n,
            nnz,
            chosen,
            best: contenders[best].noun(),
            slower: timings[at].ms / timings[best].ms,
            ratio_to_best_peer: None,
        })
    });
    Ok((lines, choice.flatten()))
}
