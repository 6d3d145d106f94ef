//! Mutations of passes: each fault of a pass is injected at several occasions, and each must be
//! caught.
//!
//! A faulty pass is caught by a verifier, by the emulated cards, or by wrong results. A fault that
//! does not change the plans is not counted. The table of all faults is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ascend_tp_emulator::{Config, Emulator};

use super::injected::{Defect, inject};
use crate::base::{DType, Diagnostics};
use crate::collective::parallelize;
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{Engine, EngineOptions, NamedTensors, ProgramId};
use crate::placement::{Mesh, Pins, Residual};
use crate::program::models::{Head, RunShape, cache_inputs, decoder, input};
use crate::program::{Builder, HostTensor, Kind, Program, ValueId};
use crate::schedule::plan::{Slot, Tensor};
use crate::schedule::{Exchanges, Joining, Plan, Scheduling, Target, schedule};
use crate::train::data::Batch;
use crate::train::{
    Compiled, Layout, Optimizer, Recipe, Schedule, ScheduleKind, Trainer, Zero, compile, recipe,
};

/// Largest relative difference of a right run.
const BOUND: f32 = 1e-4;
/// Faults of each kind that change the plans of a fixture: so many are judged.
const JUDGED: usize = 4;
/// Occasions at which a fault is injected until so many change the plans.
const TRIED: usize = 24;
const RUN: RunShape = RunShape::new(2, 4, 6);

/// The plans that a compiler makes, and what else its results are read by.
#[derive(PartialEq)]
enum Built {
    /// Plans of all ranks, and the values that are the program's outputs.
    Forward(Vec<Plan>, Vec<ValueId>),
    Training(Vec<Vec<Plan>>),
}

/// A program that all passes compile.
enum Fixture {
    Forward { program: Program, mesh: Mesh, pins: Box<Pins>, inputs: NamedTensors, exchanges: Exchanges },
    Training { recipe: Box<Recipe>, layout: Layout },
}

fn config(layers: usize) -> ModelConfig {
    let published = include_str!("../../../tests/fixtures/qwen3-qknorm/config.json");
    let mut json: serde_json::Value = serde_json::from_str(published).unwrap();
    let sizes = [("hidden_size", 8), ("head_dim", 4), ("intermediate_size", 12), ("vocab_size", 12)];
    for (key, size) in sizes.into_iter().chain([("num_hidden_layers", layers)]) {
        json[key] = size.into();
    }
    json["layer_types"] = serde_json::json!(vec!["full_attention"; layers]);
    ModelConfig::from_json(&json.to_string()).unwrap()
}

fn numbers(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let start = if name.contains("norm") { 1.0 } else { 0.0 };
    (0..count as u64)
        .map(|at| start + ((at + 1).wrapping_mul(seed | 1) % 2003) as f32 / 1000.0 - 1.0)
        .collect()
}

fn weight(tensor: &Tensor) -> Vec<u8> {
    HostTensor::float(tensor.shape.clone(), tensor.dtype, numbers(&tensor.name, tensor.shape.elems()))
        .to_bytes()
}

impl Fixture {
    fn forward(mesh: Mesh, residual: Residual) -> Self {
        let program = decoder(&config(1), RUN, DType::F32, Head::LastLogits).unwrap();
        let (pins, inputs) = (Box::new(Pins::auto(residual)), inputs(&config(1)));
        Self::Forward { program, mesh, pins, inputs, exchanges: Exchanges::Apart }
    }

    /// Sums that are read whole and in shards, and a value that is read in three layouts.
    fn layouts() -> Self {
        let mut build = Builder::new("layouts");
        let mut inputs = NamedTensors::new();
        let mut input = |build: &mut Builder, name: &str, sizes: &[usize]| {
            inputs.set(name, numbers(name, sizes.iter().product()));
            build.input(name, sizes.to_vec(), DType::F32)
        };
        for name in ["fused", "shared"] {
            let x = input(&mut build, &format!("{name}.x"), &[4, 4, 6]);
            let sum = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
            let sum = build.name(sum, format!("{name}.whole"));
            let rows = input(&mut build, &format!("{name}.rows"), &[4, 6]);
            let moved = build.add(rows, sum);
            build.output(name, moved);
            if name == "shared" {
                build.output("sum", sum);
            }
        }
        let x = input(&mut build, "turned.rows", &[4, 6]);
        let turned = build.op(Kind::Silu, &[x]);
        let turned = build.name(turned, "turned.whole");
        for name in ["a.columns", "b.rows"] {
            let other = input(&mut build, name, &[4, 6]);
            let sum = build.add(other, turned);
            build.output(name, sum);
        }
        let pins = Pins::default().value("*.x", &[(0, "tp")]).value("*.whole", &[]);
        let pins = pins.value("*.rows", &[(0, "tp")]).value("*.columns", &[(1, "tp")]);
        let (mesh, pins) = (Mesh::new(&[("tp", 2)]).unwrap(), Box::new(pins));
        Self::Forward { program: build.finish().unwrap(), mesh, pins, inputs, exchanges: Exchanges::Apart }
    }

    /// A product that exchanges too, and one in parallel with it.
    fn product_and_exchange() -> Self {
        let [rows, hidden, inner] = [512, 2048, 4096];
        let mut build = Builder::new("products");
        let x = build.input("x", [rows, hidden], DType::BF16);
        let weights = [("up", [inner, hidden]), ("down", [hidden, inner]), ("other", [inner, hidden])];
        let [up, down, other] = weights.map(|(name, shape)| build.param(name, shape, DType::BF16));
        let made = build.matmul("sh,fh->sf", x, up);
        let sum = build.matmul("sf,hf->sh", made, down);
        let beside = build.matmul("sh,fh->sf", x, other);
        build.output("sum", sum);
        build.output("beside", beside);
        let pins = Pins::default().split_axis("up", 0).split_axis("down", 1).replicate("other");
        let (program, mesh) = (build.finish().unwrap(), Mesh::new(&[("tp", 2)]).unwrap());
        let (inputs, pins) = (NamedTensors::new().with("x", numbers("x", rows * hidden)), Box::new(pins));
        Self::Forward { program, mesh, pins, inputs, exchanges: Exchanges::WithProducts }
    }

    /// The faults that are injected.
    fn defects(&self) -> &'static [Defect] {
        match self {
            // What runs in parallel; results of large products take long.
            Self::Forward { exchanges: Exchanges::WithProducts, .. } => {
                &[Defect::CoresForgotten, Defect::EventMissing]
            }
            _ => Defect::ALL,
        }
    }

    fn training(layout: Layout) -> Self {
        let recipe = Recipe {
            steps: 2,
            global_batch: 4,
            seq: 4,
            precision: recipe::TrainingPrecision::F32,
            clip_norm: 0.05,
            optimizer: Optimizer::Adamw { betas: [0.8, 0.9], eps: 1e-3, weight_decay: 0.2 },
            schedule: Schedule { name: ScheduleKind::Constant, lr: 0.05, min_lr: 0.0, warmup_steps: 0 },
            ..Recipe::default()
        };
        Self::Training { recipe: Box::new(recipe), layout }
    }

    fn layers(&self) -> usize {
        match self {
            Self::Forward { .. } => 1,
            Self::Training { layout, .. } => layout.stages,
        }
    }

    fn compiled(&self) -> Result<(Built, Option<Compiled>), Diagnostics> {
        match self {
            Self::Forward { program, mesh, pins, exchanges, .. } => {
                let lowered = parallelize(program, mesh, pins)?.lowered;
                let target = Target { exchanges: *exchanges, ..Target::ANY };
                let how = Scheduling { joining: Joining::SideBySide, target, ..Scheduling::default() };
                let plans = schedule(&lowered, how)?;
                let outputs = lowered.program.outputs.iter().map(|(_, id)| *id).collect();
                Ok((Built::Forward(plans, outputs), None))
            }
            Self::Training { recipe, layout } => {
                let compiled = compile(&config(self.layers()), recipe, layout, Target::ANY)?;
                let plans = compiled.plans.iter().map(|(_, plans)| plans.clone()).collect();
                Ok((Built::Training(plans), Some(compiled)))
            }
        }
    }

    fn cards(&self) -> usize {
        match self {
            Self::Forward { mesh, .. } => mesh.cards(),
            Self::Training { layout, .. } => layout.cards(),
        }
    }

    /// The results of all ranks, or the error of a card.
    fn results(
        &self,
        cann: &Arc<Cann>,
        built: Built,
        compiled: Option<Compiled>,
    ) -> Result<Vec<f32>, String> {
        match (self, built, compiled) {
            (Self::Forward { inputs, .. }, Built::Forward(plans, outputs), _) => {
                forward(cann, &plans, inputs, &outputs)
            }
            (Self::Training { recipe, layout }, _, Some(compiled)) => {
                train(cann, &config(self.layers()), recipe, *layout, compiled)
            }
            _ => Err("another fixture".to_owned()),
        }
    }
}

fn inputs(config: &ModelConfig) -> NamedTensors {
    let RunShape { batch, sequence, .. } = RUN;
    let positions: Vec<usize> = (0..batch * sequence).map(|at| at % sequence).collect();
    let (cos, sin) = config.rope.cos_sin(config.head_dim, &positions, sequence);
    let ids = (0..batch * sequence).map(|at| (at * 5 % config.vocab_size) as i64).collect();
    let rotary = [batch, sequence, config.head_dim];
    let tensors = [
        (input::IDS, HostTensor::int([batch, sequence], DType::I64, ids)),
        (input::COS, HostTensor::float(rotary, DType::F32, cos)),
        (input::SIN, HostTensor::float(rotary, DType::F32, sin)),
        (input::LAST, HostTensor::int([batch], DType::I64, vec![sequence as i64 - 1; batch])),
    ];
    tensors.into_iter().chain(cache_inputs(RUN, &vec![0..sequence; batch])).collect()
}

/// Runs twice, because stale bytes of the first run can show in the second.
fn forward(
    cann: &Arc<Cann>,
    plans: &[Plan],
    inputs: &NamedTensors,
    outputs: &[ValueId],
) -> Result<Vec<f32>, String> {
    let run = || {
        let taps = plans[0].taps.clone();
        let mut engine = Engine::start(cann, vec![plans.to_vec()], &EngineOptions::default())?;
        engine.load(|shards| {
            shards.parts().try_for_each(|part| part.write(0, &part.tensor().cut(&weight(part.tensor()))))
        })?;
        let mut found: BTreeMap<(usize, usize), Vec<f32>> = BTreeMap::new();
        engine.run(ProgramId(0), inputs)?;
        let whole = engine.run_observed(ProgramId(0), inputs, |seen| {
            if outputs.contains(&taps[seen.tap].value) {
                found.insert((seen.rank, seen.tap), floats(&seen.bytes));
            }
        })?;
        let whole = whole.iter().flat_map(|(_, tensor)| tensor.floats().to_vec());
        Ok::<_, crate::exec::Error>(found.into_values().flatten().chain(whole).collect())
    };
    run().map_err(|error| error.to_string())
}

fn train(
    cann: &Arc<Cann>,
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    compiled: Compiled,
) -> Result<Vec<f32>, String> {
    let run = || {
        let options = EngineOptions::default();
        let mut trainer = Trainer::start(cann, config, recipe, layout, compiled, &options, |shards| {
            shards.parts().try_for_each(|part| part.write(0, &part.tensor().cut(&weight(part.tensor()))))
        })?;
        let mut found = Vec::new();
        for step in 0..recipe.steps {
            let batch = Batch::scattered(step as u64, recipe.global_batch, recipe.seq, config.vocab_size);
            let step = trainer.step(&batch)?;
            found.extend([step.loss as f32, step.grad_norm as f32]);
        }
        found.extend(trainer.parts()?.iter().flat_map(|part| floats(&part.bytes)));
        Ok::<_, crate::train::Error>(found)
    };
    run().map_err(|error| error.to_string())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn is_close(found: &[f32], right: &[f32]) -> bool {
    let size = right.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    // A NaN is not close.
    found.len() == right.len() && found.iter().zip(right).all(|(a, b)| (a - b).abs() <= BOUND * size)
}

/// Faults after which another placement of the buffers can be as good.
const MEMORY: [Defect; 5] = {
    use Defect::{BufferShorter, LifeBeginsLate, LifeEndsEarly, LivesEndEarly, OffsetLower};
    [BufferShorter, LifeBeginsLate, LifeEndsEarly, LivesEndEarly, OffsetLower]
};

impl Built {
    /// Whether no two buffers with common bytes are in use at the same time, by a comparison of all
    /// pairs of steps.
    fn is_sound(&self) -> bool {
        self.plans().into_iter().all(is_sound)
    }

    /// Whether every two steps that touch the same bytes have the order that they have in `right`.
    fn keeps_order(&self, right: &Self) -> bool {
        self.plans().into_iter().zip(right.plans()).all(|(plan, right)| keeps_order(plan, right))
    }

    fn plans(&self) -> Vec<&Plan> {
        match self {
            Self::Forward(plans, _) => plans.iter().collect(),
            Self::Training(programs) => programs.iter().flatten().collect(),
        }
    }
}

fn keeps_order(plan: &Plan, right: &Plan) -> bool {
    // Passes move steps and do not change them, but for events. Of equal steps the first stays the
    // first.
    let places = |plan: &Plan| {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, step) in plan.steps.iter().enumerate() {
            places.entry(format!("{step:?}")).or_default().push(at);
        }
        places
    };
    let (own, others) = (places(plan), places(right));
    let mut place: BTreeMap<usize, usize> = BTreeMap::new();
    for (step, right) in &others {
        place.extend(right.iter().copied().zip(own.get(step).into_iter().flatten().copied()));
    }
    right.conflicts().iter().all(|(first, second)| place.get(first) < place.get(second))
}

fn is_sound(plan: &Plan) -> bool {
    // By buffer: the steps at which it is touched or shown.
    let mut touched: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        for view in step.reads().into_iter().chain(step.writes()) {
            if plan.span(view).1.end > plan.buffers[view.buffer].range().end {
                return false;
            }
            touched.entry(view.buffer).or_default().insert(at);
        }
    }
    for tap in &plan.taps {
        touched.entry(tap.view.buffer).or_default().insert(tap.after_steps.saturating_sub(1));
    }
    let all: Vec<_> = touched.iter().map(|(id, steps)| (&plan.buffers[*id], steps)).collect();
    let shares = |a: &Slot, b: &Slot| {
        a.region == b.region && a.range().start < b.range().end && b.range().start < a.range().end
    };
    let is_before = |a: &BTreeSet<usize>, b: &BTreeSet<usize>| a.last() < b.first();
    all.iter().enumerate().all(|(at, (a, of_a))| {
        all[..at].iter().all(|(b, of_b)| !shares(a, b) || is_before(of_a, of_b) || is_before(of_b, of_a))
    })
}

/// Who caught a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checker {
    Verifier,
    /// A pass behind the faulty one.
    Panic,
    Card,
    Results,
}

fn line(name: &str, row: &[usize]) -> String {
    let [made, verifier, panic, card, results] = row else { return String::new() };
    format!("{name:<30} {made:>5} {verifier:>8} {panic:>5} {card:>5} {results:>8}\n")
}

#[derive(Default)]
struct Kills {
    made: BTreeMap<Defect, BTreeMap<Option<Checker>, usize>>,
    survivors: Vec<String>,
}

impl Kills {
    /// Injects each fault at several occasions.
    fn try_all(&mut self, name: &str, fixture: &Fixture) {
        // Passes share their work out; on one thread the occasions have one order.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let emulator = Emulator::new(Config::with_cards(fixture.cards())).unwrap();
        let cann = Cann::new(emulator.table()).unwrap();
        let (right, _) = pool.install(|| fixture.compiled()).unwrap();
        let results = std::cell::OnceCell::new();
        let of_right = || {
            let (again, compiled) = pool.install(|| fixture.compiled()).unwrap();
            assert!(right == again, "{name}: passes make other plans each time");
            fixture.results(&cann, again, compiled).unwrap()
        };
        for defect in fixture.defects().iter().copied() {
            let (_, occasions) = pool.install(|| inject(defect, usize::MAX, || fixture.compiled().is_ok()));
            // Spread over all occasions, the ends first.
            let sites: BTreeSet<usize> =
                (0..TRIED.min(occasions)).map(|at| at * (occasions - 1) / (TRIED - 1)).collect();
            let mut judged = 0;
            for site in sites {
                if judged == JUDGED {
                    break;
                }
                let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    pool.install(|| inject(defect, site, || fixture.compiled()).0)
                }));
                let checker = match made {
                    Err(_) => Some(Checker::Panic),
                    Ok(Err(_)) => Some(Checker::Verifier),
                    Ok(Ok((built, _))) if built == right => continue,
                    Ok(Ok((built, _))) if MEMORY.contains(&defect) && built.is_sound() => continue,
                    Ok(Ok((built, _)))
                        if defect == Defect::ConflictForgotten && built.keeps_order(&right) =>
                    {
                        continue;
                    }
                    Ok(Ok((built, compiled))) => match fixture.results(&cann, built, compiled) {
                        Err(_) => Some(Checker::Card),
                        Ok(found) => {
                            (!is_close(&found, results.get_or_init(of_right))).then_some(Checker::Results)
                        }
                    },
                };
                judged += 1;
                *self.made.entry(defect).or_default().entry(checker).or_default() += 1;
                if checker.is_none() {
                    self.survivors.push(format!("{name}: {defect:?} at occasion {site} of {occasions}"));
                }
            }
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<30} {:>5} {:>8} {:>5} {:>5} {:>8}\n",
            "fault", "made", "verifier", "panic", "card", "results"
        );
        let mut total = [0; 5];
        for (defect, by) in &self.made {
            let of = |checker| by.get(&Some(checker)).copied().unwrap_or(0);
            let caught = [Checker::Verifier, Checker::Panic, Checker::Card, Checker::Results].map(of);
            let row: Vec<usize> = std::iter::once(by.values().sum()).chain(caught).collect();
            total.iter_mut().zip(&row).for_each(|(total, count)| *total += count);
            text += &line(&format!("{defect:?}"), &row);
        }
        text + &line("all", &total)
    }

    fn check(self, least: usize) {
        let (table, made) = (self.table(), self.made.values().flat_map(BTreeMap::values).sum::<usize>());
        assert!(
            self.survivors.is_empty(),
            "{table}{} survive:\n{}",
            self.survivors.len(),
            self.survivors.join("\n")
        );
        assert!(made >= least, "{table}only {made} faults");
        println!("{table}");
    }
}

#[test]
fn every_fault_of_a_pass_over_a_forward_program_is_caught() {
    let mut kills = Kills::default();
    let three = Mesh::new(&[("tp", 3)]).unwrap();
    let grouped = Mesh::tensor_parallel(4, 2, 2).unwrap();
    kills.try_all("sequence over three cards", &Fixture::forward(three, Residual::Seq));
    kills.try_all("four cards", &Fixture::forward(grouped, Residual::Replicate));
    kills.try_all("layouts", &Fixture::layouts());
    kills.try_all("product and exchange", &Fixture::product_and_exchange());
    kills.check(220);
}

#[test]
fn every_fault_of_a_pass_over_a_training_program_is_caught() {
    let mut kills = Kills::default();
    let layout = Layout { data: 2, tensor: 2, zero: Zero::Gradients, residual: Residual::Seq, ..Layout::ONE };
    kills.try_all("data and tensor parallel", &Fixture::training(layout));
    kills.check(120);
}

#[test]
fn every_fault_of_a_pass_over_a_pipeline_or_a_ring_is_caught() {
    let mut kills = Kills::default();
    kills.try_all("pipeline", &Fixture::training(Layout { stages: 2, ..Layout::ONE }));
    kills.try_all(
        "ring",
        &Fixture::training(Layout { context: 2, ring: true, micro_batch: 4, ..Layout::ONE }),
    );
    kills.check(130);
}
