//! The mixtures of experts that a `config.json` describes.
//!
//! Input: the keys that a table of a family names. Output: [`FeedForwardPart`]s of the layers.
//!
//! Invariants: a token finds as many experts as it needs, also within its groups. A key that
//! contradicts the router of the family is a problem.
//!
//! Not here: keys that no table names (`config/keys.rs`).

use serde_json::Value;

use super::families::{
    CHOSEN, EXPERTS, GroupKeys, MixtureKeys, MixtureLayers, Renormalised, SharedKeys, WidthKeys,
};
use super::fields::{Fields, ShortJson};
use super::layer::{ExpertGroups, FeedForwardPart, Mixture, Router, SharedExpert};
use crate::base::Diagnostic;

/// Sizes that a file gives apart from its mixtures.
#[derive(Clone, Copy)]
pub(super) struct ModelSizes {
    /// Number of layers.
    pub(super) layers: Option<usize>,
    /// Width of a dense layer.
    pub(super) intermediate: Option<usize>,
}

/// Reads the mixtures. Layer `l` has part `l` modulo the number of returned parts. `dense` is the
/// part of the other layers.
pub(super) fn read(
    fields: &mut Fields<'_>,
    keys: &MixtureKeys,
    sizes: ModelSizes,
    dense: Option<FeedForwardPart>,
) -> Option<Vec<FeedForwardPart>> {
    let is_mixture = layers(fields, keys.layers, sizes.layers);
    let mixture = mixture(fields, keys, sizes, dense);
    let mixture = FeedForwardPart::Mixture(mixture?);
    let dense = dense?;
    Some(is_mixture?.into_iter().map(|is_mixture| if is_mixture { mixture } else { dense }).collect())
}

/// Returns the width of the routed experts.
pub(super) fn width(parts: &[FeedForwardPart]) -> Option<usize> {
    parts.iter().find_map(|part| match part {
        FeedForwardPart::Mixture(mixture) => Some(mixture.intermediate_size),
        FeedForwardPart::Dense { .. } => None,
    })
}

fn mixture(
    fields: &mut Fields<'_>,
    keys: &MixtureKeys,
    sizes: ModelSizes,
    dense: Option<FeedForwardPart>,
) -> Option<Mixture> {
    let experts = one_size(fields, keys.experts, EXPERTS, sizes.layers);
    let chosen = one_size(fields, keys.chosen, CHOSEN, sizes.layers);
    let width = width_of_expert(fields, keys.width, sizes);
    let shared = shared(fields, keys.shared, width, sizes.layers);
    let groups = groups(fields, keys.groups, experts);
    let renormalisation = renormalisation(fields, keys.renormalised);
    let factor = match keys.factor {
        Some(key) => fields.positive(key),
        None => Some(1.0),
    };
    let (experts, chosen, groups) = (experts?, chosen?, groups?);
    enough_experts(fields, keys.chosen, experts, chosen, groups)?;
    if keys.renormalised == Renormalised::AlwaysOfSeveral {
        several_experts(fields, keys.chosen, chosen)?;
    }
    let (activation, has_bias) = match dense? {
        FeedForwardPart::Dense { activation, has_bias } => (activation, has_bias),
        FeedForwardPart::Mixture(mixture) => (mixture.activation, mixture.has_bias),
    };
    Some(Mixture {
        experts,
        chosen,
        intermediate_size: width?,
        router: Router {
            scores: keys.scores,
            has_logit_bias: keys.has_logit_bias,
            has_choice_bias: keys.has_choice_bias,
            groups,
            renormalisation: renormalisation?,
            factor: factor?,
        },
        shared: shared?,
        activation,
        has_bias,
    })
}

/// Returns the number in a list with one number a layer, or a value that is no list. Layers with
/// different numbers are refused.
fn same_in_layers<'a>(
    fields: &mut Fields<'a>,
    key: &str,
    value: &'a Value,
    layers: Option<usize>,
) -> Option<&'a Value> {
    let Some(list) = value.as_array() else { return Some(value) };
    if let Some(layers) = layers.filter(|layers| *layers != list.len()) {
        fields.report(
            Diagnostic::new(fields.place(key), "contradicts num_hidden_layers")
                .expected(format!("{layers} entries"))
                .found(list.len()),
        );
        return None;
    }
    let first = list.first()?;
    if let Some(layer) = list.iter().position(|value| value != first) {
        fields.report(
            Diagnostic::new(fields.place(key), format!("layer {layer} differs from layer 0"))
                .expected(ShortJson(first))
                .found(ShortJson(&list[layer]))
                .help("mixtures that differ between layers are not supported"),
        );
        return None;
    }
    Some(first)
}

/// Reads a size, or a list with the same size for each layer. Absence is a problem.
fn size_in_layers(fields: &mut Fields<'_>, key: &str, layers: Option<usize>) -> Option<usize> {
    let Some(value) = fields.get(key) else { return fields.size(key) };
    let value = same_in_layers(fields, key, value, layers)?;
    fields.size_of(key, value)
}

/// Reads the width of a routed expert.
fn width_of_expert(fields: &mut Fields<'_>, keys: WidthKeys, sizes: ModelSizes) -> Option<usize> {
    let key = match keys {
        WidthKeys::Intermediate => return sizes.intermediate,
        WidthKeys::Key(key) => return fields.size(key),
        WidthKeys::IntermediateAnd(key) => key,
    };
    if fields.get(key).is_none() {
        return sizes.intermediate;
    }
    let (written, width) = (size_in_layers(fields, key, sizes.layers)?, sizes.intermediate?);
    if written != width {
        fields.report(
            Diagnostic::new(fields.place(key), "differs from intermediate_size")
                .expected(width)
                .found(written)
                .help("programs of this architecture differ in which of them is the width of an expert"),
        );
        return None;
    }
    Some(width)
}

/// Refuses a token with one expert.
fn several_experts(fields: &mut Fields<'_>, key: &str, chosen: usize) -> Option<()> {
    if chosen > 1 {
        return Some(());
    }
    fields.report(
        Diagnostic::new(fields.place(key), "one expert per token is not supported")
            .expected("2 or more")
            .found(chosen)
            .help("programs of this architecture differ in the weight of a single expert"),
    );
    None
}

/// Reads a size that can have several names. The names of a file must agree.
fn one_size(fields: &mut Fields<'_>, key: &str, names: &[&str], layers: Option<usize>) -> Option<usize> {
    let written: Vec<&str> = names.iter().copied().filter(|name| fields.get(name).is_some()).collect();
    let first = if written.is_empty() || written.contains(&key) { key } else { written[0] };
    let size = size_in_layers(fields, first, layers)?;
    let mut agree = true;
    for other in written.into_iter().filter(|name| *name != first) {
        let found = size_in_layers(fields, other, layers)?;
        if found != size {
            agree = false;
            fields.report(
                Diagnostic::new(fields.place(other), format!("differs from {first}"))
                    .expected(size)
                    .found(found)
                    .help("keep the one the model was published with and remove the other"),
            );
        }
    }
    agree.then_some(size)
}

fn shared(
    fields: &mut Fields<'_>,
    keys: SharedKeys,
    width: Option<usize>,
    layers: Option<usize>,
) -> Option<Option<SharedExpert>> {
    let (key, has_gate) = match keys {
        SharedKeys::None => return Some(None),
        SharedKeys::GatedWidth(key) => (key, true),
        SharedKeys::Count(key) | SharedKeys::CountOrOne(key) => (key, false),
    };
    let written = match fields.get(key) {
        Some(value) => {
            let value = same_in_layers(fields, key, value, layers)?;
            if value.as_u64() == Some(0) {
                return Some(None);
            }
            fields.size_of(key, value)?
        }
        None if matches!(keys, SharedKeys::CountOrOne(_)) => 1,
        // A file with `null` has no shared expert. A file without the key is not clear.
        None if fields.has(key) => return Some(None),
        None => fields.size(key)?,
    };
    let intermediate_size = if has_gate { written } else { written * width? };
    Some(Some(SharedExpert { intermediate_size, has_gate }))
}

/// Reads the groups. Groups of which a token uses all are no groups.
fn groups(fields: &mut Fields<'_>, keys: GroupKeys, experts: Option<usize>) -> Option<Option<ExpertGroups>> {
    const COUNT: &str = "n_group";
    const KEPT: &str = "topk_group";
    let summed = match keys {
        GroupKeys::None => return Some(None),
        GroupKeys::Always(summed) => summed,
        GroupKeys::ByMethod(summed) => {
            // Files with another method have the keys too, and they mean nothing there.
            for key in [COUNT, KEPT] {
                fields.get(key);
            }
            if !has_groups(fields)? {
                return Some(None);
            }
            summed
        }
    };
    let (count, kept) = (fields.size(COUNT), fields.size(KEPT));
    let (count, kept, experts) = (count?, kept?, experts?);
    let mut is_valid = true;
    if !experts.is_multiple_of(count) || experts / count < summed {
        is_valid = false;
        let expected = format!("a divisor of {experts}, with {summed} or more experts in a group");
        fields.report(
            Diagnostic::new(fields.place(COUNT), "does not divide the experts into groups")
                .expected(expected)
                .found(count),
        );
    }
    if kept > count {
        is_valid = false;
        fields.report(
            Diagnostic::new(fields.place(KEPT), "more groups than n_group")
                .expected(format!("at most {count}"))
                .found(kept),
        );
    }
    is_valid.then(|| (kept < count).then_some(ExpertGroups { count, kept, summed }))
}

/// Reads `topk_method`.
fn has_groups(fields: &mut Fields<'_>) -> Option<bool> {
    const KEY: &str = "topk_method";
    let Some(value) = fields.get(KEY) else { return Some(false) };
    match value.as_str() {
        Some("greedy") => Some(false),
        Some("group_limited_greedy") => Some(true),
        _ => {
            fields.report(
                Diagnostic::new(fields.place(KEY), "contradicts the router of this architecture")
                    .expected("\"greedy\" or \"group_limited_greedy\"")
                    .found(ShortJson(value)),
            );
            None
        }
    }
}

/// Refuses a token that needs more experts than it can choose from.
fn enough_experts(
    fields: &mut Fields<'_>,
    key: &str,
    experts: usize,
    chosen: usize,
    groups: Option<ExpertGroups>,
) -> Option<()> {
    let choice = groups.map_or(experts, |groups| experts / groups.count * groups.kept);
    if chosen <= choice {
        return Some(());
    }
    fields.report(
        Diagnostic::new(fields.place(key), "more experts than a token can choose from")
            .expected(format!("at most {choice}"))
            .found(chosen),
    );
    None
}

/// Reads `norm_topk_prob`. A file that contradicts the router of the family is refused.
fn renormalisation(fields: &mut Fields<'_>, renormalised: Renormalised) -> Option<Option<f64>> {
    const KEY: &str = "norm_topk_prob";
    let written = fields.optional_flag(KEY);
    if written.is_none() && fields.get(KEY).is_some() {
        return None;
    }
    let (fixed, added) = match renormalised {
        Renormalised::Never => (false, 0.0),
        Renormalised::Always(added) => (true, added),
        Renormalised::AlwaysOfSeveral => (true, 0.0),
        Renormalised::Key { absent, added } => return Some(written.unwrap_or(absent).then_some(added)),
    };
    if let Some(written) = written.filter(|written| *written != fixed) {
        fields.report(
            Diagnostic::new(fields.place(KEY), "contradicts the router of this architecture")
                .expected(fixed)
                .found(written)
                .help("remove it if the model computes without it"),
        );
        return None;
    }
    Some(fixed.then_some(added))
}

/// Largest number of layers with separate descriptions. It bounds the memory of a wrong file.
const MOST_DESCRIPTIONS: usize = 1 << 16;

/// Returns which layers have a mixture: one value for all layers, or a list that repeats.
fn layers(fields: &mut Fields<'_>, keys: MixtureLayers, layers: Option<usize>) -> Option<Vec<bool>> {
    match keys {
        MixtureLayers::All => Some(vec![true]),
        MixtureLayers::Steps => {
            let step = match fields.get("decoder_sparse_step") {
                None => Some(1),
                Some(_) => fields.size("decoder_sparse_step"),
            };
            let dense = dense_layers(fields, layers);
            let (step, dense, layers) = (step?, dense?, layers?);
            let period = if dense.is_empty() { step.min(layers) } else { layers };
            few_enough(fields, period)?;
            let is_mixture = |layer: usize| (layer + 1).is_multiple_of(step) && !dense.contains(&layer);
            Some((0..period).map(is_mixture).collect())
        }
        MixtureLayers::FromFirst => {
            let first = count(fields, "first_k_dense_replace")?;
            if first == 0 {
                return Some(vec![true]);
            }
            let layers = layers?;
            few_enough(fields, layers)?;
            Some((0..layers).map(|layer| layer >= first).collect())
        }
    }
}

/// Refuses more layers with separate descriptions than a file can need.
pub(super) fn few_enough(fields: &mut Fields<'_>, layers: usize) -> Option<()> {
    if layers <= MOST_DESCRIPTIONS {
        return Some(());
    }
    fields.report(
        Diagnostic::new(fields.place("num_hidden_layers"), "too many layers of different kinds")
            .expected(format!("at most {MOST_DESCRIPTIONS}"))
            .found(layers),
    );
    None
}

/// Reads a size that can be 0. Absence is a problem.
pub(super) fn count(fields: &mut Fields<'_>, key: &str) -> Option<usize> {
    if fields.get(key).and_then(Value::as_u64) == Some(0) { Some(0) } else { fields.size(key) }
}

/// Reads the numbers of the layers that are dense.
fn dense_layers(fields: &mut Fields<'_>, layers: Option<usize>) -> Option<Vec<usize>> {
    const KEY: &str = "mlp_only_layers";
    let Some(value) = fields.get(KEY) else { return Some(Vec::new()) };
    let limit = layers.unwrap_or(usize::MAX);
    let number = |value: &Value| {
        value.as_u64().and_then(|layer| usize::try_from(layer).ok()).filter(|layer| *layer < limit)
    };
    let numbers: Option<Vec<usize>> = value.as_array().and_then(|list| list.iter().map(number).collect());
    if numbers.is_none() {
        fields.report(
            Diagnostic::new(fields.place(KEY), "wrong value")
                .expected("a list of numbers of layers, which start at 0")
                .found(ShortJson(value)),
        );
    }
    numbers
}
