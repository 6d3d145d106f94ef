//! The run: the session's own plans, by the executor that runs them on cards, on an emulator that has a clock and no numbers.

use std::sync::Arc;

use ascend_tp_emulator::{Config, Emulator, Lane, Mode, Numbers, Recording};

use crate::device::Cann;
use crate::exec::{Clock, Engine, EngineOptions, Inputs, Launching};
use crate::generate::{DECODE, PREFILL};
use crate::schedule::Plan;
use crate::schedule::plan::{Action, StreamKind};

use super::error::Error;
use super::memory::{Memory, refusal};
use super::setting::Setting;
use super::span::{Span, SpanWork};

/// Decode steps of which every span is kept; of the others only how long they took.
const DECODES_KEPT: usize = 3;

/// Runs before the first measured one in which an engine that captures its plans makes its graph of the decode step: an
/// eager one, and the one that records.
const RUNS_TO_CAPTURE: usize = 2;

/// One run of a program, span by span.
#[derive(Clone, Debug)]
pub struct Phase {
    /// `prefill`, `decode 1`.
    pub name: String,
    /// Index of its program.
    pub program: usize,
    /// When the ranks got their inputs, in nanoseconds of the virtual clock.
    pub start_ns: u64,
    /// When the last rank had its outputs.
    pub end_ns: u64,
    /// What the cards did, by rank and time.
    pub spans: Vec<Span>,
}

impl Phase {
    /// How long it took, in microseconds.
    #[must_use]
    pub fn duration_us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e3
    }
}

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
    pub memory: Memory,
}

/// Runs a setting that was checked.
pub(super) fn run(setting: &Setting) -> Result<Recorded, Error> {
    let programs = setting.compile()?;
    let soc = setting.profile.soc;
    let fullest = Memory::fullest(&programs, &setting.profile);
    if !fullest.fits() {
        return Err(Error::Refused(refusal(setting, &fullest)?.into()));
    }
    let placement = setting.placement();
    let emulator = Emulator::new(Config {
        soc,
        hbm_bytes: setting.profile.hbm_usable_bytes(),
        mode: Mode::Timed { numbers: Numbers::None },
        profile: setting.profile.clone(),
        topology: setting.topology.clone(),
        ..Config::with_cards(placement.iter().max().map_or(1, |last| last + 1))
    })?;
    let cann = Cann::new(emulator.table())?;
    let machine = emulator.clone();
    let options = EngineOptions {
        launching: setting.launching,
        cards: placement.clone(),
        clock: Some(Clock(Arc::new(move || machine.thread_now_ns()))),
        ..EngineOptions::default()
    };
    let mut engine = Engine::start_with(&cann, programs, &options)?;
    // The sum as the card has it; `tests/plan.rs` holds both equal to the byte.
    let used = emulator.usage().iter().map(|usage| usage.used_bytes).max().unwrap_or(0);
    let memory = Memory { used, ..fullest };
    let inputs = [PREFILL, DECODE].map(|program| inputs(&engine.plans(program)[0]));

    emulator.record_timeline(Recording::Nothing);
    if setting.launching == Launching::Captured {
        for _ in 0..RUNS_TO_CAPTURE {
            engine.run(DECODE, inputs[1].clone())?;
        }
    }
    let mut recorded = Recorder { emulator: &emulator, placement: &placement, phases: Vec::new() };
    recorded.run(&mut engine, "prefill".to_owned(), PREFILL, &inputs[0])?;
    let mut decode_ns = Vec::with_capacity(setting.output);
    for step in 0..setting.output {
        if step < DECODES_KEPT {
            recorded.run(&mut engine, format!("decode {}", step + 1), DECODE, &inputs[1])?;
        } else {
            engine.run(DECODE, inputs[1].clone())?;
        }
        let (start_ns, end_ns) = window(&engine);
        decode_ns.push(end_ns - start_ns);
    }
    let phases = recorded.phases;
    let programs = [PREFILL, DECODE].map(|program| engine.plans(program).to_vec()).to_vec();
    Ok(Recorded { phases, decode_ns, programs, memory })
}

struct Recorder<'a> {
    emulator: &'a Emulator,
    placement: &'a [usize],
    phases: Vec<Phase>,
}

impl Recorder<'_> {
    /// Runs a program and keeps its spans.
    fn run(&mut self, engine: &mut Engine, name: String, program: usize, inputs: &Inputs) -> Result<(), Error> {
        self.emulator.record_timeline(Recording::Everything);
        engine.run(program, inputs.clone())?;
        self.emulator.record_timeline(Recording::Nothing);
        let (start_ns, end_ns) = window(engine);
        let mut found = self.emulator.timeline();
        self.emulator.clear_timeline();
        found.sort_by_key(|span| (span.card, span.start_ns, span.end_ns));
        let mut spans = Vec::with_capacity(found.len());
        for (rank, card) in self.placement.iter().enumerate() {
            let plan = &engine.plans(program)[rank];
            let own = found.iter().filter(|span| span.card as usize == *card);
            let lanes: [&[Lane]; 2] = [&[Lane::Cube, Lane::Vector], &[Lane::Communication]];
            for (stream, lanes) in [StreamKind::Compute, StreamKind::Communication].into_iter().zip(lanes) {
                let works = |action: &Action| matches!(action, Action::Launch(_) | Action::Exchange(_));
                let steps = plan.steps.iter().enumerate();
                let steps: Vec<usize> =
                    steps.filter(|(_, step)| step.stream == stream && works(&step.action)).map(|(at, _)| at).collect();
                let own: Vec<_> = own.clone().filter(|span| lanes.contains(&span.lane)).collect();
                if own.len() != steps.len() {
                    let phase = if program == PREFILL { "prefill" } else { "decode" };
                    return Err(Error::Account { phase, rank, expected: steps.len(), found: own.len() });
                }
                spans.extend(own.into_iter().zip(steps).map(|(span, step)| Span {
                    rank,
                    stream,
                    step,
                    operator: span.name.to_owned(),
                    issued_ns: span.issued_ns,
                    arrived_ns: span.arrived_ns,
                    start_ns: span.start_ns,
                    end_ns: span.end_ns,
                    work: SpanWork { bound: span.bound.to_owned(), bytes: span.bytes, flops: span.flops },
                }));
            }
        }
        self.phases.push(Phase { name, program, start_ns, end_ns, spans });
        Ok(())
    }
}

/// From when the last rank began the last run to when the last rank had its outputs: between runs ranks are not in step,
/// and what one is ahead of the others counts in the run before.
fn window(engine: &Engine) -> (u64, u64) {
    let last = |of: fn(&std::ops::Range<u64>) -> u64| engine.run_times().iter().map(of).max().unwrap_or(0);
    (last(|time| time.start), last(|time| time.end))
}

/// Inputs of the right lengths; without numbers their contents are nobody's.
fn inputs(plan: &Plan) -> Inputs {
    let whole = |tensor: &crate::schedule::plan::Tensor| vec![0; tensor.shape.elems() * tensor.dtype.size_bytes()];
    plan.inputs.iter().map(|tensor| (tensor.name.clone(), Arc::new(whole(tensor)))).collect()
}
