//! Graphs: work that is captured once and replayed as a whole. A capture includes the streams that
//! join by waiting for an event recorded in between, and that must lead back before the end.
//!
//! Invariants: work does not run while it is captured. Replays use the captured addresses with the
//! current contents.

use std::sync::Arc;

use ascend_tp_sys::{aclmdlRI, aclmdlRICaptureMode, aclrtTaskGrp};

use super::card::{Device, same_device};
use super::error::Result;
use super::handle::Handle;
use super::stream::Stream;
use crate::base::Diagnostic;

/// A stream that captures work instead of running it. Dropping it without [`Self::end`]
/// discards the work.
#[derive(Debug)]
pub struct Capture<'a> {
    stream: &'a Stream,
    groups: Vec<Handle>,
    ended: bool,
}

/// Captured work of one card. The owner must keep alive all memory that the work uses.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    handle: Handle,
    groups: Vec<Handle>,
}

#[doc(hidden)]
impl Stream {
    /// Starts to capture the work that this thread enqueues here. Only this thread must avoid calls
    /// that wait.
    ///
    /// # Errors
    /// The stream is already capturing or has failed.
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
    /// Captures the operators of `enqueue` as a group and returns its number.
    ///
    /// # Errors
    /// The errors of `enqueue`, or it enqueues anything but operators.
    #[doc(hidden)]
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

    /// Ends the capture.
    ///
    /// # Errors
    /// A call could not be captured, or a stream that joined does not lead back.
    pub fn end(mut self) -> Result<Graph> {
        self.ended = true;
        let device = self.stream.device();
        let table = device.enter()?;
        let mut handle: aclmdlRI = std::ptr::null_mut();
        // SAFETY: the stream is alive and records; `handle` is valid for a write.
        let code = unsafe { (table.aclmdlRICaptureEnd)(self.stream.raw(), &raw mut handle) };
        device.check("aclmdlRICaptureEnd", code)?;
        Ok(Graph {
            device: Arc::clone(device),
            handle: Handle(handle),
            groups: std::mem::take(&mut self.groups),
        })
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
        if code == ascend_tp_sys::ACL_SUCCESS {
            drop(Graph { device: Arc::clone(device), handle: Handle(handle), groups: Vec::new() });
        }
    }
}

impl Graph {
    /// Replaces the operators of a group by the operators that `enqueue` puts on `stream`. They
    /// must be the same in the same order, and their arguments can differ. Replays enqueued after
    /// the stream has reached this point use them.
    ///
    /// # Errors
    /// The errors of `enqueue`. The stream is on another card or is capturing, the group does not
    /// exist, or the operators differ.
    #[doc(hidden)]
    pub fn exchange(
        &self,
        group: usize,
        stream: &Stream,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        same_device("exchange", &self.device, stream.device())?;
        let Some(handle) = self.groups.get(group) else {
            let problem = Diagnostic::new("graph", "does not have this group of operators");
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

    /// Enqueues all captured work on `stream` and on internal streams that join it again.
    ///
    /// # Errors
    /// The stream belongs to another card or has failed.
    pub fn enqueue(&self, stream: &Stream) -> Result<()> {
        same_device("enqueue", &self.device, stream.device())?;
        let table = self.device.enter()?;
        // SAFETY: graph and stream are alive and of one card; the owner of the graph keeps its
        // memory alive.
        let code = unsafe { (table.aclmdlRIExecuteAsync)(self.handle.0, stream.raw()) };
        self.device.check("aclmdlRIExecuteAsync", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Some(table) = self.device.enter_teardown() else { return };
        // A running graph cannot be destroyed.
        self.device.synchronize_teardown();
        // SAFETY: this is the only owner of the graph, and its work is done.
        let code = unsafe { (table.aclmdlRIDestroy)(self.handle.0) };
        self.device.park("aclmdlRIDestroy", code);
    }
}
