//! What cards did in one phase of a run, and how their time divides.
//!
//! Input → output: [`Span`]s of all ranks between two moments → [`Shares`] of the time between. Invariant: the parts of
//! each rank add up to the whole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::schedule::plan::{Action, Plan, StreamKind};

/// One run of a program, span by span. Times are nanoseconds of one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `prefill`, `decode 1`, `micro-batch 1`.
    pub name: String,
    /// Index of its program.
    pub program: usize,
    /// When the ranks got their inputs.
    pub start_ns: u64,
    /// When the last rank had its outputs.
    pub end_ns: u64,
    /// What the cards did, by rank and time.
    pub spans: Vec<Span>,
    /// What the hosts called for it, where that is known.
    pub calls: Vec<TimedCall>,
}

impl Phase {
    /// How long it took, in microseconds.
    #[must_use]
    pub fn duration_us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e3
    }
}

/// A call of a rank's host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCall {
    /// The rank it was seen on.
    pub rank: usize,
    /// The C function: `aclnnMatmul`, `aclmdlRIExecuteAsync`.
    pub name: String,
    /// From when to when, in nanoseconds.
    pub ns: Range<u64>,
}

/// One operator or collective on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The rank it was seen on.
    pub rank: usize,
    /// Which of the rank's streams.
    pub stream: StreamKind,
    /// Its step in the plan.
    pub step: usize,
    /// C name: `aclnnMatmul`, `HcclAllReduce`.
    pub operator: String,
    /// When its stream got there: a collective waits for its peers from here on, in nanoseconds.
    pub arrived_ns: u64,
    /// When it began, in nanoseconds; where only the card's events were asked, a collective begins when its stream gets there.
    pub start_ns: u64,
    /// When it ended, in nanoseconds.
    pub end_ns: u64,
    /// What it had to do, where a clock of the emulator knows.
    pub work: Option<SpanWork>,
}

/// What a span had to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanWork {
    /// What bounds it: `cube`, `vector`, `memory`, `launch`, or the link of a collective.
    pub bound: String,
    /// Bytes to and from memory; of a collective, those of its exchange.
    pub bytes: f64,
    /// Floating-point operations, an addition and a multiplication two.
    pub flops: f64,
}

/// Phases of one step as several processes saw them → the phases of all; the first thing is at 0. A collective begins when the last of
/// its ranks has come: here that is by the clocks of their hosts.
#[must_use]
pub fn side_by_side(seen: Vec<Vec<Phase>>, programs: &[Vec<Arc<Plan>>]) -> Vec<Phase> {
    let mut seen = seen.into_iter();
    let mut phases = seen.next().unwrap_or_default();
    for others in seen {
        for (phase, other) in phases.iter_mut().zip(others) {
            // Processes are not in step: what one is ahead of the others counts in the phase before.
            phase.start_ns = phase.start_ns.max(other.start_ns);
            phase.end_ns = phase.end_ns.max(other.end_ns);
            phase.spans.extend(other.spans);
            phase.calls.extend(other.calls);
        }
    }
    let begun = |phase: &Phase| phase.spans.iter().map(|span| span.arrived_ns).chain([phase.start_ns]).min();
    let origin_ns = phases.iter().filter_map(begun).min().unwrap_or(0);
    for phase in &mut phases {
        let mut last: BTreeMap<(&[usize], usize), u64> = BTreeMap::new();
        let key = |span: &Span| {
            let plan = &programs[phase.program][span.rank];
            let Action::Exchange(exchange) = &plan.steps[span.step].action else { return None };
            // The two ends of a transfer stand at other steps of their plans.
            (!exchange.kind.is_of_two()).then(|| (plan.groups[exchange.group].as_slice(), span.step))
        };
        for span in &phase.spans {
            if let Some(key) = key(span) {
                let last = last.entry(key).or_default();
                *last = span.arrived_ns.max(*last);
            }
        }
        for span in &mut phase.spans {
            if let Some(last) = key(span).and_then(|key| last.get(&key)) {
                span.start_ns = (*last).clamp(span.arrived_ns, span.end_ns);
            }
            for ns in [&mut span.arrived_ns, &mut span.start_ns, &mut span.end_ns] {
                *ns = ns.saturating_sub(origin_ns);
            }
        }
        for ns in [&mut phase.start_ns, &mut phase.end_ns] {
            *ns = ns.saturating_sub(origin_ns);
        }
    }
    phases
}

/// How the time of a phase divides, each a part of the whole; mean over the ranks. They add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Operators run, and nothing is exchanged.
    pub compute: f64,
    /// Operators run while data is exchanged.
    pub hidden_communication: f64,
    /// Data is exchanged, and no operator runs.
    pub exposed_communication: f64,
    /// Nothing but a collective that waits for other ranks.
    pub waiting_for_peers: f64,
    /// Nothing runs between the first work and the last: the host has not issued the next yet, or the card has not begun
    /// it. The launch-bound share.
    pub launch: f64,
    /// Before the first work and after the last: inputs, first launch, wake-up, outputs.
    pub host: f64,
}

impl Shares {
    /// Time in collectives, as a part of the whole.
    #[must_use]
    pub fn communication(&self) -> f64 {
        self.hidden_communication + self.exposed_communication
    }

    /// The shares of the time from `start_ns` to `end_ns` of some ranks. Spans outside it do not count.
    #[must_use]
    pub fn of(spans: &[Span], ranks: impl ExactSizeIterator<Item = usize>, start_ns: u64, end_ns: u64) -> Self {
        let mut sum = Self::default();
        let whole = end_ns.saturating_sub(start_ns) as f64 * ranks.len() as f64;
        if whole <= 0.0 {
            return sum;
        }
        for rank in ranks {
            sum.add_rank(spans.iter().filter(|span| span.rank == rank), start_ns, end_ns, whole);
        }
        sum
    }

    fn add_rank<'a>(&mut self, spans: impl Iterator<Item = &'a Span>, start_ns: u64, end_ns: u64, whole: f64) {
        // Changes of what is under way: (time, which of computing, exchanging, waiting for peers, by how much).
        let mut changes: Vec<(u64, usize, i64)> = Vec::new();
        let mut change = |from: u64, to: u64, what: usize| {
            let (from, to) = (from.clamp(start_ns, end_ns), to.clamp(start_ns, end_ns));
            if from < to {
                changes.extend([(from, what, 1), (to, what, -1)]);
            }
        };
        for span in spans {
            match span.stream {
                StreamKind::Compute => change(span.start_ns, span.end_ns, 0),
                StreamKind::Communication | StreamKind::Transfers => {
                    change(span.arrived_ns, span.start_ns, 2);
                    change(span.start_ns, span.end_ns, 1);
                }
            }
        }
        changes.sort_unstable();
        let (Some(first), Some(last)) = (changes.first().map(|c| c.0), changes.last().map(|c| c.0)) else {
            self.host += (end_ns - start_ns) as f64 / whole;
            return;
        };
        self.host += (first - start_ns + (end_ns - last)) as f64 / whole;
        let mut running = [0_i64; 3];
        let mut since = first;
        for (at, what, by) in changes {
            let part = (at - since) as f64 / whole;
            let share = match running.map(|count| count > 0) {
                [true, false, _] => &mut self.compute,
                [true, true, _] => &mut self.hidden_communication,
                [false, true, _] => &mut self.exposed_communication,
                [false, false, true] => &mut self.waiting_for_peers,
                [false, false, false] => &mut self.launch,
            };
            *share += part;
            running[what] += by;
            since = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(stream: StreamKind, arrived_ns: u64, start_ns: u64, end_ns: u64) -> Span {
        Span { rank: 0, stream, step: 0, operator: String::new(), arrived_ns, start_ns, end_ns, work: None }
    }

    #[test]
    fn every_moment_counts_once() {
        let (compute, communication) = (StreamKind::Compute, StreamKind::Communication);
        let spans = [
            span(compute, 10, 10, 30),
            span(communication, 20, 25, 45), // waits 5 hidden, 5 hidden, 15 exposed
            span(compute, 50, 50, 60),
            span(communication, 60, 65, 70),
        ];
        let shares = Shares::of(&spans, 0..1, 0, 100);
        let expected = Shares {
            compute: 0.25,
            hidden_communication: 0.05,
            exposed_communication: 0.20,
            waiting_for_peers: 0.05,
            launch: 0.05,
            host: 0.40,
        };
        let all = |s: &Shares| {
            [s.compute, s.hidden_communication, s.exposed_communication, s.waiting_for_peers, s.launch, s.host]
        };
        for (found, expected) in all(&shares).into_iter().zip(all(&expected)) {
            assert!((found - expected).abs() < 1e-12, "{shares:?}");
        }
        // A second rank that does nothing halves everything and is all host.
        let shares = Shares::of(&spans, 0..2, 0, 100);
        assert!((shares.host - 0.70).abs() < 1e-12 && (all(&shares).iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
