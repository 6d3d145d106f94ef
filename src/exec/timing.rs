//! When a rank's streams came to what a run gave them, by events of the card.
//!
//! Input → output: the steps of a plan as they are enqueued → [`Span`]s. Each begins and ends with
//! an event that keeps the time; one more at the beginning of the run says what time that is on the
//! host's clock; the host waits for it where each call is timed. An event is reached as soon as its
//! stream is free, so where the card waits for the host, what it takes to issue a call is part of
//! its span; profilers of the card know that better. Invariants: events are made once and used by
//! all timed runs; a run that is not timed has none. Clocks of several cards are laid side by side
//! by those of their hosts, to some tens of microseconds.

use std::sync::Arc;

use crate::device::{Device, Event, Result, Stream};
use crate::schedule::plan::{Action, Plan, Step, StreamKind};
use crate::timeline::Span;

use super::engine::Clock;

/// What of a run is timed. A run that is timed is eager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timed {
    /// No event is recorded beside those of the plan.
    #[default]
    No,
    /// Collectives, and the operators between two waits of their stream as one: from when the first
    /// could begin until the last has ended, time in which the host has not issued the next
    /// included. It costs four events a collective.
    Streams,
    /// Each operator and each collective: two events a call.
    Steps,
}

/// The events of timed runs.
#[derive(Default)]
pub(super) struct Timer {
    wanted: Timed,
    events: Vec<Event>,
    /// How many of them this run has used.
    used: usize,
    /// The host's time at the first of them.
    origin_ns: u64,
    /// By stream, what is under way: the first step, and the event at its beginning.
    open: [Option<(usize, usize)>; StreamKind::ALL.len()],
    marked: Vec<TimedSteps>,
}

/// A step, or the first of several, between two events.
struct TimedSteps {
    step: usize,
    start: usize,
    end: usize,
}

impl Timer {
    /// Begins a run, when all streams are idle.
    pub(super) fn begin(
        &mut self,
        wanted: Timed,
        device: &Arc<Device>,
        streams: &[Stream],
        clock: &Clock,
    ) -> Result<()> {
        self.wanted = wanted;
        self.used = 0;
        self.open = Default::default();
        self.marked.clear();
        let origin = self.record(device, &streams[StreamKind::Compute as usize])?;
        match wanted {
            Timed::No => {}
            // Else what needs nothing of the operators, such as a stage's first transfer, may be
            // there before the time is.
            Timed::Streams => {
                let others = &streams[StreamKind::Communication as usize..];
                others.iter().try_for_each(|stream| stream.enqueue_wait(&self.events[origin]))?;
            }
            Timed::Steps => self.events[origin].synchronize()?,
        }
        self.origin_ns = clock.now_ns();
        Ok(())
    }

    /// Before a step is enqueued.
    pub(super) fn before(
        &mut self,
        device: &Arc<Device>,
        streams: &[Stream],
        at: usize,
        step: &Step,
    ) -> Result<()> {
        let stream = step.stream as usize;
        let begins = match (&step.action, self.wanted) {
            (_, Timed::No) | (Action::Record(_), _) => false,
            (Action::Wait(_), _) => return self.close(device, streams, stream),
            (Action::Launch(_), Timed::Streams) => self.open[stream].is_none(),
            (Action::Launch(_), Timed::Steps) | (Action::Exchange(_), _) => true,
        };
        if begins {
            self.close(device, streams, stream)?;
            self.open[stream] = Some((at, self.record(device, &streams[stream])?));
        }
        Ok(())
    }

    /// After a step was enqueued.
    pub(super) fn after(&mut self, device: &Arc<Device>, streams: &[Stream], step: &Step) -> Result<()> {
        match (&step.action, self.wanted) {
            (Action::Exchange(_), _) | (Action::Launch(_), Timed::Steps) => {
                self.close(device, streams, step.stream as usize)
            }
            _ => Ok(()),
        }
    }

    /// After all steps were enqueued.
    pub(super) fn end(&mut self, device: &Arc<Device>, streams: &[Stream]) -> Result<()> {
        (0..streams.len()).try_for_each(|stream| self.close(device, streams, stream))
    }

    /// What was timed, once all streams are done. `operator` is the name of a step.
    pub(super) fn spans(&self, plan: &Plan, operator: &dyn Fn(usize) -> &'static str) -> Result<Vec<Span>> {
        let ns = |event: usize| -> Result<u64> {
            let since_us = self.events[event].elapsed_us(&self.events[0])?;
            Ok(self.origin_ns + (since_us * 1e3).round() as u64)
        };
        let span = |marked: &TimedSteps| -> Result<Span> {
            let (start_ns, end_ns) = (ns(marked.start)?, ns(marked.end)?);
            Ok(Span {
                rank: plan.rank,
                stream: plan.steps[marked.step].stream,
                step: marked.step,
                operator: operator(marked.step).to_owned(),
                arrived_ns: start_ns,
                start_ns,
                end_ns: end_ns.max(start_ns),
                work: None,
            })
        };
        self.marked.iter().map(span).collect()
    }

    fn close(&mut self, device: &Arc<Device>, streams: &[Stream], stream: usize) -> Result<()> {
        if let Some((step, start)) = self.open[stream].take() {
            let end = self.record(device, &streams[stream])?;
            self.marked.push(TimedSteps { step, start, end });
        }
        Ok(())
    }

    /// Records the next event on a stream; gives its number.
    fn record(&mut self, device: &Arc<Device>, stream: &Stream) -> Result<usize> {
        if self.used == self.events.len() {
            self.events.push(Event::with_time(device)?);
        }
        stream.enqueue_record(&self.events[self.used])?;
        self.used += 1;
        Ok(self.used - 1)
    }
}
