//! Queues: start and end of the entry at the head of a stream.
//!
//! Invariants:
//! - At most one entry of a stream is in progress.
//! - Entries after a failure still run, unless the context stops on failure.
//! - An entry that never runs releases the threads and streams that wait for it.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::memory::access::MemoryAccess;
use crate::runtime::exception::FailedTask;
use crate::runtime::stream::{Queued, StreamEntry, StreamQueue, WaitReason, context_gone, no_context};
use crate::scheduler::launch::ReadyLaunch;
use crate::state::MachineState;

impl MachineState {
    /// NULL is the default stream of `current`. The stream must belong to the context `current`.
    pub(crate) fn resolve_stream(&self, handle: *const c_void, current: Option<u64>) -> Result<u64, Failure> {
        let current_id = current.ok_or_else(no_context)?;
        let context = self.runtime.contexts.get(&current_id).ok_or_else(|| context_gone(current_id))?;
        if handle.is_null() {
            return Ok(context.default_stream);
        }
        let id = HandleKind::Stream.decode(handle)?;
        let stream = self.runtime.streams.get(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        if stream.context != current_id {
            let what = format!(
                "stream {id} belongs to context {} on card {}, but context {current_id} on card {} is current on this \
                 thread; call aclrtSetCurrentContext or aclrtSetDevice first",
                stream.context, stream.card, context.card
            );
            return Err(Failure::new(code::STREAM_CONTEXT, what));
        }
        Ok(id)
    }

    pub(crate) fn enqueue(&mut self, id: u64, queued: Queued) -> Result<(), Failure> {
        if self.runtime.graphs.is_capturing(id) {
            return self.capture(id, queued);
        }
        if self.runtime.graphs.is_updating(id) {
            return self.take_replacement(id, queued);
        }
        let stream = self.runtime.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        if let Some(failure) = stream.refusal() {
            return Err(failure.clone());
        }
        if let Some(strict) = &mut self.strict
            && let Err(report) = strict.order.enqueued(id, &queued)
        {
            return Err(self.condemn(code::PARAM_INVALID, report, &[]));
        }
        let stream = self.runtime.streams.get_mut(&id).ok_or_else(|| HandleKind::Stream.gone(id))?;
        stream.issued += 1;
        stream.queue.push_back(queued);
        self.scheduler.ready.push(id);
        Ok(())
    }

    pub(crate) fn run_ready(&mut self) {
        self.recheck_values();
        while let Some(id) = self.scheduler.ready.pop() {
            self.advance(id);
        }
    }

    fn advance(&mut self, id: u64) {
        while self.runtime.streams.get(&id).is_some_and(StreamQueue::has_next) && self.start_head(id) {}
    }

    pub(crate) fn head_of(&self, id: u64) -> Option<(u32, &'static str, Option<Arc<str>>)> {
        let stream = self.runtime.streams.get(&id)?;
        let queued = stream.queue.front()?;
        Some((stream.card, queued.entry.name(), queued.tag.clone()))
    }

    pub(crate) fn is_any_under_way(&self) -> bool {
        self.runtime.streams.values().any(|stream| stream.under_way > 0)
    }

    /// Returns false if an injected delay holds the entry back.
    pub(crate) fn start_head(&mut self, id: u64) -> bool {
        let now_ns = self.now_ns();
        let clock = self.scheduler.clock;
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return false };
        if self.delays.keep(id, stream.card, || clock.unwrap_or_else(Instant::now)) {
            if let Some(until) = self.delays.earliest() {
                self.scheduler.limit(until);
            }
            return false;
        }
        let Some(queued) = stream.queue.pop_front() else { return false };
        stream.tag_under_way = queued.tag.clone();
        stream.thread_under_way = queued.thread;
        stream.blame_under_way = queued.blame;
        if let Some(failure) = stream.refusal().cloned() {
            stream.finish_one();
            self.discard(id, queued, &failure);
            return true;
        }
        stream.under_way = 1;
        let card = stream.card;
        if let Some(now_ns) = now_ns {
            stream.time.begin(queued.issued_ns, now_ns);
            stream.waits_for = queued.entry.wait_reason();
        }
        if let Some(strict) = &mut self.strict {
            stream.site_under_way = queued.site.clone();
            stream.waits_for = queued.entry.wait_reason();
            strict.order.started(id, &queued);
        }
        self.start(id, card, queued.entry);
        true
    }

    fn start(&mut self, id: u64, card: u32, entry: StreamEntry) {
        match entry {
            StreamEntry::Task { name, task, load, .. } if self.timed.is_some() => {
                self.start_load(id, name, task, load);
            }
            StreamEntry::Task { name, task: Some(task), is_brief, .. } => {
                self.scheduler.launches.push(ReadyLaunch::Task { stream: id, name, task, is_brief });
            }
            StreamEntry::Task { task: None, .. } => self.settle(id, Ok(())),
            StreamEntry::Record(record) => {
                self.complete_record(&record);
                self.settle(id, Ok(()));
            }
            StreamEntry::Wait(record) => {
                if record.wait_unless_over(id) {
                    self.drop_limit(id);
                    self.settle(id, Ok(()));
                } else {
                    self.begin_wait(id, WaitReason::Record(record));
                }
            }
            StreamEntry::Meet(rank_places) => {
                if let Some(stream) = self.runtime.streams.get_mut(&id) {
                    stream.under_way = rank_places.len();
                }
                for rank_place in rank_places {
                    self.arrive(rank_place, id);
                }
            }
            StreamEntry::NotifyRecord(notify) => {
                self.set_notify(notify);
                self.settle(id, Ok(()));
            }
            StreamEntry::NotifyWait(notify) => self.await_notify(notify, id),
            StreamEntry::Signal { event, act } => {
                self.reach_signal(event, act, id, WaitReason::Signal(event));
            }
            StreamEntry::Limit(limit) => {
                self.limit_next_wait(id, limit);
                self.settle(id, Ok(()));
            }
            StreamEntry::ValueWait(wait) => self.await_value(wait, id),
            StreamEntry::Callback(callback) => self.post_callback(callback, id),
            StreamEntry::HostFunction(body) => {
                self.scheduler.launches.push(ReadyLaunch::HostFunction { stream: id, card, body });
            }
        }
    }

    /// Only execution reveals the accesses of the task.
    pub(crate) fn note_touched(&mut self, id: u64, accesses: &[MemoryAccess]) {
        if let Some(strict) = &mut self.strict {
            strict.order.touched(id, accesses);
        }
    }

    /// Ends one part of the current entry of a stream. Ignores an unknown stream.
    pub(crate) fn settle(&mut self, id: u64, outcome: Result<(), Failure>) {
        // The failure of another stream may already have ended this one.
        let Some(stream) = self.runtime.streams.get_mut(&id).filter(|stream| stream.under_way > 0) else {
            return;
        };
        let mut failed = None;
        if let Err(failure) = outcome {
            let at = stream.tag_under_way.as_ref().map(|tag| format!(", at {tag:?}")).unwrap_or_default();
            let blamed = stream.blame_under_way.unwrap_or(id);
            let place = format!("stream {blamed} of card {}{at}: {}", stream.card, failure.message);
            self.runtime.exceptions.note(FailedTask {
                task: stream.finished as u32 + 1,
                stream: blamed as u32,
                thread: stream.thread_under_way,
                card: stream.card,
                code: failure.code,
            });
            failed = Some((blamed, Failure { message: place, ..failure }));
        }
        let now_ns = self.now_ns();
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return };
        stream.under_way -= 1;
        if stream.under_way == 0 {
            stream.finish_one();
            if let (Some(now_ns), Some(schedule)) = (now_ns, &mut self.timed)
                && stream.time.end(now_ns, stream.finished)
            {
                schedule.look();
            }
            stream.waits_for = None;
            self.scheduler.waits.forget(id);
            self.scheduler.ready.push(id);
            if let Some(strict) = &mut self.strict {
                strict.order.ended(id);
            }
        }
        if let Some((blamed, failure)) = failed {
            self.fail_stream(blamed, &failure);
        }
    }

    /// If the context stops on failure, all its streams stop and end their waits. Otherwise later
    /// entries still run.
    fn fail_stream(&mut self, id: u64, failure: &Failure) {
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return };
        stream.fail(failure);
        let context = stream.context;
        if !self.runtime.contexts.get(&context).is_some_and(|context| context.stops_on_failure) {
            return;
        }
        let going = self
            .runtime
            .streams
            .iter_mut()
            .filter(|(_, stream)| stream.context == context && !stream.is_stopped);
        let stopped: Vec<u64> = going
            .map(|(id, stream)| {
                stream.stop(failure);
                *id
            })
            .collect();
        for id in stopped {
            self.end_wait(id);
            self.leave_matchings(id, &Failure::left_by_peer(&failure.message));
            self.scheduler.ready.push(id);
        }
    }

    /// The entry's waiters are released or receive the failure.
    fn discard(&mut self, stream: u64, queued: Queued, why: &Failure) {
        if let Some(strict) = &mut self.strict {
            strict.order.discarded(stream);
        }
        match queued.entry {
            StreamEntry::Record(record) => self.lose_record(&record, why),
            StreamEntry::Meet(rank_places) => {
                for rank_place in rank_places {
                    self.abandon_matching(rank_place.matching, &Failure::left_by_peer(&why.message));
                }
            }
            StreamEntry::NotifyRecord(notify) => self.set_notify(notify),
            StreamEntry::Signal { event, act } => self.discard_signal(event, act),
            StreamEntry::Task { .. }
            | StreamEntry::Wait(_)
            | StreamEntry::NotifyWait(_)
            | StreamEntry::Limit(_)
            | StreamEntry::ValueWait(_)
            | StreamEntry::Callback(_)
            | StreamEntry::HostFunction(_) => {}
        }
    }

    /// Queued entries are discarded, and the stream's collectives fail for the other ranks.
    pub(crate) fn remove_stream(&mut self, id: u64, why: &str) {
        self.forget_captures(id);
        self.end_wait(id);
        let Some(mut stream) = self.runtime.streams.remove(&id) else { return };
        self.delays.forget(id);
        self.scheduler.waits.forget(id);
        let failure = Failure::new(code::STREAM_ABORT, format!("stream {id} of card {} {why}", stream.card));
        for queued in stream.queue.drain(..) {
            self.discard(id, queued, &failure);
        }
        self.leave_matchings(id, &Failure::left_by_peer(&failure.message));
        if let Some(strict) = &mut self.strict {
            strict.order.stream_removed(id);
        }
        stream.wake();
        if let Some(card) = self.runtime.cards.get_mut(stream.card as usize) {
            card.streams -= 1;
        }
    }

    /// Does not end waits for ranks (see [`MachineState::leave_matchings`]) and functions of the
    /// program. The next signal then releases another waiter.
    fn end_wait(&mut self, id: u64) {
        match self.runtime.streams.get_mut(&id).and_then(|stream| stream.waits_for.clone()) {
            Some(WaitReason::Record(record)) => record.release(id),
            Some(WaitReason::Notify(notify)) => self.leave_notify(notify, id),
            Some(WaitReason::Signal(event)) => self.leave_signal(event, id),
            Some(WaitReason::Value(_)) => {}
            Some(WaitReason::Meet(_) | WaitReason::Function) | None => return,
        }
        self.settle(id, Ok(()));
    }

    /// Discards the queue. A waiting entry ends at once, a running entry by itself.
    pub(crate) fn abort_stream(&mut self, id: u64) {
        let Some(stream) = self.runtime.streams.get(&id) else { return };
        let failure =
            Failure::new(code::STREAM_ABORT, format!("stream {id} of card {} was aborted", stream.card));
        self.end_stream(id, &failure);
    }

    pub(crate) fn end_stream(&mut self, id: u64, failure: &Failure) {
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return };
        stream.stop(failure);
        self.delays.forget(id);
        let discarded: Vec<Queued> = stream.queue.drain(..).collect();
        for queued in discarded {
            if let Some(stream) = self.runtime.streams.get_mut(&id) {
                stream.finish_one();
            }
            self.discard(id, queued, failure);
        }
        self.end_wait(id);
        self.leave_matchings(id, &Failure::left_by_peer(&failure.message));
    }

    pub(crate) fn fail_head(&mut self, id: u64, failure: Failure) {
        let Some(stream) = self.runtime.streams.get_mut(&id) else { return };
        let place = format!("stream {id} of card {}: {}", stream.card, failure.message);
        let failure = Failure { message: place, ..failure };
        if let Some(queued) = stream.queue.pop_front() {
            stream.finish_one();
            self.discard(id, queued, &failure);
        }
        self.fail_stream(id, &failure);
    }

    pub(crate) fn streams_of_card(&self, card: u32) -> Vec<u64> {
        self.runtime.streams.iter().filter(|(_, stream)| stream.card == card).map(|(id, _)| *id).collect()
    }
}
