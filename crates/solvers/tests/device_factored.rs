//! Preconditioners with the device's factors: the bits of those with the host's, new values, and errors that change nothing.

use spandrel_backend::{Backend, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Format, generate};
use spandrel_solvers::{DeviceFactored, Factored, Status};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk, Levelset, Ssor};

fn applied(be: &Cpu, m: &dyn Preconditioner<f64, Cpu>, n: usize) -> Vec<u64> {
    let r: Vec<f64> = (0..n).map(|i| (i % 7) as f64 - 2.5).collect();
    let mut z = be.upload(&vec![f64::NAN; n]).unwrap();
    m.apply(be, None, &be.upload(&r).unwrap(), &mut z).unwrap();
    be.download(&z).unwrap().iter().map(|z| z.to_bits()).collect()
}

macro_rules! same_as_the_hosts {
    ($($test:ident: $Factor:ident),*) => {
        $(
            #[test]
            fn $test() {
                let (be, old) = (Cpu::with_threads(2).unwrap(), generate::csr::<f64>("convdiff2d:9x7,peclet=3").unwrap());
                let mut new = old.clone();
                for (at, v) in new.values_mut().iter_mut().enumerate() {
                    *v *= 1.0 + 0.125 * (at % 3) as f64;
                }
                let host = |a: &Csr<f64>| {
                    applied(&be, &Factored::<Cpu, Levelset<f64>, $Factor<f64>>::new(&be, a).unwrap(), a.nrows())
                };
                let mut device = DeviceFactored::<Cpu, Levelset<f64>, $Factor<f64>>::new(&be, &old).unwrap();
                assert_eq!(applied(&be, &device, old.nrows()), host(&old));
                device.update(&be, &be.upload(new.values()).unwrap()).unwrap();
                assert_eq!(applied(&be, &device, old.nrows()), host(&new));
                assert_eq!(device.made().len(), 2);
                let nan = be.upload(&vec![f64::NAN; old.nnz()]).unwrap();
                assert!(device.update(&be, &nan).is_err());
                assert!(device.update(&be, &be.upload(&[1.0]).unwrap()).is_err());
                assert_eq!(applied(&be, &device, old.nrows()), host(&new), "an error leaves it as it was");
            }
        )*
    };
}
same_as_the_hosts!(ilu0: Ilu0, iluk: Iluk, ic0: Ic0, ssor: Ssor);

#[test]
fn breakdowns_are_the_hosts() {
    let be = Cpu::with_threads(1).unwrap();
    let mut singular = generate::csr::<f64>("poisson2d:5x5").unwrap();
    for e in singular.row_ptr()[7] as usize..singular.row_ptr()[8] as usize {
        singular.values_mut()[e] = 0.0;
    }
    let found = DeviceFactored::<Cpu, Levelset<f64>, Ilu0<f64>>::new(&be, &singular).unwrap_err();
    assert_eq!(found.status(), Some(Status::ZeroPivot));
    assert_eq!(found.to_string(), Ilu0::factor(&singular).unwrap_err().to_string());
    let found = DeviceFactored::<Cpu, Levelset<f64>, Ic0<f64>>::new(&be, &singular).unwrap_err();
    assert_eq!(found.status(), Some(Status::IndefiniteMatrix));
}
