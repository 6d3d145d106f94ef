//! Tests of the C ABI on the emulator's table, on the drop-in libraries, and on a toolkit with
//! cards.
//!
//! Cases take a table and the number of cards, and use only documented features, so they also pass
//! on hardware. Each case runs on a thread with its name.
#![expect(unsafe_code, reason = "calls C functions")]

#[path = "../emulator/tests/common/mod.rs"]
mod common;

mod collectives;
mod operators;
mod runtime;

use std::env;

use ascend_tp_emulator::{Config, Emulator};
use ascend_tp_emulator_dropin::{real_library, write_libraries};
use ascend_tp_sys::{Library, Table, load};
use common::call;

type Case = (&'static str, fn(&Table, usize));

const SUITE: &[Case] = &[
    ("initialisation", runtime::initialisation),
    ("devices_and_contexts", runtime::devices_and_contexts),
    ("memory", runtime::memory),
    ("copies_of_rows", runtime::copies_of_rows),
    ("streams_and_events", runtime::streams_and_events),
    ("events_keep_time", runtime::events_keep_time),
    ("notifies", runtime::notifies),
    ("callbacks", runtime::callbacks),
    ("errors_and_messages", runtime::errors_and_messages),
    ("an_operator", operators::an_operator),
    ("a_repeatable_operator", operators::a_repeatable_operator),
    ("refused_operators", operators::refused_operators),
    ("communicators", collectives::communicators),
    ("every_collective", collectives::every_collective),
    ("rank_threads", collectives::rank_threads),
    ("finalisation", runtime::finalisation),
];

fn run(table: &Table) {
    let mut cards = 0_u32;
    assert_eq!(call!(table, aclrtGetDeviceCount(&raw mut cards)), 0, "{}", common::message(table));
    assert!(cards > 0, "there are no cards");
    for (name, case) in SUITE {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name((*name).to_owned());
            let running = thread.spawn_scoped(scope, || case(table, cards as usize)).expect("a thread");
            assert!(running.join().is_ok(), "case {name} failed; its own message stands above");
        });
    }
}

#[test]
fn on_the_table_of_an_emulator() {
    let emulator = Emulator::new(Config::with_cards(4)).expect("the emulator starts");
    run(&emulator.table());
}

#[test]
fn on_the_drop_in_libraries() {
    let folder = tempfile::tempdir().expect("a folder for the libraries");
    let real = real_library().expect("cargo built the shared library for this test");
    write_libraries(folder.path(), &real).expect("the libraries are written");
    let table = load(Some(folder.path())).expect("the table fills");
    run(&table);
}

/// Prints a note and passes without a toolkit or without cards.
#[test]
fn on_hardware() {
    if env::var_os("ASCEND_HOME_PATH").is_none_or(|path| path.is_empty()) {
        println!("skipped on_hardware: ASCEND_HOME_PATH names no toolkit");
        return;
    }
    let table = load(None).expect("the toolkit's table fills");
    let mut cards = 0_u32;
    let code = call!(table, aclrtGetDeviceCount(&raw mut cards));
    if code != 0 || cards == 0 {
        println!("skipped on_hardware: the toolkit finds no card ({} gave {code})", Library::AscendCl);
        return;
    }
    run(&table);
}
