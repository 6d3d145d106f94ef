//! Steps of training against what torch's own optimizers did, on many layouts: data, tensor and sequence parallel, what is cut
//! over data-parallel cards, micro-batches that divide the global batch and that do not.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails where it stands and shows its figures")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::placement::Residual;
use ascend_tp::train::data::Batch;
use ascend_tp::train::{Error, Layout, Optimizer, Recipe, Schedule, ScheduleKind, Trainer, Zero, compile, recipe};
use ascend_tp::weights::fill_from;
use ascend_tp_emulator::{Config, Emulator};
use safetensors::SafeTensors;
use serde_json::Value;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn cards(count: usize) -> Arc<Cann> {
    Cann::new(Emulator::new(Config::with_cards(count)).unwrap().table()).unwrap()
}

/// A run of torch.
struct Golden {
    model: Model,
    recipe: Recipe,
    batches: Vec<Batch>,
    /// Loss and norm by step, in f64.
    expected: Vec<(f64, f64)>,
}

impl Golden {
    fn read(name: &str) -> Self {
        let dir = folder("fixtures_training").join(name);
        let json =
            |file: &str| -> Value { serde_json::from_str(&std::fs::read_to_string(dir.join(file)).unwrap()).unwrap() };
        let said = json("recipe.json");
        let number = |key: &str| said[key].as_f64().unwrap();
        let count = |key: &str| usize::try_from(said[key].as_u64().unwrap()).unwrap();
        let optimizer = match said["optimizer"].as_str().unwrap() {
            "adamw" => Optimizer::Adamw {
                betas: [0, 1].map(|at| said["betas"][at].as_f64().unwrap()),
                eps: number("eps"),
                weight_decay: number("weight_decay"),
            },
            _ => Optimizer::Sgd { momentum: number("momentum") },
        };
        let kind = match said["schedule"].as_str().unwrap() {
            "cosine" => ScheduleKind::Cosine,
            "linear" => ScheduleKind::Linear,
            _ => ScheduleKind::Constant,
        };
        let schedule =
            Schedule { name: kind, lr: number("lr"), min_lr: number("min_lr"), warmup_steps: count("warmup_steps") };
        let recipe = Recipe {
            steps: count("steps"),
            global_batch: count("global_batch"),
            seq: count("seq"),
            precision: recipe::Precision::F32,
            clip_norm: number("clip_norm"),
            optimizer,
            schedule,
        };
        let bytes = std::fs::read(dir.join("data.safetensors")).unwrap();
        let data = SafeTensors::deserialize(&bytes).unwrap();
        let tokens = data.tensor("tokens").unwrap().data().chunks(4);
        let tokens: Vec<i32> = tokens.map(|id| i32::from_le_bytes(id.try_into().unwrap())).collect();
        let sequences = recipe.global_batch;
        let ignore = match data.tensor("ignore") {
            Ok(ignore) => ignore.data().to_vec(),
            Err(_) => vec![0; recipe.steps * sequences * recipe.seq],
        };
        let batches = tokens.chunks(sequences * (recipe.seq + 1)).zip(ignore.chunks(sequences * recipe.seq));
        let labels = 0..i32::try_from(recipe.seq).unwrap();
        let batches = batches.zip(0..).map(|((tokens, ignore), step)| Batch {
            step,
            global_batch: sequences,
            sequence: recipe.seq,
            tokens: tokens.to_vec(),
            ignore: ignore.to_vec(),
            positions: (0..sequences).flat_map(|_| labels.clone()).collect(),
            documents: vec![0; sequences * recipe.seq],
        });
        let step = |step: &Value| {
            let at = |key: &str| step[key].as_f64().unwrap();
            (at("loss_f64"), at("grad_norm_f64"))
        };
        let model = Model::open(&folder("fixtures").join(said["model"].as_str().unwrap())).unwrap();
        let expected = json("expected.json")["steps"].as_array().unwrap().iter().map(step).collect();
        Self { model, recipe, batches: batches.collect(), expected }
    }

    fn start(&self, layout: Layout) -> Result<Trainer, Error> {
        let (config, checkpoint) = (&self.model.config, Arc::clone(&self.model.checkpoint));
        let compiled = compile(config, &self.recipe, &layout)?;
        let (cann, options) = (cards(layout.cards()), EngineOptions::default());
        Trainer::start(&cann, config, &self.recipe, layout, compiled, &options, |shards| {
            fill_from(&checkpoint, shards, &|_| ())
        })
    }
}

const ONE: Layout = Layout { data: 1, tensor: 1, residual: Residual::Replicate, zero: Zero::None, micro_batch: 1 };

/// Every layout gives torch's curve.
fn golden(name: &str, layouts: &[Layout]) {
    let golden = Golden::read(name);
    for layout in layouts {
        let mut trainer = golden.start(*layout).unwrap_or_else(|error| panic!("{name}, {layout:?}: {error}"));
        let (mut loss_off, mut norm_off) = (0.0, 0.0);
        for (batch, (loss, norm)) in golden.batches.iter().zip(&golden.expected) {
            let step = trainer.step(batch).unwrap_or_else(|error| panic!("{name}, {layout:?}: {error}"));
            loss_off = f64::max(loss_off, (step.loss - loss).abs());
            norm_off = f64::max(norm_off, (step.grad_norm - norm).abs() / norm);
        }
        println!("{name}, {layout:?}: loss off by {loss_off:.1e}, norm by {norm_off:.1e}");
        assert!(loss_off <= 1e-5 && norm_off <= 2e-5, "{name}, {layout:?}: loss {loss_off:.1e}, norm {norm_off:.1e}");
    }
}

#[test]
fn adamw_with_grouped_heads() {
    let layouts = [
        Layout { micro_batch: 8, ..ONE },
        Layout { micro_batch: 3, ..ONE },
        Layout { data: 2, micro_batch: 4, ..ONE },
        Layout { data: 4, micro_batch: 1, zero: Zero::Moments, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 2, ..ONE },
        Layout { data: 2, tensor: 4, micro_batch: 4, residual: Residual::Seq, zero: Zero::Moments },
        Layout { data: 8, micro_batch: 1, zero: Zero::Moments, ..ONE },
    ];
    golden("qwen2-gqa-adamw", &layouts);
}

#[test]
fn adamw_with_tied_weights_masked_labels_and_sizes_that_do_not_divide() {
    let layouts = [
        Layout { micro_batch: 12, ..ONE },
        Layout { data: 5, micro_batch: 1, zero: Zero::Gradients, ..ONE },
        Layout { data: 2, tensor: 3, micro_batch: 2, residual: Residual::Seq, zero: Zero::Gradients },
        Layout { data: 3, tensor: 2, micro_batch: 4, zero: Zero::Moments, ..ONE },
        Layout { tensor: 8, micro_batch: 12, residual: Residual::Seq, ..ONE },
    ];
    golden("qwen2-tied-uneven-masked", &layouts);
}

#[test]
fn sgd_with_momentum() {
    let layouts = [
        Layout { micro_batch: 4, ..ONE },
        Layout { data: 4, tensor: 2, micro_batch: 1, zero: Zero::Moments, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 1, residual: Residual::Seq, zero: Zero::Gradients },
    ];
    golden("llama3-sgd", &layouts);
}
