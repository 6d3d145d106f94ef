//! Virtual time: events, equal times in every run, and memory that is never used.
#![expect(unsafe_code, reason = "tests call C functions")]

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ascend_tp_emulator::{
    Config, Emulator, EmulatorError, Fault, Lane, LaneSpan, Mode, Numbers, Recording, Soc,
};
use ascend_tp_machine::launch::Access;
use ascend_tp_machine::topology::Fabric;
use ascend_tp_machine::{
    CollectiveCost, Element, Exchange, HostCall, Launch, LaunchOperand, OperatorCost, Profile, Work,
};
use ascend_tp_sys::{
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, ACL_ERROR_RT_TASK_TIMEOUT, HcclComm,
    HcclDataType, HcclResult, HcclRootInfo, Table, aclDataType, aclOpExecutor, aclmdlRICaptureMode,
    aclrtEvent, aclrtEventRecordedStatus, aclrtMemMallocPolicy, aclrtStream, aclrtStreamStatus,
};
use common::collective::sum;
use common::operators::{Joined, Planned, Sizes, add, group_name, joined, plan, tensor};
use common::{Card, call, encode, hccl_ok, hccl_refused, machine_of, message, ok, refused, world};

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;

fn started(config: Config) -> (Emulator, Arc<Table>) {
    let (emulator, table) = machine_of(config);
    emulator.record_timeline(Recording::Everything);
    (emulator, table)
}

fn timed(cards: usize) -> (Emulator, Arc<Table>) {
    started(Config::timed(Soc::Ascend910B3, cards, Numbers::None))
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Square fp32 matrices `a`, `b`, `out`, and a repeatable product.
struct Product {
    executor: *mut aclOpExecutor,
    workspace: *mut c_void,
    workspace_bytes: u64,
}

fn product(card: &Card<'_>, size: i64) -> Product {
    let table = card.table;
    let matrix =
        || tensor(table, aclDataType::ACL_FLOAT, card.malloc((size * size * 4) as usize), &[size, size]);
    let (a, b, out) = (matrix(), matrix(), matrix());
    let first = |bytes, executor| call!(table, aclnnMatmulGetWorkspaceSize(a, b, out, 0, bytes, executor));
    let Planned { executor, workspace, workspace_bytes } = plan(card, first);
    assert_eq!(call!(table, aclSetAclOpExecutorRepeatable(executor)), 0, "{}", message(table));
    Product { executor, workspace, workspace_bytes }
}

impl Product {
    fn run(&self, card: &Card<'_>, stream: aclrtStream) {
        let code =
            call!(card.table, aclnnMatmul(self.workspace, self.workspace_bytes, self.executor, stream));
        assert_eq!(code, 0, "{}", message(card.table));
    }
}

fn vectors(card: &Card<'_>, count: i64) -> [*mut c_void; 3] {
    [(); 3].map(|()| card.malloc(count as usize * 4))
}

fn run_add(card: &Card<'_>, stream: aclrtStream, vectors: [*mut c_void; 3], count: i64) {
    add(card, stream, vectors, 1.0, count).expect("a sum of vectors");
}

fn record(card: &Card<'_>, event: aclrtEvent, stream: aclrtStream) {
    ok(card.table, call!(card.table, aclrtRecordEvent(event, stream)));
}

fn await_event(card: &Card<'_>, stream: aclrtStream, event: aclrtEvent) {
    ok(card.table, call!(card.table, aclrtStreamWaitEvent(stream, event)));
}

fn all_reduce(card: &Card<'_>, comm: HcclComm, buffer: *mut c_void, count: u64) {
    hccl_ok(card.table, sum(card, comm, buffer, FP32, count));
}

fn of_lane(spans: &[LaneSpan], lane: Lane) -> Vec<LaneSpan> {
    spans.iter().filter(|span| span.lane == lane).cloned().collect()
}

#[test]
fn an_operator_takes_what_the_cost_model_says() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    product(&card, 2048).run(&card, card.stream);
    card.synchronize();
    let operand = |access| LaunchOperand::dense(Element::F32, [2048, 2048], access);
    let operands = vec![operand(Access::Read), operand(Access::Read), operand(Access::Write)];
    let work = Work::of(&Launch { operator: "aclnnMatmul", operands });
    let cost = OperatorCost::of(&Profile::of(Soc::Ascend910B3), &work);
    let spans = emulator.timeline();
    assert_eq!(spans.len(), 1);
    assert_eq!(
        (spans[0].name, spans[0].bound, spans[0].lane),
        ("aclnnMatmul", cost.bound.name(), Lane::Cube)
    );
    assert_eq!(spans[0].end_ns - spans[0].start_ns, ns(cost.duration_us));
    assert_eq!((spans[0].flops, spans[0].bytes), (work.flops(), work.bytes()));
    let wake = ns(Profile::of(Soc::Ascend910B3).coefficients.host.wake_us);
    assert_eq!(emulator.thread_now_ns(), spans[0].end_ns + wake);
    let totals = emulator.totals();
    assert_eq!((totals.len(), totals[0].count, totals[0].busy_ns), (1, 1, ns(cost.duration_us)));
}

#[test]
fn kernels_of_one_engine_add_up_and_of_two_overlap() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let other = card.stream();
    let (big, count) = (product(&card, 4096), 1 << 26);
    let (x, y) = (vectors(&card, count), vectors(&card, count));
    run_add(&card, card.stream, x, count);
    run_add(&card, other, y, count);
    big.run(&card, card.stream);
    ok(&table, call!(table, aclrtSynchronizeDevice()));
    let spans = emulator.timeline();
    let sums = of_lane(&spans, Lane::Vector);
    assert_eq!(sums.len(), 2);
    assert_eq!(sums[1].start_ns, sums[0].end_ns, "one at a time");
    assert!(sums[1].arrived_ns < sums[0].end_ns);
    let products = of_lane(&spans, Lane::Cube);
    assert_eq!(products[0].start_ns, sums[0].end_ns, "in the order of its stream");
    assert!(products[0].start_ns < sums[1].end_ns, "beside the other engine's");
}

#[test]
fn events_order_streams_and_tell_the_time_between() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let (other, first, last) = (card.stream(), card.event(), card.event());
    let (big, count) = (product(&card, 4096), 1 << 20);
    let x = vectors(&card, count);
    record(&card, first, card.stream);
    big.run(&card, card.stream);
    record(&card, last, card.stream);
    await_event(&card, other, last);
    run_add(&card, other, x, count);
    ok(&table, call!(table, aclrtSynchronizeStream(other)));
    let spans = emulator.timeline();
    let (product, sum) = (&of_lane(&spans, Lane::Cube)[0], &of_lane(&spans, Lane::Vector)[0]);
    assert_eq!(sum.start_ns, product.end_ns);
    let mut ms = 0.0_f32;
    ok(&table, call!(table, aclrtEventElapsedTime(&raw mut ms, first, last)));
    let between = product.end_ns - product.start_ns;
    // The stream reached the record when it was made, and waited for the call of the product.
    let waited =
        product.start_ns - (product.end_ns - (f64::from(ms) * 1e6).round() as u64).min(product.start_ns);
    assert!(f64::from(ms) * 1e6 >= between as f64 - 1.0, "{ms} ms, {between} ns");
    assert!(waited < 1_000_000, "{waited} ns");
}

#[test]
fn a_collective_starts_with_its_last_rank() {
    let (emulator, table) = timed(2);
    let (cards, comms) = world(&table, 2);
    let count = 1_u64 << 20;
    let (big, buffers) =
        (product(&cards[1], 4096), [0, 1].map(|rank: usize| cards[rank].malloc(count as usize * 4)));
    std::thread::scope(|scope| {
        for (rank, card) in cards.iter().enumerate() {
            let (comm, buffer, big) = (
                comms[rank].addr(),
                buffers[rank].addr(),
                (big.executor.addr(), big.workspace.addr(), big.workspace_bytes),
            );
            scope.spawn(move || {
                card.enter();
                if rank == 1 {
                    let (executor, workspace) = (
                        std::ptr::without_provenance_mut(big.0),
                        std::ptr::with_exposed_provenance_mut(big.1),
                    );
                    Product { executor, workspace, workspace_bytes: big.2 }.run(card, card.stream);
                }
                let buffer = std::ptr::with_exposed_provenance_mut(buffer);
                all_reduce(card, std::ptr::without_provenance_mut(comm), buffer, count);
                card.synchronize();
            });
        }
    });
    let spans = emulator.timeline();
    let product = &of_lane(&spans, Lane::Cube)[0];
    let reduces = of_lane(&spans, Lane::Communication);
    assert_eq!(reduces.len(), 2);
    let (profile, topology) = (Profile::of(Soc::Ascend910B3), ascend_tp_machine::Topology::atlas_a2(1));
    let cost = CollectiveCost::of(&profile, &topology, Exchange::AllReduce, count as f64 * 4.0, &[0, 1]);
    for span in &reduces {
        assert_eq!((span.start_ns, span.end_ns), (product.end_ns, product.end_ns + ns(cost.duration_us)));
        assert_eq!(span.group.as_deref(), Some([0_u32, 1].as_slice()));
    }
    let waited: Vec<u64> = reduces.iter().map(|span| span.start_ns - span.arrived_ns).collect();
    assert!(waited.contains(&0) && waited.iter().any(|ns| *ns > 0), "{waited:?}");
}

#[test]
fn a_joined_call_hides_most_of_the_shorter_of_product_and_exchange() {
    let (emulator, table) = timed(8);
    let (cards, comms) = world(&table, 8);
    let of = Sizes { world: 8, rows: 4096, depth: 3072, columns: 8192 };
    for which in Joined::ALL {
        emulator.clear_timeline();
        let [left, all, result] = which.rows(of);
        for (card, comm) in cards.iter().zip(&comms) {
            let room = |rows: i64, columns: i64| card.malloc((rows * columns * 2) as usize);
            let memory = [
                room(left, of.depth),
                room(of.columns, of.depth),
                room(result, of.columns),
                room(all, of.depth),
            ];
            let group = group_name(&table, *comm);
            joined(card, &group, which, of, aclDataType::ACL_FLOAT16, memory).expect("is taken");
        }
        cards.iter().for_each(Card::synchronize);
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), ascend_tp_machine::Topology::atlas_a2(1));
        let half =
            |dims: [i64; 2], access| LaunchOperand::dense(Element::F16, dims.map(|dim| dim as usize), access);
        let weights = LaunchOperand {
            layout: ascend_tp_machine::launch::OperandLayout::Transposed,
            ..half([of.depth, of.columns], Access::Read)
        };
        let operands =
            vec![half([all, of.depth], Access::Read), weights, half([all, of.columns], Access::Write)];
        let product =
            OperatorCost::of(&profile, &Work::of(&Launch { operator: "aclnnMatmul", operands })).duration_us;
        let (exchange, elements) = match which {
            Joined::AllReduce => (Exchange::AllReduce, all * of.columns),
            Joined::AllGather => (Exchange::AllGather, all * of.depth),
            Joined::ReduceScatter => (Exchange::ReduceScatter, all * of.columns),
        };
        let on: Vec<usize> = (0..8).collect();
        let alone = CollectiveCost::of(&profile, &topology, exchange, elements as f64 * 2.0, &on);
        let both = product + alone.duration_us - 0.762 * product.min(alone.transfer_us);
        let spans = emulator.timeline();
        let (multiplied, exchanged) =
            (&of_lane(&spans, Lane::Cube)[0], &of_lane(&spans, Lane::Communication)[0]);
        let took = (multiplied.end_ns - multiplied.start_ns) + (exchanged.end_ns - exchanged.start_ns);
        assert!(took.abs_diff(ns(both)) <= 2, "{which:?}: {took} ns, expected {both} us");
        assert_eq!(multiplied.name, exchanged.name);
    }
}

#[test]
fn a_card_waits_for_its_host_or_the_host_for_its_card() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let (small, big) = (product(&card, 16), product(&card, 8192));
    let host = ns(Profile::of(Soc::Ascend910B3).host_us(HostCall::Launch, 0.0));
    for (product, runs) in [(&small, 100), (&big, 5)] {
        emulator.clear_timeline();
        let before = emulator.thread_now_ns();
        for _ in 0..runs {
            product.run(&card, card.stream);
        }
        assert_eq!(emulator.thread_now_ns() - before, runs * host, "a launch waits for nothing");
        card.synchronize();
        let spans = emulator.timeline();
        let starved = spans.windows(2).filter(|pair| pair[1].start_ns > pair[0].end_ns).count();
        let kernel = spans[0].end_ns - spans[0].start_ns;
        assert_eq!(starved, if kernel < host { runs as usize - 1 } else { 0 }, "{kernel} and {host} ns");
    }
}

#[test]
fn time_limits_are_over_in_virtual_time() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let big = product(&card, 16384);
    big.run(&card, card.stream);
    let called = emulator.thread_now_ns() + ns(Profile::of(Soc::Ascend910B3).host_us(HostCall::Other, 0.0));
    let code = call!(table, aclrtSynchronizeStreamWithTimeout(card.stream, 1));
    let wake = ns(Profile::of(Soc::Ascend910B3).coefficients.host.wake_us);
    assert_eq!(emulator.thread_now_ns(), called + 1_000_000 + wake);
    let text = refused(&table, code, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    assert!(text.contains("still has 1 unfinished entries"), "{text}");
    ok(&table, call!(table, aclrtSynchronizeStreamWithTimeout(card.stream, 1_000_000)));
    let span = &emulator.timeline()[0];
    assert!(span.end_ns > called + 1_000_000);
    assert_eq!(emulator.thread_now_ns(), span.end_ns + wake);
}

#[test]
fn who_asks_sees_what_is_done_by_then() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let (product, event) = (product(&card, 1024), card.event());
    product.run(&card, card.stream);
    record(&card, event, card.stream);
    let mut asked = 0;
    loop {
        let mut status = aclrtStreamStatus::ACL_STREAM_STATUS_RESERVED;
        ok(&table, call!(table, aclrtStreamQuery(card.stream, &raw mut status)));
        if status == aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE {
            break;
        }
        asked += 1;
    }
    let mut status = aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_NOT_READY;
    ok(&table, call!(table, aclrtQueryEventStatus(event, &raw mut status)));
    assert_eq!(status, aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE);
    let span = &emulator.timeline()[0];
    let call = ns(Profile::of(Soc::Ascend910B3).host_us(HostCall::Other, 0.0));
    let now = emulator.thread_now_ns();
    assert!(
        asked > 0 && (span.end_ns..=span.end_ns + 2 * call).contains(&now),
        "{now} and {} ns",
        span.end_ns
    );
}

#[test]
fn a_captured_graph_costs_its_host_one_call() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let stream = card.stream();
    let small = product(&card, 16);
    let mode = aclmdlRICaptureMode::ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    ok(&table, call!(table, aclmdlRICaptureBegin(stream, mode)));
    (0..100).for_each(|_| small.run(&card, stream));
    let mut graph = null_mut();
    ok(&table, call!(table, aclmdlRICaptureEnd(stream, &raw mut graph)));
    let took = |enqueue: &dyn Fn()| {
        emulator.clear_timeline();
        let before = emulator.thread_now_ns();
        enqueue();
        let enqueued = emulator.thread_now_ns() - before;
        ok(&table, call!(table, aclrtSynchronizeStream(stream)));
        let spans = emulator.timeline();
        assert_eq!(spans.len(), 100);
        (enqueued, emulator.thread_now_ns() - before, spans[0].end_ns - spans[0].start_ns)
    };
    let (eager_host, eager, eager_kernel) = took(&|| (0..100).for_each(|_| small.run(&card, stream)));
    let (replay_host, replay, replay_kernel) =
        took(&|| ok(&table, call!(table, aclmdlRIExecuteAsync(graph, stream))));
    let profile = Profile::of(Soc::Ascend910B3);
    assert_eq!(replay_host, ns(profile.host_us(HostCall::Replay, 0.0)));
    let node = ns(profile.coefficients.host.replay_node_us);
    assert!(replay_host < eager_host, "{replay_host} and {eager_host} ns");
    // Both cases wait for the card, because the shortest kernel takes longer than a launch. A
    // replay adds one call and the cost of its nodes.
    assert!(replay <= replay_host + eager + 100 * node, "{replay} and {eager} ns");
    assert_eq!(replay_kernel, eager_kernel + node);
}

/// Runs four ranks twice: products on one stream, reductions on another, ordered by events.
fn ranks_at_work(emulator: &Emulator, table: &Table) -> Vec<LaneSpan> {
    let (cards, comms) = world(table, 4);
    let count = 1_u64 << 16;
    let gate = Barrier::new(4);
    std::thread::scope(|scope| {
        for (rank, card) in cards.iter().enumerate() {
            let (comm, gate) = (comms[rank].addr(), &gate);
            scope.spawn(move || {
                card.enter();
                let (compute, done, reduced) = (card.stream(), card.event(), card.event());
                let big = product(card, 512 + 64 * rank as i64);
                let buffer = card.malloc(count as usize * 4);
                gate.wait();
                for _ in 0..2 {
                    for _ in 0..5 {
                        big.run(card, compute);
                        record(card, done, compute);
                        await_event(card, card.stream, done);
                        all_reduce(card, std::ptr::without_provenance_mut(comm), buffer, count);
                        record(card, reduced, card.stream);
                        await_event(card, compute, reduced);
                    }
                    ok(card.table, call!(card.table, aclrtSynchronizeStream(compute)));
                }
            });
        }
    });
    emulator.timeline()
}

#[test]
fn the_same_program_has_the_same_timeline_in_every_run() {
    let mut first = None;
    for run in 0..20 {
        let (emulator, table) = timed(4);
        let spans = ranks_at_work(&emulator, &table);
        assert_eq!(spans.len(), 4 * 2 * 5 * 2);
        let first = first.get_or_insert_with(|| spans.clone());
        if let Some((before, now)) = first.iter().zip(&spans).find(|(before, now)| before != now) {
            panic!("run {run} differs: expected {before:?}, found {now:?}");
        }
    }
}

#[test]
fn with_numbers_the_results_are_those_of_parallel_mode() {
    let results = [
        Config { mode: Mode::Parallel, ..Config::timed(Soc::Ascend910B3, 2, Numbers::Real) },
        Config::timed(Soc::Ascend910B3, 2, Numbers::Real),
    ]
    .map(|config| {
        let (_emulator, table) = started(config);
        let (cards, comms) = world(&table, 2);
        let count = 1000_usize;
        std::thread::scope(|scope| {
            let ranks: Vec<_> = cards
                .iter()
                .enumerate()
                .map(|(rank, card)| {
                    let comm = comms[rank].addr();
                    scope.spawn(move || {
                        card.enter();
                        let values =
                            |seed: i64| encode(FP32, (0..count as i64).map(|i| (i * seed) % 97 - 40));
                        let (x, y, out) = (
                            card.upload(&values(rank as i64 + 3)),
                            card.upload(&values(7)),
                            card.malloc(4 * count),
                        );
                        add(card, card.stream, [x, y, out], 0.37, count as i64).expect("a sum");
                        all_reduce(card, std::ptr::without_provenance_mut(comm), out, count as u64);
                        add(card, card.stream, [out, x, y], 1.3, count as i64).expect("a sum");
                        card.synchronize();
                        card.download(y, 4 * count)
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("the rank ends")).collect::<Vec<_>>()
        })
    });
    assert_eq!(results[0], results[1]);
    assert!(results[0][0].iter().any(|byte| *byte != 0));
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * rustix::param::page_size() as u64)
}

#[test]
fn memory_is_accounted_and_never_touched() {
    const GIB: usize = 1 << 30;
    let (emulator, table) = timed(8);
    let before = resident_bytes();
    let cards: Vec<Card<'_>> = (0..8).map(|ordinal| Card::new(&table, ordinal)).collect();
    let source = vec![7_u8; 4096];
    for card in &cards {
        let memory = card.malloc(60 * GIB);
        ok(&table, call!(table, aclrtMemset(memory, 60 * GIB, 1, 60 * GIB)));
        ok(&table, call!(table, aclrtMemsetAsync(memory, GIB, 1, GIB, card.stream)));
        ok(
            &table,
            call!(
                table,
                aclrtMemcpyAsync(memory, GIB, memory.wrapping_byte_add(GIB), GIB, common::D2D, card.stream)
            ),
        );
        ok(&table, call!(table, aclrtMemcpy(memory, 4096, source.as_ptr().cast(), 4096, common::H2D)));
        card.synchronize();
        assert!(card.download(memory, 4096).iter().all(|byte| *byte == 0), "the host reads zeros");
        let mut more = null_mut();
        let policy = aclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
        let text = refused(
            &table,
            call!(table, aclrtMalloc(&raw mut more, GIB, policy)),
            ACL_ERROR_RT_MEMORY_ALLOCATION,
        );
        assert!(text.contains("out of memory: asked 1"), "{text}");
    }
    assert!(emulator.usage().iter().all(|usage| usage.allocated_bytes == 60 * GIB as u64 + 32));
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after.saturating_sub(before) < 256 << 20, "{before} bytes, then {after}");
    }
}

#[test]
fn a_thread_pays_for_the_bytes_it_copies() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let bytes = 1_usize << 26;
    let (memory, host) = (card.malloc(2 * bytes), vec![0_u8; bytes]);
    let took = |copy: &dyn Fn()| {
        let before = emulator.thread_now_ns();
        copy();
        emulator.thread_now_ns() - before
    };
    let (other, from) = (memory.wrapping_byte_add(bytes), host.as_ptr().cast());
    let up = took(&|| ok(&table, call!(table, aclrtMemcpy(memory, bytes, from, bytes, common::H2D))));
    let within = took(&|| ok(&table, call!(table, aclrtMemcpy(other, bytes, memory, bytes, common::D2D))));
    let filled = took(&|| ok(&table, call!(table, aclrtMemset(memory, bytes, 0, bytes))));
    let profile = Profile::of(Soc::Ascend910B3);
    assert!(up.abs_diff(ns(profile.host_us(HostCall::Copy, bytes as f64))) <= 1, "{up} ns");
    assert!(filled < within && within < up, "{filled}, {within}, {up} ns");
    assert!(emulator.timeline().is_empty(), "no stream did it");
}

fn reduction_ns(config: Config, count: u64) -> u64 {
    let (emulator, table) = started(config);
    let (cards, comms) = world(&table, 2);
    for (card, comm) in cards.iter().zip(&comms) {
        let buffer = card.malloc(count as usize * 4);
        all_reduce(card, *comm, buffer, count);
    }
    cards.iter().for_each(Card::synchronize);
    let span = &emulator.timeline()[0];
    span.end_ns - span.start_ns
}

#[test]
fn more_bytes_and_slower_links_are_never_faster() {
    let mut before = 0;
    for shift in 0..8 {
        let mut config = Config::timed(Soc::Ascend910B3, 2, Numbers::None);
        let took = reduction_ns(config.clone(), 1 << (3 * shift));
        assert!(took >= before, "{took} after {before} ns");
        before = took;
        config.topology.levels[0].bytes_per_us /= 3.0;
        assert!(reduction_ns(config, 1 << (3 * shift)) >= took);
    }
}

#[test]
fn exchanges_that_share_links_slow_each_other() {
    let count = 1_u64 << 24;
    let took = |pairs: &[[usize; 2]]| {
        let mut config = Config::timed(Soc::Ascend910B3, 4, Numbers::None);
        config.topology.levels[0].fabric = Fabric::Bus;
        let (emulator, table) = started(config);
        let cards: Vec<Card<'_>> = (0..4).map(|ordinal| Card::new(&table, ordinal)).collect();
        for pair in pairs {
            let mut comms = [null_mut(); 2];
            let mut devices = pair.map(|card| card as i32);
            hccl_ok(&table, call!(table, HcclCommInitAll(2, devices.as_mut_ptr(), comms.as_mut_ptr())));
            for (card, comm) in pair.iter().zip(comms) {
                let buffer = cards[*card].malloc(count as usize * 4);
                all_reduce(&cards[*card], comm, buffer, count);
            }
        }
        cards.iter().for_each(Card::synchronize);
        emulator.timeline().iter().map(|span| span.end_ns - span.start_ns).max().expect("spans")
    };
    let (alone, together) = (took(&[[0, 1]]), took(&[[0, 1], [2, 3]]));
    assert!(together > alone + alone / 2, "{alone} ns alone, {together} ns together");
}

#[test]
fn what_waits_for_ever_ends_with_an_error() {
    let (_emulator, table) = timed(2);
    let (cards, comms) = world(&table, 2);
    let buffer = cards[0].malloc(64);
    all_reduce(&cards[0], comms[0], buffer, 16);
    let (code, text) = cards[0].outcome();
    assert_eq!(code, ACL_ERROR_RT_TASK_TIMEOUT, "{text}");
    assert!(text.contains("rank 1 has not") || text.contains("ranks [1] have not"), "{text}");
}

#[test]
fn ranks_of_another_machine_are_refused() {
    let (_other, other) = started(Config::with_cards(1));
    let _card = Card::new(&other, 0);
    let mut info = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(&other, call!(other, HcclGetRootInfo(&raw mut info)));
    let (_emulator, table) = timed(1);
    let _card = Card::new(&table, 0);
    let mut comm = null_mut();
    let code = call!(table, HcclCommInitRootInfo(2, &raw const info, 1, &raw mut comm));
    let text = hccl_refused(&table, code, HcclResult::HCCL_E_NOT_SUPPORT);
    assert!(text.contains("rank 1 of 2") && text.contains("threads of one process"), "{text}");
}

#[test]
fn a_slow_card_is_slow_in_virtual_time() {
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let small = product(&card, 16);
    let delay = Duration::from_secs(3);
    let _slow = emulator.inject(Fault::Slow { card: 0, delay }).expect("a fault a machine can have");
    small.run(&card, card.stream);
    card.synchronize();
    let span = &emulator.timeline()[0];
    assert_eq!(span.start_ns, span.issued_ns + delay.as_nanos() as u64);
}

#[test]
fn functions_of_the_program_run_when_their_stream_comes_to_them() {
    extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the test passes a live counter.
        let counter = unsafe { &*counter.cast::<AtomicU64>() };
        counter.fetch_add(1, Ordering::SeqCst);
    }
    let (emulator, table) = timed(1);
    let card = Card::new(&table, 0);
    let (big, counter) = (product(&card, 4096), AtomicU64::new(0));
    let place = (&raw const counter).cast_mut().cast();
    big.run(&card, card.stream);
    let launch = table.aclrtLaunchHostFunc.expect("modelled");
    // SAFETY: a live stream; the counter outlives the synchronization.
    ok(&table, unsafe { launch(card.stream, Some(count), place) });
    big.run(&card, card.stream);
    card.synchronize();
    assert_eq!(counter.load(Ordering::SeqCst), 1);
    let spans = emulator.timeline();
    assert!(spans[1].start_ns >= spans[0].end_ns);
}

#[test]
fn a_machine_that_contradicts_itself_is_refused() {
    let small = Config {
        topology: ascend_tp_machine::Topology::atlas_a2(1),
        ..Config::timed(Soc::Ascend910B3, 16, Numbers::None)
    };
    let error = Emulator::new(small).expect_err("sixteen cards in a topology of eight");
    assert!(matches!(error, EmulatorError::Topology { joined: 8, cards: 16, .. }), "{error}");
    assert!(error.to_string().contains("has 8 cards"), "{error}");
    let other = Config {
        profile: Profile::of(Soc::Ascend910B1),
        ..Config::timed(Soc::Ascend910B3, 8, Numbers::None)
    };
    let error = Emulator::new(other).expect_err("another chip's profile");
    assert!(error.to_string().contains("Ascend910B1"), "{error}");
}
