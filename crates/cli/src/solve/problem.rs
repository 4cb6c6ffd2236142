//! What is solved: the right-hand side and the first guess.

use std::path::Path;

use spandrel::{Csr, Real};
use spandrel_formats::Dense;

use crate::args::SolveArgs;
use crate::failure::{Failure, Result};
use crate::{input, names};

/// b as `--rhs` asks for it, or the columns of B.
pub(super) fn right_hand_side<T: Real>(args: &SolveArgs, a: &Csr<T>) -> Result<Dense<T>> {
    let b = match args.rhs.as_str() {
        "ones" => vec![T::one(); a.nrows()],
        "random" => random(args.seed, a.nrows()),
        "from-solution" => row_sums(a),
        file => {
            let advice = format!(
                "give ones, random, from-solution, or a file with one or several columns (Matrix Market, plain text, .npy){}",
                names::did_you_mean(file, names::RIGHT_HAND_SIDES)
            );
            return input::columns(Path::new(file), "b", a.nrows(), &advice);
        }
    };
    Ok(Dense::new(a.nrows(), 1, b)?)
}

/// The file that `--rhs` names, if it names one.
pub(super) fn rhs_file(args: &SolveArgs) -> Option<&Path> {
    match args.rhs.as_str() {
        "ones" | "random" | "from-solution" => None,
        file => Some(Path::new(file)),
    }
}

/// x0 as `--x0` asks for it, a column for each of the `columns` of b; `None` for zero.
///
/// # Errors
/// Those of the file; kind `shape` with another number of columns than b.
pub(super) fn first_guess<T: Real>(args: &SolveArgs, a: &Csr<T>, columns: usize) -> Result<Option<Dense<T>>> {
    let Some(file) = args.x0.as_deref() else { return Ok(None) };
    let advice = "give a file with a column for each column of b (Matrix Market, plain text, .npy)";
    let x0 = input::columns(file, "x0", a.ncols(), advice)?;
    if x0.ncols() != columns {
        let file = file.display().to_string();
        let (found, expected) = (input::counted(x0.ncols(), "column"), input::counted(columns, "column"));
        let message = format!("{}: x0 has {found}, b has {expected}; give a first guess for each", input::name(&file));
        return Err(Failure::new("shape", message));
    }
    Ok(Some(x0))
}

/// A x for x = 1, each row summed in stored order.
fn row_sums<T: Real>(a: &Csr<T>) -> Vec<T> {
    (0..a.nrows()).map(|i| a.row(i).1.iter().fold(T::zero(), |sum, &v| sum + v)).collect()
}

/// ||x - 1|| / ||1||.
pub(super) fn error_against_ones<T: Real>(x: &[T]) -> f64 {
    if x.is_empty() {
        return 0.0;
    }
    let squares: f64 = x.iter().map(|v| (v.as_f64() - 1.0).powi(2)).sum();
    (squares / x.len() as f64).sqrt()
}

/// Uniform numbers in -1..1 of 24 bits, the same in both precisions and on every machine.
///
/// Reference: SplitMix64, Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
pub(crate) fn random<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..len).map(|_| T::from_f64((draw() >> 40) as f64 / f64::from(1u32 << 23) - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_inside_and_repeat() {
        let x = random::<f64>(1, 1000);
        assert!(x.iter().all(|v| (-1.0..1.0).contains(v)));
        assert_eq!(x, random::<f64>(1, 1000));
        assert_ne!(x, random::<f64>(2, 1000));
        let mean = x.iter().sum::<f64>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        let narrow = random::<f32>(1, 1000);
        assert!(x.iter().zip(narrow).all(|(&wide, narrow)| wide == f64::from(narrow)));
    }
}
