//! The matrix during set-up: on the host, and on the device from the first time that it is needed there.
//!
//! Cost: the device holds the rows only while a preconditioner or a format is made from them.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{self as backend, Load, Narrow, Spmv};
use spandrel_formats::{Csr, Format, Permutation, Real};
use spandrel_solvers::{Narrowed, Result};

use crate::Mat;
use crate::rows::Rows;

/// A matrix from which a preconditioner is made.
pub(super) trait Given<T: Real, B: Load<Csr<T>>> {
    /// The matrix on the host.
    fn host(&self) -> &Arc<Csr<T>>;
    /// Whether [`Given::rows`] needs no copy from the host.
    fn is_on_device(&self) -> bool;
    /// The matrix on the device, where it stays until [`Given::free`].
    fn rows(&self, device: &B) -> backend::Result<Rc<Mat<B, Csr<T>>>>;
    /// Frees the rows on the device if nothing else holds them.
    fn free(&self);
}

/// A matrix in the element type of the solve.
#[doc(hidden)] // of `Element::engine`, which is sealed
pub struct Supply<T: Real, B: Load<Csr<T>>> {
    given: Arc<Csr<T>>,
    /// The order of the solve, if the device has renumbered the matrix.
    order: Option<Arc<Permutation>>,
    /// The given matrix in that order, if the host needs it.
    in_order: OnceCell<Arc<Csr<T>>>,
    rows: RefCell<Option<Rc<Mat<B, Csr<T>>>>>,
}

impl<T: Real, B: Load<Csr<T>>> fmt::Debug for Supply<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supply").field("given", &self.given).finish_non_exhaustive()
    }
}

impl<T: Real, B: Load<Csr<T>>> Supply<T, B> {
    pub(super) fn new(given: Arc<Csr<T>>) -> Self {
        Self { given, order: None, in_order: OnceCell::new(), rows: RefCell::new(None) }
    }

    /// As [`Supply::new`], with the rows that the device has already: in this order, if there is one.
    pub(super) fn with_rows(given: Arc<Csr<T>>, order: Option<Arc<Permutation>>, rows: Mat<B, Csr<T>>) -> Self {
        Self { given, order, in_order: OnceCell::new(), rows: RefCell::new(Some(Rc::new(rows))) }
    }

    /// Returns the rows of [`Supply::with_rows`], unless they were freed or are in use elsewhere.
    pub(super) fn take_rows(&self) -> Option<Mat<B, Csr<T>>> {
        self.rows.take().and_then(Rc::into_inner)
    }

    fn into_host(self) -> Arc<Csr<T>> {
        Arc::clone(self.host())
    }

    /// The rows on the device as an independent matrix.
    pub(super) fn into_rows(self, device: &B) -> backend::Result<Mat<B, Csr<T>>> {
        match self.take_rows() {
            Some(rows) => Ok(rows),
            None => Mat::load(device, self.into_host()),
        }
    }

    /// The matrix in format `F` on the device. It is made there if the device converts and has room for both formats,
    /// otherwise on the host.
    pub(super) fn stored<F: Format<Value = T>>(self, device: &B) -> Result<Mat<B, F>>
    where
        B: Spmv<F> + Rows<T>,
    {
        if B::converts::<F>() {
            let made = converted(device, self.rows(device))?;
            if let Some(made) = made.or_else(|| same_rows(self.rows.take())) {
                unmapped_later(Box::new((self.given, self.in_order)));
                return Ok(made);
            }
        }
        // Both may share the host's memory.
        self.free();
        let host = self.into_host();
        let stored = loaded(device, &host)?;
        unmapped_if_last(host);
        Ok(stored)
    }

    /// As [`Supply::stored`], but the rows stay on the device, for what is made from them next.
    pub(super) fn again<F: Format<Value = T>>(&self, device: &B) -> Result<Mat<B, F>>
    where
        B: Spmv<F> + Rows<T>,
    {
        if B::converts::<F>() {
            if let Some(made) = converted(device, self.rows(device))? {
                return Ok(made);
            }
            self.free();
        }
        loaded(device, self.host())
    }
}

impl<T: Real, B: Load<Csr<T>>> Given<T, B> for Supply<T, B> {
    fn host(&self) -> &Arc<Csr<T>> {
        let Some(order) = &self.order else { return &self.given };
        let in_order = || order.permute_symmetric(&self.given).expect("an order of the matrix's rows");
        self.in_order.get_or_init(|| Arc::new(in_order()))
    }
    fn is_on_device(&self) -> bool {
        self.rows.borrow().is_some()
    }
    fn rows(&self, device: &B) -> backend::Result<Rc<Mat<B, Csr<T>>>> {
        if let Some(rows) = &*self.rows.borrow() {
            return Ok(Rc::clone(rows));
        }
        let rows = Rc::new(Mat::load(device, Arc::clone(self.host()))?);
        *self.rows.borrow_mut() = Some(Rc::clone(&rows));
        Ok(rows)
    }
    fn free(&self) {
        self.rows.take();
    }
}

/// Converts rows on the device to another format `F`; [`None`] if the device has no room or no conversion.
#[inline(never)] // compiled once for all callers
fn converted<F, B>(device: &B, rows: backend::Result<Rc<Mat<B, Csr<F::Value>>>>) -> Result<Option<Mat<B, F>>>
where
    F: Format,
    B: Spmv<F> + Rows<F::Value>,
{
    match rows.and_then(|rows| device.converted::<F>(&rows)) {
        // The way through the host needs less room.
        Err(backend::Error::OutOfMemory { .. }) => Ok(None),
        made => Ok(made?),
    }
}

/// The rows themselves, if `M` is their type and nothing else holds them.
fn same_rows<A: Any, M: Any>(rows: Option<Rc<A>>) -> Option<M> {
    let rows: Box<dyn Any> = Box::new(rows.and_then(Rc::into_inner)?);
    rows.downcast().ok().map(|rows| *rows)
}

/// Frees a large matrix on another thread; returning its pages takes tenths of a second.
pub(super) fn unmapped_later(host: Box<dyn Any + Send>) {
    // If no thread is available, the closure is dropped here, and the matrix with it.
    drop(std::thread::Builder::new().spawn(move || drop(host)));
}

/// Frees the matrix on another thread if nothing else holds it.
fn unmapped_if_last<T: Real>(host: Arc<Csr<T>>) {
    if Arc::strong_count(&host) == 1 {
        unmapped_later(Box::new(host));
    }
}

/// `a` on the device in format `F`, made by the host. CSR itself is shared.
#[inline(never)] // compiled once for all callers
pub(super) fn loaded<F: Format, B: Spmv<F>>(device: &B, a: &Arc<Csr<F::Value>>) -> Result<Mat<B, F>> {
    let same: Box<dyn Any> = Box::new(Arc::clone(a));
    let stored = match same.downcast::<Arc<F>>() {
        Ok(same) => *same,
        Err(_) => Arc::new(F::from_csr(a)?),
    };
    Ok(Mat::load(device, stored)?)
}

fn narrowed(wide: &Csr<f64>) -> (Arc<Csr<f32>>, i32) {
    let Narrowed { matrix, exponent } = Narrowed::new(wide);
    (Arc::new(matrix), exponent)
}

/// A matrix times 2^-e in f32. The device narrows it for what is made on the device; the host narrows it once, for what
/// is made on the host.
pub(super) struct Narrowing<'a, B: Load<Csr<f64>> + Load<Csr<f32>>> {
    wide: &'a dyn Given<f64, B>,
    rows: RefCell<Option<Rc<Mat<B, Csr<f32>>>>>,
    host: OnceCell<(Arc<Csr<f32>>, i32)>,
    /// The exponent that the device computed.
    exponent: Cell<Option<i32>>,
}

impl<'a, B: Load<Csr<f64>> + Load<Csr<f32>>> Narrowing<'a, B> {
    pub(super) fn of(wide: &'a dyn Given<f64, B>) -> Self {
        Self { wide, rows: RefCell::new(None), host: OnceCell::new(), exponent: Cell::new(None) }
    }

    fn narrowed(&self) -> &(Arc<Csr<f32>>, i32) {
        self.host.get_or_init(|| narrowed(self.wide.host()))
    }

    /// The exponent e, which is the same from the device and from the host.
    pub(super) fn exponent(&self) -> i32 {
        self.exponent.get().unwrap_or_else(|| self.narrowed().1)
    }

    /// The matrix in f32 in format `F` on the device, and e. If the device narrows, a CSR matrix never goes through the
    /// host.
    pub(super) fn stored<F: Format<Value = f32>>(self, device: &B) -> Result<(Mat<B, F>, i32)>
    where
        B: Spmv<F> + Rows<f32> + Narrow,
    {
        if <B as Rows<f32>>::converts::<F>() {
            let rows = self.rows(device);
            self.wide.free();
            let made = converted(device, rows)?;
            if let Some(made) = made.or_else(|| same_rows(self.rows.take())) {
                return Ok((made, self.exponent()));
            }
        }
        let exponent = self.exponent();
        self.rows.take();
        let (host, _) = self.host.into_inner().unwrap_or_else(|| narrowed(self.wide.host()));
        let stored = loaded(device, &host)?;
        unmapped_if_last(host);
        Ok((stored, exponent))
    }
}

impl<B: Narrow> Given<f32, B> for Narrowing<'_, B> {
    fn host(&self) -> &Arc<Csr<f32>> {
        &self.narrowed().0
    }

    fn is_on_device(&self) -> bool {
        self.rows.borrow().is_some() || self.wide.is_on_device()
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

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use spandrel_formats::generate;

    use super::*;
    use crate::any::{AnyBackend, Choice, Complete, Task};

    /// The entries of the rows in f32, whether the host narrowed for them, and e.
    struct Narrows(Arc<Csr<f64>>);

    impl Task for Narrows {
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
    fn rows_that_nothing_else_holds_are_the_matrix_in_csr() {
        let cpu = crate::Cpu::new();
        let csr = generate::csr::<f64>("d3n7:4").expect("a matrix");
        let rows = || Rc::new(Mat::load(&cpu, &csr).expect("loaded"));
        let same = same_rows::<_, Mat<crate::Cpu, Csr<f64>>>(Some(rows())).expect("rows");
        assert_eq!((same.nrows(), same.nnz()), (csr.nrows(), csr.nnz()));
        assert!(same_rows::<_, Mat<crate::Cpu, spandrel_formats::Dia<f64>>>(Some(rows())).is_none(), "another format");
        let held = rows();
        assert!(same_rows::<_, Mat<crate::Cpu, Csr<f64>>>(Some(Rc::clone(&held))).is_none(), "held elsewhere");
    }

    #[test]
    fn a_gpu_narrows_for_itself() {
        let a = Arc::new(generate::csr::<f64>("d3n27:12").expect("a matrix"));
        let expected = Narrowed::new(&a).exponent;
        for choice in [Choice::Cpu, Choice::Auto] {
            let device = AnyBackend::open(choice).expect("a backend");
            let found = device.run(Narrows(Arc::clone(&a)));
            assert_eq!(found, (a.nnz(), device.name() == "cpu", expected), "{}", device.name());
        }
    }
}
