//! Blocks of paged states and of recurrent states, with the index of prefixes.
//!
//! - Input: requests for blocks, and the [`Content`] of full blocks.
//! - Output: block ids, and the longest prefix that all states can serve.
//! - Invariants: a block is exactly one of free, referenced, and idle (cached and unreferenced).
//!   Block 0 is never allocated: padding rows use it.
//! - Not here: device memory, and which sequence owns which block.
//!
//! A recurrent state is one block: the state of one sequence after a number of tokens, in all
//! recurrent layers. Its content is the last full block before it, whose hash covers all tokens.

mod lru;
mod prefix;
mod states;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::base::{Id as _, define_id};
use lru::Lru;

pub use prefix::{Chain, Content, Forms};
pub use states::{Group, States};

define_id!(
    /// A block of one group of paged states, or a recurrent state.
    BlockId,
    "block"
);

impl BlockId {
    /// The block of padding rows and of table entries without a block.
    pub const NULL: Self = Self(0);
}

#[derive(Clone, Debug, Default)]
struct Block {
    references: u32,
    /// The content under which the index finds the block.
    content: Option<Arc<Content>>,
    /// Time of the last release, if the block is idle.
    stamp: u64,
}

/// The blocks of one group of paged states, or all recurrent states.
///
/// A group has a separate block table: all layers with full attention, or all layers with one
/// window.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Blocks without content, a stack.
    free: Vec<BlockId>,
    /// Blocks with content and without references.
    idle: Lru,
    index: FxHashMap<u128, BlockId>,
}

impl BlockPool {
    /// Creates a pool of `blocks` blocks, the null block included.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self {
            blocks: vec![Block::default(); blocks as usize],
            free: (1..blocks).rev().map(BlockId).collect(),
            idle: Lru::default(),
            index: FxHashMap::default(),
        }
    }

    /// Returns the number of blocks without the null block.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.blocks.len().saturating_sub(1)
    }

    /// Returns the number of blocks that [`Self::allocate`] can return: free and idle blocks.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Returns the number of blocks with content that no sequence references.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Takes a block with one reference and no content.
    ///
    /// If no block is free, the idle block that was released first loses its content. Returns
    /// `None` if all blocks are referenced.
    pub fn allocate(&mut self) -> Option<BlockId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.evict()?,
        };
        self.blocks[id.index()].references = 1;
        Some(id)
    }

    fn evict(&mut self) -> Option<BlockId> {
        let id = BlockId(self.idle.pop()?);
        if let Some(content) = self.blocks[id.index()].content.take() {
            self.index.remove(&content.hash());
        }
        Some(id)
    }

    /// Returns the block with this content. Compares the tokens in addition to the hash.
    #[must_use]
    pub fn find(&self, content: &Content) -> Option<BlockId> {
        let id = *self.index.get(&content.hash())?;
        let found = self.blocks[id.index()].content.as_deref()?;
        (found == content).then_some(id)
    }

    /// Returns whether a block has content and no references.
    #[must_use]
    pub fn is_idle(&self, id: BlockId) -> bool {
        let block = &self.blocks[id.index()];
        block.references == 0 && block.content.is_some()
    }

    /// Returns whether a block has one reference and no content, so that its owner can change it.
    #[must_use]
    pub fn is_private(&self, id: BlockId) -> bool {
        let block = &self.blocks[id.index()];
        block.references == 1 && block.content.is_none()
    }

    /// Adds a reference to a block that has references or content.
    ///
    /// # Panics
    /// The block is free or the null block.
    pub fn acquire(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.index()];
        assert!(block.references > 0 || block.content.is_some(), "{id} is free");
        if block.references == 0 {
            self.idle.remove(block.stamp);
        }
        block.references += 1;
    }

    /// Removes a reference. Without references, a block with content becomes idle and any other
    /// block becomes free.
    ///
    /// Release the last block of a sequence first: a prefix is useful without its end, but not
    /// without its start.
    ///
    /// # Panics
    /// The block has no references.
    pub fn release(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.index()];
        assert!(block.references > 0, "{id} is released more often than acquired");
        block.references -= 1;
        if block.references > 0 {
            return;
        }
        if block.content.is_some() {
            block.stamp = self.idle.push(id.0);
        } else {
            self.free.push(id);
        }
    }

    /// Removes the contents of all idle blocks.
    fn forget(&mut self) {
        while let Some(id) = self.evict() {
            self.free.push(id);
        }
    }

    /// Makes a full block, or a state at a block border, available to prefix hits.
    ///
    /// Returns false, and changes nothing, if the index has the hash or the block has content
    /// already.
    ///
    /// # Panics
    /// The block has no references.
    pub fn publish(&mut self, id: BlockId, content: &Arc<Content>) -> bool {
        assert!(self.blocks[id.index()].references > 0, "{id} is published without a reference");
        if self.index.contains_key(&content.hash()) {
            return false;
        }
        let block = &mut self.blocks[id.index()];
        if block.content.is_some() {
            return false;
        }
        block.content = Some(Arc::clone(content));
        self.index.insert(content.hash(), id);
        true
    }
}

#[cfg(test)]
mod tests;
