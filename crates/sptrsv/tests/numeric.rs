//! Whether the host or a device whose rows wait for each other computes incomplete factors sooner.

use spandrel_formats::{Csr, Profile, generate};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Numeric, Ssor};

fn of<F: Factor<Value = f64>>(spec: &str) -> Numeric {
    let a: Csr<f64> = generate::csr(spec).unwrap();
    Numeric::of(&F::symbolic(&a).unwrap(), &Profile::invented(&[]))
}

#[test]
fn a_line_is_the_hosts_and_a_cube_the_devices() {
    let line = of::<Ic0<f64>>("poisson1d:10000");
    // Every row waits for the previous one, of which it takes one term, with 4 of 32 lanes.
    let device = Profile::invented(&[]).factoring.unwrap();
    assert_eq!((line.device * 1000.0).round(), 10_000.0 * device.hop + 9998.0 * device.shared_term * 8.0);
    assert!(line.is_sooner_on_host(), "{line:?}");
    for spec in ["banded:n=4000,d=75", "banded:n=20000,d=9"] {
        assert!(of::<Ilu0<f64>>(spec).is_sooner_on_host(), "{spec}");
    }
    for spec in ["poisson3d:40", "d3n27:40", "poisson2d:1000"] {
        assert!(!of::<Ic0<f64>>(spec).is_sooner_on_host(), "{spec}: {:?}", of::<Ic0<f64>>(spec));
        assert!(!of::<Ilu0<f64>>(spec).is_sooner_on_host(), "{spec}: {:?}", of::<Ilu0<f64>>(spec));
    }
}

#[test]
fn rows_that_wait_for_none_are_the_devices() {
    let line = of::<Ssor<f64>>("poisson1d:10000");
    assert!(!line.is_sooner_on_host(), "{line:?}");
}

#[test]
fn small_and_empty_patterns_have_times_too() {
    let (one, profile) = (of::<Ilu0<f64>>("poisson1d:1"), Profile::invented(&[]));
    let hop = profile.factoring.as_ref().unwrap().hop;
    assert_eq!((one.host, one.device), (profile.host.entry / 1000.0, hop / 1000.0));
    let empty = Csr::<f64>::new(0, 0, vec![0], vec![], vec![]).unwrap();
    let none = Numeric::of(&Ic0::symbolic(&empty).unwrap(), &profile);
    assert!(!none.is_sooner_on_host() && none.device == 0.0);
}

#[test]
fn a_host_that_is_the_device_factors_itself() {
    let a: Csr<f64> = generate::csr("poisson3d:8").unwrap();
    for found in [
        Numeric::of(&Ilu0::symbolic(&a).unwrap(), &Profile::reference()),
        Numeric::of(&Ssor::symbolic(&a).unwrap(), &Profile::reference()),
    ] {
        assert!(found.is_sooner_on_host() && found.device.is_infinite(), "{found:?}");
    }
}
