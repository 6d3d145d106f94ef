//! Why one candidate is faster than another.

use super::Candidate;
use crate::simulate::Breakdown;

type Term = (&'static str, fn(&Breakdown) -> f64);

/// The terms sum to the whole duration.
const TERMS: [Term; 6] = [
    ("products at the rate of the cube units", |parts| parts.cube_us),
    ("reading weights and caches", |parts| parts.memory_us),
    ("operators at the rate of the vector units", |parts| parts.vector_us),
    ("operators too small for the card", |parts| parts.launch_us),
    ("collectives that nothing hides", |parts| parts.exposed_us),
    ("the card waiting for its host", |parts| parts.idle_us),
];

/// Returns a program's terms, longest first.
#[must_use]
pub fn terms_us(parts: &Breakdown) -> Vec<(&'static str, f64)> {
    let mut terms = TERMS.map(|(name, part_us)| (name, part_us(parts))).to_vec();
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    terms
}

/// Names the term that adds most to `loser` over a whole generation.
#[must_use]
pub fn difference(winner: &Candidate, loser: &Candidate) -> String {
    let steps = (loser.wanted.1 - 1) as f64;
    let phases =
        [("prefill", &winner.prefill, &loser.prefill, 1.0), ("decode", &winner.decode, &loser.decode, steps)];
    let mut best: Option<(f64, String)> = None;
    for (phase, won, lost, times) in phases {
        for (name, part_us) in TERMS {
            let more_us = part_us(lost) - part_us(won);
            if more_us > 0.0 && best.as_ref().is_none_or(|(known, _)| more_us * times > *known) {
                let text = format!("{phase} +{} for {name}", milliseconds(more_us));
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
