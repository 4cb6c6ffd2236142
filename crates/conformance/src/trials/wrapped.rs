//! Trials of CSR matrices that are on the GPU already. Products, conversions, factors and solves have the bits of a
//! loaded matrix, and nothing behind the ends of the arrays is read. An invalid matrix is refused with its row and the
//! host's words, and the owner's memory stays as it was.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Assemble, Assembled, Backend, Coeff, Convert, Device, Error, Mat, Spmv};
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr};
use spandrel_backend_cuda::{Cuda, RawCsr};
use spandrel_formats::{Bdia, Coo, Csr, Dia, Ell, Error as Refusal, Format, Hyb, Real, Sell};
use spandrel_solvers::{Cg, Identity, Options};
use spandrel_sptrsv::Ic0;

use super::convert::products;
use super::pairs::converted;
use crate::case::{Case, numbers};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Kinds of rows for which the GPU has different kernels: of one entry, short, multiples of eight, long, few, of very
/// different lengths. The last is only for the number of its entries.
const SPECS: [&str; 8] = [
    "banded:n=5000,d=1",
    "poisson2d:167x141",
    "d3n27:41x37x31",
    "banded:n=90000,d=9",
    "banded:n=9000,d=101",
    "banded:n=700,d=45",
    "powerlaw:n=20000",
    "powerlaw:n=400000",
];

/// All trials of wrapped matrices.
pub(crate) fn trials(fleet: &Rc<Fleet<Cuda>>, cases: &[Rc<Case>], out: &mut Vec<Trial>) {
    of_type::<f32>(fleet, cases, out);
    of_type::<f64>(fleet, cases, out);
    let mut push = |what: &str, body: fn(&Cuda) -> Verdict| {
        let (name, fleet) = (format!("wrap/csr/f64/{}/{what}", fleet.name), fleet.clone());
        out.push(Trial::new(name, move || body(fleet.first())));
    };
    push("refused", |be| refused::<f64>(be).and_then(|()| refused::<f32>(be)));
    push("unaligned", unaligned);
    push("lengths", lengths);
    push("new-values", new_values);
    push("narrowed-outlives", narrowed);
    push("factors-and-solves", |be| {
        factored(be, "d3n27:17x13x11")?;
        factored(be, "poisson2d:67x41")
    });
}

fn of_type<T: Real + DeviceRepr>(fleet: &Rc<Fleet<Cuda>>, cases: &[Rc<Case>], out: &mut Vec<Trial>) {
    for case in cases.iter().filter(|case| !case.large && case.wants(Csr::<T>::NAME)) {
        let name = format!("wrap/csr/{}/{}/{}", T::NAME, fleet.name, case.name);
        let (fleet, case) = (fleet.clone(), case.clone());
        out.push(Trial::new(name, move || {
            let data = case.data::<T>().map_err(|e| wrong(format!("the case does not build: {e:#}")))?;
            as_loaded(fleet.first(), &data.csr()?)
        }));
    }
    for spec in SPECS {
        let name = format!("wrap/csr/{}/{}/{}", T::NAME, fleet.name, spec.replace(':', "-"));
        let fleet = fleet.clone();
        out.push(Trial::new(name, move || {
            let csr = converted::<T>(&crate::generated(spec)?)?;
            // The last four entries, or fewer.
            (0..4).try_for_each(|fewer| as_loaded(fleet.first(), &without_last(&csr, fewer)?))
        }));
    }
}

/// The matrix without its last entries.
fn without_last<T: Real>(csr: &Csr<T>, fewer: usize) -> spandrel_formats::Result<Csr<T>> {
    let nnz = csr.nnz() - fewer;
    let row_ptr = csr.row_ptr().iter().map(|&ptr| ptr.min(nnz as u32)).collect();
    Csr::new(csr.nrows(), csr.ncols(), row_ptr, csr.col_idx()[..nnz].to_vec(), csr.values()[..nnz].to_vec())
}

/// Another owner's arrays, followed by contents that no kernel may use.
struct Owned<T> {
    stream: Arc<CudaStream>,
    shape: (usize, usize, usize),
    row_ptr: CudaSlice<u32>,
    col_idx: CudaSlice<u32>,
    values: CudaSlice<T>,
}

/// The number of elements behind the ends.
const BEHIND: usize = 37;

fn followed<E: Copy>(of: &[E], by: E) -> Vec<E> {
    [of, &[by; BEHIND]].concat()
}

impl<T: Real + DeviceRepr> Owned<T> {
    fn new(
        be: &Cuda,
        (nrows, ncols): (usize, usize),
        row_ptr: &[u32],
        col_idx: &[u32],
        values: &[T],
    ) -> Result<Self, Finding> {
        let stream = be.stream().context().new_stream()?;
        let owned = Self {
            shape: (nrows, ncols, col_idx.len()),
            row_ptr: stream.clone_htod(&followed(row_ptr, u32::MAX))?,
            col_idx: stream.clone_htod(&followed(col_idx, u32::MAX))?,
            values: stream.clone_htod(&followed(values, T::nan()))?,
            stream,
        };
        owned.stream.synchronize()?;
        Ok(owned)
    }

    fn of(be: &Cuda, csr: &Csr<T>) -> Result<Self, Finding> {
        Self::new(be, (csr.nrows(), csr.ncols()), csr.row_ptr(), csr.col_idx(), csr.values())
    }

    fn raw(&self) -> RawCsr {
        let (nrows, ncols, nnz) = self.shape;
        let stream = &self.stream;
        RawCsr {
            nrows,
            ncols,
            nnz,
            row_ptr: self.row_ptr.device_ptr(stream).0,
            col_idx: self.col_idx.device_ptr(stream).0,
            values: self.values.device_ptr(stream).0,
        }
    }

    fn wrap(&self, be: &Cuda) -> spandrel_backend::Result<Mat<Cuda, Csr<T>>> {
        // SAFETY: the slices have these lengths, were written before, and outlive the matrix in every trial. Nobody
        // else uses them.
        unsafe { be.wrap_raw_csr(self.raw()) }
    }

    /// Whether the memory is as written at first, except for the values.
    fn intact(&self, csr: &Csr<T>, values: &[T]) -> Verdict {
        let same = self.stream.clone_dtoh(&self.row_ptr)? == followed(csr.row_ptr(), u32::MAX)
            && self.stream.clone_dtoh(&self.col_idx)? == followed(csr.col_idx(), u32::MAX);
        if !same {
            return Err(wrong("the owner's pattern has changed"));
        }
        match difference(&self.stream.clone_dtoh(&self.values)?, &followed(values, T::nan())) {
            Some(detail) => Err(wrong(format!("the owner's values: {detail}"))),
            None => Ok(()),
        }
    }
}

/// A refusal that should not happen is no reason to skip.
fn sound<R>(made: spandrel_backend::Result<R>) -> Result<R, Finding> {
    made.map_err(|error| wrong(format!("a sound matrix is refused: {error}")))
}

fn same<T: Real>(what: &str, found: &[T], wanted: &[T]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

/// Products of all kinds, each written over NaN.
fn all_products<T: Real>(be: &Cuda, mat: &Mat<Cuda, Csr<T>>) -> Result<Vec<T>, Finding> {
    const COLUMNS: usize = 3;
    let (nrows, ncols) = (mat.nrows(), mat.ncols());
    let (x, w) = (numbers::<T>(21, ncols), numbers::<T>(22, nrows));
    let mut all = products(be, mat, &x, &w)?;
    let (several, mut out) = (be.upload(&numbers(23, COLUMNS * ncols))?, be.upload(&vec![T::nan(); COLUMNS * nrows])?);
    mat.spmm(be, None, Coeff::one(), COLUMNS, &several, Coeff::zero(), &mut out)?;
    all.extend(be.download(&out)?);
    let (w, mut out) = (be.upload(&w)?, be.upload(&vec![T::nan(); ncols])?);
    mat.spmv_transposed(be, None, Coeff::one(), &w, Coeff::zero(), &mut out)?;
    all.extend(be.download(&out)?);
    Ok(all)
}

/// Borrowed and taken over, compared with loaded.
fn as_loaded<T: Real + DeviceRepr>(be: &Cuda, csr: &Csr<T>) -> Verdict {
    let loaded = Mat::<Cuda, Csr<T>>::load(be, csr.clone())?;
    let wanted = all_products(be, &loaded)?;
    let compare = |what: &str, mat: &Mat<Cuda, Csr<T>>| -> Verdict {
        let said = |mat: &Mat<Cuda, Csr<T>>| {
            let kernel = mat.resident().kernel();
            (mat.nrows(), mat.ncols(), mat.nnz(), mat.storage(), mat.spmv_bytes(), kernel)
        };
        if said(mat) != said(&loaded) {
            return Err(wrong(format!("{what}: expected {:?}, found {:?}", said(&loaded), said(mat))));
        }
        same(&format!("{what}, products"), &all_products(be, mat)?, &wanted)?;
        as_converted::<Coo<T>>(be, &loaded, mat)?;
        as_converted::<Ell<T>>(be, &loaded, mat)?;
        as_converted::<Hyb<T>>(be, &loaded, mat)?;
        as_converted::<Sell<T>>(be, &loaded, mat)?;
        as_converted::<Dia<T>>(be, &loaded, mat)?;
        as_converted::<Bdia<T>>(be, &loaded, mat)?;
        if mat.nrows() == mat.ncols() {
            same(&format!("{what}, CG"), &iterated(be, mat)?, &iterated(be, &loaded)?)?;
        }
        Ok(())
    };
    let owner = Owned::of(be, csr)?;
    let borrowed = sound(owner.wrap(be))?;
    compare("borrowed", &borrowed)?;
    drop(borrowed);
    be.synchronize()?;
    owner.intact(csr, csr.values())?;
    drop(owner);
    if csr.nnz() == 0 {
        return Ok(()); // cudarc has no slices of nothing
    }
    let other = be.stream().context().new_stream()?;
    let (row_ptr, col_idx) = (other.clone_htod(csr.row_ptr())?, other.clone_htod(csr.col_idx())?);
    let values = other.clone_htod(csr.values())?;
    compare("taken over", &sound(be.wrap_csr(csr.nrows(), csr.ncols(), row_ptr, col_idx, values))?)
}

/// x after a few iterations of CG, however they end. Small systems run in one persistent kernel.
fn iterated<T: Real>(be: &Cuda, mat: &Mat<Cuda, Csr<T>>) -> Result<Vec<T>, Finding> {
    let n = mat.nrows();
    let (b, mut x) = (be.upload(&numbers::<T>(24, n))?, be.zeros(n)?);
    let options = Options { max_iters: Some(7), ..Options::default() };
    // How the solve ends depends on the matrix. Only x is compared.
    let _ = Cg::new(be, n).and_then(|mut cg| cg.solve(be, mat, &Identity, &b, &mut x, &options)).map_err(wrong)?;
    Ok(be.download(&x)?)
}

/// The same from both, or refused with the same words.
fn as_converted<F>(be: &Cuda, loaded: &Mat<Cuda, Csr<F::Value>>, wrapped: &Mat<Cuda, Csr<F::Value>>) -> Verdict
where
    F: Format,
    Cuda: Spmv<F> + Convert<Csr<F::Value>, F>,
{
    match (loaded.convert::<F>(be), wrapped.convert::<F>(be)) {
        (Ok(loaded), Ok(wrapped)) => {
            let (x, w) = (numbers(21, loaded.ncols()), numbers(22, loaded.nrows()));
            let (found, wanted) = (products(be, &wrapped, &x, &w)?, products(be, &loaded, &x, &w)?);
            same(&format!("products as {}", F::NAME), &found, &wanted)
        }
        (Err(loaded), Err(wrapped)) if loaded.to_string() == wrapped.to_string() => Ok(()),
        (loaded, wrapped) => {
            let said = |made: spandrel_backend::Result<_>| {
                made.map_or_else(|e| e.to_string(), |_: Mat<Cuda, F>| "made".into())
            };
            Err(wrong(format!("{}: expected {}, found {}", F::NAME, said(loaded), said(wrapped))))
        }
    }
}

/// IC(0) of a wrapped matrix, and CG with it.
fn factored(be: &Cuda, spec: &str) -> Verdict {
    let csr = converted::<f64>(&crate::generated(spec)?)?;
    let owner = Owned::of(be, &csr)?;
    let mut all = Vec::new();
    for mat in [Mat::load(be, csr.clone())?, sound(owner.wrap(be))?] {
        let made: Option<Box<dyn Assembled<f64, Cuda>>> = Assemble::<Ic0<f64>>::assemble(be, mat.resident())?;
        let Some(made) = made else { return Err(wrong("a whole grid is left to the host")) };
        let n = mat.nrows();
        let (b, mut x) = (be.upload(&numbers(25, n))?, be.zeros(n)?);
        let outcome = Cg::new(be, n)
            .and_then(|mut cg| cg.solve(be, &mat, &made, &b, &mut x, &Options::default()))
            .map_err(wrong)?;
        if !outcome.status.is_converged() {
            return Err(wrong(format!("{outcome:?}")));
        }
        let mut found = be.download(made.made()[0])?;
        found.extend(be.download(&x)?);
        all.push(found);
    }
    same("L and x of a wrapped matrix", &all[1], &all[0])?;
    owner.intact(&csr, csr.values())
}

/// Values from the host, from a vector, and written by the owner in place.
fn new_values(be: &Cuda) -> Verdict {
    let csr = converted::<f64>(&crate::generated("poisson2d:67x41")?)?;
    let owner = Owned::of(be, &csr)?;
    let mut mat = sound(owner.wrap(be))?;
    // The transpose is kept from here on.
    all_products(be, &mat)?;
    let check = |mat: &Mat<Cuda, Csr<f64>>, values: &[f64], what: &str| -> Verdict {
        let fresh =
            Csr::new(csr.nrows(), csr.ncols(), csr.row_ptr().to_vec(), csr.col_idx().to_vec(), values.to_vec())?;
        same(what, &all_products(be, mat)?, &all_products(be, &Mat::load(be, fresh)?)?)?;
        be.synchronize()?;
        owner.intact(&csr, values)
    };
    let [first, second, third] = [31, 32, 33].map(|seed| numbers::<f64>(seed, csr.nnz()));
    mat.update_values(be, &first)?;
    check(&mat, &first, "values from the host")?;
    mat.update_values_from(be, &be.upload(&second)?)?;
    check(&mat, &second, "values from a vector")?;
    // SAFETY: as long as the matrix has values, and the owner keeps them. Both are used on one queue.
    let mut own = unsafe { be.wrap_raw::<f64>(owner.raw().values, csr.nnz())? };
    be.write(&third, &mut own)?;
    mat.update_values_from(be, &own)?;
    check(&mat, &third, "values written in place")
}

/// A narrowed matrix stays valid when the owner reuses the memory.
fn narrowed(be: &Cuda) -> Verdict {
    let csr = converted::<f64>(&crate::generated("poisson2d:67x41")?)?;
    let mut owner = Owned::of(be, &csr)?;
    let wide = sound(owner.wrap(be))?;
    let Some((narrow, _)) = wide.narrow(be)? else { return Err(wrong("finite entries are left to the host")) };
    let wanted = all_products(be, &narrow)?;
    drop(wide);
    be.synchronize()?;
    let stream = owner.stream.clone();
    for slice in [&mut owner.row_ptr, &mut owner.col_idx] {
        stream.memset_zeros(slice)?;
    }
    stream.synchronize()?;
    same("a narrowed matrix after its source has gone", &all_products(be, &narrow)?, &wanted)
}

fn unaligned(be: &Cuda) -> Verdict {
    let csr = converted::<f64>(&crate::generated("poisson2d:9x7")?)?;
    let owner = Owned::of(be, &csr)?;
    let raw = owner.raw();
    let nnz = raw.nnz - 2;
    for (which, raw) in [
        ("columns", RawCsr { nnz, col_idx: raw.col_idx + 4, ..raw }),
        ("values", RawCsr { nnz, values: raw.values + 8, ..raw }),
    ] {
        // SAFETY: inside the owner's memory and aligned to their types. It is refused before it is read.
        match unsafe { be.wrap_raw_csr::<f64>(raw) } {
            Err(Error::Unsupported { noun: "csr", why, .. }) if why.starts_with(which) => {}
            other => return Err(wrong(format!("{which} that are not aligned: found {other:?}"))),
        }
    }
    owner.intact(&csr, csr.values())
}

/// Slices whose lengths contradict each other, and numbers beyond the range of stored indices.
fn lengths(be: &Cuda) -> Verdict {
    let slices = |rows: usize, cols: usize, values: usize| -> Result<_, Finding> {
        let stream = be.stream().context().new_stream()?;
        Ok((
            stream.clone_htod(&vec![0u32; rows])?,
            stream.clone_htod(&vec![0u32; cols])?,
            stream.clone_htod(&vec![1.0f64; values])?,
        ))
    };
    for (rows, cols, values, array) in
        [(3, 4, 4, "row_ptr"), (5, 4, 4, "row_ptr"), (4, 4, 3, "values"), (4, 3, 4, "values")]
    {
        let (row_ptr, col_idx, of_values) = slices(rows, cols, values)?;
        match be.wrap_csr(3, 3, row_ptr, col_idx, of_values) {
            Err(Error::Format(Refusal::Length { array: found, .. })) if found == array => {}
            other => {
                return Err(wrong(format!("{rows} {cols} {values}: expected a refusal of {array}, found {other:?}")));
            }
        }
    }
    let (row_ptr, col_idx, values) = slices(4, 4, 4)?;
    let stream = be.stream();
    let raw = RawCsr {
        nrows: 3,
        ncols: 3,
        nnz: 4,
        row_ptr: row_ptr.device_ptr(stream).0,
        col_idx: col_idx.device_ptr(stream).0,
        values: values.device_ptr(stream).0,
    };
    for raw in [
        RawCsr { nrows: 1 << 31, ..raw },
        RawCsr { ncols: usize::MAX, ..raw },
        RawCsr { nnz: 1 << 40, ..raw },
        RawCsr { nrows: usize::MAX, ..raw },
    ] {
        // SAFETY: refused before any of it is read.
        match unsafe { be.wrap_raw_csr::<f64>(raw) } {
            Err(Error::Format(Refusal::TooLarge { .. })) => {}
            other => return Err(wrong(format!("{raw:?}: found {other:?}"))),
        }
    }
    Ok(())
}

/// Row pointers, columns.
type Pattern = (Vec<u32>, Vec<u32>);

/// One error of each kind: the host's words, the first row that has it, and a device that continues.
fn refused<T: Real + DeviceRepr>(be: &Cuda) -> Verdict {
    // 3001 rows of 5 entries, with one of 2000 among them, which is too long for a single lane to check.
    let (n, long) = (3002usize, 1500usize);
    let mut row_ptr = vec![0u32];
    let mut col_idx = Vec::new();
    for row in 0..n {
        col_idx.extend((0..if row == long { 2000 } else { 5 }).map(|k| (k + row % 900) as u32));
        row_ptr.push(col_idx.len() as u32);
    }
    let good: Pattern = (row_ptr, col_idx);
    let (nnz, ends) = (good.1.len(), good.0.clone());
    let begin = |row: usize| ends[row] as usize;
    let mut spoilt: Vec<(String, Pattern)> = Vec::new();
    let mut push = |what: String, change: &dyn Fn(&mut Pattern)| {
        let mut pattern = good.clone();
        change(&mut pattern);
        spoilt.push((what, pattern));
    };
    for (at, value) in [(0, 1), (0, u32::MAX), (n, nnz as u32 - 1), (n, nnz as u32 + 1), (n, u32::MAX), (n, 0)] {
        push(format!("row_ptr[{at}] = {value}"), &|p| p.0[at] = value);
    }
    for at in [1, 2, 31, 32, 127, 128, 129, 1024, long, long + 1, n - 1] {
        push(format!("row_ptr[{at}] below the one before"), &|p| p.0[at] = p.0[at - 1] - u32::from(at > 1));
        push(format!("row_ptr[{at}] beyond the end"), &|p| p.0[at] = nnz as u32 + 1);
        push(format!("row_ptr[{at}] the largest"), &|p| p.0[at] = u32::MAX);
    }
    for row in [0, 1, 31, 32, 33, 127, 128, long - 1, long, long + 1, n - 1] {
        let (first, last) = (begin(row), begin(row + 1) - 1);
        push(format!("row {row}, a column too large"), &|p| p.1[last] = n as u32);
        push(format!("row {row}, the largest column"), &|p| p.1[last] = u32::MAX);
        push(format!("row {row}, the first column too large"), &|p| p.1[first] = 1 << 31);
        push(format!("row {row}, a column twice"), &|p| p.1[first + 1] = p.1[first]);
        push(format!("row {row}, the last column twice"), &|p| p.1[last] = p.1[last - 1]);
        push(format!("row {row}, two columns exchanged"), &|p| p.1.swap(first + 2, first + 3));
        push(format!("row {row} and later ones"), &|p| {
            [row, (row + 700).min(n - 1), n - 1].iter().for_each(|&row| p.1[begin(row) + 1] = p.1[begin(row)]);
        });
    }
    for at in [31, 32, 33, 63, 512, 513, 1023] {
        push(format!("entry {at} of the long row twice"), &|p| p.1[begin(long) + at] = p.1[begin(long) + at - 1]);
    }
    push("a row pointer and an earlier column".into(), &|p| {
        p.1[1] = p.1[0];
        p.0[2000] = p.0[1999] - 1;
    });
    let values = vec![T::one(); nnz];
    for (what, (row_ptr, col_idx)) in spoilt {
        let host = Csr::new(n, n, row_ptr.clone(), col_idx.clone(), values.clone()).err();
        let row = match &host {
            Some(Refusal::Pointer { at, .. }) => at.saturating_sub(1),
            Some(Refusal::IndexOutOfRange { at, .. } | Refusal::Unsorted { at, .. }) => {
                row_ptr.partition_point(|&ptr| ptr as usize <= *at) - 1
            }
            other => return Err(wrong(format!("{what}: the host finds {other:?}"))),
        };
        let wanted = host.map(|error| format!("row {row}: {error}")).unwrap_or_default();
        let owner = Owned::new(be, (n, n), &row_ptr, &col_idx, &values)?;
        match owner.wrap(be) {
            Err(Error::Format(Refusal::InRow { row: found, error })) if found == row => {
                let found = format!("row {found}: {error}");
                if found != wanted {
                    return Err(wrong(format!("{what}: expected \"{wanted}\", found \"{found}\"")));
                }
            }
            other => return Err(wrong(format!("{what}: expected \"{wanted}\", found {other:?}"))),
        }
    }
    let none = Owned::<T>::new(be, (0, 0), &[3], &[], &[])?;
    match none.wrap(be) {
        Err(Error::Format(Refusal::InRow { error, .. })) if matches!(*error, Refusal::Pointer { at: 0, .. }) => {}
        other => return Err(wrong(format!("no row and a pointer of 3: found {other:?}"))),
    }
    // The device is unharmed.
    let good = Csr::new(n, n, good.0, good.1, values)?;
    as_loaded(be, &good)
}
