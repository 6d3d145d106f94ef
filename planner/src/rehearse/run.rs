//! The run of a session's own plans: the prefill, then decode steps.

use std::sync::Arc;

use ascend_tp::exec::{Launching, NamedTensors};
use ascend_tp::generate::{DECODE, PREFILL};
use ascend_tp::program::models::input;
use ascend_tp::schedule::Plan;
use ascend_tp::timeline::Phase;

use super::error::Error;
use super::memory::{RehearsalMemory, hopeless, is_hopeless, refusal};
use super::setting::Setting;
use super::stage::Stage;

/// Decode steps of which every span is kept; of the others only how long they took.
const DECODES_KEPT: usize = 3;

/// Runs before the first measured one in which an engine that captures its plans makes its graph of
/// the decode step: an eager one, and the one that records.
const RUNS_TO_CAPTURE: usize = 2;

/// What a rehearsal saw.
#[derive(Debug)]
pub struct Recorded {
    /// The prefill and the first decode steps.
    pub phases: Vec<Phase>,
    /// How long each decode step took, in nanoseconds.
    pub decode_ns: Vec<u64>,
    /// The plans, by program and rank.
    pub programs: Vec<Vec<Arc<Plan>>>,
    /// Bytes of the fullest card, as the card accounts for them.
    pub memory: RehearsalMemory,
}

/// Has the mask of a decode step show the prompt and the tokens up to the step's own: what reads
/// keys reads no others.
fn show_keys(inputs: &mut NamedTensors, setting: &Setting, step: usize) {
    let room = setting.input + setting.output;
    inputs.set(
        input::MASK,
        (0..setting.batch * room).map(|at| at % room > setting.input + step).collect::<Vec<bool>>(),
    );
}

/// Runs a setting that was checked.
pub(super) fn run(setting: &Setting) -> Result<Recorded, Error> {
    // What no card holds is refused before the whole is compiled.
    if is_hopeless(setting) {
        return Err(Error::Refused(hopeless(setting)?.into()));
    }
    let programs = setting.compile()?;
    let fullest = RehearsalMemory::fullest(&programs, &setting.site.profile);
    if !fullest.fits() {
        return Err(Error::Refused(refusal(setting, &fullest)?.into()));
    }
    let mut stage = Stage::open(&setting.site, programs, setting.launching)?;
    // The sum as the card has it; `tests/plan.rs` holds both equal to the byte.
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
