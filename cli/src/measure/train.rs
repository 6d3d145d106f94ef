//! Time of a training step, compared with the same step in `PyTorch` (`cli/peers/train_torch.py`).
//!
//! The model is the shipped shape with random weights and tokens. A step lasts from the batch on
//! the host to the loss on the host. A token counts as 6·P + 12·L·h·s operations.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use super::error::Error;
use super::peers::PeerOutput;
use super::report::{Cell, CellForm, Column, MeasuredTable, column};
use super::{Bench, Effort, Samples};
use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::schedule::Target;
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compiled, Layout, Recipe, Trainer, compile, memory};
use ascend_tp_planner::decoder::Decoder;

#[derive(Clone, Copy)]
pub(super) struct BatchSize {
    pub(super) sequences: usize,
    /// Tokens per sequence.
    pub(super) tokens: usize,
}

const BATCH: BatchSize = BatchSize { sequences: 8, tokens: 256 };

/// Returns the batch for comparisons of gradient sums.
pub(super) const fn batch_of_sums(effort: Effort) -> BatchSize {
    match effort {
        Effort::Quick => BatchSize { tokens: BATCH.tokens / 32, ..BATCH },
        Effort::Full => BATCH,
    }
}

/// Steps of the peer after its first step.
const PEER_STEPS: usize = 8;

/// Steps of the schedule; later steps use its final learning rate.
const STEPS: usize = 1000;

#[derive(Clone, Copy)]
pub(crate) struct TrainCase {
    precision: TrainingPrecision,
    /// Data-parallel cards.
    data: usize,
    /// Tensor-parallel cards.
    tensor: usize,
}

pub(crate) const CASES: [TrainCase; 4] = [
    TrainCase { precision: TrainingPrecision::F32, data: 1, tensor: 1 },
    TrainCase { precision: TrainingPrecision::F32, data: 2, tensor: 4 },
    TrainCase { precision: TrainingPrecision::Bf16, data: 1, tensor: 1 },
    TrainCase { precision: TrainingPrecision::Bf16, data: 2, tensor: 4 },
];

pub(crate) const CARDS: usize = 8;

pub(crate) fn ours(bench: &Bench, case: TrainCase) -> Result<Samples, Error> {
    let TrainCase { precision, data, tensor } = case;
    let layout = Layout { data, tensor, micro_batch: BATCH.sequences.div_ceil(data), ..Layout::ONE };
    let mut running = RunningTraining::start(bench, precision, layout, BATCH, false)?;
    Samples::take(bench.effort.budget(), || running.step().map(|_| ()))
}

pub(super) struct RunningTraining {
    trainer: Trainer,
    batch: Batch,
    /// Total memory on the cards.
    pub(super) bytes: Bytes,
}

impl RunningTraining {
    pub(super) fn start(
        bench: &Bench,
        precision: TrainingPrecision,
        layout: Layout,
        batch: BatchSize,
        exact: bool,
    ) -> Result<Self, Error> {
        Self::start_with(bench, precision, layout, batch, exact, |_| Ok(()))
    }

    /// Starts a run; `change` may modify the compiled plans.
    pub(super) fn start_with(
        bench: &Bench,
        precision: TrainingPrecision,
        layout: Layout,
        batch: BatchSize,
        exact: bool,
        change: impl FnOnce(&mut Compiled) -> Result<(), Diagnostics>,
    ) -> Result<Self, Error> {
        let BatchSize { sequences: global_batch, tokens: seq } = batch;
        let config = ModelConfig::from_json(ModelConfig::SHIPPED)?;
        let recipe = Recipe { steps: STEPS, global_batch, seq, precision, exact, ..Recipe::default() };
        let mut compiled = compile(&config, &recipe, &layout, Target::ANY)?;
        change(&mut compiled)?;
        let bytes = memory::wanted(&compiled).iter().map(|(_, bytes)| *bytes).sum();
        let trainer = Trainer::of_seed(&bench.cann, &config, 0)
            .recipe(recipe)
            .layout(layout)
            .compiled(compiled)
            .start()?;
        Ok(Self { trainer, batch: Batch::scattered(0, global_batch, seq, config.vocab_size), bytes })
    }

    pub(super) fn step(&mut self) -> Result<f64, Error> {
        let began = Instant::now();
        self.trainer.step(&self.batch)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Returns whole weights and moments by name.
    pub(super) fn kept(&mut self) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let parts = self.trainer.parts()?;
        Ok(self.trainer.sharding().whole(&parts))
    }
}

pub(crate) fn argument(threads: usize) -> Result<Value, Error> {
    let config: Value = serde_json::from_str(ModelConfig::SHIPPED).map_err(|error| {
        Diagnostics::from(Diagnostic::new("models/kjv-qwen2/config.json", "invalid JSON").found(error))
    })?;
    let theta = ModelConfig::from_json(ModelConfig::SHIPPED)?.rope.theta;
    let mut told = serde_json::json!({
        "config": config, "batch": BATCH.sequences, "seq": BATCH.tokens, "threads": threads, "steps": PEER_STEPS,
        "dtypes": dtypes(),
    });
    told["config"]["rope_theta"] = theta.into();
    Ok(told)
}

fn dtypes() -> Vec<&'static str> {
    let mut names: Vec<&str> = CASES.iter().map(|case| case.precision.dtype().name()).collect();
    names.dedup();
    names
}

pub(crate) fn read(printed: &str) -> Result<PeerTimes, Diagnostic> {
    let mut written = PeerOutput::of(PEER, printed)?;
    let mut seconds = BTreeMap::new();
    for dtype in dtypes() {
        let times = written.seconds.remove(&format!("train {dtype}")).unwrap_or_default();
        if times.is_empty() || times.iter().any(|time| !time.is_finite() || *time <= 0.0) {
            let problem = Diagnostic::new(PEER, "cannot parse the output");
            return Err(problem.expected(format!("seconds of train {dtype}")).found(format!("{times:?}")));
        }
        seconds.insert(dtype, Samples::new(times));
    }
    Ok(PeerTimes { version: written.version, seconds })
}

pub(crate) const PEER: &str = "torch";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerTimes {
    pub(crate) version: String,
    seconds: BTreeMap<&'static str, Samples>,
}

/// Our times in the order of [`CASES`], and the peer's times if it is installed.
pub(crate) type Round = (Vec<Samples>, Option<PeerTimes>);

const COLUMNS: [Column; 13] = [
    column("dtype", "dtype", CellForm::Text),
    column("cards", "cards", CellForm::Whole),
    column("mesh", "mesh", CellForm::Text),
    column("step_ms", "step ms", CellForm::Decimal),
    column("tokens_per_second", "tokens/s", CellForm::Whole),
    column("gflops", "GFLOP/s", CellForm::Decimal),
    column("of_peak", "of peak", CellForm::Percent),
    column("peer", "peer", CellForm::Text),
    column("theirs_ms", "theirs ms", CellForm::Decimal),
    column("ratio", "times faster", CellForm::Decimal),
    column("least_ratio", "least", CellForm::Decimal),
    column("most_ratio", "most", CellForm::Decimal),
    column("rounds", "rounds", CellForm::Whole),
];

/// Returns medians over the rounds, and ratios by round. The peak rate is for the type of the
/// products.
pub(crate) fn table(bench: &Bench, rounds: &[Round], threads: usize) -> Result<MeasuredTable, Error> {
    let BatchSize { sequences, tokens } = BATCH;
    let flops =
        3.0 * Decoder::of(&ModelConfig::from_json(ModelConfig::SHIPPED)?).forward_flops_per_token(tokens);
    let title =
        format!("Training step of kjv-qwen2's shape, {sequences} × {tokens} tokens, on {threads} threads");
    let mut table = MeasuredTable::new("train", title, &COLUMNS);
    for (index, TrainCase { precision, data, tensor }) in CASES.into_iter().enumerate() {
        let dtype = precision.dtype();
        let median = |times: Vec<f64>| Samples::new(times).median();
        let ours = median(rounds.iter().map(|(ours, _)| ours[index].median()).collect());
        let theirs_of = |theirs: &PeerTimes| theirs.seconds.get(dtype.name()).map(Samples::median);
        let pairs: Vec<(f64, f64)> = rounds
            .iter()
            .filter_map(|(ours, theirs)| Some((ours[index].median(), theirs.as_ref().and_then(theirs_of)?)))
            .collect();
        let theirs = (!pairs.is_empty()).then(|| median(pairs.iter().map(|pair| pair.1).collect()));
        let ratios = Samples::new(pairs.iter().map(|(ours, theirs)| theirs / ours).collect());
        let ratio = |of: fn(&Samples) -> f64| Cell::from(theirs.map(|_| of(&ratios)));
        let version = rounds.last().and_then(|(_, theirs)| Some(theirs.as_ref()?.version.clone()));
        let rate = (sequences * tokens) as f64 / ours;
        let peak = if precision == TrainingPrecision::F32 {
            bench.limits.f32_flops
        } else {
            bench.limits.bf16_flops
        };
        table.row([
            dtype.name().into(),
            (data * tensor).into(),
            format!("dp={data},tp={tensor}").into(),
            (ours * 1e3).into(),
            rate.into(),
            (rate * flops / 1e9).into(),
            (rate * flops / peak).into(),
            version.into(),
            theirs.map(|seconds| seconds * 1e3).into(),
            ratio(Samples::median),
            ratio(Samples::min),
            ratio(Samples::max),
            rounds.len().into(),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round() {
        let theirs = |seconds: f64| {
            let steps = format!("{{\"train f32\": [{seconds}], \"train bf16\": [{seconds}]}}");
            read(&format!("a warning\n{{\"version\": \"torch 2\", \"seconds\": {steps}}}\n")).unwrap()
        };
        let ours = |seconds: f64| CASES.map(|_| Samples::new(vec![seconds])).to_vec();
        let rounds =
            [(ours(0.5), Some(theirs(1.0))), (ours(0.25), Some(theirs(1.0))), (ours(1.0), Some(theirs(1.0)))];
        let emulator =
            ascend_tp::emulator::Emulator::new(ascend_tp::emulator::Config::with_cards(1)).unwrap();
        let bench = Bench {
            cann: ascend_tp::Cann::new(emulator.table()).unwrap(),
            group: std::sync::Arc::new(ascend_tp::world::ProcessGroup::alone()),
            limits: super::super::Limits { f32_flops: 1e12, ..super::super::Limits::default() },
            effort: Effort::Quick,
        };
        let found = table(&bench, &rounds, 2).unwrap();
        let number = |key: &str| found.cells(key).find_map(Cell::number).unwrap();
        assert_eq!(
            (number("step_ms"), number("theirs_ms"), number("tokens_per_second")),
            (500.0, 1000.0, 4096.0)
        );
        assert_eq!((number("ratio"), number("least_ratio"), number("most_ratio")), (2.0, 1.0, 4.0));
        let alone = table(&bench, &[(ours(0.5), None)], 2).unwrap();
        assert!(alone.cells("ratio").all(|cell| *cell == Cell::Nothing));
    }

    #[test]
    fn a_peer_that_prints_something_else_is_refused() {
        for printed in ["fast", "{\"version\": \"torch 2\", \"seconds\": {\"train f32\": [0]}}"] {
            let message = read(printed).unwrap_err().to_string();
            assert!(message.starts_with("torch: cannot parse the output"), "{message}");
        }
        let told = argument(2).unwrap();
        assert_eq!(
            (told["config"]["hidden_size"].as_u64(), told["dtypes"][0].as_str()),
            (Some(256), Some("f32"))
        );
        assert!(told["config"]["rope_theta"].as_f64().unwrap() > 1.0);
    }
}
