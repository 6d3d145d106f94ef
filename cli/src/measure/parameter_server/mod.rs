//! Cost of a parameter server: training steps with gradient sums by servers and by collectives.
//!
//! Data-parallel cards train the shipped model's shape. Every card is a server for some sums and a
//! worker. The output has simulated and measured step times, sent bytes, and differences from the
//! weights of `all_reduce`. All plans come from one program and differ only in the sums.

mod plans;

use std::collections::BTreeMap;

use self::plans::{sent_bytes, with_servers};
use super::error::Error;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::train::{BatchSize, RunningTraining, batch_of_sums};
use super::{Bench, Effort, Samples};
use ascend_tp::base::Diagnostics;
use ascend_tp::exec::Launching;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compiled, Layout};
use ascend_tp_planner::simulate::Simulator;

pub(crate) const CARDS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SummedBy {
    Collectives,
    /// A tree for every sum, as with `--exact`.
    Trees,
    /// A server card for each sum.
    Servers,
}

impl SummedBy {
    const ALL: [Self; 3] = [Self::Collectives, Self::Trees, Self::Servers];

    const fn name(self) -> &'static str {
        match self {
            Self::Collectives => "all_reduce",
            Self::Trees => "exact",
            Self::Servers => "parameter server",
        }
    }
}

const COLUMNS: [Column; 8] = [
    column("sums", "gradient sum", CellForm::Text),
    column("mesh", "mesh", CellForm::Text),
    column("sent_bytes", "sent per card", CellForm::Bytes),
    column("clock_ms", "simulated step ms", CellForm::Decimal),
    column("exchanges_ms", "simulated exchanges ms", CellForm::Decimal),
    column("step_ms", "measured step ms", CellForm::Decimal),
    column("equal", "bit-equal values", CellForm::Percent),
    column("difference", "largest difference", CellForm::Text),
];

/// Cost on the simulated clock.
struct TimedStep {
    sent_bytes: usize,
    duration_us: f64,
    exchanges_us: f64,
}

impl TimedStep {
    fn of(compiled: &Compiled) -> Self {
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::atlas_a2(1));
        let cards: Vec<usize> = (0..CARDS).collect();
        let mut step = Self { sent_bytes: 0, duration_us: 0.0, exchanges_us: 0.0 };
        for (_, plans) in &compiled.plans {
            let run =
                Simulator::new(&profile, &topology, plans, &cards, None).run(Launching::Eager).breakdown;
            step.sent_bytes += plans.iter().map(sent_bytes).max().unwrap_or(0);
            step.duration_us += run.duration_us;
            step.exchanges_us += run.collectives_us;
        }
        step
    }
}

pub(crate) fn run(bench: &Bench) -> Result<MeasuredTable, Error> {
    let rounds = match bench.effort {
        Effort::Quick => 1,
        Effort::Full => 10,
    };
    let batch = batch_of_sums(bench.effort);
    let BatchSize { sequences, tokens } = batch;
    let title = format!(
        "Training step of kjv-qwen2's shape, {sequences} × {tokens} tokens in f32, by gradient sum; weights compared after {} steps",
        rounds + 1
    );
    let mut table = MeasuredTable::new("served", title, &COLUMNS);
    let layout = Layout { data: CARDS, micro_batch: sequences.div_ceil(CARDS), ..Layout::ONE };
    let mut usual: Option<BTreeMap<String, Vec<u8>>> = None;
    for sums in SummedBy::ALL {
        let mut clock = None;
        let change = |compiled: &mut Compiled| {
            for (_, plans) in compiled.plans.iter_mut().filter(|_| sums == SummedBy::Servers) {
                *plans = with_servers(plans)?;
            }
            clock = Some(TimedStep::of(compiled));
            Ok::<_, Diagnostics>(())
        };
        let mut running = RunningTraining::start_with(
            bench,
            TrainingPrecision::F32,
            layout,
            batch,
            sums == SummedBy::Trees,
            change,
        )?;
        let mut times = (0..=rounds).map(|_| running.step()).collect::<Result<Vec<f64>, _>>()?;
        times.remove(0);
        let kept = running.kept()?;
        let usual = usual.get_or_insert_with(|| kept.clone());
        let (equal, difference) = agreement(usual, &kept);
        let Some(TimedStep { sent_bytes, duration_us, exchanges_us }) = clock else { continue };
        table.row([
            sums.name().into(),
            format!("dp={CARDS}").into(),
            sent_bytes.into(),
            (duration_us / 1e3).into(),
            (exchanges_us / 1e3).into(),
            (Samples::new(times).median() * 1e3).into(),
            equal.into(),
            format!("{difference:.1e}").into(),
        ]);
    }
    Ok(table)
}

/// Returns the share of bit-equal elements, and the largest difference relative to the largest
/// element of the tensor.
fn agreement(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) -> (f64, f64) {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let (mut all, mut same, mut difference) = (0_usize, 0_usize, 0.0_f64);
    for (name, expected) in expected {
        let (expected, found) = (floats(expected), floats(found.get(name).map_or(&[], Vec::as_slice)));
        let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
        all += expected.len();
        for (expected, found) in expected.iter().zip(&found) {
            same += usize::from(expected.to_bits() == found.to_bits());
            let far = f64::from((expected - found).abs() / largest);
            difference = if far.is_nan() { f64::INFINITY } else { difference.max(far) };
        }
        if found.len() != expected.len() {
            difference = f64::INFINITY;
        }
    }
    (same as f64 / all.max(1) as f64, difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_or_other_bits_do_not_agree() {
        let tensor = |x: [f32; 2]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let of = |x| BTreeMap::from([("w".to_owned(), tensor(x))]);
        assert_eq!(agreement(&of([1.0, -4.0]), &of([1.0, -4.0])), (1.0, 0.0));
        assert_eq!(agreement(&of([1.0, -4.0]), &of([2.0, -4.0])), (0.5, 0.25));
        assert_eq!(agreement(&of([1.0, -4.0]), &BTreeMap::new()), (0.0, f64::INFINITY));
    }
}
