//! What the cards of a timed machine did and when.
//!
//! Input: every load as it starts, every exchange as it ends. Output: [`LaneSpan`]s in the order in which they were noted, and a
//! [`Total`] for each name and bound. Invariant: what is recorded never changes what happens. Does not: interpret.

use std::collections::HashMap;
use std::sync::Arc;

use ascend_tp_machine::operator::ComputeUnit;

/// How much of what happens a timed machine writes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recording {
    /// A span for every load of every stream, and the totals.
    Everything,
    /// The totals alone.
    #[default]
    Totals,
    /// Neither; what was written down stays.
    Nothing,
}

/// The part of a card that a load keeps busy; one load at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Lane {
    /// The cube units, and the vector units that feed them.
    Cube,
    /// The vector units alone.
    Vector,
    /// What moves data between cards in collectives.
    Communication,
    /// What copies memory.
    Copy,
}

impl Lane {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    /// The name in tables.
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

/// One load of one stream. Times are nanoseconds of the machine's clock, which begins at 0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaneSpan {
    /// The card that was busy.
    pub card: u32,
    /// The stream, counted on its card in the order of their making.
    pub stream: u32,
    /// What it keeps busy.
    pub lane: Lane,
    /// The C function.
    pub name: &'static str,
    /// The program's last mark on the stream before the call (`aclprofMarkEx`).
    pub tag: Option<Arc<str>>,
    /// What bounds it: `cube`, `vector`, `memory`, `launch`, for a collective `link` or `latency`, for a copy `host link`
    /// or `memory`.
    pub bound: &'static str,
    /// Operations of the cube units.
    pub flops: f64,
    /// Bytes to and from memory; of a collective, those its cost is of.
    pub bytes: f64,
    /// The cards of a collective, in the order of its ranks.
    pub group: Option<Arc<[u32]>>,
    /// When the host had made the call.
    pub issued_ns: u64,
    /// When the stream came to it. Until it starts it waits: a collective for its peers, all for their lane.
    pub arrived_ns: u64,
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// All loads of one name and bound, on all cards.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Total {
    /// The C function.
    pub name: &'static str,
    /// What bounds them, as in [`LaneSpan::bound`].
    pub bound: &'static str,
    /// What they keep busy.
    pub lane: Lane,
    /// How many; a collective counts once a card.
    pub count: u64,
    /// From their starts to their ends.
    pub busy_ns: u64,
    /// From the arrival of their streams to their starts.
    pub waited_ns: u64,
    /// How long their streams had nothing to do before, because the host had not made the call.
    pub starved_ns: u64,
    /// Operations of the cube units.
    pub flops: f64,
    /// Bytes, as in [`LaneSpan::bytes`].
    pub bytes: f64,
}

/// What a load is, apart from its times.
#[derive(Debug)]
pub(crate) struct SpanKind {
    pub(crate) name: &'static str,
    pub(crate) bound: &'static str,
    pub(crate) lane: Lane,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) group: Option<Arc<[u32]>>,
    /// The place of its total.
    pub(crate) total: usize,
}

/// Where and when a load ran.
#[derive(Debug)]
pub(crate) struct LoadRun<'a> {
    pub(crate) card: u32,
    pub(crate) stream: u32,
    pub(crate) tag: Option<&'a Arc<str>>,
    pub(crate) issued_ns: u64,
    /// How long the stream had nothing to do before the call.
    pub(crate) starved_ns: u64,
    pub(crate) arrived_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// What is written down.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) recording: Recording,
    spans: Vec<LaneSpan>,
    totals: Vec<Total>,
    by_name: HashMap<(&'static str, &'static str), usize>,
}

impl Timeline {
    /// The place of the total of a name and bound.
    pub(crate) fn place(&mut self, name: &'static str, bound: &'static str, lane: Lane) -> usize {
        let totals = &mut self.totals;
        *self.by_name.entry((name, bound)).or_insert_with(|| {
            let empty =
                Total { name, bound, lane, count: 0, busy_ns: 0, waited_ns: 0, starved_ns: 0, flops: 0.0, bytes: 0.0 };
            totals.push(empty);
            totals.len() - 1
        })
    }

    /// A load has run, or is sure to run so.
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

    /// The spans so far.
    pub(crate) fn spans(&self) -> Vec<LaneSpan> {
        self.spans.clone()
    }

    /// The totals of what ran, by name and bound.
    pub(crate) fn totals(&self) -> Vec<Total> {
        let mut totals: Vec<Total> = self.totals.iter().filter(|total| total.count > 0).cloned().collect();
        totals.sort_by_key(|total| (total.name, total.bound));
        totals
    }

    /// Forgets spans and totals.
    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        for total in &mut self.totals {
            let Total { count, busy_ns, waited_ns, starved_ns, flops, bytes, .. } = total;
            (*count, *busy_ns, *waited_ns, *starved_ns, *flops, *bytes) = (0, 0, 0, 0, 0.0, 0.0);
        }
    }
}
