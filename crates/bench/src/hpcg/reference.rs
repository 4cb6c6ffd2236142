//! HPCG's problem and its reference algorithm in a small and plain form: loops over CSR on one host thread, in natural
//! order.
//!
//! It checks ours, so it shares with it only the storage of a matrix: a symmetric Gauss-Seidel step over all of A, a
//! product for the residual, injection, CG.
//!
//! Reference: Dongarra, Heroux, Luszczek, HPCG benchmark, 2015.

use spandrel_formats::{Csr, generate};

/// Grids of HPCG's cycle.
pub(super) const LEVELS: usize = 4;

/// The matrices, finest first, each with half the points of the previous grid along every axis; b = A 1.
pub(super) struct Problem {
    pub(super) size: [usize; 3],
    pub(super) operators: Vec<Csr<f64>>,
    pub(super) b: Vec<f64>,
}

impl Problem {
    /// 27 points, 26 on the diagonal, -1 beside it.
    ///
    /// # Errors
    /// A matrix that does not fit.
    pub(super) fn new(size: [usize; 3]) -> spandrel_formats::Result<Self> {
        let spec = |level: usize| format!("d3n27:{}x{}x{}", size[0] >> level, size[1] >> level, size[2] >> level);
        let operators = (0..LEVELS).map(|level| generate::csr(&spec(level))).collect::<Result<Vec<Csr<f64>>, _>>()?;
        let b = (0..operators[0].nrows()).map(|i| operators[0].row(i).1.iter().sum()).collect();
        Ok(Self { size, operators, b })
    }

    /// The operations of `iterations` iterations of one solve by HPCG's count (ReportResults.cpp of version 3.1). An
    /// iteration has three dot products and three vector updates of 2 n, and a product of 2 nnz. Each grid except the
    /// coarsest adds 4 nnz per smoother step and 2 nnz for the residual; the coarsest adds one step of 4 nnz. Before
    /// the iterations there is one of each of the first three.
    pub(super) fn flops(&self, iterations: f64) -> f64 {
        let (k, n) = (iterations, self.b.len() as f64);
        let entries: Vec<f64> = self.operators.iter().map(|a| a.nnz() as f64).collect();
        let (fine, coarsest) = (&entries[..LEVELS - 1], entries[LEVELS - 1]);
        let cycle = fine.iter().map(|nnz| (4.0 + 2.0 + 4.0) * nnz).sum::<f64>() + 4.0 * coarsest;
        2.0 * (3.0 * k + 1.0) * 2.0 * n + (k + 1.0) * 2.0 * entries[0] + k * cycle
    }

    /// ||r|| / ||b|| before the first and after each of `iterations` iterations of CG from x = 0.
    pub(super) fn cg(&self, iterations: usize) -> Vec<f64> {
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let n = self.b.len();
        let (mut r, mut p, mut q, mut z) = (self.b.clone(), vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let b_norm = dot(&r, &r).sqrt();
        let (mut history, mut before) = (vec![1.0], 0.0);
        for k in 0..iterations {
            self.cycle(0, &r, &mut z);
            let rz = dot(&r, &z);
            let beta = if k == 0 { 0.0 } else { rz / before };
            p.iter_mut().zip(&z).for_each(|(p, z)| *p = z + beta * *p);
            multiply(&self.operators[0], &p, &mut q);
            let alpha = rz / dot(&p, &q);
            r.iter_mut().zip(&q).for_each(|(r, q)| *r -= alpha * q);
            before = rz;
            history.push(dot(&r, &r).sqrt() / b_norm);
        }
        history
    }

    /// x <- M^-1 r on a grid.
    fn cycle(&self, level: usize, r: &[f64], x: &mut [f64]) {
        let a = &self.operators[level];
        x.fill(0.0);
        step(a, r, x);
        let Some(coarse) = self.operators.get(level + 1) else { return };
        let mut ax = vec![0.0; r.len()];
        multiply(a, x, &mut ax);
        let fine: Vec<usize> = (0..coarse.nrows()).map(|point| self.finer(level, point)).collect();
        let rc: Vec<f64> = fine.iter().map(|&i| r[i] - ax[i]).collect();
        let mut xc = vec![0.0; rc.len()];
        self.cycle(level + 1, &rc, &mut xc);
        fine.iter().zip(&xc).for_each(|(&i, e)| x[i] += e);
        step(a, r, x);
    }

    /// The point of a grid at the place of a point of the next grid.
    fn finer(&self, level: usize, point: usize) -> usize {
        let [nx, ny, _] = self.size.map(|extent| extent >> level);
        let (x, y, z) = (point % (nx / 2), point / (nx / 2) % (ny / 2), point / (nx / 2) / (ny / 2));
        2 * x + nx * (2 * y + ny * 2 * z)
    }
}

fn multiply(a: &Csr<f64>, x: &[f64], y: &mut [f64]) {
    for (i, y) in y.iter_mut().enumerate() {
        let (cols, values) = a.row(i);
        *y = cols.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum();
    }
}

/// One symmetric Gauss-Seidel step: rows forwards, then backwards.
fn step(a: &Csr<f64>, r: &[f64], x: &mut [f64]) {
    let mut relax = |i: usize| {
        let (cols, values) = a.row(i);
        let (mut sum, mut diagonal) = (r[i], 1.0);
        for (&j, v) in cols.iter().zip(values) {
            match j as usize == i {
                true => diagonal = *v,
                false => sum -= v * x[j as usize],
            }
        }
        x[i] = sum / diagonal;
    };
    (0..r.len()).for_each(&mut relax);
    (0..r.len()).rev().for_each(&mut relax);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problem_is_hpcgs() {
        let problem = Problem::new([16, 16, 16]).unwrap();
        // (3 k - 2)^3 entries for k points per axis.
        let entries: Vec<usize> = problem.operators.iter().map(|a| a.nnz()).collect();
        assert_eq!(entries, [46 * 46 * 46, 22 * 22 * 22, 10 * 10 * 10, 4 * 4 * 4]);
        assert_eq!((problem.b[0], problem.b[1 + 16 + 256]), (26.0 - 7.0, 0.0));
        assert_eq!((problem.finer(0, 1 + 8 + 64), problem.finer(2, 1)), (2 + 32 + 512, 2));
        let (n, [a, b, c, d]) = (4096.0, [97336.0, 10648.0, 1000.0, 64.0]);
        let by_hand = 50.0 * (12.0 * n + 2.0 * a + 10.0 * (a + b + c) + 4.0 * d) + 4.0 * n + 2.0 * a;
        assert_eq!(problem.flops(50.0), by_hand);
    }

    #[test]
    fn the_reference_converges() {
        let history = Problem::new([16, 16, 16]).unwrap().cg(12);
        assert!(history.windows(2).all(|pair| pair[1] < pair[0]) && history[12] < 1e-7, "{history:?}");
    }
}
