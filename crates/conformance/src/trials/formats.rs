//! The trials of one storage format on one backend: products, special values, gates, the fused product, recording.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Mat, Order, Recorded, Result, Spmm, Spmv, SpmvTransposed, Step};
use spandrel_formats::{Bsrx, Format, Real};

use super::Bits;
use super::product::{self, Products};
use crate::case::{Case, numbers, seed};
use crate::oracle::{Data, Rows};
use crate::plain::Plain;
use crate::reference::{A, B as COEFFS, Factor, difference, tree_dot};
use crate::subject::{Call, Fleet, GateState, Traits, gate, product};
use crate::trial::{Finding, Trial, Verdict, wrong};

/// A case in one element type, shared by its trials. The first of them makes the operands and sums.
pub(crate) struct Shared<T> {
    case: Rc<Case>,
    data: std::cell::OnceCell<Rc<Data<T>>>,
}

impl<T: Real> Shared<T> {
    pub(crate) fn new(case: Rc<Case>) -> Rc<Self> {
        Rc::new(Self { case, data: std::cell::OnceCell::new() })
    }

    pub(crate) fn case(&self) -> &Case {
        &self.case
    }

    pub(crate) fn data(&self) -> std::result::Result<Rc<Data<T>>, Finding> {
        if let Some(data) = self.data.get() {
            return Ok(data.clone());
        }
        let data = Rc::new(self.case.data::<T>().map_err(|e| wrong(format!("the case does not build: {e:#}")))?);
        Ok(self.data.get_or_init(|| data).clone())
    }

    /// The matrix in a format. An unannounced refusal is a failure, and so is an announced one that does not come.
    pub(crate) fn stored<F: Format<Value = T>>(&self) -> std::result::Result<Arc<F>, Finding> {
        let csr = self.data()?.csr()?;
        match (F::from_csr(&csr), self.case.refused_by(F::NAME)) {
            (Ok(matrix), false) => Ok(Arc::new(matrix)),
            (Ok(_), true) => Err(wrong(format!("{} takes this matrix, which the case says it refuses", F::NAME))),
            (Err(spandrel_formats::Error::DoesNotFit { .. }), true) => Err(Finding::Refused),
            (Err(error), _) => Err(wrong(format!("{} refuses this matrix: {error}", F::NAME))),
        }
    }
}

fn traits<F: Format, D: Spmv<F>>(fleet: &Fleet<D>) -> Traits {
    Traits { stem: F::NAME, order: Spmv::<F>::order(fleet.first()), multiplies_fill: F::MULTIPLIES_FILL }
}

/// The product of a matrix on every device of a fleet.
fn products<'b, F: Format, D: Spmv<F>>(fleet: &'b Fleet<D>, host: &Arc<F>) -> Result<Products<'b, F::Value>> {
    let load = |(label, be): &'b (String, D)| Ok((label.clone(), product(be, host.clone(), Mat::spmv)?));
    fleet.devices.iter().map(load).collect()
}

/// `operation/format/type/backend/case`.
fn label<F: Format, D>(operation: &str, fleet: &Fleet<D>, case: &str) -> String {
    format!("{operation}/{}/{}/{}/{case}", F::NAME, F::Value::NAME, fleet.name)
}

/// The trials of one format and case.
pub(crate) fn trials<F, D>(fleet: &Rc<Fleet<D>>, shared: &Rc<Shared<F::Value>>, out: &mut Vec<Trial>)
where
    F: Format,
    D: Spmv<F> + 'static,
{
    let case = shared.case.clone();
    if !case.wants(F::NAME) {
        return;
    }
    let mut push = |operation: &str, suffix: &str, body: fn(&Fleet<D>, &Shared<F::Value>) -> Verdict| {
        let (fleet, shared) = (fleet.clone(), shared.clone());
        let name = label::<F, D>(operation, &fleet, &format!("{}{suffix}", case.name));
        out.push(Trial::new(name, move || body(&fleet, &shared)));
    };
    push("spmv", "", |fleet, shared| {
        let host = shared.stored::<F>()?;
        product::values(&*shared.data()?, &traits::<F, D>(fleet), &products(fleet, &host)?, shared.case.large)
    });
    if case.large {
        push("spmv_dot", "", fused::<F, D>);
        return;
    }
    if case.special {
        push("spmv", "-not-finite", |fleet, shared| {
            product::special(&*shared.data()?, &traits::<F, D>(fleet), &products(fleet, &shared.stored::<F>()?)?)
        });
        push("spmv", "-gated", |fleet, shared| {
            product::gated(&*shared.data()?, &traits::<F, D>(fleet), &products(fleet, &shared.stored::<F>()?)?)
        });
        push("spmv", "-recorded", recorded::<F, D>);
    }
    push("spmv_dot", "", fused::<F, D>);
    push("residual", "", residual::<F, D>);
}

/// The trials of A^T x for a format that offers it.
pub(crate) fn transposed<F, D>(fleet: &Rc<Fleet<D>>, shared: &Rc<Shared<F::Value>>, out: &mut Vec<Trial>)
where
    F: Format,
    D: SpmvTransposed<F> + 'static,
{
    if !shared.case.wants(F::NAME) || shared.case.large {
        return;
    }
    let (fleet, shared) = (fleet.clone(), shared.clone());
    out.push(Trial::new(label::<F, D>("spmv_transposed", &fleet, &shared.case.name), move || {
        let host = shared.stored::<F>()?;
        let data = shared.data()?.transposed(shared.case.seed());
        let mut products: Products<'_, F::Value> = Vec::new();
        for (label, be) in &fleet.devices {
            products.push((label.clone(), product(be, host.clone(), Mat::spmv_transposed)?));
        }
        let traits = Traits { order: fleet.first().transposed_order(), ..traits::<F, D>(&fleet) };
        product::values(&data, &traits, &products, false)?;
        product::gated(&data, &traits, &products)
    }));
}

/// The trials of several right-hand sides for a format that offers them.
pub(crate) fn several<F, D>(fleet: &Rc<Fleet<D>>, shared: &Rc<Shared<F::Value>>, out: &mut Vec<Trial>)
where
    F: Format,
    D: Spmm<F> + 'static,
{
    if !shared.case.wants(F::NAME) || shared.case.large {
        return;
    }
    let (fleet, shared) = (fleet.clone(), shared.clone());
    out.push(Trial::new(label::<F, D>("spmm", &fleet, &shared.case.name), move || {
        let (host, data) = (shared.stored::<F>()?, shared.data()?);
        let single = product(fleet.first(), host.clone(), Mat::spmv)?;
        for k in [1, 2, 3, 4, 5, 8, 11] {
            let many = fleet
                .devices
                .iter()
                .map(|(_, be)| product(be, host.clone(), move |m, be, g, a, x, b, y| m.spmm(be, g, a, k, x, b, y)))
                .collect::<Result<Vec<_>>>()?;
            columns(&data, k, &single, &many)?;
        }
        Ok(())
    }));
}

/// Each of `k` columns has the bits of the product of that column alone.
fn columns<T: Real>(
    data: &Data<T>,
    k: usize,
    single: &crate::subject::Product<'_, T>,
    many: &[crate::subject::Product<'_, T>],
) -> Verdict {
    let (nrows, ncols) = data.shape;
    let x: Vec<T> = numbers(k as u64, ncols * k);
    let y0: Vec<T> = numbers(!(k as u64), nrows * k);
    let poison = vec![T::nan(); nrows * k];
    for (a, b, y0) in [(&A[0], &COEFFS[0], &poison), (&A[5], &COEFFS[4], &y0)] {
        let call = Call { a, x: &x, b, y: y0, gate: GateState::None };
        for product in many {
            let y = product(&call)?;
            for c in 0..k {
                let column = Call { x: &x[c * ncols..][..ncols], y: &y0[c * nrows..][..nrows], ..call };
                let what = |detail| wrong(format!("column {c} of {k}: {detail}"));
                difference(&y[c * nrows..][..nrows], &single(&column)?).map_or(Ok(()), |d| Err(what(d)))?;
            }
        }
        let stopped = many[0](&Call { gate: GateState::Stopped, y: &x_like(nrows * k), ..call })?;
        difference(&stopped, &x_like(nrows * k))
            .map_or(Ok(()), |d| Err(wrong(format!("behind a stopped monitor: {d}"))))?;
    }
    Ok(())
}

fn x_like<T: Real>(len: usize) -> Vec<T> {
    numbers(seed("before"), len)
}

/// y, w . y and y . y after a fused product.
fn run_fused<F: Format, D: Spmv<F>>(
    be: &D,
    mat: &D::Resident,
    state: GateState,
    x: &[F::Value],
    w: Option<&[F::Value]>,
    nrows: usize,
    squared: bool,
) -> Result<Vec<Vec<F::Value>>> {
    let nan = <F::Value as num_traits::Float>::nan();
    let x = be.upload(x)?;
    let mut y = be.zeros(nrows)?;
    be.write(&vec![nan; nrows], &mut y)?;
    let (mut wy, mut yy) = (be.scalar(nan)?, be.scalar(nan)?);
    let own = w.map(|w| be.upload(w)).transpose()?;
    let monitor = gate(be, state)?;
    be.spmv_dot(monitor.as_ref(), mat, &x, &mut y, own.as_ref().unwrap_or(&x), &mut wy, squared.then_some(&mut yy))?;
    Ok(vec![be.download(&y)?, vec![be.download_scalar(&wy)?], vec![be.download_scalar(&yy)?]])
}

/// Compares the fused product with the contract's default body, with the documented trees, with other devices, and
/// behind a gate.
fn fused<F: Format, D: Spmv<F>>(fleet: &Fleet<D>, shared: &Shared<F::Value>) -> Verdict {
    let (host, data) = (shared.stored::<F>()?, shared.data()?);
    let (nrows, ncols) = data.shape;
    let be = fleet.first();
    let mat = be.load(host.clone())?;
    let square = nrows == ncols;
    let nan = <F::Value as num_traits::Float>::nan();
    // A large case is for the levels of the tree, which do not depend on the requested sums.
    let uses = [(Some(&data.y[..]), true), (Some(&data.y[..]), false), (None, true)];
    for (w, squared) in uses.into_iter().take(if shared.case.large { 1 } else { 3 }) {
        if w.is_none() && !square {
            continue;
        }
        let go = |state| run_fused::<F, D>(be, &mat, state, &data.x, w, nrows, squared);
        let found = go(GateState::None)?;
        let weights = w.unwrap_or(&data.x);
        let yy = if squared { tree_dot(&found[0], &found[0]) } else { nan };
        let wanted = [found[0].clone(), vec![tree_dot(weights, &found[0])], vec![yy]];
        same_parts("against the documented tree of its own y", &found, &wanted)?;
        data.rows().check(&A[0], &COEFFS[0], &data.y, &found[0]).map_err(wrong)?;
        if Spmv::<F>::order(be) == Order::Stored {
            let y = data.in_stored_order(&A[0], &data.x, &COEFFS[0], &data.y);
            same_parts("against the stored order", &found[..1], &[y])?;
        }
        if Spmv::<F>::order(be) != Order::Unordered {
            let plain = run_fused::<F, Plain<'_, D>>(&Plain(be), &mat, GateState::None, &data.x, w, nrows, squared)?;
            same_parts("fused against default", &found, &plain)?;
            same_parts("run 2 against run 1", &go(GateState::None)?, &found)?;
            for (label, other) in &fleet.devices[1..] {
                let mat = other.load(host.clone())?;
                let there = run_fused::<F, D>(other, &mat, GateState::None, &data.x, w, nrows, squared)?;
                same_parts(label, &there, &found)?;
            }
        }
        let untouched = [vec![nan; nrows], vec![nan], vec![nan]];
        same_parts("behind a stopped monitor", &go(GateState::Stopped)?, &untouched)?;
    }
    Ok(())
}

/// r, b and x after a residual.
fn run_residual<F: Format, D: Spmv<F>>(
    be: &D,
    mat: &D::Resident,
    state: GateState,
    data: &Data<F::Value>,
) -> Result<[Vec<F::Value>; 3]> {
    let (b, x) = (be.upload(&data.y)?, be.upload(&data.x)?);
    let mut r = be.upload(&vec![<F::Value as num_traits::Float>::nan(); data.y.len()])?;
    let monitor = gate(be, state)?;
    be.residual(monitor.as_ref(), mat, &b, &x, &mut r)?;
    Ok([be.download(&r)?, be.download(&b)?, be.download(&x)?])
}

/// Compares b - A x with its bound, with the contract's default body, with other devices, and behind a gate.
fn residual<F: Format, D: Spmv<F>>(fleet: &Fleet<D>, shared: &Shared<F::Value>) -> Verdict {
    const R: [&str; 3] = ["r", "b", "x"];
    let (host, data, be) = (shared.stored::<F>()?, shared.data()?, fleet.first());
    let mat = be.load(host.clone())?;
    let found = run_residual::<F, D>(be, &mat, GateState::None, &data)?;
    data.rows().check(&Factor::host(-1.0), &Factor::host(1.0), &data.y, &found[0]).map_err(wrong)?;
    same("afterwards", ["b", "x", ""], &found[1..], &[data.y.clone(), data.x.clone()])?;
    if Spmv::<F>::order(be) != Order::Unordered {
        let plain = run_residual::<F, Plain<'_, D>>(&Plain(be), &mat, GateState::None, &data)?;
        same("fused against default", R, &found, &plain)?;
        for (label, other) in &fleet.devices[1..] {
            let there = run_residual::<F, D>(other, &other.load(host.clone())?, GateState::None, &data)?;
            same(label, R, &there, &found)?;
        }
    }
    let [stopped, ..] = run_residual::<F, D>(be, &mat, GateState::Stopped, &data)?;
    let untouched = vec![<F::Value as num_traits::Float>::nan(); stopped.len()];
    same("behind a stopped monitor", R, &[stopped], &[untouched])
}

fn same_parts<T: Real>(what: &str, found: &[Vec<T>], wanted: &[Vec<T>]) -> Verdict {
    same(what, ["y", "w.y", "y.y"], found, wanted)
}

fn same<T: Real>(what: &str, parts: [&str; 3], found: &[Vec<T>], wanted: &[Vec<T>]) -> Verdict {
    for ((found, wanted), part) in found.iter().zip(wanted).zip(parts) {
        if let Some(detail) = difference(found, wanted) {
            return Err(wrong(format!("{part} {what}: {detail}")));
        }
    }
    Ok(())
}

/// The buffers of a [`Chain`], reachable between its runs.
struct Buffers<D: Backend<T>, T: Real> {
    x: D::Vector,
    y: D::Vector,
    sum: D::Vector,
    xy: D::Scalar,
    yy: D::Scalar,
}

/// A step with a product, both reductions, device coefficients and a state that each run continues.
struct Chain<'m, F: Format, D: Spmv<F>> {
    mat: &'m Mat<D, F>,
    monitor: D::Monitor,
    buffers: Rc<RefCell<Buffers<D, F::Value>>>,
}

// SAFETY: one fixed sequence on buffers that the step owns, or borrows like the matrix. The trial shares them, writes
// into them between runs and never replaces one.
unsafe impl<F: Format, D: Spmv<F>> Step<D> for Chain<'_, F, D> {
    fn enqueue(&mut self, be: &D) -> Result<()> {
        use spandrel_backend::Operator;
        let Buffers { x, y, sum, xy, yy } = &mut *self.buffers.borrow_mut();
        let gate = Some(&self.monitor);
        self.mat.apply_dot(be, gate, x, y, x, xy, Some(yy))?;
        self.mat.spmv(be, gate, Coeff::ratio(xy, yy), x, Coeff::host(F::Value::from_f64(-0.5)), sum)?;
        be.axpby(gate, Coeff::ratio(yy, xy).times_ratio(xy, yy), y, Coeff::host(F::Value::from_f64(0.25)), sum)
    }
}

/// The number of replays of a graph, enough to use up an epoch or ticket that is not advanced.
const REPLAYS: usize = 1000;

/// Replays one graph with a new input each time, and compares with plain runs of the step.
fn recorded<F: Format, D: Spmv<F>>(fleet: &Fleet<D>, shared: &Shared<F::Value>) -> Verdict {
    let data = shared.data()?;
    let (nrows, ncols) = data.shape;
    if nrows != ncols {
        return Err(wrong("the recorded trial needs a square case"));
    }
    let be = fleet.first();
    let mat = Mat::<D, F>::load(be, shared.stored::<F>()?)?;
    let prepare = || -> Result<_> {
        let zero = F::Value::from_f64(0.0);
        let buffers = Rc::new(RefCell::new(Buffers::<D, F::Value> {
            x: be.zeros(ncols)?,
            y: be.zeros(nrows)?,
            sum: be.upload(&data.y)?,
            xy: be.scalar(zero)?,
            yy: be.scalar(zero)?,
        }));
        let monitor =
            be.monitor(&spandrel_backend::Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 1 })?;
        Ok((buffers.clone(), Chain { mat: &mat, monitor, buffers }))
    };
    let (recorded_buffers, step) = prepare()?;
    let mut graph = Recorded::new(be, step, true);
    let (plain_buffers, step) = prepare()?;
    let mut plain = Recorded::new(be, step, false);
    for replay in 0..REPLAYS {
        let x = numbers::<F::Value>(replay as u64, ncols);
        be.write(&x, &mut recorded_buffers.borrow_mut().x)?;
        be.write(&x, &mut plain_buffers.borrow_mut().x)?;
        graph.run()?;
        plain.run()?;
        let (found, wanted) = (recorded_buffers.borrow(), plain_buffers.borrow());
        for (part, found, wanted) in [("y", &found.y, &wanted.y), ("the sum", &found.sum, &wanted.sum)] {
            let (found, wanted) = (be.download(found)?, be.download(wanted)?);
            if Spmv::<F>::order(be) != Order::Unordered
                && let Some(detail) = difference(&found, &wanted)
            {
                return Err(wrong(format!("{part} of run {replay} recorded against plain: {detail}")));
            }
        }
        let y = be.download(&found.y)?;
        let (one, zero) = (Factor::host(1.0), Factor::host(0.0));
        // Sums in doubled precision take longer than the run. They are for orders that have no bits to compare, and at
        // the end for the others.
        if Spmv::<F>::order(be) != Order::Stored || replay < 3 || replay + 1 == REPLAYS {
            let triplets = data.triplets.iter().map(|&(i, j, v)| (i as usize, j as usize, v));
            let rows = Rows::new(nrows, triplets, &x);
            rows.check(&one, &zero, &data.y, &y).map_err(|d| wrong(format!("y of run {replay}: {d}")))?;
        }
        if Spmv::<F>::order(be) == Order::Stored {
            let expected = data.in_stored_order(&one, &x, &zero, &data.y);
            difference(&y, &expected)
                .map_or(Ok(()), |d| Err(wrong(format!("y of run {replay} against the stored order: {d}"))))?;
        }
    }
    Ok(())
}

/// BSRX updates the block rows of its mask and leaves the others alone.
pub(crate) fn masked<T: Real, D: Spmv<Bsrx<T>> + 'static>(
    fleet: &Rc<Fleet<D>>,
    shared: &Rc<Shared<T>>,
    out: &mut Vec<Trial>,
) {
    if !shared.case.special {
        return;
    }
    let (fleet, shared) = (fleet.clone(), shared.clone());
    let name = label::<Bsrx<T>, D>("spmv", &fleet, &format!("{}-masked", shared.case.name));
    out.push(Trial::new(name, move || {
        let data = shared.data()?;
        let full = Arc::unwrap_or_clone(shared.stored::<Bsrx<T>>()?);
        let (nrows, block_dim) = (data.shape.0, full.block_dim());
        let mask: Vec<u32> = full.mask().iter().copied().filter(|row| row % 3 != 1).collect();
        let touched = |i: usize| mask.contains(&((i / block_dim) as u32));
        let partial = full.with_mask(mask.clone())?;
        let products = products(&fleet, &Arc::new(partial))?;
        for (a, b) in [(&A[0], &COEFFS[0]), (&A[4], &COEFFS[2])] {
            let whole = data.in_stored_order(a, &data.x, b, &data.y);
            let expected: Vec<T> = (0..nrows).map(|i| if touched(i) { whole[i] } else { data.y[i] }).collect();
            for (label, product) in &products {
                let y = product(&Call { a, x: &data.x, b, y: &data.y, gate: GateState::None })?;
                let outside = (0..nrows).find(|&i| !touched(i) && y[i] != data.y[i]);
                if let Some(i) = outside {
                    return Err(wrong(format!("{label}: row {i} is outside the mask and was changed")));
                }
                data.rows()
                    .check_rows(a, b, &data.y, &y, touched)
                    .map_err(|d| wrong(format!("{label}, inside the mask: {d}")))?;
                if Spmv::<Bsrx<T>>::order(fleet.first()) == Order::Stored {
                    difference(&y, &expected).map_or(Ok(()), |d| Err(wrong(format!("{label}: {d}"))))?;
                }
            }
        }
        Ok(())
    }));
}

/// Whether two backends must agree in every bit of a product: if both declare the same shareable order.
pub(crate) fn agree<F, D, E>(left: &Fleet<D>, right: &Fleet<E>) -> std::result::Result<(), String>
where
    F: Format,
    D: Spmv<F>,
    E: Spmv<F>,
{
    let (here, there) = (Spmv::<F>::order(left.first()), Spmv::<F>::order(right.first()));
    if here == there && !matches!(here, Order::Unordered | Order::Own) {
        return Ok(());
    }
    Err(format!("the orders differ or are nobody else's: {here:?} on {} and {there:?} on {}", left.name, right.name))
}

/// What the orders of two backends mean for the comparison of a format: nothing if they agree. Otherwise one trial is
/// skipped with the orders, or fails if the same bits are required.
pub(crate) fn orders<F, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, bits: Bits, out: &mut Vec<Trial>)
where
    F: Format,
    D: Spmv<F> + 'static,
    E: Spmv<F> + 'static,
{
    if let Err(why) = agree::<F, D, E>(left, right) {
        let name = format!("spmv/{}/{}/{}+{}/orders", F::NAME, F::Value::NAME, left.name, right.name);
        out.push(match bits {
            Bits::WhereDeclared => Trial::skipped(name, why),
            Bits::Demanded => Trial::new(name, || Err(wrong(why))),
        });
    }
}

/// Two backends on one matrix: the same bits wherever both declare the same order.
pub(crate) fn pair<F, D, E>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    shared: &Rc<Shared<F::Value>>,
    out: &mut Vec<Trial>,
) where
    F: Format,
    D: Spmv<F> + 'static,
    E: Spmv<F> + 'static,
{
    if !shared.case.wants(F::NAME) || shared.case.large || agree::<F, D, E>(left, right).is_err() {
        return;
    }
    let case = &shared.case.name;
    let name = format!("spmv/{}/{}/{}+{}/{case}", F::NAME, F::Value::NAME, left.name, right.name);
    let (left, right, shared) = (left.clone(), right.clone(), shared.clone());
    out.push(Trial::new(name, move || {
        let (host, data) = (shared.stored::<F>()?, shared.data()?);
        let here = product(left.first(), host.clone(), Mat::spmv)?;
        let there = product(right.first(), host, Mat::spmv)?;
        for (a, b) in [(&A[0], &COEFFS[0]), (&A[5], &COEFFS[4])] {
            let call = Call { a, x: &data.x, b, y: &data.y, gate: GateState::None };
            difference(&there(&call)?, &here(&call)?)
                .map_or(Ok(()), |d| Err(wrong(format!("y of one against the other: {d}"))))?;
        }
        Ok(())
    }));
}
