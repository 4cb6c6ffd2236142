//! Chains: up to [`CHAIN`] neighbouring rows, each of which needs one of those before it, solved together.
//!
//! A row that waits for its neighbour waits for a trip through memory where others solve the neighbour, and for a shuffle where the same warp
//! does. Rows of several unknowns of a point need each other, and so do neighbours along a line: their levels are mostly such trips. Levels
//! are therefore of chains: a chain's level is one more than the highest among the chains that any of its rows needs, so it is solved in
//! one go when those are.
//! Invariants: a chain's rows follow each other in the order of their solve, and so do their columns behind all others in the order of a row's sum: what
//! a row needs of its own chain is added last, and no order changes. A row joins only where what it needs of other chains lies in levels before
//! its chain's, so no row of it waits longer than it would alone, and only where the padding stays within [`fits`].
//! Cost: one serial pass over the entries; 12 bytes a row.
//! Reference: supernodes, of which a chain asks less: Ashcraft & Grimes 1989, The influence of relaxed supernode partitions on the multifrontal method.

use rayon::prelude::*;
use spandrel_formats::{Offset, Ordinal};

/// Rows of a chain at most: the lanes of a warp.
pub const CHAIN: usize = 32;
/// In [`Ranked::links`]: this row begins a chain.
pub const HEAD: u32 = 1 << 31;
/// Entries of rows of other chains that the longest row of a chain has.
pub const LONG: usize = 64;
/// Entries by which lengths of rows are told apart.
pub const CLASS: usize = 4;

/// Rows of a slice up to which each has several lanes of a GPU's warp.
pub const FEW: usize = 16;
/// Rows of a chain that are tried: a long one costs all of its rows, and what each of them needs of others is looked for by fewer lanes.
const LIMITS: [usize; 3] = [1, 8, CHAIN];
/// Rows by which that is decided, at most: of a grid many lines, or its length along them would decide alone.
const SAMPLE: usize = 1 << 18;
/// Nanoseconds on a GPU of a level, of each further round of entries, eight a lane, and of each further row of a chain
/// (record/h200-sptrsv-variants.txt).
const LEVEL: f64 = 950.0;
const ROUND: f64 = 250.0;
pub(crate) const LINK: u32 = 40;

/// Lanes that each of so many rows of a slice has.
pub(crate) fn lanes(rows: usize) -> usize {
    if rows > FEW { 1 } else { CHAIN / rows.next_power_of_two() }
}

/// Whether so many rows, each in as many places as the longest has, are padded by no more than their entries and [`CLASS`] places a row.
pub(crate) fn fits(shape: Shape) -> bool {
    shape.rows * (shape.far + shape.near) <= 2 * shape.entries + CLASS * shape.rows
}

/// Rows that are solved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    /// Most entries that one of them has of rows of other chains, and of its own.
    pub(crate) far: usize,
    pub(crate) near: usize,
    /// Entries of all of them.
    pub(crate) entries: usize,
}

impl Shape {
    /// With others beside them.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            far: self.far.max(other.far),
            near: self.near.max(other.near),
            entries: self.entries + other.entries,
        }
    }
}

/// Rows, by the place at which each is solved, with their levels and chains.
pub(crate) struct Ranked {
    pub(crate) level_of: Vec<Ordinal>,
    /// Entries that a row has of rows of other chains.
    pub(crate) lengths: Vec<Ordinal>,
    /// Bit t: the row has an entry of the t-th row of its chain; [`HEAD`] for the first.
    pub(crate) links: Vec<u32>,
    /// Where each level begins.
    pub(crate) level_ptr: Vec<Offset>,
    /// Of each level the most rows of a chain, less one, and the most entries that a row has of other chains.
    most: Vec<(u32, u32)>,
}

impl Ranked {
    /// Of `n` rows in the order of their solve, with chains of as many rows as a GPU is expected to be fastest with. `needs` gives what a row needs, in the
    /// order of its sum, as places; one that is no smaller than the row's is known from the start.
    pub(crate) fn of<I: Iterator<Item = usize>>(n: usize, needs: impl Fn(usize) -> I + Sync) -> Self {
        // What the rows in the middle need of rows before is there.
        let count = n.min(SAMPLE);
        let first = (n - count) / 2;
        let part = |limit: usize| {
            let inside = |place: usize| needs(first + place).map(move |of| of.wrapping_sub(first));
            Self::limited(count, limit, inside)
        };
        let mut found: Vec<(usize, Self)> = LIMITS.par_iter().map(|&limit| (limit, part(limit))).collect();
        let costs: Vec<f64> = found.iter().map(|(_, ranked)| ranked.cost()).collect();
        let best = (0..found.len()).fold(0, |best, at| if costs[at] < costs[best] { at } else { best });
        let (limit, ranked) = found.swap_remove(best);
        if count == n { ranked } else { Self::limited(n, limit, needs) }
    }

    /// The same with chains of so many rows at most.
    fn limited<I: Iterator<Item = usize>>(n: usize, limit: usize, needs: impl Fn(usize) -> I) -> Self {
        let mut made = Self {
            level_of: vec![0; n],
            lengths: vec![0; n],
            links: vec![HEAD; n],
            level_ptr: vec![0],
            most: Vec::new(),
        };
        let (mut first, mut chain, mut level_here) = (0, Shape::default(), 0);
        for place in 0..n {
            let (mut level, mut link, mut far) = (0, 0u32, 0);
            for of in needs(place) {
                if of < first {
                    level = level.max(made.level_of[of] + 1);
                    far += 1;
                } else if of < place {
                    link |= 1 << (of - first);
                } else {
                    far += 1;
                }
            }
            let near = link.count_ones() as usize;
            let joined = chain.and(Shape { rows: 1, far, near, entries: far + near });
            if near > 0 && joined.rows <= limit && joined.far <= LONG && level <= level_here && fits(joined) {
                made.links[place] = link;
                made.lengths[place] = far as Ordinal;
                chain = joined;
            } else {
                if near > 0 {
                    level = level.max(level_here + 1);
                }
                let length = far + near;
                made.lengths[place] = length as Ordinal;
                (first, chain, level_here) = (place, Shape { rows: 1, far: length, near: 0, entries: length }, level);
            }
            made.level_of[place] = level_here;
            // Levels come one by one.
            if level_here as usize + 1 == made.level_ptr.len() {
                made.level_ptr.push(0);
                made.most.push((0, 0));
            }
            made.level_ptr[level_here as usize + 1] += 1;
            let (rows, far) = &mut made.most[level_here as usize];
            (*rows, *far) = ((*rows).max(chain.rows as u32 - 1), (*far).max(made.lengths[place]));
        }
        for level in 1..made.level_ptr.len() {
            made.level_ptr[level] += made.level_ptr[level - 1];
        }
        made
    }

    /// Expected nanoseconds of a solve on a GPU that waits for nothing but levels.
    fn cost(&self) -> f64 {
        let of = |&(links, far): &(u32, u32)| {
            let rounds = (far as usize).div_ceil(8 * lanes(links as usize + 1)).max(1);
            LEVEL + ROUND * (rounds - 1) as f64 + f64::from(LINK * links)
        };
        self.most.iter().map(of).sum()
    }

    /// Whether any chain has a second row.
    pub(crate) fn is_linked(&self) -> bool {
        self.most.iter().any(|&(links, _)| links > 0)
    }

    /// The chain that begins at a place.
    pub(crate) fn shape(&self, head: usize) -> Shape {
        let mut shape = self.row(head);
        for place in head + 1..self.links.len() {
            if self.links[place] == HEAD {
                break;
            }
            shape = shape.and(self.row(place));
        }
        shape
    }

    fn row(&self, place: usize) -> Shape {
        let (far, near) = (self.lengths[place] as usize, (self.links[place] & !HEAD).count_ones() as usize);
        Shape { rows: 1, far, near, entries: far + near }
    }
}
