//! Comparison of a program on many cards with one card and with a reference.
//!
//! - Input: a model, a deployment, and a [`Reference`]: `input_ids`, and optionally `logits`,
//!   `greedy_prompt` and `greedy_ids` of another implementation.
//! - Output: a [`Verification`].
//!
//! | found on many cards | expected | bound |
//! |---|---|---|
//! | every value, in the requested type | the same value on one card | of the type, after as many ops; zero if sums have a fixed order and no card has a partial sum |
//! | each op, in the requested type | one card, on the same operands | of the type, after one op; scales and integers of quantised rows are equal |
//! | logits with f32 around the quantised products | the same on one card | of f32, plus integers whose value is within float error of a rounding edge |
//! | logits in f32 | the reference's | of f32 |
//! | logits in the requested type | those in f32 | of the type |
//! | logits in the requested type | the reference's | none: the mean difference is reported |
//! | greedy tokens, in f32 and in the requested type | the reference's | equal, unless f32 prefers one of the two by less than twice the bound |
//!
//! A wrong model or configuration changes the f32 logits, with a bound of 10⁻⁵ to 10⁻³ of the
//! largest. In 16 bits, rounding could hide the change. Rounding is therefore measured against f32,
//! not against the reference. See `bound.rs` for the bounds. In 16 bits, the experts of a token are
//! those that the f32 program chooses; see `choices.rs`.

mod alone;
mod amplify;
mod bound;
mod choices;
mod greedy;
mod reference;
mod values;

use std::sync::Arc;

use crate::base::{DType, Diagnostic, Diagnostics, KvType, Precision};
use crate::compile::Deployment;
use crate::device::Cann;
use crate::exec::{Engine, EngineOptions, NamedTensors, ProgramId};
use crate::placement::{Grid, Residual};
pub use crate::program::models::ChosenExperts;
use crate::program::models::{Head, LayeredProgram, decoder_of_layers, give, has_choices};
use crate::program::tree::SumOrder;
use crate::program::{HostTensor, Program};
use crate::schedule::Target;
use crate::weights::fill_from;
use crate::world::ProcessGroup;

use super::error::Error;
use super::inputs::{SequenceInput, inputs};
use super::model::Model;
use alone::OpsAlone;
use bound::{has_integers, magnitude, relative};
use greedy::VerifySetup;
pub use reference::Reference;
use values::{WholeValues, keep_worse, put, worst};

/// Two numbers that should agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the value: an op of the program, or `logits`.
    pub place: String,
    /// Index of the element in its tensor.
    pub index: Vec<usize>,
    /// Value on one card or in the reference.
    pub expected: f64,
    /// Value on many cards.
    pub found: f64,
    /// Maximum allowed absolute difference.
    pub bound: f64,
}

impl Difference {
    /// Returns whether the difference is within the bound. Non-finite values never are.
    #[must_use]
    pub fn is_within(&self) -> bool {
        (self.expected - self.found).abs() <= self.bound && self.bound.is_finite()
    }
}

/// A greedy token that differs from the reference's.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Precision of the program that chose the token: f32 or the requested one.
    pub precision: Precision,
    /// Position among the generated tokens, from 0.
    pub at: usize,
    /// Token id in the reference.
    pub expected: u32,
    /// Token id that was chosen instead.
    pub found: u32,
    /// Difference of the two tokens' logits in f32.
    pub margin: f64,
    /// Largest margin at which either token is correct: twice the bound of the logits.
    pub bound: f64,
}

/// Greedy tokens after the reference's prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Greedy {
    /// Token ids of the reference, by position.
    pub expected: Vec<u32>,
    /// Token ids of a session in the requested precision.
    pub found: Vec<u32>,
    /// Different tokens. In f32 each one, after the reference's own tokens; in the session the
    /// first.
    pub choices: Vec<Choice>,
}

/// Op results on many cards, compared with one card on the same operands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SameOperands {
    /// Number of compared results.
    pub values: usize,
    /// Number of integers of quantised rows among the results. They must be equal.
    pub integers: usize,
    /// The element closest to its bound.
    pub closest: Option<Difference>,
}

/// Differences between all elements of two tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanDifference {
    /// Mean of the absolute differences.
    pub mean: f64,
    /// Largest absolute difference.
    pub largest: f64,
}

impl MeanDifference {
    /// Compares tensors of the same size. NaN in either gives NaN.
    fn of(found: &[f32], expected: &[f32]) -> Self {
        let pairs = found.iter().zip(expected);
        let differences = pairs.map(|(found, expected)| (f64::from(*found) - f64::from(*expected)).abs());
        let (sum, largest) = differences.fold((0.0, 0.0), |(sum, largest): (f64, f64), difference| {
            // `f64::max` would ignore NaN.
            (sum + difference, if difference > largest || difference.is_nan() { difference } else { largest })
        });
        Self { mean: sum / expected.len().max(1) as f64, largest }
    }
}

/// Result of the comparison of a sharded model with its reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verification {
    /// Number of values compared between one card and many.
    pub values: usize,
    /// Number of values with the same bits in all elements.
    pub same_bits: usize,
    /// The first op with a difference beyond its bound.
    pub first_difference: Option<Difference>,
    /// The worst difference relative to its bound.
    pub closest: Option<Difference>,
    /// Each op on the operands that the cards had.
    pub alone: SameOperands,
    /// The worst logit with f32 around quantised products, compared with one card. An integer that
    /// differs away from a rounding edge takes precedence.
    pub around: Option<Difference>,
    /// The worst logit in f32, compared with the reference.
    pub logits: Option<Difference>,
    /// The worst logit in the requested type, compared with f32. None if the type is f32.
    pub rounded: Option<Difference>,
    /// Logits in the requested type, compared with the reference. They have no bound, because
    /// rounding in 16 bits can exceed the effect of a fault.
    pub against_reference: Option<MeanDifference>,
    /// Greedy tokens of the reference and of the cards.
    pub greedy: Option<Greedy>,
    /// Choices of experts, if the type is not f32. All results are computed with the choices of
    /// f32.
    pub experts: Option<ChosenExperts>,
}

impl Verification {
    /// Returns whether everything is within its bound.
    #[must_use]
    pub fn passed(&self) -> bool {
        let within = |difference: &Option<Difference>| difference.as_ref().is_none_or(Difference::is_within);
        let decided_nothing = |choice: &Choice| choice.margin <= choice.bound && choice.bound.is_finite();
        self.first_difference.is_none()
            && within(&self.alone.closest)
            && within(&self.around)
            && within(&self.logits)
            && within(&self.rounded)
            && self.greedy.as_ref().is_none_or(|greedy| greedy.choices.iter().all(decided_nothing))
    }
}

/// Compares a model on `cards` cards with one card, and with a reference.
///
/// # Errors
/// Returns options that do not fit the model, or the failure of a card.
pub fn verify(
    cann: &Arc<Cann>,
    model: &Model,
    cards: usize,
    precision: impl Into<Precision>,
    residual: Residual,
    reference: &Reference,
) -> Result<Verification, Error> {
    let of = Deployment::of(&model.config, cards);
    let deployment = Deployment { precision: precision.into(), residual, ..of };
    let found = verify_on(cann, model, &deployment, reference, &EngineOptions::default())?;
    // A world of one process always has an outcome.
    found.ok_or_else(|| {
        Diagnostics::from(Diagnostic::new("verify", "the first process has no outcome")).into()
    })
}

/// Runs [`verify`] with the cards, mesh, precision and residual stream of a deployment, in all
/// processes of a world. Products and exchanges are not fused, so that each value can be compared.
/// The first process also computes on one card and returns the result; others return `None`.
///
/// # Errors
/// As for [`verify`], or the failure of another process.
pub fn verify_on(
    cann: &Arc<Cann>,
    model: &Model,
    deployment: &Deployment,
    reference: &Reference,
    engine_options: &EngineOptions,
) -> Result<Option<Verification>, Error> {
    let (precision, Reference { batch, sequence, .. }) = (deployment.precision, reference);
    if deployment.stages != 1 || deployment.order == SumOrder::Tree || precision.kv == KvType::Int8 {
        Deployment { batch: *batch, ..*deployment }.check(&model.config)?;
    }
    let longest = model.config.max_positions;
    if *sequence > longest || *sequence == 0 || *batch == 0 {
        let problem = Diagnostic::new("input_ids", "do not fit the model's context");
        let found = format!("[{batch},{sequence}]");
        return Err(Diagnostics::from(problem.expected(format!("1 to {longest} tokens")).found(found)).into());
    }
    let group = &engine_options.group;
    let f32 = Precision::from(DType::F32);
    let plain = VerifySetup { cann, model, deployment: *deployment, engine: engine_options, given: None };
    let exact_program = plain.program(f32, reference)?;
    let chooses = precision != f32 && has_choices(&exact_program.program);
    let exact = chooses.then(|| plain.observe(&exact_program, f32, reference)).transpose()?;
    let given = exact.as_ref().map(|(values, _)| choices::of_run(&exact_program.program, values));
    let setup = |deployment, engine| VerifySetup { cann, model, deployment, engine, given: given.as_ref() };
    let many = setup(*deployment, engine_options);
    let layered = many.program(precision, reference)?;
    let program = &layered.program;
    let alone = EngineOptions { group: Arc::new(ProcessGroup::alone()), ..engine_options.clone() };
    let one_card = Deployment { cards: 1, stages: 1, grid: Grid::LINE, ..*deployment };
    let on_one = || setup(one_card, &alone).observe(&layered, precision, reference);
    let one =
        group.is_first().then(on_one).transpose().inspect_err(|error| group.fail(&error.to_string()))?;
    let (values, logits) = many.observe(&layered, precision, reference)?;
    let experts = given.as_ref().map(|given| choices::compare(program, &values, given));
    let mut verification = Verification { experts, ..Verification::default() };
    if let Some((one, _)) = &one {
        one.compare(program, &values, precision, deployment.order, &mut verification);
    }
    let alone = setup(one_card, &alone);
    let checked = group.is_first().then(|| alone.ops(program, precision, reference, &values));
    let checked = checked.transpose().inspect_err(|error| group.fail(&error.to_string()))?;
    verification.alone = checked.unwrap_or_default();
    if program.ops.values().iter().any(|op| has_integers(&op.kind)) {
        let around = Precision { activations: DType::F32, ..precision };
        verification.around = many.around(&alone, around, reference)?;
    }
    let known = one.as_ref().map_or(&values, |(one, _)| one);
    let roundings = known.roundings(program, precision, &values).last().copied().unwrap_or_default();
    if let Some(expected) = &reference.logits {
        let bound = |program: &Program, precision, of| {
            let after = roundings.against_floats(program, precision, program.ops.len());
            relative(program, precision, after) * magnitude(of)
        };
        let exact = match exact {
            _ if precision == f32 => logits.clone(),
            Some((_, logits)) => logits,
            None => many.run(&exact_program, f32, reference, None)?,
        };
        verification.against_reference = Some(MeanDifference::of(logits.floats(), expected));
        verification.logits = worst("logits", &exact, expected, bound(&exact_program.program, f32, expected));
        if precision != f32 {
            let bound = bound(program, precision, exact.floats());
            let difference = worst("logits", &logits, exact.floats(), bound);
            difference.into_iter().for_each(|difference| keep_worse(&mut verification.rounded, difference));
        }
    }
    if let Some(continuation) = &reference.greedy {
        greedy::compare(&many, precision, roundings, continuation, &mut verification)?;
    }
    Ok(group.is_first().then_some(verification))
}

impl VerifySetup<'_> {
    /// Returns the program with the logits of all reference tokens, and the ops of each layer.
    fn program(&self, precision: Precision, reference: &Reference) -> Result<LayeredProgram, Error> {
        let (config, run, Deployment { stages, order, .. }) =
            (&self.model.config, reference.run(&self.model.config), self.deployment);
        let on_cards = self.deployment.on_cards(precision);
        let mut layered = decoder_of_layers(config, run, on_cards, Head::AllLogits, order, stages > 1, None)?;
        if self.given.is_some() && precision != DType::F32.into() {
            give(&mut layered.program);
        }
        Ok(layered)
    }

    /// Runs each op on one card, with the operands of many cards.
    fn ops(
        &self,
        program: &Program,
        precision: Precision,
        reference: &Reference,
        many: &WholeValues,
    ) -> Result<SameOperands, Error> {
        let ops = OpsAlone::of(program, many)?;
        let target = Target::with_kernels(self.engine.kernels.kernels());
        let deployment = Deployment { precision, batch: reference.batch, target, ..self.deployment };
        let plans = deployment.compile_program(&self.model.config, &ops.program, &[])?;
        let mut engine = Engine::start(self.cann, vec![plans], self.engine)?;
        engine.load(|shards| fill_from(&self.model.checkpoint, shards, &|_| ()))?;
        let inputs = ops.inputs(&self.inputs(precision, reference), many);
        let outputs = engine.run(ProgramId(0), &inputs)?;
        Ok(ops.compare(program, precision, &outputs, many))
    }

    fn inputs(&self, precision: Precision, reference: &Reference) -> NamedTensors {
        let row = |ids| SequenceInput { ids, start: 0, prompt_length: reference.sequence };
        let rows: Vec<SequenceInput<'_>> = reference.input_ids.chunks(reference.sequence).map(row).collect();
        let run = reference.run(&self.model.config);
        let own = inputs(&self.model.config, run, precision.activations, Head::AllLogits, &rows);
        let Some(given) = self.given.filter(|_| precision != DType::F32.into()) else { return own };
        let given = given.iter().map(|(name, tensor)| (name.to_owned(), tensor));
        own.iter().map(|(name, tensor)| (name.to_owned(), tensor)).chain(given).collect()
    }

    /// Compares logits between one card and many, with f32 around the quantised products.
    fn around(
        &self,
        alone: &Self,
        precision: Precision,
        reference: &Reference,
    ) -> Result<Option<Difference>, Error> {
        let group = &self.engine.group;
        let program = self.program(precision, reference)?;
        let one = group.is_first().then(|| alone.observe(&program, precision, reference));
        let one = one.transpose().inspect_err(|error| group.fail(&error.to_string()))?;
        let (many, logits) = self.observe(&program, precision, reference)?;
        let compared =
            |(one, expected)| alone::around(&program.program, precision, [&one, &many], [&expected, &logits]);
        Ok(one.and_then(compared))
    }

    fn observe(
        &self,
        layered: &LayeredProgram,
        precision: Precision,
        reference: &Reference,
    ) -> Result<(WholeValues, HostTensor), Error> {
        let mut values = WholeValues::new(&layered.program);
        let logits = self.run(layered, precision, reference, Some(&mut values))?;
        Ok((values, logits))
    }

    fn run(
        &self,
        layered: &LayeredProgram,
        precision: Precision,
        reference: &Reference,
        values: Option<&mut WholeValues>,
    ) -> Result<HostTensor, Error> {
        let (config, group) = (&self.model.config, &self.engine.group);
        let target = Target::with_kernels(self.engine.kernels.kernels());
        let deployment = Deployment { precision, batch: reference.batch, target, ..self.deployment };
        let plans = deployment.compile_program(config, &layered.program, &layered.layers)?;
        let mut engine = Engine::start(self.cann, vec![plans], self.engine)?;
        engine.load(|shards| fill_from(&self.model.checkpoint, shards, &|_| ()))?;
        let plans = engine.plans(ProgramId(0)).to_vec();
        let inputs = self.inputs(precision, reference);
        let outputs = match values {
            None => engine.run(ProgramId(0), &inputs)?,
            Some(values) if group.size() == 1 => {
                engine.run_observed(ProgramId(0), &inputs, |observation| values.add(&plans, &observation))?
            }
            Some(values) => {
                let mut seen = Vec::new();
                let outputs =
                    engine.run_observed(ProgramId(0), &inputs, |observation| put(&mut seen, &observation))?;
                let sent = group.exchange("the values", seen).map_err(crate::exec::Error::from)?;
                values.add_sent(&plans, &sent);
                outputs
            }
        };
        Ok(outputs.only()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(difference: Difference, choices: Vec<Choice>) -> Verification {
        let greedy = Some(Greedy { expected: vec![1], found: vec![2], choices });
        let rounded = Some(difference);
        Verification { values: 1, rounded, greedy, ..Verification::default() }
    }

    fn difference(expected: f64, found: f64, bound: f64) -> Difference {
        Difference { place: "logits".to_owned(), index: vec![0], expected, found, bound }
    }

    fn choice(margin: f64, bound: f64) -> Choice {
        Choice { precision: DType::BF16.into(), at: 0, expected: 1, found: 2, margin, bound }
    }

    #[test]
    fn another_token_passes_where_the_margin_is_within_the_bound() {
        let within = difference(1.0, 1.5, 0.5);
        assert!(found(within.clone(), vec![choice(0.25, 0.25), choice(-1.0, 0.25)]).passed());
        assert!(!found(within.clone(), vec![choice(0.26, 0.25)]).passed());
        assert!(!found(within, vec![choice(f64::NAN, 0.25)]).passed());
        assert!(!found(difference(1.0, 1.6, 0.5), Vec::new()).passed());
    }

    #[test]
    fn the_mean_difference_counts_every_element() {
        let of = MeanDifference::of(&[1.0, 2.5, -1.0, 0.0], &[1.0, 2.0, 0.5, 0.0]);
        assert_eq!(of, MeanDifference { mean: 0.5, largest: 1.5 });
        let of = MeanDifference::of(&[1.0, f32::NAN, 3.0], &[1.0, 1.0, 1.0]);
        assert!(of.mean.is_nan());
    }

    #[test]
    fn what_is_not_finite_is_within_no_bound() {
        for (expected, found, bound) in
            [(1.0, f64::INFINITY, f64::INFINITY), (f64::INFINITY, f64::INFINITY, 1.0), (1.0, f64::NAN, 1.0)]
        {
            assert!(!difference(expected, found, bound).is_within());
        }
        let infinite = difference(1.0, 1.0, f64::INFINITY);
        assert!(!infinite.is_within() && !found(infinite, Vec::new()).passed());
        assert!(!found(difference(1.0, 1.0, 1.0), vec![choice(1.0, f64::INFINITY)]).passed());
    }
}
