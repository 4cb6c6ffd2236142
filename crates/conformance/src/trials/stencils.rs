//! Trials of stencil matrices and grids: bit by bit like the host's functions, with values in f64 and those that f32
//! holds, behind gates, recorded, and refusals; and of the multigrid cycle over them.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_backend::{
    Backend, Error, Gate, Mat, Preconditioner, Recorded, Relax, Result as DeviceResult, Spectrum, Step,
};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Coarsening, Csr, Dia, Diagonals, Divisor, Format, Grid, Neighbours, Real, Stencil};
use spandrel_solvers::multigrid::StencilBackend;
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{PolynomialSmoother, StencilMultigrid};

use super::made::{of_type, on_each, refused};
use crate::case::numbers;
use crate::reference::difference;
use crate::subject::{Fleet, GateState, gate};
use crate::trial::{Trial, Verdict, wrong};

/// Grids, and the axes that are halved.
const CASES: [(&str, [bool; 3]); 12] = [
    ("poisson1d:4099", [true, false, false]),
    ("poisson2d:33x17", [true, true, false]),
    ("poisson2d9:40x31", [true; 3]),
    ("poisson2d9:40x31", [false, true, false]),
    ("poisson3d:16x15x14", [true; 3]),
    ("d3n27:9x12x7", [true; 3]),
    ("d3n27:9x12x7", [true, false, true]),
    ("d3n27:9x12x7", [false, false, true]),
    ("d3n27:8x8x8", [true, true, false]),
    ("d3n27:5001x3x4", [true; 3]),
    ("poisson3d:5x3x40", [false, true, true]),
    ("poisson3d:1x1x50", [true; 3]),
];
/// For the kernels of a GPU, which keep f64 values in f32 on large grids.
const LARGE: [(&str, [bool; 3]); 2] = [("poisson3d:71x70x69", [true; 3]), ("d3n27:64x65x63", [true; 3])];

/// Smoothers of a cycle, and what the names of their trials end with.
const SMOOTHERS: [(&str, PolynomialSmoother); 2] =
    [("", PolynomialSmoother::Chebyshev(2)), ("-l1-jacobi", PolynomialSmoother::L1Jacobi(2))];

pub(crate) fn trials<T: Real, D: StencilBackend<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    let large = LARGE.into_iter().filter(|_| D::NAME == "cuda");
    for (spec, halved) in CASES.into_iter().chain(large) {
        for (kind, uneven) in [("uneven", true), ("narrow", false)] {
            let fleet = fleet.clone();
            let axes: String = halved.map(|halved| if halved { 'h' } else { 'k' }).iter().collect();
            let name = format!("stencil/dia/{}/{}/{spec}-{axes}-{kind}", T::NAME, fleet.name);
            out.push(Trial::new(name, move || {
                let a = values::<T>(spec, uneven)?;
                on_each::<D, T>(&fleet.devices, |be| matrices::<T, D>(be, &a, halved))?;
                on_each::<D, T>(&fleet.devices, |be| vectors::<T, D>(be, &a, halved))
            }));
        }
    }
    for (spec, uneven) in [("poisson3d:20x19x18", true), ("poisson3d:24", false), ("poisson2d9:61x50", true)] {
        for (suffix, smoother) in SMOOTHERS {
            let fleet = fleet.clone();
            out.push(Trial::new(format!("stencil-mg/dia/{}/{}/{spec}{suffix}", T::NAME, fleet.name), move || {
                let a = values::<T>(spec, uneven)?;
                let wanted = cycle(&Cpu::with_threads(1)?, &a, smoother)?;
                on_each::<D, T>(&fleet.devices, |be| same("a cycle", &cycle(be, &a, smoother)?, &wanted))
            }));
        }
    }
    let fleet = fleet.clone();
    out.push(Trial::new(format!("stencil/dia/{}/{}/refusals", T::NAME, fleet.name), move || {
        on_each::<D, T>(&fleet.devices, |be| refusals::<T, D>(be))
    }));
}

/// A symmetric stencil, whose values round in every sum or are small dyadic numbers.
fn values<T: Real>(spec: &str, uneven: bool) -> Result<Csr<T>, crate::trial::Finding> {
    let built = crate::generated(spec)?.map_entries(|i, j, v| {
        let (low, high) = (i.min(j), i.max(j));
        let part = ((low * 7919 + high * 104_729) % 1013) as f64;
        v * if uneven { 1.0 + part / 3000.0 } else { 1.0 + (part as u32 % 4) as f64 / 4.0 }
    });
    of_type::<T>(Ok(built))
}

fn same<T: Real>(what: &str, found: &[T], wanted: &[T]) -> Verdict {
    difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
}

fn stencil<T: Real>(a: &Csr<T>) -> Result<Neighbours, crate::trial::Finding> {
    let grid = Grid::detect(a).map_err(|why| wrong(why.to_string()))?;
    Neighbours::of(&Stencil::of(&grid)).ok_or_else(|| wrong("no stencil of nearest neighbours"))
}

const DIVISORS: [Divisor; 2] = [Divisor::Diagonal, Divisor::RowSum];

fn matrices<T: Real, D: StencilBackend<T>>(be: &D, a: &Csr<T>, halved: [bool; 3]) -> Verdict {
    let of = stencil(a)?;
    let host = Dia::from_csr(a)?;
    let diagonals = || Diagonals::Own(host.values());
    let m = Mat::<D, Csr<T>>::load(be, a.clone())?.convert::<Dia<T>>(be)?;
    if be.stencil_offsets(m.resident()) != host.offsets() {
        return Err(wrong("other diagonals"));
    }
    for (begin, step) in [(0, 1), (0, 3), (a.nrows() / 3, 2), (a.nrows() - 1, 1), (a.nrows() + 2, 1)] {
        let what = format!("every {step}. row from row {begin} on");
        same(&what, &m.stencil_rows(be, &of, begin, step)?, &of.rows(host.offsets(), diagonals(), begin, step)?)?;
    }
    let mut inverse = be.upload(&vec![T::nan(); a.nrows()])?;
    for divisor in DIVISORS {
        Backend::<T>::write(be, &vec![T::nan(); a.nrows()], &mut inverse)?;
        let spectrum = m.stencil_spectrum(be, &of, divisor, &mut inverse)?;
        let mut wanted = vec![T::nan(); a.nrows()];
        let (bound, unfit, entries) = of.spectrum(host.offsets(), diagonals(), divisor, &mut wanted)?;
        same(&format!("one over {divisor:?}"), &Backend::<T>::download(be, &inverse)?, &wanted)?;
        if spectrum != (Spectrum { bound, unfit, entries }) || entries != m.nnz() as u64 {
            return Err(wrong(format!("{spectrum:?}, expected a bound of {bound:e}, {unfit:?}, {entries} entries")));
        }
    }
    let to = Coarsening::new(of.size(), halved, 1);
    let (coarse, next) = (m.coarser_stencil(be, &of, &to)?, of.coarser(&to));
    let wanted = of.galerkin(host.offsets(), diagonals(), &to)?;
    let of_wanted = next.rows(wanted.offsets(), Diagonals::Own(wanted.values()), 0, 1)?;
    same("the coarser matrix", &coarse.stencil_rows(be, &next, 0, 1)?, &of_wanted)?;
    let remade = from_diagonals(be, &coarse, &next, &wanted)?;
    same("the matrix of its diagonals", &remade.stencil_rows(be, &next, 0, 1)?, &of_wanted)?;
    from_diagonals(be, &m, &of, &host)?;
    let loaded = Mat::<D, Dia<T>>::load(be, wanted)?;
    let x = Backend::<T>::upload(be, &numbers::<T>(5, next.points()))?;
    let product = |m: &Mat<D, Dia<T>>| -> DeviceResult<Vec<T>> {
        let mut y = be.upload(&vec![T::nan(); next.points()])?;
        m.spmv(be, None, spandrel_backend::Coeff::one(), &x, spandrel_backend::Coeff::zero(), &mut y)?;
        be.download(&y)
    };
    let wanted = product(&loaded)?;
    same("a product with the coarser matrix", &product(&coarse)?, &wanted)?;
    same("a product with the matrix of its diagonals", &product(&remade)?, &wanted)?;
    // Rows that do not suit.
    let n = a.nrows();
    for (row, value) in [(n - 1, 0.0), (n / 2, -1.0), (n / 3, f64::NAN), (0, f64::INFINITY)] {
        let spoilt = a.map_entries(|i, j, v| if i == row && j == row { T::from_f64(value) } else { v });
        let m = Mat::<D, Csr<T>>::load(be, spoilt)?.convert::<Dia<T>>(be)?;
        for divisor in DIVISORS {
            let found = m.stencil_spectrum(be, &of, divisor, &mut inverse)?.unfit;
            if found != Some(row) {
                return Err(wrong(format!(
                    "a diagonal entry of {value} in row {row}, {divisor:?}: unfit is {found:?}"
                )));
            }
        }
    }
    // A sum that overflows, of entries that are finite.
    let (row, most) = (n / 2, T::max_value());
    let spoilt = a.map_entries(|i, j, v| match (i == row, j == row) {
        (true, true) => most,
        (true, false) | (false, true) => v.signum() * most,
        _ => v,
    });
    let m = Mat::<D, Csr<T>>::load(be, spoilt)?.convert::<Dia<T>>(be)?;
    for divisor in DIVISORS {
        let unfit = m.stencil_spectrum(be, &of, divisor, &mut inverse)?.unfit;
        let first = match divisor {
            Divisor::Diagonal => None,
            // One entry of this size does not overflow, so the rows beside it are fit.
            Divisor::RowSum => Some(row),
        };
        if unfit != first {
            return Err(wrong(format!("a sum that overflows in row {row}, {divisor:?}: unfit is {unfit:?}")));
        }
    }
    Ok(())
}

/// Takes a matrix apart into its diagonals, compares them with those of the host, and makes it again.
fn from_diagonals<T: Real, D: StencilBackend<T>>(
    be: &D,
    m: &Mat<D, Dia<T>>,
    of: &Neighbours,
    host: &Dia<T>,
) -> Result<Mat<D, Dia<T>>, crate::trial::Finding> {
    let (n, mut upper) = (of.points(), m.stencil_diagonals(be, of)?);
    for (offset, diagonal) in of.upper_offsets().into_iter().zip(&mut upper) {
        let mut wanted = vec![T::nan(); n];
        of.copy_diagonal(host.offsets(), Diagonals::Own(host.values()), offset, &mut wanted)?;
        same(&format!("diagonal {offset}"), &Backend::<T>::download(be, diagonal)?, &wanted)?;
        // These lie in columns beyond the last and must not count.
        wanted[n - offset as usize..].fill(T::nan());
        Backend::<T>::write(be, &wanted, diagonal)?;
    }
    Ok(Mat::of_stencil_diagonals(be, of, &upper)?)
}

type VectorOf<D, T> = <D as Backend<T>>::Vector;

/// s <- P^T r, x <- x + P e, and a step of the smoother.
struct Moves<'a, T: Real, D: StencilBackend<T>> {
    to: &'a Coarsening,
    relax: Relax<T>,
    /// r, e and d.
    from: [&'a VectorOf<D, T>; 3],
    /// s, x, z and the x of the step.
    to_write: &'a RefCell<[VectorOf<D, T>; 4]>,
}

impl<T: Real, D: StencilBackend<T>> Moves<'_, T, D> {
    fn run(&self, be: &D, gate: Gate<'_, D>) -> DeviceResult<()> {
        let [r, e, d] = self.from;
        let [s, x, z, moved] = &mut *self.to_write.borrow_mut();
        be.restrict(gate, self.to, r, s)?;
        be.prolong(gate, self.to, e, x)?;
        be.relax(gate, self.relax, d, r, z, moved)
    }
}

// SAFETY: three operations on vectors that outlive the step and stay where they are.
unsafe impl<T: Real, D: StencilBackend<T>> Step<D> for Moves<'_, T, D> {
    fn enqueue(&mut self, be: &D) -> DeviceResult<()> {
        self.run(be, None)
    }
}

fn vectors<T: Real, D: StencilBackend<T>>(be: &D, a: &Csr<T>, halved: [bool; 3]) -> Verdict {
    let of = stencil(a)?;
    let to = Coarsening::new(of.size(), halved, 1);
    let ([nx, ny, _], [cx, cy, _]) = (to.fine(), to.coarse());
    let (n, nc) = (of.points(), to.coarse().iter().product());
    let [r, x, d, z] = [1, 2, 3, 4].map(|seed| numbers::<T>(seed, n));
    let e = numbers::<T>(5, nc);
    let work = &mut Default::default();
    let mut wanted_s = vec![T::nan(); nc];
    for (line, s) in wanted_s.chunks_mut(cx).enumerate() {
        to.restrict_line(&r, [line % cy, line / cy], work, s);
    }
    let mut wanted_x = x.clone();
    for (line, x) in wanted_x.chunks_mut(nx).enumerate() {
        to.prolong_line(&e, [line % ny, line / ny], work, x);
    }
    let upload = |v: &[T]| Backend::<T>::upload(be, v);
    let (on_r, on_e, on_d) = (upload(&r)?, upload(&e)?, upload(&d)?);
    let poison = |len: usize| vec![T::nan(); len];
    let [taken, weight, factor] = [0.7, 1.3, -0.4].map(T::from_f64);
    for (kept, adds) in [(None, false), (None, true), (Some(factor), false), (Some(factor), true)] {
        let relax = Relax { kept, taken, weight, adds };
        // What must not be read is poisoned.
        let old_z = if kept.is_some() { z.clone() } else { poison(n) };
        let old_x = if adds { x.clone() } else { poison(n) };
        let wanted_z: Vec<T> = (0..n)
            .map(|i| {
                let moved = taken * (d[i] * r[i]);
                kept.map_or(moved, |kept| kept * old_z[i] + moved)
            })
            .collect();
        let wanted_moved: Vec<T> =
            (0..n).map(|i| if adds { old_x[i] + weight * wanted_z[i] } else { weight * wanted_z[i] }).collect();
        let fresh = || Ok::<_, Error>([upload(&poison(nc))?, upload(&x)?, upload(&old_z)?, upload(&old_x)?]);
        let operands = RefCell::new(fresh()?);
        let moves = Moves { to: &to, relax, from: [&on_r, &on_e, &on_d], to_write: &operands };
        let compare = |what: &str, wanted: [&[T]; 4]| -> Verdict {
            let found = operands.borrow();
            for ((name, found), wanted) in ["s", "x", "z", "x of a step"].iter().zip(&*found).zip(wanted) {
                same(&format!("{what}, {relax:?}: {name}"), &Backend::<T>::download(be, found)?, wanted)?;
            }
            Ok(())
        };
        let stopped = gate::<T, D>(be, GateState::Stopped)?;
        moves.run(be, stopped.as_ref())?;
        compare("behind a stopped monitor", [&poison(nc), &x, &old_z, &old_x])?;
        let running = gate::<T, D>(be, GateState::Running)?;
        moves.run(be, running.as_ref())?;
        let wanted: [&[T]; 4] = [&wanted_s, &wanted_x, &wanted_z, &wanted_moved];
        compare("behind a running monitor", wanted)?;
        let mut step = Recorded::new(be, moves, true);
        for run in 0..3 {
            let hosts = [poison(nc), x.clone(), old_z.clone(), old_x.clone()];
            for (host, v) in hosts.iter().zip(operands.borrow_mut().iter_mut()) {
                Backend::<T>::write(be, host, v)?;
            }
            step.run()?;
            compare(&format!("run {run} of a step"), wanted)?;
        }
    }
    Ok(())
}

/// M^-1 applied to always the same numbers.
fn cycle<T: Real, D: StencilBackend<T>>(
    be: &D,
    a: &Csr<T>,
    smoother: PolynomialSmoother,
) -> Result<Vec<T>, crate::trial::Finding> {
    let on_device = Mat::load(be, a.clone())?;
    let m = StencilMultigrid::<T, D>::of(be, &on_device, None, smoother, &mut unobserved)
        .map_err(|error| wrong(error.to_string()))?;
    let r = Backend::<T>::upload(be, &numbers::<T>(7, a.nrows()))?;
    let mut z = Backend::<T>::upload(be, &vec![T::nan(); a.nrows()])?;
    m.apply(be, None, &r, &mut z)?;
    match m.is_stored_order(be) {
        true => Ok(Backend::<T>::download(be, &z)?),
        false => Err(wrong("a product has an order of its own")),
    }
}

fn refusals<T: Real, D: StencilBackend<T>>(be: &D) -> Verdict {
    let load = |spec: &str| -> Result<_, crate::trial::Finding> {
        let a = of_type::<T>(crate::generated(spec))?;
        let of = stencil(&a)?;
        Ok((Mat::<D, Csr<T>>::load(be, a)?.convert::<Dia<T>>(be)?, of))
    };
    let ((m, of), (_, other)) = (load("poisson2d:9x8")?, load("poisson2d:8x7")?);
    let to = Coarsening::new(of.size(), [true; 3], 1);
    let zeros = |n: usize| Backend::<T>::zeros(be, n);
    let (mut fine, mut coarse, mut short) = (zeros(72)?, zeros(16)?, zeros(5)?);
    refused(m.coarser_stencil(be, &other, &to), "a column")?;
    refused(m.coarser_stencil(be, &of, &Coarsening::new(other.size(), [true; 3], 1)), "the fine grid")?;
    refused(m.stencil_spectrum(be, &of, Divisor::Diagonal, &mut short), "the inverse of the divisors")?;
    refused(m.stencil_rows(be, &other, 0, 1), "a column")?;
    refused(m.stencil_rows(be, &of, 0, 0), "a step")?;
    refused(m.stencil_diagonals(be, &other).map(drop), "a column")?;
    let mut upper = m.stencil_diagonals(be, &of)?;
    refused(Mat::of_stencil_diagonals(be, &of, &upper[1..]).map(drop), "the diagonals")?;
    upper[0] = zeros(5)?;
    refused(Mat::of_stencil_diagonals(be, &of, &upper).map(drop), "a diagonal")?;
    refused(be.restrict(None, &to, &short, &mut coarse), "r")?;
    refused(be.restrict(None, &to, &fine, &mut short), "s")?;
    refused(be.prolong(None, &to, &short, &mut fine), "e")?;
    refused(be.prolong(None, &to, &coarse, &mut short), "x")?;
    let relax = Relax { kept: None, taken: T::one(), weight: T::one(), adds: false };
    let (d, s, mut z) = (zeros(72)?, zeros(72)?, zeros(72)?);
    refused(be.relax(None, relax, &d, &short, &mut z, &mut fine), "s")?;
    refused(be.relax(None, relax, &d, &s, &mut short, &mut fine), "z")?;
    refused(be.relax(None, relax, &d, &s, &mut z, &mut short), "x")?;
    // A matrix that does not equal its transpose.
    let skew = of_type::<T>(crate::generated("convdiff2d:9x8"))?;
    let m = Mat::<D, Csr<T>>::load(be, skew)?.convert::<Dia<T>>(be)?;
    let unsupported = |outcome: DeviceResult<()>| match outcome {
        Err(Error::Unsupported { .. }) => Ok(()),
        Err(other) => Err(wrong(format!("expected a refusal of a matrix that is not symmetric, found \"{other}\""))),
        Ok(()) => Err(wrong("a matrix that is not symmetric is taken")),
    };
    unsupported(m.coarser_stencil(be, &of, &to).map(drop))?;
    unsupported(m.stencil_spectrum(be, &of, Divisor::Diagonal, &mut fine).map(drop))?;
    unsupported(m.stencil_diagonals(be, &of).map(drop))?;
    unsupported(m.stencil_rows(be, &of, 0, 1).map(drop))
}
