//! One test per rule of the policy. Random schedules are in `tests/`.

use std::num::NonZeroU32;

use super::*;
use crate::serving::blocks::{BlockId, Forms};
use crate::serving::step::{Chunk, ResultRef, ResultRow, StepPlan, StepToken, TokenForm};

/// 15 blocks of 4 tokens, chunks of 4 and 8 tokens, 4 rows, one step in flight.
fn config() -> SchedulerConfig {
    SchedulerConfig {
        block_size: NonZeroU32::new(4).unwrap(),
        groups: vec![GroupConfig { blocks: 16, window: None }],
        states: None,
        decode_rows: vec![1, 2, 4],
        chunks: vec![4, 8],
        scored_chunks: vec![4, 8],
        drafts: 0,
        draft_place: DraftPlace::Host,
        step_tokens: 12,
        context: 1_000,
        ageing: 10,
        steps_in_flight: 1,
        overlap: Overlap::Chained,
        forms: Forms::ByPosition,
        key: [5; 16],
    }
}

fn scheduler(config: SchedulerConfig) -> Scheduler {
    Scheduler::new(config).unwrap()
}

/// Returns a prompt of `length` tokens that no other `text` shares.
fn request(text: u32, length: u32, max_new: u32) -> QueuedRequest {
    QueuedRequest::new((0..length).map(|at| text * 1_000 + at).collect(), max_new)
}

fn submit(scheduler: &mut Scheduler, requests: impl Iterator<Item = QueuedRequest>) {
    for request in requests {
        scheduler.submit(&request).unwrap();
    }
}

fn plan(scheduler: &mut Scheduler) -> Option<StepPlan> {
    scheduler.plan(&mut |_, _, _| {})
}

/// Returns a result with one token, 7, for each row that samples.
fn result(plan: &StepPlan) -> StepResult {
    let row = |samples: bool| RowResult { tokens: samples.then_some(7).into_iter().collect(), stops: false };
    StepResult {
        number: plan.number,
        chunk: plan.chunk.as_ref().map(|chunk| row(chunk.samples)),
        rows: rows(plan).iter().map(|it| row(it.samples)).collect(),
    }
}

fn rows(plan: &StepPlan) -> &[crate::serving::DecodeRow] {
    plan.decode.as_ref().map_or(&[], |run| &run.rows)
}

fn step(scheduler: &mut Scheduler) -> StepPlan {
    let plan = plan(scheduler).expect("there is a step");
    scheduler.complete(&result(&plan)).unwrap();
    plan
}

fn steps(scheduler: &mut Scheduler, count: usize) {
    (0..count).for_each(|_| drop(step(scheduler)));
}

/// Returns start, length and padded length of the chunk.
fn chunk(plan: &StepPlan) -> [u32; 3] {
    plan.chunk.as_ref().map_or([0; 3], |it| [it.start, len(&it.tokens), it.padded])
}

/// Returns the requests of the running sequences, the strongest first.
fn running(scheduler: &Scheduler) -> Vec<u64> {
    scheduler.order.iter().map(|it| scheduler.running(it.table).id.request.0).collect()
}

#[test]
fn a_prompt_runs_in_chunks_and_then_one_token_a_step() {
    let mut it = scheduler(config());
    it.submit(&request(0, 18, 3)).unwrap();
    let chunks: Vec<[u32; 3]> = (0..3).map(|_| chunk(&step(&mut it))).collect();
    assert_eq!(chunks, [[0, 8, 8], [8, 8, 8], [16, 2, 4]]);
    let first = step(&mut it);
    assert_eq!((rows(&first)[0].position, rows(&first)[0].first), (18, StepToken::Id(7)));
    let last = plan(&mut it).unwrap();
    let delivery = it.complete(&result(&last)).unwrap();
    let sequence = SequenceId { request: RequestId(0), sample: 0 };
    assert_eq!(delivery, [Delivery { sequence, tokens: 1, end: Some(End::Length) }]);
    assert!(it.is_idle() && plan(&mut it).is_none());
    assert_eq!(it.load().available_blocks, [15]);
}

#[test]
fn a_prompt_without_answer_ends_without_a_token() {
    let mut it = scheduler(config());
    it.submit(&request(0, 4, 0)).unwrap();
    let plan = plan(&mut it).unwrap();
    assert!(!plan.chunk.as_ref().unwrap().samples);
    let delivery = it.complete(&result(&plan)).unwrap();
    assert_eq!((delivery[0].tokens, delivery[0].end), (0, Some(End::Length)));
}

#[test]
fn rows_run_next_to_a_chunk_and_keep_their_budget() {
    let mut it = scheduler(config());
    for text in 0..4 {
        it.submit(&request(text, 8, 9)).unwrap();
    }
    steps(&mut it, 3);
    let plan = step(&mut it);
    assert_eq!((rows(&plan).len(), plan.decode.as_ref().unwrap().padded, chunk(&plan)), (3, 4, [0, 8, 8]));
    // With 11 tokens, 4 padded rows leave 7 for a chunk.
    let mut it = scheduler(SchedulerConfig { step_tokens: 11, ..config() });
    for text in 0..4 {
        it.submit(&request(text, 4, 9)).unwrap();
    }
    steps(&mut it, 3);
    assert_eq!(chunk(&step(&mut it)), [0, 4, 4]);
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let refused = |request: QueuedRequest| scheduler(config()).submit(&request).unwrap_err().to_string();
    let fits = |request: QueuedRequest| scheduler(config()).submit(&request).is_ok();
    assert_eq!(
        refused(request(0, 0, 1)),
        "request 0: the prompt is empty: expected at least 1 token, found 0"
    );
    assert!(refused(QueuedRequest { samples: 0, ..request(0, 1, 1) }).contains("no samples are requested"));
    assert!(refused(request(0, 900, 101)).contains("expected at most 1000 tokens, found 1001"));
    // The last token is not computed: 61 tokens take 60 positions, which are 15 blocks.
    assert!(fits(request(0, 40, 21)) && fits(request(0, 60, 0)));
    assert!(
        refused(request(0, 40, 22))
            .contains("expected at most 15 blocks of group 0, found 16 blocks of 4 tokens")
    );
    let windowed = GroupConfig { blocks: 16, window: NonZeroU32::new(8) };
    let mut it = scheduler(SchedulerConfig { groups: vec![windowed], ..config() });
    assert!(it.submit(&request(0, 900, 100)).is_ok(), "a window needs few blocks");
}

#[test]
fn a_wrong_config_is_refused_with_all_its_problems() {
    let wrong = |config: SchedulerConfig| Scheduler::new(config).unwrap_err().to_string();
    let shapes = wrong(SchedulerConfig { decode_rows: vec![2, 2], chunks: vec![], ..config() });
    assert_eq!(shapes.lines().count(), 2, "{shapes}");
    assert!(
        wrong(SchedulerConfig { chunks: vec![0, 4], ..config() }).contains("chunks: illegal program shapes")
    );
    assert!(wrong(SchedulerConfig { step_tokens: 7, ..config() }).contains("expected at least 8, found 7"));
    assert!(
        wrong(SchedulerConfig { drafts: 1, step_tokens: 11, ..config() })
            .contains("expected at least 12, found 11")
    );
    let small = wrong(SchedulerConfig {
        steps_in_flight: 0,
        groups: vec![GroupConfig { blocks: 1, window: None }],
        ..config()
    });
    assert_eq!(small.lines().count(), 2, "{small}");
    let recurrent = wrong(SchedulerConfig {
        states: Some(5),
        drafts: 1,
        chunks: vec![4, 6],
        scored_chunks: vec![],
        ..config()
    });
    assert_eq!(recurrent.lines().count(), 3, "{recurrent}");
    assert!(
        recurrent.contains("expected at least 6: one per row, one to write, and the null state, found 5")
    );
    assert!(recurrent.contains("a refused draft cannot be removed from a recurrent state"));
}

#[test]
fn the_head_of_the_queue_waits_for_blocks_and_nobody_overtakes_it() {
    let mut it = scheduler(config());
    it.submit(&request(0, 32, 9)).unwrap();
    steps(&mut it, 4);
    // The first request holds 8 blocks and needs two more for 33 tokens and one block, so 5 are
    // left.
    it.submit(&request(1, 20, 1)).unwrap();
    it.submit(&request(2, 4, 1)).unwrap();
    step(&mut it);
    assert_eq!(running(&it), [0, 1], "the answer of one token needs no further block");
    let mut it = scheduler(config());
    it.submit(&request(0, 32, 9)).unwrap();
    steps(&mut it, 4);
    it.submit(&request(1, 20, 2)).unwrap();
    it.submit(&request(2, 4, 1)).unwrap();
    step(&mut it);
    assert_eq!((running(&it), it.load().waiting), (vec![0], 2));
}

#[test]
fn rows_limit_the_running_sequences() {
    let mut it = scheduler(config());
    submit(&mut it, (0..6).map(|text| request(text, 4, 8)));
    steps(&mut it, 5);
    assert_eq!((it.load().running, it.load().waiting), (4, 2));
}

#[test]
fn a_prefix_hit_skips_full_blocks_and_computes_the_last_token() {
    let mut it = scheduler(config());
    it.submit(&request(0, 16, 1)).unwrap();
    steps(&mut it, 2);
    it.submit(&request(0, 16, 1)).unwrap();
    assert_eq!(chunk(&step(&mut it)), [12, 4, 4], "at least one token is computed");
    it.submit(&request(0, 17, 1)).unwrap();
    assert_eq!(chunk(&step(&mut it)), [16, 1, 4]);
    it.submit(&QueuedRequest { wants_prompt_logprobs: true, ..request(0, 16, 1) }).unwrap();
    assert_eq!(chunk(&step(&mut it)), [0, 8, 8], "logprobs of the prompt need every position");
    step(&mut it);
    it.submit(&QueuedRequest { salt: 1, ..request(0, 16, 1) }).unwrap();
    assert_eq!(chunk(&step(&mut it)), [0, 8, 8], "another salt");
    assert_eq!((it.load().hit_tokens, it.load().query_tokens), (28, 65));
}

#[test]
fn a_prompt_with_logprobs_is_read_in_chunks_that_return_all_logits() {
    let mut it = scheduler(SchedulerConfig { scored_chunks: vec![4], ..config() });
    it.submit(&QueuedRequest { wants_prompt_logprobs: true, ..request(0, 10, 2) }).unwrap();
    let chunks: Vec<Chunk> = (0..3).map(|_| step(&mut it).chunk.unwrap()).collect();
    let found = chunks.iter().map(|chunk| (chunk.start, chunk.padded, chunk.scores, chunk.samples));
    let found: Vec<_> = found.collect();
    assert_eq!(found, [(0, 4, true, false), (4, 4, true, false), (8, 4, true, true)]);
    let mut it = scheduler(SchedulerConfig { scored_chunks: vec![], ..config() });
    let refused = it.submit(&QueuedRequest { wants_prompt_logprobs: true, ..request(0, 10, 2) }).unwrap_err();
    assert_eq!(refused.to_string(), "request 0: no program returns the logprobs of a prompt");
    let wrong = SchedulerConfig { scored_chunks: vec![5], ..config() };
    assert!(Scheduler::new(wrong).unwrap_err().to_string().contains("the first of [4, 8], found [5]"));
}

#[test]
fn generated_blocks_serve_a_prompt_only_if_the_forms_are_the_same() {
    for (forms, start) in [(Forms::Same, 12), (Forms::ByPosition, 4)] {
        let mut it = scheduler(SchedulerConfig { forms, ..config() });
        it.submit(&request(0, 4, 10)).unwrap();
        steps(&mut it, 10);
        let mut prompt = request(0, 4, 0).prompt;
        prompt.extend([7; 10]);
        it.submit(&QueuedRequest::new(prompt, 1)).unwrap();
        assert_eq!(chunk(&step(&mut it))[0], start);
    }
}

#[test]
fn a_window_releases_blocks_behind_it() {
    let window = NonZeroU32::new(5);
    let mut it = scheduler(SchedulerConfig { groups: vec![GroupConfig { blocks: 16, window }], ..config() });
    it.submit(&request(0, 40, 9)).unwrap();
    steps(&mut it, 5);
    // Position 40 reads the keys from 36, which is the start of block 9.
    let table = it.order[0].table;
    assert_eq!((it.table(table, 0).unwrap().first(), it.load().available_blocks[0]), (9, 14));
    // A hit of a longer prompt needs block 9 only, even if the older ones are gone.
    let content = it.running(table).chain.blocks()[9].clone();
    assert!(it.states.groups[0].pool.find(&content).is_some());
    let evicted: Vec<BlockId> = std::iter::from_fn(|| it.states.groups[0].pool.allocate()).collect();
    evicted.into_iter().for_each(|block| it.states.groups[0].pool.release(block));
    it.submit(&request(0, 41, 1)).unwrap();
    let plan = step(&mut it);
    assert_eq!(chunk(&plan), [40, 1, 4]);
    let extends = |change: &&Change| matches!(change, Change::Extend { dropped: 9, appended, .. } if appended.len() == 1);
    assert!(plan.changes.iter().any(|change| extends(&change)), "{:?}", plan.changes);
}

#[test]
fn each_group_holds_what_its_layers_read() {
    let window = NonZeroU32::new(10);
    let full = GroupConfig { blocks: 300, window: None };
    let groups = vec![full, GroupConfig { blocks: 7, window }];
    let mut it = scheduler(SchedulerConfig { groups, ..config() });
    it.submit(&request(0, 700, 200)).unwrap();
    let (mut steps, mut held) = (0, [0, 0]);
    while !it.is_idle() {
        let plan = plan(&mut it).unwrap();
        let table = it.order[0].table;
        held = [0, 1].map(|group| it.table(table, group).unwrap().blocks().len());
        // (10 + 8) / 4 blocks, and one because windows are not aligned.
        assert!(held[1] <= 6, "step {steps}: {held:?}");
        it.complete(&result(&plan)).unwrap();
        steps += 1;
    }
    assert!(steps > 200);
    assert_eq!(held[0], 899_usize.div_ceil(4), "full attention reads all keys");
    assert_eq!(it.load().available_blocks, [299, 6]);
    // A request that the smaller cache cannot hold is refused.
    let groups = vec![full, GroupConfig { blocks: 6, window }];
    let refused = scheduler(SchedulerConfig { groups, ..config() }).submit(&request(0, 700, 200));
    assert!(refused.unwrap_err().to_string().contains("at most 5 blocks of group 1"));
}

#[test]
fn the_youngest_of_the_lowest_priority_is_preempted_and_computes_again() {
    let mut it =
        scheduler(SchedulerConfig { groups: vec![GroupConfig { blocks: 13, window: None }], ..config() });
    for (text, priority) in [(0, 0), (1, -1), (2, 1)] {
        it.submit(&QueuedRequest { priority, ..request(text, 8, 20) }).unwrap();
        step(&mut it);
    }
    assert_eq!(running(&it), [2, 0, 1], "the priority decides, not the arrival");
    let mut preempted = Vec::new();
    while it.load().preemptions == 0 {
        preempted = running(&it);
        step(&mut it);
    }
    assert_eq!((running(&it).len(), preempted), (2, vec![2, 0, 1]));
    assert_eq!(running(&it), [2, 0]);
    let generated = it.waiting.values().next().unwrap().generated();
    assert!(generated > 0, "generated tokens are kept");
    // The strong ones end, and the victim reads its prompt in a chunk and its answer in rows.
    let mut recomputed = 0;
    while !it.is_idle() {
        let plan = plan(&mut it).unwrap();
        for row in rows(&plan).iter().filter(|row| !row.samples) {
            assert_ne!(it.sequence(row.table).unwrap().request, RequestId(2), "the strongest is no victim");
            recomputed += 1;
        }
        assert!(plan.chunk.as_ref().is_none_or(|chunk| chunk.form == TokenForm::Prompt));
        it.complete(&result(&plan)).unwrap();
    }
    assert!(recomputed >= generated - 1, "{recomputed} of {generated} tokens, of which the last is new work");
}

#[test]
fn generated_tokens_are_recomputed_in_wide_rows_or_in_chunks_of_their_own() {
    for (forms, drafts, expected) in [
        (Forms::ByPosition, 0, vec![1, 1, 1, 1, 1, 1]),
        (Forms::ByPosition, 3, vec![4, 2]),
        (Forms::Same, 3, vec![0]),
        (Forms::Same, 0, vec![0, 0]),
    ] {
        let mut it =
            scheduler(SchedulerConfig { forms, drafts, step_tokens: 4 * (drafts + 1) + 4, ..config() });
        it.submit(&request(0, 6, 20)).unwrap();
        step(&mut it);
        let table = it.order[0].table;
        while it.lengths(table).unwrap().known < 12 {
            step(&mut it);
        }
        it.preempt(table);
        // All cached blocks are taken away.
        let taken: Vec<BlockId> = std::iter::from_fn(|| it.states.groups[0].pool.allocate()).collect();
        taken.into_iter().for_each(|block| it.states.groups[0].pool.release(block));
        let mut counts = Vec::new();
        while it.load().running == 0 || it.lengths(table).unwrap().known < 13 {
            let plan = step(&mut it);
            counts.extend(rows(&plan).iter().map(crate::serving::DecodeRow::token_count));
            if let Some(Chunk { form, start, tokens, .. }) = plan.chunk {
                let is_generated = form == TokenForm::Generated;
                assert!(if is_generated { start >= 6 } else { start + len(&tokens) <= 6 });
                counts.extend(is_generated.then_some(0));
            }
        }
        assert_eq!(counts, expected, "{forms:?}, {drafts} drafts");
    }
}

#[test]
fn drafts_that_are_refused_are_computed_again() {
    let mut it = scheduler(SchedulerConfig { drafts: 3, step_tokens: 24, ..config() });
    it.submit(&request(0, 4, 20)).unwrap();
    step(&mut it);
    let plan =
        it.plan(&mut |_, tokens, drafts| drafts.extend([tokens.last().copied().unwrap(), 8, 9, 10])).unwrap();
    assert_eq!((rows(&plan)[0].drafts.as_slice(), plan.decode.as_ref().unwrap().width), (&[7, 8, 9][..], 4));
    let row = |tokens: &[u32]| RowResult { tokens: tokens.into(), stops: false };
    let results = |tokens: &[u32]| StepResult { number: 1, chunk: None, rows: vec![row(tokens)] };
    for wrong in [&[][..], &[7, 9, 9], &[7, 8, 9, 1, 2]] {
        assert!(it.complete(&results(wrong)).unwrap_err().message.contains("illegal tokens"), "{wrong:?}");
    }
    it.complete(&results(&[7, 8, 11])).unwrap();
    let table = it.order[0].table;
    let lengths = it.lengths(table).unwrap();
    assert_eq!(lengths, SequenceLengths { cached: 0, computed: 7, scheduled: 7, known: 8, ahead: 0 });
    assert_eq!(rows(&step(&mut it))[0].position, 7);
}

#[test]
fn drafts_preempt_nobody_and_end_before_the_last_token() {
    let mut it = scheduler(SchedulerConfig { drafts: 3, step_tokens: 24, ..config() });
    it.submit(&request(0, 4, 3)).unwrap();
    step(&mut it);
    let mut greedy = |_: SequenceId, _: &[u32], drafts: &mut Vec<u32>| drafts.extend([7; 9]);
    let plan = it.plan(&mut greedy).unwrap();
    assert_eq!(rows(&plan)[0].drafts.len(), 1, "two more tokens are wanted: a draft and its successor");
    let mut it = scheduler(SchedulerConfig {
        drafts: 3,
        step_tokens: 24,
        groups: vec![GroupConfig { blocks: 3, window: None }],
        ..config()
    });
    it.submit(&request(0, 5, 4)).unwrap();
    steps(&mut it, 2);
    while it.states.groups[0].pool.allocate().is_some() {}
    it.running[0].as_mut().unwrap().max_new = 20;
    let plan = it.plan(&mut greedy).unwrap();
    assert!(rows(&plan)[0].drafts.is_empty(), "no block is free for four tokens");
}

#[test]
fn drafts_of_the_cards_are_places_in_rows_of_full_width() {
    let on_cards = SchedulerConfig {
        drafts: 1,
        draft_place: DraftPlace::Cards,
        step_tokens: 16,
        forms: Forms::Same,
        ..config()
    };
    let mut it = scheduler(on_cards);
    it.submit(&request(0, 4, 5)).unwrap();
    step(&mut it);
    let mut none = |_: SequenceId, _: &[u32], _: &mut Vec<u32>| panic!("the host proposes nothing");
    let mut rows_of = |it: &mut Scheduler, tokens: &[u32]| {
        let plan = it.plan(&mut none).unwrap();
        assert_eq!(plan.decode.as_ref().unwrap().width, 2);
        let row = rows(&plan)[0].clone();
        let result = RowResult { tokens: tokens.into(), stops: false };
        it.complete(&StepResult { number: plan.number, chunk: None, rows: vec![result] }).unwrap();
        (row.position, row.before, row.first, row.drafts.to_vec())
    };
    // The draft, 8, is accepted. The next one is not.
    assert_eq!(rows_of(&mut it, &[8, 9]), (4, Some(3), StepToken::Id(7), vec![0]));
    assert_eq!(rows_of(&mut it, &[10]), (6, Some(8), StepToken::Id(9), vec![0]));
    // The last token has no draft.
    assert_eq!(rows_of(&mut it, &[11]), (7, Some(9), StepToken::Id(10), vec![]));
    assert_eq!((it.load().verified_drafts, it.load().accepted_drafts), (2, 1));
    // Several tokens that a preemption dropped run again in a chunk.
    it.submit(&request(1, 4, 20)).unwrap();
    steps(&mut it, 4);
    let table = it.order[0].table;
    it.preempt(table);
    assert_eq!(chunk(&step(&mut it)), [4, 4, 4]);
}

#[test]
fn a_step_is_planned_while_another_is_in_flight() {
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, ..config() });
    it.submit(&request(0, 4, 9)).unwrap();
    let first = plan(&mut it).unwrap();
    let second = plan(&mut it).unwrap();
    assert_eq!(rows(&second)[0].first, StepToken::Result(ResultRef { step: 0, row: ResultRow::Chunk }));
    assert!(plan(&mut it).is_none(), "two steps are in flight");
    it.complete(&result(&first)).unwrap();
    let third = plan(&mut it).unwrap();
    assert_eq!(rows(&third)[0].first, StepToken::Result(ResultRef { step: 1, row: ResultRow::Decode(0) }));
    let error = it.complete(&result(&third)).unwrap_err();
    assert_eq!(error.to_string(), "result of step 2: another step completes next: expected 1, found 2");
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, overlap: Overlap::Disjoint, ..config() });
    it.submit(&request(0, 4, 9)).unwrap();
    plan(&mut it).unwrap();
    assert!(plan(&mut it).is_none(), "the only sequence is in flight");
}

#[test]
fn a_sequence_that_stops_has_a_void_row_and_keeps_its_blocks_until_then() {
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, ..config() });
    it.submit(&request(0, 4, 9)).unwrap();
    let (first, second) = (plan(&mut it).unwrap(), plan(&mut it).unwrap());
    let mut stop = result(&first);
    stop.chunk.as_mut().unwrap().stops = true;
    assert_eq!(it.complete(&stop).unwrap()[0].end, Some(End::Stop));
    assert_eq!((it.load().running, it.load().available_blocks), (1, vec![13]));
    assert_eq!(it.complete(&result(&second)).unwrap(), []);
    assert!(it.is_idle());
    assert_eq!(it.load().available_blocks, [15]);
}

#[test]
fn a_cancel_releases_blocks_at_once_or_with_the_step_in_flight() {
    let mut it = scheduler(config());
    let ids: Vec<RequestId> = (0..3).map(|text| it.submit(&request(text, 4, 9)).unwrap()).collect();
    steps(&mut it, 2);
    it.cancel(ids[2]);
    assert_eq!(it.load().waiting, 0);
    it.cancel(ids[1]);
    assert_eq!((running(&it), it.load().available_blocks), (vec![0], vec![13]));
    let plan = plan(&mut it).unwrap();
    it.cancel(ids[0]);
    assert_eq!(it.load().available_blocks, [13]);
    assert_eq!(it.complete(&result(&plan)).unwrap(), []);
    assert!(it.is_idle() && it.load().available_blocks == [15]);
    it.cancel(ids[0]);
    it.cancel(RequestId(99));
}

#[test]
fn samples_share_full_prompt_blocks_and_recompute_the_tail() {
    let mut it = scheduler(config());
    it.submit(&QueuedRequest { samples: 3, wants_prompt_logprobs: true, ..request(0, 14, 9) }).unwrap();
    let chunks: Vec<[u32; 3]> = (0..4).map(|_| chunk(&step(&mut it))).collect();
    assert_eq!(chunks, [[0, 8, 8], [8, 6, 8], [12, 2, 4], [12, 2, 4]]);
    let tables: Vec<&[BlockId]> = it.order.iter().map(|at| it.table(at.table, 0).unwrap().blocks()).collect();
    assert!(tables.iter().all(|table| table[..3] == tables[0][..3]));
    let tails: std::collections::BTreeSet<BlockId> = tables.iter().map(|table| table[3]).collect();
    assert_eq!(tails.len(), 3);
}

/// 6 recurrent states, which are just enough for 4 rows.
fn recurrent() -> SchedulerConfig {
    SchedulerConfig { states: Some(6), ..config() }
}

/// Returns the recurrent states that the runs of a plan read and write.
fn states(plan: &StepPlan) -> Vec<(Option<usize>, usize)> {
    let chunk = plan.chunk.iter().map(|it| it.state);
    let states = chunk.chain(rows(plan).iter().map(|it| it.state)).map(Option::unwrap);
    states.map(|it| (it.from.map(BlockId::index), it.to.index())).collect()
}

#[test]
fn a_state_at_a_block_border_is_left_for_prefix_hits() {
    let mut it = scheduler(recurrent());
    it.submit(&QueuedRequest { samples: 2, ..request(0, 14, 4) }).unwrap();
    let plans: Vec<StepPlan> = (0..6).map(|_| step(&mut it)).collect();
    let chunks: Vec<[u32; 3]> = plans.iter().map(chunk).collect();
    assert_eq!(chunks[..4], [[0, 8, 8], [8, 4, 4], [12, 2, 4], [12, 2, 4]]);
    let found: Vec<_> = plans.iter().map(states).collect();
    let prompt = [vec![(None, 1)], vec![(Some(1), 2)], vec![(Some(2), 3)]];
    assert_eq!(found[..3], prompt);
    // The second sample reads the state that the first one left. Rows write in place, until the
    // first sample leaves the state of 16 tokens. That of the second sample is a duplicate.
    assert_eq!(found[3], [(Some(2), 4), (Some(3), 3)]);
    assert_eq!(found[4], [(Some(3), 3), (Some(4), 4)]);
    assert_eq!(found[5], [(Some(3), 5), (Some(4), 4)]);
    assert_eq!(it.load().available_states, Some(4));
    steps(&mut it, 1);
    assert!(it.is_idle() && it.load().available_states == Some(5));
}

#[test]
fn a_state_is_written_in_place_if_the_index_has_another_one() {
    let mut it = scheduler(recurrent());
    it.submit(&request(0, 8, 1)).unwrap();
    it.submit(&QueuedRequest { wants_prompt_logprobs: true, ..request(0, 8, 4) }).unwrap();
    let mut found = Vec::new();
    while !it.is_idle() {
        found.extend(states(&step(&mut it)));
    }
    // Each request writes states at 4 and 8. Those of the second request are duplicates.
    assert_eq!(found[..4], [(None, 1), (Some(1), 2), (None, 3), (Some(3), 3)]);
    assert_eq!(found[4..], [(Some(3), 3); 3]);
}

#[test]
fn sequences_wait_for_a_state_in_their_order() {
    // With blocks of one token, each run needs another state. One is available.
    let groups = vec![GroupConfig { blocks: 64, window: None }];
    let mut it = scheduler(SchedulerConfig { block_size: NonZeroU32::MIN, groups, ..recurrent() });
    submit(&mut it, (0..4).map(|text| request(text, 4, 6)));
    let mut waits = 0;
    while !it.is_idle() {
        let plan = plan(&mut it).unwrap();
        let first = it.order[0].table;
        let has_first = rows(&plan).iter().any(|row| row.table == first);
        assert!(has_first || plan.chunk.as_ref().is_some_and(|chunk| chunk.table == first));
        waits += it.order.len() - states(&plan).len();
        it.complete(&result(&plan)).unwrap();
    }
    assert!(waits > 0 && it.load().preemptions == 0, "{waits} waits");
    assert_eq!(it.load().available_states, Some(5));
}

#[test]
fn states_of_steps_in_flight_are_released_with_the_caches_and_with_void_rows() {
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, ..recurrent() });
    let id = it.submit(&request(0, 14, 9)).unwrap();
    let flights = [plan(&mut it).unwrap(), plan(&mut it).unwrap()];
    assert_eq!(it.load().available_states, Some(3), "two steps end at block borders");
    it.cancel(id);
    for flight in flights {
        it.complete(&result(&flight)).unwrap();
    }
    assert!(it.is_idle() && it.load().available_states == Some(5));
    it.submit(&request(0, 14, 9)).unwrap();
    assert_eq!(chunk(&step(&mut it))[0], 0, "void rows publish no state");
    plan(&mut it).unwrap();
    it.forget_caches();
    let pool = it.states.recurrent.as_ref().unwrap();
    assert_eq!((pool.available(), pool.idle()), (5, 0));
    assert_eq!(states(&step(&mut it))[0].0, None);
}

#[test]
fn ageing_bounds_how_long_a_stream_of_stronger_requests_goes_first() {
    // One row, and in every step a new request with a priority that is 2 levels higher.
    let mut it = scheduler(SchedulerConfig { decode_rows: vec![1], step_tokens: 12, ageing: 10, ..config() });
    it.submit(&request(0, 4, 2)).unwrap();
    it.submit(&request(1, 4, 2)).unwrap();
    let mut served_at = None;
    for number in 0..400 {
        it.submit(&QueuedRequest { priority: 2, ..request(number + 2, 4, 2) }).unwrap();
        step(&mut it);
        if served_at.is_none() && running(&it) == [1] {
            served_at = Some(number);
        }
    }
    // Requests of the first 20 steps are stronger. Each takes two steps.
    let served_at = served_at.expect("the weak request is served");
    assert!((20..=46).contains(&served_at), "{served_at}");
}

#[test]
fn the_same_calls_give_the_same_plans() {
    let run = || {
        let mut it =
            scheduler(SchedulerConfig { groups: vec![GroupConfig { blocks: 9, window: None }], ..config() });
        submit(&mut it, (0..5).map(|text| request(text % 3, 9, 12)));
        let mut plans = Vec::new();
        while !it.is_idle() {
            plans.push(step(&mut it));
        }
        (plans, it.load().preemptions)
    };
    let (plans, preemptions) = run();
    assert!(plans.len() > 20 && preemptions > 0, "{preemptions} preemptions");
    assert_eq!(run(), (plans, preemptions));
}

#[test]
fn a_sequence_that_leaves_gives_its_blocks_when_its_steps_have_completed() {
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, ..config() });
    submit(&mut it, (0..2).map(|text| request(text, 4, 13)));
    steps(&mut it, 4);
    let flight = plan(&mut it).unwrap();
    let positions: Vec<u32> = rows(&flight).iter().map(|row| row.position).collect();
    assert_eq!(positions, [7, 6]);
    // Only the first sequence needs a block next, and no block is free.
    let taken: Vec<BlockId> = std::iter::from_fn(|| it.states.groups[0].pool.allocate()).collect();
    assert_eq!(plan(&mut it), None);
    assert_eq!((it.load().preemptions, it.load().available_blocks), (0, vec![0]));
    let delivered = it.complete(&result(&flight)).unwrap();
    assert_eq!(delivered.len(), 2, "the token of the victim is kept");
    assert_eq!((it.load().preemptions, it.load().available_blocks), (1, vec![2]));
    assert_eq!(it.waiting.values().next().unwrap().generated(), 4);
    let next = plan(&mut it).unwrap();
    assert_eq!((rows(&next).len(), rows(&next)[0].position, running(&it)), (1, 8, vec![0]));
    taken.into_iter().for_each(|block| it.states.groups[0].pool.release(block));
}

#[test]
fn weaker_sequences_get_no_block_in_a_step_in_which_a_stronger_one_lacks_them() {
    let mut it = scheduler(SchedulerConfig { steps_in_flight: 2, ..config() });
    submit(&mut it, (0..2).map(|text| request(text, 4, 13)));
    steps(&mut it, 4);
    it.submit(&QueuedRequest { priority: 1, ..request(2, 16, 9) }).unwrap();
    let flight = plan(&mut it).unwrap();
    assert_eq!((running(&it), chunk(&flight)), (vec![2, 0, 1], [0, 8, 8]));
    // The next chunk needs two blocks, and request 0 needs one. One block is free.
    let mut taken: Vec<BlockId> = std::iter::from_fn(|| it.states.groups[0].pool.allocate()).collect();
    it.states.groups[0].pool.release(taken.pop().unwrap());
    assert_eq!(plan(&mut it), None, "request 1 leaves for request 2, and request 0 waits");
    it.complete(&result(&flight)).unwrap();
    assert_eq!((running(&it), it.load().available_blocks), (vec![2, 0], vec![3]));
    let next = plan(&mut it).unwrap();
    assert_eq!((chunk(&next), rows(&next)[0].position), ([8, 8, 8], 8));
}

#[test]
fn idle_blocks_of_a_hit_count_as_used_at_admission() {
    let mut it = scheduler(config());
    it.submit(&request(0, 28, 1)).unwrap();
    steps(&mut it, 4);
    it.submit(&request(1, 16, 16)).unwrap();
    steps(&mut it, 2);
    // Request 1 holds 4 of 15 blocks and needs 2 more for 17 tokens and one block. The hit takes 7
    // idle blocks, which leaves 2. One step later request 1 holds 5 blocks and needs 1 more.
    for (length, expected) in [(37, [0; 3]), (37, [0; 3]), (36, [28, 8, 8])] {
        let mut prompt = request(0, 28, 0).prompt;
        prompt.extend(0..length - 28);
        let id = it.submit(&QueuedRequest::new(prompt, 1)).unwrap();
        assert_eq!(chunk(&step(&mut it)), expected, "{length} tokens");
        it.cancel(id);
    }
}
