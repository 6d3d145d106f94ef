//! Prefill and decode times of a model's shape with random weights. The time of a token includes
//! everything between two tokens, also sampling.
//!
//! A decode step must read all weights and the KV cache. A prefill must read all weights and
//! compute all products, and the longer of both is its limit. The limits are independent of the
//! number of cards. They are measured again between the samples, because the clock and the memory
//! of a shared host change within seconds.

use std::ops::ControlFlow;
use std::time::Instant;

use ascend_tp_machine::Work;

use super::error::Error;
use super::random;
use super::report::{CellForm, Column, MeasuredTable, PlotAxes, column};
use super::{Bench, Effort, Limits, Samples};
use ascend_tp::base::{Diagnostic, Diagnostics, Precision};
use ascend_tp::call::{Call, View};
use ascend_tp::compile::{Deployment, Programs};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::{Request, RequestEvent, Session};
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::launch::launch;
use ascend_tp::schedule::plan::{Region, Step};

#[derive(Clone, Debug)]
pub(crate) struct GenerationSetting {
    pub(crate) name: String,
    pub(crate) model: ModelConfig,
    /// Numbers of cards to measure, or the size of the world with several processes.
    pub(crate) cards: Vec<usize>,
    pub(crate) precision: Precision,
    /// Residual placement during prefill.
    pub(crate) residual: Residual,
    pub(crate) experts: ExpertShards,
    pub(crate) launching: Launching,
    pub(crate) prompt: usize,
    pub(crate) tokens: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Generated {
    pub(crate) prefill: MeasuredTable,
    pub(crate) decode: MeasuredTable,
}

/// Warm-up tokens. A captured step runs once and is then recorded.
const FIRST_TOKENS: usize = 4;

const DECODE_COLUMNS: [Column; 13] = [
    column("model", "model", CellForm::Text),
    column("dtype", "dtype", CellForm::Text),
    column("cards", "cards", CellForm::Whole),
    column("launching", "launching", CellForm::Text),
    column("context", "context", CellForm::Whole),
    column("tokens", "tokens", CellForm::Whole),
    column("step_ms", "ms per token", CellForm::Decimal),
    column("least_ms", "min ms", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("tokens_s", "tokens/s", CellForm::Decimal),
    column("limit_tokens_s", "limit", CellForm::Decimal),
    column("of_limit", "of limit", CellForm::Percent),
    column("of_first", "of first row", CellForm::Percent),
];

const PREFILL_COLUMNS: [Column; 12] = [
    column("model", "model", CellForm::Text),
    column("dtype", "dtype", CellForm::Text),
    column("cards", "cards", CellForm::Whole),
    column("tokens", "tokens", CellForm::Whole),
    column("time_ms", "time ms", CellForm::Decimal),
    column("least_ms", "min ms", CellForm::Decimal),
    column("spread", "spread", CellForm::Percent),
    column("tokens_s", "tokens/s", CellForm::Decimal),
    column("gflops", "GFLOP/s", CellForm::Decimal),
    column("limit_tokens_s", "limit", CellForm::Decimal),
    column("of_limit", "of limit", CellForm::Percent),
    column("of_first", "of first row", CellForm::Percent),
];

pub(crate) fn run(bench: &Bench, setting: &GenerationSetting) -> Result<Generated, Error> {
    setting.check()?;
    let GenerationSetting { name, prompt, tokens, .. } = setting;
    let dtype = setting.precision.name();
    let title = |what: &str| format!("{what} of {name} with random weights");
    let series: &[&str] = &["model", "dtype"];
    let mut prefill = MeasuredTable::new("prefill", title("Prefill"), &PREFILL_COLUMNS).drawn(PlotAxes {
        x: "cards",
        y: "tokens_s",
        series,
    });
    let mut decode = MeasuredTable::new("decode", title("Decoding"), &DECODE_COLUMNS).drawn(PlotAxes {
        x: "cards",
        y: "tokens_s",
        series,
    });
    let necessary = LeastWork::of(setting)?;
    let launching = setting.launching.name();
    let mut first: Option<(f64, f64)> = None;
    let world = bench.group.size();
    for cards in if world > 1 { vec![world] } else { setting.cards.clone() } {
        let Timed { prompts, steps, limits } = time(bench, setting, cards)?;
        let (prompt_s, step_s) = (prompts.median(), steps.median());
        let (first_prompt_s, first_step_s) = *first.get_or_insert((prompt_s, step_s));
        let products_s = necessary.prompt_flops / limits.flops(setting.precision.activations);
        let limit_s = products_s.max(necessary.prompt_bytes / limits.read_bytes_s);
        prefill.row([
            name.as_str().into(),
            dtype.into(),
            cards.into(),
            (*prompt).into(),
            (prompt_s * 1e3).into(),
            (prompts.min() * 1e3).into(),
            prompts.spread().into(),
            (*prompt as f64 / prompt_s).into(),
            (necessary.prompt_flops / prompt_s / 1e9).into(),
            (*prompt as f64 / limit_s).into(),
            (limit_s / prompt_s).into(),
            (first_prompt_s / prompt_s).into(),
        ]);
        if *tokens <= FIRST_TOKENS {
            continue;
        }
        let limit_s = necessary.step_bytes / limits.read_bytes_s;
        decode.row([
            name.as_str().into(),
            dtype.into(),
            cards.into(),
            launching.into(),
            (prompt + tokens / 2).into(),
            (*tokens).into(),
            (step_s * 1e3).into(),
            (steps.min() * 1e3).into(),
            steps.spread().into(),
            (1.0 / step_s).into(),
            (1.0 / limit_s).into(),
            (limit_s / step_s).into(),
            (first_step_s / step_s).into(),
        ]);
    }
    Ok(Generated { prefill, decode })
}

impl GenerationSetting {
    pub(crate) fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let positions = self.model.max_positions;
        if self.prompt == 0 || self.tokens == 0 || self.prompt.saturating_add(self.tokens) > positions {
            let problem = Diagnostic::new("--prompt", "with --tokens does not fit the model's context");
            let expected = format!("at least 1 of each, at most {positions} in total");
            problems.push(problem.expected(expected).found(format!("{} and {}", self.prompt, self.tokens)));
        }
        problems.into_result(())
    }

    pub(super) fn deployment(&self, cards: usize) -> Deployment {
        Deployment {
            precision: self.precision,
            residual: self.residual,
            experts: self.experts,
            longest_prompt: self.prompt,
            context: self.prompt + self.tokens,
            head: Head::LastToken,
            ..Deployment::of(&self.model, cards)
        }
    }
}

/// Minimum work of any implementation.
struct LeastWork {
    prompt_flops: f64,
    /// Bytes of weights that the prefill reads.
    prompt_bytes: f64,
    /// Bytes read by the middle decode step.
    step_bytes: f64,
}

impl LeastWork {
    /// Uses the plans for one card, which repeat and exchange nothing.
    fn of(setting: &GenerationSetting) -> Result<Self, Error> {
        let GenerationSetting { model, prompt, tokens, .. } = setting;
        let Programs { prefill, decode } = setting.deployment(1).compile(&setting.model)?;
        let (prefill, decode) = (&prefill[0], &decode[0]);
        let is_attention = |call: &&Call| matches!(call, Call::FusedAttention { .. });
        let products: f64 = calls(prefill)
            .filter(|call| !is_attention(call))
            .map(|call| Work::of(&launch(call)).flops())
            .sum();
        // A token attends to itself and earlier tokens. Scores and values need one product each.
        let pairs = prompt * (prompt + 1) / 2;
        let attention = 4 * pairs * model.query_width() * model.layers;
        let positions = prompt + tokens / 2;
        let cached =
            2 * positions * model.kv_width() * setting.precision.activations.size_bytes() * model.layers;
        Ok(Self {
            prompt_flops: products + attention as f64,
            prompt_bytes: weight_bytes(prefill) as f64,
            step_bytes: (weight_bytes(decode) + cached) as f64,
        })
    }
}

fn calls(plan: &Plan) -> impl Iterator<Item = &Call> {
    plan.steps.iter().filter_map(Step::call)
}

/// Returns the bytes of weights that a plan reads once. Embeddings count only the rows that are
/// read.
fn weight_bytes(plan: &Plan) -> usize {
    let is_weight = |view: &&View| plan.buffers[view.buffer].region == Region::Weights;
    let (mut seen, mut bytes) = (std::collections::BTreeSet::new(), 0);
    for call in calls(plan) {
        if let Call::Embedding { out, .. } = call {
            bytes += out.len_bytes();
            continue;
        }
        for view in call.reads().into_iter().filter(is_weight) {
            if seen.insert((view.buffer, view.offset)) {
                bytes += view.len_bytes();
            }
        }
    }
    bytes
}

/// Seconds of prefills and decode steps.
struct Timed {
    prompts: Samples,
    steps: Samples,
    /// Measured between the prefills.
    limits: Limits,
}

fn time(bench: &Bench, setting: &GenerationSetting, cards: usize) -> Result<Timed, Error> {
    let engine = EngineOptions {
        group: std::sync::Arc::clone(&bench.group),
        launching: setting.launching,
        ..EngineOptions::default()
    };
    let options = setting.deployment(cards);
    let mut session = Session::start_filled(&bench.cann, &setting.model, &options, &engine, random::weights)?;
    let ids: Vec<u32> = (0..setting.prompt).map(|at| (at * 7919 % setting.model.vocab_size) as u32).collect();
    let requests = [Request::new(ids)];
    let (mut prefill, mut limits) = (Vec::new(), Vec::new());
    // The first prefill is a warm-up.
    for _ in 0..=repeats(bench.effort) {
        // Without this, the prompt would be a prefix hit.
        session.clear_caches()?;
        let generation = session.generate(&requests, &mut |_| ControlFlow::Break(()))?;
        prefill.push(generation.summary.prefill_seconds);
        if bench.effort == Effort::Full {
            limits.push(bench.limits_now());
        }
    }
    prefill.remove(0);
    let (mut seconds, mut last) = (Vec::new(), None);
    session.generate(&requests, &mut |event| {
        let now = Instant::now();
        if matches!(event, RequestEvent::Token(_))
            && let Some(last) = last.replace(now)
        {
            seconds.push(now.duration_since(last).as_secs_f64());
        }
        ControlFlow::Continue(())
    })?;
    limits.push(bench.limits_now());
    let steps = Samples::new(seconds.split_off(seconds.len().min(FIRST_TOKENS - 1)));
    Ok(Timed { prompts: Samples::new(prefill), steps, limits: Limits::median_of(&limits) })
}

const fn repeats(effort: Effort) -> usize {
    match effort {
        Effort::Quick => 3,
        Effort::Full => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascend_tp::base::DType;

    fn setting(prompt: usize, tokens: usize) -> GenerationSetting {
        GenerationSetting {
            name: "a shape".to_owned(),
            model: ModelConfig::preset("qwen2.5-0.5b").unwrap(),
            cards: vec![1],
            precision: DType::BF16.into(),
            residual: Residual::Replicate,
            experts: ExpertShards::Whole,
            launching: Launching::Eager,
            prompt,
            tokens,
        }
    }

    #[test]
    fn a_step_reads_every_weight_once_and_the_cache() {
        let necessary = LeastWork::of(&setting(1, 2)).unwrap();
        // 494.0 million parameters of two bytes, 12 KiB of cache per position, one row of the
        // shared table.
        let expected = 494_032_768.0 * 2.0 + 2.0 * 12_288.0 + 896.0 * 2.0;
        assert_eq!(necessary.step_bytes, expected);
    }

    #[test]
    fn a_prompt_multiplies_by_every_weight_but_the_table_of_the_last_token() {
        let necessary = LeastWork::of(&setting(512, 2)).unwrap();
        let linear = 24.0 * (896.0 * (896.0 * 2.0 + 128.0 * 2.0) + 3.0 * 896.0 * 4864.0);
        let attention = 24.0 * 4.0 * 512.0 * 513.0 / 2.0 * 896.0;
        let head = 2.0 * 151_936.0 * 896.0;
        assert_eq!(necessary.prompt_flops, 2.0 * 512.0 * linear + attention + head);
    }

    #[test]
    fn lengths_must_fit_the_context() {
        assert!(setting(512, 64).check().is_ok());
        let message = setting(32_700, 69).check().unwrap_err().to_string();
        assert!(message.starts_with("--prompt: with --tokens does not fit"), "{message}");
    }
}
