//! Tables of operators and collectives: times, bounds, achieved rates.
//!
//! A row groups all steps with the same op, shapes and weight or value, in all layers.

use std::collections::BTreeMap;

use serde::Serialize;

use ascend_tp::call::{View, Views};
use ascend_tp::schedule::plan::{Action, Plan, Step};
use ascend_tp::timeline::{Span, step_name};

/// Equal steps on one card in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorRow {
    /// Name of the step, such as `matmul mlp.gate_proj.weight`.
    pub name: String,
    /// Name of the C function.
    pub operator: String,
    /// Operand shapes, such as `bf16[1,8192] × bf16[3072,8192] → bf16[1,3072]`.
    pub shapes: String,
    /// Steps on one card.
    pub count: usize,
    /// Mean time of a step, in microseconds.
    pub mean_us: f64,
    /// Total time of all steps, in microseconds.
    pub total_us: f64,
    /// Share of the phase.
    pub share: f64,
    /// Bound of most of the time: `cube`, `vector`, `memory` or `launch`.
    pub bound: String,
    /// Achieved memory bandwidth, in bytes per second.
    pub bytes_per_s: f64,
    /// Achieved floating-point operations per second.
    pub flops_per_s: f64,
    /// FLOPs per byte of memory traffic.
    pub flops_per_byte: f64,
}

/// Equal collectives on one card in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveRow {
    /// Name of the step, such as `all_reduce mlp.out`.
    pub name: String,
    /// Name of the C function.
    pub operator: String,
    /// Ranks in the group.
    pub group: usize,
    /// Bytes of the whole tensor.
    pub bytes: f64,
    /// Collectives on one card.
    pub count: usize,
    /// Mean time after the last rank arrives.
    pub mean_us: f64,
    /// Mean wait for the last rank.
    pub wait_us: f64,
    /// Total time of all collectives, in microseconds.
    pub total_us: f64,
    /// Share of the phase.
    pub share: f64,
    /// Bound of most of the time: latency, or a topology level.
    pub bound: String,
    /// Algorithm bandwidth, in bytes per second.
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

    fn bound(&self) -> String {
        self.bounds.iter().max_by_key(|(_, ns)| **ns).map(|(bound, _)| bound.clone()).unwrap_or_default()
    }

    fn per_second(&self, what: f64) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { what / self.duration_ns as f64 * 1e9 }
    }
}

/// Values are means over the ranks.
pub(super) fn tables(
    plans: &[&Plan],
    spans: &[Span],
    phase_us: f64,
) -> (Vec<OperatorRow>, Vec<CollectiveRow>) {
    let mut operators: BTreeMap<(String, String, String), TimeSum> = BTreeMap::new();
    let mut collectives: BTreeMap<(String, String, usize, u64), TimeSum> = BTreeMap::new();
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
