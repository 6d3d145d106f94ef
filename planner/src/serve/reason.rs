//! Why one candidate beats another: the terms their times are made of, and the one that differs most.

use super::Candidate;
use crate::simulate::Breakdown;

/// A part of the time of a program that adds up with the others to all of it.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// What it is, in a sentence.
    pub name: &'static str,
    part_us: fn(&Breakdown) -> f64,
}

/// The terms; together they are the whole duration.
pub const TERMS: [Term; 6] = [
    Term { name: "products at the rate of the cube units", part_us: |parts| parts.cube_us },
    Term { name: "reading weights and caches", part_us: |parts| parts.memory_us },
    Term { name: "operators at the rate of the vector units", part_us: |parts| parts.vector_us },
    Term { name: "operators too small for the card", part_us: |parts| parts.launch_us },
    Term { name: "collectives that nothing hides", part_us: |parts| parts.exposed_us },
    Term { name: "the card waiting for its host", part_us: |parts| parts.idle_us },
];

impl Term {
    /// Its share of a program, in microseconds.
    #[must_use]
    pub fn of(&self, parts: &Breakdown) -> f64 {
        (self.part_us)(parts)
    }
}

/// The terms of a program, the longest first.
#[must_use]
pub fn terms_us(parts: &Breakdown) -> Vec<(&'static str, f64)> {
    let mut terms: Vec<(&str, f64)> = TERMS.iter().map(|term| (term.name, term.of(parts))).collect();
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    terms
}

/// Why `loser` takes longer than `winner`: the term of prefill or decode that adds most over a whole generation.
#[must_use]
pub fn difference(winner: &Candidate, loser: &Candidate) -> String {
    let steps = (loser.wanted.1 - 1) as f64;
    let phases = [("prefill", &winner.prefill, &loser.prefill, 1.0), ("decode", &winner.decode, &loser.decode, steps)];
    let mut best: Option<(f64, String)> = None;
    for (phase, won, lost, times) in phases {
        for term in TERMS {
            let more_us = term.of(lost) - term.of(won);
            if more_us > 0.0 && best.as_ref().is_none_or(|(known, _)| more_us * times > *known) {
                let text = format!("{phase} +{} for {}", milliseconds(more_us), term.name);
                best = Some((more_us * times, text));
            }
        }
    }
    let slower = (loser.total_us() / winner.total_us() - 1.0) * 100.0;
    match best {
        Some((_, text)) if loser.levels == winner.levels || loser.levels.is_empty() => {
            format!("{slower:+.1} %: {text}")
        }
        Some((_, text)) => format!("{slower:+.1} %: {text}, over {}", loser.levels.join(" and ")),
        None => format!("{slower:+.1} %: no term takes longer"),
    }
}

fn milliseconds(us: f64) -> String {
    format!("{:.2} ms", us / 1e3)
}
