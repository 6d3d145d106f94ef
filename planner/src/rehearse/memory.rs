//! Memory of a card, and the nearest settings that fit.
//!
//! - Invariant: each proposed setting was compiled and its bytes were counted.

use serde::Serialize;

use crate::fit_memory::{CardMemory, MemoryKind};
use ascend_tp::base::{Bytes, Diagnostic, KvType, Precision, Weights};
use ascend_tp::device::Communicator;
use ascend_tp::placement::Residual;
use ascend_tp::schedule::Plan;
use ascend_tp_machine::Profile;

use super::error::Error;
use super::setting::{MOST_CARDS, Setting, Site};

/// Needed and available memory of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RehearsalMemory {
    /// Bytes by kind of use.
    #[serde(flatten)]
    pub kinds: CardMemory,
    /// Sum of all kinds, in bytes.
    pub used: u64,
    /// Bytes available to a program.
    pub offered: u64,
    /// Installed bytes that the driver and the runtime reserve.
    pub kept_by_driver: u64,
}

impl RehearsalMemory {
    /// Returns the memory of the fullest card.
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

    /// Returns whether the plans fit the card.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.used <= self.offered
    }
}

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
            "no single change of cards (up to {MOST_CARDS}), batch, prompt or element types makes it fit; use a card with more memory"
        )
    } else {
        format!("these fit: {}", fitting.join("; "))
    };
    Ok(Diagnostic::new(
        format!("{} on {} × {}", setting.name, setting.site.cards, setting.site.profile.soc.short_name()),
        "does not fit the cards' memory",
    )
    .expected(format!(
        "at most {} per card ({installed} minus {} for driver and runtime)",
        Bytes(memory.offered),
        Bytes(memory.kept_by_driver)
    ))
    .found(format!("{} = {}", Bytes(memory.used), parts.join(" + ")))
    .help(help))
}

/// Returns the nearest settings that fit, each with one change: cards, batch, prompt length,
/// quantised weights or quantised KV caches.
fn nearest(setting: &Setting) -> Result<Vec<String>, Error> {
    let mut changes = Vec::new();
    changes.extend(cards(setting)?.map(|cards| format!("--cards {cards}")));
    let batch = |batch| Setting { batch, ..setting.clone() };
    changes.extend(largest(setting.batch, &batch)?.map(|most| format!("--batch {most}")));
    let input = |input| Setting { input, ..setting.clone() };
    changes.extend(largest(setting.input, &input)?.map(|most| format!("--input {most}")));
    if setting.precision.weights == Weights::Float && !setting.model.formats.is_quantised() {
        let Precision { activations, kv, .. } = setting.precision;
        let quantised = Setting { precision: Precision::w8a8(activations).with_kv(kv), ..setting.clone() };
        if !is_hopeless(&quantised) && fits(&quantised)? {
            changes.push("--dtype w8a8".to_owned());
        }
    }
    if setting.precision.kv == KvType::Activations {
        let cached = Setting { precision: setting.precision.with_kv(KvType::Int8), ..setting.clone() };
        // Some models have no such caches.
        if !is_hopeless(&cached) && fits(&cached).is_ok_and(|fits| fits) {
            changes.push("--kv-dtype int8".to_owned());
        }
    }
    Ok(changes)
}

fn cards(setting: &Setting) -> Result<Option<usize>, Error> {
    // Few cards, or whole servers.
    let is_likely =
        |cards: &usize| (*cards <= 8 || cards.is_multiple_of(8)) && cards.is_multiple_of(setting.stages);
    let with = |cards| Setting { site: Site { cards, ..setting.site.clone() }, ..setting.clone() };
    let counts = (setting.site.cards + 1..=MOST_CARDS).filter(is_likely);
    let counts: Vec<usize> = counts.filter(|cards| !is_hopeless(&with(*cards))).collect();
    let Some(last) = counts.len().checked_sub(1) else { return Ok(None) };
    let Some(first) =
        crossing(last, &|at| estimate(&with(counts[at])), ByteGrowth::Falling, offered(setting))?
    else {
        return Ok(None);
    };
    // The estimate may be slightly wrong.
    for cards in counts.into_iter().skip(first).take(TRIES) {
        if fits(&with(cards))? {
            return Ok(Some(cards));
        }
    }
    Ok(None)
}

fn largest(from: usize, with: &dyn Fn(usize) -> Setting) -> Result<Option<usize>, Error> {
    let hopeless = |size: usize| Ok(u64::from(is_hopeless(&with(size))));
    let Some(most) =
        crossing(from.saturating_sub(1), &hopeless, ByteGrowth::Rising, 0)?.filter(|most| *most > 0)
    else {
        return Ok(None);
    };
    let bytes = |size: usize| if size == 0 { Ok(0) } else { estimate(&with(size)) };
    let found = crossing(most, &bytes, ByteGrowth::Rising, offered(&with(1)))?.unwrap_or(0);
    for size in (1..=found).rev().take(TRIES) {
        if fits(&with(size))? {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

const TRIES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteGrowth {
    Rising,
    Falling,
}

/// Finds the size in `0..=most` at which bytes reach `limit`: the last within the limit for rising
/// bytes, the first for falling bytes.
///
/// Bytes are nearly affine in the size, so linear interpolation and bisection alternate.
fn crossing(
    most: usize,
    bytes: &dyn Fn(usize) -> Result<u64, Error>,
    growth: ByteGrowth,
    limit: u64,
) -> Result<Option<usize>, Error> {
    // Positions count from the end that fits.
    let size = |at: usize| if growth == ByteGrowth::Rising { at } else { most - at };
    let (mut low, mut high) = ((0, bytes(size(0))?), (most, bytes(size(most))?));
    if low.1 > limit {
        return Ok(None);
    }
    if high.1 <= limit {
        return Ok(Some(size(high.0)));
    }
    let mut is_middle = false;
    while high.0 - low.0 > 1 {
        let line = (limit - low.1) as f64 / (high.1 - low.1) as f64 * (high.0 - low.0) as f64;
        let next = if is_middle { low.0.midpoint(high.0) } else { low.0 + line as usize };
        let next = next.clamp(low.0 + 1, high.0 - 1);
        let found = (next, bytes(size(next))?);
        if found.1 <= limit {
            low = found;
        } else {
            high = found;
        }
        is_middle = !is_middle;
    }
    Ok(Some(size(low.0)))
}

fn offered(setting: &Setting) -> u64 {
    setting.site.profile.hbm_usable_bytes()
}

/// Above, the nearest settings of a hopeless setting are not counted.
const COUNTED_CARDS: usize = 32;

pub(super) fn hopeless(setting: &Setting) -> Result<Diagnostic, Error> {
    if setting.site.cards <= COUNTED_CARDS {
        return refusal(setting, &estimated(setting)?);
    }
    let of = |batch| Ok(u64::from(is_hopeless(&Setting { batch, ..setting.clone() })));
    let most = crossing(setting.batch, &of, ByteGrowth::Rising, 0)?.unwrap_or(0);
    let problem = Diagnostic::new(
        format!("{} on {} × {}", setting.name, setting.site.cards, setting.site.profile.soc.short_name()),
        "does not fit the cards' memory",
    );
    let problem = problem.expected(format!("at most {} per card", Bytes(offered(setting))));
    let least = Bytes(u64::try_from(certain_bytes(setting)).unwrap_or(u64::MAX));
    let help = match most {
        0 => "use a shorter --input and --output".to_owned(),
        most => format!("use a --batch below {most}, for which the KV cache alone fits"),
    };
    Ok(problem.found(format!("at least {least} for keys, values and one activation")).help(help))
}

/// True if a lower bound of the memory already exceeds the card.
pub(super) fn is_hopeless(setting: &Setting) -> bool {
    certain_bytes(setting) > u128::from(offered(setting))
}

/// Lower bound: keys and values of the local heads, and one activation of the prompt.
fn certain_bytes(setting: &Setting) -> u128 {
    let Setting { model, batch, input, output, .. } = setting;
    let cards = setting.site.cards.max(1);
    let product =
        |sizes: [usize; 4]| sizes.map(|size| size as u128).into_iter().fold(1, u128::saturating_mul);
    let element = setting.precision.activations.size_bytes();
    let tensor = (cards / setting.stages.max(1)).max(1);
    let layers = model.layers / setting.stages.max(1);
    let each = setting.precision.key_bytes(model.head_dim);
    let keys = product([2 * layers, model.kv_heads.div_ceil(tensor), each, *batch]);
    let activation = match setting.residual {
        Residual::Replicate => product([*batch, *input, model.hidden_size, element]),
        Residual::Seq => 0,
    };
    keys * (input + output) as u128 + activation
}

fn fits(setting: &Setting) -> Result<bool, Error> {
    Ok(RehearsalMemory::fullest(&setting.compile()?, &setting.site.profile).fits())
}

fn estimate(setting: &Setting) -> Result<u64, Error> {
    Ok(estimated(setting)?.used)
}

/// Extrapolates from compilations with two and three layers. Models of at most three layers and
/// pipelines are counted exactly.
fn estimated(setting: &Setting) -> Result<RehearsalMemory, Error> {
    let layers = setting.model.layers;
    let profile = &setting.site.profile;
    if layers <= 3 || setting.stages > 1 {
        return Ok(RehearsalMemory::fullest(&setting.compile()?, profile));
    }
    let with = |layers| {
        let mut other = setting.clone();
        other.model.layers = layers;
        Ok::<RehearsalMemory, Error>(RehearsalMemory::fullest(&other.compile()?, profile))
    };
    let (two, three) = (with(2)?, with(3)?);
    // Each layer after the third reuses the arena memory of the layer before.
    let kinds = two.kinds.along(&three.kinds, [layers - 2, 1]).with(MemoryKind::Arena, three.kinds);
    Ok(RehearsalMemory { kinds, used: kinds.total().0, ..three })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        most: usize,
        bytes: &dyn Fn(usize) -> u64,
        growth: ByteGrowth,
        limit: u64,
    ) -> (Option<usize>, usize) {
        let asked = std::cell::Cell::new(0);
        let count = |at: usize| {
            asked.set(asked.get() + 1);
            Ok(bytes(at))
        };
        (crossing(most, &count, growth, limit).unwrap(), asked.get())
    }

    #[test]
    fn sizes_at_a_limit_are_found_in_few_steps() {
        let affine = |at: usize| 500 + 7 * at as u64;
        assert_eq!(found(100_000, &affine, ByteGrowth::Rising, 7_503), (Some(1_000), 5));
        assert_eq!(found(100_000, &affine, ByteGrowth::Rising, 499).0, None);
        assert_eq!(found(10, &affine, ByteGrowth::Rising, 10_000).0, Some(10));
        let stairs = |at: usize| (at / 64) as u64;
        let (size, asked) = found(100_000, &stairs, ByteGrowth::Rising, 3);
        assert!(size == Some(255) && asked < 36, "{size:?} {asked}");
        let falling = |at: usize| 1_000 / (at as u64 + 1);
        assert_eq!(found(31, &falling, ByteGrowth::Falling, 100).0, Some(9));
        assert_eq!(found(31, &falling, ByteGrowth::Falling, 10).0, None);
    }
}
