//! The boundary of a rank's rows: the rows that need entries of x from other ranks, and the exchange that brings them.
//!
//! Layout: the boundary matrix has one row per boundary row, and one column per column in which one of these rows has
//! an entry, in ascending order of the whole matrix: ghosts below, own columns, ghosts above. So its rows are summed as
//! in the whole matrix. The x that it is multiplied with is packed in the same way (`exchange.rs`).
//!
//! Cost of a product: one message to each rank that needs entries, and one from each that has some. If the own block
//! keeps boundary rows, their entries are read twice.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use spandrel_backend::{Backend, Coeff, Download, Entries, Gate, Load, Mat, PackedRows, Result, Spmv};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Error, Real};

use crate::communicator::Communicator;
use crate::exchange::{Begun, Exchange, Needed};
use crate::matrix::HostBoundary;
use crate::partition::{BLOCK, Partition};
use crate::rows::{Column, Rows};
use crate::team::Team;

/// The boundary rows of a rank as host data.
pub(crate) struct Boundary<T> {
    /// Their numbers among the rank's rows.
    pub(crate) rows: Vec<Ordinal>,
    matrix: Csr<T>,
    /// The columns of the matrix, as columns of the whole matrix.
    needed: Vec<u64>,
    /// Own columns among them.
    own: Range<usize>,
}

impl<T: Real> Boundary<T> {
    /// Looks for the rows that have columns outside `own`, and copies them.
    pub(crate) fn of<J: Column>(rows: &Rows<T, J>, own: &Range<u64>) -> spandrel_formats::Result<Self> {
        let leaves = |cols: &[J]| {
            let ends: [Option<u64>; 2] = [cols.first().map(|&c| c.into()), cols.last().map(|&c| c.into())];
            ends.into_iter().flatten().any(|column| !own.contains(&column))
        };
        let leaving = (0..rows.len()).into_par_iter().filter(|&i| leaves(rows.row(i).0));
        let found: Vec<Ordinal> = leaving.map(|i| i as Ordinal).collect();
        let entries: usize = found.iter().map(|&i| rows.row(i as usize).0.len()).sum();
        let refused = |_| Error::OutOfMemory { what: "the columns of boundary rows", bytes: 8 * entries as u64 };
        let mut needed: Vec<u64> = Vec::new();
        needed.try_reserve_exact(entries).map_err(refused)?;
        needed.extend(found.iter().flat_map(|&i| rows.row(i as usize).0).map(|&column| -> u64 { column.into() }));
        needed.par_sort_unstable();
        needed.dedup();
        let place = |column: u64| needed.partition_point(|&at| at < column);
        let own = place(own.start)..place(own.end);
        let fill = |at: usize, cols: &mut [Ordinal], values: &mut [T]| {
            let (of_row, value) = rows.row(found[at] as usize);
            cols.iter_mut().zip(of_row).for_each(|(to, &column)| *to = place(column.into()) as Ordinal);
            values.copy_from_slice(value);
        };
        let len = |at: usize| rows.row(found[at] as usize).0.len();
        let matrix = Csr::from_rows(found.len(), needed.len(), len, fill)?;
        Ok(Self { rows: found, matrix, needed, own })
    }

    /// Entries of the boundary rows in own columns.
    pub(crate) fn own_entries(&self) -> usize {
        let own = self.own.start as Ordinal..self.own.end as Ordinal;
        self.matrix.col_idx().iter().filter(|column| own.contains(column)).count()
    }
}

/// The boundary of a rank on its device.
pub(crate) struct Halo<T: Real, B: Load<Csr<T>> + Entries<T>> {
    rows: B::Places,
    /// The blocks of the dot product's tree in which they lie.
    blocks: B::Places,
    /// The rows on the host.
    numbers: Vec<Ordinal>,
    matrix: Mat<B, Csr<T>>,
    exchange: Exchange<T, B>,
    work: Mutex<Work<B::Vector>>,
}

/// The packed x, and the boundary rows of y.
struct Work<V> {
    x: V,
    y: V,
}

impl<T: Real, B: Load<Csr<T>> + Entries<T>> fmt::Debug for Halo<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sends, receives] = self.exchange.neighbours();
        f.debug_struct("Halo")
            .field("rows", &self.numbers.len())
            .field("sends", &sends)
            .field("receives", &receives)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: Spmv<Csr<T>> + Entries<T>> Halo<T, B> {
    /// Brings the boundary of a rank with `own` rows to the device and tells every rank which of its entries are needed
    /// here. Waits for the other ranks.
    pub(crate) fn new<C: Communicator>(
        be: &B,
        team: &Team<C>,
        (columns, own): (&Partition, usize),
        boundary: Boundary<T>,
    ) -> Result<Self> {
        let Boundary { rows, matrix, needed, .. } = boundary;
        let exchange = Exchange::new(be, team, columns, &Needed::Listed(&needed))?;
        let work = Work { x: be.zeros(needed.len())?, y: be.zeros(rows.len())? };
        let matrix = Mat::load(be, Arc::new(matrix))?;
        let mut blocks: Vec<Ordinal> = rows.iter().map(|&row| (row as u64 / BLOCK) as Ordinal).collect();
        blocks.dedup();
        let blocks = be.places(own.div_ceil(BLOCK as usize), &blocks)?;
        Ok(Self { rows: be.places(own, &rows)?, blocks, numbers: rows, matrix, exchange, work: Mutex::new(work) })
    }

    /// Entries of x that come from other ranks.
    pub(crate) fn ghosts(&self) -> usize {
        self.exchange.ghosts()
    }

    /// Number of boundary rows.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Copies the boundary rows to the host, and the x that they are multiplied with. Waits for the other ranks.
    pub(crate) fn on_host<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        x: &<B as Backend<T>>::Vector,
    ) -> Result<HostBoundary<T>>
    where
        B: Download<Csr<T>>,
    {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange.gather(be, team, None, x, &mut work.x)?;
        Ok(HostBoundary { rows: self.numbers.clone(), matrix: self.matrix.download(be)?, x: be.download(&work.x)? })
    }

    /// The blocks in which boundary rows lie.
    pub(crate) fn blocks(&self) -> &B::Places {
        &self.blocks
    }

    /// Bytes of the boundary matrix.
    pub(crate) fn storage(&self) -> u64 {
        self.matrix.storage()
    }

    /// Sends the entries that others need, calls `within`, computes a A x + b y in the boundary rows from the entries
    /// that others have sent, and writes these rows to y. `within` does the same for the own block, and may write
    /// anything to the boundary rows of y. Changes nothing if the gate is closed.
    pub(crate) fn product<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        gate: Gate<'_, B>,
        a: Coeff<'_, T, <B as Backend<T>>::Scalar>,
        x: &<B as Backend<T>>::Vector,
        b: Coeff<'_, T, <B as Backend<T>>::Scalar>,
        y: &mut <B as Backend<T>>::Vector,
        within: impl FnOnce(&mut <B as Backend<T>>::Vector) -> Result<()>,
    ) -> Result<()> {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(begun) = self.exchange.begin(be, team, gate, x)? else { return Ok(()) };
        if !b.is_zero() {
            be.gather_entries(y, &self.rows, &mut work.y, 0)?;
        }
        within(y)?;
        self.rest(be, gate, begun, (a, x), (b, None), work, y)
    }

    /// r <- b - A x, as [`Halo::product`]; `within` does the same for the own block.
    pub(crate) fn residual<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        gate: Gate<'_, B>,
        (b, x): (&<B as Backend<T>>::Vector, &<B as Backend<T>>::Vector),
        r: &mut <B as Backend<T>>::Vector,
        within: impl FnOnce(&mut <B as Backend<T>>::Vector) -> Result<()>,
    ) -> Result<()> {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(begun) = self.exchange.begin(be, team, gate, x)? else { return Ok(()) };
        within(r)?;
        self.rest(be, gate, begun, (Coeff::host(-T::one()), x), (Coeff::one(), Some(b)), work, r)
    }

    /// As [`Halo::product`] with a = 1 and b = 0. `within` gets the work in the boundary rows, which it must do once.
    pub(crate) fn product_around<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        gate: Gate<'_, B>,
        x: &<B as Backend<T>>::Vector,
        within: impl FnOnce(&mut dyn FnMut(&mut <B as Backend<T>>::Vector) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let mut begun = self.exchange.begin(be, team, gate, x)?;
        if begun.is_none() {
            return Ok(());
        }
        within(&mut |y| match begun.take() {
            Some(begun) => self.rest(be, gate, begun, (Coeff::one(), x), (Coeff::zero(), None), work, y),
            None => Ok(()),
        })
    }

    /// The boundary rows of a A x + b z, whose messages are under way. Without z, `work` has what is multiplied with b.
    fn rest<C: Communicator>(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        begun: Begun<'_, C>,
        (a, x): (Coeff<'_, T, <B as Backend<T>>::Scalar>, &<B as Backend<T>>::Vector),
        (b, z): (Coeff<'_, T, <B as Backend<T>>::Scalar>, Option<&<B as Backend<T>>::Vector>),
        work: &mut Work<<B as Backend<T>>::Vector>,
        y: &mut <B as Backend<T>>::Vector,
    ) -> Result<()> {
        let (turn, from) = self.exchange.arrived(be, begun, &mut work.x)?;
        let (own, at) = self.exchange.own();
        let rows = PackedRows { matrix: &self.matrix, places: &self.rows, own, at, from };
        be.apply_packed(gate, turn, &rows, a, x, b, z, &mut work.x, &mut work.y, y)
    }
}
