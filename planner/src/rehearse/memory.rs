//! Bytes on a card, and the nearest settings that fit where one does not.
//!
//! Input → output: the plans of a setting → [`RehearsalMemory`] of the fullest card, before anything runs; a setting that does not
//! fit → the settings next to it that do, each with one thing changed. Invariant: what is proposed was compiled and
//! counted, not estimated.

use serde::Serialize;

use crate::fit_memory::{CardMemory, MemoryKind};
use ascend_tp::base::{Bytes, Diagnostic, Precision, Weights};
use ascend_tp::device::Communicator;
use ascend_tp::schedule::Plan;
use ascend_tp_machine::Profile;

use super::error::Error;
use super::setting::{MOST_CARDS, Setting, Site};

/// What the plans take of one card, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RehearsalMemory {
    /// Bytes by kind.
    #[serde(flatten)]
    pub kinds: CardMemory,
    /// All of these.
    pub used: u64,
    /// What the card offers to a program.
    pub offered: u64,
    /// What driver and runtime keep of the memory that is soldered on the card.
    pub kept_by_driver: u64,
}

impl RehearsalMemory {
    /// The bytes of the fullest card of a chip.
    #[must_use]
    pub fn fullest(programs: &[impl AsRef<[Plan]>], profile: &Profile) -> Self {
        let programs: Vec<&[Plan]> = programs.iter().map(AsRef::as_ref).collect();
        let kinds = CardMemory::fullest(&programs, Communicator::buffer_bytes());
        Self {
            kinds,
            used: kinds.total().0,
            offered: profile.hbm_usable_bytes(),
            kept_by_driver: profile.hbm_installed_bytes - profile.hbm_usable_bytes(),
        }
    }

    /// Whether the card has as much.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.used <= self.offered
    }
}

/// Why a setting is refused: the arithmetic, and what would fit.
pub(super) fn refusal(setting: &Setting, memory: &RehearsalMemory) -> Result<Diagnostic, Error> {
    let parts: Vec<String> = memory
        .kinds
        .kinds()
        .filter(|(_, bytes)| bytes.0 > 0)
        .map(|(kind, bytes)| format!("{} {bytes}", kind.name()))
        .collect();
    let installed = Bytes(memory.offered + memory.kept_by_driver);
    let fitting = nearest(setting)?;
    let help = if fitting.is_empty() {
        format!(
            "no single change of cards (up to {MOST_CARDS}), batch, prompt or element type makes it fit; use a card with more memory"
        )
    } else {
        format!("these fit: {}", fitting.join("; "))
    };
    Ok(Diagnostic::new(
        format!("{} on {} × {}", setting.name, setting.site.cards, setting.site.profile.soc.short_name()),
        "does not fit the cards' memory",
    )
    .expected(format!(
        "at most {} a card ({installed} less {} that driver and runtime keep)",
        Bytes(memory.offered),
        Bytes(memory.kept_by_driver)
    ))
    .found(format!("{} = {}", Bytes(memory.used), parts.join(" + ")))
    .help(help))
}

/// The nearest settings that fit, one change each: the fewest more cards, the largest batch, the longest prompt, smaller
/// weights.
fn nearest(setting: &Setting) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    // Any number of cards works; whole servers are what people have.
    let is_likely = |cards: &usize| (*cards <= 8 || cards.is_multiple_of(8)) && cards.is_multiple_of(setting.stages);
    let counts = (setting.site.cards + 1..=MOST_CARDS).filter(is_likely);
    for cards in counts {
        let other = Setting { site: Site { cards, ..setting.site.clone() }, ..setting.clone() };
        if estimate(&other)? <= other.site.profile.hbm_usable_bytes() && fits(&other)? {
            found.push(format!("--cards {cards}"));
            break;
        }
    }
    let batch = |batch| Setting { batch, ..setting.clone() };
    if let Some(most) = largest(setting.batch, &batch)? {
        found.push(format!("--batch {most}"));
    }
    let input = |input| Setting { input, ..setting.clone() };
    if let Some(most) = largest(setting.input, &input)? {
        found.push(format!("--input {most}"));
    }
    if setting.precision.weights == Weights::Float {
        let precision = Precision::w8a8(setting.precision.activations);
        if fits(&Setting { precision, ..setting.clone() })? {
            found.push("--dtype w8a8".to_owned());
        }
    }
    Ok(found)
}

/// The largest size below `from` with which a setting fits.
fn largest(from: usize, with: &dyn Fn(usize) -> Setting) -> Result<Option<usize>, Error> {
    // `low` fits or is 0, `high` does not fit.
    let (mut low, mut high) = (0, from);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let other = with(middle);
        if estimate(&other)? <= other.site.profile.hbm_usable_bytes() { low = middle } else { high = middle }
    }
    // The estimate may be a little off; the count decides.
    for size in (1..=low).rev().take(4) {
        if fits(&with(size))? {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

fn fits(setting: &Setting) -> Result<bool, Error> {
    Ok(RehearsalMemory::fullest(&setting.compile()?, &setting.site.profile).fits())
}

/// Bytes of the fullest card, from two and three layers: each layer more takes what the third does, where one card has all of them.
fn estimate(setting: &Setting) -> Result<u64, Error> {
    let layers = setting.model.layers;
    if layers <= 3 || setting.stages > 1 {
        return Ok(RehearsalMemory::fullest(&setting.compile()?, &setting.site.profile).used);
    }
    let with = |layers| {
        let mut other = setting.clone();
        other.model.layers = layers;
        Ok::<CardMemory, Error>(RehearsalMemory::fullest(&other.compile()?, &other.site.profile).kinds)
    };
    let (two, three) = (with(2)?, with(3)?);
    let all = two.along(&three, (layers - 2, 1));
    // Layers share the arena: where the third finds no room that the first two left, the fourth finds the third's.
    Ok(all.total().0 - all.bytes(MemoryKind::Arena).0 + three.bytes(MemoryKind::Arena).0)
}
