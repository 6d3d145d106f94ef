//! Comparison of greedy tokens with the reference's.
//!
//! Two tokens with nearly equal logits can change order. The f32 program therefore reads the
//! reference's tokens one by one, and its logits show how much each token is preferred. Errors of
//! at most `bound` can raise one logit and lower the other. So another token is accepted if its
//! logit is less than twice the bound below.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::bound::{Roundings, magnitude, relative};
use super::reference::Continuation;
use super::values::{keep_worse, worst};
use super::{Choice, Greedy, Verification};
use crate::base::{DType, Precision};
use crate::compile::Deployment;
use crate::device::Cann;
use crate::exec::{Engine, EngineOptions, NamedTensors, ProgramId};
use crate::generate::error::Error;
use crate::generate::inputs::{SequenceInput, inputs};
use crate::generate::model::Model;
use crate::generate::request::Request;
use crate::generate::session::{DECODE, PREFILL, Session};
use crate::program::HostTensor;
use crate::program::models::{Head, decoder};
use crate::schedule::Target;
use crate::weights::fill_from;

pub(super) struct VerifySetup<'a> {
    pub(super) cann: &'a Arc<Cann>,
    pub(super) model: &'a Model,
    pub(super) deployment: Deployment,
    pub(super) engine: &'a EngineOptions,
    /// Choices of experts that programs other than the f32 program get.
    pub(super) given: Option<&'a NamedTensors>,
}

/// Compares generated tokens, and the logits of every step, in `precision` and in f32. `roundings`
/// belong to a run over all tokens at once.
pub(super) fn compare(
    setup: &VerifySetup<'_>,
    precision: Precision,
    roundings: Roundings,
    reference: &Continuation,
    verification: &mut Verification,
) -> Result<(), Error> {
    let ids = setup.generate(precision, reference)?;
    let f32 = Precision::from(DType::F32);
    let (exact, exact_bound) = setup.follow(f32, roundings, reference)?;
    let vocab_size = setup.model.config.vocab_size;
    let steps: Vec<&[f32]> = exact.floats().chunks(vocab_size).collect();
    let ahead =
        |step: usize, a: u32, b: u32| f64::from(steps[step][a as usize]) - f64::from(steps[step][b as usize]);

    let mut choices = Vec::new();
    let scale = magnitude(exact.floats());
    for (step, (logits, &expected)) in steps.iter().zip(&reference.ids).enumerate() {
        let chosen = likeliest(logits);
        if chosen != expected {
            let (margin, bound) = (ahead(step, chosen, expected), 2.0 * exact_bound * scale);
            choices.push(Choice { precision: f32, at: step, expected, found: chosen, margin, bound });
        }
    }
    // A session makes its own choices of experts. Then tokens and logits can differ by more than
    // rounding errors.
    let is_comparable = precision == f32 || setup.given.is_none();
    let mut bound = exact_bound;
    if precision != f32 && is_comparable {
        let (rounded, rounded_bound) = setup.follow(precision, roundings, reference)?;
        bound = rounded_bound;
        let difference = worst("logits of the greedy tokens", &rounded, exact.floats(), bound * scale);
        difference.into_iter().for_each(|difference| keep_worse(&mut verification.rounded, difference));
    }
    // After the first different token, the session reads another text.
    let differing = ids.iter().zip(&reference.ids).position(|(found, expected)| found != expected);
    if let Some(at) = differing.filter(|_| is_comparable) {
        let (expected, chosen) = (reference.ids[at], ids[at]);
        let (margin, bound) = (ahead(at, expected, chosen), 2.0 * bound * scale);
        choices.push(Choice { precision, at, expected, found: chosen, margin, bound });
    }
    verification.greedy = Some(Greedy { expected: reference.ids.clone(), found: ids, choices });
    Ok(())
}

impl VerifySetup<'_> {
    fn deployment(&self, precision: Precision, reference: &Continuation, head: Head) -> Deployment {
        let longest_prompt = reference.prompt.len();
        Deployment {
            batch: 1,
            precision,
            longest_prompt,
            context: longest_prompt + reference.ids.len(),
            head,
            target: Target { kernels: self.engine.kernels.kernels(), ..self.deployment.target },
            ..self.deployment
        }
    }

    fn generate(&self, precision: Precision, reference: &Continuation) -> Result<Vec<u32>, Error> {
        let deployment = self.deployment(precision, reference, Head::LastToken);
        let builder = Session::builder(self.cann, self.model).deployment(deployment);
        let mut session = builder.engine(self.engine.clone()).start()?;
        let request = Request { stop_ids: Some(Vec::new()), ..Request::new(reference.prompt.as_slice()) };
        let generation = session.generate(&[request], &mut |_| ControlFlow::Continue(()))?;
        Ok(generation.sequences.into_iter().next().map(|sequence| sequence.ids).unwrap_or_default())
    }

    /// Returns the logits `[tokens, vocabulary]` of each reference token, read as in a session, and
    /// their bound relative to the largest logit.
    fn follow(
        &self,
        precision: Precision,
        roundings: Roundings,
        reference: &Continuation,
    ) -> Result<(HostTensor, f64), Error> {
        let Continuation { prompt, ids } = reference;
        let config = &self.model.config;
        let deployment = self.deployment(precision, reference, Head::LastLogits);
        let mut engine = Engine::start(self.cann, deployment.compile(config)?.into_vec(), self.engine)?;
        engine.load(|shards| fill_from(&self.model.checkpoint, shards, &|_| ()))?;
        let (dtype, mut logits) = (precision.activations, Vec::new());
        let mut step = |program: ProgramId, ids: &[u32], start: usize| -> Result<(), Error> {
            let row = SequenceInput { ids, start, prompt_length: prompt.len() };
            let run = if program == PREFILL {
                deployment.prompts(config, ids.len())
            } else {
                deployment.step(config)
            };
            let outputs = engine.run(program, &inputs(config, run, dtype, Head::LastLogits, &[row]))?;
            logits.extend_from_slice(outputs.only()?.floats());
            Ok(())
        };
        step(PREFILL, prompt, 0)?;
        for (at, id) in ids.iter().take(ids.len() - 1).enumerate() {
            step(DECODE, std::slice::from_ref(id), prompt.len() + at)?;
        }
        let on_cards = deployment.on_cards(precision);
        let program = decoder(config, deployment.step(config), on_cards, Head::LastLogits)?;
        let roundings = roundings.against_floats(&program, precision, program.ops.len());
        let bound = relative(&program, precision, roundings);
        Ok((HostTensor::float([ids.len(), config.vocab_size], dtype, logits), bound))
    }
}

/// Returns the first largest logit's index, like a session.
fn likeliest(logits: &[f32]) -> u32 {
    let first_of_largest = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
    (0..logits.len()).reduce(first_of_largest).unwrap_or_default() as u32
}
