//! Mixtures with experts in 4-bit groups, in the names of Kimi K2: results of the dequantised
//! weights on many layouts, the bytes of each rank, and faults that must show.
//!
//! The checkpoints are made here, with random numbers. Each comes with a float checkpoint of the
//! same weights.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::base::{DType, Unpacked};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{ModelConfig, QuantisedFormat};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::verify::{Reference, Verification, verify, verify_on};
use ascend_tp::generate::{Model, Request, Session};
use ascend_tp::placement::{ExpertShards, Grid, Residual};
use ascend_tp::program::models::{Head, RunShape, checkpoint_tensors, decoder, group_dims, unpacked};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{Program, Role};
use ascend_tp::schedule::Plan;
use ascend_tp::weights::quantise;
use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::random::Random;
use crate::common::{cann, fixture, open, with_reference};
use crate::quantised::as_floats;

const HIDDEN: usize = 64;
/// Two groups of 32.
const INNER: usize = 64;
const GROUP: usize = 32;
const EXPERTS: usize = 12;

/// A checkpoint tensor: type, shape and bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);
type Tensors = BTreeMap<String, Stored>;

/// The form of the numbers in the files.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Files {
    Symmetric,
    ZeroPoints,
    Awq,
}

/// Returns the configuration of a small model of Kimi K2's kind, without formats.
fn config() -> Value {
    let text = std::fs::read_to_string(fixture("deepseek-v3").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [
        ("hidden_size", json!(HIDDEN)),
        ("moe_intermediate_size", json!(INNER)),
        ("n_routed_experts", json!(EXPERTS)),
        ("num_hidden_layers", json!(2)),
        ("num_nextn_predict_layers", json!(0)),
    ] {
        config[key] = value;
    }
    config
}

fn is_expert(name: &str) -> bool {
    name.contains(".mlp.experts.")
}

/// Returns the formats that the files of a checkpoint describe.
fn formats(files: Files) -> Value {
    let ignore = json!([
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"
    ]);
    match files {
        Files::Awq => json!({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": true,
            "version": "gemm", "modules_to_not_convert": ["lm_head", "self_attn", "shared_experts", "layers.0.mlp"]}),
        _ => json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ignore,
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null, "weights":
                {"num_bits": 4, "type": "int", "symmetric": files == Files::Symmetric, "strategy": "group",
                 "group_size": GROUP}}}}),
    }
}

/// Returns words of eight numbers, the first one in the lowest bits.
fn words(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    let numbers: Vec<u32> = numbers.collect();
    let word = |eight: &[u32]| eight.iter().rev().fold(0, |word: u32, number| word << 4 | number);
    numbers.chunks(8).flat_map(|eight| word(eight).to_le_bytes()).collect()
}

/// Adds the tensors of a matrix `[n, k]` in groups, and returns the weights.
fn packed_matrix(layer: &str, [n, k]: [usize; 2], files: Files, tensors: &mut Tensors) -> Vec<f32> {
    let mut random = Random::of(layer);
    let groups = k / GROUP;
    let numbers: Vec<u32> = (0..n * k).map(|_| random.below(16) as u32).collect();
    let of_groups = n * groups;
    // Neighbouring scales differ by factors.
    let scales: Vec<bf16> =
        (0..of_groups).map(|_| bf16::from_f32((1.0 + random.below(24) as f32 / 8.0) / 160.0)).collect();
    let zeros: Vec<u32> = (0..of_groups)
        .map(|_| if files == Files::Symmetric { 8 } else { 6 + random.below(5) as u32 })
        .collect();
    let bytes = |scales: &mut dyn Iterator<Item = bf16>| scales.flat_map(|x| x.to_le_bytes()).collect();
    let mut add = |suffix: &str, dtype, shape: &[usize], bytes: Vec<u8>| {
        tensors.insert(format!("{layer}.{suffix}"), (dtype, shape.to_vec(), bytes));
    };
    if files == Files::Awq {
        // Each word has the even outputs first.
        let places = |n: usize| n / 8 * 8 + [0, 2, 4, 6, 1, 3, 5, 7][n % 8];
        let of_inputs = (0..k * n).map(|at| numbers[places(at % n) * k + at / n]);
        add("qweight", Dtype::I32, &[k, n / 8], words(of_inputs));
        let by_group = |at: usize| at % n * groups + at / n;
        add("scales", Dtype::BF16, &[groups, n], bytes(&mut (0..of_groups).map(|at| scales[by_group(at)])));
        let of_zeros = (0..of_groups).map(|at| zeros[places(at % n) * groups + at / n]);
        add("qzeros", Dtype::I32, &[groups, n / 8], words(of_zeros));
    } else {
        add("weight_packed", Dtype::I32, &[n, k / 8], words(numbers.iter().copied()));
        add("weight_scale", Dtype::BF16, &[n, groups], bytes(&mut scales.iter().copied()));
        let sizes = [n, k].iter().flat_map(|size| (*size as i64).to_le_bytes()).collect();
        add("weight_shape", Dtype::I64, &[2], sizes);
        if files == Files::ZeroPoints {
            // Words are along the outputs.
            let by_row = (0..of_groups).map(|at| {
                let (row, group, place) = (at / 8 / groups, at / 8 % groups, at % 8);
                zeros[(8 * row + place) * groups + group]
            });
            add("weight_zero_point", Dtype::I32, &[n / 8, groups], words(by_row));
        }
    }
    let weight = |at: usize| {
        let of = at / k * groups + at % k / GROUP;
        (numbers[at] as f32 - zeros[of] as f32) * scales[of].to_f32()
    };
    (0..n * k).map(weight).collect()
}

fn written(config: &Value, tensors: &Tensors) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    folder
}

/// Writes a model with packed experts, and a model with their weights in f32. `change` receives the
/// name and the bytes of each tensor with packed weights.
fn checkpoints(files: Files, change: impl Fn(&str, &mut [u8])) -> [TempDir; 2] {
    let float = config();
    let model = ModelConfig::from_json(&float.to_string()).unwrap();
    let program = decoder(&model, RunShape::new(1, 1, 1), DType::F32, Head::AllLogits).unwrap();
    let (mut packed, mut floats) = (Tensors::new(), Tensors::new());
    for (name, shape) in checkpoint_tensors(&program) {
        if is_expert(&name) {
            let layer = name.strip_suffix(".weight").unwrap();
            let weights = packed_matrix(layer, [shape[0], shape[1]], files, &mut packed);
            let bytes = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
            floats.insert(name, (Dtype::F32, shape.to_vec(), bytes));
            continue;
        }
        let mut random = Random::of(&name);
        let (size, middle) = match shape.rank() {
            1 => (0.1, if name.contains("norm") { 1.0 } else { 0.0 }),
            _ => (1.7 / (shape[1] as f32).sqrt(), 0.0),
        };
        let elems = (0..shape.elems()).map(|_| bf16::from_f32(middle + size * random.unit()));
        let elems: Vec<bf16> = elems.collect();
        // Some tensors must have their type.
        let wide = elems.iter().flat_map(|x| x.to_f32().to_le_bytes()).collect();
        let tensor = match name.ends_with("e_score_correction_bias") {
            true => (Dtype::F32, shape.to_vec(), wide),
            false => (Dtype::BF16, shape.to_vec(), elems.iter().flat_map(|x| x.to_le_bytes()).collect()),
        };
        packed.insert(name.clone(), tensor.clone());
        floats.insert(name, tensor);
    }
    for (name, (_, _, bytes)) in packed.iter_mut().filter(|(name, _)| is_expert(name)) {
        change(name, bytes);
    }
    let mut with_formats = float.clone();
    with_formats["quantization_config"] = formats(files);
    [written(&with_formats, &packed), written(&float, &floats)]
}

/// Writes the packed model as the text tower of a model of images and text, as Kimi K2.5 is.
fn tower(packed: &Path) -> TempDir {
    let text = std::fs::read_to_string(packed.join("config.json")).unwrap();
    let mut text: Value = serde_json::from_str(&text).unwrap();
    text["model_type"] = json!("kimi_k2");
    let whole = json!({"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "text_config": text});
    let bytes = std::fs::read(packed.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors = file
        .iter()
        .map(|(name, view)| {
            let stored = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (format!("language_model.{name}"), stored)
        })
        .collect();
    tensors.insert("vision_tower.patch_embed.bias".to_owned(), (Dtype::BF16, vec![2], vec![0; 4]));
    written(&whole, &tensors)
}

fn program(config: &ModelConfig, deployment: &Deployment) -> Program {
    let precision = deployment.on_cards(deployment.precision);
    decoder(config, RunShape::new(1, 16, 32), precision, Head::LastLogits).unwrap()
}

/// Returns whether the experts are packed, and with which kind.
fn kinds(program: &Program) -> Vec<&'static str> {
    let kinds = program.ops.values().iter().filter(|op| op.kind.row().experts.is_some());
    kinds.map(|op| op.kind.row().name).collect()
}

/// Returns the log-probabilities of the tokens of two prompts.
fn scores(folder: &Path, cards: usize, dtype: DType, experts: ExpertShards) -> Vec<f32> {
    let (cann, model) = (cann(cards), open(folder));
    let deployment = Deployment { experts, ..Deployment::of(&model.config, cards) };
    let builder = Session::builder(&cann, &model).deployment(deployment).batch(2).context(32);
    let mut session = builder.precision(dtype).prompt_log_probabilities().start().unwrap();
    let requests = [3, 50].map(|first| {
        let prompt = (0..24).map(|at| (first + at * 37) % 211).collect::<Vec<u32>>();
        Request { max_new_tokens: Some(1), prompt_log_probabilities: Some(1), ..Request::new(prompt) }
    });
    let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
    let of_prompts = found.sequences.iter().flat_map(|sequence| &sequence.prompt_log_probabilities);
    of_prompts.map(|of_token| of_token.chosen).collect()
}

/// Returns the mean of the absolute differences.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!((found.len(), expected.len()), (46, 46));
    let pairs = found.iter().zip(expected);
    pairs.map(|(found, expected)| f64::from((found - expected).abs())).sum::<f64>() / 46.0
}

const WHOLE: ExpertShards = ExpertShards::Whole;
const INNER_SHARDS: ExpertShards = ExpertShards::Inner;

/// Each weight is rounded to the type of the activations, as in the float model. Products can be
/// added in another order, which tips a few roundings. All roundings together differ more.
#[test]
fn results_are_those_of_the_dequantised_weights() {
    let layouts = [
        (1, DType::BF16, WHOLE),
        (4, DType::F16, WHOLE),
        (2, DType::BF16, INNER_SHARDS),
        (2, DType::F16, WHOLE),
        (4, DType::BF16, WHOLE),
    ];
    for (at, files) in [Files::Symmetric, Files::ZeroPoints, Files::Awq].into_iter().enumerate() {
        let [packed, floats] = checkpoints(files, |_, _| ());
        for (cards, dtype, experts) in [layouts[at], layouts[at + 1], layouts[at + 2]] {
            let place = format!("{files:?} on {cards} cards in {dtype}, {experts:?}");
            let [found, expected] =
                [&packed, &floats].map(|folder| scores(folder.path(), cards, dtype, experts));
            let exact = scores(floats.path(), cards, DType::F32, experts);
            let (found, roundings) = (difference(&found, &expected), difference(&expected, &exact));
            assert!(found < roundings / 2.0, "{place}: {found}, roundings {roundings}");
        }
    }
}

/// Logits of independent arithmetic in f32, for a published mixture.
#[test]
fn logits_in_16_bits_are_as_close_as_those_of_float_weights() {
    let (model, reference) = with_reference("quantised/ct-w4a16-moe");
    let floats = as_floats(&model);
    let floats = open(floats.path());
    for (cards, residual) in [(1, Residual::Replicate), (8, Residual::Seq), (3, Residual::Replicate)] {
        let [found, expected] = [&model, &floats].map(|model| {
            let found = verify(&cann(8), model, cards, DType::BF16, residual, &reference).unwrap();
            assert!(found.passed(), "{cards} cards: {found:#?}");
            found.against_reference.unwrap().mean
        });
        assert!(found < 1.1 * expected, "{cards} cards: {found}, expected {expected}");
    }
}

#[test]
fn a_text_tower_has_the_results_of_its_text_model() {
    let [packed, _] = checkpoints(Files::Symmetric, |_, _| ());
    let tower = tower(packed.path());
    let config = open(tower.path()).config;
    assert_eq!(kinds(&program(&config, &Deployment::of(&config, 2))), ["packed_experts"]);
    let [found, expected] = [&tower, &packed].map(|folder| scores(folder.path(), 2, DType::BF16, WHOLE));
    assert_eq!(found, expected);
}

fn verified(model: &Model, deployment: &Deployment) -> Verification {
    let reference = Reference::without(model.config.vocab_size);
    let cann = cann(deployment.cards);
    verify_on(&cann, model, deployment, &reference, &EngineOptions::default()).unwrap().unwrap()
}

#[test]
fn values_on_many_cards_are_within_their_bounds() {
    let [packed, _] = checkpoints(Files::ZeroPoints, |_, _| ());
    let model = open(packed.path());
    let of = |cards| Deployment { precision: DType::BF16.into(), ..Deployment::of(&model.config, cards) };
    for deployment in [
        Deployment { residual: Residual::Seq, ..of(4) },
        Deployment { experts: INNER_SHARDS, precision: DType::F16.into(), ..of(2) },
        // The third card has no group of the two.
        Deployment { experts: INNER_SHARDS, ..of(3) },
        Deployment { stages: 2, ..of(4) },
        Deployment { precision: DType::F32.into(), ..of(2) },
    ] {
        let found = verified(&model, &deployment);
        assert!(found.passed() && found.values > 20, "{deployment:?}: {found:#?}");
    }
}

/// A fault of a reader, as a change of the file with the same effect.
type Fault = (Files, &'static str, fn(&str, &mut [u8]));

const FAULTS: [Fault; 4] = [
    (Files::Symmetric, "the high half of a byte first", |name, bytes| {
        if name.ends_with("weight_packed") {
            bytes.iter_mut().for_each(|byte| *byte = byte.rotate_left(4));
        }
    }),
    (Files::Symmetric, "the scale of the neighbouring group", |name, bytes| {
        if name.ends_with("down_proj.weight_scale") {
            bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|pair| pair.rotate_left(2));
        }
    }),
    (Files::Symmetric, "the scales of the neighbouring output", |name, bytes| {
        if name.ends_with("up_proj.weight_scale") {
            bytes.rotate_left(4);
        }
    }),
    (Files::ZeroPoints, "zero points in the order of rows", |name, bytes| {
        if name.ends_with("weight_zero_point") {
            bytes.iter_mut().for_each(|byte| *byte = byte.rotate_left(4));
        }
    }),
];

#[test]
fn no_fault_of_a_reader_is_within_the_roundings() {
    for (files, fault, change) in FAULTS {
        let [packed, floats] = checkpoints(files, change);
        let [found, expected] = [&packed, &floats].map(|folder| scores(folder.path(), 2, DType::BF16, WHOLE));
        let exact = scores(floats.path(), 2, DType::F32, WHOLE);
        let (found, roundings) = (difference(&found, &expected), difference(&expected, &exact));
        assert!(found > 2.0 * roundings, "{fault}: {found}, roundings {roundings}");
    }
}

#[test]
fn experts_stay_packed_unless_the_program_needs_floats() {
    let [packed, _] = checkpoints(Files::Symmetric, |_, _| ());
    let config = open(packed.path()).config;
    let plain = Deployment { context: 32, longest_prompt: 16, ..Deployment::of(&config, 2) };
    let plain = Deployment { precision: DType::BF16.into(), ..plain };
    let reasons = |config: &ModelConfig, deployment: &Deployment| -> (Vec<&'static str>, Vec<Unpacked>) {
        let program = program(config, deployment);
        let reasons = program.with_role(Role::Param).filter_map(|id| unpacked(&program, id));
        let mut reasons: Vec<Unpacked> = reasons.collect();
        reasons.dedup();
        (kinds(&program), reasons)
    };
    assert_eq!(reasons(&config, &plain), (vec!["packed_experts"], vec![]));
    let inner = Deployment { experts: INNER_SHARDS, ..plain };
    assert_eq!(reasons(&config, &inner), (vec!["packed_experts"], vec![]));
    let dims: Vec<(usize, usize, usize)> =
        group_dims(&program(&config, &plain)).iter().map(|dim| (dim.axis, dim.dim, dim.group)).collect();
    assert_eq!(dims, [(0, 2, GROUP), (1, 2, GROUP)]);
    let f32 = Deployment { precision: DType::F32.into(), ..plain };
    assert_eq!(reasons(&config, &f32), (vec!["experts"], vec![]));
    let exact = Deployment { order: SumOrder::Tree, ..plain };
    assert_eq!(reasons(&config, &exact).1, [Unpacked::Deployment]);
    let grid = Deployment { grid: Grid { rows: 2, ..Grid::LINE }, cards: 4, ..plain };
    assert_eq!(reasons(&config, &grid).1, [Unpacked::Deployment]);
    // 80 inputs of the down projections have no whole groups of 32.
    let mut partial = self::config();
    partial["moe_intermediate_size"] = json!(80);
    partial["quantization_config"] = formats(Files::Symmetric);
    let partial = ModelConfig::from_json(&partial.to_string()).unwrap();
    assert_eq!(reasons(&partial, &plain), (vec!["experts"], vec![Unpacked::PartialGroup]));
    let asymmetric = checkpoints(Files::ZeroPoints, |_, _| ());
    assert_eq!(reasons(&open(asymmetric[0].path()).config, &plain).0, ["offset_packed_experts"]);
}

/// Returns the bytes of the params of a plan.
fn bytes(plan: &Plan) -> usize {
    let of_param = |param: &ascend_tp::schedule::plan::Tensor| {
        let elems: usize = param.ranges.iter().map(ExactSizeIterator::len).product();
        elems * param.dtype.size_bytes()
    };
    plan.params.iter().map(of_param).sum()
}

/// A rank has the words and the scales of its experts.
#[test]
fn a_card_has_the_packed_bytes_of_its_experts() {
    let config = ModelConfig { layers: 2, ..ModelConfig::preset("qwen3-30b-a3b").unwrap() };
    let packed = config.quantised(QuantisedFormat::W4A16 { group: GROUP }).unwrap();
    let of = Deployment { context: 64, longest_prompt: 16, ..Deployment::of(&config, 4) };
    let [floats, words] = [&config, &packed].map(|config| of.compile(config).unwrap().decode);
    let program = decoder(&config, RunShape::new(1, 1, 1), DType::BF16, Head::LastLogits).unwrap();
    let of_layer: usize = program
        .with_role(Role::Param)
        .map(|id| &program.values[id])
        .filter(|value| value.name.contains("layers.0.mlp.experts"))
        .map(|value| value.shape.elems())
        .sum();
    for (floats, words) in floats.iter().zip(&words) {
        let experts = |plan: &Plan| {
            let params = plan.params.iter().filter(|param| param.name.contains("mlp.experts")).cloned();
            bytes(&Plan { params: params.collect(), ..plan.clone() })
        };
        // A quarter of the experts of two layers: two bytes, or half a byte and two bytes a group.
        let elems = 2 * of_layer / 4;
        assert_eq!(experts(floats), 2 * elems);
        assert_eq!(experts(words), elems / 2 + elems / GROUP * 2);
        assert!(words.params.iter().all(|param| !param.name.contains("experts")
            || param.dtype == DType::I32
            || param.name.ends_with("_scale")));
    }
}

/// `checkpoint quantise` of a mixture writes packed experts.
#[test]
fn a_written_mixture_has_packed_experts() {
    let mut small = config();
    // The other layers have whole groups too.
    for (key, value) in [("intermediate_size", 96), ("q_lora_rank", 32), ("kv_lora_rank", 32)] {
        small[key] = json!(value);
    }
    small["qk_nope_head_dim"] = json!(24);
    small["v_head_dim"] = json!(16);
    let model = ModelConfig::from_json(&small.to_string()).unwrap();
    let program = decoder(&model, RunShape::new(1, 1, 1), DType::F32, Head::AllLogits).unwrap();
    let tensors: Tensors = checkpoint_tensors(&program)
        .into_iter()
        .map(|(name, shape)| {
            let mut random = Random::of(&name);
            let size = if shape.rank() == 1 { 1.0 } else { 1.7 / (shape[1] as f32).sqrt() };
            let is_wide = name.ends_with("e_score_correction_bias");
            let bytes = (0..shape.elems()).flat_map(|_| {
                let x = bf16::from_f32(size * random.unit());
                if is_wide { x.to_f32().to_le_bytes().to_vec() } else { x.to_le_bytes().to_vec() }
            });
            let dtype = if is_wide { Dtype::F32 } else { Dtype::BF16 };
            (name, (dtype, shape.to_vec(), bytes.collect()))
        })
        .collect();
    let floats = written(&small, &tensors);
    let (model, out) = (open(floats.path()), TempDir::new().unwrap());
    let (out, format) = (out.path().join("w4"), QuantisedFormat::W4A16 { group: GROUP });
    quantise(&model.checkpoint, &model.config, &model.dir, format, &out).unwrap();
    let quantised = open(&out);
    let of = Deployment { precision: DType::BF16.into(), ..Deployment::of(&quantised.config, 4) };
    assert_eq!(kinds(&self::program(&quantised.config, &of)), ["packed_experts"]);
    let found = verified(&quantised, &of);
    assert!(found.passed(), "{found:#?}");
}
