//! Formats of the weights of a checkpoint, layer by layer.
//!
//! Input: `quantization_config` of `config.json`, or the description that msModelSlim writes.
//! Output: [`Formats`], or all problems.
//!
//! Invariants: each linear layer has one format. A scheme or a key that is not known is refused by
//! name.
//!
//! Not here: the tensors of a format, and which layers exist.
//!
//! # Source
//! compressed-tensors 0.20 (`QuantizationConfig`), transformers 5.24 (`FineGrainedFP8Config`,
//! `AwqConfig`, `GPTQConfig`, `Mxfp4Config`), and the public documents of msModelSlim and
//! vllm-ascend.

mod compressed;
mod description;
mod written;

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde_json::Value;

use super::fields::{Fields, ShortJson};
use super::tower::TEXT_NAMES;
use crate::base::{Diagnostic, Packing, ScaleGroup};

pub use description::{DESCRIPTIONS, Description};
pub use written::QuantisedFormat;

/// Format of the weight of a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Floats.
    #[default]
    Float,
    /// Numbers in less than 16 bits that become floats when they are read.
    Packed(Packing),
    /// 8-bit integers with one scale per output. Inputs are quantised with one scale per token.
    Int8,
    /// 8-bit integers with one scale per output. Inputs are quantised with a stored scale and
    /// offset. A stored integer per output is added to the products.
    Int8Static,
    /// MXFP4, for experts in one tensor.
    Mxfp4,
}

impl WeightFormat {
    /// Returns whether the products are products of integers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int8Static)
    }

    /// Returns the last parts of the names of tensors that a layer can have and no program reads.
    #[must_use]
    pub const fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::Float | Self::Mxfp4 => &[],
            Self::Packed(_) => &["weight_shape"],
            Self::Int8 => &["weight_offset"],
            // The stored integers have the bias.
            Self::Int8Static => &["weight_scale", "weight_offset", "bias"],
        }
    }
}

impl fmt::Display for WeightFormat {
    /// Prints `float`, `int8`, `int8 static`, `mxfp4`, `int4 groups of 32` or `fp8 blocks 128×128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float => f.write_str("float"),
            Self::Int8 => f.write_str("int8"),
            Self::Int8Static => f.write_str("int8 static"),
            Self::Mxfp4 => f.write_str("mxfp4"),
            Self::Packed(Packing::Fp8 { block: [rows, columns] }) => write!(f, "fp8 blocks {rows}×{columns}"),
            Self::Packed(
                Packing::Rows { group, .. } | Packing::Gptq { group, .. } | Packing::Awq { group },
            ) => match group {
                ScaleGroup::Row => f.write_str("int4 rows"),
                ScaleGroup::Of(size) => write!(f, "int4 groups of {size}"),
            },
        }
    }
}

/// Layers with names that match a pattern, and their format.
#[derive(Clone, Debug)]
struct PatternRule {
    layer: Regex,
    format: WeightFormat,
}

impl PartialEq for PatternRule {
    fn eq(&self, other: &Self) -> bool {
        self.layer.as_str() == other.layer.as_str() && self.format == other.format
    }
}

/// Formats of all linear layers of a checkpoint. The default is floats everywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formats {
    /// The first rule that matches a name decides.
    rules: Vec<PatternRule>,
    /// Formats by name, of layers that are not floats.
    named: BTreeMap<String, WeightFormat>,
    /// The value of `quantize` in `config.json`: the scheme of a description in another file.
    pub(crate) described: Option<String>,
}

impl Formats {
    /// Returns the format of a layer by its name in a text model, such as
    /// `model.layers.0.mlp.down_proj`. Files of images and text can name the layer as in
    /// [`TEXT_NAMES`].
    #[must_use]
    pub fn of(&self, layer: &str) -> WeightFormat {
        let in_tower = |(tower, text): &(&str, &str)| Some(format!("{tower}{}", layer.strip_prefix(text)?));
        let names: Vec<String> =
            std::iter::once(layer.to_owned()).chain(TEXT_NAMES.iter().filter_map(in_tower)).collect();
        if let Some(format) = names.iter().find_map(|name| self.named.get(name)) {
            return *format;
        }
        self.rules
            .iter()
            .find(|rule| names.iter().any(|name| rule.layer.is_match(name)))
            .map_or(WeightFormat::Float, |rule| rule.format)
    }

    /// Returns all formats that layers can have, without floats.
    pub fn iter(&self) -> impl Iterator<Item = WeightFormat> + '_ {
        let formats = self.rules.iter().map(|rule| &rule.format).chain(self.named.values());
        formats.copied().filter(|format| *format != WeightFormat::Float)
    }

    /// Returns whether a layer can have a format other than floats.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        self.iter().next().is_some()
    }

    /// Adds a rule for names that match a regular expression from the start to the end.
    fn rule(&mut self, fields: &mut Fields<'_>, key: &str, expression: &str, format: WeightFormat) {
        match Regex::new(&format!("^(?:{expression})$")) {
            Ok(layer) => self.rules.push(PatternRule { layer, format }),
            Err(error) => {
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default().trim().to_owned();
                let problem = Diagnostic::new(fields.place(key), "not a pattern of names that can be read");
                fields.report(problem.expected("a regular expression without look-around").found(reason));
            }
        }
    }

    /// Adds rules for layers that a list of names leaves as floats. A name stands for a layer, for
    /// all layers in a module, or for modules with this last name. It can be a regular expression.
    fn floats(&mut self, fields: &mut Fields<'_>, key: &str) {
        for name in texts(fields, key) {
            let parts = regex::escape(name);
            let expression = format!(r"(?:.*\.)?{parts}(?:\..*)?");
            self.rule(fields, key, &expression, WeightFormat::Float);
            if parts != name {
                self.rule(fields, key, &format!(r"(?:{name})(?:\..*)?"), WeightFormat::Float);
            }
        }
    }

    /// Adds the rule for all layers that no other rule matches.
    fn rest(&mut self, fields: &mut Fields<'_>, format: Option<WeightFormat>) {
        if let Some(format) = format {
            self.rule(fields, "quant_method", ".*", format);
        }
    }
}

/// Returns the texts of a list that may be absent.
fn texts<'a>(fields: &mut Fields<'a>, key: &str) -> Vec<&'a str> {
    let Some(value) = fields.get(key) else { return Vec::new() };
    let texts: Option<Vec<&str>> = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    texts.unwrap_or_else(|| {
        fields.wrong_type(key, "a list of names", value);
        Vec::new()
    })
}

/// Reports a value that is not one of the supported ones. An absent value is `absent`.
fn expect(fields: &mut Fields<'_>, key: &str, absent: Option<&Value>, supported: &[Value]) -> bool {
    let found = fields.get(key).or(absent);
    if found.is_some_and(|found| supported.contains(found)) {
        return true;
    }
    let expected: Vec<String> = supported.iter().map(ToString::to_string).collect();
    let found = found.map_or_else(|| "nothing".to_owned(), |found| ShortJson(found).to_string());
    let problem = Diagnostic::new(fields.place(key), "this scheme of quantised weights is not supported");
    fields.report(problem.expected(expected.join(" or ")).found(found));
    false
}

/// Reads the number of inputs per scale. -1 means all inputs.
fn group(fields: &mut Fields<'_>) -> Option<ScaleGroup> {
    const KEY: &str = "group_size";
    if fields.get(KEY).and_then(Value::as_i64) == Some(-1) {
        return Some(ScaleGroup::Row);
    }
    fields.size(KEY).map(ScaleGroup::Of)
}

/// Reports keys that were not read and are not in `neutral`.
fn refuse_unread(fields: &mut Fields<'_>, neutral: &[&str]) {
    for key in fields.unread().into_iter().filter(|key| !neutral.contains(key)) {
        let Some(value) = fields.get(key) else { continue };
        let problem = Diagnostic::new(fields.place(key), "unknown key of quantised weights");
        let problem = problem.expected("no such key, or null").found(ShortJson(value));
        fields.report(problem.help("remove it if it changes no weight"));
    }
}

/// Reads the formats of a `config.json`.
pub(super) fn read(fields: &mut Fields<'_>) -> Formats {
    let described = fields.optional_text("quantize").map(str::to_owned);
    let mut formats = Formats { described, ..Formats::default() };
    let Some(mut nested) = fields.nested("quantization_config") else { return formats };
    match nested.optional_text("quant_method") {
        Some("compressed-tensors") => compressed::read(&mut nested, &mut formats),
        Some("fp8") => fp8(&mut nested, &mut formats),
        Some("awq") => awq(&mut nested, &mut formats),
        Some("gptq") => gptq(&mut nested, &mut formats),
        Some("mxfp4") => {
            formats.floats(&mut nested, "modules_to_not_convert");
            formats.rest(&mut nested, Some(WeightFormat::Mxfp4));
            refuse_unread(&mut nested, &["dequantize"]);
        }
        found => {
            let problem =
                Diagnostic::new(nested.place("quant_method"), "unknown method of quantised weights")
                    .expected("compressed-tensors, fp8, awq, gptq or mxfp4")
                    .found(found.unwrap_or("nothing"));
            nested.report(problem.help("use the checkpoint the quantised one was made from"));
        }
    }
    fields.absorb(nested);
    formats
}

/// Reads the keys of numbers in E4M3 with one scale per block.
fn fp8(fields: &mut Fields<'_>, formats: &mut Formats) {
    expect(fields, "fmt", Some(&"e4m3".into()), &["e4m3".into()]);
    expect(fields, "activation_scheme", Some(&"dynamic".into()), &["dynamic".into()]);
    let block = fields.get("weight_block_size").and_then(|value| {
        let sizes = value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
        <[u64; 2]>::try_from(sizes).ok()
    });
    let block = block.and_then(|block| {
        let [rows, columns] = block.map(|size| usize::try_from(size).ok().filter(|size| *size > 0));
        Some([rows?, columns?])
    });
    if block.is_none() {
        let found = fields.get("weight_block_size").map(|value| ShortJson(value).to_string());
        let problem = Diagnostic::new(fields.place("weight_block_size"), "fp8 weights without blocks")
            .expected("two sizes, such as [128, 128]")
            .found(found.as_deref().unwrap_or("nothing"));
        fields.report(problem);
    }
    formats.floats(fields, "modules_to_not_convert");
    formats.rest(fields, block.map(|block| WeightFormat::Packed(Packing::Fp8 { block })));
    // The scales are read as they are stored.
    refuse_unread(fields, &["scale_fmt", "dequantize"]);
}

fn awq(fields: &mut Fields<'_>, formats: &mut Formats) {
    const NEUTRAL: [&str; 6] =
        ["backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "w_bit"];
    expect(fields, "bits", None, &[4.into()]);
    expect(fields, "version", Some(&"gemm".into()), &["gemm".into(), "GEMM".into()]);
    expect(fields, "zero_point", None, &[true.into()]);
    let group = group(fields);
    formats.floats(fields, "modules_to_not_convert");
    formats.rest(fields, group.map(|group| WeightFormat::Packed(Packing::Awq { group })));
    refuse_unread(fields, &NEUTRAL);
}

fn gptq(fields: &mut Fields<'_>, formats: &mut Formats) {
    // How the weights were found, where they came from, and kernels of other programs.
    const NEUTRAL: [&str; 29] = [
        "backend",
        "batch_size",
        "block_name_to_quantize",
        "cache_block_outputs",
        "cache_examples_on_gpu",
        "damp_auto_increment",
        "damp_percent",
        "dataset",
        "disable_exllama",
        "exllama_config",
        "hyb_act",
        "max_input_length",
        "meta",
        "model_file_base_name",
        "model_name_or_path",
        "model_seqlen",
        "module_name_preceding_first_block",
        "mse",
        "pack_dtype",
        "pad_token_id",
        "quantizer",
        "static_groups",
        "sym",
        "tokenizer",
        "true_sequential",
        "use_cuda_fp16",
        "use_exllama",
        "is_marlin_format",
        "modules_in_block_to_quantize",
    ];
    expect(fields, "bits", None, &[4.into()]);
    let has_order = fields.optional_flag("desc_act").unwrap_or(false);
    expect(fields, "is_marlin_format", Some(&false.into()), &[false.into()]);
    expect(fields, "lm_head", Some(&false.into()), &[false.into()]);
    // Version 2 stores zero points as they are.
    let versions = ["gptq".into(), "gptq_v2".into()];
    expect(fields, "checkpoint_format", Some(&versions[0]), &versions);
    let added = u8::from(fields.get("checkpoint_format") != Some(&versions[1]));
    if let Some(Value::Object(overrides)) = fields.get("dynamic") {
        for (pattern, value) in overrides {
            match pattern.strip_prefix("-:") {
                Some(pattern) => {
                    let expression = format!("(?:{pattern}).*");
                    formats.rule(fields, "dynamic", &expression, WeightFormat::Float);
                }
                None => {
                    let problem = Diagnostic::new(fields.place("dynamic"), "layers with other settings");
                    let found = format!("\"{pattern}\": {}", ShortJson(value));
                    fields.report(problem.expected("patterns that start with `-:`").found(found));
                }
            }
        }
    }
    let group = group(fields);
    formats.floats(fields, "modules_to_not_convert");
    formats.rest(fields, group.map(|group| WeightFormat::Packed(Packing::Gptq { group, added, has_order })));
    refuse_unread(fields, &NEUTRAL);
}

#[cfg(test)]
mod tests;
