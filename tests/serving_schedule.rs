//! Random schedules of the serving scheduler, on a model of all ranks.
//!
//! Each request must end with exactly the tokens that it has alone. Receivers get plans as bytes.

mod executor;
mod states;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use ascend_tp::base::Id as _;
use ascend_tp::serving::{
    Change, DraftPlace, End, Forms, GroupConfig, Overlap, QueuedRequest, RequestId, Scheduler,
    SchedulerConfig, SequenceId, StepPlan, StepResult, TableId, TokenForm,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::cases::cases;
use executor::{Executor, Identity, mix};

#[derive(Clone, Debug)]
struct Arrival {
    /// Event at which the request is submitted.
    event: u32,
    /// Number of the shared text with which the prompt starts.
    text: u32,
    shared: u32,
    own: u32,
    max_new: u32,
    samples: u32,
    priority: i32,
    salt: u64,
    wants_prompt_logprobs: bool,
    cancel_after: Option<u32>,
    /// How many of 8 drafts are right.
    right_drafts: u64,
    has_stop: bool,
}

impl Arrival {
    fn prompt(&self, number: u64) -> Vec<u32> {
        let shared = (0..self.shared).map(|at| mix(u64::from(self.text), u64::from(at)));
        let own = (0..self.own).map(|at| mix(number + 100, u64::from(at)));
        shared.chain(own).map(|it| u32::try_from(it % 7).unwrap()).collect()
    }

    /// Returns whether a generated token ends the sequence.
    fn stops(&self, position: usize, token: u32) -> bool {
        self.has_stop && mix(position as u64, u64::from(token)).is_multiple_of(16)
    }
}

/// One sample of a submitted request: the expected answer, and the answer so far.
struct Sample {
    arrival: Arrival,
    identity: Identity,
    prompt: Vec<u32>,
    expected: Vec<u32>,
    end: End,
    answer: Vec<u32>,
    /// Order of service as the policy defines it.
    rank: (i64, u64),
    is_over: bool,
    is_cancelled: bool,
}

impl Sample {
    fn new(arrival: &Arrival, number: u64, sample: u32, forms: Forms) -> Self {
        let prompt = arrival.prompt(number);
        let length = u32::try_from(prompt.len()).unwrap();
        let identity = Identity { salt: arrival.salt, seed: mix(number, u64::from(sample)), prompt: length };
        let mut state = None;
        for &token in &prompt {
            state = Some(identity.extend(forms, state, token, TokenForm::Prompt));
        }
        let (mut expected, mut end) = (Vec::new(), End::Length);
        while expected.len() < arrival.max_new as usize {
            let token = identity.sample(state.unwrap());
            expected.push(token);
            if arrival.stops(expected.len(), token) {
                end = End::Stop;
                break;
            }
            state = Some(identity.extend(forms, state, token, TokenForm::Generated));
        }
        let (answer, rank) = (Vec::new(), (0, 0));
        Self {
            arrival: arrival.clone(),
            identity,
            prompt,
            expected,
            end,
            answer,
            rank,
            is_over: false,
            is_cancelled: false,
        }
    }
}

/// How often the interesting cases happened.
#[derive(Debug, Default)]
struct Coverage {
    steps: u64,
    preemptions: u64,
    hit_tokens: u64,
    void_rows: u64,
    accepted: u64,
    refused: u64,
    tokens_in_flight: u64,
    recomputed_rows: u64,
    generated_chunks: u64,
    dropped: u64,
    forks: u64,
    cancels: u64,
    stops: u64,
    state_hits: u64,
    states_left: u64,
    states_evicted: u64,
    states_exhausted: u64,
}

struct Simulation<'a> {
    config: SchedulerConfig,
    scheduler: Scheduler,
    executor: Executor,
    samples: BTreeMap<SequenceId, Sample>,
    in_flight: VecDeque<(StepPlan, StepResult)>,
    cancels: Vec<(u32, RequestId)>,
    arrivals: u64,
    steps: u64,
    coverage: &'a mut Coverage,
}

impl<'a> Simulation<'a> {
    fn new(config: &SchedulerConfig, coverage: &'a mut Coverage) -> Self {
        Self {
            config: config.clone(),
            scheduler: Scheduler::new(config.clone()).unwrap(),
            executor: Executor::new(config),
            samples: BTreeMap::new(),
            in_flight: VecDeque::new(),
            cancels: Vec::new(),
            arrivals: 0,
            steps: 0,
            coverage,
        }
    }

    fn submit(&mut self, arrival: &Arrival, event: u32, number: u64) {
        let request = QueuedRequest {
            samples: arrival.samples,
            priority: arrival.priority,
            salt: arrival.salt,
            wants_prompt_logprobs: arrival.wants_prompt_logprobs,
            ..QueuedRequest::new(arrival.prompt(number), arrival.max_new)
        };
        // A request that can never fit is refused. A unit test checks that others are not.
        let Ok(id) = self.scheduler.submit(&request) else { return };
        let due =
            i64::try_from(self.steps).unwrap() - i64::from(arrival.priority) * i64::from(self.config.ageing);
        for sample in 0..arrival.samples {
            let mut made = Sample::new(arrival, number, sample, self.config.forms);
            made.rank = (due, self.arrivals);
            self.arrivals += 1;
            self.samples.insert(SequenceId { request: id, sample }, made);
        }
        if let Some(after) = arrival.cancel_after {
            self.cancels.push((event + after, id));
        }
    }

    fn cancel(&mut self, request: RequestId) {
        self.scheduler.cancel(request);
        for (_, sample) in self.samples.iter_mut().filter(|(id, _)| id.request == request) {
            self.coverage.cancels += u64::from(!sample.is_over);
            sample.is_cancelled |= !sample.is_over;
            sample.is_over = true;
        }
    }

    /// Plans and runs a step. Returns false if there is none.
    fn plan(&mut self) -> bool {
        let samples = &self.samples;
        let mut drafter = |id: SequenceId, tokens: &[u32], drafts: &mut Vec<u32>| {
            let sample = &samples[&id];
            assert_eq!(tokens[..sample.prompt.len()], sample.prompt);
            let at = tokens.len() - sample.prompt.len();
            for (at, &token) in sample.expected.iter().enumerate().skip(at) {
                let is_right = mix(at as u64, sample.identity.seed) % 8 < sample.arrival.right_drafts;
                drafts.push(if is_right { token } else { token + 1 });
            }
        };
        let waiting_before = self.waiting();
        let Some(plan) = self.scheduler.plan(&mut drafter) else { return false };
        self.check_plan(&plan, &waiting_before);
        let (scheduler, samples) = (&self.scheduler, &self.samples);
        let identity = |table: TableId| samples[&scheduler.sequence(table).unwrap()].identity;
        let result = self.executor.run(&plan, &identity);
        self.check_tables();
        self.in_flight.push_back((plan, result));
        self.steps += 1;
        true
    }

    /// Returns the ranks of samples that hold no table.
    fn waiting(&self) -> BTreeMap<SequenceId, (i64, u64)> {
        let running: BTreeSet<SequenceId> =
            self.tables().filter_map(|it| self.scheduler.sequence(it)).collect();
        let waits = |(id, sample): &(&SequenceId, &Sample)| !sample.is_over && !running.contains(*id);
        self.samples.iter().filter(waits).map(|(id, sample)| (*id, sample.rank)).collect()
    }

    fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        (0..*self.config.decode_rows.last().unwrap() as usize).map(TableId::from_index)
    }

    fn check_plan(&mut self, plan: &StepPlan, waiting: &BTreeMap<SequenceId, (i64, u64)>) {
        let mut tokens = 0;
        if let Some(chunk) = &plan.chunk {
            assert!(
                self.config.chunks.contains(&chunk.padded) && chunk.tokens.len() <= chunk.padded as usize
            );
            assert!(!chunk.tokens.is_empty());
            let sample = self.scheduler.sequence(chunk.table).map(|id| (id.sample, &self.samples[&id]));
            let (number, sample) = sample.unwrap();
            let scores = number == 0 && sample.arrival.wants_prompt_logprobs && sample.answer.is_empty();
            assert_eq!(chunk.scores, scores);
            assert!(!scores || self.config.scored_chunks.contains(&chunk.padded));
            tokens += chunk.padded;
            self.coverage.generated_chunks += u64::from(chunk.form == TokenForm::Generated);
        }
        if let Some(run) = &plan.decode {
            assert!(self.config.decode_rows.contains(&run.padded) && run.rows.len() <= run.padded as usize);
            assert!(run.width == 1 || run.width == self.config.drafts + 1);
            assert!(run.rows.iter().all(|row| row.token_count() <= run.width));
            let tables: BTreeSet<TableId> = run.rows.iter().map(|row| row.table).collect();
            assert_eq!(tables.len(), run.rows.len(), "a sequence has two rows");
            tokens += run.padded * run.width;
            for row in &run.rows {
                self.coverage.tokens_in_flight +=
                    u64::from(matches!(row.first, ascend_tp::serving::StepToken::Result(_)));
                self.coverage.recomputed_rows += u64::from(!row.samples);
            }
        }
        assert!(tokens <= self.config.step_tokens, "the budget is exceeded");
        for table in self.tables() {
            let Some(lengths) = self.scheduler.lengths(table) else { continue };
            assert!(lengths.cached <= lengths.computed && lengths.computed <= lengths.scheduled);
            assert!(lengths.scheduled <= lengths.known + lengths.ahead);
        }
        let load = self.scheduler.load();
        self.coverage.states_exhausted += u64::from(load.available_states == Some(0));
        // No request is overtaken: a waiting sequence is weaker than each admitted one.
        let still_waiting = self.waiting();
        let admitted =
            waiting.iter().filter(|(id, _)| !still_waiting.contains_key(id)).map(|(_, rank)| rank).max();
        let strongest =
            still_waiting.iter().filter(|(id, _)| waiting.contains_key(id)).map(|(_, rank)| rank).min();
        if let (Some(admitted), Some(strongest)) = (admitted, strongest) {
            assert!(admitted < strongest, "a request was overtaken");
        }
        for change in &plan.changes {
            match change {
                Change::Admit { table, .. } => {
                    self.coverage.forks +=
                        u64::from(self.scheduler.sequence(*table).is_some_and(|it| it.sample > 0));
                }
                Change::Extend { dropped, appended, .. } if appended.is_empty() => {
                    self.coverage.dropped += u64::from(*dropped);
                }
                _ => {}
            }
        }
    }

    fn check_tables(&self) {
        for table in self.tables() {
            for group in 0..self.config.groups.len() {
                assert_eq!(self.executor.tables.get(table, group), self.scheduler.table(table, group));
                self.check_window(table, group);
            }
        }
    }

    /// Behind a window, a sequence holds no blocks but those of the steps in flight.
    fn check_window(&self, table: TableId, group: usize) {
        let SchedulerConfig { overlap, steps_in_flight, block_size, .. } = self.config;
        let Some(window) = self.config.groups[group].window else { return };
        let Some(blocks) = self.scheduler.table(table, group) else { return };
        let chunk = self.config.chunks.last().copied().unwrap().max(self.config.drafts + 1);
        let steps = if overlap == Overlap::Chained { steps_in_flight as u32 } else { 1 };
        let most = (window.get() + steps * chunk).div_ceil(block_size.get()) + 1;
        let held = blocks.blocks().len();
        assert!(held <= most as usize, "{table} holds {held} blocks behind a window of {window}");
    }

    /// Completes the oldest step. Returns false if none is in flight.
    fn complete(&mut self) -> bool {
        let Some((plan, mut result)) = self.in_flight.pop_front() else { return false };
        let rows = plan.decode.iter().flat_map(|run| &run.rows);
        let tables = plan.chunk.iter().map(|chunk| chunk.table).chain(rows.clone().map(|row| row.table));
        let ids: Vec<SequenceId> = tables.map(|table| self.scheduler.sequence(table).unwrap()).collect();
        let drafts: Vec<usize> =
            plan.chunk.iter().map(|_| 0).chain(rows.map(|row| row.drafts.len())).collect();
        let results = result.chunk.iter_mut().chain(&mut result.rows);
        let mut new: BTreeMap<SequenceId, Vec<u32>> = BTreeMap::new();
        for (id, run) in ids.iter().zip(states::runs(&plan)) {
            self.executor.states.complete(run, self.samples[id].is_over);
        }
        for ((id, row), drafts) in ids.iter().zip(results).zip(drafts) {
            let sample = &self.samples[id];
            if sample.is_over {
                self.coverage.void_rows += 1;
                continue;
            }
            self.coverage.accepted += row.tokens.len().saturating_sub(1) as u64;
            self.coverage.refused += (drafts + 1).saturating_sub(row.tokens.len().max(1)) as u64;
            let answered = sample.answer.len();
            let stop = row
                .tokens
                .iter()
                .enumerate()
                .position(|(at, &token)| sample.arrival.stops(answered + at + 1, token));
            if let Some(stop) = stop {
                row.tokens.truncate(stop + 1);
                row.stops = true;
            }
            new.insert(*id, row.tokens.to_vec());
        }
        for delivery in self.scheduler.complete(&result).unwrap() {
            let sample = self.samples.get_mut(&delivery.sequence).unwrap();
            let tokens = new.remove(&delivery.sequence).unwrap();
            assert_eq!(delivery.tokens as usize, tokens.len());
            sample.answer.extend(tokens);
            assert!(
                sample.expected.starts_with(&sample.answer),
                "{:?}: {:?}",
                sample.expected,
                sample.answer
            );
            if let Some(end) = delivery.end {
                assert_eq!((&sample.answer, end), (&sample.expected, sample.end));
                self.coverage.stops += u64::from(end == End::Stop);
                sample.is_over = true;
            }
        }
        assert!(new.values().all(Vec::is_empty), "tokens are lost: {new:?}");
        true
    }

    fn run(mut self, arrivals: &[Arrival], order: &[bool]) {
        let last = arrivals.iter().map(|arrival| arrival.event).max().unwrap_or(0);
        let mut event = 0;
        // Each preemption can cost the tokens of a sequence. The bound only has to be finite.
        let tokens: u32 = arrivals.iter().map(|it| it.samples * (it.shared + it.own + it.max_new)).sum();
        let bound = 1_000 + 60 * tokens;
        loop {
            for (number, arrival) in arrivals.iter().enumerate().filter(|(_, it)| it.event == event) {
                self.submit(arrival, event, number as u64);
            }
            let due: Vec<RequestId> =
                self.cancels.iter().filter(|(at, _)| *at == event).map(|(_, id)| *id).collect();
            for request in due {
                self.cancel(request);
            }
            let prefers_plan = order[event as usize % order.len()];
            let is_planned = prefers_plan && self.plan();
            let is_done = is_planned || self.complete() || self.plan();
            if event > last && !is_done {
                break;
            }
            event += 1;
            assert!(event < bound, "no progress: {:?}", self.scheduler.load());
        }
        self.check_end();
    }

    fn check_end(self) {
        assert!(self.scheduler.is_idle(), "stuck: {:?}", self.scheduler.load());
        for sample in self.samples.values().filter(|sample| !sample.is_cancelled) {
            assert_eq!(sample.answer, sample.expected);
        }
        let load = self.scheduler.load();
        let capacity: Vec<usize> = self.config.groups.iter().map(|group| group.blocks as usize - 1).collect();
        assert_eq!(load.available_blocks, capacity, "blocks leaked");
        assert_eq!(load.available_states, self.config.states.map(|states| states as usize - 1));
        self.coverage.preemptions += load.preemptions;
        self.coverage.hit_tokens += load.hit_tokens;
        self.coverage.steps += self.steps;
        self.coverage.state_hits += self.executor.states.hits;
        self.coverage.states_left += self.executor.states.left;
        self.coverage.states_evicted += self.executor.states.evicted;
    }
}

fn configs() -> impl Strategy<Value = SchedulerConfig> {
    let group = (prop_oneof![6_u32..24, 40_u32..80], prop::option::of(2_u32..9));
    let spare_states = prop::option::weighted(0.3, 0_u32..12);
    let sizes = (1_u32..5, prop::collection::vec(group, 1..4), spare_states);
    let shapes =
        (prop::sample::select(vec![1_usize, 2, 3, 4]), prop::sample::select(vec![1_usize, 2, 3]), 0_u32..4);
    let policy = (0_u32..20, 0_u32..8, 1_usize..4, any::<bool>(), any::<bool>());
    (sizes, shapes, policy).prop_map(|((block, groups, spare_states), (rows, chunks, drafts), policy)| {
        let (spare, ageing, steps_in_flight, is_chained, is_same) = policy;
        let decode_rows = [1, 2, 4, 8][..rows].to_vec();
        let drafts = if spare_states.is_some() { 0 } else { drafts };
        let chunks: Vec<u32> = [1, 2, 4][..chunks].iter().map(|size| size * block).collect();
        SchedulerConfig {
            block_size: NonZeroU32::new(block).unwrap(),
            groups: groups
                .into_iter()
                .map(|(blocks, window)| GroupConfig { blocks, window: window.and_then(NonZeroU32::new) })
                .collect(),
            // One for each row, one to write, and the null state.
            states: spare_states.map(|spare| decode_rows[rows - 1] + 2 + spare),
            step_tokens: decode_rows[rows - 1] * (drafts + 1) + chunks[0] + spare,
            decode_rows,
            scored_chunks: chunks[..1].to_vec(),
            chunks,
            drafts,
            draft_place: DraftPlace::Host,
            context: 64,
            ageing,
            steps_in_flight,
            overlap: if is_chained { Overlap::Chained } else { Overlap::Disjoint },
            forms: if is_same { Forms::Same } else { Forms::ByPosition },
            key: [7; 16],
        }
    })
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let text = (0_u32..3, 0_u32..20, 1_u32..8);
    let wants = (
        prop::sample::select(vec![0_u32, 1, 4, 12, 30]),
        prop::sample::select(vec![1_u32, 1, 1, 2, 3]),
        -1_i32..2,
    );
    let rare = (
        prop::sample::select(vec![0_u64, 0, 0, 1]),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.15, 0_u32..40),
    );
    let row = (0_u32..60, text, wants, rare, 0_u64..9, any::<bool>());
    let arrival = row.prop_map(
        |(event, (text, shared, own), (max_new, samples, priority), rare, right_drafts, has_stop)| {
            let (salt, wants_prompt_logprobs, cancel_after) = rare;
            Arrival {
                event,
                text,
                shared,
                own,
                max_new,
                samples,
                priority,
                salt,
                wants_prompt_logprobs,
                cancel_after,
                right_drafts,
                has_stop,
            }
        },
    );
    prop::collection::vec(arrival, 1..24)
}

#[test]
fn every_request_gets_its_own_tokens_in_any_schedule() {
    let coverage = RefCell::new(Coverage::default());
    let settings = ProptestConfig {
        cases: u32::try_from(cases(200)).unwrap(),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let order = prop::collection::vec(any::<bool>(), 1..16);
    TestRunner::new(settings)
        .run(&(configs(), arrivals(), order), |(config, arrivals, order)| {
            Simulation::new(&config, &mut coverage.borrow_mut()).run(&arrivals, &order);
            Ok(())
        })
        .unwrap();
    let coverage = coverage.into_inner();
    let Coverage { steps, preemptions, hit_tokens, void_rows, accepted, refused, tokens_in_flight, .. } =
        coverage;
    let Coverage { recomputed_rows, generated_chunks, dropped, forks, cancels, stops, .. } = coverage;
    let Coverage { state_hits, states_left, states_evicted, states_exhausted, .. } = coverage;
    for count in [preemptions, hit_tokens, void_rows, accepted, refused, tokens_in_flight, recomputed_rows] {
        assert!(count > 0, "{coverage:?}");
    }
    for count in [steps, generated_chunks, dropped, forks, cancels, stops] {
        assert!(count > 0, "{coverage:?}");
    }
    for count in [state_hits, states_left, states_evicted, states_exhausted] {
        assert!(count > 0, "{coverage:?}");
    }
}
