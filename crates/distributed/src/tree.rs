//! The tree of the dot product over several ranks.
//!
//! The tree of [`spandrel_backend::Backend::dot`] has the results of blocks of 1024 elements as leaves; 1024 neighbours
//! have one parent, which is summed by 32 lanes and a halving tree. Each rank owns a contiguous range of leaves and
//! climbs as far as it owns whole subtrees. The roots of these subtrees are gathered on all ranks, and every rank sums
//! the rest, which is at most one shared node per boundary between two ranks and level.
//!
//! Cost of a sum with P ranks: one all-gather. A rank contributes one value per 1024^2 of its rows and, where its range
//! ends inside a group of 1024 blocks, up to 1023 values more at each end.

use spandrel_formats::Real;

use crate::partition::{BLOCK, Partition};

/// Children of a node.
const FAN: usize = 1024;
const LANES: usize = 32;

/// The sum of up to [`FAN`] values in the order of the tree.
fn node<T: Real>(values: impl IntoIterator<Item = T>) -> T {
    let mut lanes = [T::zero(); LANES];
    for (i, value) in values.into_iter().enumerate() {
        lanes[i % LANES] += value;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// A step of a rank's climb, from the nodes that it owns on one level to those of the next.
#[derive(Clone, Debug, PartialEq)]
struct Climb {
    /// The number of own nodes of this level whose parent is shared with another rank, on the left and on the right.
    left: usize,
    right: usize,
    /// Where they go among the values that the rank contributes.
    to: (usize, usize),
}

/// A node that several ranks contribute to: the places of its children among all values.
#[derive(Clone, Debug, PartialEq)]
struct Shared {
    children: Vec<u32>,
}

/// How the sums of a partition are formed, as one rank sees it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Blocks of this rank.
    blocks: usize,
    climbs: Vec<Climb>,
    /// Where the values that remain at the end of the climb go.
    rest: usize,
    /// Where the values of each rank begin among all values, and how many there are.
    begins: Vec<usize>,
    /// The shared nodes in the order in which they are summed. Children of a node are gathered values or earlier nodes;
    /// the values of the nodes stand behind the gathered ones.
    shared: Vec<Shared>,
}

/// A node of the tree: its level above the leaves, and its place there.
type Node = (usize, u64);

/// The nodes that a rank with the leaves `first..end` contributes, in the order of the tree; the steps of its climb;
/// and where the values that remain at the end go.
fn contribution(mut first: u64, mut end: u64, leaves: u64) -> (Vec<Node>, Vec<Climb>, usize) {
    let (mut level, mut count) = (0, leaves);
    let (mut left, mut right, mut climbs) = (Vec::new(), Vec::new(), Vec::new());
    let fan = FAN as u64;
    loop {
        let from = first.div_ceil(fan);
        let to = if end == count { count.div_ceil(fan) } else { end / fan };
        if count <= 1 || from >= to {
            break;
        }
        let (kept_left, kept_right) = (from * fan - first, end - (to * fan).min(end));
        left.extend((first..first + kept_left).map(|at| (level, at)));
        right.splice(0..0, (end - kept_right..end).map(|at| (level, at)));
        climbs.push(Climb { left: kept_left as usize, right: kept_right as usize, to: (0, 0) });
        (first, end, count, level) = (from, to, count.div_ceil(fan), level + 1);
    }
    let rest = left.len();
    left.extend((first..end).map(|at| (level, at)));
    let (mut begin, mut close) = (0, left.len() + right.len());
    for climb in &mut climbs {
        close -= climb.right;
        climb.to = (begin, close);
        begin += climb.left;
    }
    left.append(&mut right);
    (left, climbs, rest)
}

impl Tree {
    pub(crate) fn new(partition: &Partition, rank: usize) -> Self {
        let leaves = partition.len().div_ceil(BLOCK);
        let range = |rank: usize| {
            let rows = partition.rows(rank);
            (rows.start.div_ceil(BLOCK), rows.end.div_ceil(BLOCK))
        };
        let (first, end) = range(rank);
        let (_, climbs, rest) = contribution(first, end, leaves);
        let (mut nodes, mut begins) = (Vec::new(), vec![0]);
        for rank in 0..partition.size() {
            let (first, end) = range(rank);
            nodes.extend(contribution(first, end, leaves).0);
            begins.push(nodes.len());
        }
        let shared = shared(nodes, leaves);
        Self { blocks: (end - first) as usize, climbs, rest, begins, shared }
    }

    /// Blocks of this rank.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Where the values of a rank stand among all values.
    pub(crate) fn part(&self, rank: usize) -> std::ops::Range<usize> {
        self.begins[rank]..self.begins[rank + 1]
    }

    /// Number of values of all ranks.
    pub(crate) fn len(&self) -> usize {
        self.begins[self.begins.len() - 1]
    }

    /// Sums the whole subtrees of this rank. `blocks` is overwritten; `own` takes the values that it contributes.
    pub(crate) fn climb<T: Real>(&self, blocks: &mut [T], own: &mut [T]) {
        let mut nodes = blocks;
        for climb in &self.climbs {
            let right = nodes.len() - climb.right;
            own[climb.to.0..][..climb.left].copy_from_slice(&nodes[..climb.left]);
            own[climb.to.1..][..climb.right].copy_from_slice(&nodes[right..]);
            let parents = (right - climb.left).div_ceil(FAN);
            for parent in 0..parents {
                let from = climb.left + parent * FAN;
                nodes[parent] = node(nodes[from..right.min(from + FAN)].iter().copied());
            }
            nodes = &mut nodes[..parents];
        }
        own[self.rest..][..nodes.len()].copy_from_slice(nodes);
    }

    /// Number of nodes above the values: work space of [`Tree::root`].
    pub(crate) fn nodes(&self) -> usize {
        self.shared.len()
    }

    /// The root of the values of all ranks. `sums` is work space.
    pub(crate) fn root<T: Real>(&self, values: impl Fn(usize) -> T, sums: &mut [T]) -> T {
        let gathered = self.len();
        for (at, shared) in self.shared.iter().enumerate() {
            let child = |&place: &u32| match (place as usize).checked_sub(gathered) {
                None => values(place as usize),
                Some(earlier) => sums[earlier],
            };
            sums[at] = node(shared.children.iter().map(child));
        }
        match self.shared.len() {
            // A single subtree, or nothing at all.
            0 if gathered == 1 => values(0),
            0 => T::zero(),
            nodes => sums[nodes - 1],
        }
    }
}

/// The nodes above the gathered ones, in the order in which they can be summed.
fn shared(nodes: Vec<Node>, leaves: u64) -> Vec<Shared> {
    let mut shared: Vec<Shared> = Vec::new();
    let gathered = nodes.len();
    let mut row: Vec<(Node, u32)> = nodes.into_iter().zip(0..).collect();
    let (mut level, mut count) = (0, leaves);
    while count > 1 {
        let mut next: Vec<(Node, u32)> = Vec::with_capacity(row.len());
        let mut i = 0;
        while i < row.len() {
            let ((of, at), _) = row[i];
            if of > level {
                next.push(row[i]);
                i += 1;
                continue;
            }
            let parent = at / FAN as u64;
            let mut children = Vec::new();
            while let Some(&((of, at), place)) = row.get(i)
                && of == level
                && at / FAN as u64 == parent
            {
                children.push(place);
                i += 1;
            }
            next.push(((level + 1, parent), (gathered + shared.len()) as u32));
            shared.push(Shared { children });
        }
        (row, level, count) = (next, level + 1, count.div_ceil(FAN as u64));
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole tree at once.
    fn whole(mut row: Vec<f64>) -> f64 {
        while row.len() > 1 {
            row = row.chunks(FAN).map(|children| node(children.iter().copied())).collect();
        }
        row.first().copied().unwrap_or(0.0)
    }

    fn leaf(at: usize) -> f64 {
        ((at * 7919 + 13) % 1009) as f64 / 311.0 - 1.5
    }

    /// The sum of `leaves` leaves that are cut at these places.
    fn cut(leaves: usize, cuts: &[usize]) -> (Vec<f64>, Vec<Tree>) {
        let rows = (leaves as u64 * BLOCK).saturating_sub(5);
        let begins: Vec<u64> = [0].into_iter().chain(cuts.iter().map(|&at| (at as u64 * BLOCK).min(rows))).collect();
        let partition = Partition::new([begins, vec![rows]].concat()).unwrap();
        let trees: Vec<Tree> = (0..partition.size()).map(|rank| Tree::new(&partition, rank)).collect();
        let mut values = vec![f64::NAN; trees[0].len()];
        let mut first = 0;
        for (rank, tree) in trees.iter().enumerate() {
            let mut blocks: Vec<f64> = (first..first + tree.blocks()).map(leaf).collect();
            first += tree.blocks();
            tree.climb(&mut blocks, &mut values[tree.part(rank)]);
        }
        assert_eq!(first, leaves);
        let roots = trees.iter().map(|tree| tree.root(|at| values[at], &mut vec![0.0; tree.nodes()])).collect();
        (roots, trees)
    }

    #[test]
    fn the_sum_has_the_bits_of_the_whole_tree_wherever_it_is_cut() {
        let million = 1024 * 1024;
        let cases: &[(usize, &[usize])] = &[
            (0, &[0, 0]),
            (1, &[0, 1]),
            (2, &[1]),
            (31, &[0, 5, 5, 20]),
            (1024, &[512]),
            (1025, &[1024]),
            (1025, &[1]),
            (5000, &[1024, 2048, 3000, 4500]),
            (5000, &[1]),
            (5000, &[1023, 1025, 4096]),
            (million, &[million / 2]),
            (million + 1, &[million]),
            (million + 3000, &[7, 1024 * 5, million - 1, million + 1024]),
            (2 * million + 777, &[million, 2 * million]),
        ];
        for (leaves, cuts) in cases {
            let expected = whole((0..*leaves).map(leaf).collect());
            let (roots, _) = cut(*leaves, cuts);
            assert!(roots.iter().all(|root| root.to_bits() == expected.to_bits()), "{leaves} cut at {cuts:?}");
        }
    }

    #[test]
    fn whole_subtrees_are_one_value_each() {
        let (_, trees) = cut(8 * 1024, &[2048, 4096, 6144]);
        assert_eq!((trees[0].len(), trees[0].part(1)), (8, 2..4));
        let (_, trees) = cut(4 * 1024, &[2048 + 10]);
        assert_eq!((trees[0].part(0).len(), trees[0].part(1).len()), (2 + 10, 1014 + 1));
        // One rank has the root.
        let (_, trees) = cut(5000, &[]);
        assert_eq!(trees[0].len(), 1);
    }
}
