//! An iteration on a matrix that the device has renumbered, for `amg` on a GPU.
//!
//! Products with a large matrix in random order wait for x; in a renumbered one, neighbours are close together. The
//! host would need longer to renumber than the whole solve takes, so the device does it, on the rows that the set-up
//! needs there anyway. Outside of this module, nothing knows of the order.
//!
//! Cost: on the device, the search and the move of the matrix; two vectors, a position per entry and two numbers per
//! row stay. Per solve b and x are moved there, and x back. New values are moved there too; from the first ones on
//! their vector stays, and the matrix in CSR if the iteration needs it for them.

use std::sync::Arc;

use spandrel_backend::{Backend, MatNumbering, MatRenumbering, Renumber};
use spandrel_formats::{Csr, Permutation, Real};
use spandrel_solvers::{Error, Iterate, Outcome, Precond, Result};

use super::build::Setup;
use super::device::restored;
use super::element::{Element, SolverBackend};
use super::engine::{Call, Engine};
use super::plan::{Plan, Stage};
use super::settings::Reorder;
use super::supply::{Given, Supply};
use crate::Mat;

/// With fewer rows, the search takes as long as the products gain: at half as many, both took 13 ms on an H100.
const FEWEST: usize = 1 << 19;
/// Formats that take any order of rows without more room.
const FORMATS: [&str; 4] = ["csr", "ell", "sell", "hyb"];
/// Entries are scattered if their mean distance from the diagonal is at least this share of the number of rows. A
/// matrix in random order has a third.
pub const SCATTERED: f64 = 0.1;
/// The most levels of a search on a device; a GPU needs some microseconds for each. A grid of 256^3 points in random
/// order has about 600.
pub const LEVELS: usize = 2000;

type Vector<T, B> = <B as Backend<T>>::Vector;

/// A matrix that is renumbered, and how to get there and back.
struct Order<T: Real, B: Renumber<Csr<T>>> {
    /// On the host.
    rows: Arc<Permutation>,
    numbering: MatNumbering<B, Csr<T>>,
    /// Moves new values.
    moves: MatRenumbering<B, Csr<T>>,
}

/// An iteration on P A P^T.
struct Renumbered<T: Real, B: Backend<T> + Renumber<Csr<T>>> {
    order: Order<T, B>,
    /// P b and P x.
    vectors: [Vector<T, B>; 2],
    /// The values of P A P^T, from the first update on.
    values: Option<Vector<T, B>>,
    /// P A P^T for updates, with any values.
    rows: Option<Mat<B, Csr<T>>>,
    within: Box<dyn Engine<T, B> + Send>,
}

/// Sets up the iteration of a plan, on a renumbered matrix if the plan leaves the order open and `amg` gains by it. The
/// plan then says so.
pub(super) fn engine<T: Element, B: SolverBackend<T>>(
    device: &B,
    a: Arc<Csr<T>>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    engine_from(FEWEST, device, a, plan, setup)
}

fn engine_from<T: Element, B: SolverBackend<T>>(
    fewest: usize,
    device: &B,
    a: Arc<Csr<T>>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    if plan.order_is_open {
        // What an earlier set-up may have said.
        (plan.reorder, plan.reorder_why) = (Reorder::None, String::new());
    }
    let is_scalar = matches!(plan.preconditioner, Precond::Amg(options) if options.unknowns == 1);
    let is_free = plan.order_is_open && plan.near_null.is_none() && FORMATS.contains(&plan.format);
    let (supply, order) = match is_free && is_scalar && plan.nrows >= fewest {
        true => renumbered(device, a, setup)?,
        false => (Supply::new(a), None),
    };
    if order.is_some() {
        (plan.reorder, plan.reorder_why) = (Reorder::Bfs, "by the device; rows are in random order".to_string());
    }
    let within = T::engine(device, supply, plan, setup)?;
    let Some(order) = order else { return Ok(within) };
    let zeros = || Backend::<T>::zeros(device, plan.nrows);
    let vectors = [zeros()?, zeros()?];
    Ok(Box::new(Renumbered { order, vectors, values: None, rows: None, within }))
}

/// The matrix on the device, in breadth-first order if its rows are scattered and there is room for two matrices.
#[allow(clippy::type_complexity)] // a matrix and an order
fn renumbered<T: Element, B: SolverBackend<T>>(
    device: &B,
    a: Arc<Csr<T>>,
    setup: &mut Setup<'_>,
) -> Result<(Supply<T, B>, Option<Order<T, B>>)> {
    setup.begin(Stage::Load, "csr")?;
    let rows = Mat::load(device, Arc::clone(&a))?;
    device.synchronize()?;
    setup.end_load();
    if rows.distance(device)? < SCATTERED * a.nrows() as f64 {
        return Ok((Supply::with_rows(a, None, rows), None));
    }
    setup.begin(Stage::Reorder, Reorder::Bfs)?;
    let found = match ordered(device, &rows) {
        Err(Error::Backend(spandrel_backend::Error::OutOfMemory { .. })) => None,
        found => found?,
    };
    setup.end_analyze();
    Ok(match found {
        Some((order, renumbered)) => (Supply::with_rows(a, Some(Arc::clone(&order.rows)), renumbered), Some(order)),
        None => (Supply::with_rows(a, None, rows), None),
    })
}

/// The order and P A P^T; `None` if the search has too many levels.
#[allow(clippy::type_complexity)] // an order and a matrix
fn ordered<T: Element, B: SolverBackend<T>>(
    device: &B,
    rows: &Mat<B, Csr<T>>,
) -> Result<Option<(Order<T, B>, Mat<B, Csr<T>>)>> {
    let Some(numbering) = rows.breadth_first(device, LEVELS)? else { return Ok(None) };
    let (renumbered, moves) = rows.renumbered(device, &numbering)?;
    let rows = Arc::new(Permutation::new(numbering.order(device)?)?);
    Ok(Some((Order { rows, numbering, moves }, renumbered)))
}

impl<T: Element, B: SolverBackend<T>> Renumbered<T, B> {
    /// The values of P A P^T, from those of A.
    fn moved(&mut self, be: &B, values: &Vector<T, B>) -> Result<Vector<T, B>> {
        let mut moved = match self.values.take() {
            Some(moved) => moved,
            None => Backend::<T>::zeros(be, self.order.moves.nnz())?,
        };
        self.order.moves.values(be, None, values, &mut moved)?;
        Ok(moved)
    }

    /// Gives the iteration P A P^T with these values, as rows on the device; as rows of the host if there is no room.
    fn renew_rows(&mut self, be: &B, a: &Arc<Csr<T>>, values: &Vector<T, B>) -> Result<f64> {
        let supply = match self.moved_rows(be, a, values) {
            Ok(rows) => Supply::with_rows(Arc::clone(a), Some(Arc::clone(&self.order.rows)), rows),
            Err(Error::Backend(spandrel_backend::Error::OutOfMemory { .. })) => {
                Supply::new(Arc::new(self.order.rows.permute_symmetric(&**a)?))
            }
            Err(error) => return Err(error),
        };
        let renewed = self.within.renew(be, &supply);
        self.rows = supply.take_rows();
        renewed
    }

    /// P A P^T on the device, with these values.
    fn moved_rows(&mut self, be: &B, a: &Arc<Csr<T>>, values: &Vector<T, B>) -> Result<Mat<B, Csr<T>>> {
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => Mat::load(be, Arc::clone(a))?.renumbered(be, &self.order.numbering)?.0,
        };
        rows.update_values_from(be, values)?;
        Ok(rows)
    }
}

impl<T: Element, B: SolverBackend<T>> Engine<T, B> for Renumbered<T, B> {
    fn run(&mut self, be: &B, call: Call<'_, T>, b: &Vector<T, B>, x: &mut Vector<T, B>) -> Result<Outcome> {
        let Self { order: Order { rows, numbering, .. }, vectors: [inner_b, inner_x], within, .. } = self;
        numbering.renumber(be, None, b, inner_b)?;
        numbering.renumber(be, None, x, inner_x)?;
        let Call { method, options, restart, observer } = call;
        let observer = &mut |progress, iterate: Iterate<'_, T>| {
            let fetch = || restored(Some(&**rows), iterate.x()?.unwrap_or_default());
            observer(progress, if iterate.is_known() { Iterate::new(&fetch) } else { Iterate::none() })
        };
        let outcome = within.run(be, Call { method, options, restart, observer }, inner_b, inner_x)?;
        numbering.restore(be, None, inner_x, x)?;
        Ok(outcome)
    }

    fn precondition(&self, be: &B, r: &Vector<T, B>, z: &mut Vector<T, B>) -> Result<()> {
        let n = self.order.rows.len();
        let (mut inner_r, mut inner_z) = (Backend::<T>::zeros(be, n)?, Backend::<T>::zeros(be, n)?);
        self.order.numbering.renumber(be, None, r, &mut inner_r)?;
        self.within.precondition(be, &inner_r, &mut inner_z)?;
        Ok(self.order.numbering.restore(be, None, &inner_z, z)?)
    }

    fn renew(&mut self, be: &B, a: &Supply<T, B>) -> Result<f64> {
        let values = self.moved(be, &Backend::<T>::upload(be, a.host().values())?)?;
        let renewed = match self.within.renew_from(be, &values) {
            Some(renewed) => renewed,
            None => self.renew_rows(be, a.host(), &values),
        };
        self.values = Some(values);
        renewed
    }

    fn renew_from(&mut self, be: &B, values: &Vector<T, B>) -> Option<Result<f64>> {
        let moved = match self.moved(be, values) {
            Ok(moved) => moved,
            Err(error) => return Some(Err(error)),
        };
        let renewed = self.within.renew_from(be, &moved);
        self.values = Some(moved);
        renewed
    }

    fn matrix(&self, be: &B) -> Option<Result<Csr<T>>> {
        let own = |inner: Csr<T>| Ok(self.order.rows.inverse().permute_symmetric(&inner)?);
        self.within.matrix(be).map(|inner| inner.and_then(own))
    }

    fn narrow_bytes(&self, be: &B) -> Option<u64> {
        self.within.narrow_bytes(be)
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use std::ops::ControlFlow;

    use spandrel_formats::{generate, reorder};
    use spandrel_solvers::{AmgOptions, Method, Options};

    use super::super::build::{Reporter, Times};
    use super::super::{Builder, FormatChoice, Precision};
    use super::*;
    use crate::Cpu;

    type Boxed = Box<dyn Engine<f64, Cpu> + Send>;

    /// An engine for a matrix by CG and amg in this precision and format, and its plan.
    fn engine(
        a: &Csr<f64>,
        (precision, format): (Precision, &'static str),
        make: impl FnOnce(&Cpu, Arc<Csr<f64>>, &mut Plan, &mut Setup<'_>) -> Result<Boxed>,
    ) -> (Boxed, Plan) {
        let cpu = Cpu::new();
        let builder = Builder::default().method(Method::Cg).preconditioner(Precond::Amg(AmgOptions::default()));
        let builder = builder.format(FormatChoice::Named(format));
        let mut plan = builder.precision(precision).plan_on(&cpu, a.clone()).unwrap().plan().clone();
        plan.order_is_open = true;
        let (mut reporter, mut times) = (Reporter::default(), Times::default());
        let engine = make(&cpu, Arc::new(a.clone()), &mut plan, &mut Setup::new(&mut reporter, &mut times)).unwrap();
        (engine, plan)
    }

    /// x of A x = b, and every x that was shown.
    fn solved(engine: &mut Boxed, b: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let (be, mut shown) = (Cpu::new(), Vec::new());
        let (b, mut x) = (be.upload(b).unwrap(), Backend::<f64>::zeros(&be, b.len()).unwrap());
        let observer = &mut |_, iterate: Iterate<'_, f64>| {
            shown.extend(iterate.x().unwrap());
            ControlFlow::Continue(())
        };
        let options = Options { check_every: 1, ..Options::default() };
        let outcome = engine.run(&be, Call { method: Method::Cg, options, restart: 30, observer }, &b, &mut x).unwrap();
        assert!(outcome.status.is_converged(), "{outcome}");
        (be.download(&x).unwrap(), shown)
    }

    #[test]
    fn a_renumbered_iteration_has_the_bits_of_one_on_a_renumbered_matrix() {
        let shuffle = Permutation::new((0..1728).map(|i| i * 1009 % 1728).collect()).unwrap();
        let a = shuffle.permute_symmetric(&generate::csr::<f64>("poisson3d:12").unwrap()).unwrap();
        let order = reorder::breadth_first(&a).unwrap();
        let b: Vec<f64> = (0..1728).map(|i| 1.0 + f64::from(i % 7)).collect();
        let be = Cpu::new();
        let kinds = [Precision::Native, Precision::Mixed].map(|precision| ["csr", "ell"].map(|name| (precision, name)));
        for kind in kinds.into_iter().flatten() {
            let (mut renumbered, plan) = engine(&a, kind, |be, a, plan, setup| engine_from(0, be, a, plan, setup));
            assert_eq!(plan.reorder, Reorder::Bfs, "{plan}");
            let (mut plain, _) = engine(&order.permute_symmetric(&a).unwrap(), kind, |be, a, plan, setup| {
                Element::engine(be, Supply::new(a), plan, setup)
            });
            let mut again = a.clone();
            again.values_mut().iter_mut().for_each(|v| *v *= 3.0);
            for (round, a) in [&a, &again, &a].into_iter().enumerate() {
                if round > 0 {
                    renumbered.renew(&be, &Supply::new(Arc::new(a.clone()))).unwrap();
                    plain.renew(&be, &Supply::new(Arc::new(order.permute_symmetric(a).unwrap()))).unwrap();
                }
                let (x, shown) = solved(&mut renumbered, &b);
                let (inner, inner_shown) = solved(&mut plain, &order.apply(&b).unwrap());
                assert_eq!(order.apply(&x).unwrap(), inner, "round {round}");
                assert!(!shown.is_empty() && shown.len() == inner_shown.len());
                for (x, inner) in shown.iter().zip(&inner_shown) {
                    assert_eq!(&order.apply(x).unwrap(), inner);
                }
                let r = be.upload(&b).unwrap();
                let mut z = [(); 2].map(|()| Backend::<f64>::zeros(&be, 1728).unwrap());
                renumbered.precondition(&be, &r, &mut z[0]).unwrap();
                plain.precondition(&be, &be.upload(&order.apply(&b).unwrap()).unwrap(), &mut z[1]).unwrap();
                let [z, inner] = z.map(|z| be.download(&z).unwrap());
                assert_eq!(order.apply(&z).unwrap(), inner);
            }
            if let Some(own) = renumbered.matrix(&be) {
                assert_eq!(own.unwrap(), a);
            }
        }
    }

    #[test]
    fn rows_in_their_own_order_stay_there() {
        let a = generate::csr::<f64>("poisson3d:12").unwrap();
        let (_, plan) = engine(&a, (Precision::Native, "csr"), |be, a, plan, setup| engine_from(0, be, a, plan, setup));
        assert_eq!(plan.reorder, Reorder::None);
        let shuffle = Permutation::new((0..1728).map(|i| i * 1009 % 1728).collect()).unwrap();
        let small = shuffle.permute_symmetric(&a).unwrap();
        let (_, plan) = engine(&small, (Precision::Native, "csr"), super::engine);
        assert_eq!(plan.reorder, Reorder::None);
    }
}
