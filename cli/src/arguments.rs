//! What the command line takes: the one list of commands, options, defaults and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bench::{self, BenchOptions};
use super::bind::Bind;
use super::calibrate::{self, CalibrateOptions};
use super::checkpoint::{self, CheckpointOptions};
use super::data::{self, DataOptions};
use super::doctor::{self, DoctorOptions};
use super::env::{self, EnvOptions};
use super::failure::EXIT_CODES;
use super::kernel::{self, KernelOptions};
use super::model::ModelOptions;
use super::plan::{self, PlanOptions};
use super::site::SiteOptions;
use super::train::{self, TrainOptions};
use super::values::{DeviceKind, LayoutOptions, PrecisionName, planned_cards, positive};

const EXAMPLES: &str = "\
Examples:
  ascend-tp generate --prompt \"In the beginning\"
  ascend-tp generate --model Qwen2-72B --prompt \"Once upon a time\" --cards 8
  ascend-tp verify --model Qwen2-72B --cards 8
  ascend-tp explain qwen-72b --cards 8
  ascend-tp rehearse qwen-72b --cards 8 --card 910b3
  ascend-tp plan qwen2.5-72b --cards 8 --serve --batch 16";

const GENERATE_EXAMPLES: &str = "\
The text goes to stdout, everything else to stderr.

Examples:
  ascend-tp generate
      the shipped model continues \"In the beginning\" on eight cards
  ascend-tp generate --prompt \"And God said\" --prompt \"The king\" --cards 4
  ascend-tp generate --model Qwen2-72B --temperature 0.8 --top-k 40 --top-p 0.95 --seed 7
  ascend-tp generate --model Qwen2.5-7B-Instruct --chat --prompt \"What is a tensor?\" --stop END
  ascend-tp generate --prompt-file - < question.txt
  ascend-tp generate --json 2>/dev/null | jq -r '.sequences[].text'
  ascend-tp generate --json --stream --logprobs 3 | jq -c .
  mpirun -np 8 ascend-tp generate --prompt \"And God said\"
      one process a card; torchrun, srun and a shell loop with RANK and WORLD_SIZE do as well";

const VERIFY_EXAMPLES: &str = "\
Exit code 0 within the bound, 1 outside it.

Examples:
  ascend-tp verify --model models/kjv-qwen2 --cards 8
  ascend-tp verify --model models/kjv-qwen2 --cards 8 --exact
      every sum in one order on both sides: they must have the same bits
  ascend-tp verify --model tests/fixtures/qwen2-gqa --cards 3 \\
      --reference tests/fixtures/qwen2-gqa/expected.safetensors --residual seq
  ascend-tp verify --model models/kjv-qwen2 --mesh pp=2,tp=4";

const EXPLAIN_EXAMPLES: &str = "\
Reads config.json only, no weights, and needs no card.

Examples:
  ascend-tp explain qwen-72b --cards 8
  ascend-tp explain llama-3-70b --cards 16 --residual seq --sequence 4096
  ascend-tp explain models/kjv-qwen2 --cards 5 --dump plans
  ascend-tp explain qwen3-32b --cards 4 --json | jq .totals";

const REHEARSE_EXAMPLES: &str = "\
Reads config.json only, no weights. Runs the compiled plans on emulated cards with a virtual clock; nothing
is measured on this computer, and the same arguments give the same report.

Examples:
  ascend-tp rehearse qwen-72b --cards 8 --card 910b3 --batch 1 --input 1024 --output 256
  ascend-tp rehearse llama-3-70b --cards 8 --captured --html report.html --trace trace.json
  ascend-tp rehearse qwen2.5-72b --cards 16 --servers 2 --batch 8 --json | jq .token_us
  ascend-tp rehearse --train qwen2.5-0.5b --cards 8 --mesh dp=8 --zero 1 --dtype bf16 --seq 2048";

/// Tensor-parallel Transformers on Ascend NPUs, or on emulated ones.
#[derive(Debug, Parser)]
#[command(name = "ascend-tp", version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Arguments {
    /// Say nothing on stderr but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Say more on stderr
    #[arg(long, short, global = true)]
    pub(super) verbose: bool,
    /// Show all columns and whole lines, however wide the terminal is
    #[arg(long, global = true, display_order = 900)]
    pub(super) wide: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Continue prompts with a checkpoint
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateOptions),
    /// Compare the program on many cards with the same program on one card, op by op, and with a
    /// reference
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyOptions),
    /// Show where each weight lies, what the cards exchange and why, and the bytes on each card
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainOptions),
    /// Run a model on emulated cards with a virtual clock: will it fit, how fast, and where the
    /// time goes
    #[command(after_help = REHEARSE_EXAMPLES)]
    Rehearse(RehearseOptions),
    /// Find the best split of some cards, and say why
    #[command(after_help = plan::EXAMPLES)]
    Plan(PlanOptions),
    /// Measure what operators and exchanges take on the cards, or read it, and write the profile of
    /// their chip
    #[command(after_help = calibrate::EXAMPLES)]
    Calibrate(CalibrateOptions),
    /// Measure this machine and what runs on it, each figure beside its limit
    #[command(after_help = bench::EXAMPLES)]
    Bench(BenchOptions),
    /// Make, read and show the data that a model is trained on
    #[command(after_help = data::EXAMPLES)]
    Data(DataOptions),
    /// Train a model
    #[command(after_help = train::EXAMPLES)]
    Train(Box<TrainOptions>),
    /// Look at the checkpoints of a training run, check them, cut them for other cards, or export
    /// the model
    #[command(after_help = checkpoint::EXAMPLES)]
    Checkpoint(CheckpointOptions),
    /// Check kernels in Ascend C without a card, or compile them for the emulator
    #[command(after_help = kernel::EXAMPLES)]
    Kernel(KernelOptions),
    /// Say what stands between this machine and a first run
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorOptions),
    /// Run a program on the emulator's drop-in libraries
    #[command(after_help = env::EXAMPLES)]
    Env(EnvOptions),
    /// List the presets, their sizes and the cards they need
    Models(ModelsOptions),
    /// Print the completions of a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page of the program or of a command
    Man {
        /// A command, such as generate
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
pub(super) struct GenerateOptions {
    /// Folder with config.json, the tokenizer and the weights in safetensors [default: the shipped
    /// kjv-qwen2]
    #[arg(long, value_name = "DIR")]
    pub(super) model: Option<PathBuf>,
    /// Folder of a low-rank adapter as peft writes it, to be added to the weights
    #[arg(long, value_name = "DIR")]
    pub(super) adapter: Option<PathBuf>,
    /// Text to continue; give it several times for a batch [default: In the beginning]
    #[arg(long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) prompts: Vec<String>,
    /// File with a text to continue, - for standard input; as often as wanted
    #[arg(long = "prompt-file", value_name = "FILE", allow_hyphen_values = true)]
    pub(super) prompt_files: Vec<PathBuf>,
    /// Each prompt is a message to the model, in the format of its chat template
    #[arg(long)]
    pub(super) chat: bool,
    /// What the model is told before the message
    #[arg(long, value_name = "TEXT", requires = "chat", allow_hyphen_values = true)]
    pub(super) system: Option<String>,
    /// JSON file with a list of tools that the chat template shows the model
    #[arg(long, value_name = "FILE", requires = "chat")]
    pub(super) tools: Option<PathBuf>,
    /// Ask a reasoning model to answer without thinking: sets enable_thinking to false for the chat
    /// template
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, requires = "chat")]
    pub(super) no_thinking: bool,
    /// Variable of the chat template, such as date_string='"01 Jan 2025"' (vLLM:
    /// chat_template_kwargs). Can be repeated
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long = "template-arg", value_name = "KEY=JSON", requires = "chat")]
    pub(super) template_args: Vec<String>,
    /// Number of cards [default: what --mesh says, else 8; one for each process of a launcher]
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(super) cards: Option<usize>,
    /// How the cards are used: stages of a pipeline, each of some of the layers, such as pp=2,tp=4;
    /// or each weight cut along both of its dims, such as tp_row=2,tp_col=4, and prompts dealt over
    /// several such grids by tp_depth [default: all for tp]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "AXES")]
    pub(super) mesh: Option<String>,
    /// Element type of weights and activations, or w8a8 [default: the model's own]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) dtype: Option<PrecisionName>,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Add every sum in one order, so that a prompt's logits have the same bits on any number of
    /// cards and in any batch
    #[arg(long)]
    pub(super) exact: bool,
    /// Where default sampling settings come from [default: auto, the generation_config.json of the
    /// model]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        value_name = "auto|none"
    )]
    pub(super) generation_config: GenerationConfigChoice,
    /// Number of samples of each prompt
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N")]
    pub(super) samples: usize,
    /// Most tokens to generate for each prompt [default: what generation_config.json says, else 64]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(super) max_new_tokens: Option<usize>,
    /// 0 always takes the likeliest token; 1 samples from the model's own distribution [default:
    /// what generation_config.json says, else 0]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(super) temperature: Option<f32>,
    /// Sample among this many of the likeliest tokens only
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) top_k: Option<usize>,
    /// Sample among the likeliest tokens whose probabilities add up to this
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(super) top_p: Option<f32>,
    /// Drop tokens whose probability is below this share of the likeliest one's
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(super) min_p: Option<f32>,
    /// Make tokens that the text has already less likely: 1 changes nothing, 1.1 is usual [default:
    /// what generation_config.json says, else 1]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(super) repetition_penalty: Option<f32>,
    /// Key of the random numbers; the same seed gives the same text
    #[arg(long, default_value = "0", value_name = "N", allow_negative_numbers = true)]
    pub(super) seed: u64,
    /// End before this text, besides the model's own ends; as often as wanted
    #[arg(long = "stop", value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stops: Vec<String>,
    /// Log-probabilities of each token and of the N likeliest, in the JSON
    #[arg(long, value_name = "N", requires = "json")]
    pub(super) logprobs: Option<usize>,
    /// What to run on; auto takes the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) device: DeviceKind,
    /// Processors to run on: auto (five near each NPU), none, or a list such as 0-4,48-52
    #[arg(long, default_value = "none", value_name = "CPUS")]
    pub(super) bind: Bind,
    /// Cards that the emulator has [default: 8]
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(super) emulated_cards: Option<usize>,
    /// Record each step as a graph on the card and replay it, so that a step is one call of the
    /// host
    #[arg(long)]
    pub(super) captured: bool,
    /// Print ids, texts and the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// With --json: a line for each token as it comes, each end and the summary
    #[arg(long, requires = "json")]
    pub(super) stream: bool,
}

/// Where default sampling settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GenerationConfigChoice {
    /// The `generation_config.json` of the model.
    Auto,
    /// The settings of the command: greedy.
    None,
}

#[derive(Debug, Args)]
pub(super) struct VerifyOptions {
    /// Folder with config.json and the weights in safetensors
    #[arg(long, value_name = "DIR")]
    pub(super) model: PathBuf,
    /// Number of cards [default: what --mesh says; one for each process of a launcher]
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(super) cards: Option<usize>,
    /// Outputs of another implementation, computed in f32: `logits` of `input_ids`, `greedy_ids`
    /// after `greedy_prompt`. The program runs in f32 against them, and in the type asked for
    /// against f32
    #[arg(long, value_name = "FILE")]
    pub(super) reference: Option<PathBuf>,
    /// Compare the gradients of a step of `train` instead
    #[arg(long, conflicts_with_all = ["reference", "dtype"])]
    pub(super) train: bool,
    /// Element type of weights and activations, or w8a8
    #[arg(long, value_enum, default_value = "f32", value_name = "TYPE")]
    pub(super) dtype: PrecisionName,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// What to run on; auto takes the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) device: DeviceKind,
    /// Print the comparison as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(
        flatten,
        next_help_heading = "With --train, as `train` has them; without, --mesh says stages, --exact one order of sums"
    )]
    pub(super) step: train::StepOptions,
}

#[derive(Debug, Args)]
pub(super) struct ExplainOptions {
    #[command(flatten)]
    pub(super) model: ModelOptions,
    /// Number of cards
    #[arg(long, value_parser = planned_cards, value_name = "N")]
    pub(super) cards: usize,
    /// Show what a step of `train` exchanges, and what hides it
    #[arg(long, conflicts_with_all = ["batch", "sequence", "context", "dump"])]
    pub(super) train: bool,
    /// Element type of weights and activations, or w8a8 [default: the model's own]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) dtype: Option<PrecisionName>,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Sequences at once
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N")]
    pub(super) batch: usize,
    /// New tokens of each sequence in the pass that is shown; 1 is a decode step
    #[arg(long, default_value = "1", value_parser = positive, value_name = "N")]
    pub(super) sequence: usize,
    /// Positions of the KV cache of each sequence [default: all the model has]
    #[arg(long, value_parser = positive, value_name = "N")]
    pub(super) context: Option<usize>,
    /// Write each stage of the compilation as a text file into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) dump: Option<PathBuf>,
    /// Print every weight and collective of every layer as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten, next_help_heading = "With --train, as `train` has them")]
    pub(super) step: train::StepOptions,
}

#[derive(Debug, Args)]
pub(super) struct RehearseOptions {
    #[command(flatten)]
    pub(super) model: ModelOptions,
    /// Number of cards of the whole job
    #[arg(long, value_name = "N")]
    pub(super) cards: usize,
    /// Rehearse a step of `train` instead
    #[arg(long, conflicts_with_all = ["batch", "input", "output", "captured"])]
    pub(super) train: bool,
    #[command(flatten)]
    pub(super) site: SiteOptions,
    /// Spread the cards evenly over this many servers [default: as many as the topology needs]
    #[arg(long, value_name = "M")]
    pub(super) servers: Option<usize>,
    /// Sequences at once
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) batch: usize,
    /// Tokens of each prompt
    #[arg(long, default_value = "1024", value_name = "N")]
    pub(super) input: usize,
    /// Decode steps after the prefill
    #[arg(long, default_value = "256", value_name = "N")]
    pub(super) output: usize,
    /// Element type of weights and activations, or w8a8 [default: the model's own]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) dtype: Option<PrecisionName>,
    #[command(flatten)]
    pub(super) layout: LayoutOptions,
    /// Each step of a plan is a call of its own (the default)
    #[arg(long, conflicts_with = "captured")]
    pub(super) eager: bool,
    /// A decode step is the replay of a graph: one call
    #[arg(long)]
    pub(super) captured: bool,
    /// Write what the cards did as a trace that Perfetto opens
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Write the report as one page that opens without a network
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(
        flatten,
        next_help_heading = "With --train, as `train` has them; without, --mesh says stages that serve, as in pp=2,tp=4"
    )]
    pub(super) step: train::StepOptions,
}

#[cfg(test)]
mod tests {
    use ascend_tp::config::ModelConfig;
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
    fn every_preset_is_in_the_help() {
        for command in ["explain", "rehearse"] {
            let help =
                Arguments::command().find_subcommand_mut(command).unwrap().render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            for name in ModelConfig::PRESETS {
                assert!(help.contains(name), "{command}: {name}");
            }
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
                "invalid value '0' for '--cards <N>': expected a whole number from 1 on, found 0",
            ),
            ("generate --max-new-tokens -1", "'-1"),
            ("explain --model x --cards 257", "expected 1 to 256 cards, found 257"),
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
