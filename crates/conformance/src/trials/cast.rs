//! Trials of the casts between element types: bits against plain loops, gates, every device.

use std::rc::Rc;

use spandrel_backend::{Backend, Cast, MixedPrecision, Result};
use spandrel_formats::Real;

use super::level1::LENGTHS;
use crate::case::{Stream, numbers};
use crate::reference::{A, Factor, difference};
use crate::subject::{DeviceFactor, Fleet, GateState, gate};
use crate::trial::{Trial, Verdict, wrong};

/// Numbers of either sign over 100 decades around 10^`middle`; in f32 over 36, around about a fourteenth of it, all of
/// them normal there. With `wild` some are special: zeros, ties and limits of f32, infinities and NaN.
fn mixture<T: Real>(len: usize, middle: f64, wild: bool) -> Vec<T> {
    let mut stream = Stream::new(len as u64 + 17);
    let mut x: Vec<f64> = numbers::<f64>(len as u64, len);
    let (middle, spread) = if T::BYTES == 4 { (middle / 14.0, 18.0) } else { (middle, 50.0) };
    x.iter_mut().for_each(|x| *x *= 10f64.powf(middle + spread * (2.0 * stream.unit() - 1.0)));
    let tie = 1.0 + 2f64.powi(-24);
    let special = [
        0.0,
        -0.0,
        tie,
        1.0 + 3.0 * 2f64.powi(-24),
        tie + 2f64.powi(-52),
        f64::from(f32::MAX) + 2f64.powi(102),
        f64::from(f32::MAX) + 2f64.powi(103),
        2f64.powi(-149),
        2f64.powi(-150),
        3.0 * 2f64.powi(-150),
        -2f64.powi(-127),
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];
    if wild {
        x.iter_mut().skip(1).step_by(7).zip(special).for_each(|(x, special)| *x = special);
    }
    x.into_iter().map(T::from_f64).collect()
}

/// The value before an operation whose gate lets nothing through.
const SENTINEL: f64 = 42.0;

/// y and the binade.
type Left<T> = (Vec<T>, f64);

fn run<S: Real, T: Real, D: Cast<S, T>>(be: &D, state: GateState, a: &Factor, x: &[S]) -> Result<Left<T>> {
    let before = if state == GateState::Stopped { SENTINEL } else { f64::NAN };
    let x = Backend::<S>::upload(be, x)?;
    let mut y = Backend::<T>::upload(be, &vec![T::from_f64(before); Backend::<S>::len(be, &x)])?;
    let mut binade = Backend::<f64>::scalar(be, before)?;
    let a = DeviceFactor::new::<D>(be, a)?;
    let monitor = gate::<f64, D>(be, state)?;
    Cast::<S, T>::binade(be, monitor.as_ref(), &x, &mut binade)?;
    Cast::<S, T>::cast(be, monitor.as_ref(), a.coeff(), &x, &mut y)?;
    Ok((Backend::<T>::download(be, &y)?, Backend::<f64>::download_scalar(be, &binade)?))
}

/// The largest power of two from -1022 to 1022 that is at most the largest magnitude, by plain loops; or the smallest
/// power.
fn expected<S: Real, T: Real>(a: &Factor, x: &[S]) -> Left<T> {
    let factor: f64 = a.value();
    let y = x.iter().map(|x| T::from_f64(factor * x.as_f64())).collect();
    if x.iter().any(|x| !x.is_finite()) || x.iter().all(|x| x.is_zero()) {
        return (y, 1.0);
    }
    let largest = x.iter().fold(0.0, |most: f64, x| most.max(x.as_f64().abs()));
    let mut power = 2f64.powi(-1022);
    while power < 2f64.powi(1022) && 2.0 * power <= largest {
        power *= 2.0;
    }
    (y, power)
}

fn compare<T: Real>(what: &str, found: &Left<T>, wanted: &Left<T>) -> Verdict {
    if let Some(detail) = difference(&found.0, &wanted.0) {
        return Err(wrong(format!("cast, {what}: {detail}")));
    }
    match difference(&[found.1], &[wanted.1]) {
        Some(detail) => Err(wrong(format!("binade, {what}: {detail}"))),
        None => Ok(()),
    }
}

fn values<S: Real, T: Real, D: Cast<S, T>>(fleet: &Fleet<D>, x: &[S]) -> Verdict {
    let be = fleet.first();
    // A coefficient that contains part of a scale, such as the reciprocal of a binade.
    let scale = Factor { host: 1.0, num: [None, Some(3.0)], den: [Some(2f64.powi(-90)), None] };
    for a in A.iter().chain([&scale]) {
        let left = run::<S, T, D>(be, GateState::None, a, x)?;
        compare(&format!("{a:?} against a plain loop"), &left, &expected(a, x))?;
        compare("run 2 against run 1", &run::<S, T, D>(be, GateState::None, a, x)?, &left)?;
        compare("behind a running monitor", &run::<S, T, D>(be, GateState::Running, a, x)?, &left)?;
        for (label, other) in &fleet.devices[1..] {
            compare(label, &run::<S, T, D>(other, GateState::None, a, x)?, &left)?;
        }
        let before = (vec![T::from_f64(SENTINEL); x.len()], SENTINEL);
        compare("behind a stopped monitor", &run::<S, T, D>(be, GateState::Stopped, a, x)?, &before)?;
    }
    Ok(())
}

fn one<S: Real, T: Real, D: Cast<S, T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for len in LENGTHS {
        for (suffix, middle, wild) in
            [("", 0.0, false), ("-small", -257.0, false), ("-large", 257.0, false), ("-special", 0.0, true)]
        {
            let fleet = fleet.clone();
            let name = format!("cast/vector/{}/{}/{len}{suffix}", S::NAME, fleet.name);
            out.push(Trial::new(name, move || values::<S, T, D>(&fleet, &mixture::<S>(len, middle, wild))));
        }
    }
}

/// The trials of one backend in both directions. The type in a name is the one that is read.
pub(crate) fn trials<D: MixedPrecision + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    one::<f64, f32, D>(fleet, out);
    one::<f32, f64, D>(fleet, out);
}
