//! Trials of y <- a A x + b y: the bound, the declared order, agreement of runs and threads, NaN in operands that must
//! not be read, the gate. They are written over closures, for SpMV, its transpose and one column of SpMM.

use spandrel_backend::Order;
use spandrel_formats::Real;

use crate::oracle::Data;
use crate::reference::{A, B, Factor, difference};
use crate::subject::{Call, GateState, Product, Traits};
use crate::trial::{Finding, Verdict, wrong};

/// The loaded matrix on each device of the fleet, the subject first.
pub(crate) type Products<'b, T> = Vec<(String, Product<'b, T>)>;

/// y before the call: y0, or NaN if b is 0.
fn before<T: Real>(data: &Data<T>, b: &Factor) -> Vec<T> {
    if b.value::<T>() == T::zero() { vec![T::nan(); data.y.len()] } else { data.y.clone() }
}

fn context(what: &str, a: &Factor, b: &Factor) -> impl FnOnce(String) -> Finding {
    let what = format!("{what} with a = {}, b = {}", text(a), text(b));
    move |detail| wrong(format!("{what}: {detail}"))
}

/// `2.5*(1/3)*(0.3/0.7)`.
fn text(factor: &Factor) -> String {
    let mut text = factor.host.to_string();
    for (num, den) in factor.num.into_iter().zip(factor.den) {
        if num.is_some() || den.is_some() {
            text += &format!("*({}/{})", num.unwrap_or(1.0), den.unwrap_or(1.0));
        }
    }
    text
}

/// Coefficient pairs: all of them, or a few with each kind for a large case.
fn coefficients(few: bool) -> Vec<(&'static Factor, &'static Factor)> {
    if few {
        vec![(&A[0], &B[0]), (&A[5], &B[4])]
    } else {
        A.iter().flat_map(|a| B.iter().map(move |b| (a, b))).collect()
    }
}

/// The bound, the declared order, three runs, every device.
pub(crate) fn values<T: Real>(data: &Data<T>, traits: &Traits, products: &Products<'_, T>, few: bool) -> Verdict {
    let (_, subject) = &products[0];
    for (number, (a, b)) in coefficients(few).into_iter().enumerate() {
        let y0 = before(data, b);
        let call = Call { a, x: &data.x, b, y: &y0, gate: GateState::None };
        let y = subject(&call)?;
        data.rows().check(a, b, &y0, &y).map_err(context("y", a, b))?;
        if traits.order == Order::Stored {
            let expected = data.in_stored_order(a, &data.x, b, &y0);
            differing(&y, &expected).map_err(context("y against the stored order", a, b))?;
        }
        if traits.order == Order::Unordered {
            continue;
        }
        // Repetition and threads do not depend on the coefficients, so two pairs are enough: one without y and one with
        // it.
        if number < 2 {
            for run in 2..=3 {
                differing(&subject(&call)?, &y).map_err(context(&format!("run {run} against run 1"), a, b))?;
            }
            for (label, other) in &products[1..] {
                differing(&other(&call)?, &y).map_err(context(&format!("{label} against {}", products[0].0), a, b))?;
            }
        }
    }
    Ok(())
}

fn differing<T: Real>(found: &[T], expected: &[T]) -> Result<(), String> {
    difference(found, expected).map_or(Ok(()), Err)
}

/// NaN and infinities in x must appear in the rows that have an entry there. Formats that skip padding show them in no
/// other row. A format that multiplies fill may turn further rows into NaN, but into nothing else.
pub(crate) fn special<T: Real>(data: &Data<T>, traits: &Traits, products: &Products<'_, T>) -> Verdict {
    let n = data.shape.1;
    let mut x = data.x.clone();
    for (at, value) in [(0, T::nan()), (n / 2, T::infinity()), (n - 1, T::neg_infinity())] {
        x[at] = value;
        let reference = Factor::host(1.0);
        let y0 = before(data, &B[0]);
        let call = Call { a: &reference, x: &x, b: &B[0], y: &y0, gate: GateState::None };
        let y = products[0].1(&call)?;
        let expected = data.in_stored_order(&reference, &x, &B[0], &y0);
        if traits.multiplies_fill {
            let kept = |y: T, e: T| match traits.order {
                Order::Stored => y == e,
                _ => y == e || (y.is_finite() && e.is_finite()),
            };
            let at = y.iter().zip(&expected).position(|(&y, &e)| !y.is_nan() && !kept(y, e));
            if let Some(at) = at {
                return Err(wrong(format!("row {at}: expected {:e} or NaN, found {:e}", expected[at], y[at])));
            }
            continue;
        }
        let kind = |v: T| {
            if v.is_nan() {
                0
            } else if v.is_finite() {
                1
            } else {
                2 + i32::from(v.is_sign_positive())
            }
        };
        if let Some(at) = y.iter().zip(&expected).position(|(&y, &e)| kind(y) != kind(e)) {
            return Err(wrong(format!("row {at}: expected {:e}, found {:e}", expected[at], y[at])));
        }
        if traits.order == Order::Stored {
            differing(&y, &expected).map_err(context("y", &reference, &B[0]))?;
        }
    }
    Ok(())
}

/// A stopped gate leaves y alone, and a running one does not change the result.
pub(crate) fn gated<T: Real>(data: &Data<T>, traits: &Traits, products: &Products<'_, T>) -> Verdict {
    let (_, subject) = &products[0];
    for (a, b) in [(&A[3], &B[2]), (&A[0], &B[0])] {
        let call = Call { a, x: &data.x, b, y: &data.y, gate: GateState::Stopped };
        differing(&subject(&call)?, &data.y).map_err(context("y behind a stopped monitor", a, b))?;
        let free = subject(&Call { gate: GateState::None, ..call })?;
        let running = subject(&Call { gate: GateState::Running, ..call })?;
        data.rows().check(a, b, &data.y, &running).map_err(context("y behind a running monitor", a, b))?;
        if traits.order != Order::Unordered {
            differing(&running, &free).map_err(context("y behind a running monitor", a, b))?;
        }
        if !data.y.is_empty() && difference(&free, &data.y).is_none() {
            return Err(wrong("the product equals y0, so that the gate was not tried"));
        }
    }
    Ok(())
}
