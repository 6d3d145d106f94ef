//! Strict machines, their reports, and one thread per rank.

use std::ffi::c_void;
use std::sync::Arc;

use ascend_tp_emulator::{Config, Emulator, Mode, Report};
use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, Table};

use super::collective::sum;
use super::{Card, hccl_ok, machine_of};

pub(crate) const INT32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_INT32;

pub(crate) fn strict(cards: usize, seed: u64) -> (Emulator, Arc<Table>) {
    machine_of(Config { mode: Mode::Strict { seed }, threads: 2, ..Config::with_cards(cards) })
}

pub(crate) fn texts(emulator: &Emulator) -> Vec<String> {
    emulator.reports().iter().map(Report::to_string).collect()
}

/// Each thread has its rank's name.
pub(crate) fn on_threads(ranks: usize, rank: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..ranks {
            let rank = &rank;
            let thread = std::thread::Builder::new().name(format!("rank-{number}"));
            thread.spawn_scoped(scope, move || rank(number)).expect("a thread starts");
        }
    });
}

/// Sums INT32 in place, from a thread without the card's context.
pub(crate) fn all_reduce(table: &Table, card: &Card<'_>, buffer: *mut c_void, count: u64, comm: HcclComm) {
    hccl_ok(table, sum(card, comm, buffer, INT32, count));
}
