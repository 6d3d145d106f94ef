//! Overhead of the runtime: time of the executor for a decode plan. The emulator only checks and
//! queues each call ([`Mode::HostOnly`]).
//!
//! | column | meaning |
//! |---|---|
//! | ns per step and rank | CPU time of the ranks' threads, divided by the plan steps of all ranks |
//! | wall | wall time, all ranks at once on the available cores, divided by plan steps |
//! | process | CPU time of the whole process, including the emulated cards, divided by plan steps |

use std::sync::Arc;
use std::time::Instant;

use ascend_tp::emulator::{Config, Emulator, Mode};
use rustix::time::{ClockId, clock_gettime};

use super::error::Error;
use super::generation::GenerationSetting;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::{Effort, Samples};
use ascend_tp::device::Cann;
use ascend_tp::exec::{Clock, Engine, EngineOptions, Launching, NamedTensors};
use ascend_tp::generate::DECODE;

const COLUMNS: [Column; 9] = [
    column("model", "model", CellForm::Text),
    column("cards", "ranks", CellForm::Whole),
    column("launching", "launching", CellForm::Text),
    column("steps", "steps per rank", CellForm::Whole),
    column("cpu_ns", "ns per step and rank", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("wall_ns", "wall", CellForm::Decimal),
    column("process_ns", "process", CellForm::Decimal),
    column("run_us", "µs per run", CellForm::Decimal),
];

/// The first run prepares the operators, and the second run of a captured plan records the graph.
const WARMUP: usize = 5;

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(crate) fn run(setting: &GenerationSetting, effort: Effort) -> Result<MeasuredTable, Error> {
    let title =
        format!("Executor overhead for the decode plan of {}, on cards that compute nothing", setting.name);
    let mut table = MeasuredTable::new("host", title, &COLUMNS);
    for cards in &setting.cards {
        let plans = setting.deployment(*cards).compile(&setting.model)?.into_vec();
        let emulator = Emulator::new(Config { mode: Mode::HostOnly, ..Config::with_cards(*cards) })?;
        let cann = Cann::new(emulator.table())?;
        for launching in [Launching::Eager, Launching::Captured] {
            let name = launching.name();
            let clock = Clock(Arc::new(|| now_ns(ClockId::ThreadCPUTime)));
            let options = EngineOptions { launching, clock: Some(clock), ..EngineOptions::default() };
            let mut engine = Engine::start(&cann, plans.clone(), &options)?;
            // The elements are never read.
            let inputs = NamedTensors::zeros(&engine.plans(DECODE)[0].inputs);
            for _ in 0..WARMUP {
                engine.run(DECODE, &inputs)?;
            }
            let (mut cpu, mut wall, mut process) = (Vec::new(), Vec::new(), Vec::new());
            let runs = match effort {
                Effort::Quick => 20,
                Effort::Full => 100,
            };
            for _ in 0..runs {
                let (started, all) = (Instant::now(), now_ns(ClockId::ProcessCPUTime));
                engine.run(DECODE, &inputs)?;
                wall.push(started.elapsed().as_secs_f64());
                process.push((now_ns(ClockId::ProcessCPUTime) - all) as f64 / 1e9);
                let of_ranks: u64 = engine.run_times().iter().map(|time| time.end - time.start).sum();
                cpu.push(of_ranks as f64 / 1e9);
            }
            let steps: usize = engine.plans(DECODE).iter().map(|plan| plan.steps.len()).sum();
            let (cpu, wall, process) = (Samples::new(cpu), Samples::new(wall), Samples::new(process));
            let each_ns = |samples: &Samples| samples.median() * 1e9 / steps as f64;
            table.row([
                setting.name.as_str().into(),
                (*cards).into(),
                name.into(),
                (steps / cards).into(),
                each_ns(&cpu).into(),
                cpu.spread().into(),
                each_ns(&wall).into(),
                each_ns(&process).into(),
                (wall.median() * 1e6).into(),
            ]);
        }
    }
    Ok(table)
}
