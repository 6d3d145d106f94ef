//! Sabotages: faults in a checkpoint or its configuration that mimic wrong checkpoints,
//! configurations or programs.

use ascend_tp::config::Family;
use serde_json::{Value, json};

use super::model::{Model, family};

pub(crate) type Sabotage = (&'static str, (Family, Value), fn(&mut Model));

const HEAD_DIM: usize = 8;

/// Returns all sabotages. The models have four heads of eight dims on two key heads.
pub(crate) fn all() -> Vec<Sabotage> {
    let qwen2 = || (family("qwen2"), json!({}));
    let yarn =
        json!({"rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}});
    vec![
        ("the base of the rotary embedding", qwen2(), |model| set(model, "rope_theta", json!(5e5))),
        ("YaRN's factor", (family("qwen2"), yarn), |model| {
            model.config["rope_scaling"]["factor"] = json!(4.0);
        }),
        ("a final norm 5 % too large", qwen2(), |model| scale(model, "model.norm.weight", 1.05)),
        ("two rows of a gate", qwen2(), |model| swap_rows(model, "model.layers.1.mlp.gate_proj.weight", 1)),
        ("two query heads", qwen2(), |model| {
            swap_rows(model, "model.layers.0.self_attn.q_proj.weight", HEAD_DIM);
            swap_rows(model, "model.layers.0.self_attn.q_proj.bias", HEAD_DIM);
        }),
        ("two key heads", (family("llama"), json!({})), |model| {
            swap_rows(model, "model.layers.1.self_attn.k_proj.weight", HEAD_DIM);
        }),
        ("the norms' epsilon", qwen2(), |model| set(model, "rms_norm_eps", json!(1e-5))),
        ("a bias that is missing", qwen2(), |model| {
            scale(model, "model.layers.0.self_attn.q_proj.bias", 0.0);
        }),
        ("a transposed block of the output projection", qwen2(), |model| {
            transpose(model, "model.layers.0.self_attn.o_proj.weight");
        }),
        ("keys one position too far", qwen2(), turn_keys),
        ("an embedding in the head's place", (family("llama"), json!({})), |model| {
            set(model, "tie_word_embeddings", json!(true));
        }),
        ("a scale of the attention 3 % too large", (family("qwen3"), json!({})), |model| {
            scale(model, "model.layers.1.self_attn.q_norm.weight", 1.03);
        }),
        ("two layers", qwen2(), |model| {
            for (name, tensor) in model.tensors.clone() {
                let other = name.replace(".layers.0.", ".layers.x.").replace(".layers.1.", ".layers.0.");
                model.tensors.insert(other.replace(".layers.x.", ".layers.1."), tensor);
            }
        }),
    ]
}

fn set(model: &mut Model, name: &str, value: Value) {
    model.config.insert(name.to_owned(), value);
}

fn scale(model: &mut Model, name: &str, by: f32) {
    model.tensor(name).iter_mut().for_each(|x| *x *= by);
}

fn swap_rows(model: &mut Model, name: &str, rows: usize) {
    let width = model.tensors[name].0.get(1).copied().unwrap_or(1);
    let (first, second) = model.tensor(name)[..2 * rows * width].split_at_mut(rows * width);
    first.swap_with_slice(second);
}

fn transpose(model: &mut Model, name: &str) {
    let width = model.tensors[name].0[1];
    let weight = model.tensor(name);
    for row in 0..HEAD_DIM {
        for column in 0..row {
            weight.swap(row * width + column, column * width + row);
        }
    }
}

/// Rotates the results of the key projections by the angle of one position.
fn turn_keys(model: &mut Model) {
    let config = model.parse();
    let (hidden, half) = (config.hidden_size, HEAD_DIM / 2);
    let frequencies = config.rope.inverse_frequencies(HEAD_DIM, 1);
    for layer in 0..config.layers {
        for (kind, width) in [("weight", hidden), ("bias", 1)] {
            let keys = model.tensor(&format!("model.layers.{layer}.self_attn.k_proj.{kind}"));
            for head in keys.chunks_mut(HEAD_DIM * width) {
                for at in 0..half * width {
                    let (sin, cos) = frequencies[at / width].sin_cos();
                    let (a, b) = (head[at], head[at + half * width]);
                    (head[at], head[at + half * width]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
    }
}
