//! Small random models, written as checkpoints, with references computed on the host.

use std::collections::BTreeMap;
use std::path::Path;

use ascend_tp::base::{DType, Id};
use ascend_tp::config::{Family, LengthDependence, ModelConfig};
use ascend_tp::program::models::{
    Head, RunShape, cache_inputs, checkpoint_tensors, decoder, input, rotary_tables,
};
use ascend_tp::program::{HostTensor, Role, interpret};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

const PROMPT: usize = 6;
const NEW: usize = 8;

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) config: Map<String, Value>,
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

pub(crate) fn family(model_type: &str) -> Family {
    Family::named(model_type).unwrap()
}

/// The kinds of models: an architecture, and its configuration without the sizes.
pub(crate) fn kinds() -> Vec<(Family, Value)> {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16, "rope_theta": 500000.0});
    let yarn = json!({"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64});
    vec![
        (family("qwen2"), json!({})),
        (family("qwen2"), json!({"tie_word_embeddings": true})),
        (family("qwen2"), json!({"rope_scaling": yarn})),
        (family("qwen2"), json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}})),
        (family("qwen3"), json!({})),
        (family("qwen3"), json!({"attention_bias": true})),
        (family("llama"), json!({"rope_theta": 10000.0})),
        (family("llama"), json!({"rope_theta": null, "rope_parameters": llama3})),
        (family("llama"), json!({"rope_scaling": {"type": "linear", "factor": 4.0}})),
        (family("llama"), json!({"attention_bias": true, "mlp_bias": true})),
        (family("qwen"), json!({})),
        (
            family("qwen"),
            json!({"use_dynamic_ntk": true, "use_logn_attn": true, "seq_length": 4, "no_bias": false}),
        ),
    ]
}

impl Model {
    pub(crate) fn random(family: Family, more: &Value, seed: u64) -> Self {
        let random = &mut StdRng::seed_from_u64(seed);
        let kv_heads = random.random_range(1..=3);
        let heads = kv_heads * random.random_range(1..=3);
        let head_dim = [4, 8, 16][random.random_range(0..3)];
        let embedding = 10.0_f32.powf(random.random_range(-1.5..0.0));
        Self::drawn(family, more, [heads, kv_heads, head_dim], embedding, random)
    }

    /// Draws a model of four heads of eight dims on two key heads, with an embedding as small as in
    /// trained models.
    pub(crate) fn of_four_heads(family: Family, more: &Value, seed: u64) -> Self {
        Self::drawn(family, more, [4, 2, 8], 0.02, &mut StdRng::seed_from_u64(seed))
    }

    fn drawn(
        family: Family,
        more: &Value,
        [heads, kv_heads, head_dim]: [usize; 3],
        embedding: f32,
        random: &mut StdRng,
    ) -> Self {
        let v1 = family.model_type() == "qwen";
        let intermediate = random.random_range(10..=48);
        let mut config = json!({"architectures": [family.architecture()], "model_type": family.model_type(),
            "vocab_size": random.random_range(40..=120), "num_hidden_layers": 2, "num_attention_heads": heads,
            "max_position_embeddings": 512, "intermediate_size": if v1 { 2 * intermediate } else { intermediate },
            "hidden_size": heads * head_dim, "torch_dtype": "float32"});
        let own = if v1 {
            json!({"kv_channels": head_dim, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000.0, "seq_length": 512,
                "use_dynamic_ntk": false, "use_logn_attn": false, "no_bias": true})
        } else {
            json!({"num_key_value_heads": kv_heads, "head_dim": head_dim, "rms_norm_eps": 1e-6, "rope_theta": 1e6})
        };
        let config = config.as_object_mut().unwrap();
        [&own, more].iter().for_each(|fields| config.extend(fields.as_object().unwrap().clone()));
        let mut model = Self { config: std::mem::take(config), tensors: BTreeMap::new() };
        let run = RunShape::new(1, 1, 1);
        let program = decoder(&model.parse(), run, DType::F32, Head::AllLogits).unwrap();
        let (rows, head_rows) = (random.random_range(0.5..1.5_f32), random.random_range(1.0..4.0_f32));
        for (name, shape) in checkpoint_tensors(&program) {
            let shape = shape.to_vec();
            let (middle, spread) = match shape.as_slice() {
                [_, _] if name.contains("embed") || name.contains("wte") => (0.0, embedding),
                [_, inputs] if name == "lm_head.weight" => (0.0, head_rows / (*inputs as f32).sqrt()),
                [_, inputs] => (0.0, rows / (*inputs as f32).sqrt()),
                _ if name.ends_with("bias") => (0.0, 0.3),
                _ => (1.0, 0.2),
            };
            let elems = shape.iter().product();
            let data = (0..elems).map(|_| middle + spread * normal(random)).collect();
            model.tensors.insert(name, (shape, data));
        }
        model
    }

    pub(crate) fn parse(&self) -> ModelConfig {
        ModelConfig::from_json(&Value::from(self.config.clone()).to_string()).unwrap()
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Vec<f32> {
        &mut self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}")).1
    }

    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), Value::from(self.config.clone()).to_string()).unwrap();
        let tensors = self.tensors.iter().map(|(name, (shape, data))| (name.clone(), floats(shape, data)));
        write(&folder.join("model.safetensors"), &tensors.collect::<Vec<_>>());
    }

    pub(crate) fn write_reference(&self, path: &Path, seed: u64) {
        let random = &mut StdRng::seed_from_u64(seed);
        let vocab_size = self.parse().vocab_size;
        let mut draw = |count: usize| -> Vec<u32> {
            (0..count).map(|_| random.random_range(0..vocab_size) as u32).collect()
        };
        let (batch, sequence) = (2, 10);
        let input_ids = draw(batch * sequence);
        let rows = input_ids.chunks(sequence).flat_map(|ids| self.logits(ids, sequence));
        let logits: Vec<f32> = rows.collect();
        let prompt = draw(PROMPT);
        let mut ids = prompt.clone();
        for _ in 0..NEW {
            let logits = self.logits(&ids, PROMPT);
            let last = &logits[logits.len() - vocab_size..];
            let best = (0..vocab_size).reduce(|best, at| if last[at] > last[best] { at } else { best });
            ids.push(best.unwrap() as u32);
        }
        write(
            path,
            &[
                ("input_ids".to_owned(), integers(&[batch, sequence], &input_ids)),
                ("logits".to_owned(), floats(&[batch, sequence, vocab_size], &logits)),
                ("greedy_prompt".to_owned(), integers(&[1, PROMPT], &prompt)),
                ("greedy_ids".to_owned(), integers(&[1, NEW], &ids[PROMPT..])),
            ],
        );
    }

    /// Returns the logits of every token. The first `prompt` tokens are the prompt.
    fn logits(&self, ids: &[u32], prompt: usize) -> Vec<f32> {
        let config = self.parse();
        let s = ids.len();
        let run = RunShape::new(1, s, s);
        let program = decoder(&config, run, DType::F32, Head::AllLogits).unwrap();
        let positions: Vec<usize> = (0..s).collect();
        let angles = |name: &str| {
            let table =
                rotary_tables(&config).into_iter().find(|table| [table.cos, table.sin].contains(&name))?;
            let rope = config.rope_of(table.rotary);
            let length = if rope.length_dependence() == LengthDependence::Prompt { prompt } else { s };
            let (cos, sin) = rope.cos_sin(config.head_dim, &positions, length);
            Some(if table.cos == name { cos } else { sin })
        };
        let places = cache_inputs(run, std::slice::from_ref(&(0..s)));
        let place =
            |name: &str| places.iter().find(|(known, _)| *known == name).map(|(_, place)| place.clone());
        let values = interpret(&program, |_, value| {
            let whole = |data: Vec<i64>| HostTensor::int(value.shape.clone(), value.dtype, data);
            let float = |data: Vec<f32>| HostTensor::float(value.shape.clone(), value.dtype, data);
            match (value.role, value.name.as_str()) {
                (Role::Param, _) => {
                    let source = value.source.as_ref().unwrap();
                    let stack = source.stack(&value.shape).unwrap();
                    let elems = stack.part(&value.shape).elems();
                    let part = |name: &str| &self.tensors[name].1[source.element_offset..][..elems];
                    float(stack.names.iter().flat_map(|name| part(&name).to_vec()).collect())
                }
                (_, input::IDS) => whole(ids.iter().map(|id| i64::from(*id)).collect()),
                (_, input::LOGN) => float(config.logn.unwrap().scale(&positions)),
                (_, name) => match (place(name), angles(name)) {
                    (Some(place), _) => place,
                    (_, Some(angles)) => float(angles),
                    _ => HostTensor::zeros(value.shape.clone(), value.dtype),
                },
            }
        });
        values[program.outputs[0].1.index()].floats().to_vec()
    }
}

fn normal(random: &mut StdRng) -> f32 {
    let (radius, turn) =
        (random.random_range(1e-6..1.0_f32), random.random_range(0.0..std::f32::consts::TAU));
    (-2.0 * radius.ln()).sqrt() * turn.cos()
}

type Stored = (Dtype, Vec<usize>, Vec<u8>);

fn floats(shape: &[usize], data: &[f32]) -> Stored {
    (Dtype::F32, shape.to_vec(), data.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn integers(shape: &[usize], data: &[u32]) -> Stored {
    (Dtype::I64, shape.to_vec(), data.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect())
}

fn write(path: &Path, tensors: &[(String, Stored)]) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}
