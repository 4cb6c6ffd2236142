//! The sweep: an exact solve on a structured grid whose schedule follows from the stencil alone.
//!
//! Rows are points of an X x Y x Z grid in natural order, r = x + X (y + Y z); a row's entries are those of one lower stencil. (An upper
//! triangle is the lower one of the mirrored grid: row r stands for n - 1 - r, offsets change sign.) With slopes (1, sigma, tau), the
//! smallest integers for which every offset has dx + sigma dy + tau dz <= -1, all points of one level x + sigma y + tau z depend on earlier
//! levels only: no dependency is looked up, neither in an analysis nor in the solve.
//!
//! Values come from the triangle's own array, where every row holds every neighbour inside the grid (`is_whole`): row starts are then a
//! closed form and indices are never read; or from index-free storage laid out by the device, where absent neighbours are stored
//! zeros. These are multiplied, as in DIA: where x holds an infinity or a NaN, or a sum is zero, rows that lack neighbours may
//! differ from [`crate::serial`] in NaNs and in the sign of a zero.
//!
//! Order: [`crate::serial`]'s.
//! Cost, index-free: |T| (stencil + 2) bytes a row for a non-unit diagonal, b and x included.
//! References: Lamport 1974, The parallel execution of DO loops (hyperplanes); Chen, Yang, Liu, Ma 2023, structured SpTRSV.

use std::sync::Arc;

use spandrel_formats::{Grid, Real};

use crate::{Diagonal, Error, Plan, Result, Systems, Triangle, Triangular};

/// A grid and the lower stencil on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice {
    size: [usize; 3],
    offsets: Vec<[i32; 3]>,
    whole: bool,
}

impl Lattice {
    /// X, Y, Z.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }
    /// The stencil off the diagonal, lower, ascending by (dz, dy, dx): the order of a row's columns, and of its sum.
    pub fn offsets(&self) -> &[[i32; 3]] {
        &self.offsets
    }
    /// Whether each row holds every neighbour inside the grid.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
    /// The smallest slopes (sigma, tau) for which every offset has dx + sigma dy + tau dz <= -`apart` where it leaves the line:
    /// points of a level depend on levels at least so many before, but for those of their own line.
    pub fn slopes(&self, apart: usize) -> (usize, usize) {
        let apart = apart.max(1) as i64;
        let need = |numerator: i64, lines: i32| {
            (numerator.div_euclid(i64::from(lines)) + i64::from(numerator.rem_euclid(i64::from(lines)) > 0)).max(0)
        };
        let sigma = self
            .offsets
            .iter()
            .filter(|o| o[2] == 0 && o[1] < 0)
            .map(|o| need(i64::from(o[0]) + apart, -o[1]))
            .max()
            .unwrap_or(0);
        let plane = |o: &[i32; 3]| need(i64::from(o[0]) + sigma * i64::from(o[1]) + apart, -o[2]);
        let tau = self.offsets.iter().filter(|o| o[2] < 0).map(plane).max().unwrap_or(0);
        (sigma as usize, tau as usize)
    }
    /// Number of levels x + sigma y + tau z.
    pub fn levels(&self) -> usize {
        let (sigma, tau) = self.slopes(1);
        let [x, y, z] = self.size;
        if x * y * z == 0 { 0 } else { x + sigma * (y - 1) + tau * (z - 1) }
    }
}

/// The plan of the sweep. See the module's head.
#[derive(Clone, Debug)]
pub struct Sweep<T> {
    matrix: Arc<Triangular<T>>,
    lattice: Arc<Lattice>,
    systems: Systems,
}

impl<T: Real> Sweep<T> {
    /// Plans for a triangle on a grid that the caller knows; every row is checked.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the grid has as many points as the triangle rows; [`Error::NotAGrid`] for an offset that is not lower;
    /// [`Error::OutsideStencil`] with the first such entry.
    pub fn on_grid(
        matrix: Arc<Triangular<T>>,
        size: [usize; 3],
        offsets: &[[i32; 3]],
        systems: Systems,
    ) -> Result<Self> {
        let n = matrix.nrows();
        let points = size.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
        if points != Some(n) {
            return Err(Error::Shape { what: "the grid", found: points.unwrap_or(usize::MAX), expected: n });
        }
        let lower = |o: &[i32; 3]| (o[2], o[1], o[0]) < (0, 0, 0);
        if let Some(offset) = offsets.iter().find(|o| !lower(o)) {
            return Err(Error::NotAGrid { plan: Self::NAME, why: format!("the offset {offset:?} is not lower") });
        }
        let mut offsets = offsets.to_vec();
        offsets.sort_unstable_by_key(|&[dx, dy, dz]| (dz, dy, dx));
        offsets.dedup();
        let whole = verify(&matrix, size, &offsets)?;
        Ok(Self { matrix, lattice: Arc::new(Lattice { size, offsets, whole }), systems })
    }

    /// The grid and its stencil.
    pub fn lattice(&self) -> &Arc<Lattice> {
        &self.lattice
    }
}

/// Whether every row holds every neighbour inside the grid, once every entry is one of the stencil.
fn verify<T: Real>(matrix: &Triangular<T>, size: [usize; 3], offsets: &[[i32; 3]]) -> Result<bool> {
    let n = matrix.nrows();
    let [nx, ny, nz] = size.map(|extent| extent as i64);
    let mirrored = matrix.triangle() == Triangle::Upper;
    let mut whole = true;
    for r in 0..n {
        let row = if mirrored { n - 1 - r } else { r };
        let (x, y, z) = (r as i64 % nx, r as i64 / nx % ny, r as i64 / nx / ny);
        let (cols, _) = matrix.off_diagonal(row);
        let mut at = 0;
        for k in 0..cols.len() {
            // Ascending in the lower triangle that this row stands for.
            let col = if mirrored { cols[cols.len() - 1 - k] } else { cols[k] } as usize;
            let c = if mirrored { n - 1 - col } else { col } as i64;
            let inside = |o: &[i32; 3]| {
                let (x, y, z) = (x + i64::from(o[0]), y + i64::from(o[1]), z + i64::from(o[2]));
                ((0..nx).contains(&x) && (0..ny).contains(&y) && (0..nz).contains(&z)).then(|| x + nx * (y + ny * z))
            };
            loop {
                match offsets.get(at).map(inside) {
                    None => return Err(Error::OutsideStencil { row, col }),
                    Some(Some(column)) if column == c => break,
                    Some(Some(column)) if column > c => return Err(Error::OutsideStencil { row, col }),
                    Some(Some(_)) => whole = false,
                    Some(None) => {}
                }
                at += 1;
            }
            at += 1;
        }
        if whole {
            let inside = |o: &[i32; 3]| {
                (0..nx).contains(&(x + i64::from(o[0])))
                    && (0..ny).contains(&(y + i64::from(o[1])))
                    && (0..nz).contains(&(z + i64::from(o[2])))
            };
            whole = !offsets[at..].iter().any(inside);
        }
    }
    Ok(whole)
}

impl<T: Real> Plan for Sweep<T> {
    type Value = T;
    const NAME: &'static str = "sweep";

    /// Recognises the grid.
    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        let grid =
            Grid::detect(matrix.csr()).map_err(|why| Error::NotAGrid { plan: Self::NAME, why: why.to_string() })?;
        let sign = if matrix.triangle() == Triangle::Upper { -1 } else { 1 };
        let offsets: Vec<[i32; 3]> =
            grid.offsets.iter().filter(|&&o| o != [0; 3]).map(|o| o.map(|d| sign * d)).collect();
        Self::on_grid(matrix, grid.size, &offsets, systems)
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        &self.matrix
    }
    fn systems(&self) -> Systems {
        self.systems
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        Arc::make_mut(&mut self.matrix).set_values(values)
    }
    fn storage(&self) -> u64 {
        let unit = usize::from(self.matrix.diagonal() == Diagonal::NonUnit);
        (T::BYTES * self.matrix.nrows() * (self.lattice.offsets.len() + unit)) as u64
    }
    fn sptrsv_bytes(&self) -> u64 {
        self.storage() + (2 * T::BYTES * self.matrix.nrows()) as u64
    }
}
