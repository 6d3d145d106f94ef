//! AscendCL: events.

use std::time::Duration;

use ascend_tp_sys::{aclrtEvent, aclrtEventRecordedStatus, aclrtEventWaitStatus, aclrtStream};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::budget::MAX_EVENTS;
use crate::runtime::event::{self, EventKind, EventState};
use crate::runtime::graph::Outside;
use crate::strict::order::Waited;

/// Flags that can be combined.
const EVENT_FLAGS: u32 = event::SYNC | event::STREAM_PROGRESS | event::TIME_LINE;

/// `ACL_EVENT_DEVICE_USE_ONLY`, which is always refused.
const DEVICE_USE_ONLY: u32 = 0x10;

impl Machine {
    pub(super) fn aclrtCreateEvent(&self, event: Out<aclrtEvent>) -> Result<(), Failure> {
        self.create_event(event, EventKind::Plain, EVENT_FLAGS)
    }

    pub(super) fn aclrtCreateEventWithFlag(&self, event: Out<aclrtEvent>, flag: u32) -> Result<(), Failure> {
        self.create_event(event, EventKind::WithFlag, flag)
    }

    pub(super) fn aclrtCreateEventExWithFlag(
        &self,
        event: Out<aclrtEvent>,
        flag: u32,
    ) -> Result<(), Failure> {
        self.create_event(event, EventKind::ExWithFlag, flag)
    }

    fn create_event(&self, event: Out<aclrtEvent>, kind: EventKind, flags: u32) -> Result<(), Failure> {
        if event.is_null() {
            return Err(Failure::null("event"));
        }
        let (alone, of_its_kind) = match kind {
            EventKind::WithFlag => (event::EXTERNAL, ", or EXTERNAL 0x20 alone"),
            EventKind::ExWithFlag => (event::IPC, ", or IPC 0x40 alone"),
            EventKind::Plain => (0, ""),
        };
        if flags == 0 || (flags & !EVENT_FLAGS != 0 && flags != alone) {
            if flags == DEVICE_USE_ONLY {
                let what =
                    "ACL_EVENT_DEVICE_USE_ONLY events are for programs on the card, which are not modelled";
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
            let what = format!(
                "flag {flags:#x}: expected a sum of ACL_EVENT_SYNC 1, CAPTURE_STREAM_PROGRESS 2 and TIME_LINE 8{of_its_kind}"
            );
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let card = self.current_card()?;
        let signal = match flags {
            event::EXTERNAL => Some(self.own_signal()),
            // Any process of this user may open the event; `aclrtIpcGetEventHandle` takes no list.
            event::IPC => Some(self.shared_signal(card, false, false)?),
            _ => None,
        };
        let id = self.update(|state| {
            let on_card = &mut state.runtime.cards[card as usize];
            if on_card.events >= MAX_EVENTS {
                let what = format!("card {card} has all its {MAX_EVENTS} events in use; destroy some");
                return Err(Failure::new(code::NO_EVENT, what));
            }
            on_card.events += 1;
            let id = state.fresh_number();
            state.runtime.events.insert(id, EventState { card, kind, flags, latest: None });
            if let Some(signal) = signal {
                state.runtime.signals.insert(id, signal);
            }
            Ok(id)
        })?;
        event.set("event", HandleKind::Event.encode(id))
    }

    /// Streams that wait for a record keep waiting. Waits for a shared word end.
    pub(super) fn aclrtDestroyEvent(&self, event: aclrtEvent) -> Result<(), Failure> {
        let id = HandleKind::Event.decode(event)?;
        self.update(|state| {
            self.check_event_idle(state, id);
            let event = state.runtime.events.remove(&id).ok_or_else(|| HandleKind::Event.gone(id))?;
            state.runtime.cards[event.card as usize].events -= 1;
            state.remove_signal(id, HandleKind::Event);
            Ok(())
        })
    }

    pub(super) fn aclrtRecordEvent(&self, event: aclrtEvent, stream: aclrtStream) -> Result<(), Failure> {
        self.record_event(HandleKind::Event.decode(event)?, stream)
    }

    pub(super) fn aclrtResetEvent(&self, event: aclrtEvent, stream: aclrtStream) -> Result<(), Failure> {
        self.reset_event(HandleKind::Event.decode(event)?, stream)
    }

    pub(super) fn aclrtStreamWaitEvent(&self, stream: aclrtStream, event: aclrtEvent) -> Result<(), Failure> {
        let limit = self.lock().runtime.wait_limit;
        self.stream_wait_event(stream, HandleKind::Event.decode(event)?, limit)
    }

    pub(super) fn aclrtRecordEventWithFlag(
        &self,
        event: aclrtEvent,
        stream: aclrtStream,
        flag: u32,
    ) -> Result<(), Failure> {
        let event = HandleKind::Event.decode(event)?;
        if is_outside("ACL_EVENT_RECORD_EXTERNAL", flag)? {
            return self.capture_outside(event, stream, Outside::Record);
        }
        self.record_event(event, stream)
    }

    /// `timeout` is in seconds; 0 means no limit. An outside event has none (`acl_rt.h`).
    pub(super) fn aclrtStreamWaitEventWithFlag(
        &self,
        stream: aclrtStream,
        event: aclrtEvent,
        timeout: u32,
        flag: u32,
    ) -> Result<(), Failure> {
        if is_outside("ACL_EVENT_WAIT_EXTERNAL", flag)? {
            if timeout != 0 {
                let what =
                    format!("timeout: expected 0, no limit, with ACL_EVENT_WAIT_EXTERNAL, found {timeout}");
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
            return self.capture_outside(HandleKind::Event.decode(event)?, stream, Outside::Wait);
        }
        let limit = (timeout > 0).then(|| Duration::from_secs(u64::from(timeout)));
        self.stream_wait_event(stream, HandleKind::Event.decode(event)?, limit)
    }

    pub(super) fn aclrtSynchronizeEvent(&self, event: aclrtEvent) -> Result<(), Failure> {
        self.synchronize_event(HandleKind::Event.decode(event)?, None)
    }

    pub(super) fn aclrtSynchronizeEventWithTimeout(
        &self,
        event: aclrtEvent,
        timeout: i32,
    ) -> Result<(), Failure> {
        let timeout = super::acl_stream::timeout_of_ms(timeout)?;
        self.synchronize_event(HandleKind::Event.decode(event)?, timeout)
    }

    pub(super) fn aclrtQueryEventStatus(
        &self,
        event: aclrtEvent,
        status: Out<aclrtEventRecordedStatus>,
    ) -> Result<(), Failure> {
        let id = HandleKind::Event.decode(event)?;
        self.update(|state| state.refuse_captured_event(id, "aclrtQueryEventStatus"))?;
        let is_done = self.is_event_done(id)?;
        let answer = if is_done {
            aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE
        } else {
            aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY
        };
        status.set("status", answer)
    }

    /// Orders the host after a done record.
    fn is_event_done(&self, id: u64) -> Result<bool, Failure> {
        self.catch_up()?;
        let mut state = self.lock();
        if let Some(signal) = state.runtime.signals.get(&id) {
            return Ok(signal.shared().map_or_else(|| signal.is_set(), |word| word.has(word.asked())));
        }
        let event = state.event(id)?;
        // Only a kind that can be recorded repeatedly reports an event without a record as done
        // (AscendCL guide, aclrtRecordEvent).
        let Some(record) = event.latest.clone() else { return Ok(event.kind == EventKind::ExWithFlag) };
        let is_done = record.at().is_some();
        if is_done && let Some(strict) = &mut state.strict {
            strict.order.host_waited(&Waited::Record(record));
        }
        Ok(is_done)
    }

    /// Waits enqueued so far do not depend on later records.
    pub(super) fn aclrtQueryEventWaitStatus(
        &self,
        event: aclrtEvent,
        status: Out<aclrtEventWaitStatus>,
    ) -> Result<(), Failure> {
        let id = HandleKind::Event.decode(event)?;
        self.update(|state| state.refuse_captured_event(id, "aclrtQueryEventWaitStatus"))?;
        let is_done = self.is_event_done(id)?;
        let answer = if is_done {
            aclrtEventWaitStatus::ACL_EVENT_WAIT_STATUS_COMPLETE
        } else {
            aclrtEventWaitStatus::ACL_EVENT_WAIT_STATUS_NOT_READY
        };
        status.set("status", answer)
    }

    pub(super) fn aclrtEventElapsedTime(
        &self,
        ms: Out<f32>,
        start_event: aclrtEvent,
        end_event: aclrtEvent,
    ) -> Result<(), Failure> {
        let (start, end) = (HandleKind::Event.decode(start_event)?, HandleKind::Event.decode(end_event)?);
        let (started, ended) = {
            let mut state = self.lock();
            (state.timestamp(start)?, state.timestamp(end)?)
        };
        let Some(elapsed) = ended.checked_duration_since(started) else {
            let what = format!("the end event {end} was recorded before the start event {start}");
            return Err(Failure::new(code::EVENT_TIMESTAMP_REVERSAL, what));
        };
        ms.set("ms", elapsed.as_secs_f32() * 1e3)
    }

    /// Returns microseconds since the machine was built.
    pub(super) fn aclrtEventGetTimestamp(
        &self,
        event: aclrtEvent,
        timestamp: Out<u64>,
    ) -> Result<(), Failure> {
        let id = HandleKind::Event.decode(event)?;
        let at = self.lock().timestamp(id)?;
        timestamp.set("timestamp", at.duration_since(self.built()).as_micros() as u64)
    }
}

/// Such a record or wait synchronizes a captured graph with streams outside.
fn is_outside(external: &str, flag: u32) -> Result<bool, Failure> {
    match flag {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            Err(Failure::new(code::INVALID_PARAM, format!("flag {flag:#x} is neither 0 nor {external} (1)")))
        }
    }
}
