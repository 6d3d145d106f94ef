//! Access to the weights and states of the local ranks in device memory, for several threads at
//! once.
//!
//! Invariants: a write stays within its part. No write starts after a stop request or the failure
//! of another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::{Error, RankError};
use super::tensors::NamedTensors;
use crate::base::Bytes;
use crate::device::{Buffer, BufferSlice};
use crate::schedule::plan::{Plan, Slot, Tensor};
use crate::world::ProcessGroup;

#[derive(Debug)]
pub(super) struct LoadedShard {
    pub(super) plan: Arc<Plan>,
    pub(super) card: usize,
    pub(super) weights: Buffer,
    pub(super) states: Buffer,
}

/// Stops loading: a request of the caller, or a failure of another process.
#[derive(Debug)]
pub(super) struct LoadStop {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) group: Arc<ProcessGroup>,
}

impl LoadStop {
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        self.group.failure_within(Duration::ZERO).map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// Local shards of each weight and state.
#[derive(Debug)]
pub struct Shards<'a> {
    weights: Vec<Vec<Part<'a>>>,
    states: Vec<Vec<Part<'a>>>,
}

/// A rank's shard of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    tensor: &'a Tensor,
    slot: Slot,
    shard: &'a LoadedShard,
    memory: &'a Buffer,
    stop_signal: &'a LoadStop,
}

impl<'a> Shards<'a> {
    pub(super) fn new(shards: &'a [LoadedShard], stop_signal: &'a LoadStop) -> Self {
        let part = |shard: &'a LoadedShard, tensor: &'a Tensor, memory| {
            let slot = shard.plan.slot(tensor);
            Part { tensor, slot, shard, memory, stop_signal }
        };
        let all = |of: fn(&Plan) -> &[Tensor], memory: fn(&LoadedShard) -> &Buffer| {
            let count = shards.first().map_or(0, |shard| of(&shard.plan).len());
            let parts = |at: usize| {
                shards.iter().map(|shard| part(shard, &of(&shard.plan)[at], memory(shard))).collect()
            };
            (0..count).map(parts).collect()
        };
        Self {
            weights: all(|plan| &plan.params, |shard| &shard.weights),
            states: all(|plan| &plan.states, |shard| &shard.states),
        }
    }

    /// Returns the parts of each weight, in program order and by rank.
    #[must_use]
    pub fn weights(&self) -> &[Vec<Part<'a>>] {
        &self.weights
    }

    /// Returns the parts of each state, in program order and by rank.
    #[must_use]
    pub fn states(&self) -> &[Vec<Part<'a>>] {
        &self.states
    }

    /// Selects weights; keeps all states.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&Tensor) -> bool) -> Self {
        let is_wanted = |parts: &&Vec<Part<'a>>| parts.first().is_some_and(|part| is_wanted(part.tensor));
        Self {
            weights: self.weights.iter().filter(is_wanted).cloned().collect(),
            states: self.states.clone(),
        }
    }

    /// Writes whole tensors to all weights. States are optional.
    ///
    /// # Errors
    /// - Weights are missing, unknown, or have another shape or type; all are reported before any
    ///   write.
    /// - A device failed.
    pub fn fill(&self, tensors: &NamedTensors) -> Result<(), Error> {
        let first = |parts: &'_ Vec<Part<'a>>| parts.first().map(|part| part.tensor);
        let weights: Vec<&Tensor> = self.weights.iter().filter_map(first).collect();
        let states: Vec<&Tensor> = self.states.iter().filter_map(first).collect();
        let given = tensors.in_order("weight", &weights, &states)?;
        for (parts, whole) in self.weights.iter().chain(&self.states).zip(given) {
            let Some(whole) = whole else { continue };
            parts.iter().try_for_each(|part| part.write(0, &part.tensor.cut(&whole)))?;
        }
        Ok(())
    }

    /// Iterates over all weight parts.
    pub fn parts(&self) -> impl Iterator<Item = &Part<'a>> {
        self.weights.iter().flatten()
    }

    /// Sums the weight parts.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.parts().map(|part| part.slot.bytes).sum()
    }
}

impl Part<'_> {
    /// Returns the rank of this shard.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shard.plan.rank
    }

    /// Returns the weight or state, with this shard's ranges.
    #[must_use]
    pub const fn tensor(&self) -> &Tensor {
        self.tensor
    }

    /// Writes at an offset of the part.
    ///
    /// # Errors
    /// The device failed, or work must stop.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let to = self.place(offset, bytes.len())?;
        self.memory.write(to.start(), bytes).map_err(|source| self.failed("loading", source.into()))
    }

    /// Device memory of a byte range. Fails if the range is outside the part or work must stop.
    pub(super) fn place(&self, offset: usize, len_bytes: usize) -> Result<BufferSlice, Error> {
        self.stop_signal.check()?;
        let end = (offset as u64).saturating_add(len_bytes as u64);
        if end > self.slot.bytes.0 {
            let what = format!("bytes {offset}..{end} of a part of {}", self.slot.bytes.0);
            return Err(self.failed("loading", what.into()));
        }
        // The memory is allocated, so its offset fits in `usize`.
        let start = usize::try_from(self.slot.offset.0).unwrap_or(usize::MAX) + offset;
        self.memory.slice(start..start + len_bytes).map_err(|source| self.failed("loading", source.into()))
    }

    /// Reads the part, row-major.
    ///
    /// # Errors
    /// The device failed, or work must stop.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        self.stop_signal.check()?;
        let elems: usize = self.tensor.ranges.iter().map(std::ops::Range::len).product();
        let mut bytes = vec![0; elems * self.tensor.dtype.size_bytes()];
        let start = usize::try_from(self.slot.offset.0).unwrap_or(usize::MAX);
        self.memory
            .read(start, &mut bytes)
            .map_err(|source| self.failed("reading", source.into()))
            .map(|()| bytes)
    }

    pub(super) fn failed(&self, doing: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        let place = Some(format!("{doing} {}", self.tensor.name));
        let (rank, card) = (self.shard.plan.rank, self.shard.card);
        Error::Ranks(vec![RankError { rank, card, place, source, at: Instant::now() }])
    }
}
