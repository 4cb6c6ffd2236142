//! A plate with a round hole, held at its left edge and pulled at its right: bilinear elements, plane stress.
//!
//! The solver is told the coordinates of the points, so algebraic multigrid knows the rigid body motions, and CG needs
//! few iterations. The picture shows the von Mises stress, which is largest beside the hole.
//!
//! ```sh
//! cargo run --release -p spandrel --example elasticity -- elasticity.png
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};

use spandrel::any::Choice;
use spandrel::{Csr, Result, Solution, Solver, Triplets};

mod picture;

/// The element matrix: 8 by 8, two displacements for each of four corners.
type Local = [[f64; 8]; 8];
/// The corners of a cell, in the order of its shape functions.
const CORNERS: [[usize; 2]; 4] = [[0, 0], [1, 0], [1, 1], [0, 1]];

/// A square plate of `n` by `n` cells with Young's modulus 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plate {
    pub(crate) n: usize,
    /// Poisson's ratio.
    pub(crate) ratio: f64,
    /// The radius of the hole in the middle, in sides of the plate.
    pub(crate) hole: f64,
}

/// The displacements and what follows from them.
#[derive(Debug)]
pub(crate) struct Bent {
    pub(crate) solution: Solution<f64>,
    /// The von Mises stress in the middle of each cell, x fastest; 0 in the hole.
    pub(crate) stress: Vec<f64>,
}

impl Plate {
    /// Stresses (xx, yy, xy) from strains.
    fn stresses(&self, [xx, yy, xy]: [f64; 3]) -> [f64; 3] {
        let stiff = 1.0 / (1.0 - self.ratio * self.ratio);
        [stiff * (xx + self.ratio * yy), stiff * (yy + self.ratio * xx), 0.5 * (1.0 - self.ratio) * stiff * xy]
    }

    /// Strains (xx, yy, xy) of a cell at (s, t) in [0, 1]^2, per displacement of a corner.
    fn strains(&self, s: f64, t: f64) -> [[f64; 3]; 8] {
        let n = self.n as f64;
        let mut all = [[0.0; 3]; 8];
        for (corner, [right, up]) in CORNERS.into_iter().enumerate() {
            let (along, across) = (if right == 1 { s } else { 1.0 - s }, if up == 1 { t } else { 1.0 - t });
            let slope = |side: usize| if side == 1 { n } else { -n };
            let (dx, dy) = (slope(right) * across, slope(up) * along);
            (all[2 * corner], all[2 * corner + 1]) = ([dx, 0.0, dy], [0.0, dy, dx]);
        }
        all
    }

    /// The matrix of a cell, by two points of Gauss per axis. It is the same for all.
    fn local(&self) -> Local {
        let (at, mut local) = ([0.5 - 0.75f64.sqrt() / 3.0, 0.5 + 0.75f64.sqrt() / 3.0], [[0.0; 8]; 8]);
        let weight = 0.25 / (self.n * self.n) as f64;
        for (s, t) in at.into_iter().flat_map(|s| at.map(|t| (s, t))) {
            let strains = self.strains(s, t);
            let stresses = strains.map(|strain| self.stresses(strain));
            for (row, strain) in local.iter_mut().zip(&strains) {
                for (entry, stress) in row.iter_mut().zip(&stresses) {
                    *entry += weight * strain.iter().zip(stress).map(|(a, b)| a * b).sum::<f64>();
                }
            }
        }
        local
    }

    fn is_solid(&self, x: usize, y: usize) -> bool {
        let middle = |cell: usize| (cell as f64 + 0.5) / self.n as f64 - 0.5;
        middle(x).hypot(middle(y)) >= self.hole
    }

    fn cells(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = (0..self.n * self.n).map(|k| (k % self.n, k / self.n));
        all.filter(|&(x, y)| self.is_solid(x, y))
    }

    /// The number of each free point; points at the left edge and in the hole have none.
    pub(crate) fn numbers(&self) -> Vec<Option<usize>> {
        let side = self.n + 1;
        let mut used = vec![false; side * side];
        for (x, y) in self.cells() {
            CORNERS.iter().for_each(|[right, up]| used[(y + up) * side + x + right] = true);
        }
        let mut numbers = 0..;
        let mut number = |(point, used): (usize, bool)| if used && point % side > 0 { numbers.next() } else { None };
        used.into_iter().enumerate().map(&mut number).collect()
    }

    /// The matrix, the load, and the coordinates of the free points.
    pub(crate) fn assemble(&self, numbers: &[Option<usize>]) -> Result<(Csr<f64>, Vec<f64>, Vec<f64>)> {
        let (side, local) = (self.n + 1, self.local());
        let free = numbers.iter().flatten().count();
        let mut entries = Triplets::new(2 * free, 2 * free)?;
        let mut load = vec![0.0; 2 * free];
        for (x, y) in self.cells() {
            let unknowns: [Option<usize>; 8] = std::array::from_fn(|k| {
                let [right, up] = CORNERS[k / 2];
                numbers[(y + up) * side + x + right].map(|point| 2 * point + k % 2)
            });
            for (row, values) in unknowns.iter().zip(&local) {
                for (column, &value) in unknowns.iter().zip(values) {
                    if let (&Some(row), &Some(column)) = (row, column) {
                        entries.push(row, column, value)?;
                    }
                }
            }
            // A pull of 1 on the right edge, half of each cell's share at either corner.
            if x + 1 == self.n {
                [unknowns[2], unknowns[4]].into_iter().flatten().for_each(|k| load[k] += 0.5 / self.n as f64);
            }
        }
        let place = |point: usize| [point % side, point / side].map(|k| k as f64 / self.n as f64);
        let free = numbers.iter().enumerate().filter(|(_, number)| number.is_some());
        Ok((entries.to_csr()?, load, free.flat_map(|(point, _)| place(point)).collect()))
    }

    /// Bends the plate.
    pub(crate) fn bend(&self, device: Choice) -> Result<Bent> {
        let numbers = self.numbers();
        let (a, load, coordinates) = self.assemble(&numbers)?;
        let mut solver = Solver::builder().device(device).coordinates(coordinates, 2).rtol(1e-10).build(a)?;
        let solution = solver.solve(&load)?.require_converged()?;
        let (side, x) = (self.n + 1, &solution.x);
        let mut stress = vec![0.0; self.n * self.n];
        for (cx, cy) in self.cells() {
            let mut strain = [0.0; 3];
            for (k, part) in self.strains(0.5, 0.5).iter().enumerate() {
                let [right, up] = CORNERS[k / 2];
                let moved = numbers[(cy + up) * side + cx + right].map_or(0.0, |point| x[2 * point + k % 2]);
                strain.iter_mut().zip(part).for_each(|(sum, part)| *sum += moved * part);
            }
            let [xx, yy, xy] = self.stresses(strain);
            stress[cy * self.n + cx] = (xx * xx - xx * yy + yy * yy + 3.0 * xy * xy).sqrt();
        }
        Ok(Bent { solution, stress })
    }
}

/// Draws a plate without a hole and one with it, at stresses from 0 to 3.
pub(crate) fn draw(device: Choice, path: &Path) -> std::result::Result<Bent, Box<dyn Error>> {
    let (n, ratio) = (180, 0.3);
    let whole = Plate { n, ratio, hole: 0.0 }.bend(device)?;
    let bent = Plate { n, ratio, hole: 0.2 }.bend(device)?;
    picture::write(path, &[whole.stress, bent.stress.clone()], n, 2, (0.0, 3.0))?;
    Ok(bent)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("elasticity.png"), PathBuf::from);
    let Bent { solution, stress, .. } = draw(Choice::Auto, &path)?;
    let most = stress.iter().copied().fold(0.0, f64::max);
    println!(
        "{} unknowns, {} iterations; the largest stress is {most:.2}",
        solution.x.len(),
        solution.outcome.iterations
    );
    println!("picture: {}", path.display());
    Ok(())
}
