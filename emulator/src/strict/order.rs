//! What happened before what: the hooks by which scheduling tells of every step that orders work.
//!
//! Input: entries as they are enqueued, started and ended, waits of host threads, collectives. Output: reports about
//! work that nothing orders. Invariants: called under the state lock, in strict mode only. Does not: schedule.

use std::sync::Arc;

use crate::collective::meeting::Meeting;
use crate::event::Record;
use crate::failure::Failure;
use crate::machine::State;
use crate::stream::Queued;

/// What is known about the order of work.
#[derive(Debug, Default)]
pub(crate) struct Order {}

/// What a host thread has waited for.
#[derive(Debug, Clone)]
pub(crate) enum Waited {
    /// All entries of a stream enqueued before the call, the `issued`-th being the last.
    Stream { stream: u64, issued: u64 },
    /// A record of an event.
    Record(Arc<Record>),
}

/// The calling thread puts an entry at the end of a stream. A failure refuses the call.
pub(crate) fn enqueued(_state: &mut State, _stream: u64, _queued: &Queued) -> Result<(), Failure> {
    Ok(())
}

/// A stream has reached an entry: a task begins, a wait starts to hold, a rank arrives.
pub(crate) fn started(_state: &mut State, _stream: u64, _queued: &Queued) {}

/// The entry under way on a stream has ended, with its effects.
pub(crate) fn ended(_state: &mut State, _stream: u64) {}

/// An entry is dropped that will never run.
pub(crate) fn discarded(_state: &mut State, _stream: u64, _queued: &Queued) {}

/// All ranks have arrived and the data has moved; the entries of its streams end after this.
pub(crate) fn met(_state: &mut State, _meeting: &Meeting) {}

/// The calling thread has waited with success.
pub(crate) fn host_waited(_state: &mut State, _waited: &Waited) {}

/// The calling thread is one of `ranks` that built communicator `group` and knows that all of them came.
pub(crate) fn host_met(_state: &mut State, _group: u64) {}

/// The calling thread begins to run a function that was enqueued on a stream.
pub(crate) fn function_began(_state: &mut State, _stream: u64) {}

/// The calling thread has run a function that was enqueued on a stream; for a blocking one the entry ends after this.
pub(crate) fn function_ended(_state: &mut State, _stream: u64) {}
