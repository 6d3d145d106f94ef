//! Formats of published descriptions, and descriptions that are refused.

use serde_json::{Value, json};

use super::*;
use crate::base::Diagnostics;
use crate::config::ModelConfig;

fn config(quantization: Value) -> Result<ModelConfig, Diagnostics> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen2-gqa/config.json");
    let text = std::fs::read_to_string(path).unwrap();
    let mut object: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    object.insert("quantization_config".to_owned(), quantization);
    ModelConfig::from_json(&serde_json::to_string(&object).unwrap())
}

/// Returns the formats of layers as text.
fn formats<const N: usize>(quantization: Value, layers: [&str; N]) -> [String; N] {
    let config = config(quantization).unwrap_or_else(|problems| panic!("{problems}"));
    layers.map(|layer| config.formats.of(layer).to_string())
}

fn refused(quantization: Value) -> Vec<String> {
    let problems = config(quantization).unwrap_err();
    problems.items().iter().map(ToString::to_string).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn compressed(group: Value, ignore: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ignore,
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null, "weights": group}}})
}

fn int4() -> Value {
    json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32})
}

#[test]
fn lists_of_names_leave_layers_as_floats() {
    // The list of Kimi K2: experts alone are quantised.
    let ignore = json!([
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"
    ]);
    let layers = [
        "lm_head",
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.mlp.shared_experts.up_proj",
        "model.layers.0.mlp.down_proj",
        "model.layers.1.mlp.experts.12.down_proj",
    ];
    assert_eq!(
        formats(compressed(int4(), ignore), layers),
        ["float", "float", "float", "float", "int4 groups of 32"]
    );
    // The list of gpt-oss has patterns, and the one of Qwen has whole names.
    let mxfp4 = json!({"quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]});
    let layers = ["model.layers.3.self_attn.q_proj", "model.layers.3.mlp.experts.gate_up_proj", "lm_head"];
    assert_eq!(formats(mxfp4, layers), ["float", "mxfp4", "float"]);
    let fp8 = json!({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3",
        "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]});
    let layers = ["model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", "model.layers.10.mlp.gate"];
    assert_eq!(formats(fp8, layers), ["float", "fp8 blocks 128×128", "fp8 blocks 128×128"]);
    let gptq = json!({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true,
        "dynamic": {"-:.*self_attn": {}}});
    let layers = ["model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"];
    assert_eq!(formats(gptq, layers), ["float", "int4 rows"]);
    let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true,
        "modules_to_not_convert": ["down_proj"]});
    let layers = ["model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj"];
    assert_eq!(formats(awq, layers), ["float", "int4 groups of 128"]);
}

#[test]
fn unknown_schemes_are_refused_all_at_once() {
    let found = refused(json!({"quant_method": "gptq", "bits": 8, "group_size": 0, "scheme": "new"}));
    assert_eq!(
        found,
        [
            "config.json: quantization_config.bits: this scheme of quantised weights is not supported: \
             expected 4, found 8",
            "config.json: quantization_config.group_size: wrong value: \
             expected an integer from 1 to 268435456, found 0",
            "config.json: quantization_config.scheme: unknown key of quantised weights: \
             expected no such key, or null, found \"new\"; remove it if it changes no weight",
        ]
    );
    for (quantization, expected) in [
        (json!({"quant_method": "bitsandbytes"}), "quant_method: unknown method"),
        (json!({"quant_method": "fp8"}), "weight_block_size: fp8 weights without blocks"),
        (
            json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": "yes"}),
            "desc_act: wrong value",
        ),
        (
            json!({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemv"}),
            "version: this scheme of quantised weights is not supported",
        ),
        (compressed(int4(), json!(["re:(?!x)"])), "ignore: not a pattern of names that can be read"),
        (
            compressed(json!({"num_bits": 8}), json!([])),
            "config_groups.group_0.weights.num_bits: this scheme",
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}),
            "kv_cache_scheme: unknown key",
        ),
    ] {
        let found = refused(quantization).join("\n");
        assert!(found.contains(expected), "{expected}: {found}");
    }
}

#[test]
fn a_description_has_one_scheme_for_each_layer() {
    let read = |text: &str| {
        let mut problems = Diagnostics::new();
        let found = Description::from_json("d.json", text, &mut problems);
        (found, problems)
    };
    let (found, problems) = read(
        r#"{"model_quant_type": "W8A8", "version": "1.0.0", "a.weight": "W8A8", "a.bias": "FLOAT",
            "a.deq_scale": "W8A8", "b.weight": "W8A8_DYNAMIC", "b.weight_scale": "W8A8_DYNAMIC", "n.weight": "FLOAT"}"#,
    );
    assert!(problems.is_empty(), "{problems}");
    let found = found.unwrap();
    let formats = ["a", "b", "n"].map(|layer| found.formats.of(layer));
    assert_eq!(formats, [WeightFormat::Int8Static, WeightFormat::Int8, WeightFormat::Float]);
    assert_eq!(found.tensors.len(), 6);
    let (found, problems) =
        read(r#"{"a.weight": "W4A8", "b.weight": "W8A8", "b.weight_scale": "FLOAT", "c.weight": 8}"#);
    let found = found.unwrap();
    assert_eq!(found.unknown.into_iter().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(found.formats.of("b"), WeightFormat::Int8Static);
    let lines: Vec<String> = problems.items().iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 3, "{problems}");
    assert!(lines[0].starts_with("d.json: a.weight: unknown scheme: expected FLOAT, W8A8"), "{problems}");
    assert!(lines[1].starts_with("d.json: c.weight: unknown scheme"), "{problems}");
    let expected =
        "d.json: b.weight_scale: another scheme than the layer's weight: expected int8 static, found float";
    assert_eq!(lines[2], expected);
    let (found, problems) = read(r#"{"version": "1"}"#);
    assert!(found.is_none() && problems.to_string().contains("d.json: names no tensor"), "{problems}");
}
