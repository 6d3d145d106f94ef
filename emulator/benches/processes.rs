//! Benchmark of all-reduce across eight processes of this host.
//!
//! The program starts itself once per rank. It prints the median time of one all-reduce on rank 0
//! for each size, with many calls enqueued before a wait and with a wait after each call. The
//! programs in `cli/peers` do the same with other libraries.
#![expect(unsafe_code, reason = "the bench calls C functions")]
#![expect(clippy::wildcard_imports, reason = "a file of the tests")]
#![allow(dead_code, reason = "the tests' worlds can do more")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/processes/world.rs"]
mod world;

use std::time::{Duration, Instant};

use ascend_tp_sys::{HcclDataType, HcclReduceOp};
use common::{call, hccl_ok, ok};
use world::{Process, World, role, say, start};

const RANKS: u32 = 8;

/// One row: a name, the type, bytes of a vector, all-reduces before a wait, number of waits.
type Row = (&'static str, HcclDataType, usize, usize, usize);

const ROWS: [Row; 4] = [
    ("f16, 16 KiB, many enqueued", HcclDataType::HCCL_DATA_TYPE_FP16, 16 << 10, 50, 20),
    ("f16, 16 KiB, each waited for", HcclDataType::HCCL_DATA_TYPE_FP16, 16 << 10, 1, 300),
    ("f32, 1 MiB, each waited for", HcclDataType::HCCL_DATA_TYPE_FP32, 1 << 20, 1, 40),
    ("f32, 64 MiB, each waited for", HcclDataType::HCCL_DATA_TYPE_FP32, 64 << 20, 1, 7),
];

fn run(world: &World) {
    let cards = world.cards();
    let comms = world.join(&cards).expect("all ranks come");
    let (table, card, comm) = (&world.table, &cards[0], comms[0]);
    for (name, dtype, bytes, batch, waits) in ROWS {
        let (from, into) = (card.malloc(bytes), card.malloc(bytes));
        ok(table, call!(table, aclrtMemset(from, bytes, 0, bytes)));
        let element = if dtype == HcclDataType::HCCL_DATA_TYPE_FP16 { 2 } else { 4 };
        let mut taken: Vec<Duration> = Vec::with_capacity(waits);
        for round in 0..waits + 2 {
            let since = Instant::now();
            for _ in 0..batch {
                let (count, sum) = ((bytes / element) as u64, HcclReduceOp::HCCL_REDUCE_SUM);
                hccl_ok(table, call!(table, HcclAllReduce(from, into, count, dtype, sum, comm, card.stream)));
            }
            card.synchronize();
            if round >= 2 {
                taken.push(since.elapsed() / batch as u32);
            }
        }
        taken.sort_unstable();
        say(&format!("row {name}: median {:?}, least {:?}", taken[waits / 2], taken[0]));
        ok(table, call!(table, aclrtFree(from)));
        ok(table, call!(table, aclrtFree(into)));
    }
    hccl_ok(table, call!(table, HcclCommDestroy(comm)));
}

fn main() {
    if let Some(world) = role() {
        return run(&world);
    }
    let layout: Vec<Vec<u32>> = (0..RANKS).map(|rank| vec![rank]).collect();
    let layout: Vec<&[u32]> = layout.iter().map(Vec::as_slice).collect();
    let mut processes = start("all_reduce", &layout, &[]);
    for row in processes[0].rest("row ") {
        say(&format!("all_reduce of {RANKS} processes, {row}"));
    }
    processes.iter_mut().map(Process::end).for_each(|status| assert!(status.success(), "{status}"));
}
