//! Rows of serving stacks: time of an output token, throughput and latency in a steady state.
//!
//! A batch of B sequences decodes together; as one ends another begins, so that in the time of one sequence's output all B
//! prompts are computed once. A token's time is that of a decode step at the mean context and B / output prompts.

use super::super::workload::{ParallelSplit, Tokens};
use super::forward::{Decoder, copies, precision};
use super::stack::{Cards, Expansion, Stack, StackLaunching, StepWork};
use crate::points::{Point, machine};
use ascend_tp_machine::{Profile, Topology};

/// A serving run with exact lengths.
pub(super) struct Serving {
    decode: StepWork,
    prompt: StepWork,
    /// Sequences of a copy of the model.
    batch: usize,
    copies: usize,
    output: usize,
    launching: StackLaunching,
    figure: Figure,
}

/// What a row's figure is.
#[derive(Clone, Copy)]
enum Figure {
    /// Milliseconds of one token at a context.
    Step,
    /// Tokens a second of one sequence at a context.
    StepRate,
    /// Milliseconds of a token, all prompts but the own counted.
    Token,
    /// Tokens a second.
    Throughput,
    /// Milliseconds from the prompts to the last token.
    Whole,
}

impl Serving {
    /// The run of a row, or why it has none.
    pub(super) fn of(point: &Point, expansion: Expansion) -> Result<Self, &'static str> {
        let note = point.text("note");
        if point.text("quality") == "ci-baseline" {
            return Err("a threshold of continuous integration, not a measurement");
        }
        if ["speculative decoding on", "speculative drafting", "EAGLE3"].iter().any(|words| note.contains(words)) {
            return Err("speculation with an acceptance that is not stated");
        }
        if note.contains("lmdeploy") {
            return Err("a stack that no other row has");
        }
        let whole = |name| point.number(name).map(|value| value as usize);
        let batch = if point.text("batch").starts_with("4 total (2 per instance)") { Some(2) } else { whole("batch") };
        let batch = batch.ok_or("the batch is not a number")?;
        let input = whole("input_len").ok_or("the input's length is not a number")?;
        // A time of one token at a context does not depend on where the output ends.
        let is_instant =
            point.text("output_len").is_empty() && matches!(point.text("metric"), "TPOT" | "decode rate per user");
        let output =
            whole("output_len").or_else(|| is_instant.then_some(1)).ok_or("the output's length is not a number")?;
        let Decoder::Dense(model) = Decoder::of(point)? else {
            return Err("what a stack takes to launch a layer of experts is not known");
        };
        let (soc, topology) = machine(point.text("hardware")).ok_or("unknown machine")?;
        // The host lays out exchanges on an Atlas A2 alone.
        let expansion = if topology == "atlas-a2" { expansion } else { Expansion::Cores };
        let topology = Topology::preset(topology).ok_or("unknown topology")?;
        let tensor = point.leading("tp").ok_or("the split is not given")?;
        let copies = copies(point, tensor)?;
        let batch = batch.div_ceil(copies);
        let figure = match point.text("metric") {
            "TPOT" if output == 1 => Figure::Step,
            "decode rate per user" => Figure::StepRate,
            "decode throughput" if batch == 1 => Figure::StepRate,
            "TPOT" | "TPOT mean" => Figure::Token,
            "output throughput" => Figure::Throughput,
            "E2E latency" => Figure::Whole,
            _ => return Err("the row's figures are several, or none this model gives"),
        };
        let precision = precision(point).ok_or("unknown precision")?;
        let cards = Cards { profile: Profile::of(soc), topology, tensor, expert: 1, expansion };
        let split = ParallelSplit::tensor(tensor);
        let work = |tokens: Tokens| cards.work(&model.forward(tokens, tokens.batch, split, precision));
        Ok(Self {
            decode: work(Tokens { batch, query: 1, context: input + output / 2 }),
            prompt: work(Tokens { batch: 1, query: input, context: 0 }),
            batch,
            copies,
            output,
            launching: StackLaunching::of(note),
            figure,
        })
    }

    /// The figure of the row, in its unit.
    pub(super) fn predict(&self, stack: &Stack) -> f64 {
        let decode_us = self.decode.step_us(self.batch, stack, self.launching);
        let prompt_us = self.prompt.step_us(1, stack, StackLaunching::Eager);
        let prompts_us = prompt_us * self.batch as f64;
        let output = self.output.max(1) as f64;
        match self.figure {
            Figure::Step => decode_us / 1e3,
            Figure::StepRate => 1e6 / decode_us,
            Figure::Token => (decode_us + (prompts_us - prompt_us) / output) / 1e3,
            Figure::Throughput => 1e6 * (self.copies * self.batch) as f64 / (decode_us + prompts_us / output),
            Figure::Whole => (prompts_us + output * decode_us) / 1e3,
        }
    }
}
