//! Moves of a vector between the grids of a [`Coarsening`], one line along x at a time.
//!
//! Order: along z first, then y, then x, each from +0 by ascending coordinate; every term is a weight times a value,
//! and nothing is fused. Weights are 1 and 1/2, so only additions round. Cost: a line of P^T r reads up to nine lines,
//! and a line of P e up to four.

use super::Coarsening;
use super::axis::Mode;
use crate::Real;
use crate::fused::fused;

/// Terms along an axis: points with weights, ascending. The last ones may be missing.
type Terms<T> = [Option<(usize, T)>; 3];

impl Coarsening {
    /// One line of P^T r, along x at the coarse y and z: sums along z first, then y, then x, each from +0 over the fine
    /// points by coordinate. `r` has the order of the fine points, and `out` one element per coarse x.
    ///
    /// # Panics
    /// If a slice is too short, or the line is not on the grid.
    pub fn restrict_line<T: Real>(&self, r: &[T], [y, z]: [usize; 2], work: &mut [Vec<T>; 2], out: &mut [T]) {
        let [nx, ny, _] = self.fine;
        let line = |y: usize, z: usize| &r[nx * (y + ny * z)..nx * (y + ny * z + 1)];
        let along_y = sum_lines(nx, [self.children(1, y), self.children(2, z)], line, work);
        if self.halved[0] { halve(along_y, out) } else { weighted([T::one()], [along_y], out) }
    }

    /// Adds one line of P e to `x`, along x at the fine y and z: sums along z first, then y, then x, each from +0 over
    /// the coarse points by coordinate. `e` has the order of the coarse points, and `x` one element per fine x.
    ///
    /// # Panics
    /// As [`Coarsening::restrict_line`].
    pub fn prolong_line<T: Real>(&self, e: &[T], [y, z]: [usize; 2], work: &mut [Vec<T>; 2], x: &mut [T]) {
        let [cx, cy, _] = self.coarse();
        let line = |y: usize, z: usize| &e[cx * (y + cy * z)..cx * (y + cy * z + 1)];
        let along_y = sum_lines(cx, [terms(self.parents(1, y)), terms(self.parents(2, z))], line, work);
        if self.halved[0] { add_between(along_y, x) } else { add(along_y, x) }
    }

    /// The fine points that are summed to a coarse one along an axis.
    fn children<T: Real>(&self, axis: usize, row: usize) -> Terms<T> {
        let along = self.axes(Mode::Both)[axis];
        terms(along.children().iter().filter_map(|&child| along.child(row, child)))
    }
}

fn terms<T: Real>(mut found: impl Iterator<Item = (usize, f64)>) -> Terms<T> {
    std::array::from_fn(|_| found.next().map(|(at, weight)| (at, T::from_f64(weight))))
}

/// Sums lines of `len` points: along z (the second axis), then y.
fn sum_lines<'w, 'a, T: Real>(
    len: usize,
    [ys, zs]: [Terms<T>; 2],
    line: impl Fn(usize, usize) -> &'a [T],
    [along_z, along_y]: &'w mut [Vec<T>; 2],
) -> &'w [T] {
    along_z.resize(3 * len, T::zero());
    along_y.resize(len, T::zero());
    let rooms = along_z.chunks_exact_mut(len.max(1));
    for ((y, _), to) in ys.iter().flatten().zip(rooms) {
        sum(zs.map(|term| term.map(|(z, weight)| (line(*y, z), weight))), to);
    }
    let mut sums = along_z.chunks_exact(len.max(1));
    sum(ys.map(|term| term.and_then(|(_, weight)| Some((sums.next()?, weight)))), along_y);
    along_y
}

/// Writes the weighted sum of one to three lines.
fn sum<T: Real>(terms: [Option<(&[T], T)>; 3], to: &mut [T]) {
    match terms {
        [Some((a, u)), Some((b, v)), Some((c, w))] => weighted([u, v, w], [a, b, c], to),
        [Some((a, u)), Some((b, v)), None] => weighted([u, v], [a, b], to),
        [Some((a, u)), None, _] => weighted([u], [a], to),
        [None, ..] => to.fill(T::zero()),
    }
}

fused! {
    /// Writes the weighted sum of `N` lines, from +0 one line after the other.
    fn weighted<T: Real, const N: usize>(weights: [T; N], lines: [&[T]; N], to: &mut [T]) {
        let lines = lines.map(|line| &line[..to.len()]);
        for (at, to) in to.iter_mut().enumerate() {
            let mut sum = T::zero();
            for (&weight, line) in weights.iter().zip(&lines) {
                sum += weight * line[at];
            }
            *to = sum;
        }
    }

    /// Sums the points 2 k, 2 k + 1 and 2 k + 2 to point k, with weights 1/2, 1 and 1/2.
    fn halve<T: Real>(from: &[T], to: &mut [T]) {
        let half = T::from_f64(0.5);
        let (pairs, after) = from.as_chunks::<2>();
        let Some((&[before, at], Some(last))) = pairs.last().map(|pair| (pair, to.get_mut(pairs.len() - 1))) else {
            return;
        };
        // An axis of even extent ends with a coarse point.
        *last = (T::zero() + half * before) + at;
        if let Some(&after) = after.first() {
            *last += half * after;
        }
        for (to, two) in to.iter_mut().zip(pairs.windows(2)) {
            let ([before, at], [after, _]) = (two[0], two[1]);
            *to = ((T::zero() + half * before) + at) + half * after;
        }
    }

    /// Adds the values of coarse points to the fine ones: point k to 2 k + 1, and the mean of two points to the one
    /// between them. Values outside the grid count as zero.
    fn add_between<T: Real>(from: &[T], to: &mut [T]) {
        let half = T::from_f64(0.5);
        let (Some(&first), Some(&last)) = (from.first(), from.last()) else { return };
        let count = from.len();
        to[0] += T::zero() + half * first;
        let (pairs, _) = to[1..].as_chunks_mut::<2>();
        for (pair, two) in pairs.iter_mut().zip(from.windows(2)) {
            pair[0] += T::zero() + two[0];
            pair[1] += (T::zero() + half * two[0]) + half * two[1];
        }
        to[2 * count - 1] += T::zero() + last;
        if let Some(to) = to.get_mut(2 * count) {
            *to += T::zero() + half * last;
        }
    }

    /// Adds a line to another.
    fn add<T: Real>(from: &[T], to: &mut [T]) {
        to.iter_mut().zip(from).for_each(|(to, &v)| *to += T::zero() + v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of [`Coarsening::restrict_line`] and [`Coarsening::prolong_line`], term by term.
    fn term_by_term(to: &Coarsening, r: &[f64], e: &[f64], x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (fine, coarse) = (to.fine(), to.coarse());
        let index = |size: [usize; 3], [px, py, pz]: [usize; 3]| px + size[0] * (py + size[1] * pz);
        let all = |size: [usize; 3]| {
            let n: usize = size.iter().product();
            (0..n).map(move |at| [at % size[0], at / size[0] % size[1], at / size[0] / size[1]])
        };
        let summed = |from: &dyn Fn(usize, usize) -> Vec<(usize, f64)>,
                      [px, py, pz]: [usize; 3],
                      value: &dyn Fn([usize; 3]) -> f64| {
            let mut sum = 0.0;
            for (qx, wx) in from(0, px) {
                let mut along_y = 0.0;
                for (qy, wy) in from(1, py) {
                    let mut along_z = 0.0;
                    for (qz, wz) in from(2, pz) {
                        along_z += wz * value([qx, qy, qz]);
                    }
                    along_y += wy * along_z;
                }
                sum += wx * along_y;
            }
            sum
        };
        let parents = |axis: usize, point: usize| to.parents(axis, point).collect();
        let children = |axis: usize, row: usize| {
            let points = 0..fine[axis];
            let weight = |point: usize| to.parents(axis, point).find(|parent| parent.0 == row).map(|of| (point, of.1));
            points.filter_map(weight).collect()
        };
        let s = all(coarse).map(|at| summed(&children, at, &|of| r[index(fine, of)]));
        let moved = all(fine).map(|at| x[index(fine, at)] + summed(&parents, at, &|of| e[index(coarse, of)]));
        (s.collect(), moved.collect())
    }

    #[test]
    fn moves_have_the_bits_of_sums_term_by_term() {
        // Numbers that no sum keeps exactly, and zeros of both signs.
        let number = |at: usize| match at % 7 {
            0 => -0.0,
            3 => 0.0,
            _ => ((at * 7919 % 1009) as f64 - 500.0) / 3.0,
        };
        for fine in [[1, 1, 1], [2, 1, 1], [3, 2, 1], [4, 3, 2], [7, 5, 3], [16, 9, 4], [33, 4, 5]] {
            for mask in 0..8 {
                let to = Coarsening::new(fine, std::array::from_fn(|axis| mask >> axis & 1 == 1), 1);
                let [n, nc] = [fine, to.coarse()].map(|size| size.iter().product::<usize>());
                let numbers = |len: usize, by: usize| (0..len).map(|at| number(at * by + at / 5)).collect::<Vec<f64>>();
                let (r, e, x) = (numbers(n, 3), numbers(nc, 5), numbers(n, 11));
                let (wanted_s, wanted_x) = term_by_term(&to, &r, &e, &x);
                let (mut s, mut moved, work) = (vec![f64::NAN; nc], x.clone(), &mut Default::default());
                let ([cx, cy, _], [nx, ny, _]) = (to.coarse(), fine);
                for (line, s) in s.chunks_mut(cx).enumerate() {
                    to.restrict_line(&r, [line % cy, line / cy], work, s);
                }
                for (line, moved) in moved.chunks_mut(nx).enumerate() {
                    to.prolong_line(&e, [line % ny, line / ny], work, moved);
                }
                let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&s), bits(&wanted_s), "restriction, {fine:?} {:?}", to.halved());
                assert_eq!(bits(&moved), bits(&wanted_x), "prolongation, {fine:?} {:?}", to.halved());
            }
        }
    }
}
