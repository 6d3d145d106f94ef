//! Safetensors file with the shards of one rank.
//!
//! Every process can compute the position of each part without the file. The same parts give the
//! same bytes. The metadata describes the tensors of the parts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_128::Hasher;

use super::Error;
use super::index::{FORMAT, FileRecord, Index, digits};
use super::save::BytesOf;
use super::sharding::{ShardedTensor, Sharding};
use super::storage::Storage;
use crate::base::Diagnostic;
use crate::weights::folder::{header, stored};

/// Only metadata key, with a [`RankFileHeader`].
const KEY: &str = "ascend-tp";

/// Bytes that are hashed and transferred at a time, so that they stay in the cache.
const PIECE_BYTES: usize = 256 << 10;

/// Size of the length field.
const LENGTH_BYTES: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct RankFileHeader {
    format: u32,
    step: u64,
    rank: usize,
    world: usize,
    mesh: String,
    tensors: BTreeMap<String, PartPlace>,
}

/// Position of a part in its tensor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartPlace {
    /// Shape of the whole tensor.
    shape: Vec<usize>,
    /// First element by dim.
    offset: Vec<usize>,
    layout: String,
}

#[derive(Debug)]
pub(super) struct RankFile<'a> {
    /// File name like `rank-00003-of-00008.safetensors`.
    pub(super) name: String,
    rank: usize,
    /// Length field and header.
    header: Vec<u8>,
    /// Parts in file order, with byte offsets.
    pub(super) parts: Vec<(&'a ShardedTensor, &'a [Range<usize>], u64)>,
    pub(super) bytes: u64,
}

impl<'a> RankFile<'a> {
    pub(super) fn new(sharding: &'a Sharding, rank: usize, step: u64) -> Result<Self, Diagnostic> {
        let world = sharding.world();
        let name = format!("rank-{rank:05}-of-{world:05}.safetensors");
        let mut parts: Vec<_> = sharding.written_by(rank).collect();
        // Stable, so equal sizes stay sorted by name.
        parts.sort_by_key(|(tensor, _)| std::cmp::Reverse(tensor.dtype.size_bytes()));
        let place = |(tensor, ranges): &(&ShardedTensor, &[Range<usize>])| {
            let offset = ranges.iter().map(|range| range.start).collect();
            (
                tensor.name.clone(),
                PartPlace { shape: tensor.shape.to_vec(), offset, layout: tensor.layout.clone() },
            )
        };
        let tensors = parts.iter().map(place).collect();
        let mesh = sharding.mesh().to_string();
        let description = RankFileHeader { format: FORMAT, step, rank, world, mesh, tensors };
        let mut end = 0;
        let mut entries = Vec::with_capacity(parts.len());
        let mut starts = Vec::with_capacity(parts.len());
        for (tensor, ranges) in &parts {
            let bytes = tensor.part_bytes(ranges);
            let shape = ranges.iter().map(ExactSizeIterator::len).collect();
            let info = TensorInfo { dtype: stored(tensor.dtype), shape, data_offsets: (end, end + bytes) };
            entries.push((tensor.name.clone(), info));
            starts.push(end as u64);
            end += bytes;
        }
        let unwritable =
            |error: &dyn std::fmt::Display| Diagnostic::new(&name, "no header can hold this").found(error);
        let description = serde_json::to_string(&description).map_err(|error| unwritable(&error))?;
        let header = header(KEY, description, entries).map_err(|error| unwritable(&error))?;
        let data = header.len() as u64;
        let parts = parts
            .into_iter()
            .zip(starts)
            .map(|((tensor, ranges), start)| (tensor, ranges, data + start))
            .collect();
        Ok(Self { name, rank, header, parts, bytes: data + end as u64 })
    }

    /// Writes the file and syncs it to disk.
    pub(super) fn write(
        &self,
        folder: &Path,
        storage: &dyn Storage,
        bytes_of: BytesOf<'_>,
    ) -> Result<FileRecord, Error> {
        let path = folder.join(&self.name);
        let failed = |error: io::Error| Error::write(&path, "cannot be written", &error);
        let mut file = storage.create(&path).map_err(failed)?;
        let mut hasher = Hasher::new();
        let mut put = |bytes: &[u8]| {
            bytes.chunks(PIECE_BYTES).try_for_each(|piece| {
                hasher.write(piece);
                file.write_all(piece)
            })
        };
        put(&self.header).map_err(failed)?;
        for (tensor, ranges, _) in &self.parts {
            let bytes = bytes_of(self.rank, tensor, ranges)?;
            if bytes.len() != tensor.part_bytes(ranges) {
                return Err(Diagnostic::new(
                    format!("rank {}: {}", self.rank, tensor.name),
                    "not the bytes of the part",
                )
                .expected(format!("{} bytes", tensor.part_bytes(ranges)))
                .found(format!("{} bytes", bytes.len()))
                .into());
            }
            put(&bytes).map_err(failed)?;
        }
        file.sync().map_err(failed)?;
        Ok(FileRecord { name: self.name.clone(), bytes: self.bytes, digest: digits(&hasher) })
    }
}

pub(super) fn digest_of(file: &File, bytes: u64) -> io::Result<String> {
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        file.read_exact_at(&mut piece[..length], at)?;
        hasher.write(&piece[..length]);
        at += length as u64;
    }
    Ok(digits(&hasher))
}

/// Returns a problem if a header does not match the index.
pub(super) fn header_problem(file: &File, index: &Index, number: usize) -> io::Result<Option<Diagnostic>> {
    let mut length = [0; LENGTH_BYTES];
    file.read_exact_at(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let longest = index.files[number].bytes.saturating_sub(LENGTH_BYTES as u64);
    let mut text = vec![0; usize::try_from(length.min(longest)).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut text, LENGTH_BYTES as u64)?;
    let problem = |what: &str| Some(Diagnostic::new(&index.files[number].name, what));
    let Ok(header) = serde_json::from_slice::<Metadata>(&text) else {
        return Ok(problem("no header of safetensors"));
    };
    let description = header.metadata().as_ref().and_then(|metadata| metadata.get(KEY));
    let Some(description) = description.and_then(|text| serde_json::from_str::<RankFileHeader>(text).ok())
    else {
        return Ok(problem("the header does not name the checkpoint of the file"));
    };
    let data = LENGTH_BYTES as u64 + length;
    let mut expected = BTreeMap::new();
    for (name, tensor) in &index.tensors {
        for part in tensor.parts.iter().filter(|part| part.file == number) {
            let (starts, sizes): (Vec<usize>, Vec<usize>) =
                part.ranges.iter().map(|(start, end)| (*start, end - start)).unzip();
            let place =
                PartPlace { shape: tensor.shape.clone(), offset: starts, layout: tensor.layout.clone() };
            expected.insert(name.as_str(), (part.at, tensor.dtype().map(stored), sizes, place));
        }
    }
    let described: BTreeMap<&str, _> = description
        .tensors
        .into_iter()
        .filter_map(|(name, place)| {
            let (name, _) = index.tensors.get_key_value(&name)?;
            let info = header.info(name)?;
            Some((
                name.as_str(),
                (data + info.data_offsets.0 as u64, Some(info.dtype), info.shape.clone(), place),
            ))
        })
        .collect();
    let is_of = (description.step, description.rank, description.world) == (index.step, number, index.world);
    let is_same = is_of && described == expected && header.tensors().len() == expected.len();
    Ok(if is_same { None } else { problem("the header lists other parts than the index") })
}
