//! `electrostatic`: -div(eps grad u) = 0 by linear finite elements on tetrahedra, the matrix of an unstructured mesh.
//!
//! The mesh: points of a box of unit cells, where each inner coordinate is moved by up to 0.15. Every cell is cut into
//! Kuhn's six tetrahedra (the paths from its low to its high corner), whose diagonals agree between cells. A shift of
//! at most 0.15 changes an edge by less than a sixth in the sum of rows that decides the sign of the volume, so no
//! tetrahedron turns over. Materials: relative permittivity 1, and in random balls 2.25, 3.9, 11.7 or 80 (polyethylene,
//! silica, silicon, water). Boundary: electrodes (Dirichlet, eliminated) below and above, and one inside. The inner one
//! takes the points nearest to the centre, as many as make the number of unknowns exactly n. Elsewhere the boundary is
//! natural. Unknowns are numbered at random. Symmetric positive definite; up to 15 entries per row.
//! Cost: 8 numbers per point (a node's own value and its 7 edges upwards), the jitter, the numbering, the matrix.
//! Reference: Kuhn, Some combinatorial lemmas in topology, 1960.

use super::fill::by_rows;
use super::random::{below, chacha, shuffled, signed, unit};
use crate::index::{Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Real, Result};

const JITTER: f64 = 0.15;
const BALLS: usize = 24;
const PERMITTIVITIES: [f64; 4] = [2.25, 3.9, 11.7, 80.0];
const FIXED: Ordinal = Ordinal::MAX;
/// The orders in which Kuhn's paths follow the axes.
const PATHS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

type Point = [f64; 3];

fn minus(a: Point, b: Point) -> Point {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn cross(a: Point, b: Point) -> Point {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The stiffness of a linear tetrahedron with eps = 1 (4 x 4, symmetric), and its volume.
fn stiffness(corners: [Point; 4]) -> ([[f64; 4]; 4], f64) {
    let [e1, e2, e3] = [1, 2, 3].map(|k| minus(corners[k], corners[0]));
    let det = dot(e1, cross(e2, e3));
    let [g1, g2, g3] = [cross(e2, e3), cross(e3, e1), cross(e1, e2)].map(|g| g.map(|c| c / det));
    let g0 = [0, 1, 2].map(|axis| -(g1[axis] + g2[axis] + g3[axis]));
    let volume = det.abs() / 6.0;
    let gradients = [g0, g1, g2, g3];
    (gradients.map(|a| gradients.map(|b| volume * dot(a, b))), volume)
}

/// The box of points. Layers 0 and `size[2] - 1` are electrodes.
struct Mesh {
    size: [usize; 3],
    points: Vec<Point>,
    /// The unknown of each point, or [`FIXED`].
    unknown: Vec<Ordinal>,
}

impl Mesh {
    fn new(n: usize, seed: u64) -> Result<Self> {
        let side = ((n as f64).cbrt() as usize).max(2);
        let layers = n.div_ceil(side * side);
        let size = [side, side, layers + 2];
        let plane = side * side;
        let total = plane * size[2];
        let mut points: Vec<Point> = zeroed(total, "mesh points")?;
        let mut rng = chacha(seed, 1);
        for (index, point) in points.iter_mut().enumerate() {
            let at = [index % side, index / side % side, index / plane];
            for axis in 0..3 {
                let inner = at[axis] > 0 && at[axis] + 1 < size[axis];
                let shift = JITTER * signed(&mut rng);
                point[axis] = at[axis] as f64 + if inner { shift } else { 0.0 };
            }
        }

        let mut free: Vec<usize> = zeroed(total - 2 * plane, "free points")?;
        free.iter_mut().zip(plane..).for_each(|(free, index)| *free = index);
        let centre = size.map(|n| (n - 1) as f64 / 2.0);
        let surplus = free.len() - n;
        if surplus > 0 {
            let distance = |&index: &usize| {
                let off = minus(points[index], centre);
                (dot(off, off), index)
            };
            free.select_nth_unstable_by(surplus - 1, |a, b| {
                distance(a).partial_cmp(&distance(b)).unwrap_or(std::cmp::Ordering::Equal)
            });
            free.drain(..surplus);
            free.sort_unstable();
        }
        let mut unknown: Vec<Ordinal> = zeroed(total, "unknowns of points")?;
        unknown.fill(FIXED);
        let order = shuffled(&mut chacha(seed, 2), n)?;
        free.iter().zip(&order).for_each(|(&index, &row)| unknown[index] = row);
        Ok(Self { size, points, unknown })
    }

    /// Difference in numbering between a point and its neighbour by `bits` (1: x, 2: y, 4: z).
    fn stride(&self, bits: usize) -> usize {
        (bits & 1) + (bits >> 1 & 1) * self.size[0] + (bits >> 2) * self.size[0] * self.size[1]
    }

    /// The diagonal entry of each point and those of the edges to its seven upper neighbours.
    fn assemble(&self, seed: u64) -> Result<Vec<[f64; 8]>> {
        let mut rng = chacha(seed, 3);
        let shortest = self.size.iter().map(|&n| n as f64).fold(f64::INFINITY, f64::min);
        let balls: Vec<(Point, f64, f64)> = (0..BALLS)
            .map(|_| {
                let centre = self.size.map(|n| unit(&mut rng) * (n - 1) as f64);
                let radius = shortest * (0.06 + 0.14 * unit(&mut rng));
                (centre, radius * radius, PERMITTIVITIES[below(&mut rng, PERMITTIVITIES.len())])
            })
            .collect();
        let permittivity = |at: Point| {
            balls.iter().rev().find(|(c, r2, _)| dot(minus(at, *c), minus(at, *c)) <= *r2).map_or(1.0, |ball| ball.2)
        };

        let [nx, ny, nz] = self.size;
        let mut edges: Vec<[f64; 8]> = zeroed(self.points.len(), "mesh edges")?;
        for cell in 0..(nx - 1) * (ny - 1) * (nz - 1) {
            let (x, line) = (cell % (nx - 1), cell / (nx - 1));
            let low = x + nx * (line % (ny - 1) + ny * (line / (ny - 1)));
            for path in PATHS {
                let bits = [0, 1 << path[0], (1 << path[0]) | (1 << path[1]), 7];
                let corners = bits.map(|b| self.points[low + self.stride(b)]);
                let centroid = [0, 1, 2].map(|axis| corners.iter().map(|c| c[axis]).sum::<f64>() / 4.0);
                let (local, _) = stiffness(corners);
                let eps = permittivity(centroid);
                for a in 0..4 {
                    for b in a..4 {
                        edges[low + self.stride(bits[a])][bits[b] & !bits[a]] += eps * local[a][b];
                    }
                }
            }
        }
        Ok(edges)
    }
}

/// Makes the matrix with `n` unknowns.
pub(super) fn build<T: Real>(n: usize, seed: u64) -> Result<Csr<T>> {
    checked(n.saturating_mul(15), "entries")?;
    let mesh = Mesh::new(n, seed)?;
    let edges = mesh.assemble(seed)?;
    let mut point_of: Vec<usize> = zeroed(n, "points of unknowns")?;
    for (index, &row) in mesh.unknown.iter().enumerate() {
        if row != FIXED {
            point_of[row as usize] = index;
        }
    }
    let neighbours = |row: usize, found: &mut Vec<(Ordinal, f64)>| {
        found.clear();
        let index = point_of[row];
        let [nx, ny, _] = mesh.size;
        let at = [index % nx, index / nx % ny, index / (nx * ny)];
        found.push((row as Ordinal, edges[index][0]));
        let upwards = 1..8usize;
        for bits in upwards {
            let stride = mesh.stride(bits);
            let moves = |axis: usize| bits >> axis & 1;
            if (0..3).all(|axis| at[axis] + moves(axis) < mesh.size[axis]) {
                found.push((mesh.unknown[index + stride], edges[index][bits]));
            }
            if (0..3).all(|axis| at[axis] >= moves(axis)) {
                found.push((mesh.unknown[index - stride], edges[index - stride][bits]));
            }
        }
        found.retain(|entry| entry.0 != FIXED);
        found.sort_unstable_by_key(|entry| entry.0);
    };
    let mut found = Vec::with_capacity(15);
    let mut starts: Vec<u64> = zeroed(n + 1, "row starts")?;
    for row in 0..n {
        neighbours(row, &mut found);
        starts[row + 1] = starts[row] + found.len() as u64;
    }
    by_rows(
        0..n,
        n,
        |row| starts[row],
        |range, out| {
            let mut found = Vec::with_capacity(15);
            for row in range {
                neighbours(row, &mut found);
                found.iter().for_each(|&(col, value)| out.push(col as usize, T::from_f64(value)));
                out.end_row();
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tetrahedra_fill_the_box_and_none_turns_over() {
        let mesh = Mesh::new(500, 3).unwrap();
        let [nx, ny, nz] = mesh.size;
        let mut total = 0.0;
        for z in 0..nz - 1 {
            for y in 0..ny - 1 {
                for x in 0..nx - 1 {
                    for path in PATHS {
                        let bits = [0, 1 << path[0], (1 << path[0]) | (1 << path[1]), 7];
                        let low = x + nx * (y + ny * z);
                        let corners = bits.map(|b| mesh.points[low + mesh.stride(b)]);
                        let [e1, e2, e3] = [1, 2, 3].map(|k| minus(corners[k], corners[0]));
                        // The orientation is the parity of the path.
                        let parity = if matches!(path, [0, 1, 2] | [1, 2, 0] | [2, 0, 1]) { 1.0 } else { -1.0 };
                        let det = parity * dot(e1, cross(e2, e3));
                        assert!(det > 0.0);
                        total += det / 6.0;
                    }
                }
            }
        }
        let whole = ((nx - 1) * (ny - 1) * (nz - 1)) as f64;
        assert!((total - whole).abs() < 1e-9 * whole, "tetrahedra overlap or leave gaps");
    }

    #[test]
    fn constants_have_no_energy_and_height_has_the_volume() {
        let (local, volume) = stiffness([[0.0; 3], [1.0, 0.1, 0.0], [0.2, 1.3, 0.0], [0.1, 0.2, 0.9]]);
        assert!(volume > 0.0);
        for row in local {
            assert!(row.iter().sum::<f64>().abs() < 1e-14);
        }
        let z = [0.0, 0.0, 0.0, 0.9];
        let energy: f64 =
            (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).map(|(a, b)| z[a] * local[a][b] * z[b]).sum();
        assert!((energy - volume).abs() < 1e-14, "the energy of u = z is the volume");
    }
}
