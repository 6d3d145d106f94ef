//! Page-locked host memory in strict mode: the host's own accesses while a copy is queued.
#![expect(unsafe_code, reason = "tests call C functions and touch memory as a C program does")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::common::strict::{strict, texts};
use crate::common::{Card, D2H, Gate, H2D, call, notify, ok, young};
use ascend_tp_sys::{Table, aclrtStream};

const SEEDS: u64 = 6;

fn pinned(table: &Table, bytes: usize) -> *mut u8 {
    let mut host = null_mut();
    ok(table, call!(table, aclrtMallocHost(&raw mut host, bytes)));
    host.cast()
}

/// A plain store of the program.
fn store(host: *mut u8, offset: usize, value: u8) {
    // SAFETY: page-locked memory of the test, larger than `offset`.
    unsafe { host.wrapping_add(offset).write_volatile(value) };
}

/// A plain load of the program.
fn load(host: *mut u8, offset: usize) -> u8 {
    // SAFETY: page-locked memory of the test, larger than `offset`.
    unsafe { host.wrapping_add(offset).read_volatile() }
}

fn fill(host: *mut u8, bytes: usize, value: u8) {
    (0..bytes).for_each(|offset| store(host, offset, value));
}

fn upload(table: &Table, card: *mut c_void, host: *mut u8, bytes: usize, stream: aclrtStream) {
    ok(table, call!(table, aclrtMemcpyAsync(card, bytes, host.cast(), bytes, H2D, stream)));
}

fn download(table: &Table, host: *mut u8, card: *mut c_void, bytes: usize, stream: aclrtStream) {
    ok(table, call!(table, aclrtMemcpyAsync(host.cast(), bytes, card, bytes, D2H, stream)));
}

#[test]
fn a_source_that_the_host_rewrites_before_its_copy_is_reported_by_every_seed() {
    for seed in 0..SEEDS {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (host, buffer) = (pinned(&table, 100), card.malloc(100));
        fill(host, 100, 1);
        upload(&table, buffer, host, 90, card.stream);
        store(host, 89, 2);
        card.synchronize();
        let found = texts(&emulator);
        assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
        let told = "race: bytes 0 to 89 of the 100-byte buffer on the host (aclrtMallocHost, call 4) were changed by the \
                    host before [1] read them as src; synchronize stream 3, or an event recorded on it after [1], before \
                    the host writes them; [1] aclrtMemcpyAsync (call 7 ";
        assert!(found[0].starts_with(told), "seed {seed}: {found:?}");

        fill(host, 100, 3);
        upload(&table, buffer, host, 90, card.stream);
        card.synchronize();
        fill(host, 100, 4);
        assert_eq!(card.download(buffer, 90), [3; 90]);
        assert_eq!(texts(&emulator).len(), 1, "the host waited");
    }
}

#[test]
fn a_target_that_the_host_touches_before_its_copy_is_reported_and_poisoned() {
    for seed in 0..SEEDS {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (host, buffer) = (pinned(&table, 70), card.upload(&[7; 70]));
        fill(host, 70, 1);
        download(&table, host, buffer, 70, card.stream);
        assert_eq!((load(host, 8), load(host, 9)), (0xF9, 0xFF), "seed {seed}");
        card.synchronize();
        let found = texts(&emulator);
        assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
        let told = "race: byte 8 of the 70-byte buffer on the host (aclrtMallocHost, call 4) was touched by the host \
                    before [1] wrote it as dst; synchronize stream 3";
        assert!(found[0].starts_with(told), "seed {seed}: {found:?}");
        assert!((0..70).all(|offset| load(host, offset) == 7));

        // A part of a page is filled, but not fenced: a write of the host is seen.
        download(&table, host, buffer, 10, card.stream);
        store(host, 3, 5);
        assert_eq!(load(host, 69), 7, "the rest of the buffer belongs to the host");
        card.synchronize();
        let found = texts(&emulator);
        let told = "bytes 0 to 9 of the 70-byte buffer on the host (aclrtMallocHost, call 4) were changed by the host \
                    before [1] wrote them as dst";
        assert!(found.len() == 2 && found[1].contains(told), "seed {seed}: {found:?}");
    }
}

#[test]
fn accesses_that_are_ordered_before_the_copy_are_not_reported_and_keep_their_bytes() {
    for seed in 0..SEEDS {
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        let (host, buffer, other) = (pinned(&table, 64), card.upload(&[9; 64]), card.stream());
        let own = card.malloc(64);
        // The queued upload reads what the later download overwrites.
        fill(host, 64, 1);
        upload(&table, own, host, 64, card.stream);
        download(&table, host, buffer, 64, card.stream);
        upload(&table, buffer, host, 32, card.stream);
        card.synchronize();
        assert_eq!((card.download(own, 64), load(host, 0)), (vec![1; 64], 9), "seed {seed}");
        // A later call of the host releases the copies.
        let release = notify(&table);
        ok(&table, young!(table, aclrtWaitAndResetNotify(release, card.stream, 0)));
        upload(&table, own, host, 64, card.stream);
        download(&table, host, buffer, 64, card.stream);
        assert_eq!(load(host, 63), 9, "seed {seed}");
        fill(host, 64, 4);
        ok(&table, young!(table, aclrtRecordNotify(release, other)));
        card.synchronize();
        assert_eq!(card.download(own, 64), [4; 64], "seed {seed}");
        // A function of the program runs before the copy.
        let gate = Arc::new(Gate::default());
        gate.enqueue(&table, card.stream);
        upload(&table, own, host, 64, card.stream);
        fill(host, 64, 5);
        gate.open();
        card.synchronize();
        assert_eq!(card.download(own, 64), [5; 64], "seed {seed}");
        ok(&table, call!(table, aclrtFreeHost(host.cast())));
        assert_eq!(texts(&emulator), [""; 0], "seed {seed}");
    }
}
