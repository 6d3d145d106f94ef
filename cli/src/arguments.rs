//! Definition of the command line: commands, options, defaults and help texts.

use std::path::PathBuf;

use ascend_tp::generate::drafts::{LookupOptions, Speculation};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bench::{self, BenchOptions};
use super::bind::Bind;
use super::calibrate::{self, CalibrateOptions};
use super::checkpoint::{self, CheckpointOptions};
use super::data::{self, DataCommandOptions};
use super::doctor::{self, DoctorOptions};
use super::env::{self, EnvOptions};
use super::failure::EXIT_CODES;
use super::kernel::{self, KernelOptions};
use super::model::ModelOptions;
use super::plan::{self, PlanOptions};
use super::serve::{self, ServeArguments};
use super::site::SiteOptions;
use super::template::TemplateOptions;
use super::train::{self, TrainOptions};
use super::values::{
    CacheOptions, DeviceKind, Fp8As, LayoutOptions, PlannedPrecision, PrecisionName, positive,
};

const EXAMPLES: &str = "\
Examples:
  ascend-tp generate --prompt \"In the beginning\"
  ascend-tp generate --model Qwen2-72B --prompt \"Once upon a time\" --cards 8
  ascend-tp serve Qwen2.5-72B-Instruct --cards 8
  ascend-tp verify --model Qwen2-72B --cards 8
  ascend-tp explain qwen-72b --cards 8
  ascend-tp rehearse qwen-72b --cards 8 --card 910b3
  ascend-tp plan qwen2.5-72b --cards 8 --serve --batch 16";

const GENERATE_EXAMPLES: &str = "\
The generated text goes to stdout, all messages to stderr.

Examples:
  ascend-tp generate
      the shipped model continues \"In the beginning\" on eight cards
  ascend-tp generate --prompt \"And God said\" --prompt \"The king\" --cards 4
  ascend-tp generate --model Qwen2-72B --temperature 0.8 --top-p 0.95 --seed 7
  ascend-tp generate --model Qwen2.5-7B-Instruct --chat --prompt \"Tell a joke\"
  ascend-tp generate --prompt-file - < question.txt
  ascend-tp generate --json 2>/dev/null | jq -r '.sequences[].text'
  ascend-tp generate --json --stream --logprobs 3 | jq -c .
  mpirun -np 8 ascend-tp generate --prompt \"And God said\"
      one process per card; also works with torchrun, srun, or a shell loop
      that sets RANK and WORLD_SIZE";

const VERIFY_EXAMPLES: &str = "\
Exit code 0 if the results are within the printed error bound, else 1.
Options of a training step, such as --recipe and --zero, need --train. If it is
missing, --mesh accepts only the axes pp and tp.

Examples:
  ascend-tp verify --model models/kjv-qwen2 --cards 8
  ascend-tp verify --model models/kjv-qwen2 --cards 8 --exact
      every sum has a fixed order, so the results must have the same bits
  ascend-tp verify --model models/kjv-qwen2 --mesh pp=2,tp=4
  ascend-tp verify --model tests/fixtures/qwen2-gqa --cards 3 --residual seq \\
      --reference tests/fixtures/qwen2-gqa/expected.safetensors";

const EXPLAIN_EXAMPLES: &str = "\
Reads only config.json and needs no card.
Options of a training step, such as --recipe and --zero, need --train. Without
it, use --mesh with tp axes only.

Examples:
  ascend-tp explain qwen-72b --cards 8
  ascend-tp explain llama-3-70b --cards 16 --residual seq --sequence 4096
  ascend-tp explain models/kjv-qwen2 --cards 5 --dump plans
  ascend-tp explain qwen3-32b --cards 4 --json | jq .totals";

const REHEARSE_EXAMPLES: &str = "\
Reads only config.json. Runs the compiled plans on emulated cards with a
virtual clock. Nothing is measured on this computer, so the same arguments give
the same report.
Options of a training step, such as --recipe and --zero, need --train. Without
it, use --mesh with pp and tp axes.

Examples:
  ascend-tp rehearse qwen-72b --cards 8 --card 910b3 --input 1024 --output 256
  ascend-tp rehearse llama-3-70b --cards 8 --captured --html report.html
  ascend-tp rehearse qwen2.5-72b --cards 16 --servers 2 --json | jq .token_us
  ascend-tp rehearse qwen2.5-0.5b --train --cards 8 --mesh dp=8 --zero 1 \\
      --dtype bf16 --seq 2048";

/// Tensor-parallel Transformers on Ascend NPUs or on emulated ones.
#[derive(Debug, Parser)]
#[command(name = "ascend-tp", version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Arguments {
    /// Print errors only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Print more details on stderr
    #[arg(long, short, global = true)]
    pub(super) verbose: bool,
    /// Print all columns and whole lines, regardless of the terminal width
    #[arg(long, global = true, display_order = 900)]
    pub(super) wide: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Generate text from prompts
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateOptions),
    /// Serve requests over HTTP, with an API compatible with OpenAI's
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<ServeArguments>),
    /// Compare the results of many cards with those of one card, op by op, and optionally with a
    /// reference
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyOptions),
    /// Show the placement of each weight, the collectives and their reasons, and the memory of each
    /// card
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainOptions),
    /// Predict fit, speed and bottlenecks of a model by running it on emulated cards with a virtual
    /// clock
    #[command(after_help = REHEARSE_EXAMPLES)]
    Rehearse(RehearseOptions),
    /// Find the best parallel layout for a number of cards, and explain it
    #[command(after_help = plan::EXAMPLES)]
    Plan(PlanOptions),
    /// Measure operators and collectives on the cards, or read measurements, and write a chip
    /// profile
    #[command(after_help = calibrate::EXAMPLES)]
    Calibrate(CalibrateOptions),
    /// Measure this machine and the workloads on it, each figure next to its limit
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchOptions),
    /// Prepare, read and inspect training data
    #[command(after_help = data::EXAMPLES)]
    Data(DataCommandOptions),
    /// Train a model
    #[command(after_help = train::EXAMPLES)]
    Train(Box<TrainOptions>),
    /// Inspect, verify, reshard or export the checkpoints of a training run, or quantise a model
    #[command(after_help = checkpoint::EXAMPLES)]
    Checkpoint(CheckpointOptions),
    /// Check Ascend C kernels without a card, or compile them for the emulator
    #[command(after_help = kernel::EXAMPLES)]
    Kernel(KernelOptions),
    /// Check whether this machine is ready to run, and list missing parts
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorOptions),
    /// Run a program on the emulator's drop-in libraries
    #[command(after_help = env::EXAMPLES)]
    Env(EnvOptions),
    /// List the preset models, their sizes and the cards they need
    Models(ModelsOptions),
    /// Print shell completions
    Completions { shell: clap_complete::Shell },
    /// Print the manual page of the program or of a command
    Man {
        /// Name of a command, such as generate
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct ModelsOptions {
    /// Print the list as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[command(mut_group("TemplateOptions", |options| options.requires("chat")))]
pub(super) struct GenerateOptions {
    /// Folder with config.json, the tokenizer and the weights in safetensors [default: the shipped
    /// kjv-qwen2]
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub(super) model: Option<PathBuf>,
    /// Folder of a low-rank adapter in the format of peft, to be added to the weights
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub(super) adapter: Option<PathBuf>,
    /// Text to continue. Can be repeated for a batch [default: In the beginning]
    #[arg(long = "prompt", value_name = "TEXT", allow_hyphen_values = true, help_heading = "Prompts")]
    pub(super) prompts: Vec<String>,
    /// File with a prompt, or - for standard input. Can be repeated
    #[arg(long = "prompt-file", value_name = "FILE", allow_hyphen_values = true, help_heading = "Prompts")]
    pub(super) prompt_files: Vec<PathBuf>,
    /// Format each prompt as a user message with the model's chat template
    #[arg(long, help_heading = "Prompts")]
    pub(super) chat: bool,
    /// System message before each prompt
    #[arg(
        long,
        value_name = "TEXT",
        requires = "chat",
        allow_hyphen_values = true,
        help_heading = "Prompts"
    )]
    pub(super) system: Option<String>,
    #[command(flatten)]
    pub(super) template: TemplateOptions,
    /// Number of cards [default: the product of --mesh, else 8; the number of processes under a
    /// launcher]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Parallelism")]
    pub(super) cards: Option<usize>,
    /// Mesh axes with their sizes: pp=2,tp=4 for pipeline stages; tp_row=2,tp_col=4 to shard each
    /// weight along both dims; tp_depth to distribute prompts over several such grids [default: tp
    /// over all cards]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "AXES", help_heading = "Parallelism")]
    pub(super) mesh: Option<String>,
    /// Element type of weights and activations, or w8a8 [default: the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    pub(super) dtype: Option<PrecisionName>,
    /// Form of weights that the checkpoint stores in fp8 blocks: floats of the type of --dtype, or
    /// 8-bit integers [default: bf16]
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Model")]
    pub(super) fp8_as: Option<Fp8As>,
    #[command(flatten, next_help_heading = "Model")]
    pub(super) caches: CacheOptions,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Compute every sum in a fixed order, so that the logits of a prompt have the same bits on any
    /// number of cards and in any batch
    #[arg(long, help_heading = "Parallelism")]
    pub(super) exact: bool,
    /// Maximum number of new tokens for each prompt [default: from generation_config.json, else 64]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Sampling")]
    pub(super) max_new_tokens: Option<usize>,
    /// Stop before this text, in addition to the model's stop tokens. Can be repeated
    #[arg(long = "stop", value_name = "TEXT", allow_hyphen_values = true, help_heading = "Sampling")]
    pub(super) stops: Vec<String>,
    /// Minimum number of new tokens before a stop token or a stop text can end the text
    #[arg(
        long,
        default_value = "0",
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub(super) min_tokens: usize,
    /// Draft up to K tokens of each text from its earlier words, or one token by the model's layer
    /// for multi-token prediction, and verify them in one run; the text does not change
    #[arg(long, value_name = "ngram=K|mtp", value_parser = speculation, help_heading = "Execution")]
    pub(super) speculate: Option<Speculation>,
    /// Continue after the model's stop tokens, up to the maximum number of new tokens
    #[arg(long, help_heading = "Sampling")]
    pub(super) ignore_eos: bool,
    /// Sampling temperature; 0 always takes the most likely token [default: from
    /// generation_config.json, else 0]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Sampling")]
    pub(super) temperature: Option<f32>,
    /// Sample only from this many most likely tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Sampling")]
    pub(super) top_k: Option<usize>,
    /// Sample only from the most likely tokens with this cumulative probability
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Sampling")]
    pub(super) top_p: Option<f32>,
    /// Drop tokens with a probability below this fraction of the most likely token's probability
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Sampling")]
    pub(super) min_p: Option<f32>,
    /// Penalty for tokens that are already in the text; 1 disables it [default: from
    /// generation_config.json, else 1]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Sampling")]
    pub(super) repetition_penalty: Option<f32>,
    /// Penalty for each token that was generated before, from -2 to 2
    #[arg(
        long,
        default_value = "0",
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub(super) presence_penalty: f32,
    /// Penalty for a token for each time it was generated before, from -2 to 2
    #[arg(
        long,
        default_value = "0",
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub(super) frequency_penalty: f32,
    /// Number from -100 to 100 to add to the logit of a token id. Can be repeated
    #[arg(long, value_name = "ID=VALUE", value_parser = token_bias, help_heading = "Sampling")]
    pub(super) logit_bias: Vec<TokenBias>,
    /// Seed of the random numbers; the same seed gives the same text
    #[arg(
        long,
        default_value = "0",
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub(super) seed: u64,
    /// Source of the default sampling settings [default: auto, the generation_config.json of the
    /// model]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        value_name = "auto|none",
        help_heading = "Sampling"
    )]
    pub(super) generation_config: GenerationConfigChoice,
    /// Number of samples of each prompt
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N", help_heading = "Sampling")]
    pub(super) samples: usize,
    /// Device to run on; auto uses the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto", help_heading = "Execution")]
    pub(super) device: DeviceKind,
    /// Processors to bind to: auto (five near each NPU), none, or a list such as 0-4,48-52
    #[arg(long, default_value = "none", value_name = "CPUS", help_heading = "Execution")]
    pub(super) bind: Bind,
    /// Number of cards of the emulator [default: 8]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Execution")]
    pub(super) emulated_cards: Option<usize>,
    /// Capture each step as a graph on the card and replay it with one call of the host
    #[arg(long, help_heading = "Execution")]
    pub(super) captured: bool,
    /// Print token ids, texts and the summary as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Print one JSON line for each token, for the end of each sequence, and for the summary
    #[arg(long, requires = "json", help_heading = "Output")]
    pub(super) stream: bool,
    /// Add log-probabilities of each token and of the N most likely tokens to the JSON
    #[arg(long, value_name = "N", requires = "json", help_heading = "Output")]
    pub(super) logprobs: Option<usize>,
}

/// A number to add to the logit of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenBias {
    pub(super) token: u32,
    pub(super) bias: f32,
}

/// Largest number of drafts in a step.
const MOST_DRAFTS: usize = 16;

/// Reads `ngram=K` or `mtp`.
pub(super) fn speculation(text: &str) -> Result<Speculation, String> {
    if text == "mtp" || text == "mtp=1" {
        return Ok(Speculation::Prediction);
    }
    let drafts = text.strip_prefix("ngram=").and_then(|drafts| drafts.parse().ok());
    match drafts {
        Some(drafts @ 1..=MOST_DRAFTS) => {
            Ok(Speculation::Lookup(LookupOptions { drafts, ..LookupOptions::default() }))
        }
        _ => Err(format!("expected mtp, or ngram=K with K from 1 to {MOST_DRAFTS}, found `{text}`")),
    }
}

fn token_bias(text: &str) -> Result<TokenBias, String> {
    let bias = text
        .split_once('=')
        .and_then(|(token, bias)| Some(TokenBias { token: token.parse().ok()?, bias: bias.parse().ok()? }));
    bias.ok_or_else(|| format!("expected a token id and a number such as 42=-1.5, found {text}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GenerationConfigChoice {
    Auto,
    /// Greedy decoding, the default of the command.
    None,
}

#[derive(Debug, Args)]
pub(super) struct VerifyOptions {
    /// Folder with config.json and the weights in safetensors
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub(super) model: PathBuf,
    /// Number of cards [default: the product of --mesh; the number of processes under a launcher]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Parallelism")]
    pub(super) cards: Option<usize>,
    /// File with f32 outputs of another implementation: `input_ids`, `logits`, `greedy_prompt` and
    /// `greedy_ids`. The f32 results are compared with the file, and the results in --dtype
    /// with the f32 results
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub(super) reference: Option<PathBuf>,
    /// Element type of weights and activations, or w8a8; with --train, the type of products and
    /// attention [default: f32, or the type in --recipe]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    pub(super) dtype: Option<PrecisionName>,
    /// Form of weights that the checkpoint stores in fp8 blocks: floats of the type of --dtype, or
    /// 8-bit integers [default: bf16]
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Model")]
    pub(super) fp8_as: Option<Fp8As>,
    #[command(flatten, next_help_heading = "Model")]
    pub(super) caches: CacheOptions,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Device to run on; auto uses the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto", help_heading = "Execution")]
    pub(super) device: DeviceKind,
    /// Print the comparison as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Compare the gradients of one training step instead
    #[arg(long, conflicts_with_all = ["reference", "fp8_as", "kv_dtype"], help_heading = "Training")]
    pub(super) train: bool,
    #[command(flatten)]
    pub(super) step: train::StepOptions,
}

#[derive(Debug, Args)]
pub(super) struct ExplainOptions {
    #[command(flatten)]
    pub(super) model: ModelOptions,
    /// Number of cards, at most 256 without --train
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Parallelism")]
    pub(super) cards: usize,
    /// Element type of weights and activations, w8a8, or the format of quantised files [default:
    /// the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    pub(super) dtype: Option<PlannedPrecision>,
    #[command(flatten, next_help_heading = "Model")]
    pub(super) caches: CacheOptions,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Number of sequences in a batch
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N", help_heading = "Workload")]
    pub(super) batch: usize,
    /// Number of new tokens per sequence in the explained pass; 1 is a decode step
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N", help_heading = "Workload")]
    pub(super) sequence: usize,
    /// Capacity of the KV cache per sequence, in positions [default: the model's context length]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Workload")]
    pub(super) context: Option<usize>,
    /// Write each stage of the compilation as a text file into this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) dump: Option<PathBuf>,
    /// Print every weight and collective of every layer as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Show the collectives of one training step, and the operators that hide them
    #[arg(long, conflicts_with_all = ["kv_dtype", "batch", "sequence", "context", "dump"], help_heading = "Training")]
    pub(super) train: bool,
    #[command(flatten)]
    pub(super) step: train::StepOptions,
    #[command(flatten)]
    pub(super) site: SiteOptions,
}

#[derive(Debug, Args)]
pub(super) struct RehearseOptions {
    #[command(flatten)]
    pub(super) model: ModelOptions,
    /// Number of cards of the whole job
    #[arg(long, value_name = "N", help_heading = "Parallelism")]
    pub(super) cards: usize,
    #[command(flatten)]
    pub(super) site: SiteOptions,
    /// Number of servers to distribute the cards over [default: as few as the topology allows]
    #[arg(long, value_name = "M", help_heading = "Hardware")]
    pub(super) servers: Option<usize>,
    /// Number of sequences in a batch
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Workload")]
    pub(super) batch: usize,
    /// Number of tokens in each prompt
    #[arg(long, default_value = "1024", value_name = "N", help_heading = "Workload")]
    pub(super) input: usize,
    /// Number of decode steps after the prefill
    #[arg(long, default_value = "256", value_name = "N", help_heading = "Workload")]
    pub(super) output: usize,
    /// Element type of weights and activations, w8a8, or the format of quantised files [default:
    /// the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    pub(super) dtype: Option<PlannedPrecision>,
    #[command(flatten, next_help_heading = "Model")]
    pub(super) caches: CacheOptions,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Launch each step of a plan with a separate call (the default)
    #[arg(long, conflicts_with = "captured", help_heading = "Execution")]
    pub(super) eager: bool,
    /// Replay a decode step as a graph with one call
    #[arg(long, help_heading = "Execution")]
    pub(super) captured: bool,
    /// Write the timeline of the cards as a trace for Perfetto
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) trace: Option<PathBuf>,
    /// Write the report as a self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) serving: ServingLoadOptions,
    /// Rehearse one training step instead
    #[arg(long, conflicts_with_all = ["kv_dtype", "batch", "input", "output", "captured", "serve"], help_heading = "Training")]
    pub(super) train: bool,
    #[command(flatten)]
    pub(super) step: train::StepOptions,
}

/// The load of a serving engine.
#[derive(Args, Clone, Debug)]
pub(super) struct ServingLoadOptions {
    /// Rehearse the serving engine under a load of requests
    #[arg(long, conflicts_with_all = ["batch", "trace"], help_heading = "Serving")]
    pub(super) serve: bool,
    /// Requests per second, with exponential times between arrivals
    #[arg(long, default_value = "4", value_name = "R", requires = "serve", help_heading = "Serving")]
    pub(super) rate: f64,
    /// Number of requests of --input and --output tokens
    #[arg(long, default_value = "500", value_name = "N", requires = "serve", help_heading = "Serving")]
    pub(super) requests: usize,
    /// Read the requests from a file: one JSON object per line, such as {"arrival_s": 0.5, "input":
    /// 100, "output": 20}, with the number of prompt tokens that all requests share as "prefix"
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "FILE", requires = "serve", conflicts_with_all = ["rate", "requests"], help_heading = "Serving")]
    pub(super) requests_from: Option<PathBuf>,
    /// Maximum number of sequences that run at once
    #[arg(long, default_value = "64", value_name = "N", requires = "serve", help_heading = "Serving")]
    pub(super) max_num_seqs: usize,
    /// Number of blocks of the KV cache on each card [default: as many as fit]
    #[arg(long, value_name = "N", requires = "serve", help_heading = "Serving")]
    pub(super) kv_cache_blocks: Option<usize>,
}

#[cfg(test)]
mod tests {
    use ascend_tp::machine::{Soc, Topology};
    use ascend_tp::placement::Residual;
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let parsed = super::super::usage::read(std::iter::once("ascend-tp").chain(line.split_whitespace()));
        parsed.map(|arguments| arguments.command).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_names_the_list_of_presets() {
        for command in ["explain", "rehearse"] {
            let help =
                Arguments::command().find_subcommand_mut(command).unwrap().render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(help.contains("see `ascend-tp models`"), "{command}: {help}");
        }
    }

    #[test]
    fn every_chip_and_topology_is_in_the_help() {
        let help =
            Arguments::command().find_subcommand_mut("rehearse").unwrap().render_long_help().to_string();
        for name in Soc::ALL.map(Soc::short_name).into_iter().chain(Topology::PRESETS) {
            assert!(help.contains(name), "{name}");
        }
    }

    #[test]
    fn defaults_are_the_shipped_model_greedy_on_eight_cards() {
        let Ok(Command::Generate(options)) = parse("generate") else { panic!("generate needs no option") };
        assert_eq!((options.model, options.cards, options.seed, options.json), (None, None, 0, false));
        assert!(options.prompts.is_empty() && options.prompt_files.is_empty());
        assert_eq!((options.temperature, options.samples, options.max_new_tokens), (None, 1, None));
        assert_eq!((options.dtype, options.layout.residual()), (None, Residual::Replicate));
        assert_eq!(options.device, DeviceKind::Auto);
    }

    #[test]
    fn texts_may_begin_with_a_hyphen() {
        let Ok(Command::Generate(options)) =
            parse("generate --prompt -x --prompt --json --prompt-file - --stop -")
        else {
            panic!("these are texts")
        };
        assert_eq!(options.prompts, ["-x", "--json"]);
        assert_eq!((options.prompt_files, options.stops), (vec![PathBuf::from("-")], vec!["-".to_owned()]));
        assert!(!options.json);
    }

    #[test]
    fn numbers_that_mean_nothing_are_named() {
        for (line, expected) in [
            (
                "generate --cards 0",
                "invalid value '0' for '--cards <N>': expected a whole number of at least 1, found 0",
            ),
            ("generate --max-new-tokens -1", "'-1"),
            (
                "generate --logit-bias the=1",
                "'the=1' for '--logit-bias <ID=VALUE>': expected a token id and a number such as 42=-1.5, found the=1",
            ),
            ("explain --model x --cards 8 --batch 0", "'--batch <N>'"),
            ("generate --stream", "--json"),
            ("generate --dtype f64", "possible values: f32, f16, bf16, w8a8"),
            ("verify --cards 2", "--model <DIR>"),
            ("bench collectives --processes 1000000000", "expected 1 to 1024 processes, found 1000000000"),
            ("train --processes 1:1000000000", "expected a number from 1 to 1024, or two such as 4:8"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
