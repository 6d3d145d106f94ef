//! Tests of `generate` with contents of published checkpoints: sampling settings, chat templates,
//! several samples.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::{command, json, refused, root, stderr};

fn model_with(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in std::fs::read_dir(root().join("models/kjv-qwen2")).unwrap() {
        let entry = entry.unwrap();
        // A file that is written must not be a link to the shipped one.
        let is_own = files.iter().any(|(name, _)| entry.file_name() == *name);
        if !is_own && entry.file_name() != "generation_config.json" {
            symlink(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs `generate` with the words of a line. A `~` is a space.
fn generate(model: &Path, line: &str) -> Output {
    let common = "generate --device emulator --cards 1 --emulated-cards 1";
    let mut command = command();
    command.args(common.split(' ')).arg("--model").arg(model);
    command.args(line.split(' ').map(|word| word.replace('~', " "))).output().unwrap()
}

#[derive(Debug, PartialEq)]
struct Sampled {
    prompt: String,
    sample: u64,
    ids: Value,
}

fn samples(report: &Value) -> Vec<Sampled> {
    let of = |row: &Value| Sampled {
        prompt: row["prompt"].as_str().unwrap().to_owned(),
        sample: row["sample"].as_u64().unwrap(),
        ids: row["ids"].clone(),
    };
    report["sequences"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_sample_does_not_depend_on_its_batch_and_seeds_are_no_shifted_copies() {
    let model = model_with(&[]);
    let run = |more: &str| {
        let line = format!("--json --temperature 1.5 --max-new-tokens 8 --seed {more}");
        samples(&json(&generate(model.path(), &line)))
    };
    let alone = run("3 --prompt And~God --samples 4");
    let together = run("3 --prompt The~king --prompt And~God --samples 4");
    assert!(together.iter().map(|found| found.sample).eq([0, 1, 2, 3, 0, 1, 2, 3]));
    assert!(together[..4].iter().all(|found| found.prompt == "The king"));
    assert_eq!(together[4..], alone);
    let next = run("4 --prompt And~God --samples 4");
    for Sampled { sample, ids, .. } in &alone {
        assert!(next.iter().all(|other| other.ids != *ids), "sample {sample} of seed 3 is one of seed 4");
    }
    // A prompt gives the same sample alone and in a batch.
    let pair = run("3 --prompt The~king --prompt And~God");
    assert_eq!((&pair[0].ids, &pair[1].ids), (&together[0].ids, &alone[0].ids));
}

#[test]
fn generation_config_gives_the_default_settings() {
    let file = r#"{"eos_token_id": 0, "do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
        "repetition_penalty": 1.05, "max_new_tokens": 5}"#;
    let model = model_with(&[("generation_config.json", file)]);
    let output = generate(model.path(), "--json");
    let report = json(&output);
    let line = "sampling: temperature 0.7, top_k 20, top_p 0.8, repetition_penalty 1.05, max_new_tokens 5, from \
        generation_config.json; options override it, --generation-config none ignores it";
    assert_eq!(
        stderr(&output).lines().filter(|said| said.starts_with("sampling: ")).collect::<Vec<_>>(),
        [line]
    );
    assert_eq!(report["sampling"]["max_new_tokens"], 5);
    assert!(report["sequences"][0]["ids"].as_array().unwrap().len() <= 5);
    let sampling = |line: &str| {
        let report = json(&generate(model.path(), line));
        let of = |name: &str| report["sampling"][name].clone();
        let float = |name: &str| of(name).as_f64().map(|number| (number * 100.0).round() / 100.0);
        (float("temperature"), of("top_k"), float("top_p"), float("repetition_penalty"), of("max_new_tokens"))
    };
    assert_eq!(
        sampling("--json --temperature 0.3 --top-k 7 --max-new-tokens 2"),
        (Some(0.3), 7.into(), Some(0.8), Some(1.05), 2.into()),
        "an option wins"
    );
    let none = "--json --generation-config none --max-new-tokens 2";
    assert_eq!(sampling(none), (Some(0.0), Value::Null, None, Some(1.0), 2.into()));
    assert!(!stderr(&generate(model.path(), none)).contains("sampling: "));
    // Without do_sample, the most likely token is the default.
    let write = |text: &str| std::fs::write(model.path().join("generation_config.json"), text).unwrap();
    write(r#"{"do_sample": false, "temperature": 0.7, "top_p": 0.8}"#);
    let output = generate(model.path(), "--json --max-new-tokens 3");
    assert_eq!(json(&output)["sampling"]["temperature"], 0.0);
    assert!(!stderr(&output).contains("sampling: "), "{}", stderr(&output));
    write(r#"{"top_p": 7}"#);
    let output = generate(model.path(), "--json");
    assert_eq!(output.status.code(), Some(2));
    let expected = "generation_config.json: top_p: wrong value: expected a number from 0 to 1, found 7";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn penalties_biases_and_stop_ids_change_the_text_as_their_options_say() {
    let model = model_with(&[("generation_config.json", r#"{"eos_token_id": 0}"#)]);
    let run = |line: &str| {
        let line = format!("--json --prompt And~God --max-new-tokens 6 {line}");
        let report = json(&generate(model.path(), line.trim_end()));
        let ids: Vec<u64> =
            report["sequences"][0]["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        (ids, report)
    };
    let (plain, _) = run("");
    // The bias of OpenAI's limits decides alone. A presence penalty does not outweigh it.
    let (ids, report) = run("--logit-bias 7=100 --presence-penalty 2 --frequency-penalty 0.5");
    assert_eq!(ids, [7; 6]);
    let sampling = &report["sampling"];
    assert_eq!((&sampling["presence_penalty"], &sampling["frequency_penalty"]), (&2.0.into(), &0.5.into()));
    assert_eq!(sampling["logit_bias"], serde_json::json!({"7": 100.0}));
    let first = plain[0];
    assert!(!run(&format!("--logit-bias {first}=-100")).0.contains(&first));
    // Two biased tokens take turns once each has been generated as often.
    let (ids, _) = run("--logit-bias 7=100 --logit-bias 9=100 --frequency-penalty 2");
    assert!(ids.contains(&7) && ids.contains(&9), "{ids:?}");

    // Token 0 ends the text, unless it is ignored or too early.
    assert!(run("--logit-bias 0=100").0.is_empty());
    assert_eq!(run("--logit-bias 0=100 --ignore-eos").0, [0; 6]);
    let (ids, report) = run("--logit-bias 0=100 --min-tokens 3");
    assert_eq!((ids.len(), ids.contains(&0)), (3, false));
    assert_eq!(report["sequences"][0]["finish"]["reason"], "stop_id");
    let (ids, _) = run("--logit-bias 0=100 --min-tokens 3 --ignore-eos");
    assert_eq!((ids[..3].contains(&0), &ids[3..]), (false, [0; 3].as_slice()));

    let output = generate(
        model.path(),
        "--presence-penalty 3 --frequency-penalty -2.5 --logit-bias 7=101 --logit-bias 999999=1 --min-tokens 9 \
         --max-new-tokens 6",
    );
    let text = refused(&output);
    for expected in [
        "presence_penalty: out of range: expected -2 to 2, found 3",
        "frequency_penalty: out of range: expected -2 to 2, found -2.5",
        "logit_bias of token 7: out of range: expected -100 to 100, found 101",
        "logit_bias: token id outside the vocabulary: expected below",
        "--min-tokens: above the maximum number of new tokens: expected at most 6, found 9",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn chat_templates_see_the_variables_of_the_options() {
    let shows =
        "{{ raise_exception((tools | tojson) ~ (enable_thinking | tojson) ~ day ~ messages[0].content) }}";
    let tools = r#"[{"name": "f", "a": 1}]"#;
    let model = model_with(&[("chat_template.jinja", shows), ("tools.json", tools), ("one.json", "{}")]);
    let refused = |line: &str| {
        let output = generate(model.path(), line);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let path = |name: &str| model.path().join(name).display().to_string();
    let options = "--no-thinking --template-arg day=\"01~Jan\"";
    let message = refused(&format!("--chat --prompt Hi --tools {} {options}", path("tools.json")));
    assert!(message.contains(r#"[{"name": "f", "a": 1}]false01 JanHi"#), "{message}");
    let message = refused("--chat --prompt Hi --template-arg x=yes --template-arg y");
    assert!(message.contains("--template-arg x=yes: the value is not JSON: expected KEY=JSON"), "{message}");
    assert!(message.contains("--template-arg y: not a variable with a value"), "{message}");
    let message = refused(&format!("--chat --prompt Hi --tools {}", path("one.json")));
    assert!(message.contains("is not a list: expected a JSON list of tools"), "{message}");
    assert!(refused("--tools x").contains("--chat"));
    std::fs::write(path("mine.jinja"), "{{ raise_exception('mine of ' ~ messages[0].content) }}").unwrap();
    let message = refused(&format!("--chat --prompt Hi --chat-template {}", path("mine.jinja")));
    assert!(
        message.contains(
            "mine.jinja: the chat template refuses the messages: found invalid operation: mine of Hi"
        ),
        "{message}"
    );
}
