//! What each step says of itself, and where.
//!
//! Input → output: a step's numbers, and how its time divides → a line on stderr with a bar below
//! it, a line of JSON, TensorBoard events. The first process writes; to the others a log is
//! nothing.
//!
//! The utilisation (MFU) is (6·P + 12·L·h·s)·T / (seconds · peak): P weights of all products, the
//! head among them and the embedding's table not, L layers, h the width of all queries, s tokens of
//! a sequence, T tokens of the step. All scores count, hidden ones too, and nothing that is
//! computed again. The peak is that of the cube units of all cards for the type of the products;
//! emulated cards have none.
//!
//! Of a step's seconds, `compute_seconds`, `exposed_collective_seconds` and `idle_seconds` add up
//! to the whole, and `hidden_collective_seconds` are part of the first; they are measured by events
//! of the cards' streams, a mean over the ranks of the first process ([`Times`] says what counts
//! where). `memory_peak_bytes` are those of the fullest card. `slowest_rank` is the rank that
//! computed longest beside the median of its stage in the steps before, `slowest_over_median` how
//! many times as long, and `stragglers` are those that
//! [`straggler`](ascend_tp::train::metrics::straggler) calls so.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::train::metrics::straggler::Paces;
use ascend_tp::train::metrics::{self, EventLog, StepLog};
use ascend_tp::train::{StepOutcome, Times};
use serde_json::Value;

use super::super::failure::Failure;
use super::super::progress::Progress;
use super::TrainOptions;

/// What the speed of a run is measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPace {
    /// Steps of the whole run.
    pub(super) steps: usize,
    /// Floating-point operations of the model for a token, forward and backward.
    pub(super) flops_per_token: f64,
    /// Those that all cards can do in a second, if that is known.
    pub(super) peak: Option<f64>,
}

impl RunPace {
    /// The names and values of a step of so many tokens.
    fn measured(&self, tokens: usize, seconds: f64) -> Vec<(&'static str, f64)> {
        let rate = tokens as f64 / seconds;
        let flops = rate * self.flops_per_token;
        let utilisation = self.peak.map(|peak| ("mfu", flops / peak));
        [("tokens_per_second", rate), ("model_flops_per_second", flops)]
            .into_iter()
            .chain(utilisation)
            .collect()
    }

    /// `812 tokens/s, 12.1 GFLOP/s`, with the utilisation where there is one.
    fn text(&self, tokens: usize, seconds: f64) -> String {
        let rate = tokens as f64 / seconds;
        let flops = rate * self.flops_per_token;
        let utilisation =
            self.peak.map(|peak| format!(", MFU {:.1} %", 100.0 * flops / peak)).unwrap_or_default();
        format!("{rate:.0} tokens/s, {:.1} GFLOP/s{utilisation}", flops / 1e9)
    }
}

/// Where the numbers of steps go.
pub(super) struct Logs {
    pace: RunPace,
    steps: Option<StepLog>,
    events: Option<EventLog>,
    progress: Option<Progress>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Logs {
    /// The logs of a run that begins at step `first`.
    ///
    /// # Errors
    /// A file cannot be written, or is no log.
    pub(super) fn begin(
        options: &TrainOptions,
        first: usize,
        pace: RunPace,
        speaks: bool,
    ) -> Result<Self, Failure> {
        let progress = speaks.then(|| Progress::training(first, pace.steps, speaks));
        let first = first as u64;
        let steps = options
            .metrics
            .as_ref()
            .filter(|_| speaks)
            .map(|path| StepLog::begin(path, first))
            .transpose()?;
        let events = options.tensorboard.as_ref().filter(|_| speaks);
        let events = events
            .map(|folder| EventLog::begin(folder, first, now()))
            .transpose()
            .map_err(Diagnostics::from)?;
        Ok(Self { pace, steps, events, progress })
    }

    /// Says what a step did, how its time divides, what the fullest card holds, and who was slow
    /// before.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write(
        &mut self,
        step: &StepOutcome,
        times: Times,
        memory_peak: Bytes,
        paces: &Paces,
    ) -> Result<(), Failure> {
        let seconds = times.seconds;
        let failed = |problem: Diagnostic| Failure::Run(Diagnostics::from(problem).into());
        let mut measured = self.pace.measured(step.labels, seconds);
        measured.extend([
            ("compute_seconds", times.compute),
            ("hidden_collective_seconds", times.hidden),
            ("exposed_collective_seconds", times.exposed),
            ("idle_seconds", times.idle()),
            ("memory_peak_bytes", memory_peak.0 as f64),
        ]);
        if let Some(slowest) = paces.slowest() {
            measured.extend([
                ("slowest_rank", slowest.rank as f64),
                ("slowest_over_median", slowest.over_median),
            ]);
        }
        measured.extend((step.loss_scale != 1.0).then_some(("loss_scale", step.loss_scale)));
        if let Some(progress) = &self.progress {
            let speed = self.pace.text(step.labels, seconds);
            let mut line = format!(
                "step {:>5} of {}  loss {:.4}  norm {:.3}  lr {:.2e}  {speed}",
                step.step, self.pace.steps, step.loss, step.grad_norm, step.rate
            );
            if step.is_skipped {
                let of = step
                    .spoiled
                    .as_ref()
                    .map_or_else(|| "a rank of another process".to_owned(), ToString::to_string);
                line += &format!(
                    "  skipped: the gradient of {of} is not finite at a loss scale of {}",
                    step.loss_scale
                );
            }
            progress.step(step.step + 1, &line, format!("loss {:.4}, {speed}", step.loss));
        }
        if let Some(log) = &mut self.steps {
            let mut more: BTreeMap<String, Value> =
                measured.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
            let stragglers: Vec<usize> = paces.stragglers().iter().map(|pace| pace.rank).collect();
            more.extend((!stragglers.is_empty()).then(|| ("stragglers".to_owned(), Value::from(stragglers))));
            let line = metrics::StepRecord {
                step: step.step as u64,
                loss: step.loss,
                grad_norm: step.grad_norm,
                lr: step.rate,
                tokens: step.labels as u64,
                seconds,
                more,
            };
            log.write(&line).map_err(failed)?;
        }
        if let Some(log) = &mut self.events {
            let mut numbers = vec![("loss", step.loss), ("grad_norm", step.grad_norm), ("lr", step.rate)];
            numbers.extend(measured);
            log.write(step.step as u64, now(), &numbers).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes the bar away, so that what is said next stands alone.
    pub(super) fn finish(&self) {
        self.progress.iter().for_each(Progress::finish);
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::config::ModelConfig;
    use ascend_tp_planner::decoder::Decoder;

    use super::*;

    #[test]
    fn the_utilisation_is_by_the_formula_that_is_named() {
        let config = ModelConfig::preset("qwen-72b").unwrap();
        let (h, layers, s) = (config.hidden_size as f64, config.layers as f64, 2048);
        let products =
            layers * h * (4.0 * h + 3.0 * config.intermediate_size as f64) + h * config.vocab_size as f64;
        let flops_per_token = 3.0 * Decoder::of(&config).forward_flops_per_token(s);
        assert!((flops_per_token / (6.0 * products + 12.0 * layers * h * s as f64) - 1.0).abs() < 1e-12);

        let pace = RunPace { steps: 10, flops_per_token, peak: Some(8.0 * 300e12) };
        let numbers: BTreeMap<&str, f64> = pace.measured(4096, 2.0).into_iter().collect();
        assert_eq!(numbers["tokens_per_second"], 2048.0);
        assert!((numbers["mfu"] - 2048.0 * flops_per_token / 2400e12).abs() < 1e-12);
        assert!(pace.text(4096, 2.0).contains(", MFU "), "{}", pace.text(4096, 2.0));
        let emulated = RunPace { peak: None, ..pace };
        assert!(emulated.measured(4096, 2.0).iter().all(|(name, _)| *name != "mfu"));
        assert!(!emulated.text(4096, 2.0).contains("MFU"));
    }
}
