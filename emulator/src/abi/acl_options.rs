//! AscendCL: compiler options, parameters, limits of operators and waits.
//!
//! The emulator compiles nothing and is deterministic, so options and parameters have no effect.
//! Limits are enforced.

use std::ffi::c_char;
use std::time::Duration;

use ascend_tp_sys::{aclCompileOpt, aclSysParamOpt};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::raw::load_text;
use crate::runtime::options::ContextParameters;
use crate::runtime::thread;

/// Size for `ACL_OP_JIT_COMPILE`, set or not (CANN ge, `op_compiler.cpp`).
const JIT_COMPILE_BYTES: usize = 256;

fn require_option(opt: aclCompileOpt) -> Result<(), Failure> {
    if (0..=16).contains(&opt.0) {
        return Ok(());
    }
    let what = format!("option {} is none of ACL_PRECISION_MODE 0 to ACL_OP_DEBUG_OPTION 16", opt.0);
    Err(Failure::new(code::INTERNAL, what))
}

fn parameter(opt: aclSysParamOpt) -> Result<usize, Failure> {
    match opt {
        aclSysParamOpt::ACL_OPT_DETERMINISTIC => Ok(0),
        aclSysParamOpt::ACL_OPT_ENABLE_DEBUG_KERNEL => Ok(1),
        aclSysParamOpt::ACL_OPT_STRONG_CONSISTENCY => Ok(2),
        other => {
            let what = format!(
                "parameter {} is none of DETERMINISTIC 0, DEBUG_KERNEL 1, STRONG_CONSISTENCY 2",
                other.0
            );
            Err(Failure::new(code::PARAM_INVALID, what))
        }
    }
}

fn set_parameter(parameters: &mut ContextParameters, opt: aclSysParamOpt, value: i64) -> Result<(), Failure> {
    if !(0..=1).contains(&value) {
        return Err(Failure::new(
            code::PARAM_INVALID,
            format!("value is {value}; it must be 0 (off) or 1 (on)"),
        ));
    }
    parameters[parameter(opt)?] = Some(value);
    Ok(())
}

impl Machine {
    pub(super) unsafe fn aclSetCompileopt(
        &self,
        opt: aclCompileOpt,
        value: *const c_char,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        let value = unsafe { load_text("value", value) }?;
        require_option(opt)?;
        if opt == aclCompileOpt::ACL_AUTO_TUNE_MODE {
            let what = "ACL_AUTO_TUNE_MODE is no longer an option: the AOE tool tunes operators";
            return Err(Failure::new(code::FEATURE_UNSUPPORTED, what));
        }
        self.update(|state| state.runtime.compile_options.insert(opt.0, value));
        Ok(())
    }

    fn compile_option(&self, opt: aclCompileOpt) -> Option<String> {
        let set = self.lock().runtime.compile_options.get(&opt.0).cloned();
        // Operators of these chips are precompiled (CANN ge, `op_compiler.cpp`).
        set.or_else(|| (opt == aclCompileOpt::ACL_OP_JIT_COMPILE).then(|| "disable".to_owned()))
    }

    /// Includes the terminating NUL; 0 for an unset option.
    pub(super) fn aclGetCompileoptSize(&self, opt: aclCompileOpt) -> Result<usize, Failure> {
        if opt == aclCompileOpt::ACL_OP_JIT_COMPILE {
            return Ok(JIT_COMPILE_BYTES);
        }
        Ok(self.compile_option(opt).map_or(0, |value| value.len() + 1))
    }

    pub(super) unsafe fn aclGetCompileopt(
        &self,
        opt: aclCompileOpt,
        value: *mut c_char,
        length: usize,
    ) -> Result<(), Failure> {
        if value.is_null() {
            return Err(Failure::null("value"));
        }
        require_option(opt)?;
        let Some(text) = self.compile_option(opt) else {
            let what = format!("option {} has not been set, and has no default here", opt.0);
            return Err(Failure::new(code::API_NOT_SUPPORT, what));
        };
        if length <= text.len() {
            let what = format!("length is {length}; \"{text}\" takes {} bytes with its end", text.len() + 1);
            return Err(Failure::new(code::FAILURE, what));
        }
        // SAFETY: not NULL, so `length` bytes of the C caller, which exceed the text.
        let place = unsafe { std::slice::from_raw_parts_mut(value.cast::<u8>(), text.len() + 1) };
        place[..text.len()].copy_from_slice(text.as_bytes());
        place[text.len()] = 0;
        Ok(())
    }

    pub(super) fn aclrtSetSysParamOpt(&self, opt: aclSysParamOpt, value: i64) -> Result<(), Failure> {
        self.update(|state| set_parameter(&mut state.runtime.parameters, opt, value))
    }

    /// Unset parameters are 0 (CANN runtime, `rtGetSysParamOpt`).
    pub(super) fn aclrtGetSysParamOpt(&self, opt: aclSysParamOpt, value: Out<i64>) -> Result<(), Failure> {
        let parameters = self.lock().runtime.parameters;
        value.set("value", parameters[parameter(opt)?].unwrap_or(0))
    }

    pub(super) fn aclrtCtxSetSysParamOpt(&self, opt: aclSysParamOpt, value: i64) -> Result<(), Failure> {
        let current = thread::context(self.key());
        self.update(|state| {
            let (id, _) = state.current(current)?;
            let context = state.runtime.contexts.get_mut(&id).ok_or_else(|| Failure::null("context"))?;
            set_parameter(&mut context.parameters, opt, value)
        })
    }

    /// There is no default: reading an unset parameter fails (CANN runtime reference).
    pub(super) fn aclrtCtxGetSysParamOpt(&self, opt: aclSysParamOpt, value: Out<i64>) -> Result<(), Failure> {
        let current = thread::context(self.key());
        let parameters = self.lock().current(current)?.1.parameters;
        let what = || format!("parameter {} has not been set in this context, and has no default", opt.0);
        let found =
            parameters[parameter(opt)?].ok_or_else(|| Failure::new(code::SYSPARAMOPT_NOT_SET, what()))?;
        value.set("value", found)
    }

    /// In seconds; 0 means no limit.
    pub(super) fn aclrtSetOpWaitTimeout(&self, timeout: u32) -> Result<(), Failure> {
        let limit = (timeout > 0).then(|| Duration::from_secs(u64::from(timeout)));
        self.update(|state| state.runtime.wait_limit = limit);
        Ok(())
    }

    /// Only an injected fault can delay an operator to this limit; 0 means no limit.
    fn set_operator_limit(&self, limit: Duration) {
        let limit = Some(limit).filter(|limit| !limit.is_zero());
        self.update(|state| state.delays.set_limit(limit));
    }

    pub(super) fn aclrtSetOpExecuteTimeOut(&self, timeout: u32) -> Result<(), Failure> {
        self.set_operator_limit(Duration::from_secs(u64::from(timeout)));
        Ok(())
    }

    pub(super) fn aclrtSetOpExecuteTimeOutWithMs(&self, timeout: u32) -> Result<(), Failure> {
        self.set_operator_limit(Duration::from_millis(u64::from(timeout)));
        Ok(())
    }

    /// The limit is in microseconds, without rounding. For no limit, `actual_timeout` receives
    /// `u64::MAX`.
    pub(super) fn aclrtSetOpExecuteTimeOutV2(
        &self,
        timeout: u64,
        actual_timeout: Out<u64>,
    ) -> Result<(), Failure> {
        actual_timeout.set("actual_timeout", if timeout == 0 { u64::MAX } else { timeout })?;
        self.set_operator_limit(Duration::from_micros(timeout));
        Ok(())
    }
}
