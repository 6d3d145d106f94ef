//! A fixed order of summation, so that sharded sums have the same bits on any number of devices.
//!
//! The order is a binary tree over the whole dim. A dim is halved into balanced parts until it has
//! the requested number of blocks, or single elements. One operator sums a block, and blocks are
//! added in pairs. If there are several dims, the first is halved first.
//!
//! A device that holds a tree node sums this node, and devices add their nodes in pairs. The
//! sharding determines where an addition happens, but not which additions happen. Balanced parts
//! ([`Remainder::Balanced`]) of balanced parts are balanced parts of the whole, so shards on 1, 2,
//! 4, … devices are nodes.

use std::ops::Range;

use crate::base::Remainder;

/// Number of halvings for dims of weights and vocabularies. It limits their sharding to
/// `2^BLOCK_LEVELS` devices.
pub const BLOCK_LEVELS: usize = 4;

/// The order of summation over devices or micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// Each device and micro-batch is added sequentially; the result depends on the sharding.
    #[default]
    AsTheyCome,
    /// Tree order, independent of the sharding.
    Tree,
}

/// A summed dim and its number of halvings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halved {
    /// Elements of the whole dim.
    pub size: usize,
    /// Halvings from the whole dim to a block.
    pub levels: usize,
}

impl Halved {
    /// Halves a dim to single elements.
    #[must_use]
    pub fn singly(size: usize) -> Self {
        Self { size, levels: size.max(1).next_power_of_two().trailing_zeros() as usize }
    }

    /// Distributes [`BLOCK_LEVELS`] halvings over dims of these sizes, from the first on. If other
    /// dims of more than one element follow, an even first dim is halved only while it is even.
    /// Device counts that do not divide it shard another dim. An odd first dim is halved anyway.
    #[must_use]
    pub fn blocks(sizes: &[usize]) -> Vec<Self> {
        let mut left = BLOCK_LEVELS;
        let halved = |(at, size): (usize, &usize)| {
            let own = match at {
                0 if size.is_multiple_of(2) && sizes[1..].iter().any(|size| *size > 1) => {
                    size.trailing_zeros() as usize
                }
                _ => Self::singly(*size).levels,
            };
            let levels = own.min(left);
            left -= levels;
            Self { size: *size, levels }
        };
        sizes.iter().enumerate().map(halved).collect()
    }

    /// Returns the depth of a range in the tree, or `None` if it is empty or not a node.
    #[must_use]
    pub fn depth(&self, range: &Range<usize>) -> Option<usize> {
        self.node(range).map(|node| node.level)
    }

    fn node(&self, range: &Range<usize>) -> Option<HalvedNode> {
        // If several parts start at this element, all but the last are empty.
        let at =
            |level: usize| HalvedNode { dim: *self, level, index: (range.start << level) / self.size.max(1) };
        (0..=self.levels).map(at).find(|node| node.range() == *range)
    }
}

#[derive(Clone, Copy)]
struct HalvedNode {
    dim: Halved,
    level: usize,
    index: usize,
}

impl HalvedNode {
    fn range(&self) -> Range<usize> {
        Remainder::Balanced.range(self.dim.size, 1 << self.level, self.index)
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let half = |index| Self { level: self.level + 1, index, ..*self };
        (self.level < self.dim.levels && self.range().len() > 1)
            .then(|| [0, 1].map(|at| half(2 * self.index + at)))
    }
}

/// The order of a sum over part of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A block, with the range of each dim.
    Block(Vec<Range<usize>>),
    /// The sum of two nodes, in order.
    Join(Box<[Self; 2]>),
}

impl Node {
    /// Returns the tree of a part that begins at `starts` and has these `sizes`, with indices
    /// relative to the part. A range that is not a node becomes one block; [`node_problem`] reports
    /// such ranges.
    #[must_use]
    pub fn of_part(dims: &[Halved], starts: &[usize], sizes: &[usize]) -> Self {
        let part = |((dim, start), size): ((&Halved, &usize), &usize)| {
            let range = *start..start + size;
            (dim.node(&range), range, *start)
        };
        Self::below(&dims.iter().zip(starts).zip(sizes).map(part).collect::<Vec<_>>())
    }

    /// Builds the tree of dims, each with its node, if any, its range and the start of the part.
    fn below(dims: &[(Option<HalvedNode>, Range<usize>, usize)]) -> Self {
        let halves =
            dims.iter().enumerate().find_map(|(at, (node, ..))| Some((at, node.as_ref()?.halves()?)));
        let Some((at, halves)) = halves else {
            return Self::Block(
                dims.iter().map(|(_, range, start)| range.start - start..range.end - start).collect(),
            );
        };
        let half = |half: HalvedNode| {
            let mut dims = dims.to_vec();
            dims[at] = (Some(half), half.range(), dims[at].2);
            Self::below(&dims)
        };
        Self::Join(Box::new(halves.map(half)))
    }

    /// Returns the blocks in order, if all have the same size and the tree is perfectly balanced.
    #[must_use]
    pub fn even_blocks(&self) -> Option<Vec<Vec<Range<usize>>>> {
        match self {
            Self::Block(ranges) => Some(vec![ranges.clone()]),
            Self::Join(both) => {
                let [mut first, second] = [both[0].even_blocks()?, both[1].even_blocks()?];
                let size = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).collect::<Vec<_>>();
                let is_even = first.len() == second.len() && size(&first[0]) == size(&second[0]);
                first.extend(second);
                is_even.then_some(first)
            }
        }
    }
}

impl Node {
    /// Returns the number of blocks, if there are several of equal length and each is contiguous in
    /// nested dims of these sizes.
    #[must_use]
    pub fn runs(&self, sizes: &[usize]) -> Option<usize> {
        let blocks = self.even_blocks().filter(|blocks| blocks.len() > 1)?;
        let is_run = |block: &[Range<usize>]| {
            let cut = block.iter().zip(sizes).position(|(range, _)| range.len() > 1).unwrap_or(block.len());
            block.len() == sizes.len()
                && block.iter().zip(sizes).skip(cut + 1).all(|(range, size)| range.len() == *size)
        };
        blocks.iter().all(|block| is_run(block)).then_some(blocks.len())
    }
}

/// Returns the reason why devices cannot add their nodes, if any. Each dim has its halvings, the
/// range of each device, and the number of devices that shard it.
#[must_use]
pub fn node_problem(dims: &[(Halved, Vec<Range<usize>>, usize)]) -> Option<String> {
    let mut is_open = false;
    for (dim, ranges, cards) in dims.iter().filter(|(dim, _, cards)| dim.size > 1 || *cards > 1) {
        let levels = cards.trailing_zeros() as usize;
        if *cards > 1 && is_open {
            return Some(
                "a dim is cut before the one that is summed outside it is in single blocks".to_owned(),
            );
        }
        if !cards.is_power_of_two() {
            return Some(format!("{cards} cards cut it, which is no power of two"));
        }
        let Halved { size, levels: halvings } = dim;
        if ranges.iter().any(Range::is_empty) {
            return Some(format!("{cards} cards cut a dim of {size} elements, so that one has none"));
        }
        if let Some(range) = ranges.iter().find(|range| dim.depth(range) != Some(levels)) {
            return Some(format!(
                "{}..{} is no part of {size} elements halved {halvings} times",
                range.start, range.end
            ));
        }
        is_open |= levels < dim.levels;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(range).collect()
    }

    fn blocks(node: &Node) -> Vec<Vec<Range<usize>>> {
        match node {
            Node::Block(ranges) => vec![ranges.clone()],
            Node::Join(both) => both.iter().flat_map(blocks).collect(),
        }
    }

    #[test]
    fn blocks_of_parts_are_those_of_the_whole() {
        for size in [1, 5, 6, 14, 16, 37, 64, 151, 259] {
            let dim = Halved::blocks(&[size]);
            let whole = blocks(&Node::of_part(&dim, &[0], &[size]));
            for cards in [2, 4, 8, 16] {
                let parts: Vec<Range<usize>> =
                    (0..cards).map(|at| Remainder::Balanced.range(size, cards, at)).collect();
                let problem = node_problem(&[(dim[0], parts.clone(), cards)]);
                // A device without elements has no node.
                assert_eq!(problem.is_some(), size < cards && size > 0, "{size} over {cards}: {problem:?}");
                if problem.is_some() {
                    continue;
                }
                let of_part = |part: &Range<usize>| {
                    let own = blocks(&Node::of_part(&dim, &[part.start], &[part.len()]));
                    own.into_iter()
                        .map(|b| one(b[0].start + part.start..b[0].end + part.start))
                        .collect::<Vec<_>>()
                };
                assert_eq!(parts.iter().flat_map(of_part).collect::<Vec<_>>(), whole, "{size} over {cards}");
            }
        }
    }

    #[test]
    fn sixteen_blocks_are_shared_among_dims_and_what_is_odd_in_one_is_left_to_those_behind() {
        let levels = |sizes: &[usize]| Halved::blocks(sizes).iter().map(|dim| dim.levels).collect::<Vec<_>>();
        assert_eq!(levels(&[8, 4]), [3, 1]);
        assert_eq!(levels(&[2, 7]), [1, 3]);
        assert_eq!(levels(&[3, 2]), [2, 1]);
        assert_eq!(levels(&[3, 1]), [2, 0]);
        assert_eq!(levels(&[704]), [4]);
    }

    #[test]
    fn cards_that_hold_no_node_are_refused() {
        let cut = |size: usize, ranges: &[Range<usize>]| {
            node_problem(&[(Halved::blocks(&[size])[0], ranges.to_vec(), ranges.len())])
        };
        assert_eq!(cut(7, &[0..4, 4..7]), None);
        assert!(cut(6, &[0..2, 2..4, 4..6]).is_some_and(|text| text.contains("no power of two")));
        assert!(cut(6, &[0..2, 2..4, 4..5, 5..6]).is_some_and(|text| text.contains("2..4 is no part of 6")));
        let heads = Halved::blocks(&[4, 4, 8]);
        let within = [(heads[0], one(0..4), 1), (heads[1], vec![0..2, 2..4], 2), (heads[2], one(0..8), 1)];
        assert!(node_problem(&within).is_some_and(|text| text.contains("before the one")));
    }
}
