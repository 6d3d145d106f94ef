//! Adapters by model name.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::{Running, Setup};

/// Writes an adapter of rank 1 for the last layer's down projection, which adds `scale` times the
/// first input to the first output.
fn write_adapter(folder: &Path, scale: f32) {
    let layer = "base_model.model.model.layers.0.mlp.down_proj";
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(crate::shipped().join("config.json")).unwrap())
            .unwrap();
    let size = |name: &str| usize::try_from(config[name].as_u64().unwrap()).unwrap();
    let factor = |elems: usize, first: f32| -> Vec<u8> {
        (0..elems).flat_map(|at| if at == 0 { first } else { 0.25 }.to_le_bytes()).collect()
    };
    let (width, height) = (size("intermediate_size"), size("hidden_size"));
    let (a, b) = (factor(width, 1.0), factor(height, scale));
    let views = [
        (format!("{layer}.lora_A.weight"), TensorView::new(Dtype::F32, vec![1, width], &a).unwrap()),
        (format!("{layer}.lora_B.weight"), TensorView::new(Dtype::F32, vec![height, 1], &b).unwrap()),
    ];
    std::fs::write(folder.join("adapter_model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    let text = json!({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["down_proj"]});
    std::fs::write(folder.join("adapter_config.json"), text.to_string()).unwrap();
}

#[test]
fn an_adapter_is_a_model_of_the_api() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    folders.iter().zip([-9.0, 7.0]).for_each(|(folder, scale)| write_adapter(folder.path(), scale));
    let adapters = ["first", "second"].into_iter().zip(&folders);
    let adapters = adapters.map(|(name, folder)| (name.to_owned(), folder.path().to_owned())).collect();
    let running = Running::start(Setup { batch: 4, context: 128, adapters, ..Setup::default() });
    let client = running.client();
    let listed = client.get("/v1/models").answer();
    let listed: Vec<[&Value; 2]> =
        listed["data"].as_array().unwrap().iter().map(|model| [&model["id"], &model["parent"]]).collect();
    let expected =
        [("kjv", Value::Null), ("other", Value::Null), ("first", json!("kjv")), ("second", json!("kjv"))];
    let expected: Vec<[Value; 2]> = expected.into_iter().map(|(id, parent)| [json!(id), parent]).collect();
    assert_eq!(listed, expected.iter().map(|[id, parent]| [id, parent]).collect::<Vec<_>>());
    let answer = |model: &str| {
        let body = json!({"model": model, "prompt": "In the beginning", "max_tokens": 12, "temperature": 0});
        let answer = client.post("/v1/completions", &body).answer();
        assert_eq!(answer["model"], model, "{answer}");
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let [whole, first, second] = ["kjv", "first", "second"].map(answer);
    assert!(whole != first && whole != second && first != second, "{whole:?} {first:?} {second:?}");
    assert!(whole.starts_with(" of the Lord"), "{whole}");
    // The second answers find the prompts in the prefix cache.
    assert_eq!(["kjv", "first", "second"].map(answer), [whole, first, second]);
    let unknown = client.post("/v1/completions", &json!({"model": "third", "prompt": "In"}));
    assert_eq!(unknown.status, 404);
    running.end().unwrap();
}
