//! Contents of full blocks, with the hashes that name them.
//!
//! - Input: the tokens of a sequence, a key, and a salt.
//! - Output: one [`Content`] for each full block.
//! - Invariants: the hash is keyed, so that a client without the key cannot construct a collision.
//!   It covers the salt, the parent's hash, the tokens and their form.
//! - Not here: the choice of key and salt. The engine draws the key. The salt covers everything
//!   else that the states depend on, such as an adapter or rotary frequencies.

use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// Whether a token's bits depend on its form, prompt or generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Both forms give the same bits.
    Same,
    /// The forms differ, so that a block of generated tokens serves no prompt.
    ByPosition,
}

/// The content of a full block: its tokens, and the hash of all tokens before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    hash: u128,
    parent: u128,
    /// Number of tokens in the form of a prompt. With [`Forms::Same`] all tokens count.
    prompt_tokens: u32,
    tokens: Box<[u32]>,
}

impl Content {
    /// Returns the keyed hash.
    #[must_use]
    pub const fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns the tokens of the block.
    #[must_use]
    pub const fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Replaces the hash, so that a test can make two contents collide.
    #[cfg(test)]
    pub(super) const fn with_hash(mut self, hash: u128) -> Self {
        self.hash = hash;
        self
    }
}

/// The contents of the full blocks of one sequence, from its start.
#[derive(Clone, Debug)]
pub struct Chain {
    key: [u8; 16],
    root: u128,
    blocks: Vec<Arc<Content>>,
}

impl Chain {
    /// Creates the chain of an empty sequence.
    #[must_use]
    pub fn new(key: [u8; 16], salt: u64) -> Self {
        let mut hasher = SipHasher13::new_with_key(&key);
        hasher.write(&salt.to_le_bytes());
        Self { key, root: hasher.finish128().as_u128(), blocks: Vec::new() }
    }

    /// Returns the contents of the full blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Arc<Content>] {
        &self.blocks
    }

    #[cfg(test)]
    pub(super) const fn blocks_mut(&mut self) -> &mut Vec<Arc<Content>> {
        &mut self.blocks
    }

    /// Adds the next full block. The first `prompt_tokens` tokens have the form of a prompt.
    pub fn push(&mut self, tokens: &[u32], prompt_tokens: u32) {
        let parent = self.blocks.last().map_or(self.root, |content| content.hash);
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(&parent.to_le_bytes());
        hasher.write(&prompt_tokens.to_le_bytes());
        for token in tokens {
            hasher.write(&token.to_le_bytes());
        }
        let hash = hasher.finish128().as_u128();
        self.blocks.push(Arc::new(Content { hash, parent, prompt_tokens, tokens: tokens.into() }));
    }
}
