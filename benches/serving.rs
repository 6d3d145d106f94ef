//! Benchmarks the host's part of a step with 256 running requests of 32,768 tokens: plan, tables,
//! the bytes of the inputs of Qwen2.5-72B, completion. The goal is 200 µs.
#![expect(clippy::print_stdout, reason = "a bench prints the number of requests next to its time")]

use std::num::NonZeroU32;

use ascend_tp::base::{DType, Id};
use ascend_tp::config::ModelConfig;
use ascend_tp::generate::inputs::{InputBuilder, InputRow, SequenceInput, padded_ids};
use ascend_tp::program::models::{CacheBlocks, CacheGroup, Head, RunShape, SequenceBlocks};
use ascend_tp::serving::{
    DraftPlace, Forms, GroupConfig, Overlap, QueuedRequest, RowResult, Scheduler, SchedulerConfig,
    SequenceId, StepPlan, StepResult, Tables,
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
    inputs: InputBuilder,
    has_drafts: bool,
    window: Option<usize>,
}

impl Host {
    fn new(case: &Case) -> Option<Self> {
        let blocks = REQUESTS * (PROMPT + ANSWER).div_ceil(128) + 1;
        let window = case.window.and_then(NonZeroU32::new);
        let mut groups = vec![GroupConfig { blocks, window: None }];
        groups.extend(window.map(|window| GroupConfig { blocks, window: Some(window) }));
        let config = SchedulerConfig {
            block_size: NonZeroU32::new(128)?,
            states: None,
            decode_rows: vec![1, 2, 4, 8, 16, 32, 64, 128, REQUESTS],
            chunks: vec![PROMPT],
            scored_chunks: vec![],
            drafts: case.drafts,
            draft_place: DraftPlace::Host,
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
        let inputs = InputBuilder::new(&ModelConfig::preset("qwen2.5-72b")?, DType::BF16);
        let mut host = Self {
            scheduler: Scheduler::new(config).ok()?,
            tables,
            inputs,
            has_drafts: case.drafts > 0,
            window: case.window.map(|window| window as usize),
        };
        for request in 0..REQUESTS {
            let prompt = (0..PROMPT).map(|at| at.wrapping_mul(request + 1) % 150_000).collect();
            host.scheduler.submit(&QueuedRequest::new(prompt, ANSWER)).ok()?;
        }
        while host.scheduler.load().waiting > 0 {
            host.step()?;
        }
        Some(host)
    }

    /// Builds the inputs of the decode rows.
    fn build_inputs(&mut self, plan: &StepPlan) -> Option<()> {
        let Some(decode) = &plan.decode else { return Some(()) };
        let blocks = CacheBlocks { count: 1 << 20, rows: CacheBlocks::ROWS, pools: 1 };
        let group = |window, table| CacheGroup { window, table, blocks };
        let run = RunShape {
            batch: decode.padded as usize,
            sequence: decode.width as usize,
            caches: group(None, 32_768_usize.div_ceil(CacheBlocks::ROWS) * 2),
            windowed: self
                .window
                .map(|window| group(Some(window), CacheGroup::widest_table(window, 1, CacheBlocks::ROWS))),
            states: None,
        };
        let ids = vec![7_u32; run.sequence];
        let mut rows = Vec::with_capacity(run.batch);
        for row in &decode.rows {
            let (start, prompt_length) = (row.position as usize, PROMPT as usize);
            let tokens = SequenceInput { ids: &ids, start, prompt_length };
            let groups = self.tables.groups(row.table).iter().map(|table| SequenceBlocks {
                first: table.first() as usize,
                blocks: table.blocks().iter().map(|block| block.index()),
            });
            let groups = groups.collect();
            rows.push(InputRow { tokens, groups, state: None, adapter: None });
        }
        let ids = padded_ids(run.sequence, rows.iter().map(|row| row.tokens.ids));
        std::hint::black_box((ids, self.inputs.inputs(run, Head::LastToken, &rows)));
        Some(())
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
        self.tables.apply(&plan).ok()?;
        self.build_inputs(&plan)?;
        let result = |samples: bool| RowResult {
            tokens: samples.then_some(100_000).into_iter().collect(),
            stops: false,
        };
        let rows = plan.decode.iter().flat_map(|run| &run.rows).map(|row| result(row.samples)).collect();
        let chunk = plan.chunk.as_ref().map(|chunk| result(chunk.samples));
        self.scheduler.complete(&StepResult { number: plan.number, chunk, rows }).ok()?;
        Some(())
    }
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step of 256 requests");
    for case in &CASES {
        let Some(mut host) = Host::new(case) else { return };
        group.bench_function(case.name, |bencher| bencher.iter(|| host.step()));
        println!("{}: {} running", case.name, host.scheduler.load().running);
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
