//! A thread of the program waits for a stream or card.
//!
//! The thread spins for a bounded time (`spin`) and then sleeps. If the process has peers, the
//! thread also listens for notifications (`scheduler::bell`) and reads the end of a collective
//! itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::{Machine, WakeSource};
use crate::runtime::thread;
use crate::scheduler::bell::Bell;
use crate::scheduler::spin;
use crate::scheduler::wait::Wait;
use crate::strict::order::Waited;

struct BellListener<'a> {
    machine: &'a Machine,
    bell: &'a Arc<Bell>,
    heard: u32,
}

impl<'a> BellListener<'a> {
    /// The first check always finds a notification. `None` if the process has no notifications.
    fn open(machine: &'a Machine) -> Option<Self> {
        let bell = machine.network().bell()?;
        bell.listen();
        Some(Self { machine, bell, heard: bell.rings().wrapping_sub(1) })
    }

    fn has_rung(&self) -> bool {
        self.bell.rings() != self.heard
    }

    fn look(&mut self) -> bool {
        let has_rung = self.has_rung();
        if has_rung {
            self.heard = self.bell.rings();
            self.machine.read_tables();
        }
        has_rung
    }
}

impl Drop for BellListener<'_> {
    fn drop(&mut self) {
        self.bell.cease();
        // This thread must handle notifications that came while it was listening.
        self.look();
    }
}

impl Machine {
    pub(crate) fn synchronize_stream(&self, id: u64, timeout: Option<Duration>) -> Result<(), Failure> {
        self.update(|state| state.refuse_captured(id, "waiting for the end of work"))?;
        if !self.lock().runtime.streams.contains_key(&id) {
            return Err(HandleKind::Stream.gone(id));
        }
        let outcome = self.wait_for_stream(id, timeout);
        self.wake_at(None);
        if outcome? {
            return Ok(());
        }
        let what = format!("stream {id} was destroyed while this thread waited for it");
        Err(Failure::new(code::STREAM_ABORT, what))
    }

    fn wait_for_stream(&self, id: u64, timeout: Option<Duration>) -> Result<bool, Failure> {
        let deadline = timeout.map(|timeout| self.thread_now() + timeout);
        // Its drop takes the lock, so declare it before the guard.
        let mut listener = BellListener::open(self);
        let mut state = self.lock();
        let Some(stream) = state.runtime.streams.get(&id) else { return Ok(false) };
        let target = stream.issued;
        let is_conducted = state.scheduler.is_conducted();
        let mut has_looked = false;
        loop {
            let is_late = thread::take_late(self.key());
            let Some(stream) = state.runtime.streams.get(&id) else { return Ok(false) };
            if let Some(lost) =
                state.runtime.cards.get(stream.card as usize).and_then(|card| card.lost.clone())
            {
                return Err(lost);
            }
            let now = state.scheduler.now();
            let Some(stream) = state.runtime.streams.get_mut(&id) else { return Ok(false) };
            if stream.finished >= target && !is_late {
                thread::raise_clock(self.key(), stream.time.at_ns());
                let outcome = stream.failure.clone().map_or(Ok(true), Err);
                if let Some(strict) = &mut state.strict {
                    strict.order.host_waited(&Waited::Stream(id));
                }
                return outcome;
            }
            if is_late || deadline.is_some_and(|deadline| now >= deadline) {
                let left = target - stream.finished;
                let what = format!("stream {id} of card {} still has {left} unfinished entries", stream.card);
                return Err(Failure::new(code::STREAM_SYNC_TIMEOUT, what));
            }
            let done = Arc::clone(&stream.done);
            let wait = Wait::Stream { stream: id, target };
            if is_conducted {
                state = self.sleep(state, WakeSource::Signal(&done.changed), deadline, wait)?;
                continue;
            }
            if !std::mem::replace(&mut has_looked, true) {
                drop(state);
                let has_rung = || listener.as_ref().is_some_and(BellListener::has_rung);
                spin::until(|| done.finished.load(Ordering::Acquire) >= target || has_rung());
                // More notifications may follow soon, so spin again.
                has_looked = !listener.as_mut().is_some_and(BellListener::look);
                state = self.lock();
                continue;
            }
            stream.targets.push(target);
            let alarm = match &listener {
                Some(listener) => {
                    done.bell.get_or_init(|| Arc::clone(listener.bell));
                    has_looked = false;
                    WakeSource::Ring { bell: listener.bell, seen: listener.heard }
                }
                None => WakeSource::Signal(&done.changed),
            };
            state = self.sleep(state, alarm, deadline, wait)?;
            if let Some(stream) = state.runtime.streams.get_mut(&id)
                && let Some(own) = stream.targets.iter().position(|other| *other == target)
            {
                stream.targets.swap_remove(own);
            }
        }
    }

    /// Waits for all entries now on the card's streams. A stream destroyed meanwhile counts as
    /// done.
    ///
    /// Fails like the first failed stream, or at the time limit.
    pub(crate) fn synchronize_card(&self, card: u32, timeout: Option<Duration>) -> Result<(), Failure> {
        let deadline = timeout.map(|timeout| self.thread_now() + timeout);
        let streams = {
            let state = self.lock();
            state.refuse_captured_card(card, "aclrtSynchronizeDevice, which waits for all work,")?;
            state.streams_of_card(card)
        };
        let mut outcome = Ok(());
        for id in streams {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(self.thread_now()));
            outcome = outcome.and(self.wait_for_stream(id, left).map(|_| ()));
        }
        self.wake_at(None);
        outcome
    }
}
