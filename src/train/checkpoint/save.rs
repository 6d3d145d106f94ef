//! Writing of one checkpoint.
//!
//! Each process writes the files of its ranks into a hidden folder. After all files are on disk,
//! the first process writes the index, syncs the folder and renames it.
//!
//! After a failure at any point, the folder with the final name is complete or absent, and older
//! checkpoints are unchanged. If one process fails, all processes fail.

use std::borrow::Cow;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::index::{FileRecord, INDEX, Index, PartRecord, SourceRecord, TensorRecord};
use super::rank_file::RankFile;
use super::sharding::{ShardedTensor, Sharding};
use super::storage::Storage;
use super::{Error, folder};
use crate::base::{Bytes, Diagnostic};
use crate::world::ProcessGroup;

/// Function that returns the bytes of a rank's part, row-major.
pub(super) type BytesOf<'a> =
    &'a (dyn Fn(usize, &ShardedTensor, &[Range<usize>]) -> Result<Cow<'a, [u8]>, Error> + 'a);

#[derive(Clone, Copy, Debug)]
pub(super) struct SaveFolder<'a> {
    pub(super) folder: &'a Path,
    /// Number of checkpoints to keep, or all.
    pub(super) keep: Option<NonZero<usize>>,
    pub(super) storage: &'a dyn Storage,
    pub(super) group: &'a ProcessGroup,
}

/// A completely written checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Number of completed steps of the run.
    pub step: u64,
    /// Folder of the checkpoint, such as `step-00000100`.
    pub path: PathBuf,
    /// Total size of the files of all ranks.
    pub bytes: Bytes,
    /// Duration until the final folder name.
    pub took: Duration,
}

/// Writes a checkpoint. All processes call this function together.
pub(super) fn save(
    place: SaveFolder<'_>,
    sharding: &Sharding,
    step: u64,
    state: &Value,
    bytes_of: BytesOf<'_>,
) -> Result<Saved, Error> {
    let _span = tracing::info_span!("write_checkpoint", step).entered();
    let began = Instant::now();
    let SaveFolder { folder, storage, group, .. } = place;
    let partial = folder.join(folder::partial_name(step));
    let is_first = group.is_first();
    let begun = if is_first { begin(folder, &partial, storage) } else { Ok(()) };
    agree(group, "that a checkpoint is begun", begun)?;
    let written = match write(&partial, storage, group, sharding, step, bytes_of) {
        // The exchange below reports the error to other processes.
        Err(error) if is_first => {
            // A failed removal is repeated before the next checkpoint.
            let _left = storage.remove_folder(&partial);
            Err(error)
        }
        written => written,
    };
    let files: Vec<FileRecord> =
        agree(group, "the files of a checkpoint", written)?.into_iter().flatten().collect();
    let bytes = files.iter().map(|file| Bytes(file.bytes)).sum();
    let completed = if is_first { complete(place, &partial, sharding, step, state, files) } else { Ok(()) };
    agree(group, "that a checkpoint is complete", completed)?;
    Ok(Saved { step, path: folder.join(folder::name(step)), bytes, took: began.elapsed() })
}

pub(super) fn ranks_here(group: &ProcessGroup, world: usize) -> Range<usize> {
    if group.size() == 1 { 0..world } else { group.rank()..group.rank() + 1 }
}

fn begin(folder: &Path, partial: &Path, storage: &dyn Storage) -> Result<(), Error> {
    let failed = |what: &'static str| move |error: io::Error| Error::write(folder, what, &error);
    folder::clear(folder, storage)
        .map_err(failed("the rest of an unfinished checkpoint cannot be removed"))?;
    storage.create_folder(partial).map_err(failed("no checkpoint can be written here"))
}

fn write(
    partial: &Path,
    storage: &dyn Storage,
    group: &ProcessGroup,
    sharding: &Sharding,
    step: u64,
    bytes_of: BytesOf<'_>,
) -> Result<Vec<FileRecord>, Error> {
    let ranks = ranks_here(group, sharding.world());
    ranks.map(|rank| RankFile::new(sharding, rank, step)?.write(partial, storage, bytes_of)).collect()
}

/// Writes the index, renames the folder and removes surplus checkpoints.
fn complete(
    place: SaveFolder<'_>,
    partial: &Path,
    sharding: &Sharding,
    step: u64,
    state: &Value,
    files: Vec<FileRecord>,
) -> Result<(), Error> {
    let SaveFolder { folder, storage, .. } = place;
    let index = index(sharding, step, state, files)?;
    let path = partial.join(INDEX);
    let failed = |error: io::Error| Error::write(&path, "cannot be written", &error);
    let text = index.sealed().map_err(|error| failed(error.into()))?;
    let mut file = storage.create(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync().map_err(failed)?;
    drop(file);
    storage.sync_folder(partial).map_err(failed)?;

    let named = folder.join(folder::name(step));
    let failed = |error: io::Error| Error::write(&named, "cannot take its name", &error);
    // A run that went back to an earlier step writes a step again.
    let is_again = named.exists();
    let take_name = if is_again { Storage::exchange } else { Storage::rename };
    take_name(storage, partial, &named).map_err(failed)?;
    storage.sync_folder(folder).map_err(failed)?;
    // The new checkpoint is durable now.
    if is_again {
        storage.remove_folder(partial).map_err(failed)?;
    }
    let Some(keep) = place.keep else { return Ok(()) };
    folder::keep_newest(folder, step, keep.get(), storage)
        .map_err(|error| Error::write(folder, "earlier checkpoints cannot be removed", &error))
}

fn index(sharding: &Sharding, step: u64, state: &Value, files: Vec<FileRecord>) -> Result<Index, Error> {
    let record = |tensor: &ShardedTensor| TensorRecord {
        shape: tensor.shape.to_vec(),
        dtype: tensor.dtype.name().to_owned(),
        layout: tensor.layout.clone(),
        source: tensor.source.as_ref().map(SourceRecord::of),
        parts: Vec::new(),
    };
    let mut tensors: std::collections::BTreeMap<String, TensorRecord> =
        sharding.tensors().iter().map(|tensor| (tensor.name.clone(), record(tensor))).collect();
    for (rank, written) in files.iter().enumerate() {
        let file = RankFile::new(sharding, rank, step)?;
        if (&file.name, file.bytes) != (&written.name, written.bytes) {
            return Err(Diagnostic::new(
                format!("rank {rank}"),
                "the processes have different layouts of tensors",
            )
            .expected(format!("{} of {} bytes", file.name, file.bytes))
            .found(format!("{} of {} bytes", written.name, written.bytes))
            .into());
        }
        for (tensor, ranges, at) in file.parts {
            let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
            if let Some(record) = tensors.get_mut(&tensor.name) {
                record.parts.push(PartRecord { file: rank, at, ranges });
            }
        }
    }
    Ok(Index::new(step, sharding.mesh(), files, tensors, state.clone()))
}

/// Exchanges the result of a stage with all processes. Returns the results by rank, or any failure.
pub(super) fn agree<T: Serialize + DeserializeOwned>(
    group: &ProcessGroup,
    subject: &str,
    mine: Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let unreadable =
        |error: serde_json::Error| Error::Write(Diagnostic::new(subject, "cannot be said").found(error));
    let text = serde_json::to_vec(&mine.as_ref().map_err(ToString::to_string)).map_err(unreadable)?;
    let all = group.exchange_aside(subject, text);
    mine?;
    let mut given = Vec::new();
    for (rank, text) in all?.into_iter().enumerate() {
        match serde_json::from_slice::<Result<T, String>>(&text).map_err(unreadable)? {
            Ok(one) => given.push(one),
            Err(text) => return Err(Error::Write(Diagnostic::new(format!("rank {rank}"), text))),
        }
    }
    Ok(given)
}
