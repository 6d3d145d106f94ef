//! AscendCL: lifetime of the runtime, versions, names, errors, values of data types.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use ascend_tp_machine::Soc;
use ascend_tp_sys::{
    aclCANNPackageName, aclCANNPackageVersion, aclDataType, aclFloat16, aclrtLastErrLevel, aclrtRunMode,
};
use half::f16;

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::config::CannVersion;
use crate::machine::Machine;
use crate::runtime::thread;

impl Machine {
    /// A second call returns `ACL_ERROR_REPEAT_INITIALIZE`, which programs may ignore. Since CANN
    /// 8.5 it also adds a reference (CANN runtime reference, aclInit).
    pub(super) fn aclInit(&self, _config_path: *const c_char) -> Result<(), Failure> {
        let counts = self.config().cann >= CannVersion::V8_5;
        self.update(|state| {
            if state.runtime.initialized > 0 {
                state.runtime.initialized += u64::from(counts);
                return Err(Failure::answer(code::REPEAT_INITIALIZE));
            }
            state.runtime.initialized = 1;
            Ok(())
        })
    }

    pub(super) fn aclFinalize(&self) -> Result<(), Failure> {
        self.finalize(|initialized| *initialized = 0).map(|_| ())
    }

    /// The last release finalizes the runtime.
    pub(super) fn aclFinalizeReference(&self, ref_count: Out<u64>) -> Result<(), Failure> {
        let left = self.finalize(|initialized| *initialized -= 1)?;
        if ref_count.is_null() {
            return Ok(());
        }
        ref_count.set("ref_count", left)
    }

    fn finalize(&self, give_back: impl FnOnce(&mut u64)) -> Result<u64, Failure> {
        let left = self.update(|state| {
            if state.runtime.initialized == 0 {
                let what = "aclFinalize without a preceding aclInit, or a second time";
                return Err(Failure::new(code::REPEAT_FINALIZE, what));
            }
            give_back(&mut state.runtime.initialized);
            Ok(state.runtime.initialized)
        })?;
        if left == 0 {
            self.check_zones();
            self.report_leaks();
        }
        Ok(left)
    }

    pub(super) fn aclGetRecentErrMsg(&self) -> Result<*const c_char, Failure> {
        Ok(thread::take_message(self.key()))
    }

    pub(super) fn aclrtGetVersion(
        &self,
        major: Out<i32>,
        minor: Out<i32>,
        patch: Out<i32>,
    ) -> Result<(), Failure> {
        let [major_version, minor_version, patch_version] = self.config().cann.interface();
        major.set("major_version", major_version)?;
        minor.set("minor_version", minor_version)?;
        patch.set("patch_version", patch_version)
    }

    pub(super) fn aclsysGetCANNVersion(
        &self,
        _name: aclCANNPackageName,
        version: Out<aclCANNPackageVersion>,
    ) -> Result<(), Failure> {
        let text = |text: &str, field: &mut [c_char]| {
            for (into, from) in field.iter_mut().zip(text.bytes()) {
                *into = from.cast_signed() as c_char;
            }
        };
        let mut answer = aclCANNPackageVersion {
            version: [0; 128],
            majorVersion: [0; 64],
            minorVersion: [0; 64],
            releaseVersion: [0; 64],
            patchVersion: [0; 64],
            reserved: [0; 128],
        };
        let cann = self.config().cann;
        let [major, minor, patch] = cann.numbers();
        text(&cann.full_name(), &mut answer.version);
        text(&major.to_string(), &mut answer.majorVersion);
        text(&minor.to_string(), &mut answer.minorVersion);
        text(cann.release(), &mut answer.releaseVersion);
        text(&patch.to_string(), &mut answer.patchVersion);
        version.set("version", answer)
    }

    pub(super) fn aclrtGetSocName(&self) -> Result<*const c_char, Failure> {
        static NAMES: LazyLock<Vec<CString>> =
            LazyLock::new(|| Soc::ALL.iter().filter_map(|soc| CString::new(soc.name()).ok()).collect());
        let soc = self.config().soc;
        let name = Soc::ALL.iter().zip(NAMES.iter()).find(|(other, _)| **other == soc).map(|(_, name)| name);
        let name = name.ok_or_else(|| Failure::new(code::INTERNAL, format!("no name for {soc}")))?;
        Ok(name.as_ptr())
    }

    pub(super) fn aclrtGetRunMode(&self, run_mode: Out<aclrtRunMode>) -> Result<(), Failure> {
        run_mode.set("run_mode", aclrtRunMode::ACL_HOST)
    }

    pub(super) fn aclrtGetLastError(&self, level: aclrtLastErrLevel) -> Result<(), Failure> {
        check_level(level)?;
        last_error(thread::take_last_error(self.key()))
    }

    pub(super) fn aclrtPeekAtLastError(&self, level: aclrtLastErrLevel) -> Result<(), Failure> {
        check_level(level)?;
        last_error(thread::last_error(self.key()))
    }

    pub(super) fn aclDataTypeSize(&self, data_type: aclDataType) -> Result<usize, Failure> {
        Ok(match data_type {
            aclDataType::ACL_INT8 | aclDataType::ACL_UINT8 | aclDataType::ACL_BOOL => 1,
            aclDataType::ACL_FLOAT16
            | aclDataType::ACL_BF16
            | aclDataType::ACL_INT16
            | aclDataType::ACL_UINT16 => 2,
            aclDataType::ACL_FLOAT | aclDataType::ACL_INT32 | aclDataType::ACL_UINT32 => 4,
            aclDataType::ACL_DOUBLE
            | aclDataType::ACL_INT64
            | aclDataType::ACL_UINT64
            | aclDataType::ACL_COMPLEX64 => 8,
            other => {
                let what = format!("data type {} has no whole number of bytes or is not known", other.0);
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        })
    }

    pub(super) fn aclFloat16ToFloat(&self, value: aclFloat16) -> Result<f32, Failure> {
        Ok(f16::from_bits(value).to_f32())
    }

    pub(super) fn aclFloatToFloat16(&self, value: f32) -> Result<aclFloat16, Failure> {
        Ok(f16::from_f32(value).to_bits())
    }
}

fn check_level(level: aclrtLastErrLevel) -> Result<(), Failure> {
    if level.0 == 0 {
        return Ok(());
    }
    let what = format!("error level {} is not ACL_RT_THREAD_LEVEL (0)", level.0);
    Err(Failure::new(code::INVALID_PARAM, what))
}

fn last_error(last: i32) -> Result<(), Failure> {
    if last == code::SUCCESS {
        return Ok(());
    }
    Err(Failure::answer(last))
}
