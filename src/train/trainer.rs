//! Steps of training on cards.
//!
//! Input → output: a model's configuration, a recipe and a layout → an engine whose weights move with each batch. Invariants:
//! weights are loaded once and stay on the cards; a step whose loss or gradients are no finite number is an error, and what
//! the cards hold after it is worth nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{DType, Diagnostic, Diagnostics};
use crate::collective::parallelize;
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{self, Engine, EngineOptions, FillError, Inputs, Outputs, Shards};
use crate::placement::{Mesh, Placed, Residual};
use crate::program::models::input;
use crate::program::{HostTensor, Role, Value, ValueId};
use crate::schedule::{Plan, schedule};

use super::checkpoint::{Checkpoint, PartBytes, ShardedTensor, Sharding};
use super::data::Batch;
use super::init::{Init, inits};
use super::layouts::{ACCUMULATED, DATA, Zero, pins};
use super::optimizer;
use super::program::{Part, Parts, name};
use super::recipe::Recipe;

/// How a run lies on cards. It changes no number but by the order of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Cards over which sequences are dealt.
    pub data: usize,
    /// Cards over which each weight is cut.
    pub tensor: usize,
    /// The residual stream.
    pub residual: Residual,
    /// What else is cut over the data-parallel cards.
    pub zero: Zero,
    /// Sequences that a data-parallel card passes at once.
    pub micro_batch: usize,
}

impl Layout {
    /// Cards in all.
    #[must_use]
    pub const fn cards(&self) -> usize {
        self.data * self.tensor
    }

    /// Sequences of a micro-batch, over all cards.
    #[must_use]
    pub const fn batch(&self) -> usize {
        self.data * self.micro_batch
    }

    /// The mesh: data parallel outermost.
    ///
    /// # Errors
    /// No cards.
    pub fn mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let problem = |error: &dyn std::fmt::Display| Diagnostic::new("mesh", error.to_string());
        let tensor = Mesh::tensor_parallel(self.tensor, config.kv_heads, config.heads_per_kv_head());
        let mesh = tensor.map_err(|error| problem(&error))?.under(&[(DATA, self.data)]);
        Ok(mesh.map_err(|error| problem(&error))?)
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its number, from 0.
    pub step: usize,
    /// The mean over the counted labels of the global batch, before the weights moved.
    pub loss: f64,
    /// The norm of all gradients, before clipping.
    pub grad_norm: f64,
    /// The rate of the update.
    pub rate: f64,
    /// Labels that counted.
    pub labels: usize,
}

/// Why training does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be; nothing was run.
    #[error("{0}")]
    Refused(#[from] Diagnostics),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] exec::Error),
    /// A loss or a norm is NaN or infinite.
    #[error("step {step}: the {what} is {value}; a lower rate, a longer warm-up or a smaller clip_norm may help")]
    NotFinite {
        /// The step.
        step: usize,
        /// `loss` or `norm of the gradients`.
        what: &'static str,
        /// NaN or an infinity.
        value: f64,
    },
}

/// A run of training.
#[derive(Debug)]
pub struct Trainer {
    engine: Engine,
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
    sharding: Sharding,
    /// The parts of a step with the number of the engine's program, in order.
    parts: Vec<(Part, usize)>,
    next: usize,
}

/// The programs of a run, compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The parts of a step, each once, with the plans of all ranks.
    pub plans: Vec<(Part, Vec<Plan>)>,
    /// Where weights and what the optimizer keeps lie.
    pub sharding: Sharding,
    /// What each weight begins as where there is no checkpoint.
    pub inits: BTreeMap<String, Init>,
}

/// Compiles the programs of a run.
///
/// # Errors
/// A recipe or a layout that cannot be, or programs that cannot be placed on the mesh.
pub fn compile(config: &ModelConfig, recipe: &Recipe, layout: &Layout) -> Result<Compiled, Diagnostics> {
    recipe.check()?;
    let mut problems = Diagnostics::new();
    let counts = [("data", layout.data), ("tensor", layout.tensor), ("micro_batch", layout.micro_batch)];
    for (what, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
        problems.push(Diagnostic::new(format!("layout: {what}"), "cannot be").expected("a number above 0").found(0));
    }
    problems.into_result(())?;
    let mesh = layout.mesh(config)?;
    let parts = Parts {
        config,
        batch: layout.batch(),
        sequence: recipe.seq,
        products: recipe.precision.dtype(),
        optimizer: recipe.optimizer,
        clip_norm: recipe.clip_norm,
        count: recipe.global_batch.div_ceil(layout.batch()),
    };
    let loss = parts.loss()?;
    let pins = pins(&loss, &mesh, layout.residual, layout.zero)?;
    let mut plans: Vec<(Part, Vec<Plan>)> = Vec::new();
    let mut tensors = Vec::new();
    for part in Part::of_step(parts.count) {
        if plans.iter().any(|(known, _)| *known == part) {
            continue;
        }
        let program = parts.program(part)?;
        let lowered = parallelize(&program, &mesh, &pins.clone().among(&program))?.lowered;
        if tensors.is_empty() {
            tensors = kept(&lowered);
        }
        plans.push((part, schedule(&lowered)?));
    }
    Ok(Compiled { plans, sharding: Sharding::new(mesh, tensors)?, inits: inits(&loss) })
}

/// Weights and states of a program, but for what only one step needs.
fn kept(lowered: &Placed) -> Vec<ShardedTensor> {
    let values = lowered.program.values.iter().filter(|(_, value)| matches!(value.role, Role::Param | Role::State));
    let tensor = |(id, value): (ValueId, &Value)| ShardedTensor {
        source: value.source.clone(),
        ..ShardedTensor::placed(&value.name, &value.shape, value.dtype, &lowered.mesh, &lowered.layouts[id])
    };
    values.filter(|(_, value)| !value.name.starts_with(ACCUMULATED)).map(tensor).collect()
}

impl Trainer {
    /// Starts on cards, with weights that `fill` gives; moments are zeros. `compiled` is what [`compile`] made of the same model,
    /// recipe and layout.
    ///
    /// # Errors
    /// What a card refuses, or `fill`.
    pub fn start(
        cann: &Arc<Cann>,
        config: &ModelConfig,
        recipe: &Recipe,
        layout: Layout,
        compiled: Compiled,
        options: &EngineOptions,
        fill: impl FnOnce(&Shards<'_>) -> Result<(), FillError>,
    ) -> Result<Self, Error> {
        let Compiled { plans, sharding, .. } = compiled;
        let kinds: Vec<Part> = plans.iter().map(|(part, _)| *part).collect();
        let mut engine = Engine::start_with(cann, plans.into_iter().map(|(_, plans)| plans).collect(), options)?;
        engine.load(fill)?;
        let count = recipe.global_batch.div_ceil(layout.batch());
        let number = |part: Part| kinds.iter().position(|kind| *kind == part).unwrap_or_default();
        let parts = Part::of_step(count).into_iter().map(|part| (part, number(part))).collect();
        Ok(Self { engine, config: config.clone(), recipe: *recipe, layout, sharding, parts, next: 0 })
    }

    /// One step.
    ///
    /// # Errors
    /// A batch of another size, or a token beyond the vocabulary; the failure of a rank; a loss or a norm that is no finite
    /// number.
    pub fn step(&mut self, batch: &Batch) -> Result<Step, Error> {
        self.check(batch)?;
        let (step, Recipe { seq, steps, .. }) = (self.next, self.recipe);
        let labels = usize::try_from(batch.counted_labels()).unwrap_or(usize::MAX);
        let rate = self.recipe.schedule.rate(step, steps);
        let mut found = Step { step, loss: 0.0, grad_norm: 0.0, rate, labels };
        for (at, (part, program)) in self.parts.clone().into_iter().enumerate() {
            let mut inputs = self.inputs(batch, at * self.layout.batch(), seq, labels);
            if matches!(part, Part::Only | Part::Last) {
                let numbers = self.recipe.optimizer.corrections(step);
                let numbers = numbers.into_iter().chain([(optimizer::input::RATE, rate)]);
                inputs.extend(numbers.map(|(name, number)| number_input(name, number)));
            }
            for (name, value) in numbers(&self.engine.run(program, inputs)?) {
                match name.as_str() {
                    name::LOSS => found.loss += value,
                    _ => found.grad_norm = value,
                }
            }
        }
        for (what, value) in [("loss", found.loss), ("norm of the gradients", found.grad_norm)] {
            if !value.is_finite() {
                return Err(Error::NotFinite { step, what, value });
            }
        }
        self.next += 1;
        Ok(found)
    }

    /// The number of the next step.
    #[must_use]
    pub const fn next_step(&self) -> usize {
        self.next
    }

    /// What a checkpoint has of this run, and which rank writes it.
    #[must_use]
    pub const fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Weights and optimizer states as the cards here hold them: those that the ranks of this process write.
    ///
    /// # Errors
    /// A card refuses.
    pub fn parts(&mut self) -> Result<Vec<PartBytes>, Error> {
        let mut found = Vec::new();
        let sharding = &self.sharding;
        self.engine.load(|shards| {
            for part in shards.weights().iter().chain(shards.states()).flatten() {
                let (rank, tensor) = (part.rank(), part.tensor().name.clone());
                if sharding.written_by(rank).any(|(written, _)| written.name == tensor) {
                    found.push(PartBytes { rank, tensor, bytes: part.read()? });
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Takes weights and optimizer states from a checkpoint of any layout; the next step is `next`.
    ///
    /// # Errors
    /// The checkpoint lacks a tensor, has it otherwise, or was altered; a card refuses.
    pub fn restore(&mut self, checkpoint: &Checkpoint, next: usize) -> Result<(), Error> {
        self.engine.load(|shards| {
            for part in shards.weights().iter().chain(shards.states()).flatten() {
                let tensor = part.tensor();
                if !tensor.name.starts_with(ACCUMULATED) {
                    part.write(0, &checkpoint.read(&tensor.name, &tensor.shape, tensor.dtype, &tensor.ranges)?)?;
                }
            }
            Ok(())
        })?;
        self.next = next;
        Ok(())
    }

    fn check(&self, batch: &Batch) -> Result<(), Diagnostics> {
        let Recipe { seq, global_batch, .. } = self.recipe;
        let mut problems = Diagnostics::new();
        let place = |what: &str| format!("step {}: {what}", self.next);
        let labels = global_batch * seq;
        let sizes = [
            ("tokens", batch.tokens.len(), labels + global_batch),
            ("ignored labels", batch.ignore.len(), labels),
            ("positions", batch.positions.len(), labels),
            ("documents", batch.documents.len(), labels),
        ];
        for (what, found, expected) in sizes.into_iter().filter(|(_, found, expected)| found != expected) {
            problems.push(Diagnostic::new(place(what), "are too few or too many").expected(expected).found(found));
        }
        let vocabulary = 0..i64::try_from(self.config.vocab_size).unwrap_or(i64::MAX);
        if let Some(at) = batch.tokens.iter().position(|token| !vocabulary.contains(&i64::from(*token))) {
            let place = place(&format!("sequence {}, token {}", at / (seq + 1), at % (seq + 1)));
            let problem = Diagnostic::new(place, "is not of the vocabulary");
            problems.push(problem.expected(format!("0 to {}", vocabulary.end - 1)).found(batch.tokens[at]));
        }
        if batch.counted_labels() == 0 {
            problems.push(Diagnostic::new(place("labels"), "none of the global batch counts"));
        }
        problems.into_result(())
    }

    /// What a micro-batch that begins with sequence `first` is given. Sequences that the global batch does not have are
    /// zeros whose labels count nothing.
    fn inputs(&self, batch: &Batch, first: usize, s: usize, labels: usize) -> Inputs {
        let (config, b) = (&self.config, self.layout.batch());
        let row = |at: usize| (first + at < self.recipe.global_batch).then_some(first + at);
        let tokens = |at: usize, shift: usize| match row(at) {
            Some(row) => batch.tokens[row * (s + 1) + shift..][..s].iter().map(|id| i64::from(*id)).collect(),
            None => vec![0; s],
        };
        let share = (labels as f64).recip() as f32;
        let weight = |ignored: &u8| if *ignored == 0 { share } else { 0.0 };
        let weights = |at: usize| match row(at) {
            Some(row) => batch.ignore[row * s..][..s].iter().map(weight).collect(),
            None => vec![0.0; s],
        };
        let position = |at: &i32| usize::try_from(*at).unwrap_or_default();
        let in_order = |at: usize| match row(at) {
            Some(row) => batch.positions[row * s..][..s].iter().map(position).collect(),
            None => (0..s).collect::<Vec<usize>>(),
        };
        let positions: Vec<usize> = (0..b).flat_map(in_order).collect();
        let (cos, sin) = config.rope.cos_sin(config.head_dim, &positions, s);
        // A token sees itself and those before it of the same document.
        let document = |at: usize, token: usize| row(at).map(|row| batch.documents[row * s + token]);
        let is_hidden = |at: usize, token: usize, key: usize| key > token || document(at, token) != document(at, key);
        let cells = (0..b).flat_map(|at| (0..s).flat_map(move |token| (0..s).map(move |key| (at, token, key))));
        let hidden = cells.map(|(at, token, key)| i64::from(is_hidden(at, token, key))).collect();
        let dtype = self.recipe.precision.dtype();
        let rotary = [b, s, config.head_dim];
        let ids = |shift: usize| HostTensor::int([b, s], DType::I64, (0..b).flat_map(|at| tokens(at, shift)).collect());
        let mut tensors = vec![
            (input::IDS, ids(0)),
            (input::LABELS, ids(1)),
            (input::LABEL_WEIGHTS, HostTensor::float([b, s], DType::F32, (0..b).flat_map(weights).collect())),
            (input::MASK, HostTensor::int([b, s, s], DType::Bool, hidden)),
            (input::COS, HostTensor::float(rotary, dtype, cos)),
            (input::SIN, HostTensor::float(rotary, dtype, sin)),
        ];
        if let Some(logn) = &config.logn {
            tensors.push((input::LOGN, HostTensor::float([b, s, 1, 1, 1], dtype, logn.scale(&positions))));
        }
        let bytes = tensors.into_iter().map(|(name, tensor)| (name.to_owned(), Arc::new(tensor.to_bytes())));
        bytes.chain([number_input(name::LOSS_SCALE, 1.0)]).collect()
    }
}

fn number_input(name: &str, number: f64) -> (String, Arc<Vec<u8>>) {
    (name.to_owned(), Arc::new((number as f32).to_le_bytes().to_vec()))
}

/// The numbers among a run's outputs.
fn numbers(outputs: &Outputs) -> Vec<(String, f64)> {
    let number = |bytes: &Vec<u8>| bytes.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    outputs.iter().filter_map(|(name, bytes)| Some((name.clone(), number(bytes)?))).collect()
}
