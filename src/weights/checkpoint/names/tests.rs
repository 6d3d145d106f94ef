//! Checkpoints of text towers, and of experts in one tensor, against the same weights with the
//! usual names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use crate::base::{DType, Shape};
use crate::generate::Model;
use crate::program::{Form, Source};
use crate::weights::Checkpoint;

fn repository(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
}

/// Writes the weights of a fixture with other names into a folder. `None` leaves a tensor out.
fn renamed(fixture: &str, config: &str, name: impl Fn(&str) -> Option<String>, more: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let bytes = std::fs::read(repository(fixture).join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<String, TensorView<'_>> =
        stored.iter().filter_map(|(stored, view)| Some((name(stored)?, view))).collect();
    for name in more {
        tensors.insert((*name).to_owned(), stored.tensor("model.norm.weight").unwrap());
    }
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap())
        .unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    folder
}

/// Returns the file of the model of images with this text tower.
fn around(fixture: &str, architecture: &str) -> String {
    let text = std::fs::read_to_string(repository(fixture).join("config.json")).unwrap();
    format!(
        r#"{{"architectures": ["{architecture}"], "vision_config": {{"depth": 1}}, "text_config": {text}}}"#
    )
}

fn same_weights(found: &Checkpoint, expected: &Checkpoint) {
    let names =
        |checkpoint: &Checkpoint| checkpoint.tensors().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, _) in expected.tensors() {
        assert_eq!(found.read_f32(name).unwrap(), expected.read_f32(name).unwrap(), "{name}");
    }
}

#[test]
fn towers_have_the_weights_of_the_text_model() {
    for (fixture, architecture, prefix, head, images) in [
        (
            "gemma3",
            "Gemma3ForConditionalGeneration",
            "language_model.model.",
            "language_model.lm_head.",
            &[
                "vision_tower.vision_model.post_layernorm.weight",
                "multi_modal_projector.mm_soft_emb_norm.weight",
            ],
        ),
        (
            "gemma3",
            "Gemma3ForConditionalGeneration",
            "model.language_model.",
            "lm_head.",
            &[
                "model.vision_tower.vision_model.post_layernorm.weight",
                "model.multi_modal_projector.norm.weight",
            ],
        ),
        (
            "deepseek-v3",
            "KimiK25ForConditionalGeneration",
            "language_model.model.",
            "language_model.lm_head.",
            &["vision_tower.encoder.final_layernorm.weight", "mm_projector.pre_norm.weight"],
        ),
    ] {
        let name = |name: &str| match name.strip_prefix("model.") {
            Some(rest) => Some(format!("{prefix}{rest}")),
            None => Some(name.replace("lm_head.", head)),
        };
        let folder = renamed(fixture, &around(fixture, architecture), name, images);
        let (found, expected) =
            (Model::open(folder.path()).unwrap(), Model::open(&repository(fixture)).unwrap());
        assert_eq!(found.config, expected.config);
        same_weights(&found.checkpoint, &expected.checkpoint);
        let line = found.checkpoint.skipped(&found.config, false).unwrap();
        assert!(line.starts_with("2 tensors of images ("), "{line}");
    }
}

#[test]
fn a_tensor_with_two_names_is_refused() {
    let name = |name: &str| Some(name.to_owned());
    let twice = "language_model.model.norm.weight";
    let folder = renamed("gemma3", "{}", name, &[twice]);
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert_eq!(
        message,
        "model.safetensors: model.norm.weight: the tensor is stored under another name too: \
         expected one tensor model.norm.weight"
    );
}

/// Writes the experts of each layer of a fixture as two tensors, in the order of the dims of
/// Qwen3.5.
fn with_fused_experts(fixture: &str, experts: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    let bytes = std::fs::read(repository(fixture).join("model.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut fused: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, view) in stored.iter() {
        let Some((layer, _)) = name.split_once(".experts.") else {
            fused.insert(name.to_owned(), (view.shape().to_vec(), view.data().to_vec()));
            continue;
        };
        for (fused_name, parts) in
            [("gate_up_proj", &["gate_proj", "up_proj"][..]), ("down_proj", &["down_proj"])]
        {
            let names = (0..experts).flat_map(|expert| {
                parts.iter().map(move |part| format!("{layer}.experts.{expert}.{part}.weight"))
            });
            let views: Vec<TensorView<'_>> = names.map(|name| stored.tensor(&name).unwrap()).collect();
            let [rows, columns] = views[0].shape() else { panic!("{name}") };
            let shape = vec![experts, rows * parts.len(), *columns];
            let data = views.iter().flat_map(|view| view.data().to_vec()).collect();
            fused.insert(format!("{layer}.experts.{fused_name}"), (shape, data));
        }
    }
    let views: BTreeMap<&str, TensorView<'_>> = fused
        .iter()
        .map(|(name, (shape, data))| {
            (name.as_str(), TensorView::new(safetensors::Dtype::BF16, shape.clone(), data).unwrap())
        })
        .collect();
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    folder
}

#[test]
fn experts_in_one_tensor_are_the_tensors_of_each() {
    let folder = with_fused_experts("qwen3-next", 10);
    let (found, expected) =
        (Checkpoint::open(folder.path()).unwrap(), Checkpoint::open(&repository("qwen3-next")).unwrap());
    same_weights(&found, &expected);
    // A shard of a stack.
    let tensor = "model.layers.1.mlp.experts.{0..10}.{gate_proj,up_proj}.weight".to_owned();
    let source = Source { tensor, element_offset: 0, form: Form::Numbers };
    let (shape, ranges) = (Shape::from([10, 2, 18, 44]), [3..5, 0..2, 4..9, 0..44]);
    let [found, expected] = [&found, &expected].map(|checkpoint| {
        let mut out = vec![0; 2 * 2 * 5 * 44 * 4];
        checkpoint.read_param(&source, &shape, &ranges, DType::F32, &mut out).unwrap();
        out
    });
    assert_eq!(found, expected);
}

/// gpt-oss has the same names, with inputs before outputs.
#[test]
fn transposed_experts_stay_one_tensor() {
    let checkpoint = Checkpoint::open(&repository("gpt-oss")).unwrap();
    let names: Vec<&str> = checkpoint.tensors().map(|(name, _)| name).collect();
    assert!(names.contains(&"model.layers.0.mlp.experts.gate_up_proj"), "{names:?}");
}
