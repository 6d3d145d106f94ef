//! `quantization_config` of compressed-tensors.

use serde_json::{Value, json};

use super::{Formats, WeightFormat, expect, group, refuse_unread, texts};
use crate::base::{Diagnostic, Packing, ScaleGroup};
use crate::config::fields::Fields;

/// Class of linear layers in lists of targets.
const LINEAR: &str = "Linear";

pub(super) fn read(fields: &mut Fields<'_>, formats: &mut Formats) {
    for name in texts(fields, "ignore") {
        if name != LINEAR {
            let expression = layers(name);
            formats.rule(fields, "ignore", &expression, WeightFormat::Float);
        }
    }
    let global = fields.optional_text("format");
    let Some(mut groups) = fields.nested("config_groups") else {
        let problem = Diagnostic::new(fields.place("config_groups"), "missing");
        fields.report(problem.expected("groups of layers with their schemes"));
        return;
    };
    for name in groups.unread() {
        let Some(mut group) = groups.nested(name) else { continue };
        let format = group.optional_text("format").or(global);
        let scheme = scheme(&mut group, format);
        for target in texts(&mut group, "targets") {
            let expression = if target == LINEAR { ".*".to_owned() } else { layers(target) };
            if let Some(format) = scheme {
                formats.rule(&mut group, "targets", &expression, format);
            }
        }
        refuse_unread(&mut group, &[]);
        groups.absorb(group);
    }
    fields.absorb(groups);
    for key in ["sparsity_config", "transform_config"] {
        // An empty object is the same as none.
        expect(fields, key, Some(&json!({})), &[json!({})]);
    }
    const NEUTRAL: [&str; 3] = ["global_compression_ratio", "quantization_status", "version"];
    refuse_unread(fields, &NEUTRAL);
}

/// Returns the regular expression of a target. A pattern applies from the start of a name, and can
/// end before the end.
fn layers(target: &str) -> String {
    match target.strip_prefix("re:") {
        Some(pattern) => format!("(?:{pattern}).*"),
        None => regex::escape(target),
    }
}

/// Reads the scheme of a group of layers.
fn scheme(fields: &mut Fields<'_>, format: Option<&str>) -> Option<WeightFormat> {
    let mut weights = fields.nested("weights")?;
    let found = match format {
        Some("pack-quantized") => {
            let is_float = expect(fields, "input_activations", Some(&Value::Null), &[Value::Null]);
            packed(&mut weights).filter(|_| is_float)
        }
        Some("int-quantized" | "naive-quantized") => int8(fields, &mut weights),
        found => {
            let problem =
                Diagnostic::new(fields.place("format"), "this scheme of quantised weights is not supported")
                    .expected("pack-quantized or int-quantized")
                    .found(found.unwrap_or("nothing"));
            weights.report(problem);
            None
        }
    };
    const NEUTRAL: [&str; 4] = ["observer", "observer_kwargs", "scale_dtype", "zp_dtype"];
    refuse_unread(&mut weights, &NEUTRAL);
    fields.absorb(weights);
    expect(fields, "output_activations", Some(&Value::Null), &[Value::Null]).then_some(found)?
}

/// Reads a scheme of packed integers of 4 bits.
fn packed(weights: &mut Fields<'_>) -> Option<WeightFormat> {
    let is_int4 = expect(weights, "num_bits", None, &[4.into()])
        & expect(weights, "type", Some(&"int".into()), &["int".into()])
        & expect(weights, "dynamic", Some(&false.into()), &[false.into()])
        & expect(weights, "block_structure", Some(&Value::Null), &[Value::Null])
        & expect(weights, "strategy", None, &["group".into(), "channel".into()]);
    let group =
        if weights.get("strategy") == Some(&"group".into()) { group(weights) } else { Some(ScaleGroup::Row) };
    // With `group`, the inputs of a group are not consecutive. Other orders change no layout.
    let orders =
        [Value::Null, false.into(), "static".into(), "weight".into(), "group".into(), "dynamic".into()];
    expect(weights, "actorder", Some(&Value::Null), &orders);
    let has_order = orders[4..].iter().any(|order| weights.get("actorder") == Some(order));
    let has_zeros = !weights.flag("symmetric")?;
    let packing = Packing::Rows { group: group?, has_zeros, has_order };
    is_int4.then_some(WeightFormat::Packed(packing))
}

/// Reads a scheme of 8-bit integers with one scale per output, and one scale per token.
fn int8(fields: &mut Fields<'_>, weights: &mut Fields<'_>) -> Option<WeightFormat> {
    let Some(mut inputs) = fields.nested("input_activations") else {
        let problem = Diagnostic::new(
            fields.place("input_activations"),
            "this scheme of quantised weights is not supported",
        );
        weights.report(problem.expected("8-bit integers with one scale per token").found("nothing"));
        return None;
    };
    let of = |fields: &mut Fields<'_>, strategy: &str, is_dynamic: bool| {
        fields.get("group_size");
        expect(fields, "num_bits", None, &[8.into()])
            & expect(fields, "type", Some(&"int".into()), &["int".into()])
            & expect(fields, "symmetric", None, &[true.into()])
            & expect(fields, "strategy", None, &[strategy.into()])
            & expect(fields, "dynamic", Some(&false.into()), &[is_dynamic.into()])
            & expect(fields, "block_structure", Some(&Value::Null), &[Value::Null])
            & expect(fields, "actorder", Some(&Value::Null), &[Value::Null, false.into()])
    };
    let is_int8 = of(weights, "channel", false) & of(&mut inputs, "token", true);
    const NEUTRAL: [&str; 4] = ["observer", "observer_kwargs", "scale_dtype", "zp_dtype"];
    refuse_unread(&mut inputs, &NEUTRAL);
    fields.absorb(inputs);
    is_int8.then_some(WeightFormat::Int8)
}
