//! The moments of sampled rows that decide along which axes a grid is coarsened.

use rayon::prelude::*;

use super::{NEIGHBOURS, Neighbours, SUMMED, difference};
use crate::Real;

/// Whether the places are apart from the row's point along each axis.
const APART: [[bool; 3]; NEIGHBOURS] = {
    let mut apart = [[false; 3]; NEIGHBOURS];
    let mut at = 0;
    while at < NEIGHBOURS {
        let [x, y, z] = difference(at);
        apart[at] = [x != 0, y != 0, z != 0];
        at += 1;
    }
    apart
};

impl Neighbours {
    /// The sums of -a_ij d^2 for the differences d of coordinates along each axis: the diagonal of
    /// [`crate::Moments::second`]. The bits are those of [`Neighbours::moments`], which takes several times as long, if
    /// all values are finite.
    pub fn second_moments<T: Real>(rows: &[T]) -> [f64; 3] {
        let sums: Vec<Vec<[f64; 3]>> = rows.par_chunks(RUNS * SUMMED * NEIGHBOURS).map(summed_runs).collect();
        sums.iter().flatten().fold([0.0; 3], |all, sums| std::array::from_fn(|axis| all[axis] + sums[axis]))
    }
}

/// Runs of rows that are summed at once. Each addition waits for the one before it in the same run, so one run alone
/// would leave most of a core idle.
const RUNS: usize = 4;

/// The sums of each run of [`SUMMED`] rows, of at most [`RUNS`] runs.
fn summed_runs<T: Real>(rows: &[T]) -> Vec<[f64; 3]> {
    let rows = rows.as_chunks::<NEIGHBOURS>().0;
    if rows.len() < RUNS * SUMMED {
        return rows.chunks(SUMMED).map(|run| summed(run.as_flattened())).collect();
    }
    let mut sums = [[0.0; RUNS]; 3];
    for row in 0..SUMMED {
        for (at, apart) in APART.iter().enumerate() {
            let values: [f64; RUNS] = std::array::from_fn(|run| rows[run * SUMMED + row][at].as_f64());
            for (sums, &counts) in sums.iter_mut().zip(apart) {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum -= if counts { value } else { 0.0 });
            }
        }
    }
    (0..RUNS).map(|run| sums.map(|sums| sums[run])).collect()
}

/// d^2 is 0 or 1. So a place adds its value, or a zero, which changes no sum.
fn summed<T: Real>(rows: &[T]) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for row in rows.as_chunks::<NEIGHBOURS>().0 {
        for (value, apart) in row.iter().zip(&APART) {
            for (sum, &counts) in sums.iter_mut().zip(apart) {
                *sum -= if counts { value.as_f64() } else { 0.0 };
            }
        }
    }
    sums
}
