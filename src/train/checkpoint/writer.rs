//! Writer that saves checkpoints in the background.
//!
//! At most one checkpoint is being written, and the next one waits for it. Each outcome is returned
//! once, by the next call that asks for it. Dropping a writer waits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;

use super::Error;
use super::save::{SaveFolder, Saved, ranks_here, save};
use super::sharding::{ShardedTensor, Sharding};
use super::storage::{Disk, Storage};
use crate::base::{Diagnostic, Diagnostics};
use crate::world::ProcessGroup;

/// Bytes of a rank's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartBytes {
    /// Rank that holds the part.
    pub rank: usize,
    /// Name of the whole tensor.
    pub tensor: String,
    /// Elements, row-major and little-endian.
    pub bytes: Vec<u8>,
}

/// Writer of a run's checkpoints. Every process of the group makes the same calls.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # use ascend_tp::train::Recipe;
/// # use ascend_tp::{Cann, ModelConfig};
/// use std::num::NonZero;
/// use std::sync::Arc;
///
/// use ascend_tp::train::{Trainer, Writer};
/// use ascend_tp::{ProcessGroup, World};
///
/// # let cann = Cann::new(Emulator::new(Config::with_cards(1))?.table())?;
/// # let config = std::fs::read_to_string("models/tiny-qwen2/config.json")?;
/// # let config = ModelConfig::from_json(&config)?;
/// # let recipe = Recipe { steps: 2, global_batch: 2, seq: 8, ..Recipe::default() };
/// # let folder = tempfile::tempdir()?;
/// let mut trainer = Trainer::of_seed(&cann, &config, 7).recipe(recipe).start()?;
/// let group = Arc::new(ProcessGroup::join(&World::alone())?);
/// let sharding = trainer.sharding().clone();
/// let mut writer = Writer::new(folder.path(), NonZero::new(3), sharding, group)?;
/// let progress = trainer.progress();
/// let state = serde_json::to_value(progress)?;
/// writer.begin(progress.next as u64, state, trainer.checkpoint_parts()?)?;
/// writer.finish()?; // Training can continue until here.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    keep: Option<NonZero<usize>>,
    sharding: Arc<Sharding>,
    group: Arc<ProcessGroup>,
    storage: Arc<dyn Storage>,
    under_way: Option<JoinHandle<Result<Saved, Error>>>,
}

impl Writer {
    /// Creates a writer in `folder`. The newest `keep` checkpoints stay, or all.
    ///
    /// # Errors
    /// The group has neither one process nor one per rank.
    pub fn new(
        folder: &Path,
        keep: Option<NonZero<usize>>,
        sharding: Sharding,
        group: Arc<ProcessGroup>,
    ) -> Result<Self, Error> {
        Self::on(Arc::new(Disk), folder, keep, sharding, group)
    }

    fn on(
        storage: Arc<dyn Storage>,
        folder: &Path,
        keep: Option<NonZero<usize>>,
        sharding: Sharding,
        group: Arc<ProcessGroup>,
    ) -> Result<Self, Error> {
        let (size, world) = (group.size(), sharding.world());
        if size != 1 && size != world {
            return Err(Diagnostic::new(
                sharding.mesh().to_string(),
                "neither one process nor one for each rank",
            )
            .expected(format!("1 or {world} processes"))
            .found(format!("{size} processes"))
            .into());
        }
        let (folder, sharding) = (folder.to_path_buf(), Arc::new(sharding));
        Ok(Self { folder, keep, sharding, group, storage, under_way: None })
    }

    /// Returns the parts that this process writes: rank, tensor and ranges.
    #[doc(hidden)]
    pub fn parts(&self) -> impl Iterator<Item = (usize, &ShardedTensor, &[Range<usize>])> {
        let written_by =
            |rank| self.sharding.written_by(rank).map(move |(tensor, part)| (rank, tensor, part));
        ranks_here(&self.group, self.sharding.world()).flat_map(written_by)
    }

    /// Starts the checkpoint of a step with the bytes of [`Writer::parts`]. The first process'
    /// `state` is stored. Returns the previous checkpoint, unless an earlier call did.
    ///
    /// # Errors
    /// The previous checkpoint failed, or the parts do not match. Nothing is started then.
    pub fn begin(&mut self, step: u64, state: Value, parts: Vec<PartBytes>) -> Result<Option<Saved>, Error> {
        let before = self.finish()?;
        let parts = self.checked(parts)?;
        let (folder, keep) = (self.folder.clone(), self.keep);
        let (sharding, group, storage) = (self.sharding.clone(), self.group.clone(), self.storage.clone());
        let body = move || {
            let bytes_of = |rank: usize, tensor: &ShardedTensor, _: &[Range<usize>]| match parts
                .get(&(rank, tensor.name.clone()))
            {
                Some(bytes) => Ok(Cow::Borrowed(bytes.as_slice())),
                None => {
                    Err(Diagnostic::new(format!("rank {rank}: {}", tensor.name), "no bytes were given")
                        .into())
                }
            };
            let place = SaveFolder { folder: &folder, keep, storage: &*storage, group: &group };
            save(place, &sharding, step, &state, &bytes_of)
        };
        let started = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(body);
        self.under_way =
            Some(started.map_err(|error| Error::write(&self.folder, "no thread to write it", &error))?);
        Ok(before)
    }

    /// Returns a checkpoint completed since the last call, without waiting.
    ///
    /// # Errors
    /// The checkpoint failed.
    #[doc(hidden)]
    pub fn poll(&mut self) -> Result<Option<Saved>, Error> {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) { self.finish() } else { Ok(None) }
    }

    /// Waits for the current checkpoint.
    ///
    /// # Errors
    /// The checkpoint failed.
    pub fn finish(&mut self) -> Result<Option<Saved>, Error> {
        let Some(thread) = self.under_way.take() else { return Ok(None) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(Some)
    }

    /// Returns the bytes by rank and tensor.
    fn checked(&self, parts: Vec<PartBytes>) -> Result<BTreeMap<(usize, String), Vec<u8>>, Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut expected: BTreeMap<(usize, String), usize> = self
            .parts()
            .map(|(rank, tensor, part)| ((rank, tensor.name.clone()), tensor.part_bytes(part)))
            .collect();
        let mut given = BTreeMap::new();
        for PartBytes { rank, tensor, bytes } in parts {
            let key = (rank, tensor);
            let place = || format!("rank {rank}: {}", key.1);
            match expected.remove(&key) {
                Some(length) if length == bytes.len() => drop(given.insert(key, bytes)),
                Some(length) => problems.push(
                    Diagnostic::new(place(), "not the bytes of the part")
                        .expected(format!("{length} bytes"))
                        .found(format!("{} bytes", bytes.len())),
                ),
                None => {
                    problems.push(Diagnostic::new(place(), "not a part of this process, or written twice"));
                }
            }
        }
        for ((rank, tensor), _) in expected {
            problems.push(Diagnostic::new(format!("rank {rank}: {tensor}"), "a part is missing"));
        }
        problems.into_result(given)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.under_way.take() {
            // Callers that need the outcome call `finish`.
            let _outcome = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
