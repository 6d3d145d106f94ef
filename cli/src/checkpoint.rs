//! `checkpoint`: inspects, verifies, reshards and exports the checkpoints of a training run, and
//! quantises the weights of a model.
//!
//! The folder of a run means its newest checkpoint. Existing folders do not change. The library
//! implements the formats.

mod quantise;

use std::path::PathBuf;

use ascend_tp::base::{Bytes, DType, Diagnostic, Diagnostics};
use ascend_tp::config::{Lora, QuantisedFormat};
use ascend_tp::placement::Mesh;
use ascend_tp::train::Zero;
use ascend_tp::train::checkpoint::{
    Checkpoint, Exported, Index, TensorRecord, export, export_adapter, reshard, stored_layouts_on,
};
use ascend_tp_planner::table::Align;
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use super::failure::{Failure, Outcome};
use super::files;
use super::{note, print_json, print_report, terminal, train};

pub(super) const EXAMPLES: &str = "\
DIR is a checkpoint, such as SAVE/step-00000050, or the folder of a run. The
folder of a run means its newest checkpoint.

Examples:
  ascend-tp checkpoint inspect SAVE
  ascend-tp checkpoint inspect SAVE --json | jq .state
  ascend-tp checkpoint verify SAVE/step-00000050
  ascend-tp checkpoint reshard SAVE --mesh dp=2,tp=4 --out SAVE-8
  ascend-tp checkpoint reshard SAVE --mesh dp=8 --zero 3 --out SAVE-8
  ascend-tp checkpoint export SAVE --hf MODEL --dtype bf16
  ascend-tp checkpoint export SAVE --adapter ADAPTER
      after a run with --lora; `generate --adapter ADAPTER` uses the adapter
  ascend-tp checkpoint quantise MODEL --format w4a16-g128 --out OUT
      MODEL is the folder of a model with float weights";

#[derive(Debug, Args)]
pub(super) struct CheckpointOptions {
    #[command(subcommand)]
    pub(super) command: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum CheckpointCommand {
    /// Show the step, mesh, files, tensors with their layouts, and state of the run
    Inspect(CheckpointInspectOptions),
    /// Compute the digests of all files and compare them with the recorded digests
    Verify(CheckpointVerifyOptions),
    /// Write the checkpoint for another mesh. Values do not change. A dim stays sharded along an
    /// axis if the new mesh has this axis
    Reshard(ReshardOptions),
    /// Export the model in the format of transformers
    Export(ExportOptions),
    /// Write a model with quantised linear layers, and report the error of each layer. Embeddings,
    /// head, norms and routers stay floats
    Quantise(QuantiseOptions),
}

#[derive(Debug, Args)]
pub(super) struct CheckpointInspectOptions {
    /// Folder of a checkpoint or of a run
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckpointVerifyOptions {
    /// Folder of a checkpoint or of a run
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct ReshardOptions {
    /// Folder of a checkpoint or of a run
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Axes of the new mesh with their sizes, outermost first, such as dp=2,tp=4
    #[arg(long, value_name = "MESH", value_parser = mesh)]
    mesh: Mesh,
    /// Shard weights, gradients and moments as train --zero Z does on this mesh [default: keep the
    /// sharding on the remaining axes]
    #[arg(long, value_name = "Z", value_parser = clap::value_parser!(u8).range(..=3))]
    zero: Option<u8>,
    /// Folder of checkpoints to write the new checkpoint into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct ExportOptions {
    /// Folder of a checkpoint or of a run
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Folder to write the model into, new or empty; adapters are merged into the weights
    #[arg(long, value_name = "OUT", required_unless_present = "adapter")]
    hf: Option<PathBuf>,
    /// Folder to write the adapters of a run with --lora into, in the format of peft
    #[arg(long, value_name = "OUT")]
    adapter: Option<PathBuf>,
    /// Element type of the weights
    #[arg(long, value_enum, default_value = "bf16", value_name = "TYPE")]
    dtype: WeightType,
    /// Folder of the original model, with config.json and tokenizer [default: the folder in the
    /// state of the run]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct QuantiseOptions {
    /// Folder of a model with float weights
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Format of the weights: w8a8-dynamic as msModelSlim writes it, or w4a16-g32, w4a16-g64 or
    /// w4a16-g128 as compressed-tensors writes them
    #[arg(long, value_name = "FORMAT")]
    format: QuantisedFormat,
    /// Folder to write the model into, new or empty
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WeightType {
    F32,
    F16,
    Bf16,
}

const MODEL: &str = "model";

const RECIPE: &str = "recipe";

/// Parses mesh axes such as `dp=2,tp=4`.
fn mesh(text: &str) -> Result<Mesh, String> {
    let axis = |axis: &'_ str| {
        let (name, size) = axis.split_once('=')?;
        Some((name.trim().to_owned(), size.trim().parse().ok()?))
    };
    let axes: Vec<(String, usize)> = text
        .split(',')
        .map(axis)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("expected axes with their cards such as dp=2,tp=4, found {text}"))?;
    let axes: Vec<(&str, usize)> = axes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    Mesh::new(&axes).map_err(|error| error.to_string())
}

pub(super) fn run(command: &CheckpointCommand) -> Result<Outcome, Failure> {
    match command {
        CheckpointCommand::Inspect(options) => inspect(options),
        CheckpointCommand::Verify(options) => verify(options),
        CheckpointCommand::Reshard(options) => cut(options),
        CheckpointCommand::Export(options) => export_model(options),
        CheckpointCommand::Quantise(options) => quantise::run(options),
    }
}

fn inspect(options: &CheckpointInspectOptions) -> Result<Outcome, Failure> {
    let checkpoint = Checkpoint::named(&options.path)?;
    if options.json {
        #[derive(Serialize)]
        struct CheckpointReport<'a> {
            path: String,
            #[serde(flatten)]
            index: &'a Index,
        }
        print_json(&CheckpointReport {
            path: checkpoint.path().display().to_string(),
            index: checkpoint.index(),
        })?;
        return Ok(Outcome::Done);
    }
    let index = checkpoint.index();
    let mut table = terminal::table([
        ("tensor", Align::Left),
        ("type", Align::Left),
        ("shape", Align::Left),
        ("layout", Align::Left),
        ("parts", Align::Right),
        ("bytes", Align::Right),
    ])
    .optional(["type", "parts"]);
    for (name, tensor) in &index.tensors {
        table.row([
            name.clone(),
            tensor.dtype.clone(),
            tensor.shape().to_string(),
            format!("{{{}}}", tensor.layout),
            tensor.parts.len().to_string(),
            bytes(tensor).to_string(),
        ]);
    }
    let state = serde_json::to_string_pretty(&index.state).map_err(|error| Failure::Run(error.into()))?;
    print_report(&format!(
        "{}\n  step {}, {}, {} files, {}, {} tensors\n\n{table}\n  state {}\n",
        checkpoint.path().display(),
        index.step,
        index.mesh,
        index.files.len(),
        checkpoint.bytes(),
        index.tensors.len(),
        state.replace('\n', "\n  "),
    ))?;
    Ok(Outcome::Done)
}

fn bytes(tensor: &TensorRecord) -> Bytes {
    Bytes::of(tensor.shape().elems(), tensor.dtype().map_or(0, DType::size_bytes))
}

fn verify(options: &CheckpointVerifyOptions) -> Result<Outcome, Failure> {
    let checkpoint = Checkpoint::named(&options.path)?;
    checkpoint.verify()?;
    let (path, index) = (checkpoint.path().display(), checkpoint.index());
    let text = format!(
        "{path}: step {}, {} files, {}: verified\n",
        index.step,
        index.files.len(),
        checkpoint.bytes()
    );
    print_report(&text)?;
    Ok(Outcome::Done)
}

fn cut(options: &ReshardOptions) -> Result<Outcome, Failure> {
    let checkpoint = Checkpoint::named(&options.path)?;
    files::check_folder("--out", &options.out).map_err(Diagnostics::from)?;
    let sharding = match options.zero.and_then(Zero::of_stage) {
        None => {
            // An exact run must be able to continue from the new checkpoint.
            if train::is_exact(&checkpoint) {
                train::sharding(&checkpoint, &options.mesh, Zero::None)?;
            }
            stored_layouts_on(&checkpoint, &options.mesh)?
        }
        Some(zero) => train::sharding(&checkpoint, &options.mesh, zero)?,
    };
    let saved = reshard(&checkpoint, &sharding, &options.out)?;
    note(&format!("{} → {}", checkpoint.index().mesh, sharding.mesh()));
    print_report(&format!("{}: {} in {} files\n", saved.path.display(), saved.bytes, sharding.world()))?;
    Ok(Outcome::Done)
}

fn export_model(options: &ExportOptions) -> Result<Outcome, Failure> {
    let checkpoint = Checkpoint::named(&options.path)?;
    let stated = || checkpoint.index().state.get(MODEL)?.as_str().map(PathBuf::from);
    let Some(model) = options.model.clone().or_else(stated) else {
        return Err(Diagnostics::from(
            Diagnostic::new(
                checkpoint.path().display().to_string(),
                "the state of the run does not name the model's folder",
            )
            .help("pass --model DIR"),
        )
        .into());
    };
    let dtype = match options.dtype {
        WeightType::F32 => DType::F32,
        WeightType::F16 => DType::F16,
        WeightType::Bf16 => DType::BF16,
    };
    let lora = checkpoint
        .index()
        .state
        .get(RECIPE)
        .and_then(|recipe| recipe.get("lora"))
        .filter(|lora| !lora.is_null());
    let unreadable = |error| {
        Diagnostic::new(checkpoint.path().display().to_string(), "the recipe cannot be read").found(error)
    };
    let lora = lora
        .map(|lora| Lora::deserialize(lora).map_err(unreadable))
        .transpose()
        .map_err(Diagnostics::from)?;
    if let Some(out) = &options.adapter {
        let place = checkpoint.path().display().to_string();
        let no_run = || {
            Diagnostics::from(Diagnostic::new(place, "the run has no adapters").help("leave --adapter out"))
        };
        say(&export_adapter(&checkpoint, &model, lora.as_ref().ok_or_else(no_run)?, out)?, DType::F32)?;
    }
    if let Some(out) = &options.hf {
        say(&export(&checkpoint, &model, lora.as_ref(), dtype, out)?, dtype)?;
    }
    Ok(Outcome::Done)
}

fn say(exported: &Exported, dtype: DType) -> Result<(), Failure> {
    let Exported { path, tensors, bytes, files } = exported;
    print_report(&format!(
        "{}: {tensors} weights in {dtype}, {bytes}: {}\n",
        path.display(),
        files.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_is_its_axes() {
        assert_eq!(mesh("dp=2,tp=4").unwrap().to_string(), "mesh dp=2, tp=4");
        assert_eq!(mesh("tp=3").unwrap().cards(), 3);
        for (text, expected) in [
            ("dp2", "expected axes with their cards such as dp=2,tp=4, found dp2"),
            ("", "expected axes with their cards"),
            ("dp=2,", "expected axes with their cards"),
            ("dp=0", "mesh axis `dp` has size 0"),
            ("dp=2,dp=2", "mesh axis `dp` is given twice"),
            ("d p=2", "mesh axis `d p`"),
        ] {
            let message = mesh(text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
