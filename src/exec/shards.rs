//! The weights of this process' ranks, as memory to be filled.
//!
//! Input → output: the ranks' plans and the memory of their weights → [`Shards`], which any number of threads may write at once.
//! Invariants: a write stays within its part; none is begun after the engine was told to stop or another process has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::{Error, RankError};
use crate::base::Bytes;
use crate::device::Buffer;
use crate::schedule::plan::{Plan, Slot, Tensor};
use crate::world::ProcessGroup;

/// Why a weight could not be given.
pub type FillError = Box<dyn std::error::Error + Send + Sync>;

/// One rank's memory of weights.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) plan: Arc<Plan>,
    pub(super) card: usize,
    pub(super) memory: Buffer,
}

/// When writing ends early.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) group: Arc<ProcessGroup>,
}

impl Ends {
    /// Fails if there is to be no more work.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        self.group.failure_within(Duration::ZERO).map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// What the ranks of a process hold of each weight.
#[derive(Debug)]
pub struct Shards<'a>(Vec<Vec<Part<'a>>>);

/// What one rank holds of a weight.
#[derive(Debug)]
pub struct Part<'a> {
    tensor: &'a Tensor,
    slot: Slot,
    shard: &'a Shard,
    ends: &'a Ends,
}

impl<'a> Shards<'a> {
    pub(super) fn new(shards: &'a [Shard], ends: &'a Ends) -> Self {
        let part = |shard: &'a Shard, weight: usize| {
            let tensor = &shard.plan.params[weight];
            Part { tensor, slot: shard.plan.buffers[tensor.buffer], shard, ends }
        };
        // The ranks have the same weights.
        let weights = shards.first().map_or(0, |shard| shard.plan.params.len());
        Self((0..weights).map(|weight| shards.iter().map(|shard| part(shard, weight)).collect()).collect())
    }

    /// The parts by weight, in the order of the program, and by rank.
    #[must_use]
    pub fn weights(&self) -> &[Vec<Part<'a>>] {
        &self.0
    }

    /// All parts of all weights.
    pub fn parts(&self) -> impl Iterator<Item = &Part<'a>> {
        self.0.iter().flatten()
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.parts().map(|part| part.slot.bytes).sum()
    }
}

impl Part<'_> {
    /// The weight, with the ranges that this rank holds.
    #[must_use]
    pub const fn tensor(&self) -> &Tensor {
        self.tensor
    }

    /// Writes bytes at an offset of the part.
    ///
    /// # Errors
    /// The card refuses, or there is no need any more.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), FillError> {
        self.ends.check()?;
        let Shard { plan, card, memory } = self.shard;
        let place = || format!("loading {}", self.tensor.name);
        let failed = |source: FillError| {
            Error::Ranks(vec![RankError {
                rank: plan.rank,
                card: *card,
                place: Some(place()),
                source,
                at: Instant::now(),
            }])
        };
        let end = (offset as u64).saturating_add(bytes.len() as u64);
        if end > self.slot.bytes.0 {
            let what = format!("bytes {offset}..{end} of a part of {}", self.slot.bytes.0);
            return Err(failed(what.into()).into());
        }
        // The part's memory exists, so its offset fits the address space.
        let start = usize::try_from(self.slot.offset.0).unwrap_or(usize::MAX);
        Ok(memory.write(start + offset, bytes).map_err(|source| failed(source.into()))?)
    }
}
