//! Checks that the number of heap allocations of a run does not depend on the number of steps.
//!
//! Cards compute nothing ([`Mode::HostOnly`]), so all allocations are from the executor and its
//! calls.
#![expect(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::{Config, Emulator, Mode};
use ascend_tp::exec::{Clock, Engine, EngineOptions, NamedTensors, ProgramId};
use ascend_tp::program::models::Head;
use ascend_tp_sys::{
    ACL_SUCCESS, HcclComm, HcclDataType, HcclReduceOp, HcclResult, Table, aclError, aclrtEvent, aclrtStream,
};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count() {
        // An ending thread has no counter.
        let _ending = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
    }
}

// SAFETY: every call is passed on to the system's allocator; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

extern "C" fn all_reduce(
    _: *mut c_void,
    _: *mut c_void,
    _: u64,
    _: HcclDataType,
    _: HcclReduceOp,
    _: HcclComm,
    _: aclrtStream,
) -> HcclResult {
    HcclResult::HCCL_SUCCESS
}

extern "C" fn record(_: aclrtEvent, _: aclrtStream) -> aclError {
    ACL_SUCCESS
}

extern "C" fn wait(_: aclrtStream, _: aclrtEvent) -> aclError {
    ACL_SUCCESS
}

/// Replaces calls between streams and ranks, because the emulator allocates records for them.
fn without_meetings(table: &mut Table) {
    (table.HcclAllReduce, table.aclrtRecordEvent, table.aclrtStreamWaitEvent) = (all_reduce, record, wait);
}

fn taken(cards: usize, layers: usize, change: fn(&mut Table)) -> (usize, Vec<u64>) {
    let config = ModelConfig { layers, ..ModelConfig::preset("qwen2.5-72b").expect("a preset") };
    let deployment = Deployment {
        precision: DType::BF16.into(),
        longest_prompt: 4,
        context: 4 + 4,
        head: Head::LastToken,
        ..Deployment::of(&config, cards)
    };
    let decode = deployment.compile(&config).expect("it compiles").decode;
    let steps = decode[0].steps.len();
    let inputs = NamedTensors::zeros(&decode[0].inputs);
    let emulator =
        Emulator::new(Config { mode: Mode::HostOnly, ..Config::with_cards(cards) }).expect("it starts");
    let mut table = Table::clone(&emulator.table());
    change(&mut table);
    let cann = Cann::new(Arc::new(table)).expect("the emulator is a CANN");
    // A rank reads the engine's clock at the start and end of a run.
    let clock = Some(Clock(Arc::new(|| TAKEN.with(Cell::get))));
    let options = EngineOptions { clock, ..EngineOptions::default() };
    let mut engine = Engine::start(&cann, vec![decode], &options).expect("ranks start");
    // Queues grow during the first runs.
    for _ in 0..4 {
        engine.run(ProgramId(0), &inputs).expect("it runs");
    }
    let taken = engine.run_times().iter().map(|time| time.end - time.start).collect();
    (steps, taken)
}

fn assert_steps_take_nothing(cards: usize, change: fn(&mut Table)) {
    let (few_steps, few) = taken(cards, 1, change);
    let (many_steps, many) = taken(cards, 7, change);
    assert!(many_steps > few_steps + 40, "{few_steps} and {many_steps} steps");
    assert_eq!(few, many, "{cards} cards, {few_steps} and {many_steps} steps");
}

#[test]
fn a_step_takes_nothing_from_the_heap() {
    assert_steps_take_nothing(1, |_| ());
    assert_steps_take_nothing(2, without_meetings);
}
