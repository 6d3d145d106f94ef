//! `generate`: continues prompts.
//!
//! Input → output: a model's folder and prompts → their continuations on stdout, as they grow if there is one prompt.
//! A summary follows on stderr, or with `--json` everything as one object on stdout. Everything that can be wrong with
//! the folder, the prompts and the options is reported together before a card is given anything.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics, Precision};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::sampling::{Sampler, SamplingOptions};
use ascend_tp::generate::tokenizer::{Stream, Tokenizer};
use ascend_tp::generate::{Generation, Model, Session, SessionOptions, Summary};
use ascend_tp::world::ProcessGroup;
use serde::Serialize;

use super::arguments::GenerateOptions;
use super::cards::{self, Cards};
use super::failure::{Failure, Outcome};
use super::numbers::counted;
use super::progress::Progress;
use super::{interrupt, model, note, print, print_json, processes};

/// Cards of one process that is not told how many.
const DEFAULT_CARDS: usize = 8;

/// Runs the command.
pub(super) fn run(options: &GenerateOptions) -> Result<Outcome, Failure> {
    let group = processes::join()?;
    let done = run_in(options, &group);
    if let Some(text) = done.as_ref().err().and_then(Failure::for_peers) {
        group.fail(&text);
    }
    done
}

fn run_in(options: &GenerateOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    let folder = model::folder(options.model.as_deref())?;
    let cards = cards::open(options.device, group)?;
    let job = processes::agree(group, &format!("{options:?}"), Job::new(options, &folder, &cards, group))?;
    let launching = if options.captured { Launching::Captured } else { Launching::Eager };
    let engine =
        EngineOptions { group: Arc::clone(group), marks: cards.marks, launching, stop, ..EngineOptions::default() };
    let mut session = job.start(&cards, &engine)?;
    let generation = job.generate(&mut session, group.is_first())?;
    if interrupt::is_requested() {
        return Err(Failure::Interrupted);
    }
    cards.check_reports()?;
    if !group.is_first() {
        return Ok(Outcome::Done);
    }
    if options.json {
        print_json(&job.report(&cards, &generation)?)?;
    } else {
        note(&summary(&generation.summary, &cards));
    }
    Ok(Outcome::Done)
}

/// What to do, checked.
#[derive(Debug)]
struct Job<'a> {
    options: &'a GenerateOptions,
    /// Number of cards.
    cards: usize,
    model: Model,
    tokenizer: Tokenizer,
    /// By prompt.
    ids: Vec<Vec<u32>>,
    precision: Precision,
}

impl<'a> Job<'a> {
    /// # Errors
    /// All problems of the options, the folder's files and the prompts.
    fn new(
        options: &'a GenerateOptions,
        folder: &Path,
        cards: &Cards,
        group: &ProcessGroup,
    ) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let wanted = processes::cards(options.cards, group, Some(DEFAULT_CARDS)).unwrap_or_else(|problem| {
            problems.push(problem);
            group.size()
        });
        if group.size() == 1 {
            cards.problem(wanted).into_iter().for_each(|problem| problems.push(problem));
        }
        if let Err(found) = Sampler::new(&sampling(options), 0) {
            problems.append(found);
        }
        let model = Model::open(folder).map_err(|found| problems.append(found)).ok();
        // A tokenizer and prompts can be checked beside wrong weights, if the configuration is right.
        let config = match &model {
            Some(model) => Some(model.config.clone()),
            None => Model::open_config(folder).ok(),
        };
        let encoded = config.and_then(|config| encode(options, folder, &config, &mut problems));
        match (model, encoded) {
            (Some(model), Some((tokenizer, ids))) if problems.is_empty() => {
                let precision = options.dtype.map_or(model.config.dtype.into(), |name| name.of(model.config.dtype));
                Ok(Self { options, cards: wanted, model, tokenizer, ids, precision })
            }
            _ => Err(problems),
        }
    }

    fn start(&self, cards: &Cards, engine: &EngineOptions) -> Result<Session, Failure> {
        let speaks = engine.group.is_first();
        if speaks && self.options.temperature == 0.0 && (self.options.top_k.is_some() || self.options.top_p.is_some()) {
            note("--top-k and --top-p choose nothing at --temperature 0, which takes the likeliest token");
        }
        let options = SessionOptions {
            cards: self.cards,
            precision: self.precision,
            residual: self.options.layout.residual(),
            batch: self.ids.len(),
            longest_prompt: self.ids.iter().map(Vec::len).max().unwrap_or(0),
            max_new_tokens: self.options.max_new_tokens,
            stop_ids: self.stop_ids(),
            sampling: sampling(self.options),
        };
        let progress = Progress::start(speaks);
        let session = Session::start_with(&cards.cann, &self.model, &options, engine, &|piece, total| {
            progress.moved(piece, total);
        });
        progress.finish();
        Ok(session?)
    }

    /// The ids that end a sequence. The original Qwen's files often name none; its tokenizer knows.
    fn stop_ids(&self) -> Vec<u32> {
        match self.model.generation.eos_ids.as_slice() {
            [] => self.tokenizer.id_of("<|endoftext|>").into_iter().collect(),
            named => named.to_vec(),
        }
    }

    /// Generates; prints texts, if this process speaks, unless a report will.
    fn generate(&self, session: &mut Session, speaks: bool) -> Result<Generation, Failure> {
        let prompts = &self.options.prompts;
        let go_on = || if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        if self.options.json || prompts.len() > 1 || !speaks {
            let generation = session.generate(&self.ids, &mut |_, _| go_on())?;
            if !self.options.json && speaks {
                for (sequence, prompt) in prompts.iter().enumerate() {
                    let end = if sequence + 1 < prompts.len() { "\n\n" } else { "\n" };
                    print(&format!("{prompt}{}{end}", self.continuation(sequence, &generation)?))?;
                }
            }
            return Ok(generation);
        }
        print(&prompts[0])?;
        let mut stream = self.tokenizer.stream(&self.ids[0]);
        let mut failed = None;
        let generation = session.generate(&self.ids, &mut |_, token| {
            // Nobody reads on: stop.
            failed = print_next(&mut stream, token).err();
            if failed.is_some() { ControlFlow::Break(()) } else { go_on() }
        })?;
        match failed {
            Some(failure) => Err(failure),
            None => {
                print(&format!("{}\n", stream.finish()?.unwrap_or_default()))?;
                Ok(generation)
            }
        }
    }

    /// The text that follows a prompt.
    fn continuation(&self, sequence: usize, generation: &Generation) -> Result<String, Diagnostics> {
        let mut stream = self.tokenizer.stream(&self.ids[sequence]);
        let mut text = String::new();
        for id in &generation.ids[sequence] {
            text.extend(stream.push(*id)?);
        }
        text.extend(stream.finish()?);
        Ok(text)
    }

    fn report(&self, cards: &Cards, generation: &Generation) -> Result<Report, Diagnostics> {
        let sequence = |index: usize| {
            let prompt = self.options.prompts[index].clone();
            Ok(Sequence {
                text: format!("{prompt}{}", self.continuation(index, generation)?),
                prompt,
                prompt_ids: self.ids[index].clone(),
                ids: generation.ids[index].clone(),
            })
        };
        let summary = &generation.summary;
        Ok(Report {
            model: self.model.dir.display().to_string(),
            device: cards.description.clone(),
            cards: self.cards,
            dtype: self.precision.name(),
            sequences: (0..self.ids.len()).map(sequence).collect::<Result<_, Diagnostics>>()?,
            summary: SummaryReport {
                load_seconds: summary.load_seconds,
                prefill_tokens: summary.prefill_tokens,
                prefill_seconds: summary.prefill_seconds,
                prefill_tokens_per_second: rate(summary.prefill_tokens, summary.prefill_seconds),
                decode_tokens: summary.decode_tokens,
                decode_seconds: summary.decode_seconds,
                decode_tokens_per_second: rate(summary.decode_tokens, summary.decode_seconds),
                collectives_share: summary.collectives_share,
                memory_by_rank: summary.memory.iter().map(|kinds| kinds.iter().copied().collect()).collect(),
            },
        })
    }
}

fn sampling(options: &GenerateOptions) -> SamplingOptions {
    let GenerateOptions { temperature, top_k, top_p, seed, .. } = *options;
    SamplingOptions { temperature, top_k, top_p, seed }
}

/// The tokenizer and the ids of all prompts, if nothing is wrong with them.
fn encode(
    options: &GenerateOptions,
    folder: &Path,
    config: &ModelConfig,
    problems: &mut Diagnostics,
) -> Option<(Tokenizer, Vec<Vec<u32>>)> {
    let tokenizer = Tokenizer::open(folder, config.vocab_size).map_err(|found| problems.append(found)).ok()?;
    let mut prompts = Vec::with_capacity(options.prompts.len());
    for (index, prompt) in options.prompts.iter().enumerate() {
        let place = format!("--prompt {}", index + 1);
        match tokenizer.encode(prompt) {
            Err(found) => found.items().iter().for_each(|problem| {
                problems.push(Diagnostic { place: format!("{place}: {}", problem.place), ..problem.clone() });
            }),
            Ok(ids) => {
                prompt_problem(&place, ids.len(), options.max_new_tokens, config)
                    .into_iter()
                    .for_each(|problem| problems.push(problem));
                prompts.push(ids);
            }
        }
    }
    Some((tokenizer, prompts))
}

/// Why a prompt of so many tokens cannot be continued, if it cannot.
fn prompt_problem(place: &str, tokens: usize, max_new_tokens: usize, config: &ModelConfig) -> Option<Diagnostic> {
    let context = config.max_positions;
    if tokens == 0 {
        return Some(Diagnostic::new(place, "empty").expected("a text of at least one token").found("none"));
    }
    if tokens >= context {
        let problem = Diagnostic::new(place, "leaves no room in the model's context");
        return Some(problem.expected(format!("fewer than {context} tokens")).found(tokens).help("shorten the prompt"));
    }
    (tokens.saturating_add(max_new_tokens) > context).then(|| {
        Diagnostic::new(place, "does not fit the model's context with the new tokens")
            .expected(format!("at most {context} tokens in all"))
            .found(format!("{tokens} and --max-new-tokens {max_new_tokens}"))
            .help(format!("shorten the prompt or take --max-new-tokens {}", context - tokens))
    })
}

fn print_next(stream: &mut Stream<'_>, token: u32) -> Result<(), Failure> {
    match stream.push(token)? {
        Some(text) => print(&text),
        None => Ok(()),
    }
}

/// Tokens a second; none if none were made.
fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// The closing lines.
fn summary(summary: &Summary, cards: &Cards) -> String {
    let line = |name: &str, tokens: usize, seconds: f64| {
        let rate = rate(tokens, seconds).map(|rate| format!(", {rate:.1} tokens/s")).unwrap_or_default();
        format!("{name:<9}{} in {seconds:.2} s{rate}", counted(tokens, "token"))
    };
    let share = summary
        .collectives_share
        .map(|share| format!(", {:.0} % of a step in collectives", 100.0 * share))
        .unwrap_or_default();
    [
        format!("loaded   in {:.2} s on {} of {}", summary.load_seconds, summary.memory.len(), cards.description),
        line("prefill", summary.prefill_tokens, summary.prefill_seconds),
        format!("{}{share}", line("decode", summary.decode_tokens, summary.decode_seconds)),
        format!("memory   {} on the fullest card", fullest(&summary.memory)),
    ]
    .join("\n")
}

/// `23.0 MiB (weights 2.3 MiB, …)` of the card that holds most.
fn fullest(memory: &[Vec<(&'static str, Bytes)>]) -> String {
    let total = |kinds: &Vec<(&'static str, Bytes)>| kinds.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
    let Some(kinds) = memory.iter().max_by_key(|kinds| total(kinds)) else { return Bytes(0).to_string() };
    let parts: Vec<String> = kinds.iter().map(|(kind, bytes)| format!("{kind} {bytes}")).collect();
    format!("{} ({})", total(kinds), parts.join(", "))
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    cards: usize,
    dtype: &'static str,
    sequences: Vec<Sequence>,
    summary: SummaryReport,
}

#[derive(Debug, Serialize)]
struct Sequence {
    prompt: String,
    prompt_ids: Vec<u32>,
    /// New tokens.
    ids: Vec<u32>,
    /// Prompt and continuation.
    text: String,
}

#[derive(Debug, Serialize)]
struct SummaryReport {
    load_seconds: f64,
    prefill_tokens: usize,
    prefill_seconds: f64,
    prefill_tokens_per_second: Option<f64>,
    decode_tokens: usize,
    decode_seconds: f64,
    decode_tokens_per_second: Option<f64>,
    /// Of the time of one decode step.
    collectives_share: Option<f64>,
    /// Bytes by kind.
    memory_by_rank: Vec<std::collections::BTreeMap<&'static str, Bytes>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_must_leave_room_for_new_tokens() {
        let config = ModelConfig { max_positions: 100, ..ModelConfig::preset("qwen-72b").unwrap() };
        let problem = |tokens, new| prompt_problem("--prompt 2", tokens, new, &config).map(|found| found.to_string());
        assert_eq!(problem(36, 64), None);
        let message = problem(37, 64).unwrap();
        assert!(message.contains("at most 100 tokens in all, found 37 and --max-new-tokens 64"), "{message}");
        assert!(message.ends_with("take --max-new-tokens 63"), "{message}");
        let message = problem(100, 1).unwrap();
        assert_eq!(
            message,
            "--prompt 2: leaves no room in the model's context: expected fewer than 100 tokens, found 100; \
             shorten the prompt"
        );
        assert!(problem(0, 1).unwrap().contains("empty"));
        assert!(problem(1, usize::MAX).is_some());
    }

    #[test]
    fn the_fullest_card_is_named_by_kind() {
        let memory =
            [vec![("weights", Bytes(1024)), ("arena", Bytes(0))], vec![("weights", Bytes(2048)), ("arena", Bytes(8))]];
        assert_eq!(fullest(&memory), "2.0 KiB (weights 2.0 KiB, arena 8 B)");
        assert_eq!(rate(0, 1.0), None);
        assert_eq!(rate(30, 2.0), Some(15.0));
    }
}
