//! How long stages of a pipeline wait, by the clock of emulated cards, against the closed forms.

use std::sync::PoisonError;

use ascend_tp::base::Id;
use ascend_tp::config::ModelConfig;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Plan};
use ascend_tp::schedule::{Place, When};
use ascend_tp::train::{Layout, Optimizer, Recipe, lower, recipe};
use ascend_tp_planner::rehearse::{Site, train};
use ascend_tp_planner::train::pipeline::{StageTimes, simulate};

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

/// What the cards did: how long each part's passes take and a transfer, and from the first pass' begin to the last one's end, in
/// microseconds. What stands behind the micro-batches is none of it.
fn measured(setting: &train::Setting) -> (Vec<StageTimes>, f64, f64) {
    let train::Setting { model, recipe, layout, .. } = setting;
    let lowered = lower(model, recipe, layout).unwrap();
    let places: Vec<Option<Place>> = lowered.places.concat();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rehearsal = train::Rehearsal::run(setting).unwrap();
    drop(turn);
    let micro_batches = layout.micro_batches(recipe) as f64;
    let mut times = vec![StageTimes::default(); layout.stages * recipe.pipeline.chunks()];
    let (mut sends, mut ends) = (Vec::new(), (u64::MAX, 0));
    for span in &rehearsal.phases()[0].spans {
        let plan: &Plan = &rehearsal.programs()[0][span.rank];
        let step = &plan.steps[span.step];
        let us = (span.end_ns - span.start_ns) as f64 / 1e3;
        if let Action::Exchange(exchange) = &step.action {
            sends.extend(matches!(exchange.kind, CollectiveKind::Send { .. }).then_some(us));
            continue;
        }
        let Some(Place { part, when }) = places.get(step.op.index()).copied().flatten() else { continue };
        let passes = match when {
            When::Forward => &mut times[part].forward,
            When::InputGrad => &mut times[part].input_grad,
            When::WeightGrad => &mut times[part].weight_grad,
            When::Update => continue,
        };
        *passes += us / micro_batches;
        ends = (ends.0.min(span.start_ns), ends.1.max(span.end_ns));
    }
    (times, sends.iter().sum::<f64>() / sends.len() as f64, (ends.1 - ends.0) as f64 / 1e3)
}

/// The planner's clock of a pipeline says what the published forms say (a test of its own), and this test that the cards follow it: with
/// the times of the cards' own passes and transfers, they wait as long.
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
            let (times, transfer, step_us) = measured(&setting(pipeline, stages, micro_batches));
            let expected = simulate(pipeline, stages, micro_batches, &times, transfer);
            let work = expected.busy.iter().sum::<f64>() / stages as f64;
            let [found, form] = [step_us, expected.duration].map(|step_us| 1.0 - work / step_us);
            println!(
                "{pipeline}, {micro_batches} over {stages}, a transfer {transfer:.0} us: stages wait {:.2} % of {step_us:.0} us, by the form \
                 {:.2} %",
                100.0 * found,
                100.0 * form
            );
            assert!(
                (found - form).abs() <= 0.02,
                "{pipeline}, {micro_batches} over {stages}: {found} {form}: {times:?}"
            );
        }
    }
}
