//! Lookup of the program's streams, and enqueueing of entries.

use std::ffi::c_void;

use crate::base::failure::Failure;
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::runtime::stream::{Queued, StreamEntry};
use crate::runtime::thread;
use crate::state::MachineState;

impl Machine {
    /// NULL is the default stream of the current context. Returns the stream's number.
    pub(crate) fn enqueue(
        &self,
        stream: *mut c_void,
        entry: StreamEntry,
        accesses: Vec<MemoryAccess>,
    ) -> Result<u64, Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            let queued = self.queued(state, id, entry, accesses);
            state.enqueue(id, queued)?;
            Ok(id)
        })
    }

    pub(crate) fn queued(
        &self,
        state: &MachineState,
        stream: u64,
        entry: StreamEntry,
        accesses: Vec<MemoryAccess>,
    ) -> Queued {
        let on = state.runtime.streams.get(&stream);
        if let Some(on) = on.filter(|on| !on.is_default) {
            thread::set_last_task(self.key(), on.issued as u32 + 1);
        }
        let tag = on.and_then(|stream| stream.tag.clone());
        let issued_ns = thread::clock(self.key());
        Queued {
            entry,
            site: self.site(state, Some(stream)),
            accesses,
            tag,
            blame: None,
            thread: crate::scheduler::thread::system_number(),
            issued_ns,
        }
    }

    pub(crate) fn stream(&self, handle: *mut c_void) -> Result<u64, Failure> {
        self.lock().resolve_stream(handle, thread::context(self.key()))
    }

    pub(crate) fn stream_card(&self, handle: *mut c_void) -> Result<u32, Failure> {
        let state = self.lock();
        let id = state.resolve_stream(handle, thread::context(self.key()))?;
        Ok(state.runtime.streams[&id].card)
    }
}
