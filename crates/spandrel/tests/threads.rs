//! What may be sent to another thread, and what threads may share. The compiler checks the types, and solves run at the
//! same time.
#![cfg(feature = "cpu")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use spandrel::formats::generate;
use spandrel::incomplete::{Chosen, Renew};
use spandrel::preconditioners::{Ic0, Ilu0, Iluk, Mg, Ssor};
use spandrel::solvers::multigrid::Smoother;
use spandrel::solvers::{
    BiCgStab, BlockJacobi, Cg, DeviceFactored, Direct, Factored, Gmres, Ilu, Isai, Jacobi, JacobiSweeps, Mixed,
    Multigrid, NullSpace, Refine, bicgstab, cg,
};
use spandrel::sptrsv::{Capellini, Elementwise, Levelset, Plan, Sweep, Syncfree};
use spandrel::{Backend, Cpu, Csr, Error, Mat, Operator, Options, Outcome, Preconditioner};

fn send<T: Send>() {}
fn shared<T: Send + Sync>() {}

/// One list for both backends. On the CPU all of it may be shared, too.
macro_rules! crossing {
    ($check:ident, $Device:ty) => {{
        type Ilu0Factor = spandrel::sptrsv::Ilu0<f64>;
        $check::<Mat<$Device, Csr<f64>>>();
        $check::<<$Device as Backend<f64>>::Vector>();
        $check::<Cg<f64, $Device>>();
        $check::<BiCgStab<f64, $Device>>();
        $check::<Gmres<f64, $Device>>();
        $check::<Refine<$Device>>();
        $check::<NullSpace<f64, $Device>>();
        $check::<Jacobi<f64, $Device>>();
        $check::<BlockJacobi<f64, $Device>>();
        $check::<Factored<$Device, Levelset<f64>, Ilu0Factor>>();
        $check::<Factored<$Device, Sweep<f64>, Ilu0Factor>>();
        $check::<DeviceFactored<$Device, Levelset<f64>, Ilu0Factor>>();
        $check::<Isai<$Device, Ilu0Factor>>();
        $check::<JacobiSweeps<$Device, Ilu0Factor>>();
        $check::<Multigrid<f64, $Device>>();
        $check::<Mixed<$Device, Box<dyn Renew<f32, $Device>>>>();
        $check::<Chosen<f64, $Device>>();
        $check::<Box<dyn Renew<f64, $Device>>>();
        $check::<Box<dyn Smoother<f64, $Device>>>();
        $check::<Box<dyn spandrel::backend::Assembled<f64, $Device>>>();
        $check::<Ilu0<f64, $Device>>();
        $check::<Iluk<f64, $Device>>();
        $check::<Ic0<f64, $Device>>();
        $check::<Ssor<f64, $Device>>();
        $check::<Mg<f64, $Device>>();
    }};
}

#[test]
fn all_but_a_gpu_itself_may_cross_threads_and_be_shared_on_the_cpu() {
    shared::<Cpu>();
    shared::<Direct<f64>>();
    shared::<Outcome>();
    shared::<Error>();
    crossing!(shared, Cpu);
    #[cfg(feature = "cuda-core")]
    {
        send::<spandrel::Cuda>();
        crossing!(send, spandrel::Cuda);
    }
    send::<Cpu>();
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The x of a solve with a device and a system of its own.
fn solved<M: Preconditioner<f64, Cpu>>(
    device: &Cpu,
    a: &impl Operator<f64, Cpu>,
    m: &M,
    symmetric: bool,
    k: usize,
) -> Vec<u64> {
    let n = a.shape().0;
    let b: Vec<f64> = (0..n).map(|i| ((i * 37 + 11 * k) % 101) as f64 / 101.0 - 0.3).collect();
    let (b, mut x) = (device.upload(&b).unwrap(), device.zeros(n).unwrap());
    // A few iterations are enough to show a thread that uses what another one writes.
    let options = Options { rtol: Some(1e-2), ..Options::default() };
    let outcome =
        if symmetric { cg(device, a, m, &b, &mut x, &options) } else { bicgstab(device, a, m, &b, &mut x, &options) };
    assert!(outcome.unwrap().status.is_converged());
    bits(&device.download(&x).unwrap())
}

/// Two threads at once, with several solves each, get the same bits as one thread.
fn same_at_once<M: Preconditioner<f64, Cpu> + Sync>(
    csr: &Csr<f64>,
    make: impl Fn(&Cpu) -> M,
    symmetric: bool,
    what: &str,
) {
    let device = Cpu::with_threads(2).unwrap();
    let (a, m) = (Mat::load(&device, csr.clone()).unwrap(), make(&device));
    let alone: Vec<_> = (0..4).map(|k| solved(&device, &a, &m, symmetric, k)).collect();
    let (device, a, m, alone) = (&device, &a, &m, &alone);
    thread::scope(|scope| {
        for first in [0, 2] {
            scope.spawn(move || {
                for k in [first, first + 1, first, first + 1] {
                    assert_eq!(solved(device, a, m, symmetric, k), alone[k], "{what}");
                }
            });
        }
    });
}

#[test]
fn two_threads_share_preconditioners_and_get_the_bits_of_one() {
    // Large enough that several threads share a solve with the factors. One matrix is a grid, the other is not.
    let grid = generate::csr::<f64>("poisson3d:27").unwrap();
    let skewed = generate::csr::<f64>("convdiff3d:27,peclet=1").unwrap();
    let order: Vec<u32> = (0..grid.nrows() as u32).map(|i| (i * 4097) % grid.nrows() as u32).collect();
    let perm = spandrel::formats::Permutation::new(order).unwrap();
    let scattered = perm.permute_symmetric(&grid).unwrap();
    same_at_once(&grid, |device| Ic0::new(device, &grid).unwrap(), true, "ic0");
    same_at_once(&scattered, |device| Ic0::new(device, &scattered).unwrap(), true, "ic0, no grid");
    same_at_once(&skewed, |device| Ilu0::new(device, &skewed).unwrap(), false, "ilu0");
    same_at_once(&grid, |device| Ssor::new(device, &grid).unwrap(), true, "ssor");
    same_at_once(&grid, |device| Mg::new(device, &grid).unwrap(), true, "mg");
    let isai = |device: &Cpu| Isai::<Cpu, spandrel::sptrsv::Ilu0<f64>>::new(device, &skewed).unwrap();
    same_at_once(&skewed, isai, false, "isai");
    let sweeps = |device: &Cpu| JacobiSweeps::<Cpu, spandrel::sptrsv::Ilu0<f64>>::new(device, &skewed, 3).unwrap();
    same_at_once(&skewed, sweeps, false, "jacobi sweeps");
    let mixed = |device: &Cpu| Mixed::of(device, &grid, Ic0::new).unwrap();
    same_at_once(&grid, mixed, true, "mixed");
}

/// Solves that are tasks of the same pool whose threads they use. A worker that waits for the others of its solve may
/// begin the next solve.
#[test]
fn tasks_of_one_pool_share_a_preconditioner_without_waiting_for_each_other() {
    fn check<P: Plan<Value = f64>>(csr: &Csr<f64>)
    where
        Cpu: spandrel::backend::Sptrsv<P>,
    {
        let device = Cpu::new();
        let m = Ilu::<Cpu, P>::new(&device, csr).unwrap();
        let apply = |k: usize| {
            let r: Vec<f64> = (0..csr.nrows()).map(|i| ((i * 13 + k) % 17) as f64).collect();
            let (r, mut z) = (device.upload(&r).unwrap(), device.zeros(csr.nrows()).unwrap());
            m.apply(&device, None, &r, &mut z).unwrap();
            device.download(&z).unwrap()
        };
        let alone: Vec<_> = (0..8).map(apply).collect();
        // A plan that sums terms as they come has other bits each time. A wrong row would still be far off.
        let close = |z: &[f64], alone: &[f64]| {
            let (z, alone) = (z.iter(), alone.iter());
            z.zip(alone).all(|(z, alone)| (z - alone).abs() <= 1e-9 * alone.abs().max(1.0))
        };
        let stored = m.is_stored_order(&device);
        for _ in 0..10 {
            rayon::scope(|scope| {
                for (k, alone) in alone.iter().enumerate() {
                    let (apply, close) = (&apply, &close);
                    scope.spawn(move |_| {
                        let z = apply(k);
                        assert!(if stored { bits(&z) == bits(alone) } else { close(&z, alone) }, "{}", P::NAME);
                    });
                }
            });
        }
    }
    let (done, finished) = mpsc::channel();
    let tasks = thread::spawn(move || {
        let csr = generate::csr::<f64>("poisson3d:40").unwrap();
        check::<Syncfree<f64>>(&csr);
        check::<Capellini<f64>>(&csr);
        check::<Elementwise<f64>>(&csr);
        check::<Levelset<f64>>(&csr);
        check::<Sweep<f64>>(&csr);
        done.send(()).unwrap();
    });
    let waited = finished.recv_timeout(Duration::from_secs(120));
    assert!(!matches!(waited, Err(mpsc::RecvTimeoutError::Timeout)), "the tasks wait for each other");
    tasks.join().unwrap();
}
