//! The output of `generate --json`: one object, or with `--stream` one line for each token, each
//! end and the summary.

use std::collections::BTreeMap;

use ascend_tp::base::Bytes;
use ascend_tp::generate::{Finish, Generation, LogProbabilities, RequestEvent};
use serde::Serialize;

use super::{Cards, GenerateJob, GenerateSettings, rate};
use crate::failure::Failure;
use crate::print;

#[derive(Debug, Serialize)]
pub(super) struct GenerateReport {
    model: String,
    device: String,
    cards: usize,
    dtype: &'static str,
    sampling: SamplingReport,
    sequences: Vec<SequenceReport>,
    summary: SummaryReport,
}

#[derive(Debug, Serialize)]
struct SamplingReport {
    temperature: f32,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logit_bias: BTreeMap<u32, f32>,
    seed: u64,
    min_tokens: usize,
    max_new_tokens: usize,
}

#[derive(Debug, Serialize)]
struct SequenceReport {
    prompt: String,
    /// Index of the sample among the samples of the prompt, from 0.
    sample: usize,
    prompt_ids: Vec<u32>,
    /// Token ids of the continuation, without the prompt.
    ids: Vec<u32>,
    /// Prompt and continuation; in a chat, only the answer.
    text: String,
    finish: FinishReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log_probabilities: Vec<LogProbabilitiesReport>,
}

#[derive(Debug, Serialize)]
struct FinishReport {
    /// `length`, `stop_id`, `stop_text` or `cancelled`.
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Debug, Serialize)]
struct LogProbabilitiesReport {
    chosen: f32,
    likeliest: Vec<(u32, f32)>,
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
    /// Fraction of the time of a decode step.
    collectives_share: Option<f64>,
    memory_by_rank: Vec<BTreeMap<&'static str, Bytes>>,
}

#[derive(Debug, Serialize)]
pub(super) struct StreamLine {
    request: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_probabilities: Option<LogProbabilitiesReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish: Option<FinishReport>,
}

impl StreamLine {
    pub(super) fn of(event: &RequestEvent<'_>) -> Self {
        match event {
            RequestEvent::Token(token) => Self {
                request: token.request,
                id: Some(token.id),
                text: token.text.to_owned(),
                log_probabilities: token.log_probabilities.map(LogProbabilitiesReport::from),
                finish: None,
            },
            RequestEvent::End { request, text, finish } => Self {
                request: *request,
                id: None,
                text: (*text).to_owned(),
                log_probabilities: None,
                finish: Some((*finish).into()),
            },
        }
    }
}

pub(super) fn summary_line(generation: &Generation) -> impl Serialize {
    BTreeMap::from([("summary", SummaryReport::of(generation))])
}

pub(super) fn print_line(line: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(line).map_err(|error| Failure::Run(error.into()))?;
    print(&format!("{text}\n"))
}

impl From<&LogProbabilities> for LogProbabilitiesReport {
    fn from(found: &LogProbabilities) -> Self {
        Self { chosen: found.chosen, likeliest: found.likeliest.clone() }
    }
}

impl From<&Finish> for FinishReport {
    fn from(finish: &Finish) -> Self {
        let (reason, id, text) = match finish {
            Finish::Length => ("length", None, None),
            Finish::StopId(id) => ("stop_id", Some(*id), None),
            Finish::StopText(text) => ("stop_text", None, Some(text.clone())),
            Finish::Cancelled => ("cancelled", None, None),
        };
        Self { reason, id, text }
    }
}

impl SummaryReport {
    fn of(generation: &Generation) -> Self {
        let summary = &generation.summary;
        Self {
            load_seconds: summary.load_seconds,
            prefill_tokens: summary.prefill_tokens,
            prefill_seconds: summary.prefill_seconds,
            prefill_tokens_per_second: rate(summary.prefill_tokens, summary.prefill_seconds),
            decode_tokens: summary.decode_tokens,
            decode_seconds: summary.decode_seconds,
            decode_tokens_per_second: rate(summary.decode_tokens, summary.decode_seconds),
            collectives_share: summary.collectives_share,
            memory_by_rank: summary.memory.iter().map(|kinds| kinds.iter().copied().collect()).collect(),
        }
    }
}

impl GenerateReport {
    pub(super) fn new(job: &GenerateJob<'_>, cards: &Cards, generation: &Generation) -> Self {
        let sequences = job.request_prompts().zip(&generation.sequences).enumerate();
        let sequences = sequences.map(|(request, (prompt, sequence))| SequenceReport {
            sample: request % job.options.samples,
            text: format!("{}{}", if job.shows_prompts() { prompt.text.as_str() } else { "" }, sequence.text),
            prompt: prompt.text.clone(),
            prompt_ids: sequence.prompt_ids.clone(),
            ids: sequence.ids.clone(),
            finish: (&sequence.finish).into(),
            log_probabilities: sequence.log_probabilities.iter().map(LogProbabilitiesReport::from).collect(),
        });
        let GenerateSettings { sampling, max_new_tokens, .. } = &job.settings;
        Self {
            sampling: SamplingReport {
                temperature: sampling.temperature,
                top_k: sampling.top_k,
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                repetition_penalty: sampling.repetition_penalty,
                presence_penalty: sampling.presence_penalty,
                frequency_penalty: sampling.frequency_penalty,
                logit_bias: sampling.logit_bias.clone(),
                seed: sampling.seed,
                min_tokens: sampling.min_tokens,
                max_new_tokens: *max_new_tokens,
            },
            model: job.model.dir.display().to_string(),
            device: cards.description.clone(),
            cards: job.cards,
            dtype: job.precision.name(),
            sequences: sequences.collect(),
            summary: SummaryReport::of(generation),
        }
    }
}
