//! Bytes on their way to the cards: page-locked memory that is filled while what was filled before
//! is still copied.
//!
//! Input → output: a part, an offset and who writes the bytes → an asynchronous copy. One value is
//! one thread's: it has a stream for each rank that it brings something, and two pieces of
//! page-locked memory for all of them, so that little is locked, and where a core copies it on, as
//! on emulated cards, it does so from its cache. Invariants: nothing waits but for the older of
//! these pieces; no other work of a card is waited for; what is dropped has been waited for.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use super::error::Error;
use super::shards::Part;
use crate::base::Bytes;
use crate::device::{HostBuffer, Stream, Transfer};

/// Pieces on their way to cards at a time: one is copied while the next is written.
const MOST_UNDER_WAY: usize = 2;

/// Page-locked memory of a piece at least.
const LEAST_BYTES: usize = 512 << 10;

/// One thread's way to the cards.
#[derive(Debug, Default)]
pub struct Uploads<'a> {
    under_way: VecDeque<(Transfer, Part<'a>, usize)>,
    idle: Vec<HostBuffer>,
    /// By rank, each opened for its first piece.
    streams: BTreeMap<usize, Stream>,
}

impl<'a> Uploads<'a> {
    /// Has `fill` write `len_bytes` bytes, which go to an offset of a part. Gives the bytes of
    /// earlier pieces that have arrived since.
    ///
    /// # Errors
    /// What `fill` says, a range that the part does not have, a card that refuses, or that there is
    /// no need any more.
    pub fn write(
        &mut self,
        part: &Part<'a>,
        offset: usize,
        len_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Bytes, Error> {
        let to = part.place(offset, len_bytes)?;
        let failed = |error: crate::device::Error| part.failed("loading", error.into());
        let mut arrived = Bytes(0);
        while let Some((oldest, oldest_part, _)) = self.under_way.front()
            && (self.under_way.len() >= MOST_UNDER_WAY
                || oldest.is_done().map_err(|error| oldest_part.failed("loading", error.into()))?)
        {
            arrived += self.wait_for_oldest()?;
        }
        // The one that was copied last: where a core did that, it lies in its cache.
        let fits = self.idle.iter().rposition(|memory| memory.len() >= len_bytes);
        let mut memory = match fits {
            Some(at) => self.idle.swap_remove(at),
            None => {
                // Those there are, are too short.
                self.idle.clear();
                HostBuffer::new(to.device(), len_bytes.max(LEAST_BYTES)).map_err(failed)?
            }
        };
        fill(&mut memory[..len_bytes])?;
        let stream = match self.streams.entry(part.rank()) {
            Entry::Occupied(stream) => stream.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Stream::new(to.device()).map_err(failed)?),
        };
        let transfer = stream.enqueue_upload(&to, memory).map_err(failed)?;
        self.under_way.push_back((transfer, *part, len_bytes));
        Ok(arrived)
    }

    /// Waits for all that is under way, and gives its bytes.
    ///
    /// # Errors
    /// A copy has failed.
    pub fn finish(mut self) -> Result<Bytes, Error> {
        let mut arrived = Bytes(0);
        while !self.under_way.is_empty() {
            arrived += self.wait_for_oldest()?;
        }
        Ok(arrived)
    }

    /// Waits for the oldest piece, if there is one, and keeps its memory.
    fn wait_for_oldest(&mut self) -> Result<Bytes, Error> {
        let Some((transfer, part, len_bytes)) = self.under_way.pop_front() else { return Ok(Bytes(0)) };
        self.idle.push(transfer.wait().map_err(|error| part.failed("loading", error.into()))?);
        Ok(Bytes(len_bytes as u64))
    }
}
