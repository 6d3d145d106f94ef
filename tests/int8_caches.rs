//! KV caches of 8-bit integers: logits within the bound of such caches, the bits of requests in any
//! schedule, the bytes on a card, and faults that must show.

use std::ops::ControlFlow;
use std::sync::Arc;

use ascend_tp::base::{Bytes, DType, KvType, Precision};
use ascend_tp::call::Call;
use ascend_tp::compile::{CompiledProgram, Deployment, compile, pins};
use ascend_tp::config::ModelConfig;
use ascend_tp::device::Cann;
use ascend_tp::exec::{Engine, EngineOptions, ProgramId};
use ascend_tp::generate::inputs::{InputBuilder, InputRow, SequenceInput, padded_ids};
use ascend_tp::generate::verify::{Difference, verify};
use ascend_tp::generate::{Model, Request, Session};
use ascend_tp::placement::{ExpertShards, Grid, Mesh, Residual};
use ascend_tp::program::models::{Head, RunShape, SequenceBlocks, decoder, input, sequence_blocks};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{Kind, Program, Role, Value};
use ascend_tp::schedule::plan::{Region, Step};
use ascend_tp::schedule::{Plan, Target};
use ascend_tp::weights::{Checkpoint, fill_from};

use crate::common::{cann, fixture, shipped, with_reference};

/// Heads of 32 and 16 numbers, windows, soft caps, sinks, experts, recurrent layers, and more cards
/// than key heads.
const MODELS: [&str; 7] =
    ["qwen3-qknorm", "gemma3", "gemma2", "gpt-oss", "qwen3-moe", "qwen3-next", "llama3-ropescaling"];

fn int8(dtype: DType) -> Precision {
    Precision::from(dtype).with_kv(KvType::Int8)
}

#[test]
fn logits_are_within_the_bound_on_all_layouts() {
    let cann = cann(8);
    let layouts = [
        (1, Residual::Replicate),
        (8, Residual::Seq),
        (3, Residual::Replicate),
        (2, Residual::Seq),
        (8, Residual::Replicate),
        (2, Residual::Replicate),
        (3, Residual::Seq),
    ];
    for (at, name) in MODELS.into_iter().enumerate() {
        let (model, reference) = with_reference(name);
        let narrow = [DType::BF16, DType::F16][at % 2];
        for (dtype, layout) in [(DType::F32, at), (narrow, at + 2)] {
            let (cards, residual) = layouts[layout % layouts.len()];
            let place = format!("{name} in {dtype} on {cards} cards, {residual:?}");
            let found = verify(&cann, &model, cards, int8(dtype), residual, &reference)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(found.passed(), "{place}: {found:#?}");
            assert!(found.alone.integers > 0 && found.around.is_some(), "{place}: {found:#?}");
            // Caches of floats give other logits.
            let Difference { expected, found, .. } = found.rounded.unwrap();
            assert!(expected != found, "{place}");
        }
    }
}

/// Logits of a program on one card. `late` are slots that an added input of this name has.
fn logits(cann: &Arc<Cann>, model: &Model, program: &Program, ids: &[u32], late: &[i64]) -> Vec<f32> {
    let config = &model.config;
    let mesh = Mesh::new(&[("tp", 1)]).unwrap();
    let pins = pins(config, program, &mesh, Residual::Replicate, ExpertShards::Whole);
    let CompiledProgram { plans, .. } = compile(program, &mesh, &pins, Target::ANY).unwrap();
    let mut engine = Engine::start(cann, vec![plans], &EngineOptions::default()).unwrap();
    engine.load(|shards| fill_from(&model.checkpoint, shards, &|_| ())).unwrap();
    let run = RunShape::new(1, ids.len(), ids.len());
    let tokens = SequenceInput { ids, start: 0, prompt_length: ids.len() };
    let blocks = sequence_blocks(1, run.caches.blocks).swap_remove(0);
    let groups = std::iter::once(SequenceBlocks { first: 0, blocks }).collect();
    let row = InputRow { tokens, groups, state: None, adapter: None };
    let inputs = InputBuilder::new(config, DType::F32).inputs(run, Head::AllLogits, &[row]);
    let inputs = inputs.with(input::IDS, padded_ids(ids.len(), std::iter::once(ids)));
    let inputs = if late.is_empty() { inputs } else { inputs.with(LATE, late.to_vec()) };
    engine.run(ProgramId(0), &inputs).unwrap().only().unwrap().floats().to_vec()
}

const LATE: &str = "late";

/// Each scale of a key is written to the next token's place, or scales of keys and values are
/// exchanged.
#[test]
fn the_scale_of_a_neighbour_exceeds_the_bound() {
    let cann = cann(1);
    let (model, reference) = with_reference("qwen3-qknorm");
    let found = verify(&cann, &model, 1, int8(DType::F32), Residual::Replicate, &reference).unwrap();
    let bound = found.rounded.unwrap().bound;
    let file = Checkpoint::open_file(&fixture("qwen3-qknorm").join("expected.safetensors")).unwrap();
    let (shape, ids) = file.read_i64("input_ids").unwrap();
    let ids: Vec<u32> = ids[..shape[1]].iter().map(|id| u32::try_from(*id).unwrap()).collect();
    let run = RunShape::new(1, ids.len(), ids.len());
    let program = |precision| decoder(&model.config, run, precision, Head::AllLogits).unwrap();
    let expected = logits(&cann, &model, &program(DType::F32.into()), &ids, &[]);
    let error = |program: &Program, late: &[i64]| {
        let found = logits(&cann, &model, program, &ids, late);
        found.iter().zip(&expected).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
    };
    let program = program(int8(DType::F32));
    let own = error(&program, &[]);
    assert!(own > 0.0 && own <= bound, "{own} is above {bound}");
    let (mut late, mut exchanged) = (program.clone(), program.clone());
    let slots = program.with_role(Role::Input).find(|id| program.values[*id].name == input::SLOTS).unwrap();
    let added = late.values.push(Value { name: LATE.to_owned(), ..program.values[slots].clone() });
    for (id, op) in program.ops.iter() {
        match op.kind {
            Kind::WriteScales { .. } if program.values[op.operands[0]].name.contains("keys") => {
                late.ops[id].operands[2] = added;
            }
            Kind::QuantBlockAttention { .. } => exchanged.ops[id].operands.swap(2, 4),
            _ => {}
        }
    }
    // The sequence has the block after the null block.
    let (first, count) = (run.caches.blocks.rows as i64, ids.len() as i64);
    let places: Vec<i64> = (0..count).map(|at| first + (at + 1) % count).collect();
    for (name, error) in [("late", error(&late, &places)), ("exchanged", error(&exchanged, &[]))] {
        assert!(error > bound, "{name} scales: {error} is within {bound}");
    }
}

/// Sums in a fixed order have the same bits on any number of cards, and so have the integers.
#[test]
fn exact_sums_have_the_same_bits_on_any_number_of_cards() {
    let cann = cann(4);
    let model = shipped();
    let request = Request {
        max_new_tokens: Some(12),
        stop_ids: Some(Vec::new()),
        log_probabilities: Some(2),
        ..Request::new((5..45).collect::<Vec<u32>>())
    };
    let of = |cards: usize, dtype: DType, kv: KvType| {
        let deployment = Deployment {
            precision: Precision::from(dtype).with_kv(kv),
            longest_prompt: 32,
            context: 64,
            order: SumOrder::Tree,
            ..Deployment::of(&model.config, cards)
        };
        let mut session = Session::builder(&cann, &model).deployment(deployment).start().unwrap();
        session
            .generate(std::slice::from_ref(&request), &mut |_| ControlFlow::Continue(()))
            .unwrap()
            .sequences
    };
    for dtype in [DType::F32, DType::BF16] {
        let expected = of(1, dtype, KvType::Int8);
        for cards in [2, 4] {
            assert_eq!(of(cards, dtype, KvType::Int8), expected, "{dtype} on {cards} cards");
        }
        assert_ne!(of(1, dtype, KvType::Activations), expected, "{dtype}");
    }
}

/// A key or value takes a byte for each number, and four for each head. Decode reads the integers
/// in the fused operator, and prompts read products with the scales.
#[test]
fn a_card_has_a_byte_for_each_number() {
    let config = ModelConfig { layers: 2, ..ModelConfig::preset("qwen2.5-72b").unwrap() };
    let of = |kv| Deployment {
        precision: Precision::from(DType::BF16).with_kv(kv),
        batch: 4,
        longest_prompt: 512,
        context: 2048,
        ..Deployment::of(&config, 4)
    };
    let [float, integers] = [KvType::Activations, KvType::Int8].map(|kv| of(kv).compile(&config).unwrap());
    let bytes = |plans: &[Plan]| plans[0].region_bytes(Region::States).0;
    let (float, found) = (bytes(&float.decode), bytes(&integers.decode));
    assert_eq!(found * 128 * 2, float * (128 + 4), "{found} of {float}");
    let operands = |plan: &Plan| -> Vec<(DType, bool)> {
        let calls = plan.steps.iter().filter_map(Step::call);
        let read = calls.filter_map(|call| match call {
            Call::FusedAttention { k, k_scale, .. } => Some((k.dtype, k_scale.is_some())),
            _ => None,
        });
        read.collect()
    };
    assert_eq!(operands(&integers.decode[0]), [(DType::I8, true); 2]);
    assert_eq!(operands(&integers.prefill[0]), [(DType::BF16, false); 2]);
    // More blocks fit into the same memory.
    let blocks = |kv| {
        let (deployment, limit) = (of(kv), Bytes(64 << 20));
        deployment.cache_blocks_within(&config, &deployment.compile(&config).unwrap().decode, limit)
    };
    let (float, found) = (blocks(KvType::Activations), blocks(KvType::Int8));
    assert!(found * 132 > float * 250 && found * 132 <= (float + 1) * 256, "{found} instead of {float}");
}

#[test]
fn caches_that_cannot_be_integers_are_refused_together() {
    let config = with_reference("deepseek-v2").0.config;
    let deployment = Deployment {
        precision: int8(DType::BF16),
        block_tokens: 48,
        longest_prompt: 16,
        context: 32,
        grid: Grid { rows: 2, ..Grid::LINE },
        ..Deployment::of(&config, 3)
    };
    let problems = deployment.compile(&config).unwrap_err().to_string();
    for expected in [
        "--kv-dtype int8: latent attention has no key and value heads",
        "--kv-dtype int8: cache blocks have a number of tokens that CANN does not take",
        "expected a multiple of 32, found 48",
        "grid: does not match the cards of a stage",
    ] {
        assert!(problems.contains(expected), "{expected} is not in {problems}");
    }
}
