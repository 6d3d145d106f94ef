//! Tests of resuming `ascend-tp train` from healthy, damaged, foreign and missing checkpoints.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::train::{digest, done, train};
use crate::{command, fixture, names};

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Weights and loss leave the range of f16 after the second update.
#[test]
fn a_run_in_f16_ends_when_its_loss_is_not_finite_and_keeps_its_healthy_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let saving = format!("--save-every 1 --keep 2 --save {}", save.display());
    done(&mut train(dir, "healthy", &format!("--dtype f16 --steps 3 {saving}")));
    let (code, text) =
        said(&mut train(dir, "spoiled", &format!("--dtype f16 --lr 1e7 --steps 12 --resume {saving}")));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains(": the loss is NaN; ") || text.contains(": the loss is inf; "), "{text}");
    // The last update has no loss yet.
    let kept = names(&save);
    assert_eq!(kept.len(), 2, "{kept:?}");
    for name in &kept {
        done(command().args(["checkpoint", "verify"]).arg(save.join(name)));
    }
    assert_eq!(kept[0], "step-00000003", "a healthy checkpoint is gone: {text}");
}

/// A scale of 2^127 overflows every gradient. The run skips the steps.
#[test]
fn skipped_steps_write_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let recipe = |name: &str, hysteresis: usize, initial: f64| {
        let path = dir.join(name);
        fs::write(&path, format!("[loss_scale]\ninitial = {initial:e}\nhysteresis = {hysteresis}\n"))
            .unwrap();
        path.display().to_string()
    };
    let save = dir.join("saved");
    let saving = format!("--dtype f16 --save-every 1 --keep 1 --save {}", save.display());
    let endless = recipe("endless.toml", 1000, f64::powi(2.0, 127));
    let (code, text) = said(&mut train(dir, "endless", &format!("--recipe {endless} --steps 4 {saving}")));
    assert_eq!((code, save.exists()), (Some(3), false), "{text}");
    assert!(text.contains("every step was skipped") && text.contains("no checkpoint is written"), "{text}");
    // Steps are skipped until the scale has fallen. Saved steps start at the first good step.
    let falling = recipe("falling.toml", 1, f64::powi(2.0, 26));
    let more = format!("--recipe {falling} --steps 16 {}", saving.replace("--keep 1", "--keep 100"));
    done(&mut train(dir, "falling", &more));
    let lines = fs::read_to_string(dir.join("falling.jsonl")).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let good = lines
        .filter(|line| !line["grad_norm"].is_null())
        .map(|line| format!("step-{:08}", line["step"].as_u64().unwrap() + 1));
    let good: Vec<String> = good.collect();
    assert!(!good.is_empty() && good.len() < 16, "{good:?}");
    assert_eq!(names(&save), good);
    let (code, text) =
        said(&mut train(dir, "wrong", &format!("--recipe {} --steps 4", recipe("wrong.toml", 1, 1e300))));
    assert!(
        code == Some(2) && text.contains("recipe: loss_scale.initial: cannot be: expected 1 to 2^127"),
        "{text}"
    );
}

#[test]
fn a_run_whose_steps_are_done_says_so_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let saving = format!("--save {}", save.display());
    done(&mut train(dir, "run", &format!("--steps 4 {saving}")));
    let index = save.join("step-00000004/index.json");
    let (written, lines) =
        (fs::metadata(&index).unwrap().modified().unwrap(), fs::read(dir.join("run.jsonl")).unwrap());
    for steps in [2, 4] {
        let (code, text) = said(&mut train(dir, "run", &format!("--steps {steps} --resume {saving}")));
        let expected = format!(
            "nothing is left to do: {}/step-00000004 is at step 4, and --steps is {steps}\n",
            save.display()
        );
        assert_eq!((code, text), (Some(0), expected));
    }
    assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), written);
    assert_eq!(
        (names(&save), fs::read(dir.join("run.jsonl")).unwrap()),
        (vec!["step-00000004".to_owned()], lines)
    );
    // A request for weights is answered.
    let output = done(&mut train(dir, "run", &format!("--steps 2 --digest --resume {saving}")));
    assert_eq!(digest(&output).len(), 64);
}

fn damage(checkpoint: &Path) {
    let file = checkpoint.join("rank-00000-of-00001.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
}

#[test]
fn damaged_checkpoints_are_skipped_on_request_and_by_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let saving = format!("--save-every 1 --save {}", save.display());
    let whole = digest(&done(&mut train(dir, "run", &format!("{saving} --steps 4 --digest"))));
    let step = |step: usize| save.join(format!("step-{step:08}"));
    let torn = || {
        damage(&step(4));
        fs::remove_file(step(3).join("index.json")).unwrap();
    };
    torn();
    let (code, text) = said(&mut train(dir, "run", &format!("{saving} --resume --steps 6")));
    assert!(
        code == Some(2) && text.contains("step-00000004/rank-00000-of-00001.safetensors: torn or altered"),
        "{text}"
    );
    assert!(text.contains("--skip-damaged"), "{text}");
    let resumed = |more: &str, variable: (&str, &str)| {
        let output = done(
            train(dir, "run", &format!("{saving} --steps 4 --digest {more}")).env(variable.0, variable.1),
        );
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        for damaged in [3, 4] {
            let path = step(damaged).display().to_string();
            assert!(text.contains(&format!("{path} is damaged (")), "{more}: {text}");
            assert!(
                text.contains(&format!("renamed to {path}.damaged; continues from step 2\n")),
                "{more}: {text}"
            );
            fs::remove_dir_all(format!("{path}.damaged")).unwrap();
        }
        assert_eq!(digest(&output), whole, "{more}");
        assert_eq!(names(&save), [1, 2, 3, 4].map(|step| format!("step-{step:08}")));
    };
    resumed("--resume --skip-damaged", ("UNUSED", ""));
    torn();
    // Restarts by the launching process and by torchrun.
    resumed("--restart 1", ("UNUSED", ""));
    torn();
    resumed("--resume", ("TORCHELASTIC_RESTART_COUNT", "1"));
    // Without an intact checkpoint, a restart must not start over.
    (1..=4).for_each(|at| damage(&step(at)));
    let (code, text) = said(&mut train(dir, "run", &format!("{saving} --steps 6 --restart 1")));
    assert!(code == Some(2) && text.matches(": damaged: found ").count() == 4, "{text}");
    assert_eq!(names(&save).len(), 4);
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_its_tensors_before_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let saving = format!("--init-seed 1 --save {}", save.display());
    done(&mut train(dir, "run", &format!("{saving} --steps 2")));
    // The checkpoint contains every tensor of the shorter model.
    let shorter = dir.join("shorter");
    fs::create_dir(&shorter).unwrap();
    let config = fs::read_to_string(fixture("qwen2-gqa/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["num_hidden_layers"] = (config["num_hidden_layers"].as_u64().unwrap() - 1).into();
    if let Some(kinds) = config.get_mut("layer_types").and_then(Value::as_array_mut) {
        kinds.pop();
    }
    fs::write(shorter.join("config.json"), config.to_string()).unwrap();
    let resumed = format!("{saving} --resume --steps 4");
    let mut other = train(dir, "run", &resumed);
    // The last `--model` counts.
    let model = other.get_args().position(|word| word == "--model").unwrap() + 1;
    let words: Vec<_> = other.get_args().map(OsStr::to_owned).collect();
    other = command();
    other.args(
        words.iter().enumerate().map(|(at, word)| if at == model { shorter.as_os_str() } else { word }),
    );
    for (mut command, expected) in [
        (other, [": unexpected tensor: expected no such tensor, found f32 [", "layers."]),
        (train(dir, "run", &format!("{resumed} --optimizer sgd")), [": first_moment.", "unexpected tensor"]),
        (
            train(dir, "run", &format!("{resumed} --optimizer sgd --momentum 0.9")),
            [": momentum.", "missing tensor: expected f32 ["],
        ),
    ] {
        let (code, text) = said(&mut command);
        assert_eq!(code, Some(2), "{text}");
        let help = "the checkpoint is of another model, optimizer or precision";
        assert!(expected.iter().chain([&help]).all(|part| text.contains(part)), "{text}");
    }
    // An invalid folder does not matter until the first checkpoint.
    for save in ["/proc/none/here", "/dev/null/x"] {
        let (code, text) = said(&mut train(dir, "unwritable", &format!("--steps 2 --save {save}")));
        assert!(
            code == Some(2) && text.contains("--save: ") && text.contains(save.split('/').nth(1).unwrap()),
            "{text}"
        );
    }
    assert!(!dir.join("unwritable.jsonl").exists());
}
