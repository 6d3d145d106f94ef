//! Tests of `ascend-tp explain` for serving and training.

use std::path::Path;

use ascend_tp::config::ModelConfig;
use ascend_tp::train::{self, Layout, Recipe};
use ascend_tp::{collective, placement, program, schedule};
use serde_json::Value;

use crate::{fixture, json, root, run, stderr, succeeds, words};

#[test]
fn a_mixture_has_total_and_active_parameters() {
    let text = succeeds(&words("explain qwen3-30b-a3b --cards 4"));
    assert!(text.contains("48 layers, 30.5 B parameters (3.4 B active)"), "{text}");
    let report = json(&words("explain qwen3-30b-a3b --cards 4 --json"));
    assert_eq!(report["active_parameters"], 3_353_032_704_u64);
}

#[test]
fn qwen_72b_on_eight_cards_is_as_published() {
    let text = succeeds(&words("explain --model qwen-72b --cards 8"));
    for expected in [
        "72.3 B parameters, bf16 on 8 cards",
        "161 all_reduce (2.6 MB), 1 all_gather (304.1 kB)",
        "18.1 GB",
        "10.8 GB  327,680 for each of 32,768 positions",
        "80 x  transformer.h.*.mlp.w2.weight         [24576,8192]     [3072,8192] ",
        "1 x  all_reduce  tp        8      16,384  residual.embedding",
        "80 x  all_reduce  tp        8      16,384  layers.*.mlp.out",
        "Launches per layer and card: 12\n",
        "1 x  aclnnApplyRotaryPosEmb           rope of q, rope of k\n",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    assert!(text.lines().count() < 80, "alike layers are one row:\n{text}");

    let report = json(&words("explain --model qwen-72b --cards 8 --json"));
    let (weights, collectives) =
        (report["weights"].as_array().unwrap(), report["collectives"].as_array().unwrap());
    // Per layer: two norms, w1, w2, two projections, q, k, v with biases. Plus embedding, last
    // norm, head.
    assert_eq!((weights.len(), collectives.len()), (80 * 12 + 3, 162));
    let all_reduces: Vec<&Value> = collectives.iter().filter(|row| row["op"] == "all_reduce").collect();
    assert_eq!(all_reduces.len(), 161);
    // One token of 8192 elements in bf16.
    assert!(all_reduces.iter().all(|row| row["bytes"] == 16_384 && row["group"] == 8 && row["axes"] == "tp"));
    let held: u64 = weights.iter().map(|row| row["bytes_per_card"].as_u64().unwrap()).sum();
    let memory = &report["memory"];
    assert_eq!(memory["weights"].as_u64(), Some(held));
    assert_eq!(memory["kv_per_token"], 327_680);
    // The blocks of the context, and the block that belongs to no sequence.
    assert_eq!(memory["kv_cache"], 327_680_u64 * (32_768 + 128));
    assert!(weights.iter().chain(collectives).all(|row| !row["reason"].as_str().unwrap().is_empty()));
    assert_eq!(weights[1]["layer"], 0);
}

/// Both micro-batches exchange activations; only the last exchanges gradients.
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
        assert_eq!(
            (&row["op"], row["bytes"].as_u64()),
            (&Value::from(expected.kind), Some(expected.bytes.0))
        );
        let dtype = if row["value"] == "ids" { "i64" } else { "f32" };
        assert_eq!((&row["reason"], &row["dtype"]), (&Value::from(&*expected.reason), &Value::from(dtype)));
        let (us, hidden_us) = (row["us"].as_f64().unwrap(), row["hidden_us"].as_f64().unwrap());
        assert!(us > 0.0 && (0.0..=us * 1.000_001).contains(&hidden_us), "{row}");
        assert_eq!(row["beside"].is_null(), hidden_us == 0.0, "{row}");
    }
    // The last micro-batch reduces all weight gradients over `dp`, as f32 shards over `tp`.
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
    // Some exchanges overlap the backward pass.
    assert!(gradients.iter().any(|row| row["hidden_us"].as_f64() > Some(0.0)));
    let text = succeeds(&words(line));
    for expected in [
        "16 sequences per step, 2 micro-batches of 8 sequences",
        " % by ",
        "all_reduce",
        "f32",
        "Lower bound over all orders of these operators and collectives:",
        "Exposed communication, longest first",
        ", which produces it",
        ", which needs it",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    // Exposed time is not hidden.
    let of_rows = |key: &str| {
        rows.iter().map(|row| row["times"].as_f64().unwrap() * row[key].as_f64().unwrap()).sum::<f64>()
    };
    let exposed: f64 =
        report["exposed"].as_array().unwrap().iter().map(|row| row["us"].as_f64().unwrap()).sum();
    assert!(
        (exposed - (of_rows("us") - of_rows("hidden_us"))).abs() < 1e-3 * exposed,
        "{exposed} us: {report:#}"
    );
    let least_us = report["least"]["step_us"].as_f64().unwrap();
    assert!(least_us > 0.0 && least_us <= report["step_us"].as_f64().unwrap(), "{least_us}");
    let exact = "explain --train --model models/kjv-qwen2 --cards 2 --mesh dp=2 --global-batch 4 --seq 8 --micro-batch 1 --exact";
    let text = succeeds(&words(exact));
    assert!(text.contains("a card holds ") && text.contains(" with a fixed order of sums, "), "{text}");
    // An ordered sum is two exchanges.
    let report =
        json(&words(&format!("{} --json", exact.replace("--cards 2 --mesh dp=2", "--cards 4 --mesh dp=4"))));
    let rows = report["collectives"].as_array().unwrap();
    assert!(rows.len() > 10 && rows.iter().all(|row| row["times"] == 1), "{rows:#?}");
    let text =
        succeeds(&words("explain --train --model models/kjv-qwen2 --cards 1 --global-batch 2 --seq 8"));
    assert!(text.contains("no collective: one card holds everything"), "{text}");
}

/// Stages send activations and gradients to neighbours. Exchanges inside a stage stay.
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
    // Each micro-batch is sent forward and backward as f32 of [4,256,256].
    let sends: Vec<&Value> =
        of("send", "pp").into_iter().filter(|row| row["bytes"] == 4 * 4 * 256 * 256_u64).collect();
    assert_eq!(times(&sends), 2 * 4, "{sends:#?}");
    assert!(
        sends.iter().all(|row| row["us"].as_f64() > Some(0.0) && row["micro_batch"] == "all"),
        "{sends:#?}"
    );
    // Collectives over tp in a stage equal a run without stages.
    let whole = "explain --train --model models/kjv-qwen2 --cards 2 --mesh tp=2 --global-batch 16 --seq 256 --micro-batch 4";
    let whole = json(&words(&format!("{whole} --json")));
    let large = |rows: &[Value]| -> u64 {
        let over = rows.iter().filter(|row| row["axes"] == "tp" && row["bytes"].as_u64() >= Some(1 << 20));
        over.map(|row| row["times"].as_u64().unwrap()).sum()
    };
    assert_eq!(large(rows), large(whole["collectives"].as_array().unwrap()));
    let idle: Vec<f64> =
        report["idle"].as_array().unwrap().iter().map(|idle| idle.as_f64().unwrap()).collect();
    assert!(idle.len() == 2 && idle.iter().all(|idle| (0.1..0.9).contains(idle)), "{idle:?}");
    let text = succeeds(&words(line));
    assert!(report["exposed"].as_array().unwrap().len() > 2, "{report:#}");
    let [least_us, step_us] =
        [&report["least"]["step_us"], &report["step_us"]].map(|us| us.as_f64().unwrap());
    assert!(least_us > 0.0 && least_us <= step_us, "{least_us} {step_us}");
    for expected in [
        "pp=2",
        "send",
        "stage 0 produces it, stage 1 reads it",
        "Idle time by stage: ",
        "exposed, if no stage waits for another.",
        "Exposed communication, longest first",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
}

#[test]
fn gradients_of_many_cards_are_held_against_those_of_one() {
    for line in [
        "--model tests/fixtures/qwen2-gqa --cards 4 --mesh dp=2,tp=2 --zero 2 --micro-batch 1 --global-batch 5 --seq 12",
        "--model tests/fixtures/qwen2-tied-uneven --cards 3 --residual seq --global-batch 2 --seq 7",
        "--model tests/fixtures/qwen2-gqa --cards 4 --mesh dp=2,tp=2 --zero 1 --micro-batch 1 --global-batch 6 --seq 12 --exact",
        "--model tests/fixtures/qwen3-moe --cards 2 --mesh tp=2 --global-batch 2 --seq 8 --dtype bf16",
    ] {
        let report = json(&words(&format!("verify --train {line} --json")));
        assert_eq!((&report["passed"], &report["other_bits"]), (&Value::from(true), &Value::Null));
        let is_given = line.contains("bf16");
        assert_eq!(report["experts"]["choices"].as_u64().is_some(), is_given, "{report}");
        let rows = report["gradients"].as_array().unwrap();
        assert!(rows.len() >= 19 && rows.iter().all(|row| row["largest"].as_f64() > Some(0.0)), "{report}");
        assert!(rows.iter().all(|row| row["difference"].as_f64() <= row["bound"].as_f64()), "{report}");
        let text = succeeds(&words(&format!("verify --train {line}")));
        assert!(text.contains("the repeated step has the same bits") && text.ends_with("passed\n"), "{text}");
    }
}

/// Programs in one line are compiled for the first card, which has the largest shards of 14 heads.
#[test]
fn a_program_in_one_line_needs_the_memory_of_the_fullest_card() {
    for cards in [3, 5] {
        let line = format!("explain --model qwen2.5-0.5b --cards {cards} --json");
        let prefill = json(&words(&format!("{line} --sequence 2048")));
        let alternatives = json(&words(&line))["alternatives"].clone();
        let own = alternatives.as_array().unwrap().iter().find(|other| other["program"]["sequence"] == 2048);
        assert_eq!(own.unwrap()["arena"], prefill["memory"]["arena"], "{cards} cards");
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
        // 8 kv heads on 16 cards: two cards share each head.
        ("llama-3-70b", 16, 9.0, 40_960),
    ] {
        let report = json(&words(&format!("explain --model {preset} --cards {cards} --json")));
        let weights = report["memory"]["weights"].as_f64().unwrap() / 1e9;
        assert!((weights - weights_gb).abs() < 0.06, "{preset} on {cards}: {weights}");
        assert_eq!(report["memory"]["kv_per_token"], kv_per_token, "{preset} on {cards}");
        let layers = report["layers"].as_u64().unwrap();
        let counts = &report["totals"]["by_op"][0];
        assert_eq!(
            (&counts["op"], counts["count"].as_u64()),
            (&Value::from("all_reduce"), Some(2 * layers + 1))
        );
    }
}

#[test]
fn a_residual_stream_along_the_sequence_is_explained() {
    let report = json(&words("explain --model qwen2-72b --cards 8 --residual seq --sequence 1024 --json"));
    let by_op = report["totals"]["by_op"].as_array().unwrap();
    let count = |op: &str| by_op.iter().find(|row| row["op"] == op).map(|row| row["count"].as_u64().unwrap());
    assert_eq!(
        (count("all_reduce"), count("reduce_scatter"), count("all_gather")),
        (None, Some(161), Some(162))
    );
    // Sequence sharding applies to the prefill, not to a decode step.
    let output = words("explain --model qwen2-72b --cards 8 --residual seq --json");
    assert!(stderr(&output).contains("its residual stream is replicated"), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["program"]["residual"], "replicate");
    let prefill =
        report["alternatives"].as_array().unwrap().iter().find(|other| other["program"]["sequence"] == 2048);
    assert_eq!(prefill.unwrap()["program"]["residual"], "seq");
}

#[test]
fn what_is_one_call_with_its_exchange_is_explained_and_what_is_not() {
    let said = |options: &str| succeeds(&words(&format!("explain --cards 8 {options}")));
    let long = said("--model llama-3-70b --sequence 4096");
    assert!(
        long.contains("2 x  aclnnMatmulAllReduce ") && long.contains("matmul of out, all_reduce of out"),
        "{long}"
    );
    let cut = said("--model qwen-72b --sequence 4096 --residual seq");
    for text in [
        "1 x  aclnnAllGatherMatmul ",
        "2 x  aclnnMatmulReduceScatter ",
        "Separate launch: all_gather of norm: its product adds a bias, which the operator does not support.",
    ] {
        assert!(cut.contains(text), "{text}\n{cut}");
    }
    let step = said("--model qwen-72b --sequence 1");
    assert!(step.contains("Separate launch: all_reduce of out: one call would hide "), "{step}");
    assert!(step.contains("Launches per layer and card: 12\n"), "{step}");
}

#[test]
fn launches_without_a_named_result_are_counted() {
    let step = succeeds(&words("explain --model olmo-2-13b --cards 2"));
    for call in ["2 x  aclnnRsqrt", "aclnnApplyRotaryPosEmb", "aclnnReduceSum"] {
        assert!(step.contains(call), "{call}\n{step}");
    }
}

#[test]
fn query_heads_of_one_key_head_are_sharded() {
    let report = json(&words("explain --model gemma-3-1b --cards 4 --json"));
    let local = |name: &str| {
        let weights = report["weights"].as_array().unwrap();
        let weight = weights.iter().find(|weight| weight["name"].as_str().unwrap().contains(name)).unwrap();
        [weight["local_shape"].clone(), weight["least_local_shape"].clone()]
    };
    assert_eq!(local("q_proj"), [serde_json::json!([1, 1, 256, 1152]), serde_json::json!([1, 1, 256, 1152])]);
    assert_eq!(local("k_proj"), [serde_json::json!([1, 256, 1152]), serde_json::json!([1, 256, 1152])]);
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
    for (batch, bytes) in
        [("100000000", "53687091202097152"), ("18446744073709551615", "more than 64 bits count")]
    {
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
    let mut names: Vec<String> = std::fs::read_dir(dump)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
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

/// One card stands for all cards of its stage.
#[test]
fn a_training_step_of_thousands_of_cards_is_explained() {
    let line = "explain --train qwen2.5-0.5b --dtype bf16 --seq 32 --micro-batch 1 --json";
    let step_us = |more: &str| {
        let report = json(&words(&format!("{line} {more}")));
        (report["cards"].as_u64().unwrap(), report["step_us"].as_f64().unwrap())
    };
    let (few, more) = (
        step_us("--mesh dp=8 --cards 8 --global-batch 8"),
        step_us("--mesh dp=2048 --cards 2048 --global-batch 2048"),
    );
    assert_eq!((few.0, more.0), (8, 2048));
    assert!(more.1 > few.1 && more.1 < 20.0 * few.1, "{few:?} {more:?}");
    let slow = step_us("--mesh dp=8 --cards 8 --global-batch 8 --topology atlas-pcie");
    assert!(slow.1 > few.1, "{slow:?} {few:?}");
    let error = stderr(&words("explain qwen2.5-0.5b --cards 8 --topology atlas-pcie"));
    assert!(
        error.contains("options of the hardware are given without --train: found --topology atlas-pcie"),
        "{error}"
    );
}
