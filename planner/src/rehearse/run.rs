//! Runs the prefill, then the decode steps.

use std::sync::Arc;

use ascend_tp::exec::{Launching, NamedTensors};
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::program::models::masks;
use ascend_tp::schedule::Plan;
use ascend_tp::timeline::Phase;

use super::error::Error;
use super::memory::{RehearsalMemory, hopeless, is_hopeless, refusal};
use super::setting::Setting;
use super::stage::EmulatedStage;

/// Decode steps with recorded spans. Later steps record only the duration.
const DECODES_KEPT: usize = 3;

/// Runs before a captured decode step is measured: one eager run, and one that records the graph.
const RUNS_TO_CAPTURE: usize = 2;

/// Recorded run of a rehearsal.
#[derive(Debug)]
pub struct Recorded {
    /// Prefill and first decode steps.
    pub phases: Vec<Phase>,
    /// Duration of each decode step.
    pub decode_ns: Vec<u64>,
    /// Plans by program and rank.
    pub programs: Vec<Vec<Arc<Plan>>>,
    /// Memory of the fullest card, from the emulator's accounts.
    pub memory: RehearsalMemory,
}

/// Shows the prompt and the tokens up to the step's own; attention reads only the keys shown.
fn show_keys(inputs: &mut NamedTensors, setting: &Setting, step: usize) {
    let room = setting.input + setting.output;
    for mask in masks(&setting.model) {
        let hides = |at: usize| mask.hides(setting.input + step, at % room);
        inputs.set(mask.name, (0..setting.batch * room).map(hides).collect::<Vec<bool>>());
    }
}

pub(super) fn run(setting: &Setting) -> Result<Recorded, Error> {
    if is_hopeless(setting) {
        return Err(Error::Refused(hopeless(setting)?.into()));
    }
    let programs = setting.compile()?;
    let fullest = RehearsalMemory::fullest(&programs, &setting.site.profile);
    if !fullest.fits() {
        return Err(Error::Refused(refusal(setting, &fullest)?.into()));
    }
    let mut stage = EmulatedStage::open(&setting.site, programs, setting.launching)?;
    // The emulator's sum equals the planned sum (`cli/tests/plan.rs`).
    let memory = RehearsalMemory { used: stage.used_bytes(), ..fullest };
    let inputs = [PREFILL, DECODE].map(|program| stage.inputs(program));
    let [prompt, mut token] = inputs;
    show_keys(&mut token, setting, 0);
    let is_captured = setting.launching == Launching::Captured;
    if is_captured {
        for _ in 0..RUNS_TO_CAPTURE {
            stage.run(DECODE, &token)?;
        }
    }
    stage.keep("prefill".to_owned(), PREFILL, &prompt, false)?;
    let mut decode_ns = Vec::with_capacity(setting.output);
    for step in 0..setting.output {
        show_keys(&mut token, setting, step);
        let ns = match step < DECODES_KEPT {
            true => stage.keep(format!("decode {}", step + 1), DECODE, &token, is_captured)?,
            false => stage.run(DECODE, &token)?,
        };
        decode_ns.push(ns.end - ns.start);
    }
    Ok(Recorded { programs: stage.programs(2), phases: stage.phases, decode_ns, memory })
}
