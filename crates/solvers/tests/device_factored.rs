//! Preconditioners whose factors the device computes. They have the same bits as those whose factors the host computes,
//! take new values, and are unchanged after an error.

use std::sync::Arc;

use spandrel_backend::{Backend, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Profile, Triplets, generate};
use spandrel_solvers::factored::Plans;
use spandrel_solvers::{DeviceFactored, DeviceFactors, Factored, Status};
use spandrel_sptrsv::{
    Diagonal, Factor, Ic0, Ilu0, Iluk, Ilut, Levelset, Plan, Serial, Ssor, System, Triangle, Triangles, Triangular,
    split,
};

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
                    // The pattern of ILUT is chosen for the first values.
                    let symbolic = $Factor::symbolic(&old).unwrap();
                    let made = Factored::<Cpu, Levelset<f64>, $Factor<f64>>::with(&be, symbolic, a.values()).unwrap();
                    applied(&be, &made, a.nrows())
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
same_as_the_hosts!(ilu0: Ilu0, iluk: Iluk, ilut: Ilut, ic0: Ic0, ssor: Ssor);

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

#[test]
fn work_beside_the_factorisation_is_done_whether_it_succeeds_or_not() {
    let be = Cpu::with_threads(2).unwrap();
    let a = generate::csr::<f64>("convdiff2d:9x7,peclet=3").unwrap();
    let factor = Arc::new(Ilu0::symbolic(&a).unwrap());
    let beside = |values: &[f64]| {
        let analyze = || Plans::<Serial<f64>>::analyze(&factor.triangles(factor.unformed()).unwrap().into()).unwrap();
        DeviceFactors::beside(|| DeviceFactors::new(&be, Arc::clone(&factor), &be.upload(values).unwrap()), analyze)
    };
    let (factors, plans) = beside(a.values());
    let factors = factors.unwrap();
    let device = DeviceFactored::of(&be, factors.load(&be, plans).unwrap(), factors).unwrap();
    let host = Factored::<Cpu, Serial<f64>, Ilu0<f64>>::new(&be, &a).unwrap();
    assert_eq!(applied(&be, &device, 63), applied(&be, &host, 63));
    let (factors, plans) = beside(&vec![0.0; a.nnz()]);
    assert_eq!(factors.unwrap_err().status(), Some(Status::ZeroPivot));
    assert!(plans.iter().all(|plan| plan.nrows() == 63));
}

#[test]
fn factors_of_the_host_are_the_devices() {
    let be = Cpu::with_threads(2).unwrap();
    let (old, other) = (generate::csr::<f64>("poisson2d:9x7").unwrap(), generate::csr::<f64>("poisson2d:9x7").unwrap());
    let new: Vec<f64> = other.values().iter().enumerate().map(|(k, v)| v * (1.0 + (k % 3) as f64 / 64.0)).collect();
    let factor = Arc::new(Ic0::symbolic(&old).unwrap());
    let plans = || Plans::<Levelset<f64>>::analyze(&factor.triangles(factor.unformed()).unwrap().into()).unwrap();
    let of = |factors: DeviceFactors<Cpu, Ic0<f64>>| {
        DeviceFactored::of(&be, factors.load(&be, plans()).unwrap(), factors).unwrap()
    };
    let mut here = of(DeviceFactors::by_host(&be, Arc::clone(&factor), old.values()).unwrap());
    let mut there = of(DeviceFactors::new(&be, Arc::clone(&factor), &be.upload(old.values()).unwrap()).unwrap());
    assert_eq!(applied(&be, &here, 63), applied(&be, &there, 63));
    let new = be.upload(&new).unwrap();
    here.update(&be, &new).unwrap();
    there.update(&be, &new).unwrap();
    let updated = applied(&be, &there, 63);
    assert_eq!(applied(&be, &here, 63), updated);
    // The error for values that cannot be factored has the same words, and nothing changes.
    for bad in [vec![f64::NAN; old.nnz()], vec![-1.0; old.nnz()], vec![1.0]] {
        let told = |m: &mut DeviceFactored<_, Levelset<f64>, _>| m.update(&be, &be.upload(&bad).unwrap()).unwrap_err();
        assert_eq!(told(&mut here).to_string(), told(&mut there).to_string());
        assert_eq!(applied(&be, &here, 63), updated);
    }
    assert!(DeviceFactors::by_host(&be, factor, &[f64::NAN; 279]).is_err());
}

#[test]
fn triangles_are_analysed_by_levels_where_these_are_expected_to_be_faster() {
    // Rows in blocks of 24. Each row needs every second earlier row of its block, and all rows of the sixth block
    // before: chains inside warps.
    let apart = |blocks: usize| {
        let mut triplets = Triplets::new(24 * blocks, 24 * blocks).unwrap();
        for i in 0..24 * blocks {
            let begin = i / 24 * 24;
            let far = begin.checked_sub(6 * 24).map_or(0..0, |at| at..at + 24);
            let near = (begin..i).filter(|j| (i - j) % 2 == 0);
            near.chain(far).for_each(|j| triplets.push(i, j, 1.0).unwrap());
        }
        triplets.to_csr().unwrap()
    };
    let levels = |a: &Csr<f64>| {
        let lower = Triangular::new(split(a).unwrap().lower, Triangle::Lower, Diagonal::Unit).unwrap();
        let triangles = Triangles { lower, upper: None, shift: 0.0 }.into();
        let plans = Plans::<Levelset<f64>>::paying(&triangles, &Profile::invented(&[]))?;
        Some(plans.iter().map(|plan| plan.schedule(System::Plain).unwrap().levels()).sum::<usize>())
    };
    // With few rows, and with so many that the choice is made before the analysis.
    for (blocks, side) in [(400, 70), (1500, 190)] {
        assert_eq!(levels(&apart(blocks)), None, "{blocks}");
        let grid = generate::csr::<f64>(&format!("poisson2d:{side}")).unwrap();
        assert!(levels(&grid).is_some_and(|levels| levels > 1), "{side}");
    }
}
