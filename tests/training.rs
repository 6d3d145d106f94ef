//! Training steps against torch's optimizers, on many layouts: data, tensor and sequence
//! parallelism, `ZeRO`, and micro-batches that do or do not divide the global batch.
#![expect(clippy::print_stdout, reason = "a test fails where it stands and shows its figures")]

use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::collective::exchanges;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::Device;
use ascend_tp::exec::{Clock, EngineOptions, Part, Timed};
use ascend_tp::generate::Model;
use ascend_tp::placement::Residual;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::plan::{Region, StreamKind};
use ascend_tp::timeline::side_by_side;
use ascend_tp::train::data::Batch;
use ascend_tp::train::program::StepPart;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{
    Error, Layout, LossScaling, NonFiniteGradient, Optimizer, Recipe, Recompute, Schedule, ScheduleKind,
    Times, Trainer, Zero, compile, lower, memory,
};
use ascend_tp::weights::fill_from;
use ascend_tp_emulator::{Config, Lane, Mode, Numbers, Recording};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::common::cases::cases;
use crate::common::{cann, fixture, machine, open, path};

pub(crate) struct Golden {
    pub(crate) model: Model,
    pub(crate) recipe: Recipe,
    pub(crate) batches: Vec<Batch>,
    pub(crate) expected: Vec<(f64, f64)>,
}

impl Golden {
    pub(crate) fn read(name: &str) -> Self {
        let dir = path("tests/fixtures_training").join(name);
        let json = |file: &str| -> Value {
            serde_json::from_str(&std::fs::read_to_string(dir.join(file)).unwrap()).unwrap()
        };
        let said = json("recipe.json");
        let number = |key: &str| said[key].as_f64().unwrap();
        let count = |key: &str| usize::try_from(said[key].as_u64().unwrap()).unwrap();
        let optimizer = match said["optimizer"].as_str().unwrap() {
            "adamw" => Optimizer::Adamw {
                betas: [0, 1].map(|at| said["betas"][at].as_f64().unwrap()),
                eps: number("eps"),
                weight_decay: number("weight_decay"),
            },
            _ => Optimizer::Sgd { momentum: number("momentum"), weight_decay: number("weight_decay") },
        };
        let kind = match said["schedule"].as_str().unwrap() {
            "cosine" => ScheduleKind::Cosine,
            "linear" => ScheduleKind::Linear,
            _ => ScheduleKind::Constant,
        };
        let schedule = Schedule {
            name: kind,
            lr: number("lr"),
            min_lr: number("min_lr"),
            warmup_steps: count("warmup_steps"),
        };
        let recipe = Recipe {
            steps: count("steps"),
            global_batch: count("global_batch"),
            seq: count("seq"),
            precision: said["precision"].as_str().unwrap_or("f32").parse().unwrap(),
            clip_norm: number("clip_norm"),
            optimizer,
            schedule,
            ..Recipe::default()
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
        let batches = batches.collect();
        let step = |step: &Value| {
            let at = |key: &str| step[key].as_f64().unwrap();
            (at("loss_f64"), at("grad_norm_f64"))
        };
        let model = open(&fixture(said["model"].as_str().unwrap()));
        let expected = json("expected.json")["steps"].as_array().unwrap().iter().map(step).collect();
        Self { model, batches, recipe, expected }
    }

    pub(crate) fn start(&self, layout: Layout) -> Result<Trainer, Error> {
        self.start_on(&cann(layout.cards()), layout, &EngineOptions::default())
    }

    pub(crate) fn start_on(
        &self,
        cann: &Arc<Cann>,
        layout: Layout,
        options: &EngineOptions,
    ) -> Result<Trainer, Error> {
        let builder = Trainer::of_model(cann, &self.model).recipe(self.recipe.clone()).layout(layout);
        builder
            .compiled(compile(&self.model.config, &self.recipe, &layout, Target::ANY)?)
            .engine(options.clone())
            .start()
    }
}

const ONE: Layout = Layout::ONE;

/// Steps that every layout takes. The warm-up has four; later steps run the same programs.
const BEGINNING: usize = 8;

/// The first layout follows the whole curve.
fn golden(name: &str, layouts: &[Layout]) {
    let golden = Golden::read(name);
    follows_for(golden.batches.len(), name, &golden, &layouts[..1]);
    follows(name, &golden, &layouts[1..]);
}

pub(crate) fn follows(name: &str, golden: &Golden, layouts: &[Layout]) {
    follows_for(cases(BEGINNING), name, golden, layouts);
}

fn follows_for(steps: usize, name: &str, golden: &Golden, layouts: &[Layout]) {
    let bounds = match golden.recipe.precision {
        TrainingPrecision::F32 => (1e-5, 2e-5),
        // torch's own bf16 run differs by 5.0e-3 in the loss and 2.1e-3 in the norm.
        _ => (2e-2, 1e-2),
    };
    for layout in layouts {
        let mut trainer = golden.start(*layout).unwrap_or_else(|error| panic!("{name}, {layout:?}: {error}"));
        let (mut loss_off, mut norm_off) = (0.0, 0.0);
        for (batch, (loss, norm)) in golden.batches.iter().zip(&golden.expected).take(steps) {
            let step = trainer.step(batch).unwrap_or_else(|error| panic!("{name}, {layout:?}: {error}"));
            loss_off = f64::max(loss_off, (step.loss - loss).abs());
            norm_off = f64::max(norm_off, (step.grad_norm - norm).abs() / norm);
        }
        println!("{name}, {layout:?}: loss off by {loss_off:.1e}, norm by {norm_off:.1e}");
        let (loss_bound, norm_bound) = bounds;
        assert!(
            loss_off <= loss_bound && norm_off <= norm_bound,
            "{name}, {layout:?}: loss {loss_off:.1e}, norm {norm_off:.1e}"
        );
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
        Layout { data: 2, tensor: 4, micro_batch: 4, residual: Residual::Seq, zero: Zero::Moments, ..ONE },
        Layout { data: 8, micro_batch: 1, zero: Zero::Moments, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Weights, ..ONE },
        Layout { data: 8, replicas: 2, micro_batch: 1, zero: Zero::Weights, ..ONE },
    ];
    golden("qwen2-gqa-adamw", &layouts);
}

#[test]
fn adamw_with_tied_weights_masked_labels_and_sizes_that_do_not_divide() {
    let layouts = [
        Layout { micro_batch: 12, ..ONE },
        Layout { data: 5, micro_batch: 1, zero: Zero::Gradients, ..ONE },
        Layout { data: 2, tensor: 3, micro_batch: 2, residual: Residual::Seq, zero: Zero::Gradients, ..ONE },
        Layout { data: 3, tensor: 2, micro_batch: 2, residual: Residual::Seq, zero: Zero::Weights, ..ONE },
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
        Layout { data: 4, replicas: 2, tensor: 2, residual: Residual::Seq, zero: Zero::Gradients, ..ONE },
        Layout { data: 2, micro_batch: 2, zero: Zero::Weights, ..ONE },
    ];
    golden("llama3-sgd", &layouts);
}

#[test]
fn products_in_bf16() {
    let layouts = [
        Layout { micro_batch: 4, ..ONE },
        Layout { micro_batch: 3, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 1, residual: Residual::Seq, zero: Zero::Moments, ..ONE },
        Layout { data: 4, tensor: 2, zero: Zero::Weights, ..ONE },
    ];
    golden("qwen3-qknorm-bf16", &layouts);
}

#[test]
fn products_in_f16_with_a_scaled_loss() {
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    golden.recipe.precision = TrainingPrecision::F16;
    let layouts = [
        Layout { micro_batch: 8, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 1, residual: Residual::Seq, zero: Zero::Weights, ..ONE },
    ];
    follows("in f16", &golden, &layouts);
}

#[test]
fn a_step_that_overflows_moves_nothing_and_names_its_tensor_and_the_scale_falls() {
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    golden.recipe.precision = TrainingPrecision::F16;
    golden.recipe.loss_scale = LossScaling { initial: f64::powi(2.0, 30), growth_steps: 1000, hysteresis: 1 };
    let layout = Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Moments, ..ONE };
    let mut trainer = golden.start(layout).unwrap();
    let before = trainer.parts().unwrap();
    let step = trainer.step(&golden.batches[0]).unwrap();
    assert!(step.is_skipped);
    let NonFiniteGradient { weight, rank } = step.spoiled.unwrap();
    assert!(weight.starts_with("model.") && rank < 4, "{weight} {rank}");
    assert_eq!(trainer.parts().unwrap(), before);
    let mut scale = step.loss_scale;
    let first = (1..30).find(|_| {
        let step = trainer.step(&golden.batches[0]).unwrap();
        assert_eq!(step.loss_scale, scale / 2.0);
        scale = step.loss_scale;
        !step.is_skipped
    });
    assert!(first.is_some(), "still skips at a scale of {scale}");
    let progress = trainer.progress();
    assert_eq!((progress.next, progress.updates), (first.unwrap() + 1, 1));
    assert_ne!(trainer.parts().unwrap(), before);
}

/// A NaN weight makes the loss NaN. No loss scale repairs this, and no checkpoint contains it.
#[test]
fn a_loss_that_is_not_finite_ends_a_run_in_every_precision() {
    let mut golden = Golden::read("qwen3-qknorm-bf16");
    let layout = Layout { data: 2, micro_batch: 4, ..ONE };
    for precision in [TrainingPrecision::F16, TrainingPrecision::Bf16, TrainingPrecision::F32] {
        golden.recipe.precision = precision;
        let (config, recipe) = (&golden.model.config, &golden.recipe);
        let compiled = compile(config, recipe, &layout, Target::ANY).unwrap();
        let cann = cann(layout.cards());
        let mut trainer =
            Trainer::start(&cann, config, recipe, layout, compiled, &EngineOptions::default(), |shards| {
                fill_from(&golden.model.checkpoint, shards, &|_| ())?;
                let mut last = shards.parts().filter(|part| part.tensor().name == "model.norm.weight");
                last.try_for_each(|part| part.write(0, &f32::NAN.to_le_bytes()))
            })
            .unwrap();
        let error = trainer.step(&golden.batches[0]).unwrap_err();
        let Error::NotFinite { step: 0, what: "loss", value, .. } = error else {
            panic!("{precision:?}: {error}")
        };
        assert!(value.is_nan());
        let error = trainer.checkpoint_parts().unwrap_err().to_string();
        // In f16 the step is skipped; otherwise all weights were updated.
        let spoiled = if precision == TrainingPrecision::F16 { "`model.norm.weight`" } else { "`model." };
        assert!(
            error.contains(spoiled) && error.contains(" on rank 0: cannot be saved"),
            "{precision:?}: {error}"
        );
        assert_eq!(
            (trainer.next_step(), trainer.progress().updates),
            (0, 0),
            "{precision:?}: the step counts"
        );
    }
}

/// Stream events agree with the clock of the cards for each operator and collective.
#[test]
fn a_traced_step_is_what_the_cards_did() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let layout = Layout { data: 2, tensor: 2, micro_batch: 2, zero: Zero::Moments, ..ONE };
    let mode = Mode::Timed { numbers: Numbers::Real };
    let (emulator, cann) = machine(Config { mode, ..Config::with_cards(4) });
    let machine = emulator.clone();
    let clock = Some(Clock(Arc::new(move || machine.thread_now_ns())));
    let options = EngineOptions { clock, ..EngineOptions::default() };
    let mut trainer = golden.start_on(&cann, layout, &options).unwrap();
    trainer.step(&golden.batches[0]).unwrap();
    assert_eq!(trainer.times().compute, 0.0, "what is not timed costs nothing");
    emulator.record_timeline(Recording::Everything);
    let (_, phases) = trainer.timed_step(&golden.batches[1], Timed::Streams).unwrap();
    assert_eq!(phases.len(), 2, "of cards with a clock, whose host costs nothing");
    let coarse = trainer.times();
    let of_lanes = |lanes: &[Lane]| {
        let spans = emulator.timeline();
        let own = spans.iter().filter(|span| lanes.contains(&span.lane));
        own.map(|span| span.end_ns - span.arrived_ns).sum::<u64>() as f64 / 4e9
    };
    let (operators, exchanges) = (of_lanes(&[Lane::Cube, Lane::Vector]), of_lanes(&[Lane::Communication]));
    // A span includes the gaps between operators, and a collective starts when its stream is free.
    println!("operators {operators:.2e} s, collectives {exchanges:.2e} s of {coarse:?}");
    assert!(coarse.compute >= operators && coarse.compute <= coarse.seconds, "{operators} {coarse:?}");
    assert!(coarse.hidden + coarse.exposed >= 0.999 * exchanges, "{exchanges} {coarse:?}");
    emulator.clear_timeline();
    let (step, phases) = trainer.timed_step(&golden.batches[2], Timed::Steps).unwrap();
    let times = trainer.times();
    let (loss, norm) = golden.expected[2];
    assert!((step.loss - loss).abs() <= 1e-5 && (step.grad_norm - norm).abs() <= 2e-5 * norm, "{step:?}");

    let programs = trainer.programs();
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["micro-batch 1", "micro-batch 2"]);
    let mut recorded = emulator.timeline();
    recorded.sort_by_key(|span| span.start_ns);
    for rank in 0..4 {
        for stream in [StreamKind::Compute, StreamKind::Communication] {
            let is_exchange = stream == StreamKind::Communication;
            let of_machine = recorded.iter().filter(|span| {
                span.card == rank
                    && span.lane != Lane::Copy
                    && (span.lane == Lane::Communication) == is_exchange
            });
            let mut of_machine = of_machine;
            for phase in &phases {
                let by_events: Vec<_> = phase
                    .spans
                    .iter()
                    .filter(|span| span.rank == rank as usize && span.stream == stream)
                    .collect();
                let of_machine: Vec<_> = of_machine.by_ref().take(by_events.len()).collect();
                assert!(
                    by_events.len() > 10 && by_events.len() == of_machine.len(),
                    "rank {rank}, {stream:?}"
                );
                let began = (by_events[0].end_ns, of_machine[0].end_ns);
                for (found, expected) in by_events.iter().zip(&of_machine) {
                    let ends = (found.end_ns - began.0, expected.end_ns - began.1);
                    assert!(ends.0.abs_diff(ends.1) <= 2 + ends.1 / 1_000_000, "{ends:?}");
                    let lengths = (found.end_ns - found.start_ns, expected.end_ns - expected.arrived_ns);
                    assert!(lengths.0 + 2 >= lengths.1, "{lengths:?}");
                }
            }
            assert_eq!(of_machine.next(), None, "rank {rank}, {stream:?}");
        }
    }
    let all = side_by_side(vec![phases], &programs);
    assert!(all[0].end_ns <= all[1].start_ns && all.iter().flat_map(|phase| &phase.spans).count() > 500);
    let waits = all.iter().flat_map(|phase| &phase.spans).any(|span| span.start_ns > span.arrived_ns);
    assert!(waits, "a rank comes before the others");

    for times in [times, coarse] {
        let Times { seconds, compute, hidden, exposed } = times;
        assert!((compute + exposed + times.idle() - seconds).abs() < 1e-9, "{times:?}");
        assert!((0.0..=compute).contains(&hidden) && exposed > 0.0 && times.idle() > 0.0, "{times:?}");
    }
    // Only without timing each call, the host launches a step fast enough to hide collectives.
    assert!(coarse.seconds < times.seconds && coarse.hidden > 0.0, "{coarse:?} {times:?}");
}

#[test]
fn a_gradient_that_is_not_finite_is_named_with_its_rank() {
    let golden = Golden::read("llama3-sgd");
    let layout = Layout { data: 2, tensor: 2, zero: Zero::Moments, ..ONE };
    let (config, recipe) = (&golden.model.config, &golden.recipe);
    let compiled = compile(config, recipe, &layout, Target::ANY).unwrap();
    let options = EngineOptions::default();
    let mut trainer = Trainer::start(&cann(4), config, recipe, layout, compiled, &options, |shards| {
        fill_from(&golden.model.checkpoint, shards, &|_| ())?;
        let spoiled =
            |part: &&Part<'_>| part.tensor().name.ends_with("0.mlp.up_proj.weight") && part.rank() == 3;
        shards.parts().find(spoiled).unwrap().write(0, &f32::NAN.to_le_bytes())
    });
    let error = trainer.as_mut().unwrap().step(&golden.batches[0]).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("step 0: the loss is NaN") && text.contains("on rank"), "{text}");
}

#[test]
fn what_is_computed_again_has_the_same_numbers_and_takes_less_memory() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let mut config = golden.model.config.clone();
    config.layers = 8;
    for layout in [
        Layout { micro_batch: 8, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 4, residual: Residual::Seq, zero: Zero::Weights, ..ONE },
    ] {
        let arena = |recompute: Recompute| {
            let compiled =
                compile(&config, &golden.recipe, &Layout { recompute, ..layout }, Target::ANY).unwrap();
            compiled.plans[0].1[0].region_bytes(Region::Arena).0
        };
        let kinds = [Recompute::None, Recompute::Selective, Recompute::Layers(4), Recompute::Full];
        let [none, selective, half, full] = kinds.map(arena);
        assert!([selective, half, full].iter().all(|less| *less < none), "{none} {selective} {half} {full}");
        // With sharded weights, the peak is at the loss, for any recomputation.
        assert!(full < half || layout.zero == Zero::Weights, "{none} {selective} {half} {full}");
        // Full recomputation keeps the activations of one of 8 layers, and the residual stream
        // between layers.
        println!("{layout:?}: arena {none} B, selective {selective}, 4 of 8 layers {half}, full {full}");
        let curve = |recompute: Recompute| {
            let mut trainer = golden.start(Layout { recompute, ..layout }).unwrap();
            let steps =
                golden.batches[..3].iter().map(|batch| trainer.step(batch).unwrap()).collect::<Vec<_>>();
            (steps, trainer.parts().unwrap())
        };
        let (steps, parts) = curve(Recompute::None);
        for recompute in [Recompute::Selective, Recompute::Layers(1), Recompute::Full] {
            let (found_steps, found_parts) = curve(recompute);
            // A second gather may run at another place, so sums have another order.
            for (found, expected) in found_steps.iter().zip(&steps).filter(|_| layout.cards() > 1) {
                let off = (found.loss - expected.loss).abs();
                assert!(off <= 2e-6, "{recompute:?}: {found:?}, expected {expected:?}");
            }
            if layout.cards() == 1 {
                assert_eq!(found_steps, steps, "{recompute:?}");
                let differs = found_parts.iter().zip(&parts).find(|(found, expected)| found != expected);
                assert!(differs.is_none(), "{recompute:?}: {}", differs.unwrap().0.tensor);
            }
        }
    }
}

fn wide() -> ModelConfig {
    let config = Golden::read("qwen2-gqa-adamw").model.config;
    let sizes = (config.head_dim, config.vocab_size);
    ModelConfig {
        layers: 2,
        hidden_size: 256,
        intermediate_size: 1024,
        heads: 256 / sizes.0,
        kv_heads: 256 / sizes.0,
        ..config
    }
}

#[test]
fn memory_is_known_before_the_start_and_what_does_not_fit_is_said_with_what_would() {
    let config = wide();
    let recipe = Recipe { seq: 64, global_batch: 8, ..Recipe::default() };
    for layout in [
        Layout { micro_batch: 4, ..ONE },
        Layout {
            data: 2,
            tensor: 2,
            micro_batch: 2,
            zero: Zero::Weights,
            recompute: Recompute::Selective,
            ..ONE
        },
    ] {
        let compiled = compile(&config, &recipe, &layout, Target::ANY).unwrap();
        let parts = memory::wanted(&compiled);
        let buffers: u64 =
            parts.iter().filter(|(part, _)| part.contains("HCCL")).map(|(_, bytes)| bytes.0).sum();
        let expected: u64 = parts.iter().map(|(_, bytes)| bytes.0).sum::<u64>() - buffers;
        let cann = cann(layout.cards());
        let card = Device::open(&cann, 0).unwrap();
        let free = card.memory().unwrap().free;
        let builder = Trainer::of_seed(&cann, &config, 1).recipe(recipe.clone()).layout(layout);
        let mut trainer = builder.compiled(compiled).start().unwrap();
        let batch = Batch::scattered(0, recipe.global_batch, recipe.seq, config.vocab_size);
        trainer.step(&batch).unwrap();
        let found = free.0 - card.memory().unwrap().free.0 - buffers;
        let off = expected as f64 / found as f64 - 1.0;
        println!("{layout:?}: {expected} bytes known before, {found} taken: {:.2} %", off * 100.0);
        assert!(off.abs() <= 0.03, "{layout:?}: {expected} bytes known before, {found} taken");
    }
    let layout = Layout { data: 2, micro_batch: 4, ..ONE };
    let wanted = memory::wanted(&compile(&config, &recipe, &layout, Target::ANY).unwrap());
    let lacks = wanted.iter().find(|(part, _)| *part == "arena").unwrap().1.0 / 2;
    let all: u64 = wanted.iter().map(|(_, bytes)| bytes.0).sum();
    let small = Config { hbm_bytes: all - lacks, ..Config::with_cards(2) };
    let (_, cann) = machine(small);
    let compiled = compile(&config, &recipe, &layout, Target::ANY).unwrap();
    let refused =
        Trainer::start(&cann, &config, &recipe, layout, compiled, &EngineOptions::default(), |_| Ok(()));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("memory of a card: the run does not fit") && text.contains("--recompute full"),
        "{text}"
    );
}

#[test]
fn gradients_are_reduced_once_a_step_however_small_its_micro_batches_are() {
    let golden = Golden::read("qwen2-gqa-adamw");
    for zero in [Zero::None, Zero::Moments] {
        let layout = Layout { data: 2, micro_batch: 1, zero, ..ONE };
        let lowered = lower(&golden.model.config, &golden.recipe, &layout).unwrap();
        for (part, placed) in lowered.parts {
            let found = exchanges(&placed);
            let of_gradients =
                found.iter().filter(|exchange| exchange.value != "loss" || exchange.tensors > 1).count();
            assert_eq!(of_gradients > 0, part == StepPart::Last, "{part:?}: {found:#?}");
        }
    }
}

#[test]
fn a_part_of_a_step_that_was_not_lowered_is_named() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let whole = Layout { micro_batch: golden.recipe.global_batch, ..ONE };
    let lowered = lower(&golden.model.config, &golden.recipe, &whole).unwrap();
    assert_eq!(lowered.runs(&golden.recipe, &whole).unwrap().len(), 1);
    let found = lowered.runs(&golden.recipe, &Layout { micro_batch: 1, ..whole }).unwrap_err().to_string();
    assert!(found.contains("First: was not lowered: expected one of a step, found Only"), "{found}");
}

#[test]
fn weights_cut_for_storage_are_gathered_by_each_use_for_itself() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let mut config = golden.model.config.clone();
    config.layers = 12;
    let region = |zero: Zero, region: Region| {
        let layout = Layout { data: 4, micro_batch: 2, zero, ..ONE };
        let compiled = compile(&config, &golden.recipe, &layout, Target::ANY).unwrap();
        let (_, plans) = compiled.plans.into_iter().next().unwrap();
        plans[0].region_bytes(region).0
    };
    let (whole, cut) = (region(Zero::Gradients, Region::Weights), region(Zero::Weights, Region::Weights));
    // Norm vectors stay whole, and each tensor is aligned to 512 bytes.
    assert!(cut < whole / 3, "{cut} bytes of weights a card, {whole} if whole");
    // Fewer gathered matrices than one layer are live.
    let more = region(Zero::Weights, Region::Arena).saturating_sub(region(Zero::Gradients, Region::Arena));
    assert!(more < whole / 12, "{more} bytes more in the arena, {whole} bytes of weights in 12 layers");
}

#[test]
fn what_lends_its_shape_alone_is_not_gathered() {
    let golden = Golden::read("qwen2-gqa-adamw");
    let layout = Layout { data: 2, micro_batch: 4, zero: Zero::Weights, ..ONE };
    let lowered = lower(&golden.model.config, &golden.recipe, &layout).unwrap();
    for (part, placed) in lowered.parts {
        let found = exchanges(&placed);
        let of_table = found.iter().filter(|exchange| exchange.value == "model.embed_tokens.weight");
        // The table is looked up once; its gradient needs only its shape.
        assert_eq!(
            of_table.clone().filter(|exchange| exchange.kind == "all_gather").count(),
            1,
            "{part:?}: {found:#?}"
        );
        assert_eq!(of_table.count(), 1, "{part:?}");
    }
}
