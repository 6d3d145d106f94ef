//! Inputs of a decoder that say which tokens are where: masks and rotary angles.
//!
//! Input: a [`ModelConfig`]. Output: the masks and rotary tables that its programs read.
//!
//! Invariants: the builder of programs and all callers that fill inputs use these lists.

use crate::config::{ModelConfig, Rotary};

use super::input;

/// A mask that programs of a configuration read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskInput {
    /// Name of the input.
    pub name: &'static str,
    /// Number of keys that a token sees, itself included. `None`: all earlier tokens.
    pub window: Option<usize>,
}

impl MaskInput {
    /// Returns whether the mask hides the key at position `key` from the token at position `token`.
    #[must_use]
    pub const fn hides(&self, token: usize, key: usize) -> bool {
        key > token || matches!(self.window, Some(window) if token - key >= window)
    }
}

/// Returns the masks that programs of `config` read: one for layers without a window, and one for
/// layers with it.
#[must_use]
pub fn masks(config: &ModelConfig) -> Vec<MaskInput> {
    let all = MaskInput { name: input::MASK, window: None };
    let window = MaskInput { name: input::WINDOW_MASK, window: config.window() };
    let is_read =
        |mask: &MaskInput| config.softmax_attentions().any(|attention| attention.window == mask.window);
    let mut masks: Vec<MaskInput> = [all, window].into_iter().filter(is_read).collect();
    masks.dedup_by_key(|mask| mask.window);
    masks
}

/// A rotary table that programs of a configuration read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryInput {
    /// Name of the input with the cosines.
    pub cos: &'static str,
    /// Name of the input with the sines.
    pub sin: &'static str,
    /// Embedding of the table.
    pub rotary: Rotary,
}

/// Returns the rotary tables that programs of `config` read.
#[must_use]
pub fn rotary_tables(config: &ModelConfig) -> Vec<RotaryInput> {
    let global = RotaryInput { cos: input::COS, sin: input::SIN, rotary: Rotary::Global };
    let local = RotaryInput { cos: input::LOCAL_COS, sin: input::LOCAL_SIN, rotary: Rotary::Local };
    let is_read =
        |table: &RotaryInput| config.softmax_attentions().any(|attention| attention.rotary == table.rotary);
    [global, local].into_iter().filter(is_read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_three_shows_the_token_and_two_before() {
        let mask = MaskInput { name: "mask", window: Some(3) };
        let shown: Vec<usize> = (0..8).filter(|key| !mask.hides(5, *key)).collect();
        assert_eq!(shown, [3, 4, 5]);
        let all = MaskInput { name: "mask", window: None };
        assert_eq!((0..8).filter(|key| !all.hides(2, *key)).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
