//! The problem: the right-hand side and the first guess.

use std::path::Path;
use std::sync::Arc;

use spandrel::distributed::Rows;
use spandrel::solver::NearNull;
use spandrel::{Csr, Real};
use spandrel_formats::Dense;
use spandrel_formats::hash::{STEP, splitmix64};

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

/// The near-null space as `--near-null-space` or `--coordinates` gives it.
///
/// # Errors
/// Those of the file; kind `shape` with another number of rows.
pub(super) fn near_null<T: Real>(args: &SolveArgs, a: &Csr<T>) -> Result<Option<NearNull>> {
    if let Some(file) = args.near_null_space.as_deref() {
        let advice = "give a file with a column for each vector (Matrix Market, plain text, .npy)";
        let vectors: Dense<f64> = input::columns(file, "the near-null space", a.nrows(), advice)?;
        return Ok(Some(NearNull::Vectors(Arc::new(vectors.values().to_vec()))));
    }
    let Some(file) = args.coordinates.as_deref() else { return Ok(None) };
    let advice = "give a file with a row for each point (Matrix Market, plain text, .npy)";
    let points: Dense<f64> = input::table(file, advice)?;
    let (count, dimension) = (points.nrows(), points.ncols());
    if count * dimension != a.nrows() || !(2..=3).contains(&dimension) {
        let file = file.display().to_string();
        let message = format!(
            "{}: {} of {} do not fit the matrix's {}; give 2 or 3 coordinates for each point",
            input::name(&file),
            input::counted(count, "point"),
            input::counted(dimension, "coordinate"),
            input::counted(a.nrows(), "row")
        );
        return Err(Failure::new("shape", message));
    }
    let by_point = (0..count).flat_map(|point| (0..dimension).map(move |c| (c, point)));
    let points = by_point.map(|(c, point)| points.column(c)[point]).collect();
    Ok(Some(NearNull::Coordinates { points: Arc::new(points), dimension }))
}

/// The rows of b that one of several ranks has.
///
/// # Errors
/// Those of the file; kind `unsupported` for one with several columns.
pub(super) fn rows_of_right_hand_side<T: Real>(args: &SolveArgs, rows: &Rows<T>, nrows: usize) -> Result<Vec<T>> {
    match args.rhs.as_str() {
        "ones" => Ok(vec![T::one(); rows.len()]),
        "random" => Ok(random_from(args.seed, rows.first(), rows.len())),
        "from-solution" => {
            Ok((0..rows.len()).map(|i| rows.row(i).1.iter().fold(T::zero(), |sum, &v| sum + v)).collect())
        }
        file => {
            let advice = format!(
                "give ones, random, from-solution, or a file with one column (Matrix Market, plain text, .npy){}",
                names::did_you_mean(file, names::RIGHT_HAND_SIDES)
            );
            rows_of_file(Path::new(file), "b", rows, nrows, &advice)
        }
    }
}

/// The rows of x0 that one of several ranks has; `None` for zero.
///
/// # Errors
/// As [`rows_of_right_hand_side`].
pub(super) fn rows_of_first_guess<T: Real>(args: &SolveArgs, rows: &Rows<T>, nrows: usize) -> Result<Option<Vec<T>>> {
    let Some(file) = args.x0.as_deref() else { return Ok(None) };
    rows_of_file(file, "x0", rows, nrows, "give a file with one column (Matrix Market, plain text, .npy)").map(Some)
}

/// The rows of a file with one column. Every rank reads the whole file.
fn rows_of_file<T: Real>(path: &Path, what: &str, rows: &Rows<T>, nrows: usize, advice: &str) -> Result<Vec<T>> {
    let whole: Dense<T> = input::columns(path, what, nrows, advice)?;
    if whole.ncols() > 1 {
        let found = input::counted(whole.ncols(), "column");
        let message =
            format!("{}: {what} has {found}; ranks solve for one, so give one or leave --ranks out", path.display());
        return Err(Failure::new("unsupported", message));
    }
    let first = rows.first() as usize;
    Ok(whole.column(0)[first..first + rows.len()].to_vec())
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
    random_from(seed, 0, len)
}

/// The numbers of [`random`] from the number `first` on.
fn random_from<T: Real>(seed: u64, first: u64, len: usize) -> Vec<T> {
    let draw = |at: u64| splitmix64(seed.wrapping_add(first.wrapping_add(at).wrapping_mul(STEP)));
    (0..len as u64).map(|at| T::from_f64((draw(at) >> 40) as f64 / f64::from(1u32 << 23) - 1.0)).collect()
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
        assert_eq!(x[300..], random_from::<f64>(1, 300, 700));
        let mean = x.iter().sum::<f64>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        let narrow = random::<f32>(1, 1000);
        assert!(x.iter().zip(narrow).all(|(&wide, narrow)| wide == f64::from(narrow)));
    }
}
