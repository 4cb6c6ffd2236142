//! Trials that only a GPU can fail: out of memory, several queues and threads, drops while work is queued, foreign
//! buffers, a history longer than the device stores.
//!
//! Each trial uses the fleet's device to show that other devices are unharmed, and opens devices of its own for what it
//! destroys.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use spandrel::solver::{Builder, Reorder};
use spandrel_backend::{Backend, Coeff, Device, Error, Mat, Operator, Phase, Recorded, Result, Spmv, Step, Watch};
use spandrel_backend_cpu::Cpu;
use spandrel_backend_cuda::cudarc::driver::{DeviceRepr, DriverError, result};
use spandrel_backend_cuda::{Cuda, Monitor, Scalar, Vector};
use spandrel_formats::hash::splitmix64;
use spandrel_formats::{Csr, Permutation, Real, generate};
use spandrel_solvers::{AmgOptions, Cg, Jacobi, Method, Options, Precond};

use crate::case::numbers;
use crate::reference::{difference, tree_dot};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

impl From<DriverError> for Finding {
    fn from(error: DriverError) -> Self {
        wrong(format!("the driver refuses: {error:?}"))
    }
}

/// The trials of a GPU. `open` opens the fleet's device again as a queue of its own.
pub(crate) fn trials(fleet: &Rc<Fleet<Cuda>>, open: fn() -> Result<Cuda>, out: &mut Vec<Trial>) {
    let mut push = |what: &str, body: fn(&Cuda, fn() -> Result<Cuda>) -> Verdict| {
        let (operation, case) = what.split_once('/').unwrap_or((what, "all"));
        let fleet = fleet.clone();
        let name = format!("{operation}/device/f64/{}/{case}", fleet.name);
        out.push(Trial::new(name, move || {
            body(fleet.first(), open)?;
            // Whatever was tried, the device continues.
            healthy(fleet.first()).map_err(|finding| match finding {
                Finding::Wrong(text) => Finding::Wrong(format!("afterwards: {text}")),
                other => other,
            })
        }));
    };
    push("memory/exhausted", |be, _| exhausted(be));
    push("memory/filled", |be, _| super::exhausted::filled_up(be));
    push("open/no-such-device", |_, _| no_such_device());
    push("open/refused-ptx", |be, _| refused_ptx(be));
    push("queue/two-interleaved", interleaved);
    push("queue/beside-the-cpu", beside_the_cpu);
    push("queue/two-threads", threads);
    push("queue/among-copies", |be, _| among_copies(be));
    push("upload/large", large_uploads);
    push("upload/runs", |be, _| super::runs::arrays(be));
    push("upload/runs-of-blocks-and-triangles", |be, _| super::runs::blocks_and_triangles(be));
    push("convert/diagonals-that-f32-holds", |be, _| super::narrow_dia::diagonals_in_f32(be));
    push("renumber/solver", |be, _| renumbers(be));
    push("spmv/classes-of-rows", |be, _| super::classes::of_rows(be));
    push("drop/every-order", dropped);
    push("drop/wrapped-while-in-use", |be, _| wrapped_and_dropped(be));
    push("wrap/another-stream", |be, _| wrapped::<f64>(be).and_then(|()| wrapped::<f32>(be)));
    push("wrap/raw", |be, _| raw(be));
    push("monitor/80000-observations", |be, _| history(be));
    push("monitor/70000-unseen-observations", |be, _| unseen(be));
}

/// A solver renumbers a large matrix in random order for amg, unless it is told not to, also for new values.
fn renumbers(be: &Cuda) -> Verdict {
    let grid = generate::csr::<f64>("poisson3d:81")?;
    let mut order: Vec<u32> = (0..grid.nrows() as u32).collect();
    order.sort_by_key(|&i| splitmix64(u64::from(i)));
    let a = Permutation::new(order)?.permute_symmetric(&grid)?;
    let (b, tripled) = (vec![1.0; a.nrows()], a.values().iter().map(|v| 3.0 * v).collect::<Vec<_>>());
    let solves = |reorder: Option<Reorder>| -> std::result::Result<_, Finding> {
        let builder = Builder::default().method(Method::Cg).preconditioner(Precond::Amg(AmgOptions::default()));
        let mut solver = builder.reorder(reorder).build_on(be, a.clone())?;
        let by = solver.plan().reorder;
        let first = solver.solve(be, &b)?;
        solver.update_values(be, &tripled)?;
        Ok((by, [first, solver.solve(be, &b)?]))
    };
    for (reorder, wanted) in [(None, Reorder::Bfs), (Some(Reorder::None), Reorder::None)] {
        let (by, solutions) = solves(reorder)?;
        if by != wanted {
            return Err(wrong(format!("{reorder:?} leads to {by}, not to {wanted}")));
        }
        for (solution, factor) in solutions.iter().zip([1.0, 3.0]) {
            if !solution.outcome.status.is_converged() {
                return Err(wrong(format!("{reorder:?}, values times {factor}: {}", solution.outcome)));
            }
            // The residual once more, with what the roundings of at most ten operations per row can add.
            let (mut squares, mut magnitude) = (0.0f64, 0.0f64);
            for (i, b) in b.iter().enumerate() {
                let terms = || a.row(i).0.iter().zip(a.row(i).1).map(|(&j, &v)| factor * v * solution.x[j as usize]);
                squares += (b - terms().sum::<f64>()).powi(2);
                magnitude = magnitude.max(b + terms().map(f64::abs).sum::<f64>());
            }
            let found = (squares / a.nrows() as f64).sqrt();
            if found > 1e-8 + 10.0 * f64::EPSILON * magnitude {
                return Err(wrong(format!("{reorder:?}, values times {factor}: a residual of {found:.2e}")));
            }
        }
    }
    Ok(())
}

/// Arrays that go through page-locked memory, one after the other without a wait. Their lengths are around its pieces
/// and around the size from which it is used. They come from two queues, over older data, and as the arrays of a matrix
/// together.
fn large_uploads(be: &Cuda, open: fn() -> Result<Cuda>) -> Verdict {
    let numbers = |len: usize, from: usize| (0..len).map(|i| (i + from) as f64).collect::<Vec<_>>();
    let other = open()?;
    for len in [(1 << 16) - 1, 1 << 16, (1 << 16) + 1, (1 << 18) + 5, 1 << 20, (2 << 20) + 1, (5 << 20) + 3] {
        let hosts = [0, 1, 2].map(|from| numbers(len, from));
        let [first, second, third] = &hosts;
        let (a, mut b, c) = (be.upload(first)?, other.upload(second)?, be.upload(second)?);
        other.write(third, &mut b)?;
        for (what, be, found, wanted) in
            [("first", be, &a, first), ("another queue", &other, &b, third), ("second", be, &c, second)]
        {
            same(&format!("{len} elements, {what}"), &be.download(found)?, wanted)?;
        }
    }
    for n in [30_001u32, 200_003, 1_000_000] {
        let values = numbers(n as usize, 1);
        let cols = (0..n).rev().collect();
        let a = Mat::load(be, Csr::new(n as usize, n as usize, (0..=n).collect(), cols, values.clone())?)?;
        let (x, mut y) = (be.upload(&numbers(n as usize, 0))?, be.upload(&vec![f64::NAN; n as usize])?);
        a.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
        let wanted: Vec<f64> = values.iter().zip((0..n).rev()).map(|(v, x)| v * f64::from(x)).collect();
        same(&format!("a matrix of {n} entries"), &be.download(&y)?, &wanted)?;
    }
    let kept = be.upload(&numbers(3 << 20, 7))?;
    drop(other);
    same("after another queue has gone", &be.download(&kept)?, &numbers(3 << 20, 7))
}

fn same(what: &str, found: &[f64], wanted: &[f64]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

fn poisson() -> Result<Arc<Csr<f64>>> {
    Ok(Arc::new(generate::csr("poisson2d:97x89")?))
}

/// A sum and an update with a known answer.
fn healthy(be: &Cuda) -> Verdict {
    let (x, y) = (numbers::<f64>(3, 5000), numbers::<f64>(4, 5000));
    let (dx, mut dy, mut sum) = (be.upload(&x)?, be.upload(&y)?, be.scalar(f64::NAN)?);
    be.dot(None, &dx, &dy, &mut sum)?;
    be.axpby(None, Coeff::one(), &dx, Coeff::one(), &mut dy)?;
    be.synchronize()?;
    same("a dot product", &[be.download_scalar(&sum)?], &[tree_dot(&x, &y)])?;
    let wanted: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    same("an update", &be.download(&dy)?, &wanted)
}

/// 2^45 bytes are refused for lack of memory, and nothing else is refused.
fn exhausted(be: &Cuda) -> Verdict {
    let refused = |what: &str, result: Option<Error>| match result {
        Some(Error::OutOfMemory { bytes, .. }) if bytes >= 1 << 45 => Ok(()),
        other => Err(wrong(format!("{what}: expected a lack of memory, found {other:?}"))),
    };
    for _ in 0..3 {
        refused("2^45 bytes", Backend::<f64>::zeros(be, 1 << 42).err())?;
        healthy(be)?;
    }
    // Beyond every address, and beyond 64 bits.
    refused("2^60 bytes", Backend::<f64>::zeros(be, 1 << 57).err())?;
    refused("more bytes than are counted", Backend::<f32>::zeros(be, usize::MAX / 2).err())
}

fn no_such_device() -> Verdict {
    for ordinal in [1000, usize::MAX] {
        match Cuda::on(ordinal) {
            Err(Error::Device { why, .. }) if why.contains(&ordinal.to_string()) => {}
            other => return Err(wrong(format!("device {ordinal}: expected a typed refusal, found {other:?}"))),
        }
    }
    Ok(())
}

/// Text that is not PTX, PTX of a version that no driver knows, and PTX without the kernel are refused when kernels are
/// loaded. The error names what was loaded, and nothing that is loaded already is harmed.
fn refused_ptx(be: &Cuda) -> Verdict {
    let empty = ".version 7.0\n.target sm_75\n.address_size 64\n";
    for text in ["this is no PTX", ".version 99.9\n.target sm_75\n.address_size 64\n", empty] {
        match be.load_text(text) {
            Err(Error::Device { device: "cuda", why }) if why.contains("the kernel given") => {}
            other => return Err(wrong(format!("{text:?}: expected a typed refusal, found {other:?}"))),
        }
        healthy(be)?;
    }
    Ok(())
}

/// y <- A x, x'y, y'y; x <- (x'y / y'y) y + x / 4. This uses every kind of operand, and each run changes the result.
struct Relax<B: Spmv<Csr<f64>>> {
    a: Mat<B, Csr<f64>>,
    x: B::Vector,
    y: B::Vector,
    sums: [B::Scalar; 2],
    monitor: B::Monitor,
}

impl<B: Spmv<Csr<f64>>> Relax<B> {
    fn new(be: &B, host: &Arc<Csr<f64>>) -> Result<Self> {
        let a = Mat::<B, Csr<f64>>::load(be, host.clone())?;
        let (x, y) = (be.upload(&numbers(5, a.ncols()))?, be.zeros(a.nrows())?);
        let monitor = be.monitor(&Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: usize::MAX })?;
        Ok(Self { a, x, y, sums: [be.scalar(0.0)?, be.scalar(0.0)?], monitor })
    }
}

// SAFETY: one fixed sequence on buffers that the step owns and never replaces.
unsafe impl<B: Spmv<Csr<f64>>> Step<B> for Relax<B> {
    fn enqueue(&mut self, be: &B) -> Result<()> {
        let Self { a, x, y, sums: [xy, yy], monitor } = self;
        a.apply_dot(be, Some(&*monitor), x, y, x, xy, Some(yy))?;
        be.axpby(Some(&*monitor), Coeff::ratio(xy, yy), y, Coeff::host(0.25), x)?;
        be.observe(yy, Phase::Full, monitor)
    }
}

const ROUNDS: usize = 60;

/// x after this many rounds on a single device.
fn alone(be: &Cuda, host: &Arc<Csr<f64>>) -> Result<Vec<f64>> {
    let mut step = Recorded::new(be, Relax::new(be, host)?, true);
    for _ in 0..ROUNDS {
        step.run()?;
    }
    be.download(&step.step().x)
}

/// Two queues in one thread take turns, with the fleet's own in between.
fn interleaved(be: &Cuda, open: fn() -> Result<Cuda>) -> Verdict {
    let host = poisson()?;
    let wanted = alone(be, &host)?;
    let (left, right) = (open()?, open()?);
    let mut steps = [
        Recorded::new(&left, Relax::new(&left, &host)?, true),
        Recorded::new(&right, Relax::new(&right, &host)?, true),
        Recorded::new(be, Relax::new(be, &host)?, false),
    ];
    for _ in 0..ROUNDS {
        for step in &mut steps {
            step.run()?;
        }
    }
    for (at, (step, device)) in steps.iter().zip([&left, &right, be]).enumerate() {
        same(&format!("queue {at} of 3 in turn"), &device.download(&step.step().x)?, &wanted)?;
    }
    Ok(())
}

/// Two backends in one program take turns on matrices that share one host object. Both have the same bits.
fn beside_the_cpu(_: &Cuda, open: fn() -> Result<Cuda>) -> Verdict {
    let host = poisson()?;
    let (cpu, gpu) = (Cpu::new(), open()?.with_reproducible(true));
    let mut here = Recorded::new(&cpu, Relax::new(&cpu, &host)?, true);
    let mut there = Recorded::new(&gpu, Relax::new(&gpu, &host)?, true);
    for _ in 0..ROUNDS {
        here.run()?;
        there.run()?;
    }
    same("x of the GPU beside the CPU", &gpu.download(&there.step().x)?, &cpu.download(&here.step().x)?)
}

/// Small kernels that read what one of the two previous ones wrote, among copies and fills by others. It shows what a
/// kernel must wait for if it starts while the previous one still runs.
struct Among(Rc<RefCell<Operands>>);

struct Operands {
    x: Vector<f64>,
    y: Vector<f64>,
    z: Vector<f64>,
    one: Scalar<f64>,
}

/// How often a step repeats its sequence.
const IN_A_STEP: usize = 8;

// SAFETY: one fixed sequence on buffers that the step holds. The trial shares them, writes into them between runs and
// replaces none.
unsafe impl Step<Cuda> for Among {
    fn enqueue(&mut self, be: &Cuda) -> Result<()> {
        let Operands { x, y, z, one } = &mut *self.0.borrow_mut();
        let refused = |why: DriverError| Error::Device { device: "cuda", why: format!("{why:?}") };
        let (from, to, bytes, queue) = (y.device_pointer(), z.device_pointer(), 8 * y.len(), be.stream().cu_stream());
        for _ in 0..IN_A_STEP {
            be.axpby(None, Coeff::host(0.7), x, Coeff::host(0.3), y)?;
            // Ends long before the previous one, and does not touch what the next one reads.
            be.assign(None, Coeff::host(1.0), one)?;
            // SAFETY: as many elements each, of vectors that live as long as the step.
            unsafe { result::memcpy_dtod_async(to, from, bytes, queue) }.map_err(refused)?;
            be.axpby(None, Coeff::scalar(one), z, Coeff::host(-0.4), x)?;
            be.assign(None, Coeff::host(1.0), one)?;
            be.axpby(None, Coeff::host(0.25), x, Coeff::host(0.5), y)?;
            // SAFETY: as above.
            unsafe { result::memset_d8_async(to, 0, bytes, queue) }.map_err(refused)?;
            be.axpby(None, Coeff::host(0.5), y, Coeff::host(1.0), z)?;
            be.axpby(None, Coeff::host(1.0), z, Coeff::host(0.5), x)?;
        }
        Ok(())
    }
}

/// x, y, z by plain loops.
fn among_plain([x, y, z]: &mut [Vec<f64>; 3]) {
    let axpby =
        |a: f64, x: &[f64], b: f64, y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, &x)| *y = a.mul_add(x, b * *y));
    for _ in 0..IN_A_STEP {
        axpby(0.7, x, 0.3, y);
        z.copy_from_slice(y);
        axpby(1.0, z, -0.4, x);
        axpby(0.25, x, 0.5, y);
        z.fill(0.0);
        axpby(0.5, y, 1.0, z);
        axpby(1.0, z, 0.5, x);
    }
}

/// Replays one graph with a new input each time, and runs the same step plainly.
fn among_copies(be: &Cuda) -> Verdict {
    for (len, runs) in [(1, 1000), (15_600, 1000), (300_001, 100)] {
        let prepare = || -> Result<_> {
            let zeros = || be.zeros(len);
            let operands = Operands { x: zeros()?, y: zeros()?, z: zeros()?, one: be.scalar(f64::NAN)? };
            Ok(Rc::new(RefCell::new(operands)))
        };
        let (recorded, plain) = (prepare()?, prepare()?);
        let mut steps = [("recorded", &recorded, true), ("plain", &plain, false)]
            .map(|(name, operands, record)| (name, operands, Recorded::new(be, Among(operands.clone()), record)));
        for run in 0..runs {
            let mut wanted = [1, 2, 3].map(|k| numbers::<f64>(k + 3 * run, len));
            for (_, operands, _) in &steps {
                let Operands { x, y, z, .. } = &mut *operands.borrow_mut();
                for (host, v) in wanted.iter().zip([x, y, z]) {
                    be.write(host, v)?;
                }
            }
            for (_, _, step) in &mut steps {
                step.run()?;
            }
            among_plain(&mut wanted);
            for (name, operands, _) in &steps {
                let of = operands.borrow();
                for (what, found, wanted) in
                    [("x", &of.x, &wanted[0]), ("y", &of.y, &wanted[1]), ("z", &of.z, &wanted[2])]
                {
                    same(&format!("{what} of {len} elements, run {run}, {name}"), &be.download(found)?, wanted)?;
                }
            }
        }
    }
    Ok(())
}

/// x of a whole solve.
fn solved(be: &Cuda, host: &Arc<Csr<f64>>) -> std::result::Result<Vec<f64>, Finding> {
    let n = host.row_ptr().len() - 1;
    let a = Mat::<Cuda, Csr<f64>>::load(be, host.clone())?;
    let m = Jacobi::new(be, host).map_err(wrong)?;
    let (b, mut x) = (be.upload(&numbers(6, n))?, be.zeros(n)?);
    let outcome =
        Cg::new(be, n).and_then(|mut cg| cg.solve(be, &a, &m, &b, &mut x, &Options::default())).map_err(wrong)?;
    if outcome.status.is_converged() { Ok(be.download(&x)?) } else { Err(wrong(format!("{outcome:?}"))) }
}

/// Two threads open and close devices of their own again and again, while this one works too.
fn threads(be: &Cuda, open: fn() -> Result<Cuda>) -> Verdict {
    let host = poisson()?;
    let wanted = solved(be, &host)?;
    let (host, wanted) = (&host, &wanted);
    let work = move || -> Verdict {
        for _ in 0..3 {
            let be = open()?;
            for _ in 0..3 {
                same("x of a thread", &solved(&be, host)?, wanted)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let mut verdict = Ok(());
        for _ in 0..5 {
            verdict = verdict.and_then(|()| same("x beside two threads", &solved(be, host)?, wanted));
        }
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(wrong("a thread panicked")));
            verdict = verdict.and(ended);
        }
        verdict
    })?;
    // A device may move to another thread, with the work that was queued on it.
    let moved = open()?;
    let mut x = moved.upload(&[1.0f64; 3000])?;
    for _ in 0..10 {
        moved.axpby(None, Coeff::zero(), &Backend::<f64>::zeros(&moved, 3000)?, Coeff::host(2.0), &mut x)?;
    }
    let found = std::thread::spawn(move || moved.download(&x)).join().map_err(|_| wrong("a thread panicked"))??;
    same("a vector read in another thread", &found, &[1024.0; 3000])
}

/// Permutation `number` of `0..len`.
fn permutation(mut number: usize, len: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..len).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let choices = left.len();
        order.push(left.remove(number % choices));
        number /= choices;
    }
    order
}

/// What a queue works on. Each part is dropped by itself: the matrix, the vectors, the monitor, the graph.
type Parts = [Option<Box<dyn std::any::Any>>; 4];

/// Queued runs of a graph, and what they work on.
fn queued(be: &Cuda, host: &Arc<Csr<f64>>) -> Result<Parts> {
    let mut step = Relax::new(be, host)?;
    step.enqueue(be)?;
    let graph = be.capture(&mut step)?;
    for _ in 0..50 {
        // SAFETY: captured on this device from this step, whose buffers are alive. The trial is about freeing them
        // later.
        unsafe { be.replay(&graph, &mut step)? };
    }
    let Relax { a, x, y, sums, monitor } = step;
    Ok([Some(Box::new(a)), Some(Box::new((x, y, sums))), Some(Box::new(monitor)), Some(Box::new(graph))])
}

/// Matrix, vectors, monitor and graph are dropped in every order while work on them is queued, and the device before,
/// between and after them. Memory that is given back too early would be allocated at once and overwritten.
fn dropped(be: &Cuda, open: fn() -> Result<Cuda>) -> Verdict {
    let host = poisson()?;
    let wanted = alone(be, &host)?;
    let witness = numbers::<f64>(8, 97 * 89);
    let kept = be.upload(&witness)?;
    let intact = |what: String| {
        let fresh = be.upload(&witness)?;
        same(&format!("a vector beside drops, {what}"), &be.download(&kept)?, &witness)?;
        same(&format!("a vector after drops, {what}"), &be.download(&fresh)?, &witness)
    };
    let own = open()?;
    for number in 0..24 {
        let mut parts = queued(&own, &host)?;
        let order = permutation(number, parts.len());
        for &at in &order {
            parts[at] = None;
            let taken = own.upload(&witness)?;
            same(&format!("a vector instead of part {at}, order {order:?}"), &own.download(&taken)?, &witness)?;
        }
        intact(format!("order {order:?}"))?;
    }
    same("x on a device that saw drops", &alone(&own, &host)?, &wanted)?;
    for (place, number) in (0..=4).flat_map(|place| [(place, 0), (place, 23)]) {
        let device = open()?;
        let mut parts = queued(&device, &host)?;
        let order = permutation(number, parts.len());
        let (before, after) = order.split_at(place);
        before.iter().for_each(|&at| parts[at] = None);
        drop(device);
        after.iter().for_each(|&at| parts[at] = None);
        intact(format!("the device gone after {before:?}"))?;
    }
    be.synchronize()?;
    same("x after all drops", &alone(be, &host)?, &wanted)
}

/// A slice of another stream is dropped while it is still read, and its memory goes to another owner.
fn wrapped_and_dropped(be: &Cuda) -> Verdict {
    const LEN: usize = 1 << 22;
    let other = be.stream().context().new_stream()?;
    for round in 0..4 {
        let x = be.wrap(other.clone_htod(&vec![1.0f64; LEN])?)?;
        let mut y = Backend::<f64>::zeros(be, LEN)?;
        for _ in 0..100 {
            be.axpby(None, Coeff::one(), &x, Coeff::one(), &mut y)?;
        }
        drop(x);
        let next = other.clone_htod(&vec![-7.0f64; LEN])?;
        same(&format!("sums of a wrapped vector, round {round}"), &be.download(&y)?, &vec![100.0; LEN])?;
        drop(next);
    }
    Ok(())
}

/// A slice made with cudarc on another stream is a vector like any other.
fn wrapped<T: Real + DeviceRepr>(be: &Cuda) -> Verdict {
    let other = be.stream().context().new_stream()?;
    for len in [1, 33, 70_001] {
        let (x, y) = (numbers::<T>(1, len), numbers::<T>(2, len));
        let mut dx = be.wrap(other.clone_htod(&x)?)?;
        let (dy, mut sum) = (be.upload(&y)?, be.scalar(T::nan())?);
        be.dot(None, &dx, &dy, &mut sum)?;
        be.hadamard(None, &dy, &dy, &mut dx)?;
        let squares: Vec<T> = y.iter().map(|&y| y * y).collect();
        for (what, found, wanted) in [
            ("a dot product", vec![be.download_scalar(&sum)?], vec![tree_dot(&x, &y)]),
            ("what was written", be.download(&dx)?, squares),
        ] {
            if let Some(detail) = difference(&found, &wanted) {
                return Err(wrong(format!("{what} of a wrapped slice of {len}: {detail}")));
            }
        }
        let mut written = y.clone();
        written.reverse();
        be.write(&written, &mut dx)?;
        if let Some(detail) = difference(&be.download(&dx)?, &written) {
            return Err(wrong(format!("host data in a wrapped slice of {len}: {detail}")));
        }
    }
    Ok(())
}

/// A view of the middle of another owner's memory: the rest stays as it was, and the owner frees it.
fn raw(be: &Cuda) -> Verdict {
    let host = numbers::<f64>(7, 4000);
    let owner = be.upload(&host)?;
    let (from, len) = (1001, 2000);
    // SAFETY: elements 1001 to 3000 of 4000. `owner` outlives the view and does not use them meanwhile.
    let mut view = unsafe { be.wrap_raw::<f64>(owner.device_pointer() + 8 * from as u64, len)? };
    same("a view", &be.download(&view)?, &host[from..from + len])?;
    be.fill(None, -1.0, &mut view)?;
    drop(view);
    let mut wanted = host;
    wanted[from..from + len].fill(-1.0);
    same("the owner after its view", &be.download(&owner)?, &wanted)
}

/// Squares whose roots are exact.
const SQUARES: [f64; 7] = [4.0, 9.0, 0.25, 16.0, 1.0, 6.25, 81.0];

/// Observes `count` norms in turn, with a look after every `look`.
fn observe(be: &Cuda, monitor: &mut Monitor, count: usize, look: usize) -> Verdict {
    let mut scalars = Vec::new();
    for square in SQUARES {
        scalars.push(be.scalar(square)?);
    }
    for at in 0..count {
        be.observe(&scalars[at % SQUARES.len()], Phase::Full, monitor)?;
        if (at + 1) % look == 0 {
            let latest = be.report_latest(monitor)?;
            let residual = Some(SQUARES[at % SQUARES.len()].sqrt());
            if (latest.iterations, latest.residual, latest.stop) != (at + 1, residual, None) {
                return Err(wrong(format!("after {} observations: found {latest:?}", at + 1)));
            }
        }
    }
    Ok(())
}

/// More norms than the device stores, with looks in between that fall neither on its capacity nor on the squares'
/// period.
fn history(be: &Cuda) -> Verdict {
    let mut monitor = be.monitor(&Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 << 20 })?;
    const COUNT: usize = 80_000;
    for look in [10_001, 65_536] {
        observe(be, &mut monitor, COUNT, look)?;
        let report = be.report(&monitor)?;
        let wanted: Vec<f64> = (0..COUNT).map(|at| SQUARES[at % SQUARES.len()].sqrt()).collect();
        same(&format!("history with a look every {look}"), &report.history, &wanted)?;
        if (report.iterations, report.stop) != (COUNT, None) {
            return Err(wrong(format!(
                "expected {COUNT} iterations, found {} and {:?}",
                report.iterations, report.stop
            )));
        }
        let watch = Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 << 20 };
        be.rearm(&mut monitor, &watch)?;
    }
    Ok(())
}

/// If norms were overwritten before a look, the next look is an error, but only until the monitor is armed again.
fn unseen(be: &Cuda) -> Verdict {
    let watch = Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 << 20 };
    let mut monitor = be.monitor(&watch)?;
    observe(be, &mut monitor, 70_000, usize::MAX)?;
    match be.report(&monitor) {
        Err(Error::Device { why, .. }) if why.contains("70000") => {}
        other => return Err(wrong(format!("expected an error that names 70000 norms, found {:?}", other.err()))),
    }
    be.rearm(&mut monitor, &watch)?;
    observe(be, &mut monitor, 100, 30)?;
    let report = be.report(&monitor)?;
    let wanted: Vec<f64> = (0..100).map(|at| SQUARES[at % SQUARES.len()].sqrt()).collect();
    same("history after arming anew", &report.history, &wanted)
}
