//! Tests of `ascend-tp train` with killed ranks, changing numbers of cards, and slow ranks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::after;
use serde_json::Value;

use crate::train::{assert_close, curve, done, send, train, wait_for_steps};

/// Time limit against hangs.
const LONG: Duration = Duration::from_secs(300);

const STEPS: &str = "--steps 24 --zero 1";

/// Returns the ranks of a process with their process ids.
fn ranks_of(parent: u32) -> BTreeMap<usize, u32> {
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let rank = |id: u32| {
        let all = fs::read(format!("/proc/{id}/environ")).ok()?;
        let found = all.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(b"RANK="))?;
        Some((String::from_utf8_lossy(found).parse().ok()?, id))
    };
    listed.split_whitespace().filter_map(|id| rank(id.parse().ok()?)).collect()
}

/// Returns the step of the newest complete checkpoint.
fn saved(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let step = |name: String| name.strip_prefix("step-")?.parse().ok();
    entries.filter_map(|entry| step(entry.file_name().into_string().ok()?)).max().unwrap_or(0)
}

/// Returns exit code and stderr, or kills the process at the time limit.
fn finish(mut child: Child) -> (Option<i32>, String) {
    let deadline = Instant::now() + LONG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("a run hangs");
        }
        after(Duration::from_millis(5)).recv().unwrap();
    }
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn weights(dir: &Path, checkpoint: &Path) -> BTreeMap<String, Vec<f32>> {
    let folder = dir.join("exported");
    let mut export = crate::command();
    export.args(["checkpoint", "export"]).arg(checkpoint).arg("--hf").arg(&folder).args(["--dtype", "f32"]);
    done(&mut export);
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    fs::remove_dir_all(folder).unwrap();
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let (header, data) = bytes[8..].split_at(length);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let numbers = |tensor: &Value| {
        let [from, to] = [0, 1].map(|end| tensor["data_offsets"][end].as_u64().unwrap() as usize);
        data[from..to].as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
    };
    tensors.map(|(name, tensor)| (name, numbers(&tensor))).collect()
}

fn digests(checkpoint: &Path) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&fs::read(checkpoint.join("index.json")).unwrap()).unwrap();
    index["files"].as_array().unwrap().iter().map(|file| file["digest"].clone()).collect()
}

#[test]
fn ranks_that_are_killed_are_started_again_and_come_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = |name: &str, more: &str| {
        let save = dir.join(format!("{name}.saved")).display().to_string();
        train(dir, name, &format!("{STEPS} --mesh dp=*,tp=2 --save-every 2 --save {save} {more}"))
    };
    done(&mut run("whole", "--cards 4"));
    let child = run("killed", "--processes 4 --max-restarts 3").stderr(Stdio::piped()).spawn().unwrap();
    let mut behind = Vec::new();
    for (rank, lines) in [(3, 5), (0, 11), (1, 18)] {
        wait_for_steps(dir, "killed", lines);
        let ranks = ranks_of(child.id());
        behind.push((rank, ranks[&rank], saved(&dir.join("killed.saved"))));
        send("KILL", ranks[&rank]);
        // Lines of repeated steps disappear on restart.
        let deadline = Instant::now() + LONG;
        while ranks_of(child.id()).get(&rank).is_none_or(|id| *id == ranks[&rank]) {
            assert!(Instant::now() < deadline, "rank {rank} was not started again");
            after(Duration::from_millis(2)).recv().unwrap();
        }
    }
    let (code, said) = finish(child);
    assert_eq!(code, Some(0), "{said}");
    for (restart, (rank, id, step)) in behind.into_iter().enumerate() {
        let restart = format!("restart {} of 3\n", restart + 1);
        let (before, rest) =
            said.split_once(&restart).unwrap_or_else(|| panic!("{restart} is not in {said}"));
        assert!(
            before.contains(&format!("rank {rank} (process {id}) of training failed (signal: 9 (SIGKILL))")),
            "{said}"
        );
        let went_on = rest.split_once("goes on at step ").unwrap().1.lines().next().unwrap();
        assert!(
            went_on.parse::<usize>().unwrap() >= step,
            "it went on at step {went_on}, {step} steps were saved"
        );
    }
    assert_eq!(curve(dir, "killed"), curve(dir, "whole"));
    let last = |name: &str| digests(&dir.join(format!("{name}.saved/step-00000024")));
    assert_eq!(last("killed"), last("whole"));
}

/// Eight cards, four, eight, then six, after SIGTERM or SIGKILL of all processes.
#[test]
fn a_run_shrinks_onto_the_cards_that_are_left_and_grows_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let more = |first: &str| {
        format!("--steps 16 --mesh dp=*,tp=2 --zero 1 {first} --save-every 1 --save {}", save.display())
    };
    let whole = dir.join("whole");
    done(&mut train(
        dir,
        "whole",
        &format!("--steps 16 --mesh dp=4,tp=2 --zero 1 --cards 8 --save {}", whole.display()),
    ));
    for (cards, until, signal) in [(8, 3, "TERM"), (4, 7, "KILL"), (8, 10, "TERM"), (6, 16, "")] {
        let mut command = train(dir, "run", &more("--processes 2:8 --resume"));
        let child =
            command.env("ASCEND_EMULATOR", format!("cards={cards}")).stderr(Stdio::piped()).spawn().unwrap();
        let expected = match signal {
            "" => Some(0),
            _ => {
                wait_for_steps(dir, "run", until);
                assert_eq!(ranks_of(child.id()).len(), cards);
                send(signal, child.id());
                (signal == "TERM").then_some(130)
            }
        };
        let (code, said) = finish(child);
        assert_eq!(code, expected, "{said}");
        assert_eq!(said.contains(&format!("trains on {cards} of 8 cards")), cards < 8, "{said}");
        if signal == "TERM" {
            assert_eq!(
                saved(&save),
                fs::read_to_string(dir.join("run.jsonl")).unwrap().lines().count(),
                "{said}"
            );
        }
    }
    assert_close(&curve(dir, "run"), &curve(dir, "whole"), "on other cards");
    let (found, expected) =
        (weights(dir, &save.join("step-00000016")), weights(dir, &whole.join("step-00000016")));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, expected) in expected {
        let largest = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(f32::abs).fold(0.0, f32::max);
        let off = largest(&mut found[&name].iter().zip(&expected).map(|(found, expected)| found - expected));
        let bound = 1e-5 * largest(&mut expected.iter().copied());
        assert!(off <= bound, "{name}: {off} off, at most {bound} expected");
    }
}

/// If cards return, the run saves and continues on all cards.
#[test]
fn a_run_on_the_cards_that_are_left_grows_when_others_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    done(&mut train(dir, "whole", &format!("{STEPS} --mesh dp=4,tp=2 --cards 8")));
    let machine = dir.join("machine");
    // Keeps the run busy long enough.
    fs::write(&machine, "cards=4,fault=slow:card=0:us=1500").unwrap();
    let more = format!("{STEPS} --processes 2:8 --mesh dp=*,tp=2 --look-every 1 --save {}", save.display());
    let mut command = train(dir, "run", &more);
    let child = command
        .env("ASCEND_EMULATOR", format!("@{}", machine.display()))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(dir, "run", 2);
    assert_eq!(ranks_of(child.id()).len(), 4);
    fs::write(&machine, "cards=8,fault=slow:card=0:us=1500").unwrap();
    let deadline = Instant::now() + LONG;
    while ranks_of(child.id()).len() < 8 {
        assert!(Instant::now() < deadline, "it did not grow");
        after(Duration::from_millis(2)).recv().unwrap();
    }
    // A failure on returned cards is not a restart (none is allowed). The run continues without
    // them.
    wait_for_steps(dir, "run", saved(&save) + 2);
    send("KILL", ranks_of(child.id())[&5]);
    let (code, said) = finish(child);
    assert_eq!(code, Some(0), "{said}");
    let mut rest = said.as_str();
    let mut steps = Vec::new();
    for part in [
        "trains on 4 of 8 cards",
        "8 cards answer: all ranks save and restart on them",
        "goes on at step ",
        "rank 5 (process ",
        "; restarts without the returned cards; checks for more every 2 s",
        "trains on 4 of 8 cards",
        "goes on at step ",
    ] {
        rest =
            rest.split_once(part).unwrap_or_else(|| panic!("{part} is not where it should be in {said}")).1;
        steps.extend(rest.lines().next().and_then(|line| line.parse::<usize>().ok()));
    }
    assert!(!said.contains("trains on 8") && !said.contains("; restart "), "{said}");
    assert!(
        steps.len() == 2 && (2..24).contains(&steps[0]) && steps[0] == steps[1],
        "it went on at steps {steps:?}"
    );
    assert_close(&curve(dir, "run"), &curve(dir, "whole"), "on more cards");
}

/// The planner chooses the layout for the responding cards.
#[test]
fn a_mesh_that_is_left_to_the_planner_is_that_of_the_cards_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    done(&mut train(dir, "whole", &format!("{STEPS} --mesh dp=4,tp=2 --cards 8")));
    let mut meshes = Vec::new();
    for (cards, until) in [(8, 4), (4, 10), (7, 24)] {
        let more = format!("{STEPS} --processes 1:8 --mesh auto --resume --save {}", save.display());
        let mut command = train(dir, "run", &more);
        let child =
            command.env("ASCEND_EMULATOR", format!("cards={cards}")).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_steps(dir, "run", until);
        if until < 24 {
            send("TERM", child.id());
        }
        let (code, said) = finish(child);
        assert_eq!(code, Some(if until < 24 { 130 } else { 0 }), "{said}");
        let mesh =
            said.lines().find_map(|line| line.split_once("--mesh auto: ")?.1.split_once(" --micro-batch "));
        let (mesh, micro_batch) = mesh.unwrap_or_else(|| panic!("{said}"));
        assert!(micro_batch.parse::<usize>().is_ok(), "{said}");
        meshes.push((cards, mesh.to_owned()));
    }
    assert_close(&curve(dir, "run"), &curve(dir, "whole"), "on meshes of the planner");
    for (cards, mesh) in &meshes {
        let sizes =
            mesh.strip_prefix("--mesh ").unwrap().split(',').map(|axis| axis.split_once('=').unwrap().1);
        let used: usize = sizes.map(|size| size.parse::<usize>().unwrap()).product();
        assert!(used <= *cards && (used == *cards || *cards == 7), "{meshes:?}");
    }
}

#[test]
fn what_the_planner_does_not_know_and_what_no_split_has_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for (more, expected) in [
        ("--cards 4 --recompute 1", "--mesh auto: the planner recomputes all layers or none"),
        (
            "--cards 4 --lora rank=2,alpha=4,targets=q_proj",
            "--mesh auto: the planner does not support adapters",
        ),
        ("", "--mesh auto: the number of cards is not given"),
        ("--cards 5 --ring", "--mesh auto: no layout that fits these cards matches all options"),
        ("--cards 4 --micro-batch 3", "--pipeline 1f1b, --micro-batch 3"),
        ("--cards 6 --exact", "--pipeline 1f1b, --exact"),
    ] {
        let output = train(dir, "refused", &format!("--mesh auto {more}")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(expected), "{more}: {expected} is not in\n{said}");
    }
    // Sixteen blocks do not divide by six, so no ranks are started.
    let mut command = train(dir, "exact", "--steps 1 --processes 2:8 --mesh dp=* --exact");
    let output = done(command.env("ASCEND_EMULATOR", "cards=6"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("trains on 4 of 8 cards"), "{said}");
    // Eight replicas would send more than the whole sum.
    let output = done(&mut train(dir, "taken", "--mesh auto --steps 1 --cards 8 --compress topk=0.2"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--mesh auto: --mesh ") && !said.contains("dp=8"), "{said}");
}

#[test]
fn what_cannot_be_restarted_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved").display().to_string();
    let elastic = [("TORCHELASTIC_MAX_RESTARTS", "3"), ("TORCHELASTIC_RUN_ID", "7")];
    let ranks = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "9")];
    for (more, variables, expected) in [
        (
            "--processes 9".to_owned(),
            &[][..],
            "--processes: too few cards answer: expected 9 or more, found 8",
        ),
        (
            "--processes 8".to_owned(),
            &[("ASCEND_EMULATOR", "fault=card-lost:at=1:card=5")],
            "--processes: too few cards answer: expected 8 or more, found 7; card 5: ",
        ),
        (
            "--processes 2".to_owned(),
            &ranks,
            "--processes: a launcher has already started processes: found 2",
        ),
        ("--processes 2 --max-restarts 1".to_owned(), &[], "--save-every"),
        (
            "--processes 3 --mesh dp=*,tp=2".to_owned(),
            &[],
            "--mesh: does not match the cards: expected a multiple of 2",
        ),
        ("--cards 4 --mesh dp=*,tp=*".to_owned(), &[], "--mesh: more than one axis is *"),
        ("--cards 4 --mesh dp=9999999999,tp=9999999999".to_owned(), &[], "--mesh: too many cards"),
        (format!("--save {save}"), &elastic, "--save: torchrun may restart this run"),
    ] {
        let mut command = train(dir, "refused", &more);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(expected), "{more}: {expected} is not in\n{said}");
    }
    assert!(!dir.join("refused.jsonl").exists());
}

#[test]
fn a_card_that_is_slow_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut command = train(dir, "slow", "--steps 20 --cards 4 --mesh dp=4");
    let output = done(command.env("ASCEND_EMULATOR", "fault=slow:card=2:us=1000"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("rank 2 is a straggler: it computes "), "{said}");
    let text = fs::read_to_string(dir.join("slow.jsonl")).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["stragglers"], &last["slowest_rank"]),
        (&serde_json::json!([2]), &serde_json::json!(2.0)),
        "{last}"
    );
    assert!(last["slowest_over_median"].as_f64().unwrap() > 1.5, "{last}");
}

/// Runs torchrun, where it is installed.
#[test]
fn torchrun_restarts_a_run_onto_its_newest_checkpoint() {
    if Command::new("torchrun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        eprintln!("torchrun is not installed: nothing to try");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let save = dir.join("saved");
    let launched = |cards: usize, restarts: usize, more: &str| {
        let own =
            train(dir, "run", &format!("{STEPS} --mesh dp=*,tp=2 --save {} --resume {more}", save.display()));
        let mut command = Command::new("torchrun");
        let numbers = [("--nproc-per-node", cards), ("--max-restarts", restarts)]
            .map(|(name, number)| format!("{name}={number}"));
        command
            .args(numbers)
            .args(["--standalone", "--no-python"])
            .arg(own.get_program())
            .args(own.get_args());
        command.env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
        command.current_dir(crate::root()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    done(&mut train(dir, "whole", &format!("{STEPS} --mesh dp=2,tp=2 --cards 4")));
    let mut child = launched(4, 1, "--save-every 2");
    for (steps, rank) in [(7, Some(2)), (14, None)] {
        while saved(&save) < steps {
            if child.try_wait().unwrap().is_some() {
                panic!("torchrun ended: {}", finish(child).1);
            }
            after(Duration::from_millis(5)).recv().unwrap();
        }
        if let Some(rank) = rank {
            send("KILL", ranks_of(child.id())[&rank]);
        }
    }
    send("TERM", child.id());
    let (_, said) = finish(child);
    assert!(said.contains("goes on at step "), "{said}");
    assert_eq!(saved(&save), fs::read_to_string(dir.join("run.jsonl")).unwrap().lines().count(), "{said}");
    let (code, said) = finish(launched(6, 0, ""));
    assert_eq!(code, Some(0), "{said}");
    assert_close(&curve(dir, "run"), &curve(dir, "whole"), "under torchrun");
}
