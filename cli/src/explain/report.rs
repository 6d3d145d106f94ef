//! The report of `explain` as data, which is also the format of `--json`.

use std::collections::BTreeMap;

use ascend_tp::base::{Bytes, Remainder};
use ascend_tp::collective::{ExplainedExchange, exchanges};
use ascend_tp::config::{ModelConfig, Parameters};
use ascend_tp::device::Communicator;
use ascend_tp::exec::{communicators_wanted, memory_wanted};
use ascend_tp::program::models::{
    CACHE_SCALES, GroupDim, Head, QuantisedWeight, group_dims, layer_of, quantised_weight, unpacked,
};
use ascend_tp::program::{OpId, Program, Role, Value};
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::{Action, Launched, Region, Step};
use serde::Serialize;

use super::compile::{ExplainRequest, ExplainedProgram, ExplainedPrograms};

#[derive(Debug, Serialize)]
pub(super) struct ExplainReport {
    pub(super) model: String,
    pub(super) architecture: &'static str,
    pub(super) layers: usize,
    pub(super) parameters: u64,
    /// Parameters of a mixture that compute a token, with the chosen experts alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) active_parameters: Option<u64>,
    pub(super) dtype: &'static str,
    /// Element type of KV caches, if activations have another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kv_dtype: Option<&'static str>,
    pub(super) cards: usize,
    pub(super) mesh: String,
    pub(super) program: PassReport,
    /// Number of new tokens per sequence in the prefill that determines the sharding of weights.
    pub(super) deciding_sequence: usize,
    pub(super) weights: Vec<WeightReport>,
    /// Weights in less than 16 bits, by format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) formats: Vec<FormatReport>,
    /// Weights in 4-bit groups that become floats on the cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unpacked: Vec<UnpackedReport>,
    /// Dims of weights with unbalanced shards, because shards end at groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) borders: Vec<BorderReport>,
    pub(super) collectives: Vec<CollectiveReport>,
    pub(super) launches: LaunchReport,
    pub(super) totals: Totals,
    pub(super) memory: CardBytes,
    pub(super) alternatives: Vec<Alternative>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PassReport {
    pub(super) batch: usize,
    pub(super) sequence: usize,
    /// Capacity of the KV cache per sequence, in positions.
    pub(super) context: usize,
    pub(super) residual: &'static str,
    /// Output of the pass for each sequence: `logits` or `token`.
    pub(super) output: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct WeightReport {
    pub(super) name: String,
    pub(super) layer: Option<usize>,
    pub(super) shape: Vec<usize>,
    pub(super) local_shape: Vec<usize>,
    /// Shape on the emptiest card, if the dims do not divide evenly.
    pub(super) least_local_shape: Vec<usize>,
    /// For each dim, the mesh axes that shard it, or `_`.
    pub(super) layout: String,
    pub(super) bytes_per_card: u64,
    pub(super) reason: String,
}

/// Weights of one format.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FormatReport {
    pub(super) format: String,
    /// Number of weights.
    pub(super) weights: usize,
    /// Bytes in the files, with scales and zero points.
    pub(super) stored_bytes: u64,
    /// Bytes of the numbers on the first card, with the scales and offsets of packed weights.
    pub(super) bytes_per_card: u64,
}

/// Weights in 4-bit groups that become floats for one reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct UnpackedReport {
    pub(super) format: String,
    /// Name of the first weight.
    pub(super) name: String,
    /// Number of weights.
    pub(super) weights: usize,
    pub(super) dtype: &'static str,
    pub(super) reason: String,
}

/// A dim of a weight in shards of whole groups.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BorderReport {
    pub(super) name: String,
    pub(super) layer: Option<usize>,
    /// `outputs` or `inputs`.
    pub(super) axis: &'static str,
    /// Number of outputs or inputs per group.
    pub(super) group: usize,
    /// Outputs or inputs of each shard.
    pub(super) parts: Vec<usize>,
    /// The same if the shards could end anywhere.
    pub(super) balanced: Vec<usize>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CollectiveReport {
    pub(super) op: &'static str,
    pub(super) layer: Option<usize>,
    pub(super) axes: String,
    pub(super) group: usize,
    pub(super) value: String,
    pub(super) tensors: usize,
    /// Bytes of all tensors for one group.
    pub(super) bytes: u64,
    pub(super) reason: String,
}

/// The launches of a middle layer on the first card.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LaunchReport {
    pub(super) count: usize,
    /// Launches by call, in the order of first use.
    pub(super) calls: Vec<LaunchCount>,
    /// Ops that could share a launch but do not.
    pub(super) apart: Vec<SeparateLaunch>,
    pub(super) keys: KeysRead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeysRead {
    /// The rows that tokens have in the cache.
    There,
    /// All blocks of each sequence.
    All,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LaunchCount {
    pub(super) call: String,
    pub(super) count: usize,
    /// Computed ops, named by their results.
    pub(super) computes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct SeparateLaunch {
    pub(super) op: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Totals {
    pub(super) tokens: usize,
    pub(super) by_op: Vec<OpTotal>,
    /// Bytes that each card sends in one pass if every collective uses a ring: `2 (n-1)/n` of the
    /// bytes of an `all_reduce` and `(n-1)/n` of the bytes of other collectives, for `n` cards in a
    /// group.
    pub(super) sent_bytes_per_card: u64,
    pub(super) sent_bytes_per_card_and_token: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct OpTotal {
    pub(super) op: &'static str,
    pub(super) count: usize,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CardBytes {
    pub(super) weights: u64,
    pub(super) kv_cache: u64,
    pub(super) kv_per_token: u64,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
    /// Bytes of the arena; intermediate values with disjoint lifetimes share memory.
    pub(super) arena: u64,
    pub(super) communicators: u64,
    pub(super) total: u64,
    pub(super) total_by_rank: Vec<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Alternative {
    pub(super) program: PassReport,
    pub(super) totals: Totals,
    pub(super) arena: u64,
}

impl ExplainReport {
    pub(super) fn new(
        model: &str,
        config: &ModelConfig,
        request: &ExplainRequest<'_>,
        programs: &ExplainedPrograms,
    ) -> Self {
        let ExplainedPrograms { shown, alternatives } = programs;
        let collectives = exchanges(&shown.split.lowered);
        Self {
            model: model.to_owned(),
            architecture: config.family.architecture(),
            layers: config.layers,
            parameters: parameters(&shown.program),
            active_parameters: active_parameters(config),
            dtype: request.deployment.precision.name(),
            kv_dtype: request.deployment.precision.kv_name(),
            cards: request.mesh.cards(),
            mesh: request.mesh.to_string(),
            program: pass(request, shown),
            deciding_sequence: request.prefill_tokens(),
            weights: weights(shown),
            formats: formats(shown),
            unpacked: unpacked_weights(&shown.program),
            borders: borders(shown),
            totals: totals(&collectives, request.deployment.batch * shown.pass.sequence),
            collectives: collectives.into_iter().map(CollectiveReport::from).collect(),
            launches: launches(&shown.plans[0], config.layers / 2),
            memory: memory(&shown.plans),
            alternatives: alternatives
                .iter()
                .map(|other| Alternative {
                    program: pass(request, other),
                    totals: totals(
                        &exchanges(&other.split.lowered),
                        request.deployment.batch * other.pass.sequence,
                    ),
                    arena: other
                        .plans
                        .iter()
                        .map(|plan| plan.region_bytes(Region::Arena).0)
                        .max()
                        .unwrap_or(0),
                })
                .collect(),
        }
    }
}

fn pass(request: &ExplainRequest<'_>, compiled: &ExplainedProgram) -> PassReport {
    PassReport {
        batch: request.deployment.batch,
        sequence: compiled.pass.sequence,
        context: request.deployment.context,
        residual: request.residual(compiled.pass).name(),
        output: if compiled.pass.head == Head::LastToken { "token" } else { "logits" },
    }
}

fn active_parameters(config: &ModelConfig) -> Option<u64> {
    let Parameters { total, active } = config.parameters();
    (active < total).then_some(active as u64)
}

fn parameters(program: &Program) -> u64 {
    let elems = |value: &Value| match &value.source {
        Some(source) => source.form.parameters(&value.shape, value.dtype),
        None => value.shape.elems(),
    };
    program.with_role(Role::Param).map(|id| elems(&program.values[id]) as u64).sum()
}

fn weights(compiled: &ExplainedProgram) -> Vec<WeightReport> {
    let placed = &compiled.split.lowered;
    let row = |id| {
        let (value, layout) = (&compiled.program.values[id], &placed.layouts[id]);
        let locals =
            (0..placed.mesh.cards()).map(|rank| layout.local_shape(&placed.mesh, &value.shape, rank));
        let local = layout.local_shape(&placed.mesh, &value.shape, 0);
        let least = locals.min_by_key(|shape| shape.elems()).unwrap_or_else(|| local.clone());
        let given = compiled.reasons.get(&value.name).cloned();
        let reason = given.unwrap_or_else(|| match layout.is_replicated() {
            true => "replicated, like the values it is combined with".to_owned(),
            false => "sharded like the values it is combined with".to_owned(),
        });
        WeightReport {
            layer: layer_of(&value.name),
            name: value.name.clone(),
            shape: value.shape.to_vec(),
            bytes_per_card: Bytes::of(local.elems(), value.dtype.size_bytes()).0,
            local_shape: local.to_vec(),
            least_local_shape: least.to_vec(),
            layout: layout.text(&placed.mesh.axis_names()),
            reason,
        }
    };
    compiled.program.with_role(Role::Param).map(row).collect()
}

fn formats(compiled: &ExplainedProgram) -> Vec<FormatReport> {
    let placed = &compiled.split.lowered;
    let mut formats: Vec<FormatReport> = Vec::new();
    for id in compiled.program.with_role(Role::Param) {
        let value = &compiled.program.values[id];
        let Some(QuantisedWeight { format, stored }) = quantised_weight(value) else { continue };
        let format = format.to_string();
        let local = placed.layouts[id].local_shape(&placed.mesh, &value.shape, 0);
        let bytes = Bytes::of(local.elems(), value.dtype.size_bytes()).0;
        match formats.iter_mut().find(|known| known.format == format) {
            Some(known) => {
                known.weights += usize::from(stored.0 > 0);
                known.stored_bytes += stored.0;
                known.bytes_per_card += bytes;
            }
            None => formats.push(FormatReport {
                format,
                weights: 1,
                stored_bytes: stored.0,
                bytes_per_card: bytes,
            }),
        }
    }
    formats
}

fn unpacked_weights(program: &Program) -> Vec<UnpackedReport> {
    let mut reports: Vec<UnpackedReport> = Vec::new();
    for id in program.with_role(Role::Param) {
        let value = &program.values[id];
        let Some((reason, weight)) = unpacked(program, id).zip(quantised_weight(value)) else { continue };
        let (reason, format) = (reason.to_string(), weight.format.to_string());
        match reports.iter_mut().find(|known| known.reason == reason && known.format == format) {
            Some(known) => known.weights += 1,
            None => reports.push(UnpackedReport {
                format,
                name: value.name.clone(),
                weights: 1,
                dtype: value.dtype.name(),
                reason,
            }),
        }
    }
    reports
}

fn borders(compiled: &ExplainedProgram) -> Vec<BorderReport> {
    let placed = &compiled.split.lowered;
    let border = |GroupDim { param, axis, dim, group }: GroupDim| {
        let (value, axes) = (&compiled.program.values[param], &placed.layouts[param].dims[dim]);
        let shards = axes.iter().map(|axis| placed.mesh.size(*axis)).product::<usize>();
        let sizes = |size: usize, unit: usize| -> Vec<usize> {
            (0..shards).map(|at| Remainder::Balanced.range(size, shards, at).len() * unit).collect()
        };
        let groups = value.shape[dim];
        let report = BorderReport {
            name: value.name.clone(),
            layer: layer_of(&value.name),
            axis: ["outputs", "inputs"][axis],
            group,
            parts: sizes(groups, group),
            balanced: sizes(groups * group, 1),
        };
        (report.parts != report.balanced).then_some(report)
    };
    group_dims(&compiled.program).into_iter().filter_map(border).collect()
}

impl From<ExplainedExchange> for CollectiveReport {
    fn from(exchange: ExplainedExchange) -> Self {
        Self {
            op: exchange.kind,
            layer: layer_of(&exchange.value),
            axes: exchange.axes,
            group: exchange.group,
            value: exchange.value,
            tensors: exchange.tensors,
            bytes: exchange.bytes.0,
            reason: exchange.reason,
        }
    }
}

fn launches(plan: &Plan, layer: usize) -> LaunchReport {
    let name = |op: OpId| {
        let note = &plan.notes[op];
        let value = note.value.rsplit('.').next().unwrap_or_default();
        format!("{} of {value}", note.kind)
    };
    let mut calls: Vec<LaunchCount> = Vec::new();
    let mut seen = None;
    for step in plan.steps.iter().filter(|step| plan.notes[step.op].layer == Some(layer)) {
        let call = match &step.action {
            Action::Launch(call) => call.name(),
            Action::Exchange(exchange) => exchange.name(),
            Action::Record(_) | Action::Wait(_) => continue,
        };
        let call_index = calls.iter().position(|known| known.call == call).unwrap_or_else(|| {
            calls.push(LaunchCount { call: call.to_owned(), count: 0, computes: Vec::new() });
            calls.len() - 1
        });
        calls[call_index].count += 1;
        if seen != Some(step.op) {
            let others = plan.notes.iter().filter(|(_, note)| note.launch == Launched::With(step.op));
            calls[call_index]
                .computes
                .extend(std::iter::once(step.op).chain(others.map(|(id, _)| id)).map(name));
            seen = Some(step.op);
        }
    }
    let apart = plan.notes.iter().filter(|(_, note)| note.layer == Some(layer)).filter_map(|(id, note)| {
        let Launched::Apart(reason) = &note.launch else { return None };
        Some(SeparateLaunch { op: name(id), reason: reason.clone() })
    });
    let is_told =
        |step: &Step| matches!(&step.action, Action::Launch(call) if plan.host_list(call).is_some());
    let keys = if plan.steps.iter().any(is_told) { KeysRead::There } else { KeysRead::All };
    LaunchReport { count: calls.iter().map(|call| call.count).sum(), apart: apart.collect(), keys, calls }
}

fn totals(exchanges: &[ExplainedExchange], tokens: usize) -> Totals {
    let mut by_op: BTreeMap<&'static str, OpTotal> = BTreeMap::new();
    let mut sent = 0.0;
    for exchange in exchanges {
        let total = by_op.entry(exchange.kind).or_insert(OpTotal { op: exchange.kind, count: 0, bytes: 0 });
        total.count += 1;
        total.bytes += exchange.bytes.0;
        let times = if exchange.kind == "all_reduce" { 2.0 } else { 1.0 };
        let group = exchange.group as f64;
        sent += times * (group - 1.0) / group * exchange.bytes.0 as f64;
    }
    let mut by_op: Vec<OpTotal> = by_op.into_values().collect();
    by_op.sort_by_key(|total| std::cmp::Reverse(total.count));
    Totals {
        tokens,
        by_op,
        sent_bytes_per_card: sent.round() as u64,
        sent_bytes_per_card_and_token: (sent / tokens as f64).round() as u64,
    }
}

fn memory(plans: &[Plan]) -> CardBytes {
    let total = |rank| memory_wanted(&[plans], rank).into_iter().map(|(_, bytes)| bytes.0).sum::<u64>();
    let total_by_rank: Vec<u64> = (0..plans.len()).map(total).collect();
    let fullest =
        total_by_rank.iter().enumerate().max_by_key(|(rank, bytes)| (**bytes, std::cmp::Reverse(*rank)));
    let fullest = fullest.and_then(|(rank, _)| plans.get(rank));
    let bytes = |region| fullest.map_or(0, |plan| plan.region_bytes(region).0);
    // The bytes of the caches, without the alignment of their buffers.
    let kv_per_token = fullest.map_or(0, |plan| {
        let of_token = |state: &ascend_tp::schedule::plan::Tensor| {
            let elems: usize = if state.name.ends_with(CACHE_SCALES) {
                state.ranges[1].len()
            } else {
                state.ranges[2..].iter().map(std::ops::Range::len).product()
            };
            Bytes::of(elems, state.dtype.size_bytes()).0
        };
        plan.states.iter().map(of_token).sum()
    });
    CardBytes {
        weights: bytes(Region::Weights),
        kv_cache: bytes(Region::States),
        kv_per_token,
        inputs: bytes(Region::Inputs),
        outputs: bytes(Region::Outputs),
        arena: bytes(Region::Arena),
        communicators: fullest.map_or(0, |plan| {
            communicators_wanted(&[plans], plan.rank) as u64 * Communicator::buffer_bytes().0
        }),
        total: total_by_rank.iter().copied().max().unwrap_or(0),
        total_by_rank,
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::base::Id;

    use super::*;

    fn exchange(kind: &'static str, group: usize, bytes: u64) -> ExplainedExchange {
        let (axes, value, reason) = ("tp".to_owned(), "layers.3.mlp.out".to_owned(), String::new());
        ExplainedExchange {
            op: OpId::from_index(0),
            kind,
            axes,
            group,
            value,
            tensors: 1,
            bytes: Bytes(bytes),
            reason,
        }
    }

    #[test]
    fn sums_are_by_kind_and_by_token() {
        let list = [
            exchange("all_gather", 4, 400),
            exchange("all_reduce", 8, 1600),
            exchange("all_reduce", 8, 1600),
        ];
        let found = totals(&list, 2);
        let by_op: Vec<_> = found.by_op.iter().map(|total| (total.op, total.count, total.bytes)).collect();
        assert_eq!(by_op, [("all_reduce", 2, 3200), ("all_gather", 1, 400)]);
        // 2 × (2 × 7/8 × 1600) + 3/4 × 400
        assert_eq!(found.sent_bytes_per_card, 5900);
        assert_eq!(found.sent_bytes_per_card_and_token, 2950);
        assert_eq!(CollectiveReport::from(list[1].clone()).layer, Some(3));
    }
}
