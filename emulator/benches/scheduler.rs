//! Benchmark of the scheduler: time from the end of a task to the start of the next, and until a
//! second core helps.
//!
//! The tasks on one stream do almost nothing. `chain` blocks the stream until all tasks are
//! enqueued, so it measures the cards' side only. `chain enqueued` includes the calls of the
//! program. `alone` waits for each task. `tiles` runs a task of two tiles.
#![expect(unsafe_code, reason = "the bench calls C functions")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Card, call, machine, ok};

/// Calls a function of the table that older toolkits do not have.
macro_rules! young {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$name.expect("modelled");
        // SAFETY: valid pointers and handles of this table.
        unsafe { function($($arg),*) }
    }};
}
use criterion::{Criterion, criterion_group, criterion_main};

/// Number of operators per decoded token.
const CHAIN: u64 = 480;
/// Larger than one tile of a fill.
const TWO_TILES_BYTES: usize = (1 << 20) + 4096;

fn scheduler(criterion: &mut Criterion) {
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (small, large) = (card.malloc(64), card.malloc(TWO_TILES_BYTES));
    let fill = |bytes: usize| {
        let place = if bytes > 64 { large } else { small };
        ok(&table, call!(table, aclrtMemsetAsync(place, bytes, 0, bytes, card.stream)));
    };
    let opener = card.stream();
    let mut notify = std::ptr::null_mut();
    ok(&table, young!(table, aclrtCreateNotify(&raw mut notify, 0)));

    let mut group = criterion.benchmark_group("scheduler");
    group.bench_function("task in a chain", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds.div_ceil(CHAIN) {
                ok(&table, young!(table, aclrtWaitAndResetNotify(notify, card.stream, 0)));
                (0..CHAIN).for_each(|_| fill(64));
                let start = Instant::now();
                ok(&table, young!(table, aclrtRecordNotify(notify, opener)));
                card.synchronize();
                spent += start.elapsed();
            }
            spent.mul_f64(rounds as f64 / (rounds.div_ceil(CHAIN) * CHAIN) as f64)
        });
    });
    group.bench_function("task in a chain, enqueued meanwhile", |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds.div_ceil(CHAIN) {
                (0..CHAIN).for_each(|_| fill(64));
                card.synchronize();
            }
            start.elapsed().mul_f64(rounds as f64 / (rounds.div_ceil(CHAIN) * CHAIN) as f64)
        });
    });
    group.bench_function("task and wait for it", |bencher| {
        bencher.iter(|| {
            fill(64);
            card.synchronize();
        });
    });
    for (name, bytes) in [
        ("one tile of 1 MiB in a chain", 1 << 20),
        ("two tiles of 1 MiB and 4 KiB in a chain", TWO_TILES_BYTES),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let start = Instant::now();
                (0..rounds).for_each(|_| fill(bytes));
                card.synchronize();
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = scheduler
}
criterion_main!(benches);
