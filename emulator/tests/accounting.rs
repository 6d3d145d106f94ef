//! Resources that count against a card: buffers of communicators, streams, events and notifies.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ptr::null_mut;
use std::sync::Arc;

use crate::common::{Card, call, hccl_ok, hccl_refused, machine, machine_of, ok, refused, world};
use ascend_tp_emulator::{Config, Emulator};
use ascend_tp_sys::{
    ACL_ERROR_RT_NO_NOTIFY_RESOURCE, ACL_ERROR_RT_NO_STREAM_RESOURCE, HcclCommConfig, HcclResult,
    HcclRootInfo, Table,
};

const MIB: u64 = 1 << 20;

fn small(hbm_mib: u64, buffer_mib: u64) -> (Emulator, Arc<Table>) {
    let config = Config {
        hbm_bytes: hbm_mib * MIB,
        communicator_buffer_bytes: buffer_mib * MIB,
        ..Config::with_cards(2)
    };
    machine_of(config)
}

#[test]
fn a_communicator_holds_two_buffers_on_each_card_until_it_is_destroyed() {
    let (emulator, table) = small(64, 10);
    let (cards, comms) = world(&table, 2);
    let held =
        |emulator: &Emulator| emulator.usage().iter().map(|card| card.communicator_bytes).collect::<Vec<_>>();
    assert_eq!(held(&emulator), [20 * MIB, 20 * MIB]);
    let mut free = [0_usize; 2];
    let [free_bytes, total_bytes] = &mut free;
    let kind = ascend_tp_sys::aclrtMemAttr::ACL_HBM_MEM;
    cards[0].enter();
    ok(
        &table,
        call!(table, aclrtGetMemInfo(kind, std::ptr::from_mut(free_bytes), std::ptr::from_mut(total_bytes))),
    );
    assert_eq!(free, [44 << 20, 64 << 20]);
    // Another communicator has its own buffers.
    let (_more, others) = world(&table, 2);
    assert_eq!(held(&emulator), [40 * MIB, 40 * MIB]);
    for comm in comms.into_iter().chain(others) {
        hccl_ok(&table, call!(table, HcclCommDestroy(comm)));
    }
    assert_eq!(held(&emulator), [0, 0]);
}

#[test]
fn a_communicator_without_room_is_refused_with_the_numbers() {
    let (emulator, table) = small(64, 40);
    let _card = Card::new(&table, 0);
    let (mut devices, mut comms) = ([0, 1], [null_mut(); 2]);
    let code = call!(table, HcclCommInitAll(2, devices.as_mut_ptr(), comms.as_mut_ptr()));
    let message = hccl_refused(&table, code, HcclResult::HCCL_E_MEMORY);
    assert!(
        message.contains("two buffers of 40 MiB") && message.contains("asked 83886080 B (80.00 MiB)"),
        "{message}"
    );
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "nothing stays behind");
}

#[test]
fn a_communicator_can_have_buffers_of_its_own_size_and_a_reset_returns_them() {
    let (emulator, table) = small(64, 40);
    ok(&table, call!(table, aclrtSetDevice(0)));
    // SAFETY: any bytes are a valid root info.
    let mut root: HcclRootInfo = unsafe { std::mem::zeroed() };
    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut root)));
    let mut reserved = [0; 24];
    reserved[..8].copy_from_slice(&300_u64.to_le_bytes().map(|byte| byte as _));
    reserved[8..12].copy_from_slice(&0xf0f0_f0f0_u32.to_le_bytes().map(|byte| byte as _));
    reserved[12] = 5;
    // SAFETY: every field is a number or an array of numbers.
    let mut config = HcclCommConfig { reserved, hcclBufferSize: 3, ..unsafe { std::mem::zeroed() } };
    let mut comm = null_mut();
    let join = |root: &HcclRootInfo, config: &HcclCommConfig, comm: &mut _| {
        let comm = std::ptr::from_mut(comm);
        let (root, config) = (std::ptr::from_ref(root), std::ptr::from_ref(config));
        call!(table, HcclCommInitRootInfoConfig(1, root, 0, config, comm))
    };
    hccl_ok(&table, join(&root, &config, &mut comm));
    assert_eq!(emulator.usage()[0].communicator_bytes, 6 * MIB);
    config.hcclBufferSize = 0;
    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut root)));
    let message = hccl_refused(&table, join(&root, &config, &mut null_mut()), HcclResult::HCCL_E_PARA);
    assert!(message.contains("hcclBufferSize"), "{message}");
    ok(&table, call!(table, aclrtResetDevice(0)));
    assert_eq!(emulator.usage()[0].used_bytes, 0);
    hccl_ok(&table, call!(table, HcclCommDestroy(comm)));
    assert_eq!(emulator.usage()[0].used_bytes, 0);
}

#[test]
fn a_card_has_so_many_streams_and_notifies_and_no_more() {
    let (_emulator, table) = machine(1);
    ok(&table, call!(table, aclrtSetDevice(0)));
    // The default stream counts too.
    let mut streams = vec![null_mut(); 1983];
    for stream in &mut streams {
        ok(&table, call!(table, aclrtCreateStream(std::ptr::from_mut(stream))));
    }
    let mut one_more = null_mut();
    let code = call!(table, aclrtCreateStream(&raw mut one_more));
    assert!(refused(&table, code, ACL_ERROR_RT_NO_STREAM_RESOURCE).contains("all its 1984 streams"));
    ok(&table, call!(table, aclrtDestroyStream(streams[5])));
    ok(&table, call!(table, aclrtCreateStream(&raw mut one_more)));

    let create = table.aclrtCreateNotify.expect("modelled");
    let mut notify = null_mut();
    for _ in 0..8192 {
        // SAFETY: a valid pointer.
        ok(&table, unsafe { create(&raw mut notify, 0) });
    }
    // SAFETY: a valid pointer.
    let code = unsafe { create(&raw mut notify, 0) };
    assert!(refused(&table, code, ACL_ERROR_RT_NO_NOTIFY_RESOURCE).contains("8192"));
}
