//! Algebraic multigrid: any square matrix is set up or refused with a typed error; a dominant symmetric one is set up,
//! its cycle is finite and positive, and a second set-up has the same bits.

use arbitrary::{Result, Unstructured};
use spandrel::solvers::{Amg, AmgOptions};
use spandrel::{Cpu, Preconditioner};
use spandrel_backend::Backend;
use spandrel_formats::{Csr, Triplets};

use super::input::{self, same};

/// Sets up a cycle from the bytes.
///
/// # Panics
/// Where a promise is broken.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    let [kind, choices] = u.arbitrary::<[u8; 2]>()?;
    let is_dominant = kind % 2 == 0;
    let a = if is_dominant { dominant(u)? } else { input::square::<f64>(u)? };
    let options = AmgOptions {
        strength: f64::from(choices % 4) / 4.0,
        degree: usize::from(choices / 4 % 4) + 1,
        unknowns: usize::from(choices / 16 % 4) + 1,
        coarsest: 1 + usize::from(choices / 64),
        ..AmgOptions::default()
    };
    let near_null: Option<Vec<f64>> = match kind / 2 % 3 {
        0 => None,
        vectors => Some((0..a.nrows() * usize::from(vectors)).map(|_| input::plain(u)).collect::<Result<_>>()?),
    };
    let device = Cpu::with_threads(1).expect("a thread");
    let made = Amg::with(&device, &a, &options, near_null.as_deref());
    let n = a.nrows();
    let m = match made {
        Ok(m) => m,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!is_dominant || !n.is_multiple_of(options.unknowns) || near_null.is_some(), "{error}");
            return Ok(());
        }
    };
    assert_eq!(m.levels()[0].rows, n);
    assert!(m.levels().windows(2).all(|pair| pair[1].rows < pair[0].rows), "{m}");
    if !is_dominant {
        return Ok(());
    }
    let r: Vec<f64> = (0..n).map(|i| ((i * 7) % 5) as f64 - 1.5).collect();
    let apply = |m: &Amg<f64, Cpu>| {
        let (on_device, mut z) = (device.upload(&r).expect("room"), Backend::<f64>::zeros(&device, n).expect("room"));
        m.apply(&device, None, &on_device, &mut z).expect("a cycle");
        device.download(&z).expect("room")
    };
    let z = apply(&m);
    assert!(z.iter().all(|v| v.is_finite()), "{z:?}");
    let product: f64 = r.iter().zip(&z).map(|(r, z)| r * z).sum();
    assert!(n == 0 || product > 0.0, "r . M^-1 r = {product:e}");
    let again = Amg::with(&device, &a, &options, near_null.as_deref()).expect("what was set up before");
    assert!(same(&apply(&again), &z), "the second set-up has other bits");
    Ok(())
}

/// A symmetric matrix whose diagonal outweighs each row by 1.
fn dominant(u: &mut Unstructured<'_>) -> Result<Csr<f64>> {
    let n = u.int_in_range(1..=40)?;
    let mut weights = vec![1.0; n];
    let mut triplets = Triplets::new(n, n).expect("a small shape");
    for _ in 0..u.int_in_range(0..=120)? {
        let (i, j) = (u.int_in_range(0..=n - 1)?, u.int_in_range(0..=n - 1)?);
        if i == j {
            continue;
        }
        let v = -f64::from(u.arbitrary::<u8>()?) / 16.0;
        for (row, col) in [(i, j), (j, i)] {
            triplets.push(row, col, v).expect("an entry inside");
        }
        (weights[i], weights[j]) = (weights[i] - v, weights[j] - v);
    }
    weights.into_iter().enumerate().for_each(|(i, w)| triplets.push(i, i, w).expect("an entry inside"));
    Ok(triplets.to_csr().expect("a small matrix"))
}
