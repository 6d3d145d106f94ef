//! AscendCL: properties of devices, the installed CANN version and current limits.
//!
//! Attributes of other chips and attributes without a known source are refused.

use std::ffi::c_char;

use ascend_tp_machine::Soc;
use ascend_tp_sys::{
    aclCannAttr, aclDeviceInfo, aclrtDevAttr, aclrtDevFeatureType, aclrtDevResLimitType, aclrtErrorInfo,
    aclrtErrorInfoDetail, aclrtErrorType, aclrtMemUceInfo, aclrtMemUceInfoArray, aclrtUtilizationInfo,
    aclrtUuid,
};

use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::machine::Machine;
use crate::memory::raw::load_text;

/// Non-finite numbers and bfloat16. Operators are never compiled at run time.
static ATTRIBUTES: [aclCannAttr; 2] = [aclCannAttr::ACL_CANN_ATTR_INF_NAN, aclCannAttr::ACL_CANN_ATTR_BF16];

/// The packages share one version.
const PACKAGES: [&str; 7] = ["cann", "runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel"];

const VERSION_BYTES: usize = 128;

fn unsupported(what: String) -> Failure {
    Failure::new(code::FEATURE_NOT_SUPPORTED, what)
}

impl Machine {
    fn card_of(&self, device: u32) -> Result<u32, Failure> {
        self.lock().card_of_ordinal(i32::try_from(device).unwrap_or(-1))
    }

    pub(super) fn aclrtGetDeviceInfo(
        &self,
        device_id: u32,
        attr: aclrtDevAttr,
        value: Out<i64>,
    ) -> Result<(), Failure> {
        let card = self.card_of(device_id)?;
        let soc = self.config().soc;
        let found = match attr {
            aclrtDevAttr::ACL_DEV_ATTR_AICORE_CORE_NUM | aclrtDevAttr::ACL_DEV_ATTR_CUBE_CORE_NUM => {
                i64::from(soc.cube_cores())
            }
            aclrtDevAttr::ACL_DEV_ATTR_VECTOR_CORE_NUM => i64::from(soc.vector_cores()),
            aclrtDevAttr::ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE => self.config().hbm_bytes.cast_signed(),
            aclrtDevAttr::ACL_DEV_ATTR_L2_CACHE_SIZE => soc.l2_bytes().cast_signed(),
            // All cards share one host and operating system.
            aclrtDevAttr::ACL_DEV_ATTR_SMP_ID | aclrtDevAttr::ACL_DEV_ATTR_IS_VIRTUAL => 0,
            aclrtDevAttr::ACL_DEV_ATTR_PHY_CHIP_ID => i64::from(card),
            aclrtDevAttr::ACL_DEV_ATTR_NPU_ARCH => i64::from(soc.npu_arch()),
            other => {
                return Err(unsupported(format!(
                    "attribute {} is not modelled; AICORE 101, CUBE 102 and VECTOR_CORE_NUM 201, TOTAL_GLOBAL_MEM_SIZE \
                     301, L2_CACHE_SIZE 302, SMP_ID 401, PHY_CHIP_ID 402, IS_VIRTUAL 501 and NPU_ARCH 601 are",
                    other.0
                )));
            }
        };
        value.set("value", found)
    }

    pub(super) fn aclGetDeviceCapability(
        &self,
        device_id: u32,
        device_info: aclDeviceInfo,
        value: Out<i64>,
    ) -> Result<(), Failure> {
        self.card_of(device_id)?;
        let soc = self.config().soc;
        let found = match device_info {
            aclDeviceInfo::ACL_DEVICE_INFO_AI_CORE_NUM => i64::from(soc.cube_cores()),
            aclDeviceInfo::ACL_DEVICE_INFO_VECTOR_CORE_NUM => i64::from(soc.vector_cores()),
            aclDeviceInfo::ACL_DEVICE_INFO_L2_SIZE => soc.l2_bytes().cast_signed(),
            other => {
                let what =
                    format!("device info {} is none of AI_CORE_NUM 0, VECTOR_CORE_NUM 1, L2_SIZE 2", other.0);
                return Err(Failure::new(code::INVALID_PARAM, what));
            }
        };
        value.set("value", found)
    }

    /// Every known feature is unavailable.
    pub(super) fn aclrtGetDeviceCapability(
        &self,
        device_id: i32,
        dev_feature_type: aclrtDevFeatureType,
        value: Out<i32>,
    ) -> Result<(), Failure> {
        self.lock().card_of_ordinal(device_id)?;
        match dev_feature_type {
            aclrtDevFeatureType::ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV
            | aclrtDevFeatureType::ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV => value.set("value", 0),
            other => {
                let what = format!("feature {} is neither 1 nor 21", other.0);
                Err(Failure::new(code::INVALID_PARAM, what))
            }
        }
    }

    /// Reports all cores while work runs on the card, otherwise none. Memory reports -1 (AscendCL
    /// guide), and AI CPUs are always idle.
    pub(super) fn aclrtGetDeviceUtilizationRate(
        &self,
        device_id: i32,
        utilization_info: Out<aclrtUtilizationInfo>,
    ) -> Result<(), Failure> {
        let is_busy = {
            let state = self.lock();
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.streams.values().any(|stream| stream.card == card && !stream.is_idle())
        };
        let cores = if is_busy { 100 } else { 0 };
        let answer = aclrtUtilizationInfo {
            cubeUtilization: cores,
            vectorUtilization: cores,
            aicpuUtilization: 0,
            memoryUtilization: -1,
            utilizationExtend: std::ptr::null_mut(),
        };
        utilization_info.set("utilization_info", answer)
    }

    /// Limits the cores for kernels of this process. Results do not change.
    pub(super) fn aclrtSetDeviceResLimit(
        &self,
        device_id: i32,
        type_: aclrtDevResLimitType,
        value: u32,
    ) -> Result<(), Failure> {
        self.check_core_limit(type_, value)?;
        self.update(|state| {
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.cards[card as usize].core_limits[type_.0 as usize] = Some(value);
            Ok(())
        })
    }

    pub(super) fn aclrtGetDeviceResLimit(
        &self,
        device_id: i32,
        type_: aclrtDevResLimitType,
        value: Out<u32>,
    ) -> Result<(), Failure> {
        let most = self.cores(type_)?;
        let limit = {
            let state = self.lock();
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.cards[card as usize].core_limits[type_.0 as usize]
        };
        value.set("value", limit.unwrap_or(most))
    }

    pub(super) fn aclrtResetDeviceResLimit(&self, device_id: i32) -> Result<(), Failure> {
        self.update(|state| {
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.cards[card as usize].core_limits = [None; 2];
            Ok(())
        })
    }

    pub(super) fn check_core_limit(&self, kind: aclrtDevResLimitType, value: u32) -> Result<(), Failure> {
        let most = self.cores(kind)?;
        if value == 0 || value > most {
            let what =
                format!("value is {value}; an {} has 1 to {most} such cores", self.config().soc.name());
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        Ok(())
    }

    pub(super) fn cores(&self, kind: aclrtDevResLimitType) -> Result<u32, Failure> {
        match kind {
            aclrtDevResLimitType::ACL_RT_DEV_RES_CUBE_CORE => Ok(self.config().soc.cube_cores()),
            aclrtDevResLimitType::ACL_RT_DEV_RES_VECTOR_CORE => Ok(self.config().soc.vector_cores()),
            other => {
                let what = format!("resource {} is neither CUBE_CORE 0 nor VECTOR_CORE 1", other.0);
                Err(Failure::new(code::INVALID_PARAM, what))
            }
        }
    }

    /// The `Ascend910B` chips share one architecture.
    pub(super) unsafe fn aclrtCheckArchCompatibility(
        &self,
        soc_version: *const c_char,
        can_compatible: Out<i32>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        let name = unsafe { load_text("soc_version", soc_version) }?;
        let own = self.config().soc.npu_arch();
        let is_known = Soc::ALL.iter().any(|soc| soc.name() == name && soc.npu_arch() == own);
        can_compatible.set("can_compatible", i32::from(is_known))
    }

    /// The last byte is the device.
    pub(super) fn aclrtDeviceGetUuid(&self, device_id: i32, uuid: Out<aclrtUuid>) -> Result<(), Failure> {
        let card = self.lock().card_of_ordinal(device_id)?;
        let mut bytes = b"ascend-emulator\0".map(|byte| byte.cast_signed() as c_char);
        bytes[bytes.len() - 1] = card as c_char;
        uuid.set("uuid", aclrtUuid { bytes })
    }

    /// The emulator's memory has no uncorrectable errors.
    pub(super) fn aclrtGetMemUceInfo(
        &self,
        device_id: i32,
        mem_uce_info_array: Out<aclrtMemUceInfo>,
        _array_size: usize,
        ret_size: Out<usize>,
    ) -> Result<(), Failure> {
        self.lock().card_of_ordinal(device_id)?;
        if mem_uce_info_array.is_null() {
            return Err(Failure::null("mem_uce_info_array"));
        }
        ret_size.set("ret_size", 0)
    }

    pub(super) fn aclrtMemUceRepair(
        &self,
        device_id: i32,
        _mem_uce_info_array: *mut aclrtMemUceInfo,
        array_size: usize,
    ) -> Result<(), Failure> {
        self.lock().card_of_ordinal(device_id)?;
        let what =
            format!("array_size is {array_size}, but aclrtGetMemUceInfo has listed no error to repair");
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    pub(super) fn aclrtRepairError(
        &self,
        device_id: i32,
        _error_info: *const aclrtErrorInfo,
    ) -> Result<(), Failure> {
        self.lock().card_of_ordinal(device_id)?;
        let what = "error_info: expected an error with tryRepair 1; aclrtGetErrorVerbose has returned none";
        Err(Failure::new(code::PARAM_INVALID, what))
    }

    pub(super) fn aclGetCannAttributeList(
        &self,
        cann_attr_list: Out<*const aclCannAttr>,
        num: Out<usize>,
    ) -> Result<(), Failure> {
        num.set("num", ATTRIBUTES.len())?;
        cann_attr_list.set("cann_attr_list", ATTRIBUTES.as_ptr())
    }

    pub(super) fn aclGetCannAttribute(&self, cann_attr: aclCannAttr, value: Out<i32>) -> Result<(), Failure> {
        if !(0..=2).contains(&cann_attr.0) {
            let what = format!("attribute {} is none of INF_NAN 0, BF16 1, JIT_COMPILE 2", cann_attr.0);
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        value.set("value", i32::from(ATTRIBUTES.contains(&cann_attr)))
    }

    pub(super) unsafe fn aclsysGetVersionStr(
        &self,
        pkg_name: *mut c_char,
        version_str: Out<c_char>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        unsafe { require_package(pkg_name) }?;
        let mut text = [0 as c_char; VERSION_BYTES];
        for (into, from) in text.iter_mut().zip(self.config().cann.full_name().bytes()) {
            *into = from.cast_signed() as c_char;
        }
        // SAFETY: the C caller passes NULL or 128 characters (`ACL_PKG_VERSION_MAX_SIZE`).
        unsafe { version_str.of::<[c_char; VERSION_BYTES]>() }.set("version_str", text)
    }

    /// Returns major * 10,000,000 + minor * 100,000 + patch * 1,000 (`cann_version.h`). A release
    /// candidate adds nothing here, because its value is not documented.
    pub(super) unsafe fn aclsysGetVersionNum(
        &self,
        pkg_name: *mut c_char,
        version_num: Out<i32>,
    ) -> Result<(), Failure> {
        // SAFETY: the C caller passes NULL or a C string.
        unsafe { require_package(pkg_name) }?;
        let [major, minor, patch] = self.config().cann.numbers();
        let number = major * 10_000_000 + minor * 100_000 + patch * 1_000;
        version_num.set("version_num", number)
    }

    /// An Atlas A2 distinguishes no error, memory errors and other errors (AscendCL guide,
    /// aclrtGetErrorVerbose).
    pub(super) fn aclrtGetErrorVerbose(
        &self,
        device_id: i32,
        error_info: Out<aclrtErrorInfo>,
    ) -> Result<(), Failure> {
        let failed = {
            let state = self.lock();
            let card = state.card_of_ordinal(device_id)?;
            state.runtime.streams.values().any(|stream| stream.card == card && stream.failure.is_some())
        };
        let none = aclrtMemUceInfo { addr: std::ptr::null_mut(), len: 0, reserved: [0; 14] };
        let answer = aclrtErrorInfo {
            tryRepair: 0,
            hasDetail: 0,
            reserved: [0; 2],
            errorType: if failed {
                aclrtErrorType::ACL_RT_ERROR_OTHERS
            } else {
                aclrtErrorType::ACL_RT_NO_ERROR
            },
            detail: aclrtErrorInfoDetail {
                uceInfo: aclrtMemUceInfoArray { arraySize: 0, memUceInfoArray: [none; 20] },
            },
        };
        error_info.set("error_info", answer)
    }
}

/// # Safety
///
/// `name` is NULL or a C string.
unsafe fn require_package(name: *const c_char) -> Result<(), Failure> {
    // SAFETY: the caller upholds this contract.
    let name = unsafe { load_text("pkg_name", name) }?;
    if PACKAGES.contains(&name.as_str()) {
        return Ok(());
    }
    let what = format!("package {name:?} is not installed; this CANN has {PACKAGES:?}");
    // Quiet: programs check with this call which packages are installed.
    Err(Failure::new(code::PARAM_INVALID, what).quiet())
}
