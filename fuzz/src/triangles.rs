//! Triangular plans: the analysis of any triangle returns a plan or a typed refusal, and every plan solves as the
//! serial plan does.
//!
//! If a plan has an order of its own, the bound is |b - T x| <= gamma(k+2) |T| |x| row by row (Higham 2002, chapter 8).
//! The left side is evaluated in f64, with as many roundings again.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use spandrel_backend::{Backend, Order, Sptrsv, Tri};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{Csr, Profile, Real, Triplets};
use spandrel_sptrsv::sweep::STENCILS;
use spandrel_sptrsv::{
    AnyPlan, Diagonal, Error, Levels, Plan, Syncfree, System, Systems, Triangle, Triangular, Walk, for_each_plan,
    serial,
};

use super::input::{self, equal, same};
use super::product::on_cpu;

/// Number of rows of a tiled triangle, enough for the backend's workers.
const LARGE: usize = 30_000;
const COLUMNS: usize = 2;

/// Solves with a triangle from the bytes by every plan, both systems.
///
/// # Panics
/// If a plan breaks a promise.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    let [flags, tiles] = u.arbitrary::<[u8; 2]>()?;
    let (n, entries) = if flags & 1 == 0 { scattered(u)? } else { grid(u)? };
    let tiles = if tiles == 255 && n > 0 { LARGE / n } else { 1 };
    let triangle = if flags & 2 == 0 { Triangle::Lower } else { Triangle::Upper };
    let diagonal = if flags & 4 == 0 { Diagonal::NonUnit } else { Diagonal::Unit };
    let coupled = flags & 8 != 0;
    let total = n * tiles;
    let mut triplets = Triplets::new(total, total).expect("a small shape");
    let mut transposed = triplets.clone();
    for tile in 0..tiles {
        for &(i, j, value) in &entries {
            // The first column's entries reach back by one tile.
            let back = if coupled && j == 0 && i > 0 { tile.min(1) * n } else { 0 };
            let (i, j) = (tile * n + i, tile * n + j - back);
            let (i, j) = if triangle == Triangle::Lower { (i, j) } else { (total - 1 - i, total - 1 - j) };
            triplets.push(i, j, value).expect("an entry inside");
            transposed.push(j, i, value).expect("an entry inside");
        }
    }
    let matrix = triplets.to_csr().expect("a small matrix");
    dependencies(&matrix, triangle);
    if flags & 16 == 0 {
        solve(matrix, transposed.to_csr().expect("a small matrix"), triangle, diagonal);
    } else {
        let narrow = |csr: Csr<f64>| csr.map(|v| v as f32);
        solve(narrow(matrix), narrow(transposed.to_csr().expect("a small matrix")), triangle, diagonal);
    }
    Ok(())
}

type Entries = (usize, Vec<(usize, usize, f64)>);

fn diagonal_value(u: &mut Unstructured<'_>) -> Result<Option<f64>> {
    Ok(match u.arbitrary::<u8>()? {
        255 => None,
        254 => Some(input::value(u)?),
        byte => Some(0.5 + f64::from(byte) / 64.0),
    })
}

fn scattered(u: &mut Unstructured<'_>) -> Result<Entries> {
    let n = u.int_in_range(0..=70usize)?;
    let mut entries = Vec::new();
    for i in 0..n {
        entries.extend(diagonal_value(u)?.map(|value| (i, i, value)));
    }
    while n > 1 && !u.is_empty() && entries.len() < 600 {
        let i = u.int_in_range(1..=n - 1)?;
        entries.push((i, u.int_in_range(0..=i - 1)?, input::value(u)?));
    }
    Ok((n, entries))
}

/// A lower stencil on a grid of up to 8 x 8 x 8 points, some entries missing.
fn grid(u: &mut Unstructured<'_>) -> Result<Entries> {
    let size = [u.int_in_range(1..=8i64)?, u.int_in_range(1..=8i64)?, u.int_in_range(1..=8i64)?];
    let mut offsets = Vec::new();
    for _ in 0..u.int_in_range(0..=9usize)? {
        let offset = [u.int_in_range(-3..=3i64)?, u.int_in_range(-3..=3i64)?, u.int_in_range(-2..=0i64)?];
        if (offset[2], offset[1], offset[0]) < (0, 0, 0) {
            offsets.push(offset);
        }
    }
    offsets.sort_unstable();
    offsets.dedup();
    let missing = u.arbitrary::<u8>()? >= 200;
    let n = size[0] * size[1] * size[2];
    let mut entries = Vec::new();
    for row in 0..n {
        let at = [row % size[0], row / size[0] % size[1], row / (size[0] * size[1])];
        for offset in &offsets {
            let to = [0, 1, 2].map(|axis| at[axis] + offset[axis]);
            let inside = (0..3).all(|axis| (0..size[axis]).contains(&to[axis]));
            if inside && !(missing && u.ratio(1, 16)?) {
                let col = to[0] + size[0] * (to[1] + size[1] * to[2]);
                entries.push((row as usize, col as usize, input::value(u)?));
            }
        }
        entries.extend(diagonal_value(u)?.map(|value| (row as usize, row as usize, value)));
    }
    Ok((n as usize, entries))
}

/// Every row has a level of its own above those that it needs.
fn dependencies<T: Real>(matrix: &Csr<T>, triangle: Triangle) {
    let levels = Levels::of(matrix, triangle).expect("a square matrix");
    let mut level_of = vec![usize::MAX; matrix.nrows()];
    for level in 0..levels.count() {
        for &row in levels.rows(level) {
            assert_eq!(std::mem::replace(&mut level_of[row as usize], level), usize::MAX, "row {row} has two levels");
        }
    }
    for i in 0..matrix.nrows() {
        assert!(level_of[i] != usize::MAX, "row {i} has no level");
        let needed = matrix.row(i).0.iter().map(|&j| j as usize).filter(|&j| triangle.holds(i, j));
        needed.for_each(|j| assert!(level_of[j] < level_of[i], "row {i} is not after row {j}"));
    }
}

macro_rules! by_each_plan {
    ([$problem:ident $T:ident] $(($stem:ident, $Plan:ident)),*) => { $(
        match spandrel_sptrsv::$Plan::<$T>::analyze(Arc::clone(&$problem.matrix), Systems::Both) {
            Ok(plan) => $problem.check(plan),
            Err(Error::NotAGrid { .. } | Error::OutsideStencil { .. } | Error::PartOfStencil { .. })
                if ["sweep", "structured"].contains(&stringify!($stem)) => {}
            Err(error) => panic!("{}: {error}", stringify!($stem)),
        }
    )* };
}

fn solve<T: Real>(csr: Csr<T>, transposed: Csr<T>, triangle: Triangle, diagonal: Diagonal)
where
    Cpu: Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
{
    let made = Triangular::new(csr, triangle, diagonal);
    let other = Triangular::new(transposed, triangle.transposed(), diagonal);
    let (matrix, transposed) = match (made, other) {
        (Ok(matrix), Ok(transposed)) => (Arc::new(matrix), transposed),
        (Err(Error::MissingDiagonal { row }), Err(Error::MissingDiagonal { .. }))
        | (Err(Error::ZeroDiagonal { row }), Err(Error::ZeroDiagonal { .. })) => {
            assert!(diagonal == Diagonal::NonUnit, "row {row} of a unit diagonal");
            return;
        }
        // Counted from the other side, another row is the first that is wrong.
        (Err(Error::MissingDiagonal { .. } | Error::ZeroDiagonal { .. }), Err(_)) => return,
        other => panic!("{other:?}"),
    };
    let n = matrix.nrows();
    let b: Vec<T> = (0..n * COLUMNS).map(|k| T::from_f64((k * 7 % 29) as f64 / 8.0 - 1.75)).collect();
    let expected = [System::Plain, System::Transposed].map(|system| {
        let mut x = vec![T::zero(); b.len()];
        for column in 0..COLUMNS {
            let (b, x) = (&b[column * n..][..n], &mut x[column * n..][..n]);
            serial::solve(if system == System::Plain { &*matrix } else { &transposed }, b, x).expect("equal sizes");
        }
        x
    });
    let problem = Problem { matrix, transposed, b, expected };
    for_each_plan!(by_each_plan, problem, T);
    problem.check(Syncfree::with_walk(Arc::clone(&problem.matrix), Systems::Both, Walk::Rows));
    let (core, device) = (Profile::reference(), Profile::invented(&STENCILS));
    for (profile, reuse) in [(&core, 1), (&core, 100), (&device, 1), (&device, 100)] {
        let (plan, why) = AnyPlan::auto(&problem.matrix, Systems::Plain, profile, reuse);
        assert!(plan.nrows() == n && !why.is_empty());
    }
}

struct Problem<T> {
    matrix: Arc<Triangular<T>>,
    transposed: Triangular<T>,
    b: Vec<T>,
    /// x of both systems.
    expected: [Vec<T>; 2],
}

impl<T: Real> Problem<T>
where
    Cpu: Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
{
    fn check<P: Plan<Value = T>>(&self, plan: P)
    where
        Cpu: Sptrsv<P>,
    {
        let n = self.matrix.nrows();
        on_cpu(|cpu| {
            let tri = Tri::load(cpu, plan).expect("a small plan");
            let b = cpu.upload(&self.b).expect("a small vector");
            for (system, expected) in [System::Plain, System::Transposed].into_iter().zip(&self.expected) {
                let mut x = cpu.upload(&vec![T::nan(); n * COLUMNS]).expect("a small vector");
                tri.sptrsv_columns(cpu, None, system, COLUMNS, &b, &mut x).expect("equal sizes");
                let order = Sptrsv::<P>::sptrsv_order(cpu, tri.resident(), system);
                self.judge::<P>(order, system, x.as_slice(), expected);
                let mut one = cpu.upload(&self.b[..n]).expect("a small vector");
                tri.sptrsv_in_place(cpu, None, system, &mut one).expect("equal sizes");
                if order == Order::Stored {
                    assert!(same(one.as_slice(), &x.as_slice()[..n]), "{} {system}: in place", P::NAME);
                }
            }
        });
    }

    fn judge<P: Plan>(&self, order: Order, system: System, x: &[T], expected: &[T]) {
        let what = format!("{} {system} of {} rows", P::NAME, self.matrix.nrows());
        let finite = |v: &[T]| v.iter().all(|v| v.is_finite());
        match order {
            // Zeros of neighbours that are not there are multiplied.
            Order::Stored if ["sweep", "structured"].contains(&P::NAME) => {
                assert!(!finite(expected) || equal(x, expected), "{what}");
            }
            Order::Stored => assert!(same(x, expected), "{what}"),
            _ => {
                let matrix = if system == System::Plain { &*self.matrix } else { &self.transposed };
                let n = matrix.nrows();
                for column in 0..COLUMNS {
                    bounded(matrix, &self.b[column * n..][..n], &x[column * n..][..n], &what);
                }
            }
        }
    }
}

fn bounded<T: Real>(matrix: &Triangular<T>, b: &[T], x: &[T], what: &str) {
    let sane = |v: T| v == T::zero() || (1e-20..1e20).contains(&v.abs().as_f64());
    if !x.iter().chain(matrix.csr().values()).all(|&v| sane(v)) {
        return;
    }
    for i in 0..matrix.nrows() {
        let (cols, values) = matrix.off_diagonal(i);
        let d =
            if matrix.diagonal() == Diagonal::Unit { 1.0 } else { matrix.csr().get(i, i).map_or(1.0, |d| d.as_f64()) };
        let terms = cols.iter().zip(values).map(|(&j, v)| v.as_f64() * x[j as usize].as_f64());
        let (mut sum, mut size) = (d * x[i].as_f64() - b[i].as_f64(), (d * x[i].as_f64()).abs() + b[i].as_f64().abs());
        terms.for_each(|term| (sum, size) = (sum + term, size + term.abs()));
        let nu = (cols.len() + 3) as f64 * T::UNIT_ROUNDOFF;
        assert!(sum.abs() <= 2.0 * nu / (1.0 - nu) * size, "{what}: row {i}: {sum:e} beside {size:e}");
    }
}
