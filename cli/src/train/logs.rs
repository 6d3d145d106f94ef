//! Logs of training steps: a line and a progress bar on stderr, lines of JSON, TensorBoard events.
//!
//! Only the first process writes logs.
//!
//! The utilisation (MFU) is (6·P + 12·L·h·s)·T / (seconds · peak). P is the number of weights in
//! all products, including the head but not the embedding table. L is the number of layers, h the
//! width of all queries, s the tokens of a sequence, T the tokens of the step. Masked attention
//! scores count, recomputation does not. The peak is the rate of the cube units of all cards for
//! the type of the products; emulated cards have no peak.
//!
//! `compute_seconds`, `exposed_collective_seconds` and `idle_seconds` add up to the time of a step.
//! `hidden_collective_seconds` is part of the first. They are measured by stream events, as a mean
//! over the ranks of the first process (see [`Times`]). `memory_peak_bytes` is of the fullest card.
//! `aux_loss` and `z_loss` are the losses of routers, without their coefficients. `loss` does not
//! include them. `tokens_per_expert` has a list for each layer with experts.
//! `largest_expert_over_mean` is the load of the fullest expert over the mean of its layer, for the
//! least balanced layer.
//! `slowest_rank` is the rank with the longest compute time relative to the median of the stage in
//! the previous steps, and `slowest_over_median` is that ratio.
//! [`straggler`](ascend_tp::train::metrics::straggler) defines `stragglers`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::train::metrics::straggler::Paces;
use ascend_tp::train::metrics::{self, EventLog, StepLog};
use ascend_tp::train::{StepOutcome, Times};
use serde_json::Value;

use super::super::failure::Failure;
use super::super::progress::ProgressLine;
use super::TrainOptions;

#[derive(Clone, Copy, Debug)]
pub(super) struct RunPace {
    pub(super) steps: usize,
    /// Floating-point operations of the model per token, forward and backward.
    pub(super) flops_per_token: f64,
    /// Peak operations per second of all cards, if known.
    pub(super) peak: Option<f64>,
}

impl RunPace {
    /// Returns the names and values for a step with this number of tokens.
    fn measured(&self, tokens: usize, seconds: f64) -> Vec<(&'static str, f64)> {
        let rate = tokens as f64 / seconds;
        let flops = rate * self.flops_per_token;
        let utilisation = self.peak.map(|peak| ("mfu", flops / peak));
        [("tokens_per_second", rate), ("model_flops_per_second", flops)]
            .into_iter()
            .chain(utilisation)
            .collect()
    }

    /// Formats the speed, such as `812 tokens/s, 12.1 GFLOP/s`, with the utilisation if the peak is
    /// known.
    fn text(&self, tokens: usize, seconds: f64) -> String {
        let rate = tokens as f64 / seconds;
        let flops = rate * self.flops_per_token;
        let utilisation =
            self.peak.map(|peak| format!(", MFU {:.1} %", 100.0 * flops / peak)).unwrap_or_default();
        format!("{rate:.0} tokens/s, {:.1} GFLOP/s{utilisation}", flops / 1e9)
    }
}

pub(super) struct Logs {
    pace: RunPace,
    steps: Option<StepLog>,
    events: Option<EventLog>,
    progress: Option<ProgressLine>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Logs {
    pub(super) fn begin(
        options: &TrainOptions,
        first: usize,
        pace: RunPace,
        speaks: bool,
    ) -> Result<Self, Failure> {
        let progress = speaks.then(|| ProgressLine::training(first, pace.steps, speaks));
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

    /// Writes the numbers of a step, the time breakdown, the peak memory and the slowest
    /// rank.
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
        if let Some(routers) = &step.routers {
            measured.extend(routers.aux_loss.map(|loss| ("aux_loss", loss)));
            measured.extend(routers.z_loss.map(|loss| ("z_loss", loss)));
            measured.push(("largest_expert_over_mean", routers.largest_over_mean()));
        }
        measured.extend((step.loss_scale != 1.0).then_some(("loss_scale", step.loss_scale)));
        if let Some(progress) = &self.progress {
            let speed = self.pace.text(step.labels, seconds);
            let mut losses = format!("loss {:.4}", step.loss);
            if let Some(aux_loss) = step.routers.as_ref().and_then(|routers| routers.aux_loss) {
                losses += &format!("  aux loss {aux_loss:.4}");
            }
            let mut line = format!(
                "step {:>5} of {}  {losses}  norm {:.3}  lr {:.2e}  {speed}",
                step.step, self.pace.steps, step.grad_norm, step.rate
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
            more.extend(
                step.routers
                    .as_ref()
                    .map(|routers| ("tokens_per_expert".to_owned(), Value::from(routers.tokens.clone()))),
            );
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

    pub(super) fn finish(&self) {
        self.progress.iter().for_each(ProgressLine::finish);
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
