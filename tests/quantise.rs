//! Written quantised checkpoints: numbers, files and results, and what is refused.
//!
//! The tests read the files themselves, with the crate `safetensors`, and compute the expected
//! integers and scales from the float weights. Results are compared with a float model that has the
//! dequantised weights.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::base::{DType, Precision};
use ascend_tp::config::QuantisedFormat;
use ascend_tp::generate::verify::{Reference, verify};
use ascend_tp::generate::{Model, Request, Sequence, Session};
use ascend_tp::placement::Residual;
use ascend_tp::weights::{FolderError, Quantised, quantise};
use half::bf16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{cann, fixture, open, path};

/// A stored tensor: type, shape and bytes.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn bf16(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::BF16);
        self.bytes.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect()
    }
}

/// Reads all safetensors files of a folder but references.
fn stored(folder: &Path) -> BTreeMap<String, Stored> {
    let mut tensors = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".safetensors") || name == "expected.safetensors" {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let (dtype, shape, bytes) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            tensors.insert(name.to_owned(), Stored { dtype, shape, bytes });
        }
    }
    tensors
}

fn json(folder: &Path, file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
}

fn written(model: &Model, format: QuantisedFormat, out: &Path) -> Result<Quantised, FolderError> {
    quantise(&model.checkpoint, &model.config, &model.dir, format, out)
}

/// Returns the largest magnitude over `steps`, rounded to bf16, as bf16 scales are stored.
fn scale(weights: &[f32], steps: f32) -> f32 {
    let largest = weights.iter().map(|x| x.abs()).fold(0.0, f32::max);
    bf16::from_f32(largest / steps).to_f32()
}

/// Checks the numbers of a layer, and returns the dequantised weight.
fn check_int8(layer: &str, float: &Stored, found: &BTreeMap<String, Stored>) -> Vec<f32> {
    let [outputs, inputs] = float.shape[..] else { panic!("{layer}: {:?}", float.shape) };
    let part = |suffix: &str| &found[&format!("{layer}.{suffix}")];
    let (weight, scales, offsets) = (part("weight"), part("weight_scale"), part("weight_offset"));
    assert_eq!((weight.dtype, &weight.shape), (Dtype::I8, &float.shape), "{layer}");
    assert_eq!((scales.dtype, &scales.shape[..]), (Dtype::BF16, &[outputs, 1][..]), "{layer}");
    assert_eq!((offsets.dtype, &offsets.shape), (Dtype::BF16, &scales.shape), "{layer}");
    assert!(offsets.bytes.iter().all(|byte| *byte == 0), "{layer}");
    let mut dequantised = Vec::new();
    for (row, weights) in float.bf16().chunks(inputs).enumerate() {
        let expected = scale(weights, 127.0);
        assert_eq!(scales.bf16()[row], expected, "{layer}, row {row}");
        for (column, x) in weights.iter().enumerate() {
            let integer = (x / expected).round_ties_even().clamp(-127.0, 127.0);
            assert_eq!(
                f32::from(weight.bytes[row * inputs + column] as i8),
                integer,
                "{layer}: {row}, {column}"
            );
            dequantised.push(integer * expected);
        }
    }
    dequantised
}

/// As [`check_int8`], of groups with integers of 4 bits.
fn check_int4(layer: &str, group: usize, float: &Stored, found: &BTreeMap<String, Stored>) -> Vec<f32> {
    let [outputs, inputs] = float.shape[..] else { panic!("{layer}: {:?}", float.shape) };
    let part = |suffix: &str| &found[&format!("{layer}.{suffix}")];
    let (packed, scales, sizes) = (part("weight_packed"), part("weight_scale"), part("weight_shape"));
    assert_eq!((packed.dtype, &packed.shape[..]), (Dtype::I32, &[outputs, inputs / 8][..]), "{layer}");
    assert_eq!((scales.dtype, &scales.shape[..]), (Dtype::BF16, &[outputs, inputs / group][..]), "{layer}");
    assert_eq!((sizes.dtype, &sizes.shape[..]), (Dtype::I64, &[2][..]), "{layer}");
    let sizes = sizes.bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    assert_eq!(sizes.collect::<Vec<_>>(), [outputs as i64, inputs as i64], "{layer}");
    let words = packed.bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let words: Vec<u32> = words.collect();
    let (weights, scales) = (float.bf16(), scales.bf16());
    let mut dequantised = Vec::new();
    for (at, x) in weights.iter().enumerate() {
        let (row, column) = (at / inputs, at % inputs);
        let first = at / group * group;
        let expected = scale(&weights[first..first + group], 7.5);
        assert_eq!(scales[at / group], expected, "{layer}: {row}, {column}");
        let number = words[at / 8] >> (4 * (column % 8)) & 15;
        let integer = (x / expected).round_ties_even().clamp(-8.0, 7.0);
        assert_eq!(number as f32 - 8.0, integer, "{layer}: {row}, {column}");
        dequantised.push(integer * expected);
    }
    dequantised
}

const PROJECTIONS: [&str; 7] = [
    "mlp.down_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "self_attn.k_proj",
    "self_attn.o_proj",
    "self_attn.q_proj",
    "self_attn.v_proj",
];

/// Writes the float model with other weights of linear layers, in f32.
fn with_weights(model: &Model, weights: &BTreeMap<String, Vec<f32>>) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(model.dir.join(file), folder.path().join(file)).unwrap();
    }
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = stored(&model.dir)
        .into_iter()
        .map(|(name, tensor)| {
            let floats = weights.get(&name).cloned().unwrap_or_else(|| tensor.bf16());
            (name, tensor.shape, floats.iter().flat_map(|x| x.to_le_bytes()).collect())
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    folder
}

/// Returns tokens and log-probabilities of two prompts.
fn generated(model: &Model, precision: Precision) -> Vec<Sequence> {
    let cann = cann(2);
    let builder = Session::builder(&cann, model).cards(2).batch(2).context(48).precision(precision);
    let mut session = builder.prompt_log_probabilities().start().unwrap();
    let requests = ["In the beginning God created", "And the king said unto"].map(|prompt| Request {
        max_new_tokens: Some(8),
        log_probabilities: Some(4),
        prompt_log_probabilities: Some(4),
        ..Request::new(prompt)
    });
    session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap().sequences
}

#[test]
fn a_quantised_model_has_the_computed_numbers_and_the_results_of_its_dequantised_weights() {
    let model = open(&path("models/kjv-qwen2"));
    let floats = stored(&model.dir);
    let folder = TempDir::new().unwrap();
    for format in [QuantisedFormat::W8A8Dynamic, QuantisedFormat::W4A16 { group: 64 }] {
        let out = folder.path().join(format.name());
        let report = written(&model, format, &out).unwrap();
        let found = stored(&out);
        assert_eq!(report.tensors, found.len(), "{format}");
        let layers = (0..model.config.layers)
            .flat_map(|layer| PROJECTIONS.map(|projection| format!("model.layers.{layer}.{projection}")));
        let mut dequantised = BTreeMap::new();
        let mut seen = 0;
        for (layer, error) in layers.zip(&report.layers) {
            let weight = format!("{layer}.weight");
            let values = match format {
                QuantisedFormat::W8A8Dynamic => check_int8(&layer, &floats[&weight], &found),
                QuantisedFormat::W4A16 { group } => check_int4(&layer, group, &floats[&weight], &found),
            };
            let expected = floats[&weight].bf16();
            let square = |x: f64| x * x;
            let differences = values.iter().zip(&expected).map(|(a, b)| f64::from(*a) - f64::from(*b));
            let (mut sum, mut largest) = (0.0, 0.0_f64);
            for difference in differences {
                sum += square(difference);
                largest = largest.max(difference.abs());
            }
            let of_weights: f64 = expected.iter().map(|x| square(f64::from(*x))).sum();
            let relative = (sum / of_weights).sqrt();
            assert_eq!((error.layer.as_str(), error.largest_error), (layer.as_str(), largest), "{format}");
            assert!((error.relative() - relative).abs() < 1e-12, "{format}, {layer}: {error:?}");
            let limit = if format == QuantisedFormat::W8A8Dynamic { 0.02 } else { 0.15 };
            assert!(relative > limit / 10.0 && relative < limit, "{format}, {layer}: {relative}");
            dequantised.insert(weight, values);
            seen += 1;
        }
        assert_eq!((seen, report.layers.len()), (7 * model.config.layers, seen), "{format}");
        // Everything else is copied.
        for (name, tensor) in floats.iter().filter(|(name, _)| !dequantised.contains_key(*name)) {
            assert_eq!(&found[name], tensor, "{format}: {name}");
        }
        let others = found.keys().filter(|name| !floats.contains_key(*name)).count();
        let per_layer = if format == QuantisedFormat::W8A8Dynamic { 2 } else { 3 };
        assert_eq!(others, per_layer * seen, "{format}");
        for file in
            ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
        {
            assert_eq!(std::fs::read(out.join(file)).unwrap(), std::fs::read(model.dir.join(file)).unwrap());
        }

        let quantised = open(&out);
        let same = with_weights(&model, &dequantised);
        let floats = open(same.path());
        // Integers of dequantised rows are the stored integers, so `w8a8` has the same products.
        let (found, expected) = match format {
            QuantisedFormat::W8A8Dynamic => (DType::BF16.into(), Precision::w8a8(DType::BF16)),
            QuantisedFormat::W4A16 { .. } => (DType::F32.into(), DType::F32.into()),
        };
        assert_eq!(generated(&quantised, found), generated(&floats, expected), "{format}");
        let reference = Reference::without(model.config.vocab_size);
        let found = verify(&cann(3), &quantised, 3, DType::BF16, Residual::Seq, &reference).unwrap();
        assert!(found.passed(), "{format}: {found:#?}");
    }
}

/// The files have the names, types and descriptions of the fixtures.
#[test]
fn written_files_are_those_of_published_checkpoints() {
    let folder = TempDir::new().unwrap();
    for (name, format) in [
        ("modelslim-w8a8-dynamic", QuantisedFormat::W8A8Dynamic),
        ("modelslim-w8a8-dynamic-moe", QuantisedFormat::W8A8Dynamic),
        ("ct-w4a16-sym", QuantisedFormat::W4A16 { group: 32 }),
    ] {
        let published = fixture(&format!("quantised/{name}"));
        let float = as_bf16(&published);
        let out = folder.path().join(name);
        written(&open(float.path()), format, &out).unwrap();
        let kinds = |folder: &Path| -> BTreeMap<String, (Dtype, Vec<usize>)> {
            stored(folder).into_iter().map(|(name, tensor)| (name, (tensor.dtype, tensor.shape))).collect()
        };
        assert_eq!(kinds(&out), kinds(&published), "{name}");
        let files = |folder: &Path| -> Vec<String> {
            let mut names: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "expected.safetensors")
                .collect();
            names.sort_unstable();
            names
        };
        assert_eq!(files(&out), files(&published), "{name}");
        let mut documents = vec!["config.json"];
        if format == QuantisedFormat::W8A8Dynamic {
            documents.extend(["quant_model_description.json", "quant_model_weights.safetensors.index.json"]);
        }
        for file in documents {
            assert_eq!(json(&out, file), json(&published, file), "{name}: {file}");
        }
    }
}

/// Returns a float model in bf16 with the sizes of a quantised fixture, and random weights.
fn as_bf16(published: &Path) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::copy(published.join("generation_config.json"), folder.path().join("generation_config.json"))
        .unwrap();
    let mut config = json(published, "config.json");
    for key in ["quantization_config", "quantize"] {
        config.as_object_mut().unwrap().remove(key);
    }
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
    for (name, tensor) in stored(published) {
        let (layer, suffix) = name.rsplit_once('.').unwrap();
        match suffix {
            "weight_packed" => {
                tensors.push((format!("{layer}.weight"), vec![tensor.shape[0], tensor.shape[1] * 8]));
            }
            "weight" | "bias" => tensors.push((name, tensor.shape)),
            _ => {}
        }
    }
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(name, shape)| {
            let mut random = crate::common::random::Random::of(name);
            let elems = shape.iter().product::<usize>();
            (0..elems).flat_map(|_| bf16::from_f32(random.unit()).to_le_bytes()).collect()
        })
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    folder
}

#[test]
fn what_cannot_be_quantised_is_refused_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    let model = open(&path("models/kjv-qwen2"));
    let refused = |model: &Model, format: QuantisedFormat, out: &Path| {
        let error = written(model, format, out).unwrap_err();
        assert!(matches!(error, FolderError::Refused(_)), "{error}");
        error.to_string()
    };
    // 704 inputs have no whole groups of 128. A folder with a file is never replaced.
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("file"), "text").unwrap();
    let found = refused(&model, QuantisedFormat::W4A16 { group: 128 }, &taken);
    assert!(
        found.contains("taken: something is there already: expected a new or an empty folder"),
        "{found}"
    );
    for layer in 0..8 {
        let expected = format!(
            "model.layers.{layer}.mlp.down_proj.weight: the last group of inputs would be partial: \
             expected a multiple of 128 inputs, found 704"
        );
        assert!(found.contains(&expected), "{expected}: {found}");
    }
    assert_eq!(std::fs::read_to_string(taken.join("file")).unwrap(), "text");
    let quantised = open(&fixture("quantised/ct-w4a16-sym"));
    let out = folder.path().join("out");
    let found = refused(&quantised, QuantisedFormat::W8A8Dynamic, &out);
    assert!(found.contains("config.json: the weights are quantised already"), "{found}");
    let interleaved = open(&fixture("gpt-oss"));
    let found = refused(&interleaved, QuantisedFormat::W4A16 { group: 32 }, &out);
    assert!(found.contains("model.layers.0.mlp.experts.gate_up_proj: "), "{found}");
    assert!(!out.exists() && std::fs::read_dir(folder.path()).unwrap().count() == 1);
}
