//! `ascend-tp train` as a user runs it: metrics, checkpoints, ends in the middle, resumes on the same and on other layouts, and
//! what is refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

/// Twelve steps on the golden data of a fixture; `more` are further arguments.
fn train(dir: &Path, name: &str, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-tp"));
    command.args(["train", "--device", "emulator", "--global-batch", "8"]);
    command.arg("--model").arg(fixture("fixtures/qwen2-gqa"));
    let data = fixture("fixtures_training/qwen2-gqa-adamw/data.safetensors").display().to_string();
    for (option, value) in [("--steps", "12"), ("--seq", "32"), ("--warmup-steps", "4"), ("--data", &data)] {
        if !more.contains(option) {
            command.args([option, value]);
        }
    }
    command.arg("--metrics").arg(dir.join(format!("{name}.jsonl")));
    command.args(more.split_whitespace()).stdin(Stdio::null());
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Loss and norm by step, each step once and in order.
fn curve(dir: &Path, name: &str) -> Vec<(f64, f64)> {
    let text = fs::read_to_string(dir.join(format!("{name}.jsonl"))).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["step"].as_u64(), Some(at as u64), "{name}: {line}");
        assert_eq!(line["tokens"].as_u64(), Some(256), "{name}: {line}");
    }
    lines.iter().map(|line| (line["loss"].as_f64().unwrap(), line["grad_norm"].as_f64().unwrap())).collect()
}

fn assert_close(found: &[(f64, f64)], expected: &[(f64, f64)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, ((loss, norm), (expected_loss, expected_norm))) in found.iter().zip(expected).enumerate() {
        let close = (loss - expected_loss).abs() <= 1e-5 && (norm - expected_norm).abs() <= 2e-5 * expected_norm;
        assert!(close, "{what}: step {step}: {loss} {norm}, expected {expected_loss} {expected_norm}");
    }
}

/// A guard against hangs.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn a_run_that_ends_in_the_middle_goes_on_as_if_it_had_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("checkpoints");
    done(&mut train(dir, "whole", "--cards 4 --mesh dp=2,tp=2 --zero 1"));
    let whole = curve(dir, "whole");
    assert_eq!(whole.len(), 12);

    // Killed once it has saved step 3, wherever it is then.
    let saving = format!("--cards 4 --mesh dp=2,tp=2 --zero 1 --save-every 3 --save {}", save.display());
    let mut child = train(dir, "killed", &saving).stderr(Stdio::null()).spawn().unwrap();
    let (_silent, timer) = channel::<()>();
    let deadline = Instant::now() + LONG;
    while !save.join("step-00000003/index.json").exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "no checkpoint came");
        assert_eq!(timer.recv_timeout(Duration::from_millis(5)), Err(RecvTimeoutError::Timeout));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    // The same layout: bit for bit. Others: within the order of their sums.
    let copy = dir.join("copy");
    let copied = Command::new("cp").arg("-r").arg(&save).arg(&copy).status().unwrap();
    assert!(copied.success());
    fs::copy(dir.join("killed.jsonl"), dir.join("other.jsonl")).unwrap();
    done(&mut train(dir, "killed", &format!("{saving} --resume")));
    assert_eq!(curve(dir, "killed"), whole);
    let other = format!("--cards 3 --mesh dp=3 --zero 2 --micro-batch 1 --resume --save {}", copy.display());
    done(&mut train(dir, "other", &other));
    assert_close(&curve(dir, "other"), &whole, "on another layout");

    // What is there is complete, and a changed byte is found.
    let last = save.join("step-00000012");
    let ascend = || Command::new(env!("CARGO_BIN_EXE_ascend-tp"));
    done(ascend().args(["checkpoint", "verify"]).arg(&last));
    let file = fs::read_dir(&last)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    let file = file.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() - 5;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let refused = train(dir, "killed", &format!("{saving} --resume --steps 14")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(matches!(refused.status.code(), Some(2 | 3)) && said.contains("step-00000012"), "{said}");
}

#[test]
fn weights_that_are_drawn_are_the_same_on_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(&mut train(dir, "one", "--init-seed 3 --cards 1 --steps 4"));
    done(&mut train(dir, "many", "--init-seed 3 --cards 4 --mesh dp=2,tp=2 --residual seq --steps 4"));
    let one = curve(dir, "one");
    assert_close(&curve(dir, "many"), &one, "drawn weights");
    // About the logarithm of the vocabulary, 259, as of weights that know nothing.
    assert!((one[0].0 - 259_f64.ln()).abs() < 0.2, "{one:?}");
}

#[test]
fn everything_that_is_wrong_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let recipe = dir.join("recipe.toml");
    fs::write(&recipe, "steps = 4\nclipnorm = 1.0\n").unwrap();
    let taken = dir.join("taken");
    done(&mut train(dir, "taken", &format!("--steps 1 --warmup-steps 0 --save {}", taken.display())));
    for (more, parts) in [
        ("--cards 4 --mesh dp=3".to_owned(), vec!["--mesh: is not of the cards: expected a product of 4"]),
        ("--mesh dp=1,pp=2 --cards 2".to_owned(), vec!["--mesh: an axis that training does not have"]),
        ("--momentum 0.9".to_owned(), vec!["--momentum: is no option of the optimizer: expected --optimizer sgd"]),
        (format!("--recipe {}", recipe.display()), vec!["recipe: line 2", "unknown field `clipnorm`"]),
        ("--lr 0 --seq 31".to_owned(), vec!["recipe: schedule.lr", "data.safetensors"]),
        ("--steps 41".to_owned(), vec!["data.safetensors"]),
        ("--data missing.safetensors".to_owned(), vec!["missing.safetensors"]),
        (format!("--save {}", taken.display()), vec!["--save: the folder has checkpoints of a run", "--resume"]),
    ] {
        let output = train(dir, "refused", &more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        for part in parts {
            assert!(said.contains(part), "{more}: {part} is not in\n{said}");
        }
    }
    assert!(!dir.join("refused.jsonl").exists());
}
