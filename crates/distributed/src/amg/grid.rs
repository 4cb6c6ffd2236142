//! One grid on the host of a rank: its rows, the nodes that they are coupled with, and the way to the next grid.
//!
//! Every step is that of [`spandrel_formats::amg`], on a matrix in which the rows of other ranks are empty. Between the
//! steps, ranks send each other the data of ghosts. Local numbers ascend as those of the whole matrix do, so every sum
//! has the terms and the order that it has on one device.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_backend::{Error, Join, Result};
use spandrel_formats::amg::{Aggregates, Others, Scaling, Strength, Tentative, UNASSIGNED, roots_among, smoothed};
use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real, product};
use spandrel_solvers::AmgOptions;

use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::gathered::Gathered;
use crate::ghosts::Ghosts;
use crate::partition::Partition;
use crate::rows::{Rows, rows_within};
use crate::team::Team;

/// The rows of one rank of a grid. Every rank has whole nodes.
pub(super) struct Level<T> {
    /// The rows of each rank.
    pub(super) partition: Partition,
    pub(super) rows: Rows<T>,
    /// The near-null-space vectors in the rows of this rank, column by column.
    pub(super) near_null: Vec<T>,
    pub(super) vectors: usize,
    /// Unknowns and strength are those of this grid.
    pub(super) options: AmgOptions,
}

/// A grid with the nodes that the rows of this rank are coupled with.
pub(super) struct View<T> {
    ghosts: Ghosts,
    /// Square; the rows of ghosts are empty.
    a: Csr<T>,
    unknowns: usize,
}

/// The way from a grid to the next.
pub(super) struct Coarser<T> {
    /// The rows of P of this rank.
    pub(super) p: Rows<T>,
    /// The rows of P^T of this rank. Column k stands for row `finer[k]` of the finer grid.
    pub(super) transposed: Csr<T>,
    pub(super) finer: Vec<u64>,
    /// The diagonal of the finer operator in these rows.
    pub(super) diagonal: Vec<T>,
    pub(super) next: Level<T>,
}

/// Rows with the columns of the whole matrix: column k of `csr` becomes `columns[k]`.
pub(super) fn widened<T: Real>(
    first: u64,
    ncols: u64,
    csr: Csr<T>,
    columns: &[u64],
) -> spandrel_formats::Result<Rows<T>> {
    let (_, _, row_ptr, mut cols, values) = csr.into_parts();
    cols.iter_mut().for_each(|col| *col = columns[*col as usize] as Ordinal);
    Rows::new(first, ncols, row_ptr, cols, values)
}

/// Brings rows to the ranks that have them in another partition. Waits for the other ranks.
pub(super) fn moved<T: Real, B: Join, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    to: &Partition,
) -> Result<Rows<T>> {
    let mut messages = vec![Vec::new(); be.size()];
    for i in 0..rows.len() {
        let ((cols, values), row) = (rows.row(i), rows.first() + i as u64);
        Gathered::write(row, cols, values, &mut messages[to.owner(row)]);
    }
    let mut gathered = Gathered::default();
    be.team().all_to_all(messages)?.iter().for_each(|message| gathered.read(message));
    let csr = gathered.into_csr(rows.ncols() as usize, &|column| Some(column as Ordinal)).map_err(Error::from);
    Ok(Rows::from_csr(to.rows(be.rank()).start, be.told(csr)?.1))
}

/// The other ranks, as the search for roots asks them.
struct Neighbours<'a, C> {
    team: &'a Team<C>,
    ghosts: &'a Ghosts,
}

impl<C: Communicator> Others for Neighbours<'_, C> {
    type Error = Error;
    fn refresh(&mut self, words: &[AtomicU64]) -> Result<()> {
        let put = |node: usize, body: &mut Vec<u8>| body.extend_from_slice(&words[node].load(Relaxed).to_le_bytes());
        self.ghosts.bring(self.team, put, |first, body| {
            let fresh = body.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
            words[first..].iter().zip(fresh).for_each(|(word, fresh)| word.store(fresh, Relaxed));
        })
    }
    fn is_any(&mut self, mine: usize) -> Result<bool> {
        Ok(self.team.numbers(&[mine as u64])?.iter().any(|of| of[0] > 0))
    }
}

/// A square matrix with one row and column per unknown of a known node: these rows, and empty rows for the ghosts.
fn squared<T: Real>(rows: &Rows<T>, ghosts: &Ghosts, unknowns: usize) -> spandrel_formats::Result<Csr<T>> {
    let n = ghosts.nodes().len() * unknowns;
    let first = ghosts.own().start * unknowns;
    let within = |row: usize| row.checked_sub(first).filter(|&i| i < rows.len());
    let fill = |row: usize, cols: &mut [Ordinal], values: &mut [T]| {
        let Some(i) = within(row) else { return };
        let (from, entries) = rows.row(i);
        for (to, &column) in cols.iter_mut().zip(from) {
            let (node, unknown) = (u64::from(column) / unknowns as u64, column as usize % unknowns);
            // Every column belongs to a known node: an own one or a ghost.
            *to = ghosts.place(node).map_or(Ordinal::MAX, |place| (place * unknowns + unknown) as Ordinal);
        }
        values.copy_from_slice(entries);
    };
    Csr::from_rows(n, n, |row| within(row).map_or(0, |i| rows.row(i).0.len()), fill)
}

impl<T: Real> View<T> {
    /// Looks for the ghosts of a grid. Waits for the other ranks.
    pub(super) fn of<B: Join, C: Communicator>(be: &Distributed<B, C>, level: &Level<T>) -> Result<Self> {
        let (unknowns, rows) = (level.options.unknowns, &level.rows);
        let width = unknowns as u64;
        let own = level.partition.rows(be.rank());
        let mut outside: Vec<u64> = Vec::new();
        for i in 0..rows.len() {
            let columns = rows.row(i).0.iter().map(|&column| u64::from(column));
            outside.extend(columns.filter(|column| !own.contains(column)).map(|column| column / width));
        }
        outside.sort_unstable();
        outside.dedup();
        let nodes = Partition::unaligned(level.partition.counts().map(|rows| rows / width));
        let ghosts = Ghosts::new(be.team(), &nodes, &outside)?;
        let a = squared(rows, &ghosts, unknowns);
        Ok(Self { a: be.told(a.map_err(Error::from))?, ghosts, unknowns })
    }

    /// The rows of this rank among those of the view.
    fn own(&self) -> Range<usize> {
        let nodes = self.ghosts.own();
        nodes.start * self.unknowns..nodes.end * self.unknowns
    }

    /// The number of a row in the whole matrix.
    fn number(&self, row: usize) -> u64 {
        self.ghosts.nodes()[row / self.unknowns] * self.unknowns as u64 + (row % self.unknowns) as u64
    }

    /// The diagonal in the rows of this rank, and the bound on the spectrum of the whole matrix. `unfit` is the first
    /// unfit row of the whole matrix. Waits for the other ranks.
    pub(super) fn scaling<B: Join, C: Communicator>(&self, be: &Distributed<B, C>) -> Result<Scaling<T>> {
        let number = |row: usize| if row < self.a.nrows() { self.number(row) } else { u64::MAX };
        Scaling::among(&self.a, self.own(), &mut |unfit, most, w: &mut [f64]| {
            // The bits of numbers that are not negative are ordered as the numbers are.
            let all = be.everywhere(&[unfit.map_or(u64::MAX, number), most.to_bits()])?;
            self.ghosts.refresh(be.team(), self.unknowns, w)?;
            let unfit = all.iter().map(|of| of[0]).min().filter(|&row| row != u64::MAX);
            let most = all.iter().map(|of| of[1]).max().map_or(most, f64::from_bits);
            Ok::<_, Error>((unfit.map(|row| row as usize), most))
        })
    }

    /// The aggregate of every node that is known, and how many aggregates each rank has; they are numbered by their
    /// roots. `None` if coarsening has stalled. Waits for the other ranks.
    fn aggregates<B: Join, C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        level: &Level<T>,
    ) -> Result<Option<(Strength, Aggregates, Partition)>> {
        let (team, ghosts) = (be.team(), &self.ghosts);
        let mut shares = be.told(Strength::shares(&self.a, self.unknowns).map_err(Error::from))?;
        ghosts.refresh(team, 1, &mut shares)?;
        let graph = Strength::with_shares(&self.a, self.unknowns, level.options.strength, &shares);
        let graph = be.told(graph.map_err(Error::from))?;
        let nodes = ghosts.nodes();
        let roots = roots_among(&graph, &|node| nodes[node as usize] as Ordinal, &mut Neighbours { team, ghosts })?;
        let owners = Partition::unaligned(be.everywhere(&[roots.len() as u64])?.iter().map(|of| of[0]));
        if AmgOptions::has_stalled(level.partition.len() as usize, owners.len() as usize * level.vectors) {
            return Ok(None);
        }
        let mut assigned = vec![UNASSIGNED; nodes.len()];
        let first = owners.rows(be.rank()).start as Ordinal;
        roots.iter().zip(first..).for_each(|(&root, aggregate)| assigned[root as usize] = aggregate);
        for _ in 0..2 {
            ghosts.refresh(team, 1, &mut assigned)?;
            assigned = Aggregates::joined(&graph, &self.a, &assigned);
        }
        ghosts.refresh(team, 1, &mut assigned)?;
        Ok(Some((graph, Aggregates::from_assignment(assigned, owners.len() as usize), owners)))
    }

    /// The tentative prolongation of every node that is known, the near-null-space vectors of this rank's aggregates,
    /// and which of their unknowns are dropped. The owner of an aggregate gets the vectors on its nodes and returns the
    /// rows of T. Waits for the other ranks.
    fn tentative<B: Join, C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        level: &Level<T>,
        of: &[Ordinal],
        owners: &Partition,
    ) -> Result<(Tentative<T>, Tentative<T>)> {
        let (team, own, vectors) = (be.team(), self.ghosts.own(), level.vectors);
        let (len, width) = (level.rows.len(), self.unknowns * vectors);
        let mut to = vec![Vec::new(); be.size()];
        let mut asked: Vec<Vec<usize>> = vec![Vec::new(); be.size()];
        for node in own.clone().filter(|&node| of[node] != UNASSIGNED) {
            let owner = owners.owner(of[node].into());
            asked[owner].push(node);
            to[owner].extend_from_slice(&of[node].to_le_bytes());
            for row in (node - own.start) * self.unknowns..(node - own.start + 1) * self.unknowns {
                (0..vectors)
                    .for_each(|c| to[owner].extend_from_slice(bytemuck::bytes_of(&level.near_null[c * len + row])));
            }
        }
        // Ranks ascend, and so do the nodes of each: rows of an aggregate are orthonormalised in ascending order.
        let from = team.all_to_all(to)?;
        let size = size_of::<Ordinal>() + width * T::BYTES;
        let first = owners.rows(be.rank()).start as Ordinal;
        let (mut members, mut values) = (Vec::new(), Vec::new());
        for node in from.iter().flat_map(|message| message.chunks_exact(size)) {
            let (aggregate, rows) = node.split_at(size_of::<Ordinal>());
            members.push(bytemuck::pod_read_unaligned::<Ordinal>(aggregate) - first);
            values.extend(rows.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned::<T>));
        }
        let rows = members.len() * self.unknowns;
        let columns: Vec<T> = (0..vectors)
            .flat_map(|c| (0..rows).map(move |row| (row, c)))
            .map(|(row, c)| values[row * vectors + c])
            .collect();
        let count = owners.rows(be.rank()).end as usize - first as usize;
        let here = Aggregates::from_assignment(members, count);
        let made = be.told(Tentative::of(&here, self.unknowns, &columns, vectors).map_err(Error::from))?;
        let mut rest = made.rows();
        let answers = from.iter().map(|message| {
            let (mine, others) = rest.split_at(message.len() / size * width);
            rest = others;
            bytemuck::cast_slice(mine).to_vec()
        });
        let answers = team.all_to_all(answers.collect())?;
        let mut rows = vec![T::zero(); of.len() * width];
        for (nodes, answer) in asked.iter().zip(&answers) {
            for (&node, row) in nodes.iter().zip(answer.chunks_exact(width * T::BYTES)) {
                let values = row.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned::<T>);
                rows[node * width..(node + 1) * width].iter_mut().zip(values).for_each(|(to, value)| *to = value);
            }
        }
        self.ghosts.refresh(team, width, &mut rows)?;
        let known = be.told(Tentative::from_rows(rows, vectors).map_err(Error::from))?;
        Ok((known, made))
    }

    /// The rows of A P of this rank, and the number on the next grid of each of its columns. `p` has the own rows of P.
    /// Waits for neighbours.
    fn fine_product<B: Join, C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        p: &Rows<T>,
    ) -> Result<(Csr<T>, Vec<u64>)> {
        let mut gathered = Gathered::with_room(p.len(), p.nnz());
        for i in 0..p.len() {
            let (cols, values) = p.row(i);
            gathered.push(p.first() + i as u64, cols.iter().map(|&col| col.into()), values.iter().copied());
        }
        let first = self.ghosts.own().start;
        let put = |node: usize, body: &mut Vec<u8>| {
            for i in (node - first) * self.unknowns..(node - first + 1) * self.unknowns {
                let (cols, values) = p.row(i);
                Gathered::write(p.first() + i as u64, cols, values, body);
            }
        };
        self.ghosts.bring(be.team(), put, |_, body| gathered.read(body))?;
        let made = || {
            let (_, columns, p) = gathered.compact()?;
            let whole = product(&self.a, &p)?;
            Ok((rows_within(whole, self.own()).into_csr(), columns))
        };
        be.told(made().map_err(|error: spandrel_formats::Error| Error::from(error)))
    }

    /// Makes the next grid; `None` if coarsening has stalled. `diagonal` is that of the rows of this rank. Waits for
    /// the other ranks.
    pub(super) fn coarser<B: Join, C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        level: &Level<T>,
        diagonal: &[T],
    ) -> Result<Option<Coarser<T>>> {
        let Some((graph, aggregates, owners)) = self.aggregates(be, level)? else { return Ok(None) };
        let vectors = level.vectors;
        let (known, made) = self.tentative(be, level, aggregates.assignment(), &owners)?;
        let whole = be.told(smoothed(&self.a, &graph, &aggregates, &known).map_err(Error::from))?;
        drop((graph, aggregates, known));
        let own = self.own();
        let p = Rows::from_csr(level.rows.first(), rows_within(whole, own).into_csr());
        let (fine, columns) = self.fine_product(be, &p)?;
        let partition = Partition::unaligned(owners.counts().map(|count| count * vectors as u64));
        let ours = partition.rows(be.rank());
        // Each rank gets the entries of P in its own coarse columns, and the rows of A P that its rows of P^T multiply.
        let [mut parts, mut products, mut diagonals] = [(); 3].map(|()| vec![Vec::new(); be.size()]);
        let [mut ours_of_p, mut ours_of_fine] =
            [p.nnz(), fine.nnz()].map(|entries| Gathered::<T>::with_room(p.len(), entries));
        let mut numbers = Vec::new();
        for (i, d) in diagonal.iter().enumerate() {
            let ((cols, values), row) = (p.row(i), p.first() + i as u64);
            let (fine_cols, fine_values) = fine.row(i);
            numbers.clear();
            numbers.extend(fine_cols.iter().map(|&col| columns[col as usize]));
            let mut begin = 0;
            while begin < cols.len() {
                let owner = partition.owner(cols[begin].into());
                let of = partition.rows(owner);
                let end = begin + cols[begin..].partition_point(|&col| u64::from(col) < of.end);
                let part = (&cols[begin..end], &values[begin..end]);
                if owner == be.rank() {
                    ours_of_p.push(row, part.0.iter().map(|&col| col.into()), part.1.iter().copied());
                    ours_of_fine.push(row, numbers.iter().copied(), fine_values.iter().copied());
                } else {
                    Gathered::write(row, part.0, part.1, &mut parts[owner]);
                    Gathered::write(row, &numbers, fine_values, &mut products[owner]);
                }
                diagonals[owner].extend_from_slice(bytemuck::bytes_of(d));
                begin = end;
            }
        }
        drop(fine);
        let [parts, products, diagonals] = [parts, products, diagonals].map(|to| be.team().all_to_all(to));
        parts?.iter().for_each(|message| ours_of_p.read(message));
        products?.iter().for_each(|message| ours_of_fine.read(message));
        let diagonals = diagonals?;
        let values = diagonals.iter().flat_map(|message| message.chunks_exact(T::BYTES));
        let diagonal = values.map(bytemuck::pod_read_unaligned::<T>).collect();
        let build = || {
            let place = |column: u64| Some((column - ours.start) as Ordinal);
            let (finer, p) = ours_of_p.into_csr((ours.end - ours.start) as usize, &place)?;
            let transposed = p.try_transpose()?;
            let (_, columns, fine) = ours_of_fine.compact()?;
            let mut coarse = product(&transposed, &fine)?;
            // Nothing interpolates from a dropped unknown. It gets an equation of its own.
            for &unknown in made.dropped() {
                let begin = coarse.row_ptr()[unknown] as usize;
                let is_diagonal = |&col: &Ordinal| columns[col as usize] == ours.start + unknown as u64;
                if let Some(at) = coarse.row(unknown).0.iter().position(is_diagonal) {
                    coarse.values_mut()[begin + at] += T::one();
                }
            }
            Ok((finer, transposed, widened(ours.start, partition.len(), coarse, &columns)?))
        };
        let (finer, transposed, rows) =
            be.told(build().map_err(|error: spandrel_formats::Error| Error::from(error)))?;
        let options = level.options.of_next(vectors);
        let next = Level { partition, rows, near_null: made.coarse().to_vec(), vectors, options };
        Ok(Some(Coarser { p, transposed, finer, diagonal, next }))
    }
}
