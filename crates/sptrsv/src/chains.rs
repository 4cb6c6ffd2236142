//! Chains: up to [`CHAIN`] neighbouring rows, each of which needs one of those before it, solved together.
//!
//! A row that waits for its neighbour waits for a trip through memory where others solve the neighbour, and for a shuffle where the same warp
//! does. Rows of several unknowns of a point need each other, and so do neighbours along a line: their levels are mostly such trips. Levels
//! are therefore of chains: a chain's level is one more than the highest among the chains that any of its rows needs, so it is solved in
//! one go when those are.
//! Invariants: a chain's rows follow each other in the order of their solve, and so do their columns behind all others in the order of a row's sum: what
//! a row needs of its own chain is added last, and no order changes. A row joins only where what it needs of other chains lies in levels before
//! its chain's, so the chain waits for no more than its first row does, and only where
//! its rows, each in as many places as the longest has, are padded by no more than their entries and [`CLASS`] places a row.
//! Cost: a serial pass over the entries for each of three limits of rows that are tried, all at the same time; 24 bytes a row.
//! Reference: supernodes, of which a chain asks less: Ashcraft & Grimes 1989, The influence of relaxed supernode partitions on the multifrontal method.

use rayon::prelude::*;
use spandrel_formats::profile::Levels;
use spandrel_formats::{Offset, Ordinal};

/// Rows of a chain at most: the lanes of a warp.
pub const CHAIN: usize = 32;
/// The link of a row that begins a chain: see [`crate::levelset::Schedule::links`]. `HEAD` of kernels/chains.cu.
pub const HEAD: u32 = 1 << 31;
/// Entries of rows of other chains that the longest row of a chain has.
pub const LONG: usize = 64;
/// Entries by which lengths of rows are told apart.
pub const CLASS: usize = 4;

/// Rows of a slice up to which each has several lanes of a GPU's warp: `FEW` of kernels/chains.cu.
pub const FEW: usize = 16;
/// Rows of a chain that are tried: a long one costs all of its rows, and what each of them needs of others is looked for by fewer lanes.
const LIMITS: [usize; 3] = [1, 8, CHAIN];

/// Lanes that each of so many rows of a slice has.
pub(crate) fn lanes(rows: usize) -> usize {
    if rows > FEW { 1 } else { CHAIN / rows.next_power_of_two() }
}

/// Whether so many rows, each in as many places as the longest has, are padded by no more than their entries and [`CLASS`] places a row.
#[inline(always)]
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
    #[inline(always)]
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
    linked: bool,
}

/// Chains of so many rows at most, as far as the rows have been looked at.
struct Trial {
    limit: usize,
    /// The chain that may go on: where it begins, what it is, its level.
    first: usize,
    chain: Shape,
    level: Ordinal,
    /// Of each level its rows, the most rows of a chain less one, and the most entries that a row has of other chains.
    levels: Vec<(Offset, u32, u32)>,
    /// Of each row one more than its level, which is what a row that needs it asks for, and its link.
    after: Vec<Ordinal>,
    links: Vec<u32>,
    /// What all of it is expected to cost.
    cost: f64,
}

impl Trial {
    /// Of rows as [`Ranked::of`] has them, in the order of `place_of`.
    fn of<'a, const BACK: bool>(
        limit: usize,
        n: usize,
        needs: impl Fn(usize) -> &'a [Ordinal],
        place_of: impl Fn(Ordinal) -> usize,
        costs: &Levels,
    ) -> Self {
        let (chain, levels) = (Shape::default(), Vec::new());
        let mut trial =
            Self { limit, first: 0, chain, level: 0, levels, after: vec![0; n], links: vec![0; n], cost: 0.0 };
        for place in 0..n {
            let (mut asked, mut link) = (0 as Ordinal, 0u32);
            let needs = needs(place);
            let mut far = needs;
            while let Some(&need) = if BACK { far.first() } else { far.last() } {
                let of = place_of(need);
                if of < trial.first || of >= place {
                    break;
                }
                link |= 1 << (of - trial.first);
                far = if BACK { &far[1..] } else { &far[..far.len() - 1] };
            }
            for &need in far {
                asked = trial.after.get(place_of(need)).map_or(asked, |&after| asked.max(after));
            }
            trial.links[place] = trial.put(place, needs.len(), link, asked);
            trial.after[place] = trial.level + 1;
        }
        trial.cost = trial.cost(costs);
        trial
    }

    /// A row: so many entries in all, of the chain those in `link`, and the level that the others ask for. Gives its link.
    #[inline(always)]
    fn put(&mut self, place: usize, entries: usize, link: u32, level: Ordinal) -> u32 {
        let near = link.count_ones() as usize;
        let joined = self.chain.and(Shape { rows: 1, far: entries - near, near, entries });
        let may = near > 0 && level <= self.level && joined.rows <= self.limit;
        let joins = may && joined.far <= LONG && fits(joined);
        let far = if joins {
            self.chain = joined;
            entries - near
        } else {
            self.level = if near > 0 { level.max(self.level + 1) } else { level };
            (self.first, self.chain) = (place, Shape { rows: 1, far: entries, near: 0, entries });
            entries
        };
        // Levels come one by one.
        if self.level as usize == self.levels.len() {
            self.levels.push((0, 0, 0));
        }
        let (rows, links, longest) = &mut self.levels[self.level as usize];
        *rows += 1;
        (*links, *longest) = ((*links).max(self.chain.rows as u32 - 1), (*longest).max(far as u32));
        if joins { link } else { HEAD }
    }

    /// Expected nanoseconds of a solve that waits for nothing but levels.
    fn cost(&self, costs: &Levels) -> f64 {
        let of = |&(_, links, far): &(Offset, u32, u32)| {
            let rounds = (far as usize).div_ceil(8 * lanes(links as usize + 1)).max(1);
            costs.chained + costs.round * (rounds - 1) as f64 + f64::from(costs.link * links)
        };
        self.levels.iter().map(of).sum()
    }
}

impl Ranked {
    /// Of `n` rows in the order of their solve, with chains of as many rows as is expected to be fastest at these costs. `needs` gives what the row at a place
    /// needs: places, the farthest first; one that is no smaller than the row's is known from the start. `BACK`: columns of a system that is solved
    /// backwards in their place, the nearest first.
    pub(crate) fn of<'a, const BACK: bool>(
        n: usize,
        needs: impl Fn(usize) -> &'a [Ordinal] + Sync,
        costs: &Levels,
    ) -> Self {
        let place_of = |need: Ordinal| if BACK { n - 1 - need as usize } else { need as usize };
        // A chain's second row needs its first.
        let nearest = |needs: &[Ordinal]| if BACK { needs.first().copied() } else { needs.last().copied() };
        let follow = (1..n).filter(|&place| nearest(needs(place)).map(place_of) == Some(place - 1)).count();
        if follow < n / CHAIN {
            return Self::alone(n, |place| needs(place).iter().map(|&need| place_of(need)));
        }
        let trials: Vec<Trial> =
            LIMITS.into_par_iter().map(|limit| Trial::of::<BACK>(limit, n, &needs, place_of, costs)).collect();
        let best = (1..trials.len()).fold(0, |best, t| if trials[t].cost < trials[best].cost { t } else { best });
        match trials.into_iter().nth(best) {
            Some(trial) => Self::chosen(trial, |place| needs(place).len()),
            None => unreachable!("there are trials"),
        }
    }

    /// Every row a chain of its own.
    fn alone<I: Iterator<Item = usize>>(n: usize, needs: impl Fn(usize) -> I) -> Self {
        let (mut after, mut lengths, mut level_ptr) = (vec![0 as Ordinal; n], vec![0 as Ordinal; n], vec![0 as Offset]);
        for place in 0..n {
            let (mut level, mut entries) = (0, 0);
            for of in needs(place) {
                level = after.get(of).map_or(level, |&after| level.max(after));
                entries += 1;
            }
            (after[place], lengths[place]) = (level + 1, entries);
            // Levels come one by one.
            if level as usize + 1 == level_ptr.len() {
                level_ptr.push(0);
            }
            level_ptr[level as usize + 1] += 1;
        }
        for level in 1..level_ptr.len() {
            level_ptr[level] += level_ptr[level - 1];
        }
        after.iter_mut().for_each(|level| *level -= 1);
        Self { level_of: after, lengths, links: vec![HEAD; n], level_ptr, linked: false }
    }

    /// By one of the trials, of rows with so many entries.
    fn chosen(trial: Trial, entries: impl Fn(usize) -> usize) -> Self {
        let Trial { after: mut level_of, links, levels, .. } = trial;
        level_of.iter_mut().for_each(|level| *level -= 1);
        let far = |(place, link): (usize, &u32)| entries(place) as Ordinal - (link & !HEAD).count_ones();
        let lengths = links.iter().enumerate().map(far).collect();
        let mut level_ptr = Vec::with_capacity(levels.len() + 1);
        level_ptr.push(0);
        level_ptr.extend(levels.iter().scan(0, |end, &(rows, ..)| {
            *end += rows;
            Some(*end)
        }));
        let linked = levels.iter().any(|&(_, links, _)| links > 0);
        Self { level_of, lengths, links, level_ptr, linked }
    }

    /// Whether any chain has a second row.
    pub(crate) fn is_linked(&self) -> bool {
        self.linked
    }

    /// Rows that are not the first of their chain.
    pub(crate) fn followers(&self) -> usize {
        self.links.iter().filter(|&&link| link != HEAD).count()
    }

    /// The chain that begins at a place.
    #[inline(always)]
    pub(crate) fn shape(&self, head: usize) -> Shape {
        if !self.linked {
            return self.row(head);
        }
        let follow = self.links[head + 1..].iter().take_while(|&&link| link != HEAD).count();
        (head + 1..=head + follow).fold(self.row(head), |shape, place| shape.and(self.row(place)))
    }

    /// A row of it.
    #[inline(always)]
    pub(crate) fn row(&self, place: usize) -> Shape {
        let (far, near) = (self.lengths[place] as usize, (self.links[place] & !HEAD).count_ones() as usize);
        Shape { rows: 1, far, near, entries: far + near }
    }
}
