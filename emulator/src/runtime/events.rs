//! Records, waits and resets of events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::base::report::{Report, ReportKind};
use crate::machine::Machine;
use crate::runtime::event::{EXTERNAL, EventKind, EventRecord, EventState, SYNC, TIME_LINE};
use crate::runtime::graph::Outside;
use crate::runtime::signal::SignalAction;
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;
use crate::scheduler::wait::Wait;
use crate::state::MachineState;
use crate::strict::order::Waited;

impl MachineState {
    pub(crate) fn complete_record(&mut self, record: &EventRecord) {
        for stream in record.complete(self.scheduler.now()) {
            self.settle(stream, Ok(()));
        }
        self.scheduler.has_progressed = true;
    }

    /// A failed record stays incomplete and waiting streams are released.
    pub(crate) fn lose_record(&mut self, record: &EventRecord, why: &Failure) {
        for stream in record.lose(why) {
            self.settle(stream, Ok(()));
        }
        self.scheduler.has_progressed = true;
    }

    pub(crate) fn event(&mut self, id: u64) -> Result<&mut EventState, Failure> {
        self.runtime.events.get_mut(&id).ok_or_else(|| HandleKind::Event.gone(id))
    }

    /// A captured stream may not use an event shared between processes (CANN runtime reference,
    /// aclrtCreateEventExWithFlag).
    fn require_no_ipc_in_capture(&self, event: u64, stream: u64) -> Result<(), Failure> {
        if !self.runtime.graphs.is_capturing(stream) || self.shared_word(event).is_none() {
            return Ok(());
        }
        let what = format!("event {event} is an ACL_EVENT_IPC one, which captured streams do not take");
        Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what))
    }

    pub(crate) fn timestamp(&mut self, id: u64) -> Result<Instant, Failure> {
        let event = self.event(id)?;
        let invalid = |what: String| Failure::new(code::EVENT_TIMESTAMP_INVALID, what);
        if event.flags & TIME_LINE == 0 {
            let what = format!("event {id} keeps no time: create it with flag ACL_EVENT_TIME_LINE");
            return Err(invalid(what));
        }
        let Some(record) = &event.latest else {
            return Err(invalid(format!("event {id} has not been recorded")));
        };
        record.at().ok_or_else(|| invalid(format!("the record of event {id} is not done; synchronize first")))
    }
}

impl Machine {
    pub(crate) fn record_event(&self, event: u64, stream: *mut std::ffi::c_void) -> Result<(), Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let stream = state.resolve_stream(stream, current)?;
            let card = state.runtime.streams[&stream].card;
            let on = state.event(event)?.card;
            if on != card {
                let what = format!("event {event} belongs to card {on}, stream {stream} to card {card}");
                return Err(
                    Failure::new(code::PARAM_INVALID, what).found(ReportKind::WrongContext, Vec::new())
                );
            }
            if state.runtime.signals.contains_key(&event) {
                state.require_no_ipc_in_capture(event, stream)?;
                let value = state.shared_word(event).map_or(1, |word| word.ask_next());
                let entry = StreamEntry::Signal { event, act: SignalAction::Set(value) };
                let queued = self.queued(state, stream, entry, Vec::new());
                return state.enqueue(stream, queued);
            }
            let record = Arc::new(EventRecord::new(event, stream, self.site(state, Some(stream))));
            if state.runtime.graphs.is_any_capturing() {
                let captured =
                    self.queued(state, stream, StreamEntry::Record(Arc::clone(&record)), Vec::new());
                if state.capture_record(stream, event, captured)? {
                    return Ok(());
                }
            }
            let queued = self.queued(state, stream, StreamEntry::Record(Arc::clone(&record)), Vec::new());
            state.enqueue(stream, queued)?;
            state.event(event)?.latest = Some(record);
            Ok(())
        })
    }

    /// The record or wait takes effect at every replay.
    pub(crate) fn capture_outside(
        &self,
        event: u64,
        stream: *mut std::ffi::c_void,
        act: Outside,
    ) -> Result<(), Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let stream = state.resolve_stream(stream, current)?;
            let unknown = Arc::new(EventRecord::new(event, stream, None));
            let queued = self.queued(state, stream, StreamEntry::Wait(unknown), Vec::new());
            state.capture_outside(stream, event, act, queued)
        })
    }

    /// Waits for the event's last record so far.
    pub(crate) fn stream_wait_event(
        &self,
        stream: *mut std::ffi::c_void,
        event: u64,
        limit: Option<Duration>,
    ) -> Result<(), Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let stream = state.resolve_stream(stream, current)?;
            state.event(event)?;
            if state.runtime.signals.contains_key(&event) {
                return self.await_signal_event(state, stream, event, limit);
            }
            let event_state = state.event(event)?;
            if event_state.flags & SYNC == 0 {
                let what = format!("event {event} cannot be waited for: create it with flag ACL_EVENT_SYNC");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            let latest = event_state.latest.clone();
            if state.runtime.graphs.is_any_capturing() {
                let unknown = Arc::new(EventRecord::new(event, stream, None));
                let captured = self.queued(state, stream, StreamEntry::Wait(unknown), Vec::new());
                if state.capture_wait(stream, event, captured)? {
                    return Ok(());
                }
            }
            match latest {
                Some(record) => {
                    if let Some(limit) = limit {
                        let queued = self.queued(state, stream, StreamEntry::Limit(limit), Vec::new());
                        state.enqueue(stream, queued)?;
                    }
                    let queued = self.queued(state, stream, StreamEntry::Wait(record), Vec::new());
                    state.enqueue(stream, queued)
                }
                None => self.wait_before_record(state, event, Some(stream)),
            }
        })
    }

    /// Waits until the event's word reaches the value of the last record.
    fn await_signal_event(
        &self,
        state: &mut MachineState,
        stream: u64,
        event: u64,
        limit: Option<Duration>,
    ) -> Result<(), Failure> {
        state.require_no_ipc_in_capture(event, stream)?;
        let value = state.shared_word(event).map_or(1, |word| word.asked());
        if value == 0 {
            // No process has recorded the event.
            return Ok(());
        }
        let limit = limit.map(StreamEntry::Limit);
        for entry in limit.into_iter().chain([StreamEntry::Signal { event, act: SignalAction::Await(value) }])
        {
            let queued = self.queued(state, stream, entry, Vec::new());
            state.enqueue(stream, queued)?;
        }
        Ok(())
    }

    pub(crate) fn reset_event(&self, event: u64, stream: *mut std::ffi::c_void) -> Result<(), Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let stream = state.resolve_stream(stream, current)?;
            if state.event(event)?.flags & EXTERNAL != 0 {
                let entry = StreamEntry::Signal { event, act: SignalAction::Clear };
                let queued = self.queued(state, stream, entry, Vec::new());
                return state.enqueue(stream, queued);
            }
            state.refuse_captured(stream, "aclrtResetEvent")?;
            state.refuse_captured_event(event, "aclrtResetEvent")?;
            let event_state = state.event(event)?;
            if event_state.kind != EventKind::WithFlag || event_state.flags & SYNC == 0 {
                let what = format!(
                    "event {event} cannot be reset: only events of aclrtCreateEventWithFlag with ACL_EVENT_SYNC or \
                     ACL_EVENT_EXTERNAL can"
                );
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            event_state.latest = None;
            Ok(())
        })
    }

    /// A wait without a record ends at once. Strict mode refuses it, because it orders nothing.
    fn wait_before_record(
        &self,
        state: &mut MachineState,
        event: u64,
        stream: Option<u64>,
    ) -> Result<(), Failure> {
        if !state.is_strict() {
            return Ok(());
        }
        let what = format!(
            "event {event} is waited for, but no record is enqueued, so the wait orders nothing; call aclrtRecordEvent \
             first"
        );
        let sites = self.site(state, stream).into_iter().collect();
        Err(state.condemn(code::PARAM_INVALID, Report::new(ReportKind::WaitBeforeRecord, what, sites), &[]))
    }

    /// Waits for the event's last record so far.
    pub(crate) fn synchronize_event(&self, event: u64, timeout: Option<Duration>) -> Result<(), Failure> {
        let deadline = timeout.map(|timeout| self.thread_now() + timeout);
        let mut state = self.lock();
        state.refuse_captured_event(event, "aclrtSynchronizeEvent")?;
        if state.runtime.signals.contains_key(&event) {
            let Some(word) = state.shared_word(event) else {
                let what = format!(
                    "event {event} is an ACL_EVENT_EXTERNAL one, which streams wait for and threads do not"
                );
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            };
            drop(state);
            if word.wait(word.asked(), deadline) {
                return Ok(());
            }
            let what = format!("the last record of event {event} is not done yet");
            return Err(Failure::new(code::EVENT_SYNC_TIMEOUT, what));
        }
        let Some(record) = state.event(event)?.latest.clone() else {
            return self.wait_before_record(&mut state, event, None);
        };
        let ended = loop {
            let is_late = thread::take_late(self.key());
            if let (Some(ended), false) = (record.at(), is_late) {
                break ended;
            }
            if let Some(failure) = record.lost() {
                return Err(failure);
            }
            if is_late || deadline.is_some_and(|deadline| state.scheduler.now() >= deadline) {
                let what = format!("the last record of event {event} is not done yet");
                return Err(Failure::new(code::EVENT_SYNC_TIMEOUT, what));
            }
            state = self.watch(state, deadline, Wait::Record(Arc::clone(&record)))?;
        };
        self.wake_at(Some(ended));
        if let Some(strict) = &mut state.strict {
            strict.order.host_waited(&Waited::Record(record));
        }
        Ok(())
    }
}
