//! All states of a model: groups of paged states, and recurrent states.
//!
//! - Input: the contents of a sequence's full blocks.
//! - Output: the longest prefix that all states can serve, and the blocks that a sequence needs.
//! - Not here: how many tokens a step computes.

use std::sync::Arc;

use super::BlockPool;
use super::prefix::Content;

/// A group of paged states.
#[derive(Debug)]
pub struct Group {
    /// The blocks of the group.
    pub pool: BlockPool,
    /// Number of keys that a query reads, itself included. `None` is full attention.
    pub window: Option<u32>,
}

impl Group {
    /// Returns the number of the first block that queries at `position` and later read.
    #[must_use]
    pub fn first_block(&self, position: u32, block_size: u32) -> u32 {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window) / block_size)
    }
}

/// The states of a model.
#[derive(Debug)]
pub struct States {
    /// Tokens in a block of every group.
    pub block_size: u32,
    /// The groups of paged states.
    pub groups: Vec<Group>,
    /// The recurrent states, if the model has recurrent layers.
    pub recurrent: Option<BlockPool>,
}

impl States {
    /// Returns the length in blocks of the longest prefix that all states can serve, at most
    /// `limit`.
    ///
    /// A group with full attention needs all blocks of the prefix. A group with a window needs the
    /// blocks that the query after the prefix reads. Recurrent layers need the state at the end of
    /// the prefix.
    #[must_use]
    pub fn longest_hit(&self, contents: &[Arc<Content>], limit: usize) -> usize {
        let mut limit = limit.min(contents.len());
        for group in self.groups.iter().filter(|group| group.window.is_none()) {
            limit = contents[..limit].iter().take_while(|content| group.pool.find(content).is_some()).count();
        }
        let windowed: Vec<(&Group, Vec<usize>)> = self
            .groups
            .iter()
            .filter(|group| group.window.is_some())
            .map(|group| (group, ranges(group, &contents[..limit])))
            .collect();
        let is_served = |&blocks: &usize| {
            let position = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(self.block_size);
            let has_blocks = windowed.iter().all(|(group, ranges)| {
                ranges[blocks - 1] + group.first_block(position, self.block_size) as usize >= blocks
            });
            has_blocks
                && self.recurrent.as_ref().is_none_or(|pool| pool.find(&contents[blocks - 1]).is_some())
        };
        (1..=limit).rev().find(is_served).unwrap_or(0)
    }

    /// Forgets all contents. No sequence may reference a block.
    pub(in crate::serving) fn forget(&mut self) {
        self.groups
            .iter_mut()
            .map(|group| &mut group.pool)
            .chain(&mut self.recurrent)
            .for_each(BlockPool::forget);
    }
}

/// Returns, for each block, the length of the contiguous range of cached blocks that ends with it.
fn ranges(group: &Group, contents: &[Arc<Content>]) -> Vec<usize> {
    let mut length = 0;
    let extend = |content: &Arc<Content>| {
        length = if group.pool.find(content).is_some() { length + 1 } else { 0 };
        length
    };
    contents.iter().map(extend).collect()
}
