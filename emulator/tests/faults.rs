//! Injected faults strike at their event, are named in errors, and leave correct data after they
//! are lifted.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Duration;

use crate::common::*;
use ascend_tp_emulator::{Calls, Checksum, Config, Emulator, Fault, FaultError};
use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclRootInfo, Table, aclrtContext,
    aclrtMemMallocPolicy, aclrtStream,
};

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;
const COUNT: usize = 64;
const LOST: i32 = 507_010;
const REMOTE: i32 = 507_057;

/// Creates a card per rank and one more for the test. Ranks wait at most two seconds.
fn emulator(world: usize) -> Emulator {
    let limit = Duration::from_secs(2);
    let config = Config {
        connect_timeout: limit,
        exec_timeout: 60 * limit,
        threads: 2,
        ..Config::with_cards(world + 1)
    };
    machine_of(config).0
}

#[derive(Debug)]
struct Failed {
    call: &'static str,
    code: i32,
    text: String,
}

struct Rank<'a> {
    table: &'a Table,
    rank: u32,
    context: aclrtContext,
    stream: aclrtStream,
    comm: HcclComm,
    buffers: Vec<*mut c_void>,
}

macro_rules! step {
    ($rank:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let code = step!(@code call!($rank.table, $name($($arg),*)));
        if code != 0 {
            return Err(Failed { call: stringify!($name), code, text: message($rank.table) });
        }
    }};
    (@code $code:expr) => { Code::from($code).0 };
}

struct Code(i32);

impl From<i32> for Code {
    fn from(code: i32) -> Self {
        Self(code)
    }
}

impl From<HcclResult> for Code {
    fn from(code: HcclResult) -> Self {
        Self(code.0.cast_signed())
    }
}

impl<'a> Rank<'a> {
    fn new(table: &'a Table, rank: u32) -> Self {
        Self { table, rank, context: null_mut(), stream: null_mut(), comm: null_mut(), buffers: Vec::new() }
    }

    fn run(&mut self, root: *const HcclRootInfo, world: u32) -> Result<Vec<u8>, Failed> {
        let rank = self.rank;
        step!(self, aclrtCreateContext(&raw mut self.context, rank.cast_signed()));
        step!(self, aclrtCreateStream(&raw mut self.stream));
        step!(self, HcclCommInitRootInfo(world, root, rank, &raw mut self.comm));
        let (stream, comm) = (self.stream, self.comm);
        let bytes = COUNT * size_of::<f32>();
        let mut buffer = || -> Result<*mut c_void, Failed> {
            let mut address = null_mut();
            let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
            step!(self, aclrtMalloc(&raw mut address, bytes * world as usize, policy));
            self.buffers.push(address);
            Ok(address)
        };
        let (own, all) = (buffer()?, buffer()?);
        let values = encode(FP32, (0..COUNT as i64).map(|i| i * 10 + i64::from(rank)));
        step!(self, aclrtMemcpyAsync(own, bytes, values.as_ptr().cast(), bytes, H2D, stream));
        step!(self, HcclAllReduce(own, own, COUNT as u64, FP32, SUM, comm, stream));
        step!(self, HcclAllGather(own, all, COUNT as u64, FP32, comm, stream));
        step!(self, HcclBroadcast(own, COUNT as u64, FP32, world - 1, comm, stream));
        step!(self, HcclBarrier(comm, stream));
        step!(self, aclrtSynchronizeStream(stream));
        let mut out = vec![0_u8; bytes * world as usize];
        step!(self, aclrtMemcpy(out.as_mut_ptr().cast(), out.len(), all, out.len(), D2H));
        Ok(out)
    }

    fn end(&mut self) {
        call!(self.table, aclrtSetCurrentContext(self.context));
        if !self.comm.is_null() {
            call!(self.table, HcclCommDestroy(self.comm));
        }
        for buffer in self.buffers.drain(..) {
            call!(self.table, aclrtFree(buffer));
        }
        if !self.stream.is_null() {
            call!(self.table, aclrtDestroyStreamForce(self.stream));
        }
        if !self.context.is_null() {
            call!(self.table, aclrtDestroyContext(self.context));
        }
        message(self.table);
    }
}

fn run(table: &Table, world: u32) -> Vec<Result<Vec<u8>, Failed>> {
    let keeper = Card::new(table, world.cast_signed());
    let mut root = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(table, call!(table, HcclGetRootInfo(&raw mut root)));
    let outcomes = std::thread::scope(|scope| {
        let root = &root;
        let ranks = (0..world).map(|rank| {
            let body = move || {
                let mut rank = Rank::new(table, rank);
                let outcome = rank.run(std::ptr::from_ref(root), world);
                rank.end();
                outcome
            };
            scope.spawn(body)
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    });
    call!(table, aclrtDestroyContext(keeper.context));
    message(table);
    outcomes
}

fn expected(world: u32) -> Vec<u8> {
    let sum = |i: i64| i64::from(world) * i * 10 + i64::from(world * (world - 1) / 2);
    encode(FP32, (0..world).flat_map(|_| (0..COUNT as i64).map(sum)))
}

/// Checks that, without faults, results are right and the cards are empty afterwards.
fn assert_right(emulator: &Emulator, world: u32) {
    let table = emulator.table();
    for (rank, outcome) in run(&table, world).into_iter().enumerate() {
        let out = outcome.unwrap_or_else(|failed| panic!("rank {rank}: {failed:?}"));
        assert!(out == expected(world), "rank {rank} received other bytes");
    }
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
}

#[test]
fn memory_runs_out_at_the_allocation_that_is_named() {
    let emulator = emulator(2);
    let fault = emulator.inject(Fault::OutOfMemory { at: 2, card: Some(1) }).expect("possible");
    let outcomes = run(&emulator.table(), 2);
    let failed = outcomes[1].as_ref().expect_err("its second allocation fails");
    assert_eq!((failed.call, failed.code), ("aclrtMalloc", 207_001));
    assert_eq!(
        failed.text,
        "aclrtMalloc: card 1 is out of memory: asked 512 B (injected fault at allocation 2)"
    );
    let peer = outcomes[0].as_ref().expect_err("its peer left");
    assert!(peer.text.contains("rank 1 has left"), "{peer:?}");
    assert_eq!(fault.lift(), 1);
    assert_right(&emulator, 2);
}

#[test]
fn a_call_fails_with_the_code_asked_for_and_is_not_made() {
    let emulator = emulator(1);
    let table = emulator.table();
    let card = Card::new(&table, 0);
    let calls = Calls::nth(2).of("aclrtMemcpy").on(0);
    let fault = emulator.inject(Fault::Error { calls, code: 507_015 }).expect("possible");
    let buffer = card.upload(&[1; 8]);
    let second = call!(table, aclrtMemcpy(buffer, 8, [2_u8; 8].as_ptr().cast(), 8, H2D));
    assert_eq!(refused(&table, second, 507_015), "aclrtMemcpy: injected fault: code 507015 at event 2");
    assert_eq!(card.download(buffer, 8), [1; 8], "the call that failed did nothing; the third works again");
    assert_eq!(fault.lift(), 1);
    // Codes are translated for the function's library.
    let fault = emulator.inject(Fault::Error { calls: Calls::nth(1).of("HcclCommInitAll"), code: REMOTE });
    let fault = fault.expect("possible");
    let mut comm = null_mut();
    let code = call!(table, HcclCommInitAll(1, [0].as_mut_ptr(), &raw mut comm));
    hccl_refused(&table, code, HcclResult::HCCL_E_REMOTE);
    drop(fault);
}

#[test]
fn a_fault_the_machine_cannot_have_is_refused() {
    let emulator = emulator(2);
    let refusal = emulator.inject(Fault::Slow { card: 3, delay: Duration::ZERO }).expect_err("no such card");
    assert!(matches!(refusal, FaultError::Card { card: 3, last: 2, .. }), "{refusal}");
}

#[test]
fn a_slow_card_is_late_and_right() {
    let emulator = emulator(3);
    let fault =
        emulator.inject(Fault::Slow { card: 1, delay: Duration::from_micros(300) }).expect("possible");
    assert_right(&emulator, 3);
    assert!(fault.struck() >= 5, "every entry of card 1 was late: {}", fault.struck());
    drop(fault);
    assert_right(&emulator, 3);
}

#[test]
fn a_stuck_stream_goes_on_when_the_fault_is_lifted() {
    let emulator = emulator(1);
    let table = emulator.table();
    let card = Card::new(&table, 0);
    let buffer = card.upload(&[0; 4]);
    let fault = emulator.inject(Fault::Stuck { at: 2, card: 0, limit: None }).expect("possible");
    for value in [3, 5] {
        ok(&table, call!(table, aclrtMemsetAsync(buffer, 4, value, 4, card.stream)));
    }
    let waited = call!(table, aclrtSynchronizeStreamWithTimeout(card.stream, 20));
    let text = refused(&table, waited, 507_046);
    assert!(text.contains("still has 1 unfinished entries"), "{text}");
    assert_eq!(card.download(buffer, 4), [3; 4], "the first entry ran, the second did not");
    assert_eq!(fault.lift(), 1);
    card.synchronize();
    assert_eq!(card.download(buffer, 4), [5; 4]);
}

#[test]
fn the_watchdog_ends_a_stuck_stream() {
    let emulator = emulator(2);
    let limit = Some(Duration::from_millis(5));
    let fault = emulator.inject(Fault::Stuck { at: 1, card: 1, limit }).expect("possible");
    let outcomes = run(&emulator.table(), 2);
    let stuck = outcomes[1].as_ref().expect_err("its stream is stuck");
    assert!(stuck.text.contains("did not end within its time limit"), "{stuck:?}");
    drop(fault);
    drop(outcomes);
    assert_right(&emulator, 2);
}

#[test]
fn a_link_that_is_down_fails_what_crosses_it() {
    let emulator = emulator(3);
    let table = emulator.table();
    let fault = emulator.inject(Fault::LinkDown { at: 2, cards: [2, 0] }).expect("possible");
    for (rank, outcome) in run(&table, 3).into_iter().enumerate() {
        let failed = outcome.expect_err("every rank takes part");
        assert!(
            failed.text.contains("the link between rank 2 (card 2) and rank 0 (card 0) is down"),
            "rank {rank}: {failed:?}"
        );
    }
    for outcome in run(&table, 2) {
        assert!(outcome.expect("right") == expected(2));
    }
    assert!(fault.lift() >= 1);
    assert_right(&emulator, 3);
}

#[test]
fn a_flipped_bit_is_wrong_data_without_a_checksum_and_an_error_with_one() {
    let emulator = emulator(2);
    let table = emulator.table();
    let flip = |checksum| Fault::BitFlip { at: 2, card: 1, seed: 5, checksum };
    let fault = emulator.inject(flip(Checksum::Absent)).expect("possible");
    let outcomes = run(&table, 2);
    let bits = |out: &[u8]| -> u32 { out.iter().zip(expected(2)).map(|(a, b)| (a ^ b).count_ones()).sum() };
    let wrong: Vec<u32> =
        outcomes.iter().map(|outcome| bits(outcome.as_ref().expect("no one notices"))).collect();
    assert_eq!(wrong, [0, 1], "one bit of what card 1 gathered");
    assert_eq!(fault.lift(), 1);
    assert_right(&emulator, 2);
    let fault = emulator.inject(flip(Checksum::Verified)).expect("possible");
    for outcome in run(&table, 2) {
        let failed = outcome.expect_err("the receiver notices, all are told");
        assert!(
            failed.text.contains("collective 1: what card 1 received is damaged: checksum"),
            "{failed:?}"
        );
    }
    assert_eq!(fault.lift(), 1);
    assert_right(&emulator, 2);
}

/// A card may be lost at any call. The peers' error names the lost rank.
#[test]
fn a_rank_may_die_at_any_call() {
    const WORLD: u32 = 4;
    let emulator = emulator(WORLD as usize);
    let table = emulator.table();
    assert_right(&emulator, WORLD);
    for dying in 0..WORLD {
        // The loop ends when a run has fewer calls. A rank that dies before its second call never
        // joins its peers, which wait until their limit. One such rank is enough.
        let first = if dying == 0 { 1 } else { 3 };
        for at in first.. {
            let fault = Fault::CardLost { calls: Calls::nth(at).on(dying) };
            let fault = emulator.inject(fault).expect("possible");
            let outcomes = run(&table, WORLD);
            let died = fault.lift() > 0;
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                match outcome {
                    Ok(out) => assert!(out == expected(WORLD), "rank {rank}, death of {dying} at {at}"),
                    Err(failed) if rank as u32 == dying => {
                        assert!(failed.code == LOST || failed.code == 15, "{failed:?}");
                        assert!(failed.text.contains(&format!("card {dying} is lost")), "{failed:?}");
                    }
                    Err(failed) => {
                        let names =
                            [format!("rank {dying}"), format!("ranks [{dying}]"), format!("card {dying}")];
                        assert!(names.iter().any(|name| failed.text.contains(name)), "{failed:?} at {at}");
                    }
                }
            }
            assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
            if !died {
                break;
            }
        }
        assert_right(&emulator, WORLD);
    }
}

#[test]
fn a_process_that_is_killed() {
    if std::env::var_os("ASCEND_TEST_KILL").is_none() {
        return;
    }
    let emulator = emulator(1);
    let fault: Fault = "kill:at=1:call=HcclAllReduce".parse().expect("a fault");
    emulator.inject(fault).expect("possible").stay();
    run(&emulator.table(), 1);
    unreachable!("the program calls HcclAllReduce");
}

#[test]
fn a_process_may_be_killed() {
    let this = std::env::current_exe().expect("a test binary");
    let mut child = Command::new(this);
    child.args(["--exact", "faults::a_process_that_is_killed"]).env("ASCEND_TEST_KILL", "1");
    let outcome = child.output().expect("it runs");
    assert!(!outcome.status.success());
    assert_eq!(outcome.status.code(), None, "ended by a signal: {outcome:?}");
}
