//! Weights in 4-bit groups that stay packed on the cards: logits of independent arithmetic in 16
//! bits, the bytes on a card, the borders of shards, and faults that must show.

use ascend_tp::base::{DType, Precision, Unpacked};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{ModelConfig, QuantisedFormat};
use ascend_tp::generate::verify::{Verification, verify};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::models::{Head, RunShape, decoder, group_dims, unpacked};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{Kind, Program, Role};
use ascend_tp::schedule::plan::Action;

use crate::common::{cann, opened, with_reference};
use crate::quantised::{edited, swap_halves};

/// A checkpoint, and the mean difference of the logits that the rounding of activations gives.
type Expected = (&'static str, f64);

const WEIGHT_ONLY: [Expected; 5] = [
    ("awq-int4", 0.0034),
    ("ct-w4a16-asym", 0.0216),
    ("ct-w4a16-sym", 0.0274),
    ("gptq-int4", 0.0033),
    ("gptq-int4-actorder", 0.0032),
];

/// Largest mean difference, relative to the expected one.
const TOLERANCE: f64 = 1.5;

fn mean(found: &Verification) -> f64 {
    found.against_reference.unwrap().mean
}

#[test]
fn logits_in_16_bits_are_as_close_as_rounding_allows() {
    let cann = cann(8);
    let layouts = [
        (8, Residual::Replicate),
        (1, Residual::Replicate),
        (3, Residual::Seq),
        (2, Residual::Replicate),
        (8, Residual::Seq),
        (3, Residual::Replicate),
        (2, Residual::Seq),
    ];
    for (at, (name, expected)) in WEIGHT_ONLY.into_iter().enumerate() {
        let (model, reference) = with_reference(&format!("quantised/{name}"));
        for (cards, residual) in [layouts[at], layouts[(at + 3) % layouts.len()]] {
            let place = format!("{name} on {cards} cards, {residual:?}");
            let found = verify(&cann, &model, cards, model.config.dtype, residual, &reference)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(found.passed(), "{place}: {found:#?}");
            let mean = mean(&found);
            assert!(mean <= TOLERANCE * expected, "{place}: mean {mean}, expected {expected}");
        }
    }
}

/// Returns the program of a prompt, with the weights of a deployment.
fn program(config: &ModelConfig, deployment: &Deployment) -> Program {
    let precision = deployment.on_cards(deployment.precision);
    decoder(config, RunShape::new(1, 16, 32), precision, Head::LastLogits).unwrap()
}

fn has_packed(program: &Program) -> bool {
    let is_packed = |kind: &Kind| {
        matches!(
            kind,
            Kind::PackedMatMul { .. }
                | Kind::OffsetPackedMatMul { .. }
                | Kind::PackedExperts
                | Kind::OffsetPackedExperts
        )
    };
    program.ops.values().iter().any(|op| is_packed(&op.kind))
}

#[test]
fn weights_that_a_card_does_not_support_become_floats_with_a_reason() {
    let of = |name: &str| with_reference(&format!("quantised/{name}")).0.config;
    let reasons = |config: &ModelConfig, deployment: &Deployment| -> Vec<Unpacked> {
        let program = program(config, deployment);
        let mut reasons: Vec<Unpacked> =
            program.with_role(Role::Param).filter_map(|id| unpacked(&program, id)).collect();
        assert_eq!(reasons.is_empty(), has_packed(&program), "{reasons:?}");
        reasons.dedup();
        reasons
    };
    let plain =
        |config: &ModelConfig| Deployment { context: 32, longest_prompt: 16, ..Deployment::of(config, 2) };
    let symmetric = of("ct-w4a16-sym");
    assert_eq!(reasons(&symmetric, &plain(&symmetric)), []);
    let ordered = of("gptq-int4-actorder");
    assert_eq!(reasons(&ordered, &plain(&ordered)), [Unpacked::Order]);
    let mixture = of("ct-w4a16-moe");
    assert_eq!(reasons(&mixture, &plain(&mixture)), []);
    let exact = Deployment { order: SumOrder::Tree, ..plain(&symmetric) };
    assert_eq!(reasons(&symmetric, &exact), [Unpacked::Deployment]);
    let grid = Deployment { grid: Grid { rows: 2, ..Grid::LINE }, cards: 4, ..plain(&symmetric) };
    assert_eq!(reasons(&symmetric, &grid), [Unpacked::Deployment]);
    // Products of f32 have float weights, which is no exception.
    let f32 = Deployment { precision: Precision::from(DType::F32), ..plain(&symmetric) };
    let program = program(&symmetric, &f32);
    assert!(
        !has_packed(&program) && program.with_role(Role::Param).all(|id| unpacked(&program, id).is_none())
    );
}

/// 160 inputs are five groups of 32. Three cards have two groups, two groups and one group.
#[test]
fn shards_end_at_groups() {
    let (model, _) = with_reference("quantised/ct-w4a16-sym");
    let of = Deployment { context: 32, longest_prompt: 16, ..Deployment::of(&model.config, 3) };
    let programs = of.compile(&model.config).unwrap();
    let shapes = |name: &str| -> Vec<Vec<usize>> {
        let param = |rank: usize| {
            let plan = &programs.prefill[rank];
            let param = plan.params.iter().find(|param| param.name.ends_with(name)).unwrap();
            param.ranges.iter().map(ExactSizeIterator::len).collect()
        };
        (0..3).map(param).collect()
    };
    assert_eq!(shapes("0.mlp.down_proj.weight"), [[64, 2, 4], [64, 2, 4], [64, 1, 4]]);
    assert_eq!(shapes("0.mlp.down_proj.weight_scale"), [[64, 2, 1], [64, 2, 1], [64, 1, 1]]);
    assert_eq!(shapes("0.mlp.up_proj.weight"), [[2, 32, 8], [2, 32, 8], [1, 32, 8]]);
    let dims = group_dims(&program(&model.config, &of));
    let axes: Vec<(usize, usize)> = dims.iter().map(|dim| (dim.axis, dim.group)).collect();
    assert_eq!(axes[..3], [(0, 32), (0, 32), (1, 32)]);
    // A card multiplies the stored words.
    let calls = programs.decode[0].steps.iter().filter_map(|step| match &step.action {
        Action::Launch(call) => Some(call.name()),
        _ => None,
    });
    let packed = calls.filter(|name| *name == "aclnnWeightQuantBatchMatmulV2").count();
    // Queries, keys and values of a token share a product, and so do gate and up projection.
    assert_eq!(packed, 4 * model.config.layers);
}

/// A card has half a byte for each weight, and 16 bits for each group.
#[test]
fn a_card_has_the_bytes_of_the_file() {
    let config = ModelConfig { layers: 2, ..ModelConfig::preset("qwen2.5-72b").unwrap() };
    let float = Deployment { context: 256, longest_prompt: 128, ..Deployment::of(&config, 4) };
    let packed = config.quantised(QuantisedFormat::W4A16 { group: 128 }).unwrap();
    let bytes = |config: &ModelConfig| -> u64 {
        let programs = float.compile(config).unwrap();
        let of_rank = |plan: &ascend_tp::schedule::Plan| -> u64 {
            let params = plan.params.iter();
            params
                .map(|param| {
                    let elems: usize = param.ranges.iter().map(ExactSizeIterator::len).product();
                    (elems * param.dtype.size_bytes()) as u64
                })
                .sum()
        };
        programs.decode.iter().map(of_rank).sum()
    };
    let (h, f) = (config.hidden_size as u64, config.intermediate_size as u64);
    let of_layer = 2 * h * h + 2 * h * config.kv_width() as u64 + 3 * h * f;
    let saved = 2 * (2 * of_layer - of_layer / 2 - of_layer / 128 * 2);
    assert_eq!(bytes(&config) - bytes(&packed), saved);
}

/// A fault of a reader, as a change of the file with the same effect.
type Fault = (&'static str, &'static str, fn(String) -> String, fn(&str, &mut [u8]));

const FAULTS: [Fault; 4] = [
    (
        "ct-w4a16-sym",
        "the high half of a byte first",
        |config| config,
        |name, bytes| {
            if name.ends_with("weight_packed") {
                swap_halves(bytes);
            }
        },
    ),
    (
        "ct-w4a16-asym",
        "the scale of the neighbouring group",
        |config| config,
        |name, bytes| {
            if name.ends_with("proj.weight_scale") {
                bytes.rotate_left(2);
            }
        },
    ),
    (
        "gptq-int4",
        "zero points off by one",
        |config| config.replace("\"bits\": 4,", "\"bits\": 4, \"checkpoint_format\": \"gptq_v2\","),
        |_, _| (),
    ),
    (
        "awq-int4",
        "outputs of a word in another order",
        |config| config,
        |name, bytes| {
            if name.ends_with("qweight") {
                bytes.chunks_mut(4).for_each(|word| word.swap(1, 2));
            }
        },
    ),
];

#[test]
fn no_fault_of_a_reader_is_within_the_rounding() {
    let cann = cann(2);
    for (name, fault, config, change) in FAULTS {
        let folder = edited(name, config, change);
        let (model, reference) = opened(folder.path());
        let found = verify(&cann, &model, 2, model.config.dtype, Residual::Replicate, &reference)
            .unwrap_or_else(|error| panic!("{name}, {fault}: {error}"));
        let (_, expected) = WEIGHT_ONLY.into_iter().find(|(known, _)| *known == name).unwrap();
        assert!(mean(&found) > TOLERANCE * expected, "{name}, {fault}: {:?}", found.against_reference);
    }
}
