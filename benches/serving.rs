//! Benchmarks the host's part of a step with 256 running requests of 32,768 tokens: plan, bytes,
//! tables of one receiver, completion. The goal is 200 µs.
#![expect(clippy::print_stdout, reason = "a bench prints the size of a plan next to its time")]

use std::num::NonZeroU32;

use ascend_tp::serving::{
    Forms, GroupConfig, Overlap, QueuedRequest, RowResult, Scheduler, SchedulerConfig, SequenceId, StepPlan,
    StepResult, Tables,
};
use criterion::{Criterion, criterion_group, criterion_main};

const REQUESTS: u32 = 256;
const PROMPT: u32 = 32_768;
const ANSWER: u32 = 200_000;

struct Case {
    name: &'static str,
    window: Option<u32>,
    drafts: u32,
}

const CASES: [Case; 3] = [
    Case { name: "full attention", window: None, drafts: 0 },
    Case { name: "full attention and a window of 4,096", window: Some(4_096), drafts: 0 },
    Case { name: "full attention, 4 drafts", window: None, drafts: 4 },
];

struct Host {
    scheduler: Scheduler,
    tables: Tables,
    bytes: usize,
    has_drafts: bool,
}

impl Host {
    fn new(case: &Case) -> Option<Self> {
        let blocks = REQUESTS * (PROMPT + ANSWER).div_ceil(128) + 1;
        let window = case.window.and_then(NonZeroU32::new);
        let mut groups = vec![GroupConfig { blocks, window: None }];
        groups.extend(window.map(|window| GroupConfig { blocks, window: Some(window) }));
        let config = SchedulerConfig {
            block_size: NonZeroU32::new(128)?,
            slots: None,
            decode_rows: vec![1, 2, 4, 8, 16, 32, 64, 128, REQUESTS],
            chunks: vec![PROMPT],
            drafts: case.drafts,
            step_tokens: PROMPT + REQUESTS * (case.drafts + 1),
            context: PROMPT + ANSWER,
            ageing: 1_000,
            steps_in_flight: 1,
            overlap: Overlap::Chained,
            forms: Forms::ByPosition,
            key: [1; 16],
            groups,
        };
        let tables = Tables::new(config.groups.len(), REQUESTS as usize);
        let mut host =
            Self { scheduler: Scheduler::new(config).ok()?, tables, bytes: 0, has_drafts: case.drafts > 0 };
        for request in 0..REQUESTS {
            let prompt = (0..PROMPT).map(|at| at.wrapping_mul(request + 1) % 150_000).collect();
            host.scheduler.submit(&QueuedRequest::new(prompt, ANSWER)).ok()?;
        }
        while host.scheduler.load().waiting > 0 {
            host.step()?;
        }
        Some(host)
    }

    /// Runs the host's part of one step.
    fn step(&mut self) -> Option<()> {
        let has_drafts = self.has_drafts;
        let mut drafter = |_: SequenceId, tokens: &[u32], drafts: &mut Vec<u32>| {
            if has_drafts {
                drafts.extend_from_slice(&tokens[..4]);
            }
        };
        let plan = self.scheduler.plan(&mut drafter)?;
        let bytes = plan.encode();
        self.bytes = bytes.len();
        let received = StepPlan::decode(&bytes).ok()?;
        self.tables.apply(&received).ok()?;
        let result = |samples: bool| RowResult {
            tokens: samples.then_some(100_000).into_iter().collect(),
            stops: false,
        };
        let rows = received.decode.iter().flat_map(|run| &run.rows).map(|row| result(row.samples)).collect();
        let chunk = received.chunk.map(|chunk| result(chunk.samples));
        self.scheduler.complete(&StepResult { number: plan.number, chunk, rows }).ok()?;
        Some(())
    }
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step of 256 requests");
    for case in &CASES {
        let Some(mut host) = Host::new(case) else { return };
        group.bench_function(case.name, |bencher| bencher.iter(|| host.step()));
        println!("{}: {} bytes, {} running", case.name, host.bytes, host.scheduler.load().running);
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
