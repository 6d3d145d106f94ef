//! Context parallelism: torch's curves, gradients of one card, communication, any order of ranks,
//! checkpoints on other meshes, refusals.

use ascend_tp::collective::{ExplainedExchange, SMALL_BYTES, exchanges, verify};
use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::Mode;
use ascend_tp::placement::Residual;
use ascend_tp::program::Kind;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::schedule::plan::{Action, CollectiveKind, Step};
use ascend_tp::train::data::Batch;
use ascend_tp::train::optimizer::STATES;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::verify::Gradients;
use ascend_tp::train::{Layout, Optimizer, Recipe, Recompute, Zero, compile, lower};

use crate::common::cases::is_sampled;
use crate::common::trainers::{cards, runs_in_any_order, saved, start, whole_parts};
use crate::training::{Golden, follows};

const ONE: Layout = Layout::ONE;
const TWO: Layout = Layout { context: 2, ..ONE };
const RING: Layout = Layout { context: 2, ring: true, ..ONE };

fn golden(name: &str, layouts: &[Layout]) {
    follows(name, &Golden::read(name), layouts);
}

#[test]
fn adamw_on_parts_of_sequences() {
    let layouts = [
        Layout { micro_batch: 8, ..TWO },
        Layout { context: 3, micro_batch: 4, zero: Zero::Moments, ..ONE },
        Layout { tensor: 2, micro_batch: 4, residual: Residual::Seq, zero: Zero::Weights, ..TWO },
        Layout { data: 2, tensor: 2, micro_batch: 2, recompute: Recompute::Selective, ..TWO },
        Layout {
            data: 4,
            replicas: 2,
            micro_batch: 1,
            zero: Zero::Weights,
            recompute: Recompute::Full,
            ..TWO
        },
        Layout { stages: 2, tensor: 2, micro_batch: 2, zero: Zero::Gradients, ..TWO },
        Layout { micro_batch: 4, zero: Zero::Moments, ..RING },
        Layout {
            context: 4,
            tensor: 2,
            micro_batch: 4,
            residual: Residual::Seq,
            zero: Zero::Weights,
            ..RING
        },
        Layout { stages: 2, tensor: 2, micro_batch: 2, recompute: Recompute::Selective, ..RING },
    ];
    golden("qwen2-gqa-adamw", &layouts);
}

#[test]
fn tied_weights_masked_labels_and_sizes_that_do_not_divide_on_parts_of_sequences() {
    let layouts = [
        Layout { context: 5, micro_batch: 12, ..ONE },
        Layout { context: 7, micro_batch: 6, zero: Zero::Gradients, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 3, residual: Residual::Seq, zero: Zero::Gradients, ..TWO },
        Layout { stages: 2, context: 3, micro_batch: 4, zero: Zero::Moments, ..ONE },
        Layout { context: 5, micro_batch: 12, ..RING },
        Layout { data: 2, tensor: 2, micro_batch: 3, residual: Residual::Seq, zero: Zero::Gradients, ..RING },
    ];
    golden("qwen2-tied-uneven-masked", &layouts);
}

#[test]
fn sgd_and_16_bits_on_parts_of_sequences() {
    golden("llama3-sgd", &[Layout { data: 2, zero: Zero::Moments, ..TWO }, Layout { context: 8, ..ONE }]);
    golden("llama3-sgd", &[Layout { context: 8, ..RING }]);
    let of_both = [TWO, RING].map(|of| Layout { tensor: 2, micro_batch: 4, zero: Zero::Weights, ..of });
    golden("qwen3-qknorm-bf16", &of_both);
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    golden.recipe.precision = TrainingPrecision::F16;
    let of_both =
        [TWO, RING].map(|of| Layout { data: 2, micro_batch: 2, residual: Residual::Seq, tensor: 2, ..of });
    follows("in f16", &golden, &of_both);
}

pub(crate) fn model() -> ModelConfig {
    Golden::read("qwen2-gqa-adamw").model.config
}

pub(crate) fn recipe() -> Recipe {
    let optimizer = Optimizer::Sgd { momentum: 0.5, weight_decay: 0.0 };
    Recipe { seq: 13, global_batch: 4, clip_norm: 0.0, optimizer, ..Recipe::default() }
}

pub(crate) fn packed(step: u64, recipe: &Recipe, vocabulary: usize) -> Batch {
    let mut batch = Batch::scattered(step, recipe.global_batch, recipe.seq, vocabulary);
    for sample in 0..recipe.global_batch {
        let (mut document, mut position) = (0, 0);
        for token in 0..recipe.seq {
            let at = sample * recipe.seq + token;
            (batch.documents[at], batch.positions[at]) = (document, position);
            position += 1;
            if (token + sample) % 5 == 4 {
                batch.ignore[at] = 1;
                (document, position) = (document + 1, 0);
            }
        }
    }
    batch
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Documents that end within a rank's tokens, and sequences that do not divide: gradients as on one
/// card.
#[test]
fn gradients_of_packed_documents_are_one_cards() {
    let (config, recipe) = (model(), recipe());
    let gradients = |layout: Layout| {
        let (_emulator, cann) = cards(Mode::Parallel, layout.cards());
        let mut trainer = start(&cann, &config, &recipe, layout);
        let step = trainer.step(&packed(0, &recipe, config.vocab_size)).unwrap();
        let kept = whole_parts(&mut trainer).into_iter();
        let of = |(name, bytes): (String, Vec<u8>)| {
            Some((name.strip_prefix(STATES[2])?.to_owned(), numbers(&bytes)))
        };
        let tensors = kept.filter_map(of).collect();
        Gradients { loss: step.loss, norm: step.grad_norm, tensors, choices: None }
    };
    let expected = gradients(Layout { micro_batch: 4, ..ONE });
    assert!(expected.tensors.len() > 20 && expected.norm > 0.0);
    for layout in [
        Layout { micro_batch: 4, ..TWO },
        Layout { context: 3, tensor: 2, micro_batch: 2, residual: Residual::Seq, ..ONE },
        Layout { context: 4, data: 2, micro_batch: 1, zero: Zero::Weights, ..ONE },
        Layout { context: 13, micro_batch: 4, zero: Zero::Moments, recompute: Recompute::Full, ..ONE },
        Layout { stages: 2, tensor: 2, ..TWO },
        Layout { micro_batch: 4, ..RING },
        Layout { context: 3, tensor: 2, micro_batch: 2, residual: Residual::Seq, ..RING },
        Layout { context: 4, data: 2, micro_batch: 1, zero: Zero::Weights, ..RING },
        Layout { context: 13, micro_batch: 4, zero: Zero::Moments, recompute: Recompute::Full, ..RING },
        Layout { stages: 2, tensor: 2, ..RING },
    ] {
        let found = gradients(layout);
        let off = expected.deviations(&found).iter().map(|of| of.relative()).fold(0.0, f64::max);
        println!("{layout:?}: off by {off:.1e}");
        assert!(off <= Gradients::bound(&model()), "{layout:?}: {:?}", expected.deviations(&found)[0]);
        assert!((found.loss - expected.loss).abs() <= 1e-5, "{layout:?}: {} {}", found.loss, expected.loss);
    }
}

/// Layers gather keys and values, and reduce their gradients for each rank's tokens. No other token
/// data is exchanged.
#[test]
fn cards_exchange_keys_and_values_alone() {
    let config = model();
    // Enough tokens that only weights are small.
    let recipe = Recipe { seq: 1 << 16, global_batch: 1, ..Recipe::default() };
    for layout in [TWO, Layout { tensor: 2, ..TWO }, Layout { context: 4, zero: Zero::Moments, ..TWO }] {
        let lowered = lower(&config, &recipe, &layout).unwrap();
        let found = exchanges(&lowered.parts[0].1);
        let of_tokens =
            found.iter().filter(|exchange| exchange.axes == "cp" && exchange.bytes.0 >= SMALL_BYTES);
        let kinds: Vec<&str> = of_tokens.map(|exchange| exchange.kind).collect();
        let twice = |kind| vec![kind; 2 * config.layers];
        assert_eq!(kinds, [twice("all_gather"), twice("reduce_scatter")].concat(), "{layout:?}: {found:#?}");
    }
}

/// In ring attention, keys and values go to every other rank in both passes, and gradients return.
/// Each exchange has two ranks.
#[test]
fn in_a_ring_cards_exchange_keys_and_values_two_by_two() {
    let config = model();
    let recipe = Recipe { seq: 1 << 16, global_batch: 1, ..Recipe::default() };
    for context in [2, 4] {
        let [gathered, ring] = [false, true].map(|ring| Layout { context, ring, ..ONE });
        let of = |layout: &Layout| {
            let lowered = lower(&config, &recipe, layout).unwrap();
            let found = exchanges(&lowered.parts[0].1);
            let is_of_tokens = |of: &&ExplainedExchange| of.axes == "cp" && of.bytes.0 >= SMALL_BYTES;
            found.into_iter().filter(|of| is_of_tokens(&of)).collect::<Vec<_>>()
        };
        let bytes = |layout: &Layout| of(layout).iter().map(|of| of.bytes.0).sum::<u64>();
        assert_eq!(bytes(&ring) * 2, bytes(&gathered) * 3);
        let kinds: Vec<&str> = of(&ring).iter().map(|exchange| exchange.kind).collect();
        let each = |kind| vec![kind; config.layers];
        assert_eq!(kinds, [each("ring_attention"), each("ring_attention_grad")].concat());
        let plan = |layout: &Layout| {
            compile(&config, &recipe, layout, Target::ANY).unwrap().plans.swap_remove(0).1.swap_remove(1)
        };
        let shifts = |kind: &str| {
            let plan = plan(&ring);
            let is_shift = |step: &&Step| {
                plan.notes[step.op].kind == kind
                    && matches!(&step.action, Action::Exchange(of) if matches!(of.kind, CollectiveKind::AllToAll { .. }))
            };
            plan.steps.iter().filter(is_shift).count()
        };
        assert_eq!(shifts("ring_attention"), config.layers * (context - 1));
        assert_eq!(shifts("ring_attention_grad"), config.layers * 2 * (context - 1));
    }
}

#[test]
fn a_ring_is_of_the_cards_that_share_a_sequence() {
    // Enough tokens to shard them over all ranks if that were free.
    let recipe = Recipe { seq: 1 << 16, ..recipe() };
    let layout = Layout { tensor: 2, residual: Residual::Seq, ..RING };
    let lowered = lower(&model(), &recipe, &layout).unwrap().parts.swap_remove(0).1;
    assert!(exchanges(&lowered).iter().all(|of| !of.kind.starts_with("ring") || of.axes == "cp"));
    assert!(verify(&lowered).is_ok());
    let is_ring = |kind: &Kind| matches!(kind, Kind::RingAttention { .. } | Kind::RingAttentionGrad { .. });
    let rings: Vec<_> =
        lowered.program.ops.iter().filter(|(_, op)| is_ring(&op.kind)).map(|(id, _)| id).collect();
    assert_eq!(rings.len(), 2 * model().layers);
    let tp = lowered.mesh.named("tp");
    for id in &rings {
        let queries = &lowered.layouts[lowered.program.ops[*id].operands[0]];
        assert!(tp.iter().all(|axis| queries.dim_of(*axis).is_some_and(|dim| dim != 1)), "{queries:?}");
    }
    for (id, axes) in rings.into_iter().flat_map(|id| [(id, vec![]), (id, lowered.mesh.named("tp"))]) {
        let mut wrong = lowered.clone();
        wrong.program.ops[id].kind = wrong.program.ops[id].kind.over(axes);
        let text = verify(&wrong).unwrap_err().to_string();
        assert!(
            text.contains("exchanges between other cards than the ones with operand 1: expected cp"),
            "{text}"
        );
    }
}

#[test]
fn parts_of_sequences_run_in_any_order() {
    let config = model();
    let layouts = [
        Layout { tensor: 2, residual: Residual::Seq, zero: Zero::Weights, ..TWO },
        Layout { stages: 2, ..TWO },
    ];
    let in_rings =
        [Layout { context: 3, tensor: 2, zero: Zero::Weights, ..RING }, Layout { stages: 2, ..RING }];
    for (number, layout) in layouts.into_iter().chain(in_rings).enumerate() {
        if !is_sampled(number + 1, 2) {
            continue;
        }
        let recipe = Recipe { global_batch: 2, seq: 6, pipeline: Pipeline::ZeroBubbleH1, ..recipe() };
        runs_in_any_order(&config, &recipe, layout, &packed(0, &recipe, config.vocab_size));
    }
}

#[test]
fn checkpoints_go_on_with_and_without_parts_of_sequences() {
    let (config, recipe) = (model(), recipe());
    let layouts = [
        Layout { micro_batch: 4, ..ONE },
        Layout { context: 3, micro_batch: 2, zero: Zero::Moments, ..ONE },
        Layout { stages: 2, tensor: 2, micro_batch: 2, zero: Zero::Weights, ..TWO },
    ];
    let batch = |step: u64| packed(step, &recipe, config.vocab_size);
    let whole: Vec<f64> = {
        let (_emulator, cann) = cards(Mode::Parallel, 1);
        let mut trainer = start(&cann, &config, &recipe, layouts[0]);
        (0..3).map(|at| trainer.step(&batch(at)).unwrap().loss).collect()
    };
    for from in layouts {
        let (_emulator, cann) = cards(Mode::Parallel, from.cards());
        let mut trainer = start(&cann, &config, &recipe, from);
        trainer.step(&batch(0)).unwrap();
        let (_folder, saved) = saved(&mut trainer);
        for to in layouts {
            let (_emulator, cann) = cards(Mode::Parallel, to.cards());
            let mut other = start(&cann, &config, &recipe, to);
            other.restore(&saved, trainer.progress()).unwrap();
            assert_eq!(whole_parts(&mut trainer), whole_parts(&mut other), "{from:?} to {to:?}");
            for (at, expected) in (0..).zip(&whole).skip(1) {
                let loss = other.step(&batch(at)).unwrap().loss;
                assert!((loss - expected).abs() <= 1e-5, "{from:?} to {to:?}: {loss} {expected}");
            }
        }
    }
}

#[test]
fn more_cards_than_tokens_are_refused_before_anything_runs() {
    let text =
        compile(&model(), &recipe(), &Layout { context: 14, ..ONE }, Target::ANY).unwrap_err().to_string();
    let refused = |recipe: &Recipe, layout: &Layout, part: &str| {
        let text = compile(&model(), recipe, layout, Target::ANY).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    refused(&recipe(), &Layout { context: 1, ..RING }, "layout: ring: keys and values go around the cards");
    refused(&Recipe { exact: true, ..recipe() }, &RING, "--ring: adds the results for each card's keys");
    assert!(text.contains(
        "layout: context: is more cards than a sequence has tokens: expected at most 13, found 14"
    ));
}
