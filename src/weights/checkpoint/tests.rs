//! Tests with valid and invalid checkpoints on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use super::{Checkpoint, ExpectedTensor, INDEX, SINGLE};
use crate::base::{Bytes, DType, FLOATS, Shape};

fn repository(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Returns a safetensors file of f32 tensors with the elements 0, 1, 2, ….
fn file_of(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape)| {
            (0..shape.iter().product()).flat_map(|index: usize| (index as f32).to_le_bytes()).collect()
        })
        .collect();
    let views = tensors.iter().zip(&data).map(|((name, shape), data)| {
        ((*name).to_owned(), TensorView::new(Dtype::F32, shape.to_vec(), data).unwrap())
    });
    safetensors::serialize(views.collect::<BTreeMap<_, _>>(), None).unwrap()
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn refused(folder: &TempDir, expected: &[&str]) {
    let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
    let message = message.replace(&folder.path().display().to_string(), "DIR");
    assert_eq!(message.lines().collect::<Vec<_>>(), expected);
}

fn expect(name: &str, shape: &[usize]) -> ExpectedTensor {
    ExpectedTensor { name: name.to_owned(), shape: Shape::from(shape), dtypes: FLOATS }
}

fn ends_with(name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

#[test]
fn a_single_file_and_its_slices() {
    let folder = folder(&[(SINGLE, &file_of(&[("a", &[4, 3]), ("b", &[2])]))]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let names: Vec<&str> = checkpoint.tensors().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(checkpoint.bytes(), Bytes(56));
    let mut out = [0; 8];
    checkpoint.read_slice("a", 0, &Shape::from([4, 3]), &[1..3, 2..3], DType::F32, &mut out).unwrap();
    assert_eq!(out, [5f32.to_le_bytes(), 8f32.to_le_bytes()].concat()[..]);
    assert_eq!(checkpoint.read_f32("b").unwrap(), (Shape::from([2]), vec![0.0, 1.0]));
    assert!(checkpoint.read_f32("c").unwrap_err().to_string().starts_with("c: no such tensor in "));
    assert_eq!(
        checkpoint.read_i64("b").unwrap_err().to_string(),
        "b: expected a tensor that can be read as i64, found f32"
    );
}

#[test]
fn every_fixture_opens() {
    for name in ["qwen-v1-mha", "qwen2-gqa", "qwen2-tied-uneven", "qwen3-qknorm", "llama3-ropescaling"] {
        let folder = repository("tests/fixtures").join(name);
        let checkpoint = Checkpoint::open(&folder).unwrap_or_else(|problems| panic!("{name}: {problems}"));
        assert!(checkpoint.tensors().len() > 10, "{name}");
        let reference = Checkpoint::open_file(&folder.join("expected.safetensors")).unwrap();
        let (shape, ids) = reference.read_i64("input_ids").unwrap();
        let (logits, _) = reference.read_f32("logits").unwrap();
        assert_eq!(logits[..2], shape[..]);
        assert!(ids.iter().all(|id| (*id as usize) < logits[2]));
    }
}

#[test]
fn the_shipped_model_opens() {
    let checkpoint = Checkpoint::open(&repository("models/kjv-qwen2")).unwrap();
    assert_eq!(checkpoint.bytes(), Bytes(16_007_680));
    let embedding = checkpoint.tensor("model.embed_tokens.weight").unwrap();
    assert_eq!((embedding.dtype, &embedding.shape), (DType::BF16, &Shape::from([4096, 256])));
    assert_eq!(checkpoint.file_of(embedding), "model-00001-of-00003.safetensors");
}

#[test]
fn folders_without_a_checkpoint() {
    refused(
        &folder(&[]),
        &["DIR: no checkpoint in this folder: expected model.safetensors or model.safetensors.index.json; \
           name the folder that config.json and the weights are in"],
    );
    refused(
        &folder(&[("pytorch_model.bin", b"")]),
        &["DIR: no checkpoint in this folder: expected model.safetensors or model.safetensors.index.json, \
           found pytorch_model.bin; convert the weights to safetensors, or download the index file"],
    );
    let nowhere = Checkpoint::open(Path::new("no-such-folder")).unwrap_err().to_string();
    assert_eq!(nowhere, "no-such-folder: no such folder: expected a folder with a checkpoint, found nothing");
}

#[test]
fn a_truncated_file() {
    let mut bytes = file_of(&[("a", &[4, 3]), ("b", &[2])]);
    bytes.truncate(bytes.len() - 4);
    refused(
        &folder(&[(SINGLE, &bytes)]),
        &["model.safetensors: b: the data lies beyond the end of the file: \
           expected data_offsets up to 52, the bytes of data in the file, found [48, 56]; \
           the file is truncated or its header is wrong; download it again"],
    );
}

#[test]
fn an_index_and_files_that_disagree() {
    let index =
        br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors", "d": "2.safetensors",
        "e": "3.safetensors", "f": "3.safetensors", "g": "../4.safetensors", "a": "1.safetensors"}}"#;
    let folder = folder(&[
        (INDEX, index),
        ("1.safetensors", &file_of(&[("a", &[1]), ("x", &[1])])),
        ("2.safetensors", &file_of(&[("a", &[1]), ("b", &[1]), ("d", &[1])])),
    ]);
    refused(
        &folder,
        &[
            "model.safetensors.index.json: a: more than one entry has this name",
            "model.safetensors.index.json: g: not the name of a file in the same folder: found ../4.safetensors",
            "1.safetensors: x: model.safetensors.index.json does not say that the tensor is here; \
             the index and the file are of different checkpoints",
            "1.safetensors: c: model.safetensors.index.json names the tensor, the file has none; \
             download the file again",
            "2.safetensors: a: model.safetensors.index.json does not say that the tensor is here; \
             the index and the file are of different checkpoints",
            "2.safetensors: a: the tensor is in 1.safetensors too",
            "3.safetensors: missing file: expected 2 tensors that model.safetensors.index.json says it holds, e first; \
             download the file",
        ],
    );
}

#[test]
fn an_index_that_is_none() {
    let message = Checkpoint::open(folder(&[(INDEX, b"{}")]).path()).unwrap_err().to_string();
    assert!(
        message.starts_with("model.safetensors.index.json: not an index of safetensors files"),
        "{message}"
    );
}

#[test]
fn problems_of_all_files_come_at_once() {
    let index = br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
    let folder = folder(&[(INDEX, index), ("1.safetensors", b"short"), ("2.safetensors", &[0xff; 20])]);
    let problems = Checkpoint::open(folder.path()).unwrap_err();
    let places: Vec<&str> = problems.items().iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(places, ["1.safetensors", "2.safetensors"]);
}

#[test]
fn tensors_that_a_model_does_not_expect() {
    let folder = folder(&[(
        SINGLE,
        &file_of(&[("a", &[4, 3]), ("b", &[2]), ("lm_head.weight", &[1]), ("x.extra", &[1])]),
    )]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let all =
        [expect("a", &[4, 3]), expect("b", &[2]), expect("lm_head.weight", &[1]), expect("x.extra", &[1])];
    checkpoint.check(&all, &|_| false).unwrap();
    checkpoint.check(&all[..2], &|name| ends_with(name, &["lm_head.weight", ".extra"])).unwrap();
    let problems = checkpoint
        .check(&[expect("a", &[3, 4]), expect("m", &[7])], &|name| ends_with(name, &["lm_head.weight"]))
        .unwrap_err();
    let message = problems.to_string().replace(&folder.path().display().to_string(), "DIR");
    let expected = [
        "model.safetensors: a: wrong shape: expected [3,4], found [4,3]; \
         config.json and the weights are of different models",
        "DIR/model.safetensors: m: missing tensor: expected [7]; \
         config.json and the weights are of different models, or files are missing",
        "model.safetensors: b: unexpected tensor: found f32 [2]; \
         the model that config.json describes has no such weight",
        "model.safetensors: x.extra: unexpected tensor: found f32 [1]; \
         the model that config.json describes has no such weight",
    ];
    assert_eq!(message.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn weights_are_floating_point() {
    let reference =
        Checkpoint::open_file(&repository("tests/fixtures/qwen2-gqa/expected.safetensors")).unwrap();
    let message = reference
        .check(&[expect("greedy_ids", &[1, 24])], &|name| ends_with(name, &["s", "t", "r"]))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("greedy_ids: wrong element type: expected f32, f16 or bf16, found i64"),
        "{message}"
    );
    let packed = ExpectedTensor { dtypes: &[DType::U8], ..expect("logits", &[1]) };
    let message = reference.check(&[packed], &|name| ends_with(name, &["s"])).unwrap_err().to_string();
    assert!(message.contains("logits: wrong element type: expected u8, found f32"), "{message}");
}

#[test]
fn problems_of_the_experts_of_a_layer_are_one_line() {
    let name = |layer: usize, expert: usize, part: &str| format!("l.{layer}.experts.{expert}.{part}.weight");
    let mut expected = vec![expect("l.0.gate.weight", &[2]), expect("l.1.gate.weight", &[2])];
    let mut tensors: Vec<(String, Vec<usize>)> = vec![("l.0.gate.weight".to_owned(), vec![2])];
    for layer in 0..3 {
        for expert in 0..4 {
            let [up, down] = ["up", "down"].map(|part| name(layer, expert, part));
            expected.extend([expect(&up, &[4, 3]), expect(&down, &[3, 4])]);
            // Layer 1 lacks the experts from 2 on. Layer 2 has other shapes.
            let (up_shape, down_shape) =
                if layer == 2 { (vec![5, 3], vec![3, 5]) } else { (vec![4, 3], vec![3, 4]) };
            if layer != 1 || expert < 2 {
                tensors.extend([(up, up_shape), (down, down_shape)]);
            }
        }
    }
    tensors.extend([(name(0, 4, "up"), vec![4, 3]), (name(0, 5, "up"), vec![4, 3])]);
    let tensors: Vec<(&str, &[usize])> =
        tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
    let folder = folder(&[(SINGLE, &file_of(&tensors))]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let message = checkpoint.check(&expected, &|_| false).unwrap_err().to_string();
    let message = message.replace(&folder.path().display().to_string(), "DIR");
    let expected = [
        "DIR/model.safetensors: l.1.gate.weight: missing tensor: expected [2]; \
         config.json and the weights are of different models, or files are missing",
        "DIR/model.safetensors: l.1.experts.2.up.weight: missing tensor (and 3 more of the experts of this layer): \
         expected [4,3]; config.json and the weights are of different models, or files are missing",
        "model.safetensors: l.2.experts.0.up.weight: wrong shape (and 3 more of the experts of this layer): \
         expected [4,3], found [5,3]; config.json and the weights are of different models",
        "model.safetensors: l.2.experts.0.down.weight: wrong shape (and 3 more of the experts of this layer): \
         expected [3,4], found [3,5]; config.json and the weights are of different models",
        "model.safetensors: l.0.experts.4.up.weight: unexpected tensor (and 1 more of the experts of this layer): \
         found f32 [4,3]; the model that config.json describes has no such weight",
    ];
    assert_eq!(message.lines().collect::<Vec<_>>(), expected);
}
