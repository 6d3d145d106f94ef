//! Tests of `ascend-tp train`: metrics, checkpoints, interruptions, resumes, refusals.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::after;
use serde_json::Value;

use crate::trace::check;
use crate::{command, fixture, root};

/// Trains twelve steps on a fixture's golden data.
pub(crate) fn train(dir: &Path, name: &str, more: &str) -> Command {
    let mut command = command();
    command.args(["train", "--device", "emulator", "--global-batch", "8"]);
    command.arg("--model").arg(fixture("qwen2-gqa"));
    let data = root().join("tests/fixtures_training/qwen2-gqa-adamw/data.safetensors").display().to_string();
    for (option, value) in [("--steps", "12"), ("--seq", "32"), ("--warmup-steps", "4"), ("--data", &data)] {
        if !more.contains(option) {
            command.args([option, value]);
        }
    }
    command.arg("--metrics").arg(dir.join(format!("{name}.jsonl")));
    command.args(more.split_whitespace());
    command
}

pub(crate) fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns loss and norm by step, and checks that each step occurs once and in order.
pub(crate) fn curve(dir: &Path, name: &str) -> Vec<(f64, f64)> {
    let text = fs::read_to_string(dir.join(format!("{name}.jsonl"))).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["step"].as_u64(), Some(at as u64), "{name}: {line}");
        assert_eq!(line["tokens"].as_u64(), Some(256), "{name}: {line}");
    }
    lines.iter().map(|line| (line["loss"].as_f64().unwrap(), line["grad_norm"].as_f64().unwrap())).collect()
}

pub(crate) fn assert_close(found: &[(f64, f64)], expected: &[(f64, f64)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, ((loss, norm), (expected_loss, expected_norm))) in found.iter().zip(expected).enumerate() {
        let close =
            (loss - expected_loss).abs() <= 1e-5 && (norm - expected_norm).abs() <= 2e-5 * expected_norm;
        assert!(close, "{what}: step {step}: {loss} {norm}, expected {expected_loss} {expected_norm}");
    }
}

/// Returns the last line of stdout.
pub(crate) fn digest(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let digest =
        text.lines().last().and_then(|line| line.strip_prefix("digest ")).unwrap_or_else(|| panic!("{text}"));
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
    digest.to_owned()
}

#[test]
fn an_exact_run_prints_one_digest_on_every_mesh_and_after_a_change_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("checkpoints");
    let exact = "--exact --digest --steps 4";
    let whole = digest(&done(&mut train(dir, "whole", exact)));
    let expected = curve(dir, "whole");
    let saving = format!("--save-every 2 --save {}", save.display());
    let other =
        format!("{exact} --cards 8 --mesh pp=2,dp=2,tp=2 --zero 1 --micro-batch 2 --residual seq {saving}");
    assert_eq!(digest(&done(&mut train(dir, "other", &other))), whole);
    assert_eq!(curve(dir, "other"), expected);
    fs::remove_dir_all(save.join("step-00000004")).unwrap();
    let resumed = format!("{exact} --cards 4 --mesh dp=4 --zero 3 --micro-batch 1 --resume {saving}");
    assert_eq!(digest(&done(&mut train(dir, "other", &resumed))), whole);
    assert_eq!(curve(dir, "other"), expected);
    // Without `--exact` the digest differs.
    assert_ne!(digest(&done(&mut train(dir, "usual", "--digest --steps 4 --cards 2"))), whole);
    let refused = train(dir, "refused", "--exact --cards 3").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("tp does not divide the 16 blocks"), "{said}");
    // Resharding refuses a mesh that cannot continue the run.
    let cut = dir.join("cut");
    let reshard = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ascend-tp"));
        command
            .args(["checkpoint", "reshard"])
            .arg(&save)
            .args(options)
            .arg("--out")
            .arg(&cut)
            .output()
            .unwrap()
    };
    for options in [&["--mesh", "dp=3"][..], &["--mesh", "dp=3", "--zero", "1"]] {
        let refused = reshard(options);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let parts = ["dp does not divide the 16 blocks", "found dp=3"];
        assert!(refused.status.code() == Some(2) && parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!cut.exists());
    }
    assert!(reshard(&["--mesh", "cp=2,tp=2"]).status.success() && cut.exists());
}

/// Time limit against hangs.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn a_run_that_ends_in_the_middle_goes_on_as_if_it_had_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("checkpoints");
    done(&mut train(dir, "whole", "--cards 4 --mesh dp=2,tp=2 --zero 1"));
    let whole = curve(dir, "whole");
    assert_eq!(whole.len(), 12);

    // Kill the run after it saved step 3.
    let saving = format!("--cards 4 --mesh dp=2,tp=2 --zero 1 --save-every 3 --save {}", save.display());
    let mut child = train(dir, "killed", &saving).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + LONG;
    while !save.join("step-00000003/index.json").exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "no checkpoint came");
        after(Duration::from_millis(5)).recv().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();

    // Equal layouts give equal bits. Other layouts change the order of sums.
    let copy = dir.join("copy");
    let copied = Command::new("cp").arg("-r").arg(&save).arg(&copy).status().unwrap();
    assert!(copied.success());
    fs::copy(dir.join("killed.jsonl"), dir.join("other.jsonl")).unwrap();
    done(&mut train(dir, "killed", &format!("{saving} --resume")));
    assert_eq!(curve(dir, "killed"), whole);
    let other = format!("--cards 3 --mesh dp=3 --zero 2 --micro-batch 1 --resume --save {}", copy.display());
    done(&mut train(dir, "other", &other));
    assert_close(&curve(dir, "other"), &whole, "on another layout");

    // Verification finds a changed byte.
    let last = save.join("step-00000012");
    let ascend = || command();
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

/// Reshards weights for other cards and back.
#[test]
fn a_checkpoint_of_cut_weights_is_cut_again_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let own = "--cards 4 --mesh dp=4 --zero 3 --micro-batch 1";
    done(&mut train(dir, "whole", &format!("{own} --save {} --save-every 5", dir.join("first").display())));
    let whole = curve(dir, "whole");
    assert_eq!(whole.len(), 12);
    for later in ["step-00000010", "step-00000012"] {
        fs::remove_dir_all(dir.join("first").join(later)).unwrap();
    }
    let ascend = |words: &str| {
        let mut command = command();
        command.current_dir(dir).args(words.split_whitespace());
        done(&mut command)
    };
    let resumed = |name: &str, save: &str, more: &str| {
        fs::copy(dir.join("whole.jsonl"), dir.join(format!("{name}.jsonl"))).unwrap();
        done(&mut train(dir, name, &format!("{more} --resume --save {}", dir.join(save).display())));
        curve(dir, name)
    };
    for (mesh, more) in [
        ("dp=2,tp=2", "--cards 4 --mesh dp=2,tp=2 --residual seq --zero 3"),
        ("dp=3 --zero 3", "--cards 3 --mesh dp=3 --zero 3 --micro-batch 1"),
        ("dp=2,tp=3 --zero 1", "--cards 6 --mesh dp=2,tp=3 --zero 1"),
        ("dp_rep=2,dp_shard=2 --zero 3", "--cards 4 --mesh dp_rep=2,dp_shard=2 --zero 3"),
        ("tp=2", "--cards 2 --mesh tp=2"),
        ("cp=2,tp=2 --zero 1", "--cards 4 --mesh cp=2,tp=2 --zero 1"),
        ("pp=2,dp=2 --zero 1", "--cards 4 --mesh pp=2,dp=2 --zero 1 --micro-batch 1"),
    ] {
        let name = mesh.replace([',', '=', ' '], "");
        ascend(&format!("checkpoint reshard first --mesh {mesh} --out {name}"));
        ascend(&format!("checkpoint verify {name}"));
        let (found, back) = (resumed(&name, &name, more), format!("{name}-back"));
        assert_ne!(found, whole, "{mesh}: nothing was computed again");
        assert_close(&found, &whole, mesh);
        // The original cards continue bit for bit.
        fs::remove_dir_all(dir.join(&name).join("step-00000012")).unwrap();
        ascend(&format!("checkpoint reshard {name} --mesh dp=4 --zero 3 --out {back}"));
        assert_eq!(resumed(&back, &back, own), whole, "{mesh} and back");
    }
}

#[test]
fn adapters_are_trained_resumed_exported_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let root = root();
    let (model, text) = (root.join("models/kjv-qwen2"), root.join("models/tiny-qwen2/text.txt"));
    let ascend = |words: &str| {
        let mut command = command();
        command.current_dir(dir).args(words.split_whitespace());
        command
    };
    let train = |name: &str, more: &str| {
        let data = format!("--model {} --data {} --metrics {name}.jsonl", model.display(), text.display());
        let size =
            "--global-batch 4 --seq 64 --warmup-steps 0 --lr 1e-2 --optimizer adamw --schedule constant";
        done(&mut ascend(&format!("train --device emulator {data} {size} --steps 4 {more}")));
        curve(dir, name)
    };
    let lora = "--lora rank=4,alpha=8,targets=q_proj+down_proj";
    let whole = train("whole", &format!("{lora} --cards 1 --save whole --sample And"));
    // Continue on other cards after step 2.
    let part = format!("{lora} --save part --save-every 2");
    train("first", &format!("{part} --cards 4 --mesh dp=2,tp=2 --zero 3"));
    fs::remove_dir_all(dir.join("part/step-00000004")).unwrap();
    let again = train("first", &format!("{part} --cards 3 --residual seq --resume"));
    assert_close(&again, &whole, "resumed on other cards");

    let inspected = done(&mut ascend("checkpoint inspect whole --json"));
    let index: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    let names: Vec<&String> = index["tensors"].as_object().unwrap().keys().collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.contains(".lora_")), "{names:?}");

    done(&mut ascend("checkpoint export whole --adapter adapter --hf merged --dtype f32"));
    let prompt = "--prompt God --cards 2 --dtype f32 --max-new-tokens 24 --device emulator";
    let said = |of: &str| done(&mut ascend(&format!("generate {prompt} {of}"))).stdout;
    let base = said(&format!("--model {}", model.display()));
    let adapted = said(&format!("--model {} --adapter adapter", model.display()));
    assert_eq!(adapted, said("--model merged"));
    assert_ne!(adapted, base, "training changed nothing");
    let served = |adapter: &str| {
        let options = "serve --dry-run --cards 1 --max-num-seqs 2 --max-model-len 64";
        ascend(&format!("{options} --device emulator {} --adapter {adapter}", model.display()))
    };
    let plan = String::from_utf8(done(&mut served("mine=adapter")).stdout).unwrap();
    assert!(plan.contains("mine (rank 4 in all)"), "{plan}");
    let wrong = served("kjv-qwen2=nowhere").output().unwrap();
    let errors = String::from_utf8_lossy(&wrong.stderr);
    let expected = ["--adapter: has the name of the model", "adapter kjv-qwen2: nowhere/adapter_config.json"];
    assert!(expected.iter().all(|part| errors.contains(part)), "{errors}");

    let refused = ascend(&format!(
        "train --data {} --init-seed 1 --model {} --lora rank=4,alpha=8,targets=qproj",
        text.display(),
        model.display()
    ));
    let refused = { refused }.output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    for part in
        ["lora: targets: no linear layer of the model is called so", "--lora: adapters need trained weights"]
    {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn weights_that_are_drawn_are_the_same_on_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(&mut train(dir, "one", "--init-seed 3 --cards 1 --steps 4"));
    done(&mut train(dir, "many", "--init-seed 3 --cards 4 --mesh dp=2,tp=2 --residual seq --steps 4"));
    let one = curve(dir, "one");
    assert_close(&curve(dir, "many"), &one, "drawn weights");
    // Untrained weights: the logarithm of the vocabulary size 259.
    assert!((one[0].0 - 259_f64.ln()).abs() < 0.2, "{one:?}");
}

#[test]
fn a_compressed_run_goes_on_with_the_same_bits_and_on_more_cards() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("save");
    let more =
        format!("--compress onebit --compress-after 3 --save {} --save-every 6 --digest", save.display());
    let whole = digest(&done(&mut train(dir, "whole", &format!("--cards 2 --mesh dp=2 {more}"))));
    fs::remove_dir_all(save.join("step-00000012")).unwrap();
    let resumed =
        digest(&done(&mut train(dir, "resumed", &format!("--cards 2 --mesh dp=2 --resume {more}"))));
    assert_eq!(resumed, whole);
    fs::remove_dir_all(save.join("step-00000012")).unwrap();
    done(&mut train(dir, "wider", &format!("--cards 8 --mesh dp=4,tp=2 --resume {more}")));
    let plain = digest(&done(&mut train(dir, "plain", "--cards 2 --mesh dp=2 --digest")));
    assert_ne!(plain, whole, "behind the warm-up gradients are others");
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
        (
            "--cards 4 --mesh dp=3".to_owned(),
            vec!["--mesh: does not match the cards: expected a product of 4"],
        ),
        ("--mesh dp=1,xp=2 --cards 2".to_owned(), vec!["--mesh: an unknown axis"]),
        (
            "--mesh dp=1,ep=2 --cards 2".to_owned(),
            vec!["layout: expert: shares experts, and the model has none"],
        ),
        ("--mesh pp=8 --cards 8".to_owned(), vec!["pipeline: stages: need one layer each"]),
        (
            "--mesh pp=2 --cards 2 --micro-batch 99".to_owned(),
            vec!["pipeline: micro-batches: are fewer than the stages"],
        ),
        ("--mesh pp=2 --cards 2 --pipeline dapple".to_owned(), vec!["`dapple` is none of gpipe, 1f1b"]),
        (
            "--momentum 0.9".to_owned(),
            vec!["--momentum: is not an option of the optimizer: expected --optimizer sgd"],
        ),
        (format!("--recipe {}", recipe.display()), vec!["recipe: line 2", "unknown field `clipnorm`"]),
        ("--compress topk=2".to_owned(), vec!["`topk=2` is none of onebit and topk=SHARE"]),
        ("--compress-after 3".to_owned(), vec!["--compress-after: gradients are not compressed"]),
        (
            "--compress onebit --exact --zero 1 --cards 2 --mesh dp=2".to_owned(),
            vec!["--compress: each card needs the whole weight", "--compress: the compression error depends"],
        ),
        ("--lr 0 --seq 31".to_owned(), vec!["recipe: schedule.lr", "data.safetensors"]),
        ("--steps 41".to_owned(), vec!["data.safetensors"]),
        ("--data missing.safetensors".to_owned(), vec!["missing.safetensors"]),
        (
            format!("--save {}", taken.display()),
            vec!["--save: the folder contains checkpoints of a run", "--resume"],
        ),
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

const ALL: &str = "--steps 40";

pub(crate) fn send(signal: &str, process: u32) {
    let status = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status().unwrap();
    assert!(status.success(), "process {process} has ended before it was sent {signal}");
}

/// Waits until the metrics have `steps` lines.
pub(crate) fn wait_for_steps(dir: &Path, name: &str, steps: usize) {
    let deadline = Instant::now() + LONG;
    let lines =
        || fs::read_to_string(dir.join(format!("{name}.jsonl"))).map_or(0, |text| text.lines().count());
    while lines() < steps {
        assert!(Instant::now() < deadline, "step {steps} of {name} did not come");
        after(Duration::from_millis(2)).recv().unwrap();
    }
}

/// Processes of one run, with output to files.
struct Ranks {
    children: Vec<Child>,
    said: Vec<PathBuf>,
}

impl Ranks {
    fn start(dir: &Path, name: &str, size: usize, more: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let said: Vec<PathBuf> = (0..size).map(|rank| dir.join(format!("{name}.{rank}.stderr"))).collect();
        let start = |(rank, said): (usize, &PathBuf)| {
            let mut command = train(dir, name, more);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", &port)
                .env("HCCL_CONNECT_TIMEOUT", "60");
            command.stderr(fs::File::create(said).unwrap()).spawn().unwrap()
        };
        Self { children: said.iter().enumerate().map(start).collect(), said }
    }

    /// Returns exit codes and output by rank.
    fn finish(&mut self) -> Vec<(Option<i32>, String)> {
        let deadline = Instant::now() + LONG;
        let mut finish = |child: &mut Child| loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "a process hangs");
            after(Duration::from_millis(2)).recv().unwrap();
        };
        let codes: Vec<Option<i32>> = self.children.iter_mut().map(&mut finish).collect();
        codes
            .into_iter()
            .zip(&self.said)
            .map(|(code, said)| (code, fs::read_to_string(said).unwrap()))
            .collect()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let (_killed, _waited) = (child.kill(), child.wait());
        }
    }
}

/// Traces the second step, with one process and with four.
#[test]
fn a_step_is_traced_and_every_step_says_how_its_time_divides() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let path = |name: &str| dir.join(format!("{name}.trace.json"));
    let more =
        |name: &str| format!("--steps 3 --micro-batch 2 --mesh dp=2,tp=2 --trace {}", path(name).display());
    let output = done(&mut train(dir, "alone", &format!("{} --cards 4", more("alone"))));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("alone.trace.json: step 1\n"), "{said}");
    for (rank, (code, said)) in Ranks::start(dir, "many", 4, &more("many")).finish().into_iter().enumerate() {
        assert_eq!(code, Some(0), "rank {rank}: {said}");
    }
    let [alone, many] = ["alone", "many"].map(|name| check(&fs::read_to_string(path(name)).unwrap()));
    for found in [&alone, &many] {
        assert_eq!(found.threads.len(), 4 * 2 + 1);
        assert_eq!(found.of("programs"), 2);
        assert_eq!(found.of("compute stream"), alone.of("compute stream"));
        assert!(
            found.of("compute stream") > 4 * 100
                && found.of("communication stream") > 4 * 10
                && found.arrows > 0
        );
    }
    for name in ["alone", "many"] {
        assert_eq!(curve(dir, name).len(), 3);
        for line in fs::read_to_string(dir.join(format!("{name}.jsonl"))).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key}: {line}"));
            let parts = ["compute_seconds", "exposed_collective_seconds", "idle_seconds"].map(number);
            assert!((parts.iter().sum::<f64>() - number("seconds")).abs() < 1e-9, "{line}");
            assert!(parts.iter().all(|part| *part > 0.0), "{line}");
            assert!(
                number("hidden_collective_seconds") <= parts[0] && number("memory_peak_bytes") > 1e5,
                "{line}"
            );
        }
    }
    // A run that ends earlier writes no trace. An invalid path is refused before the first step.
    let output = done(&mut train(dir, "short", &format!("--steps 1 --trace {}", path("short").display())));
    assert!(String::from_utf8_lossy(&output.stderr).contains("short.trace.json: step 0\n"), "the only step");
    let refused = train(dir, "refused", "--trace /nowhere/t.json").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("--trace: /nowhere/t.json"), "{said}");
    assert!(!dir.join("refused.jsonl").exists());
}

/// Returns the newest checkpoint's steps, and checks that no file is incomplete.
fn saved(save: &Path) -> usize {
    let entries = fs::read_dir(save).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let newest = entries.inspect(|name| assert!(name.starts_with("step-"), "{name} was left")).max().unwrap();
    let mut ascend = command();
    done(ascend.args(["checkpoint", "verify"]).arg(save.join(&newest)));
    newest.trim_start_matches("step-").parse().unwrap()
}

#[test]
fn a_signal_saves_the_last_step_and_the_run_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(&mut train(dir, "whole", &format!("{ALL} --cards 2 --mesh dp=2")));
    let whole = curve(dir, "whole");
    // Save at the end, or at every step so that the signal arrives during a save.
    for (signal, every) in [("TERM", ""), ("INT", "--save-every 1")] {
        let save = dir.join(signal);
        let more = format!("{ALL} --cards 2 --mesh dp=2 --save {} {every}", save.display());
        let run = train(dir, signal, &more).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_steps(dir, signal, 3);
        send(signal, run.id());
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(said.contains("saved ") && said.ends_with("interrupted\n"), "{said}");
        let steps = curve(dir, signal).len();
        assert!((3..40).contains(&steps), "{steps} steps");
        assert_eq!(saved(&save), steps, "{said}");
        done(&mut train(dir, signal, &format!("{more} --resume")));
        assert_eq!(curve(dir, signal), whole);
    }
}

#[test]
fn stages_are_processes_too() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let more = "--steps 3 --mesh pp=2,tp=2 --pipeline zb-h1 --micro-batch 2";
    done(&mut train(dir, "whole", &format!("{more} --cards 4")));
    for (rank, (code, said)) in Ranks::start(dir, "run", 4, more).finish().into_iter().enumerate() {
        assert_eq!(code, Some(0), "rank {rank}: {said}");
    }
    assert_eq!(curve(dir, "run"), curve(dir, "whole"));
    done(&mut train(dir, "one", "--steps 3 --cards 1"));
    assert_close(&curve(dir, "run"), &curve(dir, "one"), "in two stages");
}

#[test]
fn processes_end_after_the_same_step_whichever_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mesh = "--mesh dp=2,tp=2 --zero 1";
    done(&mut train(dir, "whole", &format!("{ALL} --cards 4 {mesh}")));
    let save = dir.join("save");
    let more = format!("{ALL} {mesh} --save {} --save-every 2 --resume", save.display());
    let mut before = 0;
    for told in [&[0, 1, 2, 3][..], &[2]] {
        let mut ranks = Ranks::start(dir, "run", 4, &more);
        wait_for_steps(dir, "run", before + 3);
        for rank in told {
            send("TERM", ranks.children[*rank].id());
        }
        for (rank, (code, said)) in ranks.finish().into_iter().enumerate() {
            assert_eq!(code, Some(130), "rank {rank}: {said}");
        }
        let steps = curve(dir, "run").len();
        assert!((before + 3..40).contains(&steps), "{steps} steps after {before}");
        assert_eq!(saved(&save), steps);
        before = steps;
    }
    done(&mut train(dir, "run", &format!("{more} --cards 4")));
    assert_eq!(curve(dir, "run"), curve(dir, "whole"));
}

#[test]
fn a_process_that_is_killed_is_named_and_the_run_goes_on_from_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(&mut train(dir, "whole", &format!("{ALL} --cards 4 --mesh tp=4")));
    let save = dir.join("save");
    let more = format!("{ALL} --save {} --save-every 2 --keep 2", save.display());
    let mut ranks = Ranks::start(dir, "run", 4, &format!("{more} --mesh tp=4"));
    wait_for_steps(dir, "run", 6);
    let killed = ranks.children[2].id();
    let begun = Instant::now();
    send("KILL", killed);
    let ended = ranks.finish();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "the others ended after {took:?}");
    for (rank, (code, said)) in ended.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
        assert_eq!(code, Some(3), "rank {rank}: {said}");
        assert!(said.contains(&format!("rank 2 (card 2, process {killed} on ")), "rank {rank}: {said}");
    }
    done(&mut train(dir, "run", &format!("{more} --resume --cards 3 --mesh dp=3 --zero 2")));
    assert_close(&curve(dir, "run"), &curve(dir, "whole"), "on another mesh");
}

/// Returns `train` without model and data.
fn shipped(more: &str) -> Command {
    let mut command = command();
    command.args(["train", "--device", "emulator"]).args(more.split_whitespace());
    command
}

#[test]
fn without_arguments_the_shipped_text_is_learned_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("shipped.jsonl");
    let output = done(shipped("--steps 12 --warmup-steps 4").arg("--metrics").arg(&metrics));
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.starts_with("And God said") && text.len() > 100, "{text}");
    assert!(said.contains("no --model and no --data") && !said.contains("saved "), "{said}");
    let losses: Vec<f64> = fs::read_to_string(&metrics)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap())
        .collect();
    // The loss starts at untrained weights and falls.
    assert!((losses[0] - 512_f64.ln()).abs() < 0.2 && losses[11] < losses[0] - 0.5, "{losses:?}");
    let output = shipped("--model models/tiny-qwen2").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--data"), "{said}");
}

#[test]
fn a_sample_is_the_same_from_one_process_and_from_several() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let more =
        |name: &str| format!("--steps 2 --mesh dp=2 --sample Abraham --save {}", dir.join(name).display());
    let alone = done(&mut shipped(&format!("{} --cards 2", more("alone"))));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let started: Vec<Child> = (0..2)
        .map(|rank| {
            let mut command = shipped(&more("many"));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1");
            command.env("MASTER_PORT", &port).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<Output> = started.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text(&alone).starts_with("Abraham") && text(&alone).len() > 20, "{}", text(&alone));
    assert_eq!((text(&outputs[0]), text(&outputs[1])), (text(&alone), String::new()));
}

/// Time shares add up to the step. More cards lower the operators' share.
#[test]
fn cards_with_a_clock_say_how_well_a_run_scales() {
    let folder = tempfile::tempdir().unwrap();
    let operators = [2, 4, 8].map(|cards| {
        let mut command = train(
            folder.path(),
            &format!("on{cards}"),
            &format!("--steps 3 --cards {cards} --mesh dp={cards}"),
        );
        let output = done(command.env("ASCEND_EMULATOR", "timed=numbers"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said
            .lines()
            .find(|line| line.starts_with("efficiency by the cards' clock: "))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(
            line.contains(&format!(" of {cards} cards over 2 steps; lost: exposed collectives ")),
            "{line}"
        );
        let words: Vec<&str> = line.split_whitespace().collect();
        let parts: Vec<f64> = words
            .windows(2)
            .filter(|pair| pair[1].starts_with('%'))
            .map(|pair| pair[0].parse().unwrap())
            .collect();
        assert!(parts.len() == 5 && (parts.iter().sum::<f64>() - 100.0).abs() < 0.3, "{line}");
        parts[0]
    });
    assert!(operators[0] > operators[1] && operators[1] > operators[2], "{operators:?}");
}

#[test]
fn conversations_take_the_template_options_of_data_prepare() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "In the beginning God created the heaven"}]}"#;
    fs::write(dir.path().join("chats.jsonl"), format!("{line}\n{{\"text\": 1}}\n{line}\n{{\"tex")).unwrap();
    fs::write(
        dir.path().join("mine.jinja"),
        "{% for m in messages %}{% if m.role == 'assistant' %}A:{% endif %}{{ m.content }}<|endoftext|>{% endfor %}\
         {% if add_generation_prompt %}A:{% endif %}",
    )
    .unwrap();
    let run = |more: &str| {
        let mut command = command();
        command.current_dir(dir.path()).args(["train", "--device", "emulator", "--steps", "2"]);
        command.args(["--seq", "8", "--global-batch", "2", "--data", "chats.jsonl", "--model"]);
        command.arg(root().join("models/kjv-qwen2")).args(more.split_whitespace());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run("--chat-template mine.jinja --skip-bad-lines 2");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 bad lines were skipped\n  chats.jsonl: line 2: not a document"), "{said}");
    let (code, said) = run("--chat-template mine.jinja --skip-bad-lines 1");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("bad lines: too many to skip: expected at most 1, found 2"), "{said}");
    let (code, said) = run("--chat-template absent.jinja --template-arg day --skip-bad-lines 2");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("absent.jinja"), "{said}");
    let output = train(dir.path(), "none", "--skip-bad-lines 1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--data: no text, which --separator"), "{said}");
}
