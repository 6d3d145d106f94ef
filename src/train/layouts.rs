//! Pins of the values of training, for data parallelism and `ZeRO`.
//!
//! Weights have the layout of inference. Gradients, moments and, in stage 3, weights are also
//! sharded over [`DATA`] and [`CONTEXT`], along a dim that no other axis shards. Uneven sizes are
//! supported.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::{Diagnostic, Diagnostics, Id};
use crate::compile::with_adapters;
use crate::config::ModelConfig;
use crate::placement::{COLUMNS, DEPTH, Mesh, Pins, ROWS, Residual, TENSOR};
use crate::program::grad::AGAIN;
use crate::program::models::{COPY, trained};
use crate::program::tree::SumOrder;
use crate::program::{Program, Role, ValueId};

use super::context::CONTEXT;
use super::optimizer::{STATES, matrices};

/// Name of the data-parallel mesh axis.
pub const DATA: &str = "dp";
/// Part of [`DATA`] that shards only the batch; see [`super::Layout::replicas`].
pub const REPLICAS: &str = "dp_rep";
/// Part of [`DATA`] that also shards weights, gradients and moments.
pub const SHARDS: &str = "dp_shard";

/// Part of [`DATA`] with the same experts, if [`EXPERTS`](crate::placement::EXPERTS) is the other
/// part.
pub const SAME_EXPERTS: &str = "edp";

/// Name prefix of a gradient.
pub const GRADIENT: &str = "grad.";
/// Name prefix of a sum over earlier micro-batches.
const ACCUMULATED: &str = "accumulated.";
/// Name prefix of the gradient of one micro-batch.
pub const MICRO: &str = "micro.";
/// Name prefix of a stored gradient that may still overflow.
pub const SCALED: &str = "scaled.";

/// Name prefix of partial gradients, before the moment is computed.
pub const PARTS: &str = "parts.";
/// Name prefix of compressed partial sums.
pub const SENT: &str = "sent.";
/// Name prefix of the compression error for the next step.
pub const KEPT_BACK: &str = "kept_back.";

/// Name prefix of the summed gradients of a param and its copy.
pub const WITH_COPY: &str = "with_copy.";

/// Returns the name of a sum over earlier micro-batches, by level of the tree. Each level has twice
/// as many micro-batches as the level below.
#[must_use]
pub fn accumulated(level: usize, param: &str) -> String {
    if level == 0 { format!("{ACCUMULATED}{param}") } else { format!("{ACCUMULATED}{level}:{param}") }
}

/// Returns the param of a gradient or optimizer state.
#[must_use]
pub fn param_of(state: &str) -> Option<&str> {
    let param = [ACCUMULATED, SCALED, KEPT_BACK]
        .iter()
        .chain(&STATES)
        .find_map(|prefix| state.strip_prefix(prefix))?;
    let is_level = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Some(param.split_once(':').filter(|(level, _)| is_level(level)).map_or(param, |(_, param)| param))
}

/// Returns whether a state is used only within a step.
#[must_use]
pub fn is_of_one_step(state: &str) -> bool {
    [ACCUMULATED, SCALED].iter().any(|prefix| state.starts_with(prefix))
}

/// `ZeRO` stage: the tensors sharded over [`DATA`] and [`CONTEXT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Zero {
    /// No sharding: each card has whole tensors.
    #[default]
    None,
    /// Shards moments, and gradients after their sum.
    Moments,
    /// Moments and gradients are sharded, gradients from the first micro-batch on.
    Gradients,
    /// Moments, gradients and matrices are sharded, and each use gathers a matrix. The gather of a
    /// vector costs more than it saves.
    Weights,
}

#[doc(hidden)]
impl Zero {
    /// All stages in numeric order.
    pub const ALL: [Self; 4] = [Self::None, Self::Moments, Self::Gradients, Self::Weights];

    /// Returns the stage with this number.
    #[must_use]
    pub fn of_stage(stage: u8) -> Option<Self> {
        Self::ALL.get(usize::from(stage)).copied()
    }

    /// Returns the number of the stage.
    #[must_use]
    pub const fn stage(self) -> u8 {
        self as u8
    }
}

/// Returns the pins of all programs of a run, from the program of the loss.
///
/// `levels` sums over micro-batches are stored. Tree sums are not partial, because a card has
/// different sequences in each micro-batch.
///
/// # Errors
/// The loss program cannot be placed on the mesh.
pub fn pins(
    config: &ModelConfig,
    loss: &Program,
    mesh: &Mesh,
    layout: &super::compile::Layout,
    order: SumOrder,
    levels: usize,
) -> Result<Pins, Diagnostics> {
    let (names, zero) = (mesh.axis_names(), layout.zero);
    let (base, placed) = with_adapters(activations(config, loss, mesh, layout), loss, mesh)?;
    let has_replicas = !mesh.named(REPLICAS).is_empty();
    let parts = dealt(mesh).flat_map(|(_, axis)| mesh.named(axis));
    let data: Vec<&str> = parts.map(|axis| names[axis.index()].as_str()).collect();
    let cut_on: Vec<&str> = data.iter().copied().filter(|axis| *axis != REPLICAS).collect();
    let matrices = matrices(loss);
    let trained: BTreeSet<ValueId> = trained(loss).into_iter().collect();
    let (mut problems, mut pins) = (Diagnostics::new(), base);
    for id in loss.with_role(Role::Param) {
        let value = &loss.values[id];
        let layout = &placed.stored[id.index()];
        let own = layout.named_dims(&names);
        // An axis that shards experts also distributes tokens. Their gradients are complete on it.
        let is_other = |axis: &&str| own.iter().all(|(_, used)| used != axis);
        let [data, cut_on] = [&data, &cut_on].map(|axes| axes.iter().copied().filter(is_other));
        let (data, cut_on): (Vec<&str>, Vec<&str>) = (data.collect(), cut_on.collect());
        let shards: usize = cut_on.iter().map(|axis| mesh.joint_size(&mesh.named(axis))).product();
        if value.name.contains('*') {
            problems.push(Diagnostic::new(&value.name, "a param's name has no `*`"));
        }
        // Unsharded dims, or any dim if rows and columns shard all dims.
        let is_free = |dim: usize| layout.dims[dim].is_empty();
        let is_within = !mesh.named(ROWS).is_empty() && !(0..value.shape.rank()).any(is_free);
        let free = (0..value.shape.rank()).filter(|dim| is_within || is_free(*dim));
        // Tree sums prefer an even split: cards then hold whole nodes of the tree.
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
        // Compressed values are summed once per step.
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

/// Returns the axes over which tokens are distributed, each with its dim of the inputs: 0 for
/// sequences, 1 for tokens.
fn dealt(mesh: &Mesh) -> impl Iterator<Item = (usize, &'static str)> {
    [(0, DATA), (0, DEPTH), (1, CONTEXT)].into_iter().filter(|(_, axis)| !mesh.named(axis).is_empty())
}

/// Pins inputs, the residual stream and its gradient. Weight layouts follow from them.
fn activations(config: &ModelConfig, loss: &Program, mesh: &Mesh, layout: &super::compile::Layout) -> Pins {
    let residual = layout.residual;
    let mut stream: Vec<(usize, &str)> = dealt(mesh).collect();
    let mut pins = crate::compile::pins(config, loss, mesh, residual, layout.experts);
    let batches =
        loss.with_role(Role::Input).map(|id| &loss.values[id]).filter(|value| value.shape.rank() > 0);
    pins = batches.fold(pins, |pins, value| pins.value(&value.name, &stream));
    if !mesh.named(CONTEXT).is_empty() {
        // Cards read the values of whole sequences, and each card needs the summed cotangents of
        // its own tokens.
        pins = pins.cut_along("grad.layers.*.attention.v", 1, CONTEXT).dealt_on(&[CONTEXT]);
    }
    if residual == Residual::Seq {
        let axes = [TENSOR, COLUMNS, ROWS].into_iter().filter(|axis| !mesh.named(axis).is_empty());
        stream.extend(axes.map(|axis| (1, axis)));
    }
    // In a fixed order of sums, the rows of experts are complete before they are added.
    let names = ["residual.*", "layers.*.mlp.experts.rows", "layers.*.mlp.experts.rows.copies"];
    let all = ["", "grad.", AGAIN].into_iter().flat_map(|before| names.map(|name| format!("{before}{name}")));
    all.fold(pins, |pins, name| pins.value(&name, &stream))
}
