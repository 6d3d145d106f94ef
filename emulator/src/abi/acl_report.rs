//! AscendCL: host callbacks.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use ascend_tp_sys::{
    aclrtCallback, aclrtCallbackBlockType, aclrtHostFunc, aclrtStream, aclrtStreamState,
    aclrtStreamStateCallback,
};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::machine::Machine;
use crate::memory::raw::load_text;
use crate::runtime::callback::{Blocking, Callback, HostFunction};
use crate::runtime::state_callback::{CallbackSubject, StateCallback};
use crate::runtime::stream::StreamEntry;
use crate::runtime::thread;

unsafe extern "C" {
    /// Returns the calling thread's id (POSIX), for `aclrtSubscribeReport`.
    fn pthread_self() -> usize;
}

fn this_thread() -> u64 {
    // SAFETY: `pthread_self` always succeeds and has no conditions.
    unsafe { pthread_self() as u64 }
}

/// The program keeps the argument valid until its function has run.
struct UserData(*mut c_void);

// SAFETY: the emulator only passes the pointer on, and the program is responsible for its use.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

fn bound(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> HostFunction {
    let data = UserData(data);
    Arc::new(move || {
        let data: &UserData = &data;
        // SAFETY: the program passed this function together with its argument.
        unsafe { function(data.0) };
    })
}

impl Machine {
    pub(super) unsafe fn aclrtRegStreamStateCallback(
        &self,
        reg_name: *const c_char,
        callback: aclrtStreamStateCallback,
        args: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        let name = unsafe { load_text("regName", reg_name) }?;
        let args = UserData(args);
        let callback = callback.map(|function| -> StateCallback {
            Arc::new(move |stream, state| {
                let args: &UserData = &args;
                let stream = HandleKind::Stream.encode(stream as u64);
                // SAFETY: the program registered this function together with its argument.
                unsafe { function(stream, aclrtStreamState(state), args.0) };
            })
        });
        self.state_callbacks().register(CallbackSubject::Streams, name, callback)
    }

    pub(super) fn tell_stream_state(&self, stream: u64, state: aclrtStreamState) {
        self.state_callbacks().tell(CallbackSubject::Streams, stream as usize, state.0);
    }

    fn not_on_this_card(&self, call: &str) -> Failure {
        let what = format!(
            "{call} is not offered by the {}: enqueue with aclrtLaunchHostFunc, or subscribe with aclrtSubscribeReport",
            self.config().soc.series()
        );
        Failure::new(code::FEATURE_NOT_SUPPORTED, what)
    }

    pub(super) fn aclrtLaunchCallback(
        &self,
        callback: aclrtCallback,
        user_data: *mut c_void,
        block_type: aclrtCallbackBlockType,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let function = callback.ok_or_else(|| Failure::null("callback"))?;
        let blocking = match block_type {
            aclrtCallbackBlockType::ACL_CALLBACK_NO_BLOCK => Blocking::No,
            aclrtCallbackBlockType::ACL_CALLBACK_BLOCK => Blocking::Yes,
            other => {
                let what = format!("block type {} is neither NO_BLOCK 0 nor BLOCK 1", other.0);
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        let callback = Callback { body: bound(function, user_data), blocking, subscribed: None };
        let current = thread::context(self.key());
        self.update(|state| {
            let id = state.resolve_stream(stream, current)?;
            if !state.is_subscribed(id) {
                let what = format!(
                    "stream {id} has no thread that would run its callbacks; call aclrtSubscribeReport"
                );
                return Err(Failure::new(code::STREAM_NO_CALLBACK, what));
            }
            let queued = self.queued(state, id, StreamEntry::Callback(callback), Vec::new());
            state.enqueue(id, queued)
        })
    }

    pub(super) fn aclrtSubscribeReport(&self, thread_id: u64, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        self.update(|state| state.subscribe(thread_id, id))
    }

    pub(super) fn aclrtUnSubscribeReport(&self, thread_id: u64, stream: aclrtStream) -> Result<(), Failure> {
        let id = self.stream(stream)?;
        self.update(|state| state.unsubscribe(thread_id, id))
    }

    pub(super) fn aclrtProcessReport(&self, timeout: i32) -> Result<(), Failure> {
        let timeout = match timeout {
            -1 => None,
            1.. => Some(Duration::from_millis(u64::from(timeout.cast_unsigned()))),
            _ => {
                let what = format!("timeout is {timeout} ms; it must be -1 (no limit) or more than 0");
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        let report = self.next_report(this_thread(), timeout)?;
        self.run_function(&report);
        Ok(())
    }

    /// Atlas A2 and A3 do not support this function (CANN runtime guide, execution control).
    pub(super) fn aclrtSubscribeHostFunc(&self, _thread_id: u64, stream: aclrtStream) -> Result<(), Failure> {
        self.stream(stream)?;
        Err(self.not_on_this_card("aclrtSubscribeHostFunc"))
    }

    pub(super) fn aclrtUnSubscribeHostFunc(
        &self,
        _thread_id: u64,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        self.stream(stream)?;
        Err(self.not_on_this_card("aclrtUnSubscribeHostFunc"))
    }

    pub(super) fn aclrtProcessHostFunc(&self, _timeout: i32) -> Result<(), Failure> {
        Err(self.not_on_this_card("aclrtProcessHostFunc"))
    }

    /// Returns the last task that this thread enqueued on a stream of its own; 0 if there is none.
    pub(super) fn aclrtGetThreadLastTaskId(&self, task_id: Out<u32>) -> Result<(), Failure> {
        task_id.set("task_id", thread::last_task(self.key()))
    }

    /// The function runs on the card's callback thread. The stream continues after its return.
    pub(super) fn aclrtLaunchHostFunc(
        &self,
        stream: aclrtStream,
        callback: aclrtHostFunc,
        args: *mut c_void,
    ) -> Result<(), Failure> {
        let body = bound(callback.ok_or_else(|| Failure::null("callback"))?, args);
        self.enqueue(stream, StreamEntry::HostFunction(body), Vec::new()).map(|_| ())
    }
}
