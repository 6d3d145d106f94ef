//! Reserved addresses, physical memory and mappings.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::common::{Card, D2D, H2D, call, machine, machine_of, ok, refused};
use ascend_tp_emulator::Config;
use ascend_tp_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_MEMORY_ALLOCATION,
    ACL_ERROR_RT_PARAM_INVALID, Table, aclrtDrvMemHandle, aclrtMemAllocationType, aclrtMemAttr,
    aclrtMemGranularityOptions, aclrtMemHandleType, aclrtMemLocation, aclrtMemLocationType,
    aclrtPhysicalMemProp,
};

const MIB: usize = 1 << 20;

fn property(card: u32) -> aclrtPhysicalMemProp {
    aclrtPhysicalMemProp {
        handleType: aclrtMemHandleType::ACL_MEM_HANDLE_TYPE_NONE,
        allocationType: aclrtMemAllocationType::ACL_MEM_ALLOCATION_TYPE_PINNED,
        memAttr: aclrtMemAttr::ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: card, type_: aclrtMemLocationType::ACL_MEM_LOCATION_TYPE_DEVICE },
        reserve: 0,
    }
}

fn reserve(table: &Table, size: usize) -> *mut c_void {
    let mut address = null_mut();
    ok(table, call!(table, aclrtReserveMemAddress(&raw mut address, size, 0, null_mut(), 1)));
    address
}

fn physical(table: &Table, card: u32, size: usize) -> aclrtDrvMemHandle {
    let (mut handle, prop) = (null_mut(), property(card));
    ok(table, call!(table, aclrtMallocPhysical(&raw mut handle, size, &raw const prop, 0)));
    handle
}

fn map(table: &Table, address: *mut c_void, size: usize, handle: aclrtDrvMemHandle) {
    ok(table, call!(table, aclrtMapMem(address, size, 0, handle, 0)));
}

#[test]
fn adjacent_mappings_are_one_buffer_and_keep_their_bytes_elsewhere() {
    let (emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let mut granularity = 0;
    let (mut prop, option) = (property(0), aclrtMemGranularityOptions::ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM);
    ok(&table, call!(table, aclrtMemGetAllocationGranularity(&raw mut prop, option, &raw mut granularity)));
    assert_eq!(granularity, 2 * MIB);

    let base = reserve(&table, 16 * MIB);
    assert_eq!(base.addr() % (2 * MIB), 0);
    assert_eq!(emulator.usage()[0].used_bytes, 0, "addresses cost nothing");
    let (first, second) = (physical(&table, 0, 2 * MIB), physical(&table, 0, 4 * MIB));
    assert_eq!((emulator.usage()[0].physical_bytes, emulator.usage()[0].used_bytes), (6 << 20, 6 << 20));
    map(&table, base, 2 * MIB, first);
    map(&table, base.wrapping_byte_add(2 * MIB), 4 * MIB, second);

    let across = base.wrapping_byte_add(2 * MIB - 4);
    ok(&table, call!(table, aclrtMemcpy(across, 8, [1_u8, 2, 3, 4, 5, 6, 7, 8].as_ptr().cast(), 8, H2D)));
    assert_eq!(card.download(across, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    ok(&table, call!(table, aclrtMemsetAsync(base.wrapping_byte_add(6 * MIB - 3), 3, 9, 3, card.stream)));
    card.synchronize();
    assert_eq!(card.download(base.wrapping_byte_add(6 * MIB - 4), 4), [0, 9, 9, 9]);
    let code = call!(table, aclrtMemset(base.wrapping_byte_add(6 * MIB - 3), 4, 0, 4));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("out of bounds"));

    ok(&table, call!(table, aclrtUnmapMem(base)));
    let elsewhere = base.wrapping_byte_add(8 * MIB);
    map(&table, elsewhere, 2 * MIB, first);
    assert_eq!(card.download(elsewhere.wrapping_byte_add(2 * MIB - 4), 4), [1, 2, 3, 4]);

    // Memory freed while mapped is released with its mapping.
    ok(&table, call!(table, aclrtFreePhysical(first)));
    assert_eq!(emulator.usage()[0].physical_bytes, 6 << 20);
    ok(&table, call!(table, aclrtUnmapMem(elsewhere)));
    assert_eq!(emulator.usage()[0].physical_bytes, 4 << 20);
    ok(&table, call!(table, aclrtUnmapMem(base.wrapping_byte_add(2 * MIB))));
    ok(&table, call!(table, aclrtFreePhysical(second)));
    ok(&table, call!(table, aclrtReleaseMemAddress(base)));
    assert_eq!(emulator.usage()[0].used_bytes, 0);
}

#[test]
fn what_breaks_a_rule_is_refused_by_name() {
    let (_emulator, table) = machine(2);
    let _card = Card::new(&table, 0);
    let base = reserve(&table, 8 * MIB);
    let handle = physical(&table, 0, 2 * MIB);
    let at = |offset: usize| base.wrapping_byte_add(offset);
    let bad_map = |address: *mut c_void, size: usize, handle: aclrtDrvMemHandle| {
        refused(&table, call!(table, aclrtMapMem(address, size, 0, handle, 0)), ACL_ERROR_RT_PARAM_INVALID)
    };

    let code = call!(table, aclrtMemset(at(100), 1, 0, 1));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("nothing is mapped there"));
    assert!(bad_map(at(4096), 2 * MIB, handle).contains("no multiple of 2097152"));
    assert!(bad_map(at(0), 4 * MIB, handle).contains("must be the size of the handle, 2097152"));
    assert!(bad_map(at(8 * MIB), 2 * MIB, handle).contains("is not reserved"));
    map(&table, at(2 * MIB), 2 * MIB, handle);
    assert!(bad_map(at(6 * MIB), 2 * MIB, handle).contains("mapped at"));
    let large = physical(&table, 0, 4 * MIB);
    assert!(bad_map(at(0), 4 * MIB, large).contains("overlap the 2097152 bytes"));
    assert!(bad_map(at(6 * MIB), 4 * MIB, large).contains("leave the 8388608 bytes"));
    let other = physical(&table, 1, 2 * MIB);
    assert!(bad_map(at(6 * MIB), 2 * MIB, other).contains("bound to one device"));

    let code = call!(table, aclrtFree(at(2 * MIB)));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("aclrtUnmapMem"));
    let code = call!(table, aclrtReleaseMemAddress(base));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("still mapped"));
    let code = call!(table, aclrtUnmapMem(base));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("no mapping starts at"));
    ok(&table, call!(table, aclrtFreePhysical(other)));
    let code = call!(table, aclrtFreePhysical(other));
    assert!(refused(&table, code, ACL_ERROR_RT_PARAM_INVALID).contains("does not exist"));

    let mut address = null_mut();
    let code = call!(table, aclrtReserveMemAddress(&raw mut address, 8, 4096, null_mut(), 0));
    assert!(refused(&table, code, ACL_ERROR_INVALID_PARAM).contains("alignment"));
    let mut prop = property(0);
    prop.memAttr = aclrtMemAttr::ACL_DDR_MEM_HUGE;
    let mut none = null_mut();
    let code = call!(table, aclrtMallocPhysical(&raw mut none, 2 * MIB, &raw const prop, 0));
    assert!(refused(&table, code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT).contains("memAttr 2"));
}

#[test]
fn physical_memory_is_what_a_card_has() {
    let config = Config { hbm_bytes: 8 << 20, ..Config::with_cards(1) };
    let (_emulator, table) = machine_of(config);
    let _card = Card::new(&table, 0);
    let base = reserve(&table, 1 << 40);
    let first = physical(&table, 0, 6 * MIB);
    let (mut none, prop) = (null_mut(), property(0));
    let code = call!(table, aclrtMallocPhysical(&raw mut none, 3 * MIB, &raw const prop, 0));
    let message = refused(&table, code, ACL_ERROR_RT_MEMORY_ALLOCATION);
    assert!(message.contains("6291456 B (6.00 MiB) for physical memory"), "{message}");
    map(&table, base, 6 * MIB, first);
}

#[test]
fn queued_work_survives_an_unmap_and_a_reset_returns_everything() {
    let (emulator, table) = machine(1);
    ok(&table, call!(table, aclrtSetDevice(0)));
    let mut stream = null_mut();
    ok(&table, call!(table, aclrtCreateStream(&raw mut stream)));
    let (mut notify, from) = (null_mut(), reserve(&table, 2 * MIB));
    let handle = physical(&table, 0, 2 * MIB);
    map(&table, from, 2 * MIB, handle);
    let create = table.aclrtCreateNotify.expect("modelled");
    let wait = table.aclrtWaitAndResetNotify.expect("modelled");
    let record = table.aclrtRecordNotify.expect("modelled");
    // SAFETY: a valid pointer.
    ok(&table, unsafe { create(&raw mut notify, 0) });
    // SAFETY: handles of this table.
    ok(&table, unsafe { wait(notify, stream, 0) });
    let to = from.wrapping_byte_add(MIB);
    ok(&table, call!(table, aclrtMemcpyAsync(to, MIB, from, MIB, D2D, stream)));
    // On a card, the copy would read unmapped memory.
    ok(&table, call!(table, aclrtUnmapMem(from)));
    // SAFETY: handles of this table; NULL is the default stream.
    ok(&table, unsafe { record(notify, null_mut()) });
    ok(&table, call!(table, aclrtSynchronizeStream(stream)));
    map(&table, from, 2 * MIB, handle);
    ok(&table, call!(table, aclrtResetDevice(0)));
    assert_eq!(emulator.usage()[0].used_bytes, 0);
}
