//! Training runs on emulated cards, with random weights and checkpoints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::config::ModelConfig;
use ascend_tp::schedule::Target;
use ascend_tp::train::checkpoint::{Checkpoint, Writer};
use ascend_tp::train::data::Batch;
use ascend_tp::train::{Compiled, Layout, Recipe, Trainer, compile};
use ascend_tp::world::ProcessGroup;
use ascend_tp_emulator::{Config, Emulator, Mode};
use tempfile::TempDir;

use super::cases::{cases, seed};
use super::machine;

pub(crate) fn cards(mode: Mode, count: usize) -> (Emulator, Arc<Cann>) {
    machine(Config { mode, ..Config::with_cards(count) })
}

pub(crate) fn start(cann: &Arc<Cann>, config: &ModelConfig, recipe: &Recipe, layout: Layout) -> Trainer {
    start_compiled(cann, config, recipe, layout, compile(config, recipe, &layout, Target::ANY).unwrap())
}

pub(crate) fn start_compiled(
    cann: &Arc<Cann>,
    config: &ModelConfig,
    recipe: &Recipe,
    layout: Layout,
    compiled: Compiled,
) -> Trainer {
    Trainer::of_seed(cann, config, 5)
        .recipe(recipe.clone())
        .layout(layout)
        .compiled(compiled)
        .start()
        .unwrap()
}

pub(crate) fn whole_parts(trainer: &mut Trainer) -> BTreeMap<String, Vec<u8>> {
    let parts = trainer.parts().unwrap();
    trainer.sharding().whole(&parts)
}

pub(crate) fn save(trainer: &mut Trainer, folder: &Path) {
    let group = Arc::new(ProcessGroup::alone());
    let mut writer = Writer::new(folder, None, trainer.sharding().clone(), group).unwrap();
    let state = serde_json::to_value(trainer.progress()).unwrap();
    writer.begin(trainer.next_step() as u64, state, trainer.parts().unwrap()).unwrap();
    writer.finish().unwrap();
}

pub(crate) fn saved(trainer: &mut Trainer) -> (TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    save(trainer, folder.path());
    let saved = Checkpoint::latest(folder.path()).unwrap().unwrap();
    saved.verify().unwrap();
    (folder, saved)
}

pub(crate) fn runs_in_any_order(config: &ModelConfig, recipe: &Recipe, layout: Layout, batch: &Batch) {
    let run = |mode: Mode| {
        let (emulator, cann) = cards(mode, layout.cards());
        let mut trainer = start(&cann, config, recipe, layout);
        let loss = trainer.step(batch).unwrap().loss;
        let kept = whole_parts(&mut trainer);
        drop((trainer, cann));
        (loss, kept, emulator.reports().iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let what = format!("{}, {layout:?}", recipe.pipeline);
    let (loss, kept, _) = run(Mode::Parallel);
    for seed in seed()..seed() + cases(1) as u64 {
        let (found, found_kept, reports) = run(Mode::Strict { seed });
        assert_eq!(reports, Vec::<String>::new(), "{what}, seed {seed}");
        assert!(found == loss && found_kept == kept, "{what}, seed {seed}: other bits");
    }
}
