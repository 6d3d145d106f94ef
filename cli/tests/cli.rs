//! The command line as its users meet it: the built binary, its help, its options, its output and its exit codes.
//!
//! Runs on the emulator. What is wrong with files and prompts is the subject of `bad_input.rs`.

use std::path::Path;
use std::process::{Output, Stdio};

use ascend_tp::config::ModelConfig;
use ascend_tp::train::{self, Layout, Recipe};
use ascend_tp::{collective, placement, program, schedule};
use serde_json::Value;

use crate::{command, fixture, root};

/// Stands in [`OPTIONS`] for those of [`OF_A_STEP`].
const STEP: &str = "(of a step)";

/// What every command has that is about a step of training.
const OF_A_STEP: [&str; 23] = [
    "recipe",
    "steps",
    "global-batch",
    "seq",
    "clip-norm",
    "optimizer",
    "betas",
    "eps",
    "weight-decay",
    "momentum",
    "schedule",
    "lr",
    "min-lr",
    "warmup-steps",
    "pipeline",
    "lora",
    "compress",
    "compress-after",
    "exact",
    "mesh",
    "zero",
    "micro-batch",
    "recompute",
];

/// Every option of every command. Scripts rely on these: removing or renaming one breaks them.
const OPTIONS: [(&str, &[&str]); 12] = [
    (
        "generate",
        &[
            "model",
            "adapter",
            "prompt",
            "prompt-file",
            "chat",
            "system",
            "cards",
            "mesh",
            "dtype",
            "residual",
            "exact",
            "max-new-tokens",
            "temperature",
            "top-k",
            "top-p",
            "min-p",
            "repetition-penalty",
            "seed",
            "stop",
            "logprobs",
            "device",
            "bind",
            "emulated-cards",
            "captured",
            "json",
            "stream",
            "help",
        ],
    ),
    ("verify", &["model", "cards", "reference", "train", "dtype", "residual", "device", "json", "help", STEP]),
    (
        "explain",
        &["model", "cards", "train", "dtype", "residual", "batch", "sequence", "context", "dump", "json", "help", STEP],
    ),
    (
        "rehearse",
        &[
            "model", "cards", "train", "card", "profile", "topology", "servers", "batch", "input", "output", "dtype",
            "residual", "eager", "captured", "trace", "html", "json", "help", STEP,
        ],
    ),
    (
        "train",
        &[
            "model",
            "init-seed",
            "data",
            "tokenizer",
            "data-seed",
            STEP,
            "dtype",
            "cards",
            "processes",
            "max-restarts",
            "residual",
            "save",
            "save-every",
            "keep",
            "resume",
            "metrics",
            "tensorboard",
            "trace",
            "sample",
            "digest",
            "device",
            "bind",
            "help",
        ],
    ),
    ("data prepare", &["tokenizer", "out", "separator", "json", "help"]),
    ("data inspect", &["tokenizer", "documents", "json", "help"]),
    ("data tokenizer", &["vocab-size", "out", "json", "help"]),
    ("bench", &["quick", "json", "plot", "report", "device", "bind", "help"]),
    ("doctor", &["emulator", "rank-table", "no-smoke", "json", "help"]),
    ("env", &["libraries", "help"]),
    (
        "plan",
        &[
            "model",
            "cards",
            "card",
            "profile",
            "topology",
            "dtype",
            "serve",
            "batch",
            "input",
            "output",
            "objective",
            "max-tpot-ms",
            "train",
            "seq",
            "global-batch",
            "tokens",
            "validate",
            "points",
            "top",
            "why",
            "json",
            "help",
        ],
    ),
];

fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command().args(arguments).output().unwrap()
}

fn words(line: &str) -> Output {
    run(line.split_whitespace())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The output of a command that must succeed.
fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&succeeds(output)).unwrap()
}

#[test]
fn the_help_says_what_there_is() {
    let help = succeeds(&words("--help"));
    for text in
        ["generate", "verify", "explain", "Examples:", "Exit codes:", "  2  the arguments or the files are wrong"]
    {
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
            // An example that runs over a line begins one with options too.
            .take_while(|line| *line != "Examples:")
            .map(str::trim_start)
            .filter_map(|line| line.strip_prefix("-h, ").unwrap_or(line).strip_prefix("--"))
            .filter_map(|line| line.split([' ', '\n']).next())
            .collect();
        let expand = |option: &&'static str| if *option == STEP { OF_A_STEP.to_vec() } else { vec![*option] };
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
        stderr(&output).contains("man: there is no such command: expected generate, verify"),
        "{}",
        stderr(&output)
    );
    let models = json(&words("models --json"));
    let names: Vec<&str> = models.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"qwen-72b") && names.contains(&"llama-3-70b"), "{names:?}");
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "And God said").unwrap();
    let path = file.path().to_str().unwrap();
    let common = ["generate", "--device", "emulator", "--cards", "1", "--max-new-tokens", "4", "--quiet"];
    let text = |more: &[&str]| succeeds(&run(common.iter().chain(more)));
    let expected = text(&["--prompt", "And God said"]);
    assert!(expected.starts_with("And God said,") && expected.ends_with('\n'), "{expected:?}");
    assert_eq!(text(&["--prompt-file", path]), expected);
    let mut child = command();
    let child = child.args(common).args(["--prompt-file", "-"]).stdin(std::fs::File::open(path).unwrap());
    let output = child.output().unwrap();
    assert_eq!((succeeds(&output), stderr(&output)), (expected, String::new()));
    let output = run(common.iter().chain(&["--prompt-file", "/nowhere"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--prompt-file /nowhere: cannot be read"), "{}", stderr(&output));
    assert!(text(&["--prompt", "- and"]).starts_with("- and"));
    // The shipped model is no chat model.
    let output = run(common.iter().chain(&["--chat", "--prompt", "Hi"]));
    assert!(output.status.code() == Some(2) && stderr(&output).contains("has no chat template"), "{}", stderr(&output));
}

#[test]
fn a_stream_has_a_line_for_each_token() {
    let line =
        "generate --device emulator --cards 2 --emulated-cards 3 --max-new-tokens 5 --json --stream --logprobs 2";
    let output = succeeds(&words(line));
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7, "{output}");
    for line in &lines[..5] {
        assert_eq!(line["log_probabilities"]["likeliest"][0][0], line["id"], "{line}");
    }
    assert_eq!((&lines[5]["finish"]["reason"], &lines[6]["summary"]["decode_tokens"]), (&"length".into(), &4.into()));
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
    let one = "generate --device emulator --exact --dtype f32 --max-new-tokens 3 --json --logprobs 2 --prompt The";
    let found = |more: &str| json(&words(&format!("{one} {more}")))["sequences"][0]["log_probabilities"].clone();
    let expected = found("--cards 1");
    assert_eq!(expected.as_array().map(Vec::len), Some(3), "{expected}");
    assert_eq!(found("--cards 8 --prompt And --prompt Of"), expected);
    assert_eq!(found("--cards 4 --mesh pp=2,tp=2"), expected);
}

#[test]
fn usage_errors_are_code_2_and_nothing_on_stdout() {
    for (line, expected) in [
        ("", "Usage: ascend-tp"),
        ("walk", "unrecognized subcommand 'walk'"),
        ("generate --seed -1", "invalid value '-1' for '--seed <N>'"),
        ("generate --card 8", "unexpected argument '--card'"),
        ("generate --cards 0", "for '--cards <N>': expected a whole number from 1 on, found 0"),
        ("generate --cards eight", "found eight"),
        ("generate --dtype i32", "[possible values: f32, f16, bf16, w8a8]"),
        ("generate --residual shard", "[possible values: replicate, seq]"),
        ("generate --device gpu", "[possible values: auto, emulator, npu]"),
        ("verify --cards 2", "--model <DIR>"),
        ("explain --model qwen-72b", "--cards <N>"),
        ("explain --model qwen-72b --cards 1000000", "expected 1 to 256 cards, found 1000000"),
        ("explain --model qwen-7b --cards 2", "--model: neither a folder nor a preset: expected"),
        ("explain --model qwen-72b --cards 2 --context 40000", "--context: longer than the model's context"),
        ("explain --model qwen-72b --cards 2 --context 8 --sequence 9", "--sequence: longer than the KV cache"),
        ("explain --model qwen-72b --cards 2 --zero 1", "are of a step of training; add --train"),
        ("explain --train --model qwen-72b --cards 2 --sequence 9", "cannot be used with"),
        ("explain --train --model qwen-72b --cards 2 --dtype w8a8 --mesh dp=3", "--dtype: nothing trains in 8 bits"),
        ("verify --model models/kjv-qwen2 --cards 2 --mesh dp=2", "are of a step of training; add --train"),
        ("verify --train --model models/kjv-qwen2 --cards 2 --mesh dp=3", "--mesh: is not of the cards"),
    ] {
        let output = words(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{line}");
    }
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

/// The layers of a 16-bit model become one byte a weight and four a row; embedding and head stay.
#[test]
fn quantised_weights_take_half_the_bytes() {
    let weights = |dtype: &str| -> u64 {
        let report = json(&words(&format!("explain --model qwen-72b --cards 8 --json --dtype {dtype}")));
        assert_eq!(report["dtype"], dtype);
        report["memory"]["weights"].as_u64().unwrap()
    };
    let (float, quantised) = (weights("bf16"), weights("w8a8"));
    // Of 80 layers: four matrices of 8192² and three of 8192 x 24576; rows of the column-parallel ones are cut too.
    let matrices = 80 * (4 * 8192 * 8192 + 3 * 8192 * 24576) / 8_u64;
    let rows = 80 * (3 * 8192 / 8 + 8192 + 2 * 24576 / 8 + 8192);
    // Each buffer begins at a multiple of 512 bytes.
    let buffers = 80 * 7 * 512;
    let expected = float - matrices + 4 * rows;
    assert!((expected..=expected + buffers).contains(&quantised), "{quantised} of {float}, expected {expected}");
}

#[test]
fn qwen_72b_on_eight_cards_is_as_published() {
    let text = succeeds(&words("explain --model qwen-72b --cards 8"));
    for expected in [
        "72.3 B parameters, bf16 on 8 cards",
        "161 all_reduce (2.6 MB), 1 all_gather (304.1 kB)",
        "18.1 GB",
        "10.7 GB  327,680 for each of 32,768 positions",
        "80 x  transformer.h.*.mlp.w2.weight         [24576,8192]     [3072,8192] ",
        "1 x  all_reduce  tp        8      16,384  residual.embedding",
        "80 x  all_reduce  tp        8      16,384  layers.*.mlp.out",
        "Launches of a layer and card: 12\n",
        "1 x  aclnnApplyRotaryPosEmb           rope of q, rope of k\n",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    assert!(text.lines().count() < 60, "alike layers are one row:\n{text}");

    let report = json(&words("explain --model qwen-72b --cards 8 --json"));
    let (weights, collectives) = (report["weights"].as_array().unwrap(), report["collectives"].as_array().unwrap());
    // Per layer two norms, w1, w2, two projections, and q, k, v with a bias each; and embedding, last norm and head.
    assert_eq!((weights.len(), collectives.len()), (80 * 12 + 3, 162));
    let all_reduces: Vec<&Value> = collectives.iter().filter(|row| row["op"] == "all_reduce").collect();
    assert_eq!(all_reduces.len(), 161);
    // One token of 8192 elements in bf16.
    assert!(all_reduces.iter().all(|row| row["bytes"] == 16_384 && row["group"] == 8 && row["axes"] == "tp"));
    let held: u64 = weights.iter().map(|row| row["bytes_per_card"].as_u64().unwrap()).sum();
    let memory = &report["memory"];
    assert_eq!(memory["weights"].as_u64(), Some(held));
    assert_eq!(memory["kv_per_token"], 327_680);
    assert_eq!(memory["kv_cache"], 327_680_u64 * 32_768);
    assert!(weights.iter().chain(collectives).all(|row| !row["reason"].as_str().unwrap().is_empty()));
    assert_eq!(weights[1]["layer"], 0);
}

/// Two micro-batches: each exchanges what its activations need, and the last one the gradients, once.
#[test]
fn a_step_of_training_is_explained() {
    let line = "explain --train --model models/kjv-qwen2 --cards 4 --mesh dp=2,tp=2 --global-batch 16 --seq 256 --micro-batch 4";
    let report = json(&words(&format!("{line} --json")));
    assert_eq!((&report["micro_batches"], &report["sequences"]), (&Value::from(2), &Value::from(8)));
    let config = std::fs::read_to_string(root().join("models/kjv-qwen2/config.json")).unwrap();
    let config = ModelConfig::from_json(&config).unwrap();
    let recipe = Recipe { global_batch: 16, seq: 256, ..Recipe::default() };
    let layout = Layout { data: 2, tensor: 2, micro_batch: 4, ..Layout::ONE };
    let parts = train::lower(&config, &recipe, &layout).unwrap().parts;
    let expected: Vec<_> = parts.iter().flat_map(|(_, lowered)| collective::exchanges(lowered)).collect();
    let rows = report["collectives"].as_array().unwrap();
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!((&row["op"], row["bytes"].as_u64()), (&Value::from(expected.kind), Some(expected.bytes.0)));
        let dtype = if row["value"] == "ids" { "i64" } else { "f32" };
        assert_eq!((&row["reason"], &row["dtype"]), (&Value::from(&*expected.reason), &Value::from(dtype)));
        let (us, hidden_us) = (row["us"].as_f64().unwrap(), row["hidden_us"].as_f64().unwrap());
        assert!(us > 0.0 && (0.0..=us * 1.000_001).contains(&hidden_us), "{row}");
        assert_eq!(row["beside"].is_null(), hidden_us == 0.0, "{row}");
    }
    // Gradients of weights go over `dp` in the last micro-batch alone, all of them: f32, each its part over `tp`.
    let over_data = |row: &&Value| row["op"] == "all_reduce" && row["axes"] == "dp";
    let gradients: Vec<&Value> = rows.iter().filter(over_data).collect();
    assert!(gradients.iter().all(|row| row["micro_batch"] == "last" && row["times"] == 1));
    let bytes: u64 = gradients.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    let program = &parts[0].1;
    let local = |id: program::ValueId| {
        let (value, layout) = (&program.program.values[id], &program.layouts[id]);
        4 * layout.local_shape(&program.mesh, &value.shape, 0).elems() as u64
    };
    assert_eq!(bytes, program.program.with_role(program::Role::Param).map(local).sum::<u64>());
    // Some of them while the backward pass goes on.
    assert!(gradients.iter().any(|row| row["hidden_us"].as_f64() > Some(0.0)));
    let text = succeeds(&words(line));
    for expected in [
        "16 sequences a step, 2 micro-batches of 8 sequences",
        " % by ",
        "all_reduce",
        "f32",
        "No order of the same operators and collectives takes less than",
        "What is exposed, the longest first",
        ", which makes it",
        ", which needs it",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    // What is exposed is all of the collectives that is not hidden.
    let of_rows =
        |key: &str| rows.iter().map(|row| row["times"].as_f64().unwrap() * row[key].as_f64().unwrap()).sum::<f64>();
    let exposed: f64 = report["exposed"].as_array().unwrap().iter().map(|row| row["us"].as_f64().unwrap()).sum();
    assert!((exposed - (of_rows("us") - of_rows("hidden_us"))).abs() < 1e-3 * exposed, "{exposed} us: {report:#}");
    let least_us = report["least"]["step_us"].as_f64().unwrap();
    assert!(least_us > 0.0 && least_us <= report["step_us"].as_f64().unwrap(), "{least_us}");
    let exact = "explain --train --model models/kjv-qwen2 --cards 2 --mesh dp=2 --global-batch 4 --seq 8 --micro-batch 1 --exact";
    let text = succeeds(&words(exact));
    assert!(text.contains("a card holds ") && text.contains(" with every sum in one order, "), "{text}");
    // A sum in one order is two exchanges of its op, which a step has once.
    let report = json(&words(&format!("{} --json", exact.replace("--cards 2 --mesh dp=2", "--cards 4 --mesh dp=4"))));
    let rows = report["collectives"].as_array().unwrap();
    assert!(rows.len() > 10 && rows.iter().all(|row| row["times"] == 1), "{rows:#?}");
    let text = succeeds(&words("explain --train --model models/kjv-qwen2 --cards 1 --global-batch 2 --seq 8"));
    assert!(text.contains("no collective: one card holds everything"), "{text}");
}

/// Stages send what the next one reads, and back; what is inside a stage is as without them.
#[test]
fn a_step_of_stages_is_explained() {
    let line = "explain --train --model models/kjv-qwen2 --cards 4 --mesh pp=2,tp=2 --global-batch 16 --seq 256 --micro-batch 4";
    let report = json(&words(&format!("{line} --json")));
    assert_eq!((&report["micro_batches"], &report["sequences"]), (&Value::from(4), &Value::from(4)));
    let rows = report["collectives"].as_array().unwrap();
    let of = |op: &str, axis: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["op"] == op && row["axes"] == axis).collect()
    };
    let times = |rows: &[&Value]| rows.iter().map(|row| row["times"].as_u64().unwrap()).sum::<u64>();
    // Each micro-batch goes there and back, f32 of [4,256,256].
    let sends: Vec<&Value> = of("send", "pp").into_iter().filter(|row| row["bytes"] == 4 * 4 * 256 * 256_u64).collect();
    assert_eq!(times(&sends), 2 * 4, "{sends:#?}");
    assert!(sends.iter().all(|row| row["us"].as_f64() > Some(0.0) && row["micro_batch"] == "all"), "{sends:#?}");
    // A stage's collectives over tp are those of a card without stages, of as many micro-batches.
    let whole =
        "explain --train --model models/kjv-qwen2 --cards 2 --mesh tp=2 --global-batch 16 --seq 256 --micro-batch 4";
    let whole = json(&words(&format!("{whole} --json")));
    let large = |rows: &[Value]| -> u64 {
        let over = rows.iter().filter(|row| row["axes"] == "tp" && row["bytes"].as_u64() >= Some(1 << 20));
        over.map(|row| row["times"].as_u64().unwrap()).sum()
    };
    assert_eq!(large(rows), large(whole["collectives"].as_array().unwrap()));
    let idle: Vec<f64> = report["idle"].as_array().unwrap().iter().map(|idle| idle.as_f64().unwrap()).collect();
    assert!(idle.len() == 2 && idle.iter().all(|idle| (0.1..0.9).contains(idle)), "{idle:?}");
    let text = succeeds(&words(line));
    for expected in ["pp=2", "send", "stage 0 makes it, stage 1 reads it", "No operator runs, by stage: "] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
}

#[test]
fn gradients_of_many_cards_are_held_against_those_of_one() {
    for line in [
        "--model tests/fixtures/qwen2-gqa --cards 4 --mesh dp=2,tp=2 --zero 2 --micro-batch 1 --global-batch 5 --seq 12",
        "--model tests/fixtures/qwen2-tied-uneven --cards 3 --residual seq --global-batch 2 --seq 7",
    ] {
        let report = json(&words(&format!("verify --train {line} --json")));
        assert_eq!((&report["passed"], &report["other_bits"]), (&Value::from(true), &Value::Null));
        let rows = report["gradients"].as_array().unwrap();
        assert!(rows.len() >= 19 && rows.iter().all(|row| row["largest"].as_f64() > Some(0.0)), "{report}");
        assert!(rows.iter().all(|row| row["difference"].as_f64() <= report["bound"].as_f64()), "{report}");
        let text = succeeds(&words(&format!("verify --train {line}")));
        assert!(text.contains("the same step twice has the same bits") && text.ends_with("passed\n"), "{text}");
    }
}

#[test]
fn presets_hold_what_the_arithmetic_says() {
    for (preset, cards, weights_gb, kv_per_token) in [
        ("qwen-72b", 8, 18.1, 327_680),
        ("qwen2-72b", 8, 18.2, 40_960),
        ("qwen2.5-72b", 8, 18.2, 40_960),
        ("llama-3-70b", 8, 17.6, 40_960),
        ("qwen3-32b", 8, 8.2, 32_768),
        // 8 kv heads on 16 cards: each is on two, and so are the rows of the weights that make it.
        ("llama-3-70b", 16, 9.0, 40_960),
    ] {
        let report = json(&words(&format!("explain --model {preset} --cards {cards} --json")));
        let weights = report["memory"]["weights"].as_f64().unwrap() / 1e9;
        assert!((weights - weights_gb).abs() < 0.06, "{preset} on {cards}: {weights}");
        assert_eq!(report["memory"]["kv_per_token"], kv_per_token, "{preset} on {cards}");
        let layers = report["layers"].as_u64().unwrap();
        let counts = &report["totals"]["by_op"][0];
        assert_eq!((&counts["op"], counts["count"].as_u64()), (&Value::from("all_reduce"), Some(2 * layers + 1)));
    }
}

#[test]
fn a_residual_stream_along_the_sequence_is_explained() {
    let report = json(&words("explain --model qwen2-72b --cards 8 --residual seq --sequence 1024 --json"));
    let by_op = report["totals"]["by_op"].as_array().unwrap();
    let count = |op: &str| by_op.iter().find(|row| row["op"] == op).map(|row| row["count"].as_u64().unwrap());
    assert_eq!((count("all_reduce"), count("reduce_scatter"), count("all_gather")), (None, Some(161), Some(162)));
    // A decode step has nothing to cut, and the prefill beside it has.
    let output = words("explain --model qwen2-72b --cards 8 --residual seq --json");
    assert!(stderr(&output).contains("its residual stream stays whole"), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["program"]["residual"], "replicate");
    let prefill = report["alternatives"].as_array().unwrap().iter().find(|other| other["program"]["sequence"] == 2048);
    assert_eq!(prefill.unwrap()["program"]["residual"], "seq");
}

#[test]
fn one_config_file_is_enough_and_uneven_cuts_show_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("qwen2-tied-uneven/config.json"), folder.path().join("config.json")).unwrap();
    let text = succeeds(&run(["explain", "--cards", "4", "--model", &folder.path().display().to_string()]));
    assert!(text.contains(" to ["), "the vocabulary of 259 does not divide by 4:\n{text}");
    let text = succeeds(&run(["explain", "--cards", "1", "--model", &folder.path().display().to_string()]));
    assert!(text.contains("none: one card holds everything"), "{text}");
}

#[test]
fn a_batch_that_fits_no_card_is_explained_and_one_that_no_machine_holds_refused() {
    let explain = |batch: &str| run(["explain", "--model", "qwen-72b", "--cards", "8", "--batch", batch]);
    let text = succeeds(&explain("4096"));
    assert!(text.contains("  More than the 65.4 GB of an Ascend910B3 by "), "{text}");
    for (batch, bytes) in [("100000000", "53687091200000000"), ("18446744073709551615", "more than 64 bits count")] {
        let output = explain(batch);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = text.contains("has more bytes than any machine") && text.contains(bytes);
        assert!(said && text.lines().count() <= 2, "{text}");
    }
}

#[test]
fn every_stage_is_dumped_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("new/stages");
    let dump = dump.to_str().unwrap();
    succeeds(&run(["explain", "--model", "models/kjv-qwen2", "--cards", "3", "--dump", dump]));
    let mut names: Vec<String> =
        std::fs::read_dir(dump).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    let expected = [
        "01-program.txt",
        "02-resharded.txt",
        "03-lowered.txt",
        "04-plan-rank-0.txt",
        "05-plan-rank-1.txt",
        "06-plan-rank-2.txt",
    ];
    assert_eq!(names, expected);
    let text = |name: &str| std::fs::read_to_string(Path::new(dump).join(name)).unwrap();
    let logical = program::text::parse(&text(expected[0])).unwrap();
    assert_eq!(program::text::print(&logical), text(expected[0]));
    for name in &expected[1..3] {
        assert_eq!(placement::print(&placement::parse(&text(name)).unwrap()), text(name), "{name}");
    }
    for name in &expected[3..] {
        assert_eq!(schedule::text::parse(&text(name)).unwrap().to_string(), text(name), "{name}");
    }
    assert!(text(expected[2]).contains("all_reduce"));
}

/// The prompt of the first of the shipped model's reference cases, its ids, those that follow, and the whole text.
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
    // Without any option that names a model or a prompt, from a folder without models.
    let elsewhere = tempfile::tempdir().unwrap();
    let arguments = ["generate", "--dtype", "f32", "--device", "emulator"];
    let output = command().current_dir(elsewhere.path()).args(arguments).output().unwrap();
    assert_eq!(succeeds(&output), format!("{text}\n"), "text and nothing else is on stdout");
    for expected in ["loaded", "prefill  3 tokens", "decode   63 tokens", "tokens/s", "in collectives", "weights"] {
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
        let arguments = ["generate", "--max-new-tokens", "6", "--dtype", "f32", "--cards", "2", "--prompt", prompt];
        succeeds(&run(arguments.into_iter().chain(["--device", "emulator"])))
    };
    let second = "And the king said unto";
    let (one, two) = (alone(&prompt), alone(second));
    let arguments = ["generate", "--max-new-tokens", "6", "--dtype", "f32", "--cards", "2", "--prompt", &prompt];
    let both = run(arguments.into_iter().chain(["--prompt", second, "--device", "emulator"]));
    assert_eq!(succeeds(&both), format!("{one}\n{two}"));
}

#[test]
fn a_seed_decides_what_is_sampled() {
    let sample = |seed: &str| {
        let options =
            "generate --device emulator --cards 2 --max-new-tokens 12 --temperature 1 --top-k 50 --top-p 0.95";
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

#[test]
fn verify_outside_the_bound_is_code_1_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("expected.safetensors");
    let mut bytes = std::fs::read(fixture("qwen2-gqa/expected.safetensors")).unwrap();
    let header_length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_length]).unwrap();
    let start = usize::try_from(header["logits"]["data_offsets"][0].as_u64().unwrap()).unwrap() + 8 + header_length;
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
    assert_eq!((&report["passed"], &report["logits"]["expected"]), (&Value::Bool(false), &Value::from(1000.0)));
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
