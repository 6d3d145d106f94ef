//! Programs of a training step: one per micro-batch, and an update program if the loss is scaled.
//!
//! The first micro-batch stores its gradients in states, later ones add theirs, and the last one
//! updates the weights. Partial gradients are therefore reduced once per step, during the last
//! backward pass. A scaled loss needs a separate update, after the gradients were found to be
//! finite.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::base::{DType, Diagnostic, Diagnostics, Id};
use crate::config::{Lora, ModelConfig};
use crate::program::compress::Compression;
use crate::program::grad::{Segment, gradients_with};
use crate::program::models::{COPY, Loss, RouterLosses, give, loss, show, trained};
use crate::program::tree::SumOrder;
use crate::program::{Builder, Kind, Op, OpId, Operand, Program, Role, Value, ValueId};
use crate::schedule::OpPhase;
use crate::schedule::parts::{Cut, PartMarks};

use super::choices::Routing;
use super::layouts::{GRADIENT, KEPT_BACK, MICRO, PARTS, SCALED, SENT, WITH_COPY, accumulated};
use super::optimizer::{Optimizer, SummedMoment, TrainedParams, matrices, squares};

/// Names of outputs and of inputs outside the model.
pub mod name {
    /// Output `[]` f32: the loss of the micro-batch.
    pub const LOSS: &str = "loss";
    /// Output `[]` f32 at the end of a step: the norm before clipping. Compressed params contribute
    /// their first moments.
    pub(in crate::train) const NORM: &str = "norm";
    /// Output `[m,e]` f32 of a model with experts:
    /// [`RouterSums::tokens`](crate::program::models::RouterSums::tokens).
    pub(in crate::train) const ROUTER_TOKENS: &str = "router_tokens";
    /// Output `[]` f32: [`RouterSums::balance`](crate::program::models::RouterSums::balance).
    pub(in crate::train) const ROUTER_BALANCE: &str = "router_balance";
    /// Output `[]` f32: [`RouterSums::squares`](crate::program::models::RouterSums::squares).
    pub(in crate::train) const ROUTER_SQUARES: &str = "router_squares";
    /// Input `[]` f32: the cotangent of the loss.
    pub const LOSS_SCALE: &str = "loss_scale";
    /// Input `[]` f32: the cotangent of [`ROUTER_BALANCE`].
    pub(in crate::train) const BALANCE_SCALE: &str = "balance_scale";
    /// Input `[]` f32: the cotangent of [`ROUTER_SQUARES`].
    pub(in crate::train) const SQUARES_SCALE: &str = "squares_scale";
    /// Input `[]` f32 of [`super::StepPart::Update`] and [`super::StepPart::Compressed`]: the
    /// factor of the gradients.
    pub const FACTOR: &str = "factor";
}

/// Role of a program within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepPart {
    /// The only micro-batch.
    Only,
    /// First of several micro-batches. With tree sums, also inner micro-batches that complete no
    /// subtree.
    First,
    /// Inner micro-batch, without tree sums.
    Middle,
    /// The last of several micro-batches.
    Last,
    /// Inner micro-batch that completes subtrees, with tree sums. Each subtree is twice as large as
    /// the one before.
    Join {
        /// Number of completed subtrees.
        levels: usize,
    },
    /// Last micro-batch, if gradients are compressed.
    Compressed,
    /// Weight update from stored gradients.
    Update,
}

impl StepPart {
    /// Returns the parts of a step of `count` micro-batches, in order. A scaled loss adds an
    /// update.
    #[must_use]
    pub fn of_step(count: usize, is_scaled: bool, order: SumOrder) -> Vec<Self> {
        let in_order = |at: usize| match order {
            SumOrder::AsTheyCome => Self::Middle,
            SumOrder::Tree => match at.trailing_ones() as usize {
                0 => Self::First,
                levels => Self::Join { levels },
            },
        };
        let mut parts = match count {
            0 | 1 => vec![Self::Only],
            _ => {
                let between = (1..count - 1).map(in_order);
                std::iter::once(Self::First).chain(between).chain([Self::Last]).collect()
            }
        };
        parts.extend(is_scaled.then_some(Self::Update));
        parts
    }

    /// Returns whether the part processes the last micro-batch.
    #[must_use]
    pub const fn ends_step(self) -> bool {
        matches!(self, Self::Only | Self::Last | Self::Compressed)
    }

    /// Returns the parts of a step with compressed gradients.
    #[must_use]
    pub fn compressed(mut parts: Vec<Self>) -> Vec<Self> {
        if let Some(last) = parts.last_mut() {
            *last = Self::Compressed;
        }
        parts
    }
}

/// Activations that the backward pass recomputes. On one card, this changes no bit of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Recompute {
    /// Nothing: values that gradients need are stored.
    #[default]
    None,
    /// Everything except products and attention, including casts of weights.
    Selective,
    /// Whole layers: only the residual stream is stored.
    Full,
    /// The first layers, as with `Full`.
    Layers(usize),
}

impl Recompute {
    fn segments(self, layers: &[Range<usize>]) -> Vec<Segment> {
        let (count, is_again): (usize, fn(&Kind) -> bool) = match self {
            Self::None => return Vec::new(),
            Self::Selective => (layers.len(), |kind| {
                !matches!(
                    kind,
                    Kind::MatMul { .. }
                        | Kind::TreeMatMul { .. }
                        | Kind::Attention { .. }
                        | Kind::RingAttention { .. }
                        | Kind::CappedAttention { .. }
                        | Kind::SinkAttention { .. }
                )
            }),
            Self::Full => (layers.len(), |_| true),
            Self::Layers(count) => (count, |_| true),
        };
        layers.iter().take(count).map(|ops| Segment { ops: ops.clone(), is_again }).collect()
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Selective => f.write_str("selective"),
            Self::Full => f.write_str("full"),
            Self::Layers(count) => count.fmt(f),
        }
    }
}

impl FromStr for Recompute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "selective" => Ok(Self::Selective),
            "full" => Ok(Self::Full),
            layers => {
                let problem =
                    |_| format!("`{layers}` is none of none, selective, full and a number of layers");
                layers.parse().map(Self::Layers).map_err(problem)
            }
        }
    }
}

/// Settings that the programs of one run share.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// Configuration of the model.
    pub config: &'a ModelConfig,
    /// Sequences of a micro-batch, over all cards.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Element type of products and attention.
    pub products: DType,
    /// Update rule of the weights.
    pub optimizer: Optimizer,
    /// Largest gradient norm. 0 disables clipping.
    pub clip_norm: f64,
    /// Adapters, if only they are trained.
    pub lora: Option<&'a Lora>,
    /// Losses of routers that are added to the loss.
    pub routers: RouterLosses,
    /// Micro-batches of a step.
    pub count: usize,
    /// Activations that the backward pass recomputes.
    pub recompute: Recompute,
    /// True if gradients are added to earlier ones as soon as they exist, because they need no
    /// earlier communication. Otherwise the additions follow the backward pass.
    pub adds_early: bool,
    /// Layers by model part. With several parts, a tied head is a copy of the embedding.
    pub cut: Cut,
    /// Compression of gradients, and the updates before it begins.
    pub compress: Option<(Compression, usize)>,
    /// True if attention uses a ring.
    pub ring: bool,
    /// Order of sums over cards and micro-batches. Tree sums make a tied head a copy of the
    /// embedding.
    pub order: SumOrder,
    /// Who chooses the experts of each token.
    pub routing: Routing,
}

/// States by param. Only `accumulated` includes copies.
struct ParamStates {
    optimizer: Vec<Vec<Operand>>,
    /// Sums over micro-batches, by level of the tree.
    accumulated: Vec<Vec<Operand>>,
    /// Gradients of a scaled loss.
    scaled: Vec<Operand>,
    /// Compression errors of matrices.
    kept_back: Vec<Option<Operand>>,
}

/// Program with the model part and the phase of each op.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) program: Program,
    pub(super) marks: PartMarks,
}

pub(super) fn is_copy(name: &str) -> bool {
    name.starts_with(COPY)
}

fn name_of(build: &Builder, param: Operand) -> String {
    build.program().values[param.id()].name.clone()
}

fn original(build: &Builder, copy: Operand, params: &[Operand]) -> Option<usize> {
    let name = name_of(build, copy);
    params.iter().position(|param| name.strip_prefix(COPY) == Some(name_of(build, *param).as_str()))
}

impl Parts<'_> {
    /// Returns the program of the loss, without gradients.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn loss(&self) -> Result<Program, Diagnostics> {
        Ok(self.marked_loss()?.program)
    }

    pub(super) fn marked_loss(&self) -> Result<Marked, Diagnostics> {
        let mut build = self.builder("loss".to_owned());
        let found = self.write_loss(&mut build);
        let marks =
            PartMarks::of_forward(build.program(), &found.layers, build.program().ops.len(), &self.cut);
        write_outputs(&mut build, &found);
        Ok(Marked { program: build.finish()?, marks })
    }

    fn builder(&self, name: String) -> Builder {
        Builder::new(name).in_order(self.order).going_around(self.ring)
    }

    /// Returns whether a tied head is a copy of the embedding, with a separate gradient sum.
    fn copies_table(&self) -> bool {
        self.cut.parts > 1 || self.order == SumOrder::Tree
    }

    /// Returns the number of sums that are stored at once.
    pub(super) fn levels(&self) -> usize {
        match self.order {
            SumOrder::Tree => (usize::BITS - self.count.saturating_sub(1).leading_zeros()) as usize,
            SumOrder::AsTheyCome => usize::from(self.count > 1),
        }
    }

    /// Returns the levels of the sums that a part adds to its gradients, and the level that stores
    /// the result.
    fn sums(&self, part: StepPart) -> (Vec<usize>, Option<usize>) {
        match part {
            StepPart::Compressed if self.count == 1 => (Vec::new(), None),
            StepPart::Only | StepPart::Update => (Vec::new(), None),
            StepPart::First => (Vec::new(), Some(0)),
            StepPart::Middle => (vec![0], Some(0)),
            StepPart::Join { levels } => ((0..levels).collect(), Some(levels)),
            // Missing micro-batches count as zeros.
            StepPart::Last if self.order == SumOrder::Tree => {
                ((0..self.levels()).filter(|level| (self.count - 1) >> level & 1 == 1).collect(), None)
            }
            StepPart::Last | StepPart::Compressed => (vec![0], None),
        }
    }

    fn write_loss(&self, build: &mut Builder) -> Loss {
        let Self { config, batch, sequence, products, lora, routers, .. } = *self;
        let found = loss(build, config, [batch, sequence], products, lora, self.copies_table(), routers);
        if self.routing != Routing::Routers {
            show(build.program_mut());
        }
        if self.routing == Routing::Given {
            give(build.program_mut());
        }
        found
    }

    /// Returns whether the loss is scaled.
    #[must_use]
    pub fn is_scaled(&self) -> bool {
        self.products == DType::F16
    }

    /// Declares the states, which all programs of a run have.
    fn states(&self, build: &mut Builder, params: &[Operand]) -> ParamStates {
        let own: Vec<Operand> =
            params.iter().copied().filter(|param| !is_copy(&name_of(build, *param))).collect();
        let mut all = |name: &dyn Fn(&str) -> String, params: &[Operand]| {
            let state = |param: &Operand| {
                let value = build.program().values[param.id()].clone();
                build.state(&name(&value.name), value.shape, value.dtype)
            };
            params.iter().map(state).collect::<Vec<Operand>>()
        };
        let accumulated =
            (0..self.levels()).map(|level| all(&|name| accumulated(level, name), params)).collect();
        let scaled = if self.is_scaled() { all(&|name| format!("{SCALED}{name}"), &own) } else { Vec::new() };
        let compressed = if self.compress.is_some() { matrices(build.program()) } else { BTreeSet::new() };
        let kept_back = |param: &Operand| {
            let value = build.program().values[param.id()].clone();
            let is_compressed = compressed.contains(&param.id());
            is_compressed.then(|| build.state(&format!("{KEPT_BACK}{}", value.name), value.shape, DType::F32))
        };
        let kept_back = own.iter().map(kept_back).collect();
        ParamStates { optimizer: self.optimizer.declare(build, &own), accumulated, scaled, kept_back }
    }

    fn update(&self) -> Result<Marked, Diagnostics> {
        let Marked { program: loss, marks } = self.marked_loss()?;
        let mut build = Builder::new("train Update");
        let matrices = matrices(&loss);
        let trained_ids: BTreeSet<ValueId> = trained(&loss).into_iter().collect();
        let param = |build: &mut Builder, value: &Value| match &value.source {
            Some(source) => build.param_from(&value.name, value.shape.clone(), value.dtype, source.clone()),
            None => build.param(&value.name, value.shape.clone(), value.dtype),
        };
        // All programs of a run hold the same weights, also frozen ones.
        let held = loss.with_role(Role::Param).map(|id| (id, param(&mut build, &loss.values[id])));
        let held: Vec<(ValueId, Operand)> = held.collect();
        let matrices = held.iter().filter(|(id, _)| matrices.contains(id)).map(|(_, param)| param.id());
        let matrices: BTreeSet<ValueId> = matrices.collect();
        let of_step = held.into_iter().filter(|(id, _)| trained_ids.contains(id));
        let params: Vec<Operand> = of_step.map(|(_, param)| param).collect();
        let states = self.states(&mut build, &params);
        let factor = build.input(name::FACTOR, [], DType::F32);
        let is_matrix = |param| matrices.contains(&param);
        let (copies, own): (Vec<Operand>, Vec<Operand>) =
            params.into_iter().partition(|param| is_copy(&name_of(&build, *param)));
        let trained =
            TrainedParams { params: &own, gradients: &states.scaled, states: &states.optimizer, summed: &[] };
        let moved = self.optimizer.apply(&mut build, &trained, factor, &is_matrix);
        keep_alike(&mut build, &own, &moved, &copies);
        let mut marks = PartMarks::of_params(build.program(), &marks.homes(&loss));
        marks.behind(build.program(), 0..build.program().ops.len(), OpPhase::Update);
        Ok(Marked { program: build.finish()?, marks })
    }

    /// Returns the program of a step part.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn program(&self, part: StepPart) -> Result<Program, Diagnostics> {
        Ok(self.marked(part)?.program)
    }

    pub(super) fn marked(&self, part: StepPart) -> Result<Marked, Diagnostics> {
        if part == StepPart::Update {
            return self.update();
        }
        let mut build = self.builder(format!("train {part:?} b={} s={}", self.batch, self.sequence));
        let model_loss = self.write_loss(&mut build);
        let forward = build.program().ops.len();
        let mut marks = PartMarks::of_forward(build.program(), &model_loss.layers, forward, &self.cut);
        let scale = build.input(name::LOSS_SCALE, [], DType::F32);
        let mut seeds = vec![(model_loss.loss, scale)];
        if let Some(sums) = model_loss.routers {
            for (sum, name) in [(sums.balance, name::BALANCE_SCALE), (sums.squares, name::SQUARES_SCALE)] {
                seeds.extend(sum.map(|sum| (sum, build.input(name, [], DType::F32))));
            }
        }
        let params = &model_loss.params;
        if params.is_empty() {
            build.problem(Diagnostic::new("model", "has no weight to train"));
        }
        let states = self.states(&mut build, params);
        let segments = self.recompute.segments(&model_loss.layers);
        let written = gradients_with(&mut build, &seeds, params, &segments);
        marks.adjoints(build.program(), forward, &written.adjoint_of);
        write_outputs(&mut build, &model_loss);
        let behind = build.program().ops.len();
        let whole = self.accumulate(&mut build, part, params, written.gradients, &states.accumulated);
        let sums = behind..build.program().ops.len();
        marks.behind(build.program(), sums.clone(), OpPhase::WeightGrad);
        if part.ends_step() {
            self.finish_step(&mut build, part, params, whole, &states);
        }
        marks.behind(build.program(), sums.end..build.program().ops.len(), OpPhase::Update);
        let program = build.finish()?;
        Ok(Marked { program: if self.adds_early { early(program, sums) } else { program }, marks })
    }

    /// Updates the weights, or stores whole gradients of a scaled loss.
    fn finish_step(
        &self,
        build: &mut Builder,
        part: StepPart,
        params: &[Operand],
        whole: Vec<Operand>,
        states: &ParamStates,
    ) {
        let pairs = params.iter().copied().zip(whole);
        let (copies, own): (Vec<_>, Vec<_>) = pairs.partition(|(param, _)| is_copy(&name_of(build, *param)));
        let (mut own, mut whole): (Vec<Operand>, Vec<Operand>) = own.into_iter().unzip();
        for (copy, gradient) in &copies {
            if let Some(at) = original(build, *copy, &own) {
                let sum = build.add(whole[at], *gradient);
                whole[at] = match part {
                    StepPart::Compressed => sum,
                    _ => build.name(sum, format!("{WITH_COPY}{}", name_of(build, own[at]))),
                };
            }
        }
        let (mut optimizer, mut scaled) = (states.optimizer.clone(), states.scaled.clone());
        let mut summed = match (part, self.compress) {
            (StepPart::Compressed, Some((by, updates))) => {
                self.compress(build, by, updates, &own, &mut whole, states)
            }
            _ => Vec::new(),
        };
        if self.copies_table() {
            // The last model part has its gradients first, so the sum of squares passes each part
            // once.
            [&mut own, &mut whole, &mut scaled].into_iter().for_each(|all| all.reverse());
            optimizer.reverse();
            summed.reverse();
        }
        if self.is_scaled() {
            if let Some(squares) = squares(build, &whole) {
                let [norm] = build.several(Kind::ClipFactor { largest: 0.0 }, &[squares]);
                build.output(name::NORM, norm);
            }
            for (state, gradient) in scaled.iter().zip(whole) {
                build.op(Kind::Assign, &[*state, gradient]);
            }
            return;
        }
        let trained = TrainedParams { params: &own, gradients: &whole, states: &optimizer, summed: &summed };
        if let Some((norm, moved)) = self.optimizer.update_summed(build, &trained, self.clip_norm) {
            build.output(name::NORM, norm);
            let copies: Vec<Operand> = copies.into_iter().map(|(copy, _)| copy).collect();
            keep_alike(build, &own, &moved, &copies);
        }
    }

    /// Replaces gradients in `whole` by first moments from compressed sums, and returns their
    /// marks.
    fn compress(
        &self,
        build: &mut Builder,
        by: Compression,
        updates: usize,
        params: &[Operand],
        whole: &mut [Operand],
        states: &ParamStates,
    ) -> Vec<Option<SummedMoment>> {
        let mut summed = Vec::with_capacity(params.len());
        let (old, new) = self.optimizer.shares();
        let factor = build.input(name::FACTOR, [], DType::F32);
        whole.iter_mut().for_each(|gradient| *gradient = build.mul(*gradient, factor));
        for (index, param) in params.iter().enumerate() {
            let Some(kept_back) = states.kept_back[index] else {
                summed.push(None);
                continue;
            };
            let name = name_of(build, *param);
            let moment = states.optimizer[index][0];
            let scale = self.optimizer.scale(build, &states.optimizer[index], updates);
            let [known, sent] =
                [(old, moment, "known."), (new, whole[index], SENT)].map(|(share, of, prefix)| {
                    let part = build.op(Kind::Scale { by: share }, &[of]);
                    let part = scale.map_or(part, |[_, inverse]| build.mul(part, inverse));
                    build.name(part, format!("{prefix}{name}"))
                });
            let kind = Kind::CompressedSum { axes: Vec::new(), by };
            let [_, sum] = build.several(kind, &[sent, kept_back, known]);
            whole[index] = scale.map_or(sum, |[scale, _]| build.mul(sum, scale));
            summed.push(Some(SummedMoment { inverse: scale.map(|[_, inverse]| inverse) }));
        }
        summed
    }

    /// Adds gradients to earlier ones. Returns whole gradients for the last micro-batch.
    fn accumulate(
        &self,
        build: &mut Builder,
        part: StepPart,
        params: &[Operand],
        gradients: Vec<Option<Operand>>,
        accumulated: &[Vec<Operand>],
    ) -> Vec<Operand> {
        let (added, left) = self.sums(part);
        let compressed =
            if part == StepPart::Compressed { matrices(build.program()) } else { BTreeSet::new() };
        let mut whole = Vec::with_capacity(params.len());
        for (index, gradient) in gradients.into_iter().enumerate() {
            let name = name_of(build, params[index]);
            let Some(mut gradient) = gradient else {
                build.problem(Diagnostic::new(name, "the loss does not depend on it, so it has no gradient"));
                continue;
            };
            let is_sum = |op: &&Op| op.kind == Kind::Add && op.result() == gradient.id();
            if self.order == SumOrder::Tree && build.program().ops.values().iter().rev().any(|op| is_sum(&op))
            {
                let problem =
                    Diagnostic::new(&*name, "has two uses, and each micro-batch adds their gradients");
                build.problem(
                    problem.expected("one use of a weight in an exact run").help("leave --exact out"),
                );
            }
            if left.is_some() || !added.is_empty() {
                build.name(gradient, format!("{MICRO}{name}"));
            }
            for level in &added {
                gradient = build.add(accumulated[*level][index], gradient);
            }
            match left {
                Some(level) => drop(build.op(Kind::Assign, &[accumulated[level][index], gradient])),
                None => {
                    let stands_before =
                        if compressed.contains(&params[index].id()) { PARTS } else { GRADIENT };
                    build.name(gradient, format!("{stands_before}{name}"));
                    whole.push(gradient);
                }
            }
        }
        whole
    }
}

fn write_outputs(build: &mut Builder, loss: &Loss) {
    build.output(name::LOSS, loss.loss);
    let Some(sums) = loss.routers else { return };
    build.output(name::ROUTER_TOKENS, sums.tokens);
    for (name, sum) in [(name::ROUTER_BALANCE, sums.balance), (name::ROUTER_SQUARES, sums.squares)] {
        if let Some(sum) = sum {
            build.output(name, sum);
        }
    }
}

fn keep_alike(build: &mut Builder, params: &[Operand], moved: &[Operand], copies: &[Operand]) {
    for copy in copies {
        if let Some(at) = original(build, *copy, params) {
            build.op(Kind::Assign, &[*copy, moved[at]]);
        }
    }
}

/// Moves the ops of `moved` up to where their operands are ready.
fn early(program: Program, moved: Range<usize>) -> Program {
    // Op that makes each value.
    let mut there: Vec<Option<OpId>> = vec![None; program.values.len()];
    let mut behind: BTreeMap<Option<OpId>, Vec<Op>> = BTreeMap::new();
    for (id, op) in program.ops.iter().take(moved.end) {
        let own = if moved.contains(&id.index()) {
            let ready = op.operands.iter().map(|operand| there[operand.index()]).max().flatten();
            behind.entry(ready).or_default().push(op.clone());
            ready
        } else {
            Some(id)
        };
        op.results.iter().for_each(|result| there[result.index()] = own);
    }
    let mut ops: Vec<Op> = behind.remove(&None).unwrap_or_default();
    for (id, op) in program.ops.iter().filter(|(id, _)| !moved.contains(&id.index())) {
        ops.push(op.clone());
        ops.extend(behind.remove(&Some(id)).unwrap_or_default());
    }
    Program { ops: ops.into_iter().collect(), ..program }
}
