//! Each row of the table: refused values, and values that pass.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    Any, Every, Family, Flag, KEYS, ModelConfig, Name, Neutral, Null, Number, OneOf, Original, Positions,
    Windows, check,
};
use crate::config::fields::Fields;

fn family(model_type: &str) -> Family {
    Family::named(model_type).unwrap()
}

/// Returns a valid file of a family, without optional keys.
fn file(family: Family) -> Map<String, Value> {
    let mut file = json!({"architectures": [family.architecture()], "vocab_size": 100, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 176, "max_position_embeddings": 512});
    let own = match family.model_type() {
        "qwen" => json!({"kv_channels": 8, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000,
            "seq_length": 256, "use_dynamic_ntk": true, "use_logn_attn": true}),
        _ => json!({"num_key_value_heads": 2, "head_dim": 8,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6}),
    };
    let mixture = match family.model_type() {
        "qwen2_moe" | "qwen3_moe" => json!({"num_experts": 6, "num_experts_per_tok": 2,
            "moe_intermediate_size": 16}),
        "mixtral" => json!({"num_local_experts": 6, "num_experts_per_tok": 2}),
        "minimax_m2" => json!({"num_local_experts": 6, "num_experts_per_tok": 2, "rotary_dim": 8}),
        "hunyuan_v1_moe" => json!({"num_experts": 6, "moe_topk": 2}),
        "gpt_oss" => json!({"num_local_experts": 6, "num_experts_per_tok": 2, "swiglu_limit": 7.0,
            "rope_scaling": {"rope_type": "default"}}),
        "deepseek_v2" | "deepseek_v3" => json!({"n_routed_experts": 6, "num_experts_per_tok": 2,
            "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
            "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "kv_lora_rank": 16, "q_lora_rank": 12,
            "qk_nope_head_dim": 4, "qk_rope_head_dim": 8, "v_head_dim": 6}),
        "glm4_moe" => json!({"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
            "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5}),
        "qwen3_next" | "qwen3_5_moe_text" => json!({"num_experts": 6, "num_experts_per_tok": 2,
            "moe_intermediate_size": 16}),
        _ => json!({}),
    };
    let delta = match family.table().layers.delta {
        Some(_) => json!({"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4}),
        None => json!({}),
    };
    let file = file.as_object_mut().unwrap();
    for keys in [own, mixture, delta] {
        file.extend(keys.as_object().unwrap().clone());
    }
    if ["qwen2_moe", "qwen3_next", "qwen3_5_moe_text"].contains(&family.model_type()) {
        file.insert("shared_expert_intermediate_size".to_owned(), json!(16));
    }
    std::mem::take(file)
}

fn parse(file: &Map<String, Value>) -> Result<ModelConfig, String> {
    ModelConfig::from_json(&serde_json::to_string(file).unwrap()).map_err(|problems| problems.to_string())
}

/// The problems of one key that nobody read.
fn judge(family: Family, config: &ModelConfig, name: &str, value: &Value) -> String {
    let object = Map::from_iter([(name.to_owned(), value.clone())]);
    let mut fields = Fields::new("config.json", &object);
    check(&mut fields, family, Some(config));
    fields.into_problems().to_string()
}

/// Values with which a key changes nothing, and values with which it does.
fn values(neutral: Neutral, family: Family, config: &ModelConfig) -> (Vec<Value>, Vec<Value>) {
    let text = |text: &&str| serde_json::from_str::<Value>(text).unwrap();
    match neutral {
        Any => (vec![json!(true), json!(7), json!("x")], vec![]),
        Null => (vec![], vec![json!(30.0), json!(false), json!("x"), json!({"a": 1}), json!([1])]),
        OneOf(texts) => (texts.iter().map(text).collect(), vec![json!(0.125), json!("gelu"), json!(["x"])]),
        Every(one) => {
            (vec![json!([text(&one), text(&one)]), json!([])], vec![json!([text(&one), 0]), json!(1)])
        }
        Number(_, of) => (vec![json!(of(config))], vec![json!(of(config) * 1.01), json!("x"), json!(true)]),
        Flag(of) => (vec![json!(of(config))], vec![json!(!of(config)), json!("x")]),
        Name(of) => match of(config) {
            Some(name) => (vec![json!(name)], vec![json!("x"), json!(1)]),
            None => (vec![json!("x"), json!(1)], vec![]),
        },
        Positions if family.table().layers.windows != Windows::ByFlag => {
            (vec![json!(512), json!(4096)], vec![json!(511), json!("x")])
        }
        Positions => (vec![json!(16)], vec![]),
        Original if family.model_type() == "qwen" => (vec![json!(256)], vec![json!(512)]),
        Original => (vec![json!(16)], vec![]),
    }
}

#[test]
fn a_key_passes_with_the_values_that_change_nothing_and_no_other() {
    let mut judged = 0;
    for family in Family::ALL.iter().copied() {
        let config = parse(&file(family)).unwrap();
        for (names, neutral, message) in KEYS {
            let (neutral, other) = values(*neutral, family, &config);
            for name in *names {
                for value in neutral.iter().chain([&Value::Null]) {
                    assert_eq!(judge(family, &config, name, value), "", "{family}: {name}: {value}");
                }
                for value in &other {
                    let found = judge(family, &config, name, value);
                    let expected = format!("config.json: {name}: {message}: expected ");
                    assert!(
                        found.starts_with(&expected) && found.contains("; "),
                        "{family}: {name}: {value}: {found}"
                    );
                    judged += 1;
                }
            }
        }
    }
    assert!(judged > 1500, "{judged}");
}

#[test]
fn a_key_has_one_row() {
    let mut seen = BTreeSet::new();
    for name in KEYS.iter().flat_map(|(names, ..)| *names) {
        assert!(seen.insert(name), "{name}");
    }
}

/// Keys of Gemma 2, Granite, Cohere, `MiniCPM`, Phi-3, `OLMo`, MPT, Falcon, Mistral and others in a
/// Llama's file.
#[test]
fn a_file_that_extends_an_architecture_is_refused() {
    let with = |name: &str, value: &Value| {
        let mut file = file(family("llama"));
        file.insert(name.to_owned(), value.clone());
        parse(&file)
    };
    for (name, wrong, neutral) in [
        ("final_logit_softcapping", json!(30.0), json!(null)),
        ("attn_logit_softcapping", json!(50.0), json!(null)),
        ("residual_multiplier", json!(0.22), json!(1.0)),
        ("attention_multiplier", json!(0.0078125), json!(0.353_553_390_593_273_8)),
        ("embedding_multiplier", json!(12.0), json!(1)),
        ("logits_scaling", json!(8.0), json!(1.0)),
        ("logit_scale", json!(0.0625), json!(1.0)),
        ("query_pre_attn_scalar", json!(256), json!(8)),
        ("scale_emb", json!(12), json!(1)),
        ("scale_depth", json!(1.4), json!(std::f64::consts::SQRT_2)),
        ("dim_model_base", json!(256), json!(64)),
        ("partial_rotary_factor", json!(0.5), json!(1.0)),
        ("sliding_window", json!(256), json!(512)),
        ("use_sliding_window", json!(true), json!(false)),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            json!(["full_attention", "full_attention"]),
        ),
        ("hidden_act", json!("gelu_pytorch_tanh"), json!("silu")),
        ("rope_scaling", json!({"type": "longrope"}), json!(null)),
        ("rope_parameters", json!({"rope_type": "default", "factor": 2.0}), json!({"rope_type": "default"})),
        ("qk_norm", json!(true), json!(false)),
        ("clip_qkv", json!(8.0), json!(null)),
        ("alibi", json!(true), json!(false)),
        ("parallel_attn", json!(true), json!(false)),
        ("use_parallel_residual", json!(true), json!(false)),
        ("quantization_config", json!({"bits": 4}), json!(null)),
        ("num_experts", json!(64), json!(0)),
        ("use_bias", json!(true), json!(false)),
        // These the runtime computes, and reads with their own messages.
        ("attention_bias", json!("yes"), json!(true)),
        ("mlp_bias", json!(1), json!(true)),
        ("tie_word_embeddings", json!("no"), json!(true)),
        ("head_dim", json!(7), json!(16)),
    ] {
        let found = with(name, &wrong).unwrap_err();
        assert!(found.starts_with(&format!("config.json: {name}")), "{name}: {found}");
        with(name, &neutral).unwrap_or_else(|found| panic!("{name}: {neutral}: {found}"));
    }
}

#[test]
fn biases_that_an_architecture_cannot_have_are_refused() {
    for (family, name) in [
        (family("qwen2"), "mlp_bias"),
        (family("qwen3"), "mlp_bias"),
        (family("llama"), "qkv_bias"),
        (family("qwen"), "attention_out_bias"),
    ] {
        let mut file = file(family);
        file.insert(name.to_owned(), json!(true));
        let found = parse(&file).unwrap_err();
        assert!(found.contains(&format!("{name}: contradicts the architecture's bias")), "{family}: {found}");
    }
    let mut file = file(family("qwen2"));
    file.insert("attention_bias".to_owned(), json!(false));
    let expected = "config.json: attention_bias: contradicts the architecture's biases of queries, keys and values: \
                    expected true, found false; remove it if the model computes without it";
    assert_eq!(parse(&file).unwrap_err(), expected);
}

#[test]
fn an_unknown_key_is_judged_by_its_name() {
    let config = parse(&file(family("llama"))).unwrap();
    for name in [
        "attn_output_scale",
        "mup.multipliers",
        "layernorm_kind",
        "expert_count",
        "rope_mixed",
        "logit_softcaps",
    ] {
        let found = judge(family("llama"), &config, name, &json!(2));
        assert!(
            found.starts_with(&format!("config.json: {name}: unknown, and by its name it changes")),
            "{found}"
        );
        assert_eq!(judge(family("llama"), &config, name, &Value::Null), "");
    }
    for name in [
        "use_cache",
        "transformers_version",
        "attention_dropout",
        "attn_pdrop",
        "initializer_range",
        "router_aux_loss_coef",
        "pretraining_tp",
        "_name_or_path",
        "temperature",
        "property",
        "num_steps",
    ] {
        assert_eq!(judge(family("llama"), &config, name, &json!(0.5)), "");
    }
}

#[test]
fn a_program_of_the_publishers_own_is_refused() {
    let mut file = file(family("llama"));
    file.insert("auto_map".to_owned(), json!({"AutoConfig": "configuration_x.XConfig"}));
    parse(&file).unwrap();
    file.insert("auto_map".to_owned(), json!({"AutoModelForCausalLM": "modeling_x.XForCausalLM"}));
    let expected = "config.json: auto_map.AutoModelForCausalLM: the model has a program of its own: expected none, \
                    LlamaForCausalLM as transformers has it, found \"modeling_x.XForCausalLM\"; \
                    remove it if that program computes the same";
    assert_eq!(parse(&file).unwrap_err(), expected);
}

/// As published, but for the sizes.
#[test]
fn published_files_pass() {
    let published = json!({"auto_map": {"AutoModelForCausalLM": "modeling_qwen.QWenLMHeadModel"}, "attn_pdrop": 0.0,
        "bf16": false, "fp16": false, "fp32": false, "bias_dropout_fusion": true, "bos_token_id": 3, "embd_pdrop": 0.0,
        "ffn_hidden_size": 176, "n_embd": 64, "n_head": 8, "n_layer": 2, "n_positions": 512, "no_bias": true,
        "onnx_safe": null, "padded_vocab_size": 100, "params_dtype": "torch.bfloat16", "pos_emb": "rotary",
        "resid_pdrop": 0.1, "rotary_pct": 1.0, "scale_attn_weights": true, "tie_word_embeddings": false,
        "tokenizer_type": "QWenTokenizer", "use_cache": true, "use_flash_attn": "auto", "softmax_in_fp32": false,
        "use_cache_quantization": false, "use_cache_kernel": false, "emb_dropout_prob": 0.0, "attn_dropout_prob": 0.0});
    let mut qwen = file(family("qwen"));
    qwen.extend(published.as_object().unwrap().clone());
    parse(&qwen).unwrap();
    let published = json!({"attention_dropout": 0.0, "bos_token_id": 3, "eos_token_id": 3, "hidden_act": "silu",
        "initializer_range": 0.02, "max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": false,
        "use_mrope": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true});
    let mut qwen = file(family("qwen2"));
    qwen.extend(published.as_object().unwrap().clone());
    parse(&qwen).unwrap();
}

#[test]
fn another_key_of_the_activation_counts_only_without_hidden_act() {
    let file = |hidden_act: Option<&str>| {
        let mut file = json!({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64, "activation": "gelu"});
        if let Some(name) = hidden_act {
            file["hidden_act"] = name.into();
        }
        ModelConfig::from_json(&file.to_string())
    };
    file(Some("silu")).unwrap();
    let message = file(None).unwrap_err().to_string();
    assert!(message.contains("config.json: activation: unsupported activation"), "{message}");
    let message = file(Some("gelu")).unwrap_err().to_string();
    assert!(message.contains("config.json: hidden_act: unsupported activation"), "{message}");
}
