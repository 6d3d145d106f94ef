//! Options of `bench`.

use std::path::PathBuf;

use crate::children::BesideOptions;
use crate::measure::collectives::{ExchangeSetting, MeasuredCollective};
use crate::measure::{compile, exact, generation, parameter_server, scaling, train};
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::exec::Launching;
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::world::ProcessGroup;
use clap::{Args, Subcommand, ValueEnum};

use super::page;
use crate::bind::Bind;
use crate::values::{DeviceKind, LayoutOptions, PrecisionName, planned_cards, positive, started_processes};
use crate::{files, model};

pub(crate) const EXAMPLES: &str = "\
Limits are measured in the same run, so each ratio is valid for this machine.

Examples:
  ascend-tp bench all --quick
  ascend-tp bench all --report docs/PERFORMANCE.md
  ascend-tp bench peers --report PEERS.md
  ascend-tp bench serve --http
  ascend-tp bench train
  ascend-tp bench train --baseline ps
  ascend-tp bench exact
  ascend-tp bench limits
  ascend-tp bench collectives --op all_reduce --dtype f32,f16 --ranks 2,4,8 \\
      --plot all_reduce.svg
  ascend-tp bench collectives --op all_reduce --processes 8
  ascend-tp bench ops --model qwen-72b --cards 8
  ascend-tp bench decode --model qwen2.5-0.5b --cards 1,2,4,8 --captured
  ascend-tp bench host --model qwen-72b --cards 8
  ascend-tp bench prefill --prompt 512 --json
  mpirun -np 8 ascend-tp bench collectives --json";

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(super) part: BenchPart,
    /// Measure fewer sizes, each for a shorter time
    #[arg(long, global = true)]
    pub(super) quick: bool,
    /// Print the tables as JSON
    #[arg(long, global = true, help_heading = "Output")]
    pub(super) json: bool,
    /// Draw the first table that can be plotted as SVG
    #[arg(long, global = true, value_name = "FILE", help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,
    /// Write a Markdown page, with drawings in a folder next to it
    #[arg(long, global = true, value_name = "FILE", help_heading = "Output")]
    pub(super) report: Option<PathBuf>,
    /// Device to run on; auto uses the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto", global = true, help_heading = "Execution")]
    pub(super) device: DeviceKind,
    /// Processors to bind to: auto (five near each NPU), none, or a list such as 0-4,48-52
    #[arg(long, default_value = "none", value_name = "CPUS", global = true, help_heading = "Execution")]
    pub(super) bind: Bind,
}

#[derive(Debug, Subcommand)]
pub(super) enum BenchPart {
    /// Limits of this machine: read, copy and triad bandwidth over all cores, peak rates in f32 and
    /// bf16
    Limits,
    /// Collectives between ranks: time, algorithm and bus bandwidth, with checked results
    Collectives(CollectivesOptions),
    /// Each operator of a model's plans, at its shapes
    Ops(OpsOptions),
    /// Decoding with random weights, token by token
    Decode(DecodeOptions),
    /// Prefill with random weights
    Prefill(PrefillOptions),
    /// Overhead of the runtime: the executor runs a decode plan with empty kernels
    Host(HostOptions),
    /// Compile time for different models, numbers of cards and layers
    Compile(CompileOptions),
    /// Loading of a checkpoint with random weights from the page cache to the cards
    Load(LoadOptions),
    /// Training steps of a model with 8 million parameters, alternating with torch if it is
    /// installed
    Train(BenchTrainOptions),
    /// Training steps with a fixed order of sums, compared with the usual order
    Exact,
    /// Growth of cost with cards, hidden size, layers, sequence length and message size
    Scaling,
    /// All measurements for which the project has a target value
    All,
    /// Other programs with the same tasks on this machine: transformers, llama.cpp, Open MPI and
    /// gloo, if they are installed
    Peers,
    /// Many requests at once, alternating with llama.cpp if it is installed
    Serve(BenchServeOptions),
    /// Run another program until the parent of this process ends
    #[command(hide = true)]
    Beside(BesideOptions),
}

const OPS: &str = "Which: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all [default: all]";

#[derive(Debug, Args)]
pub(super) struct CollectivesOptions {
    #[arg(long, value_delimiter = ',', value_name = "OP,…", help = OPS)]
    op: Vec<MeasuredCollective>,
    /// Element types: f32, f16, bf16
    #[arg(long, value_delimiter = ',', default_value = "f32", value_name = "TYPE,…")]
    dtype: Vec<DType>,
    /// Numbers of ranks in this process; a launcher starts one rank per process [default: 8]
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…")]
    ranks: Vec<usize>,
    /// Number of processes to start, with one rank each
    #[arg(long, value_parser = started_processes, value_name = "N", conflicts_with = "ranks")]
    processes: Option<usize>,
    /// Size of the smallest tensor in bytes; K, M and G are binary units
    #[arg(long, value_parser = bytes, default_value = "1K", value_name = "BYTES")]
    min_bytes: usize,
    /// Size of the largest tensor in bytes
    #[arg(long, value_parser = bytes, default_value = "64M", value_name = "BYTES")]
    max_bytes: usize,
    /// Ratio of consecutive sizes [default: 4, or 16 with --quick]
    #[arg(long, value_parser = step_factor, value_name = "N")]
    step_factor: Option<usize>,
    /// Number of exchanges per sample [default: more for small sizes]
    #[arg(long, value_parser = positive, value_name = "N")]
    iterations: Option<usize>,
    /// Number of exchanges before the first sample
    #[arg(long, default_value = "5", value_name = "N")]
    warmup: usize,
}

#[derive(Debug, Args)]
pub(super) struct ShapeOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    #[arg(long, default_value = "qwen2.5-0.5b", value_name = "DIR|NAME", help_heading = "Model")]
    model: String,
    /// Numbers of cards to measure [default: 1,8, or the number of processes under a launcher]
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = planned_cards,
        value_name = "N,…",
        help_heading = "Parallelism"
    )]
    cards: Vec<usize>,
    /// Element type of weights and activations, or w8a8 [default: the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    dtype: Option<PrecisionName>,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Capture each step as a graph on the card and replay it
    #[arg(long, help_heading = "Execution")]
    captured: bool,
}

#[derive(Debug, Args)]
pub(super) struct BenchTrainOptions {
    /// Compare the step and --exact with another way to sum gradients: ps, a parameter server
    #[arg(long, value_enum, value_name = "WAY")]
    pub(super) baseline: Option<Baseline>,
}

#[derive(Debug, Args)]
pub(super) struct BenchServeOptions {
    /// Measure `ascend-tp serve` and llama.cpp's llama-server over HTTP
    #[arg(long)]
    pub(super) http: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Baseline {
    /// A parameter server: one card computes each sum
    Ps,
}

#[derive(Debug, Args)]
pub(super) struct OpsOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    #[arg(long, default_value = "qwen2.5-0.5b", value_name = "DIR|NAME", help_heading = "Model")]
    model: String,
    /// Number of cards of the model; only operators of the first card are timed
    #[arg(
        long,
        default_value = "1",
        value_parser = planned_cards,
        value_name = "N",
        help_heading = "Parallelism"
    )]
    cards: usize,
    /// Element type of weights and activations, or w8a8 [default: the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    dtype: Option<PrecisionName>,
    /// Number of tokens in the prompt
    #[arg(long, default_value = "512", value_parser = positive, value_name = "N", help_heading = "Workload")]
    prompt: usize,
    /// Also measure matrix products of common sizes
    #[arg(long, help_heading = "Workload")]
    pub(super) products: bool,
}

impl OpsOptions {
    pub(super) fn setting(&self) -> Result<generation::GenerationSetting, Diagnostics> {
        setting(&self.model, &[self.cards], self.dtype, self.prompt, TOKENS)
    }
}

/// Number of decoded tokens. The operators of the middle token are timed.
const TOKENS: usize = 32;

#[derive(Debug, Args)]
pub(super) struct DecodeOptions {
    #[command(flatten)]
    shape: ShapeOptions,
    /// Number of tokens in the prompt
    #[arg(long, default_value = "32", value_parser = positive, value_name = "N", help_heading = "Workload")]
    prompt: usize,
    /// Number of tokens to generate
    #[arg(long, default_value = "32", value_parser = positive, value_name = "N", help_heading = "Workload")]
    tokens: usize,
}

#[derive(Debug, Args)]
pub(super) struct PrefillOptions {
    #[command(flatten)]
    shape: ShapeOptions,
    /// Number of tokens in the prompt
    #[arg(long, default_value = "512", value_parser = positive, value_name = "N", help_heading = "Workload")]
    prompt: usize,
}

#[derive(Debug, Args)]
pub(super) struct HostOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    #[arg(long, default_value = "qwen-72b", value_name = "DIR|NAME")]
    model: String,
    /// Numbers of ranks to measure, all in this process
    #[arg(long, value_delimiter = ',', default_value = "8", value_parser = planned_cards, value_name = "N,…")]
    cards: Vec<usize>,
}

impl HostOptions {
    pub(super) fn setting(&self) -> Result<generation::GenerationSetting, Diagnostics> {
        let (_, config) = model::config(&self.model)?;
        let context = CONTEXT.min(config.max_positions.saturating_sub(TOKENS));
        setting(&self.model, &self.cards, None, context, TOKENS)
    }
}

/// Number of tokens before the measured token, if the model's context allows.
const CONTEXT: usize = 512;

#[derive(Debug, Args)]
pub(super) struct CompileOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    /// other presets on 8 cards]
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Numbers of cards of the model
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "8",
        value_parser = planned_cards,
        requires = "model",
        value_name = "N,…"
    )]
    cards: Vec<usize>,
}

impl CompileOptions {
    pub(super) fn settings(&self) -> Result<Vec<compile::CompileSetting>, Diagnostics> {
        let Some(named) = &self.model else { return Ok(compile::CompileSetting::usual()) };
        let (name, model) = model::config(named)?;
        let setting = |cards: &usize| compile::CompileSetting {
            name: name.clone(),
            model: model.clone(),
            cards: *cards,
        };
        Ok(self.cards.iter().map(setting).collect())
    }
}

#[derive(Debug, Args)]
pub(super) struct LoadOptions {
    #[command(flatten)]
    shape: ShapeOptions,
}

impl LoadOptions {
    pub(super) fn setting(&self) -> Result<generation::GenerationSetting, Diagnostics> {
        self.shape.setting(1, 1)
    }
}

impl ShapeOptions {
    fn setting(&self, prompt: usize, tokens: usize) -> Result<generation::GenerationSetting, Diagnostics> {
        let cards = if self.cards.is_empty() { &DEFAULT_CARDS } else { self.cards.as_slice() };
        Ok(generation::GenerationSetting {
            residual: self.layout.residual(),
            experts: self.layout.experts(),
            launching: if self.captured { Launching::Captured } else { Launching::Eager },
            ..setting(&self.model, cards, self.dtype, prompt, tokens)?
        })
    }
}

fn setting(
    named: &str,
    cards: &[usize],
    dtype: Option<PrecisionName>,
    prompt: usize,
    tokens: usize,
) -> Result<generation::GenerationSetting, Diagnostics> {
    let (name, model) = model::config(named)?;
    let setting = generation::GenerationSetting {
        name,
        cards: cards.to_vec(),
        precision: dtype.map_or(model.dtype.into(), |name| name.of(model.dtype)),
        residual: Residual::Replicate,
        experts: ExpertShards::Whole,
        launching: Launching::Eager,
        prompt,
        tokens,
        model,
    };
    setting.check()?;
    Ok(setting)
}

impl DecodeOptions {
    pub(super) fn setting(&self) -> Result<generation::GenerationSetting, Diagnostics> {
        self.shape.setting(self.prompt, self.tokens)
    }
}

impl PrefillOptions {
    pub(super) fn setting(&self) -> Result<generation::GenerationSetting, Diagnostics> {
        self.shape.setting(self.prompt, 1)
    }
}

/// Default numbers of cards: one card, and a full server.
const DEFAULT_CARDS: [usize; 2] = [1, 8];

const DEFAULT_RANKS: usize = 8;

impl BenchOptions {
    /// Returns the number of processes to start, if `--processes` is given.
    pub(super) const fn processes(&self) -> Option<usize> {
        match &self.part {
            BenchPart::Collectives(asked) => asked.processes,
            _ => None,
        }
    }

    /// Checks the options and returns the number of cards that the measurement needs in this
    /// process.
    pub(super) fn check(&self, group: &ProcessGroup) -> Result<usize, Diagnostics> {
        let mut problems = Diagnostics::new();
        if group.is_first() {
            let plot = self.plot.iter().filter_map(|path| files::check("--plot", path).err());
            let report = self.report.iter().filter_map(|path| page::check(path).err());
            plot.chain(report).for_each(|problem| problems.push(problem));
        }
        match self.cards(group) {
            Ok(cards) => problems.into_result(cards),
            Err(found) => {
                problems.append(found);
                Err(problems)
            }
        }
    }

    fn cards(&self, group: &ProcessGroup) -> Result<usize, Diagnostics> {
        let (option, asked, numbers) = match &self.part {
            BenchPart::Limits | BenchPart::Compile(_) | BenchPart::Beside(_) => return Ok(0),
            BenchPart::Collectives(asked) => {
                let setting = asked.setting(self.quick);
                setting.check()?;
                ("--ranks", &asked.ranks, setting.ranks)
            }
            BenchPart::All
            | BenchPart::Exact
            | BenchPart::Peers
            | BenchPart::Serve(_)
            | BenchPart::Train(_)
                if group.size() > 1 =>
            {
                let problem =
                    Diagnostic::new("bench", "this part starts processes itself").expected("no launcher");
                return Err(problem.found(format!("{} processes", group.size())).into());
            }
            BenchPart::Scaling => return Ok(scaling::MOST_CARDS),
            BenchPart::All if self.quick => return Ok(DEFAULT_RANKS),
            BenchPart::Peers | BenchPart::Serve(_) => return Ok(1),
            BenchPart::Exact => return Ok(exact::CARDS),
            BenchPart::Train(asked) => {
                return Ok(if asked.baseline.is_some() { parameter_server::CARDS } else { train::CARDS });
            }
            BenchPart::All => return Ok(scaling::MOST_CARDS),
            BenchPart::Host(asked) => return asked.setting().map(|_| 0),
            BenchPart::Ops(asked) => return asked.setting().map(|_| group.size()),
            BenchPart::Decode(asked) => ("--cards", &asked.shape.cards, asked.setting()?.cards),
            BenchPart::Prefill(asked) => ("--cards", &asked.shape.cards, asked.setting()?.cards),
            BenchPart::Load(asked) => ("--cards", &asked.shape.cards, asked.setting()?.cards),
        };
        let world = group.size();
        if world > 1 && !asked.is_empty() && *asked != [world] {
            let problem = Diagnostic::new(option, "each process has one rank");
            return Err(problem
                .expected(format!("{world}, the number of processes"))
                .found(format!("{asked:?}"))
                .into());
        }
        Ok(numbers.into_iter().chain([world]).max().unwrap_or(world))
    }
}

impl CollectivesOptions {
    pub(super) fn setting(&self, is_quick: bool) -> ExchangeSetting {
        let factor = self.step_factor.unwrap_or(if is_quick { 16 } else { 4 });
        ExchangeSetting {
            ops: if self.op.is_empty() { MeasuredCollective::ALL.to_vec() } else { self.op.clone() },
            dtypes: self.dtype.clone(),
            ranks: if self.ranks.is_empty() { vec![DEFAULT_RANKS] } else { self.ranks.clone() },
            bytes: ExchangeSetting::sizes(self.min_bytes, self.max_bytes, factor),
            iterations: self.iterations,
            warmup: self.warmup,
        }
    }
}

/// Parses a size such as `4096`, `16K`, `64M` or `1G`, and also `16 KiB` as tables print it.
fn bytes(text: &str) -> Result<usize, String> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = text[..text.len() - unit.len()].parse::<usize>().ok().filter(|number| *number > 0);
    let scale = match unit.trim_start() {
        "" => Some(1),
        "K" | "k" | "KiB" => Some(1 << 10),
        "M" | "m" | "MiB" => Some(1 << 20),
        "G" | "g" | "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = number.zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    bytes.ok_or_else(|| format!("expected bytes such as 4096, 16K or 64M, found {text}"))
}

fn step_factor(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|factor| *factor >= 2)
        .ok_or_else(|| format!("expected a whole number of at least 2, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(["1", "16K", "64m", "1G"].map(bytes), [Ok(1), Ok(16 << 10), Ok(64 << 20), Ok(1 << 30)]);
        assert_eq!(["16KiB", "64 MiB"].map(bytes), [Ok(16 << 10), Ok(64 << 20)]);
        for text in ["", "K", "-1", "16iB", "0", "1.5M", "99999999999G"] {
            assert!(bytes(text).is_err_and(|message| message.ends_with(&format!("found {text}"))), "{text}");
        }
        assert!(step_factor("1").is_err());
    }
}
