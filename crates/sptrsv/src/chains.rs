//! Chains: up to [`CHAIN`] neighbouring rows that are solved together, each of which needs an earlier row of the chain.
//!
//! A row that waits for its neighbour waits for a round trip through memory if another warp solves the neighbour, but
//! only for a shuffle if the same warp does. Rows of several unknowns of one point need each other, and so do
//! neighbours along a line. Their levels are mostly such round trips. So levels consist of chains: a chain's level is
//! one more than the highest level among the chains that any of its rows needs, and the chain is solved in one go once
//! those are.
//!
//! Invariants: a chain's rows follow each other in the order of the solve, and in a row's sum the columns of its own
//! chain come after all others. So what a row needs of its own chain is added last, and no order of summation changes.
//! A row joins a chain only on two conditions. What it needs of other chains must lie in levels before the chain's, so
//! the chain waits for no more than its first row does. And padding all rows to the longest may add at most their
//! number of entries plus [`CLASS`] places per row.
//! Cost: a serial pass over the entries for each of three maximum lengths, all at the same time; 24 bytes per row.
//! Reference: supernodes, which demand more than a chain does: Ashcraft & Grimes 1989, The influence of relaxed
//! supernode partitions on the multifrontal method.

use rayon::prelude::*;
use spandrel_formats::profile::Levels;
use spandrel_formats::{Offset, Ordinal};

/// Maximum number of rows per chain: the lanes of a warp.
pub const CHAIN: usize = 32;
/// The link of the first row of a chain: see [`crate::levelset::Schedule::links`]. `HEAD` of kernels/chains.cu.
pub const HEAD: u32 = 1 << 31;
/// Maximum number of entries of other chains in the longest row of a chain.
pub const LONG: usize = 64;
/// Step by which row lengths are classed.
pub const CLASS: usize = 4;

/// Maximum number of rows per slice for which each row has several lanes of a GPU's warp: `FEW` of kernels/chains.cu.
pub const FEW: usize = 16;
/// Maximum chain lengths to try. A long chain costs the time of all its rows, and fewer lanes look up what each of them
/// needs of other chains.
const LIMITS: [usize; 3] = [1, 8, CHAIN];

/// Number of lanes per row in a slice of `rows` rows.
pub(crate) fn lanes(rows: usize) -> usize {
    if rows > FEW { 1 } else { CHAIN / rows.next_power_of_two() }
}

/// Returns true if padding all rows to the longest adds at most their number of entries plus [`CLASS`] places per row.
#[inline(always)]
pub(crate) fn fits(shape: Shape) -> bool {
    shape.rows * (shape.far + shape.near) <= 2 * shape.entries + CLASS * shape.rows
}

/// The size of a group of rows that are solved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    /// The most entries that one row has of other chains, and of its own.
    pub(crate) far: usize,
    pub(crate) near: usize,
    /// Number of entries of all rows.
    pub(crate) entries: usize,
}

impl Shape {
    /// The group of both.
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

/// Rows with their levels and chains, indexed by the place at which each is solved.
pub(crate) struct Ranked {
    pub(crate) level_of: Vec<Ordinal>,
    /// Number of entries of each row that refer to other chains.
    pub(crate) lengths: Vec<Ordinal>,
    /// Bit t is set if the row has an entry of the t-th row of its chain; [`HEAD`] for the first row.
    pub(crate) links: Vec<u32>,
    /// Where each level begins.
    pub(crate) level_ptr: Vec<Offset>,
    linked: bool,
}

/// Chains of at most `limit` rows, for the rows seen so far.
struct Trial {
    limit: usize,
    /// The chain that may still grow: its first place, its size, its level.
    first: usize,
    chain: Shape,
    level: Ordinal,
    /// For each level: its rows, the rows of the longest chain less one, and the most entries that a row has of other
    /// chains.
    levels: Vec<(Offset, u32, u32)>,
    /// For each row: its level plus one, which a row that needs it asks for; and its link.
    after: Vec<Ordinal>,
    links: Vec<u32>,
    /// The expected total cost.
    cost: f64,
}

impl Trial {
    /// Tries one limit, for rows as in [`Ranked::of`]. `place_of` gives the place of a needed row.
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

    /// Adds a row with `entries` entries in total, those of the current chain in `link`; the others require `level`.
    /// Returns its link.
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
        // Levels are added one at a time.
        if self.level as usize == self.levels.len() {
            self.levels.push((0, 0, 0));
        }
        let (rows, links, longest) = &mut self.levels[self.level as usize];
        *rows += 1;
        (*links, *longest) = ((*links).max(self.chain.rows as u32 - 1), (*longest).max(far as u32));
        if joins { link } else { HEAD }
    }

    /// Expected nanoseconds of a solve that waits only for levels.
    fn cost(&self, costs: &Levels) -> f64 {
        let of = |&(_, links, far): &(Offset, u32, u32)| {
            let rounds = (far as usize).div_ceil(8 * lanes(links as usize + 1)).max(1);
            costs.chained + costs.round * (rounds - 1) as f64 + f64::from(costs.link * links)
        };
        self.levels.iter().map(of).sum()
    }
}

impl Ranked {
    /// Ranks `n` rows in the order of their solve, with the chain length that is expected to be fastest at these costs.
    ///
    /// `needs` gives the places that the row at a place needs, the farthest first. A place that is not smaller than the
    /// row's own counts as known from the start. With `BACK`, `needs` gives columns of a system that is solved
    /// backwards, the nearest first.
    pub(crate) fn of<'a, const BACK: bool>(
        n: usize,
        needs: impl Fn(usize) -> &'a [Ordinal] + Sync,
        costs: &Levels,
    ) -> Self {
        let place_of = |need: Ordinal| if BACK { n - 1 - need as usize } else { need as usize };
        // The second row of a chain needs the first.
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

    /// Makes every row a chain of its own.
    fn alone<I: Iterator<Item = usize>>(n: usize, needs: impl Fn(usize) -> I) -> Self {
        let (mut after, mut lengths, mut level_ptr) = (vec![0 as Ordinal; n], vec![0 as Ordinal; n], vec![0 as Offset]);
        for place in 0..n {
            let (mut level, mut entries) = (0, 0);
            for of in needs(place) {
                level = after.get(of).map_or(level, |&after| level.max(after));
                entries += 1;
            }
            (after[place], lengths[place]) = (level + 1, entries);
            // Levels are added one at a time.
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

    /// Takes over one of the trials. `entries` gives the number of entries of a row.
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

    /// Returns true if any chain has a second row.
    pub(crate) fn is_linked(&self) -> bool {
        self.linked
    }

    /// Number of rows that are not the first of their chain.
    pub(crate) fn followers(&self) -> usize {
        self.links.iter().filter(|&&link| link != HEAD).count()
    }

    /// The size of the chain that begins at a place.
    #[inline(always)]
    pub(crate) fn shape(&self, head: usize) -> Shape {
        if !self.linked {
            return self.row(head);
        }
        let follow = self.links[head + 1..].iter().take_while(|&&link| link != HEAD).count();
        (head + 1..=head + follow).fold(self.row(head), |shape, place| shape.and(self.row(place)))
    }

    /// The size of one row of a chain.
    #[inline(always)]
    pub(crate) fn row(&self, place: usize) -> Shape {
        let (far, near) = (self.lengths[place] as usize, (self.links[place] & !HEAD).count_ones() as usize);
        Shape { rows: 1, far, near, entries: far + near }
    }
}
