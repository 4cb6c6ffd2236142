//! Coefficients of the fourth-kind Chebyshev smoother with optimal weights.
//!
//! With s the residual of D^-1 A x = D^-1 b and rho a bound on the eigenvalues of D^-1 A, step k = 1, 2, ... is
//! ```text
//! z <- (2k - 3)/(2k + 1) z + (8k - 4)/(2k + 1)/rho s;    x <- x + beta_k z;    s <- s - D^-1 A z
//! ```
//! No lower end of the spectrum is needed: the weights minimise the bound on a V-cycle's convergence factor.
//! Reference: Lottes 2023, Optimal polynomial smoothers for multigrid V-cycles; Phillips & Fischer 2022, Optimal
//! Chebyshev smoothers and one-sided V-cycles.

/// The largest degree that the weights are tabulated for.
pub const DEGREES: usize = 4;

/// beta_1, beta_2, ... of each degree (Lottes, table 1).
const WEIGHTS: [&[f64]; DEGREES] = [
    &[1.125],
    &[1.02387287570313, 1.26408905371085],
    &[1.00842544782028, 1.08867839208730, 1.33753125909618],
    &[1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000],
];

/// The coefficients of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Of the previous z; 0 if that is not read.
    pub(crate) kept: f64,
    /// Of the residual.
    pub(crate) taken: f64,
    /// Of z in x.
    pub(crate) weight: f64,
}

/// The steps of a smoother of a degree from 1 to [`DEGREES`], with `bound` on the eigenvalues of D^-1 A.
pub(crate) fn steps(degree: usize, bound: f64) -> impl Iterator<Item = Step> {
    (0..degree).map(move |before| step(degree, before, bound))
}

/// The step of [`steps`] that follows `before` others.
pub(crate) fn step(degree: usize, before: usize, bound: f64) -> Step {
    let (k, weight) = (before as f64 + 1.0, WEIGHTS[degree - 1][before]);
    let kept = if before == 0 { 0.0 } else { (2.0 * k - 3.0) / (2.0 * k + 1.0) };
    Step { kept, taken: (8.0 * k - 4.0) / (2.0 * k + 1.0) / bound, weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factor by which a smoother reduces an error at the eigenvalue `lambda`, for the bound 1.
    fn left(degree: usize, lambda: f64) -> f64 {
        let (mut error, mut residual, mut z) = (1.0, lambda, 0.0);
        for Step { kept, taken, weight } in steps(degree, 1.0) {
            z = kept * z + taken * residual;
            error -= weight * z;
            residual -= lambda * z;
        }
        error
    }

    #[test]
    fn the_weights_are_optimal() {
        // Lottes, theorem 1: with the optimal weights lambda p^2 / (1 - p^2) has its maximum over (0, 1] once for each
        // weight and at 0, all alike.
        for degree in 1..=DEGREES {
            let height = |lambda: f64| {
                let p = left(degree, lambda);
                lambda * p * p / (1.0 - p * p)
            };
            let samples: Vec<f64> = (1..=200_000).map(|k| height(f64::from(k) / 200_000.0)).collect();
            let mut peaks: Vec<f64> =
                samples.windows(3).filter(|w| w[1] > w[0] && w[1] >= w[2]).map(|w| w[1]).collect();
            peaks.extend([samples[0], samples[samples.len() - 1]]);
            assert_eq!(peaks.len(), degree + 1, "degree {degree}: {peaks:?}");
            let most = peaks.iter().copied().fold(0.0, f64::max);
            // The samples nearest to 0 differ from the limit by 1e-5 times the slope, which is a few units.
            assert!(peaks.iter().all(|peak| (peak / most - 1.0).abs() < 1e-3), "degree {degree}: {peaks:?}");
        }
    }

    /// The figures of [`spandrel_formats::amg::OMEGA`]: the u with the least maximum of t (1 - u t)^2 q(t)^2.
    #[test]
    fn the_step_of_prolongations_counts_the_smoother() {
        let best = |left: &dyn Fn(f64) -> f64| {
            let height = |u: f64| {
                let at = |t: f64| t * ((1.0 - u * t) * left(t)).powi(2);
                (1..=2000).map(|k| at(f64::from(k) / 2000.0)).fold(0.0, f64::max)
            };
            let steps = (100..=250).map(|k| f64::from(k) / 100.0);
            steps.min_by(|&u, &v| height(u).total_cmp(&height(v)))
        };
        assert_eq!(best(&|_| 1.0), Some(1.33));
        assert_eq!([2, 4].map(|degree| best(&|t| left(degree, t))), [Some(1.52), Some(1.61)]);
    }

    #[test]
    fn no_error_grows() {
        for degree in 1..=DEGREES {
            assert!((1..=1000).all(|k| left(degree, f64::from(k) / 1000.0).abs() < 1.0));
        }
    }
}
