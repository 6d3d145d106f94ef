//! The steps of a session: plan, run, choose, tell.
//!
//! - Input: checked requests ([`Session::submit`]).
//! - Output: [`SequenceEvent`]s.
//! - Invariants: while the cards run step `n`, the host plans step `n + 1` and builds its inputs.
//!   The events of step `n` are sent while step `n + 1` runs. A sequence does not depend on the
//!   other sequences. A NaN or +∞ logit ends its own request, with an error that names its source.
//! - Not here: threads, and waiting for requests.

use std::hash::Hasher as _;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use rustc_hash::FxHasher;

use crate::base::{Diagnostic, Diagnostics, Id};
use crate::config::LengthDependence;
use crate::exec::Timed;
use crate::program::models::rotary_tables;
use crate::program::{HostTensor, OpId};
use crate::serving::{
    Load, QueuedRequest, RequestId, ResultRow, RowResult, Scheduler, SequenceId, StepPlan, StepResult,
    TableId,
};

use super::candidates::CandidateRows;
use super::error::Error;
use super::request::{Finish, Request, Sequence};
use super::runner::{PoolIds, PreparedStep, StepIds, StepOutputs, StepRunner};
use super::sampling::SamplingError;
use super::sequence::{Choice, NewToken, RowOutput, RunningSequence, SequenceSetup, Told, max_new_tokens};
use super::session::{PrefixCache, Session};

/// A request of a session: the pool that holds its blocks, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    pub(super) pool: usize,
    pub(super) id: RequestId,
}

/// A sample of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceKey {
    /// The request that the sample belongs to.
    pub request: RequestKey,
    /// Number of the sample, from 0.
    pub sample: u32,
}

impl SequenceKey {
    const fn new(pool: usize, id: SequenceId) -> Self {
        Self { request: RequestKey { pool, id: id.request }, sample: id.sample }
    }
}

/// A token or the end of a sequence.
#[derive(Debug)]
pub enum SequenceEvent<'a> {
    /// A new token, and the logits at its position if the request asks for them.
    Token(&'a NewToken, Option<&'a [f32]>),
    /// The sequence has ended. The text was held back.
    End(&'a str, &'a Sequence),
    /// No token could be chosen, or the tokens have no text.
    Failed(Error),
}

/// Counts and times of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepSummary {
    /// Time between the start of the step and its outputs.
    pub duration: Duration,
    /// Whether the step computed a part of a prompt.
    pub has_chunk: bool,
    /// Number of tokens that the step chose for sequences.
    pub new_tokens: usize,
    /// Whether the cards measured the streams of the step.
    pub(super) timed: bool,
}

/// A step on the cards.
#[derive(Debug)]
pub(super) struct StepInFlight {
    running: PreparedStep,
    started: Instant,
    timed: bool,
}

/// A row that chooses tokens, with its sequence.
struct ChoosingRow<'a> {
    key: SequenceKey,
    row: ResultRow,
    /// Whether the row chooses tokens. A scored chunk before the end of the prompt does not.
    samples: bool,
    sequence: RunningSequence,
    drafts: &'a [u32],
    output: RowOutput<'a>,
    /// Whether the choice needs all logits of the row.
    needs_logits: bool,
    choice: Result<Choice, SamplingError>,
    told: Result<Told, Error>,
}

#[doc(hidden)]
impl Session {
    /// Checks a request and adds it to the queue.
    ///
    /// # Errors
    /// Everything that does not fit the session.
    pub fn enqueue(&mut self, request: &Request, samples: u32) -> Result<RequestKey, Diagnostics> {
        let mut problems = Diagnostics::new();
        let ids = self.limits.check("request", request, &mut problems);
        let ids = problems.into_result(ids)?;
        self.submit(&Arc::new(request.clone()), &ids, samples)
    }

    /// Adds a checked request with the ids of a prompt.
    pub(super) fn submit(
        &mut self,
        request: &Arc<Request>,
        ids: &[u32],
        samples: u32,
    ) -> Result<RequestKey, Diagnostics> {
        let context = self.limits.context;
        let new = max_new_tokens(request, ids.len(), context);
        let adapter = request.adapter.as_deref().and_then(|name| self.config.adapters.index(name));
        let adapter = adapter.and_then(|adapter| u32::try_from(adapter).ok());
        let queued = QueuedRequest {
            samples,
            priority: request.priority,
            salt: self.salt(ids.len(), adapter),
            adapter,
            wants_prompt_logprobs: request.prompt_log_probabilities.is_some(),
            ..QueuedRequest::new(ids.to_vec(), u32::try_from(new).unwrap_or(u32::MAX))
        };
        let load = |pool: &usize| {
            let load = self.pools[*pool].load();
            load.running + load.waiting
        };
        let pool = (0..self.pools.len()).min_by_key(load).unwrap_or(0);
        let setup = SequenceSetup {
            tokenizer: self.limits.tokenizer.as_ref().ok(),
            stop_ids: &self.stop_ids,
            context,
            vocabulary: self.config.vocab_size,
            drafts: self.lookup.as_ref(),
            constraints: self.limits.constraints.as_deref(),
        };
        let sequences = (0..samples).map(|sample| RunningSequence::new(request, ids, sample, setup));
        let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
        let id = self.pools[pool].submit(&queued)?;
        let key = RequestKey { pool, id };
        for (sample, sequence) in (0..samples).zip(sequences) {
            self.sequences.insert(SequenceKey { request: key, sample }, sequence);
        }
        Ok(key)
    }

    /// Returns a number for everything but the tokens that the cache of a prompt depends on.
    fn salt(&mut self, prompt: usize, adapter: Option<u32>) -> u64 {
        if self.prefix_cache == PrefixCache::Off {
            self.salts += 1;
            return self.salts;
        }
        let mut salt = FxHasher::default();
        if let Some(adapter) = adapter {
            salt.write_u32(adapter + 1);
        }
        for table in rotary_tables(&self.config) {
            let rope = self.config.rope_of(table.rotary);
            match rope.length_dependence() {
                LengthDependence::Fixed => {}
                LengthDependence::Prompt => {
                    let (cos, _) = rope.cos_sin(self.config.head_dim, &[1], prompt);
                    cos.iter().for_each(|cos| salt.write_u32(cos.to_bits()));
                }
                LengthDependence::Current => {
                    self.salts += 1;
                    return self.salts;
                }
            }
        }
        salt.finish()
    }

    /// Ends a request without further events.
    pub fn cancel(&mut self, key: RequestKey) {
        self.pools[key.pool].cancel(key.id);
        self.sequences.retain(|sequence, _| sequence.request != key);
    }

    /// Returns counts of sequences and free blocks, for each pool of cache blocks.
    #[must_use]
    pub fn load(&self) -> Vec<Load> {
        self.pools.iter().map(Scheduler::load).collect()
    }

    /// Returns whether no request waits or runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.pools.iter().all(Scheduler::is_idle)
    }

    /// Runs one step and sends its events. `Break` cancels the request.
    ///
    /// Returns nothing if there are no requests.
    ///
    /// # Errors
    /// A card or process failed.
    pub fn step(
        &mut self,
        on_event: &mut dyn FnMut(SequenceKey, SequenceEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Option<StepSummary>, Error> {
        while self.in_flight.len() < self.deployment.stages {
            let Some(step) = self.plan()? else { break };
            self.start(step, &StepIds::default())?;
        }
        let Some(StepInFlight { running, started, timed }) = self.in_flight.pop_front() else {
            if self.is_idle() {
                return Ok(None);
            }
            // The scheduler refuses requests that do not fit alone, so the first one always runs.
            let problem = Diagnostic::new("serving", "requests wait, and no sequence can compute a token");
            return Err(Diagnostics::from(problem.found(format!("{:?}", self.load()))).into());
        };
        // Stages have several steps in flight already.
        let next = if self.deployment.stages == 1 { self.plan()? } else { None };
        let outputs = self.runner.finish(&running)?;
        let duration = started.elapsed();
        let plans = &running.plans;
        self.score_prompts(plans, &outputs);
        let kept;
        let mut jobs = self.jobs(plans, &outputs);
        jobs.par_iter_mut().for_each(ChoosingRow::choose);
        if jobs.iter().any(|job| job.needs_logits) {
            let wanted = WantedLogits::of(&jobs, self.pools.len());
            kept = self.runner.kept_logits(&wanted.places)?;
            let open = jobs.iter_mut().filter(|job| job.needs_logits);
            open.zip(wanted.rows).for_each(|(job, (pool, rows))| {
                job.output = RowOutput::Logits(kept.rows(pool, rows));
            });
            jobs.par_iter_mut().filter(|job| job.needs_logits).for_each(ChoosingRow::choose);
        }
        let has_failed = jobs.iter().any(|job| job.choice.as_ref().is_err_and(is_of_caches));
        let place = if has_failed { self.first_not_finite(&running)? } else { None };
        if let Some(next) = next.filter(|_| !has_failed) {
            self.start(next, &chosen_ids(plans, &jobs))?;
        }
        jobs.par_iter_mut().for_each(ChoosingRow::tell);
        let summary = StepSummary {
            duration,
            has_chunk: running.has_chunk(),
            new_tokens: jobs.iter().filter_map(|job| Some(job.choice.as_ref().ok()?.tokens.len())).sum(),
            timed,
        };
        self.complete(plans, &jobs)?;
        self.send(jobs, place.as_deref(), on_event);
        if has_failed {
            // Numbers that are not finite stay in the blocks of the failed sequence and in the null
            // block. Attention may multiply them by a weight of 0, which gives NaN.
            self.clear_caches()?;
        }
        Ok(Some(summary))
    }

    /// Forgets all prefixes in the caches. Running sequences compute their tokens again.
    ///
    /// # Errors
    /// A card failed.
    pub fn clear_caches(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.pools.iter_mut().for_each(Scheduler::forget_caches);
        Ok(self.runner.engine.clear_states()?)
    }

    /// Waits for the steps on the cards, which become void.
    fn drain(&mut self) -> Result<(), Error> {
        while let Some(void) = self.in_flight.pop_front() {
            self.runner.finish(&void.running)?;
        }
        Ok(())
    }

    /// Plans the next step of all pools, and builds its inputs.
    fn plan(&mut self) -> Result<Option<PreparedStep>, Error> {
        let Self { pools, sequences, .. } = self;
        let plans = pools.iter_mut().enumerate().map(|(pool, scheduler)| {
            scheduler.plan(&mut |id, known, drafts| {
                if let Some(sequence) = sequences.get_mut(&SequenceKey::new(pool, id)) {
                    sequence.propose(known, drafts);
                }
            })
        });
        let plans: Vec<Option<StepPlan>> = plans.collect();
        if plans.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok(Some(self.runner.prepare(plans)?))
    }

    fn start(&mut self, mut step: PreparedStep, ids: &StepIds) -> Result<(), Error> {
        let timed = !step.has_chunk() && self.until_timed == Some(0);
        if !step.has_chunk() {
            self.until_timed = self.until_timed.and_then(|steps| steps.checked_sub(1));
        }
        let started = Instant::now();
        self.runner.start(&mut step, ids, if timed { Timed::Streams } else { Timed::No })?;
        self.in_flight.push_back(StepInFlight { running: step, started, timed });
        Ok(())
    }

    /// Adds the log-probabilities of prompts from chunks that returned all logits. The next step
    /// waits for them, because a NaN among them ends the request and clears the caches.
    fn score_prompts(&mut self, plans: &[Option<StepPlan>], outputs: &StepOutputs) {
        for (pool, plan) in plans.iter().enumerate() {
            let chunk = plan.as_ref().and_then(|plan| plan.chunk.as_ref());
            let Some(chunk) = chunk.filter(|chunk| chunk.scores) else { continue };
            let key = self.pools[pool].sequence(chunk.table).map(|id| SequenceKey::new(pool, id));
            let sequence = key.and_then(|key| self.sequences.get_mut(&key));
            if let (Some(sequence), Some(logits)) = (sequence, outputs.chunk_logits(pool)) {
                sequence.score_prompt(chunk.start as usize, chunk.tokens.len(), logits);
                if chunk.samples {
                    self.share_scores(pool, chunk.table);
                }
            }
        }
    }

    /// Gives the log-probabilities of a prompt to the other samples, which have not started.
    fn share_scores(&mut self, pool: usize, table: TableId) {
        let Some(first) = self.pools[pool].sequence(table).map(|id| SequenceKey::new(pool, id)) else {
            return;
        };
        let Some(scored) = self.sequences.get(&first) else { return };
        let scores = scored.sequence.prompt_log_probabilities.clone();
        let samples = SequenceKey { sample: 0, ..first }..=SequenceKey { sample: u32::MAX, ..first };
        for (_, other) in self.sequences.range_mut(samples).filter(|(key, _)| **key != first) {
            other.sequence.prompt_log_probabilities.clone_from(&scores);
        }
    }

    /// Takes the sequences of all rows that choose tokens, and of scored chunks. Rows of ended
    /// sequences are void.
    fn jobs<'a>(&mut self, plans: &'a [Option<StepPlan>], outputs: &'a StepOutputs) -> Vec<ChoosingRow<'a>> {
        let mut jobs = Vec::new();
        for (pool, plan) in plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let mut add = |table: TableId, row, drafts, samples, output: Option<RowOutput<'a>>| {
                let key = self.pools[pool].sequence(table).map(|id| SequenceKey::new(pool, id));
                let sequence = key.and_then(|key| Some((key, self.sequences.remove(&key)?)));
                let (Some((key, mut sequence)), Some(output)) = (sequence, output) else { return };
                sequence.sequence.cached_tokens = self.pools[pool].first_hit(table) as usize;
                let (choice, told) = (Ok(Choice::default()), Ok(Told::default()));
                let needs_logits = false;
                jobs.push(ChoosingRow {
                    key,
                    row,
                    samples,
                    sequence,
                    drafts,
                    output,
                    needs_logits,
                    choice,
                    told,
                });
            };
            if let Some(chunk) = plan.chunk.as_ref().filter(|chunk| chunk.samples || chunk.scores) {
                let output = outputs.chunk(pool, chunk);
                add(chunk.table, ResultRow::Chunk, &[], chunk.samples, output);
            }
            for (index, row) in plan.decode.iter().flat_map(|run| &run.rows).enumerate() {
                if row.samples {
                    let place = ResultRow::Decode(u32::try_from(index).unwrap_or(u32::MAX));
                    let output = outputs.row(pool, index, row);
                    add(row.table, place, outputs.drafts(pool, index, row), true, output);
                }
            }
        }
        jobs
    }

    /// Gives the chosen tokens to the schedulers.
    fn complete(&mut self, plans: &[Option<StepPlan>], jobs: &[ChoosingRow<'_>]) -> Result<(), Error> {
        for (pool, plan) in plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let rows = plan.decode.as_ref().map_or(0, |run| run.rows.len());
            let mut result = StepResult {
                number: plan.number,
                chunk: plan.chunk.as_ref().map(|_| RowResult::default()),
                rows: vec![RowResult::default(); rows],
            };
            for job in jobs.iter().filter(|job| job.key.request.pool == pool) {
                let row = job.result();
                match job.row {
                    ResultRow::Chunk => result.chunk = Some(row),
                    ResultRow::Decode(at) => result.rows[at as usize] = row,
                }
            }
            self.pools[pool].complete(&result).map_err(Diagnostics::from)?;
        }
        Ok(())
    }

    /// Sends the events of a step, and returns the sequences that continue to the session.
    fn send(
        &mut self,
        jobs: Vec<ChoosingRow<'_>>,
        place: Option<&str>,
        on_event: &mut dyn FnMut(SequenceKey, SequenceEvent<'_>) -> ControlFlow<()>,
    ) {
        let vocabulary = self.config.vocab_size;
        let (mut failed, mut cancelled) = (Vec::new(), Vec::new());
        for job in jobs {
            let ChoosingRow { key, sequence, output, choice, told, .. } = job;
            if failed.contains(&key.request) {
                continue;
            }
            let position = sequence.position();
            let told = match choice {
                Ok(_) => told,
                Err(source) => {
                    let place = is_of_caches(&source).then(|| place.map(str::to_owned)).flatten();
                    Err(Error::Sampling { request: 0, position, source, place })
                }
            };
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    failed.push(key.request);
                    let _ended = on_event(key, SequenceEvent::Failed(error));
                    continue;
                }
            };
            let mut flow = ControlFlow::Continue(());
            for (at, token) in told.tokens.iter().enumerate() {
                let logits = match output {
                    RowOutput::Logits(logits) if sequence.request.logits => {
                        Some(&logits[at * vocabulary..][..vocabulary])
                    }
                    _ => None,
                };
                flow = on_event(key, SequenceEvent::Token(token, logits));
            }
            if sequence.finish.is_some() {
                let _ended = on_event(key, SequenceEvent::End(&told.rest, &sequence.sequence));
                continue;
            }
            self.sequences.insert(key, sequence);
            cancelled.extend(flow.is_break().then_some(key.request));
        }
        // Other samples of these requests may have had rows too.
        failed.into_iter().for_each(|request| self.cancel(request));
        cancelled.into_iter().for_each(|request| self.end_request(request, on_event));
    }

    /// Cancels a request, and sends the end of each sequence.
    pub(super) fn end_request(
        &mut self,
        key: RequestKey,
        on_event: &mut dyn FnMut(SequenceKey, SequenceEvent<'_>) -> ControlFlow<()>,
    ) {
        self.pools[key.pool].cancel(key.id);
        let own: Vec<SequenceKey> = self.sequences.keys().filter(|it| it.request == key).copied().collect();
        for key in own {
            let Some(mut sequence) = self.sequences.remove(&key) else { continue };
            sequence.finish = Some(Finish::Cancelled);
            let _ended = match sequence.end() {
                Ok(rest) => on_event(key, SequenceEvent::End(&rest, &sequence.sequence)),
                Err(error) => on_event(key, SequenceEvent::Failed(error)),
            };
        }
    }

    /// Runs a step again, and returns the first op in program order with a NaN or infinite result.
    /// Later steps become void.
    fn first_not_finite(&mut self, running: &PreparedStep) -> Result<Option<String>, Error> {
        self.drain()?;
        for (program, inputs) in StepRunner::runs(running) {
            let plans = self.runner.engine.plans(program).to_vec();
            // Ops are in program order within a stage and across stages.
            let mut first: Option<((OpId, usize), String)> = None;
            self.runner.engine.run_observed(program, inputs, |observation| {
                let plan = &plans[observation.rank];
                let tap = &plan.taps[observation.tap];
                let dtype = tap.view.dtype;
                let step = tap.after_steps.checked_sub(1).and_then(|step| plan.steps.get(step));
                let place = (step.map_or(OpId::from_index(0), |step| step.op), observation.tap);
                if !dtype.is_float() || first.as_ref().is_some_and(|(at, _)| *at <= place) {
                    return;
                }
                let elems = observation.bytes.len() / dtype.size_bytes();
                let values = HostTensor::from_bytes([elems], dtype, &observation.bytes);
                if let Some(value) = values.floats().iter().find(|value| !value.is_finite()) {
                    let note = step.and_then(|step| plan.notes.get(step.op)).map(ToString::to_string);
                    let name = note.unwrap_or_else(|| "an input".to_owned());
                    first = Some((place, format!("{name} (rank {}: {value})", observation.rank)));
                }
            })?;
            if let Some((_, text)) = first {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// The kept logits that choices need.
struct WantedLogits {
    /// Places by pool.
    places: Vec<Vec<usize>>,
    /// For each job that needs logits: its pool, and its rows among the places of the pool.
    rows: Vec<(usize, Range<usize>)>,
}

impl WantedLogits {
    fn of(jobs: &[ChoosingRow<'_>], pools: usize) -> Self {
        let mut wanted = Self { places: vec![Vec::new(); pools], rows: Vec::new() };
        for job in jobs.iter().filter(|job| job.needs_logits) {
            let RowOutput::Candidates(CandidateRows { pool, place, .. }) = job.output else { continue };
            let places = &mut wanted.places[pool];
            let first = places.len();
            places.extend(place..=place + job.drafts.len());
            wanted.rows.push((pool, first..places.len()));
        }
        wanted
    }
}

impl ChoosingRow<'_> {
    /// Chooses tokens from the output, or notes that this needs all logits.
    fn choose(&mut self) {
        let mut choice = self.choice.clone().unwrap_or_default();
        let chosen = if self.samples {
            self.sequence.choose(&mut choice, self.output, self.drafts)
        } else {
            self.sequence.check().map(|()| true)
        };
        self.needs_logits = chosen == Ok(false);
        self.choice = chosen.map(|_| choice);
    }

    fn tell(&mut self) {
        if let Ok(choice) = &mut self.choice {
            self.told = self.sequence.tell(choice, self.output);
        }
    }

    fn result(&self) -> RowResult {
        if !self.samples {
            return RowResult::default();
        }
        let choice = self.choice.as_ref().ok().filter(|_| self.told.is_ok());
        match choice {
            Some(choice) => RowResult { tokens: choice.tokens.clone(), stops: choice.finish.is_some() },
            // The request is cancelled, so any token is legal.
            None => RowResult { tokens: smallvec::smallvec![0], stops: true },
        }
    }
}

/// Returns whether the caches may have numbers that are not finite.
const fn is_of_caches(error: &SamplingError) -> bool {
    matches!(error, SamplingError::NotFinite { .. } | SamplingError::NoLargest)
}

fn chosen_ids(plans: &[Option<StepPlan>], jobs: &[ChoosingRow<'_>]) -> StepIds {
    let rows = |plan: &Option<StepPlan>| {
        let run = plan.as_ref().and_then(|plan| plan.decode.as_ref());
        PoolIds { chunk: 0, rows: vec![0; run.map_or(0, |run| run.rows.len())] }
    };
    let mut ids: Vec<PoolIds> = plans.iter().map(rows).collect();
    for job in jobs {
        let last = job.choice.as_ref().ok().and_then(|choice| choice.tokens.last().copied()).unwrap_or(0);
        let pool = &mut ids[job.key.request.pool];
        match job.row {
            ResultRow::Chunk => pool.chunk = last,
            ResultRow::Decode(at) => pool.rows[at as usize] = last,
        }
    }
    StepIds(ids)
}
