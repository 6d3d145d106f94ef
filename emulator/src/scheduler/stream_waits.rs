//! Blocked streams that a time limit or a value in memory releases.
//!
//! Limits are set before a wait (`aclrtWaitAndResetNotify`, `aclrtStreamWaitEventWithFlag`);
//! `aclrtValueWait` waits for a value. Invariants: a limit applies only to the next entry of its
//! stream. Values are compared whenever work ends or a call changes the scheduling state, without
//! polling.

use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::runtime::stream::WaitReason;
use crate::scheduler::stream_wait::{ValueWait, WaitLimit};
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn limit_next_wait(&mut self, stream: u64, limit: Duration) {
        self.scheduler.waits.ahead.insert(stream, limit);
    }

    pub(crate) fn drop_limit(&mut self, stream: u64) {
        self.scheduler.waits.ahead.remove(&stream);
    }

    pub(crate) fn begin_wait(&mut self, stream: u64, reason: WaitReason) {
        if let Some(stream) = self.runtime.streams.get_mut(&stream) {
            stream.waits_for = Some(reason);
        }
        if let Some(limit) = self.scheduler.waits.ahead.remove(&stream) {
            let until = self.scheduler.now() + limit;
            self.scheduler.waits.limits.insert(stream, WaitLimit { until, limit });
            self.scheduler.limit(until);
        }
    }

    pub(crate) fn expire_limits(&mut self) {
        if self.scheduler.waits.limits.is_empty() {
            return;
        }
        let now = self.scheduler.now();
        let due = |(stream, limited): (&u64, &WaitLimit)| (limited.until <= now).then_some(*stream);
        let due: Vec<u64> = self.scheduler.waits.limits.iter().filter_map(due).collect();
        for stream in due {
            let Some(limited) = self.scheduler.waits.limits.remove(&stream) else { continue };
            let what = match self.runtime.streams.get(&stream).and_then(|stream| stream.waits_for.clone()) {
                Some(WaitReason::Notify(notify)) => {
                    self.leave_notify(notify, stream);
                    format!("notify {notify} was not recorded")
                }
                Some(WaitReason::Signal(event)) => {
                    self.leave_signal(event, stream);
                    format!("event {event} was not recorded")
                }
                Some(WaitReason::Record(record)) => {
                    record.release(stream);
                    "the event was not recorded".to_owned()
                }
                _ => continue,
            };
            let what = format!("{what} within the limit of {} s", limited.limit.as_secs());
            self.settle(stream, Err(Failure::new(code::TASK_TIMEOUT, what)));
        }
    }

    pub(crate) fn await_value(&mut self, wait: ValueWait, stream: u64) {
        if wait.is_met() {
            self.settle(stream, Ok(()));
        } else {
            self.begin_wait(stream, WaitReason::Value(wait.place.address()));
            self.scheduler.waits.values.insert(stream, wait);
        }
    }

    pub(crate) fn recheck_values(&mut self) {
        if self.scheduler.waits.values.is_empty() {
            return;
        }
        let met: Vec<u64> = self
            .scheduler
            .waits
            .values
            .iter()
            .filter(|(_, wait)| wait.is_met())
            .map(|(stream, _)| *stream)
            .collect();
        for stream in met {
            self.settle(stream, Ok(()));
        }
    }
}
