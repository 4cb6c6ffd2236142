//! Trials of new values for multigrid over stencils: the bits of a new cycle on the CPU, also in steps that were
//! recorded before; other axes, other forms of storage, and refused values, which change nothing.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{Backend, Coeff, Mat, Preconditioner, Recorded, Result as DeviceResult, Step, UpdateValues};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Coarsening, Csr, Dense, Dia, Divisor, Real};
use spandrel_solvers::multigrid::StencilBackend;
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{PolynomialSmoother, StencilMultigrid};

use super::made::{of_type, on_each, refused};
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Several grids, one grid, and a grid that is coarsened along one axis first.
const SPECS: [(&str, Option<usize>); 6] = [
    ("poisson3d:20x19x18", None),
    ("poisson2d:61x50", None),
    ("poisson2d9:40x31", Some(2)),
    ("d3n27:9x12x11", None),
    ("d3n7:40x6x3", None),
    ("poisson3d:14x13x12", Some(1)),
];
/// For the kernels of a GPU: values of the two finest grids are in f32 if f32 represents them.
const LARGE: [(&str, Option<usize>); 2] = [("poisson3d:105x104x104", None), ("poisson2d9:801x800", None)];

const SMOOTHERS: [(&str, PolynomialSmoother); 2] =
    [("", PolynomialSmoother::Chebyshev(2)), ("-l1-jacobi", PolynomialSmoother::L1Jacobi(2))];

type Cycle<T, D> = StencilMultigrid<T, D>;

pub(crate) fn trials<T: Real, D: StencilBackend<T> + UpdateValues<Csr<T>> + 'static>(
    fleet: &Rc<Fleet<D>>,
    out: &mut Vec<Trial>,
) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for (spec, levels) in SPECS.into_iter().chain(large) {
        let of = fleet.clone();
        out.push(Trial::new(format!("convert-like/dia/{}/{}/{spec}", T::NAME, fleet.name), move || {
            on_each::<D, T>(&of.devices, |be| conversions::<T, D>(be, spec, levels))
        }));
        for (suffix, smoother) in SMOOTHERS {
            let fleet = fleet.clone();
            let name = format!("stencil-mg-update/dia/{}/{}/{spec}{suffix}", T::NAME, fleet.name);
            out.push(Trial::new(name, move || {
                on_each::<D, T>(&fleet.devices, |be| updates::<T, D>(be, spec, levels, smoother))
            }));
        }
    }
    for (spec, _) in SPECS {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("stencil-in-place/dia/{}/{}/{spec}", T::NAME, fleet.name), move || {
            on_each::<D, T>(&fleet.devices, |be| operations::<T, D>(be, spec))
        }));
    }
    for (suffix, smoother) in SMOOTHERS {
        let fleet = fleet.clone();
        let name = format!("stencil-mg-update/dia/{}/{}/other-axes{suffix}", T::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            on_each::<D, T>(&fleet.devices, |be| {
                other_axes::<T, D>(be, smoother)?;
                refusals::<T, D>(be, smoother)
            })
        }));
    }
}

/// A symmetric stencil with dominant diagonal and other values for each seed, which f32 represents unless they are
/// `uneven`.
fn values<T: Real>(spec: &str, seed: usize, uneven: bool) -> Result<Csr<T>, Finding> {
    let built = crate::generated(spec)?.map_entries(|i, j, v| {
        let (low, high) = (i.min(j), i.max(j));
        let part = ((low * 7919 + high * 104_729 + seed * 331) % 1013) as f64;
        let dyadic = 1.0 + (part as u32 % 4) as f64 / 4.0;
        match (low == high, uneven) {
            (true, _) => v * (2.0 + seed as f64 / 4.0),
            (false, true) => v * (1.0 + part / 3000.0),
            (false, false) => v * dyadic,
        }
    });
    of_type::<T>(Ok(built))
}

fn made<T: Real, D: StencilBackend<T>>(
    be: &D,
    a: &Csr<T>,
    levels: Option<usize>,
    smoother: PolynomialSmoother,
) -> spandrel_solvers::Result<Cycle<T, D>> {
    StencilMultigrid::of(be, &Mat::load(be, a.clone())?, levels, smoother, &mut unobserved)
}

fn update<T: Real, D: StencilBackend<T>>(be: &D, m: &mut Cycle<T, D>, a: &Csr<T>) -> spandrel_solvers::Result<()> {
    m.update_from(be, &Mat::load(be, a.clone())?)
}

/// M^-1 applied to always the same numbers.
fn applied<T: Real, D: StencilBackend<T>>(be: &D, m: &Cycle<T, D>) -> DeviceResult<Vec<T>> {
    let n = m.len().unwrap_or(0);
    let r = Backend::<T>::upload(be, &numbers::<T>(7, n))?;
    let mut z = Backend::<T>::upload(be, &vec![T::nan(); n])?;
    m.apply(be, None, &r, &mut z)?;
    Backend::<T>::download(be, &z)
}

fn same<T: Real>(what: &str, found: &[T], wanted: &[T]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

/// Compares a cycle with a new one on the CPU. Returns M^-1 r.
fn compare<T: Real, D: StencilBackend<T>>(
    what: &str,
    be: &D,
    m: &Cycle<T, D>,
    a: &Csr<T>,
    levels: Option<usize>,
) -> Result<Vec<T>, Finding> {
    let cpu = Cpu::new();
    let wanted = made(&cpu, a, levels, m.smoother()).map_err(|error| wrong(error.to_string()))?;
    if (m.sizes(), m.nnz()) != (wanted.sizes(), wanted.nnz()) {
        let (found, expected) = ((m.sizes(), m.nnz()), (wanted.sizes(), wanted.nnz()));
        return Err(wrong(format!("{what}: grids and entries {found:?}, expected {expected:?}")));
    }
    let found = applied(be, m)?;
    same(what, &found, &applied(&cpu, &wanted)?)?;
    Ok(found)
}

/// Matrices in place, and several grids at once, against one matrix at a time.
fn operations<T: Real, D: StencilBackend<T>>(be: &D, spec: &str) -> Verdict {
    let load = |seed: usize| -> Result<Mat<D, Dia<T>>, Finding> {
        Ok(Mat::<D, Csr<T>>::load(be, values::<T>(spec, seed, true)?)?.convert(be)?)
    };
    let (m, mut other) = (load(0)?, load(1)?);
    let of = m.stencils(be).into_iter().next().ok_or_else(|| wrong("no stencil"))?;
    let to = Coarsening::new(of.size(), [true; 3], 1);
    let (next, wanted) = (of.coarser(&to), m.coarser_stencil(be, &of, &to)?);
    let mut coarse = other.coarser_stencil(be, &of, &to)?;
    if !m.coarser_stencil_into(be, &of, &to, &mut coarse)? {
        return Err(wrong("no room for values of the same type"));
    }
    let of_coarse = coarse.stencil_rows(be, &next, 0, 1)?;
    same("a coarser matrix in place", &of_coarse, &wanted.stencil_rows(be, &next, 0, 1)?)?;
    refused(m.coarser_stencil_into(be, &of, &to, &mut other), "the coarse grid")?;

    let mut together = [Backend::<T>::zeros(be, of.points())?, Backend::<T>::zeros(be, next.points())?];
    let [of_m, of_next] = &mut together;
    let mut grids = [(m.resident(), &of, of_m), (coarse.resident(), &next, of_next)];
    let spectra = be.stencil_spectra(&mut grids, Divisor::RowSum)?;
    for (k, (a, of)) in [(&m, &of), (&coarse, &next)].into_iter().enumerate() {
        let mut alone = Backend::<T>::zeros(be, of.points())?;
        if spectra.get(k) != Some(&a.stencil_spectrum(be, of, Divisor::RowSum, &mut alone)?) {
            return Err(wrong(format!("grid {k} of several: {spectra:?}")));
        }
        let (found, wanted) = (Backend::<T>::download(be, &together[k])?, Backend::<T>::download(be, &alone)?);
        same(&format!("one over the divisors of grid {k} of several"), &found, &wanted)?;
    }
    let mut rows = Vec::new();
    let asked = [(m.resident(), &of, 3), (coarse.resident(), &next, 1)];
    be.stencil_samples(&asked, &mut |all| rows = all.to_vec())?;
    same("rows of several grids", &rows, &[m.stencil_rows(be, &of, 0, 3)?, of_coarse].concat())?;

    if coarse.copy_stencil(be, &m)? || !other.copy_stencil(be, &m)? {
        return Err(wrong("a matrix is copied to one of the same size, and to no other"));
    }
    same("a copy", &other.stencil_rows(be, &of, 0, 1)?, &m.stencil_rows(be, &of, 0, 1)?)?;
    let mut dense = Mat::<D, Dense<T>>::load(be, Dense::new(2, 2, vec![T::one(); 4])?)?;
    refused(dense.update_values(be, &[T::one(); 3]), "values")?;
    dense.update_dense(be, &Dense::new(2, 2, vec![T::zero(), T::one(), T::one(), T::one()])?)?;
    let (x, mut y) = (be.upload(&[T::one(), T::one()])?, Backend::<T>::zeros(be, 2)?);
    dense.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
    same("a product with new values", &Backend::<T>::download(be, &y)?, &[T::one(), T::one() + T::one()])?;
    if dense.nnz() == 3 { Ok(()) } else { Err(wrong(format!("{} entries, expected 3", dense.nnz()))) }
}

/// Conversions of one matrix with values that change in place, like an earlier one, against plain conversions; and a
/// cycle that takes the values.
fn conversions<T: Real, D: StencilBackend<T> + UpdateValues<Csr<T>>>(
    be: &D,
    spec: &str,
    levels: Option<usize>,
) -> Verdict {
    let failed = |error: spandrel_solvers::Error| wrong(error.to_string());
    let numbers = numbers::<T>(7, values::<T>(spec, 0, false)?.nrows());
    let x = Backend::<T>::upload(be, &numbers)?;
    let product = |m: &Mat<D, Dia<T>>| -> DeviceResult<Vec<T>> {
        let mut y = Backend::<T>::upload(be, &vec![T::nan(); numbers.len()])?;
        m.spmv(be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
        Backend::<T>::download(be, &y)
    };
    for uneven in [false, true] {
        let first = values::<T>(spec, 0, uneven)?;
        let mut a = Mat::<D, Csr<T>>::load(be, first.clone())?;
        let like = a.convert::<Dia<T>>(be)?;
        let mut m = StencilMultigrid::of(be, &a, levels, SMOOTHERS[0].1, &mut unobserved).map_err(failed)?;
        let (last, most) = (first.nrows() - 1, T::max_value());
        let changed = |row: usize, col: usize, value: T| -> Result<Csr<T>, Finding> {
            Ok(values::<T>(spec, 1, uneven)?.map_entries(move |i, j, v| if (i, j) == (row, col) { value } else { v }))
        };
        let next = [
            ("the same form", values::<T>(spec, 1, uneven)?),
            ("the other form", values::<T>(spec, 2, !uneven)?),
            ("not symmetric", changed(last, last - 1, T::one())?),
            ("not symmetric, above the diagonal", changed(0, 1, T::one())?),
            ("a zero", changed(last, last - 1, T::zero())?),
            ("one diagonal entry", changed(last / 2, last / 2, T::from_f64(0.1))?),
            ("the largest number", changed(1, 1, most)?),
            ("NaN", changed(0, 0, T::nan())?),
            ("the first values", first),
        ];
        for (what, next) in &next {
            a.update_values(be, next.values())?;
            let (found, wanted) = (a.convert_like(be, &like)?, Mat::<D, Csr<T>>::load(be, next.clone())?.convert(be)?);
            let facts = |m: &Mat<D, Dia<T>>| (m.nnz(), m.storage(), m.spmv_bytes(), m.is_narrow(be));
            if facts(&found) != facts(&wanted) {
                return Err(wrong(format!("{what}: {:?}, expected {:?}", facts(&found), facts(&wanted))));
            }
            if be.stencil_offsets(found.resident()) != be.stencil_offsets(wanted.resident()) {
                return Err(wrong(format!("{what}: other diagonals")));
            }
            same(&format!("a product, {what}"), &product(&found)?, &product(&wanted)?)?;
            let of_cpu = made(&Cpu::with_threads(1)?, next, levels, m.smoother()).err().map(|error| error.to_string());
            let refused = m.update_from(be, &a).err().map(|error| error.to_string());
            if refused != of_cpu {
                return Err(wrong(format!("{what}: {refused:?}, expected {of_cpu:?}")));
            }
            if refused.is_none() {
                compare(what, be, &m, next, levels)?;
            }
        }
        // A matrix with another pattern.
        let other = Mat::<D, Csr<T>>::load(be, values::<T>("poisson2d:9x8", 1, uneven)?)?;
        if other.convert_like(be, &like)?.nrows() != other.nrows() {
            return Err(wrong("the conversion of another matrix"));
        }
    }
    Ok(())
}

/// z <- M^-1 r.
struct Application<'a, T: Real, D: StencilBackend<T>> {
    m: &'a RefCell<Cycle<T, D>>,
    r: &'a <D as Backend<T>>::Vector,
    z: <D as Backend<T>>::Vector,
}

// SAFETY: one operation on buffers that live as long as the step. The cycle must keep its addresses when it takes new
// values, which is what the trial checks.
unsafe impl<T: Real, D: StencilBackend<T>> Step<D> for Application<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> DeviceResult<()> {
        self.m.borrow().apply(be, None, self.r, &mut self.z)
    }
}

fn updates<T: Real, D: StencilBackend<T>>(
    be: &D,
    spec: &str,
    levels: Option<usize>,
    smoother: PolynomialSmoother,
) -> Verdict {
    let failed = |error: spandrel_solvers::Error| wrong(error.to_string());
    let of = |seed: usize, uneven: bool| values::<T>(spec, seed, uneven);
    let mut m = made(be, &of(0, false)?, levels, smoother).map_err(failed)?;
    // In place, to the other form of storage, in place, and back.
    for (seed, uneven) in [(1, false), (2, true), (3, true), (4, false)] {
        let next = of(seed, uneven)?;
        update(be, &mut m, &next).map_err(failed)?;
        compare(&format!("values {seed}"), be, &m, &next, levels)?;
    }
    // Run plain, captured and replayed, each with other values. With a Chebyshev smoother the bounds must be the same.
    let recorded = |m: Cycle<T, D>, next: &dyn Fn(i32) -> Result<Csr<T>, Finding>| -> Result<Cycle<T, D>, Finding> {
        let n = m.len().unwrap_or(0);
        let (m, r, z) = (RefCell::new(m), be.upload(&numbers::<T>(7, n))?, Backend::<T>::zeros(be, n)?);
        let mut step = Recorded::new(be, Application::<T, D> { m: &m, r: &r, z }, true);
        for run in 0..4 {
            let next = next(run)?;
            update(be, &mut m.borrow_mut(), &next).map_err(failed)?;
            step.run()?;
            let found = Backend::<T>::download(be, &step.step().z)?;
            let wanted = compare("an update that was recorded", be, &m.borrow(), &next, levels)?;
            same(&format!("run {run} of a graph"), &found, &wanted)?;
        }
        drop(step);
        Ok(m.into_inner())
    };
    for uneven in [false, true] {
        // The form of storage is that of the first values.
        let first = of(5, uneven)?;
        let m = made(be, &first, levels, smoother).map_err(failed)?;
        let m = recorded(m, &|run| Ok(first.map(|v| v * T::from_f64(2.0f64.powi(run - 1)))))?;
        if matches!(smoother, PolynomialSmoother::L1Jacobi(_)) {
            recorded(m, &|run| of(6 + run as usize, uneven))?;
        }
    }
    Ok(())
}

fn other_axes<T: Real, D: StencilBackend<T>>(be: &D, smoother: PolynomialSmoother) -> Verdict {
    let [plain, along_x] = ["poisson2d:64", "anisotropic2d:64,eps=0.01"].map(|spec| values::<T>(spec, 1, true));
    let (plain, along_x) = (plain?, along_x?);
    let mut m = made(be, &plain, None, smoother).map_err(|error| wrong(error.to_string()))?;
    let sizes = m.sizes().to_vec();
    for next in [&along_x, &along_x.map(|v| v + v), &plain] {
        update(be, &mut m, next).map_err(|error| wrong(error.to_string()))?;
        compare("other axes", be, &m, next, None)?;
        if (m.sizes() == sizes) != std::ptr::eq(next, &plain) {
            return Err(wrong(format!("the trial must change the grids: {:?}", m.sizes())));
        }
    }
    Ok(())
}

fn refusals<T: Real, D: StencilBackend<T>>(be: &D, smoother: PolynomialSmoother) -> Verdict {
    let spec = "poisson3d:16x15x14";
    let (first, next) = (values::<T>(spec, 0, true)?, values::<T>(spec, 1, true)?);
    let number = T::from_f64;
    let at = |row: usize, col: usize, value: f64| {
        next.map_entries(move |i, j, v| if (i, j) == (row, col) { number(value) } else { v })
    };
    // An entry that connects the end of a line with the beginning of the next, on a diagonal that is there, and one on
    // a diagonal that is not.
    let added = |row: usize, col: usize| {
        let kept = (0..next.nrows()).flat_map(|i| {
            let (cols, values) = next.row(i);
            cols.iter().zip(values).map(move |(&j, &v)| (i, j as usize, v)).collect::<Vec<_>>()
        });
        let more = [(row, col, number(-0.125)), (col, row, number(-0.125))];
        Csr::from_triplets(next.nrows(), next.ncols(), kept.chain(more))
    };
    let refused = [
        ("NaN", at(77, 77, f64::NAN)),
        ("a negative diagonal entry", at(5, 5, -1.0)),
        ("not symmetric", at(7, 8, -0.125)),
        ("the end of a line", added(15, 16)?),
        ("another diagonal", added(3, 700)?),
        // Only the inverse of the coarsest operator shows it.
        ("indefinite", next.map_entries(|i, j, v| if i == j { number(0.45) * v } else { v })),
    ];
    let cpu = Cpu::with_threads(1)?;
    let failed = |error: spandrel_solvers::Error| wrong(error.to_string());
    let mut m = made(be, &first, None, smoother).map_err(failed)?;
    for (what, bad) in &refused {
        let before = applied(be, &m)?;
        let wanted = made(&cpu, bad, None, smoother).err().map(|error| error.to_string());
        let found = update(be, &mut m, bad).err().map(|error| error.to_string());
        if wanted.is_none() || found != wanted {
            return Err(wrong(format!("{what}: {found:?}, expected {wanted:?}")));
        }
        same(&format!("after refused values ({what})"), &applied(be, &m)?, &before)?;
        for good in [&next, &first] {
            update(be, &mut m, good).map_err(failed)?;
            compare(&format!("accepted values after refused ones ({what})"), be, &m, good, None)?;
        }
    }
    Ok(())
}
