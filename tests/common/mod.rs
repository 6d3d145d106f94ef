//! Emulated machines, files of the workspace, and runs that return every value of every rank.
//!
//! Input: the plans of all ranks, and weights and inputs by name. Output: a [`Run`]. Comparisons
//! are elsewhere.

pub(crate) mod cases;
pub(crate) mod instruction_sets;
pub(crate) mod random;
pub(crate) mod trainers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ascend_tp::device::Cann;
use ascend_tp::exec::{Engine, EngineOptions, Error, NamedTensors, ProgramId};
use ascend_tp::generate::Model;
use ascend_tp::generate::verify::Reference;
use ascend_tp::program::{HostTensor, ValueId};
use ascend_tp::schedule::Plan;
use ascend_tp_emulator::{Config, Emulator};

pub(crate) type Tensors = BTreeMap<String, HostTensor>;

/// Returns a file or folder of the workspace.
pub(crate) fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns a tiny checkpoint with expected results.
pub(crate) fn fixture(name: &str) -> PathBuf {
    path("tests/fixtures").join(name)
}

pub(crate) fn open(folder: &Path) -> Model {
    Model::open(folder).unwrap_or_else(|problems| panic!("{}: {problems}", folder.display()))
}

pub(crate) fn shipped() -> Model {
    open(&path("models/kjv-qwen2"))
}

/// Opens a fixture with its logits and tokens from transformers.
pub(crate) fn with_reference(name: &str) -> (Model, Reference) {
    opened(&fixture(name))
}

/// Opens a checkpoint with the reference in its folder.
pub(crate) fn opened(folder: &Path) -> (Model, Reference) {
    let model = open(folder);
    let reference = Reference::open(&folder.join("expected.safetensors"), model.config.vocab_size).unwrap();
    (model, reference)
}

pub(crate) fn machine(config: Config) -> (Emulator, Arc<Cann>) {
    let emulator = Emulator::new(config).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    (emulator, cann)
}

/// Creates an emulated machine with a timeout of two minutes.
pub(crate) fn cann(cards: usize) -> Arc<Cann> {
    let limit = Duration::from_secs(120);
    machine(Config { connect_timeout: limit, exec_timeout: limit, ..Config::with_cards(cards) }).1
}

pub(crate) fn start(cann: &Arc<Cann>, plans: Vec<Plan>, params: &Tensors) -> Result<Engine, Error> {
    start_with(cann, plans, params, &EngineOptions::default())
}

pub(crate) fn start_with(
    cann: &Arc<Cann>,
    plans: Vec<Plan>,
    params: &Tensors,
    options: &EngineOptions,
) -> Result<Engine, Error> {
    let mut engine = Engine::start(cann, vec![plans], options)?;
    engine.fill(&named(params))?;
    Ok(engine)
}

fn named(tensors: &Tensors) -> NamedTensors {
    tensors.iter().map(|(name, tensor)| (name, tensor.clone())).collect()
}

pub(crate) struct Run {
    /// Whole outputs by name, from rank 0.
    pub(crate) outputs: Tensors,
    pub(crate) parts: BTreeMap<ValueId, Vec<HostTensor>>,
}

pub(crate) fn run(engine: &mut Engine, inputs: &Tensors) -> Result<Run, Error> {
    let plans = engine.plans(ProgramId(0)).to_vec();
    let mut parts: Vec<Vec<Option<HostTensor>>> = vec![vec![None; plans.len()]; plans[0].taps.len()];
    let outputs = engine.run_observed(ProgramId(0), &named(inputs), |seen| {
        let view = &plans[seen.rank].taps[seen.tap].view;
        let part = HostTensor::from_bytes(view.shape.clone(), view.dtype, &seen.bytes);
        parts[seen.tap][seen.rank] = Some(part);
    })?;
    let shown = |part: Option<HostTensor>| part.expect("every rank shows every value");
    let parts = plans[0]
        .taps
        .iter()
        .zip(parts)
        .map(|(tap, ranks)| (tap.value, ranks.into_iter().map(shown).collect()));
    let outputs = outputs.iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
    Ok(Run { outputs, parts: parts.collect() })
}
