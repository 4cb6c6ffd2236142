//! Additive Schwarz: each rank preconditions its rows together with some layers of their neighbours, and the results
//! are added.
//!
//! Layer 1 is every row whose number is a column of an own row, layer 2 every row that is a column of those, and so on.
//! A rank fetches these rows once. To apply, it fetches the entries of r in all its rows, applies its own
//! preconditioner, and either keeps the entries of z in own rows ([`Overlap::Restricted`]) or sends the others to their
//! owners, who add them in the order of the ranks ([`Overlap::Added`]).
//!
//! Without layers this is [`crate::Blockwise`]. Like block Jacobi, it depends on the number of ranks.
//!
//! Reference: Cai & Sarkis 1999, A restricted additive Schwarz preconditioner for general sparse linear systems.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Entries, Gate, Preconditioner};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real};

use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::exchange::{Exchange, Needed};
use crate::gathered::Gathered;
use crate::layout::Layout;
use crate::matrix::Local;
use crate::rows::{Column, Rows};

/// How results are combined in rows that several ranks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// They are added. If the preconditioners of the ranks are symmetric, so is the sum, as CG requires.
    Added,
    /// Only the owner's result counts. This saves one exchange, and usually some iterations of BiCGStab or GMRES, but
    /// is not symmetric.
    Restricted,
}

/// Additive Schwarz over the ranks. See the [module](self).
pub struct Schwarz<T: Real, B: Entries<T>, M> {
    layout: Arc<Layout>,
    exchange: Exchange<T, B>,
    overlap: Overlap,
    /// `None` on a rank without rows.
    block: Option<M>,
    /// Whether those of all ranks are linear.
    is_linear: bool,
    work: Mutex<Work<B::Vector>>,
}

/// r and z in the rows of this rank and its layers.
struct Work<V> {
    r: V,
    z: V,
}

impl<T: Real, B: Entries<T>, M> fmt::Debug for Schwarz<T, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schwarz")
            .field("layout", &self.layout)
            .field("rows", &self.exchange.len())
            .field("overlap", &self.overlap)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: Local<T>, M: Preconditioner<T, B>> Schwarz<T, B, M> {
    /// Makes the preconditioner of each rank with `make`. It gets the rank's own device, without the other ranks, and
    /// the matrix of its rows and `layers` layers of neighbours. A rank without rows makes none. Waits for the other
    /// ranks.
    ///
    /// # Errors
    /// Those of `make`, on the rank where it fails; the other ranks name that rank. [`spandrel_backend::Error::Rank`].
    pub fn new<C: Communicator, J: Column, E>(
        be: &Distributed<B, C>,
        layout: &Arc<Layout>,
        rows: &Rows<T, J>,
        (layers, overlap): (usize, Overlap),
        make: impl FnOnce(&B, Csr<T>) -> Result<M, E>,
    ) -> Result<Self, E>
    where
        E: From<spandrel_backend::Error> + From<spandrel_formats::Error> + fmt::Display,
    {
        let (needed, gathered) = Self::extended(be, layout, rows, layers)?;
        let made = || {
            let place = |column| needed.binary_search(&column).ok().map(|place| place as Ordinal);
            let (_, block) = gathered.into_csr(needed.len(), &place)?;
            if rows.is_empty() { Ok(None) } else { make(be.device(), block).map(Some) }
        };
        let block = be.together(made())?;
        let mine = block.as_ref().is_none_or(M::is_linear);
        let is_linear = be.everywhere(&[u64::from(mine)])?.iter().all(|of| of[0] == 1);
        let exchange = be.told(Exchange::new(be.device(), be.team(), layout.partition(), &Needed::Listed(&needed)))?;
        let zeros = || be.device().zeros(needed.len());
        let work = be.together(zeros().and_then(|r| Ok(Work { r, z: zeros()? })))?;
        let (layout, work) = (Arc::clone(layout), Mutex::new(work));
        Ok(Self { layout, exchange, overlap, block, is_linear, work })
    }

    /// The numbers of the own rows and their layers, and these rows.
    fn extended<C: Communicator, J: Column>(
        be: &Distributed<B, C>,
        layout: &Arc<Layout>,
        rows: &Rows<T, J>,
        layers: usize,
    ) -> spandrel_backend::Result<(Vec<u64>, Gathered<T>)> {
        let (team, partition) = (be.team(), layout.partition());
        let mut needed: Vec<u64> = layout.rows().collect();
        let mut gathered = Gathered::default();
        for i in 0..rows.len() {
            let (cols, values) = rows.row(i);
            gathered.push(rows.first() + i as u64, cols.iter().map(|&col| col.into()), values.iter().copied());
        }
        let mut fresh_from = 0;
        for _ in 0..layers {
            let mut fresh: Vec<u64> = gathered.cols[fresh_from..].to_vec();
            fresh.sort_unstable();
            fresh.dedup();
            fresh.retain(|row| needed.binary_search(row).is_err());
            fresh_from = gathered.cols.len();
            let mut asked: Vec<Vec<u8>> = vec![Vec::new(); team.size()];
            fresh.iter().for_each(|&row| asked[partition.owner(row)].extend_from_slice(&row.to_le_bytes()));
            let wanted = team.all_to_all(asked)?;
            let answers = wanted.iter().map(|wanted| {
                let mut message = Vec::new();
                for &row in wanted.as_chunks::<8>().0 {
                    let row = u64::from_le_bytes(row);
                    let (cols, values) = rows.row((row - rows.first()) as usize);
                    Gathered::write(row, cols, values, &mut message);
                }
                message
            });
            team.all_to_all(answers.collect())?.iter().for_each(|message| gathered.read(message));
            needed.extend(fresh);
            needed.sort_unstable();
        }
        Ok((needed, gathered))
    }

    /// Rows that this rank has besides its own.
    pub fn extra_rows(&self) -> usize {
        self.exchange.ghosts()
    }

    /// The preconditioner of this rank.
    pub fn block(&self) -> Option<&M> {
        self.block.as_ref()
    }
}

// SAFETY: it is applied on a distributed device, which records nothing.
unsafe impl<T: Real, B: Local<T>, C: Communicator, M: Preconditioner<T, B>> Preconditioner<T, Distributed<B, C>>
    for Schwarz<T, B, M>
{
    fn len(&self) -> Option<usize> {
        Some(self.layout.len())
    }
    fn is_linear(&self) -> bool {
        self.is_linear
    }
    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        r: &Vector<T, B>,
        z: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        let (device, team) = (be.device(), be.team());
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if !be.told(self.exchange.gather(device, team, gate, &r.part, &mut work.r))? {
            return Ok(());
        }
        if let Some(block) = &self.block {
            be.told(block.apply(device, gate, &work.r, &mut work.z))?;
        }
        be.told(match self.overlap {
            Overlap::Added => self.exchange.scatter_add(device, team, gate, &work.z, &mut z.part),
            Overlap::Restricted => self.exchange.scatter(device, gate, &work.z, &mut z.part),
        })
    }
}
