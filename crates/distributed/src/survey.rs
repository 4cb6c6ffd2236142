//! What the choice of method and preconditioner must know about a matrix whose rows lie on the ranks.

use spandrel_backend::{Join, Result};
use spandrel_formats::Real;

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
        let own = layout.rows();
        let mirror = |row: u64, column: u64| rows.get(row, column).unwrap_or_else(T::zero);
        let each = || {
            (0..rows.len()).flat_map(|i| {
                let (cols, values) = rows.row(i);
                let row = rows.first() + i as u64;
                cols.iter().zip(values).map(move |(&column, &value)| (row, column.into(), value))
            })
        };
        let holds = |test: &dyn Fn(T) -> bool| rows.diagonal().all(|entry| entry.is_some_and(test));
        // A NaN equals nothing.
        let agrees = each().all(|(row, column, value)| !own.contains(&column) || value == mirror(column, row));
        let square = rows.ncols() == layout.len() as u64;
        let mine = [
            u64::from(square && agrees),
            u64::from(holds(&|d| d > T::zero())),
            u64::from(holds(&|d| d.recip().is_finite() && d.is_finite() && !d.is_zero())),
            rows.nnz() as u64,
        ];
        let all = be.everywhere(&mine)?;
        let every = |at: usize| all.iter().all(|of| of[at] == 1);
        let symmetric = every(0) && Self::matches(be, layout, rows, each().filter(|(_, j, _)| !own.contains(j)))?;
        let nnz = all.iter().map(|of| of[3]).sum();
        Ok(Self { symmetric, positive_diagonal: every(1), invertible_diagonal: every(2), nnz })
    }

    /// Whether these entries equal their mirror images, which other ranks have.
    fn matches<T: Real, B: Join, C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        layout: &Layout,
        rows: &Rows<T, J>,
        entries: impl Iterator<Item = (u64, u64, T)>,
    ) -> Result<bool> {
        let mut to = vec![Vec::new(); be.size()];
        for (row, column, value) in entries {
            let message = &mut to[layout.partition().owner(column)];
            message.extend_from_slice(&column.to_le_bytes());
            message.extend_from_slice(&row.to_le_bytes());
            message.extend_from_slice(bytemuck::bytes_of(&value));
        }
        let from = be.team().all_to_all(to)?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut asked = from.iter().flat_map(|message| message.chunks_exact(16 + T::BYTES));
        let agrees = asked.all(|entry| {
            let here = rows.get(number(&entry[..8]), number(&entry[8..16])).unwrap_or_else(T::zero);
            here == bytemuck::pod_read_unaligned::<T>(&entry[16..])
        });
        Ok(be.everywhere(&[u64::from(agrees)])?.iter().all(|of| of[0] == 1))
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
