//! Tests of `bench` at small sizes. They check that figures exist and are positive, but not the
//! values.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{LAUNCHER, stderr, stdout};

mod ends;
mod peers;

const MODEL: &str = "tests/fixtures/qwen2-gqa";

/// Returns `bench` without the test runner's variables.
fn command(arguments: &str) -> Command {
    let mut command = crate::command();
    for name in LAUNCHER {
        command.env_remove(name);
    }
    command.arg("bench").args(arguments.split_whitespace());
    command
}

fn bench(arguments: &str) -> Output {
    command(arguments).args(["--device", "emulator", "--quick"]).output().unwrap()
}

fn succeeds(arguments: &str) -> String {
    crate::succeeds(&bench(arguments))
}

/// Returns the rows of the first table.
fn rows(arguments: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(&succeeds(&format!("{arguments} --json"))).unwrap();
    assert!(report["limits"]["read_bytes_s"].as_f64().unwrap() > 0.0);
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
    report["tables"][0]["rows"].as_array().unwrap().clone()
}

fn positive(rows: &[Value], keys: &[&str]) {
    assert!(!rows.is_empty());
    for row in rows {
        for key in keys {
            assert!(row[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {row}");
        }
    }
}

#[test]
fn limits_have_a_unit_each() {
    let rows = rows("limits");
    positive(&rows, &["value"]);
    let units: Vec<&str> = rows.iter().map(|row| row["unit"].as_str().unwrap()).collect();
    assert_eq!(units, ["GB/s", "GB/s", "GB/s", "GFLOP/s", "GFLOP/s"]);
}

#[test]
fn every_collective_is_checked_and_has_both_bandwidths() {
    let options = "collectives --dtype f32,bf16 --ranks 1,3 --min-bytes 1 --max-bytes 4K --step-factor 4096 --iterations 2";
    let rows = rows(options);
    positive(&rows, &["time_us", "mean_us", "alone_us", "algbw_gb_s", "of_copy"]);
    // Five operators, two types, two numbers of ranks, sizes 1 and 4096.
    assert_eq!(rows.len(), 40);
    assert!(rows.iter().all(|row| row["check"] == "exact"));
    let of_three = rows.iter().find(|row| row["ranks"] == 3.0 && row["op"] == "all_reduce").unwrap();
    let factor = of_three["busbw_gb_s"].as_f64().unwrap() / of_three["algbw_gb_s"].as_f64().unwrap();
    assert!((factor - 4.0 / 3.0).abs() < 1e-9, "{factor}");
}

#[test]
fn one_order_of_sums_is_measured_beside_none() {
    let rows = rows("exact");
    positive(&rows, &["usual_ms", "exact_ms", "ratio", "usual_bytes", "exact_bytes"]);
    let number = |key: &str| rows[0][key].as_f64().unwrap();
    assert!((number("ratio") - number("exact_ms") / number("usual_ms")).abs() < 1e-9);
}

/// A server sends its sums to all cards, in two exchanges with two halves each.
#[test]
fn a_parameter_server_is_measured_beside_collectives() {
    let rows = rows("train --baseline ps");
    let names: Vec<&str> = rows.iter().map(|row| row["sums"].as_str().unwrap()).collect();
    assert_eq!(names, ["all_reduce", "exact", "parameter server"]);
    positive(&rows, &["sent_bytes", "clock_ms", "exchanges_ms", "step_ms", "equal"]);
    let number = |at: usize, key: &str| rows[at][key].as_f64().unwrap();
    assert_eq!(
        (number(0, "equal"), number(2, "equal")),
        (1.0, 1.0),
        "the emulator adds in the order of the cards"
    );
    assert!(
        number(2, "sent_bytes") > number(0, "sent_bytes")
            && number(2, "exchanges_ms") > number(0, "exchanges_ms")
    );
}

#[test]
fn processes_measure_together_and_the_first_speaks() {
    let text =
        succeeds("collectives --op all_reduce --min-bytes 4K --max-bytes 4K --iterations 2 --processes 3");
    assert_eq!(text.matches("Collectives across 3 processes").count(), 1, "{text}");
    let row = text.lines().last().unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        (cells[..3].to_vec(), cells.last()),
        (vec!["all_reduce", "f32", "3"], Some(&"exact")),
        "{text}"
    );
}

#[test]
fn a_shape_generates_on_one_card_and_on_several() {
    let decode = rows(&format!("decode --model {MODEL} --cards 1,3 --prompt 4 --tokens 8 --captured"));
    positive(&decode, &["step_ms", "tokens_s", "limit_tokens_s", "of_limit", "of_first"]);
    assert_eq!(decode.iter().map(|row| row["cards"].as_f64().unwrap()).collect::<Vec<_>>(), [1.0, 3.0]);
    let prefill = rows(&format!("prefill --model {MODEL} --cards 2 --prompt 16 --dtype f32"));
    positive(&prefill, &["time_ms", "tokens_s", "gflops", "of_limit"]);
    assert_eq!(prefill[0]["of_first"], 1.0);
}

#[test]
fn the_operators_of_both_programs_share_all_of_their_time() {
    let rows = rows(&format!("ops --model {MODEL} --cards 2 --prompt 8"));
    positive(&rows, &["count", "time_us", "of_limit", "share"]);
    let share: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((share - 2.0).abs() < 1e-9, "{share}");
    assert!(rows.iter().any(|row| row["operator"] == "aclnnMatmul"));
}

#[test]
fn the_executor_is_timed_both_ways() {
    let rows = rows(&format!("host --model {MODEL} --cards 2"));
    positive(&rows, &["steps", "cpu_ns", "wall_ns", "process_ns"]);
    assert_eq!(
        rows.iter().map(|row| row["launching"].as_str().unwrap()).collect::<Vec<_>>(),
        ["eager", "captured"]
    );
}

#[test]
fn compiling_and_loading_have_a_row_a_setting() {
    let compiled = rows(&format!("compile --model {MODEL} --cards 1,2"));
    positive(&compiled, &["time_ms", "layer_rank_us", "steps"]);
    assert_eq!(compiled.len(), 2);
    let loaded = rows(&format!("load --model {MODEL} --cards 2"));
    positive(&loaded, &["bytes", "shard_bytes", "time_ms", "gb_s", "of_copy"]);
    assert_eq!(
        loaded.iter().map(|row| row["load"].as_str().unwrap()).collect::<Vec<_>>(),
        ["first", "again"]
    );
}

#[test]
fn a_page_and_a_drawing_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (page, drawing) = (folder.path().join("SPEED.md"), folder.path().join("one.svg"));
    let options = "collectives --op all_gather --ranks 2 --min-bytes 1K --max-bytes 16K --iterations 1";
    succeeds(&format!("{options} --report {} --plot {}", page.display(), drawing.display()));
    let svg = std::fs::read_to_string(drawing).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("all_gather, f32, 2 ranks"), "{svg}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("| all_gather | f32   |     2 | 16.0 KiB |")
            && page.starts_with("# Performance\n\nMade by `ascend-tp bench"),
        "{page}"
    );
    assert!(page.contains("](speed/collectives.svg)"), "{page}");
    assert_eq!(std::fs::read_to_string(folder.path().join("speed/collectives.svg")).unwrap(), svg);
}

#[test]
fn nonsense_is_refused_with_what_would_do() {
    for (arguments, expected) in [
        ("", "Usage: ascend-tp bench"),
        ("everything", "unrecognized subcommand 'everything'"),
        ("collectives --op all_sum", "expected one of all_reduce, all_gather"),
        ("collectives --dtype i32", "--dtype: is not a float type: expected f32, f16 or bf16, found i32"),
        ("collectives --ranks 65", "--ranks: too many ranks for an exact check: expected 1 to 64, found 65"),
        ("collectives --min-bytes 1.5M", "expected bytes such as 4096, 16K or 64M, found 1.5M"),
        ("collectives --min-bytes 4K --max-bytes 1K", "--min-bytes: no sizes to measure"),
        ("collectives --max-bytes 64G --min-bytes 64G", "--max-bytes: is too large"),
        ("collectives --step-factor 1", "expected a whole number of at least 2, found 1"),
        ("collectives --ranks 2 --processes 2", "cannot be used with"),
        ("decode --model qwen-9", "neither a folder nor a preset"),
        ("prefill --prompt 99999999", "--prompt: with --tokens does not fit the model's context"),
        ("compile --cards 4", "--model"),
        ("limits --plot nowhere.svg", "--plot: this part has nothing to draw"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{arguments}: {}", stderr(&output));
    }
}
