//! CG, BiCGStab and GMRES as plain loops over host vectors, without segments, monitors or fusion.
//!
//! Order: every sum is [`tree_dot`] or [`stored`], and every update one `fma` per term as the contract says. So a
//! backend whose product and triangular solves have the stored order has the same x, bit for bit. GMRES uses modified
//! Gram-Schmidt with the preconditioner on the right, and Givens rotations in f64.
//!
//! Limits: x begins as 0, b is in the range in which solvers do not scale, and there is no breakdown and no restart,
//! except those of GMRES. Other systems have no answer here.
//!
//! Reference: those of the solvers.

use spandrel_formats::{Csr, Real};

use crate::reference::{finish, stored, tree_dot};

/// x and the number of iterations; `None` if the limit came first.
pub type Answer<T> = Option<(Vec<T>, usize)>;

/// A system with its preconditioner, z = M^-1 r.
pub struct System<'a, T> {
    /// A, square.
    pub a: &'a Csr<T>,
    /// M^-1, or `None` for no preconditioner.
    pub m: Option<&'a dyn Fn(&[T]) -> Vec<T>>,
    /// b.
    pub b: &'a [T],
    /// Converged if the residual norm is at most this times that of b.
    pub rtol: f64,
    /// The limit of iterations.
    pub limit: usize,
}

impl<T> std::fmt::Debug for System<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("rtol", &self.rtol).finish_non_exhaustive()
    }
}

fn norm<T: Real>(v: &[T]) -> f64 {
    tree_dot(v, v).sqrt().as_f64()
}

/// y <- fma(a, x, b y).
fn axpby<T: Real>(a: T, x: &[T], b: T, y: &mut [T]) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = finish(a, x, b, *y));
}

impl<T: Real> System<'_, T> {
    fn product(&self, x: &[T]) -> Vec<T> {
        let row = |i| {
            let (cols, values) = self.a.row(i);
            stored(values.iter().zip(cols).map(|(&v, &j)| (v, x[j as usize])))
        };
        (0..self.a.nrows()).map(row).collect()
    }

    /// b - A x.
    fn residual(&self, x: &[T]) -> Vec<T> {
        let product = self.product(x);
        self.b.iter().zip(product).map(|(&b, p)| finish(-T::one(), p, T::one(), b)).collect()
    }

    fn precondition(&self, r: &[T]) -> Vec<T> {
        self.m.map_or_else(|| r.to_vec(), |m| m(r))
    }

    fn goal(&self) -> f64 {
        self.rtol * norm(self.b)
    }

    /// Conjugate gradients.
    pub fn cg(&self) -> Answer<T> {
        let mut x = vec![T::zero(); self.b.len()];
        let mut r = self.residual(&x);
        let mut p = self.precondition(&r);
        let mut rz = tree_dot(&r, &p);
        for done in 1..=self.limit {
            let q = self.product(&p);
            let alpha = rz / tree_dot(&p, &q);
            axpby(alpha, &p, T::one(), &mut x);
            axpby(-alpha, &q, T::one(), &mut r);
            if norm(&r) <= self.goal() {
                return Some((x, done));
            }
            let z = self.precondition(&r);
            let next = tree_dot(&r, &z);
            axpby(T::one(), &z, next / rz, &mut p);
            rz = next;
        }
        None
    }

    /// BiCGStab; an iteration that ends after its first half counts as one.
    pub fn bicgstab(&self) -> Answer<T> {
        let mut x = vec![T::zero(); self.b.len()];
        let mut r = self.residual(&x);
        let (shadow, mut p) = (r.clone(), r.clone());
        let mut rho = tree_dot(&shadow, &r);
        for done in 1..=self.limit {
            let p_hat = self.precondition(&p);
            let v = self.product(&p_hat);
            let rv = tree_dot(&shadow, &v);
            let alpha = rho / rv;
            axpby(-alpha, &v, T::one(), &mut r);
            if norm(&r) <= self.goal() {
                axpby(alpha, &p_hat, T::one(), &mut x);
                return Some((x, done));
            }
            let s_hat = self.precondition(&r);
            let t = self.product(&s_hat);
            let (ts, tt) = (tree_dot(&r, &t), tree_dot(&t, &t));
            let omega = ts / tt;
            axpby(omega, &s_hat, T::one(), &mut x);
            axpby(alpha, &p_hat, T::one(), &mut x);
            axpby(-omega, &t, T::one(), &mut r);
            let next = tree_dot(&shadow, &r);
            if norm(&r) <= self.goal() {
                return Some((x, done));
            }
            let step = next / rv;
            let beta = step * (tt / ts);
            axpby(-step, &v, beta, &mut p);
            axpby(T::one(), &r, T::one(), &mut p);
            rho = next;
        }
        None
    }

    /// GMRES with cycles of `m` steps.
    pub fn gmres(&self, m: usize) -> Answer<T> {
        let n = self.b.len();
        let mut x = vec![T::zero(); n];
        let mut done = 0;
        loop {
            let r = self.residual(&x);
            let beta = tree_dot(&r, &r).sqrt();
            if beta.as_f64() <= self.goal() {
                return Some((x, done));
            }
            let unit = |w: &[T], h: T| -> Vec<T> { w.iter().map(|&w| (T::one() / h) * w).collect() };
            let mut basis = vec![unit(&r, beta)];
            let (mut columns, mut rotations, mut g) = (Vec::new(), Vec::<(f64, f64)>::new(), vec![beta.as_f64()]);
            while columns.len() < m.min(n) && done < self.limit {
                let j = columns.len();
                let mut w = self.product(&self.precondition(&basis[j]));
                let mut h: Vec<f64> = Vec::new();
                for v in &basis {
                    let part = tree_dot(v, &w);
                    axpby(-part, v, T::one(), &mut w);
                    h.push(part.as_f64());
                }
                let last = tree_dot(&w, &w).sqrt();
                h.push(last.as_f64());
                basis.push(unit(&w, last));
                for (i, (c, s)) in rotations.iter().enumerate() {
                    (h[i], h[i + 1]) = (c * h[i] + s * h[i + 1], c * h[i + 1] - s * h[i]);
                }
                let diagonal = h[j].hypot(h[j + 1]);
                let (c, s) = (h[j] / diagonal, h[j + 1] / diagonal);
                h[j] = diagonal;
                rotations.push((c, s));
                let before = g[j];
                g[j] = c * before;
                g.push(-s * before);
                columns.push(h);
                done += 1;
                if (s * before).abs() <= self.goal() {
                    break;
                }
            }
            let k = columns.len();
            if k == 0 {
                return None;
            }
            let mut y = g[..k].to_vec();
            for j in (0..k).rev() {
                y[j] /= columns[j][j];
                let last = y[j];
                (0..j).for_each(|i| y[i] -= last * columns[j][i]);
            }
            let mut w = vec![T::zero(); n];
            // Two at a time: w + d v' is rounded before c v is added.
            for (pair, y) in basis[..k].chunks(2).zip(y.chunks(2)) {
                if let [_, second] = pair {
                    axpby(T::from_f64(y[1]), second, T::one(), &mut w);
                }
                axpby(T::from_f64(y[0]), &pair[0], T::one(), &mut w);
            }
            axpby(T::one(), &self.precondition(&w), T::one(), &mut x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_on_an_answer() {
        let a = crate::generated("poisson2d:7x5").expect("a generator");
        let exact: Vec<f64> = (0..35).map(|i| f64::from(i % 6) - 2.0).collect();
        let b: Vec<f64> =
            (0..35).map(|i| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * exact[j as usize]).sum()).collect();
        let half = |r: &[f64]| -> Vec<f64> { r.iter().map(|r| 0.25 * r).collect() };
        for m in [None, Some(&half as &dyn Fn(&[f64]) -> Vec<f64>)] {
            let system = System { a: &a, m, b: &b, rtol: 1e-12, limit: 200 };
            for answer in [system.cg(), system.bicgstab(), system.gmres(40), system.gmres(9)] {
                let (x, iterations) = answer.expect("an answer");
                assert!(iterations > 3 && x.iter().zip(&exact).all(|(x, e)| (x - e).abs() < 1e-9));
            }
            assert!(System { limit: 2, ..system }.gmres(40).is_none());
        }
    }
}
