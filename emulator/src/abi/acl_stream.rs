//! AscendCL: streams and notifies.

use std::time::Duration;

use ascend_tp_sys::{aclrtNotify, aclrtStream, aclrtStreamState, aclrtStreamStatus};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::budget::MAX_NOTIFIES;
use crate::runtime::notify::Notify;
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;

/// The highest priority is 0.
const LEAST_PRIORITY: u32 = 7;
/// `FAST_LAUNCH` 1, `FAST_SYNC` 2, `PERSISTENT` 4, `HUGE` 8, `CPU` 0x10, `DEVICE_USE_ONLY` 0x20
/// (`acl_rt.h`).
const STREAM_FLAGS: u32 = 0x3F;
const DEVICE_USE_ONLY: u32 = 0x20;

pub(super) fn check_priority(priority: u32) -> Result<(), Failure> {
    if priority <= LEAST_PRIORITY {
        return Ok(());
    }
    let what = format!("priority: expected 0 to {LEAST_PRIORITY}, found {priority}");
    Err(Failure::new(code::INVALID_PARAM, what))
}

/// Converts milliseconds; -1 means no limit (AscendCL guide, …`WithTimeout`).
pub(super) fn timeout_of_ms(timeout: i32) -> Result<Option<Duration>, Failure> {
    match timeout {
        -1 => Ok(None),
        1.. => Ok(Some(Duration::from_millis(u64::from(timeout.cast_unsigned())))),
        _ => {
            let what = format!("timeout is {timeout} ms; it must be -1 (no limit) or more than 0");
            Err(Failure::new(code::INVALID_PARAM, what))
        }
    }
}

impl Machine {
    pub(super) fn aclrtCreateStream(&self, stream: Out<aclrtStream>) -> Result<(), Failure> {
        self.aclrtCreateStreamWithConfig(stream, 0, 0)
    }

    pub(super) fn aclrtCreateStreamWithConfig(
        &self,
        stream: Out<aclrtStream>,
        priority: u32,
        flag: u32,
    ) -> Result<(), Failure> {
        if stream.is_null() {
            return Err(Failure::null("stream"));
        }
        check_priority(priority)?;
        if flag & !STREAM_FLAGS != 0 {
            let what = format!("flag {flag:#x}: expected flags within {STREAM_FLAGS:#x}");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let current = thread::context(self.key());
        let id = self.update(|state| {
            let (context, card) = state.current(current).map(|(id, context)| (id, context.card))?;
            state.create_stream(context, card, priority, flag, false)
        })?;
        stream.set("stream", HandleKind::Stream.encode(id))?;
        self.tell_stream_state(id, aclrtStreamState::ACL_RT_STREAM_STATE_CREATE_POST);
        Ok(())
    }

    /// Waits for the queued tasks. A failure of the stream is returned after its destruction.
    pub(super) fn aclrtDestroyStream(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.explicit_stream(stream)?;
        self.update(|state| state.refuse_captured(id, "aclrtDestroyStream"))?;
        self.tell_stream_state(id, aclrtStreamState::ACL_RT_STREAM_STATE_DESTROY_PRE);
        let outcome = self.synchronize_stream(id, None);
        self.update(|state| state.remove_stream(id, "was destroyed"));
        outcome
    }

    pub(super) fn aclrtDestroyStreamForce(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.explicit_stream(stream)?;
        self.update(|state| state.refuse_captured(id, "aclrtDestroyStreamForce"))?;
        self.tell_stream_state(id, aclrtStreamState::ACL_RT_STREAM_STATE_DESTROY_PRE);
        self.update(|state| {
            self.check_stream_idle(state, id);
            state.remove_stream(id, "was destroyed by force");
        });
        Ok(())
    }

    pub(super) fn aclrtSynchronizeStream(&self, stream: aclrtStream) -> Result<(), Failure> {
        let outcome = self.synchronize_stream(self.stream(stream)?, None);
        self.check_zones();
        outcome
    }

    pub(super) fn aclrtSynchronizeStreamWithTimeout(
        &self,
        stream: aclrtStream,
        timeout: i32,
    ) -> Result<(), Failure> {
        let outcome = self.synchronize_stream(self.stream(stream)?, timeout_of_ms(timeout)?);
        self.check_zones();
        outcome
    }

    pub(super) fn aclrtStreamQuery(
        &self,
        stream: aclrtStream,
        status: Out<aclrtStreamStatus>,
    ) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        self.update(|state| state.refuse_captured(id, "aclrtStreamQuery"))?;
        self.catch_up()?;
        let answer = {
            let mut state = self.lock();
            let stream = state.runtime.streams.get(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
            if let Some(failure) = &stream.failure {
                return Err(failure.clone());
            }
            if stream.is_idle() {
                if let Some(strict) = &mut state.strict {
                    strict.order.host_saw_idle(id);
                }
                aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE
            } else {
                aclrtStreamStatus::ACL_STREAM_STATUS_NOT_READY
            }
        };
        status.set("status", answer)
    }

    pub(super) fn aclrtStreamGetId(&self, stream: aclrtStream, stream_id: Out<i32>) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        stream_id.set("stream_id", id as i32)
    }

    pub(super) fn aclrtStreamGetPriority(
        &self,
        stream: aclrtStream,
        priority: Out<u32>,
    ) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        let value = self.lock().runtime.streams[&id].priority;
        priority.set("priority", value)
    }

    pub(super) fn aclrtStreamGetFlags(&self, stream: aclrtStream, flags: Out<u32>) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        let value = self.lock().runtime.streams[&id].flags;
        flags.set("flags", value)
    }

    pub(super) fn aclrtDeviceGetStreamPriorityRange(
        &self,
        least: Out<i32>,
        greatest: Out<i32>,
    ) -> Result<(), Failure> {
        least.set("least_priority", LEAST_PRIORITY.cast_signed())?;
        greatest.set("greatest_priority", 0)
    }

    pub(super) fn aclrtStreamAbort(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        self.update(|state| {
            state.refuse_captured(id, "aclrtStreamAbort")?;
            state.abort_stream(id);
            Ok(())
        })
    }

    pub(super) fn aclrtSetStreamFailureMode(&self, stream: aclrtStream, mode: u64) -> Result<(), Failure> {
        self.set_failure_mode(stream, mode)
    }

    pub(super) fn set_failure_mode(&self, stream: aclrtStream, mode: u64) -> Result<(), Failure> {
        if mode > 1 {
            let what = format!("failure mode {mode} is neither CONTINUE 0 nor STOP 1");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let id = self.stream(stream)?;
        self.update(|state| {
            let stream = state.runtime.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
            if std::mem::replace(&mut stream.has_failure_mode, true) {
                let what = format!("the failure mode of stream {id} is set already; it can be set once");
                return Err(Failure::new(code::PARAM_INVALID, what));
            }
            let context = stream.context;
            // The mode applies to the whole context (AscendCL guide 8.5, restrictions of this
            // function).
            if let Some(context) = state.runtime.contexts.get_mut(&context) {
                context.stops_on_failure |= mode == 1;
            }
            Ok(())
        })
    }

    fn explicit_stream(&self, handle: aclrtStream) -> Result<u64, Failure> {
        if handle.is_null() {
            return Err(Failure::null("stream"));
        }
        let id = self.stream(handle)?;
        if self.lock().runtime.streams.get(&id).is_some_and(|stream| stream.is_default) {
            let what =
                format!("stream {id} is the default stream of a context and is destroyed with the context");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        Ok(id)
    }

    pub(super) fn aclrtCreateNotify(&self, notify: Out<aclrtNotify>, flag: u64) -> Result<(), Failure> {
        if notify.is_null() {
            return Err(Failure::null("notify"));
        }
        if flag > 1 {
            return Err(Failure::new(code::INVALID_PARAM, format!("flag {flag} is neither 0 nor 1")));
        }
        let card = self.current_card()?;
        let id = self.update(|state| {
            let on_card = &mut state.runtime.cards[card as usize];
            if on_card.notifies >= MAX_NOTIFIES {
                let what = format!("card {card} has all its {MAX_NOTIFIES} notifies in use; destroy some");
                return Err(Failure::new(code::NO_NOTIFY, what));
            }
            on_card.notifies += 1;
            let id = state.fresh_number();
            state.runtime.notifies.insert(id, Notify::new(card));
            Ok(id)
        })?;
        notify.set("notify", HandleKind::Notify.encode(id))
    }

    pub(super) fn aclrtDestroyNotify(&self, notify: aclrtNotify) -> Result<(), Failure> {
        let id = HandleKind::Notify.decode(notify)?;
        self.update(|state| {
            let card = state.runtime.notifies.get(&id).map(|notify| notify.card);
            self.check_notify_idle(state, id);
            state.remove_notify(id)?;
            if let Some(card) = card {
                state.runtime.cards[card as usize].notifies -= 1;
            }
            Ok(())
        })
    }

    pub(super) fn aclrtRecordNotify(&self, notify: aclrtNotify, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.live_notify(notify)?;
        let card = self.stream_card(stream)?;
        self.lock().require_reach(id, card)?;
        self.enqueue(stream, StreamEntry::NotifyRecord(id), Vec::new()).map(|_| ())
    }

    /// `timeout` is in seconds; 0 means no limit.
    pub(super) fn aclrtWaitAndResetNotify(
        &self,
        notify: aclrtNotify,
        stream: aclrtStream,
        timeout: u32,
    ) -> Result<(), Failure> {
        let id = self.live_notify(notify)?;
        let current = thread::context(self.key());
        self.update(|state| {
            let stream = state.resolve_stream(stream, current)?;
            if timeout > 0 {
                let limit = StreamEntry::Limit(Duration::from_secs(u64::from(timeout)));
                let queued = self.queued(state, stream, limit, Vec::new());
                state.enqueue(stream, queued)?;
            }
            let queued = self.queued(state, stream, StreamEntry::NotifyWait(id), Vec::new());
            state.enqueue(stream, queued)
        })
    }

    /// The emulator has no programs on the card to stop. Atlas A2 and A3 accept only streams with
    /// `ACL_STREAM_DEVICE_USE_ONLY` (CANN runtime reference, aclrtStreamStop).
    pub(super) fn aclrtStreamStop(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.explicit_stream(stream)?;
        if self.lock().runtime.streams.get(&id).is_some_and(|stream| stream.flags & DEVICE_USE_ONLY != 0) {
            return Ok(());
        }
        let what = format!(
            "stream {id} was not created with ACL_STREAM_DEVICE_USE_ONLY, and on an {} aclrtStreamStop takes no other; use \
             aclrtStreamAbort",
            self.config().soc.series()
        );
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    fn live_notify(&self, notify: aclrtNotify) -> Result<u64, Failure> {
        let id = HandleKind::Notify.decode(notify)?;
        if self.lock().runtime.notifies.contains_key(&id) { Ok(id) } else { Err(HandleKind::Notify.gone(id)) }
    }
}
