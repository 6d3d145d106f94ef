//! Options of `plan`.

use ascend_tp_planner::serve::Objective;
use clap::{ArgGroup, Args, ValueEnum};

use crate::site::SiteOptions;
use crate::values::{CacheOptions, PlannedPrecision};

pub(crate) const EXAMPLES: &str = "\
Reads only config.json; needs no weights and no card.

Examples:
  ascend-tp plan qwen2.5-72b --cards 8 --serve --batch 16 --input 1024
  ascend-tp plan qwen2.5-72b --cards 16 --serve --batch 64 --max-tpot-ms 50
  ascend-tp plan qwen2.5-72b --cards 16 --serve --why tp=16 \\
      --topology atlas-a2-box16
  ascend-tp plan llama-3-70b --cards 8 --serve --topology my-cluster.toml --json
  ascend-tp plan qwen2.5-72b --cards 1024 --train --seq 4096 \\
      --global-batch 1024 --tokens 15e12
  ascend-tp plan qwen2.5-72b --cards 64 --train --seq 4096 \\
      --global-batch 512 --why tp=16,pp=2";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("wanted").required(true))]
pub(crate) struct PlanOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    pub(super) named: Option<String>,
    /// Same as MODEL
    #[arg(long, value_name = "DIR|NAME")]
    pub(super) model: Option<String>,
    /// Number of cards; for a 910C, number of dies
    #[arg(long, value_name = "N")]
    pub(super) cards: usize,
    /// Find the best split for serving
    #[arg(long, group = "wanted")]
    pub(super) serve: bool,
    /// Find the best split for training
    #[arg(long, group = "wanted", requires_all = ["seq", "global_batch"], conflicts_with = "kv_dtype")]
    pub(super) train: bool,
    /// Element type of weights and activations, w8a8, or the format of quantised files [default:
    /// the model's own]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) dtype: Option<PlannedPrecision>,
    #[command(flatten)]
    pub(super) caches: CacheOptions,
    /// Explain one split in full, such as tp=16 or tp=4,residual=seq,issue=eager; for training
    /// pp=8,recompute=none
    #[arg(long, value_name = "SPLIT")]
    pub(super) why: Option<String>,
    /// Number of splits to show
    #[arg(long, default_value = "5", value_name = "N")]
    pub(super) top: usize,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten, next_help_heading = "Serving")]
    pub(super) serving: PlanServeOptions,
    #[command(flatten, next_help_heading = "Training")]
    pub(super) training: PlanTrainOptions,
    #[command(flatten, next_help_heading = "Hardware")]
    pub(super) site: SiteOptions,
}

impl PlanOptions {
    /// Returns the model as it was given.
    pub(super) fn name(&self) -> &str {
        self.named.as_deref().or(self.model.as_deref()).unwrap_or_default()
    }
}

#[derive(Debug, Args)]
pub(crate) struct PlanServeOptions {
    /// Number of concurrent sequences
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) batch: usize,
    /// Number of tokens in each prompt
    #[arg(long, default_value = "1024", value_name = "N")]
    pub(super) input: usize,
    /// Number of tokens to generate for each prompt
    #[arg(long, default_value = "256", value_name = "N")]
    pub(super) output: usize,
    /// Objective of the search
    #[arg(long, value_enum, default_value = "throughput")]
    pub(super) objective: ObjectiveName,
    /// Maximum time per output token, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(super) max_tpot_ms: Option<f64>,
    /// Maximum time to the first token, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(super) max_ttft_ms: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanTrainOptions {
    /// Number of tokens in each training sequence
    #[arg(long, requires = "train", value_name = "N")]
    pub(super) seq: Option<usize>,
    /// Number of sequences in each training step
    #[arg(long, requires = "train", value_name = "N")]
    pub(super) global_batch: Option<usize>,
    /// Number of tokens of the whole training run, such as 15e12; shows the days of the run
    #[arg(long, requires = "train", value_name = "NUMBER")]
    pub(super) tokens: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ObjectiveName {
    /// Most tokens per second, including prompt tokens
    Throughput,
    /// Least time per output token
    Latency,
}

impl From<ObjectiveName> for Objective {
    fn from(wanted: ObjectiveName) -> Self {
        match wanted {
            ObjectiveName::Throughput => Self::Throughput,
            ObjectiveName::Latency => Self::Latency,
        }
    }
}
