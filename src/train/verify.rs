//! Gradients of a step on a layout, for comparison with one card.
//!
//! The programs are the same as in training, but with momentum SGD: the momentum starts at zero and
//! equals the gradient after one step. The batch depends only on the recipe and the vocabulary, so
//! a layout always gives the same bits.

use std::sync::Arc;

use super::checkpoint::PartBytes;
use super::choices::{BatchChoices, Routing};
use super::compile::{Layout, compile};
use super::data::Batch;
use super::error::Error;
use super::layouts::GRADIENT;
use super::optimizer::{Optimizer, STATES};
use super::recipe::Recipe;
use super::trainer::Trainer;
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{self, EngineOptions, Shards, target_of};

/// Results of a step before the update.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Mean loss over counted labels.
    pub loss: f64,
    /// Norm of all gradients.
    pub norm: f64,
    /// Gradients by weight, row-major, in program order.
    pub tensors: Vec<(String, Vec<f32>)>,
    /// Experts that the routers chose, on one card or if the step was given others.
    pub choices: Option<BatchChoices>,
}

/// Deviation of a gradient from its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// Name of the weight in the program.
    pub weight: String,
    /// Largest absolute value of the expected gradient.
    pub largest: f32,
    /// Row-major index of the element with the largest deviation.
    pub element: usize,
    /// Expected gradient of this element.
    pub expected: f32,
    /// Gradient of this element that was found.
    pub found: f32,
}

impl Deviation {
    /// Returns the deviation relative to the largest gradient. NaN counts as infinity.
    #[must_use]
    pub fn relative(&self) -> f64 {
        let error = (f64::from(self.found) - f64::from(self.expected)).abs();
        match (error.is_nan(), error > 0.0) {
            (true, _) => f64::INFINITY,
            (false, true) => error / f64::from(self.largest),
            (false, false) => 0.0,
        }
    }
}

impl Gradients {
    /// Returns the deviations of `found`, in the order of the backward pass.
    #[must_use]
    pub fn deviations(&self, found: &Self) -> Vec<Deviation> {
        let pairs = self.tensors.iter().zip(&found.tensors).rev();
        pairs.map(|((weight, expected), (_, found))| deviation(weight, expected, found)).collect()
    }

    /// Returns the first gradient with other bits in `found`, in backward order, or `norm` or
    /// `loss`.
    #[must_use]
    pub fn first_other_bits(&self, found: &Self) -> Option<String> {
        let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let mut pairs = self.tensors.iter().zip(&found.tensors).rev();
        let tensor = pairs
            .find(|((_, a), (_, b))| bits(a) != bits(b))
            .map(|((name, _), _)| format!("{GRADIENT}{name}"));
        let numbers = [("norm", self.norm, found.norm), ("loss", self.loss, found.loss)];
        let number = numbers
            .into_iter()
            .find(|(_, a, b)| a.to_bits() != b.to_bits())
            .map(|(name, _, _)| name.to_owned());
        tensor.or(number)
    }

    /// Returns the largest relative deviation between one card and several in f32. It is the bound
    /// for a comparison with another implementation.
    ///
    /// The norm behind the gated delta rule enlarges the errors of small rows: transformers in f32
    /// is off by up to 8e-4 from f64.
    #[must_use]
    pub fn bound(config: &ModelConfig) -> f64 {
        if config.remembered_tokens().is_some() { 8e-4 } else { 1e-5 }
    }

    /// Returns the bounds of [`Self::deviations`] from f32 gradients in 16 bits, given the
    /// deviations of one card in 16 bits.
    ///
    /// The number of roundings between a weight and the loss differs between weights and grows with
    /// the layers, so one card measures it. Other orders of sums round differently, and the largest
    /// errors of two orders differ by up to a factor of 2.3 in small models. So cards may be off by
    /// three times as much, or by three times the median of all weights if a short gradient happens
    /// to be rounded well.
    #[must_use]
    pub fn bounds_of_rounded(one_card: &[Deviation]) -> Vec<f64> {
        let mut errors: Vec<f64> = one_card.iter().map(Deviation::relative).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let median = errors.get(errors.len() / 2).copied().unwrap_or_default();
        one_card.iter().map(|own| 3.0 * own.relative().max(median)).collect()
    }
}

fn deviation(weight: &str, expected: &[f32], found: &[f32]) -> Deviation {
    let error = |at: usize| {
        let error = (expected[at] - found[at]).abs();
        if error.is_nan() { f32::INFINITY } else { error }
    };
    let element = (0..expected.len()).max_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or_default();
    let largest = expected.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let at = |data: &[f32]| data.get(element).copied().unwrap_or_default();
    Deviation { weight: weight.to_owned(), largest, element, expected: at(expected), found: at(found) }
}

/// Computes the gradients of one step with weights from `fill`. Each process runs its own rank, and
/// all return the same result.
///
/// With `given`, the tokens go to these experts, whatever the routers choose.
///
/// # Errors
/// The errors of [`compile`](fn@super::compile), [`Trainer::start`] and [`Trainer::step`].
pub fn gradients(
    cann: &Arc<Cann>,
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    options: &EngineOptions,
    given: Option<&BatchChoices>,
    fill: impl FnOnce(&Shards<'_>) -> Result<(), exec::Error>,
) -> Result<Gradients, Error> {
    let optimizer = Optimizer::Sgd { momentum: 0.5, weight_decay: 0.0 };
    let routing = match given {
        Some(_) => Routing::Given,
        None if config.has_mixture() && layout.cards() == 1 => Routing::Shown,
        None => Routing::Routers,
    };
    let recipe = Recipe { steps: 1, clip_norm: 0.0, optimizer, routing, ..recipe.clone() };
    let compiled = compile(config, &recipe, &layout, target_of(cann, &options.group, &options.kernels))?;
    // Biases of choices are stored too, but have no gradient.
    let is_trained = |name: &String| compiled.sharding.has(&format!("{}{name}", STATES[2]));
    let params = compiled.plans[0].1[0].params.iter().map(|param| param.name.clone());
    let names: Vec<String> = params.filter(is_trained).collect();
    let mut trainer = Trainer::start(cann, config, &recipe, layout, compiled, options, fill)?;
    trainer.given = given.cloned();
    let step = trainer.step(&Batch::scattered(0, recipe.global_batch, recipe.seq, config.vocab_size))?;
    let mut parts = trainer.parts()?;
    let group = &options.group;
    let tensors = names.into_iter().map(|name| {
        let state = format!("{}{name}", STATES[2]);
        let mut own: Vec<PartBytes> = parts.extract_if(.., |part| part.tensor == state).collect();
        if group.size() > 1 {
            // One tensor at a time, because an exchange must fit into a message.
            let mine = own.pop().map(|part| part.bytes).unwrap_or_default();
            let all = group.exchange("a gradient", mine).map_err(exec::Error::from)?;
            let part = |(rank, bytes)| PartBytes { rank, tensor: state.clone(), bytes };
            own = all.into_iter().enumerate().map(part).collect();
        }
        let bytes = trainer.sharding().whole(&own).remove(&state).unwrap_or_default();
        Ok((name, bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
    });
    let tensors = tensors.collect::<Result<_, Error>>()?;
    Ok(Gradients { loss: step.loss, norm: step.grad_norm, tensors, choices: trainer.take_choices() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradients(data: &[f32]) -> Gradients {
        Gradients {
            loss: 1.0,
            norm: 2.0,
            tensors: vec![("a".to_owned(), data.to_vec()), ("b".to_owned(), vec![1.0])],
            choices: None,
        }
    }

    #[test]
    fn deviations_are_over_the_largest_gradient_and_the_last_weight_comes_first() {
        let found = gradients(&[1.0, -4.0, 0.0]).deviations(&gradients(&[1.0, -4.0, 0.5]));
        assert_eq!(found[0].weight, "b");
        assert_eq!((found[1].element, found[1].expected, found[1].found), (2, 0.0, 0.5));
        assert_eq!([found[0].relative(), found[1].relative()], [0.0, 0.125]);
        let lost = gradients(&[1.0]).deviations(&gradients(&[f32::NAN]));
        assert_eq!(lost[1].relative(), f64::INFINITY);
    }

    #[test]
    fn bounds_in_16_bits_are_three_times_the_error_of_one_card() {
        let of = |error: f32| deviation("a", &[1.0], &[1.0 + error]);
        let bounds = Gradients::bounds_of_rounded(&[of(0.25), of(0.0), of(0.5)]);
        assert_eq!(bounds, [0.75, 0.75, 1.5]);
        assert!(Gradients::bounds_of_rounded(&[of(f32::NAN)])[0].is_infinite());
    }

    #[test]
    fn zeros_of_another_sign_have_other_bits() {
        assert_eq!(gradients(&[0.0]).first_other_bits(&gradients(&[0.0])), None);
        assert_eq!(gradients(&[0.0]).first_other_bits(&gradients(&[-0.0])).as_deref(), Some("grad.a"));
        let other = Gradients { loss: 3.0, ..gradients(&[0.0]) };
        assert_eq!(gradients(&[0.0]).first_other_bits(&other).as_deref(), Some("loss"));
    }
}
