//! Tests of broken files and impossible requests: exit code 2, and messages with place, expected
//! value and found value. Independent problems are reported together.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{command, fixture, root};

/// One file, tied embeddings.
const SINGLE: &str = "qwen2-tied-uneven";
/// Five files and an index.
const INDEXED: &str = "qwen2-gqa";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A copy of a fixture to break.
struct Broken(TempDir);

impl Broken {
    fn copy(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixture(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::write(folder.path().join(entry.file_name()), std::fs::read(entry.path()).unwrap())
                .unwrap();
        }
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn remove(&self, name: &str) -> &Self {
        std::fs::remove_file(self.file(name)).unwrap();
        self
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.file(name), bytes).unwrap();
        self
    }

    fn bytes(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> &Self {
        let mut bytes = std::fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        self.write(name, bytes)
    }

    fn json(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> &Self {
        let mut value: Value = serde_json::from_slice(&std::fs::read(self.file(name)).unwrap()).unwrap();
        change(value.as_object_mut().unwrap());
        self.write(name, value.to_string())
    }

    /// Changes the header of a safetensors file.
    fn header(&self, name: &str, change: impl FnOnce(&mut Map<String, Value>)) -> &Self {
        self.bytes(name, |bytes| {
            let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
            let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
            change(header.as_object_mut().unwrap());
            let header = header.to_string();
            let data = bytes.split_off(8 + length);
            bytes.clear();
            bytes.extend((header.len() as u64).to_le_bytes());
            bytes.extend(header.as_bytes());
            bytes.extend(data);
        })
    }

    /// Returns the message of `verify`.
    fn refused(&self) -> String {
        self.refused_with(&[])
    }

    fn refused_with(&self, more: &[&str]) -> String {
        let model = self.0.path().as_os_str();
        let first: [&OsStr; 3] = ["verify".as_ref(), "--model".as_ref(), model];
        let cards = if more.contains(&"--cards") { &[][..] } else { &["--cards", "2"] };
        refused(first.into_iter().chain(cards.iter().chain(more).map(AsRef::as_ref)))
    }
}

/// Returns stderr after exit code 2 without stdout or panic.
fn refused<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let message = crate::refused(&command().args(arguments).args(["--device", "emulator"]).output().unwrap());
    for line in message.lines() {
        assert!(line.starts_with("error: "), "every line is a problem: {message}");
    }
    message
}

/// Checks that the lines occur, with parts separated by `…`.
fn says(message: &str, lines: &[&str]) {
    for line in lines {
        let parts: Vec<&str> = line.split('…').collect();
        let fits = |found: &str| parts.iter().all(|part| found.contains(part));
        assert!(message.lines().any(fits), "no line has {parts:?}:\n{message}");
    }
    assert_eq!(message.lines().count(), lines.len(), "one line a problem:\n{message}");
}

#[test]
fn truncated_files() {
    let model = Broken::copy(SINGLE);
    model.bytes(WEIGHTS, |bytes| bytes.truncate(bytes.len() - 1000));
    let message = model.refused();
    assert!(
        message.contains("model.safetensors") && message.contains("expected") && message.contains("found"),
        "{message}"
    );

    let model = Broken::copy(SINGLE);
    model.bytes(WEIGHTS, |bytes| bytes.truncate(5));
    says(&model.refused(), &["model.safetensors: truncated…expected…found 5"]);

    let model = Broken::copy(SINGLE);
    model.bytes(WEIGHTS, |bytes| bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes()));
    says(&model.refused(), &["model.safetensors:…header"]);

    let model = Broken::copy(SINGLE);
    model.bytes(WEIGHTS, |bytes| bytes[9] = b'x');
    says(&model.refused(), &["model.safetensors: the header is not a JSON object"]);

    let model = Broken::copy(SINGLE);
    model.write(WEIGHTS, "");
    says(&model.refused(), &["model.safetensors: truncated"]);
}

#[test]
fn weights_that_are_no_numbers() {
    for (value, name) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let model = Broken::copy(SINGLE);
        let mut start = 0;
        model.header(WEIGHTS, |header| {
            let offsets = &header["model.layers.1.mlp.up_proj.weight"]["data_offsets"];
            start = usize::try_from(offsets[0].as_u64().unwrap()).unwrap();
        });
        model.bytes(WEIGHTS, |bytes| {
            let data = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
            bytes[data + start + 20..][..4].copy_from_slice(&value.to_le_bytes());
        });
        for dtype in ["f32", "bf16", "w8a8"] {
            let expected =
                format!("model.layers.1.mlp.up_proj.weight: element 5 is {name}: expected finite numbers");
            let message = model.refused_with(&["--dtype", dtype]);
            assert!(message.contains(&expected), "{dtype}: {message}");
        }
    }
}

#[test]
fn machines_that_cannot_be() {
    for (variable, text, expected) in [
        ("ASCEND_EMULATOR", "cards=0", "an emulator has 1 to 1024 cards, found 0"),
        ("ASCEND_EMULATOR", "hbm=0GiB", "a card without memory"),
        ("ASCEND_EMULATOR", "threads=0", "at least one thread"),
        ("ASCEND_EMULATOR", "threads=100000", "at most 1024 threads"),
        ("ASCEND_EMULATOR", "timed", "cards that compute nothing"),
        ("ASCEND_EMULATOR_ISA", "avx1024", "avx1024"),
        ("ASCEND_EMULATOR_TRANSPORT", "udp", "expected auto or tcp"),
        ("HCCL_BUFFSIZE", "-1", "HCCL_BUFFSIZE is \"-1\": expected"),
        ("HCCL_CONNECT_TIMEOUT", "abc", "HCCL_CONNECT_TIMEOUT is \"abc\": expected"),
    ] {
        let mut command = command();
        command.args(["generate", "--device", "emulator", "--cards", "1"]).env(variable, text);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{variable}={text}: {message}");
        assert!(message.contains(expected) && !message.contains("panicked"), "{variable}={text}: {message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn lying_offsets() {
    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        header["model.norm.weight"]["data_offsets"] = json!([0, u64::MAX]);
        header["model.embed_tokens.weight"]["data_offsets"] = json!([10, 4]);
    });
    says(
        &model.refused(),
        &["model.safetensors: model.norm.weight", "model.safetensors: model.embed_tokens.weight"],
    );

    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        let offsets = header["model.layers.0.input_layernorm.weight"]["data_offsets"].clone();
        header["model.layers.1.input_layernorm.weight"]["data_offsets"] = offsets;
    });
    let message = model.refused();
    assert!(
        message.contains("model.safetensors: model.layers.")
            && message.contains("shares bytes with model.layers."),
        "{message}"
    );
}

#[test]
fn wrong_shapes_and_element_types() {
    // More elements than bytes.
    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        header["model.norm.weight"]["shape"] = json!([1000]);
        header["model.layers.0.input_layernorm.weight"]["dtype"] = json!("F64");
        header["model.layers.1.input_layernorm.weight"]["shape"] = json!([-3]);
    });
    says(
        &model.refused(),
        &[
            "model.safetensors: model.norm.weight…expected…found",
            "model.safetensors: model.layers.0.input_layernorm.weight…expected…found",
            "model.safetensors: model.layers.1.input_layernorm.weight",
        ],
    );

    // The header of another model.
    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        header["model.layers.0.mlp.down_proj.weight"]["shape"].as_array_mut().unwrap().reverse();
    });
    let message = model.refused();
    says(
        &message,
        &["model.safetensors: model.layers.0.mlp.down_proj.weight: wrong shape: expected […], found ["],
    );

    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        header["model.norm.weight"]["dtype"] = json!("I16");
        header["model.layers.0.input_layernorm.weight"]["dtype"] = json!("BF61");
    });
    let message = model.refused();
    assert!(message.contains("model.safetensors: model.layers.0.input_layernorm.weight"), "{message}");
}

#[test]
fn missing_and_extra_tensors_come_together() {
    let model = Broken::copy(SINGLE);
    model.header(WEIGHTS, |header| {
        for name in ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"] {
            let entry = header.remove(name).unwrap();
            header.insert(format!("{name}.old"), entry);
        }
    });
    let message = model.refused();
    says(
        &message,
        &[
            ": model.norm.weight: missing tensor: expected [",
            ": model.layers.1.mlp.up_proj.weight: missing tensor: expected [",
            "model.safetensors: model.norm.weight.old: unexpected tensor",
            "model.safetensors: model.layers.1.mlp.up_proj.weight.old: unexpected tensor",
        ],
    );
}

#[test]
fn missing_shards_and_wrong_indexes() {
    let model = Broken::copy(INDEXED);
    model.remove("model-00002-of-00005.safetensors").remove("model-00004-of-00005.safetensors");
    let message = model.refused();
    for file in ["model-00002-of-00005.safetensors", "model-00004-of-00005.safetensors"] {
        assert!(message.contains(file), "{message}");
    }

    let model = Broken::copy(INDEXED);
    model.json(INDEX, |index| {
        index["weight_map"]["lm_head.weight"] = json!("model-00009-of-00005.safetensors");
        index["weight_map"]["model.unheard_of"] = json!("model-00001-of-00005.safetensors");
    });
    let message = model.refused();
    assert!(message.contains("model-00009-of-00005.safetensors"), "{message}");
    assert!(message.contains(INDEX), "{message}");

    let model = Broken::copy(INDEXED);
    model.json(INDEX, |index| {
        index["weight_map"]["lm_head.weight"] = json!("../outside.safetensors");
    });
    assert!(model.refused().contains("../outside.safetensors"));

    let model = Broken::copy(INDEXED);
    model.write(INDEX, "{\"weight_map\": [");
    assert!(model.refused().contains(INDEX));

    let model = Broken::copy(INDEXED);
    model.remove(INDEX);
    let message = model.refused();
    assert!(message.contains(INDEX) && message.contains("model.safetensors"), "{message}");
}

#[test]
fn configurations_with_holes_and_contradictions() {
    let model = Broken::copy(SINGLE);
    model.json("config.json", |config| {
        config.remove("vocab_size");
        config.remove("rms_norm_eps");
        config.insert("hidden_size".to_owned(), json!("wide"));
        config.insert("model_type".to_owned(), json!("llama"));
    });
    says(
        &model.refused(),
        &[
            "config.json: vocab_size",
            "config.json: rms_norm_eps",
            "config.json: hidden_size…\"wide\"",
            "config.json: model_type: contradicts the architecture Qwen2ForCausalLM: expected `qwen2`, found `llama`",
        ],
    );

    let model = Broken::copy(INDEXED);
    model.json("config.json", |config| drop(config.insert("num_key_value_heads".to_owned(), json!(3))));
    says(
        &model.refused(),
        &[
            "config.json: num_key_value_heads: does not divide num_attention_heads: expected a divisor of 8, found 3",
        ],
    );

    let model = Broken::copy(INDEXED);
    model.json("config.json", |config| {
        drop(config.insert("architectures".to_owned(), json!(["MambaForCausalLM"])));
    });
    says(
        &model.refused(),
        &[
            "config.json: architectures: unknown architecture: expected one of QWenLMHeadModel, …, found `MambaForCausalLM`",
        ],
    );

    let model = Broken::copy(INDEXED);
    model.json("config.json", |config| {
        config.insert("quantization_config".to_owned(), json!({"bits": 4}));
        config.insert("final_logit_softcapping".to_owned(), json!(30.0));
    });
    says(
        &model.refused(),
        &[
            "config.json: quantization_config.quant_method: unknown method of quantised weights",
            "config.json: final_logit_softcapping: capped logits are not supported",
        ],
    );

    let model = Broken::copy(INDEXED);
    model.write("config.json", "{\"vocab_size\": ");
    says(&model.refused(), &["config.json: not valid JSON"]);

    let model = Broken::copy(INDEXED);
    model.remove("config.json");
    says(&model.refused(), &["config.json: cannot be read"]);

    let model = Broken::copy(INDEXED);
    model.write("generation_config.json", "{\"eos_token_id\": [5, 100000]}");
    says(
        &model.refused(),
        &["generation_config.json: eos_token_id: id out of the vocabulary: expected below…found 100000"],
    );
}

#[test]
fn damaged_quantised_weights_are_refused_with_all_problems() {
    let model = Broken::copy("quantised/modelslim-w8a8-dynamic");
    let rename = |entries: &mut Map<String, Value>, from: &str, to: &str| {
        let value = entries.remove(from).unwrap();
        entries.insert(to.to_owned(), value);
    };
    model.json("quant_model_description.json", |schemes| {
        schemes["model.layers.0.mlp.gate_proj.weight"] = json!("W4A8_DYNAMIC");
        rename(schemes, "model.norm.weight", "model.form.weight");
    });
    let scale = "model.layers.1.mlp.up_proj.weight_scale";
    model.header("quant_model_weights-00001-of-00001.safetensors", |tensors| {
        tensors.remove("__metadata__");
        rename(tensors, scale, "model.layers.1.mlp.up_proj.weight_slack");
        tensors["model.layers.0.self_attn.q_proj.weight"]["shape"] = json!([48, 192]);
    });
    model.json("quant_model_weights.safetensors.index.json", |index| {
        let map = index["weight_map"].as_object_mut().unwrap();
        rename(map, scale, "model.layers.1.mlp.up_proj.weight_slack");
    });
    says(
        &model.refused(),
        &[
            "quant_model_description.json: model.layers.0.mlp.gate_proj.weight: unknown scheme: expected FLOAT, W8A8 or \
             W8A8_DYNAMIC, found \"W4A8_DYNAMIC\"",
            "model.layers.1.mlp.up_proj.weight_scale: missing tensor: expected [128]",
            "model.layers.1.mlp.up_proj.weight_slack: unexpected tensor",
            "model.layers.0.self_attn.q_proj.weight: wrong shape: expected [96,96], found [48,192]",
            "quant_model_description.json: model.form.weight: describes a tensor that does not exist",
            "quant_model_description.json: model.layers.1.mlp.up_proj.weight_scale: describes a tensor that does not exist",
        ],
    );
    let model = Broken::copy("quantised/modelslim-w8a8-dynamic");
    model.write("quant_model_description.json", "{\"version\": \"1.0.0\"}");
    says(
        &model.refused(),
        &["quant_model_description.json: names no tensor: expected an entry for each tensor"],
    );
}

#[test]
fn a_configuration_of_another_model_names_every_tensor_that_differs() {
    let model = Broken::copy(INDEXED);
    model.json("config.json", |config| drop(config.insert("intermediate_size".to_owned(), json!(128))));
    let message = model.refused();
    // gate, up and down of two layers.
    assert_eq!(message.lines().count(), 6, "{message}");
    assert!(
        message.contains("model.layers.1.mlp.up_proj.weight: wrong shape: expected [128,64], found [176,64]"),
        "{message}"
    );
}

#[test]
fn problems_of_the_configuration_and_of_the_weights_come_together() {
    let model = Broken::copy(SINGLE);
    model.json("config.json", |config| drop(config.remove("hidden_size")));
    model.bytes(WEIGHTS, |bytes| bytes.truncate(5));
    says(
        &model.refused_with(&["--cards", "9"]),
        &[
            "--cards: not enough cards: expected 1 to 8…found 9",
            "config.json: hidden_size",
            "model.safetensors: truncated",
        ],
    );
}

#[test]
fn folders_that_are_none() {
    let message = refused(["verify", "--model", "no/such/folder", "--cards", "2"]);
    assert!(message.contains("no/such/folder"), "{message}");
    let message = refused(["generate", "--model", "Cargo.toml"]);
    assert!(message.contains("Cargo.toml"), "{message}");
    let message = refused(["verify", "--model", "src", "--cards", "2"]);
    assert!(message.contains("config.json") && message.contains("model.safetensors"), "{message}");
}

#[test]
fn more_cards_than_exist() {
    for command in ["generate", "verify"] {
        let model = "models/kjv-qwen2";
        says(
            &refused([command, "--model", model, "--cards", "9"]),
            &["--cards: not enough cards: expected 1 to 8, of 8 emulated Ascend910B3 cards, found 9"],
        );
    }
}

#[test]
fn prompts_that_cannot_be_continued() {
    let long = "And he said unto them, ".repeat(400);
    let message = refused(["generate", "--prompt", "", "--prompt", &long, "--prompt", "In the beginning"]);
    says(
        &message,
        &[
            "--prompt 1: empty: expected a text of at least one token, found none",
            "--prompt 2: leaves no space in the model's context: expected fewer than 1024 tokens, found",
        ],
    );
    let message = refused(["generate", "--max-new-tokens", "1022", "--top-k", "0", "--top-p", "2"]);
    says(
        &message,
        &[
            "sampling: top_k: keeps no token",
            "sampling: top_p: out of range",
            "--prompt 1: does not fit the model's context…found 3 and --max-new-tokens 1022; …use --max-new-tokens 1021",
        ],
    );
}

#[test]
fn tokenizers_that_do_not_match() {
    let model = Broken::copy(SINGLE);
    let generate =
        |model: &Broken| refused([OsStr::new("generate"), "--model".as_ref(), model.0.path().as_os_str()]);
    says(&generate(&model), &["no tokenizer in this folder: expected tokenizer.json or qwen.tiktoken"]);
    // The shipped tokenizer has 4096 ids, more than this model. Only text with such an id is
    // refused.
    let shipped = std::fs::read(root().join("models/kjv-qwen2/tokenizer.json")).unwrap();
    model.write("tokenizer.json", shipped);
    let beyond = "--prompt 1: tokenizer.json: the text has a token outside the model's vocabulary: expected ids below vocab_size…found `In`";
    says(&generate(&model), &[beyond]);
    model.remove(WEIGHTS);
    let message = generate(&model);
    assert!(
        message.contains("a token outside the model's vocabulary") && message.contains(WEIGHTS),
        "{message}"
    );
    model.write("tokenizer.json", "[]");
    assert!(generate(&model).contains("tokenizer.json: not a tokenizer"));
}

#[derive(Clone)]
struct Stored {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn ids(name: &str, shape: &[usize], ids: &[i64]) -> Stored {
    Stored {
        name: name.to_owned(),
        dtype: Dtype::I64,
        shape: shape.to_vec(),
        bytes: ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
    }
}

fn view(stored: &Stored) -> (&str, TensorView<'_>) {
    (&stored.name, TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes).unwrap())
}

#[test]
fn references_that_do_not_fit() {
    let model = Broken::copy(INDEXED);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reference.safetensors");
    let with = |tensors: &[Stored]| {
        safetensors::serialize_to_file(tensors.iter().map(view), None, &path).unwrap();
        model.refused_with(&["--reference", path.to_str().unwrap()])
    };
    let message = with(&[ids("input_ids", &[1, 3], &[1, 259, 2])]);
    assert!(message.contains("input_ids: has an id outside the vocabulary: expected 0 to 258"), "{message}");
    let message = with(&[ids("input_ids", &[1, 3], &[1, -1, 2])]);
    assert!(message.contains("input_ids: has an id outside the vocabulary"), "{message}");
    let message = with(&[ids("input_ids", &[3], &[1, 2, 3])]);
    assert!(message.contains("input_ids") && message.contains("[batch, sequence]"), "{message}");
    let greedy = [ids("greedy_prompt", &[1, 2], &[1, 2]), ids("greedy_ids", &[1, 1], &[3])];
    let message = with(&[ids("input_ids", &[1, 600], &[1; 600]), greedy[0].clone(), greedy[1].clone()]);
    assert!(message.contains("input_ids") && message.contains("512"), "{message}");
    let message = with(&[ids("inputs", &[1, 3], &[1, 2, 3])]);
    assert!(message.contains("input_ids"), "{message}");

    let input = ids("input_ids", &[1, 1], &[1]);
    let message = with(std::slice::from_ref(&input));
    assert!(
        message.contains("nothing to compare with: expected logits, or greedy_prompt and greedy_ids"),
        "{message}"
    );
    let message = with(&[input.clone(), greedy[0].clone()]);
    assert!(message.contains("greedy_ids: missing: both are needed"), "{message}");
    let message = with(&[input.clone(), ids("greedy_prompt", &[2, 1], &[1, 2]), greedy[1].clone()]);
    assert!(
        message.contains("greedy_prompt: is not one sequence of tokens: expected [1, tokens]"),
        "{message}"
    );
    let logits = |dtype, bytes: &[u8]| Stored {
        name: "logits".to_owned(),
        dtype,
        shape: vec![1, 1, 259],
        bytes: bytes.repeat(259),
    };
    let message = with(&[input.clone(), logits(Dtype::F16, &[0; 2])]);
    assert!(
        message.contains("logits: were rounded: expected f32, found f16; compute the reference in f32"),
        "{message}"
    );
    let message = with(&[input, logits(Dtype::F32, &f32::INFINITY.to_le_bytes())]);
    assert!(message.contains("logits: element 0 is inf: expected finite numbers"), "{message}");
    let message = model.refused_with(&["--reference", "no/such/file.safetensors"]);
    assert!(message.contains("file.safetensors"), "{message}");
}

#[test]
fn one_wrong_number_is_not_told_tensor_by_tensor() {
    let model = Broken::copy(SINGLE);
    model.json("config.json", |config| {
        config.insert("num_hidden_layers".to_owned(), json!(80));
        config.remove("layer_types");
    });
    let generate =
        |model: &Broken| refused([OsStr::new("generate"), "--model".as_ref(), model.0.path().as_os_str()]);
    for message in [model.refused(), generate(&model)] {
        let missing: Vec<&str> = message.lines().filter(|line| line.contains("missing tensor")).collect();
        assert_eq!(missing.len(), 11, "{message}");
        // Two layers of twelve tensors.
        assert!(
            missing[10].starts_with("error: missing tensor: 926 more of these, the last at "),
            "{}",
            missing[10]
        );
        assert!(missing[10].contains("model.layers."), "{}", missing[10]);
    }
}

#[test]
fn only_regular_files_are_read() {
    for (fixture, name) in
        [(SINGLE, "config.json"), (SINGLE, "generation_config.json"), (SINGLE, WEIGHTS), (INDEXED, INDEX)]
    {
        let model = Broken::copy(fixture);
        model.remove(name);
        let path = model.file(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let message = model.refused();
        let expected = "cannot be read: found a FIFO, where a regular file is expected";
        assert!(message.contains(name) && message.contains(expected), "{message}");
        model.remove(name);
        std::fs::create_dir(&path).unwrap();
        let message = model.refused();
        let expected = "cannot be read: found a folder, where a regular file is expected";
        assert!(message.contains(name) && message.contains(expected), "{message}");
    }
    let model = Broken::copy(SINGLE);
    for name in ["tokenizer.json", "qwen.tiktoken"] {
        let path = model.file(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let message = refused([OsStr::new("generate"), "--model".as_ref(), model.0.path().as_os_str()]);
        assert!(message.contains(&format!("{name}: cannot be read: found a FIFO")), "{message}");
        model.remove(name);
    }
    // A file of an index, and a reference.
    let model = Broken::copy(INDEXED);
    model.remove("model-00002-of-00005.safetensors");
    let part = model.file("model-00002-of-00005.safetensors");
    assert!(Command::new("mkfifo").arg(&part).status().unwrap().success());
    assert!(model.refused().contains("model-00002-of-00005.safetensors: cannot be read: found a FIFO"));
    let message = Broken::copy(INDEXED).refused_with(&["--reference", part.to_str().unwrap()]);
    assert!(message.contains("model-00002-of-00005.safetensors: cannot be read: found a FIFO"), "{message}");
}
