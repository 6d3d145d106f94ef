//! Notifies: one-bit flags between streams, set by one and awaited and cleared by another.
//!
//! Input: records and waits in stream order. Output: held and released streams. Invariant: one record releases one
//! wait; records do not add up. Does not: limit waits (see `scheduler::stream_wait`), or share between processes (see
//! `signal`, which a notify becomes when it is exported or imported).

use std::collections::VecDeque;

use crate::base::failure::Failure;
use crate::base::handle::HandleKind;
use crate::machine::State;
use crate::runtime::signal::Act;
use crate::runtime::stream::Hold;

/// Notifies one device can have (CANN guide, Atlas A2).
pub(crate) const MAX_NOTIFIES: usize = 8192;

/// One notify.
#[derive(Debug)]
pub(crate) struct Notify {
    pub(crate) card: u32,
    set: bool,
    held: VecDeque<u64>,
}

impl Notify {
    pub(crate) fn new(card: u32) -> Self {
        Self { card, set: false, held: VecDeque::new() }
    }

    /// It is exported: whether it is set, unless a stream waits for it.
    pub(crate) fn export(&mut self) -> Option<bool> {
        self.held.is_empty().then(|| std::mem::take(&mut self.set))
    }
}

impl State {
    /// A stream has reached a record: releases the stream that waits longest, or keeps the flag.
    pub(crate) fn set_notify(&mut self, id: u64) {
        if self.signals.contains_key(&id) {
            return self.discard_signal(id, Act::Set(1));
        }
        let Some(notify) = self.notifies.get_mut(&id) else { return };
        match notify.held.pop_front() {
            Some(stream) => self.settle(stream, Ok(())),
            None => notify.set = true,
        }
    }

    /// A stream has reached a wait.
    pub(crate) fn await_notify(&mut self, id: u64, stream: u64) {
        if self.signals.contains_key(&id) {
            return self.reach_signal(id, Act::Take, stream, Hold::Notify(id));
        }
        match self.notifies.get_mut(&id) {
            Some(notify) if notify.set => {
                notify.set = false;
                self.drop_limit(stream);
                self.settle(stream, Ok(()));
            }
            Some(notify) => {
                notify.held.push_back(stream);
                self.hold(stream, Hold::Notify(id));
            }
            None => self.settle(stream, Err(HandleKind::Notify.gone(id))),
        }
    }

    /// A stream waits no more.
    pub(crate) fn leave_notify(&mut self, id: u64, stream: u64) {
        self.leave_signal(id, stream);
        if let Some(notify) = self.notifies.get_mut(&id) {
            notify.held.retain(|held| *held != stream);
        }
    }

    /// Removes a notify; streams held by it fail.
    pub(crate) fn remove_notify(&mut self, id: u64) -> Result<(), Failure> {
        let notify = self.notifies.remove(&id).ok_or_else(|| HandleKind::Notify.gone(id))?;
        self.remove_signal(id, HandleKind::Notify);
        for stream in notify.held {
            self.settle(stream, Err(HandleKind::Notify.gone(id)));
        }
        Ok(())
    }
}
