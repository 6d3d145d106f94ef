//! The spans of one phase of a run, and how their time divides.
//!
//! Input: [`Span`]s of all ranks between two times. Output: [`Shares`] of that time. Invariant: the
//! shares of each rank add up to 1.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::schedule::plan::{Action, Plan, StreamKind};

/// One run of a program. Times are nanoseconds of one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Name such as `prefill`, `decode 1` or `micro-batch 1`.
    pub name: String,
    /// Index of the program.
    pub program: usize,
    /// Time at which the ranks got their inputs.
    pub start_ns: u64,
    /// Time at which the last rank had its outputs.
    pub end_ns: u64,
    /// Work of the cards, by rank and time.
    pub spans: Vec<Span>,
    /// Calls of the hosts, if known.
    pub calls: Vec<TimedCall>,
}

impl Phase {
    /// Returns the duration in microseconds.
    #[must_use]
    pub fn duration_us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e3
    }
}

/// A call of a rank's host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCall {
    /// Rank of the calling process.
    pub rank: usize,
    /// The C function, such as `aclnnMatmul` or `aclmdlRIExecuteAsync`.
    pub name: String,
    /// Start and end, in nanoseconds.
    pub ns: Range<u64>,
}

/// One operator or collective on one card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Rank of the card.
    pub rank: usize,
    /// The stream of the rank.
    pub stream: StreamKind,
    /// Index of the step in the plan.
    pub step: usize,
    /// C function, such as `aclnnMatmul` or `HcclAllReduce`.
    pub operator: String,
    /// Time at which the stream arrived, in nanoseconds. A collective waits for its peers from then
    /// on.
    pub arrived_ns: u64,
    /// Start in nanoseconds. With device events only, a collective starts when its stream arrives.
    pub start_ns: u64,
    /// End time in nanoseconds.
    pub end_ns: u64,
    /// Amount of work, if known from the emulator's clock.
    pub work: Option<SpanWork>,
}

/// Amount of work of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanWork {
    /// Bottleneck: `cube`, `vector`, `memory`, `launch`, or the link of a collective.
    pub bound: String,
    /// Bytes to and from memory, or the exchanged bytes of a collective.
    pub bytes: f64,
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: f64,
}

/// Merges the phases that several processes recorded. Times start at 0. A collective starts when
/// its last rank arrives, according to the hosts' clocks.
#[must_use]
pub fn side_by_side(seen: Vec<Vec<Phase>>, programs: &[Vec<Arc<Plan>>]) -> Vec<Phase> {
    let mut seen = seen.into_iter();
    let mut phases = seen.next().unwrap_or_default();
    for others in seen {
        for (phase, other) in phases.iter_mut().zip(others) {
            // Processes are not synchronised; the lead of a process counts for the previous phase.
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
            // The two ends of a transfer are different steps of their plans.
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

/// Division of a phase's time, as mean over the ranks. The shares add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Operators run without a concurrent exchange.
    pub compute: f64,
    /// Operators run during an exchange.
    pub hidden_communication: f64,
    /// An exchange runs without a concurrent operator.
    pub exposed_communication: f64,
    /// Only a collective that waits for other ranks.
    pub waiting_for_peers: f64,
    /// Nothing runs between the first and the last work: the host has not launched the next work,
    /// or the card has not started it.
    pub launch: f64,
    /// Time before the first and after the last work: inputs, first launch, wake-up, outputs.
    pub host: f64,
}

impl Shares {
    /// Returns the share of time in collectives.
    #[must_use]
    pub fn communication(&self) -> f64 {
        self.hidden_communication + self.exposed_communication
    }

    /// Returns the shares of the time from `start_ns` to `end_ns` for some ranks. Spans outside are
    /// ignored.
    #[must_use]
    pub fn of(
        spans: &[Span],
        ranks: impl ExactSizeIterator<Item = usize>,
        start_ns: u64,
        end_ns: u64,
    ) -> Self {
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

    fn add_rank<'a>(
        &mut self,
        spans: impl Iterator<Item = &'a Span>,
        start_ns: u64,
        end_ns: u64,
        whole: f64,
    ) {
        // Changes of activity: (time, index of compute, exchange or wait, increment).
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
        for (time_ns, kind, by) in changes {
            let part = (time_ns - since) as f64 / whole;
            let share = match running.map(|count| count > 0) {
                [true, false, _] => &mut self.compute,
                [true, true, _] => &mut self.hidden_communication,
                [false, true, _] => &mut self.exposed_communication,
                [false, false, true] => &mut self.waiting_for_peers,
                [false, false, false] => &mut self.launch,
            };
            *share += part;
            running[kind] += by;
            since = time_ns;
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
            [
                s.compute,
                s.hidden_communication,
                s.exposed_communication,
                s.waiting_for_peers,
                s.launch,
                s.host,
            ]
        };
        for (found, expected) in all(&shares).into_iter().zip(all(&expected)) {
            assert!((found - expected).abs() < 1e-12, "{shares:?}");
        }
        // A second idle rank halves all shares and adds only host time.
        let shares = Shares::of(&spans, 0..2, 0, 100);
        assert!((shares.host - 0.70).abs() < 1e-12 && (all(&shares).iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
