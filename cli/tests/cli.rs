//! Tests of the command line: help, options, output and exit codes. `bad_input.rs` tests problems
//! of files and prompts.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json as value};

use crate::{command, fixture, json, root, run, stderr, stdout, succeeds, words};

/// Placeholder in [`OPTIONS`] for [`OF_A_STEP`].
const STEP: &str = "(of a step)";

/// Options of commands about a training step.
const OF_A_STEP: [&str; 20] = [
    "recipe",
    "steps",
    "global-batch",
    "seq",
    "exact",
    "micro-batch",
    "recompute",
    "optimizer",
    "lr",
    "schedule",
    "warmup-steps",
    "min-lr",
    "weight-decay",
    "betas",
    "eps",
    "momentum",
    "clip-norm",
    "aux-loss",
    "z-loss",
    "router-bias-rate",
];

/// Placeholder in [`OPTIONS`] for [`OF_A_MESH`].
const MESH: &str = "(of a mesh)";

/// Options of a training step that end the group Parallelism.
const OF_A_MESH: [&str; 6] = ["mesh", "zero", "ring", "pipeline", "compress", "compress-after"];

/// Every option of every command. Removing or renaming an option breaks scripts.
const OPTIONS: [(&str, &[&str]); 13] = [
    (
        "generate",
        &[
            "wide",
            "help",
            "model",
            "adapter",
            "dtype",
            "fp8-as",
            "kv-dtype",
            "prompt",
            "prompt-file",
            "chat",
            "system",
            "chat-template",
            "tools",
            "no-thinking",
            "template-arg",
            "cards",
            "mesh",
            "residual",
            "experts",
            "exact",
            "max-new-tokens",
            "stop",
            "min-tokens",
            "ignore-eos",
            "temperature",
            "top-k",
            "top-p",
            "min-p",
            "repetition-penalty",
            "presence-penalty",
            "frequency-penalty",
            "logit-bias",
            "seed",
            "generation-config",
            "samples",
            "speculate",
            "device",
            "bind",
            "emulated-cards",
            "captured",
            "json",
            "stream",
            "logprobs",
        ],
    ),
    (
        "verify",
        &[
            "wide",
            "help",
            "model",
            "reference",
            "dtype",
            "fp8-as",
            "kv-dtype",
            "lora",
            "cards",
            "residual",
            "experts",
            MESH,
            "device",
            "json",
            "train",
            STEP,
        ],
    ),
    (
        "explain",
        &[
            "wide", "help", "model", "dtype", "kv-dtype", "lora", "cards", "residual", "experts", MESH,
            "batch", "sequence", "context", "dump", "json", "train", STEP, "card", "profile", "topology",
        ],
    ),
    (
        "rehearse",
        &[
            "wide",
            "help",
            "model",
            "dtype",
            "kv-dtype",
            "lora",
            "cards",
            "residual",
            "experts",
            MESH,
            "card",
            "profile",
            "topology",
            "servers",
            "batch",
            "input",
            "output",
            "eager",
            "captured",
            "trace",
            "html",
            "json",
            "serve",
            "rate",
            "requests",
            "requests-from",
            "max-num-seqs",
            "kv-cache-blocks",
            "train",
            STEP,
        ],
    ),
    (
        "train",
        &[
            "wide",
            "help",
            "model",
            "init-seed",
            "dtype",
            "lora",
            "data",
            "tokenizer",
            "separator",
            "skip-bad-lines",
            "data-seed",
            "chat-template",
            "tools",
            "no-thinking",
            "template-arg",
            STEP,
            "cards",
            "mesh",
            "zero",
            "ring",
            "residual",
            "experts",
            "pipeline",
            "compress",
            "compress-after",
            "processes",
            "max-restarts",
            "look-every",
            "save",
            "save-every",
            "keep",
            "resume",
            "skip-damaged",
            "metrics",
            "tensorboard",
            "trace",
            "sample",
            "digest",
            "device",
            "bind",
        ],
    ),
    (
        "data prepare",
        &[
            "tokenizer",
            "out",
            "separator",
            "skip-bad-lines",
            "json",
            "wide",
            "help",
            "chat-template",
            "tools",
            "no-thinking",
            "template-arg",
        ],
    ),
    ("data inspect", &["tokenizer", "documents", "json", "wide", "help"]),
    ("data tokenizer", &["vocab-size", "skip-bad-lines", "out", "json", "wide", "help"]),
    ("bench", &["quick", "wide", "help", "json", "plot", "report", "device", "bind"]),
    ("doctor", &["emulator", "rank-table", "no-smoke", "json", "wide", "help"]),
    ("env", &["libraries", "wide", "help"]),
    ("calibrate", &["device", "cards", "topology", "out", "wide", "help"]),
    (
        "plan",
        &[
            "model",
            "cards",
            "serve",
            "train",
            "dtype",
            "kv-dtype",
            "why",
            "top",
            "json",
            "wide",
            "help",
            "batch",
            "input",
            "output",
            "objective",
            "max-tpot-ms",
            "max-ttft-ms",
            "seq",
            "global-batch",
            "tokens",
            "card",
            "profile",
            "topology",
        ],
    ),
];

#[test]
fn the_help_says_what_there_is() {
    let help = succeeds(&words("--help"));
    for text in [
        "generate",
        "verify",
        "explain",
        "Examples:",
        "Exit codes:",
        "  2    the arguments or the files are wrong",
    ] {
        assert!(help.contains(text), "{text}: {help}");
    }
    for (command, _) in OPTIONS {
        let help = succeeds(&words(&format!("{command} --help")));
        assert!(help.contains("Examples:\n  ascend-tp ") && help.contains("Usage: ascend-tp "), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    assert!(succeeds(&words("--version")).starts_with("ascend-tp "));
}

#[test]
fn the_options_are_these() {
    for (command, expected) in OPTIONS {
        let help = succeeds(&words(&format!("{command} --help")));
        let found: Vec<&str> = help
            .lines()
            // Examples may contain options.
            .take_while(|line| *line != "Examples:")
            .map(str::trim_start)
            .filter_map(|line| line.strip_prefix("-h, ").unwrap_or(line).strip_prefix("--"))
            .filter_map(|line| line.split([' ', '\n']).next())
            .collect();
        let expand = |option: &&'static str| match *option {
            STEP => OF_A_STEP.to_vec(),
            MESH => OF_A_MESH.to_vec(),
            option => vec![option],
        };
        assert_eq!(found, expected.iter().flat_map(expand).collect::<Vec<_>>(), "{command}");
    }
}

#[test]
fn the_program_tells_shells_and_readers_of_itself() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeeds(&words(&format!("completions {shell}"))).contains("max-new-tokens"), "{shell}");
    }
    assert!(succeeds(&words("man")).contains("rehearse"));
    assert!(succeeds(&words("man generate")).contains("repetition"));
    let output = words("man walk");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("man: there is no such command: expected generate, serve, verify"),
        "{}",
        stderr(&output)
    );
    let models = json(&words("models --json"));
    let names: Vec<&str> =
        models.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    for name in ["qwen-72b", "llama-3-70b", "deepseek-v3", "qwen3-next-80b-a3b"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "And God said\n").unwrap();
    let path = file.path().to_str().unwrap();
    let common = ["generate", "--device", "emulator", "--cards", "1", "--max-new-tokens", "4", "--quiet"];
    let text = |more: &[&str]| succeeds(&run(common.iter().chain(more)));
    let expected = text(&["--prompt", "And God said"]);
    assert!(expected.starts_with("And God said,") && expected.ends_with('\n'), "{expected:?}");
    assert_eq!(text(&["--prompt-file", path]), expected);
    let mut child = command();
    let child = child.args(common).args(["--prompt-file", "-"]).stdin(std::fs::File::open(path).unwrap());
    let output = child.output().unwrap();
    assert_eq!((succeeds(&output), stderr(&output)), (expected.clone(), String::new()));
    let output = run(common.iter().chain(&["--prompt-file", "/nowhere"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--prompt-file /nowhere: cannot be read"), "{}", stderr(&output));
    assert!(text(&["--prompt", "- and"]).starts_with("- and"));
    // The chat template of the shipped model is the text of the message. The prompt is not shown.
    let chat = text(&["--chat", "--prompt", "And God said"]);
    assert_eq!(Some(chat.as_str()), expected.strip_prefix("And God said"));
}

#[test]
fn a_stream_has_a_line_for_each_token() {
    let line = "generate --device emulator --cards 2 --emulated-cards 3 --max-new-tokens 5 --json --stream --logprobs 2";
    let output = succeeds(&words(line));
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7, "{output}");
    for line in &lines[..5] {
        assert_eq!(line["log_probabilities"]["likeliest"][0][0], line["id"], "{line}");
    }
    assert_eq!(
        (&lines[5]["finish"]["reason"], &lines[6]["summary"]["decode_tokens"]),
        (&"length".into(), &4.into())
    );
    let whole = json(&words(&line.replace(" --stream", "")));
    let text: String = lines[..6].iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(whole["sequences"][0]["text"], format!("In the beginning{text}"));
    assert!(whole["device"].as_str().unwrap().starts_with("3 emulated"));
    let stopped = json(&words("generate --device emulator --cards 1 --max-new-tokens 9 --json --stop e"));
    let sequence = &stopped["sequences"][0];
    assert_eq!(sequence["finish"]["reason"], "stop_text");
    assert!(!sequence["text"].as_str().unwrap()["In the beginning".len()..].contains('e'), "{sequence}");
}

#[test]
fn logits_of_one_order_of_sums_do_not_depend_on_cards_or_batch() {
    let one =
        "generate --device emulator --exact --dtype f32 --max-new-tokens 3 --json --logprobs 2 --prompt The";
    let found =
        |more: &str| json(&words(&format!("{one} {more}")))["sequences"][0]["log_probabilities"].clone();
    let expected = found("--cards 1");
    assert_eq!(expected.as_array().map(Vec::len), Some(3), "{expected}");
    assert_eq!(found("--cards 8 --prompt And --prompt Of"), expected);
    assert_eq!(found("--cards 4 --mesh pp=2,tp=2"), expected);
    // A mesh determines the number of cards.
    assert_eq!(found("--mesh pp=2,tp=2"), expected);
}

#[test]
fn usage_errors_are_code_2_and_nothing_on_stdout() {
    for (line, expected) in [
        ("", "Usage: ascend-tp"),
        ("walk", "unrecognized subcommand 'walk'"),
        ("generate --seed -1", "error: --seed: not a whole number: expected 0 or more, found -1"),
        ("generate --card 8", "unexpected argument '--card'"),
        ("generate --cards 0", "for '--cards <N>': expected a whole number of at least 1, found 0"),
        ("generate --cards eight", "found eight"),
        ("generate --dtype i32", "[possible values: f32, f16, bf16, w8a8]"),
        ("generate --residual shard", "[possible values: replicate, seq]"),
        ("generate --device gpu", "[possible values: auto, emulator, npu]"),
        ("verify --cards 2", "--model <DIR>"),
        ("explain --model qwen-72b", "--cards <N>"),
        ("explain --model qwen-72b --cards 1000000", "expected 1 to 256 cards, found 1000000"),
        ("explain --model qwen-7b --cards 2", "--model: neither a folder nor a preset: expected"),
        ("explain --model qwen-72b --cards 2 --context 40000", "--context: longer than the model's context"),
        (
            "explain --model qwen-72b --cards 2 --context 8 --sequence 9",
            "--sequence: longer than the KV cache",
        ),
        ("explain --model qwen-72b --cards 2 --zero 1", "are given without --train; add --train"),
        ("explain --train --model qwen-72b --cards 2 --sequence 9", "cannot be used with"),
        (
            "explain --train --model qwen-72b --cards 2 --dtype w8a8 --mesh dp=3",
            "--dtype: training does not support 8 bits",
        ),
        ("verify --model models/kjv-qwen2 --cards 2 --mesh dp=2", "are given without --train; add --train"),
        ("verify --train --model models/kjv-qwen2 --cards 2 --mesh dp=3", "--mesh: does not match the cards"),
        ("verify --model models/kjv-qwen2 --cards 3 --exact", "--exact: tp does not divide the 16 blocks"),
        (
            "verify --model models/kjv-qwen2 --cards 2 --exact --dtype w8a8",
            "--exact: quantised products are rounded on each card",
        ),
        (
            "verify --model models/kjv-qwen2 --cards 2 --exact --zero 1",
            "are given without --train; add --train",
        ),
        ("explain --model qwen-72b --cards 2 --exact", "are given without --train; add --train"),
    ] {
        let output = words(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{line}");
    }
}

/// Invalid sizes are refused before compilation and allocation.
#[test]
fn absurd_sizes_are_refused_before_any_work() {
    let train =
        "train --model models/kjv-qwen2 --data models/tiny-qwen2/text.txt --device emulator --cards 2";
    let out = std::env::temp_dir().join("absurd-tokenizer").display().to_string();
    for (line, expected) in [
        (
            "rehearse qwen-72b --cards 8 --batch 100000",
            "does not fit the cards' memory: expected at most 60.9 GiB per card",
        ),
        (
            "rehearse qwen-72b --cards 256 --batch 100000",
            "found at least 6.3 TiB for keys, values and one activation",
        ),
        ("rehearse qwen-72b --cards 8 --batch 18446744073709551615", "--batch: is too large"),
        (
            "rehearse qwen-72b --cards 8 --serve --requests 18446744073709551615",
            "--requests: is out of range",
        ),
        (
            "rehearse qwen-72b --cards 8 --serve --max-num-seqs 1000000000000",
            "--max-num-seqs: is out of range",
        ),
        ("rehearse qwen2.5-0.5b --cards 2 --batch 1000000", "does not fit the cards' memory"),
        (
            "rehearse --train qwen2.5-0.5b --cards 8 --mesh dp=8 --micro-batch 1 --global-batch 1000000",
            "--micro-batch: more micro-batches in a step than a rehearsal supports",
        ),
        (
            "plan qwen-72b --cards 64 --train --seq 4096 --global-batch 1000000000000",
            "--global-batch: is too large",
        ),
        (
            &format!("{train} --global-batch 1000000000000"),
            "recipe: global_batch and seq: cannot be: expected at most",
        ),
        (
            "explain --train qwen2.5-0.5b --cards 8 --mesh pp=2,dp=4 --seq 8 --global-batch 1000000 --micro-batch 1",
            "more micro-batches than a stage supports",
        ),
        (
            &format!("data tokenizer models/tiny-qwen2/text.txt --vocab-size 1000000000000 --out {out}"),
            "vocabulary size: more tokens than any model",
        ),
        (
            "bench collectives --processes 1000000",
            "'--processes <N>': expected 1 to 1024 processes, found 1000000",
        ),
        ("bench host --cards 1000000", "expected 1 to 256 cards, found 1000000"),
        ("bench ops --cards 1000000", "expected 1 to 256 cards, found 1000000"),
    ] {
        let output = words(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
    }
}

/// The proposed largest batch fits; a larger batch does not.
#[test]
fn a_batch_that_no_card_holds_is_refused_with_one_that_fits() {
    let refused = stderr(&words("rehearse qwen2.5-0.5b --cards 2 --batch 20000"));
    let batch: usize =
        refused.split("--batch ").nth(1).unwrap().split([';', '\n']).next().unwrap().parse().unwrap();
    let again = stderr(&words(&format!("rehearse qwen2.5-0.5b --cards 2 --batch {}", batch + 1)));
    assert!(
        again.contains("does not fit") && again.contains(&format!("--batch {batch}")),
        "{refused}{again}"
    );
}

#[test]
fn npus_without_a_toolkit_are_refused_with_the_way_out() {
    if ascend_tp_sys::load(None).is_ok() {
        return;
    }
    let output = words("generate --device npu");
    assert_eq!(output.status.code(), Some(2));
    for text in ["no CANN toolkit was found", "looked at:", "ASCEND_TOOLKIT_HOME", "--device emulator"] {
        assert!(stderr(&output).contains(text), "{text}: {}", stderr(&output));
    }
}

/// Layer weights take one byte per element and four bytes per row. Embedding and head keep their
/// type.
#[test]
fn quantised_weights_take_half_the_bytes() {
    let weights = |dtype: &str| -> u64 {
        let report = json(&words(&format!("explain --model qwen-72b --cards 8 --json --dtype {dtype}")));
        assert_eq!(report["dtype"], dtype);
        report["memory"]["weights"].as_u64().unwrap()
    };
    let (float, quantised) = (weights("bf16"), weights("w8a8"));
    // 80 layers with four matrices of 8192² and three of 8192 x 24576. Rows of column-parallel
    // matrices are sharded.
    let matrices = 80 * (4 * 8192 * 8192 + 3 * 8192 * 24576) / 8_u64;
    let rows = 80 * (3 * 8192 / 8 + 8192 + 2 * 24576 / 8 + 8192);
    // Buffers start at multiples of 512 bytes.
    let buffers = 80 * 7 * 512;
    let expected = float - matrices + 4 * rows;
    assert!(
        (expected..=expected + buffers).contains(&quantised),
        "{quantised} of {float}, expected {expected}"
    );
}

/// Formats by name have the bytes of written files: half a byte for each weight, and a scale of 16
/// bits for each group. Cards have the same, and twice the scales of attention outputs: a head has
/// half a group.
#[test]
fn formats_of_files_are_priced_by_name() {
    let report = |dtype: &str| {
        json(&words(&format!("explain qwen2.5-0.5b --cards 2 --context 64 --json --dtype {dtype}")))
    };
    // 24 layers: query and output of 896², key and value of 128 x 896, and three of 4864 x 896.
    let weights = 24 * (2 * 896 * 896 + 2 * 128 * 896 + 3 * 4864 * 896_u64);
    for (dtype, format, stored, on_card) in [
        (
            "w4a16-g128",
            "int4 groups of 128",
            weights / 2 + weights / 64,
            (weights / 2 + (weights + 24 * 896 * 896) / 64) / 2,
        ),
        ("w8a8-dynamic", "int8", weights, weights / 2),
    ] {
        let report = report(dtype);
        let formats = report["formats"].as_array().unwrap();
        assert_eq!(formats.len(), 1, "{dtype}: {formats:?}");
        assert_eq!((&formats[0]["format"], &formats[0]["weights"]), (&value!(format), &value!(24 * 7)));
        assert_eq!(formats[0]["stored_bytes"], stored, "{dtype}");
        assert_eq!(formats[0]["bytes_per_card"], on_card, "{dtype}");
    }
    for command in ["explain", "rehearse", "plan --serve"] {
        let refused = words(&format!("{command} ./models/kjv-qwen2 --cards 2 --dtype w4a16-g128"));
        assert_eq!(refused.status.code(), Some(2), "{command}");
        let expected = "model.layers.0.mlp.down_proj.weight: the last group of inputs would be partial";
        assert!(stderr(&refused).contains(expected), "{command}: {}", stderr(&refused));
    }
}

#[test]
fn fp8_weights_are_counted_before_they_are_loaded() {
    let model = "verify --model tests/fixtures/quantised/fp8-block --cards 2 --device emulator --dtype bf16";
    for (form, becomes) in
        [("", "become bf16"), ("--fp8-as bf16", "become bf16"), ("--fp8-as int8", "become int8")]
    {
        let output = words(&format!("{model} {form}"));
        assert!(succeeds(&output).contains("passed"), "{form}");
        let expected = "14 weights in fp8 blocks 128×128";
        let said = stderr(&output);
        assert!(said.contains(expected) && said.contains(becomes), "{form}: {said}");
    }
    for (arguments, expected) in [
        (
            "--model models/kjv-qwen2 --dtype bf16 --fp8-as bf16",
            "the checkpoint has no weights in fp8 blocks",
        ),
        (
            "--model tests/fixtures/quantised/fp8-block --fp8-as int8",
            "--fp8-as int8: activations have another type than 16-bit floats: expected --dtype bf16 or f16, found f32",
        ),
    ] {
        let output = words(&format!("verify --device emulator --cards 2 {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(expected), "{arguments}: {}", stderr(&output));
    }
}

/// Returns the first reference case: prompt, its ids, the following ids, the whole text.
fn reference_case() -> (String, Vec<u32>, String) {
    let text = std::fs::read_to_string(root().join("models/kjv-qwen2/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let case = &expected["cases"][0];
    let ids = serde_json::from_value(case["greedy_ids"].clone()).unwrap();
    (case["prompt"].as_str().unwrap().to_owned(), ids, case["text"].as_str().unwrap().to_owned())
}

#[test]
fn the_shipped_model_continues_its_first_prompt() {
    let (prompt, ids, text) = reference_case();
    assert_eq!(prompt, "In the beginning");
    // No model or prompt is given, and the folder has no models.
    let elsewhere = tempfile::tempdir().unwrap();
    let arguments = ["generate", "--dtype", "f32", "--device", "emulator"];
    let output = command().current_dir(elsewhere.path()).args(arguments).output().unwrap();
    assert_eq!(succeeds(&output), format!("{text}\n"), "text and nothing else is on stdout");
    for expected in
        ["loaded", "prefill  3 tokens", "decode   63 tokens", "tokens/s", "in collectives", "weights"]
    {
        assert!(stderr(&output).contains(expected), "{expected}: {}", stderr(&output));
    }

    let report = json(&words("generate --dtype f32 --device emulator --cards 3 --json"));
    let sequence = &report["sequences"][0];
    assert_eq!(serde_json::from_value::<Vec<u32>>(sequence["ids"].clone()).unwrap(), ids);
    assert_eq!(sequence["text"], Value::from(text));
    assert_eq!(report["summary"]["memory_by_rank"].as_array().unwrap().len(), 3);
    assert!(report["summary"]["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn several_prompts_come_with_their_texts() {
    let (prompt, ..) = reference_case();
    let alone = |prompt: &str| {
        let arguments =
            ["generate", "--max-new-tokens", "6", "--dtype", "f32", "--cards", "2", "--prompt", prompt];
        succeeds(&run(arguments.into_iter().chain(["--device", "emulator"])))
    };
    let second = "And the king said unto";
    let (one, two) = (alone(&prompt), alone(second));
    let arguments =
        ["generate", "--max-new-tokens", "6", "--dtype", "f32", "--cards", "2", "--prompt", &prompt];
    let both = run(arguments.into_iter().chain(["--prompt", second, "--device", "emulator"]));
    assert_eq!(succeeds(&both), format!("{one}\n{two}"));
}

#[test]
fn a_seed_decides_what_is_sampled() {
    let sample = |seed: &str| {
        let options = "generate --device emulator --cards 2 --max-new-tokens 12 --temperature 1 --top-k 50 --top-p 0.95";
        succeeds(&words(&format!("{options} --seed {seed}")))
    };
    assert_eq!(sample("1"), sample("1"));
    assert_ne!(sample("1"), sample("2"));
}

#[test]
fn options_without_effect_are_said_to_have_none() {
    let output = words("generate --device emulator --cards 1 --max-new-tokens 1 --top-k 5");
    succeeds(&output);
    assert!(stderr(&output).contains("at --temperature 0"), "{}", stderr(&output));
}

fn verify(reference: &Path, more: &[&str]) -> Output {
    let model = fixture("qwen2-gqa");
    let arguments = [model.as_os_str(), "--reference".as_ref(), reference.as_os_str()];
    command()
        .args(["verify", "--device", "emulator", "--cards", "3", "--model"])
        .args(arguments)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn verify_passes_against_the_reference() {
    let reference = fixture("qwen2-gqa/expected.safetensors");
    let output = verify(&reference, &["--residual", "seq"]);
    let text = succeeds(&output);
    assert!(text.contains("largest error in f32 against the reference: logits at ["), "{text}");
    assert!(text.contains("greedy ids: all 24 equal") && text.ends_with("passed\n"), "{text}");
    let report = json(&verify(&reference, &["--json"]));
    assert_eq!(report["passed"], true);
    assert!(report["logits"]["error"].as_f64().unwrap() <= 1e-4);
    assert!(report["values"].as_u64().unwrap() > 20);
}

/// With `--exact`, replicated values match one card bit for bit; without, they differ.
#[test]
fn verify_of_one_order_of_sums_finds_the_same_bits() {
    let found = |more: &str| {
        let line = "verify --device emulator --model models/kjv-qwen2 --cards 4 --json";
        json(&words(&format!("{line} {more}")))
    };
    for more in ["--exact", "--exact --dtype bf16 --residual seq", "--exact --mesh pp=2,tp=2"] {
        let report = found(more);
        assert_eq!((&report["passed"], &report["exact"]), (&true.into(), &true.into()), "{more}: {report}");
        // Only partial sums may differ, by their order.
        let closest = &report["closest"];
        let is_part = closest["place"].as_str().unwrap().contains("tree_");
        assert!(is_part || closest["error"] == 0.0, "{more}: {closest}");
    }
    let usual = found("");
    assert!(usual["closest"]["error"].as_f64() > Some(0.0) && usual["exact"] == false, "{usual}");
    let text =
        succeeds(&words("verify --device emulator --model tests/fixtures/qwen2-gqa --cards 2 --exact"));
    assert!(text.contains(", fixed order of sums, ") && text.ends_with("passed\n"), "{text}");
}

#[test]
fn verify_outside_the_bound_is_code_1_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("expected.safetensors");
    let mut bytes = std::fs::read(fixture("qwen2-gqa/expected.safetensors")).unwrap();
    let header_length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_length]).unwrap();
    let start =
        usize::try_from(header["logits"]["data_offsets"][0].as_u64().unwrap()).unwrap() + 8 + header_length;
    bytes[start..start + 4].copy_from_slice(&1000.0_f32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();

    let output = verify(&path, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("logits at [0, 0, 0]: expected 1.0000000e3, found "), "{text}");
    assert!(text.ends_with("FAILED: outside the bound\n"), "{text}");

    let output = verify(&path, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["passed"], &report["logits"]["expected"]),
        (&Value::Bool(false), &Value::from(1000.0))
    );
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let mut child = command()
        .args(["explain", "--model", "qwen-72b", "--cards", "8", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
