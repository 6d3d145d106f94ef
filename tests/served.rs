//! Sums through servers instead of `all_reduce`: equal results in any order of the ranks, and equal
//! bytes sent.

use std::collections::BTreeMap;

use ascend_tp::Cann;
use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::{Config, Emulator, Mode};
use ascend_tp::schedule::plan::{Action, CollectiveKind};
use ascend_tp::schedule::served::{sent_bytes, served};
use ascend_tp::schedule::{Plan, Target, text};
use ascend_tp::train::data::Batch;
use ascend_tp::train::{Layout, Recipe, Trainer, compile};

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
        *plans = served(plans).unwrap();
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
        let by_servers = served(&plans).unwrap();
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
