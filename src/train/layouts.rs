//! Where the values of training lie: pins for data parallel, and for `ZeRO`.
//!
//! Input → output: the loss program, a mesh and how much is cut over data-parallel cards →
//! [`Pins`]. Weights lie as inference has them, by their products; gradients, moments and, from
//! stage 3 on, weights are cut further over [`DATA`] and [`CONTEXT`], along a dim that no other
//! axis cuts. Sizes that do not divide are ordinary.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::{Diagnostic, Diagnostics, Id};
use crate::config::ModelConfig;
use crate::placement::{COLUMNS, DEPTH, Layout, Mesh, Pins, Placement, ROWS, Residual, TENSOR, place};
use crate::program::grad::AGAIN;
use crate::program::models::{COPY, trained};
use crate::program::tree::SumOrder;
use crate::program::{Program, Role, Value, ValueId};

use super::context::CONTEXT;
use super::optimizer::{STATES, matrices};

/// The axis over which sequences are dealt.
pub const DATA: &str = "dp";
/// The part of [`DATA`] along which nothing is cut but the batch; see [`super::Layout::replicas`].
pub const REPLICAS: &str = "dp_rep";
/// The part of [`DATA`] along which also weights, gradients and moments are cut.
pub const SHARDS: &str = "dp_shard";

/// What stands before a param's name in the name of its gradient.
pub const GRADIENT: &str = "grad.";
/// … of what the gradients of earlier micro-batches sum to.
const ACCUMULATED: &str = "accumulated.";
/// … of the gradient of one of several micro-batches.
pub const MICRO: &str = "micro.";
/// … of its whole gradient, kept until it is known to be finite.
pub const SCALED: &str = "scaled.";

/// … of the parts of its gradient, of which the moment is still to be made.
pub const PARTS: &str = "parts.";
/// … of the parts that are compressed.
pub const SENT: &str = "sent.";
/// … of what each card kept back of it.
pub const KEPT_BACK: &str = "kept_back.";

/// … of the sum of its own gradient and that of its copy.
pub const WITH_COPY: &str = "with_copy.";

/// The name of a sum of gradients of earlier micro-batches, by level of their tree: of twice as
/// many as at the level below.
#[must_use]
pub fn accumulated(level: usize, param: &str) -> String {
    if level == 0 { format!("{ACCUMULATED}{param}") } else { format!("{ACCUMULATED}{level}:{param}") }
}

/// The param of a state that holds gradients or a moment of it.
#[must_use]
pub fn param_of(state: &str) -> Option<&str> {
    let param = [ACCUMULATED, SCALED, KEPT_BACK]
        .iter()
        .chain(&STATES)
        .find_map(|prefix| state.strip_prefix(prefix))?;
    let is_level = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Some(param.split_once(':').filter(|(level, _)| is_level(level)).map_or(param, |(_, param)| param))
}

/// Whether a state is of use within a step alone.
#[must_use]
pub fn is_of_one_step(state: &str) -> bool {
    [ACCUMULATED, SCALED].iter().any(|prefix| state.starts_with(prefix))
}

/// How much of what belongs to a weight is cut over the cards of [`DATA`] and [`CONTEXT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Zero {
    /// Nothing: each of these cards has all of it.
    #[default]
    None,
    /// Moments; gradients once they are summed.
    Moments,
    /// Gradients too, from the first micro-batch on.
    Gradients,
    /// Weights too: each use gathers them. Those that are no matrices stay whole, as a gather of a
    /// vector costs more than it saves.
    Weights,
}

impl Zero {
    /// All stages, by their usual numbers.
    pub const ALL: [Self; 4] = [Self::None, Self::Moments, Self::Gradients, Self::Weights];

    /// By the stage's usual number.
    #[must_use]
    pub fn of_stage(stage: u8) -> Option<Self> {
        Self::ALL.get(usize::from(stage)).copied()
    }

    /// The stage's usual number.
    #[must_use]
    pub const fn stage(self) -> u8 {
        self as u8
    }
}

/// The pins of all programs of a run, made from the program of its loss. `levels` sums of
/// micro-batches are kept; as trees they are whole: which sequences a card has differs from
/// micro-batch to micro-batch.
///
/// # Errors
/// The loss program cannot be placed on the mesh.
pub fn pins(
    config: &ModelConfig,
    (loss, mesh): (&Program, &Mesh),
    (residual, zero): (Residual, Zero),
    (order, levels): (SumOrder, usize),
) -> Result<Pins, Diagnostics> {
    let names = mesh.axis_names();
    let (base, placed) = with_adapters(activations(config, (loss, mesh), residual), loss, mesh)?;
    let has_replicas = !mesh.named(REPLICAS).is_empty();
    let data: Vec<&str> = dealt(mesh).map(|(_, axis)| axis).collect();
    let is_cut = |axis: &&str| !has_replicas || *axis != DATA;
    let cut_on: Vec<&str> =
        has_replicas.then_some(SHARDS).into_iter().chain(data.iter().copied().filter(is_cut)).collect();
    let shards: usize = cut_on.iter().map(|axis| mesh.joint_size(&mesh.named(axis))).product();
    let matrices = matrices(loss);
    let trained: BTreeSet<ValueId> = trained(loss).into_iter().collect();
    let (mut problems, mut pins) = (Diagnostics::new(), base);
    for id in loss.with_role(Role::Param) {
        let value = &loss.values[id];
        let layout = &placed.stored[id.index()];
        let own = dims(layout, &names);
        if value.name.contains('*') {
            problems.push(Diagnostic::new(&value.name, "a param's name has no `*`"));
        }
        // Along a dim that nothing else cuts, or within the cut of two axes.
        let is_free = |dim: usize| layout.dims[dim].is_empty();
        let is_within = !mesh.named(ROWS).is_empty() && !(0..value.shape.rank()).any(is_free);
        let free = (0..value.shape.rank()).filter(|dim| is_within || is_free(*dim));
        // As trees, a dim that divides: cards hold nodes of it then.
        let is_even = |dim: usize| order == SumOrder::AsTheyCome || value.shape[dim].is_multiple_of(shards);
        let left = |dim: usize| value.shape[dim] / mesh.joint_size(&layout.dims[dim]);
        let cut = free.max_by_key(|dim| (is_even(*dim), left(*dim), std::cmp::Reverse(*dim)));
        let mut shared = own.clone();
        if let Some(dim) = cut.filter(|_| zero >= Zero::Moments) {
            shared.extend(cut_on.iter().map(|axis| (dim, *axis)));
        }
        let (parts, sums): (&[&str], _) = match zero >= Zero::Gradients {
            _ if order == SumOrder::Tree => (&[], if zero >= Zero::Gradients { &shared } else { &own }),
            true if has_replicas => (&[REPLICAS], &shared),
            true => (&[], &shared),
            false => (&data, &own),
        };
        let name = &value.name;
        let stored = if zero >= Zero::Weights && matrices.contains(&id) { &shared } else { &own };
        pins = pins.value(name, stored);
        if !trained.contains(&id) {
            continue;
        }
        pins = pins.value(&format!("{GRADIENT}{name}"), &shared);
        if loss.find(Role::Param, &format!("{COPY}{name}")).is_some() {
            pins = pins.value(&format!("{WITH_COPY}{name}"), &shared);
        }
        pins = STATES
            .iter()
            .chain([&SCALED])
            .fold(pins, |pins, state| pins.value(&format!("{state}{name}"), &shared));
        // What is compressed is summed once a step, and is cut over no axis of data.
        let partial = |pins: Pins, of: &str| pins.partial_value(&format!("{of}{name}"), &own, &data);
        let compressed = if matrices.contains(&id) { &[PARTS, SENT, KEPT_BACK][..] } else { &[] };
        pins = compressed.iter().copied().fold(pins, partial);
        let kept = (0..levels).map(|level| accumulated(level, name));
        pins = kept
            .chain([format!("{MICRO}{name}")])
            .fold(pins, |pins, of| pins.partial_value(&of, sums, parts));
    }
    if zero >= Zero::Weights {
        pins = pins.stored_on(&cut_on);
    }
    problems.into_result(pins)
}

/// Axes over which tokens are dealt, with the dim of the inputs that they cut: of several
/// sequences, and of each.
fn dealt(mesh: &Mesh) -> impl Iterator<Item = (usize, &'static str)> {
    [(0, DATA), (0, DEPTH), (1, CONTEXT)].into_iter().filter(|(_, axis)| !mesh.named(axis).is_empty())
}

/// Where inputs and the residual stream lie, its gradient as itself; weights follow from that.
fn activations(config: &ModelConfig, (loss, mesh): (&Program, &Mesh), residual: Residual) -> Pins {
    let mut stream: Vec<(usize, &str)> = dealt(mesh).collect();
    let mut pins = crate::compile::pins(config, loss, mesh, residual);
    let batches =
        loss.with_role(Role::Input).map(|id| &loss.values[id]).filter(|value| value.shape.rank() > 0);
    pins = batches.fold(pins, |pins, value| pins.value(&value.name, &stream));
    if !mesh.named(CONTEXT).is_empty() {
        // All cards read all values of a sequence, and each wants the sum of their cotangents for
        // its own tokens.
        pins = pins.cut_along("grad.layers.*.attention.v", 1, CONTEXT).dealt_on(&[CONTEXT]);
    }
    if residual == Residual::Seq {
        let axes = [TENSOR, COLUMNS, ROWS].into_iter().filter(|axis| !mesh.named(axis).is_empty());
        stream.extend(axes.map(|axis| (1, axis)));
    }
    ["", "grad.", AGAIN]
        .into_iter()
        .fold(pins, |pins, stands_before| pins.value(&format!("{stands_before}residual.*"), &stream))
}

/// The pins with those of adapters, of which a program may have none, and where it lies by them.
fn with_adapters(base: Pins, loss: &Program, mesh: &Mesh) -> Result<(Pins, Placement), Diagnostics> {
    let (placed, names) = (place(loss, mesh, &base)?, mesh.axis_names());
    let adapters = adapters(loss, &placed.stored, &names);
    if adapters.is_empty() {
        return Ok((base, placed));
    }
    let base = adapters.iter().fold(base, |pins, (name, dims)| pins.value(name, dims));
    let placed = place(loss, mesh, &base)?;
    Ok((base, placed))
}

/// Where adapters lie: each factor as the weight that it stands beside, along the dims that it
/// shares with it. The rank is not cut: it is a few numbers, and whoever needed all of them would
/// wait for an exchange.
fn adapters<'a>(
    loss: &'a Program,
    stored: &[Layout],
    names: &'a [String],
) -> Vec<(&'a str, Vec<(usize, &'a str)>)> {
    let weight =
        |wanted: &dyn Fn(&Value) -> bool| loss.with_role(Role::Param).find(|id| wanted(&loss.values[*id]));
    let mut found = Vec::new();
    for value in loss.with_role(Role::Param).map(|id| &loss.values[id]) {
        let inner = value.name.strip_suffix(".lora_A.weight").and_then(|layer| {
            let tensor = format!("{layer}.weight");
            weight(&|value| value.source.as_ref().is_some_and(|source| source.tensor == tensor))
        });
        let outer = value.name.strip_suffix(".lora_B.weight").and_then(|layer| {
            let name = format!("{layer}.weight");
            weight(&|value| value.name == name)
        });
        let Some(of) = inner.or(outer) else { continue };
        // The dims of `A` are the rank and the last ones of the weight, those of `B` its first ones
        // and the rank.
        let own = 0..value.shape.rank() - 1;
        let (first, shift) =
            if inner.is_some() { (loss.values[of].shape.rank() - own.len(), 1) } else { (0, 0) };
        let cuts = dims(&stored[of.index()], names).into_iter();
        let shared = cuts.filter(|(dim, _)| (first..first + own.len()).contains(dim));
        found.push((value.name.as_str(), shared.map(|(dim, axis)| (dim - first + shift, axis)).collect()));
    }
    found
}

/// A layout's cuts, by dim and name of the axis.
fn dims<'a>(layout: &Layout, names: &'a [String]) -> Vec<(usize, &'a str)> {
    let axes = layout.dims.iter().enumerate();
    axes.flat_map(|(dim, axes)| axes.iter().map(move |axis| (dim, names[axis.index()].as_str()))).collect()
}
