//! An engine with its programs on emulated cards, which keep a clock and compute no numbers.
//!
//! - Invariant: times come from the machine's clock, bytes from its accounts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ascend_tp::emulator::{Config, Emulator, Lane, Mode, Numbers, Recording};
use ascend_tp_machine::HostCall;

use ascend_tp::device::Cann;
use ascend_tp::exec::{Clock, Engine, EngineOptions, Launching, NamedTensors, ProgramId};
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::{Action, StreamKind};
use ascend_tp::timeline::{Phase, Span, SpanWork, TimedCall};

use super::error::Error;
use super::setting::Site;

pub(super) struct EmulatedStage<'a> {
    site: &'a Site,
    placement: Vec<usize>,
    emulator: Emulator,
    engine: Engine,
    pub(super) phases: Vec<Phase>,
}

impl<'a> EmulatedStage<'a> {
    pub(super) fn open(
        site: &'a Site,
        programs: Vec<Vec<Plan>>,
        launching: Launching,
    ) -> Result<Self, Error> {
        let placement = site.placement();
        let emulator = Emulator::new(Config {
            soc: site.profile.soc,
            hbm_bytes: site.profile.hbm_usable_bytes(),
            mode: Mode::Timed { numbers: Numbers::None },
            profile: site.profile.clone(),
            topology: site.topology.clone(),
            ..Config::with_cards(placement.iter().max().map_or(1, |last| last + 1))
        })?;
        let cann = Cann::new(emulator.table())?;
        let machine = emulator.clone();
        let options = EngineOptions {
            launching,
            kernels: site.kernels.clone(),
            cards: placement.clone(),
            clock: Some(Clock(Arc::new(move || machine.thread_now_ns()))),
            ..EngineOptions::default()
        };
        let engine = Engine::start(&cann, programs, &options)?;
        emulator.record_timeline(Recording::Nothing);
        Ok(Self { site, placement, emulator, engine, phases: Vec::new() })
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.emulator.usage().iter().map(|usage| usage.used_bytes).max().unwrap_or(0)
    }

    /// Zeros: the emulator computes no numbers.
    pub(super) fn inputs(&self, program: ProgramId) -> NamedTensors {
        let plan = self.engine.plans(program).first();
        plan.map(|plan| NamedTensors::zeros(&plan.inputs)).unwrap_or_default()
    }

    pub(super) fn programs(&self, count: usize) -> Vec<Vec<Arc<Plan>>> {
        (0..count).map(|program| self.engine.plans(ProgramId(program)).to_vec()).collect()
    }

    pub(super) fn run(&mut self, program: ProgramId, inputs: &NamedTensors) -> Result<Range<u64>, Error> {
        self.engine.run(program, inputs)?;
        // From the last rank's start to the last rank's end. A rank's lead belongs to the run
        // before.
        let last = |of: fn(&Range<u64>) -> u64| self.engine.run_times().iter().map(of).max().unwrap_or(0);
        Ok(last(|time| time.start)..last(|time| time.end))
    }

    /// As [`EmulatedStage::run`], keeping every span. `is_replayed`: one call replays the program
    /// as a graph.
    pub(super) fn keep(
        &mut self,
        name: String,
        program: ProgramId,
        inputs: &NamedTensors,
        is_replayed: bool,
    ) -> Result<Range<u64>, Error> {
        self.emulator.record_timeline(Recording::Everything);
        let ns = self.run(program, inputs)?;
        self.emulator.record_timeline(Recording::Nothing);
        let mut timeline = self.emulator.timeline();
        self.emulator.clear_timeline();
        timeline.sort_by_key(|span| (span.card, span.start_ns, span.end_ns));
        let (mut spans, mut calls) = (Vec::with_capacity(timeline.len()), Vec::new());
        for (rank, card) in self.placement.iter().enumerate() {
            let plan = &self.engine.plans(program)[rank];
            let own = timeline.iter().filter(|span| span.card as usize == *card);
            let lanes = [Lane::Cube, Lane::Vector, Lane::Communication];
            let own: Vec<_> = own.filter(|span| lanes.contains(&span.lane)).collect();
            let mut replay = is_replayed.then_some("aclmdlRIExecuteAsync");
            // Streams with work have increasing numbers on the card.
            let mut numbers = own.iter().map(|span| span.stream).collect::<BTreeSet<_>>().into_iter();
            for stream in StreamKind::ALL {
                let works = |action: &Action| matches!(action, Action::Launch(_) | Action::Exchange(_));
                let steps = plan.steps.iter().enumerate();
                let steps: Vec<usize> = steps
                    .filter(|(_, step)| step.stream == stream && works(&step.action))
                    .map(|(at, _)| at)
                    .collect();
                // A fused product and exchange is one step but two spans.
                let joined = |at: usize| matches!(&plan.steps[at].action, Action::Exchange(of) if of.product.is_some());
                let expected: usize = steps.iter().map(|at| 1 + usize::from(joined(*at))).sum();
                let number = if steps.is_empty() { None } else { numbers.next() };
                let own: Vec<_> = own.iter().copied().filter(|span| Some(span.stream) == number).collect();
                if own.len() != expected {
                    return Err(Error::Account { phase: name, rank, expected, found: own.len() });
                }
                let mut own = own.into_iter();
                for step in steps {
                    let Some(span) = own.next() else { break };
                    let other = if joined(step) { own.next() } else { None };
                    // In a replayed graph, one call issues all spans.
                    if let Some(name) = if is_replayed { replay.take() } else { Some(span.name) } {
                        let cost_us = self.site.profile.host_us(HostCall::of(name), 0.0);
                        let start_ns = span.issued_ns.saturating_sub((cost_us * 1e3).round() as u64);
                        calls.push(TimedCall { rank, name: name.to_owned(), ns: start_ns..span.issued_ns });
                    }
                    let exchange = other.filter(|other| other.lane == Lane::Communication).unwrap_or(span);
                    let flops = span.flops + other.map_or(0.0, |other| other.flops);
                    let work = SpanWork { bound: exchange.bound.to_owned(), bytes: exchange.bytes, flops };
                    spans.push(Span {
                        rank,
                        stream,
                        step,
                        operator: span.name.to_owned(),
                        arrived_ns: span.arrived_ns,
                        start_ns: span.start_ns,
                        end_ns: other.unwrap_or(span).end_ns,
                        work: Some(work),
                    });
                }
            }
        }
        self.phases.push(Phase {
            name,
            program: program.0,
            start_ns: ns.start,
            end_ns: ns.end,
            spans,
            calls,
        });
        Ok(ns)
    }
}
