//! The rotary embeddings that a `config.json` describes.
//!
//! Input: the keys `rope_theta` with `rope_scaling`, or the newer `rope_parameters`, or both.
//! Output: [`Rope`]s with every default resolved.
//!
//! Invariants: if a file has both forms, they must agree. A key that the kind of scaling does not
//! use is a problem, because a file that scales in an unknown way would give wrong text and no
//! error.
//!
//! Not here: angles.

use super::families::{RotaryKeys, RotatedPart, StandardRotary};
use super::fields::{Fields, ShortJson};
use super::rope::{Rope, RopeScaling, RotaryPairing};
use crate::base::Diagnostic;

#[derive(Debug)]
pub(super) struct Ropes {
    pub(super) global: Rope,
    /// The embedding of layers with a window, if the family has two.
    pub(super) local: Option<Rope>,
    /// Factor of the scores of latent attention.
    pub(super) score_factor: f64,
}

/// The embedding of layers without a window.
struct Global {
    rope: Rope,
    score_factor: f64,
}

/// Sizes that the embeddings of a file depend on, if they could be read.
#[derive(Clone, Copy)]
pub(super) struct RopeSizes {
    /// `max_position_embeddings`, the trained length of some scalings.
    pub(super) positions: Option<usize>,
    /// Dims of a head.
    pub(super) head_dim: Option<usize>,
}

/// Reads the rotary embeddings of a transformers-style file.
pub(super) fn read(fields: &mut Fields<'_>, sizes: RopeSizes, keys: &RotaryKeys) -> Option<Ropes> {
    let RotaryKeys::Standard(keys) = *keys else { return None };
    let StandardRotary { pairing, local_theta, needs_scaling, .. } = keys;
    if needs_scaling && ["rope_parameters", "rope_scaling"].iter().all(|key| fields.get(key).is_none()) {
        fields.report(
            Diagnostic::new(fields.place("rope_scaling"), "missing")
                .expected("the scaling of the rotary embedding")
                .help("add the field as the model's publisher wrote it; there is no safe default"),
        );
    }
    let written_part = match keys.part {
        RotatedPart::Whole => None,
        RotatedPart::Factor(_) | RotatedPart::Dims(_) => fields.optional_positive("partial_rotary_factor"),
    };
    let context = Context { sizes, keys, written_part };
    let object = fields.nested("rope_parameters");
    // For families with two embeddings, transformers 5 writes an object for each kind of layer.
    let (by_kind, newer) = match object {
        Some(object) if local_theta.is_some() && object.has("full_attention") => (Some(object), None),
        object => (None, object),
    };
    let Some(local_theta) = local_theta else {
        let Global { rope, score_factor } = context.global(fields, newer)?;
        return Some(Ropes { global: rope, local: None, score_factor });
    };
    let (newer, sliding) = match by_kind {
        Some(mut object) => {
            let kinds = ["full_attention", "sliding_attention"].map(|kind| object.nested(kind));
            Context::refuse_unread(&mut object);
            fields.absorb(object);
            let [full, sliding] = kinds;
            (full, sliding)
        }
        None => (newer, None),
    };
    let global = context.global(fields, newer);
    let sliding = sliding.map(|nested| context.object(fields, nested));
    let older = fields.optional_positive("rope_local_base_freq");
    let theta = sliding.as_ref().and_then(|object| object.theta).or(older).unwrap_or(local_theta);
    let scaling = sliding.map_or(Some(RopeScaling::Default), |object| object.scaling);
    let local = Rope { scaling: scaling?, pairing, ..Rope::plain(above_one(fields, theta)?) };
    let Global { rope, score_factor } = global?;
    Some(Ropes { global: rope, local: Some(local), score_factor })
}

/// Facts that all rotary objects of a file share.
struct Context {
    sizes: RopeSizes,
    keys: StandardRotary,
    /// Rotated part of a head outside of any object.
    written_part: Option<f64>,
}

impl Context {
    fn global(&self, fields: &mut Fields<'_>, newer: Option<Fields<'_>>) -> Option<Global> {
        let outer_theta = fields.optional_positive("rope_theta");
        let older = fields.nested("rope_scaling").map(|nested| self.object(fields, nested));
        let newer = newer.map(|nested| self.object(fields, nested));
        let theta = the_one_theta(fields, &newer, &older, outer_theta);
        if let (Some(newer), Some(older)) = (&newer, &older)
            && let (Some(new), Some(old)) = (&newer.scaling, &older.scaling)
            && new != old
        {
            fields.report(
                Diagnostic::new(fields.place("rope_scaling"), "differs from rope_parameters")
                    .expected(format!("{new:?}"))
                    .found(format!("{old:?}"))
                    .help("keep the one the model was published with and remove the other"),
            );
        }
        let theta = match (theta, self.keys.absent_theta) {
            (Some(theta), _) => above_one(fields, theta),
            (None, _) if fields.get("rope_theta").is_some() => None,
            (None, Some(theta)) => Some(theta),
            (None, None) => fields.positive("rope_theta"),
        };
        let inner_part = newer.as_ref().and_then(|object| object.part);
        let written = self.written_part.or(inner_part);
        let is_wrong = |part: &f64| Some(*part) != written || *part > 1.0;
        if let Some(wrong) = inner_part.into_iter().chain(written).find(is_wrong) {
            fields.report(
                Diagnostic::new(fields.place("partial_rotary_factor"), "no part of a head")
                    .expected("one number up to 1")
                    .found(wrong),
            );
        }
        let part = match self.keys.part {
            RotatedPart::Whole => Some(1.0),
            RotatedPart::Factor(absent) => Some(written.unwrap_or(absent)),
            RotatedPart::Dims(key) => self.part_of_dims(fields, key, written),
        };
        let pairing = self.pairing(fields);
        let (scaling, score_factor) = match newer.or(older) {
            Some(object) => (object.scaling, object.score_factor),
            None => (Some(RopeScaling::Default), 1.0),
        };
        let rope = Rope { scaling: scaling?, part: part?, pairing: pairing?, ..Rope::plain(theta?) };
        Some(Global { rope, score_factor })
    }

    /// Reads the dims that are rotated together.
    fn pairing(&self, fields: &mut Fields<'_>) -> Option<RotaryPairing> {
        let Some(key) = self.keys.interleave.filter(|key| fields.get(key).is_some()) else {
            return Some(self.keys.pairing);
        };
        let interleave = fields.optional_flag(key)?;
        Some(if interleave { RotaryPairing::Neighbours } else { RotaryPairing::Halves })
    }

    /// Returns the rotated part of a head from its rotated dims. `written` is the part in files of
    /// newer versions, which have it in addition or instead.
    fn part_of_dims(&self, fields: &mut Fields<'_>, key: &str, written: Option<f64>) -> Option<f64> {
        if fields.get(key).is_none() && written.is_some() {
            return written;
        }
        let (dims, head_dim) = (fields.size(key), self.sizes.head_dim);
        let (dims, head_dim) = (dims?, head_dim?);
        if dims > head_dim {
            fields.report(
                Diagnostic::new(fields.place(key), "more rotated dims than a head has")
                    .expected(format!("at most {head_dim}"))
                    .found(dims),
            );
            return None;
        }
        let part = Rope::part_of(dims, head_dim);
        if let Some(written) = written.filter(|written| (head_dim as f64 * written) as usize != dims) {
            fields.report(
                Diagnostic::new(fields.place("partial_rotary_factor"), format!("differs from {key}"))
                    .expected(part)
                    .found(written),
            );
            return None;
        }
        Some(part)
    }

    fn object(&self, fields: &mut Fields<'_>, mut object: Fields<'_>) -> RopeObject {
        let has_part = self.keys.part != RotatedPart::Whole;
        let part = if has_part { object.optional_positive("partial_rotary_factor") } else { None };
        let is_known = has_part || rotates_whole_head(&mut object);
        let theta = object.optional_positive("rope_theta");
        if self.keys.has_sections {
            for section in ["mrope_section", "mrope_interleaved"] {
                object.get(section);
            }
        }
        let scaling = self.scaling(&mut object).filter(|_| is_known);
        // The keys of a scaling that could not be read are not known.
        if scaling.is_some() {
            Self::refuse_unread(&mut object);
        }
        let score_factor = score_factor(&object, scaling.as_ref());
        fields.absorb(object);
        RopeObject { theta, scaling, score_factor, part }
    }

    fn scaling(&self, object: &mut Fields<'_>) -> Option<RopeScaling> {
        let written_positions = self.sizes.positions;
        let (newer, older) = (object.optional_text("rope_type"), object.optional_text("type"));
        if let (Some(newer), Some(older)) = (newer, older)
            && newer != older
        {
            object.report(
                Diagnostic::new(object.place("type"), "differs from rope_type").expected(newer).found(older),
            );
            return None;
        }
        match newer.or(older).unwrap_or("default") {
            "default" => Some(RopeScaling::Default),
            "linear" => Some(RopeScaling::Linear { factor: growth(object, "factor")? }),
            "dynamic" if self.keys.has_alpha && object.get("alpha").is_some() => read_alpha(object),
            "dynamic" => {
                let (factor, trained) =
                    (growth(object, "factor"), trained_positions(object, written_positions));
                Some(RopeScaling::Dynamic { factor: factor?, trained_positions: trained? })
            }
            "llama3" => read_llama3(object),
            "yarn" => read_yarn(object, written_positions),
            other => {
                object.report(
                    Diagnostic::new(object.place("rope_type"), "unknown scaling of the rotary embedding")
                        .expected("default, linear, dynamic, llama3 or yarn")
                        .found(format!("`{other}`")),
                );
                None
            }
        }
    }

    fn refuse_unread(object: &mut Fields<'_>) {
        for name in object.unread() {
            object.report(
                Diagnostic::new(object.place(name), "a key that this rotary embedding does not use")
                    .expected("the keys of its rope_type alone")
                    .help(
                        "this runtime does not know what it does to the angles; remove it if it does nothing",
                    ),
            );
        }
    }
}

/// Returns the base. Any of three places may give it, and all that do must agree.
fn the_one_theta(
    fields: &mut Fields<'_>,
    newer: &Option<RopeObject>,
    older: &Option<RopeObject>,
    outer: Option<f64>,
) -> Option<f64> {
    let inner = |object: &Option<RopeObject>| object.as_ref().and_then(|object| object.theta);
    let written = [
        ("rope_parameters.rope_theta", inner(newer)),
        ("rope_scaling.rope_theta", inner(older)),
        ("rope_theta", outer),
    ];
    let mut given = written.into_iter().filter_map(|(place, theta)| Some((place, theta?)));
    let (first_place, first) = given.next()?;
    for (place, theta) in given.filter(|(_, theta)| *theta != first) {
        fields.report(
            Diagnostic::new(fields.place(place), format!("differs from {first_place}"))
                .expected(first)
                .found(theta)
                .help("keep the one the model was trained with"),
        );
    }
    Some(first)
}

struct RopeObject {
    theta: Option<f64>,
    /// `None` if it could not be read. The problem is reported then.
    scaling: Option<RopeScaling>,
    /// Factor of the scores of latent attention.
    score_factor: f64,
    /// Rotated part of a head, if the object has it.
    part: Option<f64>,
}

/// Reads the length where dynamic scaling starts. Every reader of these files takes the written
/// positions, so another length is a contradiction.
fn trained_positions(object: &mut Fields<'_>, written_positions: Option<usize>) -> Option<usize> {
    const NAME: &str = "original_max_position_embeddings";
    if object.get(NAME).is_none() {
        return written_positions;
    }
    let (original, written) = (object.size(NAME)?, written_positions?);
    if original != written {
        object.report(
            Diagnostic::new(
                object.place(NAME),
                "differs from max_position_embeddings, where dynamic scaling starts",
            )
            .expected(written)
            .found(original),
        );
        return None;
    }
    Some(written)
}

/// Reads a base that grows at any length. The programs of these files ignore the other keys.
/// Serving engines extend the positions by `factor`, so it must be 1.
fn read_alpha(object: &mut Fields<'_>) -> Option<RopeScaling> {
    for ignored in ["beta_fast", "beta_slow", "mscale", "mscale_all_dim"] {
        object.get(ignored);
    }
    let (alpha, factor) = (growth(object, "alpha"), optional(object, "factor", 1.0)?);
    if factor != 1.0 {
        object.report(
            Diagnostic::new(object.place("factor"), "extends the context in addition to alpha")
                .expected(1)
                .found(factor),
        );
        return None;
    }
    Some(RopeScaling::NtkAlpha { alpha: alpha? })
}

fn read_llama3(object: &mut Fields<'_>) -> Option<RopeScaling> {
    let factor = growth(object, "factor");
    let low = object.positive("low_freq_factor");
    let high = object.positive("high_freq_factor");
    let original = object.size("original_max_position_embeddings");
    if let (Some(low), Some(high)) = (low, high)
        && high <= low
    {
        object.report(
            Diagnostic::new(object.place("high_freq_factor"), "not above low_freq_factor")
                .expected(format!("more than {low}"))
                .found(high),
        );
        return None;
    }
    Some(RopeScaling::Llama3 {
        factor: factor?,
        low_freq_factor: low?,
        high_freq_factor: high?,
        original_positions: original?,
    })
}

fn read_yarn(object: &mut Fields<'_>, written_positions: Option<usize>) -> Option<RopeScaling> {
    const BETA_FAST: f64 = 32.0;
    const BETA_SLOW: f64 = 1.0;
    let original = match object.get("original_max_position_embeddings") {
        Some(_) => object.size("original_max_position_embeddings"),
        None => written_positions,
    };
    let factor = match (object.get("factor"), original, written_positions) {
        (None, Some(original), Some(written)) if written > original => Some(written as f64 / original as f64),
        _ => growth(object, "factor"),
    };
    let beta_fast = optional(object, "beta_fast", BETA_FAST);
    let beta_slow = optional(object, "beta_slow", BETA_SLOW);
    if let (Some(fast), Some(slow)) = (beta_fast, beta_slow)
        && fast < slow
    {
        object.report(
            Diagnostic::new(object.place("beta_fast"), "below beta_slow")
                .expected(format!("at least {slow}"))
                .found(fast),
        );
        return None;
    }
    // transformers reads `attention_factor` only. It warns of these two and computes without them.
    for ignored in ["attn_factor", "finetuned"] {
        object.get(ignored);
    }
    let truncate = object.optional_flag("truncate").unwrap_or(true);
    let written_attention = object.optional_positive("attention_factor");
    let (mscale, mscale_all_dim) = (mscale(object, "mscale"), mscale(object, "mscale_all_dim"));
    let factor = factor?;
    let attention_factor = match (written_attention, mscale, mscale_all_dim) {
        (Some(written), ..) => written,
        (None, Some(scale), Some(all_dim)) => yarn_magnitude(factor, scale) / yarn_magnitude(factor, all_dim),
        (None, ..) => yarn_magnitude(factor, 1.0),
    };
    Some(RopeScaling::Yarn {
        factor,
        original_positions: original?,
        attention_factor,
        beta_fast: beta_fast?,
        beta_slow: beta_slow?,
        truncate,
    })
}

/// Returns the factor of the scores of latent attention: the square of the growth that
/// `mscale_all_dim` gives.
fn score_factor(object: &Fields<'_>, scaling: Option<&RopeScaling>) -> f64 {
    let all_dim = object.get("mscale_all_dim").and_then(serde_json::Value::as_f64);
    match (scaling, all_dim) {
        (Some(RopeScaling::Yarn { factor, .. }), Some(all_dim)) => yarn_magnitude(*factor, all_dim).powi(2),
        _ => 1.0,
    }
}

/// Returns the growth of attention logits that `YaRN` recommends for a context `factor` times as
/// long.
fn yarn_magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

/// Reads a number for which zero means absent.
fn mscale(object: &mut Fields<'_>, name: &str) -> Option<f64> {
    if object.get(name).and_then(serde_json::Value::as_f64) == Some(0.0) {
        None
    } else {
        object.optional_positive(name)
    }
}

/// Returns the field's value, the default if it is absent, or `None` if it is wrong.
fn optional(object: &mut Fields<'_>, name: &str, default: f64) -> Option<f64> {
    if object.get(name).is_none() { Some(default) } else { object.optional_positive(name) }
}

/// Reads a number of at least 1 that extends the context.
fn growth(object: &mut Fields<'_>, key: &str) -> Option<f64> {
    let growth = object.positive(key)?;
    if growth < 1.0 {
        object.report(
            Diagnostic::new(object.place(key), "shortens the context").expected("at least 1").found(growth),
        );
        return None;
    }
    Some(growth)
}

/// Refuses a base of at most 1, because its powers do not grow.
pub(super) fn above_one(fields: &mut Fields<'_>, theta: f64) -> Option<f64> {
    if theta > 1.0 {
        return Some(theta);
    }
    fields.report(
        Diagnostic::new(fields.place("rope_theta"), "no base of a rotary embedding")
            .expected("more than 1")
            .found(theta),
    );
    None
}

/// Refuses an embedding that rotates only a part of a head.
fn rotates_whole_head(fields: &mut Fields<'_>) -> bool {
    let Some(value) = fields.get("partial_rotary_factor") else { return true };
    if value.as_f64() == Some(1.0) {
        return true;
    }
    fields.report(
        Diagnostic::new(fields.place("partial_rotary_factor"), "not supported")
            .expected("1, the whole head is rotated")
            .found(ShortJson(value)),
    );
    false
}

#[cfg(test)]
mod tests {
    use super::{RopeSizes, RotaryPairing, read};
    use crate::base::Diagnostics;
    use crate::config::families::{RotaryKeys, RotatedPart, StandardRotary};
    use crate::config::fields::{Fields, parse_object};
    use crate::config::{Rope, RopeScaling};

    fn keys(absent_theta: Option<f64>) -> RotaryKeys {
        RotaryKeys::Standard(StandardRotary {
            absent_theta,
            part: RotatedPart::Whole,
            pairing: RotaryPairing::Halves,
            interleave: None,
            local_theta: None,
            needs_scaling: false,
            has_sections: false,
            has_alpha: false,
        })
    }

    fn check(text: &str, absent: Option<f64>) -> Result<Rope, Diagnostics> {
        let object = parse_object("config.json", text)?;
        let mut fields = Fields::new("config.json", &object);
        let rope = read(&mut fields, RopeSizes { positions: Some(1024), head_dim: Some(64) }, &keys(absent))
            .map(|ropes| ropes.global);
        let problems = fields.into_problems();
        match rope {
            Some(rope) => problems.into_result(rope),
            None => Err(problems),
        }
    }

    fn refused(text: &str, words: &[&str]) {
        let message = check(text, None).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "`{word}` is not in: {message}");
        }
    }

    #[test]
    fn both_forms_give_the_same() {
        let older = r#"{"rope_theta": 5e5, "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1,
            "high_freq_factor": 4, "original_max_position_embeddings": 64}}"#;
        let newer = r#"{"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}"#;
        let expected = Rope {
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_positions: 64,
            },
            ..Rope::plain(5e5)
        };
        assert_eq!(check(older, None).unwrap(), expected);
        assert_eq!(check(newer, None).unwrap(), expected);
    }

    #[test]
    fn yarn_defaults_are_resolved() {
        let text = r#"{"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
            "original_max_position_embeddings": 256}}"#;
        let expected = RopeScaling::Yarn {
            factor: 4.0,
            original_positions: 256,
            attention_factor: 0.1 * 4f64.ln() + 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
        };
        assert_eq!(check(text, None).unwrap().scaling, expected);
        // Without a factor it is the ratio of the written to the original positions, here 1024 /
        // 256.
        let text = text.replace(r#""factor": 4.0,"#, r#""factor": null,"#);
        assert_eq!(check(&text, None).unwrap().scaling, expected);
        // Keys that transformers does not read change nothing.
        let text =
            text.replace(r#""type": "yarn""#, r#""type": "yarn", "attn_factor": 0.5, "finetuned": true"#);
        assert_eq!(check(&text, None).unwrap().scaling, expected);
    }

    #[test]
    fn yarn_takes_what_is_given() {
        let text = r#"{"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 2, "beta_fast": 16,
            "beta_slow": 2, "truncate": false, "attention_factor": 0.5}}"#;
        let expected = RopeScaling::Yarn {
            factor: 2.0,
            original_positions: 1024,
            attention_factor: 0.5,
            beta_fast: 16.0,
            beta_slow: 2.0,
            truncate: false,
        };
        assert_eq!(check(text, None).unwrap().scaling, expected);
        let text = r#"{"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 2, "mscale": 0.5,
            "mscale_all_dim": 1}}"#;
        let RopeScaling::Yarn { attention_factor, .. } = check(text, None).unwrap().scaling else {
            panic!("not yarn");
        };
        assert_eq!(attention_factor, (0.05 * 2f64.ln() + 1.0) / (0.1 * 2f64.ln() + 1.0));
    }

    #[test]
    fn linear_dynamic_and_default() {
        let with = |scaling: &str| {
            let text = format!(r#"{{"rope_theta": 1e4, "rope_scaling": {scaling}}}"#);
            check(&text, None).unwrap().scaling
        };
        assert_eq!(with(r#"{"type": "linear", "factor": 2.0}"#), RopeScaling::Linear { factor: 2.0 });
        let dynamic = RopeScaling::Dynamic { factor: 2.0, trained_positions: 1024 };
        assert_eq!(with(r#"{"type": "dynamic", "factor": 2.0}"#), dynamic);
        assert_eq!(
            with(r#"{"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 1024}"#),
            dynamic
        );
        assert_eq!(with(r#"{"type": "default"}"#), RopeScaling::Default);
        assert_eq!(check(r#"{"rope_theta": 7, "rope_scaling": null}"#, None).unwrap(), Rope::plain(7.0));
    }

    #[test]
    fn a_missing_base_has_a_default_only_where_the_first_files_had_none() {
        assert_eq!(check("{}", Some(10_000.0)).unwrap(), Rope::plain(10_000.0));
        refused("{}", &["config.json: rope_theta: missing"]);
    }

    #[test]
    fn forms_that_disagree_are_refused() {
        refused(
            r#"{"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}"#,
            &[
                "config.json: rope_theta: differs from rope_parameters.rope_theta: expected 1000000, found 10000",
            ],
        );
        refused(
            r#"{"rope_scaling": {"rope_theta": 1e4}, "rope_parameters": {"rope_theta": 1e6}}"#,
            &["config.json: rope_scaling.rope_theta: differs from rope_parameters.rope_theta"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_parameters": {"rope_type": "default"},
                "rope_scaling": {"type": "linear", "factor": 2}}"#,
            &["config.json: rope_scaling: differs from rope_parameters", "Default", "Linear"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}}"#,
            &["config.json: rope_scaling.type", "yarn", "linear"],
        );
    }

    #[test]
    fn what_is_unknown_is_refused() {
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"type": "longrope"}}"#,
            &["rope_scaling.rope_type", "longrope"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"type": "default", "mrope_section": [1]}}"#,
            &["mrope_section"],
        );
        refused(r#"{"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}"#, &["full_attention"]);
        refused(
            r#"{"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}"#,
            &["rope_parameters.partial_rotary_factor", "found 0.5"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": "yarn"}"#,
            &["config.json: rope_scaling", "an object"],
        );
        refused(r#"{"rope_theta": 0.5}"#, &["config.json: rope_theta", "more than 1"]);
    }

    #[test]
    fn a_key_of_another_kind_of_scaling_is_refused() {
        // Without a type nothing would be scaled.
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"factor": 2.0}}"#,
            &["rope_scaling.factor: a key that"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0, "attention_factor": 0.5}}"#,
            &["rope_scaling.attention_factor: a key that this rotary embedding does not use"],
        );
        refused(
            r#"{"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0,
                "original_max_position_embeddings": 512}}"#,
            &["rope_scaling.original_max_position_embeddings: differs", "expected 1024, found 512"],
        );
    }

    #[test]
    fn all_problems_of_an_object_come_at_once() {
        let text = r#"{"rope_theta": "a", "rope_scaling": {"type": "llama3", "factor": 0.5, "low_freq_factor": 4,
            "high_freq_factor": 1}}"#;
        refused(
            text,
            &[
                "config.json: rope_theta: wrong value",
                "config.json: rope_scaling.factor: shortens the context",
                "config.json: rope_scaling.high_freq_factor: not above",
                "config.json: rope_scaling.original_max_position_embeddings: missing",
            ],
        );
    }
}
