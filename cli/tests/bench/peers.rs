//! Tests of `bench peers` without peers and with imitated peers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::command;
use crate::{stderr, stdout};

/// Runs `bench peers --quick --json` with only a folder's programs.
fn peers(programs: &Path) -> Output {
    command("peers --quick --json --device emulator").env("PATH", programs).output().unwrap()
}

fn program(programs: &Path, name: &str, body: &str) {
    let path = programs.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Writes a Python without transformers; programs print `printed`.
fn python(programs: &Path, printed: &str) {
    // `cat` is not on the PATH.
    let print = format!("/bin/cat <<'END'\n{printed}\nEND");
    let body = format!("case \"$3\" in transformers|gguf) exit 1;; torch|numpy) exit 0;; esac\n{print}");
    program(programs, "python3", &body);
}

fn tables(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["tables"].as_array().unwrap().clone()
}

#[test]
fn nobody_installed_is_said_and_recorded_figures_stand_alone() {
    let nothing = tempfile::tempdir().unwrap();
    let tables = tables(&peers(nothing.path()));
    let names: Vec<&str> = tables.iter().map(|table| table["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["peers", "peers_missing", "peers_recorded"]);
    assert_eq!(tables[0]["rows"].as_array().unwrap().len(), 0, "no ratio to what was recorded elsewhere");
    let missing: Vec<String> =
        tables[1]["rows"].as_array().unwrap().iter().map(|row| row["install"].to_string()).collect();
    assert_eq!(missing.len(), 4);
    assert!(missing.iter().all(|install| install.contains(" install ")), "{missing:?}");
    assert!(tables[2]["title"].as_str().unwrap().starts_with("Peers as recorded on "));
}

#[test]
fn a_compiler_without_the_headers_is_a_peer_that_is_missing() {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "mpirun", "exit 0");
    program(programs.path(), "mpicc", "echo 'mpi.h: No such file or directory' >&2; exit 1");
    let found = tables(&peers(programs.path()));
    let missing = found[1]["rows"].to_string();
    assert!(missing.contains("mpicc finds no mpi.h"), "{missing}");
}

#[test]
fn a_peer_is_compared_or_refused_by_what_it_prints() {
    let programs = tempfile::tempdir().unwrap();
    let seconds =
        r#""all_reduce f32 67108864": [10], "all_reduce f32 16384": [1, 2], "all_reduce f16 16384": [3]"#;
    python(programs.path(), &format!(r#"{{"version": "gloo (a fake)", "seconds": {{{seconds}}}}}"#));
    let found = tables(&peers(programs.path()));
    let rows = found[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(row["peer"], "gloo (a fake)");
        assert!(number("ours") > 0.0 && number("least_ratio") <= number("ratio"), "{row}");
        assert_eq!((number("rounds"), row["unit"].as_str()), (2.0, Some("µs")));
    }
    assert_eq!(rows[0]["theirs"], 1e7);
    python(programs.path(), "all_reduce: fast");
    let output = peers(programs.path());
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(
        errors.contains("error: gloo: cannot parse the output: expected an object with version"),
        "{errors}"
    );
    assert!(errors.contains("found") && errors.contains("all_reduce: fast"), "{errors}");
}

/// The first round is shown although `gloo` sends a signal to the measuring process in the second.
#[test]
fn a_signal_prints_the_rounds_so_far() {
    let seconds =
        r#""all_reduce f32 67108864": [10], "all_reduce f32 16384": [1], "all_reduce f16 16384": [3]"#;
    let printed = format!(r#"{{"version": "gloo (a fake)", "seconds": {{{seconds}}}}}"#);
    for (name, is_json) in [("TERM", false), ("INT", true)] {
        let programs = tempfile::tempdir().unwrap();
        let path = |name: &str| programs.path().join(name).display().to_string();
        let (marker, never) = (path("marker"), path("never"));
        assert!(std::process::Command::new("mkfifo").arg(&never).status().unwrap().success());
        let signal =
            format!("if [ -e {marker} ]; then kill -{name} $PPID; read nothing <> {never}; fi; : > {marker}");
        let body = format!(
            "case \"$3\" in transformers|gguf) exit 1;; torch|numpy) exit 0;; esac\nif [ \"$RANK\" = 0 ]; then {signal}; fi"
        );
        program(programs.path(), "python3", &format!("{body}\n/bin/cat <<'END'\n{printed}\nEND"));
        let line = if is_json { "peers --quick --json" } else { "peers --quick" };
        let output =
            command(&format!("{line} --device emulator")).env("PATH", programs.path()).output().unwrap();
        let (shown, errors) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(130), "{errors}");
        let said = if is_json { &errors } else { &shown };
        assert!(
            said.contains("round 1 of 2, gloo: all_reduce 64.0 MiB, 8 processes f32 ours "),
            "{shown}{errors}"
        );
        assert!(!said.contains("round 2 of 2, gloo: all_reduce"), "{said}");
        if is_json {
            let report: Value = serde_json::from_str(&shown).unwrap();
            let rows = report["tables"][0]["rows"].as_array().unwrap();
            assert!(rows.len() == 3 && rows.iter().all(|row| row["rounds"] == 1.0), "{rows:?}");
        } else {
            assert!(
                shown.contains("gloo (a fake)") && shown.contains("Peers that are not installed"),
                "{shown}"
            );
        }
    }
}
