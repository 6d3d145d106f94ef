//! The reader of `config.json`: the table of a family and the fields of a file give a description.
//!
//! Input: fields and a [`FamilyTable`]. Output: [`ModelConfig`], or problems of the fields.
//!
//! Invariants: the reader never asks which family it reads.
//!
//! Not here: keys that no table names (`config/keys.rs`).

use std::sync::Arc;

use serde_json::Value;

use super::delta_fields;
use super::families::{
    Absent, ActivationKeys, Bias, Caps, Family, FamilyTable, Intermediate, Keys, Layers, RotaryKeys, Windows,
};
use super::fields::{Fields, LARGEST_SIZE, ShortJson};
use super::latent_fields::{self, LatentDims};
use super::layer::{Activation, AttentionPart, FeedForwardPart, GatedDelta, GroupedAttention, Layer, Rotary};
use super::mixture_fields::{self, ModelSizes};
use super::model::{LogN, ModelConfig};
use super::rope::{Rope, RopeScaling};
use super::rope_fields::{self, RopeSizes, Ropes};
use crate::base::{DType, Diagnostic};

/// Reads the fields of a file of this family.
pub(super) fn read(fields: &mut Fields<'_>, family: Family) -> Option<ModelConfig> {
    let FamilyTable { keys, layers: table, mixture, .. } = family.table();
    let vocab_size = fields.size("vocab_size");
    let hidden_size = fields.size("hidden_size");
    let layers = fields.size("num_hidden_layers");
    let kinds = layer_kinds(fields, layers, table);
    let heads = fields.size("num_attention_heads");
    let latent = keys.is_latent.then(|| latent_fields::read(fields));
    let (kv_heads, head_dim) = match latent {
        Some(dims) => (heads, dims.as_ref().map(LatentDims::head_dim)),
        None => (kv_heads(fields, keys, heads), head_dim(fields, keys, hidden_size, heads)),
    };
    let intermediate_size = match keys.intermediate {
        Intermediate::Each => fields.size("intermediate_size"),
        Intermediate::Both => fields.size("intermediate_size").and_then(|written| halved(fields, written)),
        Intermediate::OfExperts => None,
    };
    let norm_epsilon = fields.positive(keys.norm_epsilon);
    let positions = positions(fields, keys, head_dim);
    let tied_embeddings = fields.optional_flag("tie_word_embeddings").unwrap_or(keys.tied);
    let layer = layer(fields, table);
    let prediction_layers = prediction_layers(fields, keys);
    let sizes = ModelSizes { layers, intermediate: intermediate_size };
    let dense = layer.map(|layer| layer.feed_forward);
    let parts = match mixture {
        Some(keys) => mixture_fields::read(fields, keys, sizes, dense),
        None => dense.map(|dense| vec![dense]),
    };
    let intermediate_size = match keys.intermediate {
        Intermediate::OfExperts => parts.as_deref().and_then(mixture_fields::width),
        Intermediate::Each | Intermediate::Both => intermediate_size,
    };
    let caps = caps(fields, table.caps);
    let dtype = dtype(fields);
    let kv_heads = heads.zip(kv_heads).and_then(|(heads, kv_heads)| divides_heads(fields, heads, kv_heads));
    if let (true, Some(hidden), Some(heads), Some(dim)) =
        (keys.heads_fill_hidden, hidden_size, heads, head_dim)
    {
        heads_fill(fields, keys.head_dim, hidden, [heads, dim])?;
    }
    let PositionFields { ropes, logn, max_positions } = positions?;
    let (kinds, mut layer, mut head_dim, mut kv_heads) = (kinds?, layer?, head_dim?, kv_heads?);
    let mut rope = ropes.global;
    match latent {
        Some(dims) => {
            let dims = dims?;
            // Attention reads rows of the latent and of the rotated key, which all heads share.
            (kv_heads, head_dim) = (1, dims.row_width());
            rope.part = Rope::part_of(dims.rotary_dims, head_dim);
            layer.attention = AttentionPart::Latent(dims.attention(ropes.score_factor));
        }
        None => rotates_pairs(fields, &rope, keys, head_dim)?,
    }
    let has_local = ropes.local.is_some();
    let (parts, layers) = (parts?, layers?);
    let described = |number: usize| {
        let layer = kinds[number % kinds.len()].applied_to(layer, caps.scores, has_local);
        Layer { feed_forward: parts[number % parts.len()], ..layer }
    };
    // The list of the longest period, if one of the periods is 1 or if both are equal.
    let period = match [kinds.len(), parts.len()] {
        [1, period] | [period, 1] => period,
        [of_kinds, of_parts] if of_kinds == of_parts => of_kinds,
        _ => {
            mixture_fields::few_enough(fields, layers)?;
            layers
        }
    };
    let described = (0..period).map(described).collect();
    Some(ModelConfig {
        family,
        vocab_size: vocab_size?,
        hidden_size: hidden_size?,
        layers,
        prediction_layers: prediction_layers?,
        pattern: shortest_period(described),
        heads: heads?,
        kv_heads,
        head_dim,
        intermediate_size: intermediate_size?,
        norm_epsilon: norm_epsilon?,
        norm_weight: table.norm_weight,
        max_positions,
        rope,
        local_rope: ropes.local,
        logn,
        scales_embedding: table.scales_embedding,
        logit_cap: caps.logits,
        tied_embeddings,
        dtype: dtype?,
        formats: Arc::default(),
        adapters: Arc::default(),
    })
}

/// Reads the number of layers for multi-token prediction.
fn prediction_layers(fields: &mut Fields<'_>, keys: &Keys) -> Option<usize> {
    match keys.prediction {
        Some(prediction) if fields.get(prediction.key).is_some() => {
            mixture_fields::count(fields, prediction.key)
        }
        Some(prediction) => Some(prediction.absent),
        None => Some(0),
    }
}

/// Facts that can differ between layers of one model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LayerKind {
    /// Attention to all earlier tokens.
    Full,
    /// Attention in a window, if there is one.
    Sliding(Option<usize>),
    /// The gated delta rule.
    Linear(GatedDelta),
}

impl LayerKind {
    /// Returns the name in `layer_types`.
    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Sliding(_) => "sliding_attention",
            Self::Linear(_) => "linear_attention",
        }
    }

    fn applied_to(self, layer: Layer, score_cap: Option<f64>, has_local: bool) -> Layer {
        let AttentionPart::Grouped(attention) = layer.attention else { return layer };
        let grouped = |window, rotary| {
            AttentionPart::Grouped(GroupedAttention { window, rotary, score_cap, ..attention })
        };
        let attention = match self {
            Self::Full => grouped(None, Rotary::Global),
            Self::Sliding(window) if has_local => grouped(window, Rotary::Local),
            Self::Sliding(window) => grouped(window, Rotary::Global),
            Self::Linear(delta) => AttentionPart::GatedDelta(delta),
        };
        Layer { attention, ..layer }
    }
}

/// The kinds of layers that files of a family can have.
struct LayerKinds {
    /// The kinds that `layer_types` can name.
    known: Vec<LayerKind>,
    /// The kinds of the first layers of a file without `layer_types`. They repeat.
    period: Vec<LayerKind>,
}

impl LayerKinds {
    fn all(kind: LayerKind) -> Self {
        Self { known: vec![kind], period: vec![kind] }
    }

    /// Returns `other` in all layers but every nth, which is full.
    fn all_but(other: LayerKind, nth: usize, layers: Option<usize>) -> Self {
        let kind = |layer: usize| if layer.is_multiple_of(nth) { LayerKind::Full } else { other };
        let period = (1..=nth.min(layers.unwrap_or(nth))).map(kind).collect();
        Self { known: vec![LayerKind::Full, other], period }
    }
}

/// Returns one kind for all layers, or one kind per layer.
fn layer_kinds(fields: &mut Fields<'_>, layers: Option<usize>, table: &Layers) -> Option<Vec<LayerKind>> {
    let LayerKinds { known, period } = match (table.delta, table.windows) {
        (Some(keys), _) => {
            let nth = fields.optional_size(keys.interval).unwrap_or(keys.absent_interval);
            LayerKinds::all_but(LayerKind::Linear(delta_fields::read(fields, &keys)?), nth, layers)
        }
        (None, Windows::None | Windows::ByFlag) => LayerKinds::all(LayerKind::Full),
        (None, Windows::Every { absent }) => match window(fields, absent) {
            Some(window) => LayerKinds::all(LayerKind::Sliding(Some(window))),
            None => LayerKinds::all(LayerKind::Full),
        },
        (None, Windows::AllBut { nth, absent }) => {
            let window = window(fields, absent);
            let written = ["sliding_window_pattern", "_sliding_window_pattern"];
            let nth =
                written.map(|name| fields.optional_size(name)).into_iter().flatten().next().unwrap_or(nth);
            LayerKinds::all_but(LayerKind::Sliding(window), nth, layers)
        }
    };
    let Some(types) = fields.get("layer_types") else { return Some(period) };
    let Some(list) = types.as_array() else {
        fields.wrong_type("layer_types", "a list with one entry a layer", types);
        return None;
    };
    let kind = |value: &Value| known.iter().copied().find(|kind| value.as_str() == Some(kind.name()));
    if let Some(other) = list.iter().find(|value| kind(value).is_none()) {
        let names: Vec<String> = known.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
        let expected = match &names[..] {
            [one] => format!("{one} in every layer"),
            several => several.join(" or "),
        };
        fields.report(
            Diagnostic::new(fields.place("layer_types"), "unsupported kind of layer")
                .expected(expected)
                .found(ShortJson(other)),
        );
    }
    if let Some(layers) = layers.filter(|layers| *layers != list.len()) {
        fields.report(
            Diagnostic::new(fields.place("layer_types"), "contradicts num_hidden_layers")
                .expected(format!("{layers} entries"))
                .found(list.len()),
        );
    }
    match &known[..] {
        [_] => Some(period),
        _ => list.iter().map(kind).collect(),
    }
}

/// Reads the window. A file with `null` has none.
fn window(fields: &mut Fields<'_>, absent: Option<usize>) -> Option<usize> {
    if fields.has("sliding_window") { fields.optional_size("sliding_window") } else { absent }
}

/// Returns the shortest list that gives the same layers when it is repeated.
fn shortest_period(mut layers: Vec<Layer>) -> Vec<Layer> {
    let is_period = |period: &usize| layers.iter().zip(layers.iter().skip(*period)).all(|(a, b)| a == b);
    let period = (1..layers.len()).find(is_period).unwrap_or(layers.len());
    layers.truncate(period);
    layers
}

/// Reads the facts that all layers share.
fn layer(fields: &mut Fields<'_>, table: &Layers) -> Option<Layer> {
    let mut bias = |bias: Bias| match bias {
        Bias::Never => false,
        Bias::Always => true,
        Bias::If(key) => fields.optional_flag(key).unwrap_or(false),
        Bias::Unless(key) => !fields.optional_flag(key).unwrap_or(true),
    };
    let qkv_bias = bias(table.qkv_bias);
    let output_bias = if table.output_bias == table.qkv_bias { qkv_bias } else { bias(table.output_bias) };
    let has_bias = if table.mlp_bias == table.output_bias { output_bias } else { bias(table.mlp_bias) };
    let query_scalar =
        table.query_scalar.map(|absent| fields.optional_positive("query_pre_attn_scalar").unwrap_or(absent));
    let activation = match table.activation {
        ActivationKeys::Silu => Some(Activation::Silu),
        ActivationKeys::Hidden(absent) => activation(fields, absent),
        ActivationKeys::Clipped => clipped(fields),
    };
    let qk_norm = match table.qk_norm_key {
        Some(key) => table.qk_norm.filter(|_| fields.optional_flag(key).unwrap_or(false)),
        None => table.qk_norm,
    };
    let has_sinks = table.has_sinks;
    let has_output_gate = table.output_gate.is_some_and(|key| fields.optional_flag(key).unwrap_or(true));
    let attention = GroupedAttention {
        qkv_bias,
        output_bias,
        qk_norm,
        query_scalar,
        has_sinks,
        has_output_gate,
        ..GroupedAttention::PLAIN
    };
    Some(Layer {
        attention: AttentionPart::Grouped(attention),
        feed_forward: FeedForwardPart::Dense { activation: activation?, has_bias },
        norms: table.norms,
    })
}

/// Reads `hidden_activation`. Files of these families may have `hidden_act` too, and transformers
/// ignores it.
fn activation(fields: &mut Fields<'_>, absent: Activation) -> Option<Activation> {
    const KEY: &str = "hidden_activation";
    fields.get("hidden_act");
    let Some(name) = fields.optional_text(KEY) else { return fields.get(KEY).is_none().then_some(absent) };
    let activation = Activation::named(name);
    if activation.is_none() {
        fields.report(
            Diagnostic::new(fields.place(KEY), "unsupported activation")
                .expected("\"gelu_pytorch_tanh\" or \"silu\"")
                .found(format!("\"{name}\"")),
        );
    }
    activation
}

/// Reads the limit of clipped gates, and the slope, which only newer files have.
fn clipped(fields: &mut Fields<'_>) -> Option<Activation> {
    const SLOPE: &str = "swiglu_alpha";
    let limit = fields.positive("swiglu_limit");
    let slope = if fields.get(SLOPE).is_none() { Some(1.702) } else { fields.optional_positive(SLOPE) };
    Some(Activation::Clipped { limit: limit?, slope: slope? })
}

/// Soft caps of scores and logits.
#[derive(Default)]
struct SoftCaps {
    scores: Option<f64>,
    logits: Option<f64>,
}

fn caps(fields: &mut Fields<'_>, caps: Caps) -> SoftCaps {
    let Caps::Keys { absent_scores, absent_logits } = caps else { return SoftCaps::default() };
    let mut cap = |key: &str, absent: Option<f64>| match fields.has(key) {
        true => fields.optional_positive(key),
        false => absent,
    };
    SoftCaps {
        scores: cap("attn_logit_softcapping", absent_scores),
        logits: cap("final_logit_softcapping", absent_logits),
    }
}

struct PositionFields {
    ropes: Ropes,
    logn: Option<LogN>,
    max_positions: usize,
}

fn positions(fields: &mut Fields<'_>, keys: &Keys, head_dim: Option<usize>) -> Option<PositionFields> {
    if matches!(keys.rotary, RotaryKeys::QwenV1) {
        return qwen_v1_positions(fields);
    }
    let written = fields.size("max_position_embeddings");
    let ropes = rope_fields::read(fields, RopeSizes { positions: written, head_dim }, &keys.rotary)?;
    let max_positions = match keys.has_final_positions {
        true => written?,
        false => extended_positions(fields, written?, &ropes.global.scaling)?,
    };
    Some(PositionFields { ropes, logn: None, max_positions })
}

fn qwen_v1_positions(fields: &mut Fields<'_>) -> Option<PositionFields> {
    let trained_length = fields.size("seq_length");
    let max_positions = fields.size("max_position_embeddings");
    let theta = fields.positive("rotary_emb_base").and_then(|theta| rope_fields::above_one(fields, theta));
    let dynamic_ntk = fields.flag("use_dynamic_ntk");
    let logn = fields.flag("use_logn_attn");
    if logn == Some(true) && trained_length == Some(1) {
        fields.report(
            Diagnostic::new(
                fields.place("seq_length"),
                "no base of the logarithm that use_logn_attn asks for",
            )
            .expected("more than 1")
            .found(1),
        );
    }
    let trained_length = trained_length?;
    let scaling =
        if dynamic_ntk? { RopeScaling::QwenDynamicNtk { trained_length } } else { RopeScaling::Default };
    Some(PositionFields {
        ropes: Ropes { global: Rope { scaling, ..Rope::plain(theta?) }, local: None, score_factor: 1.0 },
        logn: logn?.then_some(LogN { trained_length }),
        max_positions: max_positions?,
    })
}

fn kv_heads(fields: &mut Fields<'_>, keys: &Keys, heads: Option<usize>) -> Option<usize> {
    let Some(key) = keys.kv_heads else { return heads };
    match keys.absent_kv_heads {
        Absent::Derived if fields.get(key).is_none() => heads,
        Absent::Is(count) if !fields.has(key) => Some(count),
        // transformers takes `null` as the number of query heads.
        Absent::Is(_) if fields.get(key).is_none() => heads,
        _ => fields.size(key),
    }
}

fn head_dim(
    fields: &mut Fields<'_>,
    keys: &Keys,
    hidden_size: Option<usize>,
    heads: Option<usize>,
) -> Option<usize> {
    let key = keys.head_dim;
    let head_dim = match keys.absent_head_dim {
        Absent::Problem => fields.size(key),
        _ if fields.get(key).is_some() => fields.optional_size(key),
        Absent::Is(dim) => Some(dim),
        Absent::Derived => {
            hidden_size.zip(heads).and_then(|(hidden, heads)| divide_heads(fields, hidden, heads))
        }
    };
    head_dim.and_then(|dim| even_head(fields, key, dim))
}

/// Refuses a head with zero or an odd number of rotated dims.
fn rotates_pairs(fields: &mut Fields<'_>, rope: &Rope, keys: &Keys, head_dim: usize) -> Option<()> {
    let dims = rope.rotated_dims(head_dim);
    if dims > 0 && dims.is_multiple_of(2) {
        return Some(());
    }
    fields.report(
        Diagnostic::new(fields.place(keys.rotary.part_key()), "the rotated dims of a head cannot be paired")
            .expected(format!("an even number of the {head_dim} dims"))
            .found(dims),
    );
    None
}

fn heads_fill(fields: &mut Fields<'_>, key: &str, hidden: usize, [heads, dim]: [usize; 2]) -> Option<()> {
    if heads * dim == hidden {
        return Some(());
    }
    fields.report(
        Diagnostic::new(fields.place(key), "heads do not fill the hidden size")
            .expected(format!("num_attention_heads × {key} = hidden_size = {hidden}"))
            .found(format!("{heads} × {dim} = {}", heads * dim)),
    );
    None
}

/// Returns whether the file names an element type.
pub(super) fn names_dtype(fields: &Fields<'_>) -> bool {
    ["dtype", "torch_dtype"].iter().any(|name| named_dtype_value(fields, name).is_some())
}

/// Returns half of the sum of both widths.
fn halved(fields: &mut Fields<'_>, written: usize) -> Option<usize> {
    if written.is_multiple_of(2) {
        return Some(written / 2);
    }
    fields.report(
        Diagnostic::new(fields.place("intermediate_size"), "no sum of two equal widths")
            .expected("an even number, gate and up together")
            .found(written),
    );
    None
}

fn divide_heads(fields: &mut Fields<'_>, hidden: usize, heads: usize) -> Option<usize> {
    if hidden.is_multiple_of(heads) {
        return Some(hidden / heads);
    }
    fields.report(
        Diagnostic::new(
            fields.place("num_attention_heads"),
            "does not divide hidden_size, and head_dim is absent",
        )
        .expected(format!("a divisor of {hidden}"))
        .found(heads),
    );
    None
}

fn divides_heads(fields: &mut Fields<'_>, heads: usize, kv_heads: usize) -> Option<usize> {
    if heads.is_multiple_of(kv_heads) {
        return Some(kv_heads);
    }
    fields.report(
        Diagnostic::new(fields.place("num_key_value_heads"), "does not divide num_attention_heads")
            .expected(format!("a divisor of {heads}"))
            .found(kv_heads),
    );
    None
}

fn even_head(fields: &mut Fields<'_>, name: &str, head_dim: usize) -> Option<usize> {
    if head_dim.is_multiple_of(2) {
        return Some(head_dim);
    }
    let place =
        if fields.get(name).is_some() { fields.place(name) } else { fields.place("num_attention_heads") };
    fields.report(
        Diagnostic::new(place, "a head's dims cannot be paired for the rotation")
            .expected("an even number of dims a head")
            .found(head_dim),
    );
    None
}

/// Reads the published element type. A file without one means f32, as for the programs that write
/// it.
fn dtype(fields: &mut Fields<'_>) -> Option<DType> {
    let newer = named_dtype(fields, "dtype");
    let older = named_dtype(fields, "torch_dtype");
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        fields.report(
            Diagnostic::new(fields.place("torch_dtype"), "contradicts dtype").expected(newer).found(older),
        );
    }
    if named_dtype_value(fields, "dtype").or(named_dtype_value(fields, "torch_dtype")).is_none() {
        return Some(DType::F32);
    }
    newer.or(older)
}

/// Returns the value of a key for the element type; `auto` names none.
fn named_dtype_value<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| value.as_str() != Some("auto"))
}

fn named_dtype(fields: &mut Fields<'_>, name: &str) -> Option<DType> {
    let value = named_dtype_value(fields, name)?;
    let dtype = value.as_str().and_then(|text| match text.strip_prefix("torch.").unwrap_or(text) {
        "float32" => Some(DType::F32),
        "float16" => Some(DType::F16),
        "bfloat16" => Some(DType::BF16),
        _ => None,
    });
    if dtype.is_none() {
        fields.wrong_type(name, "float32, float16 or bfloat16", value);
    }
    dtype
}

/// Returns the positions that a scaled embedding reaches, by the rule of serving engines. Linear
/// and dynamic scaling stretch the written number, `YaRN` stretches the original one, and other
/// files write the final number.
fn extended_positions(fields: &mut Fields<'_>, written: usize, scaling: &RopeScaling) -> Option<usize> {
    let stretched = |positions: usize, factor: f64| (positions as f64 * factor) as usize;
    let extended = match *scaling {
        RopeScaling::Default
        | RopeScaling::Llama3 { .. }
        | RopeScaling::NtkAlpha { .. }
        | RopeScaling::QwenDynamicNtk { .. } => written,
        RopeScaling::Linear { factor } | RopeScaling::Dynamic { factor, .. } => stretched(written, factor),
        RopeScaling::Yarn { factor, original_positions, .. } => {
            stretched(original_positions, factor).max(written)
        }
    };
    if extended <= LARGEST_SIZE {
        return Some(extended);
    }
    fields.report(
        Diagnostic::new(
            fields.place("max_position_embeddings"),
            "too many positions once the rotary scaling extends them",
        )
        .expected(format!("at most {LARGEST_SIZE}"))
        .found(extended),
    );
    None
}
