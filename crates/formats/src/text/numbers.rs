//! Numbers in files: rounded once to the element type, and refused if it cannot hold them.
//!
//! `inf`, `infinity` and `nan` (in any case, with a sign) are values like others. A number in digits that rounds to
//! infinity (`1e400`; for f32 also `1e300`) is refused, because the file does not say infinity. One that rounds to zero
//! (`1e-400`) is zero.

use super::lines::{Fault, Parsed, quick_end, shown};
use crate::Real;

/// Parses the number at the front of `text`, rounded once to `T`, and returns its length. A number in digits may have
/// become infinite.
#[inline(always)]
fn rounded<T: Real>(text: &[u8]) -> Option<(T, usize)> {
    if T::BYTES == 4 {
        fast_float2::parse_partial::<f32, _>(text).ok().map(|(v, len)| (T::from_f64(f64::from(v)), len))
    } else {
        fast_float2::parse_partial::<f64, _>(text).ok().map(|(v, len)| (T::from_f64(v), len))
    }
}

/// Parses the finite number at the front of `text` and returns its length. Anything else is left to [`value`].
#[inline(always)]
pub(crate) fn quick_number<T: Real>(text: &[u8]) -> Option<(T, usize)> {
    rounded::<T>(text).filter(|(value, _)| value.is_finite())
}

/// Parses a finite number that is the whole first line of `text`, and returns where the next line begins.
#[inline(always)]
pub(crate) fn quick_value<T: Real>(text: &[u8]) -> Option<(T, usize)> {
    let blanks = text.iter().take_while(|b| **b == b' ').count();
    let (value, len) = quick_number(&text[blanks..])?;
    Some((value, quick_end(text, blanks + len)?))
}

/// Parses the word at byte `at` as a number, also with Fortran's exponent letter (`1.5D+03`).
pub(crate) fn value<T: Real>((at, word): (usize, &[u8])) -> Parsed<T> {
    let all = |text: &[u8]| rounded::<T>(text).filter(|&(_, len)| len == text.len()).map(|(value, _)| value);
    let fortran = || {
        let at = word.iter().position(|b| matches!(b, b'd' | b'D'))?;
        let mut text = word.to_vec();
        text[at] = b'e';
        all(&text)
    };
    let value =
        all(word).or_else(fortran).ok_or_else(|| Fault::new(at, format!("value {} is not a number", shown(word))))?;
    if value.is_infinite() && word.iter().any(u8::is_ascii_digit) {
        return Err(Fault::new(at, format!("value {} is too large for {}", shown(word), limit::<T>())));
    }
    Ok(value)
}

/// Names the element type, and what to do if its range is too small.
pub(crate) fn limit<T: Real>() -> String {
    let other = if T::BYTES == 4 { "; read it as f64" } else { "" };
    format!("{}, whose largest value is {:e}{other}", T::NAME, T::max_value())
}
