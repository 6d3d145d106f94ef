//! Quantised checkpoints as they are published: logits and tokens of independent arithmetic on many
//! layouts, and faults that must show.
//!
//! The checkpoints in `fixtures/quantised` have random weights. Their logits were computed in f32
//! around the products, from the dequantised weights or from the integers.

use std::ops::ControlFlow;
use std::sync::Arc;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::generate::verify::verify;
use ascend_tp::generate::{Model, Request, Sequence, Session};
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::program::Role;
use ascend_tp::program::models::{Head, RunShape, checkpoint_tensors, decoder};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::train::{self, Layout, Recipe};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use crate::common::{cann, fixture, open, opened, with_reference};
use crate::dense::passes;
use crate::lora::{adapter, of_adapters};

const CHECKPOINTS: [&str; 11] = [
    "awq-int4",
    "ct-int8-w8a8",
    "ct-w4a16-asym",
    "ct-w4a16-moe",
    "ct-w4a16-sym",
    "fp8-block",
    "gptq-int4",
    "gptq-int4-actorder",
    "modelslim-w8a8",
    "modelslim-w8a8-dynamic",
    "modelslim-w8a8-dynamic-moe",
];

/// Returns a mesh and a residual stream. `verify` compares all values with one card too.
fn layout(checkpoint: usize) -> (usize, Residual) {
    use Residual::{Replicate, Seq};
    let layouts = [(8, Seq), (3, Replicate), (2, Seq), (8, Replicate), (3, Seq)];
    layouts[checkpoint % layouts.len()]
}

#[test]
fn logits_and_tokens_are_those_of_the_reference() {
    let cann = cann(8);
    for (index, name) in CHECKPOINTS.into_iter().enumerate() {
        let (model, reference) = with_reference(&format!("quantised/{name}"));
        let (cards, residual) = layout(index);
        let place = format!("{name}: {cards} cards, {residual:?}");
        let found = verify(&cann, &model, cards, DType::F32, residual, &reference)
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        passes(&place, &found);
        let has_integers = model.config.formats.iter().any(|format| format.is_integer());
        let is_mixture = model.config.has_mixture();
        assert_eq!(found.alone.integers > 0, has_integers, "{place}");
        assert!(found.around.is_some() == has_integers || is_mixture, "{place}");
    }
}

#[test]
fn results_in_16_bits_are_within_their_bounds() {
    let cann = cann(8);
    for (name, cards) in [("gptq-int4", 3), ("modelslim-w8a8", 2), ("modelslim-w8a8-dynamic-moe", 3)] {
        let (model, reference) = with_reference(&format!("quantised/{name}"));
        let dtype = model.config.dtype;
        let found = verify(&cann, &model, cards, dtype, Residual::Replicate, &reference)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found.passed(), "{name} in {dtype}: {found:#?}");
    }
}

/// Returns a copy of a checkpoint. `change` receives the name and the bytes of each tensor.
pub(crate) fn edited(
    name: &str,
    config: impl Fn(String) -> String,
    change: impl Fn(&str, &mut [u8]),
) -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in std::fs::read_dir(fixture(&format!("quantised/{name}"))).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        if file == "config.json" {
            bytes = config(String::from_utf8(bytes).unwrap()).into_bytes();
        } else if file.ends_with(".safetensors") && file != "expected.safetensors" {
            let (length, _) = bytes.split_first_chunk::<8>().unwrap();
            let start = 8 + usize::try_from(u64::from_le_bytes(*length)).unwrap();
            let header: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(&bytes[8..start]).unwrap();
            for (tensor, entry) in header.iter().filter(|(tensor, _)| *tensor != "__metadata__") {
                let [first, last] =
                    [0, 1].map(|at| usize::try_from(entry["data_offsets"][at].as_u64().unwrap()).unwrap());
                change(tensor, &mut bytes[start + first..start + last]);
            }
        }
        std::fs::write(folder.path().join(file), bytes).unwrap();
    }
    folder
}

pub(crate) fn swap_halves(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = byte.rotate_left(4));
}

/// A fault: the checkpoint, its name, and changes of the configuration and of tensors that have the
/// same effect as the fault in a reader.
type Fault = (&'static str, &'static str, fn(String) -> String, fn(&str, &mut [u8]));

const FAULTS: [Fault; 9] = [
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
        "ct-w4a16-moe",
        "the scale of the neighbouring group",
        |config| config,
        |name, bytes| {
            if name.ends_with("proj.weight_scale") {
                bytes.rotate_left(2);
            }
        },
    ),
    (
        "ct-w4a16-asym",
        "zero points in the order of rows",
        |config| config,
        |name, bytes| {
            if name.ends_with("weight_zero_point") {
                swap_halves(bytes);
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
        "gptq-int4-actorder",
        "groups of consecutive inputs",
        |config| config,
        |name, bytes| {
            if name.ends_with("g_idx") {
                for (at, group) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *group = (at as u32 / 32).to_le_bytes();
                }
            }
        },
    ),
    (
        "awq-int4",
        "outputs of a word in their order",
        |config| config,
        |name, bytes| {
            if name.ends_with("qweight") {
                for word in bytes.as_chunks_mut::<4>().0 {
                    let numbers = u32::from_le_bytes(*word);
                    // The number of output `i` moves to the place of AWQ's output `i`.
                    let places = [0, 4, 1, 5, 2, 6, 3, 7];
                    let moved = (0..8).map(|at| (numbers >> (4 * at) & 15) << (4 * places[at]));
                    *word = moved.sum::<u32>().to_le_bytes();
                }
            }
        },
    ),
    (
        "fp8-block",
        "the last block stretched",
        // 160 rows or columns are then two blocks of 80.
        |config| config.replace("128", "80"),
        |_, _| (),
    ),
    (
        "modelslim-w8a8",
        "the stored bias added twice",
        |config| config,
        |name, bytes| {
            if name.ends_with("quant_bias") {
                for bias in bytes.as_chunks_mut::<4>().0 {
                    *bias = (2 * i32::from_le_bytes(*bias)).to_le_bytes();
                }
            }
        },
    ),
    (
        "modelslim-w8a8",
        "inputs without their offset",
        |config| config,
        |name, bytes| {
            if name.ends_with("input_offset") {
                bytes.fill(0);
            }
        },
    ),
];

#[test]
fn no_fault_of_a_reader_passes() {
    let cann = cann(8);
    for (name, fault, config, change) in FAULTS {
        let folder = edited(name, config, change);
        // Logits show each fault. Tokens take longer.
        for tensor in ["greedy_ids", "greedy_prompt"] {
            replaced(&folder, "expected.safetensors", tensor, &tensor.to_uppercase());
        }
        let (model, reference) = opened(folder.path());
        let found = verify(&cann, &model, 1, DType::F32, Residual::Replicate, &reference)
            .unwrap_or_else(|error| panic!("{name}, {fault}: {error}"));
        let logits = found.logits.as_ref().unwrap();
        assert!(!found.passed() && !logits.is_within(), "{name}, {fault}: {logits:?}");
    }
}

/// Replaces a text in the file of the weights. Both texts have the same length.
fn replaced(folder: &TempDir, file: &str, from: &str, to: &str) {
    let path = folder.path().join(file);
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
    std::fs::write(path, [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()).unwrap();
}

#[test]
fn damaged_checkpoints_are_refused_with_all_problems() {
    let refused = |folder: &TempDir| Model::open(folder.path()).unwrap_err().to_string();
    // A missing scale, and scales of groups of another size.
    let folder = edited(
        "ct-w4a16-sym",
        |config| config.replace("\"group_size\": 32", "\"group_size\": 16"),
        |_, _| (),
    );
    replaced(
        &folder,
        "model.safetensors",
        "model.layers.1.mlp.up_proj.weight_scale",
        "model.layers.1.mlp.up_proj.weight_slack",
    );
    let found = refused(&folder);
    for expected in [
        "model.layers.1.mlp.up_proj.weight_scale: missing tensor: expected [160,4]",
        "model.layers.1.mlp.up_proj.weight_slack: unexpected tensor: found bf16 [160,2]",
        "model.layers.0.self_attn.q_proj.weight_scale: wrong shape: expected [64,4], found [64,2]",
        "model.layers.1.mlp.down_proj.weight_scale: wrong shape: expected [64,10], found [64,5]",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }

    let folder = edited(
        "modelslim-w8a8-dynamic",
        |config| config,
        |tensor, bytes| {
            if tensor == "model.layers.0.mlp.up_proj.weight_offset" {
                bytes[..2].copy_from_slice(&[0x80, 0x3f]);
            }
        },
    );
    let found = refused(&folder);
    let expected = "model.layers.0.mlp.up_proj.weight_offset: 8-bit weights with an offset are not supported: \
                    expected offsets of 0, found 1";
    assert!(found.contains(expected), "{found}");

    let description = "quant_model_description.json";
    let folder = edited("modelslim-w8a8-dynamic", |config| config, |_, _| ());
    replaced(
        &folder,
        description,
        "gate_proj.weight\": \"W8A8_DYNAMIC\"",
        "gate_proj.weight\": \"W4A8_DYNAMIC\"",
    );
    let found = refused(&folder);
    let expected = "quant_model_description.json: model.layers.0.mlp.gate_proj.weight: unknown scheme: \
                    expected FLOAT, W8A8 or W8A8_DYNAMIC, found \"W4A8_DYNAMIC\"";
    assert!(found.contains(expected), "{found}");

    // Problems of the description and of the tensors come together. The layer with the unknown
    // scheme is not checked further.
    replaced(&folder, description, "\"model.norm.weight\"", "\"model.form.weight\"");
    replaced(
        &folder,
        "quant_model_weights.safetensors.index.json",
        "model.layers.0.mlp.down_proj.weight_scale",
        "model.layers.0.mlp.down_proj.weight_slack",
    );
    replaced(
        &folder,
        "quant_model_weights-00001-of-00001.safetensors",
        "model.layers.0.mlp.down_proj.weight_scale",
        "model.layers.0.mlp.down_proj.weight_slack",
    );
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    let config = config.replace("\"num_key_value_heads\": 3", "\"num_key_value_heads\": 2");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let found = refused(&folder);
    for expected in [
        expected,
        "quant_model_description.json: model.form.weight: describes a tensor that does not exist",
        "model.layers.0.mlp.down_proj.weight_scale: missing tensor: expected [96]",
        "model.layers.0.mlp.down_proj.weight_slack: unexpected tensor",
        "model.layers.1.self_attn.k_proj.weight: wrong shape: expected [32,96], found [48,96]",
        "model.layers.1.self_attn.k_proj.weight_scale: wrong shape: expected [32], found [48,1]",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    assert!(!found.contains("gate_proj.weight_scale"), "{found}");

    let folder = edited("modelslim-w8a8", |config| config, |_, _| ());
    replaced(&folder, description, "\"model.norm.weight\"", "\"model.form.weight\"");
    let found = refused(&folder);
    let expected = "quant_model_description.json: model.form.weight: describes a tensor that does not exist";
    assert!(found.contains(expected), "{found}");
    std::fs::write(folder.path().join(description), "{\"version\": \"1.0.0\"}").unwrap();
    let found = refused(&folder);
    assert!(found.contains("quant_model_description.json: names no tensor"), "{found}");
    std::fs::remove_file(folder.path().join(description)).unwrap();
    let found = refused(&folder);
    assert!(found.contains("config.json: quantize: the description of the weights is missing"), "{found}");
}

#[test]
fn what_quantised_weights_cannot_do_is_refused() {
    let (model, _) = with_reference("quantised/modelslim-w8a8-dynamic-moe");
    let of = Deployment { context: 32, longest_prompt: 16, ..Deployment::of(&model.config, 2) };
    let refused = |deployment: Deployment| deployment.compile(&model.config).unwrap_err().to_string();
    let found = refused(Deployment { precision: Precision::w8a8(DType::BF16), ..of });
    assert!(found.contains("the weights of the checkpoint are quantised already"), "{found}");
    let found = refused(Deployment { order: SumOrder::Tree, ..of });
    assert!(found.contains("quantised products are rounded on each card"), "{found}");
    let found = refused(Deployment { experts: ExpertShards::Inner, ..of });
    assert!(found.contains("a row of a quantised expert has one scale"), "{found}");
    let recipe = Recipe { seq: 16, global_batch: 1, ..Recipe::default() };
    let found = train::check(&model.config, &recipe, &Layout::ONE).unwrap_err().to_string();
    assert!(
        found.contains("quantised weights cannot be trained: expected float weights, found int8"),
        "{found}"
    );
}

/// Returns a checkpoint with the weights as f32.
pub(crate) fn as_floats(model: &Model) -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = std::fs::read_to_string(model.dir.join("config.json")).unwrap();
    let mut config: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    config.remove("quantization_config").unwrap();
    std::fs::write(folder.path().join("config.json"), serde_json::to_string(&config).unwrap()).unwrap();
    let run = RunShape::new(1, 1, 1);
    let program = decoder(&model.config, run, DType::F32, Head::AllLogits).unwrap();
    let float = ModelConfig { formats: Arc::default(), ..model.config.clone() };
    let shapes = checkpoint_tensors(&decoder(&float, run, DType::F32, Head::AllLogits).unwrap());
    let tensors: Vec<(String, Vec<u8>)> = program
        .with_role(Role::Param)
        .flat_map(|id| {
            let value = &program.values[id];
            let (source, ranges) = (value.source.as_ref().unwrap(), value.shape.iter().map(|size| 0..*size));
            let mut bytes = vec![0; value.shape.elems() * 4];
            let ranges: Vec<std::ops::Range<usize>> = ranges.collect();
            model.checkpoint.read_param(source, &value.shape, &ranges, DType::F32, &mut bytes).unwrap();
            let names = source.stack(&value.shape).unwrap().names;
            let of_tensor = bytes.len() / names.count();
            let parts = bytes.chunks(of_tensor).map(<[u8]>::to_vec).collect::<Vec<_>>();
            names.iter().zip(parts).collect::<Vec<_>>()
        })
        .collect();
    let views = tensors.iter().map(|(name, bytes)| {
        (name, TensorView::new(Dtype::F32, shapes[name].sizes().to_vec(), bytes).unwrap())
    });
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    folder
}

/// Returns tokens and log-probabilities of a prompt on three cards.
fn answered(model: &Model, precision: Precision) -> Vec<Sequence> {
    let cann = cann(3);
    let builder = Session::builder(&cann, model).cards(3).context(32).precision(precision);
    let mut session = builder.prompt_log_probabilities().start().unwrap();
    let request = Request {
        max_new_tokens: Some(6),
        log_probabilities: Some(4),
        prompt_log_probabilities: Some(4),
        ..Request::new(vec![3, 50, 7, 121, 90, 8, 33])
    };
    session.generate(&[request], &mut |_| ControlFlow::Continue(())).unwrap().sequences
}

#[test]
fn fp8_weights_as_integers_are_those_of_their_floats() {
    let (model, reference) = with_reference("quantised/fp8-block");
    let precision = Precision::fp8_as_int8(DType::BF16);
    let folder = as_floats(&model);
    let floats = open(folder.path());
    let found = answered(&model, precision);
    assert_eq!(found, answered(&floats, Precision::w8a8(DType::BF16)));
    assert_ne!(found, answered(&model, DType::BF16.into()));
    let found = verify(&cann(8), &model, 3, precision, Residual::Seq, &reference).unwrap();
    assert!(found.passed() && found.alone.integers > 0, "{found:#?}");

    let of = Deployment { context: 32, longest_prompt: 16, ..Deployment::of(&model.config, 2) };
    let refused = |config: &ModelConfig, precision| {
        Deployment { precision, ..of }.compile(config).unwrap_err().to_string()
    };
    let found = refused(&floats.config, precision);
    assert!(found.contains("--fp8-as int8: the checkpoint has no weights in fp8 blocks"), "{found}");
    let found = refused(&model.config, Precision::w8a8(DType::BF16));
    assert!(found.contains("quantised already") && found.contains("use --fp8-as int8"), "{found}");
}

#[test]
fn adapters_next_to_packed_weights_have_the_gradients_of_float_weights() {
    let (model, _) = with_reference("quantised/ct-w4a16-sym");
    let folder = as_floats(&model);
    let floats = open(folder.path());
    let adapter = adapter(&floats, &["q_proj", "down_proj"]);
    let layout = Layout { tensor: 3, micro_batch: 5, ..Layout::ONE };
    let expected = of_adapters(&floats, &adapter, layout);
    let found = of_adapters(&model, &adapter, layout);
    assert_eq!((found.loss, found.tensors), (expected.loss, expected.tensors));
    let recipe = Recipe { lora: None, ..Recipe::default() };
    let found = train::check(&model.config, &recipe, &Layout::ONE).unwrap_err().to_string();
    assert!(found.contains("train adapters next to the weights"), "{found}");
}
