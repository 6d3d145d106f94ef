//! Uploads bytes to devices through page-locked memory.
//!
//! Each value belongs to one thread. It has one stream per rank and two page-locked buffers: one is
//! filled while the other is copied. Small buffers lock little memory and stay in the core's cache
//! on emulated devices.
//!
//! Invariants: calls wait only for the older buffer. A dropped upload is complete.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use super::error::Error;
use super::shards::Part;
use crate::base::Bytes;
use crate::device::{HostBuffer, Stream, Transfer};

const MOST_UNDER_WAY: usize = 2;

const LEAST_BYTES: usize = 512 << 10;

/// Uploads of one thread.
#[derive(Debug, Default)]
pub struct Uploads<'a> {
    under_way: VecDeque<(Transfer, Part<'a>, usize)>,
    idle: Vec<HostBuffer>,
    streams: BTreeMap<usize, Stream>,
}

impl<'a> Uploads<'a> {
    /// Lets `fill` write `len_bytes` bytes, and uploads them to an offset of a part. Returns the
    /// bytes of completed earlier uploads.
    ///
    /// # Errors
    /// `fill` or a device failed, the range is outside the part, or work must stop.
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
        // The most recently copied buffer may still be in the core's cache.
        let fits = self.idle.iter().rposition(|memory| memory.len() >= len_bytes);
        let mut memory = match fits {
            Some(at) => self.idle.swap_remove(at),
            None => {
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

    /// Waits for all uploads and returns their bytes.
    ///
    /// # Errors
    /// A copy failed.
    pub fn finish(mut self) -> Result<Bytes, Error> {
        let mut arrived = Bytes(0);
        while !self.under_way.is_empty() {
            arrived += self.wait_for_oldest()?;
        }
        Ok(arrived)
    }

    fn wait_for_oldest(&mut self) -> Result<Bytes, Error> {
        let Some((transfer, part, len_bytes)) = self.under_way.pop_front() else { return Ok(Bytes(0)) };
        self.idle.push(transfer.wait().map_err(|error| part.failed("loading", error.into()))?);
        Ok(Bytes(len_bytes as u64))
    }
}
