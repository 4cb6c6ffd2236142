//! The iterative solve in f64 with a preconditioner in f32.

use std::sync::Arc;

use spandrel::any::EveryFormat;
use spandrel::backend::{MixedPrecision, Spmv};
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::solvers::{Mixed, Narrowed};
use spandrel::{Csr, Format};
use spandrel_formats::Bsr;

use super::iterate::solve_with;
use super::plan::Plan;
use super::precond::{Made, make};
use super::problem::Problem;
use super::{Ending, Seconds};
use crate::failure::Result;

pub(super) fn solve<B>(problem: Problem<f64>, plan: &Plan, device: &B, seconds: &mut Seconds) -> Result<Ending<f64>>
where
    B: EveryFormat<f64> + Incomplete<f32> + Geometric<f32> + Spmv<Bsr<f32>> + MixedPrecision,
{
    let narrowed = |a: &Arc<Csr<f64>>| {
        let Narrowed { matrix, exponent } = Narrowed::new(a);
        let made = make::<f32, B>(device, &Arc::new(matrix), plan)?;
        Ok(made.and_then(|Made { m, factor, fallback }| {
            Ok(Made { m: Box::new(Mixed::new(device, m, a.nrows(), exponent)?), factor, fallback })
        }))
    };
    solve_with(problem, plan, device, seconds, &narrowed)
}
