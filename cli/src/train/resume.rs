//! The checkpoint that a run continues from, and the state stored in checkpoints.
//!
//! A damaged checkpoint is skipped only on request or by a restart. A run with checkpoints never
//! starts from the beginning.

use std::path::{Path, PathBuf};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::generate::Model;
use ascend_tp::placement::Mesh;
use ascend_tp::schedule::Target;
use ascend_tp::train::checkpoint::{
    self, Checkpoint, DamagedCheckpoint, Sharding, UndamagedCheckpoint, newest_undamaged,
};
use ascend_tp::train::data::LoaderState;
use ascend_tp::train::{Layout, Progress, Recipe, Zero, compile};
use ascend_tp::world::ProcessGroup;
use serde::{Deserialize, Serialize};

use super::super::failure::Failure;
use super::super::{files, note};
use super::mesh::{MeshAxes, mesh};
use super::{TrainOptions, restarts};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptState {
    /// The folder of the original model.
    pub(super) model: PathBuf,
    pub(super) recipe: Recipe,
    pub(super) data: LoaderState,
    pub(super) progress: Progress,
}

#[derive(Default)]
pub(super) struct Resumed {
    pub(super) checkpoint: Option<(Checkpoint, KeptState)>,
    pub(super) skipped: Vec<DamagedCheckpoint>,
    pub(super) problems: Diagnostics,
}

impl Resumed {
    /// Finds the checkpoint in the folder of `--save`. All processes must call this function.
    pub(super) fn find(options: &TrainOptions, group: &ProcessGroup) -> Result<Self, Failure> {
        let mut resumed = Self::default();
        let Some(folder) = &options.save else { return Ok(resumed) };
        let skips = options.resume && (options.skip_damaged || restarts::is_unattended(options));
        let newest = if skips { newest_undamaged(folder, group) } else { newest(folder).map_err(Into::into) };
        let newest = match newest {
            Ok(newest) => newest,
            Err(checkpoint::Error::Refused(problems)) => {
                resumed.problems = problems;
                None
            }
            Err(error) => return Err(error.into()),
        };
        let Some(UndamagedCheckpoint { checkpoint, skipped }) = newest else { return Ok(resumed) };
        if !options.resume {
            let problem = Diagnostic::new("--save", "the folder contains checkpoints of a run");
            let help = "continue the run with --resume, or choose another folder";
            resumed.problems.push(problem.found(checkpoint.path().display()).help(help));
        }
        match kept(&checkpoint) {
            Ok(kept) => resumed.checkpoint = Some((checkpoint, kept)),
            Err(problem) => resumed.problems.push(problem),
        }
        resumed.skipped = skipped;
        Ok(resumed)
    }
}

/// Returns the newest checkpoint of a folder. It must open; its files are checked when they are
/// read.
fn newest(folder: &Path) -> Result<Option<UndamagedCheckpoint>, Diagnostics> {
    let stored = checkpoint::stored(folder)
        .map_err(|error| Diagnostic::new(folder.display().to_string(), "cannot be read").found(error))?;
    let Some((_, path)) = stored.last() else { return Ok(None) };
    Ok(Some(UndamagedCheckpoint { checkpoint: Checkpoint::open(path)?, skipped: Vec::new() }))
}

/// Checks that checkpoints can be written into a folder. The folder need not exist.
pub(super) fn check_save(folder: &Path) -> Result<(), Diagnostic> {
    // The parent of a relative path such as `a` is the working folder.
    let above = folder.ancestors().find(|above| above.try_exists().unwrap_or(true)).unwrap_or(Path::new("."));
    files::check_folder("--save", above)
}

fn kept(checkpoint: &Checkpoint) -> Result<KeptState, Diagnostic> {
    serde_json::from_value(checkpoint.index().state.clone()).map_err(|error| {
        let place = checkpoint.path().display().to_string();
        Diagnostic::new(place, "the state is not from a training run").found(error)
    })
}

/// Returns whether a checkpoint is from a run with a fixed order of sums.
pub(crate) fn is_exact(checkpoint: &Checkpoint) -> bool {
    kept(checkpoint).is_ok_and(|kept| kept.recipe.exact)
}

/// Returns the sharding of a run that continues from a checkpoint on another mesh.
pub(crate) fn sharding(checkpoint: &Checkpoint, on: &Mesh, zero: Zero) -> Result<Sharding, Failure> {
    let axes: Vec<String> = on.axes().iter().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
    let MeshAxes { stages, data, expert, replicas, context, tensor, grid } =
        mesh(Some(&axes.join(",")), on.cards()).map_err(Diagnostics::from)?;
    let KeptState { model, mut recipe, .. } = kept(checkpoint).map_err(Diagnostics::from)?;
    let micro_batch = grid.depth;
    let cards = Layout { data, expert, replicas, context, tensor, grid, stages, ..Layout::ONE };
    let layout = Layout { zero, micro_batch, ..cards };
    // The number of micro-batches does not affect a checkpoint, so use the minimum of any pipeline
    // order.
    recipe.global_batch = layout.batch() * stages;
    Ok(compile(&Model::open_config(&model)?, &recipe, &layout, Target::ANY)?.sharding)
}

/// Renames damaged checkpoints, so that later runs ignore them, and notes the new names. The run
/// continues from step `first`.
pub(super) fn set_aside(skipped: &[DamagedCheckpoint], first: usize) -> Result<(), Failure> {
    for DamagedCheckpoint { path, problems } in skipped {
        let aside = checkpoint::set_aside(path)?;
        let (path, aside, problems) = (path.display(), aside.display(), problems.join(", "));
        note(&format!("{path} is damaged ({problems}): renamed to {aside}; continues from step {first}"));
    }
    Ok(())
}
