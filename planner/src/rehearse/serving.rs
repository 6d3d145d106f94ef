//! Rehearses a serving engine under a load of requests.
//!
//! - Input: a [`ServingSetting`]: a model, cards, and the arrivals of requests.
//! - Output: a [`ServingReport`]: times to the first token, times per token, use of the cache.
//! - Invariants: the scheduler is the engine's own, and the engine prepares the same programs.
//!   Times come from the emulator's clock. The same setting gives the same report.
//! - Not here: numbers. All requests have the given lengths.
//!
//! # Reuse of times
//! The time of a program depends on the keys that its attention reads. Runs of one program share
//! one measurement if their keys differ by less than 1 %. Every hundredth shared run is measured
//! too, and the report has the largest difference.

use std::collections::HashMap;

use ascend_tp::base::{Bytes, DType, Diagnostic, Diagnostics};
use ascend_tp::compile::{Deployment, ServingPrograms, ServingShape};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::{NamedTensors, ProgramId};
use ascend_tp::program::HostTensor;
use ascend_tp::program::models::{CacheInputs, CacheRow, Head, SequenceBlocks};
use ascend_tp::serving::{
    Chunk, DecodeRow, Delivery, QueuedRequest, RequestId, RowResult, Scheduler, SchedulerConfig, StepPlan,
    StepResult,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::memory::RehearsalMemory;
use super::run::RUNS_TO_CAPTURE;
use super::setting::Setting;
use super::stage::EmulatedStage;
use crate::error_bar::{ErrorBar, PredictedTime};
use crate::fit_memory::MemoryKind;

/// Ratio of the keys of runs that share a measurement.
const ALIKE: f64 = 1.01;

/// One in this many shared runs is measured.
const CHECKED: u64 = 100;

/// Largest number of requests in a rehearsal.
pub const MOST_REQUESTS: usize = 1_000_000;

/// One request of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// Time of the arrival since the start, in seconds.
    pub arrival_s: f64,
    /// Number of prompt tokens.
    pub input: usize,
    /// Number of generated tokens.
    pub output: usize,
    /// Number of prompt tokens, from the start, that all requests share. Default: 0.
    #[serde(default)]
    pub prefix: usize,
}

/// Creates requests of equal lengths, with exponential times between arrivals (a Poisson process).
#[must_use]
pub fn arrivals_at_rate(per_second: f64, requests: usize, input: usize, output: usize) -> Vec<Arrival> {
    let mut random = SplitMix64::seed_from_u64(1);
    let mut arrival_s = 0.0;
    let next = |_| {
        let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        arrival_s -= (1.0 - uniform).ln() / per_second;
        Arrival { arrival_s, input, output, prefix: 0 }
    };
    (0..requests).map(next).collect()
}

/// Model, cards and load of a rehearsal.
#[derive(Clone, Debug)]
pub struct ServingSetting {
    /// Model and cards. `batch` is the maximum number of running sequences. `input` and `output`
    /// are not used.
    pub setting: Setting,
    /// The requests.
    pub arrivals: Vec<Arrival>,
    /// Blocks of the KV cache, the null block included. Default: as many as fit the cards, and at
    /// most enough for all sequences at full length.
    pub cache_blocks: Option<usize>,
}

/// Quantiles of a time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the requests are at most here.
    pub p50: f64,
    /// 90 % of the requests are at most here.
    pub p90: f64,
    /// 99 % of the requests are at most here.
    pub p99: f64,
}

impl Quantiles {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        // The smallest time that is at least as large as the part of all times.
        let at = |part: f64| {
            let rank = (part * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

/// Times of one request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AnswerTimes {
    /// Time of the arrival since the start, in seconds.
    pub arrival_s: f64,
    /// Time from the arrival to the first token.
    pub ttft_ms: f64,
    /// Time from the arrival to the last token.
    pub latency_ms: f64,
}

/// Parts of the time by kind of step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeShares {
    /// No request was present.
    pub idle: f64,
    /// Chunks of prompts.
    pub prefill: f64,
    /// Decode rows.
    pub decode: f64,
}

/// Results of a rehearsal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServingReport {
    /// Name of the model.
    pub model: String,
    /// Number of cards.
    pub cards: usize,
    /// Name of the card.
    pub card: String,
    /// Element types.
    pub dtype: String,
    /// Number of requests.
    pub requests: usize,
    /// Maximum number of running sequences.
    pub max_num_seqs: usize,
    /// Blocks of the KV cache, without the null block.
    pub cache_blocks: usize,
    /// Blocks of the KV cache of layers with a window, if they have a separate table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_cache_blocks: Option<usize>,
    /// Tokens in a block.
    pub block_tokens: usize,
    /// From the first arrival to the last token, in seconds.
    pub duration_s: f64,
    /// Time from the arrival of a request to its first token.
    pub ttft_ms: Quantiles,
    /// Mean time between the tokens of a request after the first one.
    pub tpot_ms: Quantiles,
    /// Time from the arrival of a request to its last token.
    pub latency_ms: Quantiles,
    /// Times of each request, by arrival.
    pub answers: Vec<AnswerTimes>,
    /// Generated tokens per second.
    pub tokens_per_s: f64,
    /// Prompt tokens per second, including prefix hits.
    pub prompt_tokens_per_s: f64,
    /// Prompt tokens that came from prefix hits.
    pub hit_tokens: u64,
    /// Sequences that lost their blocks and computed their tokens again.
    pub preemptions: u64,
    /// Largest part of the cache that sequences held. If layers with a window have a separate
    /// table, the fuller one of both caches counts.
    pub cache_use_max: f64,
    /// Mean part of the cache that sequences held, by time.
    pub cache_use_mean: f64,
    /// Mean number of decode rows in steps that decode.
    pub rows_mean: f64,
    /// Division of the time.
    pub shares: TimeShares,
    /// What limits the throughput, in words.
    pub bottlenecks: Vec<String>,
    /// Number of steps.
    pub steps: u64,
    /// Runs of programs that the emulated cards executed.
    pub runs_measured: u64,
    /// Runs of programs that took the time of a run with nearly equal keys.
    pub runs_reused: u64,
    /// Largest relative difference between a reused time and its measurement.
    pub reuse_error: f64,
    /// Memory of the fullest card.
    pub memory: RehearsalMemory,
    /// Usual error of such predictions.
    pub error_bar: ErrorBar,
}

impl ServingSetting {
    fn deployment(&self, blocks: Option<usize>) -> Deployment {
        let longest = |of: fn(&Arrival) -> usize| self.arrivals.iter().map(of).max().unwrap_or(1);
        Deployment {
            longest_prompt: longest(|arrival| arrival.input),
            context: longest(|arrival| arrival.input + arrival.output),
            cache_blocks: blocks,
            ..self.setting.deployment()
        }
    }

    fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        if self.arrivals.is_empty() || self.arrivals.len() > MOST_REQUESTS {
            let problem = Diagnostic::new("--requests", "no requests, or too many");
            problems.push(problem.expected(format!("1 to {MOST_REQUESTS}")).found(self.arrivals.len()));
        }
        for (at, arrival) in self.arrivals.iter().enumerate() {
            let place = format!("request {at}");
            if !(arrival.arrival_s.is_finite() && arrival.arrival_s >= 0.0) {
                let problem = Diagnostic::new(&place, "arrives at no time");
                problems.push(problem.expected("arrival_s of at least 0").found(arrival.arrival_s));
            }
            if arrival.input == 0 || arrival.output == 0 {
                problems.push(
                    Diagnostic::new(&place, "has no tokens").expected("input and output of at least 1"),
                );
            }
            if arrival.prefix > arrival.input {
                let problem = Diagnostic::new(&place, "has a prefix that is longer than its prompt");
                problems.push(problem.expected(format!("at most {}", arrival.input)).found(arrival.prefix));
            }
            let (length, most) =
                (arrival.input.saturating_add(arrival.output), self.setting.model.max_positions);
            if length > most {
                let problem = Diagnostic::new(&place, "has more tokens than the model's context");
                problems.push(problem.expected(format!("at most {most}")).found(length));
            }
        }
        if self.setting.stages > 1 {
            let problem = Diagnostic::new("--mesh", "a rehearsal of serving has no pipeline stages");
            problems.push(problem.expected("pp=1").found(format!("pp={}", self.setting.stages)));
        }
        self.setting.site.check(&mut problems);
        problems.into_result(())
    }

    /// Rehearses the load.
    ///
    /// # Errors
    /// The setting has problems, the model does not fit, or the emulated cards refuse a call.
    pub fn run(&self) -> Result<ServingReport, Error> {
        self.check()?;
        let (deployment, programs) = self.compile()?;
        let memory = RehearsalMemory::fullest(&programs.plans, &self.setting.site.profile);
        let stage = EmulatedStage::open(&self.setting.site, programs.plans, self.setting.launching)?;
        let memory = RehearsalMemory { used: stage.used_bytes(), ..memory };
        let mut server = ServingCards::new(stage, programs.shapes, deployment, &self.setting.model)?;
        server.serve(&self.arrivals)?;
        Ok(self.report(&server, memory))
    }

    /// Compiles the programs with a cache that fits the cards.
    fn compile(&self) -> Result<(Deployment, ServingPrograms), Error> {
        let model = &self.setting.model;
        let compile = |blocks| {
            let deployment = self.deployment(blocks);
            Ok::<_, Error>((deployment, deployment.compile_serving(model)?))
        };
        let (deployment, programs) = compile(self.cache_blocks)?;
        let memory = RehearsalMemory::fullest(&programs.plans, &self.setting.site.profile);
        if memory.fits() {
            return Ok((deployment, programs));
        }
        let blocks: usize = deployment.caches(model).iter().map(|size| size.blocks.count).sum();
        let others = memory.used - memory.kinds.bytes(MemoryKind::KvCache).0;
        let offered = Bytes(memory.offered.saturating_sub(others));
        // Each buffer of a block pool is aligned, so one block of margin suffices.
        let fitting = deployment.cache_blocks_within(model, &programs.plans[0], offered).saturating_sub(1);
        let least = deployment.least_cache_blocks(model) + 1;
        if self.cache_blocks.is_some() || fitting < least {
            let place = format!("{} on {} cards", self.setting.name, self.setting.site.cards);
            let problem = Diagnostic::new(place, "does not fit the cards' memory")
                .expected(format!("at most {} per card", Bytes(memory.offered)))
                .found(format!(
                    "{}: {blocks} cache blocks take {}",
                    Bytes(memory.used),
                    memory.kinds.bytes(MemoryKind::KvCache)
                ));
            return Err(Diagnostics::from(problem.help(if fitting < least {
                "use more cards, shorter requests or --dtype w8a8".to_owned()
            } else {
                format!("use --kv-cache-blocks {fitting}")
            }))
            .into());
        }
        compile(Some(fitting))
    }

    fn report(&self, server: &ServingCards<'_>, memory: RehearsalMemory) -> ServingReport {
        let Setting { name, site, batch, precision, .. } = &self.setting;
        let first = self.arrivals.iter().map(|arrival| arrival.arrival_s).fold(f64::INFINITY, f64::min);
        let duration_s = server.now_s - first;
        let answers = server.answers.values();
        let count = |of: fn(&Arrival) -> usize| self.arrivals.iter().map(of).sum::<usize>() as f64;
        let load = server.scheduler.load();
        let part = |seconds: f64| seconds / duration_s.max(f64::MIN_POSITIVE);
        let shares = TimeShares {
            idle: part(server.idle_s),
            prefill: part(server.chunk_s),
            decode: part(server.decode_s),
        };
        let mut times: Vec<AnswerTimes> = answers.clone().map(AnsweredTimes::times).collect();
        times.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
        let quantiles = |of: fn(&AnswerTimes) -> f64| Quantiles::of(times.iter().map(of).collect());
        let tpot = answers.filter(|answer| answer.tokens > 1);
        let report = ServingReport {
            model: name.clone(),
            cards: site.cards,
            card: site.profile.soc.name().to_owned(),
            dtype: precision.to_string(),
            requests: self.arrivals.len(),
            max_num_seqs: *batch,
            cache_blocks: server.capacity[0],
            window_cache_blocks: server.capacity.get(1).copied(),
            block_tokens: server.deployment.block_tokens,
            duration_s,
            ttft_ms: quantiles(|answer| answer.ttft_ms),
            tpot_ms: Quantiles::of(
                tpot.map(|it| 1e3 * (it.last_s - it.first_s) / (it.tokens - 1) as f64).collect(),
            ),
            latency_ms: quantiles(|answer| answer.latency_ms),
            answers: times,
            tokens_per_s: count(|arrival| arrival.output) / duration_s,
            prompt_tokens_per_s: count(|arrival| arrival.input) / duration_s,
            hit_tokens: load.hit_tokens,
            preemptions: load.preemptions,
            cache_use_max: server.most_use,
            cache_use_mean: server.use_seconds / duration_s,
            rows_mean: server.rows as f64 / server.decodes.max(1) as f64,
            shares,
            bottlenecks: Vec::new(),
            steps: server.steps,
            runs_measured: server.times.measured,
            runs_reused: server.times.reused,
            reuse_error: server.times.error,
            memory,
            error_bar: ErrorBar::of(PredictedTime::Serving, site.profile.soc),
        };
        ServingReport { bottlenecks: bottlenecks(&report, server), ..report }
    }
}

/// Returns what limits the throughput, the most important first.
fn bottlenecks(report: &ServingReport, server: &ServingCards<'_>) -> Vec<String> {
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let of_steps = |steps: u64| steps as f64 / server.steps.max(1) as f64;
    let mut found = Vec::new();
    let (rows, blocks) = (of_steps(server.full_steps), of_steps(server.short_steps));
    if rows > 0.1 {
        found.push(format!(
            "requests waited in {} of the steps although blocks were free: {} sequences ran, the maximum",
            percent(rows),
            report.max_num_seqs
        ));
    }
    if blocks > 0.1 {
        found.push(format!("requests waited for cache blocks in {} of the steps", percent(blocks)));
    }
    if report.preemptions > 0 {
        found.push(format!("{} preemptions computed tokens again", report.preemptions));
    }
    if report.shares.idle > 0.1 {
        found.push(format!(
            "the cards were idle in {} of the time: the load is low",
            percent(report.shares.idle)
        ));
    }
    let (name, part) = if report.shares.prefill > report.shares.decode {
        ("prompts", report.shares.prefill)
    } else {
        ("decode steps", report.shares.decode)
    };
    found.push(format!("{name} took {} of the time", percent(part)));
    found
}

/// A request's times, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct AnsweredTimes {
    arrival_s: f64,
    first_s: f64,
    last_s: f64,
    tokens: u32,
}

impl AnsweredTimes {
    fn times(&self) -> AnswerTimes {
        AnswerTimes {
            arrival_s: self.arrival_s,
            ttft_ms: 1e3 * (self.first_s - self.arrival_s),
            latency_ms: 1e3 * (self.last_s - self.arrival_s),
        }
    }
}

/// Measured times of programs.
#[derive(Debug, Default)]
struct ProgramTimes {
    seconds: HashMap<(usize, i64), f64>,
    measured: u64,
    reused: u64,
    error: f64,
}

/// The emulated cards, with a scheduler and a clock.
struct ServingCards<'a> {
    stage: EmulatedStage<'a>,
    shapes: Vec<ServingShape>,
    inputs: Vec<NamedTensors>,
    /// Programs that did not run.
    is_new: Vec<bool>,
    deployment: Deployment,
    scheduler: Scheduler,
    times: ProgramTimes,
    answers: HashMap<RequestId, AnsweredTimes>,
    now_s: f64,
    idle_s: f64,
    chunk_s: f64,
    decode_s: f64,
    use_seconds: f64,
    most_use: f64,
    /// Blocks of each group of caches, without the null block.
    capacity: Vec<usize>,
    steps: u64,
    decodes: u64,
    rows: u64,
    /// Steps with waiting requests and free blocks.
    full_steps: u64,
    /// Steps with waiting requests that need blocks.
    short_steps: u64,
}

impl<'a> ServingCards<'a> {
    fn new(
        stage: EmulatedStage<'a>,
        shapes: Vec<ServingShape>,
        deployment: Deployment,
        model: &ModelConfig,
    ) -> Result<Self, Error> {
        let is_new = vec![true; shapes.len()];
        let inputs = (0..shapes.len()).map(|program| stage.inputs(ProgramId(program))).collect();
        Ok(Self {
            stage,
            shapes,
            inputs,
            is_new,
            scheduler: Scheduler::new(SchedulerConfig::of(&deployment, model))?,
            times: ProgramTimes::default(),
            answers: HashMap::new(),
            now_s: 0.0,
            idle_s: 0.0,
            chunk_s: 0.0,
            decode_s: 0.0,
            use_seconds: 0.0,
            most_use: 0.0,
            capacity: deployment.caches(model).iter().map(|size| size.blocks.count - 1).collect(),
            steps: 0,
            decodes: 0,
            rows: 0,
            full_steps: 0,
            short_steps: 0,
            deployment,
        })
    }

    /// Serves all requests, as the engine does: while a step runs, the next one is planned.
    fn serve(&mut self, arrivals: &[Arrival]) -> Result<(), Error> {
        let mut waiting: Vec<(usize, &Arrival)> = arrivals.iter().enumerate().collect();
        waiting.sort_by(|(_, a), (_, b)| b.arrival_s.total_cmp(&a.arrival_s));
        self.now_s = waiting.last().map_or(0.0, |(_, arrival)| arrival.arrival_s);
        let mut running: Option<StepPlan> = None;
        loop {
            while let Some((number, arrival)) = waiting.pop_if(|(_, arrival)| arrival.arrival_s <= self.now_s)
            {
                self.submit(number, arrival)?;
            }
            let Some(step) = running.take().or_else(|| self.scheduler.plan(&mut |_, _, _| ())) else {
                let Some((_, next)) = waiting.last() else { return Ok(()) };
                self.idle_s += next.arrival_s - self.now_s;
                self.now_s = next.arrival_s;
                continue;
            };
            running = self.scheduler.plan(&mut |_, _, _| ());
            self.count(&step);
            self.run(&step)?;
            self.complete(&step)?;
        }
    }

    fn submit(&mut self, number: usize, arrival: &Arrival) -> Result<(), Error> {
        let shared = 0..arrival.prefix;
        // Tokens of other requests never match.
        let own = |at: usize| (number + 1).wrapping_mul(1 << 20).wrapping_add(at) as u32;
        let prompt = shared.map(|at| at as u32).chain((arrival.prefix..arrival.input).map(own));
        let output = u32::try_from(arrival.output).unwrap_or(u32::MAX);
        let request = QueuedRequest::new(prompt.collect(), output);
        let id = self.scheduler.submit(&request).map_err(Diagnostics::from)?;
        self.answers.insert(id, AnsweredTimes { arrival_s: arrival.arrival_s, ..AnsweredTimes::default() });
        Ok(())
    }

    fn count(&mut self, step: &StepPlan) {
        let load = self.scheduler.load();
        self.steps += 1;
        if let Some(decode) = &step.decode {
            self.decodes += 1;
            self.rows += decode.rows.len() as u64;
        }
        if load.waiting > 0 {
            let is_full = load.running >= self.deployment.batch;
            self.full_steps += u64::from(is_full);
            self.short_steps += u64::from(!is_full);
        }
    }

    fn run(&mut self, step: &StepPlan) -> Result<(), Error> {
        let pools = self.deployment.grid.depth;
        if let Some(chunk) = &step.chunk {
            let Chunk { start, padded, .. } = *chunk;
            let seconds = self.time([pools, padded as usize], std::iter::once(start as usize))?;
            self.chunk_s += seconds;
            self.advance(seconds);
        }
        if let Some(decode) = &step.decode {
            let starts = decode.rows.iter().map(|row: &DecodeRow| row.position as usize);
            let shape = [decode.padded as usize * pools, decode.width as usize];
            let seconds = self.time(shape, starts)?;
            self.decode_s += seconds;
            self.advance(seconds);
        }
        Ok(())
    }

    fn advance(&mut self, seconds: f64) {
        let free = self.scheduler.load().available_blocks;
        let parts = self.capacity.iter().zip(free);
        let used = parts.map(|(all, free)| (all - free) as f64 / *all as f64).fold(0.0, f64::max);
        self.most_use = self.most_use.max(used);
        self.use_seconds += used * seconds;
        self.now_s += seconds;
    }

    /// Returns the time of a program with rows from these positions.
    fn time(
        &mut self,
        [rows, tokens]: [usize; 2],
        starts: impl Iterator<Item = usize> + Clone,
    ) -> Result<f64, Error> {
        let found = ServingShape::find(&self.shapes, [rows, tokens], Head::LastToken, &starts);
        let Some(program) = found else {
            let length = starts.max().unwrap_or(0) + tokens;
            let found = format!("{rows} rows of {tokens} tokens, {length} tokens of cache");
            let problem = Diagnostic::new("rehearsal", "no program of this shape was prepared");
            return Err(Diagnostics::from(problem.found(found)).into());
        };
        let keys: usize = starts.clone().map(|start| start + tokens).sum();
        let bucket = ((keys as f64).ln() / ALIKE.ln()).round() as i64;
        let known = self.times.seconds.get(&(program, bucket)).copied();
        if let Some(seconds) = known {
            self.times.reused += 1;
            if !self.times.reused.is_multiple_of(CHECKED) {
                return Ok(seconds);
            }
        }
        let measured = self.measure(program, starts)?;
        self.times.measured += 1;
        match known {
            Some(seconds) => self.times.error = self.times.error.max((measured / seconds - 1.0).abs()),
            None => drop(self.times.seconds.insert((program, bucket), measured)),
        }
        Ok(measured)
    }

    fn measure(&mut self, program: usize, starts: impl Iterator<Item = usize> + Clone) -> Result<f64, Error> {
        if std::mem::take(&mut self.is_new[program]) {
            // The first run of a program prepares its launches, and a captured program needs two
            // runs before it is replayed. A decode row had one key less before.
            for _ in 0..RUNS_TO_CAPTURE {
                self.run_program(program, starts.clone().map(|start| start.saturating_sub(1)))?;
            }
        }
        self.run_program(program, starts)
    }

    fn run_program(&mut self, program: usize, starts: impl Iterator<Item = usize>) -> Result<f64, Error> {
        let run = self.shapes[program].run;
        let row =
            |tokens| CacheRow { tokens, blocks: SequenceBlocks { first: 0, blocks: std::iter::empty() } };
        let rows = starts.map(|start| row(start..start + run.sequence));
        let rows: Vec<_> = rows.chain(std::iter::repeat_with(|| row(0..0))).take(run.batch).collect();
        // Without numbers, only the lengths count.
        let inputs = &mut self.inputs[program];
        for (names, group) in run.groups() {
            let rows = rows.iter().cloned();
            let CacheInputs { lengths, .. } = CacheInputs::new(group, run.sequence, rows);
            inputs.set(names.lengths, HostTensor::int([run.batch], DType::I64, lengths));
        }
        let times = self.stage.run(ProgramId(program), inputs)?;
        Ok((times.end - times.start) as f64 / 1e9)
    }

    fn complete(&mut self, step: &StepPlan) -> Result<(), Error> {
        let token =
            |samples: bool| RowResult { tokens: samples.then_some(0).into_iter().collect(), stops: false };
        let rows = step.decode.iter().flat_map(|decode| &decode.rows).map(|row| token(row.samples)).collect();
        let chunk = step.chunk.as_ref().map(|chunk| token(chunk.samples));
        let result = StepResult { number: step.number, chunk, rows };
        for Delivery { sequence, tokens, .. } in
            self.scheduler.complete(&result).map_err(Diagnostics::from)?
        {
            let Some(answer) = self.answers.get_mut(&sequence.request) else { continue };
            if tokens > 0 {
                if answer.tokens == 0 {
                    answer.first_s = self.now_s;
                }
                answer.tokens += tokens;
                answer.last_s = self.now_s;
            }
        }
        Ok(())
    }
}
