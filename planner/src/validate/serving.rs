//! Rows of serving stacks: time of an output token, throughput and latency in a steady state.
//!
//! A batch of B sequences decodes together; as one ends another begins, so that in the time of one sequence's output all B
//! prompts are computed once. A token's time is that of a decode step at the mean context and B / output prompts.

use super::super::workload::{Dense, Precision, Residual, Split, Tokens};
use super::forward::{dense, machine, precision};
use super::points::Point;
use super::stack::{Cards, Launching, Stack};
use ascend_tp_machine::{Profile, Topology};

/// A serving run with exact lengths.
pub(super) struct Serving {
    cards: Cards,
    model: Dense,
    precision: Precision,
    batch: usize,
    input: usize,
    output: usize,
    launching: Launching,
}

impl Serving {
    /// The run of a row, or why it has none.
    pub(super) fn of(point: &Point) -> Result<Self, &'static str> {
        let note = point.text("note");
        if note.contains("speculative decoding on") || note.contains("EAGLE3") {
            return Err("speculation with an acceptance that is not stated");
        }
        let whole = |name| point.number(name).map(|value| value as usize);
        let batch = if point.text("batch").starts_with("4 total (2 per instance)") { Some(2) } else { whole("batch") };
        let batch = batch.ok_or("the batch is not a number")?;
        let input = whole("input_len").ok_or("the input's length is not a number")?;
        // A time of one token at a context does not depend on where the output ends.
        let is_instant = point.text("output_len").is_empty() && point.text("metric") == "TPOT";
        let output =
            whole("output_len").or_else(|| is_instant.then_some(1)).ok_or("the output's length is not a number")?;
        let model = dense(point.text("model")).ok_or("no workload for this architecture")?;
        let (soc, topology) = machine(point).ok_or("unknown machine")?;
        let topology = Topology::preset(topology).ok_or("unknown topology")?;
        let is_graph = ["mode=graph", "FULL_DECODE_ONLY", "same setup"].iter().any(|mark| note.contains(mark));
        let tensor = point.leading("tp").ok_or("the split is not given")?;
        Ok(Self {
            cards: Cards { profile: Profile::of(soc), topology, tensor, expert: 1 },
            model,
            precision: precision(point).ok_or("unknown precision")?,
            batch,
            input,
            output,
            launching: if is_graph { Launching::Captured } else { Launching::Eager },
        })
    }

    fn step_us(&self, tokens: Tokens, stack: &Stack, launching: Launching) -> f64 {
        let split = Split { tensor: self.cards.tensor, context: 1, expert: 1, residual: Residual::Replicated };
        let sections = self.model.forward(tokens, tokens.batch, split, self.precision);
        self.cards.step_us(&sections, tokens.batch, stack, launching)
    }

    /// The figure of the row, in its unit.
    pub(super) fn predict(&self, point: &Point, stack: &Stack) -> Result<f64, &'static str> {
        let context = self.input + self.output / 2;
        let decode_us = self.step_us(Tokens { batch: self.batch, query: 1, context }, stack, self.launching);
        let prompt = Tokens { batch: 1, query: self.input, context: 0 };
        let prompt_us = self.step_us(prompt, stack, Launching::Eager);
        let prompts_us = prompt_us * self.batch as f64;
        let token_us = decode_us + prompts_us / self.output.max(1) as f64;
        match point.text("metric") {
            "TPOT" if self.output == 1 => Ok(decode_us / 1e3),
            // A token's time does not count the own prompt.
            "TPOT" | "TPOT mean" => Ok((decode_us + (prompts_us - prompt_us) / self.output as f64) / 1e3),
            "output throughput" => Ok(1e6 * self.batch as f64 / token_us),
            "E2E latency" => Ok((prompts_us + self.output as f64 * decode_us) / 1e3),
            _ => Err("the row's figures are several, or none this model gives"),
        }
    }
}
