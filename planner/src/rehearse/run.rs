//! Runs the prefill, then the decode steps.

use std::sync::Arc;

use ascend_tp::exec::{Launching, NamedTensors};
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::program::models::cache_inputs;
use ascend_tp::schedule::Plan;
use ascend_tp::timeline::Phase;

use super::error::Error;
use super::memory::{RehearsalMemory, hopeless, is_hopeless, refusal};
use super::setting::Setting;
use super::stage::EmulatedStage;

/// Decode steps with recorded spans. Later steps record only the duration.
const DECODES_KEPT: usize = 3;

/// Runs before a captured decode step is measured: one eager run, and one that records the graph.
pub(super) const RUNS_TO_CAPTURE: usize = 2;

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

/// Sets the places of tokens: those of whole prompts, or of one token after the prompt and `step`
/// others. Attention reads the rows before them.
fn set_places(inputs: &mut NamedTensors, setting: &Setting, step: Option<usize>) {
    let deployment = setting.deployment();
    let (run, tokens) = match step {
        None => (deployment.prompts(&setting.model, setting.input), 0..setting.input),
        Some(step) => (deployment.step(&setting.model), setting.input + step..setting.input + step + 1),
    };
    for (name, places) in cache_inputs(run, &vec![tokens; setting.batch]) {
        inputs.set(name, places);
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
    let [mut prompt, mut token] = inputs;
    set_places(&mut prompt, setting, None);
    set_places(&mut token, setting, Some(0));
    let is_captured = setting.launching == Launching::Captured;
    if is_captured {
        for _ in 0..RUNS_TO_CAPTURE {
            stage.run(DECODE, &token)?;
        }
    }
    stage.keep("prefill".to_owned(), PREFILL, &prompt, false)?;
    let mut decode_ns = Vec::with_capacity(setting.output);
    for step in 0..setting.output {
        set_places(&mut token, setting, Some(step));
        let ns = match step < DECODES_KEPT {
            true => stage.keep(format!("decode {}", step + 1), DECODE, &token, is_captured)?,
            false => stage.run(DECODE, &token)?,
        };
        decode_ns.push(ns.end - ns.start);
    }
    Ok(Recorded { programs: stage.programs(2), phases: stage.phases, decode_ns, memory })
}
