//! The serving loop: one prefill, by a program of about the prompts' length, then one run a token, which begins before anyone
//! hears of the token before it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Precision, Shape, Weights};
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{Engine, EngineOptions, FillError, Outputs, Shards, Timed};
use crate::placement::Residual;
use crate::planner::compile::{Programs, Setting};
use crate::program::HostTensor;
use crate::program::models::{Head, RunShape};
use crate::schedule::Plan;
use crate::weights::fill_from;

use super::bucket;
use super::error::Error;
use super::inputs::{Row, inputs};
use super::model::Model;
use super::sampling::{Sampler, SamplingOptions};

/// How a model is to be run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Cards to split over.
    pub cards: usize,
    /// What the model computes in; an element type is one, `DType::BF16.into()`.
    pub precision: Precision,
    /// How the residual stream lies during prefill. A decode step has one token a sequence, so its stream stays whole.
    pub residual: Residual,
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of the longest prompt.
    pub longest_prompt: usize,
    /// Tokens to generate a sequence at most.
    pub max_new_tokens: usize,
    /// Ids that end a sequence; they are not part of it.
    pub stop_ids: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    /// New tokens by sequence.
    pub ids: Vec<Vec<u32>>,
    /// Figures.
    pub summary: Summary,
}

/// Figures of a generation.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Time to split, open cards and load weights, in seconds.
    pub load_seconds: f64,
    /// Tokens of all prompts.
    pub prefill_tokens: usize,
    /// Time of the prefill, in seconds.
    pub prefill_seconds: f64,
    /// Tokens that decode steps made.
    pub decode_tokens: usize,
    /// Time of all decode steps, in seconds.
    pub decode_seconds: f64,
    /// Share of one decode step that rank 0 spent in collectives, waiting for other cards included; none if there was
    /// no decode step.
    pub collectives_share: Option<f64>,
    /// Bytes on each card by kind.
    pub memory: Vec<Vec<(&'static str, Bytes)>>,
}

/// A model on cards, ready to generate.
#[derive(Debug)]
pub struct Session {
    config: ModelConfig,
    options: SessionOptions,
    head: Head,
    engine: Engine,
    cache_length: usize,
    load_seconds: f64,
    /// The programs that read prompts, by the tokens they have room for.
    prompt_programs: BTreeMap<usize, usize>,
}

/// Index of the program that reads the prompts, in what [`SessionOptions::compile`] gives.
pub const PREFILL: usize = 0;

/// Index of the program that makes one token a sequence.
pub const DECODE: usize = 1;

impl SessionOptions {
    /// The plans of both programs, by program and rank. The decode program lays weights and caches out as the prefill
    /// program does.
    ///
    /// # Errors
    /// Options that do not fit the model, all of them.
    pub fn compile(&self, config: &ModelConfig) -> Result<Vec<Vec<Plan>>, Error> {
        check(config, self)?;
        let head = self.head()?;
        let Programs { prefill, decode } = setting(self, head).compile(config)?;
        Ok(vec![prefill, decode])
    }

    /// Positions of the cache of each sequence.
    const fn cache_length(&self) -> usize {
        self.longest_prompt + self.max_new_tokens
    }

    fn head(&self) -> Result<Head, Diagnostics> {
        Ok(if Sampler::new(&self.sampling, 0)?.is_greedy() { Head::LastToken } else { Head::LastLogits })
    }
}

impl Session {
    /// Splits the model over the cards and loads the weights. `progress` is told the bytes of each piece that has reached
    /// a card, and the bytes that the cards of this process will get.
    ///
    /// # Errors
    /// Before any card is opened: options that do not fit the model, all of them. Then the failure of a card.
    pub fn start(
        cann: &Arc<Cann>,
        model: &Model,
        options: &SessionOptions,
        progress: &(dyn Fn(Bytes, Bytes) + Sync),
    ) -> Result<Self, Error> {
        Self::start_with(cann, model, options, &EngineOptions::default(), progress)
    }

    /// As [`Session::start`], with the processes of a world of several; each makes the same session and gets the same
    /// tokens.
    ///
    /// # Errors
    /// As for [`Session::start`]; and the failure of another process.
    pub fn start_with(
        cann: &Arc<Cann>,
        model: &Model,
        options: &SessionOptions,
        engine: &EngineOptions,
        progress: &(dyn Fn(Bytes, Bytes) + Sync),
    ) -> Result<Self, Error> {
        Self::start_filled(cann, &model.config, options, engine, |shards| {
            let total = shards.bytes();
            fill_from(&model.checkpoint, shards, &|piece| progress(piece, total))
        })
    }

    /// As [`Session::start_with`], with weights from wherever `fill` takes them.
    ///
    /// # Errors
    /// As for [`Session::start_with`].
    pub fn start_filled(
        cann: &Arc<Cann>,
        config: &ModelConfig,
        options: &SessionOptions,
        engine: &EngineOptions,
        fill: impl FnOnce(&Shards<'_>) -> Result<(), FillError>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let programs = options.compile(config)?;
        let (cache_length, head) = (options.cache_length(), options.head()?);
        let mut engine = Engine::start_with(cann, programs, engine)?;
        engine.load(fill)?;
        let load_seconds = started.elapsed().as_secs_f64();
        let prompt_programs = BTreeMap::from([(options.longest_prompt, PREFILL)]);
        let (config, options) = (config.clone(), options.clone());
        Ok(Self { config, options, head, engine, cache_length, load_seconds, prompt_programs })
    }

    /// Lengths in tokens for which there is a program that reads prompts, ascending. The longest has one from the start, others
    /// are compiled and prepared when a prompt first needs them, and kept.
    pub fn prompt_lengths(&self) -> impl Iterator<Item = usize> {
        self.prompt_programs.keys().copied()
    }

    /// The program that reads these prompts, and how many tokens it has room for.
    fn prompt_program(&mut self, prompts: &[Vec<u32>]) -> Result<(usize, usize), Error> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let tokens = bucket::rounded_up(longest, self.options.longest_prompt);
        if let Some(program) = self.prompt_programs.get(&tokens) {
            return Ok((*program, tokens));
        }
        let plans = setting(&self.options, self.head).compile_shorter(&self.config, tokens)?;
        let program = self.engine.add_program(plans)?;
        self.prompt_programs.insert(tokens, program);
        Ok((program, tokens))
    }

    /// Continues prompts, one token a sequence and step. `on_token` sees each token, while the cards make the next one;
    /// `Break` ends that sequence with it.
    ///
    /// # Errors
    /// Prompts that do not fit what the session was made for, and the failure of a card.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        self.check_prompts(prompts)?;
        let mut samplers = (0..prompts.len())
            .map(|sequence| Sampler::new(&self.options.sampling, sequence as u64))
            .collect::<Result<Vec<_>, _>>()?;
        let mut found = Generation { ids: vec![Vec::new(); prompts.len()], summary: Summary::default() };
        let mut running = vec![true; prompts.len()];
        let summary = &mut found.summary;
        summary.load_seconds = self.load_seconds;
        summary.prefill_tokens = prompts.iter().map(Vec::len).sum();

        let rows = prompts.iter().map(|ids| Row { ids, start: 0, prompt_length: ids.len() }).collect::<Vec<_>>();
        let started = Instant::now();
        let (program, room) = self.prompt_program(prompts)?;
        summary.memory = (0..self.options.cards).map(|rank| self.engine.memory(rank)).collect();
        let outputs = self.engine.run(program, self.inputs(room, &rows))?;
        summary.prefill_seconds = started.elapsed().as_secs_f64();
        let mut tokens = self.choose(outputs, &mut samplers, &running)?;

        for step in 0..self.options.max_new_tokens {
            let mut new = Vec::with_capacity(tokens.len());
            for (sequence, token) in tokens.iter().copied().enumerate() {
                if running[sequence] && self.options.stop_ids.contains(&token) {
                    running[sequence] = false;
                } else if running[sequence] {
                    found.ids[sequence].push(token);
                    new.push((sequence, token));
                }
            }
            let mut tell = |running: &mut [bool]| {
                for (sequence, token) in new.drain(..) {
                    running[sequence] = on_token(sequence, token).is_continue();
                }
            };
            if !running.contains(&true) || step + 1 == self.options.max_new_tokens {
                tell(&mut running);
                break;
            }
            // A sequence that has ended repeats its last token in place; nobody reads what comes of it.
            let rows: Vec<Row<'_>> = (0..prompts.len())
                .map(|sequence| {
                    let length = prompts[sequence].len();
                    let start = length + found.ids[sequence].len().saturating_sub(1);
                    Row { ids: &tokens[sequence..=sequence], start, prompt_length: length }
                })
                .collect();
            let inputs = self.inputs(1, &rows);
            // The second step is timed: the first may still warm caches.
            let timed = if step == 1 { Timed::Collectives } else { Timed::No };
            let started = Instant::now();
            let run = self.engine.begin(DECODE, inputs, timed)?;
            // Whoever makes text of the tokens does so while the cards work. Should that end the last sequence, this step was
            // for nothing.
            tell(&mut running);
            let outputs = run.finish()?;
            if !running.contains(&true) {
                break;
            }
            let seconds = started.elapsed().as_secs_f64();
            if timed == Timed::Collectives {
                found.summary.collectives_share = Some(self.engine.collectives_us() / 1e6 / seconds);
            }
            found.summary.decode_seconds += seconds;
            found.summary.decode_tokens += running.iter().filter(|running| **running).count();
            tokens = self.choose(outputs, &mut samplers, &running)?;
        }
        Ok(found)
    }

    fn inputs(&self, sequence: usize, rows: &[Row<'_>]) -> crate::exec::Inputs {
        let run = RunShape { batch: self.options.batch, sequence, cache_length: self.cache_length };
        inputs(&self.config, run, self.options.precision.activations, self.head, rows)
    }

    fn check_prompts(&self, prompts: &[Vec<u32>]) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        if prompts.len() != self.options.batch {
            let problem = Diagnostic::new("prompts", "the session was made for another number of sequences");
            problems.push(problem.expected(self.options.batch).found(prompts.len()));
        }
        for (sequence, ids) in prompts.iter().enumerate() {
            let place = format!("prompt {sequence}");
            if ids.is_empty() {
                problems.push(Diagnostic::new(&place, "has no token").help("give at least one word"));
            }
            if ids.len() > self.options.longest_prompt {
                let problem = Diagnostic::new(&place, "is longer than the session was made for");
                problems
                    .push(problem.expected(format!("at most {} tokens", self.options.longest_prompt)).found(ids.len()));
            }
            if let Some(id) = ids.iter().find(|id| **id as usize >= self.config.vocab_size) {
                let problem = Diagnostic::new(&place, "has a token id outside the vocabulary");
                problems.push(problem.expected(format!("below {}", self.config.vocab_size)).found(id));
            }
        }
        problems.into_result(())
    }

    /// The next token of each sequence; 0 for those that have ended.
    fn choose(&self, outputs: Outputs, samplers: &mut [Sampler], running: &[bool]) -> Result<Vec<u32>, Error> {
        let bytes = outputs.into_iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        let batch = samplers.len();
        if self.head == Head::LastToken {
            let tokens = HostTensor::from_bytes([batch], DType::I64, &bytes);
            let token = |token: &i64| u32::try_from(*token).unwrap_or(u32::MAX);
            return Ok(tokens.ints().iter().map(token).collect());
        }
        let shape = Shape::from([batch, self.config.vocab_size]);
        let logits = HostTensor::from_bytes(shape, self.options.precision.activations, &bytes);
        let rows = logits.floats().chunks(self.config.vocab_size);
        let mut tokens = Vec::with_capacity(batch);
        for (sequence, ((row, sampler), running)) in rows.zip(samplers).zip(running).enumerate() {
            let token = if *running { sampler.sample(row) } else { Ok(0) };
            tokens.push(token.map_err(|source| Error::Sampling { sequence, source })?);
        }
        Ok(tokens)
    }
}

fn check(config: &ModelConfig, options: &SessionOptions) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut at_least_one = |name: &str, value: usize| {
        if value == 0 {
            problems.push(Diagnostic::new(name, "nothing to do").expected("at least 1").found(0));
        }
    };
    at_least_one("cards", options.cards);
    at_least_one("batch", options.batch);
    at_least_one("prompt tokens", options.longest_prompt);
    at_least_one("new tokens", options.max_new_tokens);
    let length = options.longest_prompt.saturating_add(options.max_new_tokens);
    if length > config.max_positions {
        let found = format!("{} of the prompt and {} new ones", options.longest_prompt, options.max_new_tokens);
        problems.push(
            Diagnostic::new("prompt", "is longer than the model's context")
                .expected(format!("at most {} tokens", config.max_positions))
                .found(found)
                .help("shorten the prompt or generate fewer tokens"),
        );
    }
    let Precision { activations, weights } = options.precision;
    if !activations.is_float() {
        problems
            .push(Diagnostic::new("dtype", "activations are floats").expected("f32, f16 or bf16").found(activations));
    } else if weights == Weights::W8A8 && activations == DType::F32 {
        let problem = Diagnostic::new("dtype", "cards quantise 16-bit activations only");
        problems.push(problem.expected("f16 or bf16 activations").found(activations));
    }
    problems.into_result(())
}

fn setting(options: &SessionOptions, head: Head) -> Setting {
    Setting {
        cards: options.cards,
        precision: options.precision,
        residual: options.residual,
        batch: options.batch,
        input_tokens: options.longest_prompt,
        output_tokens: options.max_new_tokens,
        head,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ascend_tp_emulator::{Config, Emulator};

    use super::*;

    fn session(cann: &Arc<Cann>, model: &Model, cards: usize, residual: Residual) -> Session {
        let options = SessionOptions {
            cards,
            precision: DType::BF16.into(),
            residual,
            batch: 2,
            longest_prompt: 100,
            max_new_tokens: 4,
            stop_ids: Vec::new(),
            sampling: SamplingOptions { temperature: 1.0, ..SamplingOptions::default() },
        };
        Session::start(cann, model, &options, &|_, _| ()).unwrap()
    }

    fn prompts(tokens: [usize; 2]) -> Vec<Vec<u32>> {
        tokens.map(|tokens| (0..tokens).map(|at| (at * 37 % 4000) as u32 + 3).collect()).to_vec()
    }

    #[test]
    fn a_shorter_program_gives_the_bits_of_the_longest_and_is_made_once() {
        let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")).unwrap();
        let emulator = Emulator::new(Config::with_cards(3)).unwrap();
        let cann = Cann::new(emulator.table()).unwrap();
        for (cards, residual) in [(1, Residual::Replicate), (3, Residual::Replicate), (3, Residual::Seq)] {
            let mut session = session(&cann, &model, cards, residual);
            for (tokens, room, lengths) in [
                ([20, 9], 32, vec![32, 100]),
                ([3, 31], 32, vec![32, 100]),
                ([1, 33], 48, vec![32, 48, 100]),
                ([97, 50], 100, vec![32, 48, 100]),
            ] {
                let prompts = prompts(tokens);
                let rows: Vec<Row<'_>> =
                    prompts.iter().map(|ids| Row { ids, start: 0, prompt_length: ids.len() }).collect();
                let (program, found) = session.prompt_program(&prompts).unwrap();
                assert_eq!((found, session.prompt_lengths().collect::<Vec<_>>()), (room, lengths));
                let run = |session: &mut Session, program, room| {
                    let inputs = session.inputs(room, &rows);
                    session.engine.run(program, inputs).unwrap()
                };
                // The longest leaves more in the caches, which the shorter one must not see.
                let longest = run(&mut session, PREFILL, 100);
                assert_eq!(run(&mut session, program, room), longest, "{tokens:?} on {cards} cards");
                let ids = session.generate(&prompts, &mut |_, _| ControlFlow::Continue(())).unwrap().ids;
                assert_eq!(ids.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
            }
        }
    }
}
