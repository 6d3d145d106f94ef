//! `generate`: continues prompts.
//!
//! - Output: continuations on stdout, streamed if there is one prompt, and a summary on stderr.
//!   With `--json`, one object on stdout, or one line per token with `--stream`.
//! - Invariant: all problems of the folder, the prompts and the options are reported together
//!   before a card is used.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{ModelConfig, SamplingDefaults};
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::drafts::Speculation;
use ascend_tp::generate::sampling::SamplingOptions;
use ascend_tp::generate::tokenizer::Tokenizer;
use ascend_tp::generate::{BatchSummary, Generation, Model, Request, RequestEvent, Session};
use ascend_tp::placement::Grid;
use ascend_tp::program::models::Head;
use ascend_tp::program::tree::SumOrder;
use ascend_tp::world::ProcessGroup;

use super::arguments::{GenerateOptions, GenerationConfigChoice};
use super::cards::{self, Cards};
use super::failure::{Failure, Outcome};
use super::numbers::counted;
use super::processes::{self, Inputs};
use super::progress::ProgressLine;
use super::prompts::{self, PromptInput};
use super::site::keep;
use super::{bind, detail, interrupt, model, note, print, print_json, train};

mod report;

const DEFAULT_CARDS: usize = 8;
/// Default limit of new tokens, if neither an option nor `generation_config.json` sets one.
const DEFAULT_NEW_TOKENS: usize = 64;

pub(super) fn run(options: &GenerateOptions) -> Result<Outcome, Failure> {
    processes::run(|group| run_in(options, group))
}

fn run_in(options: &GenerateOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    bind::apply(&options.bind, group, options.cards.unwrap_or(default_cards(options)))?;
    let stop = interrupt::catch(group);
    let folder = model::folder(options.model.as_deref())?;
    let cards = cards::open_for(options.device, group, options.emulated_cards, 0)?;
    cards.require_numbers()?;
    let made = GenerateJob::new(options, &folder, &cards, group);
    let job = processes::agree(group, Inputs::of_model(&folder), made)?;
    let launching = if options.captured { Launching::Captured } else { Launching::Eager };
    let engine = EngineOptions { launching, stop, ..cards.engine_options(group)? };
    let mut session = job.start(&cards, &engine)?;
    let generation = job.generate(&mut session, group.is_first())?;
    if interrupt::is_requested() {
        return Err(Failure::Interrupted);
    }
    cards.check_reports()?;
    if !group.is_first() {
        return Ok(Outcome::Done);
    }
    if options.json && options.stream {
        report::print_line(&report::summary_line(&generation))?;
    } else if options.json {
        print_json(&report::GenerateReport::new(&job, &cards, &generation))?;
    } else {
        note(&summary(&generation.summary, &cards));
    }
    Ok(Outcome::Done)
}

fn default_cards(options: &GenerateOptions) -> usize {
    train::cards_of_mesh(options.mesh.as_deref()).unwrap_or(DEFAULT_CARDS)
}

#[derive(Debug)]
struct GenerateJob<'a> {
    options: &'a GenerateOptions,
    cards: usize,
    stages: usize,
    grid: Grid,
    model: Model,
    prompts: Vec<PromptInput>,
    precision: Precision,
    settings: GenerateSettings,
}

#[derive(Clone, Debug)]
struct GenerateSettings {
    sampling: SamplingOptions,
    max_new_tokens: usize,
    is_by_file: bool,
}

impl GenerateSettings {
    fn new(options: &GenerateOptions, file: &SamplingDefaults) -> Self {
        let GenerateOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            min_tokens,
            seed,
            max_new_tokens,
            ..
        } = *options;
        let chosen = |file: &SamplingDefaults| {
            let base = SamplingOptions::of(file);
            let sampling = SamplingOptions {
                temperature: temperature.unwrap_or(base.temperature),
                top_k: top_k.or(base.top_k),
                top_p: top_p.or(base.top_p),
                min_p: min_p.or(base.min_p),
                repetition_penalty: repetition_penalty.unwrap_or(base.repetition_penalty),
                presence_penalty,
                frequency_penalty,
                logit_bias: options.logit_bias.iter().map(|one| (one.token, one.bias)).collect(),
                min_tokens,
                seed,
            };
            if sampling.temperature == 0.0 && temperature.is_none() {
                // The file's settings for sampling do not apply to greedy decoding.
                SamplingOptions { top_k, top_p, min_p, ..sampling }
            } else {
                sampling
            }
        };
        let by_options = chosen(&SamplingDefaults::default());
        let new_tokens = |file: Option<usize>| max_new_tokens.or(file).unwrap_or(DEFAULT_NEW_TOKENS);
        match options.generation_config {
            GenerationConfigChoice::None => {
                Self { sampling: by_options, max_new_tokens: new_tokens(None), is_by_file: false }
            }
            GenerationConfigChoice::Auto => {
                let (sampling, max_new_tokens) = (chosen(file), new_tokens(file.max_new_tokens));
                let is_by_file = sampling != by_options || max_new_tokens != new_tokens(None);
                Self { sampling, max_new_tokens, is_by_file }
            }
        }
    }

    fn line(&self) -> String {
        let SamplingOptions { temperature, top_k, top_p, min_p, repetition_penalty, .. } = self.sampling;
        let mut parts = vec![format!("temperature {temperature}")];
        parts.extend(top_k.map(|top_k| format!("top_k {top_k}")));
        parts.extend(top_p.map(|top_p| format!("top_p {top_p}")));
        parts.extend(min_p.map(|min_p| format!("min_p {min_p}")));
        if repetition_penalty != 1.0 {
            parts.push(format!("repetition_penalty {repetition_penalty}"));
        }
        parts.push(format!("max_new_tokens {}", self.max_new_tokens));
        format!(
            "sampling: {}, from generation_config.json; options override it, --generation-config none ignores it",
            parts.join(", ")
        )
    }
}

impl<'a> GenerateJob<'a> {
    fn new(
        options: &'a GenerateOptions,
        folder: &Path,
        cards: &Cards,
        group: &ProcessGroup,
    ) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let wanted =
            processes::cards(options.cards, group, Some(default_cards(options))).unwrap_or_else(|problem| {
                problems.push(problem);
                group.size()
            });
        if group.size() == 1 {
            cards.problem(wanted).into_iter().for_each(|problem| problems.push(problem));
        }
        let mesh = train::serving_mesh(options.mesh.as_deref(), wanted);
        let (stages, grid) = mesh.map_err(|problem| problems.push(problem)).unwrap_or((1, Grid::LINE));
        if options.stops.iter().any(String::is_empty) {
            problems.push(Diagnostic::new("--stop", "an empty stop text").expected("a text"));
        }
        let predicts = options.speculate == Some(Speculation::Prediction);
        let model = model::open(folder, group, predicts).and_then(|model| match &options.adapter {
            Some(adapter) => model.with_adapter(adapter),
            None => Ok(model),
        });
        let model = model.map_err(|found| problems.append(found)).ok();
        // With a correct configuration, the tokenizer and the prompts are checked even if the
        // weights are wrong.
        let (config, tokenizer) = match &model {
            Some(model) => (Some(model.config.clone()), Some(model.tokenizer())),
            None => {
                let config = Model::open_config(folder).ok();
                let open = |config: &ModelConfig| Tokenizer::open(folder, config.vocab_size).map(Arc::new);
                let tokenizer = config.as_ref().map(open);
                (config, tokenizer)
            }
        };
        let tokenizer = tokenizer.and_then(|found| found.map_err(|found| problems.append(found)).ok());
        let prompts = prompts::read_all(options, folder, tokenizer.as_deref(), &mut problems);
        let defaults = model.as_ref().map(|model| model.generation.sampling.clone()).unwrap_or_default();
        let mut settings = GenerateSettings::new(options, &defaults);
        settings.sampling.check().unwrap_or_else(|found| problems.append(found));
        if let Some(config) = &config {
            let checked = settings.sampling.check_ids(config.vocab_size);
            checked.unwrap_or_else(|found| problems.append(found));
        }
        if let (None, Some(config)) = (options.max_new_tokens, &config) {
            // The limit of the file does not consider the length of the prompts.
            let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
            let capacity = config.max_positions.saturating_sub(longest).max(1);
            settings.max_new_tokens = settings.max_new_tokens.min(capacity);
        }
        if settings.sampling.min_tokens > settings.max_new_tokens {
            problems.push(
                Diagnostic::new("--min-tokens", "above the maximum number of new tokens")
                    .expected(format!("at most {}", settings.max_new_tokens))
                    .found(settings.sampling.min_tokens)
                    .help("pass a larger --max-new-tokens"),
            );
        }
        for PromptInput { place, ids, .. } in &prompts {
            let config = config.as_ref();
            let problem =
                config.and_then(|config| prompt_problem(place, ids.len(), settings.max_new_tokens, config));
            problem.into_iter().for_each(|problem| problems.push(problem));
        }
        let precision = model.as_ref().and_then(|model| {
            let precision = model::precision(&model.config, options.dtype, options.fp8_as, group);
            keep(precision, &mut problems).map(|precision| precision.with_kv(options.caches.kv()))
        });
        match (model, precision) {
            (Some(model), Some(precision)) if problems.is_empty() => {
                Ok(Self { options, cards: wanted, stages, grid, model, prompts, precision, settings })
            }
            _ => Err(problems),
        }
    }

    fn start(&self, cards: &Cards, engine: &EngineOptions) -> Result<Session, Failure> {
        let speaks = engine.group.is_first();
        if speaks {
            self.report_settings();
        }
        let longest_prompt = self.prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
        let is_greedy = self.requests().iter().all(Request::is_likeliest);
        let deployment = Deployment {
            stages: self.stages,
            grid: self.grid,
            precision: self.precision,
            residual: self.options.layout.residual(),
            experts: self.options.layout.experts(),
            batch: self.prompts.len() * self.options.samples,
            longest_prompt,
            context: longest_prompt + self.settings.max_new_tokens,
            head: if is_greedy { Head::LastToken } else { Head::LastLogits },
            order: if self.options.exact { SumOrder::Tree } else { SumOrder::AsTheyCome },
            ..Deployment::of(&self.model.config, self.cards)
        };
        model::note_unpacked(&self.model.config, &deployment, &engine.group)?;
        if speaks {
            let what = counted(longest_prompt, "token");
            detail(&format!("compiling for {} of {}, prompts of {what}", self.cards, cards.description));
        }
        let progress = ProgressLine::start(speaks);
        let builder = Session::builder(&cards.cann, &self.model).deployment(deployment);
        let builder = match &self.options.speculate {
            Some(speculation) => builder.speculate(speculation.clone()),
            None => builder,
        };
        let session =
            builder.engine(engine.clone()).progress(&|piece, total| progress.moved(piece, total)).start();
        progress.finish();
        Ok(session?)
    }

    fn report_settings(&self) {
        let GenerateOptions { top_k, top_p, min_p, samples, .. } = self.options;
        let SamplingOptions { temperature, .. } = self.settings.sampling;
        if temperature == 0.0 && (top_k.is_some() || top_p.is_some() || min_p.is_some()) {
            note("--top-k, --top-p and --min-p have no effect at --temperature 0 (greedy decoding)");
        }
        if temperature == 0.0 && *samples > 1 {
            note("all samples of a prompt are equal at --temperature 0 (greedy decoding)");
        }
        if self.settings.is_by_file {
            note(&self.settings.line());
        }
    }

    /// Returns the requests of the session: all samples of the first prompt, then all samples of
    /// the next prompt.
    fn requests(&self) -> Vec<Request> {
        let request = |prompt: &PromptInput, sample: u64| Request {
            max_new_tokens: Some(self.settings.max_new_tokens),
            stop_texts: self.options.stops.clone(),
            ignore_eos: self.options.ignore_eos,
            sampling: self.settings.sampling.clone(),
            sample,
            log_probabilities: self.options.logprobs,
            ..Request::new(prompt.ids.as_slice())
        };
        let samples = 0..self.options.samples as u64;
        self.prompts
            .iter()
            .flat_map(|prompt| samples.clone().map(move |sample| request(prompt, sample)))
            .collect()
    }

    fn request_prompts(&self) -> impl Iterator<Item = &PromptInput> {
        self.prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, self.options.samples))
    }

    const fn shows_prompts(&self) -> bool {
        !self.options.chat
    }

    /// Generates all sequences. The first process prints the texts, unless a report follows.
    fn generate(&self, session: &mut Session, speaks: bool) -> Result<Generation, Failure> {
        let requests = self.requests();
        let go_on =
            || if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let is_growing = speaks && (self.options.stream || (!self.options.json && requests.len() == 1));
        if !is_growing {
            let generation = session.generate(&requests, &mut |_| go_on())?;
            if !self.options.json && speaks {
                for (index, (prompt, sequence)) in
                    self.request_prompts().zip(&generation.sequences).enumerate()
                {
                    let end = if index + 1 < requests.len() { "\n\n" } else { "\n" };
                    let shown = if self.shows_prompts() { prompt.text.as_str() } else { "" };
                    print(&format!("{shown}{}{end}", sequence.text))?;
                }
            }
            return Ok(generation);
        }
        if !self.options.stream && self.shows_prompts() {
            print(&self.prompts[0].text)?;
        }
        let mut failed = None;
        let generation = session.generate(&requests, &mut |event| {
            let written = match (self.options.stream, event) {
                (true, event) => report::print_line(&report::StreamLine::of(&event)),
                (false, RequestEvent::Token(token)) if token.text.is_empty() => Ok(()),
                (false, RequestEvent::Token(token)) => print(token.text),
                (false, RequestEvent::End { text, .. }) => print(&format!("{text}\n")),
            };
            // The reader has closed the pipe, so stop.
            failed = failed.take().or(written.err());
            if failed.is_some() { ControlFlow::Break(()) } else { go_on() }
        })?;
        match failed {
            Some(failure) => Err(failure),
            None => Ok(generation),
        }
    }
}

/// Returns the problem of a prompt with this number of tokens, if it cannot be continued.
fn prompt_problem(
    place: &str,
    tokens: usize,
    max_new_tokens: usize,
    config: &ModelConfig,
) -> Option<Diagnostic> {
    let context = config.max_positions;
    if tokens == 0 {
        return Some(Diagnostic::new(place, "empty").expected("a text of at least one token").found("none"));
    }
    if tokens >= context {
        let problem = Diagnostic::new(place, "leaves no space in the model's context");
        return Some(
            problem.expected(format!("fewer than {context} tokens")).found(tokens).help("shorten the prompt"),
        );
    }
    (tokens.saturating_add(max_new_tokens) > context).then(|| {
        Diagnostic::new(place, "does not fit the model's context with the new tokens")
            .expected(format!("at most {context} tokens in all"))
            .found(format!("{tokens} and --max-new-tokens {max_new_tokens}"))
            .help(format!("shorten the prompt or use --max-new-tokens {}", context - tokens))
    })
}

fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

fn summary(summary: &BatchSummary, cards: &Cards) -> String {
    let line = |name: &str, tokens: usize, seconds: f64| {
        let rate = rate(tokens, seconds).map(|rate| format!(", {rate:.1} tokens/s")).unwrap_or_default();
        format!("{name:<9}{} in {seconds:.2} s{rate}", counted(tokens, "token"))
    };
    let share = summary
        .collectives_share
        .map(|share| format!(", {:.0} % of a decode step in collectives", 100.0 * share))
        .unwrap_or_default();
    [
        format!(
            "loaded   in {:.2} s on {} of {}",
            summary.load_seconds,
            summary.memory.len(),
            cards.description
        ),
        line("prefill", summary.prefill_tokens, summary.prefill_seconds),
        format!("{}{share}", line("decode", summary.decode_tokens, summary.decode_seconds)),
        format!("memory   {} on the fullest card", fullest(&summary.memory)),
    ]
    .join("\n")
}

/// Formats the memory of the fullest card, such as `23.0 MiB (weights 2.3 MiB, …)`.
fn fullest(memory: &[Vec<(&'static str, Bytes)>]) -> String {
    let total = |kinds: &Vec<(&'static str, Bytes)>| kinds.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
    let Some(kinds) = memory.iter().max_by_key(|kinds| total(kinds)) else { return Bytes(0).to_string() };
    let parts: Vec<String> = kinds.iter().map(|(kind, bytes)| format!("{kind} {bytes}")).collect();
    format!("{} ({})", total(kinds), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_must_leave_room_for_new_tokens() {
        let config = ModelConfig { max_positions: 100, ..ModelConfig::preset("qwen-72b").unwrap() };
        let problem =
            |tokens, new| prompt_problem("--prompt 2", tokens, new, &config).map(|found| found.to_string());
        assert_eq!(problem(36, 64), None);
        let message = problem(37, 64).unwrap();
        assert!(message.contains("at most 100 tokens in all, found 37 and --max-new-tokens 64"), "{message}");
        assert!(message.ends_with("use --max-new-tokens 63"), "{message}");
        let message = problem(100, 1).unwrap();
        assert_eq!(
            message,
            "--prompt 2: leaves no space in the model's context: expected fewer than 100 tokens, found 100; \
             shorten the prompt"
        );
        assert!(problem(0, 1).unwrap().contains("empty"));
        assert!(problem(1, usize::MAX).is_some());
    }

    #[test]
    fn the_fullest_card_is_named_by_kind() {
        let memory = [
            vec![("weights", Bytes(1024)), ("arena", Bytes(0))],
            vec![("weights", Bytes(2048)), ("arena", Bytes(8))],
        ];
        assert_eq!(fullest(&memory), "2.0 KiB (weights 2.0 KiB, arena 8 B)");
        assert_eq!(rate(0, 1.0), None);
        assert_eq!(rate(30, 2.0), Some(15.0));
    }
}
