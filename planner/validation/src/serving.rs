//! Rows of serving stacks in steady state.
//!
//! B sequences decode together, and each finished sequence is replaced, so one prefill of all B
//! prompts falls into the output time of a sequence. A token takes a decode step at the mean
//! context plus B / output prompts.

use super::forward::{Extras, RowModel, copies, precision};
use super::stack::{Expansion, PassCards, Stack, StackLaunching, StepWork};
use crate::points::{Point, machine};
use crate::workload::{ParallelSplit, Tokens};
use ascend_tp_machine::{Profile, Topology};

pub(super) struct Serving {
    decode: StepWork,
    prompt: StepWork,
    batch: usize,
    copies: usize,
    input: usize,
    output: usize,
    launching: StackLaunching,
    is_offline: bool,
    figure: ServingFigure,
}

#[derive(Clone, Copy)]
enum ServingFigure {
    /// Milliseconds per token at a context.
    Step,
    /// Tokens per second of one sequence at a context.
    StepRate,
    /// Tokens per second of all sequences at a context.
    BatchRate,
    PromptRate,
    /// Microseconds of one decoder layer.
    Layer,
    /// Milliseconds from a single prompt to its first token.
    First,
    /// Milliseconds per token, including all other prompts.
    Token,
    Throughput,
    /// Milliseconds from the prompts to the last token.
    Whole,
}

impl Serving {
    pub(super) fn of(point: &Point, expansion: Expansion) -> Result<Self, &'static str> {
        let note = point.text("note");
        if ["lmdeploy", "HF transformers"].iter().any(|stack| note.contains(stack)) {
            return Err("a stack that a single page has");
        }
        let whole = |name| point.number(name).map(|value| value as usize);
        let metric = point.text("metric");
        // A layer waits mostly for the host.
        let usual = metric.ends_with("one layer").then_some(1);
        let batch = if point.text("batch").starts_with("4 total (2 per instance)") {
            Some(2)
        } else {
            whole("batch")
        };
        let batch = batch.or(usual).ok_or("the batch is not a number")?;
        let input = whole("input_len").or(usual).ok_or("the input's length is not a number")?;
        let output = whole("output_len").unwrap_or(1);
        let model = RowModel::of(point)?;
        let (soc, topology) = machine(point.text("hardware")).ok_or("the machine has no cost model")?;
        // Only an Atlas A2 uses exchanges prepared by the host.
        let expansion = if topology == "atlas-a2" { expansion } else { Expansion::Cores };
        let topology = Topology::preset(topology).ok_or("unknown topology")?;
        let tensor = point.leading("tp").ok_or("the split is not given")?;
        let copies = copies(point, tensor)?;
        let batch = batch.div_ceil(copies);
        let figure = match metric {
            "TPOT" if output == 1 => ServingFigure::Step,
            "decode rate per user" => ServingFigure::StepRate,
            "decode throughput" => ServingFigure::BatchRate,
            "prefill throughput" => ServingFigure::PromptRate,
            "TPOT" | "TPOT mean" => ServingFigure::Token,
            "output throughput" => ServingFigure::Throughput,
            "E2E latency" => ServingFigure::Whole,
            "TTFT" | "TTFT mean" => ServingFigure::First,
            "decode time of one layer" => ServingFigure::Layer,
            _ => return Err("a figure outside this model"),
        };
        let precision = precision(point).ok_or("unknown precision")?;
        let expert = point.inside("tp", "ep ").unwrap_or(1);
        let cards = PassCards { profile: Profile::of(soc), topology, tensor, expert, expansion };
        let split = ParallelSplit { expert, ..ParallelSplit::tensor(tensor) };
        let work = |tokens: Tokens| cards.work(&model.forward(tokens, Extras::default(), split, precision));
        // A steady state has one prompt per pass.
        let prompts = if matches!(figure, ServingFigure::PromptRate) { batch } else { 1 };
        Ok(Self {
            decode: work(Tokens { batch, query: 1, context: input + output / 2 }),
            prompt: work(Tokens { batch: prompts, query: input, context: 0 }),
            batch,
            copies,
            input,
            output,
            launching: StackLaunching::of(note),
            is_offline: note.contains("offline"),
            figure,
        })
    }

    pub(super) fn predict(&self, stack: &Stack) -> f64 {
        let decode_us = if self.is_offline {
            self.decode.offline_us(stack, self.launching)
        } else {
            self.decode.step_us(self.batch, stack, self.launching)
        };
        // Prompt lengths vary, so prompts are not captured.
        let launching =
            if self.launching == StackLaunching::Native { self.launching } else { StackLaunching::Eager };
        let prompt_us = self.prompt.step_us(1, stack, launching);
        let prompts_us = prompt_us * self.batch as f64;
        let output = self.output.max(1) as f64;
        match self.figure {
            ServingFigure::Step => decode_us / 1e3,
            ServingFigure::StepRate => 1e6 / decode_us,
            ServingFigure::BatchRate => 1e6 * self.batch as f64 / decode_us,
            ServingFigure::PromptRate => 1e6 * (self.batch * self.input) as f64 / prompt_us,
            ServingFigure::First => prompt_us / 1e3,
            ServingFigure::Layer => self.decode.layer_us(stack, self.launching),
            ServingFigure::Token => (decode_us + (prompts_us - prompt_us) / output) / 1e3,
            ServingFigure::Throughput => {
                1e6 * (self.copies * self.batch) as f64 / (decode_us + prompts_us / output)
            }
            ServingFigure::Whole => (prompts_us + output * decode_us) / 1e3,
        }
    }
}
