//! Breakdown of the step time on cards with a virtual clock.
//!
//! - Output: the fraction of time spent in operators (the scaling efficiency), and the
//!   fractions of the losses.
//! - The first step is a warm-up and does not count.
//! - A collective starts when its last rank arrives, so waiting for other ranks is separate from
//!   communication.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::schedule::Plan;
use ascend_tp::timeline::{Phase, Shares, side_by_side};

use super::super::numbers::counted;

#[derive(Debug, Default)]
pub(super) struct Efficiency {
    steps: usize,
    /// Nanoseconds of one card: operators, exposed collectives, waits for other ranks, launches,
    /// the host.
    parts: [f64; 5],
}

impl Efficiency {
    pub(super) fn add(&mut self, phases: Vec<Phase>, programs: &[Vec<Arc<Plan>>], ranks: usize) {
        self.take(&side_by_side(vec![phases], programs), ranks);
    }

    /// Adds a step. A collective must start when the last rank arrives.
    fn take(&mut self, phases: &[Phase], ranks: usize) {
        self.steps += 1;
        if self.steps == 1 {
            return;
        }
        let mut end = None;
        for phase in phases {
            let shares = Shares::of(&phase.spans, 0..ranks, phase.start_ns, phase.end_ns);
            let ns = phase.end_ns.saturating_sub(phase.start_ns) as f64;
            let Shares {
                compute,
                hidden_communication,
                exposed_communication,
                waiting_for_peers,
                launch,
                host,
            } = shares;
            let own =
                [compute + hidden_communication, exposed_communication, waiting_for_peers, launch, host];
            for (sum, part) in self.parts.iter_mut().zip(own) {
                *sum += part * ns;
            }
            // A rank that finishes before the other ranks also waits for them.
            let done = phase.spans.iter().fold(BTreeMap::new(), |mut done, span| {
                let end: &mut u64 = done.entry(span.rank).or_default();
                *end = span.end_ns.max(*end);
                done
            });
            let last = done.values().copied().max().unwrap_or(0);
            let waited = done.values().map(|end| last - end).sum::<u64>() as f64 / ranks as f64;
            self.parts[2] += waited;
            self.parts[4] -= waited;
            // Between two programs, the host prepares the inputs of the next one.
            self.parts[4] += end.map_or(0, |end| phase.start_ns.saturating_sub(end)) as f64;
            end = Some(phase.end_ns);
        }
    }

    /// Returns the line, or None before the second step.
    pub(super) fn line(&self, cards: usize, stages: usize) -> Option<String> {
        let all: f64 = self.parts.iter().sum();
        let [operators, exposed, waiting, launches, host] = self.parts.map(|part| 100.0 * part / all);
        let waits = if stages > 1 { "bubbles and imbalance" } else { "imbalance" };
        (all > 0.0).then(|| {
            format!(
                "efficiency by the cards' clock: {operators:.1} % of {} over {}; lost: exposed collectives {exposed:.1} %, {waits} \
                 {waiting:.1} %, launches {launches:.1} %, host {host:.1} %",
                counted(cards, "card"),
                counted(self.steps - 1, "step"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use ascend_tp::schedule::plan::StreamKind;
    use ascend_tp::timeline::Span;

    use super::*;

    #[test]
    fn the_parts_of_two_cards_add_up() {
        let span = |rank: usize, start_ns: u64, end_ns: u64| Span {
            rank,
            stream: StreamKind::Compute,
            step: 0,
            operator: String::new(),
            arrived_ns: start_ns,
            start_ns,
            end_ns,
            work: None,
        };
        let phase = |spans: Vec<Span>, start_ns: u64, end_ns: u64| Phase {
            name: String::new(),
            program: 0,
            start_ns,
            end_ns,
            spans,
            calls: Vec::new(),
        };
        let mut found = Efficiency::default();
        assert_eq!(found.line(2, 1), None);
        for _ in 0..2 {
            let first = phase(vec![span(0, 0, 80), span(1, 0, 40)], 0, 80);
            let second = phase(vec![span(0, 100, 200), span(1, 100, 200)], 100, 200);
            found.take(&[first, second], 2);
        }
        let expected = "efficiency by the cards' clock: 80.0 % of 2 cards over 1 step; lost: exposed collectives 0.0 %, imbalance 10.0 \
                        %, launches 0.0 %, host 10.0 %";
        assert_eq!(found.line(2, 1).unwrap(), expected);
    }
}
