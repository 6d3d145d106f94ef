//! Replaces sums by sums through servers, as in a parameter server, for a comparison.
//!
//! Input: the plans of all ranks. Output: the same plans, with each sum reduced to one card of the
//! group, the server, and broadcast from there.
//!
//! Invariants: sums are assigned in plan order, each to the card of the group that serves the
//! fewest bytes so far. Buffers and all other steps stay the same. The server broadcasts the sum
//! instead of the updated weight, which has as many bytes, because all cards update their copies.
//!
//! Not here: exchanges that are no sums, and weight updates on the server alone.

use crate::base::{Diagnostics, Id, Reduce};

use super::plan::{Action, Collective, CollectiveKind, GroupId, Plan, Step};
use super::verify;

/// Returns the plans with a reduce and a broadcast in place of each summing `all_reduce`.
///
/// # Errors
/// Returns the problems that `verify` finds.
pub fn served(plans: &[Plan]) -> Result<Vec<Plan>, Diagnostics> {
    let served: Vec<Plan> = plans.iter().map(of_rank).collect();
    verify(&served)?;
    Ok(served)
}

fn of_rank(plan: &Plan) -> Plan {
    let mut bytes: Vec<Vec<usize>> = plan.groups.values().iter().map(|ranks| vec![0; ranks.len()]).collect();
    let mut steps = Vec::with_capacity(plan.steps.len());
    // `behind[n]`: number of new steps that replace the first `n` steps.
    let mut behind = vec![0];
    for step in &plan.steps {
        match &step.action {
            Action::Exchange(sum)
                if sum.product.is_none()
                    && sum.kind == (CollectiveKind::AllReduce { reduce: Reduce::Sum }) =>
            {
                let root = server(&mut bytes, sum.group, sum.send.elems() * sum.send.dtype.size_bytes());
                let step = |kind, send| Step {
                    action: Action::Exchange(Box::new(Collective { kind, send, ..Collective::clone(sum) })),
                    ..step.clone()
                };
                steps.push(step(CollectiveKind::Reduce { reduce: Reduce::Sum, root }, sum.send.clone()));
                steps.push(step(CollectiveKind::Broadcast { root }, sum.recv.clone()));
            }
            _ => steps.push(step.clone()),
        }
        behind.push(steps.len());
    }
    let mut served = Plan { steps, ..plan.clone() };
    for tap in &mut served.taps {
        tap.after_steps = behind[tap.after_steps];
    }
    served
}

fn server(bytes: &mut [Vec<usize>], group: GroupId, more: usize) -> usize {
    let served = &mut bytes[group.index()];
    let root = (0..served.len()).min_by_key(|at| served[*at]).unwrap_or(0);
    served[root] += more;
    root
}

/// Returns the bytes that a rank sends in the exchanges of its plan, for bandwidth-optimal
/// algorithms.
///
/// In a sum or a gather over `n` cards, 1/`n` of the data stays local. A server receives the data
/// of all other cards and sends the result to the same cards.
#[must_use]
pub fn sent_bytes(plan: &Plan) -> usize {
    let of_step = |step: &Step| {
        let Action::Exchange(exchange) = &step.action else { return 0 };
        let ranks = &plan.groups[exchange.group];
        let (cards, others) = (ranks.len(), ranks.len() - 1);
        let serves = |root: &usize| ranks[*root] == plan.rank;
        let elems = match &exchange.kind {
            CollectiveKind::AllReduce { .. } => 2 * others * exchange.send.elems() / cards,
            CollectiveKind::AllGather { .. } => others * exchange.send.elems(),
            CollectiveKind::ReduceScatter { .. } => exchange.send.elems() - exchange.recv.elems(),
            CollectiveKind::AllToAll { send_counts, .. } => {
                let own = ranks.iter().position(|rank| *rank == plan.rank).map_or(0, |at| send_counts[at]);
                exchange.send.elems() - own
            }
            CollectiveKind::Reduce { root, .. } => {
                if serves(root) {
                    0
                } else {
                    exchange.send.elems()
                }
            }
            CollectiveKind::Broadcast { root } => {
                if serves(root) {
                    others * exchange.send.elems()
                } else {
                    0
                }
            }
            CollectiveKind::Send { .. } => exchange.send.elems(),
            CollectiveKind::Receive { .. } => 0,
        };
        elems * exchange.send.dtype.size_bytes()
    };
    plan.steps.iter().map(of_step).sum()
}
