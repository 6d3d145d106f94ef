//! Inputs of the programs of a step.
//!
//! - Input: the batch of a step, and the numbers of its update.
//! - Output: the tensors of each micro-batch, by the names of the program's inputs.
//!
//! Sequences beyond the global batch are padding: their labels have a weight of zero.

use crate::base::DType;
use crate::config::ModelConfig;
use crate::exec::{Elements, NamedTensors};
use crate::program::HostTensor;
use crate::program::models::{input, masks, rotary_tables};
use crate::schedule::numbered;

use super::choices::BatchChoices;
use super::compile::Layout;
use super::context;
use super::data::Batch;
use super::program::name;
use super::recipe::Recipe;
use super::routers::RouterFactors;

/// Tokens of a micro-batch.
pub(super) struct MicroBatch {
    /// Numbers of its sequences in the global batch, `None` for padding.
    pub(super) sequences: Vec<Option<usize>>,
    /// Order of the tokens of each sequence.
    pub(super) order: Vec<usize>,
}

impl MicroBatch {
    pub(super) fn new(recipe: &Recipe, layout: &Layout, at: usize) -> Self {
        let batch = layout.batch();
        let sequences = (at * batch..(at + 1) * batch).map(|row| (row < recipe.global_batch).then_some(row));
        // Exact runs use the text order on every layout, because products sum tokens in input
        // order.
        let order = context::order(recipe.seq, if recipe.exact { 1 } else { layout.context });
        Self { sequences: sequences.collect(), order }
    }

    /// Returns the number of each token in the global batch, in the order of the inputs.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Option<usize>> {
        let sequence = self.order.len();
        let of_row = move |row: &Option<usize>| {
            let row = *row;
            self.order.iter().map(move |token| row.map(|row| row * sequence + token))
        };
        self.sequences.iter().flat_map(of_row)
    }
}

/// Everything that determines the inputs of a step.
pub(super) struct StepInputs<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) recipe: &'a Recipe,
    pub(super) layout: &'a Layout,
    pub(super) batch: &'a Batch,
    /// Labels that count in the loss.
    pub(super) labels: usize,
    pub(super) loss_scale: f64,
    /// Choices of experts that replace the choices of the routers.
    pub(super) choices: Option<&'a BatchChoices>,
}

impl StepInputs<'_> {
    /// Returns the inputs of all micro-batches of a pipeline. The last one also gets `of_update`.
    pub(super) fn of_stages(&self, of_update: impl Iterator<Item = (String, Elements)>) -> NamedTensors {
        let count = self.layout.micro_batches(self.recipe);
        let of = |at: usize| move |(name, tensor): (String, Elements)| (numbered(at, &name), tensor);
        let mut all: NamedTensors =
            (0..count).flat_map(|at| self.of_micro_batch(at).into_iter().map(of(at))).collect();
        all.extend(of_update.map(of(count - 1)));
        all
    }

    /// Returns the inputs of a micro-batch.
    pub(super) fn of_micro_batch(&self, at: usize) -> NamedTensors {
        let Self { config, batch, .. } = *self;
        let of = MicroBatch::new(self.recipe, self.layout, at);
        let [b, s] = [of.sequences.len(), of.order.len()];
        // A sequence of the batch has one more token than labels.
        let ids = |shift: usize| {
            let token = |token: Option<usize>| {
                token.map_or(0, |token| i64::from(batch.tokens[token + token / s + shift]))
            };
            HostTensor::int([b, s], DType::I64, of.tokens().map(token).collect())
        };
        let share = (self.labels as f64).recip() as f32;
        let is_counted = |token: Option<usize>| token.is_some_and(|token| batch.ignore[token] == 0);
        let weights = of.tokens().map(|token| if is_counted(token) { share } else { 0.0 });
        let mut tensors = vec![
            (input::IDS, ids(0)),
            (input::LABELS, ids(1)),
            (input::LABEL_WEIGHTS, HostTensor::float([b, s], DType::F32, weights.collect())),
        ];
        let positions = of.tokens().zip(of.order.iter().cycle()).map(|(token, at)| {
            token.map_or(*at, |token| usize::try_from(batch.positions[token]).unwrap_or_default())
        });
        let positions: Vec<usize> = positions.collect();
        let dtype = self.recipe.precision.dtype();
        for table in rotary_tables(config) {
            let rope = config.rope_of(table.rotary);
            let (cos, sin) = rope.cos_sin(config.head_dim, &positions, s);
            let shape = [b, s, rope.rotated_dims(config.head_dim)];
            tensors.push((table.cos, HostTensor::float(shape, dtype, cos)));
            tensors.push((table.sin, HostTensor::float(shape, dtype, sin)));
        }
        if let Some(logn) = &config.logn {
            tensors.push((input::LOGN, HostTensor::float([b, s, 1, 1, 1], dtype, logn.scale(&positions))));
        }
        if config.has_mixture() {
            let routed = of.tokens().map(|token| if token.is_some() { 1.0 } else { 0.0 }).collect();
            tensors.push((input::ROUTED, HostTensor::float([b, s], DType::F32, routed)));
        }
        let factors = RouterFactors::of(config, self.recipe, self.layout, at);
        let all: NamedTensors = tensors.into_iter().collect();
        let all = self.masks(&of).fold(all, |all, (name, hidden)| all.with(name, hidden));
        let cotangents = factors.cotangents(self.recipe, self.loss_scale).into_iter();
        let mut all = cotangents.fold(all, |all, (name, number)| all.with(name, number));
        if let Some(choices) = self.choices {
            let choices: NamedTensors = choices.inputs(&of).collect();
            all.extend(choices);
        }
        all.with(name::LOSS_SCALE, self.loss_scale as f32)
    }

    /// Returns the masks of a micro-batch. A token attends to itself and to earlier tokens of the
    /// same document.
    fn masks<'a>(&'a self, of: &'a MicroBatch) -> impl Iterator<Item = (&'static str, Vec<bool>)> + 'a {
        let s = of.order.len();
        let document = move |sequence: Option<usize>, token: usize| {
            sequence.map(|row| self.batch.documents[row * s + token])
        };
        masks(self.config).into_iter().map(move |mask| {
            let mut hidden = Vec::with_capacity(of.sequences.len() * s * s);
            for sequence in &of.sequences {
                for token in &of.order {
                    let own = document(*sequence, *token);
                    let hides = |key: &usize| mask.hides(*token, *key) || document(*sequence, *key) != own;
                    hidden.extend(of.order.iter().map(hides));
                }
            }
            (mask.name, hidden)
        })
    }
}

/// Returns a scalar input.
pub(super) fn number_input(name: &str, number: f64) -> (String, Elements) {
    (name.to_owned(), (number as f32).into())
}
