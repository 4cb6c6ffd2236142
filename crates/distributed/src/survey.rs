//! What the policy must know about a matrix whose rows lie on the ranks to choose method and preconditioner.

use rayon::prelude::*;
use spandrel_backend::{Join, Result};
use spandrel_formats::{Real, is_mirror_to_rounding};

use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::layout::Layout;
use crate::rows::{Column, Rows};

/// Facts of a whole matrix, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Whether it equals its transpose, exactly. An absent entry counts as zero.
    pub symmetric: bool,
    /// Whether every diagonal entry is stored and positive.
    pub positive_diagonal: bool,
    /// Whether every diagonal entry can be inverted.
    pub invertible_diagonal: bool,
    /// Number of entries.
    pub nnz: u64,
}

impl Survey {
    /// Looks at the rows of all ranks. Sends each entry whose mirror image another rank has, unless the matrix is
    /// already known not to be symmetric. Waits for the other ranks.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Rank`].
    pub fn of<T: Real, B: Join, C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        layout: &Layout,
        rows: &Rows<T, J>,
    ) -> Result<Self> {
        let mirrors = Mirrors::of(layout, rows);
        let mine = mirrors.facts();
        let all = be.everywhere(&mine)?;
        let every = |at: usize| all.iter().all(|of| of[at] == 1);
        let symmetric = every(0) && mirrors.agree_across(be, equal)?;
        let nnz = all.iter().map(|of| of[3]).sum();
        Ok(Self { symmetric, positive_diagonal: every(1), invertible_diagonal: every(2), nnz })
    }

    /// Whether a square matrix equals its transpose up to rounding: see [`Csr::is_symmetric_to_rounding`]. Waits for
    /// the other ranks.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Rank`].
    ///
    /// [`Csr::is_symmetric_to_rounding`]: spandrel_formats::Csr::is_symmetric_to_rounding
    pub(crate) fn is_symmetric_to_rounding<T: Real, B: Join, C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        layout: &Layout,
        rows: &Rows<T, J>,
    ) -> Result<bool> {
        let mirrors = Mirrors::of(layout, rows).with_scales();
        let here = be.team().is_everywhere(mirrors.agree_here(near))?;
        Ok(here && mirrors.agree_across(be, near)?)
    }
}

/// Whether an entry equals its mirror image. A NaN equals nothing.
fn equal<T: Real>(value: T, mirror: T, _: f64) -> bool {
    value == mirror
}

/// Whether an entry equals its mirror image up to rounding.
fn near<T: Real>(value: T, mirror: T, scale: f64) -> bool {
    is_mirror_to_rounding::<T>(value.as_f64(), mirror.as_f64(), scale)
}

/// The diagonal entry of row `i` of these rows.
fn diagonal<T: Real, J: Column>(rows: &Rows<T, J>, i: usize) -> Option<T> {
    let number = rows.first() + i as u64;
    rows.get(number, number)
}

/// Compares entries with their mirror images.
struct Mirrors<'a, T, J> {
    layout: &'a Layout,
    rows: &'a Rows<T, J>,
    /// The square roots of the magnitudes of the diagonal, for tests that need them. The product of two is the scale of
    /// an entry.
    scales: Option<Vec<f64>>,
}

impl<'a, T: Real, J: Column> Mirrors<'a, T, J> {
    fn of(layout: &'a Layout, rows: &'a Rows<T, J>) -> Self {
        Self { layout, rows, scales: None }
    }

    fn with_scales(self) -> Self {
        let scale = |i: usize| diagonal(self.rows, i).map_or(0.0, |d| d.as_f64().abs().sqrt());
        Self { scales: Some((0..self.rows.len()).into_par_iter().map(scale).collect()), ..self }
    }

    /// Row, column and value of the entries in columns of other ranks.
    fn entries_outside(&self) -> impl Iterator<Item = (u64, u64, T)> {
        let own = self.layout.rows();
        let leaves = {
            let own = own.clone();
            move |i: &usize| {
                let cols = self.rows.row(*i).0;
                [cols.first(), cols.last()].into_iter().flatten().any(|&column| !own.contains(&column.into()))
            }
        };
        let rows: Vec<usize> = (0..self.rows.len()).into_par_iter().filter(leaves).collect();
        rows.into_iter().flat_map(|i| self.entries_of(i)).filter(move |(_, column, _)| !own.contains(column))
    }

    /// Row, column and value of the entries in row `i` of this rank.
    fn entries_of(&self, i: usize) -> impl Iterator<Item = (u64, u64, T)> {
        let ((cols, values), row) = (self.rows.row(i), self.rows.first() + i as u64);
        cols.iter().zip(values).map(move |(&column, &value)| (row, column.into(), value))
    }

    /// The facts of [`Survey`] about the rows of this rank, the number of entries last.
    fn facts(&self) -> [u64; 4] {
        let rows = self.rows;
        let holds = |test: fn(T) -> bool| (0..rows.len()).into_par_iter().all(|i| diagonal(rows, i).is_some_and(test));
        let square = rows.ncols() == self.layout.len() as u64;
        [
            u64::from(square && self.agree_here(equal)),
            u64::from(holds(|d| d > T::zero())),
            u64::from(holds(|d| d.recip().is_finite() && d.is_finite() && !d.is_zero())),
            rows.nnz() as u64,
        ]
    }

    /// The scale of a row, 0 if no test needs it.
    fn scale(&self, row: u64) -> f64 {
        self.scales.as_ref().map_or(0.0, |scales| scales[(row - self.rows.first()) as usize])
    }

    /// Whether `test(value, mirror image, scale)` is true of all entries in own columns. An absent entry is zero.
    fn agree_here(&self, test: fn(T, T, f64) -> bool) -> bool {
        let own = self.layout.rows();
        (0..self.rows.len()).into_par_iter().all(|i| {
            let mut here = self.entries_of(i).filter(|(_, column, _)| own.contains(column));
            here.all(|(row, column, value)| {
                let mirror = self.rows.get(column, row).unwrap_or_else(T::zero);
                test(value, mirror, self.scale(row) * self.scale(column))
            })
        })
    }

    /// Whether `test` is true of all entries whose mirror images are on other ranks. Waits for the other ranks.
    fn agree_across<B: Join, C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        test: fn(T, T, f64) -> bool,
    ) -> Result<bool> {
        let mut to = vec![Vec::new(); be.size()];
        for (row, column, value) in self.entries_outside() {
            let message = &mut to[self.layout.partition().owner(column)];
            message.extend_from_slice(&column.to_le_bytes());
            message.extend_from_slice(&row.to_le_bytes());
            message.extend_from_slice(&self.scale(row).to_le_bytes());
            message.extend_from_slice(bytemuck::bytes_of(&value));
        }
        let from = be.team().all_to_all(to)?;
        let mut asked = from.iter().flat_map(|message| message.chunks_exact(24 + T::BYTES));
        let agree = asked.all(|entry| {
            let (head, value) = entry.split_at(24);
            let [row, column, scale] = [0, 8, 16].map(|at| bytemuck::pod_read_unaligned::<u64>(&head[at..at + 8]));
            let here = self.rows.get(row, column).unwrap_or_else(T::zero);
            test(bytemuck::pod_read_unaligned(value), here, f64::from_bits(scale) * self.scale(row))
        });
        be.team().is_everywhere(agree)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend_cpu::Cpu;
    use spandrel_formats::{Csr, generate};

    use super::*;
    use crate::read::cut_rows;
    use crate::threads::Threads;

    fn survey(a: &Csr<f64>, ranks: usize) -> Survey {
        let found = Threads::run(ranks, |comm| {
            let be = Distributed::new(Cpu::with_threads(1)?, comm);
            let rows = cut_rows(&be, a);
            let layout = be.lay_out_rows(&rows)?;
            Survey::of(&be, &layout, &rows)
        });
        let found: Vec<Survey> = found.into_iter().map(|rank| rank.unwrap()).collect();
        assert!(found.iter().all(|other| *other == found[0]));
        found[0]
    }

    #[test]
    fn symmetry_is_that_of_the_whole_matrix() {
        let specs = ["poisson2d:60x50", "convdiff2d:60x50,peclet=5", "electrostatic:n=3000", "powerlaw:n=4000"];
        for spec in specs {
            let a = generate::csr::<f64>(spec).unwrap();
            for ranks in [1, 2, 3, 5] {
                let found = survey(&a, ranks);
                assert_eq!(found.symmetric, a.is_symmetric(), "{spec} on {ranks} ranks");
                assert_eq!(found.positive_diagonal, a.diagonal_holds(|d| d > 0.0), "{spec}");
                assert_eq!(found.nnz, a.nnz() as u64);
            }
        }
    }

    #[test]
    fn one_entry_without_a_mirror_image_on_another_rank_is_found() {
        let whole = |extra: &[(usize, usize, f64)]| {
            let diagonal = (0..4000).filter(|&i| i != 3000).map(|i| (i, i, 2.0));
            Csr::from_triplets(4000, 4000, diagonal.chain(extra.iter().copied())).unwrap()
        };
        for (extra, symmetric) in [
            (&[][..], true),
            (&[(5, 3900, 1.0)], false),
            (&[(3900, 5, 1.0)], false),
            (&[(3900, 5, 1.0), (5, 3900, 1.5)], false),
            (&[(3900, 5, 1.0), (5, 3900, 1.0)], true),
            // An absent entry is a zero.
            (&[(3900, 5, 0.0)], true),
            (&[(3900, 5, f64::NAN), (5, 3900, f64::NAN)], false),
        ] {
            let found = survey(&whole(extra), 3);
            assert_eq!(
                (found.symmetric, found.positive_diagonal, found.invertible_diagonal),
                (symmetric, false, false)
            );
        }
        let negative = survey(&whole(&[(3000, 3000, -1.0)]), 3);
        assert_eq!((negative.positive_diagonal, negative.invertible_diagonal), (false, true));
    }
}
