//! AscendCL: profiling sessions and marks. Sessions are checked but record nothing. A mark names
//! the following tasks of its stream in reports and messages.

use std::ffi::c_char;

use ascend_tp_sys::{aclprofAicoreEvents, aclprofAicoreMetrics, aclprofConfig, aclrtStream};

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::memory::raw::load_array;
use crate::runtime::profile::{MAX_MARK_BYTES, MAX_PATH_BYTES};
use crate::runtime::thread;

impl Machine {
    pub(super) unsafe fn aclprofInit(
        &self,
        profiler_result_path: *const c_char,
        length: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes `length` bytes.
        let path =
            unsafe { load_text("profiler_result_path", profiler_result_path, length, MAX_PATH_BYTES) }?;
        if path.is_empty() {
            return Err(Failure::new(code::INVALID_PARAM, "profiler_result_path is empty; name a folder"));
        }
        self.update(|state| {
            state.require_initialized()?;
            state.runtime.profiling.open()
        })
    }

    pub(super) fn aclprofFinalize(&self) -> Result<(), Failure> {
        self.update(|state| state.runtime.profiling.close())
    }

    pub(super) unsafe fn aclprofCreateConfig(
        &self,
        device_id_list: *mut u32,
        device_nums: u32,
        _aicore_metrics: aclprofAicoreMetrics,
        _aicore_events: *const aclprofAicoreEvents,
        _data_type_config: u64,
    ) -> Result<*mut aclprofConfig, Failure> {
        let count = device_nums as usize;
        // SAFETY: the C caller passes one id per device.
        let cards = unsafe { load_array("device_id_list", device_id_list, count) }?;
        let exists = self.config().cards as u32;
        let twice = |at: usize| cards[..at].contains(&cards[at]);
        if let Some(at) = (0..cards.len()).find(|at| cards[*at] >= exists || twice(*at)) {
            let what =
                format!("device_id_list[{at}] is {}: expected ids below {exists}, each once", cards[at]);
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let id = self.update(|state| {
            let id = state.fresh_number();
            state.runtime.profiling.create(id, cards);
            id
        });
        Ok(HandleKind::ProfilingConfig.encode(id).cast())
    }

    pub(super) fn aclprofDestroyConfig(&self, profiler_config: *const aclprofConfig) -> Result<(), Failure> {
        let id = HandleKind::ProfilingConfig.decode(profiler_config.cast())?;
        self.update(|state| state.runtime.profiling.destroy(id))
    }

    pub(super) fn aclprofStart(&self, profiler_config: *const aclprofConfig) -> Result<(), Failure> {
        let id = HandleKind::ProfilingConfig.decode(profiler_config.cast())?;
        self.update(|state| state.runtime.profiling.start(id))
    }

    pub(super) fn aclprofStop(&self, profiler_config: *const aclprofConfig) -> Result<(), Failure> {
        let id = HandleKind::ProfilingConfig.decode(profiler_config.cast())?;
        self.update(|state| state.runtime.profiling.stop(id))
    }

    pub(super) unsafe fn aclprofMarkEx(
        &self,
        msg: *const c_char,
        msg_len: usize,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes `msg_len` bytes.
        let text = unsafe { load_text("msg", msg, msg_len, MAX_MARK_BYTES) }?;
        let current = thread::context(self.key());
        self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            if let Some(stream) = state.runtime.streams.get_mut(&id) {
                stream.tag = if text.is_empty() { None } else { Some(text.into()) };
            }
            Ok(())
        })
    }
}

/// A NUL inside ends the text.
///
/// # Safety
///
/// `address` is NULL or points to `length` bytes.
unsafe fn load_text(
    argument: &str,
    address: *const c_char,
    length: usize,
    most: usize,
) -> Result<String, Failure> {
    if address.is_null() {
        return Err(Failure::null(argument));
    }
    if length > most {
        let what = format!("{argument} is {length} bytes long; at most {most} are taken");
        return Err(Failure::new(code::INVALID_PARAM, what));
    }
    // SAFETY: the caller upholds this contract.
    let bytes = unsafe { load_array(argument, address.cast::<u8>(), length) }?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
