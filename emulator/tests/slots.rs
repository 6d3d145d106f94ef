//! Maximum number of live machines, in its own process.
#![expect(unsafe_code, reason = "tests call C functions")]

mod common;

use ascend_tp_emulator::{Config, Emulator, EmulatorError};

use common::*;

#[test]
fn the_number_of_machines_is_limited_and_slots_come_back() {
    let mut alive = Vec::new();
    let refused = loop {
        match Emulator::new(Config { threads: 1, ..Config::with_cards(1) }) {
            Ok(emulator) => alive.push(emulator),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, EmulatorError::TooManyEmulators), "{refused}");
    assert!(refused.to_string().contains("emulators are alive in this process"));
    assert_eq!(alive.len(), 32);
    let kept = alive.pop().expect("at least one was built").table();
    alive.clear();
    let mut count = 0;
    ok(&kept, call!(kept, aclrtGetDeviceCount(&raw mut count)));
    assert_eq!(count, 1);
    drop(kept);
    let again: Vec<_> =
        (0..32).map(|_| Emulator::new(Config::with_cards(1)).expect("slots are free again")).collect();
    assert_eq!(again.len(), 32);
}
