//! Gradients of low-rank adapters, derived from the gradients of the adapted weights.
//!
//! With `W' = W + s B A`, the chain rule gives `dB = s dW' Aᵀ` and `dA = s Bᵀ dW'`. The left sides
//! come from programs with adapters, on many layouts. The right sides come from one card, with the
//! adapters merged into the weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::config::{Lora, PEFT_PREFIX};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::program::ValueId;
use ascend_tp::program::op::Kind;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::plan::Tensor;
use ascend_tp::train::checkpoint::export_adapter;
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::verify::{Gradients, gradients};
use ascend_tp::train::{Layout, Recipe, Recompute, Trainer, Zero, compile, lower};
use ascend_tp::weights::{Checkpoint, fill_from};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::common::cases::is_sampled;
use crate::common::random::Random;
use crate::common::trainers::{saved, whole_parts};
use crate::common::{cann, fixture, open};

const RANK: usize = 3;

#[derive(Clone, Debug)]
struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn drawn(name: &str, rows: usize, columns: usize) -> Self {
        let mut random = Random::of(name);
        let data = (0..rows * columns).map(|_| f64::from(random.unit() / 10.0)).collect();
        Self { rows, columns, data }
    }

    fn of(data: &[f32], rows: usize) -> Self {
        Self { rows, columns: data.len() / rows, data: data.iter().map(|x| f64::from(*x)).collect() }
    }

    fn transposed(&self) -> Self {
        let data = (0..self.columns)
            .flat_map(|c| (0..self.rows).map(move |r| self.data[r * self.columns + c]))
            .collect();
        Self { rows: self.columns, columns: self.rows, data }
    }

    fn times(&self, other: &Self, scale: f64) -> Vec<f64> {
        let element = |r: usize, c: usize| -> f64 {
            (0..self.columns)
                .map(|i| self.data[r * self.columns + i] * other.data[i * other.columns + c])
                .sum()
        };
        (0..self.rows).flat_map(|r| (0..other.columns).map(move |c| scale * element(r, c))).collect()
    }
}

pub(crate) struct Adapter {
    folder: tempfile::TempDir,
    lora: Lora,
    factors: BTreeMap<String, (Matrix, Matrix)>,
}

impl Adapter {
    /// Returns the folder of the adapter.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

pub(crate) fn adapter(model: &Model, targets: &[&str]) -> Adapter {
    adapter_of_rank(model, targets, RANK)
}

/// Writes an adapter. Adapters of different ranks have different numbers.
pub(crate) fn adapter_of_rank(model: &Model, targets: &[&str], rank: usize) -> Adapter {
    scaled_adapter(model, targets, rank, 1.0)
}

/// Writes the adapter of [`adapter_of_rank`] with the inner factors times `scale`.
pub(crate) fn scaled_adapter(model: &Model, targets: &[&str], rank: usize, scale: f64) -> Adapter {
    let targets = targets.iter().map(|target| (*target).to_owned()).collect();
    let lora = Lora { rank, alpha: 4.5, targets };
    let mut factors = BTreeMap::new();
    for (name, info) in model.checkpoint.tensors() {
        let layer =
            name.strip_suffix(".weight").filter(|layer| info.shape.rank() == 2 && lora.is_target(layer));
        // Layers of multi-token prediction come after the others.
        let number = layer.and_then(|layer| {
            let (_, rest) = layer.split_once("layers.").or_else(|| layer.split_once(".h."))?;
            rest.split('.').next()?.parse().ok()
        });
        let Some(layer) = layer.filter(|_| number.is_some_and(|number: usize| number < model.config.layers))
        else {
            continue;
        };
        let [a, b] = ["a", "b"].map(|factor| format!("{layer}.{factor}{rank}"));
        let mut pair = (Matrix::drawn(&a, rank, info.shape[1]), Matrix::drawn(&b, info.shape[0], rank));
        pair.0.data.iter_mut().for_each(|x| *x *= scale);
        factors.insert(layer.to_owned(), pair);
    }
    let folder = tempfile::tempdir().unwrap();
    let bytes =
        |matrix: &Matrix| matrix.data.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<u8>>();
    let stored: Vec<(String, [usize; 2], Vec<u8>)> = factors
        .iter()
        .flat_map(|(layer, (a, b))| [("A", a), ("B", b)].map(|(letter, factor)| (layer, letter, factor)))
        .map(|(layer, letter, factor)| {
            (
                format!("{PEFT_PREFIX}{layer}.lora_{letter}.weight"),
                [factor.rows, factor.columns],
                bytes(factor),
            )
        })
        .collect();
    let views = stored
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(Dtype::F32, shape.to_vec(), data).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("adapter_model.safetensors"), file).unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), lora.to_json("a model").to_string()).unwrap();
    Adapter { folder, lora, factors }
}

fn recipe() -> Recipe {
    Recipe { steps: 1, global_batch: 5, seq: 8, ..Recipe::default() }
}

pub(crate) fn of_adapters(model: &Model, adapter: &Adapter, layout: Layout) -> Gradients {
    let recipe = Recipe { lora: Some(adapter.lora.clone()), ..recipe() };
    let factors = Checkpoint::open_file(&adapter.folder.path().join("adapter_model.safetensors")).unwrap();
    let is_factor = |tensor: &Tensor| tensor.source.as_ref().unwrap().tensor.starts_with(PEFT_PREFIX);
    gradients(
        &cann(layout.cards()),
        &model.config,
        &recipe,
        layout,
        &EngineOptions::default(),
        None,
        |shards| {
            fill_from(&model.checkpoint, &shards.only(|tensor| !is_factor(tensor)), &|_| ())?;
            fill_from(&factors, &shards.only(is_factor), &|_| ())
        },
    )
    .unwrap()
}

/// Concatenates the gradients of a weight's parts. The original Qwen fuses queries, keys and
/// values. A projection of one expert has `elems` elements of a stack.
fn whole(gradients: &Gradients, layer: &str, suffix: &str, elems: usize) -> Vec<f32> {
    if let Some((stack, index)) = stack_of(layer) {
        let name = format!("{stack}{}", if suffix == ".weight" { "" } else { suffix });
        let (_, data) = gradients.tensors.iter().find(|(known, _)| *known == name).unwrap();
        return data[index * elems..][..elems].to_vec();
    }
    let names = [format!("{layer}{suffix}")]
        .into_iter()
        .chain(["q", "k", "v"].map(|part| format!("{layer}.{part}{suffix}")));
    let of = |name: String| {
        gradients.tensors.iter().find(|(known, _)| *known == name).map(|(_, data)| data.clone())
    };
    names.filter_map(of).flatten().collect()
}

/// Returns the param with a projection of all experts, and the index of one expert's projection.
fn stack_of(layer: &str) -> Option<(String, usize)> {
    let (folder, rest) = layer.split_once(".experts.")?;
    let (expert, projection) = rest.split_once('.')?;
    let (stack, part, parts) = match projection {
        "gate_proj" | "w1" => ("gate_up", 0, 2),
        "up_proj" | "w3" => ("gate_up", 1, 2),
        _ => ("down", 0, 1),
    };
    let (layer, _) = folder.rsplit_once('.')?;
    Some((format!("{layer}.experts.{stack}"), expert.parse::<usize>().ok()? * parts + part))
}

fn check(name: &str, targets: &[&str], layouts: &[Layout]) {
    let model = open(&fixture(name));
    let adapter = adapter(&model, targets);
    assert!(!adapter.factors.is_empty());
    let merged = open(&fixture(name)).with_adapter(adapter.folder.path()).unwrap();
    let expected = gradients(
        &cann(1),
        &model.config,
        &recipe(),
        Layout { micro_batch: 5, ..Layout::ONE },
        &EngineOptions::default(),
        None,
        |shards| fill_from(&merged.checkpoint, shards, &|_| ()),
    )
    .unwrap();
    for layout in layouts {
        let found = of_adapters(&model, &adapter, *layout);
        assert!(
            (found.loss - expected.loss).abs() <= 1e-5 * expected.loss,
            "{name} on {layout:?}: {} {}",
            found.loss,
            expected.loss
        );
        for (layer, (a, b)) in &adapter.factors {
            let of_weight = whole(&expected, layer, ".weight", b.rows * a.columns);
            let of_weight = Matrix::of(&of_weight, b.rows);
            let scale = adapter.lora.scale();
            let of_a = b.transposed().times(&of_weight, scale);
            let of_b = of_weight.times(&a.transposed(), scale);
            for (suffix, expected) in [(".lora_A.weight", of_a), (".lora_B.weight", of_b)] {
                let found = whole(&found, layer, suffix, expected.len());
                assert_eq!(found.len(), expected.len(), "{layer}{suffix}");
                let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                let off =
                    found.iter().zip(&expected).map(|(x, y)| (f64::from(*x) - y).abs()).fold(0.0, f64::max);
                // No token chooses some of the experts.
                assert!(
                    (largest > 0.0 || stack_of(layer).is_some()) && off <= 2e-5 * largest,
                    "{name} {layer}{suffix} on {layout:?}: {off} of {largest}"
                );
            }
        }
    }
}

const ONE: Layout = Layout { micro_batch: 5, ..Layout::ONE };

#[test]
fn gradients_of_adapters_follow_from_those_of_weights_on_every_layout() {
    let layouts = [
        ONE,
        Layout { tensor: 4, ..ONE },
        Layout { tensor: 3, residual: Residual::Seq, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 1, zero: Zero::Gradients, ..ONE },
        Layout { data: 3, micro_batch: 2, zero: Zero::Weights, recompute: Recompute::Full, ..ONE },
    ];
    check("qwen2-gqa", &["q_proj", "v_proj"], &layouts);
    check("qwen3-qknorm", &["all-linear"], &layouts[..3]);
}

#[test]
fn one_tensor_for_queries_keys_and_values_has_one_adapter() {
    check(
        "qwen-v1-mha",
        &["all-linear"],
        &[ONE, Layout { data: 2, tensor: 2, micro_batch: 3, zero: Zero::Moments, ..ONE }],
    );
}

/// Layouts with experts on several cards, with all other forms of parallelism.
fn layouts_of_experts() -> [Layout; 9] {
    let of = |data, expert| Layout { data, expert, micro_batch: 2, ..Layout::ONE };
    [
        of(2, 2),
        Layout { zero: Zero::Weights, recompute: Recompute::Selective, ..of(4, 2) },
        Layout { tensor: 2, experts: ExpertShards::Inner, residual: Residual::Seq, ..of(2, 2) },
        Layout { tensor: 3, ..of(1, 1) },
        Layout { stages: 2, micro_batch: 1, ..of(2, 2) },
        Layout { zero: Zero::Moments, recompute: Recompute::Full, ..of(4, 4) },
        Layout { zero: Zero::Gradients, context: 2, ..of(2, 2) },
        Layout { zero: Zero::Weights, ..of(3, 1) },
        Layout { tensor: 4, experts: ExpertShards::Inner, ..of(1, 1) },
    ]
}

#[test]
fn each_expert_has_an_adapter() {
    let rows: [(&str, &[&str]); 3] = [
        ("qwen3-moe", &["q_proj", "gate_proj", "up_proj", "down_proj"]),
        ("mixtral", &["q_proj", "w2"]),
        ("deepseek-v3", &["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "gate_proj", "up_proj"]),
    ];
    for (row, (name, targets)) in rows.into_iter().enumerate() {
        let layouts = layouts_of_experts().into_iter().enumerate();
        let layouts = layouts.filter(|(number, _)| is_sampled(row + number, 3)).map(|(_, layout)| layout);
        check(name, targets, &layouts.collect::<Vec<_>>());
    }
}

/// The gradients of experts are as large as the experts, and no rank needs them whole.
#[test]
fn gradients_of_experts_become_gradients_of_factors_before_they_are_summed() {
    let config = open(&fixture("qwen3-moe")).config;
    let recipe = Recipe { global_batch: 4, seq: 6, lora: Some(all_linear()), ..Recipe::default() };
    for zero in [Zero::None, Zero::Moments, Zero::Gradients] {
        let layout = Layout { data: 4, expert: 2, zero, ..Layout::ONE };
        let placed = &lower(&config, &recipe, &layout).unwrap().parts[0].1;
        let program = &placed.program;
        let ops = program.ops.values().iter();
        let of_weights = ops.clone().filter(|op| matches!(op.kind, Kind::ExpertsGrad));
        let of_weights: Vec<ValueId> = of_weights.flat_map(|op| op.results[2..].to_vec()).collect();
        let readers = ops.filter(|op| op.operands.iter().any(|id| of_weights.contains(id)));
        let mut readers = readers.map(|op| &op.kind).peekable();
        assert!(readers.peek().is_some() && readers.all(|kind| !kind.is_collective()), "{zero:?}");
        assert_eq!(of_weights.len(), 2 * config.mixtures().count(), "{zero:?}");
    }
}

/// With a scaled loss, the update is a program of its own. It holds the frozen weights too.
#[test]
fn adapters_train_in_f16() {
    let lora: Lora = "rank=2,alpha=4,targets=o_proj".parse().unwrap();
    let recipe = Recipe { precision: TrainingPrecision::F16, lora: Some(lora), ..Recipe::default() };
    let of = |data, expert| Layout { data, expert, micro_batch: 1, ..Layout::ONE };
    let layouts = [
        of(4, 2),
        Layout { tensor: 2, zero: Zero::Moments, ..of(2, 1) },
        Layout { stages: 2, tensor: 2, ..of(1, 1) },
    ];
    let cann = cann(4);
    for (name, layouts) in [("qwen3-moe", &layouts[..]), ("deepseek-v3", &layouts[..1])] {
        let model = open(&fixture(name));
        let loss = |layout| run(&cann, &model, &recipe, layout).step(&batch(&model, 0)).unwrap().loss;
        let one = loss(Layout::ONE);
        for layout in layouts {
            let found = loss(*layout);
            assert!((found / one - 1.0).abs() < 5e-3, "{name} on {layout:?}: {found}, {one} on one card");
        }
    }
}

/// Starts a run with 4 sequences of 6 tokens a step.
fn run(cann: &Arc<Cann>, model: &Model, recipe: &Recipe, layout: Layout) -> Trainer {
    let recipe = Recipe { global_batch: 4, seq: 6, ..recipe.clone() };
    Trainer::of_model(cann, model).recipe(recipe).layout(layout).start().unwrap()
}

fn all_linear() -> Lora {
    "rank=2,alpha=4,targets=all-linear".parse().unwrap()
}

fn batch(model: &Model, step: u64) -> Batch {
    Batch::scattered(step, 4, 6, model.config.vocab_size)
}

#[test]
fn trained_adapters_of_experts_are_exported_with_the_names_of_peft() {
    let (cann, model) = (cann(4), open(&fixture("qwen3-moe")));
    let layout = Layout { data: 2, expert: 2, tensor: 2, micro_batch: 2, ..Layout::ONE };
    let recipe = Recipe { lora: Some(all_linear()), ..Recipe::default() };
    let mut trainer = run(&cann, &model, &recipe, layout);
    for step in 0..2 {
        trainer.step(&batch(&model, step)).unwrap();
    }
    let whole = whole_parts(&mut trainer);
    let (folder, checkpoint) = saved(&mut trainer);
    let exported = folder.path().join("adapter");
    export_adapter(&checkpoint, &fixture("qwen3-moe"), &all_linear(), &exported).unwrap();
    let file = Checkpoint::open_file(&exported.join("adapter_model.safetensors")).unwrap();
    let mut of_experts = 0;
    for (name, _) in file.tensors() {
        let (layer, letter) = name.strip_prefix(PEFT_PREFIX).unwrap().split_once(".lora_").unwrap();
        let Some((stack, index)) = stack_of(layer) else { continue };
        let (_, numbers) = file.read_f32(name).unwrap();
        let found: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let trained = &whole[&format!("{stack}.lora_{letter}")];
        assert_eq!(found, trained[index * found.len()..][..found.len()], "{name}");
        of_experts += 1;
    }
    let experts: usize = model.config.mixtures().map(|(_, mixture)| mixture.experts).sum();
    assert_eq!(of_experts, experts * 3 * 2, "three projections, and two factors of each");
    // The merged model has the loss of the next step, and so has a run that continues.
    let expected = trainer.step(&batch(&model, 2)).unwrap().loss;
    let merged = open(&fixture("qwen3-moe")).with_adapter(&exported).unwrap();
    let one = Layout { micro_batch: 4, ..Layout::ONE };
    let found = run(&cann, &merged, &Recipe::default(), one).step(&batch(&model, 2)).unwrap().loss;
    assert!((found / expected - 1.0).abs() <= 1e-5, "{found} {expected}");
    let mut resumed = run(&cann, &model, &recipe, one);
    resumed.restore(&checkpoint, serde_json::from_value(checkpoint.index().state.clone()).unwrap()).unwrap();
    let found = resumed.step(&batch(&model, 2)).unwrap().loss;
    assert!((found / expected - 1.0).abs() <= 1e-5, "{found} {expected}");
}

#[test]
fn experts_without_adapters_are_refused_by_name() {
    let refused_by = |recipe: Recipe, name: &str, targets: &str| {
        let config = open(&fixture(name)).config;
        let lora = Some(format!("rank=2,alpha=4,targets={targets}").parse().unwrap());
        compile(&config, &Recipe { lora, ..recipe }, &Layout::ONE, Target::ANY).unwrap_err().to_string()
    };
    let refused = |name: &str, targets: &str| refused_by(recipe(), name, targets);
    let message = refused("gpt-oss", "q_proj+down_proj");
    let text = "lora: targets: the experts of a layer are one tensor, so an expert has no adapter";
    assert!(message.starts_with(text) && message.ends_with("found down_proj"), "{message}");
    let message = refused("deepseek-v2", "kv_b_proj");
    assert!(message.starts_with("lora: targets: latent attention multiplies queries by"), "{message}");
    let message = refused("mixtral", "w1+w2");
    assert!(message.contains("expected both of w1 and w3, or neither, found w1+w2"), "{message}");
    let message = refused("mixtral", "gate_proj");
    let names = "expected of k_proj, o_proj, q_proj, v_proj, w1, w2, w3 or all-linear, found gate_proj";
    assert!(message.contains(names), "{message}");
    let exact = Recipe { exact: true, global_batch: 4, ..recipe() };
    let message = refused_by(exact, "qwen3-moe", "all-linear");
    let text = "lora: targets: the gradients of adapters of experts have no fixed order of sums";
    assert!(message.starts_with(text), "{message}");
}

#[test]
fn an_adapter_of_another_model_is_refused_with_all_that_does_not_fit() {
    let model = open(&fixture("qwen2-gqa"));
    let other = adapter(&open(&fixture("qwen-v1-mha")), &["c_attn"]);
    let problems = model.with_adapter(other.folder.path()).unwrap_err();
    assert_eq!(problems.items().len(), 2 * other.factors.len(), "{problems}");
    assert!(problems.to_string().contains("the model does not have this linear layer"), "{problems}");
    let nowhere = open(&fixture("qwen2-gqa")).with_adapter(Path::new("no/such/folder")).unwrap_err();
    assert!(nowhere.to_string().contains("adapter_config.json"), "{nowhere}");
}
