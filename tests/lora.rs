//! Gradients of low-rank adapters, derived from the gradients of the adapted weights.
//!
//! With `W' = W + s B A`, the chain rule gives `dB = s dW' Aᵀ` and `dA = s Bᵀ dW'`. The left sides
//! come from programs with adapters, on many layouts. The right sides come from one card, with the
//! adapters merged into the weights.

use std::collections::BTreeMap;
use std::path::Path;

use ascend_tp::config::{Lora, PEFT_PREFIX};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::placement::Residual;
use ascend_tp::schedule::plan::Tensor;
use ascend_tp::train::verify::{Gradients, gradients};
use ascend_tp::train::{Layout, Recipe, Recompute, Zero};
use ascend_tp::weights::{Checkpoint, fill_from};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::common::random::Random;
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
        let Some(layer) = layer.filter(|layer| layer.contains("layers.") || layer.contains(".h.")) else {
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
    gradients(&cann(layout.cards()), &model.config, &recipe, layout, &EngineOptions::default(), |shards| {
        fill_from(&model.checkpoint, &shards.only(|tensor| !is_factor(tensor)), &|_| ())?;
        fill_from(&factors, &shards.only(is_factor), &|_| ())
    })
    .unwrap()
}

/// Concatenates the gradients of a weight's parts. The original Qwen fuses queries, keys and
/// values.
fn whole(gradients: &Gradients, layer: &str, suffix: &str) -> Vec<f32> {
    let names = [format!("{layer}{suffix}")]
        .into_iter()
        .chain(["q", "k", "v"].map(|part| format!("{layer}.{part}{suffix}")));
    let of = |name: String| {
        gradients.tensors.iter().find(|(known, _)| *known == name).map(|(_, data)| data.clone())
    };
    names.filter_map(of).flatten().collect()
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
        |shards| fill_from(&merged.checkpoint, shards, &|_| ()),
    )
    .unwrap();
    for layout in layouts {
        let found = of_adapters(&model, &adapter, *layout);
        assert!(
            (found.loss - expected.loss).abs() <= 1e-5 * expected.loss,
            "{} {}",
            found.loss,
            expected.loss
        );
        for (layer, (a, b)) in &adapter.factors {
            let of_weight = Matrix::of(&whole(&expected, layer, ".weight"), b.rows);
            let scale = adapter.lora.scale();
            let of_a = b.transposed().times(&of_weight, scale);
            let of_b = of_weight.times(&a.transposed(), scale);
            for (suffix, expected) in [(".lora_A.weight", of_a), (".lora_B.weight", of_b)] {
                let found = whole(&found, layer, suffix);
                assert_eq!(found.len(), expected.len(), "{layer}{suffix}");
                let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                let off =
                    found.iter().zip(&expected).map(|(x, y)| (f64::from(*x) - y).abs()).fold(0.0, f64::max);
                assert!(
                    largest > 0.0 && off <= 2e-5 * largest,
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
