//! Bytes on their way to the cards: page-locked memory that is filled while what it held before is still copied.
//!
//! Input → output: a part, an offset and who writes the bytes → an asynchronous copy. One value is one thread's: it has a stream and
//! two pieces of page-locked memory for each rank that it brings something. Invariants: nothing waits but for a piece of its own that
//! is two pieces old; no other work of a card is waited for; what is dropped has been waited for.

use std::collections::{BTreeMap, VecDeque};

use super::error::Error;
use super::shards::Part;
use crate::base::Bytes;
use crate::device::{HostBuffer, Stream, Transfer};

/// Pieces on their way to a card at a time: one is copied while the next is written.
const MOST_UNDER_WAY: usize = 2;

/// Page-locked memory of a piece at least.
const LEAST_BYTES: usize = 512 << 10;

/// One thread's way to the cards.
#[derive(Debug, Default)]
pub struct Uploads<'a> {
    lanes: BTreeMap<usize, Lane<'a>>,
}

/// The way to one rank. What is under way is waited for before its stream goes.
#[derive(Debug)]
struct Lane<'a> {
    under_way: VecDeque<(Transfer, Part<'a>, usize)>,
    idle: Vec<HostBuffer>,
    stream: Stream,
}

impl<'a> Uploads<'a> {
    /// Has `fill` write `len_bytes` bytes, which go to an offset of a part. Gives the bytes of earlier pieces that have arrived
    /// since.
    ///
    /// # Errors
    /// What `fill` says, a range that the part does not have, a card that refuses, or that there is no need any more.
    pub fn write(
        &mut self,
        part: &Part<'a>,
        offset: usize,
        len_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Bytes, Error> {
        let to = part.place(offset, len_bytes)?;
        let failed = |error: crate::device::Error| part.failed("loading", error.into());
        let lane = match self.lanes.entry(part.rank()) {
            std::collections::btree_map::Entry::Occupied(lane) => lane.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                let stream = Stream::new(to.device()).map_err(failed)?;
                vacant.insert(Lane { under_way: VecDeque::new(), idle: Vec::new(), stream })
            }
        };
        let mut arrived = Bytes(0);
        while lane.under_way.len() >= MOST_UNDER_WAY {
            arrived += lane.wait_for_oldest()?;
        }
        let fits = lane.idle.iter().position(|memory| memory.len() >= len_bytes);
        let mut memory = match fits {
            Some(at) => lane.idle.swap_remove(at),
            None => {
                // Those there are, are too short.
                lane.idle.clear();
                HostBuffer::new(to.device(), len_bytes.max(LEAST_BYTES)).map_err(failed)?
            }
        };
        fill(&mut memory[..len_bytes])?;
        let transfer = lane.stream.enqueue_upload(&to, memory).map_err(failed)?;
        lane.under_way.push_back((transfer, *part, len_bytes));
        Ok(arrived)
    }

    /// Waits for all that is under way, and gives its bytes.
    ///
    /// # Errors
    /// A copy has failed.
    pub fn finish(mut self) -> Result<Bytes, Error> {
        let mut arrived = Bytes(0);
        for lane in self.lanes.values_mut() {
            while !lane.under_way.is_empty() {
                arrived += lane.wait_for_oldest()?;
            }
        }
        Ok(arrived)
    }
}

impl Lane<'_> {
    /// Waits for the oldest piece, if there is one, and keeps its memory.
    fn wait_for_oldest(&mut self) -> Result<Bytes, Error> {
        let Some((transfer, part, len_bytes)) = self.under_way.pop_front() else { return Ok(Bytes(0)) };
        self.idle.push(transfer.wait().map_err(|error| part.failed("loading", error.into()))?);
        Ok(Bytes(len_bytes as u64))
    }
}
