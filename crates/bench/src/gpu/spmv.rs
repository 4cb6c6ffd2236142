//! `spandrel-bench spmv --backend cuda`: every format against every algorithm of cuSPARSE, and the device's own copy.
//!
//! A call is y = A x; a contender is [`clock::CALLS`] calls in one graph. Formats are timed in groups that fit the
//! device, each group with the copy and the best peers again, so that a ratio compares neighbours in time. The host
//! holds the case's CSR and one format at a time. Copy: 1 GiB to 1 GiB, bytes read and written.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spandrel_backend::{Backend, Coeff, Device, Load, Spmv};
use spandrel_backend_cuda::cudarc::driver::result::memcpy_dtod_async;
use spandrel_backend_cuda::{BdiaKernel, CooKernel, CsrKernel, Cuda, Scalar, Vector};
use spandrel_formats::choose;
use spandrel_formats::{Bdia, Bsr, Coo, Csr, Format, Real};

use super::clock::{self, Label, Timed, interleave};
use super::cusparse::{Algorithm, Cusparse, Forms};
use super::formats::{self, Visit};
use super::{Gpu, Room, ours};
use crate::case::Case;
use crate::contender::Effort;
use crate::record::{Line, More};
use crate::spmv::{Choice, Reference, SERIAL, operand};

/// Elements of each side of the copy: 1 GiB of f64.
const COPY_LEN: usize = 1 << 27;
/// Copies in one graph.
const COPIES: u32 = 4;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Stems of the formats, or empty for all.
    pub formats: Vec<String>,
    /// How long to measure.
    pub effort: Effort,
    /// Limits of memory.
    pub room: Room,
    /// Matrices with fewer entries are skipped.
    pub min_entries: usize,
    /// Whether to time the copy among the contenders.
    pub machine: bool,
    /// Kernels to time in addition to the backend's choice.
    pub force: Force,
}

/// Kernels in addition to the backend's choice, by their names in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Force {
    /// None.
    None,
    /// Every kernel of CSR and of bDIA, and BSR of blocks of 4 x 4.
    All,
    /// These. They may include COO's [`SERIAL`]: one thread takes a second for a million entries.
    Only(&'static [&'static str]),
}

impl Force {
    /// All or none.
    pub fn all(all: bool) -> Self {
        if all { Self::All } else { Self::None }
    }
    fn wants(&self, kernel: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => kernel != SERIAL,
            Self::Only(kernels) => kernels.contains(&kernel),
        }
    }
}

/// The results of one case.
#[derive(Debug, Default)]
pub struct Findings {
    /// Timings.
    pub lines: Vec<Line>,
    /// What was left out or went wrong, and why.
    pub errors: Vec<Value>,
    /// How good `choose` was.
    pub choice: Option<Choice>,
}

/// A line that says why there is no timing.
pub fn error_line(op: &str, noun: &str, element: &str, contender: &str, case: &str, why: &str) -> Value {
    json!({"op": op, "noun": noun, "type": element, "backend": "cuda", "contender": contender, "case": case, "error": why})
}

/// The device's own copy as contenders: the driver's, and one of our kernels. The faster is the measure.
///
/// # Errors
/// Out of memory.
pub(crate) fn copies(gpu: &Gpu) -> Result<Vec<Timed<'_>>> {
    let bytes = COPY_LEN * 8;
    let from: Rc<Vector<f64>> = Rc::new(gpu.be.zeros(COPY_LEN)?);
    let to: Rc<RefCell<Vector<f64>>> = Rc::new(RefCell::new(gpu.be.zeros(COPY_LEN)?));
    let label = |kernel: &str| Label {
        noun: "copy".into(),
        contender: "machine",
        kernel: Some(kernel.into()),
        bytes: 2 * bytes as u64,
    };
    let (a, b) = (Rc::clone(&from), Rc::clone(&to));
    let by_driver = move || {
        gpu.bind()?;
        let (b, a) = (b.borrow().device_pointer(), a.device_pointer());
        // SAFETY: both vectors have this many bytes and live as long as this closure, which the contender keeps.
        unsafe { memcpy_dtod_async(b, a, bytes, gpu.stream().cu_stream()) }.context("copying on the device")
    };
    let by_kernel = move || Ok(gpu.be.copy(None, &from, &mut to.borrow_mut())?);
    Ok(vec![
        Timed::new(gpu, label("driver"), COPIES, Box::new(by_driver))?,
        Timed::new(gpu, label("kernel"), COPIES, Box::new(by_kernel))?,
    ])
}

struct Operands<T> {
    x: Vector<T>,
    y: RefCell<Vector<T>>,
}

/// The contest for one case.
struct Contest<'a, T: Real> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    case: &'a str,
    csr: Arc<Csr<T>>,
    reference: Reference,
    operands: Rc<Operands<T>>,
    copies: Vec<Timed<'a>>,
    peers: Vec<Timed<'a>>,
    members: Vec<Timed<'a>>,
    storage: u64,
    /// Whether to write the peers' lines.
    peers_written: bool,
    /// Our formats that the backend has.
    seen: Vec<&'static str>,
    found: Findings,
}

impl<'a, T: Real> Contest<'a, T> {
    fn wanted(&self, stem: &str) -> bool {
        self.plan.formats.is_empty() || self.plan.formats.iter().any(|f| f == stem)
    }

    fn left_out(&mut self, noun: &str, contender: &str, why: &anyhow::Error) {
        let line = error_line("spmv", noun, T::NAME, contender, self.case, &format!("{why:#}"));
        eprintln!("  {noun} ({contender}): {why:#}");
        self.found.errors.push(line);
    }

    /// Captures a contender and checks its answer, which must replace NaN.
    fn ready(&self, label: Label, enqueue: clock::Enqueue<'a>) -> Result<Timed<'a>> {
        let mut timed = Timed::fitted(self.gpu, label, enqueue)?;
        self.gpu.be.fill(None, T::from_f64(f64::NAN), &mut self.operands.y.borrow_mut())?;
        timed.replay(self.gpu)?;
        let answer: Vec<T> = self.gpu.be.download(&self.operands.y.borrow())?;
        self.reference.check(&answer).map_err(|why| anyhow::anyhow!("wrong answer: {why}"))?;
        Ok(timed)
    }

    fn add_peers(&mut self, library: &Rc<Cusparse>) {
        let (x, y) = (self.operands.x.device_pointer(), self.operands.y.borrow().device_pointer());
        let forms = Forms::new(self.gpu, &self.csr);
        for algorithm in Algorithm::ALL {
            let timed = forms.product(self.gpu, library, algorithm, x, y).and_then(|product| {
                let label = Label {
                    noun: algorithm.noun().into(),
                    contender: "cusparse",
                    kernel: Some(algorithm.kernel().into()),
                    bytes: product.bytes(),
                };
                self.ready(label, Box::new(move || product.enqueue()))
            });
            match timed {
                Ok(timed) => self.peers.push(timed),
                Err(why) => self.left_out(algorithm.noun(), "cusparse", &why.context(algorithm.kernel())),
            }
        }
    }

    /// Loads a format by `load`, captures and checks it. `kernel` names a forced kernel.
    fn add<F: Format<Value = T>>(
        &mut self,
        kernel: Option<String>,
        format: Arc<F>,
        load: impl FnOnce(&Cuda, Arc<F>) -> spandrel_backend::Result<<Cuda as Load<F>>::Resident>,
    ) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        let storage = format.storage();
        let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
        anyhow::ensure!(
            storage <= self.plan.room.most,
            "{:.1} GiB of storage, more than {:.1} GiB (--max-gib)",
            gib(storage),
            gib(self.plan.room.most)
        );
        if self.storage + storage > self.plan.room.group {
            self.flush()?;
        }
        let be = &self.gpu.be;
        let resident = load(be, Arc::clone(&format))?;
        let any = &resident as &dyn Any;
        let label = Label {
            noun: F::NAME.into(),
            contender: "spandrel",
            kernel: kernel.or_else(|| ours::kernel::<T>(any)),
            bytes: be.traffic(&resident).map_or_else(|| format.spmv_bytes(), |(_, product)| product),
        };
        drop(format);
        let operands = Rc::clone(&self.operands);
        let enqueue = move || {
            let y = &mut *operands.y.borrow_mut();
            Ok(Spmv::<F>::spmv(be, None, Coeff::one(), &resident, &operands.x, Coeff::zero(), y)?)
        };
        let timed = self.ready(label, Box::new(enqueue))?;
        self.storage += storage;
        self.members.push(timed);
        Ok(())
    }

    /// As [`Contest::add`] for a forced kernel. A failure becomes a line.
    fn force<F: Format<Value = T>>(
        &mut self,
        kernel: &str,
        format: Arc<F>,
        load: impl FnOnce(&Cuda, Arc<F>) -> spandrel_backend::Result<<Cuda as Load<F>>::Resident>,
    ) where
        Cuda: Spmv<F> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        if let Err(why) = self.add(Some(kernel.to_owned()), format, load) {
            self.left_out(F::NAME, "spandrel", &why.context(kernel.to_owned()));
        }
    }

    /// Times kernels that the backend would not have chosen for this matrix, with a line each beside its own choice.
    fn add_forced(&mut self) {
        let found = self.found.lines.iter().map(|l| (&l.noun, &l.more.kernel));
        let by_diagonals = found.chain(self.members.iter().map(|t| (&t.label.noun, &t.label.kernel)));
        let said: Vec<String> = by_diagonals.filter(|(noun, _)| *noun == "dia").flat_map(|(_, k)| k.clone()).collect();
        let is = |what: &str| said.iter().any(|kernel| kernel.contains(what));
        let (symmetric, narrow) = (is(ours::SYMMETRIC), is(ours::NARROW));
        if let Some(dia) = symmetric.then(|| ours::both_halves(&self.csr)).flatten() {
            self.force("full", Arc::new(dia), |be, host| be.load(host));
        }
        if let Some(dia) = narrow.then(|| ours::in_f64(&self.csr)).flatten() {
            let label = if symmetric { ours::SYMMETRIC } else { "values in f64" };
            self.force(label, Arc::new(dia), |be, host| be.load(host));
        }
        if self.plan.force != Force::None {
            for kernel in [
                CsrKernel::Scalar,
                CsrKernel::Staged,
                CsrKernel::Vector(4),
                CsrKernel::Vector(8),
                CsrKernel::Vector(32),
                CsrKernel::Binned,
                CsrKernel::Balanced,
            ] {
                let label = format!("{kernel:?} forced").to_lowercase();
                if self.plan.force.wants(&label) {
                    self.force(&label, Arc::clone(&self.csr), |be, host| be.load_csr_with(&host, kernel));
                }
            }
            if self.plan.force.wants(SERIAL)
                && let Ok(coo) = Coo::from_csr(&self.csr)
            {
                self.force(SERIAL, Arc::new(coo), |be, host| Ok(be.load(host)?.with_kernel(CooKernel::Serial)));
            }
            if self.plan.force == Force::All
                && self.wanted(Bdia::<T>::NAME)
                && let Ok(bands) = Bdia::from_csr(&self.csr).map(Arc::new)
            {
                for kernel in
                    [BdiaKernel::Window, BdiaKernel::Narrow, BdiaKernel::Single, BdiaKernel::Staged, BdiaKernel::Small]
                {
                    let label = format!("{kernel:?} forced").to_lowercase();
                    self.force(&label, Arc::clone(&bands), |be, host| be.load_bdia_with(&host, kernel));
                }
            }
            if self.plan.force == Force::All
                && let Ok(blocks) = Bsr::from_csr_with(&self.csr, 4)
            {
                self.force("4x4", Arc::new(blocks), |be, host| be.load(host));
            }
        }
    }

    /// Times the group, writes its lines, and drops it.
    fn flush(&mut self) -> Result<()> {
        if self.members.is_empty() && (self.peers_written || self.peers.is_empty()) {
            return Ok(());
        }
        let mut all: Vec<&mut Timed<'a>> =
            self.copies.iter_mut().chain(&mut self.peers).chain(&mut self.members).collect();
        let timings = interleave(self.gpu, &mut all, self.plan.effort)?;
        let labels: Vec<Label> = all.iter().map(|t| t.label.clone()).collect();
        let gbs = |k: usize| labels[k].bytes as f64 / timings[k].ms / 1e6;
        let is_copy = |k: &usize| labels[*k].noun == "copy";
        let copy = (0..labels.len()).filter(is_copy).map(gbs).max_by(f64::total_cmp);
        let best = |noun: Option<&str>| {
            let peer =
                |k: &usize| labels[*k].contender == "cusparse" && noun.is_none_or(|noun| labels[*k].noun == noun);
            (0..labels.len()).filter(peer).min_by(|&a, &b| timings[a].ms.total_cmp(&timings[b].ms))
        };
        let fastest = |a: Option<usize>, b: Option<usize>| {
            a.into_iter().chain(b).min_by(|&a, &b| timings[a].ms.total_cmp(&timings[b].ms))
        };
        for (k, label) in labels.iter().enumerate() {
            let own = label.contender == "spandrel";
            if !own && self.peers_written {
                continue;
            }
            let ratio = |peer: Option<usize>| peer.filter(|_| own).map(|p| timings[p].ms / timings[k].ms);
            self.found.lines.push(Line {
                op: "spmv",
                noun: label.noun.clone(),
                element: T::NAME,
                backend: "cuda",
                contender: label.contender,
                case: self.case.to_owned(),
                n: self.csr.nrows(),
                nnz: self.csr.nnz(),
                ms: timings[k].ms,
                ms_min: timings[k].min,
                ms_max: timings[k].max,
                bytes: label.bytes,
                gbs: gbs(k),
                of_copy: copy.map(|b| gbs(k) / b),
                of_triad: None,
                ratio_to_best_peer: ratio(best(None)),
                ratio_to_csr: None,
                more: More {
                    kernel: label.kernel.clone(),
                    ratio_to_same_format: ratio(best(Some(&label.noun))),
                    ratio_to_unconverted: ratio(fastest(best(Some("csr")), best(Some("coo")))),
                    ..More::default()
                },
            });
        }
        // From here on, the best of each format represents all.
        if !self.peers_written {
            let first = self.copies.len();
            let keep: Vec<usize> = ["csr", "coo", "sell"].iter().filter_map(|noun| best(Some(noun))).collect();
            let mut at = first;
            self.peers.retain(|_| {
                at += 1;
                keep.contains(&(at - 1))
            });
            self.peers_written = true;
        }
        self.members.clear();
        self.storage = 0;
        Ok(())
    }
}

impl<T: Real> Visit<T> for Contest<'_, T> {
    fn visit<F: Format<Value = T>>(&mut self) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<F>>::Resident: 'static,
    {
        self.seen.push(F::NAME);
        if !self.wanted(F::NAME) {
            return Ok(());
        }
        // If the format is CSR, it is already there.
        let there = (&self.csr as &dyn Any).downcast_ref::<Arc<F>>().cloned();
        let format = there.map_or_else(|| F::from_csr(&self.csr).map(Arc::new), Ok);
        let added = format
            .map_err(anyhow::Error::from)
            .and_then(|format| self.add(None, format, |be, host| Load::<F>::load(be, host)));
        if let Err(why) = added {
            self.left_out(F::NAME, "spandrel", &why);
        }
        // After a device has failed, everything fails. Report it once.
        self.gpu.stream().synchronize().context("the device has failed")
    }
}

/// Times one case.
///
/// # Errors
/// A matrix that cannot be read; a device that fails. An error of a single contender becomes a line of the findings.
pub fn run<T: Real>(gpu: &Gpu, library: Option<&Rc<Cusparse>>, case: &Case, plan: &Plan) -> Result<Findings> {
    let csr: Csr<T> = case.load()?;
    if csr.nnz() < plan.min_entries {
        return Ok(Findings::default());
    }
    let x: Vec<T> = operand(csr.ncols());
    let operands = Operands { x: gpu.be.upload(&x)?, y: RefCell::new(gpu.be.zeros(csr.nrows())?) };
    let mut contest = Contest {
        gpu,
        plan,
        case: &case.name,
        reference: Reference::of(&csr, &x),
        csr: Arc::new(csr),
        operands: Rc::new(operands),
        copies: if plan.machine { copies(gpu)? } else { Vec::new() },
        peers: Vec::new(),
        members: Vec::new(),
        storage: 0,
        peers_written: false,
        seen: Vec::new(),
        found: Findings::default(),
    };
    if let Some(library) = library {
        contest.add_peers(library);
    }
    formats::each(&mut contest)?;
    contest.add_forced();
    contest.flush()?;
    for stem in &plan.formats {
        if !contest.seen.contains(&stem.as_str()) {
            contest.left_out(stem, "spandrel", &anyhow::anyhow!("the CUDA backend has no such format"));
        }
    }
    let chosen = choose(&contest.csr, gpu.be.profile()).format.to_owned();
    let mut found = contest.found;
    let own = |l: &&Line| l.contender == "spandrel";
    // Of several kernels for one format, the backend's own choice came first.
    let csr_ms = found.lines.iter().filter(own).find(|l| l.noun == "csr").map(|l| l.ms);
    for line in found.lines.iter_mut().filter(|l| l.contender == "spandrel") {
        line.ratio_to_csr = csr_ms.map(|csr| csr / line.ms);
    }
    let best = found.lines.iter().filter(own).min_by(|a, b| a.ms.total_cmp(&b.ms));
    let at = found.lines.iter().filter(own).find(|l| l.noun == chosen);
    found.choice = at.zip(best).map(|(at, best)| Choice {
        op: "choose",
        element: T::NAME,
        backend: "cuda",
        case: case.name.clone(),
        n: at.n,
        nnz: at.nnz,
        best: best.noun.clone(),
        slower: at.ms / best.ms,
        ratio_to_best_peer: at.ratio_to_best_peer,
        chosen,
    });
    Ok(found)
}
