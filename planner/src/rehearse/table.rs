//! The tables of a rehearsal: what operators and collectives take, what bounds them, and how close
//! they come to it.
//!
//! Input → output: the spans of a phase and the plans they come from → rows, the longest first.
//! Layers repeat, so rows are by what a step does: its op, the weight or value it is about without
//! the layer's number, and its shapes.

use std::collections::BTreeMap;

use serde::Serialize;

use ascend_tp::call::{View, Views};
use ascend_tp::schedule::plan::{Action, Plan, Step};
use ascend_tp::timeline::{Span, step_name};

/// Steps of one kind on one card, in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorRow {
    /// What it computes: `matmul mlp.gate_proj.weight`.
    pub name: String,
    /// The C function it calls.
    pub operator: String,
    /// `bf16[1,8192] × bf16[3072,8192] → bf16[1,3072]`.
    pub shapes: String,
    /// How many, on one card.
    pub count: usize,
    /// Mean of one, in microseconds.
    pub mean_us: f64,
    /// All of them, in microseconds.
    pub total_us: f64,
    /// Part of the phase.
    pub share: f64,
    /// What bounds it: `cube`, `vector`, `memory` or `launch`.
    pub bound: String,
    /// Achieved bytes to and from memory in a second.
    pub bytes_per_s: f64,
    /// Achieved floating-point operations in a second.
    pub flops_per_s: f64,
    /// Floating-point operations a byte.
    pub flops_per_byte: f64,
}

/// Collectives of one kind on one card, in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveRow {
    /// What is exchanged: `all_reduce mlp.out`.
    pub name: String,
    /// The C function it calls.
    pub operator: String,
    /// Ranks of the group.
    pub group: usize,
    /// Bytes of the exchange: those of the whole tensor.
    pub bytes: f64,
    /// How many, on one card.
    pub count: usize,
    /// Mean of one from the arrival of the last rank on, in microseconds.
    pub mean_us: f64,
    /// Mean time that a rank waits for the last one, in microseconds.
    pub wait_us: f64,
    /// All of them, in microseconds.
    pub total_us: f64,
    /// Part of the phase.
    pub share: f64,
    /// What bounds it: latency, or the links of a level.
    pub bound: String,
    /// Bytes of the exchange in a second (algorithm bandwidth).
    pub bytes_per_s: f64,
}

fn shapes(step: &Step) -> String {
    let list = |views: Views<'_>| {
        let text = |view: &&View| format!("{}{}", view.dtype, view.shape);
        views.iter().map(text).collect::<Vec<_>>().join(" × ")
    };
    format!("{} → {}", list(step.reads()), list(step.writes()))
}

#[derive(Default)]
struct TimeSum {
    count: usize,
    duration_ns: u64,
    wait_ns: u64,
    bytes: f64,
    flops: f64,
    bounds: BTreeMap<String, u64>,
}

impl TimeSum {
    fn add(&mut self, span: &Span) {
        self.count += 1;
        self.duration_ns += span.end_ns - span.start_ns;
        self.wait_ns += span.start_ns.saturating_sub(span.arrived_ns);
        if let Some(work) = &span.work {
            self.bytes += work.bytes;
            self.flops += work.flops;
            *self.bounds.entry(work.bound.clone()).or_default() += span.end_ns - span.start_ns;
        }
    }

    /// What bounds most of the time.
    fn bound(&self) -> String {
        self.bounds.iter().max_by_key(|(_, ns)| **ns).map(|(bound, _)| bound.clone()).unwrap_or_default()
    }

    fn per_second(&self, what: f64) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { what / self.duration_ns as f64 * 1e9 }
    }
}

/// Both tables of the phase that took `phase_us`, of the spans of all ranks; figures are the means
/// over the ranks.
pub(super) fn tables(
    plans: &[&Plan],
    spans: &[Span],
    phase_us: f64,
) -> (Vec<OperatorRow>, Vec<CollectiveRow>) {
    let mut operators: BTreeMap<(String, String, String), TimeSum> = BTreeMap::new();
    let mut collectives: BTreeMap<(String, String, usize, u64), TimeSum> = BTreeMap::new();
    // Names and shapes of a step are looked up once a rank, not once a span.
    for plan in plans {
        let of_rank = spans.iter().filter(|span| span.rank == plan.rank);
        for span in of_rank {
            let Some(step) = plan.steps.get(span.step) else { continue };
            let name = step_name(plan, step);
            match &step.action {
                Action::Exchange(exchange) => {
                    let group = plan.groups[exchange.group].len();
                    let bytes = span.work.as_ref().map_or(0.0, |work| work.bytes) as u64;
                    let key = (name, span.operator.clone(), group, bytes);
                    collectives.entry(key).or_default().add(span);
                }
                _ => operators.entry((name, span.operator.clone(), shapes(step))).or_default().add(span),
            }
        }
    }
    let ranks = plans.len().max(1) as f64;
    let times = |sum: &TimeSum| {
        let total_us = sum.duration_ns as f64 / 1e3 / ranks;
        let mean_us = sum.duration_ns as f64 / 1e3 / sum.count as f64;
        (total_us, mean_us, if phase_us > 0.0 { total_us / phase_us } else { 0.0 })
    };
    let operator = |((name, operator, shapes), sum): ((String, String, String), TimeSum)| {
        let (total_us, mean_us, share) = times(&sum);
        OperatorRow {
            name,
            operator,
            shapes,
            count: (sum.count as f64 / ranks).round() as usize,
            mean_us,
            total_us,
            share,
            bound: sum.bound(),
            bytes_per_s: sum.per_second(sum.bytes),
            flops_per_s: sum.per_second(sum.flops),
            flops_per_byte: if sum.bytes > 0.0 { sum.flops / sum.bytes } else { 0.0 },
        }
    };
    let collective = |((name, operator, group, bytes), sum): ((String, String, usize, u64), TimeSum)| {
        let (total_us, mean_us, share) = times(&sum);
        CollectiveRow {
            name,
            operator,
            group,
            bytes: bytes as f64,
            count: (sum.count as f64 / ranks).round() as usize,
            mean_us,
            wait_us: sum.wait_ns as f64 / 1e3 / sum.count as f64,
            total_us,
            share,
            bound: sum.bound(),
            bytes_per_s: sum.per_second(sum.bytes),
        }
    };
    let mut operators: Vec<OperatorRow> = operators.into_iter().map(operator).collect();
    let mut collectives: Vec<CollectiveRow> = collectives.into_iter().map(collective).collect();
    operators.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    collectives.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    (operators, collectives)
}
