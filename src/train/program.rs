//! The programs of a step: its micro-batches, the last of which moves the weights.
//!
//! A step of one micro-batch is one program; else the first leaves its gradients in states, further
//! ones add theirs, and the last adds its own, so that what cards hold in parts is reduced once a
//! step, while the last micro-batch goes back. Where the loss is scaled, the last leaves whole
//! gradients in states, and a program of its own moves the weights once they are known to be
//! finite.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::base::{DType, Diagnostic, Diagnostics, Id};
use crate::config::{Lora, ModelConfig};
use crate::program::compress::Compression;
use crate::program::grad::{Segment, gradients_with};
use crate::program::models::{COPY, Loss, loss, trained};
use crate::program::tree::SumOrder;
use crate::program::{Builder, Kind, Op, OpId, Operand, Program, Value, ValueId};
use crate::schedule::OpPhase;
use crate::schedule::parts::{Cut, PartMarks};

use super::layouts::{GRADIENT, KEPT_BACK, MICRO, PARTS, SCALED, SENT, WITH_COPY, accumulated};
use super::optimizer::{Optimizer, SummedMoment, matrices, squares};

/// Names of outputs and of inputs that are not the model's.
pub mod name {
    /// Output `[]` f32: what the labels of the micro-batch add to the loss.
    pub const LOSS: &str = "loss";
    /// Output `[]` f32: the norm of all gradients before clipping; of the last micro-batch alone.
    /// Of [`super::StepPart::Compressed`] the norm of the first moments of what is compressed, and
    /// of the gradients of the others.
    pub(super) const NORM: &str = "norm";
    /// Input `[]` f32: the cotangent of the loss.
    pub const LOSS_SCALE: &str = "loss_scale";
    /// Input `[]` f32 of [`super::StepPart::Update`] and [`super::StepPart::Compressed`]: what
    /// gradients are multiplied by.
    pub const FACTOR: &str = "factor";
}

/// Which micro-batch of a step a program is for, or what it does behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepPart {
    /// The only one.
    Only,
    /// The first of several; where sums are trees, each that ends no subtree.
    First,
    /// One between the first and the last, where sums are no trees.
    Middle,
    /// The last of several.
    Last,
    /// One between, where sums are trees: it ends so many subtrees, each of twice as many
    /// micro-batches as the one before.
    Join {
        /// How many subtrees it ends, at least one.
        levels: usize,
    },
    /// In the place of [`StepPart::Only`] or [`StepPart::Last`] once gradients are compressed.
    Compressed,
    /// Moves the weights by gradients that were left in states.
    Update,
}

impl StepPart {
    /// The parts of a step of `count` micro-batches, in order; weights move in the last of them
    /// unless the loss `is_scaled`.
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

    /// Whether it is for the last micro-batch.
    #[must_use]
    pub const fn ends_step(self) -> bool {
        matches!(self, Self::Only | Self::Last | Self::Compressed)
    }

    /// The parts of a step whose gradients are compressed, of those of one whose are not.
    #[must_use]
    pub fn compressed(mut parts: Vec<Self>) -> Vec<Self> {
        if let Some(last) = parts.last_mut() {
            *last = Self::Compressed;
        }
        parts
    }
}

/// What is computed again for the gradients rather than kept until then. On one card it changes no
/// bit of any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Recompute {
    /// Nothing: all that the gradients need is kept.
    #[default]
    None,
    /// All but products and attention: norms, rotations, activations and casts, of weights too.
    Selective,
    /// Whole layers: what is kept is the residual stream between them.
    Full,
    /// As `Full`, of so many layers, the first ones.
    Layers(usize),
}

impl Recompute {
    /// The segments of a model whose layers are these ops.
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

/// What the programs of one run have in common.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// Sizes and kinds of the layers of the model.
    pub config: &'a ModelConfig,
    /// Sequences of a micro-batch, over all cards.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Element type of products and attention.
    pub products: DType,
    /// How weights move.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients; 0: none.
    pub clip_norm: f64,
    /// Adapters, which alone are trained.
    pub lora: Option<&'a Lora>,
    /// Micro-batches of a step.
    pub count: usize,
    /// What is computed again.
    pub recompute: Recompute,
    /// Whether a gradient is added to those of earlier micro-batches as soon as it is made: where
    /// it is not exchanged before, so that adding it waits for nobody. Else that is done behind the
    /// last one.
    pub adds_early: bool,
    /// Layers by part of the model. With several a tied head is a copy of the embedding.
    pub cut: Cut,
    /// How gradients are compressed, and behind how many updates.
    pub compress: Option<(Compression, usize)>,
    /// Whether keys and values of attention go from card to card.
    pub ring: bool,
    /// In which order sums are added that cards or micro-batches hold parts of. As trees, a tied
    /// head is a copy of the embedding.
    pub order: SumOrder,
}

/// What is kept between programs, by param.
struct States {
    /// Of params that are no copies.
    optimizer: Vec<Vec<Operand>>,
    /// Of several micro-batches: by level of the tree, if there is one.
    accumulated: Vec<Vec<Operand>>,
    /// Of a scaled loss, for params that are no copies.
    scaled: Vec<Operand>,
    /// Of compressed gradients, for params that are no copies: of matrices alone.
    kept_back: Vec<Option<Operand>>,
}

/// A program, and where its values are made.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) program: Program,
    pub(super) marks: PartMarks,
}

/// Whether a param is the copy of another.
pub(super) fn is_copy(name: &str) -> bool {
    name.starts_with(COPY)
}

fn name_of(build: &Builder, param: Operand) -> String {
    build.program().values[param.id()].name.clone()
}

/// Which of `params` a copy is of.
fn original(build: &Builder, copy: Operand, params: &[Operand]) -> Option<usize> {
    let name = name_of(build, copy);
    params.iter().position(|param| name.strip_prefix(COPY) == Some(name_of(build, *param).as_str()))
}

impl Parts<'_> {
    /// The loss alone.
    ///
    /// # Errors
    /// What `verify` finds.
    pub fn loss(&self) -> Result<Program, Diagnostics> {
        Ok(self.marked_loss()?.program)
    }

    /// As [`Parts::loss`], with where its values are made.
    pub(super) fn marked_loss(&self) -> Result<Marked, Diagnostics> {
        let mut build = self.builder("loss".to_owned());
        let found = self.write_loss(&mut build);
        let marks =
            PartMarks::of_forward(build.program(), &found.layers, build.program().ops.len(), &self.cut);
        build.output(name::LOSS, found.loss);
        Ok(Marked { program: build.finish()?, marks })
    }

    fn builder(&self, name: String) -> Builder {
        Builder::new(name).in_order(self.order).going_around(self.ring)
    }

    /// Whether a tied head is a copy of the embedding, whose gradients are summed each by itself.
    fn copies_table(&self) -> bool {
        self.cut.parts > 1 || self.order == SumOrder::Tree
    }

    /// How many sums of earlier micro-batches are kept at once.
    pub(super) fn levels(&self) -> usize {
        match self.order {
            SumOrder::Tree => (usize::BITS - self.count.saturating_sub(1).leading_zeros()) as usize,
            SumOrder::AsTheyCome => usize::from(self.count > 1),
        }
    }

    /// The sums of earlier micro-batches to which a part adds its gradients, and the one that it
    /// leaves.
    fn sums(&self, part: StepPart) -> (Vec<usize>, Option<usize>) {
        match part {
            StepPart::Compressed if self.count == 1 => (Vec::new(), None),
            StepPart::Only | StepPart::Update => (Vec::new(), None),
            StepPart::First => (Vec::new(), Some(0)),
            StepPart::Middle => (vec![0], Some(0)),
            StepPart::Join { levels } => ((0..levels).collect(), Some(levels)),
            // What would fill the last subtree up is zeros.
            StepPart::Last if self.order == SumOrder::Tree => {
                ((0..self.levels()).filter(|level| (self.count - 1) >> level & 1 == 1).collect(), None)
            }
            StepPart::Last | StepPart::Compressed => (vec![0], None),
        }
    }

    fn write_loss(&self, build: &mut Builder) -> Loss {
        let Self { config, batch, sequence, products, lora, .. } = *self;
        loss(build, config, batch, sequence, products, lora, self.copies_table())
    }

    /// Whether gradients are of a scaled loss.
    #[must_use]
    pub fn is_scaled(&self) -> bool {
        self.products == DType::F16
    }

    /// The states of a run, which all of its programs have.
    fn states(&self, build: &mut Builder, params: &[Operand]) -> States {
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
        States { optimizer: self.optimizer.declare(build, &own), accumulated, scaled, kept_back }
    }

    /// The program of [`StepPart::Update`].
    fn update(&self) -> Result<Marked, Diagnostics> {
        let Marked { program: loss, marks } = self.marked_loss()?;
        let mut build = Builder::new("train Update");
        let matrices = matrices(&loss);
        let of_loss: Vec<(bool, &Value)> =
            trained(&loss).into_iter().map(|id| (matrices.contains(&id), &loss.values[id])).collect();
        let param = |build: &mut Builder, value: &Value| match &value.source {
            Some(source) => build.param_from(&value.name, value.shape.clone(), value.dtype, source.clone()),
            None => build.param(&value.name, value.shape.clone(), value.dtype),
        };
        let params: Vec<Operand> = of_loss.iter().map(|(_, value)| param(&mut build, value)).collect();
        let matrices =
            params.iter().zip(&of_loss).filter(|(_, (is_matrix, _))| *is_matrix).map(|(param, _)| param.id());
        let matrices: BTreeSet<ValueId> = matrices.collect();
        let states = self.states(&mut build, &params);
        let factor = build.input(name::FACTOR, [], DType::F32);
        let is_matrix = |param| matrices.contains(&param);
        let (copies, own): (Vec<Operand>, Vec<Operand>) =
            params.into_iter().partition(|param| is_copy(&name_of(&build, *param)));
        let moved = self.optimizer.apply(
            &mut build,
            &own,
            &states.scaled,
            (&states.optimizer, &[]),
            factor,
            &is_matrix,
        );
        keep_alike(&mut build, &own, &moved, &copies);
        let mut marks = PartMarks::of_params(build.program(), &marks.homes(&loss));
        marks.behind(build.program(), 0..build.program().ops.len(), OpPhase::Update);
        Ok(Marked { program: build.finish()?, marks })
    }

    /// The program of a part.
    ///
    /// # Errors
    /// What `verify` finds.
    pub fn program(&self, part: StepPart) -> Result<Program, Diagnostics> {
        Ok(self.marked(part)?.program)
    }

    /// As [`Parts::program`], with where its values are made.
    pub(super) fn marked(&self, part: StepPart) -> Result<Marked, Diagnostics> {
        if part == StepPart::Update {
            return self.update();
        }
        let mut build = self.builder(format!("train {part:?} b={} s={}", self.batch, self.sequence));
        let found = self.write_loss(&mut build);
        let forward = build.program().ops.len();
        let mut marks = PartMarks::of_forward(build.program(), &found.layers, forward, &self.cut);
        let scale = build.input(name::LOSS_SCALE, [], DType::F32);
        let params = found.params;
        if params.is_empty() {
            build.problem(Diagnostic::new("model", "has no weight to train"));
        }
        let states = self.states(&mut build, &params);
        let segments = self.recompute.segments(&found.layers);
        let written = gradients_with(&mut build, &[(found.loss, scale)], &params, &segments);
        marks.adjoints(build.program(), forward, &written.adjoint_of);
        build.output(name::LOSS, found.loss);
        let behind = build.program().ops.len();
        let whole = self.accumulate(&mut build, part, &params, written.gradients, &states.accumulated);
        let sums = behind..build.program().ops.len();
        marks.behind(build.program(), sums.clone(), OpPhase::WeightGrad);
        if part.ends_step() {
            self.finish_step(&mut build, part, &params, whole, &states);
        }
        marks.behind(build.program(), sums.end..build.program().ops.len(), OpPhase::Update);
        let program = build.finish()?;
        Ok(Marked { program: if self.adds_early { early(program, sums) } else { program }, marks })
    }

    /// Moves the weights by their whole gradients, or leaves these in states.
    fn finish_step(
        &self,
        build: &mut Builder,
        part: StepPart,
        params: &[Operand],
        whole: Vec<Operand>,
        states: &States,
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
            (StepPart::Compressed, Some(compress)) => {
                self.compress(build, compress, &own, &mut whole, states)
            }
            _ => Vec::new(),
        };
        if self.copies_table() {
            // The last part has its gradients first, and the sum of their squares goes from part to
            // part once.
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
        } else if let Some((norm, moved)) =
            self.optimizer.update_summed(build, &own, &whole, (&optimizer, &summed), self.clip_norm)
        {
            build.output(name::NORM, norm);
            let copies: Vec<Operand> = copies.into_iter().map(|(copy, _)| copy).collect();
            keep_alike(build, &own, &moved, &copies);
        }
    }

    /// Writes the first moments that compressed sums give in the place of gradients' parts in
    /// `whole`; the answer is by param what such a moment is, if it is one.
    fn compress(
        &self,
        build: &mut Builder,
        (by, updates): (Compression, usize),
        params: &[Operand],
        whole: &mut [Operand],
        states: &States,
    ) -> Vec<Option<SummedMoment>> {
        let mut summed = Vec::with_capacity(params.len());
        let (old, new) = self.optimizer.shares();
        let factor = build.input(name::FACTOR, [], DType::F32);
        whole.iter_mut().for_each(|gradient| *gradient = build.mul(*gradient, factor));
        for (at, param) in params.iter().enumerate() {
            let Some(kept_back) = states.kept_back[at] else {
                summed.push(None);
                continue;
            };
            let name = name_of(build, *param);
            let moment = states.optimizer[at][0];
            let scale = self.optimizer.scale(build, &states.optimizer[at], updates);
            let [known, sent] =
                [(old, moment, "known."), (new, whole[at], SENT)].map(|(share, of, prefix)| {
                    let part = build.op(Kind::Scale { by: share }, &[of]);
                    let part = scale.map_or(part, |[_, inverse]| build.mul(part, inverse));
                    build.name(part, format!("{prefix}{name}"))
                });
            let kind = Kind::CompressedSum { axes: Vec::new(), by };
            let [_, sum] = build.several(kind, &[sent, kept_back, known]);
            whole[at] = scale.map_or(sum, |[scale, _]| build.mul(sum, scale));
            summed.push(Some(SummedMoment { inverse: scale.map(|[_, inverse]| inverse) }));
        }
        summed
    }

    /// Adds the gradients of a micro-batch to those of the ones before; of the last one the answer
    /// is the whole gradients, by param.
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
        for (at, gradient) in gradients.into_iter().enumerate() {
            let name = name_of(build, params[at]);
            let Some(mut gradient) = gradient else {
                build.problem(Diagnostic::new(name, "the loss does not depend on it, so it has no gradient"));
                continue;
            };
            let is_sum = |op: &&Op| op.kind == Kind::Add && op.result() == gradient.id();
            if self.order == SumOrder::Tree && build.program().ops.values().iter().rev().any(|op| is_sum(&op))
            {
                let problem =
                    Diagnostic::new(&*name, "has two uses, whose gradients are added in each micro-batch");
                build.problem(
                    problem.expected("one use of a weight in an exact run").help("leave --exact out"),
                );
            }
            if left.is_some() || !added.is_empty() {
                build.name(gradient, format!("{MICRO}{name}"));
            }
            for level in &added {
                gradient = build.add(accumulated[*level][at], gradient);
            }
            match left {
                Some(level) => drop(build.op(Kind::Assign, &[accumulated[level][at], gradient])),
                None => {
                    let stands_before = if compressed.contains(&params[at].id()) { PARTS } else { GRADIENT };
                    build.name(gradient, format!("{stands_before}{name}"));
                    whole.push(gradient);
                }
            }
        }
        whole
    }
}

/// Copies become what the params that they are of have become.
fn keep_alike(build: &mut Builder, params: &[Operand], moved: &[Operand], copies: &[Operand]) {
    for copy in copies {
        if let Some(at) = original(build, *copy, params) {
            build.op(Kind::Assign, &[*copy, moved[at]]);
        }
    }
}

/// The program in which `moved`, ops that stand one behind the other, run as soon as what they read
/// is made.
fn early(program: Program, moved: Range<usize>) -> Program {
    // By value: behind which op it is there.
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
