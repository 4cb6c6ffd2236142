//! A triangular system: a triangle of a case's matrix or of its ILU(0) factors, a right-hand side, and the check of an
//! answer.
//!
//! b = T x for an x in [0.5, 1.5), rounded. An answer is right if |b - T x| <= gamma(k + 2) |T| |x| row by row, k terms
//! off the diagonal (Higham 2002, theorem 8.5, for any order). The residual is formed to twice the precision of f64
//! (Ogita, Rump & Oishi 2005, Dot2), so that its own rounding does not count. Each product that underflows adds at most
//! the smallest number.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Diagonal, Factor as _, Ilu0, Levels, Triangle, Triangular, serial, split};

use crate::case::Case;
use crate::spmv::operand;

/// The origin of a triangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// The matrix's own.
    None,
    /// The factors L (unit) and U of ILU(0).
    Ilu0,
}

impl Factor {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Factor::None => "none",
            Factor::Ilu0 => "ilu0",
        }
    }
}

/// The record's description of a system.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The matrix.
    pub case: String,
    /// Element type.
    pub element: &'static str,
    /// Rows.
    pub n: usize,
    /// Stored entries of the triangle.
    pub nnz: usize,
    /// Which triangle.
    pub triangle: Triangle,
    /// Whether the diagonal is stored or all ones.
    pub diagonal: Diagonal,
    /// The origin of the triangle.
    pub factor: Factor,
    /// Dependency levels.
    pub levels: usize,
    /// Bytes of the triangle in CSR and of two vectors: the numerator of the effective bandwidth.
    pub effective_bytes: u64,
}

/// A system.
#[derive(Debug)]
pub struct Problem<T> {
    /// The description.
    pub facts: Facts,
    /// T.
    pub matrix: Arc<Triangular<T>>,
    /// b.
    pub b: Vec<T>,
}

/// Both triangles of a matrix.
pub(crate) struct Triangles<T> {
    lower: Option<Csr<T>>,
    upper: Option<Csr<T>>,
    factor: Factor,
}

impl<T: Real> Triangles<T> {
    /// The triangles of `csr`, or of its factors.
    ///
    /// # Errors
    /// A matrix that is not square, a pivot that fails.
    pub(crate) fn of(csr: &Csr<T>, factor: Factor) -> Result<Self> {
        let (lower, upper) = match factor {
            Factor::None => {
                let parts = split(csr)?;
                (parts.lower, Some(parts.upper))
            }
            Factor::Ilu0 => {
                let symbolic = Ilu0::symbolic(csr)?;
                let parts = symbolic.triangles(symbolic.numeric(csr.values())?)?;
                (parts.lower.into_csr(), parts.upper.map(Triangular::into_csr))
            }
        };
        Ok(Self { lower: Some(lower), upper, factor })
    }

    /// One of the triangles as a separate system. Each can be taken once.
    ///
    /// # Errors
    /// A singular triangle, with its row; a solution that is not finite.
    pub(crate) fn take(&mut self, case: &Case, triangle: Triangle) -> Result<Problem<T>> {
        let csr = match triangle {
            Triangle::Lower => self.lower.take(),
            Triangle::Upper => self.upper.take(),
        };
        let unit = self.factor == Factor::Ilu0 && triangle == Triangle::Lower;
        let diagonal = if unit { Diagonal::Unit } else { Diagonal::NonUnit };
        let csr = csr.with_context(|| format!("the {triangle} triangle is asked for twice"))?;
        Problem::new(&case.name, Triangular::new(csr, triangle, diagonal)?, self.factor)
    }
}

impl<T: Real> Problem<T> {
    /// A triangle with a right-hand side.
    ///
    /// # Errors
    /// A solution that is not finite, because then no residual would say anything.
    pub(crate) fn new(case: &str, matrix: Triangular<T>, factor: Factor) -> Result<Self> {
        let (n, nnz) = (matrix.nrows(), matrix.csr().nnz());
        let truth: Vec<T> = operand(n);
        let diagonal = |i: usize| match matrix.diagonal() {
            Diagonal::Unit => T::one(),
            Diagonal::NonUnit => stored_diagonal(&matrix, i),
        };
        let row = |i: usize| {
            let (cols, values) = matrix.off_diagonal(i);
            let terms = cols.iter().zip(values).map(|(&j, &v)| v * truth[j as usize]);
            terms.fold(diagonal(i) * truth[i], |sum, term| sum + term)
        };
        let b: Vec<T> = (0..n).into_par_iter().map(row).collect();
        let mut x = vec![T::zero(); n];
        serial::solve(&matrix, &b, &mut x)?;
        let overflow = x.par_iter().position_first(|v| !v.is_finite());
        ensure!(
            overflow.is_none(),
            "x is not finite in row {}: the triangle's inverse is too large",
            overflow.unwrap_or(0)
        );
        let facts = Facts {
            case: case.to_owned(),
            element: T::NAME,
            n,
            nnz,
            triangle: matrix.triangle(),
            diagonal: matrix.diagonal(),
            factor,
            levels: Levels::of(matrix.csr(), matrix.triangle())?.count(),
            effective_bytes: (4 * (n + 1) + nnz * (4 + T::BYTES) + 2 * n * T::BYTES) as u64,
        };
        Ok(Self { facts, matrix: Arc::new(matrix), b })
    }

    /// Whether `x` solves T x = b.
    ///
    /// # Errors
    /// The first row that exceeds its bound, in words.
    pub(crate) fn check<X: Real>(&self, x: &[X]) -> Result<(), String> {
        let n = self.facts.n;
        if x.len() != n {
            return Err(format!("{} elements, expected {n}", x.len()));
        }
        let x: Vec<f64> = x.iter().map(|v| v.as_f64()).collect();
        let smallest = if T::BYTES == 4 { f64::from(f32::from_bits(1)) } else { f64::from_bits(1) };
        let wrong = |i: usize| {
            let (cols, values) = self.matrix.off_diagonal(i);
            let d = match self.matrix.diagonal() {
                Diagonal::Unit => 1.0,
                Diagonal::NonUnit => stored_diagonal(&self.matrix, i).as_f64(),
            };
            let mut residual = Twice(self.b[i].as_f64(), 0.0);
            residual.subtract(d, x[i]);
            let mut size = (d * x[i]).abs();
            for (&j, &v) in cols.iter().zip(values) {
                residual.subtract(v.as_f64(), x[j as usize]);
                size += (v.as_f64() * x[j as usize]).abs();
            }
            let k = cols.len() as f64;
            let u = T::UNIT_ROUNDOFF;
            let bound = (k + 2.0) * u / (1.0 - (k + 2.0) * u) * size + (k + d.abs()) * smallest;
            let found = (residual.0 + residual.1).abs();
            let within = found <= bound;
            (!within).then(|| format!("row {i}: |b - T x| is {found:e}, the bound {bound:e}"))
        };
        match (0..n).into_par_iter().find_map_first(wrong) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

fn stored_diagonal<T: Real>(matrix: &Triangular<T>, i: usize) -> T {
    let values = matrix.csr().row(i).1;
    match matrix.triangle() {
        Triangle::Lower => values[values.len() - 1],
        Triangle::Upper => values[0],
    }
}

/// A sum, and what its rounding lost.
struct Twice(f64, f64);

impl Twice {
    fn subtract(&mut self, a: f64, b: f64) {
        let product = -a * b;
        let lost = (-a).mul_add(b, -product);
        let sum = self.0 + product;
        let back = sum - self.0;
        self.1 += (self.0 - (sum - back)) + (product - back) + lost;
        self.0 = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(spec: &str, factor: Factor, triangle: Triangle) -> Problem<f64> {
        let case = Case::parse(spec);
        Triangles::of(&case.load::<f64>().unwrap(), factor).unwrap().take(&case, triangle).unwrap()
    }

    #[test]
    fn the_serial_answer_is_right_and_a_changed_one_is_not() {
        for (factor, triangle) in [
            (Factor::None, Triangle::Lower),
            (Factor::None, Triangle::Upper),
            (Factor::Ilu0, Triangle::Lower),
            (Factor::Ilu0, Triangle::Upper),
        ] {
            let p = problem("d3n27:6", factor, triangle);
            let unit = factor == Factor::Ilu0 && triangle == Triangle::Lower;
            assert_eq!(p.facts.diagonal == Diagonal::Unit, unit);
            let mut x = vec![0.0; p.facts.n];
            serial::solve(&p.matrix, &p.b, &mut x).unwrap();
            assert_eq!(p.check(&x), Ok(()));
            x[100] *= 1.0 + 1e-13;
            assert!(p.check(&x).unwrap_err().contains("row"));
            x[100] = f64::NAN;
            assert!(p.check(&x).is_err());
            assert!(p.check(&x[1..]).unwrap_err().contains("elements"));
        }
    }

    #[test]
    fn the_facts_of_a_small_grid() {
        let facts = problem("d3n7:4", Factor::None, Triangle::Lower).facts;
        // 64 points, 3 * 48 neighbours before; the levels are x + y + z.
        assert_eq!((facts.n, facts.nnz, facts.levels), (64, 64 + 144, 10));
        assert_eq!(facts.effective_bytes, 4 * 65 + 12 * 208 + 16 * 64);
    }

    #[test]
    fn a_growing_solution_is_told_before_anything_is_timed() {
        let n = 4000usize;
        let (mut ptr, mut idx, mut values) = (vec![0u32], Vec::new(), Vec::new());
        for i in 0..n as u32 {
            if i > 0 {
                idx.push(i - 1);
                values.push(3.0f64);
            }
            idx.push(i);
            values.push(1.0);
            ptr.push(idx.len() as u32);
        }
        let csr = Csr::new(n, n, ptr, idx, values).unwrap();
        let triangle = Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).unwrap();
        assert!(Problem::new("growing", triangle, Factor::None).unwrap_err().to_string().contains("not finite"));
    }

    #[test]
    fn a_product_keeps_what_rounding_loses() {
        let mut sum = Twice(1.0, 0.0);
        sum.subtract(1.0 + f64::EPSILON, 1.0 - f64::EPSILON);
        assert_eq!(sum.0 + sum.1, f64::EPSILON * f64::EPSILON);
    }
}
