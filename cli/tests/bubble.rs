//! How long stages of a pipeline wait, by the clock of emulated cards, against the closed forms.

use std::sync::PoisonError;

use ascend_tp::base::Id;
use ascend_tp::config::ModelConfig;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::schedule::When;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Plan};
use ascend_tp::timeline::Span;
use ascend_tp::train::{Layout, Optimizer, Recipe, lower, recipe};
use ascend_tp_planner::rehearse::{Site, train};

use crate::rehearse::TURN;

/// Layers of a stage.
const LAYERS: usize = 4;

/// Stages of equal layers, whose embedding and head are nearly nothing.
fn setting(pipeline: Pipeline, stages: usize, micro_batches: usize) -> train::Setting {
    let mut model = ModelConfig::preset("llama-3-70b").unwrap();
    (model.hidden_size, model.heads, model.kv_heads, model.intermediate_size) = (4096, 32, 8, 14336);
    (model.layers, model.vocab_size) = (LAYERS * stages, 64);
    let recipe = Recipe {
        global_batch: micro_batches,
        seq: 2048,
        precision: recipe::Precision::Bf16,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        pipeline,
        ..Recipe::default()
    };
    let site = Site {
        cards: stages,
        servers: None,
        profile: Profile::of(Soc::Ascend910B3),
        topology: Topology::preset("atlas-a2").unwrap(),
    };
    train::Setting { name: "equal stages".to_owned(), model, recipe, layout: Layout { stages, ..Layout::ONE }, site }
}

/// Times of one micro-batch on one stage, and of one transfer, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    forward: f64,
    input_grad: f64,
    weight_grad: f64,
    send: f64,
}

impl Times {
    fn work(&self) -> f64 {
        self.forward + self.input_grad + self.weight_grad
    }

    /// How long a stage waits in a step of `m` micro-batches, a multiple of the `p` stages, at least twice as many. GPipe and 1F1B: the
    /// way of the first micro-batch there and of the last back; with interleaved parts, of one of `v`; with gradients of weights
    /// later, but for what these fill. A transfer to the next stage is waited for wherever a pass does not hide it: going there
    /// and back; in 1F1B once more each time the stages have changed all they hold, between the ends of the pipeline.
    fn bubble(&self, pipeline: Pipeline, p: usize, m: usize) -> f64 {
        let (p, m, v) = (p as f64, m as f64, pipeline.chunks() as f64);
        let (ways, sends) = match pipeline {
            Pipeline::GPipe => (self.work(), 2.0 * (p - 1.0)),
            Pipeline::OneForwardOneBackward => (self.work(), 2.0 * (p - 1.0) * m / p + 2.0 * (p - 2.0)),
            Pipeline::Interleaved { .. } => (self.work() / v, 2.0 * (p * v - 1.0)),
            Pipeline::ZeroBubbleH1 => (self.forward + self.input_grad - self.weight_grad, 4.0 * (p - 1.0)),
            Pipeline::ZeroBubbleV => (self.forward / v, 0.0),
        };
        (p - 1.0) * ways + sends * self.send
    }
}

/// What the cards did: the mean times, and from the first pass' begin to the last one's end.
fn measured(setting: &train::Setting) -> (Times, f64) {
    let train::Setting { model, recipe, layout, .. } = setting;
    let lowered = lower(model, recipe, layout).unwrap();
    let whens: Vec<Option<When>> = lowered.places.iter().flatten().map(|place| place.map(|place| place.when)).collect();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rehearsal = train::Rehearsal::run(setting).unwrap();
    drop(turn);
    let phase = &rehearsal.phases()[0];
    let (mut times, mut sends, mut ends) = (Times::default(), 0, (u64::MAX, 0));
    for span in &phase.spans {
        let plan: &Plan = &rehearsal.programs()[0][span.rank];
        let step = &plan.steps[span.step];
        let us = |span: &Span| (span.end_ns - span.start_ns) as f64 / 1e3;
        if let Action::Exchange(exchange) = &step.action {
            if matches!(exchange.kind, CollectiveKind::Send { .. }) {
                (times.send, sends) = (times.send + us(span), sends + 1);
            }
            continue;
        }
        match whens.get(step.op.index()).copied().flatten() {
            Some(When::Forward) => times.forward += us(span),
            Some(When::InputGrad) => times.input_grad += us(span),
            Some(When::WeightGrad) => times.weight_grad += us(span),
            _ => continue,
        }
        ends = (ends.0.min(span.start_ns), ends.1.max(span.end_ns));
    }
    let passes = (layout.stages * layout.micro_batches(recipe)) as f64;
    times.forward /= passes;
    times.input_grad /= passes;
    times.weight_grad /= passes;
    times.send /= f64::from(sends);
    (times, (ends.1 - ends.0) as f64 / 1e3)
}

#[test]
fn stages_wait_as_long_as_the_forms_say() {
    for pipeline in [
        Pipeline::GPipe,
        Pipeline::OneForwardOneBackward,
        Pipeline::Interleaved { chunks: 2 },
        Pipeline::ZeroBubbleH1,
        Pipeline::ZeroBubbleV,
    ] {
        for (stages, micro_batches) in [(2, 4), (2, 8), (4, 8)] {
            let (times, step_us) = measured(&setting(pipeline, stages, micro_batches));
            let found = step_us - micro_batches as f64 * times.work();
            let expected = times.bubble(pipeline, stages, micro_batches);
            let off = found / expected - 1.0;
            println!(
                "{pipeline}, {micro_batches} over {stages}: {times:?}: {:.2} % of {step_us:.0} us wait, {found:.0} us, {expected:.0} \
                 by the form: {:+.2} %",
                100.0 * found / step_us,
                100.0 * off
            );
        }
    }
    panic!("");
}
