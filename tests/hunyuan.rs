//! Hunyuan V1, dense and with experts: logits, tokens and gradients of the published formulas in
//! f64 on many layouts, and faults that must show. The checkpoints are random.

use std::collections::BTreeMap;
use std::f64::consts::SQRT_2;
use std::path::Path;

use ascend_tp::base::{DType, Id, KvType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{FeedForwardPart, Mixture, ModelConfig, QkNorm, RopeScaling};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::generate::verify::{Reference, Verification, verify_on};
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::program::{HostTensor, interpret};
use ascend_tp::train::{Layout, Recipe, Recompute, Zero};
use ascend_tp::weights::Checkpoint;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use crate::common::random::Random;
use crate::common::{cann, opened};
use crate::dense::{attention, passes};
use crate::expert_parallel::{has_the_gradients_of_one_card, step};
use crate::gradients::{WIDER_BOUND, inputs, params_of, with_gradients};

const VOCABULARY: usize = 61;
const HIDDEN: usize = 24;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const DIMS: usize = 8;
const WIDTH: usize = 10;
const EXPERTS: usize = 5;
const CHOSEN: usize = 2;
const EPSILON: f64 = 1e-5;
const THETA: f64 = 100.0;
const ALPHA: f64 = 4.0;

/// Number of sequences and of tokens in each.
const SIZES: [usize; 2] = [2, 11];

const DENSE: &str = r#"{"architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense",
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 10, "attention_bias": true,
    "rms_norm_eps": 1e-5, "rope_theta": 100.0, "max_position_embeddings": 64, "tie_word_embeddings": false,
    "rope_scaling": {"type": "dynamic", "alpha": 4.0, "factor": 1.0}, "torch_dtype": "float32"}"#;

/// The shared expert has the width of two routed ones.
const EXPERTS_CONFIG: &str = r#"{"architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe",
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 10, "moe_intermediate_size": [10, 10],
    "num_experts": 5, "moe_topk": [2, 2], "num_shared_expert": [2, 2], "use_mixed_mlp_moe": true,
    "rms_norm_eps": 1e-5, "rope_theta": 100.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
    "rope_scaling": {"type": "dynamic", "alpha": 4.0, "factor": 1.0}, "torch_dtype": "float32"}"#;

type Row = Vec<f64>;

#[derive(Clone)]
struct Tensor {
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

/// The published formulas in f64. Sizes and names are those of the files, and no code of the
/// library computes a number.
#[derive(Clone)]
struct Formulas {
    has_experts: bool,
    tensors: BTreeMap<String, Tensor>,
}

fn added(into: &mut Row, y: &[f64], factor: f64) {
    for (into, y) in into.iter_mut().zip(y) {
        *into += factor * y;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn softmax(logits: &[f64]) -> Row {
    let largest = logits.iter().copied().fold(f64::MIN, f64::max);
    let powers: Row = logits.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|x| x / sum).collect()
}

/// Rotates dims `i` and `i + 4` together, with the base `theta · alpha^(d / (d − 2))`.
fn rotated(head: &[f64], position: usize) -> Row {
    let base = THETA * ALPHA.powf(DIMS as f64 / (DIMS - 2) as f64);
    let half = DIMS / 2;
    let mut y = head.to_vec();
    for pair in 0..half {
        let angle = position as f64 * base.powf(-((2 * pair) as f64) / DIMS as f64);
        let (a, b) = (head[pair], head[pair + half]);
        y[pair] = a * angle.cos() - b * angle.sin();
        y[pair + half] = b * angle.cos() + a * angle.sin();
    }
    y
}

impl Formulas {
    /// Draws a model. Norm weights differ between dims, so that a norm before the rotation gives
    /// other results.
    fn random(has_experts: bool) -> Self {
        let mut tensors = BTreeMap::new();
        let mut draw = |name: String, shape: &[usize], around: f64, width: f64| {
            let mut random = Random::of(&name);
            let draws = 0..shape.iter().product();
            let numbers =
                draws.map(|_| f64::from((around + width * f64::from(random.unit())) as f32)).collect();
            tensors.insert(name, Tensor { shape: shape.to_vec(), numbers });
        };
        let mut linear = |path: String, shape: [usize; 2], has_bias: bool| {
            // The variance of a uniform number from -1 to 1 is 1/3.
            draw(format!("{path}.weight"), &shape, 0.0, (3.0 / shape[1] as f64).sqrt());
            if has_bias {
                draw(format!("{path}.bias"), &shape[..1], 0.0, 0.4);
            }
        };
        let (query, key) = (HEADS * DIMS, KEY_HEADS * DIMS);
        for layer in 0..LAYERS {
            let of = |path: &str| format!("model.layers.{layer}.{path}");
            for (name, rows) in [("q_proj", query), ("k_proj", key), ("v_proj", key)] {
                linear(of(&format!("self_attn.{name}")), [rows, HIDDEN], !has_experts);
            }
            linear(of("self_attn.o_proj"), [HIDDEN, query], !has_experts);
            let mut block = |path: String, width: usize| {
                linear(format!("{path}.gate_proj"), [width, HIDDEN], false);
                linear(format!("{path}.up_proj"), [width, HIDDEN], false);
                linear(format!("{path}.down_proj"), [HIDDEN, width], false);
            };
            if has_experts {
                (0..EXPERTS).for_each(|expert| block(of(&format!("mlp.experts.{expert}")), WIDTH));
                block(of("mlp.shared_mlp"), 2 * WIDTH);
                linear(of("mlp.gate.wg"), [EXPERTS, HIDDEN], false);
            } else {
                block(of("mlp"), WIDTH);
            }
        }
        if !has_experts {
            linear("lm_head".to_owned(), [VOCABULARY, HIDDEN], false);
        }
        draw("model.embed_tokens.weight".to_owned(), &[VOCABULARY, HIDDEN], 0.0, 0.8);
        draw("model.norm.weight".to_owned(), &[HIDDEN], 1.0, 0.4);
        for layer in 0..LAYERS {
            for (name, width) in [
                ("input_layernorm", HIDDEN),
                ("post_attention_layernorm", HIDDEN),
                ("self_attn.query_layernorm", DIMS),
                ("self_attn.key_layernorm", DIMS),
            ] {
                draw(format!("model.layers.{layer}.{name}.weight"), &[width], 1.0, 0.7);
            }
        }
        Self { has_experts, tensors }
    }

    /// As [`Self::random`], with one weight for all dims of queries and keys.
    fn with_equal_norms() -> Self {
        let mut formulas = Self::random(false);
        for (name, tensor) in &mut formulas.tensors {
            if name.contains("query_layernorm") || name.contains("key_layernorm") {
                tensor.numbers.fill(0.75);
            }
        }
        formulas
    }

    fn product(&self, path: &str, x: &[f64]) -> Row {
        let rows = self.tensors[&format!("{path}.weight")].numbers.chunks(x.len());
        let mut y: Row = rows.map(|row| dot(row, x)).collect();
        if let Some(bias) = self.tensors.get(&format!("{path}.bias")) {
            added(&mut y, &bias.numbers, 1.0);
        }
        y
    }

    fn norm(&self, path: &str, x: &[f64]) -> Row {
        let root = (dot(x, x) / x.len() as f64 + EPSILON).sqrt();
        let weight = &self.tensors[&format!("{path}.weight")].numbers;
        x.iter().zip(weight).map(|(x, weight)| x / root * weight).collect()
    }

    /// Returns the query or key heads of a token: projected, rotated, and then normalised.
    fn heads(&self, projection: &str, norm: &str, x: &[f64], position: usize) -> Vec<Row> {
        let projected = self.product(projection, x);
        projected.chunks(DIMS).map(|head| self.norm(norm, &rotated(head, position))).collect()
    }

    fn attention(&self, layer: usize, inputs: &[Row]) -> Vec<Row> {
        let of = |name: &str| format!("model.layers.{layer}.self_attn.{name}");
        let heads = |projection: &str, norm: &str| -> Vec<Vec<Row>> {
            let (projection, norm) = (of(projection), of(norm));
            let tokens = inputs.iter().enumerate();
            tokens.map(|(position, x)| self.heads(&projection, &norm, x, position)).collect()
        };
        let (queries, keys) = (heads("q_proj", "query_layernorm"), heads("k_proj", "key_layernorm"));
        let values: Vec<Row> = inputs.iter().map(|x| self.product(&of("v_proj"), x)).collect();
        let of_token = |token: usize| {
            let mut y = vec![0.0; HEADS * DIMS];
            for (head, y) in y.chunks_mut(DIMS).enumerate() {
                let key_head = head / (HEADS / KEY_HEADS);
                let score = |key: &Vec<Row>| dot(&queries[token][head], &key[key_head]) / (2.0 * SQRT_2);
                let shares = softmax(&keys[..=token].iter().map(score).collect::<Row>());
                for (share, value) in shares.into_iter().zip(&values) {
                    let value = &value[key_head * DIMS..][..DIMS];
                    y.iter_mut().zip(value).for_each(|(y, value)| *y += share * value);
                }
            }
            self.product(&of("o_proj"), &y)
        };
        (0..inputs.len()).map(of_token).collect()
    }

    fn block(&self, path: &str, x: &[f64]) -> Row {
        let gate = self.product(&format!("{path}.gate_proj"), x);
        let up = self.product(&format!("{path}.up_proj"), x);
        let inner: Row = gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        self.product(&format!("{path}.down_proj"), &inner)
    }

    fn feed_forward(&self, layer: usize, x: &[f64]) -> Row {
        let mlp = format!("model.layers.{layer}.mlp");
        if !self.has_experts {
            return self.block(&mlp, x);
        }
        let scores = softmax(&self.product(&format!("{mlp}.gate.wg"), x));
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let chosen = &order[..CHOSEN];
        let sum: f64 = chosen.iter().map(|expert| scores[*expert]).sum();
        let mut y = self.block(&format!("{mlp}.shared_mlp"), x);
        for expert in chosen {
            added(&mut y, &self.block(&format!("{mlp}.experts.{expert}"), x), scores[*expert] / sum);
        }
        y
    }

    /// Returns the logits of each token of a sequence.
    fn logits(&self, ids: &[usize]) -> Vec<Row> {
        let embedding = &self.tensors["model.embed_tokens.weight"].numbers;
        let mut stream: Vec<Row> = ids.iter().map(|id| embedding[id * HIDDEN..][..HIDDEN].to_vec()).collect();
        for layer in 0..LAYERS {
            let of = |name: &str| format!("model.layers.{layer}.{name}");
            let inputs: Vec<Row> = stream.iter().map(|x| self.norm(&of("input_layernorm"), x)).collect();
            for (x, y) in stream.iter_mut().zip(self.attention(layer, &inputs)) {
                added(x, &y, 1.0);
                let y = self.feed_forward(layer, &self.norm(&of("post_attention_layernorm"), x));
                added(x, &y, 1.0);
            }
        }
        let head = if self.has_experts { "model.embed_tokens" } else { "lm_head" };
        stream.iter().map(|x| self.product(head, &self.norm("model.norm", x))).collect()
    }

    /// Returns the mean cross-entropy of all next tokens.
    fn loss(&self, sequences: &[Vec<usize>]) -> f64 {
        let of_sequence = |ids: &Vec<usize>| -> f64 {
            let logits = self.logits(ids);
            ids[1..].iter().zip(&logits).map(|(next, logits)| -softmax(logits)[*next].ln()).sum()
        };
        let tokens: usize = sequences.iter().map(|ids| ids.len() - 1).sum();
        sequences.iter().map(of_sequence).sum::<f64>() / tokens as f64
    }

    /// Returns the likeliest tokens after a prompt.
    fn greedy(&self, prompt: &[usize], count: usize) -> Vec<usize> {
        let mut ids = prompt.to_vec();
        for _ in 0..count {
            let logits = self.logits(&ids).pop().unwrap();
            ids.push((0..VOCABULARY).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap());
        }
        ids.split_off(prompt.len())
    }

    /// Returns the model moved by `by` along a direction.
    fn along(&self, direction: &Self, by: f64) -> Self {
        let mut moved = self.clone();
        for (name, tensor) in &mut moved.tensors {
            added(&mut tensor.numbers, &direction.tensors[name].numbers, by);
        }
        moved
    }

    /// Writes the checkpoint, the logits of the batch and a greedy continuation.
    fn saved(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let config = if self.has_experts { EXPERTS_CONFIG } else { DENSE };
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        self.write(&folder.path().join("model.safetensors"));
        let prompt = &batch()[1][..5];
        let logits: Vec<f64> = batch().iter().flat_map(|ids| self.logits(ids)).flatten().collect();
        let greedy = self.greedy(prompt, 9);
        let integers =
            |ids: &[usize]| ids.iter().flat_map(|id| (*id as i64).to_le_bytes()).collect::<Vec<u8>>();
        let logits = (Dtype::F32, vec![SIZES[0], SIZES[1], VOCABULARY], floats(&logits));
        let ids = (Dtype::I64, SIZES.to_vec(), integers(&batch().concat()));
        let prompt = (Dtype::I64, vec![1, prompt.len()], integers(prompt));
        let greedy = (Dtype::I64, vec![1, greedy.len()], integers(&greedy));
        let tensors =
            [("input_ids", ids), ("logits", logits), ("greedy_prompt", prompt), ("greedy_ids", greedy)];
        let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.path().join("expected.safetensors"), bytes).unwrap();
        folder
    }

    fn write(&self, path: &Path) {
        let bytes: Vec<Vec<u8>> = self.tensors.values().map(|tensor| floats(&tensor.numbers)).collect();
        let views = self.tensors.iter().zip(&bytes).map(|((name, tensor), bytes)| {
            (name, TensorView::new(Dtype::F32, tensor.shape.clone(), bytes).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }
}

fn floats(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()
}

fn batch() -> Vec<Vec<usize>> {
    let mut random = Random::of("tokens");
    let [sequences, tokens] = SIZES;
    (0..sequences).map(|_| (0..tokens).map(|_| random.below(VOCABULARY as u64) as usize).collect()).collect()
}

fn layouts(config: &ModelConfig) -> Vec<Deployment> {
    use ExpertShards::{Inner, Whole};
    use Residual::{Replicate, Seq};
    let of = |cards, experts, residual| {
        let of = Deployment::of(config, cards);
        Deployment { experts, residual, precision: DType::F32.into(), ..of }
    };
    let layouts = [of(1, Whole, Replicate), of(2, Whole, Seq), of(3, Inner, Seq)];
    let exact = Deployment { order: SumOrder::Tree, batch: SIZES[0], ..of(2, Whole, Replicate) };
    let staged = Deployment { stages: 2, ..of(4, Whole, Replicate) };
    let of_experts = match config.has_mixture() {
        true => vec![of(2, Inner, Replicate), of(3, Whole, Replicate)],
        false => vec![],
    };
    layouts.into_iter().chain([exact, staged]).chain(of_experts).collect()
}

fn verified(model: &Model, deployment: &Deployment, reference: &Reference, place: &str) -> Verification {
    verify_on(&cann(4), model, deployment, reference, &EngineOptions::default())
        .unwrap_or_else(|error| panic!("{place}: {error}"))
        .unwrap_or_else(|| panic!("{place}: nothing was compared"))
}

#[test]
fn logits_and_tokens_are_those_of_the_formulas() {
    for has_experts in [false, true] {
        let folder = Formulas::random(has_experts).saved();
        let (model, reference) = opened(folder.path());
        for deployment in layouts(&model.config) {
            let Deployment { cards, stages, experts, residual, order, .. } = deployment;
            let family = model.config.family;
            let place =
                format!("{family}: {cards} cards, {stages} stages, {experts:?}, {residual:?}, {order:?}");
            passes(&place, &verified(&model, &deployment, &reference, &place));
        }
    }
}

#[test]
fn other_precisions_are_within_their_bounds() {
    for has_experts in [false, true] {
        let folder = Formulas::random(has_experts).saved();
        let (model, reference) = opened(folder.path());
        let int8 = Precision::from(DType::F32).with_kv(KvType::Int8);
        for (cards, precision) in [(2, DType::BF16.into()), (3, Precision::w8a8(DType::F16)), (2, int8)] {
            let place = format!("{} in {precision} on {cards} cards", model.config.family);
            let deployment = Deployment { precision, ..Deployment::of(&model.config, cards) };
            let found = verified(&model, &deployment, &reference, &place);
            assert!(found.passed(), "{place}: {found:#?}");
        }
    }
}

fn mixtures(config: &mut ModelConfig, change: impl Fn(&mut Mixture)) {
    for layer in &mut config.pattern {
        if let FeedForwardPart::Mixture(mixture) = &mut layer.feed_forward {
            change(mixture);
        }
    }
}

fn norms_before_the_rotation(config: &mut ModelConfig) {
    attention(config, |_, attention| attention.qk_norm = Some(QkNorm::PerHead));
}

/// Returns whether a model with a fault passes on two cards.
fn passes_with(model: &mut Model, reference: &Reference, fault: fn(&mut ModelConfig)) -> bool {
    fault(&mut model.config);
    let deployment = Deployment { precision: DType::F32.into(), ..Deployment::of(&model.config, 2) };
    let found = verified(model, &deployment, reference, "a fault");
    assert_eq!(found.first_difference, None, "cards differ");
    found.passed()
}

#[test]
fn no_trap_passes() {
    let of_both: [fn(&mut ModelConfig); 3] = [
        norms_before_the_rotation,
        |config| attention(config, |_, attention| attention.qk_norm = None),
        |config| config.rope.scaling = RopeScaling::Default,
    ];
    let of_experts: [fn(&mut ModelConfig); 3] = [
        |config| mixtures(config, |mixture| mixture.shared = None),
        |config| mixtures(config, |mixture| mixture.router.renormalisation = None),
        |config| mixtures(config, |mixture| mixture.chosen -= 1),
    ];
    let dense = of_both.map(|fault| (false, fault)).into_iter();
    let cases = dense.chain([of_both, of_experts].into_iter().flatten().map(|fault| (true, fault)));
    for (number, (has_experts, fault)) in cases.enumerate() {
        let folder = Formulas::random(has_experts).saved();
        let (mut model, reference) = opened(folder.path());
        assert!(!passes_with(&mut model, &reference, fault), "fault {number} passed");
    }
}

/// A rotation keeps the mean square. With one weight for all dims, the order of norm and rotation
/// changes roundings alone.
#[test]
fn equal_norm_weights_hide_the_order() {
    let folder = Formulas::with_equal_norms().saved();
    let (mut model, reference) = opened(folder.path());
    assert!(passes_with(&mut model, &reference, |_| ()));
    assert!(passes_with(&mut model, &reference, norms_before_the_rotation));
}

/// Compares the gradients of the loss with differences of the formulas in f64 along random
/// directions, each of a few tensors. Returns the first ones that differ.
///
/// Central differences with steps of 1e-5 are exact to about ten digits, so the bound is the sum of
/// the bounds of all elements. An element has the bound that other families have against torch.
fn differing_gradients(formulas: &Formulas, change: fn(&mut ModelConfig)) -> Vec<&'static str> {
    let folder = formulas.saved();
    let (mut model, _) = opened(folder.path());
    change(&mut model.config);
    let program = with_gradients("hunyuan", &model.config, SIZES);
    let params = params_of(&program, &model.checkpoint);
    let ids: Vec<i64> = batch().concat().into_iter().map(|id| id as i64).collect();
    let given = inputs(&model.config, SIZES[0], SIZES[1], &ids);
    let values = interpret(&program, |_, value| {
        params.get(&value.name).unwrap_or_else(|| &given[&value.name]).clone()
    });
    let found: BTreeMap<&String, &HostTensor> =
        program.outputs.iter().map(|(name, id)| (name, &values[id.index()])).collect();
    let loss = formulas.loss(&batch());
    assert!((f64::from(found[&"loss".to_owned()].floats()[0]) - loss).abs() <= 1e-5 * loss);
    let dense = ["layers.1.mlp", "lm_head"];
    let experts = ["gate.wg", "experts", "shared_mlp"];
    let own = if formulas.has_experts { &experts[..] } else { &dense[..] };
    let all = ["query_layernorm", "key_layernorm", "q_proj", "k_proj", "v_proj", "o_proj", "embed", "norm"];
    let differs = |pattern: &&str| {
        let mut direction = formulas.clone();
        for (name, tensor) in &mut direction.tensors {
            let mut random = Random::of(&format!("direction of {name}"));
            let is_moved = name.contains(*pattern);
            let number = |_| if is_moved { f64::from(random.unit()) } else { 0.0 };
            tensor.numbers = (0..tensor.numbers.len()).map(number).collect();
        }
        let file = folder.path().join("direction.safetensors");
        direction.write(&file);
        let directions = params_of(&program, &Checkpoint::open_file(&file).unwrap());
        let (mut slope, mut bound) = (0.0, 1e-8);
        for (name, direction) in &directions {
            let gradient = found[name].floats();
            let largest = gradient.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            for (gradient, direction) in gradient.iter().zip(direction.floats()) {
                slope += f64::from(*gradient) * f64::from(*direction);
                bound += f64::from(WIDER_BOUND * largest * direction.abs());
            }
        }
        let step = 1e-5;
        let at = |by: f64| formulas.along(&direction, by).loss(&batch());
        let expected = (at(step) - at(-step)) / (2.0 * step);
        (slope - expected).abs() > bound
    };
    all.into_iter().chain(own.iter().copied()).filter(differs).collect()
}

#[test]
fn gradients_are_differences_of_the_formulas() {
    for has_experts in [false, true] {
        let formulas = Formulas::random(has_experts);
        assert_eq!(differing_gradients(&formulas, |_| ()), [""; 0]);
    }
    // Both orders have the same loss here, but a weight multiplies another number.
    let differing = differing_gradients(&Formulas::with_equal_norms(), norms_before_the_rotation);
    assert_eq!(differing, ["query_layernorm", "key_layernorm", "norm"]);
}

#[test]
fn a_step_of_training_has_the_gradients_of_one_card() {
    let cann = cann(4);
    let one = Layout { micro_batch: 2, ..Layout::ONE };
    let recipe = Recipe { global_batch: 8, seq: 6, ..Recipe::default() };
    let both = [
        Layout { tensor: 3, residual: Residual::Seq, ..one },
        Layout { stages: 2, data: 2, zero: Zero::Weights, recompute: Recompute::Full, ..one },
        Layout { context: 2, tensor: 2, ..one },
    ];
    let of_experts = Layout { data: 2, expert: 2, tensor: 2, experts: ExpertShards::Inner, ..one };
    for (has_experts, layouts) in [(false, &both[..]), (true, &[both[0], both[1], of_experts])] {
        let folder = Formulas::random(has_experts).saved();
        let (model, _) = opened(folder.path());
        for layout in layouts {
            has_the_gradients_of_one_card(&cann, &model, &recipe, *layout);
        }
    }
    let folder = Formulas::random(false).saved();
    let (model, _) = opened(folder.path());
    let recipe = Recipe { exact: true, ..recipe };
    let [one, two] = [one, Layout { tensor: 2, ..one }].map(|layout| step(&cann, &model, &recipe, layout));
    assert_eq!(one.first_other_bits(&two), None);
}
