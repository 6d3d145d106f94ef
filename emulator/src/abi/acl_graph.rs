//! AscendCL: capture into runtime models (`aclmdlRI`), their replay and update.

use std::ffi::{CStr, c_char, c_void};

use ascend_tp_sys::{aclmdlRI, aclmdlRICaptureMode, aclmdlRICaptureStatus, aclrtStream, aclrtTaskGrp};

use super::acl_stream::timeout_of_ms;
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::runtime::graph::CaptureStatus;
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;
use crate::runtime::thread::CaptureMode;

/// `ACL_MODEL_STREAM_FLAG_DEFAULT`, which is always refused.
const STREAM_FLAG_DEFAULT: u32 = 0x7FFF_FFFF;

fn parse_mode(mode: aclmdlRICaptureMode) -> Result<CaptureMode, Failure> {
    match mode {
        aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_GLOBAL => Ok(CaptureMode::Global),
        aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
        aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_RELAXED => Ok(CaptureMode::Relaxed),
        other => {
            let what = format!("capture mode {} is none of GLOBAL 0, THREAD_LOCAL 1, RELAXED 2", other.0);
            Err(Failure::new(code::PARAM_INVALID, what))
        }
    }
}

fn mode_in_c(mode: CaptureMode) -> aclmdlRICaptureMode {
    match mode {
        CaptureMode::Global => aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_RELAXED,
    }
}

impl Machine {
    pub(super) fn aclmdlRICaptureBegin(
        &self,
        stream: aclrtStream,
        mode: aclmdlRICaptureMode,
    ) -> Result<(), Failure> {
        let mode = parse_mode(mode)?;
        let stream = self.stream(stream)?;
        let thread = thread::name(self.key());
        self.update(|state| state.begin_capture(stream, mode, thread)).map(|_| ())
    }

    pub(super) fn aclmdlRICaptureEnd(
        &self,
        stream: aclrtStream,
        model_ri: Out<aclmdlRI>,
    ) -> Result<(), Failure> {
        if model_ri.is_null() {
            return Err(Failure::null("model_ri"));
        }
        let stream = self.stream(stream)?;
        let graph = self.update(|state| state.end_capture(stream))?;
        model_ri.set("model_ri", HandleKind::Graph.encode(graph))
    }

    pub(super) fn aclmdlRICaptureGetInfo(
        &self,
        stream: aclrtStream,
        status: Out<aclmdlRICaptureStatus>,
        model_ri: Out<aclmdlRI>,
    ) -> Result<(), Failure> {
        let stream = self.stream(stream)?;
        let found = self.lock().capture_status(stream);
        let (answer, graph) = match found {
            CaptureStatus::None => (aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_NONE, None),
            CaptureStatus::Active(graph) => {
                (aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, Some(graph))
            }
            CaptureStatus::Invalidated(graph) => {
                (aclmdlRICaptureStatus::ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, Some(graph))
            }
        };
        let handle = graph.map_or(std::ptr::null_mut(), |graph| HandleKind::Graph.encode(graph));
        status.set("status", answer)?;
        model_ri.set("model_ri", handle)
    }

    pub(super) unsafe fn aclmdlRICaptureThreadExchangeMode(
        &self,
        mode: Out<aclmdlRICaptureMode>,
    ) -> Result<(), Failure> {
        // SAFETY: the declaration requires a pointer to a mode.
        let wanted = parse_mode(unsafe { mode.get("mode") }?)?;
        let before = thread::set_capture_mode(self.key(), wanted);
        mode.set("mode", mode_in_c(before))
    }

    pub(super) fn aclmdlRICaptureTaskGrpBegin(&self, stream: aclrtStream) -> Result<(), Failure> {
        let stream = self.stream(stream)?;
        self.update(|state| state.begin_group(stream))
    }

    pub(super) fn aclmdlRICaptureTaskGrpEnd(
        &self,
        stream: aclrtStream,
        handle: Out<aclrtTaskGrp>,
    ) -> Result<(), Failure> {
        if handle.is_null() {
            return Err(Failure::null("handle"));
        }
        let stream = self.stream(stream)?;
        let group = self.update(|state| state.end_group(stream))?;
        handle.set("handle", HandleKind::TaskGroup.encode(group))
    }

    pub(super) fn aclmdlRICaptureTaskUpdateBegin(
        &self,
        stream: aclrtStream,
        handle: aclrtTaskGrp,
    ) -> Result<(), Failure> {
        let group = HandleKind::TaskGroup.decode(handle)?;
        let stream = self.stream(stream)?;
        self.update(|state| state.begin_update(stream, group))
    }

    /// The stream exchanges the operators when it reaches the update.
    pub(super) fn aclmdlRICaptureTaskUpdateEnd(&self, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        self.update(|state| {
            let task = state.end_update(id)?;
            let entry =
                StreamEntry::Task { name: "aclmdlRICaptureTaskUpdateEnd", task, load: None, is_brief: true };
            let queued = self.queued(state, id, entry, Vec::new());
            state.enqueue(id, queued)
        })
    }

    pub(super) fn aclmdlRIExecuteAsync(
        &self,
        model_ri: aclmdlRI,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        let stream = self.stream(stream)?;
        self.replay(graph, stream)
    }

    /// Uses a separate stream and waits for the end.
    pub(super) fn aclmdlRIExecute(&self, model_ri: aclmdlRI, timeout: i32) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        let timeout = timeout_of_ms(timeout)?;
        let current = thread::context(self.key());
        let stream = self.update(|state| {
            let (context, card) = state.current(current).map(|(id, context)| (id, context.card))?;
            state.create_stream(context, card, 0, 0, false)
        })?;
        let outcome = self.replay(graph, stream).and_then(|()| self.synchronize_stream(stream, timeout));
        self.update(|state| {
            state.remove_stream(stream, "was the stream of an aclmdlRIExecute that has ended");
        });
        outcome
    }

    pub(super) fn aclmdlRIBuildBegin(&self, model_ri: Out<aclmdlRI>, flag: u32) -> Result<(), Failure> {
        if model_ri.is_null() {
            return Err(Failure::null("model_ri"));
        }
        if flag != 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                format!("flag is {flag}; it is reserved and must be 0"),
            ));
        }
        let (current, name) = (thread::context(self.key()), thread::name(self.key()));
        let graph = self.update(|state| {
            let (context, card) = state.current(current).map(|(id, context)| (id, context.card))?;
            Ok::<_, Failure>(state.begin_build(context, card, name))
        })?;
        model_ri.set("model_ri", HandleKind::Graph.encode(graph))
    }

    /// Only streams that run from the start of the model can be bound.
    pub(super) fn aclmdlRIBindStream(
        &self,
        model_ri: aclmdlRI,
        stream: aclrtStream,
        flag: u32,
    ) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        if stream.is_null() {
            return Err(Failure::null("stream"));
        }
        match flag {
            0 => {}
            STREAM_FLAG_DEFAULT => {
                let what = "a stream that a branch or aclrtActiveStream starts (ACL_MODEL_STREAM_FLAG_DEFAULT) is not \
                            modelled by this emulator; bind it as ACL_MODEL_STREAM_FLAG_HEAD 0";
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, what));
            }
            other => {
                let what = format!("flag {other:#x} is neither HEAD 0 nor DEFAULT {STREAM_FLAG_DEFAULT:#x}");
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        }
        let stream = self.stream(stream)?;
        self.update(|state| state.bind_stream(graph, stream))
    }

    pub(super) fn aclmdlRIEndTask(&self, model_ri: aclmdlRI, stream: aclrtStream) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        let stream = self.stream(stream)?;
        self.update(|state| state.end_tasks(graph, stream))
    }

    pub(super) fn aclmdlRIBuildEnd(&self, model_ri: aclmdlRI, reserve: *mut c_void) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        if !reserve.is_null() {
            return Err(Failure::new(code::INVALID_PARAM, "reserve must be NULL"));
        }
        self.update(|state| state.end_build(graph))
    }

    pub(super) fn aclmdlRIUnbindStream(
        &self,
        model_ri: aclmdlRI,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        let stream = self.stream(stream)?;
        self.update(|state| state.unbind_stream(graph, stream))
    }

    fn replay(&self, graph: u64, stream: u64) -> Result<(), Failure> {
        self.update(|state| {
            state.replay(graph, stream, |state, stream, entry| self.queued(state, stream, entry, Vec::new()))
        })
    }

    pub(super) fn aclmdlRIGetId(&self, model_ri: aclmdlRI, model_ri_id: Out<u32>) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        let id = self.lock().runtime.graphs.number(graph)?;
        model_ri_id.set("model_ri_id", id)
    }

    pub(super) fn aclmdlRIDestroy(&self, model_ri: aclmdlRI) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        self.update(|state| state.destroy_graph(graph))
    }

    /// The verbose form adds nothing: operators have no kernel arguments here.
    pub(super) unsafe fn aclmdlRIDebugJsonPrint(
        &self,
        model_ri: aclmdlRI,
        path: *const c_char,
        flags: u32,
    ) -> Result<(), Failure> {
        let graph = HandleKind::Graph.decode(model_ri)?;
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        if flags > 1 {
            let what = format!("flags {flags:#x} is neither SUMMARY 0 nor VERBOSE 1");
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        // SAFETY: not NULL, so the C caller's string.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
        let text = self.lock().graph_json(graph)?;
        std::fs::write(&path, text).map_err(|error| {
            Failure::new(code::FILE_OPEN, format!("cannot write the graph to {path}: {error}"))
        })
    }
}
