//! Low-rank adapters that a serving program has next to its weights.
//!
//! Input: names, ranks and layers of adapters. Output: which rows of the stacked factors belong to
//! an adapter.
//!
//! Invariants: each adapted layer has one pair of factors for all adapters: `A` stacks the rows of
//! their factors, `B` the columns. An adapter has the same rows in all layers. Rows that it lacks
//! in a layer are zeros. So one input per sequence chooses an adapter in all layers.
//!
//! Not here: the numbers of the factors (`weights`).

use std::collections::BTreeSet;
use std::ops::Range;

/// The adapters that a model serves. Without adapters, programs have no factors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterSet {
    adapters: Vec<(String, usize)>,
    layers: BTreeSet<String>,
}

impl AdapterSet {
    /// Creates the set from the name and the largest rank of each adapter, and from the layers that
    /// at least one adapter has, such as `model.layers.0.self_attn.q_proj`.
    #[must_use]
    pub(crate) const fn new(adapters: Vec<(String, usize)>, layers: BTreeSet<String>) -> Self {
        Self { adapters, layers }
    }

    /// Returns the names of the adapters, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.adapters.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the position of an adapter.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.names().position(|known| known == name)
    }

    /// Returns the sum of the ranks of all adapters: the rows of a stacked `A`.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.adapters.iter().map(|(_, rank)| rank).sum()
    }

    /// Returns the rows of a stacked `A` that belong to an adapter.
    #[must_use]
    pub(crate) fn rows(&self, adapter: usize) -> Range<usize> {
        let first = self.adapters[..adapter].iter().map(|(_, rank)| rank).sum();
        first..first + self.adapters[adapter].1
    }

    /// Returns the adapted layers, sorted by name.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(String::as_str)
    }

    /// Returns whether a layer is adapted.
    pub(crate) fn has_layer(&self, layer: &str) -> bool {
        self.layers.contains(layer)
    }
}
