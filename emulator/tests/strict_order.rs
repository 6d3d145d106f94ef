//! The seed alone decides the order of calls and tasks. Four ranks pause differently in every run.
//! Other threads of the process do not change the trace.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::strict::*;
use crate::common::*;
use ascend_tp_sys::HcclRootInfo;

fn linger() {
    static TURN: AtomicU64 = AtomicU64::new(0x1234_5678);
    let turn = TURN.fetch_add(0x9e37_79b9, Ordering::Relaxed);
    match turn % 7 {
        0 => (0..turn % 300_000).for_each(|step| {
            std::hint::black_box(step);
        }),
        1 => std::thread::yield_now(),
        2 => (0..turn % 3000).for_each(|step| {
            std::hint::black_box(step);
        }),
        _ => {}
    }
}
fn four_ranks(seed: u64) -> (Vec<String>, Vec<Vec<u8>>) {
    let (emulator, table) = strict(4, seed);
    let card = Card::new(&table, 0);
    card.enter();
    let mut root = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut root)));
    let sums: Vec<Mutex<Vec<u8>>> = (0..4).map(|_| Mutex::default()).collect();
    on_threads(4, |rank| {
        linger();
        let card = Card::new(&table, rank as i32);
        linger();
        let mut comm = null_mut();
        hccl_ok(&table, call!(table, HcclCommInitRootInfo(4, &raw const root, rank as u32, &raw mut comm)));
        let values: Vec<i64> = (0..100).map(|at| at + rank as i64).collect();
        let buffer = card.upload(&encode(INT32, values));
        for _ in 0..2 {
            linger();
            all_reduce(&table, &card, buffer, 100, comm);
        }
        linger();
        card.synchronize();
        let sum = card.download(buffer, 400);
        *sums[rank].lock().expect("no rank panicked") = sum;
        ok(&table, call!(table, aclrtFree(buffer)));
        hccl_ok(&table, call!(table, HcclCommDestroy(comm)));
    });
    assert_eq!(texts(&emulator), Vec::<String>::new(), "seed {seed}");
    let trace = emulator.trace().iter().map(ToString::to_string).collect();
    (trace, sums.into_iter().map(|sum| sum.into_inner().expect("no rank panicked")).collect())
}

fn same(found: &[String], expected: &[String], seed: u64) {
    let parts = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let around =
        |trace: &[String], at: usize| trace[at.saturating_sub(3)..trace.len().min(at + 3)].join("\n");
    if let Some(at) = parts {
        panic!("seed {seed} gave\n{}\nand\n{}", around(found, at), around(expected, at));
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}");
}

/// Each seed gives one order in three runs, and most seeds different orders.
fn orders_are_the_seeds(seeds: u64) {
    let expected = encode(INT32, (0..100).map(|at| 4 * (4 * at + 6)));
    let mut orders = BTreeSet::new();
    for seed in 0..seeds {
        let (trace, sums) = four_ranks(seed);
        assert!(sums.iter().all(|sum| *sum == expected), "seed {seed}");
        for _ in 0..2 {
            same(&four_ranks(seed).0, &trace, seed);
        }
        orders.insert(trace);
    }
    assert!(orders.len() as u64 >= seeds * 9 / 10, "{seeds} seeds gave only {} orders", orders.len());
}

#[test]
fn the_seed_alone_decides_the_order() {
    orders_are_the_seeds(50);
}

/// Threads outside the program hold the allocator lock of the C library, which has only one arena
/// here. A thread that waits for the lock continues on its own.
#[test]
fn who_waits_for_a_lock_of_the_c_library_is_not_passed_by() {
    const ARENAS: &str = "MALLOC_ARENA_MAX";
    if env::var_os(ARENAS).is_none() {
        let name = "strict_order::who_waits_for_a_lock_of_the_c_library_is_not_passed_by";
        let mut again = Command::new(env::current_exe().expect("this test's program"));
        let output = again.args(["--exact", name]).env(ARENAS, "1").output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let is_over = &is_over;
            scope.spawn(move || {
                // Larger than a thread's own cache.
                let mut blocks: Vec<Vec<u8>> = vec![Vec::new(); 64];
                for turn in (thread..).step_by(7) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    blocks[turn % 64] = vec![1; 2000 + turn.wrapping_mul(7919) % 60_000];
                    if turn % 50 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(|| orders_are_the_seeds(20));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The first thread waits for a lock before its second call. A thread outside the program holds the
/// lock for `held`.
fn two_threads_and_a_lock(seed: u64, held: Duration) -> Vec<String> {
    let (lock, is_coming) = (Mutex::new(()), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let (lock, is_coming) = (&lock, &is_coming);
        scope.spawn(move || {
            let _held = lock.lock();
            tell.send(()).expect("somebody listens");
            while !is_coming.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let since = Instant::now();
            while since.elapsed() < held {
                std::hint::spin_loop();
            }
        });
        told.recv().expect("the lock is taken");
        // Newer than the thread that holds the lock.
        let (emulator, table) = strict(1, seed);
        let card = Card::new(&table, 0);
        on_threads(2, |thread| {
            card.enter();
            if thread == 0 {
                is_coming.store(true, Ordering::Relaxed);
                drop(lock.lock());
            }
            for _ in 0..3 {
                let buffer = card.malloc(64);
                ok(&table, call!(table, aclrtFree(buffer)));
            }
        });
        emulator.trace().iter().map(ToString::to_string).collect()
    })
}

/// Longer than the conductor waits if no thread that could hold the lock is running.
#[test]
fn who_waits_for_a_lock_while_another_thread_runs_is_not_passed_by() {
    for seed in 0..6 {
        let expected = two_threads_and_a_lock(seed, Duration::ZERO);
        same(&two_threads_and_a_lock(seed, Duration::from_millis(300)), &expected, seed);
    }
}
