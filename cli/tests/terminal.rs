//! Tests that no line of a report exceeds `COLUMNS`. JSON is not wrapped.

use std::process::{Command, Output};

use crate::{command, fixture};

/// A small run of every command with a report.
const REPORTS: [&str; 28] = [
    "models",
    "explain qwen-72b --cards 8",
    "explain models/kjv-qwen2 --cards 4",
    "explain --train models/kjv-qwen2 --cards 4 --mesh dp=2,tp=2 --global-batch 16 --seq 256 --micro-batch 4",
    "explain --train models/kjv-qwen2 --cards 4 --mesh pp=2,tp=2 --global-batch 8 --seq 64 --micro-batch 2",
    "plan qwen2.5-0.5b --cards 4 --serve --batch 4",
    "plan qwen2.5-0.5b --cards 4 --serve --why tp=2",
    "plan qwen2.5-0.5b --cards 8 --train --seq 1024 --global-batch 16 --tokens 1e12",
    "plan qwen2.5-0.5b --cards 8 --train --seq 1024 --global-batch 16 --why tp=2",
    "rehearse qwen2.5-0.5b --cards 2 --input 64 --output 2",
    "rehearse qwen2.5-0.5b --train --cards 2 --mesh dp=2 --zero 1 --dtype bf16 --seq 256 --global-batch 4",
    "verify --model tests/fixtures/qwen2-gqa --cards 2 --device emulator",
    "verify --model tests/fixtures/qwen2-gqa --cards 2 --device emulator --dtype bf16 --reference tests/fixtures/qwen2-gqa/expected.safetensors",
    "verify --model tests/fixtures/qwen2-gqa --cards 2 --device emulator --exact",
    "verify --train --model tests/fixtures/qwen2-gqa --cards 2 --device emulator --global-batch 2 --seq 8",
    "doctor --no-smoke",
    "doctor --emulator --no-smoke",
    "generate --device emulator --cards 1 --max-new-tokens 2",
    "train --model models/kjv-qwen2 --data models/tiny-qwen2/text.txt --device emulator --steps 2 --global-batch 2 --seq 16 --cards 2",
    "bench limits --quick --device emulator",
    "--help",
    "train --help",
    // Refusals by this program and by the parser.
    "explain qwen-7b --cards 8",
    "plan qwen2.5-72b --cards 8 --train --seq 4096 --global-batch 64",
    "generate --tensor-parallel-size 8",
    "generate --device npu --model nowhere --cards 1000 --top-p 7",
    "man walk",
    "train --lora rank=0 --data nowhere.txt",
];

fn at(columns: &str, line: &str) -> Command {
    let mut command = command();
    command.args(line.split_whitespace()).env("COLUMNS", columns);
    command
}

fn lines(output: &Output) -> Vec<String> {
    let both = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    both.iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
}

fn longest(output: &Output) -> (usize, String) {
    let lines = lines(output).into_iter().map(|line| (line.chars().count(), line));
    lines.max_by_key(|(length, _)| *length).unwrap_or_default()
}

#[test]
fn no_line_of_a_report_is_longer_than_the_terminal() {
    for line in REPORTS {
        let output = at("100", line).output().unwrap();
        let (length, text) = longest(&output);
        assert!(length > 0, "{line}: nothing was printed");
        assert!(length <= 100, "{line}: {length}: {text}");
    }
}

#[test]
fn narrow_terminals_get_narrow_reports() {
    let of = ["explain qwen", "explain --train", "plan qwen", "rehearse", "doctor"];
    for line in of.map(|begin| REPORTS.iter().find(|line| line.starts_with(begin)).unwrap()) {
        let (length, text) = longest(&at("60", line).output().unwrap());
        assert!((1..=60).contains(&length), "{line}: {length}: {text}");
    }
}

#[test]
fn files_of_other_commands_are_reported_within_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("t.txt"), "In the beginning there were words, and the words were many. ".repeat(40))
        .unwrap();
    let (text, tokenizer, corpus, save) = (path("t.txt"), path("tok"), path("corpus"), path("save"));
    for line in [
        format!("data tokenizer {text} --vocab-size 300 --out {tokenizer}"),
        format!("data prepare {text} --tokenizer {tokenizer} --out {corpus}"),
        format!("data inspect {corpus} --tokenizer {tokenizer}"),
        format!(
            "train --model models/kjv-qwen2 --data {text} --device emulator --steps 1 --global-batch 2 --seq 8 --cards 2 --save {save}"
        ),
        format!("checkpoint inspect {save}"),
        format!("checkpoint verify {save}"),
        format!("checkpoint reshard {save} --mesh dp=2 --out {}", path("resharded")),
    ] {
        let output = at("100", &line).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        let (length, text) = longest(&output);
        assert!((1..=100).contains(&length), "{line}: {length}: {text}");
    }
}

#[test]
fn a_report_without_a_terminal_has_a_hundred_columns_and_all_if_asked() {
    let line = "explain qwen-72b --cards 8";
    let piped = at("", line).env_remove("COLUMNS").output().unwrap();
    assert!((60..=100).contains(&longest(&piped).0), "{}", longest(&piped).1);
    let wide = at("100", &format!("{line} --wide")).output().unwrap();
    assert!(longest(&wide).0 > 150, "{}", longest(&wide).1);
    // Logs are not wrapped.
    let refused = at("", "explain qwen-7b --cards 8").env_remove("COLUMNS").output().unwrap();
    assert!(longest(&refused).0 > 100, "{}", longest(&refused).1);
}

#[test]
fn json_is_never_wrapped() {
    let model = fixture("qwen2-gqa").display().to_string();
    for line in [
        format!("explain {model} --cards 2 --json"),
        format!("verify --model {model} --cards 2 --device emulator --json"),
    ] {
        let [narrow, wide] = ["40", "4000"].map(|columns| at(columns, &line).output().unwrap().stdout);
        assert!(narrow == wide && !narrow.is_empty(), "{line}");
    }
}
