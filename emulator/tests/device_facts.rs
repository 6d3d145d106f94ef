//! Properties of devices and of the installed CANN.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use crate::common::{Card, call, machine, ok, refused, young};
use ascend_tp_emulator::{Config, Emulator, Soc};
use ascend_tp_sys::{
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_INVALID_DEVICEID, ACL_ERROR_RT_PARAM_INVALID, aclCannAttr,
    aclDeviceInfo, aclrtDevAttr, aclrtDevResLimitType, aclrtErrorInfo, aclrtErrorType, aclrtPtrAttributes,
    aclrtUtilizationInfo,
};

#[test]
fn every_chip_tells_its_own_numbers() {
    let rows = [
        (Soc::Ascend910B1, 24, 48, 192 << 20, 64_u64 << 30),
        (Soc::Ascend910B2, 24, 48, 192 << 20, 64 << 30),
        (Soc::Ascend910B3, 20, 40, 192 << 20, 64 << 30),
        (Soc::Ascend910B4, 20, 40, 96 << 20, 32 << 30),
        (Soc::Ascend910_9391, 24, 48, 192 << 20, 64 << 30),
        (Soc::Ascend910_9362, 20, 40, 168 << 20, 32 << 30),
    ];
    for (soc, cubes, vectors, l2, installed) in rows {
        let config = Config { soc, hbm_bytes: soc.hbm_usable_bytes(), ..Config::with_cards(2) };
        let emulator = Emulator::new(config).expect("the emulator starts");
        let table = emulator.table();
        let info = |attr| {
            let mut value = -1;
            ok(&table, young!(table, aclrtGetDeviceInfo(1, attr, &raw mut value)));
            value
        };
        assert_eq!(info(aclrtDevAttr::ACL_DEV_ATTR_CUBE_CORE_NUM), cubes);
        assert_eq!(info(aclrtDevAttr::ACL_DEV_ATTR_VECTOR_CORE_NUM), vectors);
        assert_eq!(info(aclrtDevAttr::ACL_DEV_ATTR_L2_CACHE_SIZE), l2);
        assert_eq!(info(aclrtDevAttr::ACL_DEV_ATTR_PHY_CHIP_ID), 1);
        let memory = info(aclrtDevAttr::ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE) as u64;
        assert!(memory < installed && memory > installed - (4 << 30), "{memory}");
        let mut cores = 0;
        let kind = aclDeviceInfo::ACL_DEVICE_INFO_AI_CORE_NUM;
        ok(&table, call!(table, aclGetDeviceCapability(0, kind, &raw mut cores)));
        assert_eq!(cores, cubes);
    }
}

#[test]
fn what_has_no_source_is_refused_by_name() {
    let (_emulator, table) = machine(1);
    let mut value = 0;
    let code = young!(table, aclrtGetDeviceInfo(0, aclrtDevAttr::ACL_DEV_ATTR_WARP_SIZE, &raw mut value));
    assert!(
        refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("attribute 202 is not modelled")
    );
    let code = young!(table, aclrtGetDeviceInfo(1, aclrtDevAttr::ACL_DEV_ATTR_CUBE_CORE_NUM, &raw mut value));
    assert!(refused(&table, code, ACL_ERROR_RT_INVALID_DEVICEID).contains("no device 1"));
}

#[test]
fn limits_of_cores_are_per_device_and_can_be_reset() {
    let (_emulator, table) = machine(2);
    ok(&table, call!(table, aclrtSetDevice(1)));
    let cube = aclrtDevResLimitType::ACL_RT_DEV_RES_CUBE_CORE;
    let limit = |device| {
        let mut value = 0;
        ok(&table, young!(table, aclrtGetDeviceResLimit(device, cube, &raw mut value)));
        value
    };
    ok(&table, young!(table, aclrtSetDeviceResLimit(1, cube, 8)));
    assert_eq!((limit(0), limit(1)), (20, 8));
    let mut mine = 0;
    ok(&table, young!(table, aclrtGetResInCurrentThread(cube, &raw mut mine)));
    assert_eq!(mine, 8);
    let code = young!(table, aclrtSetDeviceResLimit(1, cube, 21));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("1 to 20"));
    ok(&table, young!(table, aclrtResetDeviceResLimit(1)));
    assert_eq!(limit(1), 20);
}

#[test]
fn versions_attributes_and_compatibility() {
    let (_emulator, table) = machine(1);
    let mut text = [0 as c_char; 128];
    let name = |name: &CStr| name.as_ptr().cast_mut();
    ok(&table, young!(table, aclsysGetVersionStr(name(c"runtime"), text.as_mut_ptr())));
    // SAFETY: the library wrote a C string.
    assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }, c"9.0.0");
    let mut number = 0;
    ok(&table, young!(table, aclsysGetVersionNum(name(c"runtime"), &raw mut number)));
    assert_eq!(number, 90_000_000);
    let code = young!(table, aclsysGetVersionStr(name(c"nothing"), text.as_mut_ptr()));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("\"nothing\" is not installed"));

    let (mut list, mut count) = (std::ptr::null(), 0);
    ok(&table, call!(table, aclGetCannAttributeList(&raw mut list, &raw mut count)));
    // SAFETY: the library returned this length.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    for (attribute, expected) in [
        (aclCannAttr::ACL_CANN_ATTR_INF_NAN, 1),
        (aclCannAttr::ACL_CANN_ATTR_BF16, 1),
        (aclCannAttr::ACL_CANN_ATTR_JIT_COMPILE, 0),
    ] {
        let mut value = -1;
        ok(&table, call!(table, aclGetCannAttribute(attribute, &raw mut value)));
        assert_eq!((value, i32::from(list.contains(&attribute))), (expected, expected));
    }
    for (chip, expected) in [(c"Ascend910B1", 1), (c"Ascend310P3", 0)] {
        let mut value = -1;
        ok(&table, young!(table, aclrtCheckArchCompatibility(chip.as_ptr(), &raw mut value)));
        assert_eq!(value, expected, "{chip:?}");
    }
}

#[test]
fn pages_of_a_cards_memory_are_those_of_the_host() {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    // SAFETY: zeros are valid numbers.
    let mut found: aclrtPtrAttributes = unsafe { std::mem::zeroed() };
    ok(&table, call!(table, aclrtPointerGetAttributes(card.malloc(64), &raw mut found)));
    assert_eq!((found.location.id, found.pageSize as usize), (0, rustix::param::page_size()));
}

#[test]
fn a_card_is_busy_while_work_is_under_way_and_tells_when_it_failed() {
    let (_emulator, table) = machine(1);
    ok(&table, call!(table, aclrtSetDevice(0)));
    let busy = || {
        // SAFETY: zeros are valid numbers and pointers.
        let mut info: aclrtUtilizationInfo = unsafe { std::mem::zeroed() };
        ok(&table, call!(table, aclrtGetDeviceUtilizationRate(0, &raw mut info)));
        (info.cubeUtilization, info.memoryUtilization)
    };
    let error = || {
        // SAFETY: zeros are valid numbers and pointers.
        let mut info: aclrtErrorInfo = unsafe { std::mem::zeroed() };
        ok(&table, young!(table, aclrtGetErrorVerbose(0, &raw mut info)));
        info.errorType
    };
    assert_eq!((busy(), error()), ((0, -1), aclrtErrorType::ACL_RT_NO_ERROR));
    let (mut notify, mut stream) = (null_mut(), null_mut());
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));
    ok(&table, young!(table, aclrtWaitAndResetNotify(notify, stream, 0)));
    assert_eq!(busy().0, 100);
    // Streams that wait for the destroyed notify fail.
    ok(&table, young!(table, aclrtDestroyNotify(notify)));
    assert_ne!(call!(table, aclrtSynchronizeStream(stream)), 0);
    assert_eq!((busy().0, error()), (0, aclrtErrorType::ACL_RT_ERROR_OTHERS));
}
