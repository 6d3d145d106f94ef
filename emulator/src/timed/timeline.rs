//! The timeline of a timed machine: [`LaneSpan`]s in recording order, and a [`Total`] for each name
//! and bound. Recording does not change the schedule.

use std::collections::HashMap;
use std::sync::Arc;

use ascend_tp_machine::operator::ComputeUnit;

/// Amount of detail that a timed machine records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recording {
    /// A span for every load of every stream, and the totals.
    Everything,
    /// The totals without the spans.
    #[default]
    Totals,
    /// No new records; earlier records are kept.
    Nothing,
}

/// Part of a card that runs one load at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Lane {
    /// Cube units, and the vector units that feed them.
    Cube,
    /// Vector units without the cube units.
    Vector,
    /// Data transfer between cards in collectives.
    Communication,
    /// Engine that copies memory.
    Copy,
}

impl Lane {
    pub(crate) const COUNT: usize = 4;

    /// Returns the name used in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cube => "cube",
            Self::Vector => "vector",
            Self::Communication => "communication",
            Self::Copy => "copy",
        }
    }
}

impl From<ComputeUnit> for Lane {
    fn from(engine: ComputeUnit) -> Self {
        match engine {
            ComputeUnit::Cube => Self::Cube,
            ComputeUnit::Vector => Self::Vector,
            ComputeUnit::Communication => Self::Communication,
        }
    }
}

/// One load of one stream. Times are in nanoseconds since the start of the machine.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaneSpan {
    /// The card that ran the load.
    pub card: u32,
    /// Index of the stream on its card, in order of creation.
    pub stream: u32,
    /// The lane that the load occupied.
    pub lane: Lane,
    /// Name of the C function.
    pub name: &'static str,
    /// The program's last mark on the stream before the call (`aclprofMarkEx`).
    pub tag: Option<Arc<str>>,
    /// The resource that limits the duration: `cube`, `vector`, `memory` or `launch`; for a
    /// collective `link` or `latency`; for a copy `host link` or `memory`.
    pub bound: &'static str,
    /// Number of operations of the cube units.
    pub flops: f64,
    /// Bytes read and written; for a collective, the bytes used by its cost formula.
    pub bytes: f64,
    /// Cards of a collective, in rank order.
    pub group: Option<Arc<[u32]>>,
    /// Time at which the host made the call.
    pub issued_ns: u64,
    /// Time at which the stream reached the load. Until its start, a collective waits for its
    /// peers, and every load waits for its lane.
    pub arrived_ns: u64,
    /// Time at which the load started.
    pub start_ns: u64,
    /// Time at which the load ended.
    pub end_ns: u64,
}

/// Sum of all loads with one name and bound, over all cards.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Total {
    /// Name of the C function.
    pub name: &'static str,
    /// The limiting resource, as in [`LaneSpan::bound`].
    pub bound: &'static str,
    /// The lane that the loads occupied.
    pub lane: Lane,
    /// Number of loads; a collective counts once per card.
    pub count: u64,
    /// Time between start and end of the loads.
    pub busy_ns: u64,
    /// Time between the arrival of the streams and the start of the loads.
    pub waited_ns: u64,
    /// Time for which the streams were idle because the host had not made the call.
    pub starved_ns: u64,
    /// Number of operations of the cube units.
    pub flops: f64,
    /// Bytes, as defined by [`LaneSpan::bytes`].
    pub bytes: f64,
}

#[derive(Debug)]
pub(crate) struct SpanKind {
    pub(crate) name: &'static str,
    pub(crate) bound: &'static str,
    pub(crate) lane: Lane,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) group: Option<Arc<[u32]>>,
    pub(crate) total: usize,
}

#[derive(Debug)]
pub(crate) struct LoadRun<'a> {
    pub(crate) card: u32,
    pub(crate) stream: u32,
    pub(crate) tag: Option<&'a Arc<str>>,
    pub(crate) issued_ns: u64,
    /// Idle time before the call.
    pub(crate) starved_ns: u64,
    pub(crate) arrived_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) recording: Recording,
    spans: Vec<LaneSpan>,
    totals: Vec<Total>,
    by_name: HashMap<(&'static str, &'static str), usize>,
}

impl Timeline {
    pub(crate) fn place(&mut self, name: &'static str, bound: &'static str, lane: Lane) -> usize {
        let totals = &mut self.totals;
        *self.by_name.entry((name, bound)).or_insert_with(|| {
            let empty = Total {
                name,
                bound,
                lane,
                count: 0,
                busy_ns: 0,
                waited_ns: 0,
                starved_ns: 0,
                flops: 0.0,
                bytes: 0.0,
            };
            totals.push(empty);
            totals.len() - 1
        })
    }

    /// The load has run or will certainly run as given.
    pub(crate) fn note(&mut self, kind: &SpanKind, run: &LoadRun<'_>) {
        if self.recording == Recording::Nothing {
            return;
        }
        if let Some(total) = self.totals.get_mut(kind.total) {
            total.count += 1;
            total.busy_ns += run.end_ns - run.start_ns;
            total.waited_ns += run.start_ns - run.arrived_ns;
            total.starved_ns += run.starved_ns;
            total.flops += kind.flops;
            total.bytes += kind.bytes;
        }
        if self.recording == Recording::Everything {
            self.spans.push(LaneSpan {
                card: run.card,
                stream: run.stream,
                lane: kind.lane,
                name: kind.name,
                tag: run.tag.cloned(),
                bound: kind.bound,
                flops: kind.flops,
                bytes: kind.bytes,
                group: kind.group.clone(),
                issued_ns: run.issued_ns,
                arrived_ns: run.arrived_ns,
                start_ns: run.start_ns,
                end_ns: run.end_ns,
            });
        }
    }

    pub(crate) fn spans(&self) -> Vec<LaneSpan> {
        self.spans.clone()
    }

    /// Returns totals sorted by name and bound.
    pub(crate) fn totals(&self) -> Vec<Total> {
        let mut totals: Vec<Total> = self.totals.iter().filter(|total| total.count > 0).cloned().collect();
        totals.sort_by_key(|total| (total.name, total.bound));
        totals
    }

    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        for total in &mut self.totals {
            let Total { count, busy_ns, waited_ns, starved_ns, flops, bytes, .. } = total;
            (*count, *busy_ns, *waited_ns, *starved_ns, *flops, *bytes) = (0, 0, 0, 0, 0.0, 0.0);
        }
    }
}
