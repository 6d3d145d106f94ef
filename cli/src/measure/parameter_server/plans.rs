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

use ascend_tp::base::{Diagnostics, Id, Reduce};
use ascend_tp::schedule::plan::{Action, Collective, CollectiveKind, GroupId, Plan, Step};
use ascend_tp::schedule::verify;

/// Returns the plans with a reduce and a broadcast in place of each summing `all_reduce`.
pub(super) fn with_servers(plans: &[Plan]) -> Result<Vec<Plan>, Diagnostics> {
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
pub(super) fn sent_bytes(plan: &Plan) -> usize {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ascend_tp::Cann;
    use ascend_tp::config::ModelConfig;
    use ascend_tp::emulator::{Config, Emulator, Mode};
    use ascend_tp::schedule::{Target, text};
    use ascend_tp::train::data::Batch;
    use ascend_tp::train::{Layout, Recipe, Trainer, compile};

    use super::*;

    const LAYOUT: Layout = Layout { data: 3, micro_batch: 2, ..Layout::ONE };

    fn job() -> (ModelConfig, Recipe) {
        let config = ModelConfig::from_json(ModelConfig::SHIPPED).unwrap();
        let config = ModelConfig { layers: 1, vocab_size: 96, ..config };
        (config, Recipe { global_batch: 12, seq: 8, steps: 8, ..Recipe::default() })
    }

    fn run(mode: Mode, by_servers: bool) -> (Vec<u64>, BTreeMap<String, Vec<u8>>, Vec<String>) {
        let (config, recipe) = job();
        let emulator = Emulator::new(Config { mode, ..Config::with_cards(LAYOUT.cards()) }).unwrap();
        let cann = Cann::new(emulator.table()).unwrap();
        let mut compiled = compile(&config, &recipe, &LAYOUT, Target::ANY).unwrap();
        for (_, plans) in compiled.plans.iter_mut().filter(|_| by_servers) {
            *plans = with_servers(plans).unwrap();
        }
        let builder = Trainer::of_seed(&cann, &config, 5).recipe(recipe.clone()).layout(LAYOUT);
        let mut trainer = builder.compiled(compiled).start().unwrap();
        let batch = |step| Batch::scattered(step, recipe.global_batch, recipe.seq, config.vocab_size);
        let losses = (0..2).map(|step| trainer.step(&batch(step)).unwrap().loss.to_bits()).collect();
        let parts = trainer.parts().unwrap();
        let kept = trainer.sharding().whole(&parts);
        drop((trainer, cann));
        (losses, kept, emulator.reports().iter().map(ToString::to_string).collect())
    }

    /// The emulator's servers add in rank order, like its `all_reduce`.
    #[test]
    fn servers_give_the_bits_of_collectives() {
        let usual = run(Mode::Parallel, false);
        for mode in [Mode::Parallel, Mode::Strict { seed: 1 }, Mode::Strict { seed: 2 }] {
            assert!(run(mode, true) == usual, "{mode:?}");
        }
    }

    fn count(plan: &Plan, is_wanted: impl Fn(&CollectiveKind) -> bool) -> usize {
        plan.steps
            .iter()
            .filter(|step| matches!(&step.action, Action::Exchange(of) if is_wanted(&of.kind)))
            .count()
    }

    #[test]
    fn every_sum_has_a_server_and_no_byte_is_sent_twice() {
        let (config, recipe) = job();
        let (mut roots, mut sent) = (Vec::new(), [0.0; 2]);
        for (_, plans) in compile(&config, &recipe, &LAYOUT, Target::ANY).unwrap().plans {
            let by_servers = with_servers(&plans).unwrap();
            for (plan, found) in plans.iter().zip(&by_servers) {
                let sums = count(plan, |kind| matches!(kind, CollectiveKind::AllReduce { .. }));
                assert_eq!(count(found, |kind| matches!(kind, CollectiveKind::Reduce { .. })), sums);
                assert_eq!(count(found, |kind| matches!(kind, CollectiveKind::Broadcast { .. })), sums);
                assert_eq!(count(found, |_| true), count(plan, |_| true) + sums);
                assert_eq!(text::parse(&found.to_string()).unwrap(), *found);
            }
            roots.extend(by_servers[0].steps.iter().filter_map(|step| match &step.action {
                Action::Exchange(of) => match of.kind {
                    CollectiveKind::Reduce { root, .. } => Some(root),
                    _ => None,
                },
                _ => None,
            }));
            for (sent, plans) in sent.iter_mut().zip([&plans, &by_servers]) {
                *sent += plans.iter().map(sent_bytes).sum::<usize>() as f64;
            }
        }
        // Over `n` ranks both ways send 2 (n - 1) times the summed bytes, except for remainders.
        let [collectives, servers] = sent;
        assert!(
            collectives > 1e5 && (servers - collectives).abs() <= 1e-2 * collectives,
            "{servers} and {collectives} bytes"
        );
        roots.sort_unstable();
        roots.dedup();
        assert_eq!(roots, [0, 1, 2], "every card serves");
    }
}
