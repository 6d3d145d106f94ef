//! Experts that the tokens of a step are sent to.
//!
//! Roundings of 16 bits change choices between nearly equal scores, so two layouts are compared on
//! the same choices; see `program/models/choices.rs`.
//!
//! - Input: the choices of each router on each micro-batch, in the order of the cards' tokens.
//! - Output: the choices of the whole batch in text order, and the inputs of another layout.

use std::collections::BTreeMap;

use crate::base::DType;
use crate::config::ModelConfig;
use crate::exec;
use crate::program::HostTensor;
use crate::program::models::{ChosenExperts, choice_of, given_name};
use crate::world::ProcessGroup;

use super::error::Error;
use super::inputs::MicroBatch;
use super::recipe::Recipe;

/// Who chooses the experts of each token of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Routing {
    /// The routers of the model.
    #[default]
    Routers,
    /// The routers of the model, and the step returns their choices.
    Shown,
    /// The caller. The step returns the choices that its routers would make.
    Given,
}

/// Choices of experts of one global batch, by router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchChoices {
    routers: BTreeMap<String, RouterChoices>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RouterChoices {
    /// Experts per token.
    chosen: usize,
    /// `[global_batch, sequence, chosen]`.
    experts: Vec<i64>,
}

impl BatchChoices {
    /// Returns choices of the first experts, which the outputs of a step replace.
    pub(super) fn new(config: &ModelConfig, recipe: &Recipe) -> Self {
        let tokens = recipe.global_batch * recipe.seq;
        let routers = config.mixtures().map(|(layer, mixture)| {
            let chosen = mixture.chosen;
            let experts = (0..tokens).flat_map(|_| (0_i64..).take(chosen)).collect();
            (choice_of(layer), RouterChoices { chosen, experts })
        });
        Self { routers: routers.collect() }
    }

    /// Replaces the choices of a router by an output of a micro-batch. Returns false if no router
    /// has this name.
    pub(super) fn keep(&mut self, name: &str, of: &MicroBatch, output: &HostTensor) -> bool {
        let Some(RouterChoices { chosen, experts }) = self.routers.get_mut(name) else { return false };
        for (row, token) in output.ints().chunks(*chosen).zip(of.tokens()) {
            if let Some(token) = token {
                experts[token * *chosen..][..*chosen].copy_from_slice(row);
            }
        }
        true
    }

    /// Returns the inputs of a micro-batch. The padding goes to the first experts.
    pub(super) fn inputs<'a>(&'a self, of: &'a MicroBatch) -> impl Iterator<Item = (String, HostTensor)> {
        self.routers.iter().map(move |(name, RouterChoices { chosen, experts })| {
            let row = |token: Option<usize>| match token {
                Some(token) => experts[token * chosen..][..*chosen].to_vec(),
                None => (0_i64..).take(*chosen).collect(),
            };
            let shape = [of.sequences.len(), of.order.len(), *chosen];
            let experts = of.tokens().flat_map(row).collect();
            (given_name(name), HostTensor::int(shape, DType::I64, experts))
        })
    }

    /// Compares the choices of two steps on the same batch.
    #[must_use]
    pub fn compared_with(&self, other: &Self) -> ChosenExperts {
        let mut found = ChosenExperts::default();
        for (own, other) in self.routers.values().zip(other.routers.values()) {
            found.add(&own.experts, &other.experts, own.chosen);
        }
        found
    }

    /// Returns the choices of the first process. Others pass `None`.
    ///
    /// # Errors
    /// Another process failed.
    pub fn of_first(
        own: Option<Self>,
        config: &ModelConfig,
        recipe: &Recipe,
        group: &ProcessGroup,
    ) -> Result<Self, Error> {
        let mut all = own.unwrap_or_else(|| Self::new(config, recipe));
        if group.size() == 1 {
            return Ok(all);
        }
        for RouterChoices { experts, .. } in all.routers.values_mut() {
            // One router at a time, because an exchange must fit into a message.
            let mine = if group.is_first() {
                experts.iter().flat_map(|x| x.to_le_bytes()).collect()
            } else {
                Vec::new()
            };
            let sent = group.exchange("the choices of a router", mine).map_err(exec::Error::from)?;
            let first = sent.first().map(Vec::as_slice).unwrap_or_default();
            *experts = first.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(experts: Vec<i64>) -> BatchChoices {
        let routers = [(choice_of(1), RouterChoices { chosen: 2, experts })];
        BatchChoices { routers: routers.into_iter().collect() }
    }

    #[test]
    fn inputs_of_another_order_come_back_as_they_were() {
        let whole = choices(vec![5, 1, 2, 0, 3, 4, 6, 7]);
        let of = MicroBatch { sequences: vec![Some(1), None, Some(0)], order: vec![1, 0] };
        let (name, input) = whole.inputs(&of).next().unwrap();
        assert_eq!(name, "given.layers.1.mlp.router.experts");
        assert_eq!(input.ints(), [6, 7, 3, 4, 0, 1, 0, 1, 2, 0, 5, 1]);
        let mut found = choices(vec![0; 8]);
        assert!(!found.keep("layers.0.mlp.router.experts", &of, &input));
        assert!(found.keep("layers.1.mlp.router.experts", &of, &input));
        assert_eq!(found, whole);
    }

    #[test]
    fn the_order_within_a_choice_is_no_difference() {
        let [first, second] = [vec![5, 1, 2, 0, 3, 4, 6, 7], vec![1, 5, 2, 1, 3, 4, 7, 6]].map(choices);
        assert_eq!(first.compared_with(&second), ChosenExperts { rows: 4, differing: 1 });
    }
}
