//! Benchmark of all-reduce over the ranks of one process, from the size of a decoded token to sizes
//! limited by memory bandwidth.
//!
//! Eight cards reduce one vector each. The result is the time of one all-reduce, with many calls
//! enqueued before a wait and with a wait after each call. For comparison, two threads copy as many
//! bytes as the largest all-reduce.
#![expect(unsafe_code, reason = "the bench calls C functions")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use ascend_tp_sys::{HcclDataType, HcclReduceOp};
use common::{Card, call, hccl_ok, machine, world};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const RANKS: usize = 8;
const BATCH: u64 = 50;

fn collectives(criterion: &mut Criterion) {
    let (_emulator, table) = machine(RANKS);
    let (cards, comms) = world(&table, RANKS);
    let mut group = criterion.benchmark_group("all_reduce of 8 ranks");
    let f16 = HcclDataType::HCCL_DATA_TYPE_FP16;
    let f32 = HcclDataType::HCCL_DATA_TYPE_FP32;
    for (name, dtype, element, bytes, batch) in [
        ("f16, 16 KiB, many enqueued", f16, 2, 16 << 10, BATCH),
        ("f16, 16 KiB, each waited for", f16, 2, 16 << 10, 1),
        ("f32, 1 MiB, many enqueued", f32, 4, 1 << 20, BATCH),
        ("f32, 64 MiB, each waited for", f32, 4, 64 << 20, 1),
    ] {
        let place = |card: &Card<'_>| (card.malloc(bytes), card.malloc(bytes));
        let places: Vec<_> = cards.iter().map(place).collect();
        let all_reduce = || {
            for ((card, comm), (from, into)) in cards.iter().zip(&comms).zip(&places) {
                card.enter();
                let (count, sum) = ((bytes / element) as u64, HcclReduceOp::HCCL_REDUCE_SUM);
                hccl_ok(
                    &table,
                    call!(table, HcclAllReduce(*from, *into, count, dtype, sum, *comm, card.stream)),
                );
            }
        };
        let wait = || cards.iter().for_each(Card::synchronize);
        for (card, (from, _)) in cards.iter().zip(&places) {
            card.enter();
            common::ok(&table, call!(table, aclrtMemset(*from, bytes, 0, bytes)));
        }
        group.throughput(Throughput::Bytes((2 * RANKS * bytes) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let start = Instant::now();
                for first in (0..rounds).step_by(batch as usize) {
                    (first..rounds.min(first + batch)).for_each(|_| all_reduce());
                    wait();
                }
                start.elapsed()
            });
        });
        for (card, (from, into)) in cards.iter().zip(&places) {
            card.enter();
            common::ok(&table, call!(table, aclrtFree(*from)));
            common::ok(&table, call!(table, aclrtFree(*into)));
        }
    }
    group.finish();
}

/// Measures memory bandwidth with as many bytes as the largest all-reduce reads and writes.
fn limit(criterion: &mut Criterion) {
    const BYTES: usize = 256 << 20;
    let mut group = criterion.benchmark_group("limit");
    let (from, mut into) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    group.throughput(Throughput::Bytes(2 * BYTES as u64));
    group.bench_function("copy by two threads", |bencher| {
        bencher.iter(|| {
            std::thread::scope(|scope| {
                for (into, from) in into.chunks_mut(BYTES / 2).zip(from.chunks(BYTES / 2)) {
                    scope.spawn(move || into.copy_from_slice(from));
                }
            });
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(15).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    targets = limit, collectives
}
criterion_main!(benches);
