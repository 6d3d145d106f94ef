//! Waits between streams that make every program free of races.
//!
//! Touches of a byte are ordered if one is a write. Nothing else is ordered, so as much as possible
//! runs concurrently.

use std::collections::BTreeMap;

use crate::program::{BufferPlace, StormOperator, StormProgram, StormStep, home_stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryTouch {
    pub(crate) at: BufferPlace,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
}

impl MemoryTouch {
    fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self.at.pool == other.at.pool
            && self.at.offset < other.at.offset + other.bytes
            && other.at.offset < self.at.offset + self.bytes
    }
}

/// Between the destination rows of a 2-D copy.
pub(crate) const ROW_GAP: u64 = 64;

/// Each touch has its stream; `None` is the host.
#[must_use]
pub(crate) fn touches(
    program: &StormProgram,
    comms: &BTreeMap<u32, Vec<u32>>,
    step: &StormStep,
    rank: u32,
) -> (Option<u8>, Vec<MemoryTouch>) {
    let read = |at: BufferPlace, bytes: u64| MemoryTouch { at, bytes, writes: false };
    let write = |at: BufferPlace, bytes: u64| MemoryTouch { at, bytes, writes: true };
    match step {
        StormStep::Fill { stream, at, bytes, .. } | StormStep::Load { stream, at, bytes, .. } => {
            (Some(*stream), vec![write(*at, *bytes)])
        }
        StormStep::Copy { stream, from, to, width, rows, .. } => {
            let pitch = if *rows > 1 { width + ROW_GAP } else { *width };
            (Some(*stream), vec![read(*from, width * rows), write(*to, pitch * rows)])
        }
        StormStep::Compute { stream, operator, from, to, .. } => {
            let touches = match *operator {
                StormOperator::Add { count } | StormOperator::ReduceAsync { count } => {
                    vec![read(from[0], 4 * count), write(*to, 4 * count)]
                }
                StormOperator::Cast { count } => vec![read(from[0], 4 * count), write(*to, 8 * count)],
                StormOperator::Matmul { dims: [m, k, n] } => {
                    vec![write(from[0], 4 * m * k), write(from[1], 4 * k * n), write(*to, 4 * m * n)]
                }
            };
            (Some(*stream), touches)
        }
        StormStep::Collective { comm, call, send, recv, .. } => {
            let Some(ranks) = comms.get(comm) else { return (None, Vec::new()) };
            let Some(member) = ranks.iter().position(|other| *other == rank) else {
                return (None, Vec::new());
            };
            let (world, size) = (ranks.len(), call.element.bytes());
            if !call.is_called_by(world, member) {
                return (None, Vec::new());
            }
            let (send, recv) = buffers(call, member, *send, *recv);
            let sends =
                MemoryTouch { at: send, bytes: call.sends(world, member) * size, writes: call.needs_small() };
            let receives = write(recv, call.receives(world, member) * size);
            (Some(home_stream(*comm, rank, program.setup.streams)), vec![sends, receives])
        }
        StormStep::Read { at, bytes, .. } => (None, vec![read(*at, *bytes)]),
        StormStep::Share { at, bytes, rank: owner, .. } if *owner == rank => (None, vec![read(*at, *bytes)]),
        StormStep::Share { .. }
        | StormStep::Wait { .. }
        | StormStep::Renew { .. }
        | StormStep::Join { .. }
        | StormStep::Part { .. }
        | StormStep::Probe { .. }
        | StormStep::Stall { .. }
        | StormStep::Absent { .. } => (None, Vec::new()),
    }
}

#[must_use]
pub(crate) fn buffers(
    call: &crate::collective::StormCall,
    member: usize,
    send: BufferPlace,
    recv: BufferPlace,
) -> (BufferPlace, BufferPlace) {
    if !call.in_place {
        return (send, recv);
    }
    let (of_send, of_recv) = call.in_place_shift(member);
    let size = call.element.bytes();
    (send.plus(of_send * size), send.plus(of_recv * size))
}

/// Awaited entries per stream.
type OrderClock = Vec<u64>;

#[derive(Debug)]
struct PastTouch {
    stream: u8,
    number: u64,
    touch: MemoryTouch,
}

#[derive(Debug)]
pub(crate) struct StormOrder {
    /// Number of entries enqueued on each stream.
    enqueued: OrderClock,
    /// Entries before the end of each stream.
    streams: Vec<OrderClock>,
    /// Entries before the host's next action.
    host: OrderClock,
    past: Vec<PastTouch>,
}

impl StormOrder {
    #[must_use]
    pub(crate) fn new(streams: u8) -> Self {
        let clock = vec![0; usize::from(streams)];
        Self {
            enqueued: clock.clone(),
            streams: vec![clock.clone(); usize::from(streams)],
            host: clock,
            past: Vec::new(),
        }
    }

    /// Returns the streams that `on` must await before it accesses these bytes.
    #[must_use]
    pub(crate) fn needed(&self, on: Option<u8>, touches: &[MemoryTouch]) -> Vec<u8> {
        let knows = |past: &PastTouch| {
            let of = usize::from(past.stream);
            let own = on.map_or(0, |on| self.streams[usize::from(on)][of]);
            Some(past.stream) == on || past.number <= self.host[of].max(own)
        };
        let conflicting =
            self.past.iter().filter(|past| touches.iter().any(|touch| touch.conflicts(&past.touch)));
        let mut needed: Vec<u8> = conflicting.filter(|past| !knows(past)).map(|past| past.stream).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Records that `on` has waited for the work of `stream`.
    pub(crate) fn waited(&mut self, on: Option<u8>, stream: u8) {
        let of = usize::from(stream);
        let mut known = self.streams[of].clone();
        known[of] = self.enqueued[of];
        let clock = match on {
            Some(on) => &mut self.streams[usize::from(on)],
            None => &mut self.host,
        };
        clock.iter_mut().zip(known).for_each(|(own, other)| *own = (*own).max(other));
        if on.is_none() {
            let host = &self.host;
            self.past.retain(|past| past.number > host[usize::from(past.stream)]);
        }
    }

    /// The entry follows all awaited work.
    pub(crate) fn enqueue(&mut self, stream: u8, touches: &[MemoryTouch]) {
        let of = usize::from(stream);
        let host = self.host.clone();
        self.streams[of].iter_mut().zip(host).for_each(|(own, host)| *own = (*own).max(host));
        self.enqueued[of] += 1;
        let number = self.enqueued[of];
        self.past.extend(touches.iter().map(|touch| PastTouch { stream, number, touch: *touch }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: u64) -> Vec<MemoryTouch> {
        vec![MemoryTouch { at: BufferPlace { pool: 0, offset }, bytes, writes: true }]
    }

    fn read(offset: u64, bytes: u64) -> Vec<MemoryTouch> {
        vec![MemoryTouch { at: BufferPlace { pool: 0, offset }, bytes, writes: false }]
    }

    #[test]
    fn conflicts_between_streams_are_ordered_once() {
        let mut order = StormOrder::new(3);
        order.enqueue(0, &write(0, 100));
        assert_eq!(order.needed(Some(0), &read(0, 100)), [0; 0], "a stream orders itself");
        assert_eq!(order.needed(Some(1), &read(99, 10)), [0]);
        assert_eq!(order.needed(Some(1), &read(100, 10)), [0; 0]);
        order.waited(Some(1), 0);
        assert_eq!(order.needed(Some(1), &read(99, 10)), [0; 0]);
        order.enqueue(1, &read(99, 10));
        // Through stream 1.
        assert_eq!(order.needed(Some(2), &write(0, 100)), [0, 1]);
        order.waited(Some(2), 1);
        assert_eq!(order.needed(Some(2), &write(0, 100)), [0; 0]);
    }

    #[test]
    fn reads_do_not_conflict_and_the_host_passes_on_what_it_knows() {
        let mut order = StormOrder::new(2);
        order.enqueue(0, &read(0, 10));
        assert_eq!(order.needed(Some(1), &read(0, 10)), [0; 0]);
        assert_eq!(order.needed(None, &write(0, 10)), [0]);
        order.waited(None, 0);
        assert_eq!(order.needed(Some(1), &write(0, 10)), [0; 0]);
        assert!(order.past.is_empty());
    }
}
