//! The iterative solve in f64 with a preconditioner in f32.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use spandrel::any::{EveryFormat, EveryMethod};
use spandrel::backend::{self, Load, Narrow, Spmv};
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::rows::Rows;
use spandrel::solvers::{Mixed, Narrowed};
use spandrel::{Csr, Mat};
use spandrel_formats::Bsr;

use super::iterate::{Supply, solve_with};
use super::plan::Plan;
use super::precond::{Given, Made, make};
use super::problem::Problem;
use super::{Ending, Seconds};
use crate::failure::Result;

fn narrowed(wide: &Csr<f64>) -> (Arc<Csr<f32>>, i32) {
    let Narrowed { matrix, exponent } = Narrowed::new(wide);
    (Arc::new(matrix), exponent)
}

/// 2^-e of a matrix in f32: narrowed on the device for what is made there, on the host, once, for what is made of it here.
pub(super) struct Narrowing<'a, B: Load<Csr<f64>> + Load<Csr<f32>>> {
    wide: &'a Supply<f64, B>,
    rows: RefCell<Option<Rc<Mat<B, Csr<f32>>>>>,
    host: OnceCell<(Arc<Csr<f32>>, i32)>,
    /// What the device said.
    exponent: Cell<Option<i32>>,
}

impl<'a, B: Load<Csr<f64>> + Load<Csr<f32>>> Narrowing<'a, B> {
    pub(super) fn of(wide: &'a Supply<f64, B>) -> Self {
        Self { wide, rows: RefCell::new(None), host: OnceCell::new(), exponent: Cell::new(None) }
    }

    fn narrowed(&self) -> &(Arc<Csr<f32>>, i32) {
        self.host.get_or_init(|| narrowed(self.wide.host()))
    }

    /// That of the host, which nothing else holds then.
    pub(super) fn into_host(self) -> Arc<Csr<f32>> {
        self.rows.take();
        let (matrix, _) = self.host.into_inner().unwrap_or_else(|| narrowed(self.wide.host()));
        matrix
    }

    /// e, which both ways give alike.
    pub(super) fn exponent(&self) -> i32 {
        self.exponent.get().unwrap_or_else(|| self.narrowed().1)
    }
}

impl<B: Narrow> Given<f32, B> for Narrowing<'_, B> {
    fn host(&self) -> &Arc<Csr<f32>> {
        &self.narrowed().0
    }

    fn rows(&self, device: &B) -> backend::Result<Rc<Mat<B, Csr<f32>>>> {
        if let Some(rows) = &*self.rows.borrow() {
            return Ok(Rc::clone(rows));
        }
        let rows = match self.wide.rows(device)?.narrow(device)? {
            Some((narrow, exponent)) => {
                self.exponent.set(Some(exponent));
                narrow
            }
            None => Mat::load(device, Arc::clone(&self.narrowed().0))?,
        };
        let rows = Rc::new(rows);
        *self.rows.borrow_mut() = Some(Rc::clone(&rows));
        Ok(rows)
    }

    fn free(&self) {
        self.rows.take();
        self.wide.free();
    }
}

pub(super) fn solve<B>(problem: Problem<f64>, plan: &Plan, device: &B, seconds: &mut Seconds) -> Result<Ending<f64>>
where
    B: EveryFormat<f64> + EveryMethod<f64> + Rows<f64> + Incomplete<f32> + Geometric<f32> + Spmv<Bsr<f32>> + Narrow,
{
    let narrowed = |a: &Supply<f64, B>| {
        let narrowing = Narrowing::of(a);
        let made = make::<f32, B>(device, &narrowing, plan)?;
        Ok(made.and_then(|Made { m, factor, fallback }| {
            Ok(Made { m: Box::new(Mixed::new(device, m, a.host().nrows(), narrowing.exponent())?), factor, fallback })
        }))
    };
    solve_with(problem, plan, device, seconds, &narrowed)
}

#[cfg(test)]
mod tests {
    use spandrel::any::{AnyBackend, Choice, Complete, Task};

    use super::*;

    /// The rows in f32, whether the host narrowed for them, and e.
    struct Rows(Arc<Csr<f64>>);

    impl Task for Rows {
        type Output = (usize, bool, i32);
        fn run<B: Complete<f64> + Complete<f32> + Narrow>(self, device: &B) -> Self::Output {
            let wide = Supply::new(self.0);
            let narrowing = Narrowing::<B>::of(&wide);
            let rows = narrowing.rows(device).expect("rows in f32");
            let by_host = narrowing.host.get().is_some();
            (rows.nnz(), by_host, narrowing.exponent())
        }
    }

    #[test]
    fn a_gpu_narrows_for_itself() {
        let a = Arc::new(spandrel_formats::generate::csr::<f64>("d3n27:12").expect("a matrix"));
        let expected = Narrowed::new(&a).exponent;
        for choice in [Choice::Cpu, Choice::Auto] {
            let device = AnyBackend::open(choice).expect("a backend");
            let found = device.run(Rows(Arc::clone(&a)));
            assert_eq!(found, (a.nnz(), device.name() == "cpu", expected), "{}", device.name());
        }
    }
}
