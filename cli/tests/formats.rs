//! Numbers in fewer bits: caches of 8-bit integers, and packed weights.

use serde_json::{Value, json as value};

use crate::{json, stderr, succeeds, words};

#[test]
fn caches_of_integers_are_checked_and_counted() {
    let model = "verify --model models/kjv-qwen2 --cards 2 --device emulator --kv-dtype int8";
    let output = words(&format!("{model} --dtype bf16"));
    let said = succeeds(&output);
    assert!(said.contains("in bf16 with int8 caches: 1 card against 2") && said.contains("passed"), "{said}");
    let bytes = |kv: &str, command: &str| {
        let report = json(&words(&format!("{command} --kv-dtype {kv} --json")));
        (report["memory"]["kv_per_token"].as_u64(), report["kv_dtype"].clone())
    };
    let explain = "explain qwen-72b --cards 8 --context 2048";
    let ((Some(float), none), (Some(int8), name)) = (bytes("auto", explain), bytes("int8", explain)) else {
        panic!("no bytes of a token");
    };
    assert_eq!((none, name), (Value::Null, value!("int8")));
    assert_eq!(int8 * 256, float * 132);
    for (arguments, expected) in [
        (
            "verify --model models/kjv-qwen2 --cards 2 --train --seq 8 --kv-dtype int8",
            "'--train' cannot be used with '--kv-dtype <TYPE>'",
        ),
        (
            "explain deepseek-v3 --cards 8 --context 64 --kv-dtype int8",
            "--kv-dtype int8: latent attention has no key and value heads",
        ),
        ("generate --model models/kjv-qwen2 --kv-cache-dtype int8", "use --kv-dtype int8"),
    ] {
        let output = words(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(expected), "{arguments}: {}", stderr(&output));
    }
}

/// The note names the floats that the programs of this deployment have.
#[test]
fn packed_weights_that_become_floats_are_noted_with_the_reason() {
    let verify = "verify --model tests/fixtures/quantised/ct-w4a16-sym --device emulator --dtype bf16";
    for (options, expected) in [
        ("--cards 2", None),
        ("--cards 2 --exact", Some("14 weights in 4-bit groups become bf16: sums in a fixed order")),
        ("--cards 4 --mesh tp_row=2,tp_col=2", Some("14 weights in 4-bit groups become bf16: sums in a")),
    ] {
        let output = words(&format!("{verify} {options}"));
        succeeds(&output);
        let said = stderr(&output);
        match expected {
            Some(expected) => assert!(said.contains(expected), "{options}: {said}"),
            None => assert!(!said.contains("4-bit groups"), "{options}: {said}"),
        }
    }
}
