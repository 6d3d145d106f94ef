//! Work that streams record once and that is enqueued again as one.
//!
//! Input → output: what is enqueued on a stream between [`Stream::capture`] and [`Capture::end`], and on streams that join
//! it by waiting for an event recorded meanwhile → a [`Graph`]. Invariants: nothing runs while it is recorded; addresses
//! are those of the capture, contents are those of the replay; streams that joined lead back before the end. Operators that were
//! recorded as a group can be exchanged for the same ones with other arguments.

use std::sync::Arc;

use ascend_tp_sys::{aclmdlRI, aclmdlRICaptureMode, aclrtTaskGrp};

use super::card::{Device, same_device};
use super::error::Result;
use super::handle::Handle;
use super::stream::Stream;
use crate::base::Diagnostic;

/// A stream that records instead of running. Dropped without [`end`](Self::end), what it recorded is thrown away.
#[derive(Debug)]
pub struct Capture<'a> {
    stream: &'a Stream,
    groups: Vec<Handle>,
    ended: bool,
}

/// Recorded work of one card. Whoever has it keeps alive what the work reads and writes.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    handle: Handle,
    /// Groups of operators, in the order of the recording.
    groups: Vec<Handle>,
}

impl Stream {
    /// Records what this thread enqueues here from now on. Only this thread is kept from calls that would wait meanwhile.
    ///
    /// # Errors
    /// The stream records already, or has failed.
    pub fn capture(&self) -> Result<Capture<'_>> {
        let table = self.device().enter()?;
        let mode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and its card is current.
        let code = unsafe { (table.aclmdlRICaptureBegin)(self.raw(), mode) };
        self.device().check("aclmdlRICaptureBegin", code)?;
        Ok(Capture { stream: self, groups: Vec::new(), ended: false })
    }
}

impl Capture<'_> {
    /// Records the operators that `enqueue` gives this stream as a group; gives its number.
    ///
    /// # Errors
    /// Those of `enqueue`, or something else than operators.
    pub fn group(&mut self, enqueue: impl FnOnce() -> Result<()>) -> Result<usize> {
        let device = self.stream.device();
        let table = device.enter()?;
        // SAFETY: the stream is alive and records.
        let code = unsafe { (table.aclmdlRICaptureTaskGrpBegin)(self.stream.raw()) };
        device.check("aclmdlRICaptureTaskGrpBegin", code)?;
        enqueue()?;
        let table = device.enter()?;
        let mut handle: aclrtTaskGrp = std::ptr::null_mut();
        // SAFETY: the stream is alive and records a group; `handle` is valid for a write.
        let code = unsafe { (table.aclmdlRICaptureTaskGrpEnd)(self.stream.raw(), &raw mut handle) };
        device.check("aclmdlRICaptureTaskGrpEnd", code)?;
        self.groups.push(Handle(handle));
        Ok(self.groups.len() - 1)
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// A call that cannot be recorded was made, or a stream that joined does not lead back.
    pub fn end(mut self) -> Result<Graph> {
        self.ended = true;
        let device = self.stream.device();
        let table = device.enter()?;
        let mut handle: aclmdlRI = std::ptr::null_mut();
        // SAFETY: the stream is alive and records; `handle` is valid for a write.
        let code = unsafe { (table.aclmdlRICaptureEnd)(self.stream.raw(), &raw mut handle) };
        device.check("aclmdlRICaptureEnd", code)?;
        Ok(Graph { device: Arc::clone(device), handle: Handle(handle), groups: std::mem::take(&mut self.groups) })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let device = self.stream.device();
        let Some(table) = device.enter_teardown() else { return };
        let mut handle: aclmdlRI = std::ptr::null_mut();
        // SAFETY: the stream is alive and records; `handle` is valid for a write.
        let code = unsafe { (table.aclmdlRICaptureEnd)(self.stream.raw(), &raw mut handle) };
        // Why the recording is thrown away is known already; that it did not end well follows from it.
        if code == ascend_tp_sys::ACL_SUCCESS {
            drop(Graph { device: Arc::clone(device), handle: Handle(handle), groups: Vec::new() });
        }
    }
}

impl Graph {
    /// Exchanges the operators of a group for those that `enqueue` gives `stream`, the same ones in the same order, once the stream
    /// gets there. Replays have the new ones that are enqueued after it has.
    ///
    /// # Errors
    /// The stream is of another card or records, there is no such group, those of `enqueue`, or other operators.
    pub fn exchange(&self, group: usize, stream: &Stream, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
        same_device("exchange", &self.device, stream.device())?;
        let Some(handle) = self.groups.get(group) else {
            let problem = Diagnostic::new("graph", "has no such group of operators");
            return Err(problem.expected(format!("below {}", self.groups.len())).found(group).into());
        };
        let table = self.device.enter()?;
        // SAFETY: the stream is alive, and the group's graph too.
        let code = unsafe { (table.aclmdlRICaptureTaskUpdateBegin)(stream.raw(), handle.0) };
        self.device.check("aclmdlRICaptureTaskUpdateBegin", code)?;
        enqueue()?;
        let table = self.device.enter()?;
        // SAFETY: the stream is alive and in an update.
        let code = unsafe { (table.aclmdlRICaptureTaskUpdateEnd)(stream.raw()) };
        self.device.check("aclmdlRICaptureTaskUpdateEnd", code)
    }

    /// Enqueues all recorded work on `stream` and on streams of the graph's own, which lead back to it.
    ///
    /// # Errors
    /// The stream is of another card or has failed, or the library refuses.
    pub fn enqueue(&self, stream: &Stream) -> Result<()> {
        same_device("enqueue", &self.device, stream.device())?;
        let table = self.device.enter()?;
        // SAFETY: graph and stream are alive and of one card; the owner of the graph keeps its memory alive.
        let code = unsafe { (table.aclmdlRIExecuteAsync)(self.handle.0, stream.raw()) };
        self.device.check("aclmdlRIExecuteAsync", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // A graph that runs cannot be destroyed.
        self.device.synchronize_teardown();
        // SAFETY: nobody else has the graph, and its work is done.
        let code = unsafe { (table.aclmdlRIDestroy)(self.handle.0) };
        self.device.park("aclmdlRIDestroy", code);
    }
}
