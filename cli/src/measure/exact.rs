//! Cost of ordered sums: alternating training steps of the shipped model's shape with and without
//! `--exact`.

use ascend_tp::train::Layout;
use ascend_tp::train::recipe::TrainingPrecision;

use super::error::Error;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::train::{BatchSize, RunningTraining, batch_of_sums};
use super::{Bench, Effort, Samples};

/// Product type, data-parallel cards, tensor-parallel cards, sequences in a micro-batch.
const CASES: [(TrainingPrecision, usize, usize, usize); 6] = [
    (TrainingPrecision::F32, 1, 1, 8),
    (TrainingPrecision::F32, 1, 1, 2),
    (TrainingPrecision::F32, 2, 4, 4),
    (TrainingPrecision::F32, 8, 1, 1),
    (TrainingPrecision::Bf16, 1, 1, 8),
    (TrainingPrecision::Bf16, 2, 4, 4),
];

/// Steps of each side; all cases take less than a minute.
const ROUNDS: usize = 3;

pub(crate) const CARDS: usize = 8;

const COLUMNS: [Column; 8] = [
    column("dtype", "dtype", CellForm::Text),
    column("mesh", "mesh", CellForm::Text),
    column("micro_batch", "micro-batch", CellForm::Whole),
    column("usual_ms", "default ms", CellForm::Decimal),
    column("exact_ms", "exact ms", CellForm::Decimal),
    column("ratio", "ratio", CellForm::Decimal),
    column("usual_bytes", "default bytes", CellForm::Whole),
    column("exact_bytes", "exact bytes", CellForm::Whole),
];

pub(crate) fn run(bench: &Bench) -> Result<MeasuredTable, Error> {
    let (rounds, cases) = match bench.effort {
        Effort::Quick => (1, &CASES[..1]),
        Effort::Full => (ROUNDS, &CASES[..]),
    };
    let batch = batch_of_sums(bench.effort);
    let BatchSize { sequences, tokens } = batch;
    let title = format!(
        "Training step of kjv-qwen2's shape, {sequences} × {tokens} tokens, with and without ordered sums"
    );
    let mut table = MeasuredTable::new("exact", title, &COLUMNS);
    for (precision, data, tensor, micro_batch) in cases.iter().copied() {
        let layout = Layout { data, tensor, micro_batch, ..Layout::ONE };
        let start = |exact| RunningTraining::start(bench, precision, layout, batch, exact);
        let mut both = [start(false)?, start(true)?];
        let mut times = [Vec::new(), Vec::new()];
        // The first step is a warm-up.
        for round in 0..=rounds {
            for (running, times) in both.iter_mut().zip(&mut times) {
                let seconds = running.step()?;
                if round > 0 {
                    times.push(seconds);
                }
            }
        }
        let [usual, exact] = times.map(|times| Samples::new(times).median());
        let bytes = |running: &RunningTraining| running.bytes.0 as usize;
        table.row([
            precision.dtype().name().into(),
            format!("dp={data},tp={tensor}").into(),
            micro_batch.into(),
            (usual * 1e3).into(),
            (exact * 1e3).into(),
            (exact / usual).into(),
            bytes(&both[0]).into(),
            bytes(&both[1]).into(),
        ]);
    }
    Ok(table)
}
