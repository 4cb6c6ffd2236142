//! Trials of a device with full memory: every request fails as a lack of memory, whether half done or not begun, and
//! returns what it had allocated.

use std::sync::Arc;

use spandrel_backend::{Backend, Device, Error, Mat, Recorded, Result, Step, Tri};
use spandrel_backend_cuda::cudarc::driver::sys;
use spandrel_backend_cuda::{Cuda, Vector};
use spandrel_formats::{Csr, Dia, Ell, Sell, generate};
use spandrel_solvers::{Cg, DeviceFactored, Identity, Options};
use spandrel_sptrsv::{Diagonal, Ilu0, Levelset, Serial, Sweep, Systems, Triangle, Triangular, part};

use crate::case::numbers;
use crate::trial::{Finding, Verdict, wrong};

/// Sizes in f64 elements of the blocks that fill the device. Each is used until no more of it fits.
const BLOCKS: [usize; 5] = [1 << 28, 1 << 24, 1 << 20, 1 << 17, 1 << 14];

/// All of the memory, in blocks, the smallest last.
fn filled(be: &Cuda) -> std::result::Result<Vec<Vector<f64>>, Finding> {
    let mut taken = Vec::new();
    for len in BLOCKS {
        loop {
            match Backend::<f64>::zeros(be, len) {
                Ok(block) => taken.push(block),
                Err(Error::OutOfMemory { bytes, .. }) if bytes == 8 * len as u64 => break,
                Err(other) => return Err(wrong(format!("a block of {len}: expected a lack of memory, found {other}"))),
            }
        }
    }
    Ok(taken)
}

/// x <- y z, element by element.
struct Products([Vector<f64>; 3]);

// SAFETY: one operation on vectors that the step owns and does not replace.
unsafe impl Step<Cuda> for Products {
    fn enqueue(&mut self, be: &Cuda) -> Result<()> {
        let Self([one, two, x]) = self;
        be.hadamard(None, &*one, &*two, x)
    }
}

/// A request, and its name.
type Request<'a> = (&'static str, Box<dyn Fn(&Cuda) -> std::result::Result<(), Error> + 'a>);

fn typed(error: spandrel_solvers::Error) -> Error {
    match error {
        spandrel_solvers::Error::Backend(error) => error,
        other => Error::Device { device: "cuda", why: format!("no error of the device's: {other}") },
    }
}

/// Loads, conversions, factorisations, plans, workspaces and a recording: first with no free memory, then with a little
/// more each time until they succeed. Each attempt ends in success or in a lack of memory, and the device continues.
pub(super) fn filled_up(be: &Cuda) -> Verdict {
    let host: Arc<Csr<f64>> = Arc::new(generate::csr("d3n7:48x48x48")?);
    let large: Arc<Csr<f64>> = Arc::new(generate::csr("d3n7:88x88x88")?);
    let n = 48 * 48 * 48;
    let lower = part(&host, Triangle::Lower).map_err(wrong)?;
    let triangle = Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::NonUnit).map_err(wrong)?);
    let loaded = Mat::<Cuda, Csr<f64>>::load(be, host.clone())?;
    let b = numbers::<f64>(3, n);
    let requests: Vec<Request<'_>> = vec![
        ("load/csr", Box::new(|be| Mat::<Cuda, Csr<f64>>::load(be, host.clone()).map(drop))),
        ("load/runs", Box::new(|be| Mat::<Cuda, Csr<f64>>::load(be, large.clone()).map(drop))),
        ("convert/ell", Box::new(|be| loaded.convert::<Ell<f64>>(be).map(drop))),
        ("convert/sell", Box::new(|be| loaded.convert::<Sell<f64>>(be).map(drop))),
        ("convert/dia", Box::new(|be| loaded.convert::<Dia<f64>>(be).map(drop))),
        ("make/spgemm", Box::new(|be| loaded.spgemm(be, &loaded).map(drop))),
        ("make/transpose", Box::new(|be| loaded.transpose(be).map(drop))),
        ("load/sweep", Box::new(|be| tri::<Sweep<f64>>(be, &triangle))),
        ("load/levelset", Box::new(|be| tri::<Levelset<f64>>(be, &triangle))),
        (
            "factorize/ilu0",
            Box::new(|be| DeviceFactored::<Cuda, Serial<f64>, Ilu0<f64>>::new(be, &host).map(drop).map_err(typed)),
        ),
        (
            "solve/cg",
            Box::new(|be| {
                let (b, mut x) = (be.upload(&b)?, Backend::<f64>::zeros(be, n)?);
                let options = Options { max_iters: Some(20), persistent: false, ..Options::default() };
                let outcome = Cg::new(be, n).and_then(|mut cg| cg.solve(be, &loaded, &Identity, &b, &mut x, &options));
                outcome.map(drop).map_err(typed)
            }),
        ),
        (
            "record/products",
            Box::new(|be| {
                let mut step = Recorded::new(be, Products([be.upload(&b)?, be.upload(&b)?, be.zeros(n)?]), true);
                (0..4).try_for_each(|_| step.run())?;
                be.synchronize()
            }),
        ),
    ];
    // Kernels are loaded first. A driver without room for one reports it in its own words.
    for (what, request) in &requests {
        request(be).map_err(|error| wrong(format!("{what}, with room: {error}")))?;
    }
    let verdict = requests.iter().try_for_each(|(what, request)| squeezed(be, what, &**request));
    trim(be)?;
    verdict
}

fn tri<P>(be: &Cuda, triangle: &Arc<Triangular<f64>>) -> std::result::Result<(), Error>
where
    P: spandrel_sptrsv::Plan<Value = f64>,
    Cuda: spandrel_backend::Sptrsv<P>,
{
    let plan = P::analyze(triangle.clone(), Systems::Both).map_err(Error::Triangle)?;
    Tri::<Cuda, P>::load(be, plan).map(drop)
}

/// One request on a full device, with more room each time.
fn squeezed(be: &Cuda, what: &str, request: &dyn Fn(&Cuda) -> std::result::Result<(), Error>) -> Verdict {
    let mut taken = filled(be)?;
    let (mut refused, mut room) = (0, 0usize);
    loop {
        match request(be) {
            Ok(()) => break,
            Err(Error::OutOfMemory { .. }) => refused += 1,
            Err(other) => {
                return Err(wrong(format!("{what}, room for {room} bytes: expected a lack of memory, found {other}")));
            }
        }
        be.synchronize()?;
        // The smallest last: first in small steps, then as large as the rest allows.
        for _ in 0..1 + refused / 8 {
            let Some(block) = taken.pop() else { return Err(wrong(format!("{what} fails with all memory free"))) };
            room += 8 * block.len();
        }
    }
    if refused == 0 {
        return Err(wrong(format!("{what} succeeds on a full device")));
    }
    Ok(())
}

/// Returns the pool's memory to the driver, for code that allocates in another way.
fn trim(be: &Cuda) -> Verdict {
    be.synchronize()?;
    be.stream().context().bind_to_thread()?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the context is bound. The pool belongs to the device and lives as long.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, be.stream().context().cu_device()).result()?;
        sys::cuMemPoolTrimTo(pool, 0).result()?;
    }
    Ok(())
}
