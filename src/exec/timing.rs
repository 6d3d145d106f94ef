//! Measures the work of streams with device events.
//!
//! Each [`Span`] is between two timed events. An event at the start of the run relates device time
//! to the host clock.
//!
//! Limits: if the device waits for the host, the time to issue a call is part of the span. The
//! clocks of several devices agree to some tens of microseconds, through their hosts.
//!
//! Invariant: events are created once and reused. An untimed run records none.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::device::{Device, Event, Result, Stream};
use crate::schedule::plan::{Action, Plan, Step, StreamKind};
use crate::timeline::Span;

/// Time of the calling thread. An emulated machine may provide its own.
#[derive(Clone)]
pub struct Clock(pub Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// Returns the host's clock, since 1970, shared by all processes of a host.
    #[must_use]
    pub fn of_host() -> Self {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Arc::new(move || u64::try_from(since().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the current time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Level of timing. Timed runs are eager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timed {
    /// Only the events of the plan.
    #[default]
    No,
    /// Each collective, and the operators between two waits of a stream as one span, including idle
    /// time before the next call. Four events per collective.
    Streams,
    /// Each operator and collective, two events per call.
    Steps,
}

#[derive(Default)]
pub(super) struct StepTimer {
    wanted: Timed,
    events: Vec<Event>,
    used: usize,
    origin_ns: u64,
    /// First step and start event of each open span.
    open: [Option<(usize, usize)>; StreamKind::ALL.len()],
    marked: Vec<TimedSteps>,
}

struct TimedSteps {
    step: usize,
    start: usize,
    end: usize,
}

impl StepTimer {
    /// Starts the timing of a run. Streams must be idle.
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
            // Otherwise, independent work, such as a stage's first transfer, could run before the
            // origin event.
            Timed::Streams => {
                let others = &streams[StreamKind::Communication as usize..];
                others.iter().try_for_each(|stream| stream.enqueue_wait(&self.events[origin]))?;
            }
            Timed::Steps => self.events[origin].synchronize()?,
        }
        self.origin_ns = clock.now_ns();
        Ok(())
    }

    pub(super) fn before(
        &mut self,
        device: &Arc<Device>,
        streams: &[Stream],
        step_index: usize,
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
            self.open[stream] = Some((step_index, self.record(device, &streams[stream])?));
        }
        Ok(())
    }

    pub(super) fn after(&mut self, device: &Arc<Device>, streams: &[Stream], step: &Step) -> Result<()> {
        match (&step.action, self.wanted) {
            (Action::Exchange(_), _) | (Action::Launch(_), Timed::Steps) => {
                self.close(device, streams, step.stream as usize)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn end(&mut self, device: &Arc<Device>, streams: &[Stream]) -> Result<()> {
        (0..streams.len()).try_for_each(|stream| self.close(device, streams, stream))
    }

    /// Requires idle streams. `operator` names a step.
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

    fn record(&mut self, device: &Arc<Device>, stream: &Stream) -> Result<usize> {
        if self.used == self.events.len() {
            self.events.push(Event::with_time(device)?);
        }
        stream.enqueue_record(&self.events[self.used])?;
        self.used += 1;
        Ok(self.used - 1)
    }
}
